"""Evidence in released cluster means that the domain cuts records.

Records outside a domain are moved to its edge, and a cluster of such records has its mean there. A
mean is known up to noise. It counts as on the edge if it may lie there and is unlikely to lie well
inside. Some methods do not move records to the edge of their box, because they read them in the
ball around it. Means beyond the edge are then the stronger evidence: no records inside have one.

All of this is post-processing. A cluster that is only partly cut has its mean inside and is not
noticed. Values that naturally lie on a bound, as in a column of zeros and ones, look as if they had
been cut; low bounds of 0 are taken for natural.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from privsketch._base.types import Bits, Floats
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.schema import Schema
from privsketch.learning.concerns import EDGE, bounds_concern, counting_bounds, edge_concern, sides

WELL_INSIDE = 0.95  # of the way from the center to the edge: a mean below is not cut
MAX_ERRORS = 3.0  # standard errors by which a mean may be off
EDGE_FALSE_ALARM = 0.001  # chance of an alarm in a run where no record is cut


@dataclass(frozen=True)
class Means:
    """Noisy means of clusters, in the units of the records.

    Attributes
    ----------
    means : (n_clusters, dim) float64
    counts : (n_clusters,) float64
        Noisy numbers of records.
    errors : (n_clusters, dim) float64
        Standard deviations of the noise of the means.
    count_errors : float or (n_clusters,) float64
        Standard deviations of the noise of the counts.
    is_gaussian : bool
        Whether the noise is Gaussian; the tails of other noise are bounded by those of Laplace.
    """

    means: Floats
    counts: Floats
    errors: Floats
    count_errors: Floats | float
    is_gaussian: bool

    @classmethod
    def of(
        cls,
        sums: Floats,
        counts: Floats,
        variances: tuple[Floats | float, float],
        *,
        is_gaussian: bool,
        around: Floats,
    ) -> Means:
        """Return the means of noisy sums about `around`, for variances of sums and of counts."""
        divisors = np.maximum(counts, 1.0)[:, np.newaxis]
        steps = sums / divisors
        sum_variance, count_variance = variances
        errors = np.sqrt(sum_variance + steps**2 * count_variance) / divisors
        return cls(steps + around, counts, errors, math.sqrt(count_variance), is_gaussian)

    @property
    def max_deviations(self) -> float:
        """Standard deviations that any noise exceeds with the probability of a false alarm."""
        tail = EDGE_FALSE_ALARM / self.means.size
        return -float(ndtri(tail)) if self.is_gaussian else -math.log(tail) / math.sqrt(2)

    def near(self, outward: Floats, errors: Floats, cell: float) -> Bits:
        """Return whether means may lie on the edge, at 1, and are unlikely to lie well inside."""
        may_lie_there = outward + MAX_ERRORS * errors + cell > EDGE
        return may_lie_there & (outward - self.max_deviations * errors > WELL_INSIDE)


def edge_concerns(
    clusters: Means,
    weights: Floats,
    domain: Domain,
    *,
    beyond: bool = False,
    cell: float = 0.0,
    schema: Schema | None = None,
    names: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return a concern if clusters of some weight have their means on the edge of the domain.

    `weights` are the model's shares of records. `beyond` is for methods that do not move records
    into a box: means must then lie outside it. `cell` is the distance from the edge at which
    records on the edge appear, in half-widths. With a `schema`, which already moved numbers and
    dates to their bounds, means are those of encoded records.
    """
    if schema is not None:
        domain, beyond = schema.box, False
    offsets = clusters.means - domain.center_vector
    is_real = clusters.counts > clusters.max_deviations * clusters.count_errors
    if isinstance(domain, Ball):
        # Noise makes vectors longer on average.
        squares = np.square(offsets).sum(axis=1) - np.square(clusters.errors).sum(axis=1)
        outward = np.sqrt(np.maximum(squares, 0.0)) / domain.radius
        errors = clusters.errors.max(axis=1) / domain.radius
        on_edge = clusters.near(outward, errors, cell)
        return tuple(edge_concern(float(weights[is_real & on_edge].sum())))
    outward = sides(offsets / domain.half_widths)
    errors = (clusters.errors / domain.half_widths)[:, np.newaxis]
    if beyond:  # what lies beyond a bound was cut, and no natural bound has records there
        is_at = outward - clusters.max_deviations * errors > 1.0
    else:
        is_at = clusters.near(outward, errors, cell) & counting_bounds(domain, schema)
    is_at = is_at & is_real[:, np.newaxis, np.newaxis]
    return tuple(bounds_concern(is_at, weights, domain, schema, names))


def cut_concerns(
    clusters: Means,
    weights: Floats,
    domain: Domain,
    *,
    schema: Schema | None = None,
    names: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return a concern of methods that move records into the ball around a box.

    What lies far outside of the box is then in a corner, or beyond a side: also beyond a natural
    bound, at which nothing counts that lies on it.
    """
    facts: dict[str, Any] = {"schema": schema, "names": names}
    near = edge_concerns(clusters, weights, domain, **facts)
    return near or edge_concerns(clusters, weights, domain, beyond=True, **facts)
