"""One sheet on which a person approves a release: what is asked, and what it would cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget, cost_text, meaning_of
from privsketch.ledger.accounting import Limit, Total
from privsketch.ledger.contents import DataSet, Quote
from privsketch.pages.report.rendering import count_text, render

_PARTS = {
    "kmeans": "cluster",
    "gaussian-mixture": "Gaussian component",
    "pca": "principal component",
}


def design_facts(design: Design) -> list[tuple[str, str]]:
    """Return what a sketch of a design releases and reads, as rows of the sheet."""
    count = " and a noisy number of records" if design.count == "released" else ""
    facts = [
        (
            "what is released",
            f"a sketch of {count_text(design.n_values, 'noisy number')}{count}",
        ),
        ("to learn", _to_learn(design)),
        ("design", design.fingerprint),
    ]
    if design.schema is not None:
        facts.insert(2, ("columns read", ", ".join(design.schema.names)))
    return facts


def _to_learn(design: Design) -> str:
    """Return a number of components, or the task and its target."""
    if design.task in _PARTS:
        return count_text(design.n_components, _PARTS[design.task])
    return f"{design.task} of {design.target or 'any column'}"


def approval_page(
    name: str,
    data_set: DataSet,
    facts: Sequence[tuple[str, str]],
    budget: Budget,
    quote: Quote,
    *,
    now: datetime | None = None,
) -> str:
    """Return the sheet as HTML text; `now` is its time, now by default.

    `facts` say what is released, and `budget` what it costs.
    """
    now = datetime.now(UTC) if now is None else now
    rows = [("in all", *_amounts(data_set.limit, data_set.spent, quote))]
    if data_set.period is not None:
        limit, spent = data_set.period.limit, data_set.period_spent
        rows.append((f"this {data_set.period.every}", *_amounts(limit, spent, quote)))
    return render(
        "approval.html",
        title="Approval of a release",
        ledger=name,
        data_set=data_set,
        noun="person" if budget.unit.text.startswith("one person") else "record",
        facts=[
            ("data set", data_set.name),
            *facts,
            ("protects", meaning_of(budget.neighbours, budget.unit.text)),
            ("cost", cost_text(budget.epsilon, budget.delta)),
        ],
        budget=budget,
        factor=math.exp(budget.epsilon),
        delta=budget.delta,
        rows=rows,
        quote=quote,
        day=now.date(),
    )


def _amounts(limit: Limit, spent: Total, quote: Quote) -> tuple[str, str, str]:
    """Return a limit, what is spent of it, and what would be left after the release."""
    left = limit.left_text(spent.plus(quote.charged)) if quote.allowed else "refused"
    return limit.text, limit.spent_text(spent), left
