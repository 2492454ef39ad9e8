"""The page of a comparison: what is said of every source, a picture, and shares of clusters."""

from __future__ import annotations

import os
from html import escape
from importlib.util import find_spec

from privsketch._base.formats import write_file
from privsketch.models.drawing.axes import figure_of
from privsketch.pages.comparison.picture import HEIGHT, draw_differences, draw_shares, drawn_sources
from privsketch.pages.comparison.result import Comparison, SourceComparison, center_text
from privsketch.pages.report.drawing import NO_PLOTS, notes_of, plot_of
from privsketch.pages.report.html import page_of


def comparison_page(comparison: Comparison) -> str:
    """The comparison as HTML text."""
    parts = [
        '<p class="sub">A function of public sketches: no record was read, nothing was spent.</p>',
        notes_of(
            tuple(comparison.alarm_lines()),
            "No source is explained by a shift, or by a unit, that the others do not have.",
        ),
        *(f'<div class="note">{escape(text)}.</div>' for text in comparison.notes),
        "<h2>Sources</h2>",
        _source_table(comparison),
        _plots(comparison) if find_spec("matplotlib") is not None else NO_PLOTS,
        *_cluster_parts(comparison),
        f"<footer>design {comparison.design.fingerprint[:16]}</footer>",
    ]
    return page_of("Sources beside each other", parts)


def save_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the page to a file."""
    write_file(path, comparison_page(comparison).encode("utf-8"))


def _source_table(comparison: Comparison) -> str:
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("source", "records", "unlike", "verdict")
    )
    rows = "".join(_source_row(one) for one in comparison.sources)
    return (
        f'<div class="scroll"><table class="words"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div><p><small>Unlike: the size of the difference from the "
        "sum of the others, over the size of what is compared; noise and sampling are taken off."
        "</small></p>"
    )


def _source_row(one: SourceComparison) -> str:
    count = "–" if one.n_records is None else f"{one.n_records:,.0f}"
    unlike = f"{one.difference:.0%}" if one.differs else "–"
    words = escape(one.words())
    verdict = f"<b>Alarm.</b> {words}" if one.is_alarm else words
    return (
        f'<tr><th scope="row">{escape(one.source)}</th><td>{count}</td><td>{unlike}</td>'
        f"<td>{verdict}</td></tr>"
    )


def _plots(comparison: Comparison) -> str:
    rows = len(drawn_sources(comparison))
    figure, axes = figure_of(8.6, 0.9 + HEIGHT * max(rows, 3), 1, 2)
    draw_differences(comparison, axes[0, 0])
    draw_shares(comparison, axes[0, 1])
    return plot_of(figure, "sources", "How unlike the sources are, and their shares of clusters")


def _cluster_parts(comparison: Comparison) -> list[str]:
    clusters = comparison.clusters
    if clusters is None:
        return []
    alone = "".join(f"<li>{escape(line)}</li>" for line in comparison.cluster_lines())
    rows = "".join(
        f'<tr><th scope="row">{k + 1}</th>'
        f"<td>{escape(center_text(comparison.design, center))}</td></tr>"
        for k, center in enumerate(clusters.centers)
    )
    return [
        "<h2>Clusters of all sources</h2>",
        f"<ul>{alone}</ul>" if alone else "<p>No cluster is one source's alone.</p>",
        f'<table class="words"><thead><tr><th scope="col">cluster</th><th scope="col">center</th>'
        f"</tr></thead><tbody>{rows}</tbody></table>",
    ]
