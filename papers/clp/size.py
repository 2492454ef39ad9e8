"""CLP Figure 8: RSSE of private k-means against the size of the sketch, k = 4, d = 8.

Top: pure differential privacy; bottom: delta = 1e-8. Noise depends on n epsilon alone (nearly, with
delta), so the epsilons for n records are those for 10,000 times 10,000 / n. Curves are what the
paper has and what we have, with the width of the clusters known or not. Sums of one sketch are
computed once and released at all epsilons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from papers.clp.setting import (
    CKM_SCALE,
    JOINT_SCALE,
    Records,
    box,
    decoded,
    design_of,
    draw_records,
    release,
    signal_of,
    sums_of,
)
from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row, grouped, numbers, quartiles
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.run import clustered
from privsketch.facts.budget import Budget

K, DIM = 4, 8
DELTA = 1e-8
# Epsilon from which on CLP section 6.6 expects useful sketches, Laplace noise.
PRINTED = {10_000: 0.14, 100_000: 0.014, 1_000_000: 0.0014}
_BASE = 10_000  # number of records that epsilons are named for
PURE_EPSILONS: Sequence[float] = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 2.8)
EPSILONS: Sequence[float] = (0.0175, 0.025, 0.035, 0.05, 0.07, 0.1, 2.8)
_SIZES = (32, 64, 128, 256)  # k d = 32
NO_SIZE = 0  # of a method without a sketch of one size


@dataclass(frozen=True)
class Curve:
    """A way to cluster: noise, decoder, and the scale of frequencies (None: unknown)."""

    name: str
    noise: str
    decoder: str
    scale: float | None

    @property
    def delta(self) -> float:
        """Of its budget."""
        return DELTA if self.noise == "gaussian" else 0.0


CKM, KNOWN, UNKNOWN, CUBE = "CKM, as in the paper", "known width", "unknown width", "cube noise"
PIPELINE = "pipeline"
CURVES = (
    Curve(CKM, "laplace", "cl-ompr", CKM_SCALE),
    Curve(KNOWN, "laplace", "joint", JOINT_SCALE),
    Curve(UNKNOWN, "laplace", "joint", None),
    Curve(CUBE, "cube", "joint", None),
    Curve(CKM, "gaussian", "cl-ompr", CKM_SCALE),
    Curve(KNOWN, "gaussian", "joint", JOINT_SCALE),
    Curve(UNKNOWN, "gaussian", "joint", None),
)
# Numbers of records, sizes, which of the epsilons, and trials.
_RUNS = {
    "full": (tuple(PRINTED), _SIZES, slice(None), 16),
    "quick": (tuple(PRINTED), (64, 128), slice(1, 5), 3),
    "tiny": ((10_000,), (64,), slice(2, 3), 1),
}


def cells(effort: str) -> list[Cell]:
    """One for each number of records and trial."""
    numbers, sizes, part, trials = _RUNS[effort]
    return [
        Cell(
            rows,
            {
                "n_records": n,
                "sizes": sizes,
                "pure": [_scaled(epsilon, n) for epsilon in PURE_EPSILONS[part]],
                "approximate": [_scaled(epsilon, n) for epsilon in EPSILONS[part]],
                "trial": trial,
            },
            weight=1 + n / 1e6,
        )
        for n in numbers
        for trial in range(trials)
    ]


def _scaled(epsilon: float, n_records: int) -> float:
    return float(f"{epsilon * _BASE / n_records:.10g}")


def rows(
    n_records: int,
    sizes: Sequence[int],
    pure: Sequence[float],
    approximate: Sequence[float],
    trial: int,
) -> list[Row]:
    """One trial: a row for each curve, size and epsilon."""
    records = draw_records(n_records, K, DIM, trial)
    found: list[Row] = []
    for curve in CURVES:
        epsilons = approximate if curve.delta else pure
        for m in sizes:
            found += _curve_rows(records, curve, m, epsilons, trial)
    found += [_pipeline_row(records, epsilon, trial) for epsilon in pure]
    return found


def _curve_rows(
    records: Records, curve: Curve, m: int, epsilons: Sequence[float], trial: int
) -> list[Row]:
    n_records = records.size[0]
    design = design_of(
        K,
        DIM,
        m,
        n_records,
        trial,
        scale=curve.scale,
        budget=Budget(epsilons[0], curve.delta),
        noise=curve.noise,
    )
    exact = sums_of(records.table, design)
    signal = signal_of(exact, design) / m
    found: list[Row] = []
    for epsilon in epsilons:
        released = release(exact, design, Budget(epsilon, curve.delta))
        rsse = records.rsse(decoded(released, K, curve.decoder))
        found.append(
            _row(n_records, curve.delta, curve.name, curve.noise, epsilon, m, signal, rsse)
        )
    return found


def _pipeline_row(records: Records, epsilon: float, trial: int) -> Row:
    """Our method of several passes, pure, which is told no width either."""
    n_records = records.size[0]
    model = clustered(
        pipeline.cluster,
        records.table,
        K,
        domain=box(DIM),
        budget=Budget(epsilon),
        n_records=n_records,
        n_threads=1,
        random_state=trial,
    )
    rsse = records.rsse(model.centers)
    return _row(n_records, 0.0, PIPELINE, "cube", epsilon, NO_SIZE, math.nan, rsse)


def _row(
    n_records: int,
    delta: float,
    curve: str,
    noise: str,
    epsilon: float,
    m: int,
    signal: float,
    rsse: float,
) -> Row:
    return {
        "n_records": n_records,
        "delta": delta,
        "curve": curve,
        "noise": noise,
        "epsilon": epsilon,
        "m": m,
        "signal": signal,
        "rsse": rsse,
    }


def summary(found: Sequence[Row]) -> list[Row]:
    """Medians and quartiles over trials."""
    columns = ("n_records", "delta", "curve", "noise", "epsilon", "m")
    return [
        {
            **dict(zip(columns, key, strict=True)),
            "trials": len(own),
            "signal": sum(numbers(own, "signal")) / len(own),
            **quartiles("rsse", numbers(own, "rsse")),
        }
        for key, own in grouped(found, itemgetter(*columns)).items()
    ]


FIGURE8 = Experiment(cells, summary)
