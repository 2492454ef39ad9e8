"""Regressions from second moments: oracles, intervals that hold, and odd tables."""

import warnings

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError
from privsketch.learning import Moments
from privsketch.learning.regression import (
    EntryNoise,
    LinearProblem,
    fit_linear,
    partial_correlations,
    posterior_of,
)
from tests.chance import deviations, fixed_noise

pd = pytest.importorskip("pandas")
BUDGET = ps.Budget(epsilon=1.0, delta=1e-6)
SCHEMA = ps.Schema(
    [
        ps.Number("age", 18, 100),
        ps.Number("income", 100, 1_000_000, scale="log"),
        ps.Category("ward", ["A", "B", "C"]),
        ps.Flag("smoker"),
        ps.Date("day", "2020-01-01", "2021-01-01"),
        ps.Cycle("hour", 24),
        ps.Number("pressure", 60, 220, unit="mmHg", weight=1.8),
    ]
)
ON = ["age", "income", "ward", "smoker", "day", "hour"]


def design_of(domain=SCHEMA, budget=BUDGET, **choices):
    options = {"feature_map": "second-moments", "mean": "released", "n_records": 1000, **choices}
    return ps.Design.plan(
        task="pca", n_components=1, domain=domain, budget=budget, random_state=0, **options
    )


def visits(n_records, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 90, n_records),
            "income": np.exp(rng.normal(9, 0.8, n_records)),
            "ward": rng.choice(["A", "B", "C"], n_records, p=[0.5, 0.3, 0.2]),
            "smoker": rng.random(n_records) < 0.3,
            "day": np.datetime64("2020-01-01") + rng.integers(0, 365, n_records),
            "hour": rng.uniform(0, 24, n_records),
        }
    )
    mean = 90 + 0.4 * table.age + 3 * np.log(table.income) + 5 * table.smoker
    mean += np.select([table.ward == "B", table.ward == "C"], [4, -6])
    table["pressure"] = mean + 2 * np.cos(np.pi * table.hour / 12) + rng.normal(0, 8, n_records)
    return table


def terms_by_hand(table):
    """Return the columns of a regression as every textbook makes them."""
    turns = np.pi * table.hour / 12
    days = (table.day - pd.Timestamp("1970-01-01")).dt.days
    columns = [table.age, np.log(table.income), table.ward == "B", table.ward == "C"]
    columns += [table.smoker, days, np.cos(turns), np.sin(turns)]
    return np.column_stack([np.ones(len(table)), *columns]).astype(float)


NAMES = ("age", "log(income)", "ward=B", "ward=C", "smoker", "day", "hour (cos)", "hour (sin)")


# --- vectors of the theory -----------------------------------------------------------------------

MATRIX = np.array([[50, 10, 0], [10, 30, 5], [0, 5, 8.0]])
PRODUCTS = np.array([12, -5, 3.0])


def test_posterior_of_a_small_problem():
    found = posterior_of(MATRIX, PRODUCTS, 20.0, 100.0, EntryNoise(2.0, 2.5, 3.0))
    assert found.mean == pytest.approx([0.2626545, -0.25398104, 0.2835284], abs=1e-8)
    assert np.trace(found.filter) == pytest.approx(0.121741274, abs=1e-9)
    assert np.diag(found.covariance) == pytest.approx([0.00607288, 0.0180903, 0.11426237], abs=1e-8)
    exact = posterior_of(MATRIX, PRODUCTS, 20.0, 100.0, EntryNoise(1e-6, 1e-6, 1e-6))
    assert exact.mean == pytest.approx([0.30305111, -0.35505369, 0.57032361], abs=1e-8)


def small_moments(**changes):
    matrix = np.zeros((5, 5))
    matrix[0] = matrix[:, 0] = [1000, 100, -50, 20, 40]
    matrix[1:, 1:] = [[300, 20, 10, 90], [20, 250, 0, -60], [10, 0, 200, 15], [90, -60, 15, 180]]
    variance = np.full((5, 5), 400 / 49)
    np.fill_diagonal(variance, 16)
    variance[0] = variance[:, 0] = 64
    variance[0, 0] = 100
    facts = {"matrix": matrix, "variance": variance, "center": np.zeros(4), "n_records": 1000.0}
    facts |= {"repetition": 1.0, "radius": 10.0, "noise": "gaussian", "has_mean": True}
    return Moments(**{**facts, **changes})


