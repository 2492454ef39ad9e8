"""Signs in released means of clusters that the domain cuts records.

Records outside of a domain are moved to its edge, and a cluster of them has its mean there. A mean
is known up to noise. It counts as on the edge if it may lie there, and can lie well inside with a
small chance only. Some methods do not move records to the edge of their box, because they read them
in the ball around it. Means beyond the edge then show the same, and more surely: records inside
have no mean there.

This is post-processing of released numbers. A cluster that is cut in part has its mean inside, and
is not noticed. Values that naturally lie on a bound, as in a column of zeros and ones, look as if
they had been cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from privsketch._base.types import Floats
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.schema import Schema
from privsketch.learning.concerns import EDGE, coordinates_cut, edge_concern

WELL_INSIDE = 0.95  # of the way from the center to the edge: a mean there is not cut
MAX_ERRORS = 3.0  # standard errors by which a mean may be off
FALSE_ALARM = 0.001  # chance of an alarm in a run where no record is cut


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
        Whether the noise is Gaussian; tails of all other noise are at most those of Laplace noise.
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
        variances: tuple[float, float],
        *,
        is_gaussian: bool,
        around: Floats,
    ) -> Means:
        """Return means of noisy sums about `around`, given the variances of sums and counts."""
        divisors = np.maximum(counts, 1.0)[:, np.newaxis]
        steps = sums / divisors
        sum_variance, count_variance = variances
        errors = np.sqrt(sum_variance + steps**2 * count_variance) / divisors
        return cls(steps + around, counts, errors, math.sqrt(count_variance), is_gaussian)

    @property
    def sure(self) -> float:
        """Standard deviations that a noise of the run exceeds with the chance of a false alarm."""
        chance = FALSE_ALARM / self.means.size
        return -float(ndtri(chance)) if self.is_gaussian else -math.log(chance) / math.sqrt(2)


def cut_records(
    clusters: Means,
    weights: Floats,
    domain: Domain,
    *,
    beyond: bool = False,
    cell: float = 0.0,
    schema: Schema | None = None,
) -> tuple[str, ...]:
    """Return a concern if clusters of some weight have their means on the edge of the domain.

    `weights` are the shares of records that the model states. `beyond` is for methods that do not
    move records into a box: means must then lie outside as well. `cell` is the distance from the
    edge at which records on the edge appear, in half-widths. With a `schema`, which moved numbers
    and dates to their bounds before, means are those of encoded records.
    """
    if schema is not None:
        domain, beyond = schema.box, False
    offsets = clusters.means - domain.center_vector
    if isinstance(domain, Ball):
        # Noise makes vectors longer.
        squares = np.square(offsets).sum(axis=1) - np.square(clusters.errors).sum(axis=1)
        outward = np.sqrt(np.maximum(squares, 0.0))[:, np.newaxis] / domain.radius
        errors = clusters.errors.max(axis=1, keepdims=True) / domain.radius
    else:
        outward = np.abs(offsets) / domain.half_widths
        errors = clusters.errors / domain.half_widths
        if schema is not None:
            outward = np.where(coordinates_cut(schema), outward, 0.0)
    surely = outward - clusters.sure * errors
    if beyond and not isinstance(domain, Ball):
        on_edge = surely > 1.0
    else:
        on_edge = (outward + MAX_ERRORS * errors + cell > EDGE) & (surely > WELL_INSIDE)
    is_real = clusters.counts > clusters.sure * clusters.count_errors
    return tuple(edge_concern(float(weights[is_real & on_edge.any(axis=1)].sum())))
