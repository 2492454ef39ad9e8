"""Classifiers from second moments: calibrated probabilities, in the units of the table."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

import privsketch as ps
from privsketch import ParameterError
from privsketch.learning.regression import matched
from privsketch.learning.regression.calibration import correlated_sum
from tests.learning.test_regression import design_of

pd = pytest.importorskip("pandas")
SCHEMA = ps.Schema(
    [
        ps.Number("age", 18, 100),
        ps.Category("ward", ["A", "B"]),
        ps.Flag("smoker"),
        ps.Flag("ill"),
        ps.Category("stage", ["early", "middle", "late"]),
    ]
)
ON = ["age", "ward", "smoker"]


def patients(n_records, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 90, n_records),
            "ward": rng.choice(["A", "B"], n_records, p=[0.7, 0.3]),
            "smoker": rng.random(n_records) < 0.3,
        }
    )
    odds = (table.age - 60) / 12 + 0.8 * (table.ward == "B") + 1.2 * table.smoker
    table["ill"] = rng.random(n_records) < expit(odds)
    severity = odds + rng.logistic(size=n_records)
    table["stage"] = np.select([severity < -1, severity < 2], ["early", "middle"], "late")
    return table


@pytest.fixture(scope="module")
def table():
    return patients(60_000)


@pytest.fixture(scope="module")
def exact(table):
    return ps.sketch(table, design_of(SCHEMA).without_noise(), insecure=True)


def log_loss(probabilities, is_class):
    own = np.where(is_class, probabilities, 1 - probabilities)
    return -float(np.mean(np.log(own)))


def test_calibration_solves_its_equations():
    scores = np.linspace(-2, 3, 11) / 10
    scores -= scores.mean()
    alpha, beta = matched(scores, 0.3, 0.015)
    assert (alpha, beta) == pytest.approx((-0.890400905, 2.953688874), abs=1e-9)
    p = expit(alpha + beta * scores)
    assert (p.mean(), (scores * p).mean()) == pytest.approx((0.3, 0.015), abs=1e-9)


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.7, 1.0])
def test_columns_that_say_the_same_add_up_to_more(correlation):
    parts = np.random.default_rng(0).normal(size=(4000, 2)) * [1.0, 0.5]
    own = parts.var(axis=0)
    crossed = correlation * np.sqrt(own.prod())
    found = correlated_sum(parts, np.array([[own[0], crossed], [crossed, own[1]]]), seed=3)
    assert found.mean() == pytest.approx(parts.mean(axis=0).sum())
    assert found.var() == pytest.approx(own.sum() + 2 * crossed, rel=0.05)


def test_a_column_twice_leaves_the_curve_as_it_is(table):
    again = table.assign(again=table.age)
    columns = [ps.Number("age", 18, 100), ps.Number("again", 18, 100), ps.Flag("ill")]
    model = ps.learn_classifier(
        ps.sketch(again, design_of(ps.Schema(columns)).without_noise(), insecure=True), "ill"
    )
    ages = np.array([30.0, 50.0, 70.0, 85.0])
    told = model.predict_proba(ps.encode(np.column_stack([ages, ages]), model.schema))[:, 1]
    shares = [table.ill[(table.age - age).abs() < 3].mean() for age in ages]
    np.testing.assert_allclose(told, shares, atol=0.04)


def test_coefficients_are_differences_of_probability(table, exact):
    model = ps.learn_classifier(exact, "ill", ON)
    design = np.column_stack([table.age, table.ward == "B", table.smoker, np.ones(len(table))])
    slopes = np.linalg.lstsq(design.astype(float), table.ill.astype(float), rcond=None)[0]
    found = dict(zip(model.names, model.estimate[0], strict=True))
    assert [found[n] for n in ("age", "ward=B", "smoker")] == pytest.approx(slopes[:3], abs=5e-4)
    shown = model.table()
    assert list(shown.columns[:4]) == ["name", "estimate", "low", "high"]
    assert set(shown["class"]) == {"yes"}
    assert "differences of probability, not odds ratios" in model.describe()


def test_probabilities_are_calibrated(table, exact):
    model = ps.learn_classifier(exact, "ill", ON)
    rows = ps.encode(table[ON], model.schema)
    p = model.predict_proba(rows)
    assert p.sum(axis=1) == pytest.approx(np.ones(len(rows)))
    assert p[:, 1].mean() == pytest.approx(table.ill.mean(), abs=0.01)
    for low, high in ((0, 0.3), (0.3, 0.6), (0.6, 1)):
        among = (p[:, 1] >= low) & (p[:, 1] < high)
        assert table.ill[among].mean() == pytest.approx(p[among, 1].mean(), abs=0.03)
    truth = expit((table.age - 60) / 12 + 0.8 * (table.ward == "B") + 1.2 * table.smoker).to_numpy()
    assert log_loss(p[:, 1], table.ill) < log_loss(truth, table.ill) + 0.005
    assert model.score(rows, table.ill) == np.mean(model.predict(rows) == table.ill)


def test_several_classes_have_a_probability_each(table, exact):
    model = ps.learn_classifier(exact, "stage", ON)
    assert model.classes == ("early", "middle", "late", "other")
    rows = ps.encode(table[ON], model.schema)
    p = model.predict_proba(rows)
    shares = [np.mean(table.stage == label) for label in model.classes]
    assert p.sum(axis=1) == pytest.approx(np.ones(len(rows)))
    assert p.mean(axis=0) == pytest.approx(shares, abs=0.02)
    assert model.shares == pytest.approx(shares, abs=1e-6)
    most = max(shares)
    assert model.score(rows, table.stage) > most + 0.02
    assert set(model.predict(rows[:100])) <= set(model.classes)
    assert not model.concerns


def test_groups_show_calibration_by_released_numbers(table, exact):
    model = ps.learn_classifier(exact, "ill", ON)
    for place, name in enumerate(model.groups):
        column, _, label = name.partition("=")
        values = table[column].map({True: "yes", False: "no"}) if column == "smoker" else None
        among = (table[column] if values is None else values) == label
        assert model.group_shares[0, place] == pytest.approx(table.ill[among].mean(), abs=1e-3)
        assert model.group_predictions[0, place] == pytest.approx(
            model.group_shares[0, place], abs=0.02
        )
    assert set(model.groups) == {"ward=A", "ward=B", "smoker=no", "smoker=yes"}


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_noise_does_not_make_probabilities_worse_than_the_share(table, epsilon):
    design = design_of(SCHEMA, ps.Budget(epsilon=epsilon, delta=1e-6))
    fresh = patients(20_000, seed=1)
    prior = log_loss(np.full(len(fresh), table.ill.mean()), fresh.ill)
    for _ in range(3):
        model = ps.learn_classifier(ps.sketch(table[:20_000], design), "ill", ON)
        p = model.predict_proba(ps.encode(fresh[ON], model.schema))[:, 1]
        assert log_loss(p, fresh.ill) < (prior - 0.2 if epsilon == 1 else prior)


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("n_records", [0, 1, 300])
@pytest.mark.parametrize("target", ["ill", "stage"])
def test_few_records_give_a_concern_and_no_intervals(n_records, target):
    design = design_of(SCHEMA, ps.Budget(epsilon=0.1, delta=1e-6))
    rows = patients(300)[:n_records]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):
            model = ps.learn_classifier(ps.sketch(rows, design), target)
            assert any("too few records" in text for text in model.concerns)
            assert np.isnan(model.interval()).all()
            p = model.predict_proba(np.zeros((3, model.dim)))
            assert np.isfinite(p).all()
            model.describe()


@pytest.mark.usefixtures("fixed_noise")
def test_results_repeat(table):
    sketch = ps.sketch(table, design_of(SCHEMA))
    first, second = (ps.learn_classifier(sketch, "stage") for _ in range(2))
    assert first.to_bytes() == second.to_bytes()


@pytest.mark.usefixtures("fixed_noise")
def test_what_is_no_class_is_refused(table, exact):
    with pytest.raises(ParameterError, match="expected a flag or a category"):
        ps.learn_classifier(exact, "age")
    sketch = ps.sketch(table, design_of(SCHEMA, mean="omitted"))
    with pytest.raises(ParameterError, match="no shares of the classes"):
        ps.learn_classifier(sketch, "ill")
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (100, 2))
    plain = ps.sketch(rows, design_of(ps.Ball(dim=2, radius=1.0)))
    with pytest.raises(ParameterError, match="expected a flag or a category"):
        ps.learn_classifier(plain, "x2")
