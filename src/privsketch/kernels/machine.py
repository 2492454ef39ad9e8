"""LLVM modules to machine code, in process through llvmlite (a tenth of a second).

Whoever compiles a kernel compares it with its definition before it is used: compilers have
errors too, and a wrong sum would be released as if it were right.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import KernelError

POINTER, INTEGER = ctypes.c_void_p, ctypes.c_int64
_FAST_DPWSSD = 21  # LLVM's version that knows this preference


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


@dataclass(frozen=True)
class Processor:
    """What code is made for: an architecture, a processor of it, and what that one has."""

    triple: str
    name: str
    words: frozenset[str]  # LLVM's names of instruction sets and preferences
    lacking: frozenset[str] = frozenset()  # those that others of its name have

    @property
    def vector_bits(self) -> int:
        """Width of the vector registers."""
        return 512 if "avx512bw" in self.words else 256 if "avx2" in self.words else 128

    def target_machine(self) -> Any:
        """LLVM's compiler for it."""
        target = _llvm().Target.from_triple(self.triple)
        signs = [f"+{word}" for word in sorted(self.words)]
        signs += [f"-{word}" for word in sorted(self.lacking)]
        return target.create_target_machine(cpu=self.name, features=",".join(signs), opt=3)


@cache
def this_processor() -> Processor:
    """The one at hand."""
    llvm = _llvm()
    found, triple = llvm.get_host_cpu_features(), llvm.get_process_triple()
    words = {word for word, has in found.items() if has}
    if triple.startswith(("aarch64", "arm64")):
        words.add("neon")  # all of them have it, though not all systems say so
    # Intel's servers of two generations have a multiply-add of pairs that LLVM takes to be slow.
    if words & {"avx512vnni", "avxvnni"} and llvm.llvm_version_info[0] >= _FAST_DPWSSD:
        words.add("fast-dpwssd")
    lacking = frozenset(found) - words
    return Processor(triple, llvm.get_host_cpu_name(), frozenset(words), lacking)


def processor() -> Processor:
    """The one that kernels are compiled for."""
    return this_processor()


def vector_bits() -> int:
    """Width of the vector registers that kernels use, in bits."""
    return processor().vector_bits


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
    machine = processor().target_machine()
    engine = llvm.create_mcjit_compiler(_optimised(module, machine), machine)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *arguments)
    return Code(signature(engine.get_function_address(name)), engine)


def assembly(module: Any, processor: Processor) -> str:
    """What a module becomes on any processor, to be read by people and tests."""
    parsed, machine = _for_any(module, processor)
    return str(machine.emit_assembly(parsed))


def object_code(module: Any, processor: Processor) -> bytes:
    """The same as a file that can be linked."""
    parsed, machine = _for_any(module, processor)
    return bytes(machine.emit_object(parsed))


def _for_any(module: Any, processor: Processor) -> tuple[Any, Any]:
    llvm = _llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = processor.target_machine()
    return _optimised(module, machine), machine


def _optimised(module: Any, machine: Any) -> Any:
    llvm = _llvm()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(parsed, builder)
    return parsed


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
