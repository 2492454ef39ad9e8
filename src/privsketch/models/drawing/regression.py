"""Pictures of regressions and classifiers, from released numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.models.drawing.axes import FAINT, GREY, INK, PALETTE, labels, plot_axis

if TYPE_CHECKING:
    from privsketch.models.classifier import ClassifierModel
    from privsketch.models.regression import RegressionModel

_MAX_ROWS = 40  # intervals that fit a page
_WIDTH = 1.959963984540054  # standard errors of a 95 % interval
_MAX_NAMED = 12  # groups with a name beside their point
CALIBRATION_SIZE = (4.6, 4.2)  # of its picture, in inches


def coefficients_size(n_terms: int) -> tuple[float, float]:
    """Return width and height in inches of a picture of coefficients."""
    return 7.0, 0.9 + 0.28 * min(n_terms, _MAX_ROWS)


def residuals_size(n_coordinates: int) -> tuple[float, float]:
    """Return width and height in inches of a picture of residuals."""
    return 6.2, 0.9 + 0.26 * min(n_coordinates, _MAX_ROWS)


def plot_coefficients(
    names: Sequence[str], estimate: Floats, errors: Floats, texts: Sequence[str], ax: Any
) -> Any:
    """Draw estimates with 95 % intervals, in units of their own standard errors.

    Coefficients of years and of labels have no common axis; multiples of their errors have one, and
    the numbers stand beside them. A term without an interval has no point.
    """
    names, texts = names[:_MAX_ROWS], texts[:_MAX_ROWS]
    axis = plot_axis(ax, *coefficients_size(len(names)))
    rows = np.arange(len(names))
    multiples = (estimate / errors)[: len(names)]
    _draw_intervals(axis, multiples, np.ones(len(names)), rows)
    shown = [f"{name}   {text}" for name, text in zip(labels(names), texts, strict=True)]
    _name_rows(axis, rows, shown)
    axis.set_xlabel("estimate in its own standard errors, with 95 % intervals")
    return axis


def plot_residuals(model: RegressionModel, ax: Any) -> Any:
    """Draw correlations of the residuals with all coordinates, with 95 % intervals.

    Where there are many, those that are farthest from 0 in their own errors.
    """
    values, errors = model.residual_correlations, model.residual_errors
    kept = np.sort(np.argsort(-np.abs(values) / np.maximum(errors, 1e-300))[:_MAX_ROWS])
    axis = plot_axis(ax, *residuals_size(len(kept)))
    rows = np.arange(len(kept))
    _draw_intervals(axis, values[kept], errors[kept], rows)
    _name_rows(axis, rows, labels([model.residual_names[place] for place in kept]))
    axis.set_xlabel("correlation with the residuals, with 95 % intervals")
    return axis


def plot_calibration(model: ClassifierModel, part: int, ax: Any) -> Any:
    """Draw released shares of a class against mean probabilities, a point for each group."""
    axis = plot_axis(ax, *CALIBRATION_SIZE)
    x, y = model.group_predictions[part], model.group_shares[part]
    errors = model.group_errors[part]
    top = min(1.0, 1.15 * float(max(x.max(initial=0.1), (y + errors).max(initial=0.1))))
    axis.plot([0, top], [0, top], color=FAINT, linewidth=1.2, zorder=1)
    bars = {"fmt": "o", "color": PALETTE[0], "markersize": 4, "ecolor": GREY, "elinewidth": 1.0}
    axis.errorbar(x, y, yerr=_WIDTH * errors, **bars, zorder=2)
    named = labels(model.groups)[:_MAX_NAMED] if len(model.groups) <= _MAX_NAMED else []
    for name, across, up in zip(named, x, y, strict=False):
        axis.annotate(name, (across, up), (4, -8), textcoords="offset points", fontsize=7)
    axis.set_xlim(0, top)
    axis.set_ylim(0, top)
    label = labels([model.part_names[part]])[0]
    axis.set_xlabel(f"mean predicted probability of {label}, by group")
    axis.set_ylabel("released share, with 95 % intervals")
    return axis


def _draw_intervals(axis: Any, values: Floats, errors: Floats, rows: Indices) -> None:
    axis.axvline(0, color=FAINT, linewidth=1.2, zorder=1)
    known = np.isfinite(values)
    bars = {"fmt": "o", "color": PALETTE[0], "markersize": 4, "ecolor": INK, "elinewidth": 1.1}
    axis.errorbar(values[known], rows[known], xerr=_WIDTH * errors[known], **bars, zorder=2)


def _name_rows(axis: Any, rows: Indices, names: Sequence[str]) -> None:
    axis.set_yticks(rows, labels=list(names))
    axis.set_ylim(len(rows) - 0.5, -0.5)
