"""Frequencies: the same numbers everywhere and for good, with the law they claim."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import privsketch as ps
from privsketch._base import cosine_sine, exponential, natural_log
from privsketch.features import (
    PublicStream,
    RadialLaw,
    Tail,
    draw_frequencies,
    frequencies_from_json,
    frequencies_to_json,
)
from privsketch.features import frequencies as module

BOX = ps.Box(-8, 8, dim=5)
TAILED = RadialLaw((0.01, 4.0), Tail(0.15, 0.25))


def draw(law="multi-scale", scales=(0.25, 4.0), n=500, seed=1, domain=BOX, dithered=False):
    return draw_frequencies(
        domain, law=law, n_features=n, scales=scales, seed=seed, dithered=dithered
    )


def test_the_stream_is_philox():
    # Philox4x64-10 as published: raw words of NumPy's generator, whose stream is guaranteed.
    words = np.random.Philox(key=np.array([7, 0], dtype=np.uint64)).random_raw(3)
    assert words.tolist() == [16086915834549238692, 5448529601018347655, 7749434361382612120]
    first = PublicStream(7, 0).uniform(3)
    assert first.tolist() == [((int(word) >> 12) + 0.5) / 2**52 for word in words]


def test_series_agree_with_the_mathematical_library():
    u = PublicStream(3, 0).uniform(20_000)
    assert np.abs(natural_log(u) - np.log(u)).max() < 1e-14
    x = 60 * (u - 0.5)
    assert np.abs(exponential(x) / np.exp(x) - 1).max() < 1e-14
    cosine, sine = cosine_sine(u)
    assert np.abs(cosine - np.cos(2 * np.pi * u)).max() < 1e-15 * 8
    assert np.abs(sine - np.sin(2 * np.pi * u)).max() < 1e-15 * 8


def test_normals_are_normal():
    assert stats.kstest(PublicStream(5, 0).normal(50_001), "norm").pvalue > 1e-6


@pytest.mark.parametrize(
    ("law", "scales", "dithered"),
    [
        ("multi-scale", (0.25, 4.0), False),
        ("multi-scale", (0.25, 4.0), True),
        ("adapted-radius", (1.5, 1.5), False),
        ("gaussian", (1.5, 1.5), False),
    ],
)
def test_frequencies_are_fixed_for_good(law, scales, dithered):
    # A design stores a seed; these checksums prove that every version draws the same matrix.
    assert draw(law, scales, n=64, seed=42, dithered=dithered).checksum == GOLDEN[law, dithered]


@pytest.mark.parametrize("law", ["multi-scale", "structured"])
def test_tails_are_fixed_for_good(law):
    assert draw(law, TAILED, n=64, seed=42).checksum == GOLDEN[law, TAILED]


GOLDEN = {
    ("multi-scale", False): "9c041f9413add30f2b863b48e958e47cbfe495c48893148b2250349ed8d2741a",
    ("multi-scale", True): "26d2b3387fe1e295a9bd8c5fccde09a64a621dc926ac7d6dd2348452f376beeb",
    ("adapted-radius", False): "bd299d00331d1c08a87d325e53a8eb72c5e348cc4c32d344edaca1cedb600163",
    ("gaussian", False): "1c9fc944b0aa090a62f8168754c003561d121ccce733840ba51865729810a4a9",
    ("multi-scale", TAILED): "2c008baf7ca12255e3d3ed7dc4b747130535e1a000c4732ce63ec6129f8726f3",
    ("structured", TAILED): "5b50a5a1f2e05214ac72f56c48e62712312d54b77a2ad28a391fc22df1dd3b25",
}


@pytest.mark.parametrize("block_values", [1, 50, 333])
def test_blocks_of_rows_change_nothing(block_values):
    recipe = draw()
    (whole,) = module._turns(recipe, BOX)
    blocks = list(module._turns(recipe, BOX, block_values))
    assert len(blocks) > 1
    assert (np.concatenate(blocks) == whole).all()


def test_multi_scale_radii():
    recipe = draw(n=20_000)
    w = recipe.radians(BOX)
    radius = np.linalg.norm(w, axis=1)
    rng = np.random.default_rng(0)
    scale = np.exp(rng.uniform(np.log(0.25), np.log(4.0), 20_000))
    wanted = np.sqrt(-2 * np.log(rng.uniform(size=20_000))) / scale
    assert stats.ks_2samp(radius, wanted).pvalue > 1e-6
    direction = w / radius[:, None]
    assert np.abs(direction.mean(axis=0)).max() < 5 / np.sqrt(20_000 * 5)
    second = direction.T @ direction / 20_000
    assert np.abs(second - np.eye(5) / 5).max() < 0.01


def lengths_of_two_bands(share, n=20_000):
    """|w| for a law like TAILED, by other means."""
    rng = np.random.default_rng(0)
    ends = np.where(rng.uniform(size=(n, 1)) < share, np.log([0.01, 0.25]), np.log([0.25, 4.0]))
    return rng.rayleigh(size=n) / np.exp(rng.uniform(ends[:, 0], ends[:, 1]))


@pytest.mark.parametrize("law", ["multi-scale", "structured"])
def test_two_bands_of_lengths(law):
    length = np.linalg.norm(draw(law, TAILED, n=20_000).radians(BOX), axis=1)
    assert stats.ks_2samp(length, lengths_of_two_bands(0.15)).pvalue > 1e-6
    assert stats.ks_2samp(length, lengths_of_two_bands(0.2)).pvalue < 1e-6  # a share too large


@pytest.mark.parametrize("law", ["multi-scale", "structured"])
@pytest.mark.parametrize("radii", [(0.25, 4.0), TAILED])
def test_recipes_survive_json(law, radii):
    recipe = draw(law, radii, n=64)
    assert frequencies_from_json(frequencies_to_json(recipe)) == recipe


def test_designs_of_plain_laws_have_no_new_fields():
    assert set(frequencies_to_json(draw(n=64))) == {
        *("law", "n_features", "scales", "seed", "turn_bits", "dithered", "checksum")
    }


@pytest.mark.parametrize(
    "change",
    [
        {"tail": None},
        {"tail": [0.15]},
        {"tail": [0.15, 0.25, 0.5]},
        {"tail": [0.0, 0.25]},
        {"tail": [1.0, 0.25]},
        {"tail": [0.15, 0.01]},
        {"tail": [0.15, 4.0]},
        {"tail": [0.15, float("nan")]},
        {"tail": {"share": 0.15, "below": 0.25}},
        {"law": "adapted-radius"},
        {"law": "gaussian"},
        {"law": "none"},
        {"finest": 0.1},
    ],
)
def test_radial_laws_that_files_may_not_have(change):
    value = {**frequencies_to_json(draw(scales=TAILED, n=64)), **change}
    with pytest.raises(ps.PrivsketchError):
        frequencies_from_json(value)


def test_adapted_radius_and_gaussian_at_one_scale():
    adapted = np.linalg.norm(draw("adapted-radius", (2.0, 2.0), 20_000).radians(BOX), axis=1)
    assert stats.kstest(2.0 * adapted, "rayleigh").pvalue > 1e-6
    normal = draw("gaussian", (2.0, 2.0), 20_000).radians(BOX)
    assert stats.kstest(2.0 * normal.ravel(), "norm").pvalue > 1e-6


def test_frequencies_are_isotropic_in_the_units_of_the_records():
    wide = ps.Box(low=[-1, -100], high=[1, 100])
    w = draw(domain=wide, n=20_000, scales=(0.5, 2.0)).radians(wide)
    assert np.square(w[:, 0]).mean() == pytest.approx(np.square(w[:, 1]).mean(), rel=0.1)


def test_resolution_follows_the_highest_frequency():
    coarse, fine = draw(scales=(4.0, 8.0)), draw(scales=(0.01, 0.1))
    assert coarse.turn_bits > fine.turn_bits
    for recipe in (coarse, fine):
        assert 16_383 < np.abs(recipe.matrix(BOX).astype(int)).max() <= 32_767
    with pytest.raises(ps.PrivsketchError, match="too fine"):
        draw(scales=(1e-7, 1e-6))


def test_an_altered_seed_is_noticed():
    recipe = dataclasses.replace(draw(), seed=2)
    with pytest.raises(ps.PrivsketchError, match="checksum"):
        recipe.matrix(BOX)


def test_dither_is_uniform_over_a_turn():
    recipe = draw(n=20_000, dithered=True)
    turns = recipe.offsets(BOX) / 2.0**recipe.turn_bits
    assert stats.kstest(turns, "uniform").pvalue > 1e-6
    assert not draw().offsets(BOX).any()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"law": "levy"}, "frequencies"),
        ({"n": 0}, "n_features"),
        ({"n": 2**21}, "n_features"),
        ({"scales": (2.0, 1.0)}, "frequency_scale"),
        ({"scales": (0.0, 1.0)}, "frequency_scale"),
        ({"scales": RadialLaw((0.1, 1.0), Tail(0.15, 2.0))}, "tail"),
    ],
)
def test_bad_choices(choices, message):
    with pytest.raises(ps.PrivsketchError, match=message):
        draw(**choices)


def test_files_cannot_ask_for_more_numbers_than_a_machine_has():
    design = ps.Design.plan(
        n_components=2, domain=ps.Box(-1, 1, dim=1000), budget=ps.Budget(1.0), n_features=2000
    ).to_json()
    altered = {**design, "frequencies": {**design["frequencies"], "n_features": 2**20}}
    with pytest.raises(ps.PrivsketchError, match="at most"):
        ps.Design.from_json(altered).radians()
    with pytest.raises(ps.PrivsketchError, match="at most"):
        ps.Design.plan(
            n_components=2, domain=ps.Box(-1, 1, dim=1000), budget=ps.Budget(1.0), n_features=2**20
        )
