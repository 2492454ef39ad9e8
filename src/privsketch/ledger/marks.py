"""Recognition of records by the smallest keyed hashes of their rows.

A *mark* is a 64-bit hash of one row under a secret key of the ledger. The 256 smallest marks of
its distinct rows identify a set of records, whatever their order and their file. Below the smaller
one of two largest marks both sets are complete, and hashes fall there at random: the common share
of these marks estimates that of all rows. Sets of fewer rows are complete and compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from privsketch._base.errors import FileError, ParameterError

MAX_MARKS = 256
_BYTES = 8
_MIN_COMPARED_MARKS = 8  # with fewer, the standard error of a share is above 0.1
Kind = Literal["same", "grown", "part", "mostly", "some"]


@dataclass(frozen=True)
class Marks:
    """The 256 smallest marks of a set of rows, or all of fewer.

    Parameters
    ----------
    values : iterable of int
        Keyed hashes, 0 to 2^64 - 1; only the smallest 256 distinct ones are stored.
    encoding : bytes
        Eight bytes that identify the encoding of the rows; marks are compared within one encoding.
    """

    values: tuple[int, ...]
    encoding: bytes = bytes(8)

    def __post_init__(self) -> None:
        smallest = tuple(sorted({int(value) for value in self.values})[:MAX_MARKS])
        if smallest and not (smallest[0] >= 0 and smallest[-1] < 2**64):
            raise ParameterError("marks", "", "expected integers of 64 bits")
        object.__setattr__(self, "values", smallest)

    @property
    def is_whole(self) -> bool:
        """Whether there is a mark for every distinct row."""
        return len(self.values) < MAX_MARKS

    def to_bytes(self) -> bytes:
        """Return the marks as the ledger stores them."""
        values = (value.to_bytes(_BYTES, "big") for value in self.values)
        return self.encoding + b"".join(values)

    @classmethod
    def from_bytes(cls, data: bytes) -> Marks:
        """Return the marks of `to_bytes`."""
        if not 0 < len(data) <= _BYTES * (MAX_MARKS + 1) or len(data) % _BYTES:
            raise FileError("marks of impossible length; the ledger is damaged")
        starts = range(_BYTES, len(data), _BYTES)
        values = (int.from_bytes(data[start : start + _BYTES], "big") for start in starts)
        return cls(tuple(values), data[:_BYTES])


@dataclass(frozen=True)
class Match:
    """The overlap of a set of records with those of a data set.

    Attributes
    ----------
    data_set : str
        Name of the data set in the ledger.
    share : float
        Estimated share of the new rows that are among the old ones.
    error : float
        Standard error of `share`; 0 if all rows were compared.
    old_share : float
        Estimated share of the old rows that are among the new ones.
    kind : {"same", "grown", "part", "mostly", "some"}
        No mark differs; all old rows are among the new ones; all new rows are among the old ones;
        at least half of either; less.
    """

    data_set: str
    share: float
    error: float
    old_share: float
    kind: Kind

    @property
    def words(self) -> str:
        """The overlap in words."""
        about = f"{100 * self.share:.0f} % (give or take {100 * self.error:.0f})"
        if not self.error:
            about = f"{100 * self.share:.0f} %"
        name = repr(self.data_set)
        return {
            "same": f"these are the records of data set {name}",
            "grown": f"all records of data set {name} are among these: about {about} of these",
            "part": f"these are part of the records of data set {name}: about "
            f"{100 * self.old_share:.0f} % of them",
            "mostly": f"about {about} of these records are in data set {name} already",
            "some": f"some of these records, about {about}, are in data set {name} already",
        }[self.kind]


def compared(new: Marks, old: Marks, data_set: str) -> Match | None:
    """Compare two sets of records; None without common marks, or for different encodings."""
    if new.encoding != old.encoding:
        return None
    ends = [marks.values[-1] for marks in (new, old) if not marks.is_whole]
    # The largest mark of a truncated set is no random draw: it is where the set was cut.
    end = min(ends, default=2**64)
    new_values = {value for value in new.values if value < end}
    old_values = {value for value in old.values if value < end}
    common = len(new_values & old_values)
    if not common:
        return None
    share, old_share = common / len(new_values), common / len(old_values)
    error = _standard_error(common, len(new_values)) if ends else 0.0
    kind: Kind = "some"
    if not ends or min(len(new_values), len(old_values)) >= _MIN_COMPARED_MARKS:
        if common == len(new_values) == len(old_values):
            kind = "same"
        elif common == len(old_values):
            kind = "grown"
        elif common == len(new_values):
            kind = "part"
        elif 2 * common >= min(len(new_values), len(old_values)):
            kind = "mostly"
    return Match(data_set, share, error, old_share, kind)


def _standard_error(common: int, n_marks: int) -> float:
    """Return the standard error of a share, with two more hits and two more misses assumed."""
    share = (common + 2) / (n_marks + 4)
    return math.sqrt(share * (1 - share) / (n_marks + 4))


_ORDER: tuple[Kind, ...] = ("same", "grown", "part", "mostly", "some")


def recognised(new: Marks, candidates: Iterable[tuple[str, Marks]]) -> list[Match]:
    """Return the best match of every data set with common records, the closest first."""
    best: dict[str, Match] = {}
    for data_set, old in candidates:
        match = compared(new, old, data_set)
        if match is not None and (
            data_set not in best or _closeness(match) < _closeness(best[data_set])
        ):
            best[data_set] = match
    return sorted(best.values(), key=_closeness)


def _closeness(match: Match) -> tuple[int, float]:
    return _ORDER.index(match.kind), -match.share


def matches_elsewhere(
    name: str, marks: Marks, stored: Iterable[tuple[str, bytes]]
) -> tuple[tuple[Match, ...], bool]:
    """Return other data sets with the same records, and whether none of this one's was recognised.

    `stored` are the marks of all data sets, as the ledger keeps them.
    """
    candidates = readable_marks(stored)
    matches = recognised(marks, candidates)
    elsewhere = tuple(m for m in matches if m.kind != "some" and m.data_set != name)
    is_comparable = (name, marks.encoding) in [(set_, old.encoding) for set_, old in candidates]
    is_unlike = bool(is_comparable and marks.values) and all(m.data_set != name for m in matches)
    return elsewhere, is_unlike


def readable_marks(stored: Iterable[tuple[str, bytes]]) -> list[tuple[str, Marks]]:
    """Decode marks; damaged ones are skipped, so that no release fails because of them.

    `Ledger.check` reports those.
    """
    readable = []
    for name, data in stored:
        with suppress(FileError):
            readable.append((name, Marks.from_bytes(data)))
    return readable
