"""Public random numbers that are the same on every machine and in every version.

A design stores a seed, not the frequencies, so every holder must draw the same bits
from it on any machine and with any library version. The raw 64-bit words of the
counter-based generator Philox4x64-10 (Salmon et al., 2011) are fixed by its
definition. Everything after them uses only operations that IEEE 754 rounds exactly, in a
fixed order (`_base/elementary.py`).

Noise never comes from here: it has no seed.
"""

from __future__ import annotations

from enum import IntEnum, unique

import numpy as np

from privsketch._base.elementary import cosine_sine, natural_log
from privsketch._base.types import Floats


@unique
class Purpose(IntEnum):
    """Purpose of a public stream: no two uses of one seed share a word.

    Numbers of frequencies, offsets, structured frequencies and projections are part of the file
    format (docs/format.md). Those of decoders determine the model of a sketch. No number is reused
    for another purpose.
    """

    FREQUENCIES = 0
    OFFSETS = 1
    KMEANS_DECODER = 2
    MIXTURE_DECODER = 3
    STRUCTURED_FREQUENCIES = 4
    PCA_DECODER = 5
    CELLS_DECODER = 6
    COMPARISON = 7
    COST_RATIO = 8
    READ_COLUMNS = 9
    OWN_FREQUENCIES = 10
    CALIBRATION = 11
    PROJECTION = 101
    DIRECTIONS = 201
    SPREAD = 202
    PROBES = 203
    TREE_TRIALS = 301
    SPARSE_SKETCH = 401
    SPARSE_TREES = 402
    # Checks that kernels make of themselves.
    CHECK_HADAMARD = 501
    CHECK_DENSE = 502
    CHECK_DECODER = 503
    CHECK_QUANTISER = 504
    CHECK_NEAREST = 505
    CHECK_CUDA_SUMS = 506
    CHECK_CUDA_RECORDS = 507
    CHECK_PAIRS = 508
    CHECK_MASSES = 509


class PublicStream:
    """Stream of uniform and normal numbers from a public seed.

    Parameters
    ----------
    seed : int
        Seed, 0 <= seed < 2**64, stored in the design.
    purpose : Purpose
        Use of the stream: streams for different uses share the seed, but no word.
    part : int
        Number of the stream among several for one purpose, such as the number of a trial.
    """

    def __init__(self, seed: int, purpose: Purpose, part: int = 0) -> None:
        self._words = _words(seed, purpose, part)

    def uniform(self, count: int) -> Floats:
        """Draw numbers in (0, 1): the top 52 bits of a word, plus one half, times 2^-52."""
        words = self._words.random_raw(count) >> np.uint64(12)
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52)

    def normal(self, count: int) -> Floats:
        """Draw standard normal numbers, by pairs (Box and Muller, 1958).

        Uniforms are used in pairs (u, v); each gives r cos(2 pi v), then r sin(2 pi v),
        with r = sqrt(-2 ln u). An odd count drops the last one.
        """
        return normal_pairs(self.uniform(2 * ((count + 1) // 2)).reshape(-1, 2))[:count]


def public_generator(seed: int, purpose: Purpose) -> np.random.Generator:
    """Return NumPy's generator over a public stream, for searches that draw many laws."""
    return np.random.Generator(_words(seed, purpose))


def _words(seed: int, purpose: Purpose, part: int = 0) -> np.random.Philox:
    # Parts differ in the top word of the counter, which no stream reaches by counting.
    counter = np.array([0, 0, 0, part], dtype=np.uint64)
    return np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64), counter=counter)


def normal_pairs(uniforms: Floats) -> Floats:
    """Return two standard normal numbers for each row (u, v) of uniform ones, (2 n,)."""
    radius = np.sqrt(-2.0 * natural_log(uniforms[:, 0]))
    cosine, sine = cosine_sine(uniforms[:, 1])
    both = np.stack([radius * cosine, radius * sine], axis=1)
    return np.asarray(both.reshape(-1))
