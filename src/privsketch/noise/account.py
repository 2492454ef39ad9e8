"""One budget for the several releases of a run: each is paid with a share, and all have a receipt.

Gaussian noise is accounted by zero-concentrated differential privacy: rho of the whole run is
the sum of the rho of its steps, even if later steps depend on earlier results. The whole is
(epsilon, delta) if the sum is at most rho(epsilon, delta). Pure steps add their epsilons. Shares
are exact fractions and add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from privsketch._base.errors import ParameterError
from privsketch._base.types import Bits, Floats, Integers
from privsketch.facts.budget import Budget, exact
from privsketch.facts.receipt import Receipt, compose_concentrated, compose_sequential
from privsketch.noise.calibration import bisect, log_delta_zcdp, rho_of_budget, round_down
from privsketch.noise.choice import choice_law
from privsketch.noise.mechanism import (
    NoiseLaw,
    add_noise,
    choose,
    cube_factor,
    cube_law,
    gaussian_law,
    laplace_law,
)
from privsketch.noise.sums import require_many, saturating_multiply
from privsketch.noise.zoom import ZoomLaw, zoom_law

_MIN_EPSILON_SHARE = 1e-6  # smallest epsilon that a share claims, relative to the whole
# Far above rounding errors in the conversion between rho and delta.
_RHO_MARGIN, _DELTA_MARGIN = 1e-11, 1e-9


class Account:
    """Account that pays for noise with named shares, each of them once."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self._receipts: list[Receipt] = []
        self._rhos: list[float] = []
        self._paid: list[str] = []
        self._uncounted: list[ZoomLaw] = []  # laws whose parts were not counted yet

    def budget(self, name: str, *, many: bool = False) -> Budget:
        """Return a share as a budget of its own, for a separately planned release.

        It counts as spent from then on; `charge` takes its receipt. With `many`, the release itself
        handles several records of a person; without it, more than one is refused.
        """
        if self._times > 1 and not many:
            self.require_one_record(name)
        self._take(name)
        return self.shares.part(name)

    def require_one_record(self, name: str) -> None:
        """Refuse several records of a person: selections have no bound for all of them."""
        if self._times > 1:
            raise ParameterError(
                f"several records of a person (`max_records={self._times}`) with {name!r}: its "
                "cost is known for one record; keep one of each person"
            )

    @property
    def _times(self) -> int:
        """Number of records of a person that count, which multiplies every sensitivity."""
        budget = self.shares.budget
        if budget.unit.max_records > 1:
            require_many(budget)
        return budget.unit.max_records

    def _take(self, name: str) -> None:
        self._require_unspent(name)
        self._paid.append(name)

    def _require_unspent(self, name: str) -> None:
        if name in self._paid or name not in self.shares.weights:
            raise ParameterError(f"shares: {name!r} is spent, or none of them")

    def cut(self, name: str, weights: Mapping[str, Fraction]) -> None:
        """Cut an unspent share into parts of it, whose weights add up to 1."""
        self._require_unspent(name)
        weights_left = dict(self.shares.weights)
        share = weights_left.pop(name)
        if weights_left.keys() & weights.keys():
            raise ParameterError("shares: expected names that are not taken")
        parts = {part: share * weight for part, weight in weights.items()}
        # `Shares` refuses them unless all are positive and add up to 1, as before.
        self.shares = Shares(self.shares.budget, {**weights_left, **parts})

    def charge(self, receipt: Receipt, rho: float) -> None:
        """Record the release that a share paid for; rho is 0 for pure budgets."""
        if (rho > 0) == self.shares.is_pure:
            raise ParameterError("shares: with delta every part has a rho, without it none has")
        self._receipts.append(receipt)
        self._rhos.append(rho)

    def gaussian(
        self, name: str, values: Integers, l2_squared: int, *, replaced: int | None = None
    ) -> tuple[Floats, float]:
        """Return noisy integers and the standard deviation of their noise.

        `l2_squared` is the squared L2 sensitivity under "add-remove", `replaced` the one of a
        replacement; if left out, that of two changes of the first kind.

        Charges: the share.
        """
        self._take(name)
        if self.shares.is_pure:
            raise ParameterError("shares: Gaussian noise is for budgets with delta > 0")
        rho, claim = self.shares.rho(name), self.shares.claim(name)
        if claim.neighbours == "replace":
            l2_squared = 4 * l2_squared if replaced is None else replaced
        moved, cost = self._times**2 * l2_squared, (claim.epsilon, claim.delta)
        law = gaussian_law(moved, values.size, *cost, claim.neighbours, rho=rho)
        return self._release(name, values, law).astype(np.float64), law.scale

    def _release(self, name: str, values: Integers, law: NoiseLaw) -> Integers:
        """Add noise to integers of any shape, and record the cost of the share."""
        noisy, receipt = add_noise(np.ascontiguousarray(values).reshape(-1), law, source=None)
        self.charge(part_receipt(name, receipt), law.rho)
        return noisy.reshape(values.shape)

    def laplace(
        self, name: str, values: Integers, l1: int, *, replaced: int | None = None
    ) -> tuple[Floats, float]:
        """Return noisy integers and the noise scale, for an L1 sensitivity under "add-remove".

        `replaced` is the sensitivity of a replacement, twice `l1` if left out.

        Charges: the share.
        """
        budget, l1 = self._pure_share("Laplace", name, l1, replaced)
        law = laplace_law(l1, values.size, budget.epsilon, budget.neighbours)
        return self._release(name, values, law).astype(np.float64), law.scale

    def cube(
        self, name: str, values: Integers, largest: int, *, replaced: int | None = None
    ) -> tuple[Floats, float]:
        """Return noisy integers and the variance of cube noise, for a largest component.

        Charges: the share.
        """
        budget, largest = self._pure_share("cube", name, largest, replaced)
        factor = cube_factor(largest, values.size, budget.epsilon)
        law = cube_law(factor * largest, values.size, budget.epsilon, budget.neighbours)
        noisy = self._release(name, saturating_multiply(values, factor), law)
        return noisy / factor, law.variance / factor**2

    def noisy(
        self,
        name: str,
        values: Integers,
        *,
        l1: int,
        l2_squared: int,
        l2_replaced: int | None = None,
    ) -> tuple[Floats, float]:
        """Return noisy integers and their variance: Gaussian with a delta, Laplace without.

        `l2_replaced` is the squared L2 sensitivity of a replacement, four times `l2_squared` if
        left out. In L1 a replacement moves twice as far.

        Charges: the share.
        """
        if self.shares.is_pure:
            noisy, scale = self.laplace(name, values, l1)
            return noisy, 2 * scale**2
        noisy, scale = self.gaussian(name, values, l2_squared, replaced=l2_replaced)
        return noisy, scale**2

    def counts(self, name: str, values: Integers) -> tuple[Floats, float]:
        """Return noisy counts of disjoint sets of records, and the variance of the noise.

        A replaced record leaves one set and enters another: 2 in L1, and 2 in squared L2.

        Charges: the share.
        """
        return self.noisy(name, values, l1=1, l2_squared=1, l2_replaced=2)

    def choice(self, name: str, losses: Integers, width: int) -> int:
        """Return the index of a small sum of losses, to each of which a record adds 0 to `width`.

        Its noise is pure. With a delta, it has the epsilon whose rho is that of the share: an
        epsilon-private release is (epsilon^2 / 2)-zCDP (Bun and Steinke, 2016, Proposition 1.4).

        Charges: the share.
        """
        budget, rho = self.budget(name), 0.0
        epsilon = budget.epsilon
        if not self.shares.is_pure:
            rho = self.shares.rho(name)
            epsilon = math.sqrt(2 * rho)
            while exact(epsilon) ** 2 > 2 * Fraction(rho):
                epsilon = math.nextafter(epsilon, 0.0)
        law = choice_law(width, len(losses), epsilon, budget.neighbours)
        indices, receipt = choose(losses, law, source=None)
        self.charge(part_receipt(name, receipt), rho)
        return int(indices[0])

    def zoom(
        self, name: str, counts: Integers, is_heavy: Callable[[Integers], Bits]
    ) -> tuple[Integers, Integers, ZoomLaw]:
        """Return two noisy counts of disjoint cells, y1 and y of noise/zoom.py, and their law.

        `is_heavy` maps all y1 to the cells that get a y1 only; `parts` then counts in those.

        Charges: the share, for the parts of heavy cells as well.
        """
        budget, l1 = self._pure_share("Laplace", name, 1, None)
        law = zoom_law(l1, len(counts), budget.epsilon, budget.neighbours, is_heavy)
        noisy, receipt = choose(counts, law, source=None)
        self.charge(part_receipt(name, receipt), 0.0)
        self._uncounted.append(law)
        return noisy[0], noisy[1], law

    def parts(self, law: ZoomLaw, counts: Integers) -> tuple[Integers, float]:
        """Return noisy counts of disjoint parts of heavy cells, once, and their variance.

        Charges: nothing; `zoom` was charged for it.
        """
        if law not in self._uncounted:
            raise ParameterError("parts: they were counted before, or there was no zoom")
        self._uncounted.remove(law)
        half = round_down(exact(law.epsilon) / 2)
        noise = laplace_law(int(law.sensitivity), len(counts), half, law.neighbours)
        noisy, _ = add_noise(counts, noise, source=None)
        return noisy, noise.variance

    def _pure_share(
        self, kind: str, name: str, moved: int, replaced: int | None
    ) -> tuple[Budget, int]:
        """Spend a share on pure noise, and return it as a budget with the sensitivity.

        A replacement moves twice as far as one record, unless it is known to move less.
        """
        if not self.shares.is_pure:
            # Its epsilon would not be that of the share, which is accounted by rho.
            raise ParameterError(f"shares: {kind} noise is for budgets with delta = 0")
        budget = self.budget(name, many=True)
        times = self._times  # refuses several records under "replace"
        if budget.neighbours == "add-remove":
            return budget, times * moved
        return budget, 2 * moved if replaced is None else replaced

    def receipt(self, mechanism: str, source: str | None) -> Receipt:
        """Return the cost of the whole run: every share that was taken has a receipt."""
        if len(self._receipts) < len(self._paid):
            raise ParameterError("shares: one was taken and not charged")
        return self.shares.receipt(mechanism, self._receipts, self._rhos, source)


