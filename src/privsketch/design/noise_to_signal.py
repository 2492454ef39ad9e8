"""The noise-to-signal ratio of a sketch, in closed form: CLP Lemma 26.

A mechanism estimates the mean of the features by

    s = (1 / n) (1 / beta) ((1 / alpha) sum over records of g_i (features_i masked by h_i) + noise),

where g_i indicates whether a record takes part (rate beta), and h_i which of its features do (rate
alpha, masks drawn independently for every record). The noise-to-signal ratio is
E|s - z|^2 / |z|^2, where the reference z is

- the expectation over the law of the records ("law"): the aim is to learn about a population, and
  a finite number of records adds an error;
- the mean over the records themselves ("records"): the aim is k-means of these records.

The error is a sum of four uncorrelated parts. The ratio is returned by parts, which tell a planner
what to improve. Ratios do not depend on the units of the features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, get_args

from privsketch._base.errors import ParameterError

ReferenceKind = Literal["law", "records"]
SamplingKind = Literal["poisson", "without-replacement"]


@dataclass(frozen=True)
class NoiseToSignal:
    """Parts of a noise-to-signal ratio, in the order of their causes.

    Attributes
    ----------
    finite : float
        Error of a finite number of records as a sample of a law; 0 if they are the reference.
    sampled : float
        Error from leaving out records.
    masked : float
        Error from leaving out features.
    private : float
        Error of the privacy noise.
    """

    finite: float
    sampled: float
    masked: float
    private: float

    @property
    def total(self) -> float:
        """The ratio itself: the parts are uncorrelated."""
        return self.finite + self.sampled + self.masked + self.private

    @property
    def largest(self) -> str:
        """Name of the largest part."""
        return max((field.name for field in fields(self)), key=lambda name: getattr(self, name))


def noise_parts(
    *,
    n_records: float,
    n_features: int,
    signal: float,
    energy: float,
    noise_variance: float,
    feature_rate: float = 1.0,
    record_rate: float = 1.0,
    reference: ReferenceKind = "law",
    sampling: SamplingKind = "poisson",
) -> NoiseToSignal:
    """Return the parts of CLP Lemma 26, or of Appendix D for records without replacement.

    Parameters
    ----------
    n_records : float
        Number of records, those left out by sampling included.
    n_features : int
        Entries of the sketch: complex for Fourier features, real for quadratic ones.
    signal : float
        |z|^2 of the reference, over all entries.
    energy : float
        Mean of |features|^2 over the reference: n_features for Fourier features.
    noise_variance : float
        Variance of the noise of one entry inside the brackets, before the division by
        `record_rate` but after that by `feature_rate`.
    feature_rate, record_rate : float
        alpha and beta; 1 without sampling.
    reference : {"law", "records"}
    sampling : {"poisson", "without-replacement"}
        How records are drawn. Masks are always independent between records.
    """
    _require_rate("feature_rate", feature_rate)
    _require_rate("record_rate", record_rate)
    if reference not in get_args(ReferenceKind):
        raise ParameterError("reference", reference, "expected 'law' or 'records'")
    if sampling not in get_args(SamplingKind):
        raise ParameterError("sampling", sampling, "expected 'poisson' or 'without-replacement'")
    if not n_records > 0:
        raise ParameterError("n_records", n_records, "expected a positive number")
    if signal <= 0:
        return NoiseToSignal(math.inf, 0.0, 0.0, 0.0)  # the features carry no signal
    n = n_records
    left_out = 1 / record_rate - 1
    finite = (energy - signal) / n if reference == "law" else 0.0
    if sampling == "poisson":
        sampled = left_out * energy / n
    else:
        # Without replacement only differences between records matter. Over the law, the n - 1 of
        # Lemma 30 cancels with the smaller spread of a sample.
        pairs = n if reference == "law" else n - 1
        sampled = left_out * (energy - signal) / pairs if left_out else 0.0
    masked = (1 / feature_rate - 1) * energy / (n * record_rate)
    private = n_features * noise_variance / (n * record_rate) ** 2
    return NoiseToSignal(finite / signal, sampled / signal, masked / signal, private / signal)


def _require_rate(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ParameterError(name, value, "expected a share above 0, at most 1 (all of them)")


def gaussian_second_moments(eigenvalues: Sequence[float]) -> tuple[float, float]:
    """Return |C|_F^2 and E|x x'|_F^2 of normal records with these eigenvalues of C = E x x'.

    They are the signal and the energy of all second moments, off-diagonal ones counted twice.
    """
    squared = math.fsum(value**2 for value in eigenvalues)
    return squared, math.fsum(eigenvalues) ** 2 + 2 * squared


def direction_moments(trace: float, squared: float, dim: int) -> tuple[float, float]:
    """Return mean signal and energy of (w.x)^2 over directions w of length 1, normal records.

    (w'C w)^2 has the mean (tr(C)^2 + 2 tr(C^2)) / (d (d + 2)), and E (w.x)^4 = 3 (w'C w)^2.
    """
    signal = (trace**2 + 2 * squared) / (dim * (dim + 2))
    return signal, 3 * signal
