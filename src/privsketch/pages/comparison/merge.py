"""`merge`: sketches add up, and a comparison of them goes along with the total.

A site in other units makes a false cluster that no learner can tell from a true one. Parts are seen
only while they are merged, so the total keeps what the comparison said (docs/comparing.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from privsketch._base.errors import PrivsketchWarning
from privsketch.pages.comparison.compare import compare_parts
from privsketch.pages.comparison.result import Comparison
from privsketch.sketching.merge import add_sketches
from privsketch.sketching.sketch import Sketch
from privsketch.sketching.verdict import MAX_ALARMS, MIN_SOURCES, Alarm, Verdict, combined_verdict

MAX_MERGED = 100  # sketches up to which a merge compares them by default


def merge(
    sketches: Iterable[Sketch],
    *,
    same_records: bool = False,
    weights: Sequence[int] | None = None,
    allow_weights: bool = False,
    compare: bool | None = None,
) -> Sketch:
    """Add sketches of one design up, and compare them from three sources on.

    Charges nothing: it only rearranges what was released. Different sources hold
    different records, so their costs do not add. The same source twice is refused
    unless `same_records=True` says that its costs are to add. A sketch whose sums no records
    can have led to, such as one that was multiplied by hand, is refused, and so are two of the same
    values, whatever their names; of honest ones that has a chance below 1e-12.

    A source that looks wrong, such as one in other units, is an alarm: a warning, and part of the
    total's `verdict`, which `learn_kmeans` and the other learners make a concern of their models.
    The total is made all the same.

    Sums of records add up to the sum over all records: every record counts alike, and a
    holder in proportion to its number of records, as in ICASSP Definition 4 for holders of
    different sizes. Whole-number `weights`, one for each sketch, let the records of some
    count more often than once; their noise does so too. A sketch that has weights already is
    refused unless `allow_weights=True`: a holder could count for fifty of its size.

    Parameters
    ----------
    sketches : list of Sketch
        Sketches, or totals of some, of one design.
    same_records : bool
        Accept sketches of the same source, whose costs add up.
    weights : list of int, optional
        How often the records of each sketch count.
    allow_weights : bool
        Accept sketches whose records count more often than once.
    compare : bool, optional
        Whether to compare the sketches, as `privsketch.compare` does. By default three to 100
        sketches are compared, which takes seconds.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> rng = np.random.default_rng(0)
    >>> sites = [ps.sketch(rng.uniform(-1, 1, (1000, 2)), design, source=name) for name in "abc"]
    >>> total = ps.merge(sites)
    >>> total.receipt.epsilon, total.verdict.compared
    (1.0, ('a', 'b', 'c'))
    """
    total, _ = merge_compared(
        sketches,
        same_records=same_records,
        weights=weights,
        allow_weights=allow_weights,
        compare=compare,
    )
    if total.verdict is not None and total.verdict.alarms:
        texts = "; ".join(total.verdict.alarm_texts())
        warnings.warn(f"merge: a source looks wrong: {texts}", PrivsketchWarning, stacklevel=2)
    return total


def merge_compared(
    sketches: Iterable[Sketch],
    *,
    same_records: bool = False,
    weights: Sequence[int] | None = None,
    allow_weights: bool = False,
    compare: bool | None = None,
) -> tuple[Sketch, Comparison | None]:
    """Return the total of `merge`, and the comparison of its parts if there was one."""
    parts = list(sketches) if isinstance(sketches, Iterable) else sketches
    total = add_sketches(
        parts, same_records=same_records, weights=weights, allow_weights=allow_weights
    )
    if len(total.ids) == 1 or len(parts) == 1:  # a total alone keeps the verdict that it has
        return total, None
    comparison: Comparison | None = None
    reasons: tuple[str, ...] = ()
    if len({part.sources for part in parts}) < MIN_SOURCES:
        reasons = ("few",)
    elif compare is False:
        reasons = ("skipped",)
    elif compare is None and len(parts) > MAX_MERGED:
        reasons = ("many",)
    else:
        comparison = compare_parts(parts)
    found = Verdict(reasons=reasons) if comparison is None else verdict_of(comparison, parts)
    verdict = combined_verdict([(part.sources, part.verdict) for part in parts], found)
    return replace(total, verdict=verdict), comparison


def verdict_of(comparison: Comparison, parts: Sequence[Sketch]) -> Verdict:
    """Return what a comparison of sketches says about their total."""
    alarms = [
        Alarm.about(part.sources, source.words())
        for part, source in zip(parts, comparison.sources, strict=True)
        if source.is_alarm
    ]
    single = [part.sources[0] for part in parts if len(set(part.sources)) == 1]
    return Verdict(tuple(dict.fromkeys(alarms))[:MAX_ALARMS], tuple(dict.fromkeys(single)))
