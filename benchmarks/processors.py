"""Kernels on other processors: checked, timed where this machine can run them, emulated for ARM.

Every kernel compares itself with its definition when it is compiled, on all 65,536 phases and on
public records; here it is compiled for processors of several kinds. Those of which this machine
has all instructions are timed, one thread, nanoseconds per feature. ARM's code is linked with a
small program and run by an emulator (Debian's qemu-user and gcc-aarch64-linux-gnu): the same
comparison, no time.
"""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.common import least_seconds
from privsketch.features.maps import feature_map
from privsketch.kernels import dense, machine
from privsketch.kernels.dense import CompiledKernel, ReferenceKernel

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_SSE = frozenset({"sse2", "ssse3"})
_AVX512 = _SSE | {"avx2", "avx512f", "avx512bw", "avx512vl", "avx512dq"}
PROCESSORS = {
    "plain x86-64": machine.Processor(X86, "x86-64", frozenset({"sse2"})),
    "SSSE3": machine.Processor(X86, "nehalem", _SSE),
    "AVX2": machine.Processor(X86, "haswell", _SSE | {"avx2"}),
    "AVX-512": machine.Processor(X86, "skylake-avx512", _AVX512),
    "Sapphire Rapids": machine.Processor(
        X86, "sapphirerapids", _AVX512 | {"avx512vnni", "fast-dpwssd"}
    ),
    "Zen 4": machine.Processor(X86, "znver4", _AVX512 | {"avx512vnni", "fast-dpwssd"}),
    "NEON": machine.Processor(ARM, "neoverse-n1", frozenset({"neon"})),
    "NEON, any": machine.Processor(ARM, "generic", frozenset({"neon"})),
}
N_FEATURES, DIMS = 1024, (2, 10, 64)
_DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void sums(void*, int64_t, int64_t, void*, void*, int32_t, int64_t, void*, void*, void*);
static void *array(int64_t size) {
    void *room = aligned_alloc(64, (size + 127) / 64 * 64);
    if (fread(room, 1, size, stdin) != (size_t)size) exit(1);
    return room;
}
int main(void) {
    int64_t head[10];
    void *part[6];
    if (fread(head, 8, 10, stdin) != 10) return 1;
    for (int i = 0; i < 6; i++) part[i] = array(head[4 + i]);
    sums(part[0], head[0], head[1], part[1], part[2], (int32_t)head[2], head[3], part[3],
         part[4], part[5]);
    return fwrite(part[3], 1, head[7], stdout) != (size_t)head[7];
}
"""


def runs_here(processor: machine.Processor) -> bool:
    """Whether this machine has all that code for a processor may use."""
    here = machine.this_processor()
    same = processor.triple.split("-")[0] == here.triple.split("-")[0]
    return same and processor.words - {"fast-dpwssd"} <= here.words


@contextmanager
def compiled_for(processor: machine.Processor) -> Iterator[None]:
    """Kernels are compiled for that processor in this context."""
    known, machine.processor = machine.processor, lambda: processor
    for cached in (dense._compile, dense.tile_size):
        cached.cache_clear()
    try:
        yield
    finally:
        machine.processor = known
        for cached in (dense._compile, dense.tile_size):
            cached.cache_clear()


def nanoseconds(dim: int) -> float:
    """Of a Fourier feature, quantised records."""
    rng = np.random.default_rng(0)
    frequencies = rng.integers(-32767, 32768, (N_FEATURES, dim)).astype(np.int16)
    offsets = np.zeros(N_FEATURES, np.uint32)
    kernel = CompiledKernel(ReferenceKernel(feature_map("fourier"), frequencies, offsets, 26))
    records = rng.integers(-32767, 32768, (8192, dim)).astype(np.int16)
    seconds = least_seconds(lambda: kernel.sums(records))
    return float(seconds / len(records) / N_FEATURES * 1e9)


class Emulated:
    """The function of a kernel for ARM, which an emulator runs on copies of its arguments."""

    def __init__(self, processor: machine.Processor, name: str, mode: dense.Mode) -> None:
        self._folder = Path(tempfile.mkdtemp())
        shape = dense.Shape(processor.vector_bits // 32, 2, 4)
        source = dense.sums_routine(name, shape, mode, processor.words)
        target = processor.target_machine()
        code = bytes(target.emit_object(machine.optimise(source, target)))
        (self._folder / "sums.o").write_bytes(code)
        (self._folder / "main.c").write_text(_DRIVER)
        parts = [str(self._folder / file) for file in ("main.c", "sums.o")]
        program = str(self._folder / "sums")
        subprocess.run(
            ["aarch64-linux-gnu-gcc", "-static", "-O1", *parts, "-o", program], check=True
        )
        self._mode, self._tile = mode, shape.lanes * shape.vectors
        self._mask_bytes = shape.vectors * max(1, shape.lanes // 8)

    def __call__(
        self,
        records: int,
        n: int,
        pairs: int,
        frequencies: int,
        start: int,
        shift: int,
        tiles: int,
        out: int,
        masks: int | None,
        rows: int | None,
    ) -> None:
        """Run the program, and copy its output to `out`."""
        mask_size = {
            "whole": 0,
            "masked": n * tiles * self._mask_bytes,
            "listed": 16 * tiles,
        }[self._mode]
        mask = b"" if masks is None else ctypes.string_at(masks, mask_size)
        listed = 0 if rows is None else 4 * max(struct.unpack(f"<{2 * tiles}q", mask))
        places = {
            records: 4 * n * pairs,
            frequencies: 4 * tiles * pairs * self._tile,
            start: 4 * tiles * self._tile,
            out: 16 * tiles * self._tile,
        }
        parts = [ctypes.string_at(place, size) for place, size in places.items()]
        parts += [mask, b"" if rows is None else ctypes.string_at(rows, listed)]
        head = struct.pack("<10q", n, pairs, shift, tiles, *map(len, parts))
        found = subprocess.run(
            ["qemu-aarch64", str(self._folder / "sums")],
            input=head + b"".join(parts),
            capture_output=True,
            check=True,
        ).stdout
        ctypes.memmove(out, found, len(found))

    def close(self) -> None:
        """Remove the program."""
        shutil.rmtree(self._folder)


def emulate(processor: machine.Processor) -> None:
    """Compare ARM's kernels with their definitions; raise an error on a difference."""
    with compiled_for(processor):
        for name in ("fourier", "one-bit", "quadratic"):
            for mode in ("whole", "masked", "listed"):
                run = Emulated(processor, name, mode)
                dense._check(machine.Code(run, None), feature_map(name), mode)
                run.close()


def main() -> None:
    """One line for each processor."""
    tools = all(map(shutil.which, ("qemu-aarch64", "aarch64-linux-gnu-gcc")))
    print(f"{'':<17}" + "".join(f"{f'{dim} columns':>12}" for dim in DIMS))
    for label, processor in PROCESSORS.items():
        if runs_here(processor):
            with compiled_for(processor):
                for name in ("fourier", "one-bit", "quadratic"):
                    for mode in ("whole", "masked", "listed"):
                        dense._compile(name, mode)
                times = [nanoseconds(dim) for dim in DIMS]
            print(f"{label:<17}" + "".join(f"{time:>9.3f} ns" for time in times) + "  checked")
        elif processor.triple == ARM and tools:
            emulate(processor)
            print(f"{label:<17} checked in an emulator")
        else:
            print(f"{label:<17} cannot run here")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
