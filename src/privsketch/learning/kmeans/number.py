"""How many clusters a sketch speaks of.

One search with as many atoms as are allowed, then fewer and fewer: the cheapest atom is
deleted or merged, the others refined. A cluster that the records have and the atoms lack
leaves a residual far above what noise and sampling explain: up to the right number every
further atom improves the fit by a large factor. One too many improves nothing, or a little
where clusters are no Gaussians. Where noise is most of the residual, no atom improves it by a large
factor; what it has beyond noise falls by one nevertheless. All from the same sketch, hence free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privsketch._base.threads import one_thread
from privsketch.learning.kmeans.joint import EXPLAINED, run_start, whole_box, with_shapes
from privsketch.learning.kmeans.pruning import prune
from privsketch.learning.problem import Atoms, Problem, Target, cost, make_target
from privsketch.learning.refine import Overview, find_overview, refine
from privsketch.learning.uncertainty import assess_fit

SIZE_ITERATIONS = 60  # after every atom that goes; by trial
# Improvement by one more atom that speaks for a cluster of its own: a factor, and on the
# scale of logarithms a share of the largest one. By trial; benchmarks/trust.py has what they reach.
ELBOW = 2.0
SHARE_OF_LARGEST = 0.3
LEAST_BEYOND = 0.1  # of a residual beyond its expectation: less says nothing about one more atom


@dataclass(frozen=True)
class Candidate:
    """A number of atoms and how well they explain the sketch.

    `misfit` is the residual over its expectation; `plain` atoms have one width for all.
    """

    n_clusters: int
    misfit: float
    explains: bool
    plain: bool


def choose_size(problem: Problem, max_clusters: int, rng: np.random.Generator) -> int:
    """The number of clusters, at most `max_clusters`."""
    return best_size(compare_sizes(problem, max_clusters, rng))


def best_size(candidates: Sequence[Candidate]) -> int:
    """The last number, up to the least one that explains the sketch, that improves it much."""
    explaining = [place for place, candidate in enumerate(candidates) if candidate.explains]
    last = explaining[0] if explaining else len(candidates) - 1
    if candidates[last].plain and explaining:
        return candidates[last].n_clusters
    misfits = np.array([candidate.misfit for candidate in candidates[: last + 1]])
    for residuals in (misfits, np.maximum(misfits - 1, LEAST_BEYOND)):
        falls = np.log(residuals[:-1] / residuals[1:])
        if len(falls) and falls.max() > np.log(ELBOW):
            enough = max(np.log(ELBOW), SHARE_OF_LARGEST * falls.max())
            return candidates[int(np.flatnonzero(falls >= enough)[-1]) + 1].n_clusters
    return candidates[last].n_clusters if explaining else 1


def compare_sizes(
    problem: Problem, max_clusters: int, rng: np.random.Generator
) -> tuple[Candidate, ...]:
    """Candidates from 1 to `max_clusters`."""
    with one_thread():
        overview = find_overview(problem, rng)
        found = _path(problem, overview.weight, overview, max_clusters, rng)
        if not any(candidate.explains for candidate in found):
            box = whole_box(overview, problem.low, problem.high)
            again = _path(problem, overview.weight, box, max_clusters, rng)
            # Either search may have lost a cluster; for every size the better one counts.
            pairs = zip(found, again, strict=True)
            found = [min(pair, key=lambda candidate: candidate.misfit) for pair in pairs]
    return tuple(found)


def _path(
    problem: Problem, unit: float, start: Overview, max_clusters: int, rng: np.random.Generator
) -> list[Candidate]:
    """Candidates of one search, the smallest first."""
    low, high = problem.low, problem.high
    target = make_target(problem.frequencies, problem.moments / unit).astype(np.float32)
    atoms, _ = run_start(target, start, max_clusters, low, high, rng)
    found = []
    for size in range(max_clusters, 0, -1):
        if size < atoms.size:
            atoms = prune(target, atoms, size)
            atoms, _ = refine(target, atoms, low, high, n_iterations=SIZE_ITERATIONS)
        candidate = _candidate(problem, target, unit, atoms, rng)
        if not candidate.explains:
            shaped = with_shapes(target, atoms, low, high)
            with_own_shapes = _candidate(problem, target, unit, shaped, rng)
            candidate = min(candidate, with_own_shapes, key=lambda one: one.misfit)
        found.append(candidate)
    return found[::-1]


def _candidate(
    problem: Problem, target: Target, unit: float, atoms: Atoms, rng: np.random.Generator
) -> Candidate:
    told = assess_fit(problem, atoms, unit, rng)
    value = cost(target, atoms)
    return Candidate(
        n_clusters=atoms.size,
        misfit=value / max(told.expected_cost, np.finfo(float).tiny),
        explains=told.excess(value) <= EXPLAINED,
        plain=atoms.variances.size == 1,
    )
