"""The one-bit map: only the signs of the cosine and the sine of a dithered phase.

Phi = sgn cos(w'x + u) + i sgn sin(w'x + u) with sgn 0 = +1 (CLP section 2, there
scaled by 2^-1/2). Its first harmonic is (4 / pi) exp(i (w'x + u)); a public random
dither u makes the other harmonics average out, and learners read the first one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch.features.fixedpoint import TABLE_SIZE

FIRST_HARMONIC = 4.0 / np.pi  # Fourier coefficient of a square wave of amplitude 1
# In units of the first harmonic: what the others add to the variance of a sign, and the
# orders of the largest of them; the one of order h has the amplitude 1 / h.
SIGN_VARIANCE = np.pi**2 / 8 - 1
HARMONICS = (3, 5, 7)


@cache
def onebit_table() -> npt.NDArray[np.int32]:
    """The (65536, 2) table of +1 and -1."""
    t = np.arange(TABLE_SIZE)
    cosine = (t <= TABLE_SIZE // 4) | (t >= 3 * TABLE_SIZE // 4)
    sine = t <= TABLE_SIZE // 2
    table = np.where(np.stack([cosine, sine], axis=1), 1, -1).astype(np.int32)
    table.flags.writeable = False
    return table
