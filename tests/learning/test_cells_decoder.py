"""The decoder of noisy histograms: masses and gradients against oracles, recovery, errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import privsketch as ps
from privsketch.clustering import Grid, Run
from privsketch.learning import (
    Boxes,
    Components,
    boxes_of,
    count_in_cells,
    decode_cells,
    divided,
    expected_counts,
    grid_corners,
    likelihood_of,
    partition_of,
    points_of,
    significant_estimate,
    split_up,
    value_and_gradient,
)
from privsketch.learning.cells import fit as fitting
from privsketch.learning.cells import partition as masses
from privsketch.learning.cells import path as guess
from privsketch.learning.cells.sparse import merged


def gaussians(weights, centers, widths):
    """Components of tables without labels."""
    return Components(weights, centers, widths, np.zeros((len(centers), 0)))


SOME = gaussians(
    np.array([300.0, 200.0, 50.0]),  # the last is the background
    np.array([[-0.4, 0.3, 0.1], [0.5, -0.2, -0.6]]),
    np.array([[0.2, 0.1, 0.3], [0.15, 0.3, 0.2]]),
)


def regular_boxes(counts, half_widths, variance, **others):
    """Return the cells of a regular grid over a box about the origin."""
    halves = np.asarray(half_widths, dtype=np.float64)
    edges = [np.linspace(-w, w, g + 1) for w, g in zip(halves, counts.shape, strict=True)]
    low, high = grid_corners(edges)
    noise = np.full(counts.size, float(variance))
    return Boxes(low, high, counts.ravel().astype(float), noise, shape=counts.shape, **others)


def discrete_laplace(epsilon, shape, rng):
    p = -np.expm1(-epsilon)
    return (rng.geometric(p, shape) - rng.geometric(p, shape)).astype(float)


def variance_of(epsilon):
    return 0.5 / np.sinh(epsilon / 2) ** 2


def grid(counts, epsilon=1.0, half_widths=None, **others):
    counts = np.asarray(counts, dtype=float)
    halves = np.ones(counts.ndim) if half_widths is None else half_widths
    return regular_boxes(counts, halves, variance_of(epsilon), **others)


def irregular(boxes):
    """The same boxes, not known to be a grid, with the first of them cut in two."""
    cut = boxes.low[:1].copy(), boxes.high[:1].copy()
    middle = (cut[0][0, 0] + cut[1][0, 0]) / 2
    cut[1][0, 0] = middle
    low = boxes.low.copy()
    low[0, 0] = middle
    return Boxes(
        np.vstack([cut[0], low]),
        np.vstack([cut[1], boxes.high]),
        np.append(0.0, boxes.counts),
        np.append(boxes.variance[0], boxes.variance),
    )


def four_groups(g, epsilon, rng, n=4000, width=0.08):
    """Counts of four Gaussian groups in the plane with noise, and their centers."""
    centers = np.array([[-0.5, -0.5], [-0.4, 0.5], [0.5, -0.3], [0.4, 0.6]])
    records = centers[rng.integers(4, size=n)] + width * rng.standard_normal((n, 2))
    counts, _, _ = np.histogram2d(*np.clip(records, -1, 1).T, bins=g, range=[[-1, 1]] * 2)
    return grid(counts + discrete_laplace(epsilon, counts.shape, rng), epsilon), centers


def in_order(centers):
    return centers[np.lexsort(centers.T[::-1])]


@pytest.mark.parametrize("regular", [True, False])
def test_expected_counts_are_differences_of_normal_distributions(regular):
    boxes = grid(np.zeros((5, 4, 3)), half_widths=[1.0, 0.8, 1.2])
    boxes = boxes if regular else irregular(boxes)
    low = np.where(boxes.low <= boxes.low.min(axis=0), -np.inf, boxes.low)
    high = np.where(boxes.high >= boxes.high.max(axis=0), np.inf, boxes.high)
    expected = SOME.weights[-1] * boxes.shares
    for weight, center, width in zip(SOME.weights, SOME.centers, SOME.widths, strict=False):
        along = norm.cdf(high, center, width) - norm.cdf(low, center, width)
        expected = expected + weight * along.prod(axis=1)
    found = expected_counts(partition_of(boxes), SOME)
    # Factors end five widths from a center, where 3e-7 of the mass lies on either side.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-6 * SOME.weights.sum())
    assert found.sum() == pytest.approx(SOME.weights.sum(), rel=2e-6)


@pytest.mark.parametrize("shape", [(9,), (5, 4), (4, 3, 5), (3, 2, 2, 3), (2, 3, 2, 2, 2)])
@pytest.mark.parametrize("regular", [True, False])
def test_gradients_are_those_of_finite_differences(shape, regular):
    rng = np.random.default_rng(3)
    dim = len(shape)
    boxes = grid(rng.poisson(20.0, shape), 0.5)
    boxes = boxes if regular else irregular(boxes)
    partition, likelihood = partition_of(boxes), likelihood_of(boxes, np.full(boxes.n_boxes, 9.0))
    components = gaussians(
        rng.uniform(50, 100, 4), rng.uniform(-0.6, 0.6, (3, dim)), rng.uniform(0.2, 0.5, (3, dim))
    )
    _, gradient = value_and_gradient(partition, likelihood, components)

    def value(weights, centers, logs):
        moved = gaussians(weights, centers, np.exp(logs))
        return value_and_gradient(partition, likelihood, moved)[0]

    place = [components.weights, components.centers, np.log(components.widths)]
    told = [gradient.weights, gradient.centers, gradient.widths]
    for kind in range(3):
        for index in np.ndindex(place[kind].shape):
            step = np.zeros(place[kind].shape)
            step[index] = 1e-4 * max(abs(place[kind][index]), 1.0)
            ends = [[*place[:kind], place[kind] + s * step, *place[kind + 1 :]] for s in (1, -1)]
            slope = (value(*ends[0]) - value(*ends[1])) / (2 * step[index])
            assert told[kind][index] == pytest.approx(slope, rel=1e-4, abs=1e-4)


def test_first_moments_are_those_of_a_fine_grid():
    # Places of boxes under a density against those of 40 times finer ones at their middles.
    boxes = grid(np.zeros((4, 3)))
    components = gaussians(SOME.weights, SOME.centers[:, :2], SOME.widths[:, :2])
    coarse = points_of(boxes, np.ones(12), [(1.0, components)], 1)
    fine = divided(boxes, 40)
    mass = expected_counts(partition_of(fine), components)
    box = np.zeros(fine.n_boxes, dtype=int)
    for d, g in enumerate(boxes.shape):
        box = box * g + np.minimum(((fine.centers[:, d] + 1) / 2 * g).astype(int), g - 1)
    means = np.stack([np.bincount(box, mass * x) / np.bincount(box, mass) for x in fine.centers.T])
    np.testing.assert_allclose(coarse.positions, means.T, atol=2e-3)


def test_parts_of_boxes_fill_them():
    for boxes in (
        grid(np.zeros((3, 2)), half_widths=[1.0, 2.0]),
        irregular(grid(np.zeros((3, 2)))),
    ):
        parts = divided(boxes, 3)
        assert parts.shares.sum() == pytest.approx(1.0)
        points = points_of(boxes, np.arange(boxes.n_boxes) + 1.0, [], 3)
        assert (points.positions >= boxes.low[points.source] - 1e-12).all()
        assert (points.positions <= boxes.high[points.source] + 1e-12).all()
        sums = np.bincount(points.source, points.weights)
        np.testing.assert_allclose(sums, np.arange(boxes.n_boxes) + 1.0)


def test_the_law_of_counts_is_that_of_laplace_noise_and_sampling():
    # -log p up to a constant against the integral of Laplace over Gaussian, b = 10, lam = 40.
    b, lam = 10.0, 40.0
    boxes = Boxes(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), np.array([2 * b * b]))
    likelihood = likelihood_of(boxes, np.array([lam]))
    r = np.linspace(-80, 80, 41)
    t = np.linspace(-60, 60, 4001)
    exact = np.array([np.sum(norm.pdf(t, 0, lam**0.5) * np.exp(-abs(x - t) / b)) for x in r])
    told = np.array([likelihood.value_and_slope(np.array([x]))[0] for x in r])
    shift = told + np.log(exact)
    assert np.ptp(shift) < 0.2
    # Many holders have Gaussian noise, and no noise at all leaves squares.
    many = likelihood_of(replace(boxes, n_noises=10**6), np.array([lam]))
    variance = 2 * b * b + lam
    assert many.value_and_slope(np.array([30.0]))[0] == pytest.approx(450 / variance, rel=1e-3)
    exact_counts = likelihood_of(replace(boxes, variance=np.zeros(1)), np.array([lam]))
    assert exact_counts.value_and_slope(np.array([30.0]))[0] == pytest.approx(450 / lam, rel=1e-6)


def test_what_is_clear_is_believed_and_nothing_else():
    rng = np.random.default_rng(0)
    boxes = grid(discrete_laplace(0.1, (16, 16), rng), 0.1)
    sparse = significant_estimate(boxes, boxes.counts, boxes.variance, rng, 0.05)
    # One of 256 boxes and their sums passes by chance about once in 20 tables, of 16 trees.
    assert np.ptp(sparse) < 40
    boxes.counts[100] += 1000
    found = significant_estimate(boxes, boxes.counts, boxes.variance, rng, 0.05)
    assert found[100] > 800
    assert found.sum() == pytest.approx(boxes.counts.sum())


def test_where_much_differs_smaller_differences_are_believed():
    alone = np.concatenate([[6.0], np.full(99, 0.5)])
    assert not (alone > guess._threshold(alone, 0.05)).any()  # ln(100 / 0.05) = 7.6
    among = np.concatenate([np.full(20, 9.0), alone[:80]])
    assert (among > guess._threshold(among, 0.05)).sum() == 21  # ln(100 / (21 * 0.05)) = 4.6


def test_two_groups_that_became_one_come_apart():
    boxes = grid(np.zeros((16, 16)), 0.1)
    partition = partition_of(boxes)
    truth = gaussians(
        np.array([400.0, 400.0, 400.0, 0.0]),
        np.array([[-0.6, -0.6], [0.3, 0.4], [0.55, 0.6]]),
        np.full((3, 2), 0.07),
    )
    counts = expected_counts(partition, truth)
    likelihood = likelihood_of(replace(boxes, counts=counts), counts)
    merged = gaussians(
        np.array([400.0, 800.0, 0.0]),
        np.array([[-0.6, -0.6], [0.425, 0.5]]),
        np.array([[0.07, 0.07], [0.145, 0.12]]),
    )
    start = fitting.fit(partition, likelihood, merged, 60)
    found = split_up(partition, likelihood, start)
    assert [fit.components.size for fit in found] == [3]
    centers = in_order(found[-1].components.centers)
    np.testing.assert_allclose(centers, in_order(truth.centers), atol=0.02)
    # What is one group stays one.
    assert split_up(partition, likelihood, found[-1]) == []


def test_centers_without_noise_are_those_of_the_groups():
    rng = np.random.default_rng(5)
    boxes, centers = four_groups(20, 50.0, rng)
    found = decode_cells(boxes, 4, rng)
    # A mean of 1,000 records is off by 0.08 / sqrt(1000) = 0.0025: five of these.
    np.testing.assert_allclose(in_order(found.centers), in_order(centers), atol=0.0127)
    np.testing.assert_allclose(found.counts, boxes.counts, atol=0.5)
    assert found.records.sum() == pytest.approx(4000, rel=0.01)
    assert count_in_cells(boxes, 8, rng).n_clusters == 4


def test_the_fit_recovers_the_mixture_behind_expected_counts():
    boxes = grid(np.zeros((12, 12, 12)), 100.0)
    partition = partition_of(boxes)
    truth = expected_counts(partition, SOME)
    likelihood = likelihood_of(replace(boxes, counts=truth), truth)
    start = gaussians(SOME.weights * 0.8, SOME.centers + 0.05, SOME.widths * 1.3)
    found = fitting.fit(partition, likelihood, start, 300)
    # The prior of widths pulls a little.
    np.testing.assert_allclose(found.components.centers, SOME.centers, atol=0.01)
    np.testing.assert_allclose(found.components.widths, SOME.widths, rtol=0.1)
    np.testing.assert_allclose(found.components.weights, SOME.weights, rtol=0.1)


@pytest.mark.parametrize("change", ["swap", "mirror"])
def test_axes_may_be_swapped_and_mirrored(change):
    # Random starts differ, so that this asks for the same groups, not for the same bits.
    rng = np.random.default_rng(7)
    boxes, _ = four_groups(14, 0.3, rng)
    table = boxes.counts.reshape(14, 14)
    moved = table.T if change == "swap" else table[::-1]
    one = decode_cells(boxes, 4, np.random.default_rng(0)).centers
    other = decode_cells(grid(moved, 0.3), 4, np.random.default_rng(0)).centers
    back = other[:, ::-1] if change == "swap" else other * [-1, 1]
    np.testing.assert_allclose(in_order(back), in_order(one), atol=0.01)


def test_units_of_the_axes_do_not_matter_to_the_density():
    rng = np.random.default_rng(8)
    boxes, _ = four_groups(14, 0.3, rng)
    scaled = replace(boxes, low=boxes.low * 1000, high=boxes.high * 1000)
    one = decode_cells(boxes, 4, np.random.default_rng(0))
    other = decode_cells(scaled, 4, np.random.default_rng(0))
    np.testing.assert_allclose(other.centers, 1000 * one.centers, rtol=1e-3, atol=1)
    np.testing.assert_allclose(other.counts, one.counts, atol=0.5)
    longer = replace(boxes, low=boxes.low * [1, 50], high=boxes.high * [1, 50])
    stretched = decode_cells(longer, 4, np.random.default_rng(0))
    np.testing.assert_allclose(stretched.counts, one.counts, atol=0.5)
    found, told = stretched.density.in_order().centers, one.density.in_order().centers
    np.testing.assert_allclose(found, told * [1, 50], rtol=0.01)


def test_the_same_seed_gives_the_same_bits():
    boxes, _ = four_groups(10, 0.3, np.random.default_rng(9))
    one, other = (decode_cells(boxes, 4, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(one.centers, other.centers)
    np.testing.assert_array_equal(one.counts, other.counts)


@pytest.mark.audit  # a simulation of forty releases: fewer could not tell a factor of two
@pytest.mark.parametrize("n_noises", [1, 5])
def test_shifts_and_residuals_are_those_of_repeated_noise(n_noises):
    # 40 releases: a mean square of 8 coordinates is known to sqrt(2 / 320) = 8 %, and to about
    # twice that with shared groups. Shifts are first-order: what noise changes in the choice of
    # fits and of counts that clearly differ makes centers scatter 1.5 times as far, which is in
    # the excess that errors add. Half of it or twice as much is beyond three deviations.
    rng = np.random.default_rng(11)
    epsilon, centers = 0.3, None
    ratios, misfits = [], []
    for _ in range(40):
        boxes, centers = four_groups(14, epsilon, rng)
        more = sum(discrete_laplace(epsilon, 196, rng) for _ in range(n_noises - 1))
        variance = boxes.variance * n_noises
        boxes = replace(boxes, counts=boxes.counts + more, variance=variance, n_noises=n_noises)
        found = decode_cells(boxes, 4, rng)
        order = np.lexsort(found.centers.T[::-1])
        offsets = found.centers[order] - in_order(centers)
        ratios.append((offsets / found.shifts[order]) ** 2)
        misfits.append((found.residual - found.expected_residual) / found.residual_spread)
    assert 0.5 < np.mean(ratios) < 3.5
    # The mean of 40 misfits is known to 0.16; five of these and a tenth for linearisation.
    assert abs(np.mean(misfits)) < 0.9
    assert 0.4 < np.std(misfits) < 1.8


def shapes_of_trouble():
    rng = np.random.default_rng(1)
    bump = 100 * np.exp(-np.square(np.linspace(-3, 5, 40)))
    return {
        "no records": (grid(discrete_laplace(0.1, (16, 16), rng), 0.1), 15),
        "a negative total": (grid(discrete_laplace(0.1, (8, 8), rng) - 40, 0.1), 4),
        "nothing at all": (grid(np.zeros((6, 6))), 5),
        "no noise and nothing": (regular_boxes(np.zeros((6, 6)), [1.0, 1.0], 0.0), 5),
        "one cluster": (grid(discrete_laplace(1.0, (8, 8), rng) + 5), 1),
        "more clusters than boxes": (grid(discrete_laplace(1.0, (2, 2), rng) + 50), 15),
        "one column, two boxes": (grid(discrete_laplace(1.0, 2, rng) + 50), 5),
        "one column": (grid(bump + discrete_laplace(1.0, 40, rng), half_widths=[3.0]), 3),
        "one box": (grid(np.array([[50.0]])), 3),
        "other units": (grid(np.full((6, 5, 4), 5.0), half_widths=[1.0, 100.0, 1e-3]), 4),
        "hardly any noise": (regular_boxes(rng.poisson(99.0, (8, 8)) + 0.0, [1, 1], 1e-12), 4),
        "all noise": (grid(discrete_laplace(1e-4, (8, 8), rng), 1e-4), 4),
        "a known total": (grid(discrete_laplace(0.1, (8, 8), rng), 0.1, total=500.0), 4),
        "a known total below zero": (grid(np.ones((4, 4)), total=-3.0), 2),
        "huge counts": (grid(np.eye(9) * 1e9), 3),
        "eight columns": (grid(discrete_laplace(1.0, (2,) * 8, rng) + 1), 3),
        "no grid": (irregular(grid(discrete_laplace(0.3, (5, 5), rng) + 9, 0.3)), 3),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", list(shapes_of_trouble()))
def test_trouble_gives_numbers_and_no_warnings(name):
    boxes, k = shapes_of_trouble()[name]
    found = decode_cells(boxes, k, np.random.default_rng(0))
    edge = boxes.high.max(axis=0) * (1 + 1e-12)
    assert found.centers.shape == found.shifts.shape == (k, boxes.dim)
    assert (np.abs(found.centers) <= edge).all()
    assert (found.counts >= 0).all()
    assert (found.records >= 0).all()
    assert found.records.sum() == pytest.approx(found.counts.sum(), rel=1e-9, abs=1e-9)
    numbers = [found.cost, found.residual, found.expected_residual, found.residual_spread]
    arrays = [found.shifts, found.density.weights, found.density.variances]
    assert all(np.isfinite(each).all() for each in [*arrays, np.array(numbers)])
    if boxes.total is not None:
        assert found.counts.sum() == pytest.approx(max(boxes.total, 0.0), rel=1e-9)


@pytest.mark.filterwarnings("error")
def test_records_that_no_fit_explains_are_not_lost():
    """Rounded amounts, most of them zero: few components explain a comb of 100 spikes."""
    rng = np.random.default_rng(3)
    counts = np.zeros(300)
    counts[::3] = 60 * np.exp(-np.arange(100) / 40)
    counts[0] = 3000
    boxes = grid(counts + discrete_laplace(1.0, counts.shape, rng))
    found = decode_cells(boxes, 5, np.random.default_rng(0))
    for first in (0, 1, 100, 200):
        noise = np.sqrt(variance_of(1.0) * (300 - first))
        assert found.counts[first:].sum() == pytest.approx(counts[first:].sum(), abs=6 * noise)


def test_the_number_of_groups_is_told():
    rng = np.random.default_rng(2)
    boxes, _ = four_groups(14, 0.3, rng)
    assert count_in_cells(boxes, 10, rng).n_clusters == 4
    assert count_in_cells(boxes, 3, rng).n_clusters == 3
    assert count_in_cells(grid(np.zeros((5, 5))), 6, rng).n_clusters == 1


def test_a_skewed_group_counts_once():
    """Exponential in both columns: the counts need many components."""
    rng = np.random.default_rng(3)
    skewed = -0.9 + 0.25 * rng.exponential(size=(20_000, 2))
    round_ = [0.6, 0.6] + 0.1 * rng.normal(size=(5_000, 2))
    edges = [np.linspace(-1, 1, 25)] * 2
    counts, *_ = np.histogram2d(*np.clip(np.vstack([skewed, round_]), -1, 1).T, bins=edges)
    noisy = grid(counts + discrete_laplace(1.0, counts.shape, rng))
    assert count_in_cells(noisy, 10, np.random.default_rng(0)).n_clusters == 2


def test_boxes_of_several_sizes_sharpen_centers():
    # A tight group in a corner of a cell: its cell says nothing of where, four parts do.
    rng = np.random.default_rng(4)
    counts = discrete_laplace(1.0, (6, 6), rng)
    counts[2, 2] += 2000
    coarse = grid(counts)
    one = decode_cells(coarse, 1, rng)
    heavy = 2 * 6 + 2
    low, high = coarse.low[heavy], coarse.high[heavy]
    steps = np.stack(np.meshgrid(np.arange(4), np.arange(4), indexing="ij"), -1).reshape(-1, 2)
    width = (high - low) / 4
    parts = discrete_laplace(0.5, 16, rng)
    parts[0] += 2000
    fine = Boxes(
        np.vstack([np.delete(coarse.low, heavy, 0), low + steps * width]),
        np.vstack([np.delete(coarse.high, heavy, 0), low + (steps + 1) * width]),
        np.append(np.delete(counts.ravel(), heavy), parts),
        np.append(np.full(35, variance_of(1.0)), np.full(16, variance_of(0.5))),
    )
    other = decode_cells(fine, 1, rng)
    place = low + width / 2
    assert np.abs(other.centers - place).max() < 0.6 * width[0]
    assert np.abs(other.centers - place).max() < np.abs(one.centers - place).max()


def divided_grid(rng):
    """Boxes of a grid of three columns, of which some cells are divided, with counts."""
    run = Run(np.zeros((1, 3)), domain=ps.Box(-1, 1, dim=3), budget=ps.Budget(1.0), n_records=1)
    cells = Grid(run.read(run.box), (6, 5, 7))
    along = np.ones(cells.n_cells, dtype=np.int64)
    along[[50, 51, 100]] = [4, 3, 5]
    along[:35] = 2  # a slice without any cell that is whole
    heavy = along > 1
    (low, high), (parts_low, parts_high, _) = cells.edges(), cells.edges_of_parts(along)
    n_boxes = int((~heavy).sum()) + len(parts_low)
    return Boxes(
        np.vstack([low[~heavy], parts_low]),
        np.vstack([high[~heavy], parts_high]),
        rng.uniform(0, 5, n_boxes),
        np.ones(n_boxes),
        grids=cells.grids(along),
    )


def test_narrow_components_count_only_in_boxes_near_them():
    """Sums and products over boxes against the same, box by box, for all of them."""
    rng = np.random.default_rng(3)
    boxes = divided_grid(rng)
    partition = partition_of(boxes)
    size, centers = 64, rng.uniform(-1, 1, (64, 3))
    centers = centers[masses.in_space(centers, 16)[0]]  # neighbours follow each other
    weights, widths = rng.uniform(0, 9, size + 1), rng.uniform(0.01, 0.05, (size, 3))
    some = gaussians(weights, centers, widths)
    low = np.where(boxes.low <= boxes.low.min(axis=0), -np.inf, boxes.low)
    high = np.where(boxes.high >= boxes.high.max(axis=0), np.inf, boxes.high)
    centers, widths = some.centers[:, None], some.widths[:, None]
    mass = (norm.cdf(high, centers, widths) - norm.cdf(low, centers, widths)).prod(axis=2)
    rows = np.vstack([mass, boxes.shares])
    found = fitting.masses_of(partition, some)
    assert found.is_near.mean() < 0.7  # what is left out
    np.testing.assert_allclose(found.sums(some.weights), some.weights @ rows, atol=5e-5)
    by_weight = found.contract(boxes.counts)[0]
    np.testing.assert_allclose(by_weight, rows @ boxes.counts, atol=5e-5)
    gram = guess.overlaps(found, boxes.counts)
    np.testing.assert_allclose(gram, (rows * boxes.counts) @ rows.T, atol=5e-5)


def test_integrals_of_coordinates_are_those_of_clipped_records():
    rng = np.random.default_rng(4)
    boxes = divided_grid(rng)
    center, width = np.array([[0.9, -0.2, 0.4]]), np.array([[0.3, 0.2, 0.05]])
    mass, found = masses.moments(
        partition_of(boxes), np.array([1.0, 0.0]), center, width, np.zeros((1, 0))
    )
    records = np.clip(center + width * rng.standard_normal((400_000, 3)), -1, 1)
    np.testing.assert_allclose(mass.sum(), 1, atol=1e-5)
    # A mean of 400,000 is known to width / 632: five of these.
    away = np.abs(found.sum(axis=0) - records.mean(axis=0))
    assert (away < 5 * width[0] / 632).all()
    for box in np.argsort(-mass)[:30]:
        inside = (records >= boxes.low[box]) & (records <= boxes.high[box])
        sums = inside.all(axis=1) @ records / len(records)
        assert np.abs(sums - found[box]).max() < 5 * np.sqrt(mass[box] / len(records))


@pytest.mark.parametrize("regular", [True, False])
def test_boxes_without_clear_records_are_merged(regular):
    rng = np.random.default_rng(5)
    if regular:
        boxes = grid(discrete_laplace(1.0, (9, 8, 7), rng), half_widths=[1.0, 2.0, 0.5])
        clear = 4 * 56 + 3 * 7 + 2
    else:
        boxes = divided_grid(rng)
        boxes = replace(boxes, counts=discrete_laplace(1.0, boxes.n_boxes, rng))
        clear = boxes.n_boxes - 60  # a part of a cell
    boxes.counts[clear] += 200
    fewer, member = merged(boxes)
    assert fewer.n_boxes < 0.7 * boxes.n_boxes
    assert fewer.shares.sum() == pytest.approx(1.0)
    for told, values in ((fewer.counts, boxes.counts), (fewer.variance, boxes.variance)):
        np.testing.assert_allclose(told, np.bincount(member, values))
    np.testing.assert_allclose(fewer.shares, np.bincount(member, boxes.shares))
    np.testing.assert_array_equal(fewer.n_noises, np.bincount(member))
    assert (boxes.low >= fewer.low[member] - 1e-12).all()
    assert (boxes.high <= fewer.high[member] + 1e-12).all()
    # What is clear stays, as do the cells next to it.
    apart = np.abs(boxes.centers - boxes.centers[clear])
    side = boxes.high[clear] - boxes.low[clear]
    is_next = (apart < 1.01 * side).all(axis=1) & ((apart > 0.5 * side).sum(axis=1) <= 1)
    assert 4 <= is_next.sum() <= 7
    assert (np.bincount(member)[member[is_next]] == 1).all()


def test_mass_in_merged_boxes_is_paid_for():
    """A phantom in an empty part costs what the sum of its counts says: no door is left open."""
    rng = np.random.default_rng(6)
    boxes = grid(discrete_laplace(1.0, (32, 32), rng))
    boxes.counts[:64] += 50
    fewer, member = merged(boxes)
    assert np.bincount(member).max() >= 16
    partition = partition_of(fewer)

    def cost(records):
        some = gaussians(np.array([records, 0.0]), np.array([[0.6, 0.6]]), np.full((1, 2), 0.1))
        rest = np.where(fewer.high[:, 0] < -0.8, fewer.counts, 0.0)
        law = likelihood_of(fewer, rest)
        return law.value_and_slope(rest + expected_counts(partition, some))[0]

    # 150 records in some dozens of boxes, of deviation 1.4 each: many deviations away.
    assert cost(150.0) > cost(0.0) + 20


def test_a_path_ends_where_its_fits_get_much_worse():
    rng = np.random.default_rng(7)
    boxes, _ = four_groups(14, 1.0, rng)
    sizes = [fit.components.size for fit in guess.search(boxes, 4, rng, min_size=1)]
    assert 4 in sizes
    assert min(sizes) >= 2  # one component for four groups is a thousand nats off


def test_merged_sketches_tell_the_law_of_their_noise():
    design = ps.Design.plan(
        n_components=3,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(0.5),
        n_records=100,
        feature_map="cells",
        random_state=0,
    )
    records = np.zeros((100, 2))
    one = boxes_of(ps.sketch(records, design))
    five = boxes_of(ps.merge(ps.sketch(records, design) for _ in range(5)))
    np.testing.assert_allclose(five.variance, 5 * one.variance)
    assert (one.n_noises, five.n_noises) == (1, 5)
    # The scale of a draw is that of each holder, so that tails fall as theirs do.
    scales = [likelihood_of(boxes, np.ones(boxes.n_boxes)).squared_scale for boxes in (one, five)]
    np.testing.assert_allclose(scales[1], scales[0])
