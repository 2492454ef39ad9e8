"""Noise of the sums of one design together with their count.

- Gaussian: the count is one more integer, weight * n, of the same release.
- Cube: the count is one more component of the cube.
- Laplace: the count has a share of epsilon of its own (CLP Lemma 4), which minimises the bound of
  CLP Lemma 27 for sums that are divided by it.
- Insecure designs: no noise, and all weights are 1.
- Without a count, the whole budget goes to the sums: k-means needs none.
- Under "replace" the number of records is public and never noised.

Where records are left out at random, a count in the same release counts the records that were
kept, and one with a share of its own counts all. The mean of the records, which centered principal
components need, is part of the same release with an integer weight of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from privsketch._base.errors import MANY, ParameterError
from privsketch._base.types import Integers
from privsketch.facts.budget import ONE_RECORD, Budget, Neighbours, Unit, exact, round_up
from privsketch.facts.receipt import NO_NOISE, Receipt, compose_sequential
from privsketch.features.fixedpoint import RECORD_MAX
from privsketch.features.maps import RepeatedContribution
from privsketch.features.masks import Contribution, Masks
from privsketch.noise.calibration import round_down, sums_share
from privsketch.noise.laws import cube_noise, gaussian_noise, laplace_noise
from privsketch.noise.mechanism import (
    HEADROOM,
    INT64_MAX,
    INT64_MIN,
    SAMPLERS,
    NoiseKind,
    NoiseLaw,
    add_noise,
    cube_factor,
    laplace_law,
    no_noise,
)

CountMode = Literal["released", "omitted", "public"]
COUNT_MODES: tuple[CountMode, ...] = ("released", "omitted", "public")
SharingKind = Literal["holders", "tellers"]  # who adds the noise of a total (noise/sharing)
SHARING_KINDS: tuple[SharingKind, ...] = ("holders", "tellers")
MIN_PART_SCALE = 8  # of a part of Gaussian noise: sums are then Gaussian up to e^-631
MAX_RECORDS = int(MANY)
MAX_RECORD_WEIGHT = HEADROOM // MAX_RECORDS - 1  # largest amount that a record adds to one number
# The count's weight costs 0.5 % of the Gaussian scale; the mean's costs 3 % of Gaussian and 25 % of
# Laplace noise. python -m benchmarks constants noise prints what other shares cost.
COUNT_SHARE_OF_SENSITIVITY = 0.1
MEAN_SHARE_OF_SENSITIVITY = 0.25
# Second moments are divided by the count, so its error changes all variances and no direction. The
# bound of Lemma 27, which is about the sums as a whole, would give the count too much. This share
# of epsilon adds 2 % to the Laplace noise of the sums.
COUNT_SHARE_OF_MOMENTS = 0.02
# Squared norm of the average record over that of a record, for the papers' mixtures and
# frequencies. A tenth of it would halve the count's share.
SIGNAL_OF_WAVES = 0.35


@dataclass(frozen=True)
class SumNoise:
    """Noise of one design: laws, and the meaning of the released integers.

    A released sum is `factor` times the integer sum plus noise. Sums of the records' coordinates
    are multiplied by `mean_weight`, and released unless that is 0. A released count is
    `count_weight` times the number of records plus noise. `count_law` is None when the count is
    part of the sums' release or is not released. `record_rate` is the share of records kept.
    """

    sums_law: NoiseLaw
    count_law: NoiseLaw | None
    count: CountMode
    count_weight: int
    factor: int
    mean_weight: int = 0
    record_rate: float = 1.0
    _n_features: int = 0
    unit: Unit = ONE_RECORD

    @property
    def count_unit(self) -> float:
        """Average amount that one record adds to the released count."""
        return self.count_weight * (1.0 if self.count_law else self.record_rate)

    @property
    def count_variance(self) -> float:
        """Variance of the noise of the released count, in records."""
        law = self.count_law or self.sums_law
        return law.variance / self.count_unit**2 if self.count == "released" else 0.0

    def release(
        self, sums: Integers, n_records: int, *, n_kept: int | None = None, source: str | None
    ) -> tuple[Integers, Receipt]:
        """Release noisy sums, with the noisy count as last element if there is one.

        `sums` end with those of the records' coordinates if the mean is released; `n_kept`
        records of n_records were kept by the masks.

        Charges: the budget of the design, once.
        """
        words = self.weighted(sums, n_records, n_kept=n_kept)
        noisy, receipt = add_noises(words, self.laws, source)
        return noisy, receipt.protecting(self.unit)

    def weighted(self, sums: Integers, n_records: int, *, n_kept: int | None = None) -> Integers:
        """Return the exact integers (n_words,) that noise is added to: private.

        They are within `HEADROOM`, on which noise modulo 2^64 (noise/sharing) relies.
        """
        # Clipping is 1-Lipschitz, so it keeps the sensitivity. It acts only beyond 2^36 records.
        weights = np.full(len(sums), self.factor, dtype=np.int64)
        if self.mean_weight:
            weights[self._n_features :] = self.mean_weight
        limits = HEADROOM // weights
        scaled = np.clip(sums, -limits, limits) * weights
        if self.count != "released":
            return np.asarray(scaled)
        counted = n_records if self.count_law is not None or n_kept is None else n_kept
        weighted = np.array([int(min(counted, MAX_RECORDS)) * self.count_weight], dtype=np.int64)
        return np.concatenate([scaled, weighted])

    @property
    def laws(self) -> tuple[NoiseLaw, ...]:
        """Laws of the sums, and of the count if it has its own, in the order of the integers."""
        return (self.sums_law,) if self.count_law is None else (self.sums_law, self.count_law)

    @property
    def n_words(self) -> int:
        """Number of released integers."""
        return sum(law.n_components for law in self.laws)

    def covers(self, receipt: Receipt) -> bool:
        """Return whether a receipt is of one release of this noise, at its scale or a larger one.

        All fields must be what a release writes, except for descriptions of numbers and plugins.
        """
        laws = self.laws
        leaves = list(receipt.parts) or [receipt]
        if len(leaves) != len(laws):
            return False
        for leaf, law in zip(leaves, laws, strict=True):
            if leaf.scale is None or leaf.scale < law.scale * (1 - 1e-9):
                return False
            expected = law.receipt(leaf.scale, leaf.source, leaf.sampler).protecting(self.unit)
            samplers = (NO_NOISE,) if law.kind == "none" else SAMPLERS
            if leaf.sampler not in samplers or not is_like(leaf, expected):
                return False
        composed = composed_receipt(leaves, receipt.source)
        return len(laws) == 1 or receipt == composed.naming(*receipt.plugins)


def is_like(receipt: Receipt, expected: Receipt) -> bool:
    """Return whether two receipts are equal, up to rounding on another machine and descriptions."""
    for name in ("sensitivity", "scale", "rho"):
        value, target = getattr(receipt, name), getattr(expected, name)
        is_near = value is not None and target is not None and math.isclose(value, target)
        if not (is_near or value is target is None):
            return False
    if len(receipt.parts) != len(expected.parts):
        return False
    if not all(map(is_like, receipt.parts, expected.parts)):
        return False
    free = ("sensitivity", "scale", "rho", "calibration", "parts", "plugins")
    return receipt == replace(expected, **{name: getattr(receipt, name) for name in free})


def add_noises(
    words: Integers, laws: Sequence[NoiseLaw], source: str | None
) -> tuple[Integers, Receipt]:
    """Add noise to the sums, and then to the count if it has a law of its own.

    Charges: epsilon and delta of all laws, once.
    """
    if len(laws) == 1:
        return add_noise(words, laws[0], source=source)
    parts = np.split(words, np.cumsum([law.n_components for law in laws[:-1]]))
    released = [add_noise(part, law, source=None) for part, law in zip(parts, laws, strict=True)]
    receipt = composed_receipt([receipt for _, receipt in released], source)
    return np.concatenate([noisy for noisy, _ in released]), receipt


def composed_receipt(parts: list[Receipt], source: str | None) -> Receipt:
    """Compose the receipts of sums and count, each with a share of the budget."""
    return compose_sequential("discrete Laplace noise on sums and count", parts, source)


def saturating_multiply(values: Integers, factor: int) -> Integers:
    """Multiply by a factor, saturating at the ends of int64."""
    if factor == 1:
        return values
    limit = INT64_MAX // factor
    product = np.clip(values, -limit, limit) * factor
    beyond = np.where(values < 0, INT64_MIN, INT64_MAX)
    return np.where(np.abs(np.clip(values, -limit - 1, limit + 1)) > limit, beyond, product)


def count_share(
    contribution: Contribution, epsilon: float, n_records: float, masks: Masks | None = None
) -> float:
    """Return the share of a Laplace budget for the count, from public facts alone.

    Noise and signal are those without masks, which reduce both alike (CLP section 6.2).
    """
    if contribution.divided_by_count:
        return COUNT_SHARE_OF_MOMENTS
    # For cells, the signal of records spread over all of them: the smallest possible.
    signal = SIGNAL_OF_WAVES if contribution.signed else 1.0 / contribution.n_values
    squared = signal * contribution.l2_squared(None, "add-remove")
    noise = 2 * contribution.n_values * contribution.l1(None) ** 2 / squared
    rate = 1.0 if masks is None else masks.total_rate(contribution.n_values // 2)
    scatter = 1.0 / (rate * signal)
    return 1.0 - sums_share(n_records, epsilon, noise=noise, scatter=scatter)


def split_epsilon(epsilon: float, for_count: float) -> tuple[float, float]:
    """Split epsilon between Laplace sums and a count with this share, adding up exactly."""
    share = for_count * epsilon
    digits = 6 - math.ceil(math.log10(share))
    of_count = Fraction(math.floor(share * 10.0**digits)) / Fraction(10) ** digits
    return round_down(exact(epsilon) - of_count), round_down(of_count)


def plan_sum_noise(
    contribution: Contribution,
    budget: Budget,
    *,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
    masks: Masks | None = None,
    mean: bool = False,
    sharing: SharingKind | None = None,
    n_holders: int = 1,
) -> SumNoise:
    """Calibrate the noise of a design from public facts alone.

    It is the noise of one release. Where holders or tellers share noise (noise/sharing), it
    protects the total, and integers are multiplied by a public factor so that it can be divided.
    """
    if (budget.neighbours == "replace") != (count == "public"):
        raise ParameterError(
            f"`count={count!r}` with `neighbours={budget.neighbours!r}`: the number of records is "
            "public under 'replace', and 'released' or 'omitted' under 'add-remove'"
        )
    if budget.unit.max_records > 1:
        require_many(budget, masks)
    if mean and (kind == "cube" or masks is not None):
        raise ParameterError(
            "`mean='released'` goes with `noise='gaussian'` or `noise='laplace'` and without masks"
        )
    facts = budget, kind, count, n_records, masks, mean
    times = 1
    try:
        noise = _plan_sum_noise(contribution, *facts)
        if sharing is not None:
            _require_shareable(sharing, kind, masks)
            times = room_for_shares(noise, sharing, n_holders)
        if times > 1:
            scaled = _plan_sum_noise(RepeatedContribution(contribution, times), *facts)
            noise = replace(scaled, factor=scaled.factor * times)
    except (ZeroDivisionError, OverflowError):
        raise ParameterError(
            "epsilon", budget.epsilon, "so small that no noise of this size can be drawn"
        ) from None
    # Totals need no more: modulo 2^64 there is room for 2^36 records in all.
    _require_headroom(noise, contribution.largest * noise.factor)
    return noise


def _require_shareable(sharing: SharingKind, kind: NoiseKind, masks: Masks | None) -> None:
    """Refuse noise that cannot be divided, and masks, for whose total no bound is known."""
    if masks is not None and masks != Masks():
        raise ParameterError(
            f"masks with `sharing={sharing!r}`: the cost of a total is not known; use no masks"
        )
    if sharing == "holders" and kind != "gaussian":
        raise ParameterError(
            f"`noise={kind!r}` with `sharing='holders'`: only Gaussian noise, which needs "
            "delta > 0, is a sum of small ones; use `sharing='tellers'`"
        )


def room_for_shares(noise: SumNoise, sharing: SharingKind, n_holders: int) -> int:
    """Return the public factor of integers with which this many parties can share the noise.

    Parts of Gaussian noise have variances of scale^2 / H and differences of two of these, which are
    more than (scale / n_holders)^2: each must be `MIN_PART_SCALE` squared (noise/sharing/total.py).
    Tellers draw whole noises. But each holder adds noise for a larger epsilon, for which the
    sampler of the cube needs a factor.
    """
    law = noise.sums_law
    if sharing == "holders":
        needed = MIN_PART_SCALE * n_holders / law.scale
        return 1 if needed <= 1 else 2 ** math.ceil(math.log2(needed * (1 + 1e-6)))
    if law.kind == "cube":
        alone = round_up(exact(law.inner) * floor_ratio(n_holders))
        return cube_factor(int(law.sensitivity) // noise.factor, law.n_components, alone)
    return 1


def floor_ratio(n_holders: int) -> Fraction:
    """Return the default cost of a holder alone over that of the total, where tellers add noise.

    sqrt(2 n) of epsilon: all holders' noises together then have half the variance of one release.
    """
    return Fraction(math.isqrt(2 * n_holders * 10**8), 10**4)


def require_many(budget: Budget, masks: Masks | None = None) -> None:
    """Refuse several records of a person where no bound for all of them is known."""
    rows = f"several records of a person (`max_records={budget.unit.max_records}`)"
    if budget.neighbours == "replace":
        raise ParameterError(
            f"{rows} with `neighbours='replace'`: the number of records that are kept would have "
            "to be public; keep one of each person"
        )
    if masks is not None and masks != Masks():
        raise ParameterError(f"{rows} with masks: their cost is not known; keep one of each person")


def _plan_sum_noise(
    contribution: Contribution,
    budget: Budget,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
    masks: Masks | None,
    mean: bool,
) -> SumNoise:
    epsilon, neighbours = budget.epsilon, budget.neighbours
    released = count == "released"
    components = contribution.n_values + (contribution.dim if mean else 0)
    factor, weight, count_law = 1, 1, None
    rate = 1.0 if masks is None else masks.records
    if kind == "none":
        law, n_values = no_noise(components + released), contribution.n_values
        return SumNoise(law, None, count, 1, 1, int(mean), rate, n_values, budget.unit)
    share_of_mean = _mean_share(contribution, kind, neighbours) if mean else (0, 0, 0)
    mean_weight, mean_l1, mean_l2_squared = share_of_mean
    # Weights are those of one record, norms those of all records of a person.
    times, single = budget.unit.max_records, contribution
    if times > 1:
        contribution = RepeatedContribution(single, times)
        mean_l1, mean_l2_squared = times * mean_l1, times**2 * mean_l2_squared
    if kind == "gaussian":
        extra = mean_l2_squared
        if released:
            norm = math.sqrt(single.l2_squared(masks, neighbours))
            weight = min(max(1, round(COUNT_SHARE_OF_SENSITIVITY * norm)), MAX_RECORD_WEIGHT)
            extra += (times * weight) ** 2
        sums_law = gaussian_noise(
            contribution, components + released, epsilon, budget.delta, neighbours, masks, extra
        )
    elif kind == "laplace":
        for_sums = epsilon
        if released:
            # Several records of a person multiply the noise of both, as fewer records do.
            share = count_share(single, epsilon, max(n_records / times, 1.0), masks)
            for_sums, for_count = split_epsilon(epsilon, share)
            count_law = laplace_law(times, 1, for_count, neighbours)
        sums_law = laplace_noise(contribution, components, for_sums, neighbours, masks, mean_l1)
    elif kind != "cube":
        raise ParameterError(f"sums have no noise of the kind {kind!r}")
    else:
        sums_law, factor = cube_noise(
            contribution, components + released, epsilon, neighbours, masks
        )
        weight = factor * single.linf("add-remove")
    return SumNoise(
        sums_law,
        count_law,
        count,
        weight if released else 1,
        factor,
        mean_weight,
        rate,
        contribution.n_values,
        budget.unit,
    )


def _mean_share(
    contribution: Contribution, kind: NoiseKind, neighbours: Neighbours
) -> tuple[int, int, int]:
    """Return the weight of the coordinates, and what they add to L1 and squared L2 norms."""
    l1 = math.isqrt(contribution.dim * RECORD_MAX**2) + 1
    if kind == "laplace":
        share = MEAN_SHARE_OF_SENSITIVITY * contribution.l1(None) / l1
    else:
        norm = math.sqrt(contribution.l2_squared(None, "add-remove"))
        share = MEAN_SHARE_OF_SENSITIVITY * norm / RECORD_MAX
    weight = min(max(1, round(share)), MAX_RECORD_WEIGHT // RECORD_MAX)
    factor = 1 if neighbours == "add-remove" else 2
    return weight, factor * weight * l1, contribution.mean_l2_squared(weight, neighbours)


def _require_headroom(noise: SumNoise, largest_component: int) -> None:
    """Refuse a design whose integers could come near the ends of int64."""
    per_record = max(largest_component, noise.count_weight, noise.mean_weight * RECORD_MAX)
    too_large = per_record * MAX_RECORDS >= HEADROOM
    if too_large or any(law.reach >= HEADROOM for law in noise.laws):
        raise ParameterError(
            "the sums of this design could overflow 64-bit integers; use fewer features or a "
            "larger epsilon"
        )
