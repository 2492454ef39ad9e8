"""Costs of several releases: dp-accounting's figures, and exact ones of tiny mechanisms."""

import json
import math
import re
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import product

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant

import privsketch as ps
from privsketch import Receipt
from privsketch.noise import (
    epsilon_of_rho,
    gaussian_law,
    laplace_law,
    log_delta_zcdp,
    loss_distribution,
    rho_of_budget,
)
from tests import seams

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
RECORDS = np.random.default_rng(0).uniform(-1, 1, (400, 2))
BOX = ps.Box(-1, 1, dim=2)


def sketched(epsilon, delta, **choices):
    budget = ps.Budget(epsilon, delta, choices.pop("neighbours", "add-remove"))
    design = ps.Design.plan(
        n_components=2, domain=BOX, budget=budget, random_state=0, n_features=20, **choices
    )
    return ps.sketch(RECORDS, design, source="here").receipt


def clustered(method, epsilon, delta, **options):
    model = ps.PrivateKMeans(
        2, epsilon=epsilon, delta=delta, domain=BOX, method=method, random_state=0, n_records=400
    )
    return model.set_params(**options).fit(RECORDS).receipt_


RECEIPTS = {
    "gaussian": lambda: sketched(0.5, 1e-6),
    "gaussian, replace": lambda: sketched(0.5, 1e-6, neighbours="replace"),
    "gaussian, features": lambda: sketched(0.5, 1e-6, masks=ps.Masks("uniform", kept=10)),
    "cube": lambda: sketched(0.2, 0.0),
    "laplace with a count": lambda: sketched(0.2, 0.0, noise="laplace"),
    "masked, pure": lambda: sketched(0.2, 0.0, noise="laplace", masks=ps.Masks(records=0.5)),
    "pipeline": lambda: clustered("pipeline", 1.0, 1e-6),
    "pipeline, pure": lambda: clustered("pipeline", 1.0, 0.0),
    "lloyd": lambda: clustered("lloyd", 1.0, 0.0),
    "tree": lambda: clustered("partition-tree", 1.0, 0.0),
    "grid": lambda: clustered("grid", 1.0, 0.0),
    "rows, drawn matrix": lambda: ps.Projection.draw(
        BOX, 2, epsilon=1.0, delta=1e-6, random_state=0, noise="gaussian"
    ).receipt(),
}
BARE = {  # epsilon and delta alone are known of these
    "masked": lambda: sketched(0.5, 1e-6, masks=ps.Masks(records=0.5)),
    "poisson": lambda: sketched(0.5, 1e-6, masks=ps.Masks("poisson", rate=0.5)),
    "rows, fresh matrix": lambda: ps.Projection.draw(
        BOX, 2, epsilon=1.0, delta=1e-6, calibration="fresh"
    ).receipt(),
}


@pytest.fixture(scope="module")
def receipts():
    return {name: make() for name, make in (RECEIPTS | BARE).items()}


def leaves(receipt):
    """Single releases that add up; one that is accounted as a whole is one."""
    if receipt.composition != "sequential":
        return [receipt]
    return [leaf for part in receipt.parts for leaf in leaves(part)]


