"""Functions of values in compiled code: rounding, products, sums over lanes, polynomials.

They are generic, so that LLVM can compile them for any processor. A few products use an
instruction by its name where the processor has it and LLVM would not choose it.
"""

from __future__ import annotations

from collections.abc import Sequence

from privsketch.kernels.builder import Value, constant, llvm_type, select, undefined
from privsketch.kernels.kinds import I16, I32, Kind


def fma(a: Value, b: Value, c: Value | float) -> Value:
    """Compute a * b + c, rounded once."""
    return _intrinsic("fma", a, b, a.same_kind(c))


def exact_fma(a: Value, b: Value, c: Value) -> Value:
    """Compute a * b + c where product and sum are exact, in one or two instructions."""
    return _intrinsic("fmuladd", a, b, c)


def rint(x: Value) -> Value:
    """Round to the nearest integer, halves to even."""
    return _intrinsic("nearbyint", x)


def trunc(x: Value) -> Value:
    """Round to an integer towards 0."""
    return _intrinsic("trunc", x)


def sqrt(x: Value) -> Value:
    """Compute the square root, correctly rounded."""
    return _intrinsic("sqrt", x)


def absolute(x: Value) -> Value:
    """Return the absolute value."""
    return _intrinsic("fabs", x)


def clip(x: Value, low: Value, high: Value) -> Value:
    """Clip x to the range from low to high; NaN becomes one of the ends."""
    below = select(x < high, x, high)
    return select(low < below, below, low)


def maximum(x: Value, least: float) -> Value:
    """Return the larger of x and a constant."""
    return _intrinsic("maxnum", x, x.constant(least))


def vector_of(numbers: Sequence[Value]) -> Value:
    """Return a vector of these numbers, lane by lane."""
    routine, kind = numbers[0].routine, numbers[0].kind.vector(len(numbers))
    raw = undefined(kind)
    for lane, number in enumerate(numbers):
        raw = routine.writer.insert_element(raw, number.raw, constant(I32, str(lane)))
    return Value(routine, kind, raw)


def lane_sum(vector: Value) -> Value:
    """Add up the numbers of a vector, one half to the other at each step."""
    while vector.kind.lanes > 1:
        half = vector.kind.lanes // 2
        vector = vector.shuffled(range(half)) + vector.shuffled(range(half, 2 * half))
    return vector.bits_as(Kind(vector.kind.name))


def high_product(a: Value, b: Value) -> Value:
    """Return the upper 16 bits of products of signed 16-bit numbers."""
    product = _single_instruction("high product", a, b)
    return product or (a.signed_to(I32) * b.signed_to(I32) >> 16).unsigned_to(I16)


def rounded_product(a: Value, b: Value) -> Value:
    """Compute a b / 2^15 of signed 16-bit numbers, rounded to the nearest integer, halves up.

    Processors differ for a = b = -2^15, which callers must exclude.
    """
    product = _single_instruction("rounded product", a, b)
    if product is not None:
        return product
    high, low = high_product(a, b), a * b
    return high + high + (low >> 15) + (low >> 14 & 1)


def pairwise_products(a: Value, b: Value) -> Value:
    """Compute a0 b0 + a1 b1 of 16-bit numbers: LLVM turns this into one multiply-add."""
    product = a.signed_to(I32) * b.signed_to(I32)
    lanes = product.kind.lanes
    halves = [product.shuffled(range(start, start + lanes // 2)) for start in (0, lanes // 2)]
    sums = _single_instruction("pairwise sum", *halves)
    return sums or product.shuffled(range(0, lanes, 2)) + product.shuffled(range(1, lanes, 2))


# Single instructions that LLVM does not select for generic code: operation, width of vectors,
# instruction set, LLVM's name. For x86 without SSSE3 it would rewrite the generic form.
_INSTRUCTIONS = (
    ("rounded product", 512, "avx512bw", "llvm.x86.avx512.pmul.hr.sw.512"),
    ("rounded product", 256, "avx2", "llvm.x86.avx2.pmul.hr.sw"),
    ("rounded product", 128, "ssse3", "llvm.x86.ssse3.pmul.hr.sw.128"),
    ("rounded product", 128, "neon", "llvm.aarch64.neon.sqrdmulh.v8i16"),
    ("high product", 128, "sse2", "llvm.x86.sse2.pmulh.w"),
    ("pairwise sum", 128, "neon", "llvm.aarch64.neon.addp.v4i32"),
)


def _single_instruction(operation: str, a: Value, b: Value) -> Value | None:
    """Apply an operation by one instruction; return None if the processor has none for it."""
    width = a.kind.lanes * a.kind.number_bits
    for instruction, bits, word, name in _INSTRUCTIONS:
        if (instruction, bits) == (operation, width) and word in a.routine.words:
            return _call(name, a, b)
    return None


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial, lowest coefficient first, by Horner's rule and `fma`."""
    value = x.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = fma(value, x, coefficient)
    return value


def _intrinsic(name: str, *operands: Value) -> Value:
    """Call a function that LLVM has for every kind of floats."""
    kind = operands[0].kind
    lanes = f"v{kind.lanes}" if kind.lanes else ""
    return _call(f"llvm.{name}.{lanes}f{kind.number_bits}", *operands)


def _call(name: str, *operands: Value) -> Value:
    """Call a function of LLVM whose result has the kind of the operands."""
    routine, kind = operands[0].routine, operands[0].kind
    return Value(routine, kind, routine.call(name, llvm_type(kind), operands))
