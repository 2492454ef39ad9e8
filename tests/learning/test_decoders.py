"""The decoders on sketches whose answer is known.

The sketches are exact characteristic functions of Gaussian mixtures, so there is
neither sampling nor rounding to hide behind.
"""

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, nnls

from privsketch.learning import (
    AtomPool,
    Atoms,
    Evaluator,
    Points,
    Problem,
    Solution,
    Uncertainty,
    best_weights,
    cluster_density,
    cost,
    decode_joint,
    decode_ompr,
    deletion_prices,
    find_overview,
    grow_density,
    information_criterion,
    inner_products,
    make_target,
    nearest_neighbours,
    nonnegative_solution,
    prune,
    tapered_features,
    total_cost,
)
from privsketch.learning.lloyd import lloyd
from privsketch.learning.problem import cost_and_gradient
from privsketch.learning.pruning import merge_pairs
from privsketch.learning.refine import refine
from tests import seams

DECODERS = [decode_joint, decode_ompr]


def draw_frequencies(rng, n_features, dim, finest, coarsest):
    """Uniform directions, Rayleigh radii over log-uniform scales."""
    directions = rng.standard_normal((n_features, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    scales = np.exp(rng.uniform(np.log(finest), np.log(coarsest), n_features))
    return directions * (rng.rayleigh(size=n_features) / scales)[:, None]


def found(centers, weights, axis_widths):
    """A solution as a decoder would return it."""
    atoms = Atoms(weights, centers, axis_widths**2)
    return Solution(atoms, atoms, 0.0, Uncertainty(1.0, 1.0))


def exact_moments(frequencies, weights, centers, axis_widths):
    """Characteristic function of a Gaussian mixture, times its weight."""
    variances = np.broadcast_to(np.asarray(axis_widths) ** 2, centers.shape)
    exponent = 1j * frequencies @ centers.T - frequencies**2 @ variances.T / 2
    return np.exp(exponent) @ weights


def make_problem(rng, weights, centers, axis_widths, *, half_width=1.0, n_features=None, noise=0.0):
    n_clusters, dim = centers.shape
    n_features = n_features or 4 * n_clusters * (dim + 1)
    frequencies = draw_frequencies(rng, n_features, dim, half_width / 32, half_width / 2)
    moments = exact_moments(frequencies, weights, centers, axis_widths)
    moments = moments + noise * (
        rng.standard_normal(n_features) + 1j * rng.standard_normal(n_features)
    )
    box = np.full(dim, half_width)
    return Problem(frequencies, moments, noise**2, -box, box)


def matched(found, truth):
    """Indices that put the found centers in the order of the true ones."""
    distances = np.linalg.norm(found[None, :, :] - truth[:, None, :], axis=2)
    return min(
        (list(p) for p in permutations(range(len(truth)))),
        key=lambda p: distances[np.arange(len(truth)), p].sum(),
    )


def on_a_grid(rng, n_clusters, dim):
    """Well separated centers: corners of a cube, jittered."""
    corners = np.array(list(np.ndindex(*(2,) * dim)), dtype=float) - 0.5
    chosen = corners[rng.choice(len(corners), n_clusters, replace=False)]
    return chosen + rng.uniform(-0.1, 0.1, chosen.shape)


def random_atoms(rng, n_atoms, dim, shape):
    return Atoms(
        rng.uniform(0.1, 1, n_atoms),
        rng.standard_normal((n_atoms, dim)),
        rng.uniform(0.05, 0.5, shape),
    )


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 3), (5, 3)])
def test_gradient_agrees_with_finite_differences(shape):
    rng = np.random.default_rng(0)
    frequencies = rng.standard_normal((40, 3))
    target = make_target(frequencies, rng.standard_normal(40) + 1j * rng.standard_normal(40))
    target = target.tapered(rng.uniform(0.2, 1, 40))
    atoms = random_atoms(rng, 5, 3, shape)

    def value(x):
        return cost(target, Atoms(x[:5], x[5:20].reshape(5, 3), x[20:].reshape(shape)))

    flat = np.concatenate([atoms.weights, atoms.centers.ravel(), atoms.variances.ravel()])
    at, gradient = cost_and_gradient(target, atoms)
    analytic = np.concatenate(
        [gradient.weights, gradient.centers.ravel(), gradient.variances.ravel()]
    )
    assert at == pytest.approx(value(flat), rel=1e-12)
    np.testing.assert_allclose(analytic, approx_fprime(flat, value, 1e-7), rtol=1e-4, atol=1e-4)


