"""Centers of a model as a picture: on a line, in two columns, or all fields in a coloured table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.columns import Column, Date, Number
from privsketch.facts.domain import Domain
from privsketch.facts.units import field_columns, field_positions
from privsketch.models.base import Model
from privsketch.models.drawing.axes import (
    FAINT,
    INK,
    cluster_colors,
    draw_heat,
    heat_size,
    label,
    labels,
    plot_axis,
    set_axis,
)

INTERVAL = 1.64  # standard errors on either side of a 90 % interval
MAX_PROFILE_ROWS = 15  # rows of profiles, about a third of a page
MAX_TABLE_ROWS = 30  # rows that fit a page; with more, those in which centers differ most


def dot_sizes(weights: Floats) -> Floats:
    """Return areas of dots that grow with the weight, from a least visible one."""
    return np.asarray(30 + 500 * np.clip(weights, 0.0, 1.0))


def draw_pair(
    axis: Any,
    centers: Floats,
    weights: Floats,
    covariances: Floats | None = None,
    errors: Floats | None = None,
) -> None:
    """Draw centers (n, 2) as dots by weight, with one-width ellipses of covariances (n, 2, 2).

    Standard errors (n, 2) become intervals.
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


def profile_size(n_fields: int) -> tuple[float, float]:
    """Return width and height in inches of profiles with a row for each field."""
    return 7.0, 0.7 + 0.27 * n_fields


def draw_profiles(axis: Any, model: Model, centers: Floats, domain: Domain | None) -> int:
    """Draw a row for each field, with a dot for each center between the field's bounds.

    Fields in which centers hardly differ are left out if there are many. Returns the number of
    rows.
    """
    tones = relative_positions(model, centers, domain)
    spread = np.nan_to_num(np.ptp(tones, axis=0))
    fields = np.sort(np.argsort(-spread, kind="stable")[:MAX_PROFILE_ROWS])
    fields = fields[np.isfinite(tones[0, fields])]
    names, _ = model.shown_rows(centers)
    rows = np.arange(len(fields))[::-1]
    axis.hlines(rows, 0, 1, color=FAINT, linewidth=0.8)
    for tone, color in zip(tones[:, fields], cluster_colors(len(centers)), strict=True):
        axis.plot(tone, rows, color=color, alpha=0.35, linewidth=1.2)
        axis.scatter(tone, rows, color=color, s=26, linewidths=0, zorder=3)
    axis.set_yticks(rows, labels([names[int(j)] for j in fields]))
    axis.set_xticks([0, 0.5, 1], ["lowest", "middle", "highest"])
    axis.set_xlim(-0.02, 1.02)
    return len(fields)


def line_size(n_centers: int) -> tuple[float, float]:
    """Return width and height in inches at which centers of one column do not touch."""
    return 7.0, 0.8 + 0.34 * n_centers


def draw_line(
    axis: Any,
    centers: Floats,
    weights: Floats,
    widths: Floats | None = None,
    errors: Floats | None = None,
) -> None:
    """Draw centers (n,) of one column as dots by weight, with their widths and intervals.

    Each has a height of its own, since centers may coincide.
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


def number_dots(axis: Any, dots: Floats) -> None:
    """Write the number of every cluster beside its dot, (n, 2)."""
    for k, (x, y) in enumerate(dots):
        axis.annotate(
            str(k + 1), (x, y), xytext=(0, 10), textcoords="offset points", ha="center", color=INK
        )


def ellipse_of(covariance: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
    """Return the full axes of the one-width ellipse of two columns, and the first one's angle."""
    variances, axes = np.linalg.eigh(covariance)
    angle = math.degrees(math.atan2(axes[1, 0], axes[0, 0]))
    return 2 * np.sqrt(np.maximum(variances, 0.0)), angle


