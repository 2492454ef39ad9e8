"""Forecasts of the accuracy of a study, from public facts, before any record is read.

The Fisher information of the centers (design/size.py) gives the error that noise and sampling
leave. It is computed for reference data, whose clusters differ in width and distance. Where that
error is large the search itself suddenly fails, and the forecast follows measurements (`excess`).

Errors are stated as RSSE: the squared error of the centers over that of k-means without privacy.
For Gaussian mixtures it is the RSSE of their means, with the covariances fitted as well.

This file also computes the noise-to-signal ratio of a design (CLP Lemma 26). Its signal depends on
the records, which reference data replace: those of the forecast for clusters, those of
design/pca.py for principal components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privsketch._base.types import Floats
from privsketch.design.cells import cell_error
from privsketch.design.mixed import MixedSpace, mixed_error, mixed_space
from privsketch.design.noise_to_signal import (
    NoiseToSignal,
    direction_moments,
    gaussian_second_moments,
    noise_parts,
)
from privsketch.design.pca import EXTENT, ISOTROPIC_SHARE, enough_text, least_records
from privsketch.design.recipe import Design
from privsketch.design.size import (
    Verdict,
    band_share,
    center_error,
    energy_share,
    harmonic_variance,
    kmeans_unknowns,
    mixture_unknowns,
    richest_shape,
    squared_band_share,
)
from privsketch.facts.domain import Box, Domain
from privsketch.features.radii import RadialLaw
from privsketch.features.waves import HARMONICS, SIGN_VARIANCE

GOOD_RSSE, HOPELESS_RSSE = 1.15, 1.5  # end of a good range, middle of a hopeless one
MANY_COLUMNS = 150  # learning works well with 100 columns; with 300 it loses tight clusters
EXCESS_SCATTER = 2.0  # factor by which the excess of data sets scatters around its expectation
TURNING_STEEPNESS = 6  # exponent at the turning point, where searches suddenly fail


@dataclass(frozen=True)
class ForecastConstants:
    """Constants that theory leaves open, fitted by `benchmarks/forecast.py --calibrate`.

    They are fitted to seed mixtures. The other data of that benchmark informed only how the turning
    point moves with separation and unknowns.

    Attributes
    ----------
    overlap : float
        Separation at which neighbours double the error of a center.
    turning_point : float
        Error from which on the search loses clusters, for k d = 1 and separation 1. It falls with
        the number of unknowns, like (k d)^(-1/4), and grows with the separation.
    lost : float
        Cost of a lost cluster, in units of its squared separation.
    """

    overlap: float = 1.23
    turning_point: float = 0.58
    lost: float = 0.54


FORECAST_CONSTANTS = ForecastConstants()


@dataclass(frozen=True)
class ReferenceData:
    """Plausible data: the width, spread and separation of their clusters.

    The spread is the standard deviation of the centers along an axis. The separation is
    spread / (k^(1/d) width): 1.5 in the papers' seed mixture, where clusters touch.
    """

    width: float
    spread: float
    separation: float


def references(domain: Domain, n_components: int) -> Iterator[ReferenceData]:
    """Yield touching and distant clusters that use a quarter or half of the domain."""
    dim = len(domain.half_widths)
    for share in (1 / 4, 1 / 2):
        for separation in (1.5, 4.5):
            spread = share * domain.spread
            width = spread / (separation * n_components ** (1 / dim))
            yield ReferenceData(width, spread, separation)


@dataclass(frozen=True)
class Forecast:
    """Expected accuracy of a design, from public facts alone.

    Attributes
    ----------
    noise_to_signal : float
        Expected squared noise over squared signal of the whole sketch, for touching clusters.
        Noise includes sampling (CLP Lemma 26).
    rsse_low, rsse_high : float
        Range of the expected squared error of the centers, relative to k-means without
        privacy, over clusters of plausible widths and distances.
    verdict : {"good", "rough", "hopeless"}
        Good if the range ends below 1.15. Hopeless if its middle, by the geometric mean of both
        ends less 1, is above 1.5.
    n_records_needed : float
        Least number of records of one holder with a good forecast; infinite if the sketch is too
        small for any number.
    """

    noise_to_signal: float
    rsse_low: float
    rsse_high: float
    verdict: Verdict
    n_records_needed: float

    def describe(self) -> str:
        """Return the forecast as one line of text."""
        enough = enough_text(self.n_records_needed, "too small a sketch for any number of records")
        return (
            f"{self.verdict}: cost of k-means (squared distances to centers) "
            f"{ratio_text(self.rsse_low)} to {ratio_text(self.rsse_high)} times "
            "that without privacy, "
            f"noise-to-signal {self.noise_to_signal:.2g}; {enough}"
        )


class BlindForecast(Forecast):
    """Forecast of frequencies of one's own that do not see all directions of a record."""

    def describe(self) -> str:
        """Return the forecast as one line of text."""
        return (
            f"{self.verdict}: the frequencies miss directions, along which clusters are not told "
            "apart; no number of records is enough"
        )


