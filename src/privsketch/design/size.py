"""The size of a sketch and the kind of its noise, by the least predicted error.

The error of a center is proportional to (v(m) + n / 2) / (m - P): v is the variance of the noise,
n / 2 that of sampling, P the number of unknowns. Gaussian noise has v ~ m, so more features never
hurt, and the time they cost sets the size. They are worth it where noise dominates, because the P
unknowns then follow less of it. Pure noise has v ~ m^2; where it dominates, the error is smallest
at m = 2 P. The minimum is flat and the search is safer with more features, so the planner takes the
largest size within a few percent of the least error: 2.5 P for dominant pure noise.

The formula follows from the Fisher information of a feature about the center of a cluster. A
cluster of a = n / k records and width s adds a exp(i w.c - |w|^2 s^2 / 2) to the moment at
frequency w. With noise of variance v per real component, that moment carries the information
a^2 w_j^2 exp(-|w|^2 s^2) / v about coordinate j of the center c. Averaged over the law of the
frequencies and summed over m of them, in units of the width, the information is

    a^2 m B / (v d),    B = E[x exp(-x)],  x = |w|^2 s^2,

and the squared error of a center, relative to the width, is its inverse. P unknowns are fitted
together. Of the 2 m numbers only those in the band of the width determine its centers. They act
like N = 2 m B^2 / E[(x exp(-x))^2] numbers, m or a little more for likely widths, and the error
grows by 1 / (1 - P / N). Exact Fisher matrices (tests/design) and measured errors
(benchmarks/forecast.py) follow this formula. A search among m <= P features fails.

Signs (one-bit features) are square waves. In units of their first harmonic, which learners read, a
record adds exp(i t) - exp(-3 i t) / 3 + exp(5 i t) / 5 - ... at the phase t = w.x + u. After the
dither u is subtracted, the wave of order h has the sum (n / h) phi(h w) and a phase of
(+-h - 1) u, where phi is the characteristic function of the records. u is uniform and public, so
these sums are noise for a learner that ignores them: of variance n^2 |phi(h w)|^2 / (2 h^2) per
real component, uncorrelated between orders and features. They grow with n as the signal does. For
k clusters of width s whose centers spread by S, E|phi(h w)|^2 is
exp(-h^2 |w|^2 s^2) (1 / k + (1 - 1 / k) exp(-h^2 |w|^2 S^2)) (`harmonic_variance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.types import Floats
from privsketch.facts.budget import Budget
from privsketch.features.maps import FeatureMap, TableContribution
from privsketch.features.masks import Masks
from privsketch.features.radii import RadialLaw
from privsketch.features.waves import HARMONICS
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import CountMode, plan_sum_noise

MIN_FEATURES = 50  # with fewer, results of small problems depend on the frequencies drawn
# Features per coordinate of a center. Seed mixtures need 4, clusters of other shapes gain by more:
# digits in 10 principal components at epsilon = 1 had RSSE 1.10 with 4, 1.03 with 8, 1.02 with 12.
# A few clusters have too few features for their shapes and get those of four more clusters, which
# lowered the excess of 2 to 4 clusters of other shapes from 0.04 to 0.02.
KMEANS_FEATURES, EXTRA_CLUSTERS = 8, 4
MIN_KMEANS_FEATURES = 4  # per coordinate, for sketches that take long to learn or for mixtures
MIXTURE_FEATURES, FULL_FEATURES = 4, 3  # per unknown; full covariances have many unknowns
MAX_SKETCH_FEATURES = 6000  # learning from larger sketches takes long
MIN_DOUBLING_GAIN = 0.07  # smallest relative fall of the error that justifies doubling
SAFER_SIZE_FACTOR = 1.05  # largest factor on the least error for the sake of a safer search
COUNT_VARIANCE_FACTOR = 1.1  # largest factor on the variance of sums for a released count
_PREFERENCE: tuple[NoiseKind, ...] = ("gaussian", "cube", "laplace")
CovarianceType = Literal["spherical", "diag", "tied", "full"]
Verdict = Literal["good", "rough", "hopeless"]  # of a forecast
COVARIANCE_TYPES: tuple[CovarianceType, ...] = get_args(CovarianceType)
MIN_PER_UNKNOWN = 2  # features: one per unknown fails, two suffice
# A search for more takes minutes even in two columns, and its memory grows with their cube.
MAX_MIXTURE_COMPONENTS = 200
MANY_COMPONENTS_ADVICE = "ask for fewer, or for k-means with `method='pipeline'`"


@dataclass(frozen=True)
class Size:
    """A number of features and a kind of noise, with the error predicted for them."""

    n_features: int
    noise: NoiseKind
    error: float  # relative to other sizes for the same task only


def largest_size(
    task: str,
    n_components: int,
    dim: int,
    covariance_type: CovarianceType = "diag",
    n_free_shares: int = 0,
) -> tuple[int, int]:
    """Return the largest number of features that is worth its time, and that of unknowns.

    `n_free_shares` is the number of free shares of labels of a cluster, beside `dim` numbers.
    """
    freedom = dim + n_free_shares
    needed = MIN_KMEANS_FEATURES * n_components * freedom
    if task == "kmeans":
        unknowns = kmeans_unknowns(n_components, freedom)
        largest = KMEANS_FEATURES * (n_components + EXTRA_CLUSTERS) * freedom
        largest = min(largest, MAX_SKETCH_FEATURES)
    else:
        unknowns = mixture_unknowns(n_components, dim, covariance_type)
        unknowns += n_components * n_free_shares
        largest = (FULL_FEATURES if covariance_type == "full" else MIXTURE_FEATURES) * unknowns
    # Every sketch should serve k-means.
    return max(MIN_FEATURES, largest, needed), unknowns


def noise_variance(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    kind: NoiseKind,
    count: CountMode,
    n_records: float,
    masks: Masks | None = None,
) -> float:
    """Return the variance of the noise of one holder's sketch per real component, in records.

    The map must have a table: its bounds then do not depend on the frequencies.
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
    """Return the variance that harmonics of signs add per real component, in squared records.

    It is a mean over all features, or over those in the band of the width, weighted by their
    information x exp(-x) as in `band_share`. The error of a nearly correct fit is that of the band.
    A search uses all features: most of the variance is in the lowest ones, and small sketches lose
    clusters because of it (`forecast.expected_range`).
    """
    total_width = math.hypot(width, spread)

    def mean_square(order: int) -> float:
        """Return that of the characteristic function at `order` times the frequencies."""
        sizes = (order * width, 1 / n_components), (order * total_width, 1 - 1 / n_components)
        if not in_band:
            return sum(share * energy_share(law, radii, size, dim) for size, share in sizes)
        band = band_share(law, radii, width, dim)
        total = 0.0
        for size, share in sizes:
            # E[x exp(-x - c x)] is the band of a width sqrt(1 + c) times as large.
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
    """Return the error of a center up to a factor that does not depend on size and noise.

    Sampling errors of features are not independent: more than `largest` features do not reduce
    them.
    """
    # A stated size that is too small has a finite error.
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
    noise_ratio: float = 1.0,
    harmonics: float = 0.0,
    least_share: float = 0.0,
) -> Size:
    """Return the size and noise of least predicted error; stated values stay.

    Masks that keep a number of features keep the same share of them at every size. Sizes below
    `least_share` of `largest` are not considered. `noise_ratio` is the variance of the
    total's noise over that of one release. `harmonics` is the variance of harmonics of signs, which
    is the same for every size.
    """
    kinds = [kind for kind in _PREFERENCE if kind != "gaussian" or budget.delta > 0]
    if noise is not None:
        kinds = [noise]
    choices: list[Size] = []
    refusal: ParameterError | None = None
    at_most = n_features or largest
    least = max(MIN_FEATURES, n_unknowns + 1, math.ceil(least_share * largest))
    least = n_features or min(least, largest)
    sizes = np.arange(least, at_most + 1)
    for kind in kinds:
        try:
            variance = noise_variance(feature_map, at_most, budget, kind, count, n_records, masks)
            variance *= noise_ratio
        except ParameterError as error:  # the budget may allow another kind
            refusal = error
            continue
        power = 1 if kind == "gaussian" else 2
        variances = variance * (sizes / at_most) ** power + harmonics
        errors = relative_error(sizes, n_unknowns, variances, n_records, largest)
        index = int(np.flatnonzero(errors <= SAFER_SIZE_FACTOR * errors.min())[-1])
        size = Size(int(sizes[index]), kind, float(errors[index]))
        if kind == "gaussian" and n_features is None:
            size = _doubled(size, n_unknowns, variance / at_most, harmonics, n_records, largest)
        choices.append(size)
    if not choices and refusal is not None:
        raise refusal
    return min(choices, key=lambda size: size.error)


