"""Noise for places of the domain, of which nothing is known but that they lie in it.

Any k places can become any other k: they move by the diameter of the domain, in every one of them.
That is 2 k (r_1 + ... + r_d) in L1 for a box of half-widths r, 2 r in the largest component, and
2 R sqrt(k) in L2, whichever relation is meant.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from privsketch.baselines.lloyd import l1_norm, l2_squared
from privsketch.budget import Budget
from privsketch.clustering.account import Account
from privsketch.clustering.passes import Integers, Passes
from privsketch.errors import ParameterError

Floats = npt.NDArray[np.float64]
PointNoise = Literal["laplace", "cube", "gaussian"]
POINT_NOISES: tuple[PointNoise, ...] = ("laplace", "cube", "gaussian")


def checked_noise(noise: str | None, budget: Budget) -> PointNoise:
    """The kind of noise, one that the budget can pay."""
    if noise is None:
        return "gaussian" if budget.delta > 0 else "cube"
    if noise not in POINT_NOISES:
        known = ", ".join(map(repr, POINT_NOISES))
        raise ParameterError(f"noise={noise!r}: expected one of {known}")
    if noise == "gaussian" and budget.delta == 0:
        raise ParameterError(
            "delta=0 with noise='gaussian': the Gaussian mechanism needs delta > 0; use "
            "noise='cube' for pure differential privacy"
        )
    return noise


def noisy_points(
    account: Account, name: str, passes: Passes, points: Integers, kind: PointNoise
) -> Floats:
    """Places (k, dim), or sums of which one term is k places, with noise for all of them.

    Laplace and cube noise are for boxes.

    Charges: the share.
    """
    k = len(points)
    if kind == "laplace":
        across = 2 * k * l1_norm(passes)
        return account.laplace(name, points, across, replaced=across)[0]
    if kind == "cube":
        across = 2 * int(passes.limits.max())
        return account.cube(name, points, across, replaced=across)[0]
    across = 4 * k * l2_squared(passes)
    return account.gaussian(name, points, across, replaced=across)[0]
