"""Mechanisms that choose: the index of a small loss, or the counts that reach a threshold.

`choice_law` selects one of several losses, each a sum over records of integers between 0 and a
public width. It uses permute-and-flip (McKenna and Sheldon, 2020), which is never worse than the
exponential mechanism. An added record moves all losses up, so "add-remove" costs width / scale and
"replace" twice that.

`threshold_law` selects those of very many counts that reach a threshold after discrete Laplace
noise. Nearly all counts are 0, and these are not noised one by one.

`picks_law` selects several of many sums, one after another, large magnitudes more likely. It is the
exact exponential mechanism without replacement: random bits decide, and no probability is computed
in floats. Balcan et al. (2017, Algorithm 5) choose the coordinates of a sparse center this way;
docs/sparse.md derives the cost of a sequence of picks.

`zoom_law` (noise/zoom.py) counts cells, and counts the parts of those that are heavy.

`mechanism.choose` draws from all of them. No function takes a seed; `RandomBelow` is a private seam
for tests.

Thresholds need exact Binomial numbers and random subsets. A Binomial number is found in its
distribution function by a uniform number whose bits are drawn as needed: 64 at first, more where
these do not decide on which side of a bound it lies. The bounds are decimal numbers with a known
error, and with more digits whenever there are more bits. So the law is exactly the stated one, even
for 2^60 trials of a tiny irrational probability.
"""

from __future__ import annotations

import decimal
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers
from privsketch.facts.budget import Neighbours, exact
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.samplers import (
    RandomBelow,
    RandomBytes,
    discrete_laplace,
    exp_minus,
    integer_vectors,
)
from privsketch.noise.zoom import ZoomLaw, draw_zoom

_MAX_EXPONENT = 10**6  # largest threshold / scale for the spare digits of Binomial numbers
MAX_TRIALS = 2**62  # children of cubes, whose indices are 64-bit integers
MAX_EXPECTED = 1e5  # successes: the distribution function is computed value by value
_WORD = 64  # random bits at a time; more are drawn until they decide
# Digits lost at most: 19 by the power of up to 2^62 trials, 7 by the exponent of the
# probability (below 1e7), 6 by the sum over values; the rest is a reserve.
_SPARE = 45
_MAX_PROPOSALS = 2**15  # drawn at a time


@dataclass(frozen=True)
class ChoiceLaw(NoiseLaw):
    """Choice of one of `n_components` losses; `sensitivity` is the width of a record's loss."""

    def words(self) -> tuple[str, str, str]:
        """Return mechanism, norm and calibration, as receipts state them."""
        doubled = "" if self.neighbours == "add-remove" else "2 "
        mechanism = f"permute-and-flip among {self.n_components} losses"
        return mechanism, "width of a record's loss", f"scale = {doubled}width / epsilon"


@dataclass(frozen=True)
class ThresholdLaw(NoiseLaw):
    """Test which of `n_components` noisy counts of disjoint sets reach `threshold`."""

    threshold: int = 1

    def words(self) -> tuple[str, str, str]:
        """Return mechanism, norm and calibration, as receipts state them."""
        counts = f"which of {self.n_components} counts reach {self.threshold}"
        return f"{counts} with discrete Laplace noise", "L1", "scale = sensitivity / epsilon"

    def chance(self, count: int) -> float:
        """Return the probability that a count reaches the threshold: f_D in docs/theory.md."""
        q, distance = np.exp(-1 / self.scale), self.threshold - count
        if distance >= 0:
            return float(q**distance / (1 + q))
        return float(1 - q ** (1 - distance) / (1 + q))

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
    times = 1 if neighbours == "add-remove" else 2
    facts = n_choices, width, epsilon, neighbours
    return ChoiceLaw.pure("choice", *facts, times=times, variance=lambda scale: scale**2)


def threshold_law(
    threshold: int, n_counts: int, epsilon: float, neighbours: Neighbours
) -> ThresholdLaw:
    """Return noise for counts of disjoint sets that are named if they reach the threshold.

    A record is in one set; a replacement changes two.
    """
    if threshold < 1:
        raise ParameterError("threshold", threshold, "expected an integer of at least 1")
    sensitivity = 1 if neighbours == "add-remove" else 2
    facts = n_counts, sensitivity, epsilon, neighbours
    return ThresholdLaw.pure("threshold", *facts, threshold=threshold)


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
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence
    from opendp.metrics import linf_distance

    metric = linf_distance(T="i64", monotonic=is_monotonic)
    space = integer_vectors(), metric, max_divergence()
    measurement = make_noisy_max(*space, scale, negate=True)
    while Fraction(measurement.map(width)) > exact(epsilon):
        scale = float(np.nextafter(scale, np.inf))
        measurement = make_noisy_max(*space, scale, negate=True)
    return measurement, scale


