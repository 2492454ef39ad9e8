"""The bytes of a text file as Arrow reads them: guarded, and with one line more at the end."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np

from privsketch.tables.untyped.lines import LineGuard, MendedLines

BOM = b"\xef\xbb\xbf"
_QUIET = 0.25  # seconds without a read after which Arrow's thread has stopped to read ahead
_MAX_MOMENTS = 5000  # ten seconds: far longer than any task of Arrow's on a few blocks


class GuardedStream:
    """What Arrow reads: the rest of a file, and then one line more.

    Blocks are as long as Arrow asks, but for the last and for those that would end in a carriage
    return: Arrow takes a block that is one line feed for the end of a file, and drops a line feed
    that follows a carriage return in the block before, in quotes too.

    Arrow reads ahead in threads of its own, which must not come back for a block, nor to give one
    back, when Python is shutting down: that aborts the process. `let_go` and `wait_released` wait
    for them.

    A `guard` sees all bytes of the file first. Where it finds a fault, the stream ends before them.
    """

    def __init__(
        self, stream: Any, rest: bytes, line: bytes, guard: LineGuard | MendedLines
    ) -> None:
        self._stream, self._first, self._line, self._guard = stream, rest, line, guard
        self._rest = b""  # what comes next, before more of the file
        self._bom = BOM  # Arrow drops one, and would take it from the first record
        self.fault = ""  # why there is no more of it
        self._ends_line = rest[-1:] in (b"", b"\n", b"\r")
        self._ended, self._is_wanted = threading.Event(), True
        self._n_reads, self._is_reading = 0, False
        self._held: list[Any] = []  # blocks that Arrow has
        self.closed = False

    def read(self, size: int) -> Any:
        """Return the next block; nothing at the end."""
        self._n_reads, self._is_reading = self._n_reads + 1, True
        block = b""
        try:
            if self._is_wanted:
                block = self._block(size)
        finally:
            self._is_reading = False
            if not block:  # the end of the file, of interest, or an error
                self._ended.set()
        if not block:
            return block
        view = np.frombuffer(block, dtype=np.uint8)
        # Looked at, since finalizers are no longer called when a program ends.
        self._held = [one for one in self._held if one() is not None]
        self._held.append(weakref.ref(view))
        return view

    def let_go(self) -> None:
        """Give no more; return when the last read is over, or Arrow has read enough ahead."""
        self._is_wanted = False
        seen = -1
        while not self._ended.wait(_QUIET) and (self._is_reading or seen != self._n_reads):
            seen = self._n_reads

    def wait_released(self) -> None:
        """Return when Arrow has given back all blocks, which it does in a moment."""
        for _ in range(_MAX_MOMENTS):
            if all(one() is None for one in self._held):
                return
            time.sleep(0.002)

    def _block(self, size: int) -> bytes:
        parts, missing = [self._bom], size - len(self._bom)
        self._bom = b""
        while missing > 0:
            part, self._rest = self._rest[:missing], self._rest[missing:]
            part = part or self._from_file(missing)
            if self.fault:
                return b""
            if part:
                self._ends_line = part[-1:] in (b"\n", b"\r")
            elif self._line:
                self._rest = self._line if self._ends_line else b"\n" + self._line
                self._line = b""
                continue
            else:
                break
            parts.append(part)
            missing -= len(part)
        block = parts[1] if len(parts) == 2 and not parts[0] else b"".join(parts)
        if len(block) > 1 and block.endswith(b"\r"):
            block, self._rest = block[:-1], b"\r" + self._rest
        return block

    def _from_file(self, size: int) -> bytes:
        """Return bytes that the guard has seen; nothing at the end of the file, and behind it."""
        if not self._line:
            return b""
        part, self._first = self._first[:size], self._first[size:]
        part = part or bytes(self._stream.read(size))
        self.fault = self._guard.fault(part)
        return part

    def readable(self) -> bool:
        """Return True: Arrow asks."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self.closed = True
