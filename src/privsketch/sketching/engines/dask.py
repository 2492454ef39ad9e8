"""Dask: parts of the records are summed on its workers, sums add up in a tree.

Workers send integer sums and a count, never a record, but where a schema names persons: their rows
may lie in all parts, and workers exchange encoded records, and whose they are, to bring them
together. Noise is added later, by whoever called. If a worker dies, Dask does its tasks again, and
one result of each enters the sum.

Sums before noise are private. Their keys are random names, so that no result is found
again by anybody, and they are freed when the total is known, or when anything fails.
Beside each part's sums a second, tiny task tells the driver the part's count or error:
progress, and an early end, without moving sums.

Dask's tables, and files, as parts of a Dask graph, each of whole records.

Columns are selected here, before anything is computed: Dask then reads no others, and
what a part holds is what a record is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from privsketch._base.errors import ParameterError, PrivsketchError, RecordError, require_count
from privsketch.sketching.engines.work import (
    Outcome,
    Progress,
    Work,
    add_outcomes,
    files_alone,
    foreign_error,
    part_persons_cut,
    part_sums,
    persons_sums,
)
from privsketch.sketching.sums import ExactSums
from privsketch.tables.batches import array_batches
from privsketch.tables.memory import Selection, array_blocks, selected_names
from privsketch.tables.persons import Key
from privsketch.tables.reading import names_persons
from privsketch.tables.table import Table

_FAN_IN = 8  # sums that a task adds up: n parts need log8(n) levels; by trial
Graph = dict[Any, Any]
_MAX_CUTS = 64  # of persons: each of them is all rows over as many
_DEEPEST = 12  # tasks within tasks; Dask's own readers are three or four deep


@dataclass(frozen=True)
class Dask:
    """A cluster of Dask, or threads of this process.

    Parameters
    ----------
    client : str or distributed.Client, optional
        Address of a scheduler, like "tcp://host:8786", or a client. By default the current client,
        or threads of this process.
    n_workers : int, optional
        Number of threads where there is no client; one per core by default.
    """

    client: Any = None
    n_workers: int | None = None

    def __post_init__(self) -> None:
        if self.n_workers is not None:
            require_count("n_workers", self.n_workers)

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table of Dask, or of files that the workers can read."""
        _require_dask()
        with _opened(self.client, self.n_workers) as client:
            parts = dask_parts(table, work.selection)
            if not parts.keys:
                return work.nothing
            graph = _computation(parts.graph, parts.keys, replace(work, selection=parts.selection))
            total = _total(graph, client, self.n_workers, progress)
        if isinstance(total, PrivsketchError):
            raise total  # here, where no foreign error is its context
        return total


def _total(
    computation: _Computation, client: Any, n_workers: int | None, progress: Progress | None
) -> Outcome:
    try:
        if client is None:
            return _on_threads(computation, n_workers, progress)
        return _on_cluster(computation, client, progress)
    except PrivsketchError as error:
        return error
    except Exception as error:
        return _our_error(error)


def _require_dask() -> None:
    try:
        import dask
        import distributed
    except ImportError:
        raise ParameterError(
            "`engine='dask'`: Dask is not installed; pip install 'privsketch[dask]'"
        ) from None
    del dask, distributed


# ---------------------------------------------------------------- the graph


@dataclass(frozen=True)
class _Computation:
    """A graph with the keys of its total and of what is told about each part."""

    graph: Graph
    total: str
    news: tuple[str, ...]


def _computation(graph: Graph, parts: list[Any], work: Work) -> _Computation:
    """Extend the graph that makes the parts by their sums and the tree above them."""
    graph = dict(graph)
    if names_persons(work.selection):
        sums = _person_tasks(graph, parts, work)
    else:
        sums = [_add_task(graph, "sums", (partial(part_sums, work), part)) for part in parts]
    news = [_add_task(graph, "told", (_tell, key)) for key in sums]
    while len(sums) > 1:
        sums = [
            _add_task(graph, "tree", (add_outcomes, sums[first : first + _FAN_IN]))
            for first in range(0, len(sums), _FAN_IN)
        ]
    return _Computation(graph, sums[0], tuple(news))


