"""`Store`: a database of a collector, SQLite or PostgreSQL, and its two kinds of transactions.

What was committed is on disk before anybody hears of it: SQLite writes ahead with synchronous =
FULL, PostgreSQL with synchronous_commit on. Writers of SQLite wait for each other in a queue of
this process; those of PostgreSQL at the row of the chain that they add to (`collector/events`).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from privsketch._base.errors import AccessError, ParameterError
from privsketch_studies.errors import CollectorError

try:
    import sqlalchemy
except ImportError:  # pragma: no cover - without the extra
    raise ParameterError(
        "a collector needs packages that are not installed; pip install privsketch-studies"
    ) from None
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from privsketch_studies.collector.store.tables import VERSION, chains, uploads

_VERSIONS = "alembic_version"  # alembic's own table
_FOLDER = Path(__file__).parent / "migrations"
_MIGRATING = 0x70736B63  # "pskc": PostgreSQL's lock while tables are made
_BUSY_SECONDS = 30
_Result = TypeVar("_Result")
_POOL = 16  # connections that are kept; threads of a server are not many more


class _Job:
    """Work that waits for a transaction."""

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class Store:
    """Where a collector keeps everything.

    Parameters
    ----------
    place : str
        A file of SQLite, or the URL of a database: postgresql://user@host/name.
    """

    def __init__(self, place: str) -> None:
        self.is_sqlite, self._engine = _opened(place)
        self._writers: AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else nullcontext()
        )
        self._waiting: deque[_Job] = deque()
        self._bring_up_to_date()

    def close(self) -> None:
        """Give all connections back."""
        self._engine.dispose()

    def finish_file(self) -> None:
        """Leave one file of SQLite, with everything in it."""
        self._set_journal("DELETE")

    def _set_journal(self, mode: str) -> None:
        """How SQLite writes, which a file remembers."""
        if self.is_sqlite:
            with _as_ours(), self._engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                raw.cursor().execute(f"PRAGMA journal_mode = {mode}")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of everything, and changes nothing."""
        options = {"isolation_level": "REPEATABLE READ"} if not self.is_sqlite else {}
        with _as_ours(), self._engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction whose changes are on disk when the block has ended, all or none."""
        with _as_ours(), self._writers, self._engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            with connection.begin():
                yield connection

    def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Do work in a transaction, and return when it is on disk; errors undo this work alone.

        Writers of SQLite that come together share one transaction, and one wait for the disk: who
        finds the way free does the work of all that wait.
        """
        if not self.is_sqlite:
            with self.writing() as connection:
                return work(connection)
        job = _Job(work)
        self._waiting.append(job)
        with self._writers:
            if not job.is_done:
                jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._do_all(jobs)
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[no-any-return]

    def _do_all(self, jobs: list[_Job]) -> None:
        try:
            with _as_ours(), self._engine.connect() as plain:
                connection = plain.execution_options(writes=True)
                with connection.begin():
                    for job in jobs:
                        try:
                            with _as_ours(), connection.begin_nested():
                                job.result = job.work(connection)
                        except Exception as error:
                            job.error = error
                            _require_transaction(connection)
        except BaseException as error:  # nothing of all that is on disk
            for job in jobs:
                job.error = job.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            for job in jobs:
                job.is_done = True

    @staticmethod
    def _version(connection: Connection) -> str | None:
        query = f"SELECT version_num FROM {_VERSIONS}"  # noqa: S608 - alembic's own table
        found = connection.exec_driver_sql(query).scalar()
        return None if found is None else str(found)

    def _bring_up_to_date(self) -> None:
        """Make tables, or change those of an earlier version; refused if they are of a later."""
        with self.reading() as connection:
            there = set(sqlalchemy.inspect(connection).get_table_names())
            if there and not {_VERSIONS, chains.name, uploads.name} <= there:
                raise AccessError("store: a database of something else")
            is_current = bool(there) and self._version(connection) == VERSION
        self._set_journal("WAL")  # only now: a database of something else stays as it is
        if is_current:
            return
        # Here: a restart does without, and takes less time.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError:
                raise AccessError("store: made by a newer privsketch") from None


def _opened(place: str) -> tuple[bool, Engine]:
    if "://" not in place:
        folder = Path(place).absolute().parent
        if not folder.is_dir():
            raise AccessError(f"store: no folder {folder}")
    try:
        url = _url_of(place)
        if url.get_backend_name() == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        elif url.get_backend_name() != "sqlite" or not url.database:
            raise ParameterError("store: expected a file, or a URL of SQLite or PostgreSQL")
        is_sqlite = url.get_backend_name() == "sqlite"
        if is_sqlite:
            _make_private(str(url.database))
        engine = create_engine(url, pool_size=_POOL, max_overflow=2 * _POOL, hide_parameters=True)
    except ArgumentError:  # which would show the URL, with its password
        raise ParameterError("store: not a URL of a database") from None
    event.listen(engine, "connect", _prepare_sqlite if is_sqlite else _prepare_postgresql)
    if is_sqlite:
        event.listen(engine, "begin", _begin_sqlite)
    return is_sqlite, engine


def _url_of(place: str) -> URL:
    """A file by its own name, whatever is in it; else a URL."""
    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place).absolute()))
    return make_url(place)


def _make_private(file: str) -> None:
    """Make the file of a new store one that nobody else reads; SQLite's others beside it follow."""
    with suppress(OSError):  # it is there, or SQLite will say what is wrong
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself
    cursor = connection.cursor()
    for name, value in (
        ("busy_timeout", _BUSY_SECONDS * 1000),
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
        ("trusted_schema", "OFF"),
    ):
        cursor.execute(f"PRAGMA {name} = {value}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A reader that becomes a writer could find that somebody else has written in between.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _require_transaction(connection: Connection) -> None:
    """Refuse to go on where SQLite has ended a transaction by itself, as when a disk is full.

    What others did in it is undone, and a commit would be silent about that.
    """
    raw: Any = connection.connection.dbapi_connection
    if not raw.in_transaction:
        raise CollectorError("store: the database undid a transaction", "storage")


def _prepare_postgresql(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO on")
        cursor.execute("SET timezone TO 'UTC'")
    connection.commit()


@contextmanager
def _as_ours() -> Iterator[None]:
    """Errors of a database that cannot be reached, is full, or too busy, without its words."""
    try:
        yield
    except sqlalchemy.exc.IntegrityError:
        raise
    except (DBAPIError, sqlalchemy.exc.TimeoutError) as error:
        cause = type(getattr(error, "orig", None) or error).__name__
        raise CollectorError(f"store: the database failed ({cause})", "storage") from None
    except SQLAlchemyError as error:
        name = type(error).__name__
        raise CollectorError(f"store: cannot be used ({name})", "storage") from None
