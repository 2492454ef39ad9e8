"""The exact integer sums of a design over blocks of records: what every engine computes.

Private: the result never leaves its holder. Whatever machine or process reads a part of
the records computes this for its part; sums of parts add up to the sum of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._typing import Bits, Integers
from privsketch.design.recipe import Design
from privsketch.features.masks import Masks
from privsketch.features.moments import moment_sums
from privsketch.kernels.dense import BlockKernel, CompiledKernel, Quantised
from privsketch.kernels.hadamard import StructuredKernel
from privsketch.noise.sums import saturating_add
from privsketch.sketching.blocks import ExactSums, sum_records
from privsketch.sketching.masks import bernoulli, subsets

MASK_BYTES = 2**23  # of one thread


def exact_sums(
    blocks: Iterable[npt.NDArray[Any]],
    design: Design,
    *,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Exact sums over blocks (n, dim) of records in their own units.

    Secret masks, if the design has any, are drawn anew by every call.
    """
    return sum_records(
        blocks,
        design.domain,
        RecordSums(design),
        missing_to_center=missing_to_center,
        n_threads=n_threads,
        progress=progress,
    )


class RecordSums:
    """Quantised records to what they add to the sums; safe to call from several threads."""

    def __init__(self, design: Design) -> None:
        self._masks = design.masks or Masks()
        self._mean = design.mean == "released"
        self._dim, self._n_features = design.dim, design.n_features
        self._n_values = design.n_values
        self._block = design.frequencies.block_size(design.dim)
        self._features = _feature_sums(design)
        self._block_features = _block_sums(design) if self._masks.features == "block" else None

    @property
    def length(self) -> int:
        """Number of sums, those of the coordinates included."""
        return self._n_values + (self._dim if self._mean else 0)

    @property
    def most_records(self) -> int:
        """Masks of single features take a byte each, and copies."""
        if self._masks.features in ("uniform", "poisson"):
            return max(16, MASK_BYTES // self._n_features)
        return MASK_BYTES

    def __call__(self, quantised: Quantised) -> tuple[Integers, int]:
        """Sums over the records kept (n, dim), and how many were."""
        if self._masks.records < 1:
            quantised = quantised[bernoulli(len(quantised), self._masks.records)]
        sums = self._masked(quantised)
        if self._mean:
            sums = np.concatenate([sums, quantised.sum(axis=0, dtype=np.int64)])
        return sums, len(quantised)

    def _masked(self, quantised: Quantised) -> Integers:
        masks, m, n = self._masks, self._n_features, len(quantised)
        if self._block_features is not None and masks.kept is not None:
            chosen = subsets(n, m // self._block, masks.kept // self._block)
            return self._block_features(quantised, chosen.T)
        if masks.features == "uniform" and masks.kept is not None:
            return self._features(quantised, subsets(n, m, masks.kept))
        if masks.features == "poisson" and masks.rate is not None:
            return self._features(quantised, bernoulli(n * m, masks.rate).reshape(n, m))
        return self._features(quantised)


def _feature_sums(design: Design) -> Callable[..., Integers]:
    """Records, and perhaps masks, to the sums of all features."""
    frequencies, domain = design.frequencies, design.domain
    if design.feature_map == "second-moments":
        return moment_sums
    offsets = frequencies.offsets(domain)
    if frequencies.law == "structured":
        return StructuredKernel(design.map, frequencies.blocks(domain), offsets).sums
    matrix = frequencies.matrix(domain)
    return CompiledKernel(design.map, matrix, offsets, frequencies.turn_bits).sums


def _block_sums(design: Design) -> Callable[[Quantised, Bits], Integers]:
    """Records, and which blocks keep them, (blocks, n), to the sums of all features."""
    frequencies, domain = design.frequencies, design.domain
    offsets = frequencies.offsets(domain)
    if frequencies.law != "structured":
        matrix, size = frequencies.matrix(domain), design.dim
        return BlockKernel.of(design.map, matrix, offsets, frequencies.turn_bits, size).sums
    kernel = StructuredKernel(design.map, frequencies.blocks(domain), offsets)

    def sums(quantised: Quantised, kept: Bits) -> Integers:
        parts = [kernel.block_sums(quantised[rows], block) for block, rows in enumerate(kept)]
        return np.concatenate(parts, axis=1).reshape(-1)

    return sums


def add_exact(parts: Iterable[ExactSums]) -> ExactSums:
    """The sums of several parts, at least one."""
    return reduce(
        lambda a, b: ExactSums(
            saturating_add(a.sums, b.sums), a.n_records + b.n_records, a.n_kept + b.n_kept
        ),
        parts,
    )
