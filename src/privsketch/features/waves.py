"""Feature maps of waves: tables of integers for 65,536 phases.

The Fourier map gives the cosine and the sine of a phase.

The 16 bits of a phase just below one turn, read as a number t with a sign, are its angle in
units of 2^-16 turns. Half of that angle has a cosine c and a sine s which two short polynomials
give in 16-bit integers, in units of 2^-12; then

    cos = 2 c^2 - 1,  sin = 2 s c,

so sums of c c and s c over records suffice: the features are c c - K and s c, where K is the mean
of c c over all phases. Their unit is 2^-23. Everything is integer arithmetic of 16 and 32 bits, the
same on every processor, and short: a kernel computes an entry of the table faster than it could
load it.

Compared with exp(i angle), no other harmonic is more than 2.1e-5 of the first. The longest pair,
which noise is calibrated to, is 0.07 % longer. No entry is off by more than 7e-4, most of which is
rounding and averages out over phases (tests/features/test_features.py).

The one-bit map gives only the signs of the cosine and the sine of a dithered phase.

Phi = sgn cos(w'x + u) + i sgn sin(w'x + u) with sgn 0 = +1 (CLP section 2, there
scaled by 2^-1/2). Its first harmonic is (4 / pi) exp(i (w'x + u)); a public random
dither u makes the other harmonics average out, and learners read the first one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch.features.fixedpoint import TABLE_SIZE

AMPLITUDE = 2**23  # of cosines and sines, in integers
# cos(pi x / 2) and sin(pi x / 2) / x in powers of z = x^2 / 2, lowest first, in units of 2^-12.
COSINE_COEFFICIENTS = (4096, -10106, 4153, -651)
SINE_COEFFICIENTS = (6433, -5276, 1202)
MEAN_SQUARE = 8_389_660  # K: the mean of c c over all phases, rounded


def half_angle(t: npt.NDArray[np.int16]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return cosine and sine of half the angle t, in units of 2^-12.

    With x = t / 2^15: z = x^2 / 2 in units of 2^-15, rounded down; products of Horner's rule are
    rounded to the nearest unit of 2^-12.
    """
    x = t.astype(np.int64)
    z = (x * x) >> 16
    return _polynomial(z, COSINE_COEFFICIENTS), _product(_polynomial(z, SINE_COEFFICIENTS), x)


def _polynomial(z: npt.NDArray[np.int64], coefficients: tuple[int, ...]) -> npt.NDArray[np.int64]:
    value = np.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = _product(value, z) + coefficient
    return value


def _product(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a b / 2^15, rounded to the nearest integer, halves up."""
    return (a * b + 2**14) >> 15


@cache
def fourier_table() -> npt.NDArray[np.int32]:
    """Return the (65536, 2) table of cosines and sines in units of 2^-23."""
    c, s = half_angle(np.arange(TABLE_SIZE).astype(np.uint16).view(np.int16))
    table = np.stack([c * c - MEAN_SQUARE, s * c], axis=1).astype(np.int32)
    table.flags.writeable = False
    return table


FIRST_HARMONIC = 4.0 / np.pi  # Fourier coefficient of a square wave of amplitude 1
# Variance of a sign due to the other harmonics, in units of the first one, and the orders of the
# largest of them. The harmonic of order h has the amplitude 1 / h.
SIGN_VARIANCE = np.pi**2 / 8 - 1
HARMONICS = (3, 5, 7)


@cache
def onebit_table() -> npt.NDArray[np.int32]:
    """Return the (65536, 2) table of +1 and -1."""
    t = np.arange(TABLE_SIZE)
    cosine = (t <= TABLE_SIZE // 4) | (t >= 3 * TABLE_SIZE // 4)
    sine = t <= TABLE_SIZE // 2
    table = np.where(np.stack([cosine, sine], axis=1), 1, -1).astype(np.int32)
    table.flags.writeable = False
    return table
