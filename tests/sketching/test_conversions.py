"""From rho to epsilon and delta: ours, OpenDP's and dp-accounting's."""

import math

import numpy as np
import opendp.prelude as dp
import pytest

from privsketch.noise import log_delta_zcdp, rho_of_budget

BUDGETS = [
    (epsilon, delta)
    for epsilon in (0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0)
    for delta in (1e-3, 1e-6, 1e-9, 1e-12)
]
SCALE = 1e6


def opendp_profile(rho):
    """OpenDP's curve of epsilon and delta for rho-zCDP, that of Gaussian noise of a large scale."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement = dp.m.make_gaussian(*space, SCALE)
    distance = SCALE * math.sqrt(2 * rho)
    assert measurement.map(distance) == pytest.approx(rho, rel=1e-15)
    return dp.c.make_zCDP_to_approxDP(measurement).map(distance)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_opendp_says_the_same(epsilon, delta):
    """Found: deltas up to 4e-10 below the budget, epsilons up to 7.4e-12, by our rounding down."""
    rho = rho_of_budget(epsilon, delta)
    profile = opendp_profile(rho)
    assert 1 - 1e-9 < profile.delta(epsilon) / delta <= 1
    assert 1 - 2e-11 < profile.epsilon(delta) / epsilon <= 1
    assert profile.delta(epsilon) == pytest.approx(math.exp(log_delta_zcdp(rho, epsilon)), rel=1e-9)
    # A rho that is a thousandth too large is told apart from it.
    assert opendp_profile(rho * 1.001).delta(epsilon) > delta * (1 + 1e-5)


def accounted(rho, delta, orders=None):
    dp_accounting = pytest.importorskip("dp_accounting")
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_dp_accounting_says_the_same_at_fine_orders(epsilon, delta):
    """Its own orders are few and end at 1,024: it says no less, and up to twice as much for tiny
    budgets, whose best order lies in the thousands. With orders about the best it agrees: 4e-8."""
    rho = rho_of_budget(epsilon, delta)
    assert accounted(rho, delta) >= epsilon * (1 - 1e-9)
    about = 1 + math.sqrt(math.log(1 / delta) / rho)  # the best order, nearly
    orders = 1 + (about - 1) * np.geomspace(0.2, 2, 4001)
    fine = accounted(rho, delta, orders.tolist())
    assert fine == pytest.approx(epsilon, rel=1e-6)
    assert fine >= epsilon * (1 - 1e-9)
    assert accounted(rho * 1.001, delta, orders.tolist()) > epsilon * (1 + 1e-5)
