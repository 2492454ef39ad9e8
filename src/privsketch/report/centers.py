"""What a report shows of centres that were learned with noise on the way: there is no sketch."""

from __future__ import annotations

from html import escape

import numpy as np

from privsketch._typing import Floats
from privsketch.budget import number_text
from privsketch.models.centers import CenterModel
from privsketch.report.center_plots import center_plots, column_scales
from privsketch.report.content import NO_PLOTS, Content, notes_of, part_table
from privsketch.report.cost import leaves, receipt_table, receipt_words, step_table

MAX_TABLE_COLUMNS = 50
TELLING_COLUMNS = 20  # shown of more columns than that

_COST = {"squares": "squared distances", "distances": "distances"}


def center_content(model: CenterModel, *, with_plots: bool) -> Content:
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
            f"Centres that make the {_COST[model.loss]} of records to their nearest centre small "
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


def center_cost(model: CenterModel, public_fact: str) -> str:
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


def center_facts(model: CenterModel) -> str:
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


def _record_card(model: CenterModel) -> tuple[str, str]:
    known = {"released": "noisy", "public": "a public number", "stated": "as was stated"}
    return f"{model.n_records:,.0f}", f"records, {known[model.count]}"


def _center_table(model: CenterModel) -> str:
    columns, words = _shown_columns(model)
    names = ["nearest other", *(model.column_names[j] for j in columns)]
    others = _nearest_others(model.centers)
    cells = [
        [other, *(f"{center[j]:.4g}" for j in columns)]
        for other, center in zip(others, model.centers, strict=True)
    ]
    return f"{part_table('cluster', model.weights, names, cells)}{words}"


def _shown_columns(model: CenterModel) -> tuple[list[int], str]:
    """All columns, or those in which centres differ most; and what to say of the others."""
    dim = model.centers.shape[1]
    if dim <= MAX_TABLE_COLUMNS:
        return list(range(dim)), ""
    spread = np.ptp(model.centers, axis=0) / column_scales(model)
    telling = sorted(int(j) for j in np.argsort(-spread, kind="stable")[:TELLING_COLUMNS])
    return telling, (
        f"<p>The {TELLING_COLUMNS} columns in which centres differ most; the model file has all "
        f"{dim}.</p>"
    )


def _nearest_others(centers: Floats) -> list[str]:
    """For every centre the one nearest to it, and how far it is."""
    if len(centers) == 1:
        return ["none"]
    found = []
    for k, center in enumerate(centers):
        away = np.linalg.norm(centers - center, axis=1)
        away[k] = np.inf
        other = int(away.argmin())
        found.append(f"{other + 1} <small>at {away[other]:.3g}</small>")
    return found
