"""What models say of the number of records: noisy, public, or what the user stated."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.clustering import cluster_by_tree, cluster_medians, clustered
from privsketch.clustering.baselines import aggregate, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline

METHODS = {
    "lloyd": lloyd.cluster,
    "grid": grid.cluster,
    "sample-aggregate": aggregate.cluster,
    "k-variates": variates.cluster,
    "pipeline": pipeline.cluster,
    "partition-tree": cluster_by_tree,
    "rounds": cluster_medians,
}
N = 400


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return rng.choice([-0.5, 0.5], size=(N, 1)) + 0.05 * rng.normal(size=(N, 2))


@pytest.mark.parametrize("n_records", [None, 333.0])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("name", METHODS)
def test_a_number_is_what_it_is_called(name, neighbours, n_records, table):
    if name == "grid" and n_records is None:
        pytest.skip("a grid needs a number")
    budget = ps.Budget(5.0, 1e-6, neighbours)
    model = clustered(
        METHODS[name],
        table,
        2,
        domain=ps.Box(-1, 1, dim=2),
        budget=budget,
        n_records=n_records,
        random_state=0,
    )
    # A noisy number is whole only by chance: none of these methods rounds it to the truth.
    if model.count == "stated":
        assert model.n_records == n_records
    elif model.count == "public":
        assert neighbours == "replace"
        assert model.n_records == N
    else:
        assert model.count == "released"
    # Two methods release no number of their own: theirs is the one that the run has.
    has_own = name not in ("sample-aggregate", "k-variates")
    is_noisy = has_own or (n_records is None and neighbours == "add-remove")
    assert (model.count == "released") == is_noisy


@pytest.mark.parametrize("method", ["sample-aggregate", "k-variates"])
def test_estimators_call_a_public_number_public(method, table):
    settings = {"epsilon": 5.0, "delta": 1e-6, "domain": ps.Box(-1, 1), "method": method}
    model = ps.PrivateKMeans(2, neighbours="replace", **settings).fit(table).model_
    assert (model.n_records, model.count) == (N, "public")
    stated = ps.PrivateKMeans(2, neighbours="replace", n_records=300, **settings).fit(table).model_
    assert (stated.n_records, stated.count) == (300, "stated")
