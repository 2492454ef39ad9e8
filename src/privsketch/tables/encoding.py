"""Tables as a schema describes them: Arrow batches of its columns, and the records that they make.

Whatever a table is, its columns become Arrow arrays first, by their names where it has names and by
their places where it has none. Then every column is encoded, missing values get what the schema
says, and rows that are left out are gone: what follows sees encoded records, and, if the schema
names persons, whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import PrivsketchError, RecordError, TableError
from privsketch._base.types import Block, Floats
from privsketch.facts.columns import Column
from privsketch.facts.schema import Schema
from privsketch.tables.cells import (
    UNREADABLE,
    Raw,
    cells_of_objects,
    readable,
    require_kind,
    text_cell,
    values_of,
)
from privsketch.tables.kinds import Kind
from privsketch.tables.memory import (
    Selection,
    array_places,
    is_missing_cell,
    opened_stream,
    plain_array,
    plain_kind,
    rows_per_block,
    selected_names,
)
from privsketch.tables.sparse import sparse_blocks
from privsketch.tables.untyped.conversion import MISSING_WORDS

# Persons of some rows: whole numbers, or an Arrow array of bytes.
Persons = npt.NDArray[np.int64] | Any
_Read = TypeVar("_Read")


def encoded(batch: Any, schema: Schema, what: str = "table") -> tuple[Block, Persons | None]:
    """Records (n, dim) of a batch's rows that are not left out, and whose they are."""
    if schema.unreadable == "missing":
        return guarded(lambda: _encoded_any(batch, schema, what), what)
    return guarded(lambda: _encoded(batch, schema, what), what)


def _encoded_any(batch: Any, schema: Schema, what: str) -> tuple[Block, Persons | None]:
    """The same whatever bytes stand in texts, which stop libraries."""
    try:
        return _encoded(batch, schema, what)
    except (PrivsketchError, MemoryError):
        raise
    except Exception:
        return _encoded(_with_valid_text(batch), schema, what)


def guarded(read: Callable[[], _Read], what: str = "table") -> _Read:
    """What a function reads; errors of libraries, which may quote a record, become ours."""
    failure = ""
    try:
        return read()
    except (PrivsketchError, MemoryError):
        raise
    except Exception as error:  # of a library, which may quote what it stumbles over
        failure = type(error).__name__
    raise RecordError(f"{what}: it cannot be read by the schema ({failure}): damaged text?")


def _with_valid_text(batch: Any) -> Any:
    """The same batch; bytes of texts that are no UTF-8 become U+FFFD, text by text."""
    import pyarrow as pa

    texts_or_bytes = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())

    def valid(array: Any) -> Any:
        array = plain_array(array)
        if array.type not in texts_or_bytes:
            return array
        cells = array.cast(pa.large_binary(), safe=False).to_pylist()
        texts = [None if cell is None else cell.decode("utf-8", "replace") for cell in cells]
        return pa.array(texts, pa.large_string())

    return pa.RecordBatch.from_arrays([valid(a) for a in batch.columns], names=batch.schema.names)


def _encoded(batch: Any, schema: Schema, what: str) -> tuple[Block, Persons | None]:
    points, kept = all_encoded(batch, schema, what)
    persons = None
    if schema.person is not None:
        is_total = schema.unreadable == "missing"
        array = batch.column(schema.person)
        persons, nobody = persons_of(array, schema.person, what, is_total=is_total)
        if nobody.any() and schema.missing_person == "error":
            raise RecordError(
                f"{what}: column {schema.person!r}: a row names no person; a row is never a person "
                "by itself. Leave such rows out with missing_person='drop' in the schema"
            )
        if schema.missing_person == "together":
            persons = _joined_unknown(persons, nobody)
        else:
            kept &= ~nobody
    if kept.all():
        return points, persons
    return points[kept], None if persons is None else filtered(persons, kept)


