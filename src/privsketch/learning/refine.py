"""Joint descent in the weights, centers, variances and shares of all atoms.

Shares of corners need no simplex. They are variables between 0 and 2, and their sum is settled
after the descent: a zero share is then exact.

Compiled code computes cost and gradient: `problem.cost_and_gradient` is the definition, and
`Evaluator` computes the same in one pass over the frequencies. It packs a target once for all
evaluations of a descent.

The first descent of every decoder is an overview: all records as one Gaussian, with its center,
width and number of records. It is fitted to the low frequencies alone, where a cloud of any shape
looks like one blob. Units and starting points follow from it. With categories, flags or cycles one
product follows: low frequencies of the numbers, and shares of all records.

The last descent minimises third powers of residuals if the noise is uniform in a cube. Least
squares is the best fit under Gaussian noise. For uniform noise, an estimate of least p-th powers
has 3 / (2 p - 1) of the variance of least squares, because the ends of an interval locate its
middle best. High powers depend on the exact ends, which sampling and an inexact density blur. The
fourth power gained as much as the third where clusters explain a sketch, and lost where they nearly
do. Totals of several releases are not uniform, and keep least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsketch._base.types import Floats
from privsketch.facts.layout import Layout
from privsketch.kernels.atoms import ATOMS
from privsketch.kernels.decoder import compile_evaluation
from privsketch.kernels.machine import aligned
from privsketch.learning.blocks import factors
from privsketch.learning.problem import Atoms, Problem, Target, features, gradient_of, n_parameters
from privsketch.learning.quasi_newton import Objective, minimise

# All weights together are about one. Without a cap, atoms that their envelope damps to zero would
# grow without limit.
WEIGHT_CAP = 1e6
SHARE_CAP = 2.0  # of one corner: sums about one leave room for the scale that weights share
# Least fall of the cost per iteration, relative to what noise in the fitted variables hides.
MIN_FALL_OVER_NOISE = 1e-4
TURN = 2 * math.pi  # in radians
HALF_BITS = -0.5 / math.log(2)  # exp(-x / 2) = 2^(HALF_BITS x)
# Candidates for the center of all records, passes over the frequencies that suit the width so far,
# and iterations of a pass. All three are generous guards, for one Gaussian costs milliseconds:
#   python -m benchmarks constants learning OVERVIEW_STARTS
#   python -m benchmarks constants learning OVERVIEW_PASSES
#   python -m benchmarks constants learning OVERVIEW_ITERATIONS
OVERVIEW_STARTS = 64
OVERVIEW_PASSES = 3
OVERVIEW_ITERATIONS = 60
PRODUCT_PASSES = 2  # the second one has the width of the first
RELATIVE_VARIANCE = 1e-6  # least variance of a number, relative to its squared range
POWER = 3
# A guard: MIN_POWER_FALL ends descents. python -m benchmarks constants learning POWER_ITERATIONS
POWER_ITERATIONS = 100
MIN_POWER_FALL = 1e-6  # least fall of the cost per iteration, relative to the cost


def refine(
    target: Target, atoms: Atoms, *, n_iterations: int, fit_variances: bool = True
) -> tuple[Atoms, float]:
    """Descend jointly in all numbers of the atoms; return the atoms and their cost.

    Weights, variances and shares stay non-negative, centers in the box. Variables are scaled by the
    diagonal of the Gauss-Newton matrix: their curvatures differ by orders of magnitude.

    Noise in p fitted variables hides p / 2m of the cost of 2m numbers. The descent ends when
    iterations gain next to nothing of that.
    """
    negligible = MIN_FALL_OVER_NOISE * n_parameters(target, atoms) / (2 * target.n_features)
    evaluate = Evaluator(target, atoms).flat
    return _descend(evaluate, target, atoms, n_iterations, negligible, fit_variances)


def _descend(
    evaluate: Objective,
    target: Target,
    atoms: Atoms,
    n_iterations: int,
    negligible: float,
    fit_variances: bool = True,
) -> tuple[Atoms, float]:
    """Descend in a cost of `atoms.flat()`, in units of the curvatures of the squares."""
    n_atoms, variances, low, high = atoms.size, atoms.variances, target.low, target.high
    scale = np.concatenate([each.ravel() for each in curvature_scales(target, atoms)])
    # Largest variance of a distribution on an interval.
    largest = (high - low) ** 2 / 4
    if variances.shape[1] == 1:
        largest = np.max(largest, keepdims=True)
    smallest, largest = np.zeros(variances.size), np.tile(largest, len(variances))
    if not fit_variances:
        smallest = largest = variances.ravel()
    n_shares = atoms.shares.size
    lower = [np.zeros(n_atoms), np.tile(low, n_atoms), smallest, np.zeros(n_shares)]
    upper = [np.full(n_atoms, WEIGHT_CAP), np.tile(high, n_atoms), largest]
    upper.append(np.full(n_shares, SHARE_CAP))
    lowest, highest = np.concatenate(lower) * scale, np.concatenate(upper) * scale

    def objective(x: Floats) -> tuple[float, Floats]:
        value, gradient = evaluate(x / scale)
        gradient /= scale
        return value, gradient

    x, value, _ = minimise(
        objective,
        np.clip(atoms.flat() * scale, lowest, highest),
        lowest,
        highest,
        n_iterations=n_iterations,
        negligible=negligible,
    )
    refined = atoms.unflat(x / scale)
    # Dividing by the scale may leave the box by one rounding.
    refined = replace(refined, centers=np.clip(refined.centers, low, high))
    return refined.normalised(target.ends), value


def curvature_scales(target: Target, atoms: Atoms) -> tuple[Floats, ...]:
    """Return roots of the Gauss-Newton diagonal for weights, centers, variances and shares."""
    n_atoms, dim = atoms.centers.shape
    squares = target.squares.astype(np.float64)
    exponents = target.exponents(atoms.variances).astype(np.float64)
    envelope = np.exp(atoms.variances @ exponents.T / -2)
    energy = (target.taper.astype(np.float64) * envelope) ** 2  # (1 or size, m)
    by_share = np.sqrt(energy.sum(axis=1))
    for factor in factors(target.labels, target.ends, atoms.shares):
        energy = energy * (factor.real**2 + factor.imag**2)
    by_weight = np.sqrt(energy.sum(axis=1))
    by_center = np.sqrt(energy @ squares.sum(axis=1) / max(dim, 1))
    if atoms.shared:
        energy = energy.mean(axis=0, keepdims=True)
    by_variance = np.sqrt(energy @ exponents**2) / 2
    # An atom of next to no weight would have next to no curvature: floor it.
    floor = max(0.1 * float(np.mean(atoms.weights)), 1e-8)
    weights = np.maximum(atoms.weights, floor)
    total = np.sqrt(np.sum(weights**2, keepdims=True)) if atoms.shared else weights
    tiny = np.finfo(float).tiny ** 0.25
    return (
        np.maximum(np.broadcast_to(by_weight, (n_atoms,)), tiny),
        np.repeat(np.maximum(weights * by_center, tiny)[:, None], dim, axis=1),
        np.maximum(total[:, None] * by_variance, tiny),
        np.repeat(np.maximum(weights * by_share, tiny)[:, None], atoms.shares.shape[1], axis=1),
    )


class Evaluator:
    """Cost and gradient of atoms of one shape against one target.

    Parameters
    ----------
    target : Target
        Its floating-point type is that of the computation.
    atoms : Atoms
        Example of the number of atoms and of the shape of their variances.
    """

    def __init__(self, target: Target, atoms: Atoms) -> None:
        self._size, self._shape = atoms.size, atoms.variances.shape
        # One width for all atoms and directions is a factor of the whole model.
        is_product, dtype = len(target.ends) > 0, target.moments.dtype
        self._in_totals = not is_product and self._shape == (1, 1)
        self._in_first_row = is_product and atoms.shared
        self._kernel = compile_evaluation(
            "float" if dtype == np.float32 else "double",
            not (self._in_totals or self._in_first_row),
            is_product,
        )
        shape, self._dtype = self._kernel.shape, dtype
        self._dim, n_corners = atoms.centers.shape[1], atoms.shares.shape[1]
        # Loops of compiled code run at least once: without numbers there is a column of zeros.
        zeros = np.zeros((target.n_features, 1))
        frequencies = target.frequencies if self._dim else zeros
        exponents = target.exponents(atoms.variances) if self._dim else zeros
        self._tiles = -(-target.n_features // shape.tile)
        pairs = -(-atoms.size // ATOMS)
        m, n_atoms, lanes = target.n_features, ATOMS * pairs, shape.lanes
        inputs = (
            self._pack(frequencies / TURN),
            self._pack(exponents * HALF_BITS),
            self._pack(target.moments.reshape(2, m).T),
            self._pack(target.taper[:, None] ** 2),
        )
        n_scratch = 2 * (2 * len(target.ends) + 1) * n_atoms * shape.tile
        n_totals = 2 * self._tiles * lanes
        columns = (1, frequencies.shape[1], exponents.shape[1], n_corners)
        # All sums over frequencies are in one buffer, which is cleared before every evaluation.
        n_sums = n_atoms * sum(columns) * lanes
        buffers = _buffers((*(n_atoms * n for n in columns), n_scratch, n_totals, n_sums), dtype)
        self._weights, self._centers, self._variances, self._shares = buffers[:4]
        self._variances = self._variances.reshape(n_atoms, -1)[:, : self._shape[1]]
        self._totals, self._sums = buffers[5].reshape(2, -1), buffers[6].reshape(-1, lanes)
        self._ends = np.cumsum(n_atoms * np.array(columns[:3])).tolist()
        parts = np.split(self._sums, self._ends)
        self._ones = np.ones(lanes, dtype)
        lengths = [self._tiles, pairs, columns[1], columns[2]]
        arrays = [*inputs, *buffers[:3], *buffers[4:6], *parts[:3]]
        if is_product:
            lengths += [n_corners, len(target.ends)]
            waves = self._pack(np.moveaxis(target.labels, 2, 0).reshape(m, -1))
            ends = target.ends.astype(np.int64)
            arrays = [*inputs, *buffers[:3], waves, ends, *buffers[3:6], *parts]
        self._arrays = arrays  # addresses alone would not keep them
        self._arguments = (*lengths, *(array.ctypes.data for array in arrays))

    def _pack(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Reshape (m, columns) to (tiles, columns, frequencies of a tile), zero padded."""
        tile = self._kernel.shape.tile
        padded = np.zeros((self._tiles * tile, rows.shape[1]), self._dtype)
        padded[: len(rows)] = rows
        return aligned(padded.reshape(self._tiles, tile, -1).transpose(0, 2, 1))

    def __call__(self, atoms: Atoms) -> tuple[float, Atoms]:
        """Return the cost, and its gradient in the shape of the atoms."""
        value, gradient = self.flat(atoms.flat())
        return value, atoms.unflat(gradient)

    def flat(self, numbers: Floats) -> tuple[float, Floats]:
        """Return the cost and its gradient, both for numbers in the order of `Atoms.flat`."""
        n, dim = self._size, self._dim
        end = n * (1 + dim)
        last = end + self._shape[0] * self._shape[1]
        weights, variances = numbers[:n], numbers[end:last].reshape(self._shape)
        self._weights[:n] = weights
        self._centers[: n * dim] = numbers[n:end]
        if self._shape[0] == 1:
            self._variances[:] = variances
        else:
            self._variances[:n] = variances
        self._shares[: len(numbers) - last] = numbers[last:]
        self._sums.fill(0)
        self._kernel.code.function(*self._arguments)
        cost, slope = np.add.reduce(self._totals, axis=1, dtype=np.float64)
        sums = self._sums @ self._ones
        gradient = np.empty(len(numbers))
        np.multiply(sums[:n], 2.0, out=gradient[:n])
        first, second, third = self._ends
        by_center = sums[first : first + n * dim].reshape(n, dim)
        factors = weights[:, None] * (2 * TURN)
        np.multiply(by_center, factors, out=gradient[n:end].reshape(n, dim))
        if self._in_totals:
            gradient[end] = 2 * math.log(2) * slope
        elif self._in_first_row:
            gradient[end:last] = 2 * math.log(2) * sums[second : second + last - end]
        else:
            by_variance = sums[second : second + n * self._shape[1]].reshape(n, self._shape[1])
            by_variance = by_variance * ((2 * math.log(2)) * weights[:, None])
            if self._shape[0] == 1:
                by_variance = by_variance.sum(axis=0)
            gradient[end:last] = by_variance.ravel()
        if last < len(numbers):
            by_share = sums[third : third + len(numbers) - last].reshape(n, -1)
            gradient[last:] = (by_share * (2 * weights[:, None])).ravel()
        return float(cost), gradient


