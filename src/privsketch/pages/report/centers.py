"""The report's content about clusters that were learned from the records, without a sketch.

Such clusters have no widths, so plots show their centers and numbers of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.forecast import accuracy_text, ratio_text, verdict_of
from privsketch.facts.domain import Ball
from privsketch.models.clusters import ClusterModel
from privsketch.models.drawing.axes import FAINT, axis_of, cluster_colors
from privsketch.models.drawing.centers import (
    MAX_PROFILE_ROWS,
    axis_columns,
    dot_sizes,
    draw_line,
    draw_profiles,
    label_axis,
    line_size,
    number_dots,
    profile_size,
)
from privsketch.pages.report.cost import protected_thing
from privsketch.pages.report.fields import parts_of
from privsketch.pages.report.rendering import Content, Plots, count_text, svg_of
from privsketch.pages.report.tables import tables_of

if TYPE_CHECKING:
    from markupsafe import Markup

_LOSS_WORDS = {"squares": "squared distances", "distances": "distances"}
_N_PIXELS = 240  # along each side of the picture of regions


def center_content(model: ClusterModel, *, with_plots: bool) -> Content:
    """Return the parts of the page that are about the clusters."""
    receipt = model.receipt
    count_words = {"released": "noisy", "public": "public", "stated": "as stated"}
    hides = "" if receipt.cautions else f" that hides single {protected_thing(receipt)}s"
    return Content(
        template="clusters.html",
        noun="clusters",
        cards=[
            (f"{model.n_clusters}", "cluster" if model.n_clusters == 1 else "clusters"),
            (f"{model.n_records:,.0f}", f"records ({count_words[model.count]})"),
            _quality_card(model),
        ],
        remark=f"The centers approximately minimize the {_LOSS_WORDS[model.loss]} of records to "
        f"their nearest center ({model.task}). They contain noise{hides}."
        f"{_accuracy(model)}",
        public_fact="where the clusters lie",
        values={
            "tables": tables_of(parts_of(model, model.domain)),
            "plots": _center_plots(model) if with_plots else [],
            "fit": None,
        },
    )


def _quality_card(model: ClusterModel) -> tuple[str, str]:
    """Return the expected accuracy, or the method if it makes no forecast."""
    ratio = model.expected_ratio
    if ratio is None:
        return model.method, "method"
    return ratio_text(ratio), f"times the cost without privacy, expected ({verdict_of(ratio)})"


def _accuracy(model: ClusterModel) -> str:
    """Return a sentence about the expected accuracy; empty if the method makes no forecast."""
    if model.expected_ratio is None:
        return ""
    return f" Their expected accuracy is {accuracy_text(model.expected_ratio)}."


def center_facts(model: ClusterModel) -> str:
    """Return method, reason and public facts, a line for each."""
    schema = model.schema
    n_columns = model.dim if schema is None else len(schema.columns)
    facts = {
        "problem": f"{model.task}, {count_text(model.n_clusters, 'cluster')}, "
        f"{count_text(n_columns, 'column')}",
        "method": model.receipt.mechanism,
        "reason": model.reason,
        "domain": "" if model.domain is None or schema is not None else model.domain.describe(),
        "source": model.receipt.source or "",
        "cost": model.receipt.summary(),
    }
    return "\n".join(f"{name:<12}{text}" for name, text in facts.items() if text)


def _center_plots(model: ClusterModel) -> list[Plots]:
    k, dim = model.centers.shape
    n_drawn = len(axis_columns(model))
    plots = []
    if dim == 1 and n_drawn == 1:
        plots.append(Plots("Centers", (_line_plot(model),)))
    elif dim == 2 and n_drawn == 2:
        plots.append(Plots("Centers and their regions", (_region_plot(model),)))
    elif k > 1:
        plots.append(Plots("Centers side by side", (_profile_plot(model),)))
    return plots


def _column_scales(model: ClusterModel) -> Floats:
    """Return scales of the columns: half-widths of the domain, else ranges of the centers."""
    if model.domain is not None:
        return model.domain.half_widths
    spread = np.asarray(np.ptp(model.centers, axis=0))
    return np.where(spread > 0, spread, 1.0)


def _window(model: ClusterModel, column: int) -> tuple[float, float]:
    """Return the range of the centers, with a margin, inside the domain."""
    if model.schema is not None:  # the axis shows the public bounds
        edge = 1.04 * float(_column_scales(model)[column])
        return -edge, edge
    values = model.centers[:, column]
    low, high = float(values.min()), float(values.max())
    margin = 0.18 * (high - low) or 0.5 * float(_column_scales(model)[column])
    low, high = low - margin, high + margin
    if model.domain is not None:
        middle, half = model.domain.center_vector[column], 1.03 * model.domain.half_widths[column]
        low, high = max(low, middle - half), min(high, middle + half)
    return low, high


def _line_plot(model: ClusterModel) -> Markup:
    """Draw the centers of one column on a line."""
    figure, axis = axis_of(*line_size(model.n_clusters))
    draw_line(axis, model.centers[:, 0], model.weights)
    label_axis(axis, "x", model, 0, _window(model, 0))
    return svg_of(figure, "line", "Centers")


def _region_plot(model: ClusterModel) -> Markup:
    """Draw the centers of two columns, and the region nearest to each in a faint colour."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Circle

    colors = cluster_colors(model.n_clusters)
    figure, axis = axis_of(6.4, 4.8)
    (left, right), (bottom, top) = _window(model, 0), _window(model, 1)
    columns, rows = np.linspace(left, right, _N_PIXELS), np.linspace(bottom, top, _N_PIXELS)
    x, y = np.meshgrid(columns, rows)
    points = np.column_stack([x.ravel(), y.ravel()])
    nearest = model.predict(points).reshape(x.shape).astype(np.float64)
    if isinstance(model.domain, Ball):
        center, radius = model.domain.center_vector, model.domain.radius
        nearest[np.hypot(x - center[0], y - center[1]) > radius] = np.nan
        axis.add_patch(Circle((center[0], center[1]), radius, fill=False, ec=FAINT, lw=1.2))
    shades = {"cmap": ListedColormap(colors), "vmin": -0.5, "vmax": model.n_clusters - 0.5}
    axis.pcolormesh(x, y, nearest, alpha=0.13, rasterized=True, **shades)
    axis.scatter(*model.centers.T, s=dot_sizes(model.weights), c=colors, alpha=0.9, linewidths=0)
    number_dots(axis, model.centers)
    label_axis(axis, "x", model, 0, (left, right))
    label_axis(axis, "y", model, 1, (bottom, top))
    return svg_of(figure, "regions", "Centers and their regions")


def _profile_plot(model: ClusterModel) -> Markup:
    """Draw where every center lies in each column, between the column's bounds."""
    figure, axis = axis_of(
        *profile_size(min(MAX_PROFILE_ROWS, len(model.shown_rows(model.centers)[0])))
    )
    draw_profiles(axis, model, model.centers, model.domain)
    axis.set_xlabel("position between the public bounds; shares from 0 to 100 %")
    return svg_of(figure, "profiles", "Where each center lies between the bounds of the columns")
