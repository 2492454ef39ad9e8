"""Sums of discrete Gaussian noises: nearly discrete Gaussian, and what "nearly" costs.

Write N_Z(0, v) for P(z) ~ exp(-z^2 / 2 v) on the integers; "variance" is v here, from which that
of the noise differs by less than 1 in e^600 where it counts.

Lemma. Let X, Y be independent, N_Z(0, s^2) and N_Z(0, t^2). Completing squares, X + Y has at n the
weight exp(-n^2 / 2 (s^2 + t^2)) f(c n), f(x) = sum over k of exp(-(k - x)^2 / 2 u^2), with
c = s^2 / (s^2 + t^2) and 1 / u^2 = 1 / s^2 + 1 / t^2. By Poisson summation f(x) is a constant times
1 + 2 sum over j >= 1 of q^(j^2) cos(2 pi j x), q = exp(-2 pi^2 u^2), which lies between
theta_4(q) > 0 and theta_3(q). Over its mean under N_Z(0, s^2 + t^2), f(c n) is the ratio of the law
of X + Y to N_Z(0, s^2 + t^2); so that ratio and its inverse are at most theta_3 / theta_4. Jacobi's
products make the logarithm of that 4 (artanh q + artanh q^3 + artanh q^5 + ...), at most 4.04 q
for s, t >= 1/2. (Kairouz, Liu and Steinke, 2021, have 5 q.)

A sum of several is made one by one, and a bound on a ratio of laws survives the addition of
independent noise: |ln ratio| <= tau / 2, tau = 8.08 times the sum of all q. In D coordinates a pair
of laws whose logarithms differ by at most e in each has Renyi divergences of at most a D e^2 / 2,
of any order a, both ways (Bun and Steinke, 2016, Proposition 3.3). Roots of such bounds add up
along a chain of laws, as for groups of records (ibid., Lemma 5.2: with k = 1 + x / y, bounds
a x^2 / 2 and a y^2 / 2 make a (x + y)^2 / 2): from the sum to the Gaussian, across by the
sensitivity, back to the sum,

    rho' = (sensitivity / sqrt(v) + tau sqrt(D))^2 / 2,     v the sum of variances.

With all scales >= 8, u^2 >= 32 and tau < 9 (number of noises) e^-631. A margin of 2^-40 in every
variance is more than that, and rho' is then at most sensitivity^2 / 2 v without the margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from privsketch._base.errors import ParameterError
from privsketch.noise.sums import MIN_SHARE

MARGIN = Fraction(1, 2**40)
_PER_Q = 8.08  # twice 4.04: there and back
_MIN_SCALE = 0.5  # of noises that the lemma's constant is for


def tau_of(variances: Sequence[float]) -> float:
    """How far a sum of noises with these variances is from discrete Gaussian: e^(tau / 2) at most.

    In the order given; any is valid.
    """
    if not variances or min(variances) < _MIN_SCALE**2:
        raise ParameterError(f"variances: expected numbers of at least {_MIN_SCALE**2}")
    total, whole = variances[0], 0.0
    for variance in variances[1:]:
        whole += math.exp(-2 * math.pi**2 * total * variance / (total + variance))
        total += variance
    return _PER_Q * whole * (1 + 1e-12)


def rho_of_sum(variances: Sequence[float], sensitivity: float, n_components: int = 1) -> float:
    """rho' of a sum of discrete Gaussian noises, for any that the lemma knows."""
    across = sensitivity / math.sqrt(math.fsum(variances))
    return (across + tau_of(variances) * math.sqrt(n_components)) ** 2 / 2 * (1 + 1e-12)


def require_margin(rho: float, n_noises: int, n_components: int) -> None:
    """Refuse a sum for which the margin of its variances does not pay for all of tau.

    With v (1 + m) for v, sensitivity / sqrt(v (1 + m)) <= sqrt(2 rho) (1 - m / 3); the rest of
    sqrt(2 rho) is what tau sqrt(D) may be. In logarithms, because both are beyond floats.
    """
    log_tau = math.log(9 * n_noises) - math.pi**2 * MIN_SHARE**2
    room = math.log(2 * rho) / 2 + math.log(MARGIN / 3)
    if log_tau + math.log(n_components) / 2 > room:
        raise ParameterError("noise: so much of it that its parts do not add up to it")


def root_up(value: Fraction) -> float:
    """The least float whose square is not below `value`."""
    root = math.sqrt(value)
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    while Fraction(math.nextafter(root, 0.0)) ** 2 >= value:
        root = math.nextafter(root, 0.0)
    return root


def layer_scales(scale: float, levels: Sequence[int]) -> tuple[float, ...]:
    """Scales of the noises that a holder adds one on top of the other, one for each level.

    The first l of them have variances that add up to scale^2 / levels[l - 1], with the margin:
    as many holders as that have together what one release has. Levels fall.
    """
    whole = Fraction(scale) ** 2 * (1 + MARGIN)
    sizes: list[float] = []
    so_far = Fraction(0)
    for level in levels:
        missing = whole / level - so_far
        if missing < MIN_SHARE**2:
            raise ParameterError(
                f"levels: noise for {level} holders has a part with a scale below {MIN_SHARE}; use "
                "a design that has room for parts of its noise: planned with `n_holders=` as many "
                "as take part, and `sharing='holders'`"
            )
        sizes.append(root_up(missing))
        so_far += Fraction(sizes[-1]) ** 2
    return tuple(sizes)


MAX_LEVELS = 16  # of a ballot, each as long as a sketch; a step then costs 5 % from N to N / 2


def plan_levels(scale: float, most: int, least: int) -> tuple[int, ...]:
    """Numbers of honest noises that suffice, from `most` down to `least`: all, or a geometric grid.

    Of two neighbours H > H' a total in between has H / H' times the variance that it would need.
    Where a design has no room for parts of its noise, there are fewer levels, and coarser ones.
    """
    if not 1 <= least <= most:
        raise ParameterError(f"levels: expected 1 <= {least} <= {most}")
    # Other machines may know the scale differently in its last digits.
    smallest = Fraction(MIN_SHARE) ** 2 * (1 + Fraction(1, 10**6))
    most = min(most, max(least, math.floor(Fraction(scale) ** 2 / smallest)))
    for count in range(min(MAX_LEVELS, most - least + 1), 1, -1):
        found = _geometric(most, least, count)
        steps = zip(found[1:], found, strict=False)
        parts = [Fraction(1, few) - Fraction(1, many) for few, many in steps]
        if Fraction(scale) ** 2 * min(parts) >= smallest:
            return found
    layer_scales(scale, [least])
    return (least,)


def _geometric(most: int, least: int, count: int) -> tuple[int, ...]:
    """`count` whole numbers or fewer from `most` to `least`, at about equal ratios."""
    if most - least + 1 <= count:
        return tuple(range(most, least - 1, -1))
    inner = [round(most * (least / most) ** (place / (count - 1))) for place in range(count)]
    return tuple(sorted({most, *inner, least}, reverse=True))
