"""Bounds for a schema that nobody knows, bought with a share of the budget.

One histogram for each column, over doublings that are the same for every table: from 2^-20 to 2^40
and as far below zero, what is nearer to zero than the least of them, and what lies beyond.

One record adds one to one cell of each histogram, or nothing where its value is missing. So a
record more or less moves all counts together by at most d in L1, d being the number of columns; a
record that is replaced by 2 d; a person of whom up to c records count by c d. Discrete Laplace
noise of scale c d / epsilon (2 d / epsilon) on every cell, empty ones included, is pure. What is
made of the noisy counts costs nothing more.

A doubling counts if it stands out of the noise: its noisy count is at least the threshold that all
empty cells together exceed with a chance of `FALSE_BOUND`. The bounds are the smallest range of
doublings that holds those which count, but for the outermost ones as long as these hold no more
than `max_outside` of the values by noisy counts: a few typing errors do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats, Integers
from privsketch.facts.budget import Budget, Neighbours, checked_source, exact, number_text
from privsketch.facts.columns import Number, Rule
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.ledger.entry import LedgerName, cost_of_budget, open_entry
from privsketch.noise.account import Account, Shares
from privsketch.noise.calibration import discrete_laplace_variance
from privsketch.tables.cells import Plain
from privsketch.tables.memory import Selection
from privsketch.tables.reading import names_persons, read_blocks
from privsketch.tables.table import Table

FALSE_BOUND = 0.01  # that any empty doubling of any column is taken for one with values
# Values nearer to zero than 2^LEAST are taken for zero; from 2^MOST on they are told apart no more.
LEAST, MOST = -20, 40
_REACH = MOST - LEAST + 1  # doublings of one sign, with the one beyond
N_CELLS = 2 * _REACH + 1
_NO_CELL = -1.0  # of a missing value


def cells_of(values: Floats) -> Floats:
    """Return the cells (n,) of values: 0 is the most negative one, `_REACH` that of zero.

    The exponent of a float is exact: no logarithm is rounded.
    """
    _, exponents = np.frexp(np.abs(values))  # 2^(exponent - 1) <= |value| < 2^exponent
    steps = np.where(values == 0, 0, np.clip(exponents - LEAST, 0, _REACH))
    return np.asarray(_REACH + np.sign(values) * steps)


def edges_of(cell: int) -> tuple[float, float]:
    """Return where the values of a cell lie; those that are taken for zero are zero."""
    step = abs(cell - _REACH)
    if step == 0:
        return 0.0, 0.0
    outer = math.inf if step == _REACH else 2.0 ** (LEAST + step)
    inner = 2.0 ** (LEAST + step - 1)
    return (inner, outer) if cell > _REACH else (-outer, -inner)


@dataclass(frozen=True)
class _Doublings(Plain):
    """A number that is encoded as the cell it falls into."""

    RULES: ClassVar[tuple[Rule, ...]] = ("center",)

    missing: Any = "center"

    @property
    def center(self) -> Floats:
        """What missing values are put at: no cell."""
        return np.array([_NO_CELL])

    def encode(self, values: Floats) -> Floats:
        """Return cells (1, n)."""
        return cells_of(np.where(np.isnan(values), 0.0, values))[np.newaxis]


@dataclass(frozen=True)
class Bounds:
    """Bounds that were bought, a function of noisy counts.

    Parameters
    ----------
    low, high : dict of float or None
        By the names of columns; None where no bounds can be proposed.
    notes : dict of str
        What is to be said of each column.
    threshold : int
        A doubling with a smaller noisy number of values was not looked at.
    receipt : Receipt
        What it cost, which adds to all that follows.
    """

    low: Mapping[str, float | None]
    high: Mapping[str, float | None]
    notes: Mapping[str, str] = field(repr=False)
    threshold: int
    receipt: Receipt = field(repr=False)

    @property
    def columns(self) -> tuple[Number, ...]:
        """Columns for a schema, of those that bounds can be proposed for."""
        columns = []
        for name, low in self.low.items():
            high = self.high[name]
            if low is not None and high is not None:
                columns.append(Number(name, low, high))
        return tuple(columns)

    def describe(self) -> str:
        """Describe the bounds as lines for a schema, and what they cost, in plain words."""
        columns = {column.name: column for column in self.columns}
        width = max(12, *(len(name) for name in self.low))
        lines = []
        for name, note in self.notes.items():
            text = "no bounds can be proposed"
            if name in columns:
                low, high = (
                    number_text(bound) for bound in (columns[name].low, columns[name].high)
                )
                text = f"ps.Number({name!r}, {low}, {high})"
            lines += [f"{name:<{width}} {text}", f"{'':<{width}} {note}"]
        spent = self.receipt.epsilon
        lines.append(f"{'cost':<{width}} {self.receipt.summary()}")
        rest = "it adds to all that follows"
        if spent < 1:
            left = number_text(float(1 - exact(spent)))
            rest += (
                f": of an epsilon of 1 in all this is {spent:.3g}, and {left} is left for a study"
            )
        lines.append(f"{'':<{width}} {rest}")
        lines.append(
            f"{'rule':<{width}} a doubling counts if its noisy number of values is {self.threshold}"
            f" or more, which noise alone reaches anywhere with a chance of {FALSE_BOUND:.0%}"
        )
        if self.receipt.assumption:
            lines.append(f"{'assuming':<{width}} {self.receipt.assumption}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return bounds and notes as plain JSON values."""
        return {
            "columns": [
                {"name": name, "low": low, "high": self.high[name], "note": self.notes[name]}
                for name, low in self.low.items()
            ],
            "threshold": self.threshold,
        }


