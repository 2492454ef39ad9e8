"""Whether a study can work, told before any record is read.

From public facts alone: the Fisher information of the centers (design/size.py)
gives the error that noise and sampling leave, for reference data that differ in how
wide and how far apart clusters are. Where that error is large the search itself goes
astray, suddenly, and the forecast follows what was measured (`excess`).

Errors are given as RSSE: squared error of the centers over that of k-means without
privacy. For Gaussian mixtures it is the RSSE of their means, with the unknowns of the
covariances fitted as well.

The noise-to-signal ratio of a design, for records as they may be (CLP Lemma 26).

How much signal features carry depends on the records, which nobody has seen yet; for the
ratio, reference records stand in: those of the forecast for clusters, those of
design/pca.py for principal components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from privsketch._base.errors import require_count
from privsketch.design.cells import cell_error
from privsketch.design.noise_to_signal import (
    NoiseToSignal,
    direction_moments,
    gaussian_second_moments,
    noise_parts,
)
from privsketch.design.pca import EXTENT, ISOTROPIC_SHARE
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
from privsketch.facts.domain import Domain
from privsketch.features.radii import RadialLaw
from privsketch.features.waves import SIGN_VARIANCE
from privsketch.noise.sums import MAX_RECORDS

GOOD, TOO_MUCH = 1.15, 1.5  # RSSE: end of a good range, middle of a hopeless one
HOPELESS = 0.75  # noise per number over a cluster of average size: learners doubt such fits
MANY_COLUMNS = 150  # seen: 100 columns learn well in seconds; of 300, tight clusters fail
SCATTER = 2.0  # of the excess of data sets around what is expected
STEEPNESS = 6  # of the turning point: searches fail suddenly


@dataclass(frozen=True)
class Calibration:
    """What theory leaves open, from `benchmarks/forecast.py --calibrate` on seed mixtures.

    Only the form of the turning point, how it moves with separation and unknowns, was
    chosen with an eye on all data of that benchmark.

    Attributes
    ----------
    overlap : float
        Separation at which neighbours double the error of a center.
    turning_point : float
        Error from which the search loses clusters, for k d = 1 and separation 1: the
        sooner the more unknowns (k d)^(-1/4), the later the farther apart they lie.
    lost : float
        What a lost cluster costs, in units of its squared separation.
    """

    overlap: float = 1.23
    turning_point: float = 0.58
    lost: float = 0.54


CALIBRATION = Calibration()


@dataclass(frozen=True)
class Reference:
    """Data as they may be: width of clusters, spread of centers, their separation.

    The spread is the standard deviation of the centers along an axis. The separation
    is spread / (k^(1/d) width): 1.5 in the papers' seed mixture, where clusters touch.
    """

    width: float
    spread: float
    separation: float


def references(domain: Domain, n_components: int) -> Iterator[Reference]:
    """Records that use a quarter or half of their domain, in touching or distant clusters."""
    dim = len(domain.half_widths)
    for share in (1 / 4, 1 / 2):
        for separation in (1.5, 4.5):
            spread = share * domain.spread
            width = spread / (separation * n_components ** (1 / dim))
            yield Reference(width, spread, separation)


@dataclass(frozen=True)
class Forecast:
    """What to expect of one design, from public facts alone.

    Attributes
    ----------
    noise_to_signal : float
        Expected squared noise over squared signal of the whole sketch, privacy noise
        and sampling together (CLP Lemma 26), for touching clusters.
    rsse_low, rsse_high : float
        Range of the expected squared error of the centers, relative to k-means without
        privacy, over clusters of plausible widths and distances.
    verdict : {"good", "rough", "hopeless"}
        Good if the range ends below 1.15, hopeless if its middle, by the geometric mean
        of both ends less 1, is above 1.5.
    n_records_needed : float
        The least number of records of one holder for which the design would be good;
        infinite if its sketch is too small for any number.
    """

    noise_to_signal: float
    rsse_low: float
    rsse_high: float
    verdict: Verdict
    n_records_needed: float

    def describe(self) -> str:
        """The forecast in words, one line."""
        enough = "too small a sketch for any number of records"
        if math.isfinite(self.n_records_needed):
            enough = (
                f"good from {float(f'{self.n_records_needed:.2g}'):,.0f} records of a holder on"
            )
        return (
            f"{self.verdict}: cost of k-means (squared distances to centers) "
            f"{_ratio(self.rsse_low)} to {_ratio(self.rsse_high)} times that without privacy, "
            f"noise-to-signal {self.noise_to_signal:.2g}; {enough}"
        )


def _ratio(value: float) -> str:
    """A ratio near 1 with the digits that tell it from 1."""
    digits = 1 if value >= 2 else 2 - math.floor(math.log10(max(value - 1, 1e-4)) + 1)
    return f"{value:.{digits}f}"


def forecast(design: Design, *, n_holders: int = 1, noises: float | None = None) -> Forecast:
    """What to expect when `n_holders` sketches of `design.n_records` records are merged.

    `noises` is the variance of the noise of all together over that of one: as many as there are
    holders, if each adds its own.
    """
    require_count("n_holders", n_holders)
    low, high = expected_range(design, design.n_records, n_holders, noises)
    middle = 1 + math.sqrt((low - 1) * (high - 1))
    verdict: Verdict = "good" if high <= GOOD else "hopeless" if middle > TOO_MUCH else "rough"
    return Forecast(
        noise_to_signal=noise_to_signal(design, n_holders, noises),
        rsse_low=low,
        rsse_high=high,
        verdict=verdict,
        n_records_needed=_records_needed(design, n_holders, noises),
    )


def expected_range(
    design: Design, n_records: float, n_holders: int = 1, noises: float | None = None
) -> tuple[float, float]:
    """Least and largest RSSE to expect of this design with that many records per holder.

    Of signs, the least is for a search that ends near the right centers, the largest for one that
    takes their harmonics for white noise.
    """
    data = list(references(design.domain, design.n_components))
    least = [excess(design, each, n_records, n_holders, noises=noises) for each in data]
    most = least
    if design.mapping.dithered:
        most = [
            excess(design, each, n_records, n_holders, noises=noises, sees_all=True)
            for each in data
        ]
    return 1 + min(least) / SCATTER, 1 + max(most) * SCATTER


def excess(
    design: Design,
    reference: Reference,
    n_records: float,
    n_holders: int = 1,
    calibration: Calibration = CALIBRATION,
    noises: float | None = None,
    *,
    sees_all: bool = False,
) -> float:
    """Expected RSSE - 1 for one kind of data.

    Neighbours that touch share the information about their centers: exact Fisher
    matrices and measurements agree on a factor of 1.5 to 2 for seed mixtures and 1
    for distant clusters. Beyond a turning point, the sooner the more unknowns, the
    search loses clusters, and each costs its squared distance to the next one.
    `sees_all` counts the harmonics of signs in all features, not in the band of the width alone.
    """
    k, dim = design.n_components, design.dim
    most = calibration.lost * reference.separation**2
    noises = float(n_holders) if noises is None else noises
    if design.cells is not None:
        found = cell_error(
            cells=design.cells,
            half_widths=design.domain.half_widths,
            n_components=k,
            n_records=n_records * n_holders,
            variance=noises * design.noise_std**2,
            width=reference.width,
        )
        return min(found.excess, most) * (1 - found.lost) + most * found.lost
    law, radii, width = design.frequencies.law, design.frequencies.radial_law, reference.width
    error = center_error(
        n_components=k,
        dim=dim,
        n_records=n_records * n_holders,
        n_features=design.n_features,
        variance=_variance(design, n_records, n_holders, noises)
        + _harmonics(design, reference, n_records * n_holders, sees_all=sees_all),
        n_unknowns=_unknowns(design),
        band=band_share(law, radii, width, dim),
        squared_band=squared_band_share(law, radii, width, dim),
    )
    error *= 1 + (calibration.overlap / reference.separation) ** 2
    if error >= 1e6:  # also infinite
        return most
    turning_point = calibration.turning_point * reference.separation**0.5 / (k * dim) ** 0.25
    relative = float((error / turning_point) ** STEEPNESS)
    lost = relative / (1 + relative)
    return min(error, most) * (1 - lost) + most * lost


def noise_to_signal(design: Design, n_holders: int = 1, noises: float | None = None) -> float:
    """CLP Lemma 26 for touching clusters that use a quarter of the domain; or components."""
    return expected_noise(design, n_holders, noises).total


def expected_noise(
    design: Design, n_holders: int = 1, noises: float | None = None
) -> NoiseToSignal:
    """The same by its parts: sampling, masks, privacy noise."""
    touching = next(references(design.domain, design.n_components))
    return design_noise_parts(design, touching, n_holders, noises)


def _variance(design: Design, n_records: float, n_holders: int, noises: float) -> float:
    """Variance of noise and sampling per real component of all holders' sums together."""
    if design.noise == "laplace" and n_records != design.n_records:
        design = replace(design, n_records=n_records)  # the count's share depends on it
    # A phasor varies by at most 1, half of it along each axis; a sign of amplitude
    # 4 / pi in its first harmonic by pi^2 / 8 of that. Masks keep some and enlarge them.
    sampling = math.pi**2 / 16 if design.mapping.dithered else 0.5
    alpha, beta = feature_and_record_rate(design)
    return noises * design.noise_std**2 + sampling * n_holders * n_records / (alpha * beta)


