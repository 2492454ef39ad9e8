"""Work in processes, as many items at a time as there are processes.

Processes are spawned: threads of compiled code do not survive a fork. None outlives its parent,
however that ends: each listens to a pipe that closes with it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from privsketch._base.errors import ParameterError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_processes(
    work: Callable[[_Item], _Result], items: Sequence[_Item], n_jobs: int
) -> Generator[tuple[int, _Result], None, None]:
    """Places of items and their results, as they come to their end.

    After an error nothing new begins; what is under way is waited for, and then the error is
    raised. An interrupt ends the processes at once.
    """
    context = get_context("spawn")
    heard, open_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n_jobs, context, initializer=_begin, initargs=(heard,))
    rest = iter(range(len(items)))
    waiting: dict[Future[_Result], int] = {}
    failed: Exception | None = None
    try:
        while True:
            while failed is None and len(waiting) < n_jobs:
                place = next(rest, None)
                if place is None:
                    break
                waiting[pool.submit(work, items[place])] = place
            if not waiting:
                break
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                place = waiting.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    failed = failed or error
                else:
                    yield place, result
    except BrokenProcessPool as error:  # of submit
        failed = failed or error
    except BaseException:
        open_end.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        open_end.close()
        heard.close()
    if isinstance(failed, BrokenProcessPool):
        raise ParameterError(
            f"n_jobs={n_jobs}: a process ended before its work was done; if memory ran out, use "
            "fewer. The same command goes on with what is left"
        ) from None
    if failed is not None:
        raise failed


def _begin(heard: Connection) -> None:
    """First thing in a process: an interrupt is for the parent, which closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(heard,), daemon=True).start()


def _end_with_parent(heard: Connection) -> None:
    with suppress(EOFError, OSError):
        heard.recv_bytes()
    os._exit(1)
