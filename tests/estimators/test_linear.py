"""Linear and logistic regression keep scikit-learn's contract, and read no bounds or labels off y.

Oracles are scikit-learn's own estimators on many records, where noise and the prior are small.
"""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privsketch as ps
from privsketch.testing import exact_answer, replaced_noise
from tests import seams
from tests.contract import contract

pytestmark = [
    pytest.mark.usefixtures("fixed_noise"),
    pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning"),
]
BOX = ps.Box(-20, 20)
ESTIMATORS = [
    ps.PrivateLinearRegression(epsilon=5.0, delta=1e-6, domain=BOX, target=(-300, 300)),
    ps.PrivateLinearRegression(epsilon=5.0, delta=0.0, domain=BOX, target=(-300, 300)),
    ps.PrivateLogisticRegression(epsilon=5.0, delta=1e-6, domain=BOX, classes=[0, 1, 2]),
    ps.PrivateLogisticRegression(epsilon=5.0, delta=0.0, domain=BOX, classes=[0, 1, 2]),
]
N = 40_000
PURE, MIXED = {"epsilon": 1.0, "delta": 0.0}, {"epsilon": 1.0, "delta": 1e-6}


@contract(ESTIMATORS)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def people():
    """Ages, heights, wards and smokers with a pressure, an illness and a diet that follow them."""
    rng = np.random.default_rng(0)
    age, height = rng.uniform(20, 90, N), rng.normal(170, 9, N)
    ward, smoker = rng.choice(["north", "south", "east"], N), rng.random(N) < 0.3
    pressure = 60 + 0.5 * age + 0.1 * height + 8 * (ward == "south") + rng.normal(0, 8, N)
    ill = rng.random(N) < expit(-4 + 0.05 * age + 1.0 * smoker)
    scores = np.stack([0.02 * age, 1.5 * smoker, 0.5 + 0.0 * age], axis=1)
    diet = np.array(["meat", "fish", "plants"])[(scores + rng.gumbel(size=(N, 3))).argmax(axis=1)]
    facts = {"age": age, "height": height, "ward": ward, "smoker": smoker}
    return pd.DataFrame({**facts, "pressure": pressure, "ill": ill, "diet": diet})


NUMBERS = ["age", "height"]
BOUNDS = ps.Box([18, 130], [100, 210])
COLUMNS = [
    ps.Number("age", 18, 100),
    ps.Number("height", 130, 210),
    ps.Category("ward", ["north", "south", "east"]),
    ps.Flag("smoker"),
]
X_SCHEMA = ps.Schema(COLUMNS)
PRESSURE = ps.Number("pressure", 60, 200)


def linear(**overrides):
    settings = {"domain": BOUNDS, "target": (60, 200), "random_state": 0, **MIXED}
    return ps.PrivateLinearRegression(**{**settings, **overrides})


def logistic(**overrides):
    settings = {"domain": BOUNDS, "classes": [False, True], "random_state": 0, **MIXED}
    return ps.PrivateLogisticRegression(**{**settings, **overrides})


# ---------------------------------------------------------------- like scikit-learn's own


@pytest.mark.parametrize("budget", [MIXED, PURE], ids=["gaussian", "pure"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_linear_regression_is_that_of_scikit_learn(people, budget, neighbours):
    X, y = people[NUMBERS].to_numpy(), people["pressure"].to_numpy()
    model, oracle = linear(neighbours=neighbours, **budget).fit(X, y), LinearRegression().fit(X, y)
    # Six standard errors of noise and sampling: false alarms are one in 10^8.
    assert (np.abs(model.coef_ - oracle.coef_) < 6 * model.model_.standard_errors).all()
    assert np.abs(model.predict(X) - oracle.predict(X)).mean() < 0.5
    assert np.allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    assert model.score(X, y) == pytest.approx(oracle.score(X, y), abs=0.005)
    assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)))
    assert model.r2_ == pytest.approx(oracle.score(X, y), abs=0.03)
    assert model.terms_ == ("x0", "x1")


def test_exact_sums_give_the_coefficients_of_scikit_learn(people):
    """Without noise nothing but quantised records and the prior is left, in the units of X."""
    X, y = people[NUMBERS].to_numpy(), people["pressure"].to_numpy()
    oracle = LinearRegression().fit(X, y)
    with replaced_noise(lambda values, law: (exact_answer(values, law), law.scale)):
        model = linear(epsilon=100.0).fit(X, y)
    assert np.allclose(model.coef_, oracle.coef_, rtol=2e-3)
    assert model.intercept_ == pytest.approx(oracle.intercept_, rel=2e-3)


