"""The Fourier map: a phase becomes its cosine and sine, as integers.

The table of 65,536 pairs is part of the format. Its entries are what a short float32
polynomial gives (at most 0.58 units of 1/32767 from the true value), so that compiled
kernels can compute an entry instead of fetching it and still agree bit for bit. The
amplitude is one below 2^15: rounding then cannot push a pair outside the circle of
radius 2^15.

With t the index and r = t / 65536 - 1/2, a half-angle identity gives both at once:
    s = sqrt(2 A) sin(pi r),  c = -sqrt(2 A) cos(pi r),
    A cos(2 pi t / 65536) = s s - A,  A sin(2 pi t / 65536) = s c.
Every step below is one correctly rounded float32 operation; `fma` rounds once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch.features.fixedpoint import TABLE_SIZE

Floats32 = npt.NDArray[np.float32]

AMPLITUDE = 32767  # 2^15 - 1: rounding cannot push a pair outside the circle of radius 2^15
# Minimax coefficients of sqrt(2 A) sin(pi r) / r and -sqrt(2 A) cos(pi r) in r^2, lowest first.
SINE_COEFFICIENTS = tuple(
    float.fromhex(text)
    for text in ("0x1.921dcap+9", "-0x1.4ab12cp+10", "0x1.455baep+9", "-0x1.1bf82ap+7")
)
COSINE_COEFFICIENTS = tuple(
    float.fromhex(text)
    for text in (
        "-0x1.fffdfep+7",
        "0x1.3bd26ap+10",
        "-0x1.03bc02p+10",
        "0x1.54f4c4p+8",
        "-0x1.c1eea4p+5",
    )
)
# Adding 1.5 * 2^23 to a float32 rounds it to an integer, which its low bits then spell.
ROUNDER = 1.5 * 2.0**23


def fma(a: Floats32, b: Floats32, c: Floats32 | np.float32) -> Floats32:
    """a * b + c rounded once to float32, exactly as hardware does it.

    The product of two float32 is exact in float64. Their sum with c is rounded to
    odd in float64, after which rounding to float32 cannot err (Boldo and Melquiond,
    2008).
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = np.broadcast_to(np.asarray(c, dtype=np.float64), product.shape)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)  # exact (Knuth's two-sum)
    bits = total.view(np.int64)
    inexact_and_even = (error != 0) & (bits % 2 == 0)
    toward_error = np.where((error > 0) == (total > 0), 1, -1)
    odd = bits + np.where(inexact_and_even, toward_error, 0)
    return odd.view(np.float64).astype(np.float32)


def _polynomial(square: Floats32, coefficients: tuple[float, ...]) -> Floats32:
    value = np.full_like(square, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = fma(value, square, np.float32(coefficient))
    return value


@cache
def fourier_table() -> npt.NDArray[np.int32]:
    """The (65536, 2) table of cosines and sines in units of 1 / 32767."""
    r = (np.arange(TABLE_SIZE) / TABLE_SIZE - 0.5).astype(np.float32)
    square = r * r
    sine_half = _polynomial(square, SINE_COEFFICIENTS) * r
    cosine_half = _polynomial(square, COSINE_COEFFICIENTS)
    rounder = np.float32(ROUNDER)
    cosine = fma(sine_half, sine_half, np.float32(ROUNDER - AMPLITUDE)) - rounder
    sine = fma(sine_half, cosine_half, rounder) - rounder
    table = np.stack([cosine, sine], axis=1).astype(np.int32)
    table.flags.writeable = False
    return table
