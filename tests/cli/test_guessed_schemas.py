"""A guess releases nothing: every command that takes a schema or a design refuses a marked one."""

import json
import re

import click
import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch._base import document
from privsketch.cli.main import main
from tests import seams
from tests.advice import every_command
from tests.commands import DATA, INTEGRITY, PLUGINS, USAGE, contents, refused, run, succeeded
from tests.visits import visits

COST = ("--epsilon", 1, "--delta", 1e-6)
MARKED = ("--schema", "schema.json")
# What each command needs beside a schema, or a design.
WITH_SCHEMA = {
    "cluster": ["visits.csv", "-k", 2, *COST, "-o", "m.json"],
    "regress": ["visits.csv", "--target", "age", *COST, "-o", "m.json"],
    "release": ["visits.csv", "-k", 1, *COST, "-o", "rows.csv"],
    "plan": ["-k", 2, *COST],
    "design": ["-k", 2, *COST, "-o", "d.json"],
}
WITH_DESIGN = {
    "sketch": ["visits.csv", "-o", "v.sketch"],
    "check": ["visits.csv"],
}


@pytest.fixture
def guessed(folder, monkeypatch):
    """A table, a proposed schema, and a design into which somebody has written a mark."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(folder / "home"))
    visits(300).to_csv("visits.csv", index=False)
    succeeded("schema", "draft", "visits.csv", "--look", "-o", "schema.json")
    content = ps.Design.plan(
        n_components=2, domain=ps.Schema([ps.Number("age", 0, 110)]), random_state=0,
        budget=ps.Budget(1.0, 1e-6), n_features=20,
    ).to_json()  # fmt: skip
    content["schema"]["columns"][0]["guessed"] = ["high"]
    (folder / "study.json").write_bytes(document("design", content))
    return folder


def test_the_lists_above_have_every_way():
    """Of this distribution; studies/tests have the ways of the other."""
    found = [pair for pair in every_command() if pair[0].split()[0] not in PLUGINS]
    options = {
        name for name, one in found if any("--schema" in option.opts for option in one.params)
    }
    assert options == WITH_SCHEMA.keys()
    designs = {
        name for name, one in found if any(option.metavar == "DESIGN" for option in one.params)
    }
    assert designs == WITH_DESIGN.keys()


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_no_command_takes_a_marked_schema(guessed, spent, name):
    line = refused(guessed, *name.split(), *WITH_SCHEMA[name], *MARKED, code=INTEGRITY)
    assert "schema.json" in line
    assert "privsketch schema accept" in line
    assert spent == []


@pytest.mark.parametrize("name", WITH_DESIGN)
def test_no_command_takes_a_design_of_a_marked_schema(guessed, spent, name):
    before = contents(guessed)
    result = run(*name.split(), "study.json", *WITH_DESIGN[name])
    assert result.exit_code != 0
    assert "guess" in result.stderr
    assert contents(guessed) == before
    assert spent == []


def test_a_look_is_no_release(guessed):
    result = succeeded("check", "schema.json", "visits.csv")
    assert "has guesses" in result.stderr
    assert all(line.startswith("private: ") for line in result.stdout.splitlines())


# ---------------------------------------------------------------- accept


def test_accepted_guesses_release(guessed):
    before = json.loads((guessed / "schema.json").read_text())
    said = succeeded("schema", "accept", "schema.json", "--yes").stdout
    for word in ("low 0, high 100", "abroad, east, north, south, west", "person patient_id"):
        assert word in said
    after = json.loads((guessed / "schema.json").read_text())
    assert "guessed" in json.dumps(before)
    assert "guessed" not in json.dumps({**after, "note": ""})
    assert [c["name"] for c in after["columns"]] == [c["name"] for c in before["columns"]]
    schema = ps.Schema.load("schema.json")
    assert schema.is_total
    assert schema.person == "patient_id"
    succeeded("plan", *WITH_SCHEMA["plan"], "--schema", "schema.json")


def test_some_columns_are_accepted_and_the_rest_stays_marked(guessed):
    said = succeeded(
        "schema", "accept", "schema.json", "--columns", "age,persons", "--yes", "--json"
    ).stdout
    found = json.loads(said)
    assert found["accepted"] == {"persons": ["person"], "age": ["kind", "low", "high"]}
    assert "region" in found["left"]
    assert "age" not in found["left"]
    refused(guessed, "plan", *WITH_SCHEMA["plan"], *MARKED, code=INTEGRITY)
    wrong = refused(guessed, "schema", "accept", "schema.json", "--columns", "ages", "--yes")
    assert "--columns ages" in wrong


def test_nothing_is_accepted_without_an_answer(guessed, monkeypatch):
    line = refused(guessed, "schema", "accept", "schema.json")
    assert "--yes" in line
    before = contents(guessed)
    seams.set(monkeypatch, "schema.is_asked", lambda: True)
    declined = click.testing.CliRunner().invoke(main, ["schema", "accept", "schema.json"], "n\n")
    assert declined.exit_code == 1
    assert contents(guessed) == before
    agreed = click.testing.CliRunner().invoke(main, ["schema", "accept", "schema.json"], "y\n")
    assert agreed.exit_code == 0
    assert ps.Schema.load("schema.json").person == "patient_id"


def test_accept_refuses_what_is_no_schema(guessed):
    (guessed / "no.json").write_text("[]")
    refused(guessed, "schema", "accept", "no.json", code=INTEGRITY)
    (guessed / "no.json").write_text("{}")
    assert "not a schema" in refused(guessed, "schema", "accept", "no.json", code=INTEGRITY)
    refused(guessed, "schema", "accept", "nothing.json", code=DATA)


def test_schema_check_lists_guesses(guessed):
    result = run("schema", "check", "schema.json")
    assert result.exit_code == USAGE
    assert "column 'age': kind, low, high are guesses" in result.stdout
    assert result.stdout.count("privsketch schema accept schema.json") > 1
    assert "FILE" not in result.stdout


def test_a_refusal_of_guesses_names_the_file(guessed):
    """Whoever copies the advice should not have to fill in what the command knows."""
    line = refused(
        guessed,
        *("design", "--schema", "schema.json", "-k", 2, "--epsilon", 1, "--delta", 1e-6),
        *("-o", "study.json"),
        code=INTEGRITY,
    )
    assert "privsketch schema accept schema.json shows every guess" in line


def test_a_file_of_another_country_is_told_what_to_say(folder):
    rows = "".join(f"{20 + n % 60},5;{'fm'[n % 2]}\n" for n in range(100))
    (folder / "t.csv").write_text("age;sex\n" + rows)
    draft = ["schema", "draft", "t.csv", "--look", "-o", "s.json"]
    assert "--delimiter" in refused(folder, *draft, code=DATA)
    assert "say --decimal ','" in succeeded(*draft, "--delimiter", ";").stdout
    succeeded(*draft, "--delimiter", ";", "--decimal", ",", "--force")
    columns = json.loads((folder / "s.json").read_text())["columns"]
    assert [(one["name"], one["kind"]) for one in columns] == [
        ("age", "number"),
        ("sex", "category"),
    ]


def test_a_name_with_a_comma_does_not_hide_the_delimiter(folder):
    """The header has two names by commas, and four by semicolons."""
    rows = "".join(f"{20 + n % 60},5;1,{n % 9};170,5;{'fm'[n % 2]}\n" for n in range(50))
    (folder / "t.csv").write_text("age;dose;height, cm;sex\n" + rows)
    draft = ["schema", "draft", "t.csv", "-o", "s.json"]
    line = refused(folder, *draft, "--look", code=DATA)
    assert line.endswith("if semicolons separate its cells, say --delimiter ';'")
    assert "--delimiter ';'" in succeeded(*draft).stdout
    assert "careful" not in succeeded(*draft, "--delimiter", ";", "--force").stdout


def test_what_a_look_says_is_marked_as_private(folder):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(20, 90, 100), "name": [f"n {i}" for i in range(100)]})
    frame.to_csv("t.csv", index=False)
    said = succeeded("schema", "draft", "t.csv", "--look", "-o", "s.json").stdout
    assert "private: left out     name: " in said
    for line in said.splitlines():
        if re.search(r"\b(age|name)\b", line):
            assert line.startswith("private: ")
    plain = succeeded("schema", "draft", "t.csv", "-o", "plain.json").stdout
    assert "no record was read" in plain
    assert "guessed" not in (folder / "plain.json").read_text()
