"""The page of a ledger: limits, what was spent of them and when. For its holder alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from privsketch import __version__
from privsketch.ledger.accounting import Limit
from privsketch.ledger.contents import DataSet, Entry, span_text, spending
from privsketch.ledger.contents import SpendingStep as Step
from privsketch.pages.report.style import STYLE

_WIDTH, _HEIGHT = 760, 180
_LEFT, _TOP, _BOTTOM = 48, 10, 24  # room for the axes


def spending_page(
    name: str,
    accounting: str,
    data_sets: Sequence[DataSet],
    entries: Sequence[Entry],
    *,
    made: datetime | None = None,
) -> str:
    """The page as HTML text; `made` is its time, now if left out."""
    made = datetime.now(UTC) if made is None else made
    title = f"Ledger {escape(name)}"
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="sub">What all releases cost together; accounting {escape(accounting)}.</p>',
        '<div class="note warn">For its holder alone: names and times are the holder\'s.</div>',
        *(part for found in data_sets for part in _data_set(found, entries, made)),
        f'<footer>Page of <time datetime="{made.date()}">{made.date()}</time>, by privsketch '
        f"{__version__}</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def _data_set(found: DataSet, entries: Sequence[Entry], made: datetime) -> list[str]:
    """One data set: its numbers, a picture, its entries."""
    limit = found.limit
    facts = [
        ("protects", f"{found.unit.text}, neighbours {found.neighbours}"),
        ("limit", limit.text),
        ("spent", limit.spent_text(found.spent)),
        ("left", limit.left_text(found.spent)),
        (
            "entries",
            f"{found.n_entries}" + f", {found.n_open} of them never committed" * (found.n_open > 0),
        ),
        *([("note", found.note)] if found.note else []),
    ]
    steps = spending(found, entries)
    parts = [f"<h2>{escape(found.name)}</h2>", _table(facts)]
    if steps:
        parts.append(_drawn(steps, datetime.fromisoformat(found.time), made))
        mine = [entry for entry in entries if entry.data_set == found.name]
        parts.append(_listed(mine, limit))
    return parts


def _table(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>'
        for key, value in facts
    )
    return f'<table class="words"><tbody>{rows}</tbody></table>'


def _listed(entries: Sequence[Entry], limit: Limit) -> str:
    rows = "".join(
        f"<tr><td>{escape(entry.time[:16].replace('T', ' '))}</td><td>{escape(entry.what)}</td>"
        f"<td>{escape(entry.output or '')}</td><td>{escape(limit.charged_text(entry.charged))}</td>"
        f"<td>{entry.state}</td></tr>"
        for entry in entries
    )
    names = ("time", "what", "output", "cost", "state")
    heads = "".join(f'<th scope="col">{text}</th>' for text in names)
    return (
        f'<details><summary>All entries</summary><div class="scroll"><table class="words">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _drawn(steps: Sequence[Step], begin: datetime, end: datetime) -> str:
    """The share of the limit that was spent, as steps over time."""
    end = max(end, steps[-1].time)
    seconds = max((end - begin).total_seconds(), 1.0)
    across, down = _WIDTH - _LEFT - 8, _HEIGHT - _TOP - _BOTTOM

    def place(time: datetime) -> float:
        return _LEFT + across * min(max((time - begin).total_seconds() / seconds, 0.0), 1.0)

    def height(used: float) -> float:
        return _TOP + down * (1 - min(used, 1.0))

    path = f"M{_LEFT},{height(0):.1f}"
    for step in steps:
        path += f" H{place(step.time):.1f} V{height(step.used):.1f}"
    path += f" H{_LEFT + across}"
    area = f"{path} V{height(0):.1f} Z"
    lines = "".join(
        f'<line x1="{_LEFT}" x2="{_LEFT + across}" y1="{height(at):.1f}" y2="{height(at):.1f}" '
        f'stroke="var(--{"warn" if at == 1 else "faint"})"/>'
        f'<text x="{_LEFT - 6}" y="{height(at) + 4:.1f}" text-anchor="end">{at:.0%}</text>'
        for at in (0, 0.5, 1)
    )
    first, last = span_text(begin, end)
    dates = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{first}</text>'
        f'<text x="{_LEFT + across}" y="{_HEIGHT - 6}" text-anchor="end">{last}</text>'
    )
    used = f"{steps[-1].used:.0%} of the limit were spent by {len(steps)} entries"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{used}" '
        f'style="font-size:12px;fill:var(--muted)">{lines}'
        f'<path d="{area}" fill="var(--accent)" fill-opacity=".18"/>'
        f'<path d="{path}" fill="none" stroke="var(--accent)" stroke-width="2"/>{dates}</svg>'
    )
