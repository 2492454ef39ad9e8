"""`compare`: sketches of one study beside each other.

Every source is held against a mixture learned from the others. Sources differ in their shares of
clusters; beyond that, a shift or a unit's factor of a few columns may explain a source, which is an
alarm, or nothing does, which is information (docs/comparing.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import norm

from privsketch._base.errors import MergeError
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.features.maps import Contribution
from privsketch.pages.comparison.against import (
    Look,
    all_looks,
    kept_features,
    learn_reference,
    major_changes,
    public_rng,
)
from privsketch.pages.comparison.clusters import cluster_shares
from privsketch.pages.comparison.difference import Difference, difference_of
from privsketch.pages.comparison.observation import observe
from privsketch.pages.comparison.reference import Features
from privsketch.pages.comparison.result import (
    ClusterShares,
    ColumnChange,
    Comparison,
    SourceComparison,
)
from privsketch.sketching.merge import merge, weight_lines
from privsketch.sketching.sketch import Sketch

CHANCE = 1e-4  # that one of alike sources is said to differ, in all
MIN_MEANS = 0.25  # difference of means that is worth a word, in standard deviations of a column
MIN_SINGLE = 0.05  # share of a misfit that a change of one column alone explains
MAX_NAMED = 3  # columns that are named


def compare(sketches: Iterable[Sketch], *, allow_weights: bool = False) -> Comparison:
    """Hold sketches of one study beside each other. Charges nothing.

    Says which source is unlike the others beyond noise and sampling, by how much and along which
    columns, and whether a shift or the factor of a unit (pounds for kilograms) explains it, which
    is an alarm. Sources may differ in their shares of clusters; that is none. Clusters that only
    one source has are said to be so. Sketches that no records can have led to are refused, as by
    `merge`.

    Parameters
    ----------
    sketches : list of Sketch
        At least two, of the same design. A merged one counts as one source.
    allow_weights : bool
        Take sketches whose records count more often than once, too.

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
    >>> found = ps.compare([site("a", 1), site("b", 1), site("c", 2.2046)])
    >>> print(*found.alarm_lines())
    c: weight: 2.205 times what the others have (pounds instead of kilograms)
    """
    parts = _checked(sketches, allow_weights)
    found = _compared(parts)
    weighted = [line for part in parts for line in weight_lines(part)]
    return replace(found, notes=(*weighted, *found.notes)) if weighted else found


def _compared(parts: list[Sketch]) -> Comparison:
    """The same of sketches that may be compared."""
    design = parts[0].design
    # Harmonics of a dithered map of another package are not part of the reference's model.
    has_model = design.mapping.origin is None or not design.mapping.dithered
    if not (design.mapping.has_table and has_model):
        return _compare_moments(parts)
    rows = kept_features(design)
    features = Features(design, rows)
    seen = [observe(part, rows) for part in parts]
    rng = public_rng(design)
    with one_thread():
        looks, notes = all_looks(parts, features, seen)
        odd = {place for place, look in looks.items() if look.is_alarm} if len(parts) > 2 else set()
        found = []
        for place, part in enumerate(parts):
            # An odd one among the others would make all of them unlike.
            kept = [other for s, other in enumerate(parts) if s != place and s not in odd]
            others = merge(kept, same_records=True, allow_weights=True)
            look = looks.get(place)
            reference = None if look is None else look.reference
            difference = difference_of(seen[place], observe(others, rows), reference, rng)
            found.append(_told(part, look, difference, len(parts)))
        clusters: ClusterShares | None = None
        if looks:
            alarms = {place: look for place, look in looks.items() if look.is_alarm}
            kept = [part for place, part in enumerate(parts) if place not in alarms]
            reference = learn_reference(kept or parts, features, size=design.n_components)
            changes = {
                place: look.explanation.changes
                for place, look in alarms.items()
                if look.explanation is not None
            }
            clusters = cluster_shares(reference, seen, changes)
    return Comparison(design, tuple(found), clusters, tuple(notes))


def _checked(sketches: Iterable[Sketch], allow_weights: bool) -> list[Sketch]:
    parts = list(sketches) if isinstance(sketches, Iterable) else []
    if len(parts) < 2 or not all(isinstance(part, Sketch) for part in parts):
        raise MergeError("compare: expected two sketches or more, in a list")
    # Refuses what is of another study, or of no records.
    merge(parts, same_records=True, allow_weights=allow_weights)
    return parts


def _told(part: Sketch, look: Look | None, difference: Difference, n: int) -> SourceComparison:
    """What was found of one source."""
    differs = difference.chance < CHANCE / n
    changes: tuple[ColumnChange, ...] = ()
    columns: tuple[str, ...] = ()
    explained = 0.0
    if look is not None and look.explanation is not None:
        found, lines = look.explanation, look.reference.features.lines
        explained = max(found.explained, 0.0) if found.changes else 0.0
        mistakes = found.mistakes
        told = [
            place
            for place in sorted(found.changes)
            if place in major_changes(found) or mistakes[place] is not None
        ]
        changes = tuple(
            ColumnChange(
                lines[place].name,
                found.changes[place].factor,
                found.changes[place].shift,
                getattr(mistakes[place], "words", ""),
            )
            for place in told
        )
        parts = {lines[place].name: gain for place, gain in found.singles.items()}
        columns = _largest(parts, MIN_SINGLE * found.excess)
    elif look is not None and differs:
        columns = _largest(_mean_differences(look), MIN_MEANS)
    return SourceComparison(
        source=", ".join(part.sources),
        n_records=part.n_records,
        differs=differs or (look is not None and look.is_alarm),
        difference=difference.size,
        misfit=None if look is None else look.misfit,
        explained=explained,
        columns=columns,
        changes=changes,
        is_alarm=look is not None and look.is_alarm,
    )


def _largest(sizes: dict[str, float], least: float) -> tuple[str, ...]:
    names = sorted(sizes, key=lambda name: -sizes[name])
    return tuple(name for name in names[:MAX_NAMED] if sizes[name] >= least)


def _mean_differences(look: Look) -> dict[str, float]:
    """Differences of the means of columns, in standard deviations, by own shares."""
    reference = look.reference
    own = look.weights / max(float(look.weights.sum()), 1e-300)
    all_ = reference.weights / max(float(reference.weights.sum()), 1e-300)
    found = {}
    for place, line in reference.features.lines.items():
        away = abs(float((own - all_) @ reference.means[:, place]))
        found[line.name] = away / max(reference.spread(place), 1e-300)
    return found


# ---------------------------------------------------------------- principal components


def _compare_moments(parts: Sequence[Sketch]) -> Comparison:
    """Sketches of squares and products: each number against that of the others.

    No unit is looked for: records of other shapes change second moments as units do.
    """
    design = parts[0].design
    found = []
    level = float(norm.isf(CHANCE / (2 * len(parts) * design.n_values)))
    for part in parts:
        rest = [other for other in parts if other is not part]
        others = merge(rest, same_records=True, allow_weights=True)
        means, variances = zip(*(_mean_moments(one) for one in (part, others)), strict=True)
        away = means[0] - means[1]
        deviation = np.sqrt(variances[0] + variances[1])
        left = max(float(np.sum(away**2 - deviation**2)), 0.0)
        size = float(np.sqrt(left / max(float(np.sum(means[1] ** 2)), 1e-300)))
        differs = bool((np.abs(away) > level * deviation).any())
        found.append(
            SourceComparison(
                source=", ".join(part.sources),
                n_records=part.n_records,
                differs=differs,
                difference=min(size, 2.0),
                misfit=None,
                explained=0.0,
                columns=_moment_columns(part, away, level * deviation) if differs else (),
                changes=(),
                is_alarm=False,
            )
        )
    notes = ("shifts and units are looked for in sketches of Fourier and one-bit features only",)
    return Comparison(design, tuple(found), None, notes)


def _mean_moments(sketch: Sketch) -> tuple[Floats, Floats]:
    """(n_values,) sums per record in units of the largest, and their variances, from above."""
    design = sketch.design
    contribution: Contribution = design.contribution
    unit = float(contribution.largest * design.sum_noise.factor)
    rate = 1.0 if design.masks is None else design.masks.total_rate(design.n_features)
    count = max(sketch.assumed_records, 1.0)
    means = sketch.sums / (unit * rate * count)
    law = design.sum_noise.sums_law
    noise = sketch.noises(law) * law.variance / (unit * rate * count) ** 2
    # A number between 0 and 1 varies by no more than its mean, one between -1 and 1 by 1.
    scatter = np.clip(means, 0.0, 1.0) if not contribution.signed else np.ones(len(means))
    spread = sketch.repetition * (scatter / rate + 1 / rate - 1) / count
    counted = sketch.count_variance / count**2 * means**2
    return np.asarray(means), np.asarray(noise + spread + counted)


def _moment_columns(part: Sketch, away: Floats, limits: Floats) -> tuple[str, ...]:
    """Columns whose own second moment differs."""
    design = part.design
    if design.feature_map != "second-moments":
        return ()
    names = design.columns or tuple(f"column {j + 1}" for j in range(design.dim))
    first, second = np.triu_indices(design.dim)
    own = np.flatnonzero(first == second)
    sizes = {names[first[j]]: float(abs(away[j]) / limits[j]) for j in own}
    return _largest(sizes, 1.0)
