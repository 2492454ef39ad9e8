"""Persons: how long it takes to keep one record of each, and what more records a person bring.

`time` writes a Parquet file of unsorted rows, ten of each person, and compares a sketch by persons
with one of all rows, in processes of their own. `records` compares errors of k-means centers for
several `max_records`, in the regime where noise dominates and where sampling does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import privsketch as ps

DIM, N_CLUSTERS = 10, 5
CHILD = """
import sys, time
import privsketch as ps
columns = [ps.Number(f"x{j}", 0, 100) for j in range(10)]
schema = ps.Schema(columns, person="person" if sys.argv[2] == "persons" else None)
design = ps.Design.plan(n_components=10, domain=schema, budget=ps.Budget(1.0, 1e-6),
                        n_features=1000, random_state=0)
start = time.perf_counter()
ps.sketch(sys.argv[1], design)
seconds = time.perf_counter() - start
from benchmarks.peers.protocol import peak
print(f"{sys.argv[2]:<9} {seconds:6.1f} s, peak memory {peak():.0f} MB", flush=True)
"""


def write_rows(path: Path, n_rows: int, rng: np.random.Generator) -> None:
    """Rows of ten numbers and a person, in no order, ten of each on average."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(DIM)]
    kinds = pa.schema([("person", pa.int64()), *((name, pa.float64()) for name in names)])
    with pq.ParquetWriter(path, kinds, compression="none", use_dictionary=False) as writer:
        for first in range(0, n_rows, 10**6):
            size = min(10**6, n_rows - first)
            columns = {name: rng.normal(50, 10, size) for name in names}
            whose = rng.integers(0, n_rows // 10, size)
            writer.write_table(pa.table({"person": whose, **columns}, schema=kinds))


def measure_time(n_rows: int, folder: str | None) -> None:
    """Compare a sketch of all rows with one of a single record of each person."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "rows.parquet"
        write_rows(path, n_rows, np.random.default_rng(0))
        print(f"{n_rows:g} rows, {path.stat().st_size / 1e9:.2f} GB of Parquet, unsorted")
        for mode in ["rows", "persons"] * 2:
            subprocess.run([sys.executable, "-c", CHILD, str(path), mode], check=True)


def measure_records(n_persons: int, epsilon: float, n_tries: int) -> None:
    """Squared errors of the centers, by how many records of a person count.

    Persons have a center of their own, and their rows scatter about it: eight rows of one say
    more of the person, not of the clusters.
    """
    columns = [ps.Number(f"x{j}", -4, 4) for j in range(4)]
    for most in (1, 2, 4, 8):
        schema = ps.Schema(columns, person="person", max_records=most)
        errors = []
        for seed in range(n_tries):
            rng = np.random.default_rng(seed)
            centers = rng.uniform(-3, 3, (N_CLUSTERS, 4))
            person = centers[rng.integers(0, N_CLUSTERS, n_persons)]
            person = person + rng.normal(0, 0.3, person.shape)
            rows = np.repeat(person, 8, axis=0) + rng.normal(0, 0.3, (8 * n_persons, 4))
            errors.append(_error(schema, rows, centers, epsilon, n_persons * most, seed))
        print(
            f"{n_persons:>7} persons, epsilon {epsilon:g}: {most} records each, root mean square "
            f"error of centers {np.sqrt(np.median(errors)):.4f}",
            flush=True,
        )


def _error(
    schema: ps.Schema, rows: np.ndarray, centers: np.ndarray, epsilon: float, n: float, seed: int
) -> float:
    import pandas as pd  # type: ignore[import-untyped]
    from scipy.optimize import linear_sum_assignment

    frame = pd.DataFrame(dict(zip(schema.names, rows.T, strict=True)))
    frame["person"] = np.repeat(np.arange(len(rows) // 8), 8)
    design = ps.Design.plan(
        domain=schema,
        n_components=N_CLUSTERS,
        budget=ps.Budget(epsilon, 1e-6),
        n_records=n,
        random_state=seed,
    )
    table = ps.learn_kmeans(ps.sketch(frame, design), N_CLUSTERS).table()
    found = table[list(schema.names)].to_numpy()
    distances = np.square(found[:, np.newaxis] - centers).sum(axis=2)
    return float(distances[linear_sum_assignment(distances)].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["time", "records"])
    parser.add_argument("--rows", type=float, default=5e7)
    parser.add_argument("--folder", help="for the file of `time`, 4.4 GB for 5e7 rows")
    parser.add_argument("--tries", type=int, default=20)
    options = parser.parse_args()
    if options.what == "time":
        measure_time(int(options.rows), options.folder)
        return
    for n_persons, epsilon in ((1000, 0.2), (2000, 0.3), (5000, 10.0), (20_000, 10.0)):
        measure_records(n_persons, epsilon, options.tries)


if __name__ == "__main__":
    main()
