"""Progress bars on the holder's terminal (stderr); silent without a terminal.

The number of records may be private: nothing of it is written to a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from privsketch.tables.reading import count_records

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from privsketch.tables.table import Table

_MAX_BARS = 6  # a quarter of a terminal of 24 lines


@contextmanager
def record_bar(table: Table, text: str = "sketching") -> Iterator[Callable[[int], None]]:
    """Show a bar over records; the total comes from the files' metadata, if they have any."""
    with _bar(text, count_records(table)) as (progress, task):
        yield lambda done: progress.update(task, advance=done)


@contextmanager
def share_bar(text: str) -> Iterator[Callable[[float], None]]:
    """Show a bar over the completed share of the work, 0 to 1."""
    with _bar(text, 1.0) as (progress, task):
        yield lambda share: progress.update(task, completed=share)


@contextmanager
def pass_bars(table: Table) -> Iterator[Callable[[str, int], None]]:
    """Show a bar for every pass over the records, with the arguments of a run's `progress`.

    The total comes from the files' metadata, if they have any. Only the last few passes are shown.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    total = count_records(table)
    console = _console()
    tasks: list[TaskID] = []
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(separator=" of "),
        TextColumn("records"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        n_passes = 0

        def advance(name: str, n_records: int) -> None:
            nonlocal n_passes
            if n_records == 0 or not tasks:
                n_passes += 1
                tasks.append(progress.add_task(f"pass {n_passes:>2}  {name}", total=total))
            if len(tasks) > _MAX_BARS:
                progress.remove_task(tasks.pop(0))
            progress.update(tasks[-1], advance=n_records)

        yield advance


@contextmanager
def _bar(text: str, total: float | None) -> Iterator[tuple[Progress, TaskID]]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console()
    with Progress(
        TextColumn(text),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield progress, progress.add_task(text, total=total)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner while work of unknown length goes on."""
    console = _console()
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


def _console() -> Console:
    """Return a console on standard error.

    Variables such as FORCE_COLOR allow colours in a file, but do not make it a terminal.
    """
    from rich.console import Console

    return Console(stderr=True, force_terminal=sys.stderr.isatty())
