"""Lines of text files: where one ends, how many cells it has, and what is mended or refused.

Arrow reads text files. It takes a carriage return for the end of a line, which programs leave
unquoted in text; it stops at a line of another number of cells, and at bytes that are no text. A
`LineGuard` looks at bytes on their way to Arrow and finds line breaks that are part of a value.
`MendedLines` reads the same bytes where nothing that one record says may stop a release: every line
becomes one record, of missing values if it cannot be cut into its cells.

A quote counts at the beginning of a cell alone, and two of them inside of quotes are one of the
text, as Arrow has it.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privsketch._base.errors import TableError
from privsketch.tables.untyped.format import MULTIBYTE, PLAIN, FileFormat

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_PIECE = 2**18  # bytes that are read and decoded at a time
_QUOTE = ord('"')
_SECOND_BYTES = 0x40  # bytes from here on may be the second one of a character
QUOTES_FAULT = (
    "a cell begins with a quote. Programs that write .tsv files disagree about what that means: "
    "say `quotes=True` (as pandas and polars write it) or `quotes=False`"
)
OPEN_FAULT = (
    "not valid CSV: its last lines would be lost to a quote that begins a cell and never ends; "
    "close it, double the quotes that are part of a value, or say `quotes=False`"
)


@dataclass(frozen=True)
class TextFile:
    """A file of lines: how it is written, its separator, and whether it has quotes."""

    path: Path
    format: FileFormat
    delimiter: str
    has_quotes: bool
    refuses_quotes: bool = False

    @classmethod
    def of(cls, path: Path, format: FileFormat = PLAIN) -> TextFile:
        """Describe a file by its name, which may end in .gz or .zst, and by its format."""
        is_tsv = _is_tsv(path)
        delimiter = format.delimiter or ("\t" if is_tsv else ",")
        if delimiter == format.decimal:
            raise TableError(
                f"{path}: `decimal={format.decimal!r}` is what separates its cells, too; say "
                "`delimiter=';'`, or what else does"
            )
        has_quotes = not is_tsv if format.quotes is None else format.quotes
        return cls(path, format, delimiter, has_quotes, is_tsv and format.quotes is None)

    @property
    def kind(self) -> str:
        """What errors call it."""
        return "TSV" if _is_tsv(self.path) else "CSV"

    def require_mendable(self) -> None:
        """Refuse what is not stated, or cannot be told apart, where no record may stop a release.

        It depends on public facts alone.
        """
        if self.refuses_quotes:
            raise TableError(
                f"{self.path}: say whether cells of this .tsv file may be quoted: `quotes=True` "
                "(as pandas and polars write it) or `quotes=False`; `unreadable='missing'` "
                "refuses nothing that depends on a record"
            )
        if self.format.encoding in MULTIBYTE and ord(self.delimiter) >= _SECOND_BYTES:
            raise TableError(
                f"{self.path}: `delimiter={self.delimiter!r}` with "
                f"`encoding={self.format.encoding!r}`: half of a damaged character could be taken "
                "for it; convert the file to UTF-8, or use `unreadable='error'`"
            )

    def open(self, *, mend: bool = False) -> Any:
        """Open a stream of its bytes, in UTF-8; with `mend`, whatever they are."""
        import pyarrow as pa

        compression = COMPRESSED.get(self.path.suffix.lower())
        stream = pa.input_stream(str(self.path), compression=compression)
        encoding = self.format.encoding
        if mend:  # decoders go on behind the one byte that they do not know: line ends stay
            return _Decoded(stream, encoding, "replace")
        return stream if encoding == "utf-8" else _Decoded(stream, encoding)

    def cells(self, line: bytes) -> list[str]:
        """Return the cells of one line."""
        text = line.decode("utf-8")
        if not self.has_quotes:
            return text.rstrip("\r\n").split(self.delimiter)
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), [])

    def first_line(self, data: bytes, start: int = 0) -> tuple[int, int]:
        """Return where the line at `start` ends, its line break included, and its cells.

        The end is -1 if the data may not have all of it: a line feed may follow what is the last.
        """
        position, delimiter, n_cells = start, self.delimiter.encode(), 1
        ends = re.compile(b"[\r\n" + re.escape(delimiter) + b"]")
        while position < len(data):
            if (
                self.has_quotes and data[position : position + 1] == b'"'
            ):  # at the beginning of a cell
                position = _after_quote(data, position)
            match = ends.search(data, position)
            if match is None:
                break
            position = match.end()
            if match[0] == delimiter:
                n_cells += 1
            elif match[0] == b"\r" and position == len(data):
                break
            else:
                return position + (
                    match[0] == b"\r" and data[position : position + 1] == b"\n"
                ), n_cells
        return -1, n_cells


def _is_tsv(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower() == ".tsv"


def _after_quote(data: bytes, position: int) -> int:
    """Return the end of the quoted part of a cell at `place`; a doubled quote is no end."""
    while True:
        position = data.find(b'"', position + 1)
        if position < 0:
            return len(data)
        if data[position + 1 : position + 2] != b'"':
            return position + 1
        position += 1


# ---------------------------------------------------------------- bytes to UTF-8


class _Decoded:
    """A stream of text of some encoding, in UTF-8; `errors` as codecs have it."""

    def __init__(self, stream: Any, encoding: str, errors: str = "strict") -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder(encoding)(errors)
        self._waiting, self._is_over = b"", False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; nothing at the end alone."""
        while not (self._waiting or self._is_over):
            piece = bytes(self._stream.read(_PIECE))
            self._is_over = not piece
            self._waiting = self._decoder.decode(piece, final=self._is_over).encode("utf-8")
        part, self._waiting = self._waiting[:size], self._waiting[size:]
        return part

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Decoded:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------- what is refused


