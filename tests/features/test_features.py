"""Feature maps: tables that are part of the format, and how much one record can matter."""

import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

import privsketch as ps
from privsketch.features import (
    AMPLITUDE,
    FEATURE_MAPS,
    FIRST_HARMONIC,
    MEAN_SQUARE,
    RECORD_MAX,
    VALUE_BITS,
    Quantiser,
    feature_map,
    fourier_table,
    half_angle,
    onebit_table,
    table_index,
)
from privsketch.kernels import (
    CompiledKernel,
    FourierFeature,
    OneBitFeature,
    QuadraticFeature,
    ReferenceKernel,
)
from privsketch.kernels.dense import Shape, sums_routine
from privsketch.noise import cube_noise, gaussian_noise, laplace_noise

TABLE_MAPS = [name for name, each in FEATURE_MAPS.items() if each.has_table]
TURNS = np.arange(65_536) / 65_536


def test_fourier_table_is_a_circle():
    table = fourier_table().astype(np.float64)
    found = (table[:, 0] + 1j * table[:, 1]) / AMPLITUDE
    assert table.shape == (65_536, 2)
    assert np.abs(found - np.exp(2j * np.pi * TURNS)).max() < 7e-4
    assert np.abs(found).max() < 1.00067  # what noise is calibrated to
    # Errors of all records add up where they have a harmonic: none has more than 2.1e-5.
    harmonics = np.fft.fft(found) / 65_536
    assert harmonics[0] == pytest.approx(0.0, abs=1e-7)
    assert harmonics[1] == pytest.approx(1.0, abs=2e-5)
    assert np.abs(harmonics[2:]).max() < 2.1e-5


def test_fourier_table_by_whole_numbers():
    # Python's integers and fractions; every operation as its formula says.
    def product(a, b):
        return math.floor(Fraction(a * b, 2**15) + Fraction(1, 2))

    table = fourier_table()
    for index in [*range(0, 65_536, 97), 32_767, 32_768, 32_769, 65_535]:
        t = index - 65_536 * (index >= 32_768)
        z = t * t // 2**16
        c = product(product(product(-651, z) + 4153, z) - 10_106, z) + 4096
        s = product(product(product(1202, z) - 5276, z) + 6433, t)
        assert table[index].tolist() == [c * c - MEAN_SQUARE, s * c]


def test_half_angles_stay_within_sixteen_bits_and_sums_within_thirty_two():
    every = np.arange(65_536).astype(np.uint16).view(np.int16)
    cosine, sine = half_angle(every)
    assert cosine.min() >= 0
    assert max(cosine.max(), np.abs(sine).max()) <= 4096
    # What kernels add up before they widen: cosines without a sign, sines with one.
    most = FourierFeature.max_records
    assert most * np.square(cosine).max() < 2**32
    assert most * np.abs(sine * cosine).max() < 2**31
    assert round(np.square(cosine).mean()) == MEAN_SQUARE
    assert 2 * OneBitFeature.max_records < 2**16  # in each half of 32 bits
    assert QuadraticFeature.max_records * 2**VALUE_BITS < 2**32


def test_tables_are_fixed_for_good():
    # Sketches of different versions and languages add up only if these never change.
    digests = {
        name: hashlib.sha256(np.ascontiguousarray(each.table, dtype="<i4").tobytes()).hexdigest()
        for name, each in FEATURE_MAPS.items()
        if each.has_table
    }
    assert digests == {"fourier": GOLDEN_FOURIER, "one-bit": GOLDEN_ONEBIT}


GOLDEN_FOURIER = "d2268da8475de32073e775d1d9bc1a98d298681eb5c01558b93295b30e75a706"
GOLDEN_ONEBIT = "65c83715f5093bf49e3edbca6e4e86a22ede6c73d32c84562d1cc0b4c5c5c5d5"


def test_onebit_table_is_the_sign_with_zero_counted_as_plus():
    table = onebit_table()
    cosine, sine = np.cos(2 * np.pi * TURNS), np.sin(2 * np.pi * TURNS)
    exactly_zero = [16_384, 49_152], [0, 32_768]
    for part, (values, zeros) in enumerate(zip((cosine, sine), exactly_zero, strict=True)):
        wanted = np.where(values >= 0, 1, -1)
        wanted[zeros] = 1
        assert (table[:, part] == wanted).all()
    # The first harmonic is what learners divide by.
    harmonic = np.mean((table[:, 0] + 1j * table[:, 1]) * np.exp(-2j * np.pi * TURNS))
    assert harmonic == pytest.approx(FIRST_HARMONIC, abs=1e-4)


