"""A Gaussian mixture from a sketch of cells: the one closest to the density that explains it.

The decoder finds a density of axis-parallel Gaussians over a background, and corrects it by the
counts. Public samples of that density stand in for the records; their weights give every box its
estimated number of records. Rounds of EM then find the mixture of the requested size and shape.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers
from privsketch.design.size import CovarianceType, mixture_unknowns
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.decoder import CellSolution, decode_cells
from privsketch.learning.mixture.decoder import MixtureSolution
from privsketch.learning.mixture.gaussians import Gaussians

_STAND_INS = 12_000  # samples: a component of a hundredth of the records gets a hundred
_MAX_EM_ROUNDS = 200  # a guard: _MIN_EM_RISE ends EM
_MIN_EM_RISE = 1e-6  # rise of the mean log-density that is worth another round
_MIN_EM_WIDTH = 0.02  # least width in sides of a box: counts show nothing finer
_NODES = (6, 5, 3)  # quadrature nodes along an axis for one, two and three columns; else 2


def decode_mixture_of_cells(
    boxes: Boxes, n_components: int, covariance_type: CovarianceType, rng: np.random.Generator
) -> MixtureSolution:
    """Fit a Gaussian mixture to noisy counts, with standard errors."""
    solution = decode_cells(boxes, n_components, rng)
    with one_thread():
        points, weights, box = _stand_ins(boxes, solution, rng)
        least = (_MIN_EM_WIDTH * float((boxes.high - boxes.low).min())) ** 2
        fits = [
            _em(points, weights, start, covariance_type, least)
            for start in _starts(points, solution, n_components)
        ]
        gaussians = max(fits, key=lambda fit: fit[1])[0].in_order()
        member = _responsibilities(points, gaussians)[0]
        expected = _expected(boxes, gaussians)
        variance = boxes.variance + np.maximum(expected, 0.0)
        misfit = float(np.sum(np.square(boxes.counts - expected) / np.maximum(variance, 1e-12)))
    total = max(float(gaussians.weights.sum()), 1e-300)
    unknowns = mixture_unknowns(n_components, boxes.dim, covariance_type) + 1
    freedom = max(boxes.n_boxes - unknowns, 1)
    errors = _errors(points, weights, box, member, gaussians, variance)
    errors *= math.sqrt(max(misfit / freedom, 1.0))
    return MixtureSolution(
        gaussians=gaussians,
        standard_errors=errors,
        chi_square=misfit,
        degrees_of_freedom=freedom,
        outside_share=min(max(1 - float(expected.sum()) / total, 0.0), 1.0),
        n_init=len(fits),
    )


def _stand_ins(
    boxes: Boxes, solution: CellSolution, rng: np.random.Generator
) -> tuple[Floats, Floats, Integers]:
    """Return points (n, dim), the records that each represents, and its box."""
    atoms, low, high = solution.density, boxes.low.min(axis=0), boxes.high.max(axis=0)
    parts, sizes = [], []
    n_each = max(50, _STAND_INS // (atoms.size + 1)) // 2
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
    box = _located(boxes, points)
    weights = np.concatenate(sizes)
    mass = np.bincount(box, weights, minlength=boxes.n_boxes)
    weights = weights * (solution.counts / np.maximum(mass, 1e-300))[box]
    is_relevant = weights > 1e-9 * max(float(weights.sum()), 1e-300)
    return points[is_relevant], weights[is_relevant], box[is_relevant]


def _located(boxes: Boxes, points: Floats) -> Integers:
    """Return the cell of a regular grid that each point lies in."""
    cells = [
        np.searchsorted(np.unique(edges), column, side="right") - 1
        for edges, column in zip(boxes.low.T, points.T, strict=True)
    ]
    return np.asarray(np.ravel_multi_index(cells, boxes.shape or (boxes.n_boxes,)), np.int64)


def _starts(points: Floats, solution: CellSolution, n_components: int) -> list[Floats]:
    """Return initial responsibilities (n, k): of nearest centers, and of the largest atoms."""
    atoms = solution.density
    starts = [solution.centers]
    if atoms.size >= n_components:
        starts.append(atoms.centers[np.argsort(-atoms.weights)[:n_components]])
    responsibilities = []
    for centers in starts:
        distances = np.square(points[:, np.newaxis] - centers).sum(axis=2)
        responsibilities.append(np.eye(n_components)[distances.argmin(axis=1)])
    return responsibilities


def _em(
    points: Floats, weights: Floats, member: Floats, covariance_type: CovarianceType, least: float
) -> tuple[Gaussians, float]:
    """Run EM from responsibilities; return the mixture and its mean log-density."""
    previous, total = -np.inf, max(float(weights.sum()), 1e-300)
    gaussians = _maximised(points, weights, member, covariance_type, least)
    for _ in range(_MAX_EM_ROUNDS):
        member, logs = _responsibilities(points, gaussians)
        value = float(weights @ logs) / total
        if value < previous + _MIN_EM_RISE:
            break
        previous = value
        gaussians = _maximised(points, weights, member, covariance_type, least)
    return gaussians, previous


def _maximised(
    points: Floats, weights: Floats, member: Floats, kind: CovarianceType, least: float
) -> Gaussians:
    """Return the mixture of given responsibilities (n, k)."""
    shares = member * weights[:, np.newaxis]
    mass = shares.sum(axis=0)
    divisors = np.maximum(mass, 1e-12 * max(float(mass.sum()), 1e-300))[:, np.newaxis]
    means = shares.T @ points / divisors
    dim = points.shape[1]
    if kind in ("full", "tied"):
        matrices = np.empty((len(mass), dim, dim))
        for k, mean in enumerate(means):
            away = points - mean
            matrices[k] = (away * shares[:, k, np.newaxis]).T @ away / divisors[k]
        if kind == "tied":
            matrices = np.average(matrices, axis=0, weights=mass + 1e-300)[np.newaxis]
        covariances = matrices + least * np.eye(dim)
    else:
        squares = shares.T @ np.square(points) / divisors - np.square(means)
        covariances = np.maximum(squares, 0.0) + least
        if kind == "spherical":
            covariances = covariances.mean(axis=1, keepdims=True)
    return Gaussians(mass, means, covariances, kind)


def _log_densities(points: Floats, gaussians: Gaussians) -> Floats:
    """Return logarithms of weight times density, (n, k)."""
    logs = np.empty((len(points), gaussians.size))
    matrices = gaussians.matrices()
    constant = points.shape[1] * math.log(2 * math.pi) / 2
    for k, (mean, matrix) in enumerate(zip(gaussians.means, matrices, strict=True)):
        factor = np.linalg.cholesky(matrix)
        away = solve_triangular(factor, (points - mean).T, lower=True)
        logs[:, k] = -np.square(away).sum(axis=0) / 2 - np.log(np.diag(factor)).sum()
    return np.asarray(logs - constant + np.log(np.maximum(gaussians.weights, 1e-300)))


def _responsibilities(points: Floats, gaussians: Gaussians) -> tuple[Floats, Floats]:
    """Return responsibilities (n, k) of the components, and log-densities (n,) of the points."""
    logs = _log_densities(points, gaussians)
    totals = logsumexp(logs, axis=1)
    return np.exp(logs - totals[:, np.newaxis]), totals


def _expected(boxes: Boxes, gaussians: Gaussians) -> Floats:
    """Return the mixture's records in each box, (n_boxes,), by a Gauss-Legendre rule."""
    dim = boxes.dim
    n_nodes = _NODES[dim - 1] if dim <= len(_NODES) else 2
    nodes, shares = np.polynomial.legendre.leggauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    rule = np.prod(np.stack(np.meshgrid(*[shares / 2] * dim, indexing="ij"), -1), axis=-1).ravel()
    middle, half = boxes.centers, (boxes.high - boxes.low) / 2
    volume = np.prod(boxes.high - boxes.low, axis=1)
    total = np.zeros(boxes.n_boxes)
    for node, share in zip(grid, rule, strict=True):
        total += share * np.exp(logsumexp(_log_densities(middle + node * half, gaussians), axis=1))
    return np.asarray(total * volume)


def _errors(
    points: Floats,
    weights: Floats,
    box: Integers,
    member: Floats,
    gaussians: Gaussians,
    variance: Floats,
) -> Floats:
    """Return standard errors (k, dim) of the means from the variances of the counts, (n_boxes,).

    One more record in a box moves a component's mean by the component's share of the box, times
    the offset of its points there from the mean, over the records of the component.
    """
    n_boxes = len(variance)
    box_mass = np.maximum(np.bincount(box, weights, minlength=n_boxes), 1e-300)
    errors = np.empty_like(gaussians.means)
    for k, (mean, mass) in enumerate(zip(gaussians.means, gaussians.weights, strict=True)):
        shares = weights * member[:, k]
        for axis in range(points.shape[1]):
            offsets = shares * (points[:, axis] - mean[axis])
            by_box = np.bincount(box, offsets, minlength=n_boxes) / box_mass
            errors[k, axis] = math.sqrt(float(np.square(by_box) @ variance)) / max(mass, 1e-300)
    return errors
