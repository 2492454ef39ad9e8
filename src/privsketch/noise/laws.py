"""Noise of a design's sums: the law and its scale for every map, neighbouring relation and mask.

One function per kind of noise, one line per cell of the table in docs/theory.md (CLP
Tables 1 and 2, corrected). Combinations for which no proof is known to us are refused.

`extra` is what a record adds to the release beside its features: an L1 norm for Laplace noise, a
squared L2 norm for Gaussian noise. Masks of features do not apply to it; masks of records do.

Secret masks allow for a larger "inner" epsilon (or epsilon and delta): noise that would cost that
much without sampling costs the stated budget with it. `amplified` and the functions after it
compute inner budgets. In the notation of CLP section 5, alpha is the rate of features, beta that of
records, and noise is added to the unscaled masked sums. docs/theory.md has the derivations, and the
statements of the paper that they correct.

Inner budgets are rounded down by a margin far above the error of the elementary functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import Neighbours
from privsketch.features.masks import Contribution, Masks
from privsketch.noise.calibration import kappa_discrete
from privsketch.noise.mechanism import NoiseLaw, cube_factor, cube_law, gaussian_law, laplace_law

_ALL = Masks()


def laplace_noise(
    contribution: Contribution,
    n_components: int,
    epsilon: float,
    neighbours: Neighbours,
    masks: Masks | None,
    extra: int = 0,
) -> NoiseLaw:
    """Return discrete Laplace noise for the unscaled masked sums."""
    masks = _allowed(contribution, masks)
    if masks.features == "poisson":
        sensitivity = contribution.feature_l1
        inner = _poisson_laplace(contribution, masks, epsilon, neighbours)
    else:
        sensitivity, inner = _kept_laplace(contribution, masks, epsilon, neighbours)
    law = laplace_law(sensitivity + extra, n_components, inner, neighbours)
    words = _words(masks, law.inner, epsilon)
    if masks.features == "poisson":
        words = f"sensitivity of one feature; {words}"
    return law.charged(epsilon, 0.0, neighbours, words)


def _kept_laplace(
    contribution: Contribution, masks: Masks, epsilon: float, neighbours: Neighbours
) -> tuple[int, float]:
    """Return sensitivity and inner epsilon for masks that keep a fixed number of features."""
    beta, norm = masks.records, contribution.l1(masks)
    inner = _of_records(epsilon, beta)
    if neighbours == "replace":
        # A difference of two records has at most twice the norm. With records left out at
        # random, both directions together cost less than that (D2).
        if beta == 1:
            norm = contribution.l1_replaced(masks)
        elif contribution.signed:
            inner = amplified_replace(epsilon, beta)
        else:
            inner = max(inner / 2, amplified_replace(epsilon, beta))
    norms = contribution.l1_by_mask(masks)
    if norms is not None:
        # A mean over masks instead of the worst one. The loss is convex in 1 / b, so twice the
        # scale suffices for two records.
        scale = mean_exponential_scale(norms, _of_records(epsilon, beta))
        largest = max(norms)
        mean_inner = largest / scale * (1 - 1e-11) / (1 if neighbours == "add-remove" else 2)
        if largest / mean_inner < norm / inner:
            return largest, mean_inner
    return norm, inner


def _poisson_laplace(
    contribution: Contribution, masks: Masks, epsilon: float, neighbours: Neighbours
) -> float:
    """Return inner epsilon of one feature, each kept with probability alpha (P1, P2, PD).

    The log-moment of one feature, ln(1 + alpha (e^(a / b) - 1)), is convex in a and 0 at 0:
    features whose norms add up to T cost at most T / A of one at the largest norm A.
    """
    alpha, beta = masks.feature_rate(contribution.n_values), masks.records
    share = contribution.feature_l1 / contribution.l1(None)
    if neighbours == "replace" and contribution.signed:
        n_features = math.ceil(1 / share * (1 - 1e-12))  # features all have the same bound
        if beta < 1:
            return amplified_both(epsilon, n_features, alpha, beta)
        return amplified_replace(epsilon / n_features, alpha)
    inner = amplified(_of_records(epsilon, beta) * share, alpha)
    return inner if neighbours == "add-remove" else inner / 2


def gaussian_noise(
    contribution: Contribution,
    n_components: int,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    masks: Masks | None,
    extra: int = 0,
) -> NoiseLaw:
    """Return discrete Gaussian noise for the unscaled masked sums."""
    masks = _allowed(contribution, masks)
    # Independent masks make a product of subsampled Gaussians, one for each feature (P3).
    one_feature = contribution.feature_l2_squared() if masks.features == "poisson" else None
    relation, inner = neighbours, (epsilon, delta)
    if neighbours == "replace" and (masks.records < 1 or one_feature is not None):
        # Two steps of add-remove (D4); no better argument is known to us.
        inner, relation = halved(epsilon, delta), "add-remove"
    inner = amplified_budget(*inner, masks.records)
    words = _words(masks, inner[0], epsilon)
    if one_feature is None:
        l2_squared = contribution.l2_squared(masks, relation) + extra
        law = gaussian_law(l2_squared, n_components, *inner, neighbours)
        return law.charged(epsilon, delta, neighbours, words)
    sigma = poisson_features_sigma(
        *inner,
        n_features=contribution.n_values // 2,
        rate=masks.feature_rate(contribution.n_values // 2),
        feature_l2_squared=float(one_feature),
        unsampled_l2_squared=float(extra),
    )
    return NoiseLaw(
        "gaussian",
        n_components,
        math.sqrt(one_feature) * (1 + 1e-12),
        epsilon,
        delta,
        neighbours,
        sigma,
        sigma**2,
        rho=one_feature / (2 * sigma**2) * (1 + 1e-11),
        masking=f"Renyi divergence of integer orders; sensitivity and rho of one feature; {words}",
    )


def cube_noise(
    contribution: Contribution,
    n_components: int,
    epsilon: float,
    neighbours: Neighbours,
    masks: Masks | None,
) -> tuple[NoiseLaw, int]:
    """Return cube noise for the unscaled masked sums, and the public factor of the sums."""
    masks = _allowed(contribution, masks)
    if masks.features == "poisson" or (masks.features != "all" and not contribution.signed):
        raise ParameterError(
            f"`noise='cube'` with masks of `features={masks.features!r}` on this map: its cost is "
            "not known; use `noise='laplace'`"
        )
    beta = masks.records
    inner, sensitivity = _of_records(epsilon, beta), contribution.linf(neighbours)
    if neighbours == "replace" and beta < 1 and contribution.signed:
        inner, sensitivity = amplified_replace(epsilon, beta), contribution.linf("add-remove")
    factor = cube_factor(sensitivity, n_components, inner)
    law = cube_law(factor * sensitivity, n_components, inner, neighbours)
    return law.charged(epsilon, 0.0, neighbours, _words(masks, inner, epsilon)), factor


def _allowed(contribution: Contribution, masks: Masks | None) -> Masks:
    if masks is not None and masks.features != "all" and not contribution.maskable:
        raise ParameterError(
            f"masks of `features={masks.features!r}` with second moments: mask records only, or "
            "use `feature_map='quadratic'`"
        )
    return masks or _ALL


def _of_records(epsilon: float, beta: float) -> float:
    return epsilon if beta == 1 else amplified(epsilon, beta)


def _words(masks: Masks, inner: float, epsilon: float) -> str:
    if masks == _ALL:
        return ""
    words = f"secret masks keep {masks.describe()}"
    return words if inner == epsilon else f"{words}; noise at an inner epsilon of {inner:.12g}"


_DOWN, _UP = 1.0 - 1e-11, 1.0 + 1e-11  # far above the error of elementary functions


def amplified(epsilon: float, rate: float) -> float:
    """Return ln(1 + (e^epsilon - 1) / rate): add-remove, records or features kept at the rate.

    CLP eq. (22), (D1); with epsilon / m in place of epsilon the Poisson features of (P1).
    """
    return float(np.logaddexp(0.0, _log_expm1(epsilon) - math.log(rate))) * _DOWN


def amplified_replace(epsilon: float, rate: float) -> float:
    """Return the inner epsilon for "replace" (P2, D2), with one norm bound per record.

    ln E = h + asinh((1 / rate - 1) sinh h), h = epsilon / 2; noise is calibrated to the norm
    of one record, not of a difference of two.
    """
    half = epsilon / 2
    return (half + math.asinh((1 / rate - 1) * math.sinh(half))) * _DOWN


def _log_expm1(x: float) -> float:
    return x + math.log1p(-math.exp(-x)) if x > 1 else math.log(math.expm1(x))


def amplified_both(epsilon: float, n_features: int, alpha: float, beta: float) -> float:
    """Return the inner epsilon per feature for Poisson features and records, "replace" (PD).

    It is the c with (1 - beta + beta u) / (1 - beta + beta l) = e^epsilon, where
    u, l = (1 - alpha + alpha e^(+-c))^m.
    """

    def loss(c: float) -> float:
        upper = n_features * math.log1p(alpha * math.expm1(c))
        lower = n_features * math.log1p(alpha * math.expm1(-c))
        return _log_mixture(upper, beta) - _log_mixture(lower, beta)

    high = epsilon / n_features
    while loss(high) < epsilon:
        high *= 2
    root = brentq(lambda c: loss(c) - epsilon, 0.0, high, xtol=1e-300, rtol=1e-14)
    return float(root) * _DOWN


def _log_mixture(log_ratio: float, rate: float) -> float:
    """Return ln(1 - rate + rate e^log_ratio) without overflow or cancellation."""
    if log_ratio > 1:
        log_rest = math.log1p(-rate) if rate < 1 else -math.inf
        return float(np.logaddexp(log_rest, math.log(rate) + log_ratio))
    return math.log1p(rate * math.expm1(log_ratio))


def amplified_budget(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """Return inner (epsilon, delta) of Gaussian noise, each record kept at the rate (D3)."""
    if rate == 1:
        return epsilon, delta
    inner = delta / rate * _DOWN
    if inner >= 1:
        raise ParameterError(
            f"`delta={delta:g}` with records kept at the rate {rate:g}: the Gaussian mechanism "
            "needs delta below the rate; use a smaller delta or a larger rate"
        )
    return amplified(epsilon, rate), inner


def halved(epsilon: float, delta: float) -> tuple[float, float]:
    """Return an add-remove budget that implies (epsilon, delta) under "replace", in two steps.

    (epsilon, delta)-add-remove implies (2 epsilon, (1 + e^epsilon) delta)-replace.
    """
    half = epsilon / 2
    return half * _DOWN, delta / (1 + math.exp(half)) * _DOWN


def mean_exponential_scale(norms: Sequence[int], epsilon: float) -> float:
    """Return b with mean exp(a / b) = e^epsilon over the norms a of equally likely masks.

    The density of the release is a mean over masks, and its ratio is at most the mean of the
    largest ratios. The scale is rounded up.
    """
    values = np.array([max(float(norm), 1.0) for norm in norms])
    count = math.log(len(values))

    def loss(log_b: float) -> float:
        return float(logsumexp(values * math.exp(-log_b))) - count - epsilon

    low, high = math.log(values.mean() / epsilon) - 1, math.log(values.max() / epsilon) + 1
    return math.exp(float(brentq(loss, low, high, xtol=1e-13))) * _UP


@lru_cache(maxsize=64)
def poisson_features_sigma(
    epsilon: float,
    delta: float,
    *,
    n_features: int,
    rate: float,
    feature_l2_squared: float,
    unsampled_l2_squared: float = 0.0,
) -> float:
    """Return the least discrete Gaussian sigma with Poisson feature masks (P3), add-remove.

    The release is a product of n_features subsampled Gaussians, and of an unsampled one (the
    count). Its log-moment at integer orders a, in place of (a - 1) a rho, is converted to
    (epsilon, delta) as for zCDP; any order is valid, so trying few errs on the safe side.
    """
    moments = LogMoments(rate)
    orders = moments.orders
    # ln delta = moment - (a - 1) epsilon + a ln(1 - 1/a) - ln(a - 1)
    slack = -(orders - 1) * epsilon + orders * np.log1p(-1 / orders) - np.log(orders - 1)

    def satisfied(log_sigma: float) -> bool:
        sigma = math.exp(log_sigma)
        # More than rounding can take off a logarithm near 0.
        loss = n_features * (moments.at(feature_l2_squared / sigma**2) + 1e-12)
        loss += orders * (orders - 1) * unsampled_l2_squared / (2 * sigma**2)
        return bool((loss + slack).min() <= math.log(delta))

    # Masks only remove features, so noise for all of them always suffices. It is the fallback for
    # very small budgets, which need larger orders than are tried here.
    l2_squared = n_features * feature_l2_squared + unsampled_l2_squared
    unmasked_sigma = math.sqrt(l2_squared) * kappa_discrete(epsilon, delta)
    low = high = math.log(unmasked_sigma)
    if not satisfied(high):
        return unmasked_sigma * (1.0 + 1e-9)
    while satisfied(low):
        low -= 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if satisfied(middle) else (middle, high)
    # The margin covers rounding in sums over many features.
    return math.exp(high) * (1.0 + 1e-9)


class LogMoments:
    """ln E[(p / q)^a] of a Poisson-subsampled Gaussian of one feature, at integer orders a.

    ln sum_k C(a, k) (1 - rate)^(a - k) rate^k exp(k (k - 1) v^2 / (2 sigma^2)): the same for
    discrete Gaussian noise and integer shifts v (docs/theory.md).
    """

    def __init__(self, rate: float, orders: Sequence[int] | None = None) -> None:
        selection = _ORDERS if orders is None else orders
        self.orders = np.array(selection, dtype=np.float64)
        k, a = np.arange(max(selection) + 1), self.orders[:, None]
        n_left_out = np.maximum(a - k, 0)
        logs = gammaln(a + 1) - gammaln(k + 1) - gammaln(n_left_out + 1) + k * math.log(rate)
        logs += n_left_out * (math.log1p(-rate) if rate < 1 else 0.0)
        impossible = (k > a) | ((n_left_out > 0) & (rate == 1))
        self._logs = np.where(impossible, -np.inf, logs)
        self._growth = k * (k - 1) / 2

    def at(self, ratio: float) -> npt.NDArray[np.float64]:
        """Return the log-moments (n_orders,) for v^2 / sigma^2 = ratio."""
        return np.asarray(logsumexp(self._logs + ratio * self._growth, axis=1))


_ORDERS = tuple(range(2, 65)) + tuple(round(64 * 2 ** (i / 8)) for i in range(1, 33))
