"""The formulas behind the noise, against published values and independent oracles."""

import math
from fractions import Fraction
from functools import partial

import mpmath
import numpy as np
import pytest

import privsketch as ps
from papers.theory import gamma_star, icassp_noise, icassp_to_laplace_scale, kappa
from privsketch import Budget, Masks, ParameterError
from privsketch.facts import exact, exact_sum
from privsketch.features import CellContribution, TableContribution, feature_map
from privsketch.noise import (
    MAX_RECORDS,
    count_share,
    cube_factor,
    cube_law,
    cube_variance,
    discrete_laplace_variance,
    gaussian_law,
    kappa_discrete,
    laplace_law,
    laplace_scale,
    log_delta_zcdp,
    plan_sum_noise,
    rho_of_budget,
    round_up_sqrt,
    split_epsilon,
)

BUDGETS = [(1.0, 1e-6), (0.1, 1e-8), (0.1, 1e-6), (4.0, 1e-6), (0.5, 1e-8), (0.003, 1e-9)]


def test_laplace_scale_of_fourier_features():
    # CLP Table 1: L1 sensitivity sqrt(2) m, twice that under replacement.
    assert laplace_scale(math.sqrt(2) * 1000, 1.0) == pytest.approx(1414.21356, rel=1e-8)
    assert laplace_scale(2 * math.sqrt(2) * 1000, 0.1) == pytest.approx(28284.2712, rel=1e-8)


@pytest.mark.parametrize(
    ("budget", "value"),
    [
        ((1.0, 1e-6), 4.22467889),
        ((0.1, 1e-8), 45.9373602),
        ((0.1, 1e-6), 36.3046904),
        ((4.0, 1e-6), 1.19351859),
        ((0.5, 1e-8), 9.86353380),
    ],
)
def test_continuous_gaussian_constant(budget, value):
    assert kappa(*budget) == pytest.approx(value, rel=6e-9)  # all printed digits


def test_gaussian_scale_of_fourier_features():
    assert kappa(1.0, 1e-6) * math.sqrt(2) == pytest.approx(5.97459818, rel=2e-9)
    assert kappa(1.0, 1e-6) * math.sqrt(1000) == pytest.approx(133.596077, rel=1e-8)
    assert kappa(1.0, 1e-6) * 2 * math.sqrt(1000) == pytest.approx(267.192154, rel=1e-8)


@pytest.mark.parametrize("budget", BUDGETS)
def test_kappa_solves_its_equation_in_high_precision(budget):
    epsilon, delta = budget
    with mpmath.workdps(50):

        def reached(s):
            s, e = mpmath.mpf(s), mpmath.mpf(str(epsilon))
            return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(
                -1 / (2 * s) - e * s
            )

        sigma = kappa(epsilon, delta)
        assert reached(sigma) <= mpmath.mpf(str(delta))  # rounded up: never above delta
        assert reached(sigma * (1 - 1e-9)) > mpmath.mpf(str(delta))


def test_icassp_normalisation():
    sigma_xi = icassp_noise(1e5, 1000, 0.1, 1.0)
    assert sigma_xi == pytest.approx(5.65685425, rel=1e-8)
    assert icassp_to_laplace_scale(sigma_xi, 1e5, 0.1) == pytest.approx(2828.42712, rel=1e-8)
    # The same noise as CLP's, for replacement.
    assert icassp_to_laplace_scale(sigma_xi, 1e5, 0.1) == pytest.approx(
        laplace_scale(2 * math.sqrt(2) * 1000, 1.0)
    )


def test_zcdp_budget():
    assert rho_of_budget(1.0, 1e-6) == pytest.approx(0.0243559704, rel=2e-9)
    assert rho_of_budget(0.1, 1e-8) == pytest.approx(2.08816381e-4, rel=2e-9)
    assert kappa_discrete(1.0, 1e-6) == pytest.approx(4.53087712, rel=2e-9)
    assert kappa_discrete(0.1, 1e-8) == pytest.approx(48.9330989, rel=2e-9)


