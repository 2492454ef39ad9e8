"""Variances along principal components."""

from __future__ import annotations

from typing import Any

import numpy as np

from privsketch._base.types import Floats
from privsketch.models.drawing.axes import INK, PALETTE
from privsketch.models.drawing.centers import INTERVAL

MAX_TICKS = 40  # names along an axis; by trial


def variances_size(n_components: int) -> tuple[float, float]:
    """Width and height in inches."""
    return min(9.3, max(3.8, 0.5 * n_components + 2.0)), 2.8


def draw_variances(
    axis: Any, variances: Floats, errors: Floats, left: float, *, in_percent: bool
) -> None:
    """Bars of the explained variances with errors, and what is left per direction."""
    places = np.arange(len(variances))
    axis.bar(places, variances, color=PALETTE[0], width=0.62)
    axis.errorbar(
        places, variances, yerr=INTERVAL * errors, fmt="none", ecolor=INK, elinewidth=1.1, capsize=3
    )
    words = f"left per direction, {left:.3g}{' %' if in_percent else ''}"
    axis.axhline(left, color=PALETTE[1], linewidth=1.2, label=words)
    axis.set_ylim(bottom=0)
    shown = places[:: max(1, -(-len(places) // MAX_TICKS))]
    axis.set_xticks(shown, [str(place + 1) for place in shown])
    axis.set_xlabel("component")
    axis.set_ylabel(f"variance{', %' if in_percent else ''}, with 90 % intervals")
    axis.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right", bbox_to_anchor=(1, 1))
