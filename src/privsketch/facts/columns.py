"""Kinds of columns: how a value is encoded as coordinates, and how coordinates are decoded.

Every column is scaled by its public bounds. With weight w a number or a date lies in [-w, w]; two
different categories, the two values of a flag, and opposite points of a cycle are w apart, as far
as numbers that differ by half of their range.

| kind | coordinates | where | largest squared distance from `center` |
|---|---|---|---|
| number, date | 1 | [-w, w] | w^2 |
| flag | 1 | -w/2 or w/2 | w^2 / 4 |
| category of L labels | L | a corner a e_j of a simplex, a = w / sqrt 2 | a^2 (L - 1) / L |
| cycle | 2 | a circle of radius w/2 | w^2 / 4 |

Encoding uses operations whose rounding is the same everywhere: the coordinates of a record depend
on that record alone. Values are floats: numbers and cycles as they are, dates as seconds since
1970, categories and flags as the index of their label. NaN means missing.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Literal

import numpy as np

from privsketch._base.elementary import cosine_sine, natural_log
from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.types import Floats
from privsketch.facts.budget import is_name
from privsketch.facts.domain import MAX_DOMAIN_WIDTH, MIN_DOMAIN_WIDTH

Rule = Literal["error", "drop", "center", "category"]
RULES: tuple[Rule, ...] = ("error", "drop", "center")
_LINEAR_PART = 1000.0  # a logarithmic column from 0 on is linear up to its range divided by this
DAY = 86400.0
_MAX_TURNS = 2.0**40  # beyond, a float64 keeps less than four digits of the phase
_YEARS = range(1700, 2200)  # allowed in bounds: nanoseconds since 1970 fit 64 bits


class Column:
    """Base class of all kinds of columns.

    `weight` is the weight of the column in distances. `missing` overrides the table's rule for
    missing values, and `fill` is a public value that replaces them.
    """

    KIND: ClassVar[str]
    RULES: ClassVar[tuple[Rule, ...]] = ("error", "drop")
    READS_TEXT: ClassVar[bool] = False  # whether cells of text files may hold other than numbers

    name: str
    weight: float
    missing: Rule | None
    fill: Any

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ParameterError("name", self.name, "expected the name of a column")
        self._set("weight", self._number("weight", self.weight))
        if not 1e-6 <= self.weight <= 1e6:
            raise self._error("weight", self.weight, "expected a number from 1e-6 to 1e6")
        if self.missing is not None:
            try:
                require_one_of("missing", self.missing, self.RULES)
            except ParameterError as error:
                raise self._error("missing", self.missing, error.expected) from None
        if self.missing is not None and self.fill is not None:
            raise self._error(
                "fill", self.fill, f"with `missing={self.missing!r}`: give one of the two"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _error(self, name: str, value: object, expected: str, advice: str = "") -> ParameterError:
        return ParameterError(name, value, f"column {self.name!r}: {expected}", advice)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise self._error(name, value, "expected a number")
        if not math.isfinite(value):
            raise self._error(name, value, "expected a finite number")
        return float(value)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return (self.name,)

    @property
    def lowest(self) -> Floats:
        """Smallest value of each coordinate; bounds are symmetric unless a kind says otherwise."""
        return -self.highest

    @property
    def highest(self) -> Floats:
        """Largest value of each coordinate."""
        return np.full(len(self.coordinates), self.radius)

    @property
    def radius(self) -> float:
        """Largest magnitude of a coordinate, which bounds the distance from `center` as well."""
        return self.weight / 2

    @property
    def center(self) -> Floats:
        """Point from which distances are bounded."""
        return (self.lowest + self.highest) / 2

    @property
    def squared_radius(self) -> float:
        """Largest squared distance of an encoded value from `center`."""
        return self.radius**2

    def encode(self, values: Floats) -> Floats:
        """Return coordinates (n_coordinates, n) of values (n,); missing ones stay NaN."""
        raise NotImplementedError

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the numbers that results report for the column."""
        return self.coordinates

    def decode(self, coordinates: Floats) -> Floats:
        """Return the fields (n, n_fields) of coordinates (n, n_coordinates)."""
        raise NotImplementedError

    def slopes(self, coordinates: Floats) -> Floats:
        """Return derivatives (n_fields, n_coordinates) of the fields at coordinates."""
        raise NotImplementedError

    def value_of(self, text: Any) -> float:
        """Parse a value that a person wrote, as `encode` expects it."""
        return self._number("fill", text)

    def encodable(self, values: Floats) -> Floats:
        """Return values (n,), with NaN where one cannot be encoded."""
        return np.where(np.isfinite(values), values, np.nan)

    def to_json(self) -> dict[str, Any]:
        """Return the column as plain JSON values, without defaults."""
        facts: dict[str, Any] = {"kind": self.KIND}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name == "name" or value != field.default:
                facts[field.name] = list(value) if isinstance(value, tuple) else value
        return facts

    def describe(self) -> str:
        """Describe the column in one line, without its name."""
        parts = [self._words()]
        if self.weight != 1:
            parts.append(f"weight {self.weight:g}")
        if self.fill is not None:
            parts.append(f"missing values are taken for {self.fill}")
        elif self.missing is not None:
            parts.append(MISSING_WORDS[self.missing])
        return ", ".join(parts)

    def _words(self) -> str:
        raise NotImplementedError


