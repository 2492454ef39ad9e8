"""One record more, less or another, in X or in y: regressions ask the same, and learn the same.

Bounds and labels that were read off y would be caught: planted estimators that do are.
"""

from collections import deque

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch.testing import replay
from tests.privacy import odd_records

pytestmark = pytest.mark.filterwarnings("ignore")
BUDGETS = {"gaussian": (1.0, 1e-6), "pure": (1.0, 0.0)}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.5, 1.5, (60, 2))
LABELS = RNG.choice(["a", "b", "c"], 60)


def estimators(neighbours, budget):
    epsilon, delta = budget
    facts = {"epsilon": epsilon, "delta": delta, "domain": ps.Box(-1, 1), "neighbours": neighbours}
    facts |= {"missing": "center", "random_state": 0, "n_records": 60}
    classes = ["c", "a", "b"]
    return {
        "linear": (ps.PrivateLinearRegression(target=(-2, 2), **facts), X @ [0.5, -1.0]),
        "several": (ps.PrivateLogisticRegression(classes=classes, **facts), LABELS),
        "two": (ps.PrivateLogisticRegression(classes=["a", "z"], **facts), np.full(60, "a")),
    }


def odd_targets(name):
    """Targets of one record: at the bounds and beyond, any label, and none."""
    if name == "linear":
        return [-2.0, 2.0, 1e300, -1e300, 0.0]
    return ["a", "z"] if name == "two" else ["a", "b", "c", "new", "other", "missing"]


def pairs(name, y, neighbours):
    """Yield neighbouring tables, each a pair of X and y."""
    rows = [X[0], np.array([1.0, -1.0]), np.array([1e300, -1e300]), np.array([np.nan, np.inf])]
    is_open = neighbours == "add-remove"
    base = (X, y) if is_open else (X[1:], y[1:])
    for row in rows:
        for target in odd_targets(name):
            ys = np.append(base[1].astype(object), target)
            ys = ys.astype(float) if name == "linear" else ys.astype(str)
            yield (X, y), (np.vstack([base[0], row]), ys)
    if is_open:
        yield (X, y), (X[:-1], y[:-1])
        yield (X[:1], y[:1]), (X[:0], y[:0])


def same(one, other):
    texts = one.describe(), other.describe()
    assert texts[0] == texts[1]
    assert (one.coef == other.coef).all()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("name", ["linear", "several", "two"])
def test_neighbours_ask_the_same_within_the_budget(name, budget, neighbours):
    estimator, y = estimators(neighbours, budget)[name]
    moves = []
    for table, neighbour in pairs(name, y, neighbours):
        replayed = replay(lambda pair: estimator.fit(*pair).model_, table, neighbour)
        assert len(replayed.laws) <= 2
        same(replayed.first, replayed.second)
        moves.append(replayed.largest_move)
    assert max(moves) > 0.2


class ReadsBounds(ps.PrivateLinearRegression):
    def fit(self, X, y):
        self.target = (float(np.min(y)), float(np.max(y)))
        return super().fit(X, y)


class ReadsClasses(ps.PrivateLogisticRegression):
    def fit(self, X, y):
        self.classes = np.unique(y).tolist()
        return super().fit(X, y)


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize(("name", "planted"), [("linear", ReadsBounds), ("several", ReadsClasses)])
def test_what_is_read_off_y_is_caught(name, planted, budget):
    estimator, y = estimators("add-remove", budget)[name]
    reading = planted(**estimator.get_params())

    def run_all():
        for table, neighbour in pairs(name, y, "add-remove"):
            replayed = replay(lambda pair: reading.fit(*pair).model_, table, neighbour)
            same(replayed.first, replayed.second)

    with pytest.raises((AssertionError, ps.PrivsketchError)):
        run_all()


