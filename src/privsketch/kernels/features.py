"""Feature maps in vector code: phases become the integers of features/, bit for bit.

Kernels have one more thing in common that lives here: the masks that say which features a
record keeps.
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
    """Turns 32-bit phases into what is added to sums of cosines and of sines.

    Sums of `most` records fit in 32 bits, in a form that `wide` reads. A record adds `excess` too
    much to both sums; whoever runs a kernel subtracts it.
    """

    most: int
    excess: tuple[int, int]

    @abstractmethod
    def added(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """Return the amounts that one record, or two, add to a vector of cosines and of sines.

        A number of bits, `shift`, says what phases count in. Only lanes whose bit is set in the
        mask of a record are added, all of them where there are no masks.
        """

    def wide(self, sums: Pair) -> Pair:
        """Convert sums to 64 bits: cosines are unsigned, sines are signed."""
        return sums[0].unsigned_to(I64), sums[1].signed_to(I64)


class TableFeature(Feature):
    """A feature of the 16 bits of a phase just below one turn, for two records at a time.

    They share a lane: the first record's in the lower half, the second's in the upper.
    """

    def halves(self, phases: list[Value], shift: Value) -> Value:
        """Return indices of the table in 16 bits; `shift` bits of a phase are below a step."""
        lanes = phases[0].kind.lanes
        both = (phases[0] >> shift.splat(lanes)) & _LOW
        if len(phases) == 2:
            left = (shift.constant(16) - shift).splat(lanes)
            both = both | (phases[1] << left) & _HIGH
        return both.bits_as(I16.vector(2 * lanes))

    def kept(self, halves: Value, n_records: int, masks: list[Value]) -> Value:
        """Set a missing second record, and lanes that are not kept, to zero."""
        if n_records == 2 and not masks:
            return halves
        whole = halves.bits_as(I32.vector(halves.kind.lanes // 2))
        parts = [whole & half for half in (_LOW, _HIGH)[:n_records]]
        if masks:
            zero = whole.constant(0)
            parts = [select(mask, part, zero) for mask, part in zip(masks, parts, strict=True)]
        return (parts[0] if n_records == 1 else parts[0] | parts[1]).bits_as(halves.kind)


class FourierFeature(TableFeature):
    """features/waves.py: the same 16-bit operations in the same order.

    Products of half angles' cosines and sines are added over both halves by one instruction.
    """

    most = 248
    excess = (MEAN_SQUARE, 0)

    def added(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """See `Feature`; the cosine is a factor of both."""
        t = self.halves(phases, shift)
        z = high_product(t, t)
        cosine = _polynomial(z, COSINE_COEFFICIENTS)
        sine = rounded_product(_polynomial(z, SINE_COEFFICIENTS), t)
        factor = self.kept(cosine, len(phases), masks)
        return pairwise_products(cosine, factor), pairwise_products(sine, factor)


class OneBitFeature(TableFeature):
    """features/waves.py: two comparisons per phase.

    Sums of both halves stay apart, in the halves of 32 bits.
    """

    most = 2**10
    excess = (1, 1)  # a record adds 2 or 0 instead of 1 or -1

    def added(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """Return two where the sign is positive, else zero."""
        t, ints = self.halves(phases, shift), phases[0].kind
        # A quarter turn later, the cosine's half of ones is the sine's.
        two, zero = t.constant(2), t.constant(0)
        cosine, sine = (
            self.kept(select(each <= TABLE_SIZE // 2, two, zero), len(phases), masks).bits_as(ints)
            for each in (t + TABLE_SIZE // 4, t)
        )
        return cosine, sine

    def wide(self, sums: Pair) -> Pair:
        """Add up both halves."""
        cosine, sine = (((each & _LOW) + (each >> 16)).unsigned_to(I64) for each in sums)
        return cosine, sine


class QuadraticFeature(Feature):
    """features/quadratic.py: a 64-bit square, shifted; the sines stay zero."""

    most = 2**9  # of values below 2^21
    excess = (0, 0)

    def added(self, phases: list[Value], shift: Value, masks: list[Value]) -> Pair:
        """Squares of products without a sign, of which `shift` bits are dropped."""
        total = phases[0].constant(0)
        for r, phase in enumerate(phases):
            wide = phase.signed_to(I64)
            square = wide * wide >> shift.unsigned_to(I64).splat(phase.kind.lanes)
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
    """Return the mask of the lanes that a record keeps of one of its vectors."""
    size = mask_bytes(lanes)
    bits = (row + vector * size).to(Kind(f"i{8 * size}")).load(align=1)
    if lanes < 8:
        bits = bits.unsigned_to(Kind(f"i{lanes}"))
    return bits.bits_as(I1.vector(lanes))
