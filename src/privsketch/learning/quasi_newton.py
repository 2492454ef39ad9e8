"""Descent in a box by a quasi-Newton method of limited memory.

The search of a decoder is about a hundred short descents in a few hundred variables. Their cost
takes microseconds, and the work between two evaluations must take no longer. The inverse of the
curvature has the form of Byrd, Nocedal and Schnabel (1994). With the last steps as rows of S, the
changes of the gradient as rows of Y, the upper triangle R of S Y' and its diagonal D, it is

    H = g I + S'R^-T (D + g Y Y') R^-1 S - g S'R^-T Y - g Y'R^-1 S,

and takes two products with S and Y. Variables that are at a bound, and would leave it, are excluded
from H and from the step (Bertsekas 1982). The step is then projected onto the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dtrtrs

from privsketch._base.types import Bits, Floats

MEMORY = 16  # remembered steps; more cost more time than they save
MIN_DECREASE = 1e-4  # least fall of a step over the fall that the slope predicts
MIN_CURVATURE = 1e-10  # least cosine of a step and a change of gradient that show a curvature
MAX_TRIES = 20  # lengths of one step
N_RECENT = 5  # iterations whose falls are judged together: a single one may be small by chance

Objective = Callable[[Floats], tuple[float, Floats]]


def minimise(
    objective: Objective,
    start: Floats,
    low: Floats,
    high: Floats,
    *,
    n_iterations: int,
    negligible: float = 0.0,
) -> tuple[Floats, float, int]:
    """Return the end of a descent, its value and the number of evaluations.

    Parameters
    ----------
    objective : callable
        Returns the value at a point, and the gradient there. Curvatures should be of order one.
    start : (n,) float64
        Start of the descent, in the box.
    low, high : (n,) float64
        The box.
    n_iterations : int
        Maximum number of iterations.
    negligible : float
        Relative fall of the value per iteration that is too small to continue.
    """
    x = start
    value, gradient = objective(x)
    n_evaluations = 1
    memory = _Memory(len(x))
    values = [value]
    for _ in range(n_iterations):
        direction = memory.direction(gradient, _fixed_variables(x, gradient, low, high))
        accepted = None
        length = 1.0
        for _ in range(MAX_TRIES):
            reached = np.minimum(np.maximum(x + length * direction, low), high)
            step = reached - x
            predicted = float(gradient @ step)
            if not predicted < 0:
                break
            new_value, new_gradient = objective(reached)
            n_evaluations += 1
            if new_value <= value + MIN_DECREASE * predicted:
                accepted = reached
                break
            # Minimum of the parabola through both values and the slope.
            excess = new_value - value - predicted
            share = -0.5 * predicted / excess if math.isfinite(excess) else 0.1
            length *= min(max(share, 0.1), 0.5)
        if accepted is None:
            if memory.size == 0:
                break
            memory.forget()
            continue
        memory.remember(step, new_gradient - gradient)
        x, value, gradient = accepted, new_value, new_gradient
        values.append(value)
        recent = values[-1 - N_RECENT :]
        if len(recent) > N_RECENT and recent[0] - value <= N_RECENT * negligible * value:
            break
    return x, value, n_evaluations


def _fixed_variables(x: Floats, gradient: Floats, low: Floats, high: Floats) -> Bits | None:
    """Return the variables that are at a bound and would leave it; None if there are none."""
    at_low, at_high = x <= low, x >= high
    if not (at_low | at_high).any():
        return None
    fixed = np.where(gradient > 0, at_low, at_high & (gradient < 0))
    return fixed if fixed.any() else None


class _Memory:
    """The last steps and changes of the gradient, and the inner products that H needs.

    They fill a window that moves through a larger buffer, so that adding a step copies nothing.
    """

    def __init__(self, n: int) -> None:
        capacity = 4 * MEMORY
        self._steps, self._changes = np.empty((2, capacity, n))
        self._cross = np.zeros((capacity, capacity))  # steps times changes: the upper triangle
        self._squares = np.zeros((capacity, capacity))  # changes times changes
        self._begin = self._end = 0

    @property
    def size(self) -> int:
        return self._end - self._begin

    def forget(self) -> None:
        self._begin = self._end = 0

    def remember(self, step: Floats, change: Floats) -> None:
        """Store a step if the cost is curved along it, in place of the oldest."""
        squares = float(step @ step) * float(change @ change)
        if not float(step @ change) > MIN_CURVATURE * math.sqrt(squares) > 0:
            return
        if self._end == len(self._cross):
            last = slice(self._end - MEMORY + 1, self._end)
            for rows in (self._steps, self._changes):
                rows[: MEMORY - 1] = rows[last]
            for products in (self._cross, self._squares):
                products[: MEMORY - 1, : MEMORY - 1] = products[last, last]
            self._begin, self._end = 0, MEMORY - 1
        new = self._end
        self._steps[new], self._changes[new] = step, change
        self._end += 1
        self._begin = max(self._begin, self._end - MEMORY)
        window = slice(self._begin, self._end)
        self._cross[window, new] = self._steps[window] @ change
        products = self._changes[window] @ change
        self._squares[window, new] = self._squares[new, window] = products

    def direction(self, gradient: Floats, fixed: Bits | None) -> Floats:
        """Return -H times the gradient, in the variables that are not fixed."""
        window = slice(self._begin, self._end)
        steps, changes = self._steps[window], self._changes[window]
        cross, squares = self._cross[window, window], self._squares[window, window]
        if fixed is not None:
            gradient = np.where(fixed, 0.0, gradient)
            excluded = changes[:, fixed]
            cross = cross - steps[:, fixed] @ excluded.T
            squares = squares - excluded @ excluded.T
            # The remainder of a step may have no curvature.
            curved = (cross.diagonal() > 0) & (squares.diagonal() > 0)
            if not curved.all():
                keep = np.flatnonzero(curved)
                steps, changes = steps[keep], changes[keep]
                cross, squares = cross[keep[:, None], keep], squares[keep[:, None], keep]
        if len(steps) == 0:
            # Curvatures are of order one: no step is longer than that.
            length = math.sqrt(gradient @ gradient)
            return gradient * (-1 / max(length, 1.0))
        diagonal = cross.diagonal()
        scale = diagonal[-1] / squares[-1, -1]
        right, _ = dtrtrs(cross, steps @ gradient)
        inner = diagonal * right + scale * (squares @ right - changes @ gradient)
        left, _ = dtrtrs(cross, inner, trans=1)
        result = (scale * right) @ changes
        result -= left @ steps
        result -= scale * gradient
        if fixed is not None:
            result[fixed] = 0.0
        return np.asarray(result)