def private_bounds(
    data: Any,
    columns: Sequence[str | int] | None = None,
    *,
    epsilon: float,
    neighbours: Neighbours = "add-remove",
    person: str | None = None,
    max_records: int = 1,
    rows_per_person: int | None = None,
    missing_person: str = "error",
    max_outside: float = 0.001,
    source: str | None = None,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    ledger: LedgerName = None,
) -> Bounds:
    """Propose bounds for columns of numbers, from noisy histograms over doublings.

    Bounds that people know cost nothing and are better. Nothing calls this by itself.

    Charges: epsilon, once, whatever comes out of it; nothing if an error stops it before.

    Parameters
    ----------
    data : Table, array, frame, path, list of paths
        See `Table`. Its cells that cannot be read are refused or missing, as it states.
    columns : list of str or int, optional
        Columns of numbers, by name, or by number where they have none, here or in the Table. A
        missing value counts in none of its column's doublings. The budget is split evenly over
        the columns.
    epsilon : float
        Pure; delta is 0.
    neighbours : {"add-remove", "replace"}
        Which change of a table must stay hidden.
    person : str, optional
        The column that names persons: then one person is protected, and one record of each counts.
    max_records : int
        How many records of a person count at most; noise grows by as much.
    rows_per_person : int, optional
        Where no column names persons: a public bound on their rows, taken on trust.
    missing_person : {"error", "drop"}
        What is done with rows that name no person.
    max_outside : float
        Share of the values, by noisy counts, that bounds may leave out on purpose at their ends.
    source : str, optional
        Name of the set of records, for the receipt.
    n_threads : int, optional
        As many as there are cores if left out.
    progress : callable, optional
        Called with numbers of rows done. For the holder only.
    ledger : (path, name), optional
        Where it is entered, as in `sketch`.

    Returns
    -------
    Bounds

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> ages = np.random.default_rng(0).uniform(18, 100, size=(100_000, 1))
    >>> found = ps.private_bounds(ages, [0], epsilon=0.1)
    >>> found.columns
    (Number(name='0', low=16.0, high=128.0, scale='linear', unit='', weight=1.0, missing=None,
    fill=None),)
    """
    if isinstance(max_outside, bool) or not (
        isinstance(max_outside, Real) and 0 <= max_outside < 0.5
    ):
        raise ParameterError("max_outside", max_outside, "expected a share from 0 to below 0.5")
    table = Table.of(data, None if columns is None else _names(columns))
    if table.columns is None:
        raise ParameterError("columns: name the columns of numbers, here or in the Table")
    named = (*_names(table.columns), *(() if person is None else (person,)))
    schema = doublings(
        table.columns,
        person=person,
        max_records=max_records,
        rows_per_person=rows_per_person,
        missing_person=missing_person,
        unreadable=table.unreadable,
    )
    budget = schema.charged(Budget(epsilon, 0.0, neighbours))
    source = None if source is None else checked_source(source)
    # A record of a sheet without any value counts nowhere, so their number is of no use.
    format = replace(table.format, n_records=None)
    selection = Selection(schema.dim, named, None, format=format, schema=schema)
    with open_entry(
        ledger,
        lambda: cost_of_budget(budget),
        what="bounds",
        source=source,
        is_total=schema.is_total,
    ).entered() as entry:
        counts = _counts(table, selection, n_threads, progress)
        account = Account(Shares(budget, {_SHARE: Fraction(1)}))
        # A record is in one cell of each column.
        noisy, scale = account.laplace(_SHARE, counts, schema.dim)
        receipt = account.receipt(f"bounds of {schema.dim} column(s)", source)
        entry.commit(receipt)
    return _proposed(schema.names, noisy, scale, float(max_outside), receipt)