def _person_tasks(graph: Graph, parts: list[Any], work: Work) -> list[str]:
    """Add tasks for sums over persons, whose rows lie anywhere: parts are cut by persons first."""
    n_cuts, key = min(len(parts), _MAX_CUTS), Key()
    cuts = [
        _add_task(graph, "rows", (partial(part_persons_cut, work, key, n_cuts), part))
        for part in parts
    ]
    return [
        _add_task(graph, "sums", (partial(persons_sums, work, cut), list(cuts)))
        for cut in range(n_cuts)
    ]


def _add_task(graph: Graph, name: str, task: tuple[Any, ...]) -> str:
    key = f"privsketch-{name}-{uuid4().hex}"
    graph[key] = task
    return key


def _tell(outcome: Outcome) -> int | PrivsketchError:
    """Return the driver's news of a part: its number of records, or an error."""
    return outcome if isinstance(outcome, PrivsketchError) else outcome.n_records


def _hear(news: int | PrivsketchError, progress: Progress | None) -> None:
    if isinstance(news, BaseException):
        raise news
    if progress is not None:
        progress(news)


# ---------------------------------------------------------------- where it runs


@contextmanager
def _opened(given: Any, n_workers: int | None) -> Iterator[Any]:
    """Give the client to use, or None for threads of this process."""
    from distributed import Client

    if isinstance(given, str):
        client = Client.__new__(Client)
        try:
            client.__init__(given, set_as_default=False)
        except (OSError, ValueError, TypeError):
            # Its finaliser would do it, at a time of the garbage collector's choosing: in the
            # middle of another client's beginning that waits for ever.
            with suppress(AttributeError):  # an address that is none gets no loop
                client.close()
            raise ParameterError(
                f"no Dask scheduler answers at {given!r}; expected an address like "
                "'tcp://host:8786'"
            ) from None
        with client:
            yield client
        return
    client = _current_client() if given is None else given
    if client is None:
        yield None
        return
    if not isinstance(client, Client) or client.asynchronous:
        raise ParameterError(
            f"client: got {type(client).__name__}; expected an address like 'tcp://host:8786' or a "
            "distributed.Client that is not asynchronous"
        )
    if n_workers is not None:
        raise ParameterError(
            f"`n_workers={n_workers}` with a Dask client: its cluster has the workers it has; "
            "leave n_workers out"
        )
    yield client


def _current_client() -> Any:
    from distributed import Client

    try:
        return Client.current()
    except ValueError:
        return None


def _on_threads(
    computation: _Computation, n_workers: int | None, progress: Progress | None
) -> Outcome:
    """Return the total from Dask's own threads in this process."""
    from dask.callbacks import Callback
    from dask.threaded import get

    news = frozenset(computation.news)

    def finished(key: Any, result: Any, *_: Any) -> None:
        if key in news:
            _hear(result, progress)

    with Callback(posttask=finished):
        total, *_ = get(
            computation.graph, [computation.total, *computation.news], num_workers=n_workers
        )
    return total  # type: ignore[no-any-return]


def _on_cluster(computation: _Computation, client: Any, progress: Progress | None) -> Outcome:
    """Return the total from the workers of a cluster."""
    from distributed import as_completed

    keys = [computation.total, *computation.news]
    futures = client.get(computation.graph, keys, sync=False)
    try:
        for _, news in as_completed(futures[1:], loop=client.loop, with_results=True):
            _hear(news, progress)
        return futures[0].result()  # type: ignore[no-any-return]
    finally:
        # Frees what is there and stops what is not: nothing of ours stays on the cluster.
        client.cancel(futures)


def _our_error(error: Exception) -> PrivsketchError:
    """Return our error for one of Dask, or of a task that made a part, without its words."""
    from distributed import CancelledError
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return RecordError(
            "`engine='dask'`: workers died again and again while reading the same part; nothing "
            "was released. Perhaps a partition needs more memory than a worker has"
        )
    if isinstance(error, CancelledError | OSError):
        return RecordError(
            "`engine='dask'`: the cluster was lost or its tasks were cancelled; nothing was "
            "released"
        )
    if isinstance(error, ImportError):
        return RecordError(
            "`engine='dask'`: a worker cannot import what it needs; install the same versions of "
            "privsketch and its dependencies on all machines"
        )
    return foreign_error("a task on a Dask worker", error)


