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

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from privsketch.tables.cells import Plain
from privsketch.tables.device import is_device_table
from privsketch.tables.encoding import BATCH_READERS, all_encoded, encoded, guarded
from privsketch.tables.files import (
    UNTYPED,
    count_in_file,
    expanded,
    file_blocks,
    file_kind,
    file_schema,
    require_new,
    suffix,
)
from privsketch.tables.kinds import Kind, kind_of
from privsketch.tables.marks import Noter
from privsketch.tables.memory import (
    Selection,
    array_blocks,
    list_blocks,
    own_errors,
    pandas_blocks,
    rows_per_block,
    stream_blocks,
)
from privsketch.tables.parts import BlockPart, FilePart, Part, file_parts, packed
from privsketch.tables.persons import selected_blocks
from privsketch.tables.sparse import csr_blocks, sparse_blocks
from privsketch.tables.untyped.excel import SHEET_FAULT
from privsketch.tables.untyped.format import PLAIN, FileFormat
from privsketch.tables.untyped.text import may_be_shown


def read_blocks(
    data: Any,
    dim: int,
    columns: Sequence[str | int] | None = None,
    names: Sequence[str] | None = None,
    *,
    format: FileFormat = PLAIN,
    schema: Schema | None = None,
    noter: Noter | None = None,
    neighbours: str = "add-remove",
    to_center: bool = False,
) -> Iterator[Block]:
    """Blocks (n, dim) of records from `data`.

    See `chosen_columns` for the other parameters.
    """
    chosen = chosen_columns(
        dim, columns, names, format, schema, neighbours=neighbours, to_center=to_center
    )
    yield from part_blocks(data, replace(chosen, noter=noter))


def read_sparse_blocks(
    data: Any,
    dim: int,
    columns: Sequence[str | int] | None = None,
    *,
    format: FileFormat = PLAIN,
    neighbours: str = "add-remove",
    to_center: bool = False,
) -> Iterator[Any]:
    """Blocks of records as CSR arrays (n, dim), columns in order and each of them once.

    Sparse matrices, and lists of them, are never made dense; everything else is read in blocks.
    """
    from scipy.sparse import csr_array

    if kind_of(data) == "sparse":
        yield from csr_blocks(data, chosen_columns(dim, columns, None))
    elif isinstance(data, list | tuple) and any(kind_of(part) == "sparse" for part in data):
        for part in data:
            yield from read_sparse_blocks(
                part, dim, columns, format=format, neighbours=neighbours, to_center=to_center
            )
    else:
        for block in read_blocks(
            data, dim, columns, format=format, neighbours=neighbours, to_center=to_center
        ):
            yield csr_array(np.asarray(block))


def read_parts(data: Any, chosen: Selection) -> Iterator[Part]:
    """Parts of `data` for other processes: stretches of files, and blocks of all else.

    Where a schema names persons, whose rows may lie in any part, records are selected here, and
    blocks of them are the parts.
    """
    if names_persons(chosen):
        yield from packed(part_blocks(data, chosen))
        return
    yield from packed(own_errors(file_pieces(data, chosen)))


def file_pieces(data: Any, chosen: Selection) -> Iterator[Block | FilePart]:
    """Stretches of files, and records of all else."""
    chosen = as_read(data, chosen)
    for piece in own_errors(_blocks(data, chosen, file_parts)):
        if isinstance(piece, FilePart):
            yield piece
            continue
        block = piece if chosen.schema is None else encoded(piece, chosen.schema)[0]
        if chosen.noter is not None:
            chosen.noter.see(block)
        yield block


def part_blocks(
    part: Any,
    chosen: Selection,
    *,
    n_threads: int | None = 1,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Block]:
    """Blocks (n, dim) of records from one part, or from a table that was never cut.

    Where a schema names persons, the part must have all of them. Then, and only then, `progress`
    counts rows as they are read, in `n_threads` threads.
    """
    if isinstance(part, BlockPart):
        yield from part.blocks
        return
    chosen = as_read(part, chosen)
    blocks = _part_blocks(part, chosen, n_threads, progress)
    yield from blocks if chosen.format.n_records is None else filled_up(blocks, chosen)


