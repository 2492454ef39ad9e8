"""What a report shows of centers that were learned with noise on the way: there is no sketch.

Plots of centers that come without widths: nothing but where they are and how much they hold.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import number_text
from privsketch.domain import Ball
from privsketch.models.clusters import ClusterModel
from privsketch.report.clusters import MAX_LINES, weight_plot
from privsketch.report.cost import leaves, receipt_table, receipt_words, step_table
from privsketch.report.drawing import (
    FAINT,
    INK,
    NO_PLOTS,
    Content,
    cluster_colors,
    figure_of,
    label,
    notes_of,
    part_table,
    svg_of,
)

MAX_TABLE_COLUMNS = 50  # beyond, only the most telling ones; by trial
TELLING_COLUMNS = 20  # shown of more columns than that
_COST = {"squares": "squared distances", "distances": "distances"}
MAX_TICKS = 30  # names along an axis; by trial
_GRID = 240  # points of a picture along each side


def center_content(model: ClusterModel, *, with_plots: bool) -> Content:
    """The parts of the page that are about the clusters."""
    receipt = model.receipt
    plots = center_plots(model) if with_plots else []
    return Content(
        title="Private clusters",
        cards=[
            (f"{model.n_clusters}", "clusters"),
            _record_card(model),
            (number_text(receipt.epsilon), f"epsilon, with delta = {number_text(receipt.delta)}"),
            (escape(model.method), "method"),
        ],
        notes=notes_of(
            model.concerns,
            f"Centers that make the {_COST[model.loss]} of records to their nearest center small "
            f"({model.task}), with noise on the way that hides single records.",
        ),
        sections=[
            "<h2>Clusters</h2>",
            _center_table(model),
            *(f"<h3>{heading}</h3>{svg}" for heading, svg in plots),
            *([] if with_plots else [NO_PLOTS]),
        ],
        public_fact="where the clusters lie",
    )


def center_cost(model: ClusterModel, public_fact: str) -> str:
    """What the whole run cost, and which step had how much of it."""
    words = receipt_words(
        model.receipt,
        "the model",
        "Using the model costs nothing; another run on the same records adds to the cost.",
        f"{public_fact}; several records of one person, for whom the cost multiplies; and what "
        "was stated as public: the bounds of the records, their columns and the number of clusters",
    )
    count = len(leaves(model.receipt))
    every = "The release" if count == 1 else f"All {count} releases"
    return (
        f"{words}{step_table(model.receipt)}"
        f"<details><summary>{every}, and how noise was set</summary>"
        f"{receipt_table(model.receipt)}</details>"
    )


def center_facts(model: ClusterModel) -> str:
    """Method, reason and public facts."""
    facts = {
        "problem": f"{model.task}, {model.n_clusters} clusters, {model.centers.shape[1]} columns",
        "method": model.receipt.mechanism,
        "reason": model.reason,
        "domain": "" if model.domain is None else model.domain.describe(),
        "source": model.receipt.source or "",
        "cost": model.receipt.summary(),
    }
    lines = [f"{name:<12}{text}" for name, text in facts.items() if text]
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _record_card(model: ClusterModel) -> tuple[str, str]:
    known = {"released": "noisy", "public": "a public number", "stated": "as was stated"}
    return f"{model.n_records:,.0f}", f"records, {known[model.count]}"


def _center_table(model: ClusterModel) -> str:
    columns, words = _shown_columns(model)
    names = ["nearest other", *(model.column_names[j] for j in columns)]
    others = _nearest_others(model.centers)
    cells = [
        [other, *(f"{center[j]:.4g}" for j in columns)]
        for other, center in zip(others, model.centers, strict=True)
    ]
    return f"{part_table('cluster', model.weights, names, cells)}{words}"


def _shown_columns(model: ClusterModel) -> tuple[list[int], str]:
    """All columns, or those in which centers differ most; and what to say of the others."""
    dim = model.centers.shape[1]
    if dim <= MAX_TABLE_COLUMNS:
        return list(range(dim)), ""
    spread = np.ptp(model.centers, axis=0) / column_scales(model)
    telling = sorted(int(j) for j in np.argsort(-spread, kind="stable")[:TELLING_COLUMNS])
    return telling, (
        f"<p>The {TELLING_COLUMNS} columns in which centers differ most; the model file has all "
        f"{dim}.</p>"
    )


def _nearest_others(centers: Floats) -> list[str]:
    """For every center the one nearest to it, and how far it is."""
    if len(centers) == 1:
        return ["none"]
    found = []
    for k, center in enumerate(centers):
        away = np.linalg.norm(centers - center, axis=1)
        away[k] = np.inf
        other = int(away.argmin())
        found.append(f"{other + 1} <small>at {away[other]:.3g}</small>")
    return found


def center_plots(model: ClusterModel) -> list[tuple[str, str]]:
    """Heading and SVG of every plot of the report."""
    k, dim = model.centers.shape
    plots = []
    if dim == 1:
        plots.append(("Centers", _line_plot(model)))
    elif dim == 2:
        plots.append(("Centers and the region of each", _region_plot(model)))
    elif k <= MAX_LINES and dim <= MAX_LINES:
        plots.append(("Centers over all columns", _profile_plot(model)))
    else:
        plots.append(("Centers over all columns", _heat_plot(model)))
    if dim > 2 and k > 2:
        plots.append(("How centers lie to each other", _plane_plot(model)))
    plots.append(("Weights", weight_plot(model.weights, "cluster")))
    return plots


def column_scales(model: ClusterModel) -> Floats:
    """What makes columns comparable: half-widths of the domain, else ranges of the centers."""
    if model.domain is not None:
        return model.domain.half_widths
    spread = np.asarray(np.ptp(model.centers, axis=0))
    return np.where(spread > 0, spread, 1.0)


def _window(model: ClusterModel, column: int) -> tuple[float, float]:
    """Where the centers are, with a margin, inside the domain."""
    values = model.centers[:, column]
    low, high = float(values.min()), float(values.max())
    margin = 0.18 * (high - low) or 0.5 * float(column_scales(model)[column])
    low, high = low - margin, high + margin
    if model.domain is not None:
        middle, half = model.domain.center_vector[column], 1.03 * model.domain.half_widths[column]
        low, high = max(low, middle - half), min(high, middle + half)
    return low, high


def _sizes(model: ClusterModel) -> Floats:
    """Areas of the dots: a part of each that can be seen, and the rest by weight."""
    return np.asarray(30 + 500 * np.clip(model.weights, 0.0, 1.0))


def _line_plot(model: ClusterModel) -> str:
    """Records of one column: the centers on a line."""
    figure, axes = figure_of(7.5, 1.7)
    axis = axes[0, 0]
    places = model.centers[:, 0]
    axis.scatter(
        places, np.zeros(len(places)), s=_sizes(model), c=cluster_colors(len(places)), alpha=0.85
    )
    axis.set_xlim(*_window(model, 0))
    axis.set_xlabel(label(model.column_names[0]))
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    return svg_of(figure, "line", "Centers")


def _region_plot(model: ClusterModel) -> str:
    """Two columns: the centers, and in faint colour the region nearest to each."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Circle

    colors = cluster_colors(model.n_clusters)
    figure, axes = figure_of(6.4, 4.8)
    axis = axes[0, 0]
    (left, right), (bottom, top) = _window(model, 0), _window(model, 1)
    across, up = np.meshgrid(np.linspace(left, right, _GRID), np.linspace(bottom, top, _GRID))
    points = np.column_stack([across.ravel(), up.ravel()])
    nearest = model.predict(points).reshape(across.shape).astype(np.float64)
    if isinstance(model.domain, Ball):
        nearest[~_inside(model.domain, points).reshape(across.shape)] = np.nan
        x, y = model.domain.center_vector
        axis.add_patch(Circle((x, y), model.domain.radius, fill=False, ec=FAINT, lw=1.2))
    axis.pcolormesh(
        across,
        up,
        nearest,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=model.n_clusters - 0.5,
        alpha=0.13,
        rasterized=True,
    )
    axis.scatter(*model.centers.T, s=_sizes(model), c=colors, alpha=0.9, linewidths=0)
    _numbers(axis, model.centers)
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)
    names = [label(name) for name in model.column_names]
    axis.set_xlabel(names[0])
    axis.set_ylabel(names[1])
    return svg_of(figure, "regions", "Centers and the region of each")


