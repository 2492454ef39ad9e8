"""NVIDIA's driver, called directly: contexts, memory, streams, PTX to functions, launches.

Only what the engine needs of libcuda, which comes with the driver; there is nothing to install.
The context is the device's primary one, which other libraries use too, so that their arrays can
be read where they are.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import KernelError
from privsketch.kernels.cuda.code import LEAST_CAPABILITY

_MAJOR, _MINOR, _MULTIPROCESSORS = 75, 76, 16  # attributes of a device, by number
_MEMORY_TYPE, _DEVICE_NUMBER = 2, 9  # attributes of a pointer
_PINNED = 1  # memory of that type is the host's
_NON_BLOCKING = 1  # a stream that does not wait for the one of other libraries
_OUT_OF_MEMORY = 2
_HOPPER, _HOPPER_DRIVER = (9, 0), 13000  # seen to compile what only Hopper has, and large blocks
_KEPT_PIECE, _KEPT = 2**25, 2**28  # bytes of a piece of memory that is kept, and of all of them


class DeviceError(KernelError):
    """No device can be used, or the driver refuses what it was asked."""


@cache
def device() -> Device:
    """The first device, or a DeviceError that says why there is none."""
    library = _library()
    code = library.cuInit(0)
    count = c_int()
    if code == 0:
        code = library.cuDeviceGetCount(byref(count))
    if code or not count.value:
        said = f" ({_words(library, code)})" if code else ""
        raise DeviceError(
            f"`engine='cuda'`: NVIDIA's driver finds no device{said}; use `engine='threads'`"
        )
    number, context, name = c_int(), c_void_p(), ctypes.create_string_buffer(256)
    call("cuDeviceGet", byref(number), 0)
    call("cuDeviceGetName", name, len(name), number)
    capability = _attribute(number, _MAJOR), _attribute(number, _MINOR)
    if capability < LEAST_CAPABILITY:
        raise DeviceError(
            f"`engine='cuda'`: {name.value.decode()} has compute capability "
            f"{_number(capability)}, at least {_number(LEAST_CAPABILITY)} is needed; use "
            "`engine='threads'`"
        )
    call("cuDevicePrimaryCtxRetain", byref(context), number)
    multiprocessors = _attribute(number, _MULTIPROCESSORS)
    version = c_int()
    call("cuDriverGetVersion", byref(version))
    is_hopper = capability == _HOPPER and version.value >= _HOPPER_DRIVER
    return Device(name.value.decode(), capability, multiprocessors, is_hopper, context)


def call(name: str, *arguments: Any) -> None:
    """A function of the driver; a DeviceError unless it succeeds."""
    library = _library()
    code = getattr(library, name)(*arguments)
    if code == _OUT_OF_MEMORY:
        raise DeviceError("`engine='cuda'`: the device, or pinned memory, has no room left")
    if code:
        raise DeviceError(f"`engine='cuda'`: the driver's {name} failed: {_words(library, code)}")


@dataclass(frozen=True)
class Device:
    """A device and its primary context."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    is_hopper: bool  # and the driver knows its instructions
    context: c_void_p = field(repr=False)

    def use(self) -> None:
        """Every thread says so before it calls anything else."""
        call("cuCtxSetCurrent", self.context)

    def wait(self) -> None:
        """For everything that was started."""
        call("cuCtxSynchronize")

    def free_memory(self) -> int:
        """Bytes."""
        free, total = c_size_t(), c_size_t()
        call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def load(self, ptx: str, name: str) -> Function:
        """Compiles PTX and finds one function in it."""
        module, function = c_void_p(), c_void_p()
        call("cuModuleLoadData", byref(module), c_char_p(ptx.encode()))
        call("cuModuleGetFunction", byref(function), module, name.encode())
        return Function(function)


@dataclass(frozen=True)
class Function:
    """A function of a device; its module stays loaded as long as the process lives."""

    handle: c_void_p

    def blocks_at_once(self, threads: int) -> int:
        """Blocks of that size that one multiprocessor runs at a time."""
        found = c_int()
        call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            byref(found),
            self.handle,
            c_int(threads),
            c_size_t(0),
        )
        return found.value

    def launch(
        self, grid: tuple[int, int], threads: int, stream: Stream, arguments: Sequence[int]
    ) -> None:
        """Starts a grid of blocks; all arguments are 64-bit numbers or places in memory."""
        values = [c_uint64(argument & 2**64 - 1) for argument in arguments]
        places = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        sizes = [*grid, 1, threads, 1, 1, 0]
        call("cuLaunchKernel", self.handle, *map(c_uint, sizes), stream.handle, places, None)


