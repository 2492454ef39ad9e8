"""Masses of components in boxes: products over axes.

The mass of an axis-parallel Gaussian in a box is a product over axes of differences of error
functions. Boxes share intervals: a grid of g^d cells has d g of them. Masses of all cells are
therefore products of few numbers, and sums over cells are computed axis by axis. The outermost
intervals reach to infinity, because they count the records outside the domain: all masses of a
component add up to one. Rows are components; the last row is the uniform background.

Along an axis of labels a component has a share of its records in each cell, which takes the place
of a difference of error functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr

from privsketch._base.types import Bits, Floats, Indices
from privsketch.learning.cells.boxes import Boxes

_ROOT = 1 / math.sqrt(2 * math.pi)
MAX_STANDARDISED = 40.0  # widths from the center at which densities are zero
_MIN_BLOCK_BOXES = 200  # mean number per grid above which a loop over grids is faster


@dataclass(frozen=True)
class Slopes:
    """(components + 1, n_intervals) masses of components along the axes, and derivatives."""

    values: Floats
    by_center: Floats
    by_log_width: Floats


@dataclass(frozen=True)
class Partition:
    """Boxes as products of distinct intervals along the axes.

    Intervals and edges of all axes are concatenated, so that one call serves all axes.

    Attributes
    ----------
    low, high : (dim,) float64
        The domain.
    edges : (n_edges,) float64
        Ends of intervals; those at the border of the domain are infinite.
    edge_axis : (n_edges,) intp
        Axis of each edge.
    first, last : (n_intervals,) intp
        Edges of each interval.
    lower, upper : (n_intervals,) float64
        Ends of each interval inside the domain.
    begins : (dim + 1,) intp
        First interval of each axis, and the number of all intervals.
    index : tuple of (n_boxes,) intp
        For each axis the interval of each box, counted from the first of the axis.
    shape : tuple of int, optional
        Shape of a regular grid, as in `Boxes`.
    blocks : tuple of Block
        Grids of irregular boxes, if sums over these are faster.
    """

    low: Floats
    high: Floats
    edges: Floats
    edge_axis: Indices
    first: Indices
    last: Indices
    lower: Floats
    upper: Floats
    begins: Indices
    index: tuple[Indices, ...]
    shape: tuple[int, ...] | None
    blocks: tuple[Block, ...] = ()
    is_label: Bits | None = None  # (dim,) mask of the axes of labels; None: there are none

    @cached_property
    def label_columns(self) -> Indices:
        """Intervals that are labels."""
        if self.is_label is None:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(np.repeat(self.is_label, np.diff(self.begins)))

    @property
    def n_free_shares(self) -> int:
        """Number of free shares of a component."""
        n_axes = 0 if self.is_label is None else int(self.is_label.sum())
        return len(self.label_columns) - n_axes

    @cached_property
    def numbers(self) -> Indices:
        """Axes that are no labels."""
        if self.is_label is None:
            return np.arange(len(self.low))
        return np.flatnonzero(~self.is_label)

    def normalised(self, weights: Floats, shares: Floats) -> tuple[Floats, Floats]:
        """Return weights (size + 1,) and shares that sum to 1 along every axis of labels."""
        weights, shares, first = weights.copy(), shares.copy(), 0
        for axis in np.flatnonzero(self.is_label) if self.is_label is not None else ():
            last = first + int(self.begins[axis + 1] - self.begins[axis])
            totals = shares[:, first:last].sum(axis=1)
            is_empty = totals <= 1e-9
            shares[is_empty, first:last], totals[is_empty] = 1.0, last - first
            shares[:, first:last] /= shares[:, first:last].sum(axis=1, keepdims=True)
            weights[:-1] *= np.where(is_empty, 0.0, totals)
            first = last
        return weights, shares

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.index[0])

    @property
    def finest(self) -> Floats:
        """(dim,) length of the shortest interval along each axis."""
        return np.asarray(np.minimum.reduceat(self.upper - self.lower, self.begins[:-1]))

    def by_axis(self, values: Floats) -> list[Floats]:
        """Return the columns of the intervals of each axis."""
        return [values[:, i:j] for i, j in pairwise(self.begins)]

    def axis_sums(self, values: Floats) -> Floats:
        """Return (rows, dim) sums over the intervals of each axis."""
        return np.asarray(np.add.reduceat(values, self.begins[:-1], axis=1))

    def _uniform(self) -> Floats:
        """Return the share of every interval in the domain, (n_intervals,)."""
        extent = np.repeat(self.high - self.low, np.diff(self.begins))
        return (self.upper - self.lower) / extent

    def _standardised(self, centers: Floats, widths: Floats) -> Floats:
        z = (self.edges - centers[:, self.edge_axis]) / widths[:, self.edge_axis]
        return np.minimum(np.maximum(z, -MAX_STANDARDISED), MAX_STANDARDISED)

    def factors(self, centers: Floats, widths: Floats, shares: Floats) -> Floats:
        """Return masses along the axes, (components + 1, n_intervals)."""
        masses = np.empty((len(centers) + 1, len(self.first)))
        below = ndtr(self._standardised(centers, widths))
        np.subtract(below[:, self.last], below[:, self.first], out=masses[:-1])
        masses[:-1, self.label_columns] = shares
        masses[-1] = self._uniform()
        return masses

    def slopes(self, centers: Floats, widths: Floats, shares: Floats) -> Slopes:
        """Return masses along the axes, and their derivatives by centers and widths."""
        z = self._standardised(centers, widths)
        density = _ROOT * np.exp(-0.5 * z * z)
        by_edge = (ndtr(z), density / -widths[:, self.edge_axis], density * -z)
        masses = np.zeros((3, len(centers) + 1, len(self.first)))
        for index, values in enumerate(by_edge):
            np.subtract(values[:, self.last], values[:, self.first], out=masses[index, :-1])
        masses[:, :-1, self.label_columns] = 0.0
        masses[0, :-1, self.label_columns] = shares.T
        masses[0, -1] = self._uniform()
        return Slopes(*masses)

    def first_moments(self, centers: Floats, widths: Floats, shares: Floats) -> Floats:
        """Return integrals of the coordinate over intervals; clipped mass counts at the border.

        A label is in the middle of its interval.
        """
        axis = np.repeat(np.arange(len(self.low)), np.diff(self.begins))
        mean, width = centers[:, axis], widths[:, axis]
        begin, end = (self.lower - mean) / width, (self.upper - mean) / width
        below, above = ndtr(begin), ndtr(-end)
        density = _ROOT * (np.exp(-0.5 * begin * begin) - np.exp(-0.5 * end * end))
        integrals = np.empty((len(centers) + 1, len(self.first)))
        integrals[:-1] = mean * (ndtr(end) - below) + width * density
        outermost = np.isneginf(self.edges[self.first])
        integrals[:-1] += np.where(outermost, below * self.lower, 0.0)
        outermost = np.isposinf(self.edges[self.last])
        integrals[:-1] += np.where(outermost, above * self.upper, 0.0)
        middle = (self.lower + self.upper) / 2
        integrals[:-1, self.label_columns] = shares * middle[self.label_columns]
        integrals[-1] = self._uniform() * middle
        return integrals

    def rows(self, factors: Floats) -> Floats:
        """Return the mass of every component in every box, (components + 1, n_boxes)."""
        parts = self.by_axis(factors)
        if self.shape is not None:
            return _products(parts)
        return reduce(np.multiply, self._box_factors(parts)).T

    def sums(self, weights: Floats, factors: Floats) -> Floats:
        """Return the mass of all components together in every box, (n_boxes,)."""
        parts = self.by_axis(factors)
        if self.shape is not None:
            return _sums_of_grid(weights, parts)
        if not self.blocks:
            return np.asarray(reduce(np.multiply, self._box_factors(parts)) @ weights)
        masses = np.empty(self.n_boxes)
        for block in self.blocks:
            masses[block.boxes] = _sums_of_grid(weights, block.columns(parts))[block.cells]
        return masses

    def gram(self, information: Floats, factors: Floats) -> Floats:
        """Return products of all pairs of rows, summed over boxes, weighted by information.

        Sums over a grid are products over axes if all boxes have one weight. Within a component
        they nearly do, so each component has one weight: the mean over its boxes.
        """
        parts = self.by_axis(factors)
        if self.shape is not None:
            return _gram_of_grid(information, parts)
        if not self.blocks:
            rows = self.rows(factors)
            return np.asarray((rows * information) @ rows.T)
        products = np.zeros((len(factors), len(factors)))
        for block in self.blocks:
            products += _gram_of_grid(block.table(information), block.columns(parts))
        return products

    def contract(self, values: Floats, factors: Floats) -> Floats:
        """Return sums of `values` over the boxes of each interval, (components + 1, n_intervals).

        Each box is multiplied by the factors of the other axes. The sum over intervals, weighted by
        the factor of their axis or its derivative, is then the sum over all boxes.
        """
        parts = self.by_axis(factors)
        if self.shape is not None:
            return np.hstack(_contract_grid(values, parts))
        if self.blocks:
            return self._contract_blocks(values, parts)
        box_factors = self._box_factors(parts)
        sums = []
        for d, incidence in enumerate(self._incidence):
            other_axes = [factor for e, factor in enumerate(box_factors) if e != d]
            product = np.broadcast_to(values[:, None], box_factors[0].shape)
            sums.append((incidence @ reduce(np.multiply, other_axes, product)).T)
        return np.hstack(sums)

    def _box_factors(self, parts: list[Floats]) -> list[Floats]:
        """Return the factors of the boxes along each axis, (n_boxes, rows)."""
        return [
            np.ascontiguousarray(part.T)[interval]
            for part, interval in zip(parts, self.index, strict=True)
        ]

    @cached_property
    def _incidence(self) -> list[csr_array]:
        """Incidence matrix (n_intervals, n_boxes) of each axis: 1 where a box has the interval."""
        boxes = np.arange(self.n_boxes)
        return [
            csr_array((np.ones(self.n_boxes), (interval, boxes)), shape=(int(size), self.n_boxes))
            for interval, size in zip(self.index, np.diff(self.begins), strict=True)
        ]

    def _contract_blocks(self, values: Floats, parts: list[Floats]) -> Floats:
        """Return the sums of `contract`, computed grid by grid."""
        totals = [np.zeros_like(part) for part in parts]
        for block in self.blocks:
            sums = _contract_grid(block.table(values), block.columns(parts))
            for axis, (intervals, axis_sums) in enumerate(zip(block.intervals, sums, strict=True)):
                totals[axis][:, intervals] += axis_sums  # no grid has an interval twice
        return np.hstack(totals)


@dataclass(frozen=True)
class Block:
    """Grid with some of the boxes as its cells.

    Attributes
    ----------
    intervals : tuple of (g,) intp
        Intervals along each axis.
    boxes, cells : (n,) intp
        Boxes, and their cells in the grid, in C order.
    size : int
        Number of cells; those without a box have no records.
    """

    intervals: tuple[Indices, ...]
    boxes: Indices
    cells: Indices
    size: int

    def table(self, values: Floats) -> Floats:
        """Return values of the boxes at all cells of the grid, (size,); 0 without a box."""
        entries = np.zeros(self.size)
        entries[self.cells] = values[self.boxes]
        return entries

    def columns(self, parts: list[Floats]) -> list[Floats]:
        """Return the columns of the grid's intervals."""
        return [part[:, columns] for part, columns in zip(parts, self.intervals, strict=True)]


