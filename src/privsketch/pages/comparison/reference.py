"""A mixture that describes the other sources, and its features under changes of columns.

Components have no correlations. The characteristic function of a component is a product over
columns,

    phi_k(w) = prod_j E exp(i w_j x_j).

A change of one column, from v to `factor v + shift`, replaces one of the factors. Each factor is a
sum over a grid between the public bounds. Values that a change moves beyond the bounds are clipped,
like those of records. Logarithmic columns and categories keep their geometry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.columns import Cycle, Number
from privsketch.facts.labels import Labelled
from privsketch.facts.layout import layout_of
from privsketch.learning.blocks import factors
from privsketch.learning.problem import Atoms, dither_of, in_all_coordinates

Complex = npt.NDArray[np.complex128]
# Between the bounds of a column: python -m benchmarks constants pages N_GRID_POINTS
N_GRID_POINTS = 193
N_NODES = 49  # quadrature nodes of a Gaussian
MAX_NODE_DEVIATION = 4.0  # largest distance of a node from the mean: 6e-5 of the mass is beyond it
_SIGN_ORDERS = (1, -3, 5, -7)  # of the waves in the Fourier series of a sign


@dataclass(frozen=True)
class Line:
    """A coordinate that has a unit, and how its values are encoded.

    `low` and `high` are its bounds relative to the domain's center.
    """

    name: str
    index: int
    column: Number | None  # None if the coordinate is the value itself
    low: float
    high: float
    center: float

    def values(self, coordinates: Floats) -> Floats:
        """Return the values at coordinates relative to the domain's center."""
        number = self.column
        if number is None:
            return coordinates + self.center
        if number.scale == "linear":
            middle, half = number.low / 2 + number.high / 2, number.high / 2 - number.low / 2
            return np.asarray(middle + coordinates * (half / number.weight))
        return np.asarray(number.decode(coordinates))

    def coordinates(self, values: Floats) -> Floats:
        """Return the coordinates of values; those of a linear scale are not clipped to bounds."""
        number = self.column
        if number is None:
            return values - self.center
        if number.scale == "linear":
            middle, half = number.low / 2 + number.high / 2, number.high / 2 - number.low / 2
            return np.asarray((values - middle) * (number.weight / half))
        return np.asarray(number.encode(values.ravel()).reshape(values.shape))

    def value(self, coordinate: float) -> float:
        """Return the value at a coordinate relative to the domain's center."""
        if self.column is None:
            return coordinate + self.center
        return float(self.column.decode(np.array([[coordinate]]))[0, 0])


def column_names(design: Design) -> Sequence[str]:
    """Return the names of the columns of a design: "column 1", ... if they have none."""
    return design.columns or [f"column {j + 1}" for j in range(design.dim)]


def _lines(design: Design) -> list[Line]:
    """Return the coordinates that have units: all of a domain, the numbers of a schema."""
    half, center = design.domain.half_widths, design.domain.center_vector
    if design.schema is None:
        return [
            Line(name, j, None, -float(half[j]), float(half[j]), float(center[j]))
            for j, name in enumerate(column_names(design))
        ]
    return [
        Line(column.name, at.start, column, -column.weight, column.weight, float(center[at.start]))
        for column, at in design.schema.places()
        if isinstance(column, Number)
    ]


@dataclass(frozen=True)
class Change:
    """A change of a column: a source has `factor * value + shift` where others have `value`.

    The result is cut at `low` and `high`. `origin` is the coordinate that has the value, if it is
    another one.
    """

    factor: float = 1.0
    shift: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    origin: int | None = None

    @property
    def is_linear(self) -> bool:
        """Whether it is a factor and a shift alone."""
        return self.origin is None and self.low == -math.inf and self.high == math.inf


UNCHANGED = Change()


