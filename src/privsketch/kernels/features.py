"""Feature maps in vector code: phases become the integers of features/, bit for bit.

This module also loads the masks that select features of a record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from privsketch.features.fixedpoint import TABLE_SIZE
from privsketch.features.waves import COSINE_COEFFICIENTS, MEAN_SQUARE, SINE_COEFFICIENTS
from privsketch.kernels.builder import Pointer, Value, select
from privsketch.kernels.kinds import I1, I16, I32, I64, Kind
from privsketch.kernels.operations import high_product, pairwise_products, rounded_product

Pair = tuple[Value, Value]
_LOW, _HIGH = 0x0000FFFF, 0xFFFF0000


class Feature(ABC):
    """Map from 32-bit phases to the numbers that are added to sums of cosines and of sines.

    Sums over `max_records` records fit in 32 bits, in a form that `widen` reads. A record adds
    `excess` too much to both sums; the caller of a kernel subtracts it.
    """

    max_records: int
    excess: tuple[int, int]

    @abstractmethod
    def features(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """Return the sums of one or two records' features: a vector of cosines and one of sines.

        `shift` is a number of bits, the unit of the phases. Only lanes whose bit is set in the
        mask of a record count; without masks all of them count.
        """

    def widen(self, sums: Pair) -> Pair:
        """Convert sums to 64 bits: cosines are unsigned, sines are signed."""
        return sums[0].unsigned_to(I64), sums[1].signed_to(I64)


class TableFeature(Feature):
    """A feature of the 16 bits of a phase just below one turn, for two records at a time.

    They share a lane: the first record's in the lower half, the second's in the upper.
    """

    def halves(self, phases: list[Value], shift: Value) -> Value:
        """Return indices of the table in 16 bits; `shift` bits of a phase are below a step."""
        lanes = phases[0].kind.lanes
        halves = (phases[0] >> shift.splat(lanes)) & _LOW
        if len(phases) == 2:
            left = (shift.constant(16) - shift).splat(lanes)
            halves = halves | (phases[1] << left) & _HIGH
        return halves.bits_as(I16.vector(2 * lanes))

    def masked(self, halves: Value, n_records: int, masks: list[Value]) -> Value:
        """Set lanes outside of the masks, and a missing second record, to zero."""
        if n_records == 2 and not masks:
            return halves
        lanes = halves.bits_as(I32.vector(halves.kind.lanes // 2))
        parts = [lanes & half for half in (_LOW, _HIGH)[:n_records]]
        if masks:
            zero = lanes.constant(0)
            parts = [select(mask, part, zero) for mask, part in zip(masks, parts, strict=True)]
        return (parts[0] if n_records == 1 else parts[0] | parts[1]).bits_as(halves.kind)


class FourierFeature(TableFeature):
    """Fourier features: the 16-bit operations of features/waves.py in the same order.

    One instruction adds the products of half angles' cosines and sines over both halves.
    """

    max_records = 248
    excess = (MEAN_SQUARE, 0)

    def features(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """See `Feature`; both products have the cosine as a factor."""
        t = self.halves(phases, shift)
        z = high_product(t, t)
        cosine = _polynomial(z, COSINE_COEFFICIENTS)
        sine = rounded_product(_polynomial(z, SINE_COEFFICIENTS), t)
        factor = self.masked(cosine, len(phases), masks)
        return pairwise_products(cosine, factor), pairwise_products(sine, factor)


class OneBitFeature(TableFeature):
    """One-bit features of features/waves.py: two comparisons per phase.

    The halves of 32 bits have separate sums.
    """

    max_records = 2**10
    excess = (1, 1)  # a record adds 2 or 0 instead of 1 or -1

    def features(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """See `Feature`; a number is two where the sign is positive, else zero."""
        t, ints = self.halves(phases, shift), phases[0].kind
        two, zero = t.constant(2), t.constant(0)

        def bit(t: Value) -> Value:
            is_positive = t <= TABLE_SIZE // 2
            bits = self.masked(select(is_positive, two, zero), len(phases), masks)
            return bits.bits_as(ints)

        # The cosine is positive where the sine is, a quarter turn later.
        return bit(t + TABLE_SIZE // 4), bit(t)

    def widen(self, sums: Pair) -> Pair:
        """Add up both halves."""
        cosine, sine = (((total & _LOW) + (total >> 16)).unsigned_to(I64) for total in sums)
        return cosine, sine


class QuadraticFeature(Feature):
    """Quadratic features of features/quadratic.py: shifted 64-bit squares; sines stay zero."""

    max_records = 2**9  # of values below 2^21
    excess = (0, 0)

    def features(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """See `Feature`; `shift` bits of a square are dropped."""
        total = phases[0].constant(0)
        for r, phase in enumerate(phases):
            product = phase.signed_to(I64)
            square = product * product >> shift.unsigned_to(I64).splat(phase.kind.lanes)
            value = square.unsigned_to(I32)
            total += select(masks[r], value, value.constant(0)) if masks else value
        return total, phases[0].constant(0)


TABLE_FEATURES: dict[str, TableFeature] = {
    "fourier": FourierFeature(),
    "one-bit": OneBitFeature(),
}
FEATURES: dict[str, Feature] = {**TABLE_FEATURES, "quadratic": QuadraticFeature()}


def _polynomial(z: Value, coefficients: tuple[int, ...]) -> Value:
    value = z.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = rounded_product(value, z) + coefficient
    return value


def mask_bytes(lanes: int) -> int:
    """Return the size in bytes of the mask of one vector: a bit for each lane."""
    return max(1, lanes // 8)


def mask_of_vector(row: Pointer, vector: int, lanes: int) -> Value:
    """Return the mask of the lanes of one of a record's vectors."""
    size = mask_bytes(lanes)
    bits = (row + vector * size).to(Kind(f"i{8 * size}")).load(align=1)
    if lanes < 8:
        bits = bits.unsigned_to(Kind(f"i{lanes}"))
    return bits.bits_as(I1.vector(lanes))
