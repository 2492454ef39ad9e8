"""How far a fit can be trusted: what noise and sampling leave, and reasons to doubt.

Everything here is computed from the sketch and the model: free post-processing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privsketch.features.onebit import HARMONICS, SIGN_VARIANCE
from privsketch.learning.model import KMeansModel
from privsketch.planning.forecast import HOPELESS
from privsketch.sketches import Sketch

MISFIT = 1.5  # misfit over expectation above which the clusters do not explain the sketch


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
        variances = variances + n_records * SIGN_VARIANCE / 2
        for order in HARMONICS:
            variances += np.abs(model.moments(sketch, order) / order) ** 2 / 2
    return np.asarray(variances)


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
    if ratio > MISFIT and model.residual > model.expected_residual + 4 * model.residual_spread:
        found.append(
            f"the misfit is {ratio:.1f} times what noise and sampling leave: more clusters, "
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
