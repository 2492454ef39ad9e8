"""Handling of Ctrl-C and SIGTERM, from the first import of a command until its result is written.

An interrupt raises KeyboardInterrupt. A library that catches all errors may lose it, so it is
recorded as well, and commands check the record before they write. From then on it is too late to
stop: the written result is complete, and the command says so. Only the standard library is
imported here.
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
NOTHING_SPENT = "nothing was spent"
_EARLY_ANSWER = (
    '{"command": null, "error": {"kind": "interrupted", "exit_code": 1, '
    '"message": "interrupted", "spent": "nothing"}}\n'
)


class Stop:
    """Signal handler of a process, whose reaction depends on the phase of the command.

    "early": nothing has begun, and the process exits at once. "working": KeyboardInterrupt is
    raised. "ending": signals are ignored, and the command finishes.
    """

    def __init__(self, phase: Literal["early", "working"] = "working") -> None:
        self.phase: Literal["early", "working", "ending"] = phase
        self.was_signalled = False
        self.spending: Any = None  # `Spending` of a command that can spend

    def __call__(self, number: int, frame: Any) -> None:
        """Handle a signal."""
        if self.phase == "ending":
            return
        self.was_signalled = True
        if self.phase == "early":
            # An import in progress cannot handle an exception.
            os.write(sys.stderr.fileno(), f"Aborted! {NOTHING_SPENT}\n".encode())
            if "--json" in sys.argv:
                os.write(sys.stdout.fileno(), _EARLY_ANSWER.encode())
            os._exit(1)
        raise KeyboardInterrupt

    def raise_if_stopped(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived; its first exception may be lost."""
        if self.was_signalled:
            raise KeyboardInterrupt

    def finish(self) -> None:
        """Ignore signals from now on; raise KeyboardInterrupt if one has already arrived."""
        self.phase = "ending"
        self.raise_if_stopped()

    def install(self) -> dict[signal.Signals, Any]:
        """Install the handler, and return the previous ones by signal. Main thread only.

        Signals that the shell told the job to ignore stay ignored.
        """
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        return {number: signal.signal(number, self) for number in handled}


@contextmanager
def stoppable(stop: Stop | None) -> Iterator[Stop]:
    """Switch the handler of this process to "working", or install one for this block."""
    if stop is not None:
        stop.phase = "working"
        yield stop
        return
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = stop.install()
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _hide_lost_interrupt(unraisable: Any) -> None:
    """Report an exception that Python has to drop, unless it is an interrupt, which is recorded."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def run() -> None:
    """Run the command line: the entry point of the script `privsketch`."""
    stop = Stop("early")
    stop.install()
    sys.unraisablehook = _hide_lost_interrupt
    from privsketch.cli.main import main

    try:
        main(obj=stop)
    finally:
        # At shutdown Python restores the default handlers. A signal would then end the process with
        # a failure exit code, although the result was written.
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _discard_stderr()


def _discard_stderr() -> None:
    """Drop output that cannot be written: Python would try again at exit, and exit with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
