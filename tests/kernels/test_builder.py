"""Machine code as arithmetic: every operator against NumPy's."""

import numpy as np
import pytest

from privsketch.kernels import (
    DOUBLE,
    FLOAT,
    I16,
    I32,
    I64,
    Array,
    Kind,
    Routine,
    absolute,
    clip,
    compile_routine,
    exact_fma,
    fma,
    lane_sum,
    maximum,
    polynomial,
    rint,
    select,
    sqrt,
    trunc,
    vector_of,
)

LANES = 8


def run(kind, write, *inputs, result=None):
    """What the code of `write` makes of vectors of a kind."""
    result = result or (kind, inputs[0].dtype)
    names = [f"x{k}" for k in range(len(inputs))]
    arguments = {name: Array(kind.vector(LANES)) for name in names}
    arguments["out"] = Array(result[0].vector(LANES))
    routine = Routine("f", arguments, vector_bits=256)
    value = write(*(routine.pointers[name].load() for name in names))
    routine.pointers["out"].store(value)
    code = compile_routine(routine.finish())
    out = np.zeros(LANES, result[1])
    code.function(*(each.ctypes.data for each in inputs), out.ctypes.data)
    return out


def integers(dtype, seed=0):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.random.default_rng(seed).integers(low, high, LANES, dtype, endpoint=True)


@pytest.mark.parametrize(("kind", "dtype"), [(I16, np.uint16), (I32, np.uint32), (I64, np.uint64)])
@pytest.mark.parametrize(
    "write",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a ^ b,
        lambda a, b: a >> 3,
        lambda a, b: a << 5,
        lambda a, b: a // 7,
        lambda a, b: (a + 12) * 3 ^ b,
    ],
)
def test_integers_are_those_of_unsigned_arrays(kind, dtype, write):
    a, b = integers(dtype), integers(dtype, 1)
    assert (run(kind, write, a, b) == write(a, b)).all()


@pytest.mark.parametrize(("kind", "dtype"), [(FLOAT, np.float32), (DOUBLE, np.float64)])
def test_floats_round_after_every_operation(kind, dtype):
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=LANES).astype(dtype) for _ in range(2))
    for write in (
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b + 0.1,  # not contracted to one rounding
        lambda a, b: -a * 0.3,
    ):
        found = run(kind, write, a, b)
        assert found.dtype == dtype
        assert (found == write(a, b)).all()
    assert (run(kind, lambda a, b: maximum(a, 0.25), a, b) == np.maximum(a, dtype(0.25))).all()
    halves = np.array([-1.5, -0.5, 0.5, 1.5, 2.5, 0.49, 7.0, -3.51], dtype)
    assert (run(kind, rint, halves) == np.rint(halves)).all()


def test_doubles_are_divided_cut_and_rooted_as_numpys():
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=LANES), rng.normal(size=LANES) * 1e-3
    assert (run(DOUBLE, lambda a, b: a / b, a, b) == a / b).all()
    assert (run(DOUBLE, lambda a: sqrt(a * a * a * a), a) == np.sqrt(a * a * a * a)).all()
    assert (run(DOUBLE, lambda a, b: trunc(a / b), a, b) == np.trunc(a / b)).all()
    assert (run(DOUBLE, absolute, a) == np.abs(a)).all()
    whole = np.rint(a * 1000)
    assert (run(DOUBLE, lambda a: exact_fma(a, a, a), whole) == whole * whole + whole).all()
    low, high = a.min() / 2, a.max() / 2
    within = run(DOUBLE, lambda a: clip(a, a.constant(low), a.constant(high)), a)
    assert (within == np.clip(a, low, high)).all()
    halves = [a[:4] + a[4:]]
    while len(halves[-1]) > 1:
        middle = len(halves[-1]) // 2
        halves.append(halves[-1][:middle] + halves[-1][middle:])
    assert (run(DOUBLE, lambda a: lane_sum(a).splat(LANES), a) == halves[-1]).all()


def test_what_is_not_a_number_is_neither_above_nor_below():
    a = np.array([np.nan, 1.0, np.inf, -np.inf, 0.0, -0.0, 2.0, -1.0])
    b = np.array([1.0, np.nan, np.inf, 3.0, -0.0, 0.0, 1.0, -1.0])
    for write, right in ((lambda a, b: a < b, a < b), (lambda a, b: a <= b, a <= b)):
        found = run(
            DOUBLE, lambda a, b, w=write: select(w(a, b), a.constant(1), a.constant(0)), a, b
        )
        assert (found == right).all()
    within = run(DOUBLE, lambda a: clip(a, a.constant(-2.0), a.constant(2.0)), a)
    assert (np.abs(within) <= 2).all()  # that of a NaN too


@pytest.mark.parametrize(
    ("kind", "dtype"), [(I16, np.uint16), (I64, np.int64), (I64, np.uint64), (FLOAT, np.float32)]
)
def test_numbers_become_doubles_as_numpys_do(kind, dtype):
    is_float, signed = np.dtype(dtype).kind == "f", np.dtype(dtype).kind == "i"
    a = np.random.default_rng(0).normal(size=LANES).astype(dtype) if is_float else integers(dtype)
    found = run(kind, lambda a: a.to_double(signed=signed), a, result=(DOUBLE, np.float64))
    assert (found == a.astype(np.float64)).all()


