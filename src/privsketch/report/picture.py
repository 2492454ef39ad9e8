"""What a report shows of a model, whichever learner made it.

Clusters and Gaussian components are both centres with shares, shapes and errors, and
both come from a fitted mixture that predicts the sketch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import Receipt
from privsketch.errors import ParameterError
from privsketch.features.onebit import HARMONICS, SIGN_VARIANCE
from privsketch.models.clusters import KMeansModel
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.sketching.sketch import Sketch


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians: shares (p,), means (p, dim), covariances (p, dim, dim)."""

    weights: Floats
    means: Floats
    covariances: Floats


@dataclass(frozen=True, eq=False)
class Picture:
    """A model as reports and plots see it.

    Attributes
    ----------
    noun : str
        What one part is called: cluster or component.
    centers, weights : (size, dim) and (size,) float64
    covariances : (size, dim, dim) float64
        Shape of every part.
    standard_errors : (size, dim) float64 or None
    mixture : Mixture
        The fitted density.
    misfit : float
        Residual over its expectation.
    explained : bool
        Whether noise and sampling account for the residual.
    """

    noun: str
    centers: Floats
    weights: Floats
    covariances: Floats
    standard_errors: Floats | None
    mixture: Mixture
    misfit: float
    explained: bool
    n_records: float
    concerns: tuple[str, ...]
    receipt: Receipt
    column_names: list[str]
    design_fingerprint: str

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self.centers)

    @property
    def axis_widths(self) -> Floats:
        """(size, dim) standard deviations along the axes."""
        return np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))

    def moments(self, sketch: Sketch, multiple: int = 1) -> npt.NDArray[np.complex128]:
        """What the fitted mixture predicts for `sketch.moments()`, (n_features,).

        At `multiple` times the frequencies, for harmonics.
        """
        frequencies = multiple * sketch.design.radians()
        means = self.mixture.means - sketch.design.domain.center_vector
        result = np.zeros(len(frequencies), dtype=np.complex128)
        parts = zip(self.mixture.weights, means, self.mixture.covariances, strict=True)
        for weight, mean, covariance in parts:
            damping = np.einsum("md,de,me->m", frequencies, covariance, frequencies) / 2
            result += weight * self.n_records * np.exp(1j * (frequencies @ mean) - damping)
        return result

    def expected_variances(self, sketch: Sketch) -> Floats:
        """Variance of noise and sampling per real component of the moments, (n_features,).

        A sum of n unit phasors of mean phi varies by n (1 - |phi|^2), half of it along
        each axis. Signs have harmonics, which the dither turns into noise as well: the one
        of order h has the amplitude 1 / h of the first.
        """
        n_records = max(self.n_records, 1.0)
        modulus = np.minimum(np.abs(self.moments(sketch)) / n_records, 1.0)
        variances = sketch.noise_variance + n_records * (1 - modulus**2) / 2
        if sketch.design.map.dithered:
            variances = variances + n_records * SIGN_VARIANCE / 2
            for order in HARMONICS:
                variances += np.abs(self.moments(sketch, order) / order) ** 2 / 2
        return np.asarray(variances)


def picture_of(model: KMeansModel | GaussianMixtureModel) -> Picture:
    """The picture of a model."""
    if isinstance(model, KMeansModel):
        mixture = Mixture(
            model.mixture_weights, model.mixture_means, _diagonal(model.mixture_widths)
        )
        noun, centers, covariances = "cluster", model.centers, _diagonal(model.axis_widths)
        spread, expected = model.residual_spread, model.expected_residual
    elif isinstance(model, GaussianMixtureModel) and model.expected_residual is not None:
        noun, centers, covariances = "component", model.means, model.covariance_matrices()
        mixture = Mixture(model.weights, centers, covariances)
        expected = model.expected_residual
        spread = math.sqrt(2 * expected)  # of chi-square
    else:
        raise ParameterError(
            f"report: expected a model of a sketch, got {type(model).__name__} of none"
        )
    residual = model.residual or 0.0
    return Picture(
        noun=noun,
        centers=centers,
        weights=model.weights,
        covariances=covariances,
        standard_errors=model.standard_errors,
        mixture=mixture,
        misfit=residual / expected,
        explained=residual <= expected + 4 * spread,
        n_records=model.n_records,
        concerns=model.concerns,
        receipt=model.receipt,
        column_names=model.column_names,
        design_fingerprint=model.design_fingerprint,
    )


def _diagonal(widths: Floats) -> Floats:
    return np.asarray(np.square(widths)[:, :, None] * np.eye(widths.shape[1]))
