"""`privsketch regress` and `learn --task regression`: files of records to coefficients."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

import privsketch as ps
from tests.chance import fixed_noise
from tests.commands import BUDGET, DATA, USAGE, contents, run, succeeded

pytestmark = pytest.mark.slow
COST = ["--epsilon", 1, "--delta", "1e-6"]
SCHEMA = ["--schema", "schema.json"]
N = 6000


@pytest.fixture
def visits(folder):
    """A CSV file of visits, with missing values, and its schema."""
    rng = np.random.default_rng(0)
    age, smoker = rng.uniform(20, 90, N), rng.random(N) < 0.3
    ward = rng.integers(2, size=N)
    pressure = 100 + 0.4 * age + 4 * smoker + 6 * ward + rng.normal(0, 8, N)
    table = {
        "patient": [f"P{number // 2}" for number in range(N)],
        "age": pa.array(age, mask=rng.random(N) < 0.02),
        "ward": np.array(["surgery", "cardiology"])[ward],
        "smoker": np.where(smoker, "yes", "no"),
        "pressure": pa.array(pressure, mask=rng.random(N) < 0.02),
    }
    csv.write_csv(pa.table(table), "visits.csv")
    schema = ps.Schema(
        [
            ps.Number("age", 18, 100, unit="years"),
            ps.Category("ward", ["surgery", "cardiology"]),
            ps.Flag("smoker"),
            ps.Number("pressure", 60, 200, unit="mmHg"),
        ],
        missing="drop",
        person="patient",
    )
    schema.save("schema.json")
    return folder


def regressed(*arguments):
    with fixed_noise():
        return succeeded("regress", "visits.csv", *arguments)


# ---------------------------------------------------------------- what it does


def test_one_command_gives_coefficients_and_a_page(visits):
    told = regressed(
        *SCHEMA, *COST, "--target", "pressure", "-o", "model.json", "--report", "page.html"
    )
    model = ps.RegressionModel.load("model.json")
    assert model.receipt.source == "model"
    assert model.receipt.unit == "one person (patient)"
    truth = {"age": 0.4, "smoker": 4.0, "ward=cardiology": 6.0, "ward=surgery": -6.0}
    errors = model.standard_errors
    for place, name in enumerate(model.names):
        if name in truth:
            assert abs(model.estimate[place] - truth[name]) < 5 * errors[place], name
    for line in ("explains", "written to model.json", "written to page.html"):
        assert line in told.stdout
    page = (visits / "page.html").read_text(encoding="utf-8")
    assert "one more year of age goes with" in page
    assert "mmHg more" in page


def test_only_the_columns_of_the_question_are_released(visits):
    regressed(*SCHEMA, *COST, "--target", "pressure", "--on", "age, smoker", "-o", "m.json")
    model = ps.RegressionModel.load("m.json")
    assert model.names == ("age", "smoker")
    assert set(model.residual_names) <= {"age", "smoker", "pressure"}


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("smoker", ps.ClassifierModel),
        ("ward", ps.ClassifierModel),
        ("ward=surgery", ps.RegressionModel),
        ("age", ps.RegressionModel),
    ],
)
def test_labels_make_classifiers(visits, target, kind):
    told = regressed(*SCHEMA, *COST, "--target", target, "-o", "m.json")
    assert kind.load("m.json").target == target
    assert ("not odds ratios" in told.stdout) == (kind is ps.ClassifierModel)


def test_without_delta_it_is_pure(visits):
    told = regressed(*SCHEMA, "--epsilon", 1, "--target", "pressure", "-o", "m.json", "--json")
    answer = json.loads(told.stdout)
    assert answer["cost"]["delta"] == 0
    assert answer["receipt"]["mechanism"].startswith("discrete Laplace noise")
    model = ps.RegressionModel.load("m.json")
    assert [one["name"] for one in answer["results"]] == list(model.names)
    assert answer["results"][0]["estimate"] == model.estimate[0]


def test_it_is_the_sketch_that_holders_would_make(visits, no_noise):
    """What it releases and learns is what `design`, `sketch` and `learn` do."""
    # Which row of a person counts is secret, and drawn anew.
    replace(ps.Schema.load("schema.json"), person=None).save("rows.json")
    study = ["--schema", "rows.json", *COST, "--target", "pressure"]
    succeeded("regress", "visits.csv", *study, "-o", "one.json")
    succeeded("design", "--task", "regression", *study, "--seed", 0, "-o", "study.json")
    succeeded("sketch", "study.json", "visits.csv", "-o", "a.sketch")
    succeeded("learn", "a.sketch", "-o", "two.json")
    one, two = (ps.RegressionModel.load(name) for name in ("one.json", "two.json"))
    assert one.design_fingerprint == two.design_fingerprint
    np.testing.assert_array_equal(one.estimate, two.estimate)


# ---------------------------------------------------------------- what it costs


def test_a_dry_run_tells_the_forecast_and_spends_nothing(visits):
    before = contents(visits)
    question = [*SCHEMA, *COST, "--target", "pressure"]
    told = succeeded("regress", "visits.csv", *question, "--records", 3000, "--dry-run")
    assert "noise hides" in told.stdout
    assert "for regression of pressure" in told.stdout
    assert told.stdout.splitlines()[-1] == "nothing was spent"
    assert contents(visits) == before


def test_a_ledger_has_one_entry_and_refuses_the_next(visits):
    ledger = ps.Ledger.create("my.ledger")
    ledger.add("visits", epsilon=1.5, delta=1e-5, person="patient")
    question = [*SCHEMA, *COST, "--target", "pressure", "--ledger", "my.ledger"]
    regressed(*question, "-o", "m.json")
    assert len(ledger.entries()) == 1
    result = run("regress", "visits.csv", *question, "--target", "age", "-o", "n.json")
    assert result.exit_code == BUDGET
    assert not (visits / "n.json").exists()
    assert run("regress", "visits.csv", *question, "--dry-run").exit_code == BUDGET


def test_a_forecast_that_is_not_good_is_a_caution(visits):
    question = [*SCHEMA, "--epsilon", 0.01, "--target", "pressure", "--records", 300]
    told = regressed(*question, "-o", "m.json")
    assert "forecast: hopeless" in told.stderr
    assert "too few records to say anything" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*SCHEMA, "--target", "presure"], USAGE, "expected a column of age, ward, smoker"),
        ([*SCHEMA, "--target", "age", "--on", "dose"], USAGE, "--on dose"),
        ([*SCHEMA, "--target", "age", "--on", "age"], USAGE, "is the target itself"),
        ([*SCHEMA], USAGE, "Missing option '--target'"),
        (["--target", "age"], USAGE, "give one of --schema"),
        (["--box", 0, 300, "--target", "age"], USAGE, "state them with --columns"),
        ([*SCHEMA, "--target", "age", "--report", "-"], USAGE, "a report is a page"),
        ([*SCHEMA, "--target", "age", "-o", "schema.json"], DATA, "schema.json exists"),
        (
            ["--box", 0, 100, "--columns", "a,b", "--target", "b", "--missing", "center"],
            USAGE,
            "describe the columns by a --schema",
        ),
    ],
)
def test_what_is_refused_costs_nothing(visits, arguments, code, words):
    output = [] if "-o" in arguments else ["-o", "m.json"]
    before = contents(visits)
    result = run("regress", "visits.csv", *COST, *arguments, *output)
    assert result.exit_code == code
    assert words in " ".join(result.stderr.split())
    assert "nothing was spent" in result.stderr
    assert contents(visits) == before


# ---------------------------------------------------------------- learn


@pytest.fixture
def sketch(visits):
    design = ["--task", "regression", *SCHEMA, *COST, "-o", "study.json"]
    succeeded("design", *design)
    with fixed_noise():
        succeeded("sketch", "study.json", "visits.csv", "-o", "a.sketch")


def test_learn_asks_any_question(sketch):
    told = succeeded("learn", "a.sketch", "--target", "pressure", "--on", "age")
    assert "pressure on 1 term" in told.stdout
    told = succeeded("learn", "a.sketch", "--task", "classification", "--target", "smoker")
    assert "not odds ratios" in told.stdout
    told = succeeded("learn", "a.sketch", "--task", "summary", "--by", "ward", "-o", "s.json")
    assert "by ward" in told.stdout
    assert ps.SummaryModel.load("s.json").by == "ward"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the design names none"),
        (["--target", "ward"], "is a category"),
        (["--target", "nobody"], "nobody"),
        (["--target", "age", "-k", 3], "-k does not go with --task regression"),
        (["--task", "pca", "-k", 1, "--on", "age"], "--on does not go with --task pca"),
        (["--task", "summary", "--target", "age"], "--target does not go with --task summary"),
        (["--task", "summary", "--by", "age"], "expected a category or flag"),
        (["--task", "kmeans", "-k", 2], "this sketch"),
    ],
)
def test_learn_refuses_what_does_not_go_together(sketch, arguments, words):
    result = run("learn", "a.sketch", *arguments)
    assert result.exit_code in (USAGE, 5)
    assert words in " ".join(result.stderr.split())


def test_a_sketch_for_clusters_says_what_it_lacks(visits):
    succeeded("design", "-k", 2, *SCHEMA, *COST, "-o", "k.json")
    succeeded("sketch", "k.json", "visits.csv", "-o", "k.sketch")
    result = run("learn", "k.sketch", "--task", "regression", "--target", "age")
    assert result.exit_code == USAGE
    assert "plan a design with --task regression" in " ".join(result.stderr.split())
