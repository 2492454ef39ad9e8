"""Costs are exact, and have a price under another relation that holds and is not too low."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from privsketch import BudgetError, ParameterError
from privsketch.facts import Unit
from privsketch.ledger import Cost, exp_above, fraction_text


def test_floats_are_the_decimals_they_print_as():
    cost = Cost(0.1, 1e-6, 0.3)
    assert cost.epsilon == Fraction(1, 10)
    assert cost.delta == Fraction(1, 10**6)
    assert cost.rho == Fraction(3, 10)
    assert Cost(np.float32(0.5), Decimal("1e-7")).delta == Fraction(1, 10**7)


def test_a_pure_cost_has_a_rho():
    assert Cost(Fraction(1, 3)).rho == Fraction(1, 18)
    assert Cost(0.5, 1e-9).rho is None
    # That of a receipt is a float that was rounded up.
    assert Cost(Fraction(1, 3), 0, Fraction(1, 17)).rho == Fraction(1, 18)
    assert Cost(Fraction(1, 3), 0, Fraction(1, 19)).rho == Fraction(1, 19)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "1", None, [1]])
def test_what_is_no_amount_is_refused(value):
    with pytest.raises(ParameterError):
        Cost(value)
    with pytest.raises(ParameterError):
        Cost(1, value)


def test_costs_come_back_from_json():
    for cost in (Cost(0.1, 1e-6, 0.3, "replace"), Cost(Fraction(1, 7), 0, None, unit=Unit("p", 3))):
        assert Cost.from_json(cost.to_json()) == cost


@pytest.mark.parametrize("value", ["0", "1e-30", "0.5", "1", "7/3", "50"])
def test_the_exponential_is_above_and_close(value):
    x = Fraction(value)
    term = total = Fraction(1)
    for k in range(1, 400):  # x <= 50: what is left out is below 1e-100 of the sum
        term = term * x / k
        total += term
    assert total < exp_above(x) < total * (1 + Fraction(1, 10**45))


def hockey_stick(p, q, epsilon):
    return max(sum(max(a - math.exp(epsilon) * b, 0) for a, b in zip(p, q, strict=True)), 0.0)


def test_two_steps_cost_what_a_group_of_two_does():
    """Chains of three random distributions: what holds for each step gives what holds for both."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        first, second, third = rng.dirichlet(np.full(4, 0.5), size=3)
        epsilon = rng.uniform(0.05, 2)
        steps = [(first, second), (second, first), (second, third), (third, second)]
        delta = max(hockey_stick(p, q, epsilon) for p, q in steps)
        price = Cost(float(epsilon), float(delta)).charged("replace", None)
        assert price.epsilon == 2 * Cost(float(epsilon)).epsilon
        for p, q in ((first, third), (third, first)):
            assert hockey_stick(p, q, 2 * epsilon) <= float(price.delta) + 1e-12


def test_the_price_of_delta_is_reached():
    """A chain for which anything less, such as 2 delta, would be wrong."""
    epsilon, delta = 0.7, 1e-3
    chain = [np.array([x, 1 - x]) for x in (0, delta, (1 + math.exp(epsilon)) * delta)]
    for p, q in ((0, 1), (1, 0), (1, 2), (2, 1)):
        assert hockey_stick(chain[p], chain[q], epsilon) <= delta * (1 + 1e-12)
    reached = hockey_stick(chain[2], chain[0], 2 * epsilon)
    price = Cost(epsilon, delta).charged("replace", None)
    assert reached == pytest.approx(float(price.delta), rel=1e-12)
    assert reached > 2 * delta


def test_rho_of_two_steps():
    """Gaussians with means a step apart each: the divergence grows with the square."""
    assert Cost(1, 1e-6, Fraction(1, 100)).charged("replace", None).rho == Fraction(4, 100)
    pure = Cost(0.5).charged("replace", None)
    assert pure.rho == pure.epsilon**2 / 2


def test_what_a_release_does_not_protect_is_refused():
    with pytest.raises(BudgetError, match="add-remove"):
        Cost(1, neighbours="replace").charged("add-remove", None)
    with pytest.raises(BudgetError, match="any number of such records"):
        Cost(1).charged("add-remove", "patient")
    with pytest.raises(BudgetError, match="any number of such records"):
        Cost(1, unit=Unit("doctor")).charged("add-remove", "patient")
    with pytest.raises(BudgetError, match="ledger add --person"):
        Cost(1, unit=Unit("patient")).charged("add-remove", None)
    assert Cost(1, unit=Unit("patient", 5)).charged("add-remove", "patient").epsilon == 1
    assert Cost(1, unit=Unit(None, 5)).charged("add-remove", None).epsilon == 1


def test_words_round_away_from_comfort():
    third = Fraction(1, 3)
    assert fraction_text(third) == "0.333334"
    assert fraction_text(third, up=False) == "0.333333"
    assert fraction_text(Fraction("1e-300")) == "1e-300"
    assert fraction_text(Fraction("1e-5000")) == "1e-5000"
    assert fraction_text(Fraction(0)) == "0"
