"""The model of k-means clusters, and the cost ratio that it predicts.

The cost ratio is the cost of private centers on the records over that of k-means on the records.
Only a holder can compute it, but a sketch predicts it. To first order an error e of a center raises
the cost by |e|^2 for each of its records. Standard errors therefore give the excess if the search
found all clusters. Other signs show whether it did: how far a small cluster stands out of the
noise, the unexplained residual, the unknowns for each number of the sketch, and the finest scale
that the sketch resolves. Columns may be skewed, as money is: then the tail of the density goes on
beyond what noise shows, and few records there cost more than all others.

A weighted sum of these signs is a *score*, about the logarithm of the excess. Its weights, and the
ratios to expect at a score, were fitted to random studies whose records were known
(`benchmarks/ratios.py`). The interval therefore includes what theory does not cover, such as
searches that fail. Everything here is computed from the sketch and the model: free post-processing.

The excess that a score foretells is part of the standard errors in turn (`response`): records that
the density misses move centers by more than noise and sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats
from privsketch.design.mixed import mixed_space
from privsketch.design.recipe import Design
from privsketch.design.size import band_share, energy_share
from privsketch.facts.labels import Labelled
from privsketch.facts.layout import drawn_corners, layout_of
from privsketch.features.stream import Purpose, public_generator
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.learning.concerns import cell_sides, concerns, resolution, source_concerns
from privsketch.learning.kmeans.response import response_of, standard_errors
from privsketch.learning.lloyd import Points, weighted_sums
from privsketch.learning.problem import Atoms
from privsketch.models.base import nearest
from privsketch.models.clusters import ClusterModel, CostRatio, Density
from privsketch.sketching.sketch import Sketch

DENSITY_SAMPLES = 2000  # they give the cost of a density to a few percent
BORDER_SAMPLES = 20_000  # of which some hundred lie near the border of two clusters
# Weights of the quantiles 0.05, 0.5 and 0.95 in the mean of a law of any shape (Pearson and Tukey
# 1965, Biometrika 52).
MEAN_OF_QUANTILES = 0.185, 0.63, 0.185
SMALL_QUANTILE = 0.1  # quantile of the cluster sizes that stands for a small cluster
CALIBRATED = ("joint", "cells")  # decoders with a calibration
MIN_SQUARED_WIDTH = 1e-9  # least squared width of clusters over that of the domain
MIN_CONTRAST = 0.05  # gain of k-means on one cloud in about ten columns
SIGN_RANGES = {
    "error": (-8.0, 3.0),
    "fisher": (-9.0, 3.0),
    "hopeless": (0.0, 3.0),
    "contrast": (0.0, 7.0),
    "stands out": (-3.0, 4.0),
    "is hidden": (-3.0, 1.0),
    "unexplained": (-6.0, 0.0),
    "fill": (-4.0, 0.0),
    "fineness": (-1.5, 1.0),
    "columns": (0.0, 4.0),
    "skew": (0.0, 2.5),
}


def model_of(
    sketch: Sketch,
    *,
    centers: Floats,
    records: Floats,
    density: Atoms,
    shifts: Floats | None,
    residual: tuple[float, float, float],
    decoder: str,
    plugin: str | None = None,
) -> ClusterModel:
    """Return the model of clusters from a decoder, with its concerns.

    Parameters
    ----------
    centers, records : (k, dim) and (k,)
        Centers relative to that of the domain, and the records of each cluster.
    density : Atoms
        Weights in records, centers relative to that of the domain.
    shifts : (k, dim), optional
        Standard deviations of the means of the clusters by noise and sampling, their borders fixed.
    residual : (float, float, float)
        Squared misfit; mean and standard deviation of the misfit that noise and sampling leave.
    decoder : str
        Name of the decoder.
    plugin : str, optional
        Distribution that registers the decoder, for the receipt; None for ours.
    """
    design = sketch.design
    domain, weights = design.domain, shares(records)
    axis_widths = _spread_around(centers, density, design)
    origin, (squared_misfit, expected, spread) = domain.center_vector, residual
    fit = ClusterModel(
        centers=domain.project(centers + origin),
        weights=weights,
        width=math.sqrt(float(weights @ np.square(axis_widths).mean(axis=1))),
        standard_errors=None,
        residual=squared_misfit,
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
    if decoder in CALIBRATED:
        ratio, excess = predicted_ratio(fit, shifts, sketch)
        errors = _errors_of(fit, shifts, excess, design)
        fit = replace(fit, cost_ratio=ratio, standard_errors=errors)
    return replace(fit, concerns=(*source_concerns(sketch), *concerns(fit, sketch)))


def _errors_of(
    model: ClusterModel, shifts: Floats | None, excess: float, design: Design
) -> Floats | None:
    """Return the standard errors of the centers; None where they are unknown, or say nothing."""
    density = model.density
    if shifts is None or density is None:
        return None
    mixture = density.mixture_weights, density.mixture_means, density.mixture_widths
    positions = _drawn(*mixture, design, BORDER_SAMPLES)
    n = len(positions)
    points = Points(positions, np.full(n, 1 / n), np.zeros(n, dtype=np.intp))
    with one_thread():
        response = response_of(points, model.centers)
    within = _costs(model, density, design)[0]
    return standard_errors(shifts, model.weights, response, excess, within)


def shares(weights: Floats) -> Floats:
    """Return weights that sum to 1; equal ones if all are 0."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def _spread_around(centers: Floats, density: Atoms, design: Design) -> Floats:
    """Return standard deviations of the density around each center along the axes, (k, dim).

    A component counts for the center that is nearest to its mean. Where several centers divide one
    component, those without any get the spread of samples.
    """
    label = nearest(density.centers, centers)
    squares = density.axis_variances() + np.square(density.centers - centers[label])
    weights = density.weights + 1e-300  # a component of no weight still has a width
    mass, sums = weighted_sums(squares, weights, label, len(centers))
    is_bare = mass <= 0
    if is_bare.any():
        origin, widths = design.domain.center_vector, np.sqrt(density.axis_variances())
        points = _drawn(shares(density.weights), density.centers + origin, widths, design) - origin
        label = nearest(points, centers)
        squares = np.square(points - centers[label])
        drawn, of_samples = weighted_sums(squares, np.ones(len(points)), label, len(centers))
        sums[is_bare], mass[is_bare] = of_samples[is_bare], drawn[is_bare]
    return np.sqrt(sums / np.maximum(mass, 1e-300)[:, None])