class LineGuard:
    """Looks at bytes on their way to a reader for what readers and writers disagree about.

    `check` is asked, once, where line breaks may be inside of quotes: it reads the file from its
    beginning and says whether all are.
    """

    def __init__(self, file: TextFile, *, ends_in_cr: bool, check: Callable[[], bool]) -> None:
        self._file, self._check = file, check
        # What is no end of a line by itself, in a file whose first line ends in another way.
        self._ends_in_lf, self._odd = not ends_in_cr, b"\n" if ends_in_cr else b"\r"
        self._starts = [end + b'"' for end in (b"\n", b"\r", file.delimiter.encode())]
        self._is_known = False
        self._last = b"\n"

    def fault(self, block: bytes) -> str:
        """Return why the file is refused; empty if nothing is wrong up to here. b"" is its end."""
        before, self._last = self._last, block[-1:] or b""
        if self._file.refuses_quotes and b'"' in block and self._begins_cell(before, block):
            return QUOTES_FAULT
        if self._is_known or not self._has_odd(before, block):
            return ""
        self._is_known = True
        if self._file.has_quotes and self._check():
            return ""
        name, other = ("line feed", "carriage returns")
        if self._ends_in_lf:
            name, other = ("carriage return", "line feeds")
        return (
            f"not valid {self._file.kind}: a {name} outside of quotes, where lines end in {other}; "
            "is it part of a value that should be quoted?"
        )

    def _begins_cell(self, before: bytes, block: bytes) -> bool:
        if block[:1] == b'"' and before + b'"' in self._starts:
            return True
        return any(start in block for start in self._starts)

    def _has_odd(self, before: bytes, block: bytes) -> bool:
        """Return whether one is no part of a pair; one at the end waits for what follows."""
        if not self._ends_in_lf:
            return self._odd in block
        if before == b"\r" and block[:1] != b"\n":
            return True
        if b"\r" not in block:
            return False
        letters = np.frombuffer(block, dtype=np.uint8)
        return bool(((letters[:-1] == ord("\r")) & (letters[1:] != ord("\n"))).any())


# ---------------------------------------------------------------- what is mended

_START, _CELL, _QUOTED, _AFTER_QUOTE, _BREAK = range(5)


