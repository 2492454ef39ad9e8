"""Files: .npy, Parquet, Arrow, CSV, read in blocks without loading them whole."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from privsketch.errors import RecordError
from privsketch.readers.selection import Selection, rows_per_block, selected, selected_names
from privsketch.readers.tables import Block, Rows, array_blocks, batch_rows

SUFFIXES = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


def file_blocks(path: Path, chosen: Selection, stretch: range | None = None) -> Iterator[Block]:
    """Blocks of a file of any kind we read, told by its name.

    `stretch` is the part to read, in the units in which a file of its kind is cut: rows
    (.npy), row groups (Parquet), record batches (Arrow); all of it if left out.
    """
    for block, _ in file_rows(path, chosen, stretch):
        yield block


def file_rows(path: Path, chosen: Selection, stretch: range | None = None) -> Iterator[Rows]:
    """The same blocks, each with the carried columns of its rows."""
    kind = file_kind(path)
    if kind == "csv":
        yield from _csv(path, chosen)
    else:
        reader = {"npy": _npy, "parquet": _parquet, "arrow": _arrow}[kind]
        yield from reader(path, chosen, stretch)


def file_schema(path: Path) -> Any:
    """Names and Arrow types of a file's columns; of an array, which has none, their number.

    Columns of CSV are text here: what becomes of them depends on what they are read for.
    """
    import pyarrow as pa

    kind = file_kind(path)
    if kind == "npy":
        array = _npy_array(path)
        if array.ndim != 2:
            raise RecordError(f"{path}: expected 2 dimensions, rows and columns; got {array.ndim}")
        return array.shape[1]
    if kind == "csv":
        with _csv_errors(path, []):
            return pa.schema([(name, pa.string()) for name in _csv_header(path)[0]])
    opened = _open_parquet if kind == "parquet" else _open_arrow
    with opened(path) as file:
        return file.schema_arrow if kind == "parquet" else file.schema


def file_kind(path: Path) -> str:
    """The kind of an existing file by its name; an error if we do not read it."""
    kind = SUFFIXES.get(suffix(path))
    if kind is None:
        known = ", ".join(sorted(SUFFIXES))
        raise RecordError(f"{path}: unknown kind of file; expected one of {known}")
    if not path.is_file():
        raise RecordError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    return kind


def suffix(path: Path) -> str:
    """The kind of a file by its name; text files may be compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"] and suffixes[-2:-1] in ([".csv"], [".tsv"]):
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def _npy(path: Path, chosen: Selection, rows: range | None) -> Iterator[Rows]:
    array = _npy_array(path)
    part = array if rows is None else array[rows.start : rows.stop]
    for block in array_blocks(part, chosen):
        yield block, None


def _npy_array(path: Path) -> Block:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        raise RecordError(f"{path}: not a valid .npy file of numbers")
    return array


def _parquet(path: Path, chosen: Selection, groups: range | None) -> Iterator[Rows]:
    with _open_parquet(path) as file:
        names = selected(file.schema_arrow, chosen, str(path))
        batches = file.iter_batches(
            batch_size=rows_per_block(chosen.dim),
            row_groups=None if groups is None else list(groups),
            columns=[*names, *chosen.carried],
        )
        for batch in batches:
            yield from batch_rows(batch, names, chosen.carried)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pre-buffering would hold the whole file in memory, and without a buffer size a whole
        # row group is read at once.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
            yield file
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Parquet file, or damaged") from None


# A stream without it may have been cut between two batches, which nothing else would show.
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _arrow(path: Path, chosen: Selection, places: range | None) -> Iterator[Rows]:
    with _open_arrow(path) as file:
        names = selected(file.schema, chosen, str(path))
        if hasattr(file, "get_batch"):
            places = range(file.num_record_batches) if places is None else places
            batches = (file.get_batch(i) for i in places)
        else:
            batches = iter(file)
        for batch in batches:
            yield from batch_rows(batch, names, chosen.carried)


@contextmanager
def _open_arrow(path: Path) -> Iterator[Any]:
    """A file of batches, or a stream of them."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                file = pa.ipc.open_file(source)
            except pa.ArrowInvalid:
                source.seek(max(0, source.size() - len(_ARROW_END)))
                if source.read() != _ARROW_END:
                    raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None
                source.seek(0)
                file = pa.ipc.open_stream(source)
            yield file
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None


def _csv(path: Path, chosen: Selection) -> Iterator[Rows]:
    import pyarrow as pa
    import pyarrow.csv as csv

    header: list[str] = []
    with _csv_errors(path, header):
        found, is_empty = _csv_header(path)
        header += found  # what errors from here on name columns by
        names = selected_names(header, chosen, str(path))
        if is_empty:
            return
        # Records are read as float64, the rest as text: a type guessed from the first block may
        # not last, and would change what is carried along.
        kinds = {name: pa.float64() for name in names}
        kinds.update({name: pa.string() for name in chosen.carried})
        convert = csv.ConvertOptions(include_columns=list(kinds), column_types=kinds)
        read = csv.ReadOptions(block_size=2**22)
        # Slower, and for text only: numbers have no lines.
        parse = csv.ParseOptions(
            delimiter=_delimiter(path), newlines_in_values=len(chosen.carried) > 0
        )
        with csv.open_csv(path, read, parse, convert) as reader:
            for batch in reader:
                yield from batch_rows(batch, names, chosen.carried)


def _csv_header(path: Path) -> tuple[list[str], bool]:
    """The names of the columns, and whether no line follows them."""
    import csv as lines

    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8-sig") as stream:
        rows = lines.reader(stream, delimiter=_delimiter(path))
        header = next(rows, [])
        is_empty = next(rows, None) is None
    if not _is_header(header):
        # The first line may be a record: neither use it as names nor show it.
        raise RecordError(f"{path}: not valid CSV: no header line with column names")
    return header, is_empty


def _delimiter(path: Path) -> str:
    return "\t" if suffix(path) == ".tsv" else ","


@contextmanager
def _csv_errors(path: Path, header: Sequence[str]) -> Iterator[None]:
    """Errors without what Arrow says: it may quote the offending value, part of a record."""
    import csv as lines

    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, lines.Error) as error:
        # Only the number of the column is taken from its message.
        found = re.match(r"In CSV column #(\d{1,6}): CSV conversion error to double", str(error))
        place = len(header) if found is None else int(found[1])
        which = f"column {header[place]!r}" if place < len(header) else "a column"
        raise RecordError(
            f"{path}: {which} is not numeric, or the file is not valid CSV with a header line"
        ) from None


def _is_header(fields: Sequence[str]) -> bool:
    """Whether a first line holds names: no number among them, unless they count 0, 1, 2, ..."""
    if list(fields) == [str(place) for place in range(len(fields))]:
        return len(fields) > 0
    return not any(_is_number(field) for field in fields)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def count_in_file(path: Path) -> int | None:
    """Number of records if the file's metadata tell it."""
    kind = SUFFIXES.get(suffix(path))
    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return int(pq.read_metadata(path).num_rows)
        if kind == "npy":
            return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[0])
    except (OSError, ValueError, IndexError, EOFError, AttributeError):
        pass  # reading it will say what is wrong
    return None
