"""Contents of a ledger: data sets with their limits, entries, quotes and reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from privsketch._base.errors import ParameterError, require_one_of
from privsketch.facts.budget import NEIGHBOURS, Neighbours, Unit
from privsketch.ledger import store
from privsketch.ledger.accounting import Accounting, Amount, Left, Limit, Total
from privsketch.ledger.cost import Cost, fraction_text, texts_of
from privsketch.ledger.marks import Match
from privsketch.ledger.periods import Period, period_from_json

MAX_REFUSALS = 10  # default for a data set
_MAX_NAMED = 3  # data sets with the same records that cautions name


def _values(facts: object, *names: str) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in names}


@dataclass(frozen=True)
class DataSet:
    """A set of records with a limit, in its current state.

    Attributes
    ----------
    name, note, time : str
        `time` is when the data set was added.
    limit : Limit
    neighbours : {"add-remove", "replace"}
    unit : Unit
        One record, or one person.
    spent : Total
    n_entries, n_open : int
        Number of all entries, and of those that were reserved and never committed; both count.
    alone : Total
        Total cost of ballots in sealed studies if everybody else in their studies colludes, in
        place of what they count in `spent`.
    n_refusals, max_refusals : int
        Number of releases that were refused because of what records say, and its largest value.
        A refusal costs nothing, but people who write schemas learn from it.
    period : Period, optional
        Limit for each calendar year, quarter or month.
    period_spent : Total
        Total of the entries that were reserved within the present one.
    """

    name: str
    limit: Limit
    neighbours: Neighbours
    unit: Unit
    note: str
    time: str
    spent: Total = field(default=Total())
    n_entries: int = 0
    n_open: int = 0
    alone: Total = field(default=Total())
    n_refusals: int = 0
    max_refusals: int = MAX_REFUSALS
    period: Period | None = None
    period_spent: Total = field(default=Total())

    def over(self, charged: Amount) -> str:
        """Return which limit a charge would exceed: "limit", that of the period, or none: ""."""
        if not self.limit.allows(self.spent.plus(charged)):
            return "limit"
        if self.period is None or self.period.limit.allows(self.period_spent.plus(charged)):
            return ""
        return f"limit of this {self.period.every}"

    def total_of_period(
        self, amounts: Mapping[str, Amount], times: Mapping[str, datetime]
    ) -> Total:
        """Return the total of the entries that were reserved within the present period."""
        period = self.period
        if period is None:
            return Total()
        start = period.start(datetime.fromisoformat(store.now()))
        return Total.of(amounts[entry] for entry in amounts if period.start(times[entry]) == start)

    def left_text(self, charged: Amount) -> str:
        """Return what a charge would leave of the limits, in words."""
        words = self.limit.left_text(self.spent.plus(charged))
        if self.period is None:
            return words
        rest = self.period.limit.left_text(self.period_spent.plus(charged))
        return f"{words}, and {rest} of this {self.period.every}'s limit,"

    @property
    def left(self) -> Left:
        """Remainder of the limit."""
        return self.limit.left(self.spent)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with fractions as text."""
        return {
            **_values(self, "name", "note", "time", "neighbours"),
            "person": self.unit.person,
            "limit": self.limit.to_json(),
            "spent": self.spent.to_json(),
            "left": self.left.to_json(),
            **_values(self, "n_entries", "n_open"),
            "alone": self.alone.to_json(),
            **_values(self, "n_refusals", "max_refusals"),
            "period": None
            if self.period is None
            else {
                **self.period.to_json(),
                "spent": self.period_spent.to_json(),
                "left": self.period.limit.left(self.period_spent).to_json(),
            },
        }


@dataclass(frozen=True)
class Entry:
    """One release, or a reservation for one.

    Attributes
    ----------
    id, data_set : str
    time, time_committed : str
        UTC, to the second; `time_committed` is None before the commit.
    state : {"reserved", "committed"}
    cost : Cost
        Cost as the release states it.
    charged : Amount
        Charge under the neighbours of the data set.
    what, source, output : str
        What is released, the name of the records, where the result went.
    receipt : dict or None
    alone : Cost or None
        Cost of a ballot if everybody else in its study colludes; these add up separately.
    """

    id: str
    data_set: str
    time: str
    state: Literal["reserved", "committed"]
    cost: Cost
    charged: Amount
    what: str
    source: str | None
    receipt: dict[str, Any] | None = None
    output: str | None = None
    time_committed: str | None = None
    alone: Cost | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with fractions as text."""
        return {
            **_values(self, "id", "data_set", "time", "time_committed", "state"),
            "cost": self.cost.to_json(),
            "charged": texts_of(self.charged, "epsilon", "delta", "rho"),
            **_values(self, "what", "source", "output", "receipt"),
            "alone": None if self.alone is None else self.alone.to_json(),
        }


@dataclass(frozen=True)
class Reservation:
    """A cost that counts as spent.

    Attributes
    ----------
    id : str
        Id of the entry, for `commit`.
    charged : Amount
    matches : tuple of Match
        Other data sets of the ledger with mostly the same records.
    is_unlike : bool
        Whether no earlier record of this data set was recognised.
    """

    id: str
    data_set: str
    charged: Amount
    matches: tuple[Match, ...] = ()
    is_unlike: bool = False

    @property
    def cautions(self) -> list[str]:
        """What the holder should know about these records."""
        texts = [
            f"{match.words}; their costs add up, and the ledger counts them apart"
            for match in self.matches[:_MAX_NAMED]
        ]
        n_unnamed = len(self.matches) - _MAX_NAMED
        if n_unnamed > 0:
            sets = "data set has" if n_unnamed == 1 else "data sets have"
            texts.append(f"{n_unnamed} more {sets} these records, or many of them; costs add up")
        if self.is_unlike:
            texts.append(
                f"no record of data set {self.data_set!r} was recognised among these: is it the "
                "right name?"
            )
        return texts


@dataclass(frozen=True)
class Quote:
    """The cost of a possible release, and whether the limit allows it."""

    allowed: bool
    charged: Amount
    after: Total
    left: Left
    words: str


def data_set_of(line: store.Line, accounting: Accounting) -> DataSet:
    """Return a data set as it was added, from its line."""
    content = store.content_of(line)
    epsilon, delta, _ = store.amount_of(line.epsilon, line.delta, None)
    limit = Limit(epsilon, delta, accounting, Fraction(content["without_rho"]))
    neighbours = require_one_of("neighbours", content["neighbours"], NEIGHBOURS)
    unit = Unit(content["person"])
    max_refusals = require_not_negative("max_refusals", content.get("max_refusals", MAX_REFUSALS))
    return DataSet(
        line.data_set,
        limit,
        neighbours,
        unit,
        content["note"],
        content["time"],
        max_refusals=max_refusals,
        period=period_from_json(content.get("period"), limit),
    )


def require_not_negative(name: str, value: object) -> int:
    """Return a whole number that is not negative; a ParameterError for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(name, value, "expected a whole number from 0 on")
    return value


