"""Array types that many folders share; functions document the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
Words = npt.NDArray[np.uint64]  # random bits
WholeFloats = npt.NDArray[
    np.float64
]  # whole numbers below 2^53 as floats: sums are exact in any order
Block = npt.NDArray[Any]  # some records of a table, of whatever number type
Real = npt.NDArray[Any]  # float32 or float64
