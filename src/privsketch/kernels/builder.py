"""Compiled functions written as Python arithmetic.

A `Routine` is one function of an LLVM module. Its arguments and all results computed from them
are values (a number, or a vector of numbers) or pointers. Each operator writes one instruction,
in the order in which Python evaluates it. LLVM keeps the order of floating-point operations, so
rounding is as written. Instructions are generic: LLVM can compile a routine for any processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

from privsketch.kernels.kinds import DOUBLE, FLOAT, I1, I32, I64, Arguments, Kind


def _operator(name: str) -> Callable[[Value, Value | float], Value]:
    """Return a method that writes an instruction of two values, or its variant for floats."""

    def apply(left: Value, right: Value | float) -> Value:
        write = getattr(left.routine.writer, f"f{name}" if left.kind.is_float else name)
        return Value(left.routine, left.kind, write(left.raw, left.same_kind(right).raw))

    return apply


def _comparison(sign: str) -> Callable[[Value, Value | float], Value]:
    """Return a method that compares values; comparisons with NaN are false."""

    def compare(left: Value, right: Value | float) -> Value:
        writer = left.routine.writer
        write = writer.fcmp_ordered if left.kind.is_float else writer.icmp_unsigned
        raw = write(sign, left.raw, left.same_kind(right).raw)
        return Value(left.routine, I1.vector(left.kind.lanes), raw)

    return compare


class Value:
    """A number, or a vector of numbers, in the routine that is being written.

    Integers are unsigned: they wrap, `>>` shifts zeros in, and `<` compares them as unsigned. A
    Python number as the other operand is a constant of the same kind, in every lane.
    """

    def __init__(self, routine: Routine, kind: Kind, raw: Any) -> None:
        self.routine, self.kind, self.raw = routine, kind, raw

    def constant(self, number: float) -> Value:
        """Return a constant of the same kind."""
        return self.routine.constant(self.kind, number)

    def same_kind(self, other: Value | float) -> Value:
        """Return the other value, or a constant of the same kind."""
        return other if isinstance(other, Value) else self.constant(other)

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __and__, __or__, __xor__ = _operator("and_"), _operator("or_"), _operator("xor")
    __lshift__, __rshift__ = _operator("shl"), _operator("lshr")
    __floordiv__, __truediv__ = _operator("udiv"), _operator("div")  # of integers, of floats
    __lt__, __le__ = _comparison("<"), _comparison("<=")

    def __neg__(self) -> Value:
        return Value(self.routine, self.kind, self.routine.writer.fneg(self.raw))

    def _converted(self, name: str, number: Kind, lanes: int) -> Value:
        kind = number.vector(lanes)
        raw = getattr(self.routine.writer, name)(self.raw, llvm_type(kind))
        return Value(self.routine, kind, raw)

    def signed_to(self, number: Kind) -> Value:
        """Convert signed integers, or whole floats, to wider integers."""
        name = "fptosi" if self.kind.is_float else "sext"
        return self._converted(name, number, self.kind.lanes)

    def unsigned_to(self, number: Kind) -> Value:
        """Extend unsigned integers with zeros, or keep the lowest bits."""
        name = "zext" if number.number_bits > self.kind.number_bits else "trunc"
        return self._converted(name, number, self.kind.lanes)

    def to_double(self, *, signed: bool = True) -> Value:
        """Convert integers or floats to double precision, rounded to the nearest if necessary."""
        if self.kind.name == DOUBLE.name:
            return self
        name = "fpext" if self.kind.is_float else "sitofp" if signed else "uitofp"
        return self._converted(name, DOUBLE, self.kind.lanes)

    def bits_as(self, kind: Kind) -> Value:
        """Reinterpret the bits as another kind."""
        return self._converted("bitcast", kind, kind.lanes)

    def splat(self, lanes: int) -> Value:
        """Return a vector with the number in every lane."""
        kind, zero = self.kind.vector(lanes), constant(I32, "0")
        first = self.routine.writer.insert_element(undefined(kind), self.raw, zero)
        return Value(self.routine, kind, first).shuffled([0] * lanes)

    def shuffled(self, lanes: Sequence[int], other: Value | None = None) -> Value:
        """Select lanes of this vector; lanes of `other` are numbered after its own."""
        second = undefined(self.kind) if other is None else other.raw
        raw = self.routine.writer.shuffle_vector(self.raw, second, _shuffle(tuple(lanes)))
        return Value(self.routine, self.kind.vector(len(lanes)), raw)


class Pointer:
    """Address of numbers of one kind in memory; `+` advances it by a count of these numbers."""

    def __init__(self, routine: Routine, kind: Kind, raw: Any) -> None:
        self.routine, self.kind, self.raw = routine, kind, raw

    def __add__(self, index: Value | int) -> Pointer:
        offset = index if isinstance(index, Value) else self.routine.constant(I64, index)
        raw = self.routine.writer.gep(self.raw, [offset.raw], source_etype=llvm_type(self.kind))
        return Pointer(self.routine, self.kind, raw)

    def to(self, kind: Kind) -> Pointer:
        """Return the same address for numbers of another kind."""
        return Pointer(self.routine, kind, self.raw)

    def load(self, *, align: int = 0) -> Value:
        """Load a value; the alignment `align`, in bytes, is that of one number by default."""
        align = align or self.kind.number_bits // 8
        raw = self.routine.writer.load(self.raw, align=align, typ=llvm_type(self.kind))
        return Value(self.routine, self.kind, raw)

    def store(self, value: Value, *, align: int = 0) -> None:
        """Store a value; `align` is as in `load`."""
        self.routine.writer.store(value.raw, self.raw, align=align or value.kind.number_bits // 8)


class Routine:
    """A function without a result, alone in its module; `str` gives the module as LLVM assembly.

    Its arguments are numbers or arrays, in the order of a call. `numbers` and `pointers` hold them
    by name. `vector_bits` is the width of the vectors. `words` are LLVM's names of the processor's
    instruction sets; without them the code is generic.
    """

    def __init__(
        self,
        name: str,
        arguments: Arguments,
        *,
        vector_bits: int,
        words: frozenset[str] = frozenset(),
    ) -> None:
        ir = llvm_ir()
        self.name, self.arguments, self.words = name, arguments, words
        self.module = ir.Module(name)
        self.module.triple = ""  # that of the machine which compiles it
        kinds = [
            llvm_type(argument) if isinstance(argument, Kind) else ir.PointerType()
            for argument in arguments.values()
        ]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.attributes.add("nounwind")
        # Without these LLVM may split vectors of 512 bits in two. llvmlite does not know these
        # attributes, hence the set's own method.
        for attribute in ("min-legal-vector-width", "prefer-vector-width"):
            set.add(function.attributes, f'"{attribute}"="{vector_bits}"')
        self.numbers: dict[str, Value] = {}
        self.pointers: dict[str, Pointer] = {}
        for (key, argument), raw in zip(arguments.items(), function.args, strict=True):
            raw.name = key
            if isinstance(argument, Kind):
                self.numbers[key] = Value(self, argument, raw)
            else:
                raw.add_attribute("noalias")
                self.pointers[key] = Pointer(self, argument.of, raw)
        self.writer = ir.IRBuilder(function.append_basic_block("entry"))

    def call(self, name: str, result: Any, operands: Sequence[Value]) -> Any:
        """Call a function of LLVM with a result of this LLVM type; return LLVM's value."""
        function = self.module.globals.get(name)
        if function is None:
            ir = llvm_ir()
            kinds = [llvm_type(operand.kind) for operand in operands]
            function = ir.Function(self.module, ir.FunctionType(result, kinds), name)
        return self.writer.call(function, [operand.raw for operand in operands])

    def constant(self, kind: Kind, number: float) -> Value:
        """Return a constant in every lane; floats of single precision are rounded."""
        return Value(self, kind, constant(kind, str(number)))

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
        """Repeat the code in this context for indices from `start`, `step` apart, below `stop`.

        A step may depend on the index. The code runs at least once, unless `may_be_empty`.

        The list `carried` holds variables of the loop. Inside, its entries are the values at the
        start of an iteration, and values assigned to them are passed on to the next iteration.
        After the loop, they are the values of the last iteration.
        """
        writer, carried = self.writer, [] if carried is None else carried
        first, last = (
            bound if isinstance(bound, Value) else self.constant(I64, bound)
            for bound in (start, stop)
        )
        before, head = writer.block, writer.append_basic_block("loop")
        writer.branch(head)
        writer.position_at_end(head)
        initial = [first, *carried]
        running = [Value(self, old.kind, writer.phi(llvm_type(old.kind))) for old in initial]
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
        """Loop over `size` indices at a time; yield the first of them and their number."""

        def count(first: Value) -> Value:
            remaining, largest = stop - first, stop.constant(size)
            return select(remaining < largest, remaining, largest)

        with self.loop(stop, step=count, may_be_empty=may_be_empty) as first:
            yield first, count(first)

    def finish(self) -> Self:
        """End the function and return the routine."""
        self.writer.ret_void()
        return self

    def __str__(self) -> str:
        return str(self.module)


