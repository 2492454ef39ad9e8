"""Centers with shares, shapes and errors, on a line or in two columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.models.drawing.axes import INK, cluster_colors

INTERVAL = 1.64  # standard errors on either side: nine cases of ten


def dot_sizes(weights: Floats) -> Floats:
    """Areas of the dots: a part of each that can be seen, and the rest by weight."""
    return np.asarray(30 + 500 * np.clip(weights, 0.0, 1.0))


def draw_pair(
    axis: Any,
    centers: Floats,
    weights: Floats,
    covariances: Floats | None = None,
    errors: Floats | None = None,
) -> None:
    """Centers (n, 2) as dots by weight, with one-width ellipses of covariances (n, 2, 2).

    Standard errors (n, 2) are drawn as intervals.
    """
    from matplotlib.patches import Ellipse

    colors = cluster_colors(len(centers))
    for k, center in enumerate(centers):
        if covariances is not None:
            across, angle = ellipse_of(covariances[k])
            axis.add_patch(
                Ellipse(center, *across, angle=angle, facecolor=colors[k], alpha=0.18, lw=0)
            )
    axis.scatter(*centers.T, s=dot_sizes(weights), c=colors, alpha=0.85, linewidths=0)
    if errors is not None:
        across, up = INTERVAL * errors.T
        axis.errorbar(*centers.T, xerr=across, yerr=up, fmt="none", ecolor=INK, elinewidth=1.1)


def line_size(n_centers: int) -> tuple[float, float]:
    """Width and height in inches at which centers of one column do not touch."""
    return 7.0, 0.8 + 0.34 * n_centers


def draw_line(
    axis: Any,
    centers: Floats,
    weights: Floats,
    widths: Floats | None = None,
    errors: Floats | None = None,
) -> None:
    """Centers (n,) of one column as dots by weight, with their widths and intervals of errors.

    Each has a height of its own, since they may lie on each other.
    """
    colors, up = cluster_colors(len(centers)), np.arange(len(centers))
    if widths is not None:
        axis.barh(up, 2 * widths, 0.7, centers - widths, color=colors, alpha=0.18, lw=0)
    axis.scatter(centers, up, s=dot_sizes(weights), c=colors, alpha=0.85, linewidths=0)
    if errors is not None:
        axis.errorbar(centers, up, xerr=INTERVAL * errors, fmt="none", ecolor=INK, elinewidth=1.1)
    axis.set_ylim(len(centers) - 0.4, -0.6)
    axis.set_yticks(up, [str(k + 1) for k in up])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def number_dots(axis: Any, places: Floats) -> None:
    """The number of every cluster beside its dot, (n, 2)."""
    for k, (x, y) in enumerate(places):
        axis.annotate(
            str(k + 1), (x, y), xytext=(0, 10), textcoords="offset points", ha="center", color=INK
        )


def ellipse_of(covariance: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
    """Full axes of the one-width ellipse of two columns, and the angle of the first."""
    variances, axes = np.linalg.eigh(covariance)
    angle = math.degrees(math.atan2(axes[1, 0], axes[0, 0]))
    return 2 * np.sqrt(np.maximum(variances, 0.0)), angle
