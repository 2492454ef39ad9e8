"""Direct calls of NVIDIA's driver: contexts, memory, streams, PTX to functions, launches.

This module wraps the part of libcuda that the engine needs. libcuda comes with the driver, so there
is nothing to install. The context is the device's primary one, which other libraries use too, so
their arrays can be read without a copy.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import KernelError
from privsketch.kernels.cuda.code import LEAST_CAPABILITY

_MAJOR, _MINOR, _MULTIPROCESSORS = 75, 76, 16  # attributes of a device, by number
_MEMORY_TYPE, _DEVICE_NUMBER = 2, 9  # attributes of a pointer
_PINNED = 1  # type of the host's memory
_NON_BLOCKING = 1  # a stream that does not wait for the one of other libraries
_OUT_OF_MEMORY = 2
_HOPPER = (9, 0)
_HOPPER_DRIVER = 13000  # first version known to compile Hopper's own instructions in large blocks
# Bytes of unused memory that is not returned to the driver: of one piece, and in total.
_MAX_SPARE_PIECE, _MAX_SPARE = 2**25, 2**28


class DeviceError(KernelError):
    """No device can be used, or a call of the driver failed."""


@cache
def device() -> Device:
    """Return the first device; raise a DeviceError that says why there is none."""
    library = _library()
    code = library.cuInit(0)
    count = c_int()
    if code == 0:
        code = library.cuDeviceGetCount(byref(count))
    if code or not count.value:
        reason = f" ({_error_text(library, code)})" if code else ""
        raise DeviceError(
            f"`engine='cuda'`: NVIDIA's driver finds no device{reason}; use `engine='threads'`"
        )
    number, context, name = c_int(), c_void_p(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", byref(number), 0)
    call("cuDeviceGetName", name, len(name), number)
    capability = _attribute(number, _MAJOR), _attribute(number, _MINOR)
    if capability < LEAST_CAPABILITY:
        raise DeviceError(
            f"`engine='cuda'`: {name.value.decode()} has compute capability "
            f"{_version(capability)}, at least {_version(LEAST_CAPABILITY)} is needed; use "
            "`engine='threads'`"
        )
    call("cuDevicePrimaryCtxRetain", byref(context), number)
    multiprocessors = _attribute(number, _MULTIPROCESSORS)
    version = c_int()
    call("cuDriverGetVersion", byref(version))
    is_hopper = capability == _HOPPER and version.value >= _HOPPER_DRIVER
    return Device(name.value.decode(), capability, multiprocessors, is_hopper, context)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver; raise a DeviceError unless it succeeds."""
    library = _library()
    code = getattr(library, name)(*arguments)
    if code == _OUT_OF_MEMORY:
        raise DeviceError("`engine='cuda'`: out of device memory or of pinned memory")
    if code:
        text = _error_text(library, code)
        raise DeviceError(f"`engine='cuda'`: the driver's {name} failed: {text}")


@dataclass(frozen=True)
class Device:
    """A device and its primary context."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    is_hopper: bool  # and the driver knows its instructions
    context: c_void_p = field(repr=False)

    def use(self) -> None:
        """Make this device the current one of a thread, before any other call."""
        call("cuCtxSetCurrent", self.context)

    def wait(self) -> None:
        """Wait for all work on the device."""
        call("cuCtxSynchronize")

    def load(self, ptx: str, name: str) -> Function:
        """Compile PTX and return one of its functions."""
        module, function = c_void_p(), c_void_p()
        call("cuModuleLoadData", byref(module), c_char_p(ptx.encode()))
        call("cuModuleGetFunction", byref(function), module, name.encode())
        return Function(function)


@dataclass(frozen=True)
class Function:
    """A function of a device; its module stays loaded as long as the process lives."""

    handle: c_void_p

    def blocks_at_once(self, threads: int) -> int:
        """Return how many blocks of this size one multiprocessor runs at a time."""
        count, name = c_int(), "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        call(name, byref(count), self.handle, c_int(threads), c_size_t(0))
        return count.value

    def launch(
        self, grid: tuple[int, int], threads: int, stream: Stream, arguments: Sequence[int]
    ) -> None:
        """Start a grid of blocks; all arguments are 64-bit numbers or addresses."""
        values = [c_uint64(argument) for argument in arguments]  # negative numbers wrap
        addresses = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = [*grid, 1, threads, 1, 1, 0]
        call("cuLaunchKernel", self.handle, *map(c_uint, sizes), stream.handle, addresses, None)


class Memory:
    """Memory of the device, or pinned memory of the host; freed with the object.

    Small pieces are reused: the driver takes a millisecond to allocate a piece, and half a
    millisecond for every megabyte that it pins.
    """

    def __init__(self, n_bytes: int, *, pinned: bool = False) -> None:
        self.pinned, self.n_bytes = pinned, max(1, n_bytes)
        if self.n_bytes <= _MAX_SPARE_PIECE:
            self.n_bytes = max(4096, 1 << (self.n_bytes - 1).bit_length())
        self.address = _spare.pop(pinned, self.n_bytes) or _allocated(self.n_bytes, pinned)

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return pinned memory as an array, which must not outlive this object."""
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        buffer = memoryview((ctypes.c_uint8 * n_bytes).from_address(self.address))
        array: npt.NDArray[Any] = np.frombuffer(buffer, dtype=dtype).reshape(shape)
        return array

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "address"):
            _spare.put(self.pinned, self.n_bytes, self.address)


