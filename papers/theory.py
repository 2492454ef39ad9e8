"""The papers' utility theory: when a noisy sketch is good enough, and what masks cost.

When a sketch is good enough: CLP sections 6.4 to 6.6, ICASSP sections 5 and 6. Both papers found by
simulation how much noise their decoder (CL-OMPR) bears. They turned it into rules for the number
of records, the rate of masks, the split of a Laplace budget and the size of a sketch. The rules
(24) to (29) are orders of magnitude: constants such as 8 |z|^-2 are dropped. `records_needed`
answers the same question exactly, for any noise. The library plans by another prediction
(design/size.py).

What masks cost at one budget: the strategies of CLP sections 5 and 6.3, side by side. Leaving out
features or records changes two things: the noise that a budget demands after sums are divided by
the rates, and the error of leaving out itself (Lemma 26). At one total rate alpha beta the second
is the same for all Poisson strategies, up to small terms, so the first decides:

- Laplace noise: masks of features are free of charge, sampled records are not, by the factor
  (23): 12 at epsilon = 1 and a rate of 0.1, though nearly 1 for epsilon far below the rate.
- Gaussian noise: r-of-m and block masks multiply the variance by m / r, because the L2
  norm of a record falls only with sqrt(r); sampled records by about (23), which is less for
  epsilon below 1; Poisson masks of features by next to nothing. CLP's advice to mask
  features rather than records is for Laplace noise; with Gaussian noise it holds for Poisson masks.
- Cube noise is calibrated to the largest component, which masks do not change: the variance
  is multiplied by 1 / alpha^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.optimize import brentq
from scipy.special import log_ndtr

from privsketch._base.errors import ParameterError
from privsketch.design.noise_to_signal import NoiseToSignal, noise_parts
from privsketch.design.request import RECORDS_PER_UNKNOWN
from privsketch.noise.calibration import cube_variance, sums_share
from privsketch.noise.laws import amplified
from privsketch.noise.mechanism import NoiseKind
from privsketch.noise.sums import SIGNAL_OF_WAVES

CLP_UNKNOWNS = RECORDS_PER_UNKNOWN  # CLP: noise-to-signal at most m / (1000 k d), for m >= 2 k d
CLP_LEAST_SIZE = 2.0  # m / (k d), as above
ICASSP_UNKNOWNS = 100.0  # ICASSP: signal-to-noise times m / (k d) at least 100, for m >= 10 k d
ICASSP_LEAST_SIZE = 10.0  # m / (k d), as above
ICASSP_SIGNAL = SIGNAL_OF_WAVES  # |z|^2 of the papers' mixtures and frequencies, features of norm 1
STRATEGIES = ("none", "uniform", "block", "poisson", "records", "combined")
_ROUND_UP = 1.0 + 1e-11  # far above the error of a root


def log_delta_continuous(sigma: float, epsilon: float) -> float:
    """Return ln delta of continuous Gaussian noise at L2 sensitivity 1 (Balle and Wang, 2018)."""
    first = float(log_ndtr(1 / (2 * sigma) - epsilon * sigma))
    second = epsilon + float(log_ndtr(-1 / (2 * sigma) - epsilon * sigma))
    if second >= first:  # the difference is below rounding
        return -math.inf
    return first + math.log1p(-math.exp(second - first))


def kappa(epsilon: float, delta: float) -> float:
    """Return the least standard deviation of continuous Gaussian noise at L2 sensitivity 1."""
    low = high = 1.0
    while log_delta_continuous(high, epsilon) > math.log(delta):
        high *= 2
    while log_delta_continuous(low, epsilon) <= math.log(delta):
        low /= 2
    # log_delta reaches -inf for large sigma: clip it so that the root finder stays finite.
    root = brentq(
        lambda s: max(log_delta_continuous(s, epsilon), -1e4) - math.log(delta),
        low,
        high,
        xtol=1e-15,
        rtol=1e-14,
    )
    return float(root) * _ROUND_UP


def icassp_noise(n_records: float, n_features: int, alpha: float, epsilon: float) -> float:
    """Return sigma_xi of the ICASSP paper (replace): 4 sqrt(2 alpha) m / (sqrt(n) epsilon)."""
    return 4 * math.sqrt(2 * alpha) * n_features / (math.sqrt(n_records) * epsilon)


def icassp_to_laplace_scale(sigma_xi: float, n_records: float, alpha: float) -> float:
    """Return the noise of ICASSP as Laplace scale b on the unnormalised sums of CLP."""
    return sigma_xi / 2 * math.sqrt(n_records / alpha)


def entry_variance(
    kind: NoiseKind, scale: float, *, parts: int = 2, n_components: int | None = None
) -> float:
    """Variance of the noise of one entry with `parts` real parts, two if it is complex.

    `scale` is b of Laplace noise, sigma of Gaussian noise, sensitivity / epsilon of the
    cube over `n_components` real numbers. Complex: 4 b^2 and 2 sigma^2 (CLP section 3;
    ICASSP's own complex Laplace law has another parameter, see `icassp_snr`).
    """
    if kind == "laplace":
        return parts * 2 * scale**2
    if kind == "gaussian":
        return parts * scale**2
    if n_components is None:
        raise ParameterError("n_components=None: cube noise depends on how many numbers it is for")
    return parts * scale**2 * cube_variance(n_components, 1, 1.0)


def with_noisy_count(
    ratio: float, n_records: float, count_variance: float, *, kind: NoiseKind = "laplace"
) -> float:
    """CLP Lemma 27: a ratio, and what dividing by a noisy number of records adds to it.

    This is a lower bound (Cramer-Rao, for unbiased estimates of 1 / n from n + noise) and
    serves to compare plans. No estimate need reach it, and the variance of 1 / (n + noise)
    is infinite. The Fisher information of n is 2 / variance for Laplace noise and, by
    the same argument, 1 / variance for Gaussian noise.
    """
    if kind == "cube":
        raise ParameterError("kind='cube': the bound is for Laplace and Gaussian counts")
    information = (2 if kind == "laplace" else 1) / count_variance if count_variance else math.inf
    return (1 + 1 / (information * n_records**2)) * (ratio + 1) - 1


def icassp_snr(
    *,
    n_per_device: float,
    n_devices: int = 1,
    feature_rate: float,
    sigma_xi: float,
    signal: float = ICASSP_SIGNAL,
) -> float:
    """ICASSP (6): signal-to-noise ratio of the average of the devices' sketches.

    In that paper features have norm 1 in all, so `signal` is |z|^2 / m in the units of CLP,
    and `sigma_xi` is the standard deviation of a complex entry of noise that is then
    divided by sqrt(alpha m n_0). Its inverse is Lemma 26 with the law as reference.
    """
    if not 0 < feature_rate <= 1:
        raise ParameterError("feature_rate", feature_rate, "expected a share above 0, at most 1")
    seen = feature_rate * n_per_device * n_devices * signal
    return seen / (1 - feature_rate * signal + sigma_xi**2)


def icassp_snr_of_budget(
    epsilon: float,
    *,
    n_per_device: float,
    n_devices: int = 1,
    n_features: int,
    feature_rate: float,
    signal: float = ICASSP_SIGNAL,
) -> float:
    """ICASSP (7): the same with the noise that epsilon needs under replace, Laplace noise."""
    return icassp_snr(
        n_per_device=n_per_device,
        n_devices=n_devices,
        feature_rate=feature_rate,
        sigma_xi=icassp_noise(n_per_device, n_features, feature_rate, epsilon),
        signal=signal,
    )


def laplace_scale_to_icassp(scale: float, n_per_device: float, feature_rate: float) -> float:
    """sigma_xi of ICASSP for Laplace noise of scale b on the sums of CLP: 2 b sqrt(alpha / n_0)."""
    return 2 * scale * math.sqrt(feature_rate / n_per_device)


def acceptable_noise(n_features: int, n_components: int, dim: int) -> float:
    """NSR_max of CLP section 6.1: m / (1000 k d)."""
    return n_features / (CLP_UNKNOWNS * n_components * dim)


def clp_succeeds(ratio: float, n_features: int, n_components: int, dim: int) -> bool:
    """Whether CLP expects k-means to succeed: enough features, and little enough noise."""
    enough = n_features >= CLP_LEAST_SIZE * n_components * dim
    return enough and ratio <= acceptable_noise(n_features, n_components, dim)


def icassp_succeeds(snr: float, n_features: int, n_components: int, dim: int) -> bool:
    """Whether ICASSP does: squared error within 1.2 times that of Lloyd's algorithm.

    Ten times as much noise as CLP allows: another decoder, other data, another measure.
    """
    size = n_features / (n_components * dim)
    return size >= ICASSP_LEAST_SIZE and snr * size >= ICASSP_UNKNOWNS


# Orders of magnitude, for pure noise on Fourier features. `acceptable` is NSR_max.


def records_order(
    n_features: int, epsilon: float, acceptable: float, feature_rate: float = 1.0
) -> float:
    """Return sufficient n by CLP (24) to (26): max(1 / (alpha NSR_max), m / (eps sqrt NSR_max)).

    Without masks this is (25); with the sparsest ones, alpha = 1 / m, it is (26).
    """
    return max(1 / (feature_rate * acceptable), n_features / (epsilon * math.sqrt(acceptable)))


def free_feature_rate(n_records: float, n_features: int, epsilon: float) -> float:
    """Return the rate of masks below which they add more than all other errors, CLP (27)."""
    return 1 / (1 + max(1.0, n_features**2 / (n_records * epsilon**2)))


def free_masks(n_features: int, epsilon: float, acceptable: float) -> tuple[float, float] | None:
    """Return the range of n where even masks of one feature cost nothing that matters, CLP (28).

    From m / (eps sqrt NSR_max), where the noise is acceptable, to m / eps^2, where it no
    longer hides the masks; None if epsilon is too large for there to be any.
    """
    low, high = n_features / (epsilon * math.sqrt(acceptable)), n_features / epsilon**2
    return (low, high) if low < high else None


def useful_sizes(
    n_records: float, epsilon: float, n_components: int, dim: int
) -> tuple[float, float] | None:
    """Sizes of a sketch that CLP section 6.6 expects to work with pure noise.

    From 2 k d, below which decoding fails, to n^2 eps^2 / (1000 k d), beyond which the
    noise of the features outweighs what they tell; None if there is none.
    """
    unknowns = n_components * dim
    low = CLP_LEAST_SIZE * unknowns
    high = (n_records * epsilon) ** 2 / (CLP_UNKNOWNS * unknowns)
    return (low, high) if low <= high else None


# Exactly, from the parts of a ratio.


def records_needed(at: NoiseToSignal, n_records: float, acceptable: float) -> float:
    """Return the least number of records whose ratio is acceptable, from the ratio at `n_records`.

    The noise falls with 1 / n^2, all other parts with 1 / n (drawing without
    replacement from given records nearly so), provided that rates and noise stay.
    """
    if not acceptable > 0:
        raise ParameterError("acceptable", acceptable, "expected a positive ratio")
    linear = (at.finite + at.sampled + at.masked) * n_records
    squared = at.private * n_records**2
    if math.isinf(linear + squared):
        return math.inf
    # The positive root of acceptable n^2 - linear n - squared, without cancellation.
    return (linear + math.sqrt(linear**2 + 4 * acceptable * squared)) / (2 * acceptable)


@dataclass(frozen=True)
class Regime:
    """Where a plan stands: what its error is made of, and whether it is acceptable.

    Attributes
    ----------
    dominated_by : str
        The largest part: "finite", "sampled", "masked" or "private".
    masks_matter : bool
        Whether masks add more than a tenth of the rest, CLP (27) with its constants.
    acceptable : bool
        CLP's threshold for k-means.
    records_needed : float
        From which number of records on it is.
    """

    dominated_by: str
    masks_matter: bool
    acceptable: bool
    records_needed: float


def regime(
    parts: NoiseToSignal, *, n_records: float, n_features: int, n_components: int, dim: int
) -> Regime:
    """Return the regime of a plan with these parts of its noise-to-signal ratio."""
    enough = n_features >= CLP_LEAST_SIZE * n_components * dim
    most = acceptable_noise(n_features, n_components, dim)
    return Regime(
        dominated_by=parts.largest,
        masks_matter=parts.masked > 0.1 * (parts.total - parts.masked),
        acceptable=clp_succeeds(parts.total, n_features, n_components, dim),
        records_needed=records_needed(parts, n_records, most) if enough else math.inf,
    )


def gamma_star(n_records: float, epsilon: float) -> float:
    """Share of a Laplace budget for the sums when the count takes the rest, by CLP Lemma 28.

    u = 1 - gamma solves u^3 + 2 A u - A = 0 with A = 1 / (n epsilon)^2: one real root
    in (0, 1/2), found by bisection because the closed form cancels at both ends. Plans use
    `noise.calibration.sums_share`, which drops no term.
    """
    a = 1.0 / (n_records * epsilon) ** 2
    low, high = 0.0, 0.5
    for _ in range(200):
        u = (low + high) / 2
        low, high = (u, high) if u**3 + 2 * a * u - a < 0 else (low, u)
    return 1.0 - high


def gamma_star_closed_form(n_records: float, epsilon: float) -> float:
    """Return the ratio as CLP's Appendix E prints it.

    Cardano's root of u^3 + 2 A u - A = 0, u = 1 - gamma, A = 1 / (n eps)^2. It cancels for
    n eps far from 1.
    """
    a = 1 / (n_records * epsilon) ** 2
    e = math.cbrt((27 * a + 3 * math.sqrt(81 * a**2 + 96 * a**3)) / 2)
    return 1 - e / 3 + 2 * a / e


def gamma_of_bound(
    n_records: float,
    epsilon: float,
    *,
    n_features: int,
    signal_share: float = ICASSP_SIGNAL,
    feature_rate: float = 1.0,
) -> float:
    """Return the share that minimises Lemma 27's bound, for Fourier features, add-remove.

    With B + C / gamma^2 = 1 + the ratio of the sums, u = 1 - gamma is the one root in (0, 1) of
    u^3 + 2 A u - A - (A B / C) (1 - u)^3. CLP drops A B / C for being far below 1, but it
    stands beside A: that is allowed only where C >> 1, and there the sketch is all
    noise. Where sketches are useful, u is about (|z|^2 / m)^(1/3) / (2 m^(2/3)), whatever n and
    epsilon, and the printed split gives the count too little (docs/theory.md).
    """
    return sums_share(
        n_records,
        epsilon,
        noise=8 * n_features**2 / signal_share,
        scatter=1 / (feature_rate * signal_share),
    )


@dataclass(frozen=True)
class Strategy:
    """One way to mask, with the noise its budget asks for.

    Attributes
    ----------
    name : str
        One of `STRATEGIES`.
    noise : {"laplace", "gaussian", "cube"}
    feature_rate, record_rate : float
        alpha and beta.
    variance : float
        Of the noise of one real number, after division by both rates.
    """

    name: str
    noise: NoiseKind
    feature_rate: float
    record_rate: float
    variance: float

    @property
    def total_rate(self) -> float:
        """The share of all features of all records that is used."""
        return self.feature_rate * self.record_rate

    def parts(
        self,
        *,
        n_records: float,
        n_features: int,
        signal: float,
        energy: float,
        numbers_per_feature: int = 2,
    ) -> NoiseToSignal:
        """Return expected noise-to-signal ratio, the law of the records as reference."""
        return noise_parts(
            n_records=n_records,
            n_features=n_features,
            signal=signal,
            energy=energy,
            noise_variance=numbers_per_feature * self.variance * self.record_rate**2,
            feature_rate=self.feature_rate,
            record_rate=self.record_rate,
        )


def best_first(
    strategies: Iterable[Strategy],
    *,
    n_records: float,
    n_features: int,
    signal: float,
    energy: float,
    numbers_per_feature: int = 2,
) -> list[tuple[Strategy, NoiseToSignal]]:
    """Strategies with their expected ratios, the smallest first."""
    facts = {"n_records": n_records, "signal": signal, "energy": energy}
    found = [
        (one, one.parts(n_features=n_features, numbers_per_feature=numbers_per_feature, **facts))
        for one in strategies
    ]
    return sorted(found, key=lambda pair: pair[1].total)


def price_of_sampled_records(epsilon: float, rate: float) -> float:
    """Factor on the variance of Laplace or cube noise, add-remove: CLP (22) and (23).

    (epsilon / (beta epsilon'))^2 with epsilon' = ln(1 + (e^epsilon - 1) / beta): never below 1.
    """
    return (epsilon / (rate * amplified(epsilon, rate))) ** 2


def price_of_poisson_features(epsilon: float, rate: float, n_features: int) -> float:
    """Return the factor over m features for Poisson masks of the features, Laplace noise."""
    each = epsilon / n_features
    return (each / (rate * amplified(each, rate))) ** 2


def price_of_kept_features(kind: NoiseKind, rate: float) -> float:
    """Return the factor for r-of-m and block masks, Fourier and one-bit features, any relation."""
    return {"laplace": 1.0, "gaussian": 1 / rate, "cube": 1 / rate**2}[kind]
