"""Descents in a box, against SciPy's and against answers that are known."""

import numpy as np
import pytest
from scipy.optimize import Bounds, minimize, rosen, rosen_der

from privsketch.learning import MEMORY, minimise
from tests import seams

_Memory = seams.get("quasi_newton.Memory")


def quadratic(rng, n, *, condition=100.0):
    """A convex quadratic with its gradient."""
    turn, _ = np.linalg.qr(rng.standard_normal((n, n)))
    matrix = turn * np.geomspace(1, condition, n) @ turn.T
    shift = rng.standard_normal(n)

    def objective(x):
        gradient = matrix @ (x - shift)
        return 1 + float(gradient @ (x - shift)) / 2, gradient

    return objective


def everywhere(n):
    return np.full(n, -np.inf), np.full(n, np.inf)


def test_the_direction_is_that_of_the_recursion():
    # Nocedal's two loops, over the variables that are not held.
    rng = np.random.default_rng(0)
    n = 30
    objective = quadratic(rng, n)
    for held in (None, rng.random(n) < 0.3):
        memory, steps, changes = _Memory(n), [], []
        for _ in range(MEMORY + 3):
            x, step = rng.standard_normal((2, n))
            steps.append(step)
            changes.append(objective(x + step)[1] - objective(x)[1])
            memory.remember(steps[-1], changes[-1])
            gradient = rng.standard_normal(n)
            free = np.ones(n) if held is None else 1.0 * ~held
            kept = [
                (s * free, y * free)
                for s, y in zip(steps[-MEMORY:], changes[-MEMORY:], strict=True)
                if (s * free) @ y > 0
            ]
            q, factors = gradient * free, []
            for s, y in kept[::-1]:
                factors.append((s @ q) / (s @ y))
                q = q - factors[-1] * y
            s, y = kept[-1]
            q = q * (s @ y) / (y @ y)
            for (s, y), factor in zip(kept, factors[::-1], strict=True):
                q = q + s * (factor - (y @ q) / (s @ y))
            found = memory.direction(gradient, held)
            np.testing.assert_allclose(found, -q, rtol=1e-6, atol=1e-9 * np.abs(q).max())


def test_steps_without_curvature_are_not_remembered():
    memory = _Memory(2)
    memory.remember(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    memory.remember(np.zeros(2), np.zeros(2))
    assert memory.size == 0


@pytest.mark.parametrize("n", [1, 5, 60])
@pytest.mark.parametrize("bound", [np.inf, 0.5, 0.0])
def test_convex_quadratics_in_a_box_have_the_minimum_of_scipy(n, bound):
    rng = np.random.default_rng(n)
    objective = quadratic(rng, n)
    low, high = np.full(n, -bound), np.full(n, 2 * bound)
    start = np.clip(3 * rng.standard_normal(n), low, high)
    x, value, n_evaluations = minimise(objective, start, low, high, n_iterations=1000)
    right = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(low, high),
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9},
    )
    assert value == pytest.approx(right.fun, rel=1e-9)
    np.testing.assert_allclose(x, right.x, atol=1e-3)
    assert np.all((x >= low) & (x <= high))
    assert n_evaluations >= 1


def test_a_curved_valley_is_followed_to_its_end():
    start = np.array([-1.2, 1.0] * 3)

    def objective(x):
        return float(rosen(x)), rosen_der(x)

    x, value, n_evaluations = minimise(objective, start, *everywhere(6), n_iterations=500)
    np.testing.assert_allclose(x, 1, atol=1e-4)
    assert value < 1e-8
    assert n_evaluations < 200


def test_small_falls_end_a_descent_and_many_iterations_do():
    objective = quadratic(np.random.default_rng(3), 60, condition=1e4)
    start, box = np.full(60, 5.0), everywhere(60)
    _, exact, n_exact = minimise(objective, start, *box, n_iterations=2000)
    _, early, n_early = minimise(objective, start, *box, n_iterations=2000, negligible=1e-3)
    _, _, n_few = minimise(objective, start, *box, n_iterations=4)
    assert n_few <= 8 < n_early < n_exact
    assert exact < early < exact * (1 + 100 * 1e-3)


def test_values_that_are_no_numbers_are_stepped_back_from():
    def objective(x):
        with np.errstate(invalid="ignore"):
            return float(x[0] - np.log(x[0])), 1 - 1 / x

    x, _, _ = minimise(objective, np.array([50.0]), *everywhere(1), n_iterations=200)
    np.testing.assert_allclose(x, 1, atol=1e-4)
