"""Descriptions of clusters in a few words: "older, higher glucose, mostly north".

They follow from released numbers only. Every cluster is compared with the mean of the others,
column by column. A column is named if the difference exceeds `MIN_ERRORS` standard errors and is
large enough to matter. The largest differences, relative to the public bounds, come first.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Cycle, Date
from privsketch.facts.labels import MISSING, OTHER, Category, Flag, Labelled
from privsketch.facts.units import digits
from privsketch.pages.report.fields import Parts

MIN_DESCRIBED_SHARE = 0.005  # share of records below which a center is noise
MAX_PHRASES = 4  # columns that describe a cluster
MIN_ERRORS = 4.0  # standard errors of a difference: one false word in 16,000 comparisons
# Smallest differences that matter: of a number in half-ranges, of a share, and of either if errors
# are unknown. Shares from a sketch were off by up to 0.1 in the demo, beyond their errors.
MIN_NUMBER, MIN_LABEL, MIN_UNKNOWN = 0.1, 0.15, 0.2
# Shares for the words "mostly", "seldom" and "hardly any".
_MIN_MOSTLY, _MAX_SELDOM, _MAX_HARDLY = 0.5, 0.2, 0.1
_MIN_STRENGTH = 0.25  # mean length, relative to the radius, from which values of a cycle gather


@dataclass(frozen=True, eq=False)
class _Difference:
    """The difference of a part from the mean of the others, in coordinates of weight 1."""

    values: Floats
    difference: Floats  # values minus the mean of the others
    error: Floats | None
    other_values: Floats  # (size - 1, n_coordinates)
    other_errors: Floats | None
    value_error: Floats | None
    min_size: float = MIN_NUMBER

    def mask(self) -> npt.NDArray[np.bool_]:
        """Return which coordinates differ beyond errors, and by enough to matter."""
        if self.error is None:
            return np.asarray(np.abs(self.difference) >= MIN_UNKNOWN)
        is_large = np.abs(self.difference) >= self.min_size
        return np.asarray(is_large & (np.abs(self.difference) > MIN_ERRORS * self.error))

    def is_extreme(self, coordinate: int) -> bool:
        """Return whether this part is beyond all others, errors included."""
        sign = math.copysign(1.0, self.difference[coordinate])
        gaps = sign * (self.values[coordinate] - self.other_values[:, coordinate])
        if self.value_error is None or self.other_errors is None:
            return bool((gaps >= MIN_UNKNOWN).all())
        errors = np.hypot(self.value_error[coordinate], self.other_errors[:, coordinate])
        return bool((gaps > MIN_ERRORS * errors).all())


def words_of(parts: Parts) -> list[str]:
    """Return a few words for every part; none if no column stands out."""
    if parts.size < 2:
        return [""] * parts.size
    return [
        _portrait(parts, k) if weight >= MIN_DESCRIBED_SHARE else "hardly any records"
        for k, weight in enumerate(parts.weights)
    ]


def _portrait(parts: Parts, k: int) -> str:
    phrases: list[tuple[float, str]] = []
    if parts.schema is None:
        for j, name in enumerate(parts.names):
            difference = _difference(parts, k, slice(j, j + 1), float(parts.scales[j]))
            if difference.mask().any():
                size = abs(float(difference.difference[0]))
                phrases.append((size, _number_words(name, difference)))
    else:
        categories = [c for c in parts.schema.columns if isinstance(c, Category)]
        labels = Counter(label for column in categories for label in column.labels)
        for column, span in parts.schema.places():
            difference = _difference(parts, k, span, _unit(column))
            if isinstance(column, Labelled):
                difference = replace(difference, min_size=MIN_LABEL)
            if difference.mask().any():
                size = float(np.linalg.norm(difference.difference))
                phrases.append((size, _column_words(column, difference, labels)))
    phrases.sort(key=lambda phrase: -phrase[0])
    return ", ".join(text for _, text in phrases[:MAX_PHRASES])


def _unit(column: Column) -> float:
    """Return the divisor that turns coordinates into half-ranges, or into shares of labels."""
    is_corner = isinstance(column, Category) or (isinstance(column, Flag) and not column.is_line)
    return column.weight / math.sqrt(2) if is_corner else column.weight


def _difference(parts: Parts, k: int, span: slice, unit: float) -> _Difference:
    values = parts.centers[:, span] / unit
    other_parts = np.delete(np.arange(parts.size), k)
    weights = np.maximum(parts.weights[other_parts], 0.0)
    total, equal = weights.sum(), np.full(len(other_parts), 1 / len(other_parts))
    weights = weights / total if total > 0 else equal
    away = values[k] - weights @ values[other_parts]
    if parts.errors is None:
        return _Difference(values[k], away, None, values[other_parts], None, None)
    errors = parts.errors[:, span] / unit
    error = np.sqrt(errors[k] ** 2 + weights**2 @ errors[other_parts] ** 2)
    return _Difference(values[k], away, error, values[other_parts], errors[other_parts], errors[k])


def _column_words(column: Column, difference: _Difference, labels: Counter[str]) -> str:
    if isinstance(column, Category):
        return _category_words(column, difference, labels)
    if isinstance(column, Flag):
        return _flag_words(column, difference)
    if isinstance(column, Cycle):
        return _cycle_words(column, difference)
    if isinstance(column, Date):
        end = "st" if difference.is_extreme(0) else "r"
        return f"{column.name} {'late' if difference.difference[0] > 0 else 'earlie'}{end}"
    return _number_words(column.name, difference)


def _number_words(name: str, difference: _Difference) -> str:
    more, extreme = difference.difference[0] > 0, difference.is_extreme(0)
    ending = "est" if extreme else "er"
    if name.lower() in ("age", "age_years", "age in years"):
        return f"{'old' if more else 'young'}{ending}"
    return f"{'high' if more else 'low'}{ending} {name}"


def _flag_words(column: Flag, difference: _Difference) -> str:
    if column.is_line:
        share, away = float(difference.values[0] + 0.5), float(difference.difference[0])
    else:
        share, away = float(difference.values[1]), float(difference.difference[1])
        missing = difference.difference[2]
        if difference.mask()[2] and abs(missing) > abs(away):  # the larger difference
            return f"{column.name} {'more' if missing > 0 else 'less'} often missing"
    if away > 0:
        return f"mostly {column.name}" if share >= _MIN_MOSTLY else f"{column.name} more often"
    return f"seldom {column.name}" if share <= _MAX_SELDOM else f"{column.name} less often"


def _category_words(column: Category, difference: _Difference, labels: Counter[str]) -> str:
    """Name the label whose share is larger than elsewhere, or else smaller."""
    away = np.where(difference.mask(), difference.difference, 0.0)
    j = int(away.argmax()) if away.max() > 0 else int(away.argmin())
    label, share = column.labels[j], float(difference.values[j])
    name = label
    if labels[label] > 1 or label in (OTHER, MISSING) or not label[0].isalpha() or len(label) < 3:
        name = f"{column.name} {label}"
    if away[j] > 0:
        return f"mostly {name}" if share >= _MIN_MOSTLY else f"more {name}"
    return f"hardly any {name}" if share < _MAX_HARDLY else f"less {name}"


def _cycle_words(column: Cycle, difference: _Difference) -> str:
    """Name the value around which values gather, or say that they do not gather."""
    length = float(np.linalg.norm(difference.values)) * 2  # the radius of the circle is 1 / 2
    if length < _MIN_STRENGTH:
        return f"{column.name} all around"
    value = float(column.decode((difference.values * column.weight)[np.newaxis])[0, 0])
    return f"{column.name} around {digits(value, column.period / 2)}"
