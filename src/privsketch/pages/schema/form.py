"""A form for a schema: the texts of its fields, and the schema that they say or what is wrong.

Fields are named by the number of the column, as "0.kind"; what one kind has, by the kind as well:
"0.number.low". So a person may try another kind and come back. Fields of the table are named as in
the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch.facts.guesses import GUESSED, marked_fields, without_guesses
from privsketch.facts.schema import COLUMN_KINDS, Schema, column_from_json

LEAVE_OUT = "leave out"
FILL = "fill"
Texts = Mapping[str, str]


@dataclass(frozen=True)
class Field:
    """A field of the form.

    `shape` is "text", "number", "lines" or "choice"; `choices` are pairs of a value and its words.
    """

    name: str
    label: str
    hint: str = ""
    shape: str = "text"
    choices: tuple[tuple[str, str], ...] = ()
    is_needed: bool = False


KIND = Field(
    "kind",
    "Kind",
    shape="choice",
    choices=(
        ("", "choose"),
        ("number", "number: amounts, measurements"),
        ("category", "category: one of a few labels"),
        ("flag", "flag: yes or no"),
        ("date", "date: days, moments"),
        ("cycle", "cycle: hours, weekdays, angles"),
        (LEAVE_OUT, "leave it out: it is not read"),
    ),
)
FIELDS: dict[str, tuple[Field, ...]] = {
    "number": (
        Field("low", "Lowest value", "Smaller values are moved to it.", "number", is_needed=True),
        Field("high", "Highest value", "Larger values are moved to it.", "number", is_needed=True),
        Field("unit", "Unit", "As reports show it: kg, mmol/l."),
        Field(
            "scale",
            "Scale",
            "Logarithmic for money, concentrations and counts.",
            "choice",
            (("linear", "linear"), ("log", "logarithmic")),
        ),
    ),
    "category": (
        Field(
            "values",
            "Labels, one a line",
            "Every other label counts as “other”.",
            "lines",
            is_needed=True,
        ),
    ),
    "flag": (
        Field("true", "Word for yes", "Beside yes, true, t, y and 1."),
        Field("false", "Word for no", "Beside no, false, f, n and 0."),
    ),
    "date": (
        Field("first", "First day", "Like 2020-01-31; earlier dates are moved to it.",
              is_needed=True),
        Field("last", "Last day", "Later dates are moved to it.", is_needed=True),
        Field("format", "Date format", "Like %d.%m.%Y; empty for 2020-01-31."),
    ),
    "cycle": (
        Field("period", "Period", "24 for hours, 7 for weekdays.", "number", is_needed=True),
        Field("start", "Smallest value", "1 for months; 0 if left empty.", "number"),
    ),
}  # fmt: skip
_RULES = (
    ("drop", "leave the record out"),
    ("error", "stop with an error"),
    ("center", "use the middle of the bounds"),
)
MISSING = Field(
    "missing",
    "Missing values",
    shape="choice",
    choices=(
        ("", "as for the table"),
        *_RULES,
        ("category", "a label of their own"),
        (FILL, "use this value:"),
    ),
)
FILL_VALUE = Field(FILL, "Value in place of missing ones", "A public value, such as 0 visits.")
WEIGHT = Field("weight", "Weight", "How much it counts in distances; 1 if left empty.", "number")
TABLE = (
    Field("person", "Person column",
          "One person is then protected with all their rows. Empty: every row is a person."),
    Field("missing", "Missing values", "For columns that do not say otherwise.", "choice", _RULES),
    Field("unreadable", "Cells that cannot be read", "", "choice",
          (("missing", "are missing values"), ("error", "stop with an error"))),
    Field("missing_person", "Rows without a person", "", "choice",
          (("drop", "are left out"), ("error", "stop with an error"),
           ("together", "are those of one person (neighbours: replace)"))),
    Field("max_records", "Records per person", "How many count; 1 if left empty.",
          "number"),
    Field("rows_per_person", "Most rows of a person",
          "Only where no column names persons; taken on trust.", "number"),
)  # fmt: skip


def texts_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands in the fields for a schema, as JSON values, that may have open places."""
    texts = {field.name: _text(content.get(field.name)) for field in TABLE}
    texts["missing"] = texts["missing"] or "error"
    texts["unreadable"] = texts["unreadable"] or "error"
    texts["missing_person"] = texts["missing_person"] or "error"
    for index, column in enumerate(content["columns"]):
        kind = _text(column.get("kind"))
        texts[f"{index}.kind"] = kind
        for name in ("missing", FILL, "weight"):
            texts[f"{index}.{name}"] = _text(column.get(name))
        if column.get(FILL) is not None:
            texts[f"{index}.missing"] = FILL
        for field in FIELDS.get(kind, ()):
            texts[f"{index}.{kind}.{field.name}"] = _text(column.get(field.name))
    return texts


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def content_of(
    before: Mapping[str, Any], texts: Texts, *, accepts: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the schema that the fields say, as JSON values, and errors by the names of fields.

    An error that belongs to no field stands below "". `accepts`: guesses that were left as they
    are lose their marks, too; a field that was changed is no guess.
    """
    errors: dict[str, str] = {}
    columns = []
    for index, column in enumerate(before["columns"]):
        if texts.get(f"{index}.kind") != LEAVE_OUT:
            columns.append(_column(index, column, texts, errors))
    facts = {field.name: _value(field, field.name, texts, errors) for field in TABLE}
    content = {name: value for name, value in before.items() if name not in (*facts, GUESSED)}
    content |= {"columns": columns}
    content |= {name: value for name, value in facts.items() if value is not None}
    _keep_marks(content, before)
    if not columns:
        errors[""] = "every column is left out; keep one"
    if not errors:
        try:
            Schema.from_json(without_guesses(content))
        except ParameterError as error:
            errors[str(error.name) if error.name in facts else ""] = _words(error)
    return (without_guesses(content) if accepts else content), errors


def _column(
    index: int, before: Mapping[str, Any], texts: Texts, errors: dict[str, str]
) -> dict[str, Any]:
    kind, wrong = texts.get(f"{index}.kind", ""), len(errors)
    facts: dict[str, Any] = {"name": before.get("name"), "kind": kind}
    if kind not in COLUMN_KINDS:
        errors[f"{index}.kind"] = "choose a kind, or leave the column out"
        return facts
    for field in FIELDS[kind]:
        place = f"{index}.{kind}.{field.name}"
        value = _value(field, place, texts, errors)
        if value is not None and (field.name, value) != ("scale", "linear"):
            facts[field.name] = value
    if (weight := _value(WEIGHT, f"{index}.weight", texts, errors)) is not None:
        facts["weight"] = weight
    rule = texts.get(f"{index}.missing", "")
    if rule == FILL:
        facts[FILL] = _fill(kind, index, texts, errors)
    elif rule:
        facts["missing"] = rule
    if "note" in before and kind == before.get("kind"):
        facts["note"] = before["note"]
    if len(errors) == wrong:
        try:
            column_from_json(facts)
        except ParameterError as error:
            known = {field.name: f"{index}.{kind}.{field.name}" for field in FIELDS[kind]}
            known |= {name: f"{index}.{name}" for name in ("missing", FILL, "weight")}
            errors[known.get(str(error.name), f"{index}.kind")] = _words(error)
    _keep_marks(facts, before)
    return facts


def _keep_marks(facts: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Mark guesses that were left as they were, and lists that still have a guessed item.

    Spaces around a text do not count: a form cannot show them.
    """
    marked = []
    for name in marked_fields(dict(before)):
        old, new = before.get(name), facts.get(name)
        if _stripped(_text(new)) == _stripped(_text(old)):
            if old is not None:
                facts[name] = old
            marked.append(name)
        elif isinstance(old, list) and isinstance(new, list):
            left = {str(item).strip() for item in old}
            if any(str(item).strip() in left for item in new):
                marked.append(name)
    if marked:
        facts[GUESSED] = marked


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _value(field: Field, place: str, texts: Texts, errors: dict[str, str]) -> Any:
    """Return what a field says; None if it is empty."""
    text = texts.get(place, "").strip()
    if not text:
        if field.is_needed:
            errors[place] = "write a value"
        return None
    if field.shape == "number":
        return _number(text, place, errors)
    if field.shape == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    return text


def _number(text: str, place: str, errors: dict[str, str]) -> float | int | None:
    try:
        number = float(text)
    except ValueError:
        errors[place] = "write a number like 12.5, without marks between thousands"
        return None
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _fill(kind: str, index: int, texts: Texts, errors: dict[str, str]) -> Any:
    """Return the value in place of missing ones, as this kind of column has it."""
    place = f"{index}.{FILL}"
    text = texts.get(place, "").strip()
    if not text:
        errors[place] = "write a value"
        return None
    if kind in ("number", "cycle"):
        return _number(text, place, errors)
    if kind == "flag":
        if text.lower() in ("yes", "no"):
            return text.lower() == "yes"
        errors[place] = "write yes or no"
    return text


def _words(error: ParameterError) -> str:
    """Return an error for the place where it belongs, without the names of column and field."""
    if not error.expected:
        return str(error)
    _, _, expected = error.expected.rpartition("': ")
    return f"{expected}; {error.advice}" if error.advice else expected
