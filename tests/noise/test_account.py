"""Shares of one budget: what they are worth, what they imply, and how they are cut further."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privsketch as ps
from privsketch import ParameterError
from privsketch.clustering import COUNT, COUNT_SHARE, Run
from privsketch.noise import Account, Shares, gaussian_law, rho_of_budget
from privsketch.testing import questions

BUDGETS = st.builds(
    ps.Budget, st.floats(0.01, 20), st.floats(-12, -0.1).map(lambda power: 10.0**power)
)


def implies(rho, epsilon, delta):
    """Whether rho-zCDP implies (epsilon, delta), with 40 digits (Canonne et al., 2020).

    Any order gives a bound; orders are tried on a fine grid around the best one.
    """
    with mpmath.workdps(40):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)

        def bound(order):
            return (
                mpmath.exp((order - 1) * (order * rho - epsilon))
                * (1 - 1 / order) ** order
                / (order - 1)
            )

        orders = [1 + mpmath.mpf(10) ** (mpmath.mpf(i) / 20) for i in range(-120, 161)]
        best = min(orders, key=bound)
        for step in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
            near = [1 + (best - 1) * (1 + step * i) for i in range(-20, 21)]
            best = min(near, key=bound)
        return bound(best) <= delta


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(BUDGETS, st.fractions(Fraction(1, 10**4), Fraction(999, 1000), max_denominator=10**4))
def test_a_share_implies_what_its_receipt_claims(budget, weight):
    shares = Shares(budget, {"part": weight, "rest": 1 - weight})
    rho, claim = shares.rho("part"), shares.claim("part")
    assert implies(rho, claim.epsilon, claim.delta)
    assert claim.epsilon <= budget.epsilon
    assert claim.delta <= budget.delta
    assert Fraction(rho) <= Fraction(rho_of_budget(budget.epsilon, budget.delta)) * weight


def test_a_claim_that_is_too_small_is_refused():
    shares = Shares(ps.Budget(1.0, 1e-6), {"part": Fraction(1, 3), "rest": Fraction(2, 3)})
    rho, claim = shares.rho("part"), shares.claim("part")
    law = gaussian_law(1, 1, claim.epsilon, claim.delta, "add-remove", rho=rho)
    assert law.rho == rho
    assert not implies(rho, claim.epsilon * (1 - 1e-6), claim.delta)
    with pytest.raises(ParameterError, match="does not imply"):
        gaussian_law(1, 1, claim.epsilon * (1 - 1e-6), claim.delta, "add-remove", rho=rho)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_share_is_cut_into_parts_of_it(delta):
    budget = ps.Budget(1.0, delta)
    account = Account(Shares(budget, {"first": Fraction(1, 50), "rest": Fraction(49, 50)}))
    account.counts("first", np.array([3]))
    account.cut("rest", {"a": Fraction(1, 4), "b": Fraction(3, 4)})
    assert account.shares.weights == {
        "first": Fraction(1, 50),
        "a": Fraction(49, 200),
        "b": Fraction(147, 200),
    }
    if delta:
        whole = Fraction(rho_of_budget(1.0, delta))
        assert account.shares.rho("a") == pytest.approx(float(whole * Fraction(49, 200)), rel=1e-15)


@pytest.mark.parametrize(
    ("name", "weights", "words"),
    [
        ("first", {"a": Fraction(1)}, "is spent"),
        ("other", {"a": Fraction(1)}, "none of them"),
        ("rest", {"a": Fraction(9, 10)}, "add up to 1"),
        ("rest", {"a": Fraction(3, 2), "b": Fraction(-1, 2)}, "positive"),
        ("rest", {"first": Fraction(1)}, "not taken"),
    ],
)
def test_cuts_that_would_spend_twice_are_refused(name, weights, words):
    account = Account(Shares(ps.Budget(1.0), {"first": Fraction(1, 2), "rest": Fraction(1, 2)}))
    account.counts("first", np.array([3]))
    with pytest.raises(ParameterError, match=words):
        account.cut(name, weights)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_run_pays_for_its_count_and_shares_the_rest(delta):
    run = Run(np.zeros((40, 2)), domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(2.0, delta))
    assert len(questions(lambda: run.number(run.read()))) == 1
    account = run.share({"only": Fraction(1)})
    assert account.shares.weights == {COUNT: COUNT_SHARE, "only": 1 - COUNT_SHARE}
    with pytest.raises(ParameterError, match="begun"):
        run.without_delta()  # what was paid cannot be paid otherwise


@pytest.mark.parametrize(("neighbours", "n_records"), [("replace", None), ("add-remove", 50.0)])
def test_a_count_that_is_known_costs_nothing(neighbours, n_records):
    budget = ps.Budget(2.0, 1e-6, neighbours)
    table = np.zeros((40, 2))
    run = Run(table, domain=ps.Box(-1, 1, dim=2), budget=budget, n_records=n_records)
    assert questions(lambda: run.number(run.read())) == []
    assert run.number(run.read()) == (n_records or 40)
    assert run.left == budget