def _joined_unknown(persons: Persons, nobody: npt.NDArray[np.bool_]) -> Persons:
    """Persons as texts, with the empty one, which is nobody's name, where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = _as_names(persons)
    return pc.if_else(pa.array(nobody), pa.scalar(b"", names.type), names)


def _as_names(persons: Persons) -> Any:
    """Whole numbers as the texts that stand for them."""
    import pyarrow as pa

    if not isinstance(persons, np.ndarray):
        return persons
    return pa.array(persons).cast(pa.large_string()).cast(pa.large_binary())


def all_encoded(
    batch: Any, schema: Schema, what: str = "table"
) -> tuple[Block, npt.NDArray[np.bool_]]:
    """Points (n, dim) of all rows of a batch, and which of them are not left out."""
    points = np.empty((schema.dim, batch.num_rows))
    kept = np.ones(batch.num_rows, dtype=np.bool_)
    for column, place in schema.places():
        cells = batch.column(column.name)
        values = column.known(values_of(column, cells, what, unreadable=schema.unreadable))
        missing = np.isnan(values)
        if missing.any():
            _settle(column, schema.rule(column), values, missing, kept, what)
        points[place] = column.encode(values)
        if schema.rule(column) == "center":
            points[place, missing] = column.center[:, np.newaxis]
    return points.T, kept


def _settle(
    column: Column,
    rule: str,
    values: Floats,
    missing: npt.NDArray[np.bool_],
    kept: npt.NDArray[np.bool_],
    what: str,
) -> None:
    """Do with missing values what the schema says, but for "center", which needs coordinates."""
    if rule == "error":
        raise RecordError(
            f"{what}: column {column.name!r}: missing or infinite values; say in the schema what "
            "becomes of them: missing='drop', or fill= for the column"
        )
    if rule == "drop":
        kept &= ~missing
    elif rule == "fill":
        values[missing] = column.value_of(column.fill)
    elif rule == "category":
        values[missing] = column.value_of("missing")


def persons_of(
    array: Any, name: str, what: str, *, is_total: bool = False
) -> tuple[Persons, npt.NDArray[np.bool_]]:
    """Persons of rows, and which rows name none.

    With `is_total`, what is neither a whole number nor text names none, and persons are texts: a
    table may have whole numbers in one part and, for one odd record, text in another.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain_array(array)
    kind = array.type
    require_person_kind(kind, name, what)
    if pa.types.is_null(kind):
        nobodies = np.zeros(len(array), dtype=np.int64)
        return _as_names(nobodies) if is_total else nobodies, np.ones(len(array), dtype=np.bool_)
    nobody = np.asarray(pc.is_null(array, nan_is_null=True).cast("uint8")).astype(np.bool_)
    if pa.types.is_floating(kind):
        numbers = _floats(array)
        numbers[nobody] = 0.0
        digits = {16: 11, 32: 24, 64: 53}[kind.bit_width]
        return _whole_persons(numbers, nobody, digits, f"{what}: column {name!r}", is_total)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        persons = np.asarray(array.fill_null(0)).astype(np.int64)
        return _as_names(persons) if is_total else persons, nobody
    texts = person_texts(array)
    spelled = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(MISSING_WORDS, texts.type))
    nobody |= np.asarray(spelled.fill_null(False).cast("uint8")).astype(np.bool_)
    if is_total:  # several persons may have the same name once bytes of it are unknown
        damaged = pc.match_substring(texts, "\ufffd")
        nobody |= np.asarray(damaged.fill_null(False).cast("uint8")).astype(np.bool_)
    names = texts.fill_null("").cast(pa.large_binary())
    nobody |= np.asarray(pc.equal(pc.binary_length(names), 0).cast("uint8")).astype(np.bool_)
    return names.take(pa.array(np.arange(len(names)))), nobody  # a copy, whoever has the bytes


def _whole_persons(
    numbers: Floats, nobody: npt.NDArray[np.bool_], digits: int, which: str, is_total: bool
) -> tuple[Persons, npt.NDArray[np.bool_]]:
    """Persons from floats of so many binary digits."""
    whole = (np.floor(numbers) == numbers) & np.isfinite(numbers)
    # Beyond its digits, a float stands for several numbers: one missing person turns whole numbers
    # of 64 bits into floats, and all others lose theirs. So that is refused, whatever is asked.
    is_far = np.abs(numbers) >= 2.0**digits
    lost = whole & is_far & (np.abs(numbers) < 2.0**64)
    if lost.any() or (not is_total and not (whole & ~is_far).all()):
        raise RecordError(f"{which}: a person is neither a whole number nor text")
    if not is_total:
        return numbers.astype(np.int64), nobody
    unread = ~whole | is_far
    return _as_names(np.where(unread, 0.0, numbers).astype(np.int64)), nobody | unread


