"""One holder on several processes: times, and the same sums bit for bit, with a worker killed too.

Ten million records of ten columns, in Parquet files of several row groups. Sums are compared
before noise, through the private seam that tests use. Threads, processes, Dask; Spark where there
is Java, whose passes of a pipeline and whose second moments are compared as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import privsketch as ps
from benchmarks.common import write_records
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline.plan import PipelinePlan
from privsketch.clustering.run import clustered
from privsketch.noise.mechanism import _insecure_sampler
from privsketch.sketching.engines.spark import spark_records

Compare = Callable[[str, list[Any], tuple[list[Any], float]], None]
DIM, FILES, GROUPS, ROWS_PER_GROUP, WORKERS = 10, 4, 5, 500_000, 2


def write_files(folder: Path) -> list[Path]:
    """Files of synthetic records, float64."""
    rng = np.random.default_rng(0)
    paths = [folder / f"records-{i}.parquet" for i in range(FILES)]
    for path in paths:
        write_records(path, DIM, [ROWS_PER_GROUP] * GROUPS, rng, use_dictionary=False)
    return paths


def timed_sums(data: Any, design: ps.Design, **options: Any) -> tuple[list[int], float]:
    """Return the sums without noise, and seconds."""
    start = time.perf_counter()
    exact = design.without_noise()
    values: list[int] = ps.sketch(data, exact, insecure=True, **options).values.tolist()
    return values, time.perf_counter() - start


def kill_after(n_parts: int, pid: int) -> Callable[[int], None]:
    """Return a progress function that kills a process after a number of parts."""
    done = 0

    def progress(_: int) -> None:
        nonlocal done
        done += 1
        if done == n_parts:
            os.kill(pid, signal.SIGKILL)

    return progress


def killing(folder: Path, at: int) -> Callable[[Any], Iterator[Any]]:
    """Return a function that passes blocks on, and kills its process once, after some blocks."""
    seen = folder / "blocks"

    def change(block: Any) -> Iterator[Any]:
        with seen.open("a") as stream:
            stream.write("x")
        if seen.stat().st_size == at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield block

    return change


def counted(batches: Iterator[Any]) -> Iterator[Any]:
    """How many rows a partition has: what Spark takes to bring them to its workers."""
    import pyarrow as pa

    yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})


def pipeline_of(data: Any, columns: list[str]) -> tuple[list[Any], float]:
    """Centers of a pipeline of five passes without noise, and seconds."""
    names = ["sketch", "radius 0", "round 0", "radius 1", "round 1"]
    weights = tuple((name, Fraction(1, len(names))) for name in names)
    start = time.perf_counter()
    with _insecure_sampler(lambda values, law: (values.copy(), law.scale)):
        model = clustered(
            pipeline.cluster,
            ps.Table(data, columns=columns),
            5,
            domain=ps.Box(-8, 8, dim=DIM),
            budget=ps.Budget(1.0, 1e-6),
            n_records=1e7,
            random_state=0,
            plan=PipelinePlan("columns", DIM, ("plain", "plain"), weights, 0.1),
        )
    return [model.centers.tolist()], time.perf_counter() - start


def on_spark(paths: list[Path], folder: Path, design: ps.Design, compare: Compare) -> None:
    """Sketches, second moments and a pipeline on Spark; `compare` tells and notes."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    start = time.perf_counter()
    builder = SparkSession.builder.master(f"local[{WORKERS},4]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    print(f"{'Spark, its session':<40}{time.perf_counter() - start:7.1f} s", flush=True)
    timed_sums(session.createDataFrame([[0.0] * DIM] * 8).repartition(4), design)  # imports
    frame = session.read.parquet(*map(str, paths))
    start = time.perf_counter()
    frame.mapInArrow(counted, "n long").collect()
    seconds = time.perf_counter() - start
    print(f"{'Spark alone: rows to Python, counted':<40}{seconds:7.1f} s", flush=True)
    expected = timed_sums(paths, design, engine=ps.engines.Threads(WORKERS))[0]
    compare("Spark, paths", expected, timed_sums(paths, design, engine="spark"))
    compare("Spark, DataFrame", expected, timed_sums(frame, design))
    many = frame.repartition(600)
    compare("Spark, DataFrame, 600 partitions", expected, timed_sums(many, design))
    table = ps.Table(frame)
    with spark_records(table, table.selection(DIM)) as records:
        deadly = records.mapped(killing(folder, 50))
        compare("Spark, a worker killed midway", expected, timed_sums(deadly, design))
    if (folder / "blocks").stat().st_size < 60:
        sys.exit("no worker was killed")
    moments = ps.Design.plan(
        task="pca",
        n_components=3,
        domain=ps.Ball(DIM, 8.0),
        budget=ps.Budget(1.0, 1e-6),
        random_state=0,
    )
    here = timed_sums(paths, moments, engine=ps.engines.Threads(WORKERS))
    compare("PCA, threads", here[0], here)
    compare("PCA, Spark", here[0], timed_sums(frame, moments))
    names = frame.columns
    here = pipeline_of([*paths], names)
    compare("pipeline of five passes, threads", here[0], here)
    compare("pipeline of five passes, Spark", here[0], pipeline_of(frame, names))
    session.stop()


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
        expected, seconds = timed_sums(paths, design, engine=ps.engines.Threads(1))
        print(f"{'1 thread':<40}{seconds:7.1f} s", flush=True)

        def tell(name: str, wanted: list[Any], found: tuple[list[Any], float]) -> None:
            nonlocal is_same
            is_same = is_same and found[0] == wanted
            verdict = "the same sums" if found[0] == wanted else "OTHER SUMS"
            print(f"{name:<40}{found[1]:7.1f} s   {verdict}", flush=True)

        def compare(name: str, data: Any, **options: Any) -> None:
            tell(name, expected, timed_sums(data, design, **options))

        compare(f"{WORKERS} threads", paths, engine=ps.engines.Threads(WORKERS))
        compare(f"pool of {WORKERS} processes", paths, engine=ps.engines.Pool(WORKERS))
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
        if shutil.which("java") is None:
            print("no Java, and so no Spark")
        else:
            on_spark(paths, Path(folder), design, tell)
    if not is_same:
        sys.exit("engines do not agree")


if __name__ == "__main__":
    main()
