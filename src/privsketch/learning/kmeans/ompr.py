"""CL-OMPR, the decoder of the papers: orthogonal matching pursuit with replacement, Dirac atoms.

2k times, it adds an atom at a maximum of the correlation with the residual, keeps the k heaviest
atoms by non-negative least squares, and refines all of them jointly (Keriven, Tremblay,
Traonmilin, Gribonval, "Compressive K-means", 2017). It serves comparison: clusters have width,
Dirac atoms have none.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import Bounds, minimize

from privsketch._base.errors import require_count
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.learning.problem import (
    Atoms,
    Problem,
    Target,
    best_weights,
    features,
    residual_vector,
)
from privsketch.learning.refine import find_overview, refine
from privsketch.learning.uncertainty import Solution, assess_fit

DIRAC = np.zeros((1, 1))
N_CANDIDATES = 20  # random points compared before the ascent of a new atom
# The search is for comparison, and more iterations hardly help it:
# python -m benchmarks constants learning STEP_ITERATIONS varies all three together.
ASCENT_ITERATIONS = 100  # of a new atom
STEP_ITERATIONS = 50  # of all atoms together, after each new one
LAST_ITERATIONS = 300  # of the last refinement, in double precision


def decode_ompr(
    problem: Problem, n_clusters: int, rng: np.random.Generator, *, n_init: int = 3
) -> Solution:
    """Fit `n_clusters` Dirac atoms greedily; keep the best of `n_init` runs.

    Parameters are those of `decode_joint`; `rng` draws the points that new atoms start from.
    """
    require_count("n_init", n_init)
    with one_thread():
        overview = find_overview(problem, rng)
        unit = overview.weight
        target = problem.target(unit)
        atoms, cost = keep_best([run_search(target, n_clusters, rng) for _ in range(n_init)])
    atoms = atoms.in_order().scaled(unit)
    return Solution(
        atoms=atoms,
        density=atoms,
        residual=cost * unit**2,
        uncertainty=assess_fit(problem, atoms, 1.0, rng, fit_variances=False),
    )


def keep_best(runs: Sequence[tuple[Atoms, float]]) -> tuple[Atoms, float]:
    """Return the run (atoms, cost) of least cost; of equal runs, the first.

    Runs that end in the same minimum differ by rounding and in the order of their atoms. A later
    run must be better by more than rounding.
    """
    best = runs[0]
    for run in runs[1:]:
        if run[1] < best[1] * (1 - 1e-3):
            best = run
    return best


def run_search(target: Target, n_clusters: int, rng: np.random.Generator) -> tuple[Atoms, float]:
    """Run one search that begins without atoms; return atoms and their cost."""
    single = target.astype(np.float32)
    atoms = Atoms(np.zeros(0), np.zeros((0, len(target.low))), DIRAC)
    for _ in range(2 * n_clusters):
        atoms = add_atom(single, atoms, rng)
        atoms = keep_heaviest(single, atoms, n_clusters)
        atoms, _ = refine(single, atoms, n_iterations=STEP_ITERATIONS, fit_variances=False)
    return refine(target, atoms, n_iterations=LAST_ITERATIONS, fit_variances=False)


def add_atom(target: Target, atoms: Atoms, rng: np.random.Generator) -> Atoms:
    """Add an atom at a local maximum of the correlation with the residual."""
    low, high = target.low, target.high
    residual = -residual_vector(target, atoms)
    m = target.n_features
    rotated = np.concatenate([residual[m:], -residual[:m]])
    candidates = rng.uniform(low, high, (N_CANDIDATES, len(low)))
    start = candidates[int(np.argmax(features(target, candidates, DIRAC) @ residual))]
    # In units of the correlation's curvature, gradients are of order one.
    scale = float(np.sqrt(np.mean(target.squared_norms))) or 1.0
    height = float(np.linalg.norm(residual)) * np.sqrt(m) or 1.0

    def objective(x: Floats) -> tuple[float, Floats]:
        row = features(target, x[None] / scale, DIRAC)[0]
        products = row * rotated
        gradient = (products[:m] + products[m:]) @ target.frequencies
        return -float(row @ residual) / height, -gradient.astype(np.float64) / (height * scale)

    result = minimize(
        objective,
        start * scale,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(low * scale, high * scale),
        options={"maxiter": ASCENT_ITERATIONS},
    )
    center = np.clip(result.x / scale, low, high)
    centers = np.vstack([atoms.centers, center])
    return Atoms(np.append(atoms.weights, 0.0), centers, DIRAC)


def keep_heaviest(target: Target, atoms: Atoms, n_atoms: int) -> Atoms:
    """Refit the weights; drop the lightest atoms in excess of `n_atoms`, and refit again."""
    atoms = replace(atoms, weights=best_weights(target, atoms.centers, DIRAC))
    if atoms.size <= n_atoms:
        return atoms
    # Dirac atoms all have the same norm: their weights are comparable.
    keep = np.sort(np.argsort(-atoms.weights, kind="stable")[:n_atoms])
    atoms = atoms.subset(keep)
    return replace(atoms, weights=best_weights(target, atoms.centers, DIRAC))
