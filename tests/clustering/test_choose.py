"""The choice of a method, and PrivateKMeans by every one of them.

Most tests record what a fit asks of the noise and what it is answered, with seeded noise, and
give another fit the same answers: two ways to say the same thing must ask the same questions.
"""

import inspect
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

import privsketch as ps
from privsketch import ClusterModel, FileError, ParameterError, RecordError
from privsketch.clustering import Choice, cells, choose_method, cluster_with, method_names
from privsketch.clustering import choose as methods
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.sparse import method as sparse_start
from privsketch.estimators import kmeans
from privsketch.testing import Tape
from tests import seams
from tests.chance import fixed_noise
from tests.kmeans import private_kmeans

CENTERS = np.array([[-0.6, -0.6, 0.6, 0.0], [0.6, 0.6, 0.0, -0.6], [0.6, -0.6, -0.6, 0.6]])
METHODS = method_names()
NAMED = METHODS[1:]
READING = NAMED[1:]  # those that read the records themselves
NEVER_DELTA = {"cells", "partition-tree", "grid"}  # their noise is pure, whatever the budget
SKETCH_OPTIONS = {
    "n_features": 60,
    "feature_map": "one-bit",
    "frequencies": "structured",
    "frequency_scale": 2.0,
    "decoder": "cl-ompr",
    "n_init": 1,
}


def records(n_records, seed=0, width=0.05):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n_records)
    return CENTERS[labels] + width * rng.normal(size=(n_records, 4))


def fitted(X, method="auto", **overrides):
    settings = {
        # Little noise; with less of it cells are many more, and take longer.
        "epsilon": 5.0 if method in ("auto", "cells") else 50.0,
        "delta": 1e-6,
        "domain": ps.Box(-1, 1),
        # A grid for more records has more cells, and takes longer.
        "n_records": 100 if method in ("cells", "grid") else 3000,
        "random_state": 0,
        "n_threads": 1,
        "method": method,
    }
    return private_kmeans(**{"n_clusters": 3, **settings, **overrides}).fit(X)


def recorded(X, **options):
    tape = Tape()
    model = tape.recorded(lambda: fitted(X, **options))
    assert tape.questions
    return tape, model


def replayed(tape, X, *, same_values=True, **options):
    """A fit that gets the answers again, to the same laws and, if so, the same values."""
    model = tape.replayed(lambda: fitted(X, **options))
    if same_values:
        for question, again in zip(tape.questions, tape.again, strict=True):
            np.testing.assert_array_equal(question.values, again)
    return model


