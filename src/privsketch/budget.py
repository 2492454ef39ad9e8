"""The privacy budget and the receipt of what was spent of it.

Numbers are exact: a float means the decimal number it prints as, so that 0.1 is one
tenth and shares of a budget add up to it exactly. The unit protected is one record, or one person.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from typing import Any, Literal

from privsketch.errors import ParameterError, require_count

Neighbours = Literal["add-remove", "replace"]
NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace")
MAX_EPSILON = 100.0  # e^100 protects nothing: benchmarks take it for no noise
WEAK_EPSILON = 10.0  # above it a record can be told from its absence almost surely: e^10 = 22,000
WEAK_DELTA = 1e-3  # studies of fewer than a thousand records are hopeless anyway
# Noise of one count does not fit 64-bit integers below 1e-17; shares of shares of a budget may be
# a trillion times smaller and must not fail where the whole did not. No chance is so small that a
# delta of 0 would not be meant. Formulas are tried down to here.
MIN_EPSILON, MIN_DELTA = 1e-30, 1e-100
UNIT = "one record"
PERSON = "one person"
INSECURE = "INSECURE"  # how a receipt marks noise that was replaced for a test


@dataclass(frozen=True)
class Unit:
    """What is protected: one record, or one person with all their rows.

    Parameters
    ----------
    person : str, optional
        The column that names persons.
    max_records : int
        How many records of a person count, at most. Those beyond are left out where a column
        names persons; where none does, there are none beyond, which is taken on trust.
    """

    person: str | None = None
    max_records: int = 1

    def __post_init__(self) -> None:
        require_count("max_records", self.max_records)
        if self.person is not None and not is_name(self.person):
            raise ParameterError("person", self.person, "expected the name of a column")

    @property
    def text(self) -> str:
        """In words."""
        if self.person is not None:
            return f"{PERSON} ({self.person})"
        return UNIT if self.max_records == 1 else f"{PERSON} (at most {self.max_records} rows each)"

    @property
    def assumption(self) -> str:
        """What must be true of the table, and nobody checks."""
        if self.person is not None:
            return "all rows of a person lie at one holder"
        if self.max_records == 1:
            return ""
        return (
            f"no person has more than {self.max_records} rows, which was taken on trust; all rows "
            "of a person lie at one holder"
        )


ONE_RECORD = Unit()


def is_name(value: object) -> bool:
    """Whether a value can name a column: a text of one line, for it stands in receipts."""
    return isinstance(value, str) and bool(value) and value.isprintable()


def _meaning(neighbours: str, unit: str) -> str:
    """What is hidden, in words; less than a record if the unit is less."""
    for known, thing in ((UNIT, "record"), (PERSON, "person")):
        if unit.startswith(known):
            return {
                "add-remove": f"add-remove (hides whether a {thing} is there)",
                "replace": f"replace (hides what a {thing} says; the number of {thing}s is public)",
            }[neighbours]
    return f"{neighbours} (hides {unit}, no more; the number of records is public)"


def exact(value: float) -> Fraction:
    """The decimal number a float prints as, as an exact fraction."""
    return Fraction(repr(float(value)))


def number_text(value: float) -> str:
    """A number as it is meant: all its digits, so that a cost is never shown rounded down."""
    return repr(float(value)).removesuffix(".0")


def _cost(epsilon: float, delta: float) -> str:
    return f"epsilon = {number_text(epsilon)}, delta = {number_text(delta)}"


def exact_sum(values: Sequence[float]) -> float:
    """Sum of decimal numbers, rounded up to the next float: a budget is never understated."""
    total = sum((exact(value) for value in values), Fraction(0))
    result = float(total)
    while exact(result) < total:
        result = math.nextafter(result, math.inf)
    return result


def _as_float(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(name, value, "expected a number") from error
    if isinstance(value, bool) or math.isnan(number):
        raise ParameterError(name, value, "expected a number")
    return number


def epsilon_caution(epsilon: float, unit: str = UNIT) -> str | None:
    """What an epsilon that hides next to nothing means, in words; None for others."""
    if epsilon <= WEAK_EPSILON:
        return None
    return (
        f"epsilon = {number_text(epsilon)} is above {WEAK_EPSILON:g}: {unit} can make what is "
        f"released e^{epsilon:g} = {math.exp(min(epsilon, 700.0)):.0e} times as likely, which "
        "hides next to nothing; 1 or less protects well"
    )


def delta_caution(delta: float, n_records: object) -> str | None:
    """What a delta above 1 / number of records means, in words; None for others.

    Where `n_records` is no public number, because nobody stated one, only a delta that is too
    large for any table is told.
    """
    if isinstance(n_records, bool) or not isinstance(n_records, Real):
        if delta <= WEAK_DELTA:
            return None
        return (
            f"delta = {number_text(delta)} is above {WEAK_DELTA:g}: of any table, to publish one "
            "record in a thousand as it is would keep to it; use a delta far below 1 / number of "
            "records"
        )
    number = float(n_records)
    if not 1 <= number < math.inf or exact(delta) * exact(number) <= 1:
        return None
    return (
        f"delta = {number_text(delta)} is above 1 / number of records, which is about "
        f"{1 / number:.2g}: to publish one whole record, drawn by lot, would keep to it; use a "
        "delta far below that"
    )


@dataclass(frozen=True)
class Budget:
    """How much one release may reveal about one record.

    Parameters
    ----------
    epsilon : float
        From 1e-30 to 100; useful values lie between 0.01 and 10.
    delta : float
        0 is pure differential privacy; else from 1e-100 to below 1.
    neighbours : {"add-remove", "replace"}
        Which change of a table must stay hidden: adding or removing a record, or
        replacing one while the number of records is public.
    unit : Unit
        What is protected, one record if left out; a schema that names persons says otherwise.

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
        if not 0 < epsilon <= MAX_EPSILON:
            raise ParameterError(
                "epsilon",
                self.epsilon,
                f"must be above 0 and at most {MAX_EPSILON:g}",
                "useful values lie between 0.01 and 10",
            )
        if epsilon < MIN_EPSILON:
            raise ParameterError(
                "epsilon",
                self.epsilon,
                f"too small for any noise, and below {MIN_EPSILON:g}",
                "useful values lie between 0.01 and 10",
            )
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
    def of_anybody(self) -> Budget:
        """The same for as many records of whomever: steps of a run do not know whose they are."""
        return replace(self, unit=Unit(None, self.unit.max_records))

    def describe(self) -> str:
        """One line in words."""
        cost, unit = _cost(self.epsilon, self.delta), self.unit.text
        return f"{cost} for {unit}, neighbours {_meaning(self.neighbours, unit)}"


