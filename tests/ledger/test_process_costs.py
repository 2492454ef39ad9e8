"""Estimators that fit again on the same records say so, and the total when the work is done."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privsketch as ps
from privsketch.ledger import ProcessCosts
from tests import seams

BOX = ps.Box(-1, 1, dim=2)


@pytest.fixture(autouse=True)
def new_tally(monkeypatch):
    seams.set(monkeypatch, "entry.PROCESS_COSTS", ProcessCosts())


def records(seed, count=2000):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2))


def estimator(**options):
    return ps.PrivateKMeans(
        2, epsilon=0.5, delta=1e-6, domain=BOX, n_records=2000, random_state=0, **options
    )


def told(work):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in found if "every fit is a release" in str(one.message)]


@pytest.mark.parametrize("method", ["sketch", "pipeline"])
def test_one_fit_says_nothing_and_the_second_the_total(method):
    model, X = estimator(method=method), records(0)
    assert told(lambda: model.fit(X)) == []
    (words,) = told(lambda: clone(model).fit(X[::-1]))
    assert "2 times" in words
    assert "epsilon = 1, delta = 2e-06" in words
    assert told(lambda: clone(model).fit(X)) == []  # once
    assert told(lambda: [model.fit(records(1)) for _ in range(2)]) == []  # nor of others alike


@pytest.mark.slow
@pytest.mark.parametrize("folds", [2, 5])
def test_a_search_says_it_once(folds):
    """The two folds of a half each have no record in common, and both are fitted again."""
    X = records(2)
    search = GridSearchCV(estimator(method="sketch"), {"n_clusters": [2, 3]}, cv=KFold(folds))
    (words,) = told(lambda: search.fit(X))
    assert "2 times" in words
    assert np.isfinite(search.best_score_)


def test_a_search_says_its_total_at_the_end():
    """Six fits of two thirds of the records, and one of all."""
    X, costs = records(5), seams.get("entry.PROCESS_COSTS")
    search = GridSearchCV(estimator(method="sketch"), {"n_clusters": [2, 3]}, cv=KFold(3))
    told(lambda: search.fit(X))
    (words,) = costs.totals()
    assert "7 times" in words
    assert "epsilon = 3.5, delta = 7e-06." in words
    assert costs.totals() == []  # nothing was added since


def test_the_total_is_printed_when_the_process_ends():
    script = (
        "import numpy as np, privsketch as ps\n"
        "X = np.zeros((100, 1))\n"
        "for _ in range(3):\n"
        "    ps.PrivateKMeans(1, epsilon=0.5, delta=0, domain=ps.Box(-1, 1), method='lloyd',\n"
        "                     n_records=100).fit(X)\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "done\n"
    first, last = done.stderr.index("2 times"), done.stderr.index("3 times")
    assert first < last
    assert "epsilon = 1.5, delta = 0" in done.stderr


def test_a_pipeline_and_halves():
    X = records(3)
    steps = make_pipeline(FunctionTransformer(), estimator(method="sketch"))
    assert told(lambda: steps.fit(X)) == []
    assert len(told(lambda: steps.fit(X))) == 1
    # Disjoint halves hold different records: their costs do not add up.
    model, Y = estimator(method="sketch"), records(4)
    assert told(lambda: (model.fit(Y[:1000]), clone(model).fit(Y[1000:]))) == []


def test_other_kinds_of_estimators_count_too():
    X = records(5)
    rows = ps.PrivateProjection(1, epsilon=1, delta=1e-6, domain=BOX, calibration="realised")
    assert told(lambda: rows.fit_transform(X)) == []
    assert len(told(lambda: rows.transform(X))) == 1
    # Rows hide what a record says, sketches whether it is there: these costs have no sum.
    assert told(lambda: estimator(method="sketch").fit(X)) == []


def test_a_ledger_counts_as_well(tmp_path):
    ps.Ledger.create(tmp_path / "l").add("x", epsilon=10, delta=1e-3)
    model, X = estimator(method="sketch", ledger=(tmp_path / "l", "x")), records(6)
    assert told(lambda: model.fit(X)) == []
    assert len(told(lambda: model.fit(X))) == 1


def test_functions_that_are_called_for_one_release_do_not_count():
    design = ps.Design.plan(n_components=2, domain=BOX, budget=ps.Budget(1.0, 1e-6))
    X = records(7)
    assert told(lambda: [ps.sketch(X, design) for _ in range(3)]) == []