TINY = [(1e-4, 1e-6), (1e-5, 1e-300), (1e-9, 1e-300), (1e-12, 1e-20), (100.0, 1e-9), (50.0, 0.9)]


@pytest.mark.parametrize("budget", BUDGETS + TINY)
def test_zcdp_conversion_agrees_with_high_precision_and_is_rounded_down(budget):
    epsilon, delta = budget
    rho = rho_of_budget(epsilon, delta)
    with mpmath.workdps(40):

        def log_delta(rho):
            def objective(t):
                a = 1 + mpmath.exp(t)
                return (a - 1) * (a * rho - epsilon) + a * mpmath.log(1 - 1 / a) - mpmath.log(a - 1)

            start = mpmath.log((epsilon + rho) / (2 * rho))
            return objective(mpmath.findroot(lambda t: mpmath.diff(objective, t), start))

        assert log_delta(mpmath.mpf(rho)) <= mpmath.log(mpmath.mpf(str(delta)))
        assert log_delta(mpmath.mpf(rho) * (1 + mpmath.mpf("1e-9"))) > mpmath.log(
            mpmath.mpf(str(delta))
        )
    assert log_delta_zcdp(rho, epsilon) <= math.log(delta)


def test_opendp_agrees_with_the_zcdp_conversion():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    law = gaussian_law(10_000, 3, 1.0, 1e-6, "add-remove")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement = dp.m.make_gaussian(*space, law.scale)
    profile = dp.c.make_zCDP_to_approxDP(measurement).map(law.sensitivity)
    assert profile.delta(1.0) == pytest.approx(1e-6, rel=1e-6)


def test_joint_count_continuous():
    # One release of (sums, 10 n): noise sigma on the sums, sigma / 10 on the count.
    sigma = kappa(1.0, 1e-6) * math.sqrt(1000 + 10**2)
    assert sigma == pytest.approx(140.116747, rel=1e-8)
    assert sigma / 10 == pytest.approx(14.0116747, rel=1e-8)


def test_discrete_laplace_variance():
    assert discrete_laplace_variance(10) == pytest.approx(199.833417, rel=1e-8)
    z = np.arange(-4000, 4001)
    p = np.exp(-np.abs(z) / 37.0)
    assert discrete_laplace_variance(37.0) == pytest.approx((z**2 * p).sum() / p.sum(), rel=1e-12)


def bound_of_share(u, n, epsilon, contribution, signal, rate=1.0):
    """CLP Lemma 27 less 1, written out: Laplace noise on all sums, and on a count of share u."""
    for_sums, for_count = (1 - u) * mpmath.mpf(epsilon), u * mpmath.mpf(epsilon)
    energy = mpmath.mpf(contribution.l2_squared(None, "add-remove"))
    noise = contribution.n_values * 2 * (contribution.l1(None) / for_sums) ** 2
    ratio = (1 / (rate * signal) - 1) / mpmath.mpf(n) + noise / (n**2 * signal * energy)
    return (1 + 2 / for_count**2 / (2 * mpmath.mpf(n) ** 2)) * (ratio + 1) - 1


CONTRIBUTIONS = {
    "fourier": (TableContribution(feature_map("fourier").bounds, 400, dim=3), 0.35),
    "one-bit": (TableContribution(feature_map("one-bit").bounds, 50, dim=3), 0.35),
    "cells": (CellContribution(512, 3), 1 / 512),
}


@pytest.mark.parametrize("name", CONTRIBUTIONS)
@pytest.mark.parametrize(("n", "epsilon"), [(1, 0.1), (100, 0.01), (1e4, 0.1), (1e5, 3), (1e9, 1)])
def test_the_share_of_the_count_minimises_the_bound(name, n, epsilon):
    contribution, signal = CONTRIBUTIONS[name]
    found = count_share(contribution, epsilon, n)
    with mpmath.workdps(40):
        bound = partial(bound_of_share, n=mpmath.mpf(n), epsilon=epsilon, contribution=contribution)
        slope = lambda u: mpmath.diff(partial(bound, signal=signal), u)  # noqa: E731
        least = mpmath.findroot(slope, (1e-7, 0.999), solver="bisect", verify=False)
        assert found == pytest.approx(float(least), rel=1e-9)
        # The share of Lemma 28, which is far off for sketches that tell something, is not it.
        printed = 1 - gamma_star(n, epsilon)
        assert bound(u=found, signal=signal) <= bound(u=printed, signal=signal)
    if n >= 1e5:
        assert found > 3 * printed


