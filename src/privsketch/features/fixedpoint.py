"""Definition of the integer arithmetic that turns a record into a 16-bit phase.

A record is clipped and quantised to 16-bit integers in units of its domain; the frequencies are
16-bit integers; the phase is their dot product modulo 2^32, in units of 2^-turn_bits turns; its 16
bits just below one turn, rounded, index a table of features. There are no floats between the
quantised record and the sum, so what a record adds depends on that record alone: not on other
records of its block, the order of rows, the number of threads or the machine.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import MissingError, ParameterError
from privsketch.facts.domain import Ball, Domain

RECORD_BITS = 15  # without the sign: 16-bit integers, which kernels multiply in pairs
RECORD_UNIT = 2.0**RECORD_BITS  # quantised units per half-width of the domain
RECORD_MAX = 2**RECORD_BITS - 1  # so that a coordinate fits in a signed 16-bit integer
# Coordinates are clipped to this many half-widths first. Squares of at most 2^38 add up exactly in
# float64 for up to 2^15 columns, so the norm of a record does not depend on summation order.
CLIP_HALF_WIDTHS = 16.0
INDEX_BITS = 16  # an index step is 2^-16 of a turn: at most pi units in a table of amplitude 2^15
TABLE_SIZE = 2**INDEX_BITS
MIN_TURN_BITS, MAX_TURN_BITS = 17, 32  # one bit below the index to round by; 32-bit phases
FREQUENCY_MAX = 2**15 - 1  # the largest 16-bit integer


class Quantiser:
    """Map from records (n, dim) in their own units to integers in units of the domain.

    Every step is elementwise or exact, so a row's result depends on that row alone. NaN and
    infinite values raise RecordError unless `missing_to_center`, which puts such a coordinate at
    the domain's center.

    `bits` is the resolution: 2^bits units per half-width. All columns of a box are clipped to
    2^bits - 1 units, each of its own width. With `common_unit`, a unit has the same length in all
    columns, and `limits` are the numbers of units.
    """

    CHUNK_VALUES = 2**15  # float64 values of a chunk, which stays in the L2 cache

    def __init__(
        self,
        domain: Domain,
        *,
        missing_to_center: bool = False,
        bits: int = RECORD_BITS,
        common_unit: bool = False,
    ) -> None:
        self.is_ball = isinstance(domain, Ball)
        self.missing_to_center = missing_to_center
        half = domain.half_widths
        self.dim = len(half)
        if self.is_ball and self.dim * (CLIP_HALF_WIDTHS * 2.0**bits) ** 2 > 2.0**53:
            raise ParameterError(f"`bits={bits}`: squared norms would not be exact")
        self.largest = 2.0**bits - 1  # of a coordinate, and of the norm in a ball
        self.center = domain.center_vector
        self.unit = 2.0**bits / (np.full_like(half, half.max()) if common_unit else half)
        limits = np.minimum(np.floor(half * self.unit), self.largest)
        # Clipping to one number is several times faster than to one for each column.
        self._limits = limits[0] if (limits == limits[0]).all() else limits
        self.rows_at_once = max(1, self.CHUNK_VALUES // self.dim)

    # One row per record of a chunk: adding arrays of equal shape is several times faster.
    @cached_property
    def _centers(self) -> npt.NDArray[np.float64]:
        return np.tile(self.center, (self.rows_at_once, 1))

    @cached_property
    def _units(self) -> npt.NDArray[np.float64]:
        return np.tile(self.unit, (self.rows_at_once, 1))

    @property
    def limits(self) -> npt.NDArray[np.int64]:
        """Largest magnitude of each coordinate, (dim,)."""
        return np.broadcast_to(self._limits, (self.dim,)).astype(np.int64)

    def __call__(self, records: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
        """Quantise records of any number type, (n, dim), at the default resolution."""
        if self.largest > RECORD_MAX:
            raise resolution_error()
        out = np.empty(records.shape, dtype=np.int16)
        for first in range(0, len(records), self.rows_at_once):
            rows = slice(first, first + self.rows_at_once)
            out[rows] = self.whole_numbers(records[rows])
        return out

    def whole_numbers(self, records: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the integers as float64, for at most `rows_at_once` records."""
        count = len(records)
        with np.errstate(over="ignore", invalid="ignore"):
            units: npt.NDArray[np.float64] = np.subtract(
                records, self._centers[:count], dtype=np.float64
            )
            units *= self._units[:count]
            np.rint(units, out=units)
            if self.is_ball:
                # The sum is exact in any order, or so large that rounding cannot bring it back
                # inside. NaN counts as outside.
                squared_norm = np.vecdot(units, units)
                outside = np.flatnonzero(~(squared_norm <= self.largest * self.largest))
                if len(outside):
                    filled = self._fill_missing(units[outside], records[outside])
                    units[outside] = self.cut_to_ball(filled)
                return units
            if not np.isfinite(units.sum()):  # a quick test; `_fill_missing` has the exact test
                units = self._fill_missing(units, records)
        np.clip(units, -self._limits, self._limits, out=units)
        return units

    def _fill_missing(
        self, units: npt.NDArray[np.float64], records: npt.NDArray[Any]
    ) -> npt.NDArray[np.float64]:
        """Set missing values to the center, or raise."""
        # Finite values whose product overflows are outside the domain, not missing.
        bad = ~np.isfinite(np.asarray(records, dtype=np.float64))
        if bad.any() and not self.missing_to_center:
            raise missing_value_error(records)
        units[bad] = 0.0
        units[np.isnan(units)] = 0.0  # believed to be unreachable
        return units

    def cut_to_ball(self, units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Move rows outside of the ball to its edge."""
        far = CLIP_HALF_WIDTHS * (self.largest + 1)
        units = np.clip(units, -far, far)
        squared_norm = np.vecdot(units, units)
        shrink = self.largest / np.sqrt(np.maximum(squared_norm, 1.0))
        outside = squared_norm > self.largest * self.largest
        units[outside] = np.trunc(units[outside] * shrink[outside, np.newaxis])
        return units


def finest_turn_bits(highest: float) -> int | None:
    """Return the finest resolution for a frequency in turns per half-width; None if none fits."""
    for turn_bits in range(MAX_TURN_BITS, MIN_TURN_BITS - 1, -1):
        if highest * 2.0 ** (turn_bits - RECORD_BITS) <= FREQUENCY_MAX:
            return turn_bits
    return None


def resolution_error() -> ParameterError:
    """Return the error for a resolution that 16 bits cannot hold."""
    return ParameterError("bits: 16-bit integers are too small for this resolution")


def missing_value_error(records: npt.NDArray[Any] | None = None) -> MissingError:
    """Return the error for records (n, dim) with a value that is not finite."""
    column = None
    if records is not None:
        bad = ~np.isfinite(np.asarray(records, dtype=np.float64)).all(axis=0)
        column = int(np.argmax(bad)) if bad.any() else None
    return MissingError(column)


def table_index(
    quantised: npt.NDArray[np.int16],
    frequencies: npt.NDArray[np.int16],
    offsets: npt.NDArray[np.uint32],
    turn_bits: int,
) -> npt.NDArray[np.int64]:
    """Return the table index, (n, n_features), 0 to 65,535, in plain 64-bit integers.

    With at most 2^15 columns the dot product stays below 2^45, so int64 holds it exactly; only its
    low `turn_bits` bits matter, so 32-bit arithmetic agrees.
    """
    phase = quantised.astype(np.int64) @ frequencies.astype(np.int64).T
    phase += start_phase(offsets, turn_bits)
    return np.asarray((phase >> (turn_bits - INDEX_BITS)) & (TABLE_SIZE - 1))


def start_phase(offsets: npt.NDArray[np.uint32], turn_bits: int) -> npt.NDArray[np.int64]:
    """Return the initial phase: the offset, and half an index step for rounding."""
    half_step = 1 << (turn_bits - INDEX_BITS - 1)
    return offsets.astype(np.int64) + half_step
