"""Excel: one sheet of an .xlsx workbook, through python-calamine.

The first row that is not empty has the names of the columns; without a header, records begin in the
first row of the sheet. Columns are counted from A, whatever is empty. A cell holds a number, text,
a date, a truth value or nothing, and is read by itself: numbers and truth values are numbers, text
that spells a missing value is one, as are empty cells, errors (#N/A) and formulas that were never
computed; other text, and dates, are refused where a number should be. Rows that are hidden or
filtered are records like all others.

An empty row between records is a record of missing values. Empty rows at the end of a sheet are not
stored, so no reader can count them:

- under "replace", where the number of records is public, it must be stated; the records that are
  not there are filled in (`tables.reading`);
- under "add-remove", empty rows are left out where they would count. If they were kept, removing
  the last record would remove all empty rows before it, too.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from privsketch._base.errors import RecordError, TableError
from privsketch.tables.cells import UNREADABLE, Raw, marked_cells, readable
from privsketch.tables.memory import Rows, Selection, rows_per_block, selected_rows
from privsketch.tables.untyped.conversion import NULLS
from privsketch.tables.untyped.format import PLAIN, FileFormat
from privsketch.tables.untyped.text import column_words, may_be_record, named_columns

MAX_COLUMNS = 16_384  # of a sheet
SHEET_FAULT = (
    "say how many records the sheet has: n_records=, or --n-records. Their number is public here "
    "(neighbours 'replace'), and records without any value at the end of a sheet are not stored"
)
_NULLS = frozenset(NULLS)


def sheet_names(path: Path, format: FileFormat = PLAIN) -> list[str]:
    """Return the names of a sheet's columns: its first row, or numbers for all it can have."""
    if format.header is False:
        return [str(index) for index in range(MAX_COLUMNS)]
    with _rows(path, format.sheet) as rows:
        return _names(path, rows, format)


def sheet_rows(path: Path, selection: Selection) -> Iterator[Rows]:
    """Yield blocks of records with their carried columns."""
    import pyarrow as pa

    if selection.neighbours == "replace" and selection.format.n_records is None:
        raise TableError(f"{path}: {SHEET_FAULT}")
    has_header = selection.format.header is not False
    with _rows(path, selection.format.sheet) as rows:
        available = _names(path, rows, selection.format)
        names, shown_names = named_columns(available, path, selection)
        texts = _texts(names, selection)
        readers = {
            **{name: (_number, pa.float64()) for name in names},
            **{name: (_text, pa.string()) for name in (*selection.carried, *texts)},
        }
        marked = set(selection.texts_among(names)) - set(texts)
        places = {name: available.index(name) for name in readers}
        if selection.leaves_out_empty_rows:
            rows = (row for row in rows if row)
        while block := list(islice(rows, rows_per_block(selection.dim))):
            if has_header and any(len(row) > len(available) for row in block):
                if not selection.is_total:
                    raise RecordError(f"{path}: a row has cells beyond those of the first row")
                block = [row if len(row) <= len(available) else [] for row in block]
            columns = []
            for name, (read, kind) in readers.items():
                index = places[name]
                which = f"{path}: {column_words(shown_names, index)}"
                cells = (row[index] if index < len(row) else "" for row in block)
                if name in marked:
                    columns.append(marked_cells(partial(_number, which=which), kind, cells))
                elif selection.is_total:
                    values = [readable(partial(read, which=which), cell) for cell in cells]
                    columns.append(pa.array([_none(value) for value in values], kind))
                else:
                    columns.append(pa.array([read(cell, which) for cell in cells], kind))
            batch = pa.RecordBatch.from_arrays(columns, names=list(readers))
            yield from selected_rows(batch, names, selection)


def _none(value: Any) -> Any:
    return None if value is UNREADABLE else value


def _texts(names: Sequence[str], selection: Selection) -> list[str]:
    """Return columns that are read as text; numbers that `check` looks at are not."""
    columns = () if selection.schema is None else selection.schema.columns
    pairs = zip(names, columns, strict=False)
    numbers = {n for n, c in pairs if isinstance(c, Raw) and not c.column.READS_TEXT}
    return [name for name in selection.texts_among(names) if name not in numbers]


def _names(path: Path, rows: Iterator[list[Any]], format: FileFormat) -> list[str]:
    """Return the names; the row that has them is taken from `rows`."""
    if format.header is False:
        return sheet_names(path, format)
    first = next((row for row in rows if row), None)
    if first is None:
        raise TableError(f"{path}: no row with the names of columns")
    names = [_text(cell, "") or "" for cell in first]
    is_typed = any(not isinstance(cell, str) for cell in first)
    if format.header is None and (is_typed or may_be_record(names)):
        # It may be a record: neither use it as names nor show it.
        raise TableError(
            f"{path}: the first row has numbers or dates where a header has names. Say which it "
            "is: `header=False` for a record (columns are then called 0, 1, ...), `header=True` "
            "for names"
        )
    return names


def _number(cell: Any, which: str) -> float | None:
    """Return a cell as a number; None if it is missing."""
    if isinstance(cell, int | float):  # and truth values
        return float(cell)
    if not isinstance(cell, str):
        raise RecordError(f"{which} is not numeric: a cell has a date or time in it")
    if cell not in _NULLS:
        raise RecordError(f"{which} is not numeric: a cell has text in it")
    return None


def _text(cell: Any, which: str) -> str | None:
    """Return a cell as text; None if it is empty."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, int | float):
        if not math.isfinite(cell):
            return None
        return str(int(cell)) if cell == int(cell) else repr(cell)
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(sep=" ")
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return str(cell) or None


@contextmanager
def _rows(path: Path, sheet: str | None) -> Iterator[Iterator[list[Any]]]:
    """Yield all rows of a sheet up to the last that is not empty, each up to its last such cell."""
    try:
        import python_calamine as calamine
    except ImportError:
        raise TableError(
            f"{path}: Excel files are read by python-calamine, which is not installed; pip install "
            "'privsketch[excel]'"
        ) from None
    try:
        with calamine.CalamineWorkbook.from_path(path) as book:
            plain = calamine.SheetTypeEnum.WorkSheet
            names = [each.name for each in book.sheets_metadata if each.typ == plain]
            cells = book.get_sheet_by_name(_chosen_sheet(path, names, sheet))
            start = cells.start
            before = [""] * (start[1] if start else 0)
            # Rows above the first that is not empty are among them, columns before it are not.
            rows = map(_up_to_last, cells.iter_rows() if start else ())
            yield (before + row if row else row for row in rows)
    except calamine.PasswordError:
        raise RecordError(f"{path}: protected by a password; save it without one") from None
    except (calamine.CalamineError, OSError):
        raise RecordError(f"{path}: not a valid Excel file, or damaged") from None


def _up_to_last(row: list[Any]) -> list[Any]:
    while row and row[-1] == "":
        row.pop()
    return row


def _chosen_sheet(path: Path, names: Sequence[str], sheet: str | None) -> str:
    """Return the name of the sheet to read; no name is shown, for one may be that of a person."""
    if sheet is not None:
        if sheet not in names:
            raise TableError(f"{path}: it has no sheet of the name {sheet!r}")
        return sheet
    if len(names) != 1:
        raise TableError(
            f"{path}: it has {'several sheets' if names else 'no sheet'}; name one with `sheet=...`"
        )
    return names[0]
