"""Files: .npy, Parquet, Arrow, text, read in blocks without loading them whole; Excel.

They are cut into parts that another process or machine can read: a part is a stretch of a file,
read where the work is done, or a few blocks of records that are sent there. Parts are large enough
to be worth a task, and small enough that a few of them per worker are a bounded amount of memory.
A record is in one part only.

A folder is all data files in it, a pattern what it matches, in the order of their names. Left out
are names that begin with "_" or "." (_SUCCESS, _metadata, .crc), which no writer of tables means as
data. Nothing else is passed over: a folder in a folder, a file of another kind and a pattern
without a match are errors, because records would be missing without a word.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privsketch._base.errors import RecordError, TableError
from privsketch._base.threads import checked_threads
from privsketch._base.types import Block
from privsketch.tables.batches import array_batches
from privsketch.tables.encoding import require_kinds
from privsketch.tables.memory import (
    Rows,
    Selection,
    array_blocks,
    rows_per_block,
    selected,
    selected_names,
    selected_rows,
)
from privsketch.tables.untyped.excel import sheet_names, sheet_rows
from privsketch.tables.untyped.format import PLAIN, FileFormat
from privsketch.tables.untyped.lines import COMPRESSED
from privsketch.tables.untyped.text import text_names, text_rows

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
    ".xlsx": "excel",
}
# Kinds whose columns have no types, and names in a first line, if at all.
UNTYPED = ("csv", "excel")


def file_blocks(path: Path, selection: Selection, stretch: range | None = None) -> Iterator[Block]:
    """Yield blocks of a file, whose kind its name tells.

    `stretch` is the part to read, in the units in which a file of its kind is cut: rows
    (.npy), row groups (Parquet), record batches (Arrow); all of it if left out.
    """
    for block, _ in file_rows(path, selection, stretch):
        yield block


def file_rows(path: Path, selection: Selection, stretch: range | None = None) -> Iterator[Rows]:
    """Yield these blocks, each with the carried columns of its rows."""
    kind = file_kind(path)
    if kind in UNTYPED:
        yield from (text_rows if kind == "csv" else sheet_rows)(path, selection)
    else:
        reader = {"npy": _npy, "parquet": _parquet, "arrow": _arrow}[kind]
        yield from reader(path, selection, stretch)


def file_schema(path: Path, format: FileFormat = PLAIN) -> Any:
    """Return names and Arrow types of a file's columns; of an array, which has none, their number.

    Columns of text and sheets are text here: what becomes of them depends on what they are read
    for. `format` is what the caller says of how text is written.
    """
    import pyarrow as pa

    kind = file_kind(path)
    if kind == "npy":
        array = _npy_array(path)
        if array.ndim != 2:
            raise TableError(f"{path}: expected 2 dimensions, rows and columns; got {array.ndim}")
        return array.shape[1]
    if kind in UNTYPED:
        names = (text_names if kind == "csv" else sheet_names)(path, format)
        return pa.schema([(name, pa.string()) for name in names])
    opened = _open_parquet if kind == "parquet" else _open_arrow
    with opened(path) as file:
        return file.schema_arrow if kind == "parquet" else file.schema


def file_kind(path: Path) -> str:
    """Return the kind of an existing file by its name; refuse kinds that are not read."""
    kind = SUFFIXES.get(suffix(path))
    if kind is None:
        known = ", ".join([*sorted(SUFFIXES), *(f".csv{each}" for each in COMPRESSED)])
        raise TableError(f"{path}: unknown kind of file; expected one of {known}")
    if not path.is_file():
        raise TableError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    return kind


def suffix(path: Path) -> str:
    """Return the ending of a file that tells its kind; text files may be compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] and suffixes[-1] in COMPRESSED and suffixes[-2:-1] in ([".csv"], [".tsv"]):
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def _npy(path: Path, selection: Selection, rows: range | None) -> Iterator[Rows]:
    array = _npy_array(path)
    part = array if rows is None else array[rows.start : rows.stop]
    reader = array_blocks if selection.schema is None else array_batches
    for block in reader(part, selection):
        yield block, None


def _npy_array(path: Path) -> Block:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        raise RecordError(f"{path}: not a valid .npy file of numbers")
    return array


def _parquet(path: Path, selection: Selection, groups: range | None) -> Iterator[Rows]:
    with _open_parquet(path) as file:
        names = _selected(file.schema_arrow, selection, path)
        batches = file.iter_batches(
            batch_size=rows_per_block(selection.dim),
            row_groups=None if groups is None else list(groups),
            columns=[*names, *selection.carried],
            use_threads=checked_threads(None) > _FEW_CORES,
        )
        for batch in batches:
            yield from selected_rows(batch, names, selection)


def _selected(fields: Any, selection: Selection, path: Path) -> list[str]:
    """Return names of the columns to read, of types that can be read."""
    if selection.schema is None:
        return selected(fields, selection, str(path))
    names = selected_names(fields.names, selection, str(path))
    require_kinds(fields, selection.schema, str(path), names)
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


def _arrow(path: Path, selection: Selection, places: range | None) -> Iterator[Rows]:
    with _open_arrow(path) as file:
        names = _selected(file.schema, selection, path)
        if hasattr(file, "get_batch"):
            places = range(file.num_record_batches) if places is None else places
            batches = (file.get_batch(i) for i in places)
        else:
            batches = iter(file)
        for batch in batches:
            yield from selected_rows(batch, names, selection)


