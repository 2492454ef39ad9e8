"""Descent in a box by a quasi-Newton method of limited memory.

The search of a decoder is some hundred short descents in a few hundred variables, whose cost
takes microseconds: what is done between two evaluations must take no longer. The inverse of the
curvature is kept as Byrd, Nocedal and Schnabel (1994) write it: with the last steps as rows of S
and the changes of the gradient as rows of Y, R the upper triangle of S Y' and D its diagonal,

    H = g I + S'R^-T (D + g Y Y') R^-1 S - g S'R^-T Y - g Y'R^-1 S,

which takes two products with S and Y. Variables that are at a bound, and would leave it, are
left out of H and of the step (Bertsekas 1982); the step is then moved into the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dtrtrs

from privsketch._base.types import Bits, Floats

MEMORY = 16  # steps that are remembered; more of them cost more than they bring
MIN_DECREASE = 1e-4  # share of the fall that the slope promises which a step must bring
MIN_CURVATURE = 1e-10  # cosine of step and change of gradient from which on they tell a curvature
MAX_TRIES = 20  # lengths of one step
N_RECENT = 5  # iterations whose falls are looked at together: a single one may be small by chance

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
        Fall of the value in one iteration, relative to it, that is not worth going on for.
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
            promised = float(gradient @ step)
            if not promised < 0:
                break
            new_value, new_gradient = objective(reached)
            n_evaluations += 1
            if new_value <= value + MIN_DECREASE * promised:
                accepted = reached
                break
            # The least value of the parabola through what is known.
            excess = new_value - value - promised
            share = -0.5 * promised / excess if math.isfinite(excess) else 0.1
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

    They are a window of rooms that it moves through, so that nothing is moved for a new one.
    """

    def __init__(self, n: int) -> None:
        n_rooms = 4 * MEMORY
        self._steps, self._changes = np.empty((2, n_rooms, n))
        self._cross = np.zeros((n_rooms, n_rooms))  # steps times changes: the upper triangle
        self._squares = np.zeros((n_rooms, n_rooms))  # changes times changes
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
            out = changes[:, fixed]
            cross, squares = cross - steps[:, fixed] @ out.T, squares - out @ out.T
            # What is left of a step may have no curvature.
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
