"""Centers and the density behind them, as the model that people get: the same for all decoders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from privsketch._base.types import Floats
from privsketch.learning.kmeans.ratio import foretold_ratio
from privsketch.learning.problem import Atoms
from privsketch.learning.uncertainty import concerns, with_label_errors
from privsketch.models.base import nearest
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch


def model_of(
    sketch: Sketch,
    *,
    centers: Floats,
    records: Floats,
    density: Atoms,
    errors: Floats | None,
    residual: tuple[float, float, float],
    decoder: str,
    plugin: str | None = None,
) -> ClusterModel:
    """The model of clusters that a decoder found, with its concerns.

    Parameters
    ----------
    centers, records : (k, dim) and (k,)
        About the center of the domain, and how many records each serves.
    density : Atoms
        Weights in records, centers about that of the domain.
    errors : (k, dim), optional
        Standard errors of the centers.
    residual : (float, float, float)
        Squared misfit, and mean and standard deviation of what noise and sampling leave.
    decoder : str
        Name of the decoder.
    plugin : str, optional
        Distribution that registers the decoder, for the receipt; None for ours.
    """
    design = sketch.design
    domain, weights = design.domain, shares(records)
    axis_widths = _spread_around(centers, density)
    origin, (left, expected, spread) = domain.center_vector, residual
    fit = ClusterModel(
        centers=domain.project(centers + origin),
        weights=weights,
        width=math.sqrt(float(weights @ np.square(axis_widths).mean(axis=1))),
        standard_errors=None if errors is None else with_label_errors(errors, design.schema),
        residual=left,
        expected_residual=expected,
        residual_spread=spread,
        n_records=float(density.weights.sum()),
        axis_widths=axis_widths,
        mixture_weights=shares(density.weights),
        mixture_means=density.centers + origin,
        mixture_widths=np.sqrt(density.axis_variances()),
        decoder=decoder,
        design_fingerprint=design.fingerprint,
        receipt=sketch.receipt.naming(plugin),
        method="sketch",
        columns=design.columns,
        schema=design.schema,
        domain=domain,
    )
    fit = replace(fit, cost_ratio=foretold_ratio(fit, errors, sketch))
    return replace(fit, concerns=concerns(fit, sketch))


def shares(weights: Floats) -> Floats:
    """Weights that sum to 1; equal ones for a sketch in which nothing was found."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def _spread_around(centers: Floats, density: Atoms) -> Floats:
    """Standard deviation along the axes of what is nearest to each center, (k, dim)."""
    label = nearest(density.centers, centers)
    squares = density.axis_variances() + np.square(density.centers - centers[label])
    weights = density.weights + 1e-300  # a component of no weight still has a width
    mass = np.bincount(label, weights, len(centers))
    sums = np.stack([np.bincount(label, weights * column, len(centers)) for column in squares.T])
    return np.asarray(np.sqrt(sums / np.maximum(mass, 1e-300)).T)
