"""Second moments with a released mean: how far a replaced record moves them, by search."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

import privsketch as ps
from privsketch.features import (
    MOMENT_RADIUS,
    RECORD_MAX,
    MomentContribution,
    Quantiser,
    RepeatedContribution,
    coarse_records,
    moment_sums,
)

R, M = MOMENT_RADIUS, RECORD_MAX
# Largest changes for these ratios of the mean's sensitivity to that of the moments.
KNOWN = {0.25: 1.458408, 1.0: 2.121320, 1.8: 3.600000}


def weight_of(ratio):
    return round(ratio * 5 * R**2 / M)


def bound(ratio, dim):
    """The squared L2 sensitivity of integers, in units of 25 R^4."""
    own = MomentContribution(dim)
    added = own.mean_l2_squared(weight_of(ratio), "replace")
    return math.sqrt((own.l2_squared(None, "replace") + added) / (25 * R**4))


def in_ball(x):
    return x / max(1.0, np.linalg.norm(x))


def real_change(pair, ratio):
    """Change of (x x', ratio x) between two points of the unit ball."""
    x, y = (in_ball(part) for part in np.split(pair, 2))
    moments = np.sum((np.outer(x, x) - np.outer(y, y)) ** 2)
    return math.sqrt(moments + ratio**2 * np.sum((x - y) ** 2))


def integer_change(records, ratio):
    """Squared change of the integers of two quantised records, without rounding."""
    one, other = (moment_sums(record[np.newaxis]) for record in records)
    moments = sum(int(a) ** 2 for a in one - other)
    moved = records[0].astype(np.int64) - records[1].astype(np.int64)
    return moments + weight_of(ratio) ** 2 * int(moved @ moved)


@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize("ratio", KNOWN)
def test_the_bound_is_what_a_search_finds(ratio, dim):
    rng = np.random.default_rng(dim)
    found = 0.0
    for _ in range(12):
        start = rng.normal(size=2 * dim)
        for _ in range(3):  # restarts, because the simplex collapses
            start = minimize(
                lambda pair: -real_change(pair, ratio),
                start,
                method="Nelder-Mead",
                options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12},
            ).x
        found = max(found, real_change(start, ratio))
    assert found == pytest.approx(KNOWN[ratio], abs=6e-7)
    assert found <= bound(ratio, dim)
    # The weight is a whole number, and rounding costs up to 0.00125 sqrt d.
    assert bound(ratio, dim) <= found * (1 + 0.00125 * math.sqrt(dim) + 0.5 / weight_of(ratio))


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
@pytest.mark.parametrize("ratio", KNOWN)
def test_no_pair_of_records_moves_integers_further(ratio, dim):
    """Records near the worst pair, where rounding decides, and records anywhere."""
    rng = np.random.default_rng(0)
    quantise, allowed = Quantiser(ps.Ball(dim, 1.0)), (bound(ratio, dim) ** 2) * 25 * R**4
    cosine = -min(ratio**2 / 2, 1.0)
    worst = 0
    for place in range(400):
        # 7/5 is less than sqrt 2: moments move most where one coordinate is large.
        x, other = rng.normal(size=(2, dim)) * np.where(np.arange(dim) < 1, 1.0, 0.02)
        other = np.roll(other, 1)
        x /= np.linalg.norm(x)
        other -= (other @ x) * x
        y = cosine * x + math.sqrt(1 - cosine**2) * other / max(np.linalg.norm(other), 1e-300)
        pair = np.array([x, y]) if place % 4 else rng.normal(size=(2, dim))
        worst = max(worst, integer_change(quantise(pair * rng.choice([1.0, 1.001, 9.0])), ratio))
    assert worst <= allowed
    if dim > 1:
        # The records are those that matter; rounding costs up to 0.0025 sqrt d of the square.
        assert worst > (0.995 - 0.0025 * math.sqrt(dim)) * allowed


