"""What a ledger holds: data sets with their limits, entries, and what a release would cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from privsketch._base.errors import ParameterError, require_one_of
from privsketch.facts.budget import NEIGHBOURS, Neighbours, Unit
from privsketch.ledger import store
from privsketch.ledger.accounting import Accounting, Amount, Left, Limit, Total
from privsketch.ledger.cost import Cost
from privsketch.ledger.marks import Match

MAX_REFUSALS = 10  # of a data set, unless its limit says otherwise
_NAMED = 3  # data sets of the same records, in cautions


@dataclass(frozen=True)
class DataSet:
    """A set of records that limits are kept for, as it stands.

    Attributes
    ----------
    name, note, time : str
        `time` is when it was added.
    limit : Limit
    neighbours : {"add-remove", "replace"}
    unit : Unit
        One record, or one person.
    spent : Total
    n_entries, n_open : int
        All entries, and those that were reserved and never committed; both count.
    alone : Total
        What ballots in sealed studies cost together instead of what they count in `spent`, if
        everybody else in their studies joins forces.
    n_refusals, max_refusals : int
        How often a release was refused because of what records say, and how often that may happen.
        A refusal costs nothing, but whoever may write schemas learns from it.
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

    @property
    def left(self) -> Left:
        """What the limit still allows."""
        return self.limit.left(self.spent)

    def to_json(self) -> dict[str, Any]:
        """Fractions as text."""
        return {
            "name": self.name,
            "note": self.note,
            "time": self.time,
            "neighbours": self.neighbours,
            "person": self.unit.person,
            "limit": self.limit.to_json(),
            "spent": self.spent.to_json(),
            "left": self.left.to_json(),
            "n_entries": self.n_entries,
            "n_open": self.n_open,
            "alone": self.alone.to_json(),
            "n_refusals": self.n_refusals,
            "max_refusals": self.max_refusals,
        }


@dataclass(frozen=True)
class Entry:
    """One release, or what was reserved for one.

    Attributes
    ----------
    id, data_set : str
    time, time_committed : str
        UTC, in seconds; None if it was not committed.
    state : {"reserved", "committed"}
    cost : Cost
        As the release states it.
    charged : Amount
        What it counts under the neighbours of the data set.
    what, source, output : str
        What is released, the name of the records, where the result went.
    receipt : dict or None
    alone : Cost or None
        What a ballot costs besides, if everybody else in its study joins forces; it adds up apart.
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
        """Fractions as text."""
        epsilon, delta, rho = self.charged
        return {
            "id": self.id,
            "data_set": self.data_set,
            "time": self.time,
            "time_committed": self.time_committed,
            "state": self.state,
            "cost": self.cost.to_json(),
            "charged": {
                "epsilon": str(epsilon),
                "delta": str(delta),
                "rho": None if rho is None else str(rho),
            },
            "what": self.what,
            "source": self.source,
            "output": self.output,
            "receipt": self.receipt,
            "alone": None if self.alone is None else self.alone.to_json(),
        }


@dataclass(frozen=True)
class Quote:
    """What a release would cost, and whether the limit allows it."""

    allowed: bool
    charged: Amount
    after: Total
    left: Left
    words: str


@dataclass(frozen=True)
class Reservation:
    """A cost that is spent from now on.

    Attributes
    ----------
    id : str
        Of the entry; `commit` takes it.
    charged : Amount
    matches : tuple of Match
        Other data sets of the ledger that have the same records, or mostly; to be told.
    is_unlike : bool
        Whether nothing was recognised of what was released under this name before.
    """

    id: str
    data_set: str
    charged: Amount
    matches: tuple[Match, ...] = ()
    is_unlike: bool = False

    @property
    def cautions(self) -> list[str]:
        """What the holder should know about these records, in sentences."""
        found = [
            f"{match.words}; their costs add up, and the ledger counts them apart"
            for match in self.matches[:_NAMED]
        ]
        more = len(self.matches) - _NAMED
        if more > 0:
            sets = "data set has" if more == 1 else "data sets have"
            found.append(f"{more} more {sets} these records, or many of them; costs add up")
        if self.is_unlike:
            found.append(
                f"no record of data set {self.data_set!r} was recognised among these: is it the "
                "right name?"
            )
        return found


def stated(line: store.Line, accounting: Accounting) -> DataSet:
    """A data set as it was added, from its line."""
    content = store.content_of(line)
    epsilon, delta, _ = store.amount_of(line.epsilon, line.delta, None)
    limit = Limit(epsilon, delta, accounting, Fraction(content["without_rho"]))
    neighbours = require_one_of("neighbours", content["neighbours"], NEIGHBOURS)
    unit = Unit(content["person"])
    max_refusals = require_whole("max_refusals", content.get("max_refusals", MAX_REFUSALS))
    return DataSet(
        line.data_set,
        limit,
        neighbours,
        unit,
        content["note"],
        content["time"],
        max_refusals=max_refusals,
    )


def require_whole(name: str, value: object) -> int:
    """The value, a whole number from 0 on; a ParameterError for any other."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParameterError(name, value, "expected a whole number from 0 on")
    return value


