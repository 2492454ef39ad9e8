"""Tables of many kinds to blocks of records, one pass, constant memory.

Accepts NumPy arrays and nested lists, anything that offers an Arrow stream (pandas,
polars, duckdb, pyarrow), paths of .npy, .parquet, .csv and Arrow files, lists of
paths, and iterables of blocks. A value keeps its number type until it is quantised,
so every reader gives the same sums.

Errors raised here are for the holder of the table. They name files and columns,
never a value.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.errors import ParameterError, RecordError

Block = npt.NDArray[Any]
# Values per block that readers ask for; a few such blocks are in memory at a time.
BLOCK_VALUES = 2**19
_SUFFIXES = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


@dataclass(frozen=True)
class Selection:
    """Which columns make a record: those asked for, else by name where a table has names."""

    dim: int
    columns: tuple[str | int, ...] | None
    names: tuple[str, ...] | None


def read_blocks(
    data: Any,
    dim: int,
    columns: Sequence[str | int] | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[Block]:
    """Blocks (n, dim) of records from `data`.

    `columns` are the columns asked for, in that order. Without them, tables with named
    columns use `names`, the design's; everything else uses all columns.
    """
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise RecordError("columns: expected a list of column names or column numbers")
        columns = [c if isinstance(c, str) else _column_number(c) for c in columns]
        if len(columns) != dim:
            raise RecordError(f"columns: {len(columns)} named, the design has dim={dim}")
    chosen = Selection(
        dim,
        None if columns is None else tuple(columns),
        None if names is None else tuple(names),
    )
    yield from _blocks(data, chosen)


def _column_number(column: Any) -> int:
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise RecordError("columns: expected a list of column names or column numbers")
    return int(column)


def _blocks(data: Any, chosen: Selection) -> Iterator[Block]:
    if isinstance(data, str | os.PathLike):
        yield from _file_blocks(Path(data), chosen)
    elif isinstance(data, np.ndarray):
        yield from _array_blocks(data, chosen)
    elif type(data).__module__.split(".")[0] == "pandas":
        yield from _pandas_blocks(data, chosen)
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        yield from _stream_blocks(data, chosen)
    elif type(data).__module__.split(".")[0] == "scipy":
        raise RecordError("sparse matrices are not supported; use data.toarray() in blocks")
    elif isinstance(data, list | tuple) and len(data) == 0:
        return
    elif isinstance(data, list | tuple) and not _is_list_of_parts(data):
        yield from _array_blocks(_as_array(data), chosen)
    elif isinstance(data, Iterable) and not isinstance(data, dict | bytes | set | frozenset):
        seen: set[Path] = set()
        for part in data:
            if isinstance(part, str | os.PathLike):
                path = Path(part).resolve()
                if path in seen:  # its records would count twice, and cost twice
                    raise RecordError(f"{part}: the same file is given twice")
                seen.add(path)
            yield from _blocks(part, chosen)
    else:
        raise RecordError(
            f"cannot read records from {type(data).__name__}: expected an array, a table with an "
            "Arrow stream (pandas, polars, duckdb, pyarrow), a path, or an iterable of blocks"
        )


def _is_list_of_parts(data: Sequence[Any]) -> bool:
    """Whether a list holds paths or blocks rather than rows of numbers."""
    if len(data) == 0:
        return False
    first = data[0]
    return (
        isinstance(first, str | os.PathLike)
        or hasattr(first, "__arrow_c_stream__")
        or hasattr(first, "__arrow_c_array__")
        or getattr(first, "ndim", 0) == 2
    )


def _as_array(rows: Sequence[Any]) -> Block:
    try:
        return np.asarray(rows)
    except ValueError:
        raise RecordError("the rows of the list do not all have the same length") from None


def _array_blocks(array: Block, chosen: Selection) -> Iterator[Block]:
    if array.ndim != 2:
        raise RecordError(
            f"expected a table with rows and columns (2 dimensions), got {array.ndim}; reshape "
            "your data: array.reshape(-1, 1) for one column"
        )
    if array.dtype.kind not in "fiub":
        raise RecordError(f"a column is not numeric (array of type {array.dtype})")
    width, places = array.shape[1], None
    if chosen.columns is not None:
        if any(isinstance(column, str) for column in chosen.columns):
            raise RecordError("columns: an array has no column names; give column numbers")
        places = _places([int(column) for column in chosen.columns], width)
    elif width != chosen.dim:
        raise RecordError(_wrong_width("table", width, chosen.dim))
    rows = max(1, BLOCK_VALUES // chosen.dim)
    for first in range(0, len(array), rows):
        block = array[first : first + rows]
        if isinstance(block, np.ma.MaskedArray):  # masked means missing
            block = np.ma.filled(block.astype(np.float64), np.nan)
        yield block if places is None else block[:, places]


def _places(columns: list[int], width: int) -> list[int]:
    """Column numbers from 0; negative ones count from the end."""
    for column in columns:
        if not -width <= column < width:
            raise RecordError(f"columns: {column} is not a column of {width}")
    places = [column % width for column in columns]
    if len(set(places)) != len(places):
        raise RecordError("columns: a column is named twice")
    return places


def _wrong_width(what: str, found: int, dim: int) -> str:
    return (
        f"{what} has {found} columns, the design has dim={dim}; name the columns to use with "
        "columns=[...]"
    )


def _file_blocks(path: Path, chosen: Selection) -> Iterator[Block]:
    kind = _SUFFIXES.get(_suffix(path))
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise RecordError(f"{path}: unknown kind of file; expected one of {known}")
    if not path.is_file():
        raise RecordError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    reader = {"npy": _npy, "parquet": _parquet, "csv": _csv, "arrow": _arrow_file}[kind]
    yield from reader(path, chosen)


def _suffix(path: Path) -> str:
    """The kind of a file by its name; text files may be compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"] and suffixes[-2:-1] in ([".csv"], [".tsv"]):
        return suffixes[-2]
    return suffixes[-1] if suffixes else ""


