"""One record of each person, or a few, whatever the order and the number of their rows.

The record with the smallest keyed hash of its encoded values counts. The key is drawn for each run
and told nobody; which of a person's rows is kept depends on that person's rows and the key alone.
So adding, removing or replacing a person changes one record of what follows, for any key.

Rows come in any order. Chunks of them are sorted by a keyed hash of their persons, reduced to what
could still count, and kept (`tables/spill`); then stretches of all chunks with the same range of
hashes, small enough for the memory, are put together and reduced for good. Persons are compared by
what they are, not by a hash that two of them could share: the hash of a whole number has no
collisions, and where persons are texts, texts are compared.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import RecordError
from privsketch._base.threads import in_threads
from privsketch._base.types import Block
from privsketch.tables.encoding import Persons
from privsketch.tables.spill import Spill, StoredRows, Words

CHUNK_BYTES = 2**25  # of rows that are sorted together
PART_BYTES = 2**26  # of rows that are put together
BUCKET_BITS = 12  # ranges of hashes that stretches are made of
_HASH_BYTES = 64
_HASH_ROWS = 2**13  # whose words stay in the cache while they are mixed
# Multipliers and shifts of a well-mixing bijection of 64 bits (Stafford, 2011, variant 13).
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Key:
    """What hashes of one run depend on, drawn from the operating system."""

    words: tuple[int, ...] = field(
        default_factory=lambda: tuple(secrets.randbits(64) for _ in range(4)), repr=False
    )

    def word(self, index: int) -> np.uint64:
        """Return one of the words."""
        return np.uint64(self.words[index])


Piece = tuple[Block, Persons]


class RowSelection:
    """Which rows of which persons count, from pieces of a table in any order."""

    def __init__(
        self,
        dim: int,
        max_records: int = 1,
        *,
        key: Key | None = None,
        memory: int | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self._dim, self._most, self._key = dim, max_records, key or Key()
        self._rows, self._texts = Spill(memory), Spill(memory)
        self._part_bytes = PART_BYTES if part_bytes is None else part_bytes
        self._ends: list[npt.NDArray[np.int64]] = []  # of buckets in each chunk, in rows
        self._is_text: bool | None = None

    def sort_chunk(self, pieces: Iterable[Piece]) -> _Chunk | None:
        """Return the rows that could count, sorted by person; safe in several threads."""
        pieces = [piece for piece in pieces if len(piece[0])]
        if not pieces:
            return None
        kinds = {isinstance(persons, np.ndarray) for _, persons in pieces}
        if len(kinds) > 1:
            raise mixed_persons_error()
        is_text = not kinds.pop()
        persons = _joined([persons for _, persons in pieces])
        n_rows = sum(len(block) for block, _ in pieces)
        words = np.empty((n_rows, self._dim + 2), dtype=np.uint64)
        first = 0
        for block, _ in pieces:
            # Zero has one spelling.
            np.add(block, 0.0, out=words[first : first + len(block), 2:].view(np.float64))
            first += len(block)
        hashes = words[:, 0]
        hashes[:] = person_hashes(persons, self._key)
        words[:, 1] = row_hashes(words[:, 2:], self._key)
        return _reduced(words, persons if is_text else None, self._most)

    def append(self, chunk: _Chunk | None) -> None:
        """Keep a chunk."""
        if chunk is None:
            return
        is_text = chunk.texts is not None
        if self._is_text not in (None, is_text):
            raise mixed_persons_error()
        self._is_text = is_text
        buckets = (chunk.words[:, 0] >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
        ends = np.searchsorted(buckets, np.arange(2**BUCKET_BITS + 1))
        self._ends.append(ends)
        self._rows.append(chunk.words)
        if chunk.texts is not None:
            data, starts = _bytes_of(chunk.texts)
            self._texts.append(starts.astype(np.int64))
            self._texts.append(data if len(data) else np.zeros(1, np.uint8))

    def append_rows(self, words: Words, texts: Any) -> None:
        """Keep what could count of rows of several chunks, (n, dim + 2), in any order."""
        if len(words):
            self.append(_reduced(words, texts, self._most))

    def blocks(self, n_threads: int | None = None) -> Iterator[Block]:
        """Yield the records that count, (n, dim) each; once."""
        if not self._ends:
            return
        ranges = self._ranges()
        for words in in_threads(self._selected, ranges, n_threads):
            if len(words):
                yield np.ascontiguousarray(words[:, 2:]).view(np.float64)
        self._rows.close()
        self._texts.close()

    def _ranges(self) -> Iterator[_Range]:
        """Yield buckets that are put together, as many as fit."""
        ends = np.sum(self._ends, axis=0)
        most = max(1, self._part_bytes // (8 * (self._dim + 2)))
        first = 0
        while first < 2**BUCKET_BITS:
            last = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
            last = max(last, first + 1)
            yield _Range(first, min(last, 2**BUCKET_BITS), int(ends[last] - ends[first]))
            first = last

    def _selected(self, part: _Range) -> Words:
        """Return the rows of some buckets that count."""
        width = self._dim + 2
        pieces, texts = [], []
        for number, ends in enumerate(self._ends):
            start, stop = int(ends[part.first]), int(ends[part.last])
            if start == stop:
                continue
            data = self._rows.stretch(number, 8 * width * start, 8 * width * stop)
            pieces.append(data.view(np.uint64).reshape(-1, width))
            if self._is_text:
                texts.append(self._text(number, start, stop))
        if not pieces:
            return np.empty((0, width), dtype=np.uint64)
        words = np.concatenate(pieces)
        return _reduced(words, _joined(texts) if texts else None, self._most).words

    def _text(self, number: int, start: int, stop: int) -> Any:
        """Return the persons of some rows of a chunk."""
        import pyarrow as pa

        places = self._texts.stretch(2 * number, 8 * start, 8 * (stop + 1)).view(np.int64)
        data = self._texts.stretch(2 * number + 1, int(places[0]), int(places[-1]))
        offsets = np.ascontiguousarray(places - places[0])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.large_binary(), stop - start, buffers)


def mixed_persons_error() -> RecordError:
    """Return the error for persons that are numbers in one part and text in another."""
    return RecordError(
        "table: persons are whole numbers in one part and text in another; the same person would "
        "be two of them. Give that column one type"
    )


@dataclass(frozen=True)
class _Chunk:
    """Rows in the order of their persons' hashes: hash, hash of the row, values; and persons."""

    words: Words
    texts: Any = None

    @property
    def size(self) -> int:
        return int(self.words.size)


