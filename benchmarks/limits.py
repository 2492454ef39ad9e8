"""How far "auto" is from what an oracle reaches, on the data sets of the regret.

    python -m benchmarks limits                 data sets that rules may have seen, 5 repetitions
    python -m benchmarks limits --unseen        those that nobody looked at: when the rules stand
    python -m benchmarks limits --before PATH   "auto" of another checkout as well: "auto before"
    python -m benchmarks limits --peers PYTHON  peers as well, of this environment
    python -m benchmarks limits --tables        tables and the picture of what was run
    python -m benchmarks limits --list          data sets, columns and clusters; nothing is run

Every data set has the same four budgets. Beside our methods stand the limits of regret/limits.py:
an oracle, which knows the clusters of k-means and pays for one noisy step, so that no private
method can be expected below it, and one noisy mean with centers around it, which no method should
be above. Results: benchmarks/results/limits.csv (a row for each run, with what the model says of
itself; what has its row is not run again), limits.md and limits.png.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.common import markdown, one_thread_each
from benchmarks.compare.cells import DELTA, Budgets, Setting
from benchmarks.compare.methods import OURS, PeerMethod, peer_methods
from benchmarks.compare.runs import KEY, Store, run_all, tasks, warm_up
from benchmarks.compare.tables import Cell, Rows, cells_of, save
from benchmarks.datasets import DataSet
from benchmarks.regret.__main__ import RESULTS, wanted
from benchmarks.regret.data import SEEN, UNSEEN
from benchmarks.regret.limits import ONE_MEAN, ORACLE
from benchmarks.regret.tables import FAR, FIRST, NEAR
from privsketch.design.forecast import verdict_of
from privsketch.models.drawing.axes import FAINT, INK, PALETTE, figure_of

FIELDS = (
    *("data", "n", "d", "k", "epsilon", "delta", "method", "seed"),
    *("rsse", "seconds", "note", "concerns", "expected"),
)
BUDGETS: Budgets = [(1.0, DELTA), (0.1, DELTA), (1.0, 0.0), (0.3, 0.0)]
BEFORE = "auto before"
CELL_COLUMNS = 4  # up to here method "cells" is run
PANEL = ("auto", BEFORE, "sketch", "pipeline", "cells", "lloyd")  # what "auto" is compared with
MANY_RECORDS = 1_000  # from here on the worst regret counts
MEDIAN_ERROR = math.sqrt(math.pi / 2)  # of a median over that of a mean, for normal runs
BAD, GOOD = 1.5, 1.1  # costs of runs that should say so, and of those that should not
FLOOR = 1e-4  # smallest excess in the picture
Summary = Callable[[Sequence[Cell], str], str]


def setting_of(data: DataSet, repetitions: int) -> Setting:
    """Return a data set with its budgets and methods."""
    cells = ("cells",) if len(data.domain.half_widths) <= CELL_COLUMNS else ()
    methods = ("auto", "sketch", "pipeline", "lloyd", *cells, ORACLE, ONE_MEAN)
    return Setting(data, BUDGETS, repetitions, methods)


def before(path: Path) -> PeerMethod:
    """Return "auto" of another checkout, which answers as a peer does."""
    source = str(path.resolve() / "src")
    paths = os.pathsep.join((source, str(Path(__file__).parents[1])))
    worker = ("env", f"PYTHONPATH={paths}", sys.executable, "-m", "benchmarks.peers.checkout")
    return PeerMethod(BEFORE, (*worker, source))


# --- criteria ------------------------------------------------------------------------------


def regret(cell: Cell, method: str) -> float:
    """Return the median of a method over the lowest of the panel."""
    medians = cell.medians
    return medians[method] / min(medians[name] for name in PANEL if name in medians)


def own_error(cell: Cell, method: str) -> float:
    """Return the standard error of the median of a method's runs, of logarithms of costs."""
    runs = np.log(cell.runs(method))
    return MEDIAN_ERROR * float(runs.std(ddof=1)) / math.sqrt(len(runs)) if len(runs) > 1 else 0.0


def is_near(cell: Cell, method: str) -> bool:
    """Whether a median is within 5 % of the lowest of the panel, or within its own error of it."""
    lost = math.log(regret(cell, method))
    return lost <= max(math.log(NEAR), own_error(cell, method))


def is_concerned(row: Mapping[str, str]) -> bool:
    """Whether a model says that its cost may be high: by a concern, or by a hopeless ratio."""
    expected = row["expected"]
    return int(row["concerns"]) > 0 or (
        bool(expected) and verdict_of(float(expected)) == "hopeless"
    )


def _over(limit: str) -> Callable[[Cell, str], float | None]:
    """Return a function that gives the median of a method over that of a limit, if it was run."""

    def ratio(cell: Cell, method: str) -> float | None:
        medians = cell.medians
        return medians[method] / medians[limit] if limit in medians else None

    return ratio


