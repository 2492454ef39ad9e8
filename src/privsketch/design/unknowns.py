"""How many unknowns a model has, and how many components a sketch size can carry."""

from __future__ import annotations

from typing import Literal, get_args

from privsketch.errors import ParameterError

CovarianceType = Literal["spherical", "diag", "tied", "full"]
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
