"""Exact integer noise from the operating system's random generator.

Discrete Laplace and discrete Gaussian noise of short vectors come from OpenDP, whose samplers are
proven and take no seed. Cube noise is written here because no library has it:
P(z) ~ exp(-epsilon |z|_inf / sensitivity) on Z^D, the K-norm mechanism of the cube
(Hardt and Talwar, 2010), sampled with integers only.

Long vectors are drawn in bulk. A release of projected records needs one number for every entry of
a table, and OpenDP's samplers take 7 to 12 microseconds for each. Here the same laws are drawn in
whole arrays, a hundred times faster and just as exactly. Every decision compares random bits with
a real number. Floats decide where they are certain to be right; the rare rest (one decision in
2^16, then in 2^45) is decided with as many digits as necessary.

Discrete Laplace, P(z) ~ exp(-|z| / b): the magnitude is geometric, and the low bits and the rest
of a geometric variable are independent. Low bits are uniform and kept with probability
exp(-low / b); the rest is found in its distribution function. Discrete Gaussian: a discrete
Laplace variable, kept with the probability of Canonne, Kamath and Steinke (2020, Algorithm 3).

Beyond 64 bits, which happens with a chance of less than 1e-20, values are right modulo 2^64.

No function takes a seed. `RandomBelow` and `RandomBytes` are private seams for tests.
"""

from __future__ import annotations

import decimal
import math
import os
import secrets
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers, Words
from privsketch.facts.budget import exact

RandomBelow = Callable[[int], int]  # uniform on 0..bound-1


def add_discrete_laplace(
    values: Integers, scale: float, l1_sensitivity: int, epsilon: float
) -> tuple[Integers, float]:
    """Return noisy values, and the scale, raised until OpenDP certifies epsilon."""
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance

    make = partial(make_laplace, integer_vectors(), l1_distance(T="i64"))
    return _add_certified(values, scale, make, l1_sensitivity, exact(epsilon))


def add_discrete_gaussian(
    values: Integers, scale: float, l2_sensitivity: float, rho: float
) -> tuple[Integers, float]:
    """Return noisy values, and the scale, raised until OpenDP certifies rho-zCDP."""
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance

    make = partial(make_gaussian, integer_vectors(), l2_distance(T="f64"))
    return _add_certified(values, scale, make, l2_sensitivity, Fraction(rho))


def integer_vectors() -> Any:
    """Return OpenDP's domain of vectors of 64-bit integers."""
    # Parts of OpenDP, not its prelude, which imports every data frame library it finds.
    from opendp.domains import atom_domain, vector_domain
    from opendp.mod import enable_features

    enable_features("contrib")
    return vector_domain(atom_domain(T="i64"))


def _add_certified(
    values: Integers,
    scale: float,
    make: Callable[[float], Any],
    sensitivity: float,
    allowed: Fraction,
) -> tuple[Integers, float]:
    # OpenDP accepts a scale of 0 and adds no noise at all.
    if not (scale > 0 and math.isfinite(scale)):
        raise ParameterError(f"noise scale {scale!r}: must be positive and finite")
    measurement = make(scale)
    while Fraction(measurement.map(sensitivity)) > allowed:
        scale = math.nextafter(scale, math.inf)
        measurement = make(scale)
    noisy = measurement(np.ascontiguousarray(values, dtype=np.int64))
    return np.array(noisy, dtype=np.int64), scale


def draw_cube(
    n_components: int,
    sensitivity: int,
    epsilon: float,
    random_below: RandomBelow = secrets.randbelow,
) -> list[int]:
    """Draw cube noise on Z^D once, as Python integers.

    With q = exp(-epsilon / sensitivity), q^|z| is a mixture over radii R >= |z| of
    (1 - q) q^R, so R has P(R) ~ (2 R + 1)^D q^R and the components are then uniform on
    -R..R. R is proposed as a sum of D + 1 geometric variables, P ~ q^R prod_i (R + i),
    and accepted with probability prod_i (2 R + 1) / (2 R + 2 i).
    """
    rate = exact(epsilon) / sensitivity
    while True:
        radius = sum(_geometric(rate, random_below) for _ in range(n_components + 1))
        if all(
            random_below(2 * radius + 2 * i) < 2 * radius + 1 for i in range(1, n_components + 1)
        ):
            break
    return [random_below(2 * radius + 1) - radius for _ in range(n_components)]


