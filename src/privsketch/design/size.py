"""The size of a sketch and the kind of its noise, by the least predicted error.

The error of a center is proportional to (v(m) + n / 2) / (m - P): v is the variance of
the noise, n / 2 that of sampling, P the number of unknowns.
Gaussian noise has v ~ m, so more features never hurt, and the time they cost sets the
size; where the noise dominates they are worth it, because the P unknowns then follow
less of it. Pure noise has v ~ m^2, and where it dominates the least error is at m = 2 P. The
minimum is flat and the search is surer with more features, so the largest size within
a few percent of the least error is taken: 2.5 P for pure noise that dominates.

Behind it is what a feature tells about the center of a cluster, Fisher information in closed form.
A cluster of a = n / k records and width s adds a exp(i w.c - |w|^2 s^2 / 2) to the
moment at frequency w. With a noise of variance v per real component, that moment tells
a^2 w_j^2 exp(-|w|^2 s^2) / v about coordinate j of the center c. Averaged over the law
of the frequencies and summed over m of them, in units of the width, the information is

    a^2 m B / (v d),    B = E[x exp(-x)],  x = |w|^2 s^2,

and the squared error of a center, relative to the width, is the inverse of it. P
unknowns are fitted together. Of the 2 m numbers only those in the band of the width say where its
centers are: they act like N = 2 m B^2 / E[(x exp(-x))^2], m or a little more for likely widths, and
the error grows by 1 / (1 - P / N): exact Fisher matrices (tests/design) and measured errors
(benchmarks/forecast.py) follow this. A search among m <= P features fails nevertheless.

Signs (one-bit features) are square waves: in units of their first harmonic, what learners read, a
record adds exp(i t) - exp(-3 i t) / 3 + exp(5 i t) / 5 - ... at the phase t = w.x + u. With the
dither u taken back, the wave of order h has the sum (n / h) phi(h w) and a phase of
(+-h - 1) u, phi being the characteristic function of the records. u is uniform and public, so
these sums are noise to a learner that does not know of them: of variance
n^2 |phi(h w)|^2 / (2 h^2) per real component, uncorrelated between orders and features. They grow
with n as the signal does. For k clusters of width s whose centers spread by S, E|phi(h w)|^2 is
exp(-h^2 |w|^2 s^2) (1 / k + (1 - 1 / k) exp(-h^2 |w|^2 S^2)) (`harmonic_variance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError
from privsketch._base.types import Floats
from privsketch.facts.budget import Budget
from privsketch.features.maps import FeatureMap, TableContribution
from privsketch.features.masks import Masks
from privsketch.features.radii import RadialLaw
from privsketch.features.waves import HARMONICS
from privsketch.noise.mechanism import NOISE_KINDS, NoiseKind
from privsketch.noise.sums import CountMode, plan_sum_noise

MIN_FEATURES = 50  # fewer leave small problems to the luck of the frequencies
# Per coordinate of a center. Seed mixtures need 4. Records of other shapes gain from more: digits
# in 10 principal components at epsilon = 1 had RSSE 1.10 with 4, 1.03 with 8, 1.02 with 12. Few
# clusters leave few features for their shapes: they get those of four more, which took the excess
# of 2 to 4 clusters of other shapes from 0.04 to 0.02.
KMEANS_FEATURES, FOR_SHAPES = 8, 4
MIN_KMEANS_FEATURES = 4  # of sketches that would take long to learn, or are for mixtures
MIXTURE_FEATURES = 4  # per unknown
FULL_FEATURES = 3  # per unknown of full covariances, which are many
MAX_FEATURES = 6000  # beyond what is needed: larger sketches take long to learn
WORTH = 0.07  # fall of the predicted error that doubling the sketch is worth
TOLERANCE = 1.05  # of the least error: what a surer search may cost
COUNT_TOLERANCE = 1.1  # by how much a released count may raise the variance of the sums
_PREFERENCE: tuple[NoiseKind, ...] = ("gaussian", "cube", "laplace")
CovarianceType = Literal["spherical", "diag", "tied", "full"]
Verdict = Literal["good", "rough", "hopeless"]  # of a forecast
COVARIANCE_TYPES: tuple[CovarianceType, ...] = get_args(CovarianceType)
MIN_PER_UNKNOWN = 2  # seen: one feature per unknown fails, two do


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
    needed = MIN_KMEANS_FEATURES * n_components * dim
    if task == "kmeans":
        unknowns = kmeans_unknowns(n_components, dim)
        most = min(KMEANS_FEATURES * (n_components + FOR_SHAPES) * dim, MAX_FEATURES)
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


def harmonic_variance(
    law: str,
    radii: RadialLaw,
    dim: int,
    *,
    n_components: int,
    n_records: float,
    width: float,
    spread: float,
    in_band: bool,
) -> float:
    """Variance that the harmonics of signs add, per real component, in squared records.

    Its mean over all features, or over those of the band where the width is seen, each as far as
    it tells where centers are: by x exp(-x), as in `band_share`. A fit that is nearly right has
    the error of the band. A search sees all features: most of the variance is in the lowest, and
    small sketches lose clusters to it (`forecast.expected_range`).
    """
    whole = math.hypot(width, spread)

    def mean_square(order: int) -> float:
        """Of the characteristic function at so many times the frequencies."""
        sizes = (order * width, 1 / n_components), (order * whole, 1 - 1 / n_components)
        if not in_band:
            return sum(share * energy_share(law, radii, size, dim) for size, share in sizes)
        band = band_share(law, radii, width, dim)
        total = 0.0
        for size, share in sizes:
            # E[x exp(-x - c x)] is the band of a width that is sqrt(1 + c) times as large.
            larger = math.hypot(width, size)
            total += share * band_share(law, radii, larger, dim) * (width / larger) ** 2
        return total / band if band > 0 else 0.0

    return n_records**2 / 2 * sum(mean_square(order) / order**2 for order in HARMONICS)


def relative_error(
    n_features: npt.ArrayLike,
    n_unknowns: int,
    variance: npt.ArrayLike,
    n_records: float,
    largest: int,
) -> Floats:
    """The error of a center up to a factor that no choice of size or noise changes.

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
    noises: float = 1.0,
    harmonics: float = 0.0,
    all_features: bool = False,
) -> Size:
    """The size and noise of least predicted error; what is given stays as given.

    Masks that keep a number of features keep the same share of them at every size here. With
    `all_features`, sizes below `largest` are left out. `noises` is the variance of the noise over
    that of one release, for a total of all records; `harmonics` that of signs, which is the same
    for every size.
    """
    kinds = [noise] if noise is not None else [k for k in _PREFERENCE if _allowed(k, budget)]
    found: list[Size] = []
    refused: ParameterError | None = None
    at_most = n_features or largest
    least = n_features or min(max(MIN_FEATURES, n_unknowns + 1), largest)
    if all_features and n_features is None:
        least = largest
    sizes = np.arange(least, at_most + 1)
    for kind in kinds:
        try:
            variance = noise_variance(feature_map, at_most, budget, kind, count, n_records, masks)
            variance *= noises
        except ParameterError as error:  # this kind cannot be drawn for this budget; others may
            refused = error
            continue
        power = 1 if kind == "gaussian" else 2
        variances = variance * (sizes / at_most) ** power + harmonics
        errors = relative_error(sizes, n_unknowns, variances, n_records, largest)
        chosen = int(np.flatnonzero(errors <= TOLERANCE * errors.min())[-1])
        size = Size(int(sizes[chosen]), kind, float(errors[chosen]))
        if kind == "gaussian" and n_features is None:
            size = _doubled(size, n_unknowns, variance / at_most, harmonics, n_records, largest)
        found.append(size)
    if not found and refused is not None:
        raise refused
    return min(found, key=lambda size: size.error)


