"""The number of clusters of a sketch: the evidence for mixtures of all sizes, and their valleys.

One search with the largest allowed number of atoms gives mixtures of fewer and fewer. Schwarz'
criterion, which is the leading part of the marginal likelihood, says which of them has the most
evidence. Its variance is that of noise and sampling, or that of the residual where a mixture does
not explain the sketch: a misfit is noise of an unknown variance. So every atom has to improve the
fit by more than its unknowns would by chance.

Clusters are rarely Gaussian, and several atoms may describe one. `modes` says which groups of atoms
are parted by a valley, and what is parted is a cluster. Where the mixture leaves a misfit, a valley
that is worth less than all of it may be one of the mixture alone, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Indices
from privsketch.learning.kmeans.density import MAX_GROWN_UNKNOWNS, price_of_unknown, with_shapes
from privsketch.learning.kmeans.joint import run_start, whole_box
from privsketch.learning.modes import ClusterCount, Mixture, count_clusters
from privsketch.learning.problem import (
    Atoms,
    Problem,
    Target,
    cost,
    features,
    in_all_coordinates,
    n_parameters,
)
from privsketch.learning.pruning import prune
from privsketch.learning.refine import Overview, find_overview, refine
from privsketch.learning.uncertainty import MAX_RESIDUAL_EXCESS, Uncertainty, assess_fit

# A guard after each removal: python -m benchmarks constants learning REMOVAL_ITERATIONS
REMOVAL_ITERATIONS = 60


@dataclass(frozen=True)
class Candidate:
    """A mixture of a path of decreasing sizes; its cost and `expected` are squares of residuals.

    `expected` is what noise and sampling would leave if the mixture were the truth.
    """

    atoms: Atoms
    n_unknowns: int
    cost: float
    uncertainty: Uncertainty

    @property
    def expected(self) -> float:
        """The cost that noise and sampling alone leave."""
        return self.uncertainty.expected_cost

    @property
    def explains(self) -> bool:
        """Whether noise and sampling account for the residual."""
        return self.uncertainty.excess(self.cost) <= MAX_RESIDUAL_EXCESS

    @property
    def misfit(self) -> float:
        """The cost beyond what noise and sampling leave."""
        return 0.0 if self.explains else self.cost - self.expected


def count_in_waves(problem: Problem, max_clusters: int, rng: np.random.Generator) -> ClusterCount:
    """Return the number of clusters of a sketch, at most `max_clusters`."""
    with one_thread():
        overview = find_overview(problem, rng)
        candidates = _path(problem, overview, overview, max_clusters, rng)
        if not any(candidate.explains for candidate in candidates):
            # Either search may miss a cluster.
            box = whole_box(overview, problem.target())
            candidates += _path(problem, overview, box, max_clusters, rng)
        target = problem.target(overview.weight).astype(np.float32)
        price = price_of_unknown(target)
        best, variance = most_evident(candidates, 2 * target.n_features, price)
        atoms = best.atoms
        worth = best.n_unknowns / atoms.size * price * variance  # of an atom, as a cost

        def loss(change: Atoms) -> float:
            rows = features(target, change.centers, change.variances, change.shares)
            moved = change.weights @ rows
            return float(moved @ moved) / worth

        def loss_of_one(members: Indices, mean: Floats, covariance: Floats) -> float:
            several = atoms.subset(members)
            rows = features(target, several.centers, several.variances)
            one = gaussian_moments(target, mean, covariance) * several.weights.sum()
            change = one - several.weights @ rows
            # What several atoms cost more in unknowns than one of any direction, in atoms.
            dim = len(mean)
            saved = several.size - (1 + dim + dim * (dim + 1) / 2) * price * variance / worth
            return float(change @ change) / worth + 1 - saved

        whole = in_all_coordinates(atoms, problem.layout)
        merges = loss_of_one if problem.layout is None else None
        mixture = Mixture(atoms, whole.centers, whole.axis_variances(), loss, merges)
        number = count_clusters(mixture, best.misfit / worth)
    return number


def most_evident(
    candidates: Sequence[Candidate], n_values: int, price: float
) -> tuple[Candidate, float]:
    """Return the candidate with the most evidence, and the variance of its residuals.

    An unknown has to gain `price` in twice the log likelihood of so many values.

    Atoms of one width are candidates where they explain the sketch: where they do not, their width
    is a compromise, and many narrow ones stand for one wide cluster.
    """
    fits = [each for each in candidates if each.explains or not _is_plain(each.atoms)]
    fits = [each for each in fits if each.n_unknowns <= MAX_GROWN_UNKNOWNS * n_values] or fits[:1]
    free = np.array([max(n_values - each.n_unknowns, 1) for each in fits])
    costs = np.array([each.cost for each in fits])
    floor = float(np.min(np.array([each.expected for each in fits]) / free))
    variances = np.maximum(np.maximum(costs / free, floor), np.finfo(float).tiny)
    penalties = price * np.array([each.n_unknowns for each in fits])
    best = int(np.argmin(n_values * np.log(variances) + costs / variances + penalties))
    return fits[best], float(variances[best])


def gaussian_moments(target: Target, mean: Floats, covariance: Floats) -> Floats:
    """Return the moments of one Gaussian of any covariance, (2 m,)."""
    waves = target.frequencies.astype(np.float64)
    envelope = np.exp(-np.einsum("jd,de,je->j", waves, covariance, waves, optimize=True) / 2)
    phases = waves @ mean
    return np.concatenate([envelope * np.cos(phases), envelope * np.sin(phases)])


def _is_plain(atoms: Atoms) -> bool:
    return atoms.shared and atoms.size > 1


def _path(
    problem: Problem,
    overview: Overview,
    start: Overview,
    max_clusters: int,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Return the candidates of one search, the smallest first."""
    unit = overview.weight
    target = problem.target(unit).astype(np.float32)

    def candidate(atoms: Atoms) -> Candidate:
        uncertainty = assess_fit(problem, atoms, unit, rng)
        return Candidate(atoms, n_parameters(target, atoms), cost(target, atoms), uncertainty)

    atoms, _ = run_start(target, start, max_clusters, rng)
    candidates = []
    for size in range(max_clusters, 0, -1):
        if size < atoms.size:
            atoms = prune(target, atoms, size)
            atoms, _ = refine(target, atoms, n_iterations=REMOVAL_ITERATIONS)
        candidates.append(candidate(atoms))
        if not candidates[-1].explains:
            candidates.append(candidate(with_shapes(target, atoms)))
    return candidates[::-1]
