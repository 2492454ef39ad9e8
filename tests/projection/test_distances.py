"""Distances, clusters and nearest rows of released tables: everything after the noise.

Statistical limits have a false-alarm rate below 1e-6 each.
"""

import json
import math
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cdist, squareform
from scipy.stats import binom, chi2, ncx2
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import privsketch as ps
from privsketch import (
    Distances,
    FileError,
    ParameterError,
    Projection,
    Released,
    ReleaseDescription,
    cluster_released,
    nearest_rows,
)
from privsketch._base import document
from privsketch.projection import analysis, fresh_matrix, inertia
from tests import seams

LIMIT = 5.5  # standard errors


def laplace(b):
    return SimpleNamespace(noise_variance=2 * b**2, noise_fourth_moment=24 * b**4)


def gaussian(sigma):
    return SimpleNamespace(noise_variance=sigma**2, noise_fourth_moment=3 * sigma**4)


def noise_of(rng, noise, size):
    if noise.noise_fourth_moment / noise.noise_variance**2 > 4:
        return rng.laplace(scale=math.sqrt(noise.noise_variance / 2), size=size)
    return rng.normal(scale=math.sqrt(noise.noise_variance), size=size)


def of_components(k, noise, other=None):
    """Distances of no rows: what is asked of them depends on the noise alone."""
    others = None if other is None else Released(np.zeros((1, k)), other)
    return Distances(Released(np.zeros((1, k)), noise), others)


def table(n, k=3, noise=None, seed=0):
    return Released(np.random.default_rng(seed).normal(size=(n, k)), noise or laplace(0.3))


# --- the variance ---


@pytest.mark.parametrize(
    ("k", "true", "b", "variance"),
    [(10, 16, 0.3, 78.776), (2, 1, 0.5, 12), (3, 4, 1, 242.666667)],
)
def test_variance_of_laplace_noise(k, true, b, variance):
    assert of_components(k, laplace(b)).variance(true) == pytest.approx(variance, rel=1e-8)


def test_variance_of_gaussian_noise_is_that_of_chi_squared_variables():
    k, true, sigma = 7, 3.0, 0.8
    distances, pair = of_components(k, gaussian(sigma)), 2 * sigma**2
    assert distances.variance(true) == pytest.approx((true / k + pair) ** 2 * chi2.var(k))
    given = pair**2 * ncx2.var(k, true / pair)
    assert distances.variance(true, given_matrix=True) == pytest.approx(given)


def test_variance_between_two_noises():
    k, true = 4, 2.0
    mixed = of_components(k, laplace(0.5), gaussian(1.5))
    # N = L + G: E N^4 = mu4 + 3 s^4 + 6 s2_a s2_b
    v = 0.5 + 2.25
    fourth = 24 * 0.5**4 + 3 * 1.5**4 + 6 * 0.5 * 2.25
    given = k * (fourth - v**2) + 4 * v * true
    assert mixed.variance(true, given_matrix=True) == pytest.approx(given)
    assert mixed.variance(true) == pytest.approx(given + 2 * true**2 / k)


# --- Algorithm 2 on real releases ---


def projections(n_matrices, **choices):
    """Projections with fresh matrices. Their noise is fixed before, and the same for all."""
    drawn = Projection.draw(
        ps.Box(-3, 3, dim=20),
        10,
        epsilon=8.0,
        delta=1e-6,
        bound=1.0,
        calibration="fresh",
        **choices,
    )
    for _ in range(n_matrices):
        yield replace(drawn, matrix=fresh_matrix(20, 10), was_used=False)


def misses(projections, n_pairs, squared=16.0):
    """What is off for pairs at the same distance in all directions; one row for each matrix.

    D - |a|^2; its variance over matrix and noise; the variance that the paper prints; and
    D - |a P|^2 in units of its standard deviation given the matrix.
    """
    rng = np.random.default_rng(3)
    found, variances, printed, given = [], [], [], []
    for projection in projections:
        dim, k, s2 = projection.dim, projection.n_components, projection.noise_variance
        a = rng.normal(size=(n_pairs, dim))
        a *= math.sqrt(squared) / np.linalg.norm(a, axis=1, keepdims=True)
        x = rng.uniform(-0.5, 0.5, size=(n_pairs, dim))
        values = np.concatenate(list(projection.releases([x - a / 2, x + a / 2])))
        distances, numbers = Distances(Released(values, projection)), np.arange(n_pairs)
        d = distances.pairs(numbers, numbers + n_pairs)
        found.append(d - squared)
        variances.append(distances.variance(squared))
        printed.append(2 / k * squared**2 + 2 * k * (7 * s2**2 - s2) + 4 * s2 * squared)
        lengths = np.square(a @ projection.matrix.values).sum(axis=1)
        given.append((d - lengths) / np.sqrt(distances.variance(lengths, given_matrix=True)))
    return np.array(found), np.mean(variances), np.mean(printed), np.array(given)


