"""How far k-means centers move when the means of their clusters do, and their standard errors."""

import math

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch.learning import WAVES, Points, Response, response_of
from privsketch.learning import standard_errors as errors_of
from privsketch.learning.kmeans import model as kmeans_model
from privsketch.learning.problem import Atoms
from privsketch.models import nearest


def points(positions):
    n = len(positions)
    return Points(positions, np.full(n, 1 / n), np.zeros(n, dtype=np.intp))


def test_two_halves_of_a_segment_move_twice_as_far():
    # The border is (c + d) / 2, and the means of the halves are half of it from the ends: all
    # derivatives are 1/4, so B has the eigenvalues 1/2 and 0, and (I - B)^-1 has 2 and 1.
    even = (np.arange(20_000) + 0.5)[:, None] / 20_000
    found = response_of(points(even), np.array([[0.25], [0.75]]))
    np.testing.assert_allclose(found.moved, (2**2 + 1) / 2, rtol=0.01)
    assert found.cost == pytest.approx((2 + 1) / 2, rel=0.01)


def test_two_halves_of_a_gaussian_have_the_closed_form():
    # The density of the border, 1 / sqrt(2 pi), gives B the eigenvalue 2 / pi along the axis.
    quantiles = ndtri((np.arange(20_000) + 0.5) / 20_000)[:, None]
    center = math.sqrt(2 / math.pi)
    found = response_of(points(quantiles), np.array([[-center], [center]]))
    answer = 1 / (1 - 2 / math.pi)
    np.testing.assert_allclose(found.moved, (answer**2 + 1) / 2, rtol=0.03)


def test_clusters_that_lie_apart_do_not_answer():
    rng = np.random.default_rng(1)
    centers = np.array([[-5.0, 0.0], [5.0, 0.0], [0.0, 9.0]])
    records = centers[rng.integers(3, size=3000)] + 0.3 * rng.standard_normal((3000, 2))
    found = response_of(points(records), centers)
    np.testing.assert_allclose(found.moved, 1.0)
    assert found.cost == pytest.approx(1.0)
    one = response_of(points(records), centers[:1])
    np.testing.assert_allclose(one.moved, 1.0)


def test_centers_in_one_place_are_no_error():
    """Warnings are errors in tests: there is no border between twins."""
    positions = np.random.default_rng(0).normal(size=(500, 2))
    response_of(points(positions), np.zeros((2, 2)))


def test_the_response_is_that_of_lloyds_map():
    """Differences of the map itself, from 400,000 samples of three clusters that touch.

    Slabs of borders lack the corners where three clusters meet: some per cent.
    """
    rng = np.random.default_rng(2)
    records = np.array([[0.0, 0.0], [2.0, 0.5], [0.5, 2.0]])[rng.integers(3, size=400_000)]
    records = records + rng.standard_normal(records.shape)
    start = KMeans(3, n_init=1, random_state=0).fit(records).cluster_centers_

    def step(centers):
        label = nearest(records, centers)
        return np.stack([records[label == k].mean(axis=0) for k in range(3)]).ravel()

    matrix = np.empty((6, 6))
    for j in range(6):
        move = np.zeros(6)
        move[j] = 0.1
        ahead, behind = (step(start + sign * move.reshape(3, 2)) for sign in (1, -1))
        matrix[:, j] = (ahead - behind) / 0.2
    lengths = np.sqrt(np.repeat(np.bincount(nearest(records, start)), 2))
    symmetric = lengths[:, None] * matrix / lengths
    inverse = np.linalg.inv(np.eye(6) - (symmetric + symmetric.T) / 2)
    found = response_of(points(records), start)
    np.testing.assert_allclose(found.moved.ravel(), np.diag(inverse @ inverse), rtol=0.15)
    assert found.cost == pytest.approx(np.trace(inverse) / 6, rel=0.05)
    assert found.moved.mean() > 1.5  # without the answer, errors would be far too small


