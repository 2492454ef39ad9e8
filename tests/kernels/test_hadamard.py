"""Structured frequencies: fast transforms that give the sums of a dense integer matrix exactly."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import hadamard
from scipy.special import hyp1f1

import privsketch as ps
from privsketch.features import (
    RECORD_UNIT,
    TURN_BITS,
    block_size,
    common_half_width,
    draw_blocks,
    feature_map,
    fourier_table,
    fwht,
    squared_row_norms,
    start_phase,
)
from privsketch.kernels import ReferenceKernel, StructuredKernel, Transform, orders
from privsketch.kernels import hadamard as module
from tests import seams

MAPS = ("fourier", "one-bit")


def draw(n_features=300, dim=100, seed=5, scales=(0.25, 4.0), half_width=8.0):
    return draw_blocks(seed, n_features, dim, scales, half_width)


def radians(blocks, half_width=8.0):
    """The dense frequencies in radians per unit of a record."""
    return blocks.dense() * (2 * np.pi * 2.0**-TURN_BITS * RECORD_UNIT / half_width)


# --- the integers ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 8, 64, 512])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_transform_is_the_hadamard_matrix(size, kind):
    x = np.random.default_rng(size).integers(-(2**15), 2**15, (3, size)).astype(kind)
    result = fwht(x)
    assert result.dtype == kind
    assert (result == x @ hadamard(size)).all()


def test_the_transform_wraps():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 64))
    assert (fwht(x.astype(np.int32)) == (x @ hadamard(64)).astype(np.int32)).all()


@pytest.mark.parametrize(
    ("dim", "n_features"),
    [(1, 64), (2, 3), (3, 130), (17, 64), (64, 200), (100, 300), (1000, 1100)],
)
def test_the_dense_matrix_is_the_product_it_claims(dim, n_features):
    blocks = draw(n_features, dim)
    h = hadamard(blocks.size).astype(np.float64)  # exact, and faster than integers
    rows = []
    for signs1, signs2, radii in zip(blocks.signs1, blocks.signs2, blocks.radii, strict=True):
        product = (h * signs1 @ h * signs2)[:, :dim].astype(np.int64)
        assert (squared_row_norms(signs1, dim) == np.square(product).sum(axis=1)).all()
        assert (product != 0).all()  # no row vanishes, whatever columns are left out
        rows.append(radii.astype(np.int64)[:, None] * product)
    wanted = np.concatenate(rows)[:n_features]
    assert blocks.dense().dtype == np.int32
    assert (blocks.dense() == wanted).all()


def test_phases_are_those_of_the_dense_matrix():
    rng = np.random.default_rng(1)
    for dim in (1, 50, 200):
        blocks = draw(dim=dim, scales=(1e-3, 4.0))  # high frequencies: every phase wraps
        x = rng.integers(-32_767, 32_768, (5, dim)).astype(np.int16)
        wanted = x.astype(np.int64) @ blocks.dense().astype(np.int64).T
        assert (blocks.phases(x) == wanted % 2**32).all()


def test_structured_frequencies_are_fixed_for_good():
    # A design stores a seed; this checksum proves that every version draws the same integers.
    blocks = draw(n_features=500, dim=100, seed=42)
    digest = hashlib.sha256()
    for array, kind in ((blocks.signs1, "i1"), (blocks.signs2, "i1"), (blocks.radii, "<i4")):
        digest.update(np.ascontiguousarray(array, dtype=kind).data)
    assert digest.hexdigest() == GOLDEN


GOLDEN = "a09b5545974a8e35d00f9fd769018c33eb3d638e27440a9abe5f31fa21fc5310"


def test_more_features_are_more_blocks_not_other_ones():
    few, many = draw(n_features=100), draw(n_features=1000)
    assert (few.n_blocks, many.n_blocks, many.size) == (1, 8, 128)
    assert (many.dense()[:100] == few.dense()).all()
    assert many.block_features(7) == slice(896, 1000)


def test_blocks_are_large_enough_for_a_record():
    for dim, size in ((1, 64), (64, 64), (65, 128), (1000, 1024), (1024, 1024), (2**15, 2**15)):
        assert block_size(dim) == size


def test_blocks_cannot_be_changed():
    for array in (draw().signs1, draw().signs2, draw().radii):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_the_sides_of_the_domain_must_be_equal():
    assert common_half_width(ps.Ball(dim=3, radius=2.0)) == 2.0
    assert common_half_width(ps.Box(low=[0, 10], high=[1, 11])) == 0.5
    assert common_half_width(ps.Box(low=[0.1, 0.0], high=[0.3, 0.2])) == pytest.approx(0.1)
    with pytest.raises(ps.PrivsketchError, match="to_unit"):
        common_half_width(ps.Box(low=[-1, -2], high=[1, 2]))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"n_features": 0}, "n_features"),
        ({"dim": 0}, "dim"),
        ({"dim": 2**15 + 1}, "dim"),
        ({"scales": (2.0, 1.0)}, "frequency_scale"),
        ({"scales": (0.0, 1.0)}, "frequency_scale"),
        ({"scales": (1.0, float("inf"))}, "frequency_scale"),
        ({"scales": (1e-7, 1e-6)}, "too fine"),
        ({"scales": (4.0, 1e5)}, "too wide"),
        ({"dim": 2**15}, "too wide"),
    ],
)
def test_bad_choices(choices, message):
    with pytest.raises(ps.PrivsketchError, match=message):
        draw(**choices)


# --- their law ---------------------------------------------------------------------------------


def is_adapted(norms):
    """Whether norms times scale have the density r exp(-r^2 / 2): false alarm 1e-6."""
    return stats.kstest(norms, "rayleigh").pvalue > 1e-6


@pytest.mark.parametrize("dim", [3, 64, 100])
def test_norms_follow_the_adapted_radius_law(dim):
    norms = np.linalg.norm(radians(draw(20_000, dim, scales=(2.0, 2.0))), axis=1)
    assert is_adapted(2.0 * norms)
    assert not is_adapted(2.0 * norms * 1.05)  # planted: five percent too high
    normal = np.linalg.norm(np.random.default_rng(0).normal(size=(20_000, dim)), axis=1)
    assert not is_adapted(normal / np.sqrt(dim / 2))  # planted: rows of normal frequencies


def test_scales_are_log_uniform():
    norms = np.linalg.norm(radians(draw(20_000, 50)), axis=1)
    rng = np.random.default_rng(0)
    scale = np.exp(rng.uniform(np.log(0.25), np.log(4.0), 20_000))
    wanted = np.sqrt(-2 * np.log(rng.uniform(size=20_000))) / scale
    assert stats.ks_2samp(norms, wanted).pvalue > 1e-6
    assert stats.ks_2samp(norms, 1.1 * wanted).pvalue < 1e-6  # planted


@pytest.mark.parametrize(("dim", "step"), [(64, 2**-12), (1024, 2**-8), (2**14, 2**-4)])
def test_the_precision_of_norms_is_as_stated(dim, step):
    # In turns per half-width, against the same draws with steps far finer.
    coarse, fine = draw(64, dim, scales=(0.5, 4.0)), draw(64, dim, scales=(0.5 / 256, 4.0 / 256))
    found = np.linalg.norm(coarse.dense()[:64].astype(float), axis=1) * 2.0**-17
    wanted = np.linalg.norm(fine.dense()[:64].astype(float), axis=1) * 2.0**-17 / 256
    lifted = coarse.radii[0, :64] == 1
    assert np.abs(found - wanted)[~lifted].max() <= step * 1.01
    assert np.abs(found - wanted)[~lifted].max() > step / 8


def errors_of_means(frequencies_of_seed, points, seeds):
    """Mean of cos(w'x) over one draw of frequencies less its expectation, (seeds, points)."""
    dim = points.shape[1]
    expected = hyp1f1(1, dim / 2, -np.square(points).sum(axis=1) / 2)  # of the law at scale 1
    return np.array(
        [np.cos(points @ frequencies_of_seed(s).T).mean(axis=1) - expected for s in range(seeds)]
    )


@pytest.mark.parametrize("dim", [17, 64, 100])
def test_means_of_features_are_as_close_to_the_kernel_as_with_dense_frequencies(dim):
    # Directions that a transform might favour, and one that it does not know.
    points = np.vstack(
        [
            np.eye(dim)[:2],
            np.eye(dim)[3] - np.eye(dim)[9],
            np.ones(dim),
            np.where(np.arange(dim) % 2, 1.0, -1.0),
            np.random.default_rng(3).normal(size=dim),
        ]
    )
    points *= np.sqrt(dim) / np.linalg.norm(points, axis=1, keepdims=True)
    m, seeds = 128, 300

    def structured(seed):
        return radians(draw(m, dim, seed, scales=(1.0, 1.0)))

    def dense(seed):
        rng = np.random.default_rng(seed)
        direction = rng.normal(size=(m, dim))
        radius = np.sqrt(-2 * np.log(rng.uniform(size=(m, 1))))
        return direction * (radius / np.linalg.norm(direction, axis=1, keepdims=True))

    def one_transform(seed):  # planted: H D2 alone keeps to few directions
        blocks = draw(m, dim, seed, scales=(1.0, 1.0))
        norms = np.linalg.norm(radians(blocks), axis=1, keepdims=True)
        rows = np.tile(hadamard(blocks.size), (blocks.n_blocks, 1))[:m, :dim]
        return rows * blocks.signs2[0, :dim] * norms / np.sqrt(dim)

    def close(errors, reference):
        # A ratio of mean squares over 300 seeds exceeds 1.8 once in 10^6, were both alike.
        mean_square, wanted = np.square(errors).mean(axis=0), np.square(reference).mean(axis=0)
        return (mean_square < 1.8 * wanted).all()

    reference = errors_of_means(dense, points, seeds)
    found = errors_of_means(structured, points, seeds)
    assert close(found, reference)
    # No bias either: a mean over the seeds of six standard errors is no accident.
    assert (np.abs(found.mean(axis=0)) < 6 * found.std(axis=0) / np.sqrt(seeds)).all()
    assert np.square(found).mean() < np.square(reference).mean()  # rows of a block are orthogonal
    assert not close(errors_of_means(one_transform, points, seeds), reference)


# --- the kernel --------------------------------------------------------------------------------


def kernels(name, blocks, seed=0):
    """The compiled kernel, and the definition with the dense matrix."""
    offsets = np.random.default_rng(seed).integers(0, 2**32, blocks.n_features).astype(np.uint32)
    each = feature_map(name)
    return (
        StructuredKernel(each, blocks, offsets),
        ReferenceKernel(each, blocks.dense(), offsets, TURN_BITS),
    )


def records(n, dim):
    x = np.random.default_rng(n + dim).integers(-32_767, 32_768, (n, dim)).astype(np.int16)
    x[:1], x[1:2] = -32_767, 32_767
    return x


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    ("dim", "n_features", "n"),
    [
        (1, 1, 1),
        (2, 64, 2),
        (3, 130, 257),
        (17, 63, 33),
        (64, 256, 1000),
        (100, 300, 71),
        (200, 257, 19),
        (300, 1024, 35),
        (1000, 2100, 35),
        (1024, 1024, 17),
        (2000, 2048, 5),
        (4096, 4097, 3),
    ],
)
def test_compiled_sums_are_those_of_the_dense_matrix(name, dim, n_features, n):
    compiled, definition = kernels(name, draw(n_features, dim))
    x = records(n, dim)
    assert (compiled.sums(x) == definition.sums(x)).all()


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dim", [64, 128, 500, 3000])
def test_every_width_of_vectors_gives_the_same_sums(bits, dim, monkeypatch):
    seams.set(monkeypatch, "machine.vector_bits", lambda: bits)
    seams.set(monkeypatch, "hadamard.compile", module._compile.__wrapped__)
    for name in MAPS:
        compiled, definition = kernels(name, draw(2 * block_size(dim) - 5, dim))
        x = records(9, dim)
        assert (compiled.sums(x) == definition.sums(x)).all()


