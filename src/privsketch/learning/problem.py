"""What a decoder is given and what it returns.

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
    """

    frequencies: Array
    moments: NDArray[np.complex128]
    noise_variance: float
    low: Array
    high: Array


def expected_residual(problem: Problem, n_records: float) -> float:
    """`2 m` times the variance of privacy noise and sampling per real component.

    A sum of n unit phasors varies by n (1 - |mean|^2), at most n/2 per component.
    """
    return 2 * len(problem.moments) * (problem.noise_variance + n_records / 2)


@dataclass(frozen=True)
class Mixture:
    """Axis-aligned Gaussians: centres (size, dim), weights (size,), axis widths (size, dim)."""

    centers: Array
    weights: Array
    axis_widths: Array


@dataclass(frozen=True)
class Solution:
    """Atoms that explain a sketch.

    Attributes
    ----------
    centers : (n_clusters, dim) float64
        Inside the box of the problem, sorted by their coordinates.
    weights : (n_clusters,) float64
        Non-negative, in records.
    widths : (n_clusters,) float64
        Standard deviation of each atom, root mean square over the axes; zero for a
        Dirac atom.
    axis_widths : (n_clusters, dim) float64
        Standard deviations along each axis; all equal in a row unless the records
        called for more.
    density : Mixture
        The best description of the records the sketch supports. It is the atoms above
        unless `n_clusters` of them cannot explain the sketch and more of them can.
    residual : float
        Of the `n_clusters` atoms: `sum_j |moments_j - model_j|^2`.
    expected_residual : float
        What noise and sampling alone would leave: `2 m (noise + sampling variance)`.
        A residual well above it says that the atoms do not describe the records.
    n_evaluations : int
        How many times the model was evaluated with its gradient.
    """

    centers: Array
    weights: Array
    widths: Array
    axis_widths: Array
    density: Mixture
    residual: float
    expected_residual: float
    n_evaluations: int
