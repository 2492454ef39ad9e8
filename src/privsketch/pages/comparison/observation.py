"""The released sums of one source with their variances, and the fit of a mixture to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.learning.problem import nonnegative_solution
from privsketch.sketching.sketch import Sketch

_RIDGE = 1e-9  # relative ridge of a Gram matrix, which keeps equal components invertible
# Steps of the quick costs: python -m benchmarks constants pages N_GRADIENT_STEPS
N_GRADIENT_STEPS = 60
MIN_FEATURE_VARIANCE = 0.02  # smallest sampling variance of a feature, as a share of the largest


def as_complex(numbers: Floats) -> npt.NDArray[np.complex128]:
    """Return complex numbers (m,) from their real parts, followed by their imaginary ones."""
    real, imaginary = numbers.reshape(2, -1)
    return np.asarray(real + 1j * imaginary)


@dataclass(frozen=True, eq=False)
class Observation:
    """Sums (2 m,) of one source, real parts before imaginary ones, and their variances.

    `count` is the number of records and its variance, if the sketch contains it.
    """

    sums: Floats
    noise_variance: float
    n_records: float
    repetition: float
    squared_modulus: float  # of a record's feature
    count: tuple[float, float] | None

    @cached_property
    def mean(self) -> npt.NDArray[np.complex128]:
        """Noisy characteristic function of the records."""
        return np.asarray(as_complex(self.sums) / self.n_records)

    def variances(self, moments: npt.NDArray[np.complex128]) -> Floats:
        """Return variances (2 m,) of the sums, if `moments` is the characteristic function phi.

        Each record adds `squared_modulus - |phi|^2` to the sum of a feature's two variances.
        """
        per_record = np.maximum(self.squared_modulus - np.abs(moments) ** 2, MIN_FEATURE_VARIANCE)
        sampling = self.n_records * self.repetition * per_record / 2
        return np.tile(self.noise_variance + sampling, 2)


def observe(sketch: Sketch, rows: npt.NDArray[np.intp]) -> Observation:
    """Return the features at `rows` of one sketch."""
    design = sketch.design
    moments = sketch.moments()[rows]
    count = sketch.n_records
    # Without a count, the largest sum is not far below the number of records.
    n_records = float(np.max(np.abs(moments))) if count is None else float(count)
    return Observation(
        sums=np.concatenate([moments.real, moments.imag]),
        noise_variance=sketch.noise_variance + sketch.masking_variance,
        n_records=max(n_records, 1.0),
        repetition=sketch.repetition,
        squared_modulus=1 + SIGN_VARIANCE if design.mapping.dithered else 1.0,
        count=None if count is None else (float(count), sketch.count_variance + 1.0),
    )


class Fit:
    """Non-negative least squares: the weights of given components that explain a source best."""

    def __init__(self, observation: Observation, moments: npt.NDArray[np.complex128]) -> None:
        self.count = observation.count
        self.scale = 1 / np.sqrt(observation.variances(moments))
        self.right = observation.sums * self.scale
        if self.count is not None:
            self.right = np.append(self.right, self.count[0] / np.sqrt(self.count[1]))
        self.square = float(self.right @ self.right)

    @property
    def n_numbers(self) -> int:
        """Number of fitted numbers."""
        return len(self.right)

    def whitened(self, vectors: Floats) -> Floats:
        """Return features (K, 2 m) of a record as (K, n_numbers), in standard deviations."""
        rows = vectors * self.scale
        if self.count is not None:
            counts = np.full((len(rows), 1), 1 / np.sqrt(self.count[1]))
            rows = np.hstack([rows, counts])
        return rows

    def solve(self, vectors: Floats) -> tuple[float, Floats]:
        """Return chi-square, and weights (K,) in records."""
        rows = self.whitened(vectors)
        gram = rows @ rows.T
        gram.flat[:: len(gram) + 1] += _RIDGE * float(np.max(np.diag(gram))) + 1e-300
        inner = rows @ self.right
        weights = nonnegative_solution(gram, inner)
        residual = self.right - weights @ rows
        return float(residual @ residual), weights

    def costs(self, vectors: Floats) -> Floats:
        """Return upper bounds of chi-square for each of (n, K, 2 m) features, quickly.

        All trials take accelerated gradient steps at once (Beck and Teboulle 2009).
        """
        rows = vectors * self.scale
        right = self.right[: rows.shape[2]]
        gram = rows @ rows.transpose(0, 2, 1)
        inner = rows @ right
        if self.count is not None:
            precision = 1 / self.count[1]
            gram = gram + precision
            inner = inner + precision * self.count[0]
        step = 1 / np.maximum(np.abs(gram).sum(axis=2).max(axis=1), 1e-300)[:, None]
        weights = np.zeros_like(inner)
        ahead, momentum = weights, 1.0
        for _ in range(N_GRADIENT_STEPS):
            slopes = (gram @ ahead[:, :, None])[:, :, 0] - inner
            new = np.maximum(ahead - step * slopes, 0.0)
            next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / next_momentum * (new - weights)
            weights, momentum = new, next_momentum
        fitted = (weights * ((gram @ weights[:, :, None])[:, :, 0] - 2 * inner)).sum(axis=1)
        return np.asarray(self.square + fitted)
