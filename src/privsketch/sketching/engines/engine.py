"""What an engine is, and the engine that a caller asks for.

Engines of other packages are registered in the group `privsketch.engines`: a class whose objects
have a method `sums`. Our own `cuda` is registered in the same way. What an engine returns is
private; noise is added once, to its total, by whoever asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol

import numpy as np

from privsketch._base.errors import ParameterError, PrivsketchError
from privsketch._base.plugins import find_origin, find_plugin, plugin_names
from privsketch.sketching.engines.work import Progress, Work, foreign_error
from privsketch.sketching.sums import ExactSums
from privsketch.tables.table import Table

_OWN = {"threads": "Threads", "pool": "Pool", "dask": "Dask", "spark": "Spark"}
_FOR_TABLES = ("dask", "spark", "cuda")  # engines that have tables of their own
_PACKAGE = "privsketch.sketching.engines"


class Engine(Protocol):
    """Where exact sums are computed; a small frozen dataclass whose fields are its options."""

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table.

        Parameters
        ----------
        table : Table
        work : Work
            The design, and what is read for a record. `part_sums(work, part)` computes a part of
            `privsketch.tables.reading.read_parts(table, work.selection)`, on any machine.
        progress : callable, optional
            To be called with numbers of records done.
        """


@dataclass(frozen=True)
class NamedEngine:
    """An engine, its name, and the distribution that it comes from; None for this library."""

    name: str
    engine: Engine
    origin: str | None = None

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums; errors of engines of others quote no record either."""
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
        sums = getattr(exact, "sums", None)
        nothing = work.nothing
        if not (
            isinstance(exact, ExactSums)
            and isinstance(sums, np.ndarray)
            and (sums.shape, sums.dtype) == (nothing.sums.shape, nothing.sums.dtype)
        ):
            raise ParameterError(
                f"`engine={self.name!r}`: {self.origin} returns no exact sums of the design"
            )
        return replace(exact, origin=self.origin)


def _known_names() -> str:
    """Return the names of all engines, our own and registered ones, for errors."""
    return ", ".join(repr(name) for name in dict.fromkeys([*_OWN, *plugin_names("engines")]))


def find_engine(engine: str | Engine | None, table: Table) -> NamedEngine:
    """Return an engine by its name, as it is, or by the kind of the table if it is None.

    Tables of a cluster can only be read by it, arrays on a device only there.
    """
    home = "cuda" if table.is_on_device else table.kind if table.kind in _FOR_TABLES else None
    if engine is None:
        return _named(home or "threads")
    found = _named(engine) if isinstance(engine, str) else _of_object(engine)
    if home is None or found.name == home or found.origin is not None:
        return found
    if home == "cuda":
        raise ParameterError(
            f"`engine={found.name!r}` with an array on a device: leave engine out, use "
            "`engine='cuda'`, or copy the array to the host"
        )
    raise ParameterError(
        f"`engine={found.name!r}` with a {home.title()} {type(table.data).__name__}: leave engine "
        f"out, or use `engine={home!r}`"
    )


def _named(name: str) -> NamedEngine:
    if name in _OWN:
        return NamedEngine(name, getattr(import_module(_PACKAGE), _OWN[name])())
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


def _of_object(engine: Engine) -> NamedEngine:
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