def _geometric(rate: Fraction, random_below: RandomBelow) -> int:
    """Draw P(g) ~ exp(-rate g), g = 0, 1, ... (Canonne, Kamath and Steinke, 2020, Algorithm 2).

    With rate = s / t: U uniform below t kept with probability exp(-U / t), V counts
    successes of exp(-1), and (U + t V) // s has the wanted law.
    """
    s, t = rate.numerator, rate.denominator
    while True:
        u = random_below(t)
        if _coin(Fraction(u, t), random_below):
            break
    v = 0
    while _coin(Fraction(1), random_below):
        v += 1
    return (u + t * v) // s


def _coin(rate: Fraction, random_below: RandomBelow) -> bool:
    """Return True with probability exp(-rate), 0 <= rate <= 1 (same source, Algorithm 1).

    Stop at the first k with a failed Bernoulli(rate / k): the chance that k is odd is
    the alternating series of exp(-rate).
    """
    numerator, denominator = rate.numerator, rate.denominator
    k = 1
    while random_below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


RandomBytes = Callable[[int], bytes]
# Numbers drawn together: their arrays stay in the cache (python -m benchmarks constants noise).
CHUNK = 2**15
_N_BOUNDS = 2**11  # a guard: the upper part starts again beyond it, with a chance below e^-32
_LOW_IN_WORD = 31  # low bits that fit a word beside a sign and twice 16 bits
_FLOAT_ERROR = 2.0**-45  # above the rounding error of every probability computed in floats