def _part_blocks(
    part: Any,
    chosen: Selection,
    n_threads: int | None,
    progress: Callable[[int], None] | None,
) -> Iterator[Block]:
    if chosen.schema is None:
        yield from own_errors(_noted(_pieces(part, chosen), chosen))
    elif names_persons(chosen):
        schema = chosen.schema
        pieces = _pieces(part, chosen)
        if not _is_held(part):  # they may be filled again before they are worked on
            pieces = (encoded(batch, schema) for batch in pieces)

        def of_persons(piece: Any) -> tuple[Block, Any]:
            found = piece if isinstance(piece, tuple) else encoded(piece, schema)
            if chosen.noter is not None:  # all rows: which of them count is drawn by lot
                chosen.noter.see(found[0])
            return found

        yield from own_errors(
            selected_blocks(
                pieces,
                of_persons,
                chosen.dim,
                schema.max_records,
                n_threads=n_threads,
                progress=progress,
            )
        )
    else:
        records = (encoded(batch, chosen.schema)[0] for batch in _pieces(part, chosen))
        yield from own_errors(_noted(records, chosen))


def as_read(data: Any, chosen: Selection) -> Selection:
    """The selection by which a table is read; an error if its number of records is not stated.

    Where cells that cannot be read are missing values, columns without a schema are read as those
    of one are: cell by cell.
    """
    _require_sheet(data, chosen)
    if chosen.schema is not None or not chosen.is_total:
        return chosen
    columns = tuple(Plain(str(place)) for place in range(chosen.dim))
    return replace(chosen, schema=Schema(columns, unreadable="missing"))


def _require_sheet(data: Any, chosen: Selection) -> None:
    """Refuse a public number of records for anything but one sheet, which needs it.

    By kinds of files alone; sheets of an iterable, which nobody can look at beforehand, are left
    to their reader.
    """
    stated = chosen.format.n_records
    if stated is None and chosen.neighbours != "replace":
        return
    files = [data.path] if isinstance(data, FilePart) else _files_of(data)
    n_sheets = sum(file is not None and suffix(file) == ".xlsx" for file in files)
    if stated is None and n_sheets:
        raise TableError(f"{next(filter(None, files))}: {SHEET_FAULT}")
    if stated is None:
        return
    if chosen.neighbours != "replace":
        raise ParameterError(
            "n_records= (--n-records) of a sheet with `neighbours='add-remove'`: the number of "
            "records is private there; leave it out"
        )
    if n_sheets != 1 or len(files) != 1:
        raise TableError(
            "n_records= (--n-records) states how many records one Excel sheet has, which a sheet "
            "does not tell; leave it out for other tables, and give one sheet at a time"
        )


def _files_of(data: Any) -> list[Path | None]:
    """Files of a table that is made of them; None stands for what is none."""
    if kind_of(data) == "path":
        return list(expanded(data))
    if isinstance(data, list | tuple) and kind_of(data) == "parts":
        return [file for part in data for file in _files_of(part)]
    return [None]


def filled_up(blocks: Iterable[Block], chosen: Selection) -> Iterator[Block]:
    """Blocks of a sheet, and records of missing values up to the number that is stated."""
    n_missing = chosen.format.n_records or 0
    for block in blocks:
        n_missing -= len(block)
        if n_missing < 0:
            raise RecordError(
                f"the sheet has more than the stated {chosen.format.n_records} records; rows above "
                "the first record count where there is no header"
            )
        yield block
    step = rows_per_block(chosen.dim)
    for first in range(0, n_missing, step):
        yield missing_records(min(step, n_missing - first), chosen)


def missing_records(n_records: int, chosen: Selection) -> Block:
    """Records (n, dim) of which nothing is known, as the rules of a schema have them."""
    import pyarrow as pa

    if chosen.schema is None:
        return np.full((n_records, chosen.dim), np.nan)
    schema = replace(chosen.schema, person=None, max_records=1)
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(n_records) for _ in schema.columns], names=list(schema.names)
    )
    return all_encoded(batch, schema, "sheet")[0]


def _noted(blocks: Iterator[Block], chosen: Selection) -> Iterator[Block]:
    return blocks if chosen.noter is None else chosen.noter.passing(blocks)


def _is_held(data: Any) -> bool:
    """Whether a table stays as it is while it is read: not if it is made on the way."""
    if kind_of(data) != "parts":
        return True
    return isinstance(data, list | tuple) and all(map(_is_held, data))


def _pieces(part: Any, chosen: Selection) -> Iterator[Any]:
    """Blocks, or with a schema Arrow batches of its columns."""
    if isinstance(part, FilePart):
        return file_blocks(part.path, chosen, part.stretch)
    return _blocks(part, chosen, file_blocks)


