"""Gaussian mixtures from a sketch: every formula against an oracle, every answer honest."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import privsketch as ps
from privsketch import GaussianMixtureModel, learn_gaussian_mixture
from privsketch.learning import (
    Gaussians,
    between,
    from_variances,
    jacobian,
    logarithms,
    make_distortion,
    make_limits,
    make_sums,
    mixture_moments,
    moved,
    objective,
    pack,
    remove_cheapest,
    sampling_covariance,
    sampling_variances,
    unpack,
)
from privsketch.learning.mixture import features, merge_pairs
from tests import seams
from tests.chance import fixed_noise

pytestmark = pytest.mark.usefixtures("fixed_noise")
KINDS = ("full", "tied", "diag", "spherical")
ALARM = 6.0  # standard deviations; with at most 500 comparisons one false alarm in a million


def random_gaussians(kind, size=3, dim=3, seed=0):
    """Well-conditioned components of any kind, weights that sum to 1."""
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.normal(size=(size, dim, dim)))[0]
    matrices = turns * rng.uniform(0.3, 1.5, (size, 1, dim)) @ turns.transpose(0, 2, 1)
    covariances = {
        "full": matrices,
        "tied": matrices[:1],
        "diag": rng.uniform(0.3, 1.5, (size, dim)),
        "spherical": rng.uniform(0.3, 1.5, (size, 1)),
    }[kind]
    weights = rng.uniform(1, 4, size)
    return Gaussians(weights / weights.sum(), rng.normal(size=(size, dim)), covariances, kind)


def draw(gaussians, n, rng):
    label = rng.choice(gaussians.size, size=n, p=gaussians.weights / gaussians.weights.sum())
    factors = np.linalg.cholesky(gaussians.matrices())
    normal = rng.normal(size=(n, gaussians.dim))
    return gaussians.means[label] + np.einsum("nab,nb->na", factors[label], normal)


def waves(records, frequencies):
    phases = records @ frequencies.T
    return np.concatenate([np.cos(phases), np.sin(phases)], axis=1)


def differences(function, x, step=1e-5):
    """Central differences, one column per variable."""
    columns = [
        (function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))
    ]
    return np.stack(columns, axis=-1)


# The mathematics


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_slope_of_the_cost(kind):
    rng = np.random.default_rng(1)
    frequencies = rng.normal(size=(30, 3))
    target = mixture_moments(frequencies, random_gaussians(kind, seed=2))
    sums = make_sums(frequencies, target, kind)
    start = random_gaussians(kind)
    limits = make_limits(frequencies, np.full(3, -5.0), np.full(3, 5.0))
    x = pack(start, limits)
    slopes = differences(lambda v: objective(v, sums, start, limits)[0], x)
    assert objective(x, sums, start, limits)[1] == pytest.approx(slopes, rel=1e-6, abs=1e-8)
    again = unpack(x, start, limits)
    assert again.covariances == pytest.approx(start.covariances, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_jacobian_is_the_slope_of_the_moments(kind):
    frequencies = np.random.default_rng(1).normal(size=(20, 3))
    start = random_gaussians(kind)
    sums = make_sums(frequencies, mixture_moments(frequencies, start), kind)
    limits = make_limits(frequencies, np.full(3, -5.0), np.full(3, 5.0))

    def model(step):
        at = moved(start, step, limits)
        return at.weights @ features(sums, at)

    n_variables = start.size * (start.dim + 1) + logarithms(start).size
    slopes = differences(model, np.zeros(n_variables))
    assert jacobian(sums, start) == pytest.approx(slopes, rel=1e-6, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_their_covariance_are_those_of_a_sample(kind):
    """Means and variances along random directions; a wrong mixture must be noticed."""
    rng = np.random.default_rng(3)
    gaussians, n = random_gaussians(kind), 100_000
    frequencies = rng.normal(size=(25, 3))
    sample = waves(draw(gaussians, n, rng), frequencies)
    directions = rng.normal(size=(50, 30))
    projected = sample @ directions

    def worst(mixture, covariance):
        mean = mixture_moments(frequencies, mixture)
        expected = np.concatenate([mean.real, mean.imag]) @ directions
        variance = np.einsum("jd,jl,ld->d", directions, covariance, directions)
        off_mean = np.abs(projected.mean(axis=0) - expected) / np.sqrt(variance / n)
        fourth = ((projected - projected.mean(axis=0)) ** 4).mean(axis=0)
        seen = projected.var(axis=0)
        error = np.sqrt((fourth - seen**2) / n)
        return off_mean.max(), (np.abs(seen - variance) / error).max()

    covariance = sampling_covariance(frequencies, gaussians)
    assert np.diag(covariance) == pytest.approx(sampling_variances(frequencies, gaussians))
    assert max(worst(gaussians, covariance)) < ALARM
    wider = replace(gaussians, covariances=1.1 * gaussians.covariances)
    assert min(worst(wider, sampling_covariance(frequencies, wider))) > ALARM
    turned = covariance.copy()
    turned[:25, 25:] *= -1
    turned[25:, :25] *= -1
    assert worst(gaussians, turned)[1] > ALARM


@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_merging_keeps_the_first_two_moments(kind):
    two = random_gaussians(kind, size=2, seed=4)
    one = merge_pairs(two, np.array([[0, 1]]))

    def second(gaussians):
        squares = gaussians.matrices() + np.einsum("ka,kb->kab", gaussians.means, gaussians.means)
        return np.tensordot(gaussians.weights, squares, 1)

    assert one.weights.sum() == pytest.approx(two.weights.sum())
    assert one.weights @ one.means == pytest.approx(two.weights @ two.means)
    difference = second(one) - second(two)
    if kind == "full":
        assert difference == pytest.approx(np.zeros((3, 3)), abs=1e-12)
    elif kind == "diag":
        assert np.diag(difference) == pytest.approx(np.zeros(3), abs=1e-12)
    assert np.trace(difference) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_pruning_removes_what_is_not_needed(kind):
    frequencies = np.random.default_rng(5).normal(size=(60, 3))
    truth = random_gaussians(kind)
    sums = make_sums(frequencies, mixture_moments(frequencies, truth), kind)
    shared = kind == "tied"
    rows = np.array([0, 1, 2, 2])
    twins = Gaussians(
        truth.weights[rows] * [1, 1, 0.5, 0.5],
        truth.means[rows] + [[0], [0], [0.01], [-0.01]],
        truth.covariances if shared else truth.covariances[rows],
        kind,
    )
    pruned = remove_cheapest(sums, twins)
    assert pruned.size == 3
    assert np.sort(pruned.weights) == pytest.approx(np.sort(truth.weights), abs=0.01)


def test_pruning_can_take_another_way():
    frequencies = np.random.default_rng(5).normal(size=(60, 1))
    two_pairs = Gaussians(
        np.full(4, 0.25), np.array([[-2.0], [-1.9], [2.0], [2.4]]), np.full((4, 1), 0.5), "diag"
    )
    sums = make_sums(frequencies, mixture_moments(frequencies, two_pairs), "diag")
    first, second = (remove_cheapest(sums, two_pairs, rank) for rank in (0, 1))
    assert (first.means > 0).sum() == 2  # the closer pair goes first
    assert (second.means > 0).sum() == 1


def test_axis_variances_in_every_form():
    weights, means = np.array([1.0, 3.0]), np.zeros((2, 2))
    variances = np.array([[1.0, 3.0], [2.0, 2.0]])
    forms = {kind: from_variances(weights, means, variances, kind) for kind in KINDS}
    assert forms["diag"].covariances.tolist() == variances.tolist()
    assert forms["spherical"].covariances.tolist() == [[2.0], [2.0]]
    assert forms["full"].covariances[0].tolist() == [[1.0, 0.0], [0.0, 3.0]]
    assert forms["tied"].covariances[0].tolist() == [[1.75, 0.0], [0.0, 2.25]]


@pytest.mark.slow
def test_the_edge_and_the_signs_are_what_a_sample_shows():
    """Up to the error of 200,000 records, and of the draws behind the correction."""
    rng = np.random.default_rng(6)
    gaussians = replace(random_gaussians("full", dim=2), means=np.array([[1.0, 0], [0, 0], [0, 1]]))
    frequencies = rng.normal(size=(40, 2))
    dither = rng.uniform(0, 2 * np.pi, 40)
    n = 200_000
    records = draw(gaussians, n, rng)
    clipped = np.clip(records, -1.2, 1.2)
    plain = np.concatenate(_parts(mixture_moments(frequencies, gaussians)))

    def project(points):
        return np.clip(points, -1.2, 1.2)

    edge = make_distortion(project, 2, None, rng)
    shift, share = edge.shift(frequencies, gaussians)
    assert share == pytest.approx((records != clipped).any(axis=1).mean(), abs=0.01)
    seen = waves(clipped, frequencies).mean(axis=0) - plain
    assert shift == pytest.approx(seen, abs=0.02)
    assert np.abs(seen).max() > 0.1  # there is something to see

    signs = make_distortion(lambda points: points, 2, dither, rng)
    phases = records @ frequencies.T + dither
    sums = np.sign(np.cos(phases)) + 1j * np.sign(np.sin(phases))
    seen = np.pi / 4 * sums.mean(axis=0) * np.exp(-1j * dither)
    shift, _ = signs.shift(frequencies, gaussians)
    assert shift == pytest.approx(np.concatenate(_parts(seen)) - plain, abs=0.015)
    assert np.abs(shift).max() > 0.05


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", [ps.Box(-1.2, 1.2, dim=2), ps.Ball(dim=2, radius=1.3)])
def test_the_slopes_of_the_edge(kind, domain, monkeypatch):
    seams.set(monkeypatch, "search.MAX_OUTSIDE_DRAWS", 10**6)  # the same draws on either side
    seams.set(monkeypatch, "search.DRAWN_NUMBERS", 8_000)
    rng = np.random.default_rng(18)
    frequencies = rng.normal(size=(15, 2))
    start = random_gaussians(kind, dim=2)
    limits = make_limits(frequencies, np.full(2, -5.0), np.full(2, 5.0))
    edge = make_distortion(domain.project, 2, None, rng)
    n_variables = start.size * (start.dim + 1) + logarithms(start).size
    slopes = differences(
        lambda step: edge.shift(frequencies, moved(start, step, limits))[0],
        np.zeros(n_variables),
        1e-3,  # phases are in single precision
    )
    found = edge.slopes(frequencies, start)
    # Draws move with the Cholesky factor there and with the square root here: the same on
    # average, up to the error of the draws.
    assert found == pytest.approx(slopes, abs=0.02)
    assert np.abs(slopes).max() > 0.1


def _parts(values):
    return [values.real, values.imag]


@pytest.mark.slow
def test_variance_between_components_is_told_from_that_of_errors():
    rng = np.random.default_rng(7)
    errors = np.diag(rng.uniform(0.2, 0.6, 400))
    values = 1.0 + 0.5 * rng.normal(size=400) + np.sqrt(np.diag(errors)) * rng.normal(size=400)
    mean, variance = between(values, errors, has_mean=True)
    # Deviations of these estimates: about 0.04 and 0.05.
    assert mean == pytest.approx(1.0, abs=0.24)
    assert variance == pytest.approx(0.25, abs=0.24)
    alike = 1.0 + np.sqrt(np.diag(errors)) * rng.normal(size=400)
    assert between(alike, errors, has_mean=True)[1] < 0.12
    assert between(values, errors / 1e6, has_mean=True)[1] > 0.4


# From records to mixtures

TRUTH_WEIGHTS = np.array([0.5, 0.3, 0.2])
TRUTH_MEANS = np.array([[-3.0, 0.0], [3.0, 1.0], [0.0, 4.0]])
TRUTH_COVARIANCES = {
    "full": np.array([[[1.0, 0.6], [0.6, 1.0]], [[0.5, -0.3], [-0.3, 1.0]], np.eye(2) * 0.4]),
    "tied": np.array([[[1.0, 0.4], [0.4, 0.6]]]),
    "diag": np.array([[1.0, 0.4], [0.3, 0.8], [0.5, 0.5]]),
    "spherical": np.array([[0.9], [0.6], [0.3]]),
}


def truth(kind):
    return Gaussians(TRUTH_WEIGHTS, TRUTH_MEANS, TRUTH_COVARIANCES[kind], kind)


def plan(k=3, domain=None, **overrides):
    settings = {"n_components": k, "budget": ps.Budget(1.0, 1e-6), "random_state": 3}
    settings |= {"domain": domain or ps.Box(-8, 8, dim=2), "n_features": 100}
    return ps.Design.plan(**{**settings, **overrides})


@pytest.fixture(scope="module")
def learned():
    """One model of each kind, with its records."""
    found = {}
    for kind in KINDS:
        X = draw(truth(kind), 40_000, np.random.default_rng(8))
        with fixed_noise():
            sketch = ps.sketch(X, plan())
        found[kind] = (X, sketch, learn_gaussian_mixture(sketch, 3, covariance_type=kind))
    return found


def loss(model, gaussians, seed=9, n=20_000):
    """Log-likelihood per fresh record that the model lacks."""
    fresh = draw(gaussians, n, np.random.default_rng(seed))
    parts = zip(gaussians.means, gaussians.matrices(), strict=True)
    densities = np.stack([multivariate_normal(mean, matrix).pdf(fresh) for mean, matrix in parts])
    return float(np.mean(np.log(gaussians.weights @ densities))) - model.score(fresh)


@pytest.mark.parametrize("kind", KINDS)
def test_close_to_the_truth(learned, kind):
    # Ten times the loss seen over many seeds.
    _, _, model = learned[kind]
    assert loss(model, truth(kind)) < 0.005
    assert np.sort(model.weights) == pytest.approx([0.2, 0.3, 0.5], abs=0.02)
    assert model.n_records == pytest.approx(40_000, rel=0.02)
    assert 0.6 < model.residual / model.expected_residual < 1.5
    assert model.concerns == ()
    shapes = {"full": (3, 2, 2), "tied": (2, 2), "diag": (3, 2), "spherical": (3,)}
    assert model.covariances.shape == shapes[kind]


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.parametrize(
    "overrides",
    [
        {"budget": ps.Budget(1.0)},
        {"budget": ps.Budget(2.0), "noise": "laplace"},
        {"budget": ps.Budget(1.0, 1e-6, "replace")},
        {"feature_map": "one-bit"},
        {"count": "omitted"},
        {"n_features": 40},
    ],
)
def test_other_designs(overrides):
    X = draw(truth("full"), 40_000, np.random.default_rng(10))
    model = learn_gaussian_mixture(ps.sketch(X, plan(**overrides)), 3)
    assert loss(model, truth("full")) < 0.03


@pytest.mark.slow
@pytest.mark.audit  # of accuracy, in 4 seconds
def test_records_at_the_edge_do_not_pull_the_mixture_in():
    gaussians = truth("full")
    X = draw(gaussians, 60_000, np.random.default_rng(11))
    for domain in (ps.Box(-4, 4.5, dim=2), ps.Ball(dim=2, radius=4.5)):
        moved_records = np.abs(domain.project(X) - X).max(axis=1) > 0
        assert moved_records.mean() > 0.05
        model = learn_gaussian_mixture(ps.sketch(X, plan(domain=domain)), 3)
        assert loss(model, gaussians) < 0.03
    narrow = learn_gaussian_mixture(ps.sketch(X, plan(domain=ps.Box(-3, 3, dim=2))), 3)
    assert any("narrow" in text for text in narrow.concerns)


def test_merged_sites_learn_like_one():
    X = draw(truth("full"), 40_000, np.random.default_rng(12))
    parts = np.array_split(X[np.argsort(X[:, 0])], 4)
    design = plan()
    sketches = [ps.sketch(part, design, source=f"site-{i}") for i, part in enumerate(parts)]
    model = learn_gaussian_mixture(ps.merge(sketches))
    assert loss(model, truth("full")) < 0.01
    assert model.n_components == 3
    assert model.receipt.epsilon == 1.0


@pytest.mark.slow
def test_errors_of_the_means_are_as_large_as_stated():
    """60 squares of standard normal numbers: their mean deviates by 0.18; 0.3 and 2 are far."""
    squares = []
    for seed in range(10):
        X = draw(truth("diag"), 20_000, np.random.default_rng(seed))
        design = plan(budget=ps.Budget(0.5, 1e-6), random_state=seed)
        model = learn_gaussian_mixture(ps.sketch(X, design), 3, covariance_type="diag")
        order = np.argmin(np.square(model.means[None] - TRUTH_MEANS[:, None]).sum(axis=2), axis=1)
        squares.append(
            ((model.means - TRUTH_MEANS[np.argsort(order)]) / model.standard_errors) ** 2
        )
    assert 0.3 < np.mean(squares) < 2.0


def test_large_sketches_go_without_the_full_covariance(monkeypatch):
    X = draw(truth("diag"), 40_000, np.random.default_rng(13))
    sketch = ps.sketch(X, plan())
    exact = learn_gaussian_mixture(sketch, 3, covariance_type="diag")
    seams.set(monkeypatch, "weighting.MAX_DENSE_FEATURES", 50)
    model = learn_gaussian_mixture(sketch, 3, covariance_type="diag")
    assert loss(model, truth("diag")) < 0.01
    ratio = model.standard_errors / exact.standard_errors
    assert ratio.min() > 0.7  # plain least squares knows the means no better
    assert ratio.max() < 3


def test_vague_covariances_borrow_from_each_other():
    # With noise of this size variances alone are off by a factor of two and more.
    gaussians = Gaussians(np.full(4, 0.25), np.eye(4) * 5, np.ones((4, 4)), "diag")
    X = draw(gaussians, 2_000, np.random.default_rng(14))
    design = plan(4, ps.Box(-8, 8, dim=4), n_features=150)
    model = learn_gaussian_mixture(ps.sketch(X, design), 4, covariance_type="diag")
    assert np.log(model.covariances).std() < 0.35


# Strange tables


@pytest.mark.mostly_slow(quick_every=18)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "X", [np.empty((0, 2)), np.zeros((1, 2)), np.full((5_000, 2), 3.999), np.zeros((5_000, 2))]
)
def test_strange_tables_give_a_proper_mixture(X, kind):
    sketch = ps.sketch(X, plan(domain=ps.Box(-4, 4, dim=2)))
    model = learn_gaussian_mixture(sketch, 3, covariance_type=kind)
    assert np.isfinite(model.means).all()
    assert np.isfinite(model.standard_errors).all()
    assert np.abs(model.means).max() <= 4
    assert model.weights.sum() == pytest.approx(1.0)
    assert (np.linalg.eigvalsh(model.covariance_matrices()) > 0).all()
    assert np.isfinite(model.score(np.zeros((3, 2))))


def test_identical_records_have_next_to_no_width():
    X = np.full((20_000, 2), 1.5)
    model = learn_gaussian_mixture(ps.sketch(X, plan(1)), 1)
    assert model.means[0] == pytest.approx([1.5, 1.5], abs=0.02)
    assert np.linalg.eigvalsh(model.covariances[0]).max() < 0.02


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("kind", KINDS)
def test_one_column_and_one_component(kind):
    X = np.random.default_rng(15).normal(2.0, 0.7, (30_000, 1))
    design = plan(1, ps.Box(-8, 8, dim=1))
    model = learn_gaussian_mixture(ps.sketch(X, design), 1, covariance_type=kind)
    assert model.means[0, 0] == pytest.approx(2.0, abs=0.03)
    assert model.covariances.ravel() == pytest.approx([0.49], abs=0.03)
    two = learn_gaussian_mixture(ps.sketch(X, design), 2, covariance_type=kind)
    assert two.score(X) == pytest.approx(model.score(X), abs=0.01)


def test_more_components_than_clusters():
    X = draw(truth("diag"), 40_000, np.random.default_rng(16))
    model = learn_gaussian_mixture(ps.sketch(X, plan(6)), 6, covariance_type="diag")
    assert loss(model, truth("diag")) < 0.02


def test_misfit_is_told():
    rng = np.random.default_rng(17)
    angle = rng.uniform(0, 2 * np.pi, 40_000)
    ring = 4 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.2 * rng.normal(size=(40_000, 2))
    model = learn_gaussian_mixture(ps.sketch(ring, plan()), 2)
    assert model.residual > 3 * model.expected_residual
    assert any("misfit" in text for text in model.concerns)


@pytest.mark.slow
def test_a_fit_of_noise_raises_concerns():
    empty = learn_gaussian_mixture(ps.sketch(np.empty((0, 2)), plan()), 3)
    assert any("noise" in text for text in empty.concerns)
    assert "careful" in empty.describe()


# The model as a thing


def test_scores_are_those_of_the_density(learned):
    for kind in KINDS:
        X, _, model = learned[kind]
        rows = X[:200]
        parts = zip(model.means, model.covariance_matrices(), strict=True)
        densities = np.stack([multivariate_normal(m, s).pdf(rows) for m, s in parts], axis=1)
        joint = densities * model.weights
        assert model.score_samples(rows) == pytest.approx(np.log(joint.sum(axis=1)))
        proba = model.predict_proba(rows)
        assert proba == pytest.approx(joint / joint.sum(axis=1, keepdims=True))
        assert (model.predict(rows) == proba.argmax(axis=1)).all()
        assert model.score(rows) == pytest.approx(model.score_samples(rows).mean())


def test_synthetic_records_have_the_moments_of_the_mixture(learned):
    _, _, model = learned["full"]
    n = 200_000
    records, labels = model.sample(n, random_state=0)
    mean = model.weights @ model.means
    assert np.abs(records.mean(axis=0) - mean).max() < ALARM * records.std() / np.sqrt(n)
    for k in range(3):
        own = records[labels == k]
        assert len(own) / n == pytest.approx(model.weights[k], abs=ALARM * 0.5 / np.sqrt(n))
        assert np.cov(own.T) == pytest.approx(model.covariances[k], abs=0.05)
    again, _ = model.sample(5, random_state=1)
    assert (again == model.sample(5, random_state=1)[0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_models_survive_their_file(learned, kind, tmp_path):
    X, _, model = learned[kind]
    model = replace(model, columns=("a", "b"))
    model.save(tmp_path / "model.json")
    again = GaussianMixtureModel.load(tmp_path / "model.json")
    assert (again.covariances == model.covariances).all()
    assert (again.predict_proba(X[:50]) == model.predict_proba(X[:50])).all()
    assert again.receipt == model.receipt
    assert again.columns == ("a", "b")
    assert again.describe() == model.describe()
    for word in ("epsilon = 1", "delta = 1e-06", "add-remove", "one record"):
        assert word in again.describe()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("covariance_type", "diag"),
        ("covariance_type", ["full"]),
        ("covariances", [[[1.0, 2.0], [2.0, 1.0]]] * 3),
        ("covariances", [[[1.0, 0.5], [0.0, 1.0]]] * 3),
        ("weights", [0.5, 0.5]),
        ("weights", [2.0, -0.5, -0.5]),
        ("means", [[0.0, 0.0], [1.0, None], [2.0, 2.0]]),
        ("means", []),
        ("standard_errors", [[-1.0, 0.0]] * 3),
        ("expected_residual", 0.0),
        ("n_records", "many"),
        ("columns", ["only one"]),
        ("concerns", "none"),
        ("receipt", {}),
        ("design_fingerprint", 7),
    ],
)
def test_bad_files_are_refused(learned, tmp_path, field, value):
    from privsketch._base import document

    _, _, model = learned["full"]
    path = tmp_path / "model.json"
    model.save(path)
    content = json.loads(path.read_text())
    assert content["format"] == "privsketch-gaussian-mixture-model"
    content = {name: content[name] for name in GaussianMixtureModel.field_names()}
    path.write_bytes(document("gaussian-mixture-model", {**content, field: value}))
    with pytest.raises(ps.PrivsketchError):
        GaussianMixtureModel.load(path)
    del content[field]
    path.write_bytes(document("gaussian-mixture-model", content))
    with pytest.raises(ps.PrivsketchError, match="fields"):
        GaussianMixtureModel.load(path)


def test_altered_and_foreign_files_are_refused(learned, tmp_path):
    path = tmp_path / "model.json"
    learned["diag"][2].save(path)
    whole = path.read_text()
    path.write_text(whole.replace('"n_records": ', '"n_records": 1'))
    with pytest.raises(ps.PrivsketchError, match="altered"):
        GaussianMixtureModel.load(path)
    path.write_text(whole[:-40])
    with pytest.raises(ps.PrivsketchError, match="JSON"):
        GaussianMixtureModel.load(path)
    plan().save(path)
    with pytest.raises(ps.PrivsketchError, match="not a privsketch"):
        GaussianMixtureModel.load(path)


def test_learning_is_reproducible_from_public_seeds(learned):
    _, sketch, model = learned["full"]
    again = learn_gaussian_mixture(sketch, 3)
    assert (again.means == model.means).all()
    assert (again.covariances == model.covariances).all()
    other = learn_gaussian_mixture(sketch, 3, random_state=99)
    assert other.means == pytest.approx(model.means, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.0}, "n_components"),
        ({"n_components": 100}, "covariance_type='full' has 600 unknowns"),
        ({"covariance_type": "round"}, "covariance_type"),
        ({"covariance_type": ["full"]}, "covariance_type"),
        ({"n_init": 0}, "n_init"),
        ({"n_init": True}, "n_init"),
        ({"random_state": -3}, "random_state"),
    ],
)
def test_bad_arguments(learned, arguments, message):
    _, sketch, model = learned["full"]
    with pytest.raises(ps.PrivsketchError, match=message):
        learn_gaussian_mixture(sketch, **{"n_components": 2, **arguments})
    with pytest.raises(ps.PrivsketchError, match="Sketch"):
        learn_gaussian_mixture("all.sketch", 2)
    with pytest.raises(ps.PrivsketchError, match="columns"):
        model.predict(np.zeros((3, 5)))
    with pytest.raises(ps.PrivsketchError, match="numbers"):
        model.score([["a", "b"]])
    with pytest.raises(ps.PrivsketchError, match="n_samples"):
        model.sample(0)


def blobs(n=9000, shift=0.0, width=0.05):
    rng = np.random.default_rng(40)
    centers = np.array([[-0.5, -0.5], [0.5, -0.4], [0.1, 0.6]])
    return shift + centers[rng.integers(3, size=n)] + width * rng.normal(size=(n, 2))


@pytest.mark.parametrize("domain", [ps.Box(0, 2, dim=2), ps.Ball(2, 1.5, center=7.0)])
def test_a_domain_away_from_zero_cuts_nothing_off(domain):
    records = blobs(shift=float(domain.center_vector[0]))
    design = ps.Design.plan(
        task="gaussian-mixture",
        n_components=3,
        domain=domain,
        budget=ps.Budget(1.0, 1e-6),
        random_state=1,
    )
    model = ps.learn_gaussian_mixture(ps.sketch(records, design), 3)
    assert model.concerns == ()


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize(("n", "k", "width"), [(0, 2, 0.05), (9000, 2, 0.01), (1, 3, 0.05)])
def test_every_mixture_survives_its_file(tmp_path, covariance_type, n, k, width):
    design = ps.Design.plan(
        task="gaussian-mixture",
        n_components=k,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(1.0, 1e-6),
        random_state=1,
    )
    sketch = ps.sketch(blobs(width=width)[:n], design)
    model = ps.learn_gaussian_mixture(sketch, k, covariance_type=covariance_type)
    model.save(tmp_path / "model.json")
    again = ps.GaussianMixtureModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.covariances, model.covariances)
    # Nothing is known worse than that it lies in the domain.
    assert np.all(model.standard_errors <= 1 / np.sqrt(3) + 1e-12)


@pytest.mark.slow
def test_few_far_clusters_are_all_found_by_the_mixture_too():
    # One Gaussian fitted to such a cloud may settle on one of the clusters.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centers = 0.8 * rng.choice([-1.0, 1.0], size=(2, 5))
        centers[1] = -centers[0]
        records = centers[rng.integers(2, size=20_000)] + 0.03 * rng.normal(size=(20_000, 5))
        design = ps.Design.plan(
            task="gaussian-mixture",
            n_components=3,
            covariance_type="diag",
            domain=ps.Box(-1, 1, dim=5),
            budget=ps.Budget(1.0, 1e-6),
            random_state=seed,
        )
        model = ps.learn_gaussian_mixture(ps.sketch(records, design), 3, covariance_type="diag")
        assert model.residual < 1.5 * model.expected_residual
        assert model.n_records == pytest.approx(20_000, rel=0.02)


def test_too_few_components_do_not_pass_unnoticed():
    design = ps.Design.plan(
        n_components=3, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0, 1e-6), random_state=1
    )
    model = ps.learn_gaussian_mixture(ps.sketch(blobs(), design), 1)
    assert any("misfit" in text for text in model.concerns)


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_with_missing_values_are_refused(value):
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0, 1e-6), random_state=1
    )
    sketch = ps.sketch(blobs(), design)
    rows = np.array([[0.0, value]])
    mixture, clusters = ps.learn_gaussian_mixture(sketch, 2), ps.learn_kmeans(sketch, 2)
    for ask in (mixture.predict, mixture.score_samples, mixture.predict_proba, clusters.predict):
        with pytest.raises(ps.PrivsketchError, match="missing or infinite"):
            ask(rows)
    with pytest.raises(ps.PrivsketchError, match="no rows"):
        mixture.score(np.zeros((0, 2)))
    with pytest.raises(ps.PrivsketchError, match="random_state"):
        mixture.sample(3, "a")
