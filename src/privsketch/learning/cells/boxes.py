"""Disjoint boxes that fill a domain, with noisy counts of records.

A record is in one box, so one noisy histogram suffices as the release of a table of few columns
(docs/theory.md describes the mechanism). Boxes are the cells of a regular grid, or of a grid whose
heavy cells were divided further.

An axis of labels has a cell for each label, and a component has a share of its records in each of
them instead of a center and a width. Along such an axis boxes lie between whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Bits, Floats, Indices, Integers
from privsketch.design.recipe import Design
from privsketch.facts.labels import Labelled
from privsketch.features.cells import axis_edges
from privsketch.learning.problem import ROUNDING
from privsketch.sketching.sketch import Sketch

_GAUSSIAN_DRAWS = 100  # of Laplace noise, whose sum is practically Gaussian


@dataclass(frozen=True)
class Axis:
    """Axis of a grid: its coordinates, and the corners of its labels about the domain's center."""

    place: slice
    corners: Floats | None = None  # (n_labels, n_coordinates)


@dataclass(frozen=True)
class Boxes:
    """Noisy counts of a table over disjoint boxes that fill its domain.

    Attributes
    ----------
    low, high : (n_boxes, dim) float64
        Corners, relative to the center of the domain.
    counts : (n_boxes,) float64
        Released counts.
    variance : (n_boxes,) float64
        Variance of the noise of each count.
    n_noises : int or (n_boxes,) int64
        Number of draws of Laplace noise in each count: one for each merged holder, and each merged
        box.
    shape : tuple of int, optional
        Cells per axis of a regular grid whose boxes come in C order; None for other boxes.
    total : float, optional
        Number of records, if it is known more precisely than the sum of the counts.
    grids : tuple of integer arrays
        Grids whose cells are the boxes, if there is no `shape`: the number of the box of each cell,
        and -1 for a divided cell, which is no box. Either every box is in a grid, or none is.
    """

    low: Floats
    high: Floats
    counts: Floats
    variance: Floats
    n_noises: int | Integers = 1
    shape: tuple[int, ...] | None = None
    total: float | None = None
    grids: tuple[Indices, ...] = ()
    axes: tuple[Axis, ...] = ()

    @property
    def is_label(self) -> Bits:
        """Mask of the axes of labels, (dim,)."""
        return np.array([axis.corners is not None for axis in self.axes] or [False] * self.dim)

    def coordinates(self, positions: Floats) -> Floats:
        """Return the coordinates of places in boxes, (n, n_coordinates); labels are corners."""
        if not self.is_label.any():
            return positions
        columns = []
        for axis, values in zip(self.axes, positions.T, strict=True):
            if axis.corners is None:
                columns.append(values[:, np.newaxis])
            else:
                label = np.floor(values).astype(np.intp)
                columns.append(axis.corners[np.clip(label, 0, len(axis.corners) - 1)])
        return np.hstack(columns)

    def means(self, centers: Floats, shares: Floats) -> Floats:
        """Return the mean coordinates of components, (size, n_coordinates)."""
        return self._joined(centers, shares, square=False)

    def variances(self, variances: Floats, shares: Floats) -> Floats:
        """Return the variances of the coordinates of components, (size, n_coordinates)."""
        means = self._joined(np.zeros_like(variances), shares, square=False)
        return np.maximum(self._joined(variances, shares, square=True) - means**2, 0.0)

    def _joined(self, values: Floats, shares: Floats, *, square: bool) -> Floats:
        if not self.is_label.any():
            return values
        columns, first = [], 0
        for axis, own in zip(self.axes, values.T, strict=True):
            if axis.corners is None:
                columns.append(own[:, np.newaxis])
                continue
            corners = axis.corners**2 if square else axis.corners
            columns.append(shares[:, first : first + len(corners)] @ corners)
            first += len(corners)
        return np.hstack(columns)

    @property
    def half_widths(self) -> Floats:
        """Half of the domain's width along each coordinate."""
        ends = self.low.min(axis=0), self.high.max(axis=0)
        if not self.is_label.any():
            return np.asarray((ends[1] - ends[0]) / 2)
        columns = []
        for axis, low, high in zip(self.axes, *ends, strict=True):
            corners = np.array([[low], [high]]) if axis.corners is None else axis.corners
            columns.append(np.ptp(corners, axis=0) / 2)
        return np.concatenate(columns)

    @property
    def dim(self) -> int:
        """Number of axes."""
        return int(self.low.shape[1])

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.counts)

    @property
    def centers(self) -> Floats:
        """(n_boxes, dim) centers of the boxes."""
        return np.asarray((self.low + self.high) / 2)

    @property
    def shares(self) -> Floats:
        """(n_boxes,) volumes, as shares of the volume of the domain."""
        extent = self.high.max(axis=0) - self.low.min(axis=0)
        return np.asarray(np.prod((self.high - self.low) / extent, axis=1))


def grid_corners(edges: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return lower and upper corners, (n_boxes, dim), of the cells of a grid in C order."""
    low, high = (
        np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1).reshape(-1, len(edges))
        for ends in ([values[:-1] for values in edges], [values[1:] for values in edges])
    )
    return low, high


def boxes_of(sketch: Sketch) -> Boxes:
    """Return the boxes of a sketch of cells."""
    design = sketch.design
    shape = design.cells or ()
    axes = axes_of(design)
    edges = axis_edges(design.domain, shape, design.axes)
    edges = [
        own if axis.corners is None else np.arange(len(axis.corners) + 1.0)
        for axis, own in zip(axes, edges, strict=True)
    ]
    low, high = grid_corners(edges)
    counts = sketch.counts().reshape(-1)
    return Boxes(
        low,
        high,
        counts,
        # Counts without noise are whole numbers; the search divides by their variance.
        np.full(len(counts), max(sketch.noise_variance, ROUNDING)),
        n_noises=len(sketch.ids) if design.noise == "laplace" else _GAUSSIAN_DRAWS,
        shape=shape,
        total=None if design.count == "omitted" else sketch.n_records,
        axes=axes,
    )


def axes_of(design: Design) -> tuple[Axis, ...]:
    """Return the axes of a grid, with the labels of those that have a cell for each label."""
    schema, center = design.schema, design.domain.center_vector
    corners = {}
    for column, place in schema.places() if schema is not None else ():
        if isinstance(column, Labelled):
            labels = np.arange(float(len(column.labels)))
            corners[place.start, place.stop] = column.encode(labels).T - center[place]
    pairs = zip(design.axes, design.has_labels, strict=True)
    return tuple(
        Axis(place, corners[place.start, place.stop] if has_labels else None)
        for place, has_labels in pairs
    )