def test_errors_are_those_that_cost_the_excess():
    weights, apart = np.array([0.7, 0.3]), Response(np.ones((2, 3)), 1.0)
    errors = errors_of(np.zeros((2, 3)), weights, apart, excess=0.02, within=5.0)
    assert weights @ np.square(errors).sum(axis=1) == pytest.approx(0.02 * 5.0)
    shifts = np.full((2, 3), 0.1)
    np.testing.assert_allclose(errors_of(shifts, weights, apart, 0.0, 5.0), shifts)
    both = errors_of(shifts, weights, apart, 0.02, 5.0)
    np.testing.assert_allclose(both**2, errors**2 + shifts**2)
    # Errors as wide as the clusters say nothing.
    assert errors_of(shifts, weights, apart, 1.0, 5.0) is None
    assert errors_of(np.full((2, 3), np.inf), weights, apart, 0.0, 5.0) is None


def test_the_mean_excess_goes_on_to_fall_below_the_first_score():
    first = WAVES.scores[0]
    low, middle, high = (math.exp(each[0]) - 1 for each in (WAVES.low, WAVES.middle, WAVES.high))
    mean = 0.185 * max(low, 0) + 0.63 * middle + 0.185 * high
    assert WAVES.mean_excess(first) == pytest.approx(mean)
    assert WAVES.mean_excess(first - 2) == pytest.approx(mean * math.exp(-2))
    excess = [WAVES.mean_excess(score) for score in np.linspace(first - 3, WAVES.scores[-1], 50)]
    assert (np.diff(excess) > 0).all()


def sketch_of(records, k, seed=0, feature_map="fourier"):
    design = ps.Design.plan(
        n_components=k,
        domain=ps.Box(-1, 1, dim=records.shape[1]),
        budget=ps.Budget(3.0, 1e-6),
        n_records=len(records),
        feature_map=feature_map,
        random_state=seed,
    )
    return ps.sketch(records, design)


def test_a_planted_misfit_widens_errors():
    """The same centers, density and noise; the sketch is explained, or it is not."""
    rng = np.random.default_rng(3)
    centers = np.array([[-0.5, 0.0], [0.5, 0.0]])
    sketch = sketch_of(centers[rng.integers(2, size=5000)] + 0.05 * rng.normal(size=(5000, 2)), 2)
    density = Atoms(np.full(2, 2500.0), centers, np.full((2, 2), 0.05**2))
    given = {"centers": centers, "records": np.full(2, 2500.0), "density": density}

    def model(misfit):
        shifts, residual = np.full((2, 2), 0.001), (misfit * 1e6, 1e6, 1e4)
        return kmeans_model.model_of(
            sketch, **given, shifts=shifts, residual=residual, decoder="joint"
        )

    fits, misses = model(1.0), model(30.0)
    assert (misses.standard_errors > 1.3 * fits.standard_errors).all()
    assert (fits.standard_errors > 0.001).all()
    unknown = kmeans_model.model_of(
        sketch, **given, shifts=None, residual=(1e6, 1e6, 1e4), decoder="joint"
    )
    assert unknown.standard_errors is None
    assert "+-" not in unknown.describe()


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("feature_map", ["fourier", pytest.param("cells", marks=pytest.mark.slow)])
def test_two_errors_hold_where_clusters_divide_one_cloud(feature_map):
    """The truth is where Lloyd's algorithm ends on the records.

    Of these coordinates 0.6 (waves) and 0.5 (cells) lay within two errors of noise and sampling
    with fixed borders. The noise is the same in every run: there are no false alarms.
    """
    held, lengths = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        records = np.clip(0.25 * rng.normal(size=(4000, 2)), -1, 1)
        model = ps.learn_kmeans(sketch_of(records, 3, seed, feature_map), 3)
        if model.standard_errors is None:
            continue
        truth = KMeans(3, init=model.centers, n_init=1, tol=0).fit(records).cluster_centers_
        held.append(np.abs(model.centers - truth) <= 2 * model.standard_errors)
        lengths.append(2 * model.standard_errors)
    assert len(held) >= 5
    assert np.mean(held) > 0.8
    assert np.median(lengths) < 0.25  # no longer than the cloud is wide