def require_same(one, other):
    """All that was fitted, but for names of sources, which a sketch draws at random."""
    for name in ("cluster_centers_", "weights_", "standard_errors_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.method_ == other.method_
    assert one.concerns_ == other.concerns_
    assert one.model_.n_records == other.model_.n_records
    assert unnamed(one.receipt_) == unnamed(other.receipt_)


def unnamed(receipt):
    return replace(receipt, source=None, parts=tuple(unnamed(part) for part in receipt.parts))


# --- the choice: public facts, rules and their edges --------------------------------------------


def choice(method="auto", *, dim=4, epsilon=1.0, delta=1e-6, n_records=1e5, **facts):
    return choose_method(
        method,
        n_clusters=facts.pop("n_clusters", 3),
        domain=ps.Box(-1, 1, dim=dim),
        budget=ps.Budget(epsilon, delta),
        n_records=n_records,
        **facts,
    )


def test_a_choice_is_told_public_facts_only():
    known = {"method", "n_clusters", "domain", "budget", "n_records", "n_nonzero"}
    assert set(inspect.signature(choose_method).parameters) == known


@pytest.mark.parametrize("method", NAMED)
def test_a_method_that_was_asked_for_is_taken(method):
    assert choice(method, dim=50) == Choice(method, "")
    if method in ("pipeline", "partition-tree"):
        assert choice(method, dim=50, n_nonzero=3) == Choice(method, "")
    else:
        with pytest.raises(ParameterError, match="n_nonzero=3"):
            choice(method, dim=50, n_nonzero=3)


BOTH, PURE, DELTA = (0.0, 1e-6), (0.0,), (1e-6,)


@pytest.mark.parametrize(
    ("deltas", "facts", "method", "words"),
    [
        (BOTH, {"dim": 1}, "cells", "1 encoded column, few enough"),
        (BOTH, {"dim": 4, "n_records": None}, "cells", "4 encoded columns, and the number"),
        (PURE, {"dim": 7, "n_records": None}, "cells", "7 encoded columns, and the number"),
        (BOTH, {"dim": 3}, "cells", "cells have the smaller expected error for 3"),
        (
            BOTH,
            {"dim": 5, "epsilon": 0.001},
            "cells",
            "cells have the smaller expected error for 5",
        ),
        (
            DELTA,
            {"dim": 5, "epsilon": 0.01},
            "pipeline",
            "a pipeline has the smaller expected error for 5",
        ),
        (
            PURE,
            {"dim": 5, "epsilon": 0.01},
            "pipeline",
            "a pipeline has the smaller expected error for 5",
        ),
        # Cells are expected to cost less, but the mean of so many records is known well.
        (
            BOTH,
            {"dim": 6, "n_clusters": 16, "epsilon": 0.1, "n_records": 9_000},
            "pipeline",
            "a pipeline has the smaller expected error for 6",
        ),
        (
            BOTH,
            {"dim": 6, "n_clusters": 2, "epsilon": 0.3, "n_records": 200},
            "cells",
            "cells have the smaller expected error for 6",
        ),
        (BOTH, {"dim": 8}, "pipeline", "a pipeline has the smaller expected error for 8"),
        (
            BOTH,
            {"dim": 8, "epsilon": 0.001},
            "cells",
            "cells have the smaller expected error for 8",
        ),
        (
            DELTA,
            {"dim": 5, "n_records": None, "epsilon": 0.001},
            "pipeline",
            "the table has 5 encoded columns",
        ),
        (
            PURE,
            {"dim": 8, "n_records": None, "epsilon": 1e-4},
            "pipeline",
            "the table has 8 encoded columns",
        ),
        (BOTH, {"dim": 9, "epsilon": 1e-4}, "pipeline", "the table has 9 encoded columns"),
        (BOTH, {"dim": 10, "n_nonzero": 2}, "pipeline", "at most 2 of the 10 entries"),
        (
            BOTH,
            {"dim": 3, "n_nonzero": 2, "epsilon": 1e-4},
            "pipeline",
            "at most 2 of the 3 entries",
        ),
    ],
)
def test_rules_of_auto(deltas, facts, method, words):
    for delta in deltas:
        found = choice(delta=delta, **facts)
        assert found.method == method
        assert words in found.reason


def test_cells_are_expected_to_be_worse_the_less_there_is_to_see():
    def expected(n_clusters=5, n_records=1e5, epsilon=1.0):
        domain = ps.Box(-1, 1, dim=5)
        return methods.expected_cell_excess(n_clusters, domain, ps.Budget(epsilon, 1e-6), n_records)

    assert expected() < 0.02
    assert expected(n_clusters=50) > expected() < expected(n_records=1e3)
    along = [expected(epsilon=2.0**-step) for step in range(20)]
    assert along == sorted(along)
    assert along[-1] > 1


@pytest.mark.parametrize("method", ["kmeans", "", None, "Lloyd", ["lloyd"]])
def test_an_unknown_method_is_refused_with_those_there_are(method, spent):
    with pytest.raises(ParameterError, match="method=") as error:
        fitted(records(50), method=method)
    assert all(repr(known) in str(error.value) for known in METHODS)
    with pytest.raises(ParameterError, match="method="):
        cluster_with("sketch", records(50), 3)
    assert spent == []


@pytest.mark.parametrize(
    ("n_records", "dim"),
    [
        *((number, dim) for number in (-5, 0, math.nan, math.inf) for dim in (3, 12)),
        ("many", 12),
        (1e300, 12),
        ("many", 3),
        (1e300, 3),
    ],
)
def test_a_number_of_records_that_is_none_is_refused(n_records, dim, spent):
    with pytest.raises(ParameterError, match="n_records="):
        fitted(np.zeros((50, dim)), n_records=n_records)
    assert spent == []


# --- every method through the estimator ---------------------------------------------------------


@pytest.fixture(scope="module")
def blobs():
    return records(3000)


@pytest.fixture(scope="module", params=METHODS)
def fit(request, blobs):
    """A fit with noise, the same in every run, by each method."""
    with fixed_noise():
        return request.param, fitted(blobs, method=request.param)


@pytest.mark.slow
def test_clear_clusters_are_found(fit):
    # Noise moves a center by about 0.001 at this budget, 0.01 by cells at theirs, and 0.2 is a
    # third of the way to another cluster. A grid's cells are 0.29 wide.
    name, model = fit
    if name == "k-variates":
        pytest.skip("its noise is for the whole domain, at any number of records")
    far = cdist(CENTERS, model.cluster_centers_)
    assert sorted(far.argmin(axis=1)) == [0, 1, 2]
    assert far.min(axis=1).max() < 0.2
    np.testing.assert_allclose(model.weights_, 1 / 3, atol=0.1)
    assert model.cluster_centers_.dtype == np.float64


@pytest.mark.slow
def test_the_receipt_has_the_budget(fit):
    name, model = fit
    receipt = model.receipt_
    assert receipt.epsilon == (5.0 if name in ("auto", "cells") else 50.0)
    assert receipt.delta == (0.0 if model.method_ in NEVER_DELTA else 1e-6)
    assert receipt.neighbours == "add-remove"
    pure = fitted(records(100), method=name, delta=0.0, epsilon=3.0).receipt_
    assert (pure.epsilon, pure.delta) == (3.0, 0.0)


@pytest.mark.slow
def test_the_reason_is_told_where_there_is_one(fit):
    name, model = fit
    assert model.method_ == ("cells" if name == "auto" else name)
    assert ("was chosen" in model.receipt_.mechanism) == (name == "auto")
    if model.method_ == "sketch":
        return
    assert model.model_.method == model.method_
    assert (model.model_.reason != "") == (name == "auto")
    assert model.model_.reason in model.receipt_.mechanism
    assert model.model_.receipt == model.receipt_


def test_all_methods_have_the_same_attributes(fit):
    _, model = fit
    assert {name for name in vars(model) if name.endswith("_")} == {
        "cluster_centers_",
        "concerns_",
        "method_",
        "model_",
        "n_features_in_",
        "receipt_",
        "sketch_",
        "standard_errors_",
        "weights_",
        "width_",
    }


def test_what_only_a_sketch_knows_is_none_elsewhere(fit):
    _, model = fit
    sketched = model.method_ == "sketch"
    for name in ("sketch_", "standard_errors_", "width_"):
        assert (getattr(model, name) is not None) == sketched
    assert isinstance(model.model_, ps.ClusterModel if sketched else ClusterModel)


def test_models_keep_their_contents_in_a_file(fit, tmp_path, blobs):
    _, model = fit
    assert type(model.model_) is ps.ClusterModel
    model.model_.save(tmp_path / "model.json")
    again = ps.ClusterModel.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.centers, model.cluster_centers_)
    np.testing.assert_array_equal(again.weights, model.weights_)
    assert again.receipt == model.model_.receipt
    assert again.describe() == model.model_.describe()
    np.testing.assert_array_equal(again.predict(blobs), model.predict(blobs))
    # What only a sketch can know is there if and only if there was one.
    assert (again.density is None) == (model.method_ != "sketch")
    with pytest.raises(FileError):
        ps.PCAModel.load(tmp_path / "model.json")


