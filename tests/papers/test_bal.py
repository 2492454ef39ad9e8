"""Figure 2 of BAL: records, paid rounds, medians of runs, and words that say what was measured."""

import gzip
import math

import numpy as np
import pytest

import privsketch as ps
from papers.bal import methods as bal_methods
from papers.bal import panels as bal_panels
from papers.bal import runs as bal_runs
from papers.bal import setting as bal_setting
from papers.bal.methods import METHODS, NO_PRIVACY, Method, paid_rounds, tree
from papers.bal.setting import Records, gaussians, objective
from privsketch import ClusterModel, FileError, ParameterError


def small(n_records=4000, seed=1):
    """Four far clusters in a ball of radius 10 about (1, ..., 1)."""
    rng = np.random.default_rng(seed)
    middles = np.array([[4.0, 0, 0], [-4, 0, 0], [0, 4, 0], [0, -4, 1]]) + 1
    table = middles[rng.integers(4, size=n_records)] + 0.3 * rng.normal(size=(n_records, 3))
    ball = ps.Ball(dim=3, radius=10.0, center=1.0)
    return Records("four", table, ball, ps.Box(low=-9.0, high=11.0, dim=3)), middles


def test_the_mixture_is_as_described():
    records = gaussians(20_000, 100, 64)
    assert records.size == (20_000, 100)
    # Centres that generate them cost d width^2 = 1/64 a record; 2e6 squares of normal numbers
    # vary by sqrt(2 / 2e6) = 0.001: 1 % is ten standard errors. 64 fitted means take 0.3 %.
    centers = bal_setting.without_privacy(records.table, 64, 0)
    lengths = np.linalg.norm(centers, axis=1)
    assert lengths.max() < 1.01
    assert np.linalg.norm(records.table - records.table.mean(axis=0), axis=1).mean() > 0.9
    rng = np.random.default_rng(bal_setting._SEED)
    ways = rng.normal(size=(64, 100))
    true = ways / np.linalg.norm(ways, axis=1, keepdims=True) * rng.random((64, 1)) ** 0.01
    assert objective(records.table, true) / 20_000 == pytest.approx(1 / 64, rel=0.01)


def test_the_objective_is_the_sum_over_all_pairs():
    rng = np.random.default_rng(2)
    table, centers = rng.normal(size=(12_345, 3)), rng.normal(size=(5, 3))
    every = np.square(table[:, np.newaxis] - centers).sum(axis=2)
    assert objective(table, centers) == pytest.approx(every.min(axis=1).sum(), rel=1e-12)


def test_rounds_without_noise_are_lloyds():
    records, middles = small()
    begin = middles + 0.5
    receipt = tree(records, 4, 1.0, 0).receipt
    model = ClusterModel(begin, np.full(4, 0.25), 4000.0, receipt, method="partition-tree")
    found = paid_rounds(records, model, ps.Budget(100.0, 1e-2), 2).centers
    centers = begin
    for _ in range(2):
        squares = np.square(records.table[:, np.newaxis] - centers).sum(axis=2)
        label = squares.argmin(axis=1)
        centers = np.array([records.table[label == j].mean(axis=0) for j in range(4)])
    # Two rounds of rho = 33 each: noise of 10 / sqrt(66) on sums of 1000 records is 0.0012 in a
    # mean, and that of the count as much; 0.1 is beyond any chance.
    assert found == pytest.approx(centers, abs=0.1)
    assert np.abs(begin - centers).max() > 0.3


def test_rounds_are_paid_for():
    # The paper's are not: both parts of the receipt add up to the whole budget.
    records, _ = small(500)
    model = bal_methods.tree_and_rounds(records, 4, 1.0, 0)
    first, then = model.receipt.parts
    assert (first.epsilon, first.delta) == pytest.approx((0.5, 0.0), abs=1e-12)
    assert (then.epsilon, then.delta) == (0.5, bal_methods.DELTA)
    assert len(then.parts) == bal_methods.ROUNDS_AFTER
    assert 0.99 < model.receipt.epsilon <= 1.0
    assert model.receipt.delta == bal_methods.DELTA