def _doubled(
    size: Size, n_unknowns: int, variance: float, harmonics: float, n_records: float, largest: int
) -> Size:
    """Double the features while Gaussian noise of `variance` per feature makes it worthwhile.

    Harmonics do not count: their error falls with every feature, so no size would be enough.
    """

    def error(m: int, more: float = 0.0) -> float:
        return float(relative_error(m, n_unknowns, m * variance + more, n_records, largest))

    m = size.n_features
    while 2 * m <= MAX_SKETCH_FEATURES and error(2 * m) < (1 - MIN_DOUBLING_GAIN) * error(m):
        m *= 2
    return replace(size, n_features=m, error=error(m, harmonics))


def choose_count(
    feature_map: FeatureMap,
    n_features: int,
    budget: Budget,
    kind: NoiseKind,
    n_records: float,
    masks: Masks | None = None,
) -> CountMode:
    """Return "released", which helps learners, unless it costs the sums noticeably."""
    if budget.neighbours == "replace":
        return "public"
    if kind == "gaussian":
        return "released"  # it costs half a percent of the scale, by construction
    modes: tuple[CountMode, CountMode] = ("released", "omitted")
    released, omitted = (
        noise_variance(feature_map, n_features, budget, kind, mode, n_records, masks)
        for mode in modes
    )
    return "released" if released <= COUNT_VARIANCE_FACTOR * omitted else "omitted"


