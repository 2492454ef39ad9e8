"""What the other sources look like: a mixture learned from their sketches, and how it would look
if a column were measured otherwise.

Components have no correlations, so the characteristic function of one is a product over columns,

    phi_k(w) = prod_j E exp(i w_j x_j).

A change of one column, values v to `factor v + shift`, exchanges one of the factors. Each is a sum
over a grid of places between the public bounds: values that a change moves beyond them lie at the
edge, as those of the records would, and logarithmic columns and categories are what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.columns import Column, Number
from privsketch.facts.domain import Ball
from privsketch.facts.labels import Labelled

Complex = npt.NDArray[np.complex128]
N_PLACES = 193  # of a grid between the bounds of a column; by trial
N_NODES = 49  # of a Gaussian, up to REACH standard deviations
REACH = 4.0
# Orders of the waves that signs are made of, beside the first; each is a part of the feature.
_SIGN_ORDERS = (1, -3, 5, -7)


@dataclass(frozen=True)
class Line:
    """One coordinate that a unit is for: how values and coordinates go together."""

    name: str
    place: int
    column: Number | None  # None: the coordinate is the value
    low: float
    high: float
    center: float

    def moved(self, coordinates: Floats, factor: float, shift: float) -> Floats:
        """Where values at these coordinates would lie, before they are cut to the bounds."""
        if factor == 1.0 and shift == 0.0:
            return coordinates
        if self.column is None:
            return factor * (coordinates + self.center) + shift - self.center
        number = self.column
        if number.scale == "linear":
            middle, half = number.low / 2 + number.high / 2, number.high / 2 - number.low / 2
            values = middle + coordinates * (half / number.weight)
            return np.asarray((factor * values + shift - middle) * (number.weight / half))
        values = number.decode(coordinates)
        return number.encode((factor * values + shift).ravel()).reshape(coordinates.shape)

    def value(self, coordinate: float) -> float:
        """The value at a coordinate relative to the domain's center."""
        if self.column is None:
            return coordinate + self.center
        return float(self.column.decode(np.array([[coordinate]]))[0, 0])


def lines_of(design: Design) -> list[Line]:
    """Coordinates that units are for: all of a domain, the numbers of a schema."""
    half, center = design.domain.half_widths, design.domain.center_vector
    if design.schema is None:
        names = design.columns or tuple(f"column {j + 1}" for j in range(design.dim))
        return [
            Line(name, j, None, -float(half[j]), float(half[j]), float(center[j]))
            for j, name in enumerate(names)
        ]
    found = []
    for column, place in design.schema.places():
        if isinstance(column, Number):
            j = place.start
            found.append(
                Line(column.name, j, column, -column.weight, column.weight, float(center[j]))
            )
    return found


@dataclass(frozen=True)
class Change:
    """What a column of one source would be: `factor * value + shift`."""

    factor: float = 1.0
    shift: float = 0.0


SAME = Change()


class Features:
    """Characteristic functions of components at the frequencies of a design, column by column."""

    def __init__(self, design: Design, rows: npt.NDArray[np.intp]) -> None:
        self.design = design
        self.lines = {line.place: line for line in lines_of(design)}
        self.frequencies = design.radians()[rows]  # (m, dim), about the domain's center
        self.is_cut = not isinstance(design.domain, Ball)
        self.orders: tuple[int, ...] = (1,)
        self.dither: Floats = np.zeros(len(rows))
        if design.mapping.dithered:
            turns = design.frequencies.offsets(design.domain)[rows]
            turn = 2 * np.pi * 2.0**-design.frequencies.turn_bits
            self.dither = np.asarray(turns * turn, dtype=np.float64)
            self.orders = _SIGN_ORDERS
        # Labels and circles are no lines: their coordinates go together.
        self.others: list[tuple[Column | None, slice]] = []
        if design.schema is not None:
            self.others = [
                (column, place)
                for column, place in design.schema.places()
                if place.start not in self.lines
            ]

    @cached_property
    def _waves(self) -> dict[tuple[int, int], Complex]:
        return {}

    def waves(self, place: int, order: int) -> Complex:
        """(N_PLACES, m) exp(i order w x) on the grid of one coordinate."""
        key = (place, order)
        if key not in self._waves:
            line = self.lines[place]
            grid = np.linspace(line.low, line.high, N_PLACES)
            self._waves[key] = np.exp(1j * np.outer(grid, order * self.frequencies[:, place]))
        return self._waves[key]

    def line_factor(
        self, place: int, order: int, means: Floats, widths: Floats, changes: Sequence[Change]
    ) -> Complex:
        """(n_changes, K, m) factors of a coordinate under each of the changes."""
        line = self.lines[place]
        nodes, weights = _nodes()
        at = means[:, None] + widths[:, None] * nodes  # (K, nodes)
        step = (line.high - line.low) / (N_PLACES - 1)
        moved = np.array([line.moved(at, change.factor, change.shift) for change in changes])
        spot = (np.clip(moved, line.low, line.high) - line.low) / step
        left = np.minimum(spot.astype(np.intp), N_PLACES - 2)
        part = spot - left
        size = len(changes) * len(means)
        cells = left.reshape(size, -1) + N_PLACES * np.arange(size)[:, None]
        near, far = (np.broadcast_to(weights, part.shape) * side for side in (1 - part, part))
        mass = np.bincount(cells.ravel(), near.ravel(), size * N_PLACES)
        mass += np.bincount(cells.ravel() + 1, far.ravel(), size * N_PLACES)
        mass = mass.reshape(size, N_PLACES)
        waves = self.waves(place, order)
        found = mass @ waves.real + 1j * (mass @ waves.imag)
        return found.reshape(len(changes), len(means), -1)

    def other_factor(
        self, column: Column | None, place: slice, order: int, means: Floats, widths: Floats
    ) -> Complex:
        """(K, m) factor of labels, which lie on corners, or of a cycle or a date."""
        frequencies = order * self.frequencies[:, place]
        center = self.design.domain.center_vector[place]
        if isinstance(column, Labelled) and len(column.labels) == frequencies.shape[1]:
            shares = column.shares(means[:, place] + center)
            corners = np.eye(len(column.labels)) * column.corner - center
            return np.asarray(shares @ np.exp(1j * (corners @ frequencies.T)))
        if frequencies.shape[1] == 1 and column is not None and column.KIND == "flag":
            high = float(column.highest[0] - center[0])
            low = float(column.lowest[0] - center[0])
            share = np.clip((means[:, place] - low) / (high - low), 0.0, 1.0)
            ends = np.exp(1j * np.outer([low, high], frequencies[:, 0]))
            return np.asarray((1 - share) * ends[0] + share * ends[1])
        phase = means[:, place] @ frequencies.T
        return np.asarray(
            np.exp(1j * phase - np.square(widths[:, place]) @ np.square(frequencies).T / 2)
        )


