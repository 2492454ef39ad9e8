"""The random matrix of a projection, in integers, and how far one record can move a projection.

Matrix. Entries are N(0, 1/k), multiplied by 2^16 and rounded; the release and every bound use the
rounded matrix. A public one comes from a seed. A fresh one comes from the operating system's
generator: nobody can know it before, which some calibrations use.

Change. A neighbouring table may change one record:

- "entry": one coordinate, by at most its width;
- "l1", "l2": the whole record, by at most a stated distance;
- "box": the whole record, to any other one of its box.

Only one row of a table changes, so its number of rows plays no role. How far the projection of that
row moves is a norm of the integer matrix. Bounds are exact integers or rounded up.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.linalg import eigh

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.types import Floats, Integers
from privsketch.facts.budget import RECORD as WHOLE_RECORD
from privsketch.facts.budget import number_text
from privsketch.facts.domain import Ball, Domain, enclosing_box
from privsketch.features.fixedpoint import CLIP_HALF_WIDTHS
from privsketch.features.stream import PublicStream, Purpose, normal_pairs
from privsketch.kernels.quantiser import CompiledQuantiser

# With the 20 bits of a coordinate these are 36: 17 are left for sums over columns below 2^53.
MATRIX_UNIT_BITS = 16
MATRIX_UNIT = 2.0**MATRIX_UNIT_BITS
# Rounding moves an entry by half a unit, arithmetic and the grid of uniforms by far less.
ENTRY_ERROR = 0.52
# Probability that an entry comes from a uniform number too small for this bound. Of 128 random bits
# a number above 2^-69 has 59 left, far more than needed.
ENTRY_FAILURE = 2.0**-69
EIGENVALUE_MARGIN = 1 + 1e-8  # eigenvalues of symmetric matrices are accurate to about 1e-15
EXACT_COMPONENTS = 20  # up to this number all 2^(k - 1) sign vectors are tried
EXACT_COLUMNS = 16  # up to this number all corners of a box are tried
# Values of P s for all sign vectors s: these take a tenth of a second
# (`python -m benchmarks constants projection _MAX_SIGNED_VALUES`).
_MAX_SIGNED_VALUES = 2**26
# Subgradient steps up to 64 components, each of which gives a bound: more of them lower it by less
# than 2 % (`python -m benchmarks constants projection _STEPS`).
_STEPS = 400
_EXACT_FLOAT = 2.0**52  # sums of integers below it are exact in any order


@dataclass(frozen=True, eq=False)
class Matrix:
    """Projection from `dim` to `n_components` dimensions; `integers` are (dim, n_components)."""

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
        """The matrix as floats, (dim, n_components)."""
        return self.integers / MATRIX_UNIT

    @property
    def name(self) -> str:
        """32 hex digits that identify the matrix: the start of SHA-256 of its integers."""
        content = np.ascontiguousarray(self.integers, dtype="<i8").tobytes()
        return hashlib.sha256(f"{self.integers.shape}".encode() + content).hexdigest()[:32]

    @cached_property
    def gram(self) -> Integers:
        """P' P in integers, exact, (n_components, n_components)."""
        return integer_product(self.integers.T, self.integers)


def public_matrix(dim: int, n_components: int, seed: int) -> Matrix:
    """Return the matrix of a public seed, the same on every machine and in every version."""
    normal = PublicStream(seed, Purpose.PROJECTION).normal(dim * n_components)
    return Matrix(_rounded(normal, dim, n_components), is_public=True)


def fresh_matrix(dim: int, n_components: int) -> Matrix:
    """Draw a matrix that nobody knew before, from the operating system's generator."""
    count = (dim * n_components + 1) // 2
    words = np.frombuffer(os.urandom(24 * count), dtype=np.uint64).reshape(count, 3)
    # 128 bits make the first uniform number of a pair accurate however small it is.
    first = (words[:, 0] + (words[:, 1] + 0.5) * 2.0**-64) * 2.0**-64
    second = ((words[:, 2] >> np.uint64(12)) + 0.5) * 2.0**-52
    first = np.minimum(first, 1 - 2.0**-53)
    normal = normal_pairs(np.stack([first, second], axis=1))[: dim * n_components]
    return Matrix(_rounded(normal, dim, n_components), is_public=False)


