"""Selection of one record per person, or of a few, from rows in any order and number.

The record with the smallest keyed hash of its encoded values is selected. The key is drawn for each
run and never disclosed. Which of a person's rows are selected depends only on that person's rows
and the key, so adding, removing or replacing a person changes no record of anybody else.

Chunks of rows are sorted by a keyed hash of the person, reduced to rows that may still be selected,
and stored (`tables/spill`). Then the rows of all chunks with the same range of hashes, small enough
for the memory, are merged and reduced again. Two persons never share an identity through a hash:
the hash of a whole number has no collisions, and texts are compared themselves.
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
PART_BYTES = 2**26  # of rows that are merged together
BUCKET_BITS = 12  # leading bits of a hash, which number its bucket
_HASH_BYTES = 64
_HASH_ROWS = 2**13  # rows hashed together, few enough for the cache
# Multipliers and shifts of a well-mixing bijection of 64 bits (Stafford, 2011, variant 13).
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Key:
    """Secret key of the hashes of one run, drawn from the operating system."""

    words: tuple[int, ...] = field(
        default_factory=lambda: tuple(secrets.randbits(64) for _ in range(4)), repr=False
    )

    def word(self, index: int) -> np.uint64:
        """Return a word of the key."""
        return np.uint64(self.words[index])


Piece = tuple[Block, Persons]


class RowSelection:
    """Selection of rows of each person, from pieces of a table in any order."""

    def __init__(
        self,
        dim: int,
        max_records: int = 1,
        *,
        key: Key | None = None,
        memory: int | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self._dim, self._max_records, self._key = dim, max_records, key or Key()
        self._rows, self._texts = Spill(memory), Spill(memory)
        self._part_bytes = PART_BYTES if part_bytes is None else part_bytes
        self._ends: list[npt.NDArray[np.int64]] = []  # of buckets in each chunk, in rows
        self._is_text: bool | None = None

    def sort_chunk(self, pieces: Iterable[Piece]) -> _Chunk | None:
        """Return the rows that may be selected, sorted by person; thread-safe."""
        pieces = [piece for piece in pieces if len(piece[0])]
        if not pieces:
            return None
        kinds = {isinstance(persons, np.ndarray) for _, persons in pieces}
        if len(kinds) > 1:
            raise mixed_persons_error()
        is_text = not kinds.pop()
        persons = _concatenate([persons for _, persons in pieces])
        n_rows = sum(len(block) for block, _ in pieces)
        words = np.empty((n_rows, self._dim + 2), dtype=np.uint64)
        first = 0
        for block, _ in pieces:
            # Adding 0.0 turns -0.0 into 0.0, so that equal values have equal bits.
            np.add(block, 0.0, out=words[first : first + len(block), 2:].view(np.float64))
            first += len(block)
        hashes = words[:, 0]
        hashes[:] = person_hashes(persons, self._key)
        words[:, 1] = row_hashes(words[:, 2:], self._key)
        return _reduce(words, persons if is_text else None, self._max_records)

    def append(self, chunk: _Chunk | None) -> None:
        """Store a chunk."""
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
        """Store the rows that may be selected, of rows (n, dim + 2) in any order."""
        if len(words):
            self.append(_reduce(words, texts, self._max_records))

    def blocks(self, n_threads: int | None = None) -> Iterator[Block]:
        """Yield blocks (n, dim) of the selected records. Can be called once."""
        if not self._ends:
            return
        ranges = self._ranges()
        for words in in_threads(self._select, ranges, n_threads):
            if len(words):
                yield np.ascontiguousarray(words[:, 2:]).view(np.float64)
        self._rows.close()
        self._texts.close()

    def _ranges(self) -> Iterator[_Range]:
        """Yield ranges of buckets to merge, each as large as fits."""
        ends = np.sum(self._ends, axis=0)
        max_rows = max(1, self._part_bytes // (8 * (self._dim + 2)))
        first = 0
        while first < 2**BUCKET_BITS:
            last = int(np.searchsorted(ends, ends[first] + max_rows, side="right")) - 1
            last = max(last, first + 1)
            yield _Range(first, min(last, 2**BUCKET_BITS), int(ends[last] - ends[first]))
            first = last

    def _select(self, part: _Range) -> Words:
        """Return the selected rows of a range of buckets."""
        width = self._dim + 2
        pieces, texts = [], []
        for number, ends in enumerate(self._ends):
            start, stop = int(ends[part.first]), int(ends[part.last])
            if start == stop:
                continue
            data = self._rows.stretch(number, 8 * width * start, 8 * width * stop)
            pieces.append(data.view(np.uint64).reshape(-1, width))
            if self._is_text:
                texts.append(self._person_texts(number, start, stop))
        if not pieces:
            return np.empty((0, width), dtype=np.uint64)
        words = np.concatenate(pieces)
        return _reduce(words, _concatenate(texts) if texts else None, self._max_records).words

    def _person_texts(self, number: int, start: int, stop: int) -> Any:
        """Return the persons of some rows of a chunk."""
        import pyarrow as pa

        ends = self._texts.stretch(2 * number, 8 * start, 8 * (stop + 1)).view(np.int64)
        data = self._texts.stretch(2 * number + 1, int(ends[0]), int(ends[-1]))
        offsets = np.ascontiguousarray(ends - ends[0])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.large_binary(), stop - start, buffers)


def mixed_persons_error() -> RecordError:
    """Return the error for persons that are numbers in one part and text in another."""
    return RecordError(
        "table: persons are whole numbers in one part and text in another; the same person would "
        "count as two. Give that column one type"
    )


@dataclass(frozen=True)
class _Chunk:
    """Rows sorted by person: hash of the person, hash of the row, values; and texts of persons."""

    words: Words
    texts: Any = None

    @property
    def size(self) -> int:
        return int(self.words.size)


@dataclass(frozen=True)
class _Range:
    """Range of buckets, and its number of rows."""

    first: int
    last: int
    size: int


def _reduce(words: Words, texts: Any, max_records: int) -> _Chunk:
    """Return, for each person, the `max_records` rows with the smallest hashes."""
    hashes, rows = words[:, 0], words[:, 1]
    if texts is None:
        order = np.argsort(hashes)
        groups: npt.NDArray[Any] = hashes[order]
    else:
        # Equal hashes do not prove equal texts, so texts are compared by codes.
        codes = np.asarray(texts.dictionary_encode().indices).astype(np.int64)
        order = np.lexsort((codes, hashes))
        groups = codes[order]
    new = np.empty(len(order), dtype=np.bool_)
    new[0], new[1:] = True, groups[1:] != groups[:-1]
    starts = np.flatnonzero(new)
    if max_records == 1:
        of_group = np.cumsum(new) - 1
        sorted_rows = rows[order]
        least = np.minimum.reduceat(sorted_rows, starts)
        smallest = np.flatnonzero(sorted_rows == least[of_group])
        # Equal rows of a person count once; other rows of equal hash are ordered by their values.
        group = of_group[smallest]
        first = np.empty(len(smallest), dtype=np.bool_)
        first[0], first[1:] = True, group[1:] != group[:-1]
        if _differ(words[order[smallest]], ~first):
            values = words[order[smallest], 2:]
            smallest = smallest[np.lexsort((*values.T, group))]
        selected = order[smallest[first]]
    else:
        of_group = np.cumsum(new) - 1
        # Sorts by the hash of the row within each group.
        by_row = np.lexsort((rows[order], of_group))
        same = np.zeros(len(order), dtype=np.bool_)
        same[1:] = (np.diff(rows[order][by_row]) == 0) & ~new[1:]
        if _differ(words[order][by_row], same):
            by_row = np.lexsort((*words[order, 2:].T, rows[order], of_group))
        rank = np.arange(len(order)) - starts[of_group]
        selected = order[by_row][rank < max_records]
    selected_words = np.take(words, selected, axis=0)
    return _Chunk(selected_words, None if texts is None else texts.take(_arrow_indices(selected)))


def _differ(words: Words, same: npt.NDArray[np.bool_]) -> bool:
    """Return whether a marked row has other values than the row before it."""
    after = np.flatnonzero(same)
    return bool(len(after)) and bool((words[after, 2:] != words[after - 1, 2:]).any())


def _arrow_indices(rows: npt.NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def _concatenate(persons: list[Persons]) -> Persons:
    import pyarrow as pa

    if len(persons) == 1:
        return persons[0]
    if isinstance(persons[0], np.ndarray):
        return np.concatenate(persons)
    return pa.concat_arrays(persons)


def _mix(words: Words, addend: np.uint64) -> Words:
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
            state = _mix(state ^ column, key.word(3))
        hashes[first : first + _HASH_ROWS] = state
    return hashes


def _bytes_of(texts: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of an Arrow array of texts, and the (n + 1,) offsets of the texts."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return content[ends[0] : ends[-1]], ends - ends[0]


def person_hashes(persons: Persons, key: Key) -> Words:
    """Return keyed hashes (n,) of persons; those of whole numbers have no collisions."""
    if isinstance(persons, np.ndarray):
        return _mix(persons.view(np.uint64) ^ key.word(0), key.word(1))
    return text_hashes(persons, key)


def text_hashes(texts: Any, key: Key) -> Words:
    """Return keyed hashes (n,) of the bytes of an Arrow array of texts, eight bytes at a time."""
    data, offsets = _bytes_of(texts)
    lengths = np.diff(offsets)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    state = _mix(lengths.view(np.uint64) ^ key.word(0), key.word(1))
    # Long texts are hashed by their beginning and end, so that a single one costs little.
    n_bytes, longest = np.minimum(lengths, 2 * _HASH_BYTES), int(lengths.max(initial=0))
    for step in range(0, min(longest, 2 * _HASH_BYTES), 8):
        remaining = n_bytes - step
        active = np.flatnonzero(remaining > 0)
        skipped = 0 if step < _HASH_BYTES else (lengths - n_bytes)[active]
        word = np.zeros(len(active), dtype=np.uint64)
        for byte in range(8):
            inside = remaining[active] > byte
            position = offsets[:-1][active] + skipped + step + byte
            value = np.where(inside, padded[np.minimum(position, len(data))], 0).astype(np.uint64)
            word |= value << np.uint64(8 * byte)
        state[active] = _mix(state[active] ^ word, key.word(1))
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
    """Yield blocks (n, dim) of selected records, from batches of a table in any order.

    Batches are encoded, hashed and sorted in threads; `progress` counts their rows.
    """
    rows = RowSelection(dim, max_records, key=key)

    def work(chunk: Any) -> tuple[_Chunk | None, int]:
        return rows.sort_chunk(map(encode, chunk.batches)), chunk.n_rows

    for chunk, count in in_threads(work, _group_batches(batches, dim), n_threads):
        rows.append(chunk)
        if progress is not None:
            progress(count)
    yield from rows.blocks(n_threads)


def sort_chunks(pieces: Iterable[Piece], dim: int, max_records: int, key: Key) -> Iterator[_Chunk]:
    """Yield the rows that may be selected, some megabytes at a time, sorted by person."""
    rows = RowSelection(dim, max_records, key=key)
    for group in _group_batches(pieces, dim):
        chunk = rows.sort_chunk(group.batches)
        if chunk is not None:
            yield chunk


@dataclass(frozen=True)
class Cut:
    """Parts of rows, and whether their persons are texts; None if there are no rows."""

    parts: tuple[_Chunk | None, ...]
    is_text: bool | None


def cut_by_persons(
    pieces: Iterable[Piece], dim: int, max_records: int, key: Key, n_parts: int
) -> Cut:
    """Cut rows that may be selected into parts, each with all rows of its persons.

    With the same key, a person is in the same part on every machine.
    """
    chunk = RowSelection(dim, max_records, key=key).sort_chunk(pieces)
    if chunk is None:
        return Cut((None,) * n_parts, None)
    edges = np.array([(2**64 * j) // n_parts for j in range(1, n_parts)], dtype=np.uint64)
    cuts = [0, *np.searchsorted(chunk.words[:, 0], edges).tolist(), len(chunk.words)]
    chunks: list[_Chunk | None] = []
    for start, stop in itertools.pairwise(cuts):
        texts = None if chunk.texts is None else chunk.texts.slice(start, stop - start)
        chunks.append(_Chunk(chunk.words[start:stop], texts) if stop > start else None)
    return Cut(tuple(chunks), chunk.texts is not None)


def join_by_persons(cuts: Sequence[Cut], index: int, max_records: int) -> Iterator[Block]:
    """Yield the selected records of the same part of all cuts."""
    if len({cut.is_text for cut in cuts} - {None}) > 1:  # checked over all parts
        raise mixed_persons_error()
    chunks = [chunk for cut in cuts if (chunk := cut.parts[index]) is not None]
    if not chunks:
        return
    texts = [chunk.texts for chunk in chunks if chunk.texts is not None]
    words = np.concatenate([chunk.words for chunk in chunks])
    selection = _reduce(words, _concatenate(texts) if texts else None, max_records)
    yield np.ascontiguousarray(selection.words[:, 2:]).view(np.float64)


@dataclass(frozen=True)
class _Batches:
    """Batches that are sorted together."""

    batches: tuple[Any, ...]
    n_rows: int
    size: int


def _group_batches(batches: Iterable[Any], dim: int) -> Iterator[_Batches]:
    waiting: list[Any] = []
    n_rows, max_rows = 0, max(1, CHUNK_BYTES // (8 * (dim + 2)))
    for batch in batches:
        waiting.append(batch)
        n_rows += len(batch[0]) if isinstance(batch, tuple) else batch.num_rows
        if n_rows >= max_rows:
            yield _Batches(tuple(waiting), n_rows, n_rows * (dim + 2))
            waiting, n_rows = [], 0
    if waiting:
        yield _Batches(tuple(waiting), n_rows, n_rows * (dim + 2))


def store_rows(blocks: Iterable[Block], dim: int) -> StoredRows:
    """Store blocks, which can be iterated over once, to read them several times."""
    rows = StoredRows(dim)
    for block in blocks:
        rows.append(np.asarray(block, dtype=np.float64))
    return rows
