"""Concerns where columns are labels: corners are no edge, and bounds of numbers still are."""

import warnings

import numpy as np
import pandas as pd
import pytest

import privsketch as ps

pytestmark = pytest.mark.usefixtures("fixed_noise")
LEARNERS = {
    "k-means": lambda sketch: ps.learn_kmeans(sketch, 1, n_init=1),
    "mixture": lambda sketch: ps.learn_gaussian_mixture(
        sketch, 1, covariance_type="diag", n_init=1
    ),
}
CUT = ("edge of the domain", "outside the bounds", "outside the domain", "its width")


def concerns(learner, schema, **columns):
    design = ps.Design.plan(
        domain=schema,
        n_components=1,
        budget=ps.Budget(10.0, 1e-6),
        n_records=5000,
        random_state=1,
    )
    return LEARNERS[learner](ps.sketch(pd.DataFrame(columns), design)).concerns


def cut(found):
    return [text for text in found if any(words in text for words in CUT)]


def ages(middle, width=0.1, n_records=5000):
    rng = np.random.default_rng(0)
    return 50 + 50 * (middle + width * rng.standard_normal(n_records))


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(("middle", "is_cut"), [(0.0, False), (1.5, True)])
def test_only_numbers_are_cut(learner, middle, is_cut):
    """All records have one label, one answer and one hour: three corners or edges of the box."""
    schema = ps.Schema(
        [
            ps.Number("age", 0, 100),
            ps.Category("region", ["north", "south"]),
            ps.Flag("smoker"),
            ps.Cycle("hour", 24),
        ]
    )
    same = {"region": "north", "smoker": True, "hour": 6.0}
    assert bool(cut(concerns(learner, schema, age=ages(middle), **same))) == is_cut


def test_a_mixture_names_the_columns_it_lies_outside_of():
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Number("size", 0, 100)])
    found = concerns("mixture", schema, age=ages(0.9, 0.3), size=ages(0.0, 0.1))
    assert [text for text in found if "outside the bounds of age, to which" in text]


@pytest.mark.parametrize("method", ["sketch", "pipeline", "cells"])
@pytest.mark.parametrize(("listed", "is_told"), [(["A", "B"], False), (["a-ward", "b-ward"], True)])
def test_labels_that_are_mostly_unlisted_are_told(method, listed, is_told):
    """Another spelling than that of the schema, for all records; and the right one."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=20_000)
    table = {"x": group + 0.1 * rng.normal(size=20_000), "ward": np.array(["A", "B"])[group]}
    schema = ps.Schema([ps.Number("x", -1, 2), ps.Category("ward", listed)], missing="drop")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.PrivsketchWarning)
        fit = ps.PrivateKMeans(
            2, epsilon=3.0, delta=1e-6, domain=schema, method=method, n_records=20_000
        ).fit(pd.DataFrame(table))
    told = [text for text in fit.concerns_ if "does not list" in text]
    assert bool(told) == is_told
    assert all("'ward'" in text for text in told)
