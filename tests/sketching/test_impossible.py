"""Sketches that no records can lead to are refused; honest ones never."""

from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch.errors import MergeError
from privsketch.sketching.limits import why_impossible

BOX = ps.Box(-1, 1, dim=2)
BALL = ps.Ball(dim=4, radius=1.0)
DESIGNS = {
    "fourier": {"domain": BOX},
    "pure": {"domain": BOX, "delta": 0.0},
    "laplace": {"domain": BOX, "delta": 0.0, "noise": "laplace"},
    "one-bit": {"domain": BOX, "feature_map": "one-bit"},
    "omitted": {"domain": BOX, "count": "omitted"},
    "replace": {"domain": BOX, "neighbours": "replace"},
    "masks": {"domain": BOX, "masks": "uniform:10"},
    "records": {"domain": BOX, "masks": "records:0.5"},
    "quadratic": {"domain": BALL, "task": "pca", "feature_map": "quadratic"},
    "second-moments": {"domain": BALL, "task": "pca", "feature_map": "second-moments"},
    "with-mean": {"domain": BALL, "task": "pca", "mean": "released"},
}


def planned(name, epsilon=1.0):
    choices = {"task": "kmeans", "delta": 1e-6, "neighbours": "add-remove", **DESIGNS[name]}
    budget = ps.Budget(
        epsilon=epsilon, delta=choices.pop("delta"), neighbours=choices.pop("neighbours")
    )
    return ps.Design.plan(n_components=2, budget=budget, n_records=2000, random_state=3, **choices)


def records(design, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([-0.5, 0.5], size=(n, 1)) + rng.normal(size=(n, design.dim)) * 0.1


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 50.0])
def test_honest_sketches_are_possible(name, epsilon):
    """False-alarm rate 1e-12 for each: extreme records, few of them, and next to no noise."""
    design = planned(name, epsilon)
    least = 1 if name == "replace" else 0
    corners = np.ones((300, design.dim))
    for table in (records(design, least), records(design, 1), records(design, 2000), corners):
        assert why_impossible(ps.sketch(table, design)) is None


@pytest.mark.parametrize("name", DESIGNS)
def test_sums_times_fifty_are_refused_by_name(name):
    design = planned(name)
    honest = ps.sketch(records(design, 5000), design, source="honest")
    forged = ps.sketch(records(design, 5000, seed=1), design, source="forged")
    values = forged.values.copy()
    values[: design.n_values] *= 50
    if name not in ("omitted",):
        with pytest.raises(MergeError, match="'forged'"):
            ps.merge([honest, replace(forged, values=values)])
    everything = replace(forged, values=forged.values * 50)  # the count with them
    with pytest.raises(MergeError, match="'forged'"):
        ps.merge([honest, everything])


def test_weights_are_no_forgery():
    design = planned("fourier")
    sites = [ps.sketch(records(design, 500, s), design, source=f"{s}") for s in range(3)]
    total = ps.merge(sites[:2], weights=[4, 2])
    assert why_impossible(total) is None
    assert ps.merge([total, sites[2]], allow_weights=True).weights == (4, 2, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: np.append(values[:-1], -(10**14)), "below zero"),
        (lambda values: np.append(values[:-1], 2**62), "."),
        (lambda values: np.zeros_like(values), "multiples"),
        (lambda values: np.append(values[:-1], values[-1] // 50), "larger"),
        (lambda values: np.full_like(values, 2**63 - 1), "."),
    ],
)
def test_what_else_cannot_be(change, words):
    design = planned("fourier", epsilon=5.0)
    honest = ps.sketch(records(design, 5000), design)
    reason = why_impossible(replace(honest, values=change(honest.values)))
    assert reason is not None
    assert words == "." or words in reason
