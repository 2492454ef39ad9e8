"""The number of clusters: evidence for mixtures, and valleys between their components."""

import numpy as np
import pytest
from scipy.stats import norm

import privsketch as ps
from privsketch.learning import (
    Atoms,
    Candidate,
    Mixture,
    Problem,
    Uncertainty,
    count_clusters,
    count_in_waves,
    doubtful_number,
    most_evident,
)


def mixture(weights, means, widths, loss=np.inf):
    """A mixture of round Gaussians; every change costs `loss`."""
    means = np.asarray(means, dtype=float).reshape(len(weights), -1)
    variances = np.square(np.broadcast_to(np.reshape(widths, (-1, 1)), means.shape))
    atoms = Atoms(np.asarray(weights, dtype=float), means, variances)
    return Mixture(atoms, means, variances, lambda change: loss)


def number(*arguments, misfit=0.0, **others):
    return count_clusters(mixture(*arguments, **others), misfit).n_clusters


def test_a_quarter_of_the_records_lies_above_a_valley():
    """Oracle: the density of two equal clusters at distance 2 a is least in the middle."""
    for distance in np.arange(2.0, 6.0, 0.25):
        valley = 2 * norm.pdf(distance / 2)
        edge = np.sqrt(-2 * np.log(min(valley / norm.pdf(0), 1.0)))  # where one falls below it
        above = 1 - 2 * norm.sf(edge) - 2 * edge * valley
        found = number([1, 1], [[0, 0, 0], [distance, 0, 0]], 1.0)
        assert found == (2 if above > 0.25 and distance > 2 else 1)


def test_components_of_one_cluster_count_once():
    # A core with a skewed tail, a core with a wide halo, and two halves of a flat one.
    weights = [6, 3, 1, 5, 5, 4, 4]
    means = [[0, 0], [0.8, 0.2], [2.5, 0.5], [20, 0], [20, 0.3], [0, 20], [1.5, 20]]
    widths = [0.3, 0.6, 1.2, 0.5, 2.0, 0.8, 0.8]
    assert number(weights, means, widths) == 3
    order = np.random.default_rng(1).permutation(7)
    shuffled = (np.array(each)[order] for each in (weights, means, widths))
    assert number(*shuffled) == 3


def test_a_small_cluster_next_to_a_large_one_counts():
    assert number([100, 1], [[0, 0], [8, 0]], [1, 1]) == 2
    assert number([100, 1], [[0, 0], [3, 0]], [1, 1]) == 1


def test_a_component_without_records_is_no_cluster():
    assert number([0, 0], [[0, 0], [8, 0]], [1, 1]) == 1
    assert number([1, 0], [[0, 0], [8, 0]], [1, 1]) == 1


def test_a_valley_that_the_release_does_not_show_counts_for_nothing():
    parted = [1, 1], [[0, 0], [9, 0]], [1, 1]
    assert number(*parted, loss=1.1) == 2
    assert number(*parted, loss=0.9) == 1


def test_a_valley_that_a_misfit_may_have_made_is_told():
    count = count_clusters(mixture([1, 1], [[0, 0], [9, 0]], [1, 1], loss=2.0), 1.5)
    assert (count.n_clusters, count.most, count.explained) == (1, 2, False)
    (text,) = doubtful_number(count)
    assert "may be up to 2" in text
    assert doubtful_number(count_clusters(mixture([1, 1], [[0], [9]], [1, 1]), 1.5)) == []


def candidates(costs, *, n_values, expected=1.0):
    """Fits of 1, 2, ... atoms with ten unknowns each; `costs` are per free value."""
    fits = []
    for size, cost in enumerate(costs, start=1):
        atoms = Atoms(np.ones(size), np.zeros((size, 3)), np.ones((size, 3)))
        free = n_values - 10 * size
        spread = np.sqrt(2 * free) * expected
        errors = Uncertainty(expected * free, spread)
        fits.append(Candidate(atoms, 10 * size, cost * free, errors))
    return fits


