"""Release of projected records: bounds, calibrations and the way from records to integers.

Statistical tests have a false-alarm rate of at most 1e-6 each.
"""

import copy
import itertools
import math
import os
import pickle

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats

import privsketch as ps
from papers.theory import kappa, log_delta_continuous
from privsketch.noise import fresh, kappa_discrete
from privsketch.projection import (
    MATRIX_UNIT,
    Change,
    Matrix,
    Protection,
    fresh_matrix,
    public_matrix,
    realised_gaussian,
    realised_laplace,
)
from privsketch.projection import matrix as norms
from tests import seams
from tests.chance import exact_answers

BUDGET = ps.Budget(1.0, 1e-6, "replace")


def draw(domain, n_components, **choices):
    return ps.Projection.draw(domain, n_components, **{"epsilon": 1.0, **choices})


def std(projection):
    return math.sqrt(projection.noise_variance)


# Norms of matrices ----------------------------------------------------------------------------


def test_the_small_matrix_by_hand():
    matrix = Matrix(np.array([[2, -4], [6, 1]]), is_public=True)  # twice [[1, -2], [3, .5]]
    unit = np.array([1, 1])
    assert Change("l1", unit, 1).l1(matrix) == 2 * 3.5
    assert norms.exact_two_to_one_squared(matrix.gram) == 61
    assert math.sqrt(61) / 2 == pytest.approx(3.90512484, abs=5e-9)
    spectral = math.sqrt(norms.spectral_squared(10**16 * matrix.gram)) / 2e8
    assert spectral == pytest.approx(3.16909362, abs=5e-8)


@pytest.mark.parametrize("k", range(1, 11))
def test_two_to_one_norm_against_all_sign_vectors(k):
    rng = np.random.default_rng(k)
    matrix = rng.integers(-(2**17), 2**17, size=(7, k))
    every = max(
        sum(int(x) ** 2 for x in matrix @ np.array(signs))
        for signs in itertools.product((-1, 1), repeat=k)
    )
    assert norms.exact_two_to_one_squared(matrix.T @ matrix) == every


@pytest.mark.slow
def test_two_to_one_norm_is_exact_at_twenty_components():
    matrix = public_matrix(100, 20, seed=3)
    best = 0
    codes = np.arange(2**19)
    for start in range(0, 2**19, 2**15):
        signs = 2 * ((codes[start : start + 2**15, None] >> np.arange(20)) & 1) - 1
        images = signs @ matrix.integers.T
        best = max(best, int((images * images).sum(axis=1).max()))
    assert norms.two_to_one_squared(matrix.gram) == best


@pytest.mark.parametrize("k", [10, 16, 20])
def test_the_certified_bound_is_above_the_exact_norm_and_close(k):
    for seed in range(5):
        gram = public_matrix(60, k, seed).gram
        ratio = norms.two_to_one_bound(gram) / norms.exact_two_to_one_squared(gram)
        assert 1 <= ratio < 1.05**2


def test_the_bound_beyond_twenty_components_is_above_every_sign_vector_found():
    gram = public_matrix(200, 40, seed=1).gram
    bound = norms.two_to_one_squared(gram)
    rng = np.random.default_rng(0)
    best = 0
    for _ in range(50):  # climb by single flips
        signs = rng.choice([-1, 1], 40)
        while True:
            gains = -4 * signs * (gram @ signs) + 4 * np.diagonal(gram)
            if gains.max() <= 0:
                break
            signs[int(gains.argmax())] *= -1
        best = max(best, int(signs @ gram @ signs))
    assert best <= bound < 1.15 * best
    assert bound <= 40 * norms.spectral_squared(gram)


def test_box_norm_against_all_corners():
    matrix = public_matrix(6, 4, seed=5)
    widths = np.array([3, 1, 7, 2, 9, 4])
    corners = np.array(list(itertools.product((-1, 1), repeat=6))) * widths
    images = corners @ matrix.integers
    change = Change("box", widths, math.isqrt(int((widths**2).sum())) + 1)
    assert change.l1(matrix) == int(np.abs(images).sum(axis=1).max())
    longest = int((images * images).sum(axis=1).max())
    assert longest <= change.l2_squared(matrix) <= 1.0000001 * longest + 1


def test_many_columns_of_a_box_are_bounded_from_above():
    matrix = public_matrix(20, 4, seed=5)
    widths = np.arange(1, 21)
    rng = np.random.default_rng(0)
    images = (rng.choice([-1, 1], size=(200_000, 20)) * widths) @ matrix.integers
    found = int((images * images).sum(axis=1).max())
    change = Change("box", widths, math.isqrt(int((widths**2).sum())) + 1)
    assert found <= change.l2_squared(matrix) < 2 * found


@pytest.mark.parametrize("unit", [1, 2**15])
def test_entries_with_widths_of_their_own(unit):
    """In integers of any size: squares of both factors pass 2^63 at full resolution."""
    matrix = public_matrix(5, 3, seed=2)
    widths = unit * np.array([1, 60, 3, 50, 20])
    change = Change("entry", widths, int(widths.max()))
    rows = [[int(w) * int(p) for p in row] for w, row in zip(widths, matrix.integers, strict=True)]
    assert change.l1(matrix) == max(sum(map(abs, row)) for row in rows)
    assert change.l2_squared(matrix) == max(sum(x * x for x in row) for row in rows)


# The matrix -----------------------------------------------------------------------------------


