"""What is public about the noise of one total, after it was added up: a sketch file carries it.

Its variance, which learners need, and its receipt follow from these facts and the design's noise.
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
from privsketch.noise.sharing.gaussians import root_up
from privsketch.noise.sums import SHARING_KINDS, SharingKind, SumNoise, composed_receipt, is_near

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

_SIZES = 1e-100, 1e100  # of `alone`: what is beyond is no cost, and no float when it is squared


def require_alone(alone: object) -> None:
    """Refuse what cannot be a cost."""
    if not (type(alone) is float and _SIZES[0] <= alone <= _SIZES[1]):
        raise ParameterError("alone", alone, "expected a number above 0")


@dataclass(frozen=True)
class SharedCost:
    """What somebody can learn about one unit.

    Attributes
    ----------
    who : str
        In words.
    epsilon, delta : float
    rho : float or None
        For Gaussian noise.
    """

    who: str
    epsilon: float
    delta: float
    rho: float | None

    @property
    def text(self) -> str:
        """Epsilon and delta, with four digits that are rounded up."""
        four = Context(prec=4, rounding=ROUND_CEILING)
        epsilon = number_text(float(four.create_decimal(repr(self.epsilon))))
        return f"epsilon = {epsilon}, delta = {number_text(self.delta)}"


def cost_of_laws(who: str, laws: Sequence[NoiseLaw]) -> SharedCost:
    """What a release costs that has these laws for its sums and its count."""
    if laws[0].zcdp is not None and laws[0].kind == "gaussian":
        return SharedCost(who, laws[0].epsilon, laws[0].delta, laws[0].zcdp)
    return SharedCost(who, exact_sum([law.epsilon for law in laws]), 0.0, None)


def cost_times(noise: SumNoise, who: str, times: Fraction | int) -> SharedCost:
    """The cost of one release, whose rho is taken so many times."""
    law = noise.sums_law
    if law.zcdp is None or law.kind != "gaussian" or times == 1:
        return cost_of_laws(who, noise.laws)
    larger = round_up(exact(law.zcdp) * times)
    return SharedCost(who, epsilon_of_rho(larger, law.delta), law.delta, larger)


@dataclass(frozen=True)
class SharedTotal:
    """Noise that several added to one total.

    Attributes
    ----------
    study : str
        The random name of the study.
    by : {"holders", "tellers"}
        Who added it: each holder a part of one noise, or each teller a whole one.
    level : int
        Which of the noises of the holders counts, from 0 on.
    needed : int
        How many holders' noises together are that of one release; 0 where tellers add it.
    turnout : int
        Number of holders in the total.
    n_tellers : int
    alone : float
        What the sums of a holder cost if its own noise is all that protects them: a rho for
        Gaussian noise, else an epsilon.
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
        """What its receipt names as the source."""
        return f"study {self.study}"

    def noises(self, law: NoiseLaw, noise: SumNoise) -> float:
        """Variance of the total's noise over that of one release by `law`, one of `noise`."""
        if self.by == "holders":
            return self.turnout / self.needed
        return self.n_tellers + self.turnout * self.floor(law, noise).variance / law.variance

    def floor(self, law: NoiseLaw, noise: SumNoise) -> NoiseLaw:
        """What every holder adds where tellers add the noise, lest all of these see exact sums."""
        return floor_law(law, noise, self.alone)

    def costs(self, noise: SumNoise) -> tuple[SharedCost, ...]:
        """What everybody can learn about one unit of this total, from least to most.

        As many holders may collude as the noises that are needed leave.
        """
        if self.by == "tellers":
            laws = [self.floor(law, noise) for law in noise.laws]
            whole = cost_of_laws(ALL_BUT_ONE, noise.laws)
            return whole, cost_of_laws(ALL_OTHERS[self.by], laws)
        found = [cost_times(noise, "outsiders", Fraction(self.needed, self.turnout))]
        colluding, pooled = self.turnout - self.needed, "all tellers but one"
        if colluding:
            pooled += f", with {colluding} of the {self.turnout} holders"
        else:  # everybody knows its own noise
            others = Fraction(self.needed, max(self.turnout - 1, 1))
            found.append(cost_times(noise, "each of the other holders", others))
        found.append(cost_times(noise, pooled, 1))
        law = noise.sums_law
        epsilon = epsilon_of_rho(self.alone, law.delta)
        return *found, SharedCost(ALL_OTHERS[self.by], epsilon, law.delta, self.alone)

    def receipt(self, noise: SumNoise, sampler: str) -> Receipt:
        """What the total costs those whose records are in it."""
        parts = [law.receipt(law.scale, None, sampler) for law in noise.laws]
        whole = parts[0] if len(parts) == 1 else composed_receipt(parts, None)
        told = _HOLDERS if self.by == "holders" else _TELLERS
        how = (
            f"added in parts by {self.turnout} holders"
            if self.by == "holders"
            else f"added by each of {self.n_tellers} tellers to the total of {self.turnout} holders"
        )
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        receipt = replace(
            whole,
            mechanism=f"{whole.mechanism}, {how}",
            source=self.source,
            assumption=told.format(**facts),
        )
        return receipt.protecting(noise.unit)

    def covers(self, receipt: Receipt, noise: SumNoise) -> bool:
        """Whether a receipt is that of this total, but for last digits of another machine."""
        leaves = receipt.parts or (receipt,)
        if not all(leaf.sampler in SAMPLERS for leaf in leaves):
            return False
        rho = noise.sums_law.zcdp
        if self.by == "holders" and (rho is None or self.alone < rho * self.needed * (1 - 1e-9)):
            return False  # the first level costs at least what a later one does
        expected = self.receipt(noise, leaves[0].sampler)
        return _is_like(receipt, expected)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, value: Any) -> SharedTotal:
        """From `to_json`; an error for anything else."""
        if not isinstance(value, Mapping) or set(value) != {field.name for field in fields(cls)}:
            raise ParameterError("shared: unknown or missing fields")
        return cls(**value)


def _is_like(receipt: Receipt, expected: Receipt) -> bool:
    """Whether two receipts say the same, numbers that machines compute being near."""
    for name in ("sensitivity", "scale", "rho"):
        if not is_near(getattr(receipt, name), getattr(expected, name)):
            return False
    if len(receipt.parts) != len(expected.parts):
        return False
    pairs = zip(receipt.parts, expected.parts, strict=True)
    if not all(_is_like(part, other) for part, other in pairs):
        return False
    same = {
        name: getattr(receipt, name)
        for name in ("sensitivity", "scale", "rho", "calibration", "parts", "plugins")
    }
    return receipt == replace(expected, **same)


def gaussian_part(law: NoiseLaw, scale: float) -> NoiseLaw:
    """Gaussian noise of another scale for the same sums, which wraps; it costs what that costs."""
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
    """`law`, one of `noise`, for as much of `alone` as it has of the whole cost; it wraps."""
    if law.kind == "gaussian":
        whole = Fraction(law.sensitivity) ** 2 / (2 * exact(alone))
        return gaussian_part(law, root_up(whole))
    total = exact(exact_sum([one.epsilon for one in noise.laws]))
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
