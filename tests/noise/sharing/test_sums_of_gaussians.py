"""Sums of discrete Gaussian noises against their definition, enumerated with forty digits."""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import privsketch as ps
from privsketch.noise import (
    MAX_HOLDER_LEVELS,
    VARIANCE_MARGIN,
    layer_scales,
    plan_levels,
    require_margin,
    root_up,
)

REACH = 90  # standard deviations are below 4
ORDERS = (1.001, 1.25, 2, 3.5, 8, 16)
# Two to four holders, equal and unequal; the smallest that the lemma knows among them.
NOISES = [
    (0.5, 0.5),
    (0.6, 1.0),
    (0.5, 0.5, 0.5),
    (1.0, 1.0, 1.0),
    (0.5, 0.7, 1.0),
    (0.5, 0.5, 0.5, 0.5),
    (0.8, 0.8, 0.8, 0.8),
    (2.0, 0.5, 1.0, 0.7),
]


def tau_of(variances):
    """A sum of these noises is within e^(tau / 2) of discrete Gaussian, by the lemma."""
    total, whole = variances[0], 0.0
    for variance in variances[1:]:
        whole += math.exp(-2 * math.pi**2 * total * variance / (total + variance))
        total += variance
    return 8.08 * whole * (1 + 1e-12)  # twice 4.04: there and back


def rho_of_sum(variances, sensitivity, n_components=1):
    """Rho' of a sum of discrete Gaussian noises, for any that the lemma covers."""
    across = sensitivity / math.sqrt(math.fsum(variances))
    return (across + tau_of(variances) * math.sqrt(n_components)) ** 2 / 2 * (1 + 1e-12)


def gaussian(variance, reach=REACH):
    """P(z) ~ exp(-z^2 / 2 v) on the integers from -reach to reach, as decimals."""
    exponents = [Decimal(-z * z) / (2 * Decimal(variance)) for z in range(-reach, reach + 1)]
    weights = np.array([one.exp() for one in exponents], dtype=object)
    return weights / weights.sum()


def summed(scales):
    """The law of a sum of independent noises, where nothing of it is cut off."""
    law = gaussian(Decimal(scales[0]) ** 2)
    for scale in scales[1:]:
        law = np.convolve(law, gaussian(Decimal(scale) ** 2))[REACH:-REACH]
    return law


def rho_by_enumeration(law, shift):
    """The least rho that the Renyi divergences of a law and its shifted self allow, both ways."""
    inner = slice(REACH // 3, -REACH // 3)
    one, other = law[inner], np.roll(law, shift)[inner]
    found = Decimal(0)
    for order in map(Decimal, ORDERS):
        for p, q in ((one, other), (other, one)):
            moment = sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))
            found = max(found, moment.ln() / (order - 1) / order)
    return found


@pytest.fixture(autouse=True)
def _digits():
    with localcontext(Context(prec=40, Emin=-(10**9), Emax=10**9)):
        yield


