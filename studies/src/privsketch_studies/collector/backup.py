"""Backups: a file of SQLite with all rows of a store, whatever database that is in.

It is one state of everything, taken while the service runs, and it is checked before it counts:
chains of events, and the bytes of every upload. It is as confidential as the store: it has hashes
of tokens, names and sketches.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy import Connection, insert, select

from privsketch._base.errors import AccessError
from privsketch._base.formats import temporary_beside
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import METADATA, chains, sessions
from privsketch_studies.collector.verify import Verified, verify_store

_SQLITE = b"SQLite format 3\0"
_ROWS = 100  # at a time: uploads may be large


def backup(store: Store, path: Path) -> Verified:
    """Write a backup to a new file; what is in it."""
    if path.exists():
        raise AccessError(f"{path} exists; a backup is not replaced")
    if not path.absolute().parent.is_dir():
        raise AccessError(f"{path.parent}: no such folder")
    temporary = temporary_beside(path.absolute())
    beside = [temporary.with_name(temporary.name + ending) for ending in ("-wal", "-shm")]
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        target = Store(str(temporary))
        try:
            _copy(store, target)
            found = verify_store(target)
            target.finish_file()
        finally:
            target.close()
        os.link(temporary, path)  # never in the place of another
        _sync(path)
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None
    finally:
        for file in (temporary, *beside):
            file.unlink(missing_ok=True)
    return found


def restore(path: Path, store: Store) -> Verified:
    """Fill an empty store from a backup; refused if anything is there."""
    if not path.is_file():
        raise AccessError(f"{path}: no such file")
    with store.reading() as connection:
        _require_empty(connection)
    temporary = temporary_beside(path.absolute())
    beside = [temporary.with_name(temporary.name + ending) for ending in ("-wal", "-shm")]
    try:
        # A copy, which is brought up to date if it is of an earlier version: the backup stays.
        with open(path, "rb") as stream:
            if stream.read(len(_SQLITE)) != _SQLITE:  # which takes short files for new ones
                raise AccessError(f"{path}: not a backup")
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        shutil.copyfile(path, temporary)
        source = Store(str(temporary))
        try:
            verify_store(source)
            _copy(source, store)
        finally:
            source.close()
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be read'}") from None
    finally:
        for file in (temporary, *beside):
            file.unlink(missing_ok=True)
    return verify_store(store)


def _require_empty(connection: Connection) -> None:
    """Refuse a store in which anything has happened."""
    if connection.execute(select(chains.c.n_events)).scalars().all() != [0]:
        raise AccessError("store: something is there already; restore into an empty one")


def _copy(source: Store, target: Store) -> None:
    with source.reading() as reader, target.writing() as writer:
        _require_empty(writer)  # once more: the store may be served
        writer.execute(chains.delete())
        for table in METADATA.sorted_tables:
            if table is sessions:  # people sign in again
                continue
            rows = reader.execution_options(yield_per=_ROWS).execute(select(table)).mappings()
            for part in rows.partitions():
                writer.execute(insert(table), [dict(row) for row in part])


def _sync(path: Path) -> None:
    for name in (path, path.parent):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
