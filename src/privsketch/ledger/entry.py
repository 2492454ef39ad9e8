"""Entries of releases: a cost is reserved before noise is drawn, and committed afterwards.

Every release passes through an entry. Without a ledger it does nothing. With one it first checks
that the limit allows the cost, reserves it when noise is about to be drawn, and commits the
receipt. A step of a run passes `STEP` and belongs to the run's entry. Any other release meanwhile,
as in a callback, has an entry of its own.

The environment may name a ledger for everything. Then the noise function itself refuses to draw
outside of an entry (noise/mechanism).

Estimators may fit the same records many times, and each fit is a release. Without a ledger nobody
adds up, so the process does (`ProcessCosts`), and warns once with the total. It recognises records
by marks under a key of its own.
"""

from __future__ import annotations

import atexit
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol
from weakref import WeakMethod

from privsketch._base.errors import (
    BudgetError,
    ParameterError,
    PrivsketchError,
    RecordError,
    TableError,
)
from privsketch._base.threads import variable_set
from privsketch.design.cautions import warn_of
from privsketch.facts.budget import Budget, Unit, cost_text, exact, exact_sum
from privsketch.facts.receipt import Receipt
from privsketch.ledger.book import Ledger
from privsketch.ledger.contents import Reservation
from privsketch.ledger.cost import Cost
from privsketch.ledger.marks import Marks, compared
from privsketch.noise.calibration import rho_of_budget
from privsketch.noise.mechanism import LEDGER, entered_noise

DATASET = "PRIVSKETCH_DATASET"
LedgerName = tuple[Any, str] | str | os.PathLike[str] | None  # a path and the name of a data set


@dataclass(frozen=True)
class Counted:
    """The ledger of an estimator, whose fits the process counts, with a ledger or without."""

    ledger: LedgerName


class Step:
    """The type of `STEP`, which a step of a run passes in place of a ledger."""


STEP = Step()


class MarksSource(Protocol):
    """An object that knows the marks of records."""

    @property
    def marks(self) -> Marks:
        """Marks of all records so far."""


