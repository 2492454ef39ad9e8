"""The random matrix of a projection, in integers.

Entries are N(0, 1/k), multiplied by 2^16 and rounded; the rounded matrix is the matrix from
then on, for the release and for every bound. A public one comes from a seed. A fresh one comes
from the operating system's generator: nobody can know it before, which some calibrations use.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privsketch._typing import Floats, Integers
from privsketch.features.stream import PublicStream, normal_pairs
from privsketch.projection.norms import integer_product

UNIT_BITS = 16
UNIT = 2.0**UNIT_BITS
# Rounding moves an entry by half a unit, arithmetic and the grid of uniforms by far less.
ENTRY_ERROR = 0.52
# The chance that one entry comes from a uniform number too small for that to hold.
ENTRY_FAILURE = 2.0**-69
_PURPOSE = 101  # keeps the stream apart from those of frequencies


@dataclass(frozen=True, eq=False)
class Matrix:
    """A projection from `dim` to `n_components` dimensions; `integers` are (dim, n_components)."""

    integers: Integers = field(repr=False)
    is_public: bool

    @property
    def dim(self) -> int:
        """Number of columns of a record."""
        return int(self.integers.shape[0])

    @property
    def n_components(self) -> int:
        """Number of columns of a released record."""
        return int(self.integers.shape[1])

    @property
    def values(self) -> Floats:
        """The matrix in its own unit, (dim, n_components)."""
        return self.integers / UNIT

    @property
    def name(self) -> str:
        """32 hex digits that tell this matrix from others: of SHA-256 of its integers."""
        content = np.ascontiguousarray(self.integers, dtype="<i8").tobytes()
        return hashlib.sha256(f"{self.integers.shape}".encode() + content).hexdigest()[:32]

    @cached_property
    def gram(self) -> Integers:
        """P' P in integers, exact, (n_components, n_components)."""
        return integer_product(self.integers.T, self.integers)


def public_matrix(dim: int, n_components: int, seed: int) -> Matrix:
    """The matrix of a public seed: the same everywhere, for good."""
    normal = PublicStream(seed, _PURPOSE).normal(dim * n_components)
    return Matrix(_rounded(normal, dim, n_components), is_public=True)


def fresh_matrix(dim: int, n_components: int) -> Matrix:
    """A matrix that nobody knew before, from the operating system's generator."""
    count = (dim * n_components + 1) // 2
    words = np.frombuffer(os.urandom(24 * count), dtype=np.uint64).reshape(count, 3)
    # 128 bits make the first uniform number of a pair accurate however small it is.
    first = (words[:, 0] + (words[:, 1] + 0.5) * 2.0**-64) * 2.0**-64
    second = ((words[:, 2] >> np.uint64(12)) + 0.5) * 2.0**-52
    first = np.minimum(first, 1 - 2.0**-53)
    normal = normal_pairs(np.stack([first, second], axis=1))[: dim * n_components]
    return Matrix(_rounded(normal, dim, n_components), is_public=False)


def _rounded(normal: Floats, dim: int, n_components: int) -> Integers:
    entries = normal.reshape(dim, n_components) * (UNIT / math.sqrt(n_components))
    return np.rint(entries).astype(np.int64)
