"""AdaSSP and its boosted variant, with noise that keeps the stated budget.

T rounds of boosting release the least eigenvalue of X'X, X'X itself, and T times X'r for the
clipped residuals r: T + 2 Gaussian mechanisms of sensitivity 1 for rows of norm 1 and targets
between -1 and 1. Together they are mu-Gaussian differentially private if each has noise of
deviation sqrt(T + 2) / mu, where mu is the largest that keeps epsilon and delta. AdaSSP is T = 1.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from privsketch._base.types import Floats

QUANTILE = 1.96  # of a normal law, for the bound on the least eigenvalue


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with which mu-Gaussian differential privacy keeps epsilon and delta."""

    def excess(mu: float) -> float:
        above = math.exp(log_ndtr(mu / 2 - epsilon / mu))
        return above - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(excess, 1e-3 * min(epsilon, 1.0), 10 + 2 * epsilon, xtol=1e-12))


def adassp(
    x: Floats, y: Floats, epsilon: float, delta: float, rng: np.random.Generator, rounds: int = 1
) -> Floats:
    """Return coefficients, (dim,), of a regression without an intercept.

    Parameters
    ----------
    x : (n, dim) float64
        Rows of norm at most 1.
    y : (n,) float64
        Targets between -1 and 1.
    epsilon, delta : float
        Budget of everything.
    rng : Generator
        Source of the noise; for a benchmark, not for records of people.
    rounds : int
        Rounds of boosting, T.
    """
    dim = x.shape[1]
    noise = math.sqrt(rounds + 2) / gaussian_mu(epsilon, delta)
    gram = x.T @ x
    upper = np.triu(noise * rng.normal(size=(dim, dim)))
    least = float(np.linalg.eigvalsh(gram)[0]) + noise * rng.normal()
    ridge = QUANTILE * math.sqrt(dim) * noise - max(0.0, least - QUANTILE * noise)
    system = gram + upper + np.triu(upper, 1).T + max(0.0, ridge) * np.eye(dim)
    coef = np.zeros(dim)
    for _ in range(rounds):
        residuals = np.clip(y - x @ coef, -1, 1)
        coef += np.linalg.solve(system, x.T @ residuals + noise * rng.normal(size=dim))
    return coef
