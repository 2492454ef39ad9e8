"""Axis-parallel Gaussians and an even background, fitted to the counts of boxes.

The descent has each unknown in units of its error, as the counts know it with the others held:
weights, centers and widths then have curvatures of order one. Weights are not logarithms, so that
a component can lose all of its records and come back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privsketch._base.types import Bits, Floats, Indices
from privsketch.learning.cells.likelihood import Likelihood
from privsketch.learning.cells.masses import Partition
from privsketch.learning.quasi_newton import minimise

NARROWEST = 0.1  # width over the shortest interval: a narrower one changes no count
WIDEST = 0.6  # width over the extent of the domain: a wider one is like the background
LONGEST = 0.5  # step in widths: beyond it the curvature at the start tells nothing
# Widths of a component along the axes, and those of all components, are alike up to such factors,
# in logarithms: a little more evidence is asked for needles and for mixtures of all sizes.
ELONGATED, UNEQUAL = 0.25, 0.5
NEGLIGIBLE = 1e-5  # relative fall of -log p in an iteration that is not worth going on for


@dataclass(frozen=True)
class Components:
    """Gaussians and a background; weights are in records.

    `weights` has one number more than there are Gaussians: the background comes last.
    """

    weights: Floats  # (size + 1,)
    centers: Floats  # (size, dim)
    widths: Floats  # (size, dim)

    @property
    def size(self) -> int:
        """Number of Gaussians."""
        return len(self.centers)

    def subset(self, keep: Indices | Bits) -> Components:
        """Some of the Gaussians, and the background."""
        weights = np.append(self.weights[:-1][keep], self.weights[-1])
        return Components(weights, self.centers[keep], self.widths[keep])


@dataclass(frozen=True)
class Fit:
    """Components, the counts that they expect, and -log p of the counts there are."""

    components: Components
    expected: Floats
    value: float


def expected_counts(partition: Partition, components: Components) -> Floats:
    """(n_boxes,) records that the components expect in every box."""
    factors = partition.factors(components.centers, components.widths)
    return partition.sums(components.weights, factors)


def value_and_gradient(
    partition: Partition, likelihood: Likelihood, components: Components
) -> tuple[float, Components]:
    """-log p, and its derivatives by weights, centers and logarithms of widths."""
    slopes = partition.slopes(components.centers, components.widths)
    value, q = likelihood.value_and_slope(partition.sums(components.weights, slopes.values))
    sums = partition.contract(q, slopes.values)
    along = slice(0, partition.begins[1])  # any axis will do
    by_weight = np.einsum("ij,ij->i", sums[:, along], slopes.values[:, along])
    weights = components.weights[:-1, None]
    by_center = weights * partition.along_axes(sums * slopes.by_center)[:-1]
    by_log_width = weights * partition.along_axes(sums * slopes.by_log_width)[:-1]
    charge, slope = _shape_charge(np.log(components.widths / (partition.high - partition.low)))
    return value + charge, Components(by_weight, by_center, by_log_width + slope)


def _shape_charge(logs: Floats) -> tuple[float, Floats]:
    """-log of a prior of widths over extents, and its derivative: most are alike in all directions.

    Both deviations have Laplace tails, so that a few long or narrow components cost little more
    than the counts must say in favour of them anyway.
    """
    size, dim = logs.shape
    over = np.full((dim, 1), 1 / dim)  # products with it are means, at a fraction of the overhead
    own = logs @ over
    deviations = (logs - own) / ELONGATED
    sizes = (own - own.sum() / size) / UNEQUAL
    one, other = np.sqrt(1 + deviations**2), np.sqrt(1 + sizes**2)
    value = float((one - 1).sum() + (other - 1).sum())
    slope = deviations / one / ELONGATED
    slope -= slope @ over
    by_size = sizes / other / UNEQUAL
    return value, slope + (by_size - by_size.sum() / size) / dim


def _units(partition: Partition, likelihood: Likelihood, components: Components) -> Components:
    """Errors of weights, centers and logarithms of widths, each with all others held."""
    slopes = partition.slopes(components.centers, components.widths)
    squares = slopes.values**2
    sums = partition.contract(likelihood.information, squares)
    along = slice(0, partition.begins[1])
    tiny = 1e-12 / float(likelihood.variance.max())
    of_weights = 1 / np.sqrt(np.einsum("ij,ij->i", sums[:, along], squares[:, along]) + tiny)
    # A component without records would be anywhere: it counts as many as noise would give it.
    inverse = 1 / np.maximum(components.weights[:-1], of_weights[:-1])[:, None]
    centers = partition.along_axes(sums * slopes.by_center**2)[:-1]
    widths = partition.along_axes(sums * slopes.by_log_width**2)[:-1]
    shortest = LONGEST * components.widths
    of_centers = inverse / np.sqrt(np.maximum(centers, (inverse / shortest) ** 2))
    of_widths = inverse / np.sqrt(np.maximum(widths, (inverse / LONGEST) ** 2))
    return Components(of_weights, of_centers, of_widths)


def _vector(components: Components) -> Floats:
    parts = (components.weights, components.centers.ravel(), components.widths.ravel())
    return np.concatenate(parts)


def fit(partition: Partition, likelihood: Likelihood, start: Components, n_iterations: int) -> Fit:
    """The components that a descent from `start` leads to."""
    size, dim = start.centers.shape
    finest, extent = partition.finest, partition.high - partition.low
    narrowest, widest = np.log(NARROWEST * finest), np.log(WIDEST * extent)
    widths = np.clip(start.widths, NARROWEST * finest, WIDEST * extent)
    start = Components(start.weights, np.clip(start.centers, partition.low, partition.high), widths)
    units = _vector(_units(partition, likelihood, start))
    logs = Components(start.weights, start.centers, np.log(widths))
    most = np.full(size + 1, np.inf)
    shape = (size, dim)
    bounds = [
        Components(np.zeros(size + 1), *(np.broadcast_to(x, shape) for x in lowest))
        for lowest in ((partition.low, narrowest), (partition.high, widest))
    ]
    low = _vector(bounds[0]) / units
    high = np.concatenate([most, _vector(bounds[1])[size + 1 :]]) / units

    def components_at(x: Floats) -> Components:
        weights, centers, logs = np.split(x * units, [size + 1, size + 1 + size * dim])
        return Components(weights, centers.reshape(shape), np.exp(logs).reshape(shape))

    def objective(x: Floats) -> tuple[float, Floats]:
        value, gradient = value_and_gradient(partition, likelihood, components_at(x))
        return value, _vector(gradient) * units

    x = np.clip(_vector(logs) / units, low, high)
    x, value, _ = minimise(
        objective, x, low, high, n_iterations=n_iterations, negligible=NEGLIGIBLE
    )
    found = components_at(x)
    return Fit(found, expected_counts(partition, found), value)
