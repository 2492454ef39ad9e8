"""The clusters learned from a sketch, and their file."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import Receipt
from privsketch.errors import ParameterError
from privsketch.formats import document_content, read_file, reading, require_fields
from privsketch.models.base import as_rows, nearest, save_model, shared_fields

KIND = "kmeans-model"
DECODERS = ("joint", "cl-ompr")


@dataclass(frozen=True, eq=False)
class KMeansModel:
    """Clusters learned from a sketch.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
    weights : (n_clusters,) float64
        Share of the records in each cluster; sums to 1.
    width : float
        Standard deviation of the clusters per coordinate, root mean square over them;
        next to 0 for the "cl-ompr" decoder, whose atoms have no width.
    standard_errors : (n_clusters, dim) float64 or None
        Of the centres' coordinates, from privacy noise and from the sampling of records;
        None where nobody can tell: very large fits, or no records at all.
    residual, expected_residual, residual_spread : float
        Squared misfit of the sketch, in records^2, and mean and standard deviation of what
        noise and sampling alone would leave. A residual far above says that the fit does not
        explain the sketch: clusters of other shapes, or a search that got stuck.
    n_records : float
        Number of records as the fit sees it.
    axis_widths : (n_clusters, dim) float64
        Standard deviations of each cluster along the axes.
    mixture_weights, mixture_means, mixture_widths : (p,), (p, dim), (p, dim) float64
        The Gaussians fitted to the sketch, n_clusters of them or more; `centers` are
        the k-means centres of this mixture.
    concerns : tuple of str
        Reasons to doubt the clusters, in words; empty if there are none.
    receipt : Receipt
        What the sketch cost. Learning added nothing.
    """

    centers: Floats
    weights: Floats
    width: float
    standard_errors: Floats | None
    residual: float
    expected_residual: float
    residual_spread: float
    n_records: float
    axis_widths: Floats
    mixture_weights: Floats
    mixture_means: Floats
    mixture_widths: Floats
    decoder: str
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None
    concerns: tuple[str, ...] = ()

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
        ratio = self.residual / self.expected_residual
        lines = [
            f"k-means     {self.n_clusters} clusters of about {self.n_records:.0f} records, "
            f"decoder {self.decoder}",
            f"fit         misfit {ratio:.2f} of what noise and sampling leave",
            f"width       {self.width:.4g} per coordinate",
        ]
        if self.standard_errors is not None:
            low, high = self.standard_errors.min(), self.standard_errors.max()
            lines.append(f"precision   standard errors of coordinates {low:.2g} to {high:.2g}")
        names = self.column_names
        more = "  ..." if len(names) > 8 else ""
        head = "  ".join(f"{name[:9]:>9}" for name in names[:8])
        lines.append(f"centres     weight   {head}{more}")
        for weight, center in zip(self.weights, self.centers, strict=True):
            numbers = "  ".join(f"{value:9.4g}" for value in center[:8])
            lines.append(f"            {weight:6.1%}   {numbers}")
        lines.extend(f"careful     {text}" for text in self.concerns)
        return "\n".join([*lines, f"cost        {self.receipt.summary()}"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON."""
        save_model(path, KIND, self, (*_ARRAYS, "standard_errors"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KMeansModel:
        """Read a model written by `save`."""
        what = os.fspath(path)
        content = document_content(read_file(path), KIND, what)
        fields = require_fields(content, cls.__dataclass_fields__, what)
        with reading(what):
            arrays = {name: np.array(fields[name], dtype=np.float64) for name in _ARRAYS}
            for names in (
                ("centers", "axis_widths", "weights"),
                ("mixture_means", "mixture_widths", "mixture_weights"),
            ):
                means, widths, weights = (arrays[name] for name in names)
                if means.ndim != 2 or widths.shape != means.shape or weights.shape != (len(means),):
                    raise ParameterError("centres, weights and widths do not fit together")
            if fields["standard_errors"] is not None:
                errors = np.array(fields["standard_errors"], dtype=np.float64)
                if errors.shape != arrays["centers"].shape:
                    raise ParameterError("standard errors do not fit the centres")
                arrays["standard_errors"] = errors
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ParameterError("a centre, weight or width is missing")
            if fields["decoder"] not in DECODERS:
                raise ParameterError("unknown decoder")
            others = shared_fields(fields, arrays["centers"].shape[1], _NUMBERS)
        return cls(**{**fields, **arrays, **others})


_NUMBERS = ("width", "residual", "expected_residual", "residual_spread", "n_records")
_ARRAYS = (
    "centers",
    "weights",
    "axis_widths",
    "mixture_weights",
    "mixture_means",
    "mixture_widths",
)
