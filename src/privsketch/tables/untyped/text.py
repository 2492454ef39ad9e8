"""CSV and TSV: which line is a header, which bytes are a record, and what is refused.

Whether a file has a header is a public fact that people state: the first line is one unless they
say that there is none. A guess from its content would drop a record, or take one's words for
names. Delimiter, decimal mark, quotes and encoding are stated as well (`format`); what has another
encoding becomes UTF-8 before anything looks at a byte. CSV has quotes, within which a line may go
on in the next one; Arrow is always told so, or it would cut its blocks inside of quotes, and one
record would change how others are read. TSV has none unless people say so, and a cell that begins
with a quote is refused until they do.

A quote that is never closed would swallow all records behind it without a word from Arrow. So
what Arrow reads ends with a line of our own, of numbers that no record can know: if it comes
back as the last row it is taken off, and if it does not, a quote has swallowed it.

Where nothing that a record says may stop a release (`unreadable="missing"`) a file is read as
always until something does not fit. From there on it is read again with its lines mended
(`untyped.lines`) and all cells as text: slower, and the same for every line and cell that fits.
"""

from __future__ import annotations

import atexit
import csv
import re
import secrets
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privsketch._base.errors import RecordError, TableError
from privsketch.tables.memory import Rows, Selection, selected_names, selected_rows
from privsketch.tables.untyped.conversion import MISSING_WORDS, NULLS, numbers_in_text
from privsketch.tables.untyped.format import PLAIN, FileFormat
from privsketch.tables.untyped.lines import (
    OPEN_FAULT,
    QUOTES_FAULT,
    LineGuard,
    MendedLines,
    TextFile,
)
from privsketch.tables.untyped.stream import BOM, GuardedStream

# Arrow reads as much at a time, and no line may be longer: enough for every thread, and few such
# blocks are in memory.
BLOCK_BYTES = 2**22
# What else separates cells, often: where a first line has one of them an error says so.
_SEPARATORS = ";\t|"
_CR_ADVICE = (
    "which of them end a line cannot be told where nothing that a record says may stop a release; "
    "convert them to line feeds"
)
_SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class _Beginning:
    """Names of the columns, and the first bytes of the records; no names: there is no line."""

    names: list[str]
    rest: bytes
    ends_in_cr: bool = False  # whether the first line does, and no line feed follows


def _beginning(file: TextFile, stream: Any) -> _Beginning:
    """Read until the names are known: a header, or without one the number of columns."""
    header = file.format.header
    data, whole = _more(stream, b"").removeprefix(BOM), False
    while True:
        start = len(data) - len(data.lstrip(b"\r\n"))  # blank lines before the first one
        end, n_cells = file.first_line(data, start)
        if end >= 0 or whole:
            break
        if len(data) >= BLOCK_BYTES:
            raise RecordError(
                f"{file.path}: the first line is longer than {BLOCK_BYTES} bytes; does a quote "
                "never end?"
            )
        more = _more(stream, data)
        data, whole = more, len(more) == len(data)
    ends_in_cr = end > 0 and data[end - 1 : end] == b"\r"
    end = len(data) if end < 0 else end
    if start == end:
        # Blank lines alone are records of one column, all missing; or nothing.
        return _Beginning([], data, data[:1] == b"\r" and data[:2] != b"\r\n")
    if header is False:  # it is a record: no more is asked of it than of any other
        return _Beginning([str(index) for index in range(n_cells)], data, ends_in_cr)
    cells = file.cells(data[start:end])
    if file.refuses_quotes and any(cell.startswith('"') for cell in cells):
        raise TableError(f"{file.path}: {QUOTES_FAULT}")
    if header is None and may_be_record(cells):
        # It may be a record: neither use it as names nor show it.
        raise TableError(
            f"{file.path}: the first line has numbers where a header has names. Say which it is: "
            "`header=False` for a record (columns are then called 0, 1, ...), `header=True` for "
            f"names{delimiter_hint(cells, file)}"
        )
    return _Beginning(cells, data[end:], ends_in_cr)


def _more(stream: Any, data: bytes) -> bytes:
    return data + bytes(stream.read(min(BLOCK_BYTES, 2**16)))


def may_be_record(cells: Sequence[str]) -> bool:
    """Return whether a first line has a number in it, or nothing but missing values."""
    if len(cells) == 1:  # what may be several, separated by something else
        cells = re.split(f"[{_SEPARATORS}]", cells[0])
    return any(map(_is_number, cells)) or all(
        cell.strip().lower() in MISSING_WORDS for cell in cells
    )


