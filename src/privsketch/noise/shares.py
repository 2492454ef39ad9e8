"""One budget for several questions.

Gaussian noise is accounted by zero-concentrated differential privacy: rho of the whole run is
the sum of the rho of its steps, whatever the later ones make of the earlier answers, and the
whole is (epsilon, delta) if the sum is at most rho(epsilon, delta). Pure steps add their
epsilons. Shares are exact fractions and add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from privsketch.budget import Budget, Receipt, compose_concentrated, compose_sequential, exact
from privsketch.errors import ParameterError
from privsketch.noise.calibration import log_delta_zcdp, rho_of_budget, round_down

_LEAST = 1e-6  # epsilon of a part, in units of the whole


@dataclass(frozen=True)
class Shares:
    """A budget in named shares."""

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
        """zCDP budget of a share, rounded down."""
        whole = rho_of_budget(self.budget.epsilon, self.budget.delta)
        part = Fraction(whole) * self.weights[name]
        number = float(part)
        while Fraction(number) > part:
            number = math.nextafter(number, 0.0)
        return number

    def part(self, name: str) -> Budget:
        """The share as a budget of its own, for a mechanism that is planned by itself.

        With delta: the same delta, or less where it is large, and the epsilon whose rho is the
        share of rho.
        """
        budget = self.budget
        if self.is_pure:
            epsilon = round_down(exact(budget.epsilon) * self.weights[name])
            return Budget(epsilon, 0.0, budget.neighbours)
        rho = self.rho(name)
        low, high = 0.0, budget.epsilon
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            if log_delta_zcdp(rho, middle) <= math.log(budget.delta):
                high = middle
            else:
                low = middle
        epsilon, delta = high, budget.delta
        if epsilon < _LEAST * budget.epsilon:  # such a delta alone would pay for more
            epsilon, delta = _LEAST * budget.epsilon, _delta_for(rho, _LEAST * budget.epsilon)
        while rho_of_budget(epsilon, delta) > rho:
            epsilon *= 1 - 1e-12
        return Budget(epsilon, delta, budget.neighbours)

    def receipt(
        self, mechanism: str, parts: Sequence[Receipt], rhos: Sequence[float], source: str | None
    ) -> Receipt:
        """What all parts cost together: the budget, if they stayed within it."""
        if self.is_pure:
            spent = sum((exact(part.epsilon) for part in parts), Fraction(0))
            if spent > exact(self.budget.epsilon) or any(part.delta for part in parts):
                raise ParameterError("shares: more was spent than the budget has")
            return compose_sequential(mechanism, parts, source)
        whole = rho_of_budget(self.budget.epsilon, self.budget.delta)
        spent = sum((Fraction(rho) for rho in rhos), Fraction(0))
        if len(rhos) != len(parts) or spent > Fraction(whole):
            raise ParameterError("shares: more was spent than the budget has")
        return compose_concentrated(mechanism, parts, self.budget, whole, source)


def _delta_for(rho: float, epsilon: float) -> float:
    """A delta that rho-zCDP has at this epsilon, a little less so that no more rho is paid."""
    return math.exp(log_delta_zcdp(rho, epsilon)) * (1 - 1e-9)
