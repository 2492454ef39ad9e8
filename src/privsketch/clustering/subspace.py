"""A few directions in which clusters differ, released first.

The noisy second moments of the records have eigenvectors; the first of them span the subspace in
which a sketch looks for clusters, and all of them order the directions of later steps from
strong to weak. A record's coordinates in the subspace are products of integers, so that they
depend on that record alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.clustering.account import Account
from privsketch.clustering.passes import Passes
from privsketch.design import Design
from privsketch.domain import Ball, Domain
from privsketch.sketching.release import sketch

Floats = npt.NDArray[np.float64]
_UNIT = 2.0**14  # of the coordinates of a direction
_ROWS = 4096


@dataclass(frozen=True)
class Subspace:
    """Orthonormal directions (dim, dim) as columns, strongest first, and the noisy count."""

    directions: Floats
    variances: Floats
    n_records: float

    def first(self, n_directions: int) -> Floats:
        """The strongest directions as rows, rounded as records are projected on them."""
        return np.rint(self.directions[:, :n_directions].T * _UNIT) / _UNIT


def enclosing_ball(domain: Domain) -> Ball:
    """The smallest ball that holds the domain."""
    if isinstance(domain, Ball):
        return domain
    radius = float(np.linalg.norm(domain.half_widths))
    return Ball(dim=domain.dim, radius=radius, center=domain.center_vector)


def release_subspace(
    blocks: Any, ball: Ball, account: Account, name: str, n_records: float | None
) -> Subspace:
    """Noisy second moments about the centre of the ball, and their eigenvectors.

    Charges: the share `name`.
    """
    design = Design.plan(
        task="pca",
        n_components=1,
        domain=ball,
        budget=account.budget(name),
        feature_map="second-moments",
        noise="gaussian",  # whose rho is what is charged
        n_records=n_records,
        random_state=0,  # nothing about this map is random
    )
    released = sketch(blocks, design)
    account.charge(released.receipt, design.sum_noise.sums_law.rho)
    values, vectors = np.linalg.eigh(released.second_moments())
    count = max(released.n_records or 1.0, 1.0)
    return Subspace(vectors[:, ::-1], values[::-1] / count, count)


def projected(passes: Passes, directions: Floats) -> Iterator[Floats]:
    """Blocks of coordinates (n, p) of the records along rows of `directions`, about the centre.

    Products of integers: exact, so that a record's coordinates do not depend on its block.
    """
    whole = np.rint(directions * _UNIT).T
    unit = passes.unit / _UNIT
    for block in passes.blocks():
        for first in range(0, len(block), _ROWS):
            yield passes.quantised(block[first : first + _ROWS]) @ whole * unit
