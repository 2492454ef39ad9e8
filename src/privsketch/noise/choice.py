"""Choices instead of numbers: the index of a small loss, or the counts that reach a threshold.

`choice_law`: one of several losses, each a sum over records of integers between 0 and a public
width, by permute-and-flip (McKenna and Sheldon, 2020), never worse than the exponential
mechanism. A record that is added moves all losses up, which is why "add-remove" costs
width / scale and "replace" twice that.

`threshold_law`: which of very many counts reach a threshold after discrete Laplace noise. Nearly
all of them are 0 and are not looked at one by one.

`mechanism.choose` draws from both, and from noise/picks.py; no function here takes a seed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from privsketch._typing import Integers
from privsketch.budget import Neighbours, Receipt, exact
from privsketch.errors import ParameterError
from privsketch.noise.binomial import MOST_EXPECTED, MOST_TRIALS, draw_binomial, draw_subset
from privsketch.noise.bulk import RandomBytes, discrete_laplace
from privsketch.noise.calibration import discrete_laplace_variance, laplace_scale
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.picks import PicksLaw, pick_largest
from privsketch.noise.samplers import RandomBelow

_MOST_EXPONENT = 10**6  # threshold / scale, for the digits that noise/binomial has to spare


@dataclass(frozen=True)
class ChoiceLaw(NoiseLaw):
    """One of `n_components` losses; `sensitivity` is the width of one record's loss."""

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """What one choice costs."""
        return Receipt(
            mechanism=f"permute-and-flip among {self.n_components} losses",
            epsilon=self.epsilon,
            delta=0.0,
            neighbours=self.neighbours,
            source=source,
            sensitivity=f"{self.sensitivity:.12g} (width of a record's loss)",
            scale=scale,
            calibration="scale = width / epsilon"
            if self.neighbours == "add-remove"
            else "scale = 2 width / epsilon",
            sampler=sampler,
        )


@dataclass(frozen=True)
class ThresholdLaw(NoiseLaw):
    """Which of `n_components` counts reach `threshold` with noise; a record is in one of them."""

    threshold: int = 1

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """What one look at all counts costs."""
        return Receipt(
            mechanism=f"which of {self.n_components} counts reach {self.threshold} with "
            "discrete Laplace noise",
            epsilon=self.epsilon,
            delta=0.0,
            neighbours=self.neighbours,
            source=source,
            sensitivity=f"{self.sensitivity:.12g} (L1)",
            scale=scale,
            calibration="scale = sensitivity / epsilon",
            sampler=sampler,
        )

    def chance(self, count: int) -> float:
        """Probability that a count reaches the threshold: f_D in docs/theory.md."""
        q, missing = np.exp(-1 / self.scale), self.threshold - count
        if missing >= 0:
            return float(q**missing / (1 + q))
        return float(1 - q ** (1 - missing) / (1 + q))

    def check_expected(self) -> None:
        """Raise if noise alone would bring more counts to the threshold than can be used."""
        if not (self.threshold / self.scale <= _MOST_EXPONENT and self.n_components < MOST_TRIALS):
            raise ParameterError(
                f"threshold={self.threshold} for {self.n_components} counts: too large; use fewer "
                "levels or fewer dimensions"
            )
        expected = self.n_components * self.chance(0)
        if expected > MOST_EXPECTED:
            raise ParameterError(
                f"threshold={self.threshold}: noise alone would bring about {expected:.3g} of "
                f"{self.n_components} empty cubes to it; use a larger threshold, fewer levels or "
                "fewer dimensions"
            )


def choice_law(width: int, n_choices: int, epsilon: float, neighbours: Neighbours) -> ChoiceLaw:
    """Permute-and-flip for losses to which one record adds between 0 and `width`."""
    scale = laplace_scale(width if neighbours == "add-remove" else 2 * width, epsilon)
    return ChoiceLaw("choice", n_choices, width, epsilon, 0.0, neighbours, scale, scale**2)


