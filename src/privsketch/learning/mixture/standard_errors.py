"""How far a fit may be off: the covariance of the errors of its variables.

In units of the full covariance of the sums the inverse of Fisher's information is the
answer. Large sketches are fitted in units of variances alone, as if features were
independent, which they are not; there the covariance of one record's features is taken
from draws of the mixture (White's sandwich).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privsketch._typing import Floats
from privsketch.learning.mixture.covariance import Weighting
from privsketch.learning.mixture.gauss_newton import Fit, jacobian
from privsketch.learning.mixture.gaussians import Gaussians, Sums

N_DRAWS = 2000


def error_covariance(
    fit: Fit,
    sums: Sums,
    weighting: Weighting,
    *,
    n_records: float,
    noise_variance: float,
    unit: float,
    rng: np.random.Generator,
) -> Floats:
    """(p, p) covariance of the errors of weights, means and log entries of covariances."""
    inverse = _inverse(fit.information)
    if weighting.factor.ndim == 2:
        return inverse
    deviations = weighting.factor
    gain = inverse @ (jacobian(sums, fit.gaussians) / deviations[:, None] ** 2).T  # (p, 2 m)
    phases = draw(fit.gaussians, N_DRAWS, rng) @ sums.frequencies.T
    moved = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) @ gain.T
    sampling = np.atleast_2d(np.cov(moved.T)) * n_records
    return np.asarray((sampling + noise_variance * (gain @ gain.T)) / unit**2)


def draw(gaussians: Gaussians, n_draws: int, rng: np.random.Generator) -> Floats:
    """(n_draws, dim) independent draws of the mixture."""
    share = gaussians.weights + 1e-300
    label = rng.choice(gaussians.size, size=n_draws, p=share / share.sum())
    factors = np.linalg.cholesky(gaussians.matrices())
    normal = rng.standard_normal((n_draws, gaussians.dim))
    points = gaussians.means[label]
    for k in range(gaussians.size):
        mine = label == k
        points[mine] += normal[mine] @ factors[k].T
    return points


def _inverse(information: Floats) -> Floats:
    # What the sums do not determine has an error beyond any use, but a finite one.
    diagonal = np.diag(information)
    scale = np.sqrt(np.maximum(diagonal, 1e-12 * float(np.max(diagonal)) + 1e-100))
    correlation = information / np.outer(scale, scale)
    correlation.flat[:: len(correlation) + 1] += 1e-9
    inverse = cho_solve(cho_factor(correlation), np.eye(len(scale)))
    return np.asarray(inverse / np.outer(scale, scale))
