"""Tiny budgets and very many clusters: an answer in words, or a refusal that costs nothing."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.clustering import Run
from privsketch.testing import questions

TABLE = np.random.default_rng(0).uniform(-1, 1, (2000, 2))


def facts(epsilon=1.0, delta=1e-6):
    return {"epsilon": epsilon, "delta": delta, "domain": ps.Box(-1, 1), "random_state": 0}


@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
@pytest.mark.parametrize("epsilon", [1e-8, 1e-9, 1e-12])
def test_cells_say_of_a_tiny_budget_that_noise_decided(epsilon):
    model = ps.PrivateKMeans(3, method="cells", **facts(epsilon)).fit(TABLE)
    assert model.concerns_[0].startswith("noise decided")


@pytest.mark.filterwarnings("ignore::privsketch.PrivsketchWarning")
def test_a_noisy_number_of_records_is_one_that_plans_take():
    """The noise of this budget exceeds the largest number that a plan is made for."""
    for _ in range(5):
        run = Run(TABLE, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1e-15, 0.0))
        assert 1 <= run.number(run.read()) <= 2.0**36


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ps.PrivateKMeans, {"method": "cells"}),
        (ps.PrivateKMeans, {"method": "sketch"}),
        (ps.PrivateKMeans, {"method": "partition-tree"}),
        (ps.PrivateKMedians, {}),
        (ps.PrivateKMedians, {"method": "partition-tree"}),
        (ps.PrivateGaussianMixture, {}),
    ],
)
def test_more_clusters_than_a_search_finds_in_time_are_refused_before_a_release(kind, options):
    def fit():
        with pytest.raises(ps.ParameterError, match=r"=1000.*takes? minutes.*method='pipeline'"):
            kind(1000, **options, **facts()).fit(TABLE)

    assert questions(fit) == []


def test_so_is_the_largest_number_of_auto():
    model = ps.PrivateKMeans("auto", options={"max_clusters": 1000}, **facts())
    with pytest.raises(ps.ParameterError, match="max_clusters=1000"):
        model.fit(TABLE)


def test_no_search_is_made_for_a_mixture_that_would_take_minutes():
    design = {"domain": ps.Box(-1, 1, dim=2), "budget": ps.Budget(1.0, 1e-6)}
    with pytest.raises(ps.ParameterError, match="at most 200"):
        ps.Design.plan(task="gaussian-mixture", n_components=201, **design)
    sketch = ps.sketch(TABLE, ps.Design.plan(n_components=250, **design))
    with pytest.raises(ps.ParameterError, match="at most 200"):
        ps.learn_gaussian_mixture(sketch, covariance_type="spherical")
