"""Quadratic features in integers: v_j = floor((w_j.x)^2 / 2^shift).

Records are quantised to integer vectors of norm at most 2^15 - 1, the radius of the ball;
vectors w_j are 16-bit integers, short enough that |w_j.x| < 2^31, so a square fits 64 bits.
The shift is the least that keeps a feature below 2^21, so that 2^40 records fit 64 bits.
Features are floored, not rounded: the sum of floors is at most the floor of the sum, so every
bound on the real features holds for the integers.

The vectors come from a public stream, by one of two laws:

- "orthobases": unions of orthonormal bases, with the least noise (CLP section 3.4; CLP is
  Chatalic et al., the paper that docs/theory.md follows);
- "normal": independent normal vectors of mean squared norm 1.

How far one record can move the sums follows from the vectors and the radius of the ball, by
certified bounds on norms of the features. Gaussian noise is calibrated to S4, their largest L2 norm
(CLP section 3.4):

    S4^2 = max over |x| = 1 of sum_j (w_j.x)^4, W the matrix with rows w_j

It is hard to compute: local maximisation finds a lower bound, and noise calibrated to that
would be too small. Each upper bound below holds for every W, so the least of them does
(docs/theory.md has the proofs):

- B1: largest eigenvalue of the squared Gram matrix;
- B3: longest vector times largest singular value;
- B2: x x' split into I / d and a traceless remainder;
- B5: the same with a free multiplier t of the trace: S4^2 <= t + lambda_max(A A' - t i i')
  with A the columns svec(w_j w_j') and i = svec(I), for any t.

Eigenvalues come from dense symmetric solvers, whose error is far below the margin that
every bound is multiplied by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.facts.budget import Neighbours
from privsketch.features.fixedpoint import RECORD_BITS, RECORD_MAX
from privsketch.features.masks import Contribution, Masks
from privsketch.features.stream import PublicStream

VALUE_BITS = 21  # sums of 2^40 records are below 2^61, within the headroom of 62 bits
MAX_VECTOR_NORM_SQUARED = 2**32  # |w_j| <= 2^16: the product with a record stays below 2^31
QUADRATIC_LAWS = ("orthobases", "normal")
VECTOR_BITS = 14  # binary digits of a vector of length 1
MAX_COORDINATE = 0.99 * (2**15 - 1)  # rounding lengthens vectors a little
MAX_MASKS, MAX_WORK = 2000, 10**9  # for enumerating masks; otherwise the worst mask counts


def squared_norms(vectors: npt.NDArray[Any]) -> list[int]:
    """Return exact squared norms of integer vectors (m, dim)."""
    wide = vectors.astype(np.int64)
    return [int(norm) for norm in np.einsum("jk,jk->j", wide, wide)]


def value_shift(vectors: npt.NDArray[Any]) -> int:
    """Return the number of bits dropped from a square, from the public vectors alone."""
    largest = max(squared_norms(vectors)) * RECORD_MAX**2
    return int(max(0, largest.bit_length() - VALUE_BITS))


def quadratic_values(
    quantised: npt.NDArray[Any], vectors: npt.NDArray[Any], shift: int
) -> npt.NDArray[np.int64]:
    """Return (n, m) integer features: the definition, in plain 64-bit integers."""
    products = quantised.astype(np.int64) @ vectors.astype(np.int64).T
    return np.asarray((products * products) >> shift)


def value_unit(vector_bits: int, shift: int) -> float:
    """Return the integer feature of (w.x)^2 = 1, with x in half-widths, w in 2^-vector_bits."""
    return math.ldexp(1.0, 2 * (vector_bits + RECORD_BITS) - shift)


def unrounded_vectors(
    stream: PublicStream, law: str, n_features: int, dim: int
) -> Iterator[Floats]:
    """Yield blocks of `dim` vectors: one basis, or as many normal vectors, at a time."""
    even = dim * dim + dim % 2  # an even number of normals for each block
    for start in range(0, n_features, dim):
        block = stream.normal(even)[: dim * dim].reshape(dim, dim)
        block = _orthonormalise(block) if law == "orthobases" else block / np.sqrt(float(dim))
        yield block[: n_features - start]


def vector_resolution(law: str, blocks: Iterable[Floats]) -> int:
    """Return the number of fractional bits for which coordinates fit 16 bits, and norms 17."""
    if law == "orthobases":
        return VECTOR_BITS  # coordinates of unit vectors
    largest = max(
        max(float(np.abs(block).max()), float(np.sqrt(np.square(block).sum(axis=1).max())) / 2)
        for block in blocks
    )
    bits = VECTOR_BITS
    while largest * 2.0**bits > MAX_COORDINATE:
        bits -= 1
    return bits


def _orthonormalise(rows: Floats) -> Floats:
    """Make rows orthonormal one after the other (modified Gram-Schmidt).

    Sums are accumulated in a fixed order: those of a linear algebra library depend on the
    machine, and every holder must get the same integers.
    """
    rows = rows.copy()
    for i in range(len(rows)):
        row = rows[i]
        row /= np.sqrt(np.add.accumulate(row * row)[-1])
        later_rows = rows[i + 1 :]
        later_rows -= np.add.accumulate(later_rows * row, axis=1)[:, -1:] * row
    return rows


class QuadraticContribution(Contribution):
    """Contribution of quadratic features: integer vectors (m, dim), records up to RECORD_MAX.

    `shift` is the number of bits dropped from a square, `per_feature` the largest value of each
    feature: (|w_j| |x|)^2 by Cauchy-Schwarz.
    """

    signed = False
    maskable = True
    divided_by_count = True

    def __init__(self, vectors: npt.NDArray[np.int16]) -> None:
        self.vectors = vectors
        self.shift = value_shift(vectors)
        squares = (norm * RECORD_MAX**2 for norm in squared_norms(vectors))
        self.per_feature = tuple(square >> self.shift for square in squares)
        (n_values, dim), largest = vectors.shape, max(self.per_feature)
        super().__init__(n_values, dim, largest=largest, feature_l1=largest)

    @cached_property
    def bounds(self) -> QuarticBounds:
        """Bounds of the vectors in their own units."""
        return quartic_bounds(self.vectors.astype(np.float64))

    def l1(self, masks: Masks | None) -> int:
        """Bound |W_h|_2^2 R^2 over masks h, by all features or by the longest vectors."""
        bound = self._floor(self._spectral)
        if masks is None or masks.kept is None:
            return bound
        bound = min(bound, masks.kept * self.largest)
        if masks.features == "block":
            norms = sorted(self._block_norms, reverse=True)
            bound = min(bound, sum(norms[: masks.kept // self.dim]))
        return bound

    def l2_squared(self, masks: Masks | None, neighbours: Neighbours) -> int:
        """Bound S4^2 over masks, which only lower it; r features reach r times the largest^2."""
        bound = self._floor_squared(self.bounds.s4**2)
        if masks is not None and masks.features != "all":
            if masks.kept is not None:
                bound = min(bound, masks.kept * self.largest**2)
            return bound if neighbours == "add-remove" else 2 * bound
        if neighbours == "add-remove":
            return bound
        # Floors change a difference by less than 1 per feature. Floored values are not negative,
        # so twice the squared norm is a bound without that.
        distance = math.sqrt(self._floor_squared(self.bounds.replace_squared) + 1)
        return min(2 * bound, math.ceil((distance + math.sqrt(self.n_values)) ** 2))

    def linf(self, neighbours: Neighbours) -> int:
        """Return the largest value for both relations: values are not negative."""
        return self.largest

    def l1_by_mask(self, masks: Masks | None) -> tuple[int, ...] | None:
        """Return the norm for each mask of a single feature, or of few blocks."""
        if masks is None or masks.kept is None:
            return None
        if masks.features == "uniform" and masks.kept == 1:
            return self.per_feature
        n_blocks, n_kept = self.n_values // self.dim, masks.kept // self.dim
        limit = min(MAX_MASKS, MAX_WORK // self.dim**3)
        if masks.features != "block" or n_blocks > limit or math.comb(n_blocks, n_kept) > limit:
            return None
        return tuple(self._subset_norm(subset) for subset in combinations(range(n_blocks), n_kept))

    @cached_property
    def _spectral(self) -> float:
        """Bound on |W|_2^2 alone, without the costly bounds on S4."""
        return spectral_bound(self.vectors)

    @cached_property
    def _block_norms(self) -> tuple[int, ...]:
        return tuple(self._subset_norm((block,)) for block in range(self.n_values // self.dim))

    def _subset_norm(self, blocks: tuple[int, ...]) -> int:
        rows = np.concatenate([self.vectors[b * self.dim : (b + 1) * self.dim] for b in blocks])
        return self._floor(spectral_bound(rows))

    def _floor(self, spectral: float) -> int:
        """Return floor(spectral R^2 / 2^shift) for a spectral bound in the vectors' units."""
        return math.floor(spectral * float(RECORD_MAX**2) * 2.0**-self.shift)

    def _floor_squared(self, quartic: float) -> int:
        """Return floor(quartic R^4 / 4^shift)."""
        return math.floor(quartic * float(RECORD_MAX**4) * 4.0**-self.shift)


