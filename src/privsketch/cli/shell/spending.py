"""Tracking of whether a command that failed or was stopped has spent any budget.

Every command that can spend works inside `track_spending`. Whatever ends it early, the command
group then prints one sentence (shell/failure.py): "nothing was spent" or "... the budget counts as
spent".
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
from privsketch.cli.shell.stopping import NOTHING_SPENT, Stop

_COUNTS_AS_SPENT = "the budget counts as spent"


@dataclass
class Spending:
    """Progress of a command towards spending its budget.

    A command that releases once, at its end, spends when its result is written. An `adaptive`
    command, which uses its own noisy numbers, spends with the first of them. With a ledger, the
    budget counts as spent as soon as an entry is reserved.
    """

    stop: Stop
    adaptive: bool = False
    was_reserved: bool = False
    was_drawn: bool = False
    has_begun: bool = False
    written: Path | None = None

    def mark_reserved(self) -> None:
        """Record that a ledger has an entry, which counts as spent even if nothing is written.

        It is called as soon as the entry is made, before any noise is drawn.
        """
        self.was_reserved = True

    def mark_noise_drawn(self) -> None:
        """Record that noise is about to be drawn."""
        self.was_drawn = True

    def mark_begun(self) -> None:
        """Record that the result is about to be written where others may read an incomplete one."""
        self.has_begun = True

    def mark_written(self, output: Path) -> None:
        """Record that the result was written."""
        self.written = output

    @property
    def is_spent(self) -> bool:
        """Whether the budget counts as spent when the command ends here."""
        was_used = self.adaptive and self.was_drawn
        return self.written is not None or self.has_begun or self.was_reserved or was_used

    def sentence(self) -> str:
        """Return the sentence about spending if the command ends here."""
        if self.written is not None:
            return f"{self.written} was written before that: {_COUNTS_AS_SPENT}"
        if self.has_begun:
            return f"part of the result may have been written: {_COUNTS_AS_SPENT}"
        if self.was_reserved:
            return f"nothing was written, but a ledger may have an entry for it: {_COUNTS_AS_SPENT}"
        if self.is_spent:
            return f"nothing was written, but noisy numbers may have been made: {_COUNTS_AS_SPENT}"
        return NOTHING_SPENT


@contextmanager
def echo_warnings() -> Iterator[None]:
    """Print warnings of privsketch on standard error, for the holder of the data.

    They may be about the records, so they are not part of answers, which may be passed on.
    """
    from privsketch._base.errors import PrivsketchWarning

    with warnings.catch_warnings():
        show_foreign = warnings.showwarning

        def show(message: Any, category: type[Warning], *arguments: Any, **options: Any) -> None:
            if issubclass(category, PrivsketchWarning):
                click.echo(readable(f"careful     {message}"), err=True)
            else:
                show_foreign(message, category, *arguments, **options)

        warnings.simplefilter("always", PrivsketchWarning)
        warnings.showwarning = show
        yield


def end_dry_run(ledger: Any, cost: Callable[[], Any], facts: Callable[[], dict[str, Any]]) -> None:
    """Answer a dry run; raise a BudgetError if the ledger would refuse the release."""
    from privsketch._base.errors import BudgetError
    from privsketch.ledger.entry import named_data_set

    data_set, allowed, refusal = named_data_set(ledger), None, ""
    if data_set is not None:
        book, name = data_set
        quote = book.quote(name, cost())
        allowed = quote.allowed
        if allowed:
            note(f"data set {name!r} of the ledger: {quote.words}", None)
        refusal = f"data set {name!r}: {quote.words.removeprefix('refused: ')}"
    if wants_json():
        answer(dry_run=True, allowed=allowed, **facts())
    if allowed is False:
        raise BudgetError(refusal)


def say_remaining(ledger: Any, output: Path | None) -> None:
    """Note how much of the limit of a data set remains after a release."""
    from privsketch.ledger.entry import named_data_set

    data_set = named_data_set(ledger)
    if data_set is not None:
        book, name = data_set
        (entry,) = (item for item in book.datasets() if item.name == name)
        text = entry.limit.left_text(entry.spent)
        note(f"data set {name!r} of the ledger has {text} left", output)


@contextmanager
def track_spending(*, adaptive: bool = False) -> Iterator[Spending]:
    """Track whether the work in this block has spent anything, whatever ends it early."""
    stop: Stop = click.get_current_context().find_root().obj
    stop.spending = spending = Spending(stop, adaptive)
    try:
        from privsketch.ledger.entry import watch_entries
        from privsketch.noise.mechanism import watch_noise

        with (
            echo_warnings(),
            watch_entries(spending.mark_reserved),
            watch_noise(spending.mark_noise_drawn),
        ):
            yield spending
    except BaseException:
        stop.phase = "ending"  # let the sentence be printed
        raise
