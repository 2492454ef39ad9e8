"""ICASSP's Figure 2, run again: RSSE against the signal-to-noise ratio and the sketch size.

A wanted ratio is reached through (6) and (7), with |z|^2 = 0.35 as the paper does: by the noise
at a given alpha_r, or by alpha_r at a given noise. All noise is that of a private release; its
epsilon follows. Both decoders read the same releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row, grouped, number, numbers
from papers.icassp import setting
from papers.icassp.setting import DIM, N_CLUSTERS, OUR_DECODER, PAPER_DECODER, Mixture
from papers.theory import icassp_snr
from privsketch._base.types import Integers
from privsketch.design.recipe import Design
from privsketch.sketching.sums import exact_sums

N_RECORDS = 100_000  # the paper's, at least of the right panel
SIZE = 10.0  # of the left panel: m = 10 k d
RATES = (1.0, 0.1, 0.01)  # alpha_r of curves along which the noise varies
SIGMAS = (1.0, 10.0)  # sigma_xi of curves along which alpha_r varies
_TRIALS = {"full": (12, 6), "quick": (3, 3), "tiny": (1, 1)}  # left, right; the paper has 40
LEFT_KEYS = ("decoder", "series", "snr")
RIGHT_KEYS = ("decoder", "size", "snr")


def left_cells(effort: str) -> list[Cell]:
    """One cell for every trial."""
    small = effort == "tiny"
    powers = [1.0] if small else np.arange(-0.5, 4.01, 0.5 if effort == "full" else 1.0)
    ratios = [float(f"{10**power:.4g}") for power in powers]
    common = {
        "n_records": 2000 if small else N_RECORDS,
        "k": 2 if small else N_CLUSTERS,
        "d": 2 if small else DIM,
        "ratios": ratios,
    }
    return [Cell(left_rows, {"trial": t, **common}) for t in range(_TRIALS[effort][0])]


def left_rows(trial: int, n_records: int, k: int, d: int, ratios: Sequence[float]) -> list[Row]:
    """RSSE, |z|^2 and the ratio that was realised, along all curves."""
    data = setting.mixture(trial, n_records, k, d)
    m = round(SIZE * k * d)
    best = setting.objective(data.table, setting.without_privacy(data))
    found: list[Row] = []
    for rate in RATES:
        design = setting.paper_design(data, m, seed=trial, kept=max(1, round(rate * m)))
        sums = _sums(data, design)
        for ratio in ratios:
            sigma = setting.noise_for(ratio, n_records, _rate(design))
            if sigma is not None:
                what: Row = {"series": f"alpha_r = {rate:g}", "sigma_xi": sigma, "snr": ratio}
                found += _measured(what, data, design, sums, best)
    for sigma in SIGMAS:
        for ratio in ratios:
            kept = round(setting.rate_for(ratio, n_records, sigma) * m)
            if 1 <= kept <= m:
                design = setting.paper_design(data, m, seed=trial, kept=kept)
                # A whole number of features is kept: the ratio is not quite the wanted one.
                snr = icassp_snr(n_per_device=n_records, feature_rate=kept / m, sigma_xi=sigma)
                what = {"series": f"sigma_xi = {sigma:g}", "sigma_xi": sigma, "snr": snr}
                found += _measured(what, data, design, _sums(data, design), best)
    return found


def right_cells(effort: str) -> list[Cell]:
    """One cell for every trial and some of the sizes."""
    small = effort == "tiny"
    count = {"full": 12, "quick": 6, "tiny": 2}[effort]
    # A sketch must have as many numbers as there are unknowns: m >= k (d + 1) / 2.
    sizes = np.geomspace(0.8 if small else 0.6, 4 if small else 30, count)
    ratios = [float(f"{ratio:.4g}") for ratio in np.geomspace(0.1, 100 if small else 1e4, count)]
    k, d = (2, 2) if small else (N_CLUSTERS, DIM)
    common = {"n_records": 2000 if small else N_RECORDS, "k": k, "d": d, "ratios": ratios}
    features = [round(size * k * d) for size in sizes]
    parts = [features[:-3], features[-3:]] if count > 3 else [features]
    return [
        Cell(right_rows, {"trial": trial, "sizes": part, **common}, float(sum(part)) + 500)
        for trial in range(_TRIALS[effort][1])
        for part in parts
    ]


def right_rows(
    trial: int, sizes: Sequence[int], n_records: int, k: int, d: int, ratios: Sequence[float]
) -> list[Row]:
    """RSSE on a grid of sizes and ratios, without masks."""
    data = setting.mixture(trial, n_records, k, d)
    best = setting.objective(data.table, setting.without_privacy(data))
    found: list[Row] = []
    for m in sizes:
        design = setting.paper_design(data, m, seed=trial)
        sums = _sums(data, design)
        for ratio in ratios:
            sigma = setting.noise_for(ratio, n_records, 1.0)
            if sigma is not None:
                what: Row = {"series": "grid", "sigma_xi": sigma, "snr": ratio}
                found += _measured(what, data, design, sums, best)
    return found


def left_summary(found: Sequence[Row]) -> list[Row]:
    """Over trials: see `_summary`."""
    return _summary(found, LEFT_KEYS)


def right_summary(found: Sequence[Row]) -> list[Row]:
    """Over trials: see `_summary`."""
    return _summary(found, RIGHT_KEYS)


def _summary(found: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Medians, means and standard deviations over trials, one row for each point of a curve."""
    rows = []
    for group in grouped(found, itemgetter(*keys)).values():
        first = {name: value for name, value in group[0].items() if name != "trial"}
        values, signals = np.array(numbers(group, "rsse")), numbers(group, "signal")
        first["realised_snr"] = float(np.median(numbers(group, "realised_snr")))
        first["signal"] = float(np.median(signals))
        first["signal_low"], first["signal_high"] = min(signals), max(signals)
        first["rsse"] = float(np.median(values))
        first["rsse_mean"] = float(values.mean())
        first["rsse_std"] = float(values.std())
        first["trials"] = len(group)
        rows.append(first)
    return rows


def _measured(what: Row, data: Mixture, design: Design, sums: Integers, best: float) -> list[Row]:
    """One release, read by both decoders."""
    m, n = design.n_features, len(data.table)
    sigma, rate = number(what, "sigma_xi"), _rate(design)
    design = setting.at_epsilon(design, setting.epsilon_for(sigma, n, m, rate))
    sketch = setting.devices_sketch(sums[np.newaxis], design, n)
    law = setting.sketch_law(design.radians(), data.means)
    signal = float(np.square(np.abs(law)).mean())
    error = float(np.square(np.abs(sketch.mean() - law)).mean())
    row: Row = {
        **what,
        "alpha_r": rate,
        "m": m,
        "size": m / data.means.size,
        "epsilon": design.budget.epsilon,
        "signal": signal,
        "realised_snr": signal / error if error else math.inf,
        "records": n,
    }
    return [
        {
            **row,
            "decoder": name,
            "rsse": setting.objective(data.table, setting.learned(sketch, name)) / best,
        }
        for name in (PAPER_DECODER, OUR_DECODER)
    ]


def _sums(data: Mixture, design: Design) -> Integers:
    return exact_sums([data.table], design, n_threads=1).sums


def _rate(design: Design) -> float:
    return 1.0 if design.masks is None else design.masks.feature_rate(design.n_features)


LEFT, RIGHT = Experiment(left_cells, left_summary), Experiment(right_cells, right_summary)
