"""Choices instead of numbers: the index of a small loss, or the counts that reach a threshold.

`choice_law`: one of several losses, each a sum over records of integers between 0 and a public
width, by permute-and-flip (McKenna and Sheldon, 2020), never worse than the exponential
mechanism. A record that is added moves all losses up, which is why "add-remove" costs
width / scale and "replace" twice that.

`threshold_law`: which of very many counts reach a threshold after discrete Laplace noise. Nearly
all of them are 0 and are not looked at one by one.

`picks_law`: several of many sums, picked one after another, large magnitudes more likely. It is the
exponential mechanism without replacement, exact: no chance is computed, coins decide. Balcan et al.
(2017, Algorithm 5) choose the coordinates of a sparse center so; what a sequence of picks costs is
in docs/sparse.md.

`zoom_law` (noise/zoom.py): counts of cells, and which of them are heavy enough for a closer look.

`mechanism.choose` draws from all of them. No function takes a seed; `RandomBelow` is a private seam
for tests.

Thresholds need exact draws of how many, and of which: Binomial numbers and random subsets. A
Binomial number is found in its distribution function by a uniform number whose bits are drawn as
they are needed: 64 at first, more where these leave open on which side of a bound it lies. The
bounds are computed in decimal numbers with an error that is known, and with more digits whenever
more bits are. So the law is the stated one, not one close to it, also for 2^60 trials of a tiny
irrational probability.
"""

from __future__ import annotations

import decimal
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers
from privsketch.facts.budget import Neighbours, exact
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import discrete_laplace_variance, laplace_scale
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.samplers import RandomBelow, RandomBytes, discrete_laplace
from privsketch.noise.zoom import ZoomLaw, draw_zoom

_MAX_EXPONENT = 10**6  # threshold / scale, for the digits that Binomial numbers have to spare
MAX_TRIALS = 2**62  # children of cubes, whose places are 64-bit integers
MAX_EXPECTED = 1e5  # the distribution function is walked through one value at a time
_WORD = 64  # random bits at a time; more are drawn until they decide
# Digits lost at most: 19 by the power of up to 2^62 trials, 7 by the exponent of the
# probability (below 1e7), 6 by the walk, and some that are never missed.
_SPARE = 45
_MAX_PROPOSALS = 2**15  # at a time


def pure_receipt(law: NoiseLaw, scale: float, source: str | None, sampler: str) -> Receipt:
    """Return the receipt that all choices share: epsilon, no delta, and the sampler."""
    return Receipt(
        mechanism="",
        epsilon=law.epsilon,
        delta=0.0,
        neighbours=law.neighbours,
        source=source,
        law=law.kind,
        sensitivity=float(law.sensitivity),
        scale=scale,
        calibration="scale = sensitivity / epsilon",
        sampler=sampler,
    )


@dataclass(frozen=True)
class ChoiceLaw(NoiseLaw):
    """Choice of one of `n_components` losses; `sensitivity` is the width of a record's loss."""

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """Return the cost of one choice."""
        doubled = "" if self.neighbours == "add-remove" else "2 "
        return replace(
            pure_receipt(self, scale, source, sampler),
            mechanism=f"permute-and-flip among {self.n_components} losses",
            norm="width of a record's loss",
            calibration=f"scale = {doubled}width / epsilon",
        )


@dataclass(frozen=True)
class ThresholdLaw(NoiseLaw):
    """Test which of `n_components` noisy counts of disjoint sets reach `threshold`."""

    threshold: int = 1

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """Return the cost of one test of all counts."""
        return replace(
            pure_receipt(self, scale, source, sampler),
            mechanism=f"which of {self.n_components} counts reach {self.threshold} with "
            "discrete Laplace noise",
            norm="L1",
        )

    def chance(self, count: int) -> float:
        """Return the probability that a count reaches the threshold: f_D in docs/theory.md."""
        q, missing = np.exp(-1 / self.scale), self.threshold - count
        if missing >= 0:
            return float(q**missing / (1 + q))
        return float(1 - q ** (1 - missing) / (1 + q))

    def check_expected(self) -> None:
        """Raise if noise alone would bring more counts to the threshold than can be used."""
        if not (self.threshold / self.scale <= _MAX_EXPONENT and self.n_components < MAX_TRIALS):
            raise ParameterError(
                f"`threshold={self.threshold}` for {self.n_components} counts: too large; use "
                "fewer levels or fewer dimensions"
            )
        expected = self.n_components * self.chance(0)
        if expected > MAX_EXPECTED:
            raise ParameterError(
                f"`threshold={self.threshold}`: noise alone would bring about {expected:.3g} of "
                f"{self.n_components} empty cubes to it; use a larger threshold, fewer levels or "
                "fewer dimensions"
            )


