"""Sealed studies at a collector: it keeps files in their turn, and sees nothing."""

import html
import re

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch_studies import check_ballots
from privsketch_studies.collector import Client, mailbox, make_study, pull, push, verify_store
from privsketch_studies.sealing import make_ballot, void_study
from studies.tests.collector.test_web_pages import Browser
from studies.tests.sealed import GAUSSIAN, People, cast, integers, list_of, random_words
from studies.tests.sealing.test_checks import altered
from studies.tests.server import World, serving
from tests import seams
from tests.commands import succeeded

pytestmark = pytest.mark.slow  # together more than a twentieth of a quick run


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    return People()


@pytest.fixture
def sealed(world, people):
    """A sealed study "lungs", whose people are members; no key is known beforehand."""
    make_study(world.store, "lungs", GAUSSIAN.to_bytes(), owner="olga", sealed=True)
    for keys, role in ((people.holders, "site"), (people.tellers, "teller")):
        for key in keys:
            world.add(key.name, role, study="lungs")
    return world


def state(world):
    return world.ask("olga", "GET", "/studies/lungs").json()["state"]


def put(world, who, thing):
    data = thing if isinstance(thing, bytes) else thing.to_bytes()
    return world.push(who, data, study="lungs").status_code


def enrolled(world, people):
    """The study, made of the cards that lie in the mailbox."""
    for card in people.cards:
        assert put(world, card.name, card) == 201
    study = people.made()
    assert put(world, "olga", study) == 201
    return study


def opened(world, people):
    study = enrolled(world, people)
    for key in people.tellers:
        assert put(world, key.name, study.accept(key)) == 201
    assert state(world) == "open"
    return study


