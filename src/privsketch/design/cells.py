"""Designs with a grid of cells: the number of cells along each axis, and the expected errors.

With few cells, records lie far from the middle of their cell. With many, the noise of a cell is
large compared with its records. Cells are nearly cubes, because k-means measures distances in the
units of the records: a wide column has more cells than a narrow one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, ndtr

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.design.recipe import Design
from privsketch.design.request import Request
from privsketch.facts.budget import Budget
from privsketch.features.cells import MAX_CELL_COLUMNS, CellContribution, label_axes
from privsketch.features.frequencies import NO_LAW
from privsketch.features.mixed import Columns, columns_of
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import CountMode, plan_sum_noise

MAX_LEARNED_CELLS = 60_000  # learning from as many takes a second or two
# Cells per cluster along an axis, and what is subtracted before rounding up. A cluster is visible
# if it covers about two cells; more cells have more noise. Both numbers come from prototypes on
# three families of data: 0.8 to 1.25 times as many cells change little; 0.6 times lose clusters.
_CELLS_PER_CLUSTER, _CELL_ROUNDING = 1.7, 0.3
# Relative error of the sum of all cells above which a separate count is worth its share of epsilon.
_MAX_COUNT_ERROR = 0.1
_N_RADII = 64  # distances from a cluster center: means over them are accurate to a percent


def cell_noise_std(budget: Budget, kind: NoiseKind) -> float:
    """Return the standard deviation of the noise of a cell, which all grids share."""
    count: CountMode = "public" if budget.neighbours == "replace" else "omitted"
    noise = plan_sum_noise(CellContribution(1, 1), budget, kind=kind, count=count, n_records=1.0)
    return math.sqrt(noise.sums_law.variance)


def plan_cells(
    half_widths: Floats,
    n_clusters: int,
    n_records: float,
    noise_std: float,
    size: int | None = None,
    max_cells: int = MAX_LEARNED_CELLS,
) -> tuple[int, ...]:
    """Return the number of cells along each axis; in total at most `size`, if it is given."""
    dim = len(half_widths)
    if dim > MAX_CELL_COLUMNS:
        raise ParameterError(
            f"`feature_map='cells'` with {dim} columns: expected at most {MAX_CELL_COLUMNS}; "
            "each column multiplies the number of cells"
        )
    axes = list(range(dim))  # axes that are divided: narrow axes have one cell
    while True:
        n_cells = float(size or _number_of_cells(len(axes), n_clusters, n_records, noise_std))
        volume = math.prod(2 * float(half_widths[axis]) for axis in axes)
        side = (volume / n_cells) ** (1 / len(axes))
        narrow = [axis for axis in axes if 2 * float(half_widths[axis]) < side / 2]
        if not narrow:
            break
        axes = [axis for axis in axes if axis not in narrow]
    max_cells = max_cells if size is None else size
    while True:
        shape = [1] * dim
        for axis in axes:
            shape[axis] = max(1, round(2 * float(half_widths[axis]) / side))
        if math.prod(shape) <= max_cells:
            return tuple(shape)
        side *= 1.01


def _plan_labels(
    request: Request, columns: Columns, n_records: float, noise_std: float
) -> tuple[int, ...]:
    """Return the cells of a table with labels: one for each label, and a grid of the rest."""
    if request.task == "gaussian-mixture":
        raise ParameterError(
            "`feature_map='cells'` with `task='gaussian-mixture'` and labels: mixtures are learned "
            "from grids of numbers; use `feature_map='fourier'`"
        )
    axes = label_axes(columns)
    kinds = [kind for kind, size in columns for _ in range(2 if kind == "cycle" else 1)]
    n_labels = {
        axis: max(where.stop - where.start, 2)
        for axis, (where, kind) in enumerate(zip(axes, kinds, strict=True))
        if kind == "labels"
    }
    n_combined = math.prod(n_labels.values())
    others = [axis for axis in range(len(axes)) if axis not in n_labels]
    if n_combined * 2 ** len(others) > MAX_LEARNED_CELLS:
        raise ParameterError(
            f"`feature_map='cells'`: the labels have {n_combined} combinations, each of which "
            "would be a grid; use `feature_map='fourier'`, or leave columns out"
        )
    cells = [n_labels.get(axis, 1) for axis in range(len(axes))]
    if others:
        # A cluster shares its records among some combinations of labels.
        loss = math.prod((number + 1) / 2 for number in n_labels.values())
        size = None if request.n_features is None else max(1, request.n_features // n_combined)
        planned = plan_cells(
            request.domain.half_widths[[axes[axis].start for axis in others]],
            request.n_components,
            n_records / loss,
            noise_std,
            size,
            MAX_LEARNED_CELLS // n_combined,
        )
        for axis, number in zip(others, planned, strict=True):
            cells[axis] = number
    return tuple(cells)


def _number_of_cells(dim: int, n_clusters: int, n_records: float, noise_std: float) -> int:
    """Return the number of cells of a cube."""
    signal = n_records / n_clusters * math.sqrt(2) / noise_std  # epsilon is sqrt 2 / noise_std
    ideal = _CELLS_PER_CLUSTER * n_clusters ** (1 / dim) * signal ** (1 / (dim + 2))
    return int(min(max(2, math.ceil(ideal - _CELL_ROUNDING)) ** dim, MAX_LEARNED_CELLS))


def plan_grid(request: Request) -> Design:
    """Plan counts of a grid; Laplace noise is smallest even if delta > 0 (docs/theory.md)."""
    budget, kind = request.budget, request.noise or "laplace"
    n_records = request.public_size(request.largest_size[0])
    total = n_records * (request.n_holders or 1)
    noise_std = cell_noise_std(budget, kind) * math.sqrt(request.noise_ratio)
    half_widths, size = request.domain.half_widths, request.n_features
    if request.schema is None or request.schema.is_smooth:
        cells = plan_cells(half_widths, request.n_components, total, noise_std, size)
    else:
        cells = _plan_labels(request, columns_of(request.schema), total, noise_std)
    n_cells = math.prod(cells)
    count = request.count
    if count is None and budget.neighbours == "replace":
        count = "public"
    return request.design(
        feature_map="cells",
        frequencies=request.draw(NO_LAW, n_cells),
        noise=kind,
        count=count or grid_count_mode(n_cells, total, noise_std),
        n_records=n_records,
        cells=cells,
    )


def grid_count_mode(n_cells: int, n_records: float, noise_std: float) -> CountMode:
    """Return "released" if the sum of the cells is too noisy a count, else "omitted"."""
    error = math.sqrt(n_cells) * noise_std / n_records
    return "released" if error > _MAX_COUNT_ERROR else "omitted"


@dataclass(frozen=True)
class CellError:
    """Expected errors of a grid for clusters of equal width.

    Attributes
    ----------
    excess : float
        Expected squared error of a center over that of a record, both per coordinate.
    lost : float
        Probability that noise hides a cluster.
    """

    excess: float
    lost: float


def cell_error(
    *,
    cells: tuple[int, ...],
    half_widths: Floats,
    n_components: int,
    n_records: float,
    variance: float,
    width: float,
    energy: float = 1.0,
) -> CellError:
    """Return the expected errors for k equal clusters of a = n / k records and `width` s.

    A cell of volume V at distance u s from the center has l = a V f(u) of the cluster's records,
    where f is its Gaussian density. Its information is the squared derivative of l over the
    variance of its count, v + l for noise of variance v. Summed over cells, the information about a
    coordinate is (a / (d s^2)) E[u^2 l / (v + l)], u standard normal in d columns.
    Records spread over their cells, which widens s^2 by h^2 / 12 for cells of side h. A cluster
    much narrower than its cell does not show where in the cell it lies: this adds
    exp(-2 pi^2 s^2 / h^2) h^2 / 12 to its squared error.

    The cluster has a signal-to-noise ratio of q^2 = a E[l / (v + l)]. It competes with all n places
    where another cluster could lie: noise alone reaches sqrt(2 ln n) there.

    Labels divide the records of a cluster among their cells: `energy` is the sum of squared shares.
    Tables without numbers have no other axes.
    """
    sides = [2 * float(half) / g for half, g in zip(half_widths, cells, strict=True)]
    dim = len(sides)
    if dim == 0:
        records = energy * n_records / n_components
        information = records / (variance + records) * n_records / n_components
        return CellError(1 / information, float(ndtr(math.sqrt(2) - math.sqrt(information))))
    squares = [side**2 / 12 for side in sides]
    spread = width**2 + math.fsum(squares) / dim  # along an axis, on average
    cluster, volume = n_records / n_components, math.prod(sides)
    # Squared radii: the chi-square quantiles in the middle of equal shares.
    u_squared = 2 * gammaincinv(dim / 2, (np.arange(_N_RADII) + 0.5) / _N_RADII)
    peak = cluster * volume / (2 * math.pi * spread) ** (dim / 2)
    records = energy * np.minimum(peak, cluster) * np.exp(-u_squared / 2)
    share = records / (variance + records)
    information = cluster / dim * float(np.mean(u_squared * share))
    excess = spread / width**2 / max(information, 1e-300)
    alias = math.fsum(
        square * math.exp(-2 * (math.pi * width / side) ** 2)
        for square, side in zip(squares, sides, strict=True)
    )
    excess += alias / dim / width**2
    signal = math.sqrt(cluster * float(np.mean(share)))
    distance = 2 * math.sqrt(spread)
    n_places = math.prod(max(1.0, 2 * float(half) / distance) for half in half_widths)
    largest_noise = math.sqrt(2 * math.log(max(n_places / n_components, math.e)))
    return CellError(excess, float(ndtr(largest_noise - signal)))
