"""The problem of a decoder: explain a sketch by a sum of atoms with Gaussian envelopes.

A released sketch is, up to noise, an unnormalised empirical characteristic function. Coordinates
are relative to the center of the domain. A decoder explains the sketch by a sum of `K` atoms,

    moments_j ~ sum_k a_k exp(i w_j.c_k - sum_d s_kd w_jd^2 / 2) prod_b sum_l r_kbl e_bl(w_j).

The total weight of the atoms is about the unknown number of records. An atom with weight a, center
c and variances s is the characteristic function of an axis-aligned Gaussian. A Dirac atom has
s = 0. Categories, flags and cycles are blocks of coordinates with public corners: e_bl is the wave
of corner l of block b, and r_kbl the share of the atom's records there. An atom is then a product
of a Gaussian, in the numbers, and of a law of shares for each block. Without blocks the product is
empty.

This module computes the value of such a sum, its cost and gradient, and the best weights. Complex
moments are stored as real vectors, all cosines before all sines, so that all of these are plain
matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dsyrk, ssyrk
from scipy.optimize import nnls

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats, Indices, Real
from privsketch.design.recipe import Design
from privsketch.facts.layout import Layout, layout_of
from privsketch.learning.blocks import (
    as_complex,
    as_real,
    factors,
    other_factors,
    parts_of,
    products_with_waves,
)
from privsketch.sketching.sketch import Sketch

GRAM_RIDGE = 1e-6  # relative to the largest squared norm; keeps twins invertible
SINGLE_GRAM_RIDGE = 1e-5  # the same for products in single precision
RIDGE_GROWTH = 10.0  # of a ridge that is too small for the rounding of a large matrix
ROUNDING = 1 / 12  # variance of a sum or a count that is rounded to a whole number
NO_SHARES = np.zeros((0, 0))  # of atoms without blocks
MIN_SUM = 1e-9  # sum of an atom's shares in a block below which the atom has no weight
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
    layout : Layout, optional
        Numbers and blocks of the coordinates; None if all are numbers.
    """

    frequencies: Floats
    moments: NDArray[np.complex128]
    noise_variance: float
    low: Floats
    high: Floats
    one_bit: bool = False
    repetition: float = 1.0
    uniform: bool = False
    layout: Layout | None = None

    def target(self, unit: float = 1.0) -> Target:
        """Return the moments to fit, for weights in units of so many records."""
        moments, layout = self.moments / unit, self.layout
        if layout is None:
            return make_target(self.frequencies, moments, self.low, self.high)
        low, high = self.low[layout.numbers], self.high[layout.numbers]
        target = make_target(self.frequencies[:, layout.numbers], moments, low, high)
        return replace(target, labels=self._waves, ends=layout.ends, sides=layout.sides)

    @cached_property
    def _waves(self) -> Floats:
        if self.layout is None:
            return np.zeros((0, 2, len(self.moments)))
        return self.layout.waves(self.frequencies)

    def without_blocks(self) -> Problem:
        """Return the problem of a decoder that takes every coordinate for a number."""
        return replace(self, layout=None)


def checked_sketch(sketch: Sketch) -> Sketch:
    """Return the sketch if clusters and mixtures can be learned from it; raise otherwise."""
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    if sketch.design.mapping.for_components:
        raise ParameterError(
            "this sketch has second moments, for principal components and regression "
            f"(`task={sketch.design.task!r}`): clusters and mixtures need one of `task='kmeans'` "
            "or 'gaussian-mixture'"
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
        layout=layout_of(design.schema, design.domain.center_vector),
    )


def dither_of(design: Design) -> Floats:
    """Return the public dither of one-bit features, (n_features,) radians."""
    turns = design.frequencies.offsets(design.domain) * 2.0**-design.frequencies.turn_bits
    return np.asarray(2 * np.pi * turns, dtype=np.float64)