def kmeans_unknowns(n_components: int, dim: int) -> int:
    """Return the number of weights and centers of clusters, and one width for all."""
    return n_components * (dim + 1) + 1


def require_searchable_mixture(n_components: object) -> int:
    """Return a number of components that a search finds in about a minute, or raise."""
    number = require_count("n_components", n_components)
    if number > MAX_MIXTURE_COMPONENTS:
        raise ParameterError(
            "n_components",
            number,
            f"expected at most {MAX_MIXTURE_COMPONENTS} for a mixture, because a search for more "
            "takes minutes",
            MANY_COMPONENTS_ADVICE,
        )
    return number


def mixture_unknowns(n_components: int, dim: int, covariance_type: CovarianceType) -> int:
    """Return the number of free weights, means, and covariances of the given shape."""
    matrix = dim * (dim + 1) // 2
    shapes = {
        "spherical": n_components,
        "diag": n_components * dim,
        "tied": matrix,
        "full": n_components * matrix,
    }
    return n_components * (dim + 1) - 1 + shapes[covariance_type]


def checked_covariance_type(value: str | None) -> CovarianceType | None:
    """Return the shape of that name; None stays None."""
    return None if value is None else require_one_of("covariance_type", value, COVARIANCE_TYPES)


def default_covariance_type(n_components: int, dim: int) -> CovarianceType:
    """Return "full" if it at most doubles the unknowns of "diag", up to five columns."""
    full = mixture_unknowns(n_components, dim, "full")
    return "full" if full <= 2 * mixture_unknowns(n_components, dim, "diag") else "diag"


def richest_shape(n_components: int, dim: int, n_features: int) -> CovarianceType:
    """Return the most general covariances that a sketch of this size can carry."""
    shapes: tuple[CovarianceType, ...] = ("full", "diag")
    for shape in shapes:
        if MIN_PER_UNKNOWN * mixture_unknowns(n_components, dim, shape) <= n_features:
            return shape
    return "spherical"


def supported_clusters(dim: int, n_features: int) -> int:
    """Return the largest number of clusters with two features for every unknown."""
    return max(0, (n_features // MIN_PER_UNKNOWN - 1) // (dim + 1))


def supported_gaussians(dim: int, n_features: int, covariance_type: CovarianceType) -> int:
    """Return the largest number of Gaussians with two features for every unknown."""
    fixed = mixture_unknowns(0, dim, covariance_type)
    per_gaussian = mixture_unknowns(1, dim, covariance_type) - fixed
    return max(0, (n_features // MIN_PER_UNKNOWN - fixed) // per_gaussian)


def band_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """Return B = E[x exp(-x)], the share of features in the band that resolves a width.

    For normal frequencies, x has a gamma law of shape dim / 2.
    """
    if law != "gaussian":
        return radii.band_share(width)
    q = _normal_q(radii, width)
    return float(dim / 2 * q * (1 + q) ** -(dim / 2 + 1))


def squared_band_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """Return E[(x exp(-x))^2], which is larger if few features make up the band."""
    if law != "gaussian":
        return radii.squared_band_share(width)
    q = _normal_q(radii, width)
    return float(dim / 2 * (dim / 2 + 1) * q**2 * (1 + 2 * q) ** -(dim / 2 + 2))


def energy_share(law: str, radii: RadialLaw, width: float, dim: int) -> float:
    """Return E[exp(-x)], the mean of |exp(-|w|^2 width^2 / 2)|^2 over the law of frequencies."""
    if law != "gaussian":
        return radii.energy_share(width)
    return float((1 + _normal_q(radii, width)) ** -(dim / 2))


def _normal_q(radii: RadialLaw, width: float) -> float:
    """Return the scale of the gamma law of x for normal frequencies, which have one scale."""
    return 2 * (width / radii.scales[0]) ** 2


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
    """Return the expected squared error of a center over that of a record: the excess RSSE - 1.

    Both are sums over the dim coordinates, in units of the squared width. `band` and
    `squared_band` are the shares of that width.
    """
    if band <= 0 or n_features <= n_unknowns:
        return math.inf  # no frequency resolves the width, or the search has too few features
    cluster = n_records / n_components
    information = cluster**2 * n_features * band / (variance * dim)
    n_numbers = 2 * n_features * band**2 / squared_band
    spare = 1 - n_unknowns / n_numbers  # fitting all unknowns together enlarges the error
    return 1 / spare / information if spare > 0 else math.inf