def _harmonics(design: Design, reference: Reference, n_records: float, *, sees_all: bool) -> float:
    """Variance that the harmonics of signs add per real component; 0 for other maps.

    Learners of mixtures take them out of the sums once they are near the right one.
    """
    if not design.mapping.dithered or (design.task != "kmeans" and not sees_all):
        return 0.0
    return harmonic_variance(
        design.frequencies.law,
        design.frequencies.radial_law,
        design.dim,
        n_components=design.n_components,
        n_records=n_records,
        width=reference.width,
        spread=reference.spread,
        in_band=not sees_all,
    )


def harmonics_in_search(
    law: str, radii: RadialLaw, domain: Domain, n_components: int, n_records: float
) -> float:
    """Variance that the harmonics of signs add to what a search sees, for touching clusters."""
    touching = next(references(domain, n_components))
    return harmonic_variance(
        law,
        radii,
        len(domain.half_widths),
        n_components=n_components,
        n_records=n_records,
        width=touching.width,
        spread=touching.spread,
        in_band=False,
    )


def _unknowns(design: Design) -> int:
    k, dim = design.n_components, design.dim
    if design.task == "kmeans":
        return kmeans_unknowns(k, dim)
    return mixture_unknowns(k, dim, richest_shape(k, dim, design.n_features))