def read_cells(data: Any, chosen: Selection) -> Iterator[tuple[Any, str | None]]:
    """Arrow batches of a schema's columns as they stand, and the decimal mark of text files.

    For `Raw` columns, whose cells nothing has looked at yet.
    """

    def of_file(path: Path, chosen: Selection) -> Iterator[tuple[Any, str | None]]:
        decimal = chosen.format.decimal if file_kind(path) == "csv" else None
        for batch in file_blocks(path, chosen):
            yield batch, decimal

    for piece in own_errors(_blocks(data, chosen, of_file)):
        yield piece if isinstance(piece, tuple) else (piece, None)


def part_persons(part: Any, chosen: Selection) -> Iterator[tuple[Block, Any]]:
    """Records (n, dim) of one part, and whose they are."""
    if chosen.schema is not None:
        schema = chosen.schema
        if chosen.format.n_records is not None:
            raise TableError(
                "n_records= (--n-records) with persons on a cluster: save the sheet as a .csv "
                "file, whose empty rows are counted"
            )
        yield from own_errors(encoded(batch, schema) for batch in _pieces(part, chosen))


def encode(data: Any, schema: Schema) -> Floats:
    """All rows of a table as a model sees them: points (n, dim), NaN for rows that are left out.

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


def read_points(data: Any, schema: Schema) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """All rows of a table as points (n, dim), persons aside, and which the schema does not drop.

    For tables in memory that are asked about: as sensitive as the records themselves.
    """
    plain = replace(schema, person=None, max_records=1, missing_person="error")
    chosen = chosen_columns(plain.dim, None, None, schema=plain, neighbours=None)
    found = (guarded(partial(all_encoded, batch, plain)) for batch in _pieces(data, chosen))
    parts = list(own_errors(found))
    if not parts:
        return np.empty((0, plain.dim)), np.empty(0, dtype=np.bool_)
    return np.concatenate([p for p, _ in parts]), np.concatenate([kept for _, kept in parts])


def names_persons(chosen: Selection) -> bool:
    """Whether a schema names persons."""
    return chosen.schema is not None and chosen.schema.person is not None


def chosen_columns(
    dim: int,
    columns: Sequence[str | int] | None,
    names: Sequence[str] | None,
    format: FileFormat = PLAIN,
    schema: Schema | None = None,
    *,
    neighbours: str | None = "add-remove",
    to_center: bool = False,
) -> Selection:
    """Which columns make a record of `dim` numbers.

    `columns` are the columns asked for, in that order. Without them, tables with named
    columns use `names`, the design's; everything else uses all columns. `format` says how files
    are written. A `schema` names its columns itself, and says what becomes of missing and
    unreadable cells. `neighbours` and `to_center` are as a `Selection` has them.
    """
    relation: dict[str, Any] = {"neighbours": neighbours, "to_center": to_center}
    if schema is not None:
        if format.unreadable != "error":
            raise ParameterError("`unreadable=`: the schema says it; leave it out")
        own = schema.all_names
        if columns is None or tuple(columns) in (schema.names, schema.coordinates, own):
            return Selection(dim, None, tuple(own), format=format, schema=schema, **relation)
        if len(columns) != len(own):
            raise TableError(
                f"columns: the schema names {len(own)} of them, a person last; leave them out, or "
                "say what the table calls each, in that order"
            )
        return Selection(dim, tuple(columns), None, format=format, schema=schema, **relation)
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise TableError("columns: expected a list of column names or column numbers")
        columns = [c if isinstance(c, str) else _column_number(c) for c in columns]
        if len(columns) != dim:
            raise TableError(f"columns: {len(columns)} named, a record has dim={dim}")
        if names is not None and columns != list(names) and set(columns) == set(names):
            raise TableError(
                "columns: the columns of the design in another order; leave them out, they are "
                "found by their names wherever they stand"
            )
    return Selection(
        dim,
        None if columns is None else tuple(columns),
        None if names is None else tuple(names),
        format=format,
        **relation,
    )


def _column_number(column: Any) -> int:
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise TableError("columns: expected a list of column names or column numbers")
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
    seen = set() if seen is None else seen
    if kind == "path":
        for file in expanded(data):
            require_new(file, seen)
            yield from of_file(file, chosen)
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
        held = held and isinstance(data, list | tuple)
        for part in stable_parts(data, held=held):
            if not isinstance(data, list | tuple) and kind_of(part) == "rows":
                raise TableError(
                    "an iterable gives blocks or tables, not rows; give a list of rows"
                )
            yield from _blocks(part, chosen, of_file, seen, held=held)
    elif kind == "other":
        raise TableError(
            f"cannot read records from {type(data).__name__}: expected an array, a table with an "
            "Arrow stream (pandas, polars, duckdb, pyarrow), a path, or an iterable of blocks"
        )
    else:
        readers = _READERS if chosen.schema is None else BATCH_READERS
        yield from readers[kind](data, chosen)


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


# ---------------------------------------------------------------- which column it was


@contextmanager
def naming_columns(data: Any, chosen: Selection) -> Iterator[None]:
    """Errors of missing values with what `data` calls the column.

    It is looked up when there is such an error: nothing is kept for it while records are read.
    """
    try:
        yield
    except MissingError as error:
        place, column = error.index, error.column
        if place is None:
            place = _missing_place(data, chosen)
        if place is not None and column is None:
            column = _column_of(data, chosen, place)
        error.locate(place, column)  # a new error would keep this one, and with it its frames
        raise


def _column_of(data: Any, chosen: Selection, place: int) -> str | int | None:
    """What the tables call a column of a record, if they agree and may be quoted."""
    if chosen.schema is not None:
        return None  # which settles what is missing before there are records
    columns = chosen.columns if chosen.columns is not None else chosen.names
    wanted = None if columns is None else columns[place]
    if isinstance(wanted, int) or (wanted is not None and wanted in chosen.stated):
        return wanted
    found: set[str | int | None] = set()
    for names, may_show in _names_of(data, chosen):
        number = place if wanted is None else list(names).index(wanted)
        found.add(names[number] if may_show and number < len(names) else number)
    return found.pop() if len(found) == 1 else None


def _names_of(data: Any, chosen: Selection) -> Iterator[tuple[Sequence[str], bool]]:
    """Names of all columns of each table that has any, and whether errors may show them."""
    kind = kind_of(data)
    if kind == "path":
        for file in expanded(data):
            schema = file_schema(file, chosen.format)
            if not isinstance(schema, int):
                is_typed = file_kind(file) not in UNTYPED
                yield schema.names, is_typed or may_be_shown(schema.names, chosen.format.header)
    elif kind == "parts" and isinstance(data, list | tuple):
        for part in data:
            yield from _names_of(part, chosen)
    elif kind in ("pandas", "dask", "spark", "arrow") and getattr(data, "ndim", 2) == 2:
        names = getattr(data, "columns", ())
        if kind == "arrow" and not all(isinstance(name, str) for name in names):
            names = data.schema.names  # of pyarrow, whose columns are the columns themselves
        yield [str(name) for name in names], True


_AGAIN: tuple[Kind, ...] = ("path", "array", "pandas", "sparse", "rows")


def _missing_place(data: Any, chosen: Selection) -> int | None:
    """The column in which a value is missing, where the engine did not say it; None if unknown.

    Only what can be read again is.
    """
    parts = data if isinstance(data, list | tuple) else [data]
    if not all(kind_of(part) in _AGAIN and not is_device_table(part) for part in parts):
        return None
    with suppress(RecordError):  # it was read before, and what is wrong with it was said
        for block in part_blocks(data, chosen):
            bad = ~np.isfinite(np.asarray(block, dtype=np.float64)).all(axis=0)
            if bad.any():
                return int(np.argmax(bad))
    return None


def count_records(data: Any) -> int | None:
    """Number of records if it is known without reading them, for the holder's progress bar."""
    kind = kind_of(data)
    if kind == "path":
        try:
            return _total([count_in_file(file) for file in expanded(data)])
        except RecordError:
            return None  # reading it will say what is wrong
    if kind == "parts" and isinstance(data, list | tuple):
        return _total([count_records(part) for part in data])
    shape = getattr(data, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def stops_nothing(schema: Schema | None, format: FileFormat, *, to_center: bool) -> bool:
    """Whether nothing that one record says can stop a release."""
    return schema.is_total if schema is not None else to_center and format.unreadable == "missing"


def checked_missing(missing: str, schema: Schema | None = None) -> bool:
    """True for "center", False for "error"; errors for anything else."""
    if missing not in ("error", "center"):
        advice = "a schema can leave such records out" if missing == "drop" else ""
        raise ParameterError("missing", missing, "expected 'error' or 'center'", advice)
    if missing == "center" and schema is not None:
        raise ParameterError(
            "`missing='center'`: the schema says it, for each column; leave it out"
        )
    return missing == "center"
