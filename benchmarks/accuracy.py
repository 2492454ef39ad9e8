"""Accuracy of private k-means: tables of RSSE over data sets.

    python -m benchmarks accuracy                 the private table
    python -m benchmarks accuracy --noise-free    what the search itself leaves
    python -m benchmarks accuracy --others        more kinds of data
    python -m benchmarks accuracy --widths        clusters far tighter or wider than expected
    python -m benchmarks accuracy --paired        planned scales against a 16-fold range
    python -m benchmarks accuracy --data records.parquet -k 10 --box -8 8

Every repetition has its own records, its own frequencies and its own noise. The width
of the clusters is told to nobody.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.datasets import (
    NOISE_FREE,
    OTHERS,
    PRIVATE,
    WIDTHS,
    DataSet,
    reference_error,
    squared_error,
)
from privsketch._base.types import Floats
from privsketch.tables.reading import read_blocks
from privsketch.tables.table import Table

PAIRED_RECORDS = 100_000  # records that pairs are judged by
LARGE = 400  # coordinates of centers, from which on a third of the pairs is enough
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


def sixteenfold(domain: ps.Box | ps.Ball, n_clusters: int) -> tuple[float, float]:
    """Return the range of scales that designs had before 0.2.0, without a tail."""
    dim, high = len(domain.half_widths), domain.spread / 2
    return high / max(16.0, 5 * n_clusters ** (1 / dim) if dim <= 2 else 0.0), high


def paired(
    data: DataSet, epsilon: float, delta: float, repetitions: int, features: int | None = None
) -> tuple[Floats, Floats, str]:
    """Excess of both laws, in percent, (2, repetitions), seconds, and a row about them.

    Over the best solution known for each data set (scikit-learn's, or Lloyd's algorithm from
    either centers), so that a start that k-means++ missed does not hide an error.
    """
    found, seconds = np.empty((2, repetitions)), np.empty((2, repetitions))
    k, dim = data.n_clusters, len(data.domain.half_widths)
    for seed in range(repetitions):
        records = data.make(np.random.default_rng([seed, 20261117]))
        some = records[:PAIRED_RECORDS]
        starts = [KMeans(k, n_init=3, random_state=seed).fit(some[:20_000]).cluster_centers_]
        for law, scale in enumerate((sixteenfold(data.domain, k), None)):
            design = ps.Design.plan(
                n_components=k,
                domain=data.domain,
                budget=ps.Budget(epsilon, delta),
                n_records=len(records),
                random_state=seed,
                n_features=None if features is None else features * k * dim,
                feature_map="fourier",
                frequency_scale=scale,
            )
            sketch = ps.sketch(records, design)
            start = time.perf_counter()
            starts.append(ps.learn_kmeans(sketch, k).centers)
            seconds[law, seed] = time.perf_counter() - start
            found[law, seed] = squared_error(some, starts[-1])
        best = min(
            float(KMeans(k, init=each, n_init=1, max_iter=20).fit(some).inertia_) for each in starts
        )
        found[:, seed] = 100 * (found[:, seed] / best - 1)
    mean, error = found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(repetitions)
    change = found[1] - found[0]
    chosen = design.frequencies
    return (
        found,
        seconds,
        f"{data.name:32} {epsilon:6g} {delta:6g} {design.n_features:6d} "
        f"{chosen.scales[1] / chosen.scales[0]:6.0f} {'tail' if chosen.tail else '':4} "
        f"{mean[0]:8.3f} +- {error[0]:<6.3f} {mean[1]:8.3f} +- {error[1]:<6.3f} "
        f"{change.mean():8.3f} +- {change.std(ddof=1) / np.sqrt(repetitions):<6.3f} "
        f"{np.median(found[0]):8.3f} {np.median(found[1]):8.3f} "
        f"{np.median(seconds[0]):6.2f} {np.median(seconds[1]):6.2f}",
    )


def compare_laws(arguments: argparse.Namespace) -> None:
    """Both laws on the same records, on all tables."""
    rows: list[tuple[DataSet, float, float, int | None]]
    rows = [(*row[:3], None) for row in PRIVATE + WIDTHS]
    rows += [(data, 1.0, delta, None) for data in OTHERS for delta in (1e-6, 0.0)]
    if arguments.noise_free:
        rows = [(data, NO_NOISE, 1e-6, features) for data, features, _ in NOISE_FREE]
    rows = [row for row in rows if arguments.only in row[0].name]
    head = ("data", "eps", "delta", "m", "range", "", "16-fold", "planned", "change")
    print("{:32} {:>6} {:>6} {:>6} {:>6} {:4} {:>18} {:>18} {:>18}  medians, s".format(*head))
    total = np.zeros(2)
    for data, epsilon, delta, features in rows:
        large = data.n_clusters * len(data.domain.half_widths) >= LARGE
        count = max(2, arguments.repetitions // 3) if large else arguments.repetitions
        found, _, row = paired(data, epsilon, delta, count, features)
        total += found.mean(axis=1)
        print(row, flush=True)
    print(f"sum of the excesses: {total[0]:.2f} %, {total[1]:.2f} %")


def from_file(arguments: argparse.Namespace) -> DataSet:
    """Return a data set of the user's own, the same records in every repetition."""
    low, high = arguments.box
    import pyarrow.parquet as pq

    dim = len(pq.read_schema(arguments.data).names)
    table = Table(arguments.data)
    records: Floats = np.concatenate(list(read_blocks(table, table.selection(dim))))
    return DataSet(arguments.data.name, arguments.k, ps.Box(low, high, dim=dim), lambda _: records)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--noise-free", action="store_true", help="next to no noise")
    parser.add_argument("--others", action="store_true", help="more kinds of data")
    parser.add_argument("--widths", action="store_true", help="clusters of other widths")
    parser.add_argument("--paired", action="store_true", help="planned scales against 16-fold")
    parser.add_argument("--only", default="", help="data sets whose name has this, with --paired")
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
    if arguments.paired:
        compare_laws(arguments)
        return
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
        for data, epsilon, delta, bound in WIDTHS if arguments.widths else PRIVATE:
            print(measure(data, epsilon, delta, count, bound=bound, **options), flush=True)


if __name__ == "__main__":
    main()
