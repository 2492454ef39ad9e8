"""What a table is: asked in one place, before anything of it is read.

The answer depends on types alone, never on values. No library is imported for it: whoever has one
of its tables has loaded it, and nobody else should wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

Kind = Literal[
    "path", "array", "pandas", "arrow", "dask", "spark", "sparse", "rows", "parts", "other"
]


class OnSpark:
    """Records that Spark's workers read, whatever they are made from: of the kind "spark"."""


def kind_of(data: Any) -> Kind:
    """The kind of a table.

    "pandas" is a frame or a series, or of a class made from them; "sparse" is SciPy's; "rows" is a
    list of rows of numbers; "parts" is a list, or anything else that can be gone through, of paths
    and tables; "other" has no records.
    """
    if isinstance(data, str | os.PathLike):
        return "path"
    if isinstance(data, np.ndarray):
        return "array"
    pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
    if pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series):
        return "pandas"
    if _is_spark(type(data)):  # before Arrow: its stream would bring all records to the driver
        return "spark"
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return "arrow"
    if hasattr(type(data), "__dask_graph__"):  # of the class: a delayed object has everything
        return "dask"
    if sparse is not None and sparse.issparse(data):
        return "sparse"
    if isinstance(data, list | tuple):
        return "parts" if len(data) == 0 or _is_part(data[0]) else "rows"
    if isinstance(data, Iterable) and not isinstance(data, dict | bytes | set | frozenset):
        return "parts"
    return "other"


def _is_spark(kind: type) -> bool:
    """Whether a class is one of PySpark's, or made from one."""
    return any(
        base is OnSpark or base.__module__.partition(".")[0] == "pyspark" for base in kind.__mro__
    )


def _is_part(first: Any) -> bool:
    """Whether what a list begins with is a path or a table, rather than a row of numbers."""
    return kind_of(first) in ("path", "arrow", "pandas", "spark") or getattr(first, "ndim", 0) == 2
