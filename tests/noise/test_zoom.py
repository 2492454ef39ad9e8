"""Two looks at counts: the law of their noise, and what they cost, by enumeration."""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from privsketch import Budget, ParameterError
from privsketch.noise import Account, Shares, choose, discrete_laplace, draw_zoom, zoom_law
from privsketch.testing import questions

FALSE_ALARM = 1e-7  # of one comparison


@dataclass(frozen=True)
class Above:
    threshold: int

    def __call__(self, first):
        return first > self.threshold


NEVER = Above(10**9)


def laplace(z, q):
    """P(Z = z) of discrete Laplace noise of parameter q."""
    return (1 - q) / (1 + q) * q ** abs(z)


def added(z, b):
    """P(E = z), from the definition: 0 with probability b / (1 + b)^2, else Laplace of b."""
    chance = b / (1 + b) ** 2
    return (chance if z == 0 else 0.0) + (1 - chance) * laplace(z, b)


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0])
def test_the_first_look_is_laplace_noise_of_twice_the_scale(epsilon):
    a, b = math.exp(-epsilon), math.exp(-epsilon / 2)
    reach = math.ceil(60 / epsilon)
    steps = range(-reach, reach + 1)
    near = np.array([laplace(z, a) for z in steps])
    far = np.array([added(z, b) for z in steps])
    both = np.convolve(near, far)[reach : 3 * reach + 1]
    expected = np.array([laplace(z, b) for z in steps])
    middle = slice(reach // 2, -(reach // 2))
    assert np.allclose(both[middle], expected[middle], rtol=0, atol=1e-13)
    # The coin of the sampler: a draw of the second noise that is positive and odd.
    odd = sum(laplace(z, b) for z in range(1, 40 * reach, 2))
    assert odd == pytest.approx(b / (1 + b) ** 2, rel=1e-12)
    # A fair guess is not enough: with a coin of a quarter the law would be another one.
    planted = [0.25 * (z == 0) + 0.75 * laplace(z, b) for z in steps]
    wrong = np.convolve(near, planted)[reach : 3 * reach + 1]
    assert epsilon < 0.1 or not np.allclose(wrong[middle], expected[middle], rtol=0, atol=1e-4)


def losses(epsilon, threshold, count, other, parts, other_parts, reach=40):
    """The largest log-ratio over all outcomes of one cell: y1 and y, or y1 and counts of parts."""
    a, b = math.exp(-epsilon), math.exp(-epsilon / 2)
    worst = 0.0
    for first in range(-reach, reach + 1):
        if first <= threshold:
            for second in range(-reach, reach + 1):
                pair = [laplace(second - c, a) * added(first - second, b) for c in (count, other)]
                worst = max(worst, abs(math.log(pair[0] / pair[1])))
            continue
        looks = math.log(laplace(first - count, b) / laplace(first - other, b))
        # Parts are independent: the largest ratio is a product of the largest.
        each = 0.0
        for mine, theirs in zip(parts, other_parts, strict=True):
            ratios = [
                abs(math.log(laplace(z - mine, b) / laplace(z - theirs, b)))
                for z in range(-reach, reach + 1)
            ]
            each += max(ratios)
        worst = max(worst, abs(looks) + each)
    return worst


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("threshold", [-100, 0, 4, 100])
def test_a_record_more_costs_epsilon_whatever_comes_out(epsilon, threshold):
    for parts in ((0, 0), (3, 1), (0, 9)):
        count = sum(parts)
        found = losses(epsilon, threshold, count, count + 1, parts, (parts[0] + 1, parts[1]))
        assert found <= epsilon * (1 + 1e-12)
        assert found >= epsilon * (1 - 1e-12)  # and it is needed
    # Planted: the closer look of light cells released for heavy ones, too.
    a, b = math.exp(-epsilon), math.exp(-epsilon / 2)
    leak = math.log(laplace(0, a) / laplace(1, a)) + math.log(laplace(0, b) / laplace(1, b))
    assert leak > epsilon * 1.4


def chi_square(found, expected, n):
    """Whether counts fit chances, at the stated false-alarm rate; rare values together."""
    kept = {z: p for z, p in expected.items() if n * p >= 10}
    rest = 1 - sum(kept.values())
    statistic = sum((found[z] - n * p) ** 2 / (n * p) for z, p in kept.items())
    others = n - sum(found[z] for z in kept)
    if n * rest >= 10:
        statistic += (others - n * rest) ** 2 / (n * rest)
    return statistic < chi2.isf(FALSE_ALARM, len(kept))


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.5])
def test_draws_follow_the_law(epsilon):
    n, counts = 200_000, np.full(200_000, 7, dtype=np.int64)
    law = zoom_law(1, n, epsilon, "add-remove", NEVER)
    (first, second), receipt = choose(counts, law, source=None)
    assert receipt.epsilon == epsilon
    assert receipt.sampler.startswith("exact integer sampler of privsketch")
    a, b = math.exp(-epsilon), math.exp(-epsilon / 2)
    near, far, both = Counter(second - 7), Counter(first - second), Counter(first - 7)
    steps = range(-200, 201)
    assert chi_square(near, {z: laplace(z, a) for z in steps}, n)
    assert chi_square(far, {z: added(z, b) for z in steps}, n)
    assert chi_square(both, {z: laplace(z, b) for z in steps}, n)
    # What is added does not depend on the first noise: signs agree in half of the cases.
    signs = np.sign(second - 7) * np.sign(first - second)
    n_signs = int((signs != 0).sum())
    assert abs(int((signs > 0).sum()) - n_signs / 2) < 6 * math.sqrt(n_signs) / 2  # 2e-9
    # A coin that is right on average only where epsilon is small is found out: at 2.5 its
    # statistic is 15 deviations above the bound, at 1 it would be 2.
    wrong = np.where(np.random.default_rng(0).random(n) < 0.25, 0, discrete_laplace(n, 2 / epsilon))
    assert epsilon < 2 or not chi_square(Counter(wrong), {z: added(z, b) for z in steps}, n)


