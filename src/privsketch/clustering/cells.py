"""K-means from cells, for one holder: a noisy histogram that is refined where records are many.

The box is cut into cells, whose numbers of records are released with Laplace noise. Heavy cells are
cut once more and their parts counted in a second pass, which costs nothing elsewhere
(noise/zoom.py), so that clusters much narrower than a cell are found too. The release has counts of
disjoint boxes, from which the decoder of cell sketches learns clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Bits, Floats, Indices, Integers, Whole
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run, shares_of
from privsketch.design.cells import noise_of_cells, plan_cells
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, decode_cells
from privsketch.learning.concerns import coordinates_cut, edge_concern
from privsketch.models.clusters import ClusterModel
from privsketch.noise.calibration import discrete_laplace_variance

# A heavy cell has enough records, in standard deviations of the noise of a part along each axis,
# for parts with an equal share to stand out. Noise makes an empty cell heavy in one of 20 runs.
_STANDS_OUT, _FALSE_ALARM = 5 * math.sqrt(2), 1 / 20
_MAX_ALONG, _MAX_PARTS = 8, 1000  # parts along an axis, and of one cell
# The largest number of parts in all: so many that their noise stays below that of the cells, or a
# few thousand, and no more than a decoder can use in some seconds.
_PARTS_PER_CELL, _FEW_PARTS, _MANY_PARTS = 1.5, 4000, 20_000


def cluster(run: Run, n_clusters: int) -> ClusterModel:
    """Release k-means centers from two passes over the records.

    Charges: epsilon of the budget, once; its noise is pure and leaves delta alone.
    """
    require_count("n_clusters", n_clusters)
    box = run.box
    if len(box.half_widths) > MAX_CELL_COLUMNS:
        raise ParameterError(
            f"`method='cells'` with {len(box.half_widths)} columns: expected at most "
            f"{MAX_CELL_COLUMNS}, as cells multiply with every column; use another method"
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
        noisy, part_variance = account.parts(law, grid.counts_of_parts(along))
        parts_low, parts_high, cell = grid.edges_of_parts(along)
        parts, variances = _reconciled(noisy, part_variance, cell, first, law.scale)
        low, high = np.vstack([low[~heavy], parts_low]), np.vstack([high[~heavy], parts_high])
        counts = np.concatenate([counts[~heavy], parts])
        variance = np.concatenate([variance[~heavy], variances])
        shape, grids = None, grid.grids(along)
    boxes = Boxes(low, high, counts, variance, shape=shape, grids=grids)
    solution = decode_cells(boxes, n_clusters, public_generator(run.seed, Purpose.CELLS_DECODER))
    release = f"{' x '.join(map(str, grid.shape))} cells"
    if heavy.any():
        release += f", {int(heavy.sum())} of them in {len(counts) - int((~heavy).sum())} parts"
    return run.model(
        solution.centers + box.center_vector,
        solution.records,
        method="cells",
        mechanism=f"k-means of counts of {release}",
        concerns=_cut_records(run, boxes, solution),
    )


def _cut_records(run: Run, boxes: Boxes, solution: CellSolution) -> tuple[str, ...]:
    """Return a concern if clusters lie where records outside of the domain are moved to.

    Within a quarter of the smallest box from the edge they look like such records.
    """
    sides = (boxes.high - boxes.low).min(axis=0)
    at_edge = run.box.half_widths - np.abs(solution.centers) < sides / 4
    if run.schema is not None:
        at_edge &= coordinates_cut(run.schema)
    return tuple(edge_concern(float(shares_of(solution.records)[at_edge.any(axis=1)].sum())))


def _reconciled(
    noisy: Integers, variance: float, cell: Integers, first: Integers, scale: float
) -> tuple[Floats, Floats]:
    """Return counts of parts and their variances, by least squares with the counts of their cells.

    The sum of m parts of variance v and the first count of their cell, of variance w, are two
    estimates of one number: each part gets the same share of the difference, v / (m v + w).
    """
    whole = discrete_laplace_variance(2 * scale)
    number = np.bincount(cell, minlength=len(first))[cell]
    missing = (first - np.bincount(cell, noisy, minlength=len(first)))[cell]
    gain = variance / (number * variance + whole)
    return np.asarray(noisy + gain * missing), np.asarray(variance * (1 - gain))


@dataclass(frozen=True)
class Heavy:
    """Rule that picks the cells to refine, from their first noisy counts alone.

    Parameters
    ----------
    n_cells, dim : int
        Numbers of cells and of columns.
    scale : float
        Scale of the noise of a light cell, about.
    """

    n_cells: int
    dim: int
    scale: float

    def along(self, first: Integers) -> Integers:
        """Return the parts of each cell along each axis, (n_cells,); 1 for cells not refined.

        A part with an equal share of the records stays above the noise.
        """
        light = max(_STANDS_OUT * self.dim, math.log(self.n_cells / _FALSE_ALARM)) * 2 * self.scale
        ideal = np.sqrt(np.maximum(first, 0) / (self.scale * _STANDS_OUT))
        max_along = min(_MAX_ALONG, math.floor(math.pow(_MAX_PARTS, 1 / self.dim) + 1e-9))
        along: Integers = np.minimum(np.floor(ideal), max_along).astype(np.int64)
        along[first <= light] = 1
        along = np.maximum(along, 1)
        order = np.argsort(-first, kind="stable")  # the heaviest first
        n_parts = np.where(along[order] > 1, along[order] ** self.dim, 0)
        max_parts = min(max(_PARTS_PER_CELL * self.n_cells, _FEW_PARTS), _MANY_PARTS)
        along[order[np.cumsum(n_parts) > max_parts]] = 1
        return along

    def __call__(self, first: Integers) -> Bits:
        """Return the mask of the cells to refine."""
        return self.along(first) > 1


class Grid:
    """Cells of the box of the records, in the whole numbers of the passes."""

    def __init__(self, passes: Passes, shape: tuple[int, ...]) -> None:
        self.shape, self.n_cells = shape, math.prod(shape)
        self._passes = passes
        # Starts of the groups of integers -limit..limit, whose sizes differ by at most one.
        self._starts = [
            -(-np.arange(g + 1, dtype=np.int64) * (2 * int(limit) + 1) // g)
            for g, limit in zip(shape, passes.limits, strict=True)
        ]

    def _along(self, records: Whole) -> list[Integers]:
        """Return the cell of each record along each axis."""
        return [
            (records[:, axis].astype(np.int64) + int(limit)) * g // (2 * int(limit) + 1)
            for axis, (g, limit) in enumerate(zip(self.shape, self._passes.limits, strict=True))
        ]

    def counts(self) -> Integers:
        """Count the records of every cell, (n_cells,), in one pass; first column slowest."""

        def work(records: Whole) -> tuple[Integers, ...]:
            number = np.ravel_multi_index(self._along(records), self.shape)
            return (np.bincount(number, minlength=self.n_cells),)

        return self._passes.sums(work, "cells")[0]

    def counts_of_parts(self, along: Integers) -> Integers:
        """Count the records of parts, cell by cell, in one pass; `along` is for each axis."""
        dim = len(self.shape)
        n_parts = np.where(along > 1, along**dim, 0)
        ends = np.cumsum(n_parts)

        def work(records: Whole) -> tuple[Integers, ...]:
            cells = self._along(records)
            number = np.ravel_multi_index(cells, self.shape)
            in_heavy = along[number] > 1
            number, parts = number[in_heavy], along[number[in_heavy]]
            part = np.zeros(len(number), dtype=np.int64)
            for axis, (starts, limit) in enumerate(
                zip(self._starts, self._passes.limits, strict=True)
            ):
                cell = cells[axis][in_heavy]
                whole = records[in_heavy, axis].astype(np.int64) + int(limit) - starts[cell]
                part = part * parts + whole * parts // (starts[cell + 1] - starts[cell])
            return (np.bincount(ends[number] - n_parts[number] + part, minlength=int(ends[-1])),)

        return self._passes.sums(work, "parts of cells")[0]

    def grids(self, along: Integers) -> tuple[Indices, ...]:
        """Return the grids of boxes by their numbers: light cells, then the parts of each cell."""
        light = along == 1
        whole = np.where(light, np.cumsum(light) - 1, -1).reshape(self.shape)
        grids, first = [whole], int(light.sum())
        for m in along[~light].tolist():
            size = m ** len(self.shape)
            grids.append(np.arange(first, first + size).reshape((m,) * len(self.shape)))
            first += size
        return tuple(grids)

    def _position(self, axis: int, whole: Integers) -> Floats:
        """Return the lower end of groups by their first integers, about the center of the box.

        Records are rounded to integers; outermost groups end with the box.
        """
        passes, limit = self._passes, int(self._passes.limits[axis])
        half = float(passes.domain.half_widths[axis])
        position = np.where(whole <= 0, -half, (whole - limit - 0.5) * passes.unit)
        return np.asarray(np.where(whole > 2 * limit, half, position))

    def edges(self) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of all cells, (n_cells, dim)."""
        cells = np.unravel_index(np.arange(self.n_cells), self.shape)
        pairs = list(enumerate(zip(cells, self._starts, strict=True)))
        low = [self._position(axis, starts[cell]) for axis, (cell, starts) in pairs]
        high = [self._position(axis, starts[cell + 1]) for axis, (cell, starts) in pairs]
        return np.stack(low, axis=1), np.stack(high, axis=1)

    def edges_of_parts(self, along: Integers) -> tuple[Floats, Floats, Integers]:
        """Return the ends of all parts, in the order of their counts, and the cell of each."""
        dim = len(self.shape)
        n_parts = np.where(along > 1, along**dim, 0)
        cell = np.repeat(np.arange(self.n_cells), n_parts)
        rest = np.arange(len(cell)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        cells, parts = np.unravel_index(cell, self.shape), along[cell]
        low, high = np.empty((len(cell), dim)), np.empty((len(cell), dim))
        for axis in range(dim - 1, -1, -1):
            rest, part = np.divmod(rest, parts)
            starts: Integers = self._starts[axis]
            begin: Integers = starts[cells[axis]]
            width: Integers = starts[cells[axis] + 1] - begin
            low[:, axis] = self._position(axis, begin - (-part * width // parts))
            high[:, axis] = self._position(axis, begin - (-(part + 1) * width // parts))
        return low, high, cell
