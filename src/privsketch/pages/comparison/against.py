"""Fits of each source by a mixture of the others: its shares of clusters, then shifts and units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.features.stream import Purpose, public_generator
from privsketch.learning.kmeans.joint import decode_joint
from privsketch.learning.problem import Atoms, Problem, problem_of
from privsketch.noise.mechanism import saturating_add
from privsketch.pages.comparison.explain import Explanation, explain, fit_shares
from privsketch.pages.comparison.observation import Fit, Observation, as_complex
from privsketch.pages.comparison.reference import Change, Features, Reference
from privsketch.pages.comparison.result import MAX_EXPLAINED_MISFIT, ClusterShares
from privsketch.sketching.sketch import Sketch

MAX_COMPARED_FEATURES = 1500  # features that are compared; more add little
_MAX_NORM = 3.0  # of a frequency relative to its scale; 1 % are longer
MAX_OWN_REFERENCES = 8  # sources that have a mixture of all others
MAX_SEARCHED = 16  # sources that are searched for mistakes
N_GROUPS = 6  # groups of sources that share a mixture of all others
N_INIT = 3  # searches for a mixture at most; one alone misses a cluster in 1 of 12 references
MAX_WORK = 4 * 10**6  # components x features x columns of all fits: some seconds
# Conditions of alarms, chosen on honest studies (benchmarks/compare_sites.py).
MIN_EXPLAINED = 0.9  # share of the excess misfit that the changes must explain
MIN_MAJOR_PART = 0.1  # share of the explained misfit from which a column's change is major
MIN_SHIFT = 1.5  # smallest shift, in standard deviations of the column over all other records
MIN_WIDTHS = 3.0  # smallest shift, in standard deviations inside clusters
MIN_FACTOR = 1.3  # smallest factor; its inverse is the largest below 1
MAX_CONSTANT_SPREAD = 0.07  # of squared moduli over frequencies, relative to their mean
_MIN_COMPONENT = 0.005  # smallest share of a component of a reference
_MIN_CLUSTER = 0.1  # share of records from which a component counts as a cluster of its own
_MIN_GAP, _MIN_GAP_UNITS = 3.0, 2.0  # widths between two clusters, for a shift and for units
# Clusters that only one source has.
MAX_FALSE_ALONE = 1e-3  # probability that noise makes any cluster look like one source's alone
MIN_ALONE_SHARE = 0.03  # smallest share of such a cluster
_ABSENT = 2.5  # standard errors up to which the share of another source may be zero
_MAX_RATIO = 0.25  # of the largest share; other sources' shares are below that beyond doubt


@dataclass(frozen=True, eq=False)
class SourceFit:
    """Fit of one source by a mixture of the others; `weights` (K,) are in records."""

    reference: Reference
    chi2: float
    n_numbers: int
    weights: Floats
    explanation: Explanation | None = None
    has_mistake: bool = False  # changes of few columns explain the source
    is_constant: bool = False  # all of its records are nearly the same

    @property
    def is_alarm(self) -> bool:
        """Whether the source looks wrong."""
        return self.has_mistake or self.is_constant

    @property
    def misfit(self) -> float:
        """Chi-square of the fit without changes relative to its expectation."""
        return self.chi2 / self.n_numbers

    @property
    def is_close(self) -> bool:
        """Whether noise and sampling explain the fit, so that there is nothing to search for."""
        return self.chi2 < self.n_numbers + 60 + 4 * math.sqrt(2 * self.n_numbers)


def fit_sources(
    parts: Sequence[Sketch], features: Features, observations: Sequence[Observation]
) -> tuple[dict[int, SourceFit], int | None, list[str]]:
    """Fit sources by mixtures of the others, and return notes on what was left out.

    The number between them is that of the source without which the others fit each other, if only
    one is like that.

    Each source has a mixture of all others. In larger studies groups of sources share one, and only
    those that it fits worst have one of their own. A source with an alarm is left out of later
    mixtures. Work is bounded: in large studies only the most different sources are fitted, or none.
    """
    design = parts[0].design
    work = n_components(design) * design.n_features * design.dim
    if work > MAX_WORK:
        return {}, None, ["the study is too large to search for clusters and units here"]
    order = [1] if len(parts) == 2 else by_distance(observations)
    n_fits = max(2, MAX_WORK // work)
    notes = []
    if n_fits < len(order):
        notes.append(
            f"clusters and units were searched at the {n_fits} most different sources only"
        )
    order = order[:n_fits]
    search = _Search(parts, features, observations)
    if len(order) > MAX_OWN_REFERENCES:
        order = search.screen(order)
    n_far = sum(
        1 for source in order if source not in search.fits or not search.fits[source].is_close
    )
    for rank, source in enumerate(order[:MAX_SEARCHED]):
        search.fit(source, has_own=rank < MAX_OWN_REFERENCES)
    if n_far > MAX_SEARCHED:
        notes.append(f"mistakes were searched at the {MAX_SEARCHED} sources that fit worst only")
    search.fit_alarms_again()
    odd = search.fit_without_odd()
    return search.fits, odd, notes


class _Search:
    """Fits of the sources of one study, and the mixtures that they share."""

    def __init__(
        self, parts: Sequence[Sketch], features: Features, observations: Sequence[Observation]
    ) -> None:
        self.parts, self.features, self.observations = parts, features, observations
        self.fits: dict[int, SourceFit] = {}
        self.alarms: set[int] = set()
        self._references: dict[frozenset[int], Reference] = {}
        self._groups: dict[int, frozenset[int]] = {}

    def reference_without(self, left_out: Iterable[int]) -> Reference:
        """Return the mixture of all sources but these."""
        key = frozenset(left_out)
        if key not in self._references:
            others = [part for s, part in enumerate(self.parts) if s not in key]
            self._references[key] = learn_reference(others, self.features)
        return self._references[key]

    def screen(self, order: Sequence[int]) -> list[int]:
        """Fit sources by mixtures that groups share, and return them, the worst fit first.

        Neighbours in the order are in different groups: sources that differ in the same way stay in
        the mixtures of each other.
        """
        for start in range(N_GROUPS):
            group = frozenset(order[start::N_GROUPS])
            reference = self.reference_without(group)
            for source in group:
                self._groups[source] = group
                fit, chi2, weights = fit_shares(self.observations[source], reference)
                self.fits[source] = SourceFit(reference, chi2, fit.n_numbers, weights)
        return sorted(order, key=lambda source: -self.fits[source].misfit)

    def fit(self, source: int, *, has_own: bool) -> None:
        """Fit a source, unless the mixture of its group fits."""
        if source in self.fits and self.fits[source].is_close:
            return
        group = {source} if has_own else self._groups[source]
        left_out = self.alarms | group
        if len(self.parts) - len(left_out) < 1:
            left_out = {source}
        self.fits[source] = fit_source(self.observations[source], self.reference_without(left_out))
        if self.fits[source].is_alarm and len(self.parts) - len(self.alarms) > 2:
            self.alarms.add(source)

    def fit_alarms_again(self) -> None:
        """Fit the sources with an alarm by the mixture of those without one."""
        if len(self.alarms) > 1:
            for source in sorted(self.alarms):
                reference = self.reference_without(self.alarms)
                self.fits[source] = fit_source(self.observations[source], reference)

    def fit_without_odd(self) -> int | None:
        """Return the source without which all others fit, if there is one, and fit them anew.

        A source that no shares explain spoils the mixtures of all others. Only fits without an
        alarm change, and none gets one.
        """
        unclear = [s for s, fit in self.fits.items() if not (fit.is_alarm or fit.is_close)]
        unclear.sort(key=lambda source: -self.fits[source].misfit)
        unclear = unclear[: MAX_OWN_REFERENCES + 1]
        n_compared = len(self.parts) - len(self.alarms)
        if n_compared < 3 or not unclear or _is_explained(self.fits[unclear[0]]):
            return None
        odd, *others = unclear
        again = {
            source: fit_source(
                self.observations[source], self.reference_without(self.alarms | {odd, source})
            )
            for source in others
        }
        fits = {**self.fits, **again}
        if any(fit.is_alarm for fit in again.values()):
            return None
        if not all(_is_explained(fit) for source, fit in fits.items() if source != odd):
            return None
        self.fits = fits
        return odd


def _is_explained(fit: SourceFit) -> bool:
    """Return whether an alarm, or else other shares of the same clusters, explains a source."""
    return fit.is_alarm or fit.misfit <= MAX_EXPLAINED_MISFIT


def compared_features(design: Design) -> npt.NDArray[np.intp]:
    """Return rows of the features that are compared: all, or evenly spaced ones."""
    m = design.n_features
    if m <= MAX_COMPARED_FEATURES:
        return np.arange(m)
    return np.unique(np.linspace(0, m - 1, MAX_COMPARED_FEATURES).astype(np.intp))


def n_components(design: Design) -> int:
    """Return the size of a reference: twice that of the study, if a sketch allows it."""
    allowed = max(1, 2 * design.n_features // (4 * (design.dim + 1)))
    return int(min(2 * design.n_components, max(design.n_components, allowed), 40))


def public_rng(design: Design) -> np.random.Generator:
    """Return a generator whose seed follows from the design."""
    return public_generator(design.frequencies.seed, Purpose.COMPARISON)


def _without_tail(problem: Problem, design: Design) -> Problem:
    """Return the problem at the frequencies for clusters of likely widths.

    The finest scales do not matter for the comparison, and they mislead the search.
    """
    tail = design.frequencies.tail
    if tail is None:
        return problem
    is_short = np.linalg.norm(problem.frequencies, axis=1) <= _MAX_NORM / tail.below
    return replace(
        problem, frequencies=problem.frequencies[is_short], moments=problem.moments[is_short]
    )


def total_of(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sum of sketches that `add_sketches` accepts, without its checks and receipt."""
    first = sketches[0]
    counts = [part.exact_count for part in sketches if part.exact_count is not None]
    return replace(
        first,
        values=reduce(saturating_add, [part.values for part in sketches]),
        ids=tuple(name for part in sketches for name in part.ids),
        sources=tuple(name for part in sketches for name in part.sources),
        exact_count=None if first.exact_count is None else sum(counts),
        weights=tuple(weight for part in sketches for weight in part.weights),
        shared=tuple(total for part in sketches for total in part.shared),
        verdict=None,
    )


