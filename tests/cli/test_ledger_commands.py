"""Ledgers from the shell: create, add, show, check, export."""

import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest

from privsketch import Box, Budget, Design, Ledger
from privsketch.cli import chart
from privsketch.ledger import Cost, SpendingStep
from tests import answers
from tests.commands import DATA, INTEGRITY, refused, run, succeeded


@pytest.fixture
def path(tmp_path):
    """A ledger of two data sets, one of which was used."""
    path = tmp_path / "budget.ledger"
    succeeded("ledger", "create", path)
    succeeded("ledger", "add", path, "visits", "--epsilon", 1, "--delta", 1e-6, "--note", "of 2024")
    succeeded("ledger", "add", path, "a & <b>", "--epsilon", 0.5, "--delta", 0, "--person", "id")
    book = Ledger(path)
    book.commit(book.reserve("visits", Cost(0.25, 1e-7), what="a sketch"), receipt={"epsilon": 1})
    book.reserve("visits", Cost(0.5), what="a model")
    return path


def validated(name, result):
    return answers.validated(json.loads(result.stdout), name)


def test_show_says_what_is_left_and_fits_a_terminal(path):
    said = succeeded("ledger", "show", path).stdout
    assert "spent       epsilon = 0.75, delta = 1e-07" in said
    assert "left        epsilon = 0.25, delta = 9e-07" in said
    assert "entries     2, 75 % of the limit; 1 reserved and never committed" in said
    assert "100 %" in said
    rows = [line for line in said.splitlines() if not line.startswith("ledger ")]
    assert max(map(len, rows)) <= 80


def test_long_limits_fit_a_terminal(tmp_path):
    new = tmp_path / "new.ledger"
    succeeded("ledger", "create", new, "--accounting", "zcdp")
    stated = ["--epsilon", 3, "--delta", 1e-6, "--without-rho", 0.25]
    succeeded("ledger", "add", new, "visits", *stated)
    said = succeeded("ledger", "show", new).stdout.splitlines()
    assert "if all of it is pure" in " ".join(line.strip() for line in said)
    assert max(len(line) for line in said[1:]) <= 80