def choice_law(width: int, n_choices: int, epsilon: float, neighbours: Neighbours) -> ChoiceLaw:
    """Return permute-and-flip for losses to which one record adds between 0 and `width`."""
    scale = laplace_scale(width if neighbours == "add-remove" else 2 * width, epsilon)
    return ChoiceLaw("choice", n_choices, width, epsilon, 0.0, neighbours, scale, scale**2)


def threshold_law(
    threshold: int, n_counts: int, epsilon: float, neighbours: Neighbours
) -> ThresholdLaw:
    """Return noise for counts of disjoint sets that are named if they reach the threshold.

    A record is in one set; a replacement changes two.
    """
    if threshold < 1:
        raise ParameterError("threshold", threshold, "expected an integer of at least 1")
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
    """Draw for `mechanism.choose`, and return the scale used."""
    if isinstance(law, ChoiceLaw):
        index, scale = permute_and_flip(values, law)
        return np.array([index], dtype=np.int64), scale
    if isinstance(law, ThresholdLaw):
        return reaching(values, law), law.scale
    if isinstance(law, PicksLaw):
        return pick_largest(values, law), law.scale
    if isinstance(law, ZoomLaw):
        return draw_zoom(values, law), law.scale
    raise ParameterError(f"law of kind {law.kind!r}: it draws numbers, not choices")


def permute_and_flip(losses: Integers, law: ChoiceLaw) -> tuple[int, float]:
    """Return the index of a small loss, and a scale at which OpenDP certifies epsilon."""
    if len(losses) != law.n_components or len(losses) == 0:
        raise ParameterError(f"losses: expected {law.n_components} of them, at least one")
    is_monotonic = law.neighbours == "add-remove"
    measurement, scale = _certified(int(law.sensitivity), law.scale, law.epsilon, is_monotonic)
    return int(measurement(np.ascontiguousarray(losses, dtype=np.int64))), scale


@lru_cache(maxsize=16)
def _certified(width: int, scale: float, epsilon: float, is_monotonic: bool) -> tuple[Any, float]:
    """Return OpenDP's measurement and its scale.

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
    """Return the indices of the counts that reach the threshold with noise, in order.

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
    """Return exp(-exponent) in the current decimal context."""
    return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def draw_binomial(
    n_trials: int, probability: Callable[[], Decimal], random_below: RandomBelow = secrets.randbelow
) -> int:
    """Draw the number of successes of `n_trials` independent trials.

    `probability` computes that of one trial in the current decimal context, to a relative error
    of at most 10^(8 - digits).
    """
    if not 0 <= n_trials < MAX_TRIALS:
        raise ParameterError(f"`n_trials={n_trials}`: expected 0 to 2^62")
    if n_trials == 0:
        return 0
    if n_trials * float(probability()) > 2 * MAX_EXPECTED:
        raise ParameterError("probability: too many successes are expected for an exact draw")
    word, bits = random_below(2**_WORD), _WORD
    while True:
        found = _located(word, bits, n_trials, probability)
        if found is not None:
            return found
        word, bits = word << _WORD | random_below(2**_WORD), bits + _WORD


def _located(word: int, bits: int, n_trials: int, probability: Callable[[], Decimal]) -> int | None:
    """Return the value for every uniform number that starts with these bits, if there is one."""
    digits = bits // 3 + 2 * _SPARE
    context = decimal.Context(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])
    with decimal.localcontext(context):
        error = Decimal(10) ** (_SPARE - digits)
        low, high = Decimal(word) / 2**bits, Decimal(word + 1) / 2**bits
        success = probability()
        odds = success / (1 - success)
        term = ((1 - success).ln() * n_trials).exp()
        below = term
        for value in range(n_trials):
            if high <= below - error:
                return value
            if low < below + error:
                return None
            term *= odds * (n_trials - value) / (value + 1)
            below += term
    return n_trials


