"""Reasons to doubt clusters and mixtures, as sentences for their reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.types import Bits, Floats
from privsketch.design.forecast import expected_middle, verdict_of
from privsketch.design.recipe import Design
from privsketch.design.size import supported_clusters
from privsketch.facts.columns import Date, Number, plain
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.facts.labels import OTHER, Category
from privsketch.facts.schema import Schema
from privsketch.facts.units import bound_text
from privsketch.learning.modes import ClusterCount
from privsketch.models.clusters import ClusterModel
from privsketch.sketching.sketch import Sketch

EDGE = 0.999  # distance from the center of the domain, relative to the edge, that counts as on it
MIN_EDGE_SHARE = 0.01  # share of the records around centers on the edge that is worth a concern
MAX_NAMED_BOUNDS = 3  # bounds that a concern names
MIN_PILE_SHARE = 0.1  # share of the records in the middle of a column that is worth a concern
PILE_DISTANCE = 0.1  # largest distance of a pile from the middle, relative to half of the column
PILE_WIDTH = 0.5  # largest width of a pile, relative to that of other components
COUNT_DEVIATIONS = 3.0  # standard deviations by which noise may raise a number of records
CELLS_PER_CLUSTER = 2  # least number of cells for a cluster
MIN_UNLISTED_SHARE = 0.5  # share of the records with labels that no schema lists: most of them
MISFIT = 1.5  # misfit over expectation above which the clusters do not explain the sketch


def source_concerns(sketch: Sketch) -> tuple[str, ...]:
    """Return concerns about sources that looked wrong when their sketches were merged."""
    return () if sketch.verdict is None else sketch.verdict.concerns()


def coordinates_cut(schema: Schema) -> Bits:
    """Return a mask of the coordinates of a schema that clipping moves to their bounds.

    They are numbers and dates; labels, flags and cycles lie on their bounds anyway.
    """
    is_clipped = [isinstance(column, Number | Date) for column in schema.columns]
    return np.repeat(is_clipped, [len(column.coordinates) for column in schema.columns])


def counting_bounds(domain: Domain, schema: Schema | None = None) -> Bits:
    """Return a mask of the bounds at which records show that they were cut, (2, dim): low, high.

    A low bound of 0 is taken for natural: no count, age or amount lies below it, and many lie on
    it. The values of a column in a larger unit lie beyond its high bound, which always counts.
    """
    if schema is not None:
        is_cut, places = coordinates_cut(schema), schema.places()
        natural = np.zeros(len(is_cut), dtype=bool)
        for column, coordinates in places:
            natural[coordinates] = isinstance(column, Number) and column.low == 0
        return np.stack([is_cut & ~natural, is_cut])
    dim = len(domain.half_widths)
    low = np.broadcast_to(domain.low, dim) if isinstance(domain, Box) else np.ones(dim)
    return np.stack([low != 0, np.ones(dim, dtype=bool)])


def sides(offsets: Floats) -> Floats:
    """Return how far offsets (k, dim) reach towards low and high bounds, (k, 2, dim)."""
    return np.stack([-offsets, offsets], axis=1)


def on_the_edge(
    centers: Floats,
    weights: Floats,
    domain: Domain,
    schema: Schema | None = None,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Return a concern if clusters or components lie where records outside the domain end up."""
    if schema is not None:  # it clips numbers and dates to their bounds before any ball applies
        domain = schema.box
    offsets = centers - domain.center_vector
    if isinstance(domain, Ball):
        outward = np.linalg.norm(offsets, axis=1) / domain.radius
        return edge_concern(float(weights[outward > EDGE].sum()))
    is_at = (sides(offsets / domain.half_widths) > EDGE) & counting_bounds(domain, schema)
    return bounds_concern(is_at, weights, domain, schema, names)


