"""Sums over clusters: compiled code against its definition, and the definition against integers."""

import math

import numpy as np
import pytest

from privsketch import ParameterError, RecordError
from privsketch.kernels import CompiledClusters, ReferenceClusters, compile_clusters
from privsketch.kernels.nearest import nearest

LARGEST = 2**18 - 1


def whole(rng, *shape, most):
    return rng.integers(-most, most, shape, endpoint=True).astype(float)


def equal(found, right):
    return all(
        a.dtype == b.dtype == np.int64 and np.array_equal(a, b)
        for a, b in zip(found, right, strict=True)
    )


def agree(records, centers, radius, weight=300, unit=2**20):
    known, compiled = ReferenceClusters(centers), CompiledClusters(centers)
    radii = np.maximum(np.rint(radius * np.linspace(0.1, 2, len(centers))), 1.0)
    blocks = [records]
    assert equal(compiled.sums(blocks), known.sums(blocks))
    for norm in (1, 2):
        found = compiled.residuals(blocks, radii, unit, weight, norm)
        assert equal(found, known.residuals(blocks, radii, unit, weight, norm))
        edges = np.unique(np.ceil(np.geomspace(max(radius / 20, 1), 8 * radius, 48))) ** norm
        for some in (edges, edges[:1], np.array([0.0, float(radius) ** norm])):
            found = compiled.lengths(blocks, some, norm)
            assert equal((found,), (known.lengths(blocks, some, norm),))
            assert found.sum() == len(records)


@pytest.mark.mostly_slow(quick_every=5)
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 9, 10, 16, 17, 64, 100, 300])
@pytest.mark.parametrize("most", [1, 1000, LARGEST])
def test_random_records(dim, most):
    rng = np.random.default_rng(dim)
    for k in (1, 2, 4, 5, 33):
        for n in (0, 1, 15, 16, 17, 100):
            records, centers = whole(rng, n, dim, most=most), whole(rng, k, dim, most=most)
            agree(records, centers, int(rng.uniform(0, 2 * most * math.sqrt(dim))) + 1)


