"""Public facts about the noise of one total, which a sketch file stores.

The variance, which learners need, and the receipt follow from these facts and the design's noise.

Sums of discrete Gaussian noises are nearly discrete Gaussian; here is what "nearly" costs.

Write N_Z(0, v) for P(z) ~ exp(-z^2 / 2 v) on the integers; "variance" is v here, from which that
of the noise differs by less than 1 in e^600 where it counts.

Lemma. Let X, Y be independent, N_Z(0, s^2) and N_Z(0, t^2). Completing squares, X + Y has at n the
weight exp(-n^2 / 2 (s^2 + t^2)) f(c n), f(x) = sum over k of exp(-(k - x)^2 / 2 u^2), with
c = s^2 / (s^2 + t^2) and 1 / u^2 = 1 / s^2 + 1 / t^2. By Poisson summation f(x) is a constant times
1 + 2 sum over j >= 1 of q^(j^2) cos(2 pi j x), q = exp(-2 pi^2 u^2), which lies between
theta_4(q) > 0 and theta_3(q). Over its mean under N_Z(0, s^2 + t^2), f(c n) is the ratio of the law
of X + Y to N_Z(0, s^2 + t^2); so that ratio and its inverse are at most theta_3 / theta_4. Jacobi's
products make the logarithm of that 4 (artanh q + artanh q^3 + artanh q^5 + ...), at most 4.04 q
for s, t >= 1/2. (Kairouz, Liu and Steinke, 2021, have 5 q.)

A sum of several is made one by one, and a bound on a ratio of laws survives the addition of
independent noise: |ln ratio| <= tau / 2, tau = 8.08 times the sum of all q. In D coordinates a pair
of laws whose logarithms differ by at most e in each has Renyi divergences of at most a D e^2 / 2,
of any order a, both ways (Bun and Steinke, 2016, Proposition 3.3). Roots of such bounds add up
along a chain of laws, as for groups of records (ibid., Lemma 5.2: with k = 1 + x / y, bounds
a x^2 / 2 and a y^2 / 2 make a (x + y)^2 / 2): from the sum to the Gaussian, across by the
sensitivity, back to the sum,

    rho' = (sensitivity / sqrt(v) + tau sqrt(D))^2 / 2,     v the sum of variances.

With all scales >= 8, u^2 >= 32 and tau < 9 (number of noises) e^-631. A margin of 2^-40 in every
variance is more than that, and rho' is then at most sensitivity^2 / 2 v without the margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import Any

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch.facts.budget import checked_source, exact, exact_sum, number_text, round_up
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import epsilon_of_rho, round_down
from privsketch.noise.mechanism import SAMPLERS, NoiseLaw, cube_law, laplace_law
from privsketch.noise.sums import (
    MIN_PART_SCALE,
    SHARING_KINDS,
    SharingKind,
    SumNoise,
    composed_receipt,
    is_like,
)

_HOLDERS = (
    "at least {needed} of the {turnout} holders in this sum added noise and keep it secret (if "
    "only h of them do: rho x {needed}/h); one of the {n_tellers} tellers is honest, tallied once "
    "and destroyed its key; the ciphers hold; every record belongs to one source only"
)
_TELLERS = (
    "one of the {n_tellers} tellers is honest, added its noise and keeps it secret, tallied once "
    "and destroyed its key; the ciphers hold; every record belongs to one source only"
)
ALL_BUT_ONE = "everybody else, with all tellers but one and any holders"
ALL_OTHERS = {
    "holders": "all tellers together, or all other holders",
    "tellers": "all tellers together",
}

_SIZES = 1e-100, 1e100  # range of `alone`: beyond, a square is not a float


def require_alone(alone: object) -> None:
    """Refuse a number that cannot be a cost."""
    if not (type(alone) is float and _SIZES[0] <= alone <= _SIZES[1]):
        raise ParameterError("alone", alone, "expected a number above 0")


@dataclass(frozen=True)
class SharedTotal:
    """Noise that several parties added to one total.

    Attributes
    ----------
    study : str
        Random name of the study.
    by : {"holders", "tellers"}
        Who added it: each holder a part of one noise, or each teller a whole one.
    level : int
        Index of the holders' level that was added up.
    needed : int
        How many holders' noises make up that of one release; 0 where tellers add it.
    turnout : int
        Number of holders in the total.
    n_tellers : int
        Number of tellers.
    alone : float
        Cost of a holder's sums if only its own noise protects them: a rho for Gaussian noise,
        else an epsilon.
    """

    study: str
    by: SharingKind
    level: int
    needed: int
    turnout: int
    n_tellers: int
    alone: float

    def __post_init__(self) -> None:
        checked_source(self.study)
        require_one_of("by", self.by, SHARING_KINDS)
        require_count("turnout", self.turnout)
        if require_count("n_tellers", self.n_tellers) < 2:
            raise ParameterError("n_tellers", self.n_tellers, "expected at least 2")
        is_whole = type(self.level) is int and type(self.needed) is int and self.level >= 0
        fits = 1 <= self.needed <= self.turnout if self.by == "holders" else self.needed == 0
        if not (is_whole and fits):
            raise ParameterError("needed", self.needed, "it does not go with the turnout")
        require_alone(self.alone)

    @property
    def source(self) -> str:
        """Source that its receipt names."""
        return f"study {self.study}"

    def noises(self, law: NoiseLaw, noise: SumNoise) -> float:
        """Return the variance of the total's noise relative to one release by `law`."""
        if self.by == "holders":
            return self.turnout / self.needed
        return self.n_tellers + self.turnout * self.floor(law, noise).variance / law.variance

    def floor(self, law: NoiseLaw, noise: SumNoise) -> NoiseLaw:
        """Return the noise that every holder adds, so that tellers see no exact sums."""
        return floor_law(law, noise, self.alone)

    def costs(self, noise: SumNoise) -> tuple[SharedCost, ...]:
        """Return what each party can learn about one unit of this total, from least to most.

        All holders beyond those whose noises are needed may collude.
        """
        if self.by == "tellers":
            laws = [self.floor(law, noise) for law in noise.laws]
            all_but_one = cost_of_laws(ALL_BUT_ONE, noise.laws)
            return all_but_one, cost_of_laws(ALL_OTHERS[self.by], laws)
        costs = [cost_times(noise, "outsiders", Fraction(self.needed, self.turnout))]
        colluding, pooled = self.turnout - self.needed, "all tellers but one"
        if colluding:
            pooled += f", with {colluding} of the {self.turnout} holders"
        else:  # every holder knows its own noise
            share = Fraction(self.needed, max(self.turnout - 1, 1))
            costs.append(cost_times(noise, "each of the other holders", share))
        costs.append(cost_times(noise, pooled, 1))
        law = noise.sums_law
        epsilon = epsilon_of_rho(self.alone, law.delta)
        return *costs, SharedCost(ALL_OTHERS[self.by], epsilon, law.delta, self.alone)

    def receipt(self, noise: SumNoise, sampler: str) -> Receipt:
        """Return what the total costs those whose records are in it."""
        parts = [law.receipt(law.scale, None, sampler) for law in noise.laws]
        release = parts[0] if len(parts) == 1 else composed_receipt(parts, None)
        assumption = _HOLDERS if self.by == "holders" else _TELLERS
        how = (
            f"added in parts by {self.turnout} holders"
            if self.by == "holders"
            else f"added by each of {self.n_tellers} tellers to the total of {self.turnout} holders"
        )
        receipt = replace(
            release,
            mechanism=f"{release.mechanism}, {how}",
            source=self.source,
            assumption=assumption.format(**self.to_json()),
        )
        return receipt.protecting(noise.unit)

    def covers(self, receipt: Receipt, noise: SumNoise) -> bool:
        """Return whether a receipt is that of this total, up to rounding on other machines."""
        leaves = receipt.parts or (receipt,)
        if not all(leaf.sampler in SAMPLERS for leaf in leaves):
            return False
        rho = noise.sums_law.zcdp
        if self.by == "holders" and (rho is None or self.alone < rho * self.needed * (1 - 1e-9)):
            return False  # the first level costs at least what a later one does
        return is_like(receipt, self.receipt(noise, leaves[0].sampler))

    def to_json(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, value: Any) -> SharedTotal:
        """Rebuild from `to_json`; raise for anything else."""
        if not isinstance(value, Mapping) or set(value) != {field.name for field in fields(cls)}:
            raise ParameterError("shared: unknown or missing fields")
        return cls(**value)


