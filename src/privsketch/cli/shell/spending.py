"""Whether a command that failed or was stopped cost anything.

Every command that can spend works inside `reported_spending`; whatever ends it early, the group
then says one sentence (shell/failure.py): "nothing was spent" or "... the budget counts as spent".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from privsketch.cli.shell.answer import answer, readable, wants_json
from privsketch.cli.shell.output import note
from privsketch.cli.shell.stopping import NOTHING, Stop

_COUNTS = "the budget counts as spent"


@dataclass
class Spending:
    """What a command did so far.

    A command that releases once, at its end, spends when its result is written. One that goes on
    from noisy numbers of its own (`adaptive`) spends with the first of them. Where a ledger is
    kept, its entry is what counts: from `reserved` on, whatever follows.
    """

    stop: Stop
    adaptive: bool = False
    was_reserved: bool = False
    was_drawn: bool = False
    was_begun: bool = False
    written: Path | None = None

    def reserved(self) -> None:
        """A ledger has an entry for this release: it counts as spent, even if nothing is written.

        Called as soon as the entry stands, before any noise is drawn.
        """
        self.was_reserved = True

    def noise_drawn(self) -> None:
        """Called before noise is drawn."""
        self.was_drawn = True

    def begin(self) -> None:
        """Called before the result goes where others may read it half written."""
        self.was_begun = True

    def wrote(self, output: Path) -> None:
        """The result stands under its name."""
        self.written = output

    @property
    def counts(self) -> bool:
        """Whether the budget counts as spent when the command ends here."""
        was_told = self.adaptive and self.was_drawn
        return self.written is not None or self.was_begun or self.was_reserved or was_told

    def sentence(self) -> str:
        """What there is to say when the command ends here."""
        if self.written is not None:
            return f"{self.written} was written before that: {_COUNTS}"
        if self.was_begun:
            return f"part of the result may have been written: {_COUNTS}"
        if self.was_reserved:
            return f"nothing was written, but a ledger may have an entry for it: {_COUNTS}"
        if self.counts:
            return f"nothing was written, but noisy numbers may have been made: {_COUNTS}"
        return NOTHING


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Warnings of ours as lines on stderr, for the holder: they may be about the records.

    Answers for machines, which may be handed on, do not have them.
    """
    from privsketch._base.errors import PrivsketchWarning

    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, PrivsketchWarning):
                click.echo(readable(f"careful     {message}"), err=True)
            else:
                others(message, category, *place, **more)

        warnings.simplefilter("always", PrivsketchWarning)
        warnings.showwarning = show
        yield


def end_dry_run(ledger: Any, cost: Callable[[], Any], facts: Callable[[], dict[str, Any]]) -> None:
    """The answer of a release that is not made, and what a ledger says to it; a refusal is one."""
    from privsketch._base.errors import BudgetError
    from privsketch.ledger.entry import named

    found, allowed, told = named(ledger), None, ""
    if found is not None:
        book, name = found
        quote = book.quote(name, cost())
        allowed, told = quote.allowed, f"data set {name!r}"
        if allowed:
            note(f"{told} of the ledger: {quote.words}", None)
        told = f"{told}: {quote.words.removeprefix('refused: ')}"
    if wants_json():
        answer(dry_run=True, allowed=allowed, **facts())
    if allowed is False:
        raise BudgetError(told)


def say_left(ledger: Any, output: Path | None) -> None:
    """What the limit of a data set has left after a release."""
    from privsketch.ledger.entry import named

    found = named(ledger)
    if found is not None:
        book, name = found
        (standing,) = (one for one in book.datasets() if one.name == name)
        left = standing.limit.left_text(standing.spent)
        note(f"data set {name!r} of the ledger has {left} left", output)


@contextmanager
def reported_spending(*, adaptive: bool = False) -> Iterator[Spending]:
    """Let it be known, whatever ends the work early, whether it cost anything."""
    stop: Stop = click.get_current_context().find_root().obj
    stop.spending = spending = Spending(stop, adaptive)
    try:
        from privsketch.ledger.entry import watched_entries
        from privsketch.noise.mechanism import watched_noise

        with (
            shown_warnings(),
            watched_entries(spending.reserved),
            watched_noise(spending.noise_drawn),
        ):
            yield spending
    except BaseException:
        stop.phase = "ending"  # the sentence is said in any case
        raise
