"""What sketching takes: nanoseconds per record and core, from a small model.

Reading and quantising a record costs the same for every sketch; then every feature has
its price. A dense kernel multiplies by every column, structured frequencies by a logarithm
of them. Leaving out records saves all the work for them. Masks of whole blocks save the work
for the others but draw and list blocks, which pays from about twenty columns on.
Scattered masks save nothing: the whole sketch is computed, and secret random numbers,
drawn from the operating system for every feature of every record, say what of it counts.

The constants are those of one machine and one core; ratios carry over better than times. Plans
choose by them, since a plan must not depend on where it is made; what a sketch takes on the machine
at hand is measured by `sketching/estimate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privsketch.design.recipe import Design
from privsketch.features.hadamard import block_size
from privsketch.features.masks import Masks


@dataclass(frozen=True)
class CostModel:
    """Nanoseconds, of one core with AVX-512.

    benchmarks/speed.py: `quantise`, `fourier`, `one_bit`, `column`, at 2 to 256 columns.
    benchmarks/masks.py: all others, at 10, 64 and 1024 columns, within 50 %; `quadratic`,
    `product` and `coarse` from the same measurement of designs for principal components.

    Attributes
    ----------
    quantise : float
        A value of a record into fixed point.
    fourier, one_bit, quadratic : float
        A feature, apart from its product with the record.
    column : float
        A multiplication of that product, dense frequencies.
    transform, level : float
        The same by fast transforms: a feature, and a feature at each level.
    table, table_column : float
        A feature of another package's map, which NumPy looks up, and a multiplication for it:
        43 and 69 ns a feature at 10 and 64 columns.
    product, coarse : float
        An entry of the second-moment matrix, and a value of a record for it.
    cell, cell_column : float
        A record that is counted in its cell, and a column of it.
    uniform_pick, uniform_mask, poisson_mask : float
        Secret random numbers for a feature that is kept, and bits for one that may be.
    block_pick, block_mask, gather : float
        The same for a block, and a value of a record that is moved to a structured block.
    record_draw : float
        That for a record.
    """

    quantise: float = 0.35
    fourier: float = 0.088
    one_bit: float = 0.043
    quadratic: float = 0.11
    column: float = 0.009
    transform: float = 0.15
    level: float = 0.026
    table: float = 38.0
    table_column: float = 0.48
    product: float = 0.08
    coarse: float = 1.8
    cell: float = 1.0
    cell_column: float = 2.0
    uniform_pick: float = 30.0
    uniform_mask: float = 5.5
    poisson_mask: float = 4.4
    block_pick: float = 22.0
    block_mask: float = 1.4
    gather: float = 0.6
    record_draw: float = 13.0


COSTS = CostModel()
# Nanoseconds per quantised record that the model follows (benchmarks/masks.py), by columns,
# features and whether frequencies are structured. Scattered masks take 32, 16 and 2 times
# (uniform) or 24, 8 and 1.5 times (Poisson) as long as none at 10, 64 and 1024 columns.
MEASURED = {
    (10, 1000, False): {
        "none": 183.0,
        "uniform:100": 5792.0,
        "poisson:0.1": 4466.0,
        "block:120": 419.0,
        "records:0.1": 28.0,
    },
    (64, 4096, False): {
        "none": 2643.0,
        "uniform:409": 41702.0,
        "poisson:0.1": 19818.0,
        "block:512": 602.0,
        "records:0.1": 278.0,
    },
    (64, 4096, True): {
        "none": 1595.0,
        "uniform:409": 44783.0,
        "poisson:0.1": 22440.0,
        "block:512": 1081.0,
        "records:0.1": 176.0,
    },
    (1024, 8192, False): {
        "none": 73609.0,
        "uniform:819": 141755.0,
        "poisson:0.1": 107500.0,
        "block:1024": 11885.0,
        "records:0.1": 7111.0,
    },
    (1024, 8192, True): {
        "none": 3711.0,
        "uniform:819": 76230.0,
        "poisson:0.1": 39443.0,
        "block:1024": 817.0,
        "records:0.1": 425.0,
    },
}


def design_cost(design: Design) -> float:
    """Return nanoseconds of one core per record that sketching by a design takes."""
    return sketching_cost(
        feature_map=design.feature_map,
        n_features=design.n_features,
        dim=design.dim,
        structured=design.frequencies.law == "structured",
        masks=design.masks,
    )


def sketching_cost(
    *,
    feature_map: str,
    n_features: int,
    dim: int,
    structured: bool = False,
    masks: Masks | None = None,
    model: CostModel = COSTS,
) -> float:
    """Return nanoseconds of one core per record, those left out by sampling included."""
    every = model.quantise * dim
    work = _whole(feature_map, n_features, dim, structured, model)
    if masks is None:
        return every + work
    if masks.records < 1:
        every += model.record_draw
    if masks.features == "uniform":
        picks = masks.feature_rate(n_features) * n_features
        work += model.uniform_mask * n_features + model.uniform_pick * picks
    elif masks.features == "poisson":
        work += model.poisson_mask * n_features
    elif masks.features == "block":
        n_blocks = n_features / (block_size(dim) if structured else dim)
        kept = masks.feature_rate(n_features)
        pick = model.block_pick + (model.gather * dim if structured else 0.0)
        work = kept * work + n_blocks * (model.block_mask + kept * pick)
    return every + masks.records * work


def _whole(
    feature_map: str, n_features: int, dim: int, structured: bool, model: CostModel
) -> float:
    """Return all features of a quantised record."""
    if feature_map == "second-moments":
        return model.product * dim * (dim + 1) / 2 + model.coarse * dim
    if feature_map == "cells":
        return model.cell + model.cell_column * dim
    each = {"fourier": model.fourier, "one-bit": model.one_bit, "quadratic": model.quadratic}
    if feature_map not in each:
        return n_features * (model.table + model.table_column * dim)
    product = model.column * dim
    if structured:
        product = model.transform + model.level * math.log2(block_size(dim))
    return n_features * (each[feature_map] + product)