@dataclass(frozen=True)
class Receipt:
    """What one release cost: a plain record kept with the release.

    Attributes
    ----------
    mechanism : str
        What was released, with which noise.
    epsilon, delta : float
        The whole cost.
    neighbours : {"add-remove", "replace"}
    source : str or None
        The holder's public name of the records.
    sensitivity, calibration : str
        How far one record moves what was released, and how the noise follows from it.
    scale : float or None
        Of the noise.
    sampler : str
        What drew the noise.
    unit : str
        What is protected.
    composition : {"single", "sequential", "parallel", "concentrated"}
        How `parts` add up: costs add; the largest counts, because one record sits in one part only,
        which `assumption` spells out; or the rho of Gaussian parts add.
    assumption : str
    parts : tuple of Receipt
        Shares of one release, steps of a run, or the releases of several holders.
    """

    mechanism: str
    epsilon: float
    delta: float
    neighbours: Neighbours
    source: str | None = None
    sensitivity: str = ""
    scale: float | None = None
    calibration: str = ""
    sampler: str = ""
    unit: str = UNIT
    composition: Literal["single", "sequential", "parallel", "concentrated"] = "single"
    assumption: str = ""
    parts: tuple[Receipt, ...] = field(default=())

    @property
    def cautions(self) -> list[str]:
        """Why this cost protects little, in words; empty where it protects."""
        found = [epsilon_caution(self.epsilon, self.unit), delta_caution(self.delta, None)]
        return [text for text in found if text is not None]

    @property
    def _meaning(self) -> str:
        return _meaning(self.neighbours, self.unit)

    def protecting(self, unit: Unit) -> Receipt:
        """The same cost for another unit, whose records the noise was made for."""
        if unit == ONE_RECORD:
            return self
        told, assumption = self.unit, self.assumption
        if told.startswith(UNIT):
            told = told.replace(UNIT, unit.text, 1)
        elif told.startswith(PERSON):  # a part that was made for as many records, of whomever
            told, assumption = unit.text, ""
        assumptions = [text for text in (assumption, unit.assumption) if text]
        return replace(
            self,
            unit=told,
            assumption="; ".join(dict.fromkeys(assumptions)),
            parts=tuple(part.protecting(unit) for part in self.parts),
        )

    def summary(self) -> str:
        """The whole cost in one line."""
        meaning = self._meaning
        return f"{_cost(self.epsilon, self.delta)} for {self.unit}, neighbours {meaning}"

    def describe(self) -> str:
        """The receipt in plain words, several lines."""
        lines = [
            f"mechanism   {self.mechanism}",
            f"unit        {self.unit}",
            f"neighbours  {self._meaning}",
            f"cost        {_cost(self.epsilon, self.delta)}",
        ]
        weak = epsilon_caution(self.epsilon, self.unit)
        if weak is not None:
            lines.append(f"careful     {weak}")
        if self.source is not None:
            lines.append(f"source      {self.source}")
        if self.sensitivity:
            lines.append(f"sensitivity {self.sensitivity}")
        if self.scale is not None:
            lines.append(f"scale       {self.scale:.10g}")
        if self.calibration:
            lines.append(f"calibration {self.calibration}")
        if self.sampler:
            lines.append(f"sampler     {self.sampler}")
        if self.parts:
            how = _HOW.get(self.composition, "")
            lines.append(f"parts       {len(self.parts)}, {self.composition}: {how}")
        if self.assumption:
            lines.append(f"assuming    {self.assumption}")
        return "\n".join([*lines, *self._part_lines("  ")])

    def _part_lines(self, indent: str) -> Iterator[str]:
        """All parts, and what they are made of themselves, further in."""
        for part in self.parts:
            where = f"{part.source}: " if part.source else ""
            yield f"{indent}- {where}{part.mechanism}, {_cost(part.epsilon, part.delta)}"
            if self.composition != "parallel" and part.calibration:
                yield f"{indent}  {part.calibration}"
            if self.composition != "parallel":
                yield from part._part_lines(f"{indent}  ")