def discrete_laplace(count: int, scale: float, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Draw `count` independent numbers with P(z) ~ exp(-|z| / scale) on the integers."""
    law = _geometric_law(Fraction(scale))
    out = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK):
        part = out[start : start + CHUNK]
        part[:] = _laplace(len(part), law, random_bytes)
    return out


def discrete_gaussian(count: int, sigma: float, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Draw `count` independent numbers with P(z) ~ exp(-z^2 / (2 sigma^2)) on the integers."""
    scale = math.floor(sigma) + 1  # an integer: above 2^53 it may be no float
    law = _geometric_law(Fraction(scale))
    squared = Fraction(sigma) ** 2
    mode = squared / scale  # where the proposal is always kept
    out = np.empty(count, dtype=np.int64)
    done = 0
    while done < count:
        large: dict[int, int] = {}
        proposal = _laplace(min(CHUNK, 32 + 3 * (count - done) // 2), law, random_bytes, large)

        def exponent(values: Integers) -> npt.NDArray[np.float64]:
            distance = np.abs(values) - float(mode)
            return np.asarray(distance * distance * float(1 / (2 * squared)))

        def exact_exponent(value: int) -> Fraction:
            return (abs(value) - mode) ** 2 / (2 * squared)

        words = _words(len(proposal), random_bytes) >> np.uint64(32)
        is_kept = _coins(proposal, words, 32, exponent, exact_exponent, random_bytes)
        for index, value in large.items():  # 64 bits do not hold them; new bits decide
            word = int.from_bytes(random_bytes(8), "little")
            is_kept[index] = _settled_coin(word, 64, exact_exponent(value), random_bytes)
        accepted = proposal[is_kept][: count - done]
        out[done : done + len(accepted)] = accepted
        done += len(accepted)
    return out


class _Geometric:
    """Law P(g) ~ exp(-g / scale) on 0, 1, ..., of numbers g = 2^low_bits * upper + low."""

    def __init__(self, scale: Fraction) -> None:
        self.scale = scale
        # The upper part falls by a factor e within 32 to 64 steps, or at once for small scales.
        self.low_bits = max(0, math.frexp(float(scale))[1] - 6)
        self.rate = Fraction(2**self.low_bits) / self.scale
        # Distribution function of the upper part at 1.._N_BOUNDS, rounded down to 64 bits.
        self.bounds: Words = np.array(list(self._bounds()), dtype=np.uint64)
        first = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
        low = np.searchsorted(self.bounds, first, side="right")
        high = np.searchsorted(self.bounds, first + np.uint64(2**48 - 1), side="right")
        # The upper part that 16 bits determine, or -1 where they do not decide. A word that equals
        # a bound in all its 64 bits does not decide either, so such a cell is never certain.
        touched = np.zeros(2**16, dtype=np.bool_)
        touched[(self.bounds >> np.uint64(48)).astype(np.int64)] = True
        self.quick: npt.NDArray[np.int16] = np.where((low == high) & ~touched, low, -1).astype(
            np.int16
        )

    def _bounds(self) -> Iterator[int]:
        """Yield `bits_below` at 64 bits for 1.._N_BOUNDS, by powers of one number where certain."""
        with decimal.localcontext(decimal.Context(prec=80, traps=[])):
            factor = exp_minus(self.rate)
            power, error = Decimal(1), Decimal(10) ** -40
            for j in range(1, _N_BOUNDS + 1):
                power *= factor
                scaled = (1 - power) * 2**64
                low, high = math.floor(scaled - error), math.floor(scaled + error)
                high = min(high, 2**64 - 1)
                yield low if low == high else self.bits_below(j, 64)

    def bits_below(self, j: int, bits: int) -> int:
        """Return floor(2^bits P(upper < j))."""
        return _floor_below_one(lambda: 1 - exp_minus(j * self.rate), bits)


@lru_cache(maxsize=64)
def _geometric_law(scale: Fraction) -> _Geometric:
    return _Geometric(scale)


def _laplace(
    count: int, law: _Geometric, random_bytes: RandomBytes, large: dict[int, int] | None = None
) -> Integers:
    """Draw magnitude and sign; zero with a minus sign does not count and is drawn again.

    Sums and products of 64-bit integers wrap, so that values are right modulo 2^64 in any case;
    `large` collects those whose magnitude is 2^62 or more, by their index.
    """
    words = _words(count, random_bytes)
    upper = _upper(words >> np.uint64(47) & np.uint64(0xFFFF), law, random_bytes)
    low = _low(words, law, random_bytes)
    magnitude = (upper << law.low_bits) + low
    negative = words >> np.uint64(63) != 0
    values = np.where(negative, -magnitude, magnitude)
    if large is not None:
        for index in np.flatnonzero(upper >= 1 << max(62 - law.low_bits, 0)).tolist():
            size = (int(upper[index]) << law.low_bits) + int(low[index])
            large[index] = -size if negative[index] else size
    minus_zeros = np.flatnonzero(negative & (upper == 0) & (low == 0))
    if len(minus_zeros):
        redrawn_large: dict[int, int] = {}
        values[minus_zeros] = _laplace(len(minus_zeros), law, random_bytes, redrawn_large)
        if large is not None:
            large.update({int(minus_zeros[index]): value for index, value in redrawn_large.items()})
    return values


def _low(words: Words, law: _Geometric, random_bytes: RandomBytes) -> Integers:
    """Return low bits, uniform and kept with probability exp(-low / scale), else drawn again."""
    bits = law.low_bits
    if bits == 0:
        return np.zeros(len(words), dtype=np.int64)
    source = words if bits <= _LOW_IN_WORD else _words(len(words), random_bytes)
    low = (source & np.uint64(2**bits - 1)).view(np.int64)
    inverse = float(1 / law.scale)
    is_kept = _coins(
        low,
        words >> np.uint64(31) & np.uint64(0xFFFF),
        16,
        lambda values: np.multiply(values, inverse, dtype=np.float64),
        lambda value: value / law.scale,
        random_bytes,
    )
    rejected = np.flatnonzero(~is_kept)
    if len(rejected):
        low[rejected] = _low(_words(len(rejected), random_bytes), law, random_bytes)
    return low


def _upper(first: Words, law: _Geometric, random_bytes: RandomBytes) -> Integers:
    """Return the upper part from 16 random bits each, and more where these do not decide."""
    upper = law.quick[first.view(np.int64)].astype(np.int64)
    unsure = np.flatnonzero(upper < 0)
    if len(unsure):
        words = first[unsure] << np.uint64(48) | _words(len(unsure), random_bytes) >> np.uint64(16)
        parts = np.searchsorted(law.bounds, words, side="right")
        tied = np.flatnonzero((parts > 0) & (law.bounds[np.maximum(parts, 1) - 1] == words))
        for index in tied:
            parts[index] = _settled_upper(int(words[index]), law, random_bytes)
        upper[unsure] = parts
    beyond = np.flatnonzero(upper == _N_BOUNDS)
    if len(beyond):  # given that it is at least _N_BOUNDS, the rest has the same law again
        new_words = _words(len(beyond), random_bytes) >> np.uint64(48)
        upper[beyond] += _upper(new_words, law, random_bytes)
    return upper


def _settled_upper(word: int, law: _Geometric, random_bytes: RandomBytes) -> int:
    """Count the bounds up to a random number whose first 64 bits equal those of a bound."""
    bits = 64
    while True:
        bits += 64
        word = word << 64 | int.from_bytes(random_bytes(8), "little")
        # The first 64 bits of the word decided all bounds but those equal to them.
        near = np.flatnonzero(law.bounds == np.uint64(word >> (bits - 64)))
        bounds = [law.bits_below(int(j) + 1, bits) for j in near]
        if word not in bounds:
            return int(near[0]) + sum(bound < word for bound in bounds)


def _coins(
    values: Integers,
    words: Words,
    bits: int,
    exponent: Callable[[Integers], npt.NDArray[np.float64]],
    exact_exponent: Callable[[int], Fraction],
    random_bytes: RandomBytes,
) -> npt.NDArray[np.bool_]:
    """Toss coins that are True with probability exp(-exponent(value)), from `bits` bits each.

    A coin is a uniform number below that probability. Its first bits bound it from below and
    from above; where they do not decide, more are drawn.
    """
    probability = np.exp(-exponent(values))
    uniform = words.astype(np.float64) * 2.0**-bits
    is_true = uniform < probability - (2.0**-bits + _FLOAT_ERROR)
    undecided = np.flatnonzero(~is_true & (uniform < probability + _FLOAT_ERROR))
    for index in undecided:
        is_true[index] = _settled_coin(
            int(words[index]), bits, exact_exponent(int(values[index])), random_bytes
        )
    return is_true


def _settled_coin(word: int, bits: int, exponent: Fraction, random_bytes: RandomBytes) -> bool:
    """Return whether a random number that starts with these bits is below exp(-exponent)."""
    while exponent != 0:
        bound = _floor_below_one(lambda: exp_minus(exponent), bits)
        if word != bound:
            return word < bound
        bits += 64
        word = word << 64 | int.from_bytes(random_bytes(8), "little")
    return True


def _floor_below_one(number: Callable[[], Decimal], bits: int) -> int:
    """Return floor(2^bits x) of an irrational x in (0, 1), with as many digits as needed.

    `number` computes x within a few units of the last digit of the current decimal context.
    """
    spare = 30
    while True:
        with decimal.localcontext(decimal.Context(prec=bits // 3 + spare, traps=[])):
            scaled = number() * 2**bits
            error = Decimal(10) ** (10 - spare)
            low: int = max(math.floor(scaled - error), 0)
            high: int = min(math.floor(scaled + error), 2**bits - 1)
        if low == high:
            return low
        spare *= 2


def exp_minus(exponent: Fraction) -> Decimal:
    """Return exp(-exponent) in the current decimal context."""
    return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def _words(count: int, random_bytes: RandomBytes) -> Any:
    return np.frombuffer(random_bytes(8 * count), dtype=np.uint64)
