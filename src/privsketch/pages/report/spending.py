"""The page of a ledger, for its holder only: limits, and the spending over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from privsketch.ledger.contents import DataSet, Entry, span_text, spending
from privsketch.ledger.contents import SpendingStep as Step
from privsketch.ledger.periods import pace
from privsketch.pages.report.rendering import render

_WIDTH, _HEIGHT = 760, 180  # of the picture, in pixels
_LEFT, _TOP, _BOTTOM = 48, 10, 24  # margins for the axes
_RIGHT = _WIDTH - 8


def spending_page(
    name: str,
    accounting: str,
    data_sets: Sequence[DataSet],
    entries: Sequence[Entry],
    *,
    now: datetime | None = None,
) -> str:
    """Return the page as HTML text; `now` is its time, now by default."""
    now = datetime.now(UTC) if now is None else now
    return render(
        "ledger.html",
        title=f"Ledger {name}",
        accounting=accounting,
        data_sets=[_section(data_set, entries, now) for data_set in data_sets],
        day=now.date(),
    )


def _section(data_set: DataSet, entries: Sequence[Entry], now: datetime) -> dict[str, Any]:
    """Return the numbers of a data set, its picture and its entries."""
    limit = data_set.limit
    n_open = f", {data_set.n_open} of them never committed" if data_set.n_open > 0 else ""
    facts = [
        ("protects", f"{data_set.unit.text}, neighbours {data_set.neighbours}"),
        ("limit", limit.text),
        ("spent", limit.spent_text(data_set.spent)),
        ("left", limit.left_text(data_set.spent)),
        *_period_facts(data_set),
        ("entries", f"{data_set.n_entries}{n_open}"),
        *([("note", data_set.note)] if data_set.note else []),
    ]
    steps = spending(data_set, entries)
    text = pace(limit.used(data_set.spent), (step.time for step in steps), now)
    facts += [("pace", text)] if text else []
    begin = datetime.fromisoformat(data_set.time)
    return {
        "name": data_set.name,
        "facts": facts,
        "picture": _picture(steps, begin, now) if steps else None,
        "entries": [
            (entry, limit.charged_text(entry.charged))
            for entry in entries
            if entry.data_set == data_set.name
        ],
    }


def _period_facts(data_set: DataSet) -> list[tuple[str, str]]:
    """Return the limit of a period, and what was spent and is left of the present one."""
    period, spent = data_set.period, data_set.period_spent
    if period is None:
        return []
    texts = f"{period.limit.spent_text(spent)} spent; {period.limit.left_text(spent)} left"
    return [(f"limit of each {period.every}", period.limit.text), (f"this {period.every}", texts)]


def _picture(steps: Sequence[Step], begin: datetime, end: datetime) -> dict[str, Any]:
    """Return the spent share of the limit as a step function over time."""
    end = max(end, steps[-1].time)
    seconds = max((end - begin).total_seconds(), 1.0)

    def x(time: datetime) -> float:
        part = min(max((time - begin).total_seconds() / seconds, 0.0), 1.0)
        return _LEFT + (_RIGHT - _LEFT) * part

    def y(share: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(share, 1.0))

    stairs = "".join(f" H{x(step.time):.1f} V{y(step.used):.1f}" for step in steps)
    path = f"M{_LEFT},{y(0):.1f}{stairs} H{_RIGHT}"
    first, last = span_text(begin, end)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _RIGHT,
        "label": f"{steps[-1].used:.0%} of the limit was spent by "
        f"{len(steps)} {'entry' if len(steps) == 1 else 'entries'}",
        "lines": [{"share": share, "y": y(share)} for share in (0, 0.5, 1)],
        "path": path,
        "area": f"{path} V{y(0):.1f} Z",
        "first": first,
        "last": last,
    }