def draw_subset(
    n_things: int, n_chosen: int, random_below: RandomBelow = secrets.randbelow
) -> list[int]:
    """Draw a uniform set of `n_chosen` of the numbers 0..n_things-1 (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last in range(n_things - n_chosen, n_things):
        candidate = random_below(last + 1)
        chosen.add(last if candidate in chosen else candidate)
    return sorted(chosen)


@dataclass(frozen=True)
class PicksLaw(NoiseLaw):
    """`n_picks` of `n_components` sums, by the exponential mechanism without replacement.

    `sensitivity` is what one record adds to all exponents of the chance of a sequence of picks,
    in the units of the sums; docs/sparse.md.
    """

    n_picks: int = 1

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """Return the cost of one sequence of picks."""
        doubled = "" if self.neighbours == "add-remove" else "2 "
        return replace(
            pure_receipt(self, scale, source, sampler),
            mechanism=f"exponential mechanism: {self.n_picks} of {self.n_components} sums, "
            "one after another",
            norm="picks times the largest entry, and L1",
            calibration=f"scale = {doubled}sensitivity / epsilon",
        )


def picks_law(
    linf: int, l1: int, n_sums: int, n_picks: int, epsilon: float, neighbours: Neighbours
) -> PicksLaw:
    """Return picks with chances proportional to exp(|sum| / scale), without replacement.

    A record adds at most `linf` to one sum and `l1` to any `n_picks` of them together. It moves
    the logarithm of each normaliser by at most linf / scale, and all numerators together by at
    most l1 / scale. Permute-and-flip has no normalisers; it would cost 2 linf / scale a pick.
    """
    if not 1 <= n_picks <= n_sums:
        raise ParameterError("picks", n_picks, f"expected 1 to {n_sums}, the number of columns")
    sensitivity = n_picks * linf + l1
    doubled = sensitivity if neighbours == "add-remove" else 2 * sensitivity
    scale = laplace_scale(doubled, epsilon)
    return PicksLaw(
        "picks", n_sums, sensitivity, epsilon, 0.0, neighbours, scale, scale**2, n_picks=n_picks
    )


def pick_largest(sums: Integers, law: PicksLaw, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Pick indices (k, n_picks) of large magnitudes in rows (k, n_components), in order.

    A record is in one row. A uniform proposal r is taken if discrete Laplace noise reaches the
    distance from |sum r| to the largest magnitude left: the chance of that, exp(-distance /
    scale) over a constant, is what the exponential mechanism asks for.
    """
    doubled = law.sensitivity if law.neighbours == "add-remove" else 2 * law.sensitivity
    if sums.ndim != 2 or sums.shape[1] != law.n_components:
        raise ParameterError(f"sums: expected rows of {law.n_components}")
    if Fraction(doubled) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("picks: not calibrated to their epsilon")
    picked = np.empty((len(sums), law.n_picks), dtype=np.int64)
    for row, magnitudes in enumerate(np.abs(sums)):
        left = np.arange(law.n_components)
        for number in range(law.n_picks):
            distances = magnitudes[left].max() - magnitudes[left]
            place = _reached(distances, law.scale, random_bytes)
            picked[row, number] = left[place]
            left = np.delete(left, place)
    return picked


def _reached(distances: Integers, scale: float, random_bytes: RandomBytes) -> int:
    """Return the first of uniform proposals whose noise reaches its distance."""
    bits = (len(distances) - 1).bit_length()
    batch = 64
    while True:
        words = np.frombuffer(random_bytes(8 * batch), dtype=np.uint64)
        # The top bits, and none of the words that name no place: uniform.
        places = (words >> np.uint64(64 - bits)).view(np.int64) if bits else np.zeros(batch, int)
        places = places[places < len(distances)]
        noise = discrete_laplace(len(places), scale, random_bytes)
        taken = np.flatnonzero(noise >= distances[places])
        if len(taken):
            return int(places[taken[0]])
        batch = min(2 * batch, _MAX_PROPOSALS)
