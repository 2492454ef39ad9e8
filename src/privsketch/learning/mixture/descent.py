"""Joint descent in the weights, means and covariances of all components.

Plain least squares on the moments, by L-BFGS-B. Variances are variables with a lower
bound; a matrix is `L L' + smallest I` with a triangular L, positive definite whatever L
is. Variables are scaled by the diagonal of the Gauss-Newton matrix, without which they
differ by orders of magnitude in curvature.

Fewer components for nearly the same moments.

A surplus of components finds what exactly as many as asked for would miss. The surplus
goes one by one: a component is deleted, or two are merged into one with the moments of
both, whichever lets the rest explain the sums best when its weights are fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import Bounds, minimize, nnls

from privsketch._base.types import Floats
from privsketch.learning.mixture.gaussians import (
    Gaussians,
    Sums,
    cost_and_gradient,
    features,
    merge_pairs,
)

MAX_WEIGHT = 1e6  # in units in which all weights together are about one
MIN_VARIANCE = 1e-4  # times the square of the shortest wavelength, over 2 pi
N_NEIGHBOURS = 4  # merge partners tried per component
RIDGE = 1e-6  # relative to the largest squared norm; keeps twins invertible


@dataclass(frozen=True)
class Limits:
    """Where components may lie: means in the box, standard deviations from `smallest` up."""

    low: Floats
    high: Floats
    smallest: float  # variance

    @property
    def largest(self) -> Floats:
        """No distribution on an interval has a larger variance than this, (dim,)."""
        return np.maximum(np.square(self.high - self.low) / 4, 4 * self.smallest)


def make_limits(frequencies: Floats, low: Floats, high: Floats) -> Limits:
    """Limits for a design: widths far below the shortest wavelength look all the same."""
    highest = float(np.max(np.square(frequencies).sum(axis=1), initial=0.0))
    fallback = float(np.max(high - low)) ** 2
    return Limits(low, high, MIN_VARIANCE / highest if highest > 0 else fallback)


def pack(gaussians: Gaussians, limits: Limits) -> Floats:
    """All components as one vector of variables."""
    if not gaussians.has_matrices:
        shapes = gaussians.covariances
    else:
        rows, columns = np.tril_indices(gaussians.dim)
        values, vectors = np.linalg.eigh(gaussians.covariances)
        # At L = 0 the gradient by L vanishes: never start there.
        values = np.maximum(values - limits.smallest, 0.1 * limits.smallest)
        roots = vectors * np.sqrt(values)[:, None, :]
        shapes = np.linalg.cholesky(roots @ roots.transpose(0, 2, 1))[:, rows, columns]
    return np.concatenate([gaussians.weights, gaussians.means.ravel(), shapes.ravel()])


def unpack(variables: Floats, like: Gaussians, limits: Limits) -> Gaussians:
    """The components of a vector of variables, of the size and kind of `like`."""
    size, dim = like.means.shape
    shapes = variables[size * (dim + 1) :]
    if like.has_matrices:
        factors = as_factors(shapes, dim)
        covariances = factors @ factors.transpose(0, 2, 1) + limits.smallest * np.eye(dim)
    else:
        covariances = shapes.reshape(like.covariances.shape)
    means = variables[size : size * (dim + 1)].reshape(size, dim)
    return replace(like, weights=variables[:size], means=means, covariances=covariances)


def as_factors(shapes: Floats, dim: int) -> Floats:
    """(any, dim, dim) lower triangles from their entries."""
    rows, columns = np.tril_indices(dim)
    factors = np.zeros((shapes.size // len(rows), dim, dim))
    factors[:, rows, columns] = shapes.reshape(-1, len(rows))
    return factors


def objective(
    variables: Floats, sums: Sums, like: Gaussians, limits: Limits
) -> tuple[float, Floats]:
    """Cost and gradient by the variables."""
    value, gradient = cost_and_gradient(sums, unpack(variables, like, limits))
    size, dim = like.means.shape
    by_shape = gradient.covariances
    if like.has_matrices:
        # d S = dL L' + L dL'; an off-diagonal entry stands for two cells of S.
        rows, columns = np.tril_indices(dim)
        by_matrix = as_factors(by_shape, dim)
        by_matrix = by_matrix + by_matrix.transpose(0, 2, 1)
        product = by_matrix @ as_factors(variables[size * (dim + 1) :], dim)
        by_shape = product[:, rows, columns]
    return value, np.concatenate([gradient.weights, gradient.means.ravel(), by_shape.ravel()])


def descend(
    sums: Sums, gaussians: Gaussians, limits: Limits, *, n_iterations: int
) -> tuple[Gaussians, float]:
    """Descend jointly in everything; the components found and their cost."""
    size, dim = gaussians.means.shape
    start = pack(gaussians, limits)
    scale = _curvature_scales(sums, gaussians, start)
    if gaussians.has_matrices:
        rows, _ = np.tril_indices(dim)
        upper_shape = np.tile(np.sqrt(limits.largest)[rows], len(gaussians.covariances))
        lower_shape = -upper_shape
    else:
        largest = limits.largest
        if gaussians.covariance_type == "spherical":
            largest = np.max(largest, keepdims=True)
        upper_shape = np.tile(largest, size)
        lower_shape = np.full(upper_shape.shape, limits.smallest)
    lower = np.concatenate([np.zeros(size), np.tile(limits.low, size), lower_shape])
    upper = np.concatenate([np.full(size, MAX_WEIGHT), np.tile(limits.high, size), upper_shape])

    def scaled(x: Floats) -> tuple[float, Floats]:
        value, gradient = objective(x / scale, sums, gaussians, limits)
        return value, gradient / scale

    result = minimize(
        scaled,
        np.clip(start, lower, upper) * scale,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower * scale, upper * scale),
        options={"maxiter": n_iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-10},
    )
    # Dividing by the scale may leave the bounds by one rounding.
    found = np.clip(np.asarray(result.x, dtype=np.float64) / scale, lower, upper)
    return unpack(found, gaussians, limits), float(result.fun)


def _curvature_scales(sums: Sums, gaussians: Gaussians, variables: Floats) -> Floats:
    """Square roots of the Gauss-Newton diagonal."""
    size, dim = gaussians.means.shape
    m = len(sums.frequencies)
    matrix = features(sums.frequencies, sums.quadratic, gaussians)
    energy = np.square(matrix[:, :m]) + np.square(matrix[:, m:])
    # A component of next to no weight would have next to no curvature: floor it.
    floor = max(0.1 * float(np.mean(gaussians.weights)), 1e-8)
    weights = np.maximum(gaussians.weights, floor)[:, None]
    squares = np.square(sums.frequencies)
    by_mean = weights * np.sqrt(energy @ squares)
    if gaussians.has_matrices:
        rows, columns = np.tril_indices(dim)
        factors = as_factors(variables[size * (dim + 1) :], dim)
        # d(w'Sw) / dL_ab = 2 w_a (L'w)_b
        turned = np.einsum("ja,kab->kjb", sums.frequencies, factors)
        slopes = sums.frequencies[None, :, rows] * turned[:, :, columns]
        by_shape = np.sqrt(np.einsum("kj,kjq->kq", energy, np.square(slopes)))
    else:
        by_shape = np.sqrt(energy @ np.square(sums.quadratic)) / 2
    by_shape = weights * by_shape
    if gaussians.covariance_type == "tied":
        by_shape = np.sqrt(np.square(by_shape).sum(axis=0, keepdims=True))
    scales = np.concatenate([np.sqrt(energy.sum(axis=1)), by_mean.ravel(), by_shape.ravel()])
    return np.asarray(np.maximum(scales, 1e-8 * float(np.max(scales)) + 1e-100))


def remove_cheapest(sums: Sums, gaussians: Gaussians, rank: int = 0) -> Gaussians:
    """One component fewer, with the best weights for the components that stay.

    `rank` 1 takes the cheapest way that touches other components than the cheapest one
    (of two twins, deleting either and merging both come to the same), and so on.
    """
    size = gaussians.size
    pairs = near_pairs(gaussians, N_NEIGHBOURS)
    candidates = join(gaussians, merge_pairs(gaussians, pairs))
    matrix = features(sums.frequencies, sums.quadratic, candidates)
    inner, right = matrix @ matrix.T, matrix @ sums.values
    everyone = np.arange(size)
    options = [np.delete(everyone, i) for i in range(size)]
    nearest = _nearest(gaussians, 1)
    touched = [{i, *nearest[i].tolist()} for i in range(size)]
    for number, pair in enumerate(pairs):
        options.append(np.append(np.delete(everyone, pair), size + number))
        touched.append(set(pair.tolist()))
    chosen = np.array(options, dtype=np.intp)  # (options, size - 1)
    inners = inner[chosen[:, :, None], chosen[:, None, :]]
    rights = right[chosen]
    ridge = RIDGE * max(float(np.max(np.diag(inner))), 1e-100)
    solved = np.linalg.solve(inners + ridge * np.eye(size - 1), rights[:, :, None])[:, :, 0]
    # What the best weights explain, ridge included; the most explained is the cheapest.
    order = np.argsort(-np.einsum("oi,oi->o", solved, rights), kind="stable")
    best = chosen[_pick([int(option) for option in order], touched, rank)]
    kept = candidates.subset(best)
    return replace(kept, weights=_best_weights(inner[np.ix_(best, best)], right[best], ridge))


def _pick(order: list[int], touched: list[set[int]], rank: int) -> int:
    """The option of this rank among those that touch nothing in common; the last if fewer."""
    taken: set[int] = set()
    picked = order[0]
    for option in order:
        if not taken & touched[option]:
            picked = option
            taken |= touched[option]
            rank -= 1
            if rank < 0:
                break
    return picked


def join(first: Gaussians, second: Gaussians) -> Gaussians:
    """The components of both; a tied covariance is that of the first."""
    covariances = first.covariances
    if first.covariance_type != "tied":
        covariances = np.concatenate([covariances, second.covariances])
    return Gaussians(
        np.concatenate([first.weights, second.weights]),
        np.concatenate([first.means, second.means]),
        covariances,
        first.covariance_type,
    )


def near_pairs(gaussians: Gaussians, n_neighbours: int) -> NDArray[np.intp]:
    """(n, 2) pairs of components of which one is among the nearest of the other."""
    nearest = _nearest(gaussians, n_neighbours)
    first = np.repeat(np.arange(gaussians.size), nearest.shape[1])
    pairs = np.sort(np.stack([first, nearest.ravel()], axis=1), axis=1)
    return np.unique(pairs, axis=0).astype(np.intp).reshape(-1, 2)


def _nearest(gaussians: Gaussians, n_neighbours: int) -> NDArray[np.intp]:
    """(size, at most n_neighbours) indices of the nearest other means."""
    steps = gaussians.means[:, None] - gaussians.means[None]
    distances = np.square(steps).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, : min(n_neighbours, len(steps) - 1)]


def _best_weights(inner: Floats, right: Floats, ridge: float) -> Floats:
    """Non-negative least squares from a Gram matrix."""
    inner = inner + ridge * np.eye(len(inner))
    weights = cho_solve(cho_factor(inner), right)
    if np.any(weights < 0):
        factor = np.linalg.cholesky(inner)
        weights, _ = nnls(factor.T, np.linalg.solve(factor, right))
    return np.asarray(weights, dtype=np.float64)
