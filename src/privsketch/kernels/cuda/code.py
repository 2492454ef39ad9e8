"""Routines that run on a graphics processor: `builder.Routine` and instructions of devices.

Many threads run a routine at once. 32 of them form a warp, which runs in lockstep. Several warps
form a block, which shares memory. LLVM translates a routine to PTX, and the driver compiles the PTX
for its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privsketch.kernels.builder import Pointer, Routine, Value, llvm_ir, llvm_type
from privsketch.kernels.kinds import I32, I64, Arguments
from privsketch.kernels.machine import Processor, assembly

WARP = 32
_TRIPLE = "nvptx64-nvidia-cuda"
_SHARED_MEMORY = 3  # LLVM's number of the memory that a block shares
_ALL_LANES = -1
# Targets of PTX by the least compute capability of a device, newest first. Newer devices run older
# PTX, and nothing here gains from their further instructions.
_TARGETS = (((9, 0), "sm_90", "ptx78"), ((8, 0), "sm_80", "ptx70"))
_HOPPER = (9, 0), "sm_90a", "ptx84"  # has instructions that no other generation has
LEAST_CAPABILITY = _TARGETS[-1][0]
# Types of the digits that the tensor cores multiply, by whether they are signed.
_DIGIT_TYPES = {True: "s8", False: "u8"}


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
        for attribute, number in (("maxntid", threads), ("minctasm", blocks_at_once)):
            set.add(function.attributes, f'"nvvm.{attribute}"="{number}"')

    def instruction(self, name: str, *operands: Value | int) -> Value:
        """Call an instruction with a 32-bit result; Python numbers are 32-bit operands."""
        values = [
            operand if isinstance(operand, Value) else self.constant(I32, operand)
            for operand in operands
        ]
        return Value(self, I32, self.call(f"llvm.nvvm.{name}", llvm_type(I32), values))

    @property
    def thread(self) -> Value:
        """Index of this thread in its block."""
        return self.instruction("read.ptx.sreg.tid.x")

    def block(self, axis: str = "x") -> Value:
        """Return the index of this block in the grid."""
        return self.instruction(f"read.ptx.sreg.ctaid.{axis}")

    @property
    def n_blocks(self) -> Value:
        """Number of blocks of the grid along its first axis."""
        return self.instruction("read.ptx.sreg.nctaid.x")

    def barrier(self) -> None:
        """Make all threads of the block wait for each other."""
        self.call("llvm.nvvm.barrier0", llvm_ir().VoidType(), [])

    def shared(self, n_bytes: int) -> Pointer:
        """Allocate memory of the block, of 32-bit numbers."""
        ir = llvm_ir()
        kind = ir.ArrayType(llvm_type(I32), n_bytes // 4)
        memory = ir.GlobalVariable(self.module, kind, "shared", addrspace=_SHARED_MEMORY)
        memory.linkage, memory.align = "internal", 16
        memory.initializer = ir.Constant(kind, ir.Undefined)
        memory.type = ir.PointerType(addrspace=_SHARED_MEMORY)  # a pointer to any kind
        return Pointer(self, I32, memory)

    def from_lane(self, value: Value, distance: int) -> Value:
        """Return the 32-bit value of the lane whose index differs in the bits of `distance`."""
        return self.instruction("shfl.sync.bfly.i32", _ALL_LANES, value, distance, 31)

    def select_bytes(self, low: Value, high: Value, selector: int) -> Value:
        """Select four of eight bytes by hexadecimal digits, the lowest byte by the last digit."""
        return self.instruction("prmt", low, high, selector)

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
        kinds = ".".join(dict.fromkeys(_DIGIT_TYPES[sign] for sign in signs))
        name = f"llvm.nvvm.mma.m16n8k{16 * len(right)}.row.col.{kinds}"
        return self._parts(self.call(name, _struct(4), [*left, *right, *added]), 4)

    def _parts(self, raw: Any, count: int) -> list[Value]:
        """Return the 32-bit numbers of a structure."""
        return [Value(self, I32, self.writer.extract_value(raw, part)) for part in range(count)]

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
        count = n_columns // 2
        rows = [value for _, left, _ in factors for value in left]
        addresses = [address for _, _, address in factors]
        sums = ", ".join(f"${index}" for index in range(count))
        lines = ["wgmma.fence.sync.aligned;"]
        operand, scale = count, "none" if added is None else "all"
        for number, (signs, left, _) in enumerate(factors):
            kinds = ".".join(_DIGIT_TYPES[sign] for sign in signs)
            for chunk in range(len(left) // 4):
                digits = ", ".join(f"${operand + index}" for index in range(4))
                # The next 32 numbers are 256 bytes away, counted in units of 16 bytes.
                lines.append(f"add.s64 columns, ${count + len(rows) + number}, {16 * chunk};")
                lines.append(
                    f"wgmma.mma_async.sync.aligned.m64n{n_columns}k32.s32.{kinds} "
                    f"{{{sums}}}, {{{digits}}}, columns, {scale};"
                )
                operand, scale = operand + 4, "all"
        lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
        text = (
            "{ .reg .pred none, all; .reg .b64 columns; setp.ne.u32 none, 0, 0; "
            f"setp.eq.u32 all, 0, 0; {' '.join(lines)} }}"
        )
        operands = [*rows, *addresses, *(added or ())]
        constraints = ["=&r"] * count + ["r"] * len(rows) + ["l"] * len(addresses)
        constraints += [str(index) for index in range(len(added or ()))] + ["~{memory}"]
        return self._parts(self._assembly(_struct(count), text, constraints, operands), count)

    def _assembly(
        self, result: Any, text: str, constraints: Sequence[str], operands: Sequence[Value]
    ) -> Any:
        """Write instructions that LLVM has no name for."""
        ir = llvm_ir()
        signature = ir.FunctionType(result, [llvm_type(operand.kind) for operand in operands])
        asm = ir.InlineAsm(signature, text, ",".join(constraints), side_effect=True)
        return self.writer.call(asm, [operand.raw for operand in operands])

    def publish_shared(self) -> None:
        """Make this thread's writes to shared memory visible to Hopper's tensor cores."""
        nothing = llvm_ir().VoidType()
        self._assembly(nothing, "fence.proxy.async.shared::cta;", ["~{memory}"], [])

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


def _struct(count: int) -> Any:
    """Return LLVM's type of a structure of 32-bit numbers."""
    return llvm_ir().LiteralStructType([llvm_type(I32)] * count)


def elements(vector: Value) -> list[Value]:
    """Return the numbers of a vector."""
    routine, kind = vector.routine, vector.kind
    indices = [routine.constant(I32, index).raw for index in range(kind.lanes)]
    numbers = [routine.writer.extract_element(vector.raw, index) for index in indices]
    return [Value(routine, kind.vector(0), number) for number in numbers]


def ptx_of(routine: DeviceRoutine, capability: tuple[int, int], *, hopper: bool = False) -> str:
    """Finish a routine and return its PTX for devices of at least this capability."""
    targets = (_HOPPER, *_TARGETS) if hopper else _TARGETS
    name, version = next(target[1:] for target in targets if target[0] <= capability)
    return assembly(routine.finish(), Processor(_TRIPLE, name, frozenset({version})))