@pytest.mark.parametrize("name", MAPS)
def test_each_phase_has_its_own_table_entry(name):
    # Records at the center; the offset of feature t puts its phase exactly at index t.
    blocks = draw(65_536, 300)
    offsets = np.arange(65_536, dtype=np.uint32) << 16
    found = StructuredKernel(feature_map(name), blocks, offsets).sums(np.zeros((3, 300), np.int16))
    table = feature_map(name).table.astype(np.int64)
    assert (table * 3 == found.reshape(2, -1).T).all()
    assert (start_phase(offsets, TURN_BITS) >> 16 == np.arange(65_536)).all()


@pytest.mark.parametrize("name", MAPS)
def test_sums_of_one_block(name):
    blocks = draw(700, 200)
    compiled, definition = kernels(name, blocks)
    x = records(40, 200)
    whole = definition.sums(x).reshape(2, -1)
    for block in range(blocks.n_blocks):
        part = compiled.block_sums(x, block)
        assert part.dtype == np.int64
        assert (part == whole[:, blocks.block_features(block)]).all()
    assert part.shape == (2, 700 - 512)
    for block in (-1, 3):
        with pytest.raises(ps.PrivsketchError, match="block"):
            compiled.block_sums(x, block)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_only_features_that_are_kept_are_added(name, bits, monkeypatch):
    seams.set(monkeypatch, "machine.vector_bits", lambda: bits)
    seams.set(monkeypatch, "hadamard.compile", module._compile.__wrapped__)
    for dim, n_features, n in ((3, 70, 2100), (700, 1500, 150)):
        compiled, definition = kernels(name, draw(n_features, dim))
        x = records(n, dim)
        kept = np.random.default_rng(n).random((n, n_features)) < 0.3
        assert (compiled.sums(x, kept) == definition.sums(x, kept)).all()
        assert not compiled.sums(x, np.zeros_like(kept)).any()
        assert (compiled.sums(x, np.ones_like(kept)) == compiled.sums(x)).all()


