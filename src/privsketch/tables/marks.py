"""Marks of the records that are read, for the ledger of their holder.

A mark is a keyed hash of one row of numbers, as a schema encodes it or as the table has it. It
rests on single precision, so that a file of few digits and a frame of many agree, and on the
encoding: rows that were encoded by another schema have nothing in common. The hash is a sum of
products with secret odd numbers, mixed at its end: two rows have the same one with a chance below
2^-32, and neither their order nor their blocks matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.formats import canonical_json
from privsketch._base.types import Block
from privsketch.facts.schema import Schema
from privsketch.ledger.marks import MAX_MARKS, Marks

_ROWS = 2**13  # whose words stay in the cache
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class Noter:
    """Keeps the smallest marks of the rows that it sees; safe to call from several threads.

    Parameters
    ----------
    key : bytes
        Of the ledger, which keeps it secret.
    encoding : bytes
        Of the rows: `encoding_of` their schema.
    """

    def __init__(self, key: bytes, encoding: bytes) -> None:
        self._key, self._encoding = key, encoding
        self._lock = Lock()
        self._values = np.empty(0, dtype=np.uint64)
        self._factors = np.empty(0, dtype=np.uint64)

    def __reduce__(self) -> tuple[Any, ...]:
        return Noter, (self._key, self._encoding)

    def fresh(self) -> Noter:
        """Return a noter like it that has seen nothing."""
        return Noter(self._key, self._encoding)

    def see(self, block: Block) -> None:
        """Note the rows of a block (n, dim)."""
        for first in range(0, len(block), _ROWS):
            self._keep(self._hashes(np.asarray(block[first : first + _ROWS])))

    def passing(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the blocks after noting them."""
        for block in blocks:
            self.see(block)
            yield block

    def add(self, values: Iterable[int]) -> None:
        """Add marks that another noter has found."""
        self._keep(np.fromiter(values, dtype=np.uint64))

    @property
    def marks(self) -> Marks:
        """Of all rows so far."""
        return Marks(tuple(map(int, self._values)), self._encoding)

    def _keep(self, hashes: npt.NDArray[np.uint64]) -> None:
        with self._lock:
            if len(self._values) == MAX_MARKS:
                hashes = hashes[hashes < self._values[-1]]
            if len(hashes):
                both = np.concatenate([self._values, hashes])
                self._values = np.unique(both)[:MAX_MARKS]

    def _hashes(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        with np.errstate(over="ignore", invalid="ignore"):
            short = rows.astype(np.float32) + np.float32(0)  # zero has one spelling
        short[np.isnan(short)] = np.nan  # and so has what is missing
        words = short.view(np.uint32).astype(np.uint64)
        state = np.full(len(rows), self._word(-1), dtype=np.uint64)
        for column, factor in zip(words.T, self._multipliers(words.shape[1]), strict=True):
            state += column * factor
        for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
            state = (state ^ (state >> shift)) * factor
        return state ^ (state >> _SHIFTS[2])

    def _multipliers(self, dim: int) -> npt.NDArray[np.uint64]:
        if len(self._factors) != dim:
            words = [self._word(index) | 1 for index in range(dim)]
            self._factors = np.array(words, dtype=np.uint64)
        return self._factors

    def _word(self, index: int) -> int:
        """Return a secret number for a column."""
        content = self._encoding + index.to_bytes(8, "big", signed=True)
        return int.from_bytes(
            hashlib.blake2b(content, key=self._key, digest_size=8).digest(), "big"
        )


def noter_of(key: bytes | None, schema: Schema | None) -> Noter | None:
    """Return the noter of a table's rows; None without a key."""
    return None if key is None else Noter(key, encoding_of(schema))


def encoding_of(schema: Schema | None) -> bytes:
    """Return eight bytes that tell encodings apart; whose rows they are is no part of one."""
    if schema is None:
        return bytes(8)
    kinds = [column.to_json() for column in schema.columns]
    return hashlib.sha256(canonical_json(kinds)).digest()[:8]
