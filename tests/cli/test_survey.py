"""`privsketch check` and `privsketch bounds`: what they say, leave behind and cost."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsketch as ps
from tests.commands import DATA, INTEGRITY, USAGE, contents, refused, run, succeeded
from tests.workbooks import write_workbook

SCHEMA = ps.Schema(
    [ps.Number("age", 18, 100), ps.Number("income", 0, 500_000)], missing="drop", person="patient"
)


@pytest.fixture
def visits(folder):
    """A folder with a table, a schema and a design."""
    rng = np.random.default_rng(0)
    n = 3000
    table = pd.DataFrame(
        {
            "patient": rng.integers(0, 1000, n),
            "age": rng.uniform(20, 90, n),
            "income": rng.lognormal(10, 1, n),
        }
    )
    table.loc[:99, "age"] = None
    table.to_csv(folder / "data.csv", index=False)
    table.to_parquet(folder / "data.parquet")
    SCHEMA.save(folder / "schema.json")
    budget = ps.Budget(1.0, 1e-6)
    ps.Design.plan(domain=SCHEMA, n_components=2, budget=budget, random_state=0).save("study.json")
    plain = ps.Box([0, 0], [100, 1e6], columns=["age", "income"])
    ps.Design.plan(
        domain=plain.plain, columns=["age", "income"], n_components=2, budget=budget, random_state=0
    ).save("plain.json")
    return folder


def test_a_look_is_marked_and_leaves_nothing(visits, spent):
    before = contents(visits)
    told = [
        succeeded("check", design, data).stdout
        for design in ("schema.json", "study.json")
        for data in ("data.csv", "data.parquet")
    ]
    assert len(set(told)) == 1
    assert all(line.startswith("private: ") for line in told[0].splitlines())
    assert "3,000" in told[0]
    plain = succeeded("check", "plain.json", "data.csv", "--missing", "center").stdout
    assert all(line.startswith("private: ") for line in plain.splitlines())
    refusing = run("check", "plain.json", "data.csv")
    assert refusing.exit_code == DATA
    assert "spent" not in refusing.stderr
    assert "refused" in refusing.stdout
    assert contents(visits) == before
    assert spent == []


SEXES = {"columns": [{"kind": "category", "name": "sex", "values": ["f", "m"]}]}
AGES = {"columns": [{"kind": "number", "name": "age", "low": 0, "high": 12}], "missing": "drop"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (SEXES, ("column 'sex': 100.0% of its values are not listed",)),
        (AGES, ("column 'age': 98.0% of its values lie outside",)),
    ],
    ids=["labels", "bounds"],
)
def test_a_look_ends_with_its_worst_news(folder, schema, words):
    frame = {"sex": ["Female", "Male\x1b[2J"] * 50, "age": [50.0] * 98 + [7.0] * 2}
    pd.DataFrame(frame).to_csv(folder / "t.csv", index=False)
    (folder / "s.json").write_text(json.dumps(schema))
    before = contents(folder)
    result = run("check", "s.json", "t.csv")
    assert result.exit_code == DATA
    lines = result.stdout.splitlines()
    assert all(word in lines[-1] for word in words)
    assert all(line.startswith("private: ") for line in lines)
    assert "\x1b" not in result.output
    assert "spoiled" in result.stderr
    assert contents(folder) == before
    found = json.loads(run("check", "s.json", "t.csv", "--json").stdout)
    assert found["readable"]
    assert words[0] in found["alarms"][-1]
    assert found["error"]["kind"] == "data"


FOREIGN = {
    "columns": [
        *({"kind": "number", "name": name, "low": 0, "high": 250} for name in ("age", "size, cm")),
        {"kind": "category", "name": "sex", "values": ["f", "m"]},
    ],
    "missing": "drop",
    "unreadable": "missing",
}


def test_a_look_ends_with_how_the_file_may_be_written(folder):
    rows = "".join(f"{20 + n % 60},5;170,{n % 9};{'fm'[n % 2]}\n" for n in range(50))
    (folder / "t.csv").write_text("age;size, cm;sex\n" + rows)
    (folder / "s.json").write_text(json.dumps(FOREIGN))
    look = ("check", "s.json", "t.csv")
    lines = run(*look).stdout.splitlines()
    assert sum("is not in the table" in line for line in lines) == 3
    assert sum("--delimiter ';'" in line for line in lines) == 1
    assert "--delimiter ';'" in lines[-1]
    lines = run(*look, "--delimiter", ";").stdout.splitlines()
    assert lines[-1] == "private: advice       numbers have a decimal comma; say --decimal ,"
    assert "no record would count" in lines[-2]
    found = json.loads(run(*look, "--delimiter", ";", "--json").stdout)
    assert found["advice"] == ["numbers have a decimal comma; say --decimal ,"]
    assert "advice" not in succeeded(*look, "--delimiter", ";", "--decimal", ",").stdout
    in_python = ps.check(ps.Table("t.csv", delimiter=";"), ps.Schema.from_json(FOREIGN))
    assert in_python.describe().endswith("say decimal=','")


def test_what_spends_cautions_of_decimal_commas_by_what_was_stated(folder, spent):
    """Cells decide nothing: a file with points gets the same words, before anything is spent."""
    (folder / "t.csv").write_text("age;size, cm;sex\n1.5;2;f\n")
    (folder / "s.json").write_text(json.dumps(FOREIGN))
    budget = ("-k", 2, "--epsilon", 1, "--delta", 1e-6)
    succeeded("design", "--schema", "s.json", *budget, "-o", "study.json")
    written = ("--delimiter", ";", "--dry-run")
    for command, described in (
        (("cluster", "t.csv", "--schema", "s.json", *budget), "s.json"),
        (("sketch", "study.json", "t.csv"), "study.json"),
    ):
        told = succeeded(*command, *written, "--json")
        assert "--decimal is not stated" in told.stderr
        assert f"`privsketch check {described} DATA` looks first" in told.stderr
        assert any("decimal comma" in text for text in json.loads(told.stdout)["cautions"])
        for mark in (".", ","):
            assert "decimal comma" not in succeeded(*command, *written, "--decimal", mark).stderr
    assert spent == []


def test_a_schema_is_checked_against_the_delimiter_as_well(folder):
    (folder / "t.csv").write_text("age;size, cm;sex\n1;2;f\n")
    (folder / "s.json").write_text(json.dumps(FOREIGN))
    lines = run("schema", "check", "s.json", "t.csv").stdout.splitlines()
    assert "if semicolons separate its cells, say --delimiter ';'" in lines[-1]


def test_a_look_shows_labels_that_are_not_listed(folder):
    texts = ["f"] * 90 + ["Female"] * 6 + ["F"] * 3 + ["x" * 500]
    pd.DataFrame({"sex": texts}).to_csv(folder / "t.csv", index=False)
    (folder / "s.json").write_text(json.dumps(SEXES))
    said = succeeded("check", "s.json", "t.csv").stdout
    assert f"not listed: 'Female' 6.0%, 'F' 3.0%, '{'x' * 40}...' 1.0%" in said
    found = json.loads(succeeded("check", "s.json", "t.csv", "--json").stdout)
    assert next(iter(found["columns"][0]["unlisted"].items())) == ("Female", 6)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nothing.json", "data.csv"), DATA),
        (("data.csv", "data.csv"), INTEGRITY),
        (("schema.json", "nothing.csv"), DATA),
        (("schema.json", "data.csv", "--columns", "age,income"), USAGE),
    ],
    ids=str,
)
def test_what_cannot_be_looked_at_is_one_line(visits, arguments, code):
    assert refused(visits, "check", *arguments, code=code)


def test_the_source_of_bounds_has_no_output_to_be_named_after(visits):
    said = " ".join(succeeded("bounds", "--help").stdout.split())
    assert "Name of this set of records in the receipt; none if left out." in said
    asked = ["data.parquet", "--columns", "age", "--epsilon", 1, "--json"]
    assert json.loads(succeeded("bounds", *asked).stdout)["source"] is None


def test_bounds_cost_what_was_asked_for(visits, fixed_noise):
    before = contents(visits)
    told = succeeded(
        "bounds", "data.csv", "--columns", "age,income", "--epsilon", "0.9", "--person", "patient"
    ).stdout
    assert "epsilon = 0.9, delta = 0 for one person (patient)" in told
    assert "ps.Number('age', 16, 128)" in told
    assert "adds to all that follows" in told
    found = json.loads(
        succeeded("bounds", "data.parquet", "--columns", "age", "--epsilon", 3, "--json").stdout
    )
    assert found["receipt"]["epsilon"] == 3.0
    assert found["columns"][0]["low"] == 16.0
    assert contents(visits) == before


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("--columns", "age", "--epsilon", "0"), "--epsilon", USAGE),
        (("--columns", "weight", "--epsilon", "1"), "weight", DATA),
        (("--columns", "age,age", "--epsilon", "1"), "twice", USAGE),
        (("--columns", "age", "--epsilon", "1", "--max-outside", "3"), "--max-outside", USAGE),
        (("--columns", "age", "--epsilon", "1", "--person", "nobody"), "nobody", DATA),
    ],
    ids=str,
)
def test_what_cannot_be_bought_costs_nothing(visits, spent, arguments, words, code):
    line = refused(visits, "bounds", "data.csv", *arguments, code=code)
    assert words in line
    assert "nothing was spent" in line
    assert spent == []


# ---------------------------------------------------------------- rules that no record can break


def test_a_draft_is_total_under_either_relation(folder):
    pq.write_table(pa.table({"x": [1.0], "label": ["a"], "flag": [True]}), folder / "t.parquet")
    for neighbours in ("add-remove", "replace"):
        output = folder / f"{neighbours}.json"
        succeeded(
            *("schema", "draft", folder / "t.parquet", "-o", output, "--neighbours", neighbours)
        )
        content = json.loads(output.read_text())
        content["columns"][0] |= {"low": 0, "high": 1}
        content["columns"][1] |= {"values": ["a"]}
        content["person"] = "id"
        output.write_text(json.dumps(content))
        schema = ps.Schema.load(output)
        assert schema.is_total
        schema.charged(ps.Budget(1.0, 1e-6, neighbours))
        assert "careful" not in succeeded("schema", "check", output).stdout


def test_a_schema_that_one_record_can_stop_is_told(folder):
    columns = [{"kind": "number", "name": "x", "low": 0, "high": 1}]
    content = {"columns": columns, "missing": "error", "person": "id"}
    (folder / "s.json").write_text(json.dumps(content))
    told = succeeded("schema", "check", folder / "s.json").stdout
    assert told.count("one record can stop a release") == 3
    assert '"unreadable": "missing"' in told
    answer = json.loads(succeeded("schema", "check", folder / "s.json", "--json").stdout)
    assert len(answer["stops"]) == 3


def test_a_total_schema_and_a_tsv_file_that_does_not_state_its_quotes(folder):
    columns = [{"kind": "number", "name": "x", "low": 0, "high": 1}]
    content = {"columns": columns, "missing": "drop", "unreadable": "missing"}
    (folder / "s.json").write_text(json.dumps(content))
    (folder / "t.tsv").write_text("x\ty\n1\t2\n")
    refused(folder, "schema", "check", folder / "s.json", folder / "t.tsv", code=DATA)
    assert "--quotes" in run("schema", "check", folder / "s.json", folder / "t.tsv").stdout
    succeeded("schema", "check", folder / "s.json", folder / "t.tsv", "--quotes")


def test_options_of_a_table_that_nothing_stops(folder):
    (folder / "t.csv").write_text("x,y\n" + "0.5,0.5\n" * 50 + "abc,?\n1,2,3\n")
    facts = ["--box", "-1", "1", "--epsilon", "5", "--delta", "1e-6", "-k", "2"]
    told = refused(folder, "cluster", folder / "t.csv", *facts, "-o", folder / "m.json", code=DATA)
    assert "not numeric" in told or "cells" in told
    lenient = ["--missing", "center", "--unreadable", "missing"]
    succeeded("cluster", folder / "t.csv", *facts, *lenient, "-o", folder / "m.json")


def test_a_sheet_states_its_number_of_records(folder):
    pytest.importorskip("python_calamine")
    write_workbook(folder / "t.xlsx", {"a": [["x", "y"], *[[0.5, 0.5]] * 40, [], [0.1, 0.2]]})
    facts = ["--box", "-1", "1", "--epsilon", "4", "--components", "2", "--missing", "center"]
    told = refused(folder, "release", folder / "t.xlsx", *facts, "-o", folder / "r.csv", code=DATA)
    assert "--n-records" in told
    succeeded("release", folder / "t.xlsx", *facts, "--n-records", "44", "-o", folder / "r.csv")
    assert len((folder / "r.csv").read_text().splitlines()) == 45
    more = ["-o", folder / "s.csv", "--n-records", "41"]
    told = refused(folder, "release", folder / "t.xlsx", *facts, *more, code=DATA)
    assert "more than the stated" in told
