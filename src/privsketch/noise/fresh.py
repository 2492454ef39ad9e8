"""Noise that hides a record behind a fresh, secret random matrix.

Z = x P + noise with P of independent N(0, 1/k) entries, drawn from the operating system's
generator for this one release. For a fixed pair of records with difference v, the shift v P is
N(0, |v|^2 / k) in each of its k components, so the pair (P, Z) costs the mean over such shifts:
no union over rows, columns or directions. P may be published with Z, never before, and is used
once. docs/projection.md has the argument, and the JLL theorems that it replaces.

Everything here is in units of |v|. `rounding` bounds the distance between the actual shift and the
Gaussian one, because entries of P are rounded to a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, wofz

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import MIN_DELTA
from privsketch.noise.calibration import bisect

# Far above the error of root finders and quadratures.
_NUMERIC_MARGIN = 1.0 + 1e-9


def _require_delta(delta: float) -> None:
    if not MIN_DELTA <= delta < 1:
        raise ParameterError(
            f"`delta={delta:g}` with `calibration='fresh'`: a fresh matrix needs a delta from "
            f"{MIN_DELTA:g} to below 1; use `calibration='realised'` for pure differential privacy"
        )


@lru_cache(maxsize=1024)
def half_normal_tail(n_components: int, bound: float, epsilon: float = math.inf) -> float:
    """Return E[(1 - exp(epsilon (1 - S / bound)))+], S = |N_1| + ... + |N_k|, N standard normal.

    With an infinite epsilon that is P(S > bound). The Laplace transform of one term is
    M(z) = 2 exp(z^2 / 2) Phi(z); the tail is the integral of M(z)^k exp(-z bound) / z over a line
    to the right of 0. The mean is that of P(S > bound (1 + U)), U exponential of rate epsilon,
    which puts a factor 1 / (1 + z bound / epsilon) into the integral. From the saddle point the
    line is bent to the right, where |M| stays below 1 and exp(-z bound) falls.
    """
    if bound <= 0:
        return 1.0
    k = n_components
    saddle = _saddle(k, bound)
    peak = k * _log_transform(complex(saddle)).real - saddle * bound
    slope = 0.7
    direction = complex(slope, 1.0)

    def integrand(t: float) -> float:
        z = saddle + direction * t
        value = np.exp(k * _log_transform(z) - z * bound - peak) / z * direction
        value /= 1 + z * bound / epsilon
        return float(value.imag)

    # The peak is about 1 / sqrt(k) wide; beyond the end exp(-z bound) is below 1e-20.
    width, end = 12.0 / math.sqrt(k), 12.0 / math.sqrt(k) + 50.0 / (slope * bound)
    near = quad(integrand, 0.0, width, epsabs=0.0, epsrel=1e-12, limit=400)[0]
    far = quad(integrand, width, end, epsabs=1e-14 * abs(near), epsrel=1e-12, limit=400)[0]
    area = near + far
    return float(min(1.0, math.exp(peak) * area / math.pi))


def _log_transform(z: complex) -> complex:
    """Return ln M(z) = u^2 + ln erfc(-u), u = z / sqrt 2, for Re z > 0, without overflow."""
    # erfc(-u) = 2 - erfc(u), and exp(u^2) erfc(u) = w(i u) is moderate there.
    u = z / math.sqrt(2)
    square = u * u
    if square.real > 0:
        return complex(square + np.log(2 - np.exp(-square) * wofz(1j * u)))
    return complex(np.log(2 * np.exp(square) - wofz(1j * u)))


def _saddle(k: int, bound: float) -> float:
    """Minimise k ln M(s) - s bound - ln s: any s > 0 is valid, this one is accurate."""

    def height(log_s: float) -> float:
        s = math.exp(log_s)
        return k * (math.log(2) + s * s / 2 + float(log_ndtr(s))) - s * bound - log_s

    minimum = minimize_scalar(height, bounds=(-12.0, math.log(bound / k + 5.0)), method="bounded")
    return float(math.exp(minimum.x))


@lru_cache(maxsize=1024)
def half_normal_quantile(n_components: int, delta: float, epsilon: float = math.inf) -> float:
    """Return the least bound above the mean of S with `half_normal_tail` <= delta, rounded up."""
    _require_delta(delta)
    low = high = n_components * math.sqrt(2 / math.pi)  # the mean
    if half_normal_tail(n_components, low, epsilon) <= delta:
        return low
    while half_normal_tail(n_components, high, epsilon) > delta:
        high += 2 * math.sqrt(n_components)
    root = brentq(
        lambda q: math.log(half_normal_tail(n_components, q, epsilon)) - math.log(delta),
        low,
        high,
        rtol=1e-13,
    )
    return float(root) * _NUMERIC_MARGIN


def fresh_laplace(n_components: int, delta: float, epsilon: float = math.inf) -> float:
    """Return c / |v|: Laplace noise of scale c / epsilon is (epsilon, delta) private.

    The L1 norm of the shift is |v| / sqrt(k) times a sum S of k half-normal variables, and the
    loss at most L = epsilon S / (sqrt(k) c), whatever the noise is. Of densities p <= e^L q the
    integral of (p - e^epsilon q)+ is at most 1 - e^(epsilon - L), or 0 for L <= epsilon; delta is
    the mean of that. Without an epsilon it is P(L > epsilon), which is more: then every longer
    shift counts as hiding nothing.
    """
    quantile = half_normal_quantile(n_components, delta, epsilon)
    return quantile / math.sqrt(n_components) * _NUMERIC_MARGIN


def log_delta_fresh_laplace(
    scale: float, n_components: int, epsilon: float, rounding: float = 0.0, step: float = 0.0
) -> float:
    """Return ln delta of discrete Laplace noise of scale b = scale |v|, by Renyi divergences.

    Shifted by w >= 0 the moment of order a of its density ratio is A e^((a - 1) w / b) +
    (1 - A) e^(-a w / b). For continuous noise A = a / (2 a - 1); on integers, of which one is
    x = step / scale in units of b, A is larger by at most (2 a - 1) x^2 / 24, because
    tanh(x) <= x and 1 / (e^y - 1) <= 1 / y - 1 / 2 + y / 12. With such an A it grows with w.
    Components of the shift are independent, each at most |v| (|N| / sqrt(k) + rounding), and
    E e^(t |N|) = 2 e^(t^2 / 2) Phi(t). Every a > 1 is valid.
    """
    k, width, extra = n_components, 1 / (math.sqrt(n_components) * scale), rounding / scale
    x = step / scale

    def objective(log_b: float) -> float:
        b = math.exp(log_b)  # a - 1
        a = 1 + b
        larger = math.log(a / (a + b) + (a + b) * x * x / 24) + b * extra + _log_mean(b * width)
        smaller = math.log(b / (a + b)) - a * extra + _log_mean(-a * width)
        moment = k * float(np.logaddexp(larger, smaller))
        return moment - b * epsilon - a * math.log1p(math.exp(-log_b)) - log_b

    grid = np.linspace(-8.0, 2 * math.log(scale + 1) + 12.0, 200)
    return _least(objective, grid)


def _log_mean(t: float) -> float:
    """Return ln E e^(t |N|), N standard normal."""
    return math.log(2) + t * t / 2 + float(log_ndtr(t))


def _least(objective: Callable[[float], float], grid: npt.NDArray[np.float64]) -> float:
    """Return the least value near the best point of a grid; ln 1 is always valid."""
    best = float(grid[int(np.argmin([objective(float(point)) for point in grid]))])
    step = float(grid[1] - grid[0])
    bounds = best - step, min(best + step, float(grid[-1]))
    minimum = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-11})
    return float(min(minimum.fun, 0.0))


@lru_cache(maxsize=1024)
def fresh_laplace_scale(
    n_components: int, epsilon: float, delta: float, rounding: float = 0.0, step: float = 0.0
) -> float:
    """Return b / |v| of discrete Laplace noise that is (epsilon, delta) private, rounded up.

    It hardly grows with the number of components, while `fresh_laplace` grows with their sum.
    """
    return _root(
        lambda scale: log_delta_fresh_laplace(scale, n_components, epsilon, rounding, step), delta
    )


def _root(log_delta: Callable[[float], float], delta: float) -> float:
    """Return where a falling function passes ln delta, rounded up."""
    _require_delta(delta)
    target = math.log(delta)
    low = high = 1.0
    while log_delta(high) > target:
        high *= 2
    while log_delta(low) <= target:
        low /= 2
    _, root = bisect(lambda at: log_delta(at) <= target, low, high, tolerance=1e-13)
    return root * _NUMERIC_MARGIN


def log_delta_fresh_gaussian(
    sigma: float, n_components: int, epsilon: float, rounding: float = 0.0
) -> float:
    """Return ln delta of discrete Gaussian noise of standard deviation sigma |v|.

    Shifted by w, discrete Gaussian noise has a Renyi divergence of order a of at most
    a |w|^2 / (2 sigma^2) (Canonne, Kamath and Steinke, 2020). With |w| <= |v| (sqrt(X / k) + e),
    X chi-squared with k degrees of freedom and e the rounding, and (s + e)^2 <= (1 + e) s^2 +
    (1 + 1/e) e^2, its exponential moment over P is a closed form. Every a is valid.
    """
    k, square = n_components, sigma * sigma
    stretch, extra = 1 + rounding, rounding * rounding + rounding
    # a (a - 1) stretch < k sigma^2
    largest = 0.5 + math.sqrt(0.25 + k * square / stretch)

    def objective(log_b: float) -> float:
        b = math.exp(log_b)  # a - 1
        a = 1 + b
        inside = a * b * stretch / (k * square)
        if inside >= 1:
            return math.inf
        moment = -k / 2 * math.log1p(-inside) + a * b * extra / (2 * square)
        return moment - b * epsilon - a * math.log1p(math.exp(-log_b)) - log_b

    top = math.log(largest - 1)
    return _least(objective, np.linspace(top - 15, top - 1e-9, 400))


@lru_cache(maxsize=1024)
def fresh_gaussian(n_components: int, epsilon: float, delta: float, rounding: float = 0.0) -> float:
    """Return sigma / |v| of (epsilon, delta) private discrete Gaussian noise, rounded up."""
    return _root(
        lambda sigma: log_delta_fresh_gaussian(sigma, n_components, epsilon, rounding), delta
    )
