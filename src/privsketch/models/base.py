"""What the files of all models share: who made them, from what, at which cost.

Rows that a model is asked about, and the centre nearest to each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import receipt_from_json, receipt_to_json
from privsketch.errors import ParameterError
from privsketch.formats import document, write_file


def save_model(path: str | os.PathLike[str], kind: str, model: Any, arrays: Sequence[str]) -> None:
    """Write the fields of a model as JSON; `arrays` names those that are arrays or None."""
    content: dict[str, Any] = {name: getattr(model, name) for name in model.__dataclass_fields__}
    for name in arrays:
        content[name] = None if content[name] is None else content[name].tolist()
    content["receipt"] = receipt_to_json(model.receipt)
    content["columns"] = None if model.columns is None else list(model.columns)
    content["concerns"] = list(model.concerns)
    write_file(path, document(kind, content))


def shared_fields(
    fields: dict[str, Any], dim: int, numbers: Sequence[str], *, absent: Sequence[str] = ()
) -> dict[str, Any]:
    """Receipt, columns and concerns, checked, as are the `numbers` and the fingerprint.

    A model that came from no sketch has no design, and none of the numbers in `absent`.
    """
    if fields["design_fingerprint"] == "" and all(fields[name] is None for name in absent):
        numbers = [name for name in numbers if name not in absent]
    for name in numbers:
        if type(fields[name]) is not float or not 0 <= fields[name] < np.inf:
            raise ParameterError(f"{name} must be a number")
    if fields["expected_residual"] == 0:
        raise ParameterError("expected_residual must be above 0")
    if not isinstance(fields["design_fingerprint"], str):
        raise ParameterError("design_fingerprint must be text")
    return {
        "receipt": receipt_from_json(fields["receipt"]),
        "columns": checked_columns(fields["columns"], dim),
        "concerns": checked_concerns(fields["concerns"]),
    }


def checked_columns(columns: Any, dim: int) -> tuple[str, ...] | None:
    """Names of the columns as a file has them."""
    if columns is None:
        return None
    if not _are_texts(columns) or len(columns) != dim:
        raise ParameterError("columns must be a name for each coordinate")
    return tuple(columns)


def checked_concerns(concerns: Any) -> tuple[str, ...]:
    """Concerns as a file has them."""
    if not _are_texts(concerns):
        raise ParameterError("concerns must be a list of texts")
    return tuple(concerns)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


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
