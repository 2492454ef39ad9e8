"""How much of axis-parallel Gaussians lies in boxes, and what each unknown changes of it.

The mass of a Gaussian in a box is a product over axes of differences of error functions. Boxes
share intervals: a grid of g^d cells has d g of them, so that masses of all cells are products of
few numbers, and sums over cells are taken axis by axis. The outermost intervals reach to
infinity, because records outside of the domain are counted in them: all masses of a component
add up to one. The last row of every factor is the background, even over the domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from privsketch._typing import Floats, Indices
from privsketch.learning.cells.boxes import Boxes

_ROOT = 1 / math.sqrt(2 * math.pi)
Factors = list[Floats]  # for every axis (components + 1, intervals)


@dataclass(frozen=True)
class Axis:
    """Different intervals of the boxes along one axis."""

    low: Floats
    high: Floats
    open_low: Floats  # the same, but minus infinity at the edge of the domain
    open_high: Floats
    index: Indices  # (n_boxes,) interval of each box

    @property
    def size(self) -> int:
        """Number of intervals."""
        return len(self.low)

    @property
    def extent(self) -> float:
        """Length of the domain."""
        return float(self.high.max() - self.low.min())


@dataclass(frozen=True)
class Slopes:
    """Factors of components along the axes with their derivatives."""

    values: Factors
    by_center: Factors
    by_log_width: Factors


@dataclass(frozen=True)
class Partition:
    """Boxes by their intervals; `shape` as in Boxes."""

    axes: tuple[Axis, ...]
    shape: tuple[int, ...] | None

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.axes[0].index)

    @property
    def low(self) -> Floats:
        """(dim,) corner of the domain."""
        return np.array([axis.low.min() for axis in self.axes])

    @property
    def high(self) -> Floats:
        """(dim,) opposite corner of the domain."""
        return np.array([axis.high.max() for axis in self.axes])

    @property
    def finest(self) -> Floats:
        """(dim,) length of the shortest interval along each axis."""
        return np.array([(axis.high - axis.low).min() for axis in self.axes])

    def factors(self, centers: Floats, widths: Floats) -> Factors:
        """Masses of the components' intervals."""
        found = []
        for axis, center, width in zip(self.axes, centers.T, widths.T, strict=True):
            upper = ndtr((axis.open_high - center[:, None]) / width[:, None])
            lower = ndtr((axis.open_low - center[:, None]) / width[:, None])
            found.append(np.vstack([upper - lower, (axis.high - axis.low) / axis.extent]))
        return found

    def slopes(self, centers: Floats, widths: Floats) -> Slopes:
        """Masses of the components' intervals, and their derivatives."""
        values, by_center, by_log_width = [], [], []
        for axis, center, width in zip(self.axes, centers.T, widths.T, strict=True):
            edges = np.stack([axis.open_low, axis.open_high])
            z = (edges[:, None, :] - center[:, None]) / width[:, None]
            np.clip(z, -40.0, 40.0, out=z)  # densities there are zero
            below, density = ndtr(z), _ROOT * np.exp(-0.5 * z * z)
            share = (axis.high - axis.low) / axis.extent
            none = np.zeros((1, axis.size))
            values.append(np.vstack([below[1] - below[0], share]))
            by_center.append(np.vstack([(density[0] - density[1]) / width[:, None], none]))
            z *= density
            by_log_width.append(np.vstack([z[0] - z[1], none]))
        return Slopes(values, by_center, by_log_width)

    def first_moments(self, centers: Floats, widths: Floats) -> Factors:
        """Integrals of the coordinate over the intervals; what is cut off counts at the edge."""
        found = []
        for axis, center, width in zip(self.axes, centers.T, widths.T, strict=True):
            edges = np.stack([axis.low, axis.high])
            z = (edges[:, None, :] - center[:, None]) / width[:, None]
            below, density = ndtr(z), _ROOT * np.exp(-0.5 * z * z)
            moment = center[:, None] * (below[1] - below[0])
            moment += width[:, None] * (density[0] - density[1])
            first, last = np.isinf(axis.open_low), np.isinf(axis.open_high)
            moment[:, first] += below[0][:, first] * axis.low[first]
            moment[:, last] += (1 - below[1][:, last]) * axis.high[last]
            share = (axis.high - axis.low) / axis.extent
            found.append(np.vstack([moment, share * (axis.low + axis.high) / 2]))
        return found

    def rows(self, factors: Factors) -> Floats:
        """(components + 1, n_boxes) mass of every component in every box."""
        if self.shape is not None:
            return _products(factors)
        found = factors[0][:, self.axes[0].index]
        for factor, axis in zip(factors[1:], self.axes[1:], strict=True):
            found = found * factor[:, axis.index]
        return found

    def sums(self, weights: Floats, factors: Factors) -> Floats:
        """(n_boxes,) mass of all components together."""
        if self.shape is None or len(self.axes) == 1:
            return np.asarray(weights @ self.rows(factors))
        half = len(factors) // 2
        left = _products(factors[:half]) * weights[:, None]
        return (left.T @ _products(factors[half:])).reshape(-1)

    def contract(self, values: Floats, factors: Factors) -> Factors:
        """For every axis (components + 1, intervals) sums of `values` over boxes.

        Each box counts with its product of the factors of the other axes, so that the sum over
        intervals with the axis's own factor, or a derivative of it, is that over all boxes.
        """
        if self.shape is not None:
            return _contract_grid(values, factors)
        at_boxes = [f[:, axis.index] for f, axis in zip(factors, self.axes, strict=True)]
        found = []
        for d, axis in enumerate(self.axes):
            product = np.broadcast_to(values, at_boxes[0].shape)
            for e, factor in enumerate(at_boxes):
                product = product * factor if e != d else product
            found.append(_sums_by(product, axis))
        return found