def missed_directions(design: Design) -> str | None:
    """Return what frequencies of one's own do not see, as a sentence; None if they see all."""
    own = design.frequencies.own
    if own is None or own.n_directions == design.dim:
        return None
    return (
        f"the frequencies see only {own.n_directions} of {design.dim} directions of a record: "
        "clusters that differ along the others are not told apart, and no number of records helps"
    )


def ratio_text(value: float) -> str:
    """Format a ratio with enough digits to distinguish it from 1."""
    digits = 1 if value >= 2 else 2 - math.floor(math.log10(max(value - 1, 1e-4)) + 1)
    return f"{value:.{digits}f}"


def forecast(design: Design, *, n_holders: int = 1, noise_ratio: float | None = None) -> Forecast:
    """Forecast the merged sketches of `n_holders` holders with `design.n_records` records each.

    `noise_ratio` is the variance of the total's noise over that of one release. It defaults to the
    number of holders, each of whom adds noise.
    """
    if missed_directions(design) is not None:  # no forecast says how much lies along them
        lost = [_most(reference) for reference in references(design.domain, design.n_components)]
        return BlindForecast(
            noise_to_signal=expected_noise(design, n_holders, noise_ratio).total,
            rsse_low=1 + min(lost),
            rsse_high=1 + max(lost),
            verdict="hopeless",
            n_records_needed=math.inf,
        )
    low, high = expected_range(design, design.n_records, n_holders, noise_ratio)
    return Forecast(
        noise_to_signal=expected_noise(design, n_holders, noise_ratio).total,
        rsse_low=low,
        rsse_high=high,
        verdict=_verdict(low, high),
        # The error falls with the number of records.
        n_records_needed=least_records(
            lambda n: expected_range(design, n, n_holders, noise_ratio)[1] <= GOOD_RSSE
        ),
    )


def _most(reference: ReferenceData, constants: ForecastConstants = FORECAST_CONSTANTS) -> float:
    """Return the excess of lost clusters."""
    return constants.lost * reference.separation**2


def verdict_of(rsse: float) -> Verdict:
    """Return the verdict about an expected RSSE; noise decides where it is hopeless."""
    if rsse <= GOOD_RSSE:
        return "good"
    return "rough" if rsse <= HOPELESS_RSSE else "hopeless"


def accuracy_text(ratio: float) -> str:
    """Return an expected cost ratio in words and as a number."""
    return f"{verdict_of(ratio)}: cost about {ratio_text(ratio)} times that without privacy"


def _verdict(low: float, high: float) -> Verdict:
    """Return the verdict about a range: good if all of it is, hopeless if its middle is."""
    verdict = verdict_of(_middle(low, high))
    return "rough" if verdict == "good" and high > GOOD_RSSE else verdict


