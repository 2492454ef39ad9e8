"""K-medians: exact privacy losses of tiny instances, oracles, the estimator's contract, utility."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.cluster import KMeans

import privsketch as ps
from privsketch import ClusterModel
from privsketch.clustering import (
    MEDIAN_STEPS,
    RADIUS,
    RADIUS_BITS,
    UNIT_NORM,
    UNIT_WEIGHT,
    WIDTH,
    Passes,
    Projected,
    cluster_medians,
    clustered,
    max_l1_norm,
    median_sums,
    medians,
    path_losses,
    release_indices,
    release_least,
    release_medians,
    release_round,
    release_swaps,
    sensitivities,
    shrink_steps,
    start_losses,
    steps_of,
    swap_losses,
    unit_vectors,
    vector_sums,
    whole_losses,
)
from privsketch.clustering.medians import share_weights
from privsketch.clustering.tree import medians as median_recovery
from privsketch.clustering.tree import share_weights as tree_share_weights
from privsketch.facts import exact
from privsketch.features import PublicStream
from privsketch.noise import laplace_law
from privsketch.testing import Tape, questions, replay
from tests import seams
from tests.chance import exact_answers
from tests.contract import contract
from tests.oracles import (
    even_account,
    law_of_choices,
    neighbour_at_the_end,
    permute_and_flip,
    worst_log_ratio,
)

RELATIONS = ["add-remove", "replace"]
STEPS = {name: name for name in ("counts", "sums", "steps", "median")}


@pytest.fixture
def one_search(monkeypatch):
    """Searches of a sketch are free; a single one is faster."""
    seams.set(monkeypatch, "medians.SEARCHES", (None,))


def passes_of(records, radius=1.0):
    records = np.asarray(records, dtype=np.float64)
    return Passes(records, ps.Ball(dim=records.shape[1], radius=radius), n_threads=1)


def projected(records, n_dimensions=1):
    return Projected.draw(passes_of(records), n_dimensions, PublicStream(0, 1), 1e-4)


# --- the median round: exact losses in one dimension ---


def laplace_loss(one, other, scale):
    """Largest log-ratio of two discrete Laplace laws on pairs of integers, by enumeration."""
    reach = int(np.abs([one, other]).max()) + 5
    # Beyond the centers ratios no longer change, so that the window holds the largest one.
    outputs = np.array(list(itertools.product(range(-reach, reach + 1), repeat=len(one))))
    ratios = (np.abs(outputs - other) - np.abs(outputs - one)).sum(axis=1) / scale
    return float(np.abs(ratios).max())


def gaussian_delta(one, other, scale, epsilon):
    """Exact hockey-stick divergence of discrete Gaussians on pairs of integers."""
    reach = math.ceil(9 * scale + np.abs([one, other]).max())
    line = np.arange(-reach, reach + 1)

    def law(center):
        each = [np.exp(-((line - place) ** 2) / (2 * scale**2)) for place in center]
        return np.multiply.outer(*(part / part.sum() for part in each))

    p, q = law(one), law(other)
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


def tiny_round(neighbours, budget, bounds):
    """Exact loss (or delta) of a median round in one dimension, the worst over all records.

    Whole records are -5..5, in units of the table; the released center is 1.
    """
    radius = 5.0
    least, one, weight = 2, 4, 2

    def sums_of(table):
        domain = ps.Ball(dim=1, radius=radius)
        passes = Passes(np.array(table, dtype=float).reshape(-1, 1), domain, n_threads=1)
        scale = round(1 / passes.unit)
        return median_sums(passes, np.array([[scale * 1.0]]), least * scale, one, weight)[0]

    shared = [0.0, 3.0]
    grid = np.arange(-5, 6)
    changed = {x: sums_of([*shared, x]) for x in grid}
    pairs = [(changed[x], sums_of(shared)) for x in grid]
    if neighbours == "replace":
        pairs = list(itertools.combinations(changed.values(), 2))
    account = even_account(budget, "round")
    (asked,) = questions(lambda: account.noisy("round", pairs[0][0], **bounds(1, one, weight)))
    law = asked.law
    if budget.delta == 0:
        return max(laplace_loss(a, b, law.scale) for a, b in pairs)
    return max(gaussian_delta(a, b, law.scale, budget.epsilon) for a, b in pairs)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_loss_of_a_pure_median_round(neighbours):
    worst = tiny_round(neighbours, ps.Budget(0.8, 0.0, neighbours), sensitivities)
    least = {"add-remove": 0.99, "replace": 0.7}[neighbours]  # opposite vectors, like weights
    assert least * 0.8 < worst <= 0.8 * (1 + 1e-12)

    def without_weights(dim, one, weight):
        return {"l1": one, "l2_squared": one**2}

    planted = tiny_round("add-remove", ps.Budget(0.8), without_weights)
    assert planted > 0.8


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_delta_of_a_gaussian_median_round(neighbours):
    budget = ps.Budget(1.0, 1e-3, neighbours)
    worst = tiny_round(neighbours, budget, sensitivities)
    assert 1e-5 < worst <= 1e-3

    def half(dim, one, weight):
        squared = one**2 + weight**2
        return {"l1": one, "l2_squared": squared // 4, "l2_replaced": one**2}

    assert tiny_round(neighbours, budget, half) > 1e-3


@pytest.mark.parametrize("dim", [1, 2, 9, 50])
def test_no_record_moves_a_round_further_than_declared(dim):
    rng = np.random.default_rng(dim)
    directions = rng.normal(size=(200, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    diagonal = np.full((1, dim), 1 / math.sqrt(dim))
    lengths = np.repeat([0.0, 1e-5, 0.099, 0.1, 0.1001, 0.3, 1.0, 40.0], 25)[:, np.newaxis]
    tables = np.concatenate([directions * lengths, 0.1 * diagonal, -diagonal])
    center = np.zeros((1, dim))
    bounds = sensitivities(dim)
    l1 = l2 = 0.0
    for record in tables:
        passes = passes_of(record[np.newaxis])
        moved = median_sums(passes, center, round(0.1 / passes.unit))[0]
        squared = sum(int(v) ** 2 for v in moved)
        assert squared <= bounds["l2_squared"]
        assert int(np.abs(moved).sum()) <= bounds["l1"]
        l1, l2 = max(l1, np.abs(moved).sum()), max(l2, squared)
    assert l2 > 0.999 * bounds["l2_squared"]
    assert l1 > 0.999 * bounds["l1"]


def test_vectors_are_whole_and_depend_on_their_residual_alone():
    rng = np.random.default_rng(0)
    residuals = np.rint(rng.normal(size=(3000, 7)) * 10 ** rng.uniform(0, 5, size=(3000, 1)))
    residuals[:50] = 0
    vectors, lengths = unit_vectors(residuals, 300)
    rows = [unit_vectors(row[np.newaxis], 300) for row in residuals]
    np.testing.assert_array_equal(vectors, np.concatenate([row for row, _ in rows]))
    np.testing.assert_array_equal(vectors, np.rint(vectors))
    assert lengths.min() == 300
    for vector, residual in zip(
        vectors[::30].astype(int), residuals[::30].astype(int), strict=True
    ):
        squared = max(int(residual @ residual), 300**2)
        for v, r in zip(vector.tolist(), residual.tolist(), strict=True):
            # trunc(UNIT_NORM r / sqrt(squared)), in integers
            assert abs(v) == math.isqrt(UNIT_NORM**2 * r * r // squared)


# --- the tree's medians ---


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("change", [[-1.0], [0.05]])
def test_loss_of_the_choice_of_medians(neighbours, change):
    # Two clusters; a replaced record may go from one to the other.
    epsilon, table = 0.9, [[-0.8], [-0.3], [0.5], [1.0]]
    centers = np.array([[-RADIUS], [RADIUS]], dtype=float)
    largest = float(passes_of(table).limits.max())
    path = [np.array([[-a], [b]]) * largest for a, b in ((1.0, 1.0), (0.5, 0.1), (-0.4, -1.0))]

    def laws(records, stretch=1.0):
        data = projected(records)
        losses = path_losses(data, centers, path)
        account = even_account(ps.Budget(epsilon, 0.0, neighbours), "median")
        calls = questions(lambda: release_indices(losses, account, "median"))
        assert account.receipt("median", None).epsilon == epsilon
        return [permute_and_flip(asked.values, asked.law.scale * stretch) for asked in calls]

    def worst(stretch=1.0):
        other = neighbour_at_the_end(table, change, neighbours)
        pairs = zip(laws(table, stretch), laws(other, stretch), strict=True)
        # Clusters choose independently: the largest log-ratios add up, in both directions.
        ratios = [np.log(a / b) for a, b in pairs]
        return max(sum(r.max() for r in ratios), -sum(r.min() for r in ratios))

    assert 0.2 * epsilon < worst() <= epsilon * (1 + 1e-9)
    assert worst(0.15) > epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_loss_of_swaps_by_distance(neighbours):
    """One swap among three candidates, then the last choice: all outcomes enumerated."""
    epsilon, table = 1.2, [[-1.0], [-0.2], [1.0]]
    candidates = np.array([[-RADIUS], [0], [RADIUS]], dtype=float)

    def law(records, stretch=1.0):
        data = projected(records)

        def run():
            account = even_account(ps.Budget(epsilon, 0.0, neighbours), "swaps")
            release_swaps(
                data, candidates, 1, 2, PublicStream(3, 1), account, "swaps", loss="distances"
            )

        return law_of_choices(run, stretch)

    def worst(stretch=1.0):
        other = neighbour_at_the_end(table, [-1.0], neighbours)
        return worst_log_ratio(law(table, stretch), law(other, stretch))

    assert 0.3 * epsilon < worst() <= epsilon * (1 + 1e-9)
    assert worst(0.2) > epsilon


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_start_is_chosen_at_what_a_record_can_move(delta, neighbours):
    """A record far from all starts reaches the width, all losses go up, and rho is paid."""
    largest = float(passes_of([[0.0, 0.0]]).limits.max())
    starts = [np.array([[-largest, place * largest]]) for place in (0.0, 0.1, 0.2)]
    table = np.array([[-0.5, 0.2], [0.1, 0.0], [0.9, 0.0]])
    change = start_losses(passes_of(table), starts) - start_losses(passes_of(table[:-1]), starts)
    assert (change > 0).all()
    assert 0.999 < change.max() / medians.MAX_DISTANCE <= 1
    account = even_account(ps.Budget(1.0, delta, neighbours), "starts")
    law = questions(lambda: account.choice("starts", change, medians.MAX_DISTANCE))[0].law
    width = medians.MAX_DISTANCE * (1 if neighbours == "add-remove" else 2)
    assert law.sensitivity == medians.MAX_DISTANCE
    assert Fraction(law.scale) * exact(law.epsilon) >= width
    if delta == 0:
        assert law.epsilon == 1.0
    else:
        rho = account.shares.rho("starts")
        assert 0.999 * rho < law.epsilon**2 / 2
        assert exact(law.epsilon) ** 2 <= 2 * Fraction(rho)
        assert account.receipt("x", None).epsilon == 1.0


def test_distances_are_whole_and_in_their_range():
    rng = np.random.default_rng(1)
    records = np.rint(rng.uniform(-0.7, 0.7, size=(40, 2)) * RADIUS)
    centers = np.rint(rng.uniform(-0.7, 0.7, size=(6, 2)) * RADIUS)
    found = whole_losses(records, centers, RADIUS_BITS, WIDTH // 3, "distances")
    for i, j in itertools.product(range(40), range(6)):
        squared = sum(int(v) ** 2 for v in records[i] - centers[j])
        # floor(WIDTH sqrt(squared) / (2 RADIUS)), in integers
        expected = math.isqrt(squared * WIDTH**2 // (4 * RADIUS**2))
        assert found[i, j] == min(expected, WIDTH // 3)
    edge = np.array([[float(RADIUS), 0.0]])
    for stretch in (1, 3):
        far = whole_losses(stretch * edge, -stretch * edge, RADIUS_BITS, loss="distances")
        assert far.tolist() == [[WIDTH]]


def test_losses_of_all_swaps_by_distance():
    rng = np.random.default_rng(4)
    table = rng.uniform(-0.5, 0.5, size=(50, 3))
    data = projected(table, 3)
    candidates = np.rint(rng.uniform(-0.5, 0.5, size=(7, 3)) * RADIUS)
    found = swap_losses(data, candidates, np.array([2, 5]), WIDTH // 4, "distances")
    points = data(data.passes.quantised(table))
    losses = whole_losses(points, candidates, RADIUS_BITS, WIDTH // 4, "distances")
    for come in range(7):
        assert found[0, come] == np.minimum(losses[:, come], losses[:, 5]).sum()
        assert found[1, come] == np.minimum(losses[:, come], losses[:, 2]).sum()


# --- the same questions for neighbours ---


def neighbour_tables(neighbours, dim=3, n_records=300):
    rng = np.random.default_rng(5)
    table = np.clip(rng.normal(size=(n_records, dim)) * 0.3, -0.5, 0.5)
    far = np.zeros((1, dim))
    far[0, 0] = 30.0
    other = table[:-1] if neighbours == "add-remove" else np.concatenate([table[:-1], far])
    return table, other


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(
    ("method", "delta", "dim"),
    [("rounds", 0.0, 3), ("rounds", 1e-6, 3), ("rounds", 1e-6, 22), ("partition-tree", 0.0, 3)],
)
def test_one_record_moves_no_question_further_than_its_noise_hides(neighbours, method, delta, dim):
    def run(table):
        return clustered(
            cluster_medians,
            table,
            3,
            domain=ps.Ball(dim=dim, radius=1.0),
            budget=ps.Budget(20.0, delta, neighbours),
            n_records=300,
            method=method,
            random_state=1,
            n_threads=1,
        )

    found = replay(run, *neighbour_tables(neighbours, dim))
    assert 0.2 < found.largest_move <= 1
    if method == "rounds":
        assert (
            len(found.moves_of("laplace" if delta == 0 else "gaussian"))
            >= medians.MEDIAN_ROUNDS + 2
        )
        more = len(found.moves) - len(medians.share_weights(dim, delta == 0))
        assert more in (0, 1)  # pure ones count apart
    else:
        assert len(found.moves_of("laplace")) == 2 + MEDIAN_STEPS


def test_a_vector_that_is_not_cut_is_noticed(monkeypatch):
    def uncut(residuals, least, one=UNIT_NORM):
        lengths = np.full(len(residuals), float(least))
        return np.trunc(residuals * (one / least)), lengths

    seams.set(monkeypatch, "medians.unit_vectors", uncut)

    def run(table):
        domain, budget = ps.Ball(dim=3, radius=1.0), ps.Budget(20.0, 1e-6)
        return clustered(
            cluster_medians, table, 3, domain=domain, budget=budget, n_records=300, random_state=1
        )

    table, _ = neighbour_tables("add-remove")
    table[-1] = 30.0
    assert replay(run, table, table[:-1], check=False).largest_move > 1


# --- what is spent ---


@pytest.mark.parametrize("dim", [3, 40])
def test_shares_add_up(dim):
    for is_pure in (False, True):
        weights = share_weights(dim, is_pure)
        assert sum(weights.values()) == 1
        assert ("subspace" in weights) == (dim > medians.MAX_SKETCH_COLUMNS and not is_pure)
    assert sum(median_recovery.MEDIAN_SHARES.values()) == 1
    assert sum(tree_share_weights(2, median_recovery.MEDIAN_SHARES).values()) == 1


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(
    ("method", "delta"), [("rounds", 0.0), ("rounds", 1e-6), ("partition-tree", 1e-6)]
)
def test_one_receipt_with_its_parts(neighbours, method, delta):
    table, _ = neighbour_tables("add-remove", n_records=200)
    found = clustered(
        cluster_medians,
        table,
        2,
        domain=ps.Box(low=-1, high=1, dim=3),
        budget=ps.Budget(0.7, delta, neighbours),
        n_records=200,
        method=method,
        source="clinic",
    )
    receipt = found.receipt
    assert (receipt.epsilon, receipt.neighbours) == (0.7, neighbours)
    assert receipt.source == "clinic"
    assert receipt.delta == (delta if method == "rounds" else 0)
    assert found.loss == "distances"
    assert found.task == "k-medians"

    def leaves(part):
        return [part] if not part.parts else [leaf for p in part.parts for leaf in leaves(p)]

    if receipt.delta == 0:
        spent = sum(exact(leaf.epsilon) for leaf in leaves(receipt))
        assert spent <= exact(0.7)
        assert float(spent) == pytest.approx(0.7, rel=1e-9)
    else:
        assert len(receipt.parts) == len(share_weights(3, False))


METHODS = [("rounds", 0.0), ("rounds", 1e-6), ("partition-tree", 0.0)]
FEW = {"domain": ps.Box(low=-1, high=1, dim=2), "n_records": 100}


@pytest.mark.parametrize("n_records", [0, 1])
@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_no_records_and_few(method, delta, n_records, one_search):
    table, budget = np.zeros((n_records, 2)), ps.Budget(1.0, delta)
    found = clustered(cluster_medians, table, 3, budget=budget, method=method, **FEW)
    assert found.centers.shape == (3, 2)
    assert np.abs(found.centers).max() <= 1
    assert found.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("method", "delta"), METHODS)
def test_no_records_to_replace(method, delta, spent, one_search):
    table, budget = np.zeros((0, 2)), ps.Budget(1.0, delta, "replace")
    with pytest.raises(ps.PrivsketchError, match="no records"):
        clustered(cluster_medians, table, 3, budget=budget, method=method, **FEW)
    assert spent == []


# --- medians against an oracle ---


def geometric_median(records):
    def cost(z):
        return np.linalg.norm(records - z, axis=1).sum()

    found = minimize(cost, np.median(records, axis=0), method="BFGS", options={"gtol": 1e-9})
    return found.x, float(found.fun)


def skewed(n_records, dim, seed):
    rng = np.random.default_rng(seed)
    records = 0.08 * rng.exponential(size=(n_records, dim)) ** 1.5 - 0.3
    return records[np.linalg.norm(records, axis=1) < 1]


@pytest.mark.parametrize("dim", [2, 5])
def test_rounds_end_at_the_geometric_median(dim):
    records = skewed(3000, dim, 0)
    median, _ = geometric_median(records)
    passes = passes_of(records)
    center = np.rint(records.mean(axis=0, keepdims=True) / passes.unit)
    before = np.linalg.norm(center[0] * passes.unit - median)
    with exact_answers():
        for number in range(40):
            account = even_account(ps.Budget(100.0), f"{number}")
            center = release_round(passes, center, round(0.005 / passes.unit), account, f"{number}")
    after = np.linalg.norm(center[0] * passes.unit - median)
    assert before > 0.03
    assert after < 5e-4  # records nearer than 0.005 count as squares


@pytest.mark.parametrize("dim", [2, 5])
def test_the_tree_chooses_nearly_the_geometric_median(dim):
    records = skewed(3000, dim, 1)
    _, least = geometric_median(records)
    data = projected(records, dim)
    with exact_answers():
        account = even_account(ps.Budget(50.0), *STEPS)
        found = release_medians(data, np.zeros((1, dim)), account, STEPS)
    center = found.centers[0] * data.passes.unit
    cost = np.linalg.norm(records - center, axis=1).sum()
    of_mean = np.linalg.norm(records - records.mean(axis=0), axis=1).sum()
    assert of_mean / least > 1.02
    assert cost - least < 0.25 * (of_mean - least)


def test_vectors_point_from_the_center_to_the_records_of_its_cluster():
    table = np.array([[-0.5, 0.0], [0.5, 0.5], [0.5, -0.1]])
    data = projected(table, 2)
    largest = float(data.passes.limits.max())
    projected_centers = data(data.passes.quantised(np.array([[-0.5, 0.0], [0.5, 0.2]])))
    centers = np.array([[-0.5, 0.3], [0.5, 0.2]]) * largest
    sums = vector_sums(data, projected_centers, centers) / UNIT_NORM
    np.testing.assert_allclose(sums, [[0.0, -1.0], [0.0, 0.0]], atol=1e-3)


def test_the_length_is_a_small_quantile(fixed_noise):
    rng = np.random.default_rng(0)
    records = rng.normal(size=(20_000, 3)) * 0.1
    passes = passes_of(records)
    account = even_account(ps.Budget(5.0), "lengths")
    least = release_least(passes, np.zeros((1, 3)), account, "lengths") * passes.unit
    # Noise of one record in a bin of hundreds; bins grow by an eighth.
    share = (np.linalg.norm(records, axis=1) < least).mean()
    assert medians.SHORT_SHARE * 0.95 < share < medians.SHORT_SHARE * 1.6


def test_noise_alone_makes_no_long_step():
    rng = np.random.default_rng(0)
    law = laplace_law(max_l1_norm(20) + UNIT_WEIGHT, 6 * 21, 0.1, "add-remove")
    noise = rng.laplace(size=(500, 6, 21)) * law.scale
    steps = [steps_of(some, law.variance, 1000) for some in noise]
    lengths = np.linalg.norm(np.concatenate(steps), axis=1)
    assert np.median(lengths) < 1000
    assert np.isfinite(lengths).all()


def test_shrinkage_is_that_of_james_and_stein():
    rng = np.random.default_rng(0)
    truth = np.zeros((4000, 12))
    truth[2000:] = 10.0
    found = shrink_steps(truth + rng.normal(size=truth.shape), np.ones(4000))
    errors = np.square(found - truth).sum(axis=1)
    # At 0 the risk of James and Stein's estimate is 2, less if its factor is cut at 0, not 12.
    assert errors[:2000].mean() < 2
    assert errors[2000:].mean() == pytest.approx(12, abs=1)
    few = rng.normal(size=(3, 2))
    np.testing.assert_array_equal(shrink_steps(few, np.ones(3)), few)


# --- the whole ---


def cost(records, centers):
    return float(np.linalg.norm(records[:, np.newaxis] - centers, axis=2).min(axis=1).mean())


def with_outliers(n_records=10_000, seed=0):
    """Four skewed clusters, and one record in twenty far away in a corner."""
    rng = np.random.default_rng(seed)
    centers = np.array([[-4.0, -4.0, 0.0], [4.0, -4.0, 0.0], [-4.0, 4.0, 0.0], [0.0, 0.0, 4.0]])
    records = centers[rng.integers(4, size=n_records)]
    records = records + 0.4 * rng.exponential(size=records.shape) ** 2
    records[: n_records // 20] = rng.uniform(5.0, 8.0, size=(n_records // 20, 3))
    return np.clip(records, -8, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [{"neighbours": "replace"}, {"delta": 0.0, "domain": ps.Ball(radius=14.0)}]
)
def test_medians_are_nearer_than_means(overrides, fixed_noise):
    """Exact means cost a tenth more than medians here; noise changes that by 1 in 1000."""
    X = with_outliers()
    settings = {"epsilon": 2.0, "delta": 1e-6, "domain": ps.Box(-8, 8), "random_state": 0}
    model = ps.PrivateKMedians(4, **{**settings, **overrides}).fit(X)
    means = KMeans(4, n_init=3, random_state=0).fit(X).cluster_centers_
    assert cost(X, model.cluster_centers_) < 0.95 * cost(X, means)


def test_the_tree_finds_clusters(fixed_noise):
    rng = np.random.default_rng(6)
    centers = rng.normal(size=(4, 6))
    centers *= 0.6 / np.linalg.norm(centers, axis=1, keepdims=True)
    X = centers[rng.integers(4, size=20_000)] + 0.05 * rng.normal(size=(20_000, 6))
    model = ps.PrivateKMedians(
        4,
        epsilon=20.0,
        delta=0.0,
        domain=ps.Ball(radius=1.0),
        method="partition-tree",
        n_records=20_000,
        random_state=0,
    ).fit(X)
    assert cost(X, model.cluster_centers_) < 2 * cost(X, centers)
    assert model.model_.method == "partition-tree"


def test_many_columns(fixed_noise):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(4, 30))
    centers *= 0.8 / np.linalg.norm(centers, axis=1, keepdims=True)
    X = centers[rng.integers(4, size=10_000)] + 0.03 * rng.normal(size=(10_000, 30))
    for delta in (0.0, 1e-6):
        found = clustered(
            cluster_medians,
            X,
            4,
            domain=ps.Ball(30, 1.2),
            budget=ps.Budget(3.0, delta),
            n_records=1e4,
            random_state=0,
        )
        assert cost(X, found.centers) < 1.1 * cost(X, centers)
        assert found.weights == pytest.approx(np.full(4, 0.25), abs=0.05)
        assert found.n_records == pytest.approx(1e4, rel=0.05)


# --- the estimator ---

ESTIMATORS = [
    ps.PrivateKMedians(n_clusters=2, epsilon=5.0, delta=1e-6, domain=ps.Box(-20, 20)),
    ps.PrivateKMedians(
        n_clusters=2, epsilon=9.0, delta=0.0, domain=ps.Ball(radius=30.0), method="partition-tree"
    ),
]


@pytest.mark.mostly_slow(quick_every=9)
@contract(ESTIMATORS)
def test_scikit_learn_contract(estimator, check, one_search):
    check(estimator)


def fitted(X, **overrides):
    settings = {"n_clusters": 3, "epsilon": 1.0, "delta": 1e-6, "domain": ps.Box(-5, 5)}
    settings["random_state"] = 0
    return ps.PrivateKMedians(**{**settings, **overrides}).fit(X)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    centers = np.array([[-3.0, -3.0], [3.0, 3.0], [-3.0, 3.0]])
    return centers[rng.integers(3, size=5000)] + 0.3 * rng.normal(size=(5000, 2))


def test_nothing_exact_is_kept(blobs, one_search):
    model = fitted(blobs)
    public = {"model_", "receipt_", "cluster_centers_", "weights_", "concerns_", "n_features_in_"}
    assert {name for name in vars(model) if name.endswith("_")} == public
    assert (model.receipt_.epsilon, model.receipt_.delta) == (1.0, 1e-6)
    assert (model.fit_predict(blobs) == model.predict(blobs)).all()


def test_everything_fitted_is_a_function_of_the_answers(blobs, one_search):
    def same_for_all(values, law):
        return np.arange(values.size, dtype=np.int64).reshape(values.shape) * 50_000

    tape = Tape(answer=same_for_all)
    models = [tape.recorded(lambda X=X: fitted(X)) for X in (blobs, blobs[:77] + 1.0)]
    states = [
        pickle.dumps([m.cluster_centers_, m.weights_, m.model_.n_records, repr(m.receipt_)])
        for m in models
    ]
    assert states[0] == states[1]


def test_names_of_columns_and_missing_values(blobs, tmp_path):
    import pandas as pd

    X = blobs.copy()
    X[::100, 0] = np.nan
    table = pd.DataFrame(X, columns=["age", "bmi"])
    with pytest.raises(ps.PrivsketchError, match="NaN"):
        fitted(table)
    model = fitted(table, missing="center")
    assert model.model_.columns == ("age", "bmi")
    row = pd.DataFrame([[np.nan, 3.0]], columns=["age", "bmi"])
    assert model.predict(row).tolist() == model.predict(row.fillna(0.0)).tolist()
    model.model_.save(tmp_path / "medians.json")
    again = ClusterModel.load(tmp_path / "medians.json")
    np.testing.assert_array_equal(again.centers, model.cluster_centers_)
    assert again.loss == "distances"
    assert "k-medians" in again.describe()


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"method": "magic"}, "method='magic': expected one of 'rounds', 'partition-tree'"),
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"missing": "drop"}, "missing='drop'"),
        ({"epsilon": None}, "epsilon"),
        ({"domain": None}, "domain"),
        ({"n_records": 0}, "n_records=0"),
        ({"n_records": 0, "method": "partition-tree"}, "n_records=0"),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_spent(blobs, choices, words, spent):
    with pytest.raises(ps.PrivsketchError) as error:
        fitted(blobs, **choices)
    assert words in str(error.value)
    assert spent == []


def test_an_error_never_quotes_a_value():
    with pytest.raises(ps.PrivsketchError, match="not numeric") as error:
        fitted(np.array([["secret-4711", "1"]], dtype=object))
    assert "4711" not in str(error.value)
