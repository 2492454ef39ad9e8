"""Cells: which one a record is in, how far it can move them, and designs that count them."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import privsketch as ps
from privsketch import FileError, ParameterError
from privsketch.design import cell_error, cell_noise_std, grid_count_mode, plan_cells
from privsketch.features import CellContribution, Quantiser, axis_edges, cell_counts, checked_cells
from tests.chance import exact_answers


def planned(dim=2, epsilon=1.0, delta=0.0, neighbours="add-remove", **choices):
    settings = {
        "n_components": 4,
        "domain": ps.Box(-1, 1, dim=dim),
        "budget": ps.Budget(epsilon, delta, neighbours),
        "n_records": 2000,
        "random_state": 0,
        "feature_map": "cells",
    }
    return ps.Design.plan(**{**settings, **choices})


# ---------------------------------------------------------------- which cell


@pytest.mark.parametrize("g", [1, 2, 3, 7, 100, 255, 32767, 32768, 60_001, 65_535])
def test_every_quantised_value_is_in_the_cell_of_its_definition(g):
    # Whole numbers of Python: no width of 64 bits, no rounding.
    every = np.arange(-32767, 32768, dtype=np.int16)[:, np.newaxis]
    expected = [min((q + 32767) * g // 65535, g - 1) for q in range(-32767, 32768)]
    found = np.concatenate([cell_counts(every[:1], (g,)), cell_counts(every[-1:], (g,))])
    assert found[0] == found[-1] == 1
    counts = np.bincount(expected, minlength=g)
    assert (cell_counts(every, (g,)) == counts).all()
    assert counts.max() - counts.min() <= 1  # cells are alike
    one_by_one = [
        cell_counts(every[place : place + 1], (g,)).argmax() for place in range(0, 65535, 997)
    ]
    assert one_by_one == expected[::997]


def test_cells_of_several_axes_come_in_the_order_of_an_array():
    rng = np.random.default_rng(0)
    quantised = rng.integers(-32767, 32768, (500, 3)).astype(np.int16)
    counts = cell_counts(quantised, (2, 5, 3)).reshape(2, 5, 3)
    expected = np.zeros((2, 5, 3), dtype=int)
    for record in quantised.tolist():
        where = [(q + 32767) * g // 65535 for q, g in zip(record, (2, 5, 3), strict=True)]
        expected[tuple(where)] += 1
    assert (counts == expected).all()


@pytest.mark.parametrize("domain", [ps.Box([-1, 0], [1, 30]), ps.Ball(2, 3.0, center=[1.0, -2.0])])
def test_edges_are_where_records_change_their_cell(domain):
    shape = (6, 5)
    edges, quantise = axis_edges(domain, shape), Quantiser(domain)
    rng = np.random.default_rng(1)
    records = domain.center_vector + rng.uniform(-0.7, 0.7, (400, 2)) * domain.half_widths
    for axis, along in enumerate(edges):  # and just beside every edge
        beside = np.repeat(domain.center_vector[np.newaxis], 2 * (len(along) - 2), axis=0)
        step = domain.half_widths[axis] * 1e-9
        beside[:, axis] += np.concatenate([along[1:-1] - step, along[1:-1] + step])
        records = np.vstack([records, beside])
    offsets = records - domain.center_vector
    where = [
        np.searchsorted(along, offsets[:, axis], side="right") - 1
        for axis, along in enumerate(edges)
    ]
    expected = np.ravel_multi_index(where, shape)
    found = [cell_counts(quantise(record[np.newaxis]), shape).argmax() for record in records]
    assert found == expected.tolist()
    assert all(along[0] == -half for along, half in zip(edges, domain.half_widths, strict=True))


# ---------------------------------------------------------------- how far a record moves them


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 3)])
def test_norms_are_those_of_all_pairs_of_records(shape):
    n_cells = math.prod(shape)
    one = CellContribution(n_cells, len(shape))
    cells = np.eye(n_cells, dtype=int)
    pairs = [a - b for a, b in itertools.product(cells, cells)]
    for neighbours, changes in (("add-remove", list(cells)), ("replace", pairs)):
        factor = 1 if neighbours == "add-remove" else 2  # what laws do to the L1 norm
        assert factor * one.l1(None) >= max(np.abs(change).sum() for change in changes)
        assert one.l2_squared(None, neighbours) == max((change**2).sum() for change in changes)
        assert one.linf(neighbours) == max(np.abs(change).max() for change in changes)


def test_noise_is_that_of_one_cell_or_two_or_of_all_records_of_a_person():
    for neighbours, times in (("add-remove", 1), ("replace", 2)):
        law = planned(neighbours=neighbours, epsilon=0.5, count=None).sum_noise.sums_law
        assert (law.kind, law.sensitivity) == ("laplace", times)
        assert Fraction(law.scale) >= Fraction(times) / Fraction(1, 2)
        assert law.scale == pytest.approx(2 * times)
    schema = ps.Schema(
        [ps.Number("a", 0, 1), ps.Number("b", 0, 1)], person="who", max_records=3, missing="drop"
    )
    law = planned(domain=schema, epsilon=0.5).sum_noise.sums_law
    assert (law.sensitivity, law.scale) == (3, 6.0)
    gaussian = planned(delta=1e-6, noise="gaussian", neighbours="replace").sum_noise.sums_law
    assert gaussian.sensitivity == pytest.approx(math.sqrt(2))


def test_a_count_beside_cells_has_a_share_of_epsilon():
    design = planned(count="released", epsilon=1.0)
    noise = design.sum_noise
    spent = Fraction(noise.sums_law.epsilon) + Fraction(noise.count_law.epsilon)
    assert spent <= 1
    receipt = ps.sketch(np.zeros((10, 2)), design).receipt
    assert receipt.epsilon <= 1
    assert len(receipt.parts) == 2
    assert planned().count == "omitted"
    assert planned(epsilon=0.001).count == "released"  # the sum of all cells says nothing then
    assert grid_count_mode(100, 1000, 10.0) == "omitted"
    assert grid_count_mode(100, 999, 10.0) == "released"


REFUSED = {
    "masks": ({"masks": "uniform:10"}, "masks"),
    "records left out": ({"masks": "records:0.5"}, "masks"),
    "cube": ({"noise": "cube"}, "cube"),
    "the mean": ({"mean": "released"}, "pca"),
    "components": ({"task": "pca", "domain": ps.Ball(2, 1.0)}, "expected"),
    "a scale": ({"frequency_scale": 0.5}, "no scale"),
    "frequencies": ({"frequencies": "multi-scale"}, "none"),
    "many columns": ({"domain": ps.Box(-1, 1, dim=9)}, "at most 8"),
    "more clusters than cells": ({"n_components": 30, "n_features": 20}, "number of cells"),
}


@pytest.mark.parametrize(("choices", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_proof_or_no_sense_is_refused(choices, words):
    with pytest.raises(ParameterError, match=words):
        planned(**choices)


@pytest.mark.parametrize(
    "cells", [None, [], [3], [3, 3, 3], [0, 9], [3.0, 3], [True, 9], [2**9, 2**9], "33"]
)
def test_grids_that_do_not_fit_are_refused(cells):
    with pytest.raises(ParameterError):
        checked_cells(cells, 2)


def test_files_say_how_many_cells_there_are(tmp_path):
    design = planned()
    design.save(tmp_path / "study.json")
    again = ps.Design.load(tmp_path / "study.json")
    assert again == design
    assert again.fingerprint == design.fingerprint
    fields = design.to_json()
    assert fields["cells"] == list(design.cells)
    for cells in ([1, design.n_features], [design.cells[0], design.cells[1] + 1], None, "x", [1.5]):
        changed = {**fields, "cells": cells}
        if cells is not None and len(cells) == 2 and math.prod(cells) == design.n_features:
            assert ps.Design.from_json(changed).fingerprint != design.fingerprint
            continue
        with pytest.raises(FileError):
            ps.Design.from_json(changed)
    assert "cells" not in planned(feature_map=None).to_json()
    with pytest.raises(FileError):
        ps.Design.from_json({**planned(feature_map=None).to_json(), "cells": [10, 10]})
    assert json.dumps(fields)


# ---------------------------------------------------------------- sketches


def test_sketches_count_merge_and_say_what_they_are(tmp_path):
    design = planned(domain=ps.Box([-1, 0], [1, 4]), n_features=60)
    rng = np.random.default_rng(2)
    parts = [rng.uniform([-1, 0], [1, 4], (n, 2)) for n in (300, 0, 700)]
    with exact_answers():
        sites = [ps.sketch(part, design, source=str(i)) for i, part in enumerate(parts)]
        whole = ps.sketch(np.vstack(parts), design, source="all")
    total = ps.merge(sites)
    assert (total.values == whole.values).all()
    assert whole.n_records == 1000
    edges = [
        along + c for along, c in zip(axis_edges(design.domain, design.cells), (0, 2), strict=True)
    ]
    expected, *_ = np.histogram2d(*np.vstack(parts).T, bins=edges)
    assert (whole.counts() == expected).all()
    assert (whole.mean() == expected / 1000).all()
    assert total.noise_variance == pytest.approx(3 * design.noise_std**2)
    total.save(tmp_path / "all.sketch")
    assert (ps.Sketch.load(tmp_path / "all.sketch").values == total.values).all()
    assert f"{design.cells[0]} x {design.cells[1]}" in total.describe()
    with pytest.raises(ParameterError, match="counts"):
        total.moments()
    fourier = ps.sketch(np.zeros((5, 2)), planned(feature_map="fourier"))
    with pytest.raises(ParameterError, match="no cells"):
        fourier.counts()
    with pytest.raises(ParameterError, match="pca"):
        ps.learn_pca(total)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_plots_show_counts_where_they_are(dim):
    design = planned(dim=dim, columns=["age", "bmi", "dose"][:dim])
    axis = ps.sketch(np.zeros((500, dim)), design).plot()
    if dim < 3:
        assert axis.get_xlabel() == "age"
    axis.figure.clear()


# ---------------------------------------------------------------- plans


def test_grids_are_cubes_whatever_the_widths():
    assert len(set(plan_cells(np.ones(3), 15, 5000, 5.0))) == 1
    wide = plan_cells(np.array([1.0, 10.0]), 15, 5000, 5.0)
    sides = np.array([2.0, 20.0]) / wide
    assert 0.5 < sides[0] / sides[1] < 2
    # A column that is next to nothing is not cut, and the others are as if it were not there.
    assert plan_cells(np.array([1.0, 1e-6]), 15, 5000, 5.0)[1] == 1
    alone = plan_cells(np.array([1.0]), 15, 5000, 5.0)
    assert plan_cells(np.array([1.0, 1e-9]), 15, 5000, 5.0)[0] == alone[0]
    assert math.prod(plan_cells(np.ones(5), 100, 1e10, 0.01)) <= 60_000
    for size in (1, 2, 7, 100, 1000):
        assert math.prod(plan_cells(np.array([1.0, 3.0, 0.2]), 5, 1e4, 1.0, size)) <= size


def test_noise_of_cells_is_that_of_the_design():
    for budget in (ps.Budget(0.3), ps.Budget(0.3, 0.0, "replace")):
        design = planned(epsilon=0.3, neighbours=budget.neighbours)
        assert cell_noise_std(budget, "laplace") == pytest.approx(design.noise_std)


def test_errors_are_those_of_the_fisher_information():
    # Without noise, in cells that are fine, a center is as sure as the mean of its records.
    fine = {"cells": (400, 400), "half_widths": np.ones(2), "n_components": 1, "width": 0.1}
    assert cell_error(**fine, n_records=1e4, variance=1e-12).excess == pytest.approx(1e-4, rel=0.02)
    # With noise, by the sum over all cells.
    edges = np.linspace(-1, 1, 41)
    mass = np.diff(norm.cdf(edges / 0.2))
    slope = -np.diff(norm.pdf(edges / 0.2)) / 0.2
    n, variance = 500, 9.0
    cells = n * np.outer(mass, mass)
    information = (np.outer(n * slope, mass) ** 2 / (variance + cells)).sum()
    found = cell_error(
        cells=(40, 40), half_widths=np.ones(2), n_components=1, width=0.2, n_records=n, variance=9.0
    )
    assert found.excess == pytest.approx(1 / (information * 0.2**2), rel=0.05)
    assert found.lost < 1e-6
    # Where noise hides everything, clusters are lost.
    hidden = cell_error(**fine, n_records=100, variance=1e8)
    assert hidden.lost > 0.9


def test_forecasts_follow_noise_and_records():
    def told(epsilon, n_records):
        return planned(epsilon=epsilon, n_records=n_records).forecast()

    assert told(1.0, 1e5).rsse_high < told(0.1, 1e4).rsse_high < told(0.01, 1e3).rsse_high
    assert told(1.0, 1e5).verdict == "good"
    assert told(0.01, 1e3).verdict == "hopeless"
    same = {"n_features": 400, "n_records": 1e4}
    ratios = [planned(epsilon=eps, **same).forecast().noise_to_signal for eps in (1.0, 0.1)]
    assert ratios[0] < ratios[1]
