"""What a decoder is given.

A released sketch is, up to noise, an unnormalised empirical characteristic
function. A decoder explains it by a sum of `K` atoms,

    moments_j ~ sum_k a_k exp(i w_j.c_k - s_k |w_j|^2 / 2),

whose total weight is about the number of records, which is not known.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A sketch to decode.

    Parameters
    ----------
    frequencies : (n_features, dim) float64
        Radians per unit of the records.
    moments : (n_features,) complex128
        The noisy sums over the records of `exp(i w_j.x)`.
    noise_variance : float
        Variance of the privacy noise per real component of `moments`.
    low, high : (dim,) float64
        The box the centres must lie in.
    one_bit : bool
        Whether the sums were made of signs, whose harmonics are noise too.
    """

    frequencies: Array
    moments: NDArray[np.complex128]
    noise_variance: float
    low: Array
    high: Array
    one_bit: bool = False
