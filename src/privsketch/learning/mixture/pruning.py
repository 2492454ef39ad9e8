"""Fewer components for nearly the same moments.

A surplus of components finds what exactly as many as asked for would miss. The surplus
goes one by one: a component is deleted, or two are merged into one with the moments of
both, whichever lets the rest explain the sums best when its weights are fitted again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls

from privsketch._typing import Floats
from privsketch.learning.mixture.gaussians import Gaussians, Sums, features, merge_pairs

N_NEIGHBOURS = 4  # merge partners tried per component
RIDGE = 1e-6  # relative to the largest squared norm; keeps twins invertible


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
