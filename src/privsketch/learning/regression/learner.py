"""Regressions and classifiers from a sketch, at no further privacy cost, in units of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch.facts.labels import Labelled
from privsketch.learning.concerns import COUNT_DEVIATIONS
from privsketch.learning.regression.classes import groups_of, parts_of, shares_of
from privsketch.learning.regression.inference import (
    fit_linear,
    partial_correlations,
    residual_correlations,
)
from privsketch.learning.regression.view import MAX_NAMED, TOO_FEW, View
from privsketch.models.classifier import ClassifierModel
from privsketch.models.regression import RegressionModel
from privsketch.sketching.sketch import Sketch


def learn_regression(
    sketch: Sketch, target: str | None = None, on: Sequence[str] | None = None
) -> RegressionModel:
    """Learn a regression from a sketch with second moments. Charges nothing.

    Any column of the sketch may be the target, and any others its predictors, as often as you like.
    Intervals do not know what you have looked at before.

    Parameters
    ----------
    sketch : Sketch
        Sketch of a design with second moments, whatever its task: one holder's, several merged, or
        the total of a sealed study.
    target : str, optional
        Number, date or flag to explain, or one label of a category, such as "ward=A", whose share
        is explained; the design's target if left out.
    on : list of str, optional
        Columns that explain it; all others if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 90, 20_000)
    >>> X = np.column_stack([age, 90 + 0.4 * age + rng.normal(0, 10, 20_000)])
    >>> schema = ps.Schema([ps.Number("age", 18, 100), ps.Number("pressure", 60, 200)])
    >>> design = ps.Design.plan(
    ...     task="pca", n_components=1, feature_map="second-moments", mean="released",
    ...     domain=schema, budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = ps.learn_regression(ps.sketch(X, design), target="pressure")
    >>> low, high = model.interval()[0]
    >>> bool(0.35 < low < 0.4 < high < 0.45)
    True
    """
    view = View.of(sketch, target, on)
    if view.needs_label:
        raise ParameterError(
            "target", view.target, "is a category", "use learn_classifier, or one of its labels, "
            f"such as {view.moments.coordinates[view.target_place]!r}",
        )  # fmt: skip
    fit = fit_linear(view.problem(view.target_place))
    moments, terms, scale = view.moments, view.terms, view.scale
    effects = terms.effects * scale
    estimate, covariance = effects @ fit.estimate[1:], effects @ fit.covariance[1:, 1:] @ effects.T
    identified = view.identified(fit)
    start = np.append(1.0, view.start)  # the encoded record at which all terms are 0
    intercept_error = scale * math.sqrt(max(float(start @ fit.covariance @ start), 0.0))
    correlations, errors = residual_correlations(fit, moments)
    others = np.ones(moments.dim, dtype=bool)
    others[moments.places(view.target_name)] = False
    partial, partial_errors = partial_correlations(fit, moments, terms.effects)
    told = not fit.drowned
    return RegressionModel(
        target=view.target,
        coef=effects @ fit.coef,
        intercept=view.intercept(fit, scale, view.offset),
        spread=effects @ fit.spread @ effects.T,
        center=view.center(fit),
        estimate=estimate if told else None,
        covariance=covariance if told else None,
        partial_correlations=partial if told else None,
        partial_errors=partial_errors if told else None,
        intercept_estimate=view.offset + scale * float(start @ fit.estimate) if told else None,
        intercept_error=intercept_error if told else None,
        identified=identified,
        residual_variance=scale**2 * fit.residual_variance,
        residual_error=scale**2 * fit.residual_error,
        target_variance=scale**2 * fit.target_variance,
        r2=fit.r2,
        r2_error=fit.r2_error,
        residual_names=tuple(compress(moments.coordinates, others)),
        residual_correlations=correlations[others],
        residual_errors=errors[others],
        **view.common(),
        concerns=(*view.concerns(), *view.doubts(fit.drowned, identified)),
    )


def learn_classifier(
    sketch: Sketch, target: str | None = None, on: Sequence[str] | None = None
) -> ClassifierModel:
    """Learn a classifier from a sketch with second moments. Charges nothing.

    Each class has a linear score, fitted by least squares to its label, and a logistic curve that
    is fitted to released numbers. Coefficients are differences of probability, not odds ratios.

    Parameters
    ----------
    sketch : Sketch
        Sketch of a design with second moments, whatever its task: one holder's, several merged, or
        the total of a sealed study. Its mean must be released.
    target : str, optional
        Flag or category to predict; the design's target if left out.
    on : list of str, optional
        Columns that predict it; all others if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 90, 20_000)
    >>> X = np.column_stack([age, rng.random(20_000) < 1 / (1 + np.exp(5 - age / 15))])
    >>> schema = ps.Schema([ps.Number("age", 18, 100), ps.Flag("ill")])
    >>> design = ps.Design.plan(
    ...     task="pca", n_components=1, feature_map="second-moments", mean="released",
    ...     domain=schema, budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = ps.learn_classifier(ps.sketch(X, design), target="ill")
    >>> rows = ps.encode([[25], [85]], model.schema)
    >>> model.predict(rows).tolist()
    [False, True]
    """
    view = View.of(sketch, target, on)
    column, moments = view.target_column, view.moments
    if not isinstance(column, Labelled):
        raise ParameterError(
            "target", view.target, "expected a flag or a category", "use learn_regression"
        )
    if not moments.has_mean:
        raise ParameterError(
            "this sketch has no mean, and so no shares of the classes; plan a design with "
            "`mean='released'`"
        )
    parts = parts_of(view, column)
    shares, share_errors = shares_of(parts)
    groups = groups_of(view, parts)
    fits = [part.fit for part in parts]
    effects = [view.terms.effects * part.scale for part in parts]
    pairs = list(zip(effects, fits, strict=True))
    model = ClassifierModel(
        target=view.target,
        classes=column.labels,
        coef=np.array([effect @ fit.coef for effect, fit in pairs]),
        intercept=np.array([view.intercept(p.fit, p.scale, p.offset) for p in parts]),
        calibration=np.array([(part.alpha, part.beta) for part in parts]),
        center=view.center(fits[0]),
        estimate=np.array([effect @ fit.estimate[1:] for effect, fit in pairs]),
        covariance=np.array([e @ fit.covariance[1:, 1:] @ e.T for e, fit in pairs]),
        identified=view.identified(fits[0]),
        drowned=tuple(fit.drowned for fit in fits),
        shares=shares,
        share_errors=share_errors,
        groups=groups.names,
        group_predictions=groups.predictions,
        group_shares=groups.shares,
        group_errors=groups.errors,
        **view.common(),
    )
    return replace(model, concerns=(*view.concerns(), *_doubts(view, model)))


def _doubts(view: View, model: ClassifierModel) -> list[str]:
    """Return concerns about the coefficients; classes that nobody has raise none."""
    rare = model.shares <= COUNT_DEVIATIONS * model.share_errors
    parts = zip(model.part_names, model.drowned, strict=True)
    seen = [(label, lost) for label, lost in parts if not rare[model.classes.index(label)]]
    lost = [label for label, is_lost in seen if is_lost]
    if len(lost) == len(seen):
        return [TOO_FEW]
    texts = view.doubts(drowned=False, identified=model.identified)
    if lost:
        names = ", ".join(map(repr, lost[:MAX_NAMED])) + (", ..." if len(lost) > MAX_NAMED else "")
        texts.append(f"too few records to say anything about {names}")
    return texts