def _ratios(
    cells: Sequence[Cell], method: str, of: Callable[[Cell, str], float | None]
) -> dict[str, float]:
    found = {cell.data: of(cell, method) for cell in cells}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def _quantile(level: float) -> Summary:
    def text(cells: Sequence[Cell], method: str) -> str:
        ratios = list(_ratios(cells, method, _over(ORACLE)).values())
        return f"{np.quantile(ratios, level):.3f}" if ratios else ""

    return text


def _worst(cells: Sequence[Cell], method: str, of: Callable[[Cell, str], float | None]) -> str:
    ratios = _ratios(cells, method, of)
    name = max(ratios, key=lambda name: ratios[name], default=None)
    return "" if name is None else f"{ratios[name]:.2f} ({name})"


def _share(hits: Collection[bool]) -> str:
    return f"{100 * sum(hits) / len(hits):.0f} % of {len(hits)}" if hits else ""


def _saying(counts: Callable[[float], bool]) -> Summary:
    """Return a summary: the share of runs of such costs in which the model says something."""

    def text(cells: Sequence[Cell], method: str) -> str:
        rows = [row for cell in cells for row in cell.rows if row["method"] == method]
        return _share([is_concerned(row) for row in rows if row["rsse"] and counts(_cost(row))])

    return text


def _cost(row: Mapping[str, str]) -> float:
    return float(row["rsse"])


def _large(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if int(cell.rows[0]["n"]) >= MANY_RECORDS]


def _seconds(cells: Sequence[Cell], method: str) -> list[float]:
    rows = [row for cell in cells for row in cell.rows if row["method"] == method]
    return [float(row["seconds"]) for row in rows if row["seconds"]]


def _above_mean(cells: Sequence[Cell], method: str) -> str:
    ratios = _ratios(cells, method, _over(ONE_MEAN)).values()
    return f"{sum(ratio > NEAR for ratio in ratios)} of {len(ratios)}"


SUMMARIES: dict[str, Summary] = {
    "sets": lambda cells, method: str(len(cells)),
    "over the oracle: median": _quantile(0.5),
    "90th percentile": _quantile(0.9),
    "worst": lambda cells, method: _worst(cells, method, _over(ORACLE)),
    "near the best": lambda cells, method: _share([is_near(cell, method) for cell in cells]),
    "within 30 %": lambda cells, method: _share([regret(c, method) <= FAR for c in cells]),
    "worst, 1,000 records on": lambda cells, method: _worst(_large(cells), method, regret),
    "above one mean": _above_mean,
    "above 1.5 that say so": _saying(lambda cost: cost > BAD),
    "below 1.1 that say so": _saying(lambda cost: cost < GOOD),
    "seconds": lambda cells, method: f"{median(_seconds(cells, method)):.2g}",
}


# --- results -------------------------------------------------------------------------------


def budget_text(epsilon: float, delta: float) -> str:
    """Return a budget as headings have it."""
    return f"({epsilon:g}, {delta:g})" if delta else f"pure {epsilon:g}"


def by_budget(rows: Rows) -> dict[tuple[float, float], list[Cell]]:
    """Return the cells of every budget that was run, in the order of BUDGETS."""
    cells = cells_of(rows)
    found = {b: [cell for cell in cells if (cell.epsilon, cell.delta) == b] for b in BUDGETS}
    return {budget: mine for budget, mine in found.items() if mine}


def table_of_summaries(rows: Rows) -> str:
    """Return all criteria: a line for every budget, and for "auto" now and before."""
    lines = []
    for budget, cells in by_budget(rows).items():
        for method in ("auto", BEFORE):
            mine = [cell for cell in cells if method in cell.medians]
            if mine:
                texts = [summary(mine, method) for summary in SUMMARIES.values()]
                lines.append([budget_text(*budget), method, *texts])
    return markdown(["budget", "method", *SUMMARIES], lines)


def table_of_cells(rows: Rows) -> str:
    """Return medians of RSSE, the oracle first; the lowest of the panel in bold."""
    run = {row["method"]: None for row in rows}
    names = [name for name in dict.fromkeys((ORACLE, *PANEL, ONE_MEAN, *run)) if name in run]
    lines = []
    for cell in cells_of(rows):
        medians = cell.medians
        best = min((name for name in PANEL if name in medians), key=medians.__getitem__, default="")
        texts = [f"{medians[name]:.4g}" if name in medians else "" for name in names]
        texts = [
            f"({t})" if n in cell.over_budget else t for n, t in zip(names, texts, strict=True)
        ]
        texts = [f"**{t}**" if n == best else t for n, t in zip(names, texts, strict=True)]
        lost = f"{regret(cell, 'auto'):.3f}" if "auto" in medians else ""
        budget = budget_text(cell.epsilon, cell.delta)
        n = cell.rows[0]["n"]
        lines.append([cell.data, n, budget, *texts, ", ".join(cell.chosen), lost])
    return markdown(["data", "n", "budget", *names, "auto chose", "regret of auto"], lines)


