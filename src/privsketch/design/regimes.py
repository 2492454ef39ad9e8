"""When a noisy sketch is good enough: CLP sections 6.4 to 6.6, ICASSP sections 5 and 6.

Both papers found by simulation how much noise their decoder (CL-OMPR) bears, and turned
it into rules for the number of records, the rate of masks, the split of a Laplace budget
and the size of a sketch. The rules (24) to (29) are orders of magnitude: constants such as
8 |z|^-2 are dropped. `records_needed` is the same question answered exactly, for any noise.
Plans are made by another prediction (design/size.py); these serve comparison, the public
number of records when none is given, and words about which error matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privsketch._base.errors import ParameterError
from privsketch.design.noise_to_signal import ICASSP_SIGNAL, NoiseToSignal
from privsketch.noise.calibration import sums_share

CLP_UNKNOWNS = 1000.0  # CLP: noise-to-signal at most m / (1000 k d), for m >= 2 k d
CLP_LEAST_SIZE = 2.0  # m / (k d), as above
ICASSP_UNKNOWNS = 100.0  # ICASSP: signal-to-noise times m / (k d) at least 100, for m >= 10 k d
ICASSP_LEAST_SIZE = 10.0  # m / (k d), as above


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
    """Records that suffice, CLP (24) to (26): max(1 / (alpha NSR_max), m / (eps sqrt NSR_max)).

    Without masks this is (25); with the sparsest ones, alpha = 1 / m, it is (26).
    """
    return max(1 / (feature_rate * acceptable), n_features / (epsilon * math.sqrt(acceptable)))


def enough_records(n_features: int, n_components: int, dim: int, epsilon: float) -> float:
    """n_0 of CLP (29): records that suffice whatever the masks, for k-means.

    A public number to plan for where none is known, and to split a budget by.
    """
    unknowns = CLP_UNKNOWNS * n_components * dim
    return max(unknowns, math.sqrt(unknowns * n_features) / epsilon)


def free_feature_rate(n_records: float, n_features: int, epsilon: float) -> float:
    """The rate of masks below which they add more than all other errors, CLP (27)."""
    return 1 / (1 + max(1.0, n_features**2 / (n_records * epsilon**2)))


def free_masks(n_features: int, epsilon: float, acceptable: float) -> tuple[float, float] | None:
    """Records between which even masks of one feature cost nothing that counts, CLP (28).

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
    """The least number of records whose ratio is acceptable, from the ratio at `n_records`.

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
    """The regime of a plan with these parts of its noise-to-signal ratio."""
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
    """The same as CLP's Appendix E prints it.

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
    """The share that really minimises the bound of Lemma 27, for Fourier features, add-remove.

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