def test_a_seed_gives_the_same_matrix_for_good():
    matrix = public_matrix(3, 2, seed=7)
    assert matrix.integers.tolist() == public_matrix(3, 2, seed=7).integers.tolist()
    # Written down once: a public matrix must never change, or releases would not fit together.
    assert matrix.integers.tolist() == [[-12534, 37623], [52584, -20275], [-44980, -84018]]


@pytest.mark.parametrize("make", [fresh_matrix, lambda d, k: public_matrix(d, k, 11)])
def test_entries_are_normal(make):
    entries = make(500, 40).integers.reshape(-1) / MATRIX_UNIT * math.sqrt(40)
    assert stats.kstest(entries, "norm").pvalue > 1e-7
    assert stats.kstest(1.3 * entries, "norm").pvalue < 1e-7


def test_fresh_matrices_differ():
    assert (fresh_matrix(4, 4).integers != fresh_matrix(4, 4).integers).any()


def test_entries_are_as_accurate_as_calibrations_say(monkeypatch):
    """The transform of the same random bits in 50 digits is within ENTRY_ERROR of the entries."""
    from privsketch.projection import matrix as module

    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, size=(300, 3), dtype=np.uint64, endpoint=False)
    words[:40, 0] >>= np.arange(40, dtype=np.uint64)  # small uniform numbers, far tails
    words[40:60, 0] = 2**64 - 1 - np.arange(20, dtype=np.uint64)  # and some close to 1
    seams.set(monkeypatch, "matrix.os.urandom", lambda count: words.tobytes()[:count])
    entries = module.fresh_matrix(100, 6).integers.reshape(-1)
    with mpmath.workdps(50):
        for i, (high, low, angle) in enumerate(words.tolist()):
            u = (mpmath.mpf(high) * 2**64 + low + 0.5) / mpmath.mpf(2) ** 128
            v = (mpmath.mpf(angle >> 12) + 0.5) / 2**52
            radius = mpmath.sqrt(-2 * mpmath.log(u)) * MATRIX_UNIT / mpmath.sqrt(6)
            for entry, exact in (
                (entries[2 * i], radius * mpmath.cos(2 * mpmath.pi * v)),
                (entries[2 * i + 1], radius * mpmath.sin(2 * mpmath.pi * v)),
            ):
                assert abs(int(entry) - exact) < 0.51 < module.ENTRY_ERROR


# Fresh matrices -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "expected"), [(2, 5.02631279), (3, 5.15765), (10, 5.96581), (20, 6.86269)]
)
def test_quantiles_of_half_normals_are_those_of_the_vectors(k, expected):
    assert fresh.fresh_laplace(k, 1e-6) == pytest.approx(expected, rel=1e-6 if k > 2 else 2e-9)


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9, 1e-15])
def test_one_and_two_half_normals_in_closed_form(delta):
    with mpmath.workdps(40):
        one = float(mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(delta)))
        two = float(mpmath.sqrt(2) * mpmath.erfinv(mpmath.sqrt(1 - mpmath.mpf(delta))))
    assert fresh.fresh_laplace(1, delta) == pytest.approx(one, rel=1e-8)
    assert fresh.fresh_laplace(2, delta) == pytest.approx(two, rel=1e-8)


def mean_loss(k, bound, epsilon):
    """E[(1 - exp(epsilon (1 - S / bound)))+] by the density of S, added up on a grid."""
    step = 2.0**-9
    grid = np.arange(0, bound + 14, step)
    one = 2 * stats.norm.pdf(grid)
    one[0] /= 2  # the trapezoidal rule
    size = 2 ** math.ceil(math.log2(k * len(grid)))
    density = np.fft.irfft(np.fft.rfft(one * step, size) ** k, size) / step
    places = np.arange(size) * step
    return float((density * np.maximum(-np.expm1(epsilon * (1 - places / bound)), 0)).sum() * step)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_mean_loss_of_one_half_normal_in_closed_form(epsilon):
    for bound in (0.5, 2.0, 6.0, 12.0):
        with mpmath.workdps(40):
            a = mpmath.mpf(epsilon) / bound
            beyond = mpmath.erfc(bound / mpmath.sqrt(2))
            tilted = mpmath.exp(epsilon + a * a / 2) * mpmath.erfc((bound + a) / mpmath.sqrt(2))
            expected = float(beyond - tilted)
        assert fresh.half_normal_tail(1, bound, epsilon) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_mean_loss_of_several_half_normals(k, epsilon):
    for bound in (0.9 * k, 1.6 * k, 2.5 * k):
        found = fresh.half_normal_tail(k, bound, epsilon)
        assert found == pytest.approx(mean_loss(k, bound, epsilon), rel=2e-3, abs=1e-14)
        assert found < fresh.half_normal_tail(k, bound)
    less = fresh.fresh_laplace(k, 1e-6, epsilon)
    assert 0.7 < less / fresh.fresh_laplace(k, 1e-6) < 0.97
    assert mean_loss(k, less * math.sqrt(k), epsilon) == pytest.approx(1e-6, rel=2e-3)
    # One twentieth less noise would spend twice the delta.
    assert mean_loss(k, 0.95 * less * math.sqrt(k), epsilon) > 1.5e-6


def moment(order, shift, scale):
    """Of discrete Laplace noise and its shift by whole numbers, added up term by term."""
    z = np.arange(-int(60 * scale), shift + int(60 * scale) + 1)
    logs = (-order * np.abs(z) - (1 - order) * np.abs(z - shift)) / scale
    return float(np.exp(logs).sum() * math.tanh(0.5 / scale))


