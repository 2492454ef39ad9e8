"""Fewer atoms for nearly the same moments: delete the idle, merge the twins."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import inv

from privsketch._typing import Floats, Real
from privsketch.learning.atoms import (
    Atoms,
    Target,
    best_weights,
    features,
    inner_products,
    ridged,
    tapered_features,
)

N_NEIGHBOURS = 3  # merge partners tried per atom
PAIRS_PER_BLOCK = 64  # bounds the memory of the merge candidates


def prune(target: Target, atoms: Atoms, n_atoms: int) -> Atoms:
    """Reduce to `n_atoms` atoms, half of the surplus at a time.

    The price of a removal is only exact as long as the other atoms stay, so few
    are removed before prices and weights are computed afresh.
    """
    while atoms.size > n_atoms:
        surplus = atoms.size - n_atoms
        atoms = remove_cheapest(target, atoms, (surplus + 1) // 2)
        weights = best_weights(target, atoms.centers, atoms.variances)
        atoms = Atoms(weights, atoms.centers, atoms.variances)
    return atoms


def remove_cheapest(target: Target, atoms: Atoms, n_remove: int) -> Atoms:
    """Apply up to `n_remove` of the cheapest deletions and merges.

    An atom takes part in one change only; the nearest neighbour of a deleted
    atom is left alone too, because it inherits the weight: of two twins either
    looks idle, but not both.
    """
    matrix = tapered_features(target, atoms.centers, atoms.variances)
    nearest = nearest_neighbours(atoms.centers, N_NEIGHBOURS)
    pairs = _unique_pairs(nearest)
    merged = merge_pairs(atoms, pairs)
    residual = atoms.weights @ matrix - target.moments * np.tile(target.taper, 2)
    prices = np.concatenate(
        [
            deletion_prices(atoms.weights, ridged(target, inner_products(matrix))),
            _merge_prices(target, atoms, matrix, residual, pairs, merged),
        ]
    )
    touched = np.zeros(atoms.size, dtype=bool)
    removed = np.zeros(atoms.size, dtype=bool)
    accepted: list[int] = []
    n_removed = 0
    for choice in np.argsort(prices, kind="stable"):
        if n_removed == n_remove:
            break
        if choice < atoms.size:
            members = np.array([choice, *nearest[choice, :1]])
            if touched[choice] or removed.all():
                continue
            removed[choice] = True
        else:
            members = pairs[choice - atoms.size]
            if touched[members].any():
                continue
            removed[members] = True
            accepted.append(int(choice) - atoms.size)
        touched[members] = True
        n_removed += 1
    kept = atoms.subset(np.flatnonzero(~removed))
    new = merged.subset(np.array(accepted, dtype=np.intp))
    return Atoms(
        np.concatenate([kept.weights, new.weights]),
        np.concatenate([kept.centers, new.centers]),
        atoms.variances if atoms.shared else np.concatenate([kept.variances, new.variances]),
    )


def deletion_prices(weights: Floats, gram: Floats) -> Floats:
    """Growth of the cost when one atom goes and the others refit: a_i^2 / (G^-1)_ii."""
    return np.asarray(weights**2 / np.diag(inv(gram)))


def merge_pairs(atoms: Atoms, pairs: NDArray[np.intp]) -> Atoms:
    """One atom for each pair with its total weight, its mean and, if own, its variances."""
    first, second = pairs.T
    weights = atoms.weights[first] + atoms.weights[second]
    share = np.full(len(pairs), 0.5)
    np.divide(atoms.weights[second], weights, out=share, where=weights > 0)
    step = atoms.centers[second] - atoms.centers[first]
    centers = atoms.centers[first] + share[:, None] * step
    if atoms.shared:
        return Atoms(weights, centers, atoms.variances)
    share = share[:, None]
    spread = share * (1 - share) * step**2
    if atoms.variances.shape[1] == 1:
        spread = spread.mean(axis=1, keepdims=True)
    inside = (1 - share) * atoms.variances[first] + share * atoms.variances[second]
    return Atoms(weights, centers, inside + spread)


def nearest_neighbours(centers: Floats, n_neighbours: int) -> NDArray[np.intp]:
    """(size, at most n_neighbours) indices of the nearest other centres."""
    norms = np.einsum("kd,kd->k", centers, centers)
    distances = norms[:, None] + norms[None, :] - 2 * centers @ centers.T
    np.fill_diagonal(distances, np.inf)
    n_neighbours = min(n_neighbours, len(centers) - 1)
    return np.argsort(distances, axis=1, kind="stable")[:, :n_neighbours]


def _unique_pairs(nearest: NDArray[np.intp]) -> NDArray[np.intp]:
    n_atoms, n_neighbours = nearest.shape
    first = np.repeat(np.arange(n_atoms), n_neighbours)
    pairs = np.sort(np.stack([first, nearest.ravel()], axis=1), axis=1)
    return np.unique(pairs, axis=0).astype(np.intp).reshape(-1, 2)


def _merge_prices(
    target: Target,
    atoms: Atoms,
    matrix: Real,
    residual: Real,
    pairs: NDArray[np.intp],
    merged: Atoms,
) -> Floats:
    """Growth of the cost when each pair is replaced by its merged atom.

    `matrix` holds the tapered features of the atoms, `residual` the tapered
    residual of the model.
    """
    prices = np.empty(len(pairs))
    # The atoms as they are in the model; differences of twins need few digits.
    dtype = target.frequencies.dtype
    weighted = (atoms.weights[:, None] * matrix).astype(dtype)
    residual = residual.astype(dtype)
    taper = np.tile(target.taper, 2)
    for begin in range(0, len(pairs), PAIRS_PER_BLOCK):
        block = np.arange(begin, min(begin + PAIRS_PER_BLOCK, len(pairs)), dtype=np.intp)
        new = merged.subset(block)
        change = features(target, new.centers, new.variances)
        change *= new.weights.astype(dtype)[:, None]
        change *= taper
        change -= weighted[pairs[block, 0]]
        change -= weighted[pairs[block, 1]]
        prices[block] = np.einsum("pj,pj->p", change, change) + 2 * (change @ residual)
    return prices
