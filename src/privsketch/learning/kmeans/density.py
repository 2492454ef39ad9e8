"""How rich a mixture a sketch supports.

Records need not come in n_clusters round clusters of one width: clusters differ in
shape, or there are more of them than centres asked for. Then no n_clusters atoms of
one width explain the sketch, and their places are a compromise of no meaning to
k-means. A richer mixture that does explain it is a density whose k-means centres can
be computed (`lloyd.py`). This file fits richer and richer mixtures and stops where
further parameters no longer pay.
"""

from dataclasses import replace

import numpy as np

from privsketch._typing import Floats
from privsketch.learning.atoms import Atoms, Target, cost
from privsketch.learning.kmeans.pruning import prune
from privsketch.learning.refine import refine

SIZES = (4.0, 3.0, 2.0, 1.5)  # atoms per cluster of the richer mixtures
# Unknowns per number of the sketch. The misfit of clusters of a wrong shape is no white noise, and
# more unknowns follow it away from the records: on correlated clusters RSSE rose up to 1.07.
RICHEST = 0.2
SHAPE_ITERATIONS = 100
SIZE_ITERATIONS = 60


def choose_density(
    target: Target,
    atoms: Atoms,
    particles: Atoms,
    expected: float,
    low: Floats,
    high: Floats,
) -> tuple[Atoms, Atoms | None, int]:
    """The best mixture of the size of `atoms`, the best of any size, and evaluations.

    `atoms` are one for each cluster, `particles` a large surplus to be pruned, both with
    one width for all; `expected` is the cost that noise and sampling alone would leave.
    The second mixture is None where the first is the best of all.
    """
    own, n_evaluations = with_own_envelopes(target, atoms, low, high)
    same_size = [atoms, *own]
    richer: list[Atoms] = []
    rich, _, n_more = refine(target, particles, low, high, n_iterations=SHAPE_ITERATIONS)
    n_evaluations += n_more
    for size in SIZES:
        n_atoms = int(size * atoms.size)
        if not atoms.size < n_atoms <= rich.size:
            continue
        rich = prune(target, rich, n_atoms)
        rich, _, n_more = refine(target, rich, low, high, n_iterations=SIZE_ITERATIONS)
        own, n_own = with_own_envelopes(target, rich, low, high)
        richer += [rich, *own]
        n_evaluations += n_more + n_own

    def score(mixture: Atoms) -> float:
        return information_criterion(target, mixture, expected)

    best_same = min(same_size, key=score)
    best = min([best_same, *richer], key=score)
    return best_same, None if best is best_same else best, n_evaluations


def with_own_envelopes(
    target: Target, atoms: Atoms, low: Floats, high: Floats
) -> tuple[list[Atoms], int]:
    """The atoms with a width each, and with a width along every axis each."""
    start = replace(atoms, variances=atoms.axis_variances().mean(axis=1, keepdims=True))
    round_ones, _, n_round = refine(target, start, low, high, n_iterations=SHAPE_ITERATIONS)
    shaped, n_shaped = with_shapes(target, round_ones, low, high)
    return [round_ones, shaped], n_round + n_shaped


def with_shapes(target: Target, atoms: Atoms, low: Floats, high: Floats) -> tuple[Atoms, int]:
    """Give every atom a width of its own along every axis and refine."""
    start = replace(atoms, variances=atoms.axis_variances())
    shaped, _, n_evaluations = refine(target, start, low, high, n_iterations=SHAPE_ITERATIONS)
    return shaped, n_evaluations


def information_criterion(target: Target, atoms: Atoms, expected: float) -> float:
    """Schwarz' criterion with unknown variance, floored by the noise; small is good.

    `2m log(variance) + p log(2m)` for p parameters and 2m real moments. What a mixture
    leaves unexplained is mostly its misfit, so it sets the scale of what is worth
    explaining: the variance is cost / (2m - p). Adding the expected cost takes the
    profit out of fitting noise.
    """
    n_values = 2 * target.n_features
    n_parameters = atoms.weights.size + atoms.centers.size + atoms.variances.size
    if n_parameters > RICHEST * n_values:
        return float("inf")
    misfit = cost(target, atoms) / (1 - n_parameters / n_values)
    variance = max(misfit + expected, np.finfo(float).tiny)
    return float(n_values * np.log(variance) + n_parameters * np.log(n_values))
