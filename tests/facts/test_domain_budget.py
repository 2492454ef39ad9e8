"""Public facts: domains and budgets are checked when they are stated."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import privsketch as ps
from privsketch import Receipt
from privsketch.facts import compose_parallel, compose_sequential, domain_from_json, domain_to_json


@pytest.mark.parametrize(
    "domain",
    [
        ps.Box(-8, 8, dim=3),
        ps.Box([0, 1], [2, 3]),
        ps.Box(0, [1, 2, 3]),
        ps.Box(-1, 1),
        ps.Ball(dim=4, radius=2),
        ps.Ball(radius=1.5),
        ps.Ball(radius=2.0, center=[1, 2]),
    ],
)
def test_domains_survive_json(domain):
    assert domain_from_json(domain_to_json(domain)) == domain
    assert hash(domain_from_json(domain_to_json(domain))) == hash(domain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ps.Box(1, 1, dim=2),
        lambda: ps.Box(2, 1, dim=2),
        lambda: ps.Box(0, math.inf, dim=2),
        lambda: ps.Box(math.nan, 1, dim=2),
        lambda: ps.Box([0, 0], [1, 1, 1]),
        lambda: ps.Box([0, 0], 1, dim=3),
        lambda: ps.Box("a", 1),
        lambda: ps.Box(0, 1, dim=0),
        lambda: ps.Box(0, 1, dim=2.5),
        lambda: ps.Box([[0]], 1),
        lambda: ps.Box(-1e308, 1e308, dim=1),
        lambda: ps.Ball(dim=2),
        lambda: ps.Ball(dim=2, radius=0),
        lambda: ps.Ball(dim=2, radius=-1),
        lambda: ps.Ball(dim=2, radius=math.inf),
        lambda: ps.Ball(dim=2, radius=1, center=[0, 0, 0]),
        lambda: ps.Ball(dim=10**6, radius=1),
        lambda: ps.Ball(dim=True, radius=1),
    ],
)
def test_impossible_domains(make):
    with pytest.raises(ps.PrivsketchError):
        make()


def test_a_dimension_can_be_filled_in_but_not_changed():
    assert ps.Box(-1, 1).with_dim(3) == ps.Box(-1, 1, dim=3)
    assert ps.Ball(radius=2.0).with_dim(3).dim == 3
    with pytest.raises(ps.PrivsketchError, match="dim=3"):
        ps.Box(-1, 1, dim=3).with_dim(4)


def test_projection_moves_only_what_is_outside():
    ball = ps.Ball(dim=2, radius=2.0, center=1.0)
    points = np.array([[1.0, 1.0], [1.0, 9.0], [2.0, 2.0]])
    assert ball.project(points).tolist() == [[1.0, 1.0], [1.0, 3.0], [2.0, 2.0]]
    assert ps.Box(0, 1, dim=2).project([[2.0, 0.5]]).tolist() == [[1.0, 0.5]]


def test_spread_is_that_of_uniform_records():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40_000, 6))
    x *= 3 * (rng.uniform(size=40_000) ** (1 / 6) / np.linalg.norm(x, axis=1))[:, None]
    assert ps.Ball(dim=6, radius=3.0).spread == pytest.approx(x.std() * math.sqrt(3), rel=0.01)
    assert ps.Box(-3, 3, dim=6).spread == 3.0


@pytest.mark.parametrize("epsilon", [0, -1, 101, math.nan, math.inf, "much", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(ps.PrivsketchError, match="epsilon"):
        ps.Budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, math.nan, None])
def test_bad_delta(delta):
    with pytest.raises(ps.PrivsketchError, match="delta"):
        ps.Budget(1.0, delta)


def test_budgets_take_any_number():
    assert ps.Budget(Decimal("0.1"), Fraction(1, 4)) == ps.Budget(0.1, 0.25)
    with pytest.raises(TypeError, match="expected a number, not text"):
        ps.Budget("0.1")
    with pytest.raises(ps.PrivsketchError, match="neighbours"):
        ps.Budget(1.0, neighbours="sideways")


def receipt(epsilon, delta=0.0, source="a", neighbours="add-remove"):
    return Receipt("test", epsilon, delta, neighbours, source=source, scale=2.5)


def test_receipts_add_up_exactly():
    total = compose_sequential("all", [receipt(0.1, 1e-9)] * 3, "a")
    assert (total.epsilon, total.delta) == (0.3, 3e-9)
    assert len(total.parts) == 3


def test_disjoint_records_cost_the_largest():
    total = compose_parallel("all", [receipt(0.1, 1e-6), receipt(0.4, 1e-9, "b")], None)
    assert (total.epsilon, total.delta) == (0.4, 1e-6)
    swap = [receipt(0.1, neighbours="replace"), receipt(0.4, source="b", neighbours="replace")]
    assert "holder" in compose_parallel("all", swap, None).unit


def test_receipts_survive_json():
    total = compose_parallel(
        "all", [receipt(0.1), compose_sequential("x", [receipt(0.2)], "b")], None
    )
    assert Receipt.from_json(total.to_json()) == total
    for broken in ({}, {"mechanism": "x"}, total.to_json() | {"extra": 1}, [], None):
        with pytest.raises(ps.PrivsketchError):
            Receipt.from_json(broken)


def test_receipts_are_read_as_words():
    text = receipt(0.5, 1e-6).describe()
    for word in ("epsilon = 0.5", "delta = 1e-06", "one record", "add-remove"):
        assert word in text


@pytest.mark.parametrize("size", [1e-305, 1e-200, 1e200, 5e-324])
def test_domains_that_no_float_can_measure_are_refused(size):
    # Their units would overflow, and a record at the center would be no number at all.
    with pytest.raises(ps.PrivsketchError, match="units"):
        ps.Ball(dim=2, radius=size)
    with pytest.raises(ps.PrivsketchError, match="units"):
        ps.Box(low=-size, high=size, dim=2)


@pytest.mark.parametrize(("epsilon", "delta"), [(5e-324, 0.0), (1e-31, 1e-6), (1.0, 1e-300)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_budgets_that_no_noise_can_have_are_refused_at_once(epsilon, delta, neighbours):
    # Some formulas never end, or divide by 0, for numbers like these.
    with pytest.raises(ps.PrivsketchError, match="below 1e-"):
        ps.Budget(epsilon, delta, neighbours)


def test_a_design_file_with_such_a_budget_is_refused(tmp_path):
    import json

    from privsketch._base import document

    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        noise="laplace",
        budget=ps.Budget(1.0, 0.0, "replace"),
        masks="poisson:0.5+records:0.5",
        n_features=20,
        random_state=0,
    )
    content = json.loads(
        json.dumps(design.to_json()).replace('"epsilon": 1.0', '"epsilon": 5e-324')
    )
    assert content != design.to_json()
    (tmp_path / "study.json").write_bytes(document("design", content))
    with pytest.raises(ps.PrivsketchError, match="epsilon=5e-324"):
        ps.Design.load(tmp_path / "study.json")


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("epsilon", [1e-30, 1e-9, 100.0])
@pytest.mark.parametrize("delta", [0.0, 1e-100, 0.999])
@pytest.mark.parametrize(
    "masks", [None, "uniform:10", "poisson:0.1", "records:0.5", "poisson:1e-12+records:1e-9"]
)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_extreme_budgets_are_planned_or_refused_in_our_words(epsilon, delta, masks, neighbours):
    for noise in ("laplace", "cube") if delta == 0 else ("gaussian",):
        try:
            ps.Design.plan(
                n_components=2,
                domain=ps.Box(-1, 1, dim=3),
                noise=noise,
                masks=masks,
                budget=ps.Budget(epsilon, delta, neighbours),
                n_features=50,
                random_state=0,
                n_records=1000,
            )
        except ps.PrivsketchError:
            pass


def test_receipts_name_the_plugins_that_took_part():
    plain = ps.Receipt("a release", 1.0, 0.0, "add-remove")
    assert "plugins" not in plain.to_json()
    named = plain.naming("my-engine 1.2", None, "my-engine 1.2")
    assert named.plugins == ("my-engine 1.2",)
    assert ps.Receipt.from_json(named.to_json()) == named
    assert (named + plain).plugins == named.plugins
    assert "my-engine 1.2" in named.describe()
    for wrong in ([], "text", [1]):
        with pytest.raises(ps.ParameterError, match="plugins"):
            ps.Receipt.from_json({**plain.to_json(), "plugins": wrong})
