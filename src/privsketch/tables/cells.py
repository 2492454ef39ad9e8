"""Cells of a table as the values that a schema's columns encode.

Numbers stay numbers, dates become seconds since 1970, labels their places; NaN is missing. A cell's
value depends on the cell and on the type of its column, which is public, never on other cells. What
cannot be read is an error that names the column and the fault, and no value. Only a look at a table
by its holder (`survey/check`) goes on: cells of a `Raw` column come as they stand, and `looked_at`
says which of them would be errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.errors import RecordError
from privsketch.schema.columns import Column, Date, Rule
from privsketch.schema.labels import Category, Flag, label_text
from privsketch.tables.memory import cell_number, is_missing_cell
from privsketch.tables.untyped.text import MISSING_WORDS, NULLS

Bits = npt.NDArray[np.bool_]
# Values (n,), and which cells cannot be read: None if all can.
Parsed = tuple[Floats, Bits | None]
_YES, _NO = ("1", "true", "yes", "t", "y"), ("0", "false", "no", "f", "n")
# What Arrow may take for a number or a date; nothing else is one.
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
_DAY = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"


@dataclass(frozen=True)
class Raw(Column):
    """A column whose cells are read as they stand, for `looked_at`: readers refuse none of them."""

    KIND: ClassVar[str] = "cell"
    READS_TEXT: ClassVar[bool] = True

    name: str
    column: Column
    weight: float = 1.0
    missing: Rule | None = None
    fill: Any = None


def values_of(column: Column, array: Any, what: str) -> Floats:
    """Values (n,) of an Arrow array of cells; `what` names the table in errors."""
    require_kind(column, array.type, what)
    values, wrong = _parsed(column, array)
    if wrong is not None:
        raise RecordError(f"{what}: column {column.name!r}{_fault(column)}")
    return values


def looked_at(column: Column, array: Any, *, decimal: str | None = None) -> Parsed:
    """The same for cells of a `Raw` column; those that would be an error are marked and NaN.

    `decimal` is the mark of a text file that they stand in, where everything is text.
    """
    import pyarrow as pa

    marked = None
    is_number = decimal is not None and not column.READS_TEXT
    if pa.types.is_struct(array.type) and array.type.names == [_CELL, _WRONG]:
        marked, array = _bits(array.field(_WRONG)), array.field(_CELL)
    try:
        if not is_number:
            require_kind(column, array.type, "")
    except RecordError:  # of a type that holds no such cells
        return np.full(len(array), np.nan), _bits(array.is_valid())
    found = _numbers_in_text(array, decimal or ".") if is_number else _parsed(column, array)
    values, wrong = found
    if marked is None or not marked.any():
        return values, wrong
    return values, marked if wrong is None else marked | wrong


def _parsed(column: Column, array: Any) -> Parsed:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan), None
    if isinstance(column, Category):
        return _places(column, texts_of(array)), None
    if isinstance(column, Flag):
        return _flags(column, array)
    if isinstance(column, Date):
        return _seconds(column, array)
    return _numbers(array), None


def _fault(column: Column) -> str:
    """What to say of a cell that cannot be read."""
    if isinstance(column, Flag):
        return (
            " is a flag, and a cell is neither yes nor no; say its words in the schema: "
            "Flag(..., true=, false=)"
        )
    if isinstance(column, Date) and column.format is not None:
        return f": a cell is no date like {column.format!r}"
    return (
        ": a cell is no date like 2020-01-31; say how they are written in the schema: "
        "Date(..., format='%d.%m.%Y')"
    )


def require_kind(column: Column, kind: Any, what: str) -> None:
    """Refuse an Arrow type that cannot hold a column's cells."""
    import pyarrow.types as types

    if isinstance(column, Raw):
        return
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_text, is_flag = _is_text(kind), types.is_boolean(kind)
    fits = is_number or is_flag
    if isinstance(column, Category):
        fits = is_text or types.is_integer(kind) or types.is_floating(kind) or is_flag
    elif isinstance(column, Flag):
        fits = is_text or is_number or is_flag
    elif isinstance(column, Date):
        fits = is_text or types.is_timestamp(kind) or types.is_date(kind)
    if not (fits or types.is_null(kind)):
        raise RecordError(
            f"{what}: column {column.name!r} is {kind}, and a {column.KIND} in the schema"
        )


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _numbers(array: Any) -> Floats:
    import pyarrow as pa

    found = array.cast(pa.float64(), safe=False)
    if found.null_count:
        found = found.fill_null(float("nan"))
    return np.array(np.from_dlpack(found), dtype=np.float64)


