"""Blocks of records to exact integer sums, in constant memory, on several threads.

Integer addition has no order, so threads may finish in any order and blocks may have
any size: the result has the same bits. Whatever is held at one time is bounded by the
block size and the number of threads, never by the number of records.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privsketch.domain import Domain
from privsketch.errors import ParameterError
from privsketch.features.fixedpoint import Quantiser
from privsketch.noise.sums import saturating_add

Integers = npt.NDArray[np.int64]
Records = npt.NDArray[np.floating]
_CHUNK_VALUES, _CHUNK_ROWS = 2**18, 2**13


@dataclass(frozen=True)
class ExactSums:
    """Sums of features and number of records, before noise. Private: never leaves the holder.

    `n_kept` of the records were kept by masks; all of them without.
    """

    sums: Integers
    n_records: int
    n_kept: int


class Summer(Protocol):
    """What records add to the sums."""

    @property
    def length(self) -> int:
        """Number of sums."""

    @property
    def most_records(self) -> int:
        """How many records may be summed at a time."""

    def __call__(self, quantised: npt.NDArray[np.int16]) -> tuple[Integers, int]:
        """Sums over quantised records (n, dim), and how many of them were kept."""


def sum_records(
    blocks: Iterable[Records],
    domain: Domain,
    summer: Summer,
    *,
    missing_to_center: bool = False,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExactSums:
    """Exact sums over all blocks (n, dim); reads each block once.

    `progress` is called with the number of records done since the last call. It is
    for the holder's own eyes: under "add-remove" the number of records is private.
    """
    threads = _checked_threads(n_threads)
    total = np.zeros(summer.length, dtype=np.int64)
    n_records = n_kept = 0
    quantise = Quantiser(domain, missing_to_center=missing_to_center)

    def work(chunk: Records) -> _Part:
        return *summer(quantise(chunk)), len(chunk)

    rows = min(_CHUNK_ROWS, max(1, _CHUNK_VALUES // len(domain.half_widths)), summer.most_records)
    for part, kept, count in _in_threads(work, _chunks(blocks, rows), threads):
        total = saturating_add(total, part)
        n_records, n_kept = n_records + count, n_kept + kept
        if progress is not None:
            progress(count)
    return ExactSums(total, n_records, n_kept)


_Part = tuple[Integers, int, int]


def _in_threads(
    work: Callable[[Records], _Part], chunks: Iterable[Records], threads: int
) -> Iterator[_Part]:
    """Results of `work`, with at most two chunks per thread alive at a time."""
    if threads == 1:
        yield from map(work, chunks)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Part]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _chunks(blocks: Iterable[Records], rows: int) -> Iterator[Records]:
    """Pieces that are worth a thread's while and small enough to hold several of."""
    for block in blocks:
        for first in range(0, len(block), rows):
            yield block[first : first + rows]


def _checked_threads(n_threads: int | None) -> int:
    if n_threads is None:
        return max(
            1,
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1,
        )
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise ParameterError(f"n_threads={n_threads!r}: expected an integer of at least 1")
    return n_threads