def reaching(
    occupied: Integers, law: ThresholdLaw, random_below: RandomBelow = secrets.randbelow
) -> Integers:
    """Return the indices of the counts that reach the threshold with noise, in order.

    `occupied` are the counts above 0 as rows (index, count), indices increasing.

    Why zeros need no noise of their own: were all counts noised, every zero would reach the
    threshold with the same probability f = q^threshold / (1 + q), q = exp(-1 / scale),
    independently of all other counts. Their number is then Binomial with as many trials as there
    are zeros, and given the number all sets of that many zeros are equally likely. This number and
    such a set are drawn. Nothing else about the noisy counts is used.
    """
    if Fraction(law.sensitivity) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("threshold: noise not calibrated to its epsilon")
    law.check_expected()
    indices, counts = occupied[:, 0], occupied[:, 1]
    noisy = counts + discrete_laplace(len(counts), law.scale)
    n_empty = law.n_components - len(indices)
    rate, threshold = 1 / Fraction(law.scale), law.threshold

    def chance_of_empty() -> Decimal:
        return exp_minus(threshold * rate) / (1 + exp_minus(rate))

    n_reached = draw_binomial(n_empty, chance_of_empty, random_below)
    ranks = np.array(draw_subset(n_empty, n_reached, random_below), dtype=np.int64)
    # The r-th zero lies behind all occupied indices that have at most r zeros before them.
    zeros_before = indices - np.arange(len(indices))
    empty = ranks + np.searchsorted(zeros_before, ranks, side="right")
    return np.sort(np.concatenate([indices[noisy >= threshold], empty]))


def draw_binomial(
    n_trials: int, probability: Callable[[], Decimal], random_below: RandomBelow = secrets.randbelow
) -> int:
    """Draw the number of successes of `n_trials` independent trials.

    `probability` computes the probability of one trial in the current decimal context, to a
    relative error of at most 10^(8 - digits).
    """
    if not 0 <= n_trials < MAX_TRIALS:
        raise ParameterError(f"`n_trials={n_trials}`: expected 0 to 2^62")
    if n_trials == 0:
        return 0
    if n_trials * float(probability()) > 2 * MAX_EXPECTED:
        raise ParameterError("probability: too many successes are expected for an exact draw")
    word, bits = random_below(2**_WORD), _WORD
    while True:
        value = _located(word, bits, n_trials, probability)
        if value is not None:
            return value
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
    subset: set[int] = set()
    for last in range(n_things - n_chosen, n_things):
        candidate = random_below(last + 1)
        subset.add(last if candidate in subset else candidate)
    return sorted(subset)


@dataclass(frozen=True)
class PicksLaw(NoiseLaw):
    """`n_picks` of `n_components` sums, by the exponential mechanism without replacement.

    `sensitivity` is what one record adds to all exponents of the chance of a sequence of picks,
    in the units of the sums; docs/sparse.md.
    """

    n_picks: int = 1

    def words(self) -> tuple[str, str, str]:
        """Return mechanism, norm and calibration, as receipts state them."""
        doubled = "" if self.neighbours == "add-remove" else "2 "
        picks = f"{self.n_picks} of {self.n_components} sums, one after another"
        norm = "picks times the largest entry, and L1"
        return f"exponential mechanism: {picks}", norm, f"scale = {doubled}sensitivity / epsilon"


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
    times = 1 if neighbours == "add-remove" else 2
    facts = n_sums, sensitivity, epsilon, neighbours
    return PicksLaw.pure(
        "picks", *facts, times=times, variance=lambda scale: scale**2, n_picks=n_picks
    )


def pick_largest(sums: Integers, law: PicksLaw, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Pick indices (k, n_picks) of large magnitudes in rows (k, n_components), in order.

    A record is in one row. A uniform proposal r is accepted if discrete Laplace noise reaches the
    distance from |sum r| to the largest remaining magnitude. Its probability, exp(-distance /
    scale) over a constant, is that of the exponential mechanism.
    """
    doubled = law.sensitivity if law.neighbours == "add-remove" else 2 * law.sensitivity
    if sums.ndim != 2 or sums.shape[1] != law.n_components:
        raise ParameterError(f"sums: expected rows of {law.n_components}")
    if Fraction(doubled) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("picks: not calibrated to their epsilon")
    picked = np.empty((len(sums), law.n_picks), dtype=np.int64)
    for row, magnitudes in enumerate(np.abs(sums)):
        remaining = np.arange(law.n_components)
        for number in range(law.n_picks):
            distances = magnitudes[remaining].max() - magnitudes[remaining]
            index = _reached(distances, law.scale, random_bytes)
            picked[row, number] = remaining[index]
            remaining = np.delete(remaining, index)
    return picked


def _reached(distances: Integers, scale: float, random_bytes: RandomBytes) -> int:
    """Return the first of uniform proposals whose noise reaches its distance."""
    bits = (len(distances) - 1).bit_length()
    batch = 64
    while True:
        words = np.frombuffer(random_bytes(8 * batch), dtype=np.uint64)
        # Top bits, without those that are no index: uniform.
        indices = (words >> np.uint64(64 - bits)).view(np.int64) if bits else np.zeros(batch, int)
        indices = indices[indices < len(distances)]
        noise = discrete_laplace(len(indices), scale, random_bytes)
        accepted = np.flatnonzero(noise >= distances[indices])
        if len(accepted):
            return int(indices[accepted[0]])
        batch = min(2 * batch, _MAX_PROPOSALS)
