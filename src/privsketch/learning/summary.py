"""Means, shares and correlations, of all records and by group, from a sketch of second moments.

Sums over records of products of columns hold the first table of a study: those of a value with a
label are sums within a group. The model keeps the released sums with the variances of their noise,
and how columns of the table follow from them; its intervals are those of `models/sums`.

The noise of second moments is independent between entries of the matrix of (1, z)(1, z)'. That of
taxicab moments is independent between entries for their integers u, so that matrix is kept instead.
"""

from __future__ import annotations

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Line, Number
from privsketch.facts.labels import Labelled
from privsketch.facts.schema import Schema
from privsketch.facts.terms import terms_of
from privsketch.features.taxicab import to_coordinates
from privsketch.learning.concerns import source_concerns
from privsketch.learning.moments import Moments
from privsketch.models.summary import SummaryModel
from privsketch.sketching.sketch import Sketch

EDGE_SHARE = 0.98  # of the way to a bound: nearly all values lie there
MAX_NAMED = 3  # columns that a concern names


def learn_summary(sketch: Sketch, by: str | None = None) -> SummaryModel:
    """Learn means, shares and correlations from a sketch with second moments. Charges nothing.

    `table(by="ward")` of the model is the first table of a study: sizes of groups, means of numbers
    and shares of labels in each of them, with intervals that know the noise.

    Parameters
    ----------
    sketch : Sketch
        Sketch of a design with second moments, whatever its task: one holder's, several merged, or
        the total of a sealed study. Its mean must be released: without it there are no means, no
        shares and no sizes of groups.
    by : str, optional
        Category or flag whose labels are groups where the model is shown, in its report too.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> ill = rng.random(20_000) < 0.25
    >>> X = np.column_stack([rng.normal(50 + 10 * ill, 10), ill])
    >>> schema = ps.Schema([ps.Number("age", 18, 100), ps.Flag("ill")])
    >>> design = ps.Design.plan(task="regression", domain=schema, n_records=20_000,
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = ps.learn_summary(ps.sketch(X, design))
    >>> model.table(by="ill").loc["age", "yes"].round().tolist()
    [60.0, 60.0, 60.0]
    """
    moments = Moments.of(sketch)
    if not moments.has_mean:
        raise ParameterError(
            "this sketch has no mean: sums of products about the center of the domain tell no "
            "mean, no share and no size of a group; plan a design with `mean='released'`"
        )
    terms = _terms(moments)
    sums, variance = moments.matrix, moments.variance
    if sketch.design.feature_map == "taxicab":
        sums, variance = sketch.taxicab_moments()
        terms = terms @ to_coordinates(sketch.design.domain, sketch.design.column_kinds)
    model = SummaryModel(
        sums=sums,
        noise_variance=variance,
        noise_kurtosis=_kurtosis(sketch),
        terms=terms,
        n_records=moments.n_records,
        repetition=moments.repetition,
        by=by,
        design_fingerprint=sketch.design.fingerprint,
        receipt=sketch.receipt,
        columns=moments.coordinates,
        concerns=_concerns(sketch, moments),
        schema=moments.schema,
    )
    if by is not None:
        model.labels_of(by)
    return model


def _kurtosis(sketch: Sketch) -> float:
    """Return the excess kurtosis of the noise of an entry: that of a sum of Laplace noises."""
    law = sketch.design.sum_noise.sums_law
    return 3.0 / max(sketch.noises(law), 1.0) if law.kind == "laplace" else 0.0


def _terms(moments: Moments) -> Floats:
    """Return the constant and the values or labels of a record as functions of (1, z)."""
    size = 1 + moments.dim
    rows = np.zeros((size, size))
    rows[0, 0] = 1.0
    if moments.schema is None:
        rows[1:, 1:], rows[1:, 0] = np.eye(moments.dim), moments.center
        return rows
    for column, place in moments.schema.places():
        slopes, origin = _terms_of_column(column)
        block = slice(place.start + 1, place.stop + 1)
        rows[block, block] = slopes
        rows[block, 0] = slopes @ (moments.center[place] - origin)
    return rows


def _terms_of_column(column: Column) -> tuple[Floats, Floats]:
    """Return slopes and origin of a column's values, or of all of its labels."""
    if isinstance(column, Labelled) and not column.is_line:
        size = len(column.labels)
        return np.eye(size) / column.corner, np.zeros(size)
    terms = terms_of(Schema((column,), missing="drop"), {})
    return terms.slopes, terms.origin


def _concerns(sketch: Sketch, moments: Moments) -> tuple[str, ...]:
    """Return reasons to doubt the table, in words."""
    texts = [*source_concerns(sketch)]
    if sketch.n_records is None:
        texts.append(
            "the sketch has no number of records: all results are per record of "
            f"{moments.n_records:.0f}, the number it was planned for, as if that were true"
        )
    if moments.schema is not None and moments.radius < moments.schema.radius * (1 - 1e-9):
        texts.append(
            "records outside of a smaller ball were moved towards the middle, labels too, which "
            "bends means and shares; plan with `clip='corner'`"
        )
    names = [] if moments.schema is None else _on_the_edge(moments, moments.schema)
    if names:
        listed = ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
        texts.append(
            f"nearly all values lie at a bound ({listed}), where those outside of it end up: "
            "bounds are too narrow, or values are in another unit"
        )
    return tuple(texts)


def _on_the_edge(moments: Moments, schema: Schema) -> list[str]:
    """Return the bounds at which nearly all values of a column lie; a low bound of 0 is natural."""
    names = []
    for column, place in schema.places():
        if not isinstance(column, Line):
            continue
        row, reach = place.start + 1, moments.n_records * column.radius
        error = float(np.sqrt(moments.variance[0, row])) / reach
        position = float(moments.matrix[0, row]) / reach
        is_natural = isinstance(column, Number) and column.low == 0
        if position - 2 * error > EDGE_SHARE:
            names.append(f"high bound of {column.name}")
        elif -position - 2 * error > EDGE_SHARE and not is_natural:
            names.append(f"low bound of {column.name}")
    return names
