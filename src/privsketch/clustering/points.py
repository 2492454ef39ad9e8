"""Noise for places of the domain, of which nothing is known but that they lie in it.

Any k places can become any other k: they move by the diameter of the domain, in every one of them.
That is 2 k A in L1, A being the half-widths of a box added up, or sqrt(d) R for a ball of radius R;
twice the largest half-width, or 2 R, in the largest component; and 2 R sqrt(k) in L2, R being half
the diagonal of a box; whichever relation is meant. Without a delta the kind with less variance is
taken.
"""

from __future__ import annotations

import math
from typing import Literal

from privsketch._base.errors import require_gaussian_delta, require_one_of
from privsketch._base.types import Floats, Integers
from privsketch.clustering.passes import Passes
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball, Domain
from privsketch.noise.account import Account

PointNoise = Literal["laplace", "cube", "gaussian"]
POINT_NOISES: tuple[PointNoise, ...] = ("laplace", "cube", "gaussian")


def checked_noise(noise: str | None, budget: Budget, domain: Domain, n_points: int) -> PointNoise:
    """The kind of noise, one that the budget can pay; for places released `n_points` at a time."""
    if noise is None:
        return "gaussian" if budget.delta > 0 else _pure_noise(domain, n_points)
    kind = require_one_of("noise", noise, POINT_NOISES)
    if kind == "gaussian":
        require_gaussian_delta(budget.delta)
    return kind


def _pure_noise(domain: Domain, n_points: int) -> PointNoise:
    """The one of smaller variance, from public numbers alone."""
    half = domain.half_widths
    dim, widest = len(half), float(half.max())
    l1 = math.sqrt(dim) * widest if isinstance(domain, Ball) else float(half.sum())
    size = n_points * dim
    laplace = 2 * (n_points * l1) ** 2
    return "laplace" if laplace < (size + 1) * (size + 2) / 3 * widest**2 else "cube"


def noisy_points(
    account: Account, name: str, passes: Passes, points: Integers, kind: PointNoise
) -> Floats:
    """Places (k, dim), or sums of which one term is k places, with noise for all of them.

    Charges: the share.
    """
    k = len(points)
    account.require_one_record(name)
    if kind == "laplace":
        across = 2 * k * passes.l1
        return account.laplace(name, points, across, replaced=across)[0]
    if kind == "cube":
        across = 2 * int(passes.limits.max())
        return account.cube(name, points, across, replaced=across)[0]
    across = 4 * k * passes.l2_squared
    return account.gaussian(name, points, across, replaced=across)[0]
