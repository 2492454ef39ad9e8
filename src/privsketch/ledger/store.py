"""The file of a ledger: an append-only log in SQLite.

A line adds a data set, reserves a cost, commits a release or counts a refusal. Its hash covers the
line before it. Everything else is computed from the lines. Costs are texts, "p/q": SQL never adds
them.

Processes: a write is one transaction under SQLite's lock, and on disk when it returns. The journal
is a rollback journal, so that the ledger is one file between writes. `synchronous = EXTRA` keeps a
power cut from undoing the last transaction. If a process is killed, its transaction is complete or
absent. Connections live for one operation, and none is open in a process while it forks: a child
would inherit SQLite's state of the locks, but not the locks. POSIX drops all locks of a file when
any descriptor of it is closed. So only SQLite opens the file here, and `formats` does so while no
thread works on a ledger.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from privsketch._base.errors import AccessError, FileError
from privsketch._base.formats import (
    LEDGER_ID,
    canonical_json,
    ledgers_at_work,
    require_writable,
    sync_folder,
    temporary_beside,
)
from privsketch.ledger.accounting import ACCOUNTINGS, Accounting, Amount

LEDGER_VERSION = 1
MARKS_KEY_BYTES = 32
BUSY_SECONDS = 120.0  # longest wait for others, whose operations take milliseconds each
_MAX_PAUSE = 0.01  # seconds between two attempts to begin

_SCHEMA = """
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    accounting TEXT NOT NULL,
    time TEXT NOT NULL,
    key BLOB NOT NULL
) STRICT;
CREATE TABLE log (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    data_set TEXT NOT NULL,
    entry TEXT,
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    rho TEXT,
    content TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_name ON log (data_set) WHERE kind = 'add';
CREATE UNIQUE INDEX one_step ON log (entry, kind) WHERE entry IS NOT NULL;
CREATE INDEX of_data_set ON log (data_set, number);
CREATE TABLE marks (
    data_set TEXT NOT NULL,
    marks BLOB NOT NULL,
    PRIMARY KEY (data_set, marks)
) STRICT;
CREATE TRIGGER no_change BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'lines stay'); END;
CREATE TRIGGER no_removal BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'lines stay'); END;
"""


class Line(NamedTuple):
    """One line of the log."""

    number: int
    kind: str
    data_set: str
    entry: str | None
    epsilon: str
    delta: str
    rho: str | None
    content: str
    hash: str

    def digest(self, previous_hash: str) -> str:
        """Return the hash of this line after one with the hash `before`."""
        return hashlib.sha256(previous_hash.encode() + canonical_json(self[:-1])).hexdigest()


def now() -> str:
    """Return the current time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Log:
    """The lines of a ledger, within one transaction."""

    def __init__(self, connection: sqlite3.Connection, what: str) -> None:
        self._connection = connection
        (application,) = self._one("PRAGMA application_id")
        if application != LEDGER_ID:
            raise FileError(f"{what}: not a privsketch ledger")
        (version,) = self._one("PRAGMA user_version")
        if version > LEDGER_VERSION:
            raise FileError(
                f"{what}: a ledger of version {version}, this privsketch reads version "
                f"{LEDGER_VERSION}; install a newer privsketch"
            )
        rows = self._connection.execute("SELECT accounting, time, key FROM ledger").fetchall()
        if version != LEDGER_VERSION or len(rows) != 1 or rows[0][0] not in ACCOUNTINGS:
            raise FileError(f"{what}: damaged: its header is not that of a ledger")
        self.accounting: Accounting
        self.accounting, self.time, self.key = rows[0]

    def _one(self, query: str, *values: object) -> Any:
        return self._connection.execute(query, values).fetchone()

    @property
    def beginning(self) -> str:
        """Hash that precedes the first line.

        It covers the key, too: with another key no record would be recognised.
        """
        key = hashlib.sha256(self.key).hexdigest()
        return hashlib.sha256(canonical_json([self.accounting, self.time, key])).hexdigest()

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash of the last line."""
        last = self._one("SELECT number, hash FROM log ORDER BY number DESC LIMIT 1")
        return (0, self.beginning) if last is None else last

    def append(
        self,
        kind: str,
        data_set: str,
        entry: str | None,
        amount: Amount,
        content: dict[str, Any],
    ) -> None:
        """Append a line."""
        number, previous_hash = self.head
        epsilon, delta, rho = (None if value is None else str(value) for value in amount)
        text = canonical_json({"time": now(), **content}).decode("ascii")
        line = Line(number + 1, kind, data_set, entry, str(epsilon), str(delta), rho, text, "")
        line = line._replace(hash=line.digest(previous_hash))
        self._connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", line)

    def lines(
        self, data_set: str | None = None, entry: str | None = None, kind: str | None = None
    ) -> Iterator[Line]:
        """Yield lines in order: all, or those of a data set, an entry, a kind."""
        choices = {"data_set": data_set, "entry": entry, "kind": kind}
        conditions = {name: value for name, value in choices.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in conditions) or "1"
        query = f"SELECT * FROM log WHERE {where} ORDER BY number"  # noqa: S608 - names of columns
        for row in self._connection.execute(query, tuple(conditions.values())):
            yield Line(*row)

    def checked_lines(self) -> Iterator[tuple[Line, list[str]]]:
        """Yield all lines, each with the faults of its number, its hash and its signs."""
        previous_hash, number = self.beginning, 0
        for line in self.lines():
            faults, number = [], number + 1
            if line.number != number:
                faults.append(f"line {number} is missing")
                number = line.number
            if line.digest(previous_hash) != line.hash:
                faults.append(f"line {number}: its hash does not match; it was altered")
            if any("-" in (amount or "") for amount in (line.epsilon, line.delta, line.rho)):
                faults.append(f"line {number}: a negative cost")
            previous_hash = line.hash
            yield line, faults

    def amounts(self, data_set: str) -> dict[str, Amount]:
        """Return what every entry of a data set adds to its total."""
        amounts = {}
        query = (
            "SELECT entry, epsilon, delta, rho FROM log "
            "WHERE data_set = ? AND entry IS NOT NULL ORDER BY number"
        )
        for entry, *amount in self._connection.execute(query, (data_set,)):
            amounts[entry] = amount_of(*amount)  # a commit follows its reservation, and replaces it
        return amounts

    def times(self, data_set: str) -> dict[str, datetime]:
        """Return when every entry of a data set was reserved."""
        query = "SELECT entry, content FROM log WHERE data_set = ? AND kind = 'reserve'"
        rows = self._connection.execute(query, (data_set,))
        return {entry: datetime.fromisoformat(json.loads(text)["time"]) for entry, text in rows}

    def count(self, data_set: str, kind: str) -> int:
        """Return the number of lines of one kind of a data set."""
        query = "SELECT COUNT(*) FROM log WHERE data_set = ? AND kind = ?"
        return int(self._one(query, data_set, kind)[0])

    def keep_marks(self, data_set: str, marks: bytes) -> None:
        """Store marks of a data set, unless they are there already."""
        self._connection.execute("INSERT OR IGNORE INTO marks VALUES (?, ?)", (data_set, marks))

    def marks(self) -> list[tuple[str, bytes]]:
        """Return all marks with the names of their data sets."""
        return self._connection.execute("SELECT data_set, marks FROM marks").fetchall()

    def faults(self) -> list[str]:
        """Return the faults that SQLite itself finds in the file."""
        rows = self._connection.execute("PRAGMA integrity_check").fetchall()
        return [] if rows == [("ok",)] else [f"SQLite: {text}" for (text,) in rows]


def amount_of(epsilon: str, delta: str, rho: str | None) -> Amount:
    """Return an amount from its texts."""
    return Amount(Fraction(epsilon), Fraction(delta), None if rho is None else Fraction(rho))


def content_of(line: Line) -> dict[str, Any]:
    """Return the content of a line beside its cost."""
    content = json.loads(line.content)
    if not isinstance(content, dict):
        raise ValueError("no object")
    return content


@contextmanager
def opened(path: Path, *, write: bool = False) -> Iterator[Log]:
    """Open a ledger for one transaction, which is on disk when the block ends without an error."""
    with ledgers_at_work, converted_errors(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=BUSY_SECONDS,
        )
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA trusted_schema = OFF")
            _take_turn(connection, write)
            yield Log(connection, str(path))
            connection.execute("COMMIT")
        finally:
            connection.close()  # rolls back an open transaction


def is_open_to_others(path: Path) -> bool:
    """Return whether others than the owner may read or write a ledger, on POSIX systems."""
    return os.name == "posix" and bool(os.stat(path).st_mode & 0o066)


def _take_turn(connection: sqlite3.Connection, write: bool) -> None:
    """Begin a transaction, however many other processes do.

    SQLite's own waiting polls every tenth of a second after a while: with many processes the ledger
    would be idle most of the time, and newcomers would be first.
    """
    until = time.monotonic() + BUSY_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            connection.execute("PRAGMA user_version").fetchone()  # acquires the lock of a reader
            break
        except sqlite3.OperationalError as error:
            if _name(error) != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        # Random, so that not all retry at once.
        time.sleep(_MAX_PAUSE * secrets.randbelow(1000) / 1000)
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_SECONDS)}")


def _name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error without details: SQLITE_BUSY, SQLITE_FULL, ..."""
    return "_".join(getattr(error, "sqlite_errorname", "SQLITE_ERROR").split("_")[:2])


