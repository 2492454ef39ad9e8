"""Forecasts of methods that read the records: the cost ratio to expect of noisy centers.

As for sketches (design/forecast.py), a forecast is the k-means cost over that of k-means without
privacy, from public facts, for reference data whose clusters touch or lie apart. Each method adds
up what its steps cost: `noisy_means` for means of noisy sums, `missed_clusters` for clusters that a
noisy choice does not see. After a run the forecast is made again, for the number of records that
was released: then it says whether noise decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privsketch.design.cells import cell_error
from privsketch.design.forecast import (
    FORECAST_CONSTANTS,
    ReferenceData,
    accuracy_text,
    references,
    verdict_of,
)
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball, Domain, enclosing_box
from privsketch.noise.calibration import rho_of_budget
from privsketch.noise.sums import MAX_RECORDS

Excess = Callable[[ReferenceData], float]  # expected cost ratio of reference data, less 1
Forecast = Callable[["PublicFacts"], float]  # the ratio itself, of a method
PRECISION = 1.1  # factor by which a number of enough records may be off


@dataclass(frozen=True)
class PublicFacts:
    """Public facts that a forecast depends on.

    Attributes
    ----------
    n_clusters : int
    domain : Box or Ball
    budget : Budget
        Without a delta if the method spends none.
    n_records : float
    """

    n_clusters: int
    domain: Domain
    budget: Budget
    n_records: float

    @property
    def dim(self) -> int:
        """Number of columns."""
        return len(self.domain.half_widths)

    @property
    def per_cluster(self) -> float:
        """Records of an average cluster."""
        return max(self.n_records, 1.0) / self.n_clusters

    @property
    def l1(self) -> float:
        """Largest L1 norm of a record about the center of the domain."""
        half = self.domain.half_widths
        return float(
            half[0] * math.sqrt(len(half)) if isinstance(self.domain, Ball) else half.sum()
        )

    @property
    def l2(self) -> float:
        """Largest L2 norm of a record about the center of the domain."""
        half = self.domain.half_widths
        return float(half[0] if isinstance(self.domain, Ball) else np.linalg.norm(half))

    @property
    def n_moved(self) -> int:
        """Records that one change moves: those of a person, twice as many under "replace"."""
        return self.budget.unit.max_records * (1 + (self.budget.neighbours == "replace"))


def forecast_ratio(facts: PublicFacts, *parts: Excess) -> float:
    """Return the cost ratio to expect: the middle over reference data, as for sketches.

    A cluster costs at most what a lost one does.
    """
    data = references(facts.domain, facts.n_clusters)
    excesses = [min(sum(part(each) for part in parts), _lost(each)) for each in data]
    return 1 + math.sqrt(min(excesses) * max(excesses))


def _lost(reference: ReferenceData) -> float:
    """Return the cost of lost clusters."""
    return FORECAST_CONSTANTS.lost * reference.separation**2


def noisy_means(facts: PublicFacts, sums: float, counts: float) -> Excess:
    """Return the excess of means of noisy sums over noisy counts, in reference data.

    `sums` is the variance of the sum of a cluster along an axis, `counts` that of its count.
    """

    def excess(reference: ReferenceData) -> float:
        variance = (sums + counts * reference.spread**2) / facts.per_cluster**2
        return variance / reference.width**2

    return excess


def missed_clusters(facts: PublicFacts, noise: float) -> Excess:
    """Return the excess of clusters that drown in the noise of a choice among counts of records."""

    def excess(reference: ReferenceData) -> float:
        return _lost(reference) / (1 + (facts.per_cluster / noise) ** 2)

    return excess


def counted_cells(facts: PublicFacts, cells: tuple[int, ...], variance: float) -> Excess:
    """Return the excess of clusters that are found in noisy counts of a grid."""

    def excess(reference: ReferenceData) -> float:
        error = cell_error(
            cells=cells,
            half_widths=enclosing_box(facts.domain).half_widths,
            n_components=facts.n_clusters,
            n_records=max(facts.n_records, 1.0),
            variance=variance,
            width=reference.width,
        )
        most = _lost(reference)
        return min(error.excess, most) * (1 - error.lost) + most * error.lost

    return excess


def laplace_variance(facts: PublicFacts, sensitivity: float, share: float) -> float:
    """Return the variance of Laplace noise for a share of the budget."""
    return 2 * (facts.n_moved * sensitivity / (facts.budget.epsilon * share)) ** 2


def noise_variance(facts: PublicFacts, l1: float, l2: float, share: float) -> float:
    """Return that of Gaussian noise if the budget has a delta, else of Laplace noise."""
    if facts.budget.delta == 0:
        return laplace_variance(facts, l1, share)
    rho = rho_of_budget(facts.budget.epsilon, facts.budget.delta) * share
    return facts.n_moved * facts.budget.unit.max_records * l2**2 / (2 * rho)


@dataclass(frozen=True)
class RunForecast:
    """What to expect of a run before it reads a record.

    Attributes
    ----------
    expected_ratio : float or None
        Cost over that without privacy; None if no number of records is stated.
    enough_records : float
        Number of records from which on the forecast is good; inf if none is enough.
    """

    expected_ratio: float | None
    enough_records: float

    @classmethod
    def of(cls, forecast: Forecast, facts: PublicFacts, n_records: float | None) -> RunForecast:
        """Forecast a run, and find by bisection how many records are enough for it."""

        def ratio(number: float) -> float:
            return forecast(replace(facts, n_records=number))

        low, high = 1.0, float(MAX_RECORDS)
        if verdict_of(ratio(high)) != "good":
            low = high = math.inf
        while high > PRECISION * low:  # by factors: the error falls with the number of records
            middle = math.sqrt(low * high)
            low, high = (low, middle) if verdict_of(ratio(middle)) == "good" else (middle, high)
        return cls(None if n_records is None else ratio(n_records), float(f"{high:.2g}"))

    def describe(self) -> str:
        """Return the forecast as one line of text."""
        enough = f"enough from {self.enough_records:,.0f} records on"
        if not math.isfinite(self.enough_records):
            enough = "no number of records is enough"
        if self.expected_ratio is None:
            return enough
        return f"{accuracy_text(self.expected_ratio)}; {enough}"
