"""Verification of a ledger: all lines are replayed from the first, and none is trusted.

Hashes reveal damage and edits by hand. They do not reveal that somebody recomputed all of them, or
removed the last lines, as an older copy does. A head that was kept elsewhere reveals this: in an
intact ledger it remains the hash of a line.
"""

from __future__ import annotations

from datetime import datetime

from privsketch._base.errors import PrivsketchError
from privsketch.ledger.accounting import Amount, Total
from privsketch.ledger.contents import DataSet, charge, data_set_of
from privsketch.ledger.cost import Cost
from privsketch.ledger.marks import Marks
from privsketch.ledger.periods import Period
from privsketch.ledger.store import MARKS_KEY_BYTES, Line, Log, amount_of, content_of


def problems(log: Log, head: str | None = None) -> list[str]:
    """Return all problems as sentences; `head` is the hash of the last line at an earlier time."""
    texts = log.faults()
    if texts:
        return texts  # pages are damaged: further checks are meaningless
    if not isinstance(log.key, bytes) or len(log.key) != MARKS_KEY_BYTES:
        texts.append("the key has an invalid length")
    replay, is_known = _Replay(log), head in (None, log.beginning)
    for line, faults in log.checked_lines():
        texts += faults
        is_known |= line.hash == head
        try:
            texts += [f"line {line.number}: {text}" for text in replay.faults(line)]
        except (PrivsketchError, ValueError, TypeError, KeyError, ZeroDivisionError):
            texts.append(f"line {line.number}: it cannot be read")
    for name, total in replay.totals.items():
        try:
            if total == Total.of(log.amounts(name).values()):
                continue
        except (ValueError, ZeroDivisionError):
            pass
        texts.append(f"data set {name!r}: the total is not the sum of its entries")
    for name, marks in log.marks():
        try:
            Marks.from_bytes(marks)
        except PrivsketchError:
            texts.append(f"data set {name!r}: marks of impossible length")
    if not is_known:
        texts.append(
            "no line has the given head: an older copy was restored, or the file was rewritten; "
            "enter again what was released since"
        )
    return texts


class _Replay:
    """State of a ledger after each of its lines."""

    def __init__(self, log: Log) -> None:
        self._accounting = log.accounting
        self.data_sets: dict[str, DataSet] = {}
        self.totals: dict[str, Total] = {}
        self._amounts: dict[str, dict[str, Amount]] = {}
        self._reserved: dict[str, Cost] = {}
        self._committed: set[str] = set()
        self._periods: dict[tuple[str, datetime], list[str]] = {}  # entries of each period

    def faults(self, line: Line) -> list[str]:
        """Apply a line to the state, and return its faults."""
        if line.kind == "add":
            return self._add(line)
        if line.data_set not in self.data_sets or (line.entry is None) != (line.kind == "refuse"):
            return ["its data set was never added"]
        if line.kind == "refuse":
            is_free = not any(amount_of(line.epsilon, line.delta, line.rho))
            return [] if is_free else ["a refusal has a charge, but must be free"]
        if line.kind == "reserve":
            return self._reserve(line)
        if line.kind == "commit":
            return self._commit(line)
        return ["unknown kind of line"]

    def _add(self, line: Line) -> list[str]:
        if line.data_set in self.data_sets:
            return ["the data set was added before"]
        self.data_sets[line.data_set] = data_set_of(line, self._accounting)
        self._amounts[line.data_set] = {}
        self.totals[line.data_set] = Total()
        return []

    def _reserve(self, line: Line) -> list[str]:
        faults = []
        if line.entry in self._reserved:
            return ["the entry was reserved before"]
        data_set = self.data_sets[line.data_set]
        cost = Cost.from_json(content_of(line)["cost"])
        amount = amount_of(line.epsilon, line.delta, line.rho)
        if amount != charge(cost, data_set):
            faults.append("the charge is not that of the stated cost")
        self._reserved[str(line.entry)] = cost
        self._amounts[line.data_set][str(line.entry)] = amount
        self.totals[line.data_set] = self.totals[line.data_set].plus(amount)
        if not data_set.limit.allows(self.totals[line.data_set]):
            faults.append(f"data set {line.data_set!r} is above its limit")
        if data_set.period is not None:
            faults += self._period_faults(line, data_set, data_set.period)
        return faults

    def _period_faults(self, line: Line, data_set: DataSet, period: Period) -> list[str]:
        """Return a fault if the releases of a period are above its limit at a reservation."""
        entry, amounts = str(line.entry), self._amounts[line.data_set]
        start = period.start(datetime.fromisoformat(content_of(line)["time"]))
        entries = self._periods.setdefault((line.data_set, start), [])
        entries.append(entry)
        if period.limit.allows(Total.of(amounts[entry] for entry in entries)):
            return []
        return [f"data set {data_set.name!r} is above its limit of a {period.every}"]

    def _commit(self, line: Line) -> list[str]:
        entry = str(line.entry)
        reserved = self._amounts[line.data_set].get(entry)
        if reserved is None or entry in self._committed:
            return ["no open entry of this data set matches it"]
        self._committed.add(entry)
        amount = amount_of(line.epsilon, line.delta, line.rho)
        self._amounts[line.data_set][entry] = amount
        self.totals[line.data_set] = self.totals[line.data_set].minus(reserved).plus(amount)
        stated_cost = content_of(line)["cost"]
        if stated_cost is None:
            return [] if amount == reserved else ["the charge has changed without a cost"]
        cost = Cost.from_json(stated_cost)
        expected = charge(cost, self.data_sets[line.data_set])
        if reserved.rho is None:
            expected = expected.without_rho
        if amount != expected or not cost.is_within(self._reserved[entry]):
            return ["the cost is not within what was reserved"]
        return []
