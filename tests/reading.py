"""Records of a table as a release reads them, by what is stated of the table."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

import privsketch as ps
from privsketch.tables import Selection, reading


def selection_of(
    dim: int, columns: Any = None, names: Any = None, schema: Any = None, **facts: Any
) -> Selection:
    """Return what is read for a record of a table with these facts."""
    neighbours = facts.pop("neighbours", "add-remove")
    table = ps.Table((), columns=columns, **facts)
    return table.selection(dim, names, schema, neighbours=neighbours)


def read_blocks(
    data: Any, dim: int, columns: Any = None, names: Any = None, schema: Any = None, **facts: Any
) -> Iterator[np.ndarray]:
    """Return blocks (n, dim) of records of a table with these facts."""
    selection = selection_of(dim, columns, names, schema, **facts)
    return reading.read_blocks(ps.Table(data), selection)


def read_sparse_blocks(data: Any, dim: int, columns: Any = None) -> Iterator[Any]:
    """Return blocks of records as CSR arrays."""
    return reading.read_sparse_blocks(ps.Table(data), selection_of(dim, columns))


FACTS = [field.name for field in fields(ps.Table) if field.name != "data"]


def sketch(data: Any, design: ps.Design, **options: Any) -> ps.Sketch:
    """Release the sketch of a table; `options` are facts of the table, and those of `ps.sketch`."""
    facts = {name: options.pop(name) for name in FACTS if name in options}
    if "n_threads" in options:
        options["engine"] = ps.engines.Threads(options.pop("n_threads"))
    return ps.sketch(ps.Table(data, **facts), design, **options)
