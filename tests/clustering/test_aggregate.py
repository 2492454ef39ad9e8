"""Sample and aggregate: one record changes one block, and the exact law of tiny tables.

Which block a record falls into is drawn for it. Neighbouring tables are compared with the same
draws for the records they share; a record that takes the place of another has its draw.
"""

import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.stats import chi2

import privsketch as ps
from privsketch.clustering import Passes, clustered
from privsketch.clustering.baselines import aggregate
from privsketch.facts import exact
from privsketch.testing import questions
from tests import seams

RELATIONS = ["add-remove", "replace"]
KINDS = ["laplace", "cube", "gaussian"]
LINE, PLANE = ps.Box(-1, 1, dim=1), ps.Box(-1, 1, dim=2)
EDGE = 3  # largest integer of a coordinate of two bits


def words_by_content(records):
    """Two words that depend on a record alone."""
    key = np.zeros(len(records), dtype=np.uint64)
    for column in (records.astype(np.int64)).astype(np.uint64).T:
        key = mixed(key * np.uint64(0x9E3779B97F4A7C15) + column)
    return np.stack([key, mixed(key)], axis=1)


def mixed(key):
    """A bijection of 64-bit words that leaves no pattern (Steele et al., 2014)."""
    key = key + np.uint64(0x9E3779B97F4A7C15)
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@pytest.fixture
def by_content(monkeypatch):
    seams.set(monkeypatch, "aggregate.drawn_words", words_by_content)


def put(monkeypatch, places):
    """The records, in their order, fall into the blocks that are given."""

    def words(records):
        assert len(records) == len(places)
        return np.array([(place, i) for i, place in enumerate(places)], dtype=np.uint64)

    seams.set(monkeypatch, "aggregate.drawn_words", words)


def question(table, k, noise, neighbours="add-remove", *, domain=LINE, epsilon=2.0, **options):
    """What a run asks of the noise: one vector, and its law."""
    table = np.asarray(table, dtype=float).reshape(-1, len(domain.half_widths))
    budget = ps.Budget(epsilon, 1e-3 if noise == "gaussian" else 0.0, neighbours)
    options = {"n_records": 10, "n_blocks": 2, "random_state": 0, "n_threads": 1, **options}
    options.update(domain=domain, budget=budget, noise=noise)
    (asked,) = questions(lambda: clustered(aggregate.cluster, table, k, **options))
    return asked.values, asked.law


# --- one record, one block ----------------------------------------------------------------------


def different(one, other):
    return sum(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.usefixtures("by_content")
@pytest.mark.parametrize("rows", [2**14, 1000])
@pytest.mark.parametrize("most", [2**25, 2**14, 2**10])
def test_one_record_changes_one_block(most, rows):
    """Also where blocks are cut, and whatever the pieces in which a table is read."""

    def sampled(records):
        passes = Passes(records, PLANE)
        return aggregate.sampled_blocks(passes, 8, max_values=most, rows=rows)

    table = np.random.default_rng(0).uniform(-1, 1, size=(30_000, 2))
    blocks = sampled(table)
    assert sum(map(len, blocks)) == min(len(table), most // 2)
    changed = 0
    for row in (0, 1, 77, 5000, 16_384, 29_999):
        others = sampled(np.delete(table, row, axis=0))
        assert different(blocks, others) <= 1
        changed += different(blocks, others)
    assert changed > 0 or most < 2**12
    shuffled = np.random.default_rng(1).permutation(table)
    parts = [shuffled[:7], shuffled[7:20_000], shuffled[20_000:]]
    assert different(blocks, sampled(parts)) == 0


@pytest.mark.usefixtures("by_content")
def test_one_block_alone_moves_its_centers():
    table = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2))
    reference = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]) * 1e5
    found = []
    for rows in (table, table[1:], table[:-1], np.delete(table, 4000, axis=0)):
        passes = Passes(rows, PLANE)
        blocks = aggregate.sampled_blocks(passes, 5, max_values=2**13)
        with aggregate.one_thread_of_kmeans():
            found.append([aggregate.ordered_centers(passes, b, reference, 0) for b in blocks])
    assert all(different(found[0], other) <= 1 for other in found[1:])


def test_k_means_of_a_block_has_one_thread():
    """Several threads add up in any order: the last bits would not be the block's alone."""
    from threadpoolctl import threadpool_info

    with aggregate.one_thread_of_kmeans():
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}


