"""Sketches that no records can lead to are refused; honest ones never."""

import math
from dataclasses import replace

import numpy as np
import pytest

import privsketch as ps
from privsketch import MergeError
from privsketch.noise import NoiseLaw
from privsketch.sketching import merged_receipt, releases_of, why_impossible
from tests import seams

_log_repeat = seams.get("merge.log_repeat")


BOX = ps.Box(-1, 1, dim=2)
BALL = ps.Ball(dim=4, radius=1.0)
DESIGNS = {
    "fourier": {"domain": BOX},
    "pure": {"domain": BOX, "delta": 0.0},
    "laplace": {"domain": BOX, "delta": 0.0, "noise": "laplace"},
    "one-bit": {"domain": BOX, "feature_map": "one-bit"},
    "omitted": {"domain": BOX, "count": "omitted"},
    "cells": {"domain": BOX, "feature_map": "cells"},
    "cells, counted": {"domain": BOX, "feature_map": "cells", "count": "released"},
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


# --- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DESIGNS)
def test_a_copy_under_another_name_is_refused(name):
    design = planned(name)
    a, b = (ps.sketch(records(design, 500, s), design, source=f"{s}") for s in range(2))
    copy = named(a, "copy")
    for parts in ([a, copy], [b, a, copy], [ps.merge([a, b]), named(ps.merge([a, b]), "copy")]):
        with pytest.raises(MergeError, match=r"'0.* and '.*copy.* same values"):
            ps.merge(parts)
    with pytest.raises(MergeError, match="same values"):  # the same records have other noise
        ps.merge([a, named(a, "0")], same_records=True)
    weighted = ps.merge([copy], weights=[50])
    with pytest.raises(MergeError, match="same values"):
        ps.merge([a, weighted], allow_weights=True)
    assert ps.merge([a, b, ps.sketch(records(design, 500), design, source="again")]) is not None


def named(sketch, source):
    """The same values in the name of somebody else, as whoever edits a file would have them."""
    several = len(sketch.sources) > 1
    sources = tuple(f"{source}-{i}" if several else source for i in range(len(sketch.sources)))
    singles = [
        replace(one, source=to) for one, to in zip(releases_of(sketch), sources, strict=True)
    ]
    receipt = singles[0] if len(singles) == 1 else merged_receipt(singles)
    ids = tuple(f"{source}-{identity}" for identity in sketch.ids)
    return replace(sketch, receipt=receipt, ids=ids, sources=sources)


@pytest.mark.parametrize(("noise", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
def test_next_to_no_noise_may_repeat(noise, delta):
    """Without records, and at a budget that hides nothing, honest sketches are equal."""
    design = ps.Design.plan(
        n_components=1,
        domain=BOX,
        budget=ps.Budget(100.0, delta),
        noise=noise,
        feature_map="one-bit",
        count="omitted",
        n_features=4,
        random_state=0,
    )
    sites = [ps.sketch(np.zeros((0, 2)), design, source=f"{s}") for s in range(10)]
    assert len({part.values.tobytes() for part in sites}) < 10
    assert len(ps.merge(sites).sources) == 10


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_chances_of_a_repeated_value_are_bounds(scale, n):
    """Against sums over all integers that count."""
    reach = np.arange(-2000, 2001)
    exact = {
        "laplace": 1 / np.exp(-np.abs(reach) / scale).sum() ** n,
        "gaussian": 1 / np.exp(-(reach**2) / (2 * scale**2)).sum() ** n,
    }
    radii = np.arange(0, 4000.0)
    shells = (2 * radii + 1) ** n - np.where(radii > 0, np.abs(2 * radii - 1) ** n, 0)
    exact["cube"] = 1 / (shells * np.exp(-radii / scale)).sum()
    for kind, chance in exact.items():
        law = NoiseLaw(kind, n, 1, 1.0, 0.0, "add-remove", scale, 1.0)
        bound = math.exp(_log_repeat(law))
        assert chance * (1 - 1e-9) <= bound <= 1
        if scale >= 1:  # and close enough, for many numbers
            assert bound <= (10 * scale if kind == "cube" else 1.01) * chance


def test_a_public_number_of_records_beyond_any_is_refused():
    """Two such sketches would add up to a total that nobody can read."""
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-1, 1, dim=2),
        feature_map="cells",
        budget=ps.Budget(1.0, 0, neighbours="replace"),
        random_state=0,
    )
    sketch = ps.sketch(np.zeros((50, 2)), design, source="a")
    ps.merge([sketch])
    with pytest.raises(MergeError, match="beyond any"):
        ps.merge([replace(sketch, exact_count=2**63)])
