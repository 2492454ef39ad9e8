"""Limits of a method: one noisy step of an oracle, and one mean with centers around it.

An *oracle* knows the centers that k-means finds without privacy, and how long residuals around each
are. All that it pays for is one release of the means of these clusters, with the whole budget, and
a method that must find clusters first can hardly be better. Its noise is drawn in floating point:
it is for comparison, and protects nothing.

*One mean* is what remains where noise hides everything: the mean of all records with the whole
budget, and centers spread around it. No method should be worse.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from sklearn.cluster import KMeans

import privsketch as ps
from benchmarks.datasets import DataSet, squared_error
from privsketch._base.types import Floats
from privsketch.clustering.pipeline import method as pipeline
from privsketch.clustering.pipeline.plan import Facts, PipelinePlan, mean_weights
from privsketch.clustering.run import clustered
from privsketch.kernels.nearest import Norm
from privsketch.noise.calibration import rho_of_budget

ORACLE, ONE_MEAN = "oracle", "one mean"
QUANTILES = (0.6, 0.8, 0.9, 0.95, 1.0)  # of lengths that are not cut; the oracle knows the best


def oracle_centers(
    records: Floats, data: DataSet, epsilon: float, delta: float, seed: int
) -> Floats:
    """Return noisy means of the clusters of k-means: the best of some radii, for one draw."""
    fit = KMeans(data.n_clusters, n_init=3, random_state=seed).fit(records)
    rng = np.random.default_rng([seed, 20250107])
    k, dim = fit.cluster_centers_.shape
    normal = rng.standard_normal((k, dim + 1)) if delta else rng.laplace(size=(k, dim + 1))
    norm: Norm = 2 if delta else 1
    weight = pipeline.COUNT_WEIGHT[norm]  # of a record in a count, in radii
    if delta:
        scale = np.sqrt((1 + weight**2) / (2 * rho_of_budget(epsilon, delta)))
    else:
        scale = (1 + weight) / epsilon
    noise = scale * normal
    noise[:, -1] /= weight
    candidates = [_noisy_means(records, fit, quantile, noise, norm) for quantile in QUANTILES]
    inside = [_inside(centers, data.domain) for centers in candidates]
    return min(inside, key=lambda centers: squared_error(records, centers))


def _noisy_means(
    records: Floats, fit: KMeans, quantile: float, noise: Floats, norm: Norm
) -> Floats:
    """Return the mean of each cluster, of residuals that are cut at a quantile of their lengths."""
    centers = fit.cluster_centers_.copy()
    for number in range(len(centers)):
        residuals = records[fit.labels_ == number] - fit.cluster_centers_[number]
        lengths = np.maximum(np.linalg.norm(residuals, ord=norm, axis=1), 1e-12)
        radius = np.quantile(lengths, quantile)
        weights = np.minimum(1.0, radius / lengths)
        total = weights @ residuals + radius * noise[number, :-1]
        count = weights.sum() + noise[number, -1]
        centers[number] += total / max(count, 1.0)
    return np.asarray(centers)


def _inside(centers: Floats, domain: ps.Box | ps.Ball) -> Floats:
    offsets = centers - domain.center_vector
    if isinstance(domain, ps.Ball):
        lengths = np.linalg.norm(offsets, axis=1, keepdims=True)
        offsets *= np.minimum(1.0, domain.radius / np.maximum(lengths, 1e-300))
    else:
        offsets = np.clip(offsets, -domain.half_widths, domain.half_widths)
    return np.asarray(domain.center_vector + offsets)


def mean_centers(records: Floats, data: DataSet, epsilon: float, delta: float, seed: int) -> Floats:
    """Return centers around the mean of all records, which has the whole budget."""
    budget, n_records = ps.Budget(epsilon, delta), len(records)
    facts = Facts(data.n_clusters, records.shape[1], budget, n_records)
    weights = tuple(mean_weights(facts, Fraction(1)).items())
    model = clustered(
        pipeline.cluster,
        records,
        data.n_clusters,
        domain=data.domain,
        budget=budget,
        n_records=n_records,
        random_state=seed,
        n_threads=1,
        plan=PipelinePlan("mean", 0, (), weights, 1.0),
    )
    return model.centers


LIMITS: dict[str, Callable[[Floats, DataSet, float, float, int], Floats]] = {
    ORACLE: oracle_centers,
    ONE_MEAN: mean_centers,
}
