"""The receipt of a release: its cost, what was released, and with which noise.

Receipts add up. Releases about the same records cost the sum of their costs, also if later ones
were chosen after seeing earlier ones. Releases about disjoint records cost what the most expensive
one does. `noise.composition` has tighter sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from privsketch._base.errors import ParameterError
from privsketch._base.formats import INSECURE
from privsketch._base.notebook import described
from privsketch.facts.budget import (
    INFINITE,
    NEIGHBOURS,
    ONE_RECORD,
    PERSON,
    RECORD,
    Budget,
    Neighbours,
    Unit,
    cost_text,
    delta_caution,
    epsilon_caution,
    exact,
    exact_sum,
    meaning_of,
    round_up,
)

NO_NOISE = f"{INSECURE}: no noise was drawn"  # sampler of releases without privacy


@dataclass(frozen=True)
class Receipt:
    """Cost of one release, as plain data kept with the release.

    Attributes
    ----------
    mechanism : str
        Description of what was released, and with which noise.
    epsilon, delta : float
        Total cost; the epsilon of a release without noise is infinite.
    neighbours : {"add-remove", "replace"}
    source : str or None
        Holder's public name of the records.
    law : str
        Law of the noise: "laplace", "gaussian" or "cube" (all of them on integers), "choice",
        "threshold" or "picks"; empty for receipts with parts.
    sensitivity : float or None
        Largest change of the released numbers by one unit, in the norm `norm`.
    norm : str
        Name of that norm.
    scale : float or None
        Scale of the noise.
    calibration : str
        How the scale follows from sensitivity and cost.
    rho : float or None
        The release satisfies rho-zCDP: rho of Gaussian noise, epsilon^2 / 2 of a pure release. None
        if no rho is known, as for masks and for random matrices.
    sampler : str
        Sampler that drew the noise.
    unit : str
        What is protected.
    composition : {"single", "sequential", "parallel", "concentrated"}
        How `parts` compose: their costs add, the largest cost counts, or the rho of Gaussian parts
        add. The largest counts only if no record is in two parts, which `assumption` states.
    assumption : str
        Conditions under which the cost holds.
    parts : tuple of Receipt
        Shares of one release, steps of a run, or the releases of several holders.
    plugins : tuple of str
        Distributions of other packages that took part, each with its version: "my-engine 1.2".
    """

    mechanism: str
    epsilon: float
    delta: float
    neighbours: Neighbours
    source: str | None = None
    law: str = ""
    sensitivity: float | None = None
    norm: str = ""
    scale: float | None = None
    calibration: str = ""
    rho: float | None = None
    sampler: str = ""
    unit: str = RECORD
    composition: Literal["single", "sequential", "parallel", "concentrated"] = "single"
    assumption: str = ""
    parts: tuple[Receipt, ...] = field(default=())
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rho is None and self.delta == 0 and self.is_private:
            object.__setattr__(self, "rho", pure_rho(self.epsilon))

    @property
    def is_private(self) -> bool:
        """Whether there is any privacy: False for releases without noise."""
        return self.epsilon < math.inf

    @property
    def cautions(self) -> list[str]:
        """Reasons why this cost protects little; empty if there are none."""
        texts = [epsilon_caution(self.epsilon, self.unit), delta_caution(self.delta, None)]
        return [text for text in texts if text is not None]

    @property
    def sensitivity_text(self) -> str:
        """Sensitivity with its norm; empty if there is none."""
        return "" if self.sensitivity is None else f"{self.sensitivity:.12g} ({self.norm})"

    @property
    def _meaning(self) -> str:
        if not self.is_private:
            return "any, as nothing is hidden"
        return meaning_of(self.neighbours, self.unit)

    def naming(self, *plugins: str | None) -> Receipt:
        """Add the distributions of parts that were used; None stands for parts of this library."""
        names = [*self.plugins, *(name for name in plugins if name is not None)]
        return replace(self, plugins=tuple(dict.fromkeys(names))) if names else self

    def protecting(self, unit: Unit) -> Receipt:
        """Return this cost for another unit, for whose records the noise was calibrated."""
        if unit == ONE_RECORD:
            return self
        text, assumption = self.unit, self.assumption
        if text.startswith(RECORD):
            text = text.replace(RECORD, unit.text, 1)
        elif text.startswith(PERSON):  # a part calibrated for as many records of any person
            text, assumption = unit.text, ""
        assumptions = [text for text in (assumption, unit.assumption) if text]
        return replace(
            self,
            unit=text,
            assumption="; ".join(dict.fromkeys(assumptions)),
            parts=tuple(part.protecting(unit) for part in self.parts),
        )

    def __add__(self, other: object) -> Receipt:
        """Add the cost of another release about the same records."""
        if not isinstance(other, Receipt):
            return NotImplemented
        parts = [*self._summands(), *other._summands()]
        for part in parts:
            exact(part.epsilon)  # refuses what has no privacy, as `compose` does
        require_summable(parts)
        sources = {part.source for part in parts}
        return compose_sequential(_SUM_NAME, parts, sources.pop() if len(sources) == 1 else None)

    def __radd__(self, other: object) -> Receipt:
        """Support `sum`, which starts with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def _summands(self) -> tuple[Receipt, ...]:
        """Return the receipts that `+` added up, or this one."""
        is_sum = self.mechanism == _SUM_NAME and self.composition == "sequential"
        return self.parts if is_sum else (self,)

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as plain JSON values."""
        values = {name: getattr(self, name) for name in Receipt.__dataclass_fields__}
        values["parts"] = [part.to_json() for part in self.parts]
        if not self.is_private:
            values["epsilon"] = INFINITE
        plugins = values.pop("plugins")
        return {**values, "plugins": list(plugins)} if plugins else values

    @classmethod
    def from_json(cls, value: Any) -> Receipt:
        """Rebuild a receipt from `to_json`; raise for anything else."""
        return _receipt_from_json(value, 0)

    def dp_event(self) -> Any:
        """Return the release as an event for dp-accounting's accountants.

        Gaussian noise is a `ZCDpEvent`, because a privacy loss distribution is not proven for
        discrete Gaussian vectors; a pure release is two-valued randomised response, which
        dominates every mechanism of the same epsilon. Parts that add up are a `ComposedDpEvent`.
        """
        try:
            import dp_accounting
        except ImportError:
            raise ParameterError(
                "dp_event: dp-accounting is missing; install privsketch[accounting]"
            ) from None
        if not self.is_private:
            return dp_accounting.NonPrivateDpEvent()
        if is_sum(self):
            return dp_accounting.ComposedDpEvent([part.dp_event() for part in self.parts])
        if self.delta == 0:
            return dp_accounting.RandomizedResponseDpEvent(_flip_probability(self.epsilon), 2)
        if self.rho is None:
            raise ParameterError(
                f"dp_event: the cost of {self.mechanism!r} is known only as epsilon and delta, for "
                "which dp-accounting has no event; privsketch.compose adds them"
            )
        return dp_accounting.ZCDpEvent(self.rho)

    def summary(self) -> str:
        """Summarise the whole cost in one line."""
        if not self.is_private:
            return cost_text(self.epsilon, self.delta)
        meaning = self._meaning
        return f"{cost_text(self.epsilon, self.delta)} for {self.unit}, neighbours {meaning}"

    def describe(self) -> str:
        """Describe the receipt in several lines."""
        has_rho = self.rho is not None and self.delta > 0
        parts = f"{len(self.parts)}, {self.composition}: {_RULES.get(self.composition, '')}"
        facts = [
            ("mechanism", self.mechanism),
            ("unit", self.unit),
            ("neighbours", self._meaning),
            ("cost", cost_text(self.epsilon, self.delta)),
            ("careful", epsilon_caution(self.epsilon, self.unit)),
            ("source", self.source),
            ("sensitivity", self.sensitivity_text or None),
            ("scale", None if self.scale is None else f"{self.scale:.10g}"),
            ("calibration", self.calibration or None),
            ("sampler", self.sampler or None),
            ("rho", f"{self.rho:.12g} (zCDP)" if has_rho else None),
            *(("plugin", plugin) for plugin in self.plugins),
            ("parts", parts if self.parts else None),
            ("assuming", self.assumption or None),
        ]
        lines = [f"{name:<11} {text}" for name, text in facts if text is not None]
        return "\n".join([*lines, *self._part_lines("  ")])

    def _repr_html_(self) -> str:
        return described("Receipt", self.describe().splitlines())

    def _part_lines(self, indent: str) -> Iterator[str]:
        """Yield a line for each part, with the parts of the part indented below."""
        for part in self.parts:
            where = f"{part.source}: " if part.source else ""
            yield f"{indent}- {where}{part.mechanism}, {cost_text(part.epsilon, part.delta)}"
            if self.composition != "parallel" and part.calibration:
                yield f"{indent}  {part.calibration}"
            if self.composition != "parallel":
                yield from part._part_lines(f"{indent}  ")


_SUM_NAME = "several releases"
_RULES = {
    "sequential": "costs add",
    "parallel": "the largest counts",
    "concentrated": "their rho add, which is less than their costs would",
}


def compose_sequential(mechanism: str, parts: Sequence[Receipt], source: str | None) -> Receipt:
    """Compose releases about the same records: epsilons and deltas add."""
    return _composed(
        mechanism,
        parts,
        source,
        **_combined_costs(parts, exact_sum),
        unit=_shared_text([part.unit for part in parts]) or RECORD,
        composition="sequential",
        assumption=_shared_text([part.assumption for part in parts]),
    )


def _composed(
    mechanism: str, parts: Sequence[Receipt], source: str | None, **facts: Any
) -> Receipt:
    """Return a receipt with the samplers and plugins of its parts, and with these facts."""
    plugins = tuple(dict.fromkeys(plugin for part in parts for plugin in part.plugins))
    return Receipt(
        mechanism=mechanism,
        source=source,
        sampler=_common_sampler(parts),
        parts=tuple(parts),
        plugins=plugins,
        **facts,
    )


def compose_concentrated(
    mechanism: str, parts: Sequence[Receipt], budget: Budget, rho: float, source: str | None
) -> Receipt:
    """Compose Gaussian releases about the same records; the sum of their rho fits the budget."""
    return _composed(
        mechanism,
        parts,
        source,
        epsilon=budget.epsilon,
        delta=budget.delta,
        neighbours=budget.neighbours,
        calibration=f"zCDP, rho = {rho:.12g} for all parts together",
        rho=rho,
        composition="concentrated",
    )


def compose_parallel(mechanism: str, parts: Sequence[Receipt], source: str | None) -> Receipt:
    """Compose releases about disjoint sets of records: the largest cost counts.

    Adding or removing a record changes only one part, so all parts together cost what the
    most expensive one does, also for delta > 0. Under "replace" the number of records of
    every part is public, and the statement is about replacing a record by another one of
    the same part (ICASSP Proposition 2 claims it for all; docs/theory.md).
    """
    assumptions = [part.assumption for part in parts if part.assumption]
    return _composed(
        mechanism,
        parts,
        source,
        **_combined_costs(parts, max),
        unit=_common_unit(parts),
        composition="parallel",
        assumption="; ".join(dict.fromkeys([_ASSUMPTIONS[parts[0].neighbours], *assumptions])),
    )


_ASSUMPTIONS = {
    "add-remove": "every record belongs to one source only",
    "replace": "every record belongs to one source only; it is replaced within its source, whose "
    "number of records is public: a move to another source is not hidden",
}


def pure_rho(epsilon: float) -> float:
    """Return epsilon^2 / 2, the zCDP of a pure release (Bun and Steinke, 2016, Proposition 1.4)."""
    return round_up(exact(epsilon) ** 2 / 2)


def _combined_costs(
    parts: Sequence[Receipt], combine: Callable[[list[float]], float]
) -> dict[str, Any]:
    """Combine epsilon, delta and rho of all parts; rho is None if a part has none."""
    rhos = [part.rho for part in parts if part.rho is not None]
    return {
        "epsilon": combine([part.epsilon for part in parts]),
        "delta": combine([part.delta for part in parts]),
        "rho": combine(rhos) if len(rhos) == len(parts) else None,
        "neighbours": parts[0].neighbours,
    }


def require_summable(receipts: Sequence[Receipt]) -> None:
    """Refuse receipts that are not about the same change of a table: their costs have no sum."""
    for name, words in (("neighbours", "neighbours"), ("unit", "units")):
        values = sorted({getattr(receipt, name) for receipt in receipts})
        if len(values) > 1:
            raise ParameterError(
                f"receipts: {words} differ ({', '.join(map(repr, values))}); costs add up only "
                "for the same change of a table"
            )


def is_sum(receipt: Receipt) -> bool:
    """Return whether a receipt, perhaps from a foreign file, costs the sum of its parts."""
    return receipt.composition == "sequential" and all(
        exact_sum([getattr(part, name) for part in receipt.parts]) >= getattr(receipt, name)
        for name in ("epsilon", "delta")
    )


def _flip_probability(epsilon: float) -> float:
    """Return the p of a two-valued `RandomizedResponseDpEvent` that costs epsilon or barely more.

    Its loss is ln((2 - p) / p).
    """
    return 2 / (math.exp(epsilon) + 1) * (1 - 2**-50)


def _shared_text(texts: Sequence[str]) -> str:
    """Return the text that all parts share, or an empty one."""
    return texts[0] if len(set(texts)) == 1 else ""


def _common_unit(parts: Sequence[Receipt]) -> str:
    """Return the unit that all parts protect; sketches of one design share it."""
    unit = parts[0].unit
    suffix = ", staying with its holder"
    return unit if parts[0].neighbours == "add-remove" or unit.endswith(suffix) else unit + suffix


def _common_sampler(parts: Sequence[Receipt]) -> str:
    """Return the samplers of all parts, or the first one that is marked insecure."""
    insecure = [part.sampler for part in parts if part.sampler.startswith(INSECURE)]
    names = [name for part in parts for name in part.sampler.split("; ")]
    return insecure[0] if insecure else "; ".join(dict.fromkeys(names))


_COST_LIMIT = 1e100  # beyond any cost; its square is a float
_MAX_NESTING = 8  # twice that of partition trees, the deepest; files cannot exhaust the stack


def _receipt_from_json(value: Any, depth: int) -> Receipt:
    """Rebuild a receipt that is part of `depth` others."""
    if not isinstance(value, dict):
        raise ParameterError("receipt: unknown or missing fields")
    plugins = value.get("plugins", ["none"])  # written only if there are any
    is_list = isinstance(plugins, list) and len(plugins) > 0
    if not is_list or not all(type(name) is str for name in plugins):
        raise ParameterError("receipt: plugins must be a list of texts")
    value = {**value, "plugins": tuple(value.get("plugins", ()))}
    if set(value) != set(Receipt.__dataclass_fields__):
        raise ParameterError("receipt: unknown or missing fields")
    texts = ("mechanism", "law", "norm", "calibration", "sampler", "unit", "assumption")
    if not all(isinstance(value[name], str) for name in texts):
        raise ParameterError("receipt: a text field has the wrong type")
    if not isinstance(value["source"], str | None):
        raise ParameterError("receipt: source has the wrong type")
    for name in ("scale", "sensitivity", "rho"):
        number = value[name]
        if number is not None and not (type(number) is float and 0 <= number < math.inf):
            raise ParameterError(f"receipt: {name} must be a number or null")
    if value["composition"] not in ("single", *_RULES):
        raise ParameterError("receipt: unknown composition")
    if value["neighbours"] not in NEIGHBOURS:
        raise ParameterError("receipt: unknown neighbours")
    # Costs of several releases may add up beyond what one budget allows.
    if value["epsilon"] == INFINITE:
        value["epsilon"] = math.inf
    if (value["epsilon"] == math.inf) != (value["sampler"] == NO_NOISE):
        raise ParameterError("receipt: epsilon and sampler disagree on privacy")
    if not all(type(value[name]) is float for name in ("epsilon", "delta")):
        raise ParameterError("receipt: epsilon and delta must be numbers")
    is_cost = 0 < value["epsilon"] < _COST_LIMIT or value["epsilon"] == math.inf
    if not (is_cost and 0 <= value["delta"] < _COST_LIMIT):
        raise ParameterError("receipt: epsilon or delta out of range")
    if not isinstance(value["parts"], list) or depth > _MAX_NESTING:
        raise ParameterError(f"receipt: parts must be a list, nested at most {_MAX_NESTING} times")
    parts = tuple(_receipt_from_json(part, depth + 1) for part in value["parts"])
    return Receipt(**{**value, "parts": parts})