@pytest.mark.parametrize("scale", [1.5, 6.0, 40.0])
@pytest.mark.parametrize("order", [1.2, 2.0, 7.5])
def test_the_moment_of_shifted_laplace_noise(order, scale):
    """A e^((a - 1) w / b) + (1 - A) e^(-a w / b) with the A of the docstring is never below it."""
    a = order / (2 * order - 1) + (2 * order - 1) / scale**2 / 24
    bounds = [
        a * math.exp((order - 1) * w / scale) + (1 - a) * math.exp(-order * w / scale)
        for w in range(12)
    ]
    exact_moments = [moment(order, w, scale) for w in range(12)]
    assert all(np.array(bounds) >= np.array(exact_moments) * (1 - 1e-12))
    assert bounds == sorted(bounds)
    if scale == 40.0:
        assert np.array(exact_moments) == pytest.approx(bounds, rel=1e-3)


def single_delta(scale, epsilon):
    """Delta of one component, exactly: a shift of loss L has 1 - exp((epsilon - L) / 2)."""
    n = np.linspace(0, 14, 200_001)
    loss = np.maximum(-np.expm1((epsilon - n / scale) / 2), 0)
    return float((loss * 2 * stats.norm.pdf(n)).sum() * (n[1] - n[0]))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_moments_are_a_bound_for_one_component(epsilon):
    for delta in (1e-3, 1e-6, 1e-9):
        scale = fresh.fresh_laplace_scale(1, epsilon, delta)
        assert 0.05 * delta < single_delta(scale, epsilon) <= delta
        assert single_delta(0.85 * scale, epsilon) > delta


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("k", [2, 10, 50])
def test_moments_are_a_bound_for_several_components(k):
    """By simulation of shifts and noise at a delta that it can see."""
    epsilon, delta, rng = 1.0, 0.01, np.random.default_rng(k)
    scale = fresh.fresh_laplace_scale(k, epsilon, delta)
    shifts = rng.normal(size=(200_000, k)) / math.sqrt(k)

    def spent(scale):
        noise = rng.laplace(scale=scale, size=shifts.shape)
        losses = (np.abs(noise - shifts) - np.abs(noise)).sum(axis=1) / scale
        found = np.maximum(-np.expm1(epsilon - losses), 0)
        return found.mean(), found.std() / math.sqrt(len(found))

    mean, error = spent(scale)
    assert 0.3 * delta < mean < delta + 5.3 * error
    mean, error = spent(0.75 * scale)
    assert mean > delta + 8 * error


def test_rounding_and_coarse_integers_only_add_laplace_noise():
    plain = fresh.fresh_laplace_scale(10, 1.0, 1e-6)
    assert plain < fresh.fresh_laplace_scale(10, 1.0, 1e-6, 0.01)
    assert plain <= fresh.fresh_laplace_scale(10, 1.0, 1e-6, 0.0, 1e-6) < 1.00001 * plain
    assert fresh.fresh_laplace_scale(10, 1.0, 1e-6, 0.0, 1.0) > 1.001 * plain


@pytest.mark.parametrize("delta", [1e-300, 0.0, 1.0])
def test_a_fresh_matrix_needs_a_delta(delta):
    makes = [fresh.fresh_laplace]
    for make in (fresh.fresh_gaussian, fresh.fresh_laplace_scale):
        makes.append(lambda k, delta, make=make: make(k, 1.0, delta))
    for make in makes:
        with pytest.raises(ps.PrivsketchError, match="fresh matrix"):
            make(3, delta)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("k", [1, 2, 5, 30, 200])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-12])
def test_the_quantile_is_below_the_chernoff_bound(k, delta):
    q = fresh.half_normal_quantile(k, delta)
    chernoff = min(
        k * (math.log(2) + s * s / 2 + float(stats.norm.logcdf(s))) - s * q
        for s in np.linspace(0.01, 20, 2000)
    )
    assert math.log(delta) <= chernoff + 1e-9  # a valid bound is above the truth
    assert chernoff < math.log(delta) + 0.5 * math.log(2 * math.pi * k) + 4


@pytest.mark.parametrize("k", [2, 10, 20])
def test_half_normal_tail_against_simulation(k):
    sums = np.abs(np.random.default_rng(k).normal(size=(400_000, k))).sum(axis=1)
    for bound in (0.9 * k, 1.2 * k, 1.6 * k):
        tail = fresh.half_normal_tail(k, bound)
        seen = (sums > bound).sum()
        assert stats.binomtest(int(seen), len(sums), tail).pvalue > 1e-7


@pytest.mark.parametrize(
    ("k", "expected"),
    [(2, 9.70056513), (3, 8.47310428), (10, 6.18876808), (20, 5.49036683), (50, 4.97047326)],
)
def test_fresh_gaussian_vectors(k, expected):
    assert fresh.fresh_gaussian(k, 1.0, 1e-6) == pytest.approx(expected, rel=3e-9)


def delta_fresh_continuous(sigma, n_components, epsilon):
    """Return delta of continuous Gaussian noise of standard deviation sigma |v|, to compare.

    The mean of Balle and Wang's formula over shifts of length |v| sqrt(X / k).
    """
    k = n_components
    # A smooth integrand that vanishes at both ends of ln X: equal steps are as good as any rule.
    log_x = np.linspace(math.log(1e-6 * k), math.log(k + 4000.0), 20_001)
    half = np.exp(log_x / 2) / math.sqrt(k) / (2 * sigma)
    first = special.log_ndtr(half - epsilon / (2 * half))
    second = epsilon + special.log_ndtr(-half - epsilon / (2 * half))
    deltas = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    density = np.exp(stats.chi2.logpdf(np.exp(log_x), k) + log_x)
    return float((deltas * density).sum() * (log_x[1] - log_x[0]))