def _doubled(
    size: Size, n_unknowns: int, variance: float, harmonics: float, n_records: float, largest: int
) -> Size:
    """Twice the features, as long as Gaussian noise, `variance` per feature, makes it worth it.

    Harmonics alone do not: they fall with every feature, and no sketch would be large enough.
    """

    def error(m: int, more: float = 0.0) -> float:
        return float(relative_error(m, n_unknowns, m * variance + more, n_records, largest))

    m = size.n_features
    while 2 * m <= MAX_FEATURES and error(2 * m) < (1 - WORTH) * error(m):
        m *= 2
    return replace(size, n_features=m, error=error(m, harmonics))


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


def kmeans_unknowns(n_components: int, dim: int) -> int:
    """A weight and a center for each cluster, one width for all."""
    return n_components * (dim + 1) + 1


def mixture_unknowns(n_components: int, dim: int, covariance_type: CovarianceType) -> int:
    """Weights that sum to 1, means, and covariances of the given shape."""
    matrix = dim * (dim + 1) // 2
    shapes = {
        "spherical": n_components,
        "diag": n_components * dim,
        "tied": matrix,
        "full": n_components * matrix,
    }
    return n_components * (dim + 1) - 1 + shapes[covariance_type]


def checked_covariance_type(value: str | None) -> CovarianceType | None:
    """The shape of that name; None stays None."""
    for known in COVARIANCE_TYPES:
        if value == known:
            return known
    if value is not None:
        known_names = ", ".join(map(repr, COVARIANCE_TYPES))
        raise ParameterError("covariance_type", value, f"expected one of {known_names}, or None")
    return None