def _numbers_in_text(array: Any, decimal: str) -> Parsed:
    """Cells of text files as their reader takes them for numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.is_in(array, value_set=pa.array(NULLS, array.type))
    known = pc.if_else(missing, pa.scalar(None, array.type), array)
    texts = pc.utf8_trim(known, " \t")
    if decimal != ".":  # a point is no part of a number then
        texts = pc.replace_substring(pc.replace_substring(texts, ".", "?"), decimal, ".")
    numbers, wrong = _cast(texts, pa.float64(), _NUMBER)
    return _numbers(numbers), wrong


def _cast(texts: Any, kind: Any, looks: str) -> tuple[Any, Bits | None]:
    """Texts as another type, null where that fails; only what looks like it is tried."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return texts.cast(kind), None
    except pa.ArrowInvalid:
        pass
    codes = texts.dictionary_encode()
    words = codes.dictionary
    good = _bits(pc.match_substring_regex(words, looks))
    waiting = [np.flatnonzero(good)]
    while waiting:
        places = waiting.pop()
        try:
            words.take(pa.array(places)).cast(kind)
        except pa.ArrowInvalid:
            middle = len(places) // 2
            waiting += [places[:middle], places[middle:]] if middle else []
            good[places if not middle else places[:0]] = False
    found = pc.if_else(pa.array(good), words, pa.scalar(None, words.type)).cast(kind)
    return found.take(codes.indices), _bits(texts.is_valid()) & ~_bits(
        pa.array(good).take(codes.indices)
    )


def texts_of(array: Any) -> Any:
    """Labels as text: whole numbers without a point."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(array.type):
        whole = pc.equal(pc.floor(array), array)
        bounded = pc.less(pc.abs(array), 2.0**53)
        as_whole = pc.cast(pc.if_else(pc.and_(whole, bounded), array, None), pa.int64())
        return pc.coalesce(pc.cast(as_whole, pa.string()), pc.cast(array, pa.string()))
    return array.cast(pa.large_string()) if _is_text(array.type) else array.cast(pa.string())


def _is_missing(texts: Any) -> npt.NDArray[np.bool_]:
    """Whether cells are missing, or spelled like a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    spelled = pc.is_in(plain, value_set=pa.array(MISSING_WORDS, plain.type))
    return _bits(pc.or_(pc.is_null(texts), spelled))


def _bits(array: Any) -> npt.NDArray[np.bool_]:
    return np.asarray(array.cast("uint8").fill_null(0)).astype(np.bool_)


def _index(texts: Any, known: Iterable[str]) -> npt.NDArray[np.int64]:
    """Places of texts in a list, -1 for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(texts, value_set=pa.array(list(known), texts.type))
    return np.asarray(found.fill_null(-1)).astype(np.int64)


def _places(column: Category, texts: Any) -> Floats:
    """Places among the labels; a listed value is never missing, however it is spelled."""
    place = _index(texts, column.values)
    values = place.astype(np.float64)
    unknown = place < 0
    values[unknown] = column.labels.index("other")
    values[unknown & _is_missing(texts)] = np.nan
    return values


def _flags(column: Flag, array: Any) -> Parsed:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_text(array.type):
        values = _numbers(array)
        wrong = ~np.isin(values, (0.0, 1.0)) & np.isfinite(values)
    else:
        texts = pc.utf8_lower(pc.utf8_trim_whitespace(array.cast(pa.large_string())))
        own = [
            [] if word is None else [word.strip().lower()] for word in (column.false, column.true)
        ]
        yes = [*own[1], *(word for word in _YES if word not in own[0])]
        no = [*own[0], *(word for word in _NO if word not in own[1])]
        place = _index(texts, [*no, *yes])
        values = np.where(place < 0, np.nan, place >= len(no)).astype(np.float64)
        wrong = (place < 0) & ~_is_missing(texts)
    return (np.where(wrong, np.nan, values), wrong) if wrong.any() else (values, None)


def _seconds(column: Date, array: Any) -> Parsed:
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = None
    if _is_text(array.type):
        texts = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
        missing = _is_missing(texts)
        known = pc.if_else(pa.array(missing), pa.scalar(None, texts.type), texts)
        array, wrong = _moments(column, known)
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("s"), safe=False)
    # Wider units first: what lies beyond those of a narrow one is not wrapped around.
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    missing = _bits(pc.is_null(array))
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0)).astype(np.float64)
    return np.where(missing, np.nan, ticks / per_second), wrong


def _moments(column: Date, texts: Any) -> tuple[Any, Bits | None]:
    """Texts as moments; those without a zone stand for themselves, others are moved to UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.format is not None:
        found = pc.strptime(texts, format=column.format, unit="s", error_is_null=True)
        if found.null_count == texts.null_count:
            return found, None
        return found, _bits(pc.is_null(found)) & ~_bits(pc.is_null(texts))
    plain = _cast(texts, pa.timestamp("us"), _DAY)
    if plain[1] is None:
        return plain
    zoned = _cast(texts, pa.timestamp("us", "UTC"), _DAY)  # all of them have a zone, or none
    return zoned if zoned[0].null_count < plain[0].null_count else plain


