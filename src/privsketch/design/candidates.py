"""Designs to compare for one study: other noise, sizes, maps, frequencies, and masks.

The first is what `Design.plan` makes. Combinations that the budget does not allow, or that
no proof covers, are left out: `Design` refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from privsketch.design.recipe import Design
from privsketch.design.subsampling import masks_at_rate
from privsketch.errors import ParameterError
from privsketch.noise.mechanism import NOISE_KINDS

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
class Candidate:
    """A design, what is different about it, and whether it may be recommended.

    `Design.plan` has already weighed noise and sizes, by more than the forecast tells: larger
    sketches share sampling errors, searches in smaller ones fail more often, and harmonics of
    signs disturb fits (seed mixture, pure epsilon = 0.2: squared error 1.025 with signs, 1.016
    without, where forecasts say the reverse). What it does not weigh is time: structured
    frequencies and masks contend with what it chose, the others are for comparison.
    """

    name: str
    design: Design
    contends: bool = False


def candidates(study: Mapping[str, Any], rate: float) -> Iterator[Candidate]:
    """Designs for a study, keywords as in `Design.plan`; masks keep the given share."""
    planned = Design.plan(**study)
    yield Candidate("planned", planned, contends=True)
    variants = _pca_variants(planned) if planned.task == "pca" else _cluster_variants(planned)
    for name, choices in variants:
        try:
            design = Design.plan(**{**study, **choices})
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
            base = Design.plan(**{**study, "noise": planned.noise, "n_features": whole})
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