def _inside(ball: Ball, points: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(np.linalg.norm(points - ball.center_vector, axis=1) <= ball.radius)


def _numbers(axis: Any, places: Floats) -> None:
    """The number of every cluster beside its dot."""
    for k, (x, y) in enumerate(places):
        axis.annotate(
            str(k + 1), (x, y), xytext=(0, 10), textcoords="offset points", ha="center", color=INK
        )


def _profile_plot(model: ClusterModel) -> str:
    """Every center as a line over all columns, each column on its own scale."""
    dim = model.centers.shape[1]
    names = [label(name) for name in model.column_names]
    figure, axes = figure_of(min(9.3, max(5.0, 0.75 * dim + 2)), 3.4)
    axis = axes[0, 0]
    windows = np.array([_window(model, j) for j in range(dim)])
    low, size = windows[:, 0], windows[:, 1] - windows[:, 0]
    for k, (center, color) in enumerate(
        zip(model.centers, cluster_colors(model.n_clusters), strict=True)
    ):
        line = (center - low) / size
        width = 1 + 5 * float(np.clip(model.weights[k], 0.0, 1.0))
        axis.plot(np.arange(dim), line, "-o", color=color, markersize=3.5, linewidth=width)
        axis.annotate(
            str(k + 1),
            (dim - 1, line[-1]),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
    axis.set_ylim(-0.02, 1.02)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=FAINT, linewidth=0.8)
    ends = [f"{name}\n{a:.3g}\nto {b:.3g}" for name, (a, b) in zip(names, windows, strict=True)]
    axis.set_xticks(np.arange(dim), ends, fontsize=8)
    return svg_of(figure, "profiles", "Centers over all columns")


def _heat_plot(model: ClusterModel) -> str:
    """Many centers or many columns: above or below the mean of all records, by colour."""
    k, dim = model.centers.shape
    mean = np.average(model.centers, axis=0, weights=_positive(model.weights))
    in_units = isinstance(model.domain, Ball)
    values = (model.centers - mean) / (1.0 if in_units else column_scales(model))
    # A few extreme values would leave all others pale.
    most = max(float(np.quantile(np.abs(values), 0.998)), 1e-12)
    figure, axes = figure_of(9.3, min(7.0, max(2.6, 0.24 * k + 1.2)))
    axis = axes[0, 0]
    mesh = axis.pcolormesh(values, cmap="RdBu_r", vmin=-most, vmax=most, rasterized=True)
    axis.invert_yaxis()
    axis.set_ylabel("cluster")
    rows, columns = (np.arange(0, size, max(1, -(-size // MAX_TICKS))) for size in (k, dim))
    axis.set_yticks(rows + 0.5, [str(i + 1) for i in rows])
    names = [label(model.column_names[j]) for j in columns]
    tilt = max(map(len, names)) > 2
    axis.set_xticks(
        columns + 0.5,
        names,
        rotation=60 * tilt,
        ha="right" if tilt else "center",
        fontsize=8,
        rotation_mode="anchor",
    )
    unit = "" if in_units else ", in half-widths" if model.domain is not None else ", in ranges"
    figure.colorbar(mesh, ax=axis, label=f"difference from the mean{unit}", fraction=0.03)
    return svg_of(figure, "heat", "Centers over all columns")


def _plane_plot(model: ClusterModel) -> str:
    """Centers in the plane that keeps most of the distances between them."""
    weights = _positive(model.weights)
    scales = 1.0 if isinstance(model.domain, Ball) else column_scales(model)
    scaled = model.centers / scales
    scaled = scaled - np.average(scaled, axis=0, weights=weights)
    _, lengths, axes_found = np.linalg.svd(
        scaled * np.sqrt(weights)[:, np.newaxis], full_matrices=False
    )
    places = scaled @ axes_found[:2].T
    kept = float(np.square(lengths[:2]).sum() / max(float(np.square(lengths).sum()), 1e-300))
    figure, axes = figure_of(6.4, 4.2)
    axis = axes[0, 0]
    axis.scatter(
        *places.T, s=_sizes(model), c=cluster_colors(model.n_clusters), alpha=0.85, linewidths=0
    )
    _numbers(axis, places)
    reach = max(float(np.ptp(places, axis=0).max()), 1e-9)
    for limits, values in ((axis.set_xlim, places[:, 0]), (axis.set_ylim, places[:, 1])):
        limits(values.min() - 0.12 * reach, values.max() + 0.12 * reach)
    axis.set_aspect("equal")
    axis.set_xlabel(f"plane of the centers: {kept:.0%} of their spread is in it")
    return svg_of(figure, "plane", "How centers lie to each other")


def _positive(weights: Floats) -> Floats:
    """Weights that can be averaged with, also where noise left none."""
    clipped = np.maximum(weights, 0.0)
    return clipped if clipped.sum() > 0 else np.ones(len(weights))
