"""Scores of fitted estimators are scikit-learn's for the same parameters, on any table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV

import privsketch as ps
from privsketch import ParameterError, RecordError
from tests import seams

pytestmark = pytest.mark.usefixtures("fixed_noise")
FACTS = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0, "n_records": 3000}
BOX = ps.Box(low=-2, high=2)


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    return rng.normal(size=(3000, 2)) * [0.2, 0.1] + rng.choice([-1.0, 1.0], size=(3000, 1))


@pytest.fixture(scope="module")
def others():
    """Rows that nothing was fitted to, some of them outside of the domain."""
    return np.random.default_rng(1).normal(size=(700, 2)) * 2


def kmeans_oracle(centers, rows):
    plain = KMeans(len(centers), n_init=1, max_iter=1).fit(rows)
    plain.cluster_centers_ = np.ascontiguousarray(centers)
    return plain.score(rows)


def test_k_means_as_scikit_learn_scores_it(records, others, monkeypatch):
    model = ps.PrivateKMeans(2, domain=BOX, method="lloyd", **FACTS).fit(records)
    expected = kmeans_oracle(model.cluster_centers_, others)
    assert model.score(others) == pytest.approx(expected, rel=1e-12)
    assert model.model_.score(others) == pytest.approx(expected, rel=1e-12)
    assert model.score(pd.DataFrame(others)) == pytest.approx(expected, rel=1e-12)
    seams.set(monkeypatch, "kmeans.BLOCK_VALUES", 14)  # seven rows at a time
    assert model.score(others) == pytest.approx(expected, rel=1e-12)
    assert model.score(scipy.sparse.csr_matrix(others)) == pytest.approx(expected, rel=1e-12)
    assert model.score(others[:1]) == pytest.approx(kmeans_oracle_of_one(model, others[0]))
    with pytest.raises(ParameterError, match="no rows"):
        model.model_.score(np.zeros((0, 2)))


def kmeans_oracle_of_one(model, row):
    return -np.square(model.cluster_centers_ - row).sum(axis=1).min()


def test_far_from_the_origin_no_digit_is_lost():
    rng = np.random.default_rng(2)
    rows = 1e6 + rng.normal(size=(500, 2))
    box = ps.Box(low=1e6 - 4, high=1e6 + 4)
    model = ps.PrivateKMeans(2, domain=box, method="lloyd", **FACTS).fit(rows)
    away = rows[:, None] - model.cluster_centers_
    expected = -np.square(away).sum(axis=2).min(axis=1).sum()
    assert model.score(rows) == pytest.approx(expected, rel=1e-9)


def test_k_medians_are_scored_by_distances(records, others):
    facts = {name: value for name, value in FACTS.items() if name != "n_records"}
    model = ps.PrivateKMedians(2, domain=BOX, **facts).fit(records)
    away = np.linalg.norm(others[:, None] - model.cluster_centers_, axis=2)
    assert model.score(others) == pytest.approx(-away.min(axis=1).sum(), rel=1e-12)


def test_missing_values_count_as_in_fit(records, others):
    model = ps.PrivateKMeans(2, domain=BOX, missing="center", method="lloyd", **FACTS).fit(records)
    holes = np.where(np.arange(1400).reshape(700, 2) % 7 == 0, np.nan, others)
    assert model.score(holes) == pytest.approx(model.score(np.nan_to_num(holes)), rel=1e-12)


def test_with_a_schema_the_cost_is_that_of_encoded_records():
    schema = ps.Schema(
        [ps.Number("height", 100, 200), ps.Category("ward", ["a", "b"])], missing="drop"
    )
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"height": rng.uniform(110, 190, 2000), "ward": rng.choice(["a", "b"], 2000)}
    )
    model = ps.PrivateKMeans(2, domain=schema, method="lloyd", **FACTS).fit(frame)
    encoded = ps.encode(frame, schema)
    expected = kmeans_oracle(model.model_.centers, encoded)
    assert model.score(frame) == pytest.approx(expected, rel=1e-12)
    frame.loc[7, "height"] = np.nan
    with pytest.raises(RecordError, match="leave those rows out of X"):
        model.score(frame)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_mixtures_as_scikit_learn_scores_them(records, others, covariance_type):
    own = ps.PrivateGaussianMixture(2, domain=BOX, covariance_type=covariance_type, **FACTS).fit(
        records
    )
    plain = GaussianMixture(2, covariance_type=covariance_type)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        setattr(plain, name, getattr(own, name))
    assert own.model_._n_parameters == plain._n_parameters()
    np.testing.assert_allclose(own.score_samples(others), plain.score_samples(others), rtol=1e-9)
    for name in ("score", "bic", "aic"):
        expected = getattr(plain, name)(others)
        assert getattr(own, name)(others) == pytest.approx(expected, rel=1e-9)
        assert getattr(own.model_, name)(others) == pytest.approx(expected, rel=1e-9)
        with pytest.raises(ParameterError, match="no rows"):
            getattr(own.model_, name)(np.zeros((0, 2)))


def test_components_as_scikit_learn_scores_them():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4000, 5)) * [0.4, 0.2, 0.05, 0.05, 0.05]
    facts = {**FACTS, "n_records": None}
    own = ps.PrivatePCA(2, domain=ps.Ball(radius=2.0), center=True, **facts).fit(rows)
    plain = PCA(2).fit(rows)
    for name in ("components_", "explained_variance_", "mean_", "noise_variance_", "n_components_"):
        setattr(plain, name, getattr(own, name))
    others = rng.normal(size=(100, 5))
    np.testing.assert_allclose(own.score_samples(others), plain.score_samples(others), rtol=1e-9)
    assert own.score(others) == pytest.approx(plain.score(others), rel=1e-9)
    assert own.model_.score(others) == own.score(others)


def test_components_that_leave_no_variance_give_no_density():
    """Noise may well do that; all columns leave none, and scikit-learn has a density then."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4000, 3)) * [0.4, 0.2, 0.05]
    facts = {**FACTS, "n_records": None}
    found = ps.PrivatePCA(2, domain=ps.Ball(radius=2.0), **facts).fit(rows).model_
    flat = replace(found, noise_variance=0.0)
    assert (flat.score_samples(rows[:5]) == -np.inf).all()
    assert flat.score(rows) == -np.inf
    none = replace(found, noise_variance=0.0, explained_variance=np.zeros(2))
    assert none.score(rows) == -np.inf
    whole = replace(
        found,
        components=np.eye(3),
        explained_variance=np.array([0.16, 0.04, 0.01]),
        noise_variance=0.0,
    )
    expected = multivariate_normal(found.mean, np.diag([0.16, 0.04, 0.01])).logpdf(rows[:50])
    np.testing.assert_allclose(whole.score_samples(rows[:50]), expected, rtol=1e-9)


def test_a_search_can_compare_numbers_of_clusters(records, no_noise):
    search = GridSearchCV(
        ps.PrivateKMeans(domain=BOX, method="lloyd", **FACTS),
        {"n_clusters": [1, 2]},
        cv=2,
        refit=False,
    ).fit(records)
    assert search.best_params_ == {"n_clusters": 2}


@pytest.mark.parametrize(
    ("estimator", "methods"),
    [
        (ps.PrivateKMeans(2, epsilon=1.0, domain=ps.Box(-1, 1)), ["score"]),
        (ps.PrivateKMedians(2, epsilon=1.0, domain=ps.Box(-1, 1)), ["score"]),
        (
            ps.PrivateGaussianMixture(2, epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1)),
            ["score", "score_samples", "bic", "aic"],
        ),
        (
            ps.PrivatePCA(1, epsilon=1.0, delta=1e-6, domain=ps.Ball(radius=1)),
            ["score", "score_samples"],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_is_scored_before_a_fit(estimator, methods):
    for name in methods:
        with pytest.raises(NotFittedError):
            getattr(estimator, name)(np.zeros((3, 2)))
