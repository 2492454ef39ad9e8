"""Summaries: exact values against pandas, intervals that hold, and odd tables."""

import math
import warnings

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError
from tests.chance import deviations, fixed_noise
from tests.learning.test_regression import NUMBERS, SCHEMA, design_of, visits

pd = pytest.importorskip("pandas")
PURE = ps.Budget(epsilon=1.0)


def taxicab_of(domain, n_records=1000, **budget):
    return ps.Design.plan(
        task="regression",
        domain=domain,
        budget=ps.Budget(epsilon=1.0, **budget),
        n_records=n_records,
        random_state=0,
    )


def exact_of(table, design):
    return ps.sketch(table, design.without_noise(), insecure=True)


@pytest.fixture(scope="module")
def table():
    return visits(5000)


@pytest.fixture(scope="module", params=["second-moments", "taxicab"])
def exact(request, table):
    design = design_of() if request.param == "second-moments" else taxicab_of(SCHEMA)
    assert design.feature_map == request.param
    return ps.learn_summary(exact_of(table, design))


def rounding(exact):
    """Relative error that the integers of a map allow."""
    is_fine = exact.sums[0, 0] == pytest.approx(5000, abs=0.1)
    return 2e-4 if is_fine else 2e-3


# --- exact values --------------------------------------------------------------------------------


def test_means_and_shares_are_those_of_the_table(exact, table):
    found, near = exact.table().set_index("name"), rounding(exact)
    assert found.estimate["records"] == pytest.approx(5000)
    for name in ("age", "pressure"):
        assert found.estimate[name] == pytest.approx(table[name].mean(), rel=near)
        assert found.sd[name] == pytest.approx(table[name].std(ddof=0), rel=10 * near)
        error = table[name].std() / math.sqrt(5000)
        assert found.high[name] - found.low[name] == pytest.approx(2 * 1.96 * error, rel=0.02)
    geometric = np.log(table.income)
    assert found.statistic["income"] == "geometric mean"
    assert math.log(found.estimate["income"]) == pytest.approx(geometric.mean(), rel=near)
    assert math.log(found.sd["income"]) == pytest.approx(geometric.std(), rel=20 * near)
    assert abs(found.estimate["day"] - table.day.mean()) < pd.Timedelta(days=1)
    for label, share in table.ward.value_counts(normalize=True).items():
        assert found.estimate[f"ward={label}"] == pytest.approx(share, abs=1e-6)
    assert found.estimate["ward=other"] == pytest.approx(0.0, abs=1e-6)
    assert found.estimate["smoker"] == pytest.approx(table.smoker.mean(), abs=1e-6)


def test_groups_are_those_of_pandas(exact, table):
    near = rounding(exact)
    for by, labels in (("ward", ["A", "B", "C"]), ("smoker", ["no", "yes"])):
        key = table[by].map({False: "no", True: "yes"}) if by == "smoker" else table[by]
        groups, found = table.groupby(key), exact.table(by=by)
        for label in labels:
            group, column = groups.get_group(label), found[label]
            assert column.estimate["records"] == pytest.approx(len(group), abs=0.01)
            for name in ("age", "pressure"):
                assert column.estimate[name] == pytest.approx(group[name].mean(), rel=2 * near)
            income = np.log(group.income).mean()
            assert math.log(column.estimate["income"]) == pytest.approx(income, rel=2 * near)
            if by == "ward":
                assert column.estimate["smoker"] == pytest.approx(group.smoker.mean(), abs=1e-6)
            else:
                share = (group.ward == "B").mean()
                assert column.estimate["ward=B"] == pytest.approx(share, abs=1e-6)
    empty = exact.table(by="ward")["other"]
    assert empty.estimate["records"] == pytest.approx(0, abs=0.01)
    assert empty.estimate.drop("records").isna().all()


