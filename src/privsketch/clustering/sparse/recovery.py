"""Centers of clusters of sparse records, most of whose coordinates are 0.

A record with s entries of at most L moves the sums of its cluster by at most s L in L1. Two ways
lead from noisy sums to sparse centers.

"largest" adds noise of scale s L / epsilon to all sums and keeps those that noise alone hardly
reaches. What is kept is decided after the noise and costs nothing. With a delta the noise is
Gaussian, for sqrt(s) L in L2.

"picks" is Algorithm 5 of Balcan et al. (2017), with corrected scales: a number of coordinates is
picked by the exponential mechanism, then their sums get noise. That noise is of the same scale
s L / epsilon, as a record may touch s of the picks, and a share of epsilon is spent on picking:
it cannot be better unless fewer are picked than a record has entries. docs/sparse.md compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats, Integers
from privsketch.clustering.sparse.passes import SparsePasses
from privsketch.noise.account import Account, Shares
from privsketch.noise.choice import picks_law
from privsketch.noise.mechanism import choose

Labels = Callable[[Any], npt.NDArray[np.intp]]
Recovery = Literal["largest", "picks"]
RECOVERIES: tuple[Recovery, ...] = ("largest", "picks")


@dataclass(frozen=True, eq=False)
class SparseCenters:
    """Whole centers (k, dim) and noisy counts (k,)."""

    centers: Floats
    counts: Floats

    def labels(self, records: Any) -> npt.NDArray[np.intp]:
        """Index of the nearest center of CSR records, the first of several: exact."""
        scores = records @ (-2 * self.centers.T)
        scores += np.vecdot(self.centers, self.centers)
        return np.asarray(scores.argmin(axis=1))


def sparse_sums(passes: SparsePasses, labels: Labels, n_clusters: int) -> tuple[Integers, Integers]:
    """One pass: sums (k, dim) of the records of each cluster, and their numbers (k,)."""
    from scipy.sparse import csr_array

    def work(records: Any) -> tuple[Integers, ...]:
        label = labels(records)
        n = len(label)
        member = csr_array((np.ones(n), (label, np.arange(n))), shape=(n_clusters, n))
        sums = (member @ records).toarray()  # whole numbers: exact in any order
        return sums.astype(np.int64), np.bincount(label, minlength=n_clusters)

    sums, counts = passes.sums(work, "cluster sums")
    return sums, counts


def release_largest(
    passes: SparsePasses,
    labels: Labels,
    n_clusters: int,
    account: Account,
    count_name: str,
    sum_name: str,
) -> SparseCenters:
    """Means of the clusters, 0 where the noise may be all there is.

    Charges: the shares `count_name` and `sum_name`.
    """
    sums, counts = sparse_sums(passes, labels, n_clusters)
    noisy_counts, _ = account.counts(count_name, counts)
    reach = noise_reach(passes, account.shares, sum_name)
    noisy_sums, _ = account.noisy(
        sum_name,
        sums,
        l1=passes.l1,
        l2_squared=passes.l2_squared,
        l2_replaced=passes.l2_replaced,
    )
    kept = np.where(np.abs(noisy_sums) > reach, noisy_sums, 0.0)
    return SparseCenters(_whole_means(kept, noisy_counts, passes), noisy_counts)


def release_picks(
    passes: SparsePasses,
    labels: Labels,
    n_clusters: int,
    n_picks: int,
    account: Account,
    count_name: str,
    pick_name: str,
    sum_name: str,
) -> SparseCenters:
    """Means of the clusters at `n_picks` coordinates each (Algorithm 5), 0 elsewhere.

    Charges: the shares `count_name`, `pick_name` and `sum_name`.
    """
    sums, counts = sparse_sums(passes, labels, n_clusters)
    noisy_counts, _ = account.laplace(count_name, counts, l1=1)
    l1 = passes.l1_over(n_picks)
    budget = account.budget(pick_name)
    law = picks_law(passes.linf, l1, passes.dim, n_picks, budget.epsilon, budget.neighbours)
    places, receipt = choose(sums, law, source=None)
    account.charge(receipt, 0.0)
    noisy_sums, _ = account.laplace(sum_name, np.take_along_axis(sums, places, axis=1), l1=l1)
    kept = np.zeros(sums.shape)
    np.put_along_axis(kept, places, noisy_sums, axis=1)
    return SparseCenters(_whole_means(kept, noisy_counts, passes), noisy_counts)


def noise_reach(passes: SparsePasses, shares: Shares, name: str) -> float:
    """What about one of the noises of a center's sums reaches, or none."""
    is_replaced = shares.budget.neighbours == "replace"
    log = math.log(max(passes.dim, 2))
    if shares.is_pure:
        return (1 + is_replaced) * passes.l1 / shares.part(name).epsilon * log
    squared = passes.l2_replaced if is_replaced else passes.l2_squared
    return math.sqrt(squared / shares.rho(name) * log)


def merged(found: SparseCenters, n_clusters: int) -> SparseCenters:
    """Fewer centers, made of those whose union adds least to the cost of k-means.

    Charges: nothing; centers and counts were released.
    """
    centers, counts = found.centers.copy(), np.maximum(found.counts, 1.0)
    while len(centers) > n_clusters:
        squared = np.vecdot(centers, centers)
        apart = squared + squared[:, np.newaxis] - 2 * centers @ centers.T
        added = apart * (counts * counts[:, np.newaxis]) / (counts + counts[:, np.newaxis])
        np.fill_diagonal(added, np.inf)
        i, j = np.unravel_index(added.argmin(), added.shape)
        both = counts[i] + counts[j]
        centers[i] = np.rint((counts[i] * centers[i] + counts[j] * centers[j]) / both)
        counts[i] = both
        centers, counts = np.delete(centers, j, axis=0), np.delete(counts, j)
    return SparseCenters(centers, counts)


def _whole_means(sums: Floats, counts: Floats, passes: SparsePasses) -> Floats:
    means = sums / np.maximum(counts, 1.0)[:, np.newaxis]
    return np.rint(np.clip(means, -passes.linf, passes.linf))