def plot_centers(
    model: Model,
    centers: Floats,
    weights: Floats,
    covariances: Floats | None,
    errors: Floats | None,
    columns: str | Sequence[str] | None,
    ax: Any,
    domain: Domain | None = None,
) -> Any:
    """Draw centers (n, dim) in one or two columns, or as a table, and return the axis."""
    positions = _column_positions(model, columns)
    axes = [position.start for position in positions.values()]
    if len(axes) > 2 or not set(axes) <= set(axis_columns(model)):
        return _plot_table(model, centers, weights, errors, domain, list(positions), ax)
    points = centers[:, axes]
    shapes = None if covariances is None else covariances[:, axes][:, :, axes]
    errors = None if errors is None else errors[:, axes]
    if len(axes) == 1:
        axis = plot_axis(ax, *line_size(len(centers)))
        widths = None if shapes is None else np.sqrt(shapes[:, 0, 0])
        draw_line(axis, points[:, 0], weights, widths, None if errors is None else errors[:, 0])
    else:
        axis = plot_axis(ax, 5.6, 4.4)
        draw_pair(axis, points, weights, shapes, errors)
        number_dots(axis, points)
        axis.margins(0.08)
    for which, coordinate in zip("xy", axes, strict=False):
        label_axis(axis, which, model, coordinate)
    return axis


def _column_positions(model: Model, columns: str | Sequence[str] | None) -> dict[str, slice]:
    """Return the columns of these names, all if None, with their coordinates."""
    if model.schema is None:
        positions = {name: slice(j, j + 1) for j, name in enumerate(model.column_names)}
    else:
        positions = {column.name: position for column, position in model.schema.places()}
    if columns is None:
        columns = list(positions)
    names = [columns] if isinstance(columns, str) else columns
    unknown = [name for name in names if name not in positions]
    if unknown:
        raise ParameterError("columns", unknown[0], f"expected names of {', '.join(positions)}")
    if not names or len(set(names)) < len(names):
        raise ParameterError("columns: expected a name, or several different ones")
    return {name: positions[name] for name in names}


def axis_columns(model: Model) -> dict[int, Column | None]:
    """Return the coordinates that have an axis: numbers and dates of a schema, else all."""
    if model.schema is None:
        return dict.fromkeys(range(model.dim))
    return {
        position.start: column
        for column, position in model.schema.places()
        if isinstance(column, Number | Date)
    }


def label_axis(
    axis: Any, which: str, model: Model, coordinate: int, limits: tuple[float, float] | None = None
) -> None:
    """Show a coordinate along an axis, "x" or "y", in units and with its bounds by a schema.

    Without a schema, the axis has the given limits.
    """
    column = axis_columns(model)[coordinate]
    if column is not None:
        set_axis(axis, which, column)
        return
    if limits is not None:
        getattr(axis, f"set_{which}lim")(*limits)
    getattr(axis, f"set_{which}label")(label(model.column_names[coordinate]))


def _plot_table(
    model: Model,
    centers: Floats,
    weights: Floats,
    errors: Floats | None,
    domain: Domain | None,
    columns: Sequence[str],
    ax: Any,
) -> Any:
    """Draw a table of fields and centers; colours show the position between public bounds."""
    names, rows = model.shown_rows(centers, errors)
    tones = relative_positions(model, centers, domain)
    fields = _field_indices(model, columns)
    if len(fields) > MAX_TABLE_ROWS:
        spread = np.nan_to_num(np.ptp(tones[:, fields], axis=0))
        widest = np.argsort(-spread, kind="stable")[:MAX_TABLE_ROWS]
        fields = sorted(fields[int(j)] for j in widest)
    heads = [f"{k + 1}\n{weight:.1%}" for k, weight in enumerate(weights)]
    axis = plot_axis(ax, *heat_size(len(fields), len(heads)))
    texts = [[row[j] for row in rows] for j in fields]
    draw_heat(axis, [names[j] for j in fields], heads, texts, tones[:, fields].T)
    return axis


def _field_indices(model: Model, columns: Sequence[str]) -> list[int]:
    if model.schema is None:
        return [model.column_names.index(name) for name in columns]
    fields = {column.name: positions for column, positions in field_columns(model.schema)}
    return [j for name in columns for j in range(fields[name].start, fields[name].stop)]


def relative_positions(model: Model, centers: Floats, domain: Domain | None) -> Floats:
    """Return positions of fields between their bounds, 0 to 1; between the centers if unbounded."""
    if model.schema is not None:
        return field_positions(model.schema, centers)
    if domain is not None:
        low, size = domain.center_vector - domain.half_widths, 2 * domain.half_widths
    else:
        low, size = centers.min(axis=0), np.ptp(centers, axis=0)
    return np.clip((centers - low) / np.where(size > 0, size, 1.0), 0.0, 1.0)
