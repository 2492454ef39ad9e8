"""The report of a model: what it says, how well it fits, and what it cost, in one HTML file.

Everything in it is computed from the sketch and public facts, so the report may be
published with the model. It loads nothing from anywhere.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from html import escape
from importlib.util import find_spec

import numpy as np

from privsketch import __version__
from privsketch.budget import Receipt, number_text
from privsketch.errors import ParameterError
from privsketch.formats import write_file
from privsketch.learning.mixture_model import GaussianMixtureModel
from privsketch.learning.model import KMeansModel
from privsketch.learning.pca_model import PCAModel
from privsketch.report.content import Content, notes_of, record_card
from privsketch.report.drawing import cluster_colors
from privsketch.report.pca import pca_content
from privsketch.report.picture import Floats, Picture, picture_of
from privsketch.report.plots import all_plots
from privsketch.sketches import Sketch

MAX_TABLE_COLUMNS = 50

_CSS = """
:root { --ink:#24292f; --faint:#d0d7de; --soft:#f6f8fa; --accent:#3366cc; }
* { box-sizing:border-box; }
body { margin:0; font:15px/1.55 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;
       color:var(--ink); background:#fff; }
main { max-width:960px; margin:0 auto; padding:32px 24px 64px; }
h1 { font-size:26px; margin:0 0 4px; } h2 { font-size:19px; margin:40px 0 8px; }
h3 { font-size:15px; margin:24px 0 4px; }
.sub { color:#57606a; margin:0 0 24px; }
.cards { display:flex; flex-wrap:wrap; gap:12px; }
.card { flex:1 1 150px; background:var(--soft); border:1px solid var(--faint); border-radius:8px;
        padding:10px 14px; }
.card b { display:block; font-size:20px; } .card span { color:#57606a; font-size:13px; }
table { border-collapse:collapse; font-size:13.5px; font-variant-numeric:tabular-nums; }
th,td { padding:4px 10px; border-bottom:1px solid var(--faint); text-align:right;
        white-space:nowrap; }
th:first-child,td:first-child { text-align:left; position:sticky; left:0; background:#fff; }
.words td,.words th { text-align:left; vertical-align:top; white-space:normal; }
small { color:#57606a; }
.scroll { overflow-x:auto; } pre { white-space:pre-wrap; background:var(--soft); padding:12px; }
.dot { display:inline-block; width:10px; height:10px; border-radius:5px; margin-right:6px; }
.note { border-left:4px solid var(--accent); background:var(--soft); padding:8px 14px;
        margin:12px 0; } .note.warn { border-color:#bf8700; background:#fff8e5; }
svg { max-width:100%; height:auto; } footer { color:#57606a; margin-top:48px; font-size:13px; }
"""


_TITLES = {"cluster": "Private clusters", "component": "Private Gaussian mixture"}
Model = KMeansModel | GaussianMixtureModel | PCAModel


def report_page(model: Model, sketch: Sketch, *, title: str | None = None) -> str:
    """The report as HTML text."""
    content = _content(model, sketch)
    title = content.title if title is None else title
    receipt = model.receipt
    cards = [
        *content.cards[:2],
        (f"{len(sketch.ids)}", "sketch added up" if len(sketch.ids) == 1 else "sketches added up"),
        (number_text(receipt.epsilon), f"epsilon, with delta = {number_text(receipt.delta)}"),
        *content.cards[2:],
    ]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">Learned from a differentially private sketch of '
        f"{len(sketch.values):,} integers. No record was read for this page.</p>",
        '<div class="cards">',
        *(f'<div class="card"><b>{value}</b><span>{label}</span></div>' for value, label in cards),
        "</div>",
        content.notes,
        *content.sections,
        "<h2>What it cost</h2>",
        _receipt_words(receipt, content.public_fact),
        _receipt_table(receipt),
        "<h2>How it was made</h2>",
        f"<pre>{escape(sketch.design.describe())}</pre>",
        f"<footer>privsketch {__version__} · design {sketch.design.fingerprint[:16]} · "
        f"protects one record, {escape(sketch.design.budget.neighbours)}</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def save_report(
    model: Model,
    sketch: Sketch,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the report to a file."""
    write_file(path, report_page(model, sketch, title=title).encode("utf-8"))


def _content(model: Model, sketch: Sketch) -> Content:
    """What is said about this kind of model."""
    if not isinstance(model, PCAModel):
        picture = picture_of(model)  # refuses what is no model
    if model.design_fingerprint != sketch.design.fingerprint:
        raise ParameterError("report: the model was learned from a sketch of another design")
    with_plots = find_spec("matplotlib") is not None
    without = [] if with_plots else [_NO_PLOTS]
    if isinstance(model, PCAModel):
        content = pca_content(model, sketch, with_plots=with_plots)
        sections = ["<h2>Components</h2>", *content.sections, *without]
        return replace(content, sections=sections)
    plots = all_plots(picture, sketch) if with_plots else []
    return Content(
        title=_TITLES[picture.noun],
        cards=[
            (f"{picture.size}", f"{picture.noun}s"),
            record_card(picture.n_records, sketch),
            (f"{picture.misfit:.2f}", "misfit / what noise leaves"),
        ],
        notes=notes_of(picture.concerns, _all_well(picture)),
        sections=[
            f"<h2>{picture.noun.title()}s</h2>",
            _center_table(picture),
            *(f"<h3>{heading}</h3>{svg}" for heading, svg in plots),
            *without,
        ],
        public_fact="where the clusters lie",
    )


_NO_PLOTS = '<div class="note">Plots need matplotlib: pip install "privsketch[plot]".</div>'


def _all_well(picture: Picture) -> str:
    if picture.explained:
        words = "explain the sketch: what they leave over is what noise and sampling leave."
    else:
        words = (
            "explain the sketch but for a little more than noise and sampling leave: records have "
            "shapes of their own."
        )
    return f"The {picture.noun}s {words}"


def _center_table(picture: Picture) -> str:
    errors = picture.standard_errors
    shown = slice(MAX_TABLE_COLUMNS)
    small = None if errors is None else [[f"± {e:.2g}" for e in row[shown]] for row in errors]
    width = math.sqrt(float(picture.weights @ np.square(picture.axis_widths).mean(axis=1)))
    hidden = max(0, len(picture.column_names) - MAX_TABLE_COLUMNS)
    more = f"<p>{hidden} more columns are in the model file.</p>" if hidden else ""
    widths = ""
    if picture.noun == "component":
        widths = "<h3>Standard deviations along the columns</h3>"
        widths += _table(picture, picture.axis_widths, None)
    return (
        f"{_table(picture, picture.centers, small)}{more}"
        f"<p>Standard deviation inside a {picture.noun}: about {width:.4g} per column."
        f"{'' if errors is None else _ERROR_WORDS}</p>{widths}"
    )


def _table(picture: Picture, values: Floats, small: list[list[str]] | None) -> str:
    """One row for every part: its colour, its share, a value per column and what is beside it."""
    colors = cluster_colors(picture.size)
    names = picture.column_names[:MAX_TABLE_COLUMNS]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for k, (weight, row) in enumerate(zip(picture.weights, values, strict=True)):
        texts = [f"{value:.4g}" for value in row[:MAX_TABLE_COLUMNS]]
        if small is not None:
            pairs = zip(texts, small[k], strict=True)
            texts = [f"{text} <small>{beside}</small>" for text, beside in pairs]
        numbers = "".join(f"<td>{text}</td>" for text in texts)
        dot = f'<span class="dot" style="background:{colors[k]}"></span>{k + 1}'
        rows.append(f"<tr><td>{dot}</td><td>{weight:.1%}</td>{numbers}</tr>")
    return (
        f'<div class="scroll"><table><tr><th>{picture.noun}</th><th>share</th>{head}</tr>'
        f"{''.join(rows)}</table></div>"
    )


_ERROR_WORDS = (
    " The small numbers are standard errors of the centres, from the privacy noise and from the "
    "sampling of records: a centre is off by more than 1.6 of them in one case of ten."
)


def _receipt_words(receipt: Receipt, public_fact: str) -> str:
    factor = f" = {math.exp(receipt.epsilon):.3g}" if receipt.epsilon < 100 else ""
    change = (
        "whether any one record was in a table or not"
        if receipt.neighbours == "add-remove"
        else "what any one record said (the number of records is public)"
    )
    but = ""
    if receipt.delta > 0:
        delta = number_text(receipt.delta)
        but = f", except for events whose probability is raised by at most {delta}"
    parts = ""
    if receipt.parts and receipt.composition == "parallel":
        parts = (
            " Every holder spent this on its own records; a record sits with one holder, so the "
            "costs of different holders do not add up."
        )
    return (
        f'<div class="note">Whoever sees this page, the model and the sketch can hardly tell '
        f"{change}: it changes the probability of anything they may see by a factor of at most "
        f"e<sup>{number_text(receipt.epsilon)}</sup>{factor}{but}.{parts} Learning more from the "
        "same sketch costs nothing; another sketch of the same records adds to the cost.</div>"
        f"<p>Not protected: facts that hold without any one record, such as {public_fact}; several "
        "records of one person, for whom the cost multiplies; and everything stated as public in "
        "the design.</p>"
    )


def _receipt_table(receipt: Receipt) -> str:
    """Every single release: what was spent by whom, and how the noise was set."""
    rows = []
    for entry in _leaves(receipt):
        scale = "" if entry.scale is None else f", scale {entry.scale:.6g}"
        how = f"sensitivity {entry.sensitivity}{scale}; {entry.calibration}; {entry.sampler}"
        cells = (
            escape(entry.source or ""),
            number_text(entry.epsilon),
            number_text(entry.delta),
            f"{escape(entry.mechanism)}<br><small>{escape(how)}</small>",
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("source", "epsilon", "delta", "release"))
    return f'<table class="words"><tr>{head}</tr>{"".join(rows)}</table>'


def _leaves(receipt: Receipt) -> list[Receipt]:
    """Single releases; a share of one holder's release carries the holder's name."""
    if not receipt.parts:
        return [receipt]
    named = [replace(part, source=part.source or receipt.source) for part in receipt.parts]
    return [leaf for part in named for leaf in _leaves(part)]
