"""Baselines with correct privacy: noisy rounds of Lloyd's and the uniform grid.

The audit runs a method, then runs it on a neighbouring table while every noise call gives back
what it gave the first time. Released numbers are then the same, so the calls must have the same
number, order and shape, and how far their inputs differ, over the noise, is the privacy loss.
"""

import itertools
import math

import numpy as np
import pytest
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch import ParameterError
from privsketch.clustering import Passes, clustered
from privsketch.clustering.baselines import grid, lloyd
from privsketch.clustering.baselines import points as starts
from privsketch.facts import exact
from privsketch.kernels import ReferenceClusters
from privsketch.noise import OPENDP_SAMPLER, OWN_SAMPLER, Shares
from privsketch.testing import Tape, questions, replay
from tests import seams

PURE = ("laplace-joint", "laplace", "cube")
KINDS = (*PURE, "gaussian")
RELATIONS = ("add-remove", "replace")


def share_of_budget(method, records, neighbour, *, check=True, **options):
    """What a pair of tables costs, over the budget, with the noise of the first run frozen."""
    if method is lloyd.cluster:
        options["start"] = "uniform"  # quicker, and as public
    found = replay(
        lambda table: clustered(method, table, **options), records, neighbour, check=check
    )
    budget = options["budget"]
    assert found.first.receipt.delta == budget.delta
    assert budget.epsilon * (1 - 1e-12) <= found.first.receipt.epsilon <= budget.epsilon
    return found.share_of_budget


def budget_of(kind, neighbours="add-remove", epsilon=0.7):
    return ps.Budget(epsilon, 1e-6 if kind == "gaussian" else 0.0, neighbours)


def pair(records, neighbours, old, new):
    """Neighbouring tables: `old` in one of them, `new` or nothing in the other."""
    with_old = np.concatenate([records, old[None]])
    return with_old, records if neighbours == "add-remove" else np.concatenate([records, new[None]])


# --- privacy of noisy rounds -------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_record_of_a_box_costs_the_budget(kind, neighbours):
    for dim, k in ((2, 1), (2, 64), (3, 7), (10, 10), (50, 33), (301, 5), (1000, 64)):
        budget = budget_of(kind, neighbours)
        corner = np.full(dim, 30.0)  # outside: the box cuts it to its corner
        records, neighbour = pair(np.zeros((3, dim)), neighbours, corner, -corner)
        options = {
            "n_clusters": k,
            "domain": ps.Box(-4, 4, dim=dim),
            "budget": budget,
            "noise": kind,
        }
        options.update(n_rounds=3, random_state=1)
        worst = share_of_budget(lloyd.cluster, records, neighbour, **options)
        assert worst <= 1
        # A replaced record costs less than the bound if its cluster stays the same, or in L2.
        assert worst >= (1 - 1e-9 if neighbours == "add-remove" else 0.49)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", [ps.Box([-1, 0], [1, 30]), ps.Ball(2, 3.0, [1.0, -2.0])])
def test_no_record_costs_more_than_the_budget(kind, neighbours, domain):
    rng = np.random.default_rng(5)
    budget = budget_of(kind, neighbours, epsilon=3.0)
    options = {
        "n_clusters": 4,
        "domain": domain,
        "budget": budget,
        "noise": kind,
        "random_state": 2,
    }
    options["n_rounds"] = 2
    for n in (0, 1, 40, 41, 42):
        records = domain.center_vector + rng.normal(scale=2, size=(n, 2))
        old, new = domain.center_vector + rng.normal(scale=9, size=(2, 2))
        tables = pair(records, neighbours, old, new)
        assert share_of_budget(lloyd.cluster, *tables, **options) <= 1


