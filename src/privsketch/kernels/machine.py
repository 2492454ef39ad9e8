"""Compile routines to machine code in this process, through llvmlite (a tenth of a second).

Each kernel is compared with its definition before it is used: compilers have errors, too, and a
wrong sum would be released as if it were right.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import KernelError
from privsketch.kernels.builder import Routine
from privsketch.kernels.kinds import DOUBLE, I32, I64, Kind

_C_TYPES: dict[Kind, Any] = {I32: ctypes.c_int32, I64: ctypes.c_int64, DOUBLE: ctypes.c_double}
_FAST_DPWSSD = 21  # first version of LLVM that knows this preference


def require_agreement(kernel: str, agrees: bool) -> None:
    """Refuse a kernel whose results differ from its definition."""
    if not agrees:
        llvm = _llvm()
        version = ".".join(str(part) for part in llvm.llvm_version_info)
        raise KernelError(
            f"the compiled {kernel} kernel differs from its definition and is not used "
            f"(processor {llvm.get_host_cpu_name()}, LLVM {version}); install another version "
            "of llvmlite, and please report this"
        )


@dataclass(frozen=True)
class Processor:
    """Target of compilation: architecture, processor and its instruction sets."""

    triple: str
    name: str
    words: frozenset[str]  # LLVM's names of instruction sets and preferences
    missing: frozenset[str] = frozenset()  # words that other processors of this name have

    @property
    def vector_bits(self) -> int:
        """Width of the vector registers."""
        return 512 if "avx512bw" in self.words else 256 if "avx2" in self.words else 128

    def target_machine(self) -> Any:
        """Return LLVM's code generator for this processor."""
        target = _llvm().Target.from_triple(self.triple)
        signs = [f"+{word}" for word in sorted(self.words)]
        signs += [f"-{word}" for word in sorted(self.missing)]
        return target.create_target_machine(cpu=self.name, features=",".join(signs), opt=3)


@cache
def this_processor() -> Processor:
    """Return the processor of this machine."""
    llvm = _llvm()
    supported, triple = llvm.get_host_cpu_features(), llvm.get_process_triple()
    words = {word for word, has in supported.items() if has}
    if triple.startswith(("aarch64", "arm64")):
        words.add("neon")  # all of them have it, but not all systems report it
    # Two generations of Intel's servers have a multiply-add of pairs that LLVM considers slow.
    if words & {"avx512vnni", "avxvnni"} and llvm.llvm_version_info[0] >= _FAST_DPWSSD:
        words.add("fast-dpwssd")
    missing = frozenset(supported) - words
    return Processor(triple, llvm.get_host_cpu_name(), frozenset(words), missing)


def processor() -> Processor:
    """Return the processor that kernels are compiled for."""
    return this_processor()


def vector_bits() -> int:
    """Return the width of the vector registers that kernels use, in bits."""
    return processor().vector_bits


@dataclass(frozen=True)
class Code:
    """A compiled function."""

    function: Any
    engine: Any  # owns the machine code


def compile_routine(routine: Routine) -> Code:
    """Compile a finished routine for this processor."""
    target = processor().target_machine()
    engine = _llvm().create_mcjit_compiler(optimise(routine, target), target)
    engine.finalize_object()
    kinds = routine.arguments.values()
    types = [_C_TYPES[kind] if isinstance(kind, Kind) else ctypes.c_void_p for kind in kinds]
    function = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address(routine.name))
    return Code(function, engine)


def assembly(routine: Routine, processor: Processor) -> str:
    """Return the assembly of a routine on any processor, for people and tests."""
    target = processor.target_machine()
    return str(target.emit_assembly(optimise(routine, target)))


def optimise(routine: Routine, target_machine: Any) -> Any:
    """Return the optimised module of a finished routine."""
    llvm = _llvm()
    module = llvm.parse_assembly(str(routine))
    module.verify()
    builder = llvm.create_pass_builder(target_machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module, builder)
    return module


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a contiguous copy that starts at a multiple of 64 bytes, for vector loads."""
    buffer = np.empty(array.nbytes + 64, dtype=np.uint8)
    skip = -buffer.ctypes.data % 64
    copy = buffer[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def address(array: npt.NDArray[Any] | None) -> int | None:
    """Return the address of an array, None for none."""
    return None if array is None else array.ctypes.data


@cache
def _llvm() -> Any:
    """Import llvmlite when it is needed, prepared for processors of any kind."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm
