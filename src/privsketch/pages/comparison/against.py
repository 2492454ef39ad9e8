"""One source against a mixture of the others: own shares of clusters, then shifts and units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.kmeans.joint import decode_joint
from privsketch.learning.problem import Atoms, Problem, problem_of
from privsketch.pages.comparison.explain import Explanation, explain, plain_fit
from privsketch.pages.comparison.observation import Observation
from privsketch.pages.comparison.reference import Features, Reference
from privsketch.sketching.merge import merge
from privsketch.sketching.sketch import Sketch

MAX_FEATURES = 1500  # that are looked at; more tell little more
_LONGEST = 3.0  # of a frequency at a scale, which one of a hundred exceeds
N_INIT = 3  # searches at most; the first one misses a cluster in one of twelve references
MAX_WORK = 4 * 10**6  # components x features x columns of all searches: some seconds
# Of alarms, by trial on honest studies (benchmarks/compare_sites.py).
EXPLAINED = 0.9  # share of what own shares leave that the changes must explain
MINOR = 0.1  # share of that which a column may have without a reason of its own
MIN_SHIFT = 1.5  # standard deviations of a column, over all records of the others
MIN_WIDTHS = 3.0  # standard deviations inside of clusters
MIN_FACTOR = 1.3  # or its inverse
_LEAST = 0.005  # share of a component that counts
_LARGE = 0.1  # share of a cluster that counts
_APART, _APART_UNITS = 3.0, 2.0  # widths between two of them, for a shift and for units


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen of one source against the others; `weights` (K,) are its own, in records."""

    place: int
    reference: Reference
    plain: float
    n_numbers: int
    weights: Floats
    explanation: Explanation | None = None
    is_alarm: bool = False

    @property
    def misfit(self) -> float:
        """What own shares leave over what noise and sampling leave."""
        return self.plain / self.n_numbers


