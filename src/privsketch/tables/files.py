"""Files: .npy, Parquet, Arrow, text, read in blocks without loading them whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from privsketch._parallel import checked_threads
from privsketch._typing import Block
from privsketch.errors import RecordError
from privsketch.tables.encoding import array_batches, require_kinds
from privsketch.tables.memory import (
    Rows,
    Selection,
    array_blocks,
    chosen_rows,
    rows_per_block,
    selected,
    selected_names,
)
from privsketch.tables.text import text_names, text_rows

# Up to so many, Arrow's own threads take more from those that work on records than they bring.
_FEW_CORES = 4
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
        yield from text_rows(path, chosen)
    else:
        reader = {"npy": _npy, "parquet": _parquet, "arrow": _arrow}[kind]
        yield from reader(path, chosen, stretch)


def file_schema(path: Path, header: bool | None = None) -> Any:
    """Names and Arrow types of a file's columns; of an array, which has none, their number.

    Columns of CSV are text here: what becomes of them depends on what they are read for.
    `header` is what the caller says of its first line.
    """
    import pyarrow as pa

    kind = file_kind(path)
    if kind == "npy":
        array = _npy_array(path)
        if array.ndim != 2:
            raise RecordError(f"{path}: expected 2 dimensions, rows and columns; got {array.ndim}")
        return array.shape[1]
    if kind == "csv":
        return pa.schema([(name, pa.string()) for name in text_names(path, header)])
    opened = _open_parquet if kind == "parquet" else _open_arrow
    with opened(path) as file:
        return file.schema_arrow if kind == "parquet" else file.schema


def file_kind(path: Path) -> str:
    """The kind of an existing file by its name; an error if we do not read it."""
    kind = SUFFIXES.get(suffix(path))
    if kind is None:
        known = ", ".join([*sorted(SUFFIXES), ".csv.gz", ".tsv.gz"])
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
    reader = array_blocks if chosen.schema is None else array_batches
    for block in reader(part, chosen):
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
        names = _selected(file.schema_arrow, chosen, path)
        batches = file.iter_batches(
            batch_size=rows_per_block(chosen.dim),
            row_groups=None if groups is None else list(groups),
            columns=[*names, *chosen.carried],
            use_threads=checked_threads(None) > _FEW_CORES,
        )
        for batch in batches:
            yield from chosen_rows(batch, names, chosen)


def _selected(fields: Any, chosen: Selection, path: Path) -> list[str]:
    """Names of the columns to read, of types that can be read."""
    if chosen.schema is None:
        return selected(fields, chosen, str(path))
    names = selected_names(fields.names, chosen, str(path))
    require_kinds(fields, chosen.schema, str(path))
    return names


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
        names = _selected(file.schema, chosen, path)
        if hasattr(file, "get_batch"):
            places = range(file.num_record_batches) if places is None else places
            batches = (file.get_batch(i) for i in places)
        else:
            batches = iter(file)
        for batch in batches:
            yield from chosen_rows(batch, names, chosen)


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


def file_identity(path: Path) -> tuple[int, int] | Path:
    """What two names of one file share, links of every kind included."""
    try:
        found = path.stat()
    except OSError:
        return path.absolute()  # there is none: reading it says so
    # Some file systems number no files.
    return (found.st_dev, found.st_ino) if found.st_ino else path.resolve()
