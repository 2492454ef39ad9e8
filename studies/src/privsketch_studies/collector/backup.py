"""Backups: an SQLite file with all rows of a store in SQLite or PostgreSQL.

A backup is one consistent state, and can be taken while the service runs. Before it is done, chains
of events and the bytes of every upload are checked. It is as confidential as the store: it has
hashes of tokens, names and sketches.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, insert, select

from privsketch._base.errors import AccessError
from privsketch._base.formats import temporary_beside
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import METADATA, chains, sessions
from privsketch_studies.collector.verify import Verified, verify_store

_SQLITE = b"SQLite format 3\0"
_BATCH_ROWS = 100  # at a time: uploads may be large


def backup(store: Store, path: Path) -> Verified:
    """Write a backup to a new file, and return what a check of it has covered."""
    if path.exists():
        raise AccessError(f"{path} exists; a backup never replaces a file")
    if not path.absolute().parent.is_dir():
        raise AccessError(f"{path.parent}: no such folder")
    with _temporary_file(path, "cannot be written") as temporary:
        target = Store(str(temporary))
        try:
            _copy(store, target)
            verified = verify_store(target)
            target.finish_file()
        finally:
            target.close()
        os.link(temporary, path)  # fails if the file exists by now
        _sync(path)
    return verified


def restore(path: Path, store: Store) -> Verified:
    """Fill an empty store from a backup, and return what a check of it has covered."""
    if not path.is_file():
        raise AccessError(f"{path}: no such file")
    with store.reading() as connection:
        _require_empty(connection)
    # The copy is migrated if it is of an earlier version; the backup itself does not change.
    with _temporary_file(path, "cannot be read") as temporary:
        with open(path, "rb") as stream:
            if stream.read(len(_SQLITE)) != _SQLITE:  # SQLite takes a short file for an empty one
                raise AccessError(f"{path}: not a backup")
        shutil.copyfile(path, temporary)
        source = Store(str(temporary))
        try:
            verify_store(source)
            _copy(source, store)
        finally:
            source.close()
    return verify_store(store)


@contextmanager
def _temporary_file(path: Path, problem: str) -> Iterator[Path]:
    """Make a private SQLite file beside `path`, and remove it with those that SQLite adds."""
    temporary = temporary_beside(path.absolute())
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield temporary
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or problem}") from None
    finally:
        for ending in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + ending).unlink(missing_ok=True)


def _require_empty(connection: Connection) -> None:
    """Refuse a store that has an event."""
    if connection.execute(select(chains.c.n_events)).scalars().all() != [0]:
        raise AccessError("store: not empty; restore into an empty store")


def _copy(source: Store, target: Store) -> None:
    with source.reading() as reader, target.writing() as writer:
        _require_empty(writer)  # again, because the store may be in service
        writer.execute(chains.delete())
        for table in METADATA.sorted_tables:
            if table is sessions:  # people sign in again
                continue
            rows = reader.execution_options(yield_per=_BATCH_ROWS).execute(select(table)).mappings()
            for part in rows.partitions():
                writer.execute(insert(table), [dict(row) for row in part])


def _sync(path: Path) -> None:
    for name in (path, path.parent):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
