"""Records that are read several times, each time in constant memory.

A pass gives every record to a function that returns integers, and adds these up exactly: what a
record contributes must depend on that record and on public numbers alone, not on its block.
Records arrive quantised, as whole numbers in float64, the same unit in all columns: products
below 2^53 are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._parallel import chunks, in_threads
from privsketch._typing import Integers, Whole
from privsketch.budget import Neighbours
from privsketch.domain import Ball, Box, Domain
from privsketch.errors import ParameterError, RecordError
from privsketch.features.fixedpoint import FAR, Quantiser
from privsketch.noise.laws import saturating_add
from privsketch.tables.reading import read_blocks

Progress = Callable[[str, int], None]
Work = Callable[[Whole], tuple[Integers, ...]]
_MAX_BITS = 18  # of a coordinate: sums of 2^40 records (errors.MANY) stay below 2^58
_CHUNK_VALUES = 2**19  # 4 MB of float64 for each thread


class Passes:
    """A table that can be read as often as needed.

    `progress` is called at the beginning of a pass with its name and 0, and then with the name
    and numbers of records done. It is for the holder's own eyes: under "add-remove" the number
    of records is private. `max_bits` is the resolution: coordinates are below 2^max_bits. With
    `within`, a box about the center of the ball that `domain` then is, records are moved into both.
    """

    def __init__(
        self,
        data: Any,
        domain: Domain,
        *,
        columns: Sequence[str | int] | None = None,
        header: bool | None = None,
        missing_to_center: bool = False,
        n_threads: int | None = None,
        neighbours: Neighbours = "add-remove",
        progress: Progress | None = None,
        max_bits: int | None = None,
        within: Box | None = None,
    ) -> None:
        parts = data if isinstance(data, list | tuple) else [data]
        if any(isinstance(part, Iterator) for part in parts):
            raise RecordError(
                "records are read several times, and an iterator can be read once; give an array, "
                "a table, paths, or a list of blocks"
            )
        self.domain, self._neighbours = domain, neighbours
        self._data, self._columns, self._header = data, columns, header
        self._n_threads, self._progress = n_threads, progress
        self._n_found: int | None = None  # by the first pass
        self.dim = len(domain.half_widths)
        # Squared norms stay exact in float64, and products of two records too.
        bits = math.floor((53 - math.log2(self.dim)) / 2 - math.log2(FAR))
        self.bits = min(_MAX_BITS if max_bits is None else max_bits, bits)
        self._quantise = Quantiser(
            domain, missing_to_center=missing_to_center, bits=self.bits, common_unit=True
        )
        self._box_limits: Integers | None = None
        if within is not None:
            if not np.array_equal(within.center_vector, domain.center_vector):
                raise ParameterError("within: the box and the ball need one center")
            self._box_limits = np.floor(within.half_widths / self.unit).astype(np.int64)

    @property
    def unit(self) -> float:
        """Length of one integer, in the units of the records."""
        return float(self.domain.half_widths.max() / 2.0**self.bits)

    @property
    def limits(self) -> Integers:
        """Largest magnitude of each coordinate, (dim,)."""
        return self._quantise.limits

    @property
    def l1(self) -> int:
        """Largest sum of magnitudes of a record, in whole numbers.

        |x|_1 <= sqrt(d) |x|_2 in a ball; in a box, limits add up.
        """
        bounds = [int(self.limits.sum())]
        if isinstance(self.domain, Ball):
            bounds.append(math.isqrt(self.dim * int(self.limits[0]) ** 2))
        if self._box_limits is not None:
            bounds.append(int(self._box_limits.sum()))
        return min(bounds)

    @property
    def l2_squared(self) -> int:
        """Largest squared length of a record, in whole numbers."""
        if isinstance(self.domain, Ball):
            return int(self.limits[0]) ** 2
        return sum(int(limit) ** 2 for limit in self.limits)

    def sums(self, work: Work, name: str) -> tuple[Integers, ...]:
        """One pass: `work` on quantised records (n, dim), its results added up.

        `name` is for the progress bar.
        """
        total: tuple[Integers, ...] | None = None
        rows = max(1, _CHUNK_VALUES // self.dim)
        for parts in in_threads(
            lambda chunk: work(self.quantised(chunk)),
            chunks(self.blocks(name), rows),
            self._n_threads,
        ):
            total = parts if total is None else added(total, parts)
        if total is None:  # an empty table contributes what no record does
            total = work(np.zeros((0, self.dim)))
        return total

    def blocks(self, name: str) -> Iterator[npt.NDArray[Any]]:
        """One pass: the records as they are."""
        tell = self._progress or (lambda name, count: None)
        tell(name, 0)
        found = 0
        for block in self._read():
            if block.shape[0]:
                found += block.shape[0]
                yield block
                tell(name, block.shape[0])
        if self._n_found not in (None, found):
            raise RecordError(
                "records are read several times, and there were not as many as the first time; "
                "give a table that stays as it is, not a stream"
            )
        self._n_found = found
        if not found and self._neighbours == "replace":
            raise RecordError(
                "there are no records; with `neighbours='replace'` their number is public and must "
                "be at least 1"
            )

    def _read(self) -> Iterator[Any]:
        return read_blocks(self._data, self.dim, self._columns, header=self._header)

    def quantised(self, block: npt.NDArray[Any]) -> Whole:
        """Records (n, dim) as whole numbers."""
        out = np.empty(block.shape, dtype=np.float64)
        step = self._quantise.rows_at_once
        for first in range(0, len(block), step):
            out[first : first + step] = self._quantise.whole_numbers(block[first : first + step])
        if self._box_limits is not None:  # which shortens a record, so that it stays in the ball
            np.clip(out, -self._box_limits, self._box_limits, out=out)
        return out


def added(total: tuple[Integers, ...], parts: tuple[Integers, ...]) -> tuple[Integers, ...]:
    """Results of two blocks, added up."""
    return tuple(saturating_add(a, b) for a, b in zip(total, parts, strict=True))
