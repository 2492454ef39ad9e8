"""How sketches add up. Nothing here reads a record; everything is a function of releases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from privsketch._base.errors import MergeError, ParameterError, require_count
from privsketch._base.formats import INSECURE
from privsketch.noise.mechanism import NoiseLaw, saturating_add
from privsketch.noise.sums import saturating_multiply
from privsketch.sketching.limits import REFUSAL_CHANCE, require_possible
from privsketch.sketching.sketch import MAX_WEIGHT, Sketch, merged_receipt, releases_of
from privsketch.sketching.verdict import Verdict, combined_verdict

NOT_COMPARED = Verdict(reasons=("skipped",))


def add_sketches(
    sketches: Iterable[Sketch],
    *,
    same_records: bool = False,
    weights: Sequence[int] | None = None,
    allow_weights: bool = False,
) -> Sketch:
    """Return the sum of sketches of one design, without comparing them: see `privsketch.merge`.

    The verdict says that the parts were not compared; alarms in the verdicts of parts stay.
    """
    parts = list(sketches) if isinstance(sketches, Iterable) else [None]
    if not parts:
        raise MergeError("merge: no sketches given")
    if not all(isinstance(part, Sketch) for part in parts):
        raise MergeError("merge: expected sketches, in a list; load files with Sketch.load")
    if not allow_weights:
        _require_no_weights(parts)
    if len(parts) == 1 and weights is None:
        require_possible(parts[0])
        return parts[0]
    design = parts[0].design
    if len({part.design.insecure for part in parts}) > 1:
        raise MergeError(
            f"merge: some sketches are {INSECURE}, without noise, and others are private; they do "
            "not add up"
        )
    for part in parts[1:]:
        if part.design.fingerprint != design.fingerprint:
            raise MergeError(
                f"merge: design {part.design.fingerprint[:16]} is not {design.fingerprint[:16]}; "
                "only sketches of the same study add up"
            )
    if len({part.receipt.sampler.startswith(INSECURE) for part in parts}) > 1:
        raise MergeError("merge: a sketch made without real noise does not add to real ones")
    ids = [identity for part in parts for identity in part.ids]
    sources = [source for part in parts for source in part.sources]
    if len(set(ids)) < len(ids):
        identity = Counter(ids).most_common(1)[0][0]
        name = sources[ids.index(identity)]
        raise MergeError(f"merge: the same sketch is given twice, that of source {name!r}")
    repeated = [source for source, times in Counter(sources).items() if times > 1]
    if repeated and not same_records:
        raise MergeError(
            f"merge: source {repeated[0]!r} occurs more than once; its budgets would add. Use "
            "`same_records=True` if that is meant; holders of different records need different "
            "source names"
        )
    shared = tuple(total for part in parts for total in part.shared)
    if repeated and shared:
        raise MergeError(
            f"merge: source {repeated[0]!r} is part of a total whose noise is shared, and of "
            "another sketch; what its records then cost is not told by their receipts"
        )
    _require_own_noise(parts)
    for part in parts:
        require_possible(part)
    factors = _checked_weights(weights, len(parts))
    values = np.zeros_like(parts[0].values)
    for part, factor in zip(parts, factors, strict=True):
        values = saturating_add(values, saturating_multiply(part.values, factor))
    count = None
    if design.count == "public":
        counts = zip(parts, factors, strict=True)
        count = sum((part.exact_count or 0) * factor for part, factor in counts)
    whole = [
        factor * weight
        for part, factor in zip(parts, factors, strict=True)
        for weight in part.weights
    ]
    if max(whole) > MAX_WEIGHT:
        raise MergeError(f"weights: a release would count more than {MAX_WEIGHT} times")
    releases = [single for part in parts for single in releases_of(part)]
    receipt = releases[0] if len(releases) == 1 else merged_receipt(releases)
    verdicts = [(part.sources, part.verdict) for part in parts]
    return Sketch(
        values,
        design,
        receipt,
        tuple(ids),
        tuple(sources),
        count,
        tuple(whole),
        shared,
        combined_verdict(verdicts, NOT_COMPARED) if len(ids) > 1 else None,
    )


def weight_lines(sketch: Sketch) -> list[str]:
    """Return a line for each source whose records do not count once."""
    return [
        f"the records of {source} count {weight} times each"
        for source, weight in zip(sketch.sources, sketch.weights, strict=True)
        if weight != 1
    ]


def _require_no_weights(parts: Sequence[Sketch]) -> None:
    """Refuse a part that says of itself that its records count more often than once."""
    for part in parts:
        for source, weight in zip(part.sources, part.weights, strict=True):
            if weight != 1:
                raise MergeError(
                    f"merge: the sketch of source {source!r} has a weight, its records count "
                    f"{weight} times each; ask for one without, or use `allow_weights=True` if "
                    "that is meant"
                )


def _require_own_noise(parts: Sequence[Sketch]) -> None:
    """Refuse two parts of the same values: noise does not repeat, so one is a copy of the other."""
    if parts[0].receipt.sampler.startswith(INSECURE):
        return
    law = parts[0].design.sum_noise.sums_law
    chance = 2 * math.log(len(parts)) + _log_repeat(law)  # of any pair
    if chance > math.log(REFUSAL_CHANCE):
        return
    first: dict[bytes, Sketch] = {}
    for part in parts:
        # A copy with a weight is a copy. Quotients of honest sums are exact.
        values = (part.values // math.gcd(*part.weights)).tobytes()
        if values in first:
            names = [repr(", ".join(one.sources)) for one in (first[values], part)]
            raise MergeError(
                f"merge: the sketches of sources {names[0]} and {names[1]} have the same values, "
                "which noise does not do twice: one is a copy of the other; ask for both again"
            )
        first[values] = part


def _log_repeat(law: NoiseLaw) -> float:
    """Return logarithm of the chance, from above, that noise takes any value stated beforehand.

    Two sketches are equal if the noise of one is that of the other and the difference of their
    sums, which the largest probability of the law bounds whatever the difference is. That of all
    sums is enough: with weights, or with the noise of others on top, nothing is more likely.
    """
    n, scale = law.n_components, law.scale
    if law.kind == "laplace":
        return n * math.log(math.tanh(1 / (2 * scale)))
    if law.kind == "gaussian":  # a sum of exp(-k^2 / 2 s^2) is at least its integral (Poisson)
        return -n * max(math.log(scale * math.sqrt(2 * math.pi)), 0.0)
    # exp(-|z| / scale) sums up to (1 - exp(-1 / scale)) times all (2 r + 1)^n exp(-r / scale), of
    # which one near the largest is enough.
    radius = math.floor(n * scale)
    total = math.log(-math.expm1(-1 / scale)) + n * math.log(2 * radius + 1) - radius / scale
    return min(-total, 0.0)


def _checked_weights(weights: Sequence[int] | None, count: int) -> list[int]:
    if weights is None:
        return [1] * count
    given = list(weights)
    if len(given) != count:
        raise ParameterError(f"weights: {len(given)} for {count} sketches")
    return [require_count("weights", weight, "whole numbers of at least 1") for weight in given]
