"""CSV and TSV: which line is a header, which bytes are a record, and what is refused.

Whether a file has a header is a public fact that people state: the first line is one unless they
say that there is none. A guess from its content would drop a record, or take one's words for
names. CSV has quotes, within which a line may go on in the next one; Arrow is always told so, or
it would cut its blocks inside of quotes, and one record would change how others are read. TSV
has none: what looks like a quote there is part of a value.

A quote that is never closed would swallow all records behind it without a word from Arrow. So
what Arrow reads ends with a line of our own, of numbers that no record can know: if it comes
back as the last row it is taken off, and if it does not, a quote has swallowed it.
"""

from __future__ import annotations

import csv as lines
import io
import re
import secrets
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privsketch.errors import RecordError
from privsketch.tables.memory import Rows, Selection, chosen_rows, selected_names

# Arrow reads as much at a time, and no line may be longer: enough for every thread, and few such
# blocks are in memory.
BLOCK_BYTES = 2**22
_QUIET = 0.25  # seconds without a read after which Arrow's thread has stopped to read ahead
_MAX_MOMENTS = 5000  # ten seconds: far longer than any task of Arrow's on a few blocks
# Spellings of a missing value: those of Arrow and pandas, and as people write them.
_NULLS = [
    *("", " ", ".", "na", "NA", "n/a", "N/A", "#NA", "#N/A", "#N/A N/A", "<NA>", "NaT"),
    *("nan", "NaN", "-nan", "-NaN", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    *("null", "Null", "NULL", "none", "None", "NONE"),
]
MISSING_WORDS = sorted({text.strip().lower() for text in _NULLS})


@dataclass(frozen=True)
class TextFile:
    """A file of lines: its separator, and whether it has quotes."""

    path: Path
    delimiter: str
    has_quotes: bool

    @classmethod
    def of(cls, path: Path) -> TextFile:
        """By its name, which may end in .gz."""
        name = path.name.lower().removesuffix(".gz")
        return cls(path, "\t", False) if name.endswith(".tsv") else cls(path, ",", True)

    def open(self) -> Any:
        """A stream of its bytes."""
        import pyarrow as pa

        is_compressed = self.path.suffix.lower() == ".gz"
        return pa.input_stream(str(self.path), compression="gzip" if is_compressed else None)

    def cells(self, line: bytes) -> list[str]:
        """The cells of one line."""
        text = line.decode("utf-8")
        if not self.has_quotes:
            return text.rstrip("\r\n").split(self.delimiter)
        return next(lines.reader(io.StringIO(text, newline="")), [])

    def first_line(self, data: bytes, start: int = 0) -> tuple[int, int]:
        """Where the line that begins at `start` ends, its line break included, and its cells.

        The end is -1 if the data may not have all of it: a line feed may follow what is the last.
        """
        place, delimiter, n_cells = start, self.delimiter.encode(), 1
        ends = re.compile(b"[\r\n" + delimiter + b"]")
        while place < len(data):
            if self.has_quotes and data[place : place + 1] == b'"':  # at the beginning of a cell
                place = _after_quote(data, place)
            found = ends.search(data, place)
            if found is None:
                break
            place = found.end()
            if found[0] == delimiter:
                n_cells += 1
            elif found[0] == b"\r" and place == len(data):
                break
            else:
                return place + (found[0] == b"\r" and data[place : place + 1] == b"\n"), n_cells
        return -1, n_cells


def _after_quote(data: bytes, place: int) -> int:
    """Where the quoted part of a cell ends that begins at `place`; a doubled quote is no end."""
    while True:
        place = data.find(b'"', place + 1)
        if place < 0:
            return len(data)
        if data[place + 1 : place + 2] != b'"':
            return place + 1
        place += 1


@dataclass(frozen=True)
class _Beginning:
    """Names of the columns, and the first bytes of the records; no names: there is no line."""

    names: list[str]
    rest: bytes


def _beginning(file: TextFile, stream: Any, header: bool | None) -> _Beginning:
    """Read until the names are known: a header, or without one the number of columns."""
    data, whole = _more(stream, b"").removeprefix(b"\xef\xbb\xbf"), False
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
    end = len(data) if end < 0 else end
    if start == end:
        # Blank lines alone are records of one column, all missing; or nothing.
        return _Beginning([], data)
    if header is False:  # it is a record: no more is asked of it than of any other
        return _Beginning([str(place) for place in range(n_cells)], data)
    cells = file.cells(data[start:end])
    if header is None and _may_be_record(cells):
        # It may be a record: neither use it as names nor show it.
        raise RecordError(
            f"{file.path}: the first line has numbers where a header has names. Say which it is: "
            "`header=False` for a record (columns are then called 0, 1, ...), `header=True` for "
            "names"
        )
    return _Beginning(cells, data[end:])


def _more(stream: Any, data: bytes) -> bytes:
    return data + bytes(stream.read(min(BLOCK_BYTES, 2**16)))


def _may_be_record(cells: Sequence[str]) -> bool:
    """Whether a first line has a number in it, or nothing but missing values."""
    return any(map(_is_number, cells)) or all(
        cell.strip().lower() in MISSING_WORDS for cell in cells
    )


def may_be_shown(names: Sequence[str], header: bool | None) -> bool:
    """Whether errors may show names of a first line: not if it may be a record after all."""
    return header is False or (header is True and not _may_be_record(names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _WithLastLine:
    """What Arrow reads: the rest of a file, and then one line more.

    Blocks are as long as Arrow asks, but for the last and for those that would end in a carriage
    return: Arrow takes a block that is one line feed for the end of a file, and drops a line feed
    that follows a carriage return in the block before, in quotes too.

    Arrow reads ahead in threads of its own, which must not come back for a block, nor to give one
    back, when Python is shutting down: that aborts the process. `let_go` and `wait_released` wait
    for them.
    """

    def __init__(self, stream: Any, rest: bytes, line: bytes) -> None:
        self._stream, self._rest, self._line = stream, rest, line
        self._ends_line = rest[-1:] in (b"", b"\n", b"\r")
        self._ended, self._is_wanted = threading.Event(), True
        self._n_reads, self._is_reading = 0, False
        self._n_held = 0  # blocks that Arrow has
        self.closed = False

    def read(self, size: int) -> Any:
        self._n_reads, self._is_reading = self._n_reads + 1, True
        block = b""
        try:
            if self._is_wanted:
                block = self._block(size)
        finally:
            self._is_reading = False
            if not block:  # the end of the file, of interest, or an error
                self._ended.set()
        if not block:
            return block
        self._n_held += 1
        view = np.frombuffer(block, dtype=np.uint8)
        weakref.finalize(view, self._released).atexit = False
        return view

    def let_go(self) -> None:
        """Give no more; return when the last read is over, or Arrow has read enough ahead."""
        self._is_wanted = False
        seen = -1
        while not self._ended.wait(_QUIET) and (self._is_reading or seen != self._n_reads):
            seen = self._n_reads

    def wait_released(self) -> None:
        """Return when Arrow has given back all blocks, which it does in a moment."""
        for _ in range(_MAX_MOMENTS):
            if self._n_held == 0:
                return
            time.sleep(0.002)

    def _released(self) -> None:
        self._n_held -= 1

    def _block(self, size: int) -> bytes:
        parts, missing = [], size
        while missing > 0:
            part, self._rest = self._rest[:missing], self._rest[missing:]
            part = part or bytes(self._stream.read(missing))
            if part:
                self._ends_line = part[-1:] in (b"\n", b"\r")
            elif self._line:
                self._rest = self._line if self._ends_line else b"\n" + self._line
                self._line = b""
                continue
            else:
                break
            parts.append(part)
            missing -= len(part)
        block = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(block) > 1 and block.endswith(b"\r"):
            block, self._rest = block[:-1], b"\r" + self._rest
        return block

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        self.closed = True


def text_names(path: Path, header: bool | None) -> list[str]:
    """Names of the columns of a file: its header, or numbers. No record is looked at.

    Without a header the number of columns is that of its first line.
    """
    file = TextFile.of(path)
    failure = ""
    try:
        with _errors(file, header, []), file.open() as stream:
            names = _beginning(file, stream, header).names
    except RecordError as error:
        failure = error.text
    if failure:
        raise RecordError(failure)  # here, where no foreign error is its context
    if not names:
        raise RecordError(f"{path}: not valid CSV: it has no line")
    return names


def text_rows(path: Path, chosen: Selection) -> Iterator[Rows]:
    """Blocks of records with their carried columns."""
    import pyarrow as pa
    import pyarrow.csv as csv

    file = TextFile.of(path)
    known: list[str | None] = []  # what errors may call the columns
    with _errors(file, chosen.header, known), file.open() as stream:
        beginning = _beginning(file, stream, chosen.header)
        available = beginning.names
        if not available:
            if chosen.header is not False:
                raise RecordError(f"{path}: not valid CSV: no header line with column names")
            if chosen.dim > 1 or chosen.carried or not beginning.rest:
                return
            available = ["0"]
        is_stated = may_be_shown(available, chosen.header)
        names = selected_names(available, chosen, str(path), may_show=is_stated)
        known += [name if is_stated or name in chosen.stated else None for name in available]
        # Records are read as float64, the rest as text: a type guessed from the first block may
        # not last, and would change what is carried along.
        texts = (*chosen.carried, *chosen.text_names)
        kinds = {name: pa.float64() for name in names}
        kinds.update({name: pa.string() for name in texts})
        mark = secrets.randbits(52)
        line = file.delimiter.join([str(mark)] * len(available)).encode()
        source = _WithLastLine(stream, beginning.rest, line)
        reader = held = None
        try:
            reader = csv.open_csv(
                source,
                csv.ReadOptions(block_size=BLOCK_BYTES, column_names=available),
                csv.ParseOptions(
                    delimiter=file.delimiter,
                    quote_char='"' if file.has_quotes else False,
                    newlines_in_values=file.has_quotes,
                    # A line without a cell is a missing value where there is one column.
                    ignore_empty_lines=len(available) > 1,
                ),
                csv.ConvertOptions(
                    include_columns=list(kinds), column_types=kinds, null_values=_NULLS
                ),
            )
            for batch in reader:
                if batch.num_rows:
                    if held is not None:
                        yield from chosen_rows(held, names, chosen)
                    held = batch
            yield from chosen_rows(_without_last(held, names, mark, path), names, chosen)
        finally:
            source.let_go()
            reader = None  # of which no other frame knows: with it go the blocks that it holds
            source.wait_released()


def _without_last(held: Any, names: Sequence[str], mark: int, path: Path) -> Any:
    """The last rows but the very last one, which must be the line that was added."""
    last = None if held is None else held.slice(held.num_rows - 1).select(list(names))
    # Numbers are read as such, and texts as they stand there.
    if last is None or any(column[0].as_py() not in (float(mark), str(mark)) for column in last):
        raise RecordError(
            f"{path}: not valid CSV: its last lines would be lost to a quote that begins a cell "
            "and never ends; close it, or double the quotes that are part of a value"
        )
    return held.slice(0, held.num_rows - 1)


@contextmanager
def _errors(file: TextFile, header: bool | None, known: Sequence[str | None]) -> Iterator[None]:
    """Errors without what Arrow says: it may quote the offending value, part of a record."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, lines.Error) as error:
        text = str(error)
        kind = "CSV" if file.has_quotes else "TSV"
        if "straddling object" in text:
            raise RecordError(
                f"{file.path}: not valid {kind}: a line is longer than {BLOCK_BYTES} bytes; does a "
                "quote never end?"
            ) from None
        # Only numbers are taken from its message.
        cell = re.match(
            r"In CSV column #(\d{1,6}): (?:Row #\d+: )?CSV conversion error to double", text
        )
        width = re.search(r"Expected (\d{1,6}) columns, got (\d{1,6})", text)
        advice = "; if its first line is a record, say `header=False`" if header is None else ""
        if cell is not None:
            place = int(cell[1])
            name = known[place] if place < len(known) else None
            which = f"column number {place} (from 0)" if name is None else f"column {name!r}"
            more = f"; name the columns to use with `columns=[...]`{advice}" if name is None else ""
            raise RecordError(
                f"{file.path}: {which} is not numeric: a cell has text in it{more}"
            ) from None
        if width is not None:
            raise RecordError(
                f"{file.path}: not valid {kind}: a line has {width[2]} cells, the first {width[1]}"
            ) from None
        raise RecordError(
            f"{file.path}: not valid {kind}: not UTF-8, damaged, or a quote that never ends{advice}"
        ) from None
