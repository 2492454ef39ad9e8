"""Disjoint boxes that fill a domain, with the noisy counts of the records in them.

A record touches one box, so that one noisy histogram is all that is released of a table of few
columns (docs/theory.md has the mechanism). Boxes are those of a regular grid, or of one whose
heavy cells were divided further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats, Indices


@dataclass(frozen=True)
class Boxes:
    """What is known of a table: noisy counts over disjoint boxes that fill its domain.

    Attributes
    ----------
    low, high : (n_boxes, dim) float64
        Corners, in coordinates about the center of the domain.
    counts : (n_boxes,) float64
        Released counts.
    variance : (n_boxes,) float64
        Of their noise.
    n_noises : int
        How many draws of Laplace noise are in each count: the holders that were merged.
    shape : tuple of int, optional
        Cells per axis of a regular grid whose boxes come in C order; None for other boxes.
    total : float, optional
        Number of records, where it is known better than by the sum of the counts.
    grids : tuple of integer arrays
        Of other boxes, the grids that they are the cells of: the number of the box at each place,
        -1 where a cell was divided and is none. All boxes are in one of them, or none is.
    """

    low: Floats
    high: Floats
    counts: Floats
    variance: Floats
    n_noises: int = 1
    shape: tuple[int, ...] | None = None
    total: float | None = None
    grids: tuple[Indices, ...] = ()

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
        """(n_boxes, dim) middles of the boxes."""
        return np.asarray((self.low + self.high) / 2)

    @property
    def shares(self) -> Floats:
        """(n_boxes,) volumes, as shares of the domain's."""
        extent = self.high.max(axis=0) - self.low.min(axis=0)
        return np.asarray(np.prod((self.high - self.low) / extent, axis=1))


def regular_boxes(
    counts: Floats,
    half_widths: Floats | Sequence[float],
    variance: float,
    *,
    n_noises: int = 1,
    total: float | None = None,
) -> Boxes:
    """The cells of a regular grid over a box about the origin; `counts` has the grid's shape."""
    halves = np.asarray(half_widths, dtype=np.float64)
    edges = [np.linspace(-w, w, g + 1) for w, g in zip(halves, counts.shape, strict=True)]
    low = np.stack(np.meshgrid(*[e[:-1] for e in edges], indexing="ij"), axis=-1)
    high = np.stack(np.meshgrid(*[e[1:] for e in edges], indexing="ij"), axis=-1)
    return Boxes(
        low.reshape(-1, len(halves)),
        high.reshape(-1, len(halves)),
        counts.reshape(-1).astype(np.float64),
        np.full(counts.size, float(variance)),
        n_noises,
        counts.shape,
        total,
    )