def test_predict_gives_the_nearest_center(fit):
    _, model = fit
    X = np.random.default_rng(5).uniform(-1, 1, size=(2000, 4))
    far = cdist(X, model.cluster_centers_)
    nearest = far.argmin(axis=1)
    clear = np.partition(far, 1, axis=1)[:, 1] - far.min(axis=1) > 1e-9
    labels = model.predict(X)
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(labels[clear], nearest[clear])
    for container in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        np.testing.assert_array_equal(model.predict(container(X)), labels)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_fits_differ(method, blobs):
    # Sums have integer noise of scales in the thousands, and a grid has noise in each of 81 cells:
    # that everything comes out the same again has a chance far below 1e-6.
    one, other = (fitted(blobs, method=method, epsilon=1.0, n_records=300) for _ in range(2))
    assert (one.cluster_centers_ != other.cluster_centers_).any()


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", SKETCH_OPTIONS)
@pytest.mark.parametrize("method", READING)
def test_an_option_of_sketches_is_refused_elsewhere(method, option, spent):
    with pytest.raises(ParameterError, match=f"{option}=.*method='{method}'.*sketch"):
        fitted(records(50), method=method, **{option: SKETCH_OPTIONS[option]})
    assert spent == []


@pytest.mark.parametrize("option", SKETCH_OPTIONS)
def test_an_option_of_sketches_asks_auto_for_one(option):
    model = fitted(records(300), n_records=None, **{option: SKETCH_OPTIONS[option]})
    assert model.method_ == "sketch"
    assert f"'sketch' was chosen because {option}=" in model.receipt_.mechanism


