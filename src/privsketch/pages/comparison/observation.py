"""One source's numbers, in records, with the variance that noise and sampling give them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.learning.problem import nonnegative_solution
from privsketch.sketching.sketch import Sketch

_RIDGE = 1e-9  # of a Gram matrix, relative; keeps twins invertible
_STEPS = 60  # of a first choice among changes; by trial
LEAST_SAMPLING = 0.02  # share of the largest sampling variance that is always counted


@dataclass(frozen=True, eq=False)
class Observation:
    """Sums of one source, (2 m,) real parts before imaginary ones, and their variances.

    `count` is the number of records and its variance where the sketch tells it.
    """

    source: str
    sums: Floats
    noise_variance: float
    n_records: float
    repetition: float
    scatter: float  # squared modulus of a record's feature
    count: tuple[float, float] | None

    @cached_property
    def mean(self) -> npt.NDArray[np.complex128]:
        """The noisy characteristic function."""
        real, imaginary = self.sums.reshape(2, -1)
        return np.asarray((real + 1j * imaginary) / self.n_records)

    def variances(self, moments: npt.NDArray[np.complex128]) -> Floats:
        """(2 m,) of the sums, for records whose characteristic function is `moments`.

        Sampling leaves `scatter - |phi|^2` for each record over both parts of a feature.
        """
        left = np.maximum(self.scatter - np.abs(moments) ** 2, LEAST_SAMPLING)
        sampling = self.n_records * self.repetition * left / 2
        return np.tile(self.noise_variance + sampling, 2)


def observe(sketch: Sketch, rows: npt.NDArray[np.intp]) -> Observation:
    """The features at `rows` of one sketch."""
    design = sketch.design
    moments = sketch.moments()[rows]
    known = sketch.n_records
    # Without a count, the largest sum is not far below the number of records.
    n_records = float(np.max(np.abs(moments))) if known is None else float(known)
    count = None
    if known is not None:
        count = float(known), sketch.count_variance + 1.0
    return Observation(
        source=", ".join(sketch.sources),
        sums=np.concatenate([moments.real, moments.imag]),
        noise_variance=sketch.noise_variance + sketch.masking_variance,
        n_records=max(n_records, 1.0),
        repetition=sketch.repetition,
        scatter=1 + SIGN_VARIANCE if design.mapping.dithered else 1.0,
        count=count,
    )


class Fit:
    """Non-negative weights of given components that explain a source best, in whitened numbers."""

    def __init__(self, seen: Observation, moments: npt.NDArray[np.complex128]) -> None:
        self.seen = seen
        self.scale = 1 / np.sqrt(seen.variances(moments))
        self.right = seen.sums * self.scale
        if seen.count is not None:
            self.right = np.append(self.right, seen.count[0] / np.sqrt(seen.count[1]))
        self.square = float(self.right @ self.right)

    @property
    def n_numbers(self) -> int:
        """How many numbers are explained."""
        return len(self.right)

    def whitened(self, vectors: Floats) -> Floats:
        """(K, n_numbers) of features (K, 2 m) of a record."""
        rows = vectors * self.scale
        if self.seen.count is not None:
            one = np.full((len(rows), 1), 1 / np.sqrt(self.seen.count[1]))
            rows = np.hstack([rows, one])
        return rows

    def solve(self, vectors: Floats) -> tuple[float, Floats]:
        """Chi-square, and weights (K,) in records."""
        rows = self.whitened(vectors)
        gram = rows @ rows.T
        gram.flat[:: len(gram) + 1] += _RIDGE * float(np.max(np.diag(gram))) + 1e-300
        inner = rows @ self.right
        weights = nonnegative_solution(gram, inner)
        left = self.right - weights @ rows
        return float(left @ left), weights

    def costs(self, vectors: Floats) -> Floats:
        """Chi-squares, from above, for each of (n, K, 2 m) features: quick, for a first choice.

        Accelerated gradient steps, all trials at once (Beck and Teboulle 2009).
        """
        rows = vectors * self.scale
        right = self.right[: rows.shape[2]]
        gram = rows @ rows.transpose(0, 2, 1)
        inner = rows @ right
        if self.seen.count is not None:
            precision = 1 / self.seen.count[1]
            gram = gram + precision
            inner = inner + precision * self.seen.count[0]
        step = 1 / np.maximum(np.abs(gram).sum(axis=2).max(axis=1), 1e-300)[:, None]
        weights = np.zeros_like(inner)
        ahead, pace = weights, 1.0
        for _ in range(_STEPS):
            slopes = (gram @ ahead[:, :, None])[:, :, 0] - inner
            new = np.maximum(ahead - step * slopes, 0.0)
            faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
            ahead = new + (pace - 1) / faster * (new - weights)
            weights, pace = new, faster
        fitted = (weights * ((gram @ weights[:, :, None])[:, :, 0] - 2 * inner)).sum(axis=1)
        return np.asarray(self.square + fitted)
