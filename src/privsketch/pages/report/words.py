"""A cluster in a few words, from released numbers only: "older, higher glucose, mostly north".

Every cluster is compared with the mean of the others, column by column. A column is named if the
difference is larger than its standard error explains, `BEYOND` of them, and large enough to
matter; the largest differences, in parts of the public bounds, come first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Cycle, Date
from privsketch.facts.labels import MISSING, OTHER, Category, Flag, Labelled
from privsketch.facts.units import digits
from privsketch.pages.report.fields import Parts

FEW, NOBODY = 0.005, "hardly any records"  # a center of so few is noise
MAX_THINGS = 4  # that a cluster is described by
BEYOND = 4.0  # standard errors of a difference: one false word in 16,000 comparisons
# Differences that matter, in half-ranges of a number or as shares; larger where a method tells no
# errors. Shares from a sketch were off by up to 0.1 in the demo, which their errors do not tell.
MATTERS, MATTERS_OF_SHARES, MATTERS_UNKNOWN = 0.1, 0.15, 0.2
_MOSTLY, _SELDOM = 0.5, 0.2


@dataclass(frozen=True, eq=False)
class _Difference:
    """One part against the mean of the others, in some coordinates of a column of weight 1."""

    own: Floats
    away: Floats  # own minus the others'
    error: Floats | None
    others: Floats  # (size - 1, n_coordinates)
    other_errors: Floats | None
    own_error: Floats | None
    matters: float = MATTERS

    def stands_out(self) -> bool:
        """Whether some coordinate differs by more than errors explain, and enough to matter."""
        return bool(self.places().any())

    def places(self) -> Floats:
        """Which coordinates stand out."""
        if self.error is None:
            return np.asarray(np.abs(self.away) >= MATTERS_UNKNOWN)
        enough = np.abs(self.away) >= self.matters
        return np.asarray(enough & (np.abs(self.away) > BEYOND * self.error))

    def is_extreme(self, coordinate: int) -> bool:
        """Whether no other part reaches so far, errors allowed for."""
        sign = math.copysign(1.0, self.away[coordinate])
        gaps = sign * (self.own[coordinate] - self.others[:, coordinate])
        if self.own_error is None or self.other_errors is None:
            return bool((gaps >= MATTERS_UNKNOWN).all())
        errors = np.hypot(self.own_error[coordinate], self.other_errors[:, coordinate])
        return bool((gaps > BEYOND * errors).all())


def words_of(parts: Parts) -> list[str]:
    """A few words for every part; empty where nothing stands out."""
    if parts.size < 2:
        return [""] * parts.size
    return [_portrait(parts, k) if parts.weights[k] >= FEW else NOBODY for k in range(parts.size)]


def _portrait(parts: Parts, k: int) -> str:
    found: list[tuple[float, str]] = []
    if parts.schema is None:
        for j, name in enumerate(parts.names):
            difference = _difference(parts, k, slice(j, j + 1), float(parts.scales[j]))
            if difference.stands_out():
                found.append((abs(float(difference.away[0])), _number_words(name, difference)))
    else:
        labels = Counter(
            label
            for column in parts.schema.columns
            if isinstance(column, Category)
            for label in column.labels
        )
        for column, place in parts.schema.places():
            difference = _difference(parts, k, place, _unit(column))
            if isinstance(column, Labelled):
                difference = replace(difference, matters=MATTERS_OF_SHARES)
            if difference.stands_out():
                size = float(np.linalg.norm(difference.away))
                found.append((size, _column_words(column, difference, labels)))
    found.sort(key=lambda one: -one[0])
    return ", ".join(text for _, text in found[:MAX_THINGS])


def _unit(column: Column) -> float:
    """What a coordinate of a column of weight 1 would be divided by: shares are shares."""
    is_corner = isinstance(column, Category) or (isinstance(column, Flag) and not column.is_line)
    return column.weight / math.sqrt(2) if is_corner else column.weight


def _difference(parts: Parts, k: int, place: slice, unit: float) -> _Difference:
    values = parts.centers[:, place] / unit
    others = np.delete(np.arange(parts.size), k)
    weights = np.maximum(parts.weights[others], 0.0)
    weights = (
        weights / weights.sum() if weights.sum() > 0 else np.full(len(others), 1 / len(others))
    )
    away = values[k] - weights @ values[others]
    if parts.errors is None:
        return _Difference(values[k], away, None, values[others], None, None)
    errors = parts.errors[:, place] / unit
    error = np.sqrt(errors[k] ** 2 + weights**2 @ errors[others] ** 2)
    return _Difference(values[k], away, error, values[others], errors[others], errors[k])


def _column_words(column: Column, difference: _Difference, labels: Counter[str]) -> str:
    if isinstance(column, Category):
        return _category_words(column, difference, labels)
    if isinstance(column, Flag):
        return _flag_words(column, difference)
    if isinstance(column, Cycle):
        return _cycle_words(column, difference)
    if isinstance(column, Date):
        end = "st" if difference.is_extreme(0) else "r"
        return f"{column.name} {'late' if difference.away[0] > 0 else 'earlie'}{end}"
    return _number_words(column.name, difference)


def _number_words(name: str, difference: _Difference) -> str:
    more, extreme = difference.away[0] > 0, difference.is_extreme(0)
    if name.lower() in ("age", "age_years", "age in years"):
        return {
            (True, False): "older",
            (True, True): "oldest",
            (False, False): "younger",
            (False, True): "youngest",
        }[bool(more), extreme]
    return f"{'high' if more else 'low'}{'est' if extreme else 'er'} {name}"


def _flag_words(column: Flag, difference: _Difference) -> str:
    if column.is_line:
        share, away = float(difference.own[0] + 0.5), float(difference.away[0])
    else:
        share, away = float(difference.own[1]), float(difference.away[1])
        if difference.places()[2] and abs(difference.away[2]) > abs(away):  # the larger difference
            return f"{column.name} {'more' if difference.away[2] > 0 else 'less'} often missing"
    if away > 0:
        return f"mostly {column.name}" if share >= _MOSTLY else f"{column.name} more often"
    return f"seldom {column.name}" if share <= _SELDOM else f"{column.name} less often"


def _category_words(column: Category, difference: _Difference, labels: Counter[str]) -> str:
    """By the label whose share is larger than elsewhere, if there is one."""
    away = np.where(difference.places(), difference.away, 0.0)
    j = int(away.argmax()) if away.max() > 0 else int(away.argmin())
    label, share = column.labels[j], float(difference.own[j])
    told = label
    if labels[label] > 1 or label in (OTHER, MISSING) or not label[0].isalpha() or len(label) < 3:
        told = f"{column.name} {label}"
    if away[j] > 0:
        return f"mostly {told}" if share >= _MOSTLY else f"more {told}"
    return f"hardly any {told}" if share < 0.1 else f"less {told}"


def _cycle_words(column: Cycle, difference: _Difference) -> str:
    """Where on the circle values gather, or that they do not."""
    length = float(np.linalg.norm(difference.own)) * 2  # the circle has the radius 1 / 2
    if length < 0.25:
        return f"{column.name} all around"
    value = float(column.decode((difference.own * column.weight)[np.newaxis])[0, 0])
    return f"{column.name} around {digits(value, column.period / 2)}"
