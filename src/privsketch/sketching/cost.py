"""Model of the cost of sketching: nanoseconds per record on one core.

Reading and quantising a record costs the same for every sketch; each feature adds its own cost. A
dense kernel multiplies by every column, structured frequencies take a logarithm of as many steps.
Omitted records cost next to nothing. Masks of blocks save the work for omitted blocks, but blocks
have to be drawn and listed, which pays from about twenty columns on. Scattered masks save nothing:
all features are computed, and secret random numbers, drawn from the operating system for every
feature of every record, decide which of them count.

The constants are those of one machine and one core; ratios carry over better than times. Plans use
them, because a plan must not depend on where it is made; `sketching/estimate` measures the cost on
the machine at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privsketch.design.recipe import Design
from privsketch.features.hadamard import block_size
from privsketch.features.masks import Masks


@dataclass(frozen=True)
class CostModel:
    """Costs of operations, in nanoseconds on one core with AVX-512.

    benchmarks/speed.py: `quantise`, `fourier`, `one_bit`, `column`, at 2 to 256 columns.
    benchmarks/masks.py: all other costs, at 10, 64 and 1024 columns, within 50 %; `quadratic`,
    `product` and `coarse` from the same measurement of designs for principal components.

    Attributes
    ----------
    quantise : float
        Conversion of a value of a record to fixed point.
    fourier, one_bit, quadratic : float
        A feature, apart from its product with the record.
    column : float
        A multiplication of that product, for dense frequencies.
    transform, level : float
        That product by a fast transform: a fixed cost of a feature, and its cost at each level.
    table, table_column : float
        A feature of another package's map, which NumPy looks up, and a multiplication for it:
        43 and 69 ns a feature at 10 and 64 columns.
    product, coarse : float
        An entry of the second-moment matrix, and the preparation of a value of a record.
    cell, cell_column : float
        A record that is counted in its cell, and each of its columns.
    uniform_pick, uniform_mask, poisson_mask : float
        Secret random numbers for a feature that is kept, and random bits for any feature.
    block_pick, block_mask, gather : float
        The same for a block, and copying a value of a record for a structured block.
    record_draw : float
        Secret random numbers for a record.
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
# Measured nanoseconds per quantised record (benchmarks/masks.py), by columns, features and whether
# frequencies are structured. At 10, 64 and 1024 columns, scattered masks take 32, 16 and 2 times
# (uniform) or 24, 8 and 1.5 times (Poisson) as long as no masks.
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
    """Return the cost of sketching by a design, in nanoseconds per record on one core."""
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
    """Return nanoseconds per record on one core; omitted records count as records."""
    per_record = model.quantise * dim
    work = _unmasked_cost(feature_map, n_features, dim, structured, model)
    if masks is None:
        return per_record + work
    if masks.records < 1:
        per_record += model.record_draw
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
    return per_record + masks.records * work


def _unmasked_cost(
    feature_map: str, n_features: int, dim: int, structured: bool, model: CostModel
) -> float:
    """Return the cost of all features of a quantised record."""
    if feature_map in ("second-moments", "taxicab"):
        return model.product * n_features + model.coarse * dim
    if feature_map == "cells":
        return model.cell + model.cell_column * dim
    costs = {"fourier": model.fourier, "one-bit": model.one_bit, "quadratic": model.quadratic}
    if feature_map not in costs:
        return n_features * (model.table + model.table_column * dim)
    product = model.column * dim
    if structured:
        product = model.transform + model.level * math.log2(block_size(dim))
    return n_features * (costs[feature_map] + product)
