"""Compiled cost and derivatives of atoms with labels, against closed forms and plain sums."""

import numpy as np
import pytest

from privsketch.kernels import decoder

TURN = 2 * np.pi


def evaluate(kind, frequencies, corners, ends, moments, atoms):
    """Return cost and derivatives; an even number of atoms, all frequencies in one tile."""
    weights, centers, variances, shares = atoms
    is_shared = len(variances) == 1
    kernel = decoder.compile_evaluation(kind, not is_shared, labels=True)
    shape = kernel.shape
    (size, dim), (m, n_corners), widths = centers.shape, corners.shape, variances.shape[1]
    squares = np.square(frequencies)
    exponents = squares if widths == dim else squares.sum(axis=1, keepdims=True)

    def tile(rows):
        return np.pad(rows, ((0, shape.tile - m), *[(0, 0)] * (rows.ndim - 1))).T

    inputs = (
        tile(frequencies / TURN),
        tile(-exponents / 2 / np.log(2)),
        tile(np.stack([moments.real, moments.imag], axis=1)),
        tile(np.ones(m)),
        *(weights, centers, np.repeat(variances, size, axis=0) if is_shared else variances),
        tile(np.stack([corners.real, corners.imag], axis=1)),
        np.array(ends),
        shares,
    )
    outputs = [
        np.zeros(size)
        for size in (
            (size, 4 * len(ends) + 2, shape.tile),
            (2, 1, shape.lanes),
            *((size, *more, shape.lanes) for more in ((), (dim,), (widths,), (n_corners,))),
        )
    ]
    arrays = [
        np.ascontiguousarray(each, np.int64 if each.dtype.kind == "i" else shape.dtype)
        for each in (*inputs, *outputs)
    ]
    numbers = (1, size // 2, dim, widths, n_corners, len(ends))
    kernel.code.function(*numbers, *(each.ctypes.data for each in arrays))
    totals, *sums = (each.sum(axis=-1, dtype=float) for each in arrays[-5:])
    by_weight, by_center, by_variance, by_share = sums
    by_variance = by_variance[:1] if is_shared else by_variance * weights[:, None]
    gradient = (
        2 * by_weight,
        2 * TURN * weights[:, None] * by_center,
        2 * np.log(2) * by_variance,
        2 * weights[:, None] * by_share,
    )
    return totals[0].sum(), gradient


def test_the_worked_example():
    frequencies = np.array([[1.0, 2.0], [0.0, -3.0]])
    corners = np.exp(1j * np.array([[0, 1, -1], [0.5, -0.5, 2]]))
    atoms = (
        np.array([0.6, 0.4]),
        np.array([[0.1, -0.2], [0.3, 0.4]]),
        np.array([[0.04, 0.09]]),
        np.array([[0.5, 0.25, 0.25], [0, 0.2, 0.8]]),
    )
    moments = np.array([0.3 + 0.1j, 0.2 - 0.4j])
    cost, gradient = evaluate("double", frequencies, corners, [3], moments, atoms)
    assert cost == pytest.approx(0.6500904433, abs=1e-10)
    expected = (
        [1.00431346, 0.67924454],
        [[-0.02869443, -0.454981], [-0.10658066, -0.81503605]],
        [[-0.17402201, -3.06417649]],
        [[0.85353007, 0.23157648, 0.47171568], [-0.22494765, -0.56336729, 0.48046409]],
    )
    for found, numbers in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(found, numbers, atol=1e-8)


def cost_of(frequencies, corners, ends, moments, atoms):
    weights, centers, variances, shares = atoms
    exponents = np.square(frequencies)
    if variances.shape[1] == 1:
        exponents = exponents.sum(axis=1, keepdims=True)
    model = 0
    for k in range(len(weights)):
        variance = variances[0 if len(variances) == 1 else k]
        atom = weights[k] * np.exp(1j * frequencies @ centers[k] - exponents @ variance / 2)
        for first, end in zip([0, *ends], ends, strict=False):
            atom = atom * (corners[:, first:end] @ shares[k, first:end])
        model = model + atom
    return np.sum(np.abs(model - moments) ** 2)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (4, 1), (4, 3)])
def test_gradients_agree_with_differences_where_factors_are_zero(shape):
    rng = np.random.default_rng(1)
    m, ends = 7, [2, 5, 9]
    frequencies, corners = rng.normal(size=(m, 3)), np.exp(1j * rng.normal(size=(m, 9)) * 2)
    corners[:, 1] = -corners[:, 0]  # half a turn apart: mixed evenly, their factor is 0
    shares = rng.dirichlet(np.ones(9), 4)
    shares[:2, :2] = 0.5
    atoms = [rng.random(4), rng.normal(size=(4, 3)), rng.random(shape) / 2, shares]
    moments = rng.normal(size=m) + 1j * rng.normal(size=m)
    problem = frequencies, corners, ends, moments
    cost, gradient = evaluate("double", *problem, atoms)
    assert cost == pytest.approx(cost_of(*problem, atoms), rel=1e-12)
    for number, derivatives in enumerate(gradient):
        for place in np.ndindex(atoms[number].shape):
            costs = []
            for step in (1e-5, -1e-5):
                moved = [each.copy() for each in atoms]
                moved[number][place] += step
                costs.append(cost_of(*problem, moved))
            assert derivatives[place] == pytest.approx((costs[0] - costs[1]) / 2e-5, abs=1e-7)
    single, gradient_single = evaluate("float", *problem, atoms)
    assert single == pytest.approx(cost, rel=1e-5)
    for found, expected in zip(gradient_single, gradient, strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max())
