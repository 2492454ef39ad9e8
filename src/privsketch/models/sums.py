"""Ratios of noisy sums, with intervals by noise and by sampling.

Released are a symmetric matrix G of sums over records of u u', and the variances V of its noise,
which is independent between entries; u is a record with a constant. Columns of a table are linear
in u: row 0 of `terms` gives the constant 1, the others a value or a label each. So the number of
records, sums of values, sizes of groups, and sums of values within groups are all linear functions
<C, G> of G with a symmetric C, and two of them have the covariance

    sum_i V_ii C_ii D_ii + sum_{i<j} 4 V_ij C_ij D_ij

by noise, exactly. Labels that share noise with the count need no special care. Laplace noise of few
entries has longer tails than normal noise: its fourth cumulants add up, and widen an interval by
the first term of Cornish and Fisher.

A mean is a ratio a / b of two such sums. Its interval is Fieller's: all r for which a - r b lies
within q standard deviations of 0. The variance of a - r b is a quadratic function of r, by noise
and for shares by sampling too, so the interval has a closed form: that of Wilson without noise. It
stays right if b is small, and has no end where b may be 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats

COUNT_DEVIATIONS = 3.0  # standard deviations of its noise that a sum needs to divide by
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; all NaN where noise leaves nothing to say."""

    value: float
    low: float
    high: float

    @property
    def is_drowned(self) -> bool:
        """Whether there is no number."""
        return math.isnan(self.value)


DROWNED = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Spread:
    """Variance by sampling of one record about r: constant + linear d + square d^2, d = r - m."""

    constant: float
    linear: float = 0.0
    square: float = 0.0

    @classmethod
    def of_share(cls, share: float) -> Spread:
        """Return r (1 - r), that of a label with share r."""
        return cls(share * (1 - share), 1 - 2 * share, -1.0)

    @classmethod
    def of_variance(cls, variance: float) -> Spread:
        """Return 2 r^2, that of the square of a normal number with variance r."""
        return cls(2 * variance**2, 4 * variance, 2.0)


@dataclass(frozen=True, eq=False)
class Part:
    """The released sums that some terms need.

    Attributes
    ----------
    matrix, variance : (k, k) float64
    kurtosis : float
        Excess kurtosis of the noise of an entry: 0 for normal noise, 3 for that of Laplace.
    terms : (n_terms, k) float64
        The terms that were asked for, in this order; the first one is the constant.
    """

    matrix: Floats
    variance: Floats
    kurtosis: float
    terms: Floats

    def having(self, rows: tuple[int, ...]) -> Part:
        """Return the part in which the constant and these rows of terms are."""
        chosen = self.terms[[0, *rows]]
        support = np.flatnonzero(chosen.any(axis=0))
        block = np.ix_(support, support)
        return Part(self.matrix[block], self.variance[block], self.kurtosis, chosen[:, support])

    def product(self, first: int, second: int) -> Floats:
        """Return C of the sum of the product of two terms."""
        x, y = self.terms[first], self.terms[second]
        return np.asarray((np.outer(x, y) + np.outer(y, x)) / 2)

    def value(self, form: Floats) -> float:
        """Return the sum <C, G>."""
        return float((form * self.matrix).sum())

    def covariance(self, first: Floats, second: Floats) -> float:
        """Return the covariance of two sums by noise."""
        weights = 2 * self.variance - np.diag(np.diag(self.variance))
        return float((weights * first * second).sum())

    def width(self, form: Floats, level: float, sampling: float = 0.0) -> float:
        """Return half of the width of an interval of a sum, in its standard deviations.

        `sampling` is the variance that sampling adds, with normal tails.
        """
        width = width_of(level)
        variance = self.covariance(form, form) + sampling
        if not (self.kurtosis > 0 and variance > 0):
            return width
        fourth = np.square(self.variance * np.square(form))
        cumulant = 8 * float(fourth.sum()) - 7 * float(np.diag(fourth).sum())
        excess = self.kurtosis * cumulant / variance**2
        return width + (width**3 - 3 * width) / 24 * excess

    def interval(self, form: Floats, value: float, sampling: float, level: float) -> Estimate:
        """Return the interval of a sum with this value."""
        variance = self.covariance(form, form) + sampling
        half = self.width(form, level, sampling) * math.sqrt(max(variance, 0.0))
        return Estimate(value, value - half, value + half)

    def group(self, term: int) -> Floats:
        """Return C of the number of records with a label, with the least noise.

        A label is 0 or 1, so its sum and that of its squares are the same number. Their weights
        follow from the variances, which are public.
        """
        if term == 0:
            return self.product(0, 0)
        sums, squares = self.product(0, term), self.product(term, term)
        change = squares - sums
        of_change = self.covariance(change, change)
        if of_change <= 0:
            return sums
        return np.asarray(sums - self.covariance(sums, change) / of_change * change)

    def within(self, term: int, group: int) -> Floats:
        """Return C of the sum of a term over the records with a label, or over all.

        A term is a constant and a part without one; the constant adds up over the group's size.
        """
        constant = float(self.terms[term, 0] / self.terms[0, 0])
        moved = self.terms[term] - constant * self.terms[0]
        other = self.terms[group]
        rest = (np.outer(moved, other) + np.outer(other, moved)) / 2
        return np.asarray(constant * self.group(group) + rest)

    def squares(self, term: int, mean: float) -> Floats:
        """Return C of the sum of squares of a term about a number."""
        x = self.terms[term] - mean * self.terms[0]
        return np.outer(x, x)

    def stands_out(self, form: Floats, least: float = 0.0) -> bool:
        """Return whether a sum is above `least`, and above 0 by more than its noise."""
        total = self.value(form)
        return least < total and total > COUNT_DEVIATIONS * math.sqrt(self.covariance(form, form))

    def has_records(self, form: Floats) -> bool:
        """Return whether a number of records stands out of its noise; less than half is nobody."""
        return self.stands_out(form, 0.5)


def ratio_of(
    part: Part,
    top: Floats,
    bottom: Floats,
    value: float,
    spread: Spread,
    repetition: float,
    bounds: Bounds,
    level: float,
) -> Estimate:
    """Return the interval of a ratio of sums, about its `value` within `bounds`."""
    total, moved = part.value(bottom), top - value * bottom
    records = repetition * total
    wide = part.width(moved, level, records * spread.constant) ** 2
    noise = part.covariance(moved, moved) + records * spread.constant
    both = records * spread.linear - 2 * part.covariance(moved, bottom)
    square = total**2 - wide * (part.covariance(bottom, bottom) + records * spread.square)
    if not square > 0:
        return Estimate(value, *bounds)
    root = math.sqrt((wide * both) ** 2 + 4 * square * wide * max(noise, 0.0))
    ends = ((wide * both - root) / (2 * square), (wide * both + root) / (2 * square))
    low, high = (min(max(value + end, bounds[0]), bounds[1]) for end in ends)
    return Estimate(value, low, high)


def within(found: Estimate, bounds: Bounds) -> Estimate:
    """Return an estimate and its interval, cut at bounds."""
    low, high = bounds
    return Estimate(*(min(max(end, low), high) for end in (found.value, found.low, found.high)))


def width_of(level: float) -> float:
    """Return half of the width of an interval, in standard deviations."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ParameterError("level", level, "expected a number between 0 and 1, such as 0.95")
    return float(ndtri(0.5 + level / 2))
