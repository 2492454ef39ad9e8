"""Private partition trees of projected records, and candidates for centers from them.

Balcan et al. (2017), "Differentially Private Clustering in High-Dimensional Euclidean Spaces".

Projection. Records are projected on a few public random directions, in integers. The rows of the
matrix are sqrt(d / p) times orthonormal ones, which keeps lengths on average. The paper divides by
sqrt(d), which does not, and uses the radius of the records for their projections, which may be
longer. Here projections are cut to a radius that nearly all are within. Both depend on the record
and on public numbers only.

Tree (Algorithm 1). A cube around all projections, shifted at random, is split into 2^p cubes. A
child is split again if its noisy count reaches a threshold, for a public number of levels. A
record is in one cube of a level, so a level costs one count for any number of cubes; levels add up.
Empty cubes are treated like all others (noise/choice.py): omitting them would reveal that they are
empty.

Candidates (Algorithm 2). They are the centers of the cubes of several shifted trees. These may lie
far outside the ball of the records, where a loss has no bound. All are moved into the ball, and
coinciding points count once. Neither step needs privacy: the trees are released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers, WholeFloats
from privsketch.clustering.passes import Passes, Work
from privsketch.facts.budget import Budget
from privsketch.features.stream import PublicStream
from privsketch.noise.account import Account, Shares
from privsketch.noise.choice import threshold_law
from privsketch.noise.mechanism import choose

RADIUS_BITS = 16
RADIUS = 2**RADIUS_BITS  # of the ball of projections, in whole numbers
MAX_DIMENSIONS = 30  # 2^30 children of each of up to 2^32 cubes have places below 2^62
_MATRIX_BITS = 14  # fractional bits; products with 18-bit records stay below 2^53 in 2^15 columns


@dataclass(frozen=True, eq=False)
class Projected:
    """Passes over projected records: whole numbers in the ball of radius 2^16.

    `matrix` is (dim, p), in whole numbers; a projection is the product divided by 2^14 and
    rounded. `radius` is that of the ball, in units of the passes.
    """

    passes: Passes
    matrix: WholeFloats = field(repr=False)
    radius: float

    @classmethod
    def draw(
        cls, passes: Passes, n_dimensions: int, stream: PublicStream, tail: float
    ) -> Projected:
        """Draw a public projection that cuts a record with probability at most `tail`."""
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            raise ParameterError(
                "n_dimensions",
                n_dimensions,
                f"expected 1 to {MAX_DIMENSIONS}",
                "the private partition has 2^n_dimensions cubes in every cube",
            )
        dim, p = passes.dim, min(n_dimensions, passes.dim)
        if p < dim:
            rows = np.linalg.qr(stream.normal(dim * p).reshape(dim, p))[0].T
        else:
            rows = np.eye(dim)
        stretch = projected_radius(dim, p, tail)
        radius = float(passes.limits.max()) * stretch
        scale = math.sqrt(dim / p) * 2.0**_MATRIX_BITS * RADIUS / radius
        return cls(passes, np.rint(rows.T * scale), radius)

    @property
    def n_dimensions(self) -> int:
        """Number of dimensions after the projection."""
        return int(self.matrix.shape[1])

    def __call__(self, records: WholeFloats) -> WholeFloats:
        """Project quantised records (n, dim) to (n, p): products of integers, hence exact."""
        return cut_to_ball(np.rint(records @ self.matrix * 2.0**-_MATRIX_BITS))

    def sums(self, work: Work, name: str) -> tuple[Integers, ...]:
        """Add up `work` on projected records in one pass; `name` is for the progress bar."""
        return self.passes.sums(lambda records: work(self(records)), name)


def projected_radius(dim: int, n_dimensions: int, tail: float) -> float:
    """Return the radius that projections of unit vectors exceed with probability `tail`.

    The squared length of p orthonormal coordinates of a unit vector is Beta(p/2, (d - p)/2).
    """
    from scipy.stats import beta

    if n_dimensions >= dim:
        return 1.0
    share = beta.isf(tail, n_dimensions / 2, (dim - n_dimensions) / 2)
    return math.sqrt(dim / n_dimensions * float(share))


def cut_to_ball(points: WholeFloats, radius: int = RADIUS) -> WholeFloats:
    """Move whole points (n, p) outside the ball to its edge or just inside, in place."""
    squared = np.vecdot(points, points)
    outside = np.flatnonzero(squared > float(radius) ** 2)
    if len(outside):
        factor = radius / np.sqrt(squared[outside])
        points[outside] = np.trunc(points[outside] * factor[:, np.newaxis])
    return points


SIDE_BITS = RADIUS_BITS + 2  # the root is [-2 r, 2 r]^p, shifted by up to r
MAX_LEVELS = SIDE_BITS - 1  # the cubes of the last level have whole centers
_MAX_PENDING = 2**20  # keys with counts that wait to be merged: 16 MB


@dataclass(frozen=True, eq=False)
class Tree:
    """Released levels of a partition tree.

    `shift` (p,) is in whole numbers. `active[l]` are the keys of the active cubes of level l + 1,
    in order. A key is the number of the parent among the active cubes of its level, then p bits,
    one for each dimension: the position of the cube in its parent.
    """

    shift: Integers
    active: tuple[Integers, ...] = ()

    @property
    def n_dimensions(self) -> int:
        """Number of dimensions."""
        return len(self.shift)

    @property
    def n_children(self) -> int:
        """Number of cubes that the active ones are split into next."""
        n_active = len(self.active[-1]) if self.active else 1
        return n_active << self.n_dimensions

    def children(self, records: WholeFloats) -> Integers:
        """Return the keys of children that contain projections (n, p), if their parent is active.

        Each follows from a projection and the released tree, in integers.
        """
        offset = (records - self.shift).astype(np.int64) + 2 * RADIUS
        offset = np.minimum(offset, 4 * RADIUS - 1)  # the far edge belongs to the last cube
        number = np.zeros(len(offset), dtype=np.int64)
        for level, active in enumerate(self.active, start=1):
            key = self._key(number, offset, level)
            number = np.searchsorted(active, key)
            inside = np.flatnonzero(number < len(active))
            inside = inside[active[number[inside]] == key[inside]]
            number, offset = number[inside], offset[inside]
        return self._key(number, offset, len(self.active) + 1)

    def _key(self, number: Integers, offset: Integers, level: int) -> Integers:
        bits = (offset >> (SIDE_BITS - level)) & 1
        powers = 1 << np.arange(self.n_dimensions, dtype=np.int64)
        return np.asarray((number << self.n_dimensions) + bits @ powers)

    def grown(self, keys: Integers) -> Tree:
        """Return the tree with one more level."""
        return Tree(self.shift, (*self.active, keys))

    def centers(self) -> list[WholeFloats]:
        """Return the centers of the active cubes of each level from the root on, (m, p)."""
        cells = np.zeros((1, self.n_dimensions), dtype=np.int64)
        centers = [self._middle(cells, 0)]
        for level, active in enumerate(self.active, start=1):
            bits = (active[:, np.newaxis] >> np.arange(self.n_dimensions)) & 1
            cells = 2 * cells[active >> self.n_dimensions] + bits
            centers.append(self._middle(cells, level))
        return centers

    def _middle(self, cells: Integers, level: int) -> WholeFloats:
        side = 2 ** (SIDE_BITS - level)
        middle = cells * side + side // 2 - 2 * RADIUS + self.shift
        return np.asarray(middle.astype(np.float64))


class _Counts:
    """Numbers of records by the keys of occupied cubes; threads may add to them."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Integers, Integers]] = []
        self._size = 0
        self._lock = Lock()

    def add(self, keys: Integers) -> None:
        """Count records by their keys."""
        piece = np.unique(keys, return_counts=True)
        with self._lock:
            self._pieces.append(piece)
            self._size += len(piece[0])
            if self._size > _MAX_PENDING:
                self._merge()

    def rows(self) -> Integers:
        """Return rows (key, count) in the order of keys."""
        self._merge()
        return np.stack(self._pieces[0], axis=1) if self._pieces else np.zeros((0, 2), np.int64)

    def _merge(self) -> None:
        if len(self._pieces) > 1:
            keys, counts = (np.concatenate(arrays) for arrays in zip(*self._pieces, strict=True))
            unique, inverse = np.unique(keys, return_inverse=True)
            total = np.zeros(len(unique), dtype=np.int64)
            np.add.at(total, inverse, counts)
            self._pieces = [(unique, total)]
        self._size = 0


