"""Private choices: their laws by enumeration, their samplers against these laws."""

import itertools
import math
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest

from privsketch import ParameterError
from privsketch.noise import (
    choice_law,
    choose,
    draw_binomial,
    draw_subset,
    laplace_law,
    reaching,
    threshold_law,
)
from privsketch.testing import replaced_noise
from tests.oracles import fits, permute_and_flip

# --- the cost of a choice, by enumeration ---


def worst_loss(width, scale, changes):
    """Largest log-ratio between neighbouring vectors of three losses."""
    worst = 0.0
    for before in itertools.product(range(0, 2 * width + 1, width), repeat=3):
        one = permute_and_flip(before, scale)
        for change in itertools.product(changes, repeat=3):
            other = permute_and_flip(np.add(before, change), scale)
            worst = max(worst, float(np.abs(np.log(one / other)).max()))
    return worst


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_choice_costs_no_more_than_its_receipt(neighbours):
    width, epsilon = 4, 0.8
    law = choice_law(width, 3, epsilon, neighbours)
    # A record adds 0..width to each loss; a replacement takes another one away.
    changes = [0, 1, width] if neighbours == "add-remove" else [-width, 0, width]
    worst = worst_loss(width, law.scale, changes)
    assert 0.8 * epsilon < worst <= epsilon * (1 + 1e-12)
    assert worst_loss(width, law.scale / 2, changes) > epsilon  # a planted scale is caught


def test_scale_of_the_swap_rounds():
    # Radius 1: losses have width 4; epsilon 1 in 10 swaps and one choice. Weights exp(-a L).
    epsilon = 1 / 11
    assert 1 / choice_law(4, 9, epsilon, "add-remove").scale == pytest.approx(0.0227272727, 1e-8)
    assert 1 / choice_law(4, 9, epsilon, "replace").scale == pytest.approx(0.0113636364, 1e-8)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_choices_follow_permute_and_flip(neighbours):
    law = choice_law(4, 4, 0.8, neighbours)
    losses = np.rint(law.scale * np.array([1.2, 0.0, 2.4, 0.6])).astype(np.int64)
    drawn = [int(choose(losses, law, source=None)[0][0]) for _ in range(2000)]
    counts = np.bincount(drawn, minlength=4)
    assert fits(counts, permute_and_flip(losses, law.scale))
    assert not fits(counts, permute_and_flip(losses, 2 * law.scale))
    assert not fits(counts, permute_and_flip(losses, law.scale / 2))


def test_large_losses_are_told_apart():
    losses = np.full(5000, 2**61, dtype=np.int64)
    losses[1234] -= 2**40
    law = choice_law(2**22, 5000, 1.0, "add-remove")
    chosen, receipt = choose(losses, law, source="s")  # missed with chance 5000 e^(-2^18)
    assert chosen.tolist() == [1234]
    assert (receipt.epsilon, receipt.delta, receipt.source) == (1.0, 0.0, "s")
    assert Fraction(receipt.scale) >= 2**22


# --- thresholds ---


def test_chances_of_a_threshold():
    # Discrete noise: the threshold is an integer.
    law = threshold_law(7, 10, 0.4, "add-remove")
    for count, chance in {0: 0.0364062341, 3: 0.120872954, 8: 0.730992294}.items():
        assert law.chance(count) == pytest.approx(chance, rel=1e-8)
    # The paper's own f is the tail of continuous Laplace noise.
    for count, chance in {3: 0.0895330740, 8: 0.622108129}.items():
        gap = 0.4 * (7.3 - count)
        tail = 0.5 * math.exp(-gap) if gap >= 0 else 1 - 0.5 * math.exp(gap)
        assert tail == pytest.approx(chance, rel=1e-8)


def test_chance_is_the_tail_of_discrete_laplace_noise():
    law = threshold_law(3, 10, 0.7, "replace")
    q = math.exp(-0.35)
    for count in range(9):
        tail = sum((1 - q) / (1 + q) * q ** abs(z) for z in range(3 - count, 200))
        assert law.chance(count) == pytest.approx(tail, rel=1e-12)


def subset_law(counts, law):
    """Probability of every set of places that reach the threshold, all counts noised."""
    chances = [law.chance(count) for count in counts]
    return {
        flags: math.prod(c if flag else 1 - c for c, flag in zip(chances, flags, strict=True))
        for flags in itertools.product([False, True], repeat=len(counts))
    }


