"""What models of regression and classification share: terms of records, and tables of results.

Both are linear in *terms* (facts/terms), so coefficients are in the units of the table. A model has
coefficients to predict with, which are drawn towards zero where noise is large, and estimates with
intervals to infer with, which are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from privsketch._base.errors import ParameterError
from privsketch._base.formats import count_text
from privsketch._base.types import Bits, Floats
from privsketch.facts.columns import Column
from privsketch.facts.schema import Schema
from privsketch.facts.terms import Terms, labelled_columns, plain_terms, terms_of
from privsketch.facts.units import short_names
from privsketch.models.base import (
    MAX_TABLE_LINES,
    Model,
    as_rows,
    require_fingerprint,
    require_numbers,
)

NOISE_DROWNS = "noise drowns"  # how a concern about coefficients begins; not of labels nobody has
IDENTIFIED = 0.9  # share of a coefficient's direction that must stand out of the noise


class LinearModel(Model):
    """What regressions and classifiers share: terms of records, and rows of a table."""

    target: str
    target_schema: Schema | None
    references: tuple[str, ...]
    identified: Floats

    @property
    def dim(self) -> int:
        """Number of coordinates of an encoded record of the predictors."""
        return len(self.columns or ())

    @cached_property
    def _terms(self) -> Terms:
        if self.schema is None:
            return plain_terms(self.columns or ())
        labelled = [column.name for column in labelled_columns(self.schema)]
        return terms_of(self.schema, dict(zip(labelled, self.references, strict=True)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the terms, in the order of the coefficients."""
        return self._terms.names

    @property
    def against(self) -> tuple[str, ...]:
        """Label with which the label of a term is compared; empty for other terms."""
        return self._terms.against

    @property
    def is_identified(self) -> Bits:
        """(n_terms,) mask of the coefficients that noise leaves an interval."""
        return np.asarray(self.identified >= IDENTIFIED)

    @property
    def _target_column(self) -> Column | None:
        return None if self.target_schema is None else self.target_schema.columns[0]

    def _values(self, X: npt.ArrayLike, method: str) -> Floats:
        """Return the terms (n, n_terms) of the rows of X."""
        return self._terms.values(as_rows(X, self.dim, method))

    def _coefficient_table(self, estimate: Floats, interval: Floats) -> dict[str, Any]:
        """Return the first columns of a table of results."""
        columns: dict[str, Any] = {"name": list(self.names), "estimate": estimate}
        columns |= {"low": interval[:, 0], "high": interval[:, 1]}
        return {**columns, "against": list(self.against), "identified": self.identified}

    @classmethod
    def _checked_parts(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Return fields of a file that both kinds of models have."""
        require_fingerprint(fields)
        require_numbers(fields, ("n_records",))
        names, schema = fields["columns"], fields["schema"]
        if not isinstance(names, list) or not names:
            raise ParameterError("columns must be a list of names")
        references, target = fields["references"], fields["target"]
        if not isinstance(target, str) or not target:
            raise ParameterError("target must be a name")
        if not isinstance(references, list) or not all(type(one) is str for one in references):
            raise ParameterError("references must be a list of labels")
        about = fields["target_schema"]
        own = None if about is None else Schema.from_json(about)
        if (own is None) != (schema is None) or (own is not None and len(own.columns) != 1):
            raise ParameterError("target_schema must be that of the target alone")
        if schema is not None:
            columns = Schema.from_json(schema)
            labelled = labelled_columns(columns)
            fits = len(labelled) == len(references) and all(
                label in column.labels for column, label in zip(labelled, references, strict=False)
            )
            if not fits:
                raise ParameterError("references must be a label for each category")
            size = len(terms_of(columns, {}).names)
        else:
            size = len(names)
        identified = fields["identified"]
        if identified.shape != (size,) or (identified < -1e-9).any() or (identified > 1.001).any():
            raise ParameterError("identified must be a share for each term")
        return {"references": tuple(references), "target_schema": own}


def interval_of(values: Floats, errors: Floats, level: float) -> Floats:
    """Return intervals (..., 2) of normal estimates."""
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise ParameterError("level", level, "expected a number between 0 and 1, such as 0.95")
    half = float(norm.ppf(0.5 + level / 2)) * errors
    return np.stack([values - half, values + half], axis=-1)


def coefficient_lines(title: str, rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return a line for each coefficient."""
    names = short_names([name for name, _, _ in rows[:MAX_TABLE_LINES]], 30)
    width = max(11, *(len(name) for name in names))
    lines = [f"{'term':<{width}} {title}, with its interval"]
    for name, (_, text, remark) in zip(names, rows, strict=False):
        lines.append(f"{name:<{width}} {text}{', ' + remark if remark else ''}")
    n_more = len(rows) - MAX_TABLE_LINES
    return [*lines, *([f"...         {count_text(n_more, 'more term')}"] if n_more > 0 else [])]


def require_shapes(fields: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless arrays that are there have these shapes."""
    for name, shape in shapes.items():
        if fields[name] is not None and fields[name].shape != shape:
            raise ParameterError(f"{name} does not fit the terms")
    for name in ("spread", "covariance"):
        matrix = fields.get(name)
        if matrix is not None and (np.diagonal(matrix, axis1=-2, axis2=-1) < 0).any():
            raise ParameterError(f"{name}: a variance is below 0")
