"""Which column of a sketch is explained by which others, and in which units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.formats import count_text
from privsketch._base.types import Bits, Floats, Indices
from privsketch.facts.columns import Column, Cycle
from privsketch.facts.labels import MISSING, OTHER, Labelled
from privsketch.facts.schema import Schema
from privsketch.facts.terms import (
    Terms,
    label_coordinate,
    labelled_columns,
    plain_terms,
    terms_of,
    terms_of_target,
)
from privsketch.learning.concerns import COUNT_DEVIATIONS, source_concerns
from privsketch.learning.moments import Moments
from privsketch.learning.regression.inference import LinearFit
from privsketch.learning.regression.problem import LinearProblem
from privsketch.models.linear import IDENTIFIED, NOISE_DROWNS
from privsketch.sketching.sketch import Sketch

TOO_FEW = "too few records to say anything about this target"
EDGE_SHARE = 0.98  # share of the largest possible sum of squares: records are on the edge
MAX_NAMED = 3  # terms that a concern names


@dataclass(frozen=True, eq=False)
class View:
    """A sketch, and which column is explained by which others."""

    sketch: Sketch
    moments: Moments
    target: str
    target_column: Column | None
    target_place: int  # coordinate of the target; the first one of a category
    on: tuple[str, ...]
    schema: Schema | None  # of the predictors
    references: tuple[str, ...]
    terms: Terms
    scale: float  # the target's term is `offset + scale z`
    offset: float

    @classmethod
    def of(cls, sketch: Sketch, target: str | None, on: Sequence[str] | None) -> View:
        """Return the view of a sketch; raise ParameterError for columns that it has not."""
        moments = Moments.of(sketch)
        target = _target_of(sketch, target)
        label = None if moments.schema is None else label_coordinate(moments.schema, target)
        name = target if label is None else label[0].name
        place = moments.places(name)
        first = place.start + (0 if label is None else label[1])
        chosen = _predictors(moments, name, on)
        column, references = None, tuple[str, ...]()
        if moments.schema is None:
            columns = [moments.coordinates[moments.places(one).start] for one in chosen]
            schema, terms = None, plain_terms(columns)
            of_target = plain_terms([target])
        else:
            by_name = {column.name: column for column in moments.schema.columns}
            column = by_name[name]
            if isinstance(column, Cycle):
                raise ParameterError("target", target, "is a cycle, which has no order")
            schema = _schema_of(moments.schema, [by_name[one] for one in chosen])
            labelled = [one.name for one in labelled_columns(schema)]
            references = tuple(_most_frequent(moments, by_name[one]) for one in labelled)
            terms = terms_of(schema, dict(zip(labelled, references, strict=True)))
            of_target = terms_of_target(_schema_of(moments.schema, [column]), target)
        along = first - place.start
        scale = float(of_target.slopes[0, along])
        offset = scale * float(moments.center[first] - of_target.origin[along])
        return cls(
            sketch, moments, target, column, first, chosen, schema, references, terms, scale, offset
        )

    @property
    def target_name(self) -> str:
        """Name of the target's column, also where one of its labels is the target."""
        return self.target if self.target_column is None else self.target_column.name

    @property
    def needs_label(self) -> bool:
        """Whether the target is a category, of which one label alone would be a number."""
        column = self.target_column
        is_category = isinstance(column, Labelled) and not column.is_line
        return is_category and self.target == self.target_name

    def problem(self, place: int) -> LinearProblem:
        """Return the problem of one coordinate on the predictors."""
        return LinearProblem.of(self.moments, place, self.on)

    @cached_property
    def rows(self) -> Indices:
        """Rows of the predictors in the matrix of moments, (k,)."""
        return self.problem(self.target_place).predictors

    @property
    def centers(self) -> Floats:
        """Public center of the predictors' coordinates, (k,)."""
        return np.asarray(self.moments.center[self.rows - 1])

    @property
    def start(self) -> Floats:
        """The record at which all terms are 0, about the center, (k,)."""
        return np.subtract(self.terms.origin, self.centers)

    def intercept(self, fit: LinearFit, scale: float, offset: float) -> float:
        """Return what the posterior mean predicts where all terms are 0, of a target's term."""
        at_start = fit.mean[-1] + (self.start - fit.mean[:-1]) @ fit.coef
        return offset + scale * float(at_start)

    def center(self, fit: LinearFit) -> Floats:
        """Return the mean of the terms, (n_terms,)."""
        return np.asarray(self.terms.values((self.centers + fit.mean[:-1])[np.newaxis])[0])

    def identified(self, fit: LinearFit) -> Floats:
        """Return the share of each term's direction that stands out of the noise, (n_terms,)."""
        effects = self.terms.effects
        along = np.einsum("ij,jk,ik->i", effects, fit.strong, effects)
        return np.asarray(np.clip(along / np.square(effects).sum(axis=1), 0.0, 1.0))

    def common(self) -> dict[str, Any]:
        """Return fields that all models have."""
        moments, column = self.moments, self.target_column
        own = None
        if moments.schema is not None and column is not None:
            own = _schema_of(moments.schema, [column])
        places = [moments.places(name) for name in self.on]
        return {
            "references": self.references,
            "n_records": moments.n_records,
            "target_schema": own,
            "design_fingerprint": self.sketch.design.fingerprint,
            "receipt": self.sketch.receipt,
            "columns": tuple(name for place in places for name in moments.coordinates[place]),
            "schema": self.schema,
        }

    def concerns(self) -> tuple[str, ...]:
        """Return reasons to doubt whatever is learned from the sketch, in words."""
        texts = [*source_concerns(self.sketch)]
        if not self.moments.has_mean:
            texts.append(
                "the sketch has no mean: the regression goes through the center of the domain, and "
                "its coefficients are those of records about it; plan with `mean='released'`"
            )
        if self.sketch.n_records is None:
            texts.append(
                "the sketch has no number of records: variances and intervals are those of "
                f"{self.moments.n_records:.0f}, the number it was planned for"
            )
        if _is_clipped(self.moments):
            texts.append(
                "nearly all records lie on the edge of the domain, where those outside of it end "
                "up: bounds are too narrow, or records are in other units, which bends coefficients"
            )
        return tuple(texts)

    def doubts(self, drowned: bool, identified: Floats) -> list[str]:
        """Return concerns about the coefficients."""
        if drowned:
            return [TOO_FEW]
        weak = identified < IDENTIFIED
        expected = self._rare_terms()
        names = [n for n, lost in zip(self.terms.names, weak & ~expected, strict=True) if lost]
        if not names:
            return []
        listed = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
        share = f"{len(names)} of {count_text(len(identified), 'coefficient')}"
        return [
            f"{NOISE_DROWNS} {share} ({listed}): no interval, and predictions lean on the prior"
        ]

    def _rare_terms(self) -> Bits:
        """Return a mask of the terms of other and missing labels that hardly any record has."""
        names = []
        for column in () if self.schema is None else labelled_columns(self.schema):
            for place, label in enumerate(column.labels):
                if label in (OTHER, MISSING) and _is_rare(self.moments, column, place):
                    names.append(column.coordinates[place])
        return np.asarray(np.isin(self.terms.names, names))