def _blocks(boxes: Boxes, index: list[Indices]) -> tuple[Block, ...]:
    """Return the grids of the boxes if a loop over grids is faster than one over boxes."""
    if boxes.dim == 1 or boxes.n_boxes < _MIN_BLOCK_BOXES * len(boxes.grids):
        return ()
    return tuple(_block(grid, index) for grid in boxes.grids)


def _block(grid: Indices, index: list[Indices]) -> Block:
    cells = np.flatnonzero(grid.reshape(-1) >= 0)
    intervals = []
    for axis, box_intervals in enumerate(index):
        rows = np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)
        # Any box of a slice gives its interval; a slice without boxes may have any free interval.
        slice_box = rows.max(axis=1)
        interval = np.where(slice_box >= 0, box_intervals[slice_box], -1)
        missing = np.flatnonzero(interval < 0)
        free = np.setdiff1d(np.arange(box_intervals.max() + 1), interval)
        interval[missing] = free[: len(missing)]
        intervals.append(interval)
    return Block(tuple(intervals), grid.reshape(-1)[cells], cells, grid.size)


def partition_of(boxes: Boxes) -> Partition:
    """Return the distinct intervals of boxes along each axis."""
    low, high = boxes.low.min(axis=0), boxes.high.max(axis=0)
    columns, edges, index = [], [], []
    begins, edge_begins = [0], [0]
    for d in range(boxes.dim):
        rounding = 1e-9 * (high[d] - low[d])
        pairs, interval = _intervals(boxes, d)
        ends, rank = np.unique(pairs, return_inverse=True)
        columns.append((*(rank.reshape(pairs.shape) + edge_begins[-1]).T, *pairs.T))
        ends = np.where(ends <= low[d] + rounding, -np.inf, ends)
        edges.append(np.where(ends >= high[d] - rounding, np.inf, ends))
        edge_begins.append(edge_begins[-1] + len(ends))
        begins.append(begins[-1] + len(pairs))
        index.append(interval)
    first, last, lower, upper = map(np.concatenate, zip(*columns, strict=True))
    return Partition(
        low=low,
        high=high,
        edges=np.concatenate(edges),
        edge_axis=np.repeat(np.arange(boxes.dim), np.diff(edge_begins)),
        first=first,
        last=last,
        lower=lower,
        upper=upper,
        begins=np.array(begins),
        index=tuple(index),
        shape=boxes.shape if boxes.dim > 1 else None,
        blocks=_blocks(boxes, index) if boxes.shape is None else (),
        is_label=boxes.is_label if boxes.is_label.any() else None,
    )


