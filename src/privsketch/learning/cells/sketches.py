"""Clusters from a sketch of cells, at no further privacy cost."""

from __future__ import annotations

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.cautions import warn_of
from privsketch.design.validity import require_cells
from privsketch.features.cells import axis_edges
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, choose_number, decode_cells
from privsketch.learning.kmeans.outcome import model_of
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import beyond_carried, no_knowledge
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch

_LIKE_GAUSSIAN = 100  # draws of Laplace noise whose sum nobody tells from Gaussian noise


def boxes_of(sketch: Sketch) -> Boxes:
    """A sketch as its decoder sees it."""
    design = sketch.design
    shape = design.cells or ()
    edges = axis_edges(design.domain, shape)
    low, high = (
        np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1).reshape(-1, design.dim)
        for ends in ([along[:-1] for along in edges], [along[1:] for along in edges])
    )
    counts = sketch.counts().reshape(-1)
    return Boxes(
        low,
        high,
        counts,
        np.full(len(counts), sketch.noise_variance),
        n_noises=len(sketch.ids) if design.noise == "laplace" else _LIKE_GAUSSIAN,
        shape=shape,
        total=None if design.count == "omitted" else sketch.n_records,
    )


def kmeans_of_cells(
    sketch: Sketch, n_clusters: int | str, max_clusters: int | None, rng: np.random.Generator
) -> ClusterModel:
    """Cluster centers from a sketch of cells; see `learn_kmeans`."""
    design, boxes = sketch.design, boxes_of(sketch)
    if n_clusters == "auto":
        most = min(2 * design.n_components, design.n_features)
        if max_clusters is not None:
            require_cells(max_clusters, design.n_features, "max_clusters")
            most = max_clusters
        n_clusters = choose_number(boxes, most, rng)
    require_cells(int(n_clusters), design.n_features, "n_clusters")
    warn_of(beyond_carried(int(n_clusters), design))
    found = decode_cells(boxes, int(n_clusters), rng)
    half_widths = design.domain.half_widths
    errors = found.standard_errors
    return model_of(
        sketch,
        centers=found.centers,
        records=found.records,
        density=density_of(found, half_widths),
        errors=None if errors is None else np.minimum(errors, no_knowledge(half_widths)),
        residual=(found.residual, found.expected_residual, found.residual_spread),
        decoder="cells",
    )


def density_of(found: CellSolution, half_widths: Floats) -> Atoms:
    """The density of a solution, with a Gaussian as wide as the domain for its background."""
    atoms = found.density
    if not found.background > 0 and atoms.size:
        return atoms
    return Atoms(
        np.append(atoms.weights, max(found.background, 0.0)),
        np.vstack([atoms.centers, np.zeros(len(half_widths))]),
        np.vstack([atoms.axis_variances(), no_knowledge(half_widths) ** 2]),
    )
