"""`Ledger`: data sets with limits, and their releases.

A release is reserved before any noise is drawn, and committed with its receipt afterwards. A
reserved cost stays spent: if the process ends in between, somebody may have seen the result.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from privsketch._base.errors import (
    BudgetError,
    FileError,
    ParameterError,
    PrivsketchWarning,
    require_one_of,
)
from privsketch._base.formats import canonical_json, reading
from privsketch._base.notebook import shown, table
from privsketch.facts.budget import NEIGHBOURS, Neighbours, Unit, checked_source, is_name
from privsketch.ledger import store
from privsketch.ledger.accounting import ACCOUNTINGS, Accounting, Amount, Total, stated_limit
from privsketch.ledger.contents import (
    MAX_REFUSALS,
    DataSet,
    Entry,
    Quote,
    Reservation,
    charge,
    data_set_of,
    entries_of,
    refusal_text,
    require_not_negative,
    total_alone,
)
from privsketch.ledger.cost import Cost
from privsketch.ledger.marks import Marks, Match, matches_elsewhere, readable_marks, recognised
from privsketch.ledger.periods import Every, stated_period

MAX_DATA_SET_NAME = 200
MAX_NOTE = 10_000
_HEAD = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WARNED: set[Path] = set()  # ledgers whose holder this process has warned
_OPEN_TO_OTHERS = (
    "others than its owner may read or write this ledger, and it is for its holder alone: whoever "
    "reads it may find out whether a row is among the records"
)
_NOTHING = Amount(Fraction(0), Fraction(0), Fraction(0))


class Ledger:
    """Record of what all releases of a holder cost together, in one SQLite file.

    Data sets have a name, a unit and a limit. A release is *reserved* before any noise is drawn,
    and refused above the limit. It is *committed* with its receipt once it is made. A reserved
    cost is spent, whatever happens afterwards. Several processes may use a ledger at the same
    time, on a local file system. The file is for its holder alone: it contains names, times and a
    secret key.

    Parameters
    ----------
    path : str or path
        File of an existing ledger; `Ledger.create` makes one.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import privsketch as ps
    >>> from privsketch.ledger.cost import Cost
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "budget.ledger"
    >>> ledger = ps.Ledger.create(path)
    >>> ledger.add("visits", epsilon=1.0, delta=1e-6)
    >>> print(ledger.quote("visits", Cost(0.3, 1e-7)).words)
    allowed; epsilon = 0.7, delta = 9e-07 would be left
    >>> entry = ledger.reserve("visits", Cost(0.3, 1e-7), what="a sketch")
    >>> ledger.commit(entry)
    >>> ledger.total("visits").epsilon
    Fraction(3, 10)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()  # the same file wherever the process goes
        with store.opened(self._path) as log:
            self._accounting = log.accounting
        if self._path not in _WARNED and store.is_open_to_others(self._path):
            _WARNED.add(self._path)
            warnings.warn(f"{path}: {_OPEN_TO_OTHERS}; chmod 600 {path}", PrivsketchWarning, 2)

    @classmethod
    def create(cls, path: str | os.PathLike[str], accounting: Accounting = "basic") -> Ledger:
        """Make a new ledger, which only its owner can read.

        Parameters
        ----------
        path : str or path
            File of the new ledger, which must not exist.
        accounting : {"basic", "zcdp"}
            What decides at a limit: sums of epsilon and delta, or the sum of rho.
        """
        require_one_of("accounting", accounting, ACCOUNTINGS)
        store.create(Path(path), accounting)
        return cls(path)

    @property
    def path(self) -> Path:
        """Path of the ledger file."""
        return self._path

    @property
    def accounting(self) -> Accounting:
        """What decides at a limit: "basic" or "zcdp"."""
        return self._accounting

    @property
    def key(self) -> bytes:
        """Secret key of the marks, which never leaves the ledger."""
        with store.opened(self._path) as log:
            return bytes(log.key)

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def add(
        self,
        name: str,
        *,
        epsilon: float | Fraction,
        delta: float | Fraction = 0,
        neighbours: Neighbours = "add-remove",
        person: str | None = None,
        without_rho: float | Fraction = 0,
        max_refusals: int = MAX_REFUSALS,
        note: str = "",
        period: Every | None = None,
        period_epsilon: float | Fraction | None = None,
    ) -> None:
        """Add a data set with its limit, which cannot be changed later.

        Parameters
        ----------
        name : str
            Name of the data set, 1 to 200 printable characters.
        epsilon, delta : float or Fraction
            Largest total cost of all releases.
        neighbours : {"add-remove", "replace"}
            Which change of the table stays hidden.
        person : str, optional
            The column that names persons, if persons are protected instead of records.
        without_rho : float or Fraction
            With zcdp, the share of the limit that is reserved for releases without a rho, such as
            masked sketches. They are refused if the share is 0.
        max_refusals : int
            Number of releases that may be refused because of what records say. Beyond it, only
            releases that no record can stop are allowed (docs/ledger.md).
        note : str
            A note for people.
        period : {"year", "quarter", "month"}, optional
            Part of the calendar, in UTC, with a limit of its own beside the total one.
        period_epsilon : float or Fraction, optional
            Largest epsilon within a period; the total limit alone bounds delta.
        """
        limit = stated_limit(epsilon, delta, self._accounting, without_rho)
        require_one_of("neighbours", neighbours, NEIGHBOURS)
        if not is_name(name) or len(name) > MAX_DATA_SET_NAME:
            expected = f"expected a printable name of 1 to {MAX_DATA_SET_NAME} characters"
            raise ParameterError("name", name, expected)
        if not _is_text(note) or len(note) > MAX_NOTE:
            raise ParameterError("note", note, f"expected a text of at most {MAX_NOTE} characters")
        unit = Unit(person)
        each = stated_period(period, period_epsilon, limit)
        content: dict[str, Any] = {
            "neighbours": neighbours,
            "person": unit.person,
            "without_rho": str(limit.without_rho),
            "max_refusals": require_not_negative("max_refusals", max_refusals),
            "note": note,
        }
        if each is not None:
            content["period"] = {"every": each.every, "epsilon": str(each.limit.epsilon)}
        with store.opened(self._path, write=True) as log:
            if any(True for _ in log.lines(name, kind="add")):
                raise ParameterError(
                    "name", name, "the ledger has a data set of this name", "its limit stays"
                )
            log.append("add", name, None, Amount(limit.epsilon, limit.delta, None), content)

    def _repr_html_(self) -> str:
        title = f"Ledger {self._path.name}, accounting {self._accounting}: for its holder alone"
        names, rows = [], []
        for data_set in self.datasets():
            limit, spent = data_set.limit, data_set.spent
            names.append(data_set.name)
            texts = limit.text, limit.spent_text(spent), limit.left_text(spent)
            rows.append([*texts, str(data_set.n_entries)])
        return shown(
            title, [], table("data set", names, ["limit", "spent", "left", "entries"], rows)
        )

    def datasets(self) -> list[DataSet]:
        """Return all data sets in their current state, in the order in which they were added."""
        with store.opened(self._path) as log, reading(str(self._path)):
            return self._data_sets(log)

    def data_set(self, name: str) -> DataSet:
        """Return the current state of a data set, without `alone`."""
        with store.opened(self._path) as log:
            return self._data_set(log, name)

    def total(self, name: str) -> Total:
        """Return the exact total cost of all entries of a data set."""
        with store.opened(self._path) as log:
            return self._data_set(log, name).spent

    def total_alone(self, name: str) -> Total:
        """Return the total cost of a data set's ballots if everybody else in each study colludes.

        It replaces what the ballots count in `total`; the two do not add up.
        """
        with store.opened(self._path) as log, reading(str(self._path)):
            return total_alone(self._data_set(log, name), entries_of(log.lines(name)))

    def quote(self, name: str, cost: Cost) -> Quote:
        """Return what a release would cost and whether it would be allowed; nothing changes."""
        with store.opened(self._path) as log:
            self._require_intact(log)
            data_set = self._data_set(log, name)
        try:
            charged = charge(cost, data_set)
        except BudgetError as error:
            return Quote(False, _NOTHING, data_set.spent, data_set.left, f"refused: {error}")
        after = data_set.spent.plus(charged)
        if data_set.over(charged):
            words = f"refused: {refusal_text(data_set, cost, charged)}"
            return Quote(False, charged, after, data_set.left, words)
        words = f"allowed; {data_set.left_text(charged)} would be left"
        return Quote(True, charged, after, data_set.left, words)

    def reserve(
        self,
        name: str,
        cost: Cost,
        *,
        what: str,
        source: str | None = None,
        marks: Marks | None = None,
        alone: Cost | None = None,
    ) -> Reservation:
        """Spend a cost before noise is drawn; it is on disk when this returns.

        Parameters
        ----------
        name : str
            Name of the data set.
        cost : Cost
            Upper bound of what the release will cost.
        what : str
            What is about to be released, for people.
        source : str, optional
            Name of the records in receipts.
        marks : Marks, optional
            Marks of the records. The reservation names other data sets with the same records.
        alone : Cost, optional
            Of a ballot: its cost if everybody else in its study colludes. The limit applies to
            `cost`; these costs add up separately (`total_alone`).

        Raises
        ------
        BudgetError
            The limit does not allow it. Nothing was spent.
        FileError
            A line of the ledger was altered or removed: the remainder is not known.
        """
        if not _is_text(what):
            raise ParameterError("what", what, "expected a text")
        if source is not None:
            checked_source(source)
        content = {"cost": cost.to_json(), "what": what, "source": source}
        if alone is not None:
            content["alone"] = alone.to_json()
        entry = secrets.token_hex(8)
        with store.opened(self._path, write=True) as log:
            self._require_intact(log)
            data_set = self._data_set(log, name)
            try:
                charged = charge(cost, data_set)
                if data_set.over(charged):
                    raise BudgetError(refusal_text(data_set, cost, charged))
            except BudgetError as error:
                raise BudgetError(f"data set {name!r}: {error.text}; nothing was spent") from None
            log.append("reserve", name, entry, charged, content)
            if marks is None:
                return Reservation(entry, name, charged)
            stored = log.marks()
            log.keep_marks(name, marks.to_bytes())
        # Marks are compared outside of the lock, so that others may write meanwhile.
        return Reservation(entry, name, charged, *matches_elsewhere(name, marks, stored))

    def refuse(self, name: str, *, what: str, source: str | None = None) -> DataSet:
        """Enter a release that was refused because of what records say; it costs nothing.

        Parameters
        ----------
        name, what, source
            As in `reserve`.

        Returns
        -------
        DataSet
            The data set in its current state, with the number of its refusals.
        """
        with store.opened(self._path, write=True) as log:
            self._data_set(log, name)
            log.append("refuse", name, None, _NOTHING, {"what": what, "source": source})
            return self._data_set(log, name)

    def commit(
        self,
        entry: str | Reservation,
        *,
        receipt: dict[str, Any] | None = None,
        cost: Cost | None = None,
        output: str | None = None,
        marks: Marks | None = None,
        void: bool = False,
    ) -> None:
        """Add the receipt to a reserved entry, which is possible once.

        Parameters
        ----------
        entry : str or Reservation
        receipt : dict, optional
            The receipt as JSON.
        cost : Cost, optional
            Cost of the release, if it is below the reserved one. A larger cost is an error, and
            the reservation stays.
        output : str, optional
            Where the result went.
        marks : Marks, optional
            Marks of records that were read after the cost was reserved.
        void : bool
            Of a ballot: its study ended without a total, and nobody can open the ballot any more.
            It then costs nothing.
        """
        entry = entry.id if isinstance(entry, Reservation) else entry
        if output is not None and not _is_text(output):
            raise ParameterError("output", output, "expected a text")
        try:
            canonical_json(receipt)
        except (TypeError, ValueError, RecursionError):
            raise ParameterError("receipt", receipt, "expected JSON of finite numbers") from None
        with store.opened(self._path, write=True) as log:
            lines = {line.kind: line for line in log.lines(entry=str(entry))}
            if "reserve" not in lines:
                raise ParameterError("entry", entry, "no such entry was reserved in this ledger")
            if "commit" in lines:
                raise ParameterError("entry", entry, "it was committed already")
            line = lines["reserve"]
            with reading(str(self._path)):
                reserved = Cost.from_json(store.content_of(line)["cost"])
                charged = store.amount_of(line.epsilon, line.delta, line.rho)
            if void:
                if cost is not None or "alone" not in store.content_of(line):
                    raise ParameterError("void", void, "only a ballot is void, and costs nothing")
                nothing = Fraction(0)
                cost = replace(reserved, epsilon=nothing, delta=nothing, rho=nothing)
            if cost is not None:
                if not cost.is_within(reserved):
                    raise BudgetError(
                        f"entry {entry}: the release cost {cost.text}, which is not within what "
                        f"was reserved, {reserved.text}; the reservation stays"
                    )
                lower = charge(cost, self._data_set(log, line.data_set))
                # An entry that was counted without a rho stays in the share reserved for those.
                charged = lower if charged.rho is not None else lower.without_rho
            content: dict[str, Any] = {
                "cost": None if cost is None else cost.to_json(),
                "receipt": receipt,
                "output": output,
            }
            if void:
                content["void"] = True
            log.append("commit", line.data_set, line.entry, charged, content)
            if marks is not None:
                log.keep_marks(line.data_set, marks.to_bytes())

    def entries(self, name: str | None = None) -> list[Entry]:
        """Return the entries of one data set, or of all, in order."""
        with store.opened(self._path) as log:
            if name is not None:
                self._data_set(log, name)
            with reading(str(self._path)):
                return entries_of(log.lines(name))

    def recognise(self, marks: Marks) -> list[Match]:
        """Return the data sets that share records with these marks, the closest first."""
        with store.opened(self._path) as log:
            stored = log.marks()
        return recognised(marks, readable_marks(stored))

    def cautions(self, name: str, marks: Marks) -> list[str]:
        """Return what the holder should know before records with these marks are released."""
        with store.opened(self._path) as log:
            stored = log.marks()
        return Reservation("", name, _NOTHING, *matches_elsewhere(name, marks, stored)).cautions

    @property
    def head(self) -> str:
        """Hash of the last line, 64 hex digits; a copy of it reveals missing lines later."""
        with store.opened(self._path) as log:
            return log.head[1]

    def check(self, *, head: str | None = None) -> list[str]:
        """Return the problems of the file, in sentences; empty if it is intact.

        The check covers SQLite's own integrity check, the chain of hashes over all lines, every
        cost, and the limit at every entry.

        Parameters
        ----------
        head : str, optional
            The `head` at an earlier time, which was kept elsewhere. It must still be the hash of
            a line; otherwise somebody restored an older copy, or rewrote the file.
        """
        from privsketch.ledger.verify import problems

        if head is not None and (not isinstance(head, str) or not _HEAD.fullmatch(head)):
            raise ParameterError("head", head, "expected the 64 hex digits that `check` has shown")
        with store.opened(self._path) as log:
            return problems(log, head)

    def export(self) -> dict[str, Any]:
        """Return all data sets and entries with their receipts, as JSON, without marks and key."""
        with store.opened(self._path) as log, reading(str(self._path)):
            number, head = log.head
            return {
                "format": "privsketch-ledger-export",
                "version": store.LEDGER_VERSION,
                "accounting": log.accounting,
                "time": log.time,
                "n_lines": number,
                "head": head,
                "data_sets": [data_set.to_json() for data_set in self._data_sets(log)],
                "entries": [entry.to_json() for entry in entries_of(log.lines())],
            }

    def require_intact(self) -> None:
        """Refuse a ledger whose lines were edited: what it says of costs may be false."""
        with store.opened(self._path) as log:
            self._require_intact(log)

    def _require_intact(self, log: store.Log) -> None:
        """Refuse a ledger that was edited: its remainder may be too large.

        This is the part of `check` that is fast enough for every release.
        """
        for _, faults in log.checked_lines():
            if faults:
                raise FileError(
                    f"{self._path}: {faults[0]}; not a whole ledger: do not use it, restore a copy"
                )

    def _data_set(self, log: store.Log, name: object) -> DataSet:
        if not isinstance(name, str):
            raise ParameterError("name", name, "expected the name of a data set")
        with reading(str(self._path)):
            for line in log.lines(name, kind="add"):
                return self._standing(log, line)
        raise ParameterError(
            "name",
            name,
            "the ledger has no data set of this name",
            "add it with its limit: Ledger.add, `privsketch ledger add`".replace("`", ""),
        )

    def _data_sets(self, log: store.Log) -> list[DataSet]:
        """Return all data sets in their current state, with `alone`."""
        data_sets = [self._standing(log, line) for line in list(log.lines(kind="add"))]
        entries = entries_of(log.lines())
        return [
            replace(d, alone=total_alone(d, (e for e in entries if e.data_set == d.name)))
            for d in data_sets
        ]

    def _standing(self, log: store.Log, line: store.Line) -> DataSet:
        amounts, data_set = log.amounts(line.data_set), data_set_of(line, self._accounting)
        return replace(
            data_set,
            period_spent=data_set.total_of_period(amounts, log.times(line.data_set)),
            spent=Total.of(amounts.values()),
            n_entries=len(amounts),
            n_open=len(amounts) - log.count(line.data_set, "commit"),
            n_refusals=log.count(line.data_set, "refuse"),
        )


def _is_text(value: object) -> bool:
    """Return whether a value is a text that can be encoded: one without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
