"""Cautions: said where a person states a domain or a budget, once, and nowhere else."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import privsketch as ps
from privsketch.clustering import clustered
from privsketch.design import UNEVEN_RATIO, describe_design, stated_cautions, uneven_columns
from privsketch.design.alternatives import alternatives
from privsketch.facts import delta_caution, epsilon_caution
from privsketch.sketching import design_cost

BUDGET = ps.Budget(1.0, 1e-6)
UNEVEN_BOX = ps.Box([18.0, 0.0], [100.0, 5e5])
EVEN_BOX = ps.Box([0.0, 0.0], [1.0, 9.9])
TABLE = np.array([[30.0, 1e4], [60.0, 2e5]] * 50)
FITS = [
    ps.PrivateKMeans(2, method="sketch"),
    ps.PrivateKMeans(2, method="pipeline"),
    ps.PrivateKMeans(2, method="lloyd"),
    ps.PrivateKMedians(2),
    ps.PrivateGaussianMixture(2),
    ps.PrivateProjection(1),
]


def cautions_during(work):
    """The texts of all warnings of ours that `work` raises, and who raised them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    ours = [one for one in caught if issubclass(one.category, ps.PrivsketchWarning)]
    # What fits of one process cost together has tests of its own.
    ours = [one for one in ours if "every fit is a release" not in str(one.message)]
    assert all(one.filename == __file__ for one in ours)  # not a line of the package
    return [str(one.message) for one in ours]


def plan(domain=EVEN_BOX, budget=BUDGET, **facts):
    return ps.Design.plan(n_components=2, domain=domain, budget=budget, random_state=0, **facts)


@pytest.mark.parametrize(
    ("domain", "is_uneven"),
    [
        (ps.Box([0, 0], [1, UNEVEN_RATIO]), True),
        (ps.Box([0, 18.1], [1, 28.1]), True),  # tenfold, but for the last bit of 28.1 - 18.1
        (ps.Box([0, 0], [UNEVEN_RATIO - 1e-6, 1]), False),
        (ps.Box([-5, 1000, 0], [5, 1001, 2]), True),  # narrow far out, and in the middle
        (ps.Box(0, 1000, dim=3), False),
        (ps.Box([7], [9]), False),
        (ps.Box(0, 1), False),  # without dim: all columns alike
        (ps.Ball(dim=3, radius=1000, center=[0, 10, 1e6]), False),
    ],
)
def test_uneven_columns_are_those_tenfold_as_wide_as_others(domain, is_uneven):
    assert (uneven_columns(domain) is not None) == is_uneven


def test_the_sentence_names_the_columns_and_the_ways_out():
    text = uneven_columns(UNEVEN_BOX, ["age", "income"])
    assert "82 (age)" in text
    assert "5e+05 (income)" in text
    assert "ps.Schema" in text
    assert "--schema" in text
    assert "scale=True" in text
    assert "(column 0)" in uneven_columns(UNEVEN_BOX)


def test_a_schema_scales_its_columns():
    """Weights that differ a hundredfold are meant."""
    columns = [ps.Number("age", 18, 100), ps.Number("income", 0, 5e5, weight=100)]
    schema = ps.Schema(columns)
    scaled = ps.Box([18.0, 0.0], [100.0, 5e5], columns=["age", "income"], scale=True)
    for domain in (schema, scaled):
        assert stated_cautions(domain, BUDGET, None) == []
        assert cautions_during(lambda: plan(domain)) == []  # noqa: B023
        assert "careful     columns" not in plan(domain).describe()
    assert len(stated_cautions(UNEVEN_BOX, BUDGET, None)) == 1
    named = ps.Box([18.0, 0.0], [100.0, 5e5], columns=["age", "income"])
    assert "(income)" in cautions_during(lambda: plan(named))[0]


def test_the_unit_is_said():
    schema = ps.Schema([ps.Number("age", 18, 100)], person="patient")
    (text,) = cautions_during(lambda: plan(schema, ps.Budget(11.0, 1e-6)))
    assert "one person (patient)" in text


def test_budgets_that_hide_next_to_nothing():
    assert epsilon_caution(10.0) is None
    assert "e^20 = 5e+08" in epsilon_caution(20.0)
    assert epsilon_caution(1e9)  # costs of many releases add up
    assert delta_caution(1e-5, 1e5) is None
    assert delta_caution(1e-5, 100_001) is not None
    assert delta_caution(0.0, 1e9) is None
    for unknown in (None, True, "many"):
        assert delta_caution(1e-3, unknown) is None
        assert "above 0.001" in delta_caution(0.0011, unknown)


