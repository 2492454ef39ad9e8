"""Designs for one study side by side: accuracy, time and size of each, and a recommendation.

The comparison uses public facts only and reads no record. Candidates differ in noise, size, map,
frequencies and masks. Each has its noise-to-signal ratio (CLP Lemma 26), forecast error, sketching
time and sketch size.

The first candidate is the design that `Design.plan` returns. Combinations that `Design` refuses,
because the budget does not allow them or no proof covers them, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from privsketch._base.errors import ParameterError
from privsketch.design.cautions import cautions
from privsketch.design.forecast import expected_noise
from privsketch.design.noise_to_signal import NoiseToSignal
from privsketch.design.pca import LOSS_SCATTER, PCAForecast
from privsketch.design.plan import plan_design
from privsketch.design.recipe import Design
from privsketch.design.regression import LOSS_SCATTER as REGRESSION_SCATTER
from privsketch.design.regression import RegressionForecast
from privsketch.facts.budget import Budget
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.maps import SUPERVISED
from privsketch.features.masks import Masks
from privsketch.noise.mechanism import NOISE_KINDS

SAME_ERROR = 1.1  # errors within this factor of the least count as equal
NEGLIGIBLE_ERROR = 0.01
# Nanoseconds per record above which a faster design of equal error is better, and those above which
# a faster design of negligible error is.
LONG_TIME, VERY_LONG_TIME = 5000.0, 50_000.0
MIN_SPEEDUP = 2.0  # smallest speed-up that counts as faster
BYTES_PER_NUMBER = 8  # int64 in a sketch file (docs/format.md)
_PART_TEXTS = {
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
    """A design with its expected accuracy, time and size.

    Attributes
    ----------
    name : str
        How it differs from the planned design.
    design : Design
    noise : NoiseToSignal
        Parts of the expected noise-to-signal ratio.
    low, high : float
        Range of the expected error: the squared error of centers over that without privacy, less
        1, or the share of variance that principal components lose, or of what the columns explain
        of a target.
    verdict : str
        "good", "rough" or "hopeless".
    nanoseconds : float
        Time per record, on one core.
    size : int
        Bytes of the released numbers.
    contends : bool
        Whether it may be recommended. `Design.plan` chooses noise and size by more than the
        forecast: larger sketches share sampling errors, and searches in smaller ones fail more
        often. It ignores time, so only structured frequencies and masks contend with its choice.
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
        """Return the options of `privsketch design` that select this design."""
        design, is_matrix = self.design, self.design.feature_map == "second-moments"
        options = {
            "--feature-map": design.feature_map,
            "--frequencies": design.frequencies.law,
            "--features": None if design.task in SUPERVISED or is_matrix else design.n_features,
            "--noise": design.noise,
            "--masks": masks_text(design),
        }
        schema = design.schema
        law = "multi-scale" if schema is None or schema.is_smooth else "mixed"
        defaults = (None, "fourier", law, "none")
        stated = {name: value for name, value in options.items() if value not in defaults}
        return " ".join(f"{name} {value}" for name, value in stated.items())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with None for infinity."""
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
class DesignComparison:
    """Alternatives for one study, the planned design first, and the recommended one."""

    alternatives: tuple[Alternative, ...]
    recommended: Alternative
    reasons: tuple[str, ...]


def percent(share: float) -> str:
    """Format a share in percent with two significant digits and no exponent."""
    value = 100 * share
    if not 0 < value < math.inf:
        return f"{value:g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f}"


def masks_text(design: Design) -> str:
    """Format masks in the syntax of `Design.plan`."""
    masks = design.masks
    if masks is None:
        return "none"
    number = masks.kept if masks.rate is None else repr(masks.rate)
    parts = [] if number is None else [f"{masks.features}:{number}"]
    return "+".join(parts + ([f"records:{masks.records!r}"] if masks.records < 1 else []))


def alternatives(
    study: Mapping[str, Any], cost: Callable[[Design], float], *, rate: float = 0.1
) -> DesignComparison:
    """Compare designs for a study, given by the keywords of `Design.plan`.

    `cost` returns the nanoseconds per record of a design (`sketching.cost.design_cost`); masks keep
    the share `rate`.
    """
    if not 0 < rate < 1:
        raise ParameterError("rate", rate, "expected a share of features between 0 and 1")
    # The comparison does not depend on which frequencies are drawn.
    study = {"random_state": 0, "drawn": False, **study}
    # The default number of records depends on the budget: use the same one for all candidates.
    planned = plan_design(**study)
    study["n_records"] = planned.n_records
    choices = [
        _alternative(name, design, cost, contends=contends)
        for name, design, contends in _candidates(study, planned, rate)
    ]
    recommended = recommend(choices)
    return DesignComparison(
        tuple(choices), recommended, tuple(_reasons(study, choices, recommended))
    )


def _alternative(
    name: str, design: Design, cost: Callable[[Design], float], *, contends: bool
) -> Alternative:
    """Return a design with its expected accuracy, time and size."""
    low, high, verdict = _expected_error(design)
    noise = design.sum_noise
    n_numbers = noise.sums_law.n_components + (noise.count_law is not None)
    return Alternative(
        name=name,
        design=design,
        noise=expected_noise(design),
        low=low,
        high=high,
        verdict=verdict,
        nanoseconds=cost(design),
        size=BYTES_PER_NUMBER * n_numbers,
        contends=contends,
    )


def _expected_error(design: Design) -> tuple[float, float, str]:
    """Return the range of the expected error of one holder's sketch, and its verdict."""
    forecast = design.forecast(n_holders=1)
    if isinstance(forecast, PCAForecast):
        low, high = forecast.lost / LOSS_SCATTER, min(1.0, forecast.lost * LOSS_SCATTER)
        return low, high, forecast.verdict
    if isinstance(forecast, RegressionForecast):
        scatter = REGRESSION_SCATTER
        return forecast.lost / scatter, min(1.0, forecast.lost * scatter), forecast.verdict
    return forecast.rsse_low - 1, forecast.rsse_high - 1, forecast.verdict


