"""Cells of a table as the values that a schema's columns encode.

Numbers stay numbers, dates become seconds since 1970, labels their places; NaN is missing. A cell's
value depends on the cell and on the type of its column, which is public, never on other cells. What
cannot be read is an error that names the column and the fault, and no value. Only a look at a table
by its holder (`tables/survey/check`) goes on: cells of a `Raw` column come as they stand, and
`looked_at` says which of them would be errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError, TableError
from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Date, Rule
from privsketch.facts.labels import NO_NUMBERS, Category, Flag, label_text
from privsketch.tables.memory import (
    as_floats,
    cell_number,
    is_missing_cell,
    plain_array,
    plain_kind,
)
from privsketch.tables.untyped.conversion import (
    MISSING_WORDS,
    Bits,
    bits,
    cast_texts,
    number_in_text,
    numbers_in_text,
)

# Values (n,), and which cells cannot be read: None if all can.
Parsed = tuple[Floats, Bits | None]
_YES, _NO = ("1", "true", "yes", "t", "y"), ("0", "false", "no", "f", "n")
# What Arrow may take for a date; nothing else is one.
_DAY = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"
_ZONE = r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"  # behind a time of day
# Digits below a microsecond: Arrow reads six of them, pandas writes nine.
_NANOSECONDS = r"(:\d\d\.\d{6})\d{1,3}(Z|[+-]\d\d(?::?\d\d)?)?$"
# What a label may be in another spelling of: numbers, true and false.
_LABEL = r"^([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:true|false))$"
_INFINITE = tuple(sign + word for sign in ("", "+", "-") for word in NO_NUMBERS)


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


@dataclass(frozen=True)
class Plain(Column):
    """A number as it stands, without bounds: a column of a table that has no schema."""

    KIND: ClassVar[str] = "number"
    RULES: ClassVar[tuple[Any, ...]] = ("keep",)

    name: str
    weight: float = 1.0
    missing: Any = "keep"
    fill: Any = None

    def encode(self, values: Floats) -> Floats:
        """Return these values; missing ones stay NaN."""
        return values[np.newaxis]


def values_of(column: Column, array: Any, what: str, *, unreadable: str = "error") -> Floats:
    """Return values (n,) of an Arrow array of cells; `what` names the table in errors.

    Cells that cannot be read are an error, or NaN where `unreadable` is "missing".
    """
    is_total = unreadable == "missing"
    require_kind(column, array.type, what, may_be_text=is_total)
    values, wrong = _parsed(column, array, is_text=is_total)
    if wrong is not None and not is_total:
        raise RecordError(f"{what}: column {column.name!r}{_fault(column)}")
    return values


def looked_at(column: Column, array: Any, *, decimal: str | None = None) -> Parsed:
    """Return values of cells of a `Raw` column; those that would be an error are marked and NaN.

    `decimal` is the mark of a text file that they stand in, where everything is text.
    """
    import pyarrow as pa

    marked = None
    is_number = decimal is not None and not column.READS_TEXT
    if pa.types.is_struct(array.type) and array.type.names == [_CELL, _WRONG]:
        marked, array = bits(array.field(_WRONG)), array.field(_CELL)
    try:
        if not is_number:
            require_kind(column, array.type, "")
    except RecordError:  # of a type that holds no such cells
        return np.full(len(array), np.nan), bits(array.is_valid())
    values, wrong = _parsed(column, array, is_text=is_number, decimal=decimal or ".")
    if marked is None or not marked.any():
        return values, wrong
    return values, marked if wrong is None else marked | wrong


def _parsed(column: Column, array: Any, *, is_text: bool = False, decimal: str = ".") -> Parsed:
    """Return values of cells, and which cannot be read; `is_text`: numbers may stand in texts."""
    import pyarrow as pa

    array = plain_array(array)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan), None
    if isinstance(column, Category):
        return _places(column, texts_of(array)), None
    if isinstance(column, Flag):
        return _flags(column, array)
    if isinstance(column, Date):
        return _seconds(column, array)
    if is_text and _is_text(array.type):
        numbers, wrong = numbers_in_text(array.cast(pa.large_string()), decimal)
        return _numbers(numbers), wrong
    return _numbers(array), None


def _fault(column: Column) -> str:
    """Return the words about a cell that cannot be read."""
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


def require_kind(column: Column, kind: Any, what: str, *, may_be_text: bool = False) -> None:
    """Refuse an Arrow type that cannot hold a column's cells; text may hold numbers or not."""
    import pyarrow.types as types

    if isinstance(column, Raw):
        return
    kind = plain_kind(kind)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_text, is_flag = _is_text(kind), types.is_boolean(kind)
    fits = is_number or is_flag or (is_text and may_be_text)
    if isinstance(column, Category | Flag):
        fits = is_text or is_number or is_flag
    elif isinstance(column, Date):
        fits = is_text or types.is_timestamp(kind) or types.is_date(kind)
    if not (fits or types.is_null(kind)):
        raise TableError(
            f"{what}: column {column.name!r} is {kind}, and a {column.KIND} in the schema"
        )


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _numbers(array: Any) -> Floats:
    found = as_floats(array)
    if found.null_count:
        found = found.fill_null(float("nan"))
    return np.array(np.from_dlpack(found), dtype=np.float64)


