"""The report's content about regressions and classifiers: coefficients with intervals, in words.

Everything follows from the model, and so from released numbers: the pictures too, which show what
is left of each column in the residuals, and how shares of a class compare with probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privsketch._base.formats import count_text
from privsketch._base.types import Floats
from privsketch.facts.labels import Labelled
from privsketch.facts.units import digits
from privsketch.models.classifier import ClassifierModel
from privsketch.models.drawing.axes import axis_of
from privsketch.models.drawing.regression import calibration_size, coefficients_size, residuals_size
from privsketch.models.linear import NOISE_DROWNS, LinearModel, interval_of
from privsketch.models.regression import RegressionModel
from privsketch.pages.report.effects import (
    LOGARITHM,
    WIDTH,
    columns_of_terms,
    effect_words,
    listed,
    outcome_of,
    share_outcome,
    term_notes,
    unit_of_target,
)
from privsketch.pages.report.fields import MAX_REPORT_ROWS, Cell
from privsketch.pages.report.rendering import (
    Content,
    Plots,
    record_card,
    require_own_sketch,
    svg_of,
)
from privsketch.pages.report.tables import MAX_PART_COLUMNS, Head, Table, TableRow, tone_table
from privsketch.sketching.sketch import Sketch

MAX_SENTENCES = 12  # that fit a screen beside the table
MAX_CURVES = 6  # calibration pictures beside each other
_UNKNOWN = "\N{EN DASH}"
_REMARK = "No concern: neither noise nor the bounds of the columns speak against these numbers."
_RESIDUAL_NOTE = (
    "Correlations of the residuals with each column, those left out of the regression too. Its own "
    "are near 0. Another column whose interval is far from 0 would explain more."
)
_CALIBRATION_NOTE = (
    "For the records with each label: the released share of the class (point, with its 95 % "
    "interval), and the mean probability that the classifier gives them (ring)."
)
_READING = (
    "{} say what goes together, not what causes what: of records that are alike in all other "
    "columns of the table, those that differ in this one differ by so much on average."
)


def regression_content(
    model: RegressionModel, sketch: Sketch | None, *, with_plots: bool
) -> Content:
    """Return the parts of the page that are about a regression."""
    require_own_sketch(model, sketch)
    column = model._target_column
    estimate, intervals = _told(model)
    outcome = outcome_of(column, model.target)
    low, high = _r2_interval(model)
    cards = [
        (f"{model.r2:.1%}", f"of the variance explained ({low:.1%} to {high:.1%})"),
        _spread_card(model),
    ]
    if model.drowned:
        cards = [("nothing", f"can be said about {model.target}"), _terms_card(model)]
    return Content(
        template="regression.html",
        noun=f"regression of {model.target}",
        cards=[cards[0], record_card(model, sketch), cards[1]],
        remark=_REMARK,
        public_fact=f"what goes with {model.target}",
        values={
            "tables": [] if model.drowned else [_coefficient_table(model, estimate, intervals)],
            "words": [("", effect_words(model, estimate, intervals, outcome, MAX_SENTENCES))],
            "unsaid": _unsaid(model, model.drowned, sketch),
            "fit": [] if model.drowned else _fit_sentences(model),
            "reading": "" if model.drowned else _READING.format("Coefficients"),
            "legend": "" if model.drowned else _legend(model),
            "classes": None,
            "plots": _regression_plots(model) if with_plots else [],
            "n_hidden": max(0, len(model.names) - MAX_REPORT_ROWS),
        },
    )


def classifier_content(
    model: ClassifierModel, sketch: Sketch | None, *, with_plots: bool
) -> Content:
    """Return the parts of the page that are about a classifier."""
    require_own_sketch(model, sketch)
    most = int(np.argmax(model.shares))
    intervals = model.interval()
    estimates = np.where(np.isnan(model.standard_errors), np.nan, model.estimate)
    n_shown = max(3, MAX_SENTENCES // len(model.coef))
    words = []
    for part, name in enumerate(model.part_names):
        sentences = effect_words(
            model,
            estimates[part],
            intervals[part],
            share_outcome(),
            n_shown,
            only_clear=len(model.coef) > 1,
        )
        words.append((f"Probability that {model.target} is {name}", sentences))
    lost = [name for name, is_lost in zip(model.part_names, model.drowned, strict=True) if is_lost]
    return Content(
        template="regression.html",
        noun=f"classifier of {model.target}",
        cards=[
            (f"{model.n_classes}", f"classes of {model.target}"),
            record_card(model, sketch),
            (f"{model.shares[most]:.1%}", f"of the records are {model.classes[most]}"),
        ],
        remark=_REMARK,
        public_fact=f"what goes with {model.target}",
        values={
            "tables": [_probability_table(model, estimates, intervals)],
            "words": words,
            "unsaid": _unsaid(model, all(model.drowned), sketch, lost),
            "fit": [],
            "reading": "Coefficients are differences of probability, not odds ratios. "
            + _READING.format("They"),
            "legend": _legend(model),
            "classes": _class_table(model),
            "plots": _classifier_plots(model) if with_plots else [],
            "n_hidden": max(0, len(model.names) - MAX_REPORT_ROWS),
        },
    )


# ---------------------------------------------------------------- numbers


def _told(model: RegressionModel) -> tuple[Floats, Floats]:
    """Return estimates and intervals; NaN where noise leaves none."""
    intervals = model.interval()
    if model.estimate is None:
        return np.full(len(model.coef), np.nan), intervals
    return np.where(np.isnan(intervals[:, 0]), np.nan, model.estimate), intervals


def _r2_interval(model: RegressionModel) -> tuple[float, float]:
    ends = interval_of(np.array([model.r2]), np.array([model.r2_error]), 0.95)[0]
    low, high = np.clip(ends, 0.0, 1.0).tolist()
    return float(low), float(high)


def _spread(model: RegressionModel) -> float:
    """Return the standard deviation of records about their predictions."""
    wide = min(model.residual_variance + model.residual_error, model.target_variance)
    return math.sqrt(max(wide, 0.0))


def _spread_card(model: RegressionModel) -> tuple[str, str]:
    column, half = model._target_column, WIDTH * _spread(model)
    if isinstance(column, Labelled):
        return _terms_card(model)
    label, unit = "from prediction to record, in 95 of 100", unit_of_target(column)
    if unit == LOGARITHM:
        return f"\N{DIVISION SIGN} or \N{MULTIPLICATION SIGN} {digits(math.exp(half))}", label
    return f"\N{PLUS-MINUS SIGN} {digits(half, half / 10)}", f"{unit} {label}".strip()


def _terms_card(model: LinearModel) -> tuple[str, str]:
    n_lost = int(np.sum(~model.is_identified))
    if isinstance(model, RegressionModel) and model.drowned:
        n_lost = len(model.names)
    lost = {0: "none", len(model.names): "all"}.get(n_lost, f"{n_lost}")
    return f"{len(model.names)}", f"terms, {lost} of them drowned in noise"


def _fit_sentences(model: RegressionModel) -> list[str]:
    low, high = _r2_interval(model)
    target = model.target
    sentences = [
        f"The columns explain {model.r2:.1%} of the variance of {target} ({low:.1%} to {high:.1%})."
    ]
    if not isinstance(model._target_column, Labelled):
        value, label = _spread_card(model)
        width = f"{value} {label.partition('from prediction')[0]}".strip()
        sentences.append(
            f"A single record lies within {width} of its prediction in 95 of 100 cases, if what is "
            "left over is normal and equally wide everywhere."
        )
    return sentences


# ---------------------------------------------------------------- tables


def _coefficient_table(model: RegressionModel, estimate: Floats, intervals: Floats) -> Table:
    """Return coefficients with intervals and partial correlations, a row for each term."""
    errors = model.standard_errors
    cells: list[tuple[Cell, ...]] = []
    for place, name in enumerate(model.names):
        value, low, high = model.partial_correlation(name)
        cells.append(
            (
                *_interval_cells(estimate[place], intervals[place], float(errors[place])),
                Cell(_number(value, 0.01), _between(low, high, 0.01), tone=value),
            )
        )
    if model.intercept_estimate is not None and model.intercept_error is not None:
        start, error = model.intercept_estimate, model.intercept_error
        ends = interval_of(np.array([start]), np.array([error]), 0.95)[0]
        cells.append((*_interval_cells(start, ends, error), Cell("")))
    unit = unit_of_target(model._target_column)
    in_unit = f", in {unit}" if unit else ""
    return Table(
        caption=f"What goes with {model.target}: coefficients{in_unit}, by noise and sampling",
        corner="term",
        heads=(Head("coefficient"), Head("95 % interval"), Head("partial correlation")),
        rows=_term_rows(model, cells),
    )


def _probability_table(model: ClassifierModel, estimates: Floats, intervals: Floats) -> Table:
    """Return differences of probability in percentage points, a column for each class."""
    errors = 100 * model.standard_errors
    cells: list[tuple[Cell, ...]] = []
    for place in range(len(model.names)):
        row: list[Cell] = []
        for part in range(len(model.coef)):
            value, ends = 100 * estimates[part, place], 100 * intervals[part, place]
            number, between = _interval_cells(value, ends, float(errors[part, place]))
            if len(model.coef) == 1:
                row += [number, between]
            else:
                row.append(Cell(number.text, between.text))
        cells.append(tuple(row))
    heads = tuple(Head(name) for name in model.part_names)
    about = f"each {model.target}"
    if len(model.coef) == 1:
        heads = (Head("difference"), Head("95 % interval"))
        about = f"{model.target} = {model.part_names[0]}"
    caption = f"Differences of the probability of {about}, in percentage points"
    is_folding = len(heads) > MAX_PART_COLUMNS
    return Table(caption, "term", heads, _term_rows(model, cells), is_folding)


def _term_rows(model: LinearModel, cells: list[tuple[Cell, ...]]) -> tuple[TableRow, ...]:
    """Return rows of terms: labels below the name of their category; then the intercept."""
    rows: list[TableRow] = []
    group, notes = "", term_notes(model)
    for place, column in list(enumerate(columns_of_terms(model)))[:MAX_REPORT_ROWS]:
        name, is_label = model.names[place], False
        if isinstance(column, Labelled) and not column.is_line:
            name, is_label = name.removeprefix(f"{column.name}="), True
        above = column.name if is_label and column is not None else ""
        head = Head(name, notes[place])
        rows.append(TableRow(head, cells[place], above if above != group else "", is_label))
        group = above
    for more in cells[len(model.names) :]:
        rows.append(TableRow(Head("intercept", "all terms 0"), more))
    return tuple(rows)


def _interval_cells(value: float, interval: Floats, error: float) -> tuple[Cell, Cell]:
    """Return cells of an estimate and of its interval; those of nothing say why."""
    if not np.isfinite([value, *interval]).all():
        return Cell(_UNKNOWN), Cell("drowned in noise")
    return Cell(_number(value, error)), Cell(
        _between(float(interval[0]), float(interval[1]), error)
    )


def _number(value: float, error: float) -> str:
    if not math.isfinite(value):
        return _UNKNOWN
    return digits(value, error).replace("-", "\N{MINUS SIGN}")


def _between(low: float, high: float, error: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{_number(low, error)} to {_number(high, error)}"


def _class_table(model: ClassifierModel) -> Table:
    """Return the released shares of the classes."""
    ends = np.clip(interval_of(model.shares, model.share_errors, 0.95), 0.0, 1.0)
    cells = [
        [
            Cell(f"{share:.1%}", position=float(share), is_share=True),
            Cell(f"{low:.1%} to {high:.1%}"),
        ]
        for share, (low, high) in zip(np.clip(model.shares, 0, 1), ends, strict=True)
    ]
    names = [Head(name) for name in model.classes]
    heads = ["share of records", "95 % interval"]
    return tone_table(names, heads, cells, f"Classes of {model.target}", "class", is_narrow=True)


# ---------------------------------------------------------------- words


def _unsaid(
    model: LinearModel, is_drowned: bool, sketch: Sketch | None, lost: list[str] | None = None
) -> list[str]:
    """Return what noise leaves unsaid, in plain words."""
    if is_drowned:
        return [
            f"Noise is larger than all that {model.target} varies with the other columns. This "
            f"sketch says nothing about what goes with {model.target}: neither that there is "
            "something, nor that there is nothing.",
            "More records, more holders, a larger epsilon or fewer columns would help.",
        ]
    texts = []
    if lost:
        texts.append(f"Too few records to say what goes with {listed(lost)}.")
    weak = [name for name, told in zip(model.names, model.is_identified, strict=True) if not told]
    if not weak:
        return texts
    if not any(text.startswith(NOISE_DROWNS) for text in model.concerns):
        return [*texts, f"Hardly any record has {listed(weak, last='or')}: there is no interval."]
    it, drown = ("it", "drowns") if len(weak) == 1 else ("they", "drown")
    texts.append(
        f"{len(weak)} of {count_text(len(model.names), 'term')} {drown} in noise: {listed(weak)}. "
        f"That is not the same as no effect: {it} may matter or not, and the sketch cannot tell."
    )
    return texts


def _legend(model: LinearModel) -> str:
    """Return the sentences below the table of coefficients."""
    texts = ["Intervals include the privacy noise and the sampling of records."]
    if not model.receipt.is_private:
        texts = ["Intervals include the sampling of records."]
    if any(model.against):
        texts.append("Labels are compared with the most frequent one of their column.")
    if isinstance(model, RegressionModel):
        texts.append("A partial correlation is that with the target, given all other columns.")
    texts.append("Columns that were chosen after a look at the intervals no longer have 95 %.")
    return " ".join(texts)


# ---------------------------------------------------------------- pictures


def _regression_plots(model: RegressionModel) -> list[Plots]:
    if model.drowned:
        return []
    plots = []
    for what, size, heading, note in (
        ("coefficients", coefficients_size(len(model.names)), "Coefficients beside each other", ""),
        ("residuals", residuals_size(len(model.residual_names)), "Residuals", _RESIDUAL_NOTE),
    ):
        figure, axis = axis_of(*size)
        model.plot(what, ax=axis)
        plots.append(Plots(heading, (svg_of(figure, what, heading),), note=note))
    return plots


def _classifier_plots(model: ClassifierModel) -> list[Plots]:
    """Draw the calibration of the most frequent classes that noise leaves."""
    if not model.groups:
        return []
    order: Any = np.argsort(-model.shares[model.n_classes - len(model.coef) :], kind="stable")
    kept = [part for part in order.tolist() if not model.drowned[part]][:MAX_CURVES]
    svgs = []
    for number, part in enumerate(sorted(kept)):
        figure, axis = axis_of(*calibration_size(len(model.groups)))
        name = model.part_names[part]
        model.plot("calibration", name, axis)
        svgs.append(svg_of(figure, f"calibration{number}", f"Calibration of {name}"))
    heading = "Calibration: probabilities beside released shares"
    plots = Plots(heading, tuple(svgs), is_row=len(svgs) > 1, note=_CALIBRATION_NOTE)
    return [plots] if svgs else []
