"""What estimators of linear and logistic regression share: one table of X and y, one release.

A schema reads X and y as one table: that of the user, or one made of bounds of X and of what is
stated about y. Neither bounds nor labels are ever read off y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from privsketch._base.errors import MissingError, ParameterError, RecordError, TableError
from privsketch._base.types import Floats
from privsketch.design.request import ClipMode
from privsketch.estimators.base import PrivateLearner
from privsketch.estimators.validation import seen, target_cells
from privsketch.facts.columns import Column, Number
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.schema import Schema, schema_of
from privsketch.ledger.entry import counted_refusals
from privsketch.models.linear import LinearModel
from privsketch.noise.mechanism import NoiseKind
from privsketch.sketching.sketch import Sketch
from privsketch.tables.memory import Joined
from privsketch.tables.table import Table

DEFAULT_TARGET = "y"  # name of a target that states none


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateLinear(PrivateLearner):
    """What regression and classification share: one table of X and y, and one release of it."""

    target: Any = None
    noise: NoiseKind | None = None
    clip: ClipMode | None = None

    def _columns(self) -> tuple[str, ...] | None:
        return None  # the schema of X and y has them

    def _sketch_of(self, task: str, X: Any, y: Any, others: dict[str, Any]) -> Sketch:
        """Release the moments of X and y. Charges: epsilon and delta, once."""
        stated = sorted(name for name, value in others.items() if value is not None)
        if stated:
            raise ParameterError(
                f"{stated[0]}: `fit` of {type(self).__name__} takes X and y only; a weight "
                "would let one record count for more than another, and noise hides equal ones"
            )
        budget, domain = self._public_facts(self.neighbours)
        table, schema, target = self._joined(X, y, domain)
        self._warn(schema, budget, self._public_records(Table.of(X), domain))
        design = self._planned(
            task, None, schema, budget, target=target.name, noise=self.noise, clip=self.clip
        )
        return self._released(table, design)

    def _joined(self, X: Any, y: Any, domain: Domain | Schema) -> tuple[Table, Schema, Column]:
        """Return the table of X and y, the schema that reads it, and the target's column."""
        if isinstance(domain, Ball):
            raise ParameterError(
                "domain", domain, "has no bounds of columns", "state a Box or a Schema"
            )
        schema = schema_of(domain)
        target = self._target_column(schema)
        is_column = isinstance(self.target, str)  # of the schema
        if y is None and not is_column:
            raise TableError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; only a "
                "schema can name a column of X as the target"
            )
        if schema is not None:
            table = Table.of(X)
            self._require_missing(table)
            seen(self, X, schema)
        else:
            table, box, _ = self._table_in(X, domain)
            schema = self._schema_of_box(cast(Box, box), table)
            self._refuse_missing(X, table)
            table = table.stating(missing="error", unreadable="error")  # the schema says it
            if target.missing is None and target.fill is None:
                target = replace(target, missing="error")  # type: ignore[type-var]
        if not is_column:
            while not isinstance(self.target, Column) and target.name in schema.names:
                target = replace(target, name=f"{target.name}_")  # type: ignore[type-var]
            schema = replace(schema, columns=(*schema.columns, target))
        if y is None:
            return table, schema, target
        if table.kind not in ("array", "pandas", "arrow", "sparse", "rows"):
            raise ParameterError(
                "y: it goes with an X in memory; leave it out where a column of the table is the "
                "target, and name that in the schema"
            )
        with counted_refusals(self.ledger, what="fit"):
            cells = self._cells(target_cells(y), target, schema)
        return Table(Joined(table, target.name, cells)), schema, target

    def _refuse_missing(self, X: Any, table: Table) -> None:
        """Refuse missing values of an array, as for a domain without a schema."""
        if self.missing == "error" and not isinstance(X, Table) and table.kind == "array":
            with counted_refusals(self.ledger, what="fit"):
                is_finite = np.isfinite(table.data).all(axis=0)
                if not is_finite.all():
                    place = int(np.argmin(is_finite))
                    names = getattr(self, "feature_names_in_", None)
                    raise MissingError(place, None if names is None else str(names[place]))

    def _schema_of_box(self, box: Box, table: Table) -> Schema:
        """Return the bounds of X as a schema, with the rules that are stated without one."""
        names = box.columns or getattr(self, "feature_names_in_", None)
        dim = len(box.half_widths)
        names = [f"x{j}" for j in range(dim)] if names is None else [str(name) for name in names]
        low, high = np.broadcast_to(box.low, dim), np.broadcast_to(box.high, dim)
        bounds = zip(names, low.tolist(), high.tolist(), strict=True)
        numbers = [Number(name, lowest, highest) for name, lowest, highest in bounds]
        rule: Any = "center" if self.missing == "center" else "error"
        return Schema(numbers, missing=rule, unreadable=table.unreadable)

    def _target_column(self, schema: Schema | None) -> Column:
        """Return the column of the target, as it is stated: never by what y says."""
        raise NotImplementedError

    def _stated_column(self, schema: Schema | None, example: str) -> Column | None:
        """Return a target that is stated as a column or by its name in a schema; else None."""
        if isinstance(self.target, str):
            names = () if schema is None else schema.names
            if schema is None or self.target not in names:
                where = "a Box has no names" if schema is None else f"it has {', '.join(names)}"
                advice = f"name a column of the schema, or state `{example}`"
                raise ParameterError("target", self.target, f"the domain lacks it: {where}", advice)
            return schema.columns[names.index(self.target)]
        if not isinstance(self.target, Column):
            return None
        if schema is not None and self.target.name in schema.names:
            raise ParameterError(
                "target", self.target.name, "is a column of the schema too", "state its name only"
            )
        return self.target

    def _cells(self, cells: Any, target: Column, schema: Schema) -> Any:
        """Return the cells of y as the schema reads them."""
        return cells

    def _keep(self, model: LinearModel) -> Self:
        """Keep the model, and what both estimators know of it."""
        self.terms_ = model.names
        self.model_: Any = model
        self._finished(model.concerns)
        # X of `predict` has no target.
        self._fitted_domain = self.domain if schema_of(self.domain) is None else model.schema
        return self

    def _rows(self, X: Any) -> Floats:
        """Return encoded records of X; numbers of a box are not cut to their bounds."""
        rows, domain = self._completed(X), self._fitted_domain
        return domain.with_dim(rows.shape[1]).to_unit(rows) if isinstance(domain, Box) else rows

    def _own_y(self, X: Any, y: Any) -> Any:
        """Return y, or the column of the target in a data frame."""
        if y is None and self.model_.target in getattr(X, "columns", ()):
            return X[self.model_.target]
        if y is None:
            raise RecordError("score: y is needed, as X has no column of the target")
        return y