@dataclass(frozen=True)
class SharedCost:
    """What a party can learn about one unit.

    Attributes
    ----------
    who : str
        Description of the party.
    epsilon, delta : float
        Cost against this party.
    rho : float or None
        The same in zCDP, for Gaussian noise.
    """

    who: str
    epsilon: float
    delta: float
    rho: float | None

    @property
    def text(self) -> str:
        """Epsilon and delta, rounded up to four digits."""
        four = Context(prec=4, rounding=ROUND_CEILING)
        epsilon = number_text(float(four.create_decimal(repr(self.epsilon))))
        return f"epsilon = {epsilon}, delta = {number_text(self.delta)}"


def cost_of_laws(who: str, laws: Sequence[NoiseLaw]) -> SharedCost:
    """Return the cost of a release with these laws for its sums and its count."""
    if laws[0].zcdp is not None and laws[0].kind == "gaussian":
        return SharedCost(who, laws[0].epsilon, laws[0].delta, laws[0].zcdp)
    return SharedCost(who, exact_sum([law.epsilon for law in laws]), 0.0, None)


def cost_times(noise: SumNoise, who: str, times: Fraction | int) -> SharedCost:
    """Return the cost of one release with its rho multiplied."""
    law = noise.sums_law
    if law.zcdp is None or law.kind != "gaussian" or times == 1:
        return cost_of_laws(who, noise.laws)
    larger = round_up(exact(law.zcdp) * times)
    return SharedCost(who, epsilon_of_rho(larger, law.delta), law.delta, larger)


