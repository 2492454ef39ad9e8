"""Rows of words that wait to be read again: in memory, and beyond a limit in a temporary file.

The file has no name, so that nothing is left of it whatever happens to the process; it lies in the
system's folder for temporary files (TMPDIR), in which the holder's records then are for a while.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
MEMORY_BYTES = 2**28  # that are kept before a file is used


class Spill:
    """Chunks of bytes, written once, of which any stretch can be read."""

    def __init__(self, memory: int | None = None) -> None:
        self._memory = MEMORY_BYTES if memory is None else memory
        self._chunks: list[npt.NDArray[np.uint8] | tuple[int, int]] = []
        self._held = self._written = 0
        self._file: BinaryIO | None = None
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._chunks)

    def append(self, chunk: npt.NDArray[Any]) -> None:
        """Keep a chunk, which is not changed any more."""
        data = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        if self._held + data.size <= self._memory:
            self._held += data.size
            self._chunks.append(data)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by `close`
        start = self._written
        self._file.seek(start)
        while self._written < start + data.size:  # a file takes up to 2 GB at a time
            self._written += self._file.write(data[self._written - start :].data)
        self._chunks.append((start, data.size))

    def stretch(self, number: int, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Return bytes from `start` to `stop` of a chunk; safe to call from several threads."""
        chunk = self._chunks[number]
        if isinstance(chunk, np.ndarray):
            return chunk[start:stop]
        data = np.empty(stop - start, dtype=np.uint8)
        with self._lock:
            if self._file is None:
                raise OSError
            self._file.seek(chunk[0] + start)
            position = 0
            while position < len(data):
                done = self._file.readinto(data[position:].data)  # type: ignore[attr-defined]
                if not done:
                    raise OSError
                position += done
        return data

    def close(self) -> None:
        """Let go of everything."""
        self._chunks = []
        if self._file is not None:
            self._file.close()
            self._file = None


class StoredRows:
    """Blocks of records (n, dim) that can be gone through again and again, in their order."""

    def __init__(self, dim: int, memory: int | None = None) -> None:
        self._dim, self._spill = dim, Spill(memory)
        self._sizes: list[int] = []

    def append(self, block: npt.NDArray[np.float64]) -> None:
        """Keep a block."""
        if len(block):
            self._spill.append(np.ascontiguousarray(block, dtype=np.float64))
            self._sizes.append(len(block))

    def __iter__(self) -> Iterator[npt.NDArray[np.float64]]:
        for number, size in enumerate(self._sizes):
            data = self._spill.stretch(number, 0, size * self._dim * 8)
            yield data.view(np.float64).reshape(size, self._dim)

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return sum(self._sizes)
