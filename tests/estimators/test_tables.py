"""Estimators fit frames with text, dates and missing values, by a schema."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import privsketch as ps
from tests.visits import COLUMNS, N_GROUPS, SCHEMA, visits

pytestmark = pytest.mark.usefixtures("fixed_noise")
BUDGET = {"epsilon": 2.0, "delta": 1e-6}
RECORDS = ps.Schema([ps.Number(c.name, c.low, c.high, c.scale, fill=c.low) for c in COLUMNS[:3]])


@pytest.fixture(scope="module")
def frame():
    return visits(2000, seed=3)


def fit(kind, frame, *arguments, schema=SCHEMA, **more):
    return kind(*arguments, domain=schema, random_state=0, **BUDGET, **more).fit(frame)


@pytest.mark.slow
def test_k_means_of_a_table(frame):
    model = fit(ps.PrivateKMeans, frame, N_GROUPS, n_records=2000)
    assert model.receipt_.unit == "one person (patient_id)"
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.n_features_in_ == frame.shape[1]
    assert model.cluster_centers_.shape == (N_GROUPS, SCHEMA.dim)
    labels = model.predict(frame)
    complete = frame.notna().all(axis=1)
    assert (labels[~complete] == -1).all()
    assert (labels[complete] >= 0).all()
    ages = frame[complete].groupby(labels[complete])["age"].mean()
    np.testing.assert_allclose(ages, model.model_.table()["age"], atol=4)
    assert model.predict(frame.drop(columns="patient_id")).tolist() == labels.tolist()
    assert len(clone(model).fit(frame).model_.centers) == N_GROUPS


@pytest.mark.parametrize("method", ["sketch", "lloyd", "pipeline"])
def test_centers_are_in_units_where_all_columns_are_numbers(frame, method):
    scaled = ps.Box(
        low=[18, 10, 2], high=[100, 60, 30], columns=["age", "bmi", "glucose"], scale=True
    )
    table = frame[["age", "bmi", "glucose"]].dropna()
    model = fit(ps.PrivateKMeans, table, 3, schema=scaled, method=method, n_records=1e4)
    assert model.cluster_centers_.shape == (3, 3)
    assert (model.cluster_centers_ > [18, 10, 2]).all()
    assert (model.cluster_centers_[:, 0] > 25).all()
    found = model.model_.table()[["age", "bmi", "glucose"]].to_numpy()
    np.testing.assert_allclose(found, model.cluster_centers_)
    # Of an array, columns are told by their places.
    by_place = clone(model).fit(table.to_numpy())
    np.testing.assert_allclose(by_place.cluster_centers_, found, rtol=0.5)


@pytest.mark.slow
def test_mixtures_and_components_of_a_table(frame):
    mixture = fit(ps.PrivateGaussianMixture, frame, 3, covariance_type="diag")
    assert mixture.model_.table()["age"].between(18, 100).all()
    complete = frame.dropna()
    assert mixture.predict(complete).shape == (len(complete),)
    is_whole = frame.drop(columns="patient_id").notna().all(axis=1)
    assert ((mixture.predict(frame) >= 0) == is_whole).all()
    with pytest.raises(ps.PrivsketchError, match="leave those rows out of X"):
        mixture.predict_proba(frame)
    pca = fit(ps.PrivatePCA, frame, 2).set_output(transform="pandas")
    scores = pca.transform(complete)
    assert list(scores.columns) == list(pca.get_feature_names_out())
    assert pca.model_.table().shape == (2, 2 + 12)
    medians = fit(ps.PrivateKMedians, frame, 2, n_records=2000)
    assert medians.model_.schema == SCHEMA


def test_rows_that_are_released(frame):
    table = frame[["age", "income", "bmi"]]
    projection = ps.PrivateProjection(2, domain=RECORDS, random_state=0, epsilon=4.0, delta=1e-6)
    rows = projection.set_output(transform="pandas").fit_transform(table)
    assert rows.shape == (len(table), 2)
    for schema, words in (
        (SCHEMA, "persons|missing='drop'"),
        (ps.Schema(COLUMNS[:1], rows_per_person=3), "rows_per_person|max_records"),
    ):
        with pytest.raises(ps.PrivsketchError, match=words):
            ps.PrivateProjection(2, domain=schema, **BUDGET).fit_transform(frame)
    labelled = ps.Schema([ps.Category("region", ["north"], fill="north")])
    with pytest.raises(ps.PrivsketchError, match="more than one entry"):
        ps.PrivateProjection(1, domain=labelled, protect="element", **BUDGET).fit(frame[["region"]])


def test_a_pipeline_with_released_rows(frame):
    table = frame[["age", "income", "bmi"]]
    steps = make_pipeline(
        ps.PrivateProjection(2, domain=RECORDS, random_state=0, epsilon=4.0, delta=1e-6)
    )
    assert steps.fit_transform(table).shape == (len(table), 2)


@pytest.mark.parametrize(
    ("column", "line"),
    [("region", r"ps\.Category\('region'"), ("admitted", r"ps\.Date\('admitted'")],
)
@pytest.mark.parametrize("kind", [None, object, "category"])
def test_text_without_a_schema_names_the_column_and_its_line(frame, spent, column, line, kind):
    table = frame[["age", column]]
    if kind is not None:
        if column == "admitted":
            pytest.skip("a date has one type")
        table = table.assign(**{column: table[column].astype(kind)})
    with pytest.raises(ps.PrivsketchError, match=line) as caught:
        fit(ps.PrivateKMeans, table, 2, schema=ps.Box(0, 100))
    assert repr(column) in str(caught.value)
    for word in ("north", "south", "2021"):
        assert word not in str(caught.value)
    assert not spent


def test_frames_of_other_libraries(frame):
    import polars as pl

    model = fit(ps.PrivateKMeans, pl.from_pandas(frame), 2, method="sketch")
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.model_.schema == SCHEMA


def test_what_a_schema_lacks_is_said_before_anything_is_spent(frame, spent):
    with pytest.raises(ps.PrivsketchError, match="'bmi' is unknown"):
        fit(ps.PrivateKMeans, frame.drop(columns="bmi"), 2)
    with pytest.raises(ps.PrivsketchError, match="the schema says it"):
        fit(ps.PrivateKMeans, frame, 2, missing="center")
    with pytest.raises(ps.PrivsketchError, match="missing='drop'"):
        fit(ps.PrivateKMeans, frame, 2, neighbours="replace")
    with pytest.raises(ps.PrivsketchError, match="an array has no column names"):
        fit(ps.PrivateKMeans, frame.to_numpy(), 2)
    assert not spent


def test_persons_are_counted_where_their_number_is_public(frame):
    schema = ps.Schema([ps.Number("age", 18, 100)], person="patient_id")
    for method in ("sketch", "lloyd"):
        model = fit(ps.PrivateKMeans, frame, 2, schema=schema, neighbours="replace", method=method)
        if method == "sketch":
            assert model.sketch_.n_records == frame["patient_id"].nunique()
        assert "number of persons is public" in model.receipt_.summary()


def test_objects_in_a_frame_are_read_one_by_one():
    table = pd.DataFrame({"age": pd.Series([20, 30.5, None, True], dtype=object)})
    schema = ps.Schema([ps.Number("age", 0, 100)], missing="drop")
    assert fit(ps.PrivateKMeans, table, 1, schema=schema).predict(table).tolist() == [0, 0, -1, 0]


@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
@pytest.mark.parametrize("kind", [ps.PrivateKMeans, ps.PrivateKMedians, ps.PrivateGaussianMixture])
def test_rows_that_the_schema_leaves_out_have_the_label_minus_1(kind):
    schema = ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)], missing="drop")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(-1, 1, (500, 2)), columns=["x", "y"])
    table.loc[[3, 7], "x"] = np.nan
    labels = fit(kind, table, 2, schema=schema).predict(table)
    assert np.flatnonzero(labels == -1).tolist() == [3, 7]
    assert set(labels.tolist()) == {-1, 0, 1}


@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_without_a_schema_get_advice_of_ours(value):
    X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    model = fit(ps.PrivateKMeans, X, 2, schema=ps.Box(-1, 1))
    with pytest.raises(ps.RecordError, match=r"contains .*missing='center'.*a schema") as raised:
        model.predict(np.array([[0.0, value]]))
    assert "Hist" not in str(raised.value)


def test_a_projection_says_what_to_do_about_records_that_are_left_out():
    schema = ps.Schema([ps.Number("x", -1, 1), ps.Number("y", -1, 1)], missing="drop")
    table = pd.DataFrame({"x": [0.0, 0.5], "y": [0.1, None]})
    with pytest.raises(ps.ParameterError, match="use fill values") as raised:
        fit(ps.PrivateProjection, table, 1, schema=schema)
    assert "add-remove" not in str(raised.value)
    filled = ps.Schema([ps.Number(name, -1, 1, fill=0) for name in "xy"])
    assert fit(ps.PrivateProjection, table, 1, schema=filled).transform(table).shape == (2, 1)
