"""Gaussian components of a mixture: covariances of four kinds and their moments.

A component with weight a, mean c and covariance S contributes
`a exp(i w.c - w'Sw / 2)`, its characteristic function, to the moment at frequency w
(Keriven et al. 2018, "Sketching for large-scale learning of mixture models").
Covariances have scikit-learn's names: "spherical" (one variance each), "diag" (one for
each axis), "full", and "tied" (one full matrix that all share). `w'Sw` is linear in the
entries of S, so value and gradient are plain matrix products for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Weighted Gaussian components.

    Attributes
    ----------
    weights : (size,) float64
        Non-negative, in any unit.
    means : (size, dim) float64
    covariances : float64
        (size, 1) spherical, (size, dim) diag, (size, dim, dim) full, (1, dim, dim) tied.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    covariance_type: CovarianceType

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return int(self.means.shape[1])

    @property
    def has_matrices(self) -> bool:
        """Whether covariances are matrices rather than variances along the axes."""
        return self.covariances.ndim == 3

    def matrices(self) -> Floats:
        """(size, dim, dim) covariance matrices."""
        if self.has_matrices:
            return np.broadcast_to(self.covariances, (self.size, self.dim, self.dim)).copy()
        variances = np.broadcast_to(self.covariances, self.means.shape)
        return np.asarray(variances[:, :, None] * np.eye(self.dim))

    def subset(self, keep: NDArray[np.intp]) -> Gaussians:
        """The components at the given indices."""
        shared = self.covariance_type == "tied"
        return replace(
            self,
            weights=self.weights[keep],
            means=self.means[keep],
            covariances=self.covariances if shared else self.covariances[keep],
        )

    def in_order(self) -> Gaussians:
        """Sorted by mean, first coordinate first."""
        return self.subset(np.lexsort(self.means.T[::-1]))


def from_variances(
    weights: Floats, means: Floats, variances: Floats, covariance_type: CovarianceType
) -> Gaussians:
    """Components with axis variances, (1 or size, 1 or dim), in the form of another kind.

    A tied matrix becomes the mean of all, by weight.
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
    return Gaussians(weights, means, covariances, covariance_type)


def quadratics(frequencies: Floats, covariance_type: CovarianceType) -> Floats:
    """(m, q) numbers Q with `w'Sw = Q . entries(S)` (see `entries`)."""
    if covariance_type == "spherical":
        return np.asarray(np.square(frequencies).sum(axis=1, keepdims=True))
    if covariance_type == "diag":
        return np.square(frequencies)
    rows, columns = np.tril_indices(frequencies.shape[1])
    twice = np.where(rows == columns, 1.0, 2.0)
    return np.asarray(frequencies[:, rows] * frequencies[:, columns] * twice)


def entries(covariances: Floats) -> Floats:
    """(size or 1, q) the distinct entries: variances, or lower triangles row by row."""
    if covariances.ndim == 2:
        return covariances
    rows, columns = np.tril_indices(covariances.shape[1])
    return np.asarray(covariances[:, rows, columns])


def features(frequencies: Floats, quadratic: Floats, gaussians: Gaussians) -> Floats:
    """(size, 2 m) moments of every component at unit weight: cosines, then sines."""
    m = len(frequencies)
    phases = gaussians.means @ frequencies.T
    envelope = np.exp(entries(gaussians.covariances) @ quadratic.T / -2)
    result = np.empty((gaussians.size, 2 * m))
    np.multiply(np.cos(phases), envelope, out=result[:, :m])
    np.multiply(np.sin(phases), envelope, out=result[:, m:])
    return result


def moments(frequencies: Floats, gaussians: Gaussians) -> NDArray[np.complex128]:
    """(m,) moments of the whole mixture."""
    quadratic = quadratics(frequencies, gaussians.covariance_type)
    total = gaussians.weights @ features(frequencies, quadratic, gaussians)
    m = len(frequencies)
    return np.asarray(total[:m] + 1j * total[m:])


@dataclass(frozen=True)
class Sums:
    """Moments to explain, as real numbers: all cosines before all sines."""

    frequencies: Floats  # (m, dim)
    quadratic: Floats  # (m, q), see `quadratics`
    values: Floats  # (2 m,)


def make_sums(
    frequencies: Floats, values: NDArray[np.complex128], covariance_type: CovarianceType
) -> Sums:
    """Complex moments as a target for components of one kind."""
    stacked = np.concatenate([values.real, values.imag])
    return Sums(frequencies, quadratics(frequencies, covariance_type), stacked)


def cost_and_gradient(sums: Sums, gaussians: Gaussians) -> tuple[float, Gaussians]:
    """Squared distance of mixture and sums, and its gradient in the shape of the components.

    The gradient by a covariance matrix is by its distinct entries, (size or 1, q).
    """
    matrix = features(sums.frequencies, sums.quadratic, gaussians)
    residual = gaussians.weights @ matrix - sums.values
    m = len(sums.frequencies)
    along = matrix * residual
    along = along[:, :m] + along[:, m:]
    across = matrix[:, :m] * residual[m:] - matrix[:, m:] * residual[:m]
    weights = gaussians.weights[:, None]
    by_entries = -weights * (along @ sums.quadratic)
    if gaussians.covariance_type == "tied":
        by_entries = by_entries.sum(axis=0, keepdims=True)
    gradient = replace(
        gaussians,
        weights=2 * along.sum(axis=1),
        means=2 * weights * (across @ sums.frequencies),
        covariances=by_entries,
    )
    return float(residual @ residual), gradient


def merge_pairs(gaussians: Gaussians, pairs: NDArray[np.intp]) -> Gaussians:
    """One component for each pair, with the weight, mean and covariance of the two together.

    "diag" keeps the variances along the axes, "spherical" their mean; a tied matrix is
    everybody's and stays.
    """
    first, second = pairs.T
    weights = gaussians.weights[first] + gaussians.weights[second]
    share = np.full(len(pairs), 0.5)
    np.divide(gaussians.weights[second], weights, out=share, where=weights > 0)
    step = gaussians.means[second] - gaussians.means[first]
    means = gaussians.means[first] + share[:, None] * step
    covariances = gaussians.covariances
    if gaussians.covariance_type != "tied":
        if gaussians.covariance_type == "full":
            spread = step[:, :, None] * step[:, None, :]
        else:
            spread = np.square(step)
        if gaussians.covariance_type == "spherical":
            spread = spread.mean(axis=1, keepdims=True)
        share = share.reshape(-1, *[1] * (covariances.ndim - 1))
        inside = (1 - share) * covariances[first] + share * covariances[second]
        covariances = inside + share * (1 - share) * spread
    return replace(gaussians, weights=weights, means=means, covariances=covariances)
