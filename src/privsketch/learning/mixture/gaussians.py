"""Gaussian components of a mixture, and their moments.

A component with weight a, mean c and covariance S contributes `a exp(i w.c - w'Sw / 2)`, its
characteristic function, to the moment at frequency w (Keriven et al. 2018, "Sketching for
large-scale learning of mixture models"). Covariances have scikit-learn's names: "spherical" (one
variance each), "diag" (one for each axis), "full", and "tied" (one full matrix that all share).
`w'Sw` is linear in the entries of S, so value and gradient are plain matrix products for all kinds.
Categories, flags and cycles are blocks of corners, as in `learning/problem.py`: a component has
shares of its records there, and a factor for each block. Covariances are those of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privsketch._base.types import Floats, Indices
from privsketch.design.size import CovarianceType
from privsketch.facts.layout import Layout
from privsketch.learning.blocks import (
    Complex,
    as_complex,
    as_real,
    factors,
    other_factors,
    parts_of,
    products_with_waves,
)
from privsketch.learning.problem import NO_SHARES, Atoms
from privsketch.learning.pruning import merged_moments


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Weighted Gaussian components.

    Attributes
    ----------
    weights : (size,) float64
        Non-negative, in any unit.
    means : (size, dim) float64
        Of the numbers, without the coordinates of blocks.
    covariances : float64
        (size, 1) spherical, (size, dim) diag, (size, dim, dim) full, (1, dim, dim) tied.
    shares : (size, n_corners) float64
        Shares of the corners of all blocks; they sum to one in every block.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    covariance_type: CovarianceType
    shares: Floats = field(default_factory=lambda: NO_SHARES)

    def __post_init__(self) -> None:
        if self.shares is NO_SHARES:
            object.__setattr__(self, "shares", np.zeros((len(self.weights), 0)))

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """Number of columns of a record that are numbers."""
        return int(self.means.shape[1])

    @property
    def has_matrices(self) -> bool:
        """Whether covariances are matrices rather than variances along the axes."""
        return self.covariances.ndim == 3

    def matrices(self) -> Floats:
        """Return covariance matrices, (size, dim, dim)."""
        if self.has_matrices:
            return np.broadcast_to(self.covariances, (self.size, self.dim, self.dim)).copy()
        variances = np.broadcast_to(self.covariances, self.means.shape)
        return np.asarray(variances[:, :, None] * np.eye(self.dim))

    def subset(self, keep: Indices) -> Gaussians:
        """Return the components at the given indices."""
        shared = self.covariance_type == "tied"
        return replace(
            self,
            weights=self.weights[keep],
            means=self.means[keep],
            covariances=self.covariances if shared else self.covariances[keep],
            shares=self.shares[keep],
        )

    def in_order(self) -> Gaussians:
        """Return the components sorted by mean and shares, first coordinate first."""
        return self.subset(np.lexsort(np.hstack([self.means, self.shares]).T[::-1]))

    def normalised(self, ends: Indices) -> Gaussians:
        """Return the same mixture with shares that sum to one in every block."""
        if len(ends) == 0:
            return self
        atoms = Atoms(self.weights, self.means, self.means, self.shares).normalised(ends)
        return replace(self, weights=atoms.weights, shares=atoms.shares)


def from_variances(
    weights: Floats,
    means: Floats,
    variances: Floats,
    covariance_type: CovarianceType,
    shares: Floats = NO_SHARES,
) -> Gaussians:
    """Return components of a covariance type from axis variances, (1 or size, 1 or dim).

    A tied matrix becomes their mean by weight.
    """
    size, dim = means.shape
    full = np.broadcast_to(variances, (size, dim)).astype(np.float64)
    if covariance_type == "spherical":
        covariances = full.mean(axis=1, keepdims=True)
    elif covariance_type == "diag":
        covariances = full
    elif covariance_type == "full":
        covariances = full[:, :, None] * np.eye(dim)
    else:
        share = (weights + 1e-300) / np.sum(weights + 1e-300)
        covariances = np.diag(share @ full)[None]
    return Gaussians(weights, means, covariances, covariance_type, shares)


def quadratics(frequencies: Floats, covariance_type: CovarianceType) -> Floats:
    """Return the matrix Q, (m, q), for which `w'Sw = Q entries(S)` (see `entries`)."""
    if covariance_type == "spherical":
        return np.asarray(np.square(frequencies).sum(axis=1, keepdims=True))
    if covariance_type == "diag":
        return np.square(frequencies)
    rows, columns = np.tril_indices(frequencies.shape[1])
    twice = np.where(rows == columns, 1.0, 2.0)
    return np.asarray(frequencies[:, rows] * frequencies[:, columns] * twice)


def entries(covariances: Floats) -> Floats:
    """Return distinct entries, (size or 1, q): variances, or lower triangles row by row."""
    if covariances.ndim == 2:
        return covariances
    rows, columns = np.tril_indices(covariances.shape[1])
    return np.asarray(covariances[:, rows, columns])


def logarithms(gaussians: Gaussians) -> Floats:
    """Return distinct entries of the logarithms of the covariances, (size or 1, q)."""
    if not gaussians.has_matrices:
        return np.log(gaussians.covariances)
    values, vectors = np.linalg.eigh(gaussians.covariances)
    values = np.log(np.maximum(values, 1e-300))
    return entries((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))


def spectral_ratios(matrices: Floats) -> tuple[Floats, Floats]:
    """Return eigenvectors, and factors from changes of log S to changes of S in their basis.

    With eigenvalues l, d S_ij = d(log S)_ij (l_i - l_j) / (log l_i - log l_j) (Daleckii
    and Krein).
    """
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, 1e-300)
    half = (np.log(values)[:, :, None] - np.log(values)[:, None, :]) / 2
    mean = np.sqrt(values[:, :, None] * values[:, None, :])
    # The ratio is mean sinh(half) / half, smooth at equal ones.
    near = np.abs(half) < 1e-4
    safe = np.where(near, 1.0, np.clip(half, -300, 300))
    return vectors, np.asarray(mean * np.where(near, 1 + half**2 / 6, np.sinh(safe) / safe))


@dataclass(frozen=True)
class Waves:
    """Frequencies, and what else the features of components at them need."""

    frequencies: Floats  # (m, dim) of the numbers
    quadratic: Floats  # (m, q), see `quadratics`
    labels: Floats  # (n_corners, 2, m) real and imaginary parts of the waves of corners
    ends: Indices  # (n_blocks,) where the corners of each block end


@dataclass(frozen=True)
class Sums(Waves):
    """Moments to explain, as real numbers: all cosines before all sines."""

    values: Floats  # (2 m,)


def make_waves(
    frequencies: Floats, covariance_type: CovarianceType, layout: Layout | None = None
) -> Waves:
    """Return what components of a kind need at frequencies (m, dim) of whole records."""
    labels, ends = np.zeros((0, 2, len(frequencies))), np.zeros(0, dtype=np.int64)
    if layout is not None:
        labels, ends = layout.waves(frequencies), layout.ends
        frequencies = frequencies[:, layout.numbers]
    return Waves(frequencies, quadratics(frequencies, covariance_type), labels, ends)


def make_sums(
    frequencies: Floats,
    values: NDArray[np.complex128],
    covariance_type: CovarianceType,
    layout: Layout | None = None,
) -> Sums:
    """Return complex moments as a target for components of one kind."""
    waves = make_waves(frequencies, covariance_type, layout)
    stacked = np.concatenate([values.real, values.imag])
    return Sums(waves.frequencies, waves.quadratic, waves.labels, waves.ends, stacked)


def number_features(waves: Waves, gaussians: Gaussians) -> Floats:
    """Return the factors of the numbers in all features, (size, 2 m): cosines, then sines."""
    m = len(waves.frequencies)
    phases = gaussians.means @ waves.frequencies.T
    envelope = np.exp(entries(gaussians.covariances) @ waves.quadratic.T / -2)
    result = np.empty((gaussians.size, 2 * m))
    np.multiply(np.cos(phases), envelope, out=result[:, :m])
    np.multiply(np.sin(phases), envelope, out=result[:, m:])
    return result


def features(waves: Waves, gaussians: Gaussians) -> Floats:
    """Return moments of every component at unit weight, (size, 2 m): cosines, then sines."""
    return with_labels(number_features(waves, gaussians), waves, gaussians)


def with_labels(matrix: Floats, waves: Waves, gaussians: Gaussians) -> Floats:
    """Return rows (size, 2 m) times the factors of the components' blocks."""
    if len(waves.ends) == 0:
        return matrix
    product = as_complex(matrix)
    for factor in factors(waves.labels, waves.ends, gaussians.shares):
        product *= factor
    return as_real(product)