@pytest.mark.parametrize("budget", [MIXED, PURE], ids=["gaussian", "pure"])
def test_logistic_regression_is_that_of_scikit_learn(people, budget):
    X, y = people[["age", "smoker"]].to_numpy(float), people["ill"].to_numpy()
    model = logistic(domain=ps.Box([18, 0], [100, 1]), **budget).fit(X, y)
    oracle = LogisticRegression(C=1e6, max_iter=1000).fit(X, y)
    assert model.classes_.tolist() == [False, True]
    assert model.coef_.shape == oracle.coef_.shape
    assert np.allclose(model.coef_, oracle.coef_, rtol=0.25)
    found, wanted = model.predict_proba(X), oracle.predict_proba(X)
    assert np.abs(found - wanted).mean() < 0.03
    assert model.score(X, y) == pytest.approx(oracle.score(X, y), abs=0.01)
    scores = model.decision_function(X)
    assert np.allclose(scores, X @ model.coef_[0] + model.intercept_[0])
    assert np.allclose(expit(scores), found[:, 1])
    assert (model.predict(X) == (scores > 0)).all()


@pytest.mark.parametrize("budget", [MIXED, PURE], ids=["gaussian", "pure"])
def test_several_classes(people, budget):
    X, y = people[["age", "smoker"]].to_numpy(float), people["diet"].to_numpy()
    order = ["plants", "meat", "fish"]
    model = logistic(domain=ps.Box([18, 0], [100, 1]), classes=order, **budget).fit(X, y)
    oracle = LogisticRegression(max_iter=1000).fit(X, y)
    assert model.classes_.tolist() == order
    assert model.coef_.shape == (3, 2)
    found = model.predict_proba(X)
    assert np.allclose(found.sum(axis=1), 1)
    wanted = oracle.predict_proba(X)[:, [oracle.classes_.tolist().index(one) for one in order]]
    assert np.abs(found - wanted).mean() < 0.04
    assert model.score(X, y) == pytest.approx(oracle.score(X, y), abs=0.02)
    assert (model.predict(X) == np.array(order)[found.argmax(axis=1)]).all()
    assert np.allclose(model.decision_function(X), X @ model.coef_.T + model.intercept_)
    assert not any("none of the stated classes" in text for text in model.concerns_)


# ---------------------------------------------------------------- public facts


@pytest.mark.parametrize("name", ["epsilon", "delta", "domain"])
@pytest.mark.parametrize("make", [linear, logistic])
def test_missing_public_facts_are_an_error(spent, make, name):
    with pytest.raises(ps.ParameterError, match=rf"{name}: Private.* none is taken from X"):
        make(**{name: None}).fit(np.zeros((9, 2)), np.zeros(9))
    assert not spent


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (linear(target=None), r"never read off y.*target=\(low, high\).*ps\.Number"),
        (linear(target=(1, 2, 3)), r"target=\(low, high\)"),
        (linear(target=(2, 1)), "swapped"),
        (linear(target="pressure"), "a Box has no names"),
        (linear(target="pressure", domain=X_SCHEMA), "it has age, height, ward, smoker"),
        (linear(target=ps.Number("age", 0, 9), domain=X_SCHEMA), "state its name only"),
        (linear(domain=ps.Ball(radius=1.0)), "no bounds of columns"),
        (linear(noise="cube"), "noise"),
        (linear(clip="all"), "clip='all'"),
        (linear(clip="uniform", delta=0.0, noise="gaussian"), "delta"),
        (logistic(classes=None), r"never read off y.*classes=\[\.\.\.\].*ps\.Category"),
        (logistic(target=ps.Flag("ill")), "one of the two"),
        (logistic(classes=["a"]), "two labels at least"),
        (logistic(classes="ab"), "a list of labels, in order"),
        (logistic(classes={"a", "b"}), "a list of labels, in order"),
        (logistic(classes=["a", "a"]), "occurs twice"),
        (logistic(classes=None, target=(0, 1)), "expected a category or a flag"),
        (logistic(classes=None, target=ps.Number("y", 0, 1)), "expected a category or a flag"),
    ],
)
def test_what_is_stated_wrongly_is_refused_before_anything_is_spent(spent, estimator, words):
    with pytest.raises(ps.ParameterError, match=words):
        estimator.fit(np.zeros((9, 2)), np.zeros(9))
    assert not spent


