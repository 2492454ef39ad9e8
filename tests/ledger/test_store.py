"""The file under many processes, kills, full disks and strange files."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from benchmarks import ledger as schedules
from privsketch import FileError, Ledger
from privsketch.ledger import Cost, store
from tests import seams
from tests.commands import modules_after

REPOSITORY = Path(__file__).parents[2]


def forked(action):
    """A process that does this; it exits with 0 if that raises nothing, 3 for a FileError."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            action()
            code = 0
        except FileError:
            code = 3
        finally:
            os._exit(code)
    return process


def in_child(action):
    """The exit code of such a process."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(action), 0)[1])


def schedule_in_a_process(*arguments):
    """A schedule from a small process: it forks many times."""
    command = [sys.executable, "-m", "benchmarks", "ledger", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_a_few_processes_and_kills(tmp_path):
    done = schedule_in_a_process("2", "--workers", "12")
    assert done.returncode == 0, done.stderr
    assert "never above a limit" in done.stdout


@pytest.mark.slow
def test_many_processes_and_kills_on_a_disk(tmp_path):
    done = schedule_in_a_process("3", "--first", "5000", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_schedules_find_a_limit_that_is_not_kept(tmp_path, monkeypatch):
    seams.set(monkeypatch, "accounting.Limit.allows", lambda *_: True)
    seams.set(monkeypatch, "book.Ledger.check", lambda _: [])
    with pytest.raises(AssertionError, match=r"above the limit|1e-300 more was allowed"):
        schedules.run(tmp_path, 0, 10.0, 6)


@pytest.mark.slow
def test_schedules_find_results_without_an_entry(tmp_path):
    with pytest.raises(AssertionError, match="a result without an entry"):
        schedules.run(tmp_path, 0, 10.0, 40, careless=True)  # some are above the limit


def test_only_one_of_many_creators_wins(tmp_path):
    path = tmp_path / "a.ledger"
    processes = [forked(lambda: Ledger.create(path)) for _ in range(8)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    assert sorted(codes) == [0] + [3] * 7
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]
    assert Ledger(path).check() == []


def test_a_file_that_exists_is_never_replaced(tmp_path):
    path = tmp_path / "a.ledger"
    path.write_text("mine")
    with pytest.raises(FileError, match="exists"):
        Ledger.create(path)
    assert path.read_text() == "mine"
    link = tmp_path / "b.ledger"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileError, match="exists"):
        Ledger.create(link)


def test_without_hard_links_there_is_one_winner_as_well(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "not here")

    monkeypatch.setattr(os, "link", refused)
    path = tmp_path / "a.ledger"
    Ledger.create(path)
    assert Ledger(path).check() == []
    with pytest.raises(FileError, match="exists"):
        Ledger.create(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]


def test_only_its_owner_can_read_a_ledger(tmp_path):
    Ledger.create(tmp_path / "a.ledger")
    assert (tmp_path / "a.ledger").stat().st_mode & 0o777 == 0o600


def test_names_with_signs_of_addresses(tmp_path):
    path = tmp_path / "a b?mode=ro#%20.ledger"
    Ledger.create(path).add("x", epsilon=1)
    assert [found.name for found in Ledger(str(path)).datasets()] == ["x"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\x00" + b"x" * 4000])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "a.ledger"
    path.write_bytes(content)
    with pytest.raises(FileError):
        Ledger(path)
    assert path.read_bytes() == content
    with pytest.raises(FileError, match="no such ledger"):
        Ledger(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_databases_of_others_and_of_later_versions(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE log (a)")
    connection.commit()
    connection.close()
    with pytest.raises(FileError, match="not a privsketch ledger"):
        Ledger(path)
    later = tmp_path / "a.ledger"
    Ledger.create(later)
    connection = sqlite3.connect(later)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(FileError, match="install a newer privsketch"):
        Ledger(later)


def test_a_full_disk_reserves_nothing(tmp_path):
    ledger = Ledger.create(tmp_path / "a.ledger")
    ledger.add("x", epsilon=1)
    size = ledger.path.stat().st_size

    def on_a_full_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        ledger.reserve("x", Cost(0.5), what="y" * 100_000)

    assert in_child(on_a_full_disk) == 3
    assert ledger.check() == []
    assert ledger.entries() == []
    ledger.reserve("x", Cost(1), what="")


def test_a_ledger_that_cannot_be_written_can_be_read():
    folder = Path(tempfile.mkdtemp())
    try:
        ledger = Ledger.create(folder / "a.ledger")
        ledger.add("x", epsilon=1)
        folder.chmod(0o555)
        ledger.path.chmod(0o444)

        def as_nobody():
            if os.getuid() == 0:
                os.setuid(65534)
            if [found.name for found in ledger.datasets()] != ["x"]:
                raise SystemExit
            ledger.reserve("x", Cost(0.5), what="")

        assert in_child(as_nobody) == 3
        assert ledger.entries() == []
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_fork_waits_for_threads_at_work(tmp_path):
    """A child would believe that it holds its parent's locks."""
    ledger = Ledger.create(tmp_path / "a.ledger")
    ledger.add("x", epsilon=100)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with store.opened(ledger.path, write=True):
            inside.set()
            time.sleep(0.3)
            done.set()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()

    def child():
        if not done.is_set():
            raise SystemExit
        ledger.reserve("x", Cost(1), what="child")

    assert in_child(child) == 0
    thread.join()
    assert [entry.what for entry in ledger.entries()] == ["child"]


def test_threads_take_turns(tmp_path):
    ledger = Ledger.create(tmp_path / "a.ledger")
    ledger.add("x", epsilon=10)
    refused = []

    def spend():
        for _ in range(5):
            try:
                ledger.reserve("x", Cost(1), what="")
            except Exception as error:
                refused.append(type(error).__name__)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["BudgetError"] * 10
    assert ledger.total("x").epsilon == 10


def test_who_waits_too_long_is_told(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path / "a.ledger")
    ledger.add("x", epsilon=1)
    seams.set(monkeypatch, "store.BUSY_SECONDS", 0.2)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(FileError, match="other processes"):
        ledger.reserve("x", Cost(1), what="")
    assert ledger.entries() == []  # readers do not wait for a writer that has written nothing yet
    other.execute("COMMIT")
    other.close()
    ledger.reserve("x", Cost(1), what="")


def test_an_error_inside_undoes_everything(tmp_path):
    ledger = Ledger.create(tmp_path / "a.ledger")
    ledger.add("x", epsilon=1)

    def interrupted():
        with store.opened(ledger.path, write=True) as log:
            log.append("add", "y", None, store.amount_of("1", "0", None), {})
            raise KeyboardInterrupt

    before = ledger.export()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ledger.export() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.ledger"]


def test_ledgers_load_nothing_heavy():
    loaded = modules_after("import privsketch.ledger.book, privsketch.ledger.verify")
    assert not loaded & {"numpy", "scipy", "pandas", "llvmlite"}
