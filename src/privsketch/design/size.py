"""The size of a sketch and the kind of its noise, by the least predicted error.

The error of a centre is proportional to (v(m) + n / 2) / (m - P): v is the variance of
the noise, n / 2 that of sampling, P the number of unknowns (design/unknowns.py).
Gaussian noise has v ~ m, so more features never hurt, and the time they cost sets the
size; where the noise dominates they are worth it, because the P unknowns then follow
less of it. Pure noise has v ~ m^2, and where it dominates the least error is at m = 2 P. The
minimum is flat and the search is surer with more features, so the largest size within
a few percent of the least error is taken: 2.5 P for pure noise that dominates.

What a sketch of a given size can carry, and what serving several tasks costs.

A design in plain words, with what it promises to carry and what to think about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privsketch._typing import Floats
from privsketch.budget import Budget
from privsketch.design.forecast import cautions
from privsketch.design.recipe import Design
from privsketch.design.unknowns import (
    CovarianceType,
    carried_clusters,
    carried_gaussians,
    kmeans_unknowns,
    mixture_unknowns,
)
from privsketch.errors import ParameterError
from privsketch.features.contribution import TableContribution
from privsketch.features.frequencies import NO_LAW
from privsketch.features.maps import FeatureMap
from privsketch.features.masks import Masks
from privsketch.features.quadratic import QUADRATIC_LAWS
from privsketch.noise.mechanism import NOISE_KINDS, NoiseKind
from privsketch.noise.sums import CountMode, plan_sum_noise

MIN_FEATURES = 50  # fewer leave small problems to the luck of the frequencies
# Per coordinate of a centre. Seed mixtures need 4. Records of other shapes gain from more: digits
# in 10 principal components at epsilon = 1 had RSSE 1.10 with 4, 1.03 with 8, 1.02 with 12.
KMEANS_FEATURES = 8
SMALLEST_KMEANS_FEATURES = 4  # of sketches that would take long to learn, or are for mixtures
MIXTURE_FEATURES = 4  # per unknown
FULL_FEATURES = 3  # per unknown of full covariances, which are many
MOST_FEATURES = 6000  # beyond what is needed: larger sketches take long to learn
WORTH = 0.07  # fall of the predicted error that doubling the sketch is worth
TOLERANCE = 1.05  # of the least error: what a surer search may cost
COUNT_TOLERANCE = 1.1  # by how much a released count may raise the variance of the sums
_PREFERENCE: tuple[NoiseKind, ...] = ("gaussian", "cube", "laplace")
_COUNTS = {
    "released": "a noisy one is part of the sketch",
    "omitted": "not part of the sketch",
    "public": "public",
}
_MOST_NAMES = 12
_CENTERS = {
    "released": "the mean of the records, a noisy one of which is part of the sketch",
    "omitted": "that of the domain: components are those around it, not around the mean",
}


@dataclass(frozen=True)
class Size:
    """A number of features and a kind of noise, with the error predicted for them."""

    n_features: int
    noise: NoiseKind
    error: float  # relative to other sizes for the same task only


def largest_size(
    task: str, n_components: int, dim: int, covariance_type: CovarianceType = "diag"
) -> tuple[int, int]:
    """The most features worth their time, and the number of unknowns they serve."""
    needed = SMALLEST_KMEANS_FEATURES * n_components * dim
    if task == "kmeans":
        unknowns = kmeans_unknowns(n_components, dim)
        most = min(KMEANS_FEATURES * n_components * dim, MOST_FEATURES)
    else:
        unknowns = mixture_unknowns(n_components, dim, covariance_type)
        most = (FULL_FEATURES if covariance_type == "full" else MIXTURE_FEATURES) * unknowns
    # Any sketch should serve k-means.
    return max(MIN_FEATURES, most, needed), unknowns


def noise_variance(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
    masks: Masks | None = None,
) -> float:
    """Variance of the noise of one holder's sketch per real component, in records.

    For maps with a table, whose bounds do not depend on the frequencies.
    """
    noise = plan_sum_noise(
        TableContribution(feature_map.bounds, n_features, dim=1),
        budget,
        kind=kind,
        count=count,
        n_records=n_records,
        masks=masks,
    )
    rate = 1.0 if masks is None else masks.total_rate(n_features)
    return noise.sums_law.variance / (feature_map.amplitude * noise.factor * rate) ** 2


def relative_error(
    n_features: npt.ArrayLike,
    n_unknowns: int,
    variance: npt.ArrayLike,
    n_records: float,
    largest: int,
) -> Floats:
    """The error of a centre up to a factor that no choice of size or noise changes.

    Sampling errors of features are not independent: beyond `largest` features, more of
    them do not reduce these.
    """
    # Too small a sketch, but asked for, is not infinitely bad.
    spare = np.maximum(np.asarray(n_features) - n_unknowns, 0.1)
    spare_for_sampling = np.minimum(spare, max(largest - n_unknowns, 0.1))
    return np.asarray(np.asarray(variance) / spare + n_records / 2 / spare_for_sampling)


def choose_size(
    *,
    largest: int,
    n_unknowns: int,
    n_features: int | None,
    feature_map: FeatureMap,
    budget: Budget,
    noise: NoiseKind | None,
    count: CountMode,
    n_records: float,
    masks: Masks | None = None,
) -> Size:
    """The size and noise of least predicted error; what is given stays as given.

    Masks that keep a number of features keep the same share of them at every size here.
    """
    kinds = [noise] if noise is not None else [k for k in _PREFERENCE if _allowed(k, budget)]
    found: list[Size] = []
    refused: ParameterError | None = None
    at_most = n_features or largest
    least = n_features or min(max(MIN_FEATURES, n_unknowns + 1), largest)
    sizes = np.arange(least, at_most + 1)
    for kind in kinds:
        try:
            variance = noise_variance(feature_map, at_most, budget, kind, count, n_records, masks)
        except ParameterError as error:  # this kind cannot be drawn for this budget; others may
            refused = error
            continue
        power = 1 if kind == "gaussian" else 2
        variances = variance * (sizes / at_most) ** power
        errors = relative_error(sizes, n_unknowns, variances, n_records, largest)
        chosen = int(np.flatnonzero(errors <= TOLERANCE * errors.min())[-1])
        size = Size(int(sizes[chosen]), kind, float(errors[chosen]))
        if kind == "gaussian" and n_features is None:
            size = _doubled(size, n_unknowns, variance / at_most, n_records, largest)
        found.append(size)
    if not found and refused is not None:
        raise refused
    return min(found, key=lambda size: size.error)


def _doubled(size: Size, n_unknowns: int, variance: float, n_records: float, largest: int) -> Size:
    """Twice the features, as long as Gaussian noise, `variance` per feature, makes it worth it."""

    def error(m: int) -> float:
        return float(relative_error(m, n_unknowns, m * variance, n_records, largest))

    m = size.n_features
    while 2 * m <= MOST_FEATURES and error(2 * m) < (1 - WORTH) * error(m):
        m *= 2
    return replace(size, n_features=m, error=error(m))


def _allowed(kind: NoiseKind, budget: Budget) -> bool:
    """Pure noise is valid for any delta; Gaussian noise needs delta > 0."""
    return kind in NOISE_KINDS and (kind != "gaussian" or budget.delta > 0)


def choose_count(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    kind: NoiseKind,
    n_records: float,
    masks: Masks | None = None,
) -> CountMode:
    """Released, which helps learners, unless it would cost the sums noticeably."""
    if budget.neighbours == "replace":
        return "public"
    if kind == "gaussian":
        return "released"  # half a percent of the scale, by construction
    modes: tuple[CountMode, CountMode] = ("released", "omitted")
    released, omitted = (
        noise_variance(feature_map, n_features, budget, kind, mode, n_records, masks)
        for mode in modes
    )
    return "released" if released <= COUNT_TOLERANCE * omitted else "omitted"


def kmeans_cost(design: Design) -> float:
    """Predicted excess error of k-means from this design over that of one for k-means alone.

    Both for the same budget and number of records; below 1 if this design is larger
    and that helps.
    """
    k, dim = design.n_components, design.dim
    largest, n_unknowns = largest_size("kmeans", k, dim)
    alone = choose_size(
        largest=largest,
        n_unknowns=n_unknowns,
        n_features=None,
        feature_map=design.map,
        budget=design.budget,
        noise=None,
        count=design.count,
        n_records=design.n_records,
    )
    error = relative_error(
        design.n_features,
        kmeans_unknowns(k, dim),
        design.noise_std**2,
        design.n_records,
        largest,
    )
    return float(error) / alone.error


def capacity(design: Design) -> str:
    """In words, one line."""
    dim, size = design.dim, design.n_features
    full = carried_gaussians(dim, size, "full")
    line = (
        f"carries up to {carried_clusters(dim, size)} clusters, "
        f"{carried_gaussians(dim, size, 'diag')} diagonal or {full} full Gaussians"
    )
    if design.task == "kmeans":
        return line
    return (
        f"{line}; k-means from it has {kmeans_cost(design):.2g} times the excess error "
        "of a sketch for k-means alone"
    )


def describe_design(design: Design) -> str:
    """Several lines, each with a heading of twelve characters."""
    columns = design.columns
    names = "by position" if columns is None else ", ".join(columns[:_MOST_NAMES])
    more = ", ..." if columns is not None and len(columns) > _MOST_NAMES else ""
    lines = [
        f"design      {design.fingerprint[:16]} for {design.task}, "
        f"{design.n_components} components",
        f"records     {design.domain.describe()}; planned for {design.n_records:g} of them",
        f"columns     {names}{more}",
        f"features    {_features(design)}",
        f"noise       {design.noise}, standard deviation {design.noise_std:.4g} "
        f"{'records' if design.map.has_table else 'squared radii'} per number",
        f"forecast    {design.forecast().describe()}",
    ]
    if design.masks is not None:
        lines.append(f"masks       {design.masks.describe()}; secret, drawn for each record")
    if design.task == "pca":
        lines.append(f"center      {_CENTERS[design.mean]}")
    else:
        lines.append(f"size        {capacity(design)}")
    lines += [f"count       {_COUNTS[design.count]}", f"budget      {design.budget.describe()}"]
    return "\n".join(lines + [f"careful     {text}" for text in cautions(design)])


def _features(design: Design) -> str:
    recipe = design.frequencies
    if recipe.law == NO_LAW:
        return f"{design.n_features} ({design.feature_map})"
    start = f"{design.n_features} ({design.feature_map}), "
    if recipe.law in QUADRATIC_LAWS:
        return f"{start}vectors {recipe.law}, public seed {recipe.seed}"
    low, high = recipe.scales
    scale = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{start}frequencies {recipe.law} at scales {scale}, public seed {recipe.seed}"
