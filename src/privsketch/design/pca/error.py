"""What privacy noise costs principal components, before any record is read.

An error E of the second-moment matrix turns an eigenvector v towards another one q by
q'E v / gap, gap the distance of their eigenvalues. The k components found then hold less
variance than the best k, by the sum over both of

    Var(q'E v) / gap                                (Davis-Kahan to second order).

For the matrix, Var(q'E v) is that of an off-diagonal entry. For m quadratic features along
directions spread evenly, with noise of variance v each, least squares leaves

    v d (d + 2) / (4 m) / (1 - P / m),   P unknowns fitted together.

Laplace noise costs a little less where there are many numbers per unknown, because learners
use a robust loss. The reference records have k equal eigenvalues and 5 % of their variance
spread evenly over all directions, and lie half a radius from the centre, root mean square.
Checked against simulations by `benchmarks/pca.py`.
"""

from __future__ import annotations

from privsketch.design.recipe import pca_unknowns
from privsketch.errors import ParameterError
from privsketch.features.moments import moment_count

ISOTROPIC_SHARE = 0.05
UNEVEN_SHARE = 0.02  # as of 5 % of the variance in directions of slowly falling variance
EXTENT = 0.5  # root mean square distance from the centre over the radius


def robust_gain(noise: str, per_value: float) -> float:
    """Variance of a fit to Laplace noise over that of least squares.

    `per_value` is the number of unknowns per value. From simulations; 0.5 is what a median
    would reach with no unknowns to speak of.
    """
    return min(1.0, 0.6 + per_value) if noise == "laplace" else 1.0


def cross_variance(
    dim: int,
    rank: int,
    *,
    map: str,
    n_features: int | None = None,
    noise: str,
    variance: float,
    diagonal_variance: float | None = None,
) -> float:
    """Var(q'E v) of a fitted matrix, averaged over directions; infinite if not identifiable.

    `variance` is that of a feature along a direction of length 1, or of an off-diagonal entry.
    """
    unknowns = pca_unknowns(rank, dim)
    if map == "second-moments":
        diagonal = 2 * variance if diagonal_variance is None else diagonal_variance
        average = variance + (diagonal - 2 * variance) / (dim + 2)
        return average * robust_gain(noise, unknowns / moment_count(dim))
    if map != "quadratic" or n_features is None:
        raise ParameterError(
            f"map={map!r}, n_features={n_features!r}: expected 'second-moments', or 'quadratic' "
            "with the number of features"
        )
    if unknowns >= n_features:
        return float("inf")
    per_value = unknowns / n_features
    plain = variance * dim * (dim + 2) / (4 * n_features) / (1 - per_value)
    return plain * robust_gain(noise, per_value)


def _uneven_variance(dim: int, map: str, n_features: int | None, size: float) -> float:
    """Variance of a feature of a random symmetric matrix of this Frobenius norm.

    As far as the features do not tell it apart: d (d + 1) / 2 of them tell everything.
    """
    entries = moment_count(dim)
    if map == "second-moments" or n_features is None or n_features >= entries:
        return 0.0
    return size**2 / entries * (1 - n_features / entries)


def lost_variance(
    dim: int,
    rank: int,
    n_records: float,
    *,
    map: str,
    n_features: int | None = None,
    noise: str,
    variance: float,
    diagonal_variance: float | None = None,
    uneven_share: float = 0.0,
    radius: float = 1.0,
) -> float:
    """Share of the best components' variance that privacy noise is expected to cost.

    For all components together, which lose nothing, the squared relative error of a variance.

    Parameters
    ----------
    dim, rank : int
    n_records : float
    map : {"quadratic", "second-moments"}
    n_features : int, optional
        Number of quadratic features.
    noise : {"gaussian", "laplace", "cube"}
    variance : float
        Of the noise, all holders together: of a feature along a direction of length 1, or
        of an off-diagonal entry of the matrix.
    diagonal_variance : float, optional
        Of a diagonal entry; twice the other if left out.
    uneven_share : float
        Frobenius norm of what the components leave, beyond an even rest, over the total
        variance. Features take it for noise unless there are enough of them to tell the
        whole matrix; `UNEVEN_SHARE` is one to choose between maps with, for records are
        never quite of low rank.
    radius : float
        Of the domain.

    Examples
    --------
    >>> sigma = 38.93  # epsilon = 0.1, delta = 1e-6, radius 1
    >>> loss = lost_variance(20, 3, 1e5, map="second-moments", noise="gaussian",
    ...                      variance=sigma**2 / 2)
    >>> round(loss, 5)
    0.0002
    """
    total = (EXTENT * radius) ** 2
    gap = (1 - ISOTROPIC_SHARE) * total / rank
    best = (1 - ISOTROPIC_SHARE) * total + ISOTROPIC_SHARE * total * rank / dim
    error = cross_variance(
        dim,
        rank,
        map=map,
        n_features=n_features,
        noise=noise,
        variance=variance
        + _uneven_variance(dim, map, n_features, uneven_share * total * n_records),
        diagonal_variance=diagonal_variance,
    )
    if rank >= dim:
        # Nothing is lost of all directions: the squared relative error of their variances
        # instead, the noise of eigenvalues being 2 sqrt(dim) times that of an entry.
        relative = 4 * dim * error / (n_records * total / dim) ** 2
        return relative / (1 + relative)
    # Noise that drowns everything leaves random directions, which hold their share.
    most = 1 - total * rank / dim / best
    if error == float("inf"):
        return most
    share = rank * (dim - rank) * error / n_records**2 / gap / best
    return share / (1 + share / most)
