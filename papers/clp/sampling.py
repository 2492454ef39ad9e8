"""CLP Figures 6 and 7: what leaving out records or features does to the noise-to-signal ratio.

Both figures of the paper are formulas: (23) and Lemma 26. Here they stand beside the ratios of real
releases. For Figure 6 the noise is that of releases of an empty table, which are nothing but
noise. For Figure 7 every release is of a new table, and the reference is the mean of the features
over the law of the records, which is known in closed form. The paper has Laplace noise and
add-remove; replace and Gaussian noise are added, where its advice does not always hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from papers.clp.setting import CKM_SCALE, centers_of, design_of, draw_table, release, sums_of
from papers.harness.cells import Cell, Experiment
from papers.harness.rows import Row
from privsketch._base.types import Floats
from privsketch.design.forecast import feature_and_record_rate
from privsketch.design.noise_to_signal import NoiseToSignal, noise_parts
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.features.masks import Masks
from privsketch.noise.laws import amplified, amplified_replace
from privsketch.sketching.sums import ExactSums

K = DIM = 10
N_FEATURES, N_RECORDS = 1000, 10_000  # of Figure 7
DELTA = 1e-6  # of Gaussian noise
RATES = (1.0, 0.1, 0.01)  # beta of Figure 6
STRATEGIES = ("records", "uniform", "poisson")
_EPSILONS6 = tuple(10.0 ** (i / 2) for i in range(-8, 4))
_EPSILONS7 = (0.1, 1.0, 10.0)
_TOTAL_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
# Epsilons and releases of Figure 6; epsilons, rates and releases of Figure 7.
_NOISE_RUNS = {"full": (_EPSILONS6, 20), "quick": (_EPSILONS6, 5), "tiny": ((0.1, 1.0), 1)}
_TOTAL_RUNS = {
    "full": (_EPSILONS7, _TOTAL_RATES, 20),
    "quick": (_EPSILONS7, _TOTAL_RATES, 4),
    "tiny": ((1.0,), (0.1, 1.0), 1),
}


def noise_cells(effort: str) -> list[Cell]:
    """Figure 6: a cell for each rate and relation."""
    epsilons, n_releases = _NOISE_RUNS[effort]
    m = N_FEATURES if effort != "tiny" else 100
    return [
        Cell(
            noise_rows,
            {
                "rate": rate,
                "neighbours": neighbours,
                "epsilons": epsilons,
                "n_releases": n_releases,
                "m": m,
            },
        )
        for neighbours in ("add-remove", "replace")
        for rate in RATES
    ]


def noise_rows(
    rate: float, neighbours: str, epsilons: Sequence[float], n_releases: int, m: int
) -> list[Row]:
    """NSR_xi in units of m^3 / (n^2 |z|^2): by (23), by our calibration, and measured.

    Constants are dropped as in (23), which has 1 / epsilon^2 where b = sqrt(2) m / epsilon.
    """
    found: list[Row] = []
    for epsilon in epsilons:
        design = _design(epsilon, 0.0, neighbours, "laplace", Masks(records=rate), m)
        unit = 8 * m**2  # 4 b^2 = 8 m^2 / epsilon^2 is the variance of a complex Laplace number
        squares = []
        for _ in range(n_releases):
            noise = release(_nothing(design), design).sums / design.unit
            squares.append(float(np.mean(np.square(noise))))
        found.append(
            {
                "neighbours": neighbours,
                "beta": rate,
                "epsilon": float(epsilon),
                "paper": sampled_noise(epsilon, rate),
                "ours": calibrated_noise(epsilon, rate, neighbours),
                "measured": 2 * float(np.mean(squares)) / unit,
                "releases": n_releases,
                "m": m,
            }
        )
    return found


def sampled_noise(epsilon: float, rate: float) -> float:
    """CLP (23) without its first factor."""
    return 1 / (rate * math.log1p(math.expm1(epsilon) / rate)) ** 2


def calibrated_noise(epsilon: float, rate: float, neighbours: str) -> float:
    """Return the ratio with the inner budgets of designs; "replace" has a budget of its own."""
    inner = amplified if neighbours == "add-remove" else amplified_replace
    return 1 / (rate * inner(epsilon, rate)) ** 2


def total_cells(effort: str) -> list[Cell]:
    """Figure 7: a cell for each noise, epsilon and strategy."""
    epsilons, rates, n_releases = _TOTAL_RUNS[effort]
    m, n = (N_FEATURES, N_RECORDS) if effort != "tiny" else (100, 300)
    return [
        Cell(
            total_rows,
            {
                "noise": noise,
                "epsilon": epsilon,
                "strategy": strategy,
                "rates": rates,
                "n_releases": n_releases,
                "m": m,
                "n_records": n,
            },
            weight=1.0 if strategy == "records" else 3.0,
        )
        for noise in ("laplace", "gaussian")
        for epsilon in epsilons
        for strategy in STRATEGIES
    ]


def total_rows(
    noise: str,
    epsilon: float,
    strategy: str,
    rates: Sequence[float],
    n_releases: int,
    m: int,
    n_records: int,
) -> list[Row]:
    """Ratios with the law as reference: the paper's formula, ours, and those of releases."""
    found: list[Row] = []
    delta = DELTA if noise == "gaussian" else 0.0
    centers = centers_of(K, DIM, 0)
    # Records of their own for every cell: their sampling error is not small everywhere.
    rng = np.random.default_rng([len(noise), STRATEGIES.index(strategy), round(1000 * epsilon)])
    for rate in rates:
        masks = _masks(strategy, rate, m)
        design = _design(epsilon, delta, "add-remove", noise, masks, m, n_records)
        mean = law_mean(design, centers)
        signal = float(mean @ mean)
        measured = []
        for _ in range(n_releases):
            released = release(sums_of(draw_table(centers, n_records, rng), design), design)
            error = released.sums / (design.unit * n_records) - mean
            measured.append(float(error @ error) / signal)
        found.append(
            {
                "noise": noise,
                "delta": delta,
                "epsilon": float(epsilon),
                "strategy": strategy,
                "rate": float(rate),
                "m": m,
                "n_records": n_records,
                "signal": signal / m,
                "paper": paper_ratio(noise, epsilon, strategy, rate, m, n_records, signal),
                "ours": expected_ratio(design, n_records, signal).total,
                "measured": float(np.mean(measured)),
                "releases": n_releases,
            }
        )
    return found


