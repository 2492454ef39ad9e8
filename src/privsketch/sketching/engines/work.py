"""What a worker does with its part of the records, on whatever machine it runs.

A worker never raises. An error is a result like any other, because what others make of an
exception is not ours to decide: schedulers log and keep it with its traceback and its
task, and the message of a foreign one may quote a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from privsketch import __version__
from privsketch._base.errors import PrivsketchError, RecordError
from privsketch._base.types import Block
from privsketch.design.recipe import Design
from privsketch.sketching.sums import ExactSums, add_exact, exact_sums
from privsketch.tables.files import FilePart
from privsketch.tables.memory import Selection
from privsketch.tables.persons import Key, cut_by_persons, join_by_persons
from privsketch.tables.reading import file_pieces, part_persons, read_blocks
from privsketch.tables.table import Table

Outcome = ExactSums | PrivsketchError
Progress = Callable[[int], None]
_Computed = TypeVar("_Computed")


@dataclass(frozen=True)
class Work:
    """What to do with every part of a table. Small and public: it travels with each task.

    Attributes
    ----------
    design : Design
    selection : Selection
        What is read for a record.
    version : str
        Version of this library on the machine that asks.
    """

    design: Design
    selection: Selection
    version: str = __version__

    @property
    def nothing(self) -> ExactSums:
        """Exact sums of no records, to which those of parts are added."""
        return exact_sums((), self.design, n_threads=1)

    @property
    def max_records(self) -> int:
        """Number of records of a person that count."""
        return 1 if self.selection.schema is None else self.selection.schema.max_records


def part_sums(work: Work, part: Any) -> Outcome:
    """Return exact sums of one part, on one thread; or our error, which quotes no value."""

    def sums() -> ExactSums:
        noter = work.selection.noter
        if noter is None:
            return block_sums(work, read_blocks(part, work.selection))
        own = noter.fresh()
        exact = block_sums(work, read_blocks(part, replace(work.selection, noter=own)))
        return replace(exact, marks=own.marks.values)

    return quietly(work.version, sums)


def part_persons_cut(work: Work, key: Key, n_parts: int, part: Any) -> Any:
    """Return rows of one part that could count, cut by persons; or our error."""

    def cut() -> Any:
        pieces = part_persons(part, work.selection)
        return cut_by_persons(pieces, work.selection.dim, work.max_records, key, n_parts)

    return quietly(work.version, cut)


def persons_sums(work: Work, cut: int, parts: list[Any]) -> Outcome:
    """Return exact sums over the persons of one cut of all parts; or our error."""
    for part in parts:
        if isinstance(part, PrivsketchError):
            return part
    return quietly(
        work.version, lambda: block_sums(work, join_by_persons(parts, cut, work.max_records))
    )


def block_sums(work: Work, blocks: Iterable[Block]) -> ExactSums:
    """Return exact sums over blocks (n, dim) of records, on one thread."""
    to_center = work.selection.to_center
    return exact_sums(blocks, work.design, missing_to_center=to_center, n_threads=1)


def quietly(version: str, compute: Callable[[], _Computed]) -> _Computed | PrivsketchError:
    """Return what is computed, or our error without the traceback, whose frames hold records.

    `version` is that of the driver.
    """
    if version != __version__:
        return RecordError(
            f"a worker has privsketch {__version__}, the driver {version}: install the same "
            "version on all machines"
        )
    try:
        return compute()
    except PrivsketchError as error:
        return error.without_causes()
    except Exception as error:
        return foreign_error("a worker", error)


def add_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the sum of at least one outcome; the first error if there is one."""
    parts: list[ExactSums] = []
    for outcome in outcomes:
        if isinstance(outcome, PrivsketchError):
            return outcome
        parts.append(outcome)
    return add_exact(parts)


def files_alone(table: Table, selection: Selection, engine: str, tables: str) -> list[FilePart]:
    """Return stretches of files for workers that can read them, beside `tables`."""
    parts = []
    for part in file_pieces(table, selection):
        if not isinstance(part, FilePart):
            kind = type(table.data).__name__
            raise RecordError(
                f"`engine={engine!r}` cannot read records from {kind}: expected "
                f"{tables} or paths of files; `engine='pool'` sends blocks to processes"
            )
        parts.append(part)
    return parts


def foreign_error(where: str, error: BaseException) -> RecordError:
    """Return our error for somebody else's, whose message may quote a record."""
    return RecordError(
        f"{where} failed with {type(error).__name__}; nothing was released. `engine='threads'` "
        "on a table in memory or a file shows more"
    )
