"""K-means in many columns: what is spent, what one record can move, what comes out."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch.clustering import (
    Bins,
    Passes,
    PipelinePlan,
    Subspace,
    clustered,
    expected_normal_max,
    noise_squares,
    plan_pipeline,
    probe_plan,
    pulled_counts,
    residual_lengths,
    residual_sums,
    shrunk_steps,
    shrunk_together,
    spread_directions,
)
from privsketch.clustering.pipeline import RADIUS_BINS, Facts, cluster, share_weights
from privsketch.kernels import CompiledClusters, ReferenceClusters
from privsketch.kernels.nearest import nearest
from privsketch.noise import Account, Shares, gaussian_law, laplace_law, rho_of_budget
from privsketch.testing import replay
from tests import seams
from tests.chance import exact_answers

BALL = ps.Ball(12, 2.0, center=0.5)


def some_records(n_records=400, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(3, 12)) * 0.4
    return 0.5 + centers[rng.integers(3, size=n_records)] + 0.1 * rng.normal(size=(n_records, 12))


# Shares ---------------------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_shares_of_a_gaussian_budget_stay_within_it(epsilon, delta):
    plan = plan_pipeline(8, 50, ps.Budget(epsilon, delta), 1e5)
    shares = Shares(ps.Budget(epsilon, delta), dict(plan.weights))
    assert sum(shares.weights.values()) == 1
    whole = Fraction(rho_of_budget(epsilon, delta))
    parts = [Fraction(rho_of_budget(shares.part(name).epsilon, delta)) for name in shares.weights]
    assert sum(parts) <= whole
    assert sum(parts) > whole * Fraction(999_999, 1_000_000)


def test_shares_of_a_pure_budget_add_up():
    weights = {"a": Fraction(1, 3), "b": Fraction(1, 3), "c": Fraction(1, 3)}
    shares = Shares(ps.Budget(0.7, 0.0), weights)
    spent = sum(Fraction(repr(shares.part(name).epsilon)) for name in weights)
    assert Fraction(699_999, 1_000_000) < spent <= Fraction(7, 10)


@pytest.mark.parametrize(
    "weights", [{"a": Fraction(1, 2)}, {"a": Fraction(3, 2), "b": Fraction(-1, 2)}]
)
def test_shares_that_do_not_add_up_are_refused(weights):
    with pytest.raises(ps.PrivsketchError, match="add up"):
        Shares(ps.Budget(1.0, 1e-6), weights)


def test_a_share_is_spent_once():
    account = Account(Shares(ps.Budget(1.0, 1e-6), {"a": Fraction(1, 2), "b": Fraction(1, 2)}))
    account.gaussian("a", np.zeros(3, dtype=np.int64), 1)
    with pytest.raises(ps.PrivsketchError, match="spent"):
        account.gaussian("a", np.zeros(3, dtype=np.int64), 1)


def test_noise_without_a_rho_is_not_charged_to_a_budget_with_delta():
    """Pure noise costs rho too: charged as nothing, it would be free."""
    receipt = ps.Projection.draw(ps.Ball(2, 1.0), 1, epsilon=1.0).receipt()
    shares = {"a": Fraction(1, 2), "b": Fraction(1, 2)}
    for delta, rho in ((1e-6, 0.0), (0.0, 0.01)):
        with pytest.raises(ps.PrivsketchError, match="rho"):
            Account(Shares(ps.Budget(1.0, delta), shares)).charge(receipt, rho)
    with pytest.raises(ps.PrivsketchError, match="delta = 0"):
        Account(Shares(ps.Budget(1.0, 1e-6), shares)).laplace("a", np.zeros(2, dtype=np.int64), 1)


def test_more_than_the_budget_is_no_receipt():
    account = Account(Shares(ps.Budget(1.0, 1e-6), {"a": Fraction(1, 2), "b": Fraction(1, 2)}))
    receipt = ps.Projection.draw(ps.Ball(2, 1.0), 1, epsilon=1.0).receipt()
    account.charge(receipt, 1.0)
    with pytest.raises(ps.PrivsketchError, match="more was spent"):
        account.receipt("too much", None)


# What one record can move ---------------------------------------------------------------------


def neighbours_of(records, neighbours, seed):
    rng = np.random.default_rng(seed)
    other = records.copy()
    place = int(rng.integers(len(records)))
    if neighbours == "replace":
        far = rng.normal(size=12)
        other[place] = 0.5 + far / np.linalg.norm(far) * rng.choice([0.5, 2.0, 30.0])
        return other
    return np.delete(other, place, axis=0)


def plan_of(directions, delta):
    """A plan with all steps."""
    budget = ps.Budget(2.0, delta)
    if directions == "probes":
        return probe_plan(Facts(3, 12, budget, 1e4))
    subspace = Fraction(1, 5) if directions == "released" else None
    weights = share_weights(subspace, Fraction(1, 2), 2, budget, 1e5)
    if directions == "mean":
        sketch = weights.pop("sketch")
        weights |= {"radius mean": sketch / 4, "round mean": 3 * sketch / 4}
    n_directions = 12 if directions == "columns" else 3
    return PipelinePlan(directions, n_directions, ("plain", "plain"), tuple(weights.items()), 0.0)


@pytest.mark.mostly_slow(quick_every=12)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("directions", ["columns", "released", "random", "mean", "probes"])
def test_one_record_moves_no_question_further_than_its_noise_hides(directions, delta, neighbours):
    records = some_records()
    plan = plan_of(directions, delta)

    def run(table):
        options = {"n_records": 400, "random_state": 0, "n_threads": 1, "plan": plan}
        return clustered(
            cluster, table, 3, domain=BALL, budget=ps.Budget(2.0, delta, neighbours), **options
        )

    largest = 0.0
    for seed in range(3):
        found = replay(run, records, neighbours_of(records, neighbours, seed))
        largest = max(largest, found.largest_move)
        # Pure second moments have noise of their own on the count.
        assert len(found.laws) - len(plan.weights) in ((0, 1) if directions == "released" else (0,))
    assert 0.2 < largest <= 1


# A start around the mean -----------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_where_noise_hides_clusters_rounds_start_around_the_mean_and_say_so(delta):
    hopeless = plan_pipeline(8, 12, ps.Budget(0.05, delta), 500)
    assert hopeless.directions == "mean"
    assert sum(share for _, share in hopeless.weights) == 1
    assert hopeless.excess > 1
    found = plan_pipeline(8, 12, ps.Budget(1.0, delta), 1e6)
    assert found.directions != "mean" or "probe" in found.rounds
    assert found.excess < 0.05
    # One cluster is the mean of all, whatever the noise.
    assert plan_pipeline(1, 12, ps.Budget(1.0, delta), 1e6).directions == "mean"
    options = {"domain": BALL, "n_records": 400, "random_state": 0, "n_threads": 1}
    model = clustered(cluster, some_records(), 3, budget=ps.Budget(0.05, delta), **options)
    assert model.concerns[0].startswith("noise decided where the clusters lie")


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_without_noise_the_one_center_is_the_mean(delta):
    records = some_records()
    options = {"domain": BALL, "n_records": 400, "random_state": 0, "n_threads": 1}
    with exact_answers():
        # Much noise, though it is not added, would shrink the second step to the mean.
        model = clustered(cluster, records, 1, budget=ps.Budget(50.0, delta), **options)
    away = np.linalg.norm(model.centers[0] - records.mean(axis=0))
    assert away < 0.05 * np.sqrt(np.square(records - records.mean(axis=0)).sum(axis=1).mean())


def test_a_start_around_the_mean_is_no_worse_than_the_mean():
    """Centers of no rounds serve records as well as their mean does, or better."""
    records = some_records()
    plan = PipelinePlan(
        "mean", 0, (), (("radius mean", Fraction(1, 4)), ("round mean", Fraction(3, 4))), 0.0
    )
    options = {"domain": BALL, "n_records": 400, "n_threads": 1, "plan": plan}
    costs = []
    for seed in range(5):
        with exact_answers():
            model = clustered(
                cluster, records, 6, budget=ps.Budget(1.0, 1e-6), random_state=seed, **options
            )
        away = np.square(records[:, None] - model.centers).sum(axis=2)
        costs.append(away.min(axis=1).sum())
    assert max(costs) <= 1.01 * np.square(records - records.mean(axis=0)).sum()


@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_directions_are_apart_and_sum_to_nothing(n):
    found = spread_directions(n, 9, seed=4)
    assert found.shape == (n, 9)
    assert np.abs(found.sum(axis=0)).max() < 1e-12
    if n > 2:
        assert not found[0].any()
    if 2 < n <= 9:  # a simplex: all are as far apart
        away = np.linalg.norm(found[1:, None] - found[None, 1:], axis=2)
        np.testing.assert_allclose(away[~np.eye(n - 1, dtype=bool)], math.sqrt(2))


@pytest.mark.parametrize(("size", "expected"), [(1, 0.0), (2, 0.5642), (10, 1.5388), (50, 2.2491)])
def test_the_largest_of_normal_numbers(size, expected):
    """Expected values as tables of order statistics have them (Harter, 1961)."""
    assert expected_normal_max(size) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_spread_that_nothing_was_found_of_has_no_records(delta, monkeypatch):
    """Rounds that see no record keep looking; centers that were only spread out have no floor."""
    floors = []

    def noted(pool, least, *, of):
        floors.append(least)
        return pool

    seams.set(monkeypatch, "probes.Pool.with_at_least", noted)
    options = {"domain": BALL, "n_records": 400, "random_state": 0, "n_threads": 1}
    with exact_answers():
        model = clustered(
            cluster, np.zeros((0, 12)), 3, budget=ps.Budget(2.0, delta),
            plan=plan_of("probes", delta), **options,
        )  # fmt: skip
    assert len(floors) >= 2
    assert not np.any(floors)
    assert model.weights.sum() == pytest.approx(1.0)


def test_a_residual_that_is_not_cut_is_noticed(monkeypatch):
    records = some_records()

    def uncut(passes, centers, radii, weight, norm):
        sums, weights = residual_sums(passes, centers, 4 * radii, weight, norm)
        return 4 * sums, weights

    seams.set(monkeypatch, "rounds.residual_sums", uncut)

    def run(table):
        budget = ps.Budget(2.0, 1e-6)
        return clustered(
            cluster,
            table,
            3,
            domain=BALL,
            budget=budget,
            n_records=400,
            random_state=0,
            n_threads=1,
            plan=plan_of("columns", 1e-6),
        )

    outlier = records.copy()
    outlier[0] = 40.0
    assert replay(run, outlier, outlier[1:], check=False).largest_move > 1


@pytest.mark.parametrize("norm", [1, 2])
def test_residuals_of_a_record_are_short_and_in_one_cluster(norm):
    rng = np.random.default_rng(0)
    centers = np.rint(rng.normal(size=(5, 12)) * 2000)
    for record in np.vstack([some_records(60), 30 * rng.normal(size=(40, 12))]):
        passes = Passes(record[np.newaxis], BALL)
        radii = np.array([1.0, 300.0, 3000.0, 30_000.0, 2.0**18])
        sums, kept = residual_sums(passes, centers, radii=radii, weight=750, norm=norm)
        assert sum(abs(int(v)) ** norm for v in sums.reshape(-1)) <= (2**20) ** norm
        assert sum(int(v) for v in kept) <= 750
        assert (np.abs(sums).sum(axis=1) > 0).sum() <= 1


def test_labels_do_not_depend_on_the_company():
    rng = np.random.default_rng(0)
    passes = Passes(some_records(500), BALL)
    records = passes.quantised(some_records(500))
    centers = np.rint(rng.normal(size=(40, 12)) * 20_000)
    whole = nearest(records, centers)
    assert [int(nearest(row[np.newaxis], centers)[0]) for row in records] == whole.tolist()
    exact = [
        min(
            range(40),
            key=lambda j, row=row: sum(
                int(a - b) ** 2 for a, b in zip(row, centers[j], strict=True)
            ),
        )
        for row in records[:30]
    ]
    assert exact == whole[:30].tolist()


def test_passes_give_the_same_sums_however_they_are_cut():
    records = some_records(5000)
    centers = np.rint(np.random.default_rng(0).normal(size=(4, 12)) * 20_000)
    radii = np.array([9000.0, 90.0, 900.0, 20_000.0])
    whole = residual_sums(Passes(records, BALL, n_threads=1), centers, radii, 2000, 2)
    parts = residual_sums(
        Passes(list(np.array_split(records, 7)), BALL, n_threads=3), centers, radii, 2000, 2
    )
    for a, b in zip(whole, parts, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("norm", [1, 2])
def test_passes_sum_up_what_is_defined(norm):
    records = some_records(5000)
    centers = np.rint(np.random.default_rng(0).normal(size=(4, 12)) * 20_000)
    passes, known = Passes(records, BALL), ReferenceClusters(centers)
    quantised, bins = [passes.quantised(records)], Bins.of(2.0**20, norm, 16)
    radii = np.array([9000.0, 90.0, 900.0, 20_000.0])
    found = residual_sums(passes, centers, radii, 2000, norm)
    for a, b in zip(found, known.residuals(quantised, radii, 2**20, 2000, norm), strict=True):
        assert np.array_equal(a, b)
    counts = residual_lengths(passes, centers, bins)
    assert np.array_equal(counts, known.lengths(quantised, bins.edges, norm))


def test_an_iterator_cannot_be_read_twice():
    with pytest.raises(ps.PrivsketchError, match="several times"):
        Passes(iter([some_records()]), BALL)


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("n_records", [None, 100])
def test_an_empty_table_is_pure_noise(delta, n_records):
    found = clustered(
        cluster,
        np.empty((0, 12)),
        3,
        domain=BALL,
        budget=ps.Budget(1.0, delta),
        n_records=n_records,
    )
    assert found.centers.shape == (3, 12)
    assert np.isfinite(found.centers).all()
    assert (found.weights >= 0).all()
    assert math.isclose(found.weights.sum(), 1)
    with pytest.raises(ps.PrivsketchError, match="no records"):
        clustered(
            cluster, np.empty((0, 12)), 3, domain=BALL, budget=ps.Budget(1.0, delta, "replace")
        )


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_number_of_records_that_nobody_gave_is_paid_for(delta):
    found = clustered(
        cluster, some_records(), 3, domain=BALL, budget=ps.Budget(2.0, delta), random_state=0
    )
    assert (found.receipt.epsilon, found.receipt.delta) == (2.0, delta)
    count, *rest = found.receipt.parts
    assert "number of records" in count.mechanism
    total = count.epsilon + sum(part.epsilon for part in rest)
    assert math.isclose(total, 2.0) == (delta == 0)
    if delta == 0:
        assert math.isclose(count.epsilon, 2.0 / 50)
    public = clustered(
        cluster, some_records(), 3, domain=BALL, budget=ps.Budget(2.0, delta, "replace")
    )
    assert not any("number of records" in part.mechanism for part in public.receipt.parts)


# Pieces ---------------------------------------------------------------------------------------


def test_bins_count_lengths_and_find_quantiles():
    lengths = np.arange(1.0, 1001.0)

    def counts(points, bins):
        clusters = CompiledClusters(np.zeros((1, 1)))
        return clusters.lengths([points[:, None]], bins.edges, bins.norm)[0]

    bins = Bins.of(1000.0, 2, 16)
    found = counts(lengths, bins)
    assert found.sum() == 1000
    for share in (0.1, 0.5, 0.8, 1.0):
        edge = bins.quantile(found.astype(float), share)
        assert (lengths <= edge).mean() >= share
        assert (lengths <= edge / 1.37).mean() < share  # bins grow by 100^(1/15)
    assert counts(np.array([2000.0]), bins)[-1] == 1  # beyond the diameter: the last bin
    flat = Bins.of(1000.0, 1, 16)
    assert flat.quantile(counts(lengths, flat).astype(float), 0.5) == bins.quantile(
        found.astype(float), 0.5
    )
    assert bins.quantile(np.full(len(found), -5.0), 0.8) > 0  # noise alone


def test_shrinkage_keeps_signal_and_drops_noise():
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(64, 64)))[0]
    signal = np.zeros((20, 64))
    signal[:, :8] = 5 * rng.normal(size=(20, 8))
    steps = signal @ directions.T + rng.normal(size=(20, 64))
    shrunk = shrunk_steps(steps, np.ones(20), np.ones(20), Subspace(directions, 8, is_ordered=True))
    truth = signal @ directions.T
    before, after = np.square(steps - truth).sum(), np.square(shrunk - truth).sum()
    assert after < 0.35 * before  # 8 of 64 directions are left with their noise
    assert np.square(shrunk).sum() > 0.8 * np.square(truth).sum()


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_cluster_that_is_still_on_its_way_goes_on(is_ordered):
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(40, 64))  # noise alone, but for one cluster
    steps[7] += 3
    shrunk = shrunk_steps(
        steps, np.ones(40), np.ones(40), Subspace(np.eye(64), 8, is_ordered=is_ordered)
    )
    assert abs(shrunk[7].mean() - 3) < 0.8
    assert np.square(np.delete(shrunk, 7, axis=0)).mean() < 0.2


def test_shrinkage_finds_directions_that_steps_have_in_common():
    rng = np.random.default_rng(0)
    truth = 4 * rng.normal(size=(30, 3)) @ rng.normal(size=(3, 200))
    deviations = rng.uniform(0.5, 2, size=30)
    steps = truth + deviations[:, np.newaxis] * rng.normal(size=(30, 200))
    shrunk = shrunk_together(steps, deviations**2)
    before, after = np.square(steps - truth).sum(), np.square(shrunk - truth).sum()
    assert after < 0.2 * before  # 3 of 30 directions keep their noise
    noise = deviations[:, np.newaxis] * rng.normal(size=(30, 200))
    assert np.square(shrunk_together(noise, deviations**2)).sum() < 0.05 * np.square(noise).sum()


@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 7), (2, 5), (25, 5), (8, 20), (10, 10)])
def test_squares_of_noise_are_those_of_the_law(n_rows, n_columns):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4000, n_rows, n_columns))
    squares = np.square(np.linalg.svd(noise, compute_uv=False)).mean(axis=0)
    expected = noise_squares(n_rows, n_columns)
    # Simulated means of the largest are within 0.7 %, five deviations; the law is a limit.
    assert np.abs(expected - squares).max() < 0.04 * squares[0]
    assert expected.sum() == pytest.approx(n_rows * n_columns)


def test_counts_follow_what_was_measured_as_far_as_it_is_not_noise():
    before = np.full(50, 100.0)
    rng = np.random.default_rng(0)
    noise = 5 * rng.normal(size=50)
    assert np.abs(pulled_counts(before, before + noise, 25.0) - before).max() < 6
    moved = before + 100 * rng.normal(size=50)
    assert np.abs(pulled_counts(before, moved, 25.0) - moved).max() < 2


# The whole ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (4.0, 0.0)])
def test_clusters_in_many_columns_are_found(epsilon, delta, fixed_noise):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(8, 60))
    centers *= 0.8 / np.linalg.norm(centers, axis=1, keepdims=True)
    records = centers[rng.integers(8, size=20_000)] + 0.02 * rng.normal(size=(20_000, 60))
    found = clustered(
        cluster,
        records,
        8,
        domain=ps.Ball(60, 1.2),
        budget=ps.Budget(epsilon, delta),
        n_records=2e4,
        random_state=0,
    )
    reference = KMeans(8, n_init=3, random_state=0).fit(records).inertia_
    distances = np.square(records[:, np.newaxis] - found.centers).sum(axis=2).min(axis=1)
    assert distances.sum() / reference < 1.1
    assert found.receipt.epsilon <= epsilon
    assert found.receipt.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert found.receipt.delta == delta
    plan = plan_pipeline(8, 60, ps.Budget(epsilon, delta), 2e4)
    assert [part.mechanism.split(":")[0] for part in found.receipt.parts] == list(
        dict(plan.weights)
    )
    assert ("rho add" in found.receipt.describe()) == (delta > 0)
    assert abs(found.n_records / 20_000 - 1) < 0.1


# Plans ----------------------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=80)
@pytest.mark.parametrize("n_clusters", [1, 2, 10, 64])
@pytest.mark.parametrize("dim", [1, 2, 10, 11, 100])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_shares_of_every_plan_add_up(n_clusters, dim, delta, neighbours):
    for epsilon, n_records in ((0.01, 10.0), (1.0, 1e5), (20.0, 1e9)):
        plan = plan_pipeline(n_clusters, dim, ps.Budget(epsilon, delta, neighbours), n_records)
        assert sum(dict(plan.weights).values()) == 1
        if plan.directions != "mean":
            assert 1 <= plan.n_directions <= min(dim, 20)
            assert (plan.directions == "columns") == (dim <= (20 if delta else 10))
        assert math.isfinite(plan.excess)


@pytest.mark.slow
def test_more_records_or_budget_never_look_worse():
    for delta in (0.0, 1e-6):
        budgets = [ps.Budget(epsilon, delta) for epsilon in (0.03, 0.1, 0.3, 1.0, 3.0)]
        excess = [plan_pipeline(10, 50, budget, 1e5).excess for budget in budgets]
        assert excess == sorted(excess, reverse=True)
        excess = [plan_pipeline(10, 50, budgets[2], n).excess for n in (1e4, 1e5, 1e6)]
        assert excess == sorted(excess, reverse=True)


def test_a_budget_that_hardly_pays_for_the_sketch_is_spent_on_it():
    plan = plan_pipeline(15, 2, ps.Budget(0.2, 1e-6), 5000)
    assert (plan.n_rounds, dict(plan.weights)) == (0, {"sketch": 1})


def test_directions_lost_in_noise_are_not_paid_for():
    assert plan_pipeline(64, 100, ps.Budget(0.1, 1e-6), 3e4).directions == "mean"
    assert plan_pipeline(64, 100, ps.Budget(0.3, 1e-6), 1e5).directions == "released"


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_radii_are_not_noise(delta, neighbours):
    """Where a plan has rounds, the noise of half of their bins together hides no quantile."""
    seen = 0
    for n_clusters, dim, n_records, epsilon in itertools.product(
        (4, 10), (8, 30), (600, 10_000, 100_000), (0.1, 1.0)
    ):
        budget = ps.Budget(epsilon, delta, neighbours)
        plan = plan_pipeline(n_clusters, dim, budget, n_records)
        if plan.n_rounds == 0 or plan.excess > 0.5:  # those promise nothing
            continue
        part = Shares(budget, dict(plan.weights)).part("radius 0")
        twice = 1 if neighbours == "add-remove" else 2
        if delta > 0:
            # One bin, or two bins by one each.
            law = gaussian_law(twice, RADIUS_BINS, part.epsilon, part.delta, neighbours)
        else:
            law = laplace_law(twice, RADIUS_BINS, part.epsilon, neighbours)
        assert math.sqrt(RADIUS_BINS / 2 * law.variance) < 0.2 * n_records
        seen += 1
    assert seen >= 5
