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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MARGIN = 1.0 + 1e-8  # dwarfs the error of an eigenvalue, and costs nothing
LARGEST_DUAL = 600  # rows of the matrices that B5 is worth its time for
_STEPS = 24


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
    """Bounds for vectors (m, dim), in their own units."""
    dim = vectors.shape[1]
    norms = np.einsum("jk,jk->j", vectors, vectors)
    spectral = _largest(vectors.T @ vectors)
    gram, trace_row = _squared_gram(vectors, norms)
    traceless = max(_largest(gram - np.outer(trace_row, trace_row) / dim), 0.0)
    weighted = (vectors * norms[:, None]).T @ vectors
    total = float(norms @ norms)
    split = (
        total / dim**2 + 2 / dim * (_largest(weighted) - total / dim) + (1 - 1 / dim) * traceless
    )
    return QuarticBounds(
        spectral=spectral * MARGIN,
        b1=float(np.sqrt(_largest(gram))) * MARGIN,
        b2=float(np.sqrt(max(split, 0.0))) * MARGIN,
        b3=float(np.sqrt(norms.max(initial=0.0) * spectral)) * MARGIN,
        b5=_dual(gram, trace_row, dim) * MARGIN,
        traceless=traceless * MARGIN,
    )


def _squared_gram(vectors: Floats, norms: Floats) -> tuple[Floats, Floats]:
    """A'A and A'i, or A A' and i where that is smaller: the same nonzero eigenvalues.

    In the second form `trace_row` is svec(I), and the formulas with n n' / d become
    projections; both are handled by the caller through the same expressions.
    """
    m, dim = vectors.shape
    size = dim * (dim + 1) // 2
    if m <= size:
        return np.square(vectors @ vectors.T), norms
    # Eigenvalues of A'A - n n'/d = A'(I - i i'/d) A are those of P A A' P with P = I - i i'/d.
    # A square root of A A' (size x size) stands in for A: with B B' = A A', use B'B and B'i.
    columns = _svec(vectors)
    values, basis = np.linalg.eigh(columns @ columns.T)
    root = basis * np.sqrt(np.maximum(values, 0.0))
    return root.T @ root, root.T @ _svec_identity(dim)


def _svec(vectors: Floats) -> Floats:
    """(dim (dim + 1) / 2, m) columns svec(w w'): off-diagonal entries times sqrt 2."""
    dim = vectors.shape[1]
    first, second = np.triu_indices(dim)
    scale = np.where(first == second, 1.0, np.sqrt(2.0))
    return np.asarray((vectors[:, first] * vectors[:, second] * scale).T)


def _svec_identity(dim: int) -> Floats:
    first, second = np.triu_indices(dim)
    return np.where(first == second, 1.0, 0.0)


def _largest(matrix: Floats) -> float:
    """Largest eigenvalue of a symmetric matrix."""
    return float(np.linalg.eigvalsh(matrix)[-1])


def _dual(gram: Floats, trace_row: Floats, dim: int) -> float:
    """B5: the least t + lambda_max(A A' - t i i') over t >= 0, by bisection on its slope.

    Any t is valid, so the minimiser need not be exact. A A' - t i i' acts on the span of A
    and i: with an orthonormal basis of it, A A' - t i i' has the eigenvalues of
    R diag(1, ..., 1, -t) R', where R'R is the Gram matrix of [A, i].
    """
    m = len(gram)
    if m + 1 > LARGEST_DUAL:
        return float("inf")
    whole = np.empty((m + 1, m + 1))
    whole[:m, :m], whole[m, :m], whole[:m, m], whole[m, m] = gram, trace_row, trace_row, dim
    values, basis = np.linalg.eigh(whole)
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * basis.T
    quartic, direction = root[:, :m] @ root[:, :m].T, root[:, m]

    def at(t: float) -> tuple[float, float]:
        """Bound and its slope."""
        values, vectors = np.linalg.eigh(quartic - t * np.outer(direction, direction))
        largest = max(float(values[-1]), 0.0)
        return t + largest, 1.0 - float(direction @ vectors[:, -1]) ** 2 if largest else 1.0

    best, _ = at(0.0)
    low, high = 0.0, best  # beyond t = the bound at 0, the bound exceeds that one
    for _ in range(_STEPS):
        t = (low + high) / 2
        value, slope = at(t)
        best = min(best, value)
        low, high = (t, high) if slope < 0 else (low, t)
        if high - low < 1e-6 * best:
            break
    return float(np.sqrt(best))