# Largest numbers of rows for which B2, and B1 and B5 as well, take seconds: python -m benchmarks
# constants features. Above MAX_SPLIT, or above MAX_SVEC entries of A (1 GB), only B3 is computed.
MAX_SPLIT, MAX_DUAL = 2500, 300
MAX_SVEC = 2**27
EIGENVALUE_MARGIN = 1.0 + 1e-8  # far above the error of an eigenvalue, far below what matters


@dataclass(frozen=True)
class QuarticBounds:
    """Upper bounds for one matrix of vectors; squared norms include the margin.

    Attributes
    ----------
    spectral : float
        |W|_2^2, the largest sum of (w_j.x)^2: the L1 norm of quadratic features.
    b1, b2, b3, b5 : float
        Upper bounds on S4; b5 is infinite where it was not computed.
    traceless : float
        lambda_0: bounds |Phi(x) - Phi(y)|^2 / 2 for records of the same norm.
    """

    spectral: float
    b1: float
    b2: float
    b3: float
    b5: float
    traceless: float

    @property
    def s4(self) -> float:
        """The least upper bound on S4."""
        return min(self.b1, self.b2, self.b3, self.b5)

    @property
    def replace_squared(self) -> float:
        """Upper bound on |Phi(x) - Phi(y)|^2 for two records of the unit ball.

        Features are not negative, so it is at most 2 S4^2. It is convex in the squared
        norm of either record, so the largest value has norms 0 or 1; for norms 1 the
        difference x x' - y y' is traceless with squared norm at most 2.
        """
        return min(2 * self.s4**2, max(self.s4**2, 2 * self.traceless))