def test_blocks_are_drawn_anew_and_evenly():
    table = np.zeros((40_000, 1))
    passes, sizes = Passes(table, LINE), []
    for _ in range(2):
        sizes.append([len(block) for block in aggregate.sampled_blocks(passes, 20)])
        statistic = ((np.array(sizes[-1]) - 2000) ** 2 / 2000).sum()
        assert chi2.sf(statistic, 19) > 1e-8
    # That all 20 sizes are the same twice has a chance far below 1e-20.
    assert sizes[0] != sizes[1]


def test_those_who_stay_are_drawn_evenly():
    passes = Passes(np.linspace(-1, 1, 16_000)[:, np.newaxis], LINE)
    kept = np.concatenate(aggregate.sampled_blocks(passes, 4, max_values=8000, rows=3000))
    assert len(kept) == 8000
    counts, _ = np.histogram(kept, bins=16, range=(-(2.0**18), 2.0**18))
    # Each of 1000 stays with a chance of 1/2: less than a chi-square with a variance of 250.
    assert chi2.sf(((counts - 500) ** 2 / 250).sum(), 15) > 1e-8


# --- the exact law of tiny tables ---------------------------------------------------------------


def totals(table, k, noise, neighbours, n_blocks, monkeypatch):
    """The exact vector for every way that records can fall into blocks, and the law."""
    found = []
    for places in itertools.product(range(n_blocks), repeat=len(table)):
        put(monkeypatch, places)
        found.append(question(table, k, noise, neighbours, n_blocks=n_blocks))
    assert len({law for _, law in found}) == 1
    return np.array([values for values, _ in found]), found[0][1]


def log_law(values, law, scale, places):
    """Log-chances, up to a constant, of answers at `places`: a mixture over all ways."""
    steps = places[:, np.newaxis] - values[np.newaxis]
    if law.kind == "laplace":
        logs = -np.abs(steps).sum(axis=2) / scale
    elif law.kind == "cube":
        logs = -np.abs(steps).max(axis=2) / scale
    else:
        logs = -(steps**2).sum(axis=2) / (2 * scale**2)
    return np.logaddexp.reduce(logs, axis=1) - math.log(len(values))


def tables_of(values, sizes):
    return [t for n in sizes for t in itertools.product(values, repeat=n)]


def neighbours_of(tables, relation):
    """Pairs in which one has a record more, or another record at one place."""
    for one, other in itertools.combinations(tables, 2):
        if relation == "replace":
            if len(one) == len(other) and sum(a != b for a, b in zip(one, other)) == 1:  # noqa: B905
                yield one, other
        elif one == other[:-1]:
            yield one, other


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.usefixtures("few_bits")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", ["laplace", "cube"])
@pytest.mark.parametrize("k", [1, 2])
def test_a_tiny_table_costs_its_budget_and_no_more(k, kind, relation, monkeypatch):
    # An empty block is as far as can be from a record at the other end.
    seams.set(monkeypatch, "aggregate.start_centers", lambda *facts: -np.ones((k, 1)))
    n_blocks, epsilon = 2, 2.0
    values, sizes = (-1.0, 0.25, 1.0), ((0, 1, 2) if k == 1 else (1, 2))
    tables = tables_of(values, sizes[relation == "replace" and k == 1 :])
    laws = {t: totals(t, k, kind, relation, n_blocks, monkeypatch) for t in tables}
    law = next(iter(laws.values()))[1]
    assert all(other == law for _, other in laws.values())
    factor = law.sensitivity / (2 * EDGE * (k if kind == "laplace" else 1))
    reach = n_blocks * EDGE * factor + 1  # beyond it log-ratios of Laplace noise stay the same
    grid = np.unique(np.rint(np.linspace(-reach, reach, 61)))
    grid = np.concatenate([[-1000 * reach], grid, [1000 * reach]])
    places = np.array(list(itertools.product(grid, repeat=k)))

    def worst(scale):
        logs = {t: log_law(v, law, scale, places) for t, (v, _) in laws.items()}
        return max(np.abs(logs[a] - logs[b]).max() for a, b in neighbours_of(tables, relation))

    loss = worst(law.scale)
    assert loss <= epsilon * (1 + 1e-9)
    # Two centers of a block cannot both cross the domain when one of its two records does.
    if k == 1:
        assert loss >= 0.999 * epsilon
        assert worst(0.9 * law.scale) > 1.1 * epsilon  # planted: a tenth less noise
    else:
        assert loss >= 0.3 * epsilon