def _middle(low: float, high: float) -> float:
    """Return the middle of a range of RSSE, by the geometric mean of both ends less 1."""
    return 1 + math.sqrt((low - 1) * (high - 1))


def expected_middle(
    design: Design, n_records: float, n_holders: int = 1, noise_ratio: float | None = None
) -> float:
    """Return the middle of the expected RSSE for this number of records per holder."""
    return _middle(*expected_range(design, n_records, n_holders, noise_ratio))


def _clustered(design: Design) -> Domain:
    """Return the domain of reference data: of the numbers alone if labels have their own law."""
    if design.cells is not None and any(design.has_labels):
        half_widths = _grid(design)[1]
        return Box(low=-half_widths, high=half_widths) if len(half_widths) > 0 else design.domain
    space = mixed_space(design.domain, design.frequencies.columns)
    return design.domain if space is None or space.numbers is None else space.numbers


def _grid(design: Design) -> tuple[tuple[int, ...], Floats, float]:
    """Return cells and half-widths of the axes without labels, and the energy of the others."""
    axes = list(zip(design.axes, design.cells or (), design.has_labels, strict=True))
    plain = [(axis.start, g) for axis, g, has_labels in axes if not has_labels]
    energy = math.prod(2 / (g + 1) for _, g, has_labels in axes if has_labels)
    half_widths = design.domain.half_widths[[start for start, _ in plain]]
    return tuple(g for _, g in plain), half_widths, energy


def expected_range(
    design: Design, n_records: float, n_holders: int = 1, noise_ratio: float | None = None
) -> tuple[float, float]:
    """Return the smallest and largest expected RSSE for this number of records per holder.

    For one-bit features, the smallest is that of a search that ends near the right centers. The
    largest is that of a search that treats their harmonics as white noise.
    """
    data = list(references(_clustered(design), design.n_components))
    excess_of = partial(
        excess, design, n_records=n_records, n_holders=n_holders, noise_ratio=noise_ratio
    )
    best = [excess_of(reference) for reference in data]
    worst = best
    if design.mapping.dithered:
        worst = [excess_of(reference, sees_all=True) for reference in data]
    return 1 + min(best) / EXCESS_SCATTER, 1 + max(worst) * EXCESS_SCATTER


def excess(
    design: Design,
    reference: ReferenceData,
    n_records: float,
    n_holders: int = 1,
    constants: ForecastConstants = FORECAST_CONSTANTS,
    noise_ratio: float | None = None,
    *,
    sees_all: bool = False,
) -> float:
    """Return the expected RSSE - 1 for these reference data.

    Touching clusters share the information about their centers: exact Fisher matrices and
    measurements agree on a factor of 1.5 to 2 for seed mixtures and 1 for distant clusters. Beyond
    a turning point the search loses clusters, each of which costs its squared distance to the next
    one. With `sees_all`, harmonics of one-bit features count in all features instead of those in
    the band of the width.
    """
    k, dim = design.n_components, design.dim
    max_error = _most(reference, constants)
    noise_ratio = float(n_holders) if noise_ratio is None else noise_ratio
    if design.cells is not None:
        cells, half_widths, energy = _grid(design)
        error = cell_error(
            cells=cells,
            half_widths=half_widths,
            energy=energy,
            n_components=k,
            n_records=n_records * n_holders,
            variance=noise_ratio * design.noise_std**2,
            width=reference.width,
        )
        return min(error.excess, max_error) * (1 - error.lost) + max_error * error.lost
    law, radii, width = design.frequencies.law, design.frequencies.radial_law, reference.width
    variance = _variance(design, n_records, n_holders, noise_ratio)
    variance += _harmonics(design, reference, n_records * n_holders, sees_all=sees_all)
    error_of = partial(
        center_error,
        n_components=k,
        n_records=n_records * n_holders,
        n_features=design.n_features,
        variance=variance,
        n_unknowns=_unknowns(design),
    )
    space = mixed_space(design.domain, design.frequencies.columns)
    if space is None:
        shift = error_of(
            dim=dim,
            band=band_share(law, radii, width, dim),
            squared_band=squared_band_share(law, radii, width, dim),
        )
    else:
        shift = mixed_error(
            space, **error_of.keywords, radii=radii, width=width, spread=reference.spread
        )
        dim = space.n_numbers + space.n_free_shares
    shift *= 1 + (constants.overlap / reference.separation) ** 2
    if shift >= 1e6:  # also infinite
        return max_error
    turning_point = constants.turning_point * reference.separation**0.5 / (k * dim) ** 0.25
    relative = float((shift / turning_point) ** TURNING_STEEPNESS)
    lost = relative / (1 + relative)
    return min(shift, max_error) * (1 - lost) + max_error * lost