def without_each_block(
    matrix: Floats, waves: Waves, gaussians: Gaussians
) -> list[tuple[slice, Complex]]:
    """Return rows (size, 2 m) times the factors of all blocks but one, for each of the blocks."""
    if len(waves.ends) == 0:
        return []
    others = other_factors(matrix, factors(waves.labels, waves.ends, gaussians.shares))
    return list(zip(parts_of(waves.ends), others, strict=True))


def mixture_moments(
    frequencies: Floats, gaussians: Gaussians, layout: Layout | None = None
) -> NDArray[np.complex128]:
    """Return the moments of the whole mixture, (m,)."""
    waves = make_waves(frequencies, gaussians.covariance_type, layout)
    total = gaussians.weights @ features(waves, gaussians)
    m = len(frequencies)
    return np.asarray(total[:m] + 1j * total[m:])


def cost_and_gradient(sums: Sums, gaussians: Gaussians) -> tuple[float, Gaussians]:
    """Return the squared distance of mixture and sums, and its gradient by the components.

    The gradient by a covariance matrix is by its distinct entries, (size or 1, q).
    """
    numbers = number_features(sums, gaussians)
    matrix = with_labels(numbers, sums, gaussians)
    residual = gaussians.weights @ matrix - sums.values
    m = len(sums.frequencies)
    along = matrix * residual
    along = along[:, :m] + along[:, m:]
    across = matrix[:, :m] * residual[m:] - matrix[:, m:] * residual[:m]
    weights = gaussians.weights[:, None]
    by_entries = -weights * (along @ sums.quadratic)
    if gaussians.covariance_type == "tied":
        by_entries = by_entries.sum(axis=0, keepdims=True)
    by_share = np.empty(gaussians.shares.shape)
    for part, others in without_each_block(numbers, sums, gaussians):
        products = products_with_waves(others, residual, sums.labels[part])
        by_share[:, part] = 2 * weights * products
    gradient = replace(
        gaussians,
        weights=2 * along.sum(axis=1),
        means=2 * weights * (across @ sums.frequencies),
        covariances=by_entries,
        shares=by_share,
    )
    return float(residual @ residual), gradient


def merge_pairs(gaussians: Gaussians, pairs: Indices) -> Gaussians:
    """Return one component for each pair, with the moments of both; a tied matrix stays."""
    covariances = None if gaussians.covariance_type == "tied" else gaussians.covariances
    weights, means, merged = merged_moments(gaussians.weights, gaussians.means, covariances, pairs)
    merged = gaussians.covariances if merged is None else merged
    _, shares, _ = merged_moments(gaussians.weights, gaussians.shares, None, pairs)
    return replace(gaussians, weights=weights, means=means, covariances=merged, shares=shares)