@pytest.mark.parametrize("name", TABLE_MAPS)
def test_bounds_are_exhaustive(name):
    pairs = [(int(c), int(s)) for c, s in feature_map(name).table]
    bounds = feature_map(name).bounds
    assert bounds.l1 == max(abs(c) + abs(s) for c, s in pairs)
    assert bounds.l2_squared == max(c * c + s * s for c, s in pairs)
    assert bounds.linf == max(max(abs(c), abs(s)) for c, s in pairs)


@pytest.mark.parametrize("name", TABLE_MAPS)
def test_compiled_kernel_reproduces_the_table_on_every_phase(name):
    # One record at the center; the offset of feature t puts its phase exactly at index t.
    offsets = np.arange(65_536, dtype=np.uint32) << 4
    zeros = np.zeros((65_536, 1), np.int16)
    kernel = CompiledKernel(ReferenceKernel(feature_map(name), zeros, offsets, 20))
    one = kernel.sums(np.zeros((1, 1), np.int16)).reshape(2, -1).T
    nine = kernel.sums(np.zeros((9, 1), np.int16)).reshape(2, -1).T  # the grouped loop as well
    assert (one == feature_map(name).table).all()
    assert (nine == 9 * feature_map(name).table.astype(np.int64)).all()


@pytest.mark.parametrize("name", TABLE_MAPS)
@pytest.mark.parametrize(
    ("dim", "n_features", "n", "turn_bits"),
    [
        (1, 1, 1, 17),
        (2, 33, 7, 32),
        (3, 64, 8, 25),
        (10, 100, 1003, 26),
        (65, 31, 70, 27),
        (784, 20, 9, 22),
    ],
)
def test_compiled_kernel_equals_the_reference(name, dim, n_features, n, turn_bits):
    rng = np.random.default_rng(dim)
    records = rng.integers(-32_767, 32_768, (n, dim)).astype(np.int16)
    records[0] = -32_767  # extremes: the phase wraps around 2^32
    frequencies = rng.integers(-32_767, 32_768, (n_features, dim)).astype(np.int16)
    frequencies[0] = 32_767
    offsets = rng.integers(0, 2**turn_bits, n_features).astype(np.uint32)
    arguments = feature_map(name), frequencies, offsets, turn_bits
    definition = ReferenceKernel(*arguments)
    assert (CompiledKernel(definition).sums(records) == definition.sums(records)).all()


def test_phase_is_the_exact_dot_product():
    rng = np.random.default_rng(1)
    x = rng.integers(-32_767, 32_768, 40).astype(np.int16)
    w = rng.integers(-32_767, 32_768, 40).astype(np.int16)
    phase = sum(int(a) * int(b) for a, b in zip(x, w, strict=True)) + 12_345
    for turn_bits in (17, 26, 32):
        turns = Fraction(phase, 2**turn_bits) % 1
        index = math.floor(turns * 65_536 + Fraction(1, 2)) % 65_536
        found = table_index(x[None], w[None], np.array([12_345], np.uint32), turn_bits)
        assert found[0, 0] == index


def test_a_long_block_does_not_overflow_the_partial_sums():
    # All records alike: every partial sum reaches its largest possible value.
    frequencies = np.zeros((3, 2), np.int16)
    offsets = np.zeros(3, np.uint32)
    kernel = CompiledKernel(ReferenceKernel(feature_map("fourier"), frequencies, offsets, 26))
    n = 2**16 + 2**17 + 5
    largest = int(fourier_table()[0, 0])
    assert kernel.sums(np.zeros((n, 2), np.int16))[0] == n * largest


@pytest.mark.parametrize("name", TABLE_MAPS)
@pytest.mark.parametrize("shape", [Shape(4, 2, 4), Shape(8, 2, 4), Shape(16, 2, 8)])
def test_kernels_for_other_processors_are_valid_code(name, shape):
    import llvmlite.binding as llvm

    llvm.parse_assembly(str(sums_routine(name, shape))).verify()


# --- quantisation ------------------------------------------------------------------------------


def test_box_records_are_quantised_and_clipped():
    box = ps.Box(low=[0, -10], high=[1, 10])
    rows = np.array([[0.5, 0.0], [0.0, -10.0], [1.0, 10.0], [9.0, -1e300], [0.75, 5.0]])
    wanted = [[0, 0], [-32767, -32767], [32767, 32767], [32767, -32767], [16384, 16384]]
    assert Quantiser(box)(rows).tolist() == wanted


