"""Split every center in two probes, and merge the means around them to as many centers again.

Clusters that a start misses stay missed in rounds that only move centers. So a center becomes a
pair of probes to its sides, a round measures means around all of them, and the pool of twice as
many means is merged: halves of one cluster come together again, and where two clusters shared a
center, both keep one. All of this is post-processing of released numbers.

What noise makes is subtracted: the squared distance of two noisy means is expected to be that of
the true ones and their squared errors. Merging groups a and b costs

    n_a n_b / (n_a + n_b) (|m_a - m_b|^2 - e_a - e_b),

which is their growth in k-means cost (Ward, 1963) without the share of the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Floats, Indices, WholeFloats

LLOYD_ROUNDS = 30
GAIN_DEVIATIONS = 1.0  # standard deviations by which a split must pay


@dataclass(frozen=True)
class Clusters:
    """What is known about the clusters between two rounds.

    Attributes
    ----------
    centers : (k, dim) float64
        Whole numbers in the ball.
    counts : (k,) float64
        Numbers of records.
    widths : (k,) float64
        Standard deviations along an axis, in whole numbers.
    axes : (k, dim) float64
        Unit vectors along which to look for two clusters.
    is_found : bool
        Whether they have been seen, by a sketch or a round, and are not just spread out.
    """

    centers: WholeFloats
    counts: Floats
    widths: Floats
    axes: Floats
    is_found: bool


@dataclass(frozen=True)
class Pool:
    """Noisy means that are merged to centers.

    Attributes
    ----------
    means : (p, dim) float64
    sizes : (p,) float64
        Numbers of records, 0 where noise may have made them.
    errors : (p,) float64
        Expected squared distances of the means from the true ones.
    widths : (p,) float64
        Standard deviations of the records around each mean, along an axis.
    """

    means: Floats
    sizes: Floats
    errors: Floats
    widths: Floats

    def with_at_least(self, floors: Floats, *, of: Indices) -> Pool:
        """Return a pool whose groups `of` members have at least as many records as `floors`."""
        totals = np.bincount(of, self.sizes, len(floors))
        missing = np.maximum(floors - totals, 0.0) / np.bincount(of, minlength=len(floors))
        return replace(self, sizes=self.sizes + missing[of])


@dataclass(frozen=True)
class Group:
    """Members of a pool that make one center."""

    members: Indices
    size: float
    mean: Floats
    error: float

    @classmethod
    def of(cls, pool: Pool, members: Indices) -> Group:
        """Return the weighted mean of members, of all of them alike if none has records."""
        sizes = pool.sizes[members]
        total = float(sizes.sum())
        shares = sizes / total if total > 0 else np.full(len(members), 1 / len(members))
        error = float(np.square(shares) @ pool.errors[members])
        return cls(members, total, shares @ pool.means[members], error)


def merge_cost(a: Group, b: Group) -> tuple[float, float]:
    """Return what merging two groups costs, and the standard deviation of that number."""
    total = a.size + b.size
    if not (a.size > 0 and b.size > 0):
        return 0.0, 0.0
    weight, error = a.size * b.size / total, a.error + b.error
    distance = float(np.square(a.mean - b.mean).sum()) - error
    spread = math.sqrt(2 * error**2 + 4 * max(distance, 0.0) * error) / math.sqrt(len(a.mean))
    return weight * distance, weight * spread


def reduced(pool: Pool, before: Indices, n_clusters: int) -> list[Group]:
    """Merge a pool to at most `n_clusters` groups, all with records.

    `before` are the groups that the members come from: halves of a center together. They are the
    start, so that good centers stay; merging all members from one by one is a second start, for
    a cost that is lower beyond noise.
    """
    alive = np.flatnonzero(pool.sizes > 0)
    if len(alive) == 0:
        return []
    start = [Group.of(pool, alive[before[alive] == label]) for label in np.unique(before[alive])]
    ends = [_improved(pool, _merged_down(start, n_clusters), n_clusters)]
    ward = _merged_down([Group.of(pool, np.array([i])) for i in alive], n_clusters)
    ends.append(_improved(pool, ward, n_clusters))
    (first, spread), (second, other) = (_cost(pool, groups) for groups in ends)
    is_clear = second < first - GAIN_DEVIATIONS * math.hypot(spread, other) - 0.01 * abs(first)
    return ends[1] if is_clear else ends[0]


def _cost(pool: Pool, groups: list[Group]) -> tuple[float, float]:
    """Return the k-means cost inside of groups without noise, and its standard deviation."""
    total, variance = 0.0, 0.0
    for group in groups:
        sizes, errors = pool.sizes[group.members], pool.errors[group.members]
        squares = np.square(pool.means[group.members] - group.mean).sum(axis=1)
        own = errors * (1 - sizes / max(group.size, 1e-300))
        total += float(sizes @ (squares - own))
        spread = 2 * own**2 + 4 * np.maximum(squares - own, 0.0) * own
        variance += float((sizes**2 * spread).sum()) / pool.means.shape[1]
    return total, math.sqrt(variance)


def _merged_down(groups: list[Group], n_clusters: int) -> list[Group]:
    """Merge the cheapest pair until no more than `n_clusters` groups are left (Ward, 1963)."""
    groups = list(groups)
    if len(groups) <= n_clusters:
        return groups
    means = np.stack([group.mean for group in groups])
    sizes = np.array([group.size for group in groups])
    errors = np.array([group.error for group in groups])
    members = [group.members for group in groups]
    costs = _pair_costs(means, sizes, errors)
    alive = np.ones(len(groups), dtype=bool)
    for _ in range(len(groups) - n_clusters):
        a, b = np.unravel_index(int(costs.argmin()), costs.shape)
        total = sizes[a] + sizes[b]
        share = sizes[a] / total
        means[a] = share * means[a] + (1 - share) * means[b]
        errors[a] = share**2 * errors[a] + (1 - share) ** 2 * errors[b]
        sizes[a], members[a] = total, np.concatenate([members[a], members[b]])
        alive[b] = False
        costs[b], costs[:, b] = np.inf, np.inf
        row = _pair_costs(means, sizes, errors, int(a))
        row[~alive] = np.inf
        row[a] = np.inf
        costs[a], costs[:, a] = row, row
    return [
        Group(members[i], float(sizes[i]), means[i], float(errors[i]))
        for i in np.flatnonzero(alive)
    ]


def _pair_costs(means: Floats, sizes: Floats, errors: Floats, one: int | None = None) -> Floats:
    """Return the costs of all merges, or of those with `one`; infinite with itself."""
    if one is not None:
        squares = np.square(means - means[one]).sum(axis=1)
        weights = sizes * sizes[one] / (sizes + sizes[one])
        return np.asarray(weights * (squares - errors - errors[one]))
    norms = np.square(means).sum(axis=1)
    squares = np.maximum(norms[:, None] + norms - 2 * means @ means.T, 0.0)
    weights = sizes[:, None] * sizes / (sizes[:, None] + sizes)
    costs = weights * (squares - errors[:, None] - errors)
    np.fill_diagonal(costs, np.inf)
    return np.asarray(costs)


def _improved(pool: Pool, groups: list[Group], n_clusters: int) -> list[Group]:
    """Move members to the nearest group, and exchange mergers for splits while that pays."""
    groups = _settled(pool, groups)
    known: dict[bytes, tuple[float, list[Group]]] = {}
    for _ in range(2 * n_clusters):
        splits = []
        for group in groups:
            key = np.sort(group.members).tobytes()
            if key not in known:
                known[key] = _best_split(pool, group)
            splits.append(known[key])
        gains = np.array([gain for gain, _ in splits])
        best = int(gains.argmax())
        if len(groups) < n_clusters:
            if not gains[best] > 0:
                break
            groups = _settled(pool, _replaced(groups, [best], splits[best][1]))
            continue
        means = np.stack([group.mean for group in groups])
        sizes = np.array([group.size for group in groups])
        costs = _pair_costs(means, sizes, np.array([group.error for group in groups]))
        if len(groups) < 2:
            break
        costs[best], costs[:, best] = np.inf, np.inf
        a, b = np.unravel_index(int(costs.argmin()), costs.shape)
        if not gains[best] > costs[a, b]:
            break
        union = Group.of(pool, np.concatenate([groups[a].members, groups[b].members]))
        groups = _replaced(groups, [best, int(a), int(b)], [*splits[best][1], union])
        groups = _settled(pool, groups)
    return groups


def _replaced(groups: list[Group], taken: list[int], new: list[Group]) -> list[Group]:
    return [group for i, group in enumerate(groups) if i not in taken] + list(new)


def _best_split(pool: Pool, group: Group) -> tuple[float, list[Group]]:
    """Return the gain of the best split of a group in two, less its noise, and the parts.

    Candidates divide the members at the largest steps along their main axis, and by each member.
    """
    members = group.members
    if len(members) < 2:
        return -math.inf, []
    if len(members) == 2:
        candidates = [np.array([True, False])]
    else:
        offsets = pool.means[members] - group.mean
        weights = np.sqrt(pool.sizes[members])[:, np.newaxis]
        axis = np.linalg.svd(offsets * weights, full_matrices=False)[2][0]
        order = np.argsort(offsets @ axis, kind="stable")
        ranks = np.empty(len(members), dtype=np.intp)
        ranks[order] = np.arange(len(members))
        candidates = [ranks < cut for cut in range(1, len(members))]
        candidates += [ranks == one for one in range(1, len(members) - 1)]
    best: tuple[float, list[Group]] = (-math.inf, [])
    for is_first in candidates:
        parts = [Group.of(pool, members[is_first]), Group.of(pool, members[~is_first])]
        cost, spread = merge_cost(*parts)
        gain = cost - GAIN_DEVIATIONS * spread
        if gain > best[0]:
            best = gain, parts
    return best


def _settled(pool: Pool, groups: list[Group]) -> list[Group]:
    """Move every member to the group with the nearest mean, until nothing moves."""
    for _ in range(LLOYD_ROUNDS):
        members = np.concatenate([group.members for group in groups])
        own = np.repeat(np.arange(len(groups)), [len(group.members) for group in groups])
        means = np.stack([group.mean for group in groups])
        scores = np.square(means).sum(axis=1) - 2 * pool.means[members] @ means.T
        labels = scores.argmin(axis=1)
        moved = labels != own
        if not moved.any():
            break
        changed = {*labels[moved].tolist(), *own[moved].tolist()}
        parts = [
            Group.of(pool, members[labels == i]) if i in changed and (labels == i).any() else group
            for i, group in enumerate(groups)
        ]
        groups = [part for i, part in enumerate(parts) if i not in changed or (labels == i).any()]
    return groups


def clusters_of(groups: list[Group], pool: Pool, axes: Floats, n_clusters: int) -> Clusters:
    """Return the clusters of groups; where groups are missing, the largest ones are divided.

    The halves of a cluster that was split along u differ by about its covariance times u. So the
    next round splits a cluster along the main axis of its members: rounds are power iterations
    inside of every cluster. `axes` are for clusters of one member.
    """
    dim = pool.means.shape[1]
    centers, counts, widths, own_axes = [], [], [], []
    for group, axis in zip(groups, axes, strict=False):
        shares = pool.sizes[group.members] / group.size
        offsets = pool.means[group.members] - group.mean
        squares = pool.widths[group.members] ** 2 + np.square(offsets).sum(axis=1) / dim
        if len(group.members) > 1 and offsets.any():
            scaled = offsets * np.sqrt(shares)[:, np.newaxis]
            axis = np.linalg.svd(scaled, full_matrices=False)[2][0]
        centers.append(group.mean)
        counts.append(group.size)
        widths.append(math.sqrt(float(shares @ squares)))
        own_axes.append(axis)
    for axis in axes[len(groups) :]:
        largest = int(np.argmax(np.array(counts) * np.square(widths)))
        offset = widths[largest] * own_axes[largest]
        centers.append(centers[largest] + offset)
        centers[largest] = centers[largest] - offset
        counts[largest] /= 2
        widths[largest] /= math.sqrt(2)
        counts.append(counts[largest])
        widths.append(widths[largest])
        own_axes.append(axis)
    return Clusters(
        np.stack(centers), np.array(counts), np.array(widths), np.stack(own_axes), is_found=True
    )
