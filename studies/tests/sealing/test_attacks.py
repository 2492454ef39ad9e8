"""People who do not play by the rules: nobody else pays, and nothing is taken back wrongly."""

import os
import threading

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch import AccessError, FileError, ParameterError, PublicKey
from privsketch.noise import REPLACED
from privsketch.signing import sign_message
from privsketch_studies import StudyError, check_ballots
from privsketch_studies.sealing import as_words, make_ballot, teller_card, void_study, with_checks
from studies.tests.sealed import People, cast, integers
from tests import seams

_statement = seams.get("keys.statement")


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def people():
    return People()


@pytest.fixture
def study(people):
    return people.open_study(last_day="2020-01-01")


@pytest.fixture
def ballots(people, study):
    rng = np.random.default_rng(0)
    return [cast(study, integers(rng, study), key) for key in people.holders]


def tallied(people, study, ballots):
    closed = people.closed(study, ballots)
    return people.tallies(study, ballots, closed)


def test_a_key_that_tallied_is_not_given_up_elsewhere(people, study, ballots, monkeypatch):
    """Another machine does not know of the tally: its word would take everybody's costs back."""
    tallied(people, study, ballots)
    with pytest.raises(StudyError, match="has tallied"):
        void_study(study, key=people.tellers[0], study_key_file=None)
    monkeypatch.setenv("PRIVSKETCH_HOME", os.environ["PRIVSKETCH_HOME"] + "-elsewhere")
    with pytest.raises(StudyError, match="not made on this machine"):
        void_study(study, key=people.tellers[0], study_key_file=None)


def test_no_other_file_is_destroyed_in_the_place_of_a_key(people, study, tmp_path):
    card = study.tellers[0]
    card.save(tmp_path / "t.card")
    (tmp_path / "t.card").chmod(0o600)
    with pytest.raises(FileError):
        void_study(study, key=people.tellers[0], study_key_file=tmp_path / "t.card")
    assert (tmp_path / "t.card").exists()


def test_an_interrupted_void_is_said_again(people, study, tmp_path, monkeypatch):
    place = study.teller_of(people.tellers[0].public)
    fresh = next(k for k in people.study_keys if k.public == study.tellers[place].study_key)
    fresh.save(tmp_path / "study.key", passphrase=None)
    arguments = {"key": people.tellers[0], "study_key_file": tmp_path / "study.key"}
    with monkeypatch.context() as patch:

        def broken(*arguments):
            raise KeyboardInterrupt

        seams.set(patch, "files.signed_json", broken)
        with pytest.raises(KeyboardInterrupt):
            void_study(study, **arguments)
    assert not (tmp_path / "study.key").exists()
    assert void_study(study, **arguments).require_of(study) == place


@pytest.mark.parametrize(("kind", "bad"), [("x25519", bytes(32)), ("mlkem768", b"\xff" * 1184)])
def test_a_card_with_a_key_that_nobody_can_have_is_refused(people, kind, bad):
    """Its holder has signed it: without this, others would find out when they have paid."""
    fresh = people.study_keys[0]
    keys = {**fresh.public.keys, kind: bad}
    signature = sign_message(fresh._secrets["ed25519"], _statement("teller 0", keys))
    with pytest.raises(ParameterError, match="nothing can be encrypted"):
        teller_card(people.design, people.tellers[0], PublicKey("teller 0", keys, signature))


def test_where_nothing_can_be_kept_nothing_is_spent(people, tmp_path, monkeypatch):
    study = people.open_study()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "file"))
    book = ps.Ledger.create(tmp_path / "book.ledger")
    book.add("visits", epsilon=1.0, delta=1e-5)
    with pytest.raises(AccessError):
        studies.seal(
            np.zeros((10, 2)),
            study,
            key=people.holders[0],
            accept_alone=100.0,
            trusted=people.trusted,
            ledger=(book.path, "visits"),
        )
    assert not book.entries("visits")


def test_ballots_with_one_secret_are_left_out_before_any_key_is_used(
    people, study, ballots, monkeypatch
):
    """The first teller would refuse them, and the last one, whose key is used up, would not."""
    rng = np.random.default_rng(1)
    with monkeypatch.context() as patch:
        seams.set(patch, "splitting.random", lambda n: b"7" * n)
        twins = [cast(study, integers(rng, study), key) for key in people.holders[:2]]
    all_of_them = [*twins, *ballots[2:]]
    checked = [check_ballots(study, all_of_them, key=key) for key in people.study_keys]
    assert sorted(len(one.ballots) for one, _ in checked) == [2, 4]
    assert sorted(len(problems) for _, problems in checked) == [0, 2]


