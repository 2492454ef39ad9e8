"""What a person meets first in Python: prints, warnings, errors, distances and reports."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import privsketch as ps
from privsketch.clustering import choose_method
from tests.contract import three_blobs

BOX, BALL = ps.Box(-5, 5), ps.Ball(radius=8.0)
SCHEMA = ps.Schema(
    [ps.Number("age", 0, 100, unit="years"), ps.Number("height", 1.0, 2.2, unit="m")]
)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
pytestmark = pytest.mark.usefixtures("fixed_noise")


def kmeans(**options):
    return ps.PrivateKMeans(**{"n_clusters": 3, **BUDGET, "domain": BOX, **options})


X = three_blobs(0.3)[1][:3000]


@pytest.mark.parametrize(
    "estimator",
    [
        kmeans(method="sketch"),
        kmeans(method="cells"),
        kmeans(method="sketch", epsilon=0.01, n_clusters=12),
        ps.PrivateGaussianMixture(3, **BUDGET, domain=BOX),
        ps.PrivatePCA(2, epsilon=0.01, delta=1e-6, domain=BALL),
        ps.PrivateKMedians(3, **BUDGET, domain=BALL),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_model_prints_in_ten_lines_and_fit_warns_of_its_concerns(estimator):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X)
    text = repr(estimator.model_)
    assert len(text.splitlines()) <= 10
    assert "cost        epsilon" in text
    assert text.count("careful") == min(1, len(estimator.concerns_))
    assert set(estimator.concerns_) <= {str(warning.message) for warning in caught}
    assert {warning.filename for warning in caught} <= {__file__}


def test_a_model_prints_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.choice([20, 70], size=4000), "height": rng.normal(1.7, 0.05, 4000)}
    )
    text = repr(kmeans(n_clusters=2, domain=SCHEMA).fit(frame).model_)
    assert "age years" in text
    assert "20" in text
    assert "70" in text


def test_noise_with_concerns_is_said_by_fit():
    with pytest.warns(ps.PrivsketchWarning, match="noise"):
        kmeans(method="sketch").fit(np.zeros((0, 2)))


def test_a_series_is_told_how_to_become_a_table():
    for domain in (BOX, SCHEMA):
        with pytest.raises(ps.TableError, match=r"to_frame\(\)"):
            kmeans(domain=domain).fit(pd.Series(X[:, 0]))
    model = kmeans().fit(X)
    with pytest.raises(ps.TableError, match=r"to_frame\(\)"):
        model.predict(pd.Series(X[:, 0]))


@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_a_number_given_as_text_is_a_type_error(name, spent):
    with pytest.raises(TypeError, match=f"{name}='1': expected a number") as caught:
        kmeans(**{name: "1"}).fit(X)
    assert isinstance(caught.value, ps.ParameterError)
    assert not spent


def test_transform_gives_distances_from_the_centers():
    for model in (kmeans().fit(X), ps.PrivateKMedians(3, **BUDGET, domain=BALL).fit(X)):
        distances = model.transform(X[:50])
        expected = np.linalg.norm(X[:50, None] - model.cluster_centers_, axis=2)
        assert distances == pytest.approx(expected)
        assert (distances.argmin(axis=1) == model.predict(X[:50])).all()
        assert len(model.get_feature_names_out()) == 3
    with pytest.raises(NotFittedError):
        kmeans().transform(X)


def test_a_report_takes_an_estimator_or_a_model_of_a_file(tmp_path):
    model = kmeans(method="sketch").fit(X)
    pages = []
    model.model_.save(tmp_path / "model.json")
    for thing in (model, model.model_, ps.load(tmp_path / "model.json")):
        page = ps.report(thing, tmp_path / "page.html")
        pages.append(page.read_text(encoding="utf-8"))
    assert "Does the model explain the sketch?" in pages[0]
    assert "Does the model explain the sketch?" not in pages[1]
    assert pages[1] == pages[2]
    for other in (kmeans(), SimpleNamespace(), "model.json"):
        with pytest.raises(ps.ParameterError, match="expected a model or a fitted estimator"):
            ps.report(other, tmp_path / "page.html")


def test_a_thousand_clusters_are_no_search_in_cells():
    facts = {"domain": ps.Box(-1, 1, dim=3), "budget": ps.Budget(1.0, 1e-6), "n_records": 120_000}
    assert choose_method("auto", n_clusters=10, **facts).method == "cells"
    assert choose_method("auto", n_clusters=1000, **facts).method == "pipeline"


@pytest.mark.parametrize("method", ["cells", "sketch", "pipeline"])
def test_next_to_no_noise_overflows_nothing(method):
    kmeans(epsilon=100.0, method=method).fit(X)  # a RuntimeWarning would be an error


def test_a_number_given_as_text_is_an_error_that_can_be_named():
    with pytest.raises(
        ps.NumberTypeError, match="epsilon='1': expected a number, not text"
    ) as told:
        ps.Budget("1", 0.0)
    assert isinstance(told.value, ps.ParameterError)
    assert isinstance(told.value, TypeError)
    assert f"{type(told.value).__module__}.{type(told.value).__name__}" == (
        "privsketch.NumberTypeError"
    )


@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
def test_released_rows_have_no_report_and_say_so(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    fitted = ps.PrivateProjection(2, epsilon=1.0, delta=0.0, domain=ps.Box(-1, 1)).fit(X)
    for thing in (fitted, fitted.projection_):
        with pytest.raises(ps.ParameterError, match="released rows have no report"):
            ps.report(thing, tmp_path / "page.html")


@pytest.mark.parametrize("kind", [ps.PrivatePCA, ps.PrivateProjection])
def test_help_says_that_a_schema_is_a_domain(kind):
    assert "domain : Schema" in kind.__doc__
