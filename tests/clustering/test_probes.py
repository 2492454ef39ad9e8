"""Merging a pool of noisy means: a pure function of points, sizes and errors."""

import itertools

import numpy as np
import pytest

from privsketch.clustering import Pool, clusters_of, reduced


def pool_of(means, sizes, errors=0.0, widths=1.0):
    n = len(means)
    spread = [np.broadcast_to(np.asarray(each, dtype=float), n) for each in (sizes, errors, widths)]
    return Pool(np.asarray(means, dtype=float), *(each.copy() for each in spread))


def pairs(n):
    """Which center each of two probes comes from."""
    return np.tile(np.arange(n), 2)


def cost(points, sizes, labels):
    total = 0.0
    for label in np.unique(labels):
        own = labels == label
        mean = np.average(points[own], axis=0, weights=sizes[own])
        total += float(sizes[own] @ np.square(points[own] - mean).sum(axis=1))
    return total


def cost_of(groups, pool):
    labels = np.zeros(len(pool.means), dtype=int)
    for number, group in enumerate(groups):
        labels[group.members] = number
    return cost(pool.means, pool.sizes, labels)


def test_halves_of_separate_clusters_come_together():
    centers = 10 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=float)
    pool = pool_of(np.concatenate([centers + 0.5, centers - 0.5]), 100)
    groups = reduced(pool, pairs(4), 4)
    found = sorted(tuple(group.mean) for group in groups)
    assert found == sorted(map(tuple, centers))
    assert all(sorted(group.members % 4)[0] == sorted(group.members % 4)[1] for group in groups)


def test_a_cluster_that_two_centers_share_gives_one_of_them_up():
    """Two centers on one cluster, one center on two: four probes, and three clusters."""
    pool = pool_of([[0.0], [10.0], [20.2], [0.1], [10.1], [30.0]], 100)
    before = np.array([0, 0, 2, 1, 1, 2])  # 0 and 10 were one center each with the same cluster
    groups = reduced(pool, before, 4)
    assert sorted(round(float(group.mean[0])) for group in groups) == [0, 10, 20, 30]


@pytest.mark.parametrize("seed", range(6))
def test_small_pools_are_merged_nearly_as_well_as_by_trying_everything(seed):
    rng = np.random.default_rng(seed)
    points, sizes = rng.normal(size=(6, 2)), rng.integers(1, 9, 6).astype(float)
    groups = reduced(pool_of(points, sizes), pairs(3), 3)
    best = min(
        cost(points, sizes, np.array(labels)) for labels in itertools.product(range(3), repeat=6)
    )
    assert len(groups) == 3
    assert cost_of(groups, pool_of(points, sizes)) <= 1.5 * best + 1e-9


def test_the_order_of_members_does_not_matter():
    rng = np.random.default_rng(1)
    points, sizes = rng.normal(size=(12, 3)), rng.uniform(1, 9, 12)
    groups = reduced(pool_of(points, sizes, 0.01), pairs(6), 6)
    order = rng.permutation(12)
    again = reduced(pool_of(points[order], sizes[order], 0.01), pairs(6)[order], 6)
    expected = {frozenset(group.members.tolist()) for group in groups}
    assert {frozenset(order[group.members].tolist()) for group in again} == expected


def test_differences_that_noise_makes_split_nothing():
    """Halves of one cluster, as far apart as their errors say; a gain must be clear."""
    rng = np.random.default_rng(2)
    n_wrong = 0
    for _ in range(200):
        halves = rng.normal(size=(2, 5))
        far = 4 + 0.1 * rng.normal(size=(2, 5))
        pool = pool_of(np.concatenate([halves, far]), 100, [5.0, 5.0, 0.05, 0.05])
        groups = reduced(pool, np.array([0, 0, 1, 1]), 2)
        n_wrong += {frozenset(g.members.tolist()) for g in groups} != {
            frozenset({0, 1}),
            frozenset({2, 3}),
        }
    assert n_wrong <= 2


@pytest.mark.parametrize("n_alive", [0, 1, 2])
def test_fewer_members_than_clusters(n_alive):
    pool = pool_of(np.arange(8.0).reshape(4, 2), [100.0] * n_alive + [0.0] * (4 - n_alive))
    groups = reduced(pool, pairs(2), 2)
    assert len(groups) <= max(n_alive, 0)
    if groups:
        found = clusters_of(groups, pool, np.eye(2), 2)
        assert found.centers.shape == (2, 2)
        assert np.isfinite(found.centers).all()
        assert found.counts.sum() == pytest.approx(100 * n_alive)
        np.testing.assert_allclose(np.linalg.norm(found.axes, axis=1), 1.0)


def test_what_was_found_before_keeps_a_floor():
    pool = pool_of(np.zeros((4, 1)), [0.0, 50.0, 0.0, 1.0])
    raised = pool.with_at_least(np.array([20.0, 20.0]), of=pairs(2))
    assert raised.sizes.tolist() == [10.0, 50.0, 10.0, 1.0]


def test_clusters_are_split_along_the_main_axis_of_their_members():
    pool = pool_of([[3.0, 3.0], [-3.0, -3.0], [0.1, -0.1]], 10)
    (group,) = reduced(pool, np.zeros(3, dtype=int), 1)
    found = clusters_of([group], pool, np.eye(2)[:1], 1)
    assert abs(found.axes[0] @ [1, 1]) == pytest.approx(np.sqrt(2), abs=0.01)
    assert found.widths[0] > 1.0
