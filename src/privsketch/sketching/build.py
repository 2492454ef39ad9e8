"""Records to their private sketch: the only way from one to the other.

Where the exact sums of one holder are computed: threads, processes, a cluster of Dask's or Spark's,
or a graphics processor.

All engines give the same integers, bit for bit, but for secret masks, which every task draws
anew. What they compute is private; noise is added once, to their total, by
`sketching.release`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from privsketch._base.errors import ParameterError, RecordError, require_count, require_one_of
from privsketch.design.recipe import Design
from privsketch.facts.budget import checked_source, exact, require_limits
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import Counted, LedgerName, Step, open_entry
from privsketch.sketching.engines.work import Work
from privsketch.sketching.sketch import Sketch
from privsketch.sketching.sums import ExactSums, exact_sums
from privsketch.tables.device import is_device_table
from privsketch.tables.kinds import kind_of
from privsketch.tables.marks import Noter, noter_of
from privsketch.tables.reading import (
    checked_missing,
    chosen_columns,
    names_persons,
    naming_columns,
    part_blocks,
    read_parts,
    stops_nothing,
)
from privsketch.tables.untyped.format import PLAIN, FileFormat

ENGINES = ("threads", "pool", "dask", "spark", "cuda")
# What each engine is told beside its name, and what to use in place of anything else.
_OPTIONS = {
    "threads": ("n_threads",),
    "pool": ("n_workers",),
    "dask": ("n_workers", "scheduler"),
    "spark": ("scheduler",),
    "cuda": ("n_threads",),
}
_ADVICE = {
    "n_threads": "its workers use one thread each; say how many workers instead",
    "n_workers": "only `engine='pool'` and `engine='dask'` have workers; say how many threads "
    "instead",
    "scheduler": "only `engine='dask'` and `engine='spark'` have a scheduler",
}


def sketch(
    data: Any,
    design: Design,
    *,
    source: str | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    sheet: str | None = None,
    quotes: bool | None = None,
    n_records: int | None = None,
    missing: str = "error",
    unreadable: str = "error",
    n_threads: int | None = None,
    engine: str | None = None,
    n_workers: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int], None] | None = None,
    ledger: LedgerName | Counted | Step = None,
) -> Sketch:
    """Read records once and release their sketch.

    Charges: epsilon and delta of the design, once, at the very end; nothing if an
    error stops it before.

    Parameters
    ----------
    data : array, table, path, list of paths, iterable of blocks, Dask collection, Spark DataFrame
        A path may be a file, a folder of files or a pattern like "part-*.parquet". A Dask
        DataFrame, a Dask Array or a Spark DataFrame is read by its workers, an array on one of
        NVIDIA's devices (CuPy, PyTorch, JAX) where it is.
    design : Design
    source : str, optional
        Name of the set of records. Sketches of the same source do not merge, because
        their costs add; a random name if left out.
    max_epsilon, max_delta : float, optional
        The most that the design may ask for: any more is refused before a record is read, whoever
        wrote the design.
    columns : list of str or int, optional
        Which columns make a record, in order; those of the design, or all, if left out.
    header : bool, optional
        Whether CSV, TSV and Excel files begin with a line of names. If left out, the first line
        is one, and refused if it has numbers. False: it is a record, and columns are called "0",
        "1", ...
    delimiter : str, optional
        What separates the cells of text files; commas if left out, tabs in .tsv files.
    decimal : {".", ","}
        What stands before the decimals of a number in text files.
    encoding : str
        Of text files: "utf-8", "latin-1", "utf-16", ...
    sheet : str, optional
        Of Excel workbooks; there must be just one if left out.
    quotes : bool, optional
        Whether a cell of a text file may be quoted, and then go on over several lines. If left out,
        cells of .csv files may; a .tsv file in which a cell begins with a quote is refused.
    n_records : int, optional
        Public number of records of an Excel sheet, needed under `neighbours="replace"`: a sheet
        does not store records without any value at its end.
    missing : {"error", "center"}
        What to do with missing or infinite values of a design without a schema, which says it
        itself: refuse, or put them at the center of the domain.
    unreadable : {"error", "missing"}
        What to do with cells that cannot be read, in a design without a schema, which says it
        itself: refuse the table, or treat them as missing values.
    n_threads : int, optional
        As many as there are cores if left out. For engine "threads", and "cuda", where they
        copy records to the device.
    engine : {"threads", "pool", "dask", "spark", "cuda"}, optional
        Where records are read and summed; all give the same sums, bit for bit. Threads of
        this process if left out ("dask" and "spark" for tables of theirs, "cuda" for arrays on a
        device); "pool": processes of this machine; "dask", "spark": a cluster, which must be the
        holder's own; "cuda": one of NVIDIA's graphics processors, from the generation of the A100
        on.
    n_workers : int, optional
        Processes of the pool, or threads of Dask without a cluster; one per core if left out.
    scheduler : str, distributed.Client or SparkSession, optional
        Of the Dask cluster; the current client, or threads of this process, if left out. For files
        on Spark, its session or master, like "spark://host:7077"; the active session, or one as
        Spark is set up, if left out.
    progress : callable, optional
        Called with numbers of records done. For the holder only: it counts records.
    ledger : (path, name), optional
        A `Ledger`'s file and the name of the data set that the records belong to: refused above its
        limit, and entered before noise is drawn. What PRIVSKETCH_LEDGER names if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> released = ps.sketch(np.zeros((1000, 2)), design, source="site-1")
    >>> released.sums.shape, released.receipt.epsilon
    ((192,), 1.0)
    """
    if not isinstance(design, Design):
        raise ParameterError(f"design: expected a Design, got {type(design).__name__}")
    require_limits(design.budget, max_epsilon, max_delta)
    identity = secrets.token_hex(16)
    source = checked_source(f"unnamed-{identity[:12]}" if source is None else source)
    missing_to_center = checked_missing(missing, design.schema)

    is_public = design.count == "public"
    format = FileFormat(header, delimiter, decimal, encoding, sheet, quotes, n_records, unreadable)
    with open_entry(
        ledger,
        lambda: cost_of_design(design),
        what="sketch",
        source=source,
        is_total=stops_nothing(design.schema, format, to_center=missing_to_center),
    ).entered() as entry:
        noter = noter_of(entry.key, design.schema)
        found = engine_sums(
            data,
            design,
            engine=engine,
            columns=columns,
            format=format,
            missing_to_center=missing_to_center,
            n_threads=n_threads,
            n_workers=n_workers,
            scheduler=scheduler,
            progress=progress,
            noter=noter,
        )
        if is_public and found.n_records == 0:
            raise RecordError(
                "the table has no records: under `neighbours='replace'` the number of records is "
                "public and must be at least 1; under 'add-remove' an empty table is fine"
            )
        if noter is not None:
            noter.add(found.marks)
            entry.set_marks_source(noter)
        values, receipt = design.sum_noise.release(
            found.sums, found.n_records, n_kept=found.n_kept, source=source
        )
        receipt = receipt.naming(design.mapping.origin)
        entry.commit(receipt)
    public_count = found.n_records if is_public else None
    return Sketch(values, design, receipt, (identity,), (source,), public_count)


def cost_of_design(design: Design) -> Cost:
    """What a sketch costs, for a ledger; pure noise spends no delta, whatever the budget has."""
    budget, law = design.budget, design.sum_noise.sums_law
    rho = None if law.zcdp is None else exact(law.zcdp)
    return Cost(exact(budget.epsilon), exact(law.delta), rho, budget.neighbours, budget.unit)


def engine_sums(
    data: Any,
    design: Design,
    *,
    engine: str | None = None,
    columns: Sequence[str | int] | None = None,
    format: FileFormat = PLAIN,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    n_workers: int | None = None,
    scheduler: Any = None,
    progress: Callable[[int], None] | None = None,
    noter: Noter | None = None,
) -> ExactSums:
    """Exact sums of a design over `data`, from the engine asked for."""
    engine = _checked_engine(engine, data)
    given = {"n_threads": n_threads, "n_workers": n_workers, "scheduler": scheduler}
    for name, value in given.items():
        if value is not None and name not in _OPTIONS[engine]:
            shown = repr(value) if isinstance(value, int | str) else "..."
            raise ParameterError(f"`{name}={shown}` with `engine={engine!r}`: {_ADVICE[name]}")
    if n_workers is not None:
        n_workers = require_count("n_workers", n_workers)
    schema = design.schema
    names = design.columns if schema is None else None
    chosen = chosen_columns(
        design.dim,
        columns,
        names,
        format,
        schema,
        neighbours=design.budget.neighbours,
        to_center=missing_to_center,
    )
    chosen = replace(chosen, noter=noter)
    work = Work(design, chosen, missing_to_center)
    with naming_columns(data, chosen):
        if engine == "pool":
            from privsketch.sketching.engines.pool import pool_sums

            parts = read_parts(data, work.chosen)
            return pool_sums(parts, work, n_workers=n_workers, progress=progress)
        if engine == "dask":
            from privsketch.sketching.engines.dask import dask_sums

            return dask_sums(
                data, work, scheduler=scheduler, n_workers=n_workers, progress=progress
            )
        if engine == "spark":
            from privsketch.sketching.engines.spark import spark_sums

            return spark_sums(data, work, scheduler=scheduler, progress=progress)
        if engine == "cuda":
            from privsketch.sketching.engines.cuda import cuda_sums

            return cuda_sums(data, work, n_threads=n_threads, progress=progress)
        if not names_persons(chosen):
            blocks = part_blocks(data, chosen)
        else:  # rows are counted while those of persons are looked for
            blocks = part_blocks(data, chosen, n_threads=n_threads, progress=progress)
            progress = None
        return exact_sums(
            blocks,
            design,
            missing_to_center=missing_to_center,
            n_threads=n_threads,
            progress=progress,
        )


def _checked_engine(engine: str | None, data: Any) -> str:
    """The engine's name; tables of a cluster can only be read by it, those on a device there."""
    on_device, kind = is_device_table(data), kind_of(data)
    if engine is None:
        return "cuda" if on_device else kind if kind in ("dask", "spark") else "threads"
    require_one_of("engine", engine, ENGINES)
    if engine != "cuda" and on_device:
        raise ParameterError(
            f"`engine={engine!r}` with an array on a device: leave engine out, use "
            "`engine='cuda'`, or copy the array to the host"
        )
    if kind in ("dask", "spark") and engine != kind:
        raise ParameterError(
            f"`engine={engine!r}` with a {kind.title()} {type(data).__name__}: leave engine out, "
            f"or use `engine={kind!r}`"
        )
    return engine
