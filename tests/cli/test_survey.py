"""`privsketch check` and `privsketch bounds`: what they say, leave behind and cost."""

import json

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from tests.commands import DATA, INTEGRITY, USAGE, contents, refused, run, succeeded

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
    assert "nothing was spent" in refusing.stderr
    assert "refused" in refusing.stdout
    assert contents(visits) == before
    assert spent == []


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