@pytest.mark.parametrize("method", ["sample-aggregate", "k-variates"])
def test_noise_of_whole_points(method, spent):
    with pytest.raises(ParameterError, match=r"noise='laplace-joint'.*'laplace', 'cube'"):
        fitted(records(50), method=method, noise="laplace-joint")
    with pytest.raises(ParameterError, match="delta > 0"):
        fitted(records(50), method=method, noise="gaussian", delta=0.0)
    assert spent == []
    for noise in ("laplace", "cube", "gaussian"):
        spent.clear()
        fit = fitted(records(50), method=method, noise=noise)
        assert {law.kind for law in spent} == {noise}
        assert fit.receipt_.delta == (1e-6 if noise == "gaussian" else 0.0)


def test_noise_is_for_sketches_and_for_lloyd(spent):
    found = fitted(records(300), noise="cube")
    assert found.method_ == "sketch"
    assert "noise='cube' is an option" in found.receipt_.mechanism
    for method in ("pipeline", "partition-tree", "grid"):
        with pytest.raises(ParameterError, match="noise='cube'"):
            fitted(records(50), method=method, noise="cube")
    with pytest.raises(ParameterError, match=r"noise='magic'.*'laplace-joint'"):
        fitted(records(50), method="lloyd", noise="magic")
    with pytest.raises(ParameterError, match="delta > 0"):
        fitted(records(50), method="lloyd", noise="gaussian", delta=0.0)
    for noise in ("laplace-joint", "laplace", "cube", "gaussian"):
        spent.clear()
        fit = fitted(records(50), method="lloyd", noise=noise)
        assert {law.kind for law in spent} == {noise.split("-")[0]}
        assert fit.receipt_.delta == (1e-6 if noise == "gaussian" else 0.0)


@pytest.mark.parametrize("method", READING)
def test_the_number_of_clusters_is_found_by_sketches_only(method, spent):
    with pytest.raises(ParameterError, match=f"n_clusters='auto' with method='{method}'"):
        fitted(records(50), method=method, n_clusters="auto")
    assert spent == []


def test_a_number_of_clusters_left_open_asks_auto_for_a_sketch():
    model = fitted(np.ones((50, 12)) / 4, n_clusters="auto", max_clusters=2, n_records=None)
    assert model.method_ == "sketch"
    assert "'sketch' was chosen" in model.receipt_.mechanism


@pytest.mark.parametrize("method", ["lloyd", "grid", "sample-aggregate", "k-variates"])
def test_sparse_centers_have_their_methods(method, spent):
    with pytest.raises(ParameterError, match=r"n_nonzero.*'pipeline' or 'partition-tree'"):
        fitted(records(50), method=method, n_nonzero=2)
    assert spent == []


@pytest.mark.parametrize("more", [{"method": "sketch"}, {"n_features": 60}])
def test_sparse_centers_are_none_of_a_sketch(more, spent):
    with pytest.raises(ParameterError, match="n_nonzero"):
        fitted(records(50), n_nonzero=2, **more)
    assert spent == []