def quartic_bounds(vectors: Floats) -> QuarticBounds:
    """Return the bounds for vectors (m, dim), in their own units.

    Vectors are scaled to length at most 1, because svec(I) is compared with their fourth powers.
    Bounds are rounded up to six digits, so that processors agree on them.
    """
    longest = float(np.sqrt(np.square(vectors).sum(axis=1).max(initial=0.0)))
    if longest == 0:
        return QuarticBounds(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    unit = _unit_bounds(vectors / longest)
    square = longest**2
    bounds = (unit.spectral, unit.b1, unit.b2, unit.b3, unit.b5)
    spectral, b1, b2, b3, b5 = (round_up(bound * square) for bound in bounds)
    return QuarticBounds(spectral, b1, b2, b3, b5, round_up(unit.traceless * square**2))


def round_up(bound: float) -> float:
    """Return the next number of six digits that is not below a bound."""
    if not 0 < bound < math.inf:
        return bound
    step = 10.0 ** (math.floor(math.log10(bound)) - 5)
    return math.ceil(bound / step * (1 + 1e-12)) * step


def spectral_bound(vectors: npt.NDArray[Any]) -> float:
    """Bound |W|_2^2 for integer vectors (m, dim), identically on every processor."""
    wide = vectors.astype(np.float64)
    return round_up(_largest(wide.T @ wide) * EIGENVALUE_MARGIN)


def _unit_bounds(vectors: Floats) -> QuarticBounds:
    dim = vectors.shape[1]
    norms = np.einsum("jk,jk->j", vectors, vectors)
    spectral = _largest(vectors.T @ vectors)
    b3 = math.sqrt(float(norms.max()) * spectral) * EIGENVALUE_MARGIN
    if min(len(vectors), _svec_size(dim)) > MAX_SPLIT or len(vectors) * _svec_size(dim) > MAX_SVEC:
        return QuarticBounds(
            spectral * EIGENVALUE_MARGIN, math.inf, math.inf, b3, math.inf, math.inf
        )
    form = _gram_form(vectors, norms) if len(vectors) <= _svec_size(dim) else _svec_form(vectors)
    traceless = max(_largest(form.traceless), 0.0)
    weighted = (vectors * norms[:, None]).T @ vectors
    total = float(norms @ norms)
    split = (
        total / dim**2 + 2 / dim * (_largest(weighted) - total / dim) + (1 - 1 / dim) * traceless
    )
    affordable = len(form.quartic) <= MAX_DUAL
    b1 = math.sqrt(_largest(form.quartic)) if affordable else math.inf
    b5 = form.dual() if affordable and not _is_tight(vectors, norms) else math.inf
    return QuarticBounds(
        spectral=spectral * EIGENVALUE_MARGIN,
        b1=b1 * EIGENVALUE_MARGIN,
        b2=math.sqrt(max(split, 0.0)) * EIGENVALUE_MARGIN,
        b3=b3,
        b5=b5 * EIGENVALUE_MARGIN,
        traceless=traceless * EIGENVALUE_MARGIN,
    )


def _is_tight(vectors: Floats, norms: Floats) -> bool:
    """Return whether vectors have one length and are spread evenly, so that B5 equals B2.

    At the best t, svec(I) is an eigenvector, and its multiplier is that of the split.
    """
    mean = norms.mean()
    second = vectors.T @ vectors * (len(vectors.T) / len(vectors))
    return bool(
        np.abs(norms - mean).max() < 1e-3 * mean
        and np.abs(second - mean * np.eye(len(second))).max() < 1e-3 * mean
    )


@dataclass(frozen=True)
class _Form:
    """Matrices with the nonzero eigenvalues of A A' and of P A A' P, where P removes the trace.

    `span` is A A' in an orthonormal basis of the span of A and i, `direction` is i in this basis.
    """

    quartic: Floats
    traceless: Floats
    span: Floats
    direction: Floats

    def dual(self) -> float:
        """Return B5, the least t + lambda_max(A A' - t i i') over t >= 0, by bisection.

        Any t is valid, so the minimiser need not be exact.
        """

        def bound_at(t: float) -> tuple[float, float]:
            """Return the bound and its slope."""
            shifted = self.span - t * np.outer(self.direction, self.direction)
            values, vectors = np.linalg.eigh(shifted)
            largest = max(float(values[-1]), 0.0)
            slope = 1.0 - float(self.direction @ vectors[:, -1]) ** 2 if largest else 1.0
            return t + largest, slope

        best, _ = bound_at(0.0)
        low, high = 0.0, best  # for t above the bound at 0, the bound is larger
        while high - low > 1e-5 * best:
            t = (low + high) / 2
            value, slope = bound_at(t)
            best = min(best, value)
            low, high = (t, high) if slope < 0 else (low, t)
        return math.sqrt(best)


def _svec_size(dim: int) -> int:
    return dim * (dim + 1) // 2


def _gram_form(vectors: Floats, norms: Floats) -> _Form:
    """Return the form of few vectors, by their squared inner products A'A and norms A'i.

    The span of A and i has coordinates R with R'R the inner products of [A, i], so that A A'
    becomes R_A R_A' there.
    """
    m, dim = vectors.shape
    inner = np.square(vectors @ vectors.T)
    gram = np.empty((m + 1, m + 1))
    gram[:m, :m], gram[m, :m], gram[:m, m], gram[m, m] = inner, norms, norms, dim
    if m > MAX_DUAL:
        return _Form(inner, inner - np.outer(norms, norms) / dim, gram, norms)
    values, basis = np.linalg.eigh(gram)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * basis.T
    return _Form(
        inner, inner - np.outer(norms, norms) / dim, root[:, :m] @ root[:, :m].T, root[:, m]
    )


def _svec_form(vectors: Floats) -> _Form:
    """Return the form of many vectors: A A' itself, dim (dim + 1) / 2 rows."""
    dim = vectors.shape[1]
    first, second = np.triu_indices(dim)
    is_diagonal = first == second
    columns = vectors[:, first] * vectors[:, second] * np.where(is_diagonal, 1.0, math.sqrt(2.0))
    quartic = columns.T @ columns
    identity = np.where(is_diagonal, 1.0, 0.0)
    image = quartic @ identity
    traceless = (
        quartic
        - (np.outer(image, identity) + np.outer(identity, image)) / dim
        + np.outer(identity, identity) * (float(identity @ image) / dim**2)
    )
    return _Form(quartic, traceless, quartic, identity)


def _largest(matrix: Floats) -> float:
    """Return the largest eigenvalue of a symmetric matrix."""
    return float(np.linalg.eigvalsh(matrix)[-1])