def fresh_gaussian_continuous(n_components, epsilon, delta):
    """Return sigma / |v| of continuous Gaussian noise, to compare with discrete noise."""
    low = high = 1.0
    while delta_fresh_continuous(high, n_components, epsilon) > delta:
        high *= 2
    while delta_fresh_continuous(low, n_components, epsilon) <= delta:
        low /= 2
    root = optimize.brentq(
        lambda s: math.log(delta_fresh_continuous(s, n_components, epsilon) / delta),
        low,
        high,
        rtol=1e-12,
    )
    return float(root)


@pytest.mark.parametrize(("k", "expected"), [(2, 7.91589120), (10, 5.42809272), (20, 4.91829029)])
def test_fresh_continuous_gaussian_vectors(k, expected):
    root = fresh_gaussian_continuous(k, 1.0, 1e-6)
    assert root == pytest.approx(expected, rel=2e-9)


@pytest.mark.parametrize("k", [2, 10, 20])
def test_fresh_gaussian_delta_against_simulation(k):
    """Shifts drawn at three times their variance, weighted back: few draws see the tail."""
    sigma = fresh.fresh_gaussian(k, 1.0, 1e-4)
    rng = np.random.default_rng(k)
    x = 3 * rng.chisquare(k, size=40_000)
    weight = np.exp(stats.chi2.logpdf(x, k) - stats.chi2.logpdf(x / 3, k)) * 3
    deltas = np.array([math.exp(log_delta_continuous(sigma / math.sqrt(v / k), 1.0)) for v in x])
    mean, error = (deltas * weight).mean(), (deltas * weight).std() / math.sqrt(len(x))
    exact = delta_fresh_continuous(sigma, k, 1.0)
    assert abs(mean - exact) < 5.5 * error < 0.3 * exact
    assert 0.05 * 1e-4 < exact < 1e-4  # the discrete calibration is safe, and not absurdly so


def test_discrete_noise_behind_one_fresh_component_by_enumeration():
    """k = 1: every integer shift and every output, at a scale where discreteness shows."""
    epsilon, delta, length = 1.0, 1e-3, 6.0
    sigma = fresh.fresh_gaussian(1, epsilon, delta) * length
    z = np.arange(-600, 601)
    law = np.exp(-(z**2) / (2 * sigma**2))
    law /= law.sum()
    shifts = np.arange(-60, 61)  # ten standard deviations
    chance = np.diff(stats.norm.cdf(np.append(shifts - 0.5, 60.5) / length))
    spent = 0.0
    for shift, probability in zip(shifts, chance, strict=True):
        other = np.roll(law, shift)
        spent += probability * np.maximum(law - math.exp(epsilon) * other, 0)[100:-100].sum()
    assert 0.02 * delta < spent < delta


def test_rounding_only_adds_noise():
    sigmas = [fresh.fresh_gaussian(10, 1.0, 1e-6, rounding) for rounding in (0, 1e-4, 0.01, 0.1)]
    assert sigmas == sorted(sigmas)
    assert 1.003 < sigmas[2] / sigmas[0] < 1.011


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("protect", ["row", "element"])
def test_fresh_laplace_hides_all_but_delta_of_the_shifts(protect):
    """The integers that happen: matrices drawn, records at the far ends of their domain."""
    delta, n_draws, k = 0.02, 4000, 3
    projection = draw(
        ps.Box(-1, 1, dim=4), k, delta=delta, protect=protect, noise="laplace", calibration="fresh"
    )
    change = projection.protection.change()
    v = np.zeros(4, dtype=np.int64)
    v[: 1 if protect == "element" else 4] = change.widths[: 1 if protect == "element" else 4]
    shifts = np.array([v @ fresh_matrix(4, k).integers for _ in range(n_draws)])
    law = projection.noise.law
    scale, rng = law.scale * 2.0**projection.noise.shift, np.random.default_rng(0)

    def spent(scale):
        """Mean of (1 - exp(epsilon - loss))+ over matrices and noise, and its standard error."""
        noise = rng.laplace(scale=scale, size=(50, n_draws, k))
        losses = (np.abs(noise - shifts) - np.abs(noise)).sum(axis=2) / scale
        means = np.maximum(-np.expm1(law.epsilon - losses), 0).mean(axis=0)
        return means.mean(), means.std() / math.sqrt(n_draws)

    mean, error = spent(scale)
    assert mean < delta + 5.3 * error  # false alarm 1e-7
    assert mean > 0.25 * delta  # moments are loose at so large a delta
    mean, error = spent(0.7 * scale)
    assert mean > delta + 8 * error


# What neighbours may change -------------------------------------------------------------------

DOMAINS = {
    "ball": ps.Ball(4, 2.0, center=0.3),
    "box": ps.Box([-1, -3, 0, 10], [1, 3, 0.5, 11]),
    "wide ball": ps.Ball(40, 1e6),
    "cube": ps.Box(-1, 1, dim=4),
}
KINDS = [
    {"protect": "row"},
    {"protect": "element"},
    {"protect": "row", "bound": 0.02},
    {"protect": "row", "bound": 0.02, "bound_norm": "l1"},
    {"protect": "element", "bound": 0.013},
    {"protect": "row", "bound": 5e5},
]


