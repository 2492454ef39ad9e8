"""The beginning of a schema from what a file says of its columns, and what is still open in one.

Names and types alone: no record is read, and neither is what a file notes about its values, such as
the smallest and largest ones of a Parquet file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from privsketch._base.errors import PrivsketchError, RecordError, require_one_of
from privsketch.facts.budget import NEIGHBOURS, Neighbours
from privsketch.facts.guesses import require_no_guess
from privsketch.facts.schema import COLUMN_KINDS, Schema, column_from_json
from privsketch.tables.cells import require_kind
from privsketch.tables.encoding import require_person_kind
from privsketch.tables.files import UNTYPED, file_kind, file_schema
from privsketch.tables.memory import plain_kind
from privsketch.tables.table import Table
from privsketch.tables.untyped.format import FileFormat
from privsketch.tables.untyped.lines import TextFile
from privsketch.tables.untyped.text import delimiter_hint

_PERSONS = (
    r"(^|[^A-Za-z])(?i:id|uid|uuid|guid|ssn|mrn)$|[a-z]I[dD]$"
    r"|^(?i:p|pt|pat|patient|case|fall)[-_ .]?(?i:id|no|nr|num|number)$"
)
_PERSON_WORDS = (
    *("patient", "person", "customer", "client", "user", "member", "subject", "participant"),
    *("respondent", "employee", "student", "account", "household", "device"),
)
NOTES = {
    "number": "low and high are bounds that people know without looking at records: what is "
    'outside is moved to them. "scale": "log" for sums of money and concentrations',
    "category": "values is the list of what it may say; all others are taken together",
    "flag": 'yes or no; other words for them are "true" and "false"',
    "date": 'first and last, like "2020-01-31"; dates outside are moved to them',
    "cycle": "period, after which it begins again: 24 for hours",
}
_OPEN = (
    "say what it is: number (low, high), category (values), flag, date (first, last) or cycle "
    "(period); or delete it, and it is not read"
)
_ABOUT = (
    "Public facts about a table, written by people. Fill in what is null, delete columns that "
    'should not count, and ask `privsketch schema check`. "missing" says what becomes of missing '
    'values: "drop" (leave such records out), "center" or "error". "unreadable": "missing" takes '
    "cells that cannot be read for missing values, so that no record can stop a release. "
    '"person" is the column that names persons, if a person may have several rows. Notes are for '
    "you; they may stay."
)
# Rules by which nothing that one record says stops a release. Under "replace" none may be left out.
_RULES: dict[str, dict[str, str]] = {
    "add-remove": {"missing": "drop", "missing_person": "drop"},
    "replace": {"missing": "center", "missing_person": "together"},
}
_NO_MIDDLE = (
    '; a category or a flag needs "missing": "category", or "fill", and a cycle "fill": it has no '
    "middle that a missing value could be put in"
)
_FIELDS = {
    "number": ("low", "high"),
    "category": ("values",),
    "flag": (),
    "date": ("first", "last"),
}


def drafted(data: Any, neighbours: Neighbours = "add-remove") -> dict[str, Any]:
    """Draft a schema with open places, as JSON values, from names and types of a file.

    Of several files, the first one is looked at. Its rules are such that nothing
    that one record says can stop a release under these `neighbours`.
    """
    rules = _RULES[require_one_of("neighbours", neighbours, NEIGHBOURS)]
    table = Table.of(data)
    path = next(file for leaf in table.leaves for file in leaf.files)
    fields = file_schema(path, table.format)
    if isinstance(fields, int):
        columns = [_column(str(index), "number") for index in range(fields)]
    elif file_kind(path) in UNTYPED:
        columns = [_column(name, None) for name in fields.names]
    else:
        columns = [_column(field.name, _kind(field.type)) for field in fields]
    if rules["missing"] == "center":
        for column in columns:
            if column["kind"] in ("category", "flag"):
                column["missing"] = "category"
            elif column["kind"] is None:
                column["note"] += _NO_MIDDLE
    return {
        "note": _ABOUT,
        "columns": columns,
        "missing": rules["missing"],
        "unreadable": "missing",
        "person": None,
        "missing_person": rules["missing_person"],
    }


def delimiter_advice(data: Any) -> str:
    """Return what to say of text files whose first line seems to have another delimiter.

    Only names are looked at. Parameters are marked; nothing is returned if nothing seems wrong.
    """
    table = Table.of(data)
    files = [file for leaf in table.leaves for file in leaf.files if file_kind(file) == "csv"]
    hints = (_delimiter_advice(file, table.format) for file in files)
    return next((hint for hint in hints if hint), "")


def _delimiter_advice(path: Path, format: FileFormat) -> str:
    names = file_schema(path, format).names
    hint = delimiter_hint(names, TextFile.of(path, format)).removeprefix("; ")
    return f"{path}: {hint}" if "`" in hint else ""  # a single column may be all that there is


def _column(name: str, kind: str | None) -> dict[str, Any]:
    note = _OPEN if kind is None else NOTES[kind]
    if names_a_person(name):
        note = 'if it names persons, write its name at "person" and delete it here; else ' + note
    fields = dict.fromkeys(_FIELDS.get(kind or "", ()))
    return {"name": name, "kind": kind, **fields, "note": note}


def names_a_person(name: str) -> bool:
    """Return whether a column looks like an identifier, by its name."""
    return has_id_name(name) or names_people(name)


def has_id_name(name: str) -> bool:
    """Return whether the name of a column ends as those of identifiers do."""
    return bool(re.search(_PERSONS, name))


def names_people(name: str) -> bool:
    """Return whether the name of a column has a word for persons."""
    words = re.findall(r"[a-z]+", name.lower())
    return any(word.removesuffix("s") in _PERSON_WORDS for word in words)


def _kind(kind: Any) -> str | None:
    """Return the kind of a column by its Arrow type; None if it may be several."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return "category"
    kind = plain_kind(kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_boolean(kind):
        return "flag"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return "category" if is_text else None


def open_places(value: Any, file: str = "FILE") -> list[str]:
    """Return all that is open or wrong in a schema, as JSON values; nothing if it can be used.

    `file` is what advice calls its file.
    """
    if not isinstance(value, dict) or not isinstance(value.get("columns"), list):
        return ['a schema is an object with "columns", a list']
    texts = []
    for index, column in enumerate(value["columns"]):
        texts += _open_fields(column, index, file)
    texts += _refused(lambda: require_no_guess(value, "the table", file))
    if texts:
        return texts
    try:
        Schema.from_json(value)
    except PrivsketchError as error:
        return [str(error)]
    return []


def _open_fields(column: Any, index: int, file: str) -> list[str]:
    if not isinstance(column, dict):
        return [f"column number {index} (from 0): expected an object"]
    name = column.get("name")
    where = f"column {name!r}" if isinstance(name, str) else f"column number {index} (from 0)"
    if guessed := _refused(lambda: require_no_guess(column, where, file)):
        return guessed
    if column.get("kind") is None:
        return [f"{where}: its kind is open; write one of {', '.join(COLUMN_KINDS)}"]
    nulls = [key for key, item in column.items() if item is None and key != "note"]
    if nulls:
        return [f"{where}: {key} is open" for key in nulls]
    try:
        column_from_json(column)
    except PrivsketchError as error:
        text = str(error)
        return [text if where in text else f"{where}: {text}"]
    return []


def _refused(require: Callable[[], None]) -> list[str]:
    try:
        require()
    except PrivsketchError as error:
        return [str(error)]
    return []


def misfits(schema: Schema, data: Any) -> list[str]:
    """List what files do not have of a schema, by names and types alone; parameters are marked."""
    table = Table.of(data)
    files = [file for leaf in table.leaves for file in leaf.files]
    return [text for file in files for text in _misfits(schema, file, table.format)]


def _misfits(schema: Schema, path: Path, format: FileFormat) -> list[str]:
    fields = file_schema(path, format)
    if isinstance(fields, int):
        if schema.person is not None:
            return [f"{path}: an array has no column names, and {schema.person!r} names persons"]
        n_columns = len(schema.columns)
        return [] if fields == n_columns else [f"{path}: {fields} columns, the schema {n_columns}"]
    texts = []
    names = list(fields.names)
    for name in schema.all_names:
        if names.count(name) != 1:
            state = "is there more than once" if name in names else "is not there"
            texts.append(f"{path}: column {name!r} {state}")
    if texts and file_kind(path) == "csv" and (advice := _delimiter_advice(path, format)):
        texts.append(advice)
    is_total = schema.unreadable == "missing"
    if file_kind(path) in UNTYPED:
        if is_total and file_kind(path) == "csv":
            texts += _refusal(TextFile.of(path, format).require_mendable)
        return texts
    for column in schema.columns:
        if names.count(column.name) == 1:
            require = partial(require_kind, may_be_text=is_total)
            texts += _refusal(require, column, fields.field(column.name).type, str(path))
    person = schema.person
    if person is not None and names.count(person) == 1:
        texts += _refusal(require_person_kind, fields.field(person).type, person, str(path))
    return texts


def _refusal(require: Callable[..., None], *facts: Any) -> list[str]:
    try:
        require(*facts)
    except RecordError as error:
        return [error.text]
    return []
