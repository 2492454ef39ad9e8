"""The radial law of frequencies: the distribution of their lengths.

A frequency of scale t detects clusters about as wide as t: it damps wider ones away, and locates
tighter ones poorly. The information about a center, integrated over the logarithm of the width, is
one half per feature for every law (the integral of x exp(-x) d ln s with x = |w|^2 s^2). So a law
only chooses which widths it serves. Scales are log-uniform in a main band and, with the share of a
tail, in a band of finer scales below it (design/plan.py chooses both).

At scale t the length is r / t with r of density r exp(-r^2 / 2), the papers' adapted radius.
Lengths of exactly 1 / t serve the widths of their band a little better. But searches need the few
low frequencies that random lengths give: only these turn less than once over the domain, and
without them distant clusters were lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privsketch._base.elementary import exponential, natural_log
from privsketch._base.errors import ParameterError, require_scales
from privsketch._base.types import Floats


@dataclass(frozen=True)
class Tail:
    """Share of the frequencies whose scales are finer than those of the main band.

    Attributes
    ----------
    share : float
        Share of the frequencies, between 0 and 1, both excluded.
    below : float
        Lower end of the main band: the tail has the scales from the finest one up to it.
    """

    share: float
    below: float


@dataclass(frozen=True)
class RadialLaw:
    """Law of the lengths of frequencies.

    Attributes
    ----------
    scales : (low, high)
        Finest and widest scale, in the units of the records; equal ends are one scale.
    tail : Tail or None
        Band of finer scales; with None, scales are log-uniform between both ends.
    """

    scales: tuple[float, float]
    tail: Tail | None = None

    def checked(self) -> RadialLaw:
        """Return this law, or raise a ParameterError if it is not valid."""
        low, high = require_scales(self.scales)
        tail = self.tail
        if tail is not None and not (0 < tail.share < 1 and low < tail.below < high):
            raise ParameterError(
                f"tail: expected a share between 0 and 1, and an end between the scales {low:g} "
                f"and {high:g}, not {tail.share:g} and {tail.below:g}"
            )
        return RadialLaw((low, high), tail)

    @property
    def bands(self) -> list[tuple[float, float, float]]:
        """Share, finest and widest scale of every band, the finest first."""
        low, high = self.scales
        if self.tail is None:
            return [(1.0, low, high)]
        share, middle = self.tail.share, self.tail.below
        return [(share, low, middle), (1.0 - share, middle, high)]

    def drawn(self, scale_uniform: Floats, radius_uniform: Floats) -> tuple[Floats, Floats]:
        """Return radius and scale, whose quotient is the length, from two uniform numbers each.

        It uses operations with the same bits everywhere, which docs/format.md specifies.
        """
        low, high = natural_log(np.array(self.scales))
        if self.tail is None:
            scale = exponential(low + (high - low) * scale_uniform)
        else:
            share = self.tail.share
            middle = natural_log(np.array([self.tail.below]))[0]
            fine = low + (middle - low) * (scale_uniform / share)
            main = middle + (high - middle) * ((scale_uniform - share) / (1.0 - share))
            scale = exponential(np.where(scale_uniform < share, fine, main))
        return np.sqrt(-2.0 * natural_log(radius_uniform)), scale

    # With x = |w|^2 width^2, means over the law: at one scale x has an exponential law of mean
    # q = 2 (width / scale)^2; over log-uniform scales, means are integrals of dq / (2 q) over the
    # logarithm of their range.

    def band_share(self, width: float) -> float:
        """Return E[x exp(-x)]: the share of features in the band where a width is visible."""
        return self._mean(width, lambda q: q / (1 + q) ** 2, lambda q: -0.5 / (1 + q))

    def squared_band_share(self, width: float) -> float:
        """Return E[(x exp(-x))^2], which says whether few features carry that share."""
        return self._mean(
            width, lambda q: 2 * q**2 / (1 + 2 * q) ** 3, lambda q: (q / (1 + 2 * q)) ** 2 / 2
        )

    def energy_share(self, width: float) -> float:
        """Return E[exp(-x)]: the mean square that a cluster's width leaves of its moments."""
        # The integral of dq / (q (1 + q)), written so that small q does not cancel.
        return self._mean(width, lambda q: 1 / (1 + q), lambda q: -math.log1p(1 / q) / 2)

    def _mean(
        self, width: float, at: Callable[[float], float], integral: Callable[[float], float]
    ) -> float:
        """Average a share over the law: `at` one scale, and its integral over dq / (2 q)."""
        total = 0.0
        for share, low, high in self.bands:
            q_low, q_high = 2 * (width / low) ** 2, 2 * (width / high) ** 2
            if low == high:
                total += share * at(q_high)
            else:
                total += share * (integral(q_low) - integral(q_high)) / math.log(high / low)
        return total
