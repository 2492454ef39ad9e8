"""Files: .npy, Parquet, Arrow, CSV, read in blocks without loading them whole."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from privsketch.errors import RecordError
from privsketch.readers.selection import Selection, rows_per_block, selected, selected_names
from privsketch.readers.tables import Block, array_blocks, batch_block, batch_blocks

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
    kind = file_kind(path)
    if kind == "csv":
        yield from _csv(path, chosen)
    else:
        reader = {"npy": _npy, "parquet": _parquet, "arrow": _arrow_file}[kind]
        yield from reader(path, chosen, stretch)


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


def _npy(path: Path, chosen: Selection, rows: range | None) -> Iterator[Block]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        raise RecordError(f"{path}: not a valid .npy file of numbers")
    yield from array_blocks(array if rows is None else array[rows.start : rows.stop], chosen)


def _parquet(path: Path, chosen: Selection, groups: range | None) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pre-buffering would hold the whole file in memory, and without a buffer size a whole
        # row group is read at once.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
            names = selected(file.schema_arrow, chosen, str(path))
            rows = rows_per_block(chosen.dim)
            places = None if groups is None else list(groups)
            for batch in file.iter_batches(batch_size=rows, row_groups=places, columns=names):
                yield batch_block(batch, names)
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Parquet file, or damaged") from None


# A stream without it may have been cut between two batches, which nothing else would show.
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _arrow_file(path: Path, chosen: Selection, places: range | None) -> Iterator[Block]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                file = pa.ipc.open_file(source)
                places = range(file.num_record_batches) if places is None else places
                batches = (file.get_batch(i) for i in places)
            except pa.ArrowInvalid:
                source.seek(max(0, source.size() - len(_ARROW_END)))
                if source.read() != _ARROW_END:
                    raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None
                source.seek(0)
                file = pa.ipc.open_stream(source)
                batches = iter(file)
            names = selected(file.schema, chosen, str(path))
            for batch in batches:
                yield from batch_blocks(batch, names)
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None


def _csv(path: Path, chosen: Selection) -> Iterator[Block]:
    import csv as lines

    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        delimiter = "\t" if suffix(path) == ".tsv" else ","
        opened = gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as stream:
            rows = lines.reader(stream, delimiter=delimiter)
            header = next(rows, [])
            is_empty = next(rows, None) is None
        if not _is_header(header):
            # The first line may be a record: neither use it as names nor show it.
            raise RecordError(f"{path}: not valid CSV: no header line with column names")
        names = selected_names(header, chosen, str(path))
        if is_empty:
            return
        # All columns are read as float64: a type guessed from the first block may not last.
        convert = csv.ConvertOptions(
            include_columns=names, column_types={name: pa.float64() for name in names}
        )
        read = csv.ReadOptions(block_size=2**22)
        parse = csv.ParseOptions(delimiter=delimiter)
        with csv.open_csv(path, read, parse, convert) as reader:
            for batch in reader:
                yield from batch_blocks(batch, names)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, lines.Error):
        # Arrow's message may quote the offending value, which is part of a record.
        raise RecordError(
            f"{path}: a column is not numeric, or the file is not valid CSV with a header line"
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
