"""Tables of many kinds to blocks of records, one pass, constant memory.

Accepts NumPy arrays and nested lists, sparse matrices of SciPy, anything that offers an
Arrow stream (pandas, polars, duckdb, pyarrow), paths of .npy, .parquet, .csv, Excel and Arrow
files, of folders of them and patterns, lists of paths, and iterables of blocks. A value keeps its
number type until it is quantised, so every reader gives the same sums. `read_parts` cuts the same
tables into parts that other processes can read.

Errors raised here are for the holder of the table. They name files and columns,
never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import MissingError, ParameterError, RecordError, TableError
from privsketch._base.types import Block, Floats
from privsketch.facts.schema import Schema
from privsketch.tables.batches import BATCH_READERS
from privsketch.tables.cells import Plain
from privsketch.tables.encoding import all_encoded, encoded, guarded
from privsketch.tables.files import (
    UNTYPED,
    BlockPart,
    FilePart,
    Part,
    count_in_file,
    file_blocks,
    file_kind,
    file_parts,
    file_schema,
    packed,
    require_new,
    suffix,
)
from privsketch.tables.memory import (
    Selection,
    array_blocks,
    list_blocks,
    own_errors,
    pandas_blocks,
    rows_per_block,
    stream_blocks,
)
from privsketch.tables.persons import selected_blocks
from privsketch.tables.sparse import csr_blocks, sparse_blocks
from privsketch.tables.table import Kind, Table
from privsketch.tables.untyped.excel import SHEET_FAULT
from privsketch.tables.untyped.format import FileFormat
from privsketch.tables.untyped.text import may_be_shown


def read_sparse_blocks(table: Table, selection: Selection) -> Iterator[Any]:
    """Yield blocks of records as CSR arrays (n, dim), columns in order and each of them once.

    Sparse matrices, and lists of them, are never made dense; everything else is read in blocks.
    """
    from scipy.sparse import csr_array

    if table.kind == "sparse":
        yield from csr_blocks(table.data, selection)
    elif any(part.kind == "sparse" for part in table.parts):
        for part in table.parts:
            yield from read_sparse_blocks(part, selection)
    else:
        for block in read_blocks(table, selection):
            yield csr_array(np.asarray(block))


def read_parts(table: Table, selection: Selection) -> Iterator[Part]:
    """Yield parts of a table for other processes: stretches of files, and blocks of all else.

    Where a schema names persons, whose rows may lie in any part, records are selected here, and
    blocks of them are the parts.
    """
    if names_persons(selection):
        yield from packed(read_blocks(table, selection))
        return
    yield from packed(own_errors(file_pieces(table, selection)))


def file_pieces(table: Table, selection: Selection) -> Iterator[Block | FilePart]:
    """Yield stretches of files, and records of all else."""
    selection = as_read(table, selection)
    for piece in own_errors(_blocks(table, selection, file_parts)):
        if isinstance(piece, FilePart):
            yield piece
            continue
        block = piece if selection.schema is None else encoded(piece, selection.schema)[0]
        if selection.noter is not None:
            selection.noter.see(block)
        yield block


def read_blocks(
    data: Any,
    selection: Selection,
    *,
    n_threads: int | None = 1,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Block]:
    """Yield blocks (n, dim) of records of a table, or of one part of it.

    Where a schema names persons, the part must have all of them. Then, and only then, `progress`
    counts rows as they are read, in `n_threads` threads.
    """
    if isinstance(data, BlockPart):
        yield from data.blocks
        return
    part = data if isinstance(data, FilePart) else Table.of(data)
    selection = as_read(part, selection)
    blocks = _part_blocks(part, selection, n_threads, progress)
    yield from blocks if selection.format.n_records is None else filled_up(blocks, selection)


def _part_blocks(
    part: Table | FilePart,
    selection: Selection,
    n_threads: int | None,
    progress: Callable[[int], None] | None,
) -> Iterator[Block]:
    if selection.schema is None:
        yield from own_errors(_noted(_pieces(part, selection), selection))
    elif names_persons(selection):
        schema = selection.schema
        pieces = _pieces(part, selection)
        if isinstance(part, Table) and not part.is_held:  # blocks may be filled again
            pieces = (encoded(batch, schema) for batch in pieces)

        def of_persons(piece: Any) -> tuple[Block, Any]:
            records, persons = piece if isinstance(piece, tuple) else encoded(piece, schema)
            if selection.noter is not None:  # all rows: which of them count is drawn by lot
                selection.noter.see(records)
            return records, persons

        yield from own_errors(
            selected_blocks(
                pieces,
                of_persons,
                selection.dim,
                schema.max_records,
                n_threads=n_threads,
                progress=progress,
            )
        )
    else:
        records = (encoded(batch, selection.schema)[0] for batch in _pieces(part, selection))
        yield from own_errors(_noted(records, selection))


def as_read(part: Table | FilePart, selection: Selection) -> Selection:
    """Return the selection by which a table is read; refuse one whose size must be stated.

    Where cells that cannot be read are missing values, columns without a schema are read as those
    of one are: cell by cell.
    """
    _require_sheet(part, selection)
    if selection.schema is not None or not selection.is_total:
        return selection
    columns = tuple(Plain(str(index)) for index in range(selection.dim))
    return replace(selection, schema=Schema(columns, unreadable="missing"))


def _require_sheet(part: Table | FilePart, selection: Selection) -> None:
    """Refuse a public number of records for anything but one sheet, which needs it.

    By kinds of files alone; sheets of an iterable, which nobody can look at beforehand, are left
    to their reader.
    """
    stated = selection.format.n_records
    if stated is None and selection.neighbours != "replace":
        return
    if isinstance(part, FilePart):
        files: list[Path | None] = [part.path]
    else:  # None stands for a table that is no file
        files = [file for leaf in part.leaves for file in leaf.files or [None]]
    n_sheets = sum(file is not None and suffix(file) == ".xlsx" for file in files)
    if stated is None and n_sheets:
        raise TableError(f"{next(filter(None, files))}: {SHEET_FAULT}")
    if stated is None:
        return
    if selection.neighbours != "replace":
        raise ParameterError(
            "n_records= (--n-records) of a sheet with `neighbours='add-remove'`: the number of "
            "records is private there; leave it out"
        )
    if n_sheets != 1 or len(files) != 1:
        raise TableError(
            "n_records= (--n-records) states how many records one Excel sheet has, which a sheet "
            "does not tell; leave it out for other tables, and give one sheet at a time"
        )


def filled_up(blocks: Iterable[Block], selection: Selection) -> Iterator[Block]:
    """Yield blocks of a sheet, and records of missing values up to the number that is stated."""
    n_missing = selection.format.n_records or 0
    for block in blocks:
        n_missing -= len(block)
        if n_missing < 0:
            raise RecordError(
                f"the sheet has more than the stated {selection.format.n_records} records; rows "
                "above the first record count where there is no header"
            )
        yield block
    step = rows_per_block(selection.dim)
    for first in range(0, n_missing, step):
        yield missing_records(min(step, n_missing - first), selection)


def missing_records(n_records: int, selection: Selection) -> Block:
    """Return records (n, dim) of missing values, filled by the rules of a schema."""
    import pyarrow as pa

    if selection.schema is None:
        return np.full((n_records, selection.dim), np.nan)
    schema = replace(selection.schema, person=None, max_records=1)
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(n_records) for _ in schema.columns], names=list(schema.names)
    )
    return all_encoded(batch, schema, "sheet")[0]


def _noted(blocks: Iterator[Block], selection: Selection) -> Iterator[Block]:
    return blocks if selection.noter is None else selection.noter.passing(blocks)


def _pieces(part: Table | FilePart, selection: Selection) -> Iterator[Any]:
    """Yield blocks, or with a schema Arrow batches of its columns."""
    if isinstance(part, FilePart):
        return file_blocks(part.path, selection, part.stretch)
    return _blocks(part, selection, file_blocks)


def read_cells(table: Table, selection: Selection) -> Iterator[tuple[Any, str | None]]:
    """Yield Arrow batches of a schema's columns as they stand, and the decimal mark of text files.

    For `Raw` columns, whose cells nothing has looked at yet.
    """

    def of_file(path: Path, selection: Selection) -> Iterator[tuple[Any, str | None]]:
        decimal = selection.format.decimal if file_kind(path) == "csv" else None
        for batch in file_blocks(path, selection):
            yield batch, decimal

    for piece in own_errors(_blocks(table, selection, of_file)):
        yield piece if isinstance(piece, tuple) else (piece, None)


def part_persons(part: Any, selection: Selection) -> Iterator[tuple[Block, Any]]:
    """Yield records (n, dim) of one part, and whose they are."""
    if selection.schema is not None:
        schema = selection.schema
        if selection.format.n_records is not None:
            raise TableError(
                "n_records= (--n-records) with persons on a cluster: save the sheet as a .csv "
                "file, whose empty rows are counted"
            )
        part = part if isinstance(part, FilePart) else Table.of(part)
        yield from own_errors(encoded(batch, schema) for batch in _pieces(part, selection))


def encode(data: Any, schema: Schema) -> Floats:
    """Return all rows of a table as a model sees them: points (n, dim), NaN for rows left out.

    For tables in memory, or files that fit there, that a model is asked about with `predict` or
    `transform`. Nothing is released: points are as sensitive as the records themselves.

    Parameters
    ----------
    data : table, path or list of them
    schema : Schema
        That of the model.

    Examples
    --------
    >>> import privsketch as ps
    >>> schema = ps.Schema([ps.Number("age", 0, 100), ps.Flag("smoker")])
    >>> ps.encode([[75, "yes"], [50, "no"]], schema).tolist()
    [[0.5, 0.5], [0.0, -0.5]]
    """
    points, kept = read_points(data, schema)
    return np.where(kept[:, np.newaxis], points, np.nan)


def read_points(
    data: Any, schema: Schema, *, neighbours: str | None = None
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return all rows as points (n, dim), persons aside, and which the schema does not drop.

    For tables in memory that are asked about: as sensitive as the records themselves. `neighbours`
    are those of a release of all rows; a sheet does not store all of them.
    """
    plain = replace(schema, person=None, max_records=1, missing_person="error")
    table = Table.of(data)
    selection = table.selection(plain.dim, schema=plain, neighbours=neighbours)
    _require_sheet(table, selection)
    if selection.format.n_records is not None:
        raise TableError(
            "n_records= of a sheet with a schema: rows are read from it by `privsketch release`; "
            "here give a data frame or a .csv file"
        )
    batches = _pieces(table, selection)
    parts = list(own_errors(guarded(partial(all_encoded, batch, plain)) for batch in batches))
    if not parts:
        return np.empty((0, plain.dim)), np.empty(0, dtype=np.bool_)
    return np.concatenate([p for p, _ in parts]), np.concatenate([kept for _, kept in parts])


