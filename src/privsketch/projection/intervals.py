"""How a recovered squared distance varies, and which true distances go with it.

D = |a P + N|^2 - k v, where every component of N is what two rows have of noise, of variance v.
Its first three cumulants depend on the true distance t alone: on t = |a P|^2 given the matrix,
and on t = |a|^2 over matrices too, where a P is N(0, t / k) in every component. As the spread
grows with t, an interval is the set of all t that make D plausible, not D plus or minus a
spread of its own. docs/projection.md, "Distances".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from privsketch._typing import Floats

_TABLE = 4096  # true distances that the ends of intervals are interpolated between
_LEAST_POWER = 0.05  # below, a power is as good as the logarithm


@dataclass(frozen=True)
class DistanceLaw:
    """The law of D for k components; moments are of one component of N."""

    n_components: int
    variance: float
    fourth_moment: float
    sixth_moment: float

    @classmethod
    def of(cls, n_components: int, noises: Sequence[tuple[float, float]]) -> DistanceLaw:
        """N is a sum or difference of independent noises of this variance and fourth moment."""
        # Cumulants add up. The sixth is 10/3 c4^2 / c2 for Laplace and for Gaussian noise.
        c2 = sum(variance for variance, _ in noises)
        fourths = [(v, fourth - 3 * v * v) for v, fourth in noises if v > 0]
        c4 = sum(cumulant for _, cumulant in fourths)
        c6 = sum(10 / 3 * cumulant**2 / v for v, cumulant in fourths)
        return cls(n_components, c2, c4 + 3 * c2**2, c6 + 15 * c4 * c2 + 15 * c2**3)

    @property
    def excess(self) -> float:
        """What noise adds to a squared distance on average."""
        return self.n_components * self.variance

    def cumulants(self, true: Floats, given_matrix: bool) -> tuple[Floats, Floats]:
        """Variance and third cumulant of D."""
        k, v = self.n_components, self.variance
        square = self.fourth_moment - v * v  # variance of N^2, then its third cumulant
        third = self.sixth_moment - 3 * v * self.fourth_moment + 2 * v**3
        spread, skew = 4 * v * true + k * square, 12 * square * true + k * third
        if not given_matrix:
            spread = spread + 2 * true**2 / k
            skew = skew + 24 * v * true**2 / k + 8 * true**3 / k**2
        return spread, skew

    def quantile(self, probability: float, true: Floats, given_matrix: bool) -> Floats:
        """About the value that D stays below with this probability.

        (D + k v)^h is nearly normal for h = 1 - K1 K3 / (3 K2^2) (Jensen and Solomon, 1972),
        and so is the cube root of a gamma variable (Wilson and Hilferty): this takes the power
        3 h for a gamma variable, which is exact where D + k v is one.
        """
        mean = true + self.excess
        spread, skew = self.cumulants(true, given_matrix)
        power = np.maximum(1 - mean * skew / (3 * spread**2), _LEAST_POWER)
        relative = spread / mean**2
        center = 1 + power * (power - 1) * relative / 2  # of ((D + k v) / mean)^h
        ratio = center / (power * np.sqrt(relative))
        root = (ratio + np.sqrt(ratio**2 + 4)) / 6  # 3 root - 1 / (3 root) = ratio
        shape = root**2
        cube = gammaincinv(shape, probability) / shape / (1 - 1 / (9 * shape)) ** 3
        return np.asarray(mean * (center * np.cbrt(cube)) ** (1 / power) - self.excess)

    def gamma_interval(
        self, found: Floats, level: float, given_matrix: bool
    ) -> tuple[Floats, Floats]:
        """Between true values whose D is above, or below, with probability (1 - level) / 2."""
        tail = (1 - level) / 2
        largest = max(float(found.max(initial=0.0)), 0.0)
        top = 2 * (largest + self.excess)
        while self.quantile(tail, np.array(top), given_matrix) <= largest:
            top *= 2
        true = np.concatenate(
            [np.zeros(1), np.geomspace(1e-4 * self.excess, top, _TABLE)], dtype=np.float64
        )
        ends = []
        for probability, values in ((1 - tail, found), (tail, np.maximum(found, 0))):
            curve = np.maximum.accumulate(self.quantile(probability, true, given_matrix))
            ends.append(np.interp(values, curve, true))
        return ends[0], ends[1]

    def chebyshev_interval(
        self, found: Floats, level: float, given_matrix: bool
    ) -> tuple[Floats, Floats]:
        """All t with (D - t)^2 <= Var(t) / (1 - level): the roots of a quadratic equation."""
        wide = 1 / (1 - level)
        constant = wide * self.n_components * (self.fourth_moment - self.variance**2)
        slope = wide * 4 * self.variance
        lead = 1.0 if given_matrix else 1 - wide * 2 / self.n_components
        # lead t^2 - (2 D + slope) t + D^2 - constant <= 0
        positive = np.maximum(found, 0)
        linear, last = 2 * positive + slope, positive**2 - constant
        root = np.sqrt(np.maximum(linear**2 - 4 * lead * last, 0))
        low = np.where(last > 0, 2 * last / (linear + root), 0.0)
        high = (linear + root) / (2 * lead) if lead > 0 else np.full_like(found, math.inf)
        return low, high
