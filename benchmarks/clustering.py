"""Methods of private k-means side by side: RSSE of every method on every cell.

    python benchmarks/clustering.py            run what is missing, then print the tables
    python benchmarks/clustering.py --tables   print the tables of what was run
    python benchmarks/clustering.py --large    time and memory of the pipeline, 1e6 x 100 float32

Results are kept in benchmarks/results/clustering.csv, a row for each run; a run that has its row
is not made again. Every repetition has its own records (but for the images), public randomness
and noise. All methods see the same public facts: domain, number of clusters, and a number of
records. "auto" is run like the others; as it is one of them by the law of what it releases, both
medians are over the runs of both. Methods that cannot serve a cell in reasonable time or at all
are left out: a sketch of 100 columns or more, a grid of more cells than fit. Partition trees of
many columns have two repetitions.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from datasets import CELLS, FASHION, DataSet, reference_error, squared_error

import privsketch as ps

RESULTS = Path(__file__).parent / "results" / "clustering.csv"
FIELDS = ("data", "epsilon", "delta", "method", "seed", "rsse", "seconds", "chosen")
METHODS = ("auto", "pipeline", "sketch", "partition-tree", "lloyd", "lloyd laplace", "grid")
MOST_SKETCHED = 100  # columns
TREES = 2  # repetitions of partition trees in many columns, which take a minute each

CHILD = """
import sys, time
import numpy as np
import privsketch as ps
rng = np.random.default_rng(0)
centers = 0.9 * rng.normal(size=(20, 100)) / 10
records = np.empty((1_000_000, 100), dtype=np.float32)
for first in range(0, len(records), 100_000):
    label = rng.integers(20, size=100_000)
    records[first : first + 100_000] = centers[label] + rng.normal(size=(100_000, 100)) / 80

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) / 1024

before, start = peak(), time.perf_counter()
model = ps.PrivateKMeans(20, method="pipeline", epsilon=1.0, delta=1e-6, n_records=1e6,
                         domain=ps.Ball(100, 1.5), random_state=0).fit(records)
seconds = time.perf_counter() - start
print(f"{seconds:.1f} s, {peak() - before:.0f} MB beyond the {before:.0f} MB of making the data")
"""


def kept() -> list[dict[str, str]]:
    """Rows of earlier runs."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def run(repetitions: int, only: str) -> None:
    """Every method on every cell, repetition by repetition."""
    done = {tuple(row[field] for field in FIELDS[:5]) for row in kept()}
    is_new = not RESULTS.exists()
    for data, budgets in CELLS:
        if only not in data.name or ("Fashion" in data.name and not FASHION.exists()):
            continue
        dim = len(data.domain.half_widths)
        for seed in range(repetitions):
            missing = [
                (epsilon, delta, method)
                for epsilon, delta in budgets
                for method in METHODS
                if not (method == "partition-tree" and seed >= TREES and dim > MOST_SKETCHED // 2)
                and (data.name, str(epsilon), str(delta), method, str(seed)) not in done
            ]
            if not missing:
                continue
            records = data.make(np.random.default_rng([seed, 20170612]))
            reference = reference_error(records, data.n_clusters, seed)
            for epsilon, delta, method in missing:
                result = measured(data, records, epsilon, delta, method, seed)
                if result is None:
                    continue
                centers, seconds, chosen = result
                ratio = squared_error(records, centers) / reference
                with RESULTS.open("a", newline="") as file:
                    rows = csv.writer(file, lineterminator="\n")
                    if is_new:
                        rows.writerow(FIELDS)
                        is_new = False
                    facts = (data.name, epsilon, delta, method, seed)
                    rows.writerow([*facts, f"{ratio:.5g}", f"{seconds:.3g}", chosen])
                print(f"{data.name} {epsilon:g} {delta:g} {method} {seed}: {ratio:.4f}", flush=True)


def measured(
    data: DataSet,
    records: np.ndarray,
    epsilon: float,
    delta: float,
    method: str,
    seed: int,
) -> tuple[np.ndarray, float, str] | None:
    """Centres, seconds and the method used; None where a method cannot serve."""
    noise = None
    if method == "lloyd laplace":
        method, noise = "lloyd", "laplace"
        if delta > 0:
            return None
    if method == "sketch" and records.shape[1] >= MOST_SKETCHED:
        return None
    fit = ps.PrivateKMeans(
        data.n_clusters,
        method=method,
        epsilon=epsilon,
        delta=delta,
        domain=data.domain,
        n_records=len(records),
        random_state=seed,
        noise=noise,
    )
    start = time.perf_counter()
    try:
        fit.fit(records)
    except ps.ParameterError as error:
        print(f"{data.name} {method}: {error}", file=sys.stderr)
        return None
    return fit.cluster_centers_, time.perf_counter() - start, fit.method_


def tables() -> None:
    """Medians of RSSE, and how far auto is from the best."""
    rows = kept()
    print("| data | epsilon | delta | " + " | ".join(METHODS) + " | auto chose | over the best |")
    print("|---" * (len(METHODS) + 5) + "|")
    for data, budgets in CELLS:
        for epsilon, delta in budgets:
            cell = [
                row
                for row in rows
                if row["data"] == data.name
                and (float(row["epsilon"]), float(row["delta"])) == (epsilon, delta)
            ]
            if not cell:
                continue
            chosen = {row["chosen"] for row in cell if row["method"] == "auto"}
            medians = {}
            for method in METHODS:
                # By the law of what it releases auto is the method that it chose.
                names = {"auto", *chosen} if method in {"auto", *chosen} else {method}
                found = [float(row["rsse"]) for row in cell if row["method"] in names]
                if found:
                    medians[method] = float(np.median(found))
            best = min(medians.values())
            over = f"{100 * (medians['auto'] / best - 1):.1f} %" if "auto" in medians else ""
            texts = [f"{medians[m]:.4g}" if m in medians else "" for m in METHODS]
            print(
                f"| {data.name} | {epsilon:g} | {delta:g} | "
                + " | ".join(texts)
                + f" | {', '.join(sorted(chosen))} | {over} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", action="store_true", help="no new runs")
    parser.add_argument("--large", action="store_true", help="1e6 x 100 float32")
    parser.add_argument("--only", default="", help="data sets with this in their names")
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    if given.large:
        subprocess.run([sys.executable, "-c", CHILD], check=True)
        return
    if not given.tables:
        run(given.repetitions, given.only)
    tables()


if __name__ == "__main__":
    main()