def test_one_charge_and_nothing_exact(people):
    X = people[NUMBERS].to_numpy()
    shared = {"sketch_", "model_", "receipt_", "coef_", "intercept_", "terms_", "concerns_"}
    shared |= {"n_features_in_"}
    for model, more in (
        (linear().fit(X, people["pressure"]), {"r2_"}),
        (logistic().fit(X, people["ill"]), {"classes_"}),
    ):
        assert (model.receipt_.epsilon, model.receipt_.delta) == (1.0, 1e-6)
        assert {name for name in vars(model) if name.endswith("_")} == shared | more
        assert model.sketch_.exact_count is None
        assert isinstance(model.model_, ps.RegressionModel | ps.ClassifierModel)


def test_a_count_is_not_taken_from_the_table(people):
    X, y = people[NUMBERS].to_numpy(), people["pressure"].to_numpy()
    small, large = (linear().fit(X[:n], y[:n]).sketch_.design for n in (100, N))
    assert small == large


@pytest.mark.parametrize("budget", [MIXED, PURE], ids=["gaussian", "pure"])
def test_everything_fitted_is_a_function_of_the_release(people, budget):
    """The same answers for other records and other targets: nothing may tell them apart."""

    def same_for_all(values, law):
        return np.arange(len(values), dtype=np.int64) * 50_000, law.scale

    def states(estimator, tables):
        for X, y in tables:
            with replaced_noise(same_for_all):
                model = clone(estimator).fit(X, y)
            text = pickle.dumps(vars(model), protocol=0).decode("latin-1")
            text += model.model_.describe() + repr(model.sketch_.receipt)
            sources = model.sketch_.sources[0], model.sketch_.ids[0]
            yield text.replace(sources[0], "NAME").replace(sources[1], "ID")

    X, y = people[NUMBERS].to_numpy(), people["pressure"].to_numpy()
    pairs = [(X, y), (X[:77] + 1.0, y[:77] * 3), (X[:0], y[:0])]
    assert len(set(states(linear(**budget), pairs))) == 1
    pairs = [(X, people["diet"]), (X[:9], ["?"] * 9), (X[:0], [])]
    classes = ["meat", "fish", "plants"]
    assert len(set(states(logistic(classes=classes, **budget), pairs))) == 1


# ---------------------------------------------------------------- tables


def test_a_schema_with_both(people):
    schema = ps.Schema([*COLUMNS[:2], PRESSURE, *COLUMNS[2:]])
    model = linear(domain=schema, target="pressure").fit(people)
    assert model.coef_.shape == (len(model.terms_),)
    truth = {"age": 0.5, "height": 0.1, "smoker": 0.0}
    found = dict(zip(model.terms_, model.coef_, strict=True))
    assert all(found[name] == pytest.approx(value, abs=0.6) for name, value in truth.items())
    against = model.model_.against[model.terms_.index("ward=other")]
    south = found.get("ward=south", 0.0) - (8 if against != "south" else 0)
    assert south == pytest.approx(0.0, abs=1.5)
    without = people.drop(columns="pressure")
    assert np.allclose(model.predict(people), model.predict(without))
    assert model.score(people) == model.score(without, people["pressure"]) > 0.5
    by_y = linear(domain=schema, target="pressure").fit(without, people["pressure"])
    assert by_y.sketch_.design.schema == model.sketch_.design.schema


@pytest.mark.parametrize("shape", ["pandas", "polars", "rows"])
def test_y_beside_any_table_gives_the_same_sums(people, shape):
    """Cut into blocks anywhere, each row keeps its own y."""
    part = people.iloc[:300].reset_index(drop=True)
    table, y = part[[c.name for c in COLUMNS]], part["pressure"]
    schema = ps.Schema([*COLUMNS, PRESSURE])
    given = {
        "pandas": (table.set_index(table.index[::-1]), y),
        "polars": (pl.from_pandas(table), pl.from_pandas(y)),
        "rows": (table.to_numpy().tolist(), y.tolist()),
    }[shape]

    def sums(*data):
        with pytest.MonkeyPatch.context() as patch:
            seams.set(patch, "memory.BLOCK_VALUES", 50)
            seams.set(patch, "memory.WIDE_ROWS", 7)
            with replaced_noise(lambda values, law: (exact_answer(values, law), law.scale)):
                return linear(domain=schema, target="pressure").fit(*data).sketch_.sums

    assert (sums(*given) == sums(part)).all()