@pytest.mark.usefixtures("few_bits")
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_tiny_table_keeps_epsilon_and_delta(relation, monkeypatch):
    seams.set(monkeypatch, "aggregate.start_centers", lambda *facts: -np.ones((1, 1)))
    tables = tables_of((-1.0, 0.25, 1.0), (1, 2))
    epsilon, delta = 6.0, 1e-3
    laws = {}
    for table in tables:
        found = []
        for places in itertools.product(range(2), repeat=len(table)):
            put(monkeypatch, places)
            found.append(question(table, 1, "gaussian", relation, epsilon=epsilon))
        laws[table] = np.array([values for values, _ in found]), found[0][1]
    law = laws[tables[0]][1]
    places = np.arange(-100, 101)[:, np.newaxis]

    def worst(scale):
        chances = {}
        for table, (values, _) in laws.items():
            logs = log_law(values, law, scale, places)
            chances[table] = np.exp(logs - np.logaddexp.reduce(logs))
        pairs = [*neighbours_of(tables, relation)]
        return max(
            np.maximum(chances[a] - math.exp(epsilon) * chances[b], 0).sum()
            for pair in pairs
            for a, b in (pair, pair[::-1])
        )

    assert worst(law.scale) <= delta
    assert worst(law.scale / 2) > delta  # planted: noise for half of it


def change(one, other):
    return float(np.abs(one[0] - other[0]).sum() / one[1].sensitivity)


