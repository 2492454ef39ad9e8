"""Joint descent in the weights, centres and variances of all atoms."""

from dataclasses import replace

import numpy as np
from scipy.optimize import Bounds, minimize

from privsketch._typing import Floats
from privsketch.learning.atoms import Atoms, Target
from privsketch.learning.evaluation import Evaluator

# In units of the target, where all weights together are about one. Atoms whose envelope
# damps them to nothing would otherwise grow without limit.
LARGEST_WEIGHT = 1e6


def refine(
    target: Target,
    atoms: Atoms,
    low: Floats,
    high: Floats,
    *,
    n_iterations: int,
    fit_variances: bool = True,
) -> tuple[Atoms, float, int]:
    """Descend jointly in all weights, centres and variances (L-BFGS-B).

    Returns the atoms, their cost and the number of evaluations. Weights and
    variances stay non-negative, centres in the box. Variables are scaled by the
    diagonal of the Gauss-Newton matrix, without which the weights, centres and
    variances differ by orders of magnitude in curvature.
    """
    n_atoms, dim = atoms.centers.shape
    scales = _curvature_scales(target, atoms)
    parts = [atoms.weights, atoms.centers.ravel()]
    lower = [np.zeros(n_atoms), np.tile(low, n_atoms)]
    upper = [np.full(n_atoms, LARGEST_WEIGHT), np.tile(high, n_atoms)]
    if fit_variances:
        # No distribution on an interval has a larger variance than this.
        largest = (high - low) ** 2 / 4
        if atoms.variances.shape[1] == 1:
            largest = np.max(largest, keepdims=True)
        parts.append(atoms.variances.ravel())
        lower.append(np.zeros(atoms.variances.size))
        upper.append(np.tile(largest, len(atoms.variances)))
    scale = np.concatenate([s.ravel() for s in scales[: len(parts)]])

    def unpack(x: Floats) -> Atoms:
        plain = x / scale
        return Atoms(
            plain[:n_atoms],
            plain[n_atoms : n_atoms * (dim + 1)].reshape(n_atoms, dim),
            plain[n_atoms * (dim + 1) :].reshape(atoms.variances.shape)
            if fit_variances
            else atoms.variances,
        )

    evaluate = Evaluator(target, atoms)

    def objective(x: Floats) -> tuple[float, Floats]:
        value, gradient = evaluate(unpack(x))
        pieces = [gradient.weights, gradient.centers.ravel()]
        if fit_variances:
            pieces.append(gradient.variances.ravel())
        return value, np.concatenate(pieces) / scale

    bounds = Bounds(np.concatenate(lower) * scale, np.concatenate(upper) * scale)
    start = np.clip(np.concatenate(parts) * scale, bounds.lb, bounds.ub)
    result = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": n_iterations, "maxcor": 10, "ftol": 1e-15, "gtol": 1e-10},
    )
    found = unpack(np.asarray(result.x, dtype=np.float64))
    # Dividing by the scale may leave the box by one rounding.
    found = replace(found, centers=np.clip(found.centers, low, high))
    return found, float(result.fun), int(result.nfev)


def _curvature_scales(target: Target, atoms: Atoms) -> tuple[Floats, Floats, Floats]:
    """Square roots of the Gauss-Newton diagonal for weights, centres, variances."""
    n_atoms, dim = atoms.centers.shape
    squares = target.squares.astype(np.float64)
    exponents = target.exponents(atoms.variances).astype(np.float64)
    envelope = np.exp(atoms.variances @ exponents.T / -2)
    energy = (target.taper.astype(np.float64) * envelope) ** 2  # (1 or size, m)
    by_weight = np.sqrt(energy.sum(axis=1))
    by_center = np.sqrt(energy @ squares.sum(axis=1) / dim)
    by_variance = np.sqrt(energy @ exponents**2) / 2
    # An atom of next to no weight would have next to no curvature: floor it.
    floor = max(0.1 * float(np.mean(atoms.weights)), 1e-8)
    weights = np.maximum(atoms.weights, floor)
    total = np.sqrt(np.sum(weights**2, keepdims=True)) if atoms.shared else weights
    tiny = np.finfo(float).tiny ** 0.25
    return (
        np.maximum(np.broadcast_to(by_weight, (n_atoms,)), tiny),
        np.repeat(np.maximum(weights * by_center, tiny)[:, None], dim, axis=1),
        np.maximum(total[:, None] * by_variance, tiny),
    )
