"""JLL Table 1: how well k-means finds two clusters in released records.

Every cell is a distribution over releases, not one number: the matrix decides how far apart the
clusters stay. The paper has one release per cell, with one matrix for both rows of a column.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row
from papers.jll.setting import (
    DISTANCE,
    N_RECORDS,
    SIZES,
    Labels,
    draw,
    paper_matrix,
    records,
    released,
)
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats

PRINTED = {
    "none": (0.9783, 0.9772, 0.9771, 0.9797),
    "element": (0.9441, 0.9082, 0.6954, 0.6927),
    "row": (0.9477, 0.909, 0.6796, 0.6668),
}
# What is protected, how noise is calibrated, and whose matrix it is.
VARIANTS = (
    ("element", "paper", "seed 0"),
    ("row", "paper", "seed 0"),
    ("element", "paper", "fresh"),
    ("row", "paper", "fresh"),
    ("element", "auto", "fresh"),
    ("row", "auto", "fresh"),
    ("row", "union", "fresh"),
    ("whole record", "auto", "fresh"),
)
# Releases with the paper's matrix, where only noise varies; with fresh ones; records.
_RUNS = {"full": (40, 200, N_RECORDS), "quick": (5, 12, N_RECORDS), "tiny": (2, 1, 200)}
_STARTS = 10  # scikit-learn's number of starts in 2019


def accuracy(labels: Labels, found: npt.NDArray[np.int32 | np.int64]) -> float:
    """Share of records in the right cluster, clusters named as suits best."""
    from scipy.optimize import linear_sum_assignment

    size = int(max(labels.max(), found.max())) + 1
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (labels, found), 1)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / len(labels))


def projected_distance(dim: int, n_components: int) -> float:
    """Between the centres of the clusters after projection by the paper's matrix."""
    return DISTANCE * float(np.linalg.norm(paper_matrix(dim, n_components).values[0]))


def clustered(table: Floats, labels: Labels) -> float:
    """Accuracy of k-means with two clusters."""
    from sklearn.cluster import KMeans

    with one_thread():
        found = KMeans(2, n_init=_STARTS, random_state=0).fit(table).labels_
    return accuracy(labels, found)


def cells(effort: str) -> list[Cell]:
    """One for every size and variant, and one without privacy for every size."""
    own, fresh, n_records = _RUNS[effort]
    every = []
    for dim, k in SIZES:
        size = {"dim": dim, "k": k, "n_records": n_records}
        # A release takes time for its records, and for its components.
        every.append(Cell(plain_rows, size, weight=dim + 5))
        for protect, calibration, matrix in VARIANTS:
            n_releases = own if matrix == "seed 0" else fresh
            what = {"protect": protect, "calibration": calibration, "matrix": matrix}
            weight = n_releases * (k + 5)
            every.append(Cell(rows, {**size, **what, "n_releases": n_releases}, weight))
    return every


def plain_rows(dim: int, k: int, n_records: int) -> list[Row]:
    """K-means without privacy."""
    plain = np.array([clustered(*records(dim, n_records))])
    return [
        {
            **_what(dim, k, "none", "none", "none", 0.0, 0.0, "none", 0.0),
            **_accuracies(plain, _printed("none", dim, k), n_records),
        }
    ]


def rows(
    dim: int,
    k: int,
    n_records: int,
    protect: str,
    calibration: str,
    matrix: str,
    n_releases: int,
) -> list[Row]:
    """K-means of released records, over releases."""
    table, labels = records(dim, n_records)
    found, stds, kinds = [], [], set()
    for _ in range(n_releases):
        projection = draw(dim, k, protect, calibration, matrix)
        found.append(clustered(released(projection, table), labels))
        stds.append(math.sqrt(projection.noise_variance))
        kinds.add(projection.noise.law.kind)
    receipt = projection.receipt()
    noise, std = " or ".join(sorted(kinds, reverse=True)), float(np.mean(stds))
    epsilon, delta = receipt.epsilon, receipt.delta
    return [
        {
            **_what(dim, k, protect, calibration, matrix, epsilon, delta, noise, std),
            **_accuracies(np.array(found), _printed(protect, dim, k), n_records),
        }
    ]


def _printed(protect: str, dim: int, k: int) -> float:
    return PRINTED[protect][SIZES.index((dim, k))] if protect in PRINTED else math.nan


def _what(
    dim: int,
    k: int,
    protect: str,
    calibration: str,
    matrix: str,
    epsilon: float,
    delta: float,
    noise: str,
    noise_std: float,
) -> Row:
    return {
        "d": dim,
        "k": k,
        "protect": protect,
        "calibration": calibration,
        "matrix": matrix,
        "epsilon": epsilon,
        "delta": delta,
        "noise": noise,
        "noise_std": noise_std,
    }


def _accuracies(found: Floats, printed: float, n_records: int) -> Row:
    runs = len(found)
    std = float(found.std(ddof=1)) if runs > 1 else 0.0
    low, median, high = (float(value) for value in np.quantile(found, [0.05, 0.5, 0.95]))
    return {
        "n_records": n_records,
        "n_runs": runs,
        "mean": float(found.mean()),
        "standard_error": std / math.sqrt(runs),
        "std": std,
        "low": low,
        "median": median,
        "high": high,
        "printed": printed,
        "share_below_printed": float((found < printed).mean()),
    }


TABLE1 = Experiment(cells)