class _Spare:
    """Unused memory by kind and size; memory beyond the limit is freed."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[bool, int], list[int]] = {}
        self._total = {False: 0, True: 0}
        self._lock = threading.RLock()  # the garbage collector may call `put` inside `pop`

    def pop(self, pinned: bool, n_bytes: int) -> int | None:
        """Return a piece of exactly this size; None if there is none."""
        with self._lock:
            pieces = self._pieces.get((pinned, n_bytes))
            if not pieces:
                return None
            self._total[pinned] -= n_bytes
            return pieces.pop()

    def put(self, pinned: bool, n_bytes: int, address: int) -> None:
        """Keep a piece for reuse, or free it."""
        with self._lock:
            if n_bytes <= _MAX_SPARE_PIECE and self._total[pinned] + n_bytes <= _MAX_SPARE:
                self._total[pinned] += n_bytes
                self._pieces.setdefault((pinned, n_bytes), []).append(address)
                return
        device().use()
        if pinned:
            _library().cuMemFreeHost(c_void_p(address))
        else:
            _library().cuMemFree_v2(c_uint64(address))


_spare = _Spare()


def _allocated(n_bytes: int, pinned: bool) -> int:
    if pinned:
        pointer = c_void_p()
        call("cuMemHostAlloc", byref(pointer), c_size_t(n_bytes), c_uint(0))
        return int(pointer.value or 0)
    number = c_uint64()
    call("cuMemAlloc_v2", byref(number), c_size_t(n_bytes))
    return int(number.value)


class Stream:
    """A queue of work that runs in order, concurrently with other streams."""

    def __init__(self) -> None:
        self.handle = c_void_p()
        call("cuStreamCreate", byref(self.handle), c_uint(_NON_BLOCKING))

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.handle:
            _library().cuStreamDestroy_v2(self.handle)

    def wait(self) -> None:
        """Wait for all work of this stream."""
        call("cuStreamSynchronize", self.handle)

    def to_device(self, target: int, source: npt.NDArray[Any]) -> None:
        """Start to copy a contiguous array, which must not change until the copy is complete."""
        address, size = c_void_p(source.ctypes.data), c_size_t(source.nbytes)
        call("cuMemcpyHtoDAsync_v2", c_uint64(target), address, size, self.handle)

    def to_host(self, target: npt.NDArray[Any], source: int) -> None:
        """Start to copy to a contiguous array."""
        address, size = c_void_p(target.ctypes.data), c_size_t(target.nbytes)
        call("cuMemcpyDtoHAsync_v2", address, c_uint64(source), size, self.handle)

    def clear(self, target: int, n_bytes: int) -> None:
        """Start to fill memory with zeros."""
        call("cuMemsetD8Async", c_uint64(target), ctypes.c_ubyte(0), c_size_t(n_bytes), self.handle)


def to_device(array: npt.NDArray[Any]) -> Memory:
    """Copy an array to the device, and wait for the copy.

    The driver may return before the copy is complete, and our streams would not wait for it.
    """
    memory, array = Memory(array.nbytes), np.ascontiguousarray(array)
    size = c_size_t(array.nbytes)
    call("cuMemcpyHtoD_v2", c_uint64(memory.address), c_void_p(array.ctypes.data), size)
    call("cuStreamSynchronize", c_void_p())
    return memory


def to_host(memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Wait for all work on the device, and copy its memory to an array."""
    device().wait()
    array = np.empty(shape, dtype)
    size = c_size_t(array.nbytes)
    call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), c_uint64(memory.address), size)
    return array


def is_pinned(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is in pinned memory, which the device can copy directly."""
    return _pointer_attribute(_MEMORY_TYPE, array.ctypes.data) == _PINNED


def is_on_first(address: int) -> bool:
    """Return whether memory is on the first device; True if the driver does not know it."""
    return _pointer_attribute(_DEVICE_NUMBER, address) in (0, None)


def _pointer_attribute(attribute: int, address: int) -> int | None:
    value = c_int()
    code = _library().cuPointerGetAttribute(byref(value), c_int(attribute), c_uint64(address))
    return None if code else value.value


def _version(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _attribute(number: c_int, attribute: int) -> int:
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), c_int(attribute), number)
    return value.value


def _error_text(library: Any, code: int) -> str:
    text = c_char_p()
    library.cuGetErrorString(c_int(code), byref(text))
    return (text.value or b"error").decode() + f", error {code}"


@cache
def _library() -> Any:
    names = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(
        "`engine='cuda'`: NVIDIA's driver is not installed (no libcuda); use `engine='threads'`"
    )
