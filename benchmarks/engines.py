"""One holder on several processes: times, and the same sums bit for bit, with a worker killed too.

Ten million records of ten columns, in Parquet files of several row groups. Sums are compared
before noise, through the private seam that tests use.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.common import write_records
from privsketch.noise.mechanism import _insecure_sampler

DIM, FILES, GROUPS, ROWS_PER_GROUP, WORKERS = 10, 4, 5, 500_000, 2


def write_files(folder: Path) -> list[Path]:
    """Files of synthetic records, float64."""
    rng = np.random.default_rng(0)
    paths = [folder / f"records-{i}.parquet" for i in range(FILES)]
    for path in paths:
        write_records(path, DIM, [ROWS_PER_GROUP] * GROUPS, rng, use_dictionary=False)
    return paths


def timed_sums(data: Any, design: ps.Design, **options: Any) -> tuple[list[int], float]:
    """What would be released without noise, and seconds."""
    start = time.perf_counter()
    with _insecure_sampler(lambda values, law: (values.copy(), law.scale)):
        values: list[int] = ps.sketch(data, design, **options).values.tolist()
    return values, time.perf_counter() - start


def kill_after(n_parts: int, pid: int) -> Callable[[int], None]:
    """A progress function that kills a process when so many parts are done."""
    done = 0

    def progress(_: int) -> None:
        nonlocal done
        done += 1
        if done == n_parts:
            os.kill(pid, signal.SIGKILL)

    return progress


def main() -> None:
    import dask.array as da
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    design = ps.Design.plan(
        n_components=10,
        domain=ps.Box(-8, 8, dim=DIM),
        budget=ps.Budget(1.0, 1e-6),
        n_features=1024,
        random_state=0,
    )
    is_same = True
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        size = sum(path.stat().st_size for path in paths)
        n_records = FILES * GROUPS * ROWS_PER_GROUP
        print(f"{n_records:.0e} records, {size / 1e9:.2f} GB in {FILES} files", flush=True)
        timed_sums(np.zeros((1, DIM)), design)  # compile
        expected, seconds = timed_sums(paths, design, n_threads=1)
        print(f"{'1 thread':<40}{seconds:7.1f} s", flush=True)

        def compare(name: str, data: Any, **options: Any) -> None:
            nonlocal is_same
            sums, seconds = timed_sums(data, design, **options)
            is_same = is_same and sums == expected
            verdict = "the same sums" if sums == expected else "OTHER SUMS"
            print(f"{name:<40}{seconds:7.1f} s   {verdict}", flush=True)

        compare(f"{WORKERS} threads", paths, n_threads=WORKERS)
        compare(f"pool of {WORKERS} processes", paths, engine="pool", n_workers=WORKERS)
        with (
            LocalCluster(
                n_workers=WORKERS,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs="CRITICAL",
            ) as cluster,
            Client(cluster) as client,
        ):
            timed_sums(da.zeros((WORKERS, DIM), chunks=(1, DIM)), design)  # imports on workers
            compare("Dask, paths", paths, engine="dask")
            compare("Dask, DataFrame", dd.read_parquet(paths))
            victim = min(client.run(os.getpid).values())
            compare(
                "Dask, paths, a worker killed midway",
                paths,
                engine="dask",
                progress=kill_after(8, victim),
            )
            client.wait_for_workers(WORKERS, timeout=60)
            if victim in client.run(os.getpid).values():
                sys.exit("no worker was killed")
    if not is_same:
        sys.exit("engines do not agree")


if __name__ == "__main__":
    main()