def report(rows: Rows, data: Mapping[str, Sequence[DataSet]]) -> str:
    """Return everything in Markdown, by groups of data sets; what no group has is left out."""
    groups = {}
    for title, sets in data.items():
        names = {one.name for one in sets}
        groups[title] = [row for row in rows if row["data"] in names]
    groups = {title: mine for title, mine in groups.items() if mine}
    if not groups:
        raise SystemExit("nothing was run yet")
    parts = [
        "Medians of the squared error over that of k-means without privacy (RSSE). The oracle "
        'knows the clusters of k-means and pays for one noisy step. "Near the best" is within 5 % '
        f"of the lowest median of the panel ({', '.join(PANEL)}), or within the standard error of "
        f"its own median: {MEDIAN_ERROR:.4f} s / sqrt(runs), s the standard deviation of "
        'logarithms. "Above one mean" counts medians above 1.05 times that of the noisy mean '
        "with centers around it. A run says so by a concern, or by telling to expect more than "
        f"{BAD:g}."
    ]
    if len(groups) > 1:
        parts += [
            "## All data sets",
            table_of_summaries([row for g in groups.values() for row in g]),
        ]
    for title, mine in groups.items():
        parts += [f"## Data sets {title}", table_of_summaries(mine), table_of_cells(mine)]
    return "\n\n".join(parts) + "\n"


def series_of(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Return what the picture shows of a budget: excess over k-means on every data set."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        medians = cell.medians
        peers = set(medians) - {ORACLE, ONE_MEAN, *PANEL, *OURS, *cell.over_budget}
        shown: dict[str, Collection[str]] = {"best of the panel": PANEL, "best peer": peers}
        for name in (ORACLE, "best of the panel", "auto", BEFORE, "lloyd", "best peer", ONE_MEAN):
            methods = shown.get(name, (name,))
            costs = [medians[method] for method in methods if method in medians]
            if costs:
                found.setdefault(name, []).append(max(min(costs) - 1, FLOOR))
    return found


def plot(rows: Rows, path: Path) -> None:
    """Draw the excess over k-means by budget: medians over data sets, with their quartiles."""
    figure, axes = figure_of(7.2, 3.6)
    panel, groups = axes[0][0], by_budget(rows)
    series = [series_of(cells) for cells in groups.values()]
    names = list(dict.fromkeys(name for found in series for name in found))
    for number, name in enumerate(names):
        color, shift = PALETTE[number], 0.1 * (number - (len(names) - 1) / 2)
        places = [(at + shift, found[name]) for at, found in enumerate(series) if name in found]
        for at, excess in places:
            panel.plot([at, at], np.quantile(excess, (0.25, 0.75)), color=color, linewidth=1.0)
        points: Any = [(at, median(excess)) for at, excess in places]
        panel.plot(*zip(*points, strict=True), "o", color=color, markersize=5, label=name)
    panel.set_yscale("log")
    panel.set_ylabel("excess over k-means")
    panel.set_xticks(range(len(groups)), [budget_text(*budget) for budget in groups])
    panel.set_xlabel("budget (epsilon, delta)")
    panel.grid(visible=True, axis="y", color=FAINT, linewidth=0.4)
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    n_data = len({row["data"] for row in rows})
    figure.suptitle(f"Medians and quartiles over data sets: {n_data}", fontsize=10, color=INK)
    save(figure, path)


# --- command -------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Return the options of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--unseen", action="store_true", help="those that nobody looked at")
    made.add_argument("--only", default="", help="data sets with this in their names")
    made.add_argument("--repetitions", type=int, default=FIRST)
    made.add_argument("--jobs", type=int, default=2, help="processes at a time")
    made.add_argument("--before", type=Path, help="another checkout, whose auto is run as well")
    made.add_argument("--peers", type=Path, help="Python of the peers' environment")
    made.add_argument("--patience", type=float, default=600.0, help="seconds for one answer")
    made.add_argument("--tables", action="store_true", help="no new runs")
    made.add_argument("--list", action="store_true", help="data sets, columns and clusters")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    return made


def run(given: argparse.Namespace, store: Store) -> None:
    """Run what is missing."""
    warnings.simplefilter("ignore", ps.PrivsketchWarning)
    others = [] if given.before is None else [before(given.before)]
    if given.peers is not None:
        others += peer_methods(given.peers, {}, lambda text: print(text, file=sys.stderr))
    chosen = [setting_of(one, given.repetitions) for one in wanted(given)]
    work = tasks(chosen, others, given.repetitions, store)
    start = time.perf_counter()
    if work:
        store.begin()
        warm_up()
        run_all(work, store, given.jobs, given.patience)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


def main() -> None:
    """Run what the command line asks for."""
    given = parser().parse_args()
    store = Store(given.results / "limits.csv", FIELDS, KEY)
    if given.list:
        for data in wanted(given):
            budgets = ", ".join(budget_text(*budget) for budget in BUDGETS)
            print(data.name, len(data.domain.half_widths), data.n_clusters, budgets)
        return
    if not given.tables:
        one_thread_each("benchmarks.limits")
        run(given, store)
    rows = store.rows()
    text = report(rows, {"seen": SEEN, "unseen": UNSEEN})
    (given.results / "limits.md").write_text(text)
    plot(rows, given.results / "limits.png")
    print(text)


if __name__ == "__main__":
    main()