def texts_of(array: Any) -> Any:
    """Return labels as text in their one spelling (`label_text`); null where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(array.type):
        return array.cast(pa.string()).cast(pa.large_string())
    if not _is_text(array.type):
        return _number_texts(_numbers(array))
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    codes = trimmed.dictionary_encode()
    words = codes.dictionary
    looks = bits(pc.match_substring_regex(words, _LABEL))  # others are as they stand
    places = np.flatnonzero(looks)
    if len(places) == 0:
        return trimmed
    spelled = [label_text(word) for word in words.take(pa.array(places)).to_pylist()]
    whole = pc.replace_with_mask(words, pa.array(looks), pa.array(spelled, words.type))
    return whole.take(codes.indices)


def _number_texts(values: Floats) -> Any:
    """Return numbers as labels; those that are none are null."""
    import pyarrow as pa

    known = np.isfinite(values)
    unique, places = np.unique(np.where(known, values, 0.0), return_inverse=True)
    texts = pa.array([label_text(number) for number in unique.tolist()], pa.large_string())
    return texts.take(pa.array(places, mask=~known))


def _is_missing(texts: Any) -> npt.NDArray[np.bool_]:
    """Return whether cells are missing, or spelled like a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    spelled = pc.is_in(plain, value_set=pa.array([*MISSING_WORDS, *_INFINITE], plain.type))
    return bits(pc.or_(pc.is_null(texts), spelled))


def _index(texts: Any, known: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return the indices of texts in a list, -1 for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    indices = pc.index_in(texts, value_set=pa.array(list(known), texts.type))
    return np.asarray(indices.fill_null(-1)).astype(np.int64)


def _places(column: Category, texts: Any) -> Floats:
    """Return indices of labels; a listed value is never missing, however it is spelled."""
    indices = _index(texts, column.keys)
    values = indices.astype(np.float64)
    unknown = indices < 0
    values[unknown] = column.labels.index("other")
    values[unknown & _is_missing(texts)] = np.nan
    return values


def _flags(column: Flag, array: Any) -> Parsed:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(array.type) and column.true is None and column.false is None:
        return _numbers(array), None
    texts = pc.utf8_lower(texts_of(array))
    own = [
        [] if word is None else [label_text(word).lower()] for word in (column.false, column.true)
    ]
    yes = [*own[1], *(word for word in _YES if word not in own[0])]
    no = [*own[0], *(word for word in _NO if word not in own[1])]
    indices = _index(texts, [*no, *yes])
    values = np.where(indices < 0, np.nan, indices >= len(no)).astype(np.float64)
    wrong = (indices < 0) & ~_is_missing(texts)
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
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
    missing = bits(pc.is_null(array))
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0)).astype(np.int64)
    # The same bits in every unit, which libraries choose by the finest of all cells.
    seconds, rest = np.divmod(ticks, per_second)
    if per_second > 10**6:  # texts and times of other libraries end at microseconds
        rest, per_second = rest // (per_second // 10**6), 10**6
    return np.where(missing, np.nan, seconds + rest / per_second), wrong


