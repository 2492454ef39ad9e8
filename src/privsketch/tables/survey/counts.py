"""What a look at a table keeps of it while it is read: counts, in bounded memory.

Values are counted by the first 20 bits of their floats, which leave eight bits of a fraction: the
same for every table, and good for quartiles. Rows are counted by persons exactly, but for hashes of
64 bits that two of them would share; chunks of hashes go to an unnamed temporary file if they are
many (`tables/spill`), as those of a release do.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from privsketch._base.types import Floats, Integers
from privsketch.tables.encoding import Persons
from privsketch.tables.persons import Key, person_hashes
from privsketch.tables.spill import Spill, Words
from privsketch.tables.untyped.conversion import Bits

_DROPPED_BITS = np.uint64(44)
_CHUNK_ROWS = 2**20  # that are sorted together
_PART_ROWS = 2**22  # that are put together
_BUCKET_BITS = 12
_Kind = TypeVar("_Kind", bound=np.generic)


class ValueCounts:
    """How often values occur, by the beginning of their bits."""

    def __init__(self) -> None:
        self._keys: Words = np.empty(0, dtype=np.uint64)
        self._counts: Integers = np.empty(0, dtype=np.int64)

    def add(self, values: Floats) -> None:
        """Count finite values (n,)."""
        found = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64) >> _DROPPED_BITS
        keys, counts = np.unique(found, return_counts=True)
        self._keys, self._counts = _added(self._keys, self._counts, keys, counts)

    def sorted(self) -> tuple[Floats, Integers]:
        """Return values (n,) in their order, cut towards zero, and how often they occur."""
        values = (self._keys << _DROPPED_BITS).view(np.float64)
        order = np.argsort(values)
        return values[order], self._counts[order]

    def quartiles(self) -> tuple[float, float, float] | None:
        """Return the three quartiles; None without a value."""
        values, counts = self.sorted()
        if not len(values):
            return None
        first, middle, last = (quantile(values, counts, part) for part in (0.25, 0.5, 0.75))
        return first, middle, last


def quantile(values: npt.NDArray[_Kind], counts: Integers, part: float) -> float:
    """Return the value that a part of all lies at or below; values are sorted."""
    so_far = np.cumsum(counts)
    return float(values[min(int(np.searchsorted(so_far, part * so_far[-1])), len(values) - 1)])


def _added(
    keys: npt.NDArray[_Kind],
    counts: Integers,
    more_keys: npt.NDArray[_Kind],
    more_counts: Integers,
) -> tuple[npt.NDArray[_Kind], Integers]:
    """Return the sum of two counts of the same things."""
    both, index = np.unique(np.concatenate([keys, more_keys]), return_inverse=True)
    total = np.zeros(len(both), dtype=np.int64)
    np.add.at(total, index, np.concatenate([counts, more_counts]))
    return both, total


class PersonCounts:
    """How many rows persons have, and how many of these would be kept."""

    def __init__(self) -> None:
        self._key, self._spill = Key(), Spill()
        self._ends: list[npt.NDArray[np.int64]] = []
        self._waiting: list[tuple[Words, Bits]] = []
        self._n_waiting = 0

    def add(self, persons: Persons, kept: Bits) -> None:
        """Count rows: whose they are, and whether they would be kept."""
        self._waiting.append((person_hashes(persons, self._key), kept))
        self._n_waiting += len(kept)
        if self._n_waiting >= _CHUNK_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._n_waiting:
            return
        hashes = np.concatenate([one for one, _ in self._waiting])
        kept = np.concatenate([one for _, one in self._waiting])
        self._waiting, self._n_waiting = [], 0
        ones = np.ones(len(hashes), dtype=np.uint64)
        words = _by_person(np.stack([hashes, ones, kept.astype(np.uint64)], axis=1))
        buckets = (words[:, 0] >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
        self._ends.append(np.searchsorted(buckets, np.arange(2**_BUCKET_BITS + 1)))
        self._spill.append(words)

    def numbers(self) -> tuple[tuple[Integers, Integers], tuple[Integers, Integers]]:
        """Return numbers of rows and how many persons have as many; also of kept rows."""
        self._flush()
        none: Integers = np.empty(0, dtype=np.int64)
        found, kept = (none, none), (none, none)
        ends = np.sum(self._ends, axis=0) if self._ends else np.zeros(2**_BUCKET_BITS + 1, int)
        first = 0
        while first < 2**_BUCKET_BITS and self._ends:
            last = int(np.searchsorted(ends, ends[first] + _PART_ROWS, side="right")) - 1
            last = max(last, first + 1)
            pieces = [
                self._spill.stretch(number, 24 * int(each[first]), 24 * int(each[last]))
                for number, each in enumerate(self._ends)
            ]
            words = np.concatenate(pieces).view(np.uint64).reshape(-1, 3)
            rows = _by_person(words)[:, 1:].astype(np.int64)
            found = _added(*found, *np.unique(rows[:, 0], return_counts=True))
            kept = _added(*kept, *np.unique(rows[:, 1], return_counts=True))
            first = last
        self._spill.close()
        return found, kept


def _by_person(words: Words) -> Words:
    """Return rows of hash, rows and rows kept: one for each hash, in their order."""
    hashes, index = np.unique(words[:, 0], return_inverse=True)
    table = np.zeros((len(hashes), 3), dtype=np.uint64)
    table[:, 0] = hashes
    for column in (1, 2):
        np.add.at(table[:, column], index, words[:, column])
    return table
