"""Machine code as arithmetic: numbers of a compiled function that one calculates with.

A `Routine` is one function of an LLVM module. Its arguments, and all that is calculated from
them, are a `Value` (a number, or a vector of numbers) or a `Pointer`. Operators write one
instruction each, in the order in which Python meets them, and LLVM keeps the order of
floating-point operations: what a kernel says is what is rounded. Instructions are generic, so
that LLVM can compile a routine for any processor, but for a few that it does not find by itself
and that a `Routine` uses where it is told that the processor has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What a value is: a number, or `lanes` of them side by side."""

    name: str  # as LLVM writes it
    lanes: int = 0

    def vector(self, lanes: int) -> Kind:
        """As many numbers of this kind."""
        return Kind(self.name, lanes)

    @property
    def is_float(self) -> bool:
        """Whether these are floating-point numbers."""
        return self.name in ("float", "double")

    @property
    def number_bits(self) -> int:
        """Size of one number, in bits."""
        return {"float": 32, "double": 64}[self.name] if self.is_float else int(self.name[1:])


I1, I8, I16, I32, I64 = (Kind(f"i{bits}") for bits in (1, 8, 16, 32, 64))
FLOAT, DOUBLE = Kind("float"), Kind("double")


@dataclass(frozen=True)
class Array:
    """An argument that points to numbers of a kind, which no other argument points to."""

    of: Kind


def _operator(name: str) -> Callable[[Value, Value | float], Value]:
    """Applies an instruction of two values, or its namesake for floats."""

    def apply(left: Value, other: Value | float) -> Value:
        right = other if isinstance(other, Value) else left.constant(other)
        write = getattr(left.routine.writer, f"f{name}" if left.kind.is_float else name)
        return Value(left.routine, left.kind, write(left.raw, right.raw))

    return apply


def _comparison(sign: str) -> Callable[[Value, Value | float], Value]:
    """Compares numbers; what is not a number is neither above nor below any."""

    def compare(left: Value, other: Value | float) -> Value:
        right = other if isinstance(other, Value) else left.constant(other)
        writer = left.routine.writer
        write = writer.fcmp_ordered if left.kind.is_float else writer.icmp_unsigned
        raw = write(sign, left.raw, right.raw)
        return Value(left.routine, I1.vector(left.kind.lanes), raw)

    return compare


