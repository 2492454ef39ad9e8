"""Principal components by a convex fit: no start, no rank, one answer.

Minimise over positive semidefinite L and s >= 0

    loss(A(L + s I)) + penalty trace(L),

the nuclear-norm fit of low-rank matrices (E. Candes, Y. Plan, 2011; for rank-one
measurements Y. Chen, Y. Chi, A. Goldsmith, 2015). With the penalty at the noise edge
(`search`) only directions that stand out of the noise enter; a smaller one lets some
noise in and bends the others less. Accelerated proximal
gradient with restarts (A. Beck, M. Teboulle, 2009; B. O'Donoghue, E. Candes, 2015): the
proximal step lowers all eigenvalues by a constant and cuts them at zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Floats
from privsketch.learning.pca.factors import Factors, Loss
from privsketch.learning.pca.measurements import Measurements

MAX_ITERATIONS = 1000  # a guard: TOLERANCE is to end a fit; by trial
TOLERANCE = 1e-6  # relative change per step; by trial


@dataclass(frozen=True, eq=False)
class ConvexFit:
    """L + s I: `low_rank` (dim, dim) is positive semidefinite, `isotropic` at least 0."""

    low_rank: Floats
    isotropic: float

    def matrix(self) -> Floats:
        """(dim, dim) the sum."""
        return np.asarray(self.low_rank + self.isotropic * np.eye(len(self.low_rank)))


def fit_convex(
    measurements: Measurements,
    loss: Loss,
    penalty: float,
    *,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = TOLERANCE,
) -> ConvexFit:
    """The minimiser, to a relative change below `tolerance` per step."""
    dim = measurements.dim
    # s I as a coordinate of unit length beside L.
    unit = measurements.identity / np.sqrt(dim)
    low = ahead_low = np.zeros((dim, dim))
    level = ahead_level = 0.0
    momentum, curvature = 1.0, _least_curvature(measurements, loss)
    cost = loss(np.zeros(measurements.size))[0]
    for _ in range(max_iterations):
        before, slopes = loss(measurements.of_matrix(ahead_low) + ahead_level * unit)
        by_low, by_level = measurements.adjoint(slopes), float(slopes @ unit)
        while True:
            new_low = _shrunk(ahead_low - by_low / curvature, penalty / curvature)
            new_level = max(ahead_level - by_level / curvature, 0.0)
            smooth = loss(measurements.of_matrix(new_low) + new_level * unit)[0]
            step, step_level = new_low - ahead_low, new_level - ahead_level
            square = float(np.square(step).sum()) + step_level**2
            bound = before + float((by_low * step).sum()) + by_level * step_level
            if smooth <= bound + curvature / 2 * square + 1e-12 * abs(before):
                break
            curvature *= 1.5
        new_cost = smooth + penalty * float(np.trace(new_low))
        if new_cost > cost and momentum > 1:  # went too far ahead
            momentum, ahead_low, ahead_level = 1.0, low, level
            continue
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = (momentum - 1) / next_momentum
        ahead_low = new_low + ahead * (new_low - low)
        ahead_level = new_level + ahead * (new_level - level)
        moved = np.hypot(np.linalg.norm(new_low - low), new_level - level)
        size = np.hypot(np.linalg.norm(new_low), new_level)
        low, level, cost, momentum = new_low, new_level, new_cost, next_momentum
        if moved <= tolerance * size:
            break
    return ConvexFit(low, level / float(np.sqrt(dim)))


def refit(measurements: Measurements, loss: Loss, fit: ConvexFit, rank: int) -> Factors:
    """The convex fit without its shrinkage: least squares on its first directions.

    The penalty lowers all eigenvalues; their directions are kept as a space, and the
    matrix on it and the isotropic part are fitted again, linearly.
    """
    axes = np.linalg.eigh(fit.low_rank)[1][:, ::-1][:, :rank]
    first, second = np.triu_indices(rank)
    columns = []
    for a, b in zip(first, second, strict=True):
        pair = np.outer(axes[:, a], axes[:, b])
        columns.append(loss.whiten(measurements.of_matrix(pair + pair.T)))
    if rank < measurements.dim:
        columns.append(loss.whiten(measurements.identity))
    design = np.stack(columns, axis=1)
    solution = np.linalg.lstsq(design, loss.whiten(loss.values), rcond=None)[0]
    block = np.zeros((rank, rank))
    block[first, second] = solution[: len(first)]
    lengths, turn = np.linalg.eigh(block + block.T)
    isotropic = max(float(solution[-1]), 0.0) if rank < measurements.dim else 0.0
    return Factors(axes @ turn * np.sqrt(np.maximum(lengths, 0.0)), isotropic)


def _shrunk(matrix: Floats, by: float) -> Floats:
    """Eigenvalues lowered by a constant and cut at zero."""
    lengths, axes = np.linalg.eigh(matrix)
    lengths = np.maximum(lengths - by, 0.0)
    return np.asarray((axes * lengths) @ axes.T)


def _least_curvature(measurements: Measurements, loss: Loss) -> float:
    """Curvature of the loss along the identity: a first guess from below."""
    level = loss.whiten(measurements.identity)
    return max(float(level @ level) / measurements.dim / 4, 1e-300)
