"""Gaussian mixtures by noisy rounds of EM: DP-EM of Park, Foulds, Chaudhuri and Welling (2017).

A fixed number of rounds from public parameters. In each, a record is divided among the components
by its responsibilities g, which add up to 1, and noisy sums of g, g x and g x x' are released for
all components together. With records in a ball of radius R, one record moves
(w0 g, w1 g x, w2 g x x') by at most sqrt(w0^2 + w1^2 R^2 + w2^2 R^4) in L2: the squares of
responsibilities add up to 1 at most. Vectors of two records never point apart: with t = x'y their
inner product is a sum of g(x) g(y) (w0^2 + w1^2 t + w2^2 t^2), which is not negative for these
weights, so that a replacement moves sums by at most sqrt(2) times as much. Means, positive
covariances and normalised weights are post-processing of these sums.

All terms of the sums are whole numbers that depend on their record and on released numbers alone,
to the last bit. Records have few bits, so that sums of products are exact. Off-diagonal products
have the factor 7/5 in place of the square root of 2, which makes the norm of x x' that of a
symmetric matrix. Distances come from exact matrix products and elementwise steps, and exponentials
from a polynomial: those of a library may depend on the position of a record in its block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.threads import one_thread
from privsketch._base.types import Floats, Integers, WholeFloats
from privsketch.clustering.baselines.points import start_centers
from privsketch.clustering.edge import Means, edge_concerns
from privsketch.clustering.forecast import PublicFacts, forecast_ratio, noisy_means
from privsketch.clustering.limits import MAX_EM_COMPONENTS
from privsketch.clustering.passes import Passes
from privsketch.clustering.run import Run
from privsketch.design.size import COVARIANCE_TYPES, MANY_COMPONENTS_ADVICE, CovarianceType
from privsketch.facts.domain import Ball, Domain
from privsketch.facts.receipt import Receipt
from privsketch.learning.concerns import RecordCount, noise_decided
from privsketch.models.mixture import GaussianMixtureModel
from privsketch.noise.account import Account
from privsketch.noise.sums import saturating_multiply

Pairs = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
# Rounds divide the budget: with much noise 5 are better, with little 25 are
# (`python -m benchmarks constants clustering EM_ROUNDS`).
EM_ROUNDS = 10
DIAGONAL, OFF_DIAGONAL = 5, 7  # factors of products: 7/5 is just below the square root of 2
_MAX_EM_BITS = 11  # that _SUM_BITS leaves for a coordinate: (36 - log2(5 * 2^10)) / 2, rounded down
_SUM_BITS = 62 - 26  # bits of a record's numbers: sums of 2^26 of them have 62 bits
_MIN_COMPONENT_WIDTH = 0.01  # of a component, in radii of the domain
# Of all components, in radii of the domain; 0.05 to 0.5 serve about as well.
_START_WIDTH = 0.25  # benchmarks constants clustering _START_WIDTH
WHOLE_SHARE = 2**10  # responsibilities are whole numbers that add up to at most this
_WHITE_BITS = 30  # with the 11 bits of a record 41: sums over 2^12 columns stay below 2^53
# Taylor's series of 2^-f for f in [0, 1): ln(2)^n / n!
_SERIES = [(-math.log(2)) ** n / math.factorial(n) for n in range(17)]


def learn(
    run: Run,
    n_components: int,
    *,
    covariance_type: CovarianceType = "full",
    n_rounds: int = EM_ROUNDS,
) -> GaussianMixtureModel:
    """Learn a Gaussian mixture from records that are read once a round.

    Charges: the budget, once.
    """
    if require_count("n_components", n_components) > MAX_EM_COMPONENTS:
        expected = f"expected at most {MAX_EM_COMPONENTS}, because rounds for more take minutes"
        raise ParameterError("n_components", n_components, expected, MANY_COMPONENTS_ADVICE)
    require_count("n_rounds", n_rounds)
    require_one_of("covariance_type", covariance_type, COVARIANCE_TYPES)
    passes = run.read(max_bits=_bits(run.domain))
    pairs = _pairs(passes.dim, covariance_type)
    names = [f"round {number + 1}" for number in range(n_rounds)]
    account = run.share(dict.fromkeys(names, Fraction(1, n_rounds)))
    start = start_centers(run.domain, n_components, "packing", run.seed)
    width = _START_WIDTH * math.sqrt(passes.l2_squared)
    state = Gaussians(
        np.full(n_components, 1 / n_components),
        start / passes.unit,
        np.tile(np.eye(passes.dim) * width**2 / passes.dim, (n_components, 1, 1)),
    )
    total, deviation = 1.0, 0.0
    with one_thread():  # blocks of records already share the cores
        for name in names:
            sums = component_sums(passes, state, pairs, name)
            noisy, deviation = _released(account, name, passes, sums, pairs)
            state, total = _updated(passes, state, noisy, pairs, covariance_type)
    receipt = run.receipt(f"Gaussian mixture: {n_rounds} noisy rounds of EM")
    model = _as_model(passes, state, total, deviation, covariance_type, receipt)
    radius = math.sqrt(passes.l2_squared)
    facts = PublicFacts(n_components, run.domain, run.budget, total)
    means = noisy_means(facts, (deviation * passes.unit) ** 2, (deviation / radius) ** 2)
    count = RecordCount(total, n_components * (deviation / radius) ** 2)
    texts = noise_decided(forecast_ratio(facts, means), count, n_components, "component")
    counts = model.weights * total
    errors = deviation * passes.unit / np.maximum(counts, 1.0)
    clusters = Means(
        model.means,
        counts,
        np.broadcast_to(errors[:, np.newaxis], model.means.shape),
        deviation / radius,
        is_gaussian=run.budget.delta > 0,
    )
    on_edge = edge_concerns(clusters, model.weights, run.domain, schema=run.schema, names=run.names)
    model = replace(model, concerns=tuple(texts) or on_edge)
    if run.schema is None:
        return model
    return replace(model, columns=run.schema.coordinates, schema=run.schema)


@dataclass(frozen=True)
class Scale:
    """Public whole-number weights of counts, sums and products.

    A record adds at most `l2_squared` to the squared L2 norm, and `l1` to the L1 norm. Two records
    have no negative inner product: with S = R^2, |t| <= S and m <= sqrt(S) whole it is at least
    25 (S^2 + m^2 t) + 24.5 t^2 for each component where all products are released (49/2 in place of
    25 because 7/5 is not quite the square root of 2), and 25 (S^2 + m^2 t) where squares are.
    """

    count: int
    mean: int
    l2_squared: int
    l1: int

    @classmethod
    def of(cls, passes: Passes, has_pairs: bool) -> Scale:
        """Return weights that make the three parts equally large at the edge of the domain."""
        squared, l1 = passes.l2_squared, passes.l1
        count, mean = DIAGONAL * squared, DIAGONAL * math.isqrt(squared)
        # 5 sum x_i^2 + 7 sum_{i<j} |x_i x_j| = 3/2 |x|_2^2 + 7/2 |x|_1^2
        products = (3 * squared + 7 * l1**2 + 1) // 2 if has_pairs else DIAGONAL * squared
        norm = count**2 + mean**2 * squared + DIAGONAL**2 * squared**2
        return cls(count, mean, WHOLE_SHARE**2 * norm, WHOLE_SHARE * (count + mean * l1 + products))


def component_sums(passes: Passes, state: Gaussians, pairs: Pairs, name: str) -> Integers:
    """Return sums of g, g x and g times products for each component, (k, numbers), in one pass."""
    first, second = pairs
    components = whitenings(state)

    def work(records: WholeFloats) -> tuple[Integers, ...]:
        share = responsibilities(records, components)
        # Sums of whole numbers below 2^53: exact in any order.
        if (first == second).all():
            products = share @ np.square(records)
        else:
            full = [(records * row[:, np.newaxis]).T @ records for row in share]
            products = np.array([matrix[first, second] for matrix in full])
        parts = [share.sum(axis=1)[:, np.newaxis], share @ records, products]
        return (np.concatenate(parts, axis=1).astype(np.int64),)

    return passes.sums(work, name)[0]


def _released(
    account: Account, name: str, passes: Passes, sums: Integers, pairs: Pairs
) -> tuple[Floats, float]:
    """Release the sums, in the units of records; also return the deviation of those of g x."""
    first, second = pairs
    scale = Scale.of(passes, bool((first != second).any()))
    products = np.where(first == second, DIAGONAL, OFF_DIAGONAL)
    factors = np.concatenate([[scale.count], np.full(passes.dim, scale.mean), products])
    pairs_of_columns = zip(sums.T, factors, strict=True)
    scaled = np.stack([saturating_multiply(c, int(f)) for c, f in pairs_of_columns], axis=1)
    noisy, variance = account.noisy(
        name, scaled, l1=scale.l1, l2_squared=scale.l2_squared, l2_replaced=2 * scale.l2_squared
    )
    return noisy / (factors * WHOLE_SHARE), math.sqrt(variance) / (scale.mean * WHOLE_SHARE)


def _updated(
    passes: Passes, state: Gaussians, noisy: Floats, pairs: Pairs, kind: CovarianceType
) -> tuple[Gaussians, float]:
    """Return the next parameters and the number of records, from released numbers alone."""
    k, dim = state.means.shape
    first, second = pairs
    counts = np.maximum(noisy[:, 0], 0.0)
    radius = math.sqrt(passes.l2_squared)
    means, covariances = state.means.copy(), state.covariances.copy()
    for j in np.flatnonzero(counts >= 1):  # other components keep their parameters
        raw = noisy[j, 1 : dim + 1] / counts[j]
        moments = np.zeros((dim, dim))
        moments[first, second] = noisy[j, dim + 1 :] / counts[j]
        moments[second, first] = moments[first, second]
        inside = passes.domain.centered().project(raw[np.newaxis] * passes.unit)[0]
        means[j] = inside / passes.unit
        spread = moments - np.outer(means[j], means[j])
        if kind in ("diag", "spherical"):
            spread = np.diag(np.diagonal(spread))
        covariances[j] = spread
    if kind == "tied":
        covariances[:] = np.average(covariances, axis=0, weights=np.maximum(counts, 1.0))
    elif kind == "spherical":
        level = np.trace(covariances, axis1=1, axis2=2) / dim
        covariances = level[:, np.newaxis, np.newaxis] * np.eye(dim)
    covariances = _positive(covariances, _MIN_COMPONENT_WIDTH * radius / math.sqrt(dim), radius)
    total = float(counts.sum())
    weights = counts / total if total > 0 else np.full(k, 1 / k)
    return Gaussians(weights, means, covariances), max(total, 1.0)


def _positive(covariances: Floats, min_width: float, max_width: float) -> Floats:
    """Return the nearest matrices whose axes have widths between two bounds."""
    values, vectors = np.linalg.eigh(covariances)
    clipped = np.clip(values, min_width**2, max_width**2)
    return np.asarray((vectors * clipped[:, np.newaxis]) @ np.swapaxes(vectors, 1, 2))


def _as_model(
    passes: Passes,
    state: Gaussians,
    total: float,
    deviation: float,
    kind: CovarianceType,
    receipt: Receipt,
) -> GaussianMixtureModel:
    sizes = np.maximum(state.weights * total, 1.0)[:, np.newaxis]
    axes = np.diagonal(state.covariances, axis1=1, axis2=2)
    # Errors of the last round: its noise, and the variance of records about their mean.
    errors = np.sqrt((deviation / sizes) ** 2 + axes / sizes) * passes.unit
    covariances = state.covariances * passes.unit**2
    shown = {
        "full": covariances,
        "tied": covariances[0],
        "diag": np.diagonal(covariances, axis1=1, axis2=2).copy(),
        "spherical": covariances[:, 0, 0].copy(),
    }[kind]
    return GaussianMixtureModel(
        weights=state.weights,
        means=state.means * passes.unit + passes.domain.center_vector,
        covariances=shown,
        covariance_type=kind,
        standard_errors=errors,
        residual=None,
        expected_residual=None,
        n_records=total,
        design_fingerprint="",
        receipt=receipt,
    )


def _pairs(dim: int, kind: CovarianceType) -> Pairs:
    """Return the pairs of columns whose products are released: all, or squares only."""
    if kind in ("full", "tied"):
        return np.triu_indices(dim)
    return np.arange(dim), np.arange(dim)


def _bits(domain: Domain) -> int:
    """Return the resolution at which 2^26 records add up within 62 bits."""
    dim = 1 if isinstance(domain, Ball) else len(domain.half_widths)
    spare = _SUM_BITS - math.log2(DIAGONAL * WHOLE_SHARE * dim)
    return max(1, min(_MAX_EM_BITS, math.floor(spare / 2)))


@dataclass(frozen=True, eq=False)
class Whitening:
    """Transformation that makes a component round: x becomes unit (factor @ x) - middle.

    `height` is the logarithm to base 2 of the component's density at its mean, up to a constant.
    """

    factor: WholeFloats
    unit: float
    middle: Floats
    height: float


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Released parameters, in integer units about the center of the domain."""

    weights: Floats
    means: Floats
    covariances: Floats  # (k, dim, dim)


