"""How well expected counts explain released ones: noise of Laplace tails on sampled counts.

A released count differs from the expected one by sampling, nearly Gaussian of variance `lam`, and
by noise that is Laplace of scale b, or a sum of a few such draws. Its tails fall like exp(-|r| / b)
and its middle is rounded off. The hyperbolic law

    -log p(r) = sqrt(delta^2 + r^2 / b^2) - delta + constant

has these tails, and its variance b^2 (2 + delta K0(delta) / K1(delta)) settles delta. It goes from
Laplace to Gaussian as sampling takes over, and costs one square root. Least squares throw away up
to half of what counts tell, because a Laplace law of variance 2 b^2 has the information 1 / b^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import k0e, k1e

from privsketch._base.types import Floats
from privsketch.learning.cells.boxes import Boxes

# The law is known to within 1e-3 of delta by interpolation; beyond it delta + 3/2 is the variance.
_DELTAS = np.concatenate([[0.0], np.geomspace(1e-4, 100.0, 400)])
_VARIANCES = np.concatenate([[2.0], 2 + _DELTAS[1:] * k0e(_DELTAS[1:]) / k1e(_DELTAS[1:])])
ROUND = 0.3  # least delta: a sharper edge hinders descents and tells little more
LEAST_RECORDS = 0.25  # variance of sampling in an empty box: counts are whole numbers


@dataclass(frozen=True)
class Likelihood:
    """The law of counts about expected ones.

    Attributes
    ----------
    counts : (n_boxes,) float64
    squared_scale : (n_boxes,) float64
        b^2, of one draw of noise.
    rounding : (n_boxes,) float64
        delta b^2, which is about the variance where the law is Gaussian.
    variance : (n_boxes,) float64
        Of noise and sampling together.
    information : (n_boxes,) float64
        What a count tells about the expected one: the inverse of a variance.
    """

    counts: Floats
    squared_scale: Floats
    rounding: Floats
    variance: Floats
    information: Floats

    def value_and_slope(self, expected: Floats) -> tuple[float, Floats]:
        """-log p of all counts, and its derivative by every expected count."""
        misses = expected - self.counts
        root = np.sqrt(self.rounding**2 + misses * misses * self.squared_scale)
        return float((misses * misses / (root + self.rounding)).sum()), misses / root


def likelihood_of(boxes: Boxes, guess: Floats) -> Likelihood:
    """The law of the counts if those expected are about `guess`, which only sampling depends on."""
    sampling = np.maximum(guess, LEAST_RECORDS)
    variance = boxes.variance + sampling
    squared_scale = boxes.variance / (2 * boxes.n_noises)
    ratio = variance / np.maximum(squared_scale, 1e-12 * variance)
    delta = np.where(ratio < _VARIANCES[-1], np.interp(ratio, _VARIANCES, _DELTAS), ratio - 1.5)
    rounding = np.maximum(delta, ROUND) * np.maximum(squared_scale, 1e-12 * variance)
    # Exact for Laplace and for Gaussian noise, and within some percent between them.
    information = 1 / (variance - squared_scale)
    return Likelihood(boxes.counts, squared_scale, rounding, variance, information)
