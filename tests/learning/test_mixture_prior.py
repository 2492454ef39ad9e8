"""Variances that a sketch does not tell from zero, and mixtures of a shape that does not fit."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import privsketch as ps
from privsketch.learning import Gaussians, logarithms, moved
from privsketch.learning.mixture import fit_whole, hierarchy, make_coordinates, make_prior
from tests import seams
from tests.chance import fixed_noise  # noqa: F401

pytestmark = pytest.mark.usefixtures("fixed_noise")


def mixture(kind, dim=3, size=2, seed=0):
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.normal(size=(size, dim, dim)))[0]
    matrices = turns * rng.uniform(0.3, 1.5, (size, 1, dim)) @ turns.transpose(0, 2, 1)
    covariances = {"full": matrices, "tied": matrices[:1]}.get(
        kind, rng.uniform(0.3, 1.5, (size, dim if kind == "diag" else 1))
    )
    return Gaussians(np.full(size, 0.5), rng.normal(size=(size, dim)), covariances, kind)


def one(dim=3, seed=1):
    factor = np.random.default_rng(seed).normal(size=(dim, dim))
    covariance = factor @ factor.T + np.eye(dim)
    return Gaussians(np.ones(1), np.full((1, dim), 0.2), covariance[None], "full")


def slope(prior, gaussians, variable, limits, step=1e-5):
    size, dim = gaussians.means.shape
    n = size * (dim + 1) + logarithms(gaussians).size
    change = step * np.eye(n)[variable]
    ends = (prior.penalty(moved(gaussians, sign * change, limits)) for sign in (1, -1))
    return (next(ends) - next(ends)) / (2 * step)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_slopes_of_the_prior_are_those_of_its_penalty(kind):
    from privsketch.learning import make_limits

    gaussians = mixture(kind)
    limits = make_limits(np.eye(3), np.full(3, -9.0), np.full(3, 9.0))
    prior = make_prior(gaussians, one())
    size, dim = gaussians.means.shape
    n = size * (dim + 1) + logarithms(gaussians).size
    information, pull = np.zeros((n, n)), np.zeros(n)
    prior.add_to(information, pull, gaussians)
    expected = [slope(prior, gaussians, i, limits) for i in range(size, n)]
    assert 2 * pull[size:] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert np.linalg.eigvalsh(information[size:, size:]).min() > 0


def test_the_power_of_a_determinant_makes_a_mode_the_mean_of_a_posterior():
    """Oracle: the posterior mean of a covariance under Jeffreys' prior is S / (n - d - 1)."""
    n, dim = 40, 3
    prior = make_prior(one(dim))
    values = np.linspace(0.5, 2.0, 20_001) / n
    logs = dim * np.log(values)  # of the determinant of v S, up to that of S
    # The likelihood of the scatter S at v S is |v S|^(-n/2) exp(-tr(S (v S)^-1) / 2).
    likelihood = -n / 2 * logs - dim / (2 * values)
    best = values[np.argmax(likelihood + prior.power * logs)]
    assert best == pytest.approx(1 / (n - dim - 1), rel=1e-3)


def test_without_a_signal_components_are_like_all_records():
    whole = one()
    for kind in ("full", "diag", "spherical"):
        like = mixture(kind)
        covariances = {
            "full": np.repeat(whole.covariances, 2, axis=0),
            "diag": np.tile(np.diag(whole.covariances[0]), (2, 1)),
            "spherical": np.full((2, 1), np.diag(whole.covariances[0]).mean()),
        }[kind]
        mode = Gaussians(like.weights, np.repeat(whole.means, 2, axis=0), covariances, kind)
        n = 2 * 4 + logarithms(mode).size
        pull = np.zeros(n)
        make_prior(mode, whole).add_to(np.zeros((n, n)), pull, mode)
        assert pull == pytest.approx(np.zeros(n), abs=1e-9)


@pytest.mark.parametrize(("within", "across"), [(0.01, 1.0), (1.0, 0.01), (0.2, 0.2)])
def test_variances_between_components_and_between_entries_are_told_apart(within, across):
    rng = np.random.default_rng(3)
    size, n = 5, 200
    means = 2 + np.sqrt(across) * rng.standard_normal(n)
    values = means + np.sqrt(within) * rng.standard_normal((size, n))
    errors = np.diag(rng.uniform(0.01, 0.1, size * n))
    values = values.ravel() + np.sqrt(np.diag(errors)) * rng.standard_normal(size * n)
    law = hierarchy(values, errors, size, has_mean=True)
    spectrum = np.linalg.eigvalsh(np.linalg.inv(law.precision))
    # Deviations of the estimates: at most 4 and 16 % of the larger variance.
    largest = max(within, across)
    assert law.mean == pytest.approx(2.0, abs=6 * np.sqrt(largest / n))
    assert spectrum[0] == pytest.approx(within, abs=0.24 * largest)
    assert (spectrum[-1] - spectrum[0]) / size == pytest.approx(across, abs=0.7 * largest)