def part_receipt(name: str, receipt: Receipt) -> Receipt:
    """Return the receipt of a step of a run, by its name; only the run has a source."""
    return replace(receipt, mechanism=f"{name}: {receipt.mechanism}", source=None)


@dataclass(frozen=True)
class Shares:
    """Budget in named shares."""

    budget: Budget
    weights: Mapping[str, Fraction]

    def __post_init__(self) -> None:
        if sum(self.weights.values()) != 1 or min(self.weights.values()) <= 0:
            raise ParameterError("shares: expected positive fractions that add up to 1")

    @property
    def is_pure(self) -> bool:
        """Whether there is no delta."""
        return self.budget.delta == 0

    def rho(self, name: str) -> float:
        """Return the zCDP budget of a share, rounded down."""
        total = rho_of_budget(self.budget.epsilon, self.budget.delta)
        part = Fraction(total) * self.weights[name]
        number = float(part)
        while Fraction(number) > part:
            number = math.nextafter(number, 0.0)
        return number

    def part(self, name: str) -> Budget:
        """Return the share as a budget of its own, for a separately planned mechanism.

        With a delta, the budget has the same delta, or less where that is large, and the epsilon
        whose rho is the share of rho.
        """
        budget = self.budget
        if self.is_pure:
            epsilon = round_down(exact(budget.epsilon) * self.weights[name])
            return replace(budget, epsilon=epsilon, delta=0.0)
        rho = self.rho(name)
        epsilon, delta = _implied(rho, budget.epsilon, budget.delta)
        if delta < budget.delta:
            delta *= 1 - 2 * _DELTA_MARGIN
        while rho_of_budget(epsilon, delta) > rho:
            epsilon *= 1 - 1e-12
        return replace(budget, epsilon=epsilon, delta=delta)

    def claim(self, name: str) -> Budget:
        """Return the epsilon and delta that the rho of a share implies."""
        # A little more rho covers rounding in the epsilon and delta that it implies.
        rho = self.rho(name) * (1 + _RHO_MARGIN)
        epsilon, delta = _implied(rho, self.budget.epsilon, self.budget.delta)
        return replace(self.budget, epsilon=epsilon, delta=delta)

    def receipt(
        self, mechanism: str, parts: Sequence[Receipt], rhos: Sequence[float], source: str | None
    ) -> Receipt:
        """Return the cost of all parts together: the budget, if they stayed within it."""
        parts = [part.protecting(self.budget.unit) for part in parts]
        if self.is_pure:
            spent = sum((exact(part.epsilon) for part in parts), Fraction(0))
            if spent > exact(self.budget.epsilon) or any(part.delta for part in parts):
                raise ParameterError("shares: more was spent than the budget has")
            return compose_sequential(mechanism, parts, source).protecting(self.budget.unit)
        total_rho = rho_of_budget(self.budget.epsilon, self.budget.delta)
        spent = sum((Fraction(rho) for rho in rhos), Fraction(0))
        if len(rhos) != len(parts) or spent > Fraction(total_rho):
            raise ParameterError("shares: more was spent than the budget has")
        composed = compose_concentrated(mechanism, parts, self.budget, total_rho, source)
        return composed.protecting(self.budget.unit)


@lru_cache(maxsize=4096)  # plans ask for the same shares many times
def _implied(rho: float, epsilon: float, delta: float) -> tuple[float, float]:
    """Return the least epsilon, at most the given one, that rho-zCDP implies at this delta.

    Where that epsilon would be tiny, return a small one with a smaller delta instead.
    """
    _, implied = bisect(
        lambda at: log_delta_zcdp(rho, at) <= math.log(delta), 0.0, epsilon, max_steps=200
    )
    smallest = _MIN_EPSILON_SHARE * epsilon
    if implied >= smallest:
        return implied, delta
    return smallest, math.exp(log_delta_zcdp(rho, smallest)) * (1 + _DELTA_MARGIN)
