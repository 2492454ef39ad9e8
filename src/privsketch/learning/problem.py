"""What a decoder is given: a sketch in the coordinates of its domain's centre.

A released sketch is, up to noise, an unnormalised empirical characteristic
function. A decoder explains it by a sum of `K` atoms,

    moments_j ~ sum_k a_k exp(i w_j.c_k - s_k |w_j|^2 / 2),

whose total weight is about the number of records, which is not known.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsketch._typing import Floats
from privsketch.errors import ParameterError
from privsketch.sketching.sketch import Sketch


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
        Variance of the privacy noise, and of what masks leave out, per real component of
        `moments`.
    low, high : (dim,) float64
        The box the centres must lie in.
    one_bit : bool
        Whether the sums were made of signs, whose harmonics are noise too.
    repetition : float
        How often a record counts; n records vary like n / repetition of them.
    """

    frequencies: Floats
    moments: NDArray[np.complex128]
    noise_variance: float
    low: Floats
    high: Floats
    one_bit: bool = False
    repetition: float = 1.0


def checked_sketch(sketch: Sketch) -> Sketch:
    """The sketch, if it is one that clusters and mixtures can be learned from."""
    if not isinstance(sketch, Sketch):
        raise ParameterError(f"sketch: expected a Sketch, got {type(sketch).__name__}")
    if not sketch.design.map.has_table:
        raise ParameterError(
            "this sketch is for principal components (task='pca'): clusters and mixtures need one "
            "of task='kmeans' or 'gaussian-mixture'"
        )
    return sketch


def problem_of(sketch: Sketch) -> Problem:
    """The sketch as decoders see it.

    The number of records is the moment at frequency zero, and used as such where it is no
    noisier than the others. Signs have no moment at zero.
    """
    design = sketch.design
    half_widths = design.domain.half_widths
    frequencies, moments = design.radians(), sketch.moments()
    count, is_precise = sketch.n_records, design.sum_noise.count_variance <= design.noise_std**2
    if count is not None and is_precise and not design.map.dithered:
        frequencies = np.vstack([frequencies, np.zeros(design.dim)])
        moments = np.append(moments, count)
    return Problem(
        frequencies=frequencies,
        moments=moments,
        noise_variance=sketch.noise_variance + sketch.masking_variance,
        low=-half_widths,
        high=half_widths,
        one_bit=design.map.dithered,
        repetition=sketch.repetition,
    )