def test_regression_of_small_moments():
    moments = small_moments()
    fit = fit_linear(LinearProblem.of(moments, 3, ["x1", "x2", "x3"]))
    errors = np.sqrt(np.diag(fit.covariance))[1:]
    assert fit.coef == pytest.approx([0.31532304, -0.26418429, 0.05920299], abs=1e-8)
    assert fit.estimate[1:] == pytest.approx([0.31789478, -0.26669538, 0.05973716], abs=1e-8)
    assert errors == pytest.approx([0.02470577, 0.02698087, 0.03035335], abs=1e-8)
    assert fit.residual_variance == pytest.approx(0.135085261, abs=1e-9)
    assert fit.residual_error == pytest.approx(0.006295226, abs=1e-9)
    assert fit.r2 == pytest.approx(0.243067166, abs=1e-9)
    assert fit.explained == pytest.approx(0.042970683, abs=1e-9)
    assert fit.covered == pytest.approx(0.043174711, abs=1e-9)
    assert fit.covered_error == pytest.approx(0.001214643, abs=1e-9)
    partial, partial_errors = partial_correlations(fit, moments, np.eye(3))
    assert partial[0] == pytest.approx(0.420956757, abs=1e-9)
    half = 1.96 * partial_errors[0]
    assert partial[0] - half == pytest.approx(0.356834540, abs=1e-9)
    assert partial[0] + half == pytest.approx(0.485078974, abs=1e-9)


def test_rows_that_count_several_times_tell_less():
    once, often = (
        fit_linear(LinearProblem.of(small_moments(repetition=r), 3, ["x1", "x2", "x3"]))
        for r in (1.0, 4.0)
    )
    grown = np.diag(often.covariance) - np.diag(once.covariance)
    sampling = 3 * fit_sampling(once)
    assert grown[1:] == pytest.approx(sampling, rel=0.02)


def fit_sampling(fit):
    """Return the variances that sampling alone gives the coefficients."""
    inverse = np.linalg.inv(small_moments().matrix[:4, :4])
    return np.diag(inverse)[1:] * fit.residual_square / 996


# --- without noise it is least squares -----------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    return visits(100_000)


@pytest.fixture(scope="module")
def exact(table):
    return ps.sketch(table, design_of().without_noise(), insecure=True)


def test_without_noise_it_is_least_squares_in_the_units_of_the_table(table, exact):
    model = ps.learn_regression(exact, "pressure", ON)
    design = terms_by_hand(table)
    coef, _, _, _ = np.linalg.lstsq(design, table.pressure, rcond=None)
    left = table.pressure - design @ coef
    errors = np.sqrt(np.diag(left.var() * np.linalg.inv(design.T @ design)))
    found = dict(zip(model.names, model.estimate, strict=True))
    # Rounding of records moves a coefficient by far less than its error.
    assert np.abs(np.array([found[name] for name in NAMES]) - coef[1:]).max() < 0.01
    own = dict(zip(model.names, model.standard_errors, strict=True))
    assert [own[name] for name in NAMES] == pytest.approx(errors[1:], rel=0.01)
    assert model.intercept_estimate == pytest.approx(coef[0], abs=0.05 * errors[0])
    assert model.intercept_error == pytest.approx(errors[0], rel=0.01)
    assert model.residual_variance == pytest.approx(left.var(), rel=0.01)
    assert model.r2 == pytest.approx(1 - left.var() / table.pressure.var(), abs=2e-3)
    assert not model.concerns
    rows = ps.encode(table[ON][:1000], model.schema)
    assert model.predict(rows) == pytest.approx(design[:1000] @ coef, abs=0.05)
    assert model.score(rows, table.pressure[:1000]) == pytest.approx(
        1 - np.var(left[:1000]) / np.var(table.pressure[:1000]), abs=0.01
    )


def test_a_label_that_nobody_has_has_no_interval(exact):
    model = ps.learn_regression(exact, "pressure", ON)
    place = model.names.index("ward=other")
    assert model.identified[place] < 0.5
    assert np.isnan(model.interval()[place]).all()
    assert np.isfinite(np.delete(model.interval(), place, axis=0)).all()