class Memory:
    """Bytes of the device, or of the host where it copies from directly; freed with the object.

    Pieces that are not large are kept for whoever wants as much: the driver takes a millisecond
    for a piece, and half of one for every megabyte that it pins.
    """

    def __init__(self, n_bytes: int, *, pinned: bool = False) -> None:
        self.pinned, self.n_bytes = pinned, max(1, n_bytes)
        if self.n_bytes <= _KEPT_PIECE:
            self.n_bytes = max(4096, 1 << (self.n_bytes - 1).bit_length())
        self.address = _spare.taken(pinned, self.n_bytes) or _allocated(self.n_bytes, pinned)

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Pinned memory as an array; the array must not outlive this object."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = memoryview((ctypes.c_uint8 * count).from_address(self.address))
        found: npt.NDArray[Any] = np.frombuffer(raw, dtype=dtype).reshape(shape)
        return found

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "address"):
            _spare.kept(self.pinned, self.n_bytes, self.address)


class _Spare:
    """Memory that nobody uses, by kind and size; what is too much goes back to the driver."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[bool, int], list[int]] = {}
        self._total = {False: 0, True: 0}
        self._lock = threading.RLock()  # the garbage collector may come here from inside

    def taken(self, pinned: bool, n_bytes: int) -> int | None:
        """A piece of just that size, if there is one."""
        with self._lock:
            pieces = self._pieces.get((pinned, n_bytes))
            if not pieces:
                return None
            self._total[pinned] -= n_bytes
            return pieces.pop()

    def kept(self, pinned: bool, n_bytes: int, address: int) -> None:
        """Keeps a piece, or frees it."""
        with self._lock:
            if n_bytes <= _KEPT_PIECE and self._total[pinned] + n_bytes <= _KEPT:
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
        place = c_void_p()
        call("cuMemHostAlloc", byref(place), c_size_t(n_bytes), c_uint(0))
        return int(place.value or 0)
    number = c_uint64()
    call("cuMemAlloc_v2", byref(number), c_size_t(n_bytes))
    return int(number.value)


class Stream:
    """Work that is done in order, beside that of other streams."""

    def __init__(self) -> None:
        self.handle = c_void_p()
        call("cuStreamCreate", byref(self.handle), c_uint(_NON_BLOCKING))

    def __del__(self) -> None:
        if not sys.is_finalizing() and self.handle:
            _library().cuStreamDestroy_v2(self.handle)

    def wait(self) -> None:
        """Until all its work is done."""
        call("cuStreamSynchronize", self.handle)

    def to_device(self, target: int, source: npt.NDArray[Any]) -> None:
        """Starts to copy a contiguous array, which must stay as it is until then."""
        call(
            "cuMemcpyHtoDAsync_v2",
            c_uint64(target),
            c_void_p(source.ctypes.data),
            c_size_t(source.nbytes),
            self.handle,
        )

    def to_host(self, target: npt.NDArray[Any], source: int) -> None:
        """Starts to copy to a contiguous array."""
        call(
            "cuMemcpyDtoHAsync_v2",
            c_void_p(target.ctypes.data),
            c_uint64(source),
            c_size_t(target.nbytes),
            self.handle,
        )

    def clear(self, target: int, n_bytes: int) -> None:
        """Zeros."""
        call("cuMemsetD8Async", c_uint64(target), ctypes.c_ubyte(0), c_size_t(n_bytes), self.handle)

    def mark(self) -> c_void_p:
        """A point in time of this stream, for `seconds_between`."""
        event = c_void_p()
        call("cuEventCreate", byref(event), c_uint(0))
        call("cuEventRecord", event, self.handle)
        return event


def seconds_between(first: c_void_p, second: c_void_p) -> float:
    """Between two marks, the second of which is waited for."""
    found = c_float()
    call("cuEventSynchronize", second)
    call("cuEventElapsedTime", byref(found), first, second)
    return found.value / 1000


def copied(array: npt.NDArray[Any]) -> Memory:
    """A copy of an array on the device, which is complete.

    The driver may return when the array is on its way, and streams of ours do not wait for that.
    """
    memory, array = Memory(array.nbytes), np.ascontiguousarray(array)
    size = c_size_t(array.nbytes)
    call("cuMemcpyHtoD_v2", c_uint64(memory.address), c_void_p(array.ctypes.data), size)
    call("cuStreamSynchronize", c_void_p())
    return memory


def brought(memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of the device's memory, when everything that was started is done."""
    device().wait()
    found = np.empty(shape, dtype)
    size = c_size_t(found.nbytes)
    call("cuMemcpyDtoH_v2", c_void_p(found.ctypes.data), c_uint64(memory.address), size)
    return found


def is_pinned(array: npt.NDArray[Any]) -> bool:
    """Whether the device can copy an array without the processor's help."""
    return _pointer_attribute(_MEMORY_TYPE, array.ctypes.data) == _PINNED


def is_on_first(address: int) -> bool:
    """Whether memory is that of the first device, or unknown to the driver."""
    return _pointer_attribute(_DEVICE_NUMBER, address) in (0, None)


def _pointer_attribute(attribute: int, address: int) -> int | None:
    found = c_int()
    code = _library().cuPointerGetAttribute(byref(found), c_int(attribute), c_uint64(address))
    return None if code else found.value


def _number(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _attribute(number: c_int, attribute: int) -> int:
    value = c_int()
    call("cuDeviceGetAttribute", byref(value), c_int(attribute), number)
    return value.value


def _words(library: Any, code: int) -> str:
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
