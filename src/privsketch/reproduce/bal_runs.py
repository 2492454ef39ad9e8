"""BAL's Figure 2, run again: rows of all panels, and the median and quartiles of several runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from privsketch.errors import ParameterError
from privsketch.learning.threads import one_thread
from privsketch.reproduce.bal_methods import METHODS, NO_PRIVACY, Method
from privsketch.reproduce.bal_setting import (
    SIZES,
    Records,
    digits,
    fashion_mnist,
    gaussians,
    has_fashion_mnist,
    objective,
    without_privacy,
)
from privsketch.reproduce.results import Progress, Row

N_CLUSTERS = 10  # of panel (d)
EPSILON = 1.0  # of panels (a) to (c)
EPSILONS = (0.1, 0.3, 0.6, 1.0)
# One panel each: records, number of clusters, epsilon; and runs of a cell.
Cell = tuple[Callable[[], Records], int, float]
_RUNS = {"full": 5, "quick": 3, "tiny": 1}


def synthetic_rows(effort: str, progress: Progress) -> Iterator[Row]:
    """Panel (a): the mixture, against the number of clusters."""
    if effort == "tiny":
        return _rows([(lambda: gaussians(500, 5, 4), 4, 20.0)], effort, progress)
    n_records, sizes = (100_000, SIZES) if effort == "full" else (20_000, (4, 16))
    return _rows([(lambda: gaussians(n_records), k, EPSILON) for k in sizes], effort, progress)


def image_rows(effort: str, progress: Progress) -> Iterator[Row]:
    """Panels (b) and (c): images, against the number of clusters."""
    if effort == "tiny":
        return _rows([(lambda: digits(300), 2, EPSILON)], effort, progress)
    sizes = SIZES if effort == "full" else (4, 16)
    cells: list[Cell] = [(digits, k, EPSILON) for k in sizes]
    if has_fashion_mnist():
        n_records = 70_000 if effort == "full" else 10_000
        some = SIZES[::2] if effort == "full" else (4, 16)
        cells += [(lambda: fashion_mnist(n_records), k, EPSILON) for k in some]
    return _rows(cells, effort, progress)


def epsilon_rows(effort: str, progress: Progress) -> Iterator[Row]:
    """Panel (d): images in 10 clusters, against epsilon."""
    if effort == "tiny":
        return _rows(
            [(lambda: digits(300), 2, epsilon) for epsilon in (1.0, 4.0)], effort, progress
        )
    epsilons = EPSILONS if effort == "full" else (0.1, 1.0)
    make: Callable[[], Records] = digits
    if has_fashion_mnist():
        n_records = 70_000 if effort == "full" else 10_000
        make = lambda: fashion_mnist(n_records)  # noqa: E731
    return _rows([(make, N_CLUSTERS, epsilon) for epsilon in epsilons], effort, progress)


def _rows(cells: Sequence[Cell], effort: str, progress: Progress) -> Iterator[Row]:
    """One row for every cell and method."""
    n_runs = _RUNS[effort]
    # The time of a cell grows with its number of clusters, about.
    total, done = sum(k + 8 for _, k, _ in cells), 0
    known: dict[tuple[str, int], list[float]] = {}
    for make, k, epsilon in cells:
        records = make()
        table = records.table
        if (records.name, k) not in known:
            plain = [objective(table, without_privacy(table, k, run)) for run in range(n_runs)]
            known[records.name, k] = plain
        plain = known[records.name, k]
        what: Row = {
            "data": records.name,
            "records": records.size[0],
            "columns": records.size[1],
            "k": k,
            "epsilon": epsilon,
        }
        yield {**what, **_measured(NO_PRIVACY, 0.0, plain, min(plain), "")}
        for step, method in enumerate(METHODS, start=1):
            found, note = _found(method, records, k, epsilon, n_runs)
            yield {**what, **_measured(method.name, method.delta, found, min(plain), note)}
            progress((done + (k + 8) * step / len(METHODS)) / total)
        done += k + 8


def _found(
    method: Method, records: Records, n_clusters: int, epsilon: float, n_runs: int
) -> tuple[list[float], str]:
    """Objectives of several runs, or none and the reason why the method cannot be run."""
    found = []
    for run in range(n_runs):
        try:
            with one_thread():  # blocks of records already share the cores
                model = method.fit(records, n_clusters, epsilon, run)
        except ParameterError as error:
            return [], str(error)
        spent = model.receipt
        if spent.epsilon > epsilon or spent.delta > method.delta:
            raise ParameterError(
                f"method={method.name!r}: spent epsilon={spent.epsilon}, delta={spent.delta}, more "
                f"than epsilon={epsilon}, delta={method.delta}"
            )
        found.append(objective(records.table, model.centers))
    return found, ""


def _measured(name: str, delta: float, found: Sequence[float], best: float, note: str) -> Row:
    """Median and quartiles, in the paper's unit and over the best of k-means."""
    low, middle, high = (
        (float(value) for value in np.quantile(found, (0.25, 0.5, 0.75)))
        if found
        else (math.nan,) * 3
    )
    return {
        "method": name,
        "delta": delta,
        "runs": len(found),
        "objective": middle,
        "objective_low": low,
        "objective_high": high,
        "rsse": middle / best,
        "rsse_low": low / best,
        "rsse_high": high / best,
        "note": note,
    }