def test_centers_stay_in_the_ball():
    # At a tiny epsilon noise would carry them out.
    records, _ = small(50)
    model = bal_methods.tree_and_rounds(records, 4, 0.01, 0)
    assert np.linalg.norm(model.centers - 1.0, axis=1).max() <= 10.0 + 1e-9
    assert model.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_method_spends_more_than_its_budget(method):
    records, _ = small(300)
    receipt = method.fit(records, 3, 0.7, 5).receipt
    assert 0.69 < receipt.epsilon <= 0.7
    assert receipt.delta == method.delta


def given(centers, epsilon=1.0, delta=0.0):
    """A method that has its answers ready, and says that they cost this much."""
    answers = iter(centers)
    receipt = tree(small(20)[0], 2, epsilon, 0).receipt

    def fit(records, n_clusters, asked, seed):
        found = np.asarray(next(answers), dtype=float)
        weights = np.full(len(found), 1 / len(found))
        return ClusterModel(found, weights, 1.0, receipt, method="lloyd")

    return Method("given", delta, fit)


def rows_of(monkeypatch, method, n_runs):
    """Rows of one place, for k-means and for a method."""
    monkeypatch.setattr(bal_runs, "METHODS", (method,))
    records, middles = small(200)
    monkeypatch.setattr(bal_runs, "records_of", lambda data, size: records)
    rows = [
        row
        for name in (NO_PRIVACY, method.name)
        for run in range(n_runs)
        for row in bal_runs.run_rows("four", [], 4, 1.0, name, run)
    ]
    return bal_runs.summary(rows), middles


def test_rows_are_medians_and_quartiles(monkeypatch):
    # All centres moved by t along an axis: cost grows by n t^2 around means; exact by brute force.
    records, middles = small(200)
    moved = [middles + t for t in (0.5, 0.1, 0.4, 0.2, 0.3)]
    rows, _ = rows_of(monkeypatch, given(moved), 5)
    plain, row = rows
    costs = sorted(
        np.square(records.table[:, np.newaxis] - c).sum(axis=2).min(axis=1).sum() for c in moved
    )
    assert (plain["method"], plain["rsse_low"]) == (NO_PRIVACY, pytest.approx(1.0, abs=1e-6))
    for name, cost in zip(("low", "", "high"), (costs[1], costs[2], costs[3]), strict=True):
        suffix = f"_{name}" if name else ""
        assert row[f"objective{suffix}"] == pytest.approx(cost)
        assert row[f"rsse{suffix}"] == pytest.approx(cost / plain["objective"], rel=1e-3)


def test_a_method_that_spends_too_much_is_an_error(monkeypatch):
    _, middles = small(200)
    with pytest.raises(ParameterError, match="given"):
        rows_of(monkeypatch, given([middles], epsilon=2.0), 1)


def test_a_method_that_refuses_is_left_out_with_its_reason(monkeypatch):
    def refuse(*arguments):
        raise ParameterError("delta=0: not for this method")

    rows, _ = rows_of(monkeypatch, Method(bal_methods.PURE_PIPELINE, 0.0, refuse), 2)
    assert math.isnan(rows[1]["objective"])
    assert rows[1]["runs"] == 0
    assert "Not run: our pipeline, pure, delta=0: not for this method" in bal_panels.comparison(
        rows
    )
    assert "our pipeline" not in bal_panels.table(rows)
    bal_panels.figure(rows)


def test_words_count_who_wins():
    def row(method, k, rsse):
        return {
            **{"data": "x", "records": 10, "columns": 2, "k": k, "epsilon": 1.0, "delta": 0.0},
            **{"method": method, "runs": 1, "note": ""},
            **{f"{a}{b}": rsse for a in ("objective", "rsse") for b in ("", "_low", "_high")},
        }

    rows = []
    for k, (own, pure, ours) in {
        2: (3.0, 2.0, 1.1),
        4: (3.0, 4.0, 1.2),
        8: (3.0, 5.0, 6.0),
    }.items():
        rows += [row(NO_PRIVACY, k, 1.0), row(bal_methods.TREE, k, own)]
        rows += [row(bal_methods.PURE_SULQ, k, pure), row(bal_methods.PIPELINE, k, ours)]
    words = bal_panels.comparison(rows)
    assert "BAL corrected has the smaller median than SuLQ, Laplace in 2 of 3 cells" in words
    assert "our pipeline than all of them in 2 of 3 cells" in words
    assert "1.100 to 6.00 for our pipeline" in words


