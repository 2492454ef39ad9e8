"""Sketches add up exactly, and so does what they cost.

Values are compared without noise, so the oracle is the sketch of all records together.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

import privsketch as ps
from privsketch import MergeError
from privsketch.facts import exact
from privsketch.noise import saturating_multiply
from tests import seams
from tests.chance import exact_answers
from tests.oracles import DESIGNS


@pytest.fixture
def design(make_design):
    return make_design()


@pytest.fixture
def site(design, make_records, no_noise):
    """A function that sketches the records of a site."""

    def make(source, *, seed=0, n_records=50, design=design):
        return ps.sketch(make_records(n_records, seed=seed), design, source=source)

    return make


def loaded(sketch):
    return ps.Sketch.from_bytes(sketch.to_bytes())


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("choices", DESIGNS.values(), ids=DESIGNS)
def test_the_sum_of_parts_is_the_sketch_of_the_whole(choices, make_design, make_records, no_noise):
    design, records = make_design(**choices), make_records()
    parts = [ps.sketch(part, design) for part in np.split(records, [1, 10, 400])]
    whole = ps.sketch(records, design)
    total = ps.merge(parts)
    assert total.values.tolist() == whole.values.tolist()
    assert total.exact_count == whole.exact_count
    assert total.n_records == whole.n_records


def test_the_order_of_merging_does_not_matter(site):
    sites = [site(name, seed=i) for i, name in enumerate("abc")]
    sums = {tuple(ps.merge(order).values.tolist()) for order in permutations(sites)}
    assert len(sums) == 1


def test_the_grouping_of_merging_does_not_matter(site):
    a, b, c, d = (site(name, seed=i) for i, name in enumerate("abcd"))
    at_once = ps.merge([a, b, c, d])
    for nested in (
        ps.merge([ps.merge([a, b]), ps.merge([c, d])]),
        ps.merge([a, ps.merge([b, ps.merge([c, d])])]),
        ps.merge([ps.merge([ps.merge([a, b]), c]), d]),
    ):
        assert nested.values.tolist() == at_once.values.tolist()
        assert (nested.ids, nested.sources) == (at_once.ids, at_once.sources)
        assert nested.receipt == at_once.receipt


def test_merging_what_was_saved_is_merging(site):
    a, b, c = (site(name, seed=i) for i, name in enumerate("abc"))
    fresh = ps.merge([ps.merge([a, b]), c])
    stored = ps.merge([loaded(ps.merge([loaded(a), loaded(b)])), loaded(c)])
    assert stored.to_bytes() == fresh.to_bytes()


def test_merging_leaves_the_parts_as_they_are(site):
    a, b = site("a"), site("b", seed=1)
    before = a.to_bytes(), b.to_bytes()
    ps.merge([a, b])
    assert (a.to_bytes(), b.to_bytes()) == before


def test_one_sketch_is_its_own_sum(site):
    assert ps.merge([site("a")]).receipt == site("a").receipt


def test_sketches_may_come_from_a_generator(site):
    names = ("a", "b")
    assert ps.merge(site(name) for name in names).sources == names


def test_the_noise_of_all_parts_counts(site, design):
    total = ps.merge([site("a"), ps.merge([site("b"), site("c")])])
    assert total.noise_variance == pytest.approx(3 * design.noise_std**2)


def test_public_counts_add(make_design, site):
    design = make_design(neighbours="replace")
    sizes = {"a": 10, "b": 25, "c": 7}
    sites = [site(name, n_records=size, design=design) for name, size in sizes.items()]
    total = ps.merge([sites[0], ps.merge(sites[1:])])
    assert total.exact_count == 42
    assert total.n_records == 42.0


@pytest.fixture
def anything_merges(monkeypatch):
    """Values that no records lead to are not refused."""
    seams.set(monkeypatch, "merge.require_possible", lambda sketch: None)


@pytest.mark.parametrize("end", [-(2**63), 2**63 - 1])
@pytest.mark.usefixtures("anything_merges")
def test_sums_stop_at_the_ends_of_int64(site, end):
    a, b = site("a"), site("b")
    near = replace(a, values=np.full_like(a.values, end))
    step = replace(b, values=np.full_like(b.values, 5 if end > 0 else -5))
    assert set(ps.merge([near, step]).values.tolist()) == {end}
    assert set(ps.merge([step, near]).values.tolist()) == {end}


@pytest.mark.usefixtures("anything_merges")
def test_sums_near_the_ends_of_int64_are_exact(site):
    a, b = site("a"), site("b")
    rng = np.random.default_rng(0)
    ends = np.array([-(2**63), -(2**63) + 1, -(2**62), -1, 0, 1, 2**62, 2**63 - 2, 2**63 - 1])
    left, right = (rng.choice(ends, size=a.values.shape) for _ in range(2))
    total = ps.merge([replace(a, values=left), replace(b, values=right)])
    expected = [
        min(max(int(x) + int(y), -(2**63)), 2**63 - 1) for x, y in zip(left, right, strict=True)
    ]
    assert total.values.tolist() == expected


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"random_state": 8},
        {"domain": ps.Box(-4, 5, dim=3)},
        {"n_records": 2000},
        {"n_components": 1},
        {"columns": ["a", "b", "c"]},
        {"count": "omitted"},
    ],
    ids=str,
)
def test_sketches_of_another_design_are_refused(site, make_design, change):
    other = site("b", design=make_design(**change))
    with pytest.raises(ps.PrivsketchError, match="same study"):
        ps.merge([site("a"), other])


def test_the_same_sketch_twice_is_refused(site):
    a, b = site("a"), site("b")
    for parts in ([a, a], [a, b, loaded(a)], [ps.merge([a, b]), a]):
        for same_records in (False, True):
            with pytest.raises(ps.PrivsketchError, match="same sketch is given twice"):
                ps.merge(parts, same_records=same_records)


def test_the_same_source_twice_is_refused(site):
    a, again, b = site("a"), site("a"), site("b")
    for parts in ([a, again], [ps.merge([a, b]), again]):
        with pytest.raises(ps.PrivsketchError, match=r"'a' occurs more than once.*budgets"):
            ps.merge(parts)


def test_unnamed_sketches_are_different_sources(design, make_records, no_noise):
    parts = [ps.sketch(make_records(10), design) for _ in range(3)]
    assert len(set(ps.merge(parts).sources)) == 3


def test_no_sketches_are_refused():
    with pytest.raises(ps.PrivsketchError, match="no sketches"):
        ps.merge([])


@pytest.mark.parametrize("other", [None, 1, "site-1.sketch", np.zeros(3)])
def test_something_else_than_a_sketch_is_refused(site, other):
    with pytest.raises(ps.PrivsketchError, match="expected sketches"):
        ps.merge([site("a"), other])


@pytest.mark.parametrize("other", [None, 1])
def test_something_else_than_a_list_is_refused(other):
    with pytest.raises(ps.PrivsketchError, match="expected sketches"):
        ps.merge(other)


def test_a_sketch_without_a_list_is_refused(site):
    with pytest.raises(ps.PrivsketchError, match="expected sketches"):
        ps.merge(site("a"))


# ---------------------------------------------------------------- receipts


def test_different_sources_compose_in_parallel(site):
    receipt = ps.merge([site("a"), site("b"), site("c")]).receipt
    assert (receipt.epsilon, receipt.delta) == (1.0, 1e-6)
    assert receipt.composition == "parallel"
    assert [part.source for part in receipt.parts] == ["a", "b", "c"]


def test_the_same_source_composes_in_sequence_if_told(site):
    receipt = ps.merge([site("a"), site("a")], same_records=True).receipt
    assert (receipt.epsilon, receipt.delta) == (2.0, 2e-6)


def test_the_dearest_source_counts(site):
    parts = [site("a"), site("b"), site("b"), site("b"), site("c"), site("c")]
    receipt = ps.merge(parts, same_records=True).receipt
    assert (receipt.epsilon, receipt.delta) == (3.0, 3e-6)
    assert {part.source: part.epsilon for part in receipt.parts} == {"a": 1.0, "b": 3.0, "c": 2.0}


def test_shares_of_a_source_are_found_in_every_nesting(site):
    a1, a2, a3, b1, b2 = (site(name) for name in ("a", "a", "a", "b", "b"))

    def merged(*parts):
        return ps.merge(parts, same_records=True)

    orders = [
        merged(a1, a2, a3, b1, b2),
        merged(merged(a1, b1), merged(a2, b2), a3),
        merged(merged(a1, a2), merged(a3, b1, b2)),
        merged(b1, merged(a1, merged(a2, merged(b2, a3)))),
        loaded(merged(loaded(merged(a3, b2)), loaded(merged(a1, a2)), b1)),
    ]
    for total in orders:
        assert (total.receipt.epsilon, total.receipt.delta) == (3.0, 3e-6)
        costs = {part.source: part.epsilon for part in total.receipt.parts}
        assert costs == {"a": 3.0, "b": 2.0}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_cost_does_not_depend_on_the_order(site, order):
    parts = [site("a"), site("a"), site("b")]
    receipt = ps.merge([parts[i] for i in order], same_records=True).receipt
    assert (receipt.epsilon, receipt.delta) == (2.0, 2e-6)


def test_costs_add_as_decimal_numbers_and_never_too_low(make_design, site):
    design = make_design(epsilon=0.1, delta=1e-6, feature_map="fourier")
    receipt = ps.merge([site("a", design=design) for _ in range(3)], same_records=True).receipt
    assert Fraction(3, 10) <= exact(receipt.epsilon) <= Fraction(3, 10) + Fraction(1, 10**15)
    assert exact(receipt.delta) >= 3 * exact(1e-6)


def test_a_receipt_of_two_parts_stays_whole(make_design, site):
    design = make_design(delta=0.0, noise="laplace")
    sites = [site(name, design=design) for name in "ab"]
    receipt = ps.merge([ps.merge(sites), site("c", design=design)]).receipt
    assert [part.source for part in receipt.parts] == ["a", "b", "c"]
    assert all(len(part.parts) == 2 for part in receipt.parts)
    assert receipt.epsilon <= 1.0


def test_a_receipt_of_two_parts_adds_for_the_same_source(make_design, site):
    design = make_design(delta=0.0, noise="laplace")
    once = site("a", design=design)
    total = ps.merge([once, site("a", design=design)], same_records=True)
    assert exact(total.receipt.epsilon) >= 2 * exact(once.receipt.epsilon)


def test_under_replace_a_record_stays_with_its_holder(make_design, site):
    design = make_design(neighbours="replace")
    receipt = ps.merge([site(name, design=design) for name in "ab"]).receipt
    assert receipt.neighbours == "replace"
    assert "staying with its holder" in receipt.unit


def test_the_receipt_names_every_source(site):
    words = ps.merge([site("north"), site("south")]).receipt.describe()
    assert "north: " in words
    assert "south: " in words
    assert "the largest counts" in words


def test_a_sketch_without_real_noise_does_not_mix_with_real_ones(make_design, make_records):
    design, records = make_design(), make_records()
    real = ps.sketch(records, design, source="a")
    with exact_answers():
        tests = [ps.sketch(records, design, source=name) for name in "bc"]
    assert "INSECURE" in ps.merge(tests).receipt.describe()
    with pytest.raises(ps.PrivsketchError, match="without real noise"):
        ps.merge([real, tests[0]])


def test_a_merged_receipt_states_what_it_assumes(make_design, make_records):
    design, records = make_design(), make_records()
    total = ps.merge([ps.sketch(records, design, source=name) for name in "ab"])
    assert "one source only" in total.receipt.describe()


# --- weights, and what is public ---------------------------------------------------------------


def sites(design, sizes=(300, 1200, 50)):
    rng = np.random.default_rng(3)
    tables = [rng.uniform(-1, 1, (n, design.dim)) for n in sizes]
    return tables, [ps.sketch(X, design, source=f"site-{i}") for i, X in enumerate(tables)]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_holders_count_by_their_number_of_records(neighbours):
    # ICASSP Definition 4 with holders of different sizes: the mean over all records.
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(1.0, 1e-6, neighbours),
        random_state=0,
    )
    with exact_answers():
        tables, parts = sites(design)
        total = ps.merge(parts)
        whole = ps.sketch(np.vstack(tables), design)
    assert (total.sums == whole.sums).all()
    assert total.n_records == 1550
    means = np.array([part.mean() for part in parts])
    shares = np.array([300, 1200, 50]) / 1550
    assert total.mean() == pytest.approx(shares @ means, abs=1e-12)
    # Noise of all holders adds up, and nothing else is paid.
    assert total.noise_variance == pytest.approx(3 * design.noise_std**2)
    assert total.receipt.epsilon == 1.0
    moves = "a move to another source is not hidden" in total.receipt.describe()
    assert moves == (neighbours == "replace")
    if neighbours == "replace":
        assert [part.exact_count for part in parts] == [300, 1200, 50]
    else:
        assert all(part.exact_count is None for part in parts)


def test_weights_let_records_count_more_often(tmp_path):
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        budget=ps.Budget(1.0, 1e-6),
        random_state=0,
    )
    with exact_answers():
        tables, parts = sites(design)
        total = ps.merge(parts, weights=[4, 1, 24])
        repeated = ps.sketch(np.vstack([tables[0]] * 4 + [tables[1]] + [tables[2]] * 24), design)
    assert (total.values == repeated.values).all()
    assert total.weights == (4, 1, 24)
    assert total.noise_variance == pytest.approx((16 + 1 + 576) * design.noise_std**2)
    total.save(tmp_path / "all.sketch")
    loaded = ps.Sketch.load(tmp_path / "all.sketch")
    assert loaded.weights == (4, 1, 24)
    assert loaded.noise_variance == total.noise_variance
    some = ps.merge(parts[:2], weights=[2, 1])
    twice = ps.merge([some, parts[2]], weights=[2, 24], allow_weights=True)
    assert twice.weights == (4, 2, 24)
    assert ps.merge(parts[:1], weights=[3]).weights == (3,)
    assert ps.Sketch.from_bytes(ps.merge(parts[:1], weights=[3]).to_bytes()).weights == (3,)


def test_a_sketch_that_came_with_weights_is_refused_by_name(site):
    """Its holder would count for fifty: values and weight times 50 are a sketch that can be."""
    a, b = site("a"), site("b", seed=1)
    weighted = loaded(replace(b, values=50 * b.values, weights=(50,)))
    for parts in ([a, weighted], [weighted], [ps.merge([a, weighted], allow_weights=True)]):
        with pytest.raises(MergeError, match=r"source 'b' has a weight.* 50 times.*allow_weights"):
            ps.merge(parts)
    with pytest.raises(MergeError, match="source 'b' has a weight"):
        ps.compare([a, weighted])
    assert ps.merge([a, weighted], allow_weights=True).weights == (1, 50)
    assert "the records of b count 50 times each" in (
        ps.compare([a, weighted], allow_weights=True).describe()
    )


@pytest.mark.parametrize("weights", [[1, 2], [1, 2, 0], [1, 2, -1], [1, 2, 0.5], [1, 1, 10**7]])
def test_weights_are_whole_numbers(weights):
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0), random_state=0
    )
    _, parts = sites(design, (3, 3, 3))
    with pytest.raises(ps.PrivsketchError, match="weights"):
        ps.merge(parts, weights=weights)


def test_weighted_sums_saturate():
    limit = np.iinfo(np.int64)
    values = np.array([0, 3, -3, limit.max // 2, limit.max // 2 + 1, limit.min, limit.min // 2])
    assert saturating_multiply(values, 2).tolist() == [
        0,
        6,
        -6,
        limit.max - 1,
        limit.max,
        limit.min,
        limit.min,
    ]
