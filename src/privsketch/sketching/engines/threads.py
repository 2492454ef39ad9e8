"""Threads of this process: one block is read at a time, and several are summed at a time."""

from __future__ import annotations

from dataclasses import dataclass

from privsketch.sketching.engines.work import Progress, Work
from privsketch.sketching.sums import ExactSums, exact_sums
from privsketch.tables.reading import names_persons, read_blocks
from privsketch.tables.table import Table


@dataclass(frozen=True)
class Threads:
    """Engine that sums blocks in threads of this process.

    Parameters
    ----------
    n_threads : int, optional
        Number of threads; one per core by default.
    """

    n_threads: int | None = None

    def sums(self, table: Table, work: Work, progress: Progress | None = None) -> ExactSums:
        """Return the exact sums of a table."""
        selection = work.selection
        if not names_persons(selection):
            blocks = read_blocks(table, selection)
        else:  # progress is that of the search for the rows of each person
            blocks = read_blocks(table, selection, n_threads=self.n_threads, progress=progress)
            progress = None
        return exact_sums(
            blocks,
            work.design,
            missing_to_center=selection.to_center,
            n_threads=self.n_threads,
            progress=progress,
        )


def threads_or_default(n_threads: int | None) -> Threads | None:
    """Return an engine of `n_threads` threads; None, for the table's default, if it is None."""
    return None if n_threads is None else Threads(n_threads)
