"""Reasons to doubt clusters and mixtures, as sentences for their reader."""

from __future__ import annotations

import math

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.design.forecast import HOPELESS_NOISE
from privsketch.design.recipe import Design
from privsketch.design.size import supported_clusters
from privsketch.facts.columns import Date, Number
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.schema import Schema
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch

EDGE = 0.999  # distance from the center of the domain, relative to the edge, that counts as on it
MIN_EDGE_SHARE = 0.01  # share of the records around centers on the edge that is worth a concern
MIN_PILE_SHARE = 0.1  # share of the records in the middle of a column that is worth a concern
PILE_DISTANCE = 0.1  # largest distance of a pile from the middle, relative to half of the column
PILE_WIDTH = 0.5  # largest width of a pile, relative to that of other components
CELLS_PER_CLUSTER = 2  # least number of cells for a cluster
MISFIT = 1.5  # misfit over expectation above which the clusters do not explain the sketch


def coordinates_cut(schema: Schema) -> Bits:
    """Return a mask of the coordinates of a schema that clipping moves to their bounds.

    They are numbers and dates; labels, flags and cycles lie on their bounds anyway.
    """
    is_clipped = [isinstance(column, Number | Date) for column in schema.columns]
    return np.repeat(is_clipped, [len(column.coordinates) for column in schema.columns])


def on_the_edge(
    centers: Floats, weights: Floats, domain: Domain, schema: Schema | None = None
) -> list[str]:
    """Return a concern if clusters or components lie where records outside the domain end up."""
    if schema is not None:  # it clips numbers and dates to their bounds before any ball applies
        domain = schema.box
    offsets = np.abs(centers - domain.center_vector)
    if schema is not None:
        offsets[:, ~coordinates_cut(schema)] = 0.0
    if isinstance(domain, Ball):
        outward = np.linalg.norm(offsets, axis=1) / domain.radius
    else:
        outward = (offsets / domain.half_widths).max(axis=1)
    return edge_concern(float(weights[outward > EDGE].sum()))


def edge_concern(share: float) -> list[str]:
    """Return a concern if a relevant share of the records is around centers on the edge."""
    if share < MIN_EDGE_SHARE:
        return []
    return [
        f"{share:.0%} of the records are around centers on the edge of the domain, where records "
        "outside of it end up: it is too narrow, or the records are in other units"
    ]


def missing_records(n_records: float, sketch: Sketch) -> list[str]:
    """Return a concern if a fit accounts for far fewer or more records than the sketch counts."""
    count = sketch.n_records
    if count is None:
        return []
    difference = abs(n_records - count)
    if difference < 0.1 * count or difference < 10 * math.sqrt(sketch.noise_variance):
        return []
    return [
        f"the fit accounts for {max(n_records, 0.0):.0f} of about {count:.0f} records: more "
        "clusters or components, or a wider domain, may account for the others"
    ]


def drowned(
    sketch: Sketch, size: int, n_records: float, part: str, result: str
) -> tuple[float, list[str]]:
    """Return noise over the records of an average part, and a concern if it is large."""
    noise = math.sqrt(sketch.noise_variance) * size / max(n_records, 1.0)
    if noise <= HOPELESS_NOISE:
        return noise, []
    return noise, [
        f"the noise per number is {noise:.0%} of a {part} of average size: the {result} may "
        "describe the noise"
    ]


def resolution(design: Design) -> float:
    """Return the finest scale that a design resolves, in the units of the records."""
    if design.cells is None:
        return design.frequencies.scales[0]
    sides = cell_sides(design)
    return float((sides if len(sides) > 0 else design.domain.half_widths).min()) / 2


def cell_sides(design: Design) -> Floats:
    """Return the sides of a cell along the axes without labels."""
    axes = zip(design.axes, design.cells or (), design.has_labels, strict=True)
    half_widths = design.domain.half_widths
    return np.array([2 * half_widths[axis.start] / g for axis, g, labels in axes if not labels])


def in_the_middle(model: ClusterModel, sketch: Sketch) -> list[str]:
    """Return a concern for each column whose imputed missing values form a pile of records.

    The number of missing values is not released. Components in the middle that are far narrower
    along the column than others indicate a pile.
    """
    density, schema = model.density, sketch.design.schema
    if density is None or schema is None:
        return []
    texts = []
    box, weights = schema.box, density.mixture_weights
    for column, coordinates in schema.places():
        if schema.rule(column) != "center":
            continue
        axis = coordinates.start  # columns that have a middle have one coordinate
        offsets = np.abs(density.mixture_means[:, axis] - box.center_vector[axis])
        is_near = offsets < PILE_DISTANCE * box.half_widths[axis]
        far_weights = weights * ~is_near
        squares = np.square(density.mixture_widths[:, axis])
        usual = float(far_weights @ squares) / max(float(far_weights.sum()), 1e-300)
        share = float(weights[is_near & (squares < PILE_WIDTH**2 * usual)].sum())
        if share >= MIN_PILE_SHARE:
            texts.append(
                f"about {share:.0%} of the records lie in the middle of {column.name!r}, where "
                "missing values were put: clusters may be about what is missing"
            )
    return texts


def unsupported_clusters(n_clusters: int, design: Design) -> list[str]:
    """Return a concern if `n_clusters` is more than the numbers of a sketch support."""
    if design.cells is None:
        supported, noun = supported_clusters(design.dim, design.n_features), "features"
    else:
        supported, noun = max(design.n_features // CELLS_PER_CLUSTER, 1), "cells"
    if n_clusters <= supported:
        return []
    return [
        f"n_clusters={n_clusters}: a sketch of {design.n_features} {noun} in {design.dim} columns "
        f"supports about {supported}; plan a design for as many clusters as are asked for"
    ]


def concerns(model: ClusterModel, sketch: Sketch) -> tuple[str, ...]:
    """Return reasons to doubt that the clusters serve k-means.

    Noise and misfit count if the predicted cost suffers from them, or if there is no prediction.
    Noise also counts where columns have labels: their shares may be wrong at a good cost.
    """
    design, density, ratio = sketch.design, model.density, model.cost_ratio
    noise, hidden = drowned(sketch, model.n_clusters, model.n_records, "cluster", "centers")
    texts = list(hidden)
    if density is not None and density.misfit > MISFIT and not density.explains:
        texts.append(
            f"the misfit is {density.misfit:.1f} times what noise and sampling leave: more "
            "clusters, clusters of other shapes, or a search that got stuck (try more starts); "
            "centers can still be good"
        )
    if ratio is not None:
        has_labels = design.schema is not None and not design.schema.is_smooth
        quiet = hidden if has_labels else []
        texts = [f"the k-means cost is {ratio.describe()}", *texts] if ratio.is_bad else quiet
    texts += unsupported_clusters(model.n_clusters, design)
    on_edge = on_the_edge(model.centers, model.weights, design.domain, design.schema)
    texts += on_edge
    texts += missing_records(model.n_records, sketch)
    texts += in_the_middle(model, sketch)
    if density is None:
        return tuple(texts)
    finest = resolution(design)
    mean = model.weights @ model.centers
    spread = math.sqrt(float(np.mean(model.weights @ np.square(model.centers - mean))))
    extent = math.hypot(spread, density.width)
    if extent < 1.5 * finest and noise <= HOPELESS_NOISE and not on_edge:
        texts.append(
            f"all records lie within about {extent:.2g} of each other, and the design resolves "
            f"{finest:.2g}: the domain may be far too wide for them"
        )
    return tuple(texts)
