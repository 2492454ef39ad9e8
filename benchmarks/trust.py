"""Whether a model may be believed: intervals that cover, numbers of clusters that are right.

    python -m benchmarks trust                 both tables of benchmarks/README.md
    python -m benchmarks trust --ratio         foretold k-means costs; see `ratios`

Coverage: how often center +- 1.645 standard errors contains the true coordinate, over simulated
tables and releases; 0.90 is ideal. True are the k-means centers of the population (of 400,000
fresh records), which are what a model estimates; where clusters overlap, as seed mixtures do in
two dimensions, they are not the means of the clusters, whose coverage is the second number.

Number of clusters: data sets of k = 3 to 12 well separated clusters (centers at least six widths
apart), sketches planned for 16, and what `n_clusters="auto"` with at most 20 answers.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.ratios import print_tables as ratio_tables
from privsketch._base.types import Floats


def coverage(
    k: int, dim: int, n: int, epsilon: float, delta: float, repetitions: int
) -> tuple[float, float]:
    """Share of the coordinates inside their 90 % intervals: k-means centers, means."""
    hits: tuple[list[float], list[float]] = ([], [])
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, k, dim, 31])
        truth = rng.normal(size=(k, dim)) * 1.5 * k ** (1 / dim)
        records = truth[rng.integers(k, size=n)] + rng.normal(size=(n, dim))
        design = ps.Design.plan(
            n_components=k,
            domain=ps.Box(-12, 12, dim=dim),
            budget=ps.Budget(epsilon, delta),
            n_records=n,
            random_state=seed,
        )
        model = ps.learn_kmeans(ps.sketch(records, design), k)
        if model.standard_errors is None:
            raise SystemExit("this fit is too large for standard errors")
        fresh = truth[rng.integers(k, size=400_000)] + rng.normal(size=(400_000, dim))
        population = KMeans(k, init=model.centers, n_init=1, tol=1e-9, max_iter=1000).fit(fresh)
        for found, goal in zip(hits, (population.cluster_centers_, truth), strict=True):
            distances = np.square(model.centers[:, None] - goal).sum(axis=2)
            misses = np.abs(model.centers - goal[distances.argmin(axis=1)])
            found.append(float(np.mean(misses < 1.645 * model.standard_errors)))
    return float(np.mean(hits[0])), float(np.mean(hits[1]))


def separated(k: int, dim: int, n: int, kind: str, rng: np.random.Generator) -> Floats:
    """Clusters of width about 1 whose centers are at least six apart."""
    scale = 2.25 * k ** (1 / dim)
    while True:
        centers = rng.normal(size=(k, dim)) * scale
        distances = np.linalg.norm(centers[:, None] - centers, axis=2) + 99 * np.eye(k)
        if distances.min() >= 6:
            break
        scale *= 1.02
    share = np.linspace(1, 5 if kind == "weights 1:5" else 1, k)
    label = rng.choice(k, size=n, p=share / share.sum())
    noise = rng.normal(size=(n, dim))
    if kind == "widths 0.5-1.2":
        noise *= np.linspace(0.5, 1.2, k)[label, None]
    elif kind == "heavy tails":
        noise *= 0.7 / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    elif kind == "uniform":
        noise = rng.uniform(-1.7, 1.7, (n, dim))
    return np.asarray(centers[label] + noise)


def right_numbers(kind: str, dim: int, epsilon: float, delta: float) -> tuple[int, list[int]]:
    """How many of ten data sets, k = 3 to 12, get their k, and what they all got."""
    found = []
    for k in range(3, 13):
        records = separated(k, dim, 100_000, kind, np.random.default_rng([k, dim, 77]))
        half_width = float(np.ceil(np.abs(records).max()))  # made up here, public in a study
        design = ps.Design.plan(
            n_components=16,
            domain=ps.Box(-half_width, half_width, dim=dim),
            budget=ps.Budget(epsilon, delta),
            n_records=len(records),
            random_state=k,
        )
        model = ps.learn_kmeans(ps.sketch(records, design), "auto", max_clusters=20)
        found.append(model.n_clusters)
    return sum(k == number for k, number in zip(range(3, 13), found, strict=True)), found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="tables per coverage")
    parser.add_argument("--ratio", action="store_true", help="foretold k-means costs instead")
    arguments = parser.parse_args()
    if arguments.ratio:
        ratio_tables()
        return
    print("coverage of 90 % intervals")
    for k, dim, n, epsilon, delta in (
        (10, 10, 100_000, 1.0, 1e-6),
        (10, 10, 100_000, 0.1, 1e-6),
        (10, 10, 100_000, 0.3, 0.0),
        (4, 8, 10_000, 1.0, 1e-6),
        (4, 8, 10_000, 0.5, 0.0),
        (5, 2, 10_000, 1.0, 1e-6),
        (20, 20, 100_000, 0.3, 1e-6),
    ):
        shares = coverage(k, dim, n, epsilon, delta, arguments.repetitions)
        told = f"k={k:<3} d={dim:<3} n={n:<7} eps={epsilon:<5} delta={delta:<6g}"
        print(f"{told} {shares[0]:.3f}, of the means {shares[1]:.3f}", flush=True)
    print("right numbers of clusters, out of ten")
    for kind in ("equal", "weights 1:5", "widths 0.5-1.2", "heavy tails", "uniform"):
        for dim, epsilon, delta in ((2, 1.0, 1e-6), (5, 1.0, 1e-6), (10, 1.0, 1e-6), (5, 1.0, 0.0)):
            right, found = right_numbers(kind, dim, epsilon, delta)
            print(
                f"{kind:15} d={dim:<3} eps={epsilon} delta={delta:<6g} {right:2}/10 {found}",
                flush=True,
            )


if __name__ == "__main__":
    main()
