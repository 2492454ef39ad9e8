"""Noisy seeds: the exact law of what is released, for tiny tables, and which records are drawn."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

import privsketch as ps
from privsketch.clustering import Passes, clustered
from privsketch.clustering.baselines import variates
from privsketch.facts import exact
from privsketch.noise import rho_of_budget
from privsketch.testing import Tape, exact_answer

RELATIONS = ["add-remove", "replace"]
LINE = ps.Box(-1, 1, dim=1)
EDGE = 3  # largest integer of a coordinate of two bits


def zeros(values, law):
    return np.zeros_like(values)


def asked_of_noise(
    records, k, noise, neighbours="add-remove", *, epsilon=2.0, domain=LINE, **options
):
    """What a run asks of the noise, with 0 for every answer, and its model."""
    tape, budget = Tape(answer=zeros), ps.Budget(epsilon, 1e-3 * (noise == "gaussian"), neighbours)
    options = {"n_records": 10, "n_threads": 1, **options}
    model = tape.recorded(
        lambda: clustered(
            variates.cluster, records, k, domain=domain, budget=budget, noise=noise, **options
        )
    )
    return [(question.values, question.law) for question in tape.questions], model


# --- the exact law of two noisy seeds of a tiny table -------------------------------------------


def chances(table, center):
    """Chance of each record to be drawn, as k-means++ has it; a record at the center has none."""
    if not len(table):
        return np.ones(1), np.zeros(1)
    squared = np.ones(len(table)) if center is None else (table - center) ** 2.0
    squared = np.maximum(squared, 1e-9)
    return squared / squared.sum(), table


def log_noise(kind, scale, steps):
    """Log of what a noise law gives to integers, up to a constant."""
    if kind == "gaussian":
        return -(steps**2) / (2 * scale**2)
    return -np.abs(steps) / scale  # in one dimension a cube is an interval


def seed_law(table, kind, scale, places):
    """Log-chances of the first seed and, given it, of the second, over all `places`."""
    places = np.asarray(places)

    def law(center):
        weights, drawn = chances(table, center)
        logs = log_noise(kind, scale, places[:, np.newaxis] - drawn) + np.log(weights)
        return np.logaddexp.reduce(logs, axis=1)

    first = law(None)
    seconds = np.array([law(min(max(place, -EDGE), EDGE)) for place in places])
    return first[:, np.newaxis] + seconds


def pairs(neighbours, most):
    values = (-EDGE, -1, 0, EDGE)
    for n in range(most):
        for base in itertools.combinations_with_replacement(values, n):
            if neighbours == "add-remove":
                yield from ((base, (*base, x)) for x in values)
            else:
                yield from (((*base, x), (*base, y)) for x, y in itertools.permutations(values, 2))


def pure_loss(kind, scale, neighbours, most=3):
    """Largest log-ratio of two seeds. Beyond the edges it stays as it is there."""
    places = range(-EDGE - 1, EDGE + 2)
    worst = 0.0
    for one, other in pairs(neighbours, most):
        laws = [seed_law(np.array(t, dtype=float), kind, scale, places) for t in (one, other)]
        worst = max(worst, float(np.abs(laws[0] - laws[1]).max()))
    return worst


@pytest.mark.usefixtures("few_bits")
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("kind", ["laplace", "cube"])
def test_two_seeds_cost_their_budget_and_no_more(kind, neighbours):
    asked, model = asked_of_noise(np.array([[9.0]]), 2, kind, neighbours)
    assert [int(values[0]) for values, _ in asked] == [EDGE, EDGE]
    first, second = (law.scale for _, law in asked)
    factor = asked[0][1].sensitivity / (2 * EDGE)  # by which a cube may be larger
    assert first == second
    loss = pure_loss(kind, first / factor, neighbours)
    assert loss <= model.receipt.epsilon * (1 + 1e-12)
    # A record that is replaced by its opposite costs all there is. One that is added shares the
    # chance to be drawn first with the others.
    assert loss >= model.receipt.epsilon * (0.999 if neighbours == "replace" else 0.65)
    if neighbours == "replace":  # planted: a tenth less noise
        assert pure_loss(kind, 0.9 * first / factor, neighbours) > 1.1 * model.receipt.epsilon


@pytest.mark.slow
@pytest.mark.usefixtures("few_bits")
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_two_gaussian_seeds_keep_epsilon_and_delta(neighbours):
    epsilon, delta = 6.0, 1e-3
    asked, _ = asked_of_noise(np.array([[9.0]]), 2, "gaussian", neighbours, epsilon=epsilon)
    scale = asked[0][1].scale
    places = np.arange(-60, 61)

    def worst_delta(scale):
        worst = 0.0
        for one, other in pairs(neighbours, 2):
            logs = [
                seed_law(np.array(t, dtype=float), "gaussian", scale, places) for t in (one, other)
            ]
            p, q = (np.exp(log - np.logaddexp.reduce(log, axis=None)) for log in logs)
            worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
        return worst

    assert worst_delta(scale) <= delta
    assert worst_delta(scale / 2) > delta  # planted: noise for the radius


def renyi(p, q, order):
    """Of two laws by their logarithms."""
    return float(np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1))


@pytest.mark.usefixtures("few_bits")
def test_renyi_divergence_of_mixtures_is_at_most_that_of_two_places():
    """Whatever the chances of places, as long as all of them are in the domain."""
    asked, _ = asked_of_noise(np.array([[9.0]]), 2, "gaussian")
    law = asked[0][1]
    places, inside = np.arange(-400, 401), np.arange(-EDGE, EDGE + 1)[:, np.newaxis]
    parts = log_noise("gaussian", law.scale, places - inside)
    parts -= np.logaddexp.reduce(parts, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    for order in (1.5, 2.0, 8.0, 20.0):
        assert renyi(parts[0], parts[-1], order) == pytest.approx(order * law.rho, rel=1e-6)
        for _ in range(200):
            one, other = (
                np.logaddexp.reduce(parts + np.log(weights + 1e-300)[:, np.newaxis], axis=0)
                for weights in rng.dirichlet(np.full(len(parts), 0.3), size=2)
            )
            assert renyi(one, other, order) <= order * law.rho * (1 + 1e-9)


# --- noise is for the diameter of the domain ----------------------------------------------------

DOMAINS = [ps.Box([-1, 0], [1, 30]), ps.Ball(2, 3.0, [1.0, -2.0]), ps.Box(-4, 4, dim=2)]


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("noise", ["laplace", "cube", "gaussian"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_two_records_are_never_farther_apart_than_the_noise_is_for(domain, noise, neighbours):
    half, center = domain.half_widths, domain.center_vector
    norm = {"laplace": 1, "cube": np.inf, "gaussian": 2}[noise]
    rng = np.random.default_rng(0)
    corners = center + np.array([half, -half, [half[0], 0], [-half[0], 0], [0, half[1]]]) * 2
    farthest = 0.0
    tables = [*(corner[np.newaxis] for corner in corners), *rng.normal(size=(9, 1, 2)) * 40]
    shown = [asked_of_noise(t, 2, noise, neighbours, domain=domain)[0][0] for t in tables]
    for (one, law), (other, _) in itertools.combinations(shown, 2):
        step = np.linalg.norm((one - other).astype(float), norm)
        farthest = max(farthest, step / law.sensitivity)
        assert step <= law.sensitivity * (1 + 1e-15)
    assert farthest > 1 - 1e-4
    law = shown[0][1]
    unit = Passes(np.zeros((1, 2)), domain).unit
    is_ball = isinstance(domain, ps.Ball)
    across = {
        "laplace": 2 * (math.sqrt(2) * half[0] if is_ball else half.sum()),
        "cube": 2 * half.max(),
        "gaussian": 2 * (half[0] if is_ball else math.hypot(*half)),
    }[noise]
    assert law.sensitivity * unit == pytest.approx(across, rel=1e-4)


@pytest.mark.parametrize("k", [1, 3, 64])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_steps_share_the_budget(k, delta):
    tape, budget = Tape(answer=exact_answer), ps.Budget(0.7, delta)
    options = {"domain": DOMAINS[0], "budget": budget, "n_records": 4}
    model = tape.recorded(lambda: clustered(variates.cluster, np.zeros((4, 2)), k, **options))
    laws = tape.laws
    assert len(laws) == len(model.centers) == k
    if delta:
        spent = sum(law.rho for law in laws) / rho_of_budget(0.7, delta)
    else:
        spent = float(sum(exact(law.epsilon) for law in laws) / exact(0.7))
    assert 1 - 1e-9 <= spent <= 1
    assert (model.receipt.epsilon, model.receipt.delta) == (pytest.approx(0.7, rel=1e-12), delta)


# --- which records are drawn --------------------------------------------------------------------


def draws(table, centers, count, **options):
    passes = Passes(table, LINE)
    return [int(variates.drawn_record(passes, centers, "seed", **options)[0]) for _ in range(count)]


@pytest.mark.mostly_slow(quick_every=6)
@pytest.mark.usefixtures("few_bits")
@pytest.mark.parametrize("rows", [2**14, 2])
@pytest.mark.parametrize("centers", [[], [-3.0], [-3.0, 2.0]])
def test_chances_are_those_of_k_means_plus_plus(centers, rows):
    table, count = np.array([[-0.75], [-0.25], [0.25], [0.75]]), 4000  # -3, -1, 1, 3
    whole = np.array([-3.0, -1.0, 1.0, 3.0])
    squared = np.min([(whole - c) ** 2 for c in centers], axis=0) if centers else np.ones(4)
    expected = squared / squared.sum()
    found = draws(table, np.reshape(centers, (-1, 1)), count, rows=rows)
    observed = np.array([found.count(int(value)) for value in whole])
    assert observed.sum() == count
    some = expected > 0
    assert not observed[~some].any()

    def statistic(expected):
        return ((observed[some] - count * expected[some]) ** 2 / (count * expected[some])).sum()

    assert chi2.sf(statistic(expected), some.sum() - 1) > 1e-7
    if centers:  # planted: all records alike
        assert chi2.sf(statistic(np.full(4, 1 / some.sum())), some.sum() - 1) < 1e-7


def test_records_that_are_all_at_a_center_can_be_drawn():
    table = np.full((5, 1), 0.5)
    center = Passes(table, LINE).quantised(table[:1])
    assert draws(table, center, 3) == [int(center[0, 0])] * 3


def test_no_record_is_the_center_of_the_domain():
    for domain in DOMAINS:
        asked, model = asked_of_noise(np.zeros((0, 2)), 3, "laplace", domain=domain)
        assert all((values == 0).all() for values, _ in asked)
        np.testing.assert_allclose(model.centers, np.tile(domain.center_vector, (3, 1)))


# --- the model ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_noise")
def test_without_noise_seeds_are_records():
    table = np.random.default_rng(0).uniform(-1, 1, size=(40, 2)).round(2)
    model = clustered(
        variates.cluster,
        table,
        5,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(1.0, 1e-6),
        n_records=40,
    )
    gaps = np.abs(model.centers[:, np.newaxis] - table).max(axis=2).min(axis=1)
    assert gaps.max() < 2.0**-17
    assert len(np.unique(model.centers, axis=0)) == 5


def test_a_number_that_nobody_gave_is_counted_with_noise(spent):
    budget = ps.Budget(1.0)
    for n in (0, 3, 5):
        model = clustered(variates.cluster, np.zeros((n, 1)), 2, domain=LINE, budget=budget)
        assert model.n_records == max(n, 1)  # the noise is none here
    assert len(spent) == 3 * 3
    assert [law.epsilon for law in spent[:3]] == pytest.approx([0.02, 0.49, 0.49])
    assert model.receipt.epsilon == pytest.approx(1.0, rel=1e-12)
    spent.clear()
    public = ps.Budget(1.0, 0.0, "replace")
    assert (
        clustered(variates.cluster, np.zeros((4, 1)), 2, domain=LINE, budget=public).n_records == 4
    )
    assert len(spent) == 2