def test_intervals_in_groups_are_those_of_an_analysis_of_variance(exact, table):
    """Without noise a mean has the pooled standard deviation, a share that of Wilson."""
    found, groups = exact.table(by="ward")["C"], table.groupby("ward")
    within = sum(group.pressure.var(ddof=0) * len(group) for _, group in groups) / 5000
    size = len(groups.get_group("C"))
    width = 2 * 1.959964 * math.sqrt(within / size)
    assert found.high["pressure"] - found.low["pressure"] == pytest.approx(width, rel=0.02)
    share, square = found.estimate["smoker"], 1.959964**2
    middle = (share + square / (2 * size)) / (1 + square / size)
    half = math.sqrt(square * (share * (1 - share) / size + square / (4 * size**2)))
    half /= 1 + square / size
    assert found.low["smoker"] == pytest.approx(middle - half, abs=1e-5)
    assert found.high["smoker"] == pytest.approx(middle + half, abs=1e-5)


def test_correlations_are_those_of_pandas(exact, table):
    found = exact.correlations().set_index(["name", "other"])
    numbers = table[["age", "income", "day", "pressure"]].copy()
    numbers["income"] = np.log(numbers.income)
    numbers["day"] = (numbers.day - pd.Timestamp("1970-01-01")).dt.days
    truth, covariance, near = numbers.corr(), numbers.cov(), 20 * rounding(exact)
    assert len(found) == 6
    for pair in found.index:
        assert found.estimate[pair] == pytest.approx(truth.loc[pair], abs=near)
        scale = math.sqrt(covariance.loc[pair[0], pair[0]] * covariance.loc[pair[1], pair[1]])
        assert found.covariance[pair] == pytest.approx(covariance.loc[pair], abs=near * scale)
    error = (1 - truth.age.pressure**2) / math.sqrt(5000)
    width = found.high["age", "pressure"] - found.low["age", "pressure"]
    assert width == pytest.approx(2 * 1.96 * error, rel=0.02)


def test_a_cycle_has_a_mean_direction():
    rng = np.random.default_rng(0)
    hours = (23.5 + rng.normal(0, 2, 4000)) % 24
    wards = rng.choice(["A", "B"], 4000)
    schema = ps.Schema([ps.Cycle("hour", 24), ps.Category("ward", ["A", "B"])])
    sketch = ps.sketch(pd.DataFrame({"hour": hours, "ward": wards}), design_of(schema))
    model = ps.learn_summary(sketch)
    found = model.table().set_index("name").loc["hour"]
    assert abs((found.estimate - 23.5 + 12) % 24 - 12) < 0.3
    assert 0 < (found.high - found.low) % 24 < 0.7
    assert "23" in dict(model.shown_table("ward")[1])["hour"][0]


