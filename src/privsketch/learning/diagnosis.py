"""How far a fit can be trusted: what noise and sampling leave, and reasons to doubt.

Everything here is computed from the sketch and the model: free post-processing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privsketch.learning.model import KMeansModel
from privsketch.planning.forecast import HOPELESS
from privsketch.sketches import Sketch

MISFIT = 1.5  # misfit over expectation above which the clusters do not explain the sketch
_HARMONICS = (3, 5, 7)


def expected_variances(model: KMeansModel, sketch: Sketch) -> npt.NDArray[np.float64]:
    """Variance of noise and sampling per real component of the moments, (n_features,).

    A sum of n unit phasors of mean phi varies by n (1 - |phi|^2), half of it along
    each axis. Signs have harmonics, which the dither turns into noise as well: the one
    of order h has the amplitude 1 / h of the first.
    """
    n_records = max(model.n_records, 1.0)
    modulus = np.minimum(np.abs(model.moments(sketch)) / n_records, 1.0)
    variances = sketch.noise_variance + n_records * (1 - modulus**2) / 2
    if sketch.design.map.dithered:
        variances = variances + n_records * (math.pi**2 / 8 - 1) / 2
        for order in _HARMONICS:
            variances += np.abs(model.moments(sketch, order) / order) ** 2 / 2
    return np.asarray(variances)


def expected_residual(model: KMeansModel, sketch: Sketch) -> float:
    """Residual that noise and sampling would leave after as many unknowns were fitted.

    Noise is independent between features; sampling errors are not, and a fit follows
    more of them than it has unknowns, so a good fit may stay well below this.
    """
    n_numbers = 2 * sketch.design.n_features
    size, dim = model.mixture_means.shape
    n_unknowns = size * (dim + 1) + 1
    left_over = max(n_numbers - n_unknowns, 1) / n_numbers
    return float(2 * expected_variances(model, sketch).sum() * left_over)


def concerns(model: KMeansModel, sketch: Sketch) -> tuple[str, ...]:
    """Reasons to doubt the clusters, in words."""
    found = []
    noise = math.sqrt(sketch.noise_variance) * model.n_clusters / max(model.n_records, 1.0)
    if noise > HOPELESS:
        found.append(
            f"the noise per number is {noise:.0%} of a cluster of average size: the centres may "
            "describe the noise"
        )
    ratio = model.residual / model.expected_residual
    if ratio > MISFIT:
        found.append(
            f"the misfit is {ratio:.1f} times what noise and sampling may leave: more clusters, "
            "clusters of other shapes, or a search that got stuck (try more starts); centres can "
            "still be good"
        )
    finest = sketch.design.frequencies.scales[0]
    mean = model.weights @ model.centers
    spread = math.sqrt(float(np.mean(model.weights @ np.square(model.centers - mean))))
    if model.n_clusters > 1 and spread < 1.5 * finest and noise <= HOPELESS:
        found.append(
            f"all centres lie within {spread:.2g} of each other, and the design resolves "
            f"{finest:.2g}: the domain may be far too wide for these records"
        )
    return tuple(found)
