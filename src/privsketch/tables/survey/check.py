"""A look at a table before anything is spent, for the eyes of its holder alone.

All that is found here is exact, and private: every line is marked so, nothing is written to a file,
and no other room imports this one. It stops at no fault: cells that a release would refuse are
counted, by column and by what they are. What a release reads and what this reads are the same
readers and the same rules (`tables/cells`); memory does not grow with the table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError, RecordError
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.design.validity import is_smaller_ball
from privsketch.facts.columns import Column, Cycle, Number
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.tables.cells import Raw
from privsketch.tables.encoding import filtered, guarded, persons_of
from privsketch.tables.files import file_kind
from privsketch.tables.memory import Selection
from privsketch.tables.reading import column_names, read_cells
from privsketch.tables.survey.cells import DECIMAL_COMMA, CellCounts
from privsketch.tables.survey.conversions import NARROW, looks_like
from privsketch.tables.survey.counts import PersonCounts, quantile
from privsketch.tables.survey.draft import delimiter_advice
from privsketch.tables.survey.result import MAX_SHOWN, MOST, Check, ColumnCheck
from privsketch.tables.table import Table, checked_missing
from privsketch.tables.untyped.conversion import Bits
from privsketch.tables.untyped.format import FileFormat


def check(
    data: Any,
    design: Design | Schema | Domain,
    *,
    columns: Sequence[str | int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Check:
    """Look at a table before anything is spent, for the eyes of its holder alone.

    Rows, persons, missing and unreadable cells, values outside of their bounds, labels that are not
    listed, columns that look like another unit, and what a release would leave out or refuse; all
    faults at once, and the worst of them at the end.

    Charges: nothing, because nothing of it may be released.

    Parameters
    ----------
    data : Table, array, frame, path, list of paths, iterable of blocks
        See `Table`.
    design : Design, Schema, Box or Ball
        What the table should be.
    columns : list of str or int, optional
        As in `sketch`.
    progress : callable, optional
        Called with numbers of rows done.

    Returns
    -------
    Check

    Examples
    --------
    >>> import pandas as pd, privsketch as ps
    >>> table = pd.DataFrame({"height": [62.0, 66.0, 70.0, 75.0]})
    >>> found = ps.check(table, ps.Schema([ps.Number("height", 100, 220, unit="cm")]))
    >>> found.columns[0].looks_like
    ('inches instead of centimetres',)
    """
    table = Table.of(data, columns)
    schema, domain, names = _wanted(design, table)
    if table.unreadable == "missing" and domain is not None:
        schema = replace(schema, unreadable=table.unreadable)
    asked = names if table.columns is None else tuple(table.columns)
    look = _Look(schema, domain, _ball_of(design))
    named = () if asked is None else tuple(name for name in asked if isinstance(name, str))
    available = None if asked is None else _available(table)
    refusals = []
    if available is not None:
        for column, name in zip(schema.columns, asked or (), strict=True):
            if isinstance(name, str) and available.count(name) != 1:
                look.absent.add(column.name)
                refusals.append(_absent(name, available))
        if schema.person is not None and available.count(schema.person) != 1:
            look.has_person = False
            refusals.append(_absent(schema.person, available))
    selection = look.selection(asked, table.columns is None and bool(named), table.format)
    if selection is not None:
        try:
            for batch, mark in read_cells(table, selection):
                guarded(partial(look.add, batch, mark))
                if progress is not None:
                    progress(batch.num_rows)
        except RecordError as error:
            refusals.append(f"reading stopped after {look.n_rows:,} rows: {error}")
    if table.n_records is not None and look.n_rows > table.n_records:
        refusals.append(f"more rows than the stated number of records, {table.n_records:,}")
    return replace(look.result(refusals), advice=_advice(table, look))


def _advice(table: Table, look: _Look) -> tuple[str, ...]:
    """Return what to say about how text files are written, if a statement seems to be wrong."""
    texts = [delimiter_advice(table)] if look.absent else []
    is_text = any(file_kind(file) == "csv" for leaf in table.leaves for file in leaf.files)
    if is_text and table.format.decimal == "." and look.has_commas:
        texts.append("numbers have a decimal comma; say `decimal=','`")
    return tuple(text for text in texts if text)


def _wanted(
    design: Design | Schema | Domain, table: Table
) -> tuple[Schema, Domain | None, tuple[str, ...] | None]:
    """Return a schema for the look; the domain of records without one, and the names of columns.

    Columns that are asked for are called as they are there.
    """
    given, columns = design, table.columns
    names: tuple[str, ...] | None = None
    if isinstance(design, Design):
        given, names = design.schema or design.domain, design.columns
    schema = schema_of(given)
    to_center = checked_missing(table.missing, schema)
    if schema is not None:
        if columns is not None:
            raise ParameterError("columns: the schema names them; leave them out")
        return schema, None, schema.names
    if not isinstance(given, Box | Ball):
        raise ParameterError("design", design, "expected a Design, a Schema, a Box or a Ball")
    names = names or getattr(given, "columns", None)
    if given.dim is None:
        raise ParameterError("dim=None: say how many columns a record has")
    middle, half = given.center_vector, given.half_widths
    shown = names or tuple(str(index) for index in range(given.dim))
    if columns is not None:
        shown = tuple(map(str, columns))
        if len(shown) != given.dim:
            raise ParameterError(f"columns: {len(shown)} named, a record has dim={given.dim}")
    numbers = [
        Number(name, float(at - far), float(at + far))
        for name, at, far in zip(shown, middle, half, strict=True)
    ]
    return Schema(tuple(numbers), missing="center" if to_center else "error"), given, names


def _ball_of(design: Any) -> Ball | None:
    """Return the ball that encoded records are moved into, if it does not hold all of them."""
    if not isinstance(design, Design) or design.schema is None:
        return None
    ball, domain = design.schema.ball, design.domain
    return domain if isinstance(domain, Ball) and is_smaller_ball(domain, ball) else None


def _available(table: Table) -> list[str] | None:
    """Return names that all parts of a table have whose names are known before a record is."""
    known = [names for names, _ in column_names(table, table.format) if names]
    first = known[0] if known else None
    for names in known[1:]:
        first = [name for name in first or () if name in names]
    return first


def _absent(name: str, available: Sequence[str]) -> str:
    if name in available:
        return f"column {name!r} is there more than once"
    lower = {other.strip().lower(): other for other in available}
    near = difflib.get_close_matches(name.strip().lower(), list(lower), 1)
    hint = f"; is it {lower[near[0]]!r}?" if near else ""
    return f"column {name!r} is not in the table{hint}"


class _Look:
    """Counts of a table while it is read."""

    def __init__(self, schema: Schema, domain: Domain | None, ball: Ball | None = None) -> None:
        self._schema, self._domain, self._ball = schema, domain, ball
        self.absent: set[str] = set()
        self.has_person = schema.person is not None
        self._cells = {column.name: CellCounts(column) for column in schema.columns}
        self._persons = PersonCounts()
        self._person_fault = ""
        self.n_rows = self._n_kept = self._n_outside = self._n_nobody = 0

    def selection(
        self, asked: tuple[str | int, ...] | None, by_name: bool, format: FileFormat
    ) -> Selection | None:
        """Return the selection of all columns that are there, as they stand; None without any."""
        present = [column for column in self._schema.columns if column.name not in self.absent]
        if not present:
            return None
        person = self._schema.person if self.has_person else None
        raw = Schema(
            tuple(Raw(column.name, column) for column in present),
            person=person,
            unreadable=self._schema.unreadable,
        )
        dim = len(present)
        if asked is None:
            return Selection(dim, None, None, format=format, schema=raw)
        pairs = zip(self._schema.columns, asked, strict=True)
        wanted = [name for column, name in pairs if column.name not in self.absent]
        names = (*wanted, *(() if person is None else (person,)))
        if by_name:  # of a table without names, columns are found by place
            return Selection(dim, None, tuple(map(str, names)), format=format, schema=raw)
        return Selection(dim, names, None, format=format, schema=raw)

    def add(self, batch: Any, decimal: str | None) -> None:
        """Count the rows of a batch."""
        n_rows = batch.num_rows
        self.n_rows += n_rows
        kept, outside = np.ones(n_rows, dtype=np.bool_), np.zeros(n_rows, dtype=np.bool_)
        points: list[Floats] = []
        for column in self._schema.columns:
            if column.name in self.absent:
                continue
            rows = self._cells[column.name].add(batch.column(column.name), decimal)
            rule = self._schema.rule(column)
            if rule in ("drop", "error"):
                kept &= ~rows.missing
            if rule == "drop" or self._schema.unreadable == "error":
                kept &= ~rows.wrong
            outside |= rows.outside
            points.append(rows.values)
        if isinstance(self._domain, Ball) and len(points) == len(self._schema.columns):
            outside = self._outside_ball(points)
        if self._ball is not None and len(points) == len(self._schema.columns):
            outside |= self._outside_smaller_ball(self._ball, points)
        if self.has_person and not self._person_fault:
            kept = self._add_persons(batch.column(self._schema.person), kept)
        self._n_kept += int(kept.sum())
        self._n_outside += int(outside.sum())

    def _outside_ball(self, points: list[Floats]) -> Bits:
        if not isinstance(self._domain, Ball):
            raise ParameterError("domain", self._domain, "expected a Ball")
        shifted = np.stack(points, axis=1) - self._domain.center_vector
        with np.errstate(over="ignore", invalid="ignore"):
            far = np.sqrt(np.nansum(np.square(shifted), axis=1)) > self._domain.radius
        return np.asarray(far, dtype=np.bool_)

    def _outside_smaller_ball(self, ball: Ball, points: list[Floats]) -> Bits:
        """Return which records lie outside once they are encoded; missing values count nothing."""
        squares = np.zeros(len(points[0]))
        for column, values in zip(self._schema.columns, points, strict=True):
            shifted = column.encode(column.encodable(values)) - column.center[:, np.newaxis]
            squares += np.nansum(np.square(shifted), axis=0)
        return np.asarray(np.sqrt(squares) > ball.radius, dtype=np.bool_)

    def _add_persons(self, array: Any, kept: Bits) -> Bits:
        try:
            is_total = self._schema.unreadable == "missing"
            name = str(self._schema.person)
            persons, nobody = persons_of(array, name, "table", is_total=is_total)
        except RecordError as error:
            self._person_fault = str(error)
            return kept
        kept = kept & ~nobody
        self._n_nobody += int(nobody.sum())
        known = ~nobody
        if known.all():
            self._persons.add(persons, kept)
        elif known.any():
            self._persons.add(filtered(persons, known), kept[known])
        return kept

    @property
    def has_commas(self) -> bool:
        """Whether most cells of a column are numbers with a decimal comma."""
        most = MOST * self.n_rows
        return any(cells.faults[DECIMAL_COMMA] > most for cells in self._cells.values())

    def result(self, refusals: list[str]) -> Check:
        """Return all that was counted."""
        columns = tuple(self._column(column) for column in self._schema.columns)
        refusals += [text for one in columns for text in self._faults_of(one)]
        counts = self._person_numbers()
        if self._person_fault:
            refusals.append(self._person_fault.removeprefix("table: "))
        if self._n_nobody and self._schema.missing_person == "error":
            refusals.append("rows name no person; leave them out with missing_person='drop'")
        n_records = counts.pop("n_records", None)
        return Check(
            n_rows=self.n_rows,
            n_kept=self._n_kept,
            n_records=self._n_kept if n_records is None else n_records,
            n_outside=self._n_outside,
            columns=columns,
            refusals=tuple(refusals),
            **counts,
        )

    def _person_numbers(self) -> dict[str, Any]:
        names = ("n_persons", "n_kept_persons", "median_rows", "max_rows", "n_beyond")
        if not self.has_person or self._person_fault:
            return dict.fromkeys((*names, "n_without_person"))
        (rows, persons), (kept_rows, kept_persons) = self._persons.numbers()
        most = self._schema.max_records
        return {
            "n_persons": int(persons.sum()),
            "n_kept_persons": int(kept_persons[kept_rows > 0].sum()),
            "median_rows": int(quantile(rows, persons, 0.5)) if len(rows) else 0,
            "max_rows": int(rows.max(initial=0)),
            "n_beyond": int(persons[rows > most].sum()),
            "n_without_person": self._n_nobody,
            "n_records": int((np.minimum(kept_rows, most) * kept_persons).sum()),
        }

    def _column(self, column: Column) -> ColumnCheck:
        cells = self._cells[column.name]
        remarks = list(cells.hints())
        alike: tuple[str, ...] = ()
        values, counts = cells.values.sorted()
        # A ball bounds all columns together.
        if isinstance(column, Number) and len(values) and not isinstance(self._domain, Ball):
            hints = (column.unit.lower(), *re.findall(r"[^\W\d_]+", column.name.lower()))

            def position(points: Floats) -> Floats:
                return np.asarray((column.encode(points)[0] / column.weight + 1) / 2)

            alike = looks_like(values, counts, column.low, column.high, position, hints)
            ends = [quantile(values, counts, part) for part in (0.005, 0.995)]
            first, last = position(np.array(ends))
            if last - first < NARROW and column.low <= ends[0] and ends[1] <= column.high:
                remarks.append(f"nearly all values lie in {last - first:.1%} of the range")
        if isinstance(column, Cycle) and cells.n_below + cells.n_above:
            remarks.append("values outside of one turn are taken for what they are after it")
        return ColumnCheck(
            column.name,
            column.KIND,
            cells.n_missing,
            cells.n_infinite,
            cells.n_below,
            cells.n_above,
            cells.n_other,
            cells.values.quartiles(),
            dict(cells.faults),
            alike,
            tuple(remarks),
            is_found=column.name not in self.absent,
            unlisted=cells.unlisted(MAX_SHOWN),
        )

    def _faults_of(self, one: ColumnCheck) -> list[str]:
        """Return why a release would be refused for a column."""
        column = next(column for column in self._schema.columns if column.name == one.name)
        texts = []
        if one.n_wrong and self._schema.unreadable == "error":
            texts.append(f"column {one.name!r}: {_FAULTS.get(one.kind, _FAULT)}")
        n_missing = one.n_missing + (one.n_wrong if self._schema.unreadable == "missing" else 0)
        if n_missing and self._schema.rule(column) == "error":
            way = "missing='center'" if self._domain is not None else "missing='drop', or fill="
            texts.append(f"column {one.name!r}: missing values; say what becomes of them: {way}")
        return texts


_FAULT = "cells that are no numbers"
_FAULTS = {
    "flag": "cells that are neither yes nor no",
    "category": "cells that are no labels",
    "date": "cells that are no dates",
}
