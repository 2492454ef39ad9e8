"""Planners: choose the size, noise, frequencies and count of a design.

Each kind of feature map has a planner, a function of a `Request`: `plan_waves` here for Fourier and
one-bit features, `plan_grid` in cells.py, `plan_components` in pca.py, `plan_regression` in
regression.py.

The rest of this file chooses the scales of the frequencies. The width of clusters is not known. A
law of frequencies serves widths in proportion to the share of features near them
(features/radii.py). A wide range therefore costs every width a little, and a width outside the
range costs the squared ratio to its end. The law of least regret has

1. a main band where clusters are likely. It runs from the widest scale down to where k clusters
   that fill the domain can be told apart, whose distances shrink like k^(-1/d);
2. a tail: a share q of the features on finer scales, for clusters far tighter than the domain
   suggests. With a chance p of such clusters, F and R the ranges of band and tail, the expected
   error (1 - p) ln F / (1 - q) + p ln R / q is least at
   q / (1 - q) = sqrt(p ln R / ((1 - p) ln F)), whatever the noise is;
3. a finest scale that depends on the noise: the tail ends where the forecast for clusters in it
   would no longer be good. There is no tail if that forecast is never good, as with strong noise,
   or if the main band cannot spare the features.
"""

from __future__ import annotations

import math
from typing import Any

from privsketch.design.cells import plan_grid
from privsketch.design.forecast import expected_harmonics, expected_range
from privsketch.design.mixed import MixedSpace
from privsketch.design.pca import plan_components
from privsketch.design.recipe import Design
from privsketch.design.regression import plan_regression
from privsketch.design.request import Request
from privsketch.design.size import (
    center_error,
    choose_count,
    choose_size,
    kmeans_unknowns,
    noise_variance,
)
from privsketch.facts.domain import Box, Domain
from privsketch.features.cells import MAX_CELL_COLUMNS
from privsketch.features.hadamard import block_size as structured_size
from privsketch.features.maps import SUPERVISED, FeatureMap
from privsketch.features.maps import feature_map as map_named
from privsketch.features.radii import RadialLaw, Tail

# Expected relative loss of waves to noise above which cells are planned instead. Waves can resolve
# clusters of any width if noise permits, a grid only those as wide as its cells. In 221 random
# studies of up to 8 columns (benchmarks/worlds.py) this rule cost 1.07 times the better of both on
# average, waves alone 1.33 (268 in one study), grids alone 1.21 (106 in one).
MAX_WAVE_LOSS = 0.05
MIXED_LEAST_SHARE = 0.5  # of the features, with the law "mixed" and pure noise
# Widest scale over the domain's half-width. Frequencies of this scale turn about once over the
# domain: they locate the records as a whole.
WIDEST_SCALE = 0.5
# Widest over finest scale of the main band: at least, and per k^(1/d). Touching clusters in a
# quarter of the domain are 1 / (6 k^(1/d)) half-widths wide, twice the end of the band. The tail
# serves much tighter ones: it costs less than a band as wide.
MAIN_RANGE = 16.0
MAIN_RANGE_PER_CLUSTER = 6.0
# Shares of the tail by the formula above, if 8 % of studies in few columns have such clusters, and
# 3 % of others. In many columns the domain says more about the width of clusters.
FEW_COLUMNS, TAIL_SHARE_OF_FEW, TAIL_SHARE = 3, 0.2, 0.125
# Largest factor by which a tail may raise the error of clusters in the main band: 1.25 and 1.14 for
# these shares, and a reserve because fewer features fit the unknowns. A tail then needs about five
# features per unknown: with four, correlated clusters under pure noise lost more than a quarter.
MAX_COST_OF_FEW, MAX_COST = 1.35, 1.17
TAIL_RANGES = (8.0, 4.0)  # candidates, in order; the main band covers shorter ones
# Largest excess of clusters in the tail: half of that of a good forecast, whose range extends to
# twice the expectation.
MAX_TAIL_EXCESS = 0.075
# Widest over finest scale. Frequencies are 16-bit integers, and the lowest need several units. The
# finest scale is then eight units of a quantised record.
LARGEST_RANGE = 2048.0


def plan_design(**parameters: Any) -> Design:
    """Return the design for a `Request` with these parameters, without warnings.

    `Design.plan` documents the parameters.
    """
    request = Request(**parameters)
    if request.task == "pca":
        return plan_components(request)
    if request.task in SUPERVISED:
        return plan_regression(request)
    if request.feature_map == "cells":
        return plan_grid(request)
    waves = plan_waves(request)
    is_smooth = request.schema is None or request.schema.is_smooth
    if request.is_map_open and is_smooth and _loses_to_cells(waves):
        return plan_grid(request)
    return waves


def _loses_to_cells(waves: Design) -> bool:
    """Return whether cells are expected to have a smaller error than the planned waves."""
    has_few_columns = isinstance(waves.domain, Box) and waves.dim <= MAX_CELL_COLUMNS
    if waves.task != "kmeans" or not has_few_columns:
        return False
    least, _ = expected_range(waves, waves.n_records)
    return least > 1 + MAX_WAVE_LOSS


