"""Sums on a graphics processor: features a second on the device and from the host, same bits.

Quantised records are made on the device, from their number by a mixing function; the same numbers
come to the host where sums are compared. Records of the host are normal, float64 and float32, in
pinned and in ordinary memory. `--records` asks for one sketch of so many records besides.
"""

from __future__ import annotations

import time
from ctypes import byref, c_float, c_uint, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import least_seconds, markdown, parser_of
from privsketch.design.recipe import Design
from privsketch.facts.budget import Budget
from privsketch.facts.domain import Ball, Box, Domain
from privsketch.features.maps import feature_map
from privsketch.kernels.cuda import driver
from privsketch.kernels.cuda.code import DeviceRoutine, ptx_of
from privsketch.kernels.cuda.driver import Memory, Stream, device, to_device
from privsketch.kernels.cuda.sums import DeviceKernel
from privsketch.kernels.dense import BlockKernel, CompiledKernel, ReferenceKernel
from privsketch.kernels.kinds import I64, Array
from privsketch.sketching.build import engine_sums

M, TURN_BITS, THREADS = 1024, 28, 256
MIX = (30, 0xBF58476D1CE4E5B9, 27, 0x94D049BB133111EB, 31)  # SplitMix64


def mixing_routine() -> DeviceRoutine:
    """64 mixed bits for every number below n: four values of records."""
    routine = DeviceRoutine("mix", {"out": Array(I64), "n": I64}, threads=THREADS)
    index = routine.block().unsigned_to(I64) * THREADS + routine.thread.unsigned_to(I64)
    step = routine.n_blocks.unsigned_to(I64) * THREADS
    with routine.loop(
        routine.numbers["n"], start=index, step=lambda _: step, may_be_empty=True
    ) as number:
        bits = number + MIX[1]
        bits = (bits ^ bits >> MIX[0]) * MIX[1]
        bits = (bits ^ bits >> MIX[2]) * MIX[3]
        (routine.pointers["out"] + number).store(bits ^ bits >> MIX[4])
    return routine


