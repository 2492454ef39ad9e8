"""Cells: a record is mapped to the cell of a public grid that it lies in.

The box around the domain is cut into g_1 x ... x g_d cells. A quantised coordinate q, from -32767
to 32767, lies in cell floor((q + 32767) g / 65535) of its axis, an integer function of the
quantised record, so all readers and engines count alike. A sketch has one number for each
cell, empty ones included, in the order of a C array of shape (g_1, ..., g_d).

A category has one axis with a cell for each label: the number of its largest coordinate, the first
one of equals. A flag on a line has an axis of two cells like any other. Every record, encoded or
not, is in one cell.

Adding or removing a record changes one count by 1. Replacing it changes one count by 1 and another
one by -1 (docs/theory.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import Neighbours
from privsketch.facts.domain import Domain
from privsketch.features.fixedpoint import RECORD_MAX, RECORD_UNIT
from privsketch.features.masks import Contribution, Masks
from privsketch.features.mixed import Columns

N_VALUES = 2 * RECORD_MAX + 1  # of a quantised coordinate
MAX_CELLS = 2**17  # a megabyte of counts; decoders read all of them
MAX_CELL_COLUMNS = 8  # with more axes, two cells along each are too coarse for clusters


def label_axes(columns: Columns) -> tuple[slice, ...]:
    """Return the coordinates of each axis of a grid with an axis for each category."""
    axes, first = [], 0
    for kind, size in columns:
        step = size if kind == "labels" else 1
        axes += [slice(start, start + step) for start in range(first, first + size, step)]
        first += size
    return tuple(axes)


def grid_axes(n_axes: int, dim: int, columns: Columns | None) -> tuple[slice, ...]:
    """Return the coordinates of each axis: one, or those of a category, if axes are so few."""
    if n_axes != dim and columns is not None:
        return label_axes(columns)
    return tuple(slice(axis, axis + 1) for axis in range(dim))


def checked_cells(cells: object, dim: int) -> tuple[int, ...]:
    """Return the number of cells along each axis; raise for anything else."""
    shape = tuple(cells) if isinstance(cells, Sequence) and not isinstance(cells, str) else ()
    if len(shape) != dim or not all(type(g) is int and 1 <= g <= N_VALUES for g in shape):
        raise ParameterError("cells", cells, f"expected {dim} numbers of cells, one for each axis")
    if math.prod(shape) > MAX_CELLS:
        raise ParameterError("cells", cells, f"expected at most {MAX_CELLS} of them in all")
    return shape


def cell_counts(
    quantised: npt.NDArray[Any], shape: tuple[int, ...], axes: tuple[slice, ...] | None = None
) -> npt.NDArray[np.int64]:
    """Return the number of quantised records (n, dim) in each cell, (n_cells,).

    `axes` are the coordinates of each axis; one each if left out.
    """
    # Products stay below 2^31, and 32-bit numbers are divided twice as fast.
    dtype = np.int32 if max(shape) < 2**15 else np.int64
    index: Any = np.zeros(len(quantised), dtype=dtype)
    for where, g in zip(axes or grid_axes(len(shape), len(shape), None), shape, strict=True):
        if where.stop - where.start > 1:
            position = quantised[:, where].argmax(axis=1).astype(dtype)
        else:
            position = quantised[:, where.start].astype(dtype)
            position += RECORD_MAX
            position *= g
            position //= N_VALUES
        index *= g
        index += position
    return np.bincount(index, minlength=math.prod(shape))


def axis_edges(
    domain: Domain, shape: tuple[int, ...], axes: tuple[slice, ...] | None = None
) -> list[npt.NDArray[np.float64]]:
    """Return the (g + 1,) edges of cells along each axis, about the center of the domain.

    Those of a category, which has several coordinates, are those of its first one.
    Rounding decides on which side of an edge a record lies. The outermost cells end with the
    domain, to whose edge records beyond it are moved.
    """
    edges = []
    half_widths = domain.half_widths
    if axes is not None:
        half_widths = half_widths[[axis.start for axis in axes]]
    for g, half in zip(shape, half_widths, strict=True):
        first = -(-np.arange(1, g, dtype=np.int64) * N_VALUES // g) - RECORD_MAX  # of its cell
        inner = (first - 0.5) / RECORD_UNIT
        edges.append(np.concatenate([[-1.0], inner, [1.0]]) * half)
    return edges


class CellContribution(Contribution):
    """Contribution of a record that lies in one cell."""

    signed = False

    def __init__(self, n_values: int, dim: int) -> None:
        super().__init__(n_values, dim, largest=1, feature_l1=1)

    def l1(self, masks: Masks | None) -> int:
        """Return 1: a record is in one cell."""
        return 1

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Return 1, or 2 for a record that moves between two cells."""
        return 1 if neighbours == "add-remove" else 2

    def linf(self, neighbours: Neighbours) -> int:
        """Return 1: each of two cells changes by one."""
        return 1
