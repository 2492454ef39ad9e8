"""LLVM modules to machine code, in process through llvmlite (a tenth of a second).

Whoever compiles a kernel compares it with its definition before it is used: compilers have
errors too, and a wrong sum would be released as if it were right.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch.errors import KernelError

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64


def require_agreement(kernel: str, agrees: bool) -> None:
    """Refuses a kernel that does not give what it should for public numbers."""
    if not agrees:
        llvm = _llvm()
        version = ".".join(str(part) for part in llvm.llvm_version_info)
        raise KernelError(
            f"the compiled {kernel} kernel differs from its definition and is not used "
            f"(processor {llvm.get_host_cpu_name()}, LLVM {version}); install another version "
            "of llvmlite, and please report this"
        )


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
