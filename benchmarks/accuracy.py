"""Accuracy of private k-means: one table of median RSSE over data sets.

    python benchmarks/accuracy.py                 the acceptance table
    python benchmarks/accuracy.py --others        more kinds of data
    python benchmarks/accuracy.py --data records.parquet -k 10 --box -8 8

Every repetition has its own records, its own frequencies and its own noise. The width
of the clusters is told to nobody.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from datasets import ACCEPTANCE, OTHERS, DataSet, Floats, reference_error, squared_error

import privsketch as ps
from privsketch.readers import read_blocks

S10, S4, G15 = ACCEPTANCE
# Data set, epsilon, delta, bound on the median RSSE.
ROWS: list[tuple[str, float, float, float]] = [
    (S10, 0.1, 1e-6, 1.02),
    (S10, 1.0, 0.0, 1.02),
    (S4, 1.0, 1e-6, 1.02),
    (S4, 1.0, 0.0, 1.02),
    (G15, 1.0, 1e-6, 1.05),
]


def measure(data: DataSet, epsilon: float, delta: float, repetitions: int, **options: str) -> str:
    """One row: median and spread of RSSE, and seconds to sketch and to learn."""
    ratios, sketching, learning = [], [], []
    for seed in range(repetitions):
        records = data.make(np.random.default_rng([seed, 20190512]))
        design = ps.Design.plan(
            n_components=data.n_clusters,
            domain=data.domain,
            budget=ps.Budget(epsilon, delta),
            random_state=seed,
            feature_map=options.get("feature_map", "fourier"),
            noise=options.get("noise"),
        )
        start = time.perf_counter()
        sketch = ps.sketch(records, design)
        middle = time.perf_counter()
        model = ps.learn_kmeans(sketch, data.n_clusters, decoder=options.get("decoder", "joint"))
        learning.append(time.perf_counter() - middle)
        sketching.append(middle - start)
        plain = reference_error(records, data.n_clusters, seed)
        ratios.append(squared_error(records, model.centers) / plain)
    close = sum(ratio <= 1.02 for ratio in ratios)
    return (
        f"{np.median(ratios):8.4f} {max(ratios):8.3f} {close:3d}/{repetitions:<2d}"
        f" {np.median(sketching):8.2f} {np.median(learning):8.2f}"
    )


def from_file(arguments: argparse.Namespace) -> DataSet:
    """A data set of the user's own, the same records in every repetition."""
    low, high = arguments.box
    import pyarrow.parquet as pq

    dim = len(pq.read_schema(arguments.data).names)
    records: Floats = np.concatenate(list(read_blocks(arguments.data, dim)))
    return DataSet(arguments.data.name, arguments.k, ps.Box(low, high, dim=dim), lambda _: records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--others", action="store_true", help="more kinds of data")
    parser.add_argument("--data", type=Path, help="a Parquet file of your own")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--box", type=float, nargs=2, default=(-1.0, 1.0))
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0])
    parser.add_argument("--delta", type=float, nargs="*", default=[1e-6, 0.0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--noise", choices=["gaussian", "cube", "laplace"])
    parser.add_argument("--feature-map", dest="feature_map", choices=["fourier", "one-bit"])
    parser.add_argument("--decoder", choices=["joint", "cl-ompr"])
    arguments = parser.parse_args()
    names = ("noise", "feature_map", "decoder")
    options = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    rows = [(ACCEPTANCE[name], epsilon, delta, bound) for name, epsilon, delta, bound in ROWS]
    if arguments.others or arguments.data:
        sets = [from_file(arguments)] if arguments.data else list(OTHERS.values())
        rows = [
            (d, e, delta, np.nan)
            for d in sets
            for e in arguments.epsilon
            for delta in arguments.delta
        ]
    head = ("data", "eps", "delta", "bound", "median", "worst", "<=1.02", "sketch s", "learn s")
    print("{:32} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8}".format(*head))
    for data, epsilon, delta, bound in rows:
        result = measure(data, epsilon, delta, arguments.repetitions, **options)
        limit = f"{bound:6.2f}" if np.isfinite(bound) else "     -"
        print(f"{data.name:32} {epsilon:6g} {delta:6g} {limit} {result}", flush=True)


if __name__ == "__main__":
    main()
