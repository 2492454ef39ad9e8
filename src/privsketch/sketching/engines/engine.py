"""The interface of engines, and their lookup by name, object or table.

Engines of other packages are registered in the group `privsketch.engines`: a class whose objects
have a method `sums`. This library's `cuda` is registered in the same way. What an engine returns is
private; its caller adds noise once, to the total.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol

import numpy as np

from privsketch._base.errors import ParameterError, PrivsketchError
from privsketch._base.plugins import find_origin, find_plugin, plugin_names
from privsketch._base.types import Integers
from privsketch.sketching.engines.work import Progress, Work, foreign_error
from privsketch.sketching.sums import ExactSums
from privsketch.tables.table import Table

_BUILT_IN = {"threads": "Threads", "pool": "Pool", "dask": "Dask", "spark": "Spark"}
_TABLE_ENGINES = ("dask", "spark", "cuda")  # each has its own kind of table
_PACKAGE = "privsketch.sketching.engines"


class Engine(Protocol):
    """Place where exact sums are computed: a small frozen dataclass of options."""

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table.

        Parameters
        ----------
        table : Table
        work : Work
            The design, and what is read of a record. `part_sums(work, part)` computes a part of
            `privsketch.tables.reading.read_parts(table, work.selection)`, on any machine.
        progress : callable, optional
            Called with numbers of further records that were summed.
        """


@dataclass(frozen=True)
class NamedEngine:
    """An engine, its name, and the distribution that it comes from; None for this library."""

    name: str
    engine: Engine
    origin: str | None = None

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums; errors of other packages' engines do not quote records."""
        if self.origin is None:
            return self.engine.sums(table, work, progress)
        failure: PrivsketchError | None = None
        try:
            exact = self.engine.sums(table, work, progress)
        except PrivsketchError as error:
            failure = error.without_causes()
        except Exception as error:
            failure = foreign_error(f"`engine={self.name!r}`", error)
        if failure is not None:
            raise failure
        if not (isinstance(exact, ExactSums) and _is_sound(exact, work.nothing.sums)):
            raise ParameterError(
                f"`engine={self.name!r}`: {self.origin} does not return exact sums of the design"
            )
        # Integers of Python: those of NumPy would wrap where the count gets its weight.
        n_records, n_kept = int(exact.n_records), int(exact.n_kept)
        return replace(exact, n_records=n_records, n_kept=n_kept, origin=self.origin)


def _is_sound(exact: ExactSums, expected: Integers) -> bool:
    """Return whether sums have the shape of those expected, and counts and marks are possible."""
    sums, counts = exact.sums, (exact.n_records, exact.n_kept)
    return (
        isinstance(sums, np.ndarray)
        and (sums.shape, sums.dtype) == (expected.shape, expected.dtype)
        and all(isinstance(c, int | np.integer) and not isinstance(c, bool) for c in counts)
        and 0 <= exact.n_kept <= exact.n_records
        and isinstance(exact.marks, tuple)
        and all(type(mark) is int and 0 <= mark < 2**64 for mark in exact.marks)
    )


def _known_names() -> str:
    """Return the names of all built-in and registered engines, for errors."""
    return ", ".join(repr(name) for name in dict.fromkeys([*_BUILT_IN, *plugin_names("engines")]))


def find_engine(engine: str | Engine | None, table: Table) -> NamedEngine:
    """Return an engine by name, or an engine object with its name, or for None that of the table.

    Only a cluster can read its tables, and only a device its arrays.
    """
    native = "cuda" if table.is_on_device else table.kind if table.kind in _TABLE_ENGINES else None
    if engine is None:
        return _engine_by_name(native or "threads")
    named = _engine_by_name(engine) if isinstance(engine, str) else _engine_of(engine)
    if native is None or named.name == native or named.origin is not None:
        return named
    if native == "cuda":
        raise ParameterError(
            f"`engine={named.name!r}` with an array on a device: leave engine out, use "
            "`engine='cuda'`, or copy the array to the host"
        )
    raise ParameterError(
        f"`engine={named.name!r}` with a {native.title()} {type(table.data).__name__}: leave "
        f"engine out, or use `engine={native!r}`"
    )


def _engine_by_name(name: str) -> NamedEngine:
    if name in _BUILT_IN:
        return NamedEngine(name, getattr(import_module(_PACKAGE), _BUILT_IN[name])())
    plugin = find_plugin("engines", name)
    if plugin is None:
        raise ParameterError("engine", name, f"expected one of {_known_names()}")
    if not (isinstance(plugin.part, type) and callable(getattr(plugin.part, "sums", None))):
        raise ParameterError(
            f"`engine={name!r}`: {plugin.origin} registers no engine; expected a class with a "
            "method sums(table, work, progress)"
        )
    is_ours = plugin.distribution == "privsketch"
    return NamedEngine(name, plugin.part(), None if is_ours else plugin.origin)


def _engine_of(engine: Engine) -> NamedEngine:
    kind = type(engine)
    if isinstance(engine, type) or not callable(getattr(kind, "sums", None)):
        raise ParameterError(
            f"engine: got {engine.__name__ if isinstance(engine, type) else kind.__name__}; "
            f"expected one of {_known_names()}, or an engine with options "
            "like privsketch.engines.Pool(n_workers=4)"
        )
    is_ours = kind.__module__.startswith(f"{_PACKAGE}.")
    return NamedEngine(
        kind.__name__.lower() if is_ours else kind.__name__,
        engine,
        None if is_ours else find_origin("engines", kind),
    )
