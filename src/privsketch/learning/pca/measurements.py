"""Linear measurements of a symmetric matrix: C -> w_j' C w_j, or C -> its entries.

A measurement A and its adjoint A* are all that the fits of principal components need;
<A(C), g> = <C, A*(g)> for every C and g. `gram` is A A*: the covariance of the values of a
random symmetric matrix with no preferred direction (variance 1 on the diagonal, 1/2 off it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.features.moments import moment_count


class Measurements(Protocol):
    """m linear functions of a symmetric (dim, dim) matrix."""

    @property
    def dim(self) -> int:
        """Rows of the matrix."""

    @property
    def size(self) -> int:
        """Number of values, m."""

    @property
    def identity(self) -> Floats:
        """A(I), (m,)."""

    def of_matrix(self, matrix: Floats) -> Floats:
        """A(C), (m,)."""

    def of_factor(self, factor: Floats) -> Floats:
        """A(U U'), (m,), for U of shape (dim, rank)."""

    def adjoint(self, weights: Floats) -> Floats:
        """A*(g), (dim, dim)."""

    def adjoint_times(self, weights: Floats, factor: Floats) -> Floats:
        """A*(g) U, (dim, rank)."""

    @property
    def gram_diagonal(self) -> Floats:
        """Diagonal of A A*, (m,)."""

    def gram(self) -> Floats:
        """A A*, (m, m), or its diagonal (m,) if it has nothing else."""


@dataclass(frozen=True, eq=False)
class QuadraticMeasurements:
    """w_j' C w_j along public vectors (m, dim)."""

    vectors: Floats

    @property
    def dim(self) -> int:
        """Rows of the matrix."""
        return int(self.vectors.shape[1])

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.vectors)

    @cached_property
    def identity(self) -> Floats:
        """A(I), (m,): squared norms."""
        return np.asarray(np.einsum("jk,jk->j", self.vectors, self.vectors))

    def of_matrix(self, matrix: Floats) -> Floats:
        """A(C), (m,)."""
        return np.asarray(np.einsum("jk,jk->j", self.vectors @ matrix, self.vectors))

    def of_factor(self, factor: Floats) -> Floats:
        """A(U U'), (m,)."""
        products = self.vectors @ factor
        return np.asarray(np.einsum("jk,jk->j", products, products))

    def adjoint(self, weights: Floats) -> Floats:
        """A*(g), (dim, dim)."""
        return np.asarray((self.vectors * weights[:, None]).T @ self.vectors)

    def adjoint_times(self, weights: Floats, factor: Floats) -> Floats:
        """A*(g) U, (dim, rank)."""
        return np.asarray(self.vectors.T @ (weights[:, None] * (self.vectors @ factor)))

    @property
    def gram_diagonal(self) -> Floats:
        """Diagonal of A A*, (m,)."""
        return np.square(self.identity)

    def gram(self) -> Floats:
        """A A*, (m, m): squares of inner products."""
        return np.asarray(np.square(self.vectors @ self.vectors.T))


@dataclass(frozen=True, eq=False)
class EntryMeasurements:
    """The entries C_ij, i <= j, row by row of the upper triangle."""

    dim: int

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        first, second = np.triu_indices(self.dim)
        return first, second

    @property
    def size(self) -> int:
        """Number of values."""
        return moment_count(self.dim)

    @cached_property
    def on_diagonal(self) -> npt.NDArray[np.bool_]:
        """(m,) whether a value is one of the diagonal."""
        first, second = self._places
        return np.asarray(first == second)

    @cached_property
    def identity(self) -> Floats:
        """A(I), (m,)."""
        return self.on_diagonal.astype(np.float64)

    def of_matrix(self, matrix: Floats) -> Floats:
        """A(C), (m,)."""
        return np.asarray(matrix[self._places])

    def of_factor(self, factor: Floats) -> Floats:
        """A(U U'), (m,)."""
        return self.of_matrix(factor @ factor.T)

    def adjoint(self, weights: Floats) -> Floats:
        """A*(g), (dim, dim): an entry off the diagonal is there twice, by half each."""
        half = np.zeros((self.dim, self.dim))
        half[self._places] = weights / 2
        return half + half.T

    def adjoint_times(self, weights: Floats, factor: Floats) -> Floats:
        """A*(g) U, (dim, rank)."""
        return np.asarray(self.adjoint(weights) @ factor)

    def matrix_of(self, values: Floats) -> Floats:
        """The symmetric matrix that has these entries."""
        return self.adjoint(np.where(self.on_diagonal, values, 2 * values))

    @property
    def gram_diagonal(self) -> Floats:
        """Diagonal of A A*, (m,)."""
        return np.where(self.on_diagonal, 1.0, 0.5)

    def gram(self) -> Floats:
        """The diagonal of A A*, (m,): it has nothing else."""
        return self.gram_diagonal