@dataclass(frozen=True)
class _Range:
    """Buckets, and the number of their rows."""

    first: int
    last: int
    size: int


def _reduced(words: Words, texts: Any, most: int) -> _Chunk:
    """Return the rows that could count: of each person the `most` with the smallest hashes."""
    hashes, rows = words[:, 0], words[:, 1]
    if texts is None:
        order = np.argsort(hashes)
        groups: npt.NDArray[Any] = hashes[order]
    else:
        # Codes of the texts themselves: hashes only bring the same ones together.
        codes = np.asarray(texts.dictionary_encode().indices).astype(np.int64)
        order = np.lexsort((codes, hashes))
        groups = codes[order]
    new = np.empty(len(order), dtype=np.bool_)
    new[0], new[1:] = True, groups[1:] != groups[:-1]
    starts = np.flatnonzero(new)
    if most == 1:
        of_group = np.cumsum(new) - 1
        sorted_rows = rows[order]
        least = np.minimum.reduceat(sorted_rows, starts)
        smallest = np.flatnonzero(sorted_rows == least[of_group])
        # Equal rows of a person are one; others with the same hash are told apart by their values.
        group = of_group[smallest]
        first = np.empty(len(smallest), dtype=np.bool_)
        first[0], first[1:] = True, group[1:] != group[:-1]
        if _differ(words[order[smallest]], ~first):
            values = words[order[smallest], 2:]
            smallest = smallest[np.lexsort((*values.T, group))]
        kept = order[smallest[first]]
    else:
        of_group = np.cumsum(new) - 1
        # Within groups, which stay where they are, by the hash of the row.
        again = np.lexsort((rows[order], of_group))
        same = np.zeros(len(order), dtype=np.bool_)
        same[1:] = (np.diff(rows[order][again]) == 0) & ~new[1:]
        if _differ(words[order][again], same):
            again = np.lexsort((*words[order, 2:].T, rows[order], of_group))
        rank = np.arange(len(order)) - starts[of_group]
        kept = order[again][rank < most]
    kept_words = np.take(words, kept, axis=0)
    return _Chunk(kept_words, None if texts is None else texts.take(_indices(kept)))


