"""How well a design's forecast foretells: predicted range and measured RSSE, one table.

    python -m benchmarks forecast                 measure, print, write results/forecast.csv
    python -m benchmarks forecast --calibrate     fit the constants to the table written last

The forecast sees public facts only. Its constants are calibrated on one half of the
grid, seed mixtures in a box of four times their spread, and checked on the other:
tight clusters in the plane and in a ball. RSSE here is over the best k-means solution
known (scikit-learn's, or Lloyd's algorithm started at the private centers), so that a
good start that k-means++ missed does not hide an error.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.common import parser_of
from benchmarks.datasets import DataSet, in_a_ball, seed_mixture, squared_error, tight_plane
from privsketch._base.types import Floats
from privsketch.design.forecast import (
    FORECAST_CONSTANTS,
    ForecastConstants,
    ReferenceData,
    excess,
    forecast,
)

RESULTS = Path(__file__).parent / "results" / "forecast.csv"
APPROXIMATE = 1e-6
EVALUATED = 200_000  # records that RSSE is taken over


@dataclass(frozen=True)
class Cell:
    """One study: data, number of records and budget, and how the data really are."""

    data: DataSet
    n_records: int
    epsilon: float
    delta: float
    reference: ReferenceData
    calibrates: bool

    def design(self, seed: int) -> ps.Design:
        """Return the plan that follows from public facts alone."""
        return ps.Design.plan(
            n_components=self.data.n_clusters,
            domain=self.data.domain,
            budget=ps.Budget(self.epsilon, self.delta),
            n_records=self.n_records,
            random_state=seed,
        )


def seeds(k: int, dim: int, n: int) -> tuple[DataSet, int, ReferenceData]:
    spread = 1.5 * k ** (1 / dim)
    half = 4 * math.hypot(1, spread)
    data = DataSet("seed mixture", k, ps.Box(-half, half, dim=dim), seed_mixture(k, dim, n))
    return data, n, ReferenceData(1.0, spread, 1.5)


def plane(k: int, n: int, width: float) -> tuple[DataSet, int, ReferenceData]:
    spread = 0.9 / math.sqrt(3)
    data = DataSet("tight plane", k, ps.Box(-1, 1, dim=2), tight_plane(k, n, width))
    return data, n, ReferenceData(width, spread, spread / (width * math.sqrt(k)))


def ball(k: int, dim: int, n: int) -> tuple[DataSet, int, ReferenceData]:
    spread, width = 0.9 / math.sqrt(dim + 2), 1 / (8 * math.sqrt(dim))
    data = DataSet("tight in ball", k, ps.Ball(dim, 1.5), in_a_ball(k, dim, n))
    return data, n, ReferenceData(width, spread, spread / (width * k ** (1 / dim)))


# Data, epsilons of pure studies, epsilons at delta = 1e-6.
CALIBRATING = [
    (seeds(4, 2, 10**4), (0.03, 0.1, 0.3, 1), (0.03, 0.3)),
    (seeds(4, 8, 10**4), (0.1, 0.3, 1), (0.03, 0.1, 0.3)),
    (seeds(10, 10, 10**5), (0.03, 0.1, 0.3), (0.03, 0.1)),
    (seeds(16, 5, 10**5), (0.1, 0.3, 1), (0.03, 0.1)),
    (seeds(10, 10, 10**6), (0.03,), (0.03,)),
    (seeds(20, 20, 10**5), (0.3, 1), (0.03, 0.1)),
    (seeds(64, 10, 10**5), (1, 3), (0.1, 0.3)),
    (seeds(64, 2, 10**5), (0.3,), (0.1,)),
]
CHECKING = [
    (plane(5, 10**4, 0.05), (0.03, 0.1, 0.3), (0.03, 0.1)),
    (plane(15, 10**4, 0.05), (0.1, 0.3, 1), (0.1, 0.3)),
    (plane(64, 10**5, 0.02), (0.1, 0.3), (0.03, 0.1)),
    (ball(8, 4, 2 * 10**4), (0.03, 0.1, 0.3), (0.03, 0.1)),
    (ball(16, 6, 5 * 10**4), (0.1, 0.3), (0.03, 0.1)),
    (ball(20, 10, 10**6), (0.03, 0.1), (0.03,)),
    (ball(64, 10, 10**5), (1, 3), (0.1, 0.3)),
]


def cells() -> Iterator[Cell]:
    for half in (CALIBRATING, CHECKING):
        for (data, n, reference), pure, approximate in half:
            budgets = [(e, 0.0) for e in pure] + [(e, APPROXIMATE) for e in approximate]
            for epsilon, delta in budgets:
                yield Cell(data, n, epsilon, delta, reference, half is CALIBRATING)


def relative_error(cell: Cell, seed: int) -> float:
    """RSSE of one data set, with its own frequencies and noise."""
    records = cell.data.make(np.random.default_rng([seed, 20210607]))
    k = cell.data.n_clusters
    centers = ps.learn_kmeans(ps.sketch(records, cell.design(seed)), k).centers
    some = records[:EVALUATED]
    plain = KMeans(k, random_state=seed).fit(some[:20_000]).cluster_centers_
    best = min(_lloyd(some, start) for start in (centers, plain))
    return squared_error(some, centers) / best


def _lloyd(records: Floats, start: Floats) -> float:
    return float(KMeans(len(start), init=start, n_init=1, max_iter=50).fit(records).inertia_)


Row = dict[str, str | float]


def measure(cell: Cell, repetitions: int) -> Row:
    """One row of the table."""
    design = cell.design(0)
    told = forecast(design)
    ratios = [relative_error(cell, seed) for seed in range(repetitions)]
    return {
        "data": cell.data.name,
        "k": cell.data.n_clusters,
        "dim": design.dim,
        "n": cell.n_records,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "features": design.n_features,
        "noise": design.noise,
        "noise_to_signal": told.noise_to_signal,
        "rsse_low": told.rsse_low,
        "rsse_high": told.rsse_high,
        "verdict": told.verdict,
        "measured": float(np.median(ratios)),
        "worst": max(ratios),
        "half": "calibrate" if cell.calibrates else "check",
    }


def print_row(row: Row) -> None:
    where = "in" if _inside(row) else "OUT"
    print(
        f"{row['data']:14} {row['k']:3} {row['dim']:3} {row['n']:8} {row['epsilon']:5g} "
        f"{row['delta']:6g} {row['features']:5} {row['noise']:9} {row['rsse_low']:9.4f} "
        f"{row['rsse_high']:9.4f} {row['measured']:9.4f} {row['worst']:9.4f} {where:4} "
        f"{row['verdict']}",
        flush=True,
    )


def _inside(row: Row) -> bool:
    return float(row["rsse_low"]) <= float(row["measured"]) <= float(row["rsse_high"])


def summary(rows: list[Row]) -> str:
    """Rank correlation of the middle of the range with what was measured, in parts."""
    parts = {
        "all": rows,
        "delta = 0": [row for row in rows if float(row["delta"]) == 0],
        "delta > 0": [row for row in rows if float(row["delta"]) > 0],
        "half that calibrates": [row for row in rows if row["half"] == "calibrate"],
        "half that checks": [row for row in rows if row["half"] == "check"],
    }
    lines = []
    for name, part in parts.items():
        ends = [[float(row[end]) - 1 for end in ("rsse_low", "rsse_high")] for row in part]
        told = np.sqrt(np.prod(ends, axis=1))
        found = [float(row["measured"]) for row in part]
        inside = sum(map(_inside, part))
        lines.append(
            f"{name:21} Spearman {spearmanr(told, found).statistic:.3f}, "
            f"{inside} of {len(part)} inside the range"
        )
    return "\n".join(lines)


def calibrate(rows: list[Row]) -> str:
    """Constants that fit the measured excess of the seed mixtures, and how well they check."""
    pairs = list(zip(cells(), (float(row["measured"]) - 1 for row in rows), strict=True))
    designs = [cell.design(0) for cell, _ in pairs]

    def misfit(logs: Floats, calibrating: bool) -> Floats:
        constants = ForecastConstants(*np.exp(logs))
        return np.array(
            [
                math.log(excess(design, cell.reference, cell.n_records, constants=constants))
                - math.log(max(found, 2e-4))
                for design, (cell, found) in zip(designs, pairs, strict=True)
                if cell.calibrates == calibrating
            ]
        )

    start = np.log(
        [FORECAST_CONSTANTS.overlap, FORECAST_CONSTANTS.turning_point, FORECAST_CONSTANTS.lost]
    )
    # Single searches that fail must not decide: soft_l1 bounds their influence.
    fit = least_squares(misfit, start, loss="soft_l1", args=(True,), diff_step=[0.02])
    overlap, turning_point, lost = np.exp(fit.x)
    factors = [math.exp(math.sqrt(np.mean(misfit(fit.x, half) ** 2))) for half in (True, False)]
    return (
        f"overlap={overlap:.2f}, turning_point={turning_point:.2f}, lost={lost:.2f}\n"
        f"off by a factor of {factors[0]:.2f} (calibrating half), {factors[1]:.2f} (checking half)"
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.calibrate:
        with arguments.output.open(newline="") as file:
            print(calibrate(list(csv.DictReader(file))))
        return
    start, rows = time.perf_counter(), []
    for cell in cells():
        rows.append(measure(cell, arguments.repetitions))
        print_row(rows[-1])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(summary(rows))
    print(
        f"{time.perf_counter() - start:.0f} s, {len(rows)} designs; written to {arguments.output}"
    )


if __name__ == "__main__":
    main()
