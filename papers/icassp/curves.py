"""ICASSP's Figure 3, run again: RSSE against epsilon, for the paper's mechanism and others.

A cell is one trial of some curves. The records of a trial follow from its number, so that all
its cells see the same ones. Exact sums of a design do not depend on its budget: they are made
once and released with fresh noise for every epsilon and every number of devices. RSSE is that of
the first million records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row, grouped, number, quartiles, where
from papers.icassp import setting
from papers.icassp.setting import OUR_DECODER, PAPER_DECODER, Mixture, mixture
from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.clustering.baselines import grid, lloyd
from privsketch.clustering.baselines.points import Start
from privsketch.clustering.run import clustered
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget, Neighbours
from privsketch.facts.receipt import Receipt
from privsketch.features.frequencies import Frequencies
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch
from privsketch.sketching.sums import ExactSums, exact_sums

EVALUATED = 1_000_000  # records that RSSE is measured on
DELTA = 1e-8  # of our Gaussian curves; the paper's are pure
EPSILONS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 3e-2, 1e-1, 1.0)
DEVICES = (1, 10, 100, 1000)  # the text names only L = 1; each divides the next
REFERENCE = "k-means, no privacy"
CKM, CKM_JOINT, OURS = "CKM", "CKM's release, our decoder", "privsketch"
LLOYD = {"uniform": "DP-Lloyd, uniform start", "packing": "DP-Lloyd, packing start"}
GRID = "EUGkM"
Curve = tuple[str, str, float, int, float, float]  # as `curve_of` names them
LLOYD_LEAST = 1e4  # n epsilon below which rounds are nothing but noise


@dataclass(frozen=True)
class Extent:
    """How much of the figure a run draws."""

    n_trials: int  # the paper has 20
    n_records: int
    epsilons: tuple[float, ...]
    devices: tuple[int, ...]
    sizes: tuple[int, ...]  # m / (k d); the first one has all devices and rates
    rates: tuple[float, ...]
    max_cells: int  # of the grid
    k: int = setting.N_CLUSTERS
    d: int = setting.DIM


# n epsilon is what counts: a quick run has a tenth of the records at ten times epsilon.
_QUICK = tuple(float(f"{10 * EPSILONS[i]:g}") for i in (0, 1, 3, 4, 6, 8))
EXTENTS = {
    "full": Extent(5, 10_000_000, EPSILONS, DEVICES, (10, 5, 20), (1.0, 0.1), 10**7),
    "quick": Extent(3, 1_000_000, _QUICK, (1, 100), (10, 5), (1.0, 0.1), 10**5),
    "tiny": Extent(1, 2000, (1.0,), (1, 10), (10,), (1.0, 0.5), 10**5, 2, 2),
}


def cells(effort: str) -> list[Cell]:
    """All trials of all curves; the weights are seconds of a full run."""
    extent = EXTENTS[effort]
    made = []
    for trial in range(extent.n_trials):
        few = {"trial": trial, "n_records": extent.n_records, "k": extent.k, "d": extent.d}
        what = {**few, "epsilons": list(extent.epsilons)}
        made.append(Cell(reference_rows, few, 12))
        for rate in extent.rates:
            many = {"size": extent.sizes[0], "rate": rate, "devices": list(extent.devices)}
            made.append(Cell(paper_rows, {**what, **many}, 40))
        for size in extent.sizes[1:]:
            one = {"size": size, "rate": 1.0, "devices": [1]}
            made.append(Cell(paper_rows, {**what, **one}, 3 * size))
        for neighbours in ("replace", "add-remove"):
            for delta in (0.0, DELTA):
                made.append(Cell(own_rows, {**what, "delta": delta, "neighbours": neighbours}, 40))
        strong = [e for e in extent.epsilons if e * extent.n_records >= LLOYD_LEAST]
        for start in LLOYD:
            few_rounds = strong or list(extent.epsilons)
            made.append(Cell(lloyd_rows, {**what, "epsilons": few_rounds, "start": start}, 60))
        made.append(Cell(grid_rows, {**what, "max_cells": extent.max_cells}, 40))
    return made


def reference_rows(trial: int, n_records: int, k: int, d: int) -> list[Row]:
    """K-means without privacy."""
    data = mixture(trial, n_records, k, d)
    return [_row(data, trial, REFERENCE, setting.without_privacy(data), {})]


def paper_rows(
    trial: int,
    n_records: int,
    k: int,
    d: int,
    epsilons: Sequence[float],
    size: int,
    rate: float,
    devices: Sequence[int],
) -> list[Row]:
    """CKM as in the paper, for several numbers of devices, and one release by our decoder."""
    data = mixture(trial, n_records, k, d)
    m = size * k * d
    design = setting.paper_design(data, m, seed=trial, kept=round(rate * m), in_blocks=True)
    each = n_records // max(devices)
    blocks = (data.table[first : first + each] for first in range(0, n_records, each))
    sums = np.stack([exact_sums([block], design, n_threads=1).sums for block in blocks])
    found = []
    for n_devices in devices:
        parts = sums.reshape(n_devices, -1, sums.shape[1]).sum(axis=1)
        for epsilon in epsilons:
            private = setting.at_epsilon(design, epsilon)
            sketch = setting.devices_sketch(parts, private, n_records)
            what: Row = {
                "devices": n_devices,
                "alpha_r": rate,
                "size": size,
                "m": m,
                "snr": setting.predicted_snr(private, n_records, n_devices),
            }
            own = n_devices == 1 and rate == 1.0
            for decoder in (PAPER_DECODER, OUR_DECODER) if own else (PAPER_DECODER,):
                name = CKM if decoder == PAPER_DECODER else CKM_JOINT
                spent = _spent(name, sketch.receipt, epsilon)
                centers = setting.learned(sketch, decoder)
                found.append(_row(data, trial, name, centers, {**what, **spent}))
    return found


def own_rows(
    trial: int,
    n_records: int,
    k: int,
    d: int,
    epsilons: Sequence[float],
    delta: float,
    neighbours: Neighbours,
) -> list[Row]:
    """Our own sketch as it is planned from public facts, and our decoder."""
    data = mixture(trial, n_records, k, d)
    known: dict[Frequencies, ExactSums] = {}
    found = []
    for epsilon in epsilons:
        design = Design.plan(
            n_components=k,
            domain=setting.box(d),
            budget=Budget(epsilon, delta, neighbours),
            n_records=n_records,
            random_state=trial,
        )
        if design.frequencies not in known:
            known[design.frequencies] = exact_sums([data.table], design, n_threads=1)
        exact = known[design.frequencies]
        values, receipt = design.sum_noise.release(exact.sums, exact.n_records, source="records")
        count = n_records if design.count == "public" else None
        sketch = Sketch(values, design, receipt, ("0",), ("records",), count)
        what: Row = {"size": design.n_features / (k * d), "m": design.n_features}
        spent = _spent(OURS, receipt, epsilon)
        centers = setting.learned(sketch, OUR_DECODER)
        found.append(_row(data, trial, OURS, centers, {**what, **spent}))
    return found


def lloyd_rows(
    trial: int, n_records: int, k: int, d: int, epsilons: Sequence[float], start: Start
) -> list[Row]:
    """Five noisy rounds of Lloyd's, Laplace noise with the split of Su et al."""
    data = mixture(trial, n_records, k, d)
    own: dict[str, Any] = {"noise": "laplace", "n_rounds": 5, "start": start}
    models = {e: _clustered(data, lloyd.cluster, e, trial, **own) for e in epsilons}
    return [_model_row(data, trial, LLOYD[start], model, e) for e, model in models.items()]