def _intervals(boxes: Boxes, d: int) -> tuple[Floats, Indices]:
    """Return the (n, 2) distinct intervals along an axis, and the interval of each box."""
    pairs = np.stack([boxes.low[:, d], boxes.high[:, d]], axis=1)
    if boxes.shape is not None:  # a grid needs no sorting
        line = np.moveaxis(pairs.reshape(*boxes.shape, 2), d, 0)
        interval = np.arange(boxes.n_boxes) // math.prod(boxes.shape[d + 1 :]) % boxes.shape[d]
        return line.reshape(boxes.shape[d], -1, 2)[:, 0], interval
    distinct, interval = np.unique(pairs, axis=0, return_inverse=True)
    return distinct, interval.reshape(-1)


def _products(factors: list[Floats]) -> Floats:
    """Return products of all combinations of columns, (rows, product of sizes), in C order."""
    products = factors[0]
    for factor in factors[1:]:
        products = (products[:, :, None] * factor[:, None, :]).reshape(len(products), -1)
    return products


def _sums_of_grid(weights: Floats, factors: list[Floats]) -> Floats:
    """Return sums of rows over a grid, (product of sizes,), in two halves of the axes."""
    half = len(factors) // 2
    left = _products(factors[:half]) * weights[:, None]
    return np.asarray((left.T @ _products(factors[half:])).reshape(-1))