def default_covariance_type(n_components: int, dim: int) -> CovarianceType:
    """Full where it at most doubles the unknowns of diagonal ones: up to five columns."""
    full = mixture_unknowns(n_components, dim, "full")
    return "full" if full <= 2 * mixture_unknowns(n_components, dim, "diag") else "diag"


def richest_shape(n_components: int, dim: int, n_features: int) -> CovarianceType:
    """The most general covariances that a sketch of this size can carry."""
    for shape in ("full", "diag"):
        kind = checked_covariance_type(shape)
        if kind and MIN_PER_UNKNOWN * mixture_unknowns(n_components, dim, kind) <= n_features:
            return kind
    return "spherical"


def carried_clusters(dim: int, n_features: int) -> int:
    """The largest number of clusters with two features for every unknown."""
    return max(0, (n_features // MIN_PER_UNKNOWN - 1) // (dim + 1))


def carried_gaussians(dim: int, n_features: int, covariance_type: CovarianceType) -> int:
    """The largest number of Gaussians with two features for every unknown."""
    fixed = mixture_unknowns(0, dim, covariance_type)
    each = mixture_unknowns(1, dim, covariance_type) - fixed
    return max(0, (n_features // MIN_PER_UNKNOWN - fixed) // each)


def band_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """B = E[x exp(-x)]: the share of features in the band where a width can be seen.

    Of normal frequencies, x has a gamma law of shape dim / 2.
    """
    if law != "gaussian":
        return radii.band_share(width)
    q = _normal_q(radii, width)
    return float(dim / 2 * q * (1 + q) ** -(dim / 2 + 1))


def squared_band_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """E[(x exp(-x))^2]: whether few features carry that share, or many."""
    if law != "gaussian":
        return radii.squared_band_share(width)
    q = _normal_q(radii, width)
    return float(dim / 2 * (dim / 2 + 1) * q**2 * (1 + 2 * q) ** -(dim / 2 + 2))


def energy_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """E[exp(-x)]: the mean of |exp(-|w|^2 width^2 / 2)|^2 over the law of frequencies."""
    if law != "gaussian":
        return radii.energy_share(width)
    return float((1 + _normal_q(radii, width)) ** -(dim / 2))


def _normal_q(radii: RadialLaw, width: float) -> float:
    """Of normal frequencies, which have one scale."""
    return 2 * (width / radii.scales[0]) ** 2


def inflation(n_unknowns: int, n_numbers: float) -> float:
    """How much fitting all unknowns together enlarges the error; infinite without spare numbers."""
    spare = 1 - n_unknowns / n_numbers
    return 1 / spare if spare > 0 else math.inf


def center_error(
    *,
    n_components: int,
    dim: int,
    n_records: float,
    n_features: int,
    variance: float,
    n_unknowns: int,
    band: float,
    squared_band: float,
) -> float:
    """Expected squared error of a center over that of a record: the excess RSSE - 1.

    Both are sums over the dim coordinates, in units of the squared width. `band` and
    `squared_band` are the shares of that width.
    """
    if band <= 0 or n_features <= n_unknowns:
        return math.inf  # a width that no frequency can see, or a search that fails
    cluster = n_records / n_components
    information = cluster**2 * n_features * band / (variance * dim)
    n_numbers = 2 * n_features * band**2 / squared_band
    return inflation(n_unknowns, n_numbers) / information