@pytest.mark.parametrize("name", RECEIPTS)
@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_figures_are_those_of_dp_accounting(receipts, name, count):
    # Its accountants are asked about events that are written down here from epsilon and delta.
    receipt = receipts[name]
    composed = ps.compose([receipt] * count, delta=1e-5)
    found = {bound.name: bound.epsilon for bound in composed.bounds}
    singles = leaves(receipt)
    accountant = RdpAccountant(neighboring_relation=REPLACE)
    for single in singles:
        if single.delta > 0:
            rho = rho_of_budget(single.epsilon, single.delta)
            accountant.compose(dp_accounting.ZCDpEvent(rho), count)
        else:
            chance = 2 / (1 + math.exp(single.epsilon))
            accountant.compose(dp_accounting.RandomizedResponseDpEvent(chance, 2), count)
    assert found["rdp"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
    assert found["basic"] == pytest.approx(receipt.epsilon * count, rel=1e-12)
    if receipt.delta > 0:
        assert "pld" not in found
        # Renyi divergences of a grid of orders against the best order.
        assert found["zcdp"] <= found["rdp"] * (1 + 1e-9)
        assert found["zcdp"] == pytest.approx(found["rdp"], rel=5e-3)
        return
    costs = [single.epsilon for single in singles]
    step = max(min(1e-4, min(costs) / 100), sum(costs) * count / 2e6)
    losses = privacy_loss_distribution.identity(step)
    for epsilon in costs:
        chance = 2 / (1 + math.exp(epsilon))
        one = privacy_loss_distribution.from_randomized_response(
            chance, 2, value_discretization_interval=step, neighboring_relation=REPLACE
        )
        losses = losses.compose(one.self_compose(count))
    # A loss that lies at a step up to rounding is at that one or the next, in either way.
    slack = 2 * step * count * len(costs)
    assert found["pld"] == pytest.approx(losses.get_epsilon_for_delta(1e-5), rel=1e-6, abs=slack)
    assert found["pld"] <= found["basic"] * (1 + 1e-9) + slack


@pytest.mark.parametrize("name", BARE)
def test_what_has_no_rho_adds_up(receipts, name):
    receipt = receipts[name]
    assert receipt.rho is None
    composed = ps.compose([receipt] * 3, delta=1e-4)
    assert {bound.name for bound in composed.bounds} == {"basic", "pld"}
    assert composed.bounds[0].epsilon == pytest.approx(3 * receipt.epsilon)
    losses = loss_distribution({(receipt.epsilon, receipt.delta): 3})
    assert losses.get_delta_for_epsilon(0.0) > 0
    with pytest.raises(ps.PrivsketchError, match="no event"):
        receipt.dp_event()
    other = replace(receipts["gaussian"], neighbours=receipt.neighbours, unit=receipt.unit)
    mixed = ps.compose([receipt, other])
    zcdp = next(bound for bound in mixed.bounds if bound.name == "zcdp")
    assert "beside" in zcdp.how
    assert zcdp.epsilon >= receipt.epsilon


# Exact composition: all sums of losses of a tiny mechanism, with their chances.


def exact_losses(chances, shifted, count):
    """(loss, chance) of `count` releases, at every outcome."""
    one = [(math.log(p / q), p) for p, q in zip(chances, shifted, strict=True) if p > 0]
    for outcomes in product(one, repeat=count):
        yield sum(loss for loss, _ in outcomes), math.prod(chance for _, chance in outcomes)


def exact_delta(pairs, epsilon, count):
    """The larger of both directions."""
    found = []
    for p, q in (pairs, pairs[::-1]):
        terms = (
            chance * -math.expm1(epsilon - loss)
            for loss, chance in exact_losses(p, q, count)
            if loss > epsilon
        )
        found.append(math.fsum(terms))
    return max(found)


def laplace_pair(epsilon):
    """A discrete Laplace count and that of one record more; tails lumped, which loses nothing."""
    q = math.exp(-epsilon)
    head = [(1 - q) / (1 + q) * q ** abs(z) for z in range(-3, 5)]
    tail = q**4 / (1 + q)  # P(z >= 4)
    p = [tail, *head[:7], tail]  # z <= -4, -3 .. 3, z >= 4
    shifted = [q**5 / (1 + q), *[(1 - q) / (1 + q) * q ** abs(z - 1) for z in range(-3, 4)]]
    return p, [*shifted, q**3 / (1 + q)]


def gaussian_pair(sigma):
    chances = np.exp(-(np.arange(-9, 11) ** 2) / (2 * sigma**2))
    chances /= chances.sum()
    return list(chances[:-1]), list(chances[1:][::-1])[::-1]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_bounds_hold_for_tiny_pure_releases(epsilon, count):
    pair = laplace_pair(epsilon)
    receipt = laplace_law(1, 1, epsilon, "add-remove").receipt(1 / epsilon, None, "")
    for delta in (1e-3, 0.02, 0.1):
        for bound in ps.compose([receipt] * count, delta=delta).bounds:
            assert exact_delta(pair, bound.epsilon, count) <= bound.delta + 1e-12
    # One release fewer would not cover it.
    less = ps.compose([receipt] * count, delta=0.02).best.epsilon - epsilon
    if count > 1:
        assert exact_delta(pair, less, count) > 0.02


def exact_delta_of_responses(epsilon, count, whole):
    """Of randomised response, `count` times, at the epsilon `whole`: in decimals of 60 digits."""
    with localcontext(prec=60):
        ratio, bound = Decimal(repr(epsilon)).exp(), Decimal(repr(whole)).exp()
        true, false = ratio / (1 + ratio), 1 / (1 + ratio)
        terms = (
            math.comb(count, k)
            * (true**k * false ** (count - k) - bound * true ** (count - k) * false**k)
            for k in range(count + 1)
        )
        return sum(term for term in terms if term > 0)


@pytest.mark.parametrize(
    ("epsilon", "count", "delta"),
    [
        *[(epsilon, 1, delta) for epsilon in (1e-12, 1e-8, 1e-6) for delta in (1e-300, 1e-12)],
        *[(epsilon, 1000, 1e-12) for epsilon in (1e-12, 1e-8)],
        *[(epsilon, 1000, delta) for epsilon in (0.01, 0.3) for delta in (1e-14, 1e-10, 1e-3)],
        (30.0, 2, 0.1),
    ],
)
def test_bounds_hold_where_floats_are_short_of_digits(epsilon, count, delta):
    # Differences of nearly equal floats, Fourier transforms: dp-accounting errs by some of them.
    receipt = Receipt("response", epsilon, 0.0, "add-remove")
    _, *bounds = ps.compose([receipt] * count, delta=delta).bounds  # the basic one is exact
    assert bounds
    for bound in bounds:
        found = exact_delta_of_responses(epsilon, count, bound.epsilon)
        assert found <= Decimal(repr(bound.delta)), bound


def test_a_sum_that_does_not_show_its_parts_is_not_for_free():
    part = Receipt("response", 0.5, 0.0, "add-remove")
    for parts in ((), (part,)):
        forged = replace(part + part, parts=parts)
        whole = ps.compose([forged, part], delta=1e-9)
        assert whole.best.epsilon > 1.4


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_bounds_hold_for_tiny_gaussian_releases(epsilon, count):
    law = gaussian_law(1, 1, epsilon, 0.05, "add-remove")
    pair = gaussian_pair(law.scale)
    receipt = law.receipt(law.scale, None, "")
    for delta in (0.01, 0.05, 0.15):
        for bound in ps.compose([receipt] * count, delta=delta).bounds:
            assert exact_delta(pair, bound.epsilon, count) <= bound.delta
    # A rho that is a quarter of the true one would not cover it.
    wrong = epsilon_of_rho(law.rho * count / 4, 0.05)
    assert exact_delta(pair, wrong, count) > 0.05


def test_epsilon_of_rho_is_the_least_one():
    for rho in (1e-6, 0.01, 1.0, 50.0):
        for delta in (1e-12, 1e-6, 0.1):
            epsilon = epsilon_of_rho(rho, delta)
            assert log_delta_zcdp(rho, epsilon) <= math.log(delta)
            if epsilon > 1e-9:  # else no epsilon at all is needed for so large a delta
                assert log_delta_zcdp(rho, epsilon * (1 - 1e-6)) > math.log(delta)


# Receipts as data.


@pytest.mark.parametrize("name", RECEIPTS | BARE)
def test_receipts_are_data(receipts, name):
    receipt = receipts[name]
    again = Receipt.from_json(json.loads(json.dumps(receipt.to_json())))
    assert again == receipt
    for leaf in leaves(receipt):
        if leaf.law in ("laplace", "cube") and leaf.delta == 0 and "mask" not in leaf.calibration:
            assert leaf.sensitivity / leaf.scale <= leaf.epsilon * (1 + 1e-12)
        if leaf.law == "gaussian" and leaf.rho is not None:
            assert leaf.sensitivity**2 / (2 * leaf.scale**2) <= leaf.rho * (1 + 1e-12)
            assert log_delta_zcdp(leaf.rho, leaf.epsilon) <= math.log(leaf.delta) + 1e-9
    assert receipt.rho is None or receipt.rho > 0


@pytest.mark.parametrize("field", ["rho", "sensitivity", "scale"])
@pytest.mark.parametrize("value", ["1", -1.0, True, math.inf, math.nan, 1])
def test_numbers_of_receipts_are_checked(receipts, field, value):
    with pytest.raises(ps.PrivsketchError, match=field):
        Receipt.from_json({**receipts["gaussian"].to_json(), field: value})


@pytest.mark.parametrize("field", ["epsilon", "delta"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan, 1e308, 1])
@pytest.mark.parametrize("name", ["gaussian", "laplace with a count"])
def test_costs_of_receipts_are_checked(receipts, name, field, value):
    with pytest.raises(ps.PrivsketchError, match=field):
        Receipt.from_json({**receipts[name].to_json(), field: value, "rho": None})


def test_a_sketch_with_another_rho_is_refused(tmp_path):
    design = ps.Design.plan(
        n_components=2, domain=BOX, budget=ps.Budget(1.0, 1e-6), n_features=20, random_state=0
    )
    released = ps.sketch(RECORDS, design, source="here")
    for change in ({"rho": released.receipt.rho / 2}, {"sensitivity": 1.0}, {"law": "cube"}):
        forged = replace(released, receipt=replace(released.receipt, **change))
        with pytest.raises(ps.PrivsketchError, match="does not state"):
            ps.Sketch.from_bytes(forged.to_bytes())


def test_receipts_add_up(receipts):
    a, b, c = (receipts[name] for name in ("gaussian", "cube", "laplace with a count"))
    total = a + b + c
    assert total == a + (b + c)
    assert [part.mechanism for part in total.parts] == [one.mechanism for one in (a, b, c)]
    assert (total.epsilon, total.delta) == (0.9, 1e-6)
    assert total.rho == pytest.approx(a.rho + b.rho + c.rho)
    assert total.source == "here"
    assert total.composition == "sequential"
    event = total.dp_event()
    assert event.events[0] == dp_accounting.ZCDpEvent(a.rho)
    assert len(event.events) == 3
    assert len(event.events[2].events) == 2
    with pytest.raises(TypeError):
        a + 1


def test_receipts_are_summed(receipts):
    first, *others = receipts["gaussian"], receipts["gaussian"], receipts["gaussian"]
    assert sum([first, *others]) == first + others[0] + others[1]
    for other in (1, "x", None):
        with pytest.raises(TypeError):
            other + first


@pytest.mark.parametrize("given", [None, 3, "receipt"])
def test_what_is_no_list_of_receipts_is_refused(receipts, given):
    given = receipts["gaussian"] if given == "receipt" else given
    with pytest.raises(ps.PrivsketchError, match="expected receipts, at least one, in a list"):
        ps.compose(given)


def test_no_bound_is_shown_rounded_down(receipts):
    for count in range(1, 40, 3):
        found = ps.compose([receipts["gaussian"]] * count)
        shown = re.findall(r"epsilon = ([^,]+),", found.describe())
        for text, bound in zip(shown, found.bounds, strict=True):
            assert bound.epsilon <= float(text) <= bound.epsilon * (1 + 2e-5)


def test_receipts_of_a_ledger_are_read_back_and_composed(tmp_path):
    ledger = ps.Ledger.create(tmp_path / "budget.ledger")
    ledger.add("visits", epsilon=3.0, delta=1e-5)
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(0.5, 1e-6), random_state=0
    )
    made = [
        ps.sketch(np.zeros((100, 2)), design, source="visits", ledger=(ledger.path, "visits"))
        for _ in range(2)
    ]
    kept = [ps.Receipt.from_json(entry.receipt) for entry in ledger.entries("visits")]
    assert kept == [one.receipt for one in made]
    assert ps.compose(kept).bounds[0].epsilon == ledger.total("visits").epsilon
    with pytest.raises(ps.PrivsketchError, match="missing fields"):
        ps.Receipt.from_json({"epsilon": 1.0})