def person_texts(array: Any) -> Any:
    """Names of persons in one spelling: no blanks around them, and whole numbers as such.

    7, 007, 7.0 and 7e0 are one person: libraries drop zeros and add points where all cells are
    numbers, or where one is missing. Bytes are text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    texts = pc.utf8_normalize(texts, form="NFC")
    texts = pc.replace_substring_regex(texts, r"^\+?(-?)0*(\d+)(\.0*)?$", r"\1\2")
    # What is left of numbers are fractions, exponents and minus zero: few, and one by one.
    odd = pc.match_substring_regex(texts, r"^[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?$")
    odd = pc.and_(odd, pc.invert(pc.match_substring_regex(texts, r"^(-?[1-9]\d*|0)$")))
    if not pc.any(odd).as_py():
        return texts
    spelled = [_whole_text(text) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(spelled, texts.type))


def _whole_text(text: str) -> str:
    """A number in the spelling of a whole one, if it is one that all types hold."""
    try:
        number = Decimal(text)
        is_whole = number == number.to_integral_value() and abs(number) < 2**53
    except ArithmeticError:  # beyond all exponents
        return text
    return str(int(number)) if is_whole else text


def person_cell(cell: Any, name: str, what: str) -> str | None:
    """A person's name or number as text, every digit of it; None if it is missing."""
    if is_missing_cell(cell) or isinstance(cell, str):
        return text_cell(cell, name, what)
    is_number = isinstance(cell, int | np.integer) and not isinstance(cell, np.timedelta64 | bool)
    if is_number and abs(int(cell)) < 2**4096:
        return str(int(cell))
    if isinstance(cell, float | np.floating | Decimal):
        number = Decimal(cell) if isinstance(cell, Decimal) else Decimal(float(cell))
        if number.is_finite() and number == number.to_integral_value() and abs(number) < 2**53:
            return str(int(number))
    elif isinstance(cell, bool | np.bool_):
        return text_cell(cell, name, what)
    raise RecordError(f"{what}: column {name!r}: a person is neither a whole number nor text")


def _floats(array: Any) -> Floats:
    values = np.asarray(array.fill_null(0.0)).astype(np.float64)
    return np.where(np.isnan(values), 0.0, values)


def require_person_kind(kind: Any, name: str, what: str) -> None:
    """Refuse an Arrow type that names no persons."""
    import pyarrow.types as types

    kind = plain_kind(kind)
    known = (
        *(types.is_integer, types.is_floating, types.is_null),
        *(types.is_string, types.is_large_string),
        *(types.is_binary, types.is_large_binary),
    )
    if not any(is_kind(kind) for is_kind in known):
        raise TableError(
            f"{what}: column {name!r} names persons and is {kind}, not numbers or text"
        )


def filtered(persons: Persons, kept: npt.NDArray[np.bool_]) -> Persons:
    """Persons of some rows."""
    import pyarrow as pa

    return persons[kept] if isinstance(persons, np.ndarray) else persons.filter(pa.array(kept))


def require_kinds(
    fields: Any, schema: Schema, what: str, names: Sequence[str] | None = None
) -> None:
    """Refuse a table, by the Arrow schema of it, whose types do not fit.

    `names` are those of the schema's columns in the table, if they are others.
    """
    names = schema.all_names if names is None else names
    may_be_text = schema.unreadable == "missing"
    for column, name in zip(schema.columns, names, strict=False):
        require_kind(column, fields.field(name).type, what, may_be_text=may_be_text)
    if schema.person is not None:
        require_person_kind(fields.field(names[-1]).type, schema.person, what)


# --------------------------------------------------------------- tables in memory


