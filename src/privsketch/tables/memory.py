"""Tables in memory or in a stream: arrays, pandas frames, anything that speaks Arrow.

And what all readers share: which columns of a table make a record, and whether they are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError, TableError
from privsketch._base.types import Block
from privsketch.facts.schema import Schema
from privsketch.tables.marks import Noter
from privsketch.tables.untyped.format import PLAIN, FileFormat

# Records, and an Arrow batch of the carried columns of the same rows; None without such columns.
Rows = tuple[Block, Any]
_Item = TypeVar("_Item")
# Values per block that readers ask for: 2 MB of float64, for which Arrow needs several times that.
# Each column of a block costs time: where its rows would be few there are more, up to 16 MB.
BLOCK_VALUES, WIDE_ROWS = 2**18, 2**13


def own_errors(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items; raise our errors without those that they were made from.

    Libraries quote what they stumble over, and an exception keeps the one that it replaced.
    """
    failure = None
    try:
        yield from items
    except RecordError as error:
        failure = error.without_causes()
    if failure is not None:
        raise failure


def array_blocks(array: Block, selection: Selection) -> Iterator[Block]:
    """Yield blocks of a NumPy array."""
    if array.ndim != 2:
        raise TableError(
            f"expected a table with rows and columns (2 dimensions), got {array.ndim}; reshape "
            "your data: array.reshape(-1, 1) for one column"
        )
    if array.dtype.kind not in "fiubO":
        kind = array.dtype.type.__name__  # of text, not how long the longest is
        raise TableError(f"a column is not numeric (array of {kind})")
    places = array_columns(array.shape[1], selection)
    if isinstance(array, np.matrix):  # which would multiply as such
        array = np.asarray(array)
    rows = rows_per_block(selection.dim)
    for first in range(0, len(array), rows):
        block = array[first : first + rows]
        if places is not None:
            block = block[:, places]
        mask = np.ma.getmaskarray(block) if isinstance(block, np.ma.MaskedArray) else None
        block = np.asarray(block)
        if block.dtype == object:
            cells = block.copy()
            cells[slice(0) if mask is None else mask] = None  # what is under it is not looked at
            block = object_numbers(cells, places)
        elif mask is not None:  # masked means missing
            block = np.where(mask, np.nan, block.astype(np.float64))
        yield block


def array_columns(width: int, selection: Selection) -> list[int] | None:
    """Return numbers of the columns of an array to read; None for all of them."""
    if selection.columns is None:
        if width != selection.dim:
            raise TableError(wrong_width("table", width, selection.dim))
        return None
    if any(isinstance(column, str) for column in selection.columns):
        raise TableError("columns: an array has no column names; give column numbers")
    return checked_columns([int(column) for column in selection.columns], width)


def pandas_blocks(frame: Any, selection: Selection) -> Iterator[Block]:
    """Yield blocks of a pandas frame, whose index is not part of a record."""
    if getattr(frame, "ndim", 0) != 2:
        raise TableError("expected a table with rows and columns; use series.to_frame()")
    labels = [str(label) for label in frame.columns]
    names = selected_names(labels, selection, "table")
    columns = [_pandas_column(frame.iloc[:, labels.index(name)]) for name in names]
    rows = rows_per_block(selection.dim)
    for first in range(0, len(frame), rows):
        parts = (column[first : first + rows] for column in columns)
        yield _columns_block([_numbers(p, n) for p, n in zip(parts, names, strict=True)])


def _pandas_column(column: Any) -> Any:
    """Return what is indexed for the cells of a column: its array if it has plain numbers."""
    kind = column.dtype
    is_plain = isinstance(kind, np.dtype) and kind.str in _PLAIN
    return np.asarray(column) if is_plain else column.iloc


def _numbers(cells: Any, name: str) -> npt.NDArray[Any]:
    """Return cells of a column as numbers, as float64 if they are not plain ones.

    Cells of type object are converted one by one: a type inferred from a block would
    let one record change how the others are read.
    """
    import pyarrow as pa

    if cells.dtype == object:
        return np.array([cell_number(cell, f"column {name!r}") for cell in cells], np.float64)
    if isinstance(cells, np.ndarray):
        return cells
    try:
        array = pa.array(cells, from_pandas=True)  # the index of a frame is not part of a record
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise RecordError(f"table: column {name!r} is not numeric but {cells.dtype}") from None
    require_numeric_type(array.type, name, "table")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    array = plain_array(array)
    return np.asarray(as_floats(array).to_numpy(zero_copy_only=False))


