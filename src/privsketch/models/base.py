"""What all models share: columns, a receipt, concerns, a file, and rows they are asked about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.formats import (
    as_line,
    document,
    document_content,
    read_file,
    reading,
    require_fields,
    write_file,
)
from privsketch._base.notebook import described, table
from privsketch._base.types import Floats
from privsketch.facts.columns import Number
from privsketch.facts.domain import domain_to_json
from privsketch.facts.receipt import Receipt, receipt_from_json, receipt_to_json
from privsketch.facts.schema import Schema
from privsketch.facts.units import (
    field_columns,
    field_errors,
    field_values,
    frame,
    frame_of,
    written,
)


class Model:
    """A frozen record of what was learned, with a file.

    A kind of model names its file format, says which fields are arrays, and checks what a file
    says before it believes it.
    """

    KIND: ClassVar[str]
    ARRAYS: ClassVar[tuple[str, ...]]
    ABSENT: ClassVar[tuple[str, ...]] = ()  # arrays that may be None, where nobody can tell
    LATER: ClassVar[tuple[str, ...]] = ()  # fields that files of earlier versions do not have

    receipt: Receipt
    columns: tuple[str, ...] | None
    concerns: tuple[str, ...]
    schema: Schema | None

    @property
    def dim(self) -> int:
        """Number of columns."""
        raise NotImplementedError

    @property
    def column_names(self) -> list[str]:
        """The columns' names, or x1, x2, ..."""
        return list(self.columns or [f"x{j + 1}" for j in range(self.dim)])

    def table(self, what: str = "") -> Any:
        """Results as a pandas frame, in the units of the table if there is a schema."""
        raise NotImplementedError

    def _frame(self, points: Floats, spread: Floats | None = None) -> Any:
        """Rows of points (n, dim) in units, or of how far they spread."""
        if self.schema is None:
            numbers = points if spread is None else spread
            return frame(dict(zip(self.column_names, numbers.T, strict=True)))
        if spread is None:
            return frame_of(self.schema, field_values(self.schema, points))
        return frame_of(self.schema, field_errors(self.schema, points, spread), spread=True)

    def _opening_lines(self) -> list[str]:
        """What it is and how well it fits, with which every description begins."""
        raise NotImplementedError

    def describe(self) -> str:
        """The model in plain words, several lines."""
        raise NotImplementedError

    def _html_table(self) -> str:
        """Results as a table of a notebook."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        lines = [*self._opening_lines(), *self.closing_lines()]
        return described(type(self).__name__, lines, self._html_table())

    def _center_table(self, noun: str, points: Floats, weights: Floats, errors: Any) -> str:
        """Centers with their weights as a table of a notebook."""
        names, rows = self.shown_rows(points, errors)
        cells = [[f"{weight:.1%}", *row] for weight, row in zip(weights, rows, strict=True)]
        heads = [f"{k + 1}" for k in range(len(points))]
        return table(noun, heads, ["weight", *names], cells)

    def shown_rows(
        self, points: Floats, errors: Floats | None = None
    ) -> tuple[list[str], list[list[str]]]:
        """Names of fields with units, and a row of words for each point.

        Words have the digits that their errors leave.
        """
        schema = self.schema
        if schema is None:
            names = [as_line(name) for name in self.column_names]
            return names, [[f"{value:.4g}" for value in row] for row in points]
        values = field_values(schema, points)
        spread = None if errors is None else field_errors(schema, points, errors)
        rows: list[list[str]] = [[] for _ in values]
        names = []
        for column, place in field_columns(schema):
            unit = f" {column.unit}" if isinstance(column, Number) and column.unit else ""
            names += [name + unit for name in column.fields]
            for field in range(place.start, place.stop):
                for number, row in enumerate(rows):
                    error = None if spread is None else float(spread[number, field])
                    text = written(column, float(values[number, field]), error)
                    row.append(text.removesuffix(unit))
        return names, rows

    def closing_lines(self) -> list[str]:
        """Concerns and cost, with which every description ends."""
        missing = [] if self.schema is None else self.schema.missing_words()
        return [
            *(f"{'values' if not n else '':<11} {text}" for n, text in enumerate(missing)),
            *(f"careful     {text}" for text in self.concerns),
            f"cost        {self.receipt.summary()}",
        ]

    def to_bytes(self) -> bytes:
        """The model as a JSON document."""
        content: dict[str, Any] = {name: getattr(self, name) for name in self.field_names()}
        for name in self.ARRAYS:
            content[name] = None if content[name] is None else content[name].tolist()
        if isinstance(content["n_records"], int):
            content["n_records"] = float(content["n_records"])
        content["receipt"] = receipt_to_json(self.receipt)
        content["columns"] = None if self.columns is None else list(self.columns)
        content["concerns"] = list(self.concerns)
        content["schema"] = None if self.schema is None else self.schema.to_json()
        if content.get("cost_ratio") is not None:
            content["cost_ratio"] = asdict(content["cost_ratio"])
        if content.get("domain") is not None:
            content["domain"] = domain_to_json(content["domain"])
        return document(self.KIND, content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "model") -> Self:
        """A model from the bytes of its file; `what` names it in errors."""
        content = document_content(data, cls.KIND, what)
        content = {**dict.fromkeys(cls.LATER), **content}
        found = require_fields(content, cls.field_names(), what)
        with reading(what):
            given = [
                name for name in cls.ARRAYS if found[name] is not None or name not in cls.ABSENT
            ]
            arrays = {name: np.array(found[name], dtype=np.float64) for name in given}
            checked = cls._checked({**found, **arrays})
            others = {
                "receipt": receipt_from_json(found["receipt"]),
                "columns": _checked_columns(found["columns"]),
                "concerns": _checked_concerns(found["concerns"]),
                "schema": None if found["schema"] is None else Schema.from_json(found["schema"]),
            }
            model = cls(**{**found, **arrays, **checked, **others})
            _require_columns(model.columns, model.dim)
            if model.schema is not None and model.schema.dim != model.dim:
                raise ParameterError("schema: it has another number of coordinates")
        return model

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields of a file in their own types; errors for what cannot be a model."""
        raise NotImplementedError

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Names of all fields, which are those of the file."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]


