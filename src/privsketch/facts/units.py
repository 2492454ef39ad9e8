"""Results in the units of the table: decoded points, and their errors.

A *field* is one number of a result: the value of a number, a date or a cycle, the share of yes of a
flag, the share of each label of a category. Errors, widths and covariances follow from the
derivatives of fields by the coordinates, which is exact where a column is linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.columns import DAY, Column, Cycle, Date, Number, plain
from privsketch.facts.labels import Category, Flag
from privsketch.facts.schema import Schema

# A phase is unknown if its error exceeds this part of the deviation of a uniform phase,
MAX_PHASE_ERROR = 0.9
# or, without an error, if the mean of the points lies within this part of the radius.
MIN_STRENGTH = 0.1


def has_no_phase(column: Cycle, coordinates: Floats, error: float | None) -> bool:
    """Return whether the phase of a cycle is unknown, from its coordinates (2,)."""
    if error is None:
        return float(column.strength(coordinates[np.newaxis])[0]) < MIN_STRENGTH
    return error > MAX_PHASE_ERROR * column.period / math.sqrt(12)


def field_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of all fields: columns, and a share for each label of a category."""
    return tuple(name for column in schema.columns for name in column.fields)


def short_names(names: Sequence[str], longest: int, mark: str = "..") -> list[str]:
    """Shorten names to about `longest` characters: their starts and ends stay.

    Of a share, such as `ward=Surgery, south`, the label stays longest. Different names stay
    different, and become longer for it.
    """
    size, short = longest, [_short_name(name, longest, mark) for name in names]
    while len(set(short)) < len(set(names)):
        size += 4
        short = [
            _short_name(name, size, mark) if short.count(one) > 1 else one
            for name, one in zip(names, short, strict=True)
        ]
    return short


