"""Pairs of sources that are more alike than chance allows: they share noise, or records.

Means per record of independent sources differ by their noises and by the choice of the records.
The sum of squared differences has a known expectation from below, and a pair far below it is not
independent. Shares of clusters may be the same by design, such as as many cases as controls, so
only the scatter of records inside of clusters counts. Satterthwaite's method approximates the tail.

Noise may be larger than that scatter. Then a source that is handed in again with fresh noise is
like any other, and the comparison says that it cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import chdtr

from privsketch._base.formats import INSECURE
from privsketch._base.types import Floats
from privsketch.pages.comparison.observation import Observation, as_complex
from privsketch.pages.comparison.reference import Reference
from privsketch.sketching.sketch import Sketch

MAX_FALSE_ALIKE = 1e-6  # probability that any pair of independent sources counts as too alike
N_SCATTER_DRAWS = 300  # records drawn for the covariance of features inside of clusters
HIDDEN = (
    "noise hides whether {} share records: one that was handed in again under another name would "
    "not be seen"
)
# The square of a number's noise varies at most this much more than that of Gaussian noise: 2.5 for
# Laplace noise, 2.4 for the common radius of K-norm noise in a cube.
_NOISE_TAIL = 2.5


def alike_by_features(
    parts: Sequence[Sketch],
    observations: Sequence[Observation],
    reference: Reference | None,
    rng: np.random.Generator,
) -> tuple[list[tuple[int, int]], str]:
    """Return pairs of sources that are too alike, and a note if noise hides some.

    Without a reference noise alone counts.
    """
    means = np.array([each.sums / each.n_records for each in observations])
    noise = np.array([each.noise_variance / each.n_records**2 for each in observations])
    if reference is None:
        return too_alike(parts, means, noise, np.zeros(len(parts)), 0.0)
    scatter, concentration = _scatter(reference, observations[0].squared_modulus, rng)
    sampling = np.array([scatter * each.repetition / each.n_records for each in observations])
    return too_alike(parts, means, noise, sampling, concentration)


def too_alike(
    parts: Sequence[Sketch],
    means: Floats,
    noise: Floats,
    sampling: Floats,
    concentration: float,
) -> tuple[list[tuple[int, int]], str]:
    """Return pairs of sources whose means differ less than noise and sampling make them.

    The text beside them says that noise would hide the same records of two sources; it is empty
    where such a pair would be found.

    Parameters
    ----------
    means : (n_sources, n) float64
        Numbers per record.
    noise : (n_sources,) float64
        Variance of the noise of each number.
    sampling : (n_sources,) float64
        Sum over all numbers of the variances that sampling leaves, from below.
    concentration : float
        Trace of the squared covariance of sampling over its squared trace.
    """
    n_sources, n = means.shape
    first, second = np.triu_indices(n_sources, 1)
    squares = np.sum(means**2, axis=1)
    distances = np.maximum(
        squares[first] + squares[second] - 2 * (means @ means.T)[first, second], 0
    )
    noises, choices = n * (noise[first] + noise[second]), sampling[first] + sampling[second]
    expected = np.maximum(noises + choices, 1e-300)
    # Trace of the squared covariance of the differences.
    norm = (_NOISE_TAIL * noises**2 + 2 * noises * choices) / n + concentration * choices**2
    freedom = expected**2 / np.maximum(norm, 1e-300)
    chances = chdtr(freedom, freedom * distances / expected)
    least = MAX_FALSE_ALIKE / len(first)
    independent = np.array(
        [_are_independent(parts[int(a)], parts[int(b)]) for a, b in zip(first, second, strict=True)]
    )
    alike = independent & (chances < least)
    pairs = [(int(a), int(b)) for a, b in zip(first[alike], second[alike], strict=True)]
    # The same records leave the noises alone between two sources.
    hidden = independent & ~alike & (chdtr(freedom, freedom * noises / expected) >= least)
    who = "sources" if hidden.sum() == independent.sum() else "some of the sources"
    return pairs, HIDDEN.format(who) if hidden.any() else ""


def _are_independent(one: Sketch, other: Sketch) -> bool:
    """Return whether two sketches say that they have noise and records of their own."""
    is_real = not any(part.receipt.sampler.startswith(INSECURE) for part in (one, other))
    return is_real and not set(one.sources) & set(other.sources)


def _scatter(
    reference: Reference, squared_modulus: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the variance of a record's features inside of clusters, and its concentration."""
    vectors = reference.vectors({})[0]
    moduli = np.abs(np.array([as_complex(vector) for vector in vectors])) ** 2
    scatter = float(np.sum(np.maximum(squared_modulus - reference.shares @ moduli, 0.0)))
    label = rng.choice(reference.size, size=N_SCATTER_DRAWS, p=reference.shares)
    normal = rng.standard_normal((N_SCATTER_DRAWS, reference.means.shape[1]))
    records = reference.means[label] + reference.widths[label] * normal
    phases = records @ reference.features.frequencies.T
    values = np.hstack([np.cos(phases), np.sin(phases)]) - vectors[label]
    gram = values @ values.T / N_SCATTER_DRAWS
    trace = max(float(np.trace(gram)), 1e-150)  # its square is not 0
    # A finite number of draws inflates the norm of a covariance; subtract what it adds.
    norm = max(float(np.sum(gram**2)) - trace**2 / N_SCATTER_DRAWS, trace**2 / values.shape[1])
    return scatter, norm / trace**2