def _records_needed(design: Design, n_holders: int, noises: float | None) -> float:
    """The least whole number of records with a good forecast: the error falls with it."""

    def good(n_records: float) -> bool:
        return expected_range(design, n_records, n_holders, noises)[1] <= GOOD

    low, high = 0, MAX_RECORDS
    if not good(high):
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return float(high)


def design_noise_parts(
    design: Design, reference: Reference, n_holders: int = 1, noises: float | None = None
) -> NoiseToSignal:
    """Parts of the ratio, the law of the records as reference; `n_holders` sketches merged."""
    noises = float(n_holders) if noises is None else noises
    alpha, beta = feature_and_record_rate(design)
    told = _cluster_signal
    if design.mapping.for_components:
        told = _pca_signal
    elif design.cells is not None:
        told = _cell_signal
    signal, energy = told(design, reference)
    numbers_per_feature = design.n_values / design.n_features
    return noise_parts(
        n_records=design.n_records * n_holders,
        n_features=design.n_features,
        signal=design.n_features * signal,
        energy=design.n_features * energy,
        noise_variance=numbers_per_feature * noises * (design.noise_std * beta) ** 2,
        feature_rate=alpha,
        record_rate=beta,
    )


def feature_and_record_rate(design: Design) -> tuple[float, float]:
    """alpha and beta: the shares of features and of records that masks keep."""
    masks = design.masks
    return (1.0, 1.0) if masks is None else (masks.feature_rate(design.n_features), masks.records)


def _cluster_signal(design: Design, reference: Reference) -> tuple[float, float]:
    """|z|^2 and E|features|^2 per feature of modulus 1.

    |z|^2 is the mean square of the characteristic function over features, for centers
    drawn around a common mean, as in the seed mixture.
    """
    law, radii, k = design.frequencies.law, design.frequencies.radial_law, design.n_components
    alone = energy_share(law, radii, reference.width, design.dim)
    whole = math.hypot(reference.width, reference.spread)
    together = energy_share(law, radii, whole, design.dim)
    return alone / k + together * (1 - 1 / k), 1 + SIGN_VARIANCE * design.mapping.dithered


def _cell_signal(design: Design, reference: Reference) -> tuple[float, float]:
    """The same for cells: the sum of squared shares, and 1, over the number of cells.

    Two records of one Gaussian are in the same cell with a chance of V / (4 pi s^2)^(d / 2), as
    long as that is small.
    """
    k, dim = design.n_components, design.dim
    volume = math.prod(2 * float(half) for half in design.domain.half_widths) / design.n_features

    def together(width: float) -> float:
        alone = volume ** (2 / dim) / 12  # of records spread over their cell
        return float(min(1.0, volume / (4 * math.pi * (width**2 + alone)) ** (dim / 2)))

    whole = math.hypot(reference.width, reference.spread)
    shared = together(reference.width) / k + together(whole) * (1 - 1 / k)
    return shared / design.n_features, 1 / design.n_features


def _pca_signal(design: Design, reference: Reference) -> tuple[float, float]:
    """The same for squares, in units of the radius: k equal eigenvalues and a floor.

    Clusters are no matter here.
    """
    k, dim = design.n_components, design.dim
    floor, each = EXTENT**2 * ISOTROPIC_SHARE / dim, EXTENT**2 * (1 - ISOTROPIC_SHARE) / k
    eigenvalues = [floor + each] * k + [floor] * (dim - k)
    squared, energy = gaussian_second_moments(eigenvalues)
    if design.feature_map == "second-moments":
        return squared / design.n_features, energy / design.n_features
    return direction_moments(math.fsum(eigenvalues), squared, dim)