def plain(value: float) -> str:
    """Return a bound as people write it."""
    is_whole = float(value).is_integer() and abs(value) < 1e15
    return f"{int(value):,}" if is_whole else f"{value:g}"


MISSING_WORDS: dict[str, str] = {
    "error": "missing values are refused",
    "drop": "records without it are left out",
    "center": "missing values are put in the middle",
    "category": "a missing value is a category of its own",
}


class Line(Column):
    """A column whose values lie on a line between public bounds: one coordinate in [-w, w]."""

    RULES: ClassVar[tuple[Rule, ...]] = ("error", "drop", "center")

    @property
    def bounds(self) -> tuple[float, float]:
        """Public bounds of the values, as `encode` expects them."""
        raise NotImplementedError

    @property
    def radius(self) -> float:
        """Largest coordinate: the column's weight."""
        return self.weight

    def _require_fill_inside(self) -> None:
        low, high = self.bounds
        if self.fill is not None and not low <= self.value_of(self.fill) <= high:
            raise self._error("fill", self.fill, "lies outside of the bounds")

    def encode(self, values: Floats) -> Floats:
        """Map the lower bound to -w and the upper bound to w."""
        low, high = self.bounds
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        return self._scaled((np.clip(values, low, high) - middle) / half)

    def _scaled(self, position: Floats) -> Floats:
        """Return coordinates (1, n) of positions (n,) between -1 and 1."""
        return np.clip(position, -1.0, 1.0)[np.newaxis] * self.weight

    def decode(self, coordinates: Floats) -> Floats:
        """Return values (n, 1)."""
        low, high = self.bounds
        position = np.clip(coordinates / self.weight, -1.0, 1.0)
        return np.asarray(low / 2 + high / 2 + position * (high / 2 - low / 2))

    def slopes(self, coordinates: Floats) -> Floats:
        """Return the derivative of values by their coordinate."""
        low, high = self.bounds
        return np.array([[(high / 2 - low / 2) / self.weight]])