class OpenEntry:
    """One release, from the check of the limit to its receipt."""

    def __init__(
        self,
        ledger: Ledger | None,
        name: str,
        cost: Callable[[], Cost],
        what: str,
        source: Any,
        alone: Callable[[], Cost] | None = None,
        is_total: bool = False,
    ) -> None:
        self._ledger, self._name, self._cost = ledger, name, cost
        self._what, self._source, self._alone = what, source, alone
        self._lock = Lock()
        self._marks_source: MarksSource | None = None
        self._is_counted = False
        self._has_marks = False
        self._reserved: Reservation | None = None
        if ledger is not None:
            quote = ledger.quote(name, cost())
            if not quote.allowed:
                reason = quote.words.removeprefix("refused: ")
                raise BudgetError(f"data set {name!r}: {reason}; nothing was spent")
            if not is_total:
                require_refusable(ledger, name)

    @property
    def key(self) -> bytes | None:
        """Secret key of marks, for the first reader of the records; None for all others."""
        if self._has_marks or (self._ledger is None and not self._is_counted):
            return None
        self._has_marks = True
        return _PROCESS_KEY if self._ledger is None else self._ledger.key

    @property
    def reserved(self) -> Reservation | None:
        """The reservation; None before noise is drawn, or without a ledger."""
        return self._reserved

    def counted(self) -> OpenEntry:
        """Let the process add up the cost of this release."""
        self._is_counted = True
        return self

    def set_marks_source(self, source: MarksSource) -> None:
        """Set the object that knows the marks of the records when noise is about to be drawn."""
        self._marks_source = source

    def _known_marks(self) -> Marks | None:
        return None if self._marks_source is None else self._marks_source.marks

    def reserve(self) -> None:
        """Spend the cost once; called before noise is drawn, by the thread that draws first."""
        with self._lock:
            if self._ledger is None or self._reserved is not None:
                return
            cost = self._cost()
            marks = self._known_marks()
            if marks is not None:  # before spending: users may turn warnings into errors
                warn_of(self._ledger.cautions(self._name, marks))
            try:
                self._reserved = self._ledger.reserve(
                    self._name,
                    cost,
                    what=self._what,
                    source=self._source,
                    marks=marks,
                    alone=None if self._alone is None else self._alone(),
                )
            except PrivsketchError:
                raise
            except BaseException:  # an interrupt, perhaps after the entry was made
                _notify_listeners()
                raise
        _notify_listeners()

    def commit(self, receipt: Receipt, marks: Marks | None = None) -> None:
        """Add the receipt, and marks of records that were read after noise was drawn."""
        if self._is_counted:
            counted = self._known_marks() if marks is None else marks
            if counted is not None:
                warn_of(PROCESS_COSTS.count(counted, receipt))
        if self._ledger is None or self._reserved is None:
            return
        try:
            texts = [] if marks is None else self._ledger.cautions(self._name, marks)
            self._ledger.commit(
                self._reserved,
                receipt=receipt.to_json(),
                cost=cost_of_receipt(receipt, self._cost().unit),
                output=_output.get(),
                marks=marks,
            )
        except BudgetError:
            raise
        except PrivsketchError as error:  # such as a full disk: the result exists, and is paid for
            texts = [
                "the release was made and counts as spent, but its receipt is not in the ledger, "
                f"where entry {self._reserved.id} stays reserved ({error})"
            ]
        warn_of(texts)

    @contextmanager
    def entered(self) -> Iterator[OpenEntry]:
        """Allow noise in this block; the cost is reserved before the first draw."""
        with self.watching(), entered_noise(None if self._ledger is None else self.reserve):
            yield self

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Enter a refusal that depends on what records say, unless the cost is spent already."""
        try:
            yield
        except RecordError as error:
            if self._ledger is not None and self._reserved is None and _depends_on_records(error):
                enter_refusal(self._ledger, self._name, self._what, self._source)
            raise


_output: ContextVar[str | None] = ContextVar("privsketch_output", default=None)
_listeners: ContextVar[tuple[Callable[[], None], ...]] = ContextVar(
    "privsketch_reserved", default=()
)


def _notify_listeners() -> None:
    for listener in _listeners.get():
        listener()


def _depends_on_records(error: RecordError) -> bool:
    """Return whether an error depends on what records say, not on public facts of a table."""
    return not isinstance(error, TableError)


def require_refusable(ledger: Ledger, name: str) -> None:
    """Refuse a release that a record could stop, if that has happened too often."""
    data_set = ledger.data_set(name)
    if data_set.n_refusals >= data_set.max_refusals:
        raise BudgetError(
            f"data set {name!r}: {data_set.n_refusals} releases were refused because of what "
            f"records say, and {data_set.max_refusals} may be; each reveals something. Use a "
            "schema by which no record stops a release: `unreadable='missing'`, and no rule that "
            "is 'error' (privsketch schema check says which are)"
        )


def enter_refusal(ledger: Ledger, name: str, what: str, source: str | None) -> None:
    """Enter a refusal, and warn the holder beside the error itself."""
    texts: list[str] = []
    try:
        data_set = ledger.refuse(name, what=what, source=source)
        texts.append(
            f"refused because of what a record says: the ledger has {data_set.n_refusals} such "
            f"refusals of data set {name!r}, and {data_set.max_refusals} may be"
        )
    except PrivsketchError as error:  # a full disk
        texts.append(f"the refusal is not in the ledger ({error})")
    warn_of(texts)


@contextmanager
def counted_refusals(ledger: LedgerName, *, what: str) -> Iterator[None]:
    """Enter refusals of a block that reads records before a release begins."""
    try:
        yield
    except RecordError as error:
        data_set = named_data_set(ledger) if _depends_on_records(error) else None
        if data_set is not None:
            enter_refusal(*data_set, what, None)
        raise


class _StepOfRun(OpenEntry):
    """A step of a run: its noise belongs to the run, which has an entry or none."""

    def __init__(self) -> None:
        super().__init__(None, "", lambda: Cost(exact(0.0)), "", None)

    @contextmanager
    def entered(self) -> Iterator[OpenEntry]:
        """Leave noise and refusals to the entry of the run."""
        yield self


def open_entry(
    ledger: LedgerName | Counted | Step,
    cost: Callable[[], Cost],
    *,
    what: str,
    source: str | None,
    alone: Callable[[], Cost] | None = None,
    is_total: bool = False,
) -> OpenEntry:
    """Return the entry of a release that is about to begin.

    Parameters
    ----------
    ledger : (path, name), path, STEP or None
        Where to enter the release; None for what the environment names. A path alone is enough for
        a ledger with one data set.
    cost : callable
        Upper bound of the cost; called now, and again when noise is about to be drawn.
    what : str
        What is released, for people.
    source : str or None
        Name of the records in receipts.
    alone : callable, optional
        Of a ballot: its cost if everybody else in its study colludes.
    is_total : bool
        Whether no record can stop the release; it is then allowed after any number of refusals.
    """
    if isinstance(ledger, Step):
        return _StepOfRun()
    choice = ledger.ledger if isinstance(ledger, Counted) else ledger
    book, name = named_data_set(choice) or (None, "")
    entry = OpenEntry(book, name, cost, what, source, alone, is_total)
    return entry.counted() if isinstance(ledger, Counted) else entry


def named_data_set(ledger: LedgerName) -> tuple[Ledger, str] | None:
    """Return the ledger and the data set, stated or from the environment; None without any."""
    path, name = ledger, None
    if isinstance(ledger, tuple | list):
        if len(ledger) != 2:
            raise ParameterError("ledger", ledger, "expected a path and the name of a data set")
        path, name = ledger
    if path is None:
        path = os.environ.get(LEDGER) or None
        if path is None and name is not None:
            advice = f"state the ledger's file, here or as {LEDGER}"
            raise ParameterError("ledger", None, "a data set without a ledger", advice)
    if path is None:
        return None
    if isinstance(path, Ledger):
        advice = "give its file: (ledger.path, 'name')"
        raise ParameterError("ledger", ledger, "expected a path and the name of a data set", advice)
    if not isinstance(path, str | os.PathLike):
        raise ParameterError("ledger", ledger, "expected a path and the name of a data set")
    if path == "":
        raise ParameterError("ledger", ledger, "expected the file of a ledger", "None is for none")
    book = Ledger(path)
    if name is None:
        name = os.environ.get(DATASET) or None
    if name is None:
        names = [data_set.name for data_set in book.datasets()]
        if not names:
            raise ParameterError(
                "the ledger has no data set yet; add one with its limit: Ledger.add, privsketch "
                "ledger add"
            )
        if len(names) > 1:
            raise ParameterError(
                f"the ledger has {len(names)} data sets ({', '.join(map(repr, names[:8]))}); say "
                f"whose records these are: `ledger=(path, name)`, `dataset` or {DATASET}"
            )
        name = names[0]
    return book, name


def cost_of_budget(budget: Budget) -> Cost:
    """Return the cost of a run that spends a whole budget in shares."""
    rho = None if budget.delta == 0 else exact(rho_of_budget(budget.epsilon, budget.delta))
    return Cost(exact(budget.epsilon), exact(budget.delta), rho, budget.neighbours, budget.unit)


def cost_of_receipt(receipt: Receipt, unit: Unit) -> Cost:
    """Return the cost of a release."""
    rho = None if receipt.rho is None else exact(receipt.rho)
    return Cost(exact(receipt.epsilon), exact(receipt.delta), rho, receipt.neighbours, unit)


def writing_to(output: str | None) -> AbstractContextManager[None]:
    """Let entries of this block state where the result went."""
    return variable_set(_output, output)


def watch_entries(listener: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `listener` when a cost was reserved in this block."""
    return variable_set(_listeners, (*_listeners.get(), listener))


