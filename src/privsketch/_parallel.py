"""Work on blocks of records in several threads, with few of them in memory at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from privsketch._typing import Block
from privsketch.errors import ParameterError

_Result = TypeVar("_Result")


def in_threads(
    work: Callable[[Block], _Result], blocks: Iterable[Block], n_threads: int | None
) -> Iterator[_Result]:
    """Results of `work` in the order of the blocks, at most two blocks per thread alive."""
    threads = checked_threads(n_threads)
    if threads == 1:
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        for block in blocks:
            # Threads see the caller's context: what replaces noise for a test does so there too.
            waiting.append(pool.submit(copy_context().run, work, block))
            if len(waiting) >= 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def chunks(blocks: Iterable[Block], rows: int) -> Iterator[Block]:
    """Pieces that are worth a thread's while and small enough to hold several of."""
    for block in blocks:
        for first in range(0, len(block), rows):
            yield block[first : first + rows]


def checked_threads(n_threads: int | None) -> int:
    """The number of threads; one per core if None."""
    if n_threads is None:
        if hasattr(os, "sched_getaffinity"):
            return max(1, len(os.sched_getaffinity(0)))
        return os.cpu_count() or 1
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise ParameterError(f"n_threads={n_threads!r}: expected an integer of at least 1")
    return n_threads
