"""Who adds the noise of a study's total, how much of it, and what each party risks.

`Sharing` holds the public facts. Scales are not among them: as for designs, they are computed from
the budget each time. A file can therefore ask for less noise only by stating a larger cost.

delta > 0, by holders: each adds discrete Gaussian noise, and the noises of H honest holders have
together the variance of one release. The number of holders who take part is known only later. So
each one draws noise for several *levels* H_1 > H_2 > ..., one on top of the other: y_1 = x + noise,
y_2 = y_1 + more noise. All levels together are y_1 and noise that is independent of records: they
cost what y_1 does, rho H_1. The total uses one level, the largest that is no more than the turnout
less the holders who may collude.

delta = 0, by tellers: pure noise has no such parts. (A component of cube noise has the
characteristic function sin(D atan t) / (D t (1 + t^2)^(D/2)), whose zeros are simple from D = 3 on;
those of a power of one are not.) Each teller adds a whole noise, and one honest teller is enough.
Each holder adds noise for a larger epsilon, `alone`: all tellers together see no exact sums.

Noise is added modulo 2^64, as the sums are (`NoiseLaw.wraps`). A word that is a function of the
others, such as their sum with public weights r, must be the same function after noise was added: a
teller who adds z adds the sum of r_j z_j to it. Otherwise the difference would reveal an exact sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from privsketch._base.errors import ParameterError, require_count, require_one_of
from privsketch._base.types import Integers
from privsketch.facts.budget import exact, exact_sum
from privsketch.facts.receipt import Receipt
from privsketch.noise.calibration import round_down
from privsketch.noise.mechanism import HEADROOM, OWN_SAMPLER, NoiseLaw, entered_noise
from privsketch.noise.sharing.total import (
    ALL_BUT_ONE,
    ALL_OTHERS,
    MAX_HOLDER_LEVELS,
    SharedCost,
    SharedTotal,
    cost_of_laws,
    cost_times,
    floor_law,
    gaussian_part,
    layer_scales,
    plan_levels,
    require_alone,
    require_margin,
)
from privsketch.noise.sums import SHARING_KINDS, SharingKind, SumNoise, add_noises, floor_ratio

DEFAULT_TELLERS = 2  # the fewest; where tellers add the noise, each further one adds its own
MAX_HOLDERS = 10**6  # of one study; each can then have up to MAX_RECORDS / MAX_HOLDERS records
_SHARING_FIELDS = ("by", "n_holders", "colluding", "min_holders", "n_tellers", "levels", "alone")


def default_colluding(n_holders: int) -> int:
    """Return a third of the holders, rounded up: how many may pool their knowledge."""
    return -(-n_holders // 3)


def default_min_holders(n_holders: int, colluding: int) -> int:
    """Return two thirds of the holders, and one more than collude."""
    return max(-(-2 * n_holders // 3), colluding + 1)


def planned_noises(by: SharingKind, n_holders: int) -> float:
    """Return the noise variance of a full total by default, relative to one release.

    Plans and forecasts use it before there is a study.
    """
    if by == "holders":
        return n_holders / (n_holders - default_colluding(n_holders))
    return DEFAULT_TELLERS + 0.5


@dataclass(frozen=True)
class Sharing:
    """How the noise of a study's total is added: public facts, draws, costs.

    Attributes
    ----------
    noise : SumNoise
        Noise of one release of the design, which protects the total.
    by : {"holders", "tellers"}
        Who adds it.
    n_holders : int
        Number of holders on the roster.
    colluding : int
        How many of them may pool their knowledge with all tellers but one. Tellers who are holders
        count. Where tellers add the noise, any number may.
    min_holders : int
        Smallest turnout.
    n_tellers : int
        Number of tellers.
    levels : tuple of int
        For each level, how many honest holders' noises suffice; empty where tellers add noise.
    alone : float
        Cost that a holder's own noise is calibrated to: a rho for Gaussian noise, else an epsilon.
    """

    noise: SumNoise
    by: SharingKind
    n_holders: int
    colluding: int
    min_holders: int
    n_tellers: int
    levels: tuple[int, ...]
    alone: float

    def __post_init__(self) -> None:
        require_one_of("by", self.by, SHARING_KINDS)
        for name in ("n_holders", "min_holders", "n_tellers"):
            require_count(name, getattr(self, name))
        if not 2 <= self.n_holders <= MAX_HOLDERS or self.n_tellers < 2:
            raise ParameterError(
                f"`n_holders={self.n_holders}`, `n_tellers={self.n_tellers}`: expected 2 to "
                f"{MAX_HOLDERS} holders, and at least 2 tellers"
            )
        is_whole = type(self.colluding) is int and self.colluding >= 0
        if not is_whole or not self.colluding < self.min_holders <= self.n_holders:
            raise ParameterError(
                f"`colluding={self.colluding}`, `min_holders={self.min_holders}`: expected "
                f"colluding < min_holders <= {self.n_holders}, the number of holders: somebody who "
                "takes part must be honest"
            )
        if any(law.masking for law in self.noise.laws):
            raise ParameterError("masks: the cost of a total is not known; use no masks")
        require_alone(self.alone)
        if self.by == "holders":
            self._require_levels()
        elif self.levels:
            raise ParameterError("levels: only where holders add noise")
        _ = self.holder_laws  # refuses what cannot be drawn
        # Sums of 2^36 records in all are below HEADROOM, and the rest of 64 bits is for noise.
        for law in self.noise.laws:
            for turnout in self._noisiest():
                noises = self.total(turnout, "any").noises(law, self.noise)
                if math.sqrt(noises) * law.reach >= HEADROOM:
                    raise ParameterError("the noise of all together does not fit 64-bit integers")

    def _noisiest(self) -> list[int]:
        """Return the largest turnout of each level, which has the most noise."""
        above = (level + self.colluding - 1 for level in self.levels[:-1])
        return [self.n_holders, *(turnout for turnout in above if turnout >= self.min_holders)]

    def _require_levels(self) -> None:
        """Refuse levels that do not serve every turnout, or are not paid for."""
        levels, law = self.levels, self._law
        if law.kind != "gaussian" or law.zcdp is None:
            raise ParameterError(
                "sharing", self.by, f"{law.kind} noise has no parts", "use `sharing='tellers'`"
            )
        is_whole = isinstance(levels, tuple) and all(type(level) is int for level in levels)
        if not is_whole or not 1 <= len(levels) <= MAX_HOLDER_LEVELS:
            raise ParameterError(f"levels: expected 1 to {MAX_HOLDER_LEVELS} whole numbers")
        falls = all(many > few for many, few in pairwise(levels))
        ends = levels[0] <= self.n_holders - self.colluding, self._fewest == levels[-1]
        if not (falls and all(ends)):
            raise ParameterError(
                f"levels: expected numbers that fall from at most "
                f"{self.n_holders - self.colluding} to {self._fewest}"
            )
        if not math.isclose(self.alone, law.zcdp * levels[0], rel_tol=1e-9):
            raise ParameterError("alone", self.alone, "not what the first level costs")
        n_noises = self.n_holders * len(levels)
        # Outsiders see least: their rho is the smallest.
        require_margin(law.zcdp * levels[-1] / self.n_holders, n_noises, law.n_components)

    @property
    def _law(self) -> NoiseLaw:
        return self.noise.sums_law

    @property
    def _fewest(self) -> int:
        return self.min_holders - self.colluding

    @property
    def n_words(self) -> int:
        """Number of integers of one level."""
        return self.noise.n_words

    @property
    def n_levels(self) -> int:
        """Number of levels that a holder draws noise for."""
        return max(len(self.levels), 1)

    @cached_property
    def holder_laws(self) -> tuple[tuple[NoiseLaw, ...], ...]:
        """Laws of sums and count that a holder adds at each level, on top of the previous one."""
        if self.by == "holders":
            scales = layer_scales(self._law.scale, self.levels)
            return tuple((gaussian_part(self._law, scale),) for scale in scales)
        return (tuple(floor_law(law, self.noise, self.alone) for law in self.noise.laws),)

    def draw_holder(
        self, words: Integers, *, source: str | None = None
    ) -> tuple[Integers, Receipt]:
        """Add noise to a holder's exact integers, modulo 2^64: (n_levels, n_words).

        `words` are those of `SumNoise.weighted`. The receipt states their cost if nothing else
        protects them. Nobody may see them: only the total is shown.

        Charges: `alone`, once; and the cost of the total, once that is shown.
        """
        if words.shape != (self.n_words,) or words.dtype != np.int64:
            raise ParameterError(f"words: expected {self.n_words} 64-bit integers")
        levels, receipts = [], []
        for laws in self.holder_laws:
            words, receipt = add_noises(words, laws, source)
            levels.append(words)
            receipts.append(receipt)
        return np.stack(levels), receipts[0].protecting(self.noise.unit)

    def draw_teller(self) -> tuple[Integers, Receipt]:
        """Draw the noise (n_words,) that a teller adds to its words, modulo 2^64.

        It does not depend on records and needs no entry in a ledger.

        Charges: nothing by itself; the total that it protects has its cost.
        """
        if self.by != "tellers":
            raise ParameterError("sharing", self.by, "tellers add no noise in this study")
        laws = tuple(replace(law, wraps=True) for law in self.noise.laws)
        zeros = np.zeros(self.n_words, dtype=np.int64)
        with entered_noise(lambda: None):
            return add_noises(zeros, laws, None)

    def level_of(self, turnout: int) -> int:
        """Return the level that is added up for a number of holders."""
        if type(turnout) is not int or not self.min_holders <= turnout <= self.n_holders:
            raise ParameterError(
                "turnout", turnout, f"expected {self.min_holders} to {self.n_holders} holders"
            )
        honest = turnout - self.colluding
        fitting = (index for index, level in enumerate(self.levels) if level <= honest)
        return next(fitting, 0)

    def total(self, turnout: int, study: str) -> SharedTotal:
        """Return the public facts of a total of this many holders."""
        level = self.level_of(turnout)
        needed = self.levels[level] if self.by == "holders" else 0
        return SharedTotal(study, self.by, level, needed, turnout, self.n_tellers, self.alone)

    def noises(self, turnout: int) -> float:
        """Return the noise variance of a total relative to one release."""
        return self.total(turnout, "any").noises(self._law, self.noise)

    def variance(self, turnout: int) -> float:
        """Return the variance of the noise of each sum of a total, in released integers."""
        return self.noises(turnout) * self._law.variance

    def receipt(self, turnout: int, study: str, sampler: str = OWN_SAMPLER) -> Receipt:
        """Return the cost of a total; its assumption states the conditions."""
        return self.total(turnout, study).receipt(self.noise, sampler)

    def costs(self, turnout: int | None = None) -> tuple[SharedCost, ...]:
        """Return what each party can learn about one unit, from least to all together.

        The turnout is the number of all holders if left out.
        """
        turnout = self.n_holders if turnout is None else turnout
        level = self.level_of(turnout)
        alone = self.cost_alone()
        if self.by == "tellers":
            return cost_times(self.noise, ALL_BUT_ONE, 1), alone
        needed = self.levels[level]
        costs = [cost_times(self.noise, "outsiders", Fraction(needed, turnout))]
        if self.colluding == 0:  # every holder knows its own noise
            share = Fraction(needed, max(turnout - 1, 1))
            costs.append(cost_times(self.noise, "each of the other holders", share))
        honest = turnout - self.colluding
        pooled = f"all tellers but one, with {self.colluding} of the holders"
        costs.append(cost_times(self.noise, pooled, Fraction(needed, honest)))
        halves = dict.fromkeys((-(-needed // 2), 1))
        costs += [self.cost_of_honest(h, turnout) for h in halves if h < needed]
        return (*costs, alone)

    def cost_of_honest(self, n_honest: int, turnout: int | None = None) -> SharedCost:
        """Return the cost of a total if only this many holders added secret noise."""
        require_count("n_honest", n_honest)
        words = f"everybody else, if only {n_honest} holder{'s' * (n_honest > 1)} kept noise secret"
        if self.by == "tellers":
            return cost_times(self.noise, words, 1)
        level = self.level_of(self.n_holders if turnout is None else turnout)
        return cost_times(self.noise, words, Fraction(self.levels[level], n_honest))

    def cost_alone(self) -> SharedCost:
        """Return the cost of a holder's sums if only its own noise protects them."""
        return cost_of_laws(ALL_OTHERS[self.by], self.holder_laws[0])

    def require_tellers_counted(self, tellers_on_roster: int) -> None:
        """Refuse fewer colluding holders than there are among all tellers but one."""
        least = min(self.n_tellers - 1, tellers_on_roster)
        if self.by == "holders" and self.colluding < least:
            raise ParameterError(
                "colluding",
                self.colluding,
                f"{tellers_on_roster} tellers are holders, whose noise they know",
                f"use at least {least}",
            )

    def describe(self) -> str:
        """Describe who adds noise, and the risks of those who take part."""
        lines = [f"noise by    {self._words()}"]
        most, least = self.noises(self.n_holders), self.noises(self.min_holders)
        lines.append(
            f"total       {self.min_holders} to {self.n_holders} holders take part, else it is "
            f"void; noise of {most:.4g} releases if all do, {least:.4g} if {self.min_holders} do "
            f"(each by itself: {self.n_holders})"
        )
        for cost in self.costs():
            lines.append(f"risk        {cost.who}: {cost.text}")
        lines.append(
            "careful     a person whose records lie at p holders counts p times in the total: "
            + ("p^2 rho" if self._law.kind == "gaussian" else "p epsilon")
        )
        return "\n".join(lines)

    def _words(self) -> str:
        if self.by == "tellers":
            return (
                f"each of {self.n_tellers} tellers adds all of it, and each holder some of its "
                "own; one honest teller is enough"
            )
        return (
            f"each of {self.n_holders} holders adds a part; {self.levels[0]} honest ones have the "
            f"noise of one release, or {self.levels[-1]} if only {self.min_holders} take part "
            f"({len(self.levels)} levels); {self.colluding} may collude"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the public facts as plain JSON values, without the design's noise."""
        facts = {name: getattr(self, name) for name in _SHARING_FIELDS}
        return {**facts, "levels": list(self.levels)}

    @classmethod
    def from_json(cls, value: Any, noise: SumNoise) -> Sharing:
        """Rebuild from `to_json` and the noise of the design; raise for anything else."""
        if not isinstance(value, Mapping) or set(value) != set(_SHARING_FIELDS):
            raise ParameterError("sharing: unknown or missing fields")
        if not isinstance(value["levels"], list):
            raise ParameterError("levels: expected a list of whole numbers")
        return cls(noise=noise, **{**value, "levels": tuple(value["levels"])})


def plan_sharing(
    noise: SumNoise,
    *,
    n_holders: int,
    by: SharingKind | None = None,
    colluding: int | None = None,
    min_holders: int | None = None,
    n_tellers: int = DEFAULT_TELLERS,
    alone: float | None = None,
) -> Sharing:
    """Plan how the holders or the tellers of a study share the noise of a design.

    If `by` is left out, holders add Gaussian noise, and tellers any other. `alone` is for noise by
    tellers: a rho for Gaussian noise, else an epsilon.
    """
    require_count("n_holders", n_holders)
    law = noise.sums_law
    if by is None:
        by = "holders" if law.kind == "gaussian" else "tellers"
    if colluding is None:
        colluding = min(default_colluding(n_holders), n_holders - 1)
    if min_holders is None:
        min_holders = min(default_min_holders(n_holders, colluding), n_holders)
    levels: tuple[int, ...] = ()
    if by == "holders":
        if alone is not None:
            raise ParameterError("alone", alone, "it follows from the levels; leave it out")
        if law.kind == "gaussian" and 0 <= colluding < min_holders <= n_holders:
            levels = plan_levels(law.scale, n_holders - colluding, min_holders - colluding)
            alone = law.rho * levels[0]
    elif alone is None and law.kind == "gaussian":
        alone = law.rho * 2 * n_holders
    elif alone is None:
        epsilon = exact(exact_sum([law.epsilon for law in noise.laws]))
        alone = round_down(epsilon * floor_ratio(n_holders))
    return Sharing(
        noise,
        by,
        n_holders,
        colluding,
        min_holders,
        n_tellers,
        levels,
        1.0 if alone is None else float(alone),
    )