@dataclass(frozen=True)
class Calibration:
    """Cost ratios by score, from known records: `python -m benchmarks ratios --calibrate`.

    Attributes
    ----------
    constant : float
        Score if all signs are 0.
    weights : mapping of str to float
        Weights of the signs in the score.
    scores : tuple of float
        Increasing scores. Quantiles are interpolated between them and constant beyond.
    low, middle, high : tuple of float
        Quantiles 0.05, 0.5 and 0.95 of the logarithm of the ratio at these scores.
    """

    constant: float
    weights: Mapping[str, float]
    scores: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]

    def score(self, signs: Mapping[str, float]) -> float:
        """Return the weighted sum of signs."""
        return self.constant + sum(each * signs[name] for name, each in self.weights.items())

    def ratio(self, score: float) -> CostRatio:
        """Return the cost ratio to expect at a score."""
        low, middle, high = (
            math.exp(float(np.interp(score, self.scores, quantiles)))
            for quantiles in (self.low, self.middle, self.high)
        )
        return CostRatio(estimate=middle, low=low, high=high)

    def mean_excess(self, score: float) -> float:
        """Return the mean of the ratio less 1 at a score.

        Scores are logarithms of the excess: below the first of `scores`, it goes on to fall.
        """
        ratio = self.ratio(score)
        quantiles = np.maximum([ratio.low - 1, ratio.estimate - 1, ratio.high - 1], 0.0)
        return float(quantiles @ MEAN_OF_QUANTILES) * math.exp(min(score - self.scores[0], 0.0))


def predicted_ratio(
    model: ClusterModel, shifts: Floats | None, sketch: Sketch
) -> tuple[CostRatio, float]:
    """Return the predicted cost ratio of a model, and the mean of the ratio less 1.

    `shifts` are those of `model_of`.
    """
    design = sketch.design
    has_blocks = layout_of(design.schema, design.domain.center_vector) is not None
    calibration = CELLS if design.cells is not None else MIXED if has_blocks else WAVES
    score = calibration.score(signs_of(model, shifts, sketch))
    return calibration.ratio(score), calibration.mean_excess(score)


