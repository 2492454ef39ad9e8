"""Rows of tables for clusters, components and means: a row for each field, a cell for each part.

With a schema everything is in the units of the table: values with the digits that their errors
allow, dates as dates, shares of categories. A cell also has a position between the public bounds
of its column, which colours it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Cycle, Date, Number
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.labels import Category, Flag
from privsketch.facts.schema import Schema
from privsketch.facts.units import (
    as_dates,
    digits,
    field_columns,
    field_errors,
    field_positions,
    field_values,
    has_no_phase,
    span_text,
)
from privsketch.models.clusters import ClusterModel
from privsketch.models.mixture import GaussianMixtureModel

MAX_REPORT_ROWS = 50  # columns up to which a table shows all: two screens of rows
N_SHOWN_COLUMNS = 20  # columns of larger tables that are shown: centers differ most in them
MAX_LABEL_ROWS = 8  # labels of a category with a row each, so that no category fills the screen
# Days of error from which a date is shown as a month, as a year: half of either.
_MONTH, _YEAR = 15.0, 180.0


@dataclass(frozen=True, eq=False)
class Parts:
    """Clusters or components with the numbers that tables and descriptions need.

    Attributes
    ----------
    noun : str
        Name of one part: cluster or component.
    centers, weights : (size, dim) and (size,) float64
    errors, widths : (size, dim) float64 or None
        Standard errors of the centers, and standard deviations of records around them.
    names : list of str
        Names of the coordinates.
    domain : Box, Ball or None
        Public bounds of the coordinates.
    schema : Schema or None
    """

    noun: str
    centers: Floats
    weights: Floats
    errors: Floats | None
    widths: Floats | None
    names: Sequence[str]
    domain: Domain | None
    schema: Schema | None
    is_private: bool = True

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.centers)

    @property
    def scales(self) -> Floats:
        """Half of each coordinate's range: of the public bounds, else of the centers."""
        if self.domain is not None:
            return self.domain.half_widths
        spread = np.asarray(np.ptp(self.centers, axis=0)) / 2
        return np.where(spread > 0, spread, 1.0)

    @property
    def middles(self) -> Floats:
        """Middle of each coordinate's range."""
        if self.domain is not None:
            return self.domain.center_vector
        return np.asarray((self.centers.min(axis=0) + self.centers.max(axis=0)) / 2)


