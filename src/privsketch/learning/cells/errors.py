"""What noise and sampling do to a fit: its misfit, and how far centers may be off.

About a fit, expected counts are linear in the unknowns with derivatives J, and the unknowns have
the inverse of J'WJ for covariance, W being what each count tells. The fit follows some noise: of
the squared misfit the trace of J (J'WJ)^-1 J' is missing. A center is the mean of what its
cluster has of every component, and moves with their centers and weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privsketch._base.types import Floats, Indices
from privsketch.learning.cells.boxes import Boxes
from privsketch.learning.cells.fit import ELONGATED, Components, Fit
from privsketch.learning.cells.likelihood import Likelihood, likelihood_of
from privsketch.learning.cells.masses import Partition, partition_of
from privsketch.learning.uncertainty import no_knowledge

RIDGE = 1e-6  # relative: unknowns of twins are not told apart by any count
MAX_ENTRIES = 2_000_000  # of derivatives at a time


@dataclass(frozen=True)
class Misfit:
    """Squared misfit of all counts, what noise and sampling leave of it, and its deviation."""

    residual: float
    expected: float
    spread: float


@dataclass(frozen=True)
class Linearised:
    """Covariance of the unknowns of a fit: weights with the background, centers, log widths."""

    covariance: Floats
    misfit: Misfit


def linearised(boxes: Boxes, fit: Fit) -> Linearised:
    """Covariance and misfit of a fit."""
    partition, components = partition_of(boxes), fit.components
    likelihood = likelihood_of(boxes, fit.expected)
    information, squares = _products(partition, likelihood, components)
    size, dim = components.centers.shape
    # The prior of widths is part of what is known about them.
    last = np.arange(len(information) - size * dim, len(information))
    information[last, last] += 0.5 / ELONGATED**2
    lengths = np.sqrt(np.maximum(information.diagonal(), 1e-300))
    scaled = information / lengths / lengths[:, None]
    scaled[np.diag_indices_from(scaled)] += RIDGE
    inverse = cho_solve(cho_factor(scaled, lower=True), np.eye(len(scaled)))
    covariance = inverse / lengths / lengths[:, None]
    residual = float(np.square(boxes.counts - fit.expected).sum())
    followed = float(np.vdot(covariance, squares))
    total = float(likelihood.variance.sum())
    # At least a part stays, however many unknowns there are.
    expected = max(total - followed, 0.05 * total)
    tails = 3 * boxes.variance**2 / boxes.n_noises + np.maximum(fit.expected, 0.0)
    spread = math.sqrt(float((2 * likelihood.variance**2 + tails).sum()))
    return Linearised(covariance, Misfit(residual, expected, spread))


def _products(
    partition: Partition, likelihood: Likelihood, components: Components
) -> tuple[Floats, Floats]:
    """J'WJ and J'J, block by block of boxes."""
    slopes = partition.slopes(components.centers, components.widths)
    size, dim = components.centers.shape
    n_unknowns = size * (1 + 2 * dim) + 1
    information, squares = np.zeros((2, n_unknowns, n_unknowns))
    # A component without records would have no derivatives by its place.
    weights = np.maximum(components.weights[:-1], 1.0)[:, None]
    step = max(1, MAX_ENTRIES // n_unknowns)
    for begin in range(0, partition.n_boxes, step):
        at = [index[begin : begin + step] for index in partition.index]
        pairs = zip(partition.by_axis(slopes.values), at, strict=True)
        values = [factor[:, i] for factor, i in pairs]
        rows = np.empty((n_unknowns, len(at[0])))
        rows[: size + 1] = math.prod(values[1:], start=values[0])
        for kind, factors in enumerate((slopes.by_center, slopes.by_log_width)):
            first = size + 1 + kind * size * dim
            block = rows[first : first + size * dim].reshape(size, dim, -1)
            for d in range(dim):
                others = [value[:-1] for e, value in enumerate(values) if e != d]
                own = factors[:-1, partition.begins[d] + at[d]]
                block[:, d] = weights * math.prod(others, start=own)
        information += (rows * likelihood.information[begin : begin + step]) @ rows.T
        squares += rows @ rows.T
    return information, squares


def standard_errors(
    boxes: Boxes, found: Linearised, components: Components, shares: Floats, offsets: Floats
) -> Floats:
    """(k, dim) standard errors of centers.

    `shares` is (k, size + 1), the records that each cluster has of each component and of the
    background, and `offsets` (k, size + 1, dim) how far their mean is from the center.
    """
    k, dim = len(shares), components.centers.shape[1]
    size = components.size
    records = shares.sum(axis=1)
    per_record = 1 / np.maximum(records, 1e-300)
    by_weight = offsets * (shares / np.maximum(components.weights, 1e-300))[:, :, None]
    derivatives = np.zeros((k, dim, len(found.covariance)))
    derivatives[:, :, : size + 1] = np.moveaxis(by_weight, 2, 1)
    own = shares[:, :-1]
    for d in range(dim):
        derivatives[:, d, size + 1 + d : size + 1 + size * dim : dim] = own
    derivatives *= per_record[:, None, None]
    moved = derivatives @ found.covariance
    variances = np.einsum("kdp,kdp->kd", moved, derivatives)
    misfit = max(found.misfit.residual / found.misfit.expected, 1.0)
    errors = np.sqrt(np.maximum(variances, 0.0) * misfit)
    errors[records <= 0] = np.inf
    half_widths = (boxes.high.max(axis=0) - boxes.low.min(axis=0)) / 2
    return np.asarray(np.minimum(errors, no_knowledge(half_widths)))


def shares_of_clusters(
    boxes: Boxes, components: Components, places: Floats, label: Indices, centers: Floats
) -> tuple[Floats, Floats]:
    """Records that each cluster has of each component, and their mean's offset from the center.

    `places` and `label` are those of all parts of `boxes`.
    """
    partition = partition_of(boxes)
    rows = partition.rows(partition.factors(components.centers, components.widths))
    k, dim = centers.shape
    shares = np.zeros((k, len(rows)))
    offsets = np.zeros((k, len(rows), dim))
    for i, row in enumerate(rows):
        mass = np.bincount(label, row, k)
        shares[:, i] = mass
        for d in range(dim):
            mean = np.bincount(label, row * places[:, d], k) / np.maximum(mass, 1e-300)
            offsets[:, i, d] = np.where(mass > 1e-9, mean - centers[:, d], 0.0)
    return shares * components.weights, offsets