def neighbours(rng, domain, kind, count):
    """Pairs of records that differ by no more than what is protected, many at its limit."""
    half, center = domain.half_widths, domain.center_vector
    dim = len(half)
    reach = rng.choice([0.3, 1.0, 1.4, 40.0], size=(count, 1))
    x = center + half * reach * rng.uniform(-1, 1, size=(count, dim))
    bound = kind.get("bound")
    if kind["protect"] == "element":
        place = rng.integers(dim, size=count)
        y = x.copy()
        step = 1e9 if bound is None else bound
        y[np.arange(count), place] += step * rng.choice([-1, 1, 0.999], size=count)
        return x, y
    if bound is None:
        return x, center - half * reach * rng.uniform(-1, 1, size=(count, dim)) * 7
    direction = rng.normal(size=(count, dim))
    if rng.random() < 0.5:
        direction = np.sign(direction)
    norm = 1 if kind.get("bound_norm") == "l1" else 2
    direction /= np.linalg.norm(direction, ord=norm, axis=1, keepdims=True)
    return x, x + bound * direction * rng.choice([1.0, 0.999], size=(count, 1))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_neighbours_stay_within_the_change_that_noise_hides(domain, kind):
    protection = Protection.of(
        DOMAINS[domain], kind["protect"], kind.get("bound"), kind.get("bound_norm", "l2")
    )
    change = protection.change()
    quantise = protection.quantiser()
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(40):
        x, y = neighbours(rng, DOMAINS[domain], kind, 500)
        v = (quantise.whole_numbers(x) - quantise.whole_numbers(y)).astype(np.int64)
        assert (np.abs(v) <= change.widths).all() or change.kind == "l2"
        lengths = np.sqrt((v.astype(float) ** 2).sum(axis=1))
        assert lengths.max() <= change.radius
        largest = max(largest, lengths.max() / change.radius)
        if change.kind == "entry":
            assert ((v != 0).sum(axis=1) <= 1).all()
        if change.kind == "l1":
            assert np.abs(v).sum(axis=1).max() <= change.radius
    if kind.get("bound", math.inf) * protection.units_per_length > 10:
        assert largest > 0.3  # a change of a third of what is claimed did happen


def test_rounding_can_enlarge_a_distance_and_is_paid_for():
    """Coordinates just below and just above half a unit round apart, all of them at once."""
    protection = Protection.of(ps.Box(-1, 1, dim=100), "row", 1e-9, "l2")
    step = 1 / protection.units_per_length
    x, y = np.full((1, 100), 0.5 * step * (1 - 1e-6)), np.full((1, 100), 0.5 * step * (1 + 1e-6))
    assert np.linalg.norm(x - y) < 1e-9
    quantise = protection.quantiser()
    moved = np.linalg.norm(quantise.whole_numbers(x) - quantise.whole_numbers(y))
    assert moved == 10
    assert moved <= protection.change().radius <= 13


@pytest.mark.parametrize("kind", KINDS[2:5], ids=lambda kind: "-".join(map(str, kind.values())))
def test_what_reading_rounds_is_paid_for(kind):
    """Neighbouring whole numbers beyond 2^53 are further apart as floats than they are."""
    center = 1_700_000_000_000_000_000
    low = next(n for n in range(center, center + 600) if float(n) != float(n + 1))
    kind = {**kind, "bound": 1.0}
    protection = Protection.of(
        ps.Box(center - 1e5, center + 1e5, dim=1),
        kind["protect"],
        kind["bound"],
        kind.get("bound_norm", "l2"),
    )
    quantise = protection.quantiser()
    moved = np.diff(quantise.whole_numbers(np.array([[low], [low + 1]])), axis=0)
    assert abs(moved[0, 0]) > protection.units_per_length
    assert abs(moved[0, 0]) <= protection.change().radius


def test_an_entry_of_a_record_outside_a_ball_moves_no_other_entry():
    projection = draw(ps.Ball(3, 1.0), 2, protect="element")
    quantise = projection.protection.quantiser()
    x = quantise.whole_numbers(np.array([[5.0, 0.5, 0.5], [0.1, 0.5, 0.5]]))
    assert (x[0, 1:] == x[1, 1:]).all()
    assert projection.receipt().unit == "one entry of one record"


def test_a_bound_beyond_the_domain_is_the_domain():
    whole = Protection.of(ps.Ball(5, 1.0), "row", None, "l2").change()
    beyond = Protection.of(ps.Ball(5, 1.0), "row", 100.0, "l2").change()
    assert beyond.radius == whole.radius == 2 * (2**20 - 1)


# Noise of a release ---------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize(
    ("d", "k", "paper_row", "union", "gaussian"),
    [
        (3, 2, 3.33, 11.03, 9.7006),
        (10, 3, 4.64, 13.69, 8.4731),
        (50, 10, 10.95, 25.93, 6.1888),
        (100, 20, 17.18, 37.42, 5.4904),
    ],
)
def test_scales_of_every_calibration(d, k, paper_row, union, gaussian):
    """Standard deviations at epsilon 1, delta 1e-6, rows that differ by at most 1."""
    ball = ps.Ball(d, 0.5)  # its diameter is 1
    low, high = float(k), 8.0 * k
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if mean_loss(k, middle, 1.0) > 1e-6 else (low, middle)
    laplace = math.sqrt(2) * min(high / math.sqrt(k), fresh.fresh_laplace_scale(k, 1.0, 1e-6))
    settings = [
        ({"calibration": "paper"}, paper_row),
        ({"calibration": "union", "delta": 1e-6}, union),
        ({"calibration": "fresh", "noise": "laplace", "delta": 1e-6}, laplace),
        ({"calibration": "fresh", "noise": "gaussian", "delta": 1e-6}, gaussian),
    ]
    for choices, expected in settings:
        assert std(draw(ball, k, **choices)) == pytest.approx(expected, rel=2e-3)
    element = draw(ps.Box(-0.5, 0.5, dim=d), k, protect="element", calibration="paper")
    assert std(element) == pytest.approx(2 * math.sqrt(2 * k), rel=1e-5)


