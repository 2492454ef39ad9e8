"""Files of records together with columns that come along: what a release of rows reads.

The schemas of all files are looked at before any record is: names and types are public, and
decide alone which columns make a record. No column is left out or taken in by its values.
Carried columns keep their values and their rows; those of CSV and of sheets are text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privsketch._base.errors import RecordError, TableError
from privsketch._base.types import Block
from privsketch.facts.schema import Schema
from privsketch.tables.encoding import encoded, require_kinds
from privsketch.tables.files import UNTYPED, file_kind, file_rows, file_schema
from privsketch.tables.memory import (
    FoundName,
    Rows,
    Selection,
    array_columns,
    own_errors,
    plain_array,
    require_numeric,
    selected_names,
)
from privsketch.tables.reading import as_read, filled_up
from privsketch.tables.table import Table
from privsketch.tables.untyped.text import named_columns, numbered_columns, text_columns


@dataclass(frozen=True)
class RecordFiles:
    """Files that fit together, read in their order; `carried` is the schema of those columns."""

    table: Table
    paths: tuple[Path, ...]
    selection: Selection
    carried: Any

    @classmethod
    def of(
        cls,
        table: Table,
        carry: Sequence[str] | None = (),
        schema: Schema | None = None,
        *,
        neighbours: str = "add-remove",
    ) -> RecordFiles:
        """Look at the schemas of a table's files, and refuse files that do not fit.

        Without columns of the table, all but the carried ones make a record. Then all files must
        have the same columns, which are found by their names. `carry` are columns that come along,
        None where nothing can. A `schema` names the columns itself.
        """
        may_carry, carry = carry is not None, carry or ()
        paths, format = table.all_files, table.format
        _require_distinct(carry)
        is_total = (format.unreadable if schema is None else schema.unreadable) == "missing"
        is_record = is_total and format.header is False  # the first line, of which nothing is asked
        schemas: dict[Path, Any] = {
            path: None if is_record and file_kind(path) == "csv" else file_schema(path, format)
            for path in paths
        }
        selection = _selection(schemas, table, tuple(carry), schema, neighbours)
        carried: Any = None
        for path, fields in schemas.items():
            if isinstance(fields, int):
                _require_width(fields, selection)
                continue
            kind = file_kind(path)
            if kind in UNTYPED:
                of_line = text_columns if kind == "csv" else named_columns
                available = numbered_columns(selection) if fields is None else fields.names
                names, _ = of_line(available, path, selection)
            else:
                names = selected_names(fields.names, selection, str(path))
            _require_apart(names, selection.carried)
            if kind not in UNTYPED:  # whose readers see what is no number
                if schema is None:
                    _require_numeric(fields, names, path, may_carry)
                else:
                    require_kinds(fields, schema, str(path))
            carried = _same(carried, _carried_schema(kind, fields, selection.carried), path)
        return cls(table, paths, selection, carried)

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return self.selection.dim

    @property
    def looked_at(self) -> str:
        """What was seen of the files so far, in words."""
        if all(file_kind(path) not in UNTYPED for path in self.paths):
            return "no record was read, only the number, names and types of columns"
        if self.selection.format.header is False:
            return "no record was read, but for the number of cells in the first line of text files"
        return "no record was read, only the header of text files and sheets"

    @property
    def record_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a record that may be published, in their order.

        Those that were stated, or that are part of a schema. What stands in the first line of a
        text file is neither.
        """
        if self.selection.schema is not None:
            return self.selection.schema.coordinates
        names = self.selection.columns or self.selection.names
        if names is None or self.selection.is_found or any(isinstance(n, int) for n in names):
            return None
        return tuple(str(name) for name in names)

    def rows(self) -> Iterator[Rows]:
        """Yield blocks (n, dim) of records, each with a batch of carried columns, or None."""
        selection = as_read(self.table, self.selection)
        rows: Iterator[Rows] = (
            each for path in self.paths for each in own_errors(self._encoded(path, selection))
        )
        if selection.format.n_records is not None:
            rows = self._filled_up(rows, selection)
        for block, batch in rows:
            yield block, None if batch is None else _plain(batch, self.carried)

    def _encoded(self, path: Path, selection: Selection) -> Iterator[Rows]:
        schema = selection.schema
        for block, batch in file_rows(path, selection):
            yield block if schema is None else encoded(block, schema, str(path))[0], batch

    def _filled_up(self, rows: Iterator[Rows], selection: Selection) -> Iterator[Rows]:
        """Yield records of missing values at the end of a sheet, with which nothing comes along."""
        import pyarrow as pa

        batches: deque[Any] = deque()

        def blocks() -> Iterator[Block]:
            for block, batch in rows:
                batches.append(batch)
                yield block

        for block in filled_up(blocks(), selection):
            if batches or not self.selection.carried:
                yield block, batches.popleft() if batches else None
            else:
                nothing = [pa.nulls(len(block), field.type) for field in self.carried]
                yield block, pa.RecordBatch.from_arrays(nothing, schema=self.carried)