def standard_errors_off(values, expected):
    """How far the mean is off, in standard errors; rows are independent, pairs in them not."""
    means = values.mean(axis=1)
    return (means.mean() - expected) / (means.std(ddof=1) / math.sqrt(len(means)))


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("protect", ["row", "element"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_recovered_distances_are_unbiased_with_the_right_variance(protect, noise, fixed_noise):
    # Standard errors of 100 matrices and their noise, the same ones in every run.
    drawn = projections(100, protect=protect, noise=noise)
    found, variance, printed, given = misses(drawn, 400)
    assert abs(standard_errors_off(found, 0)) < 4
    assert abs(standard_errors_off(found**2, variance)) < 4
    assert abs(standard_errors_off(given, 0)) < 4
    assert abs(standard_errors_off(given**2, 1)) < 4
    # Planted errors: distances that keep the noise of one row, and the variance as printed.
    assert abs(standard_errors_off(found + 10, 0)) > 7
    if noise == "laplace":
        assert abs(standard_errors_off(found**2, printed)) > 7


def test_two_releases_of_one_matrix_with_different_noise():
    def projection(epsilon):
        return Projection.draw(ps.Box(-1, 1, dim=6), 4, epsilon=epsilon, bound=0.5, random_state=11)

    first, second = projection(2.0), projection(6.0)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, size=(2, 4000, 6))
    rows = Released(next(first.releases([x])), first)
    others = Released(next(second.releases([y])), second)
    distances = Distances(rows, others)
    numbers = np.arange(4000)
    true = np.square((x - y) @ first.matrix.values).sum(axis=1)
    off = distances.pairs(numbers, numbers) - true
    spread = np.sqrt(distances.variance(true, given_matrix=True))
    assert abs((off / spread).mean()) < LIMIT / math.sqrt(4000)
    # Planted error: both sides get the noise of the first.
    wrong = 4 * (first.noise_variance - second.noise_variance)
    assert abs(((off - wrong) / spread).mean()) > LIMIT / math.sqrt(4000)


def test_norms_and_distances_to_public_points():
    rng = np.random.default_rng(1)
    noise, n, k = laplace(0.7), 20_000, 5
    true = rng.normal(size=k)
    released = Released(true + noise_of(rng, noise, (n, k)), noise)
    points = Released(np.stack([np.zeros(k), np.ones(k)]), None)
    found = Distances(released, points).matrix()
    np.testing.assert_allclose(found[:, 0], released.squared_norms(), rtol=1e-9, atol=1e-9)
    for column, point in zip(found.T, points.values, strict=True):
        square = np.square(true - point).sum()
        variance = Distances(released, points).variance(square, given_matrix=True)
        assert abs(column.mean() - square) < LIMIT * math.sqrt(variance / n)


def test_a_description_read_from_a_file_says_enough(tmp_path):
    projection = Projection.draw(ps.Box(-1, 1, dim=3), 2, epsilon=1.0)
    values = next(projection.releases([np.zeros((4, 3))]))
    ReleaseDescription.of(projection, projection.receipt(), n_records=5).save(tmp_path / "d.json")
    description = ReleaseDescription.load(tmp_path / "d.json")
    np.testing.assert_array_equal(
        Distances(Released(values, description)).matrix(),
        Distances(Released(values, projection)).matrix(),
    )
    with pytest.raises(ParameterError, match="only the released columns"):
        Released(np.column_stack([values, np.arange(4)]), description)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": ["a", "a"]},
        {"columns": ["a", 1]},
        {"carried": ["projection0"]},
        {"carried": "id"},
        {"dim": 0},
        {"dim": 3.0},
        {"dim": 4},  # not that of the domain
        {"dim": True},
        {"seed": -1},
        {"seed": "7"},
        {"noise": "cube"},
        {"noise": "auto"},
        {"noise": []},
        {"protect": "table"},
        {"calibration": "auto"},
        {"calibration": None},
        {"noise_variance": 0.0},
        {"noise_variance": 1e200},
        {"noise_variance": 1},
        {"noise_fourth_moment": 1e-9},
        {"domain": {"kind": "box", "low": -1.0, "high": 1.0, "dim": None}},
        {"more": 1},
    ],
    ids=str,
)
def test_descriptions_that_nothing_released_has_are_refused(change, tmp_path):
    projection = Projection.draw(ps.Box(-1, 1, dim=3), 2, epsilon=1.0, random_state=2**64 - 1)
    path = tmp_path / "d.json"
    described = ReleaseDescription.of(
        projection, projection.receipt(), n_records=5, carried=("id",)
    )
    described.save(path)
    assert ReleaseDescription.load(path) == described
    content = json.loads(path.read_text())
    for name in ("format", "version", "fingerprint"):
        del content[name]
    path.write_bytes(document("release", {**content, **change}))  # the fingerprint fits
    with pytest.raises(FileError, match="not a valid description"):
        ReleaseDescription.load(path)


