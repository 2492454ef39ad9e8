"""Several of many sums, picked one after another, large magnitudes more likely.

The exponential mechanism without replacement, exact: no chance is computed, coins decide. It is
how Balcan et al. (2017, Algorithm 5) choose the coordinates of a sparse centre; what a sequence
of picks costs is in docs/sparse.md. No function here takes a seed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privsketch._typing import Integers
from privsketch.budget import Neighbours, Receipt, exact
from privsketch.errors import ParameterError
from privsketch.noise.bulk import RandomBytes, discrete_laplace
from privsketch.noise.calibration import laplace_scale
from privsketch.noise.mechanism import NoiseLaw

_MOST_PROPOSALS = 2**15  # at a time


@dataclass(frozen=True)
class PicksLaw(NoiseLaw):
    """`n_picks` of `n_components` sums, by the exponential mechanism without replacement.

    `sensitivity` is what one record adds to all exponents of the chance of a sequence of picks,
    in the units of the sums; docs/sparse.md.
    """

    n_picks: int = 1

    def receipt(self, scale: float, source: str | None, sampler: str) -> Receipt:
        """What one sequence of picks costs."""
        doubled = "" if self.neighbours == "add-remove" else "2 "
        return Receipt(
            mechanism=f"exponential mechanism: {self.n_picks} of {self.n_components} sums, "
            "one after another",
            epsilon=self.epsilon,
            delta=0.0,
            neighbours=self.neighbours,
            source=source,
            sensitivity=f"{self.sensitivity:.12g} (picks times the largest entry, and L1)",
            scale=scale,
            calibration=f"scale = {doubled}sensitivity / epsilon",
            sampler=sampler,
        )


def picks_law(
    linf: int, l1: int, n_sums: int, n_picks: int, epsilon: float, neighbours: Neighbours
) -> PicksLaw:
    """Picks with chances in proportion to exp(|sum| / scale), of those not yet picked.

    A record adds at most `linf` to one sum and `l1` to any `n_picks` of them together. It moves
    the logarithm of each normaliser by at most linf / scale, and all numerators together by at
    most l1 / scale. Permute-and-flip has no normalisers; it would cost 2 linf / scale a pick.
    """
    if not 1 <= n_picks <= n_sums:
        raise ParameterError(f"picks={n_picks!r}: expected 1 to {n_sums}, the number of columns")
    sensitivity = n_picks * linf + l1
    doubled = sensitivity if neighbours == "add-remove" else 2 * sensitivity
    scale = laplace_scale(doubled, epsilon)
    return PicksLaw(
        "picks",
        n_sums,
        sensitivity,
        epsilon,
        0.0,
        neighbours,
        scale,
        scale**2,
        n_picks=n_picks,
    )


def pick_largest(sums: Integers, law: PicksLaw, random_bytes: RandomBytes = os.urandom) -> Integers:
    """Places (k, n_picks) of large magnitudes in rows (k, n_components), in the order picked.

    A record is in one row. A uniform proposal r is taken if discrete Laplace noise reaches the
    distance from |sum r| to the largest magnitude left: the chance of that, exp(-distance /
    scale) over a constant, is what the exponential mechanism asks for.
    """
    doubled = law.sensitivity if law.neighbours == "add-remove" else 2 * law.sensitivity
    if sums.ndim != 2 or sums.shape[1] != law.n_components:
        raise ParameterError(f"sums: expected rows of {law.n_components}")
    if Fraction(doubled) > Fraction(law.scale) * exact(law.epsilon):
        raise ParameterError("picks: not calibrated to their epsilon")
    picked = np.empty((len(sums), law.n_picks), dtype=np.int64)
    for row, magnitudes in enumerate(np.abs(sums)):
        left = np.arange(law.n_components)
        for number in range(law.n_picks):
            distances = magnitudes[left].max() - magnitudes[left]
            place = _reached(distances, law.scale, random_bytes)
            picked[row, number] = left[place]
            left = np.delete(left, place)
    return picked


def _reached(distances: Integers, scale: float, random_bytes: RandomBytes) -> int:
    """First of uniform proposals whose noise reaches its distance."""
    bits = (len(distances) - 1).bit_length()
    batch = 64
    while True:
        words = np.frombuffer(random_bytes(8 * batch), dtype=np.uint64)
        # The top bits, and none of the words that name no place: uniform.
        places = (words >> np.uint64(64 - bits)).view(np.int64) if bits else np.zeros(batch, int)
        places = places[places < len(distances)]
        noise = discrete_laplace(len(places), scale, random_bytes)
        taken = np.flatnonzero(noise >= distances[places])
        if len(taken):
            return int(places[taken[0]])
        batch = min(2 * batch, _MOST_PROPOSALS)