def _require_distinct(carry: Sequence[str]) -> None:
    for name in carry:
        if list(carry).count(name) > 1:
            raise TableError(f"carry: column {name!r} is named twice")


def _require_apart(names: Sequence[str], carry: Sequence[str]) -> None:
    for name in carry:
        if name in names:
            raise TableError(
                f"carry: column {name!r} is part of the record: carried along, it would be "
                "published as it is; leave it out of one of the two"
            )


def _selection(
    schemas: dict[Path, Any],
    table: Table,
    carry: tuple[str, ...],
    schema: Schema | None,
    neighbours: str,
) -> Selection:
    """Return the columns of a record, from the first file that has names."""

    def selection(dim: int, names: tuple[str, ...] | None = None) -> Selection:
        if dim == 0:
            raise TableError("columns: none is left to make a record of")
        return replace(table.selection(dim, names, schema, neighbours=neighbours), carried=carry)

    if schema is not None:
        return selection(schema.dim)
    named = {path: schema for path, schema in schemas.items() if not isinstance(schema, int)}
    if carry and len(named) < len(schemas):
        path = next(path for path in schemas if path not in named)
        raise TableError(f"carry: {path} is an array, whose columns have no names to carry")
    if table.columns is not None:
        return selection(len(table.columns))
    if not named:
        return selection(next(iter(schemas.values())))
    first, fields = next(iter(named.items()))
    is_total = table.unreadable == "missing"
    is_unknown = is_total or any(file_kind(path) == "excel" for path in named)
    if table.header is False and is_unknown:
        raise TableError(
            f"{first}: how many columns a file without a header has is not stated; name them with "
            "`columns=[...]`, from 0"
        )
    for path, other in named.items():
        if sorted(other.names) != sorted(fields.names):
            raise TableError(
                f"{path}: its columns are not those of {first}; name those that make a record "
                "with `columns=[...]`"
            )
    names = tuple(name for name in fields.names if name not in carry)
    if table.header is not False and all(file_kind(path) in UNTYPED for path in named):
        names = tuple(FoundName(name) for name in names)
    return selection(len(names), names)


def _require_width(width: int, selection: Selection) -> None:
    """Refuse an array that does not have the columns of a record."""
    schema = selection.schema
    if schema is None:
        array_columns(width, selection)
    elif width != len(schema.columns) or schema.person is not None:
        raise TableError(
            f"an array of {width} columns without names, and a schema of {len(schema.columns)}"
            + ("" if schema.person is None else " and one for persons, who need a name")
        )


def _require_numeric(schema: Any, names: Sequence[str], path: Path, may_carry: bool) -> None:
    try:
        require_numeric(schema, names, str(path))
    except RecordError as error:
        otherwise = ", or copy it unprotected with `carry=[...]`" if may_carry else ""
        raise TableError(
            f"{error.text}; name the columns that make a record with `columns=[...]`{otherwise}"
        ) from None


def _carried_schema(kind: str, schema: Any, carry: Sequence[str]) -> Any:
    """Return types alone: other notes of a file may tell more than its values."""
    import pyarrow as pa

    if kind in UNTYPED:
        return pa.schema([(name, pa.string()) for name in carry])
    return pa.schema([(name, _plain_type(schema.field(name).type)) for name in carry])


def _plain_type(kind: Any) -> Any:
    """Return a type without dictionaries, which may differ between batches, and without views."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _plain(batch: Any, schema: Any) -> Any:
    """Return these values in plain types."""
    import pyarrow as pa

    columns = [
        plain_array(column) if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _same(first: Any, other: Any, path: Path) -> Any:
    """Return the schema that all files share."""
    if first is not None and first != other:
        misfit = next(a for a, b in zip(other, first, strict=True) if a != b)
        raise TableError(
            f"{path}: column {misfit.name!r} is {misfit.type}, in the first file "
            f"{first.field(misfit.name).type}; carried columns need one type"
        )
    return other