def may_be_shown(names: Sequence[str], header: bool | None) -> bool:
    """Return whether errors may show names of a first line: not if it may be a record after all."""
    return header is False or (header is True and not may_be_record(names))


def _is_number(text: str) -> bool:
    """Return whether text is a number with a decimal point or comma, whatever was stated."""
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def delimiter_hint(names: Sequence[str], file: TextFile) -> str:
    """Return a hint about a first line that seems to have other separators; none of its words."""
    if file.format.delimiter is not None:
        return ""
    others = _SEPARATORS + ("," if len(names) == 1 else "")
    for other in others.replace(file.delimiter, ""):
        if any(other in name for name in names):
            return f"; if {_SEPARATOR_NAMES[other]} separate its cells, say `delimiter={other!r}`"
    if len(names) == 1:
        return f"; are its cells separated by {_SEPARATOR_NAMES[file.delimiter]}?"
    return ""


def text_names(path: Path, format: FileFormat = PLAIN) -> list[str]:
    """Return names of the columns of a file: its header, or numbers. No record is looked at.

    Without a header the number of columns is that of its first line.
    """
    file = TextFile.of(path, format)
    names = _first_names(file, mend=True)  # the bytes of records do not matter here
    if any("\ufffd" in name for name in names):
        names = _first_names(file, mend=False)
    if not names:
        raise RecordError(f"{path}: not valid {file.kind}: it has no line")
    return names


def _first_names(file: TextFile, *, mend: bool) -> list[str]:
    failure: RecordError | None = None
    try:
        with _errors(file, []), file.open(mend=mend) as stream:
            return _beginning(file, stream).names
    except RecordError as error:
        failure = error.without_causes()
    raise failure  # here, where no foreign error is its context


def text_columns(
    available: Sequence[str], path: Path, selection: Selection
) -> tuple[list[str], list[str | None]]:
    """Return `named_columns`, with a hint in errors if lines seem to be cut in the wrong places."""
    try:
        return named_columns(available, path, selection)
    except RecordError as error:
        hint = delimiter_hint(available, TextFile.of(path, selection.format))
        # Without a header it is a record that says how many columns there are.
        kind = RecordError if selection.format.header is False else TableError
        raise kind(error.text + hint) from None


def named_columns(
    available: Sequence[str], path: Path, selection: Selection
) -> tuple[list[str], list[str | None]]:
    """Return names of the columns to read, and what errors may call each column of a file.

    `available` are those of a first line, which may be a record unless it is stated to be none.
    """
    is_stated = may_be_shown(available, selection.format.header)
    names = selected_names(available, selection, str(path), may_show=is_stated)
    return names, [name if is_stated or name in selection.stated else None for name in available]


def column_words(shown_names: Sequence[str | None], index: int) -> str:
    """Return how errors call a column."""
    name = shown_names[index] if index < len(shown_names) else None
    return f"column number {index} (from 0)" if name is None else f"column {name!r}"


_READING: weakref.WeakSet[Any] = weakref.WeakSet()  # what was not read to its end


@atexit.register
def _leave() -> None:
    """Leave files while Arrow's threads can still give back what they have."""
    for rows in list(_READING):
        with suppress(ValueError):  # another thread is at it
            rows.close()


def text_rows(path: Path, selection: Selection) -> Iterator[Rows]:
    """Yield blocks of records with their carried columns."""
    rows = _text_rows(path, selection)
    _READING.add(rows)
    return rows


def _text_rows(path: Path, selection: Selection) -> Generator[Rows]:
    file = TextFile.of(path, selection.format)
    if not selection.is_total:
        yield from _arrow_rows(file, selection)
        return
    file.require_mendable()
    n_rows = 0
    if selection.format.header is not False:  # else the first reading counts cells of a record
        try:
            for rows in _arrow_rows(file, selection):
                yield rows
                n_rows += _n_rows(rows)
            return
        except TableError:
            raise
        except RecordError:  # something does not fit: once more, and nothing of it stops a release
            pass
    for rows in _arrow_rows(file, selection, mend=True):
        n_again = min(n_rows, _n_rows(rows))
        n_rows -= n_again
        if n_again < _n_rows(rows):
            block, carried = rows
            block = block.slice(n_again) if hasattr(block, "slice") else block[n_again:]
            yield block, None if carried is None else carried.slice(n_again)


