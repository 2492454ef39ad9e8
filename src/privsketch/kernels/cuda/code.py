"""Routines that run on a graphics processor: what `builder` has, and what only such a one has.

A routine is run by many threads at once, 32 of them in step as a warp, some warps as a block that
shares memory. LLVM makes PTX of it, the assembly that the driver compiles for its own device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from privsketch.kernels.builder import I32, I64, Array, Kind, Pointer, Routine, Value

WARP = 32
_TRIPLE = "nvptx64-nvidia-cuda"
_SHARED = 3  # LLVM's number of the memory that a block shares
_ALL_LANES = -1
# What PTX is written for, by the least compute capability of a device, the newest first. Newer
# devices run older PTX, and nothing here gains from what they have beyond it.
_TARGETS = (((9, 0), "sm_90", "ptx78"), ((8, 0), "sm_80", "ptx70"))
_HOPPER = (9, 0), "sm_90a", "ptx84"  # with instructions that no other generation has
LEAST_CAPABILITY = _TARGETS[-1][0]
# Types of the digits that the tensor cores multiply, by whether they have a sign.
_DIGITS = {True: "s8", False: "u8"}


class DeviceRoutine(Routine):
    """A function that a grid of blocks runs, each of `threads` threads."""

    def __init__(
        self,
        name: str,
        arguments: Mapping[str, Kind | Array],
        *,
        threads: int,
        blocks_at_once: int = 1,
    ) -> None:
        super().__init__(name, arguments, vector_bits=128)
        self.module.triple = _TRIPLE
        function = self.writer.function
        function.calling_convention = "ptx_kernel"
        for word, number in (("maxntid", threads), ("minctasm", blocks_at_once)):
            set.add(function.attributes, f'"nvvm.{word}"="{number}"')

    def call(self, name: str, result: Kind | None, *operands: Value | int) -> Value:
        """An instruction that LLVM knows by a name; numbers beside values are 32-bit ones."""
        raws = self._call(name, None if result is None else _type(result), operands)
        return Value(self, result or I32, raws)

    def _call(self, name: str, result: Any, operands: Sequence[Value | int]) -> Any:
        ir = _ir()
        values = [
            each if isinstance(each, Value) else self.constant(I32, each) for each in operands
        ]
        function = self.module.globals.get(name)
        if function is None:
            kinds = [_type(value.kind) for value in values]
            function = ir.Function(
                self.module, ir.FunctionType(result or ir.VoidType(), kinds), name
            )
        return self.writer.call(function, [value.raw for value in values])

    @property
    def thread(self) -> Value:
        """The number of this thread in its block."""
        return self.call("llvm.nvvm.read.ptx.sreg.tid.x", I32)

    def block(self, axis: str = "x") -> Value:
        """The number of this block in the grid."""
        return self.call(f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", I32)

    @property
    def blocks(self) -> Value:
        """How many blocks the grid has along its first axis."""
        return self.call("llvm.nvvm.read.ptx.sreg.nctaid.x", I32)

    def barrier(self) -> None:
        """All threads of the block wait for each other."""
        self.call("llvm.nvvm.barrier0", None)

    def shared(self, n_bytes: int) -> Pointer:
        """Memory of the block, of 32-bit numbers."""
        ir = _ir()
        kind = ir.ArrayType(_type(I32), n_bytes // 4)
        memory = ir.GlobalVariable(self.module, kind, "shared", addrspace=_SHARED)
        memory.linkage, memory.align = "internal", 16
        memory.initializer = ir.Constant(kind, ir.Undefined)
        memory.type = ir.PointerType(addrspace=_SHARED)  # to any kind
        return Pointer(self, I32, memory)

    def from_lane(self, value: Value, distance: int) -> Value:
        """The 32-bit value of the lane whose number differs in the bits of `distance`."""
        return self.call("llvm.nvvm.shfl.sync.bfly.i32", I32, _ALL_LANES, value, distance, 31)

    def bytes_of(self, low: Value, high: Value, places: int) -> Value:
        """Four of eight bytes, by a hexadecimal digit each, the lowest last."""
        return self.call("llvm.nvvm.prmt", I32, low, high, places)

    def products(
        self,
        signs: tuple[bool, bool],
        left: Sequence[Value],
        right: Sequence[Value],
        added: Sequence[Value],
    ) -> list[Value]:
        """Tensor cores: 16 rows times 8 columns of 8-bit numbers, added to four 32-bit ones.

        Sums wrap. The two sides have a sign or not; they are 16 or 32 numbers deep.
        """
        ir = _ir()
        depth = 16 * len(right)
        kinds = ".".join(dict.fromkeys(_DIGITS[sign] for sign in signs))
        name = f"llvm.nvvm.mma.m16n8k{depth}.row.col.{kinds}"
        four = ir.LiteralStructType([_type(I32)] * 4)
        raw = self._call(name, four, [*left, *right, *added])
        return [Value(self, I32, self.writer.extract_value(raw, place)) for place in range(4)]

    def group_products(
        self,
        factors: Sequence[tuple[tuple[bool, bool], Sequence[Value], Value]],
        added: Sequence[Value] | None,
        n_columns: int,
    ) -> list[Value]:
        """Hopper's tensor cores: four warps multiply 64 rows by columns in shared memory.

        `factors` are signs, the digits of this warp's 16 rows, four registers for 32 numbers, and
        where the columns are. All products are added up, to `added` if there is anything.
        """
        ir, count = _ir(), n_columns // 2
        rows = [value for _, left, _ in factors for value in left]
        places = [place for _, _, place in factors]
        sums = ", ".join(f"${index}" for index in range(count))
        lines = ["wgmma.fence.sync.aligned;"]
        at, scale = count, "none" if added is None else "all"
        for number, (signs, left, _) in enumerate(factors):
            kinds = ".".join(_DIGITS[sign] for sign in signs)
            for chunk in range(len(left) // 4):
                digits = ", ".join(f"${at + index}" for index in range(4))
                # 32 numbers further are 256 bytes, counted in sixteens.
                lines.append(f"add.s64 place, ${count + len(rows) + number}, {16 * chunk};")
                lines.append(
                    f"wgmma.mma_async.sync.aligned.m64n{n_columns}k32.s32.{kinds} "
                    f"{{{sums}}}, {{{digits}}}, place, {scale};"
                )
                at, scale = at + 4, "all"
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        text = (
            "{ .reg .pred none, all; .reg .b64 place; setp.ne.u32 none, 0, 0; "
            f"setp.eq.u32 all, 0, 0; {' '.join(lines)} }}"
        )
        operands = [*rows, *places, *(added or ())]
        constraints = ["=&r"] * count + ["r"] * len(rows) + ["l"] * len(places)
        constraints += [str(index) for index in range(len(added or ()))] + ["~{memory}"]
        kinds_of = [_type(each.kind) for each in operands]
        signature = ir.FunctionType(ir.LiteralStructType([_type(I32)] * count), kinds_of)
        raw = self._assembly(signature, text, constraints, [each.raw for each in operands])
        return [Value(self, I32, self.writer.extract_value(raw, index)) for index in range(count)]

    def _assembly(
        self, signature: Any, text: str, constraints: Sequence[str], operands: Sequence[Any]
    ) -> Any:
        """Instructions that LLVM has no name for."""
        asm = _ir().InlineAsm(signature, text, ",".join(constraints), side_effect=True)
        return self.writer.call(asm, operands)

    def shared_is_written(self) -> None:
        """What this thread wrote to shared memory is there for Hopper's tensor cores too."""
        signature = _ir().FunctionType(_ir().VoidType(), [])
        self._assembly(signature, "fence.proxy.async.shared::cta;", ["~{memory}"], [])

    def shared_address(self, place: Pointer) -> Value:
        """The 64-bit number of a place in shared memory."""
        return Value(self, I64, self.writer.ptrtoint(place.raw, _type(I64)))

    def add_to(self, place: Pointer, value: Value) -> None:
        """Adds to a number in memory that other threads add to as well."""
        self.writer.atomic_rmw("add", place.raw, value.raw, "monotonic")


