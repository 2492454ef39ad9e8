"""Limits hold for sequences of releases that people choose as they go: all of them, enumerated.

A release is randomised response: it says what the table is, with a lie now and then, or, with
probability delta, the truth for sure; any (epsilon, delta) release can be computed from that one.
Whoever sees the answers chooses the next cost; the limit allows it or not. Of such a tree all
leaves are added up, exactly enough, and compared with what the limit promises.
"""

import math
import random
from fractions import Fraction

import pytest

from privsketch.ledger import Amount, Cost, Limit, Total, epsilon_of_rho
from privsketch.noise import log_delta_zcdp, rho_of_budget


def responses(amount):
    """Probabilities of what a release says about either table."""
    epsilon, delta = float(amount.epsilon), float(amount.delta)
    lie = (1 - delta) / (1 + math.exp(epsilon))
    told = [((1 - delta) - lie, lie), (lie, (1 - delta) - lie)]
    return told + [(delta, 0.0), (0.0, delta)] * (delta > 0)


def excess(limit, choose, depth, allows):
    """Sum over all sequences of answers of (p - e^epsilon q)+, for the limit's epsilon."""

    def walk(total, p, q, answers):
        for _ in range(3):  # who was refused may ask for less
            amount = choose(answers) if len(answers) < depth else None
            if amount is None:
                break
            after = total.plus(amount)
            if allows(limit, after):
                return sum(
                    walk(after, p * a, q * b, (*answers, n))
                    for n, (a, b) in enumerate(responses(amount))
                )
        return max(p - math.exp(float(limit.epsilon)) * q, 0.0)

    return walk(Total(), 1.0, 1.0, ())


def chooser(seed, with_rho):
    """Somebody who chooses by what was seen: the same answers, the same choice."""
    tries = {}

    def choose(answers):
        tries[answers] = tries.get(answers, 0) + 1
        rng = random.Random(f"{seed} {answers} {tries[answers]}")
        epsilon = Fraction(rng.randint(1, 60), 60)
        if with_rho and rng.random() < 0.8:
            return Amount(epsilon, Fraction(0), epsilon**2 / 2)
        return Amount(epsilon / 3, Fraction(rng.randint(0, 3), 60), None)

    return choose


LIMITS = [
    Limit(Fraction(1), Fraction(1, 10)),
    Limit(Fraction(1), Fraction(0)),
    Limit(Fraction(1), Fraction(1, 10), "zcdp"),
    Limit(Fraction(2), Fraction(1, 100), "zcdp"),
    Limit(Fraction(2), Fraction(1, 5), "zcdp", Fraction(1, 4)),
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.text)
def test_limits_hold_however_costs_are_chosen(limit):
    for seed in range(12):
        choose = chooser(seed, with_rho=limit.accounting == "zcdp")
        found = excess(limit, choose, 7, Limit.allows)
        assert found <= float(limit.delta) + 1e-12


def test_a_rule_that_is_too_generous_is_found():
    def generous(limit, total):
        return total.epsilon <= 3 * limit.epsilon

    limit = LIMITS[0]
    assert max(excess(limit, chooser(n, False), 6, generous) for n in range(6)) > limit.delta


def test_basic_composition_is_exact_at_the_limit():
    limit = Limit(Fraction(1, 3), Fraction(1, 10**6))
    total = Total.of([Amount(Fraction(1, 9), Fraction(0), None)] * 3)
    assert limit.allows(total)
    assert not limit.allows(total.plus(Amount(Fraction("1e-300"), Fraction(0), None)))
    assert not limit.allows(Total(delta=Fraction(1, 10**6) + Fraction(1, 10**300)))
    assert limit.left(total).epsilon == 0


def test_one_release_of_the_whole_limit_fits():
    for epsilon, delta in ((1.0, 1e-6), (0.3, 1e-9), (8.0, 1e-5)):
        limit = Limit(Cost(epsilon).epsilon, Cost(epsilon, delta).delta, "zcdp")
        rho = rho_of_budget(epsilon, delta)
        for told in (Cost(epsilon, delta, rho).rho, Fraction(rho)):
            assert limit.allows(Total(rho=told, delta=limit.delta))
        assert not limit.allows(Total(rho=limit.rho + Fraction("1e-300"), delta=limit.delta))


def test_many_gaussian_releases_cost_less_by_rho():
    cost = Cost(0.1, 1e-8, rho_of_budget(0.1, 1e-8))
    amount = Amount(cost.epsilon, cost.delta, cost.rho)
    counts = {}
    for accounting in ("basic", "zcdp"):
        limit, total, n = Limit(Fraction(1), Fraction(1, 10**6), accounting), Total(), 0
        while limit.allows(total := total.plus(amount)):
            n += 1
        counts[accounting] = n
    assert counts["basic"] == 10
    assert counts["zcdp"] > 80


def test_pure_releases_may_add_up_by_epsilon_as_long_as_all_are_pure():
    limit = Limit(Fraction(1), Fraction(1, 10**6), "zcdp")
    pure = Amount(Fraction(1), Fraction(0), Fraction(1, 2))
    assert limit.allows(Total().plus(pure))
    gaussian = Amount(Fraction(1, 1000), Fraction(1, 10**9), Fraction("1e-9"))
    assert limit.allows(Total().plus(gaussian))
    assert not limit.allows(Total().plus(pure).plus(gaussian))
    assert limit.left(Total().plus(gaussian)).pure_epsilon is None


def test_epsilon_of_rho_is_what_rho_implies():
    for rho, delta in ((Fraction(1, 50), Fraction(1, 10**6)), (Fraction(2), Fraction(1, 100))):
        epsilon = float(epsilon_of_rho(rho, delta))
        assert log_delta_zcdp(float(rho), epsilon) <= math.log(delta)
        assert log_delta_zcdp(float(rho), epsilon * (1 - 1e-6)) > math.log(delta)
