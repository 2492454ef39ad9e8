"""K-means from a sketch: cluster centres at no further privacy cost."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.budget import Receipt, receipt_from_json, receipt_to_json
from privsketch.design import require_features
from privsketch.errors import ParameterError
from privsketch.features.frequencies import public_seed
from privsketch.formats import (
    document,
    document_content,
    read_file,
    reading,
    require_fields,
    write_file,
)
from privsketch.learning.joint import decode_joint
from privsketch.learning.lloyd import cluster_density
from privsketch.learning.ompr import decode_ompr
from privsketch.learning.problem import Mixture, Problem, Solution
from privsketch.sketches import Sketch

Floats = npt.NDArray[np.float64]
DECODERS = ("joint", "cl-ompr")
DEFAULT_STARTS = 3


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
    residual, expected_residual : float
        Squared misfit of the sketch, in records^2, and what noise and sampling alone
        would leave. A residual far above says that the fit does not explain the sketch:
        clusters of other shapes, or a search that got stuck.
    n_records : float
        Number of records as the fit sees it.
    axis_widths : (n_clusters, dim) float64
        Standard deviations of each cluster along the axes.
    mixture_weights, mixture_means, mixture_widths : (p,), (p, dim), (p, dim) float64
        The Gaussians fitted to the sketch, n_clusters of them or more; `centers` are
        the k-means centres of this mixture.
    receipt : Receipt
        What the sketch cost. Learning added nothing.
    """

    centers: Floats
    weights: Floats
    width: float
    residual: float
    expected_residual: float
    n_records: float
    axis_widths: Floats
    mixture_weights: Floats
    mixture_means: Floats
    mixture_widths: Floats
    decoder: str
    design_fingerprint: str
    receipt: Receipt
    columns: tuple[str, ...] | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Index of the nearest centre for each row of X, (n,).

        The labels are exact and hence as sensitive as the rows themselves.
        """
        try:
            rows = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError("predict: X is not a table of numbers") from None
        if rows.ndim != 2 or rows.shape[1] != self.centers.shape[1]:
            raise ParameterError(
                f"predict: expected a table with {self.centers.shape[1]} columns, "
                f"got shape {rows.shape}"
            )
        return nearest(rows, self.centers)

    def moments(self, sketch: Sketch) -> npt.NDArray[np.complex128]:
        """What the fitted mixture predicts for `sketch.moments()`, (n_features,)."""
        frequencies = sketch.design.radians()
        centers = self.mixture_means - sketch.design.domain.center_vector
        damping = np.square(frequencies) @ np.square(self.mixture_widths).T / 2
        atoms = np.exp(1j * (frequencies @ centers.T) - damping)
        return np.asarray(atoms @ (self.mixture_weights * self.n_records))

    def describe(self) -> str:
        """The model in plain words, several lines."""
        ratio = self.residual / self.expected_residual
        lines = [
            f"k-means     {self.n_clusters} clusters of about {self.n_records:.0f} records, "
            f"decoder {self.decoder}",
            f"fit         residual {ratio:.2f} times what noise and sampling explain",
            f"width       {self.width:.4g} per coordinate",
        ]
        names = self.columns or [f"x{j}" for j in range(self.centers.shape[1])]
        lines.append("centres     weight   " + "  ".join(f"{name[:9]:>9}" for name in names[:8]))
        for weight, center in zip(self.weights, self.centers, strict=True):
            numbers = "  ".join(f"{value:9.4g}" for value in center[:8])
            lines.append(f"            {weight:6.1%}   {numbers}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON."""
        content: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in _ARRAYS:
            content[name] = content[name].tolist()
        content["receipt"] = receipt_to_json(self.receipt)
        content["columns"] = None if self.columns is None else list(self.columns)
        write_file(path, document("kmeans-model", content))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KMeansModel:
        """Read a model written by `save`."""
        what = os.fspath(path)
        content = document_content(read_file(path), "kmeans-model", what)
        fields = require_fields(content, cls.__dataclass_fields__, what)
        columns = fields["columns"]
        with reading(what):
            arrays = {name: np.array(fields[name], dtype=np.float64) for name in _ARRAYS}
            for names in (
                ("centers", "axis_widths", "weights"),
                ("mixture_means", "mixture_widths", "mixture_weights"),
            ):
                means, widths, weights = (arrays[name] for name in names)
                if means.ndim != 2 or widths.shape != means.shape or weights.shape != (len(means),):
                    raise ParameterError("centres, weights and widths do not fit together")
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ParameterError("a centre, weight or width is missing")
            for name in ("width", "residual", "expected_residual", "n_records"):
                if type(fields[name]) is not float or fields[name] < 0:
                    raise ParameterError(f"{name} must be a number")
            if fields["expected_residual"] == 0:
                raise ParameterError("expected_residual must be above 0")
            if not isinstance(fields["design_fingerprint"], str):
                raise ParameterError("design_fingerprint must be text")
            if fields["decoder"] not in DECODERS:
                raise ParameterError("unknown decoder")
            if columns is not None:
                is_list = isinstance(columns, list) and all(isinstance(c, str) for c in columns)
                if not is_list or len(columns) != arrays["centers"].shape[1]:
                    raise ParameterError("columns must be a name for each coordinate")
                columns = tuple(columns)
            receipt = receipt_from_json(fields["receipt"])
        return cls(**{**fields, **arrays, "receipt": receipt, "columns": columns})


