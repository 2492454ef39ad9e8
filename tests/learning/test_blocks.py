"""Atoms of tables with categories, flags and cycles: products of Gaussians and laws of labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from privsketch.learning import Atoms, Evaluator, cost, make_target
from privsketch.learning.problem import cost_and_gradient, features

SHAPES = [(1, 1), (5, 1), (1, 3), (5, 3)]


def with_blocks(target, waves, *lengths):
    """Return a target with blocks of so many corners, whose waves are (n_corners, m)."""
    ends = np.cumsum(lengths, dtype=np.int64)
    labels = np.stack([waves.real, waves.imag], axis=1)
    return replace(target, labels=labels, ends=ends, sides=np.ones(len(waves)))


def random_case(shape, lengths=(2, 4), m=40, seed=0):
    """Return a target with a taper and random waves, and random atoms with zeros among shares."""
    rng = np.random.default_rng(seed)
    size, dim = 5, 3
    target = make_target(
        rng.standard_normal((m, dim)), rng.standard_normal(m) + 1j * rng.standard_normal(m)
    )
    n_corners = sum(lengths)
    target = with_blocks(target, np.exp(1j * rng.uniform(-3, 3, (n_corners, m))), *lengths)
    shares = rng.uniform(0, 1, (size, n_corners)) * (rng.random((size, n_corners)) > 0.3)
    atoms = Atoms(
        rng.uniform(0.1, 1, size),
        rng.standard_normal((size, dim)),
        rng.uniform(0.05, 0.5, shape),
        shares,
    )
    return target.tapered(rng.uniform(0.2, 1, m)), atoms


def test_a_small_example_worked_out_by_hand():
    target = make_target(np.array([[1.0, 2.0], [0.0, -3.0]]), np.array([0.3 + 0.1j, 0.2 - 0.4j]))
    phases = np.array([[0.0, 1.0, -1.0], [0.5, -0.5, 2.0]])
    target = with_blocks(target, np.exp(1j * phases.T), 3)
    atoms = Atoms(
        np.array([0.6, 0.4]),
        np.array([[0.1, -0.2], [0.3, 0.4]]),
        np.array([[0.04, 0.09]]),
        np.array([[0.5, 0.25, 0.25], [0.0, 0.2, 0.8]]),
    )
    rows = features(target, atoms.centers, atoms.variances, atoms.shares)
    expected = [
        [0.60238402 - 0.18633921j, 0.17429899 + 0.39981083j],
        [0.5690458 + 0.20673656j, 0.35456252 + 0.25048442j],
    ]
    np.testing.assert_allclose(rows[:, :2] + 1j * rows[:, 2:], expected, atol=1e-8)
    value, gradient = cost_and_gradient(target, atoms)
    assert value == pytest.approx(0.6500904433, abs=1e-10)
    by_shares = [0.85353007, 0.23157648, 0.47171568, -0.22494765, -0.56336729, 0.48046409]
    np.testing.assert_allclose(gradient.weights, [1.00431346, 0.67924454], atol=1e-8)
    by_center = [-0.02869443, -0.454981, -0.10658066, -0.81503605]
    np.testing.assert_allclose(gradient.centers.ravel(), by_center, atol=1e-8)
    np.testing.assert_allclose(gradient.variances, [[-0.17402201, -3.06417649]], atol=1e-8)
    np.testing.assert_allclose(gradient.shares.ravel(), by_shares, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lengths", [(3,), (2, 4), (2, 3, 2)])
def test_gradient_agrees_with_finite_differences(shape, lengths):
    target, atoms = random_case(shape, lengths)
    value, gradient = cost_and_gradient(target, atoms)
    assert value == pytest.approx(cost(target, atoms), rel=1e-12)
    differences = approx_fprime(atoms.flat(), lambda x: cost(target, atoms.unflat(x)), 1e-7)
    np.testing.assert_allclose(gradient.flat(), differences, rtol=1e-4, atol=1e-4)


def test_scales_of_weight_and_shares_are_redundant():
    target, atoms = random_case((5, 3))
    settled = atoms.normalised(target.ends)
    assert cost(target, settled) == pytest.approx(cost(target, atoms), rel=1e-12)
    np.testing.assert_allclose(settled.shares[:, :2].sum(axis=1), 1)
    np.testing.assert_allclose(settled.shares[:, 2:].sum(axis=1), 1)
    empty = replace(atoms, shares=np.where(np.arange(6) < 2, 0.0, atoms.shares))
    settled = empty.normalised(target.ends)
    assert not settled.weights.any()
    np.testing.assert_allclose(settled.shares[:, :2], 0.5)


@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_evaluation_agrees_with_its_definition(shape, precision):
    target, atoms = random_case(shape, (2, 4, 3))
    value, gradient = cost_and_gradient(target, atoms)
    found, by_atoms = Evaluator(target.astype(precision), atoms)(atoms)
    tolerance = 1e-9 if precision is np.float64 else 1e-4
    assert found == pytest.approx(value, rel=tolerance)
    largest = np.abs(gradient.flat()).max()
    np.testing.assert_allclose(by_atoms.flat(), gradient.flat(), atol=tolerance * largest)


def test_tables_of_labels_alone_have_no_numbers():
    target, atoms = random_case((1, 1), (2, 4))
    target = replace(target, frequencies=np.zeros((40, 0)), squares=np.zeros((40, 0)))
    atoms = replace(atoms, centers=np.zeros((5, 0)), variances=np.zeros((1, 0)))
    value, gradient = cost_and_gradient(target, atoms)
    found, by_atoms = Evaluator(target, atoms)(atoms)
    assert found == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(by_atoms.flat(), gradient.flat(), atol=1e-9)
