"""Rows that a model is asked about, and the centre nearest to each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.errors import ParameterError


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


def nearest(rows: Floats, centers: Floats) -> npt.NDArray[np.int64]:
    """Index of the centre with the least Euclidean distance to each row."""
    # Distances are taken from the mean of the centres: squares of large offsets would cancel.
    origin = centers.mean(axis=0)
    shifted = centers - origin
    labels = np.empty(len(rows), dtype=np.int64)
    halves = 0.5 * np.einsum("ij,ij->i", shifted, shifted)
    size = max(64, 2**18 // len(centers))  # scores that stay in the cache
    for first in range(0, len(rows), size):
        block = rows[first : first + size] - origin
        labels[first : first + size] = (block @ shifted.T - halves).argmax(axis=1)
    return labels
