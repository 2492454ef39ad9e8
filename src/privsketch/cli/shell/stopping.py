"""Ctrl-C and SIGTERM: from the first import of a command on, and until its result is written.

An interrupt raises KeyboardInterrupt, which a library that catches all errors may lose; so it is
noted as well, and a command asks before it writes. From then on it is too late to stop: what is
written is complete, and the command says so. Only the standard library is imported here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "nothing was spent"
_EARLY = (
    '{"command": null, "error": {"kind": "interrupted", "exit_code": 1, '
    '"message": "interrupted", "spent": "nothing"}}\n'
)


class Stop:
    """Whether a process was asked to end, and what that means by now.

    "early": nothing was begun, the process ends at once. "working": KeyboardInterrupt.
    "ending": no more than a note; whatever goes on ends by itself.
    """

    def __init__(self, phase: Literal["early", "working"] = "working") -> None:
        self.phase: Literal["early", "working", "ending"] = phase
        self.was_asked = False
        self.spending: Any = None  # of a command that can spend: cli/shell/spending.py

    def __call__(self, number: int, frame: Any) -> None:
        """What happens when a signal arrives."""
        if self.phase == "ending":
            return
        self.was_asked = True
        if self.phase == "early":
            # Half-done imports are in no state to handle an exception.
            os.write(sys.stderr.fileno(), f"Aborted! {NOTHING}\n".encode())
            if "--json" in sys.argv:
                os.write(sys.stdout.fileno(), _EARLY.encode())
            os._exit(1)
        raise KeyboardInterrupt

    def require_going(self) -> None:
        """Raise once the process was asked to end, though the first exception was lost."""
        if self.was_asked:
            raise KeyboardInterrupt

    def finish(self) -> None:
        """The last moment to stop: from here on a result is written, and signals change nothing."""
        self.phase = "ending"
        self.require_going()

    def install(self) -> dict[signal.Signals, Any]:
        """Take the signals; those who took them before, by signal. Main thread only.

        What the shell tells a job to ignore, it ignores.
        """
        taken = [n for n in _SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]
        return {number: signal.signal(number, self) for number in taken}


@contextmanager
def stoppable(stop: Stop | None) -> Iterator[Stop]:
    """The `Stop` of this process at work; one for this block alone if the process has none."""
    if stop is not None:
        stop.phase = "working"
        yield stop
        return
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = stop.install()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _unheard(lost: Any) -> None:
    """Python's words about an exception that it has to drop; an interrupt was noted anyway."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def run() -> None:
    """What the shell starts."""
    stop = Stop("early")
    stop.install()
    sys.unraisablehook = _unheard
    from privsketch.cli.main import main

    try:
        main(obj=stop)
    finally:
        # While Python shuts down it gives signals back to the system, which would end the process
        # after its result was written, with an exit code that denies it.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _give_up_words()


def _give_up_words() -> None:
    """Drop words that nobody takes: Python would try again when it ends, and exit with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
