"""Concerns where columns are labels: corners are no edge, and bounds of numbers still are."""

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
# Of the others k-means foretells its cost, and a misfit by itself is no concern.
TELL_MISFITS = {
    "mixture": LEARNERS["mixture"],
    "cl-ompr": lambda sketch: ps.learn_kmeans(sketch, 1, n_init=1, decoder="cl-ompr"),
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
    return {**LEARNERS, **TELL_MISFITS}[learner](ps.sketch(pd.DataFrame(columns), design)).concerns


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


@pytest.mark.parametrize("learner", TELL_MISFITS)
def test_a_misfit_of_labels_is_called_by_its_name(learner):
    rng = np.random.default_rng(1)
    region = rng.choice(["north", "south", "east"], size=5000)
    schema = ps.Schema([ps.Number("age", 0, 100), ps.Category("region", ["north", "south"])])
    found = concerns(learner, schema, age=ages(0.0), region=region)
    told = [text for text in found if "misfit" in text]
    assert all("Categories and flags are part of it" in text for text in told)
    plain = ps.Schema([ps.Number("age", 0, 100)])
    two = np.where(rng.random(5000) < 0.5, 10.0, 90.0)
    others = [text for text in concerns(learner, plain, age=two) if "misfit" in text]
    assert not any("Categories" in text for text in others)
    assert told or others


@pytest.mark.parametrize("learner", ["mixture"])
def test_errors_of_shares_hold_what_gaussians_miss(learner):
    """Five points at least, in the units of shares, whatever the weight; numbers have none."""
    schema = ps.Schema(
        [
            ps.Number("age", 0, 100),
            ps.Category("region", ["north", "south"], weight=2.0),
            ps.Flag("smoker", weight=0.5),
        ]
    )
    rng = np.random.default_rng(0)
    columns = {
        "age": ages(0.0),
        "region": np.where(rng.random(5000) < 0.01, "north", "south"),
        "smoker": rng.random(5000) < 0.01,
    }
    design = ps.Design.plan(
        domain=schema, n_components=1, budget=ps.Budget(10.0, 1e-6), n_records=5000, random_state=1
    )
    errors = LEARNERS[learner](ps.sketch(pd.DataFrame(columns), design)).table("standard_errors")
    for name in ("region=north", "region=south", "smoker"):
        assert 0.05 <= errors[name][0] < 0.15
    assert errors["age"][0] < 2.0
