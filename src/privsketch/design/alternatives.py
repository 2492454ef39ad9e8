"""Designs for one study side by side: what each would give and cost, and which to take.

All from public facts, before any record is read: the noise-to-signal ratio (CLP Lemma 26),
the forecast error, the time sketching takes and the size of a sketch, for every candidate: other
noise, sizes, maps, frequencies, and masks.

The first is what `Design.plan` makes. Combinations that the budget does not allow, or that
no proof covers, are left out: `Design` refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch.design.cautions import cautions
from privsketch.design.forecast import expected_noise, forecast
from privsketch.design.noise_to_signal import NoiseToSignal
from privsketch.design.pca import SCATTER as PCA_SCATTER
from privsketch.design.pca import pca_forecast
from privsketch.design.plan import plan_design
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.masks import Masks
from privsketch.noise.mechanism import NOISE_KINDS

SAME = 1.1  # an error within a tenth of the least is as good as it
NEGLIGIBLE = 0.01  # one percent is hardly noticed
LONG = 5000.0  # nanoseconds per record from which saving time is worth a change,
VERY_LONG = 50_000.0  # and from which it is worth a larger error, if that is negligible,
SAVING = 2.0  # and the time at least halved
BYTES_PER_NUMBER = 8  # int64 in a sketch file (docs/format.md)
_PARTS = {
    "private": "privacy noise; more records or a larger epsilon would help most",
    "finite": "the records being finitely many, so privacy is nearly free here",
    "sampled": "records left out; a higher rate would help most",
    "masked": "features left out; a higher rate would help most",
}
PCA_SIZES = (2, 4, 8)  # quadratic features per component and column
STRUCTURED = "structured frequencies"
_MASK_NAMES = {
    "uniform": "masks of single features",
    "block": "masks of whole blocks",
    "poisson": "masks by coin flips",
    "records": "a sample of the records",
    "combined": "masks and a sample",
}


@dataclass(frozen=True)
class Alternative:
    """One design with what to expect of it.

    Attributes
    ----------
    name : str
        What is different about it.
    design : Design
    noise : NoiseToSignal
        Parts of the expected noise-to-signal ratio.
    low, high : float
        Range of the expected error: squared error of centers over that without privacy,
        less 1; for principal components the share of their variance that is lost.
    verdict : str
        "good", "rough" or "hopeless".
    nanoseconds : float
        Of one core, per record.
    size : int
        Bytes of the released numbers.
    contends : bool
        Whether it may be recommended; see `Candidate`.
    """

    name: str
    design: Design
    noise: NoiseToSignal
    low: float
    high: float
    verdict: str
    nanoseconds: float
    size: int
    contends: bool = False

    def options(self) -> str:
        """Options of `privsketch design` that make this design of the same study."""
        design = self.design
        given = {
            "--feature-map": design.feature_map,
            "--frequencies": design.frequencies.law,
            "--features": None if design.feature_map == "second-moments" else design.n_features,
            "--noise": design.noise,
            "--masks": masks_text(design),
        }
        usual = (None, "fourier", "multi-scale", "none")
        return " ".join(f"{name} {value}" for name, value in given.items() if value not in usual)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is infinite becomes None."""
        design = self.design
        facts = {
            "name": self.name,
            "feature_map": design.feature_map,
            "n_features": design.n_features,
            "frequencies": design.frequencies.law,
            "masks": masks_text(design),
            "noise": design.noise,
            "noise_to_signal": self.noise.total,
            "largest_part": self.noise.largest,
            "error_low": self.low,
            "error_high": self.high,
            "verdict": self.verdict,
            "nanoseconds_per_record": self.nanoseconds,
            "bytes": self.size,
            "options": self.options(),
        }
        return {name: None if value == math.inf else value for name, value in facts.items()}


@dataclass(frozen=True)
class Plan:
    """Alternatives for one study, the planned design first, and which one to take."""

    alternatives: tuple[Alternative, ...]
    recommended: Alternative
    reasons: tuple[str, ...]


def percent(share: float) -> str:
    """A share in percent with two digits that count, never in powers of ten."""
    value = 100 * share
    if not 0 < value < math.inf:
        return f"{value:g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


def masks_text(design: Design) -> str:
    """Masks as `Design.plan` reads them."""
    masks = design.masks
    if masks is None:
        return "none"
    number = masks.kept if masks.rate is None else repr(masks.rate)
    parts = [] if number is None else [f"{masks.features}:{number}"]
    return "+".join(parts + ([f"records:{masks.records!r}"] if masks.records < 1 else []))


