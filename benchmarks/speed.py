"""Nanoseconds per Fourier feature and core, against NumPy in the same run.

A feature is one cosine and one sine, added to their sums. NumPy computes the same
sketch in float32, once over all records as one writes it, once in blocks that stay in
the cache. "whole" includes quantising the records; one thread. Two threads are compared with one on
a million records.

A second table compares structured frequencies (sign flips and fast transforms) with dense
ones of the same number, both in their compiled kernels, one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core for NumPy as well

import time

import numpy as np

import privsketch as ps
from benchmarks.common import least_seconds
from privsketch.features.fixedpoint import FREQUENCY_MAX, RECORD_MAX
from privsketch.features.hadamard import draw_blocks
from privsketch.features.maps import feature_map
from privsketch.kernels.dense import CompiledKernel, ReferenceKernel
from privsketch.kernels.hadamard import StructuredKernel
from privsketch.kernels.quantiser import CompiledQuantiser
from privsketch.sketching.sums import RecordSums, sum_records

N_FEATURES, N_RECORDS = 1024, 50_000
STRUCTURED = ((16, 4096), (32, 4096), (48, 4096), (64, 4096), (128, 4096), (256, 4096),
              (784, 8192), (1024, 8192), (4096, 8192))  # fmt: skip


def measure(dim: int) -> tuple[dict[str, float], float]:
    """Nanoseconds per feature of every way to sketch, and the speed-up of two threads."""
    rng = np.random.default_rng(0)
    records = rng.normal(size=(N_RECORDS, dim)).astype(np.float32)
    design = ps.Design.plan(
        n_components=2,
        domain=ps.Box(-8, 8, dim=dim),
        budget=ps.Budget(1.0, 1e-6),
        n_features=N_FEATURES,
        random_state=1,
    )
    frequencies, domain = design.frequencies, design.domain
    arguments = frequencies.matrix(domain), frequencies.offsets(domain), frequencies.turn_bits
    kernel, one_bit = (
        CompiledKernel(ReferenceKernel(feature_map(name), *arguments))
        for name in ("fourier", "one-bit")
    )
    quantise = CompiledQuantiser(domain)
    quantised = quantise(records)
    radians = design.radians().astype(np.float32)
    summer = RecordSums(design)

    def numpy_sketch(rows: int) -> None:
        for first in range(0, N_RECORDS, rows):
            phase = records[first : first + rows] @ radians.T
            np.cos(phase).sum(axis=0), np.sin(phase).sum(axis=0)

    def whole(threads: int, times: int = 1) -> None:
        sum_records([records] * times, domain, summer, n_threads=threads)

    per_feature = 1e9 / (N_RECORDS * N_FEATURES)
    seconds = {
        "kernel": least_seconds(lambda: kernel.sums(quantised)),
        "whole": least_seconds(lambda: whole(1)),
        "one-bit": least_seconds(lambda: one_bit.sums(quantised)),
        "NumPy, plain": least_seconds(lambda: numpy_sketch(N_RECORDS), 3),
        "NumPy, blocks": least_seconds(lambda: numpy_sketch(1024), 3),
    }
    # A million records: threads take a while to begin.
    one = least_seconds(lambda: whole(1, 20), 3)
    two = least_seconds(lambda: whole(2, 20), 3)
    return {name: value * per_feature for name, value in seconds.items()}, one / two


def measure_structured(dim: int, n_features: int, map_name: str) -> tuple[float, float]:
    """Nanoseconds per feature with structured and with dense frequencies.

    How long either takes does not depend on the integers, so the dense ones are any.
    """
    rng = np.random.default_rng(0)
    n_records = max(256, min(1024, 2**29 // (dim * n_features)))
    records = rng.integers(-RECORD_MAX, RECORD_MAX, (n_records, dim)).astype(np.int16)
    matrix = rng.integers(-FREQUENCY_MAX, FREQUENCY_MAX, (n_features, dim)).astype(np.int16)
    offsets = np.zeros(n_features, dtype=np.uint32)
    blocks = draw_blocks(1, n_features, dim, (0.25, 4.0), 8.0)
    structured = StructuredKernel(feature_map(map_name), blocks, offsets)
    dense = CompiledKernel(ReferenceKernel(feature_map(map_name), matrix, offsets, 26))
    kernels: tuple[StructuredKernel, CompiledKernel] = (structured, dense)
    seconds = [float("inf")] * 2
    for k in [0, 0, 0, 1, 1, 1] * 4:  # in turns, each with its own tables in the cache
        start = time.thread_time()  # without the time that others had the processor
        kernels[k].sums(records)
        seconds[k] = min(seconds[k], time.thread_time() - start)
    per_feature = 1e9 / (n_records * n_features)
    return seconds[0] * per_feature, seconds[1] * per_feature


def main() -> None:
    print(f"{N_FEATURES} features, {N_RECORDS} records; ns per feature and core")
    for dim in (2, 10, 64, 256):
        ns, two = measure(dim)
        row = "  ".join(f"{name} {value:.3f}" for name, value in ns.items())
        plain, blocks = (ns[f"NumPy, {kind}"] / ns["kernel"] for kind in ("plain", "blocks"))
        print(f"d = {dim:3d}  {row}  | kernel {plain:.1f} x plain NumPy, {blocks:.1f} x blocked; "
              f"two threads {two:.2f} x")  # fmt: skip
    print("structured against dense frequencies; ns per feature and core")
    for dim, n_features in STRUCTURED:
        parts = []
        for map_name in ("fourier", "one-bit"):
            fast, slow = measure_structured(dim, n_features, map_name)
            parts.append(f"{map_name} {fast:.3f} against {slow:.3f}, {slow / fast:.1f} x")
        print(f"d = {dim:4d}  m = {n_features}  {'  |  '.join(parts)}")


if __name__ == "__main__":
    main()
