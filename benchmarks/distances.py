"""What can be recovered from released rows: the tables of docs/projection.md, "Distances".

    python -m benchmarks distances                  all of them
    python -m benchmarks distances pairs            means and variances over a million pairs
    python -m benchmarks distances coverage         how often intervals hold the true distance
    python -m benchmarks distances clusters         shares of right labels by k-means

Pairs are released for real, and differ from run to run. The other two draw their noise from
NumPy with a seed: they are about what follows a release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import parser_of
from privsketch._base.types import Floats
from privsketch.projection.analysis import cluster_released
from privsketch.projection.distances import DistanceLaw
from privsketch.projection.matrix import fresh_matrix

KURTOSIS = {"laplace": 6.0, "gaussian": 3.0}
RATIOS = (0, 0.1, 0.3, 1, 2, 3, 4, 6, 10, 30, 300)  # true distances over k v


@dataclass(frozen=True)
class Noise:
    """Noise of a given standard deviation, as `ps.Released` wants to know it."""

    kind: str
    std: float

    @property
    def noise_variance(self) -> float:
        """Variance of one number."""
        return self.std**2

    @property
    def noise_fourth_moment(self) -> float:
        """Fourth moment of one number."""
        return KURTOSIS[self.kind] * self.std**4

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        """Noise of NumPy's, for experiments only."""
        if self.kind == "laplace":
            return rng.laplace(scale=self.std / math.sqrt(2), size=shape)
        return rng.normal(scale=self.std, size=shape)


# --- a million pairs ---

DIM, K, SQUARED = 20, 10, 16.0


def projections(n: int, protect: str, noise: str, calibration: str) -> Iterator[ps.Projection]:
    """Projections of 20 columns to 10, each with a matrix of its own."""
    facts: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "bound": 1.0, "protect": protect}
    facts |= {"noise": noise, "calibration": calibration}
    drawn = partial(ps.Projection.draw, ps.Box(-3, 3, dim=DIM), K, **facts)
    if calibration == "realised":
        yield from (drawn() for _ in range(n))
        return
    first = drawn()  # the noise of fresh matrices is the same for all
    for _ in range(n):
        yield replace(first, matrix=fresh_matrix(DIM, K), was_used=False)


def pairs(protect: str, noise: str, calibration: str, n_matrices: int, n_pairs: int) -> None:
    """One line: D - |a|^2 and its variance against both formulas."""
    rng = np.random.default_rng(3)
    off, expected, printed = [], [], []
    for projection in projections(n_matrices, protect, noise, calibration):
        s2 = projection.noise_variance
        a = rng.normal(size=(n_pairs, DIM))
        a *= math.sqrt(SQUARED) / np.linalg.norm(a, axis=1, keepdims=True)
        x = rng.uniform(-0.5, 0.5, size=(n_pairs, DIM))
        values = np.concatenate(list(projection.releases([x - a / 2, x + a / 2])))
        distances, numbers = ps.Distances(ps.Released(values, projection)), np.arange(n_pairs)
        off.append(distances.pairs(numbers, numbers + n_pairs) - SQUARED)
        expected.append(float(distances.variance(SQUARED)))
        printed.append(2 / K * SQUARED**2 + 2 * K * (7 * s2**2 - s2) + 4 * s2 * SQUARED)
    found = np.array(off)
    means = found.mean(axis=1)  # matrices are independent, pairs of one matrix are not
    errors = means.mean() / (means.std(ddof=1) / math.sqrt(len(means)))
    variance = float(np.square(found).mean())
    print(
        f"{calibration:9}{protect:8}{noise:9} mean off by {errors:5.1f} standard errors, "
        f"variance / formula {variance / np.mean(expected):.3f}, "
        f"printed / variance {np.mean(printed) / variance:.2f}",
        flush=True,
    )


# --- coverage of intervals ---


def coverage(kind: str, k: int, n: int) -> None:
    """One line: least and largest coverage over true distances, and Chebyshev's least."""
    rng = np.random.default_rng(1)
    noise = Noise(kind, 1.0)
    moments = (noise.noise_variance, noise.noise_fourth_moment)
    law = DistanceLaw.of(k, [moments, moments])
    gamma: list[list[float]] = [[], [], []]
    chebyshev: list[float] = []
    for ratio in RATIOS:
        true = ratio * k * law.variance
        apart = noise.draw(rng, (n, k)) - noise.draw(rng, (n, k))
        for case, held in enumerate(gamma):
            y = rng.normal(size=(n, k)) * math.sqrt(true / k)
            if case == 1:  # the same length in any direction
                y *= math.sqrt(true) / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-300)
            elif case == 2:
                y = np.zeros((n, k))
                y[:, 0] = math.sqrt(true)
            d = np.square(y + apart).sum(axis=1) - law.excess
            for ends, shares in (
                (law.gamma_interval(d, 0.95, case > 0), held),
                (law.chebyshev_interval(d, 0.95, case > 0), chebyshev),
            ):
                shares.append(100 * float(np.mean((ends[0] <= true) & (true <= ends[1]))))
    told = " | ".join(f"{min(held):.1f} - {max(held):.1f}" for held in gamma)
    print(f"| {kind} | {k} | {told} | {min(chebyshev):.1f} |", flush=True)