_PROCESS_KEY = secrets.token_bytes(32)  # of the marks of this process
_MIN_COMMON_SHARE = 0.2  # of records of two fits, from which on their costs are added up
_MAX_FITS = 10_000  # fits that a process remembers


@dataclass
class _Fit:
    marks: Marks
    receipt: Receipt


class ProcessCosts:
    """Costs of what estimators of this process have released so far; thread-safe."""

    def __init__(self) -> None:
        self._fits: list[_Fit] = []
        # For each kind of table: fits that were said, and all fits that repeat its records.
        self._said: dict[tuple[bytes, str], int] = {}
        self._repeats: dict[tuple[bytes, str], list[Receipt]] = {}
        self._lock = Lock()

    def count(self, marks: Marks, receipt: Receipt) -> list[str]:
        """Record a fit, and return a warning if it repeats earlier records; at most one."""
        fit, kind = _Fit(marks, receipt), (marks.encoding, receipt.unit)
        with self._lock:
            earlier = [old for old in self._fits if _is_repeat(old, fit)]
            self._fits = [*self._fits[-_MAX_FITS:], fit]
            if not earlier:
                return []
            receipts = [old.receipt for old in (*earlier, fit)]
            # Folds of a search may share no records with each other, but with an earlier fit.
            if len(receipts) > len(self._repeats.get(kind, ())):
                self._repeats[kind] = receipts
            if kind in self._said:
                return []
            self._said[kind] = len(receipts)
            if len(self._said) == 1:
                _call_at_the_end(WeakMethod(self._warn_of_totals))
        return [
            f"{_repeats_text(receipts)} so far, and each further one adds its own; a ledger "
            "(ledger=) adds up and keeps to a limit. (shown now and when the work is done)"
        ]

    def totals(self) -> list[str]:
        """Return the total of every table whose total has grown since it was said."""
        with self._lock:
            grown = {
                kind: receipts
                for kind, receipts in self._repeats.items()
                if len(receipts) > self._said.get(kind, 0)
            }
            self._said.update({kind: len(receipts) for kind, receipts in grown.items()})
        return [f"{_repeats_text(receipts)}." for receipts in grown.values()]

    def _warn_of_totals(self) -> None:
        warn_of(self.totals())