def all_looks(
    parts: Sequence[Sketch], features: Features, seen: Sequence[Observation]
) -> tuple[dict[int, Look], list[str]]:
    """Sources against the others, the most unlike first; one that alarms is none of them after.

    Work is bounded: of large studies only the most unlike sources are looked at, or none.
    """
    design = parts[0].design
    work = n_components(design) * design.n_features * design.dim
    if work > MAX_WORK:
        return {}, ["the study is too large to look for clusters and units here"]
    order = [1] if len(parts) == 2 else by_distance(seen)
    n_looks = max(2, MAX_WORK // work)
    notes = []
    if n_looks < len(order):
        notes.append(
            f"clusters and units were looked for at the {n_looks} most unlike sources alone"
        )
    found: dict[int, Look] = {}
    odd: set[int] = set()

    def look(place: int) -> Look:
        others = [part for s, part in enumerate(parts) if s != place and s not in odd]
        return look_at(place, seen[place], learn_reference(others, features))

    for place in order[:n_looks]:
        found[place] = look(place)
        if found[place].is_alarm and len(parts) - len(odd) > 2:
            odd.add(place)
    if len(odd) > 1:  # each against those that are left
        for place in sorted(odd):
            found[place] = look(place)
    return found, notes


def kept_features(design: Design) -> npt.NDArray[np.intp]:
    """Rows of the features that are looked at: all, or evenly spaced ones."""
    m = design.n_features
    if m <= MAX_FEATURES:
        return np.arange(m)
    return np.unique(np.linspace(0, m - 1, MAX_FEATURES).astype(np.intp))


def n_components(design: Design) -> int:
    """Components of a mixture of others: twice those of the study, if it carries them."""
    most = max(1, 2 * design.n_features // (4 * (design.dim + 1)))
    return int(min(2 * design.n_components, max(design.n_components, most), 40))


def public_rng(design: Design) -> np.random.Generator:
    """Randomness that follows from the design."""
    return public_generator(design.frequencies.seed, Purpose.COMPARISON)


def _without_tail(problem: Problem, design: Design) -> Problem:
    """The frequencies that see clusters of likely widths.

    Whether sources are alike does not depend on the finest scales, and a search has less to be led
    astray by.
    """
    tail = design.frequencies.tail
    if tail is None:
        return problem
    kept = np.linalg.norm(problem.frequencies, axis=1) <= _LONGEST / tail.below
    return replace(problem, frequencies=problem.frequencies[kept], moments=problem.moments[kept])


def learn_reference(
    sketches: Sequence[Sketch], features: Features, size: int | None = None
) -> Reference:
    """A mixture of the sum of sketches; of `size` clusters if that is given."""
    total = merge(sketches, same_records=True, allow_weights=True)
    design = total.design
    wanted = n_components(design) if size is None else size
    problem = _without_tail(problem_of(total), design)
    solution = decode_joint(problem, wanted, public_rng(design), n_init=N_INIT)
    found: Atoms = solution.density if size is None else solution.atoms
    if size is None:
        found = found.subset(np.flatnonzero(found.weights > _LEAST * found.weights.sum()))
    return Reference(features, found.weights, found.centers, np.sqrt(found.axis_variances()))


def look_at(place: int, seen: Observation, reference: Reference) -> Look:
    """One source against a mixture of the others."""
    fit, plain, weights = plain_fit(seen, reference)
    n = fit.n_numbers
    if plain < n + 60 + 4 * math.sqrt(2 * n):
        return Look(place, reference, plain, n, weights)
    found = explain(seen, reference)
    alarm = alarming(found, reference)
    return Look(place, reference, plain, n, found.weights, found, alarm)


def alarming(found: Explanation, reference: Reference) -> bool:
    """Whether a shift, or units' factors of few columns, explain a source."""
    if not found.changes or found.explained < EXPLAINED:
        return False
    major = major_changes(found)
    if all(found.mistakes[place] is not None for place in major):
        factors = [found.changes[place].factor for place in major]
        if not all(factor > MIN_FACTOR or factor < 1 / MIN_FACTOR for factor in factors):
            return False
        # Factors of most columns put one cluster anywhere.
        few = 2 * len(major) <= reference.n_columns
        stated = all(is_stated(found, reference, place) for place in major)
        return few or stated or has_several(found.weights, reference, apart=_APART_UNITS)
    # A shift alone: of one column, large, and of more than one cluster, which might as well be
    # one of the source's own.
    place, change = major[0], found.changes[major[0]]
    if len(major) > 1 or change.factor != 1.0 or not has_several(found.weights, reference):
        return False
    line = reference.features.lines[place]
    spread = reference.spread(place)
    shares = reference.weights / max(float(reference.weights.sum()), 1e-300)
    width = math.sqrt(float(shares @ np.square(reference.widths[:, place])))
    least = max(MIN_SHIFT * spread, MIN_WIDTHS * width)
    return abs(change.shift) >= abs(line.value(least / 2) - line.value(-least / 2))


def major_changes(found: Explanation) -> list[int]:
    """Columns without whose change much would be unexplained."""
    whole = max(found.plain - found.left, 1e-12)
    return [place for place, gain in found.gains.items() if gain >= MINOR * whole]


def is_stated(found: Explanation, reference: Reference, place: int) -> bool:
    """Whether the schema states the unit that would have been mistaken."""
    column, mistake = reference.features.lines[place].column, found.mistakes[place]
    return column is not None and mistake is not None and mistake.is_for(column.unit)


def has_several(weights: Floats, reference: Reference, apart: float = _APART) -> bool:
    """Whether records of these weights (K,) lie in clusters that are apart."""
    shares = weights / max(float(weights.sum()), 1e-300)
    large = np.flatnonzero(shares > _LARGE)
    means, widths = reference.means[large], reference.widths[large]
    away = np.abs(means[:, None] - means[None])
    both = np.sqrt(np.square(widths)[:, None] + np.square(widths)[None])
    return bool((away > apart * both).any())


def by_distance(seen: Sequence[Observation]) -> list[int]:
    """Places of sources, those farthest from most others first."""
    means = np.array([one.mean for one in seen])
    noise = np.array(
        [2 * one.noise_variance / one.n_records**2 + 1 / one.n_records for one in seen]
    )
    apart = np.mean(np.abs(means[:, None] - means[None]) ** 2, axis=2)
    apart = apart - noise[:, None] - noise[None]
    middle = [float(np.median(np.delete(apart[s], s))) for s in range(len(seen))]
    return [int(s) for s in np.argsort(-np.array(middle))]