def _buffers(sizes: Sequence[int], dtype: Any) -> list[NDArray[Any]]:
    """Return zeros of these sizes; each array starts at a multiple of 64 bytes."""
    step = 64 // np.dtype(dtype).itemsize
    starts = np.cumsum([0, *(-(-size // step) * step for size in sizes)])
    buffer = aligned(np.zeros(starts[-1], dtype))
    return [buffer[first : first + size] for first, size in zip(starts, sizes, strict=False)]


@dataclass(frozen=True)
class Overview:
    """All records as one atom: an isotropic Gaussian, or a product if there are blocks.

    Attributes
    ----------
    weight : float
        Number of records.
    center : (n_numbers,) float64
    variances : (1, 1) or (1, n_numbers) float64
        One for all directions, or one for each axis of a product.
    shares : (1, n_corners) float64
        Shares of the corners of all blocks.
    """

    weight: float
    center: Floats
    variances: Floats
    shares: Floats = field(default_factory=lambda: np.zeros((1, 0)))

    @property
    def variance(self) -> float:
        """Mean variance over the numbers."""
        return float(np.mean(self.variances)) if self.variances.size else 0.0


def find_overview(problem: Problem, rng: np.random.Generator) -> Overview:
    """Fit one atom to the low frequencies: mean, spread and number of records.

    Weight and variances are positive, even for a sketch of noise alone.
    """
    whole = _find_gaussian(problem.without_blocks(), rng)
    return whole if problem.layout is None else _find_product(problem, problem.layout, whole)


def _find_product(problem: Problem, layout: Layout, whole: Overview) -> Overview:
    """Fit one product, from the center and the width of a Gaussian in all coordinates.

    Shares are linear in the moments, so that only frequencies of numbers count as high ones.
    """
    target, n_numbers = problem.target(whole.weight), len(layout.numbers)
    smallest = RELATIVE_VARIANCE * (target.high - target.low) ** 2
    lengths = np.diff(layout.ends, prepend=0)
    atoms = Atoms(
        np.ones(1),
        whole.center[None, layout.numbers],
        np.full((1, n_numbers), whole.variance),
        np.repeat(1 / lengths, lengths)[None],
    )
    n_needed = min(target.n_features, 4 * (n_numbers + len(target.labels)) + 8)
    for _ in range(PRODUCT_PASSES):
        variance = float(np.mean(atoms.variances)) if n_numbers else 0.0
        taper = np.exp(-target.squared_norms * variance / 2)
        floor = min(0.1, float(np.partition(taper, -n_needed)[-n_needed]))
        lowest = target.tapered(np.maximum(taper, 1e-3), taper >= floor)
        atoms, _ = refine(lowest, atoms, n_iterations=OVERVIEW_ITERATIONS)
    return Overview(
        whole.weight, atoms.centers[0], np.maximum(atoms.variances, smallest), atoms.shares
    )


def _find_gaussian(problem: Problem, rng: np.random.Generator) -> Overview:
    """Fit one isotropic Gaussian in all coordinates."""
    low, high = problem.low, problem.high
    dim = len(low)
    half_widths = (high - low) / 2
    largest = float(np.max(np.abs(problem.moments), initial=0.0))
    # Moments are sums over records: below a millionth of one there are none.
    unit = largest if np.isfinite(largest) and largest > 1e-6 else 1.0
    target = problem.target(unit)
    variance = float(np.max(half_widths)) ** 2 / 9 or 1.0
    smallest = 1e-6 * variance
    center = (low + high) / 2
    starts = np.vstack([center, rng.uniform(low, high, (OVERVIEW_STARTS, dim))])
    atoms = Atoms(np.ones(1), center[None], np.array([[variance]]))
    for step in range(OVERVIEW_PASSES):
        taper = np.exp(-target.squared_norms * max(float(atoms.variances[0, 0]), smallest) / 2)
        n_needed = min(len(taper), 4 * dim + 8)
        floor = min(0.1, float(np.partition(taper, -n_needed)[-n_needed]))
        lowest = target.tapered(np.maximum(taper, 1e-3), taper >= floor)
        if step == 0:
            matched = features(lowest, starts, atoms.variances)
            matched *= np.tile(lowest.taper**2, 2)
            best = int(np.argmax(matched @ lowest.moments))
            atoms = replace(atoms, centers=starts[best : best + 1])
        atoms, _ = refine(lowest, atoms, n_iterations=OVERVIEW_ITERATIONS)
    weight = float(atoms.weights[0])
    # A weight below a hundredth of the largest moment can only be noise.
    weight = max(weight, 0.01) if np.isfinite(weight) else 1.0
    variance = max(float(atoms.variances[0, 0]), smallest)
    return Overview(weight * unit, atoms.centers[0], np.array([[variance]]))


def refine_powers(target: Target, atoms: Atoms, noise_std: float) -> Atoms:
    """Descend from a fit of least squares to one of least third powers.

    Noise of the standard deviation `noise_std` reaches sqrt(3) times as far.
    """
    reach = math.sqrt(3) * noise_std

    def evaluate(numbers: Floats) -> tuple[float, Floats]:
        cost, gradient = cost_of_powers(target, atoms.unflat(numbers), reach)
        return cost, gradient.flat()

    return _descend(evaluate, target, atoms, POWER_ITERATIONS, MIN_POWER_FALL)[0]


def cost_of_powers(target: Target, atoms: Atoms, reach: float) -> tuple[float, Atoms]:
    """Return the sum of 2/p reach^2 |residual / reach|^p, and its gradient by the atoms.

    For p = 2 these are the squares.
    """
    matrix = features(target, atoms.centers, atoms.variances, atoms.shares)
    residual = (atoms.weights @ matrix - target.moments) / reach
    sizes = np.abs(residual)
    slopes = reach * residual * sizes ** (POWER - 2)
    cost = 2 / POWER * reach**2 * float(np.sum(sizes**POWER))
    return cost, gradient_of(target, atoms, matrix, slopes)