@dataclass(frozen=True)
class Number(Line):
    """A number between public bounds; values outside are clipped to them.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    low, high : float
        Public bounds.
    scale : {"linear", "log"}
        With "log", equal ratios are equally far apart, as for money and concentrations. With
        `low=0`, the scale is linear up to a thousandth of the range.
    unit : str
        Unit that reports show: "kg", "mmol/l".
    weight : float
        Weight of the column in distances.
    missing : {"error", "drop", "center"}, optional
        What to do with missing values; the table's rule if left out.
    fill : float, optional
        Public value that replaces missing values.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Number("income", 0, 500_000, scale="log").describe()
    'number from 0 to 500,000, logarithmic'
    """

    KIND: ClassVar[str] = "number"

    name: str
    low: float
    high: float
    scale: str = "linear"
    unit: str = ""
    weight: float = 1.0
    missing: Rule | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("low", "high"):
            self._set(name, self._number(name, getattr(self, name)))
        width = self.high - self.low
        if not width > 0:
            raise self._error(
                "low", self.low, f"is not below high={self.high:g}", "are they swapped?"
            )
        if not MIN_DOMAIN_WIDTH < width < MAX_DOMAIN_WIDTH:
            raise self._error("high", self.high, "cannot be computed with", "use other units")
        require_one_of("scale", self.scale, ("linear", "log"))
        if self.scale == "log" and self.low < 0:
            raise self._error("low", self.low, "a logarithmic column begins at 0 or above")
        if not isinstance(self.unit, str) or not self.unit.isprintable():
            raise self._error("unit", self.unit, "expected a text of one line")
        if self.fill is not None:
            self._set("fill", self._number("fill", self.fill))
        self._require_fill_inside()

    @property
    def bounds(self) -> tuple[float, float]:
        """Public bounds of the values."""
        return self.low, self.high

    def encode(self, values: Floats) -> Floats:
        """Map `low` to -w and `high` to w."""
        if self.scale == "linear":
            return super().encode(values)
        low, high = self.low, self.high
        clipped = np.where(np.isnan(values), high, np.clip(values, low, high))
        if low > 0:
            shifted, ends = clipped, np.array([low, high])
        else:
            shifted, ends = clipped / self.log_unit + 1, np.array([1.0, 1 + _LINEAR_PART])
        bottom, top = natural_log(ends)
        position = (natural_log(shifted) - bottom) / (top - bottom) * 2 - 1
        return self._scaled(np.where(np.isnan(values), np.nan, position))

    @property
    def log_unit(self) -> float:
        """Unit of the logarithmic scale ln(1 + x / unit)."""
        return self.high / _LINEAR_PART

    def decode(self, coordinates: Floats) -> Floats:
        """Return values (n, 1)."""
        if self.scale == "linear":
            return super().decode(coordinates)
        low, high = self.low, self.high
        part = (np.clip(coordinates / self.weight, -1.0, 1.0) + 1) / 2
        if low > 0:
            return np.asarray(low * np.exp(part * math.log(high / low)))
        return np.asarray(np.expm1(part * math.log1p(_LINEAR_PART)) * self.log_unit)

    def slopes(self, coordinates: Floats) -> Floats:
        """Return the derivative of values by their coordinate."""
        if self.scale == "linear":
            return super().slopes(coordinates)
        if self.low > 0:
            rate, shift = math.log(self.high / self.low), 0.0
        else:
            rate, shift = math.log1p(_LINEAR_PART), self.log_unit
        value = self.decode(coordinates[np.newaxis])
        return np.asarray((value + shift) * rate / (2 * self.weight))

    def _words(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        scale = ", logarithmic" if self.scale == "log" else ""
        return f"number from {plain(self.low)} to {plain(self.high)}{unit}{scale}"


@dataclass(frozen=True)
class Date(Line):
    """A day, or a moment, between public dates.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    first, last : str or date
        Public bounds, as "2020-01-31"; dates outside are clipped to them.
    format : str, optional
        Format of dates in text files, as for `datetime.strptime`: "%d.%m.%Y". ISO dates, like
        2020-01-31 or 2020-01-31 12:30:00, if left out.
    weight, missing, fill : optional
        As for a number; `fill` is a date.
    """

    KIND: ClassVar[str] = "date"
    READS_TEXT: ClassVar[bool] = True

    name: str
    first: Any
    last: Any
    format: str | None = None
    weight: float = 1.0
    missing: Rule | None = None
    fill: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "last"):
            self._set(name, self._day(name, getattr(self, name)))
        if not self._seconds(self.first) < self._seconds(self.last):
            raise self._error("first", self.first, f"is not before last={self.last!r}")
        if self.format is not None and (not isinstance(self.format, str) or "%" not in self.format):
            raise self._error("format", self.format, "expected one like '%d.%m.%Y'")
        if self.fill is not None:
            self._set("fill", self._day("fill", self.fill))
        self._require_fill_inside()

    def _day(self, name: str, value: Any) -> str:
        """Return a date in its canonical spelling, with a time only where there is one."""
        try:
            if isinstance(value, np.datetime64):
                value = str(value.astype("datetime64[s]"))
            moment = value
            if isinstance(value, str):
                moment = datetime.fromisoformat(value)
            elif isinstance(value, date) and not isinstance(value, datetime):
                moment = datetime(value.year, value.month, value.day)
            if moment.tzinfo is not None:
                moment = moment.astimezone(UTC)
            moment = moment.replace(tzinfo=None)
        except (AttributeError, TypeError, ValueError):
            raise self._error(name, value, "expected a date like 2020-01-31") from None
        if moment.year not in _YEARS:
            raise self._error(name, value, f"expected a year from {_YEARS[0]} to {_YEARS[-1]}")
        is_day = moment == datetime(moment.year, moment.month, moment.day)
        return str(moment.date()) if is_day else moment.isoformat(timespec="seconds")

    @staticmethod
    def _seconds(day: str) -> float:
        return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()

    @property
    def bounds(self) -> tuple[float, float]:
        """First and last moment, in seconds since 1970."""
        return self._seconds(self.first), self._seconds(self.last)

    def slopes(self, coordinates: Floats) -> Floats:
        """Return days per unit of the coordinate."""
        return super().slopes(coordinates) / DAY

    def value_of(self, text: Any) -> float:
        """Parse a date into seconds since 1970."""
        return self._seconds(self._day("fill", text))

    def _words(self) -> str:
        return f"date from {self.first} to {self.last}"


