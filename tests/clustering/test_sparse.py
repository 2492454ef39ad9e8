"""Sparse records: readers, cuts, exact privacy losses of picks, replays, and utility."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import privsketch as ps
from privsketch import ParameterError, RecordError
from privsketch.clustering import (
    SparseCenters,
    SparsePasses,
    TreeSettings,
    cluster_by_tree,
    cluster_sparse,
    cluster_with,
    clustered,
    merged,
    noise_reach,
    picks_for,
    release_largest,
    release_picks,
    sparse_sums,
    sparse_weights,
)
from privsketch.facts import exact
from privsketch.noise import PicksLaw, choose, pick_largest, picks_law
from privsketch.tables import count_records
from privsketch.testing import Tape, exact_answer, questions, replay
from tests.oracles import account_of, fits
from tests.reading import read_blocks, read_sparse_blocks

RELATIONS = ["add-remove", "replace"]
STEPS = ("counts", "picks", "sums")


def dense(n, dim, n_entries, seed=0):
    """A table with about `n_entries` non-zeros a row, some rows empty."""
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((n, dim)) < n_entries / dim, rng.normal(size=(n, dim)), 0.0)
    table[::7] = 0.0
    return table


def passes_of(table, n_nonzero, domain=None, **options):
    matrix = table if sp.issparse(table) else sp.csr_array(np.asarray(table, dtype=float))
    domain = domain or ps.Box(-1, 1, dim=matrix.shape[1])
    return SparsePasses(matrix, domain, n_nonzero, n_threads=1, **options)


def one_cluster(records):
    return np.zeros(records.shape[0], dtype=np.intp)


# --- readers ---


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("container", [sp.coo_array, sp.coo_matrix])
def test_every_format_reads_like_the_dense_table(kind, container):
    table = dense(40, 9, 3)
    matrix = container(table).asformat(kind)
    blocks = list(read_blocks(matrix, 9))
    np.testing.assert_array_equal(np.concatenate(blocks), table)
    rows = [block.toarray() for block in read_sparse_blocks(matrix, 9)]
    np.testing.assert_array_equal(np.concatenate(rows), table)
    assert count_records(ps.Table(matrix)) == 40
    some = np.concatenate(list(read_blocks(matrix, 2, [4, 1])))
    np.testing.assert_array_equal(some, table[:, [4, 1]])
    some = sp.vstack(list(read_sparse_blocks([matrix, matrix], 2, [4, 1]))).toarray()
    np.testing.assert_array_equal(some, np.concatenate([table, table])[:, [4, 1]])


def test_entries_stored_twice_are_added_and_the_table_stays_as_it_is():
    data, indices = np.array([100, 100, 1], dtype=np.int8), np.array([2, 2, 0])
    matrix = sp.csr_array((data, indices, [0, 2, 3]), shape=(2, 3))
    expected = [[0, 0, 200], [1, 0, 0]]
    assert np.concatenate(list(read_blocks(matrix, 3))).tolist() == expected
    (block,) = read_sparse_blocks(matrix, 3)
    assert block.nnz == 2
    assert block.toarray().tolist() == expected
    assert matrix.nnz == 3
    assert matrix.data.tolist() == [100, 100, 1]


def test_blocks_of_few_entries():
    # More entries than a block may have, in rows of very different lengths.
    lengths = np.array([0, 200_000, 100_000, 3, 0, 300_000, 1])
    dim = 400_000
    indices = np.concatenate([np.arange(n) for n in lengths])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_array((np.ones(len(indices)), indices, starts), shape=(7, dim))
    blocks = list(read_sparse_blocks(matrix, dim))
    assert len(blocks) > 2
    assert sum(block.shape[0] for block in blocks) == 7
    assert max(block.nnz for block in blocks) == 300_000  # a row is not cut
    np.testing.assert_array_equal(np.concatenate([np.diff(b.indptr) for b in blocks]), lengths)


def test_what_is_no_table_of_numbers_is_refused():
    for read in (read_blocks, read_sparse_blocks):
        with pytest.raises(RecordError, match="not numeric"):
            list(read(sp.csr_array(np.eye(3) * 1j), 3))
        with pytest.raises(RecordError, match="dim=4"):
            list(read(sp.csr_array(np.eye(3)), 4))
        with pytest.raises(RecordError, match="2 dimensions"):
            list(read(sp.coo_array(np.ones(3)), 3))
        assert list(read(sp.csr_array((0, 3)), 3)) == []


def test_a_sketch_of_sparse_rows_is_that_of_dense_ones():
    table = dense(300, 6, 2)
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-2, 2, dim=6), budget=ps.Budget(1.0), random_state=0
    )
    one = questions(lambda: ps.sketch(table, design))
    other = questions(lambda: ps.sketch(sp.csr_matrix(table), design))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.parametrize("method", ["pipeline", "partition-tree", "lloyd", "grid"])
def test_every_method_reads_sparse_rows(method):
    table = sp.csr_array(dense(300, 3, 1))
    found = cluster_with(
        method, table, 2, domain=ps.Box(-2, 2, dim=3), budget=ps.Budget(5.0), n_records=300
    )
    assert found.centers.shape == (2, 3)


# --- cutting records ---


def cut(row, limit, n_nonzero, radius=None):
    """One record by hand: whole numbers, cut to the domain, the largest entries kept."""
    far = limit if radius is None else 16 * limit
    whole = [max(-far, min(far, round(value * limit))) for value in row]
    order = sorted(range(len(row)), key=lambda c: (-abs(whole[c]), c))[:n_nonzero]
    kept = [whole[c] if c in order else 0 for c in range(len(row))]
    squared = sum(v * v for v in kept)
    if radius is not None and squared > radius * radius:
        kept = [int(v * (radius / math.sqrt(squared))) for v in kept]
    return kept


@pytest.mark.parametrize("n_nonzero", [1, 3, 20])
@pytest.mark.parametrize("kind", ["box", "ball"])
def test_records_are_cut_by_themselves(n_nonzero, kind):
    table = dense(200, 8, 5) * 1.5
    table[3] = [0.5, -0.5, 0.5, 0.5, 0, 0, -0.5, 0]  # the first of equals stay
    table[4, 2] = 1e300
    domain = ps.Box(-1, 1, dim=8) if kind == "box" else ps.Ball(dim=8, radius=1.0)
    passes = passes_of(table, n_nonzero, domain)
    limit = 2**passes.bits
    whole = passes.quantised(sp.csr_array(table))
    radius = None if kind == "box" else limit - 1
    expected = [cut(row, limit, n_nonzero, radius) for row in table.tolist()]
    np.testing.assert_array_equal(whole.toarray(), expected)
    alone = [passes.quantised(sp.csr_array(row[np.newaxis])).toarray()[0] for row in table]
    np.testing.assert_array_equal(alone, expected)
    got = np.abs(whole.toarray())
    assert got.max() <= passes.linf
    assert got.sum(axis=1).max() <= passes.l1
    assert (got**2).sum(axis=1).max() <= passes.l2_squared
    assert (got > 0).sum(axis=1).max() <= n_nonzero


def test_columns_may_have_bounds_of_their_own():
    box = ps.Box([0, -1, 0], [4, 0.5, 2], dim=3)
    passes = passes_of([[9.0, -9.0, 9.0], [-9.0, 9.0, 1.0]], 2, box)
    whole = passes.quantised(sp.csr_array([[9.0, -9.0, 9.0], [-9.0, 9.0, 1.0]])).toarray()
    np.testing.assert_allclose(whole * passes.unit, [[4, 0, 2], [0, 0.5, 1]])
    assert passes.l1 == 3 * 2**passes.bits // 2
    assert passes.l1_over(1) == passes.linf == 2**passes.bits
    assert passes.l2_squared == 5 * 4**passes.bits // 4


def test_missing_values():
    table = sp.csr_array([[np.nan, 1.0], [np.inf, 0.5]])
    with pytest.raises(RecordError, match="missing"):
        passes_of(table, 2).quantised(table)
    stated = ps.Table(table, missing="center")
    passes = passes_of(table, 2, selection=stated.selection(2))
    filled = passes.quantised(table).toarray()
    assert filled[:, 0].tolist() == [0, 0]


def test_zero_must_be_in_the_domain():
    with pytest.raises(ParameterError, match="low <= 0 <= high"):
        passes_of([[1.0]], 1, ps.Box(0.5, 1, dim=1))
    with pytest.raises(ParameterError, match="center at 0"):
        passes_of([[1.0]], 1, ps.Ball(dim=1, radius=1.0, center=0.5))
    with pytest.raises(ParameterError, match="n_nonzero"):
        passes_of([[1.0]], 0)


def test_sums_of_sparse_records_are_those_of_dense_ones():
    table = np.clip(dense(500, 30, 4), -1, 1)
    passes = passes_of(table, 30)
    labels = np.random.default_rng(1).integers(3, size=500)
    sums, counts = sparse_sums(passes, lambda records: labels[: records.shape[0]], 3)
    whole = np.rint(table * 2**passes.bits).astype(np.int64)
    np.testing.assert_array_equal(sums, [whole[labels == j].sum(axis=0) for j in range(3)])
    np.testing.assert_array_equal(counts, np.bincount(labels))


def test_nothing_is_made_dense():
    rng = np.random.default_rng(2)
    n, dim = 10**5, 2**15
    columns = rng.integers(dim, size=3 * n)
    table = sp.csr_array((np.ones(3 * n), columns, np.arange(0, 3 * n + 1, 3)), shape=(n, dim))
    passes = passes_of(table, 3, ps.Box(0, 3, dim=dim))
    sums, _ = sparse_sums(passes, one_cluster, 1)  # 26 GB if the table were dense
    expected = np.bincount(columns, minlength=dim) / (3 / 2**passes.bits)
    np.testing.assert_allclose(sums[0], expected, atol=30)


# --- picks: law, sampler, exact loss ---


def picks_logs(sums, scale, n_picks):
    """Logarithm of the probability of every sequence, by the definition."""
    weights = [abs(value) / scale for value in sums]
    found = {}
    for sequence in itertools.permutations(range(len(sums)), n_picks):
        left, log = list(range(len(sums))), 0.0
        for pick in sequence:
            most = max(weights[r] for r in left)
            log += weights[pick] - most
            log -= math.log(sum(math.exp(weights[r] - most) for r in left))
            left.remove(pick)
        found[sequence] = log
    return found


def worst_log_ratio(sums, changed, scale, n_picks):
    one, other = (picks_logs(vector, scale, n_picks) for vector in (sums, changed))
    return max(abs(one[key] - other[key]) for key in one)


def test_picks_follow_the_exponential_mechanism():
    law = picks_law(5, 10, 4, 2, 0.7, "add-remove")
    sums = np.rint(law.scale * np.array([1.1, -1.6, 0.0, 0.5])).astype(np.int64)
    rows = np.tile(sums, (5000, 1))
    drawn = Counter(map(tuple, choose(rows, law, source=None)[0].tolist()))

    def is_law(scale):
        logs = picks_logs(sums, scale, 2)
        assert set(drawn) <= set(logs)
        return fits([drawn[pair] for pair in logs], np.exp(list(logs.values())))

    assert is_law(law.scale)
    assert not is_law(0.7 * law.scale)
    assert not is_law(1.3 * law.scale)


def test_all_may_be_picked_and_large_sums_come_first():
    law = picks_law(1, 1, 3, 3, 1.0, "replace")
    assert sorted(pick_largest(np.zeros((1, 3), np.int64), law)[0]) == [0, 1, 2]
    law = picks_law(1, 3, 10_000, 3, 1.0, "add-remove")
    sums = np.zeros((2, 10_000), np.int64)
    sums[0, [7, 77, 777]] = [10**6, -(2 * 10**6), 3 * 10**6]
    sums[1, 9_999], sums[1, :2] = -(2**60), 2**40
    picked = pick_largest(sums, law)  # wrong with a chance below e^-100000
    assert picked[0].tolist() == [777, 77, 7]
    assert picked[1, 0] == 9_999
    assert set(picked[1, 1:]) == {0, 1}
    one = picks_law(1, 1, 1, 1, 1.0, "add-remove")
    assert pick_largest(np.zeros((4, 1), np.int64), one).tolist() == [[0]] * 4


def test_a_law_that_was_tampered_with_draws_nothing():
    law = picks_law(5, 10, 4, 2, 0.7, "replace")
    assert law.sensitivity == 2 * 5 + 10
    cheaper = PicksLaw("picks", 4, 20, 0.7, 0.0, "replace", law.scale / 2, 1.0, n_picks=2)
    with pytest.raises(ParameterError, match="not calibrated"):
        pick_largest(np.zeros((1, 4), np.int64), cheaper)
    with pytest.raises(ParameterError, match="picks=5"):
        picks_law(5, 10, 4, 5, 0.7, "replace")


def worst_loss_of_picks(dim, n_nonzero, n_picks, scale):
    """Largest log-ratio when a record with entries -1 and 1 joins sums, far apart or not."""
    far = 20 * scale
    worst = 0.0
    for before in itertools.combinations_with_replacement([0.0, 2.0, far], dim):
        for places in itertools.combinations(range(dim), n_nonzero):
            for signs in itertools.product([-1, 1], repeat=n_nonzero):
                after = np.array(before)
                after[list(places)] += signs
                worst = max(worst, worst_log_ratio(before, after, scale, n_picks))
    return worst


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize(
    ("dim", "s", "n_picks"), [(3, 1, 1), (4, 1, 2), (4, 2, 1), (4, 2, 2), (4, 2, 3), (5, 3, 2)]
)
def test_loss_of_picks_by_search(dim, s, n_picks):
    # Largest entry 1, exponents a = 1 / scale: charged are (picks + min(s, picks)) a. That is one
    # a more than needed: all normalisers fall only if an entry that falls is never picked.
    law = picks_law(1, min(s, n_picks), dim, n_picks, 3.0, "add-remove")
    worst = worst_loss_of_picks(dim, s, n_picks, law.scale)
    assert worst <= 3.0 * (1 + 1e-12)
    assert worst * law.scale == pytest.approx(n_picks + min(s - 1, n_picks), rel=0.01)
    if s > 1:  # a scale for the normalisers alone is too little
        assert worst_loss_of_picks(dim, s, n_picks, n_picks / 3.0) > 3.0


def test_loss_of_four_picks_and_two_entries():
    law = picks_law(1, 2, 6, 4, 6.0, "add-remove")
    assert law.scale == 1.0
    sums, record = [40, 0, 0, 0, 0, 0], [-1, 1, 0, 0, 0, 0]
    assert worst_log_ratio(sums, np.add(sums, record), law.scale, 4) == pytest.approx(5.0)
    # Replaced: twice as far, at half the exponent.
    law = picks_law(1, 2, 6, 4, 6.0, "replace")
    before, after = [81, 4, 0, 0, 0, 0], [79, 6, 0, 0, 0, 0]
    assert worst_log_ratio(before, after, law.scale, 4) == pytest.approx(5.0)


@pytest.mark.mostly_slow(quick_every=9)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("n_nonzero", "n_picks"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_loss_of_the_whole_recovery(neighbours, n_nonzero, n_picks):
    # All sequences of picks, for tables in 4 columns; then noise on counts and sums,
    # whose loss is the L1 change over the scale.
    epsilon, dim = 2.0, 4

    def seen(table, picks):
        account, passes = account_of(epsilon, neighbours, *STEPS), passes_of(table, n_nonzero)
        return questions(
            lambda: release_picks(passes, one_cluster, 1, n_picks, account, *STEPS),
            answer=lambda values, law: (
                np.array([picks]) if law.kind == "picks" else exact_answer(values, law)
            ),
        )

    def loss(one, other, stretch):
        worst = 0.0
        sequences = list(itertools.permutations(range(dim), n_picks))
        before, after = seen(one, sequences[0])[1], seen(other, sequences[0])[1]
        scale = before.law.scale * stretch
        p, q = (picks_logs(sums.values[0].tolist(), scale, n_picks) for sums in (before, after))
        for sequence in sequences:
            picked, noise = abs(p[sequence] - q[sequence]), 0.0
            pairs = list(zip(seen(one, sequence), seen(other, sequence), strict=True))
            for a, b in (pairs[0], pairs[2]):
                assert a.law == b.law
                noise += float(np.abs(a.values - b.values).sum()) / a.law.scale  # at worst
            worst = max(worst, picked + noise)
        return worst

    many = [[1, 0, 0, 0]] * 300 + [[0, 1, 0, 0]] * 2
    cases = [
        ([*many, [-1, 1, 0, 0]], [1, -1, 0, 0]),
        ([[1, 1, 0, 0]], [0, 0, 1, 1]),
        ([[-1, -1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0]], [0, 0, -1, -1]),
    ]
    found, planted = 0.0, 0.0
    for table, other_record in cases:
        other = table[:-1] if neighbours == "add-remove" else [*table[:-1], other_record]
        if not other:
            other = np.zeros((0, dim))
        found = max(found, loss(table, other, 1.0))
        planted = max(planted, loss(table, other, 1 / (n_picks + min(n_nonzero, n_picks))))
    # A replacement keeps the count, and moves no sum by two entries in both steps.
    assert (0.5 if neighbours == "add-remove" else 0.3) * epsilon < found
    assert found <= epsilon * (1 + 1e-9)
    if n_nonzero > 1:  # a scale of one entry over epsilon
        assert planted > epsilon


def test_printed_scales():
    # Balcan et al.: exponents |mu| eta n eps / (4 L s) and noise 4 L s / (eps eta), s = 5, eta = .9
    s, eta = 5, 0.9
    n_picks = picks_for(s, eta)
    assert n_picks == 12
    exponent = noise = eta / (4 * s)  # of epsilon, for L = 1
    law = picks_law(1, s, 100, n_picks, 1.0, "add-remove")
    total = float(law.sensitivity) * exponent + s * noise
    assert total == pytest.approx(0.99)
    # Each pick and each value for itself, as composition goes without a finer count: 1.5 and more.
    assert n_picks * (2 * exponent + noise) > 1.5
    # Our own: all of a share for picks, all of another for values.
    assert law.scale == n_picks + s


# --- noise on all sums ---


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_is_for_the_record_that_moves_sums_most(neighbours, delta):
    table = np.zeros((3, 50))
    table[0, :4], table[1, 4:8], table[2, 20:24] = 1.0, -1.0, 5.0
    replaced = np.zeros(50)
    replaced[30:34] = -7.0
    other = table[:-1] if neighbours == "add-remove" else np.vstack([table[:-1], replaced])

    def seen(records):
        account = account_of(1.0, neighbours, "counts", "sums", delta=delta)
        return questions(
            lambda: release_largest(
                passes_of(records, 4), one_cluster, 1, account, "counts", "sums"
            ),
            noisy=True,
        )[1]

    one, two = seen(table), seen(other)
    law, change = one.law, (one.values - two.values).astype(float)
    moved = np.abs(change).sum() if delta == 0 else np.linalg.norm(change)
    worst = math.sqrt(0.5) if neighbours == "replace" and delta else 1.0  # columns are apart
    assert moved == pytest.approx(worst * law.sensitivity, rel=1e-4)
    assert moved <= law.sensitivity


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_noise_alone_keeps_few_columns(neighbours, delta):
    dim = 2000
    kept = []
    for _ in range(5):
        account = account_of(1.0, neighbours, "counts", "sums", delta=delta)
        empty = passes_of(np.zeros((1, dim)), 4)
        found = release_largest(empty, one_cluster, 1, account, "counts", "sums")
        kept.append(np.count_nonzero(found.centers))
        reach = noise_reach(empty, account.shares, "sums")
    # Laplace noise: Poisson of mean 5 in all five; 30 has a chance of 1e-13.
    assert sum(kept) < 30
    assert reach > 4 * empty.linf


def test_merging_takes_the_cheapest_pairs():
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 100.0], [104.0, 100.0], [100.0, 100.0]])
    found = merged(SparseCenters(centers, np.array([30.0, 10.0, -5.0, 10.0, 30.0])), 3)
    # A negative count is one record: it joins the next center.
    assert len(found.centers) == 3
    assert [101.0, 100.0] in found.centers.tolist()
    assert merged(found, 3).centers.tolist() == found.centers.tolist()
    few = merged(SparseCenters(centers, np.ones(5)), 1)
    np.testing.assert_allclose(few.centers[0], centers.mean(axis=0), atol=2)


# --- the whole ---


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(
    ("start", "recovery", "delta"),
    [("sketch", "largest", 0.0), ("sketch", "largest", 1e-6), ("trees", "picks", 0.0)],
)
def test_replayed_on_a_neighbour(neighbours, start, recovery, delta):
    table = np.clip(dense(200, 12, 3, seed=3), -1, 1)
    replaced = np.zeros((1, 12))
    replaced[0, 2:8] = -3.0
    other = table[:-1] if neighbours == "add-remove" else np.vstack([table[:-1], replaced])
    options = {
        "domain": ps.Box(-1, 1, dim=12),
        "budget": ps.Budget(20.0, delta, neighbours),
        "n_nonzero": 3,
        "start": start,
        "recovery": recovery,
        "random_state": 1,
        "n_threads": 1,
        "settings": TreeSettings(n_dimensions=2, n_levels=2, n_swaps=2),
    }
    tape = Tape()
    found = replay(
        lambda rows: clustered(cluster_sparse, sp.csr_array(rows), 2, **options), table, other, tape
    )
    assert found.second.receipt.sampler.startswith("INSECURE")
    limit, twice = 2 ** passes_of(table, 3).bits, 1 if neighbours == "add-remove" else 2
    for question, after in zip(tape.questions, tape.again, strict=True):
        if question.law.kind == "picks":  # what the law is for, and not only what it adds up to
            change = np.abs(question.values - after)
            assert change.max() <= twice * limit
            assert change.sum() <= twice * 3 * limit
            assert question.law.sensitivity == (6 + 3) * limit
    kinds = Counter(law.kind for law in found.laws)
    paid = neighbours == "add-remove"
    if start == "trees":
        expected = {"threshold": 2 * 2, "choice": 3, "picks": 2, "laplace": 4 + paid}
        assert kinds == expected
    else:
        assert kinds["gaussian" if delta else "laplace"] >= 4 + paid


@pytest.mark.parametrize("recovery", ["largest", "picks"])
@pytest.mark.parametrize("start", ["sketch", "trees"])
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_shares_add_up(start, recovery, neighbours):
    for n_rounds in (1, 3):
        assert sum(sparse_weights(start, recovery, n_rounds).values()) == 1
    table = sp.csr_array(np.clip(dense(150, 10, 2), 0, 1))
    found = clustered(
        cluster_sparse,
        table,
        2,
        domain=ps.Box(0, 1, dim=10),
        budget=ps.Budget(0.7, 1e-6, neighbours),
        n_nonzero=2,
        start=start,
        recovery=recovery,
        source="rows",
    )
    receipt = found.receipt
    assert exact(receipt.epsilon) <= exact(0.7)
    assert receipt.epsilon == pytest.approx(0.7, rel=1e-9)
    pure = start == "trees" or recovery == "picks"
    assert receipt.delta == (0 if pure else 1e-6)
    assert (receipt.neighbours, receipt.source) == (neighbours, "rows")
    assert found.method == ("pipeline" if start == "sketch" else "partition-tree")
    assert found.centers.min() >= 0
    assert found.weights.sum() == pytest.approx(1.0)


def test_no_records():
    for table in (sp.csr_array((0, 6)), sp.csr_array((1, 6)), np.zeros((0, 6))):
        found = clustered(
            cluster_sparse,
            table,
            2,
            domain=ps.Box(-1, 1, dim=6),
            budget=ps.Budget(1.0),
            n_nonzero=2,
        )
        assert found.centers.shape == (2, 6)
        assert np.abs(found.centers).max() <= 1
    with pytest.raises(RecordError, match="no records"):
        clustered(
            cluster_sparse,
            sp.csr_array((0, 6)),
            2,
            domain=ps.Box(-1, 1, dim=6),
            budget=ps.Budget(1.0, 0.0, "replace"),
            n_nonzero=2,
        )


def test_bad_choices_are_refused():
    table = sp.csr_array(np.eye(4))
    options = {"domain": ps.Box(-1, 1, dim=4), "budget": ps.Budget(1.0), "n_nonzero": 2}
    for wrong in (
        {"start": "guess"},
        {"recovery": "all"},
        {"picks": 3},
        {"picks": 5, "recovery": "picks"},
        {"n_rounds": 0},
        {"n_records": 0.5},
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            clustered(cluster_sparse, table, 2, **{**options, **wrong})
    with pytest.raises(RecordError, match="several times"):
        clustered(cluster_sparse, iter([table]), 2, **options)


def topics(n, dim, k, rng):
    """Records with 6 of the 12 columns of their cluster, and two others."""
    supports = rng.permutation(dim)[: 12 * k].reshape(k, 12)
    labels = rng.integers(k, size=n)
    columns = np.take_along_axis(supports[labels], rng.random((n, 12)).argsort(axis=1)[:, :6], 1)
    columns = np.concatenate([columns, rng.integers(dim, size=(n, 2))], axis=1)
    rows = np.repeat(np.arange(n), 8)
    values = rng.uniform(0.4, 1, size=8 * n)
    table = sp.csr_array((values, (rows, columns.reshape(-1))), shape=(n, dim))
    table.data = np.minimum(table.data, 1.0)
    means = np.stack([table[labels == j].mean(axis=0) for j in range(k)])
    return table, means


def cost(table, centers):
    scores = -2 * (table @ centers.T) + np.vecdot(centers, centers)
    return float((table.multiply(table).sum() + scores.min(axis=1).sum()) / table.shape[0])


@pytest.mark.slow
def test_sparse_centers_are_nearly_those_without_noise(fixed_noise):
    table, means = topics(20_000, 800, 3, np.random.default_rng(4))
    options = {
        "domain": ps.Box(0, 1, dim=800),
        "budget": ps.Budget(1.0),
        "n_records": 20_000,
        "random_state": 0,
    }
    best, trivial = cost(table, means), cost(table, table.mean(axis=0)[np.newaxis])
    found = clustered(cluster_sparse, table, 3, n_nonzero=8, **options)
    # Even two clusters taken for one would close half of the gap.
    assert cost(table, found.centers) < 0.3 * best + 0.7 * trivial
    assert np.count_nonzero(found.centers) < 3 * 100
    ball = {**options, "domain": ps.Ball(dim=800, radius=math.sqrt(8))}
    dense_centers = clustered(
        cluster_by_tree, table, 3, **ball, settings=TreeSettings(n_swaps=2)
    ).centers
    assert cost(table, dense_centers) > cost(table, found.centers)