def write_images(folder, counts, cut=0):
    for name, count in zip(bal_setting._PARTS, counts, strict=True):
        pixels = np.arange(count * 784, dtype=np.uint8).tobytes()
        content = gzip.compress(b"\0" * 16 + pixels)
        (folder / name).write_bytes(content[: len(content) - cut])


def test_fashion_mnist_is_read_if_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(bal_setting, "FASHION", tmp_path)
    bal_setting.fashion_mnist.cache_clear()
    assert not bal_setting.has_fashion_mnist()
    write_images(tmp_path, (3, 2))
    assert bal_setting.has_fashion_mnist()
    records = bal_setting.fashion_mnist()
    bal_setting.fashion_mnist.cache_clear()
    assert records.size == (5, 784)
    assert records.table[0, :3].tolist() == [0.0, 1.0, 2.0]
    assert records.table[1, 0] == 784 % 256


def test_a_broken_file_of_images_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bal_setting, "FASHION", tmp_path)
    bal_setting.fashion_mnist.cache_clear()
    write_images(tmp_path, (1, 1), cut=20)
    with pytest.raises(FileError, match="train-images"):
        bal_setting.fashion_mnist()


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("effort", ["full", "quick"])
def test_panels_use_what_is_installed(installed, effort, monkeypatch):
    monkeypatch.setattr(bal_runs, "has_fashion_mnist", lambda: installed)
    images = [cell.parameters for cell in bal_runs.image_cells(effort)]
    epsilons = [cell.parameters for cell in bal_runs.epsilon_cells(effort)]
    assert any(one["data"] == "fashion" for one in images) == installed
    assert {one["data"] for one in epsilons} == {"fashion" if installed else "digits"}
    if effort == "full":
        assert {one["k"] for one in images} == set(bal_setting.SIZES)
        assert {one["epsilon"] for one in epsilons} == set(bal_runs.EPSILONS)


@pytest.mark.parametrize(
    "cells", [bal_runs.synthetic_cells, bal_runs.image_cells, bal_runs.epsilon_cells]
)
def test_every_place_has_all_methods_and_k_means_once(cells):
    asked = [cell.parameters for cell in cells("full")]
    methods = {method.name for method in METHODS}
    for place in {(one["data"], one["k"], one["epsilon"]) for one in asked}:
        own = [one for one in asked if (one["data"], one["k"], one["epsilon"]) == place]
        found = {one["method"] for one in own} - {NO_PRIVACY}
        assert found == methods
        assert {one["run"] for one in own} == set(range(bal_runs._RUNS["full"]))
    plain = [(one["data"], one["k"], one["run"]) for one in asked if one["method"] == NO_PRIVACY]
    assert len(set(plain)) == len(plain)
    assert {one[:2] for one in plain} == {(one["data"], one["k"]) for one in asked}


def test_k_means_without_privacy_is_shown_at_every_epsilon():
    def row(method, epsilon, objective):
        return {
            **{"data": "x", "records": 10, "columns": 2, "k": 2, "epsilon": epsilon},
            **{"method": method, "delta": 0.0, "objective": objective, "note": ""},
        }

    found = [row(NO_PRIVACY, 1.0, 5.0), row(NO_PRIVACY, 1.0, 4.0), row("a", 1.0, 8.0)]
    rows = bal_runs.summary([*found, row("a", 2.0, 6.0)])
    assert [(one["method"], one["epsilon"], one["rsse"], one["runs"]) for one in rows] == [
        (NO_PRIVACY, 1.0, 1.125, 2),
        ("a", 1.0, 2.0, 1),
        (NO_PRIVACY, 2.0, 1.125, 2),
        ("a", 2.0, 1.5, 1),
    ]
