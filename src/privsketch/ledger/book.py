"""`Ledger`: data sets with limits, and what was released of them.

A release is reserved before any noise is drawn, and committed with its receipt afterwards. What
was reserved is spent for good: whatever happens in between, nobody can say that nothing was seen.
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
    entries_of,
    refusal_text,
    require_whole,
    stated,
    total_alone,
)
from privsketch.ledger.cost import Cost
from privsketch.ledger.marks import Marks, Match, matches_elsewhere, readable_marks, recognised

MAX_NAME = 200
MAX_NOTE = 10_000
_HEAD = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TOLD: set[Path] = set()  # ledgers whose holder was warned, once for a process
_OPEN_TO_OTHERS = (
    "others than its owner may read or write this ledger, and it is for its holder alone: whoever "
    "reads it may find out whether a row is among the records"
)


class Ledger:
    """What all releases of a holder have cost together, in one file of SQLite.

    Data sets have a name, a unit and a limit. A release is *reserved* before any noise is drawn,
    which is refused above the limit, and *committed* with its receipt once it is made. What was
    reserved is spent, whatever happens after that. Any number of processes may use a ledger at a
    time, on a local file system. It is for its holder alone: names and times are the holder's, and
    a secret key is in it.

    Parameters
    ----------
    path : str or path
        An existing ledger; `Ledger.create` makes one.

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
        if self._path not in _TOLD and store.is_open_to_others(self._path):
            _TOLD.add(self._path)
            warnings.warn(f"{path}: {_OPEN_TO_OTHERS}; chmod 600 {path}", PrivsketchWarning, 2)

    @classmethod
    def create(cls, path: str | os.PathLike[str], accounting: Accounting = "basic") -> Ledger:
        """Make a new ledger, which only its owner can read.

        Parameters
        ----------
        path : str or path
            Where nothing is yet.
        accounting : {"basic", "zcdp"}
            What decides at a limit: sums of epsilon and delta, or the sum of rho.
        """
        require_one_of("accounting", accounting, ACCOUNTINGS)
        store.create(Path(path), accounting)
        return cls(path)

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._path

    @property
    def accounting(self) -> Accounting:
        """What decides at a limit."""
        return self._accounting

    @property
    def key(self) -> bytes:
        """The secret key of marks. It stays in the ledger."""
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
    ) -> None:
        """Add a data set with its limit, which stays as it is.

        Parameters
        ----------
        name : str
            Of 1 to 200 printable characters.
        epsilon, delta : float or Fraction
            The most that all releases together may cost.
        neighbours : {"add-remove", "replace"}
            What has to stay hidden.
        person : str, optional
            The column that names persons, if persons are protected instead of records.
        without_rho : float or Fraction
            In a ledger of zcdp, the share of the limit that is kept apart for releases without a
            rho, such as masked sketches; without one they are refused.
        max_refusals : int
            How often a release may be refused because of what records say. Then only releases that
            no record can stop are let in (docs/ledger.md).
        note : str
            For people.
        """
        limit = stated_limit(epsilon, delta, self._accounting, without_rho)
        require_one_of("neighbours", neighbours, NEIGHBOURS)
        if not is_name(name) or len(name) > MAX_NAME:
            expected = f"expected a printable name of 1 to {MAX_NAME} characters"
            raise ParameterError("name", name, expected)
        if not isinstance(note, str) or len(note) > MAX_NOTE or not _is_text(note):
            raise ParameterError("note", note, f"expected a text of at most {MAX_NOTE} characters")
        unit = Unit(person)
        content = {
            "neighbours": neighbours,
            "person": unit.person,
            "without_rho": str(limit.without_rho),
            "max_refusals": require_whole("max_refusals", max_refusals),
            "note": note,
        }
        with store.opened(self._path, write=True) as log:
            if any(True for _ in log.lines(name, kind="add")):
                raise ParameterError(
                    "name", name, "the ledger has a data set of this name", "its limit stays"
                )
            log.append("add", name, None, Amount(limit.epsilon, limit.delta, None), content)

    def _repr_html_(self) -> str:
        names, rows = ["limit", "spent", "left", "entries"], []
        standing = self.datasets()
        for found in standing:
            limit, spent = found.limit, found.spent
            cells = [limit.text, limit.spent_text(spent), limit.left_text(spent)]
            rows.append([*cells, str(found.n_entries)])
        title = f"Ledger {self._path.name}, accounting {self._accounting}: for its holder alone"
        return shown(title, [], table("data set", [one.name for one in standing], names, rows))

    def datasets(self) -> list[DataSet]:
        """All data sets as they stand, in the order in which they were added."""
        with store.opened(self._path) as log, reading(str(self._path)):
            return self._data_sets(log)

    def data_set(self, name: str) -> DataSet:
        """One data set as it stands, without what its ballots cost alone."""
        with store.opened(self._path) as log:
            return self._data_set(log, name)

    def total(self, name: str) -> Total:
        """What all entries of a data set cost together, exactly."""
        with store.opened(self._path) as log:
            return self._data_set(log, name).spent

    def total_alone(self, name: str) -> Total:
        """What all ballots of a data set cost together if others join forces, in every study.

        It holds instead of what they count in `total`, not on top of it.
        """
        with store.opened(self._path) as log, reading(str(self._path)):
            return total_alone(self._data_set(log, name), entries_of(log.lines(name)))

    def quote(self, name: str, cost: Cost) -> Quote:
        """What a release would cost and whether it would be allowed; nothing changes.

        Parameters
        ----------
        name : str
            Of the data set.
        cost : Cost
        """
        with store.opened(self._path) as log:
            self._require_whole(log)
            found = self._data_set(log, name)
        try:
            charged = charge(cost, found)
        except BudgetError as error:
            nothing = Amount(Fraction(0), Fraction(0), Fraction(0))
            return Quote(False, nothing, found.spent, found.left, f"refused: {error}")
        after = found.spent.plus(charged)
        allowed = found.limit.allows(after)
        if allowed:
            words = f"allowed; {found.limit.left_text(after)} would be left"
        else:
            words = f"refused: {refusal_text(found, cost, charged)}"
        return Quote(allowed, charged, after, found.left, words)

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
        """Spend a cost, before anything is drawn; on disk when this returns.

        Parameters
        ----------
        name : str
            Of the data set.
        cost : Cost
            At least what the release will cost.
        what : str
            What is about to be released, for people.
        source : str, optional
            The name of the records in receipts.
        marks : Marks, optional
            Of the records; other data sets that have the same ones are told.
        alone : Cost, optional
            Of a ballot: what it costs if everybody else in its study joins forces. The limit is
            about `cost`; these add up beside it (`total_alone`).

        Raises
        ------
        BudgetError
            The limit does not allow it. Nothing was spent.
        FileError
            A line of the ledger was altered or taken away: what is left is not known.
        """
        if not isinstance(what, str) or not _is_text(what):
            raise ParameterError("what", what, "expected a text")
        if source is not None:
            checked_source(source)
        content = {"cost": cost.to_json(), "what": what, "source": source}
        if alone is not None:
            content["alone"] = alone.to_json()
        entry = secrets.token_hex(8)
        with store.opened(self._path, write=True) as log:
            self._require_whole(log)
            found = self._data_set(log, name)
            try:
                charged = charge(cost, found)
            except BudgetError as error:
                raise BudgetError(f"data set {name!r}: {error.text}; nothing was spent") from None
            if not found.limit.allows(found.spent.plus(charged)):
                raise BudgetError(
                    f"data set {name!r}: {refusal_text(found, cost, charged)}; nothing was spent"
                )
            log.append("reserve", name, entry, charged, content)
            if marks is None:
                return Reservation(entry, name, charged)
            kept = log.marks()
            log.keep_marks(name, marks.to_bytes())
        # Compared outside of the lock: others may write meanwhile.
        return Reservation(entry, name, charged, *matches_elsewhere(name, marks, kept))

    def refuse(self, name: str, *, what: str, source: str | None = None) -> DataSet:
        """Enter that a release was refused because of what records say; it costs nothing.

        Parameters
        ----------
        name : str
            Name of the data set.
        what : str
            What would have been released, for people.
        source : str, optional
            The name of the records in receipts.

        Returns
        -------
        DataSet
            As it stands now, with the number of its refusals.
        """
        nothing = Amount(Fraction(0), Fraction(0), Fraction(0))
        with store.opened(self._path, write=True) as log:
            self._data_set(log, name)
            log.append("refuse", name, None, nothing, {"what": what, "source": source})
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
        """Add the receipt of what was reserved; once.

        Parameters
        ----------
        entry : str or Reservation
        receipt : dict, optional
            As JSON.
        cost : Cost, optional
            What the release cost, if that is less than what was reserved. More is an error, and
            the reservation stays.
        output : str, optional
            Where the result went.
        marks : Marks, optional
            Of records that were read after the cost was reserved.
        void : bool
            Of a ballot: its study ended without a total, and nobody can open it any more. It then
            costs nothing.
        """
        entry = entry.id if isinstance(entry, Reservation) else entry
        if output is not None and not (isinstance(output, str) and _is_text(output)):
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
                # What was counted without a rho stays so: its share was kept apart for it.
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
        """What was released, in order: of one data set, or of all."""
        with store.opened(self._path) as log:
            if name is not None:
                self._data_set(log, name)
            with reading(str(self._path)):
                return entries_of(log.lines(name))

    def recognise(self, marks: Marks) -> list[Match]:
        """Data sets that have something in common with these records, the closest first."""
        with store.opened(self._path) as log:
            kept = log.marks()
        return recognised(marks, readable_marks(kept))

    def cautions(self, name: str, marks: Marks) -> list[str]:
        """What the holder should know before these records are released under a name.

        Parameters
        ----------
        name : str
            Of the data set.
        marks : Marks
            Of the records.
        """
        with store.opened(self._path) as log:
            kept = log.marks()
        nothing = Amount(Fraction(0), Fraction(0), None)
        return Reservation("", name, nothing, *matches_elsewhere(name, marks, kept)).cautions

    @property
    def head(self) -> str:
        """Hash of the last line, 64 hex digits: kept elsewhere, it shows later what is missing."""
        with store.opened(self._path) as log:
            return log.head[1]

    def check(self, *, head: str | None = None) -> list[str]:
        """What is wrong with the file, in sentences; empty if nothing is.

        SQLite's own check, the chain of hashes over all lines, every cost, and at every entry
        whether the limit was kept.

        Parameters
        ----------
        head : str, optional
            The `head` at an earlier time, which was kept elsewhere. It must be that of a line
            still: else an older copy was brought back, or the file was written anew.
        """
        from privsketch.ledger.verify import problems

        if head is not None and (not isinstance(head, str) or not _HEAD.fullmatch(head)):
            raise ParameterError("head", head, "expected the 64 hex digits that `check` has shown")
        with store.opened(self._path) as log:
            return problems(log, head)

    def export(self) -> dict[str, Any]:
        """All data sets and entries with their receipts, as JSON; neither marks nor the key."""
        with store.opened(self._path) as log, reading(str(self._path)):
            number, head = log.head
            return {
                "format": "privsketch-ledger-export",
                "version": store.VERSION,
                "accounting": log.accounting,
                "time": log.time,
                "n_lines": number,
                "head": head,
                "data_sets": [found.to_json() for found in self._data_sets(log)],
                "entries": [entry.to_json() for entry in entries_of(log.lines())],
            }

    def _require_whole(self, log: store.Log) -> None:
        """Refuse a ledger that was edited: it may say that more is left than is.

        `check` looks at all that can be wrong; this is what a release can wait for.
        """
        for _, found in log.chained():
            if found:
                raise FileError(
                    f"{self._path}: {found[0]}; not a whole ledger, do not use it, and bring back "
                    "a copy"
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
        """All data sets as they stand, with what their ballots cost alone."""
        found = [self._standing(log, line) for line in list(log.lines(kind="add"))]
        entries = entries_of(log.lines())
        return [
            replace(one, alone=total_alone(one, (e for e in entries if e.data_set == one.name)))
            for one in found
        ]

    def _standing(self, log: store.Log, line: store.Line) -> DataSet:
        amounts = log.amounts(line.data_set)
        return replace(
            stated(line, self._accounting),
            spent=Total.of(amounts.values()),
            n_entries=len(amounts),
            n_open=len(amounts) - log.count(line.data_set, "commit"),
            n_refusals=log.count(line.data_set, "refuse"),
        )


def _is_text(value: str) -> bool:
    """Whether a text can be written down: no halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