def test_cost_is_the_tapered_squared_distance_of_complex_moments():
    rng = np.random.default_rng(1)
    frequencies = rng.standard_normal((30, 2))
    moments = rng.standard_normal(30) + 1j * rng.standard_normal(30)
    taper = rng.uniform(0, 1, 30)
    atoms = random_atoms(rng, 4, 2, (4, 2))
    model = exact_moments(frequencies, atoms.weights, atoms.centers, np.sqrt(atoms.variances))
    direct = np.sum(taper**2 * np.abs(model - moments) ** 2)
    target = make_target(frequencies, moments).tapered(taper)
    assert cost(target, atoms) == pytest.approx(direct, rel=1e-12)


def test_gram_agrees_with_complex_inner_products():
    rng = np.random.default_rng(2)
    frequencies = rng.standard_normal((30, 2))
    atoms = random_atoms(rng, 4, 2, (4, 1))
    columns = np.stack(
        [
            exact_moments(frequencies, np.ones(1), atoms.centers[[k]], np.sqrt(atoms.variances[k]))
            for k in range(4)
        ]
    )
    target = make_target(frequencies, np.zeros(30, complex))
    direct = (columns @ columns.conj().T).real
    for precision, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        rows = tapered_features(target.astype(precision), atoms.centers, atoms.variances)
        np.testing.assert_allclose(inner_products(rows), direct, rtol=tolerance, atol=tolerance)


def test_best_weights_recover_the_mixture_weights():
    rng = np.random.default_rng(3)
    centers = on_a_grid(rng, 4, 3)
    frequencies = rng.standard_normal((60, 3)) * 4
    truth = np.array([0.5, 0.0, 0.2, 0.3])
    target = make_target(frequencies, exact_moments(frequencies, truth, centers, 0.1))
    found = best_weights(target, centers, np.array([[0.01]]))
    np.testing.assert_allclose(found, truth, atol=1e-5)


def test_deletion_price_is_the_growth_of_the_least_squares_cost():
    rng = np.random.default_rng(4)
    matrix = rng.standard_normal((20, 4))
    moments = rng.standard_normal(20)
    weights, full, *_ = np.linalg.lstsq(matrix, moments)
    without = [np.linalg.lstsq(np.delete(matrix, i, axis=1), moments)[1][0] for i in range(4)]
    prices = deletion_prices(weights, matrix.T @ matrix)
    np.testing.assert_allclose(prices, np.array(without) - full[0], rtol=1e-3, atol=1e-6)


def test_pruning_merges_twins_and_deletes_idle_atoms():
    rng = np.random.default_rng(5)
    truth = on_a_grid(rng, 3, 3)
    frequencies = rng.standard_normal((60, 3)) * 3
    target = make_target(frequencies, exact_moments(frequencies, np.ones(3), truth, 0.1))
    surplus = Atoms(
        np.array([0.5, 0.5, 0.5, 0.5, 1.0, 1e-4]),
        np.vstack([truth[0] - 0.01, truth[0] + 0.01, truth[1], truth[1], truth[2], np.zeros(3)]),
        np.array([[0.01]]),
    )
    left = prune(target, surplus, 3)
    order = matched(left.centers, truth)
    np.testing.assert_allclose(left.centers[order], truth, atol=1e-3)
    np.testing.assert_allclose(left.weights, 1, atol=1e-3)