def grid_rows(
    trial: int, n_records: int, k: int, d: int, epsilons: Sequence[float], max_cells: int
) -> list[Row]:
    """EUGkM, where its cells are not too many."""
    data = mixture(trial, n_records, k, d)
    found = []
    for epsilon in epsilons:
        try:
            if grid.cells_per_axis(n_records, epsilon, d) ** d > max_cells:
                continue
            model = _clustered(data, grid.cluster, epsilon, trial, n_records=n_records)
        except ParameterError:
            continue  # more cells than the library takes
        found.append(_model_row(data, trial, GRID, model, epsilon))
    return found


def _clustered(
    data: Mixture, method: Callable[..., ClusterModel], epsilon: float, seed: int, **own: Any
) -> ClusterModel:
    """Run a method that reads the records, with the paper's guarantee and its own parameters."""
    k, d = data.means.shape
    return clustered(
        method,
        data.table,
        k,
        domain=setting.box(d),
        budget=Budget(epsilon, neighbours="replace"),
        n_threads=1,
        random_state=seed,
        **own,
    )


def _model_row(data: Mixture, trial: int, curve: str, model: ClusterModel, epsilon: float) -> Row:
    return _row(data, trial, curve, model.centers, _spent(curve, model.receipt, epsilon))


_ABSENT: Row = {
    **{"neighbours": "replace", "delta": 0.0, "devices": 1, "alpha_r": 1.0},
    **{"size": 0.0, "m": 0, "snr": 0.0, "epsilon": 0.0},
}


def _spent(curve: str, receipt: Receipt, epsilon: float) -> Row:
    """Return the cost of a run; raise an error if it exceeds the budget."""
    if receipt.epsilon > epsilon:
        raise ParameterError(f"{curve}: spent epsilon={receipt.epsilon}, more than {epsilon}")
    return {"neighbours": receipt.neighbours, "delta": receipt.delta, "epsilon": epsilon}


def _row(data: Mixture, trial: int, curve: str, centers: Floats, facts: Row) -> Row:
    """Return the cost of a run and the errors of its centres; 0 if a curve has none."""
    return {
        "curve": curve,
        **_ABSENT,
        **facts,
        "records": len(data.table),
        "trial": trial,
        "objective": setting.objective(data.table[:EVALUATED], centers),
    }


def curve_of(row: Row) -> Curve:
    """Name, relation, delta, devices, rate, size; that of our own is chosen by the planner."""
    name = str(row["curve"])
    size = 0.0 if name == OURS else number(row, "size")
    facts = number(row, "delta"), int(row["devices"]), number(row, "alpha_r"), size
    return name, str(row["neighbours"]), *facts


def summary(found: Sequence[Row]) -> list[Row]:
    """RSSE of every point: median, quartiles and extremes over trials.

    Objectives are divided by those of k-means on the same records.
    """
    plain = {row["trial"]: number(row, "objective") for row in where(found, curve=REFERENCE)}
    private = [row for row in found if row["curve"] != REFERENCE]
    rows = []
    for own in grouped(private, lambda row: (curve_of(row), row["epsilon"])).values():
        values = [number(row, "objective") / plain[row["trial"]] for row in own]
        first = {name: own[0][name] for name in own[0] if name not in ("trial", "objective")}
        over = {**quartiles("rsse", values), "rsse_worst": max(values)}
        rows.append({**first, "trials": len(own), **over})
    return rows


FIGURE3 = Experiment(cells, summary)