@pytest.mark.usefixtures("few_bits")
def test_blocks_by_the_order_of_rows_are_caught(monkeypatch):
    """Pairs of + - - + + - - +: without the first of them all pairs are of equal records."""
    table = np.tile([1.0, -1.0, -1.0, 1.0], 6)
    by_row = lambda records: np.stack([np.arange(len(records)) // 2] * 2, 1).astype(np.uint64)  # noqa: E731
    seams.set(monkeypatch, "aggregate.drawn_words", by_row)
    asked = [question(rows, 2, "laplace", n_blocks=12) for rows in (table, table[1:])]
    assert change(*asked) > 2
    seams.set(monkeypatch, "aggregate.drawn_words", words_by_content)
    asked = [question(rows, 2, "laplace", n_blocks=12) for rows in (table, table[1:])]
    assert change(*asked) <= 1


@pytest.mark.usefixtures("few_bits")
def test_a_replacement_that_moves_to_another_block_is_caught(monkeypatch):
    """With a hash of the content two blocks change, and the noise would have to be doubled."""
    seams.set(monkeypatch, "aggregate.start_centers", lambda *facts: -np.ones((1, 1)))
    found = {}
    for new_place in (0, 1):
        put(monkeypatch, [0, 1])
        one = question([1.0, 0.5], 1, "laplace", "replace")
        put(monkeypatch, [new_place, 1])
        found[new_place] = change(one, question([-1.0, 0.5], 1, "laplace", "replace"))
    assert found[0] == 1
    assert found[1] > 1.3


# --- noise is for all centers of a block --------------------------------------------------------

DOMAINS = [ps.Box([-1, 0], [1, 30]), ps.Ball(2, 3.0, [1.0, -2.0]), ps.Box(-4, 4, dim=2)]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("k", [1, 4])
def test_how_much_noise(k, domain, kind, relation):
    """2 k times the L1 norm, the longest side, 2 sqrt(k) times the L2 norm; for both relations."""
    _, law = question(np.zeros((1, 2)), k, kind, relation, domain=domain)
    half = domain.half_widths
    unit = Passes(np.zeros((1, 2)), domain).unit
    is_ball = isinstance(domain, ps.Ball)
    radius = half[0] if is_ball else math.hypot(*half)
    l1 = math.sqrt(2) * half[0] if is_ball else half.sum()
    norm = {"laplace": 2 * k * l1, "cube": 2 * half.max(), "gaussian": 2 * radius * k**0.5}
    assert law.sensitivity * unit == pytest.approx(norm[kind], rel=1e-4)
    assert law.neighbours == relation
    assert law.n_components == 2 * k
    if kind != "gaussian":
        assert exact(law.scale) * exact(law.epsilon) >= exact(law.sensitivity)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_no_block_is_farther_from_another_than_the_noise_is_for(domain, k):
    passes, rng = Passes(np.zeros((0, 2)), domain), np.random.default_rng(k)
    corner = domain.center_vector + 2 * domain.half_widths
    other = domain.center_vector - 2 * domain.half_widths
    reference = passes.quantised(rng.normal(size=(k, 2)))
    blocks = [np.tile(corner, (9, 1)), np.tile(other, (9, 1)), np.zeros((k - 1, 2))]
    blocks += [domain.center_vector + rng.normal(size=(n, 2)) * 20 for n in (k, 20, 200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of blocks with fewer distinct records than clusters
        found = [
            aggregate.ordered_centers(passes, passes.quantised(b), reference, 0) for b in blocks
        ]
    radius = passes.l2_squared
    for centers in found:
        assert (np.abs(centers) <= passes.limits).all()
        assert (centers.astype(object) ** 2).sum(axis=1).max() <= radius
    farthest = ((found[0] - found[1]).astype(object) ** 2).sum()
    assert farthest <= 4 * k * radius
    assert farthest >= 3.999 * k * radius


def test_centers_have_the_places_of_their_references():
    passes, rng = Passes(np.zeros((0, 2)), PLANE), np.random.default_rng(0)
    places = rng.uniform(-0.9, 0.9, size=(4, 2))
    block = passes.quantised(np.repeat(places, 30, axis=0))
    for _ in range(5):
        reference = passes.quantised(rng.uniform(-1, 1, size=(4, 2)))
        found = aggregate.ordered_centers(passes, block, reference, 0)

        def cost(order, found=found, reference=reference):
            return ((found[list(order)] - reference) ** 2).sum()

        assert min(map(cost, itertools.permutations(range(4)))) == cost(range(4))
        expected = passes.quantised(places)
        assert (np.sort(found, axis=0) == np.sort(expected, axis=0)).all()


# --- the model ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("domain", DOMAINS)
def test_no_records_are_the_references(domain):
    options = {"domain": domain, "n_records": 50, "random_state": 4, "n_blocks": 3}
    model = clustered(
        aggregate.cluster, np.zeros((0, 2)), 4, budget=ps.Budget(1.0, 1e-6), **options
    )
    start = aggregate.start_centers(domain, 4, "packing", 4) + domain.center_vector
    np.testing.assert_allclose(model.centers, start, atol=1e-3)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize(("kind", "delta"), [("cube", 0.0), ("laplace", 0.0), (None, 1e-6)])
def test_it_finds_clear_clusters(kind, delta, fixed_noise):
    # Noise has a standard deviation below 0.02.
    rng = np.random.default_rng(0)
    places = np.array([[-0.7, -0.6], [0.0, 0.7], [0.7, -0.6]])
    table = np.repeat(places, 5000, axis=0) + 0.03 * rng.normal(size=(15_000, 2))
    model = clustered(
        aggregate.cluster,
        table,
        3,
        domain=PLANE,
        budget=ps.Budget(20.0, delta),
        noise=kind,
        n_records=15_000,
        random_state=0,  # references at which blocks disagree about their order are rare, not never
    )
    far = np.linalg.norm(model.centers[:, np.newaxis] - places, axis=2)
    assert sorted(far.argmin(axis=0)) == [0, 1, 2]
    assert far.min(axis=0).max() < 0.25  # a block may find other clusters


@pytest.mark.usefixtures("no_noise")
def test_one_cluster_is_the_mean_of_the_means_of_blocks(monkeypatch):
    table = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    put(monkeypatch, np.arange(60) % 4)
    model = clustered(
        aggregate.cluster, table, 1, domain=PLANE, budget=ps.Budget(1.0), n_records=60, n_blocks=4
    )
    means = [table[place::4].mean(axis=0) for place in range(4)]
    np.testing.assert_allclose(model.centers[0], np.mean(means, axis=0), atol=1e-5)


def test_how_many_blocks():
    assert aggregate.blocks_for(1, 3) == 1
    assert aggregate.blocks_for(1000, 5) == 20
    assert aggregate.blocks_for(1e9, 5) == aggregate.MAX_SAMPLE_BLOCKS


def test_a_number_that_nobody_gave_is_counted_with_noise(spent):
    model = clustered(aggregate.cluster, np.zeros((0, 1)), 2, domain=LINE, budget=ps.Budget(1.0))
    assert [law.epsilon for law in spent] == pytest.approx([0.02, 0.98])
    assert model.receipt.epsilon == pytest.approx(1.0, rel=1e-12)
    spent.clear()
    public = ps.Budget(1.0, 0.0, "replace")
    model = clustered(aggregate.cluster, np.zeros((4, 1)), 2, domain=LINE, budget=public)
    assert (model.n_records, len(spent), model.receipt.epsilon) == (4, 1, 1.0)


@pytest.mark.parametrize("k", [1, 4])
def test_pure_places_take_the_noise_of_smaller_variance(k):
    for domain in (ps.Ball(2, 1.0), ps.Ball(40, 1.0), ps.Box(-1, 1, dim=40), DOMAINS[0]):
        table = np.tile(domain.center_vector, (3, 1))

        def variance(kind, domain=domain, table=table):
            _, law = question(table, k, kind, "add-remove", domain=domain)
            factor = law.sensitivity / (2 * Passes(table, domain).limits.max())
            return law.variance / (factor**2 if law.kind == "cube" else 1)

        least = min(variance("laplace"), variance("cube"))
        assert variance(None) == pytest.approx(least, rel=1e-5)