def test_a_ball_costs_gaussian_noise_its_radius():
    budget = budget_of("gaussian")
    options = {"n_clusters": 3, "domain": ps.Ball(5, 2.0), "budget": budget, "random_state": 0}
    edge = np.array([2.0, 0, 0, 0, 0])
    tables = np.zeros((4, 5)), np.array([*np.zeros((4, 5)), edge])
    assert share_of_budget(lloyd.cluster, *tables, **options) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_value_is_a_record_like_others(kind):
    budget = budget_of(kind)
    options = {"n_clusters": 2, "domain": ps.Box(-1, 1, dim=2), "budget": budget, "noise": kind}
    records, gone = np.zeros((3, 2)), np.array([[np.nan, 1.0]])
    options["random_state"] = 0
    both = records, np.concatenate([records, gone])
    tables = [ps.Table(table, missing="center") for table in both]
    assert 0 < share_of_budget(lloyd.cluster, *tables, **options) <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 1.0, 99.9])
def test_the_receipt_adds_up_to_the_budget_and_no_more(kind, epsilon):
    budget = budget_of(kind, epsilon=epsilon)
    options = {"domain": ps.Box(-1, 1, dim=3), "n_rounds": 7, "start": "uniform"}
    found = Tape().recorded(
        lambda: clustered(lloyd.cluster, np.zeros((5, 3)), 2, budget=budget, noise=kind, **options)
    )
    receipt = found.receipt
    assert receipt.delta == budget.delta
    assert exact(receipt.epsilon) <= exact(epsilon)
    assert receipt.epsilon >= epsilon * (1 - 1e-12)
    assert len(receipt.parts) == (14 if kind == "laplace" else 7)
    assert receipt.sampler.startswith("INSECURE")


def test_shares_are_exact_for_every_number_of_columns():
    for dim in range(1, 1001):
        for kind in ("laplace", "cube"):
            shares = lloyd.round_shares(kind, 5, dim)
            assert sum(shares.values()) == 1
            Shares(ps.Budget(1.0), shares)


def test_the_split_of_su_et_al():
    for_coordinate, for_count = lloyd.split(10)
    assert lloyd.count_parts(10) == pytest.approx(1.26514900, abs=5e-9)
    assert float(for_coordinate / 5) == pytest.approx(0.0177538708, abs=5e-11)
    assert float(for_count / 5) == pytest.approx(0.0224612919, abs=5e-11)
    # Least d / e_i^2 + 4 d rho^2 / e_0^2 at d e_i + e_0 = 1, against a fine search.
    e = np.linspace(0.05, 0.0999, 100_001)
    best = e[np.argmin(10 / e**2 + 4 * 10 * lloyd.MEAN_DISTANCE**2 / (1 - 10 * e) ** 2)]
    assert float(for_coordinate) == pytest.approx(best, abs=1e-5)


def test_cube_noise_hides_a_record_that_moves_between_clusters():
    # Such a record changes two clusters by r each; the noise of both must cover the sum.
    options = {"domain": ps.Box(-1, 1, dim=1), "budget": ps.Budget(1.0, 0.0, "replace")}
    options.update(noise="cube", n_rounds=1, random_state=0)
    asked = questions(lambda: clustered(lloyd.cluster, np.array([[1.0]]), 2, **options))
    assert len(asked) == 2
    assert asked[0].law == asked[1].law
    limit = Passes(np.zeros((1, 1)), ps.Box(-1, 1, dim=1)).limits[0]
    assert asked[0].law.sensitivity == 2 * limit


# --- planted errors ----------------------------------------------------------------------

PLANTED = {"n_clusters": 3, "domain": ps.Box(-1, 1, dim=2), "random_state": 3}


def planted_loss(kind="laplace", n=30):
    """What a record costs, over the budget."""
    records = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    tables = records, np.concatenate([records, [[1.0, 1.0]]])
    options = {**PLANTED, "budget": budget_of(kind), "noise": kind}
    return share_of_budget(lloyd.cluster, *tables, **options, check=False)


def test_nothing_is_caught_where_nothing_is_planted():
    assert all(planted_loss(kind) <= 1 for kind in KINDS)