def _target_of(sketch: Sketch, target: str | None) -> str:
    """Return the name of the target, or that of the design."""
    found = sketch.design.target if target is None else target
    if found is None:
        raise ParameterError("target: the design names none; say which column to explain")
    if not isinstance(found, str):
        raise ParameterError("target", found, "expected the name of a column")
    return found


def _predictors(moments: Moments, target: str, on: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the predictors, in the order of the sketch."""
    if isinstance(on, str):
        raise ParameterError("on", on, "expected a list of columns")
    chosen = [name for name in moments.names if name != target] if on is None else list(on)
    for name in chosen:
        moments.places(name)
    if target in chosen:
        raise ParameterError("on", target, "is the target itself")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ParameterError("on: expected one other column or more, each once")
    return tuple(name for name in moments.names if name in chosen)


def _schema_of(schema: Schema, columns: Sequence[Column]) -> Schema:
    """Return a schema of some columns, with the same rules; persons do not matter any more."""
    return Schema(tuple(columns), missing=schema.missing, unreadable=schema.unreadable)


def _most_frequent(moments: Moments, column: Column) -> str:
    """Return the label with the largest released share, and without a mean that of squares.

    The coordinate of a label is far from the center where records have it.
    """
    place = moments.places(column.name)
    sums = moments.matrix[0, 1:][place]
    if not moments.has_mean:
        sums = np.diag(moments.matrix)[1:][place]
    labels: tuple[str, ...] = column.labels  # type: ignore[attr-defined]
    return labels[int(sums.argmax())]


def _is_rare(moments: Moments, column: Labelled, label: int) -> bool:
    """Return whether noise may be all that a label's released share has."""
    row = moments.places(column.name).start + label
    share, error = share_of(moments, row, 1 / column.corner, 1 / len(column.labels))
    return moments.has_mean and share <= COUNT_DEVIATIONS * error


def share_of(moments: Moments, row: int, scale: float, offset: float) -> tuple[float, float]:
    """Return the released share of a label whose coordinate has this scale, and its error."""
    n_records = moments.n_records
    share = offset + scale * float(moments.matrix[0, row + 1]) / n_records
    noise = scale**2 * float(moments.variance[0, row + 1])
    noise += (share - offset) ** 2 * float(moments.variance[0, 0])
    sampling = max(share * (1 - share), 0.0) * moments.repetition / n_records
    return share, math.sqrt(noise / n_records**2 + sampling)


def _is_clipped(moments: Moments) -> bool:
    """Return whether nearly all records lie on the edge, as those outside of it do.

    Labels and cycles always do, so that only the other columns tell.
    """
    trace, reach = float(np.diag(moments.matrix)[1:].sum()), moments.radius**2
    error = math.sqrt(float(np.diag(moments.variance)[1:].sum()))
    if moments.schema is not None:
        for column, place in moments.schema.places():
            if isinstance(column, Labelled | Cycle):
                reach -= column.squared_radius
                trace -= float(np.diag(moments.matrix)[1:][place].sum())
    largest = moments.n_records * reach
    return reach > 1e-9 * moments.radius**2 and trace - 2 * error > EDGE_SHARE * largest