def test_ball_records_are_moved_to_the_sphere():
    ball = ps.Ball(dim=3, radius=2.0, center=1.0)
    rng = np.random.default_rng(0)
    inside = 1 + rng.uniform(-1, 1, (1000, 3)) * 2 / np.sqrt(3) * 0.999
    direction = rng.normal(size=(1000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    outside = 1 + direction * rng.uniform(2.001, 30, (1000, 1))
    quantised = Quantiser(ball)(np.vstack([inside, outside])).astype(np.int64)
    assert np.abs(quantised[:1000] / 2**15 - (inside - 1) / 2).max() <= 2**-16
    norms = np.square(quantised).sum(axis=1)
    assert norms.max() <= RECORD_MAX**2  # in integers, exactly
    assert np.abs(quantised[1000:] / RECORD_MAX - direction).max() < 1e-4


def test_a_quantised_record_depends_on_that_record_alone():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4001, 7)) * 3
    for domain in (ps.Box(-4, 4, dim=7), ps.Ball(dim=7, radius=5.0)):
        together = Quantiser(domain)(rows)
        alone = np.vstack([Quantiser(domain)(row[None]) for row in rows[::97]])
        assert (together[::97] == alone).all()
        assert (Quantiser(domain)(np.asfortranarray(rows)) == together).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("domain", [ps.Box(-1, 1, dim=2), ps.Ball(dim=2, radius=1.0)])
def test_missing_values(bad, domain):
    rows = np.array([[0.5, bad], [0.25, 0.25]])
    with pytest.raises(ps.PrivsketchError, match="missing"):
        Quantiser(domain)(rows)
    centered = Quantiser(domain, missing_to_center=True)(rows)
    assert centered.tolist() == Quantiser(domain)(np.array([[0.5, 0.0], [0.25, 0.25]])).tolist()


# --- sensitivity -------------------------------------------------------------------------------


def contributions(name, design, records):
    """What each record adds to the integer sums, (n, 2 m)."""
    frequencies, domain = design.frequencies, design.domain
    kernel = ReferenceKernel(
        feature_map(name),
        frequencies.matrix(domain),
        frequencies.offsets(domain),
        frequencies.turn_bits,
    )
    integers = Quantiser(domain)(records)
    return np.array([kernel.sums(row[None]) for row in integers])


def worst_records(design, rng, neighbours, starts=12):
    """Records found by gradient ascent on |phi(x) - phi(y)|^2, or on sum |cos| + |sin|."""
    w = design.radians()
    dim = w.shape[1]

    def apart(flat):
        x, y = flat.reshape(2, dim)
        phase = w @ (x - y)
        gradient = -2 * w.T @ np.sin(phase)
        return -2 * np.sum(1 - np.cos(phase)), np.concatenate([gradient, -gradient])

    def spread(x):
        phase = w @ x
        c, s = np.cos(phase), np.sin(phase)
        slope = np.sign(s) * c - np.sign(c) * s
        return -np.sum(np.abs(c) + np.abs(s)), -w.T @ slope

    found = []
    for _ in range(starts):
        if neighbours == "replace":
            start = rng.uniform(-1, 1, 2 * dim)
            result = minimize(apart, start, jac=True, bounds=[(-1, 1)] * (2 * dim))
            found.extend(result.x.reshape(2, dim))
        else:
            result = minimize(spread, rng.uniform(-1, 1, dim), jac=True, bounds=[(-1, 1)] * dim)
            found.append(result.x)
    return np.array(found)


@pytest.mark.mostly_slow(quick_every=2)
@pytest.mark.parametrize("name", TABLE_MAPS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_gradient_ascent_never_exceeds_the_claimed_sensitivity(name, neighbours):
    design = ps.Design.plan(
        n_components=1,
        domain=ps.Box(-1, 1, dim=6),
        budget=ps.Budget(1.0),
        feature_map=name,
        n_features=8,
        random_state=5,
        frequency_scale=(0.1, 0.5),
    )
    rng = np.random.default_rng(0)
    records = np.vstack([worst_records(design, rng, neighbours), rng.uniform(-1, 1, (200, 6))])
    added = contributions(name, design, records)
    changes = added
    if neighbours == "replace":
        changes = (added[:, None] - added[None]).reshape(-1, added.shape[1])
    contribution, m = design.contribution, 2 * design.n_features
    gaussian = gaussian_noise(contribution, m, 1.0, 1e-6, neighbours, None)
    claim = {
        "l1": laplace_noise(contribution, m, 1.0, neighbours, None).sensitivity,
        "l2_squared": gaussian.sensitivity**2,
        "linf": cube_noise(contribution, m, 1e-6, neighbours, None)[0].sensitivity,
    }
    largest = {
        "l1": int(np.abs(changes).sum(axis=1).max()),
        "l2_squared": int(np.square(changes).sum(axis=1).max()),
        "linf": int(np.abs(changes).max()),
    }
    for norm, value in largest.items():
        assert value <= claim[norm]
        # The search is strong enough to refute a claim 15 % too small...
        assert value > 0.85 ** (2 if norm == "l2_squared" else 1) * claim[norm]
    if neighbours == "replace":
        # ... such as sqrt(2 m), which a public toolbox uses where replacing needs 2 sqrt(m).
        assert largest["l2_squared"] > 2 * design.n_features * feature_map(name).bounds.l2_squared
