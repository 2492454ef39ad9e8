"""Exact integer noise from the operating system's random generator.

Discrete Laplace and discrete Gaussian noise come from OpenDP, whose samplers are
proven and take no seed. Cube noise is written here because no library has it:
P(z) ~ exp(-epsilon |z|_inf / sensitivity) on Z^D, the K-norm mechanism of the cube
(Hardt and Talwar, 2010), sampled with integers only.

No function here takes a seed. `RandomBelow` is a private seam for tests.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Integers
from privsketch.facts.budget import exact

RandomBelow = Callable[[int], int]  # uniform on 0..bound-1


def add_discrete_laplace(
    values: Integers, scale: float, l1_sensitivity: int, epsilon: float
) -> tuple[Integers, float]:
    """Noisy values and the scale used: the given one, raised until OpenDP certifies epsilon."""
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance

    make = partial(make_laplace, _vectors(), l1_distance(T="i64"))
    return _add_certified(values, scale, make, l1_sensitivity, exact(epsilon))


def add_discrete_gaussian(
    values: Integers, scale: float, l2_sensitivity: float, rho: float
) -> tuple[Integers, float]:
    """Noisy values and the scale used: the given one, raised until OpenDP certifies rho-zCDP."""
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance

    make = partial(make_gaussian, _vectors(), l2_distance(T="f64"))
    return _add_certified(values, scale, make, l2_sensitivity, Fraction(rho))


def _vectors() -> Any:
    """OpenDP's domain of vectors of 64-bit integers."""
    # Parts of OpenDP, not its prelude: that one loads every data frame library it finds.
    from opendp.domains import atom_domain, vector_domain
    from opendp.mod import enable_features

    enable_features("contrib")
    return vector_domain(atom_domain(T="i64"))


def _add_certified(
    values: Integers,
    scale: float,
    make: Callable[[float], Any],
    sensitivity: float,
    allowed: Fraction,
) -> tuple[Integers, float]:
    # OpenDP accepts a scale of 0 and adds no noise at all.
    if not (scale > 0 and math.isfinite(scale)):
        raise ParameterError(f"noise scale {scale!r}: must be positive and finite")
    measurement = make(scale)
    while Fraction(measurement.map(sensitivity)) > allowed:
        scale = math.nextafter(scale, math.inf)
        measurement = make(scale)
    noisy = measurement(np.ascontiguousarray(values, dtype=np.int64))
    return np.array(noisy, dtype=np.int64), scale


def draw_cube(
    n_components: int,
    sensitivity: int,
    epsilon: float,
    random_below: RandomBelow = secrets.randbelow,
) -> list[int]:
    """One draw of cube noise on Z^D, as Python integers.

    With q = exp(-epsilon / sensitivity), q^|z| is a mixture over radii R >= |z| of
    (1 - q) q^R, so R has P(R) ~ (2 R + 1)^D q^R and the components are then uniform on
    -R..R. R is proposed as a sum of D + 1 geometric variables, P ~ q^R prod_i (R + i),
    and accepted with probability prod_i (2 R + 1) / (2 R + 2 i).
    """
    rate = exact(epsilon) / sensitivity
    while True:
        radius = sum(_geometric(rate, random_below) for _ in range(n_components + 1))
        if all(
            random_below(2 * radius + 2 * i) < 2 * radius + 1 for i in range(1, n_components + 1)
        ):
            break
    return [random_below(2 * radius + 1) - radius for _ in range(n_components)]


def _geometric(rate: Fraction, random_below: RandomBelow) -> int:
    """P(g) ~ exp(-rate g), g = 0, 1, ... (Canonne, Kamath and Steinke, 2020, Algorithm 2).

    With rate = s / t: U uniform below t kept with probability exp(-U / t), V counts
    successes of exp(-1), and (U + t V) // s has the wanted law.
    """
    s, t = rate.numerator, rate.denominator
    while True:
        u = random_below(t)
        if _coin(Fraction(u, t), random_below):
            break
    v = 0
    while _coin(Fraction(1), random_below):
        v += 1
    return (u + t * v) // s


def _coin(rate: Fraction, random_below: RandomBelow) -> bool:
    """True with probability exp(-rate), 0 <= rate <= 1 (same source, Algorithm 1).

    Stop at the first k with a failed Bernoulli(rate / k): the chance that k is odd is
    the alternating series of exp(-rate).
    """
    numerator, denominator = rate.numerator, rate.denominator
    k = 1
    while random_below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
