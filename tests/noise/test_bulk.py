"""Exact noise for whole tables: the laws, and the rare decisions that floats cannot make."""

import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from privsketch.noise import (
    add_discrete_gaussian,
    add_discrete_laplace,
    discrete_gaussian,
    discrete_laplace,
    samplers,
)
from tests import seams

ALARM = 1e-7  # of every statistical test here
SCALES = [0.5, 0.7, 1.0, 3.7, 31.0, 32.0, 33.5, 64.0, 500.25]


def laplace_pmf(z, scale):
    return np.exp(-np.abs(z) / scale) * np.tanh(0.5 / scale)


def gaussian_pmf(z, sigma):
    every = np.arange(-int(60 * sigma) - 60, int(60 * sigma) + 61)
    return np.exp(-(z**2) / (2 * sigma**2)) / np.exp(-(every**2) / (2 * sigma**2)).sum()


LAWS = {"laplace": (discrete_laplace, laplace_pmf), "gaussian": (discrete_gaussian, gaussian_pmf)}


def p_value(draws, pmf):
    """Chi-square test with cells of about 500 expected draws."""
    reach = max(2, int(np.abs(draws).max()))
    z = np.arange(-reach, reach + 1)
    expected = pmf(z.astype(float)) * len(draws)
    seen = np.bincount(draws + reach, minlength=len(z)).astype(float)
    cell = np.floor(np.cumsum(expected) / 500).astype(int)
    expected, seen = np.bincount(cell, expected), np.bincount(cell, seen)
    keep = expected >= 10
    rest = len(draws) - expected[keep].sum()
    expected = np.append(expected[keep], max(rest, 1e-9))
    seen = np.append(seen[keep], len(draws) - seen[keep].sum())
    if rest < 10:
        expected, seen = expected[:-1], seen[:-1]
    statistic = ((seen - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, len(expected))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("law", LAWS)
def test_the_law_is_right_and_another_one_is_noticed(law, scale):
    draw, pmf = LAWS[law]
    draws = draw(300_000, scale)
    assert p_value(draws, lambda z: pmf(z, scale)) > ALARM
    assert p_value(draws, lambda z: pmf(z, 1.1 * scale)) < ALARM
    assert p_value(draws, lambda z: pmf(z, 0.9 * scale)) < ALARM


@pytest.mark.mostly_slow(quick_every=10)
@pytest.mark.parametrize("scale", [2.0**20 + 0.5, 2.0**35 + 3, 2.0**36.9, 2.0**38, 2.0**50 + 1])
@pytest.mark.parametrize(
    ("draw", "law"), [(discrete_laplace, stats.laplace), (discrete_gaussian, stats.norm)]
)
def test_large_scales_look_continuous(draw, law, scale):
    draws = draw(200_000, scale)
    assert stats.kstest(draws / scale, law.cdf).pvalue > ALARM
    assert stats.kstest(draws / (1.1 * scale), law.cdf).pvalue < ALARM
    low = draws & 63  # at such scales uniform
    assert stats.chisquare(np.bincount(low, minlength=64)).pvalue > ALARM


@pytest.mark.parametrize(
    ("ours", "theirs", "scale"),
    [
        (discrete_laplace, lambda v, s: add_discrete_laplace(v, s, 1, 100.0)[0], 5.5),
        (discrete_gaussian, lambda v, s: add_discrete_gaussian(v, s, 1.0, 100.0)[0], 5.5),
    ],
)
def test_opendp_draws_the_same_law(ours, theirs, scale):
    mine = ours(20_000, scale)
    other = theirs(np.zeros(20_000, dtype=np.int64), scale)
    table = np.array([np.bincount(np.clip(x, -15, 15) + 15, minlength=31) for x in (mine, other)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue > ALARM


def bytes_of(*numbers):
    """Random bytes that are not: 64-bit words in a given order."""
    left = list(numbers)

    def take(count):
        words, left[:] = left[: count // 8], left[count // 8 :]
        return np.array(words, dtype=np.uint64).tobytes()

    return take


def floor_of(probability, bits):
    with mpmath.workdps(200):
        return int(mpmath.floor(probability() * mpmath.mpf(2) ** bits))


@pytest.mark.parametrize("exponent", [Fraction(1, 3), Fraction(1, 10**9), Fraction(45, 2)])
def test_a_coin_is_decided_by_all_the_digits_it_takes(exponent):
    def probability():
        return mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)

    word = floor_of(probability, 64)
    more = floor_of(probability, 128) & (2**64 - 1)
    assert samplers._settled_coin(word - 1, 64, exponent, bytes_of())
    assert not samplers._settled_coin(word + 1, 64, exponent, bytes_of())
    assert samplers._settled_coin(word, 64, exponent, bytes_of(more - 1))
    assert not samplers._settled_coin(word, 64, exponent, bytes_of(more + 1))
    last = floor_of(probability, 192) & (2**64 - 1)
    assert samplers._settled_coin(word, 64, exponent, bytes_of(more, last - 1))
    assert not samplers._settled_coin(word, 64, exponent, bytes_of(more, last + 1))


def test_a_certain_coin_needs_no_digits():
    assert samplers._settled_coin(2**64 - 1, 64, Fraction(0), bytes_of())


@pytest.mark.parametrize("scale", [0.05, 7.3, 2.0**20 + 0.5, 2.0**40])
def test_coins_agree_with_the_settled_ones_wherever_they_start(scale):
    """Words around every boundary: what floats decide is what all digits decide."""
    rate = 1 / Fraction(scale)
    values = np.repeat(np.array([0, 1, 2, 5, 17]), 9).astype(np.int64)
    bounds = [
        floor_of(lambda v=v: mpmath.exp(-v / mpmath.mpf(scale)), 16) for v in (0, 1, 2, 5, 17)
    ]
    words = np.concatenate([np.arange(b - 4, b + 5) for b in bounds]).clip(0, 2**16 - 1)
    for tail in (0, 2**64 - 1):
        got = samplers._coins(
            values,
            words.astype(np.uint64),
            16,
            lambda v: v * float(rate),
            lambda v: v * rate,
            bytes_of(*[tail] * 100),
        )
        expected = [
            samplers._settled_coin(int(w), 16, int(v) * rate, bytes_of(*[tail] * 9))
            for w, v in zip(words, values, strict=True)
        ]
        assert got.tolist() == expected


@pytest.mark.parametrize("scale", [0.3, 40.0, 2.0**30 + 7])
def test_the_upper_part_is_found_in_its_distribution_function(scale):
    law = samplers._geometric_law(Fraction(scale))

    def below(j):
        return lambda: 1 - mpmath.exp(-j * mpmath.mpf(2) ** law.low_bits / mpmath.mpf(scale))

    assert 2**law.low_bits <= max(1, scale / 32)
    for j in (1, 2, 3, 30, 100):
        bound = floor_of(below(j), 64)
        if bound >= 2**64 - 2:
            break
        assert int(law.bounds[j - 1]) == bound
        for word, tail, expected in (
            (bound - 1, 0, j - 1),
            (bound + 1, 0, j),
            (bound, (floor_of(below(j), 128) & (2**64 - 1)) - 1, j - 1),
            (bound, (floor_of(below(j), 128) & (2**64 - 1)) + 1, j),
        ):
            if j == 1 or bound - 1 > floor_of(below(j - 1), 64):
                first = np.array([word >> 48], dtype=np.uint64)
                rest = (word & (2**48 - 1)) << 16
                assert samplers._upper(first, law, bytes_of(rest, tail))[0] == expected


def test_quick_answers_are_those_of_the_whole_table():
    law = samplers._geometric_law(Fraction(1000))
    first = np.arange(2**16)
    sure = law.quick >= 0
    for word in (first << 48, (first << 48) + (2**48 - 1)):
        slow = np.searchsorted(law.bounds, word.astype(np.uint64), side="right")
        assert (slow[sure] == law.quick[sure]).all()
    assert sure.mean() > 0.9


def test_beyond_the_table_the_law_starts_again():
    law = samplers._geometric_law(Fraction(2**30))
    # A uniform number within 2^-128 of 1 lies beyond the table, the next one, near 0, adds 0.
    first = np.array([2**16 - 1], dtype=np.uint64)
    ones = [2**64 - 1] * 2
    assert samplers._upper(first, law, bytes_of(*ones, 0, 0))[0] == samplers._N_BOUNDS
    assert (
        samplers._upper(first, law, bytes_of(*ones, 2**63, 0))[0] == samplers._N_BOUNDS + 22
    )  # ln(2) 32


def test_fourth_moments_and_independence():
    draws = discrete_laplace(400_000, 1000.0) / 1000.0
    kurtosis = (draws**4).mean()
    # E z^4 = 24, E z^8 = 40320. A mean of z^4 has a heavy tail: 7 standard errors, 5e-8.
    assert abs(kurtosis - 24) < 7 * math.sqrt((40320 - 24**2) / len(draws))
    correlation = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(correlation) < 5.5 / math.sqrt(len(draws))


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian])
def test_any_count(draw):
    for count in (0, 1, 5, samplers.CHUNK, samplers.CHUNK + 1, 40_000):
        draws = draw(count, 12.5)
        assert draws.shape == (count,)
        assert draws.dtype == np.int64


@pytest.mark.parametrize("sigma", [3.5, 2.0**53, 2.0**54 + 4, 1.1 * 2.0**55])
def test_the_proposal_has_the_scale_that_its_acceptance_is_for(sigma, monkeypatch):
    """floor(sigma) + 1, an integer that above 2^53 may be no float."""
    seen, right = [], samplers._laplace

    def note(count, law, *rest):
        seen.append(law.scale)
        return right(count, law, *rest)

    seams.set(monkeypatch, "samplers.laplace", note)
    draws = discrete_gaussian(2000, sigma)
    assert seen[0] == math.floor(sigma) + 1
    # The mean square of 2000 draws, 6 standard errors: 2e-9.
    assert abs((draws / sigma).astype(float).var() - 1) < 6 * math.sqrt(2 / 2000)


@pytest.mark.parametrize("upper", [2**12, 2**12 + 1, 2**13, 2**14, 3 * 2**13])
def test_draws_beyond_64_bits_are_right_modulo_2_to_the_64(upper, monkeypatch):
    """And what is 2^64 times something is no zero, which would be drawn again if it is negative."""
    law = samplers._geometric_law(Fraction(2**56))
    seams.set(monkeypatch, "samplers.upper", lambda first, *_: np.full(len(first), upper))
    seams.set(monkeypatch, "samplers.low", lambda words, *_: np.zeros(len(words), dtype=np.int64))
    far = {}
    values = samplers._laplace(100, law, os.urandom, far)
    assert len(far) == 100
    assert {abs(value) for value in far.values()} == {upper << law.low_bits}
    assert min(far.values()) < 0 < max(far.values())  # but for a chance of 2^-99
    assert [far[place] % 2**64 for place in range(100)] == values.view(np.uint64).tolist()


def test_gaussian_proposals_beyond_64_bits_are_judged_by_where_they_are(monkeypatch):
    """Modulo 2^64 such a one may look near to zero, where it would be kept."""
    right, calls = samplers._laplace, []

    def beyond(count, law, random_bytes, far=None):
        values = right(count, law, random_bytes, far)
        if far is not None and not calls:
            calls.append(count)
            values[:], far_away = 7, dict.fromkeys(range(count), 2**64 + 7)
            far.update(far_away)
        return values

    seams.set(monkeypatch, "samplers.laplace", beyond)
    draws = discrete_gaussian(50, 2.0**55)
    assert calls
    assert not (draws == 7).any()
