"""Curves of constants in `privsketch.projection`: time and tightness of norms of a matrix."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from benchmarks.constants import Curve
from privsketch.projection import matrix as norms
from privsketch.projection import rows


def bound_losses() -> Mapping[str, float]:
    """Return the bounds of L1 norms over those of 3,200 steps, less 1, and the seconds of one."""
    losses = {}
    for k in (24, 48):
        gram = norms.public_matrix(30, k, 1).gram
        bound, steps = norms.two_to_one_bound(gram), norms._STEPS
        norms._STEPS = 3200
        losses[f"{k} components"] = bound / norms.two_to_one_bound(gram) - 1
        norms._STEPS = steps
    start = time.process_time()
    norms.two_to_one_bound(norms.public_matrix(60, 64, 1).gram)
    return {**losses, "seconds, 64 components": time.process_time() - start}


def sign_seconds() -> Mapping[str, float]:
    """Return the seconds of the exact L1 norm over a box at the largest size that is allowed."""
    dim = max(1, norms._MAX_SIGNED_VALUES // 2**15)
    matrix, widths = norms.public_matrix(dim, 16, 1).integers, np.full(dim, 10)
    start = time.process_time()
    norms.box_to_one(matrix, widths)
    return {"columns with 16 components": float(dim), "seconds": time.process_time() - start}


def norm_seconds() -> Mapping[str, float]:
    """Return the seconds of all norms of a matrix with the largest number of components."""
    k = rows.MAX_PROJECTIONS
    matrix = norms.public_matrix(2 * k, k, 1)
    start = time.process_time()
    norms.spectral_squared(matrix.gram)
    norms.two_to_one_squared(matrix.gram)
    return {"seconds": time.process_time() - start}


CURVES = (
    Curve(
        "privsketch.projection.matrix._STEPS",
        (25, 50, 100, 200, 400, 800),
        bound_losses,
        "Excess of the bound on L1 norms over that of 3,200 steps, and the seconds of a bound.",
    ),
    Curve(
        "privsketch.projection.matrix._MAX_SIGNED_VALUES",
        (2**20, 2**22, 2**24, 2**26, 2**28),
        sign_seconds,
        "Seconds of an exact norm over a box; larger sizes use a bound.",
    ),
    Curve(
        "privsketch.projection.rows.MAX_PROJECTIONS",
        (128, 256, 512, 1024, 2048),
        norm_seconds,
        "Seconds of the norms of a matrix, which are computed once for each projection.",
    ),
)