def cells_of_objects(column: Column, cells: Iterable[Any], what: str) -> Any:
    """An Arrow array from Python objects, each read by itself; of a `Raw` column, with marks."""
    import pyarrow as pa

    if not isinstance(column, Raw):
        read, kind = _object_reader(column, what)
        return pa.array([read(cell) for cell in cells], kind)
    return marked_cells(*_object_reader(column.column, what), cells)


def marked_cells(read: Callable[[Any], Any], kind: Any, cells: Iterable[Any]) -> Any:
    """Cells of a `Raw` column, each with a mark: whether it cannot be read."""
    import pyarrow as pa

    found: list[Any] = []
    wrong: list[bool] = []
    for cell in cells:
        try:
            found.append(read(cell))
            wrong.append(False)
        except RecordError:
            found.append(None)
            wrong.append(True)
    return pa.StructArray.from_arrays([pa.array(found, kind), pa.array(wrong)], [_CELL, _WRONG])


_CELL, _WRONG = "privsketch cell", "privsketch wrong"  # fields of marked cells


def _object_reader(column: Column, what: str) -> tuple[Callable[[Any], Any], Any]:
    """What reads one object, and the Arrow type of the results."""
    import pyarrow as pa

    if isinstance(column, Date):
        return lambda cell: _moment(cell, column, what), pa.timestamp("us")
    if isinstance(column, Category | Flag):
        return lambda cell: text_cell(cell, column.name, what), pa.large_string()
    return lambda cell: cell_number(cell, f"column {column.name!r}"), pa.float64()


def text_cell(cell: Any, name: str, what: str) -> str | None:
    """A label, or the name of a person, as text; None if it is missing."""
    if is_missing_cell(cell):
        return None
    if isinstance(cell, str | int | float | bool | np.generic) and not isinstance(
        cell, np.datetime64 | np.timedelta64
    ):
        return label_text(cell)
    raise RecordError(f"{what}: column {name!r}: a cell is neither a text nor a number")


def _moment(cell: Any, column: Date, what: str) -> int | None:
    """Microseconds since 1970."""
    if is_missing_cell(cell) or (isinstance(cell, str) and cell.strip().lower() in MISSING_WORDS):
        return None
    try:
        if isinstance(cell, np.datetime64):
            return int(cell.astype("datetime64[us]").astype(np.int64))
        if isinstance(cell, str):
            text = cell.strip()
            cell = (
                datetime.fromisoformat(text)
                if column.format is None
                else datetime.strptime(text, column.format)
            )
        elif isinstance(cell, date) and not isinstance(cell, datetime):
            cell = datetime(cell.year, cell.month, cell.day)
        moment: datetime = cell.replace(tzinfo=UTC) if cell.tzinfo is None else cell.astimezone(UTC)
        return round(moment.timestamp() * 1e6)
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    raise RecordError(f"{what}: column {column.name!r}: a cell is no date")
