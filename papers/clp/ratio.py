"""CLP Figures 4 and 5: RSSE against the noise-to-signal ratio, measured on private releases.

The paper adds "isotropic noise of controlled magnitude". Here every sketch is a release with
Gaussian noise whose epsilon is the one at which Lemma 26 gives the wanted ratio, the records at
hand being the reference. Both decoders get the same releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

from papers.clp import setting
from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row, grouped, numbers, quartiles
from privsketch._base.errors import ParameterError
from privsketch.design.noise_to_signal import noise_parts
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget

K = DIM = 10
DELTA = 1e-6
DECODERS = ("cl-ompr", "joint")
RATIO_SIZE = 10  # m / (k d) of Figure 4
GRID_RECORDS = 10_000  # of Figure 5
# 1,000 records and a smaller ratio would need an epsilon beyond 100.
_RATIOS = tuple(10.0 ** (i / 2) for i in range(-7, 2))
_GRID_RATIOS = tuple(10.0 ** (i / 2) for i in range(-8, 0))
_SIZES = (1, 1.5, 2, 3, 5, 8, 12)
_MAX_EPSILON = 100.0  # of a Budget
# Numbers of records, ratios and trials of Figure 4; sizes, ratios and trials of Figure 5.
_RATIO_RUNS = {
    "full": ((1_000, 10_000, 100_000), _RATIOS, 12),
    "quick": ((1_000, 10_000, 100_000), _RATIOS[1::2], 4),
    "tiny": ((300,), (0.001, 0.1), 1),
}
_GRID_RUNS = {
    "full": (_SIZES, _GRID_RATIOS, 8),
    "quick": ((1, 2, 5, 8), (1e-4, 1e-3, 1e-2, 1e-1), 3),
    "tiny": ((1, 2), (0.001, 0.1), 1),
}


def ratio_cells(effort: str) -> list[Cell]:
    """Figure 4: a cell for each number of records and trial."""
    counts, ratios, trials = _RATIO_RUNS[effort]
    return _cells(effort, [(n, RATIO_SIZE) for n in counts], ratios, trials)


def grid_cells(effort: str) -> list[Cell]:
    """Figure 5: a cell for each size of sketch and trial."""
    sizes, ratios, trials = _GRID_RUNS[effort]
    n = GRID_RECORDS if effort != "tiny" else 300
    return _cells(effort, [(n, size) for size in sizes], ratios, trials)


def _cells(
    effort: str, sketches: Sequence[tuple[int, float]], ratios: Sequence[float], trials: int
) -> list[Cell]:
    """All trials of sketches of so many records and of such a size."""
    k = K if effort != "tiny" else 2
    return [
        Cell(
            rows,
            {"k": k, "n_records": n, "size": size, "ratios": ratios, "trial": trial},
            weight=5 + size,
        )
        for n, size in sketches
        for trial in range(trials)
    ]


def rows(
    k: int, n_records: int, size: float, ratios: Sequence[float], trial: int, dim: int | None = None
) -> list[Row]:
    """One trial: a row for each ratio and decoder."""
    dim = dim or k
    records = setting.draw_records(n_records, k, dim, trial)
    m = round(size * k * dim)
    design = setting.design_of(
        k,
        dim,
        m,
        n_records,
        trial,
        scale=setting.CKM_SCALE,
        budget=Budget(1.0, DELTA),
        noise="gaussian",
        count="omitted",
    )
    exact = setting.sums_of(records.table, design)
    signal = setting.signal_of(exact, design)
    found: list[Row] = []
    for ratio in ratios:
        budget = budget_for(ratio, design, signal, n_records)
        released = setting.release(exact, design, budget)
        noise = (released.sums - exact.sums) / (design.unit * n_records)
        for decoder in DECODERS:
            found.append(
                {
                    "n_records": n_records,
                    "k": k,
                    "d": dim,
                    "m": m,
                    "nsr": float(ratio),
                    "decoder": decoder,
                    "epsilon": budget.epsilon,
                    "nsr_measured": float(noise @ noise) / signal,
                    "signal": signal / m,
                    "rsse": records.rsse(setting.decoded(released, k, decoder)),
                }
            )
    return found


def budget_for(ratio: float, design: Design, signal: float, n_records: int) -> Budget:
    """Return the budget whose Gaussian noise has this noise-to-signal ratio by Lemma 26."""
    at_one = noise_parts(
        n_records=n_records,
        n_features=design.n_features,
        signal=signal,
        energy=design.n_features,
        noise_variance=2 * design.noise_std**2,
        reference="records",
    ).private
    # Noise is kappa(epsilon) times the sensitivity, whatever that is.
    wanted = math.sqrt(ratio / at_one) * _kappa(design.budget.epsilon)
    low, high = 1e-7, _MAX_EPSILON
    if not _kappa(high) <= wanted <= _kappa(low):
        raise ParameterError(
            f"ratio={ratio:g}: no epsilon up to {high:g} has this noise with {n_records} records"
        )
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _kappa(middle) > wanted else (low, middle)
    return Budget(float(f"{high:.8g}"), DELTA)


def _kappa(epsilon: float) -> float:
    from privsketch.noise.calibration import kappa_discrete

    return float(kappa_discrete(epsilon, DELTA))


def summary(found: Sequence[Row]) -> list[Row]:
    """Medians and quartiles over trials."""
    columns = ("n_records", "k", "d", "m", "nsr", "decoder")
    return [
        {
            **dict(zip(columns, key, strict=True)),
            "trials": len(own),
            "epsilon": quartiles("epsilon", numbers(own, "epsilon"))["epsilon"],
            "nsr_measured": sum(numbers(own, "nsr_measured")) / len(own),
            "signal": sum(numbers(own, "signal")) / len(own),
            **quartiles("rsse", numbers(own, "rsse")),
        }
        for key, own in grouped(found, itemgetter(*columns)).items()
    ]


FIGURE4, FIGURE5 = Experiment(ratio_cells, summary), Experiment(grid_cells, summary)
