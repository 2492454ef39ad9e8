"""The store: its tables and migrations, shared transactions, backups."""

import sqlite3
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select

from privsketch import AccessError, FileError, PrivsketchError
from privsketch_studies.collector import (
    COLLECTOR,
    METADATA,
    REVISION,
    Store,
    add_event,
    begin_session,
    events_of,
    member_of_session,
    restore,
    verify_store,
)
from privsketch_studies.collector.backup import backup
from privsketch_studies.collector.store import engine, members, uploads
from studies.tests.server import fresh_database, sketch_of


def test_migrations_make_the_tables_as_they_are_described(world):
    with world.store.reading() as connection:
        context = MigrationContext.configure(connection)
        assert context.get_current_revision() == REVISION
        assert compare_metadata(context, METADATA) == []
    config = Config()
    config.set_main_option("script_location", str(engine._MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_a_store_without_sessions_gets_them_and_keeps_everything(world, place):
    """One of version 1, as it is without the table that version 2 adds."""
    world.push("north", sketch_of("north").to_bytes())
    with world.store.writing() as connection:
        connection.exec_driver_sql("DROP TABLE sessions")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '1'")
    store = Store(place)
    session = begin_session(store, world.tokens["north"])
    assert member_of_session(store, session).name == "north"
    assert verify_store(store).n_uploads == 1
    with store.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    store.close()


def test_backups_have_no_sessions(world, tmp_path):
    session = begin_session(world.store, world.tokens["north"])
    backup(world.store, tmp_path / "a.backup")
    copy = Store(str(tmp_path / "a.backup"))
    with pytest.raises(PrivsketchError, match="not signed in"):
        member_of_session(copy, session)
    copy.close()
    assert member_of_session(world.store, session).name == "north"


def test_tables_of_a_later_version_are_refused(world, place):
    with world.store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '999'")
    with pytest.raises(AccessError, match="newer"):
        Store(place)


def test_databases_of_something_else_are_left_alone(place):
    store = Store(place)
    with store.writing() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
    store.close()
    with pytest.raises(AccessError, match="not a collector"):
        Store(place)


def test_sqlite_waits_for_the_disk(tmp_path):
    store = Store(str(tmp_path / "c.db"))
    with store.reading() as connection:
        found = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["wal", 2, 1]


def test_work_that_fails_undoes_itself_alone(world):
    """Of works that share a transaction each is there whole, or not at all."""

    def work(number):
        def add(connection):
            add_event(connection, COLLECTOR, None, "test", number=number)
            if number % 3 == 0:
                raise FileError("no")

        try:
            world.store.write(add)
            done.append(number)
        except FileError:
            pass

    before, done = len(events_of(world.store, COLLECTOR)), []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [event.facts["number"] for event in events_of(world.store, COLLECTOR, after=before)]
    assert sorted(told) == sorted(done) == [n for n in range(24) if n % 3]
    verify_store(world.store)


def test_what_a_full_disk_undoes_is_acknowledged_to_nobody(tmp_path):
    """SQLite then ends a transaction by itself, and a commit says nothing."""
    store = Store(str(tmp_path / "c.db"))

    def small(connection):
        add_event(connection, COLLECTOR, None, "small")

    def large(connection):
        connection.exec_driver_sql("PRAGMA max_page_count = 50")
        connection.exec_driver_sql("PRAGMA cache_size = 1")
        add_event(connection, COLLECTOR, None, "large", text="x" * 1_000_000)

    jobs = [engine._Job(work) for work in (small, large, small)]
    store._do_all(jobs)
    assert [getattr(job.error, "refusal", None) for job in jobs] == ["storage"] * 3
    assert events_of(store, COLLECTOR) == []
    store.close()


def test_a_new_store_is_for_its_owner_alone(tmp_path):
    """Its name is taken as it is, though a URL would read it otherwise."""
    file = tmp_path / "a?b%20c#d.db"
    store = Store(str(file))
    with store.writing() as connection:
        add_event(connection, COLLECTOR, None, "test")
        found = [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()]
    assert file.exists()
    assert found == [0o600] * 3
    store.close()


@pytest.mark.parametrize("table", ["other", "alembic_version"])
def test_a_file_of_something_else_keeps_every_byte(tmp_path, table):
    file = tmp_path / "other.db"
    connection = sqlite3.connect(file)
    connection.execute(f"CREATE TABLE {table} (version_num TEXT)")
    connection.execute(f"INSERT INTO {table} VALUES ('1')")
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(AccessError, match="not a collector"):
        Store(str(file))
    assert file.read_bytes() == before


def rows(store):
    with store.reading() as connection:
        return [connection.execute(select(table)).all() for table in (members, uploads)]


def test_a_backup_is_everything_and_goes_into_an_empty_store(world, tmp_path):
    world.push("north", sketch_of("north").to_bytes())
    file = tmp_path / "all.backup"
    seen = backup(world.store, file)
    assert seen == verify_store(world.store)
    assert [path.name for path in tmp_path.glob("*backup*")] == ["all.backup"]
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(AccessError, match="exists"):
        backup(world.store, file)
    with pytest.raises(AccessError, match="not empty"):
        restore(file, world.store)
    again = Store(str(tmp_path / "again.db"))
    before = file.read_bytes()
    assert restore(file, again) == seen
    assert file.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if ".part" in path.name]
    assert rows(again) == rows(world.store)
    bytes_before = bytearray(file.read_bytes())
    place = bytes_before.index(b"uploaded")
    bytes_before[place] ^= 1
    (tmp_path / "bad.backup").write_bytes(bytes_before)
    with pytest.raises(PrivsketchError):
        restore(tmp_path / "bad.backup", Store(str(tmp_path / "third.db")))


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\0" + bytes(500)])
def test_what_is_no_backup_is_not_restored(tmp_path, content):
    file = tmp_path / "no.backup"
    file.write_bytes(content)
    store = Store(str(tmp_path / "c.db"))
    with pytest.raises(PrivsketchError):
        restore(file, store)
    assert file.read_bytes() == content
    store.close()


@pytest.mark.slow
def test_a_backup_goes_from_one_database_to_the_other(server, tmp_path):
    from studies.tests.server import World

    world = World(str(tmp_path / "c.db"))
    world.push("north", sketch_of("north").to_bytes())
    backup(world.store, tmp_path / "one.backup")
    other = Store(fresh_database(server))
    restore(tmp_path / "one.backup", other)
    backup(other, tmp_path / "two.backup")
    back = Store(str(tmp_path / "back.db"))
    restore(tmp_path / "two.backup", back)
    assert rows(back) == rows(other) == rows(world.store)