def names_persons(selection: Selection) -> bool:
    """Return whether a schema names persons."""
    return selection.schema is not None and selection.schema.person is not None


_Piece = TypeVar("_Piece")


def _blocks(
    table: Table,
    selection: Selection,
    of_file: Callable[[Path, Selection], Iterator[_Piece]],
    seen: set[Any] | None = None,
    *,
    held: bool = True,
) -> Iterator[Block | _Piece]:
    """Yield blocks of tables, and of files whatever `of_file` makes of them.

    `seen` are the files of the lists that this is a part of; these are `held` by the caller unless
    one of them is made while it is read.
    """
    kind, data = table.kind, table.data
    seen = set() if seen is None else seen
    if kind == "path":
        for file in table.files:
            require_new(file, seen)
            yield from of_file(file, selection)
    elif kind == "dask":
        raise TableError(
            f"cannot read records from a Dask {type(data).__name__} here: give one Dask DataFrame "
            "or Dask Array alone, with `engine='dask'` or without engine"
        )
    elif kind == "spark":
        raise TableError(
            f"cannot read records from a Spark {type(data).__name__} here: give one Spark "
            "DataFrame alone to `sketch` or to `fit`; what reads rows on one machine, such as "
            "`predict`, needs a table that is there"
        )
    elif kind == "parts":
        is_list = isinstance(data, list | tuple)
        held = held and is_list
        for part in table.parts if is_list else map(Table, stable_parts(data, held=False)):
            if not is_list and part.kind == "rows":
                raise TableError(
                    "an iterable gives blocks or tables, not rows; give a list of rows"
                )
            if is_list and not held and isinstance(part.data, np.ndarray):
                part = Table(part.data.copy())
            yield from _blocks(part, selection, of_file, seen, held=held)
    elif kind == "other":
        raise TableError(
            f"cannot read records from {type(data).__name__}: expected an array, a table with an "
            "Arrow stream (pandas, polars, duckdb, pyarrow), a path, or an iterable of blocks"
        )
    else:
        readers = _READERS if selection.schema is None else BATCH_READERS
        yield from readers[kind](data, selection)


