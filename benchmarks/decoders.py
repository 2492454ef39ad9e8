"""Time to learn clusters from a sketch, against the number of clusters, columns and features.

    python -m benchmarks decoders            the table of benchmarks/README.md
    python -m benchmarks decoders --epsilon 0.3

One core. Every row is a seed mixture of 1e5 records in a box, one sketch per repetition;
the first call of a process, which compiles, is not counted.
"""

from __future__ import annotations

import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.datasets import seed_mixture, squared_error

# Clusters, columns, features, bound in seconds.
ROWS: list[tuple[int, int, int, float]] = [
    (10, 10, 400, 0.035),
    (20, 20, 1600, 0.4),
    (64, 10, 2560, 1.2),
    (64, 16, 4096, 1.6),
    (160, 10, 6400, 2.4),
    (4, 2, 50, np.nan),
    (15, 2, 120, np.nan),
    (100, 2, 800, np.nan),
    (10, 10, 800, np.nan),
    (10, 10, 1600, np.nan),
    (10, 30, 1200, np.nan),
    (10, 100, 4000, np.nan),
    (200, 10, 8000, 3.0),
]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    head = ("k", "d", "m", "bound", "median", "worst", "misfit", "error")
    print("{:>5} {:>5} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7}".format(*head))
    for k, dim, n_features, bound in ROWS:
        seconds, misfits, errors = [], [], []
        half_width = 4 * 1.5 * k ** (1 / dim) + 4
        for seed in range(-1, arguments.repetitions):
            rng = np.random.default_rng([seed + 1, k, dim])
            records = seed_mixture(k, dim, 100_000)(rng)
            design = ps.Design.plan(
                n_components=k,
                domain=ps.Box(-half_width, half_width, dim=dim),
                budget=ps.Budget(arguments.epsilon, arguments.delta),
                n_features=n_features,
                random_state=seed + 1,
            )
            sketch = ps.sketch(records, design)
            start = time.perf_counter()
            model = ps.learn_kmeans(sketch, k)
            if seed < 0:
                continue
            seconds.append(time.perf_counter() - start)
            misfits.append(model.misfit or math.nan)
            # Squared error per record and column; it is 1 around the true means.
            errors.append(squared_error(records, model.centers) / (len(records) * dim))
        limit = f"{bound:6.3g}" if np.isfinite(bound) else "     -"
        print(
            f"{k:5} {dim:5} {n_features:6} {limit} {np.median(seconds):8.3f} {max(seconds):8.3f} "
            f"{np.median(misfits):7.2f} {np.median(errors):7.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