class _Line:
    """One line under way, byte by byte where it has quotes."""

    def __init__(self, mended: MendedLines) -> None:
        self._of = mended
        self.n_cells, self._state = 1, _START
        self._kept = bytearray()
        self._cut: int | None = None  # where the cells end that are asked for
        self.is_done = False

    @property
    def is_open(self) -> bool:
        """Whether it is inside of quotes."""
        return self._state == _QUOTED

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was seen."""
        return not self._kept and self._state in (_START, _CELL) and self.n_cells == 1

    def feed(self, data: bytes, position: int) -> int:
        """Take bytes from `place` on; where the line ends, or the end of the data."""
        while position < len(data) and not self.is_done:
            if self._state == _START:
                is_quote = self._of.has_quotes and data[position] == _QUOTE
                position = self._keep(data, position, position + is_quote)
                self._state = _QUOTED if is_quote else _CELL
            elif self._state == _QUOTED:
                end = data.find(b'"', position)
                position = self._keep(data, position, len(data) if end < 0 else end + 1)
                self._state = _QUOTED if end < 0 else _AFTER_QUOTE
            elif self._state == _AFTER_QUOTE:
                is_quote = data[position] == _QUOTE
                position = self._keep(data, position, position + is_quote)
                self._state = _QUOTED if is_quote else _CELL
            elif self._state == _BREAK:
                if data[position : position + 1] == b"\n":
                    self.is_done = True
                    return position + 1
                self._odd_break()
            else:
                position = self._in_cell(data, position)
        return position

    def _in_cell(self, data: bytes, position: int) -> int:
        match = self._of.ends.search(data, position)
        if match is None:
            return self._keep(data, position, len(data))
        self._keep(data, position, match.start())
        if match[0] == self._of.delimiter:
            if self.n_cells == self._of.width:
                self._cut = len(self._kept)
            self._keep(data, match.start(), match.end())
            self.n_cells, self._state = self.n_cells + 1, _START
        elif match[0] == self._of.line_end:
            self.is_done = True
        elif match[0] == b"\r":
            self._state = _BREAK
        else:
            self._odd_break()
        return match.end()

    def _odd_break(self) -> None:
        self._of.n_odd += 1
        self._kept += b" "
        self._state = _CELL

    def _keep(self, data: bytes, start: int, stop: int) -> int:
        if len(self._kept) <= self._of.max_bytes:
            self._kept += data[start:stop]
        return stop

    def end(self) -> None:
        """End the file."""
        if self._state == _BREAK:
            self._odd_break()
        self.is_done = True

    @property
    def mended(self) -> bytes:
        """The line as it is read."""
        if self.n_cells == 1 and not self._kept:  # a blank line
            return b"\n"
        if not self._of.fits(self.n_cells) or len(self._kept) > self._of.max_bytes:
            return self._of.missing
        return bytes(self._kept if self._cut is None else self._kept[: self._cut]) + b"\n"


class MendedLines:
    """A stream of lines of one width, from whatever stands in a file behind its header.

    A line that has another number of cells, or is too long, is one of missing values. Line breaks
    that end no line, because the first one ends in another way, are blanks. Blank lines stay.

    Parameters
    ----------
    stream : file
        Its bytes, in UTF-8.
    rest : bytes
        What was read of it already, behind the header.
    file : TextFile
    width : int
        How many cells a line has.
    may_have_more : bool
        Whether more cells are left out instead: where no header says how many there are.
    ends_in_cr : bool
        Whether lines end in carriage returns.
    max_bytes : int
        Of a line.
    """

    def __init__(
        self,
        stream: Any,
        rest: bytes,
        file: TextFile,
        width: int,
        *,
        may_have_more: bool,
        ends_in_cr: bool,
        max_bytes: int,
    ) -> None:
        self._stream, self.has_quotes = stream, file.has_quotes
        self.delimiter, self.width, self.max_bytes = file.delimiter.encode(), width, max_bytes
        self._may_have_more = may_have_more
        self.line_end = b"\r" if ends_in_cr else b"\n"
        self.ends = re.compile(b"[\r\n" + re.escape(self.delimiter) + b"]")
        self.missing = self.delimiter * (width - 1) + b"\n"
        self.n_odd = 0  # line breaks that end no line
        self._is_open = False  # whether a quote never ended
        self._waiting = b""
        self._stretches = self._mended(rest)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; nothing at the end alone."""
        while not self._waiting:
            stretch = next(self._stretches, None)
            if stretch is None:
                return b""
            self._waiting = stretch
        part, self._waiting = self._waiting[:size], self._waiting[size:]
        return part

    def close(self) -> None:
        """Close what it reads."""
        self._stream.close()

    def fault(self, block: bytes) -> str:
        """Return why the file is refused; b"" is its end.

        Which records a quote that never ends has swallowed cannot be told.
        """
        return OPEN_FAULT if self._is_open and not block else ""

    def fits(self, n_cells: int) -> bool:
        """Return whether a line of so many cells can be read."""
        return n_cells >= self.width if self._may_have_more else n_cells == self.width

    def _mended(self, data: bytes) -> Iterator[bytes]:
        line: _Line | None = None
        while True:
            position = 0
            while position < len(data):
                if line is None:
                    quote = data.find(b'"', position) if self.has_quotes else -1
                    stop = data.rfind(self.line_end, position, None if quote < 0 else quote) + 1
                    if stop > position:  # lines without quotes
                        yield self._plain(data[position:stop])
                        position = stop
                        continue
                    line = _Line(self)
                position = line.feed(data, position)
                if line.is_done:
                    yield line.mended
                    line = None
            data = bytes(self._stream.read(_PIECE))
            if not data:
                break
        if line is not None and not line.is_empty:
            self._is_open = line.is_open
            line.end()
            yield line.mended

    def _plain(self, lines: bytes) -> bytes:
        """Return whole lines without quotes."""
        lines = self._with_feeds(lines)
        letters = np.frombuffer(lines, dtype=np.uint8)
        ends = np.flatnonzero(letters == ord("\n"))
        cuts = np.flatnonzero(letters == ord(self.delimiter))
        first_cut = np.concatenate([[0], np.searchsorted(cuts, ends)])
        n_cells = np.diff(first_cut) + 1
        starts = np.concatenate([[0], ends[:-1] + 1])
        lengths = ends - starts
        odd = ((n_cells != self.width) & (lengths > 0)) | (lengths > self.max_bytes)
        if not odd.any():
            return lines
        parts, position = [], 0
        for number in np.flatnonzero(odd):
            start, end = int(starts[number]), int(ends[number])
            parts.append(lines[position:start])
            position = end + 1
            if not self.fits(int(n_cells[number])) or lengths[number] > self.max_bytes:
                parts.append(self.missing)
            else:
                cut = int(cuts[first_cut[number] + self.width - 1])
                parts.append(lines[start:cut] + b"\n")
        return b"".join([*parts, lines[position:]])

    def _with_feeds(self, lines: bytes) -> bytes:
        """Return bytes with line feeds at the ends of lines alone."""
        if self.line_end == b"\r":
            self.n_odd += lines.count(b"\n")
            return lines.replace(b"\n", b" ").replace(b"\r", b"\n")
        if b"\r" not in lines:
            return lines
        lines = lines.replace(b"\r\n", b"\n")
        self.n_odd += lines.count(b"\r")
        return lines.replace(b"\r", b" ")
