"""Which tests are slow: every case of a test gets its tier.

A test says itself that it is `slow`, or that its cases are `in_order`. Of a test with many cases a
few have every value of every parameter at least once. Of these every tenth is quick, and the others
are slow; all other combinations are `exhaustive`, and slow as well. In tests/privacy, cases that
have every pair of values are no such combinations: they are for `make audit`.
"""

import gc
from collections import defaultdict
from itertools import combinations

import pytest

QUICK_EVERY = 10  # cases of a test
ALL_TESTS = 2000  # a run of fewer tests was asked for by name: nothing is left out of it
TARGETS = {"papers": ("tests/papers/", "tests/benchmarks/")}  # by folder; others by their marks


def pytest_sessionstart():
    """Collect no garbage while tests are collected: thirteen thousand of them, and none of it."""
    gc.disable()


def pytest_collection_finish():
    """From now on collect it, but look at no module and no test again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items):
    """Mark cases as slow and exhaustive, and those that have a target of their own."""
    tests = defaultdict(list)
    for item in items:
        for target, folders in TARGETS.items():
            if item.nodeid.startswith(folders):
                item.add_marker(target)
        if "postgresql" in item.name:
            item.add_marker("postgres")
        if item.get_closest_marker("exhaustive") or item.get_closest_marker("audit"):
            item.add_marker("slow")
        else:
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("mostly_slow")
        is_slow = any(case.get_closest_marker("slow") for case in cases)
        if cases[0].get_closest_marker("in_order") or (
            len(items) <= ALL_TESTS and not (marker or is_slow)
        ):
            continue
        values = {case: parameters(case) for case in cases}
        chosen = covering(values)
        pairs = {case: set(combinations(sorted(values[case], key=repr), 2)) for case in cases}
        audited = covering(pairs) if "tests/privacy/" in cases[0].nodeid else []
        every = max(QUICK_EVERY, marker.kwargs["quick_every"] if marker else 0)
        for case in cases:
            if case not in chosen[::every]:
                case.add_marker("slow")
            if case not in chosen:
                case.add_marker("audit" if case in audited else "exhaustive")


def covering(values):
    """Choose few cases that together have all values: each time the one with most new values."""
    left, chosen = dict(values), []
    while not chosen or any(left.values()):
        best = max(left, key=lambda case: len(left[case]))  # the first of them
        new = left.pop(best)
        chosen.append(best)
        left = {case: values - new for case, values in left.items()}
    return chosen


def parameters(case):
    """Return names and values of a case's parameters; objects stand for themselves."""
    params = case.callspec.params if hasattr(case, "callspec") else {}
    plain = (str, bytes, bool, int, float, type(None))
    return {
        (name, type(value).__name__, repr(value) if isinstance(value, plain) else id(value))
        for name, value in params.items()
    }


def pytest_itemcollected(item):
    """Tests of Spark are slow and marked; their names say so, for who runs them (see below)."""
    if "spark" in getattr(item, "fixturenames", ()):
        if "spark" not in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} uses Spark: call it test_..._spark")
        item.add_marker("slow")
        item.add_marker("spark")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, tests of a file go to one worker, those of Spark all to the same."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "spark" if "spark" in nodeid else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None
