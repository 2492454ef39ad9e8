"""Tables cut into parts that another process or machine can read.

A part is either a stretch of a file, read where the work is done, or a few blocks of
records that are sent there. Parts are of moderate size: large enough to be worth a task,
small enough that a few of them per worker are a bounded amount of memory, and that no
worker waits long for the last one. A record is in one part only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from privsketch._base.types import Block
from privsketch.tables.files import file_kind
from privsketch.tables.memory import Selection

# Values in a stretch of a file (32 MB of float64, a fraction of a second of work), and in blocks
# that are sent (8 MB).
FILE_VALUES, SENT_VALUES = 2**22, 2**20


@dataclass(frozen=True)
class FilePart:
    """A stretch of a file, in the units of `readers.files.file_blocks`; None is all of it."""

    path: Path
    stretch: range | None = None


@dataclass(frozen=True)
class BlockPart:
    """Blocks (n, dim) whose columns are already those of a record."""

    blocks: tuple[Block, ...]


Part = FilePart | BlockPart


def file_parts(path: Path, selection: Selection) -> Iterator[FilePart]:
    """Stretches that together are the whole file; a file that cannot be cut is one part."""
    path = path.absolute()  # workers may run in another folder
    cut = {"npy": _rows, "parquet": _row_groups, "arrow": _batches}.get(file_kind(path))
    # What is empty or damaged is left whole, so that its reader says what it would always say.
    stretches = [] if cut is None else cut(path, selection.dim)
    if not stretches:
        yield FilePart(path)
    for stretch in stretches:
        yield FilePart(path, stretch)


def _rows(path: Path, dim: int) -> list[range]:
    try:
        n_rows = len(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, EOFError, TypeError):
        return []
    return _cut(n_rows, max(1, FILE_VALUES // dim))


def _row_groups(path: Path, dim: int) -> list[range]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        facts = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return []
    stretches, first, n_values = [], 0, 0
    for group in range(facts.num_row_groups):
        n_values += facts.row_group(group).num_rows * dim
        if n_values >= FILE_VALUES or group == facts.num_row_groups - 1:
            stretches.append(range(first, group + 1))
            first, n_values = group + 1, 0
    return stretches


def _batches(path: Path, dim: int) -> list[range]:
    """Batches of an Arrow file, taken to be of about the same size; a stream cannot be cut."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            n_batches = pa.ipc.open_file(source).num_record_batches
    except (pa.ArrowException, OSError):
        return []
    bytes_per_batch = max(1, path.stat().st_size // max(1, n_batches))
    return _cut(n_batches, max(1, 8 * FILE_VALUES // bytes_per_batch))


def _cut(n_units: int, at_most: int) -> list[range]:
    return [range(first, min(first + at_most, n_units)) for first in range(0, n_units, at_most)]


def packed(pieces: Iterable[Block | FilePart]) -> Iterator[Part]:
    """Parts from pieces: many small blocks become one part, as each costs a message."""
    waiting: list[Block] = []
    n_values = 0
    for piece in pieces:
        if isinstance(piece, FilePart):
            yield piece
            continue
        waiting.append(np.asarray(piece))  # of a memory map, the numbers
        n_values += piece.size
        if n_values >= SENT_VALUES:
            yield BlockPart(tuple(waiting))
            waiting, n_values = [], 0
    if waiting:
        yield BlockPart(tuple(waiting))