def removed(target, atoms, n_remove):
    pool = AtomPool(target, atoms)
    pool.remove_cheapest(n_remove)
    return pool.atoms


def test_of_two_twins_only_one_is_removed_at_a_time():
    rng = np.random.default_rng(24)
    truth = on_a_grid(rng, 3, 3)
    frequencies = rng.standard_normal((60, 3)) * 3
    target = make_target(frequencies, exact_moments(frequencies, np.ones(3), truth, 0.1))
    centers = np.vstack([truth, truth[:1]])
    twins = Atoms(np.array([0.5, 1.0, 1.0, 0.5]), centers, np.array([[0.01]]))
    left = removed(target, twins, 2)
    assert np.min(np.linalg.norm(left.centers - truth[0], axis=1)) < 1e-9


def test_an_atom_is_merged_only_once():
    rng = np.random.default_rng(27)
    truth = on_a_grid(rng, 3, 3)
    frequencies = rng.standard_normal((60, 3)) * 3
    target = make_target(frequencies, exact_moments(frequencies, np.ones(3), truth, 0.1))
    centers = np.vstack([truth, truth[:1] + 0.01, truth[:1] - 0.01])
    triplets = Atoms(np.array([0.4, 1.0, 1.0, 0.3, 0.3]), centers, np.array([[0.01]]))
    left = removed(target, triplets, 2)
    assert left.weights.sum() <= 3 + 1e-9
    assert np.min(np.linalg.norm(left.centers - truth[0], axis=1)) < 0.02


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (7, 3)])
@pytest.mark.parametrize(("precision", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_price_of_a_merge_is_the_growth_of_the_cost(shape, precision, tolerance):
    rng = np.random.default_rng(28)
    frequencies = rng.standard_normal((45, 3))
    moments = rng.standard_normal(45) + 1j * rng.standard_normal(45)
    target = make_target(frequencies, moments).tapered(rng.uniform(0.2, 1, 45))
    atoms = random_atoms(rng, 7, 3, shape)
    pairs = np.array([[0, 1], [2, 6], [3, 4]])
    merged = merge_pairs(atoms, pairs)
    before = cost(target, atoms)
    growths = []
    for place, pair in enumerate(pairs):
        left = np.setdiff1d(np.arange(7), pair)
        kept, new = atoms.subset(left), merged.subset(np.array([place]))
        variances = np.concatenate([kept.variances, new.variances])
        after = Atoms(
            np.concatenate([kept.weights, new.weights]),
            np.concatenate([kept.centers, new.centers]),
            atoms.variances if atoms.shared else variances,
        )
        growths.append(cost(target, after) - before)
    prices = AtomPool(target.astype(precision), atoms).merge_prices(pairs, merged)
    np.testing.assert_allclose(prices, growths, atol=tolerance * before)


@pytest.mark.parametrize("shape", [(1, 1), (12, 3)])
def test_pruning_in_rounds_is_pruning_afresh(shape):
    # What a pool keeps of atoms that stay is what it would compute of them anew.
    rng = np.random.default_rng(29)
    frequencies = rng.standard_normal((150, 3))
    moments = rng.standard_normal(150) + 1j * rng.standard_normal(150)
    target = make_target(frequencies, moments)
    atoms = random_atoms(rng, 12, 3, shape)
    pool = AtomPool(target, atoms)
    for n_remove in (3, 2, 1, 1):
        afresh = AtomPool(target, pool.atoms)
        for each in (pool, afresh):
            each.remove_cheapest(n_remove)
            each.refit_weights()
        for name in ("weights", "centers", "variances"):
            found, right = getattr(pool.atoms, name), getattr(afresh.atoms, name)
            np.testing.assert_allclose(found, right, atol=1e-9)
        right = best_weights(target, pool.atoms.centers, pool.atoms.variances)
        np.testing.assert_allclose(pool.atoms.weights, right, atol=1e-9)
    assert 5 <= pool.atoms.size < 12


def test_a_gram_matrix_that_rounding_made_indefinite_still_has_weights():
    """As of a thousand atoms on three clusters, in single precision."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 300))
    gram = matrix.T @ matrix
    error = rng.normal(scale=1e-4 * gram.max(), size=gram.shape)
    weights = nonnegative_solution(gram + (error + error.T) / 2, matrix.T @ np.ones(40))
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()


@pytest.mark.parametrize("size", [1, 2, 9, 40])
@pytest.mark.parametrize("n_rows", [50, 20])
@pytest.mark.parametrize("max_exchanges", [10, 1])
def test_nonnegative_solution_is_that_of_least_squares(size, n_rows, max_exchanges, monkeypatch):
    seams.set(monkeypatch, "problem.MAX_EXCHANGES", max_exchanges)
    rng = np.random.default_rng(size)
    for _ in range(10):
        matrix, right = rng.standard_normal((n_rows, size)), rng.standard_normal(n_rows)
        matrix = np.vstack([matrix, 0.03 * np.eye(size)])  # the Gram matrix is invertible
        right = np.concatenate([right, np.zeros(size)])
        found = nonnegative_solution(matrix.T @ matrix, matrix.T @ right)
        np.testing.assert_allclose(found, nnls(matrix, right)[0], atol=1e-6)


def test_nearest_neighbours_are_in_the_order_of_their_distance():
    centers = np.random.default_rng(30).standard_normal((20, 3))
    distances = np.linalg.norm(centers[:, None] - centers, axis=2)
    right = np.argsort(distances, axis=1)[:, 1:4]
    np.testing.assert_array_equal(nearest_neighbours(centers, 3), right)
    assert nearest_neighbours(centers[:1], 3).shape == (1, 0)
    np.testing.assert_array_equal(nearest_neighbours(centers[:2], 3), [[1], [0]])


def test_merged_atoms_have_the_moments_of_their_pair():
    rng = np.random.default_rng(25)
    atoms = random_atoms(rng, 2, 3, (2, 3))
    merged = merge_pairs(atoms, np.array([[0, 1]]))
    shares = atoms.weights / atoms.weights.sum()
    mean = shares @ atoms.centers
    second = shares @ (atoms.variances + atoms.centers**2)
    assert merged.weights[0] == pytest.approx(atoms.weights.sum())
    np.testing.assert_allclose(merged.centers[0], mean)
    np.testing.assert_allclose(merged.variances[0], second - mean**2)


@pytest.mark.parametrize("decode", DECODERS)
def test_exact_sketch_of_points_gives_their_places_back(decode):
    rng = np.random.default_rng(6)
    truth = on_a_grid(rng, 4, 3)
    weights = np.array([1000.0, 2000.0, 3000.0, 4000.0])
    problem = make_problem(rng, weights, truth, 0.0, n_features=150)
    solution = decode(problem, 4, np.random.default_rng(0), n_init=4)
    order = matched(solution.centers, truth)
    np.testing.assert_allclose(solution.centers[order], truth, atol=1e-3)
    np.testing.assert_allclose(solution.weights[order], weights, rtol=1e-2)
    assert solution.residual < 1e-4 * solution.expected_residual


def test_exact_sketch_of_wide_clusters_gives_centers_weights_and_width():
    rng = np.random.default_rng(7)
    truth = on_a_grid(rng, 6, 5)
    weights = np.linspace(500, 1500, 6)
    problem = make_problem(rng, weights, truth, 0.2)
    solution = decode_joint(problem, 6, np.random.default_rng(0))
    order = matched(solution.centers, truth)
    np.testing.assert_allclose(solution.centers[order], truth, atol=1e-3)
    np.testing.assert_allclose(solution.weights[order], weights, rtol=1e-2)
    np.testing.assert_allclose(solution.axis_widths, 0.2, rtol=1e-2)


def test_envelopes_beat_dirac_atoms_on_wide_clusters():
    rng = np.random.default_rng(8)
    truth = on_a_grid(rng, 5, 4)
    problem = make_problem(rng, np.full(5, 1e4), truth, 0.2)

    def error(decode):
        found = decode(problem, 5, np.random.default_rng(0)).centers
        return np.linalg.norm(found[matched(found, truth)] - truth)

    assert error(decode_joint) < 0.1 * error(decode_ompr)


def test_clusters_of_different_shapes_get_widths_of_their_own():
    rng = np.random.default_rng(9)
    truth = on_a_grid(rng, 4, 3)
    widths = np.array([[0.05, 0.2, 0.1], [0.2, 0.05, 0.1], [0.1, 0.1, 0.05], [0.2, 0.2, 0.2]])
    problem = make_problem(rng, np.full(4, 1e6), truth, widths, n_features=150)
    solution = decode_joint(problem, 4, np.random.default_rng(0))
    order = matched(solution.centers, truth)
    np.testing.assert_allclose(solution.axis_widths[order], widths, rtol=0.05)
    np.testing.assert_allclose(solution.centers[order], truth, atol=0.01)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("n_clusters", [1, 4])
@pytest.mark.parametrize("noise", [0.0, 30.0])
def test_sketch_without_records_still_gives_finite_centers_in_the_box(decode, n_clusters, noise):
    rng = np.random.default_rng(10)
    problem = make_problem(
        rng, np.zeros(1), np.zeros((1, 3)), 0.0, half_width=2.0, n_features=40, noise=noise
    )
    solution = decode(problem, n_clusters, np.random.default_rng(0))
    assert solution.centers.shape == (n_clusters, 3)
    assert np.all((solution.centers >= problem.low) & (solution.centers <= problem.high))
    for values in (solution.weights, solution.axis_widths):
        assert np.all(np.isfinite(values))
        assert np.all(values >= 0)
    assert np.isfinite(solution.residual)
    assert np.isfinite(solution.expected_residual)


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("n_features", [1, 3, 10])
@pytest.mark.parametrize("dim", [1, 4])
def test_few_features_and_more_clusters_than_there_are(decode, n_features, dim):
    rng = np.random.default_rng(11)
    corner = np.ones((1, dim))
    problem = make_problem(rng, np.full(1, 200.0), corner, 0.0, n_features=n_features, noise=1.0)
    solution = decode(problem, 6, np.random.default_rng(0))
    assert solution.centers.shape == (6, dim)
    assert np.all((solution.centers >= problem.low) & (solution.centers <= problem.high))
    assert np.all(solution.weights >= 0)


@pytest.mark.parametrize("decode", DECODERS)
def test_moments_damped_to_nothing_do_no_harm(decode):
    rng = np.random.default_rng(26)
    frequencies = draw_frequencies(rng, 30, 2, 0.05, 0.5)
    problem = Problem(frequencies, np.full(30, 1e-200 + 0j), 0.0, -np.ones(2), np.ones(2))
    solution = decode(problem, 3, np.random.default_rng(0))
    assert np.all(np.abs(solution.centers) <= 1)
    assert np.all(np.isfinite(solution.weights))


def test_all_records_in_one_corner_are_found_there():
    rng = np.random.default_rng(12)
    problem = make_problem(rng, np.full(1, 5000.0), np.ones((1, 6)), 0.0, n_features=100)
    solution = decode_joint(problem, 3, np.random.default_rng(0))
    heaviest = solution.centers[np.argmax(solution.weights)]
    np.testing.assert_allclose(heaviest, 1.0, atol=0.01)
    assert solution.weights.sum() == pytest.approx(5000, rel=0.01)


def test_box_with_sides_of_different_length_even_zero():
    rng = np.random.default_rng(13)
    sides = np.array([10.0, 1.0, 0.0])
    centers = on_a_grid(rng, 3, 3) * sides
    problem = make_problem(rng, np.full(3, 1e5), centers, 0.02 * sides, half_width=10.0)
    problem = Problem(problem.frequencies, problem.moments, 0.0, -sides, sides)
    solution = decode_joint(problem, 3, np.random.default_rng(0))
    assert np.all(np.abs(solution.centers) <= sides)
    order = matched(solution.centers, centers)
    np.testing.assert_allclose(solution.centers[order], centers, atol=0.05)


def test_overview_finds_mean_spread_and_number_of_records():
    rng = np.random.default_rng(14)
    centers = np.array([[0.3, -0.2, 0.1]])
    problem = make_problem(rng, np.full(1, 7e4), centers, 0.2, n_features=100, noise=50.0)
    overview = find_overview(problem, np.random.default_rng(0))
    np.testing.assert_allclose(overview.center, centers[0], atol=0.01)
    assert overview.weight == pytest.approx(7e4, rel=0.02)
    assert np.sqrt(overview.variance) == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("decode", DECODERS)
def test_same_generator_state_same_solution(decode):
    rng = np.random.default_rng(15)
    problem = make_problem(rng, np.full(3, 1e3), on_a_grid(rng, 3, 4), 0.1, noise=20.0)
    first = decode(problem, 3, np.random.default_rng(5))
    second = decode(problem, 3, np.random.default_rng(5))
    np.testing.assert_array_equal(first.centers, second.centers)
    np.testing.assert_array_equal(first.weights, second.weights)
    assert first.residual == second.residual


@pytest.mark.parametrize("decode", DECODERS)
def test_units_of_the_sketch_do_not_matter(decode):
    rng = np.random.default_rng(16)
    problem = make_problem(rng, np.full(3, 1e4), on_a_grid(rng, 3, 4), 0.1, noise=10.0)
    louder = Problem(
        problem.frequencies, 1000 * problem.moments, 1e6 * 10.0**2, problem.low, problem.high
    )
    plain = decode(problem, 3, np.random.default_rng(5))
    scaled = decode(louder, 3, np.random.default_rng(5))
    np.testing.assert_allclose(scaled.centers, plain.centers, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scaled.weights, 1000 * plain.weights, rtol=1e-6)
    assert scaled.residual == pytest.approx(1e6 * plain.residual, rel=1e-6)


def test_residual_and_expected_residual_are_in_units_of_the_sketch():
    rng = np.random.default_rng(17)
    centers = on_a_grid(rng, 3, 4)
    problem = make_problem(rng, np.full(3, 1e4), centers, 0.1, n_features=400, noise=300.0)
    solution = decode_joint(problem, 3, np.random.default_rng(5))
    model = exact_moments(
        problem.frequencies, solution.weights, solution.centers, solution.axis_widths
    )
    direct = np.sum(np.abs(model - problem.moments) ** 2)
    assert solution.residual == pytest.approx(direct, rel=1e-9)
    # 800 numbers less 16 unknowns; noise on each, and at most half a record squared of
    # sampling for each record. This sketch has noise only.
    assert 784 * 300.0**2 < solution.expected_residual < 784 * (300.0**2 + 1.5e4)
    assert 0.8 < solution.residual / (784 * 300.0**2) < 1.2


def test_more_clusters_than_centers_are_kept_as_a_density():
    # Four pairs of clusters and four centers: k-means puts one center in every pair.
    rng = np.random.default_rng(21)
    pairs = on_a_grid(rng, 4, 3)
    shift = np.array([0.15, 0.0, 0.0])
    centers = np.concatenate([pairs - shift, pairs + shift])
    problem = make_problem(rng, np.full(8, 1e5), centers, 0.03, n_features=200)
    solution = decode_joint(problem, 4, np.random.default_rng(0))
    assert len(solution.density.weights) >= 8
    clusters = cluster_density(solution, rng, problem.low, problem.high)
    order = matched(clusters.centers, pairs)
    np.testing.assert_allclose(clusters.centers[order], pairs, atol=0.01)
    np.testing.assert_allclose(clusters.records, 2e5, rtol=0.02)
    assert np.all(np.sum(clusters.masses > 1e3, axis=1) == 2)


def test_what_a_mixture_leaves_grows_into_atoms_of_its_own():
    """A small cluster far from a large one and far wider, which no atom of the mixture is near."""
    rng = np.random.default_rng(3)
    centers = np.array([np.full(6, -0.4), np.full(6, 0.5)])
    widths = np.array([np.full(6, 0.05), np.full(6, 0.3)])
    weights = np.array([0.95, 0.05])
    problem = make_problem(rng, weights, centers, widths, n_features=400)
    target = problem.target()
    large = Atoms(weights[:1], centers[:1], widths[:1] ** 2)
    grown = grow_density(problem, target, large, 1e-6, 1.0, np.random.default_rng(0))
    assert grown is not None
    place = np.linalg.norm(grown.centers - centers[1], axis=1).argmin()
    np.testing.assert_allclose(grown.centers[place], centers[1], atol=0.05)
    assert grown.weights[place] == pytest.approx(0.05, rel=0.1)
    both = Atoms(weights, centers, widths**2)
    assert grow_density(problem, target, both, 1e-6, 1.0, np.random.default_rng(0)) is None


def test_density_is_the_solution_where_that_explains_the_sketch():
    rng = np.random.default_rng(22)
    problem = make_problem(rng, np.full(4, 1e4), on_a_grid(rng, 4, 3), 0.1, noise=30.0)
    solution = decode_joint(problem, 4, np.random.default_rng(0))
    np.testing.assert_array_equal(solution.density.centers, solution.centers)
    np.testing.assert_array_equal(solution.density.weights, solution.weights)


@pytest.mark.slow
def test_information_criterion_does_not_pay_for_noise():
    rng = np.random.default_rng(23)
    truth = on_a_grid(rng, 3, 3)
    frequencies = rng.standard_normal((60, 3)) * 3
    noise = 0.05 * (rng.standard_normal(60) + 1j * rng.standard_normal(60))
    moments = exact_moments(frequencies, np.ones(3), truth, 0.1) + noise
    target = make_target(frequencies, moments, low=-1.0, high=1.0)
    expected = 2 * 60 * 0.05**2
    right = Atoms(np.ones(3), truth, np.array([[0.01]]))
    twins = np.concatenate([truth - 0.02, truth + 0.02])
    more = Atoms(np.full(6, 0.5), twins, np.array([[0.01]]))
    fewer = Atoms(np.ones(2), truth[:2], np.array([[0.01]]))
    fits = [refine(target, atoms, n_iterations=100)[0] for atoms in (right, more, fewer)]
    scores = [information_criterion(target, atoms, expected) for atoms in fits]
    assert cost(target, fits[1]) <= cost(target, fits[0])
    assert scores[0] == min(scores)


def test_information_criterion_weighs_the_misfit_against_the_expected_cost():
    rng = np.random.default_rng(28)
    truth = on_a_grid(rng, 3, 3)
    frequencies = rng.standard_normal((120, 3)) * 3
    split = np.concatenate([truth - 0.05, truth + 0.05])
    target = make_target(frequencies, exact_moments(frequencies, np.full(6, 0.5), split, 0.1))
    coarse = Atoms(np.ones(3), truth, np.array([[0.01]]))
    exact = Atoms(np.full(6, 0.5), split, np.array([[0.01]]))
    misfit = cost(target, coarse)
    worth_it, noise = (1e-6 * misfit, 100 * misfit)
    assert information_criterion(target, exact, worth_it) < information_criterion(
        target, coarse, worth_it
    )
    assert information_criterion(target, exact, noise) > information_criterion(
        target, coarse, noise
    )


def test_few_far_clusters_are_all_found():
    # One Gaussian fitted to such a cloud may settle on a single cluster.
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = rng.uniform(-0.9, 0.9, (3, 3))
        problem = make_problem(rng, np.full(3, 1e4), truth, 0.05, n_features=48, noise=30.0)
        found = decode_joint(problem, 3, np.random.default_rng(0)).centers
        np.testing.assert_allclose(found[matched(found, truth)], truth, atol=0.01)


@pytest.mark.parametrize("decode", DECODERS)
def test_no_starts_is_an_error(decode):
    rng = np.random.default_rng(18)
    problem = make_problem(rng, np.full(1, 100.0), np.zeros((1, 2)), 0.1)
    with pytest.raises(ValueError, match="n_init=0"):
        decode(problem, 1, rng, n_init=0)


def test_lloyd_leaves_separated_means_where_they_are():
    rng = np.random.default_rng(19)
    centers = on_a_grid(rng, 4, 3)
    box = np.full(3, 2.0)
    moved = cluster_density(found(centers, np.ones(4), np.full((4, 3), 0.05)), rng, -box, box)
    np.testing.assert_allclose(moved.centers, centers, atol=1e-12)


def test_lloyd_splits_one_wide_cluster_as_k_means_would():
    # Two components with the same mean are one Gaussian on a line: its two k-means
    # centers are the means of the half-normals, +- sqrt(2 / pi).
    rng = np.random.default_rng(20)
    centers = np.array([[-0.1], [0.1]])
    box = np.full(1, 10.0)
    moved = cluster_density(
        found(centers, np.ones(2), np.ones((2, 1))), rng, -box, box, n_samples=40_000
    )
    expected = np.sqrt(2 / np.pi)
    np.testing.assert_allclose(np.sort(moved.centers[:, 0]), [-expected, expected], atol=0.03)


def test_lloyd_keeps_a_center_without_samples_and_clips_to_the_box():
    far = np.array([[0.0, 0.0], [1.0, 1.0]])
    places = np.array([[0.1, 0.0], [0.3, 0.2]])
    points = Points(places, np.array([1.0, 3.0]), np.zeros(2, dtype=np.intp))
    moved = lloyd(points, far, n_rounds=1, tolerance=0.0)
    assert total_cost(points, far) == pytest.approx(0.01 + 3 * 0.13)
    np.testing.assert_allclose(moved, [[0.25, 0.15], [1.0, 1.0]])
    box = np.ones(2)
    wide = cluster_density(
        found(far, np.array([1.0, 0.0]), np.array([[5.0, 0.0], [1.0, 1.0]])),
        np.random.default_rng(0),
        -box,
        box,
    )
    assert np.all(np.abs(wide.centers) <= 1)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (7, 3), (1, 3)])
@pytest.mark.parametrize("n_features", [5, 64, 200])
def test_compiled_evaluation_is_that_of_the_definition(precision, shape, n_features):
    rng = np.random.default_rng(29)
    frequencies = rng.standard_normal((n_features, 3)) * 4
    moments = rng.standard_normal(n_features) + 1j * rng.standard_normal(n_features)
    target = make_target(frequencies, moments).tapered(rng.uniform(0, 1, n_features))
    atoms = random_atoms(rng, 7, 3, shape)
    value, gradient = Evaluator(target.astype(precision), atoms)(atoms)
    expected, slopes = cost_and_gradient(target, atoms)
    tolerance = 1e-5 if precision is np.float32 else 1e-12
    assert value == pytest.approx(expected, rel=tolerance)
    for name in ("weights", "centers", "variances"):
        right = getattr(slopes, name)
        error = np.abs(getattr(gradient, name) - right).max()
        assert error <= 10 * tolerance * np.abs(right).max()


def test_compiled_evaluation_damps_wide_atoms_to_nothing():
    rng = np.random.default_rng(30)
    target = make_target(rng.standard_normal((70, 2)) * 100, np.ones(70, dtype=complex))
    atoms = Atoms(np.ones(3), rng.standard_normal((3, 2)), np.full((3, 2), 1e3))
    for precision in (np.float32, np.float64):
        value, gradient = Evaluator(target.astype(precision), atoms)(atoms)
        assert value == pytest.approx(70.0)
        assert np.all(np.abs(gradient.centers) < 1e-6)
