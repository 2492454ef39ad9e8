"""Rows that a model is asked about."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privsketch.errors import ParameterError

Floats = npt.NDArray[np.float64]


def as_rows(X: npt.ArrayLike, dim: int, name: str) -> Floats:
    """X as a table of `dim` finite columns; errors quote nothing of it."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name}: X is not a table of numbers") from None
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ParameterError(f"{name}: expected a table with {dim} columns, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ParameterError(f"{name}: X has missing or infinite values")
    return rows