_SHARE = "doublings"


def doublings(columns: Sequence[str | int], **rules: Any) -> Schema:
    """Return a schema of numbers whose doublings are counted; `rules` as in a schema."""
    return Schema(tuple(_Doublings(str(name)) for name in _names(columns)), **rules)


def _names(columns: Sequence[str | int]) -> list[str | int]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise ParameterError("columns: expected a list of names or numbers of columns")
    return [name if isinstance(name, str) else _place(name) for name in columns]


def _place(column: Any) -> int:
    if isinstance(column, bool) or not isinstance(column, int | np.integer) or column < 0:
        raise ParameterError("columns: expected a list of names or numbers of columns")
    return int(column)


def _counts(
    table: Table,
    selection: Selection,
    n_threads: int | None,
    progress: Callable[[int], None] | None,
) -> Integers:
    """Return exact numbers of values (n_columns, N_CELLS) in all cells."""
    counts = np.zeros((selection.dim, N_CELLS), dtype=np.int64)
    for block in read_blocks(table, selection, n_threads=n_threads, progress=progress):
        for row, values in zip(counts, np.asarray(block).T, strict=True):
            row += np.bincount(values[values >= 0].astype(np.int64), minlength=N_CELLS)
        if progress is not None and not names_persons(selection):
            progress(len(block))
    return counts


# ---------------------------------------------------------------- from noisy counts alone


def threshold_of(scale: float, n_cells: int) -> int:
    """Return the least number that noise reaches in any of so many cells by `FALSE_BOUND` at most.

    P(noise >= t) = a^t / (1 + a) with a = exp(-1 / scale), for t >= 1.
    """
    ratio = math.exp(-1 / scale)
    return max(1, math.ceil(scale * math.log(n_cells / (FALSE_BOUND * (1 + ratio)))))


def _proposed(
    names: Sequence[str], noisy: Floats, scale: float, max_outside: float, receipt: Receipt
) -> Bounds:
    """Return bounds from the noisy counts (n_columns, N_CELLS) of all columns."""
    threshold = threshold_of(scale, noisy.size)
    deviation = math.sqrt(discrete_laplace_variance(scale))
    low: dict[str, float | None] = {}
    high: dict[str, float | None] = {}
    notes = {}
    for name, counts in zip(names, noisy, strict=True):
        first, last = _kept_cells(counts, threshold, max_outside)
        low[name], high[name] = (None, None) if first is None else _bounds_of(first, last)
        notes[name] = _note(counts, first, last, threshold, deviation)
    return Bounds(low, high, notes, threshold, receipt)


def _kept_cells(counts: Floats, threshold: int, max_outside: float) -> tuple[int | None, int]:
    """Return the outermost cells that count; None if none does."""
    kept = [int(cell) for cell in np.flatnonzero(counts >= threshold)]
    if not kept:
        return None, 0
    spare = max_outside * float(counts[kept].sum())
    while True:
        end = 0 if counts[kept[0]] <= counts[kept[-1]] else -1
        spare -= float(counts[kept[end]])
        if spare < 0:  # which the last one left always is
            return kept[0], kept[-1]
        kept.pop(end)


def _bounds_of(first: int, last: int) -> tuple[float | None, float | None]:
    low, high = edges_of(first)[0], edges_of(last)[1]
    if math.isinf(low) or math.isinf(high):
        return None, None
    if low == high:  # zeros alone
        return -(2.0**LEAST), 2.0**LEAST
    return low, high


def _note(counts: Floats, first: int | None, last: int, threshold: int, deviation: float) -> str:
    """Return the words about the bounds of a column."""
    if first is None:
        return (
            "no doubling stands out of the noise: too few values for this epsilon; the budget is "
            "spent all the same"
        )
    if 0 in (first, N_CELLS - 1 - last):
        return (
            f"values beyond 2^{MOST} stand out, and how far they go is not known: use other units; "
            "the budget is spent all the same"
        )
    inside = counts[first : last + 1].sum()
    n_outside = N_CELLS - (last + 1 - first)
    total = max(float(counts.sum()), 1.0)
    outside = max(0.0, 1 - float(inside) / total)
    error = deviation * math.sqrt(n_outside) / total
    return (
        f"by noisy counts {outside:.1%} of its values lie outside, give or take {error:.1%}; a "
        f"doubling with less than about {threshold / total:.2%} of them may go unseen"
    )
