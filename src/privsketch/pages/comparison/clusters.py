"""Shares of the clusters of all sources at each of them, and clusters that only one has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import norm

from privsketch._base.types import Floats
from privsketch.pages.comparison.explain import plain_fit
from privsketch.pages.comparison.observation import Fit, Observation
from privsketch.pages.comparison.reference import Change, Reference
from privsketch.pages.comparison.result import ClusterShares

CHANCE = 1e-3  # that a cluster is said to be one source's alone because of noise, in all
LEAST = 0.03  # share from which on a cluster is worth a word
_ABSENT = 2.5  # standard errors up to which a share may be none
_RATIO = 0.25  # of the largest share, below which the others' must lie for certain


def cluster_shares(
    reference: Reference,
    seen: Sequence[Observation],
    changes: Mapping[int, Mapping[int, Change]],
) -> ClusterShares:
    """Shares by least squares on each source's own moments.

    Standard errors are those of noise and sampling, with the misfit as further noise; sources whose
    columns are changed are read through their change.
    """
    found = [source_shares(reference, one, changes.get(s, {})) for s, one in enumerate(seen)]
    shares = np.array([share for share, _ in found])
    errors = np.array([error for _, error in found])
    center = reference.features.design.domain.center_vector
    return ClusterShares(reference.means + center, shares, errors, tuple(alone(shares, errors)))


def source_shares(
    reference: Reference, seen: Observation, changes: Mapping[int, Change]
) -> tuple[Floats, Floats]:
    """Non-negative shares (k,) of one source and their standard errors."""
    fit, _, _ = plain_fit(seen, reference)
    vectors = reference.vectors(changes)[0]
    if changes:
        mean = reference.weights / max(float(reference.weights.sum()), 1e-300) @ vectors
        real, imaginary = mean.reshape(2, -1)
        fit = Fit(seen, real + 1j * imaginary)
    chi_square, weights = fit.solve(vectors)
    rows = fit.whitened(vectors)
    dispersion = max(chi_square / fit.n_numbers, 1.0)
    gram = rows @ rows.T
    gram.flat[:: len(gram) + 1] *= 1 + 1e-9
    variances = np.diag(np.linalg.pinv(gram, hermitian=True)) * dispersion
    total = max(float(weights.sum()), 1.0)
    shares = weights / total
    sampling = shares * (1 - shares) * seen.repetition / seen.n_records
    return shares, np.sqrt(variances / total**2 + sampling)


def alone(shares: Floats, errors: Floats) -> list[tuple[int, int]]:
    """Pairs of a cluster and the only source that has it."""
    n_sources, k = shares.shape
    beyond = float(norm.isf(CHANCE / (n_sources * k)))
    found = []
    for cluster in range(k):
        source = int(np.argmax(shares[:, cluster]))
        share, error = float(shares[source, cluster]), float(errors[source, cluster])
        others = np.arange(n_sources) != source
        rest, rest_errors = shares[others, cluster], errors[others, cluster]
        if share < LEAST or share < beyond * error or not math.isfinite(error):
            continue
        absent = (rest < _ABSENT * rest_errors) & (rest + 2 * rest_errors < _RATIO * share)
        if absent.all():
            found.append((cluster, source))
    return found
