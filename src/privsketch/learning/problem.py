"""The problem of a decoder: explain a sketch by a sum of atoms with Gaussian envelopes.

A released sketch is, up to noise, an unnormalised empirical characteristic function. Coordinates
are relative to the center of the domain. A decoder explains the sketch by a sum of `K` atoms,

    moments_j ~ sum_k a_k exp(i w_j.c_k - sum_d s_kd w_jd^2 / 2).

The total weight of the atoms is about the unknown number of records. An atom with
weight a, center c and variances s is the characteristic function of an axis-aligned Gaussian. A
Dirac atom has s = 0. This module computes the value of such a sum, its cost and gradient, and the
best weights. Complex moments are stored as real vectors, all cosines before all sines, so that all
of these are plain matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dsyrk, ssyrk
from scipy.optimize import nnls

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats, Indices, Real
from privsketch.design.recipe import Design
from privsketch.sketching.sketch import Sketch

GRAM_RIDGE = 1e-6  # relative to the largest squared norm; keeps twins invertible
SINGLE_GRAM_RIDGE = 1e-5  # the same for products in single precision
ROUNDING = 1 / 12  # variance of a sum or a count that is rounded to a whole number
MAX_EXCHANGES = 10  # a guard: weights change between zero and positive two or three times


@dataclass(frozen=True)
class Problem:
    """A sketch to decode.

    Parameters
    ----------
    frequencies : (n_features, dim) float64
        Radians per unit of the records.
    moments : (n_features,) complex128
        The noisy sums over the records of `exp(i w_j.x)`.
    noise_variance : float
        Variance of the privacy noise and of masking, per real component of `moments`.
    low, high : (dim,) float64
        The box the centers must lie in.
    one_bit : bool
        Whether the features are signs, whose harmonics are noise too.
    repetition : float
        How often a record counts; sums over n records vary like those over n / repetition.
    uniform : bool
        Whether the noise is uniform in a cube; the total of several releases is not.
    """

    frequencies: Floats
    moments: NDArray[np.complex128]
    noise_variance: float
    low: Floats
    high: Floats
    one_bit: bool = False
    repetition: float = 1.0
    uniform: bool = False

    def target(self, unit: float = 1.0) -> Target:
        """Return the moments to fit, for weights in units of so many records."""
        return make_target(self.frequencies, self.moments / unit, self.low, self.high)


def checked_sketch(sketch: Sketch) -> Sketch:
    """Return the sketch if clusters and mixtures can be learned from it; raise otherwise."""
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    if sketch.design.mapping.for_components:
        raise ParameterError(
            "this sketch is for principal components (`task='pca'`): clusters and mixtures need "
            "one of `task='kmeans'` or 'gaussian-mixture'"
        )
    return sketch


def problem_of(sketch: Sketch) -> Problem:
    """Return the sketch as a problem for decoders.

    The number of records is the moment at frequency zero. It is included if it is no noisier than
    the other moments. Signs have no moment at zero.
    """
    design = sketch.design
    half_widths = design.domain.half_widths
    frequencies, moments = design.radians(), sketch.moments()
    count, is_precise = sketch.n_records, design.sum_noise.count_variance <= design.noise_std**2
    if count is not None and is_precise and not design.mapping.dithered:
        frequencies = np.vstack([frequencies, np.zeros(design.dim)])
        moments = np.append(moments, count)
    return Problem(
        frequencies=frequencies,
        moments=moments,
        # Sums without noise are whole numbers, with an error of rounding.
        noise_variance=max(
            sketch.noise_variance + sketch.masking_variance, ROUNDING / design.unit**2
        ),
        low=-half_widths,
        high=half_widths,
        one_bit=design.mapping.dithered,
        repetition=sketch.repetition,
        uniform=design.noise == "cube" and len(sketch.ids) == 1,
    )


def dither_of(design: Design) -> Floats:
    """Return the public dither of one-bit features, (n_features,) radians."""
    turns = design.frequencies.offsets(design.domain) * 2.0**-design.frequencies.turn_bits
    return np.asarray(2 * np.pi * turns, dtype=np.float64)


@dataclass(frozen=True)
class Atoms:
    """Weights (size,), centers (size, dim) and variances of the envelopes.

    `variances` has a row for each atom or a shared one, and a column for each axis or a single one
    for all directions.
    """

    weights: Floats
    centers: Floats
    variances: Floats

    @property
    def size(self) -> int:
        """Number of atoms."""
        return len(self.weights)

    @property
    def shared(self) -> bool:
        """Whether all atoms have the same variances."""
        return len(self.variances) == 1

    def axis_variances(self) -> Floats:
        """Return variances (size, dim), with shared ones repeated."""
        return np.broadcast_to(self.variances, self.centers.shape).copy()

    def subset(self, keep: Indices) -> Atoms:
        """Return the atoms at the given indices."""
        variances = self.variances if self.shared else self.variances[keep]
        return Atoms(self.weights[keep], self.centers[keep], variances)

    def joined(self, other: Atoms, *, shared: bool) -> Atoms:
        """Return these atoms and others, whose variances are the same ones if `shared`."""
        return Atoms(
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.centers, other.centers]),
            self.variances if shared else np.concatenate([self.variances, other.variances]),
        )

    def scaled(self, factor: float) -> Atoms:
        """Return the atoms with their weights in another unit."""
        return replace(self, weights=self.weights * factor)

    def flat(self) -> Floats:
        """Return all numbers as one vector: weights, then centers, then variances."""
        return np.concatenate([self.weights, self.centers.ravel(), self.variances.ravel()])

    def unflat(self, numbers: Floats) -> Atoms:
        """Return atoms of the shape of these; inverse of `flat`."""
        n, end = self.size, self.size + self.centers.size
        return Atoms(
            numbers[:n],
            numbers[n:end].reshape(self.centers.shape),
            numbers[end:].reshape(self.variances.shape),
        )

    def in_order(self) -> Atoms:
        """Return the atoms sorted by center, an order that is robust to rounding."""
        return self.subset(np.lexsort(self.centers.T[::-1]))


@dataclass(frozen=True)
class Target:
    """Moments to fit, and the box of the centers.

    The cost is `sum_j taper_j^2 |moments_j - model_j|^2`. The floating-point type of the first four
    arrays decides the precision of the fit.
    """

    frequencies: Real  # (m, dim)
    squares: Real  # (m, dim), of the frequencies
    moments: Real  # (2 m,) real parts, then imaginary parts
    taper: Real  # (m,)
    low: Floats  # (dim,)
    high: Floats  # (dim,)

    @property
    def n_features(self) -> int:
        """Number of complex moments."""
        return len(self.frequencies)

    @property
    def squared_norms(self) -> Real:
        """(m,) squared lengths of the frequencies."""
        return np.asarray(self.squares.sum(axis=1))

    def exponents(self, variances: Floats) -> Real:
        """Return the factors of the variances in -2 log envelope, (m, columns of `variances`)."""
        return self.squares.sum(axis=1, keepdims=True) if variances.shape[1] == 1 else self.squares

    def tapered(self, taper: Floats, keep: Bits | None = None) -> Target:
        """Return the moments under another taper, restricted to the features in `keep`."""
        taper = taper.astype(self.taper.dtype)
        if keep is None:
            return replace(self, taper=taper)
        return replace(
            self,
            frequencies=self.frequencies[keep],
            squares=self.squares[keep],
            moments=self.moments[np.concatenate([keep, keep])],
            taper=taper[keep],
        )

    def padded(self, multiple: int) -> Target:
        """Return the target with features of no weight added, to a multiple in number."""
        m = self.n_features
        if m % multiple == 0:
            return self
        rows = ((0, -m % multiple), (0, 0))
        return replace(
            self,
            frequencies=np.pad(self.frequencies, rows),
            squares=np.pad(self.squares, rows),
            moments=np.pad(self.moments.reshape(2, m), rows[::-1]).ravel(),
            taper=np.pad(self.taper, rows[0]),
        )

    def astype(self, dtype: type[np.floating[Any]]) -> Target:
        """Return the target in another precision."""
        names = ("frequencies", "squares", "moments", "taper")
        return replace(self, **{name: getattr(self, name).astype(dtype) for name in names})


def make_target(
    frequencies: Floats,
    moments: NDArray[np.complex128],
    low: Floats | float = -np.inf,
    high: Floats | float = np.inf,
) -> Target:
    """Return all moments in double precision, without a taper."""
    values, taper = np.concatenate([moments.real, moments.imag]), np.ones(len(moments))
    low, high = (np.broadcast_to(limit, frequencies.shape[1]) for limit in (low, high))
    return Target(frequencies, frequencies**2, values, taper, low, high)


def features(target: Target, centers: Floats, variances: Floats) -> Real:
    """Return moments of every atom at unit weight, (size, 2 m), without the taper."""
    dtype = target.frequencies.dtype
    m = target.n_features
    phases = centers.astype(dtype) @ target.frequencies.T
    result = np.empty((len(centers), 2 * m), dtype)
    np.cos(phases, out=result[:, :m])
    np.sin(phases, out=result[:, m:])
    if np.any(variances > 0):
        envelope = np.exp(variances.astype(dtype) @ target.exponents(variances).T / -2)
        result[:, :m] *= envelope
        result[:, m:] *= envelope
    return result


def residual_vector(target: Target, atoms: Atoms) -> Real:
    """Return model minus moments, (2 m,), without the taper."""
    matrix = features(target, atoms.centers, atoms.variances)
    return atoms.weights.astype(matrix.dtype) @ matrix - target.moments


def cost(target: Target, atoms: Atoms) -> float:
    """Return the tapered squared distance of model and moments."""
    squares = residual_vector(target, atoms) ** 2 * np.tile(target.taper**2, 2)
    return float(squares.sum(dtype=np.float64))


def cost_and_gradient(target: Target, atoms: Atoms) -> tuple[float, Atoms]:
    """Return the cost, and its gradient in the shape of the atoms."""
    matrix = features(target, atoms.centers, atoms.variances)
    residual = atoms.weights.astype(matrix.dtype) @ matrix - target.moments
    tapered = np.tile(target.taper**2, 2) * residual
    value = float(np.dot(tapered.astype(np.float64), residual))
    return value, gradient_of(target, atoms, matrix, tapered)


def gradient_of(target: Target, atoms: Atoms, matrix: Real, slopes: Real) -> Atoms:
    """Return the gradient of a cost by all numbers of the atoms, in the shape of the atoms.

    `slopes` q, (2 m,), are half of the derivatives by the model, and `matrix` holds the atoms'
    features. The derivatives by a, c and s are the products of the features with q, with w times q
    turned by a right angle, and with -w^2 q / 2: one matrix product serves all three.
    """
    m, dim = target.frequencies.shape
    exponents = target.exponents(atoms.variances)
    right = np.empty((2 * m, 1 + dim + exponents.shape[1]), matrix.dtype)
    right[:, 0] = slopes
    right[:m, 1 : dim + 1] = slopes[m:, None] * target.frequencies
    right[m:, 1 : dim + 1] = -slopes[:m, None] * target.frequencies
    right[:m, dim + 1 :] = slopes[:m, None] * exponents / -2
    right[m:, dim + 1 :] = slopes[m:, None] * exponents / -2
    products = (matrix @ right).astype(np.float64) * 2
    by_weight = products[:, 0]
    products = atoms.weights[:, None] * products
    by_variance = products[:, dim + 1 :]
    if atoms.shared:
        by_variance = by_variance.sum(axis=0, keepdims=True)
    return Atoms(by_weight, products[:, 1 : dim + 1], by_variance)


def tapered_features(target: Target, centers: Floats, variances: Floats) -> Real:
    """Return moments of every atom at unit weight, (size, 2 m), with the taper."""
    matrix = features(target, centers, variances)
    matrix *= np.tile(target.taper, 2)
    return matrix


def inner_products(rows: Real) -> Floats:
    """Return all inner products of the rows, at half of the work of a matrix product."""
    half = lower_products(rows).astype(np.float64)
    return half + np.tril(half, -1).T


def lower_products(rows: Real) -> Real:
    """Return the inner products on and below the diagonal, zeros above it."""
    syrk = ssyrk if rows.dtype == np.float32 else dsyrk
    return np.asarray(syrk(1.0, rows.T, trans=1, lower=1))


def ridged(target: Target, gram_matrix: Floats) -> Floats:
    """Return the Gram matrix with a ridge that makes it safely positive definite.

    The floor is relative to the squared norm of a Dirac atom, because envelopes may damp all atoms
    to zero.
    """
    dirac = float(np.sum(target.taper.astype(np.float64) ** 2))
    relative = GRAM_RIDGE if target.taper.dtype == np.float64 else SINGLE_GRAM_RIDGE
    ridge = relative * max(float(np.max(np.diag(gram_matrix))), GRAM_RIDGE * dirac, 1e-100)
    return gram_matrix + ridge * np.eye(len(gram_matrix))


def best_weights(target: Target, centers: Floats, variances: Floats) -> Floats:
    """Return non-negative least-squares weights of given atoms, lightly ridged."""
    matrix = tapered_features(target, centers, variances)
    inner = ridged(target, inner_products(matrix))
    right = (matrix @ (target.moments * np.tile(target.taper, 2))).astype(np.float64)
    return nonnegative_solution(inner, right)


def nonnegative_solution(gram_matrix: Floats, right: Floats) -> Floats:
    """Return the x >= 0 of least x'Gx - 2 x'r, for a positive definite G.

    Few weights are zero. All negative ones are set to zero, all that the gradient calls for become
    positive again, and so on (Portugal, Judice and Vicente 1994). If that cycles, least squares on
    the Cholesky factor move one weight at a time, which is slower and always ends.
    """
    positive = np.ones(len(right), dtype=bool)
    least = -1e-12 * float(np.max(np.abs(right), initial=0.0))
    for _ in range(MAX_EXCHANGES):
        weights = np.zeros(len(right))
        inner = gram_matrix if positive.all() else gram_matrix[np.ix_(positive, positive)]
        if len(inner):
            weights[positive] = cho_solve(cho_factor(inner, lower=True), right[positive])
        slopes = gram_matrix @ weights - right
        wrong = np.where(positive, weights < 0, slopes < least)
        if not wrong.any():
            return weights
        positive ^= wrong
    factor = cholesky(gram_matrix, lower=True)
    weights, _ = nnls(factor.T, solve_triangular(factor, right, lower=True))
    return np.asarray(weights, dtype=np.float64)