@pytest.mark.parametrize(
    ("costs", "size"),
    [
        ([3.0, 2.0, 1.0, 0.999, 0.998], 3),  # explained: further atoms gain less than they cost
        ([1.15, 1.08, 1.0, 1.0, 1.0], 3),  # noise is most of the residual
        ([900, 300, 50, 49, 48.5], 3),  # nothing explains the sketch
        ([1.0, 1.0, 0.995, 0.99, 0.985], 1),  # a fit follows noise
    ],
)
def test_evidence_pays_for_every_unknown(costs, size):
    best, _ = most_evident(candidates(costs, n_values=1000), 1000, np.log(1000))
    assert best.atoms.size == size


def problem_of_mixture(weights, means, widths, noise, seed=0, m=600):
    """The exact characteristic function of a mixture, with Gaussian noise."""
    rng = np.random.default_rng(seed)
    dim = means.shape[1]
    lengths = np.geomspace(0.15, 4.0, m)[:, None] * np.sqrt(rng.chisquare(dim, (m, 1)) / dim)
    directions = rng.normal(size=(m, dim))
    frequencies = lengths * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    damping = np.square(frequencies).sum(axis=1)[:, None] * np.square(widths) / 2
    moments = np.exp(1j * frequencies @ means.T - damping) @ weights
    moments = moments + noise * (rng.normal(size=m) + 1j * rng.normal(size=m))
    bound = np.full(dim, 15.0)
    return Problem(frequencies, moments, max(noise, 1.0) ** 2, -bound, bound)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_clusters_of_two_components_count_once_in_a_sketch(k):
    """Every cluster is a core with a tail, so that 2 k Gaussians explain the sketch."""
    rng = np.random.default_rng(k)
    cores = np.array([[-8.0, -8, 0], [8, -6, 3], [-7, 8, -4], [7, 8, 6]])[:k]
    means = np.vstack([cores, cores + np.array([1.2, 0.0, 0.4])])
    weights = np.append(np.full(k, 6000.0), np.full(k, 3000.0))
    widths = np.append(np.full(k, 0.6), np.full(k, 1.3))
    problem = problem_of_mixture(weights, means, widths, 5.0)
    found = count_in_waves(problem, 8, rng)
    assert (found.n_clusters, found.explained) == (k, True)


def test_noise_alone_is_one_cluster():
    """Twenty sketches: a component of noise gains its price with a chance below 1e-6."""
    for seed in range(20):
        problem = problem_of_mixture(np.zeros(1), np.zeros((1, 2)), np.ones(1), 30.0, seed, m=120)
        assert count_in_waves(problem, 4, np.random.default_rng(seed)).n_clusters == 1


def four_groups(epsilon, seed):
    """A sketch of 4,000 records in four groups, planned for up to 12."""
    rng = np.random.default_rng(seed)
    centers = 0.5 * np.array([[-1, -1, 0, -1], [0, 1, -1, 0], [1, 0, 1, 0], [-1, 1, 1, -1]])
    records = centers[rng.integers(4, size=4000)] + 0.15 * rng.normal(size=(4000, 4))
    design = ps.Design.plan(
        n_components=12, domain=ps.Box(-1, 1, dim=4), budget=ps.Budget(epsilon, 1e-6),
        n_records=4000, feature_map="fourier", random_state=seed,
    )  # fmt: skip
    return ps.sketch(np.clip(records, -1, 1), design)


@pytest.mark.parametrize("seed", range(4))
def test_fewer_clusters_than_noise_lets_through_are_told(seed):
    """At 0.03 the noise of twice as many clusters hides them, whatever is found."""
    model = ps.learn_kmeans(four_groups(0.03, seed), "auto")
    assert "noise may hide more" in model.concerns[0] or "noise decided" in model.concerns[0]
    model = ps.learn_kmeans(four_groups(3.0, seed), "auto")
    assert model.n_clusters == 4
    assert not any("hide" in text or "decided" in text for text in model.concerns)