def test_a_sketch_that_was_chosen_tells_its_model_why(tmp_path):
    model = fitted(np.tile(records(300), 2), n_records=None, n_features=100)
    assert model.method_ == "sketch"
    model.model_.save(tmp_path / "model.json")
    assert ps.ClusterModel.load(tmp_path / "model.json").receipt == model.receipt_


# --- the same records in other words ------------------------------------------------------------


@pytest.fixture
def same_draws(monkeypatch):
    """Methods that draw records, or blocks of them, draw the same ones every time."""
    fresh = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed=1: fresh(seed))
    seams.set(
        monkeypatch,
        "aggregate.drawn_words",
        lambda records: fresh(2).integers(2**64, size=(len(records), 2), dtype=np.uint64),
    )


@pytest.fixture
def learned_once(monkeypatch):
    """What is learned from a sketch, or counts, is learned once for the same noisy numbers."""
    known = {}
    decode = cells.decode_cells

    def decode_once(boxes, n_clusters, rng):
        key = boxes.low.tobytes() + boxes.high.tobytes() + boxes.counts.tobytes()
        if key not in known:
            known[key] = decode(boxes, n_clusters, rng)
        return known[key]

    seams.set(monkeypatch, "cells.decode_cells", decode_once)

    def learn(released, *choices, **named):
        key = released.sums.tobytes()
        if key not in known:
            known[key] = ps.learn_kmeans(released, *choices, **named)
        return known[key]

    for module in (kmeans, pipeline, sparse_start):
        monkeypatch.setattr(module, "learn_kmeans", learn)


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def with_zeros(X):
    """Entries stored in two parts, and zeros that are stored."""
    rows, columns = np.indices(X.shape).reshape(2, -1)
    parts = np.concatenate([X.ravel() / 2, X.ravel() / 2])
    places = (np.tile(rows, 2), np.tile(columns, 2))
    return sp.coo_matrix((parts, places), shape=X.shape)


WORDS = {
    "float32": lambda X: X.astype(np.float32),
    "read-only": read_only,
    "by columns": np.asfortranarray,
    "frame": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "coo_array": sp.coo_array,
    "coo_matrix, in parts": with_zeros,
}


def halves(n_records):
    """Records of which every second entry is 0 and which have an exact 32-bit form."""
    X = np.rint(records(n_records, seed=4) * 2**12) / 2**12
    X[:, ::2][np.arange(n_records) % 2 == 0] = 0.0
    return X


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("method", NAMED)
def test_the_same_records_ask_the_same_questions(method, learned_once, same_draws):
    X = halves(200)
    tape, first = recorded(X, method=method)
    for say in WORDS.values():
        table = say(X)
        require_same(first, replayed(tape, table, method=method))
        np.testing.assert_array_equal(first.predict(table), first.predict(X))
    require_same(first, replayed(tape, X, method=method, n_threads=3))


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("method", ["pipeline", "partition-tree"])
def test_sparse_centers_of_all_formats(method, neighbours, learned_once):
    X = halves(200)
    options = {"method": method, "n_nonzero": 2, "neighbours": neighbours}
    tape, first = recorded(X, **options)
    for name in ("csr_array", "csc_matrix", "coo_array", "coo_matrix, in parts", "frame"):
        require_same(first, replayed(tape, WORDS[name](X), **options))
    assert first.receipt_.neighbours == neighbours
    assert first.receipt_.delta == (0.0 if method == "partition-tree" else 1e-6)
    # Of more entries than that the largest count.
    largest = np.where(np.argsort(np.argsort(-np.abs(X), axis=1, kind="stable")) < 2, X, 0.0)
    assert (largest != X).any()
    require_same(first, replayed(tape, largest, **options))


@pytest.mark.parametrize("method", NAMED)
def test_missing_values_are_at_the_center(method, spent, learned_once, same_draws):
    X = halves(200)
    X[3], X[5, 1], X[7, 0] = np.nan, np.inf, -np.inf
    filled = np.where(np.isfinite(X), X, 0.5)
    options = {"method": method, "domain": ps.Box(-1, 2)}
    with pytest.raises(RecordError, match="missing"):
        fitted(X, **options)
    assert spent == []
    tape, first = recorded(filled, **options)
    found = replayed(tape, X, missing="center", **options)
    require_same(first, found)
    np.testing.assert_array_equal(found.predict(X), first.predict(filled))