_HOW = {
    "sequential": "costs add",
    "parallel": "the largest counts",
    "concentrated": "their rho add, which is less than their costs would",
}


def checked_source(source: object) -> str:
    """The name of a set of records, which receipts carry."""
    if not isinstance(source, str) or not 1 <= len(source) <= 200 or not source.isprintable():
        raise ParameterError("source", source, "expected a printable name of 1 to 200 characters")
    return source


def compose_sequential(mechanism: str, parts: Sequence[Receipt], source: str | None) -> Receipt:
    """Several releases about the same records: epsilons and deltas add."""
    return Receipt(
        mechanism=mechanism,
        epsilon=exact_sum([part.epsilon for part in parts]),
        delta=exact_sum([part.delta for part in parts]),
        neighbours=parts[0].neighbours,
        source=source,
        unit=_shared([part.unit for part in parts]) or UNIT,
        sampler=_common_sampler(parts),
        composition="sequential",
        assumption=_shared([part.assumption for part in parts]),
        parts=tuple(parts),
    )


def compose_concentrated(
    mechanism: str, parts: Sequence[Receipt], budget: Budget, rho: float, source: str | None
) -> Receipt:
    """Gaussian releases about the same records, whose rho add up to at most that of the budget."""
    return Receipt(
        mechanism=mechanism,
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbours=budget.neighbours,
        source=source,
        calibration=f"zCDP, rho = {rho:.12g} for all parts together",
        sampler=_common_sampler(parts),
        composition="concentrated",
        parts=tuple(parts),
    )