def _short_name(name: str, longest: int, mark: str) -> str:
    if len(name) <= longest:
        return name
    column, is_share, label = name.partition("=")
    if not (is_share and label):
        return _middle_cut(name, longest, mark)
    column = _middle_cut(column, max(longest // 3, longest - 1 - len(label)), mark)
    return f"{column}={_middle_cut(label, longest - 1 - len(column), mark)}"


def _middle_cut(text: str, longest: int, mark: str) -> str:
    """Leave out the middle of a text that is longer."""
    if len(text) <= longest:
        return text
    kept = max(longest - len(mark), 2)
    return f"{text[: (kept + 1) // 2]}{mark}{text[len(text) - kept // 2 :]}"


def field_columns(schema: Schema) -> Iterator[tuple[Column, slice]]:
    """Return the columns with the slices of their fields."""
    return schema.places("fields")


def field_values(schema: Schema, points: npt.ArrayLike) -> Floats:
    """Return fields (n, n_fields) of points (n, dim); dates are seconds since 1970."""
    rows = np.asarray(points, dtype=np.float64)
    parts = []
    for column, indices in schema.places():
        values = column.decode(rows[:, indices])
        if isinstance(column, Cycle):  # points spread around the circle have no mean phase
            is_weak = column.strength(rows[:, indices])[:, np.newaxis] < MIN_STRENGTH
            values = np.where(is_weak, np.nan, values)
        parts.append(values)
    return np.concatenate(parts, axis=1)


def field_positions(schema: Schema, points: npt.ArrayLike) -> Floats:
    """Return the positions of fields (n, n_fields) between their public bounds, 0 to 1.

    Shares are their own positions; cycles have no bounds and give NaN.
    """
    rows = np.asarray(points, dtype=np.float64)
    parts = []
    for column, indices in schema.places():
        if isinstance(column, Cycle):
            parts.append(np.full((len(rows), 1), np.nan))
        elif isinstance(column, Category | Flag):
            parts.append(column.decode(rows[:, indices]))
        else:
            parts.append((rows[:, indices] / column.weight + 1) / 2)
    return np.asarray(np.clip(np.concatenate(parts, axis=1), 0.0, 1.0))


def slopes(schema: Schema, point: npt.ArrayLike) -> Floats:
    """Return derivatives (n_fields, dim) of the fields by the coordinates at a point (dim,).

    Fields of dates are in days.
    """
    position = np.asarray(point, dtype=np.float64)
    derivatives = np.zeros((len(field_names(schema)), schema.dim))
    for (column, indices), (_, fields) in zip(schema.places(), field_columns(schema), strict=True):
        derivatives[fields, indices] = column.slopes(position[indices])
    return derivatives


def field_errors(schema: Schema, points: npt.ArrayLike, errors: npt.ArrayLike) -> Floats:
    """Return standard deviations (n, n_fields) of fields at points with coordinate `errors`.

    The error of a cycle is at most that of a uniform phase.
    """
    rows, deviations = np.asarray(points, np.float64), np.asarray(errors, np.float64)
    propagated = [
        np.sqrt(slopes(schema, row) ** 2 @ deviation**2)
        for row, deviation in zip(rows, deviations, strict=True)
    ]
    largest = [
        column.period / math.sqrt(12) if isinstance(column, Cycle) else math.inf
        for column in schema.columns
        for _ in column.fields
    ]
    return np.asarray(np.minimum(np.array(propagated).reshape(len(rows), -1), largest))


def field_covariance(schema: Schema, point: npt.ArrayLike, covariance: Floats) -> Floats:
    """Return the covariance (n_fields, n_fields) of the fields of records about a point."""
    change = slopes(schema, point)
    return np.asarray(change @ covariance @ change.T)


def records_of(schema: Schema, points: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
    """Return columns of a table for points (n, dim) that represent records.

    The label of a point is the nearest corner.
    """
    rows = np.asarray(points, dtype=np.float64)
    table: dict[str, npt.NDArray[Any]] = {}
    for column, indices in schema.places():
        coordinates = rows[:, indices]
        if isinstance(column, Category | Flag):
            label = column.shares(coordinates).argmax(axis=1)
            if isinstance(column, Flag) and column.is_line:
                table[column.name] = label == 1
            else:
                table[column.name] = np.array(column.labels, dtype=object)[label]
        else:
            values = column.decode(coordinates)[:, 0]
            table[column.name] = as_dates(values) if isinstance(column, Date) else values
    return table


def as_dates(seconds: Floats) -> npt.NDArray[np.datetime64]:
    """Convert seconds since 1970 to days."""
    return np.asarray(np.rint(seconds / DAY)).astype("datetime64[D]")


def frame_of(schema: Schema, values: Floats, *, spread: bool = False) -> Any:
    """Return a pandas frame of fields (n, n_fields); errors and widths of dates are in days."""
    columns: dict[str, Any] = {}
    for column, indices in field_columns(schema):
        for name, numbers in zip(column.fields, values[:, indices].T, strict=True):
            is_date = isinstance(column, Date) and not spread
            columns[name] = as_dates(numbers).astype("datetime64[s]") if is_date else numbers
    return frame(columns)


def frame(columns: Mapping[str, Any]) -> Any:
    """Return a pandas frame of columns; raise a ParameterError without pandas."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError:
        raise ParameterError("table: it gives a pandas frame; pip install pandas") from None
    return pd.DataFrame(dict(columns))


def field_text(column: Column, value: float, error: float | None = None) -> str:
    """Format a field with the digits that its error supports."""
    if isinstance(column, Date):
        return str(as_dates(np.array([value]))[0])
    if math.isnan(value):
        return "all around"
    if isinstance(column, Category | Flag):
        return f"{value:.0%}"
    unit = f" {column.unit}" if isinstance(column, Number) and column.unit else ""
    return f"{digits(value, error)}{unit}"


def bound_text(column: Number | Date, which: str) -> str:
    """Return the "low" or "high" bound of a number or a date as people write it, with its unit."""
    if isinstance(column, Date):
        return str(column.first if which == "low" else column.last)
    unit = f" {column.unit}" if column.unit else ""
    return f"{plain(getattr(column, which))}{unit}"


def digits(value: float, error: float | None = None) -> str:
    """Format a number with two digits of its error, or with four digits without one."""
    if error is None or not 0 < error < math.inf:
        if value != 0 and not 1e-3 <= abs(value) < 1e15:
            return f"{value:.4g}"
        error = abs(value) / 100 or 10.0
    decimals = min(1 - math.floor(math.log10(error)), 9)
    rounded = round(value, decimals) + 0.0  # no minus before a zero
    return f"{rounded:,.{max(decimals, 0)}f}"


def span_text(days: float) -> str:
    """Format a number of days as a time span."""
    number, unit = (days, "days") if days < 365 else (days / 365.25, "years")
    return f"{digits(number, number)} {unit}"


def step_text(column: Column, step: float, *, with_unit: bool = False) -> str:
    """Format a change of a field: signed, in days or years of a date, or in percentage points."""
    if math.isnan(step):
        return "\u2013"
    sign, size = "\u2212" if step < 0 else "+", abs(step)
    if isinstance(column, Date):
        return f"{sign}{span_text(size)}"
    if isinstance(column, Category | Flag):
        return f"{sign}{100 * size:.1f} %"
    unit = f" {column.unit}" if with_unit and isinstance(column, Number) and column.unit else ""
    return f"{sign}{digits(size, size / 10 or 1.0)}{unit}"


@dataclass(frozen=True)
class Measure:
    """A unit of measurement: `factor * value + offset` is the value in the unit of its group.

    `symbols` are the ways in which schemas write it, in lower case.
    """

    factor: Fraction
    offset: Fraction = Fraction(0)
    symbols: tuple[str, ...] = ()


def _measure(factor: float | str, *symbols: str, offset: str = "0") -> Measure:
    return Measure(Fraction(factor), Fraction(offset), symbols)


# Units by name, in groups of one quantity. The definitions are exact (NIST SP 811, appendix B), but
# for molar masses of laboratory values, degrees of arc, and the Julian year.
MEASURES = {
    "kilograms": _measure(1, "kg", "kilogram", "kilograms"),
    "grams": _measure("1/1000", "g", "gram", "grams"),
    "pounds": _measure("0.45359237", "lb", "lbs", "pound", "pounds"),
    "stones": Measure(14 * Fraction("0.45359237")),
    "ounces": Measure(Fraction("0.45359237") / 16),
    "metres": _measure(1, "m", "metre", "metres", "meter", "meters"),
    "millimetres": _measure("0.001"),
    "centimetres": _measure("0.01", "cm", "centimetre", "centimetres", "centimeter", "centimeters"),
    "kilometres": _measure(1000, "km", "kilometre", "kilometres", "kilometer", "kilometers"),
    "inches": _measure("0.0254", "in", "inch", "inches"),
    "feet": _measure("0.3048", "ft", "foot", "feet"),
    "miles": _measure("1609.344", "mi", "mile", "miles"),
    "hectares": _measure(10_000),
    "acres": _measure("4046.8564224"),
    "litres": _measure(1),
    "millilitres": _measure("0.001"),
    "US gallons": _measure("3.785411784"),
    "fluid ounces": Measure(Fraction("3.785411784") / 128),
    "kelvins": _measure(1, "k", "kelvin"),
    "degrees Celsius": _measure(1, "c", "°c", "celsius", offset="273.15"),
    "degrees Fahrenheit": Measure(
        Fraction(5, 9), Fraction("459.67") * 5 / 9, ("f", "°f", "fahrenheit")
    ),
    "kilopascals": _measure(1, "kpa"),
    "millimetres of mercury": _measure("0.133322387415", "mmhg"),
    "kilojoules": _measure(1),
    "kilocalories": _measure("4.184"),
    "mmol/l": _measure(1, "mmol/l"),
    "glucose in mg/dl": Measure(1 / Fraction("18.016")),
    "cholesterol in mg/dl": Measure(1 / Fraction("38.67")),
    "µmol/l": _measure(1),
    "creatinine in mg/dl": _measure("88.42", "mg/dl"),
    "HbA1c in percent": _measure("10.929", offset="-23.5"),
    "HbA1c in mmol/mol": _measure(1),
    "days": _measure(1, "d", "day", "days"),
    "seconds": _measure("1/86400"),
    "minutes": _measure("1/1440", "min", "minute", "minutes"),
    "hours": _measure("1/24", "h", "hour", "hours"),
    "weeks": _measure(7),
    "months": Measure(Fraction("365.25") / 12, symbols=("month", "months")),
    "years": _measure("365.25", "y", "a", "year", "years"),
    "radians": _measure(1),
    "degrees": _measure(math.pi / 180),
    "wholes": _measure(1),
    "tenths": _measure("0.1"),
    "hundredths (percent, cm for m)": _measure("0.01"),
    "thousandths (g for kg, mm for m)": _measure("0.001"),
    "millionths": _measure("0.000001"),
    "whole units": _measure(1),
    "cents": _measure("0.01"),
    "thousands": _measure(1000),
    "shares": _measure(1),
    "percent": _measure("0.01"),
}


def conversion(source: str, target: str) -> tuple[float, float]:
    """Return `factor` and `offset`: `factor * value + offset` turns one unit into the other.

    Both are names of the same group of `MEASURES`.

    Examples
    --------
    >>> conversion("pounds", "kilograms")
    (0.45359237, 0.0)
    >>> conversion("degrees Celsius", "degrees Fahrenheit")
    (1.8, 32.0)
    """
    origin, goal = MEASURES[source], MEASURES[target]
    return float(origin.factor / goal.factor), float((origin.offset - goal.offset) / goal.factor)
