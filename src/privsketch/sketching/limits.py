"""What no sketch of a design can be: sums that its number of records does not allow.

A record adds a bounded integer to every sum, so n records add at most n times as much, and the
noise has a known law. A sketch beyond that was not made by its design: somebody has multiplied it,
mixed up numbers, or made it up. Honest sketches, those of no record among them, are refused with
a chance below `REFUSAL_CHANCE` each, over the noise alone and whatever the records are.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammainccinv

from privsketch._base.errors import MergeError
from privsketch._base.formats import INSECURE
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.facts.domain import Ball
from privsketch.features.cells import CellContribution
from privsketch.features.fixedpoint import RECORD_MAX
from privsketch.features.maps import TableContribution
from privsketch.features.moments import DIAGONAL, MOMENT_RADIUS, OFF_DIAGONAL, moment_weights
from privsketch.features.quadratic import QuadraticContribution
from privsketch.features.taxicab import Taxicab, TaxicabContribution, triangle_weights
from privsketch.noise.mechanism import NoiseLaw
from privsketch.noise.sums import MAX_RECORDS
from privsketch.sketching.sketch import Sketch

REFUSAL_CHANCE = 1e-12  # chance that an honest sketch is refused, over its noise
_TABLE_ERROR = 1e-3  # of a cosine in the table, from above (features/waves.py)
_FLAT = 0.2  # cosine at the edge of the domain from which on a feature bounds the count
_ROUNDED_UP = 1.01  # scales that samplers draw at, over those of the law, from above


def require_possible(sketch: Sketch) -> None:
    """Refuse a sketch that its design cannot make of any records."""
    reason = why_impossible(sketch)
    if reason is not None:
        names = ", ".join(repr(source) for source in sketch.sources[:3])
        more = " and others" if len(sketch.sources) > 3 else ""
        raise MergeError(
            f"the sketch of source {names}{more} cannot come from records: {reason}. It was "
            "changed, or not made by this design; ask for it again"
        )


def why_impossible(sketch: Sketch) -> str | None:
    """Describe what no records can have led to in a sketch; None if there is nothing."""
    design, noise = sketch.design, sketch.design.sum_noise
    reach = _reach(sketch, noise.sums_law)
    count_reach = reach if noise.count_law is None else _reach(sketch, noise.count_law)
    values = sketch.values.astype(np.float64)
    most, least = MAX_RECORDS * float(sum(sketch.weights)), 0.0
    if design.count == "released":
        most = min(most, (values[-1] + count_reach) / noise.count_weight)
        least = (values[-1] - count_reach) / noise.count_weight
        if most < 0:
            return "its number of records is below zero, beyond what noise does"
    elif sketch.exact_count is not None:
        most = least = float(sketch.exact_count)
    if least > MAX_RECORDS * float(sum(sketch.weights)):
        return "its number of records is beyond any"
    low, high = _sum_bounds(design, values[: design.n_values], reach, most, max(least, 0.0))
    # Sums that ride on floats of 64 bits: a last digit is no proof of anything.
    slack = reach + 1e-9 * (np.abs(low) + np.abs(high)) + 1
    sums = values[: design.n_values]
    if bool(((sums < low - slack) | (sums > high + slack)).any()):
        return "its sums are larger than its number of records allows"
    if design.mapping.has_table:
        largest = math.sqrt(design.mapping.bounds.l2_squared) * noise.factor
        moduli = np.hypot(*sums.reshape(2, -1))
        if bool((moduli > largest * most + math.sqrt(2) * slack.max()).any()):
            return "its sums are larger than its number of records allows"
    if noise.mean_weight:
        means = values[design.n_values : design.n_values + design.dim]
        if bool((np.abs(means) > noise.mean_weight * RECORD_MAX * most + slack.max()).any()):
            return "its mean lies outside of the domain"
    return _multiplied(sketch)


def _reach(sketch: Sketch, law: NoiseLaw) -> float:
    """Return a bound that no noise in the sketch exceeds, but for the chance of a false alarm."""
    draws = len(sketch.ids) + sum(total.n_tellers for total in sketch.shared)
    chance = REFUSAL_CHANCE / (4 * draws)
    own = sketch.releases_apart()
    reach = sum(own.weights) * _one_reach(law, chance)
    for total, weight in zip(sketch.shared, own.shared_weights, strict=True):
        if total.by == "holders":  # subgaussian noises add up to one
            each = math.sqrt(total.turnout / total.needed) * _one_reach(law, chance)
        else:
            floor = total.floor(law, sketch.design.sum_noise)
            each = total.n_tellers * _one_reach(law, chance)
            each += total.turnout * _one_reach(floor, chance)
        reach += weight * each
    return reach


def _one_reach(law: NoiseLaw, chance: float) -> float:
    """Return this bound for one noise, drawn at a scale near that of its law."""
    if law.kind == "none":
        return 0.0
    if law.kind == "gaussian":  # subgaussian (Canonne, Kamath and Steinke 2020)
        one = law.scale * math.sqrt(2 * math.log(2 * law.n_components / chance))
    elif law.kind == "laplace":
        one = law.scale * math.log(2 * law.n_components / chance)
    else:  # the largest number is a sum of n + 1 geometric ones
        one = law.scale * float(gammainccinv(law.n_components + 1, chance)) + law.n_components
    return one * _ROUNDED_UP + 2


def _sum_bounds(
    design: Design, sums: Floats, reach: float, most: float, least: float
) -> tuple[Floats, Floats]:
    """Return (n_values,) between which exact sums lie, for `least` to `most` records."""
    contribution, factor = design.contribution, design.sum_noise.factor
    if isinstance(contribution, QuadraticContribution):
        high = factor * np.array(contribution.per_feature, dtype=np.float64) * most
        return np.zeros(len(high)), high
    if isinstance(contribution, CellContribution):
        return np.zeros(len(sums)), np.full(len(sums), factor * most)
    if isinstance(contribution, TaxicabContribution):
        return _taxicab_bounds(contribution.layout, factor, sums, reach, most, least)
    if not isinstance(contribution, TableContribution):
        on_diagonal = moment_weights(design.dim) == DIAGONAL
        squares = factor * float(MOMENT_RADIUS**2) * most
        high = np.where(on_diagonal, DIAGONAL * squares, OFF_DIAGONAL * squares / 2)
        return np.where(on_diagonal, 0.0, -high), high
    largest = float(design.mapping.bounds.linf * factor)
    flat = np.full(design.n_features, -1.0)
    if design.feature_map == "fourier" and design.masks is None:
        flat = _least_cosines(design) - _TABLE_ERROR
        # A wave that is flat over the whole domain counts records.
        counts = flat > _FLAT
        if counts.any():
            unit = factor * design.mapping.amplitude * flat[counts]
            cosines = sums[: design.n_features][counts]
            most = min(most, max(float(np.min((cosines + reach) / unit)), 0.0))
    high = np.full(len(sums), largest * most)
    low = -high
    known = factor * design.mapping.amplitude * flat
    bounded = flat > -1
    cosines = np.where(flat > 0, known * least, known * most)
    low[: design.n_features][bounded] = np.maximum(low[: design.n_features], cosines)[bounded]
    return low, high


def _taxicab_bounds(
    layout: Taxicab, factor: int, sums: Floats, reach: float, most: float, least: float
) -> tuple[Floats, Floats]:
    """Return `_sum_bounds` of taxicab moments: their first number counts records."""
    weights = factor * np.concatenate([[layout.intercept], layout.weights]).astype(np.float64)
    first, second = np.triu_indices(len(weights))
    largest = triangle_weights(len(weights)) * weights[first] * weights[second] / factor
    most = min(most, max((float(sums[0]) + reach) / float(largest[0]), 0.0))
    low = np.where(first == second, 0.0, -largest * most)
    low[0] = largest[0] * least
    return low, largest * most


def _least_cosines(design: Design) -> Floats:
    """Return (n_features,) the least cosine of any record of the domain, for each feature."""
    radians, half = design.radians(), design.domain.half_widths
    if isinstance(design.domain, Ball):
        phases = np.sqrt(np.square(radians).sum(axis=1)) * float(half[0])
    else:
        phases = np.abs(radians) @ half
    return np.where(phases < math.pi, np.cos(np.minimum(phases, math.pi)), -1.0)


def _multiplied(sketch: Sketch) -> str | None:
    """Return whether all numbers are multiples of one: noise has no common divisor."""
    law, noise = sketch.design.sum_noise.sums_law, sketch.design.sum_noise
    if sketch.receipt.sampler.startswith(INSECURE):
        return None
    values = sketch.values[:-1] if noise.count_law is not None else sketch.values
    # Unsigned: the least number of 64 bits has no absolute value among them.
    divisor = int(np.gcd.reduce(np.abs(values).astype(np.uint64)))
    if divisor == 0:
        divisor = math.floor(law.scale)
    divisor //= math.gcd(*sketch.weights)
    if divisor < 2:
        return None
    if law.kind == "laplace":
        # (1 - a) / (1 + a) times the sum of a^|z| over z = r mod divisor, a = exp(-1 / scale), is
        # largest at r = 0.
        chance = math.tanh(0.5 / law.scale) / math.tanh(0.5 * divisor / law.scale)
    elif law.scale >= divisor / 2:  # a number is then a multiple with a chance below this
        chance = 1.5 / divisor
    else:
        return None
    if len(values) * math.log(chance) > math.log(REFUSAL_CHANCE / 4):
        return None
    return f"all of its numbers are multiples of {divisor}"
