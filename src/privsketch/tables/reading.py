"""Tables of many kinds to blocks of records, one pass, constant memory.

Accepts NumPy arrays and nested lists, sparse matrices of SciPy, anything that offers an
Arrow stream (pandas, polars, duckdb, pyarrow), paths of .npy, .parquet, .csv and Arrow
files, lists of paths, and iterables of blocks. A value keeps its number type until it is
quantised, so every reader gives the same sums. `read_parts` cuts the same tables into
parts that other processes can read.

Errors raised here are for the holder of the table. They name files and columns,
never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from privsketch._typing import Block
from privsketch.errors import ParameterError, RecordError
from privsketch.tables.files import count_in_file, file_blocks, file_identity
from privsketch.tables.kinds import Kind, kind_of
from privsketch.tables.memory import (
    Selection,
    array_blocks,
    list_blocks,
    own_errors,
    pandas_blocks,
    stream_blocks,
)
from privsketch.tables.parts import BlockPart, FilePart, Part, file_parts, packed
from privsketch.tables.sparse import csr_blocks, sparse_blocks


def read_blocks(
    data: Any,
    dim: int,
    columns: Sequence[str | int] | None = None,
    names: Sequence[str] | None = None,
    *,
    header: bool | None = None,
) -> Iterator[Block]:
    """Blocks (n, dim) of records from `data`.

    See `chosen_columns` for `columns`, `names` and `header`.
    """
    yield from own_errors(_blocks(data, chosen_columns(dim, columns, names, header), file_blocks))


def read_sparse_blocks(
    data: Any,
    dim: int,
    columns: Sequence[str | int] | None = None,
    *,
    header: bool | None = None,
) -> Iterator[Any]:
    """Blocks of records as CSR arrays (n, dim), columns in order and each of them once.

    Sparse matrices, and lists of them, are never made dense; everything else is read in blocks.
    """
    from scipy.sparse import csr_array

    if kind_of(data) == "sparse":
        yield from csr_blocks(data, chosen_columns(dim, columns, None))
    elif isinstance(data, list | tuple) and any(kind_of(part) == "sparse" for part in data):
        for part in data:
            yield from read_sparse_blocks(part, dim, columns, header=header)
    else:
        for block in read_blocks(data, dim, columns, header=header):
            yield csr_array(np.asarray(block))


def read_parts(data: Any, chosen: Selection) -> Iterator[Part]:
    """Parts of `data` for other processes: stretches of files, and blocks of all else."""
    yield from own_errors(packed(_blocks(data, chosen, file_parts)))


def part_blocks(part: Any, chosen: Selection) -> Iterator[Block]:
    """Blocks (n, dim) of records from one part, or from a table that was never cut."""
    if isinstance(part, BlockPart):
        yield from part.blocks
    elif isinstance(part, FilePart):
        yield from own_errors(file_blocks(part.path, chosen, part.stretch))
    else:
        yield from own_errors(_blocks(part, chosen, file_blocks))


def chosen_columns(
    dim: int,
    columns: Sequence[str | int] | None,
    names: Sequence[str] | None,
    header: bool | None = None,
) -> Selection:
    """Which columns make a record of `dim` numbers.

    `columns` are the columns asked for, in that order. Without them, tables with named
    columns use `names`, the design's; everything else uses all columns. `header` says whether
    text files have one; the first line is taken for it if nothing is said.
    """
    if header not in (None, True, False):
        raise ParameterError("header", header, "expected True, False or None")
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise RecordError("columns: expected a list of column names or column numbers")
        columns = [c if isinstance(c, str) else _column_number(c) for c in columns]
        if len(columns) != dim:
            raise RecordError(f"columns: {len(columns)} named, a record has dim={dim}")
        if names is not None and columns != list(names) and set(columns) == set(names):
            raise RecordError(
                "columns: the columns of the design in another order; leave them out, they are "
                "found by their names wherever they stand"
            )
    return Selection(
        dim,
        None if columns is None else tuple(columns),
        None if names is None else tuple(names),
        header=header,
    )


def _column_number(column: Any) -> int:
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise RecordError("columns: expected a list of column names or column numbers")
    return int(column)


_Piece = TypeVar("_Piece")


def _blocks(
    data: Any,
    chosen: Selection,
    of_file: Callable[[Path, Selection], Iterator[_Piece]],
    seen: set[Any] | None = None,
    *,
    held: bool = True,
) -> Iterator[Block | _Piece]:
    """Blocks of tables, and of files whatever `of_file` makes of them.

    `seen` are the files of the lists that this is a part of; these are `held` by the caller unless
    one of them is made while it is read.
    """
    kind = kind_of(data)
    if kind == "path":
        yield from of_file(Path(data), chosen)
    elif kind == "dask":
        raise RecordError(
            f"cannot read records from a Dask {type(data).__name__} here: give one Dask DataFrame "
            "or Dask Array alone, with `engine='dask'` or without engine"
        )
    elif kind == "parts":
        seen = set() if seen is None else seen
        held = held and isinstance(data, list | tuple)
        for part in stable_parts(data, held=held):
            if kind_of(part) == "path":
                identity = file_identity(Path(part))
                if identity in seen:  # its records would count twice, and cost twice
                    raise RecordError(f"{part}: the same file is given twice")
                seen.add(identity)
            yield from _blocks(part, chosen, of_file, seen, held=held)
    elif kind == "other":
        raise RecordError(
            f"cannot read records from {type(data).__name__}: expected an array, a table with an "
            "Arrow stream (pandas, polars, duckdb, pyarrow), a path, or an iterable of blocks"
        )
    else:
        yield from _READERS[kind](data, chosen)


def stable_parts(parts: Iterable[Any], *, held: bool) -> Iterator[Any]:
    """Parts that stay as they are while the next ones are read.

    Unless the caller holds them all, in a list, they may be one array that is filled again and
    again: several blocks are at work at a time, and a record of the last one would count for all.
    """
    for part in parts:
        yield part.copy() if isinstance(part, np.ndarray) and not held else part


_READERS: dict[Kind, Callable[[Any, Selection], Iterator[Block]]] = {
    "array": array_blocks,
    "pandas": pandas_blocks,
    "arrow": stream_blocks,
    "sparse": sparse_blocks,
    "rows": list_blocks,
}


def count_records(data: Any) -> int | None:
    """Number of records if it is known without reading them, for the holder's progress bar."""
    kind = kind_of(data)
    if kind == "path":
        return count_in_file(Path(data))
    if kind == "parts" and isinstance(data, list | tuple):
        counts = [count_records(part) for part in data]
        return None if None in counts else sum(count for count in counts if count is not None)
    shape = getattr(data, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def checked_missing(missing: str) -> bool:
    """True for "center", False for "error"; errors for anything else."""
    if missing not in ("error", "center"):
        raise ParameterError("missing", missing, "expected 'error' or 'center'")
    return missing == "center"