def bounds_concern(
    is_at: Bits,
    weights: Floats,
    domain: Domain,
    schema: Schema | None = None,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Return a concern that names the bounds of a box at which centers lie, (k, 2, dim)."""
    shares = np.tensordot(weights, is_at, 1)
    worst = np.argsort(-shares, axis=None, kind="stable")[:MAX_NAMED_BOUNDS]
    texts = [
        _bound_text(int(axis), int(side), domain, schema, names)
        for side, axis in zip(*np.unravel_index(worst, shares.shape), strict=True)
        if shares[side, axis] > 0
    ]
    more = int((shares > 0).sum()) - len(texts)
    others = f" and {more} more" if more else ""
    total = float(weights[is_at.any(axis=(1, 2))].sum())
    return edge_concern(total, ", at " + ", ".join(texts) + others)


def _bound_text(
    axis: int, side: int, domain: Domain, schema: Schema | None, names: Sequence[str] | None
) -> str:
    """Name a bound in the words and units of the schema, or of the box."""
    which = ("low", "high")[side]
    if schema is not None:
        column = next(
            each
            for each, place in schema.places()
            if isinstance(each, Number | Date) and place.start == axis
        )
        return f"the {which} bound of {column.name!r} ({bound_text(column, which)})"
    names = names or getattr(domain, "columns", None)
    name = f"column {axis + 1}" if names is None else repr(names[axis])
    half = domain.half_widths[axis] * (2 * side - 1)
    return f"the {which} bound of {name} ({plain(float(domain.center_vector[axis] + half))})"


def edge_concern(share: float, where: str = "") -> list[str]:
    """Return a concern if a relevant share of the records is around centers on the edge."""
    if share < MIN_EDGE_SHARE:
        return []
    return [
        f"{share:.0%} of the records are around centers on the edge of the domain{where}, where "
        "records outside of it end up: it is too narrow, or the records are in other units"
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


@dataclass(frozen=True)
class RecordCount:
    """Number of records as a release tells it, and the variance of its noise.

    `doubt` is why there may be none, where no number was released.
    """

    n_records: float
    variance: float = 0.0
    doubt: str = ""

    @property
    def sure(self) -> float:
        """Records that are there for sure: what noise may have added is taken off."""
        return max(self.n_records - COUNT_DEVIATIONS * math.sqrt(self.variance), 0.0)


def noise_decided(ratio: float, count: RecordCount, size: int, part: str) -> list[str]:
    """Return a concern if noise alone makes the expected cost ratio hopeless.

    One rule for all methods: `ratio` is the forecast of the method for its own noise and the
    records that are there for sure. Fewer records than parts tell nothing, whatever the noise.
    """
    if count.sure >= size and verdict_of(ratio) != "hopeless":
        return []
    about = f"about {max(count.n_records, 0.0):.0f} records"
    reason = count.doubt or (
        f"{about} for {size} {part}s may be there by noise alone. If there should be many, see "
        "which ones count: `privsketch check SCHEMA DATA` costs nothing"
    )
    if count.sure >= size:
        reason = (
            f"for {about}, of which noise leaves {count.sure:.0f} sure, and this budget, their "
            f"cost is expected to be {ratio:.1f} times that without privacy"
        )
    return [
        f"noise decided where the {part}s lie: {reason}. More records, a larger epsilon or fewer "
        f"{part}s help"
    ]


# Noise per number over the records of an average part, above which shares of labels describe noise.
# In 106 tables with labels, errors of shares grew from 2 to 12 points and more around 0.8
# (python -m benchmarks labels).
HOPELESS_NOISE = 0.75


def noise_decided_sketch(sketch: Sketch, size: int, n_records: float, part: str) -> list[str]:
    """Return the concern about `size` parts of a sketch, to which a fit gives `n_records`."""
    count = count_of(sketch, size, n_records)
    n, design = max(count.sure, 1.0), sketch.design
    concern = noise_decided(_expected_ratio(sketch, size, n), count, size, part)
    if concern or design.schema is None or design.schema.is_smooth:
        return concern
    # Centers of a table with labels may cost little where the shares of labels are wrong.
    noise = math.sqrt(sketch.noise_variance) * size / n
    if noise <= HOPELESS_NOISE:
        return []
    return [
        f"noise decided the shares of labels: the noise per number is {noise:.0%} of a {part} of "
        f"average size. More records, a larger epsilon or fewer {part}s help"
    ]


# Energy of a cluster, in standard deviations of the noise of a residual, below which a number of
# clusters may lack some. Of 48 sketches of 4 to 8 clusters, 21 gave too few and 27 the right
# number: the former had 1.2 to 9.4, but for one of clusters that overlap, the latter 9.7 and more.
MIN_VISIBLE = 10.0


def hidden_clusters(
    sketch: Sketch, found: int, n_records: float, visible: Callable[[int], float]
) -> list[str]:
    """Return a concern about a number of clusters that was read off a sketch.

    What noise hides is not counted. So a sketch should have served twice as many clusters, or a few
    more, as well. `visible` returns for a number of equal clusters the energy of one of them,
    relative to the noise of a residual.
    """
    count = count_of(sketch, found, n_records)
    if noise_decided_sketch(sketch, found, n_records, "cluster"):
        return []  # which says more
    more = max(2 * found, found + 3)
    expected = _expected_ratio(sketch, more, max(count.sure, 1.0))
    if verdict_of(expected) == "good" and visible(more) >= MIN_VISIBLE:
        return []
    return [
        f"noise may hide more clusters than {found}: for about "
        f"{max(count.n_records, 0.0):.0f} records and this budget noise may be stronger than what "
        f"tells {more} from fewer. More records or a larger epsilon show more"
    ]


def doubtful_number(number: ClusterCount) -> list[str]:
    """Return a concern about a number of clusters where no mixture explains the sketch."""
    if number.explained or number.most == number.n_clusters:
        return []
    return [
        f"the number of clusters may be up to {number.most}: no mixture explains the sketch, and "
        "what they leave of it may be a valley between clusters or the shape of one. Look at the "
        "clusters of several numbers"
    ]


def _expected_ratio(sketch: Sketch, size: int, n_records: float) -> float:
    """Return the cost ratio to expect of a sketch for a number of clusters and of records."""
    if sketch.noise_variance == 0:
        return 1.0
    design = replace(sketch.design, n_components=size, n_records=n_records)
    return expected_middle(
        design, n_records, noise_ratio=sketch.noise_variance / design.noise_std**2
    )


def count_of(sketch: Sketch, size: int, n_records: float) -> RecordCount:
    """Return the released number of records, or that of a fit of `size` parts.

    A fit of noise has records as well: the best of many positions for each part.
    """
    design = sketch.design
    if design.count == "released" or sketch.exact_count is not None:
        return RecordCount(sketch.n_records or 0.0, sketch.count_variance)
    if design.cells is not None:
        return RecordCount(sketch.n_records or 0.0, design.n_features * sketch.noise_variance)
    places = np.log(np.maximum(design.domain.half_widths / resolution(design), 1.0)).sum()
    best = 2 * float(places) + design.dim + 2
    variance = best * sketch.noise_variance / design.n_features
    return RecordCount(n_records, size**2 * variance / COUNT_DEVIATIONS**2)


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


def unlisted_labels(centers: Floats, weights: Floats, schema: Schema | None) -> list[str]:
    """Return a concern for each category of which most records have a label that is not listed."""
    texts = []
    for column, coordinates in () if schema is None else schema.places():
        if not isinstance(column, Category) or OTHER in column.values:
            continue
        shares = column.shares(centers[:, coordinates])[:, column.labels.index(OTHER)]
        share = float(weights @ shares)
        if share >= MIN_UNLISTED_SHARE:
            texts.append(
                f"about {share:.0%} of the records have a label of {column.name!r} that the schema "
                "does not list: it may be spelled otherwise there"
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
    by_noise = noise_decided_sketch(sketch, model.n_clusters, model.n_records, "cluster")
    texts = list(by_noise)
    if ratio is not None and ratio.is_bad:
        texts.append(f"the k-means cost is {ratio.describe()}")
    is_costly = ratio is None or ratio.is_bad
    if density is not None and density.misfit > MISFIT and not density.explains and is_costly:
        texts.append(
            f"the misfit is {density.misfit:.1f} times what noise and sampling leave: more "
            "clusters, clusters of other shapes, or a search that got stuck (try more starts); "
            "centers can still be good"
        )
    texts += unsupported_clusters(model.n_clusters, design)
    if by_noise:  # noise also makes centers on the edge, lost records and piles
        return tuple(texts)
    on_edge = on_the_edge(
        model.centers, model.weights, design.domain, design.schema, design.columns
    )
    texts += on_edge
    texts += unlisted_labels(model.centers, model.weights, design.schema)
    texts += missing_records(model.n_records, sketch)
    texts += in_the_middle(model, sketch)
    if density is None:
        return tuple(texts)
    finest = resolution(design)
    mean = model.weights @ model.centers
    spread = math.sqrt(float(np.mean(model.weights @ np.square(model.centers - mean))))
    extent = math.hypot(spread, density.width)
    if extent < 1.5 * finest and not on_edge:
        texts.append(
            f"all records lie within about {extent:.2g} of each other, and the design resolves "
            f"{finest:.2g}: the domain may be far too wide for them"
        )
    return tuple(texts)
