"""Threads that work on blocks of records, with few blocks in memory at a time.

Linear algebra of decoders uses one thread: their matrices are small, and several threads would take
longer, on a busy machine many times longer.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, wraps
from threading import Lock
from typing import Any, Protocol, TypeVar, cast

from threadpoolctl import ThreadpoolController

from privsketch._base.errors import ParameterError
from privsketch._base.types import Block


class Piece(Protocol):
    """A unit of work: a block of records, or part of one."""

    @property
    def size(self) -> int:
        """Number of values."""


_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
_Piece = TypeVar("_Piece", bound=Piece)
_Function = TypeVar("_Function", bound=Callable[..., Any])
# Values and pieces that may wait for a thread. A block of any reader (16 MB of float64) keeps
# threads busy while the next one is read; each piece leaves a result.
AHEAD_VALUES, _AHEAD_PIECES = 2**21, 32


def in_threads(
    work: Callable[[_Piece], _Result], blocks: Iterable[_Piece], n_threads: int | None
) -> Iterator[_Result]:
    """Yield results of `work` in the order of the blocks, reading ahead of the threads.

    In memory are two blocks per thread, or a few more if they are small.
    """
    threads = checked_threads(n_threads)
    if threads == 1:
        yield from map(work, blocks)
        return
    waiting: deque[tuple[Future[_Result], int]] = deque()
    n_values = 0
    pool = ThreadPoolExecutor(threads)
    try:
        for block in blocks:
            # Threads run in the caller's context, so that tests replace noise there too.
            waiting.append((pool.submit(copy_context().run, work, block), block.size))
            n_values += block.size
            while len(waiting) >= 2 * threads and (
                n_values >= AHEAD_VALUES or len(waiting) >= _AHEAD_PIECES
            ):
                future, size = waiting.popleft()
                n_values -= size
                yield future.result()
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, drop the rest


@contextmanager
def variable_set(variable: ContextVar[_Value], value: _Value) -> Iterator[None]:
    """Set a context variable inside a with block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def chunks(blocks: Iterable[Block], rows: int) -> Iterator[Block]:
    """Cut blocks into pieces large enough for a thread, and few enough bytes to hold several.

    Pieces of a block have similar sizes: a short last one would cost as much overhead.
    """
    for block in blocks:
        n_pieces = -(-len(block) // rows)
        for piece in range(n_pieces):
            yield block[len(block) * piece // n_pieces : len(block) * (piece + 1) // n_pieces]


def cached_once(function: _Function) -> _Function:
    """Cache a function like `functools.cache`, computing each result in one thread only.

    Otherwise all threads that need a slow result at the same time would compute it.
    """
    lock, cached = Lock(), cache(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        with lock:
            return cached(*arguments)

    return cast("_Function", call)


def checked_threads(n_threads: int | None) -> int:
    """Return the number of threads; one per core if None."""
    if n_threads is None:
        if hasattr(os, "sched_getaffinity"):
            return max(1, len(os.sched_getaffinity(0)))
        return os.cpu_count() or 1
    if isinstance(n_threads, bool) or not isinstance(n_threads, int) or n_threads < 1:
        raise ParameterError("n_threads", n_threads, "expected an integer of at least 1")
    return n_threads


def one_thread() -> Any:
    """Return a context in which matrix products use one thread."""
    return _controller().limit(limits=1)


def one_thread_of_kmeans() -> Any:
    """Return a context in which scikit-learn's k-means uses one thread too.

    Its thread pools can be limited only once they are loaded, which may be later than others.
    """
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds; NumPy's and SciPy's must be loaded by then.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
