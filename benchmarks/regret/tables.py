"""The regret of "auto" in words: how often it is near the best method, and every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.common import markdown
from benchmarks.compare.tables import Cell, Rows, cells_of, losses, table_of_medians
from benchmarks.datasets import DataSet

NEAR, FAR = 1.05, 1.3
FIRST = 5  # runs that every cell has; more are of cells that were missed
HEADINGS = (
    *("data sets", "number", "cells", "within 5 %", "within 30 %", "worst"),
    *("missed with the best method", "won by others"),
)


def missed(rows: Rows) -> list[Cell]:
    """Cells in which the median of "auto" is more than 5 % above the lowest."""
    return [cell for cell in cells_of(rows) if cell.regret is not None and cell.regret > NEAR]


def summary(name: str, rows: Rows) -> list[str]:
    """Return a line of the summary."""
    regrets = [cell.regret for cell in cells_of(rows) if cell.regret is not None]
    n_data = len({row["data"] for row in rows})
    shares = [
        f"{100 * sum(regret <= limit for regret in regrets) / len(regrets):.0f} %"
        for limit in (NEAR, FAR)
    ]
    unlucky = sum(cell.best in cell.chosen for cell in missed(rows))
    counts = [str(unlucky), str(len(losses(rows)))]
    return [name, str(n_data), str(len(regrets)), *shares, f"{max(regrets):.3f}", *counts]


def _summaries(name: str, rows: Rows) -> list[list[str]]:
    """Return a line for the runs that every cell has, and a line for all if there are more."""
    first = [row for row in rows if int(row["seed"]) < FIRST]
    if len(first) == len(rows):
        return [summary(name, rows)]
    return [summary(f"{name}, {FIRST} runs", first), summary(f"{name}, all runs", rows)]


def list_of_data(rows: Rows, known: Mapping[str, DataSet]) -> str:
    """Return a description of each data set."""
    lines = []
    for name, row in {row["data"]: row for row in rows}.items():
        about = known[name].about if name in known else ""
        lines.append([name, row["n"], row["d"], row["k"], about])
    return markdown(["data", "n", "d", "k", "what"], lines)


def report(rows: Rows, data: Mapping[str, Sequence[DataSet]]) -> str:
    """Everything in Markdown, by groups of data sets; what no group has is left out."""
    groups = {}
    for title, sets in data.items():
        names = {one.name for one in sets}
        groups[title] = [row for row in rows if row["data"] in names]
    groups = {title: mine for title, mine in groups.items() if _has_regret(mine)}
    if not groups:
        raise SystemExit("nothing was run yet")
    parts = [
        'Regret is the median RSSE of "auto" over the lowest median of all methods. Cells are '
        'missed with the best method where "auto", by runs of its own, is more than 5 % above '
        "the method that it chose itself. Cells won by others are those of the grid and of "
        "Lloyd's rounds. Data sets that were once unseen are seen since their first run.",
        markdown(HEADINGS, [line for group in groups.items() for line in _summaries(*group)]),
    ]
    known = {one.name: one for sets in data.values() for one in sets}
    for title, mine in groups.items():
        parts += [f"## Data sets {title}", list_of_data(mine, known), table_of_medians(mine)]
        beaten = losses(mine)
        if beaten:
            parts += ["Cells that no method of ours wins:", "\n".join(f"* {x}" for x in beaten)]
    return "\n\n".join(parts) + "\n"


def _has_regret(rows: Rows) -> bool:
    return any(cell.regret is not None for cell in cells_of(rows))