def _moments(column: Date, texts: Any) -> tuple[Any, Bits | None]:
    """Return texts as moments, in whole microseconds; those with a zone are moved to UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.format is not None:
        codes = texts.dictionary_encode()
        ticks = [spelled_date(word, column.format) for word in codes.dictionary.to_pylist()]
        moments = pa.array(ticks, pa.timestamp("ns")).take(codes.indices)
        faults = bits(pc.is_null(moments)) & ~bits(pc.is_null(texts))
        return moments, faults if faults.any() else None
    texts = pc.replace_substring_regex(texts, _NANOSECONDS, r"\1\2")
    has_zone = pc.match_substring_regex(texts, _ZONE)
    nothing = pa.scalar(None, texts.type)
    plain, wrong = cast_texts(pc.if_else(has_zone, nothing, texts), pa.timestamp("us"), _DAY)
    if not bits(has_zone).any():
        return plain, wrong
    zoned, also = cast_texts(pc.if_else(has_zone, texts, nothing), pa.timestamp("us", "UTC"), _DAY)
    moments = pc.coalesce(plain, zoned.cast(pa.timestamp("us")))
    masks = [bits for bits in (wrong, also) if bits is not None]
    return moments, np.logical_or.reduce(masks) if masks else None


@lru_cache(maxsize=2**16)  # days come again and again
def spelled_date(text: str, format: str | None) -> int | None:
    """Return nanoseconds since 1970 of a date in its format or the usual one; None for neither.

    The one way to read a date, whether a column is text or holds objects. Dates of sheets come in
    the usual spelling, whatever that of text is.
    """
    import pyarrow as pa

    if format is not None:
        try:
            return _since_1970(datetime.strptime(text, format))
        except (ValueError, OverflowError):
            pass
    usual, _ = _moments(_USUAL, pa.array([text], pa.large_string()))
    ticks = usual.cast(pa.int64())[0].as_py()
    return None if ticks is None else _cut(ticks * 1000)


_USUAL = Date("day", "2000-01-01", "2001-01-01")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = 2**63 - 1


def _since_1970(moment: datetime, extra: int = 0) -> int:
    """Return nanoseconds since 1970; `extra` are those below a microsecond."""
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return _cut((zoned - _EPOCH) // timedelta(microseconds=1) * 1000 + extra)


def _cut(ticks: int) -> int:
    """Return numbers that 64 bits hold; others lie beyond all bounds."""
    return max(-_FAR, min(int(ticks), _FAR))


def cells_of_objects(
    column: Column, cells: Iterable[Any], what: str, *, unreadable: str = "error"
) -> Any:
    """Return an Arrow array of Python objects, each read by itself, marked for a `Raw` column."""
    import pyarrow as pa

    is_raw = isinstance(column, Raw)
    own = column.column if isinstance(column, Raw) else column
    read, kind = _object_reader(own, what, may_be_text=not is_raw and unreadable == "missing")
    if not is_raw and unreadable == "error":
        return pa.array([read(cell) for cell in cells], kind)
    marked = marked_cells(read, kind, cells)
    return marked if is_raw else marked.field(_CELL)


def marked_cells(read: Callable[[Any], Any], kind: Any, cells: Iterable[Any]) -> Any:
    """Return cells, each with a mark: whether it cannot be read."""
    import pyarrow as pa

    values: list[Any] = []
    wrong: list[bool] = []
    for cell in cells:
        value = readable(read, cell)
        values.append(None if value is UNREADABLE else value)
        wrong.append(value is UNREADABLE)
    return pa.StructArray.from_arrays([pa.array(values, kind), pa.array(wrong)], [_CELL, _WRONG])


UNREADABLE: Any = object()


def readable(read: Callable[[Any], Any], cell: Any) -> Any:
    """Return what is read from a cell, or UNREADABLE; objects may fail in any way they like."""
    try:
        return read(cell)
    except MemoryError:
        raise
    except Exception:
        return UNREADABLE


_CELL, _WRONG = "privsketch cell", "privsketch wrong"  # fields of marked cells


def _object_reader(
    column: Column, what: str, *, may_be_text: bool
) -> tuple[Callable[[Any], Any], Any]:
    """Return a function that reads one object, and the Arrow type of its results.

    `may_be_text`: numbers may stand in texts, as they do in a column of texts.
    """
    import pyarrow as pa

    if isinstance(column, Date):
        return lambda cell: _moment(cell, column, what), pa.timestamp("ns")
    if isinstance(column, Category | Flag):
        return lambda cell: text_cell(cell, column.name, what), pa.large_string()
    where = f"column {column.name!r}"

    def number(cell: Any) -> float | None:
        if may_be_text and isinstance(cell, str):
            return number_in_text(cell)
        return cell_number(cell, where)

    return number, pa.float64()


def text_cell(cell: Any, name: str, what: str) -> str | None:
    """Return a label, or the name of a person, as text; None if it is missing."""
    if is_missing_cell(cell):
        return None
    is_time = isinstance(cell, np.datetime64 | np.timedelta64)
    if isinstance(cell, str | int | float | bool | np.generic | Decimal) and not is_time:
        text = cell if isinstance(cell, str) else label_text(cell)
        try:
            text.encode()
        except UnicodeEncodeError:
            pass  # half a character: Arrow's error would quote it
        else:
            return text
    raise RecordError(f"{what}: column {name!r}: a cell is neither a text nor a number")


def _moment(cell: Any, column: Date, what: str) -> int | None:
    """Return a moment in nanoseconds since 1970."""
    if is_missing_cell(cell) or (isinstance(cell, str) and cell.strip().lower() in MISSING_WORDS):
        return None
    moment: int | None = None
    try:
        if isinstance(cell, np.datetime64):
            return _ticks(cell)
        if isinstance(cell, str):
            moment = spelled_date(cell.strip(), column.format)
        elif isinstance(cell, datetime):  # of pandas, with more digits
            moment = _since_1970(cell, int(getattr(cell, "nanosecond", 0)))
        elif isinstance(cell, date):
            moment = _since_1970(datetime(cell.year, cell.month, cell.day))
    except (AttributeError, TypeError, ValueError, OverflowError):
        pass
    if moment is None:
        raise RecordError(f"{what}: column {column.name!r}: a cell is no date")
    return moment


def _ticks(cell: np.datetime64) -> int:
    """Return nanoseconds since 1970, in whole numbers of any size until they are cut."""
    unit, count = np.datetime_data(cell.dtype)
    if unit in ("Y", "M"):
        cell, unit, count = cell.astype("datetime64[D]"), "D", 1
    each = {"W": 604800, "D": 86400, "h": 3600, "m": 60, "s": 1}
    per_unit = {name: seconds * 10**9 for name, seconds in each.items()}
    per_unit |= {"ms": 10**6, "us": 10**3, "ns": 1}
    ticks = int(cell.astype(np.int64)) * count
    return _cut(ticks * per_unit[unit] if unit in per_unit else ticks // 1000)  # ps and finer
