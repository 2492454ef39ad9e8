"""What a report says that depends on the kind of model; the page around it is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from privsketch._typing import Floats
from privsketch.report.drawing import cluster_colors
from privsketch.sketching.sketch import Sketch

NO_PLOTS = '<div class="note">Plots need matplotlib: pip install "privsketch[plot]".</div>'


@dataclass(frozen=True)
class Content:
    """The parts of a page that a kind of model has of its own.

    Attributes
    ----------
    title : str
    cards : list of (str, str)
        A number, and what it is, as HTML.
    notes : str
        HTML: concerns, or that there are none.
    sections : list of str
        HTML: tables and plots.
    public_fact : str
        An example of what a private model reveals all the same.
    """

    title: str
    cards: list[tuple[str, str]]
    notes: str
    sections: list[str]
    public_fact: str


def notes_of(concerns: tuple[str, ...], otherwise: str) -> str:
    """Concerns as warnings; `otherwise`, which is HTML, if there are none."""
    if not concerns:
        return f'<div class="note">{otherwise}</div>'
    return "".join(f'<div class="note warn">Careful: {escape(text)}.</div>' for text in concerns)


def record_card(n_records: float, sketch: Sketch) -> tuple[str, str]:
    """The number of records, and how it is known."""
    if sketch.exact_count is not None:
        return f"{sketch.exact_count:,}", "records, a public number"
    return f"{n_records:,.0f}", "records, as the fit sees them"


def part_table(
    noun: str, weights: Floats, names: Sequence[str], cells: Sequence[Sequence[str]]
) -> str:
    """One row for every part: its colour, its share, and a cell of HTML under every name."""
    colors = cluster_colors(len(weights))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for k, (weight, row) in enumerate(zip(weights, cells, strict=True)):
        dot = f'<span class="dot" style="background:{colors[k]}"></span>{k + 1}'
        numbers = "".join(f"<td>{cell}</td>" for cell in row)
        rows.append(f"<tr><td>{dot}</td><td>{weight:.1%}</td>{numbers}</tr>")
    return (
        f'<div class="scroll"><table><tr><th>{noun}</th><th>share</th>{head}</tr>'
        f"{''.join(rows)}</table></div>"
    )
