"""`compare`: find sources of one study that differ from the others.

Every source is compared with a mixture learned from the others. Honest sources differ in their
shares of clusters. If a source differs beyond that, and a mistake in few columns explains it, that
is an alarm; so are sources that are too alike. Other differences are reported without one
(docs/comparing.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import chdtrc, ndtri

from privsketch._base.errors import MergeError
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.features.masks import Contribution
from privsketch.pages.comparison.against import (
    SourceFit,
    cluster_shares,
    compared_features,
    fit_sources,
    learn_reference,
    major_changes,
    public_rng,
    total_of,
)
from privsketch.pages.comparison.alike import alike_by_features, too_alike
from privsketch.pages.comparison.explain import Explanation
from privsketch.pages.comparison.observation import Observation, observe
from privsketch.pages.comparison.reference import Features, Line, Reference, column_names
from privsketch.pages.comparison.result import (
    ClusterShares,
    ColumnChange,
    Comparison,
    SourceComparison,
)
from privsketch.sketching.merge import add_sketches, weight_lines
from privsketch.sketching.sketch import Sketch

MAX_FALSE_ALARM = 1e-4  # probability that any of several equal sources counts as different
MIN_MEANS = 0.25  # difference of means from which a column is named, in standard deviations
MIN_LABEL_VARIANCE = 0.01  # of a label that a record has: that of a share of 1 %
MIN_SINGLE = 0.05  # share of the excess misfit from which a column is named
MIN_OF_LARGEST = 0.25  # share of what the first named column explains, for a further one
MAX_TRIED = 3  # sources of which each is left out, where several differ
MAX_NAMED_COLUMNS = 3  # columns in a verdict, which is one line
N_COVARIANCE_DRAWS = 300  # records drawn for the covariance of features


def compare(sketches: Iterable[Sketch], *, allow_weights: bool = False) -> Comparison:
    """Compare sketches of one study with each other. Charges nothing.

    The result says which source differs from the others beyond noise and sampling, by how much and
    in which columns. If the factor of a unit (pounds for kilograms), a shift, a cut or an exchange
    of columns explains the difference, that is an alarm. So are constant sources, and pairs that
    share noise or records. Other shares of the same clusters are none. Clusters that only one
    source has are listed. Sketches that no records can lead to are refused, as by `merge`.

    Parameters
    ----------
    sketches : list of Sketch
        At least two sketches of the same design. A merged one counts as one source.
    allow_weights : bool
        Accept sketches whose records count more often than once.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> rng = np.random.default_rng(0)
    >>> domain = ps.Box([0, 0], [300, 300], columns=["weight", "height"])
    >>> design = ps.Design.plan(n_components=2, domain=domain, n_records=5000, random_state=0,
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6))
    >>> def site(name, factor):
    ...     centers = np.array([[60, 160], [90, 185]])[rng.integers(2, size=5000)]
    ...     records = centers + rng.normal(size=(5000, 2)) * [6, 5]
    ...     return ps.sketch(records * [factor, 1], design, source=name)
    >>> comparison = ps.compare([site("a", 1), site("b", 1), site("c", 2.2046)])
    >>> print(*comparison.alarm_lines())
    c: weight: 2.205 times what the others have (pounds instead of kilograms)
    """
    parts = _checked(sketches, allow_weights)
    comparison = compare_parts(parts)
    weighted = [line for part in parts for line in weight_lines(part)]
    hidden = [comparison.hidden] if comparison.hidden else []
    return replace(comparison, notes=(*weighted, *comparison.notes, *hidden))


def compare_parts(parts: list[Sketch]) -> Comparison:
    """Compare sketches that `add_sketches` accepts together."""
    mapping = parts[0].design.mapping
    # Harmonics of a dithered map of another package are not part of the reference's model.
    has_model = mapping.has_table and (mapping.origin is None or not mapping.dithered)
    return _compare_features(parts) if has_model else _compare_moments(parts)


def _compare_features(parts: list[Sketch]) -> Comparison:
    """Compare sketches of Fourier or one-bit features."""
    design = parts[0].design
    rows = compared_features(design)
    features = Features(design, rows)
    observations = [observe(part, rows) for part in parts]
    rng = public_rng(design)
    with one_thread():
        fits, odd, notes = fit_sources(parts, features, observations)
        alarms = {source: fit for source, fit in fits.items() if fit.is_alarm}
        any_reference = next((fit.reference for fit in fits.values()), None)
        alike, hidden = alike_by_features(parts, observations, any_reference, rng)

        def difference(source: int, left_out: set[int]) -> tuple[bool, float]:
            others = [p for s, p in enumerate(parts) if s != source and s not in left_out]
            total = observe(total_of(others or parts), rows)
            reference = fits[source].reference if source in fits else None
            p_value, size = _difference(observations[source], total, reference, rng)
            return p_value < MAX_FALSE_ALARM / len(parts), size

        # A source with an alarm among the others would make all of them differ from it.
        left_out = set(alarms) if len(parts) > 2 else set()
        differences = _differences(len(parts), left_out, odd, difference)
        sources = [
            _with_pairs(_source_comparison(part, fits.get(s), *differences[s]), s, alike, parts)
            for s, part in enumerate(parts)
        ]
        clusters: ClusterShares | None = None
        if fits:
            honest = [part for source, part in enumerate(parts) if source not in alarms]
            reference = learn_reference(honest or parts, features, size=design.n_components)
            changes = {
                source: fit.explanation.changes
                for source, fit in alarms.items()
                if fit.has_mistake and fit.explanation is not None
            }
            clusters = cluster_shares(reference, observations, changes)
    return Comparison(design, tuple(sources), clusters, tuple(notes), hidden)


def _differences(
    n_sources: int,
    left_out: set[int],
    odd: int | None,
    difference: Callable[[int, set[int]], tuple[bool, float]],
) -> list[tuple[bool, float]]:
    """Return for each source whether it differs from the sum of the others, and by how much.

    `difference` compares a source with the sum of all others but those that are left out. Where
    several differ, one of them may be the reason: if the others are alike without it, or fit each
    other (`odd`), they are compared without it.
    """
    found = [difference(source, left_out) for source in range(n_sources)]
    rest = [source for source in range(n_sources) if source not in left_out]
    differing = [source for source in rest if found[source][0]]
    if len(differing) < 2 or len(rest) < 3:
        return found
    by_size = sorted(differing, key=lambda source: -found[source][1])[:MAX_TRIED]
    for tried in by_size if odd is None else [odd]:
        others = [source for source in rest if source != tried]
        without = {source: difference(source, left_out | {tried}) for source in others}
        if tried == odd or not any(differs for differs, _ in without.values()):
            return [without.get(source, found[source]) for source in range(n_sources)]
    return found


def _with_pairs(
    found: SourceComparison, source: int, alike: list[tuple[int, int]], parts: Sequence[Sketch]
) -> SourceComparison:
    """Return the verdict on a source with an alarm if it is too alike to others."""
    others = [b if a == source else a for a, b in alike if source in (a, b)]
    if not others:
        return found
    names = [", ".join(parts[other].sources) for other in others[:MAX_NAMED_COLUMNS]]
    more = f" and {len(others) - len(names)} more" if len(others) > len(names) else ""
    words = (
        f"more alike to {', '.join(names)}{more} than chance allows: they share records or noise"
    )
    return replace(found, alarms=(*found.alarms, words))


def _checked(sketches: Iterable[Sketch], allow_weights: bool) -> list[Sketch]:
    parts = list(sketches) if isinstance(sketches, Iterable) else []
    if len(parts) < 2 or not all(isinstance(part, Sketch) for part in parts):
        raise MergeError("compare: expected two sketches or more, in a list")
    # Refuses sketches of other studies, and those that no records can lead to.
    add_sketches(parts, same_records=True, allow_weights=allow_weights)
    return parts


def _source_comparison(
    part: Sketch, fit: SourceFit | None, differs: bool, size: float
) -> SourceComparison:
    """Return the verdict on one source, whose difference has this size."""
    changes: tuple[ColumnChange, ...] = ()
    columns: tuple[str, ...] = ()
    explained = 0.0
    if fit is not None and fit.explanation is not None:
        explanation, lines = fit.explanation, fit.reference.features.lines
        explained = max(explanation.explained, 0.0) if explanation.changes else 0.0
        mistakes, major = explanation.mistakes, major_changes(explanation)
        changes = tuple(
            _column_change(explanation, lines, coordinate)
            for coordinate in sorted(explanation.changes)
            if coordinate in major or mistakes[coordinate] is not None
        )
        gains = explanation.singles
        least = MIN_OF_LARGEST * max(gains.values(), default=0.0)
        columns = _largest(gains, max(MIN_SINGLE * explanation.excess, least))
    elif fit is not None and differs:
        columns = _largest(_mean_differences(fit), MIN_MEANS)
    return SourceComparison(
        source=", ".join(part.sources),
        n_records=part.n_records,
        differs=differs or (fit is not None and fit.is_alarm),
        difference=size,
        misfit=None if fit is None else fit.misfit,
        explained=explained,
        columns=columns,
        changes=changes,
        alarms=() if fit is None else _alarm_words(fit, changes),
    )


def _alarm_words(fit: SourceFit, changes: Sequence[ColumnChange]) -> tuple[str, ...]:
    """Return what looks wrong about a source on its own."""
    if fit.has_mistake:
        return tuple(change.describe() for change in changes)
    return ("all of its records are nearly the same",) if fit.is_constant else ()


def _column_change(
    explanation: Explanation, lines: Mapping[int, Line], coordinate: int
) -> ColumnChange:
    """Return a change with the name of its column, and as a limit where it is one."""
    limit = explanation.limits.get(coordinate)
    change = explanation.changes[coordinate] if limit is None else limit
    mistake = explanation.mistakes[coordinate] if limit is None else None
    return ColumnChange(
        column=lines[coordinate].name,
        factor=change.factor,
        shift=change.shift,
        unit="" if mistake is None else mistake.words,
        is_limit=limit is not None,
        low=change.low if math.isfinite(change.low) else None,
        high=change.high if math.isfinite(change.high) else None,
        other_column="" if change.origin is None else lines[change.origin].name,
        possible=tuple(one.describe() for one in explanation.possible.get(coordinate, ())),
    )


def _largest(sizes: dict[str, float], smallest: float) -> tuple[str, ...]:
    """Return the names of the largest sizes."""
    names = sorted(sizes, key=lambda name: -sizes[name])
    return tuple(name for name in names[:MAX_NAMED_COLUMNS] if sizes[name] >= smallest)


def _mean_differences(fit: SourceFit) -> dict[str, float]:
    """Return differences of the means of columns, in standard deviations.

    A column of labels has the largest difference of a label's share.
    """
    reference = fit.reference
    shares = fit.weights / max(float(fit.weights.sum()), 1e-300)
    steps = shares - reference.shares
    found = {
        line.name: abs(float(steps @ reference.means[:, j])) / max(reference.spread(j), 1e-300)
        for j, line in reference.features.lines.items()
    }
    layout, labels = reference.features.layout, reference.atoms.shares
    for name, (_, corners) in zip(
        reference.features.block_names, () if layout is None else layout.parts, strict=True
    ):
        usual = np.clip(reference.shares @ labels[:, corners], 0.0, 1.0)
        spreads = np.sqrt(np.maximum(usual * (1 - usual), MIN_LABEL_VARIANCE))
        found[name] = float(np.max(np.abs(steps @ labels[:, corners]) / spreads))
    return found


# ---------------------------------------------------------------- sums against sums


def _difference(
    source: Observation, total: Observation, reference: Reference | None, rng: np.random.Generator
) -> tuple[float, float]:
    """Compare the sums of a source with the total of the others, and return p-value and size.

    This needs no mixture that fits. Sums of equal sources differ by a quadratic form of normal
    errors, which sampling correlates. Satterthwaite's method approximates its distribution, with a
    covariance from draws of the mixture if there is one.
    """
    source_variances, total_variances = (each.variances(total.mean) for each in (source, total))

    def chi2_at(ratio: float) -> float:
        misses = source.sums - ratio * total.sums
        return float(np.sum(misses**2 / (source_variances + ratio**2 * total_variances)))

    # Counts are noisy or unknown, so the ratio of the counts is fitted.
    start = source.n_records / total.n_records
    best = minimize_scalar(chi2_at, bounds=(0.0, 3 * start), method="bounded")
    ratio, statistic = float(best.x), float(best.fun)
    variances = source_variances + ratio**2 * total_variances
    noise = source.noise_variance + ratio**2 * total.noise_variance
    sampling = source.n_records * source.repetition + ratio**2 * total.n_records * total.repetition
    squares = _squared_norm(noise / variances, sampling / variances, reference, rng)
    mean = float(len(variances))
    p_value = float(chdtrc(mean**2 / squares, statistic * mean / squares))
    signal = float(np.sum((ratio * total.sums) ** 2 - ratio**2 * total_variances))
    excess = float(np.sum((source.sums - ratio * total.sums) ** 2 - variances))
    size = math.sqrt(max(excess, 0.0) / max(signal, 1e-300)) if signal > 0 else 0.0
    return p_value, min(size, 2.0)


def _squared_norm(
    noise: Floats, sampling: Floats, reference: Reference | None, rng: np.random.Generator
) -> float:
    """Return the trace of V^2, V being the covariance of the differences in units of variances."""
    if reference is None:  # as if sampling correlated all features completely
        return float(np.sum(np.square(noise)) + np.sum(1 - noise) ** 2 + 2 * noise @ (1 - noise))
    label = rng.choice(reference.size, size=N_COVARIANCE_DRAWS, p=reference.shares)
    atoms, layout = reference.atoms, reference.features.layout
    widths = np.sqrt(atoms.axis_variances())[label]
    records = atoms.centers[label] + widths * rng.standard_normal(widths.shape)
    if layout is not None:
        records = layout.records(records, atoms.shares[label], rng)
    phases = records @ reference.features.frequencies.T
    values = np.hstack([np.cos(phases), np.sin(phases)])
    values = (values - values.mean(axis=0)) * np.sqrt(sampling)
    gram = values @ values.T / (N_COVARIANCE_DRAWS - 1)
    # A finite number of draws inflates the norm of a covariance; subtract what it adds.
    trace = float(np.trace(gram))
    bias = trace**2 / N_COVARIANCE_DRAWS
    squared_norm = max(float(np.sum(gram**2)) - bias, trace**2 / len(noise))
    return float(np.sum(np.square(noise)) + 2 * noise @ values.var(axis=0) + squared_norm)


# ---------------------------------------------------------------- principal components


def _compare_moments(parts: Sequence[Sketch]) -> Comparison:
    """Compare sketches of squares and products, number by number.

    There is no search for units: other shapes of records change second moments as units do.
    """
    design = parts[0].design
    sources: list[SourceComparison] = []
    level = -float(ndtri(MAX_FALSE_ALARM / (2 * len(parts) * design.n_values)))
    means, variances = (
        np.array(values) for values in zip(*(_mean_moments(part) for part in parts), strict=True)
    )
    noise = np.array([_moment_noise(part) for part in parts])
    alike, hidden = too_alike(parts, means, noise, np.zeros(len(parts)), 0.0)

    def steps(source: int, left_out: set[int]) -> tuple[Floats, Floats, float]:
        """Return differences (n_values,), their standard deviations, and a size."""
        others = [p for s, p in enumerate(parts) if s != source and s not in left_out]
        usual, spread = _mean_moments(total_of(others))
        step, deviation = means[source] - usual, np.sqrt(variances[source] + spread)
        excess = max(float(np.sum(step**2 - deviation**2)), 0.0)
        return step, deviation, math.sqrt(excess / max(float(np.sum(usual**2)), 1e-300))

    def difference(source: int, left_out: set[int]) -> tuple[bool, float]:
        step, deviation, size = steps(source, left_out)
        return bool((np.abs(step) > level * deviation).any()), min(size, 2.0)

    differences = _differences(len(parts), set(), None, difference)
    for source, part in enumerate(parts):
        differs, size = differences[source]
        step, deviation, _ = steps(source, set())
        found = SourceComparison(
            source=", ".join(part.sources),
            n_records=part.n_records,
            differs=differs,
            difference=size,
            columns=_moment_columns(part, step, level * deviation) if differs else (),
        )
        sources.append(_with_pairs(found, source, alike, parts))
    notes = ("only sketches of Fourier and one-bit features are searched for shifts and units",)
    return Comparison(design, tuple(sources), None, notes, hidden)


def _mean_moments(sketch: Sketch) -> tuple[Floats, Floats]:
    """Return sums per record (n_values,) relative to the largest, and bounds of their variances."""
    design = sketch.design
    contribution: Contribution = design.contribution
    rate = _masks_rate(design)
    count = max(sketch.assumed_records, 1.0)
    means = sketch.sums / _moment_size(sketch)
    noise = _moment_noise(sketch)
    # The variance of a number between 0 and 1 is at most its mean; between -1 and 1, at most 1.
    scatter = np.clip(means, 0.0, 1.0) if not contribution.signed else np.ones(len(means))
    spread = sketch.repetition * (scatter / rate + 1 / rate - 1) / count
    counted = sketch.count_variance / count**2 * means**2
    return np.asarray(means), np.asarray(noise + spread + counted)


def _masks_rate(design: Design) -> float:
    """Return the share of a record's numbers that masks keep."""
    return 1.0 if design.masks is None else design.masks.total_rate(design.n_features)


def _moment_size(sketch: Sketch) -> float:
    """Return the largest sum that the records of a sketch can have."""
    design = sketch.design
    unit = float(design.contribution.largest * design.sum_noise.factor)
    return unit * _masks_rate(design) * max(sketch.assumed_records, 1.0)


def _moment_noise(sketch: Sketch) -> float:
    """Return the variance of the noise of a mean moment."""
    law = sketch.design.sum_noise.sums_law
    return sketch.noises(law) * law.variance / _moment_size(sketch) ** 2


def _moment_columns(part: Sketch, differences: Floats, limits: Floats) -> tuple[str, ...]:
    """Return the columns whose mean square differs."""
    design = part.design
    if design.feature_map != "second-moments":
        return ()
    names = column_names(design)
    first, second = np.triu_indices(design.dim)
    squares = np.flatnonzero(first == second)
    sizes = {names[first[j]]: float(abs(differences[j]) / limits[j]) for j in squares}
    return _largest(sizes, 1.0)
