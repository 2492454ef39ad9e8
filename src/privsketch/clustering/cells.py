"""K-means from cells, for one holder: a noisy histogram that is refined in heavy cells.

The box is cut into cells, whose numbers of records are released with Laplace noise. Heavy cells are
cut into parts, which a second pass counts at no cost for the other cells (noise/zoom.py): clusters
much narrower than a cell are then found too. The result is counts of disjoint boxes, from which the
decoder of cell sketches learns clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from privsketch._base.errors import ParameterError, require_count
from privsketch._base.types import Bits, Floats, Indices, Integers, WholeFloats
from privsketch.clustering.extent import crowded, has_records, spread_of, unresolved
from privsketch.clustering.forecast import PublicFacts, counted_cells, forecast_ratio
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run, shares_of
from privsketch.design.cells import cell_noise_std, plan_cells
from privsketch.facts.domain import enclosing_box
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.stream import Purpose, public_generator
from privsketch.kernels.nearest import nearest
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, decode_cells
from privsketch.learning.concerns import RecordCount, bounds_concern, counting_bounds, sides
from privsketch.models.clusters import ClusterModel
from privsketch.noise.calibration import discrete_laplace_variance

NEAR_EDGE = 0.02  # distance of a center from the edge, in half-widths, that noise explains
# A heavy cell has so many records that parts with equal shares exceed this number of noise scales
# along each axis. Noise makes an empty cell heavy in one of 20 runs.
_MIN_SIGNAL, _EMPTY_CELL_ALARM = 5 * math.sqrt(2), 1 / 20
_MAX_PARTS_PER_AXIS, _MAX_PARTS_OF_CELL = 8, 1000
# Largest total number of parts: their noise stays below that of the cells, or there are a few
# thousand, and never more than the decoder can use in some seconds.
_PARTS_PER_CELL, _FEW_PARTS, _MANY_PARTS = 1.5, 4000, 20_000


# What noise and sampling add to the cost by moving centers, over the cost, above which a run says
# so. In 249 runs with tables and random studies, 41 of the 42 whose cost was above 1.5 have more,
# and 12 of the 166 below 1.1. Shifts do not know of missed clusters: MEASURED_EXCESS shift^0.75 is
# what becomes of the cost.
MAX_SHIFT = 0.0425
MEASURED_EXCESS, MEASURED_POWER = 1.4, 0.75


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
    noise = cell_noise_std(run.left, "laplace")
    grid = Grid(passes, plan_cells(box.half_widths, n_clusters, n_records, noise))
    account = run.share({"cells": Fraction(1)})
    rule = HeavyCells(grid.n_cells, passes.dim, laplace_scale(noise))
    first, second, law = account.zoom("cells", grid.counts(), rule)
    per_axis = rule.parts_per_axis(first)
    low, high = grid.edges()
    counts = second.astype(np.float64)
    variance = np.full(grid.n_cells, law.variance)
    heavy = per_axis > 1
    shape: tuple[int, ...] | None = grid.shape
    grids: tuple[Indices, ...] = ()
    if heavy.any():
        noisy, part_variance = account.parts(law, grid.counts_of_parts(per_axis))
        parts_low, parts_high, cell = grid.edges_of_parts(per_axis)
        parts, variances = _reconcile(noisy, part_variance, cell, first, law.scale)
        low, high = np.vstack([low[~heavy], parts_low]), np.vstack([high[~heavy], parts_high])
        counts = np.concatenate([counts[~heavy], parts])
        variance = np.concatenate([variance[~heavy], variances])
        shape, grids = None, grid.grids(per_axis)
    boxes = Boxes(low, high, counts, variance, shape=shape, grids=grids)
    solution = decode_cells(boxes, n_clusters, public_generator(run.seed, Purpose.CELLS_DECODER))
    edge, too_wide = (rule(run, boxes, solution) for rule in (_edge_concerns, _width_concerns))
    release = f"{' x '.join(map(str, grid.shape))} cells"
    if heavy.any():
        release += f", {int(heavy.sum())} of them in {len(counts) - int((~heavy).sum())} parts"
    return run.model(
        solution.centers + box.center_vector,
        solution.records,
        method="cells",
        mechanism=f"k-means of counts of {release}",
        concerns=edge if too_wide and not edge else (*edge, *_doubts(solution)),
        too_wide=too_wide,
        forecast=partial(_measured_forecast, solution, grid.shape),
        # Counts of parts would be biased: cells are heavy by their noise as well.
        seen=RecordCount(
            float(first.sum()), grid.n_cells * discrete_laplace_variance(2 * law.scale)
        ),
    )


def cells_forecast(facts: PublicFacts, cells: tuple[int, ...] | None = None) -> float:
    """Return the cost ratio to expect of a grid, by default the one that is planned."""
    noise = cell_noise_std(replace(facts.budget, delta=0.0), "laplace")
    if cells is None:
        half_widths = enclosing_box(facts.domain).half_widths
        cells = plan_cells(half_widths, facts.n_clusters, max(facts.n_records, 1.0), noise)
    return forecast_ratio(facts, counted_cells(facts, cells, noise**2))


def _measured_forecast(solution: CellSolution, cells: tuple[int, ...], facts: PublicFacts) -> float:
    """Return the cost ratio that released counts tell; the forecast if that is lower."""
    planned = cells_forecast(facts, cells)
    measured = 1 + MEASURED_EXCESS * math.pow(solution.excess, MEASURED_POWER)
    return planned if facts.n_records < facts.n_clusters else min(planned, measured)


def _doubts(solution: CellSolution) -> tuple[str, ...]:
    """Return a concern if noise and sampling move the centers by a good part of their clusters."""
    if solution.excess <= MAX_SHIFT:
        return ()
    return (
        "the centers may be far from those without privacy: noise and sampling are expected to "
        f"move them by {min(math.sqrt(solution.excess), 1.0):.0%} of the spread of their clusters. "
        "More records, a larger epsilon or fewer clusters help",
    )


def laplace_scale(noise_std: float) -> float:
    """Return the scale of discrete Laplace noise of a standard deviation, however large.

    The variance is 1 / (cosh(1 / scale) - 1) = 1 / (2 sinh(1 / (2 scale))^2).
    """
    return 0.5 / math.asinh(1 / (math.sqrt(2) * noise_std))


def _edge_concerns(run: Run, boxes: Boxes, solution: CellSolution) -> tuple[str, ...]:
    """Return a concern if clusters lie at the edge, where records outside the domain are moved.

    A cluster is at the edge if it is nearer than a quarter of the smallest box. Noise moves a
    center farther than that where boxes are tiny.
    """
    half = run.box.half_widths
    distance = np.maximum((boxes.high - boxes.low).min(axis=0) / 4, NEAR_EDGE * half)
    domain = run.box if run.schema is None else run.schema.box
    is_at = sides(solution.centers) > half - distance
    is_at &= counting_bounds(domain, run.schema)
    weights = shares_of(solution.records)
    return tuple(bounds_concern(is_at, weights, domain, run.schema, run.names))


def _width_concerns(run: Run, boxes: Boxes, solution: CellSolution) -> tuple[str, ...]:
    """Return a concern if clusters that have records lie within the smallest box, or are few.

    As in concerns of sketches, boxes resolve half of their shortest side.
    """
    centers, counts, density = solution.centers, solution.records, solution.density
    label = nearest((boxes.low + boxes.high) / 2, centers)
    errors = np.sqrt(np.bincount(label, boxes.variance, minlength=len(centers)))
    real = has_records(counts, errors)
    if not real.any():
        return ()
    atoms = density.weights > 0
    of_real = atoms & real[nearest(density.centers, centers)]
    width = 0.0
    if of_real.any():
        variances = np.broadcast_to(density.variances, density.centers.shape)[of_real]
        width = math.sqrt(float(np.mean(shares_of(density.weights[of_real]) @ variances)))
    extent = math.hypot(spread_of(centers[real], counts[real]), width)
    finest = float((boxes.high - boxes.low).min()) / 2
    return unresolved(extent, finest, "the grid") or crowded(centers, counts, errors, run.box)


def _reconcile(
    noisy: Integers, variance: float, cell: Integers, first: Integers, scale: float
) -> tuple[Floats, Floats]:
    """Return counts of parts and their variances, by least squares with the counts of their cells.

    The sum of m parts of variance v and the first count of their cell, of variance w, are two
    estimates of one number: each part gets the same share of the difference, v / (m v + w).
    """
    cell_variance = discrete_laplace_variance(2 * scale)
    n_parts = np.bincount(cell, minlength=len(first))[cell]
    difference = (first - np.bincount(cell, noisy, minlength=len(first)))[cell]
    gain = variance / (n_parts * variance + cell_variance)
    return np.asarray(noisy + gain * difference), np.asarray(variance * (1 - gain))


@dataclass(frozen=True)
class HeavyCells:
    """Rule that picks the cells to refine, from their first noisy counts alone.

    Parameters
    ----------
    n_cells, dim : int
        Numbers of cells and of columns.
    scale : float
        Approximate noise scale of a cell that is not refined.
    """

    n_cells: int
    dim: int
    scale: float

    def parts_per_axis(self, first: Integers) -> Integers:
        """Return the parts of each cell along each axis, (n_cells,); 1 for cells not refined.

        A part with an equal share of the records stays above the noise.
        """
        alarm = math.log(self.n_cells / _EMPTY_CELL_ALARM)
        max_light = max(_MIN_SIGNAL * self.dim, alarm) * 2 * self.scale
        ideal = np.sqrt(np.maximum(first, 0) / (self.scale * _MIN_SIGNAL))
        root = math.floor(math.pow(_MAX_PARTS_OF_CELL, 1 / self.dim) + 1e-9)
        largest = min(_MAX_PARTS_PER_AXIS, root)
        parts: Integers = np.minimum(np.floor(ideal), largest).astype(np.int64)
        parts[first <= max_light] = 1
        parts = np.maximum(parts, 1)
        order = np.argsort(-first, kind="stable")  # the heaviest first
        n_parts = np.where(parts[order] > 1, parts[order] ** self.dim, 0)
        max_parts = min(max(_PARTS_PER_CELL * self.n_cells, _FEW_PARTS), _MANY_PARTS)
        parts[order[np.cumsum(n_parts) > max_parts]] = 1
        return parts

    def __call__(self, first: Integers) -> Bits:
        """Return the mask of the cells to refine."""
        return self.parts_per_axis(first) > 1


class Grid:
    """Cells of the box of the records, as ranges of the integers of the passes."""

    def __init__(self, passes: Passes, shape: tuple[int, ...]) -> None:
        self.shape, self.n_cells = shape, math.prod(shape)
        self._passes = passes
        # First integers of the ranges, counted from -limit; their sizes differ by at most one.
        self._starts = [
            -(-np.arange(g + 1, dtype=np.int64) * (2 * int(limit) + 1) // g)
            for g, limit in zip(shape, passes.limits, strict=True)
        ]

    def _cells(self, records: WholeFloats) -> list[Integers]:
        """Return the cell of each record along each axis."""
        return [
            (records[:, axis].astype(np.int64) + int(limit)) * g // (2 * int(limit) + 1)
            for axis, (g, limit) in enumerate(zip(self.shape, self._passes.limits, strict=True))
        ]

    def counts(self) -> Integers:
        """Count the records of every cell, (n_cells,), in one pass; first column slowest."""

        def work(records: WholeFloats) -> tuple[Integers, ...]:
            number = np.ravel_multi_index(self._cells(records), self.shape)
            return (np.bincount(number, minlength=self.n_cells),)

        return self._passes.sums(work, "cells")[0]

    def counts_of_parts(self, per_axis: Integers) -> Integers:
        """Count the records of parts, cell by cell, in one pass."""
        n_parts = np.where(per_axis > 1, per_axis ** len(self.shape), 0)
        ends = np.cumsum(n_parts)

        def work(records: WholeFloats) -> tuple[Integers, ...]:
            cells = self._cells(records)
            number = np.ravel_multi_index(cells, self.shape)
            in_heavy = per_axis[number] > 1
            number, parts = number[in_heavy], per_axis[number[in_heavy]]
            part = np.zeros(len(number), dtype=np.int64)
            for axis, (starts, limit) in enumerate(
                zip(self._starts, self._passes.limits, strict=True)
            ):
                cell = cells[axis][in_heavy]
                offset = records[in_heavy, axis].astype(np.int64) + int(limit) - starts[cell]
                part = part * parts + offset * parts // (starts[cell + 1] - starts[cell])
            return (np.bincount(ends[number] - n_parts[number] + part, minlength=int(ends[-1])),)

        return self._passes.sums(work, "parts of cells")[0]

    def grids(self, per_axis: Integers) -> tuple[Indices, ...]:
        """Return grids of box numbers: unrefined cells, then the parts of each refined one."""
        light = per_axis == 1
        cells = np.where(light, np.cumsum(light) - 1, -1).reshape(self.shape)
        grids, first = [cells], int(light.sum())
        for m in per_axis[~light].tolist():
            size = m ** len(self.shape)
            grids.append(np.arange(first, first + size).reshape((m,) * len(self.shape)))
            first += size
        return tuple(grids)

    def _position(self, axis: int, start: Integers) -> Floats:
        """Return the lower ends of ranges by their first integers, about the center of the box.

        Records are rounded to integers; the outermost ranges end with the box.
        """
        passes, limit = self._passes, int(self._passes.limits[axis])
        half = float(passes.domain.half_widths[axis])
        position = np.where(start <= 0, -half, (start - limit - 0.5) * passes.unit)
        return np.asarray(np.where(start > 2 * limit, half, position))

    def edges(self) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of all cells, (n_cells, dim)."""
        one_each = np.ones(self.n_cells, dtype=np.int64)
        return self._edges(np.arange(self.n_cells), 0 * one_each, one_each)

    def edges_of_parts(self, per_axis: Integers) -> tuple[Floats, Floats, Integers]:
        """Return the ends of all parts, in the order of their counts, and the cell of each."""
        n_parts = np.where(per_axis > 1, per_axis ** len(self.shape), 0)
        cell = np.repeat(np.arange(self.n_cells), n_parts)
        number = np.arange(len(cell)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts)
        return *self._edges(cell, number, per_axis[cell]), cell

    def _edges(self, cell: Integers, number: Integers, per_axis: Integers) -> tuple[Floats, Floats]:
        """Return the ends of parts by their numbers in cells of `per_axis` parts along an axis."""
        cells = np.unravel_index(cell, self.shape)
        low, high = np.empty((2, len(cell), len(self.shape)))
        for axis in range(len(self.shape) - 1, -1, -1):
            number, part = np.divmod(number, per_axis)
            starts: Integers = self._starts[axis]
            begin: Integers = starts[cells[axis]]
            width: Integers = starts[cells[axis] + 1] - begin
            low[:, axis] = self._position(axis, begin - (-part * width // per_axis))
            high[:, axis] = self._position(axis, begin - (-(part + 1) * width // per_axis))
        return low, high
