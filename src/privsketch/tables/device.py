"""Tables in the memory of a graphics processor: arrays of CuPy, PyTorch, JAX and others.

They say where their numbers are through `__cuda_array_interface__` or DLPack. Nothing is read
here; whoever does keeps the array alive.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from privsketch._base.errors import RecordError
from privsketch.tables.memory import Selection, array_columns

_CUDA = 2  # DLPack's number of NVIDIA's devices
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}


@dataclass(frozen=True)
class DeviceTable:
    """Where records are: n of them, `row` numbers apart, with columns at `places` from there."""

    address: int
    n: int
    row: int
    places: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any  # keeps the memory


def is_device_table(data: Any) -> bool:
    """Return whether an array is in the memory of one of NVIDIA's devices."""
    kind = type(data)  # PyTorch's arrays have both, wherever they are
    if hasattr(kind, "__dlpack_device__"):
        try:
            return int(data.__dlpack_device__()[0]) == _CUDA
        except Exception:
            return False  # whatever it is, its reader says what is wrong with it
    return hasattr(kind, "__cuda_array_interface__")


def device_table(data: Any, selection: Selection) -> DeviceTable:
    """Return the columns of a record in an array of a device."""
    try:
        address, shape, strides, dtype, owner = _described(data)
    except Exception as error:
        raise RecordError(
            f"cannot read records from {type(data).__name__} on a device ({type(error).__name__}); "
            "give an array without gradients (tensor.detach()), masks or fields"
        ) from None
    if len(shape) != 2:
        raise RecordError(
            f"expected a table with rows and columns (2 dimensions), got {len(shape)}; reshape "
            "your data: array.reshape(-1, 1) for one column"
        )
    if dtype.kind not in "fiub":
        raise RecordError(f"a column is not numeric (array of {dtype.type.__name__})")
    columns = array_columns(shape[1], selection)
    places = range(shape[1]) if columns is None else columns
    return DeviceTable(
        address, shape[0], strides[0], tuple(strides[1] * offset for offset in places), dtype, owner
    )


_Described = tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any], Any]


def _described(data: Any) -> _Described:
    """Return address, shape, strides in numbers, type, and what keeps the memory."""
    if hasattr(type(data), "__cuda_array_interface__"):
        said = data.__cuda_array_interface__
        if said.get("mask") is not None:
            raise ValueError
        dtype, shape = np.dtype(said["typestr"]), tuple(said["shape"])
        strides = said.get("strides")
        if strides is not None:
            if any(each % dtype.itemsize for each in strides):
                raise ValueError
            strides = tuple(each // dtype.itemsize for each in strides)
        return said["data"][0] or 0, shape, strides or _contiguous(shape), dtype, data
    return _from_dlpack(data)


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _from_dlpack(data: Any) -> _Described:
    capsule = data.__dlpack__()  # frees what it needs when it goes itself
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    if tensor.lanes != 1:
        raise ValueError
    dtype = np.dtype(f"{_DLPACK_KINDS[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _contiguous(shape)
    return (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, (data, capsule)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
