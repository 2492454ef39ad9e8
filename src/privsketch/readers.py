"""Tables of many kinds to blocks of records, one pass, constant memory.

Accepts NumPy arrays and nested lists, anything that offers an Arrow stream (pandas,
polars, duckdb, pyarrow), paths of .npy, .parquet, .csv and Arrow files, lists of
paths, and iterables of blocks. A value keeps its number type until it is quantised,
so every reader gives the same sums.

Errors raised here are for the holder of the table. They name files and columns,
never a value.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.errors import ParameterError, RecordError

Block = npt.NDArray[Any]
Columns = Sequence[str | int] | None
# Values per block that readers ask for; a few such blocks are in memory at a time.
BLOCK_VALUES = 2**19
_SUFFIXES = {
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


def read_blocks(data: Any, dim: int, columns: Columns = None) -> Iterator[Block]:
    """Blocks (n, dim) of records from `data`, with the columns asked for, in that order."""
    if columns is not None:
        if isinstance(columns, str):
            raise RecordError("columns: expected a list of columns")
        columns = list(columns)
        if len(columns) != dim:
            raise RecordError(f"columns: {len(columns)} named, the design has dim={dim}")
        if len(set(columns)) != len(columns):
            raise RecordError("columns: a column is named twice")
    yield from _blocks(data, dim, columns)


def _blocks(data: Any, dim: int, columns: Columns) -> Iterator[Block]:
    if isinstance(data, str | os.PathLike):
        yield from _file_blocks(Path(data), dim, columns)
    elif isinstance(data, np.ndarray):
        yield from _array_blocks(data, dim, columns)
    elif type(data).__module__.split(".")[0] == "pandas":
        yield from _pandas_blocks(data, dim, columns)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _stream_blocks(data, dim, columns)
    elif hasattr(data, "__arrow_c_array__"):
        import pyarrow as pa

        yield _batch_block(pa.record_batch(data), dim, columns, "table")
    elif type(data).__module__.split(".")[0] == "scipy":
        raise RecordError("sparse matrices are not supported; use data.toarray() in blocks")
    elif isinstance(data, list | tuple) and not _is_list_of_parts(data):
        yield from _array_blocks(_as_array(data), dim, columns)
    elif isinstance(data, Iterable) and not isinstance(data, dict | bytes | set | frozenset):
        for part in data:
            yield from _blocks(part, dim, columns)
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


def _array_blocks(array: Block, dim: int, columns: Columns) -> Iterator[Block]:
    if array.ndim != 2:
        raise RecordError(
            f"expected a table with rows and columns (2 dimensions), got {array.ndim}; reshape "
            "your data: array.reshape(-1, 1) for one column"
        )
    if array.dtype.kind not in "fiub":
        raise RecordError(f"a column is not numeric (array of type {array.dtype})")
    if columns is not None:
        if not all(isinstance(c, int | np.integer) and not isinstance(c, bool) for c in columns):
            raise RecordError("columns: an array has no column names; give column numbers")
        unknown = [c for c in columns if not -array.shape[1] <= int(c) < array.shape[1]]
        if unknown:
            raise RecordError(f"columns: {unknown[0]} is not a column of {array.shape[1]}")
    elif array.shape[1] != dim:
        raise RecordError(_wrong_width("table", array.shape[1], dim))
    rows = max(1, BLOCK_VALUES // dim)
    for first in range(0, len(array), rows):
        block = array[first : first + rows]
        yield block if columns is None else block[:, [int(c) for c in columns]]


def _wrong_width(what: str, found: int, dim: int) -> str:
    return (
        f"{what} has {found} columns, the design has dim={dim}; name the columns to use with "
        "columns=[...]"
    )


def _file_blocks(path: Path, dim: int, columns: Columns) -> Iterator[Block]:
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(sorted(_SUFFIXES))
        raise RecordError(f"{path}: unknown kind of file; expected one of {known}")
    if not path.is_file():
        raise RecordError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    reader = {"npy": _npy, "parquet": _parquet, "csv": _csv, "arrow": _arrow_file}[kind]
    yield from reader(path, dim, columns)


def _npy(path: Path, dim: int, columns: Columns) -> Iterator[Block]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise RecordError(f"{path}: not a valid .npy file of numbers") from None
    yield from _array_blocks(array, dim, columns)


def _parquet(path: Path, dim: int, columns: Columns) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pre-buffering would hold all column chunks, in effect the whole file, in memory.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            names = _selected(file.schema_arrow.names, dim, columns, str(path))
            _require_numeric(file.schema_arrow, names, str(path))
            rows = max(1, BLOCK_VALUES // dim)
            for batch in file.iter_batches(batch_size=rows, columns=names):
                yield _batch_block(batch, dim, names, str(path))
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Parquet file, or damaged") from None


def _arrow_file(path: Path, dim: int, columns: Columns) -> Iterator[Block]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                file = pa.ipc.open_stream(source)
                batches = iter(file)
            names = _selected(file.schema.names, dim, columns, str(path))
            _require_numeric(file.schema, names, str(path))
            for batch in batches:
                yield from _batch_blocks(batch, dim, names, str(path))
    except (pa.ArrowException, OSError):
        raise RecordError(f"{path}: not a valid Arrow file, or damaged") from None


def _csv(path: Path, dim: int, columns: Columns) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.csv as csv

    read = csv.ReadOptions(block_size=2**22)
    try:
        with csv.open_csv(path, read_options=read) as head:
            names = _selected(head.schema.names, dim, columns, str(path))
        # All columns are read as float64: a type guessed from the first block may not last.
        convert = csv.ConvertOptions(
            include_columns=names, column_types={name: pa.float64() for name in names}
        )
        with csv.open_csv(path, read_options=read, convert_options=convert) as reader:
            for batch in reader:
                yield from _batch_blocks(batch, dim, names, str(path))
    except (pa.ArrowException, OSError):
        # Arrow's message may quote the offending value, which is part of a record.
        raise RecordError(
            f"{path}: a column is not numeric, or the file is not valid CSV with a header line"
        ) from None


def _pandas_blocks(frame: Any, dim: int, columns: Columns) -> Iterator[Block]:
    if getattr(frame, "ndim", 0) != 2:
        raise RecordError("expected a table with rows and columns; use series.to_frame()")
    import pyarrow as pa

    labels = [str(label) for label in frame.columns]
    names = _selected(labels, dim, columns, "table")
    frame = frame.iloc[:, [labels.index(str(name)) for name in names]]
    rows = max(1, BLOCK_VALUES // dim)
    for first in range(0, max(len(frame), 1), rows):
        try:
            # The index of a frame is not part of a record.
            table = pa.Table.from_pandas(frame.iloc[first : first + rows], preserve_index=False)
        except (pa.ArrowException, TypeError):
            raise RecordError("table: a column is not numeric") from None
        _require_numeric(table.schema, table.schema.names, "table")
        for batch in table.to_batches():
            yield _batch_block(batch, dim, None, "table")


def _stream_blocks(data: Any, dim: int, columns: Columns) -> Iterator[Block]:
    import pyarrow as pa

    with pa.RecordBatchReader.from_stream(data) as reader:
        names = _selected(reader.schema.names, dim, columns, "table")
        _require_numeric(reader.schema, names, "table")
        for batch in reader:
            yield from _batch_blocks(batch, dim, names, "table")


def _selected(available: Sequence[str], dim: int, columns: Columns, what: str) -> list[str]:
    """The columns to read: those asked for, or all if there are just as many as needed."""
    if columns is None:
        if len(available) != dim:
            raise RecordError(_wrong_width(what, len(available), dim))
        names = list(available)
    else:
        names = [
            available[name]
            if isinstance(name, int) and -len(available) <= name < len(available)
            else str(name)
            for name in columns
        ]
    for name in names:
        if list(available).count(name) != 1:
            state = "unknown" if name not in available else "not unique"
            raise RecordError(f"{what}: column {name!r} is {state}; it has {_some(available)}")
    return names


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (", ..." if len(names) > 12 else "")


def _require_numeric(schema: Any, names: Sequence[str], what: str) -> None:
    import pyarrow.types as types

    for name in names:
        kind = schema.field(name).type
        if not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_decimal(kind)
        ):
            raise RecordError(f"{what}: column {name!r} is not numeric but {kind}")


def _batch_blocks(batch: Any, dim: int, names: Columns, what: str) -> Iterator[Block]:
    rows = max(1, BLOCK_VALUES // dim)
    for first in range(0, batch.num_rows, rows):
        yield _batch_block(batch.slice(first, rows), dim, names, what)


def _batch_block(batch: Any, dim: int, names: Columns, what: str) -> Block:
    """A record batch as float64 (n, dim); nulls become NaN, which the quantiser refuses."""
    import pyarrow as pa

    if names is None:
        names = _selected(batch.schema.names, dim, None, what)
        _require_numeric(batch.schema, names, what)
    block = np.empty((batch.num_rows, dim), dtype=np.float64)
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
        kind = _SUFFIXES.get(path.suffix.lower())
        try:
            if kind == "parquet":
                import pyarrow.parquet as pq

                return int(pq.read_metadata(path).num_rows)
            if kind == "npy":
                return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[0])
        except (OSError, ValueError, IndexError):
            return None
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
