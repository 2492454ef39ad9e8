"""One view of every sketch with second moments: what it holds, and how noisy it is."""

import numpy as np
import pytest
from scipy.stats import chi2

import privsketch as ps
from privsketch import ParameterError
from privsketch.learning import Moments
from privsketch.noise import plan_sharing
from privsketch.sketching import engine_sums, joined_sketch
from tests.chance import deviations
from tests.taxicab import taxicab_design

SCHEMA = ps.Schema(
    [ps.Number("age", 18, 100), ps.Category("ward", ["A", "B"]), ps.Number("pressure", 60, 200)]
)
BUDGET = ps.Budget(epsilon=1.0, delta=1e-6)


def design_of(domain=SCHEMA, budget=BUDGET, **choices):
    options = {"feature_map": "second-moments", "mean": "released", "n_records": 1000, **choices}
    return ps.Design.plan(
        task="pca", n_components=1, domain=domain, budget=budget, random_state=0, **options
    )


def table_of(n_records=1000, seed=0):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.uniform(20, 90, n_records),
        "ward": rng.choice(["A", "B", "C"], n_records),
        "pressure": rng.normal(120, 15, n_records),
    }
    return pd.DataFrame(columns)


def exact_moments(rows, center):
    """Return sums of (1, z)(1, z)', the definition."""
    augmented = np.column_stack([np.ones(len(rows)), rows - center])
    return augmented.T @ augmented


def test_without_noise_they_are_sums_over_encoded_records():
    table, design = table_of(), design_of().without_noise()
    found = Moments.of(ps.sketch(table, design, insecure=True))
    expected = exact_moments(ps.encode(table, SCHEMA), design.domain.center_vector)
    # Records are rounded to 1 / 773 of the radius: a sum of a thousand moves by their square root.
    assert np.abs(found.matrix - expected).max() < 10 * np.sqrt(1000) * SCHEMA.radius**2 / 773
    assert found.n_records == 1000
    assert found.has_mean
    assert np.sqrt(found.variance.max()) < 2 * np.sqrt(1000) * SCHEMA.radius**2 / 773


def test_labels_are_not_rounded():
    """A coordinate with two public values has two public integers, and their sums tell exactly."""
    schema = ps.Schema([*SCHEMA.columns, ps.Flag("smoker", weight=0.7)])
    table = table_of().assign(smoker=np.arange(1000) % 7 == 0)
    design = design_of(schema).without_noise()
    sketch = ps.sketch(table, design, insecure=True)
    expected = exact_moments(ps.encode(table, schema), design.domain.center_vector)
    labels = [0, 2, 3, 4, 6]  # and the number of records
    found = Moments.of(sketch).matrix
    assert np.abs(found - expected)[np.ix_(labels, labels)].max() < 1e-9 * 1000
    as_released = np.abs(sketch.second_moments() - expected[1:, 1:])
    assert as_released[[1, 2, 3, 5]][:, [1, 2, 3, 5]].max() > 1e-4 * 1000


def test_columns_have_places():
    found = Moments.of(ps.sketch(table_of(), design_of().without_noise(), insecure=True))
    assert found.names == ("age", "ward", "pressure")
    assert [found.places(name) for name in found.names] == [slice(0, 1), slice(1, 4), slice(4, 5)]
    with pytest.raises(ParameterError, match=r"'height'.*'age', 'ward', 'pressure'"):
        found.places("height")
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (100, 2))
    plain = Moments.of(
        ps.sketch(rows, design_of(ps.Ball(dim=2, radius=1.0)).without_noise(), insecure=True)
    )
    assert (plain.names, plain.places("x2")) == (("x1", "x2"), slice(1, 2))


def spread_of_releases(design, n_releases=400):
    """Return squared deviations over stated variances, a mean for each of four kinds of entry."""
    table = table_of(50)
    exact = Moments.of(ps.sketch(table, design.without_noise(), insecure=True)).matrix
    releases = [Moments.of(ps.sketch(table, design)) for _ in range(n_releases)]
    squares = np.mean([(one.matrix - exact) ** 2 for one in releases], axis=0)
    ratios = squares / releases[0].variance
    inner, diagonal = ratios[1:, 1:], np.eye(len(ratios) - 1, dtype=bool)
    triangle = np.triu(np.ones_like(diagonal), 1)
    kinds = {
        "count": ratios[:1, 0],
        "mean": ratios[0, 1:],
        "diagonal": inner[diagonal],
        "off": inner[triangle],
    }
    return {kind: (float(part.mean()), n_releases * part.size) for kind, part in kinds.items()}


def test_the_noise_has_the_stated_variances():
    # A mean of k squares of standard normals has deviation sqrt(2 / k); 400 to 4,000 of them are
    # skewed, which one deviation more allows for.
    for ratio, size in spread_of_releases(design_of()).values():
        assert abs(ratio - 1) < (deviations(4) + 1) * np.sqrt(2 / size)


def test_a_planted_variance_would_show():
    # 40 % off on the diagonal, which is 49/25 where entries of both kinds are mixed up.
    ratio, size = spread_of_releases(design_of())["diagonal"]
    assert abs(ratio * 49 / 25 - 1) > (deviations(4) + 1) * np.sqrt(2 / size)


