"""Exact draws of how many, and of which: Binomial numbers and random subsets.

A Binomial number is found in its distribution function by a uniform number whose bits are drawn
as they are needed: 64 at first, more where these leave open on which side of a bound it lies.
The bounds are computed in decimal numbers with an error that is known, and with more digits
whenever more bits are. So the law is the stated one, not one close to it, also for 2^60 trials
of a tiny irrational probability.

No function takes a seed. `RandomBelow` is a private seam for tests.
"""

from __future__ import annotations

import decimal
import secrets
from collections.abc import Callable
from decimal import Decimal

from privsketch.errors import ParameterError
from privsketch.noise.samplers import RandomBelow

MOST_TRIALS = 2**62
MOST_EXPECTED = 1e5  # the distribution function is walked through one value at a time
_WORD = 64
# Digits lost at most: 19 by the power of up to 2^62 trials, 7 by the exponent of the
# probability (below 1e7), 6 by the walk, and some that are never missed.
_SPARE = 45


def draw_binomial(
    n_trials: int,
    probability: Callable[[], Decimal],
    random_below: RandomBelow = secrets.randbelow,
) -> int:
    """How many of `n_trials` independent trials succeed.

    `probability` computes that of one trial in the current decimal context, to a relative error
    of at most 10^(8 - digits).
    """
    if not 0 <= n_trials < MOST_TRIALS:
        raise ParameterError(f"n_trials={n_trials}: expected 0 to 2^62")
    if n_trials == 0:
        return 0
    if n_trials * float(probability()) > 2 * MOST_EXPECTED:
        raise ParameterError("probability: too many successes are expected for an exact draw")
    word, bits = random_below(2**_WORD), _WORD
    while True:
        found = _located(word, bits, n_trials, probability)
        if found is not None:
            return found
        word, bits = word << _WORD | random_below(2**_WORD), bits + _WORD


def _located(word: int, bits: int, n_trials: int, probability: Callable[[], Decimal]) -> int | None:
    """The value for every uniform number that starts with these bits, or None if it depends."""
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
    """Uniform among all sets of `n_chosen` of the numbers 0..n_things-1 (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last in range(n_things - n_chosen, n_things):
        candidate = random_below(last + 1)
        chosen.add(last if candidate in chosen else candidate)
    return sorted(chosen)