@pytest.mark.parametrize("dim", [1, 2, 7, 300])
def test_coarse_records_are_near_fine_ones(dim):
    """Within 2 sqrt d, on which the bound rests; also where a record is shortened."""
    rng = np.random.default_rng(dim)
    X = rng.normal(size=(4000, dim)) * rng.choice([0.3, 1.0, 50.0], (4000, 1))
    X[::7] = np.sign(X[::7])  # equal coordinates are rounded alike
    fine = Quantiser(ps.Ball(dim, 1.0))(X)
    away = coarse_records(fine) - fine * (R / M)
    assert np.linalg.norm(away, axis=1).max() <= 1.5 * math.sqrt(dim)


def test_the_bound_is_the_least_of_two():
    for ratio in (0.01, *KNOWN, 10.0):
        for dim in (1, 2, 51, 100, 30_000):
            own, weight = MomentContribution(dim), weight_of(ratio)
            separate = (2 * weight * M) ** 2
            assert 0 < own.mean_l2_squared(weight, "replace") <= separate
            assert own.mean_l2_squared(weight, "add-remove") == (weight * M) ** 2
    # At the weight that designs have: 2.8 % less noise, and less of that in many columns.
    shares = []
    for dim in (2, 51, 100):
        own, weight = MomentContribution(dim), weight_of(0.25)
        apart = 50 * R**4 + (2 * weight * M) ** 2
        shares.append(math.sqrt((50 * R**4 + own.mean_l2_squared(weight, "replace")) / apart))
    assert shares == pytest.approx([0.97240, 0.97332, 0.97371], abs=1e-3)


def test_the_formula_in_fractions():
    dim, weight = 7, weight_of(0.25)
    square = Fraction(weight * M) ** 2
    exact = float(2 * square + square**2 / (50 * R**4))
    exact += 2 * weight**2 * (M / R) ** 2 * (4 * R * math.sqrt(dim) + 4 * dim)
    found = MomentContribution(dim).mean_l2_squared(weight, "replace")
    assert exact <= found <= exact * (1 + 1e-3 / R)


def test_designs_are_calibrated_to_it():
    design = ps.Design.plan(
        task="pca",
        n_components=1,
        domain=ps.Ball(3, 1.0),
        budget=ps.Budget(1.0, 1e-6, "replace"),
        n_records=1000,
        feature_map="second-moments",
        mean="released",
        random_state=0,
    )
    noise, own = design.sum_noise, MomentContribution(3)
    expected = 50 * R**4 + own.mean_l2_squared(noise.mean_weight, "replace")
    assert noise.sums_law.sensitivity**2 >= expected * (1 - 1e-15)
    assert noise.sums_law.sensitivity == pytest.approx(math.sqrt(expected), rel=1e-12)
    assert noise.sums_law.sensitivity < 1.46 * 5 * R**2


@pytest.mark.parametrize("times", [2, 3, 1024])
def test_a_factor_of_the_moments_alone_is_one_of_the_weight(times):
    """Where holders share noise, moments are multiplied and the mean has a larger weight."""
    weight, own = times * weight_of(0.25) + 1, MomentContribution(4)
    scaled = RepeatedContribution(own, times)
    each = own.mean_l2_squared(Fraction(weight, times), "replace")
    assert scaled.mean_l2_squared(weight, "replace") == times**2 * each
    assert scaled.mean_l2_squared(weight, "add-remove") >= (weight * M) ** 2


def test_rounding_moves_records_beyond_the_bound_of_real_numbers():
    """The mean is summed from finer numbers: a pair that the formula without rounding forgets."""
    pair = np.array([[32766, -20, -20, -20, -20], [-1038, 32723, 932, 720, 593]], dtype=np.int16)
    assert (np.square(pair.astype(np.int64)).sum(axis=1) <= M**2).all()
    own, square = MomentContribution(5), Fraction(weight_of(0.25) * M) ** 2
    apart = own.l2_squared(None, "replace")
    real = apart + 2 * square + square**2 / apart
    assert real * (1 + Fraction(1, 10**5)) < integer_change(pair, 0.25)
    assert integer_change(pair, 0.25) <= apart + own.mean_l2_squared(weight_of(0.25), "replace")