def test_masks_leave_the_share_nearly_as_it_is():
    contribution, _ = CONTRIBUTIONS["fourier"]
    plain = count_share(contribution, 1.0, 1e5)
    masked = count_share(contribution, 1.0, 1e5, Masks("poisson", rate=0.1, records=0.5))
    assert plain < masked < 1.01 * plain


def test_what_is_divided_by_the_count_gives_it_a_fiftieth():
    design = ps.Design.plan(
        task="pca",
        n_components=2,
        domain=ps.Ball(5, 1.0),
        budget=ps.Budget(1.0),
        feature_map="second-moments",
        noise="laplace",
        n_records=1e3,
        random_state=0,
    )
    assert design.sum_noise.count_law.epsilon == 0.02


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 0.3, 0.007, 3.5, 100.0, 1e-6])
@pytest.mark.parametrize("n_records", [1, 1e3, 1e9])
def test_shares_add_up_exactly(epsilon, n_records):
    share = count_share(CONTRIBUTIONS["fourier"][0], epsilon, n_records)
    for_sums, for_count = split_epsilon(epsilon, share)
    assert exact(for_sums) + exact(for_count) == exact(epsilon)
    assert for_count / epsilon == pytest.approx(share, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 0.7])
def test_a_release_pays_exactly_its_budget(epsilon):
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(epsilon),
        noise="laplace",
        count="released",
        n_features=60,
        n_records=1e4,
        random_state=0,
    )
    receipt = ps.sketch(np.zeros((50, 2)), design, source="here").receipt
    sums, count = receipt.parts
    assert exact(sums.epsilon) + exact(count.epsilon) == exact(epsilon)
    assert receipt.epsilon == epsilon
    share = count_share(design.contribution, epsilon, 1e4)
    assert count.epsilon == pytest.approx(share * epsilon, rel=1e-5)
    # Scales are those of the shares, rounded up.
    for part, l1 in ((sums, design.contribution.l1(None)), (count, 1)):
        assert exact(part.scale) >= Fraction(l1) / exact(part.epsilon)
        assert part.scale == pytest.approx(l1 / part.epsilon, rel=1e-12)


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("scale", [2**8, 2**15, 2**16, 2**20])
def test_rounded_tables_exceed_the_circle(scale):
    # Rounding cos and sin to integers can push |c| + |s| one above sqrt(2) S.
    published = {
        2**8: (363, 362),
        2**15: (46341, 46340),
        2**16: (92682, 92681),
        2**20: (1482911, 1482910),
    }[scale]
    turns = np.arange(2**22) / 2**22
    l1 = (
        np.abs(np.rint(scale * np.cos(2 * np.pi * turns)))
        + np.abs(np.rint(scale * np.sin(2 * np.pi * turns)))
    ).max()
    assert (l1, math.isqrt(2 * scale**2)) == published


def test_noise_is_calibrated_to_the_longest_pair_not_to_a_circle():
    bounds, amplitude = feature_map("fourier").bounds, int(feature_map("fourier").amplitude)
    assert math.isqrt(2 * amplitude**2) < bounds.l1 < 1.0007 * math.sqrt(2) * amplitude
    assert amplitude**2 < bounds.l2_squared < (1.0007 * amplitude) ** 2


def test_exact_numbers():
    assert exact(0.1) == Fraction(1, 10)
    assert exact_sum([0.1] * 10) == 1.0
    assert exact_sum([1e9, 1e-9]) > 1e9  # a tiny spend is not lost