def learn_reference(
    sketches: Sequence[Sketch], features: Features, size: int | None = None
) -> Reference:
    """Learn a mixture from the sum of sketches; with `size`, of that many clusters."""
    total = total_of(sketches)
    design = total.design
    n_clusters = n_components(design) if size is None else size
    problem = _without_tail(problem_of(total), design)
    solution = decode_joint(problem, n_clusters, public_rng(design), n_init=N_INIT)
    atoms: Atoms = solution.density if size is None else solution.atoms
    if size is None:
        # Where nobody has records all weights are 0, and all components stay.
        atoms = atoms.subset(np.flatnonzero(atoms.weights >= _MIN_COMPONENT * atoms.weights.sum()))
    return Reference(features, atoms)


def fit_source(observation: Observation, reference: Reference) -> SourceFit:
    """Fit one source by a mixture of the others, and search for changes if the misfit is large."""
    fit, chi2, weights = fit_shares(observation, reference)
    close = SourceFit(reference, chi2, fit.n_numbers, weights)
    if close.is_close:
        return close
    explanation = explain(observation, reference)
    return replace(
        close,
        weights=explanation.weights,
        explanation=explanation,
        has_mistake=_is_alarm(explanation, reference),
        is_constant=_is_constant(observation, reference),
    )


def _is_constant(observation: Observation, reference: Reference) -> bool:
    """Return whether the records of a source are nearly the same, and those of others are not."""
    # The modulus of a constant source is that of one record at every frequency. The number of
    # records is noisy, so moduli are compared with each other.
    moduli = np.abs(observation.mean) ** 2
    noise = observation.noise_variance / observation.n_records**2
    mean = float(moduli.mean()) - 2 * noise
    by_noise = 4 * noise * abs(mean) + 4 * noise**2
    variance = float(moduli.var()) - by_noise + 4 * math.sqrt(2 / len(moduli)) * by_noise
    usual = np.abs(as_complex(reference.shares @ reference.vectors({})[0])) ** 2
    return (
        mean > observation.squared_modulus / 2
        and variance < (MAX_CONSTANT_SPREAD * mean) ** 2
        and float(usual.std()) > 3 * MAX_CONSTANT_SPREAD
    )


