"""The cost of one release, exact, and what it is under the relation that a data set states.

A release that hides whether a record is there also hides what a record says: a replaced record is
one removed and one added. With neighbours D, D', D'' a step apart each, P(M(D) in S) <=
e^eps P(M(D') in S) + delta <= e^2eps P(M(D'') in S) + (1 + e^eps) delta; Rényi divergences of two
steps are at most those of 4 rho (Bun and Steinke, 2016, Proposition 1.9). docs/ledger.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from privsketch._base.errors import BudgetError, ParameterError, require_one_of
from privsketch.facts.budget import NEIGHBOURS, ONE_RECORD, Neighbours, Unit, exact, number_text

_PRECISE = Context(prec=50, rounding=ROUND_CEILING, Emin=-(10**9), Emax=10**9)
_DIGITS = 6  # of a number in words that has too many
MAX_EPSILON = 10**6  # far beyond what protects; e^epsilon can be written down


@dataclass(frozen=True)
class Cost:
    """What one release costs.

    Parameters
    ----------
    epsilon, delta : Fraction
        Other numbers are taken as the decimals they print as.
    rho : Fraction, optional
        Of zero-concentrated differential privacy, if the release has one. A pure release has
        epsilon^2 / 2.
    neighbours : {"add-remove", "replace"}
    unit : Unit
        What is protected.
    is_rows : bool
        Whether rows are released, which know of one relation only; not kept.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: Fraction | None = None
    neighbours: Neighbours = "add-remove"
    unit: Unit = ONE_RECORD
    is_rows: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        epsilon, delta = as_fraction("epsilon", self.epsilon), as_fraction("delta", self.delta)
        rho = None if self.rho is None else as_fraction("rho", self.rho)
        if epsilon > MAX_EPSILON:
            raise ParameterError("epsilon", short_text(epsilon), f"above {MAX_EPSILON:g}")
        if rho is not None and rho > MAX_EPSILON**2:
            raise ParameterError("rho", short_text(rho), f"above {MAX_EPSILON**2:g}")
        if delta > 1:
            raise ParameterError("delta", float(delta), "expected at most 1")
        if delta == 0:  # Bun and Steinke, 2016, Proposition 1.4; a receipt has it rounded up
            pure = epsilon**2 / 2
            rho = pure if rho is None else min(rho, pure)
        require_one_of("neighbours", self.neighbours, NEIGHBOURS)
        if not isinstance(self.unit, Unit):
            raise ParameterError("unit", self.unit, "expected a Unit")
        for name, value in (("epsilon", epsilon), ("delta", delta), ("rho", rho)):
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """In words, rounded up where digits would not end."""
        return amounts_text(self.epsilon, self.delta)

    def charged(self, neighbours: Neighbours, person: str | None) -> Cost:
        """What it costs a data set of these neighbours and persons; a BudgetError if unknown."""
        if self.unit.person != person:
            raise BudgetError(_other_unit(self.unit.person, person))
        if self.neighbours == neighbours:
            return self
        if neighbours == "add-remove":
            release = "a release of rows" if self.is_rows else "the release"
            instead = "" if self.is_rows else "release with `neighbours='add-remove'`, or "
            raise BudgetError(
                f"{release} hides what a record says (neighbours replace), the data set is stated "
                "to hide whether one is there (add-remove): how many there are would be public; "
                f"{instead}add a data set of replace: Ledger.add(..., neighbours='replace'), "
                "privsketch ledger add --neighbours replace"
            )
        return replace(
            self,
            epsilon=2 * self.epsilon,
            delta=min(Fraction(1), (1 + exp_above(self.epsilon)) * self.delta),
            rho=None if self.rho is None else 4 * self.rho,
            neighbours="replace",
        )

    def is_within(self, other: Cost) -> bool:
        """Whether it is at most the other in every number, of the same unit and neighbours."""
        if (self.neighbours, self.unit.person) != (other.neighbours, other.unit.person):
            return False
        if other.rho is not None and (self.rho is None or self.rho > other.rho):
            return False
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def to_json(self) -> dict[str, Any]:
        """As the ledger's file has it: fractions as text."""
        return {
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "rho": None if self.rho is None else str(self.rho),
            "neighbours": self.neighbours,
            "unit": {"person": self.unit.person, "max_records": self.unit.max_records},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Cost:
        """The same again."""
        return cls(
            Fraction(value["epsilon"]),
            Fraction(value["delta"]),
            None if value["rho"] is None else Fraction(value["rho"]),
            value["neighbours"],
            Unit(**value["unit"]),
        )


def short_text(value: Fraction) -> str:
    """Three digits of a number, however large."""
    return f"{_PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator)):.3g}"


def _other_unit(released: str | None, stated: str | None) -> str:
    if stated is None:
        return (
            f"the release protects persons (column {released!r}), the data set is stated by "
            "records: a record that changes its person is one less and one more; add a data set "
            f"of persons: Ledger.add(..., person={released!r}), privsketch ledger add --person"
        )
    told = "records" if released is None else f"persons by column {released!r}"
    return (
        f"the release protects {told}, the data set is stated by persons (column {stated!r}): one "
        "person may have any number of such records; release with a schema that names "
        f"`person={stated!r}`"
    )


def as_fraction(name: str, value: object) -> Fraction:
    """A number of at least 0, exact: a float means the decimal number it prints as."""
    expected = "expected a number of at least 0"
    try:
        if isinstance(value, Rational | Decimal) and not isinstance(value, bool):
            number = Fraction(value)
        elif isinstance(value, Real) and not isinstance(value, bool):
            number = exact(float(value))
        else:
            raise TypeError
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise ParameterError(name, value, expected) from None
    if number < 0:
        raise ParameterError(name, float(number), expected)
    return number


def exp_above(value: Fraction) -> Fraction:
    """A fraction not below e^value, and hardly above."""
    rounded = _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))
    # exp is rounded to the nearest, whatever the context says; the next number is above it.
    return Fraction(_PRECISE.next_plus(_PRECISE.exp(rounded)))


def fraction_text(value: Fraction, *, up: bool = True, digits: int = _DIGITS) -> str:
    """A fraction in words: all digits of short decimals, else some of them, rounded up or down."""
    number = float(value)
    text = number_text(number)
    if exact(number) == value and len(text) <= 2 * digits:
        return text
    context = Context(
        prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR, Emin=-(10**9), Emax=10**9
    )
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return number_text(float(rounded)) if float(rounded) else f"{rounded:g}"


def amounts_text(epsilon: Fraction, delta: Fraction, *, up: bool = True) -> str:
    """Epsilon and delta in words."""
    return f"epsilon = {fraction_text(epsilon, up=up)}, delta = {fraction_text(delta, up=up)}"