def test_categories_are_compared_with_the_most_frequent_label(table, exact):
    assert ps.learn_regression(exact, "pressure", ["ward"]).references == ("A",)
    fewer = table[(table.ward != "A") | (np.arange(len(table)) % 10 == 0)]
    sketch = ps.sketch(fewer, design_of().without_noise(), insecure=True)
    model = ps.learn_regression(sketch, "pressure", ["ward"])
    assert model.references == ("B",)
    found = dict(zip(model.names, model.estimate, strict=True))
    means = fewer.groupby("ward").pressure.mean()
    assert found["ward=C"] == pytest.approx(means["C"] - means["B"], abs=0.01)


def test_flags_dates_and_labels_may_be_targets(table, exact):
    flag = ps.learn_regression(exact, "smoker", ["pressure"])
    slope = np.polyfit(table.pressure, table.smoker.astype(float), 1)
    assert [flag.estimate[0], flag.intercept_estimate] == pytest.approx(slope, rel=0.01)
    label = ps.learn_regression(exact, "ward=C", ["pressure"])
    slope = np.polyfit(table.pressure, table.ward == "C", 1)
    assert [label.estimate[0], label.intercept_estimate] == pytest.approx(slope, rel=0.01)
    income = ps.learn_regression(exact, "income", ["smoker", "age"])
    assert income.predict(ps.encode(table[["age", "smoker"]][:1], income.schema)) == pytest.approx(
        np.exp(9), rel=0.02
    )
    day = ps.learn_regression(exact, "day", ["smoker", "age"])
    rows = ps.encode(table[["age", "smoker"]][:9], day.schema)
    assert day.predict(rows) == pytest.approx(18262 + 182, abs=3)
    assert day.score(rows, table.day[:9].to_numpy()) < 0.5


def test_residuals_show_what_is_left_out(exact):
    found = ps.learn_regression(exact, "pressure", ["age", "income"]).table("residuals")
    by_name = found.set_index("name").estimate
    assert abs(by_name["age"]) < 0.001 < 0.05 < by_name["smoker"]
    assert by_name["ward=C"] < -0.05


def test_partial_correlations_are_those_of_the_records(table, exact):
    model = ps.learn_regression(exact, "pressure", ["age", "income", "smoker"])
    columns = [table.age, np.log(table.income), table.smoker.astype(float), table.pressure]
    inverse = np.linalg.inv(np.cov(columns))
    expected = -inverse[:-1, -1] / np.sqrt(np.diag(inverse)[:-1] * inverse[-1, -1])
    values = [model.partial_correlation(name)[0] for name in model.names]
    assert values == pytest.approx(expected, abs=2e-3)


# --- noise ---------------------------------------------------------------------------------------


def squared_errors(n_runs, scale=1.0):
    """Return squares of errors over their stated variances, for one coefficient in many runs."""
    columns = [ps.Number("a", -1, 1), ps.Number("b", -1, 1), ps.Number("y", -1, 1)]
    design = design_of(ps.Schema(columns))
    found = []
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (3000, 2))
        y = X @ [0.3, -0.2] + 0.1 * rng.normal(size=3000)
        model = ps.learn_regression(ps.sketch(np.column_stack([X, y]), design), "y")
        deviation = scale * model.standard_errors
        found.append(np.square((model.estimate - [0.3, -0.2]) / deviation))
    return np.concatenate(found)


def test_errors_are_as_large_as_they_say():
    # A mean of 320 squares of standard normals has deviation sqrt(2 / 320), is skewed, and pairs
    # of coefficients of one run are correlated a little: one deviation more.
    assert abs(squared_errors(160).mean() - 1) < (deviations() + 1) * np.sqrt(2 / 320)


def test_errors_that_are_too_small_would_show():
    # Two thirds of the deviation: 2.25 for 1, which is 16 deviations away.
    assert abs(squared_errors(160, scale=2 / 3).mean() - 1) > (deviations() + 1) * np.sqrt(2 / 320)


@pytest.mark.usefixtures("fixed_noise")
def test_merged_sites_are_the_pooled_table_but_for_noise(table):
    design = design_of()
    parts = [ps.sketch(table[first::3], design, source=f"site {first}") for first in range(3)]
    merged = ps.learn_regression(ps.merge(parts), "pressure", ON)
    pooled = ps.learn_regression(ps.sketch(table, design), "pressure", ON)
    kept = merged.is_identified & pooled.is_identified
    both = np.hypot(merged.standard_errors, pooled.standard_errors)
    assert kept.sum() == len(NAMES)
    assert (np.abs(merged.estimate - pooled.estimate) < 5 * both)[kept].all()
    assert (merged.standard_errors > pooled.standard_errors)[kept].all()


