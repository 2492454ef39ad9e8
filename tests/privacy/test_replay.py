"""Every method again on a neighbouring table, with the noise of the first run frozen.

A run is recorded: what it asks of the noise, and what it is answered. The second run, on a table
in which one record is another, gets the same answers. Then it must ask the same questions: as
many, in the same order, of the same shape, with the same laws. What it asks them about may differ
by what the laws declare, and by no more of the budget than the receipt has. And it must come out
the same: whatever differs has not passed through the noise.

To add a method: one line in METHODS.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import privsketch as ps
from privsketch import ClusterModel, RecordError
from privsketch.clustering import (
    Passes,
    TreeSettings,
    cells,
    cluster_by_tree,
    cluster_medians,
    cluster_sparse,
    clustered,
)
from privsketch.clustering.baselines import aggregate, grid, lloyd, variates
from privsketch.clustering.pipeline import method as pipeline
from privsketch.noise import Account, Shares
from privsketch.noise import account as shares
from privsketch.testing import Tape, replay
from tests import seams

RELATIONS = ["add-remove", "replace"]
N_RECORDS = 60


@dataclass(frozen=True)
class Method:
    """A function that clusters, and how it is called here."""

    name: str
    run: Callable[..., ClusterModel]
    delta: float = 0.0
    options: dict = field(default_factory=dict, hash=False)
    dim: int = 3
    n_records: object = N_RECORDS
    domain: str = "ball"
    changes: tuple[str, ...] | None = None  # all of them if None
    epsilon: float = 2.0

    def __call__(self, table, neighbours, **more):
        """A model of two clusters."""
        shape = {
            "ball": ps.Ball(self.dim, 2.0, center=0.5),
            "box": ps.Box([-1.0] * self.dim, [2.0] * (self.dim - 1) + [1.0]),
        }
        common = {
            "domain": shape[self.domain],
            "budget": ps.Budget(self.epsilon, self.delta, neighbours),
            "n_records": self.n_records,
            "random_state": 3,
        }
        table = ps.Table(table, missing="center")
        return clustered(self.run, table, 2, **{**common, **self.options, **more})


TREE = {"settings": TreeSettings(n_dimensions=2, n_levels=2, threshold=3, n_swaps=2)}
SOME, FEW = ("none", "corner", "outlier", "missing"), ("none", "outlier")  # learning takes time
SPARSE = {"n_nonzero": 2, "domain": ps.Ball(3, 2.0)}
METHODS = [
    Method("pipeline", pipeline.cluster, 1e-6, changes=SOME),
    Method("pipeline, box", pipeline.cluster, 1e-6, n_records=None, domain="box", changes=FEW),
    Method("pipeline, pure", pipeline.cluster, changes=FEW),
    Method("pipeline, counted", pipeline.cluster, dim=12, n_records=None, changes=FEW),
    Method("pipeline, 12 columns", pipeline.cluster, 1e-6, dim=12),
    Method("pipeline, 12 columns, pure", pipeline.cluster, dim=12),
    Method("pipeline, large", pipeline.cluster, 1e-6, dim=12, n_records=1e7, changes=FEW),
    Method("pipeline, large, pure", pipeline.cluster, dim=12, n_records=1e7, changes=FEW),
    Method("tree", cluster_by_tree, 0.0, TREE),
    Method("tree, delta", cluster_by_tree, 1e-6, TREE, n_records=None, domain="box"),
    Method("tree, two trials", cluster_by_tree, 0.0, {**TREE, "n_trials": 2}),
    Method("lloyd, laplace-joint", lloyd.cluster, 0.0, {"noise": "laplace-joint"}, domain="box"),
    Method("lloyd, laplace", lloyd.cluster, 0.0, {"noise": "laplace"}),
    Method("lloyd, cube", lloyd.cluster, 0.0, {"noise": "cube"}),
    Method("lloyd, gaussian", lloyd.cluster, 1e-6, {"noise": "gaussian"}),
    Method("lloyd, auto", lloyd.cluster, 1e-6, {"n_rounds": "auto"}, domain="box"),
    Method("medians", cluster_medians, 1e-6, changes=SOME),
    Method("medians, pure", cluster_medians, changes=FEW),
    Method("medians, tree", cluster_medians, 0.0, {"method": "partition-tree"}, changes=SOME),
    Method("sparse", cluster_sparse, 0.0, SPARSE, changes=SOME),
    Method("sparse, delta", cluster_sparse, 1e-6, SPARSE, changes=FEW),
    Method("sparse, picks", cluster_sparse, 0.0, {**SPARSE, "recovery": "picks"}, changes=SOME),
    Method("sparse, trees", cluster_sparse, 0.0, {**SPARSE, "start": "trees"}, changes=SOME),
    Method("grid", grid.cluster),
    Method("grid, delta", grid.cluster, 1e-6, domain="box"),
    Method("cells", cells.cluster, changes=SOME),
    Method("cells, delta", cells.cluster, 1e-6, n_records=None, domain="box", dim=2),
    Method("cells, heavy", cells.cluster, dim=2, epsilon=10.0, changes=SOME),
    Method("aggregate", aggregate.cluster, 1e-6, {"n_blocks": 4}),
    Method("aggregate, counted", aggregate.cluster, 1e-6, n_records=None, domain="box"),
    Method("aggregate, cube", aggregate.cluster, 0.0, {"n_blocks": 4}, domain="box"),
    Method("aggregate, laplace", aggregate.cluster, 0.0, {"noise": "laplace", "n_blocks": 4}),
    Method("variates", variates.cluster, 1e-6),
    Method("variates, counted", variates.cluster, 1e-6, n_records=None, domain="box"),
    Method("variates, cube", variates.cluster, domain="box"),
    Method("variates, laplace", variates.cluster, 0.0, {"noise": "laplace"}),
]
ONE_OF_EACH = [
    Method("pipeline", pipeline.cluster, 1e-6, dim=11),
    Method("pipeline, pure", pipeline.cluster, dim=11),
    Method("tree", cluster_by_tree, 0.0, TREE),
    Method("tree, two trials", cluster_by_tree, 0.0, {**TREE, "n_trials": 2}),
    Method("lloyd, gaussian", lloyd.cluster, 1e-6, {"n_rounds": "auto"}, domain="box"),
    Method("lloyd, laplace", lloyd.cluster, 0.0, {"n_rounds": "auto", "noise": "laplace"}),
    Method("lloyd, cube", lloyd.cluster, 0.0, {"n_rounds": "auto"}),
    Method("grid", grid.cluster),
    Method("cells", cells.cluster, dim=2, epsilon=10.0),  # with heavy ones
]
NAMES, KINDS = ([method.name for method in methods] for methods in (METHODS, ONE_OF_EACH))


class SharedDraws:
    """Draws of blocks that records of neighbouring tables have in common.

    A record that takes the place of another has its draw: draws do not depend on records.
    """

    def __init__(self):
        self._rng = np.random.default_rng(0)
        self._known = {}

    def __call__(self, records):
        keys = [row.tobytes() for row in records]
        free = [key for key in self._known if key not in keys]
        for key in keys:
            if key not in self._known:
                drawn = self._rng.integers(2**64, size=2, dtype=np.uint64)
                self._known[key] = self._known[free.pop()] if free else drawn
        return np.array([self._known[key] for key in keys])


@pytest.fixture(autouse=True)
def shared_draws(monkeypatch):
    seams.set(monkeypatch, "aggregate.drawn_words", SharedDraws())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """What is found from public facts by a search is found once."""
    right = Shares.part
    seams.set(monkeypatch, "account.Shares.part", lambda self, name: _part(right, self, name))
    if hasattr(pipeline, "plan_pipeline"):
        seams.set(monkeypatch, "method.plan_pipeline", _planned)


_parts: dict = {}
_planned = cache(pipeline.plan_pipeline) if hasattr(pipeline, "plan_pipeline") else None


def _part(right, whole, name):
    key = whole.budget, whole.weights[name]
    if key not in _parts:
        _parts[key] = right(whole, name)
    return _parts[key]


# --- tables ------------------------------------------------------------------------------------


def some_records(dim, n_records=N_RECORDS):
    rng = np.random.default_rng(dim)
    return 0.5 + 0.3 * rng.normal(size=(n_records, dim)) + np.repeat([[-0.5], [0.5]], 30, axis=0)


NEW = {
    "extreme": lambda dim: 0.5 - np.eye(dim)[0] * 2.0,
    "corner": lambda dim: np.full(dim, 0.5 + 2.0 / math.sqrt(dim)),
    "outlier": lambda dim: np.full(dim, -1e300),
    "missing": lambda dim: np.array([np.nan, np.inf, *np.ones(dim - 2)]),
}


def pair_of(change, neighbours, dim):
    """Neighbouring tables."""
    table = some_records(dim)
    if change == "none":  # no records but one
        return table[:0], table[:1]
    if change == "removed":
        return table, np.delete(table, 17, axis=0)
    new = NEW[change](dim)[np.newaxis]
    rest = table if neighbours == "add-remove" else np.delete(table, 40, axis=0)
    return table, np.concatenate([rest, new])


CHANGES = {
    "add-remove": ["removed", "none", *NEW],
    "replace": list(NEW),
}
CASES = [
    pytest.param(method, neighbours, change, id=f"{method.name}-{neighbours}-{change}")
    for method in METHODS
    for neighbours in RELATIONS
    for change in CHANGES[neighbours]
    if change in (method.changes or CHANGES[neighbours])
]


# --- noise that is recorded --------------------------------------------------------------------


def audit(run, one, other, tape):
    """Replay `run` on a neighbour; the largest move of a question, and the share of the budget."""
    passes_made = []

    def noted(table):
        passes_made.append([])
        return run(table, progress=lambda name, count: passes_made[-1].append(name))

    found = replay(noted, one, other, tape)
    assert list(dict.fromkeys(passes_made[0])) == list(dict.fromkeys(passes_made[1]))
    first, second = found.first, found.second
    np.testing.assert_array_equal(first.centers, second.centers)
    np.testing.assert_array_equal(first.weights, second.weights)
    assert first.n_records == second.n_records
    return found.largest_move, found.share_of_budget


@pytest.mark.mostly_slow(quick_every=9)
@pytest.mark.parametrize(("method", "neighbours", "change"), CASES)
def test_replayed_on_a_neighbour(method, neighbours, change):
    one, other = pair_of(change, neighbours, method.dim)

    def run(table, **more):
        return method(table, neighbours, n_threads=1, **more)

    _, share = audit(run, one, other, Tape())
    # A record may be replaced by one that is taken for the same: in one cell of a grid. Both runs
    # may draw the same records, and a block of one record has no two centers.
    may_be_same = method.run is variates.cluster or (
        method.run is aggregate.cluster and not len(one)
    )
    assert share > 0 or neighbours == "replace" or may_be_same


@pytest.mark.mostly_slow(quick_every=9)
@pytest.mark.parametrize("push", [-30.0, 30.0])
@pytest.mark.parametrize("method", ONE_OF_EACH, ids=KINDS)
def test_the_other_way_round(method, push):
    """A record is added as well as removed; answers far from what was asked change nothing."""

    def run(table, **more):
        return method(table, "add-remove", n_threads=1, **more)

    one, other = pair_of("corner", "add-remove", method.dim)
    audit(run, other, one, Tape(push=push))


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("method", ONE_OF_EACH, ids=KINDS)
def test_order_blocks_and_threads_change_nothing(method, monkeypatch):
    table = np.concatenate([some_records(method.dim), [NEW[name](method.dim) for name in NEW]])
    shuffled = table[np.random.default_rng(0).permutation(len(table))]
    tape, parts = Tape(), [shuffled[:1], shuffled[1:40], shuffled[40:]]
    first = tape.recorded(lambda: method(table, "replace", n_threads=1))
    seams.set(monkeypatch, "passes.CHUNK_VALUES", 7 * method.dim)
    second = tape.replayed(lambda: method(parts, "replace", n_threads=3))
    for question, after in zip(tape.questions, tape.again, strict=True):
        np.testing.assert_array_equal(question.values, after)
    np.testing.assert_array_equal(first.centers, second.centers)


@pytest.mark.mostly_slow(quick_every=4)
@pytest.mark.parametrize("push", [-30.0, 0.0, 30.0])
@pytest.mark.parametrize("method", ONE_OF_EACH, ids=KINDS)
def test_whatever_the_noise_there_is_a_model(method, push):
    """Also for a table without records: all that is released is noise then."""
    found = Tape(push=push).recorded(
        lambda: method(np.empty((0, method.dim)), "add-remove", n_threads=1)
    )
    assert np.isfinite(found.centers).all()
    assert (found.weights >= 0).all()
    assert found.weights.sum() == pytest.approx(1.0)
    assert 0 <= found.n_records < math.inf


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_no_records_to_replace(method, spent):
    with pytest.raises(ps.PrivsketchError, match="replace"):
        method(np.empty((0, method.dim)), "replace", n_threads=1)
    assert spent == []


# --- what may not depend on records, or go wrong without a word ---------------------------------


@pytest.mark.parametrize("n_records", [-5, 0, math.nan, math.inf, "many", 1e300])
@pytest.mark.parametrize("method", ONE_OF_EACH, ids=KINDS)
def test_a_number_of_records_that_is_none(method, n_records):
    odd, tape = replace(method, n_records=n_records), Tape()
    try:
        tape.recorded(lambda: odd(some_records(method.dim), "add-remove", n_threads=1))
    except ps.PrivsketchError:
        assert tape.questions == []
    else:
        assert n_records == 1e300


@pytest.mark.parametrize("epsilon", [1e-22, 1e-29])
@pytest.mark.parametrize("method", ONE_OF_EACH[1:], ids=KINDS[1:])
def test_a_tiny_epsilon_is_refused_or_not_whatever_the_records(method, epsilon):
    outcomes = set()
    for n in (0, 1, 5):
        budget = ps.Budget(epsilon, method.delta)
        try:
            method(np.full((n, method.dim), 0.5), "add-remove", n_threads=1, budget=budget)
        except ps.PrivsketchError:
            outcomes.add("refused")
        else:
            outcomes.add("released")
    assert len(outcomes) == 1


class ReadOnce:
    """Blocks that are there the first time only, without being an iterator."""

    def __init__(self, blocks):
        self._blocks = iter(blocks)

    def __iter__(self):
        return self._blocks


@pytest.mark.parametrize("method", ONE_OF_EACH, ids=KINDS)
def test_a_table_that_is_empty_the_second_time(method):
    """It would be clustered as noise, and nobody would know."""
    if method.run is grid.cluster:
        pytest.skip("reads once")
    table = some_records(method.dim)
    for data in (ReadOnce([table]), [arrow_reader(table)]):
        with pytest.raises(RecordError, match=r"(?i)several times|again"):
            method(data, "add-remove", n_threads=1)


def arrow_reader(table):
    import pyarrow as pa

    return pa.table({f"x{j}": column for j, column in enumerate(table.T)}).to_reader()


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (0.01, 1e-3), (0.1, 0.01), (0.001, 0.01), (1.0, 0.1)]
)
def test_shares_of_a_large_delta_are_found(epsilon, delta, monkeypatch):
    """The search for a share ends, and all shares together stay within the budget."""
    monkeypatch.undo()
    left = 100
    right = shares.rho_of_budget

    def counted(*args):
        nonlocal left
        left -= 1
        assert left > 0, "the search does not end"
        return right(*args)

    seams.set(monkeypatch, "account.rho_of_budget", counted)
    weights = {"small": Fraction(1, 1000), "large": Fraction(999, 1000)}
    parts = [Shares(ps.Budget(epsilon, delta), weights).part(name) for name in weights]
    rhos = [Fraction(right(part.epsilon, part.delta)) for part in parts]
    assert sum(rhos) <= Fraction(right(epsilon, delta))
    assert rhos[0] > Fraction(right(epsilon, delta)) / 2000


# --- planted errors: methods that the audit must refuse ----------------------------------------


def noisy_mean(table, neighbours, *, l1=None, **options):
    """A method of one cluster: a noisy sum and a noisy count."""
    selection = ps.Table(table).selection(2, neighbours=neighbours)
    rows = Passes(table, ps.Box(-1, 1, dim=2), selection, **options)
    account = Account(
        Shares(ps.Budget(1.0, 0.0, neighbours), {"a": Fraction(1, 2), "b": Fraction(1, 2)})
    )

    def work(records):
        return records.sum(axis=0).astype(np.int64), np.array([len(records)])

    sums, count = rows.sums(work, "sums")
    noisy, _ = account.laplace("a", sums, int(rows.limits.sum()) if l1 is None else l1)
    noisy_count, _ = account.laplace("b", count, 1)
    return noisy, float(noisy_count[0]), count, account


def model_of(noisy, count, account):
    center = np.clip(noisy / max(count, 1.0), -1, 1)[np.newaxis]
    return ClusterModel(center, np.ones(1), max(count, 1.0), account.receipt("mean", None), "mean")


def correct(table, neighbours, **options):
    noisy, count, _, account = noisy_mean(table, neighbours, **options)
    return model_of(noisy, count, account)


def half_the_norm(table, neighbours, **options):
    noisy, count, _, account = noisy_mean(table, neighbours, l1=2**18, **options)
    return model_of(noisy, count, account)


def exact_count(table, neighbours, **options):
    noisy, _, count, account = noisy_mean(table, neighbours, **options)
    return model_of(noisy, float(count[0]), account)


def question_about_an_even_table(table, neighbours, **options):
    noisy, count, exact_number, account = noisy_mean(table, neighbours, **options)
    if exact_number[0] % 2 == 0:
        Account(Shares(ps.Budget(1.0), {"c": Fraction(1)})).laplace("c", exact_number, 1)
    return model_of(noisy, count, account)


def law_of_the_table(table, neighbours, **options):
    longest = int(np.nan_to_num(np.abs(table)).max(initial=1)) + 1
    noisy, count, _, account = noisy_mean(table, neighbours, l1=2**19 * longest, **options)
    return model_of(noisy, count, account)


def centred_first(table, neighbours, **options):
    """Subtracts the exact mean: one record moves all others."""
    return correct(table - np.nanmean(np.clip(table, -1, 1), axis=0) * 3, neighbours, **options)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_audit_lets_a_correct_method_pass(neighbours):
    table = np.array([[-1.0, -1.0], [0.2, 0.3], [0.0, 0.9]])
    far = np.concatenate([table[1:] if neighbours == "replace" else table, [[9.0, 9.0]]])
    largest, share = audit(
        lambda rows, **more: correct(rows, neighbours, **more), table, far, Tape()
    )
    assert largest == pytest.approx(1.0)
    assert share == pytest.approx(1.0 if neighbours == "add-remove" else 0.5, abs=1e-5)


@pytest.mark.parametrize(
    "planted",
    [half_the_norm, exact_count, question_about_an_even_table, law_of_the_table, centred_first],
)
def test_the_audit_catches(planted):
    table = np.linspace(-1, 1, 12).reshape(6, 2)
    far = np.concatenate([table, [[9.0, 9.0]]])
    with pytest.raises(AssertionError):
        audit(lambda rows, **more: planted(rows, "add-remove", **more), table, far, Tape())
