"""Certified upper bounds on S4, the largest L2 norm of quadratic features.

    S4^2 = max over |x| = 1 of sum_j (w_j.x)^4

is what Gaussian noise on quadratic features is calibrated to (CLP section 3.4). It is
hard to compute; local maximisation finds a lower bound, and noise calibrated to that
would be too small. Each bound below holds for every matrix of vectors w_j, so the least
of them does (docs/theory.md has the proofs):

- B1: largest eigenvalue of the squared Gram matrix;
- B3: longest vector times largest singular value;
- B2: x x' split into I / d and a traceless rest;
- B5: the same with the multiplier t of the trace left free: S4^2 <= t + lambda_max(A A' - t i i')
  with A the columns svec(w_j w_j') and i = svec(I), for any t.

Eigenvalues come from dense symmetric solvers, whose error is far below the margin that
every bound is multiplied by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats

MAX_SPLIT = 2500  # rows of the matrices whose eigenvalues B2 is worth waiting for,
MAX_SVEC = 2**27  # and entries of A; beyond, B3 alone
MARGIN = 1.0 + 1e-8  # dwarfs the error of an eigenvalue, and costs nothing
MAX_DUAL = 300  # rows of the matrices that B5, and B1 beside B2, are worth their time for


@dataclass(frozen=True)
class QuarticBounds:
    """Upper bounds of one matrix of vectors; squared norms carry the margin.

    Attributes
    ----------
    spectral : float
        |Om|_2^2, the largest sum of (w_j.x)^2: the L1 norm of quadratic features.
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
    """Bounds for vectors (m, dim), in their own units.

    They are computed for vectors of length at most 1, because svec(I) stands beside their
    fourth powers, and rounded up to six digits, so that processors agree on them.
    """
    longest = float(np.sqrt(np.square(vectors).sum(axis=1).max(initial=0.0)))
    if longest == 0:
        return QuarticBounds(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    unit = _unit_bounds(vectors / longest)
    square = longest**2
    return QuarticBounds(
        spectral=round_up(unit.spectral * square),
        b1=round_up(unit.b1 * square),
        b2=round_up(unit.b2 * square),
        b3=round_up(unit.b3 * square),
        b5=round_up(unit.b5 * square),
        traceless=round_up(unit.traceless * square**2),
    )


def round_up(bound: float) -> float:
    """The next number with six digits that is not below."""
    if not 0 < bound < math.inf:
        return bound
    step = 10.0 ** (math.floor(math.log10(bound)) - 5)
    return math.ceil(bound / step * (1 + 1e-12)) * step


def spectral_bound(vectors: npt.NDArray[Any]) -> float:
    """Upper bound on |Om|_2^2 of integer vectors (m, dim), the same on every processor."""
    wide = vectors.astype(np.float64)
    return round_up(_largest(wide.T @ wide) * MARGIN)


def _unit_bounds(vectors: Floats) -> QuarticBounds:
    dim = vectors.shape[1]
    norms = np.einsum("jk,jk->j", vectors, vectors)
    spectral = _largest(vectors.T @ vectors)
    b3 = math.sqrt(float(norms.max()) * spectral) * MARGIN
    if min(len(vectors), _size(dim)) > MAX_SPLIT or len(vectors) * _size(dim) > MAX_SVEC:
        return QuarticBounds(spectral * MARGIN, math.inf, math.inf, b3, math.inf, math.inf)
    form = _gram_form(vectors, norms) if len(vectors) <= _size(dim) else _svec_form(vectors)
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
        spectral=spectral * MARGIN,
        b1=b1 * MARGIN,
        b2=math.sqrt(max(split, 0.0)) * MARGIN,
        b3=b3,
        b5=b5 * MARGIN,
        traceless=traceless * MARGIN,
    )


def _is_tight(vectors: Floats, norms: Floats) -> bool:
    """Whether vectors have one length and are spread evenly, as bases are: B5 is B2 then.

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
    """Matrices with the nonzero eigenvalues of A A', of P A A' P (P removes the trace), and more.

    `span` is A A' in an orthonormal basis of the span of A and i, `direction` is i in it.
    """

    quartic: Floats
    traceless: Floats
    span: Floats
    direction: Floats

    def dual(self) -> float:
        """B5: the least t + lambda_max(A A' - t i i') over t >= 0, by bisection on its slope.

        Any t is valid, so the minimiser need not be exact.
        """

        def at(t: float) -> tuple[float, float]:
            """Bound and its slope."""
            shifted = self.span - t * np.outer(self.direction, self.direction)
            values, vectors = np.linalg.eigh(shifted)
            largest = max(float(values[-1]), 0.0)
            slope = 1.0 - float(self.direction @ vectors[:, -1]) ** 2 if largest else 1.0
            return t + largest, slope

        best, _ = at(0.0)
        low, high = 0.0, best  # beyond t = the bound at 0, the bound exceeds that one
        while high - low > 1e-5 * best:
            t = (low + high) / 2
            value, slope = at(t)
            best = min(best, value)
            low, high = (t, high) if slope < 0 else (low, t)
        return math.sqrt(best)


def _size(dim: int) -> int:
    return dim * (dim + 1) // 2


def _gram_form(vectors: Floats, norms: Floats) -> _Form:
    """For few vectors: A'A, entrywise squares of their inner products; A'i is n.

    The span of A and i has coordinates R with R'R the inner products of [A, i], so that A A'
    becomes R_A R_A' there.
    """
    m, dim = vectors.shape
    inner = np.square(vectors @ vectors.T)
    whole = np.empty((m + 1, m + 1))
    whole[:m, :m], whole[m, :m], whole[:m, m], whole[m, m] = inner, norms, norms, dim
    if m > MAX_DUAL:
        return _Form(inner, inner - np.outer(norms, norms) / dim, whole, norms)
    values, basis = np.linalg.eigh(whole)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * basis.T
    return _Form(
        inner, inner - np.outer(norms, norms) / dim, root[:, :m] @ root[:, :m].T, root[:, m]
    )


def _svec_form(vectors: Floats) -> _Form:
    """For many vectors: A A' itself, dim (dim + 1) / 2 rows."""
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
    """Largest eigenvalue of a symmetric matrix."""
    return float(np.linalg.eigvalsh(matrix)[-1])
