"""Corners of categories, flags and cycles, and the waves of records at them."""

import numpy as np
import pytest

import privsketch as ps
from privsketch.facts import layout_of

SCHEMA = ps.Schema(
    [
        ps.Category("region", ["north", "south"], weight=0.3),
        ps.Number("age", 0, 100),
        ps.Flag("smoker", weight=2.0),
        ps.Cycle("hour", 24, weight=1.5),
        ps.Flag("member", missing="category"),
        ps.Date("day", "2020-01-01", "2021-01-01"),
    ]
)
CENTER = SCHEMA.box.center_vector


def test_columns_are_numbers_or_blocks():
    layout = layout_of(SCHEMA, CENTER)
    assert layout.dim == SCHEMA.dim == 3 + 1 + 1 + 2 + 3 + 1
    assert layout.numbers.tolist() == [3, 10]
    assert [(block.place.start, len(block.corners)) for block in layout.blocks] == [
        (0, 3),
        (4, 2),
        (5, 16),
        (7, 3),
    ]
    assert layout.ends.tolist() == [3, 5, 21, 24]
    assert layout_of(ps.Schema([ps.Number("age", 0, 100)]), np.zeros(1)) is None
    assert layout_of(None, np.zeros(1)) is None


def test_corners_of_labels_are_their_records():
    layout = layout_of(SCHEMA, CENTER)
    for block, column in (
        (layout.blocks[0], SCHEMA.columns[0]),
        (layout.blocks[1], SCHEMA.columns[2]),
    ):
        records = column.encode(np.arange(float(len(column.labels)))).T
        np.testing.assert_allclose(block.corners + CENTER[block.place], records)
        frequencies = np.random.default_rng(0).normal(scale=3, size=(5, block.corners.shape[1]))
        direct = np.exp(1j * (records - CENTER[block.place]) @ frequencies.T)
        np.testing.assert_allclose(block.waves(frequencies), direct)
        assert block.side == pytest.approx(column.weight if column.is_line else column.corner)


@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_waves_of_a_cycle_are_integrals_over_its_clouds(scale):
    """A fine grid of angles integrates a smooth periodic function to rounding."""
    block = layout_of(SCHEMA, CENTER).blocks[2]
    frequencies = np.random.default_rng(1).normal(scale=scale, size=(7, 2))
    angles = np.linspace(-np.pi, np.pi, 2000, endpoint=False)
    normal = sum(
        np.exp(-((angles + 2 * np.pi * turn) ** 2) / 2 / block.spread**2) for turn in (-1, 0, 1)
    )
    normal /= normal.sum()
    for corner, wave in zip(block.corners, block.waves(frequencies), strict=True):
        turned = (corner[0] + 1j * corner[1]) * np.exp(1j * angles)
        points = np.stack([turned.real, turned.imag], axis=1)
        np.testing.assert_allclose(wave, np.exp(1j * frequencies @ points.T) @ normal, atol=1e-9)


def test_means_and_variances_are_those_of_draws():
    """Errors of the means of 40,000 draws: five standard deviations, one of 2e-6 false alarms."""
    layout = layout_of(SCHEMA, CENTER)
    rng = np.random.default_rng(2)
    n = 40_000
    shares = np.concatenate([rng.dirichlet(np.ones(len(b.corners))) for b in layout.blocks])
    means = layout.means(np.array([[0.1, -0.2]]), shares[None])[0]
    variances = layout.variances(np.array([[0.01, 0.04]]), shares[None])[0]
    np.testing.assert_allclose(means[layout.numbers], [0.1, -0.2])
    np.testing.assert_allclose(variances[layout.numbers], [0.01, 0.04])
    for block, part in layout.parts:
        drawn = block.draw(rng.choice(len(block.corners), size=n, p=shares[part]), rng)
        deviation = np.sqrt(variances[block.place] / n)
        assert np.all(np.abs(drawn.mean(axis=0) - means[block.place]) < 5 * deviation + 1e-12)
        np.testing.assert_allclose(drawn.var(axis=0), variances[block.place], rtol=0.1)
