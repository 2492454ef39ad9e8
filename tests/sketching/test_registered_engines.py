"""Engines of other packages: found by name or given as objects, checked, and named in receipts."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import privsketch as ps
from privsketch._base import plugins
from privsketch.sketching import add_outcomes, part_sums
from privsketch.tables import read_parts
from privsketch.testing import check_engine
from tests import seams

ORIGIN = "slow-engines 0.3"
SECRET = "0.8172635"
RECORDS = np.random.default_rng(0).normal(size=(400, 3))


@dataclass(frozen=True)
class Slow:
    """One part after the other, as a cluster of one machine would."""

    n_tries: int = 1

    def sums(self, table, work, progress=None):
        outcomes = (part_sums(work, part) for part in read_parts(table, work.selection))
        total = add_outcomes([work.nothing, *outcomes])
        if isinstance(total, ps.PrivsketchError):
            raise total
        if progress is not None:
            progress(total.n_records)
        return total


class Talking(Slow):
    def sums(self, table, work, progress=None):
        raise KeyError(SECRET)


class Short(Slow):
    def sums(self, table, work, progress=None):
        exact = super().sums(table, work)
        return replace(exact, sums=exact.sums[:-1])


class Half(Slow):
    def sums(self, table, work, progress=None):
        exact = super().sums(table, work)
        return replace(exact, sums=exact.sums // 2)


class FakePoint:
    """An entry point whose distribution need not be installed."""

    def __init__(self, part):
        self.part, self.value, self.module = part, f"{__name__}:{part}", __name__
        self.dist = type("Dist", (), {"name": "slow-engines", "version": "0.3"})

    def load(self):
        return self.part


@pytest.fixture
def register(monkeypatch):
    """Registers engines under their names; our own stay where they are."""

    def register(**engines):
        registered = plugins._registered
        points = {name: (FakePoint(part),) for name, part in engines.items()}
        seams.set(
            monkeypatch,
            "plugins.registered",
            lambda group: points if group == "engines" else registered(group),
        )

    return register


def test_a_registered_engine_gives_the_same_sums_and_is_named(register, make_design, no_noise):
    register(slow=Slow)
    design, done = make_design(), []
    expected = ps.sketch(RECORDS, design)
    for engine in ("slow", Slow(n_tries=3)):
        found = ps.sketch(RECORDS, design, engine=engine, progress=done.append)
        assert (found.values == expected.values).all()
        assert found.receipt.plugins == (ORIGIN,)
    assert done == [400, 400]
    assert expected.receipt.plugins == ()


def test_the_battery_takes_a_right_engine_and_refuses_a_wrong_one(register):
    register(slow=Slow, half=Half)
    check_engine("slow")
    with pytest.raises(AssertionError, match="other sums"):
        check_engine("half")


def test_an_engine_of_no_package_is_named_by_its_class(make_design, no_noise):
    found = ps.sketch(RECORDS, make_design(), engine=Slow())
    assert found.receipt.plugins == (f"{__name__}.Slow",)


def test_engines_that_fail_quote_no_record_and_cost_nothing(register, make_design, spent):
    register(talking=Talking, short=Short, none=print)
    for engine in ("talking", Talking()):
        with pytest.raises(ps.RecordError, match="KeyError") as caught:
            ps.sketch(RECORDS, make_design(), engine=engine)
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
    with pytest.raises(ps.ParameterError, match="does not return exact sums"):
        ps.sketch(RECORDS, make_design(), engine="short")
    with pytest.raises(ps.ParameterError, match="registers no engine"):
        ps.sketch(RECORDS, make_design(), engine="none")
    with pytest.raises(ps.ParameterError, match="expected one of 'threads', 'pool'"):
        ps.sketch(RECORDS, make_design(), engine="flink")
    assert spent == []


def test_nothing_of_an_engine_is_imported_before_it_is_named(register, make_design):
    class Unloadable(FakePoint):
        def load(self):
            raise AssertionError

    register(other=Slow)
    points = {"other": (Unloadable(Slow),)}
    plugins._registered("engines").update(points)
    ps.sketch(RECORDS, make_design())
    with pytest.raises(ps.ParameterError, match="'other'"):
        ps.sketch(RECORDS, make_design(), engine="unknown")


@dataclass(frozen=True)
class Odd(Slow):
    """An engine whose total has one odd fact."""

    name: str = "n_records"
    value: object = None

    def sums(self, table, work, progress=None):
        return replace(super().sums(table, work), **{self.name: self.value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n_records", odd) for odd in (None, 399.5, float("nan"), True, -1, SECRET, 399)),
        *(("n_kept", odd) for odd in (None, -1, 401)),
        *(("marks", odd) for odd in (None, (SECRET,), (-1,), (2**64,))),
    ],
)
def test_impossible_counts_and_marks_are_refused_before_noise(spent, name, value):
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-4, 4, dim=3), budget=ps.Budget(1.0, 1e-6), random_state=0
    )
    with pytest.raises(ps.ParameterError, match="does not return exact sums") as raised:
        ps.sketch(RECORDS, design, engine=Odd(name=name, value=value))
    assert SECRET not in str(raised.value)
    assert not spent


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_counts_of_numpy_do_not_wrap(no_noise, neighbours):
    """The released count is weighted: in 32 bits, 262 records would become fewer than 0."""
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-4, 4, dim=3),
        budget=ps.Budget(1.0, 1e-6, neighbours),
        random_state=0,
    )
    expected = ps.sketch(RECORDS, design, source="a")
    for count in (np.int32(400), np.int64(400)):
        engine = Odd(name="n_records", value=count)
        released = ps.sketch(RECORDS, design, source="a", engine=engine)
        np.testing.assert_array_equal(released.sums, expected.sums)
        assert released.n_records == expected.n_records
        ps.Sketch.from_bytes(released.to_bytes())