def signs_of(model: ClusterModel, shifts: Floats | None, sketch: Sketch) -> dict[str, float]:
    """Return public quantities that predict the cost of centers, most of them logarithms.

    They are clipped to the range of the random studies.
    """
    density = model.density
    if density is None:
        raise TypeError("a model of a sketch has a density")
    design, k, n = sketch.design, model.n_clusters, max(model.n_records, 1.0)
    within, total, width, skewness = _costs(model, density, design)
    small = max(float(np.quantile(model.weights, SMALL_QUANTILE)) * n, 1.0)
    resolved = _Resolution.of(sketch, n)
    if shifts is None:  # the fit is too large for them
        log_error = _logarithm(resolved.center_error(n / k, width))
    else:
        log_error = _logarithm(float(model.weights @ np.square(shifts).sum(axis=1)) / within)
    # Records of any shape have some contrast, even if all clusters of a fit are one point.
    contrast = max(total / within - 1, MIN_CONTRAST)
    # In pure noise, the best of many positions lowers the residual by so much.
    layout = layout_of(design.schema, design.domain.center_vector)
    half_widths = design.domain.half_widths
    half_widths = half_widths if layout is None else half_widths[layout.numbers]
    log_positions = np.log(np.maximum(half_widths / width, 1.0)).sum()
    by_chance = 2 * float(log_positions) + resolved.n_columns + 2
    stands_out = _logarithm(resolved.gain(small, width) / by_chance)
    unexplained = math.sqrt(max(density.residual - density.expected_residual, 0.0))
    signs = {
        "error": min(log_error, _logarithm(contrast)),
        "fisher": _logarithm(resolved.center_error(n / k, width)),
        "hopeless": max(log_error, 0.0),
        "contrast": math.log1p(contrast),
        "stands out": stands_out,
        "is hidden": min(stands_out, 1.0),
        "unexplained": _logarithm(unexplained / n / math.sqrt(resolved.n_numbers)),
        "fill": _logarithm(k * resolved.unknowns / resolved.n_numbers),
        "fineness": _logarithm(width / resolved.finest),
        "columns": math.log(resolved.n_columns),
        "skew": math.log1p(skewness),
    }
    return {name: min(max(signs[name], low), high) for name, (low, high) in SIGN_RANGES.items()}


def _logarithm(value: float) -> float:
    return math.log(max(value, 1e-30))


def _drawn(
    weights: Floats, means: Floats, widths: Floats, design: Design, n: int = DENSITY_SAMPLES
) -> Floats:
    """Return samples of a mixture inside of the domain, with labels at their corners."""
    rng = public_generator(0, Purpose.COST_RATIO)  # public, and the same for every sketch
    steps = np.cumsum(weights)
    label = np.searchsorted(steps, (np.arange(n) + 0.5) / n)
    label = np.minimum(label, len(steps) - 1)
    points = means[label] + widths[label] * rng.standard_normal((len(label), means.shape[1]))
    points = design.domain.project(points)
    for column, place in () if design.schema is None else design.schema.places():
        if isinstance(column, Labelled):
            corner = drawn_corners(column.shares(means[:, place])[label], rng)
            points[:, place] = column.encode(corner.astype(np.float64)).T
    return np.asarray(points)


def _costs(
    model: ClusterModel, density: Density, design: Design
) -> tuple[float, float, float, float]:
    """Return mean squared distances of the density to its centers, and to the overall mean.

    The third number is the width of a cluster along a number, or along any coordinate without them;
    the fourth the mean of the columns' absolute skewness, weighted by their variances.
    """
    mixture = density.mixture_weights, density.mixture_means, density.mixture_widths
    points = _drawn(*mixture, design)
    offsets = points - model.centers[nearest(points, model.centers)]
    least = MIN_SQUARED_WIDTH * float(np.square(design.domain.half_widths).sum())
    within = max(float(np.square(offsets).sum(axis=1).mean()), least)
    width = math.sqrt(within / design.dim)
    layout = layout_of(design.schema, design.domain.center_vector)
    if layout is not None and len(layout.numbers):
        squares = float(np.square(offsets[:, layout.numbers]).mean())
        width = math.sqrt(max(squares, least / design.dim))
    variances = points.var(axis=0)
    thirds = np.abs(np.power(points - points.mean(axis=0), 3).mean(axis=0))
    skewness = thirds / np.sqrt(np.maximum(variances, least / design.dim))
    total = float(variances.sum())
    return within, total, width, float(skewness.sum()) / max(total, least)