def test_columns_without_a_schema_are_themselves():
    rows = np.random.default_rng(0).normal([1.0, 2.0, 3.0], 0.5, (3000, 3))
    design = design_of(ps.Ball(dim=3, radius=4.0, center=[1.0, 1.0, 1.0]))
    model = ps.learn_summary(exact_of(rows, design))
    found = model.table()
    assert found.name.tolist() == ["records", "x1", "x2", "x3"]
    np.testing.assert_allclose(found.estimate[1:].astype(float), rows.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(found.sd[1:].astype(float), rows.std(axis=0), atol=1e-3)
    with pytest.raises(ParameterError, match="no labels"):
        model.table(by="x1")


def test_merged_sketches_give_the_summary_of_all(table):
    design = design_of()
    parts = [exact_of(table[:2000], design), exact_of(table[2000:], design)]
    merged = ps.learn_summary(ps.merge(parts)).table(by="ward")["A"].estimate
    pooled = ps.learn_summary(exact_of(table, design)).table(by="ward")["A"].estimate
    np.testing.assert_allclose(merged.pressure, pooled.pressure, rtol=1e-4)


# --- intervals -----------------------------------------------------------------------------------

WORLD = ps.Schema(
    [ps.Number("x", -5, 5), ps.Number("y", -5, 5), ps.Category("ward", ["A", "B"]), ps.Flag("ill")]
)
OFFSETS, RATES = np.array([0.4, -0.8]), np.array([0.2, 0.5])
SHARE_B, RUNS = 0.25, 80


def world(rng, size=3000):
    ward = (rng.random(size) < SHARE_B).astype(int)
    x = OFFSETS[ward] + rng.normal(size=size)
    y = 0.6 * x + rng.normal(size=size)
    return np.column_stack([x, y, ward, rng.random(size) < RATES[ward]]), ward


def coverage(design, repeat=1):
    """Return in how many runs intervals of each kind hold, and how many there are."""
    variance = 1 + SHARE_B * (1 - SHARE_B) * 1.2**2
    truth = {"x": 0.1, "ward=B": SHARE_B, "ill": 0.275}
    r = 0.6 * math.sqrt(variance / (0.36 * variance + 1))
    held = {name: np.zeros(2, dtype=int) for name in (*truth, "x in B", "ill in B", "r")}
    for run in range(RUNS):
        rows, ward = world(np.random.default_rng(run))
        frame = pd.DataFrame(rows, columns=["x", "y", "ward", "ill"])
        frame["ward"] = np.array(["A", "B"])[ward]
        if repeat > 1:
            frame = frame.loc[frame.index.repeat(repeat)].assign(person=lambda part: part.index)
        model = ps.learn_summary(ps.sketch(frame, design))
        found, groups = model.table().set_index("name"), model.table(by="ward")["B"]
        pairs = model.correlations().iloc[0]
        shown = {name: (found.low[name], value, found.high[name]) for name, value in truth.items()}
        shown["x in B"] = groups.low["x"], OFFSETS[1], groups.high["x"]
        shown["ill in B"] = groups.low["ill"], RATES[1], groups.high["ill"]
        shown["r"] = pairs.low, r, pairs.high
        for name, (low, value, high) in shown.items():
            held[name] += [low <= value <= high, not math.isnan(low)]
    return held


def require_coverage(held):
    """A kind fails by chance once in a million tests; intervals of 70 % would fail."""
    for name, (hits, runs) in held.items():
        least = 0.95 * runs - deviations(6) * math.sqrt(runs * 0.95 * 0.05)
        assert runs > 0.9 * RUNS, name
        assert hits >= least, name
    assert sum(hits < runs for hits, runs in held.values()) > 2  # others would be too wide


@pytest.mark.parametrize(("delta", "neighbours"), [(1e-6, "replace"), (0, "add-remove")])
def test_intervals_hold(delta, neighbours):
    with fixed_noise():
        require_coverage(coverage(taxicab_of(WORLD, 3000, delta=delta, neighbours=neighbours)))


def test_intervals_know_that_a_person_has_several_records():
    schema = ps.Schema(WORLD.columns, person="person", max_records=3)
    with fixed_noise():
        require_coverage(coverage(taxicab_of(schema, 9000, delta=1e-6), repeat=3))


def test_noise_of_sums_is_that_of_independent_entries(table):
    """Laplace noise in each entry, drawn anew, has the variance and the tails that are taken."""
    model = ps.learn_summary(ps.sketch(table, taxicab_of(SCHEMA)))
    places, group = {field.name: field for field in model.fields}, model._groups("ward")[1]
    rng, n_draws = np.random.default_rng(0), 40_000
    for name in ("age", "smoker"):
        part = model._part(places[name].row, group)
        form = part.within(1, 2) - 0.3 * part.group(2)
        noise = rng.laplace(scale=np.sqrt(part.variance / 2), size=(n_draws, *form.shape))
        upper = np.triu(noise) + np.swapaxes(np.triu(noise, 1), 1, 2)
        values = (form * upper).sum(axis=(1, 2))
        # The variance of a Laplace number errs by sqrt(5 / n).
        error = deviations(2) * math.sqrt(5 / n_draws)
        assert values.var() == pytest.approx(part.covariance(form, form), rel=error)
        held = np.abs(values) <= part.width(form, 0.95) * math.sqrt(part.covariance(form, form))
        assert held.mean() == pytest.approx(0.95, abs=0.006)
    assert part.width(form, 0.95) > 2


def test_a_group_takes_squares_of_its_label_into_account(table):
    model = ps.learn_summary(ps.sketch(table, taxicab_of(SCHEMA)))
    part = model._part(model._groups("ward")[0])
    alone, both = part.product(0, 1), part.group(1)
    assert part.covariance(both, both) < 0.8 * part.covariance(alone, alone)


# --- little to see -------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("n_records", [0, 1, 2, 30])
@pytest.mark.parametrize("private", [True, False])
def test_few_records_never_crash(delta, neighbours, n_records, private):
    rows = visits(n_records)
    if n_records == 0 and neighbours == "replace":
        return  # it is refused: the number is public
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        design = taxicab_of(SCHEMA, 1000, delta=delta, neighbours=neighbours)
        sketch = ps.sketch(rows, design) if private else exact_of(rows, design)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ps.learn_summary(sketch, by="ward")
        shown, groups = model.table(), model.table(by="smoker")
        model.correlations()
        texts = (model.describe(), model._repr_html_(), repr(model))
    assert all(texts)
    assert (len(shown), len(groups)) == (11, 10)
    if private:
        assert "drowned in noise" in model.describe()
        rest = groups.drop("records").drop("day").astype(float)
        assert (rest.isna() | np.isfinite(rest)).all(axis=None)


def test_intervals_stay_within_public_bounds():
    for seed in range(20):
        rows = visits(60, seed)
        model = ps.learn_summary(ps.sketch(rows, taxicab_of(SCHEMA, delta=1e-6)))
        found = model.table().set_index("name")
        for name, low, high in (("age", 18, 100), ("smoker", 0, 1), ("pressure", 60, 220)):
            row = found.loc[name]
            inside = low - 1e-9 <= row.low <= row.estimate <= row.high <= high + 1e-9
            assert math.isnan(row.estimate) or inside


def test_what_bends_a_summary_is_said():
    columns = [ps.Number(name, -1, 1) for name in ("a", "b")]
    rows = np.random.default_rng(0).normal(50, 1, (30_000, 2))
    assert not ps.learn_summary(ps.sketch(rows / 200, design_of(ps.Schema(columns)))).concerns
    model = ps.learn_summary(ps.sketch(rows, design_of(ps.Schema(columns))))
    assert any("high bound of a" in text for text in model.concerns)
    wide = ps.Schema([*columns, *(ps.Number(f"c{j}", -1, 1) for j in range(6))])
    small = ps.Design.plan(
        task="regression",
        domain=wide,
        budget=ps.Budget(epsilon=1.0, delta=1e-6),
        n_records=1000,
        clip="uniform",
        random_state=0,
    )
    inside = np.random.default_rng(0).uniform(-1, 1, (3000, 8))
    assert "smaller ball" in ps.learn_summary(ps.sketch(inside, small)).concerns[0]
    uncounted = design_of(ps.Schema(columns), count="omitted", n_records=3000)
    model = ps.learn_summary(ps.sketch(rows[:3000] / 200, uncounted))
    assert "no number of records" in model.concerns[0]


def test_what_has_no_summary_is_refused(table):
    without = ps.sketch(np.zeros((100, 3)), design_of(NUMBERS, mean="omitted"))
    with pytest.raises(ParameterError, match="has no mean"):
        ps.learn_summary(without)
    waves = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(epsilon=1.0), random_state=0
    )
    with pytest.raises(ParameterError, match="second moments"):
        ps.learn_summary(ps.sketch(np.zeros((50, 2)), waves))
    sketch = ps.sketch(table[:100], design_of())
    for by in ("age", "hour", "nothing", 3):
        with pytest.raises(ParameterError, match="by"):
            ps.learn_summary(sketch, by=by)
        with pytest.raises(ParameterError, match="by"):
            ps.learn_summary(sketch).table(by=by)
    for level in (0, 1, 95, True, "high"):
        with pytest.raises(ParameterError, match="level"):
            ps.learn_summary(sketch).table(level=level)
        with pytest.raises(ParameterError, match="level"):
            ps.learn_summary(sketch).correlations(level=level)
