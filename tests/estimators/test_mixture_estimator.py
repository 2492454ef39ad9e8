"""PrivateGaussianMixture keeps scikit-learn's contract and publishes nothing exact."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

import privsketch as ps
from privsketch import PrivateGaussianMixture
from tests.contract import contract, require_function_of_the_release, three_blobs

pytestmark = pytest.mark.usefixtures("fixed_noise")
ESTIMATORS = [
    PrivateGaussianMixture(2, epsilon=5.0, delta=1e-6, domain=ps.Box(-20, 20), n_init=1),
    PrivateGaussianMixture(
        epsilon=9.0, delta=0.0, domain=ps.Ball(radius=30.0), n_init=1, covariance_type="diag"
    ),
]


@contract(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return three_blobs(0.5)


def fitted(X, **overrides):
    # Frequencies are fixed, so that only the noise varies between runs.
    settings = {"n_components": 3, "epsilon": 1.0, "delta": 1e-6, "domain": ps.Box(-5, 5)}
    settings["random_state"] = 0
    return PrivateGaussianMixture(**{**settings, **overrides}).fit(X)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_attributes_work_in_scikit_learn(blobs, covariance_type):
    means, X = blobs
    model = fitted(X, covariance_type=covariance_type)
    plain = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        assert getattr(model, name).shape == getattr(plain, name).shape
        setattr(plain, name, getattr(model, name))
    assert plain.score_samples(X[:100]) == pytest.approx(model.score_samples(X[:100]))
    assert plain.predict_proba(X[:100]) == pytest.approx(model.predict_proba(X[:100]))
    assert (plain.predict(X[:100]) == model.predict(X[:100])).all()
    assert model.converged_
    distances = np.square(model.means_[:, None] - means[None]).sum(axis=2)
    assert sorted(distances.argmin(axis=1)) == [0, 1, 2]
    assert distances.min(axis=1).max() < 0.01


@pytest.mark.parametrize(
    "overrides",
    [
        {"delta": 0.0},
        {"delta": 0.0, "noise": "laplace", "epsilon": 2.0},
        {"neighbours": "replace"},
        {"domain": ps.Ball(radius=6.0)},
        {"feature_map": "one-bit"},
    ],
)
def test_close_to_the_plain_fit(blobs, overrides):
    _, X = blobs
    plain = GaussianMixture(3, random_state=0).fit(X).score(X)
    assert fitted(X, **overrides).score(X) > plain - 0.05


def test_one_charge_and_nothing_exact(blobs):
    _, X = blobs
    model = fitted(X)
    assert (model.receipt_.epsilon, model.receipt_.delta) == (1.0, 1e-6)
    assert model.receipt_.parts == ()
    public = {"sketch_", "model_", "receipt_", "weights_", "means_", "covariances_"}
    public |= {"precisions_cholesky_", "converged_", "n_features_in_"}
    public |= {"standard_errors_", "concerns_"}
    assert {name for name in vars(model) if name.endswith("_")} == public
    assert model.sketch_.exact_count is None


@pytest.mark.slow
def test_everything_fitted_is_a_function_of_the_release(blobs):
    require_function_of_the_release(fitted, blobs[1], blobs[1][:77] + 1.0)


def test_samples_as_in_scikit_learn(blobs):
    model = fitted(blobs[1])
    records, labels = model.sample(1000)
    assert records.shape == (1000, 2)
    assert labels.shape == (1000,)
    assert (model.predict(records) == labels).mean() > 0.99


@pytest.mark.parametrize("name", ["epsilon", "delta", "domain"])
def test_missing_public_facts_are_an_error(blobs, name):
    with pytest.raises(ps.PrivsketchError, match=f"{name}: PrivateGaussianMixture"):
        fitted(blobs[1], **{name: None})


def test_empty_table(blobs):
    _, X = blobs
    assert np.isfinite(fitted(X[:0]).means_).all()
    with pytest.raises(ps.PrivsketchError, match="no records"):
        fitted(X[:0], neighbours="replace")


def test_names_missing_values_and_clones(blobs):
    import pandas as pd

    X = blobs[1].copy()
    X[::100, 0] = np.nan
    model = fitted(pd.DataFrame(X, columns=["age", "bmi"]), missing="center")
    assert model.model_.columns == ("age", "bmi")
    row = pd.DataFrame([[np.nan, 3.0]], columns=["age", "bmi"])
    filled = pd.DataFrame([[0.0, 3.0]], columns=["age", "bmi"])
    assert model.score_samples(row) == pytest.approx(model.score_samples(filled))
    with pytest.raises(ps.PrivsketchError, match="NaN"):
        fitted(X)
    assert clone(model).domain == model.domain


def test_an_error_never_quotes_a_value(blobs):
    with pytest.raises(ps.PrivsketchError, match="not numeric") as error:
        fitted(np.array([["secret-4711", "1"]], dtype=object))
    assert "4711" not in str(error.value)
    with pytest.raises(ps.PrivsketchError, match="covariance_type"):
        fitted(blobs[1], covariance_type="round")