@pytest.mark.usefixtures("fixed_noise")
def test_noise_is_unknown_to_nobody(table):
    model = ps.learn_regression(ps.sketch(table[:20_000], design_of()), "pressure", ON)
    interval = dict(zip(model.names, model.interval().tolist(), strict=True))
    assert interval["age"][0] < 0.4 < interval["age"][1]
    assert interval["age"][1] - interval["age"][0] < 0.1
    wide = model.interval(0.999)
    assert (wide[:, 0] < model.interval()[:, 0])[model.is_identified].all()


# --- what must not matter ------------------------------------------------------------------------


def sums_of(rows, radius, noise=3.0):
    """Return moments of rows with the noise of one seed, the same for the same entries."""
    augmented = np.column_stack([np.ones(len(rows)), rows])
    size = augmented.shape[1]
    variance = np.full((size, size), noise**2 * 25 / 49)
    np.fill_diagonal(variance, noise**2)
    matrix = augmented.T @ augmented
    return Moments(
        matrix, variance, np.zeros(size - 1), float(len(rows)), 1.0, radius, "gaussian", True
    )


def test_the_order_of_columns_does_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (4000, 4)) @ rng.normal(size=(4, 4))
    moments = sums_of(rows, 4.0)
    first = fit_linear(LinearProblem.of(moments, 3, ["x1", "x2", "x3"]))
    turned = sums_of(rows[:, [2, 3, 0, 1]], 4.0)
    second = fit_linear(LinearProblem.of(turned, 1, ["x1", "x3", "x4"]))
    assert second.coef[[1, 2, 0]] == pytest.approx(first.coef, rel=1e-9)
    assert np.diag(second.covariance)[[2, 3, 1]] == pytest.approx(
        np.diag(first.covariance)[1:], rel=1e-9
    )


@pytest.mark.usefixtures("fixed_noise")
def test_units_do_not_matter(table):
    def learned(factor):
        columns = [ps.Number("age", 18 * factor, 100 * factor), ps.Number("pressure", 60, 220)]
        rows = np.column_stack([table.age[:5000] * factor, table.pressure[:5000]])
        with fixed_noise():
            return ps.learn_regression(ps.sketch(rows, design_of(ps.Schema(columns))), "pressure")

    years, months = learned(1), learned(12)
    assert 12 * months.estimate == pytest.approx(years.estimate, rel=1e-6)
    assert 12 * months.interval() == pytest.approx(years.interval(), rel=1e-6)
    assert 12 * months.coef == pytest.approx(years.coef, rel=1e-6)
    assert months.r2 == pytest.approx(years.r2, rel=1e-6)


@pytest.mark.usefixtures("fixed_noise")
def test_without_a_schema_columns_have_names_or_numbers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (5000, 2))
    rows = np.column_stack([X, X @ [0.5, -0.25] + 0.3])
    plain = ps.Ball(dim=3, radius=1.2)
    model = ps.learn_regression(ps.sketch(rows, design_of(plain)), "x3")
    assert model.names == ("x1", "x2")
    assert model.predict(X)[:5] == pytest.approx(rows[:5, 2], abs=0.05)
    named = design_of(plain, columns=["a", "b", "c"])
    model = ps.learn_regression(ps.sketch(rows, named), "a", ["c"])
    assert (model.names, model.columns) == (("c",), ("c",))


# --- odd tables ----------------------------------------------------------------------------------


def uniform(rng, n_columns):
    return rng.uniform(-1, 1, (3000, n_columns))


ODD = {
    "no records": lambda rng: np.empty((0, 3)),
    "one record": lambda rng: np.full((1, 3), 0.3),
    "constant columns": lambda rng: np.full((3000, 3), 0.25),
    "a constant target": lambda rng: np.column_stack([uniform(rng, 2), np.ones(3000)]),
    "a constant predictor": lambda rng: np.column_stack([np.ones(3000), uniform(rng, 2)]),
    "records on corners": lambda rng: rng.choice([-1.0, 1.0], (3000, 3)),
    "equal columns": lambda rng: np.repeat(uniform(rng, 1), 3, axis=1),
}  # fmt: skip
NUMBERS = ps.Schema([ps.Number(name, -1, 1) for name in "abc"])


