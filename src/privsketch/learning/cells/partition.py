"""Masses of components in boxes: products over axes.

The mass of an axis-parallel Gaussian in a box is a product over axes of differences of error
functions. Boxes share intervals: a grid of g^d cells has d g of them, so that few factors are
computed. The outermost intervals reach to infinity, because they count the records outside the
domain: all masses of a component add up to one. Boxes come in tiles of neighbours, and a component
has no mass in tiles beyond its reach: few of many components are near a box (kernels/masses.py).
The uniform background has the last weight.

Along an axis of labels a component has a share of its records in each cell, which takes the place
of a difference of error functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from privsketch._base.types import Bits, Floats, Indices
from privsketch.kernels.machine import Code, address
from privsketch.kernels.masses import DERIVATIVES, MOMENTS, PARTS, REACH, MassCode, compile_masses
from privsketch.learning.cells.boxes import Boxes

TILE_BOXES = 32  # at most; fewer are nearer to each other, more take fewer steps
_BLOCK_TILES = 16  # tiles of a block, whose masses are multiplied as matrices


@dataclass(frozen=True)
class Partition:
    """Boxes as products of distinct intervals along the axes.

    Intervals of all axes are concatenated, those of an axis in the order of their lower ends.

    Attributes
    ----------
    low, high : (dim,) float64
        The domain.
    lower, upper : (n_intervals,) float64
        Ends of each interval inside the domain.
    begins : (dim + 1,) intp
        First interval of each axis, and the number of all intervals.
    index : (n_boxes, dim) int64
        Intervals of the boxes, in the order of tiles.
    order : (n_boxes,) intp
        Boxes in the order of tiles.
    tile_begins : (n_tiles + 1,) int64
        First box of each tile in that order, and the number of boxes.
    shares : (n_boxes,) float64
        Volumes of boxes as shares of the domain.
    is_label : (dim,) bool
        Mask of the axes of labels.
    """

    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    begins: Indices
    index: Indices
    order: Indices
    tile_begins: Indices
    shares: Floats
    is_label: Bits

    @cached_property
    def label_columns(self) -> Indices:
        """Intervals that are labels."""
        return np.flatnonzero(np.repeat(self.is_label, np.diff(self.begins)))

    @property
    def n_free_shares(self) -> int:
        """Number of free shares of a component."""
        return len(self.label_columns) - int(self.is_label.sum())

    @cached_property
    def numbers(self) -> Indices:
        """Axes that are no labels."""
        return np.flatnonzero(~self.is_label)

    def normalised(self, weights: Floats, shares: Floats) -> tuple[Floats, Floats]:
        """Return weights (size + 1,) and shares that sum to 1 along every axis of labels."""
        weights, shares, first = weights.copy(), shares.copy(), 0
        for axis in np.flatnonzero(self.is_label):
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
        return len(self.index)

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.low)

    @cached_property
    def finest(self) -> Floats:
        """(dim,) length of the shortest interval along each axis."""
        return np.asarray(np.minimum.reduceat(self.upper - self.lower, self.begins[:-1]))

    @cached_property
    def code(self) -> MassCode:
        """The compiled functions for boxes of these axes."""
        return compile_masses(tuple(bool(is_label) for is_label in self.is_label))

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Ends of intervals; those at the border of the domain are infinite."""
        axis = np.repeat(np.arange(self.dim), np.diff(self.begins))
        rounding = 1e-9 * (self.high - self.low)[axis]
        lower = np.where(self.lower <= self.low[axis] + rounding, -np.inf, self.lower)
        return lower, np.where(self.upper >= self.high[axis] - rounding, np.inf, self.upper)

    @cached_property
    def tile_intervals(self) -> tuple[Indices, Indices]:
        """First and last interval of each tile along the axes, (n_tiles, dim)."""
        begins = self.tile_begins[:-1]
        return (
            np.minimum.reduceat(self.index, begins, axis=0),
            np.maximum.reduceat(self.index, begins, axis=0),
        )

    @cached_property
    def tile_ends(self) -> tuple[Floats, Floats]:
        """Ends of each tile along the axes, (n_tiles, dim); all labels are in reach."""
        lower, upper = self.ends
        begins = self.tile_begins[:-1]
        low = np.minimum.reduceat(lower[self.index], begins, axis=0)
        high = np.maximum.reduceat(upper[self.index], begins, axis=0)
        low[:, self.is_label], high[:, self.is_label] = -np.inf, np.inf
        return low, high

    def tables(self, size: int) -> Floats:
        """Return room for the factors of components, (groups, n_intervals, PARTS, lanes)."""
        lanes = self.code.lanes
        return np.zeros((-(-size // lanes), len(self.lower), PARTS, lanes))


class Masses:
    """Masses of components in the boxes of a partition.

    Parameters
    ----------
    partition : Partition
        The boxes.
    centers, widths : (size, dim) float64
        Centers and widths of Gaussians; along axes of labels they mean nothing.
    shares : (size, n_labels) float64
        Shares of labels.
    reach : float
        Widths from a center beyond which components count for no tile.
    mode : int
        Which numbers tables hold; see `kernels/masses.py`.
    tables : array, optional
        Room for factors, whose contents are lost. Neighbours should follow each other: those of one
        group are computed wherever one of them has mass.
    """

    def __init__(
        self,
        partition: Partition,
        centers: Floats,
        widths: Floats,
        shares: Floats,
        *,
        reach: float = REACH,
        mode: int = DERIVATIVES,
        tables: Floats | None = None,
    ) -> None:
        self.partition, self.size = partition, len(centers)
        self.tables = partition.tables(self.size) if tables is None else tables
        self._lanes = self.tables.shape[3]
        low, high = (self._in_groups(centers + sign * reach * widths) for sign in (-1, 1))
        tile_low, tile_high = partition.tile_ends
        self.is_near = np.ones((len(tile_low), len(self.tables)), dtype=np.bool_)
        for d in partition.numbers:
            self.is_near &= low[:, d].min(axis=1) < tile_high[:, d, np.newaxis]
            self.is_near &= high[:, d].max(axis=1) > tile_low[:, d, np.newaxis]
        counts = self.is_near.sum(axis=1)
        groups = np.ascontiguousarray(np.nonzero(self.is_near)[1])
        self._lists = np.append(0, counts.cumsum()), groups
        self._fill(centers, widths, mode)
        for label, column in enumerate(partition.label_columns):
            own = self._in_groups(shares[:, label : label + 1])[:, 0]
            self.tables[:, column, 0] = own**2 if mode not in (DERIVATIVES, MOMENTS) else own

    def _in_groups(self, values: Floats) -> Floats:
        """Return rows of components as (groups, columns, lanes); the last one fills its group."""
        n_rows = len(self.tables) * self._lanes
        rows = np.minimum(np.arange(n_rows), self.size - 1)
        by_group = values[rows].reshape(len(self.tables), self._lanes, -1)
        return np.ascontiguousarray(by_group.transpose(0, 2, 1))

    def _weights(self, weights: Floats) -> Floats:
        padded = np.zeros((len(self.tables), self._lanes))
        padded.reshape(-1)[: self.size] = weights[: self.size]
        return padded

    def _fill(self, centers: Floats, widths: Floats, mode: int) -> None:
        """Fill the tables in reach."""
        partition = self.partition
        groups, tiles = np.nonzero(self.is_near.T)
        if len(groups) == 0:
            return
        first_tiles = np.flatnonzero(np.diff(groups, prepend=-1))
        lowest, highest = partition.tile_intervals
        begin = np.minimum.reduceat(lowest[tiles], first_tiles, axis=0)[:, partition.numbers]
        end = np.maximum.reduceat(highest[tiles], first_tiles, axis=0)[:, partition.numbers] + 1
        group = np.repeat(groups[first_tiles], len(partition.numbers))
        axis = np.tile(partition.numbers, len(first_tiles))
        arrays = (
            *(group, axis, begin.ravel(), end.ravel(), *partition.ends),
            *(self._in_groups(values) for values in (centers, 1 / widths)),
            self.tables,
        )
        numbers = len(group), partition.dim, len(partition.lower), mode
        _call(partition.code.factors, numbers, arrays)

    def sums(self, weights: Floats, parts: Indices | None = None) -> Floats:
        """Return the mass of all components together in every box, (n_boxes,)."""
        partition = self.partition
        in_tiles = np.empty(partition.n_boxes)
        parts = np.zeros(partition.dim, dtype=np.int64) if parts is None else parts
        arrays = (partition.tile_begins, *self._lists, partition.index, parts, self.tables)
        numbers = len(partition.tile_begins) - 1, len(partition.lower)
        _call(partition.code.sums, numbers, (*arrays, self._weights(weights), in_tiles))
        sums = np.empty(partition.n_boxes)
        sums[partition.order] = in_tiles
        if len(weights) > self.size:
            sums += weights[-1] * partition.shares
        return sums

    def contract(self, values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return sums over boxes of `values` times masses, and times their derivatives.

        They are sums for the masses of components and of the background (size + 1,), then those
        for derivatives by centers, by log widths (size, dim) and by shares of labels.
        """
        partition, groups = self.partition, len(self.tables)
        totals = np.zeros((groups, 1 + 2 * partition.dim, self._lanes))
        n_label = len(partition.lower) if partition.is_label.any() else 0
        by_label = np.zeros((groups, n_label, self._lanes))
        arrays = (partition.tile_begins, *self._lists, partition.index, self.tables)
        numbers = len(partition.tile_begins) - 1, len(partition.lower)
        in_tiles = values[partition.order]
        _call(partition.code.contract, numbers, (*arrays, in_tiles, totals, by_label))
        rows = totals.transpose(0, 2, 1).reshape(-1, totals.shape[1])[: self.size]
        by_share = by_label[:, partition.label_columns[:n_label]].transpose(0, 2, 1)
        by_center, by_log_width = rows[:, 1:].reshape(self.size, 2, -1).transpose(1, 0, 2)
        mass = np.append(rows[:, 0], values @ partition.shares)
        shares = by_share.reshape(groups * self._lanes, -1)[: self.size]
        return mass, by_center, by_log_width, shares

    def blocks(self) -> Iterator[Block]:
        """Return the blocks of boxes, a few tiles each. Tables must be those of these masses."""
        begins, n_tiles = self.partition.tile_begins, len(self.is_near)
        for first in range(0, n_tiles, _BLOCK_TILES):
            last = min(first + _BLOCK_TILES, n_tiles)
            groups = np.flatnonzero(self.is_near[first:last].any(axis=0))
            rows = (groups[:, np.newaxis] * self._lanes + np.arange(self._lanes)).ravel()
            places = slice(int(begins[first]), int(begins[last]))
            yield Block(self, places, groups, rows[rows < self.size])


@dataclass(frozen=True)
class Block:
    """Some boxes, and the components with mass there.

    Attributes
    ----------
    masses : Masses
        Masses of all components in all boxes.
    places : slice
        The boxes, in the order of tiles.
    groups, near : (n,) intp
        Groups of components with mass there, and their components.
    """

    masses: Masses
    places: slice
    groups: Indices
    near: Indices

    @property
    def boxes(self) -> Indices:
        """Numbers of the boxes."""
        return self.masses.partition.order[self.places]

    @property
    def index(self) -> Indices:
        """Intervals of the boxes, (n, dim)."""
        return self.masses.partition.index[self.places]

    def products(self, parts: Indices | None = None) -> Floats:
        """Return products over axes, (boxes, components), of one part of each factor.

        They are masses by default.
        """
        partition, tables = self.masses.partition, self.masses.tables
        parts = np.zeros(partition.dim, dtype=np.int64) if parts is None else parts
        shape = self.places.stop - self.places.start, len(self.groups), tables.shape[3]
        found = np.empty(shape)
        arrays = self.groups, partition.index, parts, tables, found
        numbers = self.places.start, self.places.stop, len(self.groups), len(partition.lower)
        _call(partition.code.products, numbers, arrays)
        return found.reshape(len(found), -1)[:, : len(self.near)]


def _call(code: Code, numbers: tuple[int, ...], arrays: tuple[npt.NDArray[Any], ...]) -> None:
    code.function(*numbers, *map(address, arrays))


def moments(
    partition: Partition, weights: Floats, centers: Floats, widths: Floats, shares: Floats
) -> tuple[Floats, Floats]:
    """Return masses of boxes (n_boxes,), and integrals of the coordinates (n_boxes, dim).

    Clipped mass counts at the border of the domain. A label is in the middle of its interval.
    """
    masses = Masses(partition, centers, widths, shares, mode=MOMENTS)
    middle, lanes = (partition.lower + partition.upper) / 2, masses.tables.shape[3]
    for column in partition.label_columns:
        masses.tables[:, column, 1] = masses.tables[:, column, 0] * middle[column]
    lower, upper = partition.ends
    axis = np.repeat(np.arange(partition.dim), np.diff(partition.begins))
    group, lane = np.divmod(np.arange(len(centers)), lanes)
    for sign, ends, inside in ((1, lower, partition.lower), (-1, upper, partition.upper)):
        for column in np.flatnonzero(np.isinf(ends) & ~partition.is_label[axis]):
            mean, width = centers[:, axis[column]], widths[:, axis[column]]
            z = sign * (inside[column] - mean) / width
            # Beyond the border are z times the width on average, less the density.
            excess = width * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
            masses.tables[group, column, 1, lane] += sign * excess
    integrals = np.empty((partition.n_boxes, partition.dim))
    for d in range(partition.dim):
        parts = (np.arange(partition.dim) == d).astype(np.int64)
        integrals[:, d] = masses.sums(weights[:-1], parts)
    uniform = weights[-1] * partition.shares
    in_order = middle[partition.index]
    integrals[partition.order] += uniform[partition.order, np.newaxis] * in_order
    return masses.sums(weights), integrals


def partition_of(boxes: Boxes) -> Partition:
    """Return the distinct intervals of boxes along each axis, and tiles of the boxes."""
    columns, begins, index = [], [0], []
    for d in range(boxes.dim):
        ends = [np.unique(side[:, d], return_inverse=True) for side in (boxes.low, boxes.high)]
        (lows, low), (highs, high) = ends
        pairs, interval = np.unique(low * len(highs) + high, return_inverse=True)
        columns.append(np.stack([lows[pairs // len(highs)], highs[pairs % len(highs)]]))
        index.append(interval + begins[-1])
        begins.append(begins[-1] + len(pairs))
    order, tile_begins = _tiles(boxes)
    lower, upper = np.concatenate(columns, axis=1)
    return Partition(
        low=boxes.low.min(axis=0),
        high=boxes.high.max(axis=0),
        lower=lower,
        upper=upper,
        begins=np.array(begins),
        index=np.ascontiguousarray(np.stack(index, axis=1)[order].astype(np.int64)),
        order=order,
        tile_begins=tile_begins,
        shares=boxes.shares,
        is_label=boxes.is_label,
    )


def in_space(positions: Floats, n_parts: int) -> tuple[Indices, Indices]:
    """Return an order in which `n_parts` runs, of nearly equal length, are neighbours in space.

    Runs are halved across their longest side. The number of parts is a power of two.
    """
    n, dim = positions.shape
    ranks = np.empty((n, dim), dtype=np.int64)
    for d in range(dim):
        ranks[np.argsort(positions[:, d], kind="stable"), d] = np.arange(n)
    order, begins = np.arange(n), np.array([0, n])
    while len(begins) <= n_parts:
        ordered = positions[order]
        first = begins[:-1]
        sides = np.maximum.reduceat(ordered, first) - np.minimum.reduceat(ordered, first)
        part = np.repeat(np.arange(len(first)), np.diff(begins))
        axis = sides.argmax(axis=1)[part]
        order = order[np.argsort(part * n + ranks[order, axis])]
        middle = (begins[:-1] + begins[1:]) // 2
        begins = np.append(np.stack([begins[:-1], middle], axis=1).ravel(), n)
    return order, begins


def _tiles(boxes: Boxes) -> tuple[Indices, Indices]:
    """Return boxes in the order of tiles, and the first of each tile."""
    n_parts = 1
    while n_parts * TILE_BOXES < boxes.n_boxes:
        n_parts *= 2
    unit = np.maximum(boxes.high.max(axis=0) - boxes.low.min(axis=0), 1e-300)
    return in_space(boxes.centers / unit, n_parts)
