"""Pages of regressions and classifiers: what they say in words, and what they leave unsaid."""

import re
from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch.pages import report_page
from privsketch.pages.report.effects import Outcome, listed, outcome_of, step_of
from tests.html_page import Page

WARDS = ("surgery", "cardiology")
SCHEMA = ps.Schema(
    [
        ps.Number("age", 18, 100, unit="years"),
        ps.Category("ward", WARDS),
        ps.Flag("smoker"),
        ps.Date("admitted", "2020-01-01", "2024-12-31"),
        ps.Cycle("hour", 24),
        ps.Number("income", 1000, 100_000, unit="EUR", scale="log"),
        ps.Number("pressure", 60, 200, unit="mmHg"),
    ]
)
DAY = np.datetime64("2020-01-01")
N = 20_000


def columns(n, seed=0):
    """Columns of a table in which pressure is 100 + 0.4 age + 5 cardiology + 3 smoker + noise."""
    rng = np.random.default_rng(seed)
    age, ward, smoker = rng.uniform(20, 90, n), rng.integers(2, size=n), rng.random(n) < 0.3
    return {
        "age": age,
        "ward": np.array(WARDS)[ward],
        "smoker": smoker,
        "admitted": DAY + rng.integers(0, 1800, n),
        "hour": rng.uniform(0, 24, n),
        "income": np.exp(9 + 0.01 * age + rng.normal(0, 0.3, n)),
        "pressure": 100 + 0.4 * age + 5 * ward + 3 * smoker + rng.normal(0, 5, n),
    }


@pytest.fixture(scope="module")
def sketch():
    pd = pytest.importorskip("pandas")
    design = ps.Design.plan(task="regression", domain=SCHEMA, insecure=True)
    return ps.sketch(pd.DataFrame(columns(N)), design, source="north", insecure=True)


@pytest.fixture(scope="module")
def model(sketch):
    return ps.learn_regression(sketch, "pressure")


def text_of(model, sketch=None):
    return Page(report_page(model, sketch)).text


# ---------------------------------------------------------------- words


def test_planted_effects_are_told_in_units(model, sketch):
    text = text_of(model, sketch)
    for step, truth in (
        ("one more year of age", 0.4),
        ("smoker: yes instead of no", 3.0),
        (r"ward: (?:cardiology|surgery) instead of (?:cardiology|surgery)", 5.0),
    ):
        numbers = r"([\d.]+) mmHg (?:more|less), ([\d.]+) to ([\d.]+)"
        told = re.search(f"{step} goes with {numbers}", text)
        value, low, high = map(float, told.groups())
        assert low < value < high
        assert abs(value - truth) < high - low  # about four standard errors
    assert "admitted: one year later goes with no clear difference: from" in text
    assert "twice income goes with" in text
    assert "mmHg from prediction to record" in text
    assert "nan" not in text.lower().split()


def test_the_table_has_what_it_compares_with(model):
    text = text_of(model)
    for words in ("per year", "against no", "per day", "per factor of 2.718", "intercept"):
        assert words in text
    assert "coefficients, in mmHg" in text
    assert "partial correlation" in text


def test_logarithmic_targets_change_by_factors(sketch):
    text = text_of(ps.learn_regression(sketch, "income", ["age"]))
    assert "one more year of age goes with 1.010" in text
    assert "times income, 1.0" in text
    assert "÷ or × 1." in text


def test_dates_and_shares_have_words_of_their_own(sketch):
    assert "days earlier to" in text_of(ps.learn_regression(sketch, "admitted", ["age"]))
    label = f"ward={WARDS[0]}"
    assert "percentage points" in text_of(ps.learn_regression(sketch, label, ["pressure"]))


def test_a_classifier_says_what_its_numbers_are(sketch):
    text = text_of(ps.learn_classifier(sketch, "smoker"), sketch)
    assert "Coefficients are differences of probability, not odds ratios." in text
    assert "Probability that smoker is yes" in text
    assert "one more mmHg of pressure goes with" in text
    assert "percentage points more" in text
    assert "70" in text  # per cent who do not smoke


@pytest.mark.parametrize("target", ["smoker", "ward"])
def test_pictures_of_a_classifier_compare_shares(sketch, target):
    pytest.importorskip("matplotlib")
    page = report_page(ps.learn_classifier(sketch, target), sketch)
    assert page.count("<svg") >= 1
    assert "Calibration" in page


def test_pictures_of_a_regression_leave_the_target_out(model):
    pytest.importorskip("matplotlib")
    page = report_page(model)
    assert page.count("<svg") == 2
    residuals = page[page.index('aria-label="Residuals"') :]
    assert ">income<" in residuals.partition("</svg>")[0]
    assert ">pressure<" not in residuals.partition("</svg>")[0]


# ---------------------------------------------------------------- noise


@pytest.fixture(scope="module")
def drowned():
    pd = pytest.importorskip("pandas")
    budget = ps.Budget(epsilon=0.01, delta=0)
    design = ps.Design.plan(task="regression", domain=SCHEMA, budget=budget, n_records=300)
    return ps.sketch(pd.DataFrame(columns(300)), design, source="small")


