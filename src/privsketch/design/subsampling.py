"""What masks cost at one budget: the strategies of CLP sections 5 and 6.3, side by side.

Two things change when features or records are left out: noise (how much a budget asks for
after sums are divided by the rates) and the error of leaving out itself (Lemma 26). At one
total rate alpha beta the second is the same for all Poisson strategies, up to small terms, so
the first decides:

- Laplace noise: masks of features are free of charge, sampled records are not, by the factor
  (23): 12 at epsilon = 1 and a rate of 0.1, though nearly 1 for epsilon far below the rate.
- Gaussian noise: r-of-m and block masks multiply the variance by m / r, because the L2
  norm of a record falls only with sqrt(r); sampled records by about (23), which is less for
  epsilon below 1; Poisson masks of features by next to nothing. CLP's advice to mask
  features rather than records is for Laplace noise; with Gaussian noise it holds for Poisson masks.
- Cube noise is calibrated to the largest component, which masks do not change: the variance
  is multiplied by 1 / alpha^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from privsketch.design.noise_to_signal import NoiseToSignal, noise_parts
from privsketch.features.masks import Masks
from privsketch.noise.laws import amplified
from privsketch.noise.mechanism import NoiseKind

STRATEGIES = ("none", "uniform", "block", "poisson", "records", "combined")


@dataclass(frozen=True)
class Strategy:
    """One way to mask, with the noise its budget asks for.

    Attributes
    ----------
    name : str
        One of `STRATEGIES`.
    noise : {"laplace", "gaussian", "cube"}
    feature_rate, record_rate : float
        alpha and beta.
    variance : float
        Of the noise of one real number, after division by both rates.
    """

    name: str
    noise: NoiseKind
    feature_rate: float
    record_rate: float
    variance: float

    @property
    def total_rate(self) -> float:
        """The share of all features of all records that is used."""
        return self.feature_rate * self.record_rate

    def parts(
        self,
        *,
        n_records: float,
        n_features: int,
        signal: float,
        energy: float,
        numbers_per_feature: int = 2,
    ) -> NoiseToSignal:
        """Expected noise-to-signal ratio, the law of the records as reference."""
        return noise_parts(
            n_records=n_records,
            n_features=n_features,
            signal=signal,
            energy=energy,
            noise_variance=numbers_per_feature * self.variance * self.record_rate**2,
            feature_rate=self.feature_rate,
            record_rate=self.record_rate,
        )


def best_first(
    strategies: Iterable[Strategy],
    *,
    n_records: float,
    n_features: int,
    signal: float,
    energy: float,
    numbers_per_feature: int = 2,
) -> list[tuple[Strategy, NoiseToSignal]]:
    """Strategies with their expected ratios, the smallest first."""
    facts = {"n_records": n_records, "signal": signal, "energy": energy}
    found = [
        (one, one.parts(n_features=n_features, numbers_per_feature=numbers_per_feature, **facts))
        for one in strategies
    ]
    return sorted(found, key=lambda pair: pair[1].total)


def masks_at_rate(name: str, rate: float, n_features: int, block: int) -> Masks | None:
    """The masks of a strategy that use about this share of the work; None for none.

    "combined" shares the rate between Poisson features and records. Block masks are whole
    blocks of `block` features, so that the rate is the next one that fits.
    """
    if name == "uniform":
        return Masks("uniform", kept=max(1, round(rate * n_features)))
    if name == "block":
        return Masks("block", kept=block * max(1, round(rate * n_features / block)))
    if name == "poisson":
        return Masks("poisson", rate=rate)
    if name == "records":
        return Masks(records=rate)
    if name == "combined":
        each = float(f"{math.sqrt(rate):.3g}")  # a number that people can type
        return Masks("poisson", rate=each, records=each)
    return None


def price_of_sampled_records(epsilon: float, rate: float) -> float:
    """Factor on the variance of Laplace or cube noise, add-remove: CLP (22) and (23).

    (epsilon / (beta epsilon'))^2 with epsilon' = ln(1 + (e^epsilon - 1) / beta): never below 1.
    """
    return (epsilon / (rate * amplified(epsilon, rate))) ** 2


def price_of_poisson_features(epsilon: float, rate: float, n_features: int) -> float:
    """The same for Poisson masks of the features, Laplace noise: factors over m features."""
    each = epsilon / n_features
    return (each / (rate * amplified(each, rate))) ** 2


def price_of_kept_features(kind: NoiseKind, rate: float) -> float:
    """The same for r-of-m and block masks, Fourier and one-bit features, any relation."""
    return {"laplace": 1.0, "gaussian": 1 / rate, "cube": 1 / rate**2}[kind]
