"""Means and shares of groups, from released numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privsketch.models.drawing.axes import FAINT, INK, PALETTE, label, labels, plot_axis

if TYPE_CHECKING:
    from privsketch.models.summary import Field
    from privsketch.models.sums import Estimate

_MAX_ROWS = 40  # intervals that fit a page


def plot_groups(
    field: Field,
    by: str,
    names: Sequence[str],
    found: Sequence[Estimate],
    overall: Estimate,
    ax: Any,
) -> Any:
    """Draw a mean or a share of each group with its interval, and a line for all records.

    A group without numbers has no point.
    """
    names, found = names[:_MAX_ROWS], found[:_MAX_ROWS]
    axis = plot_axis(ax, 6.2, 0.9 + 0.28 * len(names))
    scale = 100.0 if field.kind == "share" else 1.0
    if np.isfinite(overall.value):
        axis.axvline(scale * overall.value, color=FAINT, linewidth=1.2, zorder=1)
    for row, one in enumerate(found):
        if np.isfinite(one.value):
            axis.plot([scale * one.low, scale * one.high], [row, row], color=INK, linewidth=1.1)
            axis.plot(scale * one.value, row, "o", color=PALETTE[0], markersize=4)
    axis.set_yticks(range(len(names)), labels=labels(names))
    axis.set_ylim(len(names) - 0.5, -0.5)
    unit = " in %" if field.kind == "share" else field.unit
    axis.set_xlabel(f"{label(field.name)}{unit} by {label(by)}, with 95 % intervals")
    return axis