def _n_rows(rows: Rows) -> int:
    block = rows[0]
    return int(block.num_rows) if hasattr(block, "num_rows") else len(block)


def _arrow_rows(file: TextFile, selection: Selection, *, mend: bool = False) -> Generator[Rows]:
    """Yield blocks of a file as Arrow reads it; with `mend`, no record stops it."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    path, header = file.path, selection.format.header
    shown_names: list[str | None] = []  # what errors may call the columns
    with _errors(file, shown_names), file.open(mend=mend) as stream:
        if mend and header is False:  # what they say is not for a record to decide
            rest = _more(stream, b"").removeprefix(BOM)
            beginning = _Beginning(numbered_columns(selection), rest)
        else:
            beginning = _beginning(file, stream)
        if selection.is_total and beginning.ends_in_cr:
            raise TableError(f"{path}: its lines end in carriage returns; {_CR_ADVICE}")
        available = beginning.names
        if not available:
            if header is not False:
                raise TableError(f"{path}: not valid {file.kind}: no header line with column names")
            if selection.n_asked > 1 or not beginning.rest:
                return
            available = ["0"]
        names, shown = text_columns(available, path, selection)
        shown_names += shown
        # Records are read as float64, the rest as text: a type guessed from the first block may
        # not last, and would change what is carried along.
        texts = (*selection.carried, *(names if mend else selection.texts_among(names)))
        kinds = {name: pa.float64() for name in names}
        kinds.update({name: pa.string() for name in texts})
        mark = secrets.randbits(52)
        line = file.delimiter.join([str(mark)] * len(available)).encode()
        source = _source(file, stream, beginning, line, len(available), selection, mend)
        reader = held = None
        try:
            reader = arrow_csv.open_csv(
                source,
                arrow_csv.ReadOptions(
                    block_size=BLOCK_BYTES * (8 if mend else 1), column_names=available
                ),
                arrow_csv.ParseOptions(
                    delimiter=file.delimiter,
                    quote_char='"' if file.has_quotes else False,
                    newlines_in_values=file.has_quotes,
                    # A line without a cell is a missing value where there is one column.
                    ignore_empty_lines=len(available) > 1,
                ),
                arrow_csv.ConvertOptions(
                    include_columns=list(kinds),
                    column_types=kinds,
                    null_values=NULLS,
                    decimal_point=file.format.decimal,
                ),
            )
            for batch in reader:
                if batch.num_rows:
                    if held is not None:
                        yield from _rows_of(held, names, selection, mend)
                    held = batch
            if source.fault:
                raise RecordError(f"{path}: {source.fault}")
            rest = _without_last(held, names, mark, path)
            yield from _rows_of(rest, names, selection, mend)
        except pa.ArrowException:
            if source.fault:  # what Arrow misses is what was kept from it
                raise RecordError(f"{path}: {source.fault}") from None
            raise
        finally:
            source.let_go()
            reader = None  # of which no other frame knows: with it go the blocks that it holds
            source.wait_released()


def _source(
    file: TextFile,
    stream: Any,
    beginning: _Beginning,
    line: bytes,
    width: int,
    selection: Selection,
    mend: bool,
) -> GuardedStream:
    """Return what Arrow reads of a file, guarded or mended."""

    def mended(stream: Any, beginning: _Beginning) -> MendedLines:
        return MendedLines(
            stream,
            beginning.rest,
            file,
            width,
            may_have_more=file.format.header is False,
            ends_in_cr=beginning.ends_in_cr,
            # Arrow reads no line of two blocks, and U+FFFD takes three bytes instead of one.
            max_bytes=6 * BLOCK_BYTES + 16,
        )

    def is_quoted() -> bool:
        """Return whether all line breaks that end no line are inside of quotes."""
        if selection.is_total:
            return False
        with file.open() as again:
            lines = mended(again, _beginning(file, again))
            while lines.read(BLOCK_BYTES) and not lines.n_odd:
                pass
            return not lines.n_odd

    if mend:
        lines = mended(stream, beginning)
        return GuardedStream(lines, b"", line, lines)
    guard = LineGuard(file, ends_in_cr=beginning.ends_in_cr, check=is_quoted)
    return GuardedStream(stream, beginning.rest, line, guard)


def numbered_columns(selection: Selection) -> list[str]:
    """Return names of as many columns, from "0" on, as those that are asked for need.

    For files without a header in which no record may say how many there are.
    """
    asked = [*(selection.columns or selection.names or range(selection.dim)), *selection.carried]
    if not all(str(name).isdecimal() for name in asked):
        raise TableError(
            "columns: a file without a header has columns 0, 1, ...; name those that make a record "
            "with `columns=[...]`, counted from the first one"
        )
    return [str(index) for index in range(max(map(int, asked)) + 1)]


def _rows_of(
    batch: Any, names: Sequence[str], selection: Selection, is_text: bool
) -> Iterator[Rows]:
    """Yield blocks of a batch; where all of it is text, numbers are read here."""
    if is_text:
        for name in set(names) - set(selection.texts_among(names)):
            index = batch.schema.get_field_index(name)
            numbers, _ = numbers_in_text(batch.column(index), selection.format.decimal)
            batch = batch.set_column(index, name, numbers)
    yield from selected_rows(_with_points(batch, names, selection), names, selection)


def _with_points(batch: Any, names: Sequence[str], selection: Selection) -> Any:
    """Return a batch with points in numbers of columns of text, where a comma is the decimal mark.

    Labels and persons may be numbers: 1,0 is 1, as it would be in a column of numbers.
    """
    import pyarrow.compute as pc

    mark = selection.format.decimal
    if selection.schema is None or mark == ".":
        return batch
    kinds = [getattr(column, "column", column).READS_TEXT for column in selection.schema.columns]
    pattern = rf"^(\s*[+-]?\d+){re.escape(mark)}(\d*([eE][+-]?\d+)?\s*)$"
    for name, is_text in zip(names, [*kinds, True], strict=False):
        if is_text:
            index = batch.schema.get_field_index(name)
            texts = pc.replace_substring_regex(batch.column(index), pattern, r"\1.\2")
            batch = batch.set_column(index, name, texts)
    return batch


def _without_last(held: Any, names: Sequence[str], mark: int, path: Path) -> Any:
    """Return the last rows but the very last one, which must be the line that was added."""
    last = None if held is None else held.slice(held.num_rows - 1).select(list(names))
    # Numbers are read as such, and texts as they stand there.
    if last is None or any(column[0].as_py() not in (float(mark), str(mark)) for column in last):
        raise RecordError(f"{path}: {OPEN_FAULT}")
    return held.slice(0, held.num_rows - 1)


@contextmanager
def _errors(file: TextFile, shown_names: Sequence[str | None]) -> Iterator[None]:
    """Replace errors of Arrow, which may quote the offending value, part of a record."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeError, csv.Error) as error:
        raise RecordError(f"{file.path}: {_fault(file, error, shown_names)}") from None