def charge(cost: Cost, data_set: DataSet) -> Amount:
    """Return what a cost adds to the total of a data set."""
    charged = cost.charged(data_set.neighbours, data_set.unit.person)
    return Amount(charged.epsilon, charged.delta, charged.rho)


def entries_of(lines: Iterable[store.Line]) -> list[Entry]:
    """Return releases in their last state, from the lines of a ledger."""
    entries: dict[str, Entry] = {}
    for line in lines:
        if line.entry is None:
            continue
        content = store.content_of(line)
        charged = store.amount_of(line.epsilon, line.delta, line.rho)
        if line.kind == "reserve":
            entries[line.entry] = Entry(
                line.entry,
                line.data_set,
                content["time"],
                "reserved",
                Cost.from_json(content["cost"]),
                charged,
                content["what"],
                content["source"],
                alone=Cost.from_json(content["alone"]) if "alone" in content else None,
            )
            continue
        reserved = entries[line.entry]
        entries[line.entry] = replace(
            reserved,
            state="committed",
            time_committed=content["time"],
            cost=reserved.cost if content["cost"] is None else Cost.from_json(content["cost"]),
            charged=charged,
            receipt=content["receipt"],
            output=content["output"],
            alone=None if content.get("void") else reserved.alone,
        )
    return list(entries.values())


def total_alone(data_set: DataSet, entries: Iterable[Entry]) -> Total:
    """Return the total cost of a data set's ballots if everybody else in each study colludes."""
    costs = [entry.alone for entry in entries if entry.alone is not None]
    return Total.of([charge(cost, data_set) for cost in costs])


def refusal_text(data_set: DataSet, cost: Cost, charged: Amount) -> str:
    """Return why a limit of a data set refuses a release."""
    words = f"the release costs {cost.text}"
    name, limit, spent = data_set.over(charged), data_set.limit, data_set.spent
    if name != "limit" and data_set.period is not None:
        limit, spent = data_set.period.limit, data_set.period_spent
    if limit.accounting == "zcdp":
        words += ", no rho" if charged.rho is None else f", rho = {float(charged.rho):.6g}"
    if charged.epsilon != cost.epsilon:
        words += " (at least twice that under the data set's neighbours, replace)"
    words += f"; left are {limit.left_text(spent)}, of the {name or 'limit'} {limit.text}"
    left = limit.left(spent)
    if limit.accounting == "basic" and charged.epsilon <= left.epsilon:
        fitting = fraction_text(left.delta, up=False)
        words += f"; its delta does not fit: it may be {fitting} at most, or 0 for pure noise"
    if limit.accounting == "zcdp" and charged.rho is None and not limit.without_rho:
        words += "; a release without a rho needs a data set with a share apart (`without_rho`)"
    return words


class SpendingStep(NamedTuple):
    """The share of a limit that is spent from one entry on."""

    time: datetime
    entry: str
    used: float


def spending(data_set: DataSet, entries: Iterable[Entry]) -> list[SpendingStep]:
    """Return one step for each entry of a data set, in order, by its current charge."""
    total, steps = Total(), []
    for entry in entries:
        if entry.data_set == data_set.name:
            total = total.plus(entry.charged)
            used = float(data_set.limit.used(total))
            steps.append(SpendingStep(datetime.fromisoformat(entry.time), entry.id, used))
    return steps


def span_text(begin: datetime, end: datetime) -> tuple[str, str]:
    """Return both ends of a time axis as text: dates, or times of one day."""
    if begin.date() == end.date():
        return f"{begin:%Y-%m-%d %H:%M}", f"{end:%H:%M} UTC"
    return begin.date().isoformat(), end.date().isoformat()