@pytest.mark.parametrize("scales", NOISES, ids=str)
def test_a_sum_is_as_near_to_gaussian_as_the_lemma_says(scales):
    variance = sum(Decimal(scale) ** 2 for scale in scales)
    ratios = [
        abs((p / q).ln()) for p, q in zip(summed(scales), gaussian(variance), strict=True) if p
    ]
    largest = float(max(ratios[REACH // 2 : -REACH // 2]))
    bound = tau_of([scale**2 for scale in scales]) / 2
    assert largest <= bound
    if len(scales) == 2:  # half of it is reached: the mean lies between both ends
        assert largest >= 0.49 * bound


@pytest.mark.parametrize("shift", [1, 2])
@pytest.mark.parametrize("scales", NOISES, ids=str)
def test_a_sum_costs_what_the_bound_says(scales, shift):
    found = rho_by_enumeration(summed(scales), shift)
    assert found <= Decimal(rho_of_sum([scale**2 for scale in scales], shift))


@pytest.mark.parametrize("scales", [scales for scales in NOISES if min(scales) > 0.5], ids=str)
def test_one_noise_less_costs_more_than_the_bound_says(scales):
    bound = Decimal(rho_of_sum([scale**2 for scale in scales], 1))
    for left_out in range(len(scales)):
        fewer = scales[:left_out] + scales[left_out + 1 :]
        assert rho_by_enumeration(summed(fewer), 1) > bound


def test_small_noises_do_cost_more_than_one_of_their_variance():
    """So that the bound is for something: at scales of 1/2 it is a few percent."""
    found = rho_by_enumeration(summed((0.5, 0.5)), 1)
    assert found > Decimal("1.02")  # 1 / (2 * 0.5)
    assert rho_of_sum([0.25, 0.25], 1) < 3


def test_components_move_together():
    """A record moves all components: roots of their number go with tau, as enumerated for one."""
    one, many = rho_of_sum([0.3, 0.5], 1), rho_of_sum([0.3, 0.5], 3.0, 9)
    assert many == pytest.approx(9 * one, rel=1e-12)
    assert rho_of_sum([0.3, 0.5], 1, 9) > one


def test_the_constant_of_the_lemma():
    """4.04 q is above ln(theta_3 / theta_4), by their series, wherever it is used."""
    for u_squared in (1 / 8, 0.2, 0.5, 1, 2):
        q = (-2 * Decimal(math.pi) ** 2 * Decimal(u_squared)).exp()
        terms = [2 * q ** (j * j) for j in range(1, 40)]
        three = 1 + sum(terms)
        four = 1 + sum(term * (-1) ** j for j, term in enumerate(terms, 1))
        ratio = (three / four).ln()
        assert 4 * q <= ratio <= Decimal("4.04") * q


# Parts for several levels


def test_parts_add_up_to_the_noise_of_one_release():
    scale, levels = 1234.5678, (33, 20, 12, 7)
    scales = layer_scales(scale, levels)
    so_far = Fraction(0)
    for level, part in zip(levels, scales, strict=True):
        so_far += Fraction(part) ** 2
        assert part >= 8
        assert level * so_far >= Fraction(scale) ** 2 * (1 + VARIANCE_MARGIN)
        assert float(level * so_far / Fraction(scale) ** 2 - 1) < 1e-11


def test_the_noise_of_another_level_is_not_enough():
    """A total of fewer holders at the level of more has less than the noise of one release."""
    levels = (33, 20, 12, 7)
    scales = layer_scales(1000.0, levels)
    for place in range(1, len(levels)):
        wrong = sum(Fraction(part) ** 2 for part in scales[:place])
        assert levels[place] * wrong < Fraction(1000) ** 2 * Fraction(99, 100)


def test_levels_are_enumerated_too():
    """One honest holder at the second of two levels has the noise of a release, not at the first.

    Scales of 8 and more: floats are enough, for the bound and what is measured differ by a half.
    """
    scale = 30.0
    first, second = layer_scales(scale, (2, 1))
    z = np.arange(-400, 401)
    parts = [np.exp(-(z**2) / (2 * part**2)) for part in (first, second)]
    parts = [part / part.sum() for part in parts]
    whole = np.convolve(*parts)[400:-400]

    def rho(law):
        p, q = law[100:-100], np.roll(law, 5)[100:-100]
        return float(np.log(np.sum(p**2 / q)) / 2)

    allowed = 25 / (2 * scale**2)
    assert rho(whole) == pytest.approx(allowed, rel=1e-9)
    assert rho(parts[0]) == pytest.approx(2 * allowed, rel=1e-9)


@pytest.mark.parametrize(("most", "least"), [(1, 1), (2, 1), (16, 1), (33, 17), (666, 333)])
def test_levels_serve_every_turnout(most, least):
    levels = plan_levels(1e9, most, least)
    assert levels[0] == most
    assert levels[-1] == least
    assert len(levels) <= MAX_HOLDER_LEVELS
    assert list(levels) == sorted(set(levels), reverse=True)
    if most - least < MAX_HOLDER_LEVELS:
        assert len(levels) == most - least + 1
    coarse = max([1.0, *(many / few for many, few in pairwise(levels))])
    assert coarse <= max((most / least) ** (1 / 14) * 1.04, (least + 1) / least)


def test_a_design_without_room_has_fewer_levels():
    assert plan_levels(100.0, 50, 20) == (50, 37, 27, 20)
    assert plan_levels(30.0, 50, 10) == (10,)
    with pytest.raises(ps.PrivsketchError, match="below 8"):
        plan_levels(20.0, 50, 10)
    with pytest.raises(ps.PrivsketchError, match="below 8"):
        layer_scales(100.0, (50, 49))


def test_roots_are_the_least_that_are_not_below():
    for value in (Fraction(2), Fraction(64), Fraction(10**20, 3), Fraction(1, 3)):
        root = root_up(value)
        assert Fraction(root) ** 2 >= value > Fraction(math.nextafter(root, 0)) ** 2


def test_the_margin_pays_for_a_million_holders():
    require_margin(1e-60, 16 * 10**6, 10**6)
    with pytest.raises(ps.PrivsketchError, match="parts"):
        require_margin(5e-324, 10**300, 10**9)
