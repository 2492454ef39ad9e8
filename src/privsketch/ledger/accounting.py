"""Totals of costs, and whether a limit allows them: exact comparisons of fractions.

People choose costs one after the other, knowing earlier releases. So a rule is used here only if
it holds for the whole sequence, however that was chosen (a *filter*):

* basic: sums of epsilon and of delta (Rogers et al., 2016, Theorem 3.6);
* zcdp: the sum of rho, turned into epsilon and delta (Feldman and Zrnic, 2021; Whitehouse et al.,
  2023). Releases without a rho are counted by basic composition, in a share of the limit that was
  reserved for them when the data set was added.

"Whichever of two rules allows it" is not a filter in general: which one holds in the end may
depend on what was released. It is one if all releases are pure, because sequences that end there
add nothing to delta. docs/ledger.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Literal, NamedTuple

from privsketch._base.errors import ParameterError
from privsketch.facts.budget import MIN_DELTA, exact
from privsketch.ledger.cost import (
    MAX_LEDGER_EPSILON,
    amounts_text,
    as_fraction,
    fraction_text,
    short_text,
    texts_of,
)

Accounting = Literal["basic", "zcdp"]
ACCOUNTINGS: tuple[Accounting, ...] = ("basic", "zcdp")
_BISECTION_MARGIN = 1 + 1e-9  # bisections end far closer than this
_MIN_LOSS = 1e-60  # rho and epsilon below any that noise has


class Amount(NamedTuple):
    """The charge of one entry to the total of its data set."""

    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None

    @property
    def without_rho(self) -> Amount:
        """The same amount, counted by epsilon and delta."""
        return self._replace(rho=None)


@dataclass(frozen=True)
class Total:
    """Sums over entries: all of them, those that have a rho, and those that have none."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    epsilon_without_rho: Fraction = Fraction(0)
    delta_without_rho: Fraction = Fraction(0)
    n_entries: int = 0

    def plus(self, amount: Amount) -> Total:
        """Return the total with one more entry."""
        epsilon, delta, rho = amount
        has_rho = rho is not None
        return Total(
            self.epsilon + epsilon,
            self.delta + delta,
            self.rho + (rho if rho is not None else 0),
            self.epsilon_without_rho + (0 if has_rho else epsilon),
            self.delta_without_rho + (0 if has_rho else delta),
            self.n_entries + 1,
        )

    def minus(self, amount: Amount) -> Total:
        """Return the total without one of its entries."""
        rho = None if amount.rho is None else -amount.rho
        less = self.plus(Amount(-amount.epsilon, -amount.delta, rho))
        return replace(less, n_entries=self.n_entries - 1)

    @classmethod
    def of(cls, amounts: Iterable[Amount]) -> Total:
        """Return the total of these amounts."""
        return reduce(cls.plus, amounts, cls())

    def to_json(self) -> dict[str, str | None]:
        """Return the fields, with fractions as text."""
        names = "epsilon", "delta", "rho", "epsilon_without_rho", "delta_without_rho"
        return texts_of(self, *names)


