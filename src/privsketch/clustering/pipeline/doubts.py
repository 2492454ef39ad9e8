"""Doubts about centers after the last round, from what that round released.

Rounds that have found all clusters move their centers little: the last one improves means that are
nearly right. Centers that still move by a good part of their clusters' radius are on their way, or
follow noise; clusters whose counts noise may have made are in the wrong place. Both say more about
the cost than public facts can: a table without clusters is served well under any noise, and a table
of many small clusters badly under little.

All of this is post-processing of released numbers.
"""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.clustering.pipeline.rounds import Measured

# Excess of the cost over that without privacy, about: MOVED sqrt(m) exp(NOISY q), for the squared
# step m of the last round in squared radii, averaged over records, and the share q of clusters
# whose counts are below COUNT_DEVIATIONS. Fitted to 421 runs with random studies and real tables.
MOVED, NOISY, COUNT_DEVIATIONS = 1.2, 2.3, 3.0
# An alarm at this excess was raised in 96 and 98 % of the runs whose cost was above 1.5 times that
# of k-means (random studies, real tables), and in 12 and 5 % of those below 1.1; tables without
# clusters under much noise are most of the latter.
MAX_EXCESS = 0.165


def unfound_clusters(n_clusters: int) -> tuple[str, ...]:
    """Return a concern about centers that are only spread out around the mean of all records."""
    if n_clusters == 1:
        return ()
    return (
        "no cluster was looked for: noise would hide them, and the centers are spread out around "
        "the mean of all records. More records, a larger epsilon or fewer clusters help",
    )


def measured_excess(found: Measured, centers: Floats) -> float:
    """Return the excess of the cost that the last round tells of its centers, (k, dim)."""
    noisy = float(np.mean(_may_be_noise(found)))
    return MOVED * _moved(found, centers) * math.exp(NOISY * noisy)


def unsettled_centers(found: Measured, centers: Floats) -> tuple[str, ...]:
    """Return a concern if the last round did not find the centers, (k, dim), nearly in place."""
    is_noisy = _may_be_noise(found)
    if measured_excess(found, centers) <= MAX_EXCESS and not is_noisy.all():
        return ()
    return (
        "the centers may not be in place, and the cost well above that without privacy: the last "
        f"round still moved them by {_moved(found, centers):.0%} of the radius of their clusters, "
        f"and {int(is_noisy.sum())} of {len(is_noisy)} clusters may be noise. More records, a "
        "larger epsilon or fewer clusters help",
    )


def _may_be_noise(found: Measured) -> Bits:
    """Return the mask of clusters whose counts noise may have made."""
    return np.asarray(found.counts < COUNT_DEVIATIONS * math.sqrt(found.count_noise))


def _moved(found: Measured, centers: Floats) -> float:
    """Return the step of the centers, over the radius of their clusters."""
    counts = np.maximum(found.counts, 0.0)
    steps = np.square(centers - found.places).sum(axis=1)
    return math.sqrt(float(counts @ steps) / max(float(counts @ np.square(found.radii)), 1e-300))