@dataclass(frozen=True)
class _Resolution:
    """Resolution of a sketch for clusters.

    Attributes
    ----------
    variance : float
        Variance of noise and sampling per number; for cells, of noise alone.
    n_numbers, unknowns : float
        Features or 1, and unknowns of a cluster for each of them; see `signs_of`.
    finest : float
        Finest scale that the sketch resolves.
    n_columns : int
        Coordinates, or numbers and free shares of a table with labels.
    n_lines : int
        Coordinates, or numbers of a table with labels whose frequencies know them.
    energy : float
        Mean square of the factors of labels.
    """

    design: Design
    variance: float
    n_numbers: float
    unknowns: float
    finest: float
    n_columns: int
    n_lines: int
    energy: float = 1.0

    @classmethod
    def of(cls, sketch: Sketch, n_records: float) -> _Resolution:
        design = sketch.design
        noise = sketch.noise_variance + sketch.masking_variance
        if design.cells is not None:
            dim = design.dim
            return cls(design, noise, 1.0, 1 / design.n_features, resolution(design), dim, dim)
        signs = SIGN_VARIANCE if design.mapping.dithered else 0.0
        sampling = n_records / 2 * sketch.repetition * (1 + signs)
        n_columns, n_lines, energy = design.dim, design.dim, 1.0
        layout = layout_of(design.schema, design.domain.center_vector)
        if layout is not None:
            n_columns = len(layout.numbers) + int(layout.ends[-1]) - len(layout.blocks)
        space = mixed_space(design.domain, design.frequencies.columns)
        if space is not None:
            n_lines, energy = max(space.n_numbers, 1), space.energy()
        variance, m, finest = noise + sampling, design.n_features, resolution(design)
        return cls(design, variance, m, n_columns + 1, finest, n_columns, n_lines, energy)

    def _overlap(self, width: float) -> float:
        """Return the chance that two records of a cluster are in one cell."""
        sides = cell_sides(self.design)
        spread = np.sqrt(4 * math.pi * (width**2 + sides**2 / 12))
        return float(np.minimum(sides / spread, 1.0).prod())

    def gain(self, n_records: float, width: float) -> float:
        """Return how much a cluster lowers the squared residual, in units of its variance."""
        design = self.design
        if design.cells is not None:
            overlap = n_records * self._overlap(width)
            return n_records * overlap / (self.variance + overlap)
        law = design.frequencies
        share = self.energy * energy_share(law.law, law.radial_law, width, self.n_lines)
        return n_records**2 * design.n_features * share / self.variance

    def center_error(self, n_records: float, width: float) -> float:
        """Return the squared error of an isolated cluster's center, over its squared width."""
        design = self.design
        if design.cells is not None:
            return 2 * design.dim / self.gain(n_records, width)
        law = design.frequencies
        band = self.energy * band_share(law.law, law.radial_law, width, self.n_lines)
        information = n_records**2 * design.n_features * band
        return self.variance * self.n_lines / max(information, 1e-300)


# From 878 random studies of Fourier and one-bit sketches, and 282 of cells; a quarter have skewed
# columns. For a kind of records that was left out of the calibration, intervals covered 0.90 and
# 0.87 of the ratios, and rank correlations were 0.88 and 0.86. For clusters far below the
# resolution of a sketch they covered two thirds.
WAVES = Calibration(
    constant=0.6693,
    weights={
        "error": 0.2828,
        "fisher": 0.1798,
        "stands out": -0.1627,
        "unexplained": 0.2089,
        "fill": 0.2868,
        "columns": 0.162,
        "skew": 0.3045,
    },
    scores=(-4.5552, -3.7682, -3.1011, -2.3851, -1.6789, -0.8096, 0.8776, 1.4807),
    low=(-0.0043, 0.0011, 0.0057, 0.0164, 0.0405, 0.1095, 0.2943, 0.3585),
    middle=(0.0042, 0.0139, 0.0568, 0.0977, 0.1846, 0.4196, 0.889, 1.7732),
    high=(0.0314, 0.1342, 0.4049, 0.6501, 1.3923, 3.0615, 4.6664, 6.0459),
)
# From 396 random tables with categories and flags. Intervals covered 0.89 of the ratios of tables
# that were left out, and between 0.85 and 0.96 of a kind of tables that was left out.
MIXED = Calibration(
    constant=-0.5053,
    weights={
        "error": 0.1218,
        "fisher": 0.238,
        "hopeless": 0.0071,
        "stands out": -0.4971,
        "unexplained": 0.0581,
        "columns": 0.0345,
    },
    scores=(-5.527, -5.1511, -4.4708, -3.5305, -2.2285, -0.8725, 0.4208, 1.2817),
    low=(-0.0156, -0.0156, -0.0156, -0.0156, -0.0013, 0.0629, 0.2707, 0.6063),
    middle=(0.0004, 0.0021, 0.0103, 0.026, 0.0943, 0.4186, 0.9438, 1.4103),
    high=(0.006, 0.0409, 0.0867, 0.1359, 0.5797, 1.4724, 2.3929, 2.7173),
)
CELLS = Calibration(
    constant=-0.9864,
    weights={
        "error": 0.127,
        "hopeless": 0.0216,
        "stands out": -0.2674,
        "unexplained": 0.0438,
        "fill": 0.2682,
        "fineness": -1.6324,
        "columns": 0.3923,
        "skew": 1.1324,
    },
    scores=(-5.1408, -4.3813, -3.2427, -2.608, -1.7687, -1.0787, 0.0951, 1.7968),
    low=(-0.0094, -0.0091, -0.0091, 0.0018, 0.0276, 0.0928, 0.2596, 0.4075),
    middle=(0.0003, 0.0058, 0.0136, 0.088, 0.23, 0.4563, 0.8942, 1.5151),
    high=(0.0179, 0.1371, 0.2906, 0.4664, 1.0537, 2.8145, 4.1101, 6.1273),
)