class Value:
    """A number, or a vector of numbers, of the routine that is being written.

    Integers have no sign: they wrap, `>>` brings in zeros, and `<` compares from 0 up. A
    Python number beside a value is a constant of its kind, in every lane.
    """

    def __init__(self, routine: Routine, kind: Kind, raw: Any) -> None:
        self.routine, self.kind, self.raw = routine, kind, raw

    def constant(self, number: float) -> Value:
        """A number of the same kind."""
        return self.routine.constant(self.kind, number)

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __and__, __or__, __xor__ = _operator("and_"), _operator("or_"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("lshr")
    __floordiv__, __truediv__ = _operator("udiv"), _operator("div")  # of integers, of floats
    __lt__, __le__ = _comparison("<"), _comparison("<=")

    def __neg__(self) -> Value:
        return Value(self.routine, self.kind, self.routine.writer.fneg(self.raw))

    def _converted(self, name: str, number: Kind, lanes: int) -> Value:
        kind = number.vector(lanes)
        raw = getattr(self.routine.writer, name)(self.raw, _type(kind))
        return Value(self.routine, kind, raw)

    def signed_to(self, number: Kind) -> Value:
        """Integers with a sign, or floats without a fraction, as wider integers."""
        name = "fptosi" if self.kind.is_float else "sext"
        return self._converted(name, number, self.kind.lanes)

    def unsigned_to(self, number: Kind) -> Value:
        """Integers without a sign as wider ones, or the lowest bits of integers."""
        name = "zext" if number.number_bits > self.kind.number_bits else "trunc"
        return self._converted(name, number, self.kind.lanes)

    def to_double(self, *, signed: bool = True) -> Value:
        """Integers or floats in double precision, rounded to the nearest where they must be."""
        if self.kind.name == DOUBLE.name:
            return self
        name = "fpext" if self.kind.is_float else "sitofp" if signed else "uitofp"
        return self._converted(name, DOUBLE, self.kind.lanes)

    def bits_as(self, kind: Kind) -> Value:
        """The same bits, read as another kind."""
        return self._converted("bitcast", kind, kind.lanes)

    def splat(self, lanes: int) -> Value:
        """The number in every lane of a vector."""
        kind, zero = self.kind.vector(lanes), _constant(I32, "0")
        first = self.routine.writer.insert_element(_undefined(kind), self.raw, zero)
        return Value(self.routine, kind, first).shuffled([0] * lanes)

    def shuffled(self, places: Sequence[int], other: Value | None = None) -> Value:
        """Some lanes of this vector, or of this one and another that follows it."""
        second = _undefined(self.kind) if other is None else other.raw
        raw = self.routine.writer.shuffle_vector(self.raw, second, _shuffle(tuple(places)))
        return Value(self.routine, self.kind.vector(len(places)), raw)


class Pointer:
    """Where numbers of a kind lie in memory; `+` counts in those numbers."""

    def __init__(self, routine: Routine, kind: Kind, raw: Any) -> None:
        self.routine, self.kind, self.raw = routine, kind, raw

    def __add__(self, index: Value | int) -> Pointer:
        place = index if isinstance(index, Value) else self.routine.constant(I64, index)
        raw = self.routine.writer.gep(self.raw, [place.raw], source_etype=_type(self.kind))
        return Pointer(self.routine, self.kind, raw)

    def to(self, kind: Kind) -> Pointer:
        """The same place, as one of numbers of another kind."""
        return Pointer(self.routine, kind, self.raw)

    def load(self, *, align: int = 0) -> Value:
        """What lies there; `align` in bytes is that of one number unless told."""
        align = align or self.kind.number_bits // 8
        raw = self.routine.writer.load(self.raw, align=align, typ=_type(self.kind))
        return Value(self.routine, self.kind, raw)

    def store(self, value: Value, *, align: int = 0) -> None:
        """Puts a value there."""
        self.routine.writer.store(value.raw, self.raw, align=align or value.kind.number_bits // 8)


class Routine:
    """A function that returns nothing, alone in its module.

    Its arguments, in the order of a call, are numbers or arrays; inside, they are found by
    name in `numbers` and `pointers`. `vector_bits` is the width of its vectors, `words` what the
    processor has, by LLVM's names; without them the code is generic.
    """

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Kind | Array],
        *,
        vector_bits: int,
        words: frozenset[str] = frozenset(),
    ) -> None:
        ir = _ir()
        self.words = words
        self.module = ir.Module(name)
        self.module.triple = ""  # that of the machine which compiles it
        kinds = [
            _type(each) if isinstance(each, Kind) else ir.PointerType()
            for each in arguments.values()
        ]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.attributes.add("nounwind")
        # Without these LLVM may split vectors of 512 bits in two. They are words that
        # llvmlite does not know, hence the set's own method.
        for word in ("min-legal-vector-width", "prefer-vector-width"):
            set.add(function.attributes, f'"{word}"="{vector_bits}"')
        self.numbers: dict[str, Value] = {}
        self.pointers: dict[str, Pointer] = {}
        for (key, each), raw in zip(arguments.items(), function.args, strict=True):
            raw.name = key
            if isinstance(each, Kind):
                self.numbers[key] = Value(self, each, raw)
            else:
                raw.add_attribute("noalias")
                self.pointers[key] = Pointer(self, each.of, raw)
        self.writer = ir.IRBuilder(function.append_basic_block("entry"))

    def constant(self, kind: Kind, number: float) -> Value:
        """A number in every lane; floats of single precision are rounded to it."""
        return Value(self, kind, _constant(kind, str(number)))

    @contextmanager
    def loop(
        self,
        stop: Value | int,
        carried: list[Value] | None = None,
        *,
        start: Value | int = 0,
        step: int | Callable[[Value], Value] = 1,
        may_be_empty: bool = False,
    ) -> Iterator[Value]:
        """The code in this context for numbers from `start`, `step` apart, below `stop`.

        A step may depend on the number it starts from. There is one round at least, unless
        the loop `may_be_empty`.

        Entries of the list `carried` are handed from one round to the next: inside, they are
        what the round starts with, and what the code assigns to them is what the next one
        gets; behind the loop, they are what the last one left.
        """
        writer, carried = self.writer, [] if carried is None else carried
        first, last = (
            each if isinstance(each, Value) else self.constant(I64, each) for each in (start, stop)
        )
        before, head = writer.block, writer.append_basic_block("loop")
        writer.branch(head)
        writer.position_at_end(head)
        initial = [first, *carried]
        running = [Value(self, each.kind, writer.phi(_type(each.kind))) for each in initial]
        index, carried[:] = running[0], running[1:]
        done = None
        if may_be_empty:
            body, done = writer.append_basic_block("body"), writer.append_basic_block("done")
            writer.cbranch((index < last).raw, body, done)
            writer.position_at_end(body)
        yield index
        following = [index + (step(index) if callable(step) else step), *carried]
        for phi, old, new in zip(running, initial, following, strict=True):
            phi.raw.add_incoming(old.raw, before)
            phi.raw.add_incoming(new.raw, writer.block)
        if done is not None:
            writer.branch(head)
            carried[:] = running[1:]
        else:
            done = writer.append_basic_block("done")
            writer.cbranch((following[0] < last).raw, head, done)
        writer.position_at_end(done)

    @contextmanager
    def tile(
        self, stop: Value, size: int, *, may_be_empty: bool = False
    ) -> Iterator[tuple[Value, Value]]:
        """The same for `size` numbers at a time: the first of them, and how many there are."""

        def count(first: Value) -> Value:
            left, most = stop - first, stop.constant(size)
            return select(left < most, left, most)

        with self.loop(stop, step=count, may_be_empty=may_be_empty) as first:
            yield first, count(first)

    def finish(self) -> Any:
        """Ends the function; its module, which is text as a string."""
        self.writer.ret_void()
        return self.module


