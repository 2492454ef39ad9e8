"""The chart of a ledger: the share of a limit that was spent over time, in characters."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privsketch.ledger.contents import SpendingStep

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MARGIN = 8  # columns for the axis


def chart(
    steps: Sequence[SpendingStep],
    begin: datetime,
    end: datetime,
    *,
    width: int = 79,
    height: int = 6,
    plain: bool | None = None,
) -> list[str]:
    """Draw the share of the limit that was spent, from `begin` to `end`, in characters.

    `plain` is for terminals without block characters; by default standard output decides. Any
    spending is visible, and only a spent limit fills the height.
    """
    plain = not _has_blocks() if plain is None else plain
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
    from privsketch.ledger.contents import span_text

    first, last = span_text(begin, end)
    lines.append(f"{'':{_MARGIN}}{first}{last:>{n_columns - len(first)}}")
    return lines


def _shares(
    steps: Sequence[SpendingStep], begin: datetime, end: datetime, n_columns: int
) -> list[float]:
    """Return the share that was spent by the end of each column's time."""
    duration = max((end - begin).total_seconds(), 1.0)
    shares = [0.0] * n_columns
    for step in steps:
        column = int((step.time - begin).total_seconds() / duration * n_columns)
        first = min(max(column, 0), n_columns - 1)
        shares[first:] = [step.used] * (n_columns - first)
    return shares


def _level(share: float, top: int) -> int:
    """Return a height in eighths of rows: 0 only for nothing, `top` only for the whole limit."""
    if share <= 0:
        return 0
    return top if share >= 1 else min(max(math.floor(share * top), 1), top - 1)


def _has_blocks() -> bool:
    """Return whether standard output can show the characters of the chart."""
    try:
        "▁█│".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