class Features:
    """Characteristic functions of components at the frequencies of a design, column by column."""

    def __init__(self, design: Design, rows: npt.NDArray[np.intp]) -> None:
        self.design = design
        self.lines = {line.index: line for line in _lines(design)}
        self.frequencies = design.radians()[rows]  # (m, dim), about the domain's center
        self.orders: tuple[int, ...] = (1,)
        self.dither: Floats = np.zeros(len(rows))
        if design.mapping.dithered:
            self.dither, self.orders = dither_of(design)[rows], _SIGN_ORDERS
        # Labels and cycles have several coordinates with a common factor, dates one.
        self.layout = layout_of(design.schema, design.domain.center_vector)
        numbers = range(design.dim) if self.layout is None else self.layout.numbers.tolist()
        self.dates = [coordinate for coordinate in numbers if coordinate not in self.lines]
        self.n_columns = design.dim if design.schema is None else len(design.schema.columns)
        self.block_names = [
            column.name
            for column in (() if design.schema is None else design.schema.columns)
            if isinstance(column, Labelled | Cycle)
        ]
        self._waves: dict[tuple[int, int], Complex] = {}

    def _grid_waves(self, coordinate: int, order: int) -> Complex:
        """Return exp(i order w x) on the grid of one coordinate, (N_GRID_POINTS, m)."""
        key = (coordinate, order)
        if key not in self._waves:
            line = self.lines[coordinate]
            grid = np.linspace(line.low, line.high, N_GRID_POINTS)
            phases = np.outer(grid, order * self.frequencies[:, coordinate])
            self._waves[key] = np.exp(1j * phases)
        return self._waves[key]

    def moved(self, coordinate: int, means: Floats, widths: Floats, change: Change) -> Floats:
        """Return the changed coordinates (K, nodes) of components, before they are clipped."""
        origin = coordinate if change.origin is None else change.origin
        points = means[:, origin, None] + widths[:, origin, None] * _nodes()[0]
        if change == UNCHANGED:
            return points
        values = change.factor * self.lines[origin].values(points) + change.shift
        return self.lines[coordinate].coordinates(np.clip(values, change.low, change.high))

    def line_factor(
        self, coordinate: int, order: int, means: Floats, widths: Floats, changes: Sequence[Change]
    ) -> Complex:
        """Return the factors (n_changes, K, m) of a coordinate under each of the changes.

        `means` and `widths` (K, dim) are those of the components.
        """
        line = self.lines[coordinate]
        weights = _nodes()[1]
        step = (line.high - line.low) / (N_GRID_POINTS - 1)
        moved = np.array([self.moved(coordinate, means, widths, change) for change in changes])
        position = (np.clip(moved, line.low, line.high) - line.low) / step
        left = np.minimum(position.astype(np.intp), N_GRID_POINTS - 2)
        part = position - left
        size = len(changes) * len(means)
        cells = left.reshape(size, len(weights)) + N_GRID_POINTS * np.arange(size)[:, None]
        near, far = (np.broadcast_to(weights, part.shape) * side for side in (1 - part, part))
        mass = np.bincount(cells.ravel(), near.ravel(), size * N_GRID_POINTS)
        mass += np.bincount(cells.ravel() + 1, far.ravel(), size * N_GRID_POINTS)
        mass = mass.reshape(size, N_GRID_POINTS)
        waves = self._grid_waves(coordinate, order)
        factors = mass @ waves.real + 1j * (mass @ waves.imag)
        return factors.reshape(len(changes), len(means), len(self.frequencies))

    def unitless_factor(
        self, order: int, means: Floats, widths: Floats, shares: Floats, left_out: int | None = None
    ) -> Complex:
        """Return the factor (K, m) of dates, and of labels and cycles by their shares.

        `left_out` is the number of a block of labels or a cycle that has no part in it.
        """
        frequencies = order * self.frequencies
        dates = frequencies[:, self.dates]
        phases = means[:, self.dates] @ dates.T
        product = np.exp(1j * phases - np.square(widths[:, self.dates]) @ np.square(dates).T / 2)
        if self.layout is not None:
            parts = factors(self.layout.waves(frequencies), self.layout.ends, shares)
            for block, factor in enumerate(parts):
                if block != left_out:
                    product *= factor
        return np.asarray(product)


