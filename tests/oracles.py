"""Laws written down from their definitions, and small helpers that several test files need.

Nothing in here is drawn, and nothing is taken from the code under test but what a law says of
itself: its scale, its threshold.
"""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

import privsketch as ps
from privsketch._base import fingerprint
from privsketch.noise import Account, Shares
from privsketch.testing import replaced_noise


def even_account(budget, *names):
    """An account with the same share for every name."""
    return Account(Shares(budget, {name: Fraction(1, len(names)) for name in names}))


def account_of(epsilon, neighbours, *names, delta=0.0):
    """The same, of what a budget is made of."""
    return even_account(ps.Budget(epsilon, delta, neighbours), *names)


def neighbour_at_the_end(records, new, neighbours):
    """A table without its last record, or with another one in its place."""
    return records[:-1] if neighbours == "add-remove" else [*records[:-1], new]


# --- choices ------------------------------------------------------------------------------------


def permute_and_flip(losses, scale):
    """Chance of every index: visited in random order, taken with a chance of exp(-excess / scale).

    All orders are tried: for up to 6 losses.
    """
    losses = np.asarray(losses).tolist()
    coins = [math.exp(-(loss - min(losses)) / scale) for loss in losses]
    found = np.zeros(len(coins))
    orders = list(itertools.permutations(range(len(coins))))
    for order in orders:
        left = 1.0
        for index in order:
            found[index] += left * coins[index] / len(orders)
            left *= 1 - coins[index]
    return found


def possible_choices(values, law, stretch=1.0):
    """What a law that chooses may give, with chances; its scale is multiplied by `stretch`."""
    if law.kind == "choice":
        chances = permute_and_flip(values, law.scale * stretch)
        return [(np.array([i]), chance) for i, chance in enumerate(chances)]
    q = math.exp(-1 / (law.scale * stretch))
    counts = np.zeros(law.n_components, dtype=int)
    counts[values[:, 0]] = values[:, 1]
    missing = law.threshold - counts
    above = np.where(missing >= 0, q**missing / (1 + q), 1 - q ** (1.0 - missing) / (1 + q))
    found = []
    for flags in itertools.product([False, True], repeat=law.n_components):
        chance = float(np.prod(np.where(flags, above, 1 - above)))
        found.append((np.flatnonzero(flags), chance))
    return found


def law_of_choices(run, stretch=1.0):
    """Chance of every sequence of choices that `run` can make."""
    law, waiting = {}, [()]
    while waiting:
        script = waiting.pop()
        chance, made = 1.0, []

        def sampler(values, noise, script=script, made=made):
            nonlocal chance
            options = possible_choices(values, noise, stretch)
            place = script[len(made)] if len(made) < len(script) else 0
            if len(made) >= len(script):
                waiting.extend((*made, other) for other in range(1, len(options)))
            made.append(place)
            chance *= options[place][1]
            return options[place][0], noise.scale

        with replaced_noise(sampler):
            run()
        law[tuple(made)] = chance
    assert sum(law.values()) == pytest.approx(1.0)
    return law


def worst_log_ratio(one, other):
    """Of the chances of the same outcomes under two laws."""
    assert set(one) == set(other)
    return max(abs(math.log(one[key] / other[key])) for key in one)


# --- statistics ---------------------------------------------------------------------------------


def fits(counts, chances, false_alarm=1e-7):
    """Whether a chi-square test of counts accepts the chances."""
    counts, expected = np.asarray(counts), np.asarray(chances) * np.sum(counts)
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return statistic < chi2.isf(false_alarm, len(counts) - 1)


# --- components ----------------------------------------------------------------------------------


def missed_variance(matrix, components):
    """Share of the variance of the best components that these miss."""
    best = np.linalg.eigvalsh(matrix)[::-1][: len(components)].sum()
    return 1 - np.trace(components @ matrix @ components.T) / best


# --- files ---------------------------------------------------------------------------------------


def resave(path, change):
    """Change the content of a JSON file of ours and give it a valid fingerprint again."""
    whole = json.loads(path.read_text())
    content = {k: v for k, v in whole.items() if k not in ("format", "version", "fingerprint")}
    change(content)
    head = {"format": whole["format"], "version": whole["version"]}
    path.write_text(json.dumps({**head, **content, "fingerprint": fingerprint(content)}))


# --- cases ---------------------------------------------------------------------------------------

# Choices of the fixture make_design, one for each kind of sketch.
DESIGNS = {
    "gaussian": {},
    "cube": {"delta": 0.0},
    "laplace": {"delta": 0.0, "noise": "laplace"},
    "count omitted": {"count": "omitted"},
    "replace": {"neighbours": "replace"},
    "one-bit": {"feature_map": "one-bit"},
    "cells": {"feature_map": "cells", "noise": "laplace"},
    "ball": {"domain": ps.Ball(dim=3, radius=3.0)},
}

# Share of the sums in a Laplace budget: number of records, epsilon, share, by mpmath.
SHARES_OF_THE_SUMS = [
    (1, 1, 0.546602348),
    (100, 0.1, 0.815258096),
    (1000, 0.1, 0.955019929),
    (1e4, 1, 0.997848660),
    (1e6, 1, 0.999900007),
]
