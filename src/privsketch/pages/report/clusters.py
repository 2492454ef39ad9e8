"""The report's content about clusters and mixtures that were learned from a sketch.

Clusters and Gaussian components are both centers with shares, shapes and errors, and
both come from a fitted mixture that predicts the sketch. Plots are inline SVG, drawn with
matplotlib.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.domain import Domain
from privsketch.features.waves import HARMONICS, SIGN_VARIANCE
from privsketch.models.base import diagonal_matrices
from privsketch.models.clusters import ClusterModel, CostRatio
from privsketch.models.drawing.axes import GREY, LEGEND, PALETTE, axis_of, cluster_colors
from privsketch.models.drawing.centers import axis_columns, draw_pair, label_axis
from privsketch.models.drawing.moments import draw_moduli
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.pages.report.fields import parts_of
from privsketch.pages.report.rendering import (
    Content,
    Plots,
    model_domain,
    record_card,
    require_own_sketch,
    svg_of,
)
from privsketch.pages.report.tables import tables_of
from privsketch.sketching.sketch import Sketch

if TYPE_CHECKING:
    from markupsafe import Markup

_NOUNS = {"cluster": "clusters", "component": "Gaussian mixture"}
MAX_PAIR_COLUMNS = 4  # columns drawn in pairs: six pairs are two rows of three plots


def cluster_content(
    model: ClusterModel | GaussianMixtureModel, sketch: Sketch | None, *, with_plots: bool
) -> Content:
    """Return the parts of the page about clusters or components that explain a sketch."""
    picture = picture_of(model)
    require_own_sketch(model, sketch)
    domain = model_domain(model, sketch)
    return Content(
        template="clusters.html",
        noun=_NOUNS[picture.noun],
        cards=[
            (f"{picture.size}", picture.noun if picture.size == 1 else f"{picture.noun}s"),
            record_card(model, sketch),
            _quality_card(picture),
        ],
        remark=_remark(picture),
        public_fact="where the clusters lie",
        values={
            "tables": tables_of(parts_of(model, domain)),
            "plots": _center_plots(picture, domain) if with_plots else [],
            "misfit": picture.misfit,
            "fit": _fit_plots(picture, sketch) if with_plots and sketch is not None else None,
        },
    )


def _quality_card(picture: Picture) -> tuple[str, str]:
    """Return how good the parts are: the cost of clusters, the fit of components."""
    ratio = picture.cost_ratio
    if ratio is None:
        return f"{picture.misfit:.2f}", "misfit, relative to noise and sampling"
    estimate, low, high = ratio.texts
    return estimate, f"times the k-means cost on the records themselves ({low} to {high})"


def _remark(picture: Picture) -> str:
    verdict = "explain the sketch: the misfit is no larger than noise and sampling explain."
    if not picture.is_explained:
        verdict = (
            "explain most of the sketch. The misfit is a little larger than noise and sampling "
            "explain, because records are not exactly Gaussian."
        )
    cost = picture.cost_ratio
    quality = "" if cost is None else f" Their k-means cost is {cost.describe()}."
    return f"The {picture.noun}s {verdict}{quality}"


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians: shares (p,), means (p, dim), covariances (p, dim, dim)."""

    weights: Floats
    means: Floats
    covariances: Floats


