"""Fewer boxes: those whose surroundings have no clear records are merged with their neighbours.

In several columns most boxes are empty but for noise. A search only needs to know that together
they are. Blocks of two cells along each axis of a grid are merged where no cell has clearly more
records than noise makes, blocks of these blocks where no block has, and so on. Neighbours of what
is clear are not merged, on any level: a block is no nearer to clear records than it is wide. Counts
and variances of merged boxes add up, so that a fit pays for mass that it puts there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privsketch._base.types import Bits, Floats, Indices
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.fit import likelihood_of, log_chances

# -log of the chance that noise makes an empty box clear: one in twenty. With 4.5, that of three
# deviations, faint clusters were lost now and then; noise then costs only time.
MIN_CLEAR = 3.0


def merged(boxes: Boxes) -> tuple[Boxes, Indices]:
    """Return fewer boxes, and for each given box the number of the one that it is in.

    Boxes that are not known to be grids stay.
    """
    first, last = np.tile(np.arange(boxes.n_boxes), (2, 1))
    law = likelihood_of(boxes, np.zeros(boxes.n_boxes))
    whole = (np.arange(boxes.n_boxes).reshape(boxes.shape),) if boxes.shape is not None else ()
    for grid in boxes.grids or whole:
        cells = grid >= 0
        counts, variance = (
            np.where(cells, values[grid], 0.0) for values in (boxes.counts, law.variance)
        )
        scale = float(law.squared_scale[grid[cells]].max(initial=0.0))
        levels = _levels(cells, counts, variance, scale, ~boxes.is_label)
        places = np.stack(np.nonzero(cells))
        shift = levels[cells] * ~boxes.is_label[:, np.newaxis]
        begin = places >> shift << shift
        end = np.minimum(begin + (1 << shift), np.array(grid.shape)[:, np.newaxis]) - 1
        first[grid[cells]], last[grid[cells]] = grid[tuple(begin)], grid[tuple(end)]
    owners, member = np.unique(first, return_inverse=True)
    size = np.bincount(member)
    fewer = replace(
        boxes,
        low=boxes.low[owners],
        high=boxes.high[last[owners]],
        counts=np.bincount(member, boxes.counts).astype(np.float64),
        variance=np.bincount(member, boxes.variance).astype(np.float64),
        n_noises=boxes.n_noises * size,
        shape=None,
        grids=(),
    )
    return fewer, member


def _levels(cells: Bits, counts: Floats, variance: Floats, scale: float, halved: Bits) -> Indices:
    """Return for each cell how often its surroundings are doubled along the `halved` axes."""
    is_busy, levels = ~cells, np.zeros(cells.shape, dtype=np.intp)
    places, level = np.indices(cells.shape), 0
    while True:
        clear = log_chances(counts, variance, np.full(counts.shape, scale)) > MIN_CLEAR
        is_busy = is_busy | (clear & (counts > 0))
        if level:
            above = tuple(np.where(halved[d], axis >> level, axis) for d, axis in enumerate(places))
            levels += ~is_busy[above]
        if is_busy.all() or max(np.array(counts.shape)[halved], default=1) == 1:
            return levels
        is_busy, level = _near(is_busy, halved), level + 1
        for axis in np.flatnonzero(halved):
            pairs = np.arange(0, counts.shape[axis], 2)
            counts, variance = (np.add.reduceat(x, pairs, axis) for x in (counts, variance))
            is_busy = np.logical_or.reduceat(is_busy, pairs, axis)


def _near(mask: Bits, axes: Bits) -> Bits:
    """Return the mask with the next cells along each axis."""
    near = mask.copy()
    for axis in np.flatnonzero(axes):
        ahead, given = np.moveaxis(near, axis, 0), np.moveaxis(mask, axis, 0)  # views
        ahead[1:] |= given[:-1]
        ahead[:-1] |= given[1:]
    return near