def _nodes() -> tuple[Floats, Floats]:
    edges = np.linspace(-REACH, REACH, N_NODES + 1)
    weights = np.diff(ndtr(edges))
    return (edges[1:] + edges[:-1]) / 2, weights / weights.sum()


class Reference:
    """A mixture of the others: weights (K,), means and widths (K, dim) about the center."""

    def __init__(self, features: Features, weights: Floats, means: Floats, widths: Floats) -> None:
        self.features = features
        self.weights, self.means, self.widths = weights, means, widths

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def n_columns(self) -> int:
        """Columns of the table."""
        return len(self.features.lines) + len(self.features.others)

    @cached_property
    def _factors(self) -> dict[tuple[int, int], Complex]:
        """(K, m) of every line and order, as the others have it."""
        found = {}
        for place in self.features.lines:
            for order in self.features.orders:
                found[place, order] = self._line(place, order, [SAME])[0]
        return found

    @cached_property
    def _rest(self) -> dict[int, Complex]:
        """(K, m) of all that units are not for, by order."""
        found = {}
        for order in self.features.orders:
            whole = np.ones((self.size, len(self.features.frequencies)), dtype=np.complex128)
            for column, place in self.features.others:
                whole *= self.features.other_factor(column, place, order, self.means, self.widths)
            found[order] = whole
        return found

    def _line(self, place: int, order: int, changes: Sequence[Change]) -> Complex:
        means, widths = self.means[:, place], self.widths[:, place]
        return self.features.line_factor(place, order, means, widths, changes)

    def vectors(
        self, changes: Mapping[int, Change], place: int | None = None, trials: Sequence[Change] = ()
    ) -> Floats:
        """(n_trials, K, 2 m) real features of a record of each component.

        `changes` of coordinates hold throughout; each of the `trials` is one of the coordinate
        `place`. Without trials there is one row.
        """
        total: Complex | None = None
        for order in self.features.orders:
            whole = self._rest[order].copy()
            for other in self.features.lines:
                if other == place and len(trials):
                    continue
                change = changes.get(other, SAME)
                if change == SAME:
                    whole = whole * self._factors[other, order]
                else:
                    whole = whole * self._line(other, order, [change])[0]
            found = whole[np.newaxis]
            if place is not None and len(trials):
                found = found * self._line(place, order, trials)
            part = self._signs(order, found)
            total = part if total is None else total + part
        if total is None:
            raise ParameterError("a feature map has at least one order")
        return np.concatenate([total.real, total.imag], axis=-1)

    def _signs(self, order: int, found: Complex) -> Complex:
        """The part of a wave of this order in what `Sketch.moments` gives of signs.

        sgn cos t + i sgn sin t has e^(it), -e^(-3it) / 3, e^(5it) / 5, -e^(-7it) / 7 and so on in
        units of the first; the dither of the first is taken back.
        """
        if order == 1:
            return found
        turn = np.exp(1j * (order - 1) * self.features.dither)
        return np.asarray(found * turn * (np.sign(order) / abs(order)))

    def spread(self, place: int) -> float:
        """Standard deviation of a coordinate over all of the mixture."""
        shares = self.weights / max(float(self.weights.sum()), 1e-300)
        mean = float(shares @ self.means[:, place])
        second = shares @ (
            np.square(self.means[:, place] - mean) + np.square(self.widths[:, place])
        )
        return float(np.sqrt(second))
