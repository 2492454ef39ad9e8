"""The processes of one machine: parts of the records go to a pool, integer sums come back.

Two parts per worker are under way at a time, so memory does not grow with the number of
records. Processes are spawned, not forked: a forked child would inherit the locks of
whatever threads were running.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from privsketch._base.errors import PrivsketchError, RecordError, require_count
from privsketch.sketching.engines.work import Outcome, Progress, Work, part_sums
from privsketch.sketching.sums import ExactSums, add_exact
from privsketch.tables.files import Part
from privsketch.tables.reading import read_parts
from privsketch.tables.table import Table

_DIED = (
    "engine='pool': a worker process ended before its work was done; nothing was released. Scripts "
    "must call sketch below `if __name__ == '__main__':`, because workers import them; if memory "
    "ran out, use fewer workers"
)


@dataclass(frozen=True)
class Pool:
    """Processes of this machine.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; one per core by default.
    """

    n_workers: int | None = None

    def __post_init__(self) -> None:
        if self.n_workers is not None:
            require_count("n_workers", self.n_workers)

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table."""
        total = work.nothing
        n_workers = _cores() if self.n_workers is None else int(self.n_workers)
        parts = read_parts(table, work.selection)
        pool = ProcessPoolExecutor(
            n_workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_alone
        )
        try:
            for outcome in _outcomes(pool, parts, work, 2 * n_workers):
                if isinstance(outcome, PrivsketchError):
                    raise outcome
                total = add_exact([total, outcome])
                if progress is not None:
                    progress(outcome.n_records)
        except BrokenProcessPool:
            raise RecordError(_DIED) from None
        except KeyboardInterrupt:
            _end_workers(pool)  # nobody waits for what they are doing
            raise
        finally:
            with _interrupts_later():  # a second one would leave workers that wait for ever
                pool.shutdown(cancel_futures=True)
        return total


def _outcomes(
    pool: ProcessPoolExecutor, parts: Iterable[Part], work: Work, at_most: int
) -> Iterator[Outcome]:
    """Yield outcomes as they come, with no more than `at_most` parts under way."""
    waiting: set[Future[Outcome]] = set()
    for part in parts:
        with _interrupts_later():  # a new worker inherits that, and its own words stay unsaid
            waiting.add(pool.submit(part_sums, work, part))
        if len(waiting) >= at_most:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def _end_workers(pool: ProcessPoolExecutor) -> None:
    """End all workers at once; `ProcessPoolExecutor.kill_workers` from Python 3.14 on."""
    with _interrupts_later():
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.kill()


def _leave_interrupts_alone() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the first one acts on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold interrupts until the block ends; processes that are started in it never see any.

    An exception half way through the start of a process would leave a child without its parent.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is None:
        yield  # no handler of Python's runs here
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    masked = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else None
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def _cores() -> int:
    """Return cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