def made(n: int, dim: int) -> Memory:
    """(n, dim) quantised records on the device."""
    memory, stream = Memory(-(-n * dim // 4) * 8), Stream()
    mix = device().load(ptx_of(mixing_routine(), device().capability), "mix")
    grid = 8 * device().multiprocessors, 1
    mix.launch(grid, THREADS, stream, [memory.address, memory.n_bytes // 8])
    stream.wait()
    return memory


def brought(memory: Memory, n: int, dim: int) -> npt.NDArray[np.int16]:
    """Copy the records to the host."""
    return driver.to_host(memory, (n, dim), np.int16)


def frequencies(dim: int, n_features: int, bits: int = 15) -> npt.NDArray[np.int16]:
    """Draw frequencies."""
    rng = np.random.default_rng(dim)
    return rng.integers(-(2**bits) + 1, 2**bits, (n_features, dim)).astype(np.int16)


def definition(name: str, dim: int, m: int) -> ReferenceKernel:
    """Return the definition of a kernel, with offsets where the map has them."""
    mapping = feature_map(name)
    offsets = np.random.default_rng(1).integers(0, 2**TURN_BITS, m) * mapping.dithered
    bits = 15 if mapping.has_table else 13 - int(np.ceil(np.log2(dim) / 2))
    matrix = frequencies(dim, m, bits)
    return ReferenceKernel(mapping, matrix, offsets.astype(np.uint32), TURN_BITS)


def mark(stream: Stream) -> c_void_p:
    """Record a time mark on a stream, for `seconds_between`."""
    event = c_void_p()
    driver.call("cuEventCreate", byref(event), c_uint(0))
    driver.call("cuEventRecord", event, stream.handle)
    return event


def seconds_between(first: c_void_p, second: c_void_p) -> float:
    """Wait for the second mark, and return the seconds between both."""
    milliseconds = c_float()
    driver.call("cuEventSynchronize", second)
    driver.call("cuEventElapsedTime", byref(milliseconds), first, second)
    return milliseconds.value / 1000


def on_the_device(dims: list[int], n: int) -> str:
    """Features a second, records being there."""
    lines = []
    for dim in dims:
        count = min(n, 2**33 // dim)
        kernel, records, stream = (
            DeviceKernel(definition("fourier", dim, M)),
            made(count, dim),
            Stream(),
        )
        seconds = []
        for _ in range(5):
            first = mark(stream)
            kernel.add(stream, records.address, count)
            seconds.append(seconds_between(first, mark(stream)))
        shape = kernel.shape
        cut = f"{shape.tiles} tiles, {shape.warps} warps, {shape.records} records"
        rate = count * M / min(seconds)
        lines.append([str(dim), f"{count:.0e}", cut, f"{1000 * min(seconds):.2f}", f"{rate:.3g}"])
    return markdown(["columns", "records", "shape", "ms", "features/s"], lines)


def same_bits(n: int) -> str:
    """Compare sums of the device with those of this processor."""
    lines = []
    for name, dim in [
        ("fourier", 10),
        ("fourier", 64),
        ("fourier", 256),
        ("one-bit", 10),
        ("quadratic", 10),
    ]:
        m = 128 if dim > 10 else 512
        records = made(n, dim)
        x = brought(records, n, dim)
        if name == "quadratic":
            x >>= 3  # of norm below that of the ball
            records = to_device(x)
        kernel = DeviceKernel(definition(name, dim, m))
        kernel.add(Stream(), records.address, n)
        is_same = np.array_equal(kernel.sums(), CompiledKernel(definition(name, dim, m)).sums(x))
        lines.append([f"{name}, {dim} columns, {m} features", str(is_same)])
    for name in ("fourier", "one-bit"):
        dim, m = 10, 500
        records = made(n, dim)
        x = brought(records, n, dim)
        kept = np.random.default_rng(0).random((m // dim, n)) < 0.25
        counts = kept.sum(axis=1)
        rows = (np.flatnonzero(kept) - np.repeat(np.arange(m // dim) * n, counts)).astype(np.int32)
        kernel = DeviceKernel(definition(name, dim, m), block=dim, has_lists=True)
        places = to_device(rows), to_device(kernel.ranges(counts))
        kernel.add(Stream(), records.address, n, (places[0].address, places[1].address, counts))
        expected = BlockKernel.of(definition(name, dim, m), dim).sums(x, kept)
        is_same = np.array_equal(kernel.sums(), expected)
        lines.append([f"{name}, blocks of {dim} features with records of their own", str(is_same)])
    return markdown([f"{n:.0e} records", "same bits"], lines)


def copy_rate(array: npt.NDArray[Any]) -> float:
    """Bytes a second of a plain copy to the device."""
    stream, memory = Stream(), Memory(array.nbytes)

    def copy() -> None:
        stream.to_device(memory.address, array)
        stream.wait()

    return array.nbytes / least_seconds(copy)


def planned(domain: Domain, m: int) -> Design:
    """Return a design with this number of Fourier features."""
    budget = Budget(1.0, 1e-6)
    return Design.plan(n_components=10, domain=domain, budget=budget, n_features=m, random_state=0)


def from_the_host(n: int, dim: int, m: int) -> str:
    """Bytes and features a second, of a whole call, and of a plain copy of the same memory."""

    def seconds_of(array: npt.NDArray[Any], design: Design) -> float:
        return least_seconds(lambda: engine_sums(array, design, engine="cuda"))

    lines = []
    rng = np.random.default_rng(0)
    cases: list[tuple[Domain, str]] = [
        (Box(-8, 8, dim), "f8"),
        (Box(-8, 8, dim), "f4"),
        (Ball(dim, 12.0), "f8"),
    ]
    for domain, dtype in cases:
        ordinary = rng.standard_normal((n, dim), np.float32).astype(dtype)
        memory = Memory(ordinary.nbytes, pinned=True)
        pinned = memory.array(ordinary.shape, dtype)
        pinned[...] = ordinary
        design = planned(domain, m)
        for words, array in (("pinned", pinned), ("ordinary", ordinary)):
            seconds = seconds_of(array, design)
            plain, rate = copy_rate(array), array.nbytes / seconds
            lines.append(
                [
                    f"{type(domain).__name__}, {dtype}, {words}",
                    f"{1000 * seconds:.1f}",
                    f"{rate / 1e9:.1f}",
                    f"{plain / 1e9:.1f}",
                    f"{100 * rate / plain:.0f} %",
                    f"{n * m / seconds:.3g}",
                ]
            )
    return markdown(["records", "ms", "GB/s", "plain copy", "of it", "features/s"], lines)


class Made:
    """An array on the device as other libraries show theirs."""

    def __init__(self, n: int, dim: int) -> None:
        self.memory, self.shape = made(n, dim), (n, dim)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": "<i2",
            "data": (self.memory.address, True),
            "version": 3,
        }


def many(n: int, dim: int) -> str:
    """One sketch of very many records that the device makes: whole calls, before noise."""
    start = time.perf_counter()
    records = Made(n, dim)
    making = time.perf_counter() - start
    design = planned(Box(-(2**15), 2**15, dim), M)
    seconds = least_seconds(lambda: engine_sums(records, design), 2)
    return (
        f"{n:.0e} records of {dim} columns, {M} features: made in {making:.2f} s, quantised and "
        f"summed in {seconds:.3f} s, {n * M / seconds:.3g} features/s"
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--records", type=float, default=1e9, help="of the one large sketch")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 10, 20, 64, 128, 256, 512])
    options = parser.parse_args()
    device().use()
    print(f"{device().name}\n\n{on_the_device(options.dims, 10**7)}\n")
    print(f"{same_bits(10**6)}\n")
    for n in (10**7, 10**8):
        print(f"{from_the_host(n, 10, M)}\n")
    print(many(int(options.records), 10))


if __name__ == "__main__":
    main()
