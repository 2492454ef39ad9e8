"""The report of a model: what it says, how well it fits, and what it cost, in one HTML file.

Everything in it is computed from what was released and from public facts, so the report may
be published with the model. It loads nothing from anywhere.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from html import escape
from importlib.util import find_spec

import numpy as np

from privsketch import __version__
from privsketch._typing import Floats
from privsketch.budget import number_text
from privsketch.errors import ParameterError
from privsketch.formats import write_file
from privsketch.models.clusters import ClusterModel
from privsketch.models.components import PCAModel
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.report.centers import center_content, center_cost, center_facts
from privsketch.report.clusters import Picture, all_plots, picture_of
from privsketch.report.components import pca_content
from privsketch.report.cost import receipt_table, receipt_words
from privsketch.report.drawing import NO_PLOTS, Content, notes_of, part_table, record_card
from privsketch.sketching.sketch import Sketch

MAX_TABLE_COLUMNS = 50  # of all there are; by trial

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
.bar { display:block; width:120px; margin-top:7px; background:var(--soft); }
.bar i { display:block; height:9px; min-width:1px; background:var(--accent); }
summary { cursor:pointer; margin:16px 0 8px; }
.note { border-left:4px solid var(--accent); background:var(--soft); padding:8px 14px;
        margin:12px 0; } .note.warn { border-color:#bf8700; background:#fff8e5; }
svg { max-width:100%; height:auto; } footer { color:#57606a; margin-top:48px; font-size:13px; }
"""


_TITLES = {"cluster": "Private clusters", "component": "Private Gaussian mixture"}
Model = ClusterModel | GaussianMixtureModel | PCAModel


def report_page(model: Model, sketch: Sketch | None = None, *, title: str | None = None) -> str:
    """The report as HTML text; of clusters that came from no sketch, without one."""
    with_plots = find_spec("matplotlib") is not None
    if isinstance(model, ClusterModel) and model.density is None:
        if sketch is not None:
            raise ParameterError("report: this model was not learned from a sketch")
        content = center_content(model, with_plots=with_plots)
        return _page(content, _center_parts(model, content), title)
    if sketch is None:
        raise ParameterError("report: give the sketch that the model was learned from")
    content = _content(model, sketch, with_plots)
    return _page(content, _sketch_parts(model, sketch, content), title)


def save_report(
    model: Model,
    sketch: Sketch | None,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the report to a file."""
    write_file(path, report_page(model, sketch, title=title).encode("utf-8"))


def _page(content: Content, parts: list[str], title: str | None) -> str:
    title = escape(content.title if title is None else title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_CSS}</style></head><body><main>"
        + "\n".join([f"<h1>{title}</h1>", *parts])
        + "</main></body></html>\n"
    )


def _sketch_parts(
    model: ClusterModel | GaussianMixtureModel | PCAModel, sketch: Sketch, content: Content
) -> list[str]:
    """The page of a model that was learned from a sketch."""
    receipt = model.receipt
    cards = [
        *content.cards[:2],
        (f"{len(sketch.ids)}", "sketch added up" if len(sketch.ids) == 1 else "sketches added up"),
        (number_text(receipt.epsilon), f"epsilon, with delta = {number_text(receipt.delta)}"),
        *content.cards[2:],
    ]
    further = (
        "Learning more from the same sketch costs nothing; another sketch of the same records adds "
        "to the cost."
    )
    return [
        f'<p class="sub">Learned from a differentially private sketch of '
        f"{len(sketch.values):,} integers. No record was read for this page.</p>",
        _cards(cards),
        content.notes,
        *content.sections,
        "<h2>What it cost</h2>",
        receipt_words(
            receipt,
            "the model and the sketch",
            further,
            f"{content.public_fact}; several records of one person, for whom the cost multiplies; "
            "and everything stated as public in the design",
        ),
        receipt_table(receipt),
        "<h2>How it was made</h2>",
        f"<pre>{escape(sketch.design.describe())}</pre>",
        _footer(
            f"design {sketch.design.fingerprint[:16]}", escape(sketch.design.budget.neighbours)
        ),
    ]


def _center_parts(model: ClusterModel, content: Content) -> list[str]:
    """The page of centers that came with noise from the records themselves."""
    return [
        '<p class="sub">Learned with differential privacy by a holder of all records. No record '
        "was read for this page.</p>",
        _cards(content.cards),
        content.notes,
        *content.sections,
        "<h2>What it cost</h2>",
        center_cost(model, content.public_fact),
        "<h2>How it was made</h2>",
        center_facts(model),
        _footer(f"method {escape(model.method)}", escape(model.receipt.neighbours)),
    ]


def _cards(cards: list[tuple[str, str]]) -> str:
    shown = "".join(
        f'<div class="card"><b>{value}</b><span>{label}</span></div>' for value, label in cards
    )
    return f'<div class="cards">{shown}</div>'


def _footer(made_by: str, neighbours: str) -> str:
    return (
        f"<footer>privsketch {__version__} · {made_by} · protects one record, {neighbours}</footer>"
    )


def _content(
    model: ClusterModel | GaussianMixtureModel | PCAModel, sketch: Sketch, with_plots: bool
) -> Content:
    """What is said about this kind of model."""
    if not isinstance(model, PCAModel):
        picture = picture_of(model)  # refuses what is no model
    if model.design_fingerprint != sketch.design.fingerprint:
        raise ParameterError("report: the model was learned from a sketch of another design")
    without = [] if with_plots else [NO_PLOTS]
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
    width = math.sqrt(float(picture.weights @ np.square(picture.axis_widths).mean(axis=1)))
    hidden = max(0, len(picture.column_names) - MAX_TABLE_COLUMNS)
    more = f"<p>{hidden} more columns are in the model file.</p>" if hidden else ""
    widths = ""
    if picture.noun == "component":
        widths = "<h3>Standard deviations along the columns</h3>"
        widths += _table(picture, picture.axis_widths, None)
    return (
        f"{_table(picture, picture.centers, errors)}{more}"
        f"<p>Standard deviation inside a {picture.noun}: about {width:.4g} per column."
        f"{'' if errors is None else _ERROR_WORDS}</p>{widths}"
    )


def _table(picture: Picture, values: Floats, errors: Floats | None) -> str:
    """A value per column, and its standard error beside it."""
    shown = slice(MAX_TABLE_COLUMNS)
    cells = [[f"{value:.4g}" for value in row[shown]] for row in values]
    if errors is not None:
        for row, small in zip(cells, errors, strict=True):
            row[:] = [
                f"{text} <small>± {error:.2g}</small>"
                for text, error in zip(row, small[shown], strict=True)
            ]
    return part_table(picture.noun, picture.weights, picture.column_names[shown], cells)


_ERROR_WORDS = (
    " The small numbers are standard errors of the centers, from the privacy noise and from the "
    "sampling of records: a center is off by more than 1.6 of them in one case of ten."
)
