"""Clusters of tables with categories, flags and cycles, from sketches with a privacy budget."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch.learning import MIXED, decode_joint, predicted_ratio, problem_of
from privsketch.learning.concerns import concerns
from tests import seams

pytestmark = pytest.mark.usefixtures("fixed_noise")
SHARES = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.0, 1.0, 0.0]])  # of regions by cluster
SMOKERS = np.array([0.9, 0.1, 0.5])
MEANS = np.array([[20.0, 40.0], [50.0, 170.0], [80.0, 90.0]])
SCHEMA = ps.Schema(
    [
        ps.Number("age", 0, 100),
        ps.Category("region", ["north", "south"]),
        ps.Number("size", 0, 200),
        ps.Flag("smoker"),
    ]
)


def table_of(n_records=20_000, seed=0):
    """Return a table of three clusters, whose cells are independent given the cluster."""
    rng = np.random.default_rng(seed)
    cluster = rng.choice(3, n_records, p=[0.5, 0.3, 0.2])
    regions = np.array(["north", "south", "east"])
    labels = (np.cumsum(SHARES, axis=1)[cluster] < rng.random((n_records, 1))).sum(axis=1)
    numbers = MEANS[cluster] + [5, 10] * rng.standard_normal((n_records, 2))
    return pd.DataFrame(
        {
            "age": numbers[:, 0],
            "region": regions[np.minimum(labels, 2)],
            "size": numbers[:, 1],
            "smoker": rng.random(n_records) < SMOKERS[cluster],
        }
    )


BUDGETS = {"approximate": ps.Budget(1.0, 1e-6), "pure": ps.Budget(1.0)}


def sketch_of(table, schema=SCHEMA, budget="approximate", **options):
    design = ps.Design.plan(
        domain=schema,
        n_components=3,
        budget=BUDGETS[budget],
        n_records=len(table),
        random_state=1,
        **options,
    )
    return ps.sketch(table, design)


@pytest.mark.parametrize("budget", BUDGETS)
def test_shares_are_right_and_their_errors_hold(budget, monkeypatch):
    """The truth is that of the records nearest to a center. Gaussians were some 8 points off.

    Five errors have 1e-5 false alarms in 18 numbers.
    """
    table = table_of()
    sketch = sketch_of(table, budget=budget)
    model = ps.learn_kmeans(sketch, 3)
    records = ps.encode(table, SCHEMA)
    nearest = model.predict(records)
    truth = np.array([records[nearest == cluster].mean(axis=0) for cluster in range(3)])
    away = np.abs(model.centers - truth)
    assert np.all(away < 5 * model.standard_errors)
    is_label = ["=" in name or name == "smoker" for name in SCHEMA.coordinates]
    assert np.all(away[:, is_label] < 0.02)
    assert np.all(model.standard_errors[:, is_label] < 0.02)  # with what a fit may miss
    seams.set(monkeypatch, "clusters.errors_of", lambda model, shifts, excess, design: shifts)
    assert np.all(ps.learn_kmeans(sketch, 3).standard_errors[:, is_label] < 0.015)
    assert model.misfit < 1.2


def test_k_auto_counts_clusters_of_a_mixed_table():
    assert ps.learn_kmeans(sketch_of(table_of()), "auto").n_clusters == 3


def test_one_bit_sketches_know_labels_too():
    """Signs have harmonics, which labels and cycles have at multiples of the frequencies."""
    model = ps.learn_kmeans(sketch_of(table_of(), feature_map="one-bit"), 3)
    found = model.table().sort_values("age")
    assert np.all(np.abs(found["smoker"] - SMOKERS) < 0.08)
    assert model.misfit < 1.3


def test_a_table_of_labels_alone_has_clusters():
    columns = [column for column in SCHEMA.columns if not isinstance(column, ps.Number)]
    rng = np.random.default_rng(3)
    is_first = rng.random(20_000) < 0.7
    table = pd.DataFrame({"region": np.where(is_first, "north", "south"), "smoker": is_first})
    model = ps.learn_kmeans(sketch_of(table, ps.Schema(columns)), 2)
    found = model.table().sort_values("weight")
    np.testing.assert_allclose(found["smoker"], [0, 1], atol=0.02)
    np.testing.assert_allclose(found["region=north"], [0, 1], atol=0.02)
    np.testing.assert_allclose(found["weight"], [0.3, 0.7], atol=0.02)


def test_a_cycle_is_no_gaussian():
    """Hours spread over half of the day: the misfit of one Gaussian was XX."""
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Cycle("hour", 24)])
    rng = np.random.default_rng(4)
    is_first = rng.random(20_000) < 0.6
    table = pd.DataFrame(
        {
            "age": np.where(is_first, 30, 70) + 5 * rng.standard_normal(20_000),
            "hour": (np.where(is_first, 20.0, 8.0) + 2.3 * rng.standard_normal(20_000)) % 24,
        }
    )
    model = ps.learn_kmeans(sketch_of(table, schema), 2)
    assert model.misfit < 1.3
    found = model.table().sort_values("age")
    np.testing.assert_allclose(found["hour"], [20, 8], atol=0.5)
    np.testing.assert_allclose(found["age"], [30, 70], atol=1)


def test_a_problem_of_numbers_has_no_blocks():
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Number("size", 0, 200)])
    problem = problem_of(sketch_of(table_of()[["age", "size"]], schema))
    assert problem.layout is None
    solution = decode_joint(problem, 2, np.random.default_rng(0))
    assert solution.atoms.shares.shape == (2, 0)


def test_tables_with_labels_have_a_calibration_of_the_cost_of_their_own():
    sketch = sketch_of(table_of())
    model = ps.learn_kmeans(sketch, 3)
    foretold, _ = predicted_ratio(model, model.standard_errors, sketch)
    assert model.cost_ratio.estimate == pytest.approx(foretold.estimate, abs=0.01)
    ends = np.exp([MIXED.low[0], MIXED.high[-1]])
    assert ends[0] <= model.cost_ratio.low < 1.001 < model.cost_ratio.high < 1.2


def test_noise_that_hides_clusters_is_a_concern_at_any_cost():
    """Centers of a drowned table of labels may cost little, and shares are wrong all the same."""
    tiny = table_of(400)
    noisy = ps.learn_kmeans(sketch_of(tiny, budget="pure"), 3)
    good = replace(noisy, cost_ratio=ps.CostRatio(1.0, 0.99, 1.01))
    for model in (noisy, good):
        found = concerns(model, sketch_of(tiny, budget="pure"))
        assert any(text.startswith("noise decided") for text in found)
    assert not ps.learn_kmeans(sketch_of(table_of()), 3).concerns


def test_other_decoders_take_coordinates_of_labels_for_numbers():
    sketch = sketch_of(table_of(5000))
    model = ps.learn_kmeans(sketch, 3, decoder="cl-ompr", n_init=1)
    assert model.centers.shape == (3, SCHEMA.dim)
    assert np.all(np.abs(model.centers - SCHEMA.box.center_vector) <= SCHEMA.box.half_widths)
    problem = problem_of(sketch)
    assert problem.target().frequencies.shape[1] == 2
    assert problem.without_blocks().target().frequencies.shape[1] == SCHEMA.dim
