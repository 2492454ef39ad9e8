"""K-means from cells: which records are counted where, and what is found from them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch.clustering import Grid, HeavyCells, Run, clustered
from privsketch.clustering.cells import cluster
from privsketch.noise import discrete_laplace_variance, watch_noise
from privsketch.testing import questions
from tests import seams
from tests.chance import exact_answers

_reconcile = seams.get("cells.reconcile")


BOX = ps.Box([-1, 0, -3], [1, 4, 3])


def grid_of(records, shape, domain=BOX):
    run = Run(records, domain=domain, budget=ps.Budget(1.0), n_records=100)
    return Grid(run.read(domain), shape)


def some_records(n=400, seed=0):
    rng = np.random.default_rng(seed)
    inside = rng.uniform([-1, 0, -3], [1, 4, 3], (n, 3))
    return np.vstack([inside, [[-1, 0, -3], [1, 4, 3], [9, -9, 9], [0, 2, 0]]])


def inside(records, low, high):
    """How many records lie in each box; the last one of an axis has its upper end."""
    offsets = records - BOX.center_vector
    half = BOX.half_widths
    offsets = np.clip(offsets, -half, half)
    above = (offsets[:, np.newaxis] >= low) & (
        (offsets[:, np.newaxis] < high) | ((high >= half) & (offsets[:, np.newaxis] <= half))
    )
    return above.all(axis=2).sum(axis=0)


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 3, 5), (7, 1, 2)])
def test_cells_and_their_parts_are_where_they_are_said_to_be(shape):
    records = some_records()
    grid = grid_of(records, shape)
    counts = grid.counts()
    assert counts.sum() == len(records)
    assert (counts == inside(records, *grid.edges())).all()
    along = np.random.default_rng(1).integers(1, 4, grid.n_cells)
    parts = grid.counts_of_parts(along)
    low, high, cell = grid.edges_of_parts(along)
    assert (parts == inside(records, low, high)).all()
    heavy = along > 1
    assert (np.bincount(cell, minlength=grid.n_cells) == np.where(heavy, along**3, 0)).all()
    whole = np.bincount(cell, parts, minlength=grid.n_cells)
    assert (whole[heavy] == counts[heavy]).all()
    volume = np.prod(high - low, axis=1)
    cells = np.prod(np.subtract(*grid.edges()[::-1]), axis=1)
    assert np.allclose(np.bincount(cell, volume, minlength=grid.n_cells)[heavy], cells[heavy])


def test_heavy_cells_follow_from_the_first_look_alone():
    rule = HeavyCells(n_cells=100, dim=2, scale=1.0)
    first = np.array([0, 10, 25, 40, 1000, -50, 10**7])
    along = rule.parts_per_axis(first)
    assert along.tolist() == [1, 1, 1, 2, 8, 1, 8]
    assert rule(first).tolist() == (along > 1).tolist()
    assert rule == HeavyCells(100, 2, 1.0)
    # There is an end to it, and the heaviest come first.
    many = np.arange(10_000, 20_000)
    found = HeavyCells(10_000, 3, 1.0).parts_per_axis(many)
    added = found[found > 1] ** 3
    assert added.sum() <= 15_000
    assert found.argmax() == len(found) - len(added)
    # Noise alone makes a cell heavy now and then: one of 20 runs.
    scale = 3.0
    noise = np.random.default_rng(0).laplace(scale=2 * scale, size=(2000, 400)).round()
    alarms = [HeavyCells(400, 1, scale)(row.astype(np.int64)).any() for row in noise]
    assert np.mean(alarms) < 0.05


def test_parts_and_their_cell_agree_by_least_squares():
    rng = np.random.default_rng(0)
    cell = np.repeat([0, 2], [4, 9])
    scale, errors = 2.0, []
    whole, part = discrete_laplace_variance(2 * scale), 32.0
    for _ in range(4000):
        truth = rng.uniform(0, 50, 13)
        noisy = truth + rng.normal(scale=np.sqrt(part), size=13)
        first = np.zeros(3)
        np.add.at(first, cell, truth)
        first += rng.normal(scale=np.sqrt(whole), size=3)
        found, variance = _reconcile(noisy, part, cell, first, scale)
        errors.append(found - truth)
    errors = np.array(errors)
    assert np.allclose(errors.var(axis=0), variance, rtol=0.15)
    assert np.abs(errors.mean(axis=0)).max() < 0.6
    plain = part * 9
    assert errors[:, 4:].sum(axis=1).var() < plain / 5  # what a cell tells of all its parts


def test_what_is_asked_of_the_noise():
    records = np.vstack([np.zeros((3000, 2)), np.random.default_rng(0).uniform(-1, 1, (300, 2))])
    options = {"domain": ps.Box(-1, 1, dim=2), "random_state": 0}
    asked = questions(
        lambda: clustered(cluster, records, 3, budget=ps.Budget(1.0, 1e-6), **options)
    )
    count, looks, parts = asked
    assert [one.law.kind for one in asked] == ["laplace", "zoom", "laplace"]
    assert looks.law.epsilon == pytest.approx(0.98)
    assert parts.law.epsilon == pytest.approx(0.49)
    assert count.values.tolist() == [3300]
    assert looks.values.sum() == 3300
    assert 3000 <= parts.values.sum() < 3300
    model = clustered(cluster, records, 3, budget=ps.Budget(1.0, 1e-6), n_records=3e3, **options)
    assert (model.receipt.epsilon, model.receipt.delta) == (1.0, 0.0)
    assert "parts" in model.receipt.mechanism
    assert model.method == "cells"


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_hardly_any_records(n, dim):
    for k in (1, 3):
        model = ps.PrivateKMeans(
            k,
            epsilon=0.5,
            delta=0.0,
            domain=ps.Box(-1, 1, dim=dim),
            method="cells",
            n_records=50,
            random_state=0,
        ).fit(np.zeros((max(n, 1), dim))[:n] if n else np.zeros((1, dim)))
        assert model.cluster_centers_.shape == (k, dim)
        assert np.isfinite(model.cluster_centers_).all()
        assert (np.abs(model.cluster_centers_) <= 1).all()


def test_many_columns_are_refused_before_anything_is_spent():
    with watch_noise(pytest.fail), pytest.raises(ps.PrivsketchError, match="at most 8"):
        ps.PrivateKMeans(2, epsilon=1.0, delta=0.0, domain=ps.Box(-1, 1), method="cells").fit(
            np.zeros((20, 9))
        )


@pytest.mark.slow
def test_a_domain_that_cuts_is_a_concern(fixed_noise):
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(0, 0.1, (4000, 2)), rng.normal(9, 0.1, (1000, 2))
    facts = {"epsilon": 1.0, "delta": 0.0, "domain": ps.Box(-1, 1), "n_records": 5000}
    model = ps.PrivateKMeans(3, method="cells", random_state=0, **facts)
    (told,) = model.fit(np.vstack([inside, outside])).concerns_
    assert "on the edge of the domain" in told
    assert model.fit(inside).concerns_ == ()


def test_tight_clusters_far_below_a_cell_are_found(fixed_noise):
    rng = np.random.default_rng(5)
    centers = np.array([[-0.6, -0.6], [0.1, 0.7], [0.75, -0.2]])
    records = centers[rng.choice(3, 6000, p=[0.6, 0.3, 0.1])] + 0.008 * rng.normal(size=(6000, 2))
    model = ps.PrivateKMeans(
        3,
        epsilon=1.0,
        delta=0.0,
        domain=ps.Box(-1, 1),
        method="cells",
        n_records=6000,
        random_state=0,
    ).fit(records)
    away = np.linalg.norm(model.cluster_centers_[:, np.newaxis] - centers, axis=2).min(axis=0)
    assert away.max() < 0.01
    best = KMeans(3, n_init=3, random_state=0).fit(records).inertia_
    assert -model.score(records) < 1.5 * best


@pytest.mark.slow
def test_schemas_and_persons_are_respected(fixed_noise):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "who": np.repeat(np.arange(500), 4),
            "age": rng.choice([30.0, 70.0], 2000) + rng.normal(0, 3, 2000),
            "dose": rng.normal(5, 0.5, 2000),
        }
    )
    for most in (1, 2):
        schema = ps.Schema(
            [ps.Number("age", 0, 100), ps.Number("dose", 0, 10)],
            person="who",
            max_records=most,
        )
        model = ps.PrivateKMeans(
            2, epsilon=1.0, delta=0.0, domain=schema, method="cells", n_records=500, random_state=0
        )
        looks = questions(lambda model=model: model.fit(table))[0]
        assert looks.law.sensitivity == most
        assert looks.values.sum() == most * 500
        fitted = model.fit(table)
        assert fitted.receipt_.unit == "one person (who)"
        found = np.sort(fitted.model_.table()["age"])
        assert found == pytest.approx([30, 70], abs=8)


def test_without_noise_it_is_kmeans_of_the_boxes():
    rng = np.random.default_rng(3)
    records = rng.choice([-0.5, 0.5], (4000, 1)) + 0.1 * rng.normal(size=(4000, 2))
    with exact_answers():
        model = ps.PrivateKMeans(
            2,
            epsilon=1.0,
            delta=0.0,
            domain=ps.Box(-1, 1),
            method="cells",
            n_records=4000,
            random_state=0,
        ).fit(records)
    best = KMeans(2, n_init=3, random_state=0).fit(records)
    assert -model.score(records) < 1.01 * best.inertia_
