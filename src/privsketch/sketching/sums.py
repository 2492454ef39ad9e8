"""The exact integer sums of a design over blocks of records: what every engine computes.

Private: the result never leaves its holder. Whatever machine or process reads a part of
the records computes this for its part; sums of parts add up to the sum of the whole.

Blocks of records to exact integer sums, in constant memory, on several threads.

Integer addition has no order, so threads may finish in any order and blocks may have
any size: the result has the same bits. Whatever is held at one time is bounded by the
block size and the number of threads, never by the number of records.

Secret masks, drawn for each record from the operating system's generator.

A mask depends on nothing but fresh random bits: not on the row number, the block or the
other records, since a record that leaves must not change the masks of the others. No seed
exists, and no mask is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from privsketch._base.threads import chunks, in_threads
from privsketch._base.types import Bits, Integers
from privsketch.design.recipe import Design
from privsketch.facts.domain import Domain
from privsketch.features.cells import cell_counts
from privsketch.features.masks import RATE_BITS, Masks
from privsketch.features.moments import moment_sums
from privsketch.features.taxicab import taxicab_sums
from privsketch.kernels.dense import BlockKernel, CompiledKernel, Quantised, ReferenceKernel
from privsketch.kernels.features import FEATURES
from privsketch.kernels.hadamard import StructuredKernel
from privsketch.kernels.quantiser import CompiledQuantiser
from privsketch.ledger.marks import MAX_MARKS
from privsketch.noise.mechanism import saturating_add

MASK_BYTES = 2**23  # of one thread
Records = npt.NDArray[np.floating]
_CHUNK_VALUES, _CHUNK_ROWS = 2**18, 2**14  # 2 MB of float64 for each thread, in few columns less


def exact_sums(
    blocks: Iterable[npt.NDArray[Any]],
    design: Design,
    *,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Return exact sums over blocks (n, dim) of records in their own units.

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
    def max_records(self) -> int:
        """Masks of single features take a byte each, and copies."""
        if self._masks.features in ("uniform", "poisson"):
            return max(16, MASK_BYTES // self._n_features)
        return MASK_BYTES

    def __call__(self, quantised: Quantised) -> tuple[Integers, int]:
        """Return sums over the records kept (n, dim), and how many were."""
        if self._masks.records < 1:
            quantised = quantised[bernoulli(len(quantised), self._masks.records)]
        sums = self._masked(quantised)
        if self._mean:
            sums = np.concatenate([sums, quantised.sum(axis=0, dtype=np.int64)])
        return sums, len(quantised)

    def _masked(self, quantised: Quantised) -> Integers:
        masks, m, n = self._masks, self._n_features, len(quantised)
        if self._block_features is not None and masks.kept is not None:
            is_member = subsets(n, m // self._block, masks.kept // self._block)
            return self._block_features(quantised, is_member.T)
        if masks.features == "uniform" and masks.kept is not None:
            return self._features(quantised, subsets(n, m, masks.kept))
        if masks.features == "poisson" and masks.rate is not None:
            return self._features(quantised, bernoulli(n * m, masks.rate).reshape(n, m))
        return self._features(quantised)


def _feature_sums(design: Design) -> Callable[..., Integers]:
    """Return a function from records, and perhaps masks, to the sums of all features."""
    frequencies, domain = design.frequencies, design.domain
    if design.feature_map == "second-moments":
        return moment_sums
    if design.feature_map == "taxicab":
        return partial(taxicab_sums, layout=design.taxicab)
    if design.cells is not None:
        return partial(cell_counts, shape=design.cells, axes=design.axes)
    offsets = frequencies.offsets(domain)
    if design.feature_map not in FEATURES:  # of another package: no vector code
        matrix = frequencies.matrix(domain)
        return ReferenceKernel(design.mapping, matrix, offsets, frequencies.turn_bits).sums
    if frequencies.law == "structured":
        return StructuredKernel(design.mapping, frequencies.blocks(domain), offsets).sums
    matrix = frequencies.matrix(domain)
    definition = ReferenceKernel(design.mapping, matrix, offsets, frequencies.turn_bits)
    return CompiledKernel(definition).sums


def _block_sums(design: Design) -> Callable[[Quantised, Bits], Integers]:
    """Return a function from records, and which blocks keep them, to the sums of all features."""
    frequencies, domain = design.frequencies, design.domain
    if design.feature_map not in FEATURES:
        masked, size = _feature_sums(design), frequencies.block_size(design.dim)
        return lambda quantised, kept: masked(quantised, np.repeat(kept.T, size, axis=1))
    offsets = frequencies.offsets(domain)
    if frequencies.law != "structured":
        matrix, size = frequencies.matrix(domain), design.dim
        definition = ReferenceKernel(design.mapping, matrix, offsets, frequencies.turn_bits)
        return BlockKernel.of(definition, size).sums
    kernel = StructuredKernel(design.mapping, frequencies.blocks(domain), offsets)

    def sums(quantised: Quantised, kept: Bits) -> Integers:
        parts = [kernel.block_sums(quantised[rows], block) for block, rows in enumerate(kept)]
        return np.concatenate(parts, axis=1).reshape(-1)

    return sums


def add_exact(parts: Iterable[ExactSums]) -> ExactSums:
    """Return the sums of several parts, at least one."""
    return reduce(
        lambda a, b: ExactSums(
            saturating_add(a.sums, b.sums),
            a.n_records + b.n_records,
            a.n_kept + b.n_kept,
            tuple(sorted({*a.marks, *b.marks})[:MAX_MARKS]),
        ),
        parts,
    )


@dataclass(frozen=True)
class ExactSums:
    """Sums of features and number of records, before noise. Private: never leaves the holder.

    `n_kept` of the records were kept by masks; all of them without. `marks` are those that a worker
    noted of its records. `origin` is the distribution of an engine of another package.
    """

    sums: Integers
    n_records: int
    n_kept: int
    marks: tuple[int, ...] = ()
    origin: str | None = None


class Summer(Protocol):
    """What records add to the sums."""

    @property
    def length(self) -> int:
        """Number of sums."""

    @property
    def max_records(self) -> int:
        """How many records may be summed at a time."""

    def __call__(self, quantised: npt.NDArray[np.int16]) -> tuple[Integers, int]:
        """Return sums over quantised records (n, dim), and how many of them were kept."""


def sum_records(
    blocks: Iterable[Records],
    domain: Domain,
    summer: Summer,
    *,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Return exact sums over all blocks (n, dim), each of which is read once.

    `progress` is called with the number of records done since the last call. It is
    for the holder's own eyes: under "add-remove" the number of records is private.
    """
    quantise = CompiledQuantiser(domain, missing_to_center=missing_to_center)
    return sum_quantised(blocks, len(domain.half_widths), summer, quantise, n_threads, progress)