def _gram_of_grid(information: Floats, factors: list[Floats]) -> Floats:
    """Return products of pairs of rows over a grid, each row with the weight of its cells."""
    plain = reduce(np.multiply, [factor @ factor.T for factor in factors])
    squares = [factor**2 for factor in factors]
    weighted = np.einsum("ij,ij->i", _contract_grid(information, squares)[0], squares[0])
    scale = np.sqrt(weighted / np.maximum(plain.diagonal(), np.finfo(float).tiny))
    return np.asarray(plain * scale * scale[:, None])


def _contract_grid(values: Floats, factors: list[Floats]) -> list[Floats]:
    """Return sums over a grid in two halves of the axes, each of which is then small."""
    half = len(factors) // 2
    left, right = _products(factors[:half]), _products(factors[half:])
    table = values.reshape(left.shape[1], right.shape[1])
    over_right, over_left = right @ table.T, left @ table
    return _contract_rows(over_right, factors[:half]) + _contract_rows(over_left, factors[half:])


def _contract_rows(values: Floats, factors: list[Floats]) -> list[Floats]:
    """Return the sums of `_contract_grid`, where each row has its own values."""
    if len(factors) == 1:
        return [values]
    half = len(factors) // 2
    left, right = _products(factors[:half]), _products(factors[half:])
    table = values.reshape(len(values), left.shape[1], right.shape[1])
    over_right = np.matmul(table, right[:, :, None])[:, :, 0]
    over_left = np.matmul(left[:, None, :], table)[:, 0, :]
    return _contract_rows(over_right, factors[:half]) + _contract_rows(over_left, factors[half:])
