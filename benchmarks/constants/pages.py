"""Curves of pages: grid and gradient steps of the comparison of sources."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache

import numpy as np

import privsketch as ps
from benchmarks.constants import Curve
from privsketch.learning.problem import Atoms
from privsketch.pages.comparison.explain import UNIT_CHANGES, fit_shares
from privsketch.pages.comparison.observation import observe
from privsketch.pages.comparison.reference import UNCHANGED, Features, Reference

_ROWS = np.arange(1500)  # features that are compared
_MEANS = np.array([[60.0, 160.0], [95.0, 185.0], [75.0, 170.0]])
_WIDTHS = np.array([5.0, 4.0])
_POUNDS = 2.2046226


@cache
def _sketch() -> ps.Sketch:
    """Return a sketch of three clusters whose first column is in pounds."""
    design = ps.Design.plan(
        n_components=3,
        domain=ps.Box([0, 0], [300, 250]),
        n_records=4000,
        n_features=1500,
        budget=ps.Budget(1.0, 1e-6),
        random_state=5,
    )
    rng = np.random.default_rng(0)
    records = _MEANS[rng.integers(3, size=4000)] + _WIDTHS * rng.normal(size=(4000, 2))
    return ps.sketch(records * [_POUNDS, 1.0], design)


def _reference() -> Reference:
    """Return the mixture of other sources, in kilograms: twice as many components as clusters."""
    design = _sketch().design
    means = np.vstack([_MEANS, _MEANS + _WIDTHS]) - design.domain.center_vector
    atoms = Atoms(np.ones(6), means, np.tile(_WIDTHS**2, (6, 1)))
    return Reference(Features(design, _ROWS), atoms)


def _grid() -> Mapping[str, float]:
    reference = _reference()
    frequencies = reference.features.frequencies[:, 0]
    means, widths = reference.means[:, :1], reference.widths[:, :1]
    exact = np.exp(1j * means * frequencies - (widths * frequencies) ** 2 / 2)
    changes = [UNCHANGED] * 20
    start = time.thread_time()
    factors = reference.features.line_factor(0, 1, means, widths, changes)
    seconds = (time.thread_time() - start) / len(changes)
    error = float(np.sqrt(np.mean(np.abs(factors[0] - exact) ** 2)))
    return {"rms error of a factor": error, "ms a change": 1000 * seconds}


def _steps() -> Mapping[str, float]:
    reference = _reference()
    fit, baseline, _ = fit_shares(observe(_sketch(), _ROWS), reference)
    vectors = reference.vectors({}, 0, UNIT_CHANGES)
    exact = np.array([fit.solve(trial)[0] for trial in vectors])
    start = time.thread_time()
    quick = fit.costs(vectors)
    seconds = time.thread_time() - start
    errors = np.abs(quick - exact) / (baseline - exact.min())
    return {
        "largest error, share of the gain": float(errors.max()),
        "same best unit": float(quick.argmin() == exact.argmin()),
        "ms a unit": 1000 * seconds / len(vectors),
    }


_PACKAGE = "privsketch.pages.comparison"
CURVES = (
    Curve(
        f"{_PACKAGE}.reference.N_GRID_POINTS",
        (25, 49, 97, 193, 385, 769),
        _grid,
        "Error of a component's characteristic function, three clusters in 2 columns; that of "
        "sampling 4,000 records is 0.016, and the value in use adds far less.",
    ),
    Curve(
        f"{_PACKAGE}.observation.N_GRADIENT_STEPS",
        (5, 15, 30, 60, 120, 240),
        _steps,
        "Largest error of the quick chi-square of all units' factors, one source in pounds, in "
        "parts of the gain by the best one; the candidates are computed in full afterwards.",
    ),
)