def test_costs_of_different_changes_have_no_sum(receipts):
    a, other = receipts["gaussian"], receipts["gaussian, replace"]
    with pytest.raises(ps.PrivsketchError, match="neighbours differ"):
        a + other
    with pytest.raises(ps.PrivsketchError, match="units differ"):
        ps.compose([a, replace(a, unit="one person (patient)")])
    with pytest.raises(ps.PrivsketchError, match="expected receipts"):
        ps.compose([])
    with pytest.raises(ps.PrivsketchError, match="delta"):
        ps.compose([a], delta=1.0)


def test_a_composition_tells_what_is_best(receipts):
    pure = ps.compose([receipts["cube"]] * 3)
    assert [bound.name for bound in pure.bounds] == ["basic"]
    assert pure.best.epsilon == 0.6
    assert "state one" in pure.describe()
    many = ps.compose([receipts["gaussian"]] * 100)
    assert many.best.name == "zcdp"
    assert many.best.epsilon < 5
    assert many.best.delta == many.delta == 1e-4
    assert "<- best" in next(line for line in many.describe().splitlines() if "zcdp" in line)
    answer = json.loads(json.dumps(many.to_json(), allow_nan=False))
    assert answer["best"] == "zcdp"
    assert answer["receipt"]["epsilon"] == 50.0
    # At a delta below the sum, the basic bound is told but is none at that delta.
    less = ps.compose([receipts["gaussian"]] * 3, delta=1e-6)
    assert less.best.name in ("zcdp", "rdp")
    elsewhere = [replace(receipts["cube"], source=name) for name in ("a", "b")]
    assert "2 sources" in ps.compose(elsewhere).describe()


