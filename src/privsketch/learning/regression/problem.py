"""A linear problem: which coordinate is explained by which, and centered sums with their noise.

The labels of a category have shares that sum to 1, so their coordinates hold a constant direction.
Predictors are therefore described in an orthonormal basis without it: a category of L labels has
L - 1 directions, and any two encodings that differ by the constant give the same fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from privsketch._base.types import Floats, Indices
from privsketch.facts.columns import Cycle
from privsketch.learning.moments import Moments
from privsketch.learning.regression.posterior import EntryNoise

# Least noise relative to the largest sum, for sketches without any: products of floats have more.
MIN_NOISE = 1e-9


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """A coordinate of records, and the columns that explain it.

    Attributes
    ----------
    moments : Moments
    target : int
        Row of the target in `moments.matrix`.
    predictors : (k,) int64
        Rows of the coordinates that explain it.
    basis : (k, d) float64
        Orthonormal columns: directions of the predictors that are not constant.
    """

    moments: Moments
    target: int
    predictors: Indices
    basis: Floats

    @classmethod
    def of(cls, moments: Moments, target: int, on: Sequence[str]) -> LinearProblem:
        """Return the problem of a coordinate on columns, by their names."""
        places = [moments.places(name) for name in on]
        rows = np.concatenate([np.arange(place.start, place.stop) + 1 for place in places])
        blocks = [_directions(moments, name) for name in on]
        return cls(moments, target + 1, rows, block_diag(*blocks))

    @property
    def n_directions(self) -> int:
        """Number of coefficients."""
        return int(self.basis.shape[1])

    @cached_property
    def center(self) -> Floats:
        """Mean of the predictors, then of the target, about the center of the domain, (k + 1,)."""
        return np.asarray(self.moments.matrix[0, self._rows] / self.moments.n_records)

    @cached_property
    def likely_center(self) -> Floats:
        """`center` without what its noise may have made, for predictions, (k + 1,).

        The square of a sum of n numbers is at most n times the sum S of their squares. So the
        released sum is drawn to 0 as if the true one had the variance n S: with few records its
        noise, divided by their number, would leave the domain.
        """
        moments, rows = self.moments, self._rows
        squares = np.maximum(
            np.diag(moments.matrix)[rows], np.sqrt(np.diag(moments.variance)[rows])
        )
        largest = moments.n_records * squares
        noise = moments.variance[0, rows]
        return np.asarray(self.center * largest / np.maximum(largest + noise, 1e-300))

    @property
    def _rows(self) -> Indices:
        return np.append(self.predictors, self.target)

    @cached_property
    def _centered(self) -> tuple[Floats, Floats]:
        """Sums of products about the mean (k + 1, k + 1), and the variances of their noise.

        An error e of the sum moves n mu mu' by mu e' + e mu', and by e e' / n, which is subtracted.
        """
        moments, mean = self.moments, self.center
        block, of_sums = np.ix_(self._rows, self._rows), moments.variance[0, self._rows]
        n_records, squares = moments.n_records, np.square(mean)
        sums = moments.matrix[block] - n_records * np.outer(mean, mean)
        sums = sums + np.diag(of_sums) / n_records
        both = np.outer(squares, of_sums)
        variance = moments.variance[block] + both + both.T + np.diag(2 * squares * of_sums)
        return sums, variance + np.outer(squares, squares) * moments.variance[0, 0]

    @cached_property
    def matrix(self) -> Floats:
        """A, (d, d): centered sums of products of the predictors, in the basis."""
        return np.asarray(self.basis.T @ self._centered[0][:-1, :-1] @ self.basis)

    @cached_property
    def clear_covariance(self) -> Floats:
        """Sums of products of the predictors, (k, k), whose eigenvalues are above the noise."""
        values, axes = np.linalg.eigh(self.matrix)
        least = self.noise.edge / 2 * math.sqrt(len(values))
        turned = self.basis @ axes
        return np.asarray((turned * np.maximum(values, least)) @ turned.T)

    @cached_property
    def products(self) -> Floats:
        """c, (d,): those of predictors and target."""
        return np.asarray(self.basis.T @ self._centered[0][:-1, -1])

    @property
    def square(self) -> float:
        """yy, that of the target."""
        return float(self._centered[0][-1, -1])

    @property
    def variance(self) -> Floats:
        """Variances of the noise of the centered sums of predictors and target, (k + 1, k + 1)."""
        return self._centered[1]

    @cached_property
    def noise(self) -> EntryNoise:
        """Root mean squares of the noise of A off its diagonal, of c, and of yy."""
        sums, variance = self._centered
        apart = ~np.eye(len(self.predictors), dtype=bool)
        inner = variance[:-1, :-1]
        of_matrix = float(inner[apart].mean()) if apart.any() else float(inner[0, 0]) / 2
        scale = max(float(np.abs(sums).max()), 1e-6 * self.moments.radius**2)
        of_all = (of_matrix, float(variance[:-1, -1].mean()), float(variance[-1, -1]))
        return EntryNoise(*(max(math.sqrt(value), MIN_NOISE * scale) for value in of_all))


def _directions(moments: Moments, name: str) -> Floats:
    """Return an orthonormal basis of the directions of a column, without a constant one."""
    place = moments.places(name)
    size = place.stop - place.start
    if size == 1 or _is_cycle(moments, name):
        return np.eye(size)
    axes = np.linalg.svd(np.eye(size) - 1 / size)[0]
    return np.asarray(axes[:, :-1])


def _is_cycle(moments: Moments, name: str) -> bool:
    columns = () if moments.schema is None else moments.schema.columns
    return any(column.name == name and isinstance(column, Cycle) for column in columns)
