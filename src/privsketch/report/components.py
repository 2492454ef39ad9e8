"""What a report shows of principal components: variances with errors, and loadings."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from privsketch.models.components import PCAModel
from privsketch.report.drawing import (
    FAINT,
    INK,
    PALETTE,
    Content,
    figure_of,
    label,
    notes_of,
    record_card,
    svg_of,
)
from privsketch.sketching.sketch import Sketch

MAX_TABLE_COLUMNS = 50  # of all there are; by trial
MAX_TICKS = 40  # names along an axis; by trial


def pca_content(model: PCAModel, sketch: Sketch, *, with_plots: bool) -> Content:
    """The parts of the page that are about principal components."""
    share = float(model.explained_variance_ratio.sum())
    about = "the noisy mean" if model.centered else "the center of the domain"
    sections = [_variance_table(model), _loading_table(model)]
    if with_plots:
        sections.insert(1, f"<h3>Variance along the components</h3>{variance_plot(model)}")
        sections.append(f"<h3>Loadings by colour</h3>{loading_plot(model)}")
    records = record_card(model.n_records, sketch)
    if sketch.exact_count is None:
        records = (records[0], "records, noisy" if sketch.n_records is not None else "planned for")
    return Content(
        title="Private principal components",
        cards=[
            (f"{model.n_components}", "components"),
            records,
            (f"{share:.1%}", f"of the variance about {about}"),
        ],
        notes=notes_of(model.concerns, _all_well(model)),
        sections=sections,
        public_fact="the directions in which records vary",
    )


def _all_well(model: PCAModel) -> str:
    found = "The component stands" if model.n_components == 1 else "All components stand"
    about = "" if model.centered else " They are about the center of the domain, not the mean."
    return f"{found} out of the noise.{about}"


def _variance_table(model: PCAModel) -> str:
    rows = []
    parts = zip(
        model.explained_variance,
        model.standard_errors,
        model.explained_variance_ratio,
        np.cumsum(model.explained_variance_ratio),
        strict=True,
    )
    for k, (variance, error, part, so_far) in enumerate(parts):
        cells = (f"{variance:.4g} <small>± {error:.2g}</small>", f"{part:.1%}", f"{so_far:.1%}")
        rows.append(f"<tr><td>{k + 1}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(
        f"<th>{name}</th>" for name in ("component", "variance", "share", "share so far")
    )
    more = f" {escape(model.more_words, quote=False)}." if model.more_words else ""
    return (
        f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
        f"<p>Total variance {model.total_variance:.4g}; per direction, "
        f"{model.noise_variance:.4g} are left. The noise is expected to cost "
        f"{100 * model.lost_variance:.2g} % of what the best components hold. The small numbers "
        "are standard errors, from the privacy noise and from the sampling of records. The signs "
        "of a component are a convention: its largest loading is positive.</p>"
        f"<p>Fit: {model.fit_words}.{more}</p>"
    )


def _loading_table(model: PCAModel) -> str:
    """One row for every column of the records, one column for every component."""
    names = model.column_names[:MAX_TABLE_COLUMNS]
    head = "".join(f"<th>{k + 1}</th>" for k in range(model.n_components))
    rows = []
    for name, loadings in zip(names, model.components.T, strict=False):
        numbers = "".join(f"<td>{value:.3f}</td>" for value in loadings)
        rows.append(f"<tr><td>{escape(name)}</td>{numbers}</tr>")
    hidden = max(0, len(model.column_names) - MAX_TABLE_COLUMNS)
    more = f"<p>{hidden} more columns are in the model file.</p>" if hidden else ""
    return (
        f'<h3>Loadings</h3><div class="scroll"><table><tr><th>column</th>{head}</tr>'
        f"{''.join(rows)}</table></div>{more}"
    )


def variance_plot(model: PCAModel) -> str:
    """Bars of the explained variances with errors, and what is left per direction."""
    k = model.n_components
    figure, axes = figure_of(min(9.3, max(3.8, 0.5 * k + 2.0)), 2.8)
    axis = axes[0, 0]
    places = np.arange(k)
    axis.bar(places, model.explained_variance, color=PALETTE[0], width=0.62)
    axis.errorbar(
        places,
        model.explained_variance,
        yerr=1.64 * model.standard_errors,
        fmt="none",
        ecolor=INK,
        elinewidth=1.1,
        capsize=3,
    )
    left = f"left per direction, {model.noise_variance:.3g}"
    axis.axhline(model.noise_variance, color=PALETTE[1], linewidth=1.2, label=left)
    axis.set_ylim(bottom=0)
    _ticks(axis.set_xticks, [str(i + 1) for i in range(k)], 0.0)
    axis.set_xlabel("component")
    axis.set_ylabel("variance, with 90 % intervals")
    axis.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))
    return svg_of(figure, "variances", "Variance along the components")


def loading_plot(model: PCAModel) -> str:
    """Loadings by colour: components down, columns across."""
    k, dim = model.components.shape
    figure, axes = figure_of(
        min(9.3, max(4.0, 0.32 * dim + 2.0)), min(7.0, max(1.9, 0.3 * k + 1.4))
    )
    axis = axes[0, 0]
    most = float(np.abs(model.components).max())
    mesh = axis.pcolormesh(
        model.components, cmap="RdBu_r", vmin=-most, vmax=most, rasterized=dim * k > 2000
    )
    if dim * k <= 2000:
        mesh.set_edgecolor(FAINT)
        mesh.set_linewidth(0.4)
    axis.invert_yaxis()
    axis.set_ylabel("component")
    _ticks(axis.set_yticks, [str(i + 1) for i in range(k)], 0.5)
    names = [label(name) for name in model.column_names]
    tilt = max(map(len, names)) > 3 or dim > 20
    _ticks(axis.set_xticks, names, 0.5, rotation=60 * tilt, ha="right" if tilt else "center")
    figure.colorbar(mesh, ax=axis, label="loading", fraction=0.03)
    return svg_of(figure, "loadings", "Loadings of the components")


def _ticks(setter: Any, names: list[str], offset: float, **style: Any) -> None:
    """Names at their places, no more than fit."""
    shown = np.arange(0, len(names), max(1, -(-len(names) // MAX_TICKS)))
    setter(shown + offset, [names[i] for i in shown], **style)