def test_ties_belong_to_the_first_center():
    centers = np.array([[3.0], [-3.0], [3.0], [0.0], [-3.0]])
    records = np.arange(-6.0, 7.0)[:, np.newaxis] / 1.0
    records = np.concatenate([records, 3 * records // 2])
    agree(records, centers, 2)
    _, counts = CompiledClusters(centers).sums([np.zeros((40, 1)), np.full((2, 1), 3.0)])
    assert counts.tolist() == [2, 0, 0, 40, 0]
    same = np.ones((7, 3))
    _, counts = CompiledClusters(same).sums([whole(np.random.default_rng(0), 50, 3, most=9)])
    assert counts.tolist() == [50, 0, 0, 0, 0, 0, 0]


def test_records_and_centers_at_the_corners():
    rng = np.random.default_rng(0)
    for dim in (1, 5, 32):
        records = LARGEST * rng.choice([-1.0, 1.0], (64, dim))
        centers = LARGEST * rng.choice([-1.0, 0.0, 1.0], (9, dim))
        for radius in (1, LARGEST, 2 * LARGEST * dim):
            agree(records, centers, radius, weight=LARGEST)
        agree(np.zeros((20, dim)), np.zeros((3, dim)), 1)


def exact_contribution(record, centers, radii, unit, norm):
    """What one record adds, in Python's integers where NumPy rounds: within one of it."""
    squares = [
        sum((int(x) - int(c)) ** 2 for x, c in zip(record, row, strict=True)) for row in centers
    ]
    label = squares.index(min(squares))
    residual = [int(x) - int(c) for x, c in zip(record, centers[label], strict=True)]
    radius = int(radii[label])
    if norm == 1:
        longest = max(radius, sum(map(abs, residual)))
        terms = [abs(v) * unit // longest for v in residual]
    else:
        # floor(unit |v| / sqrt(s)) = floor(sqrt(unit^2 v^2 / s)), all in integers
        longest = max(radius**2, squares[label])
        terms = [math.isqrt(unit**2 * v * v // longest) for v in residual]
    return label, [math.copysign(a, v) for a, v in zip(terms, residual, strict=True)]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("unit", [1, 37, 2**20])
def test_one_record_adds_what_integers_say_and_no_more_than_a_unit(norm, unit):
    rng = np.random.default_rng(norm)
    longest = 0
    for _ in range(60):
        dim, k = int(rng.integers(1, 14)), int(rng.integers(1, 6))
        most = int(rng.choice([2, 50, LARGEST]))
        record, centers = whole(rng, dim, most=most), whole(rng, k, dim, most=most)
        radii, weight = rng.integers(1, 2 * most, k).astype(float), int(rng.integers(1, 500))
        clusters = CompiledClusters(centers)
        sums, counts = clusters.residuals([record[np.newaxis]], radii, unit, weight, norm)
        label, right = exact_contribution(record, centers, radii, unit, norm)
        assert np.flatnonzero(counts).tolist() in ([label], [])  # a weight may be rounded to 0
        assert not sums[np.arange(k) != label].any()
        assert np.abs(sums[label] - right).max() <= 1
        length = sum(abs(int(v)) ** norm for v in sums[label])
        assert length <= unit**norm
        longest = max(longest, length / unit**norm)
        assert 0 <= counts[label] <= weight
    assert longest > 0.9 or unit < 2**20  # few units are lost to rounding


def test_blocks_and_layouts_make_no_difference():
    rng = np.random.default_rng(3)
    records, centers = whole(rng, 333, 10, most=5000), whole(rng, 6, 10, most=5000)
    clusters = CompiledClusters(centers)
    radii = np.array([40.0, 400.0, 4000.0, 4.0, 1.0, 40_000.0])
    right = clusters.residuals([records], radii, 2**20, 100, 2)
    for blocks in (
        np.array_split(records, 7),
        [np.asfortranarray(records)],
        [records[::-1]],
        (row[np.newaxis] for row in records),
    ):
        assert equal(clusters.residuals(blocks, radii, 2**20, 100, 2), right)
    assert equal(
        CompiledClusters(np.asfortranarray(centers)).residuals([records], radii, 2**20, 100, 2),
        right,
    )
    assert equal(
        clusters.residuals([], radii, 2**20, 100, 2),
        clusters.residuals([records[:0]], radii, 2**20, 100, 2),
    )


def test_whatever_the_numbers_are_no_cluster_is_beyond_the_last():
    # Not numbers that occur: but what is written must stay within the sums, which have neighbours.
    for bad in (np.nan, np.inf, -np.inf, 1e308):
        room = np.zeros(40)
        with np.errstate(over="ignore"):
            clusters = CompiledClusters(np.full((1, 3), bad))
        code = compile_clusters("sums", 2)
        clusters._run(code, [np.ones((20, 3))], np.zeros(0), room[:3], room[20:21])
        assert room[20] == 20
        assert not room[3:20].any()
        assert not room[21:].any()


def test_a_table_of_another_width_is_refused():
    clusters = CompiledClusters(np.zeros((2, 3)))
    for wrong in (np.zeros((4, 2)), np.zeros((4, 4)), np.zeros(3)):
        with pytest.raises(RecordError, match="3 columns"):
            clusters.sums([wrong])


def test_the_definition_finds_the_nearest_center():
    rng = np.random.default_rng(1)
    records, centers = whole(rng, 50, 4, most=3), whole(rng, 9, 4, most=3)
    for record, label in zip(records, nearest(records, centers), strict=True):
        squares = [int(((record - center) ** 2).sum()) for center in centers]
        assert label == squares.index(min(squares))


@pytest.mark.parametrize(
    "radii", [[1.0], [1.0, np.nan], [1.0, 0.5], [1.0, np.inf], [0.0, 1.0]], ids=str
)
def test_a_radius_that_bounds_nothing_is_refused(radii):
    clusters = CompiledClusters(np.zeros((2, 3)))
    with pytest.raises(ParameterError, match="radii"):
        clusters.residuals([np.ones((4, 3))], np.array(radii), 2**20, 1, 2)
    with pytest.raises(ParameterError, match="radii"):
        clusters.residuals([np.ones((4, 3))], np.ones(2), 2**21, 1, 2)
