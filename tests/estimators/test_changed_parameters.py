"""Parameters that are changed after `fit`: what comes next is as of a fresh estimator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import privsketch as ps

RECORDS = np.random.default_rng(0).uniform(-1, 1, size=(300, 3))
BALL, WIDE = ps.Ball(radius=2.0), ps.Ball(radius=4.0)
PROJECTION = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6, "domain": BALL, "random_state": 1}
# A change of every parameter. Other parameters that it needs stand with it.
OF_PROJECTIONS = {
    "n_components": {"n_components": 3},
    "epsilon": {"epsilon": 2.5},
    "delta": {"delta": 0.0},
    "domain": {"domain": WIDE},
    "protect": {"protect": "element"},
    "bound": {"bound": 0.5},
    "bound_norm": {"bound_norm": "l1", "bound": 0.5},
    "noise": {"noise": "laplace"},
    "calibration": {"calibration": "union", "random_state": None},
    "random_state": {"random_state": 2},
    "missing": {"missing": "center"},
    "n_threads": {"n_threads": 1},
    "ledger": None,  # of the surroundings; tests/ledger
}


def what_is_public(model: ps.PrivateProjection) -> dict[str, object]:
    """All that follows from parameters alone, with a seed of the matrix."""
    described = model.description_
    facts = {name: getattr(described, name) for name in ("seed", "calibration", "noise", "protect")}
    seeded = model.random_state is not None
    return facts | {
        "cost": (described.receipt.epsilon, described.receipt.delta, described.receipt.unit),
        "matrix": model.components_.tolist() if seeded else model.components_.shape,
        "variance": described.noise_variance if seeded else None,
        "columns": list(model.get_feature_names_out()),
    }


def test_every_parameter_of_a_projection_is_changed_here():
    assert set(OF_PROJECTIONS) == set(ps.PrivateProjection().get_params(deep=False))


@pytest.mark.parametrize("releases_before", [0, 1])
@pytest.mark.parametrize("name", [name for name, change in OF_PROJECTIONS.items() if change])
def test_a_changed_parameter_counts_at_the_next_release(name, releases_before):
    change = OF_PROJECTIONS[name]
    model = ps.PrivateProjection(**PROJECTION).fit(RECORDS)
    for _ in range(releases_before):
        model.transform(RECORDS)
    model.set_params(**change).transform(RECORDS)
    fresh = clone(model).fit(RECORDS)
    fresh.transform(RECORDS)
    assert what_is_public(model) == what_is_public(fresh)
    assert len(model.receipts_) == releases_before + 1, "what was paid before is forgotten"


def test_the_new_epsilon_is_what_is_paid():
    model = ps.PrivateProjection(**PROJECTION).fit(RECORDS)
    model.transform(RECORDS)
    model.set_params(epsilon=2.5).transform(RECORDS)
    assert [receipt.epsilon for receipt in model.receipts_] == [1.0, 2.5]
    assert model.receipt_.epsilon == 3.5


def test_an_unchanged_estimator_keeps_its_matrix():
    model = ps.PrivateProjection(**{**PROJECTION, "random_state": None}).fit(RECORDS)
    before = model.components_
    model.set_params(**model.get_params(deep=False)).transform(RECORDS)
    model.set_params(missing="center", n_threads=1).transform(RECORDS)
    assert np.array_equal(model.components_, before)


def test_costs_of_different_units_have_no_sum():
    model = ps.PrivateProjection(**PROJECTION).fit(RECORDS)
    model.transform(RECORDS)
    model.set_params(protect="element").transform(RECORDS)
    assert len({receipt.unit for receipt in model.receipts_}) == 2
    with pytest.raises(AttributeError, match="receipts_ has each"):
        _ = model.receipt_


def test_a_change_that_is_refused_costs_nothing(spent):
    model = ps.PrivateProjection(**PROJECTION).fit(RECORDS)
    for change in ({"epsilon": None}, {"epsilon": -1.0}, {"domain": ps.Ball(radius=1.0, dim=7)}):
        with pytest.raises(ps.PrivsketchError):
            model.set_params(**change).transform(RECORDS)
        model.set_params(**PROJECTION)
    assert spent == []


# ---------------------------------------------------------------- models

LEARNERS = {
    "k-means": (ps.PrivateKMeans, {"n_clusters": 2}, {"n_clusters": 3}),
    "k-means, sketch": (
        ps.PrivateKMeans,
        {"n_clusters": 2, "method": "sketch", "options": {"n_features": 40, "n_init": 1}},
        {"method": "pipeline", "options": None},
    ),
    "k-medians": (ps.PrivateKMedians, {"n_clusters": 2}, {"method": "partition-tree"}),
    "mixture": (
        ps.PrivateGaussianMixture,
        {"n_components": 2, "n_features": 60, "n_init": 1},
        {"covariance_type": "diag", "n_features": None, "n_init": None},
    ),
    "components": (ps.PrivatePCA, {"n_components": 1, "method": "covariance"}, {"center": True}),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_second_fit_is_as_the_first_of_a_fresh_one(name, no_noise):
    estimator, choices, change = LEARNERS[name]
    common = {"epsilon": 5.0, "delta": 1e-6, "domain": WIDE, "random_state": 0}
    model = estimator(**common, **choices).fit(RECORDS)
    other = {"epsilon": 7.0, "delta": 0.0, "domain": BALL, "random_state": 3, "n_threads": 1}
    model.set_params(**other, neighbours="replace", **change).fit(RECORDS)
    fresh = clone(model).fit(RECORDS)
    assert vars(model).keys() == vars(fresh).keys()
    for attribute, value in vars(fresh).items():
        result = getattr(model, attribute)
        if attribute in ("sketch_", "model_"):
            assert type(result) is type(value), attribute
        elif attribute == "receipt_":  # but for the name of the source, which is drawn
            assert replace(result, source=None) == replace(value, source=None)
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(result, value, err_msg=attribute)
        else:
            assert result == value, attribute


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_goes_by_the_domain_of_its_fit(name):
    # Until the next fit, a row means what it meant when the model was learned.
    estimator, choices, _ = LEARNERS[name]
    columns = [ps.Number(column, -1, 1) for column in "abc"]
    others = [ps.Number(column, -100, 3) for column in "abc"]
    model = estimator(epsilon=5.0, delta=1e-6, domain=ps.Schema(columns), **choices)
    table = {column: RECORDS[:, place] for place, column in enumerate("abc")}
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table)
    ask = "transform" if name == "components" else "predict"
    before = getattr(model.fit(frame), ask)(frame)
    after = getattr(model.set_params(domain=ps.Schema(others)), ask)(frame)
    assert np.array_equal(before, after)