@dataclass(frozen=True)
class Cycle(Column):
    """A periodic number: an hour of the day, a day of the week, an angle.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    period : float
        Public period; 24 for hours, so that 23 lies next to 0.
    start : float
        Smallest value in results: months run from 1 to 13, where 13 is 1 again.
    weight, missing, fill : optional
        As for a number; `missing` is not "center", because a cycle has no middle.
    """

    KIND: ClassVar[str] = "cycle"

    name: str
    period: float
    start: float = 0.0
    weight: float = 1.0
    missing: Rule | None = None
    fill: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("period", "start"):
            self._set(name, self._number(name, getattr(self, name)))
        if not MIN_DOMAIN_WIDTH < self.period < MAX_DOMAIN_WIDTH:
            raise self._error("period", self.period, "expected a number above 0")
        if self.fill is not None:
            self._set("fill", self._number("fill", self.fill))

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Cosine and sine of the turn."""
        return (f"{self.name} (cos)", f"{self.name} (sin)")

    @property
    def fields(self) -> tuple[str, ...]:
        """Name of the column."""
        return (self.name,)

    def encodable(self, values: Floats) -> Floats:
        """Return values (n,), with NaN where one is too large to have a phase."""
        with np.errstate(over="ignore"):
            turns = (values - self.start) / self.period
        return np.where(np.abs(turns) < _MAX_TURNS, values, np.nan)

    def encode(self, values: Floats) -> Floats:
        """Map values to points of the circle."""
        turns = (values - self.start) / self.period
        turns = turns - np.floor(turns)  # rounding may give 1, which is the same phase as 0
        both = cosine_sine(np.where(np.isnan(turns), 0.0, turns))
        return np.where(np.isnan(turns), np.nan, np.stack(both)) * self.radius

    def decode(self, coordinates: Floats) -> Floats:
        """Return values (n, 1), from `start` on."""
        turns = np.arctan2(coordinates[:, 1:], coordinates[:, :1]) / (2 * math.pi)
        return np.asarray(self.start + (turns % 1.0) * self.period)

    def slopes(self, coordinates: Floats) -> Floats:
        """Return the derivatives of the position on the circle, bounded near its center."""
        x, y = coordinates
        nearest = 1e-3 * self.radius
        if math.hypot(x, y) < nearest:
            x, y = nearest, 0.0
        turn = self.period / (2 * math.pi) / (x * x + y * y)
        return np.array([[-y * turn, x * turn]])

    def strength(self, coordinates: Floats) -> Floats:
        """Return how much values agree, (n,): 1 if all are equal, 0 if they are spread evenly."""
        lengths = np.sqrt(np.square(coordinates).sum(axis=1)) / self.radius
        return np.asarray(np.minimum(lengths, 1.0))

    def _words(self) -> str:
        return f"cycle of {self.period:g}"
