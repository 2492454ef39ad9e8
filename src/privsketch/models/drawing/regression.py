"""Pictures of regressions and classifiers, from released numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privsketch._base.types import Floats, Indices
from privsketch.models.drawing.axes import FAINT, INK, PALETTE, labels, plot_axis

if TYPE_CHECKING:
    from privsketch.models.classifier import ClassifierModel
    from privsketch.models.regression import RegressionModel

_MAX_ROWS = 40  # intervals that fit a page
_WIDTH = 1.959963984540054  # standard errors of a 95 % interval


def coefficients_size(n_terms: int) -> tuple[float, float]:
    """Return width and height in inches of a picture of coefficients."""
    return 7.0, 0.9 + 0.28 * min(n_terms, _MAX_ROWS)


def residuals_size(n_coordinates: int) -> tuple[float, float]:
    """Return width and height in inches of a picture of residuals."""
    return 6.2, 0.9 + 0.26 * min(n_coordinates, _MAX_ROWS)


def calibration_size(n_groups: int) -> tuple[float, float]:
    """Return width and height in inches of a picture of shares and probabilities."""
    return 4.6, 0.9 + 0.26 * min(n_groups, _MAX_ROWS)


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
    kept = _farthest(values / np.maximum(errors, 1e-300))
    axis = plot_axis(ax, *residuals_size(len(kept)))
    rows = np.arange(len(kept))
    _draw_intervals(axis, values[kept], errors[kept], rows)
    _name_rows(axis, rows, labels([model.residual_names[place] for place in kept]))
    axis.set_xlim(max(axis.get_xlim()[0], -1.02), min(axis.get_xlim()[1], 1.02))
    axis.set_xlabel("correlation with the residuals, with 95 % intervals")
    return axis


def plot_calibration(model: ClassifierModel, part: int, ax: Any) -> Any:
    """Draw released shares of a class with 95 % intervals, beside mean probabilities, by group.

    A ring is the mean probability of the records with a label, and should lie in the interval.
    Where there are many labels, those whose ring is farthest from the share, in errors of that.
    """
    predicted, shares = model.group_predictions[part], model.group_shares[part]
    errors = model.group_errors[part]
    kept = _farthest((shares - predicted) / np.maximum(errors, 1e-300))
    axis = plot_axis(ax, *calibration_size(len(model.groups)))
    rows = np.arange(len(kept))
    _draw_intervals(axis, shares[kept], errors[kept], rows, line=None)
    ring = {"facecolor": "none", "edgecolor": PALETTE[1], "linewidth": 1.3, "s": 52, "zorder": 3}
    axis.scatter(predicted[kept], rows, **ring)
    _name_rows(axis, rows, labels([model.groups[place] for place in kept]))
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axis.set_xlabel(f"share of {labels([model.part_names[part]])[0]} (point), predicted (ring)")
    return axis


def _farthest(multiples: Floats) -> Indices:
    """Return the places of the values farthest from 0 that fit a page, in order."""
    return np.asarray(np.sort(np.argsort(-np.abs(multiples), kind="stable")[:_MAX_ROWS]))


def _draw_intervals(
    axis: Any, values: Floats, errors: Floats, rows: Indices, line: float | None = 0.0
) -> None:
    if line is not None:
        axis.axvline(line, color=FAINT, linewidth=1.2, zorder=1)
    known = np.isfinite(values)
    bars = {"fmt": "o", "color": PALETTE[0], "markersize": 4, "ecolor": INK, "elinewidth": 1.1}
    axis.errorbar(values[known], rows[known], xerr=_WIDTH * errors[known], **bars, zorder=2)


def _name_rows(axis: Any, rows: Indices, names: Sequence[str]) -> None:
    axis.set_yticks(rows, labels=list(names))
    axis.set_ylim(len(rows) - 0.5, -0.5)
