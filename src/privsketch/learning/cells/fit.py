"""Fit of axis-parallel Gaussians and a uniform background to the counts of boxes.

The descent scales each unknown by its error with the other unknowns fixed. Weights, centers and
widths then have curvatures of order one. Weights are not fitted as logarithms, so that a component
can lose all of its records and regain them.

A released count differs from the expected one by sampling, nearly Gaussian of variance `lam`, and
by noise that is Laplace of scale b, or a sum of a few such draws. Its tails fall like exp(-|r| / b)
and its middle is rounded off. The hyperbolic law

    -log p(r) = sqrt(delta^2 + r^2 / b^2) - delta + constant

has these tails, and its variance b^2 (2 + delta K0(delta) / K1(delta)) determines delta. It changes
from Laplace to Gaussian as sampling dominates, and takes one square root. Least squares would waste
up to half of the information, because a Laplace law of variance 2 b^2 has the information 1 / b^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import k0e, k1e

from privsketch._base.types import Bits, Floats, Indices
from privsketch.kernels.masses import REACH, SQUARES
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.partition import Masses, Partition, in_space
from privsketch.learning.quasi_newton import minimise

# Interpolation gives delta to within 1e-3; beyond the table the variance is delta + 3/2.
_LAW_DELTAS = np.concatenate([[0.0], np.geomspace(1e-4, 100.0, 400)])
_LAW_VARIANCES = np.concatenate(
    [[2.0], 2 + _LAW_DELTAS[1:] * k0e(_LAW_DELTAS[1:]) / k1e(_LAW_DELTAS[1:])]
)
MIN_DELTA = 0.3  # a sharper edge hinders descents and adds little information
MIN_SAMPLING_VARIANCE = 0.25  # in an empty box: counts are integers
MIN_RELATIVE_WIDTH = 0.1  # of the shortest interval: narrower components change no count
MAX_RELATIVE_WIDTH = 0.6  # of the extent of the domain: wider components resemble the background
MAX_SHARE = 2.0  # shares are normalised after each descent: their scale is that of the weight
MAX_LOG_STEP = 0.5  # step in log widths beyond which the curvature at the start says nothing
# Prior scales of log widths, along the axes of a component and between components: needles and
# mixtures of very different sizes need a little more evidence.
ELONGATION_SCALE, SIZE_SCALE = 0.25, 0.5
MIN_LIKELIHOOD_FALL = 1e-5  # relative fall of -log p per iteration that is worth continuing for
NEAR = 4.0  # widths in which boxes count for products of components: all but 6e-5 of the mass
MIN_LOG_SCALE = 0.15  # of log weights: noise alone makes equal weights differ by as much


@dataclass(frozen=True)
class Likelihood:
    """Law of the counts given the expected counts.

    Attributes
    ----------
    counts : (n_boxes,) float64
    squared_scale : (n_boxes,) float64
        Squared scale b^2 of one draw of noise.
    rounding : (n_boxes,) float64
        Product delta b^2, close to the variance where the law is Gaussian.
    variance : (n_boxes,) float64
        Variance of noise and sampling together.
    information : (n_boxes,) float64
        Fisher information of a count about the expected count, an inverse variance.
    """

    counts: Floats
    squared_scale: Floats
    rounding: Floats
    variance: Floats
    information: Floats

    def value_and_slope(self, expected: Floats) -> tuple[float, Floats]:
        """Return -log p of all counts, and its derivative by each expected count."""
        residuals = expected - self.counts
        root = np.sqrt(self.rounding**2 + residuals * residuals * self.squared_scale)
        return float((residuals * residuals / (root + self.rounding)).sum()), residuals / root


def likelihood_of(boxes: Boxes, guess: Floats) -> Likelihood:
    """Return the law of the counts; the expected counts `guess` set their sampling variance."""
    sampling = np.maximum(guess, MIN_SAMPLING_VARIANCE)
    variance = boxes.variance + sampling
    squared_scale = boxes.variance / (2 * boxes.n_noises)
    ratio = variance / np.maximum(squared_scale, 1e-12 * variance)
    delta = np.where(
        ratio < _LAW_VARIANCES[-1], np.interp(ratio, _LAW_VARIANCES, _LAW_DELTAS), ratio - 1.5
    )
    rounding = np.maximum(delta, MIN_DELTA) * np.maximum(squared_scale, 1e-12 * variance)
    # Exact for Laplace and for Gaussian noise, and within a few percent between them.
    information = 1 / (variance - squared_scale)
    return Likelihood(boxes.counts, squared_scale, rounding, variance, information)


def log_chances(detail: Floats, spread: Floats, scale: Floats) -> Floats:
    """Return -log of the chances that noise makes such differences; 0 for a single box."""
    tiny = np.finfo(float).tiny
    with np.errstate(over="ignore"):  # without noise no chance is too small to be infinite
        gaussian = detail**2 / np.maximum(2 * spread, tiny)
        laplace = np.abs(detail) / np.sqrt(np.maximum(scale, tiny))
    return np.asarray(np.minimum(gaussian, laplace))


@dataclass(frozen=True)
class Components:
    """Gaussians and a background, which has the last weight; weights are in records."""

    weights: Floats  # (size + 1,)
    centers: Floats  # (size, dim); along axes of labels centers and widths mean nothing
    widths: Floats  # (size, dim)
    shares: Floats  # (size, n_labels) of the labels of all axes of labels

    @property
    def size(self) -> int:
        """Number of Gaussians."""
        return len(self.centers)

    def subset(self, keep: Indices | Bits) -> Components:
        """Return some of the Gaussians, and the background."""
        weights = np.append(self.weights[:-1][keep], self.weights[-1])
        return Components(weights, self.centers[keep], self.widths[keep], self.shares[keep])


@dataclass(frozen=True)
class Fit:
    """Components, their expected counts, and -log p of the released counts.

    `n_unknowns` does not count weights of components.
    """

    components: Components
    expected: Floats
    value: float
    n_unknowns: int


def masses_of(partition: Partition, components: Components, reach: float = REACH) -> Masses:
    """Return the masses of components in boxes."""
    shapes = components.centers, components.widths, components.shares
    return Masses(partition, *shapes, reach=reach)


def expected_counts(partition: Partition, components: Components) -> Floats:
    """Return the expected number of records in each box, (n_boxes,)."""
    return masses_of(partition, components).sums(components.weights)


def value_and_gradient(
    partition: Partition,
    likelihood: Likelihood,
    components: Components,
    tables: Floats | None = None,
) -> tuple[float, Components]:
    """Return -log p and its derivatives by weights, centers, logarithms of widths and shares."""
    shapes = components.centers, components.widths, components.shares
    masses = Masses(partition, *shapes, tables=tables)
    value, q = likelihood.value_and_slope(masses.sums(components.weights))
    by_weight, by_center, by_log_width, by_share = masses.contract(q)
    weights = components.weights[:-1, None]
    by_center, by_log_width, by_share = (
        weights * values for values in (by_center, by_log_width, by_share)
    )
    numbers, extent = partition.numbers, partition.high - partition.low
    if len(numbers) > 0:
        penalty, slope = _shape_penalty(np.log((components.widths / extent)[:, numbers]))
        value, by_log_width[:, numbers] = value + penalty, by_log_width[:, numbers] + slope
    return value, Components(by_weight, by_center, by_log_width, by_share)


def _shape_penalty(logs: Floats) -> tuple[float, Floats]:
    """Return -log of the prior of widths over extents, and its derivative.

    Deviations have Laplace tails, so that a few long or narrow components cost little.
    """
    size, dim = logs.shape
    average = np.full((dim, 1), 1 / dim)  # products with it are means, with little overhead
    middle = logs @ average
    deviations = (logs - middle) / ELONGATION_SCALE
    sizes = (middle - middle.sum() / size) / SIZE_SCALE
    shape_root, size_root = np.sqrt(1 + deviations**2), np.sqrt(1 + sizes**2)
    value = float((shape_root - 1).sum() + (size_root - 1).sum())
    slope = deviations / shape_root / ELONGATION_SCALE
    slope -= slope @ average
    by_size = sizes / size_root / SIZE_SCALE
    return value, slope + (by_size - by_size.sum() / size) / dim


def _units(
    partition: Partition, likelihood: Likelihood, components: Components, tables: Floats
) -> Components:
    """Return the error of each unknown if all other unknowns are fixed; widths are log widths."""
    shapes = components.centers, components.widths, components.shares
    squares = Masses(partition, *shapes, mode=SQUARES, tables=tables)
    of_weights, centers, widths, shares = squares.contract(likelihood.information)
    background = float(np.square(partition.shares) @ likelihood.information)
    of_weights[-1] = background
    tiny = 1e-12 / float(likelihood.variance.max())
    of_weights = 1 / np.sqrt(of_weights + tiny)
    # A center without records is undetermined: assume as many as the error of the weight.
    inverse = 1 / np.maximum(components.weights[:-1], of_weights[:-1])[:, None]
    shortest = MAX_LOG_STEP * components.widths
    of_centers = inverse / np.sqrt(np.maximum(centers, (inverse / shortest) ** 2))
    of_widths = inverse / np.sqrt(np.maximum(widths, (inverse / MAX_LOG_STEP) ** 2))
    of_shares = inverse / np.sqrt(np.maximum(shares, inverse**2))
    return Components(of_weights, of_centers, of_widths, of_shares)


def _vector(components: Components) -> Floats:
    parts = (components.centers.ravel(), components.widths.ravel(), components.shares.ravel())
    return np.concatenate([components.weights, *parts])


def fit(partition: Partition, likelihood: Likelihood, start: Components, n_iterations: int) -> Fit:
    """Descend from `start`; return the fit at the end."""
    size, dim = start.centers.shape
    # Neighbours follow each other: they share a group of the compiled code.
    start = start.subset(_in_space(start))
    tables = partition.tables(size)
    finest, extent = partition.finest, partition.high - partition.low
    narrowest, widest = np.log(MIN_RELATIVE_WIDTH * finest), np.log(MAX_RELATIVE_WIDTH * extent)
    widths = np.clip(start.widths, MIN_RELATIVE_WIDTH * finest, MAX_RELATIVE_WIDTH * extent)
    centers = np.clip(start.centers, partition.low, partition.high)
    start = Components(start.weights, centers, widths, start.shares)
    units = _vector(_units(partition, likelihood, start, tables))
    logs = Components(start.weights, start.centers, np.log(widths), start.shares)
    shape = (size, dim)

    def bound(weight: float, center: Floats, log_width: Floats, share: float) -> Floats:
        centers, widths = (np.broadcast_to(limit, shape) for limit in (center, log_width))
        shares = np.full_like(start.shares, share)
        return _vector(Components(np.full(size + 1, weight), centers, widths, shares)) / units

    low = bound(0.0, partition.low, narrowest, 0.0)
    high = bound(np.inf, partition.high, widest, MAX_SHARE)

    def components_at(x: Floats) -> Components:
        ends = np.cumsum([size + 1, size * dim, size * dim])
        weights, centers, logs, shares = np.split(x * units, ends)
        return Components(
            weights, centers.reshape(shape), np.exp(logs).reshape(shape), shares.reshape(size, -1)
        )

    def objective(x: Floats) -> tuple[float, Floats]:
        value, gradient = value_and_gradient(partition, likelihood, components_at(x), tables)
        return value, _vector(gradient) * units

    x = np.clip(_vector(logs) / units, low, high)
    x, value, _ = minimise(
        objective, x, low, high, n_iterations=n_iterations, negligible=MIN_LIKELIHOOD_FALL
    )
    end = components_at(x)
    weights, shares = partition.normalised(end.weights, end.shares)
    components = Components(weights, end.centers, end.widths, shares)
    shapes = components.centers, components.widths, components.shares
    expected = Masses(partition, *shapes, tables=tables).sums(components.weights)
    n_unknowns = size * (2 * len(partition.numbers) + partition.n_free_shares)
    return Fit(components, expected, value, n_unknowns + int(weights[-1] > 0))


def _in_space(components: Components) -> Indices:
    """Return an order of components in which neighbours follow each other."""
    n_parts = 2 ** max(0, math.ceil(math.log2(max(components.size, 1) / 4)))
    unit = np.maximum(np.ptp(components.centers, axis=0), 1e-300)
    return in_space(components.centers / unit, n_parts)[0]


def criterion(fit: Fit) -> float:
    """Return twice -log p of the counts, plus the cost of the unknowns.

    Centers and widths cost a nat each (Akaike). Log weights have a Laplace prior around their
    median, with their mean deviation as its scale. A small component is thus probably noise among
    components of equal size, and probably real among components of all sizes.
    """
    components = fit.components
    logs = np.log(np.maximum(components.weights[:-1], 1.0))
    deviations = np.abs(logs - np.median(logs)) if len(logs) else logs
    scale = max(float(deviations.mean()) if len(logs) else 0.0, MIN_LOG_SCALE)
    penalty = float(deviations.sum()) / scale + len(logs) * math.log(2 * scale)
    return 2 * (fit.value + fit.n_unknowns + penalty)
