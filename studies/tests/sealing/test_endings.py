"""How a study ends: keys and ballots are destroyed, once nobody needs them; nothing else is."""

import os

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch import AccessError, FileError, ParameterError
from privsketch.signing import destroy_key
from privsketch_studies import StudyError
from privsketch_studies.sealing import (
    destroy,
    is_destroyed,
    read_state,
    teller_file,
    total_values,
    void_study,
)
from studies.tests.sealed import People, cast, integers, list_of
from tests import seams


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def people():
    return People()


@pytest.fixture
def study(people):
    return people.open_study()


@pytest.fixture
def mailbox(people, study, tmp_path):
    """A folder with all ballots, the last of which was sealed here, and files of study keys."""
    folder = tmp_path / "mailbox"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for n, key in enumerate(people.holders[:-1]):
        cast(study, integers(rng, study), key).save(folder / f"{n}.ballot")
    people.seal(study, np.zeros((5, 2)), len(people.holders) - 1).save(folder / "last.ballot")
    for n, key in enumerate(people.study_keys):
        key.save(tmp_path / f"{n}.key", passphrase=None)
    return folder


def tallied(people, study, mailbox):
    return people.tallies(study, mailbox, people.closed(study, [mailbox]))


def test_nothing_is_destroyed_before_the_end(people, study, mailbox, tmp_path):
    tallies = tallied(people, study, mailbox)
    everything = {"study_key_files": [tmp_path / "0.key"], "ballots": [mailbox]}
    with pytest.raises(StudyError, match="nothing shows that this study has ended"):
        destroy(study, **everything)
    with pytest.raises(StudyError, match="is missing"):
        destroy(study, **everything, tallies=tallies[:1])
    other = people.__class__().open_study()
    with pytest.raises(StudyError, match="of another study"):
        destroy(other, **everything, tallies=tallies)
    assert (tmp_path / "0.key").exists()
    assert len(list(mailbox.iterdir())) == 4


def test_after_the_total_keys_and_ballots_go_and_nothing_else(people, study, mailbox, tmp_path):
    tallies = tallied(people, study, mailbox)
    stranger = People()
    other = stranger.open_study()
    kept = cast(other, integers(np.random.default_rng(1), other), stranger.holders[0])
    kept.save(mailbox / "other.ballot")
    (mailbox / "no.ballot").write_bytes(b"anything")
    gone = destroy(study, study_key_files=[tmp_path / "0.key"], ballots=[mailbox], tallies=tallies)
    assert gone.study_keys == (tmp_path / "0.key",)
    assert (len(gone.ballots), gone.n_kept) == (4, 1)
    assert sorted(file.name for file in mailbox.iterdir()) == ["no.ballot", "other.ballot"]
    assert [(tmp_path / f"{n}.key").exists() for n in range(2)] == [False, True]
    assert [is_destroyed(key.fingerprint) for key in people.study_keys] == [True, False]
    assert len(total_values(study, tallies).holders) == 4  # is still possible
    again = destroy(study, tallies=tallies)
    assert (again.ballots, again.n_kept) == ((), 0)


def test_a_ballot_that_was_destroyed_is_not_cast_again(people, study, mailbox, monkeypatch):
    tallies = tallied(people, study, mailbox)
    destroy(study, tallies=tallies)
    with monkeypatch.context() as patch:
        seams.set(patch, "seal.engine_sums", None)  # nothing is read
        with pytest.raises(StudyError, match="destroyed after its end"):
            people.seal(study, np.zeros((5, 2)), len(people.holders) - 1)


def test_a_key_is_overwritten_before_it_is_removed(people, tmp_path):
    """A second name of the same file shows what became of its bytes."""
    key, file = people.study_keys[0], tmp_path / "a.key"
    key.save(file, passphrase=None)
    os.link(file, tmp_path / "same")
    size = file.stat().st_size
    destroy_key(file, key.fingerprint)
    assert not file.exists()
    assert (tmp_path / "same").read_bytes() == bytes(size)


def test_a_link_is_no_key(people, study, mailbox, tmp_path):
    """What a link leads to stays, whoever put it there."""
    tallies = tallied(people, study, mailbox)
    (tmp_path / "link.key").symlink_to(tmp_path / "0.key")
    with pytest.raises(AccessError, match="a link; it was kept"):
        destroy(study, study_key_files=[tmp_path / "link.key"], tallies=tallies)
    assert ps.Key.load(tmp_path / "0.key") is not None
    (mailbox / "0.ballot").rename(tmp_path / "mine")
    (mailbox / "0.ballot").symlink_to(tmp_path / "mine")
    destroy(study, ballots=[mailbox], tallies=tallies)
    assert (tmp_path / "mine").exists()
    assert not list(mailbox.iterdir())


