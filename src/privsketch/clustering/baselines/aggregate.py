"""Sample and aggregate: k-means of many blocks of records, averaged with noise.

Nissim, Raskhodnikova and Smith (2007). Every record is assigned to one of l blocks, at random and
independently of all others: a neighbouring table then differs in one block, under both relations.
(Blocks by the order of rows would all change when a row is added.) Each block is clustered by
itself, its centers are put in the order of public references, and the average over all blocks is
released. One block moves the sum as far as its k centers can move: by 2 k times the largest L1 norm
of a record, 2 sqrt(k) times its L2 norm, 2 times the half-width in every component.

The aggregator of the paper scales its noise to the data (smooth sensitivity); this is the plain
one. Blocks that find different clusters blur the average.
"""

from __future__ import annotations

import math
import os
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.threads import chunks, one_thread_of_kmeans
from privsketch._base.types import Integers, WholeFloats
from privsketch.clustering.baselines.points import (
    RANDOM_ROWS,
    PointNoise,
    noise_of_run,
    noisy_points,
    point_forecast,
    point_variance,
    start_centers,
)
from privsketch.clustering.extent import unresolved_centers
from privsketch.clustering.forecast import PublicFacts
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.learning.concerns import RecordCount
from privsketch.models.clusters import ClusterModel

MAX_ERRORS = 6.0  # standard deviations within which released centers may be the references
RECORDS_PER_CLUSTER = 10  # records of a block for every cluster
# More blocks lower the noise but need a run of k-means each: 1.3 s for 200,000 records, twice that
# for 4,000 (`python -m benchmarks constants clustering MAX_SAMPLE_BLOCKS`).
MAX_SAMPLE_BLOCKS = 2000
MAX_SAMPLE_VALUES = 2**25  # numbers of all blocks in memory: 256 MB


def cluster(
    run: Run, n_clusters: int, *, noise: PointNoise | None = None, n_blocks: int | None = None
) -> ClusterModel:
    """Release k-means centers from one pass over the records.

    `n_blocks` follows from the number of records by default. `noise` is by default "gaussian" if
    there is a delta, else "cube" or "laplace".

    Charges: the budget, once; without its delta where the noise is pure.
    """
    require_count("n_clusters", n_clusters)
    run.require_one_record("sample-aggregate")
    domain, kind = run.domain, noise_of_run(run, noise, n_clusters)
    passes = run.read()
    if n_blocks is not None:
        require_count("n_blocks", n_blocks)
        if n_blocks > MAX_SAMPLE_BLOCKS:
            raise ParameterError(f"`n_blocks={n_blocks}`: expected at most {MAX_SAMPLE_BLOCKS}")
    number = run.number(passes)
    if n_blocks is None:
        n_blocks = blocks_for(number, n_clusters)
    reference = passes.quantised(
        start_centers(domain, n_clusters, "packing", run.seed) + domain.center_vector
    )
    total = np.zeros((n_clusters, passes.dim), dtype=np.int64)
    # Several threads add up in any order: with one, centers depend on their block to the bit.
    with one_thread_of_kmeans():
        for block in sampled_blocks(passes, n_blocks):
            total += ordered_centers(passes, block, reference, run.seed)
    account = run.share({"average of blocks": Fraction(1)})
    noisy = noisy_points(account, "average of blocks", passes, total, kind)
    # Blocks without records have the references as their centers.
    facts = PublicFacts(n_clusters, run.domain, run.budget, number)
    variance = point_variance(facts, kind, n_clusters, float(n_blocks))
    doubt = "every center is where noise and the public references alone would put it"
    away = (noisy / n_blocks - reference) * passes.unit
    return run.model(
        noisy / n_blocks * passes.unit + domain.center_vector,
        None,
        method="sample-aggregate",
        mechanism=f"k-means of {n_blocks} blocks, averaged",
        n_records=number,
        count=run.count,
        forecast=partial(point_forecast, variance=variance),
        too_wide=unresolved_centers(noisy / n_blocks * passes.unit, math.sqrt(variance)),
        seen=RecordCount(0.0, doubt=doubt)
        if np.abs(away).max() <= MAX_ERRORS * math.sqrt(variance)
        else RecordCount(number),
    )


def blocks_for(n_records: float, n_clusters: int) -> int:
    """Return the number of blocks that leaves each enough records to find its clusters."""
    return int(min(max(n_records // (RECORDS_PER_CLUSTER * n_clusters), 1), MAX_SAMPLE_BLOCKS))


def sampled_blocks(
    passes: Passes, n_blocks: int, *, max_values: int = MAX_SAMPLE_VALUES, rows: int = RANDOM_ROWS
) -> list[WholeFloats]:
    """Assign the records to blocks, in one pass; a full block keeps a random sample.

    Every record gets a block and a random rank in it, and the lowest ranks stay. Both are drawn for
    the record alone, so that one record changes one block. All blocks together have at most
    `max_values` numbers. Random numbers are drawn for `rows` records at a time.
    """
    max_size = max(1, max_values // (n_blocks * passes.dim))
    members = [np.zeros((0, passes.dim)) for _ in range(n_blocks)]
    ranks = [np.zeros(0, dtype=np.uint64) for _ in range(n_blocks)]
    for block in chunks(passes.blocks("blocks"), rows):
        records = passes.quantised(block)
        words = drawn_words(records)
        numbers = (words[:, 0] % np.uint64(n_blocks)).astype(np.intp)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(n_blocks + 1))
        for number in np.unique(numbers):
            rows_of_block = order[ends[number] : ends[number + 1]]
            sample = np.concatenate([members[number], records[rows_of_block]])
            rank = np.concatenate([ranks[number], words[rows_of_block, 1]])
            if len(sample) > max_size:
                lowest = np.argpartition(rank, max_size)[:max_size]
                sample, rank = sample[lowest], rank[lowest]
            members[number], ranks[number] = sample, rank
    # The order of ranks does not depend on other blocks, as that of rows would.
    return [sample[np.argsort(rank)] for sample, rank in zip(members, ranks, strict=True)]


def drawn_words(records: WholeFloats) -> npt.NDArray[np.uint64]:
    """Draw two random words for each record, (n, 2), from the operating system."""
    return np.frombuffer(os.urandom(16 * len(records)), dtype=np.uint64).reshape(-1, 2)


def ordered_centers(
    passes: Passes, block: WholeFloats, reference: WholeFloats, seed: int
) -> Integers:
    """Return k-means centers of a block within the domain, each at the index of its reference.

    A block of too few records gets the references themselves.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans

    k = len(reference)
    if len(block) < k:
        return reference.astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fewer distinct records than clusters
        fit = KMeans(k, n_init=1, random_state=seed % 2**32).fit(block)
    centers = passes.quantised(fit.cluster_centers_ * passes.unit + passes.domain.center_vector)
    steps = reference[:, np.newaxis] - centers
    _, order = linear_sum_assignment(np.vecdot(steps, steps))
    return centers[order].astype(np.int64)
