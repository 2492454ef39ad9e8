"""Principal components as a picture: variances with intervals, or loadings in a coloured table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsketch.models.drawing.axes import ABOVE, INK, PALETTE, draw_heat, heat_size, plot_axis
from privsketch.models.drawing.centers import INTERVAL

if TYPE_CHECKING:
    from privsketch.models.components import PCAModel

_MAX_COMPONENT_TICKS = 40  # numbers that fit beside each other along the widest axis
_MAX_LOADINGS = 40  # rows that fit a page


def variances_size(n_components: int) -> tuple[float, float]:
    """Return width and height in inches of a plot of variances."""
    return min(9.3, max(3.8, 0.5 * n_components + 2.0)), 2.8


def plot_variances(model: PCAModel, ax: Any) -> Any:
    """Draw variances on the given axis, or on one of a new figure, and return the axis."""
    axis = plot_axis(ax, *variances_size(model.n_components))
    draw_variances(axis, model)
    return axis


def draw_variances(axis: Any, model: PCAModel) -> None:
    """Draw bars of the explained variances with errors, and the variance left per direction.

    With a schema, variances are percentages of the total, since units of columns differ.
    """
    in_percent = model.schema is not None
    unit = max(model.total_variance, 1e-300) / 100 if in_percent else 1.0
    variances, errors = model.explained_variance / unit, model.standard_errors / unit
    left = model.noise_variance / unit
    positions = np.arange(len(variances))
    axis.bar(positions, variances, color=PALETTE[0], width=0.62)
    intervals = {"fmt": "none", "ecolor": INK, "elinewidth": 1.1, "capsize": 3}
    axis.errorbar(positions, variances, yerr=INTERVAL * errors, **intervals)
    text = f"left per direction, {left:.3g}{' %' if in_percent else ''}"
    axis.axhline(left, color=PALETTE[1], linewidth=1.2, label=text)
    axis.set_ylim(bottom=0)
    ticks = positions[:: max(1, -(-len(positions) // _MAX_COMPONENT_TICKS))]
    axis.set_xticks(ticks, [str(position + 1) for position in ticks])
    axis.set_xlabel("component")
    axis.set_ylabel(f"variance{', %' if in_percent else ''}, with 90 % intervals")
    axis.legend(**ABOVE)


def plot_loadings(model: PCAModel, ax: Any) -> Any:
    """Draw a table of fields and components, coloured by what a field contributes."""
    names, texts, tones = model.readable_loadings()
    names = names[:_MAX_LOADINGS]
    axis = plot_axis(ax, *heat_size(len(names), model.n_components))
    heads = [f"{k + 1}\n{share:.1%}" for k, share in enumerate(model.explained_variance_ratio)]
    rows = [[row[j] for row in texts] for j in range(len(names))]
    draw_heat(axis, names, heads, rows, tones.T[: len(names)])
    return axis