def select(condition: Value, one: Value, other: Value) -> Value:
    """Lane by lane, one value where the condition holds and the other where not."""
    raw = one.routine.writer.select(condition.raw, one.raw, other.raw)
    return Value(one.routine, one.kind, raw)


def fma(a: Value, b: Value, c: Value | float) -> Value:
    """a * b + c, rounded once."""
    return _intrinsic("fma", a, b, c if isinstance(c, Value) else a.constant(c))


def exact_fma(a: Value, b: Value, c: Value) -> Value:
    """a * b + c of numbers for which product and sum are exact, however the processor does it."""
    return _intrinsic("fmuladd", a, b, c)


def nearest_integer(x: Value) -> Value:
    """Rounded to a whole number, halves to even."""
    return _intrinsic("nearbyint", x)


def truncated(x: Value) -> Value:
    """Rounded to a whole number towards 0."""
    return _intrinsic("trunc", x)


def square_root(x: Value) -> Value:
    """Rounded to the nearest number."""
    return _intrinsic("sqrt", x)


def magnitude(x: Value) -> Value:
    """Without its sign."""
    return _intrinsic("fabs", x)


def clipped(x: Value, low: Value, high: Value) -> Value:
    """The number between low and high that is nearest to x; one of them if x is not a number."""
    below = select(x < high, x, high)
    return select(low < below, below, low)


def maximum(x: Value, least: float) -> Value:
    """The larger of x and a number."""
    return _intrinsic("maxnum", x, x.constant(least))


def vector_of(numbers: Sequence[Value]) -> Value:
    """Numbers side by side."""
    routine, kind = numbers[0].routine, numbers[0].kind.vector(len(numbers))
    raw = _undefined(kind)
    for lane, number in enumerate(numbers):
        raw = routine.writer.insert_element(raw, number.raw, _constant(I32, str(lane)))
    return Value(routine, kind, raw)


def lanes_added(vector: Value) -> Value:
    """The sum of the numbers of a vector, halves of it first."""
    while vector.kind.lanes > 1:
        half = vector.kind.lanes // 2
        vector = vector.shuffled(range(half)) + vector.shuffled(range(half, 2 * half))
    return vector.bits_as(Kind(vector.kind.name))