_ARRAYS = (
    "centers",
    "weights",
    "axis_widths",
    "mixture_weights",
    "mixture_means",
    "mixture_widths",
)


def nearest(rows: Floats, centers: Floats) -> npt.NDArray[np.int64]:
    """Index of the centre with the least Euclidean distance to each row."""
    # Distances are taken from the mean of the centres: squares of large offsets would cancel.
    origin = centers.mean(axis=0)
    shifted = centers - origin
    labels = np.empty(len(rows), dtype=np.int64)
    for first in range(0, len(rows), 8192):
        block = rows[first : first + 8192] - origin
        scores = block @ shifted.T - 0.5 * np.einsum("ij,ij->i", shifted, shifted)
        labels[first : first + 8192] = scores.argmax(axis=1)
    return labels


def learn_kmeans(
    sketch: Sketch,
    n_clusters: int | None = None,
    *,
    decoder: str = "joint",
    n_starts: int = DEFAULT_STARTS,
    random_state: int | None = None,
) -> KMeansModel:
    """Cluster centres from a sketch. Charges nothing.

    Parameters
    ----------
    sketch : Sketch
        One holder's sketch, or several merged.
    n_clusters : int, optional
        As many as the design was planned for if left out.
    decoder : {"joint", "cl-ompr"}
        "joint" fits all clusters together, with their width; "cl-ompr" is the greedy
        search of the papers, with clusters of no width.
    n_starts : int
        Independent searches; the one that explains the sketch best is kept.
    random_state : int, optional
        Public seed of the searches; the design's own if left out.

    Examples
    --------
    >>> import numpy as np, privsketch as ps
    >>> X = np.repeat([[-0.5, -0.5], [0.5, 0.5]], 5000, axis=0)
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0, delta=1e-6), random_state=0)
    >>> model = ps.learn_kmeans(ps.sketch(X, design), n_clusters=2)
    >>> bool(np.allclose(np.sort(model.centers, axis=0), [[-0.5, -0.5], [0.5, 0.5]], atol=0.05))
    True
    """
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    design = sketch.design
    if n_clusters is None:
        n_clusters = design.n_components
    for name, value in (("n_clusters", n_clusters), ("n_starts", n_starts)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ParameterError(f"{name}={value!r}: expected an integer of at least 1")
    require_features(int(n_clusters), design.dim, design.n_features, "n_clusters")
    if decoder not in DECODERS:
        raise ParameterError(
            f"decoder={decoder!r}: expected one of {', '.join(map(repr, DECODERS))}"
        )
    seed = design.frequencies.seed if random_state is None else public_seed(random_state)
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, _PURPOSE_DECODER], np.uint64)))
    problem = kmeans_problem(sketch)
    decode = decode_joint if decoder == "joint" else decode_ompr
    solution = decode(problem, int(n_clusters), rng, n_starts=int(n_starts))
    return _as_model(sketch, problem, solution, decoder, rng)


