"""Candidates for centres: middles of the cubes of several shifted trees (Algorithm 2).

Cube centres may lie far outside the ball of the records, where a loss has no bound; all are
moved into the ball, and what coincides counts once. Both need no privacy: trees are released.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privsketch._typing import Integers, Whole
from privsketch.clustering.tree.cubes import Tree, grow
from privsketch.clustering.tree.projection import RADIUS, Projected, cut_to_ball
from privsketch.features.stream import PublicStream
from privsketch.noise.account import Account
from privsketch.noise.shares import Shares


def release_candidates(
    data: Projected,
    n_trees: int,
    n_levels: int,
    threshold: int,
    stream: PublicStream,
    account: Account,
    name: str,
) -> list[Tree]:
    """Trees of random public shifts.

    Charges: the share `name`, in equal parts for trees, and within a tree for levels.
    """
    shifts = public_shifts(n_trees, data.n_dimensions, stream)
    trees = {f"tree {i}": Fraction(1, n_trees) for i in range(n_trees)}
    levels = {f"level {i}": Fraction(1, n_levels) for i in range(1, n_levels + 1)}
    whole = Account(Shares(account.budget(name), trees))
    parts = [Account(Shares(whole.budget(tree), levels)) for tree in trees]
    grown = grow(data, shifts, threshold, parts)
    for tree, part in zip(trees, parts, strict=True):
        whole.charge(part.receipt(f"{tree}: cubes that hold many records", None), 0.0)
    account.charge(whole.receipt(f"{name}: private partition trees", None), 0.0)
    return grown


def public_shifts(count: int, n_dimensions: int, stream: PublicStream) -> Integers:
    """Shifts (count, p), uniform up to the radius in every dimension."""
    uniform = stream.uniform(count * n_dimensions).reshape(count, n_dimensions)
    return np.asarray(np.rint((2 * uniform - 1) * RADIUS), dtype=np.int64)


def candidate_centers(
    trees: Sequence[Tree], n_least: int, n_most: int, stream: PublicStream
) -> Whole:
    """Different whole points of the ball, (m, p), with n_least <= m <= n_most.

    Cubes of the last levels are kept first. If there are too few, random public points are added.
    """
    p = trees[0].n_dimensions
    # Last levels of all trees first: there the tree says most about where records are.
    levels = [_by_level(tree) for tree in trees]
    depth = range(max(len(level) for level in levels) - 1, -1, -1)
    ordered = [level[i] for i in depth for level in levels if i < len(level)]
    points = _different(cut_to_ball(np.concatenate(ordered)))[:n_most]
    while len(points) < n_least:
        more = np.rint((2 * stream.uniform(n_least * p).reshape(-1, p) - 1) * RADIUS)
        points = _different(np.concatenate([points, cut_to_ball(more)]))[
            : max(n_least, len(points))
        ]
    return points


def _by_level(tree: Tree) -> list[Whole]:
    ends = np.cumsum([1, *(len(active) for active in tree.active)])
    return np.split(tree.centers(), ends[:-1])


def _different(points: Whole) -> Whole:
    """Points without repetitions, each where it came first."""
    _, first = np.unique(points, axis=0, return_index=True)
    return np.asarray(points[np.sort(first)])
