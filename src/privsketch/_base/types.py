"""Array types that many rooms share; shapes are said where arrays are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Words = npt.NDArray[np.uint64]  # random bits
Whole = npt.NDArray[np.float64]  # floats that are whole numbers below 2^53: exact in any order
Block = npt.NDArray[Any]  # some records of a table, of whatever number type
Real = npt.NDArray[Any]  # float32 or float64
