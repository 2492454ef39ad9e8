"""Spending over time, drawn in characters: 80 columns, any terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from privsketch.ledger.history import Step, span_text

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MARGIN = 8  # columns for the axis


def chart(
    steps: Sequence[Step],
    begin: datetime,
    end: datetime,
    *,
    width: int = 79,
    height: int = 6,
    plain: bool = False,
) -> list[str]:
    """Lines of a picture: the share of the limit that was spent, from `begin` to `end`.

    `plain` is for terminals that have no blocks of eighths. What is above nothing is always seen,
    and full means that nothing is left.
    """
    n_columns = width - _MARGIN
    shares = _shares(steps, begin, end, n_columns)
    levels = [_level(share, 8 * height) for share in shares]
    lines = []
    for row in reversed(range(height)):
        cells = (min(max(level - 8 * row, 0), 8) for level in levels)
        drawn = "".join("# "[cell < 4] if plain else _EIGHTHS[cell] for cell in cells)
        label = {height - 1: "100 %", 0: "0 %"}.get(row, "")
        lines.append(f"{label:>6} {'|' if plain else '│'}{drawn}".rstrip())
    if plain and any(shares):  # halves of a row are lost, but nothing looks unspent
        low = lines[-1].ljust(width)
        drawn = "".join("#" if share else " " for share in shares)
        lines[-1] = (low[:_MARGIN] + drawn).rstrip()
    first, last = span_text(begin, end)
    lines.append(f"{'':{_MARGIN}}{first}{last:>{n_columns - len(first)}}")
    return lines


def _shares(steps: Sequence[Step], begin: datetime, end: datetime, n_columns: int) -> list[float]:
    """What was spent by the end of each column's time."""
    whole = max((end - begin).total_seconds(), 1.0)
    shares = [0.0] * n_columns
    for step in steps:
        place = (step.time - begin).total_seconds() / whole * n_columns
        first = min(max(int(place), 0), n_columns - 1)
        shares[first:] = [step.used] * (n_columns - first)
    return shares


def _level(share: float, top: int) -> int:
    """Eighths of rows: none only for nothing, all only for the whole."""
    if share <= 0:
        return 0
    return top if share >= 1 else min(max(math.floor(share * top), 1), top - 1)