def alternatives(
    study: Mapping[str, Any], cost: Callable[[Design], float], *, rate: float = 0.1
) -> Plan:
    """Alternatives for a study; keywords as in `Design.plan`, masks at the given rate.

    `cost` gives the nanoseconds per record that a design takes (`sketching.cost.design_cost`).
    """
    if not 0 < rate < 1:
        raise ParameterError("rate", rate, "expected a share of features between 0 and 1")
    study = {"random_state": 0, **study}  # which frequencies are drawn does not matter here
    # A number of records that would suffice depends on the budget: the same for all.
    study["n_records"] = plan_design(**study, drawn=False).n_records
    found = [expected(one, cost) for one in candidates(study, rate)]
    recommended = recommend(found)
    return Plan(tuple(found), recommended, tuple(_reasons(study, found, recommended)))


def expected(candidate: Candidate, cost: Callable[[Design], float]) -> Alternative:
    """What to expect of a design."""
    design = candidate.design
    low, high, verdict = _error(design)
    noise = design.sum_noise
    numbers = noise.sums_law.n_components + (noise.count_law is not None)
    return Alternative(
        name=candidate.name,
        design=design,
        noise=expected_noise(design),
        low=low,
        high=high,
        verdict=verdict,
        nanoseconds=cost(design),
        size=BYTES_PER_NUMBER * numbers,
        contends=candidate.contends,
    )


def _error(design: Design) -> tuple[float, float, str]:
    """Expected error of what is learned, from and to, and a word for it."""
    return _lost(design) if design.task == "pca" else _forecast(design)


def _forecast(design: Design) -> tuple[float, float, str]:
    told = forecast(design)
    return told.rsse_low - 1, told.rsse_high - 1, told.verdict


def _lost(design: Design) -> tuple[float, float, str]:
    told = pca_forecast(design)
    return told.lost / PCA_SCATTER, min(1.0, told.lost * PCA_SCATTER), told.verdict


def recommend(found: list[Alternative]) -> Alternative:
    """What is planned, or a contender that is much faster and as good."""
    contenders = [one for one in found if one.contends]
    same = SAME * min(one.high for one in contenders)
    chosen = next(one for one in contenders if one.high <= max(same, NEGLIGIBLE))
    for long, most in ((LONG, same), (VERY_LONG, max(same, NEGLIGIBLE))):
        good = [one for one in contenders if one.high <= most]
        fastest = min(good, key=lambda one: one.nanoseconds)
        if chosen.nanoseconds >= long and SAVING * fastest.nanoseconds <= chosen.nanoseconds:
            chosen = fastest
    return chosen


def _reasons(
    study: Mapping[str, Any], found: list[Alternative], recommended: Alternative
) -> Iterator[str]:
    """Why, in a few lines: what the error is made of, and what other choices would cost."""
    noise = recommended.noise
    if noise.total < math.inf:
        share = getattr(noise, noise.largest) / noise.total
        yield f"{share:.0%} of what blurs the sketch is {_PARTS[noise.largest]}"
    else:
        yield "no feature of this design sees records of a plausible spread"
    planned = found[0]
    if recommended is not planned:
        times = planned.nanoseconds / recommended.nanoseconds
        speed = f", {times:.1f} times as fast" if times > SAVING else ""
        yield f"against the plain plan: {_error_instead(recommended, planned)}{speed}"
    faster = [
        one
        for one in found
        if one.nanoseconds < recommended.nanoseconds / 1.5 and one.verdict == recommended.verdict
    ]
    if faster and recommended.verdict != "hopeless":
        as_good = [one for one in faster if one.high <= max(2 * recommended.high, NEGLIGIBLE)]
        if as_good:
            one = min(as_good, key=lambda one: one.nanoseconds)
        else:
            one = min(faster, key=lambda one: one.high)
        times = recommended.nanoseconds / one.nanoseconds
        yield f"faster: {one.name}, {times:.1f} times, {_error_instead(one, recommended)}"
    slower = [
        one.name
        for one in found
        if one.design.masks is not None and one.nanoseconds > 1.25 * planned.nanoseconds
    ]
    if slower:
        yield f"slower than no masks, drawing them takes more than they save: {', '.join(slower)}"
    yield from _more_private(study)
    yield from (f"careful: {text}" for text in cautions(recommended.design))


def _error_instead(one: Alternative, other: Alternative) -> str:
    return f"error up to {percent(one.high)} % instead of {percent(other.high)} %"