def partition_of(boxes: Boxes) -> Partition:
    """The intervals of boxes."""
    axes = []
    shape = boxes.shape if boxes.shape is not None and len(boxes.shape) > 1 else None
    for d in range(boxes.dim):
        low, high = boxes.low[:, d], boxes.high[:, d]
        pairs, index = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
        first, last = pairs[:, 0], pairs[:, 1]
        rounding = 1e-9 * (high.max() - low.min())
        open_low = np.where(first <= low.min() + rounding, -np.inf, first)
        open_high = np.where(last >= high.max() - rounding, np.inf, last)
        axes.append(Axis(first, last, open_low, open_high, index.reshape(-1)))
    return Partition(tuple(axes), shape)


def _products(factors: Factors) -> Floats:
    """(rows, product of sizes) products of all combinations of columns, in C order."""
    found = factors[0]
    for factor in factors[1:]:
        found = (found[:, :, None] * factor[:, None, :]).reshape(len(found), -1)
    return found


def _contract_grid(values: Floats, factors: Factors) -> Factors:
    """Sums over a grid in two halves of the axes, each of which is then small."""
    n_rows = len(factors[0])
    if len(factors) == 1:
        return [np.broadcast_to(values, (n_rows, factors[0].shape[1]))]
    half = len(factors) // 2
    left, right = _products(factors[:half]), _products(factors[half:])
    table = values.reshape(left.shape[1], right.shape[1])
    over_right, over_left = right @ table.T, left @ table
    return _contract_rows(over_right, factors[:half]) + _contract_rows(over_left, factors[half:])


def _contract_rows(values: Floats, factors: Factors) -> Factors:
    """The same where each row has values of its own."""
    if len(factors) == 1:
        return [values]
    half = len(factors) // 2
    left, right = _products(factors[:half]), _products(factors[half:])
    table = values.reshape(len(values), left.shape[1], right.shape[1])
    over_right = np.matmul(table, right[:, :, None])[:, :, 0]
    over_left = np.matmul(left[:, None, :], table)[:, 0, :]
    return _contract_rows(over_right, factors[:half]) + _contract_rows(over_left, factors[half:])


def _sums_by(rows: Floats, axis: Axis) -> Floats:
    """(rows, intervals) sums over the boxes of each interval."""
    n_rows, size = len(rows), axis.size
    index = axis.index + size * np.arange(n_rows)[:, None]
    sums = np.bincount(index.reshape(-1), rows.reshape(-1), n_rows * size)
    return sums.reshape(n_rows, size)
