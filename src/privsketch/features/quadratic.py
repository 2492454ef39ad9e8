"""Quadratic features in integers: v_j = floor((w_j.x)^2 / 2^shift).

Records are quantised to integer vectors of norm at most 2^15 - 1, the radius of the ball;
vectors w_j are 16-bit integers, short enough that |w_j.x| < 2^31, so a square fits 64 bits.
The shift is the least that keeps a feature below 2^21, so that 2^40 records fit 64 bits.
Floors, not roundings: the sum of floors is at most the floor of the sum, so every bound on
the real features holds for the integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.features.fixedpoint import RECORD_BITS, RECORD_MAX

VALUE_BITS = 21
MAX_VECTOR_NORM_SQUARED = 2**32  # |w_j| <= 2^16: the product with a record stays below 2^31


def squared_norms(vectors: npt.NDArray[Any]) -> list[int]:
    """Exact squared norms of integer vectors (m, dim)."""
    wide = vectors.astype(np.int64)
    return [int(norm) for norm in np.einsum("jk,jk->j", wide, wide)]


def value_shift(vectors: npt.NDArray[Any]) -> int:
    """Binary digits dropped from a square; from the public vectors alone."""
    largest = max(squared_norms(vectors)) * RECORD_MAX**2
    return int(max(0, largest.bit_length() - VALUE_BITS))


def quadratic_values(
    quantised: npt.NDArray[Any], vectors: npt.NDArray[Any], shift: int
) -> npt.NDArray[np.int64]:
    """(n, m) integer features: the definition, in plain 64-bit integers."""
    products = quantised.astype(np.int64) @ vectors.astype(np.int64).T
    return np.asarray((products * products) >> shift)


def value_unit(vector_bits: int, shift: int) -> float:
    """What (w.x)^2 = 1 becomes, with x in half-widths and integer vectors w 2^vector_bits."""
    return math.ldexp(1.0, 2 * (vector_bits + RECORD_BITS) - shift)
