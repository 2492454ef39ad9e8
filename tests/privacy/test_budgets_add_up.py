"""The budget of every baseline, to the last digit, for all numbers of columns and clusters.

Shares are fractions and are added up as such. What a run spends is read off the laws it draws
from: sensitivity over scale for pure noise, rho for Gaussian noise.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import privsketch as ps
from privsketch import ParameterError
from privsketch.clustering import Passes, clustered
from privsketch.clustering import run as run_module
from privsketch.clustering.baselines import aggregate, grid, lloyd, variates
from privsketch.facts import exact
from privsketch.noise import Shares, add_noise, laplace_law, rho_of_budget
from privsketch.testing import Tape, exact_answer
from tests import seams

COLUMNS, CLUSTERS = range(2, 1001), range(1, 65)
SOME = [(2, 1), (2, 64), (3, 7), (10, 10), (100, 5), (1000, 3), (1000, 64)]
PURE_LLOYD = ("laplace-joint", "laplace", "cube")


class SharesSeenError(Exception):
    """Carries the shares of a run that stops before it reads anything."""


def shares_of(run, monkeypatch):
    """The shares that a run is about to spend."""

    def seen(budget, weights):
        raise SharesSeenError(dict(weights))

    seams.set(monkeypatch, "run.Shares", seen)
    with pytest.raises(SharesSeenError) as caught:
        run()
    monkeypatch.undo()
    return caught.value.args[0]


def spent_by(run):
    """All laws that a run draws from, with 0 for noise, and its receipt."""
    tape = Tape(answer=exact_answer)
    model = tape.recorded(run)
    return tape.laws, getattr(model, "receipt", None) or model.receipt_


def cost(law):
    """Of one release: an epsilon, or a rho."""
    if law.kind == "gaussian":
        return Fraction(law.sensitivity) ** 2 / (2 * Fraction(law.scale) ** 2)
    return Fraction(law.sensitivity) / Fraction(law.scale)


def require_all_spent(laws, receipt, budget):
    """What the laws cost together is the budget, never more, and less by rounding only."""
    whole = rho_of_budget(budget.epsilon, budget.delta) if budget.delta else exact(budget.epsilon)
    share = sum(map(cost, laws)) / Fraction(whole)
    assert 1 - Fraction(1, 10**9) <= share <= 1
    assert receipt.delta == budget.delta
    assert exact(receipt.epsilon) <= exact(budget.epsilon)
    assert receipt.epsilon == pytest.approx(budget.epsilon, rel=1e-12)
    if receipt.composition == "sequential":
        assert sum(exact(part.epsilon) for part in receipt.parts) <= exact(budget.epsilon)


# --- shares, for all numbers of columns, clusters and rounds ------------------------------------


@pytest.mark.parametrize("kind", [*PURE_LLOYD, "gaussian"])
def test_shares_of_lloyds_rounds(kind):
    for dim in COLUMNS:
        for n_rounds in (1, 2, 5, 7):
            shares = lloyd.round_shares(kind, n_rounds, dim)
            assert sum(shares.values()) == 1
            assert min(shares.values()) > 0
            assert len(shares) == n_rounds * (2 if kind == "laplace" else 1)


def test_shares_of_coordinates_and_count():
    for dim in COLUMNS:
        for_coordinate, for_count = lloyd.split(dim)
        assert dim * for_coordinate + for_count == 1
        q = (4 * dim * 0.225**2) ** (1 / 3)
        assert float(for_count / for_coordinate) == pytest.approx(q, rel=1e-12)


def tables(dim):
    return np.zeros((1, dim)), ps.Box(-1, 1, dim=dim)


def test_shares_of_seeds(monkeypatch):
    table, domain = tables(2)
    for k in CLUSTERS:
        shares = shares_of(
            lambda k=k: clustered(
                variates.cluster, table, k, domain=domain, budget=ps.Budget(1.0), n_records=5
            ),
            monkeypatch,
        )
        assert len(shares) == k
        assert sum(shares.values()) == 1


def test_a_count_and_the_rest():
    assert 0 < run_module.COUNT_SHARE < 1
    for parts in ({"a": Fraction(1)}, dict.fromkeys(range(7), Fraction(1, 7))):
        left = 1 - run_module.COUNT_SHARE
        assert run_module.COUNT_SHARE + sum(left * part for part in parts.values()) == 1


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.7, 1e-3, 13.37])
def test_parts_of_all_shares_stay_within_the_budget(epsilon):
    """As budgets of their own, rounded to floats: never more, and hardly less."""
    for weights in [
        *({i: Fraction(1, k) for i in range(k)} for k in CLUSTERS),
        *(lloyd.round_shares("laplace", 5, dim) for dim in [*COLUMNS][::37]),
    ]:
        shares = Shares(ps.Budget(epsilon), weights)
        parts = {share: exact(shares.part(name).epsilon) for name, share in weights.items()}
        total = sum(parts[share] for share in weights.values())
        assert exact(epsilon) * (1 - Fraction(1, 10**14)) <= total <= exact(epsilon)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.05, 1e-8)])
def test_parts_with_delta_stay_within_the_budget(epsilon, delta):
    whole = Fraction(rho_of_budget(epsilon, delta))
    for k in (1, 2, 3, 5, 7, 10, 33, 50, 64):
        part = Shares(ps.Budget(epsilon, delta), {i: Fraction(1, k) for i in range(k)}).part(0)
        total = k * Fraction(rho_of_budget(part.epsilon, part.delta))
        assert whole * (1 - Fraction(1, 10**9)) <= total <= whole


# --- a published fault: the shares of a coordinate and of the count, swapped --------------------


right_split = lloyd.split


def swapped(dim):
    """As diffprivlib 0.6.6 unpacks them."""
    for_coordinate, for_count = right_split(dim)
    return for_count, for_coordinate


def test_a_swap_overspends_and_ours_is_none():
    """d epsilon_0 + epsilon_i = (1 + d q) / (d + q) times the budget: more for 5 columns on."""
    for dim in COLUMNS:
        q = Fraction(lloyd.count_parts(dim))
        for_coordinate, for_count = swapped(dim)
        over = dim * for_coordinate + for_count
        assert over == (1 + dim * q) / (dim + q)
        assert (over > 1) == (q > 1) == (dim >= 5)
        assert lloyd.split(dim) != swapped(dim)
    found = [
        float(dim * swapped(dim)[0] + swapped(dim)[1]) for dim in (10, 50)
    ]  # as was measured with that library
    assert found == pytest.approx([1.21, 2.09], abs=0.005)


@pytest.mark.parametrize("dim", [5, 10, 1000])
def test_a_swap_of_shares_is_refused(dim, monkeypatch):
    seams.set(monkeypatch, "lloyd.split", swapped)
    table, domain = tables(dim)
    with pytest.raises(ParameterError, match="add up to 1"):
        clustered(
            lloyd.cluster,
            table,
            2,
            domain=domain,
            budget=ps.Budget(1.0),
            noise="laplace",
            start="uniform",
        )


@pytest.mark.parametrize("dim", [5, 10, 50])
def test_a_swap_where_the_noise_is_drawn_is_caught(dim, monkeypatch):
    """Every coordinate gets the noise of the count's share, and the count that of a coordinate.

    The receipt says what it should; what is drawn costs more.
    """
    (table, domain), budget = tables(dim), ps.Budget(1.0)

    def planted(account, name, passes, sums, counts):
        for_coordinate, for_count = swapped(dim)
        facts = [
            ("sums", sums, passes.l1, dim * for_coordinate),
            ("counts", counts, 1, for_count),
        ]
        noisy = []
        for kind, values, l1, share in facts:
            paid = account.budget(f"{name} {kind}")
            law = laplace_law(l1, values.size, float(share) / 3, "add-remove")
            released, receipt = add_noise(values.reshape(-1), law, source=None)
            account.charge(replace(receipt, epsilon=paid.epsilon), 0.0)
            noisy.append(released.reshape(values.shape).astype(float))
        return lloyd.Noisy(*noisy, 1.0, 1.0)

    def run():
        options = {"noise": "laplace", "n_rounds": 3, "start": "uniform"}
        return clustered(lloyd.cluster, table, 2, domain=domain, budget=budget, **options)

    require_all_spent(*spent_by(run), budget)
    monkeypatch.setitem(lloyd._RELEASES, "laplace", planted)
    laws, receipt = spent_by(run)
    q = lloyd.count_parts(dim)
    assert receipt.epsilon == pytest.approx(1.0)
    assert float(sum(map(cost, laws))) == pytest.approx((1 + dim * q) / (dim + q), rel=1e-9)
    with pytest.raises(AssertionError):
        require_all_spent(laws, receipt, budget)


# --- what runs spend ----------------------------------------------------------------------------


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(("dim", "k"), SOME)
def test_runs_of_clustering_spend_their_budget(dim, k, neighbours):
    table, domain = tables(dim)
    common = {"domain": domain, "n_records": 50, "random_state": 0, "n_threads": 1}
    pure, other = ps.Budget(0.7, 0.0, neighbours), ps.Budget(0.7, 1e-6, neighbours)
    many = dim * k > 10_000  # cube noise of so many components is slow
    runs = [
        (lloyd.cluster, {"noise": noise, "start": "uniform", "n_rounds": 3}, pure)
        for noise in PURE_LLOYD
        if noise != "cube"
    ]
    runs.append((lloyd.cluster, {"start": "uniform", "n_rounds": 3}, other))
    for method in (aggregate.cluster, variates.cluster):
        more = {"n_blocks": 3} if method is aggregate.cluster else {}
        kinds = [("laplace", pure), (None, other)] + ([] if many else [("cube", pure)])
        runs += [(method, {"noise": noise, **more}, budget) for noise, budget in kinds]
    if dim <= 3:
        runs.append((grid.cluster, {}, pure))
    for method, options, budget in runs:
        laws, receipt = spent_by(
            lambda m=method, o=options, b=budget: clustered(m, table, k, budget=b, **common, **o)
        )
        require_all_spent(laws, receipt, budget)


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch):
    """Public places to start from, without the search for the farthest ones."""
    right = aggregate.start_centers
    seams.set(
        monkeypatch,
        "aggregate.start_centers",
        lambda domain, k, start, seed: right(domain, k, "uniform", seed),
    )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_cubes_of_lloyds_clusters_cost_one_of_them(delta, neighbours):
    """Clusters have noise of their own; a record is in one of them, so one of them counts."""
    table, domain = tables(10)
    laws, receipt = spent_by(
        lambda: clustered(
            lloyd.cluster,
            table,
            7,
            domain=domain,
            budget=ps.Budget(0.7, delta, neighbours),
            noise="cube",
            n_rounds=3,
            start="uniform",
        )
    )
    assert len(laws) == 3 * 7
    require_all_spent(laws[::7], receipt, ps.Budget(0.7, 0.0, neighbours))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("method", [aggregate.cluster, variates.cluster])
def test_a_count_is_paid_from_the_same_budget(method, delta):
    table, domain = tables(3)
    budget = ps.Budget(0.9, delta)
    laws, receipt = spent_by(lambda: clustered(method, table, 5, domain=domain, budget=budget))
    require_all_spent(laws, receipt, budget)


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize(("noise", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
@pytest.mark.parametrize("dim", [2, 3, 10, 100, 300])
def test_noisy_covariances_spend_their_budget(dim, noise, delta, neighbours):
    budget = ps.Budget(0.7, delta, neighbours)

    def run():
        return ps.PrivatePCA(
            1,
            epsilon=0.7,
            delta=delta,
            neighbours=neighbours,
            domain=ps.Ball(dim, 1.0),
            method="covariance",
            noise=noise,
            n_records=1000,
            random_state=0,
        ).fit(np.eye(dim)[:2] / 2)

    laws, receipt = spent_by(run)
    require_all_spent(laws, receipt, budget)


# --- how much noise that is, from the papers ----------------------------------------------------


@pytest.mark.parametrize(("dim", "k"), SOME[:5])
def test_sensitivities_in_a_box(dim, k):
    """Half-widths of 1: L1 norms and diameters by hand."""
    table, domain = tables(dim)
    common = {"domain": domain, "n_records": 50, "budget": ps.Budget(1.0), "noise": "laplace"}
    unit = Passes(table, domain).unit
    runs = {
        (aggregate.cluster, 2 * k * dim): {"n_blocks": 3},
        (variates.cluster, 2 * dim): {},
        (lloyd.cluster, dim): {"start": "uniform", "n_rounds": 2},
    }
    for (method, expected), more in runs.items():
        laws, _ = spent_by(lambda m=method, o=more: clustered(m, table, k, **common, **o))
        assert laws[0].sensitivity * unit == pytest.approx(expected, rel=1e-4)