def test_the_audit_catches_shares_that_are_swapped(monkeypatch):
    # Epsilons of count and coordinate exchanged: (1 + d q) / (d + q) of the budget is spent.
    for dim, spent in ((10, 1.21), (50, 2.09)):
        for_coordinate, for_count = lloyd.split(dim)
        assert float(dim * for_count + for_coordinate) == pytest.approx(spent, abs=0.005)
    right = lloyd.split
    seams.set(monkeypatch, "lloyd.split", lambda dim: right(dim)[::-1])
    with pytest.raises(ParameterError, match="add up to 1"):
        planted_loss()


def test_the_audit_catches_swapped_shares_that_add_up(monkeypatch):
    def swapped(account, name, passes, sums, counts):
        noisy, _ = account.laplace(f"{name} sums", sums, 1)
        noisy_counts, _ = account.laplace(f"{name} counts", counts, passes.l1)
        return lloyd.Noisy(noisy, noisy_counts, 1.0, 1.0)

    monkeypatch.setitem(lloyd._RELEASES, "laplace", swapped)
    assert planted_loss() > 1


@pytest.mark.parametrize("kind", ["laplace", "laplace-joint"])
def test_the_audit_catches_an_l1_norm_that_is_too_small(monkeypatch, kind):
    # A ball's bound on a box: sqrt(d) instead of d.
    too_small = property(lambda p: math.isqrt(p.dim * int(p.limits[0]) ** 2))
    seams.set(monkeypatch, "passes.Passes.l1", too_small)
    assert planted_loss(kind) > 1


