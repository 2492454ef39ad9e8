"""One sheet on which a person approves a release: what is asked, and what it would cost."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from privsketch.design.recipe import Design
from privsketch.facts.budget import cost_text, meaning_of
from privsketch.ledger.accounting import Limit, Total
from privsketch.ledger.contents import DataSet, Quote
from privsketch.pages.report.rendering import count_text, render

_PARTS = {
    "kmeans": "cluster",
    "gaussian-mixture": "Gaussian component",
    "pca": "principal component",
}


def approval_page(
    name: str, data_set: DataSet, design: Design, quote: Quote, *, now: datetime | None = None
) -> str:
    """Return the sheet as HTML text; `now` is its time, now by default."""
    now = datetime.now(UTC) if now is None else now
    budget = design.budget
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
            ("what is released", f"a sketch of {count_text(design.n_values, 'noisy number')}"),
            ("to learn", count_text(design.n_components, _PARTS[design.task])),
            ("design", design.fingerprint[:32]),
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