def ballots_of(study, people):
    rng = np.random.default_rng(0)
    return [cast(study, integers(rng, study) // 2**30, key) for key in people.holders]


def test_a_study_from_cards_to_the_total(sealed, people):
    assert state(sealed) == "enrolling"
    study = enrolled(sealed, people)
    assert state(sealed) == "frozen"
    ballots = ballots_of(study, people)
    first = people.holders[0].name
    assert put(sealed, first, people.cards[0]) == 200  # the same bytes
    assert put(sealed, first, ballots[0]) == 423
    for key in people.tellers:
        assert put(sealed, key.name, study.accept(key)) == 201
    assert state(sealed) == "open"
    for key, ballot in zip(people.holders, ballots, strict=True):
        assert put(sealed, key.name, ballot) == 201
    checked = [
        check_ballots(study, part, key=people.study_keys[0])[0] for part in (ballots[:3], ballots)
    ]
    for one in checked:  # who looks again says it again
        assert put(sealed, "teller 0", one) == 201
    listed = sealed.ask("olga", "GET", "/studies/lungs/uploads").json()
    assert [one["kind"] for one in listed].count("checked") == 1
    last = sealed.ask("olga", "GET", "/studies/lungs/events").json()[-2:]
    assert [one["act"] for one in last] == ["set aside", "uploaded"]
    closed = people.closed(study, ballots)
    assert put(sealed, "olga", closed) == 422  # one teller has not checked
    second = check_ballots(study, ballots, key=people.study_keys[1])[0]
    assert put(sealed, "teller 1", second) == 201
    assert put(sealed, "olga", closed) == 201
    assert state(sealed) == "closed"
    assert put(sealed, first, ballots[0]) == 200
    assert sealed.ask("olga", "GET", "/studies/lungs/total").status_code == 404
    tallies = people.tallies(study, ballots, closed)
    for key, tally in zip(people.tellers, tallies, strict=True):
        assert put(sealed, key.name, tally) == 201
    assert state(sealed) == "tallied"
    joined = studies.join(study, tallies)
    assert np.array_equal(sealed.total(study="lungs").values, joined.values)
    assert verify_store(sealed.store).n_uploads == 6 + 1 + 2 + 4 + 3 + 1 + 2


def test_files_of_others_and_out_of_turn_are_refused(sealed, people):
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    first, second = (key.name for key in people.holders[:2])
    assert put(sealed, first, ballots[1]) == 422  # signed by another than this member's card
    assert put(sealed, "teller 0", ballots[0]) == 403
    assert put(sealed, "olga", ballots[0]) == 403
    assert put(sealed, first, ballots[0]) == 201
    assert put(sealed, first, ballots_of(study, people)[0]) == 409
    assert put(sealed, second, ballots[0]) == 409
    stranger = People().holders[0]
    assert put(sealed, second, people.cards[1]) == 200
    assert put(sealed, second, studies.Card.holder(GAUSSIAN, key=stranger, accept_alone=1.0)) == 423
    assert put(sealed, "olga", people.made()) == 423
    assert put(sealed, "olga", people.closed(study, ballots)) == 422  # ballots that are not here
    assert put(sealed, "olga", b"\x89privsb\n" + bytes(500)) == 403
    assert put(sealed, second, ballots[1].to_bytes()[:-1]) == 422
    assert put(sealed, second, GAUSSIAN.to_bytes()) == 415
    assert put(sealed, second, ballots[1].to_bytes() + bytes(200_000)) == 413


def test_pages_say_what_is_expected_and_show_the_total_once_it_is_tallied(sealed, people):
    olga = Browser(sealed, "olga")
    page = "/studies/lungs"
    assert "Enrol (privsketch study enrol --accept-alone)" in olga.text(page)
    assert ">Study file</label>" in olga.text(page)
    study = opened(sealed, people)
    assert "uploaded an acceptance of teller 0" in part(olga.text(f"{page}/history"), "events")
    text = Browser(sealed, "teller 0").text(page)
    assert "takes a list of checked ballots, a closed list or a void statement of you now" in text
    text = olga.text(page)
    assert "0 of 4 sites" in text
    assert text.count("Seal your records") == 4
    assert "There is no total yet" in olga.text(f"{page}/models")
    assert olga.get(f"{page}/sources").status_code == 404
    ballots = ballots_of(study, people)
    first = Browser(sealed, people.holders[0].name)
    file = {"file": ("own.ballot", ballots[0].to_bytes())}
    assert first.post(f"{page}/uploads", files=file).headers["location"].endswith("handed-in")
    assert "1 of 4 sites" in first.text(page)
    for key, ballot in zip(people.holders[1:], ballots[1:], strict=True):
        assert put(sealed, key.name, ballot) == 201
    for key, one in zip(people.tellers, people.checked(study, ballots), strict=True):
        assert put(sealed, key.name, one) == 201
    closed = people.closed(study, ballots)
    assert put(sealed, "olga", closed) == 201
    assert "Tally with your study key" in olga.text(page)
    tallies = people.tallies(study, ballots, closed)
    for key, tally in zip(people.tellers, tallies, strict=True):
        assert put(sealed, key.name, tally) == 201
    text = olga.text(page)
    assert ">Tallied<" in text
    assert "one of the 2 tellers is honest" in text
    assert "Learn from the total" in olga.text(f"{page}/models")
    assert olga.get(f"{page}/total.sketch").content == sealed.total(study="lungs").to_bytes()


def part(text, name):
    """The words of a section of a page, on one line."""
    section = text.partition(f'aria-labelledby="{name}"')[2].partition("</section>")[0]
    return " ".join(html.unescape(re.sub("<[^<>]*>", " ", section)).split())


def test_a_ballot_after_the_checks_is_checked_before_the_list_is_closed(sealed, people):
    """Tellers are asked again, the owner waits, and a site that is left out reads why."""
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    page = "/studies/lungs"
    olga, teller, last = (
        Browser(sealed, name) for name in ("olga", "teller 0", people.holders[3].name)
    )
    for key, ballot in zip(people.holders[:3], ballots[:3], strict=True):
        assert "check which ballots" not in teller.text(page)
        assert "wait for ballots: 3 or more" in olga.text(page).lower()
        assert put(sealed, key.name, ballot) == 201
    assert "Check which ballots you can open" in part(teller.text(page), "expected")
    assert "the ballot of site 003 is not in yet" in part(teller.text(page), "expected")
    for key, one in zip(people.tellers, people.checked(study, ballots[:3]), strict=True):
        assert put(sealed, key.name, one) == 201
    assert "nothing for you to do now" in part(teller.text(page), "expected")
    assert "Close the list" in part(olga.text(page), "expected")
    assert "study close" in part(olga.text(page), "expected")

    assert put(sealed, people.holders[3].name, ballots[3]) == 201
    told = part(teller.text(page), "expected")
    assert "Check again" in told
    assert "does not have the ballot of site 003" in told
    assert "privsketch study check lungs/lungs.study" in told
    told = part(olga.text(page), "expected")
    assert "Wait for teller 0 and teller 1 to check the ballot of site 003" in told
    assert "privsketch study close lungs/lungs.study" not in told
    assert "teller 0 and teller 1 did not check it yet" in part(last.text(page), "expected")
    assert "Reported, not checked yet" in part(last.text(page), "reported")

    closed = people.closed(study, ballots[:3])
    assert put(sealed, "olga", closed) == 201
    text = last.text(page)
    assert "Your ballot does not count: the list was closed without it, because" in part(
        text, "expected"
    )
    assert "4 of 4 sites; 1 ballot does not count" in part(text, "reported")
    for key, tally in zip(people.tellers, people.tallies(study, ballots, closed), strict=True):
        assert put(sealed, key.name, tally) == 201
    assert "study settle --tally" in part(last.text(page), "expected")
    assert "study settle --tally" not in part(olga.text(page), "expected")


def test_a_check_of_no_ballots_is_refused(sealed, people):
    study = opened(sealed, people)
    empty = check_ballots(study, [], key=people.study_keys[0])[0]
    answer = sealed.push("teller 0", empty.to_bytes(), study="lungs")
    assert answer.status_code == 422
    card = studies.Card.holder(GAUSSIAN, key=people.holders[0], accept_alone=9.0)
    late = sealed.push(people.holders[0].name, card.to_bytes(), study="lungs")
    assert "the study is open and does not take a card now" in late.text
    assert "it has no ballot, and says nothing" in answer.text


def test_a_list_with_a_ballot_that_does_not_add_up_is_refused(sealed, people):
    """There is one list at a collector: tellers would refuse this one, and nothing else came."""
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    words = random_words(np.random.default_rng(1), study)
    ballots[0] = make_ballot(study, words, people.holders[0])
    for key, ballot in zip(people.holders, ballots, strict=True):
        assert put(sealed, key.name, ballot) == 201
    for key, one in zip(people.tellers, people.checked(study, ballots), strict=True):
        assert put(sealed, key.name, one) == 201
    assert put(sealed, "olga", list_of(study, ballots, people.owner)) == 422
    closed = people.closed(study, ballots)
    assert list(closed.ballots) == [ballot.holder for ballot in ballots[1:]]
    assert put(sealed, "olga", closed) == 201
    told = part(Browser(sealed, people.holders[0].name).text("/studies/lungs"), "expected")
    assert "what all tellers published of it does not add up" in told
    for key, tally in zip(people.tellers, people.tallies(study, ballots, closed), strict=True):
        assert put(sealed, key.name, tally) == 201
    assert state(sealed) == "tallied"


def test_a_study_is_void_before_the_first_tally(sealed, people):
    study = opened(sealed, people)
    void = void_study(study, key=people.tellers[0], study_key_file=None)
    assert put(sealed, "teller 1", void) == 422
    assert put(sealed, "teller 0", void) == 201
    assert state(sealed) == "void"
    assert put(sealed, people.holders[0].name, ballots_of(study, people)[0]) == 423


def test_keys_that_are_known_bind_from_the_first_file_on(sealed, people):
    sealed.add("eve", "site", study="lungs", key=people.owner.public)
    assert put(sealed, "eve", people.cards[0]) == 422


def test_nobody_keeps_a_study_from_being_made(sealed, people):
    """Of two people whose names read alike no study can be made, so the second is refused."""
    sealed.add("eve", "site", "teller", study="lungs")
    first, second = people.cards[:2]
    for name in (first.name.upper(), "teller 0"):  # those of other members
        card = studies.Card.holder(GAUSSIAN, key=ps.Key.generate(name), accept_alone=1.0)
        assert put(sealed, "eve", card) == 409
    mine = studies.Card.holder(GAUSSIAN, key=ps.Key.generate("Eve Adams"), accept_alone=1.0)
    assert put(sealed, "eve", mine) == 201
    alike = studies.Card.holder(GAUSSIAN, key=ps.Key.generate("eve  adams"), accept_alone=1.0)
    assert put(sealed, first.name, alike) == 409
    assert put(sealed, first.name, first) == 201
    assert put(sealed, second.name, second) == 201


def test_a_copy_that_was_set_aside_gives_way(sealed, people):
    """Cards are public: somebody else can hand in one that was meant for another study."""
    sealed.add("eve", "site", study="lungs")
    key = ps.Key.generate("of nobody here")
    card = studies.Card.holder(GAUSSIAN, key=key, accept_alone=1.0)
    assert put(sealed, "eve", card) == 201
    assert put(sealed, "site 001", card) == 409
    digest = sealed.ask("olga", "GET", "/studies/lungs/uploads").json()[0]["digest"]
    path = f"/studies/lungs/uploads/{digest}/set-aside"
    assert sealed.ask("olga", "POST", path, json={"because": "not hers"}).status_code == 204
    assert put(sealed, "eve", card) == 409
    assert put(sealed, "site 001", card) == 201
    assert put(sealed, "eve", card) == 409
    assert verify_store(sealed.store).n_uploads == 1


def test_a_study_is_made_of_the_cards_that_are_there(sealed, people):
    for card in people.cards[1:]:
        assert put(sealed, card.name, card) == 201
    study = people.made()
    assert put(sealed, "olga", study) == 422
    assert put(sealed, people.cards[0].name, people.cards[0]) == 201
    assert put(sealed, "olga", study.to_bytes() + b" " * 200_000) == 413
    assert put(sealed, "olga", study) == 201


def test_signatures_beside_files_of_sealed_studies_are_refused(sealed, people):
    data, who = people.cards[0].to_bytes(), people.cards[0].name
    answer = sealed.push(who, data, study="lungs", headers={"Privsketch-Signature": "AAAA"})
    assert answer.status_code == 422


def test_what_came_in_between_is_seen(sealed, people, monkeypatch):
    """A file that was checked before another one was kept is checked once more."""
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    for key, ballot in zip(people.holders, ballots, strict=True):
        assert put(sealed, key.name, ballot) == 201
    early, late = (
        check_ballots(study, part, key=people.study_keys[0])[0] for part in (ballots[:3], ballots)
    )
    check = mailbox.check_file

    def slow(*arguments):
        found = check(*arguments)
        seams.set(monkeypatch, "mailbox.check_file", check)
        assert put(sealed, "teller 0", early) == 201
        return found

    seams.set(monkeypatch, "mailbox.check_file", slow)
    assert put(sealed, "teller 0", late) == 201
    verify_store(sealed.store)


def test_what_a_teller_has_said_of_a_ballot_is_not_set_aside(sealed, people):
    """Planted: a second file with another share of a ballot, and one that drops a ballot."""
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    first = check_ballots(study, ballots[:3], key=people.study_keys[0])[0]
    assert put(sealed, "teller 0", first) == 201
    whole = check_ballots(study, ballots, key=people.study_keys[0])[0]
    liar = altered(whole, study, people.study_keys[0], ballots[2].digest)
    fewer = check_ballots(study, [*ballots[:2], ballots[3]], key=people.study_keys[0])[0]
    for wrong, words in (
        (liar, "two different shares of one ballot"),
        (fewer, "ballots of your earlier file are missing"),
    ):
        answer = sealed.push("teller 0", wrong.to_bytes(), study="lungs")
        assert answer.status_code == 422
        assert words in answer.text
    assert put(sealed, "teller 0", whole) == 201


def test_random_files_change_nothing(sealed, people):
    """Good files of every kind with some bytes changed: refused, and no error of ours."""
    rng = np.random.default_rng(0)
    study = opened(sealed, people)
    ballots = ballots_of(study, people)
    closed = people.closed(study, ballots)
    files = {
        people.holders[0].name: (ballots[0], people.cards[0]),
        "olga": (study, closed),
        "teller 0": (
            check_ballots(study, ballots, key=people.study_keys[0])[0],
            people.tallies(study, ballots, closed)[0],
            study.accept(people.tellers[0]),
        ),
    }
    before = verify_store(sealed.store)
    for who, things in files.items():
        for thing in things:
            for turn in range(8):
                data = bytearray(thing.to_bytes())
                data[int(rng.integers(8 if turn < 6 else 0, len(data)))] ^= int(
                    rng.integers(1, 256)
                )
                assert put(sealed, who, bytes(data)) in (403, 413, 415, 422, 423)
    assert verify_store(sealed.store) == before


def test_keys_of_tellers_are_pulled_with_their_cards_and_go_with_them(tmp_path, people):
    """Holders pin them from there; a key whose card was set aside is no teller's."""
    place = str(tmp_path / "collector.db")
    world = World(place)
    make_study(world.store, "lungs", GAUSSIAN.to_bytes(), owner="olga", sealed=True)
    for card in (people.cards[0], people.cards[-1]):
        role = "site" if card.role == "holder" else "teller"
        world.add(card.name, role, study="lungs")
        assert put(world, card.name, card) == 201
    with serving(place) as address:
        client = Client(f"{address}/studies/lungs", world.tokens["olga"])
        pull(client, tmp_path / "box")
        (file,) = (tmp_path / "box").glob("*.pub")  # holders have none here
        assert file.name == "teller-1.pub"
        assert ps.PublicKey.load(file) == people.tellers[1].public
        for upload in world.ask("olga", "GET", "/studies/lungs/uploads").json():
            path = f"/studies/lungs/uploads/{upload['digest']}/set-aside"
            assert world.ask("olga", "POST", path, json={"because": "x"}).status_code == 204
        pull(client, tmp_path / "box")
        assert not list((tmp_path / "box").glob("*.pub"))
        assert (tmp_path / "box" / "set-aside" / "teller-1.pub").exists()
    world.store.close()


def test_commands_work_on_what_was_pulled(tmp_path, monkeypatch, people):
    """Each of them in a folder of its own, with the collector between them."""
    place = str(tmp_path / "collector.db")
    world = World(place)
    make_study(world.store, "lungs", GAUSSIAN.to_bytes(), owner="olga", sealed=True)
    for key in (*people.holders, *people.tellers):
        world.add(key.name, "site" if key in people.holders else "teller", study="lungs")
    with serving(place) as address:

        def client(name):
            return Client(f"{address}/studies/lungs", world.tokens[name])

        def handed_in(name, thing, ending):
            file = tmp_path / f"own{ending}"
            file.unlink(missing_ok=True)
            thing.save(file)
            assert push(client(name), [file])[0].is_new

        for card in people.cards:
            handed_in(card.name, card, ".card")
        cards = sorted(
            p for p in pull(client("olga"), tmp_path / "olga").written if p.suffix == ".card"
        )
        assert len(cards) == 6
        study = studies.SealedStudy(
            GAUSSIAN, cards=cards, owner=people.owner.public, **people.options
        )
        handed_in("olga", study, ".study")
        for key in people.tellers:
            handed_in(key.name, study.accept(key), ".sig")
        ballots = ballots_of(study, people)
        for key, ballot in zip(people.holders, ballots, strict=True):
            handed_in(key.name, ballot, ".ballot")
        for key, one in zip(people.tellers, people.checked(study, ballots), strict=True):
            handed_in(key.name, one, ".checked")
        handed_in("olga", people.closed(study, ballots), ".closed")
        monkeypatch.chdir(tmp_path)
        for number, key in enumerate(people.study_keys):
            mailbox = f"teller{number}"
            pull(client(key.name), tmp_path / mailbox)
            key.save(f"{number}.study.key", passphrase=None)
            where = [f"{mailbox}/lungs.study", mailbox, "--list", f"{mailbox}/lungs.closed"]
            succeeded(
                "study", "tally", *where, "--key", f"{number}.study.key", "-o", f"{number}.tally"
            )
            push(client(key.name), [tmp_path / f"{number}.tally"])
        found = pull(client("site 001"), tmp_path / "site")
        assert found.state == "tallied"
        shown = succeeded("study", "show", "site/lungs.study").output
        assert "4 ballots, list closed, 2 tallies" in shown
        tallies = [str(file) for file in (tmp_path / "site").glob("*.tally")]
        succeeded("study", "join", "site/lungs.study", *tallies, "-o", "total.sketch")
    world.store.close()