def test_noise_along_a_vector_is_that_of_a_symmetric_matrix():
    rng = np.random.default_rng(0)
    found = Moments.of(ps.sketch(table_of(50), design_of()))
    upper = np.triu(rng.normal(size=(20_000, *found.matrix.shape)) * np.sqrt(found.variance))
    noise = upper + np.triu(upper, 1).transpose(0, 2, 1)
    vector = rng.normal(size=len(found.matrix))
    draws = noise @ vector
    expected = found.noise_along(vector)
    deviation = np.sqrt(np.outer(np.diag(expected), np.diag(expected)) * 2 / 20_000)
    assert (np.abs(np.cov(draws.T) - expected) < 6 * deviation).all()


@pytest.mark.usefixtures("fixed_noise")
def test_merged_sketches_add_up_with_their_noise():
    parts = [ps.sketch(table_of(500, seed), design_of(), source=str(seed)) for seed in range(3)]
    found, own = Moments.of(ps.merge(parts)), [Moments.of(part) for part in parts]
    assert np.allclose(found.matrix, sum(one.matrix for one in own))
    assert np.allclose(found.variance, 3 * own[0].variance)


def test_totals_of_shared_noise_say_how_noisy_they_are():
    design = design_of(n_holders=5, sharing="holders")
    sharing = plan_sharing(design.sum_noise, n_holders=5, by="holders")
    tables = [table_of(1000, seed) for seed in range(5)]
    words = np.zeros(sharing.n_words, dtype=np.int64)
    for table in tables:
        found = engine_sums(table, design)
        own = design.sum_noise.weighted(found.sums, found.n_records)
        words += sharing.draw_holder(own)[0][sharing.level_of(5)]
    names = [f"site {place}" for place in range(5)]
    found = Moments.of(joined_sketch(design, words, sharing, sources=names, study="a1"))
    merged = Moments.of(
        ps.merge([ps.sketch(t, design, source=n) for n, t in zip(names, tables, strict=True)])
    )
    assert np.all(found.variance < merged.variance)
    rows = np.concatenate([ps.encode(table, SCHEMA) for table in tables])
    errors = found.matrix - exact_moments(rows, design.domain.center_vector)
    upper = np.triu_indices(len(errors))
    ratios = (errors**2 / found.variance)[upper]
    # One run of a million has a larger sum of squares of standard normals.
    assert ratios.sum() < chi2.isf(1e-6, len(ratios))


@pytest.mark.usefixtures("fixed_noise")
def test_a_mean_that_was_left_out_is_missing():
    found = Moments.of(ps.sketch(table_of(), design_of(mean="omitted")))
    assert not found.has_mean
    assert not found.matrix[0, 1:].any()
    assert not found.variance[0, 1:].any()


def test_a_number_of_records_is_not_below_what_the_trace_needs(fixed_noise):
    design = design_of(ps.Ball(dim=2, radius=1.0), budget=ps.Budget(epsilon=0.01, delta=1e-6))
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 2))
    for _ in range(20):
        found = Moments.of(ps.sketch(rows, design))
        trace = np.trace(found.matrix[1:, 1:])
        assert found.n_records == max(found.matrix[0, 0], trace, 1.0)


@pytest.mark.usefixtures("fixed_noise")
def test_a_public_number_of_records_stays():
    budget = ps.Budget(epsilon=0.01, delta=1e-6, neighbours="replace")
    found = Moments.of(ps.sketch(table_of(20), design_of(budget=budget)))
    assert (found.n_records, found.variance[0, 0]) == (20.0, 0.0)


@pytest.mark.usefixtures("fixed_noise")
def test_rows_of_one_person_are_no_independent_records():
    schema = ps.Schema(SCHEMA.columns, rows_per_person=4)
    assert Moments.of(ps.sketch(table_of(50), design_of(schema))).repetition == 4


@pytest.mark.usefixtures("fixed_noise")
def test_other_features_are_refused_with_what_to_plan():
    design = design_of(feature_map="quadratic", mean=None)
    with pytest.raises(ParameterError, match=r"plan a design with .*second-moments"):
        Moments.of(ps.sketch(table_of(), design))
    with pytest.raises(ParameterError, match=r"expected a Sketch"):
        Moments.of(table_of())


# --- pure noise: other integers, other units -----------------------------------------------------

MIXED = ps.Schema([*SCHEMA.columns, ps.Flag("smoker", weight=0.7)])


@pytest.fixture(scope="module")
def pure_moments():
    table = table_of(500).assign(smoker=np.arange(500) % 7 == 0)
    design = taxicab_design(MIXED, ps.Budget(epsilon=1.0))
    found = [Moments.of(ps.sketch(table, design)) for _ in range(300)]
    return found, exact_moments(ps.encode(table, MIXED), MIXED.ball.center_vector)


def test_pure_sketches_have_the_same_view(pure_moments):
    found, expected = pure_moments
    errors = np.array([one.matrix for one in found]) - expected
    # Noise of converted entries is correlated; a mean over releases of each alone is normal.
    deviation = np.sqrt(found[0].variance / len(found))
    assert (np.abs(errors.mean(axis=0)) < deviations(64) * deviation + 1e-3).all()
    assert found[0].names == ("age", "ward", "pressure", "smoker")
    assert found[0].radius == pytest.approx(MIXED.radius)


def test_pure_noise_along_a_vector_is_exact(pure_moments):
    found, expected = pure_moments
    vector = np.random.default_rng(0).normal(size=len(expected))
    draws = np.array([one.matrix for one in found]) @ vector
    covariance = found[0].noise_along(vector)
    own = np.diag(covariance)
    # Sums of Laplace noise: squares have a kurtosis of at most 6, so a variance of at most 5 / n.
    deviation = np.sqrt(5 * np.outer(own, own) / len(found))
    assert (np.abs(np.cov(draws.T) - covariance) < (deviations(64) + 1) * deviation).all()
