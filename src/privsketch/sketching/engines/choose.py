"""Where the exact sums of one holder are computed: threads, processes, or a Dask cluster.

All engines give the same integers, bit for bit, but for secret masks, which every task draws
anew. What they compute is private; noise is added once, to their total, by
`sketching.release`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from privsketch.design.recipe import Design
from privsketch.errors import ParameterError, require_count
from privsketch.sketching.engines.dask import is_dask
from privsketch.sketching.engines.work import Work
from privsketch.sketching.sums import ExactSums, exact_sums
from privsketch.tables.reading import chosen_columns, part_blocks, read_parts

ENGINES = ("threads", "pool", "dask")
# What each engine is told beside its name, and what to use in place of anything else.
_OPTIONS = {
    "threads": ("n_threads",),
    "pool": ("n_workers",),
    "dask": ("n_workers", "scheduler"),
}
_ADVICE = {
    "n_threads": "its workers use one thread each; say how many workers instead",
    "n_workers": "only engine='pool' and engine='dask' have workers; say how many threads instead",
    "scheduler": "only engine='dask' has a scheduler",
}


def engine_sums(
    data: Any,
    design: Design,
    *,
    engine: str | None = None,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    n_workers: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Exact sums of a design over `data`, from the engine asked for."""
    engine = _checked_engine(engine, data)
    given = {"n_threads": n_threads, "n_workers": n_workers, "scheduler": scheduler}
    for name, value in given.items():
        if value is not None and name not in _OPTIONS[engine]:
            shown = repr(value) if isinstance(value, int | str) else "..."
            raise ParameterError(f"{name}={shown} with engine={engine!r}: {_ADVICE[name]}")
    if n_workers is not None:
        n_workers = require_count("n_workers", n_workers)
    chosen = chosen_columns(design.dim, columns, design.columns, header)
    work = Work(design, chosen, missing_to_center)
    if engine == "pool":
        from privsketch.sketching.engines.pool import pool_sums

        parts = read_parts(data, work.chosen)
        return pool_sums(parts, work, n_workers=n_workers, progress=progress)
    if engine == "dask":
        from privsketch.sketching.engines.dask import dask_sums

        return dask_sums(data, work, scheduler=scheduler, n_workers=n_workers, progress=progress)
    return exact_sums(
        part_blocks(data, work.chosen),
        design,
        missing_to_center=missing_to_center,
        n_threads=n_threads,
        progress=progress,
    )


def _checked_engine(engine: str | None, data: Any) -> str:
    """The engine's name; Dask's tables can only be read by Dask."""
    if engine is None:
        return "dask" if is_dask(data) else "threads"
    if engine not in ENGINES:
        known = ", ".join(map(repr, ENGINES))
        raise ParameterError(f"engine={engine!r}: expected one of {known}")
    if engine != "dask" and is_dask(data):
        raise ParameterError(
            f"engine={engine!r} with a Dask {type(data).__name__}: leave engine out, or use "
            "engine='dask'"
        )
    return engine
