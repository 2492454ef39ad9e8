"""What all models share: columns, a receipt, concerns, a file, and checks of rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_one_of
from privsketch._base.formats import (
    INSECURE,
    NO_PRIVACY,
    as_line,
    count_text,
    document,
    document_content,
    document_kind,
    marked_kind,
    read_file,
    reading,
    require_fields,
    unmarked_kind,
    write_file,
)
from privsketch._base.notebook import described, table
from privsketch._base.types import Floats
from privsketch.facts.columns import Number
from privsketch.facts.domain import domain_to_json
from privsketch.facts.receipt import Receipt
from privsketch.facts.schema import Schema
from privsketch.facts.units import (
    field_columns,
    field_errors,
    field_text,
    field_values,
    frame,
    frame_of,
    short_names,
)


class Model:
    """Base of models: frozen dataclasses with a file.

    A kind of model names its file format and its array fields, and checks the fields of a file.
    """

    KIND: ClassVar[str]
    ARRAYS: ClassVar[tuple[str, ...]]
    POINTS: ClassVar[str]  # name of the array with a row for each cluster or component
    ABSENT: ClassVar[tuple[str, ...]] = ()  # arrays that may be None
    LATER: ClassVar[tuple[str, ...]] = ()  # fields that files of earlier versions do not have

    receipt: Receipt
    columns: tuple[str, ...] | None
    concerns: tuple[str, ...]
    schema: Schema | None

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(getattr(self, self.POINTS).shape[1])

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; x1, x2, ... if they have none."""
        return list(self.columns or [f"x{j + 1}" for j in range(self.dim)])

    def table(self, what: str = "") -> Any:
        """Return results as a pandas frame, in the units of the table if there is a schema."""
        raise NotImplementedError

    def _frame(self, points: Floats, spread: Floats | None = None) -> Any:
        """Return a frame of points (n, dim) in the units of the table, or of their spread."""
        if self.schema is None:
            numbers = points if spread is None else spread
            return frame(dict(zip(self.column_names, numbers.T, strict=True)))
        if spread is None:
            return frame_of(self.schema, field_values(self.schema, points))
        return frame_of(self.schema, field_errors(self.schema, points, spread), spread=True)

    def _weighted_frame(self, weights: Floats, what: str, spreads: dict[str, Floats | None]) -> Any:
        """Return a frame of the points or of one of their spreads, with the weights in front."""
        require_one_of("what", what, (self.POINTS, *spreads))
        spread = spreads.get(what)
        if what != self.POINTS and spread is None:
            method = getattr(self, "method", None)
            raise ParameterError("what", what, f"method {method!r} has none")
        table = self._frame(getattr(self, self.POINTS), spread)
        table.insert(0, "weight", weights)
        return table

    def _opening_lines(self) -> list[str]:
        """Return the first lines of a description: kind of model, and how well it fits."""
        raise NotImplementedError

    def _result_lines(self) -> list[str]:
        """Return the lines of a description that show results."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the model as several lines of text."""
        lines = [*self._opening_lines(), *self._result_lines(), *self.closing_lines()]
        return "\n".join([*self._insecure_lines(), *lines])

    def _insecure_lines(self) -> list[str]:
        """Return a line about the lack of privacy; none if there is some."""
        return [] if self.receipt.is_private else [f"{INSECURE}    {NO_PRIVACY.partition(': ')[2]}"]

    def __repr__(self) -> str:
        """Return at most ten lines: what was learned, the first results, a concern and the cost."""
        concerns = [f"careful     {text}" for text in self.concerns]
        ending = [f"cost        {self.receipt.summary()}"]
        if len(concerns) > 1:
            ending = [f"            {count_text(len(concerns) - 1, 'more concern')}", *ending]
        ending = concerns[:1] + ending
        results = self._result_lines()
        n_left = MAX_REPR_LINES - len(ending)
        opening = self._opening_lines()[: max(2, n_left - len(results))]
        n_left -= len(opening)
        if len(results) > n_left:
            rest = count_text(len(results) - n_left + 1, "more line")
            results = [*results[: n_left - 1], f"            ... {rest}: print(model.describe())"]
        return "\n".join([*opening, *results, *ending])

    def _html_table(self) -> str:
        """Return results as an HTML table for notebooks."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        lines = [*self._insecure_lines(), *self._opening_lines(), *self.closing_lines()]
        return described(type(self).__name__, lines, self._html_table())

    def _center_table(self, noun: str, points: Floats, weights: Floats, errors: Any) -> str:
        """Return centers with their weights as an HTML table for notebooks."""
        names, rows = self.shown_rows(points, errors)
        cells = [[f"{weight:.1%}", *row] for weight, row in zip(weights, rows, strict=True)]
        heads = [f"{k + 1}" for k in range(len(points))]
        return table(noun, heads, ["weight", *names], cells)

    def shown_rows(
        self, points: Floats, errors: Floats | None = None
    ) -> tuple[list[str], list[list[str]]]:
        """Return names of fields with units, and a row of texts for each point.

        Numbers have as many digits as the errors justify.
        """
        schema = self.schema
        if schema is None:
            names = [as_line(name) for name in self.column_names]
            return names, [[f"{value:.4g}" for value in row] for row in points]
        values = field_values(schema, points)
        spread = None if errors is None else field_errors(schema, points, errors)
        rows: list[list[str]] = [[] for _ in values]
        names = []
        for column, positions in field_columns(schema):
            unit = f" {column.unit}" if isinstance(column, Number) and column.unit else ""
            names += [name + unit for name in column.fields]
            for j in range(positions.start, positions.stop):
                for i, row in enumerate(rows):
                    error = None if spread is None else float(spread[i, j])
                    row.append(field_text(column, float(values[i, j]), error).removesuffix(unit))
        return names, rows

    def closing_lines(self) -> list[str]:
        """Return the last lines of a description: missing values, concerns and cost."""
        missing = [] if self.schema is None else self.schema.missing_words()
        return [
            *(f"{'' if index else 'values':<11} {text}" for index, text in enumerate(missing)),
            *(f"careful     {text}" for text in self.concerns),
            f"cost        {self.receipt.summary()}",
        ]

    def to_bytes(self) -> bytes:
        """Return the model as a JSON document."""
        content: dict[str, Any] = {name: getattr(self, name) for name in self.field_names()}
        for name in self.ARRAYS:
            content[name] = None if content[name] is None else content[name].tolist()
        if isinstance(content["n_records"], int):
            content["n_records"] = float(content["n_records"])
        content["receipt"] = self.receipt.to_json()
        content["columns"] = None if self.columns is None else list(self.columns)
        content["concerns"] = list(self.concerns)
        content["schema"] = None if self.schema is None else self.schema.to_json()
        if content.get("cost_ratio") is not None:
            content["cost_ratio"] = asdict(content["cost_ratio"])
        if content.get("target_schema") is not None:
            content["target_schema"] = content["target_schema"].to_json()
        if content.get("domain") is not None:
            content["domain"] = domain_to_json(content["domain"])
        return document(marked_kind(self.KIND, insecure=not self.receipt.is_private), content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "model") -> Self:
        """Return the model from the bytes of its file; `what` names it in errors."""
        kind = document_kind(data, what) or ""
        content = document_content(
            data, kind if unmarked_kind(kind) == cls.KIND else cls.KIND, what
        )
        content = {**dict.fromkeys(cls.LATER), **content}
        fields = require_fields(content, cls.field_names(), what)
        columns, concerns, schema = fields["columns"], fields["concerns"], fields["schema"]
        with reading(what):
            for name in cls.ARRAYS:
                if fields[name] is not None or name not in cls.ABSENT:
                    fields[name] = np.array(fields[name], dtype=np.float64)
                    if not np.isfinite(fields[name]).all():
                        raise ParameterError(f"{name}: a number is missing")
            checked = cls._checked(fields)
            shared = {
                "receipt": Receipt.from_json(fields["receipt"]),
                "columns": None if columns is None else _texts(columns, _COLUMNS_RULE),
                "concerns": _texts(concerns, "concerns must be a list of texts"),
                "schema": None if schema is None else Schema.from_json(schema),
            }
            model = cls(**{**fields, **checked, **shared})
            if kind != marked_kind(cls.KIND, insecure=not model.receipt.is_private):
                raise ParameterError("receipt and kind disagree on privacy")
            if model.columns is not None and len(model.columns) != model.dim:
                raise ParameterError(_COLUMNS_RULE)
            if model.schema is not None and model.schema.dim != model.dim:
                raise ParameterError("schema: it has another number of coordinates")
        return model

    @classmethod
    def _checked(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields of a file in their types; raise ParameterError if they are no model."""
        raise NotImplementedError

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of all fields, which are those of the file."""
        return tuple(field.name for field in dataclass_fields(cls))  # type: ignore[arg-type]


def require_numbers(fields: dict[str, Any], names: Sequence[str]) -> None:
    """Raise unless fields are finite numbers of at least 0, and `expected_residual` is above 0."""
    for name in names:
        if type(fields[name]) is not float or not 0 <= fields[name] < np.inf:
            raise ParameterError(f"{name} must be a number")
    if fields.get("expected_residual") == 0:
        raise ParameterError("expected_residual must be above 0")


def require_fingerprint(fields: dict[str, Any]) -> None:
    """Raise unless the fingerprint of the design is text; it is empty without a sketch."""
    if not isinstance(fields["design_fingerprint"], str):
        raise ParameterError("design_fingerprint must be text")


_COLUMNS_RULE = "columns must be a name for each coordinate"


def _texts(value: Any, rule: str) -> tuple[str, ...]:
    """Return a list of texts as a tuple; raise an error with the rule for anything else."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ParameterError(rule)
    return tuple(value)


