"""Centers to start from that look at no record: from a public seed and the domain alone.

"uniform" draws them uniformly. "packing" spreads them (Su et al., 2016): the largest a, found by
bisection, for which k random points can be placed at least a from the border and 2 a from each
other. Nothing is charged.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.domain import Ball, Domain

Start = Literal["packing", "uniform"]
STARTS: tuple[Start, ...] = ("packing", "uniform")
_TRIES = 100  # random places tried for a point before all of them start again
_ATTEMPTS = 10  # starts before a counts as too large: the first points may lie badly
_BISECTIONS = 12  # leave a within 2^-12 of the narrowest half-width
_AT_ONCE = 10  # places that are drawn together


def start_centers(domain: Domain, n_clusters: int, start: Start, seed: int) -> Floats:
    """Centers (k, dim) about the center of the domain, in the units of the records."""
    if start not in STARTS:
        raise ParameterError("start", start, "expected 'packing' or 'uniform'")
    low, high = 0.0, float(domain.half_widths.min())
    rng = np.random.default_rng(seed)
    best = _uniform(domain, 0.0, n_clusters, rng)
    if start == "uniform" or n_clusters == 1:
        return best
    for _ in range(_BISECTIONS):
        distance = (low + high) / 2
        for _ in range(_ATTEMPTS):
            placed = _placed(domain, distance, n_clusters, rng)
            if placed is not None:
                low, best = distance, placed
                break
        else:
            high = distance
    return best


def _placed(
    domain: Domain, distance: float, n_clusters: int, rng: np.random.Generator
) -> Floats | None:
    """Points `distance` from the border and twice that from each other, or None if none fit."""
    points = np.empty((n_clusters, len(domain.half_widths)))
    for number in range(n_clusters):
        for _ in range(_TRIES // _AT_ONCE):
            places = _uniform(domain, distance, _AT_ONCE, rng)
            gaps = places[:, np.newaxis] - points[:number]
            free = (np.vecdot(gaps, gaps) >= 4 * distance**2).all(axis=1)
            if free.any():
                points[number] = places[free.argmax()]
                break
        else:
            return None
    return points


def _uniform(domain: Domain, distance: float, count: int, rng: np.random.Generator) -> Floats:
    """Uniform points at least `distance` from the border."""
    half = domain.half_widths - distance
    if not isinstance(domain, Ball):
        return (2 * rng.random((count, len(half))) - 1) * half
    normal = rng.normal(size=(count, len(half)))
    length = rng.random((count, 1)) ** (1 / len(half))
    return np.asarray(normal * length / np.linalg.norm(normal, axis=1, keepdims=True) * half)
