"""`compare`: sketches of one study beside each other.

Every source is held against a mixture learned from the others. Sources differ in their shares of
clusters; beyond that, a shift or a unit's factor of a few columns may explain a source, which is an
alarm, or nothing does, which is information (docs/comparing.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from privsketch._parallel import one_thread
from privsketch._typing import Floats
from privsketch.comparison.explain import Explanation, explain, plain_fit
from privsketch.comparison.observation import Fit, Observation, observe
from privsketch.comparison.reference import Features, Reference
from privsketch.design.recipe import Design
from privsketch.errors import MergeError, ParameterError
from privsketch.learning.kmeans.joint import decode_joint
from privsketch.learning.problem import problem_of
from privsketch.sketching.merge import merge
from privsketch.sketching.sketch import Sketch

MAX_FEATURES = 1500  # that are looked at; more tell little more
MAX_WORK = 3 * 10**6  # components x features x columns of one search: a few seconds
_PURPOSE_COMPARISON = 5  # streams of the public seed: frequencies 0 and 1, learners 2 and 3
# Of alarms, by trial on honest studies (benchmarks/compare_sites.py).
EXPLAINED = 0.9  # share of what own shares leave that the changes must explain
MINOR = 0.1  # share of that which a column may have without a reason of its own
MIN_SHIFT = 1.5  # standard deviations of a column, over all records of the others
MIN_WIDTHS = 3.0  # standard deviations inside of clusters
MIN_FACTOR = 1.3  # or its inverse


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen of one source against the others."""

    place: int
    seen: Observation
    reference: Reference
    plain: float
    explanation: Explanation | None
    is_alarm: bool
    weights: Floats
    n_numbers: int


def kept_features(design: Design) -> npt.NDArray[np.intp]:
    """Rows of the features that are looked at: all, or evenly spaced ones."""
    m = design.n_features
    if m <= MAX_FEATURES:
        return np.arange(m)
    return np.unique(np.linspace(0, m - 1, MAX_FEATURES).astype(np.intp))


def n_components(design: Design) -> int:
    """Components of a mixture that describes others: twice those of the study, if it carries them."""
    most = max(1, 2 * design.n_features // (4 * (design.dim + 1)))
    return int(min(2 * design.n_components, max(design.n_components, most), 40))


def learn_reference(sketches: list[Sketch], features: Features) -> Reference:
    """A mixture of the sum of sketches."""
    total = merge(sketches, same_records=True)
    design = total.design
    key = np.array([design.frequencies.seed, _PURPOSE_COMPARISON], np.uint64)
    rng = np.random.Generator(np.random.Philox(key=key))
    density = decode_joint(problem_of(total), n_components(design), rng, n_init=1).density
    density = density.subset(np.flatnonzero(density.weights > 0.005 * density.weights.sum()))
    widths = np.sqrt(density.axis_variances())
    return Reference(features, density.weights, density.centers, widths)


def look_at(place: int, seen: Observation, reference: Reference) -> Look:
    """One source against a mixture of the others."""
    fit, plain, weights = plain_fit(seen, reference)
    n = fit.n_numbers
    if plain < n + 60 + 4 * math.sqrt(2 * n):
        return Look(place, seen, reference, plain, None, False, weights, n)
    found = explain(seen, reference)
    return Look(
        place, seen, reference, plain, found, alarming(found, reference), found.weights, n
    )


def alarming(found: Explanation, reference: Reference) -> bool:
    """Whether a shift, or units' factors of few columns, explain a source."""
    if not found.changes or found.explained < EXPLAINED:
        return False
    whole = max(found.plain - found.left, 1e-12)
    major = [place for place in found.changes if found.gains[place] >= MINOR * whole]
    if all(found.mistakes[place] is not None for place in major):
        factors = [found.changes[place].factor for place in major]
        if not all(factor > MIN_FACTOR or factor < 1 / MIN_FACTOR for factor in factors):
            return False
        # Factors of most columns put one cluster anywhere.
        few = 2 * len(major) <= reference.n_columns
        return few or has_several(found.weights, reference)
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


def has_several(weights: Floats, reference: Reference) -> bool:
    """Whether records of these weights (K,) lie in clusters that are apart."""
    shares = weights / max(float(weights.sum()), 1e-300)
    large = np.flatnonzero(shares > 0.1)
    means, widths = reference.means[large], reference.widths[large]
    apart = np.abs(means[:, None] - means[None])
    both = np.sqrt(np.square(widths)[:, None] + np.square(widths)[None])
    return bool((apart > 3 * both).any())


def looks(sketches: list[Sketch]) -> list[Look]:
    design = sketches[0].design
    rows = kept_features(design)
    features = Features(design, rows)
    seen = [observe(sketch, rows) for sketch in sketches]
    found: dict[int, Look] = {}
    odd: set[int] = set()
    with one_thread():
        for place in by_distance(seen):
            others = [s for t, s in enumerate(sketches) if t != place and t not in odd]
            reference = learn_reference(others, features)
            found[place] = look_at(place, seen[place], reference)
            if found[place].is_alarm and len(others) > 1:
                odd.add(place)
    return [found[place] for place in sorted(found)]


def by_distance(seen: list[Observation]) -> list[int]:
    """Places of sources, those farthest from most others first."""
    means = np.array([one.mean for one in seen])
    noise = np.array([2 * one.noise_variance / one.n_records**2 + 1 / one.n_records for one in seen])
    apart = np.mean(np.abs(means[:, None] - means[None]) ** 2, axis=2)
    apart = apart - noise[:, None] - noise[None]
    middle = [
        float(np.median(np.delete(apart[s], s))) for s in range(len(seen))
    ]
    return [int(s) for s in np.argsort(-np.array(middle))]