def recommend(choices: list[Alternative]) -> Alternative:
    """Return the planned design, or a contender that is much faster and as good."""
    contenders = [choice for choice in choices if choice.contends]
    same = SAME_ERROR * min(choice.high for choice in contenders)
    acceptable = max(same, NEGLIGIBLE_ERROR)
    best = next(choice for choice in contenders if choice.high <= acceptable)
    for min_time, max_error in ((LONG_TIME, same), (VERY_LONG_TIME, acceptable)):
        good = [choice for choice in contenders if choice.high <= max_error]
        fastest = min(good, key=attrgetter("nanoseconds"))
        if best.nanoseconds >= min_time and MIN_SPEEDUP * fastest.nanoseconds <= best.nanoseconds:
            best = fastest
    return best


def _reasons(
    study: Mapping[str, Any], choices: list[Alternative], recommended: Alternative
) -> Iterator[str]:
    """Yield a line about each source of error and about what other choices would cost."""
    noise = recommended.noise
    if noise.total < math.inf:
        share = getattr(noise, noise.largest) / noise.total
        yield f"{share:.0%} of what blurs the sketch is {_PART_TEXTS[noise.largest]}"
    else:
        yield "no feature of this design sees records of a plausible spread"
    planned = choices[0]
    if recommended is not planned:
        speedup = planned.nanoseconds / recommended.nanoseconds
        speed = f", {speedup:.1f} times as fast" if speedup > MIN_SPEEDUP else ""
        yield f"against the plain plan: {_compare_errors(recommended, planned)}{speed}"
    faster = [
        choice
        for choice in choices
        if choice.nanoseconds < recommended.nanoseconds / 1.5
        and choice.verdict == recommended.verdict
    ]
    if faster and recommended.verdict != "hopeless":
        max_error = max(2 * recommended.high, NEGLIGIBLE_ERROR)
        as_good = [choice for choice in faster if choice.high <= max_error]
        best = min(as_good or faster, key=attrgetter("nanoseconds" if as_good else "high"))
        speedup = recommended.nanoseconds / best.nanoseconds
        yield f"faster: {best.name}, {speedup:.1f} times, {_compare_errors(best, recommended)}"
    slower = [
        choice.name
        for choice in choices
        if choice.design.masks is not None and choice.nanoseconds > 1.25 * planned.nanoseconds
    ]
    if slower:
        yield f"slower than no masks, drawing them takes more than they save: {', '.join(slower)}"
    yield from _more_private(study)
    yield from (f"careful: {text}" for text in cautions(recommended.design))


