"""Residuals and errors that noise and sampling cause, against simulated releases."""

import numpy as np
import pytest

from privsketch.learning import Atoms, assess, make_target
from privsketch.learning import uncertainty as module
from privsketch.learning.problem import features
from privsketch.learning.refine import refine
from tests import seams

N_RECORDS, NOISE = 4000, 40.0
TRUTH = Atoms(
    np.array([0.5, 0.3, 0.2]) * N_RECORDS,
    np.array([[-2.0, 0.0], [2.0, 1.0], [0.0, -3.0]]),
    np.array([[0.5]]),
)
FREQUENCIES = np.random.default_rng(1).standard_normal((60, 2)) * 1.2


def simulated_fit(rng, noise):
    """Fresh records of the truth, their noisy sketch, and the fit to it."""
    label = rng.choice(3, N_RECORDS, p=TRUTH.weights / N_RECORDS)
    spread = np.sqrt(TRUTH.variances[0, 0]) * rng.standard_normal((N_RECORDS, 2))
    sums = np.exp(1j * (TRUTH.centers[label] + spread) @ FREQUENCIES.T).sum(axis=0)
    moments = sums + noise * (rng.standard_normal(60) + 1j * rng.standard_normal(60))
    target = make_target(FREQUENCIES, moments / N_RECORDS, low=-10.0, high=10.0)
    start = TRUTH.scaled(1 / N_RECORDS)
    atoms, value = refine(target, start, n_iterations=200)
    return atoms, value


def uncertainty(noise, seed=0):
    target = make_target(FREQUENCIES, np.zeros(60, dtype=complex))
    return assess(
        target,
        TRUTH.scaled(1 / N_RECORDS),
        noise_variance=(noise / N_RECORDS) ** 2,
        n_records=N_RECORDS,
        rng=np.random.default_rng(seed),
    )


def center_errors(spread):
    """Standard errors of the coordinates of all centers."""
    return spread.errors(np.zeros((3, 2, 3)), np.eye(3))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, NOISE, 20 * NOISE])
def test_residuals_and_errors_are_those_of_simulated_releases(noise):
    # 60 releases know a mean of residuals to spread / sqrt(60) and a standard deviation to
    # 9 %; five of these are a false alarm of about 1e-6 each. Twice the noise, or sampling
    # left out, is outside by far.
    n_releases = 60
    rng = np.random.default_rng(2)
    fits = [simulated_fit(rng, noise) for _ in range(n_releases)]
    told = uncertainty(noise)
    values = np.array([value for _, value in fits])
    # A tenth of the spread is allowed for samples in place of integrals.
    margin = (5 / np.sqrt(n_releases) + 0.25) * told.cost_spread
    assert abs(values.mean() - told.expected_cost) < margin
    assert 0.5 < values.std() / told.cost_spread < 1.6
    centers = np.array([atoms.centers for atoms, _ in fits])
    ratio = np.sqrt(np.mean((centers - TRUTH.centers) ** 2, axis=0)) / center_errors(told)
    assert 0.85 < np.sqrt(np.mean(ratio**2)) < 1.15
    assert np.all((ratio > 0.5) & (ratio < 1.6))


def test_leaving_sampling_or_noise_out_would_be_noticed():
    both, noise_only, neither = uncertainty(NOISE), uncertainty(20 * NOISE), uncertainty(0.0)
    assert neither.expected_cost < 0.7 * both.expected_cost
    assert noise_only.expected_cost > 50 * both.expected_cost
    # Noise of this size is a fifth of the spread of the sums: a few per cent of the errors.
    assert np.all(center_errors(neither) < 0.97 * center_errors(both))
    assert np.all(center_errors(noise_only) > 5 * center_errors(both))


def test_errors_of_weights_scale_with_their_unit_and_centers_do_not():
    told = uncertainty(NOISE)
    in_records = told.scaled(N_RECORDS)
    weights, nothing = np.repeat(np.eye(3)[:, None], 2, axis=1), np.zeros((3, 3))
    by_weight = told.errors(weights, nothing)
    np.testing.assert_allclose(in_records.errors(weights, nothing), N_RECORDS * by_weight)
    np.testing.assert_allclose(center_errors(in_records), center_errors(told))
    assert in_records.excess(in_records.expected_cost + in_records.cost_spread) == pytest.approx(1)


