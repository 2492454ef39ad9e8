"""Methods that release places: what sample-aggregate and k-variates have in common."""

import re
import warnings

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError, RecordError
from privsketch.clustering import clustered
from privsketch.clustering.baselines import aggregate, variates

METHODS = {"sample-aggregate": aggregate.cluster, "k-variates": variates.cluster}
LINE = ps.Box(-1, 1, dim=1)
DOMAINS = [ps.Box([-1, 0], [1, 30]), ps.Ball(2, 3.0, [1.0, -2.0]), ps.Box(-4, 4, dim=2)]
ODD_TABLES = {
    "empty": np.zeros((0, 2)),
    "one missing record": np.full((1, 2), np.nan),
    "all missing": np.full((30, 2), np.nan),
    "far out": np.tile([[1e300, -1e300]], (50, 1)),
}


@pytest.fixture(params=METHODS.values(), ids=METHODS)
def method(request):
    return request.param


@pytest.mark.parametrize("table", ODD_TABLES.values(), ids=ODD_TABLES)
@pytest.mark.parametrize("noise", ["laplace", "cube", "gaussian"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_odd_tables_give_a_model_in_the_domain_without_a_word(method, domain, noise, table):
    budget = ps.Budget(1.0, 1e-6 if noise == "gaussian" else 0.0)
    options = {"noise": noise}
    if method is aggregate.cluster:
        options["n_blocks"] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = ps.Table(table, missing="center")
        model = clustered(method, table, 3, domain=domain, budget=budget, **options)
    np.testing.assert_allclose(domain.project(model.centers), model.centers, atol=1e-9)
    np.testing.assert_array_equal(model.weights, np.full(3, 1 / 3))
    by_noise, equal_shares = model.concerns
    assert by_noise.startswith("noise decided where the clusters lie")
    assert equal_shares == "weights are equal shares: this method releases none"


REFUSED = [
    ({"noise": "laplace-joint"}, "noise='laplace-joint': expected one of 'laplace', 'cube'"),
    ({"noise": "gaussian"}, "delta=0 with noise='gaussian'"),
    ({"n_clusters": 0}, "n_clusters=0"),
    ({"n_records": -3}, "n_records=-3"),
]
BLOCKS = [
    ({"n_blocks": 0}, "n_blocks=0"),
    ({"n_blocks": 2001}, "n_blocks=2001: expected at most 2000"),
]


@pytest.mark.parametrize(
    ("cluster", "options", "words"),
    [
        *((cluster, *case) for cluster in METHODS.values() for case in REFUSED),
        *((aggregate.cluster, *case) for case in BLOCKS),
    ],
)
def test_refusals(cluster, options, words, spent):
    choices = {"n_clusters": 2, "domain": LINE, "budget": ps.Budget(1.0), **options}
    with pytest.raises(ParameterError, match=re.escape(words)):
        clustered(cluster, np.zeros((5, 1)), **choices)
    assert spent == []


@pytest.mark.parametrize("n_records", [None, 9])
def test_missing_values_are_refused_before_anything_is_spent(method, n_records, spent):
    table, budget = np.array([[0.0], [np.nan]]), ps.Budget(1.0)
    with pytest.raises(RecordError, match="missing"):
        clustered(method, table, 1, domain=LINE, budget=budget, n_records=n_records)
    assert spent == []