def _more_private(study: Mapping[str, Any]) -> Iterator[str]:
    """What a stricter budget would leave of the study."""
    budget: Budget = study["budget"]
    stricter = {f"epsilon = {budget.epsilon / 2:g}": (budget.epsilon / 2, budget.delta)}
    if budget.delta > 0:
        stricter["delta = 0"] = (budget.epsilon, 0.0)
    for name, (epsilon, delta) in stricter.items():
        try:
            design = plan_design(
                drawn=False, **{**study, "budget": replace(budget, epsilon=epsilon, delta=delta)}
            )
        except ParameterError:
            continue
        _, high, verdict = _error(design)
        yield (
            f"more private: {name} would be {verdict}, error up to {percent(high)} % "
            f"({design.n_features} features, {design.noise} noise)"
        )


@dataclass(frozen=True)
class Candidate:
    """A design, what is different about it, and whether it may be recommended.

    `Design.plan` has already weighed noise and sizes, by more than the forecast tells: larger
    sketches share sampling errors, and searches in smaller ones fail more often. What it does not
    weigh is time: structured frequencies and masks contend with what it chose, the others are for
    comparison.
    """

    name: str
    design: Design
    contends: bool = False


def candidates(study: Mapping[str, Any], rate: float) -> Iterator[Candidate]:
    """Designs for a study, keywords as in `Design.plan`; masks keep the given share."""
    planned = plan_design(**study, drawn=False)
    yield Candidate("planned", planned, contends=True)
    variants = _pca_variants(planned) if planned.task == "pca" else _cluster_variants(planned)
    for name, choices in variants:
        try:
            design = plan_design(drawn=False, **{**study, **choices})
        except ParameterError:
            continue  # too small for its components, or not to be had for this budget
        if _what(design) != _what(planned):
            yield Candidate(name, design, contends=name == STRUCTURED)
    yield from _masked(study, planned, rate)


def _what(design: Design) -> tuple[Any, ...]:
    return design.feature_map, design.frequencies.law, design.n_features, design.noise


def _other_noises(planned: Design) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in NOISE_KINDS:
        if kind != planned.noise and (kind != "gaussian" or planned.budget.delta > 0):
            yield f"{kind} noise", {"noise": kind}


def _cluster_variants(planned: Design) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _other_noises(planned)
    same, size = {"noise": planned.noise}, planned.n_features
    yield "half the features", {**same, "n_features": size // 2}
    yield "twice the features", {**same, "n_features": 2 * size}
    yield "one-bit features", {**same, "n_features": size, "feature_map": "one-bit"}
    if planned.dim <= MAX_CELL_COLUMNS:
        yield "cells of a grid", {"feature_map": "cells"}
    fast = {**same, "frequencies": "structured"}
    yield STRUCTURED, {**fast, "n_features": size}
    yield "twice as many structured ones", {**fast, "n_features": 2 * size}


def _pca_variants(planned: Design) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _other_noises(planned)
    same = {"noise": planned.noise}
    yield "all second moments", {**same, "feature_map": "second-moments"}
    each = planned.n_components * planned.dim
    for factor in PCA_SIZES:
        choices = {**same, "feature_map": "quadratic", "n_features": factor * each}
        yield f"{factor} features per component and column", choices


def _masked(study: Mapping[str, Any], planned: Design, rate: float) -> Iterator[Candidate]:
    """Every kind of masks, with the noise that is least under it."""
    block = planned.frequencies.block_size(planned.dim)
    for strategy, name in _MASK_NAMES.items():
        if planned.feature_map == "second-moments" and strategy != "records":
            continue  # a matrix is released whole
        base = planned
        if strategy == "block" and planned.n_features % block:
            whole = block * math.ceil(planned.n_features / block)
            base = plan_design(
                drawn=False, **{**study, "noise": planned.noise, "n_features": whole}
            )
        masks = masks_at_rate(strategy, rate, base.n_features, block)
        found = []
        for kind in NOISE_KINDS:
            try:
                found.append(replace(base, masks=masks, noise=kind))
            except ParameterError:
                continue  # no proof for this combination, or not for this budget
        if found:
            least = min(found, key=lambda one: one.noise_std)
            yield Candidate(name, least, contends=True)


def masks_at_rate(name: str, rate: float, n_features: int, block: int) -> Masks | None:
    """The masks of a strategy that use about this share of the work; None for none.

    "combined" shares the rate between Poisson features and records. Block masks are whole
    blocks of `block` features, so that the rate is the next one that fits.
    """
    if name == "uniform":
        return Masks("uniform", kept=max(1, round(rate * n_features)))
    if name == "block":
        return Masks("block", kept=block * max(1, round(rate * n_features / block)))
    if name == "poisson":
        return Masks("poisson", rate=rate)
    if name == "records":
        return Masks(records=rate)
    if name == "combined":
        each = float(f"{math.sqrt(rate):.3g}")  # a number that people can type
        return Masks("poisson", rate=each, records=each)
    return None
