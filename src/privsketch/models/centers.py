"""Centres that were learned with noise on the way, and their file.

A `KMeansModel` comes from a sketch and knows how well it fits. Methods that read the records
several times release centres directly; what they know of them is here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import Receipt, receipt_from_json, receipt_to_json
from privsketch.domain import Domain, domain_from_json, domain_to_json
from privsketch.errors import ParameterError
from privsketch.formats import (
    document,
    document_content,
    read_file,
    reading,
    require_fields,
    write_file,
)
from privsketch.models.base import as_rows, checked_columns, checked_concerns, nearest

KIND = "center-model"
LOSSES = ("squares", "distances")
COUNTS = ("released", "public", "stated")


@dataclass(frozen=True, eq=False)
class CenterModel:
    """Clusters, each around a centre.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    weights : (n_clusters,) float64
        Share of the records in each cluster; sums to 1.
    n_records : float
        Number of records as the method sees it.
    count : {"released", "public", "stated"}
        What that number is: noisy, exact because "replace" makes it public, or what the user said.
    receipt : Receipt
        What the run cost.
    method : str
        How the centres were found, and `reason` why that way if it was chosen.
    loss : {"squares", "distances"}
        What the centres make small: squared distances (k-means) or distances (k-medians).
    columns : tuple of str, optional
    domain : Box or Ball, optional
        Where records were taken to lie; those outside were moved to its edge.
    concerns : tuple of str
        Reasons to doubt the clusters, in words; empty if there are none.
    """

    centers: Floats
    weights: Floats
    n_records: float
    receipt: Receipt
    method: str
    reason: str = ""
    loss: str = "squares"
    columns: tuple[str, ...] | None = None
    domain: Domain | None = None
    concerns: tuple[str, ...] = ()
    count: str = "released"

    @property
    def task(self) -> str:
        """The problem by its name."""
        return "k-means" if self.loss == "squares" else "k-medians"

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Index of the nearest centre for each row of X, (n,).

        The labels are exact and hence as sensitive as the rows themselves.
        """
        return nearest(as_rows(X, self.centers.shape[1], "predict"), self.centers)

    @property
    def column_names(self) -> list[str]:
        """The columns' names, or x1, x2, ..."""
        return list(self.columns or [f"x{j + 1}" for j in range(self.centers.shape[1])])

    def describe(self) -> str:
        """The model in plain words, several lines."""
        lines = [
            f"{self.task:<11} {self.n_clusters} clusters of about {self.n_records:.0f} records",
            f"method      {self.method}" + (f": {self.reason}" if self.reason else ""),
        ]
        if self.domain is not None:
            lines.append(f"domain      {self.domain.describe()}")
        names = self.column_names
        more = "  ..." if len(names) > 8 else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:8])
        lines.append(f"centres     weight   {head}{more}")
        for weight, center in zip(self.weights, self.centers, strict=True):
            numbers = "  ".join(f"{value:9.4g}" for value in center[:8])
            lines.append(f"            {weight:6.1%}   {numbers}{more}")
        lines.extend(f"careful     {text}" for text in self.concerns)
        return "\n".join([*lines, f"cost        {self.receipt.summary()}"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON."""
        content: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content.update(
            centers=self.centers.tolist(),
            weights=self.weights.tolist(),
            n_records=float(self.n_records),
            receipt=receipt_to_json(self.receipt),
            columns=None if self.columns is None else list(self.columns),
            domain=None if self.domain is None else domain_to_json(self.domain),
            concerns=list(self.concerns),
        )
        write_file(path, document(KIND, content))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CenterModel:
        """Read a model written by `save`."""
        what = os.fspath(path)
        content = document_content(read_file(path), KIND, what)
        content.setdefault("count", "released")  # files of 0.1 do not say it
        fields = require_fields(content, cls.__dataclass_fields__, what)
        with reading(what):
            return cls(**{**fields, **_checked(fields)})


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a file in their own types."""
    centers = np.array(fields["centers"], dtype=np.float64)
    weights = np.array(fields["weights"], dtype=np.float64)
    if centers.ndim != 2 or centers.size == 0 or weights.shape != (len(centers),):
        raise ParameterError("centres and weights do not fit together")
    if not (np.isfinite(centers).all() and np.isfinite(weights).all()):
        raise ParameterError("a centre or a weight is missing")
    if type(fields["n_records"]) is not float or not 0 <= fields["n_records"] < np.inf:
        raise ParameterError("n_records must be a number")
    if not all(isinstance(fields[name], str) for name in ("method", "reason")):
        raise ParameterError("method and reason must be texts")
    if fields["loss"] not in LOSSES or fields["count"] not in COUNTS:
        raise ParameterError("unknown loss or count")
    dim = centers.shape[1]
    domain = None if fields["domain"] is None else domain_from_json(fields["domain"])
    if domain is not None and domain.dim != dim:
        raise ParameterError(f"domain: expected one of dim={dim} columns")
    return {
        "centers": centers,
        "weights": weights,
        "receipt": receipt_from_json(fields["receipt"]),
        "columns": checked_columns(fields["columns"], dim),
        "domain": domain,
        "concerns": checked_concerns(fields["concerns"]),
    }