def _is_alarm(explanation: Explanation, reference: Reference) -> bool:
    """Return whether a shift, or factors of units in few columns, explain a source."""
    if not explanation.changes or explanation.explained < MIN_EXPLAINED:
        return False
    major = major_changes(explanation)
    if not all(change.is_linear for change in explanation.changes.values()):
        return _has_clusters(explanation.weights, reference, min_gap=_MIN_GAP_UNITS)
    if all(explanation.mistakes[coordinate] is not None for coordinate in major):
        factors = [explanation.changes[coordinate].factor for coordinate in major]
        if not all(factor > MIN_FACTOR or factor < 1 / MIN_FACTOR for factor in factors):
            return False
        # Factors of most columns can move a single cluster anywhere.
        are_few = 2 * len(major) <= reference.n_columns
        are_stated = all(_is_stated(explanation, reference, coordinate) for coordinate in major)
        return (
            are_few
            or are_stated
            or _has_clusters(explanation.weights, reference, min_gap=_MIN_GAP_UNITS)
        )
    # A shift must be large, of one column, and of more than one cluster: a single shifted cluster
    # may as well be a cluster of its own.
    coordinate, change = major[0], explanation.changes[major[0]]
    if len(major) > 1 or change.factor != 1.0 or not _has_clusters(explanation.weights, reference):
        return False
    line = reference.features.lines[coordinate]
    spread = reference.spread(coordinate)
    width = math.sqrt(float(reference.shares @ np.square(reference.widths[:, coordinate])))
    least = max(MIN_SHIFT * spread, MIN_WIDTHS * width)
    return abs(change.shift) >= abs(line.value(least / 2) - line.value(-least / 2))


