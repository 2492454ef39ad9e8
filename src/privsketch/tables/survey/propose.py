"""A schema proposed from a look at records, for the eyes of their holder alone.

Kinds, round bounds, labels and spellings are guessed from at most `MAX_ROWS` rows, evenly spread
over the table. A bound is a round number beyond nearly all values; a label occurs at least
`MIN_LABEL` times, so that none stands for one person. Still, each of them is a look at the data and
private, and is marked as a guess (`facts/guesses`): nothing is released by it until its holder has
accepted it. Records are read by the readers of a release.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.budget import Neighbours, is_name
from privsketch.facts.columns import DAY, Date, Number
from privsketch.facts.guesses import GUESSED
from privsketch.facts.labels import NO_NUMBERS, OTHER, Category
from privsketch.facts.schema import Schema
from privsketch.tables.cells import Raw, looked_at, texts_of
from privsketch.tables.encoding import guarded
from privsketch.tables.files import file_kind
from privsketch.tables.memory import Selection, plain_array, plain_kind
from privsketch.tables.reading import read_cells
from privsketch.tables.survey.cells import DATE_FORMATS, case_doubt
from privsketch.tables.survey.draft import NOTES, drafted, has_id_name, names_a_person, names_people
from privsketch.tables.table import Table

MAX_ROWS = 2**17  # that proposals are made from
MAX_LABELS = 50  # of a category
MIN_LABEL = 10  # rows that say it, for a label to be proposed
_NEARLY_ALL = 0.9  # of the cells, that decide on a kind
_TAIL = 0.005  # of the values at either end, that may lie outside of proposed bounds
_STEPS = 10  # bounds are multiples of a round step, of which about so many lie between them
_FAR = 1e200  # twice as much is still a number
_SKEWED = 20.0  # times the median, from which on the largest values ask for a logarithmic scale
_WORDS = (  # for yes and no, beside those that flags know
    *(("ja", "nein"), ("j", "n"), ("ja", "nee"), ("ja", "nej"), ("oui", "non"), ("o", "n")),
    *(("sí", "no"), ("si", "no"), ("s", "n"), ("sim", "não"), ("tak", "nie")),
    *(("present", "absent"), ("positive", "negative"), ("pos", "neg")),
)
_KNOWN_WORDS = ({"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"}, {"1", "0"})
_CYCLES = {  # words of names: the period, the first value, the last value
    "hour": (24.0, 0.0, 23.0),
    "month": (12.0, 1.0, 12.0),
    "weekday": (7.0, 0.0, 7.0),
}


_CONSTANT = "all of its cells say the same"


@dataclass(frozen=True)
class Proposal:
    """A schema, as JSON values with marked guesses, and what it leaves out, all of it private.

    `left_out` says why, by the names of columns; `doubts` are sentences about those it has.
    """

    schema: dict[str, Any]
    left_out: dict[str, str]
    doubts: dict[str, str]


def proposed(
    data: Any, neighbours: Neighbours = "add-remove", *, progress: Callable[[int], None]
) -> Proposal:
    """Propose a schema from a look at a table, with a mark on each guess."""
    table = Table.of(data)
    draft = drafted(table, neighbours)
    every = [str(column["name"]) for column in draft["columns"]]
    left_out = {name: "its name is there more than once" for name in every if every.count(name) > 1}
    left_out |= {name: "it has no name" for name in every if not is_name(name)}
    names = [name for name in every if name not in left_out]
    cells = _sample(table, names, progress)
    looks = {name: guarded(partial(_Look, name, cells[name])) for name in names if name in cells}
    person, others = _person(looks)
    left_out |= {name: "it looks like an identifier" for name in others if name != person}
    columns, doubts = [], {}
    for column in draft["columns"]:
        name = column["name"]
        if name in left_out or name == person:
            continue
        facts = looks[name].facts() if name in looks else "it has no values"
        if isinstance(facts, str):
            left_out[name] = facts
            continue
        known = {field: column[field] for field in ("missing",) if field in column}
        if draft["missing"] == "center" and facts["kind"] in ("category", "flag"):
            known = {"missing": "category"}
        elif draft["missing"] == "center" and facts["kind"] == "cycle":
            known = {"fill": facts.get("start", 0.0)}
        marked = [field for field in facts if field != "kind"]
        if facts["kind"] != column["kind"]:
            marked.insert(0, "kind")
        note = NOTES[facts["kind"]]
        columns.append({"name": name, **facts, **known, "note": note, GUESSED: marked})
        if doubt := case_doubt(facts.get("values", [])):
            doubts[name] = doubt
    if person is None:
        texts = [name for name, reason in left_out.items() if reason == _MANY_TEXTS]
        repeated = [name for name in texts if looks[name].repeats]
        doubts |= dict.fromkeys(repeated, _MAY_NAME_PERSONS)
    about = f"{draft['note']} {_ABOUT}"
    schema = {**draft, "note": about, "columns": columns, "person": person, GUESSED: ["person"]}
    return Proposal(schema, left_out, doubts)


_MANY_TEXTS = "it has too many different texts, or all of them are rare"
_MAY_NAME_PERSONS = (
    "most of its values are there several times. If it names persons, write its name into the "
    'field "person" of the schema: else each of their rows is protected by itself'
)
_ABOUT = (
    'What a field "guessed" names was proposed from a look at records, and is private until you '
    "have seen it: `privsketch schema accept` removes the marks, and nothing is released before."
)


def _sample(table: Table, names: list[str], progress: Callable[[int], None]) -> dict[str, Any]:
    """Return cells of columns as they stand, every so many rows, in Arrow arrays."""
    if not names:
        return {}
    # As text, whatever else a reader would make of a cell; its numbers have points.
    columns = tuple(Raw(name, Category(name, ["a"])) for name in names)
    raw = Schema(columns, unreadable="missing")
    has_names = all(file_kind(file) != "npy" for leaf in table.leaves for file in leaf.files)
    asked = tuple(names) if has_names else None
    selection = Selection(len(names), asked, None, format=table.format, schema=raw)
    kept: list[tuple[Any, Any]] = []  # numbers of rows, and their batch
    first, step, n_kept = 0, 1, 0
    for batch, _ in read_cells(table, selection):
        rows = np.arange(-first % step, batch.num_rows, step)
        kept.append((rows + first, batch.take(rows)))
        first, n_kept = first + batch.num_rows, n_kept + len(rows)
        while n_kept > MAX_ROWS:
            step *= 2
            kept = [(at[at % step == 0], one.filter(at % step == 0)) for at, one in kept]
            n_kept = sum(len(at) for at, _ in kept)
        progress(batch.num_rows)
    return {name: _joined(name, [one for _, one in kept]) for name in names} if n_kept else {}


def _joined(name: str, batches: list[Any]) -> Any:
    """Return the cells of one column in one array; as texts where files differ in their types."""
    import pyarrow as pa

    arrays = [plain_array(batch.column(name)) for batch in batches]
    if len({array.type for array in arrays}) > 1:
        arrays = [texts_of(array) for array in arrays]
    return pa.concat_arrays(arrays)


def _person(looks: dict[str, _Look]) -> tuple[str | None, list[str]]:
    """Return the column that seems to name persons, and all that look like identifiers."""
    found = [name for name, one in looks.items() if names_a_person(name) and one.tells_apart]
    people = [name for name in found if names_people(name)]
    if len(people) == 1:
        return people[0], found
    return (found[0] if len(found) == 1 else None), found


class _Look:
    """What the cells of one column look like."""

    def __init__(self, name: str, array: Any) -> None:
        import pyarrow.types as types

        self._name, self._array, self._type = name, array, plain_kind(array.type)
        self._is_text = types.is_string(self._type) or types.is_large_string(self._type)
        number = Number(name, 0.0, 1.0)
        numbers, wrong = looked_at(number, array, decimal="." if self._is_text else None)
        self._known = ~np.isnan(numbers) if wrong is None else ~np.isnan(numbers) | wrong
        self._n_known = int(self._known.sum())
        self._numbers = numbers[np.isfinite(numbers)]

    @cached_property
    def _labels(self) -> dict[str, int]:
        """How often each label occurs, the most frequent first."""
        import pyarrow.compute as pc

        counted = pc.value_counts(texts_of(self._array).filter(self._known)).to_pylist()
        pairs = sorted((-one["counts"], one["values"]) for one in counted)
        return {label: -count for count, label in pairs}

    @property
    def repeats(self) -> bool:
        """Whether many values stand in several rows each, as those that name persons do."""
        n_labels = len(self._labels)
        return self._n_known / 10 < n_labels < 0.9 * self._n_known

    @property
    def tells_apart(self) -> bool:
        """Whether the values of a column with such a name tell persons apart."""
        whole = bool((self._numbers == np.floor(self._numbers)).all())
        is_key = (whole and len(self._numbers) == self._n_known) or self._is_text
        if not (is_key and self._n_known and len(self._labels) > 1):
            return False
        return has_id_name(self._name) or len(self._labels) > self._n_known / 10

    def facts(self) -> dict[str, Any] | str:
        """Return kind and fields of the column, or why it is left out."""
        import pyarrow.types as types

        if not self._n_known:
            return "it has no values"
        if types.is_boolean(self._type):
            return {"kind": "flag"}
        if types.is_timestamp(self._type) or types.is_date(self._type):
            return self._date(None) or "its dates are out of range"
        if len(self._numbers) >= _NEARLY_ALL * self._n_known:
            return self._number()
        return self._text_facts() if self._is_text else "it is of no kind that a schema has"

    def _text_facts(self) -> dict[str, Any] | str:
        import pyarrow.compute as pc

        looks = pc.match_substring_regex(self._array, r"^\s*\d{1,4}[-/. ]\w+[-/. ]\d{1,4}|^\d{8}$")
        if (pc.sum(looks).as_py() or 0) >= _NEARLY_ALL * self._n_known:
            for name in (None, *self._formats()):
                if found := self._date(name):
                    return found
        commas = pc.match_substring_regex(self._array, r"^\s*[+-]?\d+(,\d+)?\s*$")
        if (pc.sum(commas).as_py() or 0) >= _NEARLY_ALL * self._n_known:
            return "its numbers have a decimal comma; say --decimal ','"
        return self._words()

    def _number(self) -> dict[str, Any] | str:
        values = self._numbers
        distinct, counts = np.unique(values, return_counts=True)
        if len(distinct) == 1:
            return _CONSTANT
        whole = bool((distinct == np.floor(distinct)).all())
        if whole and set(distinct.tolist()) == {0.0, 1.0}:
            return {"kind": "flag"}
        # Codes rather than amounts; a label stands for several rows.
        if whole and len(distinct) == 2 and counts.min() >= MIN_LABEL:
            return {"kind": "category", "values": [str(int(value)) for value in distinct]}
        if whole and len(values) > 20 and len(set(np.diff(values).tolist())) == 1:
            return "it numbers the rows"
        words = re.findall(r"[a-z]+", self._name.lower())
        for word, (period, first, last) in _CYCLES.items():
            if whole and word in words and first <= distinct[0] and distinct[-1] <= last:
                return {"kind": "cycle", "period": plain(period), "start": plain(first)}
        low, high, scale = round_bounds(values)
        facts: dict[str, Any] = {"kind": "number", "low": plain(low), "high": plain(high)}
        try:
            Number(self._name, facts["low"], facts["high"])
        except ParameterError:
            return "its numbers are too large or too near to each other"
        return facts if scale == "linear" else {**facts, "scale": scale}

    def _date(self, format: str | None) -> dict[str, Any] | None:
        """Return bounds of dates that are written so, beginnings and ends of years or months."""
        found = Date(self._name, "1970-01-01", "1971-01-01", format=format)
        seconds, _ = looked_at(found, self._array)
        seconds = seconds[np.isfinite(seconds)]
        if len(seconds) < _NEARLY_ALL * self._n_known or not len(seconds):
            return None
        first, last = np.quantile(seconds, [_TAIL, 1 - _TAIL], method="nearest").tolist()
        try:
            start, end = (datetime.fromtimestamp(at, UTC) for at in (first, last))
            unit = 12 if last - first > 120 * DAY else 1  # months
            begin = datetime(start.year, (start.month - 1) // unit * unit + 1, 1)
            after = (end.month - 1) // unit * unit + unit
            until = datetime(end.year + after // 12, after % 12 + 1, 1)
            bounds = {"first": str(begin.date()), "last": str(until.date())}
            Date(self._name, bounds["first"], bounds["last"])
        except (ValueError, OverflowError, OSError):  # years that no schema has
            return None
        return {"kind": "date", **bounds, **({} if format is None else {"format": format})}

    def _formats(self) -> list[str]:
        """Return formats of dates by how many cells they fit, the best first."""
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(self._array)
        fitting = {}
        for name in DATE_FORMATS:
            read = pc.strptime(texts, format=name, unit="s", error_is_null=True)
            fitting[name] = len(read) - read.null_count
        best = sorted(DATE_FORMATS, key=lambda name: -fitting[name])
        return [name for name in best if fitting[name] >= _NEARLY_ALL * self._n_known]

    def _words(self) -> dict[str, Any] | str:
        if len(self._labels) == 1:
            return _CONSTANT
        lower = {label.lower() for label in self._labels}
        if lower in _KNOWN_WORDS:
            return {"kind": "flag"}
        for true, false in _WORDS:
            if lower == {true, false}:
                return {"kind": "flag", "true": true, "false": false}
        enough = [label for label, count in self._labels.items() if count >= MIN_LABEL]
        usual = [label for label in enough if _may_be_label(label)][:MAX_LABELS]
        if sum(self._labels[label] for label in usual) < self._n_known / 2:
            return _MANY_TEXTS
        return {"kind": "category", "values": sorted(usual)}


def _may_be_label(text: str) -> bool:
    is_number = text.lower().lstrip("+-") in NO_NUMBERS
    return bool(text) and text.isprintable() and not is_number and text.lower() != OTHER


def round_bounds(values: Floats) -> tuple[float, float, str]:
    """Return round bounds beyond nearly all values (n,), and the scale that they ask for.

    The outermost values count as long as they lie near the others: a wrong digit does not decide.
    """
    values = np.clip(values, -_FAR, _FAR)
    low, middle, high = np.quantile(values, [_TAIL, 0.5, 1 - _TAIL], method="nearest").tolist()
    least, most = float(values.min()), float(values.max())
    if least >= 0 and middle > 0 and high > _SKEWED * middle:
        return 0.0, _up(min(most, 2 * high)), "log"
    reach = (high - low) / 2
    low = least if low - least <= reach else low
    high = most if most - high <= reach else high
    width = high - low or abs(high) or 1.0
    step = _up(width / _STEPS)
    if bool((values == np.floor(values)).all()):
        step = max(step, 1.0)
    below, above = math.floor(low / step), math.ceil(high / step)
    above += above == below
    if 0 < below * step < 0.3 * above * step:
        below = 0
    return below * step, above * step, "linear"


def _up(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... and their tenths that is not below a value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def plain(value: float) -> float | int:
    """Return a bound as people write it: whole, or without the last digits that no one means."""
    rounded = float(f"{value:.10g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