def select(condition: Value, yes: Value, no: Value) -> Value:
    """Return `yes` in lanes where the condition holds, and `no` elsewhere."""
    raw = condition.routine.writer.select(condition.raw, yes.raw, no.raw)
    return Value(yes.routine, yes.kind, raw)


@cache
def llvm_type(kind: Kind) -> Any:
    """Return LLVM's type of a kind."""
    ir = llvm_ir()
    if kind.lanes:
        return ir.VectorType(llvm_type(Kind(kind.name)), kind.lanes)
    if kind.is_float:
        return ir.FloatType() if kind == FLOAT else ir.DoubleType()
    return ir.IntType(kind.number_bits)


@cache
def constant(kind: Kind, text: str) -> Any:
    """Return a constant from its text: as keys of a cache, 0.0 and -0.0 would be equal."""
    return llvm_ir().Constant(llvm_type(kind), float(text) if kind.is_float else int(text))


@cache
def undefined(kind: Kind) -> Any:
    """Return an undefined value."""
    return llvm_ir().Constant(llvm_type(kind), llvm_ir().Undefined)


@cache
def _shuffle(lanes: tuple[int, ...]) -> Any:
    return llvm_ir().Constant(llvm_type(I32.vector(len(lanes))), list(lanes))


def llvm_ir() -> Any:
    """Import llvmlite when it is needed: most programs compile nothing."""
    import llvmlite.ir as ir

    return ir
