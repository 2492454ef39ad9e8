"""Accuracy of private k-means: tables of RSSE over data sets.

    python -m benchmarks accuracy                 the private table
    python -m benchmarks accuracy --noise-free    what the search itself leaves
    python -m benchmarks accuracy --others        more kinds of data
    python -m benchmarks accuracy --data records.parquet -k 10 --box -8 8

Every repetition has its own records, its own frequencies and its own noise. The width
of the clusters is told to nobody.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.datasets import NOISE_FREE, OTHERS, PRIVATE, DataSet, reference_error, squared_error
from privsketch._typing import Floats
from privsketch.tables.reading import read_blocks

NO_NOISE = 100.0  # the largest epsilon there is leaves next to none


def measure(
    data: DataSet,
    epsilon: float,
    delta: float,
    repetitions: int,
    *,
    bound: float = np.nan,
    features: int | None = None,
    **options: str,
) -> str:
    """One row: median and spread of RSSE, how many keep the bound, seconds."""
    ratios, sketching, learning = [], [], []
    dim = len(data.domain.half_widths)
    for seed in range(repetitions):
        records = data.make(np.random.default_rng([seed, 20190512]))
        design = ps.Design.plan(
            n_components=data.n_clusters,
            domain=data.domain,
            budget=ps.Budget(epsilon, delta),
            n_records=len(records),
            random_state=seed,
            n_features=None if features is None else features * data.n_clusters * dim,
            feature_map=options.get("feature_map", "fourier"),
            noise=options.get("noise"),
            frequencies=options.get("frequencies"),
        )
        start = time.perf_counter()
        sketch = ps.sketch(records, design)
        middle = time.perf_counter()
        model = ps.learn_kmeans(sketch, data.n_clusters, decoder=options.get("decoder", "joint"))
        learning.append(time.perf_counter() - middle)
        sketching.append(middle - start)
        plain = reference_error(records, data.n_clusters, seed)
        ratios.append(squared_error(records, model.centers) / plain)
    limit = bound if np.isfinite(bound) else 1.02
    kept = sum(ratio <= limit for ratio in ratios)
    told = f"{bound:6.3f}" if np.isfinite(bound) else "     -"
    return (
        f"{data.name:32} {epsilon:6g} {delta:6g} {design.n_features:6d} {told} "
        f"{np.median(ratios):8.4f} {max(ratios):8.3f} {kept:3d}/{repetitions:<2d}"
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
    parser = parser_of(__doc__)
    parser.add_argument("--noise-free", action="store_true", help="next to no noise")
    parser.add_argument("--others", action="store_true", help="more kinds of data")
    parser.add_argument("--data", type=Path, help="a Parquet file of your own")
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--box", type=float, nargs=2, default=(-1.0, 1.0))
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0])
    parser.add_argument("--delta", type=float, nargs="*", default=[1e-6, 0.0])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--noise", choices=["gaussian", "cube", "laplace"])
    parser.add_argument("--feature-map", dest="feature_map", choices=["fourier", "one-bit"])
    parser.add_argument("--frequencies", choices=["multi-scale", "structured"])
    parser.add_argument("--decoder", choices=["joint", "cl-ompr"])
    arguments = parser.parse_args()
    names = ("noise", "feature_map", "frequencies", "decoder")
    options = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    count = arguments.repetitions
    head = ("data", "eps", "delta", "m", "bound", "median", "worst", "kept", "sketch s", "learn s")
    print("{:32} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8}".format(*head))
    if arguments.noise_free:
        for data, features, bound in NOISE_FREE:
            row = measure(data, NO_NOISE, 1e-6, count, bound=bound, features=features, **options)
            print(row, flush=True)
    elif arguments.others or arguments.data:
        for data in [from_file(arguments)] if arguments.data else OTHERS:
            for epsilon in arguments.epsilon:
                for delta in arguments.delta:
                    print(measure(data, epsilon, delta, count, **options), flush=True)
    else:
        for data, epsilon, delta, bound in PRIVATE:
            print(measure(data, epsilon, delta, count, bound=bound, **options), flush=True)


if __name__ == "__main__":
    main()