def test_a_drowned_regression_has_no_number(drowned):
    model = ps.learn_regression(drowned, "pressure")
    assert model.drowned
    text = text_of(model, drowned)
    assert "says nothing about what goes with pressure" in text
    assert "neither that there is something, nor that there is nothing" in text
    assert "95 % interval" not in text
    assert " nan" not in text.lower()


def test_a_drowned_classifier_has_no_number(drowned):
    model = ps.learn_classifier(drowned, "smoker")
    text = text_of(model, drowned)
    if all(model.drowned):
        assert "says nothing about what goes with smoker" in text
    assert " nan" not in text.lower()


def test_terms_that_drown_are_named(model):
    identified = model.identified.copy()
    identified[0] = 0.5
    concern = "noise drowns 1 of 8 coefficients (age): no interval"
    text = text_of(replace(model, identified=identified, concerns=(concern,)))
    assert "2 of 8 terms drown in noise: age and ward=other." in text
    assert "That is not the same as no effect" in text
    assert "drowned in noise" in text
    assert "one more year of age" not in text


def test_labels_that_nobody_has_are_no_concern(model):
    assert "ward=other" in np.array(model.names)[~model.is_identified]
    assert "Hardly any record has ward=other: there is no interval." in text_of(model)


# ---------------------------------------------------------------- cost, and other pages


def test_a_page_says_what_was_protected(sketch):
    persons = replace(SCHEMA, person="patient")
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(columns(2000)).assign(patient=np.arange(2000) // 2)
    design = ps.Design.plan(
        task="regression", domain=persons, budget=ps.Budget(epsilon=2, delta=1e-6)
    )
    total = ps.sketch(table, design, source="north")
    model = ps.learn_regression(total, "pressure", ["age"])
    assert "one person (patient): one record of each counts" in text_of(model, total)
    alone = text_of(model)
    assert "Unit of protection: one person (patient)." in alone
    assert "number from 60 to 200 mmHg" in alone  # the target is described, too


def test_a_sketch_of_another_design_is_refused(model, drowned):
    with pytest.raises(ps.ParameterError, match="another design"):
        report_page(model, drowned)


def test_report_takes_both_models(model, sketch, tmp_path):
    for name, one in (("line", model), ("class", ps.learn_classifier(sketch, "smoker"))):
        path = ps.report(one, tmp_path / f"{name}.html", sketch=sketch)
        assert "What it cost" in path.read_text(encoding="utf-8")


# ---------------------------------------------------------------- single words


@pytest.mark.parametrize(
    ("column", "words", "size"),
    [
        (ps.Number("age", 18, 100, unit="years"), "one more year of age", 1.0),
        (ps.Number("bmi", 12, 55, unit="kg/m2"), "one more kg/m2 of bmi", 1.0),
        (ps.Number("visits", 0, 30), "one more of visits", 1.0),
        (ps.Number("share", 0, 1), "0.1 more of share", 0.1),
        (ps.Number("income", 0, 200_000, unit="EUR"), "10,000 more EUR of income", 10_000.0),
        (ps.Number("dose", 1, 100, scale="log"), "twice dose", np.log(2)),
        (ps.Number("cost", 0, 1000, scale="log"), "twice (1 + cost / 1)", np.log(2)),
        (ps.Date("seen", "2020-01-01", "2020-02-01"), "seen: one day later", 1.0),
        (ps.Date("seen", "2020-01-01", "2024-02-01"), "seen: one year later", 365.25),
        (ps.Flag("smoker"), "smoker: yes instead of no", 1.0),
    ],
)
def test_steps_that_people_can_imagine(column, words, size):
    name = column.coordinates[0]
    step = step_of(column, name, "no" if isinstance(column, ps.Flag) else "")
    assert (step.words, step.size) == (words, pytest.approx(size))


def test_a_direction_of_a_cycle_is_no_step():
    assert step_of(ps.Cycle("hour", 24), "hour (cos)", "") is None
    assert step_of(None, "x1", "").words == "one more of x1"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0.4, 0.3, 0.5), "0.400 mmHg more, 0.300 to 0.500"),
        ((-0.4, -0.5, -0.3), "0.400 mmHg less, 0.300 to 0.500"),
        ((0.1, -0.3, 0.5), "no clear difference: from 0.30 mmHg less to 0.50 mmHg more"),
        ((40.0, 20.0, 60.0), "40 mmHg more, 20 to 60"),
    ],
)
def test_outcomes(numbers, words):
    pressure = ps.Number("pressure", 60, 200, unit="mmHg")
    assert outcome_of(pressure, "pressure").describe(*numbers) == words


def test_a_factor_far_away_is_a_number():
    words = Outcome(1.0, "", "", log_of="dose").describe(900.0, 800.0, 1000.0)
    assert "inf" not in words


def test_lists_of_names_end():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
