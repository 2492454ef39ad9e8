"""Kernels for graphics processors, checked without one: layouts, arithmetic and PTX.

What needs neither warps nor tensor cores is compiled for this processor, from the same module, and
run thread by thread. Tests that need a device are in tests/sketching/test_cuda_engine.py.
"""

import ctypes
import re

import llvmlite.binding as llvm
import numpy as np
import pytest

from privsketch import Ball, Box, KernelError
from privsketch.features import TABLE_SIZE, Quantiser, feature_map, table_index
from privsketch.kernels import (
    DEVICE_FEATURES,
    FEATURES,
    I32,
    I64,
    NUMBER_KINDS,
    SUM_UNITS,
    THREADS,
    TILE,
    WARP,
    Array,
    Routine,
    check_records,
    columns_routine,
    frequency_digits,
    machine,
    ptx_of,
    quantiser_routine,
    shape_for,
)
from privsketch.kernels.cuda import Shape, driver, sums_routine
from tests import seams

LANES = np.arange(WARP)


# --- digits: what tensor cores are given, by the layout of the PTX manual ------------------------


def tensor_rows(words, depth):
    """(16, depth) bytes of the left side from the registers of all lanes, (registers, 32)."""
    rows = np.zeros((TILE, depth), np.uint8)
    for register, word in enumerate(words):
        for byte in range(4):
            row = LANES // 4 + 8 * (register % 2)
            rows[row, LANES % 4 * 4 + byte + 16 * (register // 2)] = (word >> 8 * byte) & 0xFF
    return rows


def tensor_columns(record_bytes, depth, is_hopper):
    """(depth, 8) bytes of the right side; a lane has neighbouring columns of its record.

    Hopper's tensor cores read them from memory, in their order.
    """
    if is_hopper:
        return record_bytes.T.copy()
    columns = np.zeros((depth, 8), np.uint8)
    for register in range(depth // 16):
        for byte in range(4):
            mine = LANES % 4 * (depth // 4) + 4 * register + byte
            columns[LANES % 4 * 4 + byte + 16 * register, LANES // 4] = record_bytes[
                LANES // 4, mine
            ]
    return columns


def products(left, right, signs):
    """What tensor cores add up, in 64 bits."""
    wide = [
        side.view(np.int8 if sign else np.uint8).astype(np.int64)
        for side, sign in zip((left, right), signs, strict=True)
    ]
    return wide[0] @ wide[1]


@pytest.mark.parametrize("groups_at_once", [0, 4])
@pytest.mark.parametrize("dim", [1, 10, 16, 17, 32, 40, 50, 64, 100])
def test_phases_of_digits_are_those_of_the_definition(dim, groups_at_once):
    rng = np.random.default_rng(dim)
    frequencies = rng.integers(-(2**15), 2**15, (TILE + 3, dim)).astype(np.int16)
    x = rng.integers(-(2**15), 2**15, (8, dim)).astype(np.int16)
    x[0], frequencies[0] = -(2**15), -(2**15)
    offsets = rng.integers(0, 2**26, len(frequencies)).astype(np.uint32)
    shape = Shape(dim, 32 - 26, 1, 1, 1, groups_at_once=groups_at_once)
    digits = frequency_digits(frequencies, shape)
    wide = np.zeros((8, sum(shape.depths)), np.int16)
    wide[:, :dim] = x
    low, high = (wide & 0xFF).astype(np.uint8), (wide >> 8).astype(np.uint8)
    for tile, words in enumerate(digits):
        half, phase, first = len(words) // 2, np.zeros((TILE, 8), np.int64), 0
        for depth in shape.depths:
            place = slice(first // 8, (first + depth) // 8)
            mine = {sign: tensor_rows(words[sign * half :][place], depth) for sign in (0, 1)}
            here = slice(first, first + depth)
            theirs = [
                tensor_columns(digit[:, here], depth, shape.is_hopper) for digit in (low, high)
            ]
            for my_sign in (0, 1):
                for their_sign in (0, 1):
                    part = products(mine[my_sign], theirs[their_sign], (my_sign, their_sign))
                    phase += part << 8 * (my_sign + their_sign)
            first += depth
        rows = slice(tile * TILE, min((tile + 1) * TILE, len(frequencies)))
        expected = table_index(x, frequencies[rows], offsets[rows], 26)
        phase = phase[: len(expected.T)].T + offsets[rows] + 2**9
        np.testing.assert_array_equal((phase & 0xFFFFFFFF) >> 10 & 0xFFFF, expected)


# --- features, compiled for this processor ------------------------------------------------------


def every_phase(name, shift):
    """What the device's code adds for all 2^16 phases, compiled for this processor."""
    arguments = {"phases": Array(I32), "n": I64, "cosines": Array(I32), "sines": Array(I32)}
    routine = Routine("features", arguments, vector_bits=128)
    with routine.loop(routine.numbers["n"]) as index:
        pair = DEVICE_FEATURES[name]((routine.pointers["phases"] + index).load(), shift)
        for target, value in zip(("cosines", "sines"), pair, strict=True):
            (routine.pointers[target] + index).store(value)
    code = machine.compile_routine(routine.finish())
    below = 16 - shift  # bits of a phase below a step; those above a turn are anything
    phases = np.arange(TABLE_SIZE, dtype=np.int64) << below
    phases += np.random.default_rng(0).integers(0, 2**below, TABLE_SIZE)
    phases += np.random.default_rng(1).integers(0, 2**shift, TABLE_SIZE) << (32 - shift)
    words = phases.astype(np.uint32)
    found = np.zeros((2, TABLE_SIZE), np.int32)
    code.function(words.ctypes.data, TABLE_SIZE, found[0].ctypes.data, found[1].ctypes.data)
    return found.astype(np.int64)


@pytest.mark.parametrize("shift", [0, 4, 15])
@pytest.mark.parametrize("name", ["fourier", "one-bit"])
def test_every_phase_gives_the_entry_of_the_table(name, shift):
    unit, excess = SUM_UNITS[name], FEATURES[name].excess
    values = unit * every_phase(name, shift) - np.array(excess)[:, np.newaxis]
    np.testing.assert_array_equal(values, feature_map(name).table.T)


@pytest.mark.parametrize("name", ["fourier", "one-bit"])
def test_sums_of_32_bits_do_not_wrap(name):
    cosines, sines = every_phase(name, 0)
    assert cosines.min() >= 0
    assert FEATURES[name].max_records * cosines.max() < 2**32
    assert FEATURES[name].max_records * np.abs(sines).max() < 2**31


# --- quantising, compiled for this processor ----------------------------------------------------


class Host:
    """A routine of the device on this processor: its threads run one after the other."""

    def __init__(self, routine, name, n_arguments):
        text = str(routine.finish()).replace("ptx_kernel ", "")
        text = re.sub(r'target triple = ".*"', "", text)
        text = re.sub(r"declare i32 @.llvm\.nvvm\.read[^\n]*\n", "", text)
        for register, variable in (("tid", "thread"), ("ctaid", "block"), ("nctaid", "blocks")):
            text = re.sub(
                rf'call i32 @"llvm\.nvvm\.read\.ptx\.sreg\.{register}\.x"\(\)',
                f"load i32, ptr @{variable}",
                text,
            )
        text += "".join(f"@{name} = global i32 0\n" for name in ("thread", "block", "blocks"))
        engine_machine = machine.processor().target_machine()
        module = llvm.parse_assembly(text)
        module.verify()
        self.engine = llvm.create_mcjit_compiler(module, engine_machine)
        self.engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * n_arguments)
        self.function = signature(self.engine.get_function_address(name))
        self.registers = [
            ctypes.c_int32.from_address(self.engine.get_global_value_address(each))
            for each in ("thread", "block", "blocks")
        ]

    def launch(self, blocks, *arguments):
        thread, block, count = self.registers
        count.value = blocks
        for block.value in range(blocks):
            for thread.value in range(THREADS):
                self.function(*arguments)


def host_quantised(records, domain, code):
    """Integers, and whether a value was missing."""
    n, dim = records.shape
    is_ball = isinstance(domain, Ball)
    host = Host(quantiser_routine(code, is_ball), "quantise", 10)
    half, places = domain.half_widths, np.arange(dim)
    unit = 2.0**15 / half
    limit = np.minimum(np.floor(half * unit), 2**15 - 1)
    out, missing = np.zeros((n, dim), np.int16), np.zeros(1, np.int32)
    arrays = places, domain.center_vector, unit, limit, out, missing
    numbers = n, dim, dim
    host.launch(2, records.ctypes.data, *numbers, *(each.ctypes.data for each in arrays))
    return out, bool(missing[0])


@pytest.mark.parametrize("is_ball", [False, True])
@pytest.mark.parametrize("code", [code for code in NUMBER_KINDS if code != "f2"])
def test_the_device_quantises_as_the_definition_does(code, is_ball):
    records = np.ascontiguousarray(check_records(code))
    dim = records.shape[1]
    half = 1.0 if code[0] == "f" else float(records.astype(float).max()) / 3
    low = [-half] * (dim - 1) + [half / 2]
    domain = Ball(dim, half, half / 8) if is_ball else Box(low, half)
    found, missing = host_quantised(records, domain, code)
    np.testing.assert_array_equal(found, Quantiser(domain, missing_to_center=True)(records))
    assert missing == (code[0] == "f")
    assert len(np.unique(found)) > 2  # not all at the edges


@pytest.mark.parametrize("has_lists", [False, True])
def test_sums_of_columns(has_lists):
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**15), 2**15, (1000, 7)).astype(np.int16)
    rows = np.flatnonzero(rng.random(1000) < 0.3).astype(np.int32)
    wanted = x[rows] if has_lists else x
    out = np.zeros(7, np.int64)
    host = Host(columns_routine(has_lists), "columns", 6)
    arrays = out.ctypes.data, rows.ctypes.data
    host.launch(2, x.ctypes.data, wanted.size, 7, 7 * 60, *arrays)
    np.testing.assert_array_equal(out, wanted.sum(axis=0, dtype=np.int64))


# --- PTX --------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
@pytest.mark.parametrize("name", FEATURES)
def test_ptx_is_written_for_every_map_and_device(name, capability):
    shape = shape_for(10, 64, 4, has_lists=False)
    ptx = ptx_of(sums_routine(name, shape), capability)
    assert f".target sm_{90 if capability >= (9, 0) else 80}" in ptx
    assert ptx.count(".visible .entry sums(") == 1
    assert f".maxntid {shape.threads}" in ptx
    kinds = ["s8.s8", "s8.u8", "u8.s8", "u8.u8"]
    found = re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.s32\.(\w\w\.\w\w)\.s32", ptx)
    assert sorted(found) == sorted(kinds * shape.tiles)
    assert ".local" not in ptx  # all numbers are in registers


@pytest.mark.parametrize("name", FEATURES)
def test_ptx_with_instructions_of_hopper(name):
    shape = shape_for(40, 64, 4, hopper=True)
    assert shape.is_hopper
    ptx = ptx_of(sums_routine(name, shape), (9, 0), hopper=True)
    assert ".target sm_90a" in ptx
    found = re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k32\.s32\.(\w\w\.\w\w) ", ptx)
    assert {int(columns) for columns, _ in found} == {8 * shape.groups_at_once}
    kinds = sorted(kinds for _, kinds in found)
    assert kinds == sorted(["s8.s8", "s8.u8", "u8.s8", "u8.u8"] * 2 * shape.tiles)


@pytest.mark.parametrize("hopper", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 16, 17, 33, 64, 100, 256, 300, 512])
@pytest.mark.parametrize("n_features", [1, 100, 1024, 5000])
def test_shapes_cover_all_columns_and_features(dim, n_features, hopper):
    shape = shape_for(dim, n_features, 4, hopper=hopper)
    assert dim <= sum(shape.depths) < dim + 32
    parts = -(-n_features // shape.features)
    assert parts * shape.features < n_features + TILE * 8 * parts
    assert 2 * shape.groups <= FEATURES["fourier"].max_records
    if shape.is_hopper:
        assert shape.warps % 4 == 0
        assert shape.groups % shape.groups_at_once == 0
        assert 2 * shape.stage_bytes <= 227 * 1024
    else:
        assert 1 <= shape.warps <= 8
        assert 2 * shape.stage_bytes <= 48 * 1024


# --- no device ----------------------------------------------------------------------------------


@pytest.fixture
def no_caches():
    for each in (driver.device, driver._library):
        each.cache_clear()
    yield
    for each in (driver.device, driver._library):
        each.cache_clear()


def test_a_machine_without_a_driver_is_told_so(no_caches, monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(KernelError, match=r"driver is not installed.*engine='threads'"):
        driver.device()


class Library:
    """A driver that finds `count` devices, old ones."""

    def __init__(self, code, count):
        self.code, self.count = code, count

    def cuInit(self, flags):  # noqa: N802
        return self.code

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = self.count
        return 0

    def cuDeviceGetAttribute(self, value, attribute, number):  # noqa: N802
        value._obj.value = {75: 7, 76: 5, 16: 40}[attribute.value]
        return 0

    def cuDeviceGetName(self, name, length, number):  # noqa: N802
        name.value = b"Old One"
        return 0

    def cuGetErrorString(self, code, text):  # noqa: N802
        text._obj.value = b"no CUDA-capable device is detected"
        return 0

    def __getattr__(self, name):
        return lambda *arguments: 0


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Library(100, 0), "finds no device.*no CUDA-capable device"),
        (Library(0, 0), "finds no device; use"),
        (Library(0, 1), "Old One has compute capability 7.5, at least 8.0"),
    ],
)
def test_why_there_is_no_device(library, words, no_caches, monkeypatch):
    seams.set(monkeypatch, "driver.library", lambda: library)
    driver.device.cache_clear()
    with pytest.raises(KernelError, match=words):
        driver.device.__wrapped__()
    monkeypatch.undo()