@contextmanager
def _open_arrow(path: Path) -> Iterator[Any]:
    """Open a file of batches, or a stream of them."""
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
    """Return the number of records if the file's metadata tell it."""
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
    """Return what two names of one file share, links of every kind included."""
    try:
        status = path.stat()
    except OSError:
        return path.absolute()  # there is none: reading it says so
    # Some file systems number no files.
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


# ---------------------------------------------------------------- what paths stand for


def expanded(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path: itself, those of a folder, or what a pattern matches."""
    path = Path(path)
    if path.is_dir():
        return _in_folder(path)
    if path.exists() and not os.access(path, os.R_OK):  # readers would call it damaged
        raise TableError(f"{path}: {os.strerror(errno.EACCES)}")
    if path.exists() or not glob.has_magic(str(path)):
        return [path]  # reading it says what is wrong with it
    matches = [Path(name) for name in sorted(glob.glob(str(path)))]
    if path.name[:1] not in ("_", "."):
        matches = [each for each in matches if _is_data(each)]
    if not matches:
        raise TableError(f"{path}: no file matches this pattern")
    for each in matches:
        _require_plain(each)
    return [file for each in matches for file in expanded(each)]


def require_new(file: Path, seen: set[object]) -> None:
    """Refuse a file that was seen already, under whatever name; it is seen then."""
    identity = file_identity(file)
    if identity in seen:
        raise TableError(f"{file}: the same file is given twice")
    seen.add(identity)


def _in_folder(folder: Path) -> list[Path]:
    try:
        inside = sorted((each for each in folder.iterdir() if _is_data(each)), key=lambda p: p.name)
    except OSError as error:
        raise TableError(f"{folder}: {error.strerror or 'cannot be read'}") from None
    for each in inside:
        if each.is_dir():
            if "=" in each.name:
                raise TableError(
                    f"{folder}: a partitioned folder, with {each.name} in it: what folders are "
                    "named for is in no file. Write it as plain files, or name its folders one by "
                    "one, if that column is not needed"
                )
            raise TableError(f"{folder}: a folder in it, {each.name}; name its folders one by one")
        _require_plain(each)
    if not inside:
        raise TableError(f"{folder}: no data file in this folder")
    first = inside[0]
    for each in inside:
        if file_kind(each) != file_kind(first):
            raise TableError(
                f"{folder}: files of several kinds, {first.name} and {each.name}; name those that "
                "are meant, for instance with a pattern like *.parquet"
            )
    return inside


def _require_plain(path: Path) -> None:
    """Refuse what was found in a folder, and is no file: reading a pipe waits for a writer."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise TableError(f"{path}: a pipe or a device among the files; take it out")


def _is_data(path: Path) -> bool:
    return path.name[:1] not in ("_", ".")


# ---------------------------------------------------------------- parts that others can read

# Values in a stretch of a file (32 MB of float64, a fraction of a second of work), and in blocks
# that are sent (8 MB).
FILE_VALUES, SENT_VALUES = 2**22, 2**20


@dataclass(frozen=True)
class FilePart:
    """A stretch of a file, in the units of `file_blocks`; None is all of it."""

    path: Path
    stretch: range | None = None


@dataclass(frozen=True)
class BlockPart:
    """Blocks (n, dim) whose columns are already those of a record."""

    blocks: tuple[Block, ...]


Part = FilePart | BlockPart


def file_parts(path: Path, selection: Selection) -> Iterator[FilePart]:
    """Yield stretches that together are the whole file; a file that cannot be cut is one part."""
    path = path.absolute()  # workers may run in another folder
    cut = {"npy": _rows, "parquet": _row_groups, "arrow": _batches}.get(file_kind(path))
    # What is empty or damaged is left whole, so that its reader says what it would always say.
    stretches = [] if cut is None else cut(path, selection.dim)
    if not stretches:
        yield FilePart(path)
    for stretch in stretches:
        yield FilePart(path, stretch)


def _rows(path: Path, dim: int) -> list[range]:
    try:
        n_rows = len(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError):
        return []
    return _cut(n_rows, max(1, FILE_VALUES // dim))


def _row_groups(path: Path, dim: int) -> list[range]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        facts = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return []
    stretches, first, n_values = [], 0, 0
    for group in range(facts.num_row_groups):
        n_values += facts.row_group(group).num_rows * dim
        if n_values >= FILE_VALUES or group == facts.num_row_groups - 1:
            stretches.append(range(first, group + 1))
            first, n_values = group + 1, 0
    return stretches


def _batches(path: Path, dim: int) -> list[range]:
    """Return stretches of an Arrow file, of batches of about the same size; a stream is not cut."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            n_batches = pa.ipc.open_file(source).num_record_batches
    except (pa.ArrowException, OSError):
        return []
    bytes_per_batch = max(1, path.stat().st_size // max(1, n_batches))
    return _cut(n_batches, max(1, 8 * FILE_VALUES // bytes_per_batch))


def _cut(n_units: int, at_most: int) -> list[range]:
    return [range(first, min(first + at_most, n_units)) for first in range(0, n_units, at_most)]


def packed(pieces: Iterable[Block | FilePart]) -> Iterator[Part]:
    """Yield parts from pieces: many small blocks become one part, as each costs a message."""
    waiting: list[Block] = []
    n_values = 0
    for piece in pieces:
        if isinstance(piece, FilePart):
            yield piece
            continue
        waiting.append(np.asarray(piece))  # of a memory map, the numbers
        n_values += piece.size
        if n_values >= SENT_VALUES:
            yield BlockPart(tuple(waiting))
            waiting, n_values = [], 0
    if waiting:
        yield BlockPart(tuple(waiting))
