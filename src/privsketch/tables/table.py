"""What is said about a table: where it is, which columns make a record, how it is written.

Functions take any table and make a `Table` of it once; inside, only the `Table` travels. It finds
out what the table is (its kind, its files, its parts) when it is first asked, and keeps that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from privsketch._base.errors import ParameterError, TableError
from privsketch.facts.schema import Schema
from privsketch.tables.device import is_device_table
from privsketch.tables.files import expanded, require_new
from privsketch.tables.marks import Noter
from privsketch.tables.memory import Joined, Selection
from privsketch.tables.untyped.format import FileFormat

Kind = Literal[
    "path",
    "array",
    "pandas",
    "arrow",
    "dask",
    "spark",
    "sparse",
    "rows",
    "parts",
    "joined",
    "other",
]


class OnSpark:
    """Records that Spark's workers read, whatever they are made from: of the kind "spark"."""


@dataclass(frozen=True, eq=False, repr=False)
class Table(FileFormat):
    """A table and what is said about it, for every function that reads records.

    Functions also take tables without one: it is needed only to state more than columns. Two of
    them are equal only if they are the same object, and its text form shows no record.

    Parameters
    ----------
    data : array, table, path, list of paths, iterable of blocks, Dask collection, Spark DataFrame
        A path may be a file, a folder of files or a pattern like "part-*.parquet". Arrays on one of
        NVIDIA's devices (CuPy, PyTorch, JAX) are read where they are.
    columns : list of str or int, optional
        Columns that make a record, in order. By default those of the design, or all.
    header : bool, optional
        Whether text files and sheets begin with a line of names. By default the first line is one,
        and refused if it has numbers. With False it is a record, and columns are called "0",
        "1", ...
    delimiter : str, optional
        Separator of the cells of text files. By default commas, and tabs in .tsv files.
    decimal : {".", ","}
        Decimal mark of numbers in text files.
    encoding : str
        Encoding of text files: "utf-8", "latin-1", "utf-16", ...
    quotes : bool, optional
        Whether cells of text files may be quoted, and then go on over several lines. By default
        cells of .csv files may; a .tsv file in which a cell begins with a quote is refused.
    sheet : str, optional
        Name of the sheet of an Excel workbook with more than one.
    n_records : int, optional
        Public number of records of an Excel sheet, needed under `neighbours="replace"`: a sheet
        does not store records without any value at its end.
    missing : {"error", "center"}
        What to do with missing or infinite values: refuse them, or put them at the center of the
        domain. With a schema leave it out, as the schema states it for each column.
    unreadable : {"error", "missing"}
        What to do with cells that cannot be read: refuse the table, or treat them as missing
        values. With a schema leave it out.

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Table("visits.csv", columns=["age", "height"], decimal=",")
    Table('visits.csv', columns=('age', 'height'), decimal=',')
    """

    data: Any
    columns: Sequence[str | int] | None = field(default=None, kw_only=True)
    missing: str = field(default="error", kw_only=True)
    _is_copy = False  # made by `of`, for one call
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        first = self.data[:1] if isinstance(self.data, list | tuple) else [self.data]
        if any(isinstance(each, Table) for each in first):
            raise ParameterError(
                "data: a Table of a Table; state everything about several files or tables in one "
                "Table of their list"
            )
        object.__setattr__(self, "columns", _checked_columns(self.columns))
        checked_missing(self.missing)
        super().__post_init__()

    def __repr__(self) -> str:
        is_named = isinstance(self.data, str | Path)
        stated = [f"{str(self.data)!r}" if is_named else f"<{type(self.data).__name__}>"]
        defaults = {fact.name: fact.default for fact in fields(self) if fact.name != "data"}
        for name in dict.fromkeys(["columns", *defaults]):
            if (value := getattr(self, name)) != defaults[name]:
                stated.append(f"{name}={value!r}")
        return f"Table({', '.join(stated)})"

    @classmethod
    def of(cls, data: Any, columns: Sequence[str | int] | None = None) -> Table:
        """Return `data` as a Table; columns may be stated here or in the Table, but not twice.

        A caller's Table is copied, and the copy finds out what it is: by the next call a folder may
        have more files, and a list more records.
        """
        if not isinstance(data, Table):
            table = cls(data, columns=columns)
        elif columns is not None and data.columns is not None:
            raise ParameterError("columns: stated twice, here and in the Table; leave one out")
        elif data._is_copy:
            return data if columns is None else data.stating(columns=columns)
        else:
            facts = {fact.name: getattr(data, fact.name) for fact in fields(data)}
            table = cls(**facts | ({} if columns is None else {"columns": columns}))
        vars(table)["_is_copy"] = True
        return table

    def stating(self, **facts: Any) -> Table:
        """Return the same table with other facts."""
        stated = {fact.name: getattr(self, fact.name) for fact in fields(self)} | facts
        table = Table(stated.pop("data"), **stated)
        known = {name: value for name, value in vars(self).items() if name in _KNOWN}
        vars(table).update(known if table.data is self.data else {})
        return table

    @cached_property
    def format(self) -> FileFormat:
        """How its files are written, apart from the data."""
        return FileFormat(**{fact.name: getattr(self, fact.name) for fact in fields(FileFormat)})

    @cached_property
    def kind(self) -> Kind:
        """What it is, by types alone."""
        return kind_of(self.data)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Files that a path stands for, in the order of reading; empty for other kinds."""
        return tuple(expanded(self.data)) if self.kind == "path" else ()

    @cached_property
    def parts(self) -> tuple[Table, ...]:
        """Tables of a list, which its caller holds; empty for other kinds."""
        is_list = self.kind == "parts" and isinstance(self.data, list | tuple)
        return tuple(map(Table.of, self.data)) if is_list else ()

    @cached_property
    def is_held(self) -> bool:
        """Whether it stays as it is while it is read: False if it is made on the way."""
        if self.kind != "parts":
            return True
        return isinstance(self.data, list | tuple) and all(part.is_held for part in self.parts)

    @cached_property
    def is_on_device(self) -> bool:
        """Whether it is an array in the memory of one of NVIDIA's devices."""
        return is_device_table(self.data)

    @property
    def leaves(self) -> Iterator[Table]:
        """Tables of which it is made: itself, or those in a list and in lists of that."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves

    @cached_property
    def all_files(self) -> tuple[Path, ...]:
        """Files of all paths in it, each of them once: its records would count twice otherwise."""
        seen: set[object] = set()
        files = tuple(file for leaf in self.leaves for file in leaf.files)
        for file in files:
            require_new(file, seen)
        return files

    def selection(
        self,
        dim: int,
        names: Sequence[str] | None = None,
        schema: Schema | None = None,
        *,
        neighbours: str | None = "add-remove",
        noter: Noter | None = None,
    ) -> Selection:
        """Return what is read for a record of `dim` numbers.

        Columns that are stated are read in that order. Without them, tables with named columns use
        `names`, the design's; everything else uses all columns. A `schema` names its columns
        itself, and states what becomes of missing and unreadable cells. `neighbours` are those of
        the release, None where nothing is released.
        """
        columns = self.columns
        if schema is not None:
            checked_missing(self.missing, schema)
            if self.unreadable != "error":
                raise ParameterError("`unreadable=`: the schema says it; leave it out")
            own = schema.all_names
            if columns in (None, schema.names, schema.coordinates, own):
                columns, names = None, own
            elif columns is not None and len(columns) != len(own):
                raise TableError(
                    f"columns: the schema names {len(own)} of them, a person last; leave them out, "
                    "or say what the table calls each, in that order"
                )
            else:
                names = None
        elif columns is not None:
            if len(columns) != dim:
                raise TableError(f"columns: {len(columns)} named, a record has dim={dim}")
            if names is not None and columns != tuple(names) and set(columns) == set(names):
                raise TableError(
                    "columns: the columns of the design in another order; leave them out, they are "
                    "found by their names wherever they stand"
                )
        return Selection(
            dim,
            None if columns is None else tuple(columns),
            None if names is None else tuple(names),
            format=self.format,
            schema=schema,
            noter=noter,
            neighbours=neighbours,
            to_center=self.missing == "center",
        )

    def stops_nothing(self, schema: Schema | None) -> bool:
        """Return whether nothing that one record says can stop a release."""
        if schema is not None:
            return schema.is_total
        return self.missing == "center" and self.unreadable == "missing"


_KNOWN = (
    "_is_copy",
    "kind",
    "files",
    "parts",
    "is_held",
    "is_on_device",
    "all_files",
)  # whatever else is stated


def _checked_columns(columns: Any) -> tuple[str | int, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise TableError("columns: expected a list of column names or column numbers")
    return tuple(c if isinstance(c, str) else _column_number(c) for c in columns)


def _column_number(column: Any) -> int:
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise TableError("columns: expected a list of column names or column numbers")
    return int(column)


def checked_missing(missing: str, schema: Schema | None = None) -> bool:
    """Return True for "center", False for "error"; raise an error for anything else."""
    if missing not in ("error", "center"):
        advice = "a schema can leave such records out" if missing == "drop" else ""
        raise ParameterError("missing", missing, "expected 'error' or 'center'", advice)
    if missing == "center" and schema is not None:
        raise ParameterError(
            "`missing='center'`: the schema says it, for each column; leave it out"
        )
    return missing == "center"


def kind_of(data: Any) -> Kind:
    """Return the kind of a table, by types alone and never by values.

    No library is imported for it: whoever has one of its tables has loaded it.

    "pandas" is a frame or a series, or of a class made from them; "sparse" is SciPy's; "rows" is a
    list of rows of numbers; "parts" is a list, or anything else that can be gone through, of paths
    and tables; "other" has no records.
    """
    if isinstance(data, str | os.PathLike):
        return "path"
    if isinstance(data, np.ndarray):
        return "array"
    pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
    if pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series):
        return "pandas"
    if isinstance(data, Joined):
        return "joined"
    if _is_spark(type(data)):  # before Arrow: its stream would bring all records to the driver
        return "spark"
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return "arrow"
    if hasattr(type(data), "__dask_graph__"):  # of the class: a delayed object has everything
        return "dask"
    if sparse is not None and sparse.issparse(data):
        return "sparse"
    if isinstance(data, list | tuple):
        return "parts" if len(data) == 0 or _is_part(data[0]) else "rows"
    if isinstance(data, Iterable) and not isinstance(data, dict | bytes | set | frozenset):
        return "parts"
    return "other"


def _is_spark(kind: type) -> bool:
    """Return whether a class is one of PySpark's, or made from one."""
    return any(
        base is OnSpark or base.__module__.partition(".")[0] == "pyspark" for base in kind.__mro__
    )


def _is_part(first: Any) -> bool:
    """Return whether what a list begins with is a path or a table, rather than a row of numbers."""
    return kind_of(first) in ("path", "arrow", "pandas", "spark") or getattr(first, "ndim", 0) == 2
