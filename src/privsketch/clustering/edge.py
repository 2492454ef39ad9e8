"""Whether a domain cuts records, as far as released means of clusters tell.

Records outside of a domain are moved to its edge, and a cluster of them has its mean there. A mean
is known up to noise: it is taken to lie on the edge if it may lie there, and cannot lie well inside
by all but a small chance. Of records that a method does not move to the edge of its box, because it
reads them in the ball around it, means beyond the edge tell the same, and more surely: no mean of
records inside is there.

Released numbers only. A cluster that is cut in part has its mean inside, and is not noticed; values
that lie on a bound by their nature, a column of zeros and ones, look as if they had been cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from privsketch._base.types import Floats
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.schema import Schema
from privsketch.learning.concerns import EDGE, coordinates_cut, edge_concern

WELL_INSIDE = 0.95  # of the way from the center: what lies there has room on both sides
MAY = 3.0  # standard errors that a mean may be off
FALSE_ALARM = 0.001  # chance that noise puts any mean of a run where it is not


@dataclass(frozen=True)
class Means:
    """Noisy means of clusters, in the units of the records.

    Attributes
    ----------
    means : (n_clusters, dim) float64
    counts : (n_clusters,) float64
        Noisy numbers of records.
    errors : (n_clusters, dim) float64
        Standard deviations that noise gives to the means.
    count_errors : float or (n_clusters,) float64
        Those of the counts.
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
        """From noisy sums about `around` and noisy counts, with the variances of both noises."""
        divisors = np.maximum(counts, 1.0)[:, np.newaxis]
        steps = sums / divisors
        of_sums, of_counts = variances
        errors = np.sqrt(of_sums + steps**2 * of_counts) / divisors
        return cls(steps + around, counts, errors, math.sqrt(of_counts), is_gaussian)

    @property
    def sure(self) -> float:
        """Standard deviations that no noise of a run exceeds, but for the chance of an alarm."""
        chance = FALSE_ALARM / self.means.size
        return float(norm.isf(chance)) if self.is_gaussian else -math.log(chance) / math.sqrt(2)


def cut_records(
    seen: Means,
    weights: Floats,
    domain: Domain,
    *,
    beyond: bool = False,
    cell: float = 0.0,
    schema: Schema | None = None,
) -> tuple[str, ...]:
    """A concern if clusters that matter have their means on the edge of the domain.

    `weights` are the shares of records that the model states. With `beyond`, for methods that read
    records outside of a box where they are, means must be outside as well. `cell` is how far from
    the edge what lies on it is seen, in half-widths. A `schema` has moved numbers and dates to
    their bounds before, and means are those of encoded records.
    """
    if schema is not None:
        domain, beyond = schema.box, False
    offsets = seen.means - domain.center_vector
    if isinstance(domain, Ball):
        # Noise makes vectors longer.
        squares = np.square(offsets).sum(axis=1) - np.square(seen.errors).sum(axis=1)
        outward = np.sqrt(np.maximum(squares, 0.0))[:, np.newaxis] / domain.radius
        errors = seen.errors.max(axis=1, keepdims=True) / domain.radius
    else:
        outward = np.abs(offsets) / domain.half_widths
        errors = seen.errors / domain.half_widths
        if schema is not None:
            outward = np.where(coordinates_cut(schema), outward, 0.0)
    surely = outward - seen.sure * errors
    if beyond and not isinstance(domain, Ball):
        on_edge = surely > 1.0
    else:
        on_edge = (outward + MAY * errors + cell > EDGE) & (surely > WELL_INSIDE)
    counted = seen.counts > seen.sure * seen.count_errors
    return tuple(edge_concern(float(weights[counted & on_edge.any(axis=1)].sum())))
