"""How many unknowns a model has, and how many components a sketch size can carry.

What a feature tells about the centre of a cluster: Fisher information in closed form.

A cluster of a = n / k records and width s adds a exp(i w.c - |w|^2 s^2 / 2) to the
moment at frequency w. With a noise of variance v per real component, that moment tells
a^2 w_j^2 exp(-|w|^2 s^2) / v about coordinate j of the centre c. Averaged over the law
of the frequencies and summed over m of them, in units of the width, the information is

    a^2 m B / (v d),    B = E[x exp(-x)],  x = |w|^2 s^2,

and the squared error of a centre, relative to the width, is the inverse of it. P
unknowns are fitted together. A multi-scale law puts about half of its 2 m numbers where
clusters of one width can be seen, so they act like m numbers, and the error grows by
1 / (1 - P / m): exact Fisher matrices (tests/test_planning.py) and measured errors
(benchmarks/forecast.py) follow this.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from privsketch.errors import ParameterError

CovarianceType = Literal["spherical", "diag", "tied", "full"]
Verdict = Literal["good", "rough", "hopeless"]  # of a forecast
COVARIANCE_TYPES: tuple[CovarianceType, ...] = get_args(CovarianceType)
LEAST_PER_UNKNOWN = 2  # seen: one feature per unknown fails, two do


def kmeans_unknowns(n_components: int, dim: int) -> int:
    """A weight and a centre for each cluster, one width for all."""
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
        raise ParameterError(f"covariance_type={value!r}: expected one of {known_names}, or None")
    return None


def default_covariance_type(n_components: int, dim: int) -> CovarianceType:
    """Full where it at most doubles the unknowns of diagonal ones: up to five columns."""
    full = mixture_unknowns(n_components, dim, "full")
    return "full" if full <= 2 * mixture_unknowns(n_components, dim, "diag") else "diag"


def richest_shape(n_components: int, dim: int, n_features: int) -> CovarianceType:
    """The most general covariances that a sketch of this size can carry."""
    for shape in ("full", "diag"):
        kind = checked_covariance_type(shape)
        if kind and LEAST_PER_UNKNOWN * mixture_unknowns(n_components, dim, kind) <= n_features:
            return kind
    return "spherical"


def carried_clusters(dim: int, n_features: int) -> int:
    """The largest number of clusters with two features for every unknown."""
    return max(0, (n_features // LEAST_PER_UNKNOWN - 1) // (dim + 1))


def carried_gaussians(dim: int, n_features: int, covariance_type: CovarianceType) -> int:
    """The largest number of Gaussians with two features for every unknown."""
    fixed = mixture_unknowns(0, dim, covariance_type)
    each = mixture_unknowns(1, dim, covariance_type) - fixed
    return max(0, (n_features // LEAST_PER_UNKNOWN - fixed) // each)


def band_share(law: str, scales: tuple[float, float], width: float, dim: int) -> float:
    """B = E[x exp(-x)]: the share of features in the band where a width can be seen.

    At one scale t, with q = 2 (width / t)^2, x has an exponential law of mean q (a
    gamma law of shape dim / 2 for normal frequencies); over log-uniform scales the
    mean is an integral of dq / (1 + q)^2.
    """
    low, high = (_q(width, scale) for scale in scales)
    if law == "gaussian":
        return float(dim / 2 * low * (1 + low) ** -(dim / 2 + 1))
    if scales[0] == scales[1]:
        return low / (1 + low) ** 2
    return (1 / (1 + high) - 1 / (1 + low)) / (2 * math.log(scales[1] / scales[0]))


def energy_share(law: str, scales: tuple[float, float], width: float, dim: int) -> float:
    """E[exp(-x)]: the mean of |exp(-|w|^2 width^2 / 2)|^2 over the law of frequencies."""
    low, high = (_q(width, scale) for scale in scales)
    if law == "gaussian":
        return float((1 + low) ** -(dim / 2))
    if scales[0] == scales[1]:
        return 1 / (1 + low)
    # The integral of dq / (q (1 + q)), written so that small q does not cancel.
    return (math.log1p(1 / high) - math.log1p(1 / low)) / (2 * math.log(scales[1] / scales[0]))


def _q(width: float, scale: float) -> float:
    return 2 * (width / scale) ** 2


def inflation(n_unknowns: int, n_features: int) -> float:
    """How much fitting all unknowns together enlarges the error; infinite if m <= P."""
    spare = 1 - n_unknowns / n_features
    return 1 / spare if spare > 0 else math.inf


def centre_error(
    *,
    n_components: int,
    dim: int,
    n_records: float,
    n_features: int,
    variance: float,
    n_unknowns: int,
    band: float,
) -> float:
    """Expected squared error of a centre over that of a record: the excess RSSE - 1.

    Both are sums over the dim coordinates, in units of the squared width.
    """
    if band <= 0:
        return math.inf  # a width that no frequency can see
    cluster = n_records / n_components
    information = cluster**2 * n_features * band / (variance * dim)
    return inflation(n_unknowns, n_features) / information
