"""Secret masks, drawn for each record from the operating system's generator.

A mask depends on nothing but fresh random bits: not on the row number, the block or the
other records, since a record that leaves must not change the masks of the others. No seed
exists, and no mask is stored.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from privsketch._typing import Bits
from privsketch.features.masks import RATE_BITS


def bernoulli(count: int, rate: float) -> Bits:
    """`count` independent bits that are set with probability `rate`, a multiple of 2^-64, exactly.

    64 uniform bits are below rate 2^64. Eight of them decide unless they equal those of the
    threshold, one time in 256; only then are the others drawn.
    """
    if rate >= 1:
        return np.ones(count, dtype=np.bool_)
    threshold = int(rate * 2.0**RATE_BITS)  # exact: the rate is a multiple of 2^-64
    first = threshold >> (RATE_BITS - 8)
    leading = np.frombuffer(os.urandom(count), dtype=np.uint8)
    kept = leading < first
    tied = np.flatnonzero(leading == first)
    rest = np.frombuffer(os.urandom(8 * len(tied)), dtype=np.uint64) >> np.uint64(8)
    kept[tied] = rest < np.uint64(threshold & (2 ** (RATE_BITS - 8) - 1))
    return kept


def subsets(count: int, size: int, kept: int) -> Bits:
    """(count, size) uniform subsets of `kept` of `size` elements, one for each record.

    Floyd's algorithm (Bentley and Floyd, 1987): for j = size - kept, ..., size - 1 a uniform
    number up to j joins, or j itself if it is in already.
    """
    if 2 * kept > size:
        return ~subsets(count, size, size - kept)
    chosen = np.zeros(size * count, dtype=np.bool_)  # element by element, records together
    records = np.arange(count)
    for j in range(size - kept, size):
        place = _below(count, j + 1) * count + records
        place = np.where(chosen[place], j * count + records, place)
        chosen[place] = True
    return chosen.reshape(size, count).T


def _below(count: int, bound: int) -> npt.NDArray[np.int64]:
    """`count` uniform integers below a bound of at most 2^31, exactly (Lemire, 2019).

    The high half of a 32-bit word times the bound, unless the low half is below 2^32 mod bound:
    then the word is drawn again.
    """
    product = _words(count) * bound
    while True:
        again = np.flatnonzero((product & 0xFFFFFFFF) < 2**32 % bound)
        if len(again) == 0:
            return product >> 32
        product[again] = _words(len(again)) * bound


def _words(count: int) -> npt.NDArray[np.int64]:
    return np.frombuffer(os.urandom(4 * count), dtype=np.uint32).astype(np.int64)
