"""Public random numbers that are the same everywhere, for good.

A design stores a seed, not the frequencies, so every holder must draw the same bits
from it on any machine and with any library version. The raw 64-bit words of the
counter-based generator Philox4x64-10 (Salmon et al., 2011) are fixed by its
definition. Everything after them uses only operations that IEEE 754 rounds exactly, in a
fixed order (`_elementary`).

Noise never comes from here: it has no seed.
"""

from __future__ import annotations

import numpy as np

from privsketch._elementary import cosine_sine, natural_log
from privsketch._typing import Floats


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