@dataclass(frozen=True)
class DaskParts:
    """Parts by their keys in a graph, or themselves; and which of their columns to read."""

    graph: Graph
    keys: list[Any]
    selection: Selection


def dask_parts(table: Table, selection: Selection) -> DaskParts:
    """Return partitions of a Dask DataFrame, chunks of rows of an array, or parts of files."""
    if table.kind != "dask":
        files = files_alone(table, selection, "dask", "a Dask DataFrame, a Dask Array")
        return DaskParts({}, [*files], selection)
    data = table.data
    # Of the class: a delayed object has every attribute, none of them known.
    kind = type(data)
    if hasattr(kind, "columns") and hasattr(kind, "ndim") and data.ndim == 2:
        return _frame_parts(data, selection)
    if hasattr(kind, "rechunk"):
        return _array_parts(data, selection)
    raise RecordError(
        f"cannot read records from a Dask {type(data).__name__}: expected a Dask DataFrame or a "
        "Dask Array"
    )


def _frame_parts(frame: Any, selection: Selection) -> DaskParts:
    """Return partitions with the columns of a record."""
    labels = [str(label) for label in frame.columns]
    names = selected_names(labels, selection, "table")
    table = frame[[frame.columns[labels.index(name)] for name in names]]
    # Workers choose by name again, and so depend on no optimisation that Dask applies; numbers are
    # those of columns that are gone.
    return _delayed_parts(table.to_delayed(), replace(selection, columns=tuple(names), names=None))


def _array_parts(array: Any, selection: Selection) -> DaskParts:
    """Return chunks with the columns of a record, in order, none of them cut between columns."""
    width = array.shape[1] if array.ndim == 2 else 0
    if math.isnan(width):
        raise RecordError(
            "the number of columns of the Dask Array is unknown; use array.compute_chunk_sizes()"
        )
    # An array without rows is refused for the same reasons, in the same words.
    reader = array_blocks if selection.schema is None else array_batches
    for _ in reader(np.empty((0, *(width,) * (array.ndim - 1)), array.dtype), selection):
        pass
    if selection.columns is not None:
        array = array[:, [int(column) for column in selection.columns]]
    chunks = array.rechunk({1: -1}).to_delayed().ravel().tolist()
    plain = replace(selection, columns=None, names=None) if selection.schema is None else selection
    return _delayed_parts(chunks, plain)


def _delayed_parts(parts: list[Any], selection: Selection) -> DaskParts:
    """Return parts that share one graph."""
    graph = dict(parts[0].__dask_graph__()) if parts else {}
    if any(map(_cuts_text, graph.values())):
        raise RecordError(
            "table: Dask cuts text files at any line break, also at one inside of quotes: one "
            "record could change how others are read. Give the paths themselves with "
            "`engine='dask'`, or read them with blocksize=None"
        )
    return DaskParts(graph, [part.key for part in parts], selection)


def _cuts_text(task: Any, depth: int = 0) -> bool:
    """Return whether a task reads a stretch of a text file, whose ends Dask finds by line breaks.

    One that reads the whole file has no length. Tasks hold others, in lists or as arguments.
    """
    if getattr(getattr(task, "func", None), "__name__", "") == "read_block_from_file":
        return task.args[2] is not None  # file, offset, length, line break
    inner: list[Any] = []
    if isinstance(task, list | tuple | set | frozenset):
        inner = list(task)
    elif isinstance(task, dict):
        inner = list(task.values())
    elif hasattr(task, "args") or hasattr(task, "kwargs"):
        inner = [*getattr(task, "args", ()), *(getattr(task, "kwargs", None) or {}).values()]
    return depth < _DEEPEST and any(_cuts_text(part, depth + 1) for part in inner)
