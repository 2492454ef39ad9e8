"""What may happen once: whoever comes first, in whatever process, stays."""

import os
import threading

import numpy as np
import pytest

import privsketch_studies as studies
from privsketch import AccessError, FileError
from privsketch_studies import StudyError
from privsketch_studies.sealing import (
    read_state,
    state_folder,
    teller_file,
    use_state_folder,
    write_once,
)
from studies.tests.sealed import GAUSSIAN, People, cast, integers
from tests import seams


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_first_one_stays():
    slot = teller_file("0" * 32, "use")
    assert read_state(slot) is None
    assert write_once(slot, b"first") == write_once(slot, b"second") == read_state(slot) == b"first"
    assert slot.stat().st_mode & 0o777 == 0o600
    assert slot.parent.stat().st_mode & 0o077 == 0
    assert list(slot.parent.iterdir()) == [slot]


def test_threads_agree_on_one():
    slot, start, found = teller_file("0" * 32, "use"), threading.Barrier(16), []

    def write(number):
        start.wait()
        found.append(write_once(slot, b"%d" % number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_processes_that_tally_different_lists_publish_one(tmp_path):
    people = People()
    study = people.open_study()
    rng = np.random.default_rng(0)
    ballots = [cast(study, integers(rng, study), key) for key in people.holders]
    lists = [people.closed(study, ballots[n:]) for n in range(2)]
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            try:
                one = people.tally(study, ballots, lists[number % 2], 0)
                one.save(tmp_path / f"{number}.tally")
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    published = {file.read_bytes() for file in tmp_path.glob("*.tally")}
    assert len(published) == 1


def test_file_systems_without_links(monkeypatch):
    def refuse(*_):
        raise OSError("no links here")

    seams.set(monkeypatch, "once.os.link", refuse)
    slot = teller_file("0" * 32, "use")
    assert write_once(slot, b"first") == write_once(slot, b"second") == b"first"


def test_half_a_file_counts():
    slot = teller_file("0" * 32, "use")
    write_once(slot, b"first")
    for damaged in (b"", b"fi", slot.read_bytes()[:-1], b"x" + slot.read_bytes()):
        slot.write_bytes(damaged)
        with pytest.raises(FileError, match="counts as done"):
            write_once(slot, b"second")


def test_a_folder_that_cannot_be_written(home):
    home.mkdir()
    (home / "sealed").write_text("a file in the way")
    with pytest.raises(AccessError):
        write_once(teller_file("0" * 32, "use"), b"first")


def test_names_of_new_folders_are_on_disk_too(monkeypatch, home):
    """A file in a folder whose name is lost with the power would be lost with it."""
    synced = []
    seams.set(monkeypatch, "once.sync_folder", lambda folder: synced.append(folder))
    slot = teller_file("0" * 32, "use")
    write_once(slot, b"first")
    assert synced == [home.parent, home, home / "sealed", slot.parent]
    write_once(teller_file("1" * 32, "use"), b"first")
    assert synced[4:] == [slot.parent]


def test_where_it_is_kept(monkeypatch, tmp_path, home):
    assert state_folder() == home / "sealed"
    with use_state_folder(tmp_path):
        assert state_folder() == tmp_path
    monkeypatch.delenv("PRIVSKETCH_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_folder() == tmp_path / "state" / "privsketch" / "sealed"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    assert state_folder().parts[-4:] == (".local", "state", "privsketch", "sealed")


def test_a_holder_that_trusts_nobody_becomes_a_teller():
    """Its own key is the teller that it trusts; nobody is pinned."""
    people = People()
    own = people.holders[0]
    card, fresh = studies.Card.teller(GAUSSIAN, key=own)
    people.cards.append(card)
    people.tellers.append(own)
    people.study_keys.append(fresh)
    study = people.open_study()
    ballot = studies.seal(np.zeros((5, 2)), study, key=own, accept_alone=10.0)
    with pytest.raises(StudyError, match="none of the tellers is pinned"):
        studies.seal(np.zeros((5, 2)), study, key=people.holders[1], accept_alone=10.0)
    others = [people.seal(study, np.zeros((5, 2)), n) for n in (1, 2, 3)]
    closed = people.closed(study, [ballot, *others])
    tallies = people.tallies(study, [ballot, *others], closed)
    assert studies.join(study, tallies).sources[0] == "site 000"


def test_a_name_that_is_found_is_on_disk_before_anything_depends_on_it(monkeypatch):
    """Whoever wrote it may have been stopped before the folder was; or is about to write it."""
    slot = teller_file("0" * 32, "use")
    write_once(slot, b"first")
    synced = []
    seams.set(monkeypatch, "once.sync_folder", synced.append)
    assert write_once(slot, b"second") == b"first"
    assert synced == [slot.parent]
    found = iter([None, b"first"])  # another process comes in between
    seams.set(monkeypatch, "once.read_state", lambda path: next(found))
    assert write_once(slot, b"second") == b"first"
    assert synced == [slot.parent] * 2