def threshold_law(
    threshold: int, n_counts: int, epsilon: float, neighbours: Neighbours
) -> ThresholdLaw:
    """Noise for counts of disjoint sets, of which only those that reach the threshold are named.

    A record is in one set; a replacement changes two.
    """
    if threshold < 1:
        raise ParameterError(f"threshold={threshold!r}: expected an integer of at least 1")
    sensitivity = 1 if neighbours == "add-remove" else 2
    scale = laplace_scale(sensitivity, epsilon)
    variance = discrete_laplace_variance(scale)
    return ThresholdLaw(
        "threshold",
        n_counts,
        sensitivity,
        epsilon,
        0.0,
        neighbours,
        scale,
        variance,
        threshold=threshold,
    )


def draw_choice(values: Integers, law: NoiseLaw) -> tuple[Integers, float]:
    """What `mechanism.choose` draws, and the scale used."""
    if isinstance(law, ChoiceLaw):
        index, scale = permute_and_flip(values, law)
        return np.array([index], dtype=np.int64), scale
    if isinstance(law, ThresholdLaw):
        return reaching(values, law), law.scale
    if isinstance(law, PicksLaw):
        return pick_largest(values, law), law.scale
    raise ParameterError(f"law of kind {law.kind!r}: it draws numbers, not choices")


def permute_and_flip(losses: Integers, law: ChoiceLaw) -> tuple[int, float]:
    """Index of a small loss, and the scale: the law's, raised until OpenDP certifies epsilon."""
    if len(losses) != law.n_components or len(losses) == 0:
        raise ParameterError(f"losses: expected {law.n_components} of them, at least one")
    is_monotonic = law.neighbours == "add-remove"
    measurement, scale = _certified(int(law.sensitivity), law.scale, law.epsilon, is_monotonic)
    return int(measurement(np.ascontiguousarray(losses, dtype=np.int64))), scale


@lru_cache(maxsize=16)
def _certified(width: int, scale: float, epsilon: float, is_monotonic: bool) -> tuple[Any, float]:
    """The measurement of OpenDP and its scale.

    Adding a record moves all losses the same way (monotonic); a replacement may move them apart.
    """
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence
    from opendp.metrics import linf_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    metric = linf_distance(T="i64", monotonic=is_monotonic)
    space = vector_domain(atom_domain(T="i64")), metric, max_divergence()
    measurement = make_noisy_max(*space, scale, negate=True)
    while Fraction(measurement.map(width)) > exact(epsilon):
        scale = float(np.nextafter(scale, np.inf))
        measurement = make_noisy_max(*space, scale, negate=True)
    return measurement, scale


def reaching(
    occupied: Integers,
    law: ThresholdLaw,
    random_bytes: RandomBytes | None = None,
    random_below: RandomBelow = secrets.randbelow,
) -> Integers:
    """Places of the counts that reach the threshold with noise, in order.

    `occupied` are the counts above 0 as rows (place, count), places increasing.

    Why zeros need no noise of their own: were all counts noised, a zero would reach the threshold
    with the same chance f = q^threshold / (1 + q), q = exp(-1 / scale), each by itself and
    independently of the other counts. Then the number of zeros that do is Binomial with as many
    trials as there are zeros, and given the number every set of that many zeros is as likely as
    any other. That is what is drawn. Nothing else about the noisy counts is used.
    """
    if Fraction(law.sensitivity) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("threshold: noise not calibrated to its epsilon")
    law.check_expected()
    places, counts = occupied[:, 0], occupied[:, 1]
    source = {} if random_bytes is None else {"random_bytes": random_bytes}
    noisy = counts + discrete_laplace(len(counts), law.scale, **source)
    n_empty = law.n_components - len(places)
    rate, threshold = 1 / Fraction(law.scale), law.threshold

    def chance_of_empty() -> Decimal:
        return _exp_minus(threshold * rate) / (1 + _exp_minus(rate))

    n_reached = draw_binomial(n_empty, chance_of_empty, random_below)
    ranks = np.array(draw_subset(n_empty, n_reached, random_below), dtype=np.int64)
    # The r-th zero lies behind all occupied places that have at most r zeros before them.
    zeros_before = places - np.arange(len(places))
    empty = ranks + np.searchsorted(zeros_before, ranks, side="right")
    return np.sort(np.concatenate([places[noisy >= threshold], empty]))


def _exp_minus(exponent: Fraction) -> Decimal:
    """exp(-exponent) in the current decimal context."""
    return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
