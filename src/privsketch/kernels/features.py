"""Feature maps in vector code: phases become the integers of features/, bit for bit.

Kernels have two more things in common that live here: the multiply-add of pairs of columns,
and the masks that say which features a record keeps.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod

from privsketch.features.fixedpoint import TABLE_SIZE
from privsketch.features.fourier import AMPLITUDE, COSINE_COEFFICIENTS, ROUNDER, SINE_COEFFICIENTS
from privsketch.kernels.builder import (
    FLOAT,
    I1,
    I32,
    I64,
    Kind,
    Pointer,
    Value,
    fma,
    polynomial,
    select,
)

Pair = tuple[Value, Value]


class Feature(ABC):
    """Turns 32-bit phases into cosines and sines to add up.

    A record may add `excess` too much to every sum; kernels subtract it once per block.
    """

    excess: int

    @abstractmethod
    def of_phase(self, phase: Value, shift: Value) -> Pair:
        """Cosines and sines; a number of bits, `shift`, says what phases count in."""


class TableFeature(Feature):
    """A feature that is read off the 16 bits of a phase just below one turn."""

    def of_phase(self, phase: Value, shift: Value) -> Pair:
        """Cosines and sines of phases of which `shift` bits are below a step of the table."""
        return self.of_index((phase >> shift.splat(phase.kind.lanes)) & (TABLE_SIZE - 1))

    @abstractmethod
    def of_index(self, index: Value) -> Pair:
        """Cosines and sines of table indices, 0 to 65,535."""


class FourierFeature(TableFeature):
    """features/fourier.py: the same float32 operations in the same order.

    The rounded cosine and sine are left as the bits of a float that adds ROUNDER.
    """

    excess: int = struct.unpack("<i", struct.pack("<f", ROUNDER))[0]

    def of_index(self, index: Value) -> Pair:
        """Both by half angles, as the table."""
        ints, floats = index.kind, FLOAT.vector(index.kind.lanes)
        # 0x43000000 is 128.0f, and 16 bits below it count steps of 2^-16.
        r = (index | 0x43000000).bits_as(floats) - 128.5
        square = r * r
        sine_half = polynomial(square, SINE_COEFFICIENTS) * r
        cosine_half = polynomial(square, COSINE_COEFFICIENTS)
        cosine = fma(sine_half, sine_half, ROUNDER - AMPLITUDE)
        sine = fma(sine_half, cosine_half, ROUNDER)
        return cosine.bits_as(ints), sine.bits_as(ints)


class OneBitFeature(TableFeature):
    """features/onebit.py: two comparisons per phase."""

    excess = 1  # a record adds 2 or 0 instead of 1 or -1

    def of_index(self, index: Value) -> Pair:
        """Two where the sign is positive, else zero."""
        # A quarter turn later, the cosine's half of ones is the sine's.
        later = (index + TABLE_SIZE // 4) & (TABLE_SIZE - 1)
        two, zero = index.constant(2), index.constant(0)
        cosine, sine = (select(each <= TABLE_SIZE // 2, two, zero) for each in (later, index))
        return cosine, sine


class QuadraticFeature(Feature):
    """features/quadratic.py: a 64-bit square, shifted; the sines stay zero."""

    excess = 0

    def of_phase(self, phase: Value, shift: Value) -> Pair:
        """The square of a product without a sign, of which `shift` bits are dropped."""
        wide = phase.signed_to(I64)
        square = wide * wide >> shift.unsigned_to(I64).splat(phase.kind.lanes)
        return square.unsigned_to(I32), phase.constant(0)


TABLE_FEATURES: dict[str, TableFeature] = {
    "fourier": FourierFeature(),
    "one-bit": OneBitFeature(),
}
FEATURES: dict[str, Feature] = {**TABLE_FEATURES, "quadratic": QuadraticFeature()}


def pairwise_products(a: Value, b: Value) -> Value:
    """a0 b0 + a1 b1 of 16-bit numbers: a shape LLVM turns into one multiply-add instruction."""
    product = a.signed_to(I32) * b.signed_to(I32)
    even = range(0, product.kind.lanes, 2)
    return product.shuffled(even) + product.shuffled([place + 1 for place in even])


def mask_bytes(lanes: int) -> int:
    """Bytes that hold the mask of one vector: a bit for each lane."""
    return max(1, lanes // 8)


def mask_of_vector(row: Pointer, vector: int, lanes: int) -> Value:
    """Which lanes of one of its vectors a record keeps."""
    size = mask_bytes(lanes)
    bits = (row + vector * size).to(Kind(f"i{8 * size}")).load(align=1)
    if lanes < 8:
        bits = bits.unsigned_to(Kind(f"i{lanes}"))
    return bits.bits_as(I1.vector(lanes))


def kept(mask: Value, pair: Pair, feature: Feature) -> Pair:
    """What a record adds of the lanes that it keeps, and nothing of the others."""
    nothing = pair[0].constant(feature.excess)
    return select(mask, pair[0], nothing), select(mask, pair[1], nothing)