@dataclass(frozen=True)
class Atoms:
    """Weights (size,), centers (size, n_numbers), variances of the envelopes, shares of corners.

    `variances` has a row for each atom or a shared one, and a column for each axis or a single one
    for all directions. `shares`, (size, n_corners), has the corners of all blocks one after
    another. Within a block they sum to one, but not during a descent: the scales of weight and
    shares are redundant, and `normalised` settles them.
    """

    weights: Floats
    centers: Floats
    variances: Floats
    shares: Floats = field(default_factory=lambda: NO_SHARES)

    def __post_init__(self) -> None:
        if self.shares is NO_SHARES:
            object.__setattr__(self, "shares", np.zeros((len(self.weights), 0)))

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
        return Atoms(self.weights[keep], self.centers[keep], variances, self.shares[keep])

    def joined(self, other: Atoms, *, shared: bool) -> Atoms:
        """Return these atoms and others, whose variances are the same ones if `shared`."""
        return Atoms(
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.centers, other.centers]),
            self.variances if shared else np.concatenate([self.variances, other.variances]),
            np.concatenate([self.shares, other.shares]),
        )

    def scaled(self, factor: float) -> Atoms:
        """Return the atoms with their weights in another unit."""
        return replace(self, weights=self.weights * factor)

    def flat(self) -> Floats:
        """Return all numbers as one vector: weights, centers, variances, shares."""
        parts = self.weights, self.centers.ravel(), self.variances.ravel(), self.shares.ravel()
        return np.concatenate(parts)

    def unflat(self, numbers: Floats) -> Atoms:
        """Return atoms of the shape of these; inverse of `flat`."""
        n, end = self.size, self.size + self.centers.size
        last = end + self.variances.size
        return Atoms(
            numbers[:n],
            numbers[n:end].reshape(self.centers.shape),
            numbers[end:last].reshape(self.variances.shape),
            numbers[last:].reshape(self.shares.shape),
        )

    def in_order(self) -> Atoms:
        """Return the atoms sorted by center and shares, an order that is robust to rounding."""
        return self.subset(np.lexsort(np.hstack([self.centers, self.shares]).T[::-1]))

    def normalised(self, ends: Indices) -> Atoms:
        """Return the same atoms with shares that sum to one in every block."""
        if len(ends) == 0:
            return self
        weights, shares = self.weights.copy(), self.shares.copy()
        for part in parts_of(ends):
            total = shares[:, part].sum(axis=1)
            empty = ~(total > MIN_SUM)
            weights *= np.where(empty, 0.0, total)
            shares[empty, part] = 1.0
            shares[:, part] /= shares[:, part].sum(axis=1, keepdims=True)
        return replace(self, weights=weights, shares=shares)


def in_all_coordinates(atoms: Atoms, layout: Layout | None) -> Atoms:
    """Return atoms with the means and variances of all coordinates of their records."""
    if layout is None:
        return atoms
    return Atoms(
        atoms.weights,
        layout.means(atoms.centers, atoms.shares),
        layout.variances(atoms.axis_variances(), atoms.shares),
    )


@dataclass(frozen=True)
class Target:
    """Moments to fit, and the box of the centers.

    The cost is `sum_j taper_j^2 |moments_j - model_j|^2`. The floating-point type of the first four
    arrays, and of `labels`, decides the precision of the fit.
    """

    frequencies: Real  # (m, n_numbers)
    squares: Real  # (m, n_numbers), of the frequencies
    moments: Real  # (2 m,) real parts, then imaginary parts
    taper: Real  # (m,)
    low: Floats  # (n_numbers,)
    high: Floats  # (n_numbers,)
    labels: Real  # (n_corners, 2, m) real and imaginary part of the waves of corners
    ends: Indices  # (n_blocks,) where the corners of each block end
    sides: Floats  # (n_corners,) distance of two corners of the block

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
            labels=self.labels[:, :, keep],
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
            labels=np.pad(self.labels, ((0, 0), (0, 0), rows[0])),
        )

    def astype(self, dtype: type[np.floating[Any]]) -> Target:
        """Return the target in another precision."""
        names = ("frequencies", "squares", "moments", "taper", "labels")
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
    labels, ends = np.zeros((0, 2, len(taper))), np.zeros(0, dtype=np.int64)
    return Target(frequencies, frequencies**2, values, taper, low, high, labels, ends, np.zeros(0))