def test_a_schema_of_x_and_a_stated_target(people):
    X = people[[c.name for c in COLUMNS]]
    model = linear(domain=X_SCHEMA, target=PRESSURE, missing="error").fit(X, people["pressure"])
    assert model.model_.target == "pressure"
    assert list(model.feature_names_in_) == list(X.columns)
    words = logistic(domain=X_SCHEMA, classes=["meat", "fish", "plants"]).fit(X, people["diet"])
    assert words.score(X, people["diet"]) > 0.35
    flag = logistic(domain=X_SCHEMA, classes=None, target=ps.Flag("ill")).fit(X, people["ill"])
    assert flag.classes_.tolist() == [False, True]
    assert flag.coef_.shape == (1, len(flag.terms_))
    two = ps.Category("ill", ["no", "yes"])
    answers = np.where(people["ill"], "yes", "no")
    named = logistic(domain=X_SCHEMA, classes=None, target=two).fit(X, answers)
    assert named.coef_.shape == (2, len(named.terms_))
    assert named.decision_function(X).shape == (N,)
    assert (named.predict(X) == np.where(named.decision_function(X) > 0, "yes", "no")).all()
    assert set(named.predict(X)) <= {"no", "yes"}


def test_persons_and_missing_values(people):
    table = people.assign(person=np.repeat(np.arange(N // 4), 4))
    table.loc[::50, "age"] = np.nan
    table.loc[::70, "ward"] = None
    schema = ps.Schema([*COLUMNS, PRESSURE], missing="drop", person="person")
    model = linear(domain=schema, target="pressure", epsilon=4.0).fit(table)
    assert model.receipt_.unit == "one person (person)"
    beside = linear(domain=replace_columns(schema), target=PRESSURE, epsilon=4.0)
    beside.fit(table.drop(columns="pressure"), table["pressure"])
    assert beside.receipt_.unit == model.receipt_.unit
    found = dict(zip(beside.terms_, beside.coef_, strict=True))
    assert found["age"] == pytest.approx(0.5, abs=0.2)
    with pytest.raises(ps.RecordError, match="leave those rows out of X"):
        model.predict(table)
    assert model.predict(table.iloc[1:9]).shape == (8,)


def replace_columns(schema):
    return ps.Schema(schema.columns[:-1], missing=schema.missing, person=schema.person)


def test_columns_of_x_may_be_called_y(people):
    named = ps.Schema([ps.Number("y", 18, 100)])
    X = people[["age"]].set_axis(["y"], axis=1)
    assert logistic(domain=named).fit(X, people["ill"]).model_.target == "y_"
    X = people[["age", "height"]].set_axis(["y", "y_"], axis=1)
    model = linear().fit(X, people["pressure"])
    assert model.terms_ == ("y", "y_")
    assert model.model_.target == "y__"


def test_tables_that_state_their_columns(people):
    X, y = people[["height", "age"]], people["pressure"]
    by_name = linear().fit(ps.Table(X, columns=["age", "height"]), y)
    assert by_name.terms_ == ("age", "height")
    assert by_name.coef_[0] == pytest.approx(0.5, abs=0.1)
    rows = [[50.0, 170.0], [60.0, "odd"], [40.0, 160.0]] * 20
    table = ps.Table(rows, missing="center", unreadable="missing", columns=[0, 1])
    model = linear(missing="center").fit(table, [100.0, 110.0, 90.0] * 20)
    assert model.sketch_.design.schema.unreadable == "missing"
    with pytest.raises(ps.RecordError, match="y is needed"):
        by_name.score(X.to_numpy())


def test_missing_values_without_a_schema(people):
    X, y = people[NUMBERS].to_numpy(copy=True)[:5000], people["pressure"].to_numpy(copy=True)[:5000]
    X[::100, 1] = np.nan
    with pytest.raises(ps.MissingError, match=r"NaN.*missing='center'"):
        linear().fit(X, y)
    model = linear(missing="center").fit(X, y)
    assert model.predict([[50, np.nan]]).tolist() == model.predict([[50, 170]]).tolist()
    y[3] = np.nan
    with pytest.raises(ps.RecordError, match=r"'y': missing"):
        linear(missing="center").fit(X, y)
    dropped = linear(missing="center", target=ps.Number("y", 60, 200, missing="drop")).fit(X, y)
    assert np.isfinite(dropped.coef_).all()


# ---------------------------------------------------------------- y


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y to be passed, but the target y is None"),
        (np.zeros((10, 2)), "1d array"),
        (np.zeros(9), "inconsistent numbers of samples"),
        (np.zeros(11), "inconsistent numbers of samples"),
        (5.0, "1d array"),
        ("a text", "1d array"),
        (np.array(["secret-4711"] * 10), "is large_string|is string"),
        (["secret-4711"] * 10, "not numeric|number"),
        ([[4711.5]] * 10, "not numeric|number"),
        (np.array([4711 + 1j] * 10), "y"),
    ],
)
def test_bad_targets_are_refused_without_being_quoted(spent, y, words):
    with pytest.raises(ps.PrivsketchError, match=words) as error:
        linear().fit(np.full((10, 2), 50.0), y)
    assert "4711" not in str(error.value)
    assert not spent


def test_targets_outside_of_their_bounds_are_moved_to_them(people):
    X, y = people[NUMBERS].to_numpy()[:3000], people["pressure"].to_numpy()[:3000]

    def sums(values):
        with replaced_noise(lambda values, law: (exact_answer(values, law), law.scale)):
            return linear(target=(100, 120)).fit(X, values).sketch_.sums

    assert (sums(y) == sums(np.clip(y, 100, 120))).all()


def test_labels_have_one_spelling_whatever_their_type(people):
    X, y = people[["age"]].to_numpy()[:4000], people["ill"].to_numpy()[:4000]

    def sums(labels, classes):
        with replaced_noise(lambda values, law: (exact_answer(values, law), law.scale)):
            model = logistic(domain=ps.Box(18, 100), classes=classes).fit(X, labels)
        assert model.classes_.tolist() == classes
        assert model.score(X, labels) > 0.5
        return model.sketch_.sums

    wanted = sums(y, [False, True])
    words = np.where(y, "ill", "well")
    forms = [
        (y.astype(int), [0, 1]),
        (y, [0, 1]),
        (pd.Series(y), [0, 1]),
        (pd.Series(y, dtype="boolean"), [0, 1]),
        (y + 1.0, [1, 2]),
        (words, ["well", "ill"]),
        (words.tolist(), ["well", "ill"]),
        (pd.Series(words, dtype="category"), ["well", "ill"]),
        (pl.Series(words), ["well", "ill"]),
        (np.where(y, 1, -1), [-1, 1]),
        (pd.Series(y, dtype="boolean"), [False, True]),
        (pd.Series(words, dtype="string"), ["well", "ill"]),
        (pd.DataFrame({"ill": words}), ["well", "ill"]),
    ]
    for labels, classes in forms:
        assert (sums(labels, classes) == wanted).all()


def test_classes_keep_their_types(people):
    X = people[["age"]].to_numpy()[:600]
    mixed = ["a", 1, True]
    model = logistic(domain=ps.Box(18, 100), classes=mixed).fit(X, mixed * 200)
    assert model.classes_.tolist() == mixed
    assert [type(label) for label in model.classes_] == [str, int, bool]


def test_other_labels(people):
    X, y = people[["age"]].to_numpy(), people["diet"].to_numpy().copy()
    y[:8000] = "unheard of"
    model = logistic(domain=ps.Box(18, 100), classes=["meat", "fish", "plants"]).fit(X, y)
    assert set(model.predict(X)) <= {"meat", "fish", "plants"}
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
    assert any("of the labels of y are none of the stated classes" in c for c in model.concerns_)
    with pytest.raises(ps.RecordError, match="none of the two classes") as error:
        logistic(domain=ps.Box(18, 100), classes=["meat", "fish"]).fit(X, y)
    assert "unheard" not in str(error.value)
    listed = logistic(domain=ps.Box(18, 100), classes=["meat", "fish", "plants", "other"])
    assert listed.fit(X, y).predict_proba(X).shape == (N, 4)


def test_a_weight_or_a_sparse_table_is_refused(spent):
    X, y = np.full((10, 2), 50.0), np.full(10, 100.0)
    for make, target in ((linear, y), (logistic, y > 0)):
        with pytest.raises(ps.ParameterError, match=r"sample_weight: .*X and y only; a weight"):
            make().fit(X, target, sample_weight=np.ones(10))
        assert not spent
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            make().fit(sparse.csr_matrix(X), target)
    with pytest.raises(ps.ParameterError, match="goes with an X in memory"):
        linear(domain=X_SCHEMA, target=PRESSURE).fit(ps.Table("visits.csv"), y)
    assert not spent


# ---------------------------------------------------------------- one fit after the other


@pytest.mark.parametrize("make", [linear, logistic])
def test_a_second_fit_is_as_the_first_of_a_fresh_one(people, make, no_noise):
    X, y = people[NUMBERS].to_numpy()[:500], people["ill"].to_numpy()[:500]
    change = {"classes": [True, False]} if make is logistic else {"target": (0, 90)}
    model = make().fit(X, y)
    model.set_params(neighbours="replace", delta=0.0, n_threads=1, missing="center", **change)
    model.fit(pd.DataFrame(X, columns=NUMBERS), y)
    fresh = clone(model).fit(pd.DataFrame(X, columns=NUMBERS), y)
    assert vars(model).keys() == vars(fresh).keys()
    assert np.array_equal(model.coef_, fresh.coef_)
    assert model.model_.describe() == fresh.model_.describe()
    frame = pd.DataFrame(X, columns=NUMBERS)
    before = model.predict(frame), model.score(frame, y)
    model.set_params(domain=ps.Box(-1, 1), epsilon=3.0, target=None, clip="uniform")
    if make is logistic:
        model.set_params(classes=["a", "b"])
    assert np.array_equal(model.predict(frame), before[0])
    assert model.score(frame, y) == before[1]


@pytest.mark.parametrize("estimator", [linear(epsilon=0.02), logistic(epsilon=0.02)])
def test_fit_warns_of_concerns_where_it_is_called(people, estimator):
    y = people["ill" if estimator.__class__ is ps.PrivateLogisticRegression else "pressure"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(people[NUMBERS][:300], y[:300])
    assert estimator.concerns_
    assert set(estimator.concerns_) <= {str(warning.message) for warning in caught}
    assert {warning.filename for warning in caught} <= {__file__}
    assert len(repr(estimator.model_).splitlines()) <= 10


# ---------------------------------------------------------------- at work in scikit-learn


def test_pipelines_searches_and_copies(people):
    X, y = people[NUMBERS].iloc[:6000], people["pressure"].iloc[:6000]
    steps = make_pipeline(FunctionTransformer(), linear()).fit(X, y)
    assert list(steps[-1].feature_names_in_) == NUMBERS
    assert steps[-1].terms_ == tuple(NUMBERS)
    search = GridSearchCV(linear(), {"epsilon": [0.5, 2.0]}, cv=2).fit(X, y)
    assert search.best_params_["epsilon"] in (0.5, 2.0)
    labels = people["ill"].iloc[:6000]
    for scoring in ("roc_auc", "neg_log_loss", "accuracy"):
        scores = cross_val_score(logistic(), X, labels, cv=2, scoring=scoring)
        assert np.isfinite(scores).all()
    model = linear().fit(X, y)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (copied.predict(X) == model.predict(X)).all()
    assert not hasattr(clone(model), "coef_")
    assert "target" in model.get_params()
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_what_was_paid_for_stays_if_learning_is_interrupted(people, monkeypatch):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    for name, estimator, y in (
        ("learn_regression", linear(), people["pressure"]),
        ("learn_classifier", logistic(), people["ill"]),
    ):
        seams.set(monkeypatch, f"regression.{name}", interrupted)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(people[NUMBERS], y)
        assert estimator.receipt_.epsilon == 1.0
        with pytest.raises(NotFittedError):
            estimator.predict(people[NUMBERS])


def test_fits_of_the_same_records_add_up(people):
    X, y = people[NUMBERS].to_numpy()[:2000], people["pressure"].to_numpy()[:2000]
    linear().fit(X, y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        linear().fit(X, y)
    assert any("epsilon" in str(one.message) and "2" in str(one.message) for one in caught)


def test_a_ledger_refuses_what_is_above_its_limit(people, tmp_path):
    ledger = ps.Ledger.create(tmp_path / "ledger.json")
    ledger.add("study", epsilon=1.5, delta=1e-5)
    X, y = people[NUMBERS].to_numpy()[:2000], people["pressure"].to_numpy()[:2000]
    where = (tmp_path / "ledger.json", "study")
    linear(ledger=where).fit(X, y)
    with pytest.raises(ps.BudgetError):
        linear(ledger=where).fit(X, y)


def test_few_records_give_a_concern():
    rng = np.random.default_rng(3)
    X, y = rng.uniform(18, 100, (60, 2)), rng.uniform(60, 200, 60)
    for model in (linear(epsilon=0.1).fit(X, y), logistic(epsilon=0.1).fit(X, y > 130)):
        assert any("too few records" in text for text in model.concerns_)
        assert np.isfinite(model.coef_).all()
