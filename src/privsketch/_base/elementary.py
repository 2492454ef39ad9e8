"""Logarithm, exponential, cosine and sine that are bit-identical on every machine.

They use only operations that IEEE 754 rounds exactly (+, -, *, /, and scaling by powers of two), in
a fixed order. Functions of a C library differ in their last bit between platforms, and vectorised
ones may differ from scalar ones. Public numbers must not depend on a machine, and what a record
contributes must not depend on its position in a block.
"""

from __future__ import annotations

import numpy as np

from privsketch._base.types import Floats

LN_2 = 0.6931471805599453  # both constants are the nearest float64, independent of any library
TWO_PI = 6.283185307179586


def natural_log(x: Floats) -> Floats:
    """Return ln x for positive x, by ln x = e ln 2 + 2 artanh((m - 1) / (m + 1))."""
    mantissa, exponent = np.frexp(x)
    is_small = mantissa < 0.7071067811865476
    mantissa = np.where(is_small, mantissa * 2.0, mantissa)
    exponent = np.where(is_small, exponent - 1, exponent).astype(np.float64)
    t = (mantissa - 1.0) / (mantissa + 1.0)
    square = t * t
    series = np.full_like(t, 1.0 / 25.0)
    for odd in range(23, 0, -2):
        series = series * square + 1.0 / odd
    return np.asarray(exponent * LN_2 + 2.0 * (t * series))


def exponential(x: Floats) -> Floats:
    """Return e^x for moderate x, by e^x = 2^k e^r with |r| <= ln(2) / 2."""
    k = np.rint(x / LN_2)
    r = x - k * LN_2
    series = np.ones_like(r)
    for divisor in range(16, 0, -1):
        series = series * r / float(divisor) + 1.0
    return np.asarray(np.ldexp(series, k.astype(np.int32)))


def cosine_sine(turns: Floats) -> tuple[Floats, Floats]:
    """Return cos and sin of 2 pi `turns`, for turns in [0, 1], from angles within pi / 4."""
    n_quarters = np.rint(turns * 4.0)
    angle = (turns - n_quarters * 0.25) * TWO_PI
    square = angle * angle
    cosine, sine = np.ones_like(angle), np.ones_like(angle)
    for k in range(18, 0, -2):
        cosine = 1.0 - cosine * square / float(k * (k - 1))
        sine = 1.0 - sine * square / float(k * (k + 1))
    sine = sine * angle
    quadrant = n_quarters.astype(np.int64) % 4
    return (
        np.choose(quadrant, [cosine, -sine, -cosine, sine]),
        np.choose(quadrant, [sine, cosine, -sine, -cosine]),
    )
