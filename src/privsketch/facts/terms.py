"""Linear results in the units of the table: terms of a regression, and what they multiply.

A linear function of encoded coordinates is a linear function of *terms*, which people read:

| column | terms | the coefficient says what goes with |
|---|---|---|
| number, date | its value; days since 1970-01-01 of a date | one unit more, one day more |
| logarithmic number | log(x), or log(1 + x / u) where it begins at 0 | a factor of e |
| flag | 1 for yes, 0 for no | yes instead of no |
| category | 1 for a label, 0 for others; none for the reference | this label, not the reference |
| cycle | cosine and sine of the turn | a turn from 0 to 1 |

Terms are affine in the coordinates, `slopes (z - origin)`. A function `coef'z` of records, whose
shares of labels sum to 1, has the coefficients `effects coef` and the value `coef'origin` where all
terms are 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.columns import DAY, Column, Cycle, Date, Line, Number, plain
from privsketch.facts.labels import Category, Flag, Labelled
from privsketch.facts.schema import Schema


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms of records with `dim` coordinates.

    Attributes
    ----------
    names : tuple of str
    against : tuple of str
        What a term of a label is compared with; empty for numbers.
    slopes : (n_terms, dim) float64
        Derivatives of the terms by the coordinates.
    effects : (n_terms, dim) float64
        Coefficients of the terms, from those of the coordinates.
    origin : (dim,) float64
        Encoded record at which all terms are 0.
    """

    names: tuple[str, ...]
    against: tuple[str, ...]
    slopes: Floats
    effects: Floats
    origin: Floats

    def values(self, points: Floats) -> Floats:
        """Return terms (n, n_terms) of encoded records (n, dim)."""
        return np.asarray((points - self.origin) @ self.slopes.T)


def terms_of(schema: Schema, references: Mapping[str, str]) -> Terms:
    """Return the terms of a schema, with a label of reference for each category."""
    names: list[str] = []
    against: list[str] = []
    slopes: list[Floats] = []
    effects: list[Floats] = []
    origin = np.zeros(schema.dim)
    for column, place in schema.places():
        reference = references.get(column.name, "")
        found = _terms_of_column(column, reference)
        names += found.names
        against += found.against
        origin[place] = found.origin
        for parts, rows in ((slopes, found.slopes), (effects, found.effects)):
            wide = np.zeros((len(rows), schema.dim))
            wide[:, place] = rows
            parts.append(wide)
    return Terms(tuple(names), tuple(against), np.vstack(slopes), np.vstack(effects), origin)


def plain_terms(names: Sequence[str]) -> Terms:
    """Return the terms of columns without a schema: the columns themselves."""
    size = len(names)
    return Terms(tuple(names), ("",) * size, np.eye(size), np.eye(size), np.zeros(size))


def labelled_columns(schema: Schema) -> list[Labelled]:
    """Return the columns whose labels have a coordinate each."""
    return [c for c in schema.columns if isinstance(c, Labelled) and not c.is_line]


def label_coordinate(schema: Schema, name: str) -> tuple[Labelled, int] | None:
    """Return the column and the label of a coordinate such as "ward=A"; None for other names."""
    for column in labelled_columns(schema):
        if name in column.coordinates:
            return column, column.coordinates.index(name)
    return None


def terms_of_target(schema: Schema, name: str) -> Terms:
    """Return the one term of a target in a schema of its column: a column, or a label's share."""
    found = label_coordinate(schema, name)
    if found is None:
        return terms_of(schema, {})
    column, place = found
    row = np.eye(len(column.labels))[place : place + 1]
    origin = np.zeros(len(column.labels))
    return Terms((name,), ("",), row / column.corner, row * column.corner, origin)


def term_values(column: Column, values: Floats) -> Floats:
    """Return the term (n,) of values (n,) of a number, a date or a flag, as `encode` takes them."""
    terms = terms_of(Schema((column,), missing="drop"), {})
    return np.asarray(terms.values(column.encode(values).T)[:, 0])


def values_of_term(column: Column, terms: Floats) -> Floats:
    """Return values of the table for values of a column's term, in any shape.

    Those of a logarithmic number lie between its bounds. Others are terms already.
    """
    if not (isinstance(column, Number) and column.scale == "log"):
        return terms
    found = terms_of(Schema((column,)), {})
    points = (terms / found.slopes[0, 0] + found.origin[0]).reshape(-1, 1)
    return np.asarray(column.decode(points).reshape(terms.shape))


def _terms_of_column(column: Column, reference: str) -> Terms:
    """Return the terms of one column, about its own coordinates."""
    if isinstance(column, Line):
        low, high = _ends(column)
        slope = (high - low) / (2 * column.weight)
        origin = column.weight * (-low / (high - low) * 2 - 1)
        name = _scaled_name(column)
        return Terms((name,), ("",), _entry(slope), _entry(1 / slope), np.array([origin]))
    if isinstance(column, Flag) and column.is_line:
        weight, no = column.weight, np.array([-column.weight / 2])
        return Terms((column.name,), ("no",), _entry(1 / weight), _entry(weight), no)
    if isinstance(column, Cycle):
        axes, radius = np.eye(2), column.radius
        return Terms(column.coordinates, ("", ""), axes / radius, axes * radius, np.zeros(2))
    if not isinstance(column, Category | Flag):
        raise ParameterError(f"column {column.name!r}: a {column.KIND} has no terms")
    place = column.labels.index(reference) if reference in column.labels else 0
    corners = np.eye(len(column.labels)) * column.corner
    others = np.arange(len(column.labels)) != place
    names = tuple(name for name, kept in zip(column.coordinates, others, strict=True) if kept)
    slopes = np.eye(len(column.labels))[others] / column.corner
    against = (column.labels[place],) * len(names)
    return Terms(names, against, slopes, corners[others] - corners[place], corners[place])


def _entry(value: float) -> Floats:
    return np.array([[value]])


def _ends(column: Line) -> tuple[float, float]:
    """Return the ends of the scale on which a column is linear in its coordinate."""
    low, high = column.bounds
    if isinstance(column, Date):
        return low / DAY, high / DAY
    if not (isinstance(column, Number) and column.scale == "log"):
        return low, high
    if low > 0:
        return math.log(low), math.log(high)
    return 0.0, math.log1p(high / column.log_unit)


def _scaled_name(column: Line) -> str:
    if not (isinstance(column, Number) and column.scale == "log"):
        return column.name
    if column.low > 0:
        return f"log({column.name})"
    return f"log(1 + {column.name} / {plain(column.log_unit)})"
