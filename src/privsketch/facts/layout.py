"""Coordinates of records by kind: numbers, and blocks of coordinates that lie on public corners.

A category of L labels, a flag or a cycle is a *block*. Its values are L public corners, and a
cluster has a share of its records at each of them. A label is a point. A cycle is a mixture of
narrow clouds at equal distances on its circle, which describe any distribution of angles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import jv

from privsketch._base.types import Floats, Indices
from privsketch.facts.columns import Cycle
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema

# Clouds of a cycle, and the standard deviation of their angles over the angle between two. With 16
# of them random tables have a misfit of 1.1 to 1.2, with 12 up to 4, with one Gaussian up to 70.
CYCLE_CORNERS, CYCLE_OVERLAP = 16, 0.7
_MAX_EXPONENT = 36.0  # terms of a cycle's series below exp(-36) are left out


@dataclass(frozen=True, eq=False)
class Block:
    """Coordinates of a category, a flag or a cycle.

    Attributes
    ----------
    place : slice
        Coordinates of the block.
    corners : (n_corners, n_coordinates) float64
        Corners, relative to the center of the domain.
    spread : float
        Standard deviation of the angle around a corner, in radians; 0 for labels.
    """

    place: slice
    corners: Floats
    spread: float = 0.0

    @property
    def side(self) -> float:
        """Distance of two corners of a category, which makes shares comparable with coordinates."""
        return float(np.abs(self.corners[0] - self.corners[-1]).max())

    @cached_property
    def means(self) -> Floats:
        """Mean of the records at each corner, (n_corners, n_coordinates)."""
        return np.asarray(self.corners * math.exp(-(self.spread**2) / 2))

    @cached_property
    def squares(self) -> Floats:
        """Mean squares of the coordinates at each corner, (n_corners, n_coordinates)."""
        middle = np.square(self.corners).sum(axis=1, keepdims=True) / self.corners.shape[1]
        damping = math.exp(-2 * self.spread**2)
        return np.asarray(damping * np.square(self.corners) + (1 - damping) * middle)

    def waves(self, frequencies: Floats) -> NDArray[np.complex128]:
        """Return the mean of exp(i w.x) over the records at each corner, (n_corners, m).

        A cloud on a circle of radius R has the series of Jacobi and Anger,
        `sum_n i^n J_n(R |w|) exp(i n (corner - angle of w) - n^2 spread^2 / 2)`.
        """
        if self.spread == 0:
            return np.asarray(np.exp(1j * (self.corners @ frequencies.T)))
        reach = np.linalg.norm(self.corners[0]) * np.linalg.norm(frequencies, axis=1)
        angles = np.arctan2(frequencies[:, 1], frequencies[:, 0])
        turns = np.arctan2(self.corners[:, 1], self.corners[:, 0])
        n_terms = math.ceil(
            min(reach.max(initial=0.0) + 8, math.sqrt(2 * _MAX_EXPONENT) / self.spread)
        )
        orders = np.arange(-n_terms, n_terms + 1)
        terms = 1j ** (orders[:, None] % 4) * jv(orders[:, None], reach)
        terms *= np.exp(-1j * orders[:, None] * angles - (orders[:, None] * self.spread) ** 2 / 2)
        return np.asarray(np.exp(1j * np.outer(turns, orders)) @ terms)

    def draw(self, corners: Indices, rng: np.random.Generator) -> Floats:
        """Return a record at each of the given corners, (n, n_coordinates)."""
        records = self.corners[corners]
        if self.spread == 0:
            return records
        turns = np.exp(1j * self.spread * rng.standard_normal(len(corners)))
        turned = (records[:, 0] + 1j * records[:, 1]) * turns
        return np.stack([turned.real, turned.imag], axis=1)


@dataclass(frozen=True, eq=False)
class Layout:
    """Coordinates of encoded records: numbers and dates, and the blocks of the other columns.

    Corners of all blocks are numbered one after another.
    """

    dim: int
    numbers: Indices  # coordinates of numbers and dates
    blocks: tuple[Block, ...]

    @cached_property
    def ends(self) -> Indices:
        """Where the corners of each block end, (n_blocks,)."""
        return np.cumsum([len(block.corners) for block in self.blocks], dtype=np.int64)

    @property
    def parts(self) -> list[tuple[Block, slice]]:
        """The blocks with the slices of their corners."""
        starts = np.append(0, self.ends[:-1]).tolist()
        return [
            (block, slice(start, end))
            for block, start, end in zip(self.blocks, starts, self.ends.tolist(), strict=True)
        ]

    @property
    def sides(self) -> Floats:
        """Distance of two corners of the block of each corner, (n_corners,)."""
        return np.concatenate([np.full(len(block.corners), block.side) for block in self.blocks])

    def waves(self, frequencies: Floats) -> Floats:
        """Return real and imaginary parts of the waves of all corners, (n_corners, 2, m)."""
        waves = [block.waves(frequencies[:, block.place]) for block in self.blocks]
        together = np.concatenate(waves)
        return np.stack([together.real, together.imag], axis=1)

    def means(self, centers: Floats, shares: Floats) -> Floats:
        """Return mean coordinates of components, (n, dim), with these shares of corners."""
        means = np.empty((len(centers), self.dim))
        means[:, self.numbers] = centers
        for block, part in self.parts:
            means[:, block.place] = shares[:, part] @ block.means
        return means

    def variances(self, variances: Floats, shares: Floats) -> Floats:
        """Return variances of the coordinates, (n, dim), from those of the numbers and shares."""
        result = np.empty((len(variances), self.dim))
        result[:, self.numbers] = variances
        for block, part in self.parts:
            means = shares[:, part] @ block.means
            result[:, block.place] = shares[:, part] @ block.squares - means**2
        return np.maximum(result, 0.0)

    def records(self, numbers: Floats, shares: Floats, rng: np.random.Generator) -> Floats:
        """Draw records (n, dim) with given numbers, at corners drawn by shares (n, n_corners)."""
        records = np.empty((len(numbers), self.dim))
        records[:, self.numbers] = numbers
        for block, part in self.parts:
            records[:, block.place] = block.draw(drawn_corners(shares[:, part], rng), rng)
        return records


def drawn_corners(shares: Floats, rng: np.random.Generator) -> Indices:
    """Draw a corner for each row of shares, (n,)."""
    steps = np.cumsum(shares, axis=1)
    return np.asarray(np.argmax(steps > steps[:, -1:] * rng.random((len(steps), 1)), axis=1))


def layout_of(schema: Schema | None, center: Floats) -> Layout | None:
    """Return the layout of records about a center; None if all columns are numbers or dates."""
    if schema is None or schema.is_smooth:
        return None
    numbers, blocks = [], []
    for column, place in schema.places():
        if isinstance(column, Labelled):
            corners = column.encode(np.arange(float(len(column.labels)))).T - center[place]
            blocks.append(Block(place, corners))
        elif isinstance(column, Cycle):
            angle = 2 * math.pi / CYCLE_CORNERS
            turns = angle * np.arange(CYCLE_CORNERS)
            circle = column.radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
            blocks.append(Block(place, circle - center[place], CYCLE_OVERLAP * angle))
        else:
            numbers.append(place.start)
    return Layout(len(center), np.array(numbers, dtype=np.intp), tuple(blocks))