# --- pairs, blocks, matrices ---


@pytest.fixture
def small_strips(monkeypatch):
    seams.set(monkeypatch, "distances.VALUES_AT_ONCE", 64)


def test_matrix_is_plain_distances_less_the_noise(small_strips):
    released = table(37)
    expected = cdist(released.values, released.values, "sqeuclidean") - 2 * 3 * 0.18
    np.fill_diagonal(expected, 0)
    found = Distances(released).matrix()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert squareform(found).shape == (37 * 36 // 2,)  # refuses what is not exactly symmetric
    assert (found < 0).any()


def test_pairs_blocks_and_iteration_agree_with_the_matrix(small_strips):
    distances = Distances(table(37))
    whole = distances.matrix()
    rng = np.random.default_rng(2)
    first, second = rng.integers(37, size=(2, 500))
    np.testing.assert_allclose(distances.pairs(first, second), whole[first, second], atol=1e-12)
    rows, columns = rng.integers(37, size=20), slice(5, 30, 2)
    np.testing.assert_allclose(distances.block(rows, columns), whole[rows, columns], atol=1e-12)
    for n_rows in (None, 5):
        parts = list(distances.blocks(n_rows))
        np.testing.assert_allclose(np.concatenate([b for _, b in parts]), whole, atol=1e-12)
        assert [part.start for part, _ in parts[1:]] == [part.stop for part, _ in parts[:-1]]


def test_clipping_is_asked_for():
    released = table(30)
    np.testing.assert_array_equal(
        Distances(released, clip=True).matrix(), np.maximum(Distances(released).matrix(), 0)
    )


def test_rows_of_another_release_with_the_same_numbers_are_not_the_same_rows():
    released, other = table(5), table(5, noise=laplace(0.1), seed=1)
    assert (np.diag(Distances(released, other).matrix()) != 0).all()


def test_the_same_object_twice_is_the_rows_themselves():
    released = table(9)
    assert Distances(released, released).others is None
    np.testing.assert_array_equal(
        Distances(released, released).matrix(), Distances(released).matrix()
    )


def test_no_pairs_and_no_rows():
    distances = Distances(table(4))
    assert distances.pairs([], []).shape == (0,)
    assert distances.block([], [1, 2]).shape == (0, 2)
    assert Distances(table(0)).matrix().shape == (0, 0)
    low, high = distances.interval([])
    assert low.shape == high.shape == (0,)


def test_a_block_of_few_rows_copies_no_table():
    distances = Distances(table(400_000, k=10))
    tracemalloc.start()
    distances.block([0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6  # the table takes 32 MB, its row numbers, norms and distances 3.2 each


def test_many_pairs_need_little_memory():
    released, n = table(1000, k=50), 200_000
    first = np.arange(n) % 1000
    tracemalloc.start()
    Distances(released).pairs(first, first[::-1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # their differences alone would take 80 MB


# --- intervals ---


def test_intervals_over_matrices_are_exact_for_gaussian_noise():
    # D + 2 k s2 is (|a|^2 / k + 2 s2) times a chi-squared variable.
    found = np.array([0.5, 3.0, 40.0, 1000.0])
    for k, level in ((1, 0.95), (2, 0.999), (10, 0.9), (50, 0.99)):
        low, high = of_components(k, gaussian(0.6)).interval(found, level=level)
        excess = 2 * k * 0.36
        ends = [k / chi2.ppf(p, k) for p in ((1 + level) / 2, (1 - level) / 2)]
        expected = [np.maximum((found + excess) * end - excess, 0) for end in ends]
        np.testing.assert_allclose(low, expected[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(high, expected[1], rtol=1e-4)


def test_intervals_given_the_matrix_are_close_to_those_of_noncentral_variables():
    k, sigma, true = 10, 1.0, 60.0
    distances = of_components(k, gaussian(sigma))
    for probability in (0.025, 0.5, 0.975):
        found = 2 * ncx2.ppf(probability, k, true / 2) - 2 * k
        low, high = distances.interval([found], level=0.95, given_matrix=True)
        end = {0.025: high, 0.975: low}.get(probability)
        if end is None:
            assert low < true < high
        else:
            assert end == pytest.approx(true, rel=0.02)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("noise", [laplace(0.5**0.5), gaussian(1.0)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("k", [2, 10, 50])
def test_intervals_hold_the_true_distance_as_often_as_they_say(noise, k):
    rng = np.random.default_rng(k)
    distances, n = of_components(k, noise), 20_000
    # At 95 %, 1.5 % less at worst, 2 % less for two components; Chebyshev's never less.
    worst = 0.93 if k == 2 else 0.935
    few = binom.ppf(1e-8, n, worst)
    for ratio in (0.0, 0.3, 3.0, 30.0):
        true = 2 * k * ratio
        apart = noise_of(rng, noise, (n, k)) - noise_of(rng, noise, (n, k))
        for given in (False, True):
            direction = rng.normal(size=(n, k)) / math.sqrt(k)
            if given:
                direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            d = np.square(math.sqrt(true) * direction + apart).sum(axis=1) - 2 * k
            low, high = distances.interval(d, given_matrix=given)
            held = np.count_nonzero((low <= true) & (true <= high))
            assert held > few
            assert held < binom.ppf(1 - 1e-8, n, 0.985)  # not by being wide
            wide = distances.interval(d, given_matrix=given, method="chebyshev")
            assert np.count_nonzero((wide[0] <= true) & (true <= wide[1])) > 0.95 * n
            if ratio == 30 and not given and k > 2:  # planted error: the matrix was not given
                low, high = distances.interval(d, given_matrix=True)
                assert np.count_nonzero((low <= true) & (true <= high)) < few


def test_chebyshev_intervals_solve_their_inequality():
    distances = of_components(50, laplace(1.0))
    found = np.array([-30.0, 5.0, 400.0, 4000.0])
    for given in (False, True):
        low, high = distances.interval(found, level=0.9, given_matrix=given, method="chebyshev")
        for d, ends in zip(np.maximum(found, 0), np.stack([low, high], axis=1), strict=True):
            for end in ends[ends > 0]:
                variance = distances.variance(end, given_matrix=given)
                assert (d - end) ** 2 == pytest.approx(variance / 0.1)
    # With few components the spread outgrows the distance: no upper end.
    low, high = of_components(10, laplace(1.0)).interval([1e6], method="chebyshev")
    assert 0 < low < 1e6
    assert high == math.inf


def test_intervals_of_negative_distances_are_not_empty():
    for method in ("gamma", "chebyshev"):
        low, high = of_components(10, laplace(1.0)).interval(
            [-35.0, 0.0], given_matrix=True, method=method
        )
        assert low.tolist() == [0, 0]
        assert high[0] == high[1] > 0


# --- clusters ---


def clustered(seed, n, dim, k, noise, separation, n_clusters=2):
    """Round clusters of records, projected and with noise."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_clusters, dim)) * separation / math.sqrt(2 * dim)
    labels = rng.integers(n_clusters, size=n)
    matrix = rng.normal(size=(dim, k)) / math.sqrt(k)
    projected = (centers[labels] + rng.normal(size=(n, dim))) @ matrix
    return Released(projected + noise_of(rng, noise, (n, k)), noise), labels, projected, matrix


def test_inertia_is_unbiased_for_labels_that_do_not_come_from_the_rows():
    n, k, noise = 40, 5, laplace(1.0)
    _, labels, projected, _ = clustered(0, n, 8, k, noise, 3.0, n_clusters=4)
    means = np.array([projected[labels == label].mean(axis=0) for label in range(4)])
    true = np.square(projected - means[labels]).sum()
    rng = np.random.default_rng(1)
    found = np.array(
        [
            inertia(Released(projected + noise_of(rng, noise, (n, k)), noise), labels)
            for _ in range(2000)
        ]
    )
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - true) < LIMIT * error
    # Planted error: the noise of the means is forgotten.
    assert abs(found.mean() - 4 * k * 2.0 - true) > LIMIT * error


def test_without_noise_clusters_are_those_of_lloyd():
    released, labels, _, _ = clustered(3, 600, 10, 6, laplace(1e-6), 20.0, n_clusters=5)
    found = cluster_released(released, 5)
    plain = KMeans(5, n_init=10, random_state=0).fit(released.values)
    assert adjusted_rand_score(found.labels, labels) > 0.95
    assert found.inertia == pytest.approx(plain.inertia_, rel=1e-6)
    assert found.sizes.sum() == 600
    for label, center in enumerate(found.centers):
        np.testing.assert_allclose(center, released.values[found.labels == label].mean(axis=0))


def test_a_public_matrix_finds_round_clusters_that_plain_k_means_does_not():
    shares = []
    for seed in range(4):
        released, labels, _, matrix = clustered(seed, 2000, 50, 10, laplace(0.5), 5.0)
        for given in (None, matrix):
            same = np.mean(cluster_released(released, 2, matrix=given).labels == labels)
            shares.append(max(same, 1 - same))
    plain, given = np.reshape(shares, (4, 2)).mean(axis=0)
    # 0.056 here, 0.027 to 0.107 over ten such groups of seeds.
    assert given > plain + 0.02


def test_clusters_are_the_same_for_the_same_random_state():
    released = clustered(5, 300, 10, 4, laplace(2.0), 3.0, n_clusters=3)[0]
    first, again = (cluster_released(released, 3, random_state=9) for _ in range(2))
    np.testing.assert_array_equal(first.labels, again.labels)


def test_every_cluster_has_a_row_even_if_noise_is_all_there_is():
    rng = np.random.default_rng(0)
    noise = laplace(3.0)
    released = Released(noise_of(rng, noise, (60, 8)), noise)
    assert (cluster_released(released, 20).sizes > 0).all()
    equal = Released(np.zeros((5, 2)), noise)
    assert cluster_released(equal, 3).labels.shape == (5,)


@pytest.mark.parametrize("strip", [1, 50, 2999])
def test_strips_of_distances_change_no_label(strip):
    rng = np.random.default_rng(1)
    rows, centers = rng.normal(size=(500, 4)), rng.normal(size=(6, 4))
    offsets, own = rng.normal(size=6), rng.integers(6, size=500)
    for more in ((), (own, rng.normal(size=6))):
        whole = analysis._nearest(rows, centers, offsets, *more)
        cut = analysis._nearest(rows, centers, offsets, *more, strip=strip)
        np.testing.assert_array_equal(cut, whole)


def test_distances_to_many_centers_are_in_memory_by_strips():
    rows = np.random.default_rng(0).normal(size=(100_000, 2))
    tracemalloc.start()
    analysis._nearest(rows, rows[:300], np.zeros(300))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # all distances together would take 240 MB


# --- nearest rows ---


@pytest.fixture
def small_tiles(monkeypatch):
    seams.set(monkeypatch, "analysis.QUERIES_AT_ONCE", 7)
    seams.set(monkeypatch, "analysis.CANDIDATES_AT_ONCE", 11)


def test_nearest_rows_of_one_release_are_those_of_plain_distances(small_tiles):
    released = table(60)
    plain = cdist(released.values, released.values, "sqeuclidean")
    np.fill_diagonal(plain, np.inf)
    order = np.argsort(plain, axis=1)[:, :4]
    found = nearest_rows(released, 4)
    np.testing.assert_array_equal(found.rows, order)
    np.testing.assert_allclose(
        found.squared_distances, np.take_along_axis(plain, order, axis=1) - 2 * 3 * 0.18
    )


def test_nearest_rows_among_releases_of_different_noise(small_tiles):
    queries = table(20, seed=1)
    among = [table(30, seed=2, noise=laplace(0.1)), table(25, seed=3, noise=laplace(0.9))]
    excess = [3 * (0.18 + t.noise.noise_variance) for t in among]
    squares = [cdist(queries.values, t.values, "sqeuclidean") for t in among]
    unbiased = np.hstack([s - e for s, e in zip(squares, excess, strict=True)])
    order = np.argsort(unbiased, axis=1)[:, :5]
    found = nearest_rows(queries, 5, among=among)
    np.testing.assert_array_equal(found.rows + 30 * found.releases, order)
    np.testing.assert_allclose(
        found.squared_distances, np.take_along_axis(unbiased, order, axis=1), atol=1e-12
    )
    # Here the noise changes ranks.
    assert not np.array_equal(order, np.argsort(np.hstack(squares), axis=1)[:, :5])


def test_a_row_of_another_release_with_the_same_number_is_no_neighbour_to_leave_out():
    released = table(10)
    copy = Released(released.values, released.noise)
    assert (nearest_rows(released, 1, among=copy).rows[:, 0] == np.arange(10)).all()


def test_no_row_is_its_own_neighbour_where_the_queries_are_named(small_tiles):
    released, other = table(30), table(30, seed=4)
    alone, named = nearest_rows(released, 3), nearest_rows(released, 3, among=released)
    np.testing.assert_array_equal(named.rows, alone.rows)
    with pytest.raises(ParameterError, match="29 other rows"):
        nearest_rows(released, 30, among=[released])
    both = nearest_rows(released, 59, among=[other, released])
    own = (both.releases == 1) & (both.rows == np.arange(30)[:, np.newaxis])
    assert not own.any()


# --- refusals ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Released([[1.0, math.nan]], laplace(1.0)), "finite"),
        (lambda: Released([1.0], laplace(1.0)), "shape"),
        (lambda: Released([["secret"]], laplace(1.0)), "numbers"),
        (lambda: Released([[1.0]], gaussian(0.0)), "no noise"),
        (lambda: Distances(table(3), table(3, k=2)), "same matrix"),
        (lambda: Distances(Released([[1.0]], None)), "exact points"),
        (lambda: Distances(table(3)).pairs([0, 1], [2]), "not pairs"),
        (lambda: Distances(table(3)).pairs([3], [0]), "3 rows"),
        (lambda: Distances(table(3)).pairs([[0, 1]], [[1, 2]]), "list of indices"),
        (lambda: Distances(table(3)).pairs([0.5], [1]), "list of indices"),
        (lambda: Distances(table(3)).block([[0], [1, 2]]), "rows: expected"),
        (lambda: Distances(table(3)).block(slice("secret")), "rows: expected"),
        (lambda: Distances(table(3)).block(columns=np.eye(3, dtype=int)), "columns: expected"),
        (lambda: Distances(np.zeros((3, 2))), "rows: expected Released.*ndarray"),
        (lambda: Distances(table(3), "secret"), "others: expected Released.*str"),
        (lambda: Distances(table(3)).variance(-1.0), "at least 0"),
        (lambda: Distances(table(3)).variance("secret"), "true: expected numbers"),
        (lambda: Distances(table(3)).interval(["secret"]), "found: expected numbers"),
        (lambda: Distances(table(3)).interval([1.0], level="high"), "level"),
        (lambda: Distances(table(3)).interval([1.0], level=95), "level"),
        (lambda: Distances(table(3)).interval([1.0], method="normal"), "'gamma'"),
        (lambda: Distances(table(3)).interval([math.nan]), "finite"),
        (lambda: nearest_rows(table(3), 3), "2 other rows"),
        (lambda: nearest_rows(np.zeros((3, 2)), 1), "queries: expected Released"),
        (lambda: nearest_rows(table(3), 1, among=np.zeros((3, 3))), "among: expected Released"),
        (lambda: nearest_rows(table(3), 1, among="secret"), "among: expected Released"),
        (lambda: cluster_released(table(3), 4), "more than there are rows"),
        (lambda: cluster_released(np.zeros((3, 2)), 2), "released: expected Released"),
        (lambda: cluster_released(table(3), 2, matrix=np.zeros((4, 3))), "all of it is 0"),
        (lambda: cluster_released(table(3), 2, matrix="secret"), "matrix: expected"),
        (lambda: inertia(np.zeros((3, 2)), [0, 1, 0]), "released: expected Released"),
        (lambda: cluster_released(table(3), 2, matrix=np.eye(2)), r"\(dim, 3\)"),
        (lambda: inertia(table(3), [0, 1]), "3 rows"),
    ],
)
def test_refusals_say_what_is_wrong_and_quote_no_record(call, message):
    with pytest.raises(ParameterError, match=message) as caught:
        call()
    assert "secret" not in str(caught.value)


def test_rows_of_different_matrices_have_no_distances():
    tables = []
    for seed in (1, 2, 1):
        projection = ps.Projection.draw(ps.Ball(4, 1.0), 2, epsilon=1.0, random_state=seed)
        (values,) = projection.releases(np.zeros((3, 4)))
        tables.append(Released(values, projection))
    assert Distances(tables[0], tables[2]).block().shape == (3, 3)
    for ask in (
        lambda: Distances(*tables[:2]),
        lambda: nearest_rows(tables[0], 1, among=tables[1]),
    ):
        with pytest.raises(ps.PrivsketchError, match="another matrix"):
            ask()