def test_realised_noise_is_that_of_the_drawn_matrix():
    projection = draw(ps.Ball(30, 0.5), 6, random_state=1)
    p = projection.matrix.values
    norm = max(np.linalg.norm(p @ np.array(s)) for s in itertools.product((-1, 1), repeat=6))
    assert std(projection) == pytest.approx(math.sqrt(2) * norm, rel=1e-5)
    gaussian = draw(ps.Ball(30, 0.5), 6, random_state=1, delta=1e-6, noise="gaussian")
    spectral = np.linalg.norm(p, ord=2)
    assert std(gaussian) == pytest.approx(kappa_discrete(1.0, 1e-6) * spectral, rel=1e-5)
    assert kappa(1.0, 1e-6) < kappa_discrete(1.0, 1e-6)


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 1.0, 90.0])
@pytest.mark.parametrize("make", [realised_laplace, realised_gaussian])
def test_integers_are_divided_only_as_far_as_it_costs_nothing(make, epsilon):
    budget = ps.Budget(epsilon, 1e-6, "replace")
    change = Protection.of(ps.Ball(20, 1.0), "row", None, "l2").change()
    matrix = public_matrix(20, 5, seed=0)
    noise = make(change, matrix, budget)
    if make is realised_laplace:
        undivided = change.l1(matrix) / epsilon * math.sqrt(2)
    else:
        undivided = math.sqrt(change.l2_squared(matrix)) * kappa_discrete(epsilon, 1e-6)
    assert noise.law.scale < 2**36
    assert 1 - 1e-9 < noise.std / undivided < 1 + 1e-3


def test_dividing_never_moves_neighbours_further_than_the_law_allows():
    projection = draw(ps.Box(-1, 1, dim=6), 3, epsilon=1e-5, random_state=4)
    assert projection.noise.shift > 5
    change, matrix = projection.protection.change(), projection.matrix.integers
    limits = projection.protection.quantiser().limits
    corners = np.array(list(itertools.product((-1, 1), repeat=6)))
    rng = np.random.default_rng(1)
    worst = 0
    for _ in range(50):
        inner = rng.integers(-5, 6, size=corners.shape)
        x, y = corners * limits - np.abs(inner) * corners, -corners * limits
        moved = (x @ matrix >> projection.noise.shift) - (y @ matrix >> projection.noise.shift)
        worst = max(worst, int(np.abs(moved).sum(axis=1).max()))
    assert 0.99 * projection.noise.law.sensitivity < worst <= projection.noise.law.sensitivity
    assert change.kind == "box"


def test_auto_fixes_what_spends_delta_before_it_sees_the_matrix():
    chosen = [draw(ps.Ball(16, 1.0), 4, delta=1e-6) for _ in range(60)]
    kinds = {(p.noise.calibration, p.noise.law.kind) for p in chosen}
    # Both happen, each in a third of the draws or more; and pure noise takes nothing from delta.
    assert kinds == {("fresh", "gaussian"), ("realised", "laplace")} or kinds == {
        ("fresh", "laplace"),
        ("realised", "laplace"),
    }
    (limit,) = {p.noise.std for p in chosen if p.noise.calibration == "fresh"}
    for projection in chosen:
        p = projection.matrix.integers
        signs = np.array(list(itertools.product((-1, 1), repeat=4)))
        longest = math.sqrt(np.square(signs @ p.T).sum(axis=1).max())
        pure = math.sqrt(2) * longest * projection.protection.change().radius
        assert (projection.noise.calibration == "realised") == (pure < limit)
        assert projection.receipt().delta == 1e-6  # charged either way


def test_auto_chooses_as_the_dimensions_suggest():
    assert draw(ps.Ball(100, 1.0), 20, delta=1e-6).noise.calibration == "fresh"
    assert draw(ps.Ball(100, 1.0), 20, delta=1e-6).noise.law.kind == "gaussian"
    public = draw(ps.Ball(100, 1.0), 20, delta=1e-6, random_state=0)
    assert public.noise.calibration == "realised"
    assert draw(ps.Ball(100, 1.0), 20).receipt().delta == 0


@pytest.mark.parametrize(("k", "delta"), [(2, 0.0367), (3, 0.00409), (10, 4.9e-12), (20, 3e-28)])
def test_the_printed_row_scale_says_what_delta_it_has(k, delta):
    receipt = draw(ps.Ball(50, 0.5), k, calibration="paper").receipt()
    slack = 50 * k * 2.0**-69
    assert receipt.delta == pytest.approx(delta + slack, rel=0.02)
    assert "Theorem 5" in receipt.calibration


@pytest.mark.parametrize(("k", "delta"), [(2, 0.0093), (3, 0.0021), (10, 1.1e-7)])
def test_the_printed_element_scale_says_what_delta_it_has(k, delta):
    receipt = draw(ps.Box(-0.5, 0.5, dim=9), k, calibration="paper", protect="element").receipt()
    assert receipt.delta == pytest.approx(delta, rel=0.02)
    assert "Theorem 3" in receipt.calibration


