"""Whether a command that failed or was stopped cost anything: one sentence, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from privsketch.cli.stopping import NOTHING, Stop
from privsketch.errors import PrivsketchError

_MAYBE = "nothing was written, but noisy numbers may have been made: count the budget as spent"


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
