"""The privacy budget: how much one release may reveal, and about which unit.

Numbers are exact: a float stands for the decimal number it prints as. So 0.1 is one tenth, and
shares of a budget add up to it exactly. The protected unit is one record, or one person.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from typing import Literal

from privsketch._base.errors import BudgetError, NumberTypeError, ParameterError, require_count
from privsketch._base.formats import INSECURE, NO_PRIVACY

Neighbours = Literal["add-remove", "replace"]
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace")
MAX_EPSILON = 100.0  # e^100 protects nothing: benchmarks use it as "no noise"
WEAK_EPSILON = 10.0  # above it, the presence of a record shows almost surely: e^10 = 22,000
WEAK_DELTA = 1e-3  # 1 / number of records of the smallest studies, a thousand records
# Noise of one count does not fit 64-bit integers below an epsilon of 1e-17. Shares of shares of a
# budget may be a trillion times smaller, and must not fail where the whole budget did not. A delta
# below 1e-100 is surely meant as 0. Formulas are tested down to these values.
MIN_EPSILON, MIN_DELTA = 1e-30, 1e-100
RECORD = "one record"
PERSON = "one person"


@dataclass(frozen=True)
class Unit:
    """What is protected: one record, or one person with all their rows.

    Parameters
    ----------
    person : str, optional
        Column that identifies persons.
    max_records : int
        Largest number of records of a person that count. Where a column identifies persons,
        further records are left out. Otherwise the bound is trusted, not checked.
    """

    person: str | None = None
    max_records: int = 1

    def __post_init__(self) -> None:
        require_count("max_records", self.max_records)
        if self.person is not None and not is_name(self.person):
            raise ParameterError("person", self.person, "expected the name of a column")

    @property
    def text(self) -> str:
        """Description of what is protected."""
        if self.person is not None:
            return f"{PERSON} ({self.person})"
        return (
            RECORD if self.max_records == 1 else f"{PERSON} (at most {self.max_records} rows each)"
        )

    @property
    def assumption(self) -> str:
        """Condition on the table that the library cannot check."""
        if self.person is not None:
            return "all rows of a person lie at one holder"
        if self.max_records == 1:
            return ""
        return (
            f"no person has more than {self.max_records} rows, which was taken on trust; all rows "
            "of a person lie at one holder"
        )


ONE_RECORD = Unit()
INFINITE = "infinite"  # the epsilon of what has no privacy, in files and in words


def is_name(value: object) -> bool:
    """Return whether a value can name a column: one printable line, as receipts show it."""
    return isinstance(value, str) and bool(value) and value.isprintable()


def meaning_of(neighbours: str, unit: str) -> str:
    """Describe what is hidden; less than a record if the unit is less."""
    for name, thing in ((RECORD, "record"), (PERSON, "person")):
        if unit.startswith(name):
            return {
                "add-remove": f"add-remove (hides whether a {thing} is there)",
                "replace": f"replace (hides what a {thing} says; the number of {thing}s is public)",
            }[neighbours]
    return f"{neighbours} (hides {unit}, no more; the number of records is public)"


def exact(value: float) -> Fraction:
    """Return the decimal number a float prints as, as an exact fraction.

    All accounting passes through here, so none goes on with what has no privacy.
    """
    if math.isinf(value):
        raise BudgetError(f"{NO_PRIVACY}; it has no cost that could be added up or limited")
    return Fraction(repr(float(value)))


def number_text(value: float) -> str:
    """Return a number with all its digits, so that no cost is shown rounded down."""
    if math.isinf(value):
        return INFINITE
    return repr(float(value)).removesuffix(".0")


def cost_text(epsilon: float, delta: float) -> str:
    """Return epsilon and delta with all their digits."""
    if math.isinf(epsilon):
        return f"{INSECURE}: epsilon = {INFINITE}, no privacy"
    return f"epsilon = {number_text(epsilon)}, delta = {number_text(delta)}"


def exact_sum(values: Sequence[float]) -> float:
    """Add decimal numbers and round up to the next float: a cost is never understated."""
    if math.inf in values:
        return math.inf
    return round_up(sum((exact(value) for value in values), Fraction(0)))


def round_up(value: Fraction) -> float:
    """Return the least float whose decimal text is not below `value`."""
    number = float(value)
    while exact(number) < value:
        number = math.nextafter(number, math.inf)
    return number


def _as_float(name: str, value: object) -> float:
    if isinstance(value, str | bytes):
        raise NumberTypeError(name, value, "expected a number, not text")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(name, value, "expected a number") from error
    if isinstance(value, bool) or math.isnan(number):
        raise ParameterError(name, value, "expected a number")
    return number


def epsilon_caution(epsilon: float, unit: str = RECORD) -> str | None:
    """Explain an epsilon that hides next to nothing; return None for others."""
    if math.isinf(epsilon):
        return NO_PRIVACY
    if epsilon <= WEAK_EPSILON:
        return None
    return (
        f"epsilon = {number_text(epsilon)} is above {WEAK_EPSILON:g}: {unit} can make what is "
        f"released e^{epsilon:g} = {math.exp(min(epsilon, 700.0)):.0e} times as likely, which "
        "hides next to nothing; 1 or less protects well"
    )


def delta_caution(delta: float, n_records: object) -> str | None:
    """Explain a delta above 1 / number of records; return None for others.

    Without a public `n_records`, only a delta that is too large for any table is reported.
    """
    if isinstance(n_records, bool) or not isinstance(n_records, Real):
        if delta <= WEAK_DELTA:
            return None
        return (
            f"delta = {number_text(delta)} is above {WEAK_DELTA:g}: a mechanism that publishes 1 "
            "record in 1,000 unprotected would satisfy it; choose a delta far below 1 / number of "
            "records"
        )
    number = float(n_records)
    if not 1 <= number < math.inf or exact(delta) * exact(number) <= 1:
        return None
    return (
        f"delta = {number_text(delta)} is above 1 / number of records, which is about "
        f"{1 / number:.2g}: a mechanism that publishes one random record unprotected would "
        "satisfy it; choose a delta far below that"
    )


@dataclass(frozen=True)
class Budget:
    """Limit on what one release may reveal about one record.

    Parameters
    ----------
    epsilon : float
        Privacy loss, from 1e-30 to 100; useful values lie between 0.01 and 10.
    delta : float
        What any probability may exceed that bound by: 0 for pure differential privacy, else from
        1e-100 to below 1.
    neighbours : {"add-remove", "replace"}
        Change of a table that must stay hidden: adding or removing a record, or replacing one
        while the number of records is public.
    unit : Unit
        What is protected, one record if left out. A schema that identifies persons sets it.

    Examples
    --------
    >>> import privsketch as ps
    >>> print(ps.Budget(epsilon=0.5, delta=1e-6).describe())
    epsilon = 0.5, delta = 1e-06 for one record, neighbours add-remove (hides whether a
    record is there)
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = "add-remove"
    unit: Unit = ONE_RECORD

    def __post_init__(self) -> None:
        epsilon, delta = _as_float("epsilon", self.epsilon), _as_float("delta", self.delta)
        if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
            expected = f"must be above 0 and at most {MAX_EPSILON:g}"
            if 0 < epsilon < MIN_EPSILON:
                expected = f"too small for any noise, and below {MIN_EPSILON:g}"
            advice = "useful values lie between 0.01 and 10"
            raise ParameterError("epsilon", self.epsilon, expected, advice)
        if 0 < delta < MIN_DELTA:
            raise ParameterError(
                "delta", self.delta, f"below {MIN_DELTA:g}", "use 0 for pure differential privacy"
            )
        if not 0 <= delta < 1:
            raise ParameterError(
                "delta",
                self.delta,
                "must be at least 0 and below 1",
                "use 0 for pure differential privacy, or a value far below 1 / number of records",
            )
        if self.neighbours not in NEIGHBOURS:
            raise ParameterError(
                "neighbours", self.neighbours, "expected 'add-remove' or 'replace'"
            )
        if not isinstance(self.unit, Unit):
            raise ParameterError("unit", self.unit, "expected a Unit")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def without_person(self) -> Budget:
        """Same budget for as many records of any persons: steps of a run do not know them."""
        return replace(self, unit=Unit(None, self.unit.max_records))

    def describe(self) -> str:
        """Describe the budget in one line."""
        cost, unit = cost_text(self.epsilon, self.delta), self.unit.text
        return f"{cost} for {unit}, neighbours {meaning_of(self.neighbours, unit)}"


