"""The exact integer sums of a design over blocks of records: what every engine computes.

Private: the result never leaves its holder. Whatever machine or process reads a part of
the records computes this for its part; sums of parts add up to the sum of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy.typing as npt

from privsketch.design import Design
from privsketch.noise.sums import saturating_add
from privsketch.sketching.blocks import ExactSums, sum_features
from privsketch.sketching.kernels import CompiledKernel


def exact_sums(
    blocks: Iterable[npt.NDArray[Any]],
    design: Design,
    *,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Exact sums over blocks (n, dim) of records in their own units."""
    frequencies, domain = design.frequencies, design.domain
    kernel = CompiledKernel(
        design.map, frequencies.matrix(domain), frequencies.offsets(domain), frequencies.turn_bits
    )
    return sum_features(
        blocks,
        domain,
        kernel,
        2 * design.n_features,
        missing_to_center=missing_to_center,
        n_threads=n_threads,
        progress=progress,
    )


def add_exact(parts: Iterable[ExactSums]) -> ExactSums:
    """The sums of several parts, at least one."""
    return reduce(
        lambda a, b: ExactSums(saturating_add(a.sums, b.sums), a.n_records + b.n_records), parts
    )
