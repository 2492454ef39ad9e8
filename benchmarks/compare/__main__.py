"""Our methods, baselines and installed peers side by side: quality, time and memory.

    python -m benchmarks compare             run what is missing, then write tables and plots
    python -m benchmarks compare --quick     three data sets, two repetitions, under two minutes
    python -m benchmarks compare --tables    tables and plots of what was run
    python -m benchmarks compare --large     time and memory of the pipeline, 1e6 x 100 float32
    python -m benchmarks compare --peer mine='/path/to/python my_adapter.py'

Results: benchmarks/results/compare.csv (a row for each run; what has its row is not run again),
compare-tasks.csv (principal components, mixtures), compare.md (tables) and compare-DATA.png
(RSSE against epsilon); those of --quick are in a temporary folder. RSSE is the squared error over
that of scikit-learn's KMeans on the raw records. Every repetition has its own records, where they
can be drawn, public randomness and noise. Peers run in an environment of their own
(--peers-python); peers/protocol.py says how any other system can join. A peer that does not
answer is left out with a message.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import one_thread_each
from benchmarks.compare import tasks as compare_tasks
from benchmarks.compare.cells import GRID, QUICK
from benchmarks.compare.methods import peer_methods
from benchmarks.compare.runs import Store, run_all, tasks, warm_up
from benchmarks.compare.tables import plot, report

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parents[1] / "results"
QUICK_RESULTS = Path(tempfile.gettempdir()) / "privsketch-compare"  # not to be mistaken for results
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"

LARGE = """
import time
import numpy as np
import privsketch as ps
from benchmarks.peers.protocol import peak
rng = np.random.default_rng(0)
centers = 0.9 * rng.normal(size=(20, 100)) / 10
records = np.empty((1_000_000, 100), dtype=np.float32)
for first in range(0, len(records), 100_000):
    label = rng.integers(20, size=100_000)
    records[first : first + 100_000] = centers[label] + rng.normal(size=(100_000, 100)) / 80
before, start = peak(), time.perf_counter()
model = ps.PrivateKMeans(20, method="pipeline", epsilon=1.0, delta=1e-6, n_records=1e6,
                         domain=ps.Ball(100, 1.5), random_state=0).fit(records)
seconds = time.perf_counter() - start
print(f"{seconds:.1f} s, {peak() - before:.0f} MB beyond the {before:.0f} MB of making the data")
"""


def parsed_peers(given: list[str]) -> dict[str, list[str]]:
    """NAME=COMMAND as a dictionary."""
    found = {}
    for text in given:
        name, is_told, command = text.partition("=")
        if not (name and is_told and command):
            raise SystemExit(f"--peer {text!r}: expected NAME=COMMAND")
        found[name] = shlex.split(command)
    return found


def run(given: argparse.Namespace, folder: Path) -> None:
    """Run what is missing."""
    peers = peer_methods(
        given.peers_python, parsed_peers(given.peer), lambda text: print(text, file=sys.stderr)
    )
    repetitions = given.repetitions or (2 if given.quick else 5)
    settings = [
        setting
        for setting in (QUICK if given.quick else GRID)
        if given.only in setting.data.name and setting.data.is_here
    ]
    store = Store(folder / "compare.csv")
    store.begin()
    work = tasks(settings, peers, repetitions, store)
    start = time.perf_counter()
    if work:
        warm_up()
        run_all(work, store, given.jobs, given.patience)
    if not given.quick and not given.only:
        others = _tasks_store(folder)
        others.begin()
        compare_tasks.run_pca(others, peers, min(3, repetitions), given.patience)
        compare_tasks.run_mixtures(others, min(3, repetitions))
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


def _tasks_store(folder: Path) -> Store:
    return Store(folder / "compare-tasks.csv", compare_tasks.FIELDS, compare_tasks.KEY)


def write(folder: Path) -> str:
    """Tables and plots of all rows; the tables are returned."""
    rows = Store(folder / "compare.csv").rows()
    if not rows:
        raise SystemExit("nothing was run yet")
    text = report(rows)
    others = _tasks_store(folder).rows()
    if others:
        text += "\n" + compare_tasks.report(others)
    (folder / "compare.md").write_text(text)
    plot(rows, folder)
    return text


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a subset, under two minutes")
    parser.add_argument("--tables", action="store_true", help="no new runs")
    parser.add_argument("--large", action="store_true", help="1e6 x 100 float32")
    parser.add_argument("--only", default="", help="data sets with this in their names")
    parser.add_argument("--repetitions", type=int, help="at most: 5, or 2 with --quick")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--peers-python", type=Path, default=PEERS_PYTHON)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds for a peer's run")
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args()
    if given.large:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-c", LARGE], check=True, env=environment)
        return
    if not given.tables:
        one_thread_each("benchmarks.compare")
    folder = given.results or (QUICK_RESULTS if given.quick else RESULTS)
    folder.mkdir(exist_ok=True)
    if not given.tables:
        run(given, folder)
    print(write(folder))


if __name__ == "__main__":
    main()
