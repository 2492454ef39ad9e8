"""Formulas for the scale of the noise, from budget and sensitivity.

Scales are rounded up and privacy parameters down, so rounding never weakens a guarantee. All noise
is discrete: discrete Laplace or the cube for pure differential privacy, discrete Gaussian with
`kappa_discrete` (through zero-concentrated differential privacy) otherwise. docs/theory.md has the
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from scipy.optimize import minimize_scalar

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import exact

# Bisection ends within a few units in the last place; these margins are far larger, at no cost.
_ROUND_UP, _ROUND_DOWN = 1.0 + 1e-11, 1.0 - 1e-11


def _require_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ParameterError(
            f"`delta={delta:g}` with Gaussian noise: the Gaussian mechanism needs 0 < delta < 1; "
            "use `noise='cube'` or `noise='laplace'` for pure differential privacy"
        )


def bisect(
    is_enough: Callable[[float], bool],
    low: float,
    high: float,
    *,
    tolerance: float = 0.0,
    max_steps: int = 2000,  # enough for all floats
) -> tuple[float, float]:
    """Bisect between `low`, which is not enough, and `high`, which is; return the last two.

    It ends at a relative distance of `tolerance`, or where no float lies between both.
    """
    for _ in range(max_steps):
        middle = (low + high) / 2
        if middle in (low, high) or high - low < tolerance * high:
            break
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low, high


def log_delta_zcdp(rho: float, epsilon: float) -> float:
    """Return ln delta(epsilon) implied by rho-zCDP (Canonne, Kamath and Steinke, 2020).

    delta = min over a > 1 of exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1). Any a
    is valid, so an inexact minimiser errs on the safe side. The logarithm of 1 - 1/a is computed
    without cancellation, because a minimiser would find rounding errors.
    """

    def objective(log_order: float) -> float:
        b = math.exp(log_order)  # a - 1
        a = 1 + b
        return b * (a * rho - epsilon) - a * math.log1p(math.exp(-log_order)) - log_order

    # The minimiser lies near (epsilon + rho) / (2 rho) when that is large.
    center = math.log(max((epsilon + rho) / (2 * rho), 1e-3))
    minimum = minimize_scalar(
        objective, bounds=(center - 12, center + 6), method="bounded", options={"xatol": 1e-10}
    )
    return float(min(minimum.fun, 0.0))


@lru_cache(maxsize=4096)  # planners ask for the same budgets many times
def rho_of_budget(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP guarantee implies (epsilon, delta), rounded down."""
    _require_delta(delta)

    def is_too_much(rho: float) -> bool:
        return not log_delta_zcdp(rho, epsilon) <= math.log(delta)  # true for NaN as well

    high = max(1.0, 2 * epsilon)
    while not is_too_much(high):
        high *= 2
    return bisect(is_too_much, 0.0, high, tolerance=1e-15)[0] * _ROUND_DOWN


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return the least epsilon that rho-zCDP implies at a delta, rounded up."""
    _require_delta(delta)
    rho *= _ROUND_UP

    def is_enough(epsilon: float) -> bool:
        return log_delta_zcdp(rho, epsilon) <= math.log(delta)

    low, high = 0.0, max(1.0, rho)
    while not is_enough(high):
        low, high = high, 2 * high
    return bisect(is_enough, low, high, tolerance=1e-14)[1]


def kappa_discrete(epsilon: float, delta: float) -> float:
    """Return sigma of discrete Gaussian noise at L2 sensitivity 1: 1 / sqrt(2 rho)."""
    return math.sqrt(1 / (2 * rho_of_budget(epsilon, delta))) * _ROUND_UP


MAX_NOISE_SCALE = 2**500  # its square is a float; far beyond noise that fits 64-bit integers


def laplace_scale(l1_sensitivity: float, epsilon: float) -> float:
    """Return the scale b = sensitivity / epsilon, the least float that is not below it."""
    target = Fraction(l1_sensitivity) / exact(epsilon)  # exact: large integers are not floats
    if target > MAX_NOISE_SCALE:
        raise ParameterError("epsilon", epsilon, "too small for any noise")
    scale = float(target)
    while scale < target:
        scale = math.nextafter(scale, math.inf)
    return scale


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise: 2 q / (1 - q)^2, q = e^(-1/scale)."""
    return 0.5 / math.sinh(0.5 / scale) ** 2


def cube_variance(n_components: int, linf_sensitivity: int, epsilon: float) -> float:
    """Return the variance of one component of cube noise.

    Given the radius R a component is uniform on -R..R: E[R (R + 1) / 3]. R is, up to an
    acceptance close to 1, a sum of D + 1 geometric variables; the continuous limit is
    (D + 1)(D + 2) (sensitivity / epsilon)^2 / 3.
    """
    ratio = linf_sensitivity / epsilon
    return (n_components + 1) * (n_components + 2) * ratio * ratio / 3


def sums_share(n_records: float, epsilon: float, *, noise: float, scatter: float) -> float:
    """Return the share of a Laplace budget for the sums when the count takes the rest.

    It minimises the bound of CLP Lemma 27 for sums that are divided by the count,
    (1 + A / u^2) (B + C / (1 - u)^2) with u the share of the count: A = 1 / (n epsilon)^2 is the
    count's, B = 1 + (scatter - 1) / n that of finitely many records, C = A noise that of the sums.
    Where its derivative is 0, u^3 + 2 A u - A = (B / noise) (1 - u)^3. The left side rises
    and the right one falls, so there is one root in (0, 1). CLP Lemma 28 drops the right side,
    which is valid only for sketches that are all noise (docs/theory.md).

    Parameters
    ----------
    noise : float
        Squared Laplace noise of all sums at epsilon = 1, over the squared sums of one record on
        average.
    scatter : float
        Squared norm of a record over that of the average, masks included.
    """
    a = 1.0 / (n_records * epsilon) ** 2
    beside = (1.0 + (scatter - 1.0) / n_records) / noise

    def is_right_of_root(u: float) -> bool:
        v = 1.0 - u
        # Products only, which are the same everywhere: holders must agree on a scale.
        return u * u * u + 2 * a * u - a - beside * v * v * v >= 0

    return 1.0 - bisect(is_right_of_root, 0.0, 1.0, max_steps=200)[1]


def round_up_sqrt(value: int) -> float:
    """Return a float not below sqrt(value)."""
    root = math.sqrt(value)
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    return root


def round_down(value: Fraction) -> float:
    """Return the largest float whose decimal text is not above `value`."""
    number = float(value)
    while exact(number) > value:
        number = math.nextafter(number, -math.inf)
    return number
