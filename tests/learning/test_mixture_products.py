"""Mixtures of tables with categories, flags and cycles, from sketches."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import privsketch as ps
from privsketch.facts import layout_of
from privsketch.learning import (
    chart_of,
    from_variances,
    jacobian,
    logarithms,
    make_distortion,
    make_limits,
    make_sums,
    mixture_moments,
    moved,
    objective,
    pack,
    sampling_covariance,
    sampling_variances,
)
from privsketch.learning.mixture import features
from tests import seams

KINDS = ["full", "tied", "diag", "spherical"]
SCHEMA = ps.Schema(
    [
        ps.Number("x", -1, 1),
        ps.Category("region", ["north", "south"], weight=1.5),
        ps.Cycle("hour", 24),
        ps.Flag("smoker", weight=0.8),
        ps.Number("y", -1, 1),
    ]
)
LAYOUT = layout_of(SCHEMA, SCHEMA.box.center_vector)


def random_products(kind, seed=0, size=3):
    """Return components of which the first has no record at one corner of each block."""
    rng = np.random.default_rng(seed)
    means, variances = rng.uniform(-0.6, 0.6, (size, 2)), rng.uniform(0.01, 0.1, (size, 2))
    shares = np.hstack([rng.dirichlet(np.ones(len(b.corners)), size) for b in LAYOUT.blocks])
    shares[0, [part.start for _, part in LAYOUT.parts]] = 0.0
    weights = rng.uniform(0.5, 1.5, size)
    return from_variances(weights, means, variances, kind, shares).normalised(LAYOUT.ends)


def frequencies_of(n, seed=1):
    return np.random.default_rng(seed).normal(size=(n, SCHEMA.dim)) * 2


def differences(function, x, steps):
    columns = [(function(x + step) - function(x - step)) / 2e-5 for step in 1e-5 * steps]
    return np.stack(columns, axis=-1)


# --- the mathematics -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_slope_of_the_cost(kind):
    frequencies = frequencies_of(30)
    sums = make_sums(
        frequencies, mixture_moments(frequencies, random_products(kind, 2), LAYOUT), kind, LAYOUT
    )
    start = random_products(kind)
    limits = make_limits(sums.frequencies, np.full(2, -1.0), np.full(2, 1.0))
    x = pack(start, limits)
    slopes = differences(lambda v: objective(v, sums, start, limits)[0], x, np.eye(len(x)))
    assert objective(x, sums, start, limits)[1] == pytest.approx(slopes, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_jacobian_is_the_slope_of_the_moments(kind):
    """Along directions in which shares of a block keep their sum."""
    frequencies = frequencies_of(20)
    start = random_products(kind)
    start = replace(start, shares=start.shares + 0.1).normalised(LAYOUT.ends)  # steps stay inside
    sums = make_sums(frequencies, mixture_moments(frequencies, start, LAYOUT), kind, LAYOUT)
    limits = make_limits(sums.frequencies, np.full(2, -1.0), np.full(2, 1.0))
    chart = chart_of(start, LAYOUT.ends)
    n_free = start.size * (3 + len(LAYOUT.sides) - len(LAYOUT.blocks)) + logarithms(start).size

    def model(step):
        at = moved(start, step, limits, LAYOUT.ends)
        return at.weights @ features(sums, at)

    steps = chart.expand(np.eye(n_free)).T
    slopes = differences(model, np.zeros(steps.shape[1]), steps)
    assert chart.restrict(jacobian(sums, start)) == pytest.approx(slopes, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_covariance_is_that_of_characteristic_functions(kind):
    """Products of cosines and sines are cosines and sines of sums and differences."""
    frequencies, mixture = frequencies_of(60), random_products(kind)
    total = mixture.weights.sum()

    def at(signs):
        pairs = frequencies[:, None] + signs * frequencies[None]
        return (
            mixture_moments(pairs.reshape(-1, SCHEMA.dim), mixture, LAYOUT).reshape(60, 60) / total
        )

    plus, minus = at(1), at(-1)
    products = np.block(
        [
            [(minus + plus).real / 2, (plus - minus).imag / 2],
            [(plus + minus).imag / 2, (minus - plus).real / 2],
        ]
    )
    means = mixture_moments(frequencies, mixture, LAYOUT) / total
    means = np.concatenate([means.real, means.imag])
    expected = products - np.outer(means, means)
    found = sampling_covariance(frequencies, mixture, LAYOUT)
    assert found == pytest.approx(expected, abs=1e-9)
    variances = sampling_variances(frequencies, mixture, LAYOUT)
    assert variances == pytest.approx(np.diag(expected), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_edge_and_its_slopes(kind, monkeypatch):
    seams.set(monkeypatch, "search.MAX_OUTSIDE_DRAWS", 10**6)
    seams.set(monkeypatch, "search.DRAWN_NUMBERS", 8_000)
    rng = np.random.default_rng(3)
    start = random_products(kind)
    start = replace(start, means=start.means + 0.5, shares=start.shares + 0.1)
    start = start.normalised(LAYOUT.ends)
    frequencies = frequencies_of(15)
    edge = make_distortion(lambda x: np.clip(x, -1, 1), 2, None, rng, LAYOUT)
    shift, share = edge.shift(frequencies, start)
    assert share > 0.1

    n = 100_000
    component = rng.choice(3, n, p=start.weights / start.weights.sum())
    roots = np.linalg.cholesky(start.matrices())[component]
    normal = rng.standard_normal((n, 2))
    numbers = start.means[component] + np.einsum("nab,nb->na", roots, normal)
    records = LAYOUT.records(numbers, start.shares[component], rng)
    phases = records @ frequencies.T
    records[:, LAYOUT.numbers] = np.clip(numbers, -1, 1)
    change = np.exp(1j * (records @ frequencies.T)) - np.exp(1j * phases)
    seen = start.weights.sum() * change.mean(axis=0)
    assert shift == pytest.approx(np.concatenate([seen.real, seen.imag]), abs=0.04)
    assert np.abs(seen).max() > 0.1

    limits = make_limits(frequencies[:, LAYOUT.numbers], np.full(2, -2.0), np.full(2, 2.0))
    chart = chart_of(start, LAYOUT.ends)
    slopes = chart.restrict(edge.slopes(frequencies, start))
    steps = chart.expand(np.eye(slopes.shape[1])).T * 100  # phases are in single precision
    expected = differences(
        lambda step: edge.shift(frequencies, moved(start, step, limits, LAYOUT.ends))[0] / 100,
        np.zeros(steps.shape[1]),
        steps,
    )
    assert slopes == pytest.approx(expected, abs=0.03)
    assert np.abs(expected).max() > 0.1


# --- from sketches -------------------------------------------------------------------------------

SHARES = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.0, 1.0, 0.0]])  # of regions by component
SMOKERS = np.array([0.9, 0.1, 0.5])
HOURS, SPREADS = np.array([3.0, 12.0, 23.0]), np.array([1.0, 3.0, 2.0])
MEANS = np.array([[-0.6, 0.5], [0.0, -0.5], [0.7, 0.0]])


def table_of(n_records=20_000, seed=0):
    """Return a table whose cells are independent in each of three components."""
    rng = np.random.default_rng(seed)
    component = rng.choice(3, n_records, p=[0.5, 0.3, 0.2])
    labels = (np.cumsum(SHARES, axis=1)[component] < rng.random((n_records, 1))).sum(axis=1)
    numbers = MEANS[component] + 0.1 * rng.standard_normal((n_records, 2))
    return pd.DataFrame(
        {
            "x": numbers[:, 0],
            "region": np.array(["north", "south", "east"])[np.minimum(labels, 2)],
            "hour": (HOURS + SPREADS * rng.standard_normal((n_records, 3)))[
                np.arange(n_records), component
            ]
            % 24,
            "smoker": rng.random(n_records) < SMOKERS[component],
            "y": numbers[:, 1],
        }
    )


def learned(names=("x", "region", "hour", "smoker", "y"), kind="diag", n_records=20_000, **options):
    columns = [column for column in SCHEMA.columns if column.name in names]
    design = ps.Design.plan(
        domain=ps.Schema(columns),
        n_components=3,
        task="gaussian-mixture",
        covariance_type=kind,
        budget=ps.Budget(1.0, 1e-6),
        n_records=n_records,
        random_state=1,
        **options,
    )
    table = table_of(n_records)[list(names)]
    return ps.learn_gaussian_mixture(ps.sketch(table, design), 3, covariance_type=kind)


FIELDS = {
    "region=north": SHARES[:, 0],
    "region=south": SHARES[:, 1],
    "region=other": SHARES[:, 2],
    "smoker": SMOKERS,
    "x": MEANS[:, 0],
    "y": MEANS[:, 1],
    "hour": HOURS,
}
CASES = {
    "diag": {},
    "full": {"kind": "full"},
    "tied": {"kind": "tied"},
    "spherical": {"kind": "spherical"},
    "no cycle": {"names": ("x", "region", "smoker", "y")},
    "no numbers": {"names": ("region", "hour", "smoker")},
    "one-bit": {"feature_map": "one-bit"},
}


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("case", CASES)
def test_shares_are_right_and_their_errors_hold(case):
    """Five errors have 6e-7 false alarms for each of at most 21 numbers."""
    model = learned(**CASES[case])
    assert model.misfit < 1.4
    assert model.covariance_type == CASES[case].get("kind", "diag")
    found, errors = model.table(), model.table("standard_errors")
    names = [name for name in FIELDS if name in found]
    truth = np.stack([FIELDS[name] for name in names], axis=1)
    values = found[names].to_numpy()
    order = np.abs(values[:, None] - truth)[:, :, :2].sum(axis=2).argmin(axis=0)
    off, within = np.abs(values[order] - truth), errors[names].to_numpy()[order]
    assert (off < 5 * within + 1e-9).all()
    assert within[:, [n for n, name in enumerate(names) if name != "hour"]].max() < 0.05


@pytest.mark.usefixtures("fixed_noise")
def test_a_file_keeps_shares_and_predictions(tmp_path):
    model = learned(kind="full")
    model.save(tmp_path / "model.json")
    again = ps.load(tmp_path / "model.json")
    rows = ps.encode(table_of(100), SCHEMA)
    assert again.score(rows) == model.score(rows)
    assert (np.linalg.eigvalsh(again.covariance_matrices()) > 0).all()