_REASONS = {
    "SQLITE_NOTADB": "not a privsketch ledger",
    "SQLITE_CORRUPT": "damaged; restore a copy, and count what was released since as spent",
    "SQLITE_BUSY": f"other processes kept the ledger for {BUSY_SECONDS:.0f} seconds; try again",
    "SQLITE_FULL": "no space is left for it; nothing was entered",
    "SQLITE_READONLY": "the file or its folder cannot be written; nothing was entered",
    "SQLITE_IOERR": "the file system refused to read or write it; nothing was entered",
}


def _why_closed(path: Path) -> str:
    """Return why SQLite could not open a file, which it does not report."""
    if not os.path.exists(path):
        return "no such ledger"
    if path.is_dir():
        return "is a folder, not a file"
    if not os.access(path, os.R_OK):
        return "it cannot be read; a ledger is for its holder alone"
    return "it or its folder cannot be written"


@contextmanager
def converted_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors to errors of privsketch."""
    try:
        yield
    except sqlite3.Error as error:
        reason = _REASONS.get(_name(error))
        if _name(error) == "SQLITE_CANTOPEN":
            reason = _why_closed(path)
        if reason is None:
            reason = f"damaged or of another kind ({error})"
        is_reached = reason.startswith(("damaged", "not a"))
        raise (FileError if is_reached else AccessError)(f"{path}: {reason}") from None


def create(path: Path, accounting: Accounting) -> None:
    """Create an empty ledger where no file is; it appears complete or not at all."""
    if os.path.lexists(path):
        raise AccessError(f"{path} exists; a ledger is never replaced")
    require_writable(path)
    temporary = temporary_beside(path)
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with ledgers_at_work, converted_errors(path):
            _fill(temporary, accounting)
        _rename_new(temporary, path)
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    with suppress(OSError):  # some systems cannot; the file is there in any case
        sync_folder(path.parent)


def _fill(path: Path, accounting: Accounting) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute(f"PRAGMA application_id = {LEDGER_ID}")
        connection.execute(f"PRAGMA user_version = {LEDGER_VERSION}")
        connection.executescript(_SCHEMA)
        values = (1, accounting, now(), secrets.token_bytes(MARKS_KEY_BYTES))
        connection.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", values)
    finally:
        connection.close()


def _rename_new(temporary: Path, path: Path) -> None:
    """Rename a file; of several concurrent creators, only one succeeds."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise AccessError(f"{path} exists; a ledger is never replaced") from None
    except OSError:  # no hard links here: claim the name first, then replace it
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise AccessError(f"{path} exists; a ledger is never replaced") from None
        os.replace(temporary, path)