def test_the_printed_scale_with_a_public_matrix_costs_what_the_matrix_makes_it():
    domain, matrix_norm = ps.Ball(10, 0.5), None
    for seed in range(200):  # a matrix that is worse than the theorem thinks
        projection = draw(domain, 2, calibration="paper", random_state=seed)
        p = projection.matrix.values
        matrix_norm = max(np.linalg.norm(p @ np.array(s)) for s in ((1, 1), (1, -1)))
        if matrix_norm > 2.5:
            break
    receipt = projection.receipt()
    assert receipt.delta == 0
    assert receipt.epsilon == pytest.approx(matrix_norm / math.sqrt(4 * math.log(4)), rel=1e-4)


# From records to released rows ----------------------------------------------------------------


def exact_rows(projection, records, **options):
    with exact_answers():
        return np.concatenate(list(projection.releases([records], **options)))


@pytest.mark.parametrize("domain", DOMAINS)
def test_without_noise_rows_are_projections_of_cut_records(domain):
    domain = DOMAINS[domain]
    projection = draw(domain, 3, random_state=0)
    rng = np.random.default_rng(0)
    half = domain.half_widths
    records = domain.center_vector + half * rng.normal(size=(3000, len(half)))
    expected = (domain.project(records) - domain.center_vector) @ projection.matrix.values
    rows = exact_rows(projection, records)
    # Quantisation moves a coordinate by at most 1.5 units, the matrix has rows of about 1.
    step = 1.5 / projection.protection.units_per_length
    reach = step * np.abs(projection.matrix.values).sum(axis=0).max() + projection.unit
    assert np.abs(rows - expected).max() <= reach


def test_products_are_exact_in_any_block_and_thread():
    projection = draw(ps.Ball(300, 1.0), 7, random_state=3)
    records = np.random.default_rng(0).normal(size=(5000, 300)) * 0.06
    whole = exact_rows(projection, records, n_threads=1)
    assert (exact_rows(projection, records, n_threads=4) == whole).all()
    assert (exact_rows(projection, records[::-1])[::-1] == whole).all()
    assert (exact_rows(projection, np.asfortranarray(records)) == whole).all()
    quantised = projection.protection.quantiser()
    integers = np.array(
        [[int(x) for x in quantised.whole_numbers(r[None])[0]] for r in records[:20]], dtype=object
    )
    big = integers @ projection.matrix.integers.astype(object)
    shifted = np.array(big >> projection.noise.shift, dtype=float) * projection.unit
    assert (whole[:20] == shifted).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_released_noise_has_the_variance_that_the_description_says(noise, n_threads):
    projection = draw(ps.Ball(5, 1.0), 4, delta=1e-6, noise=noise, random_state=2)
    records = np.random.default_rng(0).uniform(-0.4, 0.4, size=(50_000, 5))
    exact = exact_rows(projection, records)
    noisy = np.concatenate(list(projection.releases([records], n_threads=n_threads)))
    values = (noisy - exact).reshape(-1)
    fourth, variance = projection.noise_fourth_moment, projection.noise_variance
    error = math.sqrt((fourth - variance**2) / len(values))
    assert abs((values**2).mean() - variance) < 5.3 * error  # false alarm 1e-7
    assert abs((values**2).mean() - 0.9 * variance) > 5.3 * error
    kurtosis = {"laplace": 6.0, "gaussian": 3.0}[noise]
    assert fourth / variance**2 == pytest.approx(kurtosis, rel=1e-6)
    assert len(np.unique(values)) > 0.99 * len(values)


def test_one_changed_record_changes_its_own_row_only():
    projection = draw(ps.Box(-1, 1, dim=6), 3, random_state=0)
    records = np.random.default_rng(0).uniform(-1, 1, size=(4000, 6))
    other = records.copy()
    other[1234] = 1e300
    differs = (exact_rows(projection, records) != exact_rows(projection, other)).any(axis=1)
    assert np.flatnonzero(differs).tolist() == [1234]


def test_a_fresh_matrix_is_used_once():
    projection = draw(ps.Ball(30, 1.0), 12, delta=1e-6, calibration="fresh")
    list(projection.releases([np.zeros((3, 30))]))
    with pytest.raises(ps.PrivsketchError, match="one release"):
        projection.releases([np.zeros((3, 30))])
    with pytest.raises(ps.PrivsketchError, match="one release"):
        projection.reused()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))]
)
def test_a_fresh_matrix_that_was_copied_is_used(copied):
    projection = draw(ps.Ball(30, 1.0), 12, delta=1e-6, calibration="fresh")
    for one in (copied(projection), projection):
        with pytest.raises(ps.PrivsketchError, match="copied"):
            one.releases([np.zeros((3, 30))])
    public = draw(ps.Ball(30, 1.0), 12, random_state=1)
    assert len(list(copied(public).releases([np.zeros((3, 30))]))) == 1


def test_a_fresh_matrix_belongs_to_the_process_that_drew_it(monkeypatch):
    projection = draw(ps.Ball(30, 1.0), 12, delta=1e-6, calibration="fresh")
    monkeypatch.setattr(os, "getpid", lambda: projection.process + 1)
    with pytest.raises(ps.PrivsketchError, match="one release"):
        projection.releases([np.zeros((3, 30))])


def test_a_matrix_is_not_printed():
    projection = draw(ps.Ball(3, 1.0), 2, delta=1e-6)
    assert "array" not in repr(projection) + repr(projection.matrix)


