"""Peak memory while sketching a Parquet file of about 1.6 GB, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import write_records

DIM, ROWS_PER_GROUP, GROUPS = 10, 1_000_000, 20

CHILD = """
import sys, time
import privsketch as ps
design = ps.Design.plan(n_components=10, domain=ps.Box(-8, 8, dim=10),
                        budget=ps.Budget(1.0, 1e-6), random_state=0)
start = time.perf_counter()
ps.sketch(sys.argv[1], design)
seconds = time.perf_counter() - start
from benchmarks.peers.protocol import peak
print(f"peak memory {peak():.0f} MB, {seconds:.1f} s")
"""


def main() -> None:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_records(path, DIM, [ROWS_PER_GROUP] * GROUPS, rng, use_dictionary=False)
        print(f"{path.stat().st_size / 1e9:.2f} GB of Parquet, {GROUPS * ROWS_PER_GROUP} records")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True)
        print(f"with start-up {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