def _repeats_text(receipts: Sequence[Receipt]) -> str:
    """Describe releases of the same records and their cost."""
    epsilon, delta = ([getattr(each, name) for each in receipts] for name in ("epsilon", "delta"))
    return (
        f"this process has released these records, or part of them, {len(receipts)} times: every "
        "fit is a release, those of searches, clones and pipelines too, and other processes count "
        "their own. Together these cost "
        f"{cost_text(exact_sum(epsilon), exact_sum(delta))}"
    )


def _call_at_the_end(reference: WeakMethod[Callable[[], None]]) -> None:
    """Call a method when this process ends, and in a notebook after every cell."""
    process = os.getpid()

    def call(*_: Any) -> None:
        method = reference()
        if method is not None and os.getpid() == process:  # not in a fork
            method()

    atexit.register(call)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        shell.events.register("post_run_cell", call)


def _is_repeat(old: _Fit, new: _Fit) -> bool:
    """Return whether two fits released the same records, or many of them."""
    if (old.receipt.neighbours, old.receipt.unit) != (new.receipt.neighbours, new.receipt.unit):
        return False
    match = compared(new.marks, old.marks, "")
    return match is not None and max(match.share, match.old_share) >= _MIN_COMMON_SHARE


PROCESS_COSTS = ProcessCosts()