def expected_noise(
    design: Design, n_holders: int = 1, noise_ratio: float | None = None
) -> NoiseToSignal:
    """Return the noise-to-signal ratio by its parts: sampling, masks and privacy noise.

    The reference data are touching clusters in a quarter of the domain, or principal components.
    """
    noise_ratio = float(n_holders) if noise_ratio is None else noise_ratio
    alpha, beta = feature_and_record_rate(design)
    if design.mapping.for_components:
        signal, energy = _pca_signal(design)
    else:
        reference = next(references(_clustered(design), design.n_components))
        signal_of = _cluster_signal if design.cells is None else _cell_signal
        signal, energy = signal_of(design, reference)
    numbers_per_feature = design.n_values / design.n_features
    return noise_parts(
        n_records=design.n_records * n_holders,
        n_features=design.n_features,
        signal=design.n_features * signal,
        energy=design.n_features * energy,
        noise_variance=numbers_per_feature * noise_ratio * (design.noise_std * beta) ** 2,
        feature_rate=alpha,
        record_rate=beta,
    )


def _variance(design: Design, n_records: float, n_holders: int, noise_ratio: float) -> float:
    """Return the variance of noise and sampling per real component of all holders' sums."""
    if design.noise == "laplace" and n_records != design.n_records:
        design = replace(design, n_records=n_records)  # the share of the count depends on it
    # A phasor has a variance of at most 1, half of it along each axis; a sign, whose first harmonic
    # has amplitude 4 / pi, pi^2 / 8 of that. Masks scale up the features that they keep.
    sampling = math.pi**2 / 16 if design.mapping.dithered else 0.5
    alpha, beta = feature_and_record_rate(design)
    return noise_ratio * design.noise_std**2 + sampling * n_holders * n_records / (alpha * beta)


def _harmonics(
    design: Design, reference: ReferenceData, n_records: float, *, sees_all: bool
) -> float:
    """Return the variance that harmonics add per real component; 0 for maps without harmonics.

    Mixture learners remove harmonics from the sums once they are near the right mixture.
    """
    if not design.mapping.dithered or (design.task != "kmeans" and not sees_all):
        return 0.0
    recipe = design.frequencies
    return expected_harmonics(
        recipe.law,
        recipe.radial_law,
        design.domain,
        design.n_components,
        n_records,
        reference,
        in_band=not sees_all,
        space=mixed_space(design.domain, recipe.columns),
    )


def expected_harmonics(
    law: str,
    radii: RadialLaw,
    domain: Domain,
    n_components: int,
    n_records: float,
    reference: ReferenceData | None = None,
    *,
    in_band: bool = False,
    space: MixedSpace | None = None,
) -> float:
    """Return the variance that harmonics of one-bit features add, as a search sees it.

    The reference data default to touching clusters. With labels, phases of a harmonic are uniform
    as well: features that read them have less of it.
    """
    energy = 1.0
    if space is not None:
        energy = space.energy(squared=True) / space.energy() if in_band else space.energy()
        if space.numbers is None:
            return energy * n_records**2 / 2 * sum(1 / order**2 for order in HARMONICS)
        domain = space.numbers
    reference = reference or next(references(domain, n_components))
    return energy * harmonic_variance(
        law,
        radii,
        len(domain.half_widths),
        n_components=n_components,
        n_records=n_records,
        width=reference.width,
        spread=reference.spread,
        in_band=in_band,
    )