_PURPOSE_DECODER = 2  # features/frequencies.py uses 0 and 1


def kmeans_problem(sketch: Sketch) -> Problem:
    """The sketch as decoders see it: coordinates relative to the domain's centre."""
    half_widths = sketch.design.domain.half_widths
    return Problem(
        frequencies=sketch.design.radians(),
        moments=sketch.moments(),
        noise_variance=sketch.noise_variance,
        low=-half_widths,
        high=half_widths,
    )


def _as_model(
    sketch: Sketch,
    problem: Problem,
    solution: Solution,
    decoder: str,
    rng: np.random.Generator,
) -> KMeansModel:
    domain, density = sketch.design.domain, solution.density
    centers, served = solution.centers, solution.weights
    if decoder == "joint":
        # Means of a mixture are not k-means centres where clusters overlap.
        centers, served = cluster_density(solution, rng, problem.low, problem.high)
    weights, axis_widths = _shares(served), _spread_around(centers, density)
    total = float(density.weights.sum())
    origin = domain.center_vector
    fit = KMeansModel(
        centers=domain.project(centers + origin),
        weights=weights,
        width=math.sqrt(float(weights @ np.square(axis_widths).mean(axis=1))),
        residual=0.0,
        expected_residual=1.0,
        n_records=total,
        axis_widths=axis_widths,
        mixture_weights=_shares(density.weights),
        mixture_means=density.centers + origin,
        mixture_widths=density.axis_widths,
        decoder=decoder,
        design_fingerprint=sketch.design.fingerprint,
        receipt=sketch.receipt,
        columns=sketch.design.columns,
    )
    left_over = np.abs(sketch.moments() - fit.moments(sketch)) ** 2
    return replace(
        fit,
        residual=float(left_over.sum()),
        expected_residual=_expected_residual(fit, sketch),
    )


def _shares(weights: Floats) -> Floats:
    """Weights that sum to 1; equal ones for a sketch in which nothing was found."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def _spread_around(centers: Floats, density: Mixture) -> Floats:
    """Standard deviation along the axes of what is nearest to each centre, (k, dim)."""
    label = nearest(density.centers, centers)
    squares = np.square(density.axis_widths) + np.square(density.centers - centers[label])
    weights = density.weights + 1e-300  # a component of no weight still has a width
    mass = np.bincount(label, weights, len(centers))
    sums = np.stack([np.bincount(label, weights * column, len(centers)) for column in squares.T])
    return np.asarray(np.sqrt(sums / np.maximum(mass, 1e-300)).T)


def expected_variances(model: KMeansModel, sketch: Sketch) -> Floats:
    """Variance of noise and sampling per real component of the moments, (n_features,).

    A sum of n unit phasors of mean phi varies by n (1 - |phi|^2), half of it along
    each axis.
    """
    n_records = max(model.n_records, 1.0)
    modulus = np.minimum(np.abs(model.moments(sketch)) / n_records, 1.0)
    return np.asarray(sketch.noise_variance + n_records * (1 - modulus**2) / 2)


def _expected_residual(model: KMeansModel, sketch: Sketch) -> float:
    """Residual that noise and sampling would leave after as many unknowns were fitted.

    Noise is independent between features; sampling errors are not, and a fit follows
    more of them than it has unknowns, so a good fit may stay well below this.
    """
    n_numbers = 2 * sketch.design.n_features
    size, dim = model.mixture_means.shape
    n_unknowns = size * (dim + 1) + 1
    left_over = max(n_numbers - n_unknowns, 1) / n_numbers
    return float(2 * expected_variances(model, sketch).sum() * left_over)