def gaussian_part(law: NoiseLaw, scale: float) -> NoiseLaw:
    """Return wrapping Gaussian noise of another scale for the same sums, with its own cost."""
    rho = round_up(Fraction(law.sensitivity) ** 2 / (2 * Fraction(scale) ** 2))
    while Fraction(rho) * 2 * Fraction(scale) ** 2 < Fraction(law.sensitivity) ** 2:
        rho = math.nextafter(rho, math.inf)
    return replace(
        law,
        scale=scale,
        variance=scale**2,
        rho=rho,
        zcdp=rho,
        epsilon=epsilon_of_rho(rho, law.delta),
        inner=0.0,
        wraps=True,
    )


def floor_law(law: NoiseLaw, noise: SumNoise, alone: float) -> NoiseLaw:
    """Return `law` of `noise` for its fraction of the cost `alone`, wrapping."""
    if law.kind == "gaussian":
        variance = Fraction(law.sensitivity) ** 2 / (2 * exact(alone))
        return gaussian_part(law, root_up(variance))
    total = exact(exact_sum([part.epsilon for part in noise.laws]))
    epsilon = round_down(exact(law.epsilon) * exact(alone) / total)
    n, sensitivity = law.n_components, int(law.sensitivity)
    if law.kind == "laplace":
        return replace(laplace_law(sensitivity, n, epsilon, law.neighbours), wraps=True)
    try:
        return replace(cube_law(sensitivity, n, epsilon, law.neighbours), wraps=True)
    except ParameterError:
        raise ParameterError(
            "alone",
            alone,
            "more than the integers of this design have room for",
            "plan the design with `n_holders=` and `sharing='tellers'`, or use less",
        ) from None


VARIANCE_MARGIN = Fraction(1, 2**40)


def require_margin(rho: float, n_noises: int, n_components: int) -> None:
    """Refuse a sum for which the margin of its variances does not pay for all of tau.

    With v (1 + m) for v, sensitivity / sqrt(v (1 + m)) <= sqrt(2 rho) (1 - m / 3); the rest of
    sqrt(2 rho) is what tau sqrt(D) may be. In logarithms, because both are beyond floats.
    """
    log_tau = math.log(9 * n_noises) - math.pi**2 * MIN_PART_SCALE**2
    room = math.log(2 * rho) / 2 + math.log(VARIANCE_MARGIN / 3)
    if log_tau + math.log(n_components) / 2 > room:
        raise ParameterError("noise: so much of it that its parts do not add up to it")


def root_up(value: Fraction) -> float:
    """Return the least float whose square is not below `value`."""
    root = math.sqrt(value)
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    while Fraction(math.nextafter(root, 0.0)) ** 2 >= value:
        root = math.nextafter(root, 0.0)
    return root


def layer_scales(scale: float, levels: Sequence[int]) -> tuple[float, ...]:
    """Return scales of the noises that a holder adds in layers, one for each level.

    The variances of the first l noises add up to scale^2 / levels[l - 1], with the margin: so many
    holders have together the noise of one release. Levels fall.
    """
    variance = Fraction(scale) ** 2 * (1 + VARIANCE_MARGIN)
    scales: list[float] = []
    covered = Fraction(0)
    for level in levels:
        part = variance / level - covered
        if part < MIN_PART_SCALE**2:
            raise ParameterError(
                f"levels: noise for {level} holders has a part with a scale below "
                f"{MIN_PART_SCALE}; use a design that has room for parts of its noise: planned "
                "with `n_holders=` as many as take part, and `sharing='holders'`"
            )
        scales.append(root_up(part))
        covered += Fraction(scales[-1]) ** 2
    return tuple(scales)


# Each level makes a ballot longer by a sketch. From N to N / 2 holders a step then costs 5 %
# (python -m benchmarks constants noise MAX_HOLDER_LEVELS).
MAX_HOLDER_LEVELS = 16


def plan_levels(scale: float, most: int, least: int) -> tuple[int, ...]:
    """Return sufficient numbers of honest noises from `most` to `least`: all, or a grid.

    Between two levels H > H', a total has H / H' times the variance that it needs. Designs whose
    noise is too small to be divided have fewer and coarser levels.
    """
    if not 1 <= least <= most:
        raise ParameterError(f"levels: expected 1 <= {least} <= {most}")
    # Other machines may compute other last digits of the scale.
    smallest = Fraction(MIN_PART_SCALE) ** 2 * (1 + Fraction(1, 10**6))
    most = min(most, max(least, math.floor(Fraction(scale) ** 2 / smallest)))
    for count in range(min(MAX_HOLDER_LEVELS, most - least + 1), 1, -1):
        levels = _geometric(most, least, count)
        steps = zip(levels[1:], levels, strict=False)
        parts = [Fraction(1, few) - Fraction(1, many) for few, many in steps]
        if Fraction(scale) ** 2 * min(parts) >= smallest:
            return levels
    layer_scales(scale, [least])
    return (least,)


def _geometric(most: int, least: int, count: int) -> tuple[int, ...]:
    """Return up to `count` whole numbers from `most` to `least`, at about equal ratios."""
    if most - least + 1 <= count:
        return tuple(range(most, least - 1, -1))
    inner = [round(most * (least / most) ** (index / (count - 1))) for index in range(count)]
    return tuple(sorted({most, *inner, least}, reverse=True))
