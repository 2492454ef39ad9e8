"""What separates the moments of a mixture from those a sketch has on average.

Records outside the domain are moved to its edge before they are sketched: a component
near the edge is not a Gaussian any more, and a fit of Gaussians would be pulled inwards.
Signs (the one-bit map) have harmonics beside the wave that learners read. Both effects
follow from the mixture itself: the edge's from draws of it, of which only those outside
matter, and the harmonics' in closed form. A decoder takes them out of the sums and fits
again, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsketch._base.types import Floats
from privsketch.learning.mixture.gauss_newton import log_changes
from privsketch.learning.mixture.gaussians import Gaussians, moments

N_NUMBERS = 100_000  # standard normal ones, for all draws of a component
MAX_OUTSIDE = 2000  # draws per component that are worked out, fewer if there is much to do
MAX_PHASES = 5_000_000  # draws x features, of all components
# sgn cos t + i sgn sin t = (4 / pi) (exp(it) + exp(-3it) / -3 + exp(5it) / 5 + ...). At the
# lowest frequencies many orders count.
ALL_HARMONICS = tuple(order if order % 4 == 1 else -order for order in range(3, 64, 2))
Project = Callable[[Floats], Floats]


@dataclass(frozen=True)
class _Outside:
    """Draws of one component outside the domain, before and after they are moved in."""

    component: int
    weight: float
    share: float  # of the component
    points: Floats  # (n, dim)
    inside: Floats  # (n, dim)

    def waves(self, frequencies: Floats) -> NDArray[np.float32]:
        """(2 n, 2 m) cosines and sines, draws moved in before draws outside.

        Half of the digits are plenty for an average of draws.
        """
        both = np.concatenate([self.inside, self.points])
        phases = (both @ frequencies.T).astype(np.float32)
        return np.concatenate([np.cos(phases), np.sin(phases)], axis=1)


@dataclass(frozen=True)
class Distortion:
    """The domain's projection with draws to estimate its effect, and the dither of signs.

    The same draws serve every mixture, so that the effect varies smoothly with it.
    """

    project: Project  # in the coordinates of the problem
    draws: Floats  # (n, dim) standard normal, in antithetic pairs
    dither: Floats | None  # (m,) radians; None for maps without harmonics

    def shift(self, frequencies: Floats, gaussians: Gaussians) -> tuple[Floats, float]:
        """(2 m,) distorted moments minus plain ones, and the mixture's share outside."""
        result, share = self._edge(frequencies, gaussians)
        if self.dither is not None:
            result += self._harmonics(frequencies, gaussians, self.dither)
        return result, share

    def _edge(self, frequencies: Floats, gaussians: Gaussians) -> tuple[Floats, float]:
        m = len(frequencies)
        result = np.zeros(2 * m)
        weight_outside = 0.0
        for piece in self._outside(frequencies, gaussians):
            weight_outside += piece.weight
            signs = np.repeat(np.array([1.0, -1.0], np.float32), len(piece.points))
            result += piece.weight / len(piece.points) * (signs @ piece.waves(frequencies))
        return result, weight_outside / max(float(gaussians.weights.sum()), 1e-300)

    def slopes(self, frequencies: Floats, gaussians: Gaussians) -> Floats:
        """(2 m, p) derivatives of the edge's part of the shift by weights, means and logs.

        A draw moves with its component: by the step of the mean, and by
        `dS S^-1 (x - c) / 2` when the covariance changes by dS. What the projection makes
        of these steps is a difference of projections.
        """
        m, dim = frequencies.shape
        size = gaussians.size
        changes = log_changes(gaussians)  # (size or 1, q, dim, dim)
        n_logs = changes.shape[1]
        result = np.zeros((2 * m, size * (dim + 1) + len(changes) * n_logs))
        by_mean = result[:, size : size * (dim + 1)].reshape(2 * m, size, dim)
        by_log = result[:, size * (dim + 1) :].reshape(2 * m, len(changes), n_logs)
        for piece in self._outside(frequencies, gaussians):
            k, n = piece.component, len(piece.points)
            waves = piece.waves(frequencies)
            signs = np.repeat(np.array([1.0, -1.0], np.float32), n)
            change = changes[k if len(changes) > 1 else 0]
            matrix = gaussians.matrices()[k]
            offsets = np.linalg.solve(matrix, (piece.points - gaussians.means[k]).T).T
            steps = np.concatenate(
                [
                    np.repeat(np.eye(dim)[:, None, :], n, axis=1),
                    np.einsum("nb,qab->qna", offsets, change) / 2,
                ]
            )  # (dim + q, n, dim)
            size_of_step = 1e-6 * np.sqrt(np.trace(matrix) / dim)
            flat = (piece.points + size_of_step * steps).reshape(-1, dim)
            projected = (self.project(flat).reshape(steps.shape) - piece.inside) / size_of_step
            both = np.concatenate([projected, -steps], axis=1).transpose(0, 2, 1)
            moved = (both.reshape(-1, 2 * n).astype(np.float32) @ waves).reshape(-1, dim, 2 * m)
            # d cos(w.x) = -sin(w.x) w.dx, d sin(w.x) = cos(w.x) w.dx
            derivative = np.concatenate(
                [
                    -np.einsum("paj,ja->jp", moved[:, :, m:], frequencies),
                    np.einsum("paj,ja->jp", moved[:, :, :m], frequencies),
                ]
            )
            derivative *= piece.weight / n
            result[:, k] += piece.share / n * (signs @ waves)
            by_mean[:, k] += derivative[:, :dim]
            by_log[:, k if len(changes) > 1 else 0] += derivative[:, dim:]
        return result

    def _outside(self, frequencies: Floats, gaussians: Gaussians) -> Iterator[_Outside]:
        """The draws outside the domain, component by component."""
        factors = np.linalg.cholesky(gaussians.matrices())
        n_phases = len(frequencies) * gaussians.size
        n_most = int(np.clip(MAX_PHASES // n_phases, 200, MAX_OUTSIDE))
        for k in np.flatnonzero(gaussians.weights > 0):
            points = gaussians.means[k] + self.draws @ factors[k].T
            inside = self.project(points)
            outside = np.flatnonzero((points != inside).any(axis=1))
            if len(outside):
                share = len(outside) / len(points)
                outside = outside[:n_most]
                weight = float(gaussians.weights[k]) * share
                yield _Outside(int(k), weight, share, points[outside], inside[outside])

    @staticmethod
    def _harmonics(frequencies: Floats, gaussians: Gaussians, dither: Floats) -> Floats:
        """Harmonics of the moments, with the dither of the first one taken back."""
        total = np.zeros(len(frequencies), dtype=np.complex128)
        for order in ALL_HARMONICS:
            wave = np.exp(1j * (order - 1) * dither) / order
            total += wave * moments(order * frequencies, gaussians)
        return np.concatenate([total.real, total.imag])


def make_distortion(
    project: Project, dim: int, dither: Floats | None, rng: np.random.Generator
) -> Distortion:
    """The distortion of a design, with fresh draws."""
    half = rng.standard_normal((max(N_NUMBERS // (2 * dim), 500), dim))
    return Distortion(project, np.concatenate([half, -half]), dither)