def law_mean(design: Design, centers: Floats) -> Floats:
    """Mean features of N(mu, I) over all mu, cosines then sines: exp(i w.mu - |w|^2 / 2)."""
    radians = design.radians()
    damping = np.exp(-np.vecdot(radians, radians) / 2)
    phases = radians @ centers.T
    parts = (damping * turn(phases).mean(axis=1) for turn in (np.cos, np.sin))
    return np.concatenate(list(parts))


def paper_ratio(
    noise: str, epsilon: float, strategy: str, rate: float, m: int, n: int, signal: float
) -> float:
    """Lemma 26 with the noise of CLP: (22), Lemma 18, or Lemma 23 with Theorem 2; nan if none.

    With Gaussian noise the paper has the worst mask: all m features for coin flips.
    """
    from papers.theory import kappa

    beta = rate if strategy == "records" else 1.0
    if noise == "laplace":
        if strategy == "poisson":
            return math.nan  # Lemma 18 is for masks of a fixed size
        entry = 8 * (m / math.log1p(math.expm1(epsilon) / beta)) ** 2
    else:
        if strategy == "records":
            return math.nan
        kept = max(1, round(rate * m)) if strategy == "uniform" else m
        entry = 2 * (kappa(epsilon, DELTA) * math.sqrt(kept) / rate) ** 2
    return (m / (rate * signal) - 1) / n + m * entry / (n * beta) ** 2 / signal


def expected_ratio(design: Design, n_records: int, signal: float) -> NoiseToSignal:
    """Lemma 26 with the noise that the design has."""
    alpha, beta = feature_and_record_rate(design)
    return noise_parts(
        n_records=n_records,
        n_features=design.n_features,
        signal=signal,
        energy=design.n_features,
        noise_variance=2 * (design.noise_std * beta) ** 2,
        feature_rate=alpha,
        record_rate=beta,
    )


def _masks(strategy: str, rate: float, m: int) -> Masks:
    if strategy == "records":
        return Masks(records=rate)
    if strategy == "uniform":
        return Masks("uniform", kept=max(1, round(rate * m)))
    return Masks("poisson", rate=rate)


def _design(
    epsilon: float,
    delta: float,
    neighbours: str,
    noise: str,
    masks: Masks,
    m: int,
    n_records: int = N_RECORDS,
) -> Design:
    return design_of(
        K if m == N_FEATURES else 2,
        DIM,
        m,
        n_records,
        0,
        scale=CKM_SCALE,
        budget=Budget(epsilon, delta, "replace" if neighbours == "replace" else "add-remove"),
        noise=noise,
        masks=masks,
        count="public" if neighbours == "replace" else "omitted",
    )


def _nothing(design: Design) -> ExactSums:
    """Return the sums of no records."""
    return ExactSums(np.zeros(design.n_values, dtype=np.int64), 0, 0)


FIGURE6, FIGURE7 = Experiment(noise_cells), Experiment(total_cells)
