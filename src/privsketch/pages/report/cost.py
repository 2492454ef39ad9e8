"""What a report says about the cost: in words, step by step, and every single release."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape

from privsketch.facts.budget import PERSON, exact, number_text
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import rho_of_budget
from privsketch.sketching.sketch import Sketch


def receipt_words(receipt: Receipt, release: str, further: str, not_protected: str) -> str:
    """What the numbers of a receipt mean.

    `release` is what can be seen beside the page, `further` what more costs, and
    `not_protected` an end for the list of what is not; all three are HTML.
    """
    factor = f" = {math.exp(receipt.epsilon):.3g}" if receipt.epsilon < 100 else ""
    thing = protected_thing(receipt)
    change = (
        f"whether any one {thing} was in a table or not"
        if receipt.neighbours == "add-remove"
        else f"what any one {thing} said (the number of {thing}s is public)"
    )
    but = ""
    if receipt.delta > 0:
        delta = number_text(receipt.delta)
        but = f", except for events whose probability is raised by at most {delta}"
    parts = ""
    if receipt.parts and receipt.composition == "parallel":
        parts = (
            f" Every holder spent this on its own {thing}s; a {thing} sits with one holder, so the "
            "costs of different holders do not add up."
        )
    can = "can hardly tell" if not receipt.cautions else "may well be able to tell"
    assuming = f" Assuming that {escape(receipt.assumption)}." if receipt.assumption else ""
    return (
        f'<div class="note">Whoever sees this page and {release} {can} '
        f"{change}: it changes the probability of anything they may see by a factor of at most "
        f"e<sup>{number_text(receipt.epsilon)}</sup>{factor}{but}.{parts} {further}</div>"
        f"<p>Cost: {escape(receipt.summary())}.{assuming}</p>"
        f"<p>Not protected: facts that hold without any one {thing}, such as {not_protected}.</p>"
    )


def protected_thing(receipt: Receipt) -> str:
    """What one of the things is called that are protected."""
    return "person" if receipt.unit.startswith(PERSON) else "record"


def several_records(receipt: Receipt) -> str:
    """What is not protected where the unit is a record."""
    if protected_thing(receipt) == "person":
        return ""
    return "several records of one person, for whom the cost multiplies; "


def risk_parts(sketch: Sketch) -> list[str]:
    """What those whose records are in a total with shared noise risk, by who joins forces."""
    parts = ["<h2>What those who took part risk</h2>"] if sketch.shared else []
    for total in sketch.shared:
        rows = []
        for cost in total.costs(sketch.design.sum_noise):
            factor = f"{math.exp(cost.epsilon):.3g}" if cost.epsilon < 100 else "no bound"
            cells = (escape(cost.who), cost.text.split(", ")[0].removeprefix("epsilon = "), factor)
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        names = ("who joins forces", "epsilon", "factor, at most")
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        own = (
            "Each holder added a part of one noise"
            if total.by == "holders"
            else f"Each of {total.n_tellers} tellers added a whole noise, and each holder a little"
        )
        parts += [
            f"<p>{own}, and nobody was shown the sum of one holder: {total.turnout} holders, "
            f"{total.n_tellers} tellers, {escape(total.source)}. Whoever joins forces can learn "
            "more than the page tells, up to these costs for each "
            f"{protected_thing(sketch.receipt)}; delta is "
            f"{number_text(sketch.design.budget.delta)} in every line.</p>",
            _words_table(head, rows),
        ]
    return parts


def step_table(receipt: Receipt) -> str:
    """The steps of one run and the share of the budget that each had."""
    steps = receipt.parts or (receipt,)
    shares = [_share(step, receipt) for step in steps]
    rows = []
    for step, share in zip(steps, shares, strict=True):
        name, release = _named(step)
        width = f"{100 * share / max(shares):.1f}"
        cells = (
            escape(name),
            f"{share:.1%}",
            f'<span class="bar"><i style="width:{width}%"></i></span>',
            escape(release),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    names = ("step", "share", "", "release")
    head = "".join(f'<th scope="col">{name}</th>' if name else "<td></td>" for name in names)
    how = (
        "Shares of rho, the cost of Gaussian noise, which adds up over steps."
        if receipt.composition == "concentrated"
        else "Shares of epsilon, which adds up over steps."
    )
    return f"{_words_table(head, rows)}<p>{how}</p>"


def _share(step: Receipt, whole: Receipt) -> float:
    """The part of the whole cost that a step had."""
    if whole.composition == "concentrated":
        return _rho(step) / _rho(whole)
    return float(exact(step.epsilon) / exact(whole.epsilon))


def _rho(receipt: Receipt) -> float:
    """The rho of a step; a choice has one without a delta, and masks have none of their own."""
    known = receipt.rho
    return rho_of_budget(receipt.epsilon, receipt.delta) if known is None else known


def _named(step: Receipt) -> tuple[str, str]:
    """The name of a step and what it released."""
    name, colon, release = step.mechanism.partition(": ")
    return (name, release) if colon else ("", step.mechanism)


def receipt_table(receipt: Receipt) -> str:
    """Every single release: what was spent by whom, and how the noise was set."""
    names = ("source", "epsilon", "delta", "release")
    rows = []
    for entry in leaves(receipt):
        scale = "" if entry.scale is None else f", scale {entry.scale:.6g}"
        how = f"sensitivity {entry.sensitivity_text}{scale}; {entry.calibration}; {entry.sampler}"
        cells = (
            escape(entry.source or ""),
            number_text(entry.epsilon),
            number_text(entry.delta),
            f"{escape(entry.mechanism)}<br><small>{escape(how)}</small>",
        )
        named = zip(names, cells, strict=True)
        line = "".join(f'<td data-k="{name}">{cell}</td>' for name, cell in named)
        rows.append(f"<tr>{line}</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return _words_table(head, rows, "releases")


def release_details(receipt: Receipt) -> str:
    """All releases, folded."""
    count = len(leaves(receipt))
    every = "The release" if count == 1 else f"All {count} releases"
    return (
        f"<details><summary>{every}, and how noise was set</summary>"
        f"{receipt_table(receipt)}</details>"
    )


def _words_table(head: str, rows: list[str], kind: str = "steps") -> str:
    return (
        f'<div class="scroll"><table class="words {kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def leaves(receipt: Receipt) -> list[Receipt]:
    """Single releases; a share of one holder's release carries the holder's name."""
    if not receipt.parts:
        return [receipt]
    named = [replace(part, source=part.source or receipt.source) for part in receipt.parts]
    return [leaf for part in named for leaf in leaves(part)]
