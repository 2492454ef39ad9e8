"""K-means from cells, for one holder: a noisy histogram, and a closer look where records are many.

The box is cut into cells, whose numbers of records are released with Laplace noise. Cells that are
heavy are cut once more and their parts counted in a second pass, which costs nothing elsewhere
(noise/zoom.py); so clusters that are much narrower than a cell are found too. What was released are
counts of disjoint boxes, from which the decoder of sketches of cells learns clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Bits, Floats, Indices, Integers, Whole
from privsketch.clustering.run import Passes, Run, shares_of
from privsketch.design.cells import noise_of_cells, plan_cells
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, decode_cells
from privsketch.learning.concerns import coordinates_cut, edge_concern
from privsketch.models.clusters import ClusterModel
from privsketch.noise.calibration import discrete_laplace_variance

# A heavy cell has so many standard deviations of the noise of a part along each axis that parts
# with a fair share of it stand out; among empty cells noise makes one heavy in one of 20 runs.
_STANDS_OUT, _FALSE_ALARM = 5 * math.sqrt(2), 1 / 20
_MAX_ALONG, _MAX_PARTS = 8, 1000  # parts along an axis, and of one cell
# Most parts in all: as many as leave their noise below that of the cells, or few, and no more than
# a decoder looks at in some seconds.
_GROWTH, _FEW, _MANY = 1.5, 4000, 20_000


def cluster(run: Run, n_clusters: int) -> ClusterModel:
    """K-means centers from two passes over the records.

    Charges: epsilon of the budget, once; its noise is pure and leaves delta alone.
    """
    require_count("n_clusters", n_clusters)
    box = run.box
    if len(box.half_widths) > MAX_CELL_COLUMNS:
        raise ParameterError(
            f"`method='cells'` with {len(box.half_widths)} columns: expected at most "
            f"{MAX_CELL_COLUMNS}, cells multiply with every column; use another method"
        )
    run.without_delta()
    passes = run.read(box)
    n_records = run.number(passes)
    noise = noise_of_cells(run.left, "laplace")
    grid = Grid(passes, plan_cells(box.half_widths, n_clusters, n_records, noise))
    account = run.share({"cells": Fraction(1)})
    is_heavy = Heavy(grid.n_cells, passes.dim, noise / math.sqrt(2))
    first, closer, law = account.zoom("cells", grid.counts(), is_heavy)
    along = is_heavy.along(first)
    low, high = grid.edges()
    counts = closer.astype(np.float64)
    variance = np.full(grid.n_cells, law.variance)
    heavy = along > 1
    shape: tuple[int, ...] | None = grid.shape
    grids: tuple[Indices, ...] = ()
    if heavy.any():
        noisy, of_part = account.parts(law, grid.counts_of_parts(along))
        parts_low, parts_high, cell = grid.edges_of_parts(along)
        parts, of_parts = _reconciled(noisy, of_part, cell, first, law.scale)
        low, high = np.vstack([low[~heavy], parts_low]), np.vstack([high[~heavy], parts_high])
        counts = np.concatenate([counts[~heavy], parts])
        variance = np.concatenate([variance[~heavy], of_parts])
        shape, grids = None, grid.grids(along)
    boxes = Boxes(low, high, counts, variance, shape=shape, grids=grids)
    found = decode_cells(boxes, n_clusters, public_generator(run.seed, Purpose.CELLS_DECODER))
    told = f"{' x '.join(map(str, grid.shape))} cells"
    if heavy.any():
        told += f", {int(heavy.sum())} of them in {len(counts) - int((~heavy).sum())} parts"
    return run.model(
        found.centers + box.center_vector,
        found.records,
        method="cells",
        mechanism=f"k-means of counts of {told}",
        concerns=_cut_records(run, boxes, found),
    )


def _cut_records(run: Run, boxes: Boxes, found: CellSolution) -> tuple[str, ...]:
    """A concern if clusters lie where records outside of the domain end up, from released counts.

    Within a quarter of the smallest box from the edge they cannot be told from such records.
    """
    sides = (boxes.high - boxes.low).min(axis=0)
    at_edge = run.box.half_widths - np.abs(found.centers) < sides / 4
    if run.schema is not None:
        at_edge &= coordinates_cut(run.schema)
    return tuple(edge_concern(float(shares_of(found.records)[at_edge.any(axis=1)].sum())))


def _reconciled(
    noisy: Integers, variance: float, cell: Integers, first: Integers, scale: float
) -> tuple[Floats, Floats]:
    """Counts of parts and their variances, by least squares with the counts of their cells.

    m parts of variance v each add up to what y1 tells with variance w: each gets the same share of
    the difference, v / (m v + w).
    """
    whole = discrete_laplace_variance(2 * scale)
    number = np.bincount(cell, minlength=len(first))[cell]
    missing = (first - np.bincount(cell, noisy, minlength=len(first)))[cell]
    gain = variance / (number * variance + whole)
    return np.asarray(noisy + gain * missing), np.asarray(variance * (1 - gain))


@dataclass(frozen=True)
class Heavy:
    """Which cells get a closer look, from their first noisy counts alone.

    Parameters
    ----------
    n_cells, dim : int
    scale : float
        Of the noise of a light cell, about.
    """

    n_cells: int
    dim: int
    scale: float

    def along(self, first: Integers) -> Integers:
        """(n_cells,) parts along each axis; 1 where there is no closer look.

        As many as leave a part that has its share of the records above the noise.
        """
        least = max(_STANDS_OUT * self.dim, math.log(self.n_cells / _FALSE_ALARM)) * 2 * self.scale
        ideal = np.sqrt(np.maximum(first, 0) / (self.scale * _STANDS_OUT))
        most_along = min(_MAX_ALONG, math.floor(math.pow(_MAX_PARTS, 1 / self.dim) + 1e-9))
        along: Integers = np.minimum(np.floor(ideal), most_along).astype(np.int64)
        along[first <= least] = 1
        along = np.maximum(along, 1)
        order = np.argsort(-first, kind="stable")  # the heaviest first
        added = np.where(along[order] > 1, along[order] ** self.dim, 0)
        most = min(max(_GROWTH * self.n_cells, _FEW), _MANY)
        along[order[np.cumsum(added) > most]] = 1
        return along

    def __call__(self, first: Integers) -> Bits:
        """Whether there is one."""
        return self.along(first) > 1


class Grid:
    """Cells of a table's box, in the whole numbers of its passes."""

    def __init__(self, passes: Passes, shape: tuple[int, ...]) -> None:
        self.shape, self.n_cells = shape, math.prod(shape)
        self._passes = passes
        # Integers -limit..limit in groups that differ by one in size at most: where they start.
        self._starts = [
            -(-np.arange(g + 1, dtype=np.int64) * (2 * int(limit) + 1) // g)
            for g, limit in zip(shape, passes.limits, strict=True)
        ]

    def _along(self, records: Whole) -> list[Integers]:
        """The cell of each record along each axis."""
        found = []
        for axis, (g, limit) in enumerate(zip(self.shape, self._passes.limits, strict=True)):
            whole = records[:, axis].astype(np.int64) + int(limit)
            found.append(whole * g // (2 * int(limit) + 1))
        return found

    def counts(self) -> Integers:
        """One pass: the number of records of every cell, (n_cells,), first column slowest."""

        def work(records: Whole) -> tuple[Integers, ...]:
            place = np.ravel_multi_index(self._along(records), self.shape)
            return (np.bincount(place, minlength=self.n_cells),)

        return self._passes.sums(work, "cells")[0]

    def counts_of_parts(self, along: Integers) -> Integers:
        """One pass: the same for parts of cells, cell by cell; `along` of them along each axis."""
        dim = len(self.shape)
        n_parts = np.where(along > 1, along**dim, 0)
        ends = np.cumsum(n_parts)

        def work(records: Whole) -> tuple[Integers, ...]:
            cells = self._along(records)
            place = np.ravel_multi_index(cells, self.shape)
            kept = along[place] > 1
            place, parts = place[kept], along[place[kept]]
            inside = np.zeros(len(place), dtype=np.int64)
            for axis, (starts, limit) in enumerate(
                zip(self._starts, self._passes.limits, strict=True)
            ):
                cell = cells[axis][kept]
                whole = records[kept, axis].astype(np.int64) + int(limit) - starts[cell]
                inside = inside * parts + whole * parts // (starts[cell + 1] - starts[cell])
            return (np.bincount(ends[place] - n_parts[place] + inside, minlength=int(ends[-1])),)

        return self._passes.sums(work, "parts of cells")[0]

    def grids(self, along: Integers) -> tuple[Indices, ...]:
        """Numbers of boxes, light cells before parts, in the grids that they are the cells of."""
        light = along == 1
        whole = np.where(light, np.cumsum(light) - 1, -1).reshape(self.shape)
        found, first = [whole], int(light.sum())
        for m in along[~light].tolist():
            size = m ** len(self.shape)
            found.append(np.arange(first, first + size).reshape((m,) * len(self.shape)))
            first += size
        return tuple(found)

    def _place(self, axis: int, whole: Integers) -> Floats:
        """Where a group of integers that starts there begins, about the center of the box.

        Records are rounded to integers; outermost groups end with the box.
        """
        passes, limit = self._passes, int(self._passes.limits[axis])
        half = float(passes.domain.half_widths[axis])
        found = (whole - limit - 0.5) * passes.unit
        found = np.where(whole <= 0, -half, found)
        return np.asarray(np.where(whole > 2 * limit, half, found))

    def edges(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of all cells, (n_cells, dim)."""
        cells = np.unravel_index(np.arange(self.n_cells), self.shape)
        pairs = list(enumerate(zip(cells, self._starts, strict=True)))
        low = [self._place(axis, starts[cell]) for axis, (cell, starts) in pairs]
        high = [self._place(axis, starts[cell + 1]) for axis, (cell, starts) in pairs]
        return np.stack(low, axis=1), np.stack(high, axis=1)

    def edges_of_parts(self, along: Integers) -> tuple[Floats, Floats, Integers]:
        """The same for parts, in the order of their counts, and the cell of each."""
        dim = len(self.shape)
        n_parts = np.where(along > 1, along**dim, 0)
        cell = np.repeat(np.arange(self.n_cells), n_parts)
        rest = np.arange(len(cell)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        cells, parts = np.unravel_index(cell, self.shape), along[cell]
        low, high = np.empty((len(cell), dim)), np.empty((len(cell), dim))
        for axis in range(dim - 1, -1, -1):
            rest, inside = np.divmod(rest, parts)
            starts: Integers = self._starts[axis]
            begin: Integers = starts[cells[axis]]
            width: Integers = starts[cells[axis] + 1] - begin
            low[:, axis] = self._place(axis, begin - (-inside * width // parts))
            high[:, axis] = self._place(axis, begin - (-(inside + 1) * width // parts))
        return low, high, cell
