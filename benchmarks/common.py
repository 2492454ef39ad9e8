"""What benchmarks share: options, times, tables, and files of records too large for memory."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of options, described by the first line of the benchmark's docstring."""
    return argparse.ArgumentParser(description=(description or "").partition("\n")[0])


def one_thread_each(module: str) -> None:
    """Start a benchmark again if its libraries have several threads: its processes share the cores.

    Libraries read the number when they start.
    """
    if any(os.environ.get(name) != "1" for name in THREADS):
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **THREADS})


def least_seconds(work: Callable[[], object], repetitions: int = 5) -> float:
    """Return the seconds of the fastest of several runs."""
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    rows = [f"| {' | '.join(cells)} |" for cells in (headings, *lines)]
    return "\n".join([rows[0], "|---" * len(headings) + "|", *rows[1:]])


def write_records(
    path: Path,
    dim: int,
    group_sizes: Iterable[int],
    rng: np.random.Generator,
    dtype: type[np.float32 | np.float64] = np.float64,
    **options: Any,
) -> None:
    """Write a Parquet file of normal records, row group by row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(dim)]
    schema = pa.schema([(name, pa.from_numpy_dtype(dtype)) for name in names])
    with pq.ParquetWriter(path, schema, **options) as writer:
        for size in group_sizes:
            columns = rng.standard_normal((dim, size), dtype=dtype)
            table = pa.table(dict(zip(names, columns, strict=True)), schema=schema)
            writer.write_table(table, row_group_size=size)
