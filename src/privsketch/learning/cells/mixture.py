"""Gaussian mixtures from sketches of cells, fitted to a density that explains the counts.

The decoder finds a density of axis-parallel Gaussians over a background, and corrects it by the
counts. Public samples of that density represent the records; their weights give each box its
estimated number of records. Rounds of EM then find the mixture of the requested size and shape.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from privsketch._base.errors import ParameterError
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, decode_cells
from privsketch.learning.mixture.decoder import MixtureSolution
from privsketch.learning.mixture.gaussians import Gaussians
from privsketch.learning.mixture.samples import (
    log_densities,
    maximise_likelihood,
    responsibilities_of,
)

_N_SAMPLES = 12_000  # samples: a component of a hundredth of the records gets a hundred
_MIN_EM_WIDTH = 0.02  # in sides of a box: counts show nothing finer
_NODES = (6, 5, 3)  # quadrature nodes along an axis for 1, 2 and 3 columns; 2 for more


def decode_mixture_of_cells(
    boxes: Boxes, n_components: int, covariance_type: CovarianceType, rng: np.random.Generator
) -> MixtureSolution:
    """Fit a Gaussian mixture to noisy counts, with standard errors."""
    if boxes.is_label.any():
        raise ParameterError(
            "a Gaussian mixture from cells of labels: mixtures are learned from cells of numbers; "
            "plan a design with `feature_map='fourier'`"
        )
    solution = decode_cells(boxes, n_components, rng)
    with one_thread():
        points, weights, box = _weighted_samples(boxes, solution, rng)
        min_variance = (_MIN_EM_WIDTH * float((boxes.high - boxes.low).min())) ** 2
        fits = [
            maximise_likelihood(points, weights, start, covariance_type, min_variance)
            for start in _initial_responsibilities(points, solution, n_components)
        ]
        gaussians = max(fits, key=lambda fit: fit[1])[0].in_order()
        responsibilities = responsibilities_of(points, gaussians)[0]
        expected = _expected_counts(boxes, gaussians)
        variance = boxes.variance + np.maximum(expected, 0.0)
        misfit = float(np.sum(np.square(boxes.counts - expected) / np.maximum(variance, 1e-12)))
    total = max(float(gaussians.weights.sum()), 1e-300)
    unknowns = mixture_unknowns(n_components, boxes.dim, covariance_type) + 1
    freedom = max(boxes.n_boxes - unknowns, 1)
    errors = _errors(points, weights, box, responsibilities, gaussians, variance)
    errors *= math.sqrt(max(misfit / freedom, 1.0))
    return MixtureSolution(
        gaussians=gaussians,
        means=gaussians.means,
        standard_errors=errors,
        chi_square=misfit,
        degrees_of_freedom=freedom,
        outside_share=min(max(1 - float(expected.sum()) / total, 0.0), 1.0),
        n_init=len(fits),
    )


def _weighted_samples(
    boxes: Boxes, solution: CellSolution, rng: np.random.Generator
) -> tuple[Floats, Floats, Integers]:
    """Return points (n, dim), the number of records that each represents, and its box."""
    atoms, low, high = solution.density, boxes.low.min(axis=0), boxes.high.max(axis=0)
    parts, sizes = [], []
    n_each = max(50, _N_SAMPLES // (atoms.size + 1)) // 2
    widths = np.sqrt(atoms.axis_variances())
    for weight, center, width in zip(atoms.weights, atoms.centers, widths, strict=True):
        half = rng.standard_normal((n_each, boxes.dim)) * width
        parts.append(center + np.vstack([half, -half]))
        sizes.append(np.full(2 * n_each, weight / (2 * n_each)))
    parts.append(rng.uniform(low, high, (2 * n_each, boxes.dim)))
    sizes.append(np.full(2 * n_each, max(solution.background, 0.0) / (2 * n_each)))
    parts.append(boxes.centers)  # at least one point for every box
    sizes.append(np.full(boxes.n_boxes, 1e-9))
    points = np.clip(np.vstack(parts), low, high)
    box = _cell_numbers(boxes, points)
    weights = np.concatenate(sizes)
    mass = np.bincount(box, weights, minlength=boxes.n_boxes)
    weights = weights * (solution.counts / np.maximum(mass, 1e-300))[box]
    is_relevant = weights > 1e-9 * max(float(weights.sum()), 1e-300)
    return points[is_relevant], weights[is_relevant], box[is_relevant]


def _cell_numbers(boxes: Boxes, points: Floats) -> Integers:
    """Return the number of the cell of a regular grid that each point lies in."""
    cells = [
        np.searchsorted(np.unique(edges), column, side="right") - 1
        for edges, column in zip(boxes.low.T, points.T, strict=True)
    ]
    return np.asarray(np.ravel_multi_index(cells, boxes.shape or (boxes.n_boxes,)), np.int64)


def _initial_responsibilities(
    points: Floats, solution: CellSolution, n_components: int
) -> list[Floats]:
    """Return responsibilities (n, k) to start EM from: by centers, and by the largest atoms."""
    atoms = solution.density
    starts = [solution.centers]
    if atoms.size >= n_components:
        starts.append(atoms.centers[np.argsort(-atoms.weights)[:n_components]])
    responsibilities = []
    for centers in starts:
        distances = np.square(points[:, np.newaxis] - centers).sum(axis=2)
        responsibilities.append(np.eye(n_components)[distances.argmin(axis=1)])
    return responsibilities


def _expected_counts(boxes: Boxes, gaussians: Gaussians) -> Floats:
    """Return the expected number of records in each box, (n_boxes,), by Gauss-Legendre rules."""
    dim = boxes.dim
    n_nodes = _NODES[dim - 1] if dim <= len(_NODES) else 2
    nodes, shares = np.polynomial.legendre.leggauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    rule = np.prod(np.stack(np.meshgrid(*[shares / 2] * dim, indexing="ij"), -1), axis=-1).ravel()
    middle, half = boxes.centers, (boxes.high - boxes.low) / 2
    volume = np.prod(boxes.high - boxes.low, axis=1)
    total = np.zeros(boxes.n_boxes)
    for node, share in zip(grid, rule, strict=True):
        total += share * np.exp(logsumexp(log_densities(middle + node * half, gaussians), axis=1))
    return np.asarray(total * volume)


def _errors(
    points: Floats,
    weights: Floats,
    box: Integers,
    responsibilities: Floats,
    gaussians: Gaussians,
    variance: Floats,
) -> Floats:
    """Return standard errors (k, dim) of the means from the variances of the counts, (n_boxes,).

    One more record in a box moves the mean of a component by s o / n: s is the component's share of
    the box, o the offset of its points there from the mean, n its number of records.
    """
    n_boxes = len(variance)
    box_mass = np.maximum(np.bincount(box, weights, minlength=n_boxes), 1e-300)
    errors = np.empty_like(gaussians.means)
    for k, (mean, mass) in enumerate(zip(gaussians.means, gaussians.weights, strict=True)):
        shares = weights * responsibilities[:, k]
        for axis in range(points.shape[1]):
            offsets = shares * (points[:, axis] - mean[axis])
            by_box = np.bincount(box, offsets, minlength=n_boxes) / box_mass
            errors[k, axis] = math.sqrt(float(np.square(by_box) @ variance)) / max(mass, 1e-300)
    return errors
