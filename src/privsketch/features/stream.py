"""Public random numbers that are the same everywhere, for good.

A design stores a seed, not the frequencies, so every holder must draw the same bits
from it on any machine and with any library version. The raw 64-bit words of the
counter-based generator Philox4x64-10 (Salmon et al., 2011) are fixed by its
definition. Everything after them uses only operations that IEEE 754 rounds exactly
(+, -, *, /, square root) in a fixed order: the logarithm and the trigonometric
functions of a C library differ in their last bit between platforms, so short series
replace them here.

Noise never comes from here: it has no seed.
"""

from __future__ import annotations

import numpy as np

from privsketch._typing import Floats

LN_2 = 0.6931471805599453  # both are the nearest float64, spelled out so that no library decides
TWO_PI = 6.283185307179586


class PublicStream:
    """Uniform and normal numbers from a public seed.

    Parameters
    ----------
    seed : int
        0 <= seed < 2**64, stored in the design.
    purpose : int
        Keeps streams for different uses apart: they share the seed, not a word.
    """

    def __init__(self, seed: int, purpose: int) -> None:
        key = np.array([seed, purpose], dtype=np.uint64)
        self._words = np.random.Philox(key=key)

    def uniform(self, count: int) -> Floats:
        """Numbers in (0, 1): the top 52 bits of a word, plus one half, times 2^-52."""
        words = self._words.random_raw(count) >> np.uint64(12)
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52)

    def normal(self, count: int) -> Floats:
        """Standard normal numbers, by pairs (Box and Muller, 1958).

        Uniforms are used in pairs (u, v); each gives r cos(2 pi v), then r sin(2 pi v),
        with r = sqrt(-2 ln u). An odd count drops the last one.
        """
        return normal_pairs(self.uniform(2 * ((count + 1) // 2)).reshape(-1, 2))[:count]


def normal_pairs(uniforms: Floats) -> Floats:
    """Two standard normal numbers from each row (u, v) of uniform ones, (2 n,)."""
    radius = np.sqrt(-2.0 * natural_log(uniforms[:, 0]))
    cosine, sine = cosine_sine(uniforms[:, 1])
    both = np.stack([radius * cosine, radius * sine], axis=1)
    return np.asarray(both.reshape(-1))


def natural_log(x: Floats) -> Floats:
    """ln x for positive x, by ln x = e ln 2 + 2 artanh((m - 1) / (m + 1))."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < 0.7071067811865476
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    exponent = np.where(small, exponent - 1, exponent).astype(np.float64)
    t = (mantissa - 1.0) / (mantissa + 1.0)
    square = t * t
    series = np.full_like(t, 1.0 / 25.0)
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return np.asarray(exponent * LN_2 + 2.0 * (t * series))


def exponential(x: Floats) -> Floats:
    """e^x for moderate x, by e^x = 2^k e^r with |r| <= ln(2) / 2."""
    k = np.rint(x / LN_2)
    r = x - k * LN_2
    series = np.ones_like(r)
    for divisor in range(16, 0, -1):
        series = series * r / float(divisor) + 1.0
    return np.asarray(np.ldexp(series, k.astype(np.int32)))


def cosine_sine(turns: Floats) -> tuple[Floats, Floats]:
    """cos and sin of 2 pi times `turns`, for turns in [0, 1], reduced to one eighth."""
    quarter = np.rint(turns * 4.0)
    angle = (turns - quarter * 0.25) * TWO_PI
    square = angle * angle
    cosine, sine = np.ones_like(angle), np.ones_like(angle)
    for k in range(18, 0, -2):
        cosine = 1.0 - cosine * square / float(k * (k - 1))
        sine = 1.0 - sine * square / float(k * (k + 1))
    sine = sine * angle
    turn = quarter.astype(np.int64) % 4
    return (
        np.choose(turn, [cosine, -sine, -cosine, sine]),
        np.choose(turn, [sine, cosine, -sine, -cosine]),
    )
