"""Compiled quantisation: the same integers as its definition, however records lie in memory."""

import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import privsketch as ps
from privsketch import KernelError, MissingError, ParameterError, RecordError
from privsketch._base import cached_once
from privsketch.features import Quantiser
from privsketch.kernels import LANES, CompiledQuantiser
from tests import seams

DIMS = (1, 2, 3, 7, 8, 9, 10, 15, 16, 31, 63, 64, 65, 100, 300)
FINE = {"bits": 18, "common_unit": True}
NUMBERS = ("f8", "f4", "f2", "g", ">f8", ">i4", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")


def domains(dim):
    rng = np.random.default_rng(dim)
    low = -1 - rng.random(dim)
    return [
        ps.Box(-1, 1, dim=dim),
        ps.Box(low=low, high=low + 3 * rng.random(dim) + 0.01),
        ps.Ball(dim=dim, radius=1.5, center=0.1),
    ]


def table(n, dim, seed=0):
    """Records inside and outside of all domains, some far away."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim)) / np.sqrt(dim) ** rng.integers(0, 2, (n, 1))
    x[rng.random((n, dim)) < 0.02] *= 1e300
    x[rng.random((n, dim)) < 0.02] = 0.0
    return x


def layouts(x):
    n, dim = x.shape
    wide = np.zeros((n, dim + 3))
    wide[:, 1 : dim + 1] = x
    return {
        "rows": x,
        "columns": np.asfortranarray(x),
        "a part of the columns": wide[:, 1 : dim + 1],
        "every other column": np.repeat(x, 2, axis=1)[:, ::2],
        "backwards": x[::-1],
        "columns, every other row": np.asfortranarray(np.repeat(x, 2, axis=0))[::2],
        "one row for all": np.broadcast_to(x[:1], x.shape),
        "not to be written": np.frombuffer(x.tobytes()).reshape(x.shape),
        "not aligned": np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view("f8").reshape(x.shape),
    }


def definition(domain, x, **options):
    quantise = Quantiser(domain, **options)
    parts = [quantise.whole_numbers(row[np.newaxis]) for row in x]
    return np.concatenate([np.zeros((0, x.shape[1])), *parts])


@pytest.mark.mostly_slow(quick_every=3)
@pytest.mark.parametrize("dim", DIMS)
def test_every_layout_gives_the_integers_of_the_definition(dim):
    for domain in domains(dim):
        for n in (1, 13, 37) if dim < 100 else (9,):
            for name, x in layouts(table(n, dim, n)).items():
                right = definition(domain, x)
                quantise = CompiledQuantiser(domain)
                assert np.array_equal(quantise(x), right), (domain, n, name)
                fine = CompiledQuantiser(domain, **FINE).whole_numbers(x)
                assert np.array_equal(fine, definition(domain, x, **FINE)), (domain, n, name)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_every_type(number):
    rng = np.random.default_rng(1)
    if np.dtype(number).kind in "iu":
        info = np.iinfo(number)
        x = rng.integers(
            info.min, info.max, (50, 5), dtype=info.dtype.newbyteorder("="), endpoint=True
        )
        x[::2] %= 7
        x[0], x[1] = info.min, info.max
        x = x.astype(number)
    else:
        x = (rng.normal(size=(50, 5)) * 3).astype(number)
    for domain in (ps.Box(-4, 5, dim=5), ps.Ball(dim=5, radius=1e18), ps.Ball(dim=5, radius=3.0)):
        for each in (x, np.asfortranarray(x)):
            assert np.array_equal(CompiledQuantiser(domain)(each), definition(domain, x))


def test_halves_go_to_the_even_neighbour_and_signs_of_zeros_are_kept():
    domain = ps.Box(-(2.0**15), 2.0**15, dim=1)  # a unit is 1
    x = np.arange(-9, 9)[:, np.newaxis] + 0.5
    right = [[round(Fraction(float(value)))] for value in x[:, 0]]
    assert CompiledQuantiser(domain)(x).tolist() == right
    found = CompiledQuantiser(domain).whole_numbers(x)
    assert np.array_equal(np.signbit(found), np.signbit(Quantiser(domain).whole_numbers(x)))


@pytest.mark.mostly_slow(quick_every=5)
@pytest.mark.parametrize("number", ["f8", "f4", "f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_missing_value_is_found_wherever_it_is(number, order, bad):
    for dim, n in ((1, 67), (3, 9), (67, 8)):
        for domain in domains(dim)[1:]:
            x = np.zeros((n, dim), number, order=order)
            refusing, moving = (CompiledQuantiser(domain, missing_to_center=m) for m in (0, 1))
            refusing(x)
            for place in list(np.ndindex(x.shape))[::3]:  # every lane
                x[place] = bad
                with pytest.raises(MissingError) as caught:
                    refusing.whole_numbers(x)
                assert caught.value.index == place[1]
                assert np.array_equal(moving(x), definition(domain, x, missing_to_center=True))
                x[place] = 0
                with pytest.raises(MissingError) as known:
                    Quantiser(domain)(np.where(np.arange(dim) == place[1], bad, 0.0)[np.newaxis])
                assert str(caught.value) == str(known.value)


def test_values_beyond_all_floats_are_outside_not_missing():
    domain = ps.Box(low=[-1e-9, -1e100], high=[1e-9, 2e100])
    x = np.array([[1.7e308, -1.7e308], [-1.7e308, 1.7e308]])
    assert CompiledQuantiser(domain)(x).tolist() == [[32767, -32767], [-32767, 32767]]


def test_nothing_is_written_beyond_the_room(monkeypatch):
    rooms = []

    def guarded(n, width, dtype):
        # As whole numbers these are outside of all balls.
        room = np.full(n * width + 128, 77 if dtype is np.int16 else 1e9, dtype=dtype)
        rooms.append((room, n * width))
        return room[: n * width].reshape(n, width)

    seams.set(monkeypatch, "quantiser.buffer", guarded)
    for dim in (1, 3, 8, 10, 67):
        for domain in domains(dim):
            for n in (0, 1, 7, 8, 9, 13):
                x = 3 * table(n, dim)
                for each in (x, np.asfortranarray(x)):
                    quantise = CompiledQuantiser(domain)
                    quantise(each)
                    quantise.whole_numbers(each)
    assert len(rooms) > 400
    for room, used in rooms:
        assert (room[used + LANES :] == room[-1]).all()
        assert room[-1] in (77, 1e9)


def test_empty_tables_and_tables_of_another_width():
    for domain in domains(3):
        quantise = CompiledQuantiser(domain)
        assert quantise(np.zeros((0, 3))).shape == quantise.whole_numbers(np.zeros((0, 3))).shape
        for wrong in (np.zeros((4, 2)), np.zeros((4, 1)), np.zeros(3), np.zeros((2, 3, 3))):
            with pytest.raises(RecordError, match="3 columns"):
                quantise(wrong)
    with pytest.raises(ParameterError, match="too small"):
        CompiledQuantiser(ps.Box(-1, 1, dim=3), bits=18)(np.zeros((1, 3)))
    with pytest.raises(TypeError):
        CompiledQuantiser(ps.Box(-1, 1, dim=1))(np.zeros((9, 1), complex))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [4097, 32767, 32768])
def test_many_columns(dim):
    for domain in domains(dim):
        x = np.clip(table(9, dim), -1e30, 1e30)
        for each in (x, np.asfortranarray(x), x.astype("f4")):
            assert np.array_equal(CompiledQuantiser(domain)(each), definition(domain, each))


def test_threads_that_need_the_same_code_compile_it_once():
    compiled = []

    @cached_once
    def compile_slowly(name):
        compiled.append(name)
        time.sleep(0.05)
        if name == "refused":
            raise KernelError(name)
        return [name]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compile_slowly, ["a"] * 4))
    assert compiled == ["a"]
    assert all(each is found[0] for each in found)
    for _ in range(2):  # what is refused is not kept
        with pytest.raises(KernelError):
            compile_slowly("refused")
    assert compiled == ["a", "refused", "refused"]


def test_blocks_of_whole_numbers_are_those_of_all_records(monkeypatch):
    seams.set(monkeypatch, "quantiser.CACHED_FLOATS", 70)
    for domain in domains(10):
        quantise = CompiledQuantiser(domain, **FINE)
        for x in layouts(table(33, 10)).values():
            blocks = [block.copy() for block in quantise.blocks_of_whole_numbers(x)]
            assert [len(block) for block in blocks] == [7, 7, 7, 7, 5]
            assert np.array_equal(np.concatenate(blocks), quantise.whole_numbers(x))
        assert not list(quantise.blocks_of_whole_numbers(np.zeros((0, 10))))


def test_blocks_of_many_records():
    # More than one chunk of a ball, and a chunk that must be copied.
    x = table(9001, 10)
    for domain in domains(10):
        right = Quantiser(domain)(x)
        for name, each in layouts(x).items():
            if name != "one row for all" and len(each) == len(x):
                expected = right[::-1] if name == "backwards" else right
                assert np.array_equal(CompiledQuantiser(domain)(each), expected), name
