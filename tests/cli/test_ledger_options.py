"""Commands that release, with a ledger: entered, refused above the limit, told to the holder."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
from tests.answers import validated
from tests.commands import BUDGET, DATA, INTEGRITY, refused, run, succeeded

COST = ["--epsilon", 1, "--delta", "1e-6"]
LLOYD = ["--method", "lloyd"]
RELEASES = {
    "sketch": ["sketch", "study.json", "data.npy", "-o", "new.sketch"],
    "cluster": ["cluster", "data.npy", "-k", 2, "--box", -4, 4, *COST, "-o", "m.json"],
    "lloyd": ["cluster", "data.npy", "-k", 2, "--box", -4, 4, *COST, "-o", "m.json", *LLOYD],
    "regress": ["regress", "data.npy", "--target", "x1", "--box", -4, 4, *COST, "-o", "r.json"],
    "release": ["release", "data.npy", "-k", 1, "--ball", 4, *COST, "-o", "rows.npy"],
    "bounds": ["bounds", "data.npy", "--columns", "0", "--epsilon", 1],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRIVSKETCH_LEDGER", raising=False)
    np.save("data.npy", np.random.default_rng(0).normal(size=(2000, 3)))
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6),
        n_features=30,
        random_state=0,
    )
    design.save("study.json")
    ledger = ps.Ledger.create("l.ledger")
    for name in ("visits", "copies"):
        ledger.add(name, epsilon=2.5, delta=1e-4)
    ledger.add("rows", epsilon=2.5, delta=1e-4, neighbours="replace")
    return tmp_path


def with_ledger(name, data_set=None):
    data_set = data_set or ("rows" if name == "release" else "visits")
    return [*RELEASES[name], "--ledger", "l.ledger", "--dataset", data_set]


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_entered_and_the_rest_told(folder, name):
    made = succeeded(*with_ledger(name))
    (entry,) = ps.Ledger("l.ledger").entries()
    assert entry.state == "committed"
    assert entry.receipt["epsilon"] == 1.0
    if name != "bounds":
        assert entry.output == str(RELEASES[name][RELEASES[name].index("-o") + 1])
    assert "of the ledger has epsilon = 1.5" in made.output


@pytest.mark.parametrize("name", RELEASES)
def test_above_the_limit_a_command_is_refused(folder, name):
    ledger = ps.Ledger("l.ledger")
    relation = "replace" if name == "release" else "add-remove"
    ledger.add("small", epsilon=0.999, delta=1e-4, neighbours=relation)
    told = refused(folder, *with_ledger(name, "small"), code=BUDGET)
    assert "left are epsilon = 0.999" in told
    assert ledger.entries("small") == []


def test_rows_need_a_data_set_that_hides_what_a_record_says(folder):
    told = refused(folder, *with_ledger("release", "visits"), code=BUDGET)
    assert "a release of rows hides what a record says" in told
    assert "privsketch ledger add --neighbours replace" in told
    assert "release with" not in told  # there is no such option
    replaced = ["--neighbours", "replace"]
    told = refused(folder, *with_ledger("lloyd", "visits"), *replaced, code=BUDGET)
    assert "release with neighbours='add-remove', or add a data set of replace" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledger", "export", "l.ledger", "-o", "l.ledger"],
        ["ledger", "show", "l.ledger", "--report", "l.ledger"],
        ["sketch", "study.json", "data.npy", "-o", "l.ledger", "--ledger", "l.ledger"],
        [*RELEASES["lloyd"], "--report", "l.ledger", "--ledger", "l.ledger"],
        ["merge", "a.sketch", "-o", "l.ledger"],
        ["design", "-k", 2, "--ball", 1, "--dim", 2, *COST, "-o", "l.ledger"],
        ["release", "data.npy", "-k", 1, "--ball", 4, *COST, "-o", "l.csv", "--ledger", "l.csv"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_command_replaces_a_ledger(folder, arguments):
    """Found out before anything is entered in it, whatever --force says."""
    ps.sketch(np.zeros((9, 3)), ps.Design.load("study.json")).save("a.sketch")
    Path("l.csv").write_bytes(Path("l.ledger").read_bytes())
    stated = ["--dataset", "visits"] if "--ledger" in arguments else []
    told = refused(folder, *arguments, *stated, "--force", code=DATA)
    assert "is a ledger, which is never replaced" in told


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write")
@pytest.mark.parametrize("name", [name for name in RELEASES if name != "bounds"])
def test_a_folder_that_cannot_be_written_costs_nothing(folder, name):
    arguments = with_ledger(name)
    place = arguments.index("-o") + 1
    arguments[place] = f"/proc/{arguments[place]}"
    told = refused(folder, *arguments, code=DATA)
    assert "/proc: no file can be made in this folder" in told


@pytest.mark.parametrize("name", RELEASES)
def test_a_dry_run_asks_and_enters_nothing(folder, name):
    told = succeeded(*with_ledger(name), "--dry-run").output
    assert "allowed; epsilon = 1.5" in told
    assert ps.Ledger("l.ledger").entries() == []


@pytest.mark.parametrize("name", RELEASES)
def test_a_dry_run_that_would_be_refused_is(folder, name):
    """A script that goes on only after a dry run must not go on."""
    relation = "replace" if name == "release" else "add-remove"
    ps.Ledger("l.ledger").add("small", epsilon=0.5, delta=1e-4, neighbours=relation)
    told = refused(folder, *with_ledger(name, "small"), "--dry-run", code=BUDGET)
    assert "data set 'small': the release costs epsilon = 1" in told
    result = run(*with_ledger(name, "small"), "--dry-run", "--json")
    assert result.exit_code == BUDGET
    found = validated(json.loads(result.stdout), RELEASES[name][0])
    assert found["dry_run"] is True
    assert found["allowed"] is False
    assert found["error"]["kind"] == "budget"
    assert found["cost"]["epsilon"] == 1.0
    asked = succeeded(*with_ledger(name), "--dry-run", "--json")
    assert validated(json.loads(asked.stdout), RELEASES[name][0])["allowed"] is True
    alone = succeeded(*RELEASES[name], "--dry-run", "--json")
    assert validated(json.loads(alone.stdout), RELEASES[name][0])["allowed"] is None


@pytest.mark.slow
def test_the_environment_names_the_ledger(folder, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_LEDGER", "l.ledger")
    told = refused(folder, *RELEASES["sketch"])
    assert told.startswith("Error: the ledger has 3 data sets ('visits', 'copies', 'rows'); say ")
    assert "--dataset" in told
    succeeded(*RELEASES["sketch"], "--dataset", "visits")
    monkeypatch.setenv("PRIVSKETCH_DATASET", "copies")
    succeeded(*RELEASES["cluster"])
    assert [entry.data_set for entry in ps.Ledger("l.ledger").entries()] == ["visits", "copies"]


@pytest.mark.slow
def test_the_same_records_under_another_name_are_told_to_the_holder_alone(folder):
    succeeded(*with_ledger("sketch"))
    made = succeeded(*with_ledger("cluster", "copies"), "--json")
    assert "careful     these are the records of data set 'visits'" in made.stderr
    assert "these are the records" not in made.stdout
    assert "of the ledger has" in json.loads(made.stdout)["notes"][-1]


def test_an_error_of_a_ledger_says_what_it_cost(folder):
    Path("l.ledger").write_bytes(b"no ledger at all, but some text")
    result = run(*with_ledger("sketch"))
    assert result.exit_code == 5
    assert "not a privsketch ledger" in result.stderr
    assert "nothing was spent" in result.stderr


def test_an_edited_ledger_is_refused(folder):
    succeeded(*with_ledger("sketch"))
    with contextlib.closing(sqlite3.connect("l.ledger")) as connection:
        connection.execute("DROP TRIGGER no_change")
        connection.execute("UPDATE log SET epsilon = '-5' WHERE kind = 'commit'")
        connection.commit()
    told = refused(folder, *with_ledger("lloyd"), code=INTEGRITY)
    assert "line 5: its hash does not match; it was altered; not a whole ledger" in told


@pytest.mark.slow
def test_a_command_that_is_stopped_after_its_entry_counts_as_spent(folder):
    script = (
        "import os, signal, threading\n"
        "from privsketch.ledger.book import Ledger\n"
        "before = Ledger.reserve\n"
        "def reserve(*arguments, **options):\n"
        "    found = before(*arguments, **options)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return found\n"
        "Ledger.reserve = reserve\n"
        "from privsketch.cli.shell.stopping import run\n"
        "run()\n"
    )
    arguments = [str(one) for one in with_ledger("sketch")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        env=dict(os.environ),
    )
    assert done.returncode == 1, done.stderr
    assert "the budget counts as spent" in done.stderr
    assert not Path("new.sketch").exists()
    (entry,) = ps.Ledger("l.ledger").entries()
    assert entry.state == "reserved"