def _nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights that stand for a normal variable."""
    edges = np.linspace(-MAX_NODE_DEVIATION, MAX_NODE_DEVIATION, N_NODES + 1)
    weights = np.diff(ndtr(edges))
    return (edges[1:] + edges[:-1]) / 2, weights / weights.sum()


class Reference:
    """Mixture of the other sources: atoms about the center of the domain.

    It has weights (K,), means and widths (K, dim), and shares (K, n_corners) of labels and cycles.
    """

    def __init__(self, features: Features, atoms: Atoms) -> None:
        self.features, self.atoms = features, atoms
        self.weights = atoms.weights
        everywhere = in_all_coordinates(atoms, features.layout)
        self.means, self.widths = everywhere.centers, np.sqrt(everywhere.axis_variances())

    @property
    def size(self) -> int:
        """Number of components."""
        return len(self.weights)

    @cached_property
    def shares(self) -> Floats:
        """Weights (K,) relative to their sum; equal ones where nobody has records."""
        total = float(self.weights.sum())
        return self.weights / total if total > 0 else np.full(self.weights.shape, 1 / self.size)

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return self.features.n_columns

    @cached_property
    def _factors(self) -> dict[tuple[int, int], Complex]:
        """Factors (K, m) of every line and order without changes."""
        return {
            (coordinate, order): self._line(coordinate, order, [UNCHANGED])[0]
            for coordinate in self.features.lines
            for order in self.features.orders
        }

    @cached_property
    def _unitless_factors(self) -> dict[int, Complex]:
        """Products (K, m) of the factors of all columns without a unit, by order."""
        parts = self.means, self.widths, self.atoms.shares
        return {
            order: self.features.unitless_factor(order, *parts) for order in self.features.orders
        }

    def _line(self, coordinate: int, order: int, changes: Sequence[Change]) -> Complex:
        return self.features.line_factor(coordinate, order, self.means, self.widths, changes)

    def vectors(
        self,
        changes: Mapping[int, Change],
        coordinate: int | None = None,
        trials: Sequence[Change] = (),
    ) -> Floats:
        """Return real features (n_trials, K, 2 m) of a record of each component.

        `changes` of coordinates hold throughout; each of the `trials` is a change of
        `coordinate`. Without trials there is one row.
        """
        parts = []
        for order in self.features.orders:
            product = self._unitless_factors[order].copy()
            for other in self.features.lines:
                if other == coordinate and len(trials):
                    continue
                change = changes.get(other, UNCHANGED)
                if change == UNCHANGED:
                    product = product * self._factors[other, order]
                else:
                    product = product * self._line(other, order, [change])[0]
            waves = product[np.newaxis]
            if coordinate is not None and len(trials):
                waves = waves * self._line(coordinate, order, trials)
            parts.append(self._sign_part(order, waves))
        total = reduce(np.add, parts)
        return np.concatenate([total.real, total.imag], axis=-1)

    def corner_vectors(self, block: int) -> Floats:
        """Return real features (K, n_corners, 2 m) of records at each corner of a block.

        They are those of the records of a component that have one label. Non-negative weights of
        them give each component any shares of labels.
        """
        layout = self.features.layout
        if layout is None:
            raise ParameterError("block", block, "there are no labels")
        place, means, widths = layout.blocks[block].place, self.means, self.widths
        parts = []
        for order in self.features.orders:
            product = self.features.unitless_factor(
                order, means, widths, self.atoms.shares, left_out=block
            )
            for line in self.features.lines:
                product = product * self._factors[line, order]
            corners = layout.blocks[block].waves(order * self.features.frequencies[:, place])
            parts.append(self._sign_part(order, product[:, np.newaxis] * corners))
        total = reduce(np.add, parts)
        return np.concatenate([total.real, total.imag], axis=-1)

    def _sign_part(self, order: int, waves: Complex) -> Complex:
        """Return the contribution of waves of one order to `Sketch.moments` of one-bit features.

        sgn cos t + i sgn sin t is e^(it) - e^(-3it) / 3 + e^(5it) / 5 - e^(-7it) / 7 ... in units
        of the first term, whose dither is subtracted.
        """
        if order == 1:
            return waves
        turn = np.exp(1j * (order - 1) * self.features.dither)
        return np.asarray(waves * turn * (np.sign(order) / abs(order)))

    def spread(self, coordinate: int) -> float:
        """Return the standard deviation of a coordinate over the whole mixture."""
        means, widths = self.means[:, coordinate], self.widths[:, coordinate]
        mean = float(self.shares @ means)
        return float(np.sqrt(self.shares @ (np.square(means - mean) + np.square(widths))))