def array_batches(array: Any, selection: Selection) -> Iterator[Any]:
    """Batches of a NumPy array, whose columns are those of the schema, in its order."""
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
        places = array_places(array.shape[1], selection) or []
    elif array.shape[1] == len(schema.columns):
        places = list(range(array.shape[1]))
    else:
        raise TableError(f"table has {array.shape[1]} columns, the schema {len(schema.columns)}")
    masks = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
    plain = np.asarray(array)
    if plain.dtype.kind not in "fiubOUSM":
        raise TableError(f"a column is of no kind that can be read ({plain.dtype.type.__name__})")

    def cells(column: int, rows: slice) -> Any:
        place = places[column]
        part = plain[rows, place]
        if masks is None:
            return part
        if part.dtype == object:
            part = part.copy()
            part[masks[rows, place]] = None
            return part
        return np.ma.array(part, mask=masks[rows, place])

    yield from _batches(schema, len(plain), cells, selection.dim)


def pandas_batches(frame: Any, selection: Selection) -> Iterator[Any]:
    """Batches of a pandas frame, by the names of its columns."""
    schema = _schema(selection)
    if getattr(frame, "ndim", 0) != 2:
        raise TableError("expected a table with rows and columns; use series.to_frame()")
    labels = [str(label) for label in frame.columns]
    names = selected_names(labels, selection, "table")
    places = [labels.index(name) for name in names]

    def cells(place: int, rows: slice) -> Any:
        return frame.iloc[rows, places[place]]

    yield from _batches(schema, len(frame), cells, selection.dim)


def list_batches(rows: Sequence[Any], selection: Selection) -> Iterator[Any]:
    """Batches of a list of rows, whose cells keep their own types."""
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
    for place, row in enumerate(lists):
        array[place] = row
    yield from array_batches(array, selection)


def _rows_of_one_width(rows: Sequence[Any], selection: Selection) -> list[list[Any]]:
    """Rows of as many cells as are asked for; what has fewer, or is no row, has missing values.

    Where all columns are asked for, a row with more cells is none either.
    """
    schema = _schema(selection)
    places = [column for column in selection.columns or () if isinstance(column, int)]
    if any(place < 0 for place in places):
        raise TableError(
            "columns: count them from 0 with `unreadable='missing'`; how many cells a row has is "
            "what a record says"
        )
    width = 1 + max(places) if places else len(schema.columns)
    nothing = [None] * width

    def cells(row: Any) -> list[Any]:
        if isinstance(row, Mapping | Set | str | bytes) or not isinstance(row, Iterable):
            return nothing
        found = list(row)
        fits = len(found) >= width if places else len(found) == width
        return found[:width] if fits else nothing

    return [cells(row) for row in rows]


def sparse_batches(matrix: Any, selection: Selection) -> Iterator[Any]:
    """Batches of a matrix of SciPy."""
    for block in sparse_blocks(matrix, Selection(matrix.shape[1], None, None)):
        yield from array_batches(block, selection)


def stream_batches(data: Any, selection: Selection) -> Iterator[Any]:
    """Batches of anything that offers an Arrow stream or array."""
    schema = _schema(selection)
    with opened_stream(data) as reader:
        names = selected_names(reader.schema.names, selection, "table")
        require_kinds(reader.schema, schema, "table", names)
        for batch in reader:
            own = batch.select(names).rename_columns(schema.all_names)
            yield from sliced(own, selection.dim)


def sliced(batch: Any, dim: int) -> Iterator[Any]:
    """A batch in pieces of moderate size."""
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
    """Batches from cells of the columns, and of persons behind them, by place and rows."""
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
    """An Arrow array of cells; objects are read one by one, for no cell decides over others."""
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
    """Cells of their own types, where a library has put objects of several into categories."""
    categories = getattr(getattr(cells.dtype, "categories", None), "dtype", None)
    return cells.astype(object) if categories == np.dtype(object) else cells


def _of_cells(cells: Any, name: str) -> Any:
    """An Arrow array of cells of one type."""
    import pyarrow as pa

    try:
        if isinstance(cells, np.ma.MaskedArray):
            array = pa.array(np.asarray(cells.data), mask=np.ma.getmaskarray(cells))
        else:  # the index of a frame is not part of a record
            array = pa.array(cells, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise RecordError(f"table: column {name!r} is {cells.dtype}") from None
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


BATCH_READERS: dict[Kind, Callable[[Any, Selection], Iterator[Any]]] = {
    "array": array_batches,
    "pandas": pandas_batches,
    "arrow": stream_batches,
    "sparse": sparse_batches,
    "rows": list_batches,
}