@dataclass(frozen=True, eq=False)
class Picture:
    """A model of a sketch, of any kind, with the numbers that plots need.

    Attributes
    ----------
    model : ClusterModel or GaussianMixtureModel
    noun : str
        Name of one part: cluster or component.
    centers : (size, dim) float64
    covariances : (size, dim, dim) float64
        Shape of every part.
    mixture : Mixture
        The fitted density.
    expected_residual, residual_spread : float
        Mean and standard deviation of the residual under noise and sampling alone.
    """

    model: ClusterModel | GaussianMixtureModel
    noun: str
    centers: Floats
    covariances: Floats
    mixture: Mixture
    expected_residual: float
    residual_spread: float

    @property
    def misfit(self) -> float:
        """Residual over its expectation."""
        return (self.model.residual or 0.0) / self.expected_residual

    @property
    def is_explained(self) -> bool:
        """Whether noise and sampling account for the residual."""
        limit = self.expected_residual + 4 * self.residual_spread
        return (self.model.residual or 0.0) <= limit

    @property
    def cost_ratio(self) -> CostRatio | None:
        """Cost of clusters relative to k-means on the records."""
        return self.model.cost_ratio if isinstance(self.model, ClusterModel) else None

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.centers)

    @property
    def axis_widths(self) -> Floats:
        """(size, dim) standard deviations along the axes."""
        return np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))

    def moments(self, sketch: Sketch, multiple: int = 1) -> npt.NDArray[np.complex128]:
        """Return the mixture's prediction of `sketch.moments()`, (n_features,).

        Harmonics are moments at a `multiple` of the frequencies.
        """
        frequencies = multiple * sketch.design.radians()
        means = self.mixture.means - sketch.design.domain.center_vector
        result = np.zeros(len(frequencies), dtype=np.complex128)
        parts = zip(self.mixture.weights, means, self.mixture.covariances, strict=True)
        for weight, mean, covariance in parts:
            damping = np.einsum("md,de,me->m", frequencies, covariance, frequencies) / 2
            result += weight * self.model.n_records * np.exp(1j * (frequencies @ mean) - damping)
        return result

    def expected_variances(self, sketch: Sketch) -> Floats:
        """Return variances of noise and sampling per real component of the moments, (n_features,).

        A sum of n unit phasors of mean phi has the variance n (1 - |phi|^2), half of it along
        each axis. Signs have harmonics, which the dither turns into noise as well: the
        harmonic of order h has the amplitude 1 / h of the first.
        """
        n_records = max(self.model.n_records, 1.0)
        modulus = np.minimum(np.abs(self.moments(sketch)) / n_records, 1.0)
        variances = sketch.noise_variance + n_records * (1 - modulus**2) / 2
        if sketch.design.mapping.dithered:
            variances = variances + n_records * SIGN_VARIANCE / 2
            for order in HARMONICS:
                variances += np.abs(self.moments(sketch, order) / order) ** 2 / 2
        return np.asarray(variances)


def picture_of(model: ClusterModel | GaussianMixtureModel) -> Picture:
    """Return the numbers of a model that reports and plots need."""
    if isinstance(model, ClusterModel) and model.density is not None:
        density = model.density
        mixture = Mixture(
            density.mixture_weights,
            density.mixture_means,
            diagonal_matrices(density.mixture_widths**2),
        )
        shapes = diagonal_matrices(density.axis_widths**2)
        residual = density.expected_residual, density.residual_spread
        return Picture(model, "cluster", model.centers, shapes, mixture, *residual)
    if isinstance(model, GaussianMixtureModel) and model.expected_residual is not None:
        shapes, expected = model.covariance_matrices(), model.expected_residual
        mixture = Mixture(model.weights, model.means, shapes)
        spread = math.sqrt(2 * expected)  # of chi-square
        return Picture(model, "component", model.means, shapes, mixture, expected, spread)
    raise ParameterError(
        f"report: expected a model of a sketch, got {type(model).__name__} of none"
    )


def _pair_plots(picture: Picture, low: Floats, high: Floats) -> tuple[Markup, ...]:
    """Draw centers in every pair of the columns that separate them most, with ellipses."""
    shown = _separating_columns(picture, MAX_PAIR_COLUMNS)
    pairs = [(a, b) for i, a in enumerate(shown) for b in shown[i + 1 :]]
    return tuple(_pair_plot(picture, a, b, low, high) for a, b in pairs)


def _pair_plot(picture: Picture, a: int, b: int, low: Floats, high: Floats) -> Markup:
    figure, axis = axis_of(3.1, 2.9)
    shapes = picture.covariances[:, [a, b]][:, :, [a, b]]
    draw_pair(axis, picture.centers[:, [a, b]], picture.model.weights, shapes)
    for which, coordinate in (("x", a), ("y", b)):
        limits = _window(picture, coordinate, low, high)
        label_axis(axis, which, picture.model, coordinate, limits)
    names = picture.model.column_names
    return svg_of(figure, f"pair-{a}-{b}", f"Centers in {names[a]} and {names[b]}")


def _separating_columns(picture: Picture, count: int) -> list[int]:
    """Return the columns in which centers differ most, in units of the clusters' width."""
    weights, drawn = picture.model.weights, axis_columns(picture.model)
    mean = weights @ picture.centers
    spread = np.sqrt(weights @ (picture.centers - mean) ** 2)
    within = np.sqrt(weights @ picture.axis_widths**2)
    separation = spread / np.maximum(within, 1e-9 * (1 + np.abs(mean)))
    return sorted([int(j) for j in np.argsort(-separation) if int(j) in drawn][:count])


