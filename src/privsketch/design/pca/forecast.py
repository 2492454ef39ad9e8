"""Whether principal components from a design can work, told before any record is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privsketch.design.forecast import Verdict
from privsketch.design.pca.error import EXTENT, lost_variance
from privsketch.design.recipe import Design
from privsketch.errors import require_count
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL
from privsketch.noise.sums import MAX_RECORDS

GOOD_LOSS, HOPELESS_LOSS = 0.02, 0.2  # of the variance of the components
SCATTER = 2.0  # of the loss of data sets around what is expected


@dataclass(frozen=True)
class PCAForecast:
    """What to expect of one design for principal components, from public facts alone.

    Attributes
    ----------
    lost : float
        Expected share of the best components' variance that noise costs, for records whose
        variance lies in that many equal components but for 5 %.
    verdict : {"good", "rough", "hopeless"}
    n_records_needed : float
        The least number of records of one holder for which the design would be good.
    """

    lost: float
    verdict: Verdict
    n_records_needed: float

    def describe(self) -> str:
        """The forecast in words, one line."""
        enough = "good for no number of records"
        if math.isfinite(self.n_records_needed):
            enough = (
                f"good from {float(f'{self.n_records_needed:.2g}'):,.0f} records of a holder on"
            )
        return (
            f"{self.verdict}: components lose about {100 * self.lost:.2g} % of the variance that "
            f"the best ones hold; {enough}"
        )


def pca_forecast(design: Design, *, n_holders: int = 1) -> PCAForecast:
    """What to expect when `n_holders` sketches of `design.n_records` records are merged."""
    require_count("n_holders", n_holders)
    lost = predicted_loss(design, n_holders)
    verdict: Verdict = "rough"
    if lost * SCATTER <= GOOD_LOSS:
        verdict = "good"
    elif lost > HOPELESS_LOSS:
        verdict = "hopeless"
    return PCAForecast(lost, verdict, _records_needed(design, n_holders))


def predicted_loss(design: Design, n_holders: int = 1) -> float:
    """Share of the components' variance that merged sketches of this design are expected to lose.

    Masks leave out features (w.x)^2 of records of half the radius: 3 (1 / (4 d))^2 in the mean
    square for directions w that are spread evenly.
    """
    square = 3 * (EXTENT**2 / design.dim) ** 2
    variance = n_holders * (
        design.noise_std**2 + design.masking_variance * square * design.n_records
    )
    is_matrix = design.feature_map == "second-moments"
    return lost_variance(
        design.dim,
        design.n_components,
        design.n_records * n_holders,
        map=design.feature_map,
        n_features=None if is_matrix else design.n_features,
        noise=design.noise,
        variance=variance * (DIAGONAL / OFF_DIAGONAL) ** 2 if is_matrix else variance,
        diagonal_variance=variance if is_matrix else None,
    )


def _records_needed(design: Design, n_holders: int) -> float:
    """The least whole number of records with a good forecast: the loss falls with it."""

    def good(n_records: float) -> bool:
        return predicted_loss(replace(design, n_records=n_records), n_holders) <= (
            GOOD_LOSS / SCATTER
        )

    low, high = 0, MAX_RECORDS
    if not good(high):
        return math.inf
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return float(high)
