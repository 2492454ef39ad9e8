"""Dask's tables, and files, as parts of a Dask graph, each of whole records.

Columns are chosen here, before anything is computed: Dask then reads no others, and
what a part holds is what a record is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privsketch.errors import RecordError
from privsketch.tables.columns import Selection, selected_names
from privsketch.tables.memory import array_blocks
from privsketch.tables.parts import FilePart
from privsketch.tables.reading import read_parts

Graph = dict[Any, Any]
_DEEPEST = 12  # tasks within tasks; Dask's own readers are three or four deep


@dataclass(frozen=True)
class DaskParts:
    """Parts by their keys in a graph, or themselves; and which of their columns to read."""

    graph: Graph
    keys: list[Any]
    chosen: Selection


def is_dask(data: Any) -> bool:
    """Whether `data` is one of Dask's collections. Does not import Dask."""
    return hasattr(type(data), "__dask_graph__")


def dask_parts(data: Any, chosen: Selection) -> DaskParts:
    """Parts of a Dask DataFrame (its partitions), a Dask Array (chunks of rows), or files."""
    if not is_dask(data):
        return DaskParts({}, _file_parts(data, chosen), chosen)
    # Of the class: a delayed object has every attribute, none of them known.
    kind = type(data)
    if hasattr(kind, "columns") and hasattr(kind, "ndim") and data.ndim == 2:
        return _frame_parts(data, chosen)
    if hasattr(kind, "rechunk"):
        return _array_parts(data, chosen)
    raise RecordError(
        f"cannot read records from a Dask {type(data).__name__}: expected a Dask DataFrame or a "
        "Dask Array"
    )


def _frame_parts(frame: Any, chosen: Selection) -> DaskParts:
    """Partitions with the columns of a record."""
    labels = [str(label) for label in frame.columns]
    names = selected_names(labels, chosen, "table")
    table = frame[[frame.columns[labels.index(name)] for name in names]]
    # Workers choose by name again, and so depend on no optimisation that Dask applies.
    return _delayed_parts(table.to_delayed(), Selection(chosen.dim, tuple(names), None))


def _array_parts(array: Any, chosen: Selection) -> DaskParts:
    """Chunks with the columns of a record, in order, none of them cut between columns."""
    width = array.shape[1] if array.ndim == 2 else 0
    if math.isnan(width):
        raise RecordError(
            "the number of columns of the Dask Array is unknown; use array.compute_chunk_sizes()"
        )
    # An array without rows is refused for the same reasons, in the same words.
    for _ in array_blocks(np.empty((0, *(width,) * (array.ndim - 1)), array.dtype), chosen):
        pass
    if chosen.columns is not None:
        array = array[:, [int(column) for column in chosen.columns]]
    chunks = array.rechunk({1: -1}).to_delayed().ravel().tolist()
    return _delayed_parts(chunks, Selection(chosen.dim, None, None))


def _delayed_parts(parts: list[Any], chosen: Selection) -> DaskParts:
    """Parts that share one graph."""
    graph = dict(parts[0].__dask_graph__()) if parts else {}
    if any(map(_cuts_text, graph.values())):
        raise RecordError(
            "table: Dask cuts text files at any line break, also at one inside of quotes: one "
            "record could change how others are read. Give the paths themselves with "
            "engine='dask', or read them with blocksize=None"
        )
    return DaskParts(graph, [part.key for part in parts], chosen)


def _cuts_text(task: Any, depth: int = 0) -> bool:
    """Whether a task reads a stretch of a text file, whose ends Dask finds by line breaks.

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


def _file_parts(data: Any, chosen: Selection) -> list[Any]:
    parts = []
    for part in read_parts(data, chosen):
        if not isinstance(part, FilePart):
            raise RecordError(
                f"engine='dask' cannot read records from {type(data).__name__}: expected a Dask "
                "DataFrame, a Dask Array or paths of files; engine='pool' sends blocks to processes"
            )
        parts.append(part)
    return parts
