"""What "auto" loses against the best of our methods, on data sets seen and unseen.

    python -m benchmarks regret              data sets that rules may have seen, 5 repetitions
    python -m benchmarks regret --unseen     those that nobody looked at: when the rules stand
    python -m benchmarks regret --more       20 repetitions where "auto" misses 5 %
    python -m benchmarks regret --tables     tables of what was run
    python -m benchmarks regret --list       data sets and budgets; nothing is run

Results: benchmarks/results/regret.csv (a row for each run, "auto" has runs and noise of its own;
what has its row is not run again) and regret.md. Methods: auto, sketch, pipeline, lloyd, and up to
8 columns cells and grid. Budgets follow from a data set's size by the rule of regret/cells.py.
What is seen and unseen is told in regret/data.py.
Real tables are in packages of benchmarks/requirements-data.txt; what is not installed is left out
with a word. Cells that --more looks at again are those that were missed, the others keep the
luck of five runs: the summary of the first five is the fair one.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import privsketch as ps
from benchmarks.common import one_thread_each
from benchmarks.compare.cells import Setting
from benchmarks.compare.runs import Store, run_all, tasks, warm_up
from benchmarks.datasets import DataSet
from benchmarks.regret.cells import setting_of
from benchmarks.regret.data import GROUPS, SEEN, UNSEEN
from benchmarks.regret.tables import FIRST, missed, report

RESULTS = Path(__file__).parents[1] / "results"
MORE = 20


def wanted(given: argparse.Namespace) -> list[DataSet]:
    """Return the requested data sets that are on this machine, and print the missing ones."""
    found = []
    for data in UNSEEN if given.unseen else SEEN:
        if given.only not in data.name:
            continue
        if data.is_here:
            found.append(data)
        else:
            print(f"{data.name} is left out: there is no {data.needs}", file=sys.stderr)
    return found


def settings(given: argparse.Namespace, store: Store) -> list[Setting]:
    """Return the cells to run: all of them, or with --more those that "auto" missed."""
    data = wanted(given)
    if not given.more:
        return [setting_of(one, given.repetitions) for one in data]
    far = missed(store.rows())
    found = []
    for one in data:
        budgets = [(cell.epsilon, cell.delta) for cell in far if cell.data == one.name]
        if budgets:
            found.append(setting_of(one, MORE, budgets))
    return found


def parser() -> argparse.ArgumentParser:
    """Return the options of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--unseen", action="store_true", help="those that nobody looked at")
    made.add_argument("--only", default="", help="data sets with this in their names")
    made.add_argument("--repetitions", type=int, default=FIRST)
    made.add_argument("--more", action="store_true", help=f"{MORE} repetitions of missed cells")
    made.add_argument("--jobs", type=int, default=2, help="processes at a time")
    made.add_argument("--tables", action="store_true", help="no new runs")
    made.add_argument("--list", action="store_true", help="data sets and budgets")
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    return made


def main() -> None:
    """Run what the command line asks for."""
    given = parser().parse_args()
    store = Store(given.results / "regret.csv")
    if given.list:
        for setting in settings(given, store):
            size = len(setting.data.domain.half_widths), setting.data.n_clusters
            print(setting.data.name, *size, setting.budgets)
        return
    if not given.tables:
        one_thread_each("benchmarks.regret")
        warnings.simplefilter("ignore", ps.PrivsketchWarning)
        store.begin()
        start = time.perf_counter()
        chosen = settings(given, store)
        work = tasks(chosen, (), max((one.repetitions for one in chosen), default=0), store)
        if work:
            warm_up()
            run_all(work, store, given.jobs, patience=0)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    text = report(store.rows(), GROUPS)
    (given.results / "regret.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
