"""The whole cloud of records as one Gaussian: where it is, how wide, how many.

Fitted to the low frequencies alone, where a cloud of any shape looks like one blob.
It sets the units and the starting points of the decoders.
"""

from dataclasses import dataclass, replace

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.atoms import Atoms, features, make_target
from privsketch.learning.problem import Problem
from privsketch.learning.refine import refine

N_STARTS = 64
N_PASSES = 3
PASS_ITERATIONS = 60


@dataclass(frozen=True)
class Overview:
    """The whole cloud of records as one isotropic Gaussian."""

    weight: float
    center: Floats
    variance: float
    n_evaluations: int


def find_overview(problem: Problem, rng: np.random.Generator) -> Overview:
    """Fit one Gaussian to the low frequencies: mean, spread and number of records.

    Always returns a positive weight and a positive variance, also for a sketch
    of noise alone.
    """
    low, high = problem.low, problem.high
    dim = len(low)
    half_widths = (high - low) / 2
    largest = float(np.max(np.abs(problem.moments), initial=0.0))
    # Moments are sums over records: what is below a millionth of one is nothing.
    unit = largest if np.isfinite(largest) and largest > 1e-6 else 1.0
    target = make_target(problem.frequencies, problem.moments / unit)
    variance = float(np.max(half_widths)) ** 2 / 9 or 1.0
    smallest = 1e-6 * variance
    center = (low + high) / 2
    starts = np.vstack([center, rng.uniform(low, high, (N_STARTS, dim))])
    atoms = Atoms(np.ones(1), center[None], np.array([[variance]]))
    n_evaluations = 0
    for step in range(N_PASSES):
        taper = np.exp(-target.squared_norms * max(float(atoms.variances[0, 0]), smallest) / 2)
        n_needed = min(len(taper), 4 * dim + 8)
        floor = min(0.1, float(np.partition(taper, -n_needed)[-n_needed]))
        lowest = target.tapered(np.maximum(taper, 1e-3), taper >= floor)
        if step == 0:
            matched = features(lowest, starts, atoms.variances)
            matched *= np.tile(lowest.taper**2, 2)
            place = int(np.argmax(matched @ lowest.moments))
            atoms = replace(atoms, centers=starts[place : place + 1])
        atoms, _, n_more = refine(lowest, atoms, low, high, n_iterations=PASS_ITERATIONS)
        n_evaluations += n_more
    weight = float(atoms.weights[0])
    # No more than a hundredth of the largest moment can only be noise.
    weight = max(weight, 0.01) if np.isfinite(weight) else 1.0
    return Overview(
        weight * unit,
        atoms.centers[0],
        max(float(atoms.variances[0, 0]), smallest),
        n_evaluations,
    )
