"""Mixtures of public samples, by rounds of EM.

Where no mixture of the requested shape explains a sketch, the least distance to the sketch is not
the most likely mixture. A density that does explain it stands for the records then: samples of it
are public, and EM finds the mixture that is most likely for them.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from privsketch._base.types import Floats
from privsketch.design.size import CovarianceType
from privsketch.learning.mixture.gaussians import Gaussians

MAX_EM_ROUNDS = 200  # a safeguard: MIN_EM_RISE usually ends EM
MIN_EM_RISE = 1e-6  # rise of the mean log-density that is worth another round


def maximise_likelihood(
    points: Floats,
    weights: Floats,
    responsibilities: Floats,
    covariance_type: CovarianceType,
    min_variance: float,
) -> tuple[Gaussians, float]:
    """Run EM from responsibilities; return the mixture and its mean log-density."""
    previous, total = -np.inf, max(float(weights.sum()), 1e-300)
    gaussians = maximum(points, weights, responsibilities, covariance_type, min_variance)
    for _ in range(MAX_EM_ROUNDS):
        responsibilities, logs = responsibilities_of(points, gaussians)
        value = float(weights @ logs) / total
        if value < previous + MIN_EM_RISE:
            break
        previous = value
        gaussians = maximum(points, weights, responsibilities, covariance_type, min_variance)
    return gaussians, previous


def maximum(
    points: Floats,
    weights: Floats,
    responsibilities: Floats,
    kind: CovarianceType,
    min_variance: float,
) -> Gaussians:
    """Return the most likely mixture for given responsibilities (n, k)."""
    shares = responsibilities * weights[:, np.newaxis]
    mass = shares.sum(axis=0)
    divisors = np.maximum(mass, 1e-12 * max(float(mass.sum()), 1e-300))[:, np.newaxis]
    means = shares.T @ points / divisors
    dim = points.shape[1]
    if kind in ("full", "tied"):
        matrices = np.empty((len(mass), dim, dim))
        for k, mean in enumerate(means):
            offsets = points - mean
            matrices[k] = (offsets * shares[:, k, np.newaxis]).T @ offsets / divisors[k]
        if kind == "tied":
            matrices = np.average(matrices, axis=0, weights=mass + 1e-300)[np.newaxis]
        covariances = matrices + min_variance * np.eye(dim)
    else:
        squares = shares.T @ np.square(points) / divisors - np.square(means)
        covariances = np.maximum(squares, 0.0) + min_variance
        if kind == "spherical":
            covariances = covariances.mean(axis=1, keepdims=True)
    return Gaussians(mass, means, covariances, kind)


def log_densities(points: Floats, gaussians: Gaussians) -> Floats:
    """Return logarithms of weight times density, (n, k)."""
    logs = np.empty((len(points), gaussians.size))
    matrices = gaussians.matrices()
    constant = points.shape[1] * math.log(2 * math.pi) / 2
    for k, (mean, matrix) in enumerate(zip(gaussians.means, matrices, strict=True)):
        factor = np.linalg.cholesky(matrix)
        whitened = solve_triangular(factor, (points - mean).T, lower=True)
        logs[:, k] = -np.square(whitened).sum(axis=0) / 2 - np.log(np.diag(factor)).sum()
    return np.asarray(logs - constant + np.log(np.maximum(gaussians.weights, 1e-300)))


def responsibilities_of(points: Floats, gaussians: Gaussians) -> tuple[Floats, Floats]:
    """Return responsibilities (n, k) of the components, and log-densities (n,) of the points."""
    logs = log_densities(points, gaussians)
    totals = logsumexp(logs, axis=1)
    return np.exp(logs - totals[:, np.newaxis]), totals