def _npy(path: Path, chosen: Selection) -> Iterator[Block]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        array = None
    if not isinstance(array, np.ndarray):
        raise RecordError(f"{path}: not a valid .npy file of numbers")
    yield from _array_blocks(array, chosen)


def _parquet(path: Path, chosen: Selection) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pre-buffering would hold the whole file in memory, and without a buffer size a whole
        # row group is read at once.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
            names = _selected(file.schema_arrow, chosen, str(path))
            rows = max(1, BLOCK_VALUES // chosen.dim)
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield _batch_block(batch, names)
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Parquet file, or damaged") from None


# A stream without it may have been cut between two batches, which nothing else would show.
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _arrow_file(path: Path, chosen: Selection) -> Iterator[Block]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(max(0, source.size() - len(_ARROW_END)))
                if source.read() != _ARROW_END:
                    raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None
                source.seek(0)
                file = pa.ipc.open_stream(source)
                batches = iter(file)
            names = _selected(file.schema, chosen, str(path))
            for batch in batches:
                yield from _batch_blocks(batch, names)
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None


def _csv(path: Path, chosen: Selection) -> Iterator[Block]:
    import csv as lines

    import pyarrow as pa
    import pyarrow.csv as csv

    try:
        delimiter = "\t" if _suffix(path) == ".tsv" else ","
        opened = gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as stream:
            rows = lines.reader(stream, delimiter=delimiter)
            header = next(rows, [])
            is_empty = next(rows, None) is None
        if not _is_header(header):
            # The first line may be a record: neither use it as names nor show it.
            raise RecordError(f"{path}: not valid CSV: no header line with column names")
        names = _selected_names(header, chosen, str(path))
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
                yield from _batch_blocks(batch, names)
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


def _pandas_blocks(frame: Any, chosen: Selection) -> Iterator[Block]:
    if getattr(frame, "ndim", 0) != 2:
        raise RecordError("expected a table with rows and columns; use series.to_frame()")
    labels = [str(label) for label in frame.columns]
    names = _selected_names(labels, chosen, "table")
    places = [labels.index(name) for name in names]
    rows = max(1, BLOCK_VALUES // chosen.dim)
    for first in range(0, len(frame), rows):
        part = frame.iloc[first : first + rows]
        block = np.empty((len(part), chosen.dim), dtype=np.float64)
        for j, place in enumerate(places):
            block[:, j] = _pandas_column(part.iloc[:, place], names[j])
        yield block


def _pandas_column(column: Any, name: str) -> npt.NDArray[np.float64]:
    """One column as float64.

    Cells of type object are converted one by one: a type inferred from a block would
    let one record change how the others are read.
    """
    import pyarrow as pa

    if column.dtype == object:
        return np.array([_cell_number(cell, name) for cell in column], dtype=np.float64)
    try:
        array = pa.array(column, from_pandas=True)  # the index of a frame is not part of a record
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise RecordError(f"table: column {name!r} is not numeric but {column.dtype}") from None
    _require_numeric_type(array.type, name, "table")
    return np.asarray(array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _cell_number(cell: Any, name: str) -> float:
    is_missing = cell is None or type(cell).__name__ in ("NAType", "NaTType")
    if is_missing:
        return float("nan")
    if not isinstance(cell, int | float | np.number | np.bool_ | Decimal) or isinstance(
        cell, np.complexfloating
    ):
        raise RecordError(f"table: column {name!r} is not numeric")
    try:
        return float(cell)
    except (OverflowError, ValueError, ArithmeticError):
        raise RecordError(f"table: column {name!r} holds a number too large to read") from None


def _stream_blocks(data: Any, chosen: Selection) -> Iterator[Block]:
    import pyarrow as pa

    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
        else:
            batch = pa.record_batch(data)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        with reader:
            names = _selected(reader.schema, chosen, "table")
            for batch in reader:
                yield from _batch_blocks(batch, names)
    except RecordError:
        raise
    except Exception:
        # Whatever produces the stream may fail while it is read, and quote a record.
        raise RecordError("table: its Arrow stream cannot be read as a table") from None


def _selected(schema: Any, chosen: Selection, what: str) -> list[str]:
    """Names of the columns to read, all of them numeric."""
    names = _selected_names(schema.names, chosen, what)
    _require_numeric(schema, names, what)
    return names


def _selected_names(available: Sequence[str], chosen: Selection, what: str) -> list[str]:
    """Those asked for, else the design's, else all if there are just as many as needed."""
    columns = chosen.columns if chosen.columns is not None else chosen.names
    if columns is None:
        if len(available) != chosen.dim:
            raise RecordError(_wrong_width(what, len(available), chosen.dim))
        names = list(available)
    else:
        numbers = [column for column in columns if isinstance(column, int)]
        _places(numbers, len(available))
        names = [available[c] if isinstance(c, int) else c for c in columns]
        if len(set(names)) != len(names):
            raise RecordError("columns: a column is named twice")
    for name in names:
        if list(available).count(name) != 1:
            state = "unknown" if name not in available else "not unique"
            raise RecordError(f"{what}: column {name!r} is {state}; it has {_some(available)}")
    return names


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (", ..." if len(names) > 12 else "")


def _require_numeric(schema: Any, names: Sequence[str], what: str) -> None:
    for name in names:
        _require_numeric_type(schema.field(name).type, name, what)


def _require_numeric_type(kind: Any, name: str, what: str) -> None:
    import pyarrow.types as types

    if not (
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    ):
        raise RecordError(f"{what}: column {name!r} is not numeric but {kind}")


def _batch_blocks(batch: Any, names: Sequence[str]) -> Iterator[Block]:
    rows = max(1, BLOCK_VALUES // len(names))
    for first in range(0, batch.num_rows, rows):
        yield _batch_block(batch.slice(first, rows), names)


def _batch_block(batch: Any, names: Sequence[str]) -> Block:
    """A record batch as float64 (n, dim); nulls become NaN, which the quantiser refuses."""
    import pyarrow as pa

    block = np.empty((batch.num_rows, len(names)), dtype=np.float64)
    for j, name in enumerate(names):
        column = batch.column(name)
        if not pa.types.is_floating(column.type) or column.null_count:
            column = column.cast(pa.float64(), safe=False)
        block[:, j] = column.to_numpy(zero_copy_only=False)
    return block


def count_records(data: Any) -> int | None:
    """Number of records if it is known without reading them, for the holder's progress bar."""
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        kind = _SUFFIXES.get(_suffix(path))
        try:
            if kind == "parquet":
                import pyarrow.parquet as pq

                return int(pq.read_metadata(path).num_rows)
            if kind == "npy":
                return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[0])
        except (OSError, ValueError, IndexError, EOFError, AttributeError):
            return None  # reading it will say what is wrong
        return None
    if isinstance(data, list | tuple) and _is_list_of_parts(data):
        counts = [count_records(part) for part in data]
        return None if None in counts else sum(count for count in counts if count is not None)
    shape = getattr(data, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def checked_missing(missing: str) -> bool:
    """True for "center", False for "error"; errors for anything else."""
    if missing not in ("error", "center"):
        raise ParameterError(f"missing={missing!r}: expected 'error' or 'center'")
    return missing == "center"
