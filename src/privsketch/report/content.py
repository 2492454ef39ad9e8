"""What a report says that depends on the kind of model; the page around it is the same."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from privsketch.sketches import Sketch


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