@pytest.mark.parametrize(
    "command", [[], ["create"], ["add"], ["show"], ["approval"], ["check"], ["export"]]
)
def test_pages_of_help_fit_a_terminal_and_cut_no_sentence(command):
    lines = succeeded("ledger", *command, "--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines[1:])


def test_commands_are_listed_in_the_order_of_their_use():
    said = succeeded("ledger", "--help").stdout
    listed = [line.split()[0] for line in said.partition("Commands:\n")[2].splitlines()]
    assert listed == ["create", "add", "show", "approval", "check", "export"]


def test_show_of_one_data_set_with_its_entries(path):
    said = succeeded("ledger", "show", path, "visits", "--entries").stdout
    assert "a sketch" in said
    assert "reserved: a model" in said
    assert "<b>" not in said
    assert "no data set of this name" in refused(path.parent, "ledger", "show", path, "other")


def test_entries_are_listed_as_they_count_with_their_outputs(tmp_path):
    """What a release states is not what a data set of another relation, or of rho, is charged."""
    path, page = tmp_path / "rho.ledger", tmp_path / "page.html"
    book = Ledger.create(path, "zcdp")
    book.add("visits", epsilon=3.0, delta=1e-6, neighbours="replace", without_rho=0.5)
    book.commit(book.reserve("visits", Cost(0.5, 1e-7, 0.005), what="sketch"), output="jan.sketch")
    book.reserve("visits", Cost(0.05), what="bounds")
    book.reserve("visits", Cost(0.25, 1e-9), what="masked")
    said = succeeded("ledger", "show", path, "--entries", "--report", page).stdout
    words = page.read_text(encoding="utf-8")
    assert "  rho = 0.02  sketch, jan.sketch\n" in said  # 4 rho: one removed and one added
    assert "  rho = 0.005  reserved: bounds\n" in said
    assert "  epsilon = 0.5, delta = " in said
    assert "<td>jan.sketch</td><td>rho = 0.02</td>" in words
    assert ", 2 of them never committed" in words
    assert "UTC</text>" in words  # two equal dates would say nothing


def test_answers_for_machines(tmp_path, path):
    new = tmp_path / "new.ledger"
    made = succeeded("ledger", "create", new, "--accounting", "zcdp", "--json")
    made = validated("ledger-create", made)
    assert (made["ledger"], made["accounting"]) == (str(new), "zcdp")
    facts = ["--epsilon", 1, "--delta", 1e-6, "--without-rho", 0.25, "--json"]
    added = validated("ledger-add", succeeded("ledger", "add", new, "x", *facts))
    assert added["data_set"]["limit"]["without_rho"] == "1/4"
    Ledger(new).reserve("x", Cost(0.1, 1e-8, 1e-4), what="")
    validated("ledger-show", succeeded("ledger", "show", new, "--json"))
    shown = validated("ledger-show", succeeded("ledger", "show", path, "--json"))
    assert [found["used"] for found in shown["data_sets"]] == [0.75, 0]
    assert [step["used"] for step in shown["data_sets"][0]["spending"]] == [0.25, 0.75]
    assert shown["entries"] is None
    asked = succeeded("ledger", "show", path, "visits", "--entries", "--json")
    listed = validated("ledger-show", asked)["entries"]
    assert [entry["what"] for entry in listed] == ["a sketch", "a model"]
    whole = validated("ledger-check", succeeded("ledger", "check", path, "--json"))
    assert whole["is_whole"]
    export = validated("ledger-export", succeeded("ledger", "export", path, "--json"))["export"]
    assert export == Ledger(path).export()
    assert export["head"] == whole["head"]
    output = tmp_path / "export.json"
    told = validated("ledger-export", succeeded("ledger", "export", path, "-o", output, "--json"))
    assert told["written"] == [str(output)]
    assert json.loads(output.read_text()) == export
    plain = succeeded("ledger", "export", path)
    assert json.loads(plain.stdout) == export
    assert "names your data sets" in plain.stderr


def test_a_ledger_that_was_edited_fails_the_check(path):
    assert "whole" in succeeded("ledger", "check", path).stdout
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER no_change")
    connection.execute("UPDATE log SET epsilon = '1/10' WHERE number = 3")
    connection.commit()
    connection.close()
    result = run("ledger", "check", path)
    assert result.exit_code == 5
    assert "line 3: its hash does not match" in result.stdout
    answer = run("ledger", "check", path, "--json")
    assert answer.exit_code == 5
    assert not validated("ledger-check", answer)["is_whole"]


def test_a_head_shows_that_an_older_copy_was_brought_back(path, tmp_path):
    older = tmp_path / "older.ledger"
    shutil.copy(path, older)
    Ledger(path).reserve("visits", Cost(0.01), what="one more")
    shown = succeeded("ledger", "show", path).stdout
    head = Ledger(path).head
    assert f"head        {head}" in shown
    assert "ledger check --head" in shown
    assert f"head        {head}" in succeeded("ledger", "check", path).stdout
    assert "is the hash of one of them" in succeeded("ledger", "check", path, "--head", head).stdout
    succeeded("ledger", "check", older)
    shutil.copy(older, path)
    result = run("ledger", "check", path, "--head", head, "--json")
    assert result.exit_code == INTEGRITY
    (problem,) = validated("ledger-check", result)["problems"]
    assert "an older copy was restored" in problem
    assert "enter again what was released since" in problem
    assert "--head" in refused(tmp_path, "ledger", "check", path, "--head", "abc")


@pytest.mark.skipif(os.name != "posix", reason="modes say something else here")
def test_a_ledger_that_others_can_read_is_told(path):
    assert "others" not in succeeded("ledger", "show", path).stderr
    path.chmod(0o644)
    told = succeeded("ledger", "show", path).stderr
    assert told.startswith("careful     ")
    assert f"chmod 600 {path}" in told


def test_files_that_are_no_ledgers(tmp_path):
    other = tmp_path / "data.csv"
    other.write_text("a,b\n1,2\n")
    result = run("ledger", "check", other, "--json")
    assert result.exit_code == 5
    assert "not a privsketch ledger" in json.loads(result.stdout)["problems"][0]
    for command in ("check", "show", "export"):
        refused(tmp_path, "ledger", command, other, code=INTEGRITY)
        refused(tmp_path, "ledger", command, tmp_path / "none", code=DATA)
    refused(tmp_path, "ledger", "create", other, code=DATA)


def test_exports_do_not_replace_files(tmp_path, path):
    output = tmp_path / "export.json"
    output.write_text("mine")
    assert "exists" in refused(tmp_path, "ledger", "export", path, "-o", output, code=DATA)
    said = succeeded("ledger", "export", path, "-o", output, "--force").stdout
    assert "names your data sets" in said


def test_the_page_has_pictures_and_escapes_names(tmp_path, path):
    page = tmp_path / "spending.html"
    succeeded("ledger", "show", path, "--report", page)
    text = page.read_text()
    assert "<h2>a &amp; &lt;b&gt;</h2>" in text
    assert "Do not publish this page" in text
    picture = text[text.index("<svg") : text.index("</svg>") + 6]
    assert "75% of the limit" in ElementTree.fromstring(picture).get("aria-label")
    assert "exists" in refused(tmp_path, "ledger", "show", path, "--report", page, code=DATA)
    refused(tmp_path, "ledger", "show", path, "--report", "-")


def test_terminals_without_blocks(path):
    command = [sys.executable, "-m", "privsketch.cli.main", "ledger", "show", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert b"##" in done.stdout


BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


def steps(*pairs):
    return [SpendingStep(BEGIN + timedelta(days=day), "x", used) for day, used in pairs]


def test_the_chart_is_of_the_times_and_shares():
    lines = chart(
        steps((50, 0.5), (75, 1.0)), BEGIN, BEGIN + timedelta(days=100), width=108, height=4
    )
    drawn = [line.ljust(108)[8:] for line in lines[:4]]
    assert drawn[0] == " " * 75 + "█" * 25
    assert drawn[3] == " " * 50 + "█" * 50
    assert drawn[2] == " " * 50 + "█" * 50
    assert drawn[1] == " " * 75 + "█" * 25
    assert lines[-1].split() == ["2024-01-01", "2024-04-10"]


@pytest.mark.parametrize("plain", [False, True])
def test_almost_nothing_is_seen_and_almost_all_is_not_full(plain):
    end = BEGIN + timedelta(days=1)
    little = chart(steps((0, 1e-9)), BEGIN, end, plain=plain)
    assert little[-2][8:].strip()
    nearly = chart(steps((0, 1 - 1e-9)), BEGIN, end, plain=False)
    assert "▇" in nearly[0]
    assert "█" not in nearly[0]
    assert all(len(line) <= 79 for line in little + nearly)


def test_a_period_is_shown_and_refuses(path, monkeypatch):
    stated = ["--epsilon", 3, "--delta", 0, "--period", "quarter", "--period-epsilon", 1]
    said = succeeded("ledger", "add", path, "labs", *stated).stdout
    assert "per quarter epsilon = 1, delta = 0" in said
    Ledger(path).reserve("labs", Cost(0.75), what="a sketch")
    said = succeeded("ledger", "show", path, "labs").stdout
    assert "epsilon = 0.25, delta = 0 left of this quarter's limit" in " ".join(said.split())
    page = path.parent / "page.html"
    succeeded("ledger", "show", path, "--report", page)
    assert "limit of each quarter" in page.read_text(encoding="utf-8")
    assert "go together" in refused(path.parent, "ledger", "add", path, "more", *stated[:-2])


@pytest.mark.parametrize(("epsilon", "allowed"), [(0.25, True), (0.5, False)])
def test_the_sheet_for_approval_spends_nothing(path, tmp_path, epsilon, allowed):
    budget = Budget(epsilon, 1e-7)
    design, sheet = tmp_path / "study.json", tmp_path / "sheet.html"
    Design.plan(n_components=2, domain=Box(-1, 1, dim=2), budget=budget, n_records=1000).save(
        design
    )
    before = path.read_bytes()
    succeeded("ledger", "approval", path, "visits", "--design", design, "-o", sheet)
    page = sheet.read_text(encoding="utf-8")
    assert path.read_bytes() == before
    assert "2 clusters" in page
    assert f"{math.exp(epsilon):.3g} times as likely" in page
    assert ("The ledger will refuse this release" in page) is not allowed
    assert ("delta = 8e-07" in page) is allowed
    # No result is promised to be as likely but for results of probability delta: that is not what
    # a delta means. Of a person who is known to be there, the content costs twice.
    assert "except" not in page
    assert "plus 1e-07 in probability" in " ".join(page.split())
    assert "may be squared" in page
    assert "a noisy number of records" in page
    assert Design.load(design).fingerprint in page


def test_a_sheet_for_a_release_without_a_design(path, tmp_path):
    sheet = tmp_path / "sheet.html"
    asked = ("ledger", "approval", path, "visits", "-o", sheet, "--epsilon", 0.25)
    before = path.read_bytes()
    succeeded(*asked, "--delta", 1e-7, "--release", "6 clusters of <visits>")
    page = sheet.read_text(encoding="utf-8")
    assert "6 clusters of &lt;visits&gt;" in page
    assert f"{math.exp(0.25):.3g} times as likely" in page
    assert path.read_bytes() == before
    assert "--release" in refused(tmp_path, *asked, "--force")
    design = tmp_path / "study.json"
    Design.plan(n_components=2, domain=Box(-1, 1, dim=2), budget=Budget(1.0, 1e-7)).save(design)
    both = (*asked, "--release", "x", "--design", design, "--force")
    assert "its own cost" in refused(tmp_path, *both)


def test_an_altered_ledger_is_not_shown(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER no_change")
        connection.execute("UPDATE log SET epsilon = '1/100' WHERE kind = 'commit'")
    for command in ("show", "export"):
        assert "not a whole ledger" in refused(path.parent, "ledger", command, path, code=INTEGRITY)
