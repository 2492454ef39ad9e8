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
from privsketch.tables.memory import Selection
from privsketch.tables.parts import FilePart
from privsketch.tables.persons import Key, cut_by_persons, joined_by_persons
from privsketch.tables.reading import file_pieces, part_blocks, part_persons

Outcome = ExactSums | PrivsketchError
_Computed = TypeVar("_Computed")


@dataclass(frozen=True)
class Work:
    """What is done with every part. Small and public: it travels with each task."""

    design: Design
    chosen: Selection
    missing_to_center: bool
    version: str = __version__

    @property
    def max_records(self) -> int:
        """How many records of a person count."""
        return 1 if self.chosen.schema is None else self.chosen.schema.max_records

    def on(self, chosen: Selection) -> Work:
        """The same work on parts with other columns."""
        return replace(self, chosen=chosen)


def part_sums(work: Work, part: Any) -> Outcome:
    """Exact sums of one part, on one thread; or our error, which quotes no value."""

    def sums() -> ExactSums:
        noter = work.chosen.noter
        if noter is None:
            return _sums(work, part_blocks(part, work.chosen))
        own = noter.fresh()
        found = _sums(work, part_blocks(part, replace(work.chosen, noter=own)))
        return replace(found, marks=own.marks.values)

    return quietly(work.version, sums)


def part_persons_cut(work: Work, key: Key, n_parts: int, part: Any) -> Any:
    """Rows of one part that could count, cut by persons; or our error."""

    def cut() -> Any:
        pieces = part_persons(part, work.chosen)
        return cut_by_persons(pieces, work.chosen.dim, work.max_records, key, n_parts)

    return quietly(work.version, cut)


def persons_sums(work: Work, place: int, parts: list[Any]) -> Outcome:
    """Exact sums over the persons of one cut of all parts; or our error."""
    for part in parts:
        if isinstance(part, PrivsketchError):
            return part
    return quietly(
        work.version, lambda: _sums(work, joined_by_persons(parts, place, work.max_records))
    )


def _sums(work: Work, blocks: Iterable[Block]) -> ExactSums:
    return exact_sums(blocks, work.design, missing_to_center=work.missing_to_center, n_threads=1)


def quietly(version: str, compute: Callable[[], _Computed]) -> _Computed | PrivsketchError:
    """What is computed, or our error without the traceback, whose frames hold records.

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
    """The sum of at least one outcome; the first error if there is one."""
    parts: list[ExactSums] = []
    for outcome in outcomes:
        if isinstance(outcome, PrivsketchError):
            return outcome
        parts.append(outcome)
    return add_exact(parts)


def files_alone(data: Any, chosen: Selection, engine: str, tables: str) -> list[FilePart]:
    """Stretches of files, for workers that can read them; `tables` are what else they can."""
    parts = []
    for part in file_pieces(data, chosen):
        if not isinstance(part, FilePart):
            raise RecordError(
                f"`engine={engine!r}` cannot read records from {type(data).__name__}: expected "
                f"{tables} or paths of files; `engine='pool'` sends blocks to processes"
            )
        parts.append(part)
    return parts


def foreign_error(where: str, error: BaseException) -> RecordError:
    """Our error for somebody else's, whose message may quote a record."""
    return RecordError(
        f"{where} failed with {type(error).__name__}; nothing was released. `engine='threads'` "
        "on a table in memory or a file shows more"
    )
