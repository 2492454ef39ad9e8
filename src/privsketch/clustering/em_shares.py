"""How a record shares itself out among Gaussian components, in whole numbers.

What a record adds must depend on that record and on released numbers alone, to the last bit. So
distances come from exact matrix products and elementwise steps, and exponentials from a
polynomial: those of a library may depend on where in a block a record stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privsketch._typing import Floats, Whole

WHOLE_SHARE = 2**10  # shares are whole numbers that add up to this, or less
_WHITE_BITS = 30
# Taylor's series of 2^-f for f in [0, 1): ln(2)^n / n!
_SERIES = [(-math.log(2)) ** n / math.factorial(n) for n in range(17)]


@dataclass(frozen=True, eq=False)
class Whitening:
    """What makes a component round: a record x becomes unit (whole @ x) - middle.

    `height` is the log, to base 2, of the component's density at its mean, but for a constant.
    """

    whole: Whole
    unit: float
    middle: Floats
    height: float


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Released parameters, in integer units about the centre of the domain."""

    weights: Floats
    means: Floats
    covariances: Floats  # (k, dim, dim)


def whitenings(state: Gaussians) -> list[Whitening]:
    """One for each component, from released numbers alone."""
    found = []
    for weight, mean, covariance in zip(state.weights, state.means, state.covariances, strict=True):
        factor = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(factor)
        unit = float(np.abs(inverse).max()) / 2.0**_WHITE_BITS
        height = math.log2(max(weight, 1e-9)) - float(np.log2(np.diagonal(factor)).sum())
        found.append(Whitening(np.rint(inverse / unit), unit, inverse @ mean, height))
    return found


def responsibilities(records: Whole, components: list[Whitening]) -> Whole:
    """Shares of each record among the components, (k, n), whole numbers: at most WHOLE_SHARE.

    Every step is exact or elementwise: a column depends on its record and the components alone.
    """
    logs = np.empty((len(components), len(records)))
    for place, one in enumerate(components):
        white = one.whole @ records.T  # whole numbers below 2^53
        squared = np.zeros(len(records))
        for row, middle in zip(white, one.middle, strict=True):
            row *= one.unit
            row -= middle
            row *= row
            squared += row
        logs[place] = squared * (-0.5 / math.log(2)) + one.height
    below = logs.max(axis=0) - logs
    shares = _power_of_half(below)
    total = np.zeros(len(records))
    for row in shares:
        total += row
    return np.asarray(np.floor(shares / total * WHOLE_SHARE))


def _power_of_half(exponents: Floats) -> Floats:
    """2^-h for h >= 0, by steps that are each rounded in one way only."""
    exponents = np.minimum(exponents, 60.0)
    whole = np.floor(exponents)
    rest = exponents - whole
    result = np.full_like(rest, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        result *= rest
        result += coefficient
    return np.ldexp(result, -whole.astype(np.int32))