def test_no_noise_and_no_records_is_explained_by_no_residual_only():
    target = make_target(FREQUENCIES, np.zeros(60, dtype=complex))
    empty = Atoms(np.zeros(2), np.zeros((2, 2)), np.array([[0.1]]))
    told = assess(target, empty, noise_variance=0.0, n_records=0.0, rng=np.random.default_rng(0))
    assert told.excess(0.0) <= 0
    assert told.excess(1e-9) == np.inf
    assert told.errors(np.zeros((1, 2, 2)), np.zeros((1, 2))) is None


def test_expected_cost_of_one_wide_atom_is_the_closed_form():
    # With nothing fitted but the weight, H projects on one vector u: the expected cost is
    # n (m - |phi|^2 - Var(u'f)), and for u = phi / |phi| the variance is a double sum.
    frequencies = np.random.default_rng(3).standard_normal((8, 1))
    target = make_target(frequencies, np.zeros(8, dtype=complex))
    atoms = Atoms(np.ones(1), np.zeros((1, 1)), np.array([[1.0]]))
    phi = features(target, atoms.centers, atoms.variances)[0]

    def characteristic(w):
        return np.exp(-(w**2) / 2)

    w = frequencies[:, 0]
    sums, differences = w[:, None] + w, w[:, None] - w
    cosines = (characteristic(sums) + characteristic(differences)) / 2
    sines = (characteristic(differences) - characteristic(sums)) / 2
    second = np.block([[cosines, np.zeros((8, 8))], [np.zeros((8, 8)), sines]])
    covariance = second - np.outer(phi, phi)
    # The center and the variance are fitted too.
    by_center = np.concatenate([np.zeros(8), w * characteristic(w)])
    by_variance = phi * np.concatenate([w, w]) ** 2 / -2
    basis, _ = np.linalg.qr(np.stack([phi, by_center, by_variance], axis=1))
    left = np.eye(16) - basis @ basis.T
    exact = np.trace(left @ covariance) / 1000
    told = assess(target, atoms, noise_variance=0.0, n_records=1000, rng=np.random.default_rng(4))
    assert told.expected_cost == pytest.approx(exact, rel=0.25)


@pytest.mark.parametrize("shape", [(1, 1), (6, 1), (1, 3), (6, 3)])
@pytest.mark.parametrize("fit_variances", [True, False])
def test_inner_products_from_phases_are_those_of_the_derivatives(shape, fit_variances, monkeypatch):
    seams.set(monkeypatch, "uncertainty.MAX_DENSE_ATOMS", 0)
    seams.set(monkeypatch, "uncertainty.PAIR_NUMBERS", 1)  # hence two blocks
    rng = np.random.default_rng(5)
    frequencies = rng.standard_normal((300, 3))
    target = make_target(frequencies, np.zeros(300, complex)).astype(np.float32)
    atoms = Atoms(
        np.append(rng.uniform(0.1, 1, 5), 0.0),
        rng.standard_normal((6, 3)),
        rng.uniform(0.05, 0.5, shape),
    )
    derivatives = module._derivatives(target, atoms, fit_variances)
    plain = derivatives.astype(float) @ derivatives.T.astype(float)
    found = module.tangent_products(target, atoms, derivatives)
    lengths = np.sqrt(np.diag(plain))
    np.testing.assert_allclose(
        found / np.outer(lengths, lengths), plain / np.outer(lengths, lengths), atol=1e-5
    )


def test_errors_of_points_are_those_of_the_covariance():
    # With noise alone, parameters have the covariance noise variance times (J'J)^-1.
    target = make_target(FREQUENCIES, np.zeros(60, dtype=complex))
    atoms = TRUTH.scaled(1 / N_RECORDS)
    told = assess(target, atoms, noise_variance=1.0, n_records=1e12, rng=np.random.default_rng(0))
    derivatives = module._derivatives(target.astype(np.float32), atoms, True).astype(float)
    covariance = np.linalg.inv(derivatives @ derivatives.T)
    rng = np.random.default_rng(6)
    by_weights, shares = rng.standard_normal((4, 2, 3)), rng.standard_normal((4, 3))
    directions = np.zeros((4, 2, len(covariance)))
    directions[:, :, :3] = 5.0 * by_weights
    for axis in range(2):
        directions[:, axis, 3 + axis : 9 : 2] = shares
    right = np.sqrt(np.einsum("qai,ij,qaj->qa", directions, covariance, directions))
    np.testing.assert_allclose(told.scaled(5.0).errors(by_weights, shares), right, rtol=1e-3)
