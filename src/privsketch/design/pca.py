"""Designs for principal components: second moments or quadratic features, size, noise, forecast.

Both maps release linear functions of the matrix C = sum (x - c)(x - c)'. Second moments are all
of its d (d + 1) / 2 entries; m quadratic features determine it if its rank is low. Which is better
depends on how noise grows. Gaussian noise hardly grows with the number of entries, so the matrix
wins while it is affordable. Laplace noise grows with dim for the matrix and with m / dim for unions
of orthonormal bases, so features win for low ranks. The planner ranks candidates by their predicted
loss, for noise estimated from their sizes. It draws and calibrates only the best one.

The prediction: an error E of the second-moment matrix turns an eigenvector v towards another one q
by q'E v / gap, where gap is the distance of their eigenvalues. The k learned components then hold
less variance than the best k, by the sum over both of

    Var(q'E v) / gap                                (Davis-Kahan to second order).

For the matrix, Var(q'E v) is that of an off-diagonal entry. For m quadratic features along
directions spread evenly, with noise of variance v each, least squares leaves

    v d (d + 2) / (4 m) / (1 - P / m),   P unknowns fitted together.

Laplace noise costs a little less if there are many numbers per unknown, because learners use a
robust loss. The reference records have k equal eigenvalues and 5 % of their variance spread evenly
over all directions. Their root mean square distance from the center is half a radius.
`benchmarks/pca.py` checks the prediction against simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from privsketch._base.errors import ParameterError
from privsketch.design.recipe import Design
from privsketch.design.request import Request
from privsketch.design.size import MAX_SKETCH_FEATURES, Verdict
from privsketch.design.validity import pca_unknowns, require_components
from privsketch.facts.budget import Budget
from privsketch.features.frequencies import NO_LAW
from privsketch.features.maps import feature_map
from privsketch.features.moments import DIAGONAL, OFF_DIAGONAL, moment_count
from privsketch.noise.calibration import kappa_discrete
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import MAX_RECORDS

MAX_MATRIX_COLUMNS = 512  # a larger matrix has more than 130,000 entries
MAX_BASIS_COLUMNS = 512  # drawing larger orthonormal bases takes minutes
SIZE_FACTORS = (2, 2.5, 3, 4, 6, 9)  # candidate sizes, in features per component and column
ISOTROPIC_SHARE = 0.05  # of the variance of the reference records (benchmarks/pca.py)
UNEVEN_SHARE = 0.02  # that of 5 % of the variance if it falls slowly over directions
EXTENT = 0.5  # root mean square distance from the center over the radius
GOOD_LOSS, HOPELESS_LOSS = 0.02, 0.2  # shares of the variance of the components
LOSS_SCATTER = 2.0  # factor by which the losses of data sets scatter around the prediction


@dataclass(frozen=True)
class PCACandidate:
    """A feature map, the law of its vectors, their number, and the kind of noise."""

    map_name: str
    law: str
    n_features: int
    noise: NoiseKind


def plan_components(request: Request) -> Design:
    """Plan the features of least predicted loss for principal components."""
    dim, k, budget, masks = request.dim, request.n_components, request.budget, request.masks
    n_records = request.public_size(request.n_features or 9 * k * dim)
    require_components(k, dim, n_values=moment_count(dim))
    kinds: list[NoiseKind] = ["gaussian"] if budget.delta > 0 else ["laplace"]
    masks_features = masks is not None and masks.features != "all"
    if budget.delta == 0 and request.mean in (None, "omitted") and not masks_features:
        kinds.append("cube")
    if request.noise is not None:
        kinds = [request.noise]
    total, noise_ratio = n_records * (request.n_holders or 1), request.noise_ratio
    best = min(
        _candidates(request, kinds),
        key=lambda candidate: estimated_loss(candidate, dim, k, total, budget, noise_ratio),
    )
    return request.design(
        feature_map=best.map_name,
        frequencies=request.draw(best.law, best.n_features),
        noise=best.noise,
        count=request.count or ("public" if budget.neighbours == "replace" else "released"),
        n_records=n_records,
    )


def estimated_loss(
    candidate: PCACandidate,
    dim: int,
    n_components: int,
    n_records: float,
    budget: Budget,
    noise_ratio: float = 1.0,
) -> float:
    """Return the predicted loss in a ball of radius 1, for noise estimated from sizes alone.

    `noise_ratio` is the variance of the noise of a total over that of one release.
    """
    m, epsilon = candidate.n_features, budget.epsilon
    is_matrix = candidate.map_name == "second-moments"
    replace = budget.neighbours == "replace"
    if candidate.noise == "gaussian":
        # S4 lies near 1 + sqrt(3 m / (d (d + 2))): 15 % above to 10 % below for 20 to 100 columns.
        norm = 1.0 if is_matrix else 1 + math.sqrt(3 * m / (dim * (dim + 2)))
        norm *= math.sqrt(2) if replace else 1.0
        variance = (kappa_discrete(epsilon, budget.delta) * norm) ** 2
    elif candidate.noise == "laplace":
        norm = 1 + OFF_DIAGONAL / DIAGONAL * (dim - 1) / 2 if is_matrix else m / dim
        if candidate.law == "normal":
            norm *= (1 + math.sqrt(dim / m)) ** 2
        variance = 2 * ((2 if replace else 1) * norm / epsilon) ** 2
    else:
        variance = (m + 1) * (m + 2) / 3 / epsilon / epsilon
    return lost_variance(
        dim,
        n_components,
        n_records,
        feature_map=candidate.map_name,
        n_features=m,
        noise=candidate.noise,
        uneven_share=UNEVEN_SHARE,
        **_variances(candidate.map_name, noise_ratio * variance),
    )


def _variances(feature_map: str, variance: float) -> dict[str, float]:
    """Return the variances for `lost_variance`, from that of a feature or of a diagonal entry."""
    if feature_map != "second-moments":
        return {"variance": variance}
    off_diagonal = variance * (DIAGONAL / OFF_DIAGONAL) ** 2
    return {"variance": off_diagonal, "diagonal_variance": variance}


def _candidates(request: Request, kinds: list[NoiseKind]) -> Iterator[PCACandidate]:
    """Yield candidates: maps with numbers of features, small ones first, and kinds of noise."""
    dim, map_name, law = request.dim, request.feature_map, request.frequencies
    n_features, masks = request.n_features, request.masks
    only_features = n_features is not None or law not in (None, NO_LAW)
    only_features = only_features or (masks is not None and masks.features != "all")
    for name in [map_name] if map_name is not None else ["second-moments", "quadratic"]:
        mapping = feature_map(name)
        if mapping.has_table:
            raise ParameterError(
                f"`feature_map={name!r}` with `task='pca'`: expected 'quadratic' or "
                "'second-moments'"
            )
        if name == "second-moments":
            if map_name is None and (only_features or dim > MAX_MATRIX_COLUMNS):
                continue
            if law not in (None, NO_LAW) or n_features not in (None, moment_count(dim)):
                raise ParameterError(
                    "`feature_map='second-moments'` has dim (dim + 1) / 2 features and no "
                    "frequencies; leave n_features and frequencies out"
                )
            sizes, vectors = [moment_count(dim)], NO_LAW
        else:
            vectors = law or ("orthobases" if dim <= MAX_BASIS_COLUMNS else "normal")
            if vectors not in mapping.laws:
                raise ParameterError(
                    f"`frequencies={vectors!r}` with `feature_map='quadratic'`: expected "
                    "'orthobases' or 'normal'"
                )
            sizes = [n_features] if n_features is not None else _sizes(request.n_components, dim)
        for size in sizes:
            for kind in kinds:
                yield PCACandidate(name, vectors, size, kind)


def _sizes(n_components: int, dim: int) -> list[int]:
    """Return the sizes of whole bases: a part of a basis has as much noise as the whole."""
    bases = {max(2, round(factor * n_components)) for factor in SIZE_FACTORS}
    affordable = [b * dim for b in sorted(bases) if b * dim <= max(MAX_SKETCH_FEATURES, 3 * dim)]
    return affordable or [2 * n_components * dim]


def robust_gain(noise: str, per_value: float) -> float:
    """Return the variance of a fit to Laplace noise over that of least squares.

    `per_value` is the number of unknowns per value. The formula comes from simulations; with
    hardly any unknowns, a median would reach 0.5.
    """
    return min(1.0, 0.6 + per_value) if noise == "laplace" else 1.0


def cross_variance(
    dim: int,
    rank: int,
    *,
    feature_map: str,
    n_features: int | None = None,
    noise: str,
    variance: float,
    diagonal_variance: float | None = None,
) -> float:
    """Return Var(q'E v) of a fitted matrix, averaged over directions; inf if undetermined.

    `variance` is that of a feature along a direction of length 1, or of an off-diagonal entry.
    """
    unknowns = pca_unknowns(rank, dim)
    if feature_map == "second-moments":
        diagonal = 2 * variance if diagonal_variance is None else diagonal_variance
        average = variance + (diagonal - 2 * variance) / (dim + 2)
        return average * robust_gain(noise, unknowns / moment_count(dim))
    if feature_map != "quadratic" or n_features is None:
        raise ParameterError(
            f"`feature_map={feature_map!r}`, `n_features={n_features!r}`: expected "
            "'second-moments', or 'quadratic' with the number of features"
        )
    if unknowns >= n_features:
        return math.inf
    per_value = unknowns / n_features
    plain = variance * dim * (dim + 2) / (4 * n_features) / (1 - per_value)
    return plain * robust_gain(noise, per_value)


def _uneven_variance(dim: int, feature_map: str, n_features: int | None, size: float) -> float:
    """Return the variance of a feature of a random symmetric matrix of this Frobenius norm.

    Only the part that the features do not determine counts; d (d + 1) / 2 features determine all.
    """
    entries = moment_count(dim)
    if feature_map == "second-moments" or n_features is None or n_features >= entries:
        return 0.0
    return size**2 / entries * (1 - n_features / entries)


def lost_variance(
    dim: int,
    rank: int,
    n_records: float,
    *,
    feature_map: str,
    n_features: int | None = None,
    uneven_share: float = 0.0,
    noise: str,
    variance: float,
    diagonal_variance: float | None = None,
    radius: float = 1.0,
) -> float:
    """Return the share of the best components' variance that privacy noise is expected to cost.

    With all components no variance is lost; the result is then the squared relative error of their
    variances.

    Parameters
    ----------
    dim, rank : int
    n_records : float
    feature_map : {"quadratic", "second-moments"}
    n_features : int, optional
        Number of quadratic features.
    uneven_share : float
        Frobenius norm of the uneven part of the remainder, over the total variance. Features see it
        as noise, unless they determine the whole matrix. Records are never exactly of low rank: the
        planner compares maps at `UNEVEN_SHARE`.
    noise : {"gaussian", "laplace", "cube"}
    variance : float
        Variance of the noise of all holders together: of a feature along a direction of length 1,
        or of an off-diagonal entry of the matrix.
    diagonal_variance : float, optional
        Variance of a diagonal entry; twice that of the others by default.
    radius : float
        Radius of the domain.

    Examples
    --------
    >>> sigma = 38.93  # epsilon = 0.1, delta = 1e-6, radius 1
    >>> loss = lost_variance(20, 3, 1e5, feature_map="second-moments", noise="gaussian",
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
        feature_map=feature_map,
        n_features=n_features,
        noise=noise,
        variance=variance
        + _uneven_variance(dim, feature_map, n_features, uneven_share * total * n_records),
        diagonal_variance=diagonal_variance,
    )
    if rank >= dim:
        # The noise of eigenvalues is 2 sqrt(dim) times that of an entry.
        relative = 4 * dim * error / (n_records * total / dim) ** 2
        return relative / (1 + relative)
    # Random directions, which overwhelming noise leaves, hold their share of the variance.
    max_loss = 1 - total * rank / dim / best
    if math.isinf(error):
        return max_loss
    share = rank * (dim - rank) * error / n_records**2 / gap / best
    return share / (1 + share / max_loss)


@dataclass(frozen=True)
class PCAForecast:
    """Expected accuracy of a design for principal components, from public facts alone.

    Attributes
    ----------
    lost : float
        Expected share of the best components' variance that noise costs, for records that have 95 %
        of their variance in as many equal components.
    verdict : {"good", "rough", "hopeless"}
    n_records_needed : float
        Smallest number of records of one holder with a good forecast.
    """

    lost: float
    verdict: Verdict
    n_records_needed: float

    def describe(self) -> str:
        """Return the forecast as one line of text."""
        enough = enough_text(self.n_records_needed, "good for no number of records")
        return (
            f"{self.verdict}: components lose about {100 * self.lost:.2g} % of the variance that "
            f"the best ones hold; {enough}"
        )


def pca_forecast(
    design: Design, *, n_holders: int = 1, noise_ratio: float | None = None
) -> PCAForecast:
    """Forecast the merged sketches of `n_holders` holders; parameters as in `forecast.forecast`."""
    lost = predicted_loss(design, n_holders, noise_ratio)
    verdict: Verdict = "hopeless" if lost > HOPELESS_LOSS else "rough"

    def is_good(n_records: float) -> bool:
        loss = predicted_loss(replace(design, n_records=n_records), n_holders, noise_ratio)
        return loss <= GOOD_LOSS / LOSS_SCATTER

    if lost * LOSS_SCATTER <= GOOD_LOSS:
        verdict = "good"
    return PCAForecast(lost, verdict, least_records(is_good, precision=100))


def predicted_loss(design: Design, n_holders: int = 1, noise_ratio: float | None = None) -> float:
    """Return the share of the components' variance that merged sketches are expected to lose.

    Masks leave out features (w.x)^2 of records at half the radius, whose mean square is
    3 (1 / (4 d))^2 for evenly spread directions w.
    """
    square = 3 * (EXTENT**2 / design.dim) ** 2
    noise_ratio = float(n_holders) if noise_ratio is None else noise_ratio
    masking = design.masking_variance * square * design.n_records
    variance = noise_ratio * design.noise_std**2 + n_holders * masking
    return lost_variance(
        design.dim,
        design.n_components,
        design.n_records * n_holders,
        feature_map=design.feature_map,
        n_features=design.n_features,
        noise=design.noise,
        **_variances(design.feature_map, variance),
    )


def least_records(is_good: Callable[[float], bool], precision: int = 0) -> float:
    """Return the smallest number of records that is good, by bisection; inf if none is.

    The result is exact, or accurate to one part in `precision`.
    """
    low, high = 0, MAX_RECORDS
    if not is_good(high):
        return math.inf
    while high - low > max(1, low // precision if precision else 1):
        middle = (low + high) // 2
        low, high = (low, middle) if is_good(middle) else (middle, high)
    return float(high)


def enough_text(n_records_needed: float, otherwise: str) -> str:
    """Describe the number of records needed for a good forecast; `otherwise` if there is none."""
    if not math.isfinite(n_records_needed):
        return otherwise
    return f"enough from {float(f'{n_records_needed:.2g}'):,.0f} records of a holder on"
