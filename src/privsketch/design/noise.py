"""The noise-to-signal ratio of a design, for records as they may be (CLP Lemma 26).

How much signal features carry depends on the records, which nobody has seen yet; for the
ratio, reference records stand in: those of the forecast for clusters, those of
design/pca/error.py for principal components.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from privsketch.design.information import energy_share
from privsketch.design.noise_to_signal import (
    NoiseToSignal,
    direction_moments,
    gaussian_second_moments,
    noise_parts,
)
from privsketch.design.pca.error import EXTENT, ISOTROPIC_SHARE
from privsketch.design.recipe import Design
from privsketch.features.onebit import SIGN_VARIANCE

if TYPE_CHECKING:
    from privsketch.design.forecast import Reference


def design_noise_parts(design: Design, reference: Reference, n_holders: int = 1) -> NoiseToSignal:
    """Parts of the ratio, the law of the records as reference; `n_holders` sketches merged."""
    alpha, beta = feature_and_record_rate(design)
    is_pca = not design.map.has_table
    signal, energy = _pca_signal(design) if is_pca else _cluster_signal(design, reference)
    numbers_per_feature = design.n_values / design.n_features
    return noise_parts(
        n_records=design.n_records * n_holders,
        n_features=design.n_features,
        signal=design.n_features * signal,
        energy=design.n_features * energy,
        noise_variance=numbers_per_feature * n_holders * (design.noise_std * beta) ** 2,
        feature_rate=alpha,
        record_rate=beta,
    )


def feature_and_record_rate(design: Design) -> tuple[float, float]:
    """alpha and beta: the shares of features and of records that masks keep."""
    masks = design.masks
    return (1.0, 1.0) if masks is None else (masks.feature_rate(design.n_features), masks.records)


def _cluster_signal(design: Design, reference: Reference) -> tuple[float, float]:
    """|z|^2 and E|features|^2 per feature of modulus 1.

    |z|^2 is the mean square of the characteristic function over features, for centres
    drawn around a common mean, as in the seed mixture.
    """
    law, scales, k = design.frequencies.law, design.frequencies.scales, design.n_components
    alone = energy_share(law, scales, reference.width, design.dim)
    whole = math.hypot(reference.width, reference.spread)
    together = energy_share(law, scales, whole, design.dim)
    return alone / k + together * (1 - 1 / k), 1 + SIGN_VARIANCE * design.map.dithered


def _pca_signal(design: Design) -> tuple[float, float]:
    """The same for squares, in units of the radius: k equal eigenvalues and a floor."""
    k, dim = design.n_components, design.dim
    floor, each = EXTENT**2 * ISOTROPIC_SHARE / dim, EXTENT**2 * (1 - ISOTROPIC_SHARE) / k
    eigenvalues = [floor + each] * k + [floor] * (dim - k)
    squared, energy = gaussian_second_moments(eigenvalues)
    if design.feature_map == "second-moments":
        return squared / design.n_features, energy / design.n_features
    return direction_moments(math.fsum(eigenvalues), squared, dim)
