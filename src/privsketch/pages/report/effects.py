"""Linear results in words: "one more year of age goes with 0.40 mmHg more, 0.39 to 0.41".

A *step* is a change of a term that people can imagine: one unit of a number, a year or a day, twice
a logarithmic number, yes instead of no, one label instead of another. An *outcome* is what the
target does: more or fewer of its units, later days, a factor, percentage points of a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Cycle, Date, Number
from privsketch.facts.labels import Labelled
from privsketch.facts.units import MEASURES, digits
from privsketch.models.linear import LinearModel

YEAR = 365.25
WIDTH = 1.959963984540054  # standard errors of a 95 % interval
LOGARITHM = "its natural logarithm"  # in place of a unit
_CLOSE = 1e-12  # rounding of the bounds of a column


@dataclass(frozen=True)
class Step:
    """A change of one term: what changes, and by how much."""

    words: str
    size: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """What a change of the target by one is called.

    `more` and `less` follow a size, "0.40 mmHg more"; `log_of` is what is multiplied instead if the
    target is logarithmic.
    """

    factor: float
    more: str
    less: str
    log_of: str = ""

    def describe(self, value: float, low: float, high: float) -> str:
        """Return a change of the target and its interval in words."""
        if self.log_of:
            return self._factor_words(value, low, high)
        value, low, high = (self.factor * number for number in (value, low, high))
        error = (high - low) / (2 * WIDTH)
        if low <= 0 <= high:
            ends = (f"{digits(-low, error)} {self.less}", f"{digits(high, error)} {self.more}")
            return f"no clear difference: from {ends[0]} to {ends[1]}"
        end = self.more if value > 0 else self.less
        near, far = sorted((abs(low), abs(high)))
        texts = [digits(number, error) for number in (abs(value), near, far)]
        return f"{texts[0]} {end}, {texts[1]} to {texts[2]}"

    def _factor_words(self, value: float, low: float, high: float) -> str:
        error = (high - low) / (2 * WIDTH) * math.exp(min(value, 50.0))
        texts = [digits(math.exp(min(number, 50.0)), error) for number in (value, low, high)]
        unclear = "no clear difference: " if low <= 0 <= high else ""
        return f"{unclear}{texts[0]} times {self.log_of}, {texts[1]} to {texts[2]}"


def columns_of_terms(model: LinearModel) -> list[Column | None]:
    """Return the column of each term; None without a schema."""
    if model.schema is None:
        return [None] * len(model.names)
    columns: list[Column | None] = []
    for column in model.schema.columns:
        is_corner = isinstance(column, Labelled) and not column.is_line
        columns += [column] * (len(column.coordinates) - is_corner)
    return columns


def step_of(column: Column | None, name: str, against: str) -> Step | None:
    """Return a step of a term; None for a direction of a cycle, which is none by itself."""
    if column is None:
        return Step(f"one more of {name}")
    if isinstance(column, Cycle):
        return None
    if isinstance(column, Labelled):
        label = name.removeprefix(f"{column.name}=") if not column.is_line else "yes"
        return Step(f"{column.name}: {label} instead of {against}")
    if isinstance(column, Date):
        low, high = column.bounds
        is_long = (high - low) / 86400 >= YEAR
        words = f"{column.name}: one {'year' if is_long else 'day'} later"
        return Step(words, YEAR if is_long else 1.0)
    if isinstance(column, Number) and column.scale == "log":
        return Step(f"twice {_log_of(column)}", math.log(2))
    if not isinstance(column, Number):
        return Step(f"one more of {column.name}")
    size, unit = _readable_size(column.high - column.low), column.unit
    amount = "one" if size == 1 else f"{size:,.12g}"
    if not unit:
        return Step(f"{amount} more of {column.name}", size)
    named = _singular(unit) if size == 1 else unit
    return Step(f"{amount} more {named} of {column.name}", size)


def outcome_of(column: Column | None, name: str) -> Outcome:
    """Return what a change of a target is called; labels change by percentage points of a share."""
    if isinstance(column, Labelled):
        return share_outcome()
    if isinstance(column, Date):
        return Outcome(1.0, "days later", "days earlier")
    if isinstance(column, Number) and column.scale == "log":
        return Outcome(1.0, "", "", log_of=_log_of(column))
    if isinstance(column, Number) and column.unit:
        return Outcome(1.0, f"{column.unit} more", f"{column.unit} less")
    return Outcome(1.0, f"more of {name}", f"less of {name}")


def share_outcome() -> Outcome:
    """Return the outcome of a share or a probability."""
    return Outcome(100.0, "percentage points more", "percentage points less")


def effect_words(
    model: LinearModel,
    estimate: Floats,
    intervals: Floats,
    outcome: Outcome,
    n_shown: int,
    *,
    only_clear: bool = False,
) -> tuple[str, ...]:
    """Return sentences about the `n_shown` coefficients that are farthest from 0 in their errors.

    They have the order of the table. `only_clear` leaves out those whose interval has 0.
    """
    errors = (intervals[:, 1] - intervals[:, 0]) / (2 * WIDTH)
    known = np.isfinite(errors) & (errors > 0)
    multiples = np.abs(np.divide(estimate, errors, where=known, out=np.zeros(len(errors))))
    kept = known & (multiples > WIDTH) if only_clear else known
    order = [place for place in np.argsort(-multiples, kind="stable") if kept[place]]
    columns, sentences = columns_of_terms(model), []
    for place in sorted(order[:n_shown]):
        step = step_of(columns[place], model.names[place], model.against[place])
        if step is not None:
            numbers = step.size * np.array([estimate[place], *intervals[place]])
            changed = outcome.describe(*map(float, numbers))
            sentences.append(f"{step.words} goes with {changed}")
    return tuple(sentences)


def term_notes(model: LinearModel) -> list[str]:
    """Return what a coefficient of each term is about: "per year", "against surgery"."""
    notes = []
    for column, name, against in zip(
        columns_of_terms(model), model.names, model.against, strict=True
    ):
        if against:
            notes.append(f"against {against}")
        elif isinstance(column, Date):
            notes.append("per day")
        elif isinstance(column, Number) and column.scale == "log":
            notes.append("per factor of 2.718")
        elif isinstance(column, Number) and column.unit:
            notes.append(f"per {_singular(column.unit)}")
        else:
            notes.append("" if column is None or name != column.name else "per unit")
    return notes


def unit_of_target(column: Column | None) -> str:
    """Return what coefficients count: "mmHg", "days", or "" without a unit."""
    if isinstance(column, Date):
        return "days"
    if isinstance(column, Number) and column.scale == "log":
        return LOGARITHM
    return column.unit if isinstance(column, Number) else ""


def listed(names: Sequence[str], longest: int = 6, last: str = "and") -> str:
    """Return names as a list in words."""
    shown = [*names[:longest], *([f"{len(names) - longest} more"] if len(names) > longest else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def _log_of(column: Number) -> str:
    return column.name if column.low > 0 else f"(1 + {column.name} / {column.log_unit:,.12g})"


def _singular(unit: str) -> str:
    """Return the name of one unit: year of years; other units stay as they are."""
    one = unit[:-1]
    known = any({one.lower(), unit.lower()} <= set(m.symbols) for m in MEASURES.values())
    return one if unit.endswith("s") and known else unit


def _readable_size(width: float) -> float:
    """Return 1, or a power of ten where one is more than half of the range, or next to nothing."""
    if 2 <= width <= 1000 * (1 + _CLOSE):
        return 1.0
    return float(10.0 ** math.floor(math.log10(width / 10 * (1 + _CLOSE))))
