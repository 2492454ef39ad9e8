"""Designs for a total whose noise is shared: planned for the total, with room for parts of it."""

import math

import pytest

import privsketch as ps
from privsketch.facts import Unit
from privsketch.noise import MIN_PART_SCALE, kappa_discrete, plan_sharing, planned_noises

DELTA, PURE = ps.Budget(epsilon=0.1, delta=1e-6), ps.Budget(epsilon=0.1)


def plan(**choices):
    facts = {
        "n_components": 5,
        "domain": ps.Box(-1, 1, dim=2),
        "budget": DELTA,
        "n_records": 2000,
        "random_state": 1,
    }
    return ps.Design.plan(**(facts | choices))


def test_designs_without_holders_are_what_they_were():
    design = plan()
    assert "sharing" not in design.to_json()
    assert "n_holders" not in design.to_json()
    assert design.forecast() == design.forecast(n_holders=1)
    assert "holders adds" not in design.describe()


@pytest.mark.parametrize(("sharing", "budget"), [("holders", DELTA), ("tellers", PURE)])
def test_a_total_is_foretold_beside_noise_for_each(sharing, budget):
    design = plan(n_holders=50, sharing=sharing, budget=budget)
    assert ps.Design.from_bytes(design.to_bytes()) == design
    assert design.fingerprint != plan(budget=budget).fingerprint
    total, apart = design.forecast(), design.forecast(n_holders=50)
    assert total.rsse_high - 1 < (apart.rsse_high - 1) / 5
    assert total.n_records_needed < apart.n_records_needed / 2
    text = design.describe()
    assert "planned for 2000 of each of 50 holders" in text
    assert total.describe() in text
    assert apart.describe() in text
    assert f"noise of {planned_noises(sharing, 50):.3g} releases, not of 50" in text


def test_noise_of_a_total_is_that_of_one_release():
    design = plan(n_holders=50, sharing="holders", n_features=200)
    assert design.noise_std == plan(n_features=200).noise_std
    norm = math.sqrt(200 * (1 + 0.01))  # of a record, with its count
    assert design.noise_std == pytest.approx(norm * kappa_discrete(0.1, 1e-6), rel=2e-3)


def test_larger_totals_have_larger_sketches_where_noise_is_pure():
    """Noise that a release of one holder drowns in leaves room for features in a total."""
    few = {"n_components": 10, "domain": ps.Box(-1, 1, dim=10), "budget": PURE, "n_records": 500}
    assert plan(**few, n_holders=200, sharing="tellers").n_features > plan(**few).n_features


@pytest.mark.parametrize("n_holders", [2, 3, 50, 1000, 20_000])
@pytest.mark.parametrize("feature_map", ["fourier", "one-bit", "cells"])
def test_integers_have_room_for_all_parts(feature_map, n_holders):
    design = plan(feature_map=feature_map, n_holders=n_holders, sharing="holders", n_records=100)
    factor = design.sum_noise.factor
    assert factor & (factor - 1) == 0
    assert (factor > 1) == (design.sum_noise.sums_law.scale / factor < MIN_PART_SCALE * n_holders)
    finest = plan_sharing(design.sum_noise, n_holders=n_holders, colluding=0, min_holders=1)
    assert finest.levels[0] == n_holders
    assert all(laws[0].scale >= MIN_PART_SCALE for laws in finest.holder_laws)
    # The factor changes no noise in records but by the rounding of the count's weight.
    same = plan(feature_map=feature_map, n_features=design.n_features, noise="gaussian")
    if design.cells is None:
        assert design.noise_std == pytest.approx(same.noise_std, rel=4e-3)


@pytest.mark.parametrize(("sharing", "budget"), [("holders", DELTA), ("tellers", PURE)])
def test_large_sketches_fit_64_bits(sharing, budget):
    """Weights of the count grow with the number of features: 2^36 records in all, not 2^38."""
    facts = {"n_components": 10, "domain": ps.Box(-1, 1, dim=10), "n_features": 6000}
    design = plan(**facts, n_holders=1000, sharing=sharing, budget=budget)
    assert design.sum_noise.factor == 1
    plan_sharing(design.sum_noise, n_holders=1000)


def test_cubes_have_room_for_what_holders_add():
    signs = {"feature_map": "one-bit", "budget": PURE, "n_features": 60, "noise": "cube"}
    alone, shared = plan(**signs), plan(**signs, n_holders=50, sharing="tellers")
    assert alone.sum_noise.factor < shared.sum_noise.factor
    assert shared.noise_std == pytest.approx(alone.noise_std, rel=0.02)
    sharing = plan_sharing(shared.sum_noise, n_holders=50)
    assert sharing.noises(50) == pytest.approx(2.5, rel=0.01)


def test_principal_components_of_a_total():
    facts = {"task": "pca", "n_components": 2, "domain": ps.Ball(5, 1.0), "mean": "released"}
    design = plan(**facts, n_holders=50, sharing="holders")
    assert design.forecast().lost < design.forecast(n_holders=50).lost / 20
    sharing = plan_sharing(design.sum_noise, n_holders=50)
    assert sharing.n_words == 15 + 5 + 1


def test_persons_with_several_records():
    unit = Unit(max_records=3)
    budget = ps.Budget(epsilon=0.1, delta=1e-6, unit=unit)
    design = plan(budget=budget, n_holders=50, sharing="holders", feature_map="cells")
    receipt = plan_sharing(design.sum_noise, n_holders=50).receipt(50, "s")
    assert receipt.unit == unit.text
    assert "all rows of a person lie at one holder" in receipt.assumption


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_holders": 5}, "go together"),
        ({"sharing": "holders"}, "go together"),
        ({"n_holders": 1, "sharing": "holders"}, "at least 2"),
        ({"n_holders": 10**7, "sharing": "holders"}, "n_holders"),
        ({"n_holders": 2.5, "sharing": "holders"}, "n_holders"),
        ({"n_holders": 5, "sharing": "everybody"}, "sharing"),
        ({"n_holders": 5, "sharing": "holders", "budget": PURE}, "delta"),
        ({"n_holders": 5, "sharing": "holders", "noise": "laplace"}, "tellers"),
        ({"n_holders": 5, "sharing": "holders", "masks": "records:0.5"}, "masks"),
        ({"n_holders": 5, "sharing": "tellers", "masks": "records:0.5"}, "masks"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(change, message):
    with pytest.raises(ps.PrivsketchError, match=message):
        plan(**change)