def major_changes(explanation: Explanation) -> list[int]:
    """Return coordinates whose change explains a large part."""
    total = max(explanation.baseline_chi2 - explanation.chi2, 1e-12)
    return [
        coordinate
        for coordinate, gain in explanation.gains.items()
        if gain >= MIN_MAJOR_PART * total
    ]


def _is_stated(explanation: Explanation, reference: Reference, coordinate: int) -> bool:
    """Return whether the schema states the unit that another one would have replaced."""
    column, mistake = reference.features.lines[coordinate].column, explanation.mistakes[coordinate]
    return column is not None and mistake is not None and mistake.is_for(column.unit)


def _has_clusters(weights: Floats, reference: Reference, min_gap: float = _MIN_GAP) -> bool:
    """Return whether records of these weights (K,) lie in clusters with a gap between them."""
    shares = weights / max(float(weights.sum()), 1e-300)
    large = np.flatnonzero(shares > _MIN_CLUSTER)
    means, widths = reference.means[large], reference.widths[large]
    distances = np.abs(means[:, None] - means[None])
    joint_widths = np.sqrt(np.square(widths)[:, None] + np.square(widths)[None])
    return bool((distances > min_gap * joint_widths).any())


def by_distance(observations: Sequence[Observation]) -> list[int]:
    """Return the numbers of the sources, those farthest from most others first."""
    means = np.array([source.mean for source in observations])
    counts = np.array([source.n_records for source in observations])
    noise = (
        2 * np.array([source.noise_variance for source in observations]) / counts**2 + 1 / counts
    )
    squares = np.mean(np.abs(means) ** 2, axis=1)
    products = (means @ means.conj().T).real / means.shape[1]
    distances = squares[:, None] + squares[None] - 2 * products
    distances = distances - noise[:, None] - noise[None]
    np.fill_diagonal(distances, np.nan)
    return [int(s) for s in np.argsort(-np.nanmedian(distances, axis=1))]


def cluster_shares(
    reference: Reference,
    observations: Sequence[Observation],
    changes: Mapping[int, Mapping[int, Change]],
) -> ClusterShares:
    """Fit the share of each cluster at each source by least squares.

    Standard errors come from noise and sampling, with the misfit as further noise. `changes` has
    the changes of columns of some sources.
    """
    fits = [
        _source_shares(reference, observation, changes.get(source, {}))
        for source, observation in enumerate(observations)
    ]
    shares, errors = (np.array(values) for values in zip(*fits, strict=True))
    center = reference.features.design.domain.center_vector
    return ClusterShares(reference.means + center, shares, errors, tuple(_alone(shares, errors)))


def _source_shares(
    reference: Reference, observation: Observation, changes: Mapping[int, Change]
) -> tuple[Floats, Floats]:
    """Return non-negative shares (k,) of one source and their standard errors."""
    fit, _, _ = fit_shares(observation, reference)
    vectors = reference.vectors(changes)[0]
    if changes:
        fit = Fit(observation, as_complex(reference.shares @ vectors))
    chi2, weights = fit.solve(vectors)
    rows = fit.whitened(vectors)
    dispersion = max(chi2 / fit.n_numbers, 1.0)
    gram = rows @ rows.T
    gram.flat[:: len(gram) + 1] *= 1 + 1e-9
    variances = np.diag(np.linalg.pinv(gram, hermitian=True)) * dispersion
    total = max(float(weights.sum()), 1.0)
    shares = weights / total
    sampling = shares * (1 - shares) * observation.repetition / observation.n_records
    return shares, np.sqrt(variances / total**2 + sampling)


def _alone(shares: Floats, errors: Floats) -> list[tuple[int, int]]:
    """Return pairs of a cluster and the only source that has it."""
    n_sources, k = shares.shape
    min_deviations = -float(ndtri(MAX_FALSE_ALONE / (n_sources * k)))
    pairs = []
    for cluster in range(k):
        source = int(np.argmax(shares[:, cluster]))
        share, error = float(shares[source, cluster]), float(errors[source, cluster])
        other = np.delete(shares[:, cluster], source)
        other_errors = np.delete(errors[:, cluster], source)
        if share < MIN_ALONE_SHARE or share < min_deviations * error or not math.isfinite(error):
            continue
        absent = (other < _ABSENT * other_errors) & (other + 2 * other_errors < _MAX_RATIO * share)
        if absent.all():
            pairs.append((cluster, source))
    return pairs