def _rounded(normal: Floats, dim: int, n_components: int) -> Integers:
    entries = normal.reshape(dim, n_components) * (MATRIX_UNIT / math.sqrt(n_components))
    return np.rint(entries).astype(np.int64)


def spectral_squared(gram: Integers) -> int:
    """Return a bound on the squared length of v P over |v|_2 <= 1, from P' P."""
    return math.ceil(_largest_eigenvalue(gram.astype(np.float64)) * EIGENVALUE_MARGIN)


def two_to_one_squared(gram: Integers) -> int:
    """Return a bound on the squared L1 norm of v P over |v|_2 <= 1, from P' P.

    It is the largest s' P'P s over sign vectors s: exact up to EXACT_COMPONENTS components,
    else a certified bound.
    """
    if len(gram) <= EXACT_COMPONENTS:
        return exact_two_to_one_squared(gram)
    return math.ceil(two_to_one_bound(gram) * EIGENVALUE_MARGIN)


def exact_two_to_one_squared(gram: Integers) -> int:
    """Return max s' G s over s in {-1, 1}^k, in integers.

    Signs are split into two halves: s' G s = a' A a + b' B b + 2 a' C b for all pairs (a, b).
    """
    k = len(gram)
    left = _signs(k // 2)
    right = _signs(k - k // 2)
    right = right[: len(right) // 2]  # s and -s have the same value: half of one side is enough
    h = k // 2
    left_values = (left * (left @ gram[:h, :h])).sum(axis=1)
    right_values = (right * (right @ gram[h:, h:])).sum(axis=1)
    cross = integer_product(integer_product(left, gram[:h, h:]), right.T) if h else 0
    return int((left_values[:, np.newaxis] + right_values + 2 * cross).max())


def two_to_one_bound(gram: Integers) -> float:
    """Return min over u with sum(u) = 0 of k lambda_max(G + diag u), by subgradient steps.

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
    """Return the largest L1 norm of v P over |v_i| <= widths_i, in integers.

    It is max over s of sum_i widths_i |(P s)_i|; None if trying all sign vectors takes too long.
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
    """Return a bound on the squared length of v P over |v_i| <= widths_i.

    At the corners of the box v = diag(widths) s with signs s. For few columns all corners are
    tried, else |s|_2 = sqrt(dim) bounds them.
    """
    scaled = widths[:, np.newaxis].astype(np.float64) * matrix
    dim = len(matrix)
    if dim <= EXACT_COLUMNS:
        images = _signs(dim)[: 2 ** (dim - 1)] @ scaled
        return math.ceil(float(np.square(images).sum(axis=1).max()) * EIGENVALUE_MARGIN)
    return math.ceil(dim * _largest_eigenvalue(scaled.T @ scaled) * EIGENVALUE_MARGIN)


def integer_product(a: Integers, b: Integers) -> Integers:
    """Return a @ b exactly; in float64, which is much faster, if its integers suffice."""
    largest = np.abs(a).astype(np.float64).sum(axis=1).max() * float(np.abs(b).max())
    if largest < _EXACT_FLOAT:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return a @ b


def _signs(k: int, start: int = 0, end: int | None = None) -> Integers:
    """Return the sign vectors, (2^k, k); the second half is minus the first, in reverse."""
    codes = np.arange(start, 2**k if end is None else end)[:, np.newaxis] >> np.arange(k)[::-1]
    return 2 * (codes & 1) - 1


def _largest_eigenvalue(matrix: Floats) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


ChangeKind = Literal["entry", "l1", "l2", "box"]
PROTECTS = ("row", "element")
BOUND_NORMS = ("l2", "l1")
_MAX_COORDINATE_BITS = 20  # of a coordinate; with the 16 of a matrix 36, which leaves 17 below 2^53
_MIN_HALF_WIDTH = 8  # integers in the half-width of the narrowest column


@dataclass(frozen=True, eq=False)
class Change:
    """Differences v of neighbouring records, with `widths` of coordinates and a `radius`.

    `radius` is the largest L2 norm of v; for "l1" it is the largest L1 norm too.
    """

    kind: ChangeKind
    widths: Integers
    radius: int

    def l1(self, matrix: Matrix) -> int:
        """Return an upper bound on the L1 norm of v P."""
        p = matrix.integers
        if self.kind == "entry":
            return int((self.widths * np.abs(p).sum(axis=1)).max())
        if self.kind == "l1":
            return self.radius * int(np.abs(p).sum(axis=1).max())
        bound = _ceil_sqrt(self.radius**2 * two_to_one_squared(matrix.gram))
        exact = box_to_one(p, self.widths) if self.kind == "box" else None
        return bound if exact is None else min(bound, exact)

    def l1_at_least(self, matrix: Matrix) -> float:
        """Return a quick lower bound on the largest L1 norm of v P, a mean over sign vectors."""
        if self.kind in ("entry", "l1"):
            return self.l1(matrix)
        lengths = np.sqrt(np.square(matrix.integers.astype(np.float64)).sum(axis=1))
        if self.kind == "box":
            # E |sum_j s_j p_j| >= |p|_2 / sqrt 2 for random signs (Khintchine)
            return float((self.widths * lengths).sum() / math.sqrt(2))
        return float(self.radius * np.linalg.norm(lengths))

    def l2_squared(self, matrix: Matrix) -> int:
        """Return an upper bound on the squared L2 norm of v P."""
        p = matrix.integers
        squares = (p * p).sum(axis=1)
        if self.kind == "entry":
            # Python integers: products of two squares exceed 2^63.
            return max(int(w) ** 2 * int(s) for w, s in zip(self.widths, squares, strict=True))
        if self.kind == "l1":
            return self.radius**2 * int(squares.max())
        bound = self.radius**2 * spectral_squared(matrix.gram)
        if self.kind == "box":
            bound = min(bound, box_to_two_squared(p, self.widths))
        return bound

    @property
    def spread(self) -> int:
        """Number of rows of P that a difference may involve: rounding errors add up over them."""
        return 1 if self.kind in ("entry", "l1") else len(self.widths)


@dataclass(frozen=True)
class Protection:
    """Protected change, domain in which records are cut, and resolution of their integers."""

    domain: Domain
    protect: str
    bound: float | None
    bound_norm: str
    bits: int

    @classmethod
    def of(cls, domain: Domain, protect: str, bound: float | None, bound_norm: str) -> Protection:
        """Check the parameters and choose the resolution.

        A record outside a ball is moved as a whole: changing one of its entries would change all of
        them. To protect entries, the box around the ball replaces it.
        """
        require_one_of("protect", protect, PROTECTS)
        require_one_of("bound_norm", bound_norm, BOUND_NORMS)
        if bound is not None:
            valid = isinstance(bound, int | float | np.number) and not isinstance(bound, bool)
            if not (valid and 0 < float(bound) < math.inf):
                raise ParameterError("bound", bound, "expected a number above 0, or None")
            bound = float(bound)
        elif bound_norm == "l1":
            raise ParameterError("bound_norm='l1': only with `bound=`, the distance it measures")
        if protect == "element" and bound_norm == "l1":
            raise ParameterError("bound_norm='l1': one element has no norm; leave it out")
        if isinstance(domain, Ball) and (protect == "element" or bound_norm == "l1"):
            domain = enclosing_box(domain)
        dim = len(domain.half_widths)
        # Squared norms must stay exact in float64.
        bits = min(
            _MAX_COORDINATE_BITS,
            math.floor((53 - math.log2(dim)) / 2 - math.log2(CLIP_HALF_WIDTHS)),
        )
        protection = cls(domain, protect, bound, bound_norm, bits)
        narrow = np.flatnonzero(protection.quantiser().limits < _MIN_HALF_WIDTH)
        if len(narrow):
            raise ParameterError(
                f"domain: column {narrow[0]} is so narrow beside the widest one that nothing of it "
                "would be released; scale columns to similar widths first"
            )
        return protection

    def quantiser(self, *, missing_to_center: bool = False) -> CompiledQuantiser:
        """Return the quantiser of records, with the same unit in all columns."""
        return CompiledQuantiser(
            self.domain, missing_to_center=missing_to_center, bits=self.bits, common_unit=True
        )

    @property
    def units_per_length(self) -> float:
        """Integers per unit of the records."""
        return float(2.0**self.bits / self.domain.half_widths.max())

    @property
    def reach(self) -> float:
        """Largest distance of a record from the center of the domain."""
        if isinstance(self.domain, Ball):
            return self.domain.radius
        return float(np.linalg.norm(self.domain.half_widths))

    def change(self) -> Change:
        """Return the changes of a neighbouring record, rounding included.

        Rounding moves a coordinate by at most half a unit, cutting back to a ball by one more:
        a distance grows by at most sqrt(dim), or 3 sqrt(dim), units. The last unit is for the
        rounding of floats after a number is read, `_reading_error` for that of reading.
        """
        limits = self.quantiser().limits
        dim = len(limits)
        diameter = self._diameter(limits)
        if self.bound is None:
            kind: ChangeKind = "entry" if self.protect == "element" else "box"
            if isinstance(self.domain, Ball):
                kind = "l2"
            widths = 2 * limits
            return Change(kind, widths, int(widths.max()) if kind == "entry" else diameter)
        stated = self.bound * self.units_per_length
        apart = self._reading_error
        if self.protect == "element":
            widths = np.minimum(2 * limits, _ceil(stated + apart) + 2)
            return Change("entry", widths, int(widths.max()))
        if self.bound_norm == "l1":
            radius = _ceil(stated + dim * (1 + apart)) + 1
            return Change("l1", 2 * limits, min(radius, 2 * int(limits.sum())))
        is_ball = isinstance(self.domain, Ball)
        radius = _ceil(stated + ((3 if is_ball else 1) + apart) * math.sqrt(dim)) + 1
        if radius < diameter:
            return Change("l2", 2 * limits, radius)
        return Change("l2" if is_ball else "box", 2 * limits, diameter)

    @property
    def _hides_all(self) -> bool:
        """Whether a bound on rows is at least the diameter of the domain."""
        change = self.change()
        return change.kind == "l2" and change.radius == self._diameter(self.quantiser().limits)

    def _diameter(self, limits: Integers) -> int:
        if isinstance(self.domain, Ball):
            return 2 * int(limits[0])
        return _ceil_sqrt(4 * sum(int(limit) ** 2 for limit in limits))

    @property
    def _reading_error(self) -> float:
        """Units by which two equal coordinates may differ after they are read as float64.

        Whole numbers beyond 2^53, decimals and texts are rounded to the next float before the
        center is subtracted; floats of 64 or fewer bits are not.
        """
        reach = np.abs(self.domain.center_vector) + CLIP_HALF_WIDTHS * self.domain.half_widths
        return float(2 * np.spacing(reach.max()) * self.units_per_length)

    @property
    def unit_text(self) -> str:
        """Unit of protection, for receipts."""
        if self.protect == "element":
            if self.bound is None or (self.change().widths == 2 * self.quantiser().limits).all():
                return "one entry of one record"
            return f"a change of one entry of one record by at most {number_text(self.bound)}"
        if self.bound is None or self.change().kind == "box" or self._hides_all:
            return WHOLE_RECORD
        norm = "Euclidean" if self.bound_norm == "l2" else "L1"
        return f"a change of one record by at most {number_text(self.bound)} in {norm} distance"


def _ceil(value: float) -> int:
    """Return an integer that is at least `value`, despite its rounding error."""
    return math.ceil(min(value, 2.0**60) * (1 + 1e-12))


def _ceil_sqrt(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1