def count_children(data: Projected, trees: Sequence[Tree]) -> list[Integers]:
    """Return the children that contain records, rows (key, count) for each tree, in one pass."""
    data.passes.require_here("a partition tree")  # counts grow in this process, not on workers
    counts = [_Counts() for _ in trees]

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        for tree, count in zip(trees, counts, strict=True):
            count.add(tree.children(records))
        return ()

    data.sums(work, "counts of cubes")
    return [count.rows() for count in counts]


def grow(
    data: Projected, shifts: Integers, threshold: int, accounts: Sequence[Account]
) -> list[Tree]:
    """Grow trees for shifts (n, p) together, with one pass for a level of all trees.

    Charges: the shares of every tree's account, one for each of its levels.
    """
    trees = [Tree(shift) for shift in shifts]
    for name in accounts[0].shares.weights:
        rows = count_children(data, trees)
        for i, account in enumerate(accounts):
            budget = account.budget(name)
            law = threshold_law(threshold, trees[i].n_children, budget.epsilon, budget.neighbours)
            keys, receipt = choose(rows[i], law, source=None)
            account.charge(receipt, 0.0)
            trees[i] = trees[i].grown(keys)
    return trees


def default_threshold(n_dimensions: int, n_levels: int, budget: Budget, fail_prob: float) -> int:
    """Return the threshold for fewer than `fail_prob` empty children of a cube by noise.

    Privacy does not depend on it.
    """
    epsilon = budget.epsilon / n_levels / (1 if budget.neighbours == "add-remove" else 2)
    return max(1, math.ceil((n_dimensions * math.log(2) + math.log(1 / fail_prob)) / epsilon))


