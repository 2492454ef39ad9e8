"""Release of projected records: peak memory of the command, and speed against plain NumPy.

Memory: `privsketch release` on Parquet files of 100 float32 columns, in a process of its own,
with row groups of a million rows (pyarrow's default) and of 64 thousand.
Speed: the release of a table in memory, all cores, against a float32 product plus NumPy's
Laplace noise of the same shape; and the noise alone. Nanoseconds per released number.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import privsketch as ps
from benchmarks.common import write_records
from privsketch._base.threads import in_threads
from privsketch.noise.samplers import (
    add_discrete_gaussian,
    add_discrete_laplace,
    discrete_gaussian,
    discrete_laplace,
)

DIM = 100
LIMIT_MB = 600
FILES = ((1_000_000, 2**20), (10_000_000, 2**20), (10_000_000, 2**16))
N_ROWS = 200_000

CHILD = """
import sys, time
from privsketch.cli.main import main
start = time.perf_counter()
main(sys.argv[1:], standalone_mode=False)
seconds = time.perf_counter() - start
from benchmarks.peers.protocol import peak
print(peak(), seconds)
"""


def memory(n_rows: int, rows_per_group: int) -> None:
    """Peak memory and seconds of the command for one file, which is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        needed = 8 * DIM * n_rows
        if shutil.disk_usage(folder).free < needed:
            print(f"{n_rows:9d} rows  skipped: {needed / 1e9:.0f} GB of free disk needed")
            return
        path = Path(folder) / "records.parquet"
        sizes = (min(rows_per_group, n_rows - i) for i in range(0, n_rows, rows_per_group))
        # Normal records: most lie in a ball of radius 12.
        write_records(path, DIM, sizes, np.random.default_rng(0), np.float32)
        options = ["--epsilon", "4", "--components", "10", "--protect", "row", "--ball", "12"]
        output = Path(folder) / "released.parquet"
        command = ["release", str(path), *options, "-o", str(output)]
        told = subprocess.run(
            [sys.executable, "-c", CHILD, *command], check=True, capture_output=True, text=True
        )
        peak, seconds = map(float, told.stdout.splitlines()[-1].split())
        print(
            f"{n_rows:9d} rows in groups of {rows_per_group:7d}, {path.stat().st_size / 1e9:.2f} "
            f"GB: peak {peak:.0f} MB ({'below' if peak < LIMIT_MB else 'ABOVE'} {LIMIT_MB}), "
            f"{seconds:.1f} s",
            flush=True,
        )


def in_turns(ways: dict[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """Least seconds of each: the run least disturbed by others."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(repetitions):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def speed(n_components: int, noise: str) -> None:
    """One line: nanoseconds per released number of every way, and the ratio."""
    rng = np.random.default_rng(0)
    records = rng.standard_normal((N_ROWS, DIM), dtype=np.float32)
    delta = 1e-6 if noise == "gaussian" else 0.0
    projection = ps.Projection.draw(
        ps.Ball(dim=DIM, radius=12.0),
        n_components,
        epsilon=4.0,
        delta=delta,
        noise=noise,
        random_state=1,
    )
    matrix = projection.matrix.values.astype(np.float32)
    law, shape = projection.noise.law, (N_ROWS, n_components)
    size = N_ROWS * n_components
    scale = law.scale * projection.unit
    exact = discrete_laplace if noise == "laplace" else discrete_gaussian

    def plain() -> object:
        drawn = rng.laplace(0, scale, shape) if noise == "laplace" else rng.normal(0, scale, shape)
        return records @ matrix + drawn

    def ours() -> None:
        for _ in projection.releases([records]):
            pass

    def noise_in_threads() -> None:
        pieces = np.split(np.empty(size, dtype=np.int8), range(2**17, size, 2**17))
        for _ in in_threads(lambda piece: exact(len(piece), law.scale), pieces, None):
            pass

    def opendp() -> None:
        zeros = np.zeros(size // 1000, dtype=np.int64)
        if noise == "laplace":
            add_discrete_laplace(zeros, law.scale, int(law.sensitivity), law.epsilon)
        else:
            # The least rho that this scale certifies, and a little more.
            rho = law.sensitivity**2 / (2 * law.scale**2) * (1 + 1e-9)
            add_discrete_gaussian(zeros, law.scale, law.sensitivity, rho)

    ways: dict[str, Callable[[], object]] = {
        "release": ours,
        "NumPy": plain,
        "NumPy product alone": lambda: records @ matrix,
        "exact noise alone": noise_in_threads,
        "on one core": lambda: exact(size, law.scale),
    }
    seconds = in_turns(ways, 7)
    seconds["OpenDP noise alone"] = 1000 * in_turns({"opendp": opendp}, 3)["opendp"]
    words = ", ".join(f"{name} {value * 1e9 / size:.1f}" for name, value in seconds.items())
    ratio = seconds["release"] / seconds["NumPy"]
    print(f"k = {n_components}, {noise}: {words} | {ratio:.2f} x NumPy", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed-only", action="store_true", help="without the large files")
    arguments = parser.parse_args()
    print(f"{N_ROWS} rows, d = {DIM}; ns per released number")
    for n_components in (10, 20):
        for noise in ("laplace", "gaussian"):
            speed(n_components, noise)
    if not arguments.speed_only:
        print("privsketch release, whole process")
        for n_rows, rows_per_group in FILES:
            memory(n_rows, rows_per_group)


if __name__ == "__main__":
    main()