@pytest.mark.slow
def test_empty_counts_have_the_law_that_noise_would_give_them():
    counts = [0, 2, 0, 1]  # all 16 sets are likely: the rarest has a chance of 1.2 %
    law = threshold_law(1, 4, 0.5, "add-remove")
    exact = subset_law(counts, law)
    occupied = np.array([[i, c] for i, c in enumerate(counts) if c])
    drawn = dict.fromkeys(exact, 0)
    for _ in range(3000):
        places = choose(occupied, law, source=None)[0]
        drawn[tuple(i in places for i in range(4))] += 1
    assert fits(list(drawn.values()), list(exact.values()))
    for wrong in (0.25, 1.0):
        planted = subset_law(counts, threshold_law(1, 4, wrong, "add-remove"))
        assert not fits(list(drawn.values()), list(planted.values()))


def test_many_empty_cubes():
    law = threshold_law(36, 2**60, 1.0, "add-remove")
    with pytest.raises(ParameterError, match="threshold=20: noise alone"):
        reaching(np.zeros((0, 2), np.int64), threshold_law(20, 2**60, 1.0, "add-remove"))
    occupied = np.stack([np.arange(5) * 2**57, np.full(5, 1000)], axis=1)
    numbers = []
    for _ in range(40):
        places = reaching(occupied, law)
        assert np.all(np.diff(places) > 0)
        assert set(occupied[:, 0]) <= set(places)  # 964 beyond the threshold
        numbers.append(len(places) - 5)
    mean = 2.0**60 * law.chance(0)  # about 195: the mean of 40 has a deviation of 2
    assert abs(np.mean(numbers) - mean) < 5.5 * math.sqrt(mean / 40)


def test_ranks_of_empty_places_skip_the_occupied_ones():
    occupied = np.array([[0, 1], [2, 1], [3, 1], [7, 1]])
    law = threshold_law(1, 9, 40.0, "add-remove")  # noise is 0 but for a chance of 1e-17

    def everything(bound):
        return bound - 1  # a uniform number near 1: every trial succeeds

    places = reaching(occupied, law, random_below=everything)
    assert places.tolist() == list(range(9))


# --- the draws behind it ---


def scripted(words):
    left = iter(words)
    return lambda bound: next(left) % bound


def test_binomial_draws_are_exact_inversions():
    n = 7
    with localcontext() as context:
        context.prec = 120
        probability = Decimal(-1).exp()
        terms = [math.comb(n, j) * probability**j * (1 - probability) ** (n - j) for j in range(n)]
        bounds = list(itertools.accumulate(terms))
        words = [int(bound * 2**128) for bound in bounds]

    def chance():
        with localcontext(getcontext()):
            return Decimal(-1).exp()

    for value, word in enumerate(words):
        high, low = word >> 64, word & (2**64 - 1)
        assert draw_binomial(n, chance, scripted([high - 1])) == value
        assert draw_binomial(n, chance, scripted([high + 1])) == value + 1
        # The first 64 bits equal the bound's: the next 64 decide.
        assert draw_binomial(n, chance, scripted([high, low - 1])) == value
        assert draw_binomial(n, chance, scripted([high, low + 1])) == value + 1
        # And if these do too, 64 more.
        assert draw_binomial(n, chance, scripted([high, low, 0])) == value
        assert draw_binomial(n, chance, scripted([high, low, 2**64 - 1])) == value + 1


def test_binomial_refuses_what_it_cannot_draw():
    assert draw_binomial(0, lambda: Decimal("0.5")) == 0
    with pytest.raises(ParameterError, match="n_trials"):
        draw_binomial(2**62, lambda: Decimal("1e-19"))
    with pytest.raises(ParameterError, match="probability"):
        draw_binomial(2**40, lambda: Decimal("0.5"))


def test_subsets_are_uniform():
    # Every way the random numbers can fall: each subset the same number of times.
    seen = {}
    for words in itertools.product(range(3), range(4), range(5)):
        chosen = tuple(draw_subset(5, 3, scripted(words)))
        seen[chosen] = seen.get(chosen, 0) + 1
    assert len(seen) == math.comb(5, 3)
    assert set(seen.values()) == {6}


# --- the seam ---


def test_replaced_choices_are_marked():
    law = choice_law(4, 3, 0.5, "add-remove")
    with replaced_noise(lambda values, law: (np.array([2]), law.scale)):
        chosen, receipt = choose(np.array([1, 2, 3]), law, source=None)
    assert chosen.tolist() == [2]
    assert receipt.sampler.startswith("INSECURE")


def test_only_laws_that_choose():
    with pytest.raises(ParameterError, match="one that chooses"):
        choose(np.array([1]), laplace_law(1, 1, 1.0, "add-remove"), source=None)
    with pytest.raises(ParameterError, match="expected 3 of them"):
        choose(np.array([1]), choice_law(4, 3, 0.5, "add-remove"), source=None)
    with pytest.raises(ParameterError, match="threshold=0"):
        threshold_law(0, 3, 0.5, "add-remove")
