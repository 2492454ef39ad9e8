"""A few directions in which the pipeline searches for clusters.

If noise allows it they are released: the first eigenvectors of noisy second moments, or of a sketch
of them. Otherwise they are public random ones, which cost nothing. Later steps order all directions
from strong to weak by the same release. A record's coordinates are products of integers, so that
they depend on that record alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Block, Floats
from privsketch.clustering.passes import Passes
from privsketch.clustering.tree.cubes import projected_radius
from privsketch.design.plan import plan_design
from privsketch.facts.domain import enclosing_ball
from privsketch.features.stream import PublicStream, Purpose
from privsketch.learning.pca.learner import learn_pca
from privsketch.ledger.entry import STEP
from privsketch.noise.account import Account, part_receipt
from privsketch.sketching.build import sketch
from privsketch.sketching.engines.threads import threads_or_default
from privsketch.tables.table import OnSpark

_DIRECTION_UNIT = 2.0**14  # fixed-point unit of the coordinates of a direction
_CUT_CHANCE = 1e-6  # probability that a record is cut


@dataclass(frozen=True)
class Subspace:
    """Orthonormal directions as columns, of which the first `n_directions` are used.

    `reach` is a radius, along the directions used, that records of a ball of radius 1 exceed with
    probability 1e-6. If `is_ordered`, there are all `dim` directions, from strong to weak.
    """

    directions: Floats
    n_directions: int
    is_ordered: bool = False
    reach: float = 1.0

    @property
    def rows(self) -> Floats:
        """Directions that are used, (n_directions, dim), rounded as for projecting records."""
        used = self.directions[:, : self.n_directions].T
        return np.rint(used * _DIRECTION_UNIT) / _DIRECTION_UNIT


def all_directions(dim: int) -> Subspace:
    """Return the columns themselves as directions."""
    return Subspace(np.eye(dim), dim)


def random_directions(dim: int, n_directions: int, seed: int) -> Subspace:
    """Draw public random directions. Charges nothing."""
    normal = (
        PublicStream(seed, Purpose.DIRECTIONS).normal(dim * n_directions).reshape(dim, n_directions)
    )
    reach = projected_radius(dim, n_directions, _CUT_CHANCE) * math.sqrt(n_directions / dim)
    return Subspace(np.linalg.qr(normal)[0], n_directions, reach=min(reach, 1.0))


def spread_directions(n: int, dim: int, seed: int) -> Floats:
    """Draw (n, dim) public random directions that sum to 0, as far from each other as possible.

    The first of three or more is 0: the center there serves records far from all other centers.
    """
    size = n - 1 if n > 2 else n
    normal = PublicStream(seed, Purpose.SPREAD).normal(size * dim).reshape(size, dim)
    if size <= dim:
        normal = np.linalg.qr(normal.T)[0].T
    directions = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return np.vstack([np.zeros((n - size, dim)), directions - directions.mean(axis=0)])


def release_subspace(
    passes: Passes,
    n_directions: int,
    account: Account,
    name: str,
    n_records: float,
    seed: int,
    n_threads: int | None,
) -> Subspace:
    """Release the directions in which the records vary most about the center of the ball.

    Charges: the share `name`.
    """
    pure = account.shares.is_pure
    design = plan_design(
        task="pca",
        n_components=n_directions,
        domain=enclosing_ball(passes.domain),
        budget=account.budget(name, many=True).without_person,
        # With Gaussian noise the whole matrix is best, whatever its size.
        feature_map=None if pure else "second-moments",
        noise=None if pure else "gaussian",  # its rho is charged
        n_records=n_records,
        random_state=seed,
    )
    engine = threads_or_default(n_threads)
    released = sketch(_complete_records(passes), design, engine=engine, ledger=STEP)
    account.charge(part_receipt(name, released.receipt), design.sum_noise.sums_law.rho)
    if not pure:
        vectors = np.linalg.eigh(released.second_moments())[1]
        return Subspace(vectors[:, ::-1], n_directions, is_ordered=True)
    components = learn_pca(released, n_directions).components
    return Subspace(np.linalg.qr(components.T)[0], n_directions)


def _complete_records(passes: Passes) -> Iterable[Floats] | OnSpark:
    """Return the records in their own units, with missing values filled."""
    center = passes.domain.center_vector

    def change(block: Block) -> Floats:
        return np.asarray(passes.quantised(block) * passes.unit + center)

    return passes.changed(change, "second moments")


def projected(passes: Passes, directions: Floats) -> Iterable[Floats] | OnSpark:
    """Return blocks of the records' coordinates (n, p) along rows of `directions`.

    They are about the center. Products of integers are exact, so that a record's coordinates do
    not depend on its block.
    """
    whole = np.rint(directions * _DIRECTION_UNIT).T
    unit = passes.unit / _DIRECTION_UNIT

    def change(block: Block) -> Floats:
        return np.asarray(passes.quantised(block) @ whole * unit)

    return passes.changed(change, "sketch")
