"""Errors of fits: the residual that noise and sampling leave, and standard errors.

The variance of the privacy noise is known, and the records count as a sample of the fitted mixture.
To first order a least-squares fit follows the part of both errors that lies in the tangent space of
the model (the span of its derivatives J) and leaves the remainder. Let V = noise variance I +
n Cov(features of a record) and H = J (J'J)^-1 J'. Parameters then have the covariance
(J'J)^-1 J'VJ (J'J)^-1, and the expected residual is trace((I - H) V). Sampled features of a record
replace Cov, a matrix of the size of the sketch squared, by a few hundred vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import strtri

from privsketch._base.types import Floats, Real
from privsketch.facts.layout import Layout, drawn_corners
from privsketch.features.waves import HARMONICS, SIGN_VARIANCE
from privsketch.kernels.pairs import compile_phases
from privsketch.learning.blocks import as_complex, as_real, factors, other_factors, parts_of
from privsketch.learning.problem import (
    Atoms,
    Problem,
    Target,
    features,
    gaussian_features,
    in_all_coordinates,
    inner_products,
    lower_products,
    n_parameters,
)

MAX_RESIDUAL_EXCESS = 4.0  # of an explained residual over its expectation, in standard deviations
FEATURE_SAMPLES = 400  # sampled records: variances are known to about sqrt(2 / 400) = 7 %
TANGENT_RIDGE = 1e-5  # relative: twins have equal derivatives, and products are in float32
MAX_MULTIPLICATIONS = 10**11  # multiply-adds of J'J; larger fits only count their parameters
# Atoms up to which inner products of derivatives are plain matrix products, the faster way for few:
# python -m benchmarks constants learning MAX_DENSE_ATOMS
MAX_DENSE_ATOMS = 40
PAIR_NUMBERS = 2**17  # of one block of inner products, so that it stays in the cache


@dataclass(frozen=True)
class Uncertainty:
    """Uncertainty of a fit to a target, in the units of its weights.

    Attributes
    ----------
    expected_cost, cost_spread : float
        Mean and standard deviation of the cost if the fitted mixture were the truth.
    """

    expected_cost: float
    cost_spread: float
    _spread: _ParameterSpread | None = field(default=None, repr=False)

    def excess(self, cost: float) -> float:
        """Return the excess of a cost over its expectation, in standard deviations."""
        difference = cost - self.expected_cost
        if self.cost_spread > 0:
            return difference / self.cost_spread
        return math.inf if difference > 0 else 0.0

    def scaled(self, factor: float) -> Uncertainty:
        """Return the uncertainty for weights in another unit."""
        spread = self._spread
        spread = None if spread is None else replace(spread, unit=spread.unit * factor)
        return Uncertainty(factor**2 * self.expected_cost, factor**2 * self.cost_spread, spread)

    def errors(self, by_weights: Floats, shares: Floats) -> Floats | None:
        """Return standard errors of points that depend on the fitted weights and centers.

        Parameters
        ----------
        by_weights : (n_points, dim, size)
            Derivatives of the points by the weights.
        shares : (n_points, size)
            Derivatives of the points by the centers.

        Returns
        -------
        (n_points, dim) float64, or None for a fit that is too large.
        """
        return None if self._spread is None else self._spread.errors(by_weights, shares)

    def errors_along(self, gradients: Floats) -> Floats | None:
        """Return standard errors (q,) of functions with gradients (q, p) by all parameters.

        Parameters are in the order of `assess`: weights, centers, variances, and for each block
        the shares of all atoms along `tangent`. None for a fit that is too large.
        """
        return None if self._spread is None else self._spread.errors_along(gradients)


@dataclass(frozen=True)
class _ParameterSpread:
    """Spread of weights and centers by noise and by sampling.

    `factor` is the Cholesky factor L of the parameters' inner products, each over its length. Noise
    moves the parameters along the columns of L^-T, sampled records along those of L^-T `sampled`.
    Errors are computed on demand, because most searches are discarded.
    """

    factor: Floats  # (p, p)
    sampled: Floats  # (p, n_samples)
    lengths: Floats  # (p,)
    noise_std: float
    sampling_std: float  # factor of the sampled columns
    size: int  # number of atoms
    unit: float = 1.0  # of the weights, the first parameters

    def errors(self, by_weights: Floats, shares: Floats) -> Floats:
        size, dim = shares.shape[1], by_weights.shape[1]
        inverse, _ = strtri(self.factor.astype(np.float32), lower=1)  # few digits suffice
        # One row for each direction in which noise, or a sampled record, moves the parameters.
        by_sample = self.sampled.T.astype(np.float32) @ inverse
        spreads = ((self.noise_std, inverse), (self.sampling_std, by_sample))
        by_weights = by_weights * (self.unit / self.lengths[:size])
        variances = np.zeros(by_weights.shape[:2])
        for axis in range(dim):
            columns = np.arange(size + axis, size * (1 + dim), dim)
            by_centers = (shares / self.lengths[columns]).astype(np.float32)
            with_weights = by_weights[:, axis].astype(np.float32)
            for std, spread in spreads:
                moved = with_weights @ spread[:, :size].T + by_centers @ spread[:, columns].T
                variances[:, axis] += std**2 * np.einsum("qp,qp->q", moved, moved)
        return np.sqrt(variances)

    def errors_along(self, gradients: Floats) -> Floats:
        scaled = gradients / self.lengths
        scaled[:, : self.size] *= self.unit
        moved = solve_triangular(self.factor, scaled.T, lower=True, check_finite=False)
        by_sample = self.sampled.T @ moved
        variances = self.noise_std**2 * np.einsum("pq,pq->q", moved, moved)
        variances += self.sampling_std**2 * np.einsum("nq,nq->q", by_sample, by_sample)
        return np.asarray(np.sqrt(variances), dtype=np.float64)


def tangent(n_corners: int) -> Floats:
    """Return directions in which shares change, (n_corners, n_corners - 1).

    They are orthonormal, and their sums are zero.
    """
    basis = np.hstack([np.ones((n_corners, 1)), np.eye(n_corners, n_corners - 1)])
    return np.asarray(np.linalg.qr(basis)[0][:, 1:])


def assess_fit(
    problem: Problem,
    atoms: Atoms,
    unit: float,
    rng: np.random.Generator,
    *,
    fit_variances: bool = True,
) -> Uncertainty:
    """Return the uncertainty of atoms, with weights in units of `unit` records, as a fit.

    The dither of signs turns their harmonics into noise: the harmonic of order h has 1 / h of the
    amplitude of the first.
    """
    n_records = unit * float(atoms.weights.sum())
    variance = problem.noise_variance
    if problem.one_bit:
        variance += n_records * problem.repetition * SIGN_VARIANCE / 2
        for order in HARMONICS:
            moments = harmonic_moments(problem, atoms, order)
            variance += unit**2 * float(np.mean(np.abs(moments) ** 2)) / (2 * order**2)
    return assess(
        problem.target(),
        atoms,
        noise_variance=variance / unit**2,
        n_records=n_records / problem.repetition,
        rng=rng,
        fit_variances=fit_variances,
        problem=problem,
    )


def harmonic_moments(problem: Problem, atoms: Atoms, order: int) -> NDArray[np.complex128]:
    """Return moments of the atoms at a multiple of the frequencies, (m,)."""
    multiples = order * problem.frequencies
    if problem.layout is not None:
        target = replace(problem, frequencies=multiples).target()
        rows = features(target, atoms.centers, atoms.variances, atoms.shares)
        return np.asarray(as_complex(atoms.weights @ rows))
    damping = np.square(multiples) @ atoms.axis_variances().T / 2
    phasors = np.exp(1j * (multiples @ atoms.centers.T) - damping)
    return np.asarray(phasors @ atoms.weights)


def assess(
    target: Target,
    atoms: Atoms,
    *,
    noise_variance: float,
    n_records: float,
    rng: np.random.Generator,
    fit_variances: bool = True,
    problem: Problem | None = None,
) -> Uncertainty:
    """Return the uncertainty of atoms fitted to a target without taper.

    Parameters
    ----------
    noise_variance : float
        Variance of the privacy noise per real number, in squared units of the weights.
    n_records : float
        Number of records that the weights stand for; it determines the sampling errors.
    problem : Problem, optional
        The sketch, for a target with blocks: records of a cycle lie between its corners.
    """
    target = target.astype(np.float32)  # few digits suffice, and take half of the time
    n_values = 2 * target.n_features
    total = float(atoms.weights.sum())
    n_records = max(n_records, 1.0)
    # Records add n Cov; in units of the weights, a record is total / n.
    per_record = total**2 / n_records
    n_unknowns = n_parameters(target, atoms)
    n_unknowns -= 0 if fit_variances else atoms.variances.size
    free = max(n_values - n_unknowns, 1)
    if total <= 0 or n_values * n_unknowns**2 > MAX_MULTIPLICATIONS:
        mean = _unit_moments(target, atoms, total)
        scatter = per_record * (target.n_features - float(mean @ mean))
        variance = noise_variance + scatter / n_values
        return Uncertainty(free * variance, float(np.sqrt(2 * free) * variance))
    derivatives = _derivatives(target, atoms, fit_variances)
    inner = tangent_products(target, atoms, derivatives)
    lengths = np.sqrt(np.maximum(np.diag(inner), np.finfo(np.float32).tiny))
    inner /= lengths
    inner /= lengths[:, None]
    inner[np.diag_indices_from(inner)] += TANGENT_RIDGE
    factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
    deviations = _sampled_features(target, atoms, rng, problem)
    deviations -= _unit_moments(target, atoms, total)
    scores = (deviations @ derivatives.T) / lengths
    sampled = solve_triangular(factor, scores.T, lower=True, check_finite=False)
    # Squared lengths of the remainders: those of the deviations less those in the tangent space.
    n_samples = len(deviations)
    squares = float(np.vdot(deviations, deviations)) - float(np.vdot(sampled, sampled))
    trace = max(squares, 0.0) / n_samples
    # The same for inner products of every fourth sample, which give enough pairs.
    products = lower_products(deviations[::4]) - lower_products(sampled[:, ::4].T)
    np.fill_diagonal(products, 0.0)
    n_pairs = len(products) * (len(products) - 1)
    square_trace = 2 * float(np.vdot(products, products)) / n_pairs
    spread = np.sqrt(
        2 * free * noise_variance**2
        + 4 * noise_variance * per_record * trace
        + 2 * per_record**2 * square_trace
    )
    return Uncertainty(
        free * noise_variance + per_record * trace,
        float(spread),
        _ParameterSpread(
            factor,
            sampled,
            lengths,
            noise_std=math.sqrt(noise_variance),
            sampling_std=math.sqrt(per_record / n_samples),
            size=atoms.size,
        ),
    )


def _unit_moments(target: Target, atoms: Atoms, total: float) -> Real:
    """Return mean features of one record, (2 m,)."""
    if total <= 0:
        return np.zeros(2 * target.n_features, np.float32)
    matrix = features(target, atoms.centers, atoms.variances, atoms.shares)
    return np.asarray((atoms.weights / total) @ matrix, dtype=np.float32)


def _sampled_features(
    target: Target, atoms: Atoms, rng: np.random.Generator, problem: Problem | None
) -> Real:
    """Return features of records drawn from the mixture, (FEATURE_SAMPLES, 2 m)."""
    shares = np.cumsum(atoms.weights) / atoms.weights.sum()
    # Even spacing gives every atom its share of the samples, to within one.
    label = np.searchsorted(shares, (np.arange(FEATURE_SAMPLES) + rng.random()) / FEATURE_SAMPLES)
    label = np.minimum(label, atoms.size - 1)
    widths = np.sqrt(atoms.axis_variances())[label]
    records = atoms.centers[label] + widths * rng.standard_normal(widths.shape)
    rows = gaussian_features(target, records, np.zeros((1, 1)))
    if len(target.ends) == 0:
        return rows
    product = as_complex(rows)
    for number, part in enumerate(parts_of(target.ends)):
        corner = drawn_corners(atoms.shares[:, part][label], rng)
        block = None if problem is None or problem.layout is None else problem.layout.blocks[number]
        if problem is None or block is None or block.spread == 0:
            product *= as_complex(target.labels[part].reshape(-1, rows.shape[1]))[corner]
        else:
            phases = block.draw(corner, rng) @ problem.frequencies[:, block.place].T
            product *= np.exp(1j * phases).astype(product.dtype)
    return as_real(product)


def _derivatives(target: Target, atoms: Atoms, fit_variances: bool) -> Real:
    """Return derivatives of the model by all parameters, (n_parameters, 2 m)."""
    m, (size, dim) = target.n_features, atoms.centers.shape
    weights = _positive_weights(atoms)
    matrix = features(target, atoms.centers, atoms.variances, atoms.shares)
    n_variances = atoms.variances.size if fit_variances else 0
    first = size * (dim + 1)
    n_shares = atoms.shares.size - size * len(target.ends)
    result = np.empty((first + n_variances + n_shares, 2 * m), np.float32)
    parts = np.split(result, [size, first, first + n_variances])
    by_weight, by_center, by_variance, by_share = parts
    by_variance[:] = 0
    by_weight[:] = matrix
    by_center = by_center.reshape(size, dim, 2, m)
    exponents = target.exponents(atoms.variances).T / np.float32(-2)
    for k in range(size):
        weighted = weights[k] * matrix[k].reshape(2, m)
        turned = np.stack([-weighted[1], weighted[0]])
        np.multiply(turned, target.frequencies.T[:, None, :], out=by_center[k])
        if n_variances:
            slopes = weighted * exponents[:, None, :]
            by_variance.reshape(-1, len(exponents), 2, m)[0 if atoms.shared else k] += slopes
    if len(target.ends):
        _write_by_shares(target, atoms, by_share)
    return result


def _write_by_shares(target: Target, atoms: Atoms, rows: Real) -> None:
    """Write derivatives by the shares along `tangent`, for each block those of all atoms."""
    weights, m = _positive_weights(atoms)[:, None], target.n_features
    gaussians = gaussian_features(target, atoms.centers, atoms.variances)
    each = factors(target.labels, target.ends, atoms.shares)
    start = 0
    for part, others in zip(parts_of(target.ends), other_factors(gaussians, each), strict=True):
        basis = tangent(part.stop - part.start).astype(np.float32)
        waves = as_complex(basis.T @ target.labels[part].reshape(-1, 2 * m))
        by_share = (weights * others)[:, None] * waves
        end = start + by_share.shape[0] * by_share.shape[1]
        rows[start:end] = as_real(by_share.reshape(-1, m))
        start = end


def _positive_weights(atoms: Atoms) -> Real:
    # Atoms of no weight have no derivative by their center: a tiny positive weight gives the
    # direction, and a large error.
    weights = np.maximum(atoms.weights, 1e-6 * atoms.weights.sum())
    return np.asarray(weights, dtype=np.float32)


def tangent_products(target: Target, atoms: Atoms, derivatives: Real) -> Floats:
    """Return all inner products of the derivatives of atoms, in the order of `assess`.

    A derivative by a center is an atom's features turned by a right angle, times a coordinate of
    the frequencies. Inner products of two derivatives depend on the phases between the centers,

        sum_j E_jk E_jl cos(w_j.(c_k - c_l)) w_jd w_je  and  sum_j E_jk E_jl sin(...) w_jd,

    and take a quarter of the multiplications of a matrix product.
    """
    m, (size, dim) = target.n_features, atoms.centers.shape
    n = size * (dim + 1)
    if size <= MAX_DENSE_ATOMS or dim > size or len(target.ends):
        return inner_products(derivatives)
    first, second = np.triu_indices(dim)
    even = np.empty((m, 1 + len(first)), np.float32)
    even[:, 0] = 1
    np.multiply(target.frequencies[:, first], target.frequencies[:, second], out=even[:, 1:])
    cosines, sines = _phase_sums(derivatives[:size], even, target.frequencies)
    weights = _positive_weights(atoms)
    result = np.empty((len(derivatives), len(derivatives)))
    result[:size, :size] = cosines[:, :, 0]
    # Row k, column (l, d): features of atom k with the derivative of atom l along d.
    result[:size, size:n] = (-sines * weights[:, None]).reshape(size, size * dim)
    result[size:n, :size] = result[:size, size:n].T
    weighted = np.moveaxis(cosines[:, :, 1:] * np.outer(weights, weights)[:, :, None], 2, 0)
    blocks = result[size:n, size:n].reshape(size, dim, size, dim)
    blocks[:, first, :, second] = weighted
    blocks[:, second, :, first] = weighted
    result[n:] = derivatives[n:] @ derivatives.T
    result[:n, n:] = result[n:, :n].T
    return result


def _phase_sums(matrix: Real, even: Real, odd: Real) -> tuple[Real, Real]:
    """Return products of all pairs of atoms, summed over frequencies, (size, size, columns).

    The first array multiplies cosines of the phases between two atoms by `even`, the second one
    sines by `odd`, both (m, columns). `matrix` has the atoms' features.
    """
    size, m = len(matrix), len(even)
    cosines = np.zeros((size, size, even.shape[1]), np.float32)
    sines = np.zeros((size, size, odd.shape[1]), np.float32)
    kernel = compile_phases()
    n_vectors = max(16, PAIR_NUMBERS // size // kernel.shape.lanes)
    n_block = n_vectors * kernel.shape.lanes  # frequencies
    real, imaginary, together, apart = np.zeros((4, size, n_block), np.float32)
    by_even, by_odd = (np.zeros((n_block, each.shape[1]), np.float32) for each in (even, odd))
    starts = [each.ctypes.data for each in (together, apart)]
    for begin in range(0, m, n_block):
        n = min(n_block, m - begin)
        for block, values in ((by_even, even), (by_odd, odd)):
            block[:n], block[n:] = values[begin : begin + n], 0  # features past the end count 0
        real[:, :n] = matrix[:, begin : begin + n]
        imaginary[:, :n] = matrix[:, m + begin : m + begin + n]
        for k in range(size):
            inputs = (real, imaginary, real[k], imaginary[k])
            addresses = (each.ctypes.data for each in inputs)
            kernel.code.function(k + 1, n_vectors, *addresses, *starts)
            # Later atoms follow by symmetry.
            cosines[k, : k + 1] += together[: k + 1] @ by_even
            sines[k, : k + 1] += apart[: k + 1] @ by_odd
    first, second = np.triu_indices(size, 1)
    cosines[first, second] = cosines[second, first]
    sines[first, second] = -sines[second, first]
    return cosines, sines


@dataclass(frozen=True)
class Solution:
    """Atoms that explain a sketch. Weights are in records.

    Attributes
    ----------
    atoms : Atoms
        One atom for each cluster, with centers inside the box of the problem.
    density : Atoms
        The best description of the records that the sketch supports: the atoms above, unless they
        do not explain the sketch and other atoms do.
    residual : float
        Residual of the density: `sum_j |moments_j - model_j|^2`.
    uncertainty : Uncertainty
        Effect of noise and sampling on the density.
    layout : Layout, optional
        Numbers and blocks of the coordinates; None if all are numbers.
    """

    atoms: Atoms
    density: Atoms
    residual: float
    uncertainty: Uncertainty
    layout: Layout | None = None

    @property
    def centers(self) -> Floats:
        """(n_clusters, dim) mean coordinates of the atoms."""
        return in_all_coordinates(self.atoms, self.layout).centers

    @property
    def weights(self) -> Floats:
        """(n_clusters,) weights of the atoms, in records."""
        return self.atoms.weights

    @property
    def axis_widths(self) -> Floats:
        """(n_clusters, dim) standard deviations of the atoms along each axis."""
        return np.sqrt(in_all_coordinates(self.atoms, self.layout).axis_variances())

    @property
    def expected_residual(self) -> float:
        """Expected residual from noise and sampling alone.

        A residual well above it shows that the density does not describe the records.
        """
        return self.uncertainty.expected_cost


def uniform_deviations(half_widths: Floats) -> Floats:
    """Return standard deviations of a point that may be anywhere in the domain."""
    return np.asarray(half_widths / math.sqrt(3))