def parts_of(model: ClusterModel | GaussianMixtureModel, domain: Domain | None) -> Parts:
    """Return the parts of a model whose records lie in `domain`."""
    is_cluster = isinstance(model, ClusterModel)
    return Parts(
        noun="cluster" if is_cluster else "component",
        centers=model.centers if isinstance(model, ClusterModel) else model.means,
        weights=model.weights,
        errors=model.standard_errors,
        widths=model.axis_widths if isinstance(model, ClusterModel) else model.widths,
        names=model.column_names,
        domain=domain if model.schema is None else model.schema.box,
        schema=model.schema,
        is_private=model.receipt.is_private,
    )


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes
    ----------
    text, error : str
        The value and its standard error, as people write them.
    position : float or None
        Position of the value between the public bounds, from 0 to 1; it colours the cell.
    spread : float
        Standard deviation of records around the value, in parts of the range.
    is_share : bool
        Whether the value is a share, which is drawn as a bar.
    tone : float or None
        Size of a loading from -1 to 1; it colours the cell if there is no position.
    """

    text: str
    error: str = ""
    position: float | None = None
    spread: float = 0.0
    is_share: bool = False
    tone: float | None = None

    @property
    def classes(self) -> str:
        """CSS classes of the cell."""
        if self.position is not None:
            return "p s" if self.is_share else "p h"
        return "d" if self._has_tone else ""

    @property
    def style(self) -> str:
        """CSS variables of the cell."""
        if self.position is not None:
            spread = f";--w:{min(self.spread, 1.0):.3f}" if self.spread > 0 else ""
            return f"--p:{min(max(self.position, 0.0), 1.0):.3f}{spread}"
        if self.tone is None or not self._has_tone:
            return ""
        color = "--heat" if self.tone >= 0 else "--cool"
        return f"--tone:var({color});--p:{min(abs(self.tone), 1.0):.3f}"

    @property
    def _has_tone(self) -> bool:
        return self.tone is not None and math.isfinite(self.tone)


@dataclass(frozen=True)
class Row:
    """A field: its name, its public bounds, and a cell for every part.

    `category` is the column of the field if the field is a label.
    """

    name: str
    note: str
    cells: tuple[Cell, ...]
    category: str = ""

    @property
    def is_share(self) -> bool:
        """Whether the cells are shares."""
        return self.cells[0].is_share


def center_rows(parts: Parts) -> tuple[list[Row], int]:
    """Return a row for each field of the centers, and the number of columns left out."""
    if parts.schema is None:
        shown = _shown_columns(np.ptp(parts.centers / parts.scales, axis=0))
        return [_plain_row(parts, j) for j in shown], len(parts.names) - len(shown)
    schema = parts.schema
    differences = [
        float(np.ptp(parts.centers[:, span], axis=0).max() / column.weight)
        for column, span in schema.places()
    ]
    shown = _shown_columns(np.array(differences))
    values = field_values(schema, parts.centers)
    positions = field_positions(schema, parts.centers)
    errors = None if parts.errors is None else field_errors(schema, parts.centers, parts.errors)
    rows: list[Row] = []
    spans = zip(schema.places(), field_columns(schema), strict=True)
    for number, ((column, span), (_, fields)) in enumerate(spans):
        if number in shown:
            rows += _column_rows(
                column,
                values[:, fields],
                None if errors is None else errors[:, fields],
                parts.centers[:, span],
                None if parts.widths is None else parts.widths[:, span],
                positions[:, fields],
            )
    return rows, len(schema.columns) - len(shown)


def _shown_columns(differences: Floats) -> list[int]:
    """Return all columns, or those in which centers differ most."""
    if len(differences) <= MAX_REPORT_ROWS:
        return list(range(len(differences)))
    return sorted(int(j) for j in np.argsort(-differences, kind="stable")[:N_SHOWN_COLUMNS])


def _plain_row(parts: Parts, j: int) -> Row:
    """Return the row of a coordinate without a schema."""
    low, high = parts.middles[j] - parts.scales[j], parts.middles[j] + parts.scales[j]
    positions = np.clip((parts.centers[:, j] - low) / (high - low), 0.0, 1.0)
    cells = []
    for k, value in enumerate(parts.centers[:, j]):
        error = None if parts.errors is None else float(parts.errors[k, j])
        spread = 0.0 if parts.widths is None else float(parts.widths[k, j] / (high - low))
        text, small = _numbers(float(value), error, high - low)
        position = None if parts.domain is None else float(positions[k])
        cells.append(Cell(text, small, position, spread))
    note = ""
    if parts.domain is not None and not isinstance(parts.domain, Ball):
        note = f"{low:.4g} to {high:.4g}"
    return Row(parts.names[j], note, tuple(cells))


def _numbers(value: float, error: float | None, span: float | None = None) -> tuple[str, str]:
    """Return a number and its error as text, with the digits that the error allows.

    Without an error, the range of the number determines three digits.
    """
    if error is None:
        return digits(value, span if span is None or span < 1e-3 else span / 50), ""
    if not 1e-6 < error < math.inf:  # tiny units need significant digits
        return f"{value:.4g}", f"± {error:.2g}"
    return digits(value, error), f"± {digits(error, error)}"


def _column_rows(
    column: Column,
    values: Floats,
    errors: Floats | None,
    coordinates: Floats,
    widths: Floats | None,
    positions: Floats,
) -> Iterator[Row]:
    """Yield the rows of one column of a schema."""
    if isinstance(column, Category | Flag) and values.shape[1] > 1:
        yield from _label_rows(column, values, errors)
        return
    cells = []
    for k, value in enumerate(values[:, 0]):
        error = None if errors is None else float(errors[k, 0])
        text, small = field_text(column, float(value), error)
        position: float | None = float(positions[k, 0])
        spread = 0.0
        if isinstance(column, Cycle):
            position = None
            if has_no_phase(column, coordinates[k], error):
                text, small = "all around", ""
        elif not isinstance(column, Flag) and widths is not None:
            spread = float(widths[k, 0] / column.weight / 2)
        cells.append(Cell(text, small, position, spread, is_share=isinstance(column, Flag)))
    yield Row(column.name, bounds_words(column), tuple(cells))


def _label_rows(column: Category | Flag, shares: Floats, errors: Floats | None) -> Iterator[Row]:
    """Yield a row of shares for each label; the rarest of many labels share one row."""
    labels = column.labels
    shown = list(range(len(labels)))
    if len(labels) > MAX_LABEL_ROWS + 1:
        by_share = np.argsort(-shares.max(axis=0), kind="stable")
        shown = sorted(int(j) for j in by_share[:MAX_LABEL_ROWS])
    for j in shown:
        label_errors = [None] * len(shares) if errors is None else errors[:, j].tolist()
        yield Row(labels[j], "", _share_cells(shares[:, j], label_errors), column.name)
    hidden = [j for j in range(len(labels)) if j not in shown]
    if hidden:
        name = f"{len(hidden)} further values"
        total = shares[:, hidden].sum(axis=1)
        yield Row(name, "", _share_cells(total, [None] * len(total)), column.name)


def _share_cells(shares: Floats, errors: Sequence[float | None]) -> tuple[Cell, ...]:
    pairs = zip(shares, errors, strict=True)
    return tuple(
        Cell(*share_text(float(s), error), position=float(s), is_share=True) for s, error in pairs
    )


def share_text(share: float, error: float | None = None) -> tuple[str, str]:
    """Return a share in percent, and its error, as text."""
    if error is None:
        return f"{share:.0%}".replace("%", " %"), ""
    form = ".0f" if error >= 0.01 else ".1f"
    return f"{100 * share:{form}} %", f"± {max(100 * error, 0.1):{form}}"


def field_text(column: Column, value: float, error: float | None) -> tuple[str, str]:
    """Return a field without its unit, and its error, as text."""
    if isinstance(column, Date):
        return _date_text(value, error)
    if isinstance(column, Category | Flag):
        return share_text(value, error)
    span = None
    if isinstance(column, Number) and column.scale == "linear":
        span = column.high - column.low
    return _numbers(value, error, span)


def _date_text(seconds: float, error: float | None) -> tuple[str, str]:
    """Return a date as precisely as its error in days allows."""
    day = str(as_dates(np.array([seconds]))[0])
    if error is None:
        return day, ""
    small = f"± {span_text(error)}"
    if error < _MONTH:
        return day, small
    return (day[:-3] if error < _YEAR else day[:-6]), small


def bounds_words(column: Column) -> str:
    """Return the public bounds of a column, with its unit."""
    if isinstance(column, Number):
        unit = f" {column.unit}" if column.unit else ""
        log = ", on a log scale" if column.scale == "log" else ""
        return f"{_bound(column.low)} to {_bound(column.high)}{unit}{log}"
    if isinstance(column, Date):
        return f"{column.first} to {column.last}"
    if isinstance(column, Cycle):
        return f"repeats after {column.period:g}"
    return "share of yes" if isinstance(column, Flag) else "shares"


def _bound(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e4 and value == round(value) else f"{value:g}"


def width_rows(parts: Parts) -> list[Row]:
    """Return a row of standard deviations for each number, date and cycle."""
    if parts.widths is None:
        return []
    if parts.schema is None:
        shown = _shown_columns(np.ptp(parts.centers / parts.scales, axis=0))
        return [
            Row(parts.names[j], "", tuple(Cell(f"{width:.3g}") for width in parts.widths[:, j]))
            for j in shown
        ]
    widths = field_errors(parts.schema, parts.centers, parts.widths)
    rows = []
    for column, fields in field_columns(parts.schema):
        if isinstance(column, Number | Date | Cycle):
            cells = tuple(
                Cell(span_text(width) if isinstance(column, Date) else digits(width, width))
                for width in widths[:, fields.start].tolist()
            )
            rows.append(Row(column.name, getattr(column, "unit", ""), cells))
    return rows[:MAX_REPORT_ROWS]
