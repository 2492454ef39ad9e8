"""Records to their private sketch: the only way from one to the other."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from privsketch._base.errors import BudgetError, ParameterError, RecordError
from privsketch._base.formats import INSECURE
from privsketch.design.recipe import Design
from privsketch.design.validity import require_private
from privsketch.facts.budget import checked_source, exact, require_limits
from privsketch.ledger.cost import Cost
from privsketch.ledger.entry import Counted, LedgerName, Step, open_entry
from privsketch.noise.mechanism import LEDGER, insecure_noise
from privsketch.sketching.engines.engine import Engine, find_engine
from privsketch.sketching.engines.work import Work
from privsketch.sketching.sketch import Sketch
from privsketch.sketching.sums import ExactSums
from privsketch.tables.marks import Noter, noter_of
from privsketch.tables.reading import naming_columns
from privsketch.tables.table import Table, checked_missing


def sketch(
    data: Any,
    design: Design,
    *,
    source: str | None = None,
    columns: Sequence[str | int] | None = None,
    max_epsilon: float | None = None,
    max_delta: float | None = None,
    engine: str | Engine | None = None,
    ledger: LedgerName | Counted | Step = None,
    progress: Callable[[int], None] | None = None,
    insecure: bool = False,
) -> Sketch:
    """Read records once and release their sketch.

    Charges: epsilon and delta of the design, once, at the very end; nothing if an
    error stops it before.

    Parameters
    ----------
    data : Table, array, frame, path, list of paths, iterable of blocks, Dask or Spark table
        A path may be a file, a folder of files or a pattern like "part-*.parquet". A `Table` states
        more: how files are written, and what to do with missing and unreadable values.
    design : Design
    source : str, optional
        Name of the set of records. Sketches of the same source do not merge, because
        their costs add. A random name by default.
    columns : list of str or int, optional
        Columns that make a record, in order. By default those of the Table or of the design, or
        all.
    max_epsilon, max_delta : float, optional
        Largest budget that the design may ask for. A larger one is refused before a record is read,
        whoever wrote the design.
    engine : str or engine, optional
        Where records are read and summed: "threads" of this process, a "pool" of processes, a
        cluster of "dask" or "spark", which must be the holder's own, one of NVIDIA's graphics
        processors ("cuda"), the name of a registered engine, or one with options like
        `ps.engines.Pool(n_workers=4)`. All give the same sums, bit for bit. By default tables of
        Dask and Spark are read by their workers, arrays on a device where they are, and all others
        by threads.
    ledger : (path, name), optional
        A `Ledger`'s file and the name of the data set that the records belong to. The release is
        refused above its limit, and entered before noise is drawn. By default the ledger that
        PRIVSKETCH_LEDGER names.
    progress : callable, optional
        Called with numbers of records done. For the holder only: it counts records.
    insecure : bool
        Ask for exact sums, without noise and without privacy. It goes with a design that is
        insecure, and such a design goes with nothing else: whoever wrote it cannot switch off the
        noise of a holder. For public or made-up records, and never with a ledger.

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
    require_consent(design, insecure=insecure)
    if design.insecure:
        _require_no_ledger(ledger)
    require_limits(design.budget, max_epsilon, max_delta)
    identity = secrets.token_hex(16)
    source = checked_source(f"unnamed-{identity[:12]}" if source is None else source)
    table = Table.of(data, columns)
    checked_missing(table.missing, design.schema)

    is_public = design.count == "public"
    with open_entry(
        ledger,
        lambda: cost_of_design(design),
        what="sketch",
        source=source,
        is_total=table.stops_nothing(design.schema),
    ).entered() as entry:
        noter = noter_of(entry.key, design.schema)
        sums = engine_sums(table, design, engine, noter=noter, progress=progress)
        if is_public and sums.n_records == 0:
            raise RecordError(
                "the table has no records: under `neighbours='replace'` the number of records is "
                "public and must be at least 1; under 'add-remove' an empty table is fine"
            )
        if noter is not None:
            noter.add(sums.marks)
            entry.set_marks_source(noter)
        with insecure_noise() if insecure else nullcontext():
            values, receipt = design.sum_noise.release(
                sums.sums, sums.n_records, n_kept=sums.n_kept, source=source
            )
        receipt = receipt.naming(design.mapping.origin, sums.origin)
        entry.commit(receipt)
    public_count = sums.n_records if is_public else None
    return Sketch(values, design, receipt, (identity,), (source,), public_count)


def require_consent(design: Design, *, insecure: bool) -> None:
    """Refuse a design without noise unless the holder asks for it too, and the reverse."""
    if type(insecure) is not bool:
        raise ParameterError("insecure", insecure, "expected True or False")
    if design.insecure and not insecure:
        raise BudgetError(
            f"the design is {INSECURE}: whoever made it left out the noise, and a sketch of it "
            "would publish exact sums of your records, without any privacy. Ask for a design with "
            "a budget. Only for public or made-up records, say so yourself: `insecure=True`. No "
            "record was read"
        )
    if insecure and not design.insecure:
        raise ParameterError(
            "`insecure=True` with a design that has noise: a design without noise is planned with "
            "`insecure=True` too; leave it out here for a private sketch"
        )


def _require_no_ledger(ledger: object) -> None:
    """Refuse a ledger, stated or from the environment: what has no privacy has no cost."""
    if ledger is not None or os.environ.get(LEDGER):
        where = f"{LEDGER} is set" if ledger is None else "a ledger was stated"
        raise BudgetError(
            f"the design is {INSECURE}, and {where}: records that a ledger protects get no release "
            "without noise. No record was read"
        )


def cost_of_design(design: Design) -> Cost:
    """Return the cost of a sketch for a ledger; pure noise spends no delta of the budget."""
    require_private(design, "a ledger")
    budget, law = design.budget, design.sum_noise.sums_law
    rho = None if law.zcdp is None else exact(law.zcdp)
    return Cost(exact(budget.epsilon), exact(law.delta), rho, budget.neighbours, budget.unit)


def engine_sums(
    data: Any,
    design: Design,
    engine: str | Engine | None = None,
    *,
    noter: Noter | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Return the exact sums of a design over a table, from the engine asked for."""
    table = Table.of(data)
    found = find_engine(engine, table)
    selection = table.selection(
        design.dim,
        design.columns if design.schema is None else None,
        design.schema,
        neighbours=design.budget.neighbours,
        noter=noter,
    )
    with naming_columns(table, selection):
        return found.sums(table, Work(design, selection), progress)