def test_heavy_cells_keep_their_closer_look_secret():
    counts = np.array([0, 5, 100, 1000] * 50)
    law = zoom_law(1, 200, 0.5, "add-remove", Above(50))
    first, second = draw_zoom(counts, law)
    heavy = first > 50
    assert (second[heavy] == first[heavy]).all()
    assert (second[~heavy] != first[~heavy]).any()
    assert heavy[counts == 1000].all()


def test_what_is_not_calibrated_or_does_not_fit_is_refused():
    law = zoom_law(2, 3, 1.0, "replace", NEVER)
    assert Fraction(law.scale) >= 2
    with pytest.raises(ParameterError, match="expected 3 counts"):
        draw_zoom(np.zeros(4, np.int64), law)
    object.__setattr__(law, "scale", 1.9)
    with pytest.raises(ParameterError, match="calibrated"):
        draw_zoom(np.zeros(3, np.int64), law)
    with pytest.raises(ParameterError, match="64-bit"):
        choose(np.zeros(1, np.int64), zoom_law(1, 1, 1e-17, "add-remove", NEVER), source=None)


@pytest.mark.parametrize(("neighbours", "times"), [("add-remove", 1), ("replace", 2)])
def test_an_account_pays_once_for_both_looks(neighbours, times):
    counts = np.array([3, 80, 2], dtype=np.int64)

    def run():
        account = Account(Shares(Budget(0.5, 0.0, neighbours), {"cells": Fraction(1)}))
        _, _, law = account.zoom("cells", counts, Above(20))
        account.parts(law, np.array([50, 30, 0, 0]))
        with pytest.raises(ParameterError, match="before"):
            account.parts(law, np.array([50, 30, 0, 0]))
        receipt = account.receipt("both", None)
        assert receipt.epsilon == 0.5
        assert receipt.delta == 0

    looks, parts = questions(run)
    assert (looks.law.kind, parts.law.kind) == ("zoom", "laplace")
    assert looks.law.scale == pytest.approx(2 * times)
    assert parts.law.scale == pytest.approx(4 * times)
    halves = Fraction(looks.law.sensitivity) / Fraction(parts.law.scale)
    assert halves <= Fraction(1, 4)  # half of epsilon, the other half being that of y1


def test_parts_without_looks_are_refused():
    account = Account(Shares(Budget(0.5), {"cells": Fraction(1)}))
    with pytest.raises(ParameterError, match="there was no zoom"):
        account.parts(zoom_law(1, 3, 0.5, "add-remove", NEVER), np.array([1, 2]))
