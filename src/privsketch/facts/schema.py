"""`Schema`: columns of a table, rules for missing values, and the column that identifies persons.

A schema serves wherever a domain does. Encoded records lie in `box` and in `ball`. The radius of
the ball is the largest distance of an encoded record from its center: a category is a corner of a
simplex, not of a cube. Methods whose noise grows with the norm use the ball.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.formats import parse_json, read_file, reading, write_file
from privsketch._base.notebook import shown
from privsketch._base.types import Floats
from privsketch.facts.budget import Budget, Unit, is_name
from privsketch.facts.columns import MISSING_WORDS, RULES, Column, Cycle, Date, Number, Rule
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.guesses import GUESSED, require_no_guess, require_no_guesses
from privsketch.facts.labels import Category, Flag

MAX_ROWS = 10_000  # of a person: sensitivities grow by the same factor
_SCHEMA = "schema"  # what errors call a file whose name they do not know


@dataclass(frozen=True)
class Schema:
    """Public description of a table, written by people and never derived from records.

    Parameters
    ----------
    columns : list of Number, Category, Flag, Date, Cycle
        Columns of a record, in this order; other columns of a table are not read.
    missing : {"error", "drop", "center"}
        What to do with missing values of columns without a rule of their own: refuse the table;
        leave the record out (not under neighbours="replace", where their number is public); or
        use the middle of the bounds, for numbers and dates only. "center" invents values: many
        of them form clusters that do not exist.
    person : str, optional
        Column that identifies persons. One person is then protected, with all their rows. One
        record of each person counts, chosen by a secret key, or `max_records` of them.
    max_records : int
        Largest number of records of a person that count. Noise grows by the same factor, so more
        than one seldom helps.
    rows_per_person : int, optional
        Public bound on the rows of a person where no column identifies persons. It is trusted.
    missing_person : {"error", "drop", "together"}
        What to do with rows without a person: refuse the table; leave them out (not under
        neighbours="replace"); or treat them as the rows of one person. The last is for "replace"
        alone: otherwise the row that counts would change with every person among them.
    unreadable : {"error", "missing"}
        What to do with a cell that cannot be read, such as text in a number, an invalid date, or
        a line with too many cells: refuse the table, or treat it as a missing value. With
        "missing", and no other rule that is "error", no record can stop a release (`is_total`).

    Examples
    --------
    >>> import privsketch as ps
    >>> schema = ps.Schema([ps.Number("age", 18, 100), ps.Flag("smoker")], person="patient_id")
    >>> print(schema.describe())
    age          number from 18 to 100
    smoker       yes or no
    missing      missing values are refused
    unit         one person (patient_id): one record of each counts
    >>> schema.box
    Box(low=(-1.0, -0.5), high=(1.0, 0.5), dim=2)
    """

    columns: Sequence[Column]
    missing: Rule = "error"
    person: str | None = None
    max_records: int = 1
    rows_per_person: int | None = None
    missing_person: str = "error"
    unreadable: str = "error"

    def __post_init__(self) -> None:
        columns = tuple(self.columns) if isinstance(self.columns, Iterable) else ()
        object.__setattr__(self, "columns", columns)
        if not columns or not all(isinstance(column, Column) for column in columns):
            raise ParameterError("columns: expected a list of Number, Category, Flag, Date, Cycle")
        names = [column.name for column in columns]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ParameterError(f"columns: {repeated[0]!r} occurs twice")
        coordinates = self.coordinates
        if len(set(coordinates)) < len(coordinates):
            raise ParameterError("columns: two coordinates would have the same name; rename one")
        if len(coordinates) > 2**15:
            raise ParameterError("columns: more than 32768 coordinates")
        require_one_of("missing", self.missing, RULES)
        for column in columns:
            if self.rule(column) not in (*column.RULES, "fill"):
                raise ParameterError(
                    f"`missing={self.missing!r}` with column {column.name!r}, a {column.KIND}: it "
                    f"has no middle; give it `missing={column.RULES[-1]!r}` or `fill=`"
                )
        self._check_persons(names)

    def _check_persons(self, names: list[str]) -> None:
        if self.person is not None and not is_name(self.person):
            raise ParameterError("person", self.person, "expected the name of a column")
        if self.person in names:
            raise ParameterError(
                "person", self.person, "is also a column of the record", "leave it out there"
            )
        for name, value in (("max_records", self.max_records), ("rows_per_person", self._trusted)):
            require_count(name, value, f"a whole number from 1 to {MAX_ROWS}")
            if value > MAX_ROWS:
                raise ParameterError(name, value, f"expected a whole number from 1 to {MAX_ROWS}")
        require_one_of("missing_person", self.missing_person, ("error", "drop", "together"))
        require_one_of("unreadable", self.unreadable, ("error", "missing"))
        if self.person is None and self.max_records > 1:
            raise ParameterError("`max_records=` needs `person=`, the column that names persons")
        if self.person is not None and self.rows_per_person is not None:
            raise ParameterError(
                "`rows_per_person=` is for tables without a column that names persons; with "
                "`person=` say `max_records=`"
            )

    @property
    def _trusted(self) -> int:
        return 1 if self.rows_per_person is None else self.rows_per_person

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that make a record."""
        return tuple(column.name for column in self.columns)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of the columns of a record, and of the column that identifies persons."""
        return self.names if self.person is None else (*self.names, self.person)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates of an encoded record."""
        return tuple(name for column in self.columns for name in column.coordinates)

    @property
    def dim(self) -> int:
        """Number of coordinates of an encoded record."""
        return len(self.coordinates)

    def places(
        self, parts: Literal["coordinates", "fields"] = "coordinates"
    ) -> Iterator[tuple[Column, slice]]:
        """Yield the columns with the slices of their coordinates, or of their fields."""
        first = 0
        for column in self.columns:
            last = first + len(getattr(column, parts))
            yield column, slice(first, last)
            first = last

    def rule(self, column: Column) -> str:
        """Return the rule for missing values of a column: "fill", or a rule."""
        return "fill" if column.fill is not None else column.missing or self.missing

    @property
    def drops(self) -> bool:
        """Whether a record may be left out because of its values."""
        rules = {self.rule(column) for column in self.columns}
        return "drop" in rules or (self.person is not None and self.missing_person == "drop")

    def stops(self) -> list[str]:
        """Return rules by which one record can stop a release, each with an alternative."""
        rules = []
        if self.unreadable == "error":
            rules.append("a cell that cannot be read stops it; `unreadable='missing'` would not")
        strict = [column.name for column in self.columns if self.rule(column) == "error"]
        if strict:
            names = ", ".join(map(repr, strict[:6])) + (", ..." if len(strict) > 6 else "")
            rules.append(
                f"a missing value of {names} stops it; `missing='drop'` would not, nor would "
                "'center', 'category' or `fill=`"
            )
        if self.person is not None and self.missing_person == "error":
            rules.append(
                "a row without a person stops it; `missing_person='drop'` would not, nor would "
                "'together' under `neighbours='replace'`"
            )
        return rules

    @property
    def is_total(self) -> bool:
        """Whether no refusal depends on a record."""
        return not self.stops()

    @property
    def is_numeric(self) -> bool:
        """Whether all columns are numbers, so that each has one coordinate."""
        return all(isinstance(column, Number) for column in self.columns)

    @property
    def is_smooth(self) -> bool:
        """Whether all columns are numbers or dates, so that records do not lie on corners."""
        return all(isinstance(column, Number | Date) for column in self.columns)

    @property
    def box(self) -> Box:
        """Box of the coordinates."""
        return Box(low=self._joined("lowest"), high=self._joined("highest"))

    @property
    def radius(self) -> float:
        """Largest distance of an encoded record from the center of `ball`."""
        return math.sqrt(sum(column.squared_radius for column in self.columns))

    @property
    def ball(self) -> Ball:
        """The ball that holds all encoded records, about the centroid of each category."""
        return Ball(dim=self.dim, radius=self.radius, center=self._joined("center"))

    def _joined(self, name: str) -> Floats:
        return np.concatenate([getattr(column, name) for column in self.columns])

    @property
    def unit(self) -> Unit:
        """Unit that is protected."""
        return Unit(self.person, self.max_records if self.person else self._trusted)

    def charged(self, budget: Budget) -> Budget:
        """Return the budget for the unit of this schema; refuse a budget for another unit."""
        joins = self.person is not None and self.missing_person == "together"
        if budget.neighbours == "add-remove" and joins:
            raise ParameterError(
                "`missing_person='together'` with `neighbours='add-remove'`: without one of the "
                "persons who are not named, another row of theirs may count; use 'drop'"
            )
        if budget.neighbours == "replace" and self.drops:
            raise ParameterError(
                "`missing='drop'` with `neighbours='replace'`: the number of records is public "
                "there, and would tell who was left out; use fill values, or 'add-remove'"
            )
        if budget.neighbours == "replace" and self.unit.max_records > 1:
            bound = "rows_per_person" if self.person is None else "max_records"
            raise ParameterError(
                f"`{bound}={self.unit.max_records}` with `neighbours='replace'`: the number "
                "of records that are kept would have to be public; keep one of each person"
            )
        return replace(budget, unit=self.unit)

    def describe(self) -> str:
        """Describe the schema in several lines."""
        width = max(12, *(len(column.name) for column in self.columns))
        return "\n".join(f"{name:<{width}} {text}" for name, text in self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        facts = [(column.name, column.describe()) for column in self.columns]
        facts.append(("missing", MISSING_WORDS[self.missing]))
        if self.unreadable == "missing":
            facts.append(("unreadable", "cells that cannot be read are missing values"))
        return [*facts, ("unit", self.unit_words())]

    def _repr_html_(self) -> str:
        return shown("Schema", self._facts())

    @property
    def _counted_words(self) -> str:
        if self.person is None and self._trusted == 1:
            return "; if a person may have several rows, name the column that tells: person="
        if self.person is None:
            return ", which is taken on trust"
        count = "one record" if self.max_records == 1 else f"up to {self.max_records} records"
        unnamed = _WITHOUT_PERSON[self.missing_person]
        return f": {count} of each counts{unnamed}"

    def unit_words(self) -> str:
        """Describe what is protected, and how many of its records count."""
        return f"{self.unit.text}{self._counted_words}"

    def missing_words(self) -> list[str]:
        """Describe the rules for missing values, a sentence for each rule in use."""
        columns: dict[str, list[str]] = {}
        for column in self.columns:
            rule = self.rule(column)
            outcome = f"taken for {column.fill}" if rule == "fill" else _MISSING_OUTCOMES[rule]
            columns.setdefault(outcome, []).append(column.name)
        if len(columns) == 1 and len(self.columns) > 3:
            return [f"missing values of any column: {outcome}" for outcome in columns]
        return [f"missing {', '.join(names)}: {outcome}" for outcome, names in columns.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain JSON values, without defaults."""
        facts: dict[str, Any] = {"columns": [column.to_json() for column in self.columns]}
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if name == "missing" or value != default:
                facts[name] = value
        return facts

    @classmethod
    def from_json(cls, value: Any) -> Schema:
        """Rebuild a schema from `to_json`, or from what people write; raise for anything else.

        A guess that nobody has accepted is refused here, for every release.
        """
        if not isinstance(value, dict) or not isinstance(value.get("columns"), list):
            raise ParameterError(
                'a schema is an object with "columns", a list; `privsketch schema draft` begins one'
            )
        require_no_guess(value, "the table")
        unknown = set(value) - {"columns", "note", GUESSED, *_DEFAULTS}
        if unknown:
            names = ", ".join(["columns", *_DEFAULTS])
            raise ParameterError(f"{sorted(unknown)[0]!r} is not a field of a schema: {names}")
        rules = {name: value[name] for name in _DEFAULTS if name in value}
        return cls(tuple(column_from_json(column) for column in value["columns"]), **rules)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as JSON that people read and change."""
        write_file(path, (json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema written by `save`, or by hand."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, what: str = _SCHEMA) -> Schema:
        """Read a schema from the bytes of its file; `what` names the file in errors."""
        content = parse_json(data, what)
        with reading(what):
            require_no_guesses(content, "FILE" if what == _SCHEMA else what)
            return cls.from_json(content)


_DEFAULTS = {field.name: field.default for field in fields(Schema) if field.name != "columns"}
_WITHOUT_PERSON = {
    "error": "",
    "drop": "; rows without a person are left out",
    "together": "; rows without a person are taken for those of one",
}
_MISSING_OUTCOMES = {
    "error": "would have been refused",
    "drop": "such records were left out",
    "center": "put in the middle of the bounds",
    "category": "a category of its own",
}


def require_rows(schema: Schema) -> None:
    """Refuse a schema whose records cannot be released row by row."""
    if schema.person is not None or schema.unit.max_records > 1:
        raise ParameterError(
            "a schema that names persons, or bounds their rows, with released rows: a row is "
            "released for every record, in their order; make one row a person first, and leave "
            "`person=` and `rows_per_person=` out"
        )
    if schema.drops:
        raise ParameterError(
            "`missing='drop'` with released rows: their number is public; use fill values"
        )


def domain_of_rows(schema: Schema, protect: str, bound: float | None) -> Domain:
    """Return the domain of encoded rows that are released, whose diameter is charged.

    Where single entries are protected, each must be one coordinate.
    """
    require_rows(schema)
    if bound is not None:
        raise ParameterError(
            f"`bound={bound!r}` with a schema: records are encoded, and a distance of the table is "
            "no distance there; leave it out, which hides all that a record says"
        )
    several = [column.name for column in schema.columns if len(column.coordinates) > 1]
    if protect == "element" and several:
        raise ParameterError(
            f"`protect='element'` with column {several[0]!r}, which becomes several numbers: a "
            "change of it is more than one entry; use `protect='row'`"
        )
    return schema.ball if protect == "row" else schema.box


def schema_of(domain: Any) -> Schema | None:
    """Return the schema that a domain is or implies by scaling, or None for others."""
    if isinstance(domain, Schema):
        return domain
    if not isinstance(domain, Box) or not domain.scale or domain.columns is None:
        return None
    center, half = domain.center_vector, domain.half_widths
    bounds = zip(domain.columns, center - half, center + half, strict=True)
    return Schema(tuple(Number(name, float(low), float(high)) for name, low, high in bounds))


COLUMN_KINDS: dict[str, type[Column]] = {
    kind.KIND: kind for kind in (Number, Category, Flag, Date, Cycle)
}


def column_from_json(value: Any) -> Column:
    """Rebuild a column from `to_json` or from what people write; a "note" is ignored."""
    if not isinstance(value, dict):
        raise ParameterError("columns: expected an object for each column")
    others = ("kind", "note", GUESSED)
    options = {name: item for name, item in value.items() if name not in others}
    name, kind = options.get("name"), value.get("kind")
    where = f"column {name!r}" if isinstance(name, str) else "a column"
    require_no_guess(value, where)
    kinds = ", ".join(map(repr, COLUMN_KINDS))
    if kind is None:
        raise ParameterError(f"{where}: its kind is open; write one of {kinds}")
    if kind not in COLUMN_KINDS:
        raise ParameterError(f"{where}: `kind={kind!r}` is none of {kinds}")
    empty = [key for key, item in options.items() if item is None]
    if empty:
        raise ParameterError(f"{where}: {empty[0]!r} is open; write a value, or leave it out")
    try:
        return COLUMN_KINDS[kind](**options)
    except TypeError:
        raise ParameterError(
            f"{where}: unknown or missing fields for a {kind}; it has {', '.join(options)}"
        ) from None
