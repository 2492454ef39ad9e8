"""LLVM assembly to machine code, for the two loops that NumPy is too slow for.

Assembly is written line by line with generic vector instructions, so that LLVM can
compile it for any processor, and compiled in process through llvmlite (a tenth of a
second, on first use).
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64


class Writer:
    """Writes LLVM assembly, one numbered value per line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def line(self, text: str) -> None:
        """A line as it is: a label, a branch, a store."""
        self.lines.append(text)

    def value(self, text: str) -> str:
        """An instruction; the name of its value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def splat(self, scalar: str, kind: str, lanes: int) -> str:
        """A vector of the scalar in every lane."""
        vector = f"<{lanes} x {kind}>"
        one = self.value(f"insertelement {vector} poison, {kind} {scalar}, i32 0")
        return self.value(
            f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer"
        )

    def finish(self, vector_bits: int) -> str:
        """The whole text, with the attributes of functions marked #0."""
        # Without these LLVM may split vectors of 512 bits in two.
        self.line(
            f'attributes #0 = {{ nounwind "min-legal-vector-width"="{vector_bits}" '
            f'"prefer-vector-width"="{vector_bits}" }}'
        )
        return "\n".join(self.lines)


def integer_vector(constant: int, lanes: int) -> str:
    """A constant in every lane, as LLVM writes it."""
    return "<" + ", ".join([f"i32 {constant}"] * lanes) + ">"


def float_vector(constant: float, lanes: int, kind: str = "float") -> str:
    """A constant in every lane, as LLVM writes it: even single precision as a double's bits."""
    if kind == "float":
        constant = float(np.float32(constant))
    bits = struct.unpack("<Q", struct.pack("<d", constant))[0]
    return "<" + ", ".join([f"{kind} 0x{bits:016X}"] * lanes) + ">"


def vector_bits() -> int:
    """Width of the vector registers of this processor, in bits."""
    features = _llvm().get_host_cpu_features()
    return 512 if features.get("avx512bw") else 256 if features.get("avx2") else 128


@dataclass(frozen=True)
class Code:
    """A compiled function."""

    function: Any
    engine: Any  # owns the machine code


def compile_function(module: Any, name: str, *arguments: Any) -> Code:
    """Machine code of the function `name`, which returns nothing and takes `arguments`.

    `module` is one of llvmlite.ir, or LLVM assembly as text.
    """
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *arguments)
    return Code(signature(engine.get_function_address(name)), engine)


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A contiguous copy that starts at a multiple of 64 bytes, as vector loads want."""
    room = np.empty(array.nbytes + 64, dtype=np.uint8)
    skip = -room.ctypes.data % 64
    copy = room[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