def test_only_files_of_this_study_are_destroyed(people, study, mailbox, tmp_path):
    tallies = tallied(people, study, mailbox)
    people.tellers[0].save(tmp_path / "own.key", passphrase=None)
    for wrong, error in (("own.key", ParameterError), ("mailbox/0.ballot", FileError)):
        (tmp_path / wrong).chmod(0o600)
        keys = [tmp_path / "0.key", tmp_path / wrong]
        with pytest.raises(error):
            destroy(study, study_key_files=keys, tallies=tallies)
    with pytest.raises(FileError):
        destroy(study, study_key_files=keys[:1], ballots=[tmp_path / "1.key"], tallies=tallies)
    assert all((tmp_path / name).exists() for name in ("0.key", "1.key", "own.key"))
    assert len(list(mailbox.iterdir())) == 4


def test_after_a_void_a_key_that_has_not_tallied_is_used_up(people, study, mailbox, tmp_path):
    void = void_study(study, key=people.tellers[1], study_key_file=tmp_path / "1.key")
    assert is_destroyed(people.study_keys[1].fingerprint)
    closed = people.closed(study, [mailbox])
    destroy(study, study_key_files=[tmp_path / "0.key"], voids=[void])
    with pytest.raises(StudyError, match="is void"):  # a copy of the key
        people.tally(study, mailbox, closed, 0)
    # It may say so, too: it has published no tally.
    void_study(study, key=people.tellers[0], study_key_file=tmp_path / "0.key")


def test_a_key_that_tallied_before_the_void_is_destroyed_and_says_nothing_else(
    people, study, mailbox, tmp_path
):
    closed = people.closed(study, [mailbox])
    people.tally(study, mailbox, closed, 0)
    void = void_study(study, key=people.tellers[1], study_key_file=None)
    destroy(study, study_key_files=[tmp_path / "0.key"], voids=[void])
    assert not (tmp_path / "0.key").exists()
    with pytest.raises(StudyError, match="has tallied"):
        void_study(study, key=people.tellers[0], study_key_file=None)


def test_a_void_of_another_study_destroys_nothing(people, study, tmp_path):
    stranger = People()
    other = stranger.open_study()
    void = void_study(other, key=stranger.tellers[0], study_key_file=None)
    people.study_keys[0].save(tmp_path / "0.key", passphrase=None)
    with pytest.raises(StudyError, match="of another study"):
        destroy(study, study_key_files=[tmp_path / "0.key"], voids=[void])
    assert (tmp_path / "0.key").exists()


def test_a_tally_that_is_kept_counts_though_its_use_is_lost(people, study, mailbox, tmp_path):
    """Part of the state is lost: no void is signed, and no other list gets the first one's."""
    closed, key = people.closed(study, [mailbox]), people.study_keys[0]
    first = people.tally(study, mailbox, closed, 0)
    teller_file(key.fingerprint, "use").unlink()
    with pytest.raises(StudyError, match="has tallied"):
        void_study(study, key=people.tellers[0], study_key_file=tmp_path / "0.key")
    assert (tmp_path / "0.key").exists()
    ballots = [studies.Ballot.load(file) for file in sorted(mailbox.iterdir())]
    with pytest.raises(StudyError, match="tallied another list"):
        people.tally(study, mailbox, list_of(study, ballots[:3], people.owner), 0)
    assert people.tally(study, mailbox, closed, 0).to_bytes() == first.to_bytes()


def test_a_key_whose_tally_was_brought_is_not_marked_void(people, study, mailbox, tmp_path):
    tallies = tallied(people, study, mailbox)
    key = people.study_keys[0].fingerprint
    for name in ("use", "tally"):
        teller_file(key, name).unlink()
    destroy(study, study_key_files=[tmp_path / "0.key"], tallies=tallies)
    assert read_state(teller_file(key, "use")) == b"list " + tallies[0].closed_list.encode()
    with pytest.raises(StudyError, match="has tallied"):
        void_study(study, key=people.tellers[0], study_key_file=None)


@pytest.mark.parametrize("way", ["void", "destroy"])
def test_a_key_that_is_still_there_is_not_said_to_be_destroyed(
    people, study, mailbox, tmp_path, monkeypatch, way
):
    """Somebody is stopped before the key is destroyed, and mistypes its name the next time."""
    own, file = people.tellers[0], tmp_path / "0.key"
    other = void_study(study, key=people.tellers[1], study_key_file=None)
    ways = {
        "void": lambda: void_study(study, key=own, study_key_file=file),
        "destroy": lambda: destroy(study, study_key_files=[file], voids=[other]),
    }

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        seams.set(patch, "void.destroy_key", stopped)
        with pytest.raises(KeyboardInterrupt):
            ways[way]()
    for wrong in (tmp_path / "typo.key", None):
        with pytest.raises(StudyError, match=r"0\.key: the study key was given up but still"):
            void_study(study, key=own, study_key_file=wrong)
    monkeypatch.chdir(tmp_path)
    void_study(study, key=own, study_key_file="0.key")
    assert not file.exists()
    void_study(study, key=own, study_key_file="0.key")  # may be said again