def _differ(words: Words, same: npt.NDArray[np.bool_]) -> bool:
    """Return whether a row that is marked has other values than the one before it."""
    after = np.flatnonzero(same)
    return bool(len(after)) and bool((words[after, 2:] != words[after - 1, 2:]).any())


def _indices(places: npt.NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return pa.array(places)


def _joined(persons: list[Persons]) -> Persons:
    import pyarrow as pa

    if len(persons) == 1:
        return persons[0]
    if isinstance(persons[0], np.ndarray):
        return np.concatenate(persons)
    return pa.concat_arrays(persons)


def _mixed_words(words: Words, addend: np.uint64) -> Words:
    """Mix all bits of 64-bit words by a bijection."""
    mixed = words + addend
    mixed ^= mixed >> _SHIFTS[0]
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


def row_hashes(values: Words, key: Key) -> Words:
    """Return keyed hashes (n,) of rows of words (n, dim)."""
    hashes = np.empty(len(values), dtype=np.uint64)
    for first in range(0, len(values), _HASH_ROWS):
        part = values[first : first + _HASH_ROWS]
        state = np.full(len(part), key.word(2), dtype=np.uint64)
        for column in part.T:
            state = _mixed_words(state ^ column, key.word(3))
        hashes[first : first + _HASH_ROWS] = state
    return hashes


def _bytes_of(texts: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return bytes of an Arrow array of texts, and where they begin and end, (n + 1,)."""
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return whole[places[0] : places[-1]], places - places[0]


def person_hashes(persons: Persons, key: Key) -> Words:
    """Return keyed hashes (n,) of persons; those of whole numbers have no collisions."""
    if isinstance(persons, np.ndarray):
        return _mixed_words(persons.view(np.uint64) ^ key.word(0), key.word(1))
    return text_hashes(persons, key)


def text_hashes(texts: Any, key: Key) -> Words:
    """Return keyed hashes (n,) of the bytes of an Arrow array of texts, eight bytes at a time."""
    data, places = _bytes_of(texts)
    lengths = np.diff(places)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    state = _mixed_words(lengths.view(np.uint64) ^ key.word(0), key.word(1))
    # Of a long text its beginning and its end: one of them must not cost what all others do.
    n_bytes, longest = np.minimum(lengths, 2 * _HASH_BYTES), int(lengths.max(initial=0))
    for step in range(0, min(longest, 2 * _HASH_BYTES), 8):
        left = n_bytes - step
        here = np.flatnonzero(left > 0)
        skipped = 0 if step < _HASH_BYTES else (lengths - n_bytes)[here]
        word = np.zeros(len(here), dtype=np.uint64)
        for byte in range(8):
            inside = left[here] > byte
            at = places[:-1][here] + skipped + step + byte
            value = np.where(inside, padded[np.minimum(at, len(data))], 0).astype(np.uint64)
            word |= value << np.uint64(8 * byte)
        state[here] = _mixed_words(state[here] ^ word, key.word(1))
    return state


def selected_blocks(
    batches: Iterable[Any],
    encode: Callable[[Any], Piece],
    dim: int,
    max_records: int,
    *,
    n_threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    key: Key | None = None,
) -> Iterator[Block]:
    """Yield records (n, dim) that count, from batches of a table in any order.

    Batches are encoded, hashed and sorted in threads; `progress` counts their rows.
    """
    rows = RowSelection(dim, max_records, key=key)

    def work(chunk: Any) -> tuple[_Chunk | None, int]:
        return rows.sort_chunk(map(encode, chunk.batches)), chunk.n_rows

    for chunk, count in in_threads(work, _gathered(batches, dim), n_threads):
        rows.append(chunk)
        if progress is not None:
            progress(count)
    yield from rows.blocks(n_threads)


def sort_chunks(pieces: Iterable[Piece], dim: int, max_records: int, key: Key) -> Iterator[_Chunk]:
    """Yield the rows that could count, some megabytes at a time, sorted by person."""
    rows = RowSelection(dim, max_records, key=key)
    for some in _gathered(pieces, dim):
        chunk = rows.sort_chunk(some.batches)
        if chunk is not None:
            yield chunk


@dataclass(frozen=True)
class Cut:
    """Parts of some rows, and whether their persons are texts; None if there are no rows."""

    parts: tuple[_Chunk | None, ...]
    is_text: bool | None


def cut_by_persons(
    pieces: Iterable[Piece], dim: int, max_records: int, key: Key, n_parts: int
) -> Cut:
    """Cut rows that could count into parts of which each has all rows of its persons.

    The same persons are in the same part wherever this is done, as long as the key is the same.
    """
    chunk = RowSelection(dim, max_records, key=key).sort_chunk(pieces)
    if chunk is None:
        return Cut((None,) * n_parts, None)
    edges = np.array([(2**64 * j) // n_parts for j in range(1, n_parts)], dtype=np.uint64)
    places = [0, *np.searchsorted(chunk.words[:, 0], edges).tolist(), len(chunk.words)]
    chunks: list[_Chunk | None] = []
    for start, stop in itertools.pairwise(places):
        texts = None if chunk.texts is None else chunk.texts.slice(start, stop - start)
        chunks.append(_Chunk(chunk.words[start:stop], texts) if stop > start else None)
    return Cut(tuple(chunks), chunk.texts is not None)


def join_by_persons(cuts: Sequence[Cut], index: int, max_records: int) -> Iterator[Block]:
    """Yield records that count, from the same part of all pieces."""
    if len({cut.is_text for cut in cuts} - {None}) > 1:  # whichever part it shows in
        raise mixed_persons_error()
    given = [chunk for cut in cuts if (chunk := cut.parts[index]) is not None]
    if not given:
        return
    texts = [chunk.texts for chunk in given if chunk.texts is not None]
    words = np.concatenate([chunk.words for chunk in given])
    selection = _reduced(words, _joined(texts) if texts else None, max_records)
    yield np.ascontiguousarray(selection.words[:, 2:]).view(np.float64)


@dataclass(frozen=True)
class _Batches:
    """Batches that are sorted together."""

    batches: tuple[Any, ...]
    n_rows: int
    size: int


def _gathered(batches: Iterable[Any], dim: int) -> Iterator[_Batches]:
    waiting: list[Any] = []
    n_rows, most = 0, max(1, CHUNK_BYTES // (8 * (dim + 2)))
    for batch in batches:
        waiting.append(batch)
        n_rows += len(batch[0]) if isinstance(batch, tuple) else batch.num_rows
        if n_rows >= most:
            yield _Batches(tuple(waiting), n_rows, n_rows * (dim + 2))
            waiting, n_rows = [], 0
    if waiting:
        yield _Batches(tuple(waiting), n_rows, n_rows * (dim + 2))


def store_rows(blocks: Iterable[Block], dim: int) -> StoredRows:
    """Return blocks that were made once, to be read several times."""
    kept = StoredRows(dim)
    for block in blocks:
        kept.append(np.asarray(block, dtype=np.float64))
    return kept