@dataclass(frozen=True)
class Left:
    """The remainder of a limit; None for numbers that the accounting does not have.

    Attributes
    ----------
    epsilon, delta : Fraction
        Largest cost of a release by epsilon and delta; with zcdp, of a release without a rho.
    rho : Fraction or None
        Largest rho of a release that has one.
    pure_epsilon : Fraction or None
        With zcdp, largest epsilon of a pure release, as long as all releases were pure.
    """

    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None
    pure_epsilon: Fraction | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return the fields, with fractions as text."""
        return texts_of(self, "epsilon", "delta", "rho", "pure_epsilon")


@dataclass(frozen=True)
class Limit:
    """The largest total cost of one data set.

    Parameters
    ----------
    epsilon, delta : Fraction
    accounting : {"basic", "zcdp"}
    without_rho : Fraction
        Share of epsilon and delta that is reserved for releases without a rho; zcdp only.
    """

    epsilon: Fraction
    delta: Fraction
    accounting: Accounting = "basic"
    without_rho: Fraction = Fraction(0)

    @property
    def rho(self) -> Fraction | None:
        """Largest sum of rho; None for basic accounting."""
        if self.accounting == "basic":
            return None
        share = 1 - self.without_rho
        return _largest_rho(self.epsilon * share, self.delta * share)

    def allows(self, total: Total) -> bool:
        """Return whether a total is within the limit."""
        if self.accounting == "basic":
            return total.epsilon <= self.epsilon and total.delta <= self.delta
        if total.delta == 0 and total.epsilon <= self.epsilon:
            return True
        rho = self.rho
        return (
            rho is not None
            and total.rho <= rho
            and total.epsilon_without_rho <= self.without_rho * self.epsilon
            and total.delta_without_rho <= self.without_rho * self.delta
        )

    def left(self, total: Total) -> Left:
        """Return the remainder of the limit after a total."""
        zero, rho = Fraction(0), self.rho
        if rho is None:
            return Left(max(zero, self.epsilon - total.epsilon), self.delta - total.delta)
        is_pure = total.delta == 0
        return Left(
            max(zero, self.without_rho * self.epsilon - total.epsilon_without_rho),
            max(zero, self.without_rho * self.delta - total.delta_without_rho),
            max(zero, rho - total.rho),
            max(zero, self.epsilon - total.epsilon) if is_pure else None,
        )

    def used(self, total: Total) -> Fraction:
        """Return the share of the limit that a total uses: 1 if nothing more is allowed."""
        basic = _share(total.epsilon, self.epsilon)
        rho = self.rho
        if rho is None:
            return max(basic, _share(total.delta, self.delta))
        concentrated = max(
            _share(total.rho, rho),
            _share(total.epsilon_without_rho, self.without_rho * self.epsilon),
            _share(total.delta_without_rho, self.without_rho * self.delta),
        )
        return min(basic, concentrated) if total.delta == 0 else concentrated

    def left_text(self, total: Total) -> str:
        """Return the remainder in words, rounded down."""
        left = self.left(total)
        if left.rho is None:
            return amounts_text(left.epsilon, left.delta, up=False)
        words = f"rho = {fraction_text(left.rho, up=False)}"
        if self.without_rho:
            without_rho = amounts_text(left.epsilon, left.delta, up=False)
            words += f", and {without_rho} for what has no rho"
        if left.pure_epsilon is not None:
            pure = fraction_text(left.pure_epsilon, up=False)
            words += f"; or epsilon = {pure} if all of it is pure"
        return words

    def spent_text(self, total: Total) -> str:
        """Return a total in words, rounded up."""
        if self.accounting == "basic":
            return amounts_text(total.epsilon, total.delta)
        words = f"rho = {fraction_text(total.rho)}"
        implied = self.implied_epsilon(total)
        if implied is not None:
            words += f" (epsilon = {fraction_text(implied)} at the limit's delta)"
        if total.epsilon_without_rho or total.delta_without_rho:
            without_rho = amounts_text(total.epsilon_without_rho, total.delta_without_rho)
            words += f", and {without_rho} of what has no rho"
        return words

    def charged_text(self, amount: Amount) -> str:
        """Return the charge of one entry in words, rounded up."""
        if self.accounting == "basic" or amount.rho is None:
            return amounts_text(amount.epsilon, amount.delta)
        return f"rho = {fraction_text(amount.rho)}"

    def implied_epsilon(self, total: Total) -> Fraction | None:
        """Return the epsilon that the sum of rho implies at the limit's delta; None without rho."""
        if self.accounting == "basic" or total.rho == 0:
            return None
        epsilon = epsilon_of_rho(total.rho, self.delta * (1 - self.without_rho))
        return min(epsilon, total.epsilon) if total.delta == 0 else epsilon

    @property
    def text(self) -> str:
        """The limit in words."""
        words = amounts_text(self.epsilon, self.delta, up=False)
        if self.rho is None:
            return words
        words += f" (rho = {fraction_text(self.rho, up=False)}"
        share = fraction_text(self.without_rho)
        return f"{words}; {share} of it reserved)" if self.without_rho else f"{words})"

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with fractions as text."""
        return texts_of(self, "epsilon", "delta", "rho", "without_rho")


def stated_limit(
    epsilon: object, delta: object, accounting: Accounting, without_rho: object
) -> Limit:
    """Return the limit of a new data set; a ParameterError if a number is out of range."""
    limit = Limit(
        as_fraction("epsilon", epsilon),
        as_fraction("delta", delta),
        accounting,
        as_fraction("without_rho", without_rho),
    )
    if limit.epsilon == 0:
        raise ParameterError("epsilon", epsilon, "expected a number above 0")
    if limit.epsilon > MAX_LEDGER_EPSILON:
        expected = f"expected at most {MAX_LEDGER_EPSILON:g}"
        raise ParameterError("epsilon", short_text(limit.epsilon), expected)
    if limit.delta >= 1:
        raise ParameterError("delta", delta, "expected a number below 1")
    if limit.without_rho and accounting == "basic":
        raise ParameterError(
            "without_rho", without_rho, "this ledger adds up epsilon and delta of everything"
        )
    if limit.without_rho >= 1:
        raise ParameterError("without_rho", without_rho, "expected a share below 1")
    if accounting == "zcdp" and limit.delta < exact(MIN_DELTA):
        raise ParameterError(
            "delta",
            float(limit.delta),
            "this ledger adds up rho (zcdp), which needs a delta above 0 at the limit, of "
            f"{MIN_DELTA:g} at least",
            "use a ledger of basic composition for a pure limit",
        )
    return limit


def _share(part: Fraction, total: Fraction) -> Fraction:
    return part / total if part else Fraction(0)


@lru_cache(maxsize=256)
def _largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest known rho that implies (epsilon, delta), exactly."""
    from privsketch.noise.calibration import rho_of_budget, round_down

    rho = rho_of_budget(round_down(epsilon), round_down(delta))
    # A receipt states the decimal number that the float prints as. It differs from the float by
    # less than the margin of rho_of_budget.
    return max(exact(rho), Fraction(rho))


@lru_cache(maxsize=256)
def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon that rho implies at this delta, rounded up."""
    from privsketch.noise.calibration import log_delta_zcdp, round_down

    loss = max(
        float(rho) * _BISECTION_MARGIN, _MIN_LOSS
    )  # some fractions are too small for a float
    log_delta = math.log(round_down(delta))
    low, high = 0.0, 1.0
    while log_delta_zcdp(loss, high) > log_delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high and high > _MIN_LOSS:
        middle = (low + high) / 2
        if log_delta_zcdp(loss, middle) <= log_delta:
            high = middle
        else:
            low = middle
    return exact(high * _BISECTION_MARGIN)