def plan_waves(request: Request) -> Design:
    """Plan Fourier or one-bit features."""
    k, domain, budget, masks = request.n_components, request.domain, request.budget, request.masks
    n_features, law = request.n_features, request.frequencies or "multi-scale"
    mapping = map_named(request.feature_map or "fourier")
    largest, n_unknowns = request.largest_size
    block = structured_size(request.dim) if law == "structured" else request.dim
    if masks is not None:
        if n_features is None and masks.kept is not None:
            n_features = -(-largest // block) * block
        masks.checked(n_features or largest, block if n_features else 1)
    n_records = request.public_size(n_features or largest)
    total = n_records * (request.n_holders or 1)
    is_smooth = request.schema is None or request.schema.is_smooth
    harmonics = _harmonics(request, mapping, law, total)
    size = choose_size(
        largest=largest,
        n_unknowns=n_unknowns,
        n_features=n_features,
        feature_map=mapping,
        budget=budget,
        noise=request.noise,
        count=request.count or ("public" if budget.neighbours == "replace" else "released"),
        n_records=total,
        masks=masks,
        noise_ratio=request.noise_ratio,
        harmonics=harmonics,
        least_share=_least_share(request, is_smooth),
    )
    if n_features is None:
        n_features = size.n_features
        if law == "structured" and n_features > block:
            n_features = -(-n_features // block) * block  # a part of a block costs as much
    count = request.count or choose_count(mapping, n_features, budget, size.noise, total, masks)
    scales: tuple[float, float] | RadialLaw | None = request.frequency_scale
    if scales is None:
        variance = noise_variance(mapping, n_features, budget, size.noise, count, total, masks)
        scales = default_radii(
            domain,
            k,
            n_features=n_features,
            n_records=total,
            # A phasor has a variance of at most 1, half of it along each axis.
            variance=request.noise_ratio * variance + total / 2 + harmonics,
            space=request.space,
            is_smooth=is_smooth,
        )
    return request.design(
        feature_map=mapping.name,
        frequencies=request.draw(
            law, n_features, scales, dithered=mapping.dithered, drawn=request.drawn
        ),
        noise=size.noise,
        count=count,
        n_records=n_records,
    )


def _least_share(request: Request, is_smooth: bool) -> float:
    """Return the least size of a sketch with labels, relative to the largest.

    With pure noise, a small sketch has less of it, but loses shapes of clusters. Isotropic
    frequencies need all features: in eight studies these gave 1.08 to 1.20 times the cost of
    k-means, fewer ones 1.10 to 1.42. With the law "mixed", shares in nine studies were off by 3.6
    points (rms) with all features, and by 2.8 with half of them or a third; a third raised the cost
    in three of them.
    """
    if is_smooth:
        return 0.0
    return 1.0 if request.space is None else MIXED_LEAST_SHARE


def _harmonics(request: Request, mapping: FeatureMap, law: str, n_records: float) -> float:
    """Return the variance that harmonics of one-bit features add, as a search sees it."""
    if not mapping.dithered:
        return 0.0
    domain, space = request.domain, request.space
    if request.frequency_scale is None:
        numbers = None if space is None else space.numbers
        radii = main_band(numbers or domain, request.n_components)
    else:
        radii = RadialLaw(request.frequency_scale).checked()
    return expected_harmonics(law, radii, domain, request.n_components, n_records, space=space)


def main_band(domain: Domain, n_components: int) -> RadialLaw:
    """Return the scales of likely clusters, which depend neither on the noise nor on the size."""
    dim = len(domain.half_widths)
    high = WIDEST_SCALE * domain.spread
    ratio = max(MAIN_RANGE, MAIN_RANGE_PER_CLUSTER * n_components ** (1.0 / dim))
    return RadialLaw((high / min(ratio, LARGEST_RANGE), high))


def default_radii(
    domain: Domain,
    n_components: int,
    *,
    n_features: int,
    n_records: float,
    variance: float,
    space: MixedSpace | None = None,
    is_smooth: bool = True,
) -> RadialLaw:
    """Return the radial law for clusters of unknown width.

    Parameters
    ----------
    n_features, n_records
        Size of the sketch, and public order of magnitude of the number of records.
    variance : float
        Variance of noise and sampling per real component of the sums, in squared records.
    space : MixedSpace, optional
        Numbers and labels of a table, for the law "mixed": the law is then that of the numbers.
    is_smooth : bool
        False if records have labels that isotropic frequencies read. Clusters are then points
        without a width, which fine scales would separate, and there is no tail.
    """
    n_free_shares = 0
    if space is not None:
        if space.numbers is None:
            return main_band(domain, n_components)  # of the box; no frequency depends on it
        domain, n_free_shares, is_smooth = space.numbers, space.n_free_shares, True
        variance /= space.energy()
    dim = len(domain.half_widths)
    main = main_band(domain, n_components)
    end, high = main.scales
    has_few = dim <= FEW_COLUMNS
    share, cost = (TAIL_SHARE_OF_FEW, MAX_COST_OF_FEW) if has_few else (TAIL_SHARE, MAX_COST)

    def error(law: RadialLaw, width: float) -> float:
        return center_error(
            n_components=n_components,
            dim=dim,
            n_records=n_records,
            n_features=n_features,
            variance=variance,
            n_unknowns=kmeans_unknowns(n_components, dim + n_free_shares),
            band=law.band_share(width),
            squared_band=law.squared_band_share(width),
        )

    likely = math.sqrt(end * high)
    for ratio in TAIL_RANGES if is_smooth else ():
        law = RadialLaw((end / ratio, high), Tail(share, end))
        if (
            high / law.scales[0] <= LARGEST_RANGE
            and error(law, end / math.sqrt(ratio)) <= MAX_TAIL_EXCESS  # in the middle of the tail
            and error(law, likely) <= cost * error(main, likely)
        ):
            return law
    return main