def test_a_list_waits_for_all_tellers(people, study, ballots):
    checked = [check_ballots(study, ballots, key=key)[0] for key in people.study_keys]
    for some, missing in ((checked[:1], "'teller 1'"), ([], "'teller 0', 'teller 1'")):
        with pytest.raises(StudyError, match=f"not checked by {missing}"):
            studies.ClosedList.of(study, ballots, key=people.owner, checked=some)
    assert studies.ClosedList.of(study, ballots, key=people.owner, checked=checked).ballots


def test_a_holder_who_casts_two_ballots_stops_nobody(people, study, ballots):
    second = cast(study, integers(np.random.default_rng(2), study), people.holders[0])
    checked = [check_ballots(study, [second, *ballots], key=key)[0] for key in people.study_keys]
    lists = [
        studies.ClosedList.of(study, given, key=people.owner, checked=checked)
        for given in ([second, *ballots], [*ballots, second])
    ]
    assert lists[0].digest == lists[1].digest
    assert len(lists[0].ballots) == 4


def test_a_ballot_that_says_it_is_a_test_marks_no_total(people, study, ballots):
    words = with_checks(as_words(integers(np.random.default_rng(3), study)), study.weights)
    odd = make_ballot(study, words, people.holders[0], REPLACED)
    checked, problems = check_ballots(study, [odd, *ballots[1:]], key=people.study_keys[0])
    assert len(checked.ballots) == 3
    assert "replaced for a test" in problems[0]


def test_a_mailbox_may_hold_anything(people, study, ballots, tmp_path):
    box = tmp_path / "mailbox"
    box.mkdir()
    for number, ballot in enumerate(ballots):
        ballot.save(box / f"{number}.ballot")
    (box / "folder.ballot").mkdir()
    (box / "link.ballot").symlink_to(tmp_path / "nowhere")
    os.mkfifo(box / "pipe.ballot")
    with open(box / "large.ballot", "wb") as stream:
        stream.truncate(2**33)
    checked = [check_ballots(study, [box], key=key) for key in people.study_keys]
    assert all(len(problems) == 4 for _, problems in checked)
    closed = studies.ClosedList.of(
        study, [box], key=people.owner, checked=[one for one, _ in checked]
    )
    assert len(people.tallies(study, [box], closed)) == 2


def test_holders_who_know_their_own_noise_are_told_of():
    people = People(options={"min_holders": 4, "colluding": 0})
    costs = {cost.who: cost for cost in people.made().sharing.costs()}
    each, outsiders = costs["each of the other holders"], costs["outsiders"]
    assert each.rho == pytest.approx(outsiders.rho * 4 / 3)


# ---------------------------------------------------------------- a second ballot


def sealed_with(people, study, book, **more):
    return studies.seal(
        np.zeros((10, 2)),
        study,
        key=people.holders[0],
        accept_alone=100.0,
        trusted=people.trusted,
        ledger=(book.path, "visits"),
        **more,
    )


@pytest.fixture
def book(tmp_path):
    found = ps.Ledger.create(tmp_path / "book.ledger")
    found.add("visits", epsilon=1.0, delta=1e-5)
    return found


def test_a_second_machine_finds_the_ballot_in_the_mailbox(people, book, tmp_path, monkeypatch):
    """Without this it would draw again, and two ballots cost "alone" twice."""
    study = people.open_study()
    box = tmp_path / "box"
    box.mkdir()
    first = people.seal(study, np.zeros((5, 2)), 0)
    first.save(box / "any name.ballot")
    people.seal(study, np.zeros((5, 2)), 1).save(box / "other.ballot")
    (box / "no.ballot").write_bytes(b"anything")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "elsewhere"))
    with monkeypatch.context() as patch:
        seams.set(patch, "seal.engine_sums", None)  # nothing is read
        for _ in range(2):
            found = sealed_with(people, study, book, mailbox=box)
            assert found.to_bytes() == first.to_bytes()
    (entry,) = book.entries("visits")  # this ledger did not know of it
    assert entry.state == "reserved"
    (box / "any name.ballot").unlink()  # it is kept here from now on
    assert sealed_with(people, study, book, mailbox=box).to_bytes() == first.to_bytes()


