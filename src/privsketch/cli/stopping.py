"""Ctrl-C and SIGTERM: from the first import of a command on, and until its result is written.

An interrupt raises KeyboardInterrupt, which a library that catches all errors may lose; so it is
noted as well, and a command asks before it writes. From then on it is too late to stop: what is
written is complete, and the command says so. Only the standard library is imported here.

Whether a command that failed or was stopped cost anything: one sentence, on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from privsketch.errors import PrivsketchError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "nothing was spent or written"
_MAYBE = "nothing was written, but noisy numbers may have been made: count the budget as spent"


class Stop:
    """Whether a process was asked to end, and what that means by now.

    "early": nothing was begun, the process ends at once. "working": KeyboardInterrupt.
    "ending": no more than a note; whatever goes on ends by itself.
    """

    def __init__(self, phase: Literal["early", "working"] = "working") -> None:
        self.phase: Literal["early", "working", "ending"] = phase
        self.was_asked = False
        self.told = False  # whether the command said what it cost

    def __call__(self, number: int, frame: Any) -> None:
        """What happens when a signal arrives."""
        if self.phase == "ending":
            return
        self.was_asked = True
        if self.phase == "early":
            # Half-done imports are in no state to handle an exception.
            os.write(sys.stderr.fileno(), f"Aborted! {NOTHING}\n".encode())
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


@dataclass
class Spending:
    """What a command did so far.

    A command that releases once, at its end, spends when its result is written. One that goes on
    from noisy numbers of its own (`adaptive`) spends with the first of them.
    """

    stop: Stop
    adaptive: bool = False
    was_drawn: bool = False
    was_begun: bool = False
    written: Path | None = None

    def noise_drawn(self) -> None:
        """Called before noise is drawn."""
        self.was_drawn = True

    def begin(self) -> None:
        """Called before the result goes where others may read it half written."""
        self.was_begun = True

    def wrote(self, output: Path) -> None:
        """The result stands under its name."""
        self.written = output

    def sentence(self) -> str:
        """What there is to say when the command ends here."""
        if self.written is not None:
            return f"{self.written} was written before that: the budget is spent"
        if self.was_begun:
            return "part of the result may have been written: count the budget as spent"
        return _MAYBE if self.adaptive and self.was_drawn else NOTHING


@contextmanager
def reported_spending(*, adaptive: bool = False) -> Iterator[Spending]:
    """Say, whatever ends the work early, whether it cost anything.

    Errors of ours carry it as a note, so that there is one message.
    """
    spending = Spending(click.get_current_context().find_root().obj, adaptive)
    try:
        from privsketch.noise.mechanism import watched_noise

        with watched_noise(spending.noise_drawn):
            yield spending
    except BaseException as error:
        spending.stop.phase = "ending"  # the sentence is said in any case
        if isinstance(error, PrivsketchError | click.ClickException) and not (
            spending.stop.was_asked
        ):
            error.add_note(spending.sentence())
        else:
            click.echo(spending.sentence(), err=True)
            spending.stop.told = True
        raise
