"""K-means by partition trees: exact privacy losses of tiny instances, oracles, and utility."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError
from privsketch.clustering import (
    RADIUS,
    RADIUS_BITS,
    SIDE_BITS,
    WIDTH,
    Passes,
    Projected,
    ReleasedClusters,
    Tree,
    TreeSettings,
    candidate_centers,
    cluster_by_tree,
    clustered,
    count_children,
    default_threshold,
    grow,
    projected_radius,
    release_best,
    release_centers,
    release_swaps,
    swap_losses,
    whole_losses,
)
from privsketch.clustering.tree import share_weights
from privsketch.facts import exact
from privsketch.features import PublicStream
from privsketch.noise import laplace_law
from privsketch.testing import Tape, questions, replay
from tests.oracles import account_of, law_of_choices, neighbour_at_the_end, worst_log_ratio

RELATIONS = ["add-remove", "replace"]


def passes_of(records, radius=1.0, **options):
    records = np.asarray(records, dtype=np.float64)
    return Passes(records, ps.Ball(dim=records.shape[1], radius=radius), **options)


def projected(records, n_dimensions=1, seed=0):
    passes = passes_of(records, n_threads=1)
    return Projected.draw(passes, n_dimensions, PublicStream(seed, 1), 1e-4)


# --- exact laws: every random decision tried ---


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("shift", [0, RADIUS // 3])
def test_loss_of_a_tree_in_one_dimension(neighbours, shift):
    epsilon, records = 1.4, [[-0.9], [-0.8], [0.5]]

    def law(table, stretch=1.0):
        data = projected(table)

        def run():
            account = account_of(epsilon, neighbours, "level 1", "level 2")
            grow(data, np.array([[shift]]), 2, [account])

        return law_of_choices(run, stretch)

    one, other = law(records), law(neighbour_at_the_end(records, [-0.9], neighbours))
    worst = worst_log_ratio(one, other)
    assert 0.5 * epsilon < worst <= epsilon * (1 + 1e-9)
    planted = law(records, 0.4), law(neighbour_at_the_end(records, [-0.9], neighbours), 0.4)
    assert worst_log_ratio(*planted) > epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("width", [WIDTH, WIDTH // 4])
def test_loss_of_swaps(neighbours, width):
    epsilon, records = 1.2, [[-1.0], [-0.2], [1.0]]
    candidates = np.array([[-RADIUS], [0], [RADIUS]], dtype=float)

    def law(table, stretch=1.0):
        data = projected(table)

        def run():
            account = account_of(epsilon, neighbours, "swaps")
            release_swaps(data, candidates, 1, 2, PublicStream(3, 1), account, "swaps", width)

        return law_of_choices(run, stretch)

    one, other = law(records), law(neighbour_at_the_end(records, [-1.0], neighbours))
    worst = worst_log_ratio(one, other)
    assert len(one) == 3 * 3 * 2
    assert 0.3 * epsilon < worst <= epsilon * (1 + 1e-9)
    planted = law(records, 0.2), law(neighbour_at_the_end(records, [-1.0], neighbours), 0.2)
    assert worst_log_ratio(*planted) > epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_loss_of_the_choice_among_trials(neighbours):
    epsilon, records = 0.6, [[0.0, 0.1], [-0.5, 0.0], [0.0, 1.0]]
    largest = passes_of(records).limits.max()
    # One of them is beyond the edge, as rounding may leave it, and far beyond.
    trials = [
        ReleasedClusters(np.array([[0.0, place * largest]]), np.ones(1)) for place in (1, -1, 0, 5)
    ]

    def law(table, stretch=1.0):
        passes = passes_of(table, n_threads=1)

        def run():
            release_best(passes, trials, account_of(epsilon, neighbours, "best"), "best")

        return law_of_choices(run, stretch)

    one, other = law(records), law(neighbour_at_the_end(records, [0.0, -1.0], neighbours))
    worst = worst_log_ratio(one, other)
    assert 0.4 * epsilon < worst <= epsilon * (1 + 1e-9)
    planted = law(records, 0.4), law(neighbour_at_the_end(records, [0.0, -1.0], neighbours), 0.4)
    assert worst_log_ratio(*planted) > epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_loss_of_the_recovery(neighbours):
    # Discrete Laplace noise: the loss is the L1 change of the integers over the scale.
    dim, epsilon = 9, 1.0
    diagonal = np.full(dim, 1.0 / math.sqrt(dim))
    table = [np.zeros(dim), 0.3 * diagonal, diagonal]
    centers = np.array([[-RADIUS], [RADIUS]], dtype=float)

    def seen(records):
        account = account_of(epsilon, neighbours, "counts", "sums")
        return questions(
            lambda: release_centers(projected(records), centers, account, "counts", "sums")
        )

    one, other = seen(table), seen(neighbour_at_the_end(table, -diagonal, neighbours))
    losses = [
        Fraction(int(np.abs(a.values - b.values).sum())) / Fraction(a.law.scale)
        for a, b in zip(one, other, strict=True)
    ]
    assert sum(losses) <= exact(epsilon)
    assert float(sum(losses)) > (0.99 if neighbours == "add-remove" else 0.5)
    # The sensitivity that the paper takes, without sqrt(d), would not cover the sums.
    assert losses[1] * math.isqrt(dim) > exact(epsilon)


def test_recovery_noise_is_that_of_the_l1_norm():
    dim, epsilon = 784, 0.5
    passes = passes_of(np.zeros((1, dim)))
    law = laplace_law(passes.l1, dim, epsilon, "add-remove")
    radius = float(passes.limits.max())
    assert dim * law.variance / radius**2 == pytest.approx(4917248, rel=1e-4)


# --- the same questions for neighbours ---


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("n_records", [300, None])
def test_replayed_on_a_neighbour(neighbours, n_records):
    rng = np.random.default_rng(5)
    table = np.clip(rng.normal(size=(300, 4)) * 0.3, -0.5, 0.5)
    far = np.array([[1.0, 0.0, 0.0, 0.0]])
    other = table[:-1] if neighbours == "add-remove" else np.concatenate([table[:-1], far])
    options = {
        "domain": ps.Ball(dim=4, radius=1.0),
        "budget": ps.Budget(30.0, 0.0, neighbours),
        "n_records": n_records,
        "n_trials": 2,
        "random_state": 1,
        "settings": TreeSettings(n_dimensions=3, n_levels=3, n_swaps=3),
    }
    tape = Tape()
    found = replay(lambda rows: clustered(cluster_by_tree, rows, 3, **options), table, other, tape)
    assert found.second.receipt.sampler.startswith("INSECURE")
    for question, after in zip(tape.questions, tape.again, strict=True):
        if question.law.kind == "choice":  # fewer records have no larger losses
            assert neighbours == "replace" or (question.values - after).min() >= 0
    paid = n_records is None and neighbours == "add-remove"
    assert Counter(law.kind for law in found.laws) == {
        "threshold": 2 * 2 * 3,
        "choice": 2 * 4 + 1,
        "laplace": 4 + paid,
    }


@pytest.mark.parametrize("n_trials", [1, 3])
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_shares_add_up(n_trials, neighbours):
    assert sum(share_weights(n_trials).values()) == 1
    budget = ps.Budget(0.7, 1e-6, neighbours)
    table = np.random.default_rng(0).normal(size=(200, 3)) * 0.2
    found = clustered(
        cluster_by_tree,
        table,
        2,
        domain=ps.Ball(dim=3, radius=1.0),
        budget=budget,
        n_trials=n_trials,
    )

    def leaves(receipt):
        if not receipt.parts:
            return [receipt]
        return [leaf for part in receipt.parts for leaf in leaves(part)]

    spent = sum(exact(leaf.epsilon) for leaf in leaves(found.receipt))
    assert spent <= exact(found.receipt.epsilon) <= exact(0.7)
    assert float(spent) == pytest.approx(0.7, rel=1e-12)
    assert found.receipt.delta == 0
    assert found.receipt.neighbours == neighbours


# --- parts against oracles ---


def test_projections_depend_on_their_record_alone():
    table = np.random.default_rng(1).normal(size=(500, 40)) * 0.3
    data = projected(table, 6)
    whole = data.passes.quantised(table)
    together = data(whole)
    one_by_one = np.concatenate([data(row[np.newaxis]) for row in whole])
    np.testing.assert_array_equal(together, one_by_one)
    np.testing.assert_array_equal(together, np.rint(together))
    assert np.vecdot(together, together).max() <= RADIUS**2


def test_projections_keep_lengths_on_average():
    rng = np.random.default_rng(2)
    table = rng.normal(size=(4000, 60))
    table *= 0.9 / np.linalg.norm(table, axis=1, keepdims=True)
    data = projected(table, 5)
    lengths = np.linalg.norm(data(data.passes.quantised(table)), axis=1)
    lengths *= data.radius / RADIUS * data.passes.unit
    # 60/5 times a Beta(5/2, 55/2) variable: a mean of 1, a standard deviation of about 0.6.
    assert np.mean((lengths / 0.9) ** 2) == pytest.approx(1.0, abs=0.06)


def test_radius_of_projections():
    # p = 2 of d = 4: the squared length of two coordinates is uniform.
    assert projected_radius(4, 2, 0.02) == pytest.approx(math.sqrt(2 * 0.98))
    assert projected_radius(3, 3, 0.01) == 1.0
    with pytest.raises(ParameterError, match="n_dimensions=31"):
        projected(np.zeros((1, 40)), 31)


def test_cubes_hold_their_records():
    p, n_levels = 3, 3
    table = np.random.default_rng(3).uniform(-0.57, 0.57, size=(400, p))
    data = projected(table, p)
    points = data(data.passes.quantised(table))
    tree = Tree(np.array([RADIUS, -RADIUS, 12345]))
    for level in range(1, n_levels + 1):
        places = tree.children(points)
        assert len(places) == len(points)  # nothing is left out where all cubes are active
        rows = count_children(data, [tree])[0]
        unique, counts = np.unique(places, return_counts=True)
        np.testing.assert_array_equal(rows, np.stack([unique, counts], axis=1))
        tree = tree.grown(np.arange(tree.n_children))
        centers = tree.centers()[-1]
        assert np.abs(points - centers[places]).max() <= 2 ** (SIDE_BITS - level) / 2
    assert len(np.unique(np.concatenate(tree.centers()), axis=0)) == 1 + 8 + 64 + 512
    # Only what is in an active cube goes on.
    pruned = Tree(tree.shift, (tree.active[0][2:4],))
    first = Tree(tree.shift).children(points)
    assert len(pruned.children(points)) == np.isin(first, [2, 3]).sum()


def test_candidates_are_different_and_in_the_ball():
    tree = Tree(np.array([RADIUS, RADIUS]), (np.arange(4), np.arange(16)))
    points = candidate_centers([tree, tree], 4, 1000, PublicStream(0, 1))
    assert len(np.unique(points, axis=0)) == len(points) <= 21
    assert np.vecdot(points, points).max() <= RADIUS**2
    few = candidate_centers([Tree(np.zeros(2, np.int64))], 10, 12, PublicStream(0, 1))
    assert len(np.unique(few, axis=0)) == 10
    assert len(candidate_centers([tree], 2, 5, PublicStream(0, 1))) == 5


@pytest.mark.parametrize("width", [WIDTH, WIDTH // 20])
def test_losses_of_all_swaps(width):
    rng = np.random.default_rng(4)
    table = rng.uniform(-0.5, 0.5, size=(50, 3))
    data = projected(table, 3)
    candidates = np.rint(rng.uniform(-0.5, 0.5, size=(7, 3)) * RADIUS)
    chosen = np.array([2, 5, 2])  # the same one twice is a set of two
    found = swap_losses(data, candidates, chosen, width)
    points = data(data.passes.quantised(table)).astype(int).tolist()

    def loss(point, center):
        squared = sum((a - int(b)) ** 2 for a, b in zip(point, center, strict=True))
        return min(squared * WIDTH // (4 * RADIUS**2), width)

    for out, come in itertools.product(range(3), range(7)):
        after = chosen.copy()
        after[out] = come
        expected = sum(min(loss(x, candidates[c]) for c in after) for x in points)
        assert found[out, come] == expected


def test_losses_stay_in_their_range():
    far = np.array([[3.0 * RADIUS, 0.0]])
    assert whole_losses(far, -far, RADIUS_BITS).tolist() == [[WIDTH]]
    edge = np.array([[float(RADIUS), 0.0]])
    assert whole_losses(edge, -edge, RADIUS_BITS).tolist() == [[WIDTH]]
    assert whole_losses(edge, edge, RADIUS_BITS).tolist() == [[0]]


def test_default_threshold_leaves_few_empty_cubes():
    budget = ps.Budget(1.0, 0.0, "replace")
    threshold = default_threshold(6, 5, budget, 0.01)
    q = math.exp(-1.0 / 5 / 2)
    assert 0.003 < 2**6 * q**threshold / (1 + q) < 0.01


# --- the whole ---


def mixture(n_records, n_clusters, dim, rng):
    centers = rng.normal(size=(n_clusters, dim))
    centers *= 0.6 / np.linalg.norm(centers, axis=1, keepdims=True)
    labels = rng.integers(n_clusters, size=n_records)
    return centers[labels] + 0.08 * rng.normal(size=(n_records, dim)), centers


def cost(records, centers):
    squared = ((records[:, np.newaxis] - centers) ** 2).sum(axis=2)
    return float(squared.min(axis=1).mean())


def test_centers_are_far_better_than_random_ones(fixed_noise):
    rng = np.random.default_rng(6)
    records, centers = mixture(20_000, 4, 8, rng)
    found = clustered(
        cluster_by_tree,
        records,
        4,
        domain=ps.Ball(dim=8, radius=1.0),
        budget=ps.Budget(20.0),
        n_records=20_000,
        random_state=0,
    )
    directions = rng.normal(size=(50, 4, 8))
    random = 0.6 * directions / np.linalg.norm(directions, axis=2, keepdims=True)
    best_of_random = min(cost(records, guess) for guess in random)
    assert cost(records, found.centers) < 0.5 * best_of_random
    assert cost(records, found.centers) < 2 * cost(records, centers)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.n_records == pytest.approx(20_000, rel=0.01)


def test_few_records_and_none():
    for n in (0, 1):
        table = np.zeros((n, 5))
        found = clustered(
            cluster_by_tree, table, 3, domain=ps.Box(low=-1, high=1, dim=5), budget=ps.Budget(1.0)
        )
        assert found.centers.shape == (3, 5)
        assert np.abs(found.centers).max() <= 1
        assert found.receipt.epsilon == 1.0


def test_bad_settings_are_refused():
    for settings in (
        {"n_levels": 18},
        {"fail_prob": 0.0},
        {"loss_share": 2.0},
        {"threshold": 0},
        {"n_swaps": -1},
    ):
        with pytest.raises(ParameterError, match=next(iter(settings))):
            TreeSettings(**settings)
    options = {"domain": ps.Ball(dim=2, radius=1.0), "budget": ps.Budget(1.0)}
    with pytest.raises(ParameterError, match="n_records"):
        clustered(cluster_by_tree, np.zeros((3, 2)), 2, n_records=0, **options)
    with pytest.raises(ParameterError, match="n_trials"):
        clustered(cluster_by_tree, np.zeros((3, 2)), 2, n_trials=0, **options)
    account = account_of(1.0, "add-remove", "best")
    account.choice("best", np.array([1, 2]), WIDTH)
    with pytest.raises(ParameterError, match="spent"):
        account.choice("best", np.array([1, 2]), WIDTH)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_sums_in_an_uneven_box_are_noised_for_its_half_widths_added_up(neighbours):
    half = np.geomspace(0.01, 10, 12)
    box = ps.Box(3 - half, 3 + half)
    records = 3 + np.array([np.ones(12), -np.ones(12), np.eye(12)[-1], np.zeros(12)]) * half * 4
    ball = ps.Ball(12, float(np.linalg.norm(half)), 3.0)
    passes = Passes(records, ball, within=box)
    whole = passes.quantised(records)
    assert (np.abs(whole) * passes.unit <= half * (1 + 1e-12)).all()  # moved to the edge of the box
    assert 0.9999 * passes.l1 < np.abs(whole).sum(axis=1).max() <= passes.l1
    assert passes.l1 * passes.unit == pytest.approx(half.sum(), rel=1e-3)
    assert passes.l1 < 0.7 * Passes(records, ball).l1  # sqrt(12) |h|_2
    budget = ps.Budget(1.0, 0.0, neighbours)
    options = {"domain": box, "n_records": 100, "random_state": 0, "budget": budget}
    asked = questions(lambda: clustered(cluster_by_tree, records, 2, **options), noisy=True)
    laws = {q.law.n_components: q.law for q in asked if q.law.kind == "laplace"}
    factor = 1 if neighbours == "add-remove" else 2
    assert laws[24].sensitivity == factor * passes.l1
    with pytest.raises(ParameterError, match="one center"):
        Passes(records, ps.Ball(12, 40.0), within=box)
