"""Columns with labels as values: categories and flags."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Rule

OTHER, MISSING = "other", "missing"
MAX_CATEGORY_VALUES = 1000  # each label is a coordinate
_NUMBER_PATTERN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NO_NUMBERS = ("nan", "inf", "infinity")


def label_text(value: Any) -> str:
    """Return the canonical spelling of a label: 3, 3.0, "3" and "03" are the same.

    Libraries infer the type of a column from all its cells. The label of one cell must not depend
    on the others, so numbers of every type are converted to a float64.
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if not isinstance(value, str):
        try:
            return _number_text(float(value))
        except OverflowError:  # larger than any float, and than any label
            return hex(value) if isinstance(value, int) else "a number"
        except (TypeError, ValueError):
            return str(value)
    text = value.strip()
    if _NUMBER_PATTERN.fullmatch(text):
        return _number_text(float(text))
    return text.lower() if text.lower() in ("true", "false") else text


def _number_text(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


class Labelled(Column):
    """A column of labels: corners of a simplex, or for yes and no the two ends of a line."""

    READS_TEXT: ClassVar[bool] = True
    RULES: ClassVar[tuple[Rule, ...]] = ("error", "drop", "category")

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, in the order of their indices."""
        raise NotImplementedError

    @property
    def is_line(self) -> bool:
        """Whether one coordinate is enough, as for a flag without a label for missing values."""
        return False

    @property
    def corner(self) -> float:
        """Coordinate of a label at its own corner: any two corners are `weight` apart."""
        return self.weight / math.sqrt(2)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates: that of the column on a line, else one for each label."""
        labels = tuple(f"{self.name}={label}" for label in self.labels)
        return super().coordinates if self.is_line else labels

    @property
    def lowest(self) -> Floats:
        """Smallest coordinate: -w/2 on a line, else 0."""
        return super().lowest if self.is_line else np.zeros(len(self.labels))

    @property
    def highest(self) -> Floats:
        """Largest coordinate: w/2 on a line, else that of a label at its own corner."""
        return super().highest if self.is_line else np.full(len(self.labels), self.corner)

    @property
    def center(self) -> Floats:
        """Middle of the line, or the centroid of the corners."""
        return super().center if self.is_line else self.highest / len(self.labels)

    @property
    def squared_radius(self) -> float:
        """Squared distance from `center` to a label."""
        corner_distance = self.corner**2 * (1 - 1 / len(self.labels))
        return super().squared_radius if self.is_line else corner_distance

    def encode(self, values: Floats) -> Floats:
        """Map the index of each label to its corner, or 0 to -w/2 and 1 to w/2 on a line."""
        if self.is_line:
            return ((values - 0.5) * self.weight)[np.newaxis]
        corners = np.zeros((len(self.labels), len(values)))
        for index, row in enumerate(corners):
            row[values == index] = self.corner
        corners[:, np.isnan(values)] = np.nan
        return corners

    def decode(self, coordinates: Floats) -> Floats:
        """Return the share of yes, or of all labels."""
        shares = self.shares(coordinates)
        return shares[:, 1:] if self.is_line else shares

    def slopes(self, coordinates: Floats) -> Floats:
        """Return shares per unit of a coordinate."""
        scale = self.weight if self.is_line else self.corner
        return np.eye(len(self.coordinates)) / scale

    def shares(self, coordinates: Floats) -> Floats:
        """Return shares of the labels (n, n_labels): not negative, with sum 1."""
        if self.is_line:
            yes = np.clip(coordinates[:, 0] / self.weight + 0.5, 0.0, 1.0)
            return np.stack([1 - yes, yes], axis=1)
        parts = np.clip(coordinates / self.corner, 0.0, None)
        total = parts.sum(axis=1, keepdims=True)
        return np.where(total > 0, parts / np.where(total > 0, total, 1.0), 1 / parts.shape[1])

    def value_of(self, text: Any) -> float:
        """Return the index of a value among the labels."""
        keys = [label_text(label) for label in self.labels]
        if label_text(text) not in keys:
            raise self._error("fill", text, "is not one of its values")
        return float(keys.index(label_text(text)))


@dataclass(frozen=True)
class Category(Labelled):
    """One of a few values; any other value is "other".

    Parameters
    ----------
    name : str
        Name of the column in the table.
    values : list of str, int or bool
        Public list of the values. Any other value counts as "other".
    weight, missing, fill : optional
        As for a number. With `missing="category"`, missing values are a value of their own. `fill`
        is one of the values, or "other".

    Examples
    --------
    >>> import privsketch as ps
    >>> ps.Category("region", ["north", "south"]).labels
    ('north', 'south', 'other')
    """

    KIND: ClassVar[str] = "category"

    name: str
    values: Sequence[Any]
    weight: float = 1.0
    missing: Rule | None = None
    fill: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        is_list = isinstance(self.values, list | tuple | np.ndarray)
        if not is_list or len(self.values) == 0:
            raise self._error("values", self.values, "expected a list of the values it may have")
        if not all(isinstance(v, str | int | bool | np.generic) for v in self.values):
            raise self._error("values", self.values, "expected texts or whole numbers")
        texts = tuple(v.strip() if isinstance(v, str) else label_text(v) for v in self.values)
        keys = [label_text(text) for text in texts]
        repeated = [text for text, key in zip(texts, keys, strict=True) if keys.count(key) > 1]
        if repeated:
            raise self._error("values", repeated[0], "occurs twice")
        if any(key.lower().lstrip("+-") in NO_NUMBERS for key in keys):
            raise self._error("values", texts, "one of them would be read as a missing number")
        if len(texts) > MAX_CATEGORY_VALUES:
            raise self._error("values", len(texts), f"more than {MAX_CATEGORY_VALUES} of them")
        if not all(text and text.isprintable() for text in texts):
            raise self._error("values", "", "a value is empty or not printable")
        self._set("values", texts)
        if self.fill is not None:
            self._set("fill", self.labels[int(self.value_of(self.fill))])

    @property
    def keys(self) -> tuple[str, ...]:
        """Canonical spelling of the values, with which cells are compared."""
        return tuple(label_text(value) for value in self.values)

    @property
    def labels(self) -> tuple[str, ...]:
        """Values, then "other", and "missing" if that is a label."""
        additional = (OTHER, MISSING) if self.missing == "category" else (OTHER,)
        return (*self.values, *(label for label in additional if label not in self.values))

    def _words(self) -> str:
        shown = ", ".join(self.values[:6]) + (", ..." if len(self.values) > 6 else "")
        return f"category of {len(self.values)} values ({shown}) and others"


@dataclass(frozen=True)
class Flag(Labelled):
    """Yes or no: booleans, 0 and 1, or the words true, false, yes, no, t, f, y, n.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    true, false : str
        Additional words of this column for its two values.
    weight, missing, fill : optional
        As for a category.
    """

    KIND: ClassVar[str] = "flag"

    name: str
    true: str | None = None
    false: str | None = None
    weight: float = 1.0
    missing: Rule | None = None
    fill: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("true", "false"):
            word = getattr(self, name)
            if word is not None and (not isinstance(word, str) or not word.strip()):
                raise self._error(name, word, "expected a word")
        words = [label_text(w).lower() for w in (self.true, self.false) if w is not None]
        if len(words) == 2 and words[0] == words[1]:
            raise self._error("true", self.true, "is also the word for false")
        if self.fill is not None and not isinstance(self.fill, bool):
            raise self._error("fill", self.fill, "expected True or False")

    @property
    def labels(self) -> tuple[str, ...]:
        """No, yes, and "missing" if that is a label."""
        return ("no", "yes", MISSING) if self.missing == "category" else ("no", "yes")

    @property
    def is_line(self) -> bool:
        """Whether one coordinate is enough: a simplex is needed only if missing is a value."""
        return self.missing != "category"

    def value_of(self, text: Any) -> float:
        """Return 0 for no, 1 for yes, 2 for missing where that is a value of its own."""
        return 2.0 if isinstance(text, str) else float(bool(text))

    def _words(self) -> str:
        return "yes or no"