def test_plans_warn_once():
    assert cautions_during(lambda: plan(n_records=1e5)) == []
    (units,) = cautions_during(lambda: plan(UNEVEN_BOX, columns=["age", "income"]))
    assert "income" in units
    (weak,) = cautions_during(lambda: plan(budget=ps.Budget(11.0, 1e-6)))
    assert "epsilon = 11" in weak
    (loose,) = cautions_during(lambda: plan(budget=ps.Budget(1.0, 1e-3), n_records=1001))
    assert "delta = 0.001" in loose
    assert cautions_during(lambda: plan(budget=ps.Budget(1.0, 1e-3), n_records=1000)) == []
    assert cautions_during(lambda: plan(budget=ps.Budget(1.0, 1e-3))) == []  # number unknown
    everything = {"budget": ps.Budget(11.0, 1e-3), "n_records": 1e5}
    assert len(cautions_during(lambda: plan(UNEVEN_BOX, **everything))) == 3


def cautions_of_fit(model):
    """The cautions of a fit, without the concerns of its model."""
    texts = cautions_during(lambda: model.fit(TABLE))
    return [text for text in texts if text not in getattr(model, "concerns_", ())]


@pytest.mark.parametrize("estimator", FITS, ids=lambda one: f"{type(one).__name__}")
def test_fits_warn_once(estimator):
    facts = {"epsilon": 11.0, "delta": 1e-6, "domain": UNEVEN_BOX}
    found = cautions_of_fit(clone(estimator).set_params(**facts))
    assert [text.split()[0] for text in found] == ["columns", "epsilon"]
    facts = {"epsilon": 1.0, "delta": 1e-6, "domain": ps.Box(0, 5e5)}
    assert cautions_of_fit(clone(estimator).set_params(**facts)) == []


def test_principal_components_warn_of_budgets():
    model = ps.PrivatePCA(1, epsilon=11.0, delta=1e-6, domain=ps.Ball(radius=1e6))
    (text,) = cautions_of_fit(model)
    assert "epsilon" in text


@pytest.mark.parametrize("estimator", [FITS[0], FITS[2], FITS[3]], ids=["sketch", "lloyd", "far"])
def test_a_number_of_records_that_nobody_stated_is_taken_only_where_it_is_public(estimator):
    facts = {"epsilon": 1.0, "delta": 0.011, "domain": ps.Box(0, 5e5)}  # of 100 records
    estimator = clone(estimator).set_params(**facts)
    (weak,) = cautions_of_fit(estimator.set_params(neighbours="add-remove"))
    assert weak.endswith("choose a delta far below 1 / number of records")
    (text,) = cautions_of_fit(estimator.set_params(neighbours="replace"))
    assert "1 / number of records, which is about" in text
    estimator.set_params(delta=0.01)  # 1 / 100 is not above it
    assert cautions_of_fit(estimator) == []


def test_plans_on_the_way_are_silent():
    """Designs of runs and of comparisons: nobody stated their domains and shares."""
    from privsketch.clustering.baselines.lloyd import cluster as lloyd
    from privsketch.clustering.pipeline import cluster as pipeline

    facts = {"domain": UNEVEN_BOX, "budget": ps.Budget(50.0, 0.1), "random_state": 0}
    for method in (pipeline, lloyd):
        for stated in ({}, {"n_records": 100}):
            run = {**facts, **stated}
            assert cautions_during(lambda: clustered(method, TABLE, 2, **run)) == []  # noqa: B023
    study = {"n_components": 2, "domain": UNEVEN_BOX, "budget": ps.Budget(50.0, 0.1)}
    assert cautions_during(lambda: alternatives({**study, "n_records": 1e5}, design_cost)) == []
    released = ps.sketch(TABLE, plan(UNEVEN_BOX))
    assert cautions_during(lambda: ps.learn_kmeans(released, 2)) == []


def test_descriptions_say_it_too_unless_it_was_said():
    design = plan(UNEVEN_BOX, ps.Budget(11.0, 1e-3), n_records=1e5)
    said = stated_cautions(UNEVEN_BOX, design.budget, 1e5)
    text = design.describe()
    assert all(f"careful     {one}" in text for one in said)
    assert not any(one in describe_design(design, shown=said) for one in said)
    receipt = ps.sketch(TABLE, design).receipt
    assert "careful     epsilon = 11" in receipt.describe()
    assert "careful" not in ps.sketch(TABLE, plan()).receipt.describe()


def test_a_warning_can_stop_the_work_before_it_costs(spent):
    model = ps.PrivateKMeans(2, epsilon=11.0, delta=1e-6, domain=UNEVEN_BOX)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ps.PrivsketchWarning)
        with pytest.raises(ps.PrivsketchWarning):
            model.fit(TABLE)
    assert not spent