def stable_parts(parts: Iterable[Any], *, held: bool) -> Iterator[Any]:
    """Yield parts that stay as they are while the next ones are read.

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


# ---------------------------------------------------------------- which column it was


@contextmanager
def naming_columns(table: Table, selection: Selection) -> Iterator[None]:
    """Give errors of missing values the name by which the table calls the column.

    It is looked up when there is such an error: nothing is kept for it while records are read.
    """
    try:
        yield
    except MissingError as error:
        index, column = error.index, error.column
        if index is None:
            index = _missing_column(table, selection)
        if index is not None and column is None:
            column = _column_of(table, selection, index)
        error.locate(index, column)  # a new error would keep this one, and with it its frames
        raise


def _column_of(table: Table, selection: Selection, index: int) -> str | int | None:
    """Return what the tables call a column of a record, if they agree and may be quoted."""
    if selection.schema is not None:
        return None  # which settles what is missing before there are records
    columns = selection.columns if selection.columns is not None else selection.names
    stated = None if columns is None else columns[index]
    if isinstance(stated, int) or (stated is not None and stated in selection.stated):
        return stated
    candidates: set[str | int | None] = set()
    for names, may_show in column_names(table, selection.format):
        number = index if stated is None else names.index(stated)
        candidates.add(names[number] if may_show and number < len(names) else number)
    return candidates.pop() if len(candidates) == 1 else None


def column_names(table: Table, format: FileFormat) -> Iterator[tuple[list[str], bool]]:
    """Yield the names of all columns of each table that has any, and whether errors may show them.

    They are empty where they are not known before the table is read.
    """
    for leaf in table.leaves:
        for file in leaf.files:
            schema = file_schema(file, format)
            if not isinstance(schema, int):
                is_typed = file_kind(file) not in UNTYPED
                yield list(schema.names), is_typed or may_be_shown(schema.names, format.header)
        if leaf.kind in ("pandas", "dask", "spark") and getattr(leaf.data, "ndim", 2) == 2:
            yield [str(name) for name in getattr(leaf.data, "columns", ())], True
        if leaf.kind == "arrow" and getattr(leaf.data, "ndim", 2) == 2:
            yield _arrow_names(leaf.data), True


def _arrow_names(data: Any) -> list[str]:
    schema = getattr(data, "schema", None)
    for names in (getattr(schema, "names", None), getattr(data, "columns", None)):
        # The columns of a table of pyarrow are no names, but the columns themselves.
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            return list(names)
    return []


_REREADABLE: tuple[Kind, ...] = ("path", "array", "pandas", "sparse", "rows")


def _missing_column(table: Table, selection: Selection) -> int | None:
    """Return the column in which a value is missing, where the engine did not say it.

    None if it is unknown. Only what can be read again is.
    """
    parts = table.parts or (table,)
    if not all(part.kind in _REREADABLE and not part.is_on_device for part in parts):
        return None
    with suppress(RecordError):  # it was read before, and what is wrong with it was said
        for block in read_blocks(table, selection):
            missing = ~np.isfinite(np.asarray(block, dtype=np.float64)).all(axis=0)
            if missing.any():
                return int(np.argmax(missing))
    return None


def count_records(table: Table) -> int | None:
    """Return the number of records if it is known without reading them, for a progress bar."""
    counts: list[int | None] = []
    try:
        for leaf in table.leaves:
            shape = getattr(leaf.data, "shape", None)
            n_rows = int(shape[0]) if isinstance(shape, tuple) and shape else None
            counts += map(count_in_file, leaf.files) if leaf.kind == "path" else [n_rows]
    except RecordError:
        return None  # reading it will say what is wrong
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
