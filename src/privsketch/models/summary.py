"""The model of a table's summary: means and shares by group, correlations, and its file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import as_line, count_text
from privsketch._base.notebook import table
from privsketch._base.types import Floats
from privsketch.facts.columns import DAY, Column, Cycle, Date, Line, Number
from privsketch.facts.labels import Labelled
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.terms import term_values, values_of_term
from privsketch.facts.units import MAX_PHASE_ERROR, as_dates, digits, frame
from privsketch.models.base import (
    MAX_LINE_LENGTH,
    MAX_TABLE_LINES,
    Model,
    require_fingerprint,
    require_numbers,
    turned_lines,
)
from privsketch.models.drawing.summary import plot_groups
from privsketch.models.sums import (
    COUNT_DEVIATIONS,
    DROWNED,
    Bounds,
    Estimate,
    Part,
    Spread,
    ratio_of,
    width_of,
    within,
)

DROWNED_TEXT, ALL_AROUND = "drowned in noise", "all around"
WITHIN_WORDS = (
    "Standard deviations within groups would need third moments, which a sketch of second moments "
    "does not hold: intervals of means in groups take one standard deviation for all groups."
)
_UNBOUNDED: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class Field:
    """A row of the table: a value, or the share of a label.

    Attributes
    ----------
    name : str
    kind : {"mean", "geometric mean", "share", "direction"}
    row : int
        Row of its term; the second one of a cycle follows.
    column : Column, optional
    """

    name: str
    kind: str
    row: int
    column: Column | None

    @property
    def unit(self) -> str:
        """Unit of a number, with a space before it."""
        column = self.column
        return f" {column.unit}" if isinstance(column, Number) and column.unit else ""


@dataclass(frozen=True, eq=False, repr=False)
class SummaryModel(Model):
    """Means, shares and correlations of a table, of all records and by group, with intervals.

    Intervals know the privacy noise, that of the number of records too, and how records vary.
    Standard deviations within groups would need third moments, which a sketch of second moments
    does not hold: intervals of means in groups take one standard deviation for all groups.

    Attributes
    ----------
    sums : (dim + 1, dim + 1) float64
        Noisy sums over records of u u', where u is a constant and the encoded record.
    noise_variance : (dim + 1, dim + 1) float64
        Variances of the noise of `sums`, which is independent between entries.
    noise_kurtosis : float
        Excess kurtosis of the noise of an entry: 0 for normal noise, up to 3 for that of Laplace.
    terms : (dim + 1, dim + 1) float64
        Rows that take u to the constant 1, then to the value of a number (its logarithm if it is
        logarithmic, days since 1970-01-01 of a date), to 0 or 1 for a flag and for each label, and
        to cosine and sine of a cycle.
    n_records : float
        Number of records: exact, noisy, or the planned one if the sketch has none.
    repetition : float
        How often a record counts, or how many a person has at most: results vary by sampling like
        those of n_records / repetition independent records.
    by : str, optional
        Category or flag whose labels are groups where the model is shown.
    design_fingerprint : str
    columns : tuple of str
        Names of the coordinates.
    concerns : tuple of str
        Reasons to doubt the results, as texts; empty if there are none.
    receipt : Receipt
        Cost of the sketch. Learning added nothing.
    schema : Schema, optional
        Encoding of tables.
    """

    KIND: ClassVar[str] = "summary-model"
    ARRAYS: ClassVar[tuple[str, ...]] = ("sums", "noise_variance", "terms")
    POINTS: ClassVar[str] = "terms"

    sums: Floats
    noise_variance: Floats
    noise_kurtosis: float
    terms: Floats
    n_records: float
    repetition: float
    by: str | None
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()
    schema: Schema | None = None

    @property
    def dim(self) -> int:
        """Number of coordinates of an encoded record."""
        return len(self.terms) - 1

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Rows of the table: columns, and the labels of categories."""
        if self.schema is None:
            plain = enumerate(self.column_names)
            return tuple(Field(name, "mean", place + 1, None) for place, name in plain)
        found: list[Field] = []
        for column, place in self.schema.places():
            if isinstance(column, Labelled):
                kind, names = "share", column.coordinates
            elif isinstance(column, Cycle):
                kind, names = "direction", column.fields
            else:
                is_log = isinstance(column, Number) and column.scale == "log"
                kind, names = "geometric mean" if is_log else "mean", column.fields
            found += [Field(n, kind, place.start + 1 + k, column) for k, n in enumerate(names)]
        return tuple(found)

    @property
    def group_columns(self) -> tuple[str, ...]:
        """Names of the columns whose labels can be groups."""
        columns = () if self.schema is None else self.schema.columns
        return tuple(column.name for column in columns if isinstance(column, Labelled))

    def labels_of(self, by: str) -> tuple[str, ...]:
        """Return the labels of a category or flag: the groups of `table(by)`."""
        known = ", ".join(map(repr, self.group_columns)) or "none: this table has no labels"
        if by not in self.group_columns:
            raise ParameterError("by", by, f"expected a category or flag, one of {known}")
        return self._group_column(by)[0].labels

    def _group_column(self, by: str) -> tuple[Labelled, int]:
        """Return a column of labels and the row of its first term."""
        places = () if self.schema is None else self.schema.places()
        for column, place in places:
            if column.name == by and isinstance(column, Labelled):
                return column, place.start + 1
        raise ParameterError("by", by, "expected a category or flag")

    @cached_property
    def _with_opposites(self) -> Floats:
        """Terms, and behind them for each flag on a line the label "no"."""
        rows = [self.terms]
        rows += [self.terms[:1] - self.terms[row : row + 1] for row in self._flags]
        return np.concatenate(rows)

    @cached_property
    def _flags(self) -> tuple[int, ...]:
        places = () if self.schema is None else self.schema.places()
        return tuple(
            place.start + 1
            for column, place in places
            if isinstance(column, Labelled) and column.is_line
        )

    def _groups(self, by: str) -> tuple[int, ...]:
        """Return the row of each label of a column."""
        column, row = self._group_column(by)
        if column.is_line:
            return len(self.terms) + self._flags.index(row), row
        return tuple(range(row, row + len(column.labels)))

    @cached_property
    def _whole(self) -> Part:
        return Part(self.sums, self.noise_variance, self.noise_kurtosis, self._with_opposites)

    def _part(self, *rows: int) -> Part:
        return self._whole.having(rows)

    # --- estimates ------------------------------------------------------------------------------

    def size(self, group: int = 0, level: float = 0.95) -> Estimate:
        """Return the number of records with the label of a row of terms, or of all; by noise."""
        part = self._part(*([group] if group else []))
        form = part.group(len(part.terms) - 1)
        return within(part.interval(form, part.value(form), 0.0, level), (0.0, math.inf))

    def estimate(self, field: Field, by: str | None, group: int, level: float) -> Estimate:
        """Return a mean or a share of all records, or of a group, in terms."""
        part, last = self._part(field.row, *([group] if group else [])), 2 if group else 0
        bottom = part.group(last)
        if not part.has_records(bottom):
            return DROWNED
        # The sum of a label over all records is the size of a group as well.
        is_size = field.kind == "share" and not group
        top = part.group(1) if is_size else part.within(1, last)
        low, high = self._bounds(field)
        value = min(max(part.value(top) / part.value(bottom), low), high)
        if field.kind == "share":
            spread = Spread.of_share(value)
        else:
            spread = Spread(self._variance_within(field, by))
        return ratio_of(part, top, bottom, value, spread, self.repetition, (low, high), level)

    def _variance(self, field: Field) -> float:
        """Return the variance of a value, at least 0."""
        part = self._part(field.row)
        count = part.product(0, 0)
        total = part.value(count)
        if not part.has_records(count):
            return 0.0
        mean = part.value(part.within(1, 0)) / total
        moved = part.within(1, 0) - mean * count  # its noise makes squares about the mean smaller
        squares = part.value(part.squares(1, mean)) + part.covariance(moved, moved) / total
        return max(squares / total, 0.0)

    def _variance_within(self, field: Field, by: str | None) -> float:
        """Return the variance of a value, without what the means of groups explain of it."""
        total = self._variance(field)
        if by is None:
            return total
        all_records, explained = self._part(field.row), 0.0
        count = all_records.product(0, 0)
        if not all_records.has_records(count):
            return total
        n_records = all_records.value(count)
        mean = all_records.value(all_records.within(1, 0)) / n_records
        for group in self._groups(by):
            part = self._part(field.row, group)
            bottom = part.group(2)
            if part.has_records(bottom):
                moved = part.within(1, 2) - mean * bottom
                square = part.value(moved) ** 2 - part.covariance(moved, moved)
                explained += max(square, 0.0) / part.value(bottom)
        return min(max(total - explained / n_records, 0.0), total)

    def deviation(self, field: Field, level: float = 0.95) -> Estimate:
        """Return the standard deviation of a number in terms; it varies as of normal records."""
        part = self._part(field.row)
        count = part.product(0, 0)
        if field.kind not in ("mean", "geometric mean") or not part.has_records(count):
            return DROWNED
        low, high = self._bounds(field)
        mean = part.value(part.within(1, 0)) / part.value(count)
        bounds = (0.0, (high - low) ** 2 / 4)
        value = min(self._variance(field), bounds[1])
        found = ratio_of(
            *(part, part.squares(1, mean), count, value, Spread.of_variance(value)),
            *(self.repetition, bounds, level),
        )
        return Estimate(math.sqrt(found.value), math.sqrt(found.low), math.sqrt(found.high))

    def _direction(self, field: Field, by: str | None, group: int, level: float) -> Estimate:
        """Return the mean of a cycle, in its own unit; NaN where its records are all around."""
        part, last = self._part(field.row, field.row + 1, *([group] if group else [])), 0
        last = 3 if group else 0
        bottom = part.group(last)
        if not part.has_records(bottom) or not isinstance(field.column, Cycle):
            return DROWNED
        total = part.value(bottom)
        both = part.within(1, last), part.within(2, last)
        cosine, sine = (part.value(form) / total for form in both)
        strength = math.hypot(cosine, sine)
        along = (cosine * both[0] + sine * both[1]) / max(strength, 1e-300)
        across = (cosine * both[1] - sine * both[0]) / max(strength, 1e-300)
        # Squares of cosine and sine add up to 1, so that neither direction varies more.
        sampling = self.repetition / total
        least = math.sqrt(part.covariance(along, along) / total**2 + sampling / 2)
        error = part.covariance(across, across) / total**2 + sampling * max(1 - strength**2, 0.0)
        if strength <= COUNT_DEVIATIONS * least:
            return DROWNED
        turn = field.column.period / (2 * math.pi)
        error = math.sqrt(error) * turn / strength
        if error > MAX_PHASE_ERROR * field.column.period / math.sqrt(12):
            return DROWNED
        value = float(field.column.decode(np.array([[cosine, sine]]))[0, 0])
        ends = (value - width_of(level) * error, value + width_of(level) * error)
        start, period = field.column.start, field.column.period
        return Estimate(value, *(start + (end - start) % period for end in ends))

    def _bounds(self, field: Field) -> Bounds:
        """Return the public bounds of a term."""
        if field.kind == "share":
            return 0.0, 1.0
        if not isinstance(field.column, Line):
            return _UNBOUNDED
        low, high = term_values(field.column, np.array(field.column.bounds))
        return float(low), float(high)

    def result(
        self, field: Field, by: str | None = None, group: int = 0, level: float = 0.95
    ) -> Estimate:
        """Return a mean or a share in the units of the table; dates are days since 1970-01-01."""
        if field.kind == "direction":
            return self._direction(field, by, group, level)
        found = self.estimate(field, by, group, level)
        if field.kind != "geometric mean" or found.is_drowned or field.column is None:
            return found
        values = values_of_term(field.column, np.array([found.value, found.low, found.high]))
        return Estimate(*map(float, values))

    # --- tables ---------------------------------------------------------------------------------

    def table(self, by: str | None = None, level: float = 0.95) -> Any:
        """Return a pandas frame of means and shares in the units of the table.

        Parameters
        ----------
        by : str, optional
            Category or flag whose labels are groups. Without it there is a row for each field:
            name, estimate, low, high, statistic, and the standard deviation `sd` with its interval,
            in days for dates. That of a geometric mean is a factor. With it, rows are named by the
            fields, and columns by (label, "estimate"), (label, "low"), (label, "high").
        level : float
            Level of the intervals. Those of `records` are about the records in the sketch, by noise
            alone; others are about the population, by noise and sampling.

        Notes
        -----
        A group whose size does not stand out of its noise has no numbers (NaN). Standard deviations
        within groups would need third moments, which a sketch of second moments does not hold:
        intervals of means in groups take one standard deviation for all groups.
        """
        width_of(level)
        if by is not None:
            return self._table_by(by, level)
        results = [self.size(level=level)]
        results += [self.result(field, level=level) for field in self.fields]
        columns: dict[str, Any] = {"name": ["records", *(field.name for field in self.fields)]}
        columns |= self._columns(results, [None, *self.fields])
        columns["statistic"] = ["number", *(field.kind for field in self.fields)]
        deviations = [DROWNED, *(self._shown_deviation(field, level) for field in self.fields)]
        for name, part in (("sd", "value"), ("sd_low", "low"), ("sd_high", "high")):
            columns[name] = [getattr(one, part) for one in deviations]
        return frame(columns)

    def _shown_deviation(self, field: Field, level: float = 0.95) -> Estimate:
        """Return a standard deviation, as a factor where the mean is geometric."""
        found = self.deviation(field, level)
        if field.kind != "geometric mean":
            return found
        numbers = (found.value, found.low, found.high)
        return Estimate(*(float(np.exp(number)) for number in numbers))

    def _table_by(self, by: str, level: float) -> Any:
        fields = self._fields_beside(by)
        columns: dict[tuple[str, str], Any] = {}
        for label, group in zip(self.labels_of(by), self._groups(by), strict=True):
            results = [self.size(group, level)]
            results += [self.result(field, by, group, level) for field in fields]
            for name, numbers in self._columns(results, [None, *fields]).items():
                columns[label, name] = numbers
        found = frame(columns)  # type: ignore[arg-type]
        found.index = ["records", *(field.name for field in fields)]
        found.index.name, found.columns.names = "name", [by, None]
        return found

    def _fields_beside(self, by: str | None) -> list[Field]:
        """Return the fields of all other columns."""
        return [f for f in self.fields if by is None or f.column is None or f.column.name != by]

    def results(self) -> list[dict[str, Any]]:
        """Return all numbers, by field and group; dates are days since 1970-01-01."""
        labels = (
            []
            if self.by is None
            else zip(self.labels_of(self.by), self._groups(self.by), strict=True)
        )
        found = []
        for label, group in [(None, 0), *labels]:
            by = None if label is None else self.by
            fields = self.fields if by is None else self._fields_beside(by)
            sizes = [("records", self.size(group))]
            for name, one in [*sizes, *((f.name, self.result(f, by, group)) for f in fields)]:
                numbers = {"estimate": one.value, "low": one.low, "high": one.high}
                found.append({"name": name, "group": label, **numbers})
        return found

    def _columns(self, results: list[Estimate], fields: list[Field | None]) -> dict[str, Any]:
        """Return columns of estimates and their intervals; dates as such."""
        columns = {}
        for name, part in (("estimate", "value"), ("low", "low"), ("high", "high")):
            numbers: list[Any] = [getattr(result, part) for result in results]
            for place, field in enumerate(fields):
                if field is not None and isinstance(field.column, Date):
                    days = np.array([numbers[place] * DAY])
                    numbers[place] = as_dates(days).astype("datetime64[s]").tolist()[0]
            columns[name] = numbers
        return columns

    def correlations(self, level: float = 0.95) -> Any:
        """Return a pandas frame of all pairs of numbers: correlations and covariances.

        Columns are name, other, estimate, low, high, covariance, covariance_low and
        covariance_high. Logarithmic numbers are in logarithms, dates in days. Sampling is that of
        normal records. Pairs in which noise hides how a number varies have no numbers (NaN).
        """
        width_of(level)
        numbers = [field for field in self.fields if field.kind in ("mean", "geometric mean")]
        pairs = [(x, y) for place, x in enumerate(numbers) for y in numbers[place + 1 :]]
        found = [self._correlation(x, y, level) for x, y in pairs]
        columns: dict[str, Any] = {"name": [x.name for x, _ in pairs]}
        columns["other"] = [y.name for _, y in pairs]
        for place, prefix in enumerate(("", "covariance_")):
            for name, part in (("estimate", "value"), ("low", "low"), ("high", "high")):
                title = "covariance" if prefix and name == "estimate" else f"{prefix}{name}"
                columns[title] = [getattr(both[place], part) for both in found]
        return frame(columns)

    def _correlation(self, x: Field, y: Field, level: float) -> tuple[Estimate, Estimate]:
        """Return correlation and covariance of two numbers.

        To first order the noise of x'y / sqrt(x'x y'y), in vectors about the mean of unit length,
        is that of the form (x y' + y x') / 2 - r (x x' + y y') / 2.
        """
        part = self._part(x.row, y.row)
        count = part.product(0, 0)
        if not part.has_records(count):
            return DROWNED, DROWNED
        total = part.value(count)
        mean = [part.value(part.within(row, 0)) / total for row in (1, 2)]
        one, two = (part.squares(row, mean[row - 1]) for row in (1, 2))
        vectors = [part.terms[row] - mean[row - 1] * part.terms[0] for row in (1, 2)]
        both = (np.outer(*vectors) + np.outer(*vectors[::-1])) / 2
        shifts = [part.within(row, 0) - mean[row - 1] * count for row in (1, 2)]
        product = part.value(both) + part.covariance(*shifts) / total
        sampling = self.repetition / total
        squares = [self._variance(field) * total for field in (x, y)]
        scale = math.sqrt(squares[0] * squares[1])
        spread = sampling * (squares[0] * squares[1] + product**2)
        covariance = part.interval(both / total, product / total, spread / total**2, level)
        if not (part.stands_out(one) and part.stands_out(two) and scale > 0):
            return DROWNED, covariance
        r = min(max(product / scale, -1.0), 1.0)
        change = both / scale - r / 2 * (one / squares[0] + two / squares[1])
        found = part.interval(change, r, sampling * (1 - r**2) ** 2, level)
        return within(found, (-1.0, 1.0)), covariance

    # --- texts and pictures ---------------------------------------------------------------------

    def shown_table(self, by: str | None = None) -> tuple[list[str], list[tuple[str, list[str]]]]:
        """Return headings, and for each row a name and texts: all records, sd, then groups."""
        groups = [] if by is None else list(zip(self.labels_of(by), self._groups(by), strict=True))
        heads = ["all records", "sd", *(label for label, _ in groups)]
        sizes = [self.size(), *(self.size(group) for _, group in groups)]
        texts = [size_text(size) for size in sizes]
        rows = [("records", [texts[0], "", *texts[1:]])]
        for field in self._fields_beside(by):
            cells = [self._cell(field)]
            cells += [self._cell(field, by, group) for _, group in groups]
            note = ", geometric mean" if field.kind == "geometric mean" else ""
            name = f"{as_line(field.name)}{field.unit}{note}"
            rows.append((name, [cells[0], self._sd(field), *cells[1:]]))
        return heads, rows

    def _cell(self, field: Field, by: str | None = None, group: int = 0) -> str:
        found = self.result(field, by, group)
        if found.is_drowned and field.kind == "direction" and self._is_seen(group):
            return ALL_AROUND
        return interval_text(field, found)

    def _is_seen(self, group: int) -> bool:
        """Return whether the size of a group stands out of its noise."""
        part = self._part(*([group] if group else []))
        return part.has_records(part.group(len(part.terms) - 1))

    def _sd(self, field: Field) -> str:
        found = self._shown_deviation(field)
        if found.is_drowned or not math.isfinite(found.high):
            return ""
        if self.deviation(field).low == 0:
            return f"below {digits(found.high, found.high)}"
        factor, unit = "factor " if field.kind == "geometric mean" else "", ""
        if isinstance(field.column, Date):
            unit = " days"
        half = max(found.high - found.low, 1e-3 * found.value) / 2
        return f"{factor}{digits(found.value, 2 * half)}{unit}"

    def plot(self, field: str, by: str | None = None, ax: Any = None) -> Any:
        """Draw a mean or a share in all groups with 95 % intervals, and return the Axes.

        Parameters
        ----------
        field : str
            Row of the table: a number, a flag, or a label such as "ward=A".
        by : str, optional
            Category or flag whose labels are groups; that of the model if left out.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if left out.
        """
        by = self.by if by is None else by
        if by is None:
            raise ParameterError("by: say which column has the groups")
        labels, fields = self.labels_of(by), self._fields_beside(by)
        require_one_of("field", field, tuple(one.name for one in fields))
        chosen = next(one for one in fields if one.name == field)
        found = [self.result(chosen, by, group) for group in self._groups(by)]
        return plot_groups(chosen, by, labels, found, self.result(chosen), ax)

    def _opening_lines(self) -> list[str]:
        size = size_text(self.size())
        groups = f", by {as_line(self.by)}" if self.by else ""
        lines = [f"summary     {size} records, {count_text(len(self.fields), 'field')}{groups}"]
        return [*lines, "intervals   95 %, by noise and sampling"]

    def _result_lines(self) -> list[str]:
        heads, rows = self.shown_table(self.by)
        names = [name for name, _ in rows]
        columns = [[cells[place] for _, cells in rows] for place in range(len(heads))]
        lines = turned_lines("field", heads, names, columns)
        if max(map(len, lines)) > MAX_LINE_LENGTH:  # one block of lines for each row
            lines = []
            for name, cells in rows[:MAX_TABLE_LINES]:
                lines.append(as_line(name))
                pairs = zip(heads, cells, strict=True)
                lines += [f"    {as_line(head)}: {cell}" for head, cell in pairs if cell]
        return [*lines, *([WITHIN_WORDS] if self.by else [])]

    def _html_table(self) -> str:
        heads, rows = self.shown_table(self.by)
        return table("field", [name for name, _ in rows], heads, [cells for _, cells in rows])

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        require_fingerprint(fields)
        require_numbers(fields, ("n_records", "repetition", "noise_kurtosis"))
        if fields["repetition"] < 1e-9 or fields["noise_kurtosis"] > 3:
            raise ParameterError("repetition must be above 0, and noise_kurtosis at most 3")
        names = fields["columns"]
        if not isinstance(names, list) or not names:
            raise ParameterError("columns must be a list of names")
        shape = (len(names) + 1, len(names) + 1)
        if any(fields[name].shape != shape for name in cls.ARRAYS):
            raise ParameterError("sums, noise_variance and terms must fit the columns")
        for name in ("sums", "noise_variance"):
            if (fields[name] != fields[name].T).any():
                raise ParameterError(f"{name} must be symmetric")
        if (fields["noise_variance"] < 0).any():
            raise ParameterError("noise_variance: a variance is below 0")
        if any(np.abs(fields[name]).max() > _LARGEST for name in cls.ARRAYS):
            raise ParameterError("a number is too large")
        constant = fields["terms"][0]
        if not constant[0] > 0 or constant[1:].any():
            raise ParameterError("terms must begin with a constant")
        by, schema = fields["by"], fields["schema"]
        if by is not None:
            columns = () if schema is None else Schema.from_json(schema).columns
            if by not in [column.name for column in columns if isinstance(column, Labelled)]:
                raise ParameterError("by must be a category or a flag")
        return {}


_LARGEST = 1e60  # of numbers in a file: their squares and products stay finite


def size_text(size: Estimate) -> str:
    """Return a number of records with its interval, if it has noise."""
    if size.low == size.high:
        return f"{size.value:,.0f}"
    return f"{size.value:,.0f} ({size.low:,.0f} to {size.high:,.0f})"


def interval_text(field: Field, found: Estimate) -> str:
    """Return a mean or a share with its interval, with as many digits as that supports."""
    if found.is_drowned:
        return DROWNED_TEXT
    numbers = (found.value, found.low, found.high)
    if isinstance(field.column, Date):
        value, low, high = (str(day) for day in as_dates(np.array(numbers) * DAY))
        return f"{value} ({low} to {high})"
    scale, percent = (100.0, " %") if field.kind == "share" else (1.0, "")
    width = scale * (found.high - found.low)  # with two digits of it
    if isinstance(field.column, Cycle):
        width %= field.column.period
    value, low, high = (digits(scale * number, width) for number in numbers)
    return f"{value}{percent} ({low} to {high})"