def compose_parallel(mechanism: str, parts: Sequence[Receipt], source: str | None) -> Receipt:
    """Releases about disjoint sets of records: the largest cost counts.

    Adding or removing a record changes one part only, so all parts together cost what the
    most expensive one does, also for delta > 0. Under "replace" the number of records of
    every part is public, and the statement is about replacing a record by another one of
    the same part (ICASSP Proposition 2 claims it for all; docs/theory.md).
    """
    return Receipt(
        mechanism=mechanism,
        epsilon=max(part.epsilon for part in parts),
        delta=max(part.delta for part in parts),
        neighbours=parts[0].neighbours,
        source=source,
        unit=_common_unit(parts),
        sampler=_common_sampler(parts),
        composition="parallel",
        assumption=_common_assumption(parts),
        parts=tuple(parts),
    )


_ASSUMPTIONS = {
    "add-remove": "every record belongs to one source only",
    "replace": "every record belongs to one source only; it is replaced within its source, whose "
    "number of records is public: a move to another source is not hidden",
}


def _shared(texts: Sequence[str]) -> str:
    """What all parts say, or nothing."""
    return texts[0] if len(set(texts)) == 1 else ""


def _common_unit(parts: Sequence[Receipt]) -> str:
    """What all parts protect, which is the same for sketches of one design."""
    unit = parts[0].unit
    stays = ", staying with its holder"
    return unit if parts[0].neighbours == "add-remove" or unit.endswith(stays) else unit + stays


def _common_assumption(parts: Sequence[Receipt]) -> str:
    given = [part.assumption for part in parts if part.assumption]
    return "; ".join(dict.fromkeys([_ASSUMPTIONS[parts[0].neighbours], *given]))


def _common_sampler(parts: Sequence[Receipt]) -> str:
    """The samplers of all parts, or the first one that is marked insecure."""
    insecure = [part.sampler for part in parts if part.sampler.startswith(INSECURE)]
    named = [name for part in parts for name in part.sampler.split("; ")]
    return insecure[0] if insecure else "; ".join(dict.fromkeys(named))


def receipt_to_json(receipt: Receipt) -> dict[str, Any]:
    """The receipt as plain JSON values."""
    values = {name: getattr(receipt, name) for name in Receipt.__dataclass_fields__}
    values["parts"] = [receipt_to_json(part) for part in receipt.parts]
    return values


_MAX_NESTING = 8  # twice the levels of our deepest, a partition tree; no file exhausts the stack


def receipt_from_json(value: Any, depth: int = 0) -> Receipt:
    """The receipt from `receipt_to_json`; errors for anything else."""
    if not isinstance(value, dict) or set(value) != set(Receipt.__dataclass_fields__):
        raise ParameterError("receipt: unknown or missing fields")
    texts = ("mechanism", "sensitivity", "calibration", "sampler", "unit", "assumption")
    if not all(isinstance(value[name], str) for name in texts):
        raise ParameterError("receipt: a text is missing")
    if not isinstance(value["source"], str | None) or not isinstance(value["scale"], float | None):
        raise ParameterError("receipt: source or scale has the wrong type")
    if value["composition"] not in ("single", *_HOW):
        raise ParameterError("receipt: unknown composition")
    if value["neighbours"] not in NEIGHBOURS:
        raise ParameterError("receipt: unknown neighbours")
    # Costs of several releases may add up beyond what one budget allows.
    if not all(type(value[name]) is float for name in ("epsilon", "delta")):
        raise ParameterError("receipt: epsilon and delta must be numbers")
    if not (value["epsilon"] > 0 and value["delta"] >= 0):
        raise ParameterError("receipt: epsilon or delta out of range")
    if not isinstance(value["parts"], list) or depth > _MAX_NESTING:
        raise ParameterError("receipt: parts must be a list, and not nested for ever")
    parts = tuple(receipt_from_json(part, depth + 1) for part in value["parts"])
    return Receipt(**{**value, "parts": parts})
