"""PrivateProjection keeps scikit-learn's contract, charges every release, hides every record."""

import copy
import math
import pickle
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import privsketch as ps
from privsketch.projection import Change
from tests import seams
from tests.contract import contract
from tests.workbooks import write_workbook

_insecure_sampler = seams.get("mechanism.insecure_sampler")


ESTIMATORS = [
    ps.PrivateProjection(2, epsilon=5.0, delta=1e-6, domain=ps.Ball(radius=30.0)),
    ps.PrivateProjection(
        1, epsilon=5.0, delta=0.0, domain=ps.Box(-20, 20), protect="element", missing="center"
    ),
]


@contract(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class WithoutNoise(ps.PrivateProjection):
    """For checks that compare releases: with the noise taken out, they must agree."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        return tags


@parametrize_with_checks(
    [WithoutNoise(**estimator.get_params()) for estimator in ESTIMATORS],
    expected_failed_checks=lambda estimator: {"check_dict_unchanged": "transform charges"},
)
def test_only_noise_stands_between_two_releases(estimator, check, no_noise):
    check(estimator)


RECORDS = np.random.default_rng(0).normal(size=(200, 6))
# With 20 components of so many columns, a fresh matrix needs less than half of the variance of a
# realised one, but for a chance far below 1e-6.
MANY_COLUMNS = np.random.default_rng(0).normal(size=(50, 80))
BALL = ps.Ball(radius=5.0)


def estimator(**overrides):
    settings = {"n_components": 3, "epsilon": 1.0, "delta": 1e-6, "domain": BALL}
    return ps.PrivateProjection(**{**settings, **overrides})


def test_fit_reads_the_columns_and_spends_nothing(spent):
    states = []
    for table in (RECORDS, RECORDS[:7] * 3 + 1):
        model = estimator(random_state=1).fit(table)
        states.append(pickle.dumps(vars(model)))
        assert model.receipts_ == ()
        for name in ("receipt_", "description_"):
            with pytest.raises(AttributeError, match=f"{name}: nothing was .* yet"):
                getattr(model, name)
    assert states[0] == states[1]
    assert spent == []


def test_one_release_and_nothing_exact_is_kept():
    # With a release that is the same for both tables, nothing may tell them apart.
    states = []
    for table in (RECORDS, -3 * RECORDS):
        with _insecure_sampler(lambda values, law: (np.zeros_like(values), law.scale)):
            model = estimator(random_state=1)
            assert not model.fit_transform(table).any()
        states.append(pickle.dumps(vars(model), protocol=0) + repr(model.description_).encode())
    assert states[0] == states[1]
    kept = {name for name in vars(model) if name.endswith("_")}
    assert kept == {"projection_", "receipts_", "n_features_in_"}
    assert not hasattr(model, "inverse_transform")


def test_what_is_fitted():
    model = estimator(random_state=4).fit(RECORDS)
    assert model.n_components_ == 3
    assert model.components_.shape == (3, 6)
    assert model.components_.dtype == np.float64
    released = model.transform(RECORDS.astype(np.float32))
    assert released.shape == (200, 3)
    assert released.dtype == np.float64
    described = model.description_
    assert described.receipt == model.receipt_ == model.receipts_[0]
    assert described.noise_variance == model.noise_variance_
    assert described.columns == tuple(model.get_feature_names_out())
    assert described.seed == 4
    # Laplace noise has kurtosis 6, Gaussian noise 3; the grid of integers is very fine.
    kurtosis = {"laplace": 6, "gaussian": 3}[described.noise]
    assert model.noise_fourth_moment_ == pytest.approx(kurtosis * model.noise_variance_**2)


def test_a_public_seed_gives_the_same_matrix_and_no_seed_another_one():
    first, again = (estimator(random_state=8).fit(RECORDS).components_ for _ in range(2))
    assert np.array_equal(first, again)
    free = estimator().fit(RECORDS)
    before = free.components_
    # Two entries are equal with probability 1e-5: half of 18 never are.
    for other in (free.fit(RECORDS), estimator().fit(RECORDS), clone(free).fit(RECORDS)):
        assert np.mean(other.components_ == before) < 0.5


def test_every_release_is_charged_exactly():
    model = estimator(epsilon=0.1, delta=1e-7, noise="gaussian", random_state=0).fit(RECORDS)
    releases = [model.transform(RECORDS) for _ in range(10)]
    assert (releases[0] != releases[1]).all()
    assert (model.receipt_.epsilon, model.receipt_.delta) == (1.0, 1e-6)
    assert all((part.epsilon, part.delta) == (0.1, 1e-7) for part in model.receipts_)
    assert model.receipt_.parts == model.receipts_
    assert len(model.receipts_) == 10
    assert model.fit_transform(RECORDS).shape == (200, 3)
    assert len(model.receipts_) == 1
    assert model.receipt_.epsilon == 0.1


@pytest.mark.parametrize(
    ("choices", "unit"),
    [
        ({}, "one record"),
        ({"protect": "element"}, "one entry of one record"),
        ({"bound": 0.5}, "a change of one record by at most 0.5 in Euclidean distance"),
    ],
)
def test_receipts_say_what_is_protected_also_when_they_are_added(choices, unit):
    model = estimator(random_state=0, **choices).fit(RECORDS)
    for _ in range(2):
        model.transform(RECORDS)
        assert model.receipt_.unit == unit
        assert model.receipt_.neighbours == "replace"
    assert "2, sequential: costs add" in model.receipt_.describe()


def test_less_protection_needs_less_noise():
    choices = ({"bound": 0.1}, {"protect": "element", "domain": ps.Box(-5, 5)}, {})
    variances = [estimator(random_state=0, **c).fit(RECORDS).noise_variance_ for c in choices]
    assert variances == sorted(variances)
    assert len(set(variances)) == 3


@pytest.mark.parametrize("calibration", ["fresh", "union", "paper"])
def test_a_fresh_matrix_serves_one_release(calibration):
    model = estimator(calibration=calibration).fit(RECORDS)
    model.transform(RECORDS)
    paid = model.receipt_
    with pytest.raises(ps.PrivsketchError, match=f"calibration='{calibration}'.*fit again"):
        model.transform(RECORDS)
    assert model.receipt_ == paid
    model.fit_transform(RECORDS)
    with pytest.raises(ps.PrivsketchError, match="fit again"):
        model.transform(RECORDS)


def test_auto_goes_on_with_the_same_matrix_and_noise_for_any_use():
    model = estimator(n_components=20)
    model.fit_transform(MANY_COLUMNS)
    fresh, matrix = model.description_, model.components_
    assert fresh.calibration == "fresh"
    assert fresh.seed is None
    for _ in range(2):
        model.transform(MANY_COLUMNS)
        assert np.array_equal(model.components_, matrix)
        assert model.description_.calibration == "realised"
        assert model.noise_variance_ > 2 * fresh.noise_variance
    assert model.receipt_.epsilon == 3.0
    kinds = [receipt.calibration.split(":")[0] for receipt in model.receipts_]
    assert kinds == ["fresh", "realised", "realised"]


def test_realised_noise_is_the_same_at_every_release():
    model = estimator(n_components=20, calibration="realised").fit(RECORDS)
    variances = [model.noise_variance_]
    for _ in range(3):
        model.transform(RECORDS)
        variances.append(model.noise_variance_)
    assert len(set(variances)) == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_do_not_share_the_one_release_of_a_fresh_matrix(copied):
    model = estimator(calibration="fresh").fit(RECORDS)
    twin = copied(model)
    for one in (twin, model):  # nobody knows which of them would be first
        with pytest.raises(ps.PrivsketchError, match="cop"):
            one.transform(RECORDS)

    model = estimator(n_components=20).fit(MANY_COLUMNS)
    twin = copied(model)
    twin.transform(MANY_COLUMNS)
    model.transform(MANY_COLUMNS)
    assert twin.description_.calibration == "realised"
    assert model.description_.calibration == "realised"
    assert np.array_equal(twin.components_, model.components_)
    later = copied(model)
    assert later.receipt_ == model.receipt_
    assert later.description_ == model.description_


@pytest.mark.parametrize(
    ("table", "change"),
    [
        (np.where(RECORDS > 2, np.nan, RECORDS), {}),
        (RECORDS[:0], {}),
        (RECORDS[:, :5], {}),
        (RECORDS, {"n_threads": 0}),
        (RECORDS, {"missing": "guess"}),
    ],
)
def test_a_refused_table_costs_nothing_and_uses_no_matrix(table, change, spent):
    model = estimator(calibration="fresh").fit(RECORDS)
    good = {name: model.get_params()[name] for name in change}
    model.set_params(**change)
    with pytest.raises(ps.PrivsketchError):
        model.transform(table)
    assert spent == []
    assert model.receipts_ == ()
    model.set_params(**good).transform(RECORDS)
    assert len(spent) == 1


@pytest.mark.parametrize("calibration", ["fresh", "auto"])
def test_an_interrupted_release_is_not_charged_but_uses_its_matrix(calibration, monkeypatch):
    model = estimator(n_components=20, calibration=calibration).fit(MANY_COLUMNS)

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        seams.set(patch, "rows.add_noise", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.transform(MANY_COLUMNS)
    assert model.receipts_ == ()
    if calibration == "fresh":
        with pytest.raises(ps.PrivsketchError, match="fit again"):
            model.transform(MANY_COLUMNS)
    else:
        model.transform(MANY_COLUMNS)
        assert model.description_.calibration == "realised"


@pytest.mark.parametrize("name", ["epsilon", "delta", "domain"])
def test_missing_public_facts_are_an_error(name):
    with pytest.raises(ps.PrivsketchError, match=f"{name}: PrivateProjection needs"):
        estimator(**{name: None}).fit(RECORDS)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 2.0}, "n_components=2.0"),
        ({"epsilon": 0}, "epsilon=0"),
        ({"domain": 3.0}, "domain=3.0"),
        ({"domain": ps.Box(-1, 1, dim=5)}, "dim=5"),
        ({"protect": "table"}, "protect='table'"),
        ({"bound": -1.0}, "bound=-1.0"),
        ({"bound_norm": "l1"}, "bound_norm='l1'"),
        ({"noise": "cube"}, "noise='cube'"),
        ({"noise": "gaussian", "delta": 0.0}, "delta=0"),
        ({"calibration": "lucky"}, "calibration='lucky'"),
        ({"calibration": "fresh", "delta": 0.0}, "delta=0"),
        ({"calibration": "fresh", "random_state": 0}, "random_state"),
        ({"missing": "drop"}, "missing='drop'"),
        ({"n_threads": -1}, "n_threads=-1"),
        ({"random_state": "seed"}, "random_state='seed'"),
    ],
)
def test_wrong_choices_are_refused(choices, words):
    with pytest.raises(ps.PrivsketchError, match=words):
        estimator(**choices).fit(RECORDS)


def test_neighbours_is_no_parameter():
    with pytest.raises(TypeError):
        estimator(neighbours="add-remove")
    assert "neighbours" not in estimator().get_params()


def test_a_fit_that_fails_leaves_no_matrix_of_other_columns():
    model = estimator(domain=ps.Ball(radius=5.0, dim=6)).fit(RECORDS)
    with pytest.raises(ps.PrivsketchError, match="dim=6"):
        model.fit(RECORDS[:, :4])
    with pytest.raises(NotFittedError):
        model.transform(RECORDS[:, :4])


@pytest.mark.parametrize(
    "X",
    [
        np.array([0.987654, 0.5]),
        np.array([[0.987654 + 1j] * 6]),
        np.array([["0.987654x"] * 6], dtype=object),
        np.array([[0.987654] * 5 + [np.nan]]),
        np.array([[0.987654] * 5 + [np.inf]]),
        np.array([[0.987654] * 5]),
    ],
)
@pytest.mark.parametrize("method", ["fit", "transform", "fit_transform"])
def test_bad_tables_are_refused_without_being_quoted(X, method):
    model = estimator(domain=ps.Ball(radius=5.0, dim=6), random_state=0).fit(RECORDS)
    with pytest.raises(ps.PrivsketchError) as error:
        getattr(model, method)(X)
    assert "987654" not in str(error.value)
    assert error.value.__cause__ is None


def test_missing_values_may_be_put_at_the_center(no_noise):
    X = RECORDS.copy()
    X[::9, 0] = np.nan
    X[1::9, 2] = np.inf
    model = estimator(missing="center", domain=ps.Ball(radius=5.0, center=0.25), random_state=0)
    released = model.fit_transform(X)
    assert np.array_equal(released, model.transform(np.where(np.isfinite(X), X, 0.25)))


def test_records_are_cut_and_projected_to_the_resolution_of_integers(no_noise):
    X = 3 * RECORDS  # many are outside
    for domain in (ps.Ball(radius=5.0, center=0.5), ps.Box(-4, 5)):
        model = estimator(domain=domain, random_state=0)
        released = model.fit_transform(X)
        domain = domain.with_dim(6)
        expected = (domain.project(X) - domain.center_vector) @ model.components_.T
        # A coordinate moves by two units of integers at most: rounding, and back to the edge.
        step = 2 / model.projection_.protection.units_per_length
        assert np.all(np.abs(released - expected) <= step * np.abs(model.components_).sum(axis=1))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_noise_that_was_replaced_is_marked_in_every_thread(n_threads, no_noise):
    X = np.zeros((9000, 300))  # three blocks
    model = estimator(n_threads=n_threads, random_state=0).fit(X)
    for _ in range(2):
        assert not model.transform(X).any()
        assert model.receipt_.sampler.startswith("INSECURE")
        assert "INSECURE" in model.description_.describe()


def test_threads_keep_the_order_of_rows(no_noise):
    X = np.random.default_rng(1).normal(size=(9000, 300))
    released = [estimator(n_threads=n, random_state=0).fit_transform(X) for n in (1, 2)]
    assert np.array_equal(*released)


def noise_is_as_stated(residuals, variance):
    """Mean square within six standard errors, of kurtosis up to 6: false alarms below 1e-7.

    Skewness of squares of Laplace variables, 6.6, makes tails of 2e-9 at most a few times larger.
    """
    ratio = np.square(residuals).mean() / variance
    return abs(ratio - 1) < 6 * math.sqrt(5 / residuals.size)


@pytest.mark.parametrize(
    "choices",
    [
        {"noise": "laplace", "calibration": "realised"},
        {"noise": "gaussian", "calibration": "realised"},
        {"noise": "laplace", "calibration": "fresh"},
        {"noise": "gaussian", "calibration": "fresh"},
        {"delta": 0.0, "protect": "element", "domain": ps.Box(-5, 5)},
        {"epsilon": 1e-3, "bound": 0.3},
    ],
)
def test_released_rows_have_the_noise_that_is_stated(choices):
    X = np.random.default_rng(2).uniform(-1, 1, size=(40_000, 6))
    model = estimator(n_components=4, **choices)
    residuals = model.fit_transform(X) - X @ model.components_.T
    assert noise_is_as_stated(residuals, model.noise_variance_)
    for wrong in (0.9, 1.1):
        assert not noise_is_as_stated(residuals, wrong * model.noise_variance_)


def blobs():
    """Two groups, 6 apart in 20 columns."""
    rng = np.random.default_rng(3)
    labels = np.arange(1200) % 2
    center = np.full(20, 3 / math.sqrt(20))
    return rng.normal(scale=0.3, size=(1200, 20)) + np.outer(2 * labels - 1, center), labels


def agreement(found, labels):
    return max(np.mean(found == labels), np.mean(found != labels))


@pytest.mark.parametrize("choices", [{"random_state": 0}, {}, {"calibration": "realised"}])
@pytest.mark.parametrize("last", [LogisticRegression(), KNeighborsClassifier(25)])
def test_pipelines_with_classifiers(choices, last):
    X, y = blobs()
    # 40 random projections leave less than 0.4 of the distance of the groups with probability
    # P(chi2_40 < 6.4) = 3e-10. At 0.4, and with more noise (1.14) than any of 120 matrices had,
    # accuracies were 0.81 or more on average with a standard deviation of 0.018, so that 0.65 is
    # 9 of them away; by chance it would be 7 away from 0.5.
    first = estimator(n_components=40, epsilon=100.0, domain=ps.Ball(radius=3.5), **choices)
    model = make_pipeline(first, clone(last)).fit(X[:600], y[:600])
    step = model[0]
    assert step.receipt_.epsilon == 100.0
    matrix = step.components_
    assert agreement(model.predict(X[600:]), y[600:]) > 0.65
    assert np.array_equal(step.components_, matrix)
    assert step.receipt_.epsilon == 200.0


def test_pipeline_with_kmeans(fixed_noise):
    X, y = blobs()
    first = estimator(n_components=20, epsilon=60.0, random_state=0)
    model = make_pipeline(first, KMeans(2, n_init=3, random_state=0)).fit(X)
    assert agreement(model[-1].labels_, y) > 0.9
    assert len(model[0].receipts_) == 1


def test_frames_in_and_out_and_beside_other_columns():
    import pandas as pd
    import polars as pl

    names = list("abcdef")
    frame = pd.DataFrame(RECORDS, columns=names, index=range(1000, 1200))
    out = ["privateprojection0", "privateprojection1", "privateprojection2"]
    model = estimator().set_output(transform="pandas").fit(frame)
    released = model.transform(frame)
    assert released.columns.tolist() == out
    assert released.index.equals(frame.index)
    assert model.feature_names_in_.tolist() == names
    with pytest.raises(ps.PrivsketchError, match="feature names"):
        model.transform(frame[names[::-1]])
    assert len(model.receipts_) == 1

    table = pl.DataFrame(RECORDS, schema=names)
    released = estimator().set_output(transform="polars").fit_transform(table)
    assert isinstance(released, pl.DataFrame)
    assert released.columns == out

    both = ColumnTransformer([("release", estimator(), names[:4]), ("as_is", "passthrough", ["f"])])
    released = both.set_output(transform="pandas").fit_transform(frame)
    assert released.columns.tolist() == [f"release__{name}" for name in out] + ["as_is__f"]
    assert released["as_is__f"].equals(frame["f"].rename("as_is__f"))
    both.transform(frame)
    assert both.named_transformers_["release"].receipt_.epsilon == 2.0


# How far a neighbouring table can move the integers that noise is added to.

K = 4
SIGNS = np.array(list(product([-1.0, 1.0], repeat=K)))
ROUND, CUBE = ps.Ball(dim=5, radius=3.3, center=0.7), ps.Box(-1.5, 2.0, dim=5)
UNEVEN = ps.Box(low=(-1.0, 0.0, -3.0, 10.0, -0.001), high=(2.0, 0.7, 3.0, 11.0, 0.001))
TINY = 3e-6  # about two units of the integers: most of the change is rounding
PROTECTIONS = [
    {},
    {"bound": 0.21},
    {"bound": 0.21, "bound_norm": "l1"},
    {"protect": "element"},
    {"protect": "element", "bound": 0.17},
    {"bound": TINY},
    {"bound": TINY, "bound_norm": "l1"},
    {"protect": "element", "bound": TINY},
]


def exact_integers(model, X):
    """What the mechanism adds noise to, and the law of the noise."""
    seen = []

    def record(values, law):
        seen.append((values.copy(), law))
        return values, law.scale

    with _insecure_sampler(record):
        model.transform(X)
    return seen[0]


def share_of_sensitivity(model, X, Y):
    """Largest change from a row of X to that of Y, as share of what the noise hides."""
    (a, law), (b, _) = exact_integers(model, X), exact_integers(model, Y)
    order = 1 if law.kind == "laplace" else 2
    return np.linalg.norm((a - b).astype(float), ord=order, axis=1).max() / law.sensitivity


def worst_directions(model):
    """Unit vectors that the matrix makes longest in the L1 norm (P s) and in the L2 norm."""
    p = model.components_.T
    longest = np.vstack([SIGNS @ p.T, np.linalg.svd(p, full_matrices=False)[0].T])
    return longest / np.linalg.norm(longest, axis=1, keepdims=True)


def points(model, domain, rng):
    """Records inside, on a rounding step, and outside."""
    shape = (300, domain.dim)
    unit = 1 / model.projection_.protection.units_per_length
    inside = rng.uniform(-0.5, 0.5, size=shape) * domain.half_widths
    steps = (np.rint(inside / unit) + 0.5) * unit
    outside = rng.normal(size=shape) * domain.half_widths * rng.choice([1, 4, 1e3], size=(300, 1))
    return np.vstack([inside, steps, outside]) + domain.center_vector


def neighbouring_entries(model, domain, rng):
    bound = model.bound
    rows = np.arange(900)
    for size in (bound, bound / 3) if bound else (1e-6, 1.0, 1e300):
        X = points(model, domain, rng)
        Y, places = X.copy(), rng.integers(domain.dim, size=900)
        Y[rows, places] += size * rng.choice([-1, 1], size=900)
        yield X, Y
    if bound is None:  # from end to end
        X, places = points(model, domain, rng), rows % domain.dim
        Y, reach = X.copy(), 2 * domain.half_widths
        X[rows, places] = (domain.center_vector - reach)[places]
        Y[rows, places] = (domain.center_vector + reach)[places]
        yield X, Y


def neighbouring_rows(model, domain, rng):
    center, bound, directions = domain.center_vector, model.bound, worst_directions(model)
    X = points(model, domain, rng)
    if bound is None:
        yield X, X[rng.permutation(900)]
        tops, signs = domain.half_widths.max() * directions, np.sign(directions)
        for ends in (tops, 1e3 * tops, signs * domain.half_widths, 1e300 * signs):
            yield center + ends, center - ends
        return
    if model.bound_norm == "l1":
        directions = np.vstack([np.eye(domain.dim), directions])
        directions /= np.abs(directions).sum(axis=1, keepdims=True)
    for size in (bound, bound / 2, bound / 1000):
        steps = size * directions[rng.integers(len(directions), size=900)]
        yield X - steps / 2, X + steps / 2


def are_neighbours(X, Y, protect="row", bound=math.inf, bound_norm="l2"):
    with np.errstate(over="ignore"):
        moved = np.linalg.norm(X - Y, ord=2 if bound_norm == "l2" else 1, axis=1)
    # Outside of the domain, floats are coarser.
    is_near = (moved <= bound + 1e-15 * np.abs(X).max(axis=1)).all()
    return is_near and (protect == "row" or ((X != Y).sum(axis=1) <= 1).all())


def attacked(domain, protection, noise, epsilon=1.0):
    """The largest share of the sensitivity that a pair of neighbours reaches: 1 at most."""
    rng = np.random.default_rng(5)
    shares = []
    for seed in range(2):
        model = ps.PrivateProjection(
            K,
            epsilon=epsilon,
            delta=1e-6,
            domain=domain,
            noise=noise,
            calibration="realised",
            random_state=seed,
            **protection,
        ).fit([domain.center_vector])
        pairs = neighbouring_entries if model.protect == "element" else neighbouring_rows
        for X, Y in pairs(model, domain, rng):
            assert are_neighbours(X, Y, **protection)
            shares.append(share_of_sensitivity(model, X, Y))
    return max(shares)


def named(choices):
    return "-".join(map(str, choices.values())) or "row"


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("protection", PROTECTIONS, ids=named)
@pytest.mark.parametrize("domain", [ROUND, CUBE, UNEVEN], ids=["ball", "cube", "uneven"])
def test_no_neighbour_moves_the_integers_by_more_than_the_noise_hides(domain, protection, noise):
    # That the attack is one: it comes near what is hidden, or a good part of the way where
    # rounding is most of it. (Rounding all coordinates the worst way takes more luck.)
    least = 0.15 if protection.get("bound") == TINY else 0.7
    assert least < attacked(domain, protection, noise) <= 1


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("protection", PROTECTIONS[:5], ids=named)
def test_dividing_integers_for_large_scales_is_accounted_for(protection, noise):
    # At this epsilon scales would exceed 2^36: integers are divided and rounded down.
    assert 0.9 < attacked(ROUND, protection, noise, epsilon=1e-4) <= 1


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("protection", PROTECTIONS[:5], ids=named)
def test_a_planted_sensitivity_that_is_one_percent_short_is_caught(protection, noise, monkeypatch):
    l1, l2_squared = Change.l1, Change.l2_squared
    seams.set(monkeypatch, "matrix.Change.l1", lambda self, p: int(0.99 * l1(self, p)))
    seams.set(
        monkeypatch, "matrix.Change.l2_squared", lambda self, p: int(0.98 * l2_squared(self, p))
    )
    assert attacked(ROUND, protection, noise) > 1


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_planted_change_without_rounding_is_caught(noise, monkeypatch):
    def unrounded(self):
        radius = math.ceil(self.bound * self.units_per_length)
        return Change("l2", 2 * self.quantiser().limits, radius)

    seams.set(monkeypatch, "matrix.Protection.change", unrounded)
    assert attacked(CUBE, {"bound": TINY}, noise) > 1


@pytest.mark.parametrize("protection", PROTECTIONS[:5], ids=named)
def test_a_record_moves_its_own_row_only(protection):
    X = np.random.default_rng(6).normal(size=(5000, 300))  # two blocks
    Y = X.copy()
    Y[1234] = 1e9
    model = estimator(random_state=0, n_threads=1, **protection).fit(X)
    with _insecure_sampler(lambda values, law: (values.copy(), law.scale)):
        before, after = model.transform(X), model.transform(Y)
    assert np.flatnonzero((before != after).any(axis=1)).tolist() == [1234]


@pytest.mark.parametrize("with_schema", [False, True])
def test_the_number_of_released_rows_does_not_depend_on_a_record_of_a_sheet(tmp_path, with_schema):
    """A sheet does not store empty rows at its end, and the number of rows is public."""
    rows = [["a", "b"], *([[0.1, 0.2]] * 4)]
    write_workbook(tmp_path / "full.xlsx", {"s": rows})
    write_workbook(tmp_path / "cut.xlsx", {"s": [*rows[:-1], [None, None]]})
    domain = ps.Box(-1, 1, dim=2)
    if with_schema:
        domain = ps.Schema([ps.Number("a", -1, 1), ps.Number("b", -1, 1)], missing="center")
    facts = {"epsilon": 4.0, "delta": 1e-6, "domain": domain, "random_state": 0}
    if not with_schema:
        facts["missing"] = "center"
    for name in ("full.xlsx", "cut.xlsx"):
        with pytest.raises(ps.TableError, match=r"n_records"):
            ps.PrivateProjection(2, **facts).fit(ps.Table(tmp_path / name, columns=["a", "b"]))
        table = ps.Table(tmp_path / name, columns=["a", "b"], n_records=4)
        projection = ps.PrivateProjection(2, **facts)
        if with_schema:
            with pytest.raises(ps.TableError, match=r"\.csv"):
                projection.fit_transform(table)
        else:
            assert projection.fit_transform(table).shape == (4, 2)
            assert projection.transform(table).shape == (4, 2)


def test_refused_records_are_counted(tmp_path):
    """Each refusal says something about a record; estimators of models count theirs as well."""
    book = ps.Ledger.create(tmp_path / "budget.ledger")
    book.add("rows", epsilon=100.0, delta=1e-3, neighbours="replace")
    projection = ps.PrivateProjection(
        2, epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1), ledger=(book.path, "rows")
    )
    missing = np.array([[0.0, np.nan], [0.1, 0.2]])
    with pytest.warns(ps.PrivsketchWarning, match="refus"), pytest.raises(ps.RecordError):
        projection.fit(missing)
    assert book.data_set("rows").n_refusals == 1
    projection.fit(np.zeros((5, 2)))
    with pytest.warns(ps.PrivsketchWarning, match="refus"), pytest.raises(ps.RecordError):
        projection.transform(missing)
    assert book.data_set("rows").n_refusals == 2
