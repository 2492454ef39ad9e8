"""What a look at a table found: exact numbers, for the eyes of its holder alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privsketch._base.errors import PrivsketchError
from privsketch.facts.units import as_dates, digits, frame

MARK = "private: "
_FEW = 0.0005  # a share that would be shown as nothing
MOST = 0.5  # of the values of a column, or of the rows: to lose or to move more is an alarm
Words = Callable[[str, str | None], str]  # how an interface writes a parameter and its value
MAX_SHOWN = 12  # labels of a column that are not listed


@dataclass(frozen=True, repr=False)
class ColumnCheck:
    """What was found in one column: numbers of cells, exact and private.

    `faults` are cells that a release would refuse, by what they are. `n_below` and `n_above` lie
    outside of the bounds, and would be moved to them; `n_other` are labels that are not listed, of
    which `unlisted` has the most frequent ones. `remarks` are in words.
    """

    name: str
    kind: str
    n_missing: int
    n_infinite: int
    n_below: int
    n_above: int
    n_other: int
    quartiles: tuple[float, float, float] | None
    faults: Mapping[str, int] = field(default_factory=dict)
    looks_like: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    is_found: bool = True
    unlisted: Mapping[str, int] = field(default_factory=dict)

    @property
    def n_wrong(self) -> int:
        """Cells that cannot be read."""
        return sum(self.faults.values())

    def __repr__(self) -> str:
        return f"<{MARK}column {self.name!r}>"


@dataclass(frozen=True, repr=False)
class Check:
    """What was found in a table, for its holder alone: exact numbers, and private.

    Nothing here has passed through noise. Print it with `describe`, whose lines are all marked; do
    not publish it, and do not keep it longer than it is needed.

    Parameters
    ----------
    n_rows : int
        Of the table.
    n_kept : int
        Rows that would not be left out, and that no cell spoils.
    n_records : int
        Records that would count: rows, or of each person no more than `max_records`.
    n_outside : int
        Rows that would be moved: with a value beyond its bounds, or outside of the ball.
    n_persons, n_kept_persons : int or None
        Persons, and those of whom a row would be kept.
    median_rows, max_rows : int or None
        Rows of a person.
    n_beyond : int or None
        Persons with more rows than would count.
    n_without_person : int or None
        Rows that name nobody.
    columns : tuple
        What was found in each of them.
    refusals : tuple of str
        Why a release of this table would be refused, if it would.
    advice : tuple of str
        What to say about how the table is written, if that seems to be something else. Parameters
        are marked by backquotes, as in errors.
    """

    n_rows: int
    n_kept: int
    n_records: int
    n_outside: int
    n_persons: int | None
    n_kept_persons: int | None
    median_rows: int | None
    max_rows: int | None
    n_beyond: int | None
    n_without_person: int | None
    columns: tuple[ColumnCheck, ...]
    refusals: tuple[str, ...]
    advice: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[str, ...]:
        """What would spoil a release that is possible, the worst last.

        More than `MOST` of the values of a column would be moved to its bounds, are not listed,
        are missing or cannot be read; more than `MOST` of the rows would be left out; or no record
        would count.
        """
        if self.n_records == 0:
            return ("no record would count",)
        found = [pair for one in self.columns for pair in _column_alarms(one, self.n_rows)]
        if self.n_rows - self.n_kept > MOST * self.n_rows:
            share = 1 - self.n_kept / self.n_rows
            found.append((share, f"{share:.1%} of the rows would be left out"))
        return tuple(text for _, text in sorted(found))

    @property
    def is_readable(self) -> bool:
        """Whether a release would read this table."""
        return not self.refusals

    def __repr__(self) -> str:
        return f"<{MARK}a check of {len(self.columns)} columns; describe() tells it>"

    def advice_texts(self, words: Words | None = None) -> list[str]:
        """Return the advice with parameters as `words(name, value)` writes them."""
        errors = [PrivsketchError(text) for text in self.advice]
        return [str(error) if words is None else error.rendered(words) for error in errors]

    def describe(self, words: Words | None = None) -> str:
        """Describe all that was found in several lines, each of them marked as private.

        `words(name, value)` writes a parameter; as in Python if left out.
        """
        lines = [
            "for the holder of these records alone: exact numbers, not to be published or kept",
            *self._row_lines(),
            *self._column_lines(),
        ]
        if not self.refusals:
            lines.append("readable     a release would read this table")
        lines += [f"alarm        {text}" for text in self.alarms]
        lines += [f"refused      {text}" for text in self.refusals]
        lines += [f"advice       {text}" for text in self.advice_texts(words)]
        return "\n".join((MARK + line).rstrip() for line in lines)

    def _row_lines(self) -> list[str]:
        rows = self.n_rows
        left_out = rows - self.n_kept
        lines = [
            f"rows         {rows:,}; {self.n_kept:,} would be kept, {left_out:,} "
            f"({_percent(left_out, rows)}) not",
            f"outside      {self.n_outside:,} rows ({_percent(self.n_outside, rows)}) would be "
            "moved into their bounds",
        ]
        if self.n_persons is not None:
            lines += [
                f"persons      {self.n_persons:,}; {self.n_kept_persons:,} with a row that is kept",
                f"rows each    median {self.median_rows}, largest {self.max_rows}; "
                f"{self.n_beyond:,} persons have more rows than would count",
            ]
        if self.n_without_person:
            lines.append(f"nobody       {self.n_without_person:,} rows name no person")
        lines.append(f"records      {self.n_records:,} would count")
        return lines

    def _column_lines(self) -> list[str]:
        rows = [_HEADINGS, *(_column_row(one, self.n_rows) for one in self.columns)]
        widths = [max(12, *(len(row[0]) for row in rows))]
        widths += [max(len(row[index]) for row in rows) for index in range(1, len(_HEADINGS))]
        lines = [
            "  ".join(
                cell.ljust(width) if index < 2 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        for one in self.columns:
            lines += [f"{one.name:<{widths[0]}} {text}" for text in _column_words(one, self.n_rows)]
        return lines

    def table(self) -> Any:
        """Return numbers of cells by column, as a pandas frame whose index is marked as private."""
        table = frame(
            {
                name: [getattr(one, name) for one in self.columns]
                for name in (
                    *("kind", "n_missing", "n_infinite", "n_wrong", "n_below", "n_above"),
                    "n_other",
                )
            }
        )
        table.index = [one.name for one in self.columns]
        table.index.name = MARK.strip(": ")
        table.attrs["private"] = "for the holder of these records alone"
        return table


_HEADINGS = ("column", "kind", "missing", "unreadable", "below", "above", "other", "quartiles")


def _column_row(one: ColumnCheck, n_rows: int) -> tuple[str, ...]:
    if not one.is_found:
        return (one.name, one.kind, *["-"] * (len(_HEADINGS) - 2))
    has_bounds, has_labels = one.kind not in ("category", "flag"), one.kind == "category"
    return (
        one.name,
        one.kind,
        _percent(one.n_missing, n_rows),
        _percent(one.n_wrong, n_rows),
        _percent(one.n_below, n_rows) if has_bounds else "",
        _percent(one.n_above, n_rows) if has_bounds else "",
        _percent(one.n_other, n_rows) if has_labels else "",
        _quartile_words(one),
    )


def _quartile_words(one: ColumnCheck) -> str:
    if one.quartiles is None or one.kind in ("category", "flag"):
        return ""
    if one.kind == "date":
        return " ".join(str(day) for day in as_dates(np.array(one.quartiles)))
    return " ".join(
        f"{value:,.0f}" if abs(value) >= 1000 else digits(value) for value in one.quartiles
    )


def _column_words(one: ColumnCheck, n_rows: int) -> list[str]:
    """Return remarks about a column beside its numbers."""
    lines = [
        f"{count:,} cells ({_percent(count, n_rows)}): {what}" for what, count in one.faults.items()
    ]
    if one.n_infinite:
        lines.append(f"{one.n_infinite:,} infinite values, which count as missing")
    if one.unlisted:
        labels = [f"{label!r} {_percent(count, n_rows)}" for label, count in one.unlisted.items()]
        more = ", ..." if sum(one.unlisted.values()) < one.n_other else ""
        lines.append(f"not listed: {', '.join(labels)}{more}")
    if one.looks_like:
        lines.append(f"looks like {', or '.join(one.looks_like)}")
    return [*lines, *one.remarks]


def _column_alarms(one: ColumnCheck, n_rows: int) -> list[tuple[float, str]]:
    """Return what would spoil a release of one column, with shares to sort by."""
    found = []
    n_lost = one.n_missing + one.n_wrong
    n_known = n_rows - n_lost
    n_outside = 0 if one.kind == "cycle" else one.n_below + one.n_above
    unit = f"; it looks like {', or '.join(one.looks_like)}" if one.looks_like else ""
    for count, total, what in (
        (n_outside, n_known, f"of its values lie outside of the bounds{unit}"),
        (one.n_other, n_known, "of its values are not listed"),
        (n_lost, n_rows, "of its cells are missing or cannot be read"),
    ):
        if one.is_found and count > MOST * total:
            found.append((count / total, f"column {one.name!r}: {count / total:.1%} {what}"))
    return found


def _percent(count: int, total: int) -> str:
    share = count / total if total else 0.0
    return f"<{_FEW:.1%}" if 0 < share < _FEW else f"{share:.1%}"
