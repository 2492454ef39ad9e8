"""Fewer atoms for nearly the same moments: delete redundant atoms, merge similar ones.

Atoms are removed in rounds, and most of them stay from one round to the next. The features of an
atom and their inner products are computed once and kept until the last round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import inv

from privsketch._base.types import Floats, Indices, Real
from privsketch.kernels.atoms import ATOMS
from privsketch.kernels.pairs import compile_merges
from privsketch.learning.problem import (
    Atoms,
    Target,
    inner_products,
    nonnegative_solution,
    ridged,
    tapered_features,
)
from privsketch.learning.refine import HALF_BITS, TURN

REMOVED_SHARE = 0.03  # share of the atoms removed in one round; so few are seldom neighbours
PARTNERS_PER_ATOM = 3  # merge partners tried per atom


def prune(target: Target, atoms: Atoms, n_atoms: int) -> Atoms:
    """Reduce to `n_atoms` atoms, half of the surplus at a time.

    The price of a removal is exact only while its neighbours stay, so few atoms are removed before
    prices and weights are computed again.
    """
    if atoms.size <= n_atoms:
        return atoms
    pool = AtomPool(target, atoms)
    while pool.atoms.size > n_atoms:
        surplus = pool.atoms.size - n_atoms
        n_remove = max((surplus + 1) // 2, int(REMOVED_SHARE * pool.atoms.size))
        pool.remove_cheapest(min(surplus, n_remove))
        pool.refit_weights()
    return pool.atoms


class AtomPool:
    """Atoms with their features, of which some are removed.

    Parameters
    ----------
    target : Target
        The moments that the atoms explain.
    atoms : Atoms
        Atoms to begin with.
    """

    def __init__(self, target: Target, atoms: Atoms) -> None:
        self.atoms = atoms
        kind = "float" if target.taper.dtype == np.float32 else "double"
        self._merges = compile_merges(kind)
        # Compiled code takes complete tiles: the added features have taper 0, hence no weight.
        self._target = target = target.padded(self._merges.shape.tile)
        self._moments = target.moments * np.tile(target.taper, 2)
        self._frequencies = np.ascontiguousarray(target.frequencies.T / TURN, target.taper.dtype)
        exponents = target.exponents(atoms.variances).T * HALF_BITS
        self._exponents = np.ascontiguousarray(exponents, target.taper.dtype)
        # A merge replaces two atoms by one, so there are fewer new atoms than initial ones.
        n_rows, n_columns = 2 * atoms.size, 2 * target.n_features
        self._features = np.empty((n_rows, n_columns), target.taper.dtype)
        self._products = np.empty((n_rows, n_rows))
        self._scores = np.empty(n_rows)  # inner products with the moments
        self._n_rows = 0
        self._rows = self._add(atoms)

    def _add(self, atoms: Atoms) -> Indices:
        """Compute features and inner products of new atoms; return their rows."""
        first, end = self._n_rows, self._n_rows + atoms.size
        if first == end:
            return np.arange(0)
        rows = self._features[first:end]
        rows[:] = tapered_features(self._target, atoms.centers, atoms.variances, atoms.shares)
        self._products[first:end, first:end] = inner_products(rows)
        if first:
            cross = self._features[:first] @ rows.T
            self._products[:first, first:end] = cross
            self._products[first:end, :first] = cross.T
        self._scores[first:end] = rows @ self._moments
        self._n_rows = end
        return np.arange(first, end)

    def _gram(self) -> Floats:
        return ridged(self._target, self._products[np.ix_(self._rows, self._rows)])

    def refit_weights(self) -> None:
        """Fit the weights of the atoms again, as nonnegative least squares."""
        weights = nonnegative_solution(self._gram(), self._scores[self._rows])
        self.atoms = replace(self.atoms, weights=weights)

    def remove_cheapest(self, n_remove: int) -> None:
        """Apply up to `n_remove` of the cheapest deletions and merges.

        An atom takes part in only one change. The nearest neighbour of a deleted atom stays: it
        inherits the weight. Of two equal atoms, each looks redundant, but not both are.
        """
        atoms = self.atoms
        positions = np.hstack([atoms.centers, atoms.shares * self._target.sides])
        nearest = nearest_neighbours(positions, PARTNERS_PER_ATOM)
        pairs = neighbour_pairs(nearest)
        merged = merge_pairs(atoms, pairs)
        prices = np.concatenate(
            [deletion_prices(atoms.weights, self._gram()), self.merge_prices(pairs, merged)]
        )
        indices = np.arange(atoms.size)
        heir = nearest[:, 0] if nearest.size else indices
        options = choose_disjoint(
            np.argsort(prices, kind="stable"),
            needs=np.vstack([np.stack([indices, indices], axis=1), pairs]),
            touches=np.vstack([np.stack([indices, heir], axis=1), pairs]),
            n_options=n_remove,
        )
        merges = options[options >= atoms.size] - atoms.size
        keep = np.delete(indices, np.append(options[options < atoms.size], pairs[merges]))
        remaining, new = atoms.subset(keep), merged.subset(merges)
        self._rows = np.concatenate([self._rows[keep], self._add(new)])
        self.atoms = remaining.joined(new, shared=atoms.shared)

    def merge_prices(self, pairs: Indices, merged: Atoms) -> Floats:
        """Return the growth of the cost when each pair is replaced by its merged atom."""
        atoms, dtype = self.atoms, self._features.dtype
        weights = np.zeros(self._n_rows, dtype)
        weights[self._rows] = atoms.weights
        residual = weights @ self._features[: self._n_rows] - self._moments
        if len(self._target.ends):
            return self._prices_of_products(pairs, merged, residual)
        n = -(-len(pairs) // ATOMS) * ATOMS
        first, second = np.zeros((2, n), np.int64)
        factors = np.zeros((n, 3), dtype)
        centers = np.zeros((n, atoms.centers.shape[1]), dtype)
        variances = np.zeros((n, len(self._exponents)), dtype)
        prices = np.zeros((n, self._merges.shape.lanes), dtype)
        if len(pairs):
            first[: len(pairs)], second[: len(pairs)] = self._rows[pairs].T
            factors[: len(pairs), 0] = merged.weights
            factors[: len(pairs), 1:] = atoms.weights[pairs]
            centers[: len(pairs)] = merged.centers
            variances[: len(pairs)] = merged.variances
            inputs = (
                *(self._frequencies, self._exponents, self._target.taper, residual),
                *(self._features, factors, centers, variances, first, second, prices),
            )
            self._merges.code.function(
                self._target.n_features // self._merges.shape.tile,
                n // ATOMS,
                centers.shape[1],
                variances.shape[1],
                *(array.ctypes.data for array in inputs),
            )
        return np.asarray(prices[: len(pairs)].sum(axis=1, dtype=np.float64))

    def _prices_of_products(self, pairs: Indices, merged: Atoms, residual: Real) -> Floats:
        rows = self._features[self._rows]
        changes = tapered_features(self._target, merged.centers, merged.variances, merged.shares)
        changes *= merged.weights.astype(changes.dtype)[:, None]
        for side in pairs.T:
            changes -= self.atoms.weights[side].astype(changes.dtype)[:, None] * rows[side]
        return np.asarray(changes @ (2 * residual) + np.einsum("pj,pj->p", changes, changes))


def deletion_prices(weights: Floats, gram: Floats) -> Floats:
    """Return the growth of the cost if each atom is deleted: a_i^2 / (G^-1)_ii after refitting."""
    return np.asarray(weights**2 / np.diag(inv(gram)))


def merge_pairs(atoms: Atoms, pairs: Indices) -> Atoms:
    """Return one atom for each pair, with the moments of both; shared variances stay."""
    variances = None if atoms.shared else atoms.variances
    weights, centers, merged = merged_moments(atoms.weights, atoms.centers, variances, pairs)
    _, shares, _ = merged_moments(atoms.weights, atoms.shares, None, pairs)
    return Atoms(weights, centers, atoms.variances if merged is None else merged, shares)


def merged_moments(
    weights: Floats, means: Floats, covariances: Floats | None, pairs: Indices
) -> tuple[Floats, Floats, Floats | None]:
    """Return total weight, mean and covariance of the two components of each pair.

    `covariances` are variances, (size, 1) or (size, dim), or matrices, (size, dim, dim). A
    single variance becomes the mean over all axes. None stands for a covariance that all share.
    """
    first, second = pairs.T
    totals = weights[first] + weights[second]
    share = np.full(len(pairs), 0.5)
    np.divide(weights[second], totals, out=share, where=totals > 0)
    step = means[second] - means[first]
    centers = means[first] + share[:, None] * step
    if covariances is None:
        return totals, centers, None
    spread = np.square(step) if covariances.ndim == 2 else step[:, :, None] * step[:, None, :]
    if covariances.shape[1] == 1 and covariances.ndim == 2:
        spread = spread.mean(axis=1, keepdims=True)
    share = share.reshape(-1, *[1] * (covariances.ndim - 1))
    within = (1 - share) * covariances[first] + share * covariances[second]
    return totals, centers, within + share * (1 - share) * spread


def nearest_neighbours(centers: Floats, n_neighbours: int) -> Indices:
    """Return indices of the nearest other centers, (size, at most n_neighbours)."""
    norms = np.einsum("kd,kd->k", centers, centers)
    distances = norms[:, None] + norms[None, :] - 2 * centers @ centers.T
    np.fill_diagonal(distances, np.inf)
    n_neighbours = min(n_neighbours, len(centers) - 1)
    if n_neighbours == 0:
        return np.zeros((len(centers), 0), np.intp)
    near = np.argpartition(distances, n_neighbours - 1, axis=1)[:, :n_neighbours]
    order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
    return np.take_along_axis(near, order, axis=1)


def nearest_by_distance(distances: Floats, n_neighbours: int) -> Indices:
    """Return the nearest other components, (size, n_neighbours), by their distances."""
    np.fill_diagonal(distances, np.inf)
    order = np.argsort(distances, axis=1, kind="stable")
    return order[:, : min(n_neighbours, len(distances) - 1)]


def neighbour_pairs(nearest: Indices) -> Indices:
    """Return the (n, 2) distinct pairs of components with one among the other's neighbours."""
    size, n_neighbours = nearest.shape
    first, second = np.repeat(np.arange(size), n_neighbours), nearest.ravel()
    codes = np.unique(np.minimum(first, second) * size + np.maximum(first, second))
    return np.stack([codes // size, codes % size], axis=1)


def choose_disjoint(order: Indices, *, needs: Indices, touches: Indices, n_options: int) -> Indices:
    """Return the first options of an order that do not interfere with each other.

    Each row of `needs` and `touches`, (n, 2), has two components. An option is selected if no
    earlier option touches a component that it needs.
    """
    selection: list[int] = []
    blocked: set[int] = set()
    needed, touched = needs.tolist(), touches.tolist()
    for option in order.tolist():
        if len(selection) == n_options:
            break
        if blocked.isdisjoint(needed[option]):
            selection.append(option)
            blocked.update(touched[option])
    return np.array(selection, dtype=np.intp)
