"""BAL's Figure 2, run again: a cell for every run of a method, then medians and quartiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

from papers.bal.methods import (
    METHODS,
    NO_PRIVACY,
    PIPELINE,
    PURE_PIPELINE,
    PURE_SULQ,
    SULQ,
    TREE,
    TREE_ROUNDS,
)
from papers.bal.setting import SIZES, has_fashion_mnist, objective, records_of, without_privacy
from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row, grouped, numbers, quartiles, where
from privsketch._base.errors import ParameterError

N_CLUSTERS = 10  # of panel (d)
EPSILON = 1.0  # of panels (a) to (c)
EPSILONS = (0.1, 0.3, 0.6, 1.0)
Data = tuple[str, tuple[int, ...]]  # as `records_of` takes them
Place = tuple[Data, int, float]  # data, number of clusters, epsilon
_RUNS = {"full": 4, "quick": 3, "tiny": 1}
_GAUSSIANS: dict[str, Data] = {
    "full": ("gaussians", (100_000, 100, 64)),
    "quick": ("gaussians", (20_000, 100, 64)),
    "tiny": ("gaussians", (500, 5, 4)),
}
_FASHION: dict[str, Data] = {"full": ("fashion", (70_000,)), "quick": ("fashion", (10_000,))}
_DIGITS: Data = ("digits", (1797,))
_FEW_DIGITS: Data = ("digits", (300,))
_PIXELS = {"digits": 64, "fashion": 784}
# About: seconds of a run, for a million numbers, and for a million numbers and a cluster.
_SECONDS = {
    NO_PRIVACY: (0.0, 0.15, 0.002),
    TREE: (0.0, 0.1, 0.008),
    TREE_ROUNDS: (0.0, 0.1, 0.006),
    SULQ: (0.1, 0.08, 0.003),
    PURE_SULQ: (0.0, 0.02, 0.0005),
    PIPELINE: (1.5, 0.15, 0.002),
    PURE_PIPELINE: (0.7, 0.04, 0.001),
}
_WHAT = ("data", "records", "columns", "k", "epsilon", "method", "delta")


def synthetic_cells(effort: str) -> list[Cell]:
    """Panel (a): the mixture, against the number of clusters."""
    data = _GAUSSIANS[effort]
    if effort == "tiny":
        return _cells([(data, 4, 20.0)], effort)
    sizes = SIZES if effort == "full" else (4, 16)
    return _cells([(data, k, EPSILON) for k in sizes], effort)


def image_cells(effort: str) -> list[Cell]:
    """Panels (b) and (c): images, against the number of clusters."""
    if effort == "tiny":
        return _cells([(_FEW_DIGITS, 2, EPSILON)], effort)
    sizes = SIZES if effort == "full" else (4, 16)
    places: list[Place] = [(_DIGITS, k, EPSILON) for k in sizes]
    if has_fashion_mnist():
        some = SIZES[::2] if effort == "full" else (4, 16)
        places += [(_FASHION[effort], k, EPSILON) for k in some]
    return _cells(places, effort)


def epsilon_cells(effort: str) -> list[Cell]:
    """Panel (d): images in 10 clusters, against epsilon."""
    if effort == "tiny":
        return _cells([(_FEW_DIGITS, 2, epsilon) for epsilon in (1.0, 4.0)], effort)
    epsilons = EPSILONS if effort == "full" else (0.1, 1.0)
    data = _FASHION[effort] if has_fashion_mnist() else _DIGITS
    return _cells([(data, N_CLUSTERS, epsilon) for epsilon in epsilons], effort)


def _cells(places: Sequence[Place], effort: str) -> list[Cell]:
    """All runs of all methods; those of k-means without privacy serve every epsilon."""
    cells, known = [], set()
    for (name, size), k, epsilon in places:
        what = {"data": name, "size": list(size), "k": k, "epsilon": epsilon}
        values = math.prod(size[:2]) if name == "gaussians" else size[0] * _PIXELS[name]
        for method, (once, by_million, by_cluster) in _SECONDS.items():
            if method == NO_PRIVACY and (name, k) in known:
                continue
            known.add((name, k))
            weight = once + values / 1e6 * (by_million + by_cluster * k)
            cells += [
                Cell(run_rows, {**what, "method": method, "run": run}, weight)
                for run in range(_RUNS[effort])
            ]
    return cells


def run_rows(
    data: str, size: list[int], k: int, epsilon: float, method: str, run: int
) -> list[Row]:
    """One run of a method: its objective, or the reason why it cannot be run."""
    records = records_of(data, tuple(size))
    found, delta, note = math.nan, 0.0, ""
    if method == NO_PRIVACY:
        found = objective(records.table, without_privacy(records.table, k, run))
    else:
        own = next(one for one in METHODS if one.name == method)
        delta = own.delta
        try:
            model = own.fit(records, k, epsilon, run)
        except ParameterError as error:
            note = str(error)
        else:
            spent = model.receipt
            if spent.epsilon > epsilon or spent.delta > delta:
                raise ParameterError(
                    f"method={method!r}: spent epsilon={spent.epsilon}, delta={spent.delta}, more "
                    f"than epsilon={epsilon}, delta={delta}"
                )
            found = objective(records.table, model.centers)
    return [
        {
            "data": records.name,
            "records": records.size[0],
            "columns": records.size[1],
            "k": k,
            "epsilon": epsilon,
            "method": method,
            "delta": delta,
            "objective": found,
            "note": note,
        }
    ]


def summary(found: Sequence[Row]) -> list[Row]:
    """One row for every place and method."""
    rows = []
    for (data, k, epsilon), own in grouped(found, itemgetter("data", "k", "epsilon")).items():
        plain = where(found, data=data, k=k, method=NO_PRIVACY)
        best = min(numbers(plain, "objective"))
        rows.append(_measured([{**row, "epsilon": epsilon} for row in plain], best))
        by_method = grouped(own, itemgetter("method"))
        by_method.pop(NO_PRIVACY, None)
        rows += [_measured(runs, best) for runs in by_method.values()]
    return rows


def _measured(runs: Sequence[Row], best: float) -> Row:
    """Median and quartiles, in the paper's unit and over the best of k-means."""
    notes = [str(row["note"]) for row in runs if row["note"]]
    costs = [] if notes else numbers(runs, "objective")
    measured = costs or [math.nan]
    return {
        **{name: runs[0][name] for name in _WHAT},
        "runs": len(costs),
        **quartiles("objective", measured),
        **quartiles("rsse", [cost / best for cost in measured]),
        "note": notes[0] if notes else "",
    }


SYNTHETIC, IMAGES, BY_EPSILON = (
    Experiment(cells, summary) for cells in (synthetic_cells, image_cells, epsilon_cells)
)
