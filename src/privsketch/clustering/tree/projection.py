"""Records in few dimensions: a public random projection, in integers, cut to a ball.

Rows of the matrix are sqrt(d / p) times orthonormal ones, so that lengths are kept on average.
Balcan et al. (2017) divide by sqrt(d), which keeps none, and take the radius of the records for
that of their projections, which may be longer: here a projection that is longer than a radius
which nearly all keep is cut to it. Both depend on the record and on public numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers, Whole
from privsketch.clustering.passes import Passes, Work
from privsketch.features.stream import PublicStream

RADIUS_BITS = 16  # the ball of projections has this radius, in bits
RADIUS = 2**RADIUS_BITS
MAX_DIMENSIONS = 30  # 2^30 children of each of up to 2^32 cubes have places below 2^62
_MATRIX_BITS = 14  # behind the point; products with 18-bit records stay below 2^53 in 2^15 columns


@dataclass(frozen=True, eq=False)
class Projected:
    """Passes over projected records: whole numbers in the ball of radius 2^16.

    `matrix` is (dim, p), in whole numbers; a projection is the product divided by 2^14 and
    rounded. `radius` is that of the ball, in units of the passes.
    """

    passes: Passes
    matrix: Whole = field(repr=False)
    radius: float

    @classmethod
    def draw(
        cls, passes: Passes, n_dimensions: int, stream: PublicStream, tail: float
    ) -> Projected:
        """A public projection; a record is cut with a chance of at most `tail`."""
        if not 1 <= n_dimensions <= MAX_DIMENSIONS:
            raise ParameterError(
                "n_dimensions",
                n_dimensions,
                f"expected 1 to {MAX_DIMENSIONS}",
                "the private partition has 2^n_dimensions cubes in every cube",
            )
        dim, p = passes.dim, min(n_dimensions, passes.dim)
        if p < dim:
            rows = np.linalg.qr(stream.normal(dim * p).reshape(dim, p))[0].T
        else:
            rows = np.eye(dim)
        stretch = projected_radius(dim, p, tail)
        radius = float(passes.limits.max()) * stretch
        scale = math.sqrt(dim / p) * 2.0**_MATRIX_BITS * RADIUS / radius
        return cls(passes, np.rint(rows.T * scale), radius)

    @property
    def n_dimensions(self) -> int:
        """Number of dimensions after the projection."""
        return int(self.matrix.shape[1])

    def __call__(self, records: Whole) -> Whole:
        """Projections (n, p) of quantised records (n, dim): products of integers, hence exact."""
        return cut_to_ball(np.rint(records @ self.matrix * 2.0**-_MATRIX_BITS))

    def sums(self, work: Work, name: str) -> tuple[Integers, ...]:
        """One pass of `work` on projected records; `name` is for the progress bar."""
        return self.passes.sums(lambda records: work(self(records)), name)


def projected_radius(dim: int, n_dimensions: int, tail: float) -> float:
    """Radius that projections of unit vectors exceed with a chance of `tail`.

    The squared length of p orthonormal coordinates of a unit vector is Beta(p/2, (d - p)/2).
    """
    from scipy.stats import beta

    if n_dimensions >= dim:
        return 1.0
    share = beta.isf(tail, n_dimensions / 2, (dim - n_dimensions) / 2)
    return math.sqrt(dim / n_dimensions * float(share))


def cut_to_ball(points: Whole, radius: int = RADIUS) -> Whole:
    """Whole numbers (n, p), those outside the ball moved to its edge or just inside."""
    squared = np.vecdot(points, points)
    outside = np.flatnonzero(squared > float(radius) ** 2)
    if len(outside):
        factor = radius / np.sqrt(squared[outside])
        points[outside] = np.trunc(points[outside] * factor[:, np.newaxis])
    return points