@dataclass(frozen=True, repr=False)
class NoBudget(Budget):
    """What an insecure design has in place of a budget: nothing limits what its sketch reveals."""

    epsilon: float = field(init=False, default=math.inf)
    delta: float = field(init=False, default=0.0)
    neighbours: Neighbours = field(init=False, default="add-remove")
    unit: Unit = ONE_RECORD

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise ParameterError("unit", self.unit, "expected a Unit")

    def __repr__(self) -> str:
        return f"NoBudget({INSECURE})"

    def describe(self) -> str:
        """Describe the lack of a budget in one line."""
        return f"none: {NO_PRIVACY}"


def checked_budget(budget: object) -> Budget:
    """Return a budget that limits something; raise for all else, that of insecure designs too."""
    if type(budget) is not Budget:
        raise ParameterError("budget", budget, "expected a Budget")
    return budget


def require_limits(
    budget: Budget, max_epsilon: float | None = None, max_delta: float | None = None
) -> None:
    """Refuse a design's budget above its holder's limits; None is no limit.

    Numbers are compared exactly, as the decimals they print as: 0.1 is not above 0.1. A limit on
    epsilon alone also refuses a delta that is too large for any table, which would bypass it.
    """
    if isinstance(budget, NoBudget) and (max_epsilon, max_delta) != (None, None):
        raise BudgetError(
            f"the design is {INSECURE}: its epsilon is {INFINITE}, above any `max_epsilon` and "
            "`max_delta`; no record was read"
        )
    limits = {"epsilon": (budget.epsilon, max_epsilon), "delta": (budget.delta, max_delta)}
    if max_epsilon is not None and max_delta is None and budget.delta > WEAK_DELTA:
        raise BudgetError(
            f"the design asks for delta = {number_text(budget.delta)}, with which no epsilon "
            "protects; give `max_delta` as well if that is intended; no record was read"
        )
    for name, (requested, limit) in limits.items():
        if limit is None:
            continue
        number = _as_float(f"max_{name}", limit)
        if not 0 <= number < math.inf:
            raise ParameterError(f"max_{name}", limit, "expected a number of at least 0")
        if exact(requested) > exact(number):
            raise BudgetError(
                f"the design asks for {name} = {number_text(requested)}, which is above "
                f"`max_{name}={number_text(number)}`; no record was read"
            )


def checked_source(source: object) -> str:
    """Return the public name of a set of records, as receipts store it."""
    if not isinstance(source, str) or not 1 <= len(source) <= 200 or not source.isprintable():
        raise ParameterError("source", source, "expected a printable name of 1 to 200 characters")
    return source
