"""Rows: what experiments find, and how what follows picks and gathers them.

Rows are flat and all have the same columns, so that a file of them can be read again in place
of a run. Nothing here makes a number that is kept: an experiment that finds one does so in modules
of its paper, whose sources name what it found.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

Value = str | int | float
Row = dict[str, Value]
_Key = TypeVar("_Key")


def number(row: Row, name: str) -> float:
    """Return a column of a row that holds a number."""
    return float(row[name])


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """Return a column of numbers, in the order of the rows."""
    return [number(row, name) for row in rows]


def places(rows: Sequence[Row], name: str) -> list[float]:
    """Return the different numbers of a column, the least first."""
    return sorted(set(numbers(rows, name)))


def where(rows: Sequence[Row], **values: Value) -> list[Row]:
    """Rows that have these values in the columns of these names."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def grouped(rows: Sequence[Row], key: Callable[[Row], _Key]) -> dict[_Key, list[Row]]:
    """Rows by what they have in common, in the order in which it first occurs."""
    groups: dict[_Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def quartiles(name: str, values: Sequence[float]) -> Row:
    """Columns for the median and for the quartiles around it."""
    low, middle, high = map(float, np.quantile(values, (0.25, 0.5, 0.75)))
    return {name: middle, f"{name}_low": low, f"{name}_high": high}


def to_csv(rows: Sequence[Row]) -> str:
    """Lines of comma-separated values below the names of the columns."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _short(value) for name, value in row.items()})
    return stream.getvalue()


def from_csv(content: str) -> list[Row]:
    """Rows of such lines; what looks like a number is one."""
    return [
        {name: _typed(text) for name, text in row.items()}
        for row in csv.DictReader(io.StringIO(content, newline=""))
    ]


def _short(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _typed(text: str) -> Value:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