def whitenings(state: Gaussians) -> list[Whitening]:
    """Return the whitening of each component, from released numbers alone."""
    components = []
    for weight, mean, covariance in zip(state.weights, state.means, state.covariances, strict=True):
        factor = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(factor)
        unit = float(np.abs(inverse).max()) / 2.0**_WHITE_BITS
        height = math.log2(max(weight, 1e-9)) - float(np.log2(np.diagonal(factor)).sum())
        components.append(Whitening(np.rint(inverse / unit), unit, inverse @ mean, height))
    return components


def responsibilities(records: WholeFloats, components: list[Whitening]) -> WholeFloats:
    """Return the responsibilities of components for records, (k, n), up to WHOLE_SHARE.

    Every step is exact or elementwise: a column depends on its record and the components alone.
    """
    logs = np.empty((len(components), len(records)))
    for j, component in enumerate(components):
        white = component.factor @ records.T  # whole numbers below 2^53
        squared = np.zeros(len(records))
        for row, middle in zip(white, component.middle, strict=True):
            row *= component.unit
            row -= middle
            row *= row
            squared += row
        logs[j] = squared * (-0.5 / math.log(2)) + component.height
    below = logs.max(axis=0) - logs
    shares = _power_of_half(below)
    total = np.zeros(len(records))
    for row in shares:
        total += row
    return np.asarray(np.floor(shares / total * WHOLE_SHARE))


def _power_of_half(exponents: Floats) -> Floats:
    """Return 2^-h for h >= 0, by steps that are each rounded in one way only."""
    exponents = np.minimum(exponents, 60.0)
    integers = np.floor(exponents)
    fractions = exponents - integers
    result = np.full_like(fractions, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        result *= fractions
        result += coefficient
    return np.ldexp(result, -integers.astype(np.int32))
