"""How the sums of one design, and their count, are noised together.

- Gaussian: the count rides along as one more integer, weight * n, in one release.
- Cube: the count rides along as one more component of the cube.
- Laplace: the count has a share of epsilon of its own (CLP Lemma 4).
- Without a count, the whole budget goes to the sums: k-means needs none.
- Under "replace" the number of records is public and never noised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from privsketch.budget import Budget, Receipt, compose_sequential, exact, exact_sum
from privsketch.errors import ParameterError
from privsketch.features.maps import FeatureMap, sensitivity
from privsketch.noise.calibration import gamma_star, round_down
from privsketch.noise.mechanism import (
    HEADROOM,
    INT64_MAX,
    INT64_MIN,
    NoiseKind,
    NoiseLaw,
    add_noise,
    cube_factor,
    cube_law,
    gaussian_law,
    laplace_law,
)

Integers = npt.NDArray[np.int64]
CountMode = Literal["released", "omitted", "public"]
COUNT_MODES: tuple[CountMode, ...] = ("released", "omitted", "public")
MAX_RECORDS = 2**40  # public ceiling that int64 headroom is planned for
COUNT_SHARE_OF_SENSITIVITY = 0.1  # the count's weight; costs 0.5 % of the Gaussian scale


@dataclass(frozen=True)
class SumNoise:
    """The noise of one design: laws, and what the released integers mean.

    A released sum is `factor` times the integer sum plus noise. A released count is
    `count_weight` times the number of records plus noise; `count_law` is None when it
    rides with the sums or is not released.
    """

    sums_law: NoiseLaw
    count_law: NoiseLaw | None
    count: CountMode
    count_weight: int
    factor: int

    @property
    def count_variance(self) -> float:
        """Variance of the released count, in records."""
        law = self.count_law or self.sums_law
        return law.variance / self.count_weight**2 if self.count == "released" else 0.0

    def release(
        self, sums: Integers, n_records: int, *, source: str | None
    ) -> tuple[Integers, Receipt]:
        """Noisy sums, with the noisy count as last element if there is one.

        Charges: the budget of the design, once.
        """
        # Clipping is 1-Lipschitz, so it keeps the sensitivity; it only acts beyond 2^40 records.
        limit = HEADROOM // self.factor
        scaled = np.clip(sums, -limit, limit) * self.factor
        if self.count != "released":
            return add_noise(scaled, self.sums_law, source=source)
        weighted = np.array([min(n_records, MAX_RECORDS) * self.count_weight], dtype=np.int64)
        if self.count_law is None:
            return add_noise(np.concatenate([scaled, weighted]), self.sums_law, source=source)
        noisy_sums, sums_receipt = add_noise(scaled, self.sums_law, source=None)
        noisy_count, count_receipt = add_noise(weighted, self.count_law, source=None)
        receipt = compose_sequential(
            "discrete Laplace noise on sums and count", [sums_receipt, count_receipt], source
        )
        return np.concatenate([noisy_sums, noisy_count]), receipt

    def covers(self, receipt: Receipt) -> bool:
        """Whether a receipt is that of one release of this noise, or of a larger one."""
        laws = [self.sums_law] if self.count_law is None else [self.sums_law, self.count_law]
        leaves = list(receipt.parts) or [receipt]
        total = tuple(exact_sum([getattr(law, n) for law in laws]) for n in ("epsilon", "delta"))
        if (receipt.epsilon, receipt.delta) != total or len(leaves) != len(laws):
            return False
        return all(
            not leaf.parts
            and (leaf.epsilon, leaf.delta, leaf.neighbours)
            == (law.epsilon, law.delta, law.neighbours)
            and leaf.scale is not None
            and leaf.scale >= law.scale * (1 - 1e-9)
            for leaf, law in zip(leaves, laws, strict=True)
        )


def saturating_add(a: Integers, b: Integers) -> Integers:
    """a + b, stopping at the ends of int64. A wrapped sum would tell neighbours apart."""
    with np.errstate(over="ignore"):
        total = a + b
    overflowed = ((a ^ total) & (b ^ total)) < 0  # both terms have the other sign
    return np.where(overflowed, np.where(a < 0, INT64_MIN, INT64_MAX), total)


def split_epsilon(epsilon: float, n_records: float) -> tuple[float, float]:
    """Shares of epsilon for Laplace sums and count (CLP Lemma 28), adding up exactly."""
    share = (1.0 - gamma_star(n_records, epsilon)) * epsilon
    digits = 6 - math.ceil(math.log10(share))
    for_count = Fraction(math.floor(share * 10.0**digits)) / Fraction(10) ** digits
    return round_down(exact(epsilon) - for_count), round_down(for_count)


def plan_sum_noise(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    *,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
) -> SumNoise:
    """Calibrate the noise of a design from public facts alone."""
    try:
        return _plan_sum_noise(feature_map, n_features, budget, kind, count, n_records)
    except (ZeroDivisionError, OverflowError):
        raise ParameterError(
            f"epsilon={budget.epsilon!r}: so small that no noise of this size can be drawn"
        ) from None


def _plan_sum_noise(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
) -> SumNoise:
    if (budget.neighbours == "replace") != (count == "public"):
        raise ParameterError(
            f"count={count!r} with neighbours={budget.neighbours!r}: the number of records is "
            "public under 'replace', and 'released' or 'omitted' under 'add-remove'"
        )
    bound = sensitivity(feature_map.bounds, n_features, budget.neighbours)
    epsilon, neighbours = budget.epsilon, budget.neighbours
    components = 2 * n_features
    released = count == "released"
    factor, weight, count_law = 1, 1, None
    if kind == "gaussian":
        if released:
            weight = max(1, round(COUNT_SHARE_OF_SENSITIVITY * math.sqrt(bound.l2_squared)))
        l2_squared = bound.l2_squared + (weight**2 if released else 0)
        sums_law = gaussian_law(
            l2_squared, components + released, epsilon, budget.delta, neighbours
        )
    elif kind == "laplace":
        for_sums = epsilon
        if released:
            for_sums, for_count = split_epsilon(epsilon, n_records)
            count_law = laplace_law(1, 1, for_count, neighbours)
        sums_law = laplace_law(bound.l1, components, for_sums, neighbours)
    else:
        factor = cube_factor(bound.linf, components + released, epsilon)
        weight = factor * bound.linf
        sums_law = cube_law(factor * bound.linf, components + released, epsilon, neighbours)
    noise = SumNoise(sums_law, count_law, count, weight if released else 1, factor)
    _require_headroom(noise, feature_map.bounds.linf * factor)
    return noise


def _require_headroom(noise: SumNoise, largest_component: int) -> None:
    """Refuse a design whose integers could come near the ends of int64."""
    laws = [law for law in (noise.sums_law, noise.count_law) if law is not None]
    per_record = max(largest_component, noise.count_weight)
    if per_record * MAX_RECORDS >= HEADROOM or any(law.reach >= HEADROOM for law in laws):
        raise ParameterError(
            "the sums of this design could overflow 64-bit integers; use fewer features or a "
            "larger epsilon"
        )
