"""The exact cost of one release, and its charge under the neighbours of a data set.

A release that hides whether a record is there also hides what a record says: replacing a record
removes one and adds one. With neighbours D, D', D'' a step apart each, P(M(D) in S) <=
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
_TEXT_DIGITS = 6  # to which long numbers are rounded in texts
MAX_LEDGER_EPSILON = 10**6  # far beyond any protection, and e^epsilon is still a Decimal


@dataclass(frozen=True)
class Cost:
    """The privacy cost of one release.

    Parameters
    ----------
    epsilon, delta : Fraction
        Floats stand for the decimal numbers that they print as.
    rho : Fraction, optional
        Cost in zero-concentrated differential privacy, if it is known. That of a pure release is
        epsilon^2 / 2.
    neighbours : {"add-remove", "replace"}
    unit : Unit
        What is protected.
    is_rows : bool
        Whether rows are released, which support "replace" only; not stored.
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
        if epsilon > MAX_LEDGER_EPSILON:
            raise ParameterError("epsilon", short_text(epsilon), f"above {MAX_LEDGER_EPSILON:g}")
        if rho is not None and rho > MAX_LEDGER_EPSILON**2:
            raise ParameterError("rho", short_text(rho), f"above {MAX_LEDGER_EPSILON**2:g}")
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
        """Epsilon and delta as text, rounded up if they have many digits."""
        return amounts_text(self.epsilon, self.delta)

    def charged(self, neighbours: Neighbours, person: str | None) -> Cost:
        """Return the charge under these neighbours and persons; a BudgetError if there is none."""
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
        """Return whether no number exceeds the other cost's, for the same unit and neighbours."""
        if (self.neighbours, self.unit.person) != (other.neighbours, other.unit.person):
            return False
        if other.rho is not None and (self.rho is None or self.rho > other.rho):
            return False
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def to_json(self) -> dict[str, Any]:
        """Return the fields as in the ledger's file, with fractions as text."""
        return {
            **texts_of(self, "epsilon", "delta", "rho"),
            "neighbours": self.neighbours,
            "unit": {"person": self.unit.person, "max_records": self.unit.max_records},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Cost:
        """Return the cost of `to_json`."""
        return cls(
            Fraction(value["epsilon"]),
            Fraction(value["delta"]),
            None if value["rho"] is None else Fraction(value["rho"]),
            value["neighbours"],
            Unit(**value["unit"]),
        )


def texts_of(amounts: object, *names: str) -> dict[str, str | None]:
    """Return fractions of an object by name as text, "p/q"; None stays."""
    values = {name: getattr(amounts, name) for name in names}
    return {name: None if value is None else str(value) for name, value in values.items()}


def short_text(value: Fraction) -> str:
    """Return a number of any size with three digits."""
    return f"{_PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator)):.3g}"


def _other_unit(released: str | None, column: str | None) -> str:
    if column is None:
        return (
            f"the release protects persons (column {released!r}), the data set is stated by "
            "records: a record that changes its person is one less and one more; add a data set "
            f"of persons: Ledger.add(..., person={released!r}), privsketch ledger add --person"
        )
    unit = "records" if released is None else f"persons by column {released!r}"
    return (
        f"the release protects {unit}, the data set is stated by persons (column {column!r}): one "
        "person may have any number of such records; release with a schema that names "
        f"`person={column!r}`"
    )


def as_fraction(name: str, value: object) -> Fraction:
    """Convert a number of at least 0; a float stands for the decimal number it prints as."""
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
    """Return a fraction that is slightly above e^value."""
    rounded = _PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator))
    # Decimal rounds exp to the nearest number whatever the context; the next one is above it.
    return Fraction(_PRECISE.next_plus(_PRECISE.exp(rounded)))


def fraction_text(value: Fraction, *, up: bool = True, digits: int = _TEXT_DIGITS) -> str:
    """Return a fraction as text: short decimals in full, others rounded up or down."""
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
    """Return epsilon and delta as text."""
    return f"epsilon = {fraction_text(epsilon, up=up)}, delta = {fraction_text(delta, up=up)}"