def test_no_target_stops_a_release_by_total_rules():
    """Whatever stands in y, and in X beside it: by rules of a schema nothing is refused."""
    columns = {
        ps.PrivateLinearRegression: ps.Number("target", -1, 1),
        ps.PrivateLogisticRegression: ps.Flag("target"),
    }
    rng, odd = odd_records.random.Random(0), [None, object(), [1], {"a": 1}, b"x", 1 + 2j, 10**400]
    odd += ["", "x", "1e999", "nan", np.nan, np.inf, pd.NaT, odd_records.Stubborn(), "\ud800"]
    for kind, target in columns.items():
        schema = ps.Schema([ps.Number("x", -1, 1)], missing="drop", unreadable="missing")
        estimator = kind(epsilon=1.0, delta=1e-6, domain=schema, target=target, random_state=0)
        for cell in odd:
            good = [0.0, 1.0, 0.0, 1.0]
            place = rng.randint(0, 4)
            cells = [*good[:place], cell, *good[place:]]
            rows = [[0.5], [0.25], [-0.5], [0.0], [1.0]]
            designs = set()
            for table in (rows, pd.DataFrame(rows, columns=["x"]), np.array(rows)):
                designs.add(estimator.fit(table, cells).sketch_.design.fingerprint)
            wanted = estimator.fit([r for i, r in enumerate(rows) if i != place], good)
            assert designs == {wanted.sketch_.design.fingerprint}


@pytest.mark.parametrize("kind", [ps.PrivateLinearRegression, ps.PrivateLogisticRegression])
def test_errors_say_nothing_of_the_record(kind):
    facts = {"target": (-1, 1)} if kind is ps.PrivateLinearRegression else {"classes": ["a", "b"]}
    estimator = kind(epsilon=1.0, delta=1e-6, domain=ps.Box(-1, 1), **facts)
    texts = set()
    for n, cell in ((5, "secret-1"), (50, "secret-2"), (7, "4711 ")):
        with pytest.raises(ps.RecordError) as error:
            estimator.fit(np.zeros((n, 2)), [0.0] * (n - 1) + [cell])
        texts.add(str(error.value))
    assert len(texts) == 1


TRUTHS = [True, False, True, True, False, True]


@pytest.mark.parametrize("odd", [2, "x", None, np.nan], ids=str)
@pytest.mark.parametrize("classes", [[0, 1, 2], [0, 1], [False, True]], ids=str)
@pytest.mark.parametrize("holder", [pd.Series, deque, list, "category"])
def test_one_cell_does_not_change_how_others_are_read(holder, classes, odd):
    def held(cells):
        if holder == "category":
            return pd.Series(cells, dtype="category")
        return holder(cells)

    schema = ps.Schema([ps.Number("x", -1, 1)], missing="drop", unreadable="missing")
    estimator = ps.PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, domain=schema, classes=classes, random_state=0
    )
    rows = np.linspace(-1, 1, 7)[:, np.newaxis]
    table, neighbour = (rows[:6], held(TRUTHS)), (rows, held([*TRUTHS, odd]))
    replayed = replay(lambda pair: estimator.fit(*pair).model_, table, neighbour)
    same(replayed.first, replayed.second)


def test_complex_categories_are_read_as_numbers():
    schema = ps.Schema([ps.Number("x", -1, 1)], missing="drop", unreadable="missing")
    estimator = ps.PrivateLinearRegression(
        epsilon=1.0, delta=1e-6, domain=schema, target=(-1, 1), random_state=0
    )
    rows, cells = np.linspace(-1, 1, 7)[:, np.newaxis], [0.5, -0.5, 0.25, 0.5, 0.0, 1.0]
    pair = [
        (rows[:6], pd.Series(cells, dtype="category")),
        (rows, pd.Series([*cells, 1 + 2j], dtype="category")),
    ]
    replayed = replay(lambda pair: estimator.fit(*pair).model_, *pair)
    same(replayed.first, replayed.second)


def test_errors_tell_no_number_of_records():
    estimator = estimators("add-remove", BUDGETS["gaussian"])["linear"][0]
    for odd in (np.zeros((53, 2)), np.zeros((53, 1, 2)), np.array(53), object(), {53: 1}):
        with pytest.raises(ps.PrivsketchError) as refused:
            estimator.fit(np.zeros((53, 2)), odd)
        assert "53" not in str(refused.value)
    texts = pd.Series(["a" * 53, "\ud800"], dtype=object).to_numpy().astype(str)
    with pytest.raises(ps.PrivsketchError) as refused:
        estimator.fit(np.zeros((2, 2)), texts)
    assert "53" not in str(refused.value)