def test_large_integer_sensitivities_are_not_rounded_down():
    # 2^53 + 1 is no float; the nearest one is smaller.
    sensitivity_ = 2**53 + 1
    assert Fraction(laplace_scale(sensitivity_, 1.0)) >= sensitivity_
    assert Fraction(cube_law(sensitivity_, 3, 1.0, "add-remove").scale) >= sensitivity_


@pytest.mark.slow
def test_scales_are_rounded_up():
    rng = np.random.default_rng(0)
    for _ in range(300):
        sensitivity_, epsilon = int(rng.integers(1, 2**40)), float(rng.uniform(0.001, 9))
        assert Fraction(laplace_scale(sensitivity_, epsilon)) * exact(epsilon) >= sensitivity_
        law = gaussian_law(sensitivity_, 1, epsilon, 1e-6, "add-remove")
        assert 2 * Fraction(law.rho) * Fraction(law.scale) ** 2 >= sensitivity_
        assert Fraction(round_up_sqrt(sensitivity_)) ** 2 >= sensitivity_


@pytest.mark.parametrize("kind", ["laplace", "gaussian", "cube"])
@pytest.mark.parametrize("map_name", ["fourier", "one-bit"])
def test_noise_of_a_design_matches_the_papers_up_to_fixed_point(kind, map_name):
    # Continuous formulas for features of modulus 1 (Fourier) or with parts +-1 (one-bit).
    m, epsilon, delta = 500, 0.7, 1e-6 if kind == "gaussian" else 0.0
    l1, l2 = (
        (math.sqrt(2) * m, math.sqrt(m)) if map_name == "fourier" else (2 * m, math.sqrt(2 * m))
    )
    # The longest pair of the Fourier table is up to 0.07 % longer than a circle has.
    amplitude, rel = (2**23, 1.5e-3) if map_name == "fourier" else (1, 1e-4)
    for neighbours, count, factor in (("add-remove", "omitted", 1), ("replace", "public", 2)):
        noise = plan_sum_noise(
            TableContribution(feature_map(map_name).bounds, m, dim=1),
            Budget(epsilon, delta, neighbours),
            kind=kind,
            count=count,
            n_records=1e5,
        )
        variance = noise.sums_law.variance / (amplitude * noise.factor) ** 2
        continuous = {
            "laplace": 2 * (factor * l1 / epsilon) ** 2,
            "gaussian": (kappa_discrete(epsilon, delta or 0.5) * factor * l2) ** 2,
            "cube": (2 * m + 1) * (2 * m + 2) * (factor / epsilon) ** 2 / 3,
        }[kind]
        assert continuous * (1 - 1e-4) < variance < continuous * (1 + rel)


def test_the_cube_has_a_third_of_the_laplace_variance():
    for m, ratio in ((100, 2.96), (400, 2.99), (1000, 3.00)):
        laplace = 2 * (math.sqrt(2) * m) ** 2
        assert laplace / cube_variance(2 * m, 1, 1.0) == pytest.approx(ratio, abs=0.006)


def test_cube_factor_makes_the_sampler_end():
    assert cube_factor(1, 2000, 1.0) == 2000
    assert cube_factor(2**23, 2000, 1.0) == 1
    with pytest.raises(ParameterError, match="cube_factor"):
        cube_law(1, 2000, 1.0, "add-remove")


def test_designs_without_headroom_are_refused():
    with pytest.raises(ParameterError, match="overflow"):
        plan_sum_noise(
            TableContribution(feature_map("fourier").bounds, 2**20, dim=1),
            Budget(1e-8),
            kind="cube",
            count="omitted",
            n_records=1e5,
        )
    assert feature_map("fourier").bounds.linf * MAX_RECORDS < 2**62


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_gaussian_noise_needs_a_delta(delta):
    for formula in (kappa_discrete, rho_of_budget):
        with pytest.raises(ParameterError, match="delta"):
            formula(1.0, delta)


def test_laws_carry_their_budget():
    law = laplace_law(5, 2, 0.25, "replace")
    assert (law.epsilon, law.delta, law.neighbours, law.scale) == (0.25, 0.0, "replace", 20.0)
