"""Evidence in released clusters that the domain is far too wide for the records.

Noise, grids and public starts are made for the domain. Where all records lie in a small part of it,
a method may have one center for them, and the others where there are no records. Forecasts do not
see that: they are for clusters that use a quarter of the domain or more (design/forecast.py). A
model with such a concern therefore has no forecast.

All of this is post-processing of released numbers. Records in a small part of the domain raise no
concern if every cluster is found.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.facts.domain import Domain

SMALL_PART = 1 / 4  # smallest spread of clusters that forecasts are for, over that of the domain
EMPTY_SHARE = 0.02  # of an average cluster, below which one counts as empty
EMPTY_DEVIATIONS = 4.0  # standard deviations of its count below which a cluster may be empty
UNRESOLVED = 1.5  # extent of all records, over the finest scale, below which nothing is resolved
SAME_PLACE = 2.0  # spread of centers, over their noise, below which noise alone may set them apart


def has_records(counts: Floats, count_errors: Floats | float) -> Bits:
    """Return the mask of the clusters that have records, for the noise of their counts."""
    average = max(float(counts.sum()), 0.0) / len(counts)
    least = np.maximum(EMPTY_SHARE * average, EMPTY_DEVIATIONS * np.asarray(count_errors))
    return np.asarray(counts > least)


def spread_of(centers: Floats, counts: Floats) -> float:
    """Return the standard deviation of centers along an axis, weighted by their counts."""
    weights = counts / counts.sum()
    return math.sqrt(float(np.mean(weights @ np.square(centers - weights @ centers))))


def crowded(
    centers: Floats, counts: Floats, count_errors: Floats | float, domain: Domain
) -> tuple[str, ...]:
    """Return a concern if records are around few neighbouring centers and others have none.

    `counts` (k,) are noisy numbers of records, with standard deviations `count_errors`.
    """
    k, real = len(centers), has_records(counts, count_errors)
    if real.all() or not real.any():
        return ()
    spread = spread_of(centers[real], counts[real])
    if spread >= SMALL_PART * domain.spread:
        return ()
    n_real = int(real.sum())
    apart = "" if n_real == 1 else f", which lie within about {spread:.2g} of each other"
    return (
        f"all records are around {n_real} of {k} centers{apart}, and the domain reaches "
        f"{domain.spread:.3g} from its center: the domain may be far too wide for them",
    )


def unresolved(extent: float, finest: float, what: str) -> tuple[str, ...]:
    """Return a concern if records lie closer together than boxes of a grid can tell apart."""
    if extent >= UNRESOLVED * finest:
        return ()
    return (_within(extent, what, finest),)


def unresolved_centers(centers: Floats, noise: float) -> tuple[str, ...]:
    """Return a concern if centers with noise of this deviation are no farther apart than it."""
    spread = spread_of(centers, np.ones(len(centers)))
    if len(centers) == 1 or spread >= SAME_PLACE * noise:
        return ()
    return (_within(spread, "the noise of this method", noise),)


def _within(extent: float, what: str, finest: float) -> str:
    return (
        f"all records lie within about {extent:.2g} of each other, and {what} resolves "
        f"{finest:.2g}: the domain may be far too wide for them"
    )