def thin_records(n, rng, jitter):
    """Three clusters in three columns, and two columns that nearly repeat the first two."""
    centers = np.array([[-0.5, 0.4, 0.1], [0.4, -0.3, 0.5], [0.1, 0.1, -0.6]])
    records = centers[rng.integers(3, size=n)] + 0.12 * rng.standard_normal((n, 3))
    return np.hstack([records, records[:, :2] + jitter * rng.standard_normal((n, 2))])


def one_gaussian(records, fresh):
    return multivariate_normal(records.mean(axis=0), np.cov(records.T)).logpdf(fresh).mean()


def learned(records, k=3, kind="full", epsilon=1.0, delta=1e-6):
    design = ps.Design.plan(
        task="gaussian-mixture",
        n_components=k,
        covariance_type=kind,
        domain=ps.Box(-1, 1, dim=records.shape[1]),
        budget=ps.Budget(epsilon, delta),
        n_records=len(records),
        random_state=0,
    )
    return ps.learn_gaussian_mixture(ps.sketch(records, design), k, covariance_type=kind)


@pytest.mark.parametrize(
    ("jitter", "epsilon", "delta", "most"),
    # Nats lost to one Gaussian of the raw records. Two variances of nothing to resolve cost the
    # logarithm of how far below the resolution they lie: ln 10 each at a hundredth of the width.
    [(0.02, 1.0, 1e-6, 0.5), (0.02, 0.1, 1e-6, 3.0), (0.004, 1.0, 0.0, 5.0)],
)
def test_columns_that_nearly_repeat_others_cost_little(jitter, epsilon, delta, most):
    rng = np.random.default_rng(5)
    records, fresh = thin_records(20_000, rng, jitter), thin_records(5_000, rng, jitter)
    model = learned(records, epsilon=epsilon, delta=delta)
    assert one_gaussian(records, fresh) - model.score(fresh) < most


def test_without_a_prior_thin_components_collapse(monkeypatch):
    """A planted fault: what explains the sketch best loses many nats a record."""
    rng = np.random.default_rng(5)
    records, fresh = (
        0.3 * rng.standard_normal((n, 1)) + 0.01 * rng.standard_normal((n, 5))
        for n in (20_000, 5_000)
    )
    best = one_gaussian(records, fresh)
    assert best - learned(records, epsilon=0.1).score(fresh) < 1.0
    seams.set(monkeypatch, "decoder.make_prior", lambda like, _: make_prior(like, is_flat=True))
    seams.set(monkeypatch, "decoder.with_hierarchy", lambda prior, *_: prior)
    assert best - learned(records, epsilon=0.1).score(fresh) > 4.0


def test_the_gaussian_of_all_records_makes_them_round():
    from privsketch.learning import make_limits, make_sums, mixture_moments

    rng = np.random.default_rng(6)
    truth = one(4, seed=7)
    thin = truth.covariances[0] / 10
    thin[3] = thin[0] * 0.999
    thin[:, 3] = thin[:, 0] * 0.999
    thin[3, 3] = thin[0, 0]
    whole = Gaussians(truth.weights, truth.means, thin[None], "full")
    frequencies = rng.normal(size=(400, 4)) * rng.choice([0.5, 2, 8, 32], size=(400, 1))
    sums = make_sums(frequencies, mixture_moments(frequencies, whole), "full")
    limits = make_limits(frequencies, np.full(4, -9.0), np.full(4, 9.0))
    start = Gaussians(np.ones(1), np.zeros((1, 4)), 0.5 * np.eye(4)[None], "full")
    found = fit_whole(sums, start, limits, 1e-4)
    factor = make_coordinates(found, "full").factor
    inverse = np.linalg.inv(factor)
    assert inverse @ thin @ inverse.T == pytest.approx(np.eye(4), abs=0.02)


def test_a_shape_that_does_not_fit_is_the_most_likely_of_its_kind():
    """Axis-parallel components of correlated columns, against scikit-learn without noise."""
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(8)
    records, fresh = thin_records(20_000, rng, 0.02), thin_records(5_000, rng, 0.02)
    plain = GaussianMixture(3, covariance_type="diag", n_init=2, random_state=0).fit(records)
    model = learned(records, kind="diag")
    assert plain.score(fresh) - model.score(fresh) < 0.1
    assert any("misfit" in text for text in model.concerns)