def charge(cost: Cost, data_set: DataSet) -> Amount:
    """What a cost adds to the total of a data set."""
    charged = cost.charged(data_set.neighbours, data_set.unit.person)
    return Amount(charged.epsilon, charged.delta, charged.rho)


def entries_of(lines: Iterable[store.Line]) -> list[Entry]:
    """Releases with their last state, from the lines of a ledger."""
    found: dict[str, Entry] = {}
    for line in lines:
        if line.entry is None:
            continue
        content = store.content_of(line)
        charged = store.amount_of(line.epsilon, line.delta, line.rho)
        if line.kind == "reserve":
            found[line.entry] = Entry(
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
        before = found[line.entry]
        found[line.entry] = replace(
            before,
            state="committed",
            time_committed=content["time"],
            cost=before.cost if content["cost"] is None else Cost.from_json(content["cost"]),
            charged=charged,
            receipt=content["receipt"],
            output=content["output"],
            alone=None if content.get("void") else before.alone,
        )
    return list(found.values())


def total_alone(data_set: DataSet, entries: Iterable[Entry]) -> Total:
    """What ballots of a data set cost together if others join forces."""
    costs = [entry.alone for entry in entries if entry.alone is not None]
    return Total.of([charge(cost, data_set) for cost in costs])


def refusal_text(found: DataSet, cost: Cost, charged: Amount) -> str:
    """Return why the limit of a data set refuses a release."""
    words = f"the release costs {cost.text}"
    limit = found.limit
    if limit.accounting == "zcdp":
        words += ", no rho" if charged.rho is None else f", rho = {float(charged.rho):.6g}"
    if charged.epsilon != cost.epsilon:
        words += " (twice and more under the data set's neighbours, replace)"
    words += f"; left are {limit.left_text(found.spent)}, of the limit {limit.text}"
    if limit.accounting == "zcdp" and charged.rho is None and not limit.without_rho:
        words += "; a release without a rho needs a data set with a share apart (`without_rho`)"
    return words


class SpendingStep(NamedTuple):
    """The share of a limit that was spent when an entry was made."""

    time: datetime
    entry: str
    used: float


def spending(data_set: DataSet, entries: Iterable[Entry]) -> list[SpendingStep]:
    """One step for each entry of a data set, in order, as they are charged now."""
    total, steps = Total(), []
    for entry in entries:
        if entry.data_set == data_set.name:
            total = total.plus(entry.charged)
            used = float(data_set.limit.used(total))
            steps.append(SpendingStep(datetime.fromisoformat(entry.time), entry.id, used))
    return steps


def span_text(begin: datetime, end: datetime) -> tuple[str, str]:
    """Both ends of a picture in words: days, or the time of one day."""
    if begin.date() == end.date():
        return f"{begin:%Y-%m-%d %H:%M}", f"{end:%H:%M} UTC"
    return begin.date().isoformat(), end.date().isoformat()
