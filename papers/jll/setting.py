"""What all experiments of JLL share: their records, their matrix, their privacy parameters.

JLL is "Utility Preserving Secure Private Data Release" (2019). It says "two isotropic Gaussian
clusters 4 apart, from make_blobs" and epsilon = 4. Number of records, seeds and matrix are not
printed. They were found by trying: with 10,000 records of random_state=0 and centres 4 apart on
the first axis, k-means gives all four accuracies without privacy to their last digit, and with
scikit-learn's GaussianRandomProjection of random_state=0 those with noise. docs/papers/jll.md.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.domain import Ball
from privsketch.projection.calibration import paper_noise
from privsketch.projection.matrix import MATRIX_UNIT, Matrix
from privsketch.projection.rows import Projection

PAPER = "JLL 2019"
Labels = npt.NDArray[np.int64]
SIZES = ((3, 2), (10, 3), (50, 10), (100, 20))  # (d, k) of Table 1
EPSILON = 4.0
DELTA = 1e-6  # ours; the paper's are what its scales happen to have
BOUND = 1.0  # the paper hides changes up to this distance
DISTANCE = 4.0  # between the two centres
N_RECORDS = 10_000
_SEED = 0
_OUTSIDE = 1e-6  # share of records that may lie outside the ball


@cache
def records(dim: int, n_records: int = N_RECORDS) -> tuple[Floats, Labels]:
    """Return the paper's records (n_records, dim) and the cluster of each."""
    from sklearn.datasets import make_blobs

    centers = np.zeros((2, dim))
    centers[:, 0] = -DISTANCE / 2, DISTANCE / 2
    made, labels = make_blobs(
        n_records, n_features=dim, centers=centers, cluster_std=1.0, random_state=_SEED
    )
    made.flags.writeable = False
    return made, labels.astype(np.int64)


def ball(dim: int) -> Ball:
    """Return a public ball that holds all but one in a million records of the mixture."""
    from scipy.stats import ncx2

    square = float(ncx2.ppf(1 - _OUTSIDE, dim, (DISTANCE / 2) ** 2))
    return Ball(dim=dim, radius=float(math.ceil(math.sqrt(square))), center=0.0)


def paper_matrix(dim: int, n_components: int) -> Matrix:
    """Return the matrix that the paper must have used; its seed is the common one."""
    from sklearn.random_projection import GaussianRandomProjection

    model = GaussianRandomProjection(n_components=n_components, random_state=_SEED)
    entries = model.fit(np.zeros((1, dim))).components_.T
    return Matrix(np.rint(entries * MATRIX_UNIT).astype(np.int64), is_public=True)


def draw(dim: int, n_components: int, protect: str, calibration: str, matrix: str) -> Projection:
    """Return a projection of the paper's records.

    protect: "element" and "row" hide changes up to BOUND, "whole record" hides all of a record.
    matrix: "fresh", or "seed 0" for the paper's own.
    """
    projection = Projection.draw(
        ball(dim),
        n_components,
        epsilon=EPSILON,
        delta=0.0 if calibration == "paper" else DELTA,
        protect="element" if protect == "element" else "row",
        bound=None if protect == "whole record" else BOUND,
        calibration=calibration,
    )
    if matrix == "fresh":
        return projection
    if calibration != "paper":
        raise ParameterError(f"calibration={calibration!r}: only 'paper' goes with its matrix")
    fixed = paper_matrix(dim, n_components)
    change, budget = projection.protection.change(), projection.budget
    return replace(projection, matrix=fixed, noise=paper_noise(change, fixed, budget, protect))


def released(projection: Projection, table: Floats) -> Floats:
    """One release of a table, (n_records, n_components). Charges what the receipt says."""
    return np.concatenate(list(projection.releases([table], n_threads=1)))
