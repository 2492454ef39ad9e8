"""The noise of a design's sums: which law at which scale, for every map, relation and mask.

One function per kind of noise, one line per cell of the table in docs/theory.md (CLP
Tables 1 and 2, corrected). Combinations for which no proof is known to us are refused.

`extra` is what else a record adds to the same release: its L1 norm for Laplace noise, its
squared L2 norm for Gaussian noise. It is not masked, but goes with the record.
"""

from __future__ import annotations

import math

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import Neighbours
from privsketch.features.maps import Contribution
from privsketch.features.masks import Masks
from privsketch.noise.mechanism import NoiseLaw, cube_factor, cube_law, gaussian_law, laplace_law
from privsketch.noise.subsampling import (
    amplified,
    amplified_both,
    amplified_budget,
    amplified_replace,
    halved,
    mean_exponential_scale,
    poisson_features_sigma,
)

_ALL = Masks()


def laplace_noise(
    contribution: Contribution,
    n_components: int,
    epsilon: float,
    neighbours: Neighbours,
    masks: Masks | None,
    extra: int = 0,
) -> NoiseLaw:
    """Discrete Laplace noise on the unscaled masked sums."""
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
    """Masks that keep a fixed number of features: sensitivity and inner epsilon."""
    beta, norm = masks.records, contribution.l1(masks)
    inner = _of_records(epsilon, beta)
    if neighbours == "replace":
        # A difference of two records has at most twice the norm; with records left out at
        # random, both directions together cost less than that (D2).
        if beta == 1:
            norm = 2 * norm
        elif contribution.signed:
            inner = amplified_replace(epsilon, beta)
        else:
            inner = max(inner / 2, amplified_replace(epsilon, beta))
    norms = contribution.l1_by_mask(masks)
    if norms is not None:
        # A mean over masks instead of the worst one; the loss is convex in 1 / b, so that
        # twice the scale makes room for two records.
        scale = mean_exponential_scale(norms, _of_records(epsilon, beta))
        largest = max(norms)
        mean_inner = largest / scale * (1 - 1e-11) / (1 if neighbours == "add-remove" else 2)
        if largest / mean_inner < norm / inner:
            return largest, mean_inner
    return norm, inner


def _poisson_laplace(
    contribution: Contribution, masks: Masks, epsilon: float, neighbours: Neighbours
) -> float:
    """Inner epsilon of one feature, each kept with probability alpha (P1, P2, PD).

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
    """Discrete Gaussian noise on the unscaled masked sums."""
    masks = _allowed(contribution, masks)
    one_feature = contribution.feature_l2_squared()
    product = masks.features == "poisson" and one_feature is not None
    relation = neighbours
    inner = epsilon, delta
    if neighbours == "replace" and (masks.records < 1 or product):
        # Two steps of add-remove (D4); no better argument is known to us.
        inner, relation = halved(epsilon, delta), "add-remove"
    inner = amplified_budget(*inner, masks.records)
    words = _words(masks, inner[0], epsilon)
    if not product or one_feature is None:
        l2_squared = contribution.l2_squared(masks, relation) + extra
        law = gaussian_law(l2_squared, n_components, *inner, neighbours)
        return law.charged(epsilon, delta, neighbours, words)
    # Independent masks make a product of subsampled Gaussians, one for each feature (P3).
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
    """Cube noise on the unscaled masked sums, and the public factor they are multiplied by."""
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
