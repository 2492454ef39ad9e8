"""Where median rounds start: the k-means centers of one sketch.

Medians are near means unless clusters are skewed, and a sketch finds k means at once, without a
first guess. Beyond a few columns the sketch is one of the records' coordinates along directions
that are released first, or along random ones without a delta: they do as well as directions in
pure noise, and cost nothing. Where clusters are not round several searches of one sketch end in
different places; searching is free, and a private choice by sums of distances says which is best.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from privsketch._base.types import Block, Floats, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.clustering.pipeline.subspace import projected, random_directions, release_subspace
from privsketch.clustering.run import Run
from privsketch.clustering.tree.swap import WIDTH, moved_into_ball, whole_losses
from privsketch.facts.domain import Ball
from privsketch.learning.kmeans.learner import learn_kmeans
from privsketch.noise.account import Account
from privsketch.sketching.sketch import Sketch

MAX_COLUMNS = 20  # of a sketch without a subspace
N_DIRECTIONS = 10  # the most that plans of the pipeline have (pipeline/plan.py)
# By trial; docs/medians.md has what all shares together reach.
SKETCH_SHARE, STARTS_SHARE = Fraction(1, 2), Fraction(1, 25)
SUBSPACE_SHARE = Fraction(1, 5)  # of that of the sketch
SEARCHES = (None, 1, 2)  # public seeds; None is that of the sketch
FARTHEST = WIDTH // 4  # distances count up to a quarter of the diameter


def start_weights(dim: int, is_pure: bool) -> dict[str, Fraction]:
    """Shares of the start."""
    if dim <= MAX_COLUMNS or is_pure:
        return {"sketch": SKETCH_SHARE, "starts": STARTS_SHARE}
    return {
        "subspace": SKETCH_SHARE * SUBSPACE_SHARE,
        "sketch": SKETCH_SHARE * (1 - SUBSPACE_SHARE),
        "starts": STARTS_SHARE,
    }


def release_start(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> Whole:
    """Centers (k, dim), whole numbers in the ball of the passes.

    Charges: the shares of `start_weights`.
    """
    found = _searched(run, passes, n_clusters, account, n_records)
    center = passes.domain.center_vector
    starts = [moved_into_ball((centers - center) / passes.unit, passes) for centers in found]
    return starts[account.choice("starts", start_losses(passes, starts), FARTHEST)]


def start_losses(passes: Passes, starts: Sequence[Whole]) -> Integers:
    """One pass: sums of distances to the nearest center of each start, in whole numbers."""

    def work(records: Whole) -> tuple[Integers, ...]:
        each = [
            whole_losses(records, start, passes.bits, FARTHEST, "distances").min(axis=1).sum()
            for start in starts
        ]
        return (np.array(each, dtype=np.float64).astype(np.int64),)

    return passes.sums(work, "losses of starts")[0]


def _searched(
    run: Run, passes: Passes, n_clusters: int, account: Account, n_records: float
) -> list[Floats]:
    """Centers (k, dim) of several searches, in the units of the records."""
    if passes.dim <= MAX_COLUMNS:
        missing = "center" if run.missing_to_center else "error"
        blocks = passes.changed(_as_they_are, "sketch")
        released = run.sketch(blocks, run.domain, n_clusters, n_records, missing=missing)
        return _learned(released, n_clusters)
    ball = passes.domain
    if account.shares.is_pure:
        subspace = random_directions(passes.dim, N_DIRECTIONS, run.seed)
    else:
        subspace = release_subspace(
            passes, N_DIRECTIONS, account, "subspace", n_records, run.seed, run.n_threads
        )
    rows = subspace.rows
    small = Ball(dim=len(rows), radius=float(ball.half_widths[0]) * subspace.reach)
    released = run.sketch(projected(passes, rows), small, n_clusters, n_records)
    return [ball.center_vector + centers @ rows for centers in _learned(released, n_clusters)]


def _as_they_are(block: Block) -> Block:
    return block


def _learned(released: Sketch, n_clusters: int) -> list[Floats]:
    return [learn_kmeans(released, n_clusters, random_state=seed).centers for seed in SEARCHES]
