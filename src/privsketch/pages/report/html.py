"""The report of a model: what it says, how well it fits, and what it cost, in one HTML file.

Everything in it is computed from what was released and from public facts, so the report may
be published with the model. It loads nothing from anywhere.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date, datetime
from html import escape
from importlib.util import find_spec

from privsketch import __version__
from privsketch._base.errors import ParameterError
from privsketch._base.formats import write_file
from privsketch.design.recipe import Design
from privsketch.facts.budget import number_text
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.models.clusters import ClusterModel
from privsketch.models.components import PCAModel
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.pages.report.centers import center_content, center_cost, center_facts
from privsketch.pages.report.clusters import Picture, all_plots, fit_plots, picture_of
from privsketch.pages.report.components import pca_content
from privsketch.pages.report.cost import receipt_words, release_details, risk_parts, several_records
from privsketch.pages.report.drawing import NO_PLOTS, Content, notes_of, record_card
from privsketch.pages.report.fields import parts_of
from privsketch.pages.report.style import STYLE
from privsketch.pages.report.tables import part_table, portraits, spread_table
from privsketch.sketching.sketch import Sketch

PAGE_VERSION = 2  # what pages say and how; the footer names it

_TITLES = {"cluster": "Private clusters", "component": "Private Gaussian mixture"}
Model = ClusterModel | GaussianMixtureModel | PCAModel


def report_page(
    model: Model,
    sketch: Sketch | None = None,
    *,
    title: str | None = None,
    made: date | None = None,
) -> str:
    """The report as HTML text; of clusters that came from no sketch, without one.

    `made` is the date that it carries, today if left out.
    """
    with_plots = find_spec("matplotlib") is not None
    if isinstance(model, ClusterModel) and model.density is None:
        if sketch is not None:
            raise ParameterError("report: this model was not learned from a sketch")
        content = center_content(model, with_plots=with_plots)
        return _page(content, _center_parts(model, content, made), title)
    if sketch is None and isinstance(model, GaussianMixtureModel) and model.residual is None:
        raise ParameterError(
            "report: expected a mixture of a sketch; method 'em' made no sketch, and its model has "
            "no report"
        )
    if sketch is None:
        raise ParameterError("report: give the sketch that the model was learned from")
    content = _content(model, sketch, with_plots)
    return _page(content, _sketch_parts(model, sketch, content, made), title)


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
    return page_of(content.title if title is None else title, parts)


def page_of(title: str, parts: list[str]) -> str:
    """A page of these parts, which are HTML."""
    title = escape(title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join([f"<h1>{title}</h1>", *parts])
        + "</main></body></html>\n"
    )


def _sketch_parts(
    model: ClusterModel | GaussianMixtureModel | PCAModel,
    sketch: Sketch,
    content: Content,
    made: date | None,
) -> list[str]:
    """The page of a model that was learned from a sketch."""
    receipt = model.receipt
    cards = [
        *content.cards[:2],
        (f"{len(sketch.ids)}", _added_up(sketch)),
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
            f"{content.public_fact}; {several_records(receipt)}"
            "and everything stated as public in the design",
        ),
        release_details(receipt),
        *risk_parts(sketch),
        "<h2>How it was made</h2>",
        *_schema_parts(model.schema),
        _design_details(sketch.design),
        _footer(f"design {sketch.design.fingerprint[:16]}", receipt, made),
    ]


def _added_up(sketch: Sketch) -> str:
    """What the sum is of."""
    if sketch.shared:
        return "holders in the sum, with shared noise"
    return "sketch added up" if len(sketch.ids) == 1 else "sketches added up"


def _schema_parts(schema: Schema | None) -> list[str]:
    """The public description of the table, and what was done with missing values."""
    if schema is None:
        return []
    rows = "".join(
        f'<tr><th scope="row">{escape(column.name)}</th><td>{escape(column.describe())}</td></tr>'
        for column in schema.columns
    )
    missing = "; ".join(schema.missing_words())
    return [
        '<p>What was stated about the table, before it was read:</p><table class="words">'
        '<thead><tr><th scope="col">column</th><th scope="col">what it is</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>",
        f"<p>{escape(missing[:1].upper() + missing[1:])}.</p>",
        f"<p>Unit of protection: {escape(schema.unit_words())}.</p>",
    ]


def _design_details(design: Design) -> str:
    """The recipe; folded where the schema was told already."""
    words = f"<pre>{escape(design.describe())}</pre>"
    if design.schema is None:
        return words
    return f"<details><summary>The design, {design.fingerprint[:16]}</summary>{words}</details>"


def _center_parts(model: ClusterModel, content: Content, made: date | None) -> list[str]:
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
        *_schema_parts(model.schema),
        center_facts(model),
        _footer(f"method {escape(model.method)}", model.receipt, made),
    ]


def _cards(cards: list[tuple[str, str]]) -> str:
    shown = "".join(
        f'<div class="card"><b>{value}</b><span>{label}</span></div>' for value, label in cards
    )
    return f'<div class="cards">{shown}</div>'


def _footer(made_by: str, receipt: Receipt, made: date | None) -> str:
    day = datetime.now(UTC).date() if made is None else made
    return (
        f'<footer>Page of <time datetime="{day}">{day}</time>, version {PAGE_VERSION}, by '
        f"privsketch {__version__} · {made_by} · protects {escape(receipt.unit)}, "
        f"{escape(receipt.neighbours)}</footer>"
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
    parts = parts_of(model, sketch.design.domain)
    return Content(
        title=_TITLES[picture.noun],
        cards=[
            (f"{picture.size}", f"{picture.noun}s"),
            record_card(picture.n_records, sketch),
            _quality_card(picture),
        ],
        notes=notes_of((*picture.receipt.cautions, *picture.concerns), _all_well(picture)),
        sections=[
            f"<h2>{picture.noun.title()}s</h2>",
            portraits(parts),
            part_table(parts),
            spread_table(parts),
            *(f"<h3>{heading}</h3>{svg}" for heading, svg in plots),
            *without,
            *([_fit_details(picture, sketch)] if with_plots else []),
        ],
        public_fact="where the clusters lie",
    )


def _quality_card(picture: Picture) -> tuple[str, str]:
    """How good the parts are: of clusters what they cost, of others how they fit."""
    ratio = picture.cost_ratio
    if ratio is None:
        return f"{picture.misfit:.2f}", "misfit / what noise leaves"
    estimate, low, high = ratio.texts
    return estimate, f"times the k-means cost on the records themselves ({low} to {high})"


def _fit_details(picture: Picture, sketch: Sketch) -> str:
    return (
        "<details><summary>Does the model explain the sketch?</summary>"
        f"<p>Its misfit is {picture.misfit:.2f} times what noise and sampling leave.</p>"
        f"{fit_plots(picture, sketch)}</details>"
    )


def _all_well(picture: Picture) -> str:
    if picture.explained:
        words = "explain the sketch: what they leave over is what noise and sampling leave."
    else:
        words = (
            "explain the sketch but for a little more than noise and sampling leave: records have "
            "shapes of their own."
        )
    cost = picture.cost_ratio
    quality = "" if cost is None else f" Their k-means cost is {cost.describe()}."
    return f"The {picture.noun}s {words}{quality}"
