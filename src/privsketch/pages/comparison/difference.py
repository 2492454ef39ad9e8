"""Whether a source differs from the sum of the others beyond noise and sampling, and by how much.

No mixture has to fit for that: sums are compared with sums. Those of alike sources differ by a
quadratic form of normal errors, whose features go together by sampling; its distribution is that of
Satterthwaite, from draws of records of a mixture where there is one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from privsketch._base.types import Floats
from privsketch.pages.comparison.observation import Observation
from privsketch.pages.comparison.reference import Reference

N_DRAWS = 300  # of records, for the covariance of features


@dataclass(frozen=True)
class Difference:
    """The chance that alike sources differ as much, and the size of the difference."""

    chance: float
    size: float


def difference_of(
    one: Observation, others: Observation, reference: Reference | None, rng: np.random.Generator
) -> Difference:
    """One source and the sum of the others."""
    of_one, of_others = one.variances(others.mean), others.variances(others.mean)

    def apart(ratio: float) -> float:
        return float(
            np.sum((one.sums - ratio * others.sums) ** 2 / (of_one + ratio**2 * of_others))
        )

    # Counts are noisy, or not known: the ratio that fits best is what is compared with.
    start = one.n_records / others.n_records
    found = minimize_scalar(apart, bounds=(0.0, 3 * start), method="bounded")
    ratio, statistic = float(found.x), float(found.fun)
    variances = of_one + ratio**2 * of_others
    noise = one.noise_variance + ratio**2 * others.noise_variance
    sampling = one.n_records * one.repetition + ratio**2 * others.n_records * others.repetition
    squares = _squares(noise / variances, sampling / variances, reference, rng)
    mean = float(len(variances))
    chance = float(chi2.sf(statistic * mean / squares, mean**2 / squares))
    signal = float(np.sum((ratio * others.sums) ** 2 - ratio**2 * of_others))
    left = float(np.sum((one.sums - ratio * others.sums) ** 2 - variances))
    size = math.sqrt(max(left, 0.0) / max(signal, 1e-300)) if signal > 0 else 0.0
    return Difference(chance, min(size, 2.0))


def _squares(
    noise: Floats, sampling: Floats, reference: Reference | None, rng: np.random.Generator
) -> float:
    """The trace of V^2, V being the covariance of the differences in units of variances."""
    if reference is None:  # as if all features went together
        return float(np.sum(np.square(noise)) + np.sum(1 - noise) ** 2 + 2 * noise @ (1 - noise))
    shares = reference.weights / max(float(reference.weights.sum()), 1e-300)
    label = rng.choice(reference.size, size=N_DRAWS, p=shares)
    normal = rng.standard_normal((N_DRAWS, reference.means.shape[1]))
    records = reference.means[label] + reference.widths[label] * normal
    phases = records @ reference.features.frequencies.T
    values = np.hstack([np.cos(phases), np.sin(phases)])
    values = (values - values.mean(axis=0)) * np.sqrt(sampling)
    gram = values @ values.T / (N_DRAWS - 1)
    # What a sample of draws adds to the norm of a covariance is taken off.
    trace = float(np.trace(gram))
    norm = max(float(np.sum(gram**2)) - trace**2 / N_DRAWS, trace**2 / len(noise))
    own = values.var(axis=0)
    return float(np.sum(np.square(noise)) + 2 * noise @ own + norm)
