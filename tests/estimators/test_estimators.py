"""PrivateKMeans keeps scikit-learn's contract and publishes nothing that is not private."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import privsketch as ps
from tests import seams
from tests.contract import contract, require_function_of_the_release, three_blobs
from tests.kmeans import private_kmeans

pytestmark = pytest.mark.usefixtures("fixed_noise")
ESTIMATORS = [
    ps.PrivateKMeans(
        n_clusters=3, epsilon=5.0, delta=1e-6, domain=ps.Box(-20, 20), options={"n_init": 1}
    ),
    ps.PrivateKMeans(
        n_clusters=2, epsilon=9.0, delta=0.0, domain=ps.Ball(radius=30.0), options={"n_init": 1}
    ),
    *(
        ps.PrivateKMeans(
            n_clusters=2,
            epsilon=9.0,
            delta=1e-6,
            domain=ps.Box(-20, 20),
            method=method,
            n_records=20,  # a grid has few cells then
            n_threads=1,
        )
        for method in ("pipeline", "partition-tree", "lloyd", "grid")
    ),
]


@contract(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return three_blobs(0.3)


def fitted(X, **overrides):
    # Frequencies are fixed, so that only the noise varies between runs: at 20,000 records it
    # moves a center by far less than the tolerances below.
    settings = {"n_clusters": 3, "epsilon": 1.0, "delta": 1e-6, "domain": ps.Box(-5, 5)}
    settings["random_state"] = 0
    return private_kmeans(**{**settings, **overrides}).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"delta": 0.0},
        {"delta": 0.0, "noise": "laplace"},
        {"neighbours": "replace"},
        {"decoder": "cl-ompr", "frequency_scale": 2.0},
        {"domain": ps.Ball(radius=6.0)},
    ],
)
def test_finds_separated_clusters(blobs, overrides):
    centers, X = blobs
    model = fitted(X, **overrides)
    order = [int(np.argmin(((model.cluster_centers_ - c) ** 2).sum(axis=1))) for c in centers]
    assert sorted(order) == [0, 1, 2]
    assert np.abs(model.cluster_centers_[order] - centers).max() < 0.2


def test_one_charge_and_nothing_exact(blobs):
    _, X = blobs
    model = fitted(X, method="sketch")
    assert (model.receipt_.epsilon, model.receipt_.delta) == (1.0, 1e-6)
    assert model.receipt_.parts == ()
    public = {
        "sketch_",
        "model_",
        "receipt_",
        "cluster_centers_",
        "standard_errors_",
        "method_",
        "concerns_",
        "weights_",
        "width_",
        "n_features_in_",
    }
    assert {name for name in vars(model) if name.endswith("_")} == public
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "inertia_")
    assert model.sketch_.exact_count is None


def test_everything_fitted_is_a_function_of_the_release(blobs):
    one_sketch = partial(fitted, method="sketch")
    require_function_of_the_release(one_sketch, blobs[1], blobs[1][:77] + 1.0)


def test_a_count_is_not_taken_from_the_table(blobs):
    _, X = blobs
    tables = X[:100], X
    small, large = (fitted(table, method="sketch").sketch_.design for table in tables)
    assert small.n_records == large.n_records
    assert small.to_json() | {"frequencies": 0} == large.to_json() | {"frequencies": 0}


def test_noise_is_fresh_for_every_fit(blobs):
    _, X = blobs
    a, b = (fitted(X, random_state=3, method="sketch") for _ in range(2))
    assert a.sketch_.design == b.sketch_.design
    assert (a.sketch_.sums != b.sketch_.sums).mean() > 0.99


@pytest.mark.parametrize("name", ["epsilon", "delta", "domain"])
def test_missing_public_facts_are_an_error(blobs, name):
    with pytest.raises(ps.PrivsketchError, match=name):
        fitted(blobs[1], **{name: None})


def test_empty_table(blobs):
    _, X = blobs
    assert np.isfinite(fitted(X[:0]).cluster_centers_).all()
    with pytest.raises(ps.PrivsketchError, match="no records"):
        fitted(X[:0], neighbours="replace")


def test_an_error_never_quotes_a_value():
    with pytest.raises(ps.PrivsketchError, match="not numeric") as error:
        fitted(np.array([["secret-4711", "1"]], dtype=object))
    assert "4711" not in str(error.value)


def test_clone_keeps_the_domain():
    model = clone(ESTIMATORS[0])
    assert model.domain == ESTIMATORS[0].domain


@pytest.mark.parametrize(
    "X",
    [
        np.array([0.987654, 0.5]),
        np.array([[0.987654 + 1j]]),
        np.full((2, 2, 2), 0.987654),
        np.array([["0.987654x"]], dtype=object),
        np.array([[{"a": 0.987654}]], dtype=object),
        [[10**400]],
        np.array([["2019-08-07"]], dtype="datetime64[D]"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "predict"])
def test_bad_tables_are_refused_without_being_quoted(blobs, X, method):
    model = fitted(blobs[1][:, :1])
    with pytest.raises(ps.PrivsketchError) as error:
        getattr(model, method)(X)
    assert "987654" not in str(error.value)
    assert "2019" not in str(error.value)


@pytest.mark.slow
def test_names_of_columns_reach_the_model(blobs):
    import pandas as pd

    model = fitted(pd.DataFrame(blobs[1], columns=["age", "bmi"]))
    assert model.model_.columns == ("age", "bmi")
    assert model.predict(pd.DataFrame(blobs[1][:5], columns=["age", "bmi"])).shape == (5,)


@pytest.mark.slow
def test_missing_values_in_fit_and_predict(blobs):
    X = blobs[1].copy()
    X[::100, 0] = np.nan
    with pytest.raises(ps.PrivsketchError, match="NaN"):
        fitted(X)
    model = fitted(X, missing="center")
    assert model.predict([[np.nan, 3.0]]).tolist() == model.predict([[0.0, 3.0]]).tolist()


def test_files_are_for_sketch_not_for_fit():
    with pytest.raises(ps.PrivsketchError, match="commands read files"):
        fitted("records.csv")


def test_the_number_of_clusters_may_be_left_to_the_release():
    rng = np.random.default_rng(2)
    centers = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    X = centers[rng.integers(3, size=20_000)] + 0.3 * rng.normal(size=(20_000, 2))
    model = ps.PrivateKMeans(
        n_clusters="auto",
        options=ps.KMeansOptions(max_clusters=6),
        epsilon=1.0,
        delta=1e-6,
        domain=ps.Box(-5, 5),
        random_state=0,
    ).fit(X)
    assert len(model.cluster_centers_) == 3
    assert model.sketch_.design.n_components == 6
    assert model.standard_errors_.shape == (3, 2)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"n_clusters": "some"}, "or 'auto'"),
        ({"n_clusters": 2, "max_clusters": 3}, "only with"),
        ({"n_clusters": "auto", "max_clusters": 0}, "max_clusters=0"),
        ({"n_clusters": 2, "decoder": "magic"}, "decoder='magic'"),
        ({"n_clusters": 2, "n_init": 0}, "n_init=0"),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_spent(choices, words, monkeypatch):

    def spent(*arguments, **named):
        raise AssertionError("a sketch was made")

    seams.set(monkeypatch, "base.sketch", spent)
    estimator = private_kmeans(epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1), **choices)
    with pytest.raises(ps.PrivsketchError, match=words):
        estimator.fit(np.zeros((10, 2)))


def test_a_mixture_too_large_for_its_sketch_is_refused_before_anything_is_spent(monkeypatch):

    def spent(*arguments, **named):
        raise AssertionError("a sketch was made")

    seams.set(monkeypatch, "base.sketch", spent)
    estimator = ps.PrivateGaussianMixture(
        3, epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1), n_features=12
    )
    with pytest.raises(ps.PrivsketchError, match="unknowns"):
        estimator.fit(np.zeros((10, 4)))


def test_what_was_paid_for_stays_if_learning_is_interrupted(blobs, monkeypatch):

    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    seams.set(monkeypatch, "kmeans.learn_kmeans", interrupted)
    estimator = ps.PrivateKMeans(
        3,
        epsilon=1.0,
        delta=1e-6,
        domain=ps.Box(-5, 5),
        options={"n_features": 100},  # of which only a sketch has any
        random_state=0,
    )
    records = np.tile(blobs[1], 3)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(records)
    assert estimator.receipt_.epsilon == 1.0
    assert "was chosen" in estimator.receipt_.mechanism
    assert ps.learn_kmeans(estimator.sketch_, 3).n_clusters == 3
    with pytest.raises(NotFittedError):
        estimator.predict(records)


def test_dates_and_masks_are_no_numbers():
    import pandas as pd

    dates = pd.DataFrame({"a": pd.date_range("2020-01-01", periods=30)})
    masked = np.ma.masked_array(np.ones((30, 1)), mask=True)
    estimator = ps.PrivateKMeans(2, epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1))
    for table, words in ((dates, "not numeric"), (masked, "masked")):
        with pytest.raises(ps.PrivsketchError, match=words):
            estimator.fit(table)


@pytest.mark.slow
def test_empty_clusters_are_not_called_precise():
    X = np.zeros((40, 2))
    for seed in range(10):
        model = ps.PrivateKMeans(
            4, epsilon=0.1, delta=1e-6, domain=ps.Box(-1, 1), random_state=seed, method="sketch"
        ).fit(X)
        errors = model.standard_errors_  # None where they would be as wide as the clusters
        assert errors is None or np.all((errors > 0) & (errors <= 1 / np.sqrt(3) + 1e-12))


def test_scales_may_be_an_array():
    scales = np.array([0.1, 1.0])
    found = ps.KMeansOptions(frequency_scale=scales).given()
    assert found == {"frequency_scale": scales}
