"""Points of the domain: centers to start from, and noise for centers that may lie anywhere.

Centers to start from depend on a public seed and the domain alone: no record is read and nothing is
charged. "uniform" draws them uniformly. "packing" spreads them (Su et al., 2016): it finds by
bisection the largest a for which k random points fit at least a from the border and 2 a apart.

Noise for k points only assumes that they lie in the domain. Any k points can become any other k:
each moves by the diameter of the domain, under both relations. With A, the sum of the
half-widths of a box or sqrt(d) R for a ball of radius R, that is 2 k A in L1. It is twice the
largest half-width, or 2 R, in the largest component. In L2 it is 2 R sqrt(k), R being half the
diagonal of a box. Without a delta the kind of noise with the smaller variance is used.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from privsketch._base.errors import require_gaussian_delta, require_one_of
from privsketch._base.types import Floats, Integers
from privsketch.clustering.forecast import (
    PublicFacts,
    forecast_ratio,
    laplace_variance,
    noise_variance,
)
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.facts.domain import Ball, Domain
from privsketch.noise.account import Account

Start = Literal["packing", "uniform"]
STARTS: tuple[Start, ...] = ("packing", "uniform")
_POSITIONS_PER_POINT = 100  # random positions tried for a point before all points start again
_PACKING_RESTARTS = 10  # restarts before a counts as too large
_BISECTIONS = 12  # leave a within 2^-12 of the narrowest half-width
_POSITIONS_AT_ONCE = 10  # positions drawn together
RANDOM_ROWS = 2**14  # records whose random numbers are drawn together


def start_centers(domain: Domain, n_clusters: int, start: Start, seed: int) -> Floats:
    """Return start centers (k, dim) about the center of the domain, in units of the records."""
    require_one_of("start", start, STARTS)
    low, high = 0.0, float(domain.half_widths.min())
    rng = np.random.default_rng(seed)
    best = _uniform(domain, 0.0, n_clusters, rng)
    if start == "uniform" or n_clusters == 1:
        return best
    for _ in range(_BISECTIONS):
        distance = (low + high) / 2
        for _ in range(_PACKING_RESTARTS):
            points = _packed(domain, distance, n_clusters, rng)
            if points is not None:
                low, best = distance, points
                break
        else:
            high = distance
    return best


def _packed(
    domain: Domain, distance: float, n_clusters: int, rng: np.random.Generator
) -> Floats | None:
    """Return points `distance` from the border and twice that apart; None if they do not fit."""
    points = np.empty((n_clusters, len(domain.half_widths)))
    for number in range(n_clusters):
        for _ in range(_POSITIONS_PER_POINT // _POSITIONS_AT_ONCE):
            trials = _uniform(domain, distance, _POSITIONS_AT_ONCE, rng)
            gaps = trials[:, np.newaxis] - points[:number]
            is_free = (np.vecdot(gaps, gaps) >= 4 * distance**2).all(axis=1)
            if is_free.any():
                points[number] = trials[is_free.argmax()]
                break
        else:
            return None
    return points


def _uniform(domain: Domain, distance: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw uniform points at least `distance` from the border."""
    half = domain.half_widths - distance
    if not isinstance(domain, Ball):
        return (2 * rng.random((count, len(half))) - 1) * half
    normal = rng.normal(size=(count, len(half)))
    length = rng.random((count, 1)) ** (1 / len(half))
    return np.asarray(normal * length / np.linalg.norm(normal, axis=1, keepdims=True) * half)


PointNoise = Literal["laplace", "cube", "gaussian"]
POINT_NOISES: tuple[PointNoise, ...] = ("laplace", "cube", "gaussian")


def noise_of_run(run: Run, noise: str | None, n_points: int) -> PointNoise:
    """Return the kind of noise for `n_points` points in one release; pure noise drops the delta."""
    if noise is None:
        noise = "gaussian" if run.budget.delta > 0 else _pure_noise(run.domain, n_points)
    kind = require_one_of("noise", noise, POINT_NOISES)
    if kind == "gaussian":
        require_gaussian_delta(run.budget.delta)
    else:
        run.without_delta()
    return kind


def point_variance(facts: PublicFacts, kind: PointNoise, n_points: int, share: float) -> float:
    """Return the variance of the noise of `noisy_points` along an axis.

    They are released together, `n_points` of them, with a share of the budget.
    """
    if kind == "gaussian":
        variance = noise_variance(facts, 0.0, 2 * math.sqrt(n_points) * facts.l2, share)
    elif kind == "laplace":
        variance = laplace_variance(facts, 2 * n_points * facts.l1, share)
    else:
        size, widest = n_points * facts.dim, 2 * float(facts.domain.half_widths.max())
        variance = (size + 1) * (size + 2) / 3 * (widest / (facts.budget.epsilon * share)) ** 2
    if facts.budget.neighbours == "replace":  # a replacement moves points no farther
        variance /= 2 if kind == "gaussian" else 4
    return variance


def point_forecast(facts: PublicFacts, variance: float) -> float:
    """Return the cost ratio to expect of points with noise of that variance."""
    return forecast_ratio(facts, lambda reference: variance / reference.width**2)


def _pure_noise(domain: Domain, n_points: int) -> PointNoise:
    """Return the pure noise of smaller variance."""
    half = domain.half_widths
    dim, widest = len(half), float(half.max())
    l1 = math.sqrt(dim) * widest if isinstance(domain, Ball) else float(half.sum())
    size = n_points * dim
    laplace = 2 * (n_points * l1) ** 2
    return "laplace" if laplace < (size + 1) * (size + 2) / 3 * widest**2 else "cube"


def noisy_points(
    account: Account, name: str, passes: Passes, points: Integers, kind: PointNoise
) -> Floats:
    """Release points (k, dim), or a sum of such arrays, with noise for all points.

    Charges: the share `name`.
    """
    k = len(points)
    account.require_one_record(name)
    if kind == "laplace":
        diameter = 2 * k * passes.l1
        return account.laplace(name, points, diameter, replaced=diameter)[0]
    if kind == "cube":
        diameter = 2 * int(passes.limits.max())
        return account.cube(name, points, diameter, replaced=diameter)[0]
    squared = 4 * k * passes.l2_squared
    return account.gaussian(name, points, squared, replaced=squared)[0]
