"""Whether a run that ended early cost anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click


@dataclass
class WatchedFiles:
    """Files that note how often they were begun, and whether they were ever read to the end."""

    paths: Sequence[Path]
    n_begun: int = field(default=0, init=False)
    was_read: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[Path]:
        self.n_begun += 1
        yield from self.paths
        self.was_read = True


@contextmanager
def told_what_was_spent(table: WatchedFiles) -> Iterator[None]:
    """Say, whatever ends the work early, whether it cost anything.

    Noise is made of sums over all records: before the files were read to the end once, none was.
    """
    from privsketch.errors import RecordError

    try:
        yield
    except BaseException as error:
        while_reading = isinstance(error, RecordError) and table.n_begun < 2
        if table.was_read and not while_reading:
            click.echo(
                "no model was written, but noisy numbers may have been made: count the budget as "
                "spent",
                err=True,
            )
        elif isinstance(error, KeyboardInterrupt):
            click.echo("nothing was spent or written", err=True)
        raise