def test_two_ballots_of_ones_own_in_the_mailbox_are_told(people, tmp_path, monkeypatch):
    study = people.open_study()
    for n in range(2):
        monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / f"home {n}"))
        people.seal(study, np.zeros((5, 2)), 0).save(tmp_path / f"{n}.ballot")
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "third"))
    terms = {"key": people.holders[0], "accept_alone": 100.0, "trusted": people.trusted}
    with pytest.raises(StudyError, match="2 ballots of yours"):
        studies.seal(np.zeros((5, 2)), study, mailbox=tmp_path, **terms)


def seal_at_once(people, study, ledgers, monkeypatch):
    """Two have drawn before the first ballot is kept, that of the first ledger; both ballots."""
    from privsketch_studies.sealing import seal as module

    drawn, is_kept, ballots = threading.Barrier(2), threading.Event(), {}
    draw, keep = module.sealed_sums, module.write_once

    def late_draw(*arguments):
        found = draw(*arguments)
        drawn.wait(60)
        return found

    def late_keep(path, content):
        if path == module.ballot_file(study.digest, people.holders[0].fingerprint):
            if threading.current_thread().name == "1":
                is_kept.wait(60)
            found = keep(path, content)
            is_kept.set()
            return found
        return keep(path, content)

    def work(number):
        ballots[number] = sealed_with(people, study, ledgers[number]).to_bytes()

    seams.set(monkeypatch, "seal.sealed_sums", late_draw)
    seams.set(monkeypatch, "seal.write_once", late_keep)
    threads = [threading.Thread(target=work, args=(n,), name=str(n)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ballots


def test_two_that_seal_at_once_leave_one_entry(people, book, monkeypatch):
    study = people.open_study()
    ballots = seal_at_once(people, study, [book, book], monkeypatch)
    assert ballots[0] == ballots[1]
    entries = book.entries("visits")
    assert sorted(entry.state for entry in entries) == ["committed", "reserved"]
    assert float(book.total("visits").epsilon) == 0.1
    assert float(book.total_alone("visits").epsilon) == study.alone
    assert not book.check()


def test_an_entry_is_taken_back_only_for_that_of_the_ballot_that_stands(
    people, book, tmp_path, monkeypatch
):
    """The first one has another ledger; and this one knows of an earlier ballot, now forgotten."""
    study = people.open_study()
    other = ps.Ledger.create(tmp_path / "other.ledger")
    other.add("visits", epsilon=1.0, delta=1e-5)
    with monkeypatch.context() as patch:
        patch.setenv("PRIVSKETCH_HOME", str(tmp_path / "lost"))
        sealed_with(people, study, book)
    seal_at_once(people, study, [other, book], monkeypatch)
    assert [entry.state for entry in book.entries("visits")] == ["reserved"] * 2
    assert [entry.state for entry in other.entries("visits")] == ["reserved"]


def test_a_state_that_was_lost_costs_twice(people, book, tmp_path, monkeypatch):
    """Nobody can find the first ballot: the second is another draw, and both count."""
    study = people.open_study()
    first = sealed_with(people, study, book)
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "elsewhere"))
    with pytest.warns(ps.PrivsketchWarning, match="neither stored here nor in the mailbox"):
        assert sealed_with(people, study, book).digest != first.digest
    assert [entry.state for entry in book.entries("visits")] == ["reserved"] * 2
    assert float(book.total("visits").epsilon) == 0.2


# ---------------------------------------------------------------- what lies beside a study


GARBAGE = (b"", b"\xff\xfe", b"{", b"[]", b"a" * 10**6, b"[" * 10**5)


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_in_the_place_of_a_signature_is_told(people, study, tmp_path, data):
    files = study.save(tmp_path / "s.study")
    files[1].write_bytes(data)
    found = studies.SealedStudy.load(tmp_path / "s.study")
    assert len(found.accepted) == 1
    with pytest.raises(StudyError, match=f"not signed by .*{files[1].name}"):
        found.require_open()
    assert f"refused     {files[1]}" in found.describe()
    key = next(key for key in people.tellers if key.name not in found.accepted)
    found.add_signature(study.accept(key))  # the right one, from elsewhere
    found.require_open()
    assert "refused" not in found.describe()


def test_a_signature_of_somebody_else_in_the_place_of_a_teller(people, study, tmp_path):
    files = study.save(tmp_path / "s.study")
    files[1].write_bytes(files[2].read_bytes())
    with pytest.raises(StudyError, match="a signature by another key"):
        studies.SealedStudy.load(tmp_path / "s.study").require_open()
    files[1].unlink()
    files[1].mkdir()
    assert not studies.SealedStudy.load(tmp_path / "s.study").is_open
