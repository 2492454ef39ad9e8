"""What a sketch will take: the arithmetic with clocks of our own, sizes against real files."""

import itertools

import numpy as np
import pytest

import privsketch as ps
from privsketch import estimate_cost, testing
from privsketch.sketching import RecordSums, public_records, rows_at_once
from tests import seams

BOX, BALL = ps.Box(-1, 3, dim=16), ps.Ball(16, 2.0)
MASKS = ("uniform:16", "poisson:0.5", "block:64", "records:0.5", "block:64+records:0.5")
DESIGNS = {
    **{
        f"{name}, {law}": {"feature_map": name, "frequencies": law, "n_features": 128}
        for name in ("fourier", "one-bit")
        for law in ("multi-scale", "structured")
    },
    **{mask: {"masks": ps.Masks.parse(mask), "n_features": 128} for mask in MASKS},
    "quadratic": {"task": "pca", "domain": BALL, "feature_map": "quadratic", "n_features": 99},
    "second-moments": {"task": "pca", "domain": BALL, "feature_map": "second-moments"},
    "mean": {"task": "pca", "domain": BALL, "mean": "released"},
    "replace": {"budget": ps.Budget(1.0, 1e-6, "replace"), "n_features": 64},
}


def plan(name="fourier, multi-scale"):
    settings = {"n_components": 1, "domain": BOX, "budget": ps.Budget(1.0, 1e-6)}
    return ps.Design.plan(**{**settings, "random_state": 0, **DESIGNS[name]})


def no_noise_is_drawn(values, law):
    raise AssertionError


@pytest.mark.parametrize(("name", "n_threads"), [*zip(DESIGNS, itertools.cycle([1, 2]))])
def test_every_design_has_a_cost(name, n_threads, monkeypatch):
    seams.set(monkeypatch, "estimate.SECONDS", 0.0)
    design = plan(name)
    with testing.replaced_noise(no_noise_is_drawn):
        cost = estimate_cost(design, n_threads=n_threads)
    assert 0 < cost.seconds_per_million_records < 1e4
    assert cost.n_threads == n_threads
    size = len(ps.sketch(np.zeros((5, 16)), design, source="site").to_bytes())
    assert cost.file_size == pytest.approx(size, rel=0.05, abs=200)
    assert 2**24 < cost.memory < 2**28


class Machine:
    """Clocks that run as records are summed; `busy` and `own` are seconds for each of them."""

    def __init__(self, busy, own, wall):
        self.rates, self.n_records, self.runs, self.own = (busy, own, wall), 0, [], 0.0

    def process_time(self):
        return self.n_records * self.rates[0]

    def thread_time(self):
        return self.own

    def perf_counter(self):
        return self.n_records * self.rates[2]

    def sum_records(self, pieces, domain, summer, *, n_threads):
        assert all(np.array_equal(domain.project(piece), piece) for piece in pieces)
        count = sum(map(len, pieces))
        self.n_records += count
        self.own += count * self.rates[1 if n_threads > 1 else 0]  # alone, a thread does all of it
        self.runs.append((n_threads, {len(piece) for piece in pieces}))


@pytest.mark.parametrize(
    ("busy", "own", "wall", "expected"),
    [
        (4e-6, 1e-7, 2e-6, 2.0),  # two threads, each of which works half of the time
        (4e-6, 1e-7, 2.4e-6, 2.4),  # they wait for each other
        (4e-6, 1e-7, 9e-6, 2.6),  # others use the machine: what they take hardly counts
        (4e-6, 3e-6, 3e-6, 3.0),  # one thread that hands out work is what takes longest
        (0.0, 0.0, 5e-6, 5.0),  # clocks in coarse steps
        (4e-3, 1e-4, 2e-3, 2000.0),  # a piece would take too long
    ],
)
def test_the_time_of_two_threads(busy, own, wall, expected, monkeypatch):
    machine, design = Machine(busy, own, wall), plan()
    seams.set(monkeypatch, "estimate.time", machine)
    seams.set(monkeypatch, "estimate.sum_records", machine.sum_records)
    cost = estimate_cost(design, n_threads=2)
    assert cost.seconds_per_million_records == pytest.approx(expected)
    assert cost.seconds(5e8) == pytest.approx(500 * expected)
    n_threads, sizes = machine.runs[-1]
    rows = rows_at_once(design.dim, RecordSums(design))
    assert n_threads == 2
    assert sizes == {rows if busy < 1e-3 else 64}


@pytest.mark.parametrize("domain", [BOX, BALL, ps.Ball(2, 1.0), ps.Box([0, 5], [1, 9])], ids=str)
def test_public_numbers_lie_in_the_domain(domain):
    found = public_records(domain, 1000)
    assert np.array_equal(domain.project(found), found)
    assert np.ptp(found, axis=0) == pytest.approx(np.ptp(found, axis=0).max(), rel=0.9)


def test_what_is_no_design_is_refused():
    with pytest.raises(ps.PrivsketchError, match="design: expected a Design"):
        estimate_cost("study.json")
    with pytest.raises(ps.PrivsketchError, match="n_threads"):
        estimate_cost(plan(), n_threads=0)


def test_words():
    cost = ps.Cost(0.123, n_threads=1, memory=20_000_000, file_size=950)
    assert str(cost) == cost.describe()
    for word in ("0.12 s", "1 thread ", "20 MB", "950 B", "reading files not included"):
        assert word in str(cost)