MAX_REPR_LINES = 10  # a glance at a prompt; `describe` has all
SHOWN_COLUMNS = 8  # columns of nine characters or more that a terminal shows in one line
MAX_LINE_LENGTH = 100  # characters of a line: code and terminals are rarely wider
MAX_TABLE_LINES = 40  # lines of a transposed table: about a screen


def center_lines(weights: Floats, names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each center with its weight, or for each column if that fits better."""
    lines = _upright_lines(weights, names, rows)
    if len(names) <= SHOWN_COLUMNS and len(lines[0]) <= MAX_LINE_LENGTH:
        return lines
    turned = turned_lines("weight", [f"{weight:.1%}" for weight in weights], names, rows)
    return turned if len(turned[0]) <= MAX_LINE_LENGTH else lines


def _upright_lines(
    weights: Floats, names: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[str]:
    """Return a line for each center, with as many columns as fit."""
    more = "  ..." if len(names) > SHOWN_COLUMNS else ""
    heads = short_names(names[:SHOWN_COLUMNS], 14)
    shown = [heads, *(row[:SHOWN_COLUMNS] for row in rows)]
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
    """Return a line for each column, with all centers or components side by side."""
    shown = short_names(names, 24)
    first = max(12, 1 + max(map(len, shown[:MAX_TABLE_LINES])))
    widths = [
        max(len(head), *(len(cell) for cell in row[:MAX_TABLE_LINES]))
        for head, row in zip(heads, rows, strict=True)
    ]

    def line(name: str, cells: Sequence[str]) -> str:
        parts = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{name:<{first}}" + "  ".join(parts)

    lines = [line(title, heads)]
    lines += [line(shown[j], [row[j] for row in rows]) for j in range(len(names))[:MAX_TABLE_LINES]]
    n_more = len(names) - MAX_TABLE_LINES
    return [*lines, *([f"...         {n_more} more columns"] if n_more > 0 else [])]


def as_rows(X: npt.ArrayLike, dim: int, name: str) -> Floats:
    """Return X as a table of `dim` finite columns; errors quote nothing of it."""
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


def require_rows(rows: Floats, name: str) -> Floats:
    """Return rows, or scores of rows; raise for an empty table."""
    if len(rows) == 0:
        raise ParameterError(f"{name}: X has no rows")
    return rows


def diagonal_matrices(variances: Floats) -> Floats:
    """Return (n, dim, dim) covariances for variances (n, dim) along the axes."""
    return np.asarray(variances[:, :, None] * np.eye(variances.shape[1]))


def nearest(rows: Floats, centers: Floats) -> npt.NDArray[np.int64]:
    """Return the index of the center with the least Euclidean distance to each row."""
    # Coordinates are relative to the mean of the centers: squares of large offsets would cancel.
    origin = centers.mean(axis=0)
    shifted = centers - origin
    labels = np.empty(len(rows), dtype=np.int64)
    halves = 0.5 * np.einsum("ij,ij->i", shifted, shifted)
    size = max(64, 2**18 // len(centers))  # scores that stay in the cache
    for first in range(0, len(rows), size):
        block = rows[first : first + size] - origin
        labels[first : first + size] = (block @ shifted.T - halves).argmax(axis=1)
    return labels
