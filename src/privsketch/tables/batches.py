"""Tables in memory or in a stream to Arrow batches of the columns of a schema.

Columns are found by their names where a table has names, and by their numbers where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from privsketch._base.errors import RecordError, TableError
from privsketch._base.types import Floats
from privsketch.facts.columns import Column
from privsketch.facts.schema import Schema
from privsketch.tables.cells import (
    UNREADABLE,
    Raw,
    cells_of_objects,
    readable,
    require_kind,
    values_of,
)
from privsketch.tables.encoding import person_cell, require_kinds
from privsketch.tables.memory import (
    Joined,
    Selection,
    array_columns,
    opened_stream,
    rows_per_block,
    selected_names,
)
from privsketch.tables.sparse import sparse_blocks


def array_batches(array: Any, selection: Selection) -> Iterator[Any]:
    """Yield batches of a NumPy array, whose columns are those of the schema, in its order."""
    schema = _schema(selection)
    if array.ndim != 2:
        raise TableError(
            f"expected a table with rows and columns (2 dimensions), got {array.ndim}; reshape "
            "your data: array.reshape(-1, 1) for one column"
        )
    if schema.person is not None:
        raise TableError(
            f"the schema names persons by column {schema.person!r}, and an array has no column "
            "names; give a table that has"
        )
    if selection.columns is not None:
        places = array_columns(array.shape[1], selection) or []
    elif array.shape[1] == len(schema.columns):
        places = list(range(array.shape[1]))
    else:
        raise TableError(f"table has {array.shape[1]} columns, the schema {len(schema.columns)}")
    masks = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    plain = np.asarray(array)
    if plain.dtype.kind not in "fiubOUSM":
        raise TableError(f"a column is of no kind that can be read ({plain.dtype.type.__name__})")

    def cells(column: int, rows: slice) -> Any:
        index = places[column]
        part = plain[rows, index]
        if masks is None:
            return part
        if part.dtype == object:
            part = part.copy()
            part[masks[rows, index]] = None
            return part
        return np.ma.array(part, mask=masks[rows, index])

    yield from _batches(schema, len(plain), cells, selection.dim)


def pandas_batches(frame: Any, selection: Selection) -> Iterator[Any]:
    """Yield batches of a pandas frame, by the names of its columns."""
    schema = _schema(selection)
    if getattr(frame, "ndim", 0) != 2:
        raise TableError("expected a table with rows and columns; use series.to_frame()")
    labels = [str(label) for label in frame.columns]
    names = selected_names(labels, selection, "table")
    places = [labels.index(name) for name in names]

    def cells(index: int, rows: slice) -> Any:
        return frame.iloc[rows, places[index]]

    yield from _batches(schema, len(frame), cells, selection.dim)


def list_batches(rows: Sequence[Any], selection: Selection) -> Iterator[Any]:
    """Yield batches of a list of rows, whose cells keep their own types."""
    if selection.is_total:
        lists = _rows_of_one_width(rows, selection)
    else:
        if any(isinstance(row, Mapping | Set) or not isinstance(row, Iterable) for row in rows):
            raise RecordError(
                "the rows of the list have no order of cells, or are no rows; give a frame of them"
            )
        lists = [list(row) for row in rows]
        if len({len(row) for row in lists}) > 1:
            raise RecordError("the rows of the list do not all have the same length")
    array = np.empty((len(lists), len(lists[0]) if lists else 0), dtype=object)
    for index, row in enumerate(lists):
        array[index] = row
    yield from array_batches(array, selection)


def _rows_of_one_width(rows: Sequence[Any], selection: Selection) -> list[list[Any]]:
    """Return rows of as many cells as are asked for; a row with fewer, or none, has missing values.

    Where all columns are asked for, a row with more cells is none either.
    """
    schema = _schema(selection)
    places = [column for column in selection.columns or () if isinstance(column, int)]
    if any(index < 0 for index in places):
        raise TableError(
            "columns: count them from 0 with `unreadable='missing'`; how many cells a row has is "
            "what a record says"
        )
    width = 1 + max(places) if places else len(schema.columns)
    nothing = [None] * width

    def cells(row: Any) -> list[Any]:
        if isinstance(row, Mapping | Set | str | bytes) or not isinstance(row, Iterable):
            return nothing
        row_cells = list(row)
        fits = len(row_cells) >= width if places else len(row_cells) == width
        return row_cells[:width] if fits else nothing

    return [cells(row) for row in rows]


def sparse_batches(matrix: Any, selection: Selection) -> Iterator[Any]:
    """Yield batches of a matrix of SciPy."""
    for block in sparse_blocks(matrix, Selection(matrix.shape[1], None, None)):
        yield from array_batches(block, selection)


def stream_batches(data: Any, selection: Selection) -> Iterator[Any]:
    """Yield batches of anything that offers an Arrow stream or array."""
    schema = _schema(selection)
    with opened_stream(data) as reader:
        names = selected_names(reader.schema.names, selection, "table")
        require_kinds(reader.schema, schema, "table", names)
        for batch in reader:
            own = batch.select(names).rename_columns(schema.all_names)
            yield from sliced(own, selection.dim)


def joined_batches(data: Joined, selection: Selection) -> Iterator[Any]:
    """Yield batches of a table, each with its part of the column beside it."""
    import pyarrow as pa

    schema = _schema(selection)
    column = next(one for one in schema.columns if one.name == data.name)
    others = replace(schema, columns=[one for one in schema.columns if one.name != data.name])
    names = schema.all_names
    part = data.table.selection(others.dim, schema=others, neighbours=selection.neighbours)
    n_rows = 0
    for batch in BATCH_READERS[data.table.kind](data.table.data, part):
        cells = _cells(data.cells, slice(n_rows, n_rows + batch.num_rows))
        if len(cells) < batch.num_rows:
            raise TableError(_UNEQUAL)
        n_rows += batch.num_rows
        arrays = dict(zip(others.all_names, batch.columns, strict=True))
        arrays[column.name] = _array(column, cells, schema.unreadable)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names=list(names))
    if n_rows < len(data.cells):
        raise TableError(_UNEQUAL)


_UNEQUAL = "X and y have inconsistent numbers of samples: y needs one value for each row of X"


def _cells(cells: Any, rows: slice) -> Any:
    return cells.iloc[rows] if hasattr(cells, "iloc") else cells[rows]


def column_values(column: Column, cells: Any, unreadable: str) -> Floats:
    """Return values (n,) of the cells of one column, as its `encode` takes them; NaN is missing."""
    array = _array(column, _cells(cells, slice(None)), unreadable)
    return values_of(column, array, "table", unreadable=unreadable)


def sliced(batch: Any, dim: int) -> Iterator[Any]:
    """Yield a batch in pieces of moderate size."""
    rows = rows_per_block(dim)
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _schema(selection: Selection) -> Schema:
    if selection.schema is None:
        raise TableError("schema: there is none")
    return selection.schema


def _batches(
    schema: Schema, n_rows: int, cells: Callable[[int, slice], Any], dim: int
) -> Iterator[Any]:
    """Yield batches from cells of the columns, and of persons behind them, by column and rows."""
    import pyarrow as pa

    step = rows_per_block(dim)
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        rule = schema.unreadable
        arrays = [_array(column, cells(j, rows), rule) for j, column in enumerate(schema.columns)]
        names = list(schema.names)
        if schema.person is not None:
            arrays.append(_person_array(schema.person, cells(len(names), rows), rule))
            names.append(schema.person)
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _array(column: Column, cells: Any, unreadable: str) -> Any:
    """Return an Arrow array of cells; objects are read one by one: none decides over others."""
    cells = _own_type(cells)
    if cells.dtype == object:
        return cells_of_objects(column, cells, "table", unreadable=unreadable)
    if cells.dtype.kind == "c" and unreadable == "missing":  # one makes all numbers complex
        values = np.asarray(cells)
        cells = np.where(values.imag == 0, values.real, np.nan)
    try:
        array = _of_cells(cells, column.name)
    except RecordError:
        if unreadable == "missing":  # half a letter, which Arrow refuses: cell by cell
            return cells_of_objects(column, cells.astype(object), "table", unreadable=unreadable)
        if not isinstance(column, Raw):
            raise
        return cells_of_objects(column, [object()] * len(cells), "table")
    require_kind(column, array.type, "table", may_be_text=unreadable == "missing")
    return array


def _person_array(name: str, cells: Any, unreadable: str) -> Any:
    import pyarrow as pa

    cells = _own_type(cells)
    if cells.dtype != object:
        try:
            return _of_cells(cells, name)
        except RecordError:
            if unreadable == "error":
                raise
            cells = cells.astype(object)
    texts = [readable(lambda one: person_cell(one, name, "table"), cell) for cell in cells]
    if unreadable == "error" and any(text is UNREADABLE for text in texts):
        raise RecordError(f"table: column {name!r}: a person is neither a whole number nor text")
    return pa.array([None if text is UNREADABLE else text for text in texts], pa.large_string())


def _own_type(cells: Any) -> Any:
    """Return cells of their own types where a library has put several into categories."""
    categories = getattr(getattr(cells.dtype, "categories", None), "dtype", None)
    if categories == np.dtype(object):
        return cells.astype(object)
    return np.asarray(cells) if getattr(categories, "kind", "") == "c" else cells


def _of_cells(cells: Any, name: str) -> Any:
    """Return an Arrow array of cells of one type."""
    import pyarrow as pa

    try:
        if isinstance(cells, np.ma.MaskedArray):
            array = pa.array(np.asarray(cells.data), mask=np.ma.getmaskarray(cells))
        else:  # the index of a frame is not part of a record
            array = pa.array(cells, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Not the dtype: that of texts has the length of the longest one.
        raise RecordError(f"table: column {name!r} is {cells.dtype.type.__name__}") from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


BATCH_READERS: dict[str, Callable[[Any, Selection], Iterator[Any]]] = {
    "array": array_batches,
    "pandas": pandas_batches,
    "arrow": stream_batches,
    "sparse": sparse_batches,
    "rows": list_batches,
    "joined": joined_batches,
}