def _compare_errors(choice: Alternative, other: Alternative) -> str:
    return f"error up to {percent(choice.high)} % instead of {percent(other.high)} %"


def _more_private(study: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line about the study under each stricter budget."""
    budget: Budget = study["budget"]
    stricter = {f"epsilon = {budget.epsilon / 2:g}": replace(budget, epsilon=budget.epsilon / 2)}
    if budget.delta > 0:
        stricter["delta = 0"] = replace(budget, delta=0.0)
    for name, smaller_budget in stricter.items():
        try:
            design = plan_design(**{**study, "budget": smaller_budget})
        except ParameterError:
            continue
        _, high, verdict = _expected_error(design)
        yield (
            f"more private: {name} would be {verdict}, error up to {percent(high)} % "
            f"({design.n_features} features, {design.noise} noise)"
        )


def _candidates(
    study: Mapping[str, Any], planned: Design, rate: float
) -> Iterator[tuple[str, Design, bool]]:
    """Yield the name of each candidate, its design, and whether it may be recommended."""
    yield "planned", planned, True
    variants = _cluster_variants(planned)
    if planned.task in SUPERVISED:
        variants = _regression_variants(planned)
    elif planned.task == "pca":
        variants = _pca_variants(planned)
    for name, choices in variants:
        try:
            design = plan_design(**{**study, **choices})
        except ParameterError:
            continue  # the sketch is too small, or the budget does not allow it
        if _main_choices(design) != _main_choices(planned):
            yield name, design, name == STRUCTURED
    yield from _masked(study, planned, rate)


def _main_choices(design: Design) -> tuple[Any, ...]:
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


def _regression_variants(planned: Design) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _other_noises(planned)
    if planned.feature_map == "taxicab":
        yield "second moments of a ball", {"feature_map": "second-moments"}


def _pca_variants(planned: Design) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _other_noises(planned)
    same = {"noise": planned.noise}
    yield "all second moments", {**same, "feature_map": "second-moments"}
    unit = planned.n_components * planned.dim
    for factor in PCA_SIZES:
        choices = {**same, "feature_map": "quadratic", "n_features": factor * unit}
        yield f"{factor} features per component and column", choices


def _masked(
    study: Mapping[str, Any], planned: Design, rate: float
) -> Iterator[tuple[str, Design, bool]]:
    """Yield a candidate for each kind of masks, with the smallest noise that it allows."""
    block = planned.frequencies.block_size(planned.dim)
    for strategy, name in _MASK_NAMES.items():
        is_whole = planned.feature_map in ("second-moments", "taxicab")
        if is_whole and strategy != "records":
            continue  # second moments are released as a whole
        base = planned
        if strategy == "block" and planned.n_features % block:
            whole = block * math.ceil(planned.n_features / block)
            base = plan_design(**{**study, "noise": planned.noise, "n_features": whole})
        masks = masks_at_rate(strategy, rate, base.n_features, block)
        designs = []
        for kind in NOISE_KINDS:
            try:
                designs.append(replace(base, masks=masks, noise=kind))
            except ParameterError:
                continue  # no proof covers it, or the budget does not allow it
        if designs:
            yield name, min(designs, key=attrgetter("noise_std")), True


def masks_at_rate(name: str, rate: float, n_features: int, block: int) -> Masks | None:
    """Return the masks of a strategy that keep about this share of the work; None for "none".

    "combined" splits the rate between Poisson features and records. Block masks keep whole blocks
    of `block` features, at the nearest rate that fits.
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
        half = float(f"{math.sqrt(rate):.3g}")  # a number that people can type
        return Masks("poisson", rate=half, records=half)
    return None
