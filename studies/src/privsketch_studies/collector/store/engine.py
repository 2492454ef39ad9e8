"""`Store`: the database of a collector, SQLite or PostgreSQL, and its transactions.

Commits are on disk before they are acknowledged: SQLite has a write-ahead log with synchronous =
FULL, PostgreSQL has synchronous_commit on. Writers of SQLite wait in a queue of this process, and
writers of PostgreSQL at the row of the chain that they add to (`collector/events`).
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

from privsketch_studies.collector.store.tables import REVISION, chains, uploads

_VERSION_TABLE = "alembic_version"  # alembic's own table
_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 0x70736B63  # "pskc": PostgreSQL's lock during migrations
_BUSY_SECONDS = 30
_Result = TypeVar("_Result")
_POOL_SIZE = 16  # idle connections to keep; a server has not many more threads


class _Job:
    """Work that waits for a transaction, with its result or its error."""

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class Store:
    """Database of a collector.

    Parameters
    ----------
    location : str
        Path of an SQLite file, or the URL of a database: postgresql://user@host/name.
    """

    def __init__(self, location: str) -> None:
        self.is_sqlite, self._engine = _open(location)
        self._writers: AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else nullcontext()
        )
        self._waiting: deque[_Job] = deque()
        self._migrate()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def finish_file(self) -> None:
        """Move everything into the SQLite file itself, without a write-ahead log."""
        self._set_journal("DELETE")

    def _set_journal(self, mode: str) -> None:
        """Set the journal mode of SQLite, which is stored in the file."""
        if self.is_sqlite:
            with _own_errors(), self._engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                raw.cursor().execute(f"PRAGMA journal_mode = {mode}")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads one consistent state."""
        options = {"isolation_level": "REPEATABLE READ"} if not self.is_sqlite else {}
        with _own_errors(), self._engine.connect() as plain:
            connection = plain.execution_options(**options)
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction whose changes are on disk when the block ends, all or none."""
        with _own_errors(), self._writers, self._engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            with connection.begin():
                yield connection

    def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Do work in a transaction, and return when it is on disk; an error undoes only this work.

        Writers of SQLite that wait at the same time share one transaction and one write to disk:
        the first one that gets the lock does the work of all.
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
            with _own_errors(), self._engine.connect() as plain:
                connection = plain.execution_options(writes=True)
                with connection.begin():
                    for job in jobs:
                        try:
                            with _own_errors(), connection.begin_nested():
                                job.result = job.work(connection)
                        except Exception as error:
                            job.error = error
                            _require_transaction(connection)
        except BaseException as error:  # nothing of this transaction is on disk
            for job in jobs:
                job.error = job.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            for job in jobs:
                job.is_done = True

    @staticmethod
    def _version(connection: Connection) -> str | None:
        query = f"SELECT version_num FROM {_VERSION_TABLE}"  # noqa: S608 - alembic's own table
        version = connection.exec_driver_sql(query).scalar()
        return None if version is None else str(version)

    def _migrate(self) -> None:
        """Create or migrate the tables; refuse a newer version and foreign databases."""
        with self.reading() as connection:
            tables = set(sqlalchemy.inspect(connection).get_table_names())
            if tables and not {_VERSION_TABLE, chains.name, uploads.name} <= tables:
                raise AccessError("store: this database is not a collector's")
            is_current = bool(tables) and self._version(connection) == REVISION
        self._set_journal("WAL")  # only now, so that a foreign database does not change
        if is_current:
            return
        # Imported here: a restart usually needs no migration, and is faster without.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError:
                raise AccessError("store: made by a newer privsketch") from None


def _open(location: str) -> tuple[bool, Engine]:
    if "://" not in location:
        folder = Path(location).absolute().parent
        if not folder.is_dir():
            raise AccessError(f"store: no such folder: {folder}")
    try:
        url = _url_of(location)
        if url.get_backend_name() == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        elif url.get_backend_name() != "sqlite" or not url.database:
            raise ParameterError("store: expected a file, or a URL of SQLite or PostgreSQL")
        is_sqlite = url.get_backend_name() == "sqlite"
        if is_sqlite:
            _make_private(str(url.database))
        engine = create_engine(
            url, pool_size=_POOL_SIZE, max_overflow=2 * _POOL_SIZE, hide_parameters=True
        )
    except ArgumentError:  # its message would show the URL with its password
        raise ParameterError("store: not a URL of a database") from None
    event.listen(engine, "connect", _prepare_sqlite if is_sqlite else _prepare_postgresql)
    if is_sqlite:
        event.listen(engine, "begin", _begin_sqlite)
    return is_sqlite, engine


def _url_of(location: str) -> URL:
    """Return the URL of a database; a path may have any characters but ://."""
    if "://" not in location:
        return URL.create("sqlite", database=str(Path(location).absolute()))
    return make_url(location)


def _make_private(file: str) -> None:
    """Create a file that only its owner can read; SQLite copies the mode to files beside it."""
    with suppress(OSError):  # the file exists, or SQLite will say what is wrong
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself
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
    # A transaction that reads first and writes later could conflict with another writer.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _require_transaction(connection: Connection) -> None:
    """Refuse to go on if SQLite has ended a transaction by itself, as on a full disk.

    The work of all jobs in it is undone, and a commit would not report that.
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
def _own_errors() -> Iterator[None]:
    """Turn errors of the database into ours, without its messages, which may quote rows."""
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
