"""The random matrix of a projection, in integers.

Entries are N(0, 1/k), multiplied by 2^16 and rounded; the rounded matrix is the matrix from
then on, for the release and for every bound. A public one comes from a seed. A fresh one comes
from the operating system's generator: nobody can know it before, which some calibrations use.

How far a projection can move the difference of two records: norms of integer matrices.

Bounds are exact integers or rounded up. MARGIN covers the rounding errors of eigenvalues of
symmetric matrices, about 1e-15 times their size.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from privsketch._base.types import Floats, Integers
from privsketch.features.stream import PublicStream, Purpose, normal_pairs

UNIT_BITS = 16  # with the 20 bits of a coordinate 36: 17 are left for sums over columns below 2^53
UNIT = 2.0**UNIT_BITS
# Rounding moves an entry by half a unit, arithmetic and the grid of uniforms by far less.
ENTRY_ERROR = 0.52
# The chance that one entry comes from a uniform number too small for that to hold. Of 128 random
# bits a number above 2^-69 has 59 left, far more than needed.
ENTRY_FAILURE = 2.0**-69
MARGIN = 1 + 1e-8  # of eigenvalues, whose rounding errors are about 1e-15 times their size
EXACT_COMPONENTS = 20  # up to here all 2^(k - 1) sign vectors are looked at
EXACT_COLUMNS = 16  # and up to here all corners of a box
_MAX_SIGNED_VALUES = 2**26  # of P s for all sign vectors s; beyond, they take too long (by trial)
_STEPS = 400  # of the subgradient, up to 64 components: each is a bound, more take longer; by trial
_EXACT_FLOAT = 2.0**52  # sums of integers below it are exact in any order


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
    normal = PublicStream(seed, Purpose.PROJECTION).normal(dim * n_components)
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


def spectral_squared(gram: Integers) -> int:
    """At least the largest squared length of v P over |v|_2 <= 1, from P' P."""
    return math.ceil(_largest_eigenvalue(gram.astype(np.float64)) * MARGIN)


def two_to_one_squared(gram: Integers) -> int:
    """At least the largest squared L1 norm of v P over |v|_2 <= 1, from P' P.

    It is the largest s' P'P s over sign vectors s: exact up to EXACT_COMPONENTS components,
    else a certified bound.
    """
    if len(gram) <= EXACT_COMPONENTS:
        return exact_two_to_one_squared(gram)
    return math.ceil(two_to_one_bound(gram) * MARGIN)


def exact_two_to_one_squared(gram: Integers) -> int:
    """max s' G s over s in {-1, 1}^k, in integers.

    Signs are split into two halves: s' G s = a' A a + b' B b + 2 a' C b for all pairs (a, b).
    """
    k = len(gram)
    left = _signs(k // 2)
    right = _signs(k - k // 2)
    right = right[: len(right) // 2]  # s and -s give the same: half of one side is enough
    h = k // 2
    own_left = (left * (left @ gram[:h, :h])).sum(axis=1)
    own_right = (right * (right @ gram[h:, h:])).sum(axis=1)
    cross = integer_product(integer_product(left, gram[:h, h:]), right.T) if h else 0
    return int((own_left[:, np.newaxis] + own_right + 2 * cross).max())


def two_to_one_bound(gram: Integers) -> float:
    """min over u with sum(u) = 0 of k lambda_max(G + diag u), by subgradient steps.

    s' diag(u) s = sum(u) = 0 for sign vectors, and |s|^2 = k: every u gives a bound.
    """
    k = len(gram)
    matrix = gram.astype(np.float64)
    u = np.trace(matrix) / k - np.diagonal(matrix)  # makes the diagonal constant
    best = math.inf
    step = float(np.trace(matrix)) / k
    for i in range(_STEPS if k <= 64 else 40 if k <= 256 else 3):
        shifted = matrix + np.diag(u)
        value, vector = eigh(shifted, subset_by_index=[k - 1, k - 1])
        best = min(best, k * float(value[0]) - float(u.sum()))
        subgradient = k * vector[:, 0] ** 2 - 1
        u = u - step / (i + 1) * subgradient / max(float(np.linalg.norm(subgradient)), 1e-12)
        u = u - u.mean()
    return best


def box_to_one(matrix: Integers, widths: Integers) -> int | None:
    """Largest L1 norm of v P over |v_i| <= widths_i: max over s of sum_i widths_i |(P s)_i|.

    In integers; None where looking at all sign vectors takes too long.
    """
    dim, k = matrix.shape
    scaled = widths[:, np.newaxis].astype(np.float64) * matrix
    if k > EXACT_COMPONENTS or dim * 2 ** (k - 1) > _MAX_SIGNED_VALUES:
        return None
    if np.abs(scaled).sum() >= _EXACT_FLOAT:
        return None
    largest = 0.0
    transposed = np.ascontiguousarray(scaled.T)
    rows = max(1, 2**18 // dim)
    n_signs = 2 ** (k - 1)
    for start in range(0, n_signs, rows):
        images = _signs(k, start, min(start + rows, n_signs)).astype(np.float64) @ transposed
        largest = max(largest, float(np.abs(images, out=images).sum(axis=1).max()))
    return int(largest)


def box_to_two_squared(matrix: Integers, widths: Integers) -> int:
    """At least the largest squared length of v P over |v_i| <= widths_i.

    At the corners of the box v = diag(widths) s with signs s: all of them are looked at for few
    columns, else |s|_2 = sqrt(dim) bounds them.
    """
    scaled = widths[:, np.newaxis].astype(np.float64) * matrix
    dim = len(matrix)
    if dim <= EXACT_COLUMNS:
        images = _signs(dim)[: 2 ** (dim - 1)] @ scaled
        return math.ceil(float(np.square(images).sum(axis=1).max()) * MARGIN)
    return math.ceil(dim * _largest_eigenvalue(scaled.T @ scaled) * MARGIN)


def integer_product(a: Integers, b: Integers) -> Integers:
    """a @ b exactly: in float64, which is much faster, where its integers are large enough."""
    largest = np.abs(a).astype(np.float64).sum(axis=1).max() * float(np.abs(b).max())
    if largest < _EXACT_FLOAT:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return a @ b


def _signs(k: int, start: int = 0, end: int | None = None) -> Integers:
    """Sign vectors, (2^k, k) of them; the second half is minus the first, in reverse."""
    codes = np.arange(start, 2**k if end is None else end)[:, np.newaxis] >> np.arange(k)[::-1]
    return 2 * (codes & 1) - 1


def _largest_eigenvalue(matrix: Floats) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])
