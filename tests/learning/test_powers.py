"""Fits of third powers: their gradient, what they gain under uniform noise, and where they stop."""

from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch.learning import Atoms, cost_of_powers, make_target, problem_of, refine_powers
from privsketch.learning.problem import cost_and_gradient, features
from privsketch.learning.refine import refine
from tests import seams


def some_atoms(rng, size, dim, *, shared, round_ones):
    shape = (1 if shared else size, 1 if round_ones else dim)
    return Atoms(
        rng.uniform(0.5, 1, size), rng.uniform(-1, 1, (size, dim)), rng.uniform(0.01, 0.1, shape)
    )


def target_of(rng, atoms, noise, n_features=60):
    frequencies = rng.normal(size=(n_features, atoms.centers.shape[1])) * 2
    clean = make_target(frequencies, np.zeros(n_features, complex))
    values = atoms.weights @ features(clean, atoms.centers, atoms.variances)
    values = (values + noise(2 * n_features)).reshape(2, -1)
    return make_target(frequencies, values[0] + 1j * values[1], low=-2.0, high=2.0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("round_ones", [True, False])
def test_the_gradient_is_the_slope_of_the_cost(shared, round_ones):
    rng = np.random.default_rng(1)
    atoms = some_atoms(rng, 3, 2, shared=shared, round_ones=round_ones)
    target = target_of(rng, atoms, lambda n: rng.uniform(-1, 1, n))
    _, gradient = cost_of_powers(target, atoms, 0.7)
    for name in ("weights", "centers", "variances"):
        for place in np.ndindex(getattr(atoms, name).shape):
            step = np.zeros(getattr(atoms, name).shape)
            step[place] = 1e-6
            above, below = (
                cost_of_powers(
                    target, replace(atoms, **{name: getattr(atoms, name) + sign * step}), 0.7
                )[0]
                for sign in (1, -1)
            )
            assert getattr(gradient, name)[place] == pytest.approx(
                (above - below) / 2e-6, rel=1e-4, abs=1e-5
            )


def test_second_powers_are_the_squares(monkeypatch):
    seams.set(monkeypatch, "refine.POWER", 2)
    rng = np.random.default_rng(2)
    atoms = some_atoms(rng, 4, 3, shared=False, round_ones=False)
    target = target_of(rng, atoms, lambda n: rng.uniform(-1, 1, n))
    cost, gradient = cost_of_powers(target, atoms, 0.3)
    expected, slopes = cost_and_gradient(target, atoms)
    assert cost == pytest.approx(expected)
    np.testing.assert_allclose(gradient.centers, slopes.centers, rtol=1e-9, atol=1e-9)


def test_uniform_noise_leaves_three_fifths_of_the_variance():
    # 3 / (2 p - 1) for p = 3; of 150 fits the ratio of mean squares has an error of about 8 %.
    rng = np.random.default_rng(3)
    atoms = some_atoms(rng, 2, 2, shared=True, round_ones=True)
    errors = []
    for _ in range(150):
        target = target_of(rng, atoms, lambda n: rng.uniform(-0.2, 0.2, n), n_features=150)
        squares, _ = refine(target, atoms, n_iterations=60)
        third = refine_powers(target, squares, 0.2 / np.sqrt(3))
        errors.append([np.sum((found.centers - atoms.centers) ** 2) for found in (squares, third)])
    by_squares, by_powers = np.mean(errors, axis=0)
    assert by_powers / by_squares == pytest.approx(3 / 5, abs=0.15)


def test_only_the_cube_of_one_release_is_uniform(make_design, make_records, no_noise):
    records = make_records(200)
    pure = make_design(delta=0.0)
    assert pure.noise == "cube"
    one, other = (ps.sketch(records, pure, source=name) for name in "ab")
    assert problem_of(one).uniform
    assert not problem_of(ps.merge([one, other])).uniform
    assert not problem_of(ps.sketch(records, make_design())).uniform
    assert not problem_of(ps.sketch(records, make_design(delta=0.0, noise="laplace"))).uniform