def test_numbers_side_by_side():
    routine = Routine("f", {"x": Array(DOUBLE), "out": Array(DOUBLE.vector(4))}, vector_bits=256)
    numbers = [(routine.pointers["x"] + 3 * k).load() for k in range(4)]
    routine.pointers["out"].store(vector_of(numbers))
    code = compile_routine(routine.finish())
    x, out = np.arange(10.0), np.zeros(4)
    code.function(x.ctypes.data, out.ctypes.data)
    assert out.tolist() == [0, 3, 6, 9]


def test_multiply_add_rounds_once():
    x = np.full(LANES, 1 + 2.0**-30)
    found = run(DOUBLE, lambda a: fma(a, a, -1.0), x)
    assert (found == 2.0**-29 + 2.0**-60).all()
    assert (found != x * x - 1.0).all()
    found = run(DOUBLE, lambda a: polynomial(a, [3.0, -2.0, 0.5]), x)
    np.testing.assert_allclose(found, np.polynomial.polynomial.polyval(x, [3.0, -2.0, 0.5]))


def test_constants_keep_their_bits():
    x = np.zeros(LANES, np.float32)
    for number in (0.0, -0.0, 0.1, float.fromhex("0x1.455baep+9"), 1.5 * 2.0**23):
        found = run(FLOAT, lambda a, number=number: a.constant(number), x)
        assert found.tobytes() == np.full(LANES, number, np.float32).tobytes()
    with pytest.raises(ValueError, match=r"0\.5"):
        run(I32, lambda a: a + 0.5, integers(np.uint32))


def test_conversions_comparisons_and_shuffles():
    a, b = integers(np.int32), integers(np.int32, 1)
    wide = I64, np.int64
    assert (run(I32, lambda a: a.signed_to(I64), a, result=wide) == a).all()
    assert (run(I32, lambda a: a.unsigned_to(I64), a, result=wide) == a.view(np.uint32)).all()
    low = run(I32, lambda a: a.unsigned_to(I16), a, result=(I16, np.int16))
    assert (low == a.astype(np.int16)).all()
    bits = run(I32, lambda a: a.bits_as(FLOAT.vector(LANES)), a, result=(FLOAT, np.float32))
    assert bits.tobytes() == a.tobytes()
    whole = run(
        FLOAT,
        lambda a: a.signed_to(I32),
        np.arange(-4, 4, dtype=np.float32),
        result=(I32, np.int32),
    )
    assert (whole == np.arange(-4, 4)).all()
    smaller = np.where(a.view(np.uint32) < b.view(np.uint32), a, b)
    assert (run(I32, lambda a, b: select(a < b, a, b), a, b) == smaller).all()
    assert (run(I32, lambda a, b: select(a <= a, a, b), a, b) == a).all()
    places = [0, 9, 2, 11, 4, 13, 6, 15]
    mixed = np.concatenate([a, b])[places]
    assert (run(I32, lambda a, b: a.shuffled(places, b), a, b) == mixed).all()


def count(loop, length):
    """The numbers that a loop meets, through memory, and their sum, through its values."""
    routine = Routine("f", {"n": I64, "out": Array(I64)}, vector_bits=256)
    n, out = routine.numbers["n"], routine.pointers["out"]
    total = [n.constant(0), n.constant(1)]
    with loop(routine, n, total) as i:
        (out + i).store((out + i).load() + 1)
        total[0] += i
        total[1] = total[1] * 3
    (out + 100).store(total[0])
    (out + 101).store(total[1])
    code = compile_routine(routine.finish())
    found = np.zeros(102, np.int64)
    code.function(length, found.ctypes.data)
    met = np.flatnonzero(found[:100])
    assert (found[met] == 1).all()
    assert found[100] == met.sum()
    assert found[101] == 3 ** len(met)
    return met.tolist()


def test_loops():
    assert count(lambda r, n, t: r.loop(n, t), 5) == [0, 1, 2, 3, 4]
    assert count(lambda r, n, t: r.loop(n, t), 0) == [0]  # one round at least
    assert count(lambda r, n, t: r.loop(n, t, may_be_empty=True), 0) == []
    assert count(lambda r, n, t: r.loop(n, t, start=3, step=4, may_be_empty=True), 20) == [
        3,
        7,
        11,
        15,
        19,
    ]
    assert count(lambda r, n, t: r.loop(7, t, step=3), 99) == [0, 3, 6]


def test_tiles_have_a_rest():
    routine = Routine("f", {"n": I64, "out": Array(I64)}, vector_bits=256)
    n, out = routine.numbers["n"], routine.pointers["out"]
    with routine.tile(n, 4) as (first, length):
        (out + first).store(length)
    code = compile_routine(routine.finish())
    for length, tiles in ((1, {0: 1}), (8, {0: 4, 4: 4}), (11, {0: 4, 4: 4, 8: 3})):
        found = np.zeros(12, np.int64)
        code.function(length, found.ctypes.data)
        assert {int(k): int(found[k]) for k in np.flatnonzero(found)} == tiles


def test_kinds_do_not_mix():
    routine = Routine("f", {"n": I64, "shift": I32}, vector_bits=256)
    with pytest.raises(ValueError, match="same type"):
        routine.numbers["n"] + routine.numbers["shift"]
    assert Kind("i16", 4).number_bits == 16
    assert "noalias" not in str(routine.finish())


def test_a_routine_has_the_attributes_that_keep_vectors_whole():
    routine = Routine("f", {"x": Array(I32), "y": Array(FLOAT)}, vector_bits=512)
    text = str(routine.finish())
    assert '"min-legal-vector-width"="512" "prefer-vector-width"="512" nounwind' in text
    assert 'ptr noalias %"x", ptr noalias %"y"' in text
