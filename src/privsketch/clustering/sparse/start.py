"""Clusters of sparse records in few public random directions, from which centers are recovered.

A record belongs to the cluster whose center is nearest to its projection, in integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Whole
from privsketch.clustering.run import Run
from privsketch.clustering.sparse.passes import SparsePasses
from privsketch.clustering.sparse.recovery import Labels
from privsketch.clustering.tree.cubes import (
    candidate_centers,
    default_threshold,
    release_candidates,
)
from privsketch.clustering.tree.method import MAX_CANDIDATES, MAX_LOSS, TreeSettings
from privsketch.clustering.tree.projection import MAX_DIMENSIONS, RADIUS, Projected
from privsketch.clustering.tree.swap import WIDTH, release_swaps
from privsketch.facts.domain import Ball
from privsketch.features.stream import PublicStream, Purpose
from privsketch.kernels.nearest import nearest
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.noise.account import Account


def start_by_sketch(
    run: Run, passes: SparsePasses, n_clusters: int, settings: TreeSettings, n_records: float
) -> Labels:
    """Clusters from a sketch of the projections.

    Charges: the share "sketch".
    """
    # Enough directions for k clusters to lie apart; more of them make the sketch larger.
    dimensions = settings.n_dimensions or min(MAX_DIMENSIONS, max(8, 3 * n_clusters // 2 + 1))
    tail = settings.fail_prob / n_records
    data = Projected.draw(passes, dimensions, PublicStream(run.seed, Purpose.SPARSE_SKETCH), tail)

    def blocks() -> Iterator[Whole]:
        for block in passes.blocks("sketch"):
            yield data(passes.quantised(block)) / RADIUS

    unit_ball = Ball(dim=data.n_dimensions, radius=1.0)
    released = run.sketch(blocks(), unit_ball, n_clusters, n_records)
    centers = np.rint(learn_kmeans(released, n_clusters).centers * RADIUS)
    return lambda records: nearest(data(records), centers)


def start_by_trees(
    passes: SparsePasses,
    n_clusters: int,
    settings: TreeSettings,
    n_records: float,
    account: Account,
    seed: int,
) -> Labels:
    """Clusters from partition trees and swaps of their cubes.

    Charges: the shares "candidates" and "swaps".
    """
    swaps, trees = account.shares.part("swaps"), account.shares.part("candidates")
    each = 1 if swaps.neighbours == "add-remove" else 2
    settings = settings.filled(n_clusters, passes.dim, n_records, swaps.epsilon / each)
    stream = PublicStream(seed, Purpose.SPARSE_TREES)
    levels = settings.n_levels or 1
    data = Projected.draw(
        passes, settings.n_dimensions or 1, stream, settings.fail_prob / n_records
    )
    one_tree = replace(trees, epsilon=trees.epsilon / settings.n_trees)
    threshold = settings.threshold or default_threshold(
        data.n_dimensions, levels, one_tree, settings.fail_prob
    )
    with one_thread():  # blocks of records already share the cores
        grown = release_candidates(
            data, settings.n_trees, levels, threshold, stream, account, "candidates"
        )
        n_least = 2 * n_clusters
        candidates = candidate_centers(grown, n_least, max(MAX_CANDIDATES, n_least), stream)
        width = max(1, round(WIDTH * (settings.loss_share or MAX_LOSS)))
        n_swaps = settings.n_swaps or 1
        centers = release_swaps(
            data, candidates, n_clusters, n_swaps, stream, account, "swaps", width
        )
    return lambda records: nearest(data(records), centers)