@pytest.mark.parametrize("name", MAPS)
def test_no_records(name):
    compiled, _ = kernels(name, draw())
    assert not compiled.sums(np.zeros((0, 100), np.int16)).any()
    assert compiled.sums(np.zeros((0, 100), np.int16)).shape == (600,)
    assert compiled.block_sums(np.zeros((0, 100), np.int16), 2).shape == (2, 300 - 256)


def test_a_long_table_does_not_overflow_the_partial_sums():
    # All records alike: every partial sum reaches its largest possible value.
    kernel = StructuredKernel(feature_map("fourier"), draw(3, 2), np.zeros(3, np.uint32))
    n = 2**16 + 2**17 + 5
    largest = int(fourier_table()[0, 0])
    assert kernel.sums(np.zeros((n, 2), np.int16)).tolist()[:3] == [n * largest] * 3


def test_threads_and_the_order_of_memory_change_nothing():
    compiled, definition = kernels("fourier", draw(300, 128))
    x = records(900, 128)
    whole = definition.sums(x)
    parts = [np.asfortranarray(part) for part in np.array_split(x, 12)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert (sum(pool.map(compiled.sums, parts)) == whole).all()
    assert (compiled.sums(x[::-1]) == whole).all()


@pytest.mark.parametrize("lane_bits", [2, 3, 4])
@pytest.mark.parametrize("bits", range(6, 16))
def test_passes_cover_every_bit_once(bits, lane_bits):
    transform = Transform(bits, lane_bits)
    first = [*transform.middle, *(place for group in transform.before for place in group)]
    second = [*transform.middle, *(place for group in transform.after for place in group)]
    every = list(range(bits - lane_bits))
    assert sorted(first) == every
    assert sorted([*second, *transform.last]) == every
    for order in orders(transform):
        assert sorted(order) == list(range(2**bits))