def require_numbers(fields: dict[str, Any], names: Sequence[str]) -> None:
    """Refuse fields that are not finite numbers of at least 0; `expected_residual` is above 0."""
    for name in names:
        if type(fields[name]) is not float or not 0 <= fields[name] < np.inf:
            raise ParameterError(f"{name} must be a number")
    if fields.get("expected_residual") == 0:
        raise ParameterError("expected_residual must be above 0")


def require_fingerprint(fields: dict[str, Any]) -> None:
    """Refuse a name of a design that is no text; a model without a sketch has an empty one."""
    if not isinstance(fields["design_fingerprint"], str):
        raise ParameterError("design_fingerprint must be text")


def _checked_columns(columns: Any) -> tuple[str, ...] | None:
    """Names of the columns as a file has them."""
    if columns is not None and not _are_texts(columns):
        raise ParameterError("columns must be a name for each coordinate")
    return None if columns is None else tuple(columns)


def _require_columns(columns: tuple[str, ...] | None, dim: int) -> None:
    if columns is not None and len(columns) != dim:
        raise ParameterError("columns must be a name for each coordinate")


def _checked_concerns(concerns: Any) -> tuple[str, ...]:
    """Concerns as a file has them."""
    if not _are_texts(concerns):
        raise ParameterError("concerns must be a list of texts")
    return tuple(concerns)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


SHOWN_COLUMNS = 8  # of a description, as wide as a terminal
MAX_WIDTH = 100  # characters of a line, by trial
MAX_FIELDS = 40  # lines of a turned table


def center_lines(weights: Floats, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each center with its weight; for each column where these would be too long."""
    lines = _upright_lines(weights, names, rows)
    if len(names) <= SHOWN_COLUMNS and len(lines[0]) <= MAX_WIDTH:
        return lines
    turned = turned_lines("weight", [f"{weight:.1%}" for weight in weights], names, rows)
    return turned if len(turned[0]) <= MAX_WIDTH else lines


def _upright_lines(
    weights: Floats, names: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """A line for each center, with as many columns as fit."""
    more = "  ..." if len(names) > SHOWN_COLUMNS else ""
    shown = [[name[:14] for name in names[:SHOWN_COLUMNS]], *(r[:SHOWN_COLUMNS] for r in rows)]
    widths = [max(9, *(len(row[j]) for row in shown)) for j in range(len(shown[0]))]
    texts = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) + more
        for row in shown
    ]
    lines = [f"centers     weight   {texts[0]}"]
    parts = zip(weights, texts[1:], strict=True)
    return [*lines, *(f"            {weight:6.1%}   {text}" for weight, text in parts)]


def turned_lines(
    title: str, heads: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """A line for each column, with all centers or components beside each other."""
    shown = [name if len(name) <= 24 else f"{name[:11]}..{name[-11:]}" for name in names]
    first = max(12, 1 + max(map(len, shown[:MAX_FIELDS])))
    widths = [
        max(len(head), *(len(cell) for cell in row[:MAX_FIELDS]))
        for head, row in zip(heads, rows, strict=True)
    ]

    def line(name: str, cells: Sequence[str]) -> str:
        parts = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{name:<{first}}" + "  ".join(parts)

    lines = [line(title, heads)]
    lines += [line(shown[j], [row[j] for row in rows]) for j in range(len(names))[:MAX_FIELDS]]
    more = len(names) - MAX_FIELDS
    return [*lines, *([f"...         {more} more columns"] if more > 0 else [])]


def as_rows(X: npt.ArrayLike, dim: int, name: str) -> Floats:
    """X as a table of `dim` finite columns; errors quote nothing of it."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"{name}: X is not a table of numbers; with a schema, encode it first: "
            "privsketch.encode(X, model.schema)"
        ) from None
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ParameterError(
            f"{name}: expected a table with {dim} columns, got shape {rows.shape}; with a schema, "
            "encode it first: privsketch.encode(X, model.schema)"
        )
    if not np.isfinite(rows).all():
        raise ParameterError(
            f"{name}: X has missing or infinite values, or rows that a schema leaves out (NaN); "
            "leave them out of X"
        )
    return rows


def diagonal_matrices(variances: Floats) -> Floats:
    """(n, dim, dim) covariances of variances (n, dim) along the axes."""
    return np.asarray(variances[:, :, None] * np.eye(variances.shape[1]))


def nearest(rows: Floats, centers: Floats) -> npt.NDArray[np.int64]:
    """Index of the center with the least Euclidean distance to each row."""
    # Distances are taken from the mean of the centers: squares of large offsets would cancel.
    origin = centers.mean(axis=0)
    shifted = centers - origin
    labels = np.empty(len(rows), dtype=np.int64)
    halves = 0.5 * np.einsum("ij,ij->i", shifted, shifted)
    size = max(64, 2**18 // len(centers))  # scores that stay in the cache
    for first in range(0, len(rows), size):
        block = rows[first : first + size] - origin
        labels[first : first + size] = (block @ shifted.T - halves).argmax(axis=1)
    return labels