def sum_quantised(
    blocks: Iterable[npt.NDArray[Any]],
    dim: int,
    summer: Summer,
    quantise: Callable[[npt.NDArray[Any]], Quantised],
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Return exact sums over blocks (n, dim), which `quantise` turns into integers."""
    total, n_records, n_kept = np.zeros(summer.length, dtype=np.int64), 0, 0

    def work(chunk: npt.NDArray[Any]) -> tuple[Integers, int, int]:
        return *summer(quantise(chunk)), len(chunk)

    rows = rows_at_once(dim, summer)
    for part, kept, count in in_threads(work, chunks(blocks, rows), n_threads):
        total = saturating_add(total, part)
        n_records, n_kept = n_records + count, n_kept + kept
        if progress is not None:
            progress(count)
    return ExactSums(total, n_records, n_kept)


def rows_at_once(dim: int, summer: Summer) -> int:
    """Return how many records of `dim` columns a thread works on at a time."""
    return min(_CHUNK_ROWS, max(1, _CHUNK_VALUES // dim), summer.max_records)


def bernoulli(count: int, rate: float) -> Bits:
    """Draw `count` bits that are set with probability `rate`, a multiple of 2^-64, exactly.

    64 uniform bits are below rate 2^64. Eight of them decide unless they equal those of the
    threshold, one time in 256; only then are the others drawn.
    """
    if rate >= 1:
        return np.ones(count, dtype=np.bool_)
    threshold = int(rate * 2.0**RATE_BITS)  # exact: the rate is a multiple of 2^-64
    first = threshold >> (RATE_BITS - 8)
    leading = np.frombuffer(os.urandom(count), dtype=np.uint8)
    kept = leading < first
    tied = np.flatnonzero(leading == first)
    rest = np.frombuffer(os.urandom(8 * len(tied)), dtype=np.uint64) >> np.uint64(8)
    kept[tied] = rest < np.uint64(threshold & (2 ** (RATE_BITS - 8) - 1))
    return kept


def subsets(count: int, size: int, kept: int) -> Bits:
    """Draw (count, size) uniform subsets of `kept` of `size` elements, one for each record.

    Floyd's algorithm (Bentley and Floyd, 1987): for j = size - kept, ..., size - 1 a uniform
    number up to j joins, or j itself if it is in already.
    """
    if 2 * kept > size:
        return ~subsets(count, size, size - kept)
    is_member = np.zeros(size * count, dtype=np.bool_)  # element by element, records together
    records = np.arange(count)
    for j in range(size - kept, size):
        position = _below(count, j + 1) * count + records
        position = np.where(is_member[position], j * count + records, position)
        is_member[position] = True
    return is_member.reshape(size, count).T


def _below(count: int, bound: int) -> npt.NDArray[np.int64]:
    """Draw `count` uniform integers below a bound of at most 2^31, exactly (Lemire, 2019).

    The high half of a 32-bit word times the bound, unless the low half is below 2^32 mod bound:
    then the word is drawn again.
    """
    product = _words(count) * bound
    while True:
        again = np.flatnonzero((product & 0xFFFFFFFF) < 2**32 % bound)
        if len(again) == 0:
            return product >> 32
        product[again] = _words(len(again)) * bound


def _words(count: int) -> npt.NDArray[np.int64]:
    return np.frombuffer(os.urandom(4 * count), dtype=np.uint32).astype(np.int64)
