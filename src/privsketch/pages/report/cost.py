"""The cost of a model in a report: in words, step by step, and for every single release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsketch.facts.budget import PERSON, exact
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import rho_of_budget
from privsketch.pages.report.rendering import render_macro
from privsketch.sketching.sketch import Sketch

if TYPE_CHECKING:
    from markupsafe import Markup


def receipt_words(receipt: Receipt, release: str, further: str, not_protected: str) -> Markup:
    """Return HTML that explains the numbers of a receipt.

    `release` names what a reader has besides the page, `further` is a sentence about the cost of
    further releases, and `not_protected` ends the list of facts that are not protected.
    """
    noun = protected_thing(receipt)
    return render_macro("cost.html", "statement", receipt, noun, release, further, not_protected)


def release_details(receipt: Receipt) -> Markup:
    """Return the HTML of all single releases, folded."""
    return render_macro("cost.html", "releases", leaves(receipt))


def protected_thing(receipt: Receipt) -> str:
    """Return the name of the unit of protection: person or record."""
    return "person" if receipt.unit.startswith(PERSON) else "record"


def several_records(receipt: Receipt) -> str:
    """Return the clause about persons with several records; empty if the unit is a person."""
    if protected_thing(receipt) == "person":
        return ""
    return "several records of one person, for whom the cost multiplies; "


def risks_of(sketch: Sketch) -> list[dict[str, Any]]:
    """Return the risks of participants in each total with shared noise, by who colludes."""
    return [
        {
            "by": total.by,
            "n_tellers": total.n_tellers,
            "turnout": total.turnout,
            "source": total.source,
            "costs": [
                {
                    "who": cost.who,
                    "epsilon_text": cost.text.split(", ")[0].removeprefix("epsilon = "),
                    "factor": f"{math.exp(cost.epsilon):.3g}" if cost.epsilon < 100 else "no bound",
                }
                for cost in total.costs(sketch.design.sum_noise)
            ],
        }
        for total in sketch.shared
    ]


@dataclass(frozen=True)
class Step:
    """A step of a run: its name, its share of the budget and what it released."""

    name: str
    share: float
    percent_of_largest: float
    release: str


def steps_of(receipt: Receipt) -> list[Step]:
    """Return the steps of one run, each with its share of the budget."""
    receipts = receipt.parts or (receipt,)
    shares = [_share(step, receipt) for step in receipts]
    steps = []
    for step, share in zip(receipts, shares, strict=True):
        name, colon, release = step.mechanism.partition(": ")
        if not colon:
            name, release = "", step.mechanism
        steps.append(Step(name, share, 100 * share / max(shares), release))
    return steps


def _share(step: Receipt, total: Receipt) -> float:
    """Return the share of the total cost that a step had."""
    if total.composition == "concentrated":
        return _rho(step) / _rho(total)
    return float(exact(step.epsilon) / exact(total.epsilon))


def _rho(receipt: Receipt) -> float:
    """Return the rho of a step, from its epsilon and delta if the receipt states none."""
    rho = receipt.rho
    return rho_of_budget(receipt.epsilon, receipt.delta) if rho is None else rho


def leaves(receipt: Receipt) -> list[Receipt]:
    """Return the single releases; a share of one holder's release carries the holder's name."""
    if not receipt.parts:
        return [receipt]
    named = [replace(part, source=part.source or receipt.source) for part in receipt.parts]
    return [leaf for part in named for leaf in leaves(part)]
