"""What the files of all models share: who made them, from what, at which cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

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