@pytest.mark.parametrize("method", NAMED)
def test_names_of_columns_reach_the_model(method, tmp_path):
    frame = pd.DataFrame(records(200), columns=["age", "bmi", "dose", "time"])
    found = fitted(frame, method=method).model_
    assert found.columns == ("age", "bmi", "dose", "time")
    found.save(tmp_path / "model.json")
    assert type(found).load(tmp_path / "model.json").columns == found.columns
    assert fitted(records(200), method=method).model_.columns is None


# --- the number of records ----------------------------------------------------------------------

LENGTHS = [
    (4, {"method": "auto"}),  # cells
    (12, {"method": "auto"}),  # the pipeline
    (4, {"method": "pipeline"}),
    (12, {"method": "pipeline", "delta": 0.0}),
    (4, {"method": "pipeline", "n_nonzero": 2}),
    (12, {"method": "partition-tree"}),
    (12, {"method": "partition-tree", "n_nonzero": 2}),
    (4, {"method": "lloyd"}),
    (12, {"method": "lloyd", "delta": 0.0}),
    (4, {"method": "grid"}),
    (4, {"method": "sample-aggregate"}),
    (12, {"method": "sample-aggregate", "delta": 0.0}),
    (4, {"method": "k-variates"}),
    (12, {"method": "k-variates", "delta": 0.0}),
]


@pytest.mark.slow
@pytest.mark.mostly_slow(quick_every=5)
@pytest.mark.parametrize(("dim", "options"), LENGTHS)
def test_nothing_but_the_noise_knows_the_number_of_records(dim, options):
    """Ten records more: the same questions, and with the same answers the same model."""
    X = np.tile(records(210), (1, dim // 4)) / math.sqrt(dim / 4)
    number = 100 if options["method"] == "grid" else None  # a grid needs one
    options = {"epsilon": 4.0, **options, "n_records": number}
    tape, first = recorded(X[:200], **options)
    require_same(first, replayed(tape, X, same_values=False, **options))


@pytest.mark.parametrize("method", ["pipeline", "partition-tree"])
def test_a_number_taken_from_the_table_is_noticed(method):
    X = records(2000)
    options = {"method": method, "epsilon": 4.0}  # more would be shared in one way for both
    tape, _ = recorded(X[:200], n_records=200, **options)
    with pytest.raises(AssertionError, match=r"another law|questions than before"):
        replayed(tape, X, same_values=False, n_records=2000, **options)


@pytest.mark.parametrize("dim", [2, 12])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_choice_knows_the_number_of_records_if_it_is_public(neighbours, dim, monkeypatch):
    told = []

    def listening(method, **facts):
        told.append(facts)
        return Choice("lloyd", "it is quick")

    seams.set(monkeypatch, "kmeans.choose_method", listening)
    for n in (20, 70):
        fitted(np.zeros((n, dim)), n_records=None, neighbours=neighbours)
        fitted(np.zeros((n, dim)), n_records=5e6, neighbours=neighbours)
    public = [20, 5e6, 70, 5e6] if neighbours == "replace" else [None, 5e6, None, 5e6]
    assert [facts.pop("n_records") for facts in told] == public
    assert all(facts == told[0] for facts in told)


def test_public_numbers_decide_what_auto_does(blobs):
    facts = {"n_records": None, "delta": 0.0, "epsilon": 3.0}
    tables = np.tile(blobs[:9], 2), np.tile(blobs, 2)
    few, many = (fitted(X, neighbours="replace", **facts) for X in tables)
    assert "around the mean of all records, 0 rounds" in few.receipt_.mechanism
    assert "of which look for clusters" in many.receipt_.mechanism


def test_a_sketch_is_planned_for_the_public_number(blobs):
    found = fitted(blobs, method="sketch", n_records=None, neighbours="replace")
    assert found.sketch_.design.n_records == len(blobs)