def list_blocks(rows: Sequence[Any], selection: Selection) -> Iterator[Block]:
    """Yield blocks of a nested list of numbers, read as float64 whatever else is in it."""
    is_masked = any(isinstance(row, np.ma.MaskedArray) for row in rows)
    try:
        array = np.ma.vstack(rows) if is_masked else np.asarray(rows)
    except ValueError:
        raise RecordError("the rows of the list do not all have the same length") from None
    if array.dtype.kind not in "fiubO":
        raise RecordError("a column is not numeric: a cell of the list is no number")
    # NumPy takes a type from all cells: integers, floats, or objects where a cell is None. The
    # number that becomes of a cell is the same, as each of these is rounded to float64 once.
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # a long double beyond all floats is infinite
            array = array.astype(np.float64)
    yield from array_blocks(array, selection)


def object_numbers(cells: Block, numbers: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
    """Return Python objects as float64, each by itself; `numbers` are those of its columns."""
    if cells.ndim != 2:
        return np.array([cell_number(cell, "a column") for cell in cells.ravel()], np.float64)
    words = [f"column number {n} (from 0)" for n in numbers or range(cells.shape[1])]
    rows = [[cell_number(c, w) for c, w in zip(row, words, strict=True)] for row in cells]
    return np.array(rows, dtype=np.float64).reshape(cells.shape)


def cell_number(cell: Any, where: str) -> float:
    """Return a cell as a number; NaN if it is missing, or no float holds it.

    One record must not stop all others: an integer or a decimal beyond all floats and a
    signalling NaN are missing values, as infinite ones are.
    """
    if is_missing_cell(cell):
        return float("nan")
    # A time difference calls itself an integer.
    is_time = isinstance(cell, np.datetime64 | np.timedelta64)
    if is_time or not isinstance(cell, Real | np.bool_ | Decimal):
        raise RecordError(f"table: {where} is not numeric")
    try:
        with np.errstate(over="ignore"):  # a long double beyond all floats is infinite
            return float(cell)
    except (OverflowError, ValueError, ArithmeticError):
        return float("nan")


def is_missing_cell(cell: Any) -> bool:
    """Return whether a Python object stands for a missing value, in any library's spelling."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return bool(np.isnat(cell))
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def stream_blocks(data: Any, selection: Selection) -> Iterator[Block]:
    """Yield blocks of anything that offers an Arrow stream or array."""
    with opened_stream(data) as reader:
        names = selected(reader.schema, selection, "table")
        for batch in reader:
            for block, _ in batch_rows(batch, names):
                yield block


@contextmanager
def opened_stream(data: Any) -> Iterator[Any]:
    """Open the batches of an Arrow stream or array; foreign errors become ours."""
    import pyarrow as pa

    try:
        if hasattr(data, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(data)
        else:
            batch = pa.record_batch(data)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        with reader:
            yield reader
    except RecordError:
        raise
    except Exception:
        # Whatever produces the stream may fail while it is read, and quote a record.
        raise RecordError("table: its Arrow stream cannot be read as a table") from None


def batch_rows(batch: Any, names: Sequence[str], carried: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield a record batch in blocks of moderate size, with the carried columns."""
    rows = rows_per_block(len(names))
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        yield _batch_block(part, names), part.select(list(carried)) if carried else None


def selected_rows(batch: Any, names: Sequence[str], selection: Selection) -> Iterator[Rows]:
    """Yield the blocks of a selection; with a schema, batches of its columns."""
    if selection.schema is None:
        yield from batch_rows(batch, names, selection.carried)
        return
    own = selection.schema.all_names  # columns may be selected by number
    rows = rows_per_block(selection.dim)
    for first in range(0, batch.num_rows, rows):
        part = batch.slice(first, rows)
        carried = part.select(list(selection.carried)) if selection.carried else None
        yield part.select(list(names)).rename_columns(own), carried


def _batch_block(batch: Any, names: Sequence[str]) -> Block:
    """Return a record batch as numbers (n, dim); nulls become NaN, which the quantiser refuses."""
    import pyarrow as pa

    columns = []
    for name in names:
        column = plain_array(batch.column(name))
        kind = column.type
        if column.null_count or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            column = column if kind == pa.float32() else as_floats(column)
        columns.append(_arrow_numbers(column))
    return _columns_block(columns)


def plain_kind(kind: Any) -> Any:
    """Return the Arrow type that cells of a type are read in.

    Dictionaries, runs, views and extensions say how cells are kept, not what they are: a column of
    labels is text, whatever library exports it.
    """
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return plain_kind(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_kind(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def plain_array(array: Any) -> Any:
    """Return an Arrow array in the type that `plain_kind` names. Arrow itself decodes no views."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_array(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain_array(pc.run_end_decode(array))
    return array if plain_kind(kind) == kind else array.cast(plain_kind(kind))


def as_floats(array: Any) -> Any:
    """Return an Arrow array of numbers as float64, each rounded once.

    Arrow divides decimals by a power of ten that depends on the type, and libraries infer that from
    all cells: the text of a decimal is the same in every type.
    """
    import pyarrow as pa

    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    return array.cast(pa.float64(), safe=False)


def _arrow_numbers(column: Any) -> npt.NDArray[Any]:
    """Return numbers of an Arrow array without a copy; nulls, which only floats have, become NaN.

    Arrow's own way to NumPy imports pandas, which takes 45 MB.
    """
    if column.null_count:
        column = column.fill_null(float("nan"))
    return np.from_dlpack(column)


# Types of numbers that a block takes from a column without a look at any of them.
_PLAIN = frozenset(np.dtype(kind).str for kind in ("f2", "f4", "f8", *"bhilqBHILQ"))


def _columns_block(columns: Sequence[npt.NDArray[Any]]) -> Block:
    """Return columns as a block (n, dim): float32 if all are, else float64, rounded once.

    In memory it is column by column, as Arrow and pandas have them: to write rows takes three
    times as long, and quantisers read either.
    """
    single = all(column.dtype == np.float32 for column in columns)
    block = np.empty((len(columns), len(columns[0])), np.float32 if single else np.float64)
    for row, column in zip(block, columns, strict=True):
        row[:] = column
    return block.T


def rows_per_block(dim: int) -> int:
    """Return how many records of `dim` columns a reader should hand on at a time."""
    return max(1, BLOCK_VALUES // dim, min(WIDE_ROWS, 8 * BLOCK_VALUES // dim))


@dataclass(frozen=True, eq=False, repr=False)
class Joined:
    """A table in memory, and the cells of one more column: of the kind "joined".

    A schema reads both as one table. `cells` are an array (n,) or a Series, by place and not by
    index.
    """

    table: Any  # a Table
    name: str
    cells: Any


class FoundName(str):
    """A name that stands in the first line of a text file, and that nobody stated.

    It finds a column, but is neither shown nor published: the line may be a record.
    """

    __slots__ = ()


@dataclass(frozen=True)
class Selection:
    """Which columns make a record: those asked for, else by name where a table has names.

    `carried` are columns that come along beside the record (tables/carried.py). `format` is
    what the caller says of how files are written. With a `schema`, `names` are its columns,
    persons at the end, and `dim` is that of encoded records. A `noter` sees all records that are
    read, those of persons that will not count included. `neighbours` are those of the release, None
    where nothing is released, and `to_center` says that missing values of a table without a schema
    go to the middle: both decide what an empty row of a sheet is.
    """

    dim: int
    columns: tuple[str | int, ...] | None
    names: tuple[str, ...] | None
    carried: tuple[str, ...] = ()
    format: FileFormat = PLAIN
    schema: Schema | None = None
    noter: Noter | None = field(default=None, compare=False)
    neighbours: str | None = "add-remove"
    to_center: bool = False

    @property
    def is_total(self) -> bool:
        """Whether a cell that cannot be read is a missing value, and stops nothing."""
        said = self.format.unreadable if self.schema is None else self.schema.unreadable
        return said == "missing"

    @property
    def n_asked(self) -> int:
        """Number of columns that are read."""
        return len(self.columns or self.names or range(self.dim)) + len(self.carried)

    @property
    def leaves_out_empty_rows(self) -> bool:
        """Whether an empty row of a sheet is left out: where it would count as a record.

        Under "replace" the number of records is stated. A rule that refuses missing values sees
        empty rows, one that drops them, or a row without a person, leaves them out anyway.
        """
        if self.neighbours != "add-remove":
            return False
        if self.schema is None:
            return self.to_center
        rules = {self.schema.rule(column) for column in self.schema.columns}
        return self.schema.person is None and not rules & {"error", "drop"}

    @property
    def stated(self) -> frozenset[str]:
        """Names that people wrote down, and that may be shown and published."""
        names = (*(self.columns or self.names or ()), *self.carried)
        return frozenset(n for n in names if isinstance(n, str) and not isinstance(n, FoundName))

    def texts_among(self, names: Sequence[str]) -> list[str]:
        """Return the selected columns of text files that a schema reads as text."""
        if self.schema is None:
            return []
        wanted = [column.READS_TEXT for column in self.schema.columns] + [True]  # of a person
        return [name for name, is_text in zip(names, wanted, strict=False) if is_text]

    @property
    def is_found(self) -> bool:
        """Whether names of the columns stand in a header, and nowhere else."""
        return any(isinstance(name, FoundName) for name in self.columns or self.names or ())


def selected(schema: Any, selection: Selection, what: str) -> list[str]:
    """Return the names of the columns to read, all of them numeric."""
    names = selected_names(schema.names, selection, what)
    require_numeric(schema, names, what)
    return names


def selected_names(
    available: Sequence[str], selection: Selection, what: str, *, may_show: bool = True
) -> list[str]:
    """Return the columns asked for, else the design's, else all if there are as many as needed.

    `may_show` is False if the names come from a line that may be a record: errors then say
    nothing of them.
    """
    columns = selection.columns if selection.columns is not None else selection.names
    if columns is None:
        if len(available) != selection.dim:
            raise TableError(wrong_width(what, len(available), selection.dim))
        names = list(available)
    else:
        numbers = [column for column in columns if isinstance(column, int)]
        checked_columns(numbers, len(available))
        names = [available[c] if isinstance(c, int) else c for c in columns]
        if len(set(names)) != len(names):
            raise TableError("columns: a column is named twice")
    for name in (*names, *selection.carried):
        if list(available).count(name) != 1:
            raise TableError(_misfit(available, name, selection, what, may_show))
    return names


def _misfit(
    available: Sequence[str], name: str, selection: Selection, what: str, may_show: bool
) -> str:
    """Return the words about a name that is not there, or there twice."""
    state = "unknown" if name not in available else "not unique"
    if may_show:
        shown = ", ".join(repr(name_there) for name_there in available[:12])
        more = ", ..." if len(available) > 12 else ""
        advice = (
            "; name them with `columns=[...]`, in their order"
            if selection.format.header is False
            else ""
        )
        return f"{what}: column {name!r} is {state}; it has {shown}{more}{advice}"
    advice = "names count letter by letter; if its first line is a record, say `header=False`"
    if name in selection.stated:
        return f"{what}: column {name!r} is {state} among its {len(available)} columns; {advice}"
    return f"{what}: a column name is {state}; {advice}"


def checked_columns(columns: list[int], width: int) -> list[int]:
    """Return column numbers from 0; negative ones count from the end."""
    for column in columns:
        if not -width <= column < width:
            raise TableError(f"columns: {column} is not a column of {width}")
    places = [column % width for column in columns]
    if len(set(places)) != len(places):
        raise TableError("columns: a column is named twice")
    return places


def wrong_width(what: str, n_columns: int, dim: int) -> str:
    """Return the words about a table with too many or too few columns."""
    return (
        f"{what} has {n_columns} columns, a record has dim={dim}; name the columns to use with "
        "`columns=[...]`"
    )


def require_numeric(schema: Any, names: Sequence[str], what: str) -> None:
    """Refuse an Arrow table in which one of the columns is not numeric."""
    for name in names:
        require_numeric_type(schema.field(name).type, name, what)


def require_numeric_type(kind: Any, name: str, what: str) -> None:
    """Refuse an Arrow type that is not numeric."""
    import pyarrow.types as types

    kind = plain_kind(kind)
    if not (
        types.is_null(kind)  # a column without any value
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    ):
        raise TableError(f"{what}: column {name!r} is not numeric but {kind}")