def _unknowns(design: Design) -> int:
    """Return the number of unknowns that learners fit jointly."""
    k, dim, n_free_shares = design.n_components, design.dim, 0
    space = mixed_space(design.domain, design.frequencies.columns)
    if space is not None:
        dim, n_free_shares = space.n_numbers, space.n_free_shares
    if design.task == "kmeans":
        return kmeans_unknowns(k, dim + n_free_shares)
    shape = richest_shape(k, dim, design.n_features)
    return mixture_unknowns(k, dim, shape) + k * n_free_shares


def feature_and_record_rate(design: Design) -> tuple[float, float]:
    """Return alpha and beta: the shares of features and of records that masks keep."""
    masks = design.masks
    return (1.0, 1.0) if masks is None else (masks.feature_rate(design.n_features), masks.records)


def _cluster_signal(design: Design, reference: ReferenceData) -> tuple[float, float]:
    """Return |z|^2 and E|features|^2 per feature of modulus 1.

    |z|^2 is the mean square of the characteristic function over features. Centers are drawn around
    a common mean, as in the seed mixture.
    """
    law, radii, k = design.frequencies.law, design.frequencies.radial_law, design.n_components
    energy = 1 + SIGN_VARIANCE * design.mapping.dithered
    space = mixed_space(design.domain, design.frequencies.columns)
    if space is not None and space.numbers is None:
        return space.energy(), energy
    within = energy_share(law, radii, reference.width, design.dim)
    total_width = math.hypot(reference.width, reference.spread)
    between = energy_share(law, radii, total_width, design.dim)
    signal = within / k + between * (1 - 1 / k)
    return signal * (1.0 if space is None else space.energy()), energy


def _cell_signal(design: Design, reference: ReferenceData) -> tuple[float, float]:
    """Return signal and energy of cells: the sum of squared shares, and 1, over their number.

    Two records of one Gaussian are in the same cell with probability V / (4 pi s^2)^(d / 2), if
    that is small.
    """
    cells, half_widths, energy = _grid(design)
    k, dim = design.n_components, len(cells)
    volume = math.prod(2 * float(half) for half in half_widths) / math.prod(cells)

    def same_cell(width: float) -> float:
        if dim == 0:
            return 1.0
        within_cell = volume ** (2 / dim) / 12  # variance of records spread over their cell
        return float(min(1.0, volume / (4 * math.pi * (width**2 + within_cell)) ** (dim / 2)))

    total_width = math.hypot(reference.width, reference.spread)
    shared = same_cell(reference.width) / k + same_cell(total_width) * (1 - 1 / k)
    return energy * shared / design.n_features, 1 / design.n_features


def _pca_signal(design: Design) -> tuple[float, float]:
    """Return signal and energy of squares, in radii, for k equal eigenvalues above a floor.

    Without components all eigenvalues are equal.
    """
    k, dim = design.n_components or design.dim, design.dim
    if design.feature_map == "taxicab":  # in units of its norm, half-widths being 1
        shares = np.concatenate([[design.taxicab.intercept], design.taxicab.weights])
        squared, energy = gaussian_second_moments(
            np.square(EXTENT * shares / design.taxicab.norm).tolist()
        )
        return squared / design.n_features, energy / design.n_features
    floor, each = EXTENT**2 * ISOTROPIC_SHARE / dim, EXTENT**2 * (1 - ISOTROPIC_SHARE) / k
    eigenvalues = [floor + each] * k + [floor] * (dim - k)
    squared, energy = gaussian_second_moments(eigenvalues)
    if design.feature_map == "second-moments":
        return squared / design.n_features, energy / design.n_features
    return direction_moments(math.fsum(eigenvalues), squared, dim)
