"""Every method says that noise decided where it did, and nowhere else.

One rule for all of them: the cost ratio that is expected for the noise of the method and the
number of records that it released. benchmarks/drowned.py has hundreds of random studies. Numbers
of records here are so far from where noise decides that an error has a chance below 1e-6: noise
would have to be ten times as large or as small as it is.
"""

from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch.clustering import (
    cluster_medians,
    cluster_sparse,
    cluster_with,
    clustered,
    forecast_run,
)
from privsketch.pages.report.html import report_page

BOX = ps.Box(-1, 1, dim=2)
SKETCHES = {"fourier": "kmeans", "one-bit": "kmeans", "cells": "kmeans"}
READERS = ("pipeline", "cells", "partition-tree", "lloyd", "grid", "sample-aggregate", "k-variates")
METHODS = (
    *(f"sketch {name}" for name in SKETCHES),
    *("mixture", "components", "rounds", "median trees", "sparse"),
    *READERS,
)
NEVER_GOOD = ("k-variates", "sample-aggregate")  # their noise hides clusters of any such table


def table(n, dim=2):
    """Three clusters, or principal components that stand out."""
    rng = np.random.default_rng(n)
    centers = np.zeros((3, dim))
    centers[:, :2] = [[-0.6, -0.5], [0.5, -0.6], [0.1, 0.6]]
    spread = np.full(dim, 0.01)
    spread[:2] = 0.1
    return centers[rng.integers(3, size=n)] + spread * rng.standard_normal((n, dim))


def learned(method, n, epsilon, *, k=3, delta=1e-6, planned=1000):
    budget = ps.Budget(epsilon, delta)
    facts = {"domain": BOX, "budget": budget, "n_records": planned, "random_state": 0}
    if method.startswith("sketch"):
        feature_map = method.removeprefix("sketch ")
        design = ps.Design.plan(n_components=k, feature_map=feature_map, **facts)
        return ps.learn_kmeans(ps.sketch(table(n), design))
    if method == "mixture":
        design = ps.Design.plan(task="gaussian-mixture", n_components=k, **facts)
        return ps.learn_gaussian_mixture(ps.sketch(table(n), design), covariance_type="diag")
    if method == "components":
        facts["domain"] = ps.Ball(dim=4, radius=1.0)
        design = ps.Design.plan(task="pca", n_components=2, **facts)
        return ps.learn_pca(ps.sketch(table(n, 4), design))
    if method == "sparse":
        facts["domain"] = ps.Box(-1, 1, dim=30)
        return clustered(cluster_sparse, table(n, 30), k, n_nonzero=2, **facts)
    if method in ("rounds", "median trees"):
        name = "rounds" if method == "rounds" else "partition-tree"
        return clustered(cluster_medians, table(n), k, method=name, **facts)
    return cluster_with(method, table(n), k, **facts)


def says(model):
    return any(text.startswith("noise decided") for text in model.concerns)


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("method", METHODS)
class TestEveryMethod:
    @pytest.mark.parametrize("n", [0, 1, 2])
    def test_says_that_a_table_of_fewer_records_than_clusters_tells_nothing(self, method, n):
        assert says(learned(method, n, 3.0))

    def test_says_that_noise_decided(self, method):
        model = learned(method, 300, 0.05)
        assert says(model)
        assert not any("edge of the domain" in text for text in model.concerns)

    def test_does_not_say_so_where_it_did_not(self, method):
        if method not in NEVER_GOOD:
            assert not says(learned(method, 100_000, 3.0, planned=100_000))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_few_records_are_noticed_whatever_was_planned(neighbours, fixed_noise):
    """One record, as "replace" refuses an empty table."""
    budget = ps.Budget(1.0, 0.0, neighbours)
    facts = {"domain": BOX, "budget": budget, "random_state": 0}
    for method in ("pipeline", "cells", "lloyd"):
        for planned in (None, 1e5):
            model = cluster_with(method, np.zeros((1, 2)), 3, n_records=planned, **facts)
            assert says(model), (method, planned)


@pytest.mark.parametrize(
    ("method", "loss"),
    [
        ("pipeline", "squares"),
        ("cells", "squares"),
        ("partition-tree", "squares"),
        ("rounds", "distances"),
        ("partition-tree", "distances"),
    ],
)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_enough_records_are_where_the_forecast_turns_good(method, loss, delta):
    """The oracle is the forecast itself, at a number above the answer and at one below it."""
    facts = method, 3, BOX, ps.Budget(0.5, delta)
    enough = forecast_run(*facts, None, loss)
    assert enough.expected_ratio is None
    above, below = (
        forecast_run(*facts, factor * enough.enough_records, loss).expected_ratio
        for factor in (1.2, 0.7)
    )
    assert above <= 1.15 < below
    assert "enough from" in enough.describe()
    more_noise = forecast_run(method, 3, BOX, ps.Budget(0.05, delta), None, loss)
    assert more_noise.enough_records > 5 * enough.enough_records


def test_registered_methods_and_sketches_have_no_forecast_before_the_run():
    assert forecast_run("lloyd", 3, BOX, ps.Budget(1.0), None) is None
    assert forecast_run("sketch", 3, BOX, ps.Budget(1.0), None) is None


def test_a_report_has_an_expected_accuracy_in_words_and_as_a_number(fixed_noise):
    model = learned("cells", 3000, 0.3, planned=3000)
    words, number = "rough" if model.expected_ratio > 1.15 else "good", model.expected_ratio
    page = report_page(model)
    assert f"expected accuracy is {words}: cost about {number:.2g}"[:-1] in page
    assert f"expected ({words})" in page
    assert f"accuracy    {words}: cost about" in model.describe()
    none = replace(model, expected_ratio=None)
    assert "expected" not in none.describe()
    assert "expected accuracy" not in report_page(none)


def test_the_number_is_in_the_file_and_files_without_it_are_read(fixed_noise):
    model = learned("cells", 3000, 0.3, planned=3000)
    again = ps.ClusterModel.from_bytes(model.to_bytes())
    assert again.expected_ratio == model.expected_ratio >= 1