@pytest.mark.parametrize("epsilon", [1.0, 0.05])
@pytest.mark.parametrize("mean", ["released", "omitted"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_tables_give_models_without_a_warning(kind, mean, epsilon, fixed_noise):
    design = design_of(NUMBERS, ps.Budget(epsilon=epsilon, delta=1e-6), mean=mean)
    rows = ODD[kind](np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            sketch = ps.sketch(rows, design)
            for target, on in (("c", None), ("c", ["a"])):
                model = ps.learn_regression(sketch, target, on)
                assert np.isfinite(model.coef).all()
                assert np.isfinite(model.predict(np.zeros((2, model.dim)))).all()
                assert 0 <= model.r2 <= 1
                model.describe()
                again = ps.RegressionModel.from_bytes(model.to_bytes())
                assert again.to_bytes() == model.to_bytes()
                if len(rows) < 2:
                    assert "too few records" in " ".join(model.concerns)
                    assert model.drowned
                    assert np.isnan(model.interval()).all()


def test_a_drowned_mean_stays_near_the_domain():
    # The noise of a sum, over so few records, is many radii: predictions once were as far away.
    rng = np.random.default_rng(5)
    design = ps.Design.plan(
        task="regression",
        target="x6",
        domain=ps.Box(-1, 1, dim=6),
        budget=ps.Budget(epsilon=0.05, delta=1e-6),
        n_records=60,
    )
    for _ in range(20):
        sketch = ps.sketch(rng.uniform(-1, 1, (60, 6)), design)
        model = ps.learn_regression(sketch)
        assert abs(model.predict(np.zeros((1, 5)))[0]) < 5


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("kind", ODD)
def test_odd_tables_without_noise_warn_of_nothing(kind):
    rows = ODD[kind](np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sketch = ps.sketch(rows, design_of(NUMBERS).without_noise(), insecure=True)
        model = ps.learn_regression(sketch, "c")
        assert np.isfinite(model.coef).all()


@pytest.mark.usefixtures("fixed_noise")
def test_what_is_known_about_a_sketch_is_a_concern():
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (5000, 3))
    omitted = ps.learn_regression(ps.sketch(rows, design_of(NUMBERS, mean="omitted")), "c")
    assert any("no mean" in text for text in omitted.concerns)
    no_count = design_of(NUMBERS, count="omitted")
    planned = ps.learn_regression(ps.sketch(rows, no_count), "c")
    assert any("no number of records" in text for text in planned.concerns)
    corners = rng.choice([-5.0, 5.0], (5000, 3))
    clipped = ps.learn_regression(ps.sketch(corners, design_of(NUMBERS)), "c")
    assert any("edge of the domain" in text for text in clipped.concerns)
    assert not ps.learn_regression(ps.sketch(rows, design_of(NUMBERS)), "c").concerns


@pytest.mark.usefixtures("fixed_noise")
def test_drowned_coefficients_are_named():
    rows = np.random.default_rng(0).uniform(-1, 1, (4000, 3)) * [1, 0.05, 1]
    model = ps.learn_regression(ps.sketch(rows, design_of(NUMBERS)), "c")
    assert any("drowns 1 of 2 coefficients (b)" in text for text in model.concerns)
    assert np.isnan(model.interval()[1]).all()
    assert np.isfinite(model.interval()[0]).all()
    assert np.isnan(model.partial_correlation("b")[0])


@pytest.mark.parametrize(
    ("target", "on", "says"),
    [
        (None, None, "names none"),
        (3, None, "expected the name"),
        ("height", None, "expected one of 'age'"),
        ("hour", None, "cycle"),
        ("ward", None, "category"),
        ("pressure", "age", "expected a list"),
        ("pressure", [], "one other column"),
        ("pressure", ["age", "age"], "each once"),
        ("pressure", ["age", "pressure"], "target itself"),
        ("ward=A", ["ward"], "target itself"),
        ("pressure", ["height"], "expected one of 'age'"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(exact, target, on, says):
    with pytest.raises(ParameterError, match=says):
        ps.learn_regression(exact, target, on)