def test_the_audit_catches_an_l2_norm_that_is_too_small(monkeypatch):
    seams.set(monkeypatch, "passes.Passes.l2_squared", property(lambda p: int(p.limits[0]) ** 2))
    assert planted_loss("gaussian") > 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_catches_labels_that_depend_on_other_records(monkeypatch, kind):
    def balanced(records, centers):
        return (np.argsort(np.argsort(records[:, 0])) * 3 // max(len(records), 1)).astype(np.intp)

    seams.set(monkeypatch, "lloyd.CompiledClusters", ReferenceClusters)
    seams.set(monkeypatch, "nearest.nearest", balanced)
    assert planted_loss(kind) > 1


def test_the_audit_catches_noise_that_skips_empty_clusters(monkeypatch):
    def skipping(account, name, passes, sums, counts):
        seen = counts > 0
        noisy, noisy_counts = sums.astype(float), counts.astype(float)
        noisy[seen], _ = account.laplace(f"{name} sums", sums[seen], passes.l1)
        noisy_counts[seen], _ = account.laplace(f"{name} counts", counts[seen], 1)
        return lloyd.Noisy(noisy, noisy_counts, 1.0, 1.0)

    monkeypatch.setitem(lloyd._RELEASES, "laplace", skipping)
    with pytest.raises(AssertionError):
        planted_loss(n=0)


# --- noisy rounds: what they compute -----------------------------------------------------


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(11)
    centers = np.array([[-0.6, -0.5], [0.6, -0.5], [-0.5, 0.6], [0.5, 0.5]])
    records = centers[np.arange(8000) % 4] + 0.08 * rng.normal(size=(8000, 2))
    return records, centers


def plain_lloyd(records, centers, n_rounds):
    for _ in range(n_rounds):
        label = ((records[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.array(
            [records[label == j].mean(axis=0) if j in label else c for j, c in enumerate(centers)]
        )
    return centers, np.bincount(label, minlength=len(centers))


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", [ps.Box([-3, -2], [2, 3]), ps.Ball(2, 3.0, 0.5)])
def test_without_noise_it_is_lloyds_algorithm(kind, domain, mixture):
    records, _ = mixture
    begin = starts.start_centers(domain, 9, "packing", 4) + domain.center_vector
    centers, counts = plain_lloyd(records, begin, 3)
    assert 0 in counts  # an empty cluster keeps its center
    options = {
        "domain": domain,
        "budget": budget_of(kind),
        "noise": kind,
        "n_rounds": 3,
        "random_state": 4,
    }
    found = clustered(lloyd.cluster, records, 9, **options)
    # Records are rounded to 2^-18 of the domain; a few of them are between two centers.
    np.testing.assert_allclose(found.centers, centers, atol=2e-3)
    np.testing.assert_allclose(found.weights * found.n_records, counts, atol=5)
    assert found.n_records == len(records)
    parts = clustered(lloyd.cluster, [records[:13], records[13:]], 9, n_threads=3, **options)
    assert (parts.centers == found.centers).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_it_finds_clear_clusters(kind, neighbours, mixture):
    records, centers = mixture
    done = []
    found = clustered(
        lloyd.cluster,
        records,
        4,
        domain=ps.Box(-1, 1, dim=2),
        budget=budget_of(kind, neighbours, epsilon=4.0),
        noise=kind,
        random_state=1,
        source="a",
        progress=lambda name, count: done.append(count),
    )
    # Means are 2000 records in noise of a scale below 20: 0.2 is beyond 1e-8 of chance.
    gaps = np.linalg.norm(found.centers[:, None] - centers, axis=2)
    assert (gaps.min(axis=0) < 0.2).all()
    assert np.abs(found.weights - 0.25).max() < 0.2
    assert found.receipt.source == "a"
    assert found.receipt.sampler == (OWN_SAMPLER if kind == "cube" else OPENDP_SAMPLER)
    assert sum(done) == 5 * len(records)


def test_noise_follows_the_budget():
    options = {"domain": ps.Box(-1, 1, dim=2), "n_rounds": 1, "random_state": 0}
    records = np.zeros((10, 2))
    pure = clustered(lloyd.cluster, records, 2, budget=ps.Budget(1.0), **options)
    assert "cube" in pure.receipt.parts[0].mechanism
    with_delta = clustered(lloyd.cluster, records, 2, budget=ps.Budget(1.0, 1e-6), **options)
    assert "Gaussian" in with_delta.receipt.parts[0].mechanism
    # Pure noise leaves delta alone.
    laplace = clustered(
        lloyd.cluster, records, 2, budget=ps.Budget(1.0, 1e-6), noise="laplace", **options
    )
    assert 1.0 - 1e-12 < laplace.receipt.epsilon <= 1.0
    assert laplace.receipt.delta == 0.0


def test_rounds_from_a_public_number_of_records():
    # k=3, d=2: q^3 = .405, (d + q)^3 = 20.5666, sqrt(500 * 27 * 20.5666) = 526.926.
    assert lloyd.chosen_rounds(1000, 3, 2, epsilon=2.0) == 3  # 2 / .526926 = 3.80
    assert lloyd.chosen_rounds(1000, 3, 2, epsilon=0.5) == 2
    assert lloyd.chosen_rounds(1e6, 3, 2, epsilon=0.5) == 7
    options = {"domain": ps.Box(-1, 1, dim=2), "budget": ps.Budget(2.0), "n_rounds": "auto"}
    found = clustered(
        lloyd.cluster, np.zeros((9, 2)), 3, **options, noise="laplace-joint", n_records=1000
    )
    assert len(found.receipt.parts) == 3
    with pytest.raises(ParameterError, match="public number"):
        clustered(lloyd.cluster, np.zeros((9, 2)), 3, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise": "gaussian"}, "delta > 0"),
        ({"noise": "uniform"}, "expected one of"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"start": "kmeans++"}, "start"),
    ],
)
def test_refusals(options, words):
    box = ps.Box(-1, 1, dim=2)
    with pytest.raises(ParameterError, match=words):
        clustered(lloyd.cluster, np.zeros((9, 2)), 3, domain=box, budget=ps.Budget(1.0), **options)


# --- starts ------------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("domain", [ps.Box(-1, 1, dim=2), ps.Ball(2, 1.0), ps.Box(-8, 8, dim=10)])
@pytest.mark.parametrize("k", [2, 9, 30])
def test_packed_points_keep_their_distance(domain, k):
    def room(points):
        """The largest a that the points allow."""
        gaps = np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(k, 1)]
        outer = np.linalg.norm(points, axis=1).max() if isinstance(domain, ps.Ball) else 0
        border = domain.half_widths.min() - (outer or np.abs(points).max())
        return min(gaps.min() / 2, border)

    packed = [starts.start_centers(domain, k, "packing", seed) for seed in range(3)]
    uniform = [starts.start_centers(domain, k, "uniform", seed) for seed in range(3)]
    assert min(map(room, packed)) > 1.2 * max(map(room, uniform))
    assert (packed[0] == starts.start_centers(domain, k, "packing", 0)).all()
    for points in packed:
        np.testing.assert_allclose(domain.project(points), points, atol=1e-12)


def test_two_points_on_a_line_are_packed_best_at_its_quarters():
    points = starts.start_centers(ps.Box(-1, 1, dim=1), 2, "packing", 0)
    np.testing.assert_allclose(np.sort(points[:, 0]), [-0.5, 0.5], atol=0.02)


# --- grid --------------------------------------------------------------------------------


def test_how_many_cells():
    for dim, cells, per_axis in ((2, 1000, 31), (3, 3981.07171, 15), (10, 100_000, 3)):
        assert grid.ideal_cells(1e4, 1.0, dim) == pytest.approx(cells, rel=1e-8)
        assert grid.cells_per_axis(1e4, 1.0, dim) == per_axis
    assert grid.cells_per_axis(1e4, 1.0, 1) == 100  # 1000^(2/3), which floats make 99.99...
    assert grid.cells_per_axis(5, 0.01, 3) == 1
    with pytest.raises(ParameterError, match="at most 4194304"):
        grid.cells_per_axis(1e8, 1.0, 2)
    with pytest.raises(ParameterError, match="n_records"):
        grid.cells_per_axis(0, 1.0, 2)


@pytest.mark.parametrize("per_axis", [1, 2, 7])
def test_cells_against_a_histogram(per_axis):
    box = ps.Box([-1, 0, 5], [1, 3, 5.5])
    records = np.random.default_rng(0).uniform([-1, 0, 5], [1, 3, 5.5], (2000, 3))
    edges = [np.linspace(low, high, per_axis + 1) for low, high in ((-1, 1), (0, 3), (5, 5.5))]
    # Records that rounding may put into the next cell are not asked about.
    for column, edge in enumerate(edges):
        records = records[np.abs(records[:, column, None] - edge).min(axis=1) > 1e-3]
    expected, _ = np.histogramdd(records, edges)
    outside = np.array([[-9.0, 9.0, 0.0]])  # moved to the edge, not dropped
    counts = grid.cell_counts(Passes(np.concatenate([records, outside]), box), per_axis)
    expected[0, -1, 0] += 1
    assert (counts.reshape(expected.shape) == expected).all()
    middles = np.meshgrid(*[(edge[1:] + edge[:-1]) / 2 for edge in edges], indexing="ij")
    centers = grid.cell_centers(box, per_axis, np.arange(per_axis**3))
    np.testing.assert_allclose(centers, np.stack(middles, axis=-1).reshape(-1, 3), atol=1e-12)


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("domain", [ps.Box(-1, 1, dim=2), ps.Ball(2, 1.0)])
def test_the_grid_costs_the_budget(neighbours, domain):
    budget = ps.Budget(0.7, 0.0, neighbours)
    options = {
        "n_clusters": 2,
        "domain": domain,
        "budget": budget,
        "n_records": 500,
        "random_state": 0,
    }
    rng = np.random.default_rng(0)
    for n in (0, 1, 300):
        records = rng.normal(scale=0.5, size=(n, 2))
        tables = pair(records, neighbours, np.array([9.0, 9.0]), np.array([-9.0, 0.0]))
        assert 1 - 1e-9 <= share_of_budget(grid.cluster, *tables, **options) <= 1


def test_the_audit_catches_a_record_in_two_cells(monkeypatch):
    right = grid.cell_counts

    def twice(passes, per_axis):
        counts = right(passes, per_axis)
        return counts + np.roll(counts, 1)

    seams.set(monkeypatch, "grid.cell_counts", twice)
    options = {
        "n_clusters": 2,
        "domain": ps.Box(-1, 1, dim=2),
        "budget": ps.Budget(1.0),
        "n_records": 500,
    }
    tables = np.zeros((3, 2)), np.zeros((4, 2))
    options.update(random_state=0)
    assert share_of_budget(grid.cluster, *tables, **options, check=False) > 1.5


def test_the_grid_finds_clear_clusters(mixture):
    records, centers = mixture
    budget = ps.Budget(4.0, 1e-6)
    options = {"domain": ps.Box(-1, 1, dim=2), "budget": budget, "n_records": 8000, "source": "a"}
    found = clustered(grid.cluster, records, 4, **options, random_state=0)
    # Cells are 0.04 wide; a cell's noise has a scale of 1/4, and a cluster 2000 records.
    gaps = np.linalg.norm(found.centers[:, None] - centers, axis=2)
    assert (gaps.min(axis=0) < 0.1).all()
    np.testing.assert_allclose(found.weights, 0.25, atol=0.05)
    assert found.n_records == pytest.approx(8000, abs=500)
    assert (found.receipt.epsilon, found.receipt.delta) == (4.0, 0.0)
    assert found.receipt.source == "a"
    assert found.receipt.sampler in (OWN_SAMPLER, OPENDP_SAMPLER)


@pytest.mark.usefixtures("no_noise")
def test_k_means_of_cells_is_that_of_their_counts(mixture):
    records, _ = mixture
    box = ps.Box(-1, 1, dim=2)
    found = clustered(grid.cluster, records, 4, domain=box, budget=ps.Budget(1.0), n_records=8000)
    per_axis = grid.cells_per_axis(8000, 1.0, 2)
    rounded = np.floor((np.clip(records, -0.999999, 0.999999) + 1) / 2 * per_axis)
    oracle = KMeans(4, n_init=5, random_state=0).fit((2 * rounded + 1) / per_axis - 1)
    gaps = np.linalg.norm(found.centers[:, None] - oracle.cluster_centers_, axis=2)
    assert (gaps.min(axis=0) < 1e-3).all()


@pytest.mark.usefixtures("no_noise")
def test_a_grid_with_fewer_cells_than_clusters():
    ball = ps.Ball(2, 1.0, 5.0)
    options = {"domain": ball, "budget": ps.Budget(1.0), "n_records": 5, "random_state": 0}
    for records in (np.zeros((0, 2)), np.full((3, 2), 5.0)):
        found = clustered(grid.cluster, records, 3, **options)
        assert found.centers.shape == (3, 2)
        assert found.weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(ball.project(found.centers), found.centers)


def test_the_grid_needs_a_public_number_of_records():
    with pytest.raises(ParameterError, match="public number"):
        clustered(
            grid.cluster, np.zeros((3, 2)), 2, domain=ps.Box(-1, 1, dim=2), budget=ps.Budget(1.0)
        )


# --- pure noise in the geometry of the domain ---------------------------------------------------


def means_error(kind, domain, neighbours):
    """What the noise of one round does to the mean of a cluster, from the laws that are asked."""
    table, dim = np.tile(domain.center_vector, (4, 1)), domain.dim
    options = {"domain": domain, "noise": kind, "n_rounds": 1, "random_state": 0}
    budget = ps.Budget(1.0, 0.0, neighbours)
    asked = questions(lambda: clustered(lloyd.cluster, table, 1, budget=budget, **options))
    laws = [question.law for question in asked]
    unit = Passes(table, domain).unit
    half = domain.half_widths
    far = (
        2 * lloyd.MEAN_DISTANCE * (half[0] if isinstance(domain, ps.Ball) else np.linalg.norm(half))
    )
    if len(laws) == 2:
        return dim * laws[0].variance * unit**2 + laws[1].variance * far**2
    factor = laws[0].sensitivity / (
        Passes(table, domain).limits.max() * (1 + (neighbours == "replace"))
    )
    sums = laws[0].variance * (unit / factor) ** 2
    return dim * sums + sums / half.max() ** 2 * far**2


PURE_DOMAINS = [
    ps.Ball(2, 3.0),
    ps.Ball(5, 1.0),
    ps.Ball(12, 1.0, 4.0),
    ps.Ball(100, 1.0),
    ps.Box(-1, 1, dim=2),
    ps.Box(-1, 1, dim=40),
    ps.Box([-1] * 20, [1] * 19 + [500]),
]


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("domain", PURE_DOMAINS, ids=lambda domain: domain.describe())
def test_pure_rounds_take_the_noise_that_errs_less(domain, neighbours):
    errors = {kind: means_error(kind, domain, neighbours) for kind in ("laplace", "cube")}
    assert means_error(None, domain, neighbours) == pytest.approx(min(errors.values()), rel=1e-3)


def test_a_ball_is_not_noised_for_the_box_around_it():
    """Standard deviations, against the cube that a ball of 100 and of 784 columns had before."""
    for dim, ratio in ((100, 3.8), (784, 11)):
        errors = [means_error(kind, ps.Ball(dim, 1.0), "add-remove") for kind in ("cube", None)]
        assert math.sqrt(errors[0] / errors[1]) == pytest.approx(ratio, rel=0.1)
    assert lloyd.pure_noise(ps.Box(-1, 1, dim=784)) == "cube"


@pytest.mark.parametrize("dim", [1, 2, 7, 30])
@pytest.mark.parametrize("shape", ["ball", "box", "uneven box"])
def test_no_record_is_longer_than_passes_say(dim, shape):
    half = np.geomspace(1, 50, dim)
    domain = {
        "ball": ps.Ball(dim, 3.0),
        "box": ps.Box(-2, 2, dim=dim),
        "uneven box": ps.Box(-half, half),
    }[shape]
    rng = np.random.default_rng(dim)
    corners = np.array([np.ones(dim), -np.ones(dim), np.eye(dim)[0]])
    records = np.concatenate([corners, rng.normal(size=(200, dim))]) * domain.half_widths * 3
    passes = Passes(records, domain)
    whole = passes.quantised(records).astype(object)
    assert np.abs(whole).sum(axis=1).max() <= passes.l1
    assert (whole**2).sum(axis=1).max() <= passes.l2_squared
    assert np.abs(whole).sum(axis=1).max() > 0.999 * passes.l1
    assert (whole**2).sum(axis=1).max() > 0.999 * passes.l2_squared


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_gaussian_rounds_pay_for_two_clusters_or_for_the_diameter(neighbours, k):
    """Of all pairs of records that replace each other, none moves the sums further; one does."""
    domain = ps.Ball(2, 1.0)
    steps = [
        domain.center_vector + np.array(step)
        for step in itertools.product((-2.0, -0.7, 0.0, 0.7, 2.0), repeat=2)
    ]

    def asked(table):
        options = {"domain": domain, "n_rounds": 1, "random_state": 0, "n_threads": 1}
        budget = ps.Budget(1.0, 1e-6, neighbours)
        first = questions(
            lambda: clustered(lloyd.cluster, np.array(table), k, budget=budget, **options)
        )[0]
        return first.values.astype(object), first.law

    base = [[0.1, 0.1]]
    if neighbours == "replace":
        pairs = list(itertools.combinations([asked([*base, a]) for a in steps], 2))
    else:
        alone = asked(base)
        pairs = [(alone, asked([*base, a])) for a in steps]
    moved = [(float(((a - b) ** 2).sum()), law) for (a, law), (b, _) in pairs]
    worst = max(size for size, _ in moved)
    assert worst <= moved[0][1].sensitivity ** 2
    # In two clusters no two of these records are a diameter apart.
    assert (
        worst
        > (0.999 if k == 1 or neighbours == "add-remove" else 0.9) * moved[0][1].sensitivity ** 2
    )
