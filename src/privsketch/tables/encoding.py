"""Records from Arrow batches of the columns of a schema (`batches`), and persons of rows.

Every column is encoded, missing values get what the schema says, and rows that are left out are
gone: what follows sees encoded records, and, if the schema names persons, whose they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import PrivsketchError, RecordError, TableError
from privsketch._base.types import Block, Floats
from privsketch.facts.columns import Column
from privsketch.facts.schema import Schema
from privsketch.tables.cells import require_kind, text_cell, values_of
from privsketch.tables.memory import is_missing_cell, plain_array, plain_kind
from privsketch.tables.untyped.conversion import MISSING_WORDS

# Persons of some rows: whole numbers, or an Arrow array of bytes.
Persons = npt.NDArray[np.int64] | Any
_Read = TypeVar("_Read")


def encoded(batch: Any, schema: Schema, what: str = "table") -> tuple[Block, Persons | None]:
    """Return records (n, dim) of a batch's rows that are not left out, and whose they are."""
    if schema.unreadable == "missing":
        return guarded(lambda: _encoded_any(batch, schema, what), what)
    return guarded(lambda: _encoded(batch, schema, what), what)


def _encoded_any(batch: Any, schema: Schema, what: str) -> tuple[Block, Persons | None]:
    """Return the records whatever bytes stand in texts, which stop libraries."""
    try:
        return _encoded(batch, schema, what)
    except (PrivsketchError, MemoryError):
        raise
    except Exception:
        return _encoded(_with_valid_text(batch), schema, what)


def guarded(read: Callable[[], _Read], what: str = "table") -> _Read:
    """Return what a function reads; errors of libraries, which may quote a record, become ours."""
    failure = ""
    try:
        return read()
    except (PrivsketchError, MemoryError):
        raise
    except Exception as error:  # of a library, which may quote what it stumbles over
        failure = type(error).__name__
    raise RecordError(f"{what}: it cannot be read by the schema ({failure}): damaged text?")


def _with_valid_text(batch: Any) -> Any:
    """Return a batch in which bytes that are no UTF-8 become U+FFFD, text by text."""
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
    """Return persons as texts, and the empty text, which is nobody's name, where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = _as_names(persons)
    return pc.if_else(pa.array(nobody), pa.scalar(b"", names.type), names)


def _as_names(persons: Persons) -> Any:
    """Return whole numbers as the texts that stand for them."""
    import pyarrow as pa

    if not isinstance(persons, np.ndarray):
        return persons
    return pa.array(persons).cast(pa.large_string()).cast(pa.large_binary())


def all_encoded(
    batch: Any, schema: Schema, what: str = "table"
) -> tuple[Block, npt.NDArray[np.bool_]]:
    """Return points (n, dim) of all rows of a batch, and which of them are not left out."""
    points = np.empty((schema.dim, batch.num_rows))
    kept = np.ones(batch.num_rows, dtype=np.bool_)
    for column, rows in schema.places():
        cells = batch.column(column.name)
        values = column.encodable(values_of(column, cells, what, unreadable=schema.unreadable))
        missing = np.isnan(values)
        if missing.any():
            _settle(column, schema.rule(column), values, missing, kept, what)
        points[rows] = column.encode(values)
        if schema.rule(column) == "center":
            points[rows, missing] = column.center[:, np.newaxis]
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
    """Return persons of rows, and which rows name none.

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
    """Return persons from floats of so many binary digits."""
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
    """Return names of persons in one spelling: no blanks around them, and whole numbers as such.

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
    """Return a number in the spelling of a whole one, if it is one that all types hold."""
    try:
        number = Decimal(text)
        is_whole = number == number.to_integral_value() and abs(number) < 2**53
    except ArithmeticError:  # beyond all exponents
        return text
    return str(int(number)) if is_whole else text


def person_cell(cell: Any, name: str, what: str) -> str | None:
    """Return a person's name or number as text, every digit of it; None if it is missing."""
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
    """Return the persons of some rows."""
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