def high_product(a: Value, b: Value) -> Value:
    """The upper 16 bits of products of 16-bit numbers with a sign."""
    named = _named("high product", a, b)
    if named is not None:
        return named
    return (a.signed_to(I32) * b.signed_to(I32) >> 16).unsigned_to(I16)


def rounded_product(a: Value, b: Value) -> Value:
    """a b / 2^15 of 16-bit numbers with a sign, rounded to the nearest integer, halves up.

    Not for a = b = -2^15, where processors differ.
    """
    named = _named("rounded product", a, b)
    if named is not None:
        return named
    high, low = high_product(a, b), a * b
    return high + high + (low >> 15) + (low >> 14 & 1)


def pairwise_products(a: Value, b: Value) -> Value:
    """a0 b0 + a1 b1 of 16-bit numbers: a shape LLVM turns into one multiply-add instruction."""
    product = a.signed_to(I32) * b.signed_to(I32)
    lanes = product.kind.lanes
    halves = [product.shuffled(range(start, start + lanes // 2)) for start in (0, lanes // 2)]
    named = _named("pairwise sum", *halves)
    if named is not None:
        return named
    even = range(0, lanes, 2)
    return product.shuffled(even) + product.shuffled([place + 1 for place in even])


# Single instructions that LLVM does not find in generic code: what they do, width of vectors, what
# the processor has, LLVM's name. Of x86 without SSSE3 it rewrites the generic form.
_INSTRUCTIONS = (
    ("rounded product", 512, "avx512bw", "llvm.x86.avx512.pmul.hr.sw.512"),
    ("rounded product", 256, "avx2", "llvm.x86.avx2.pmul.hr.sw"),
    ("rounded product", 128, "ssse3", "llvm.x86.ssse3.pmul.hr.sw.128"),
    ("rounded product", 128, "neon", "llvm.aarch64.neon.sqrdmulh.v8i16"),
    ("high product", 128, "sse2", "llvm.x86.sse2.pmulh.w"),
    ("pairwise sum", 128, "neon", "llvm.aarch64.neon.addp.v4i32"),
)


def _named(what: str, a: Value, b: Value) -> Value | None:
    """The one instruction that does it, if the processor has one."""
    width = a.kind.lanes * a.kind.number_bits
    for name, bits, word, called in _INSTRUCTIONS:
        if (name, bits) == (what, width) and word in a.routine.words:
            return _call(called, a, b)
    return None


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Coefficients, lowest first, by Horner's rule with one rounding a step."""
    value = x.constant(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = fma(value, x, coefficient)
    return value


def _intrinsic(name: str, *operands: Value) -> Value:
    """A function that LLVM knows for every kind of floats, which is that of the operands."""
    kind = operands[0].kind
    lanes = f"v{kind.lanes}" if kind.lanes else ""
    return _call(f"llvm.{name}.{lanes}f{kind.number_bits}", *operands)


def _call(name: str, *operands: Value) -> Value:
    """A function that LLVM knows, whose result is of the kind of the operands."""
    ir, routine, kind = _ir(), operands[0].routine, operands[0].kind
    function = routine.module.globals.get(name)
    if function is None:
        signature = ir.FunctionType(_type(kind), [_type(kind)] * len(operands))
        function = ir.Function(routine.module, signature, name)
    raw = routine.writer.call(function, [each.raw for each in operands])
    return Value(routine, kind, raw)


@cache
def _type(kind: Kind) -> Any:
    ir = _ir()
    if kind.lanes:
        return ir.VectorType(_type(Kind(kind.name)), kind.lanes)
    if kind.is_float:
        return ir.FloatType() if kind == FLOAT else ir.DoubleType()
    return ir.IntType(kind.number_bits)


@cache
def _constant(kind: Kind, text: str) -> Any:
    """A constant by its text: as numbers, 0.0 and -0.0 would be the same."""
    return _ir().Constant(_type(kind), float(text) if kind.is_float else int(text))


@cache
def _undefined(kind: Kind) -> Any:
    return _ir().Constant(_type(kind), _ir().Undefined)


@cache
def _shuffle(places: tuple[int, ...]) -> Any:
    return _ir().Constant(_type(I32.vector(len(places))), list(places))


def _ir() -> Any:
    """Imported when needed: most programs compile nothing."""
    import llvmlite.ir as ir

    return ir