def _fault(file: TextFile, error: Exception, shown_names: Sequence[str | None]) -> str:
    """Return what is wrong, in words of ours: only numbers are taken from Arrow's."""
    text, kind = str(error), file.kind
    if "straddling object" in text:
        return (
            f"not valid {kind}: a line is longer than {BLOCK_BYTES} bytes; does a quote never end?"
        )
    advice = ""
    if file.format.header is None:
        advice = "; if its first line is a record, say `header=False`"
    which, is_named = "", False
    cell = re.match(r"In CSV column #(\d{1,6}): (?:Row #\d+: )?CSV conversion error", text)
    if cell is not None:
        which = column_words(shown_names, int(cell[1]))
        is_named = int(cell[1]) < len(shown_names) and shown_names[int(cell[1])] is not None
    if isinstance(error, UnicodeError) or "invalid UTF8" in text:
        encoding = file.format.encoding.upper()
        return (
            f"{which or 'its text'} is not {encoding}; say how the file is written, "
            "`encoding='latin-1'` for instance"
        )
    is_one = len(shown_names) == 1 and file.format.delimiter is None
    hint = "; if semicolons separate its cells, say `delimiter=';'`" if is_one else ""
    if cell is not None and "error to double" in text:
        more = f"; name the columns to use with `columns=[...]`{advice}" if not is_named else ""
        if file.delimiter != "," and file.format.decimal == ".":
            hint += "; if its numbers have a decimal comma, say `decimal=','`"
        return f"{which} is not numeric: a cell has text in it{more}{hint}"
    width = re.search(r"Expected (\d{1,6}) columns, got (\d{1,6})", text)
    if width is not None:
        return f"not valid {kind}: a line has {width[2]} cells, the first {width[1]}{hint}"
    return f"not valid {kind}: damaged, or a quote that never ends{advice}"
