"""Blocks of records to exact integer sums, in constant memory, on several threads.

Integer addition has no order, so threads may finish in any order and blocks may have
any size: the result has the same bits. Whatever is held at one time is bounded by the
block size and the number of threads, never by the number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privsketch._parallel import chunks, in_threads
from privsketch._typing import Integers
from privsketch.domain import Domain
from privsketch.features.fixedpoint import Quantiser
from privsketch.noise.sums import saturating_add

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
    total = np.zeros(summer.length, dtype=np.int64)
    n_records = n_kept = 0
    quantise = Quantiser(domain, missing_to_center=missing_to_center)

    def work(chunk: Records) -> tuple[Integers, int, int]:
        return *summer(quantise(chunk)), len(chunk)

    rows = min(_CHUNK_ROWS, max(1, _CHUNK_VALUES // len(domain.half_widths)), summer.most_records)
    for part, kept, count in in_threads(work, chunks(blocks, rows), n_threads):
        total = saturating_add(total, part)
        n_records, n_kept = n_records + count, n_kept + kept
        if progress is not None:
            progress(count)
    return ExactSums(total, n_records, n_kept)
