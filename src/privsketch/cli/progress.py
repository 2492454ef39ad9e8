"""Progress on the holder's own terminal (stderr); silent when it is not a terminal.

The number of records may be private: nothing shown here is written to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from privsketch.readers import count_records


@contextmanager
def record_bar(paths: Sequence[Path], text: str = "sketching") -> Iterator[Callable[[int], None]]:
    """A bar over records; the total is read from the files' metadata where they have any."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn(text),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(text, total=count_records(list(paths)))
        yield lambda done: progress.update(task, advance=done)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Something that moves while work without a known length goes on."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield
