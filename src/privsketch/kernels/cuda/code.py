"""Routines that run on a graphics processor: `builder.Routine` and instructions of devices.

Many threads run a routine at once. 32 of them form a warp, which runs in step; several warps form
a block, which shares memory. LLVM translates a routine to PTX, and the driver compiles that for its
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privsketch.kernels.builder import Pointer, Routine, Value, llvm_ir, llvm_type
from privsketch.kernels.kinds import I32, I64, Arguments, Kind
from privsketch.kernels.machine import Processor, assembly

WARP = 32
_TRIPLE = "nvptx64-nvidia-cuda"
_SHARED = 3  # LLVM's number of the memory that a block shares
_ALL_LANES = -1
# Targets of PTX by the least compute capability of a device, the newest first. Newer devices run
# older PTX, and nothing here gains from their other instructions.
_TARGETS = (((9, 0), "sm_90", "ptx78"), ((8, 0), "sm_80", "ptx70"))
_HOPPER = (9, 0), "sm_90a", "ptx84"  # has instructions that no other generation has
LEAST_CAPABILITY = _TARGETS[-1][0]
# Types of the digits that the tensor cores multiply, by whether they are signed.
_DIGITS = {True: "s8", False: "u8"}


class DeviceRoutine(Routine):
    """A function that a grid of blocks runs, with `threads` threads each."""

    def __init__(
        self,
        name: str,
        arguments: Arguments,
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
        """Call an instruction by LLVM's name; Python numbers are 32-bit operands."""
        raw = self._call(name, None if result is None else llvm_type(result), operands)
        return Value(self, result or I32, raw)

    def _call(self, name: str, result: Any, operands: Sequence[Value | int]) -> Any:
        ir = llvm_ir()
        values = [
            each if isinstance(each, Value) else self.constant(I32, each) for each in operands
        ]
        function = self.module.globals.get(name)
        if function is None:
            kinds = [llvm_type(value.kind) for value in values]
            function = ir.Function(
                self.module, ir.FunctionType(result or ir.VoidType(), kinds), name
            )
        return self.writer.call(function, [value.raw for value in values])

    @property
    def thread(self) -> Value:
        """Index of this thread in its block."""
        return self.call("llvm.nvvm.read.ptx.sreg.tid.x", I32)

    def block(self, axis: str = "x") -> Value:
        """Return the index of this block in the grid."""
        return self.call(f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", I32)

    @property
    def blocks(self) -> Value:
        """Number of blocks of the grid along its first axis."""
        return self.call("llvm.nvvm.read.ptx.sreg.nctaid.x", I32)

    def barrier(self) -> None:
        """Make all threads of the block wait for each other."""
        self.call("llvm.nvvm.barrier0", None)

    def shared(self, n_bytes: int) -> Pointer:
        """Allocate memory of the block, of 32-bit numbers."""
        ir = llvm_ir()
        kind = ir.ArrayType(llvm_type(I32), n_bytes // 4)
        memory = ir.GlobalVariable(self.module, kind, "shared", addrspace=_SHARED)
        memory.linkage, memory.align = "internal", 16
        memory.initializer = ir.Constant(kind, ir.Undefined)
        memory.type = ir.PointerType(addrspace=_SHARED)  # a pointer to any kind
        return Pointer(self, I32, memory)

    def from_lane(self, value: Value, distance: int) -> Value:
        """Return the 32-bit value of the lane whose index differs in the bits of `distance`."""
        return self.call("llvm.nvvm.shfl.sync.bfly.i32", I32, _ALL_LANES, value, distance, 31)

    def select_bytes(self, low: Value, high: Value, selector: int) -> Value:
        """Select four of eight bytes by hexadecimal digits, the lowest byte by the last digit."""
        return self.call("llvm.nvvm.prmt", I32, low, high, selector)

    def products(
        self,
        signs: tuple[bool, bool],
        left: Sequence[Value],
        right: Sequence[Value],
        added: Sequence[Value],
    ) -> list[Value]:
        """Multiply 16 rows by 8 columns of 8-bit numbers on tensor cores, and add `added`.

        The 32-bit sums wrap. Each side is signed or unsigned, and 16 or 32 numbers deep.
        """
        ir = llvm_ir()
        depth = 16 * len(right)
        kinds = ".".join(dict.fromkeys(_DIGITS[sign] for sign in signs))
        name = f"llvm.nvvm.mma.m16n8k{depth}.row.col.{kinds}"
        four = ir.LiteralStructType([llvm_type(I32)] * 4)
        raw = self._call(name, four, [*left, *right, *added])
        return [Value(self, I32, self.writer.extract_value(raw, index)) for index in range(4)]

    def group_products(
        self,
        factors: Sequence[tuple[tuple[bool, bool], Sequence[Value], Value]],
        added: Sequence[Value] | None,
        n_columns: int,
    ) -> list[Value]:
        """Multiply 64 rows of four warps by columns in shared memory, on Hopper's tensor cores.

        A factor has signs, the digits of this warp's 16 rows (four registers for 32 numbers), and
        the address of the columns. All products are added up, to `added` if it is not None.
        """
        ir, count = llvm_ir(), n_columns // 2
        rows = [value for _, left, _ in factors for value in left]
        addresses = [address for _, _, address in factors]
        sums = ", ".join(f"${index}" for index in range(count))
        lines = ["wgmma.fence.sync.aligned;"]
        at, scale = count, "none" if added is None else "all"
        for number, (signs, left, _) in enumerate(factors):
            kinds = ".".join(_DIGITS[sign] for sign in signs)
            for chunk in range(len(left) // 4):
                digits = ", ".join(f"${at + index}" for index in range(4))
                # The next 32 numbers are 256 bytes away, counted in units of 16 bytes.
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
        operands = [*rows, *addresses, *(added or ())]
        constraints = ["=&r"] * count + ["r"] * len(rows) + ["l"] * len(addresses)
        constraints += [str(index) for index in range(len(added or ()))] + ["~{memory}"]
        types = [llvm_type(each.kind) for each in operands]
        signature = ir.FunctionType(ir.LiteralStructType([llvm_type(I32)] * count), types)
        raw = self._assembly(signature, text, constraints, [each.raw for each in operands])
        return [Value(self, I32, self.writer.extract_value(raw, index)) for index in range(count)]

    def _assembly(
        self, signature: Any, text: str, constraints: Sequence[str], operands: Sequence[Any]
    ) -> Any:
        """Write instructions that LLVM has no name for."""
        asm = llvm_ir().InlineAsm(signature, text, ",".join(constraints), side_effect=True)
        return self.writer.call(asm, operands)

    def publish_shared(self) -> None:
        """Make this thread's writes to shared memory visible to Hopper's tensor cores."""
        signature = llvm_ir().FunctionType(llvm_ir().VoidType(), [])
        self._assembly(signature, "fence.proxy.async.shared::cta;", ["~{memory}"], [])

    def shared_address(self, pointer: Pointer) -> Value:
        """Return the address of a pointer to shared memory as a 64-bit number."""
        return Value(self, I64, self.writer.ptrtoint(pointer.raw, llvm_type(I64)))

    def add_to(self, pointer: Pointer, value: Value) -> None:
        """Add to a number in memory that other threads add to as well."""
        self.writer.atomic_rmw("add", pointer.raw, value.raw, "monotonic")


def signed_shift(value: Value, bits: int) -> Value:
    """Shift to the right, keeping the sign."""
    routine = value.routine
    return Value(routine, value.kind, routine.writer.ashr(value.raw, value.constant(bits).raw))


def joined(values: Sequence[Value]) -> Value:
    """Return a vector of these numbers."""
    routine, kind = values[0].routine, values[0].kind.vector(len(values))
    raw = routine.constant(kind, 0).raw
    for index, value in enumerate(values):
        raw = routine.writer.insert_element(raw, value.raw, routine.constant(I32, index).raw)
    return Value(routine, kind, raw)


def elements(vector: Value) -> list[Value]:
    """Return the numbers of a vector."""
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
    """Finish a routine and return its PTX for devices of at least this capability."""
    targets = (_HOPPER, *_TARGETS) if hopper else _TARGETS
    name, version = next(target[1:] for target in targets if target[0] <= capability)
    return assembly(routine.finish(), Processor(_TRIPLE, name, frozenset({version})))