def n_parameters(target: Target, atoms: Atoms) -> int:
    """Return the number of free parameters: shares of a block sum to one."""
    return atoms.flat().size - atoms.size * len(target.ends)


def features(
    target: Target, centers: Floats, variances: Floats, shares: Floats = NO_SHARES
) -> Real:
    """Return moments of every atom at unit weight, (size, 2 m), without the taper."""
    matrix = gaussian_features(target, centers, variances)
    if len(target.ends) == 0:
        return matrix
    product = as_complex(matrix)
    for factor in factors(target.labels, target.ends, shares):
        product *= factor
    return as_real(product)


def gaussian_features(target: Target, centers: Floats, variances: Floats) -> Real:
    """Return the factors of the numbers in the moments of every atom, (size, 2 m)."""
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
    matrix = features(target, atoms.centers, atoms.variances, atoms.shares)
    return atoms.weights.astype(matrix.dtype) @ matrix - target.moments


def cost(target: Target, atoms: Atoms) -> float:
    """Return the tapered squared distance of model and moments."""
    squares = residual_vector(target, atoms) ** 2 * np.tile(target.taper**2, 2)
    return float(squares.sum(dtype=np.float64))


def cost_and_gradient(target: Target, atoms: Atoms) -> tuple[float, Atoms]:
    """Return the cost, and its gradient in the shape of the atoms."""
    matrix = features(target, atoms.centers, atoms.variances, atoms.shares)
    residual = atoms.weights.astype(matrix.dtype) @ matrix - target.moments
    tapered = np.tile(target.taper**2, 2) * residual
    value = float(np.dot(tapered.astype(np.float64), residual))
    return value, gradient_of(target, atoms, matrix, tapered)


def gradient_of(target: Target, atoms: Atoms, matrix: Real, slopes: Real) -> Atoms:
    """Return the gradient of a cost by all numbers of the atoms, in the shape of the atoms.

    `slopes` q, (2 m,), are half of the derivatives by the model, and `matrix` holds the atoms'
    features. The derivatives by a, c and s are the products of the features with q, with w times q
    turned by a right angle, and with -w^2 q / 2: one matrix product serves all three. Those by r
    are the products of q with the features without the factor of the block, and with its waves.
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
    by_center = products[:, 1 : dim + 1]
    if len(target.ends) == 0:
        return Atoms(by_weight, by_center, by_variance)
    return Atoms(by_weight, by_center, by_variance, _by_shares(target, atoms, slopes))


def _by_shares(target: Target, atoms: Atoms, slopes: Real) -> Floats:
    """Return the gradient of a cost by the shares of the atoms."""
    each = factors(target.labels, target.ends, atoms.shares)
    gaussians = gaussian_features(target, atoms.centers, atoms.variances)
    result = np.empty(atoms.shares.shape)
    for part, others in zip(parts_of(target.ends), other_factors(gaussians, each), strict=True):
        result[:, part] = products_with_waves(others, slopes, target.labels[part])
    return 2 * atoms.weights[:, None] * result


def tapered_features(
    target: Target, centers: Floats, variances: Floats, shares: Floats = NO_SHARES
) -> Real:
    """Return moments of every atom at unit weight, (size, 2 m), with the taper."""
    matrix = features(target, centers, variances, shares)
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

    Rounding makes the Gram matrix of far more atoms than features indefinite. Its ridge then grows
    until it is definite: a sketch that was paid for always gives an answer.
    """
    ridge, largest = (
        SINGLE_GRAM_RIDGE,
        max(float(np.max(np.diag(gram_matrix), initial=0.0)), 1e-100),
    )
    regular = gram_matrix
    while True:
        try:
            return _exchanged_weights(regular, right)
        except np.linalg.LinAlgError:
            regular = gram_matrix + ridge * largest * np.eye(len(right))
            ridge *= RIDGE_GROWTH


def _exchanged_weights(gram_matrix: Floats, right: Floats) -> Floats:
    """Return the weights of `nonnegative_solution`, for a matrix that has a Cholesky factor.

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