# --- clusters ---


def right_share(labels: npt.NDArray[np.intp], truth: npt.NDArray[np.int64]) -> float:
    """Share of right labels, under the best names of the clusters."""
    k = int(truth.max()) + 1
    counts = np.zeros((k, k))
    np.add.at(counts, (labels, truth), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(labels))


@dataclass(frozen=True)
class Tables:
    """Round clusters, or of spreads that fall like j^(-decay), this far apart."""

    n_clusters: int
    apart: float
    dim: int
    k: int
    n: int
    n_tables: int
    decay: float = 0.0

    def shares(self, seed: int, std: float) -> list[float]:
        """Right labels by scikit-learn, without and with the matrix, and with the truth known."""
        rng = np.random.default_rng(seed)
        if self.n_clusters == 2:
            direction = rng.normal(size=self.dim)
            centers = np.outer([0.5, -0.5], self.apart * direction / np.linalg.norm(direction))
        else:
            centers = rng.normal(size=(self.n_clusters, self.dim))
            centers *= self.apart / math.sqrt(2 * self.dim)
        truth = rng.integers(self.n_clusters, size=self.n)
        spreads = np.arange(1, self.dim + 1.0) ** -self.decay
        spreads *= math.sqrt(self.dim / np.square(spreads).sum())
        records = centers[truth] + rng.normal(size=(self.n, self.dim)) * spreads
        matrix = rng.normal(size=(self.dim, self.k)) / math.sqrt(self.k)
        noise = Noise("laplace", std)
        released = ps.Released(records @ matrix + noise.draw(rng, (self.n, self.k)), noise)
        plain = KMeans(self.n_clusters, n_init=10, random_state=seed).fit(released.values).labels_
        found = [cluster_released(released, self.n_clusters, matrix=m) for m in (None, matrix)]
        covariance = (matrix.T * spreads**2) @ matrix + std**2 * np.eye(self.k)
        misses = released.values[:, np.newaxis] - centers @ matrix
        inverse = np.linalg.inv(covariance)
        best = np.einsum("ijk,kl,ijl->ij", misses, inverse, misses, optimize=True).argmin(axis=1)
        labels = [plain, *(clusters.labels for clusters in found), best]
        return [right_share(one, truth) for one in labels]


CLUSTERS = (
    Tables(2, 4.0, 50, 10, 1_000, 16),
    Tables(2, 4.0, 50, 10, 10_000, 16),
    Tables(2, 4.0, 100, 20, 1_000, 16),
    Tables(2, 4.0, 100, 20, 10_000, 16),
    Tables(10, 8.0, 100, 20, 1_000, 16),
    Tables(10, 8.0, 100, 20, 10_000, 8),
)


def clusters(tables: Tables) -> None:
    """Three lines: means over tables at noise of 0.5, 2 and 5."""
    for std in (0.5, 2.0, 5.0):
        shares = [tables.shares(seed, std) for seed in range(tables.n_tables)]
        told = " | ".join(f"{share:.3f}" for share in np.mean(shares, axis=0))
        print(
            f"| {tables.n_clusters}, {tables.apart:g} apart | {tables.dim}, {tables.k} | "
            f"{tables.n:,} | {std:g} | {told} |",
            flush=True,
        )


def main() -> None:
    parser = parser_of(__doc__)
    names = ("pairs", "coverage", "clusters")
    decay = "clusters whose spreads fall like j^(-DECAY) over directions j; 0: round ones"
    parser.add_argument("--decay", type=float, default=0.0, help=decay)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"some of {', '.join(names)}")
    arguments = parser.parse_args()
    unknown = set(arguments.tables) - set(names)
    if unknown:
        parser.error(f"expected some of {', '.join(names)}")
    chosen = arguments.tables or names
    kinds = tuple(KURTOSIS)
    if "pairs" in chosen:
        print("a million pairs, 1,000 matrices of 20 x 10, |a|^2 = 16, epsilon = 8, bound 1")
        for calibration in ("fresh", "realised"):
            for protect in ("row", "element"):
                for noise in kinds:
                    pairs(protect, noise, calibration, 1000, 1000)
    if "coverage" in chosen:
        print("coverage at 95 %: |a|^2, |a P|^2 in any direction, along one axis; Chebyshev, least")
        for noise in kinds:
            for k in (1, 2, 10, 50):
                coverage(noise, k, 100_000)
    if "clusters" in chosen:
        print("right labels: scikit-learn, without matrix, with matrix, best")
        for tables in CLUSTERS:
            clusters(replace(tables, decay=arguments.decay))


if __name__ == "__main__":
    main()