@pytest.mark.parametrize(
    "block",
    [
        np.zeros(3),
        np.zeros((4, 1)),
        np.zeros((2, 3, 3)),
        np.ma.masked_array(np.zeros((4, 3)), mask=True),
        [[0.0, 0.0, 0.0]],
        np.zeros((3, 3)).view(np.recarray),
        np.array([["a", "b", "c"]]),
        np.zeros((4, 3), dtype=complex),
    ],
)
def test_only_tables_are_released(block, spent):
    """A row that is stretched to a table would be released many times for the price of one."""
    projection = draw(ps.Ball(3, 1.0), 2, random_state=0)
    with pytest.raises(ps.PrivsketchError, match="blocks"):
        list(projection.releases([block]))
    assert spent == []


def test_one_array_is_one_block():
    projection = draw(ps.Ball(3, 1.0), 2, random_state=0)
    (rows,) = projection.releases(np.zeros((5, 3)))
    assert rows.shape == (5, 2)


def test_auto_goes_on_with_the_noise_of_the_drawn_matrix():
    projection = draw(ps.Ball(60, 1.0), 15, delta=1e-6)
    assert projection.noise.calibration == "fresh"
    later = projection.reused()
    assert later.noise.calibration == "realised"
    assert (later.matrix.integers == projection.matrix.integers).all()
    for _ in range(2):
        list(later.releases([np.zeros((3, 60))]))


def test_missing_values_cost_nothing_unless_they_are_centerd(spent):
    projection = draw(ps.Ball(2, 1.0), 2, random_state=0)
    records = np.array([[0.1, np.nan]])
    with pytest.raises(ps.PrivsketchError, match="missing"):
        list(projection.releases([records]))
    assert spent == []
    (rows,) = projection.releases([records], missing_to_center=True)
    (expected,) = projection.releases([np.array([[0.1, 0.0]])])
    assert (rows == expected).all()


REFUSED = [
    ({"noise": "gaussian"}, "delta"),
    ({"calibration": "fresh"}, "delta"),
    ({"calibration": "fresh", "delta": 1e-6, "random_state": 1}, "random_state"),
    ({"calibration": "union", "delta": 1e-6, "noise": "gaussian"}, "laplace"),
    ({"calibration": "best"}, "calibration"),
    ({"noise": "cube"}, "noise"),
    ({"protect": "column"}, "protect"),
    ({"bound": -1.0}, "bound"),
    ({"bound": math.nan}, "bound"),
    ({"bound_norm": "l1"}, "bound"),
    ({"bound": 1.0, "bound_norm": "linf"}, "bound_norm"),
    ({"protect": "element", "bound": 1.0, "bound_norm": "l1"}, "element"),
    ({"epsilon": 0.0}, "epsilon"),
    ({"epsilon": 101.0}, "epsilon"),
    ({"epsilon": 1e-30}, "epsilon"),
    ({"random_state": "seed"}, "random_state"),
    ({"calibration": "fresh", "delta": 1e-20}, "too small"),
]


@pytest.mark.parametrize(("choices", "word"), REFUSED)
def test_what_has_no_proof_is_refused(choices, word):
    with pytest.raises(ps.PrivsketchError, match=word):
        draw(ps.Ball(3, 1.0), 2, **choices)


@pytest.mark.parametrize("radius", [1e-130, 1e130])
def test_domains_whose_noise_has_no_size_are_refused(radius):
    with pytest.raises(ps.PrivsketchError, match="units"):
        draw(ps.Ball(3, radius), 2)


def test_the_receipt_states_the_bound_with_all_its_digits():
    receipt = draw(ps.Ball(3, 9.0), 2, bound=0.9999996).receipt()
    assert receipt.unit == "a change of one record by at most 0.9999996 in Euclidean distance"
    assert "hides what a record says" not in receipt.describe() + receipt.summary()
    whole = draw(ps.Ball(3, 9.0), 2, bound=100.0).receipt()
    assert whole.unit == "one record"
    assert "hides what a record says" in whole.summary()


def test_a_column_that_would_vanish_is_refused():
    with pytest.raises(ps.PrivsketchError, match="column 1"):
        draw(ps.Box([0, 0], [1e7, 1]), 2)


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "2", 5000])
def test_numbers_of_components(k):
    with pytest.raises(ps.PrivsketchError, match="n_components"):
        draw(ps.Ball(3, 1.0), k)


def test_many_columns_and_many_components_work():
    wide = draw(ps.Box(0, 1, dim=2**15), 3, random_state=0)
    assert exact_rows(wide, np.ones((2, 2**15))).shape == (2, 3)
    deep = draw(ps.Ball(30, 1.0), 300, delta=1e-6)
    assert deep.noise.law.kind == "gaussian"
    one = draw(ps.Ball(1, 1.0), 1)
    assert one.n_components == 1


def test_a_description_survives_its_file(tmp_path):
    projection = draw(ps.Box([0, 1], [2, 5]), 2, delta=1e-7, random_state=9)
    receipt = projection.receipt("site-1")
    description = ps.ReleaseDescription.of(
        projection, receipt, n_records=7, record=("a", "b"), carried=("id",)
    )
    description.save(tmp_path / "r.json")
    assert ps.ReleaseDescription.load(tmp_path / "r.json") == description
    assert (description.public_matrix() == projection.matrix.values).all()
    words = description.describe()
    assert "UNPROTECTED id" in words
    assert "record      a, b" in words
    assert "epsilon = 1, delta = " in words
    text = (tmp_path / "r.json").read_text().replace('"id"', '"name"')
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ps.PrivsketchError, match="altered"):
        ps.ReleaseDescription.load(tmp_path / "r.json")
