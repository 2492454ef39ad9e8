"""Counts of the cells of one column: missing, unreadable and why, outside of bounds, not listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Cycle, Date, Number
from privsketch.facts.labels import OTHER, Category, Flag
from privsketch.tables.cells import looked_at, texts_of
from privsketch.tables.memory import plain_array, plain_kind
from privsketch.tables.survey.counts import ValueCounts
from privsketch.tables.untyped.conversion import Bits

DECIMAL_COMMA = "numbers with a decimal comma"
# What a text that is no number looks like, the first that fits.
_TEXTS = (
    (r"^[+-]?\d{1,3}([ ',. ]\d{3})+([.,]\d+)?$", "numbers with marks between thousands"),
    (r"^[+-]?\d+,\d+$", DECIMAL_COMMA),
    (r"^[<>≤≥~]=?\s*[+-]?[\d.,]+$", "limits such as < 5 in place of numbers"),
    (r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}", "dates in place of numbers"),
    (r"^[+-]?[\d.,]+\s*[^\d\s.,].*$", "numbers with a unit or a remark"),
    (r"^\s*[+-]?[\d.]+\s*$", "numbers that are written in another way"),
)
DATE_FORMATS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y%m%d", "%d-%m-%Y", "%d %b %Y"),
    *("%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
    *("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"),
)
MAX_UNLISTED = 1000  # labels of a column that are told apart
_SHOWN_LABEL = 40  # letters of a label that is shown
_ENOUGH = 0.9  # of the unreadable dates, for a format that is told


class Rows(NamedTuple):
    """What a column means for each row: its values, NaN where there is none, and marks."""

    values: Floats
    missing: Bits
    wrong: Bits
    outside: Bits


class CellCounts:
    """Counts of one column while a table is read."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.values = ValueCounts()
        self.faults: Counter[str] = Counter()
        self.n_missing = self.n_infinite = self.n_below = self.n_above = self.n_other = 0
        self._formats: Counter[str] = Counter()
        self._labels: Counter[int] = Counter()
        self._unlisted: Counter[str] = Counter()
        self._n_near = 0  # labels that are listed in other letters

    def add(self, array: Any, decimal: str | None) -> Rows:
        """Count an Arrow array of cells of a `Raw` column."""
        values, wrong = looked_at(self._column, array, decimal=decimal)
        bad = np.zeros(len(values), dtype=np.bool_) if wrong is None else wrong
        if wrong is not None:
            self._count_faults(array, bad)
        infinite = np.isinf(values)
        missing = (np.isnan(values) & ~bad) | infinite
        self.n_infinite += int(infinite.sum())
        self.n_missing += int(missing.sum())
        known = values[~(missing | bad)]
        self.values.add(known)
        outside = self._outside(values, ~(missing | bad))
        if isinstance(self._column, Category | Flag):
            self._count_labels(array, values, known)
        return Rows(np.where(infinite, np.nan, values), missing, bad, outside)

    def _outside(self, values: Floats, known: Bits) -> Bits:
        """Return which values would be moved to their bounds; a cycle goes on behind its end."""
        low, high = bounds_of(self._column)
        with np.errstate(invalid="ignore"):
            below, above = (values < low) & known, (values > high) & known
        self.n_below += int(below.sum())
        self.n_above += int(above.sum())
        return below | above if not isinstance(self._column, Cycle) else np.zeros_like(below)

    def _count_labels(self, array: Any, values: Floats, known: Floats) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        places, counts = np.unique(known.astype(np.int64), return_counts=True)
        self._labels.update(dict(zip(places.tolist(), counts.tolist(), strict=True)))
        column = self._column
        if not isinstance(column, Category) or OTHER in column.values:
            return
        others = values == column.labels.index(OTHER)
        self.n_other += int(others.sum())
        if others.any():
            plain = _plain_texts(array).filter(pa.array(others))
            for one in pc.value_counts(plain).to_pylist():
                label = one["values"]
                if label in self._unlisted or len(self._unlisted) < MAX_UNLISTED:
                    self._unlisted[label] += one["counts"]
            listed = pa.array([value.strip().lower() for value in column.values], plain.type)
            alike = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(plain)), value_set=listed)
            self._n_near += int(pc.sum(alike).as_py() or 0)

    def _count_faults(self, array: Any, wrong: Bits) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.types as types

        n_wrong, kind = int(wrong.sum()), plain_kind(array.type)
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if not is_text:
            kind_name = "text or other things" if types.is_struct(kind) else str(kind)
            self.faults[f"{kind_name} in place of {_PLURALS[self._column.KIND]}"] += n_wrong
            return
        texts = _plain_texts(array).filter(pa.array(wrong))
        if isinstance(self._column, Date):
            self.faults["no dates as they are expected"] += n_wrong
            for name in DATE_FORMATS:
                found = pc.strptime(texts, format=name, unit="s", error_is_null=True)
                self._formats[name] += len(found) - found.null_count
            return
        if isinstance(self._column, Number | Cycle):
            for pattern, what in _TEXTS:
                fits = pc.match_substring_regex(texts, pattern)
                n_fitting = int(pc.sum(fits).as_py() or 0)
                if n_fitting:
                    self.faults[what] += n_fitting
                    texts = texts.filter(pc.invert(fits))
        if len(texts):
            self.faults[f"text in place of {_PLURALS[self._column.KIND]}"] += len(texts)

    def unlisted(self, most: int) -> dict[str, int]:
        """Return the most frequent labels that are not listed, with how often they occur."""
        pairs = sorted(self._unlisted.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
        found: Counter[str] = Counter()
        for label, count in pairs:
            cut = label if len(label) <= _SHOWN_LABEL else f"{label[:_SHOWN_LABEL]}..."
            found[cut] += count
        return dict(found)

    def hints(self) -> Iterator[str]:
        """Return hints about what might help."""
        column = self._column
        n_wrong = sum(self.faults.values())
        for name, count in self._formats.most_common(1):
            if count >= _ENOUGH * n_wrong > 0:
                yield f"dates are written in another way: format={name!r} would read them"
        if self._n_near:
            yield f"{self._n_near:,} labels are listed in other letters or with other blanks"
        if isinstance(column, Category) and self._labels:
            unseen = [v for index, v in enumerate(column.values) if index not in self._labels]
            if doubt := case_doubt(column.values):
                yield doubt
            if unseen:
                shown = ", ".join(repr(value) for value in unseen[:6])
                more = ", ..." if len(unseen) > 6 else ""
                yield f"{len(unseen)} listed values do not occur: {shown}{more}"
        if len(self._labels) == 1 and not self.n_other:
            yield "all cells say the same"


def case_doubt(labels: Sequence[str]) -> str:
    """Return what to do about labels that differ in case alone; nothing if there are none."""
    folded = [label.lower() for label in labels]
    twice = [label for label in labels if folded.count(label.lower()) > 1]
    if not twice:
        return ""
    shown = ", ".join(map(repr, twice[:6]))
    return (
        f"labels that differ in upper and lower case alone: {shown}; each counts by itself, so "
        "spell them alike in the table, and list one spelling"
    )


_PLURALS = {
    "number": "numbers",
    "cycle": "numbers",
    "date": "dates",
    "flag": "yes or no",
    "category": "labels",
}


def _plain_texts(array: Any) -> Any:
    """Return cells as text; of marked objects, the cells."""
    import pyarrow.types as types

    if types.is_struct(array.type):
        array = array.field(0)
    return texts_of(plain_array(array))


def bounds_of(column: Column) -> tuple[float, float]:
    """Return between which values stay as they are; labels are all inside."""
    if isinstance(column, Number):
        return column.low, column.high
    if isinstance(column, Date):
        return column.value_of(column.first), column.value_of(column.last)
    if isinstance(column, Cycle):
        return column.start, column.start + column.period
    return -np.inf, np.inf