def test_a_numerical_bound_is_best_only_if_asked_for(receipts):
    count = 300  # of so many pure releases, "pld" is the least of all
    parts = [receipts["cube"]] * count
    proven, asked = ps.compose(parts, delta=1e-6), ps.compose(parts, delta=1e-6, numerical=True)
    assert asked.bounds == proven.bounds
    assert [bound.name for bound in asked.bounds if bound.is_numerical] == ["pld"]
    assert asked.best.name == "pld"
    assert proven.best.name in ("zcdp", "rdp")
    assert proven.best.epsilon > asked.best.epsilon
    for told, best in ((proven, proven.best.name), (asked, "pld")):
        lines = told.describe().splitlines()
        assert [line.split()[0] for line in lines if "<- best" in line] == [best]
        assert "numerical" in next(line for line in lines if line.startswith("pld"))
        answer = told.to_json()
        assert answer["best"] == best
        assert [bound["name"] for bound in answer["bounds"] if bound["is_numerical"]] == ["pld"]


def test_without_dp_accounting_its_bounds_are_left_out(receipts, monkeypatch):
    seams.set(monkeypatch, "composition.find_spec", lambda name: None)
    found = ps.compose([receipts["gaussian"], receipts["cube"]])
    assert [bound.name for bound in found.bounds] == ["basic", "zcdp"]


def test_a_pure_receipt_has_the_rho_that_its_epsilon_implies():
    assert Receipt("x", 0.3, 0.0, "replace").rho == 0.045
    assert Receipt("x", 0.3, 1e-6, "replace").rho is None