def _window(picture: Picture, column: int, low: Floats, high: Floats) -> tuple[float, float]:
    """Return the range of the clusters, with a margin, inside the domain."""
    edge = 0.04 * (high[column] - low[column])
    margin = 3 * picture.axis_widths[:, column].max() + edge
    values = picture.centers[:, column]
    bottom = max(low[column] - edge, values.min() - margin)
    return bottom, min(high[column] + edge, values.max() + margin)


def _line_plot(picture: Picture, low: Floats, high: Floats) -> Markup:
    """Draw the fitted density of records of one column, and the centers on it."""
    figure, axis = axis_of(7.5, 2.6)
    if picture.model.schema is not None:  # the axis shows the public bounds
        window = float(low[0]), float(high[0])
    else:
        window = _window(picture, 0, low, high)
    grid = np.linspace(*window, 600)
    mixture = picture.mixture
    widths = np.maximum(np.sqrt(mixture.covariances[:, 0, 0]), (window[1] - window[0]) / 600)
    bells = np.exp(-(((grid[:, None] - mixture.means[:, 0]) / widths) ** 2) / 2) / widths
    axis.fill_between(grid, bells @ mixture.weights, color=GREY, alpha=0.35, lw=0)
    for center, color in zip(picture.centers[:, 0], cluster_colors(picture.size), strict=True):
        axis.axvline(center, color=color, linewidth=2)
    axis.set_yticks([])
    label_axis(axis, "x", picture.model, 0)
    return svg_of(figure, "line", "Centers and fitted density")


def _fit_plots(picture: Picture, sketch: Sketch) -> Plots:
    """Draw released numbers against the model, and residuals against the expected noise."""
    heading = "Does the model explain the sketch?"
    if sketch.design.cells is not None:
        figure, axis = axis_of(4.6, 3.1)
        sketch.plot(axis)
        svg = svg_of(figure, "cells", "Released numbers of records in the cells")
        return Plots(heading, (svg,))
    observed, predicted = sketch.moments(), picture.moments(sketch)
    residuals = (observed - predicted) / np.sqrt(picture.expected_variances(sketch))
    svgs = (_modulus_plot(picture, sketch, observed, predicted), _residual_plot(residuals))
    return Plots(heading, svgs, is_row=True)


def _modulus_plot(
    picture: Picture,
    sketch: Sketch,
    observed: npt.NDArray[np.complex128],
    predicted: npt.NDArray[np.complex128],
) -> Markup:
    scale = max(picture.model.n_records, 1.0)
    norms = np.linalg.norm(sketch.design.radians(), axis=1)
    figure, axis = axis_of(4.6, 3.1)
    draw_moduli(axis, norms, np.abs(observed) / scale, encoded=picture.model.schema is not None)
    axis.scatter(norms, np.abs(predicted) / scale, s=6, color=PALETTE[0], lw=0, label="model")
    axis.legend(**LEGEND)
    return svg_of(figure, "fit", "Released numbers and those of the model")


def _residual_plot(residuals: npt.NDArray[np.complex128]) -> Markup:
    """Draw a histogram of residuals in units of their expected standard deviation."""
    figure, axis = axis_of(4.6, 3.1)
    values = np.concatenate([residuals.real, residuals.imag])
    edge = max(4.0, float(np.abs(values).max(initial=0.0)) * 1.02)
    bins = np.linspace(-edge, edge, 41)
    bars = {"density": True, "color": GREY, "alpha": 0.6}
    axis.hist(values, bins=bins, label="sketch minus model", **bars)
    grid = np.linspace(-edge, edge, 400)
    bell = np.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    axis.plot(grid, bell, color=PALETTE[1], label="noise and sampling, at most")
    axis.set_xlabel("standard deviations of expected noise and sampling")
    axis.set_yticks([])
    axis.legend(**LEGEND)
    return svg_of(figure, "rest", "Residuals of the model and the expected noise")


def _center_plots(picture: Picture, domain: Domain | None) -> list[Plots]:
    """Draw the centers; with a schema, only numbers and dates have an axis."""
    if domain is None:
        margin = 4 * picture.axis_widths  # of a Gaussian next to nothing is further out
        low = (picture.centers - margin).min(axis=0)
        high = (picture.centers + margin).max(axis=0)
    else:
        low = domain.center_vector - domain.half_widths
        high = domain.center_vector + domain.half_widths
    n_drawn = len(axis_columns(picture.model))
    if picture.model.dim == 1 and n_drawn == 1:
        return [Plots("Centers and density", (_line_plot(picture, low, high),))]
    if n_drawn > 1:
        svgs = _pair_plots(picture, low, high)
        return [Plots("Centers in pairs of columns", svgs, is_row=True)]
    return []