def signed_shift(value: Value, bits: int) -> Value:
    """Shifted right, with its sign."""
    routine = value.routine
    return Value(routine, value.kind, routine.writer.ashr(value.raw, value.constant(bits).raw))


def joined(values: Sequence[Value]) -> Value:
    """A vector of numbers."""
    routine, kind = values[0].routine, values[0].kind.vector(len(values))
    raw = routine.constant(kind, 0).raw
    for index, value in enumerate(values):
        raw = routine.writer.insert_element(raw, value.raw, routine.constant(I32, index).raw)
    return Value(routine, kind, raw)


def elements(vector: Value) -> list[Value]:
    """The numbers of a vector."""
    routine, kind = vector.routine, vector.kind
    return [
        Value(
            routine,
            kind.vector(0),
            routine.writer.extract_element(vector.raw, routine.constant(I32, index).raw),
        )
        for index in range(kind.lanes)
    ]


def ptx_of(routine: DeviceRoutine, capability: tuple[int, int], *, hopper: bool = False) -> str:
    """PTX of a routine that is finished here, for devices of at least that capability."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    known = (_HOPPER, *_TARGETS) if hopper else _TARGETS
    name, words = next(target[1:] for target in known if target[0] <= capability)
    target = llvm.Target.from_triple(_TRIPLE)
    machine = target.create_target_machine(cpu=name, features=f"+{words}", opt=3)
    module = llvm.parse_assembly(str(routine.finish()))
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


def _type(kind: Kind) -> Any:
    from privsketch.kernels import builder

    return builder._type(kind)


def _ir() -> Any:
    import llvmlite.ir as ir

    return ir
