"""Densities and samples of mixtures with categories, flags and cycles, against enumeration."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare, kstest
from sklearn.mixture import GaussianMixture

import privsketch as ps

SCHEMA = ps.Schema(
    [
        ps.Number("x", -1, 1),
        ps.Category("region", ["north", "south"], weight=1.5),
        ps.Cycle("hour", 24),
        ps.Flag("smoker", weight=0.8),
        ps.Number("y", -1, 1),
    ]
)
PLACES = {column.name: (column, place) for column, place in SCHEMA.places()}
NUMBERS = [0, 7]
WEIGHTS = np.array([0.3, 0.7])
SHARES = {
    "region": np.array([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]]),
    "smoker": np.array([[0.9, 0.1], [0.5, 0.5]]),
}
ANGLES, DEVIATIONS = np.array([0.5, 3.0]), np.array([0.4, 1.2])  # of the hours


def mixture(kind="full", **changes):
    means = np.zeros((2, 8))
    means[:, NUMBERS] = [[-0.4, 0.3], [0.5, -0.2]]
    for name, shares in SHARES.items():
        column, place = PLACES[name]
        means[:, place] = shares @ corners(column)
    column, place = PLACES["hour"]
    lengths = column.radius * np.exp(-(DEVIATIONS**2) / 2)
    means[:, place] = (lengths * [np.cos(ANGLES), np.sin(ANGLES)]).T
    matrices = 0.02 * np.eye(8) + np.zeros((2, 8, 8))
    matrices[:, 0, 7] = matrices[:, 7, 0] = [0.01, -0.015]
    shapes = {
        "full": matrices,
        "tied": matrices[0],
        "diag": 0.02 + 0.01 * np.arange(16).reshape(2, 8),
        "spherical": np.array([0.02, 0.05]),
    }
    model = ps.GaussianMixtureModel(
        weights=WEIGHTS,
        means=means,
        covariances=shapes[kind],
        covariance_type=kind,
        standard_errors=np.full((2, 8), 0.1),
        residual=None,
        expected_residual=None,
        n_records=1000.0,
        design_fingerprint="",
        receipt=ps.Receipt("noise", 1.0, 1e-6, "add-remove"),
        columns=SCHEMA.coordinates,
        schema=SCHEMA,
    )
    return replace(model, **changes)


def corners(column):
    return column.encode(np.arange(float(len(column.labels)))).T


def numbers_alone(model):
    """Return scikit-learn's mixture of the numbers."""
    twin = GaussianMixture(2, covariance_type="full")
    matrices = model.covariance_matrices()[:, NUMBERS][:, :, NUMBERS]
    twin.weights_, twin.means_, twin.covariances_ = WEIGHTS, model.means[:, NUMBERS], matrices
    twin.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(matrices))
    return twin


def rows_of(numbers, region, angle, smoker):
    rows = np.zeros((len(numbers), 8))
    rows[:, NUMBERS] = numbers
    rows[:, PLACES["region"][1]] = corners(PLACES["region"][0])[region]
    radius = PLACES["hour"][0].radius
    rows[:, PLACES["hour"][1]] = radius * np.array([math.cos(angle), math.sin(angle)])
    rows[:, PLACES["smoker"][1]] = corners(PLACES["smoker"][0])[smoker]
    return rows


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_the_density_of_all_labels_and_angles_is_that_of_the_numbers(kind):
    model = mixture(kind)
    numbers = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    angles = 2 * np.pi * np.arange(60) / 60
    arc = 2 * np.pi * PLACES["hour"][0].radius / 60
    total = 0
    for region, smoker, angle in itertools.product(range(3), range(2), angles):
        total = total + arc * np.exp(model.score_samples(rows_of(numbers, region, angle, smoker)))
    assert np.log(total) == pytest.approx(numbers_alone(model).score_samples(numbers), abs=1e-7)


def test_labels_tell_components_apart():
    """By Bayes' rule, with the numbers' densities of scikit-learn."""
    model = mixture()
    numbers = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    twin = numbers_alone(model)
    prior = twin.predict_proba(numbers)
    for region, smoker in itertools.product(range(3), range(2)):
        shares = np.maximum(SHARES["region"][:, region], 1e-9)  # of a label that is not there
        odds = prior * shares * SHARES["smoker"][:, smoker]
        turns = 2 * np.pi * np.arange(-9, 10)
        gaps = (1.7 - ANGLES)[:, None] + turns
        odds *= (np.exp(-((gaps / DEVIATIONS[:, None]) ** 2) / 2)).sum(axis=1) / DEVIATIONS
        expected = odds / odds.sum(axis=1, keepdims=True)
        rows = rows_of(numbers, region, 1.7, smoker)
        assert model.predict_proba(rows) == pytest.approx(expected, abs=1e-6)
        assert (model.predict(rows) == expected.argmax(axis=1)).all()


def test_samples_lie_on_corners_and_have_the_shares():
    """Each test has a false alarm in 10^6."""
    model = mixture()
    records, component = model.sample(20_000, random_state=1)
    table = model.sample_columns(20_000, random_state=1)
    for k in range(2):
        rows = records[component == k]
        for name, shares in SHARES.items():
            column, place = PLACES[name]
            distances = np.abs(rows[:, None, place] - corners(column)).sum(axis=2)
            assert distances.min(axis=1).max() < 1e-12
            counts = np.bincount(distances.argmin(axis=1), minlength=shares.shape[1])
            assert not counts[shares[k] == 0].any()
            there = shares[k] > 0
            assert chisquare(counts[there], len(rows) * shares[k][there]).pvalue > 1e-6
        column, place = PLACES["hour"]
        assert np.linalg.norm(rows[:, place], axis=1) == pytest.approx(column.radius)
        angles = np.arctan2(rows[:, place][:, 1], rows[:, place][:, 0])
        turns = (angles - ANGLES[k] + np.pi) % (2 * np.pi) - np.pi
        grid = np.linspace(-np.pi, np.pi, 20_001)
        images = (grid[:, None] + 2 * np.pi * np.arange(-5, 6)) / DEVIATIONS[k]
        law = np.exp(-(images**2) / 2).sum(axis=1)
        law = np.cumsum(law) / law.sum()
        assert kstest(np.interp(turns, grid, law), "uniform").pvalue > 1e-6
    share = WEIGHTS @ SHARES["region"]
    counts = [int((table["region"] == label).sum()) for label in ("north", "south", "other")]
    assert chisquare(counts, 20_000 * share).pvalue > 1e-6


def test_covariances_of_blocks_follow_from_the_means():
    """Those of 200,000 samples, to five standard errors of about a four-hundredth."""
    model = mixture()
    records, component = model.sample(200_000, random_state=2)
    for k, matrix in enumerate(model.covariance_matrices()):
        assert np.cov(records[component == k].T) == pytest.approx(matrix, abs=0.01)
    assert (np.linalg.eigvalsh(model.covariance_matrices()) > 0).all()


def test_free_parameters_of_labels_count():
    """Ten of a component, 3 for shares, 2 each for cycle and means, 3 covariances; a weight."""
    model = mixture()
    rows = model.sample(100, random_state=0)[0]
    n = 2 * (3 + 2 + 2 + 3) + 1
    assert model.aic(rows) == pytest.approx(2 * n - 2 * model.score_samples(rows).sum())
    assert model.bic(rows) == pytest.approx(n * math.log(100) - 2 * model.score_samples(rows).sum())