def release_candidates(
    data: Projected,
    n_trees: int,
    n_levels: int,
    threshold: int,
    stream: PublicStream,
    account: Account,
    name: str,
) -> list[Tree]:
    """Release trees of random public shifts.

    Charges: the share `name`, in equal parts for trees, and within a tree for levels.
    """
    shifts = public_shifts(n_trees, data.n_dimensions, stream)
    trees = {f"tree {i}": Fraction(1, n_trees) for i in range(n_trees)}
    levels = {f"level {i}": Fraction(1, n_levels) for i in range(1, n_levels + 1)}
    total = Account(Shares(account.budget(name), trees))
    parts = [Account(Shares(total.budget(tree), levels)) for tree in trees]
    grown = grow(data, shifts, threshold, parts)
    for tree, part in zip(trees, parts, strict=True):
        total.charge(part.receipt(f"{tree}: cubes that hold many records", None), 0.0)
    account.charge(total.receipt(f"{name}: private partition trees", None), 0.0)
    return grown


def public_shifts(count: int, n_dimensions: int, stream: PublicStream) -> Integers:
    """Draw public shifts (count, p), uniform up to the radius in every dimension."""
    uniform = stream.uniform(count * n_dimensions).reshape(count, n_dimensions)
    return np.asarray(np.rint((2 * uniform - 1) * RADIUS), dtype=np.int64)


def candidate_centers(
    trees: Sequence[Tree], min_points: int, max_points: int, stream: PublicStream
) -> WholeFloats:
    """Return distinct whole points of the ball, (m, p), with min_points <= m <= max_points.

    Cubes of the last levels come first. If there are too few, random public points are added.
    """
    p = trees[0].n_dimensions
    # The last levels say most about the records.
    levels = [tree.centers() for tree in trees]
    depth = range(max(len(level) for level in levels) - 1, -1, -1)
    ordered = [level[i] for i in depth for level in levels if i < len(level)]
    points = _distinct(cut_to_ball(np.concatenate(ordered)))[:max_points]
    while len(points) < min_points:
        more = np.rint((2 * stream.uniform(min_points * p).reshape(-1, p) - 1) * RADIUS)
        points = _distinct(np.concatenate([points, cut_to_ball(more)]))[:min_points]
    return points


def _distinct(points: WholeFloats) -> WholeFloats:
    """Return points without repetitions, in the order of their first occurrence."""
    _, first = np.unique(points, axis=0, return_index=True)
    return np.asarray(points[np.sort(first)])
