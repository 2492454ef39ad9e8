"""What tellers publish about one record, over all of their words: enumerated modulo 32 and 64.

A total x + z_1 + z_2 is published with a check word, the sum of r_j times its words. One teller is
honest, and everything else is known: the draws of the others, the sums of all other holders. What
is left is a function of x + z, modulo M, and so must the check word be.
"""

import itertools
import math

import numpy as np
import pytest

EPSILON = 0.7


def laplace(n_words, sensitivity, modulus):
    """P(z) ~ exp(-epsilon |z|_1 / sensitivity), folded; what a record moves is in that norm."""
    return _folded(n_words, sensitivity, modulus, lambda z: np.abs(z).sum(axis=0))


def cube(n_words, sensitivity, modulus):
    """P(z) ~ exp(-epsilon max |z| / sensitivity), folded."""
    return _folded(n_words, sensitivity, modulus, lambda z: np.abs(z).max(axis=0))


def _folded(n_words, sensitivity, modulus, norm):
    reach = (60 * sensitivity // modulus + 1) * modulus  # beyond it is e^-40 of all
    z = np.stack(np.meshgrid(*[np.arange(-reach, reach)] * n_words, indexing="ij"))
    weights = np.exp(-EPSILON * norm(z) / sensitivity)
    shape = [n for _ in range(n_words) for n in (2 * reach // modulus, modulus)]
    folded = weights.reshape(shape).sum(axis=tuple(range(0, 2 * n_words, 2)))
    return folded / folded.sum()


def tallied(law, x, known, r, modulus, *, noisy_check=True):
    """Chances of all words of the tally: {(word, ..., check word): chance}."""
    found = {}
    for z in itertools.product(range(modulus), repeat=len(x)):
        words = tuple((a + b + c) % modulus for a, b, c in zip(x, z, known, strict=True))
        noise = tuple(b + c for b, c in zip(z, known, strict=True))
        added = noise if noisy_check else (0,) * len(x)
        check = sum(w * (a + n) for w, a, n in zip(r, x, added, strict=True)) % modulus
        view = (*words, check)
        found[view] = found.get(view, 0.0) + float(law[z])
    return found


def largest_loss(one, other):
    """Of the logarithms of all ratios; infinite if something shows in one case only."""
    if set(one) != set(other):
        return math.inf
    return max(abs(math.log(one[view] / other[view])) for view in one)


def moves(n_words, sensitivity, norm):
    steps = itertools.product(range(-sensitivity, sensitivity + 1), repeat=n_words)
    return [step for step in steps if 0 < norm(map(abs, step)) <= sensitivity]


CASES = [
    (laplace, sum, 1, 3, 64, (5,)),
    (laplace, sum, 1, 3, 64, (32,)),
    (laplace, sum, 2, 2, 32, (1, 1)),
    (laplace, sum, 2, 2, 32, (7, 24)),
    (cube, max, 2, 2, 32, (7, 24)),
    (cube, max, 2, 2, 32, (0, 16)),
]


@pytest.mark.parametrize(("law_of", "norm", "n_words", "sensitivity", "modulus", "r"), CASES)
def test_no_word_of_a_tally_tells_more_than_epsilon(law_of, norm, n_words, sensitivity, modulus, r):
    law = law_of(n_words, sensitivity, modulus)
    x, known = (modulus - 2,) * n_words, (modulus // 3,) * n_words  # sums that wrap
    one = tallied(law, x, known, r, modulus)
    assert sum(one.values()) == pytest.approx(1)
    losses = []
    for step in moves(n_words, sensitivity, norm):
        other = tuple(a + b for a, b in zip(x, step, strict=True))
        losses.append(largest_loss(one, tallied(law, other, known, r, modulus)))
    assert max(losses) <= EPSILON + 1e-9
    assert max(losses) > 0.9 * EPSILON  # and the enumeration sees that there is a loss


@pytest.mark.parametrize(("law_of", "norm", "n_words", "sensitivity", "modulus", "r"), CASES)
def test_a_check_word_without_noise_tells_an_exact_sum(
    law_of, norm, n_words, sensitivity, modulus, r
):
    law = law_of(n_words, sensitivity, modulus)
    x, known = (modulus - 2,) * n_words, (modulus // 3,) * n_words
    one = tallied(law, x, known, r, modulus, noisy_check=False)
    losses = []
    for step in moves(n_words, sensitivity, norm):
        other = tuple(a + b for a, b in zip(x, step, strict=True))
        told = tallied(law, other, known, r, modulus, noisy_check=False)
        losses.append(largest_loss(one, told))
    assert max(losses) == math.inf


def test_a_teller_can_add_its_noise_to_the_check_word():
    """With the real draws: the check word of noisy words is the noisy check word, modulo 2^64."""
    from privsketch.noise import SumNoise, laplace_law, plan_sharing

    noise = SumNoise(laplace_law(10**15, 50, 0.1, "add-remove"), None, "omitted", 1, 1)
    sharing = plan_sharing(noise, n_holders=5)
    rng = np.random.default_rng(0)
    r, words = (rng.integers(-(2**63), 2**63 - 1, 50) for _ in range(2))
    z, _ = sharing.draw_teller()
    assert (z != 0).any()
    check = int((r * words).sum()) + int((r * z).sum())
    assert (check - int((r * (words + z)).sum())) % 2**64 == 0
