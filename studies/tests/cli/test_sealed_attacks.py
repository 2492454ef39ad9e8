"""Attacks on sealed studies, played from the shell: refused or named, with what to do next."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch_studies import CheckedBallots
from privsketch_studies.sealing import (
    make_ballot,
    signed_json,
    state_folder,
    teller_file,
    words_to_bytes,
)
from studies.tests.cli.test_sealed_commands import (
    COST,
    HOLDERS,
    TELLERS,
    check,
    close,
    seal,
    study,
    tally,
)
from studies.tests.sealed import forged_void, list_of, random_words
from studies.tests.sealing.test_checks import altered
from tests.commands import INTEGRITY, refused, run, succeeded

pytestmark = pytest.mark.slow  # together more than a twentieth of a quick run

__all__ = ["study"]  # the fixture
CHECKED = [part for name in TELLERS for part in ("--checked", f"{name}.checked")]


def costs(file="l.ledger"):
    """What the ledger counts: of the total, and alone."""
    book = ps.Ledger(file)
    return [float(one.epsilon) for one in (book.total("visits"), book.total_alone("visits"))]


def with_ledger(name="l.ledger"):
    succeeded("ledger", "create", name)
    succeeded("ledger", "add", name, "visits", "--epsilon", 1, "--delta", "1e-5")
    return ["--ledger", name]


# ---------------------------------------------------------------- 9: a key that tallies twice


def test_a_teller_who_lost_its_state_tallies_nothing_again(study):
    """It was refused by tally, accepted again, and tallied a list that differs by two ballots."""
    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close("h0.ballot", "h1.ballot", "h2.ballot"))
    for name in TELLERS:
        succeeded(*tally(name))
    first = {name: Path(f"{name}.tally").read_bytes() for name in TELLERS}
    Path("first").mkdir()
    for file in ("s.closed", "a.tally", "b.tally"):
        shutil.move(file, "first")  # nothing in the mailbox tells of it
    succeeded(*close("h1.ballot", "h2.ballot", "h3.ballot"))
    shutil.rmtree(state_folder())
    void = ["study", "void", "s.study", "--key", "a.key", "--study-key", "a.study.key"]
    verify = ["study", "check", "s.study", "h0.ballot", "--trust", "a.pub", "--key", "a.study.key"]
    for command in (
        [*tally("a"), *CHECKED],
        ["study", "accept", "s.study", "--key", "a.key"],
        [*void, "-o", "a.void"],
        [*verify, "-o", "again.checked"],
        [*tally("a"), *CHECKED],
    ):
        told = refused(study, *command, code=INTEGRITY)
        assert "not made on this machine by this user" in told
        assert "privsketch study enrol --teller" in told
        assert "have the study made anew" in told
    assert Path("a.study.key").exists()
    assert not Path("a.tally").exists()
    assert {name: Path(f"first/{name}.tally").read_bytes() for name in TELLERS} == first

    # What it says to do: a new key, a new study.
    new = ["study", "enrol", "design.json", "--key", "a.key", "--teller", "-o", "a2.card"]
    succeeded(*new)
    succeeded("study", "enrol", "design.json", "--key", "b.key", "--teller", "-o", "b2.card")
    cards = [f"{name}.card" for name in (*HOLDERS, "a2", "b2")]
    limits = ["--min-holders", 3, "--colluding", 1, "--owner", "owner.pub"]
    succeeded("study", "make", "design.json", *cards, *limits, "-o", "t.study")
    for name in TELLERS:
        succeeded("study", "accept", "t.study", "--key", f"{name}.key")


def test_a_state_from_before_the_study_does_not_accept_it_again(study):
    """A backup of the time between enrol and accept: the key is born, and has forgotten the rest.

    The teller's own signature lies beside the study.
    """
    for card in studies.SealedStudy.load("s.study").tellers:
        teller_file(card.study_key.fingerprint, "study").unlink()
    told = refused(study, "study", "accept", "s.study", "--key", "a.key", code=INTEGRITY)
    assert "your signature is beside this study" in told
    assert "have the study made anew" in told


def test_an_earlier_machine_does_not_sign_another_study(study):
    cards = [f"{name}.card" for name in (*HOLDERS, *TELLERS)]
    succeeded("study", "make", "design.json", *cards, "--colluding", 1, "-o", "t.study")
    told = refused(study, "study", "accept", "t.study", "--key", "a.key", code=INTEGRITY)
    assert "used for another study" in told
    assert not list(study.glob("t.study.*.sig"))


# ---------------------------------------------------------------- 10: a ledger that forgets


def test_one_liar_takes_no_cost_back(study):
    """A total exists; a pinned teller signs that it has published no tally."""
    where = with_ledger()
    seal("h0", *where)
    for name in HOLDERS[1:]:
        seal(name)
    check()
    succeeded(*close())
    for name in TELLERS:
        succeeded(*tally(name))
    before = costs()
    found, liar = studies.SealedStudy.load("s.study"), ps.Key.load("a.key")
    forged_void(found, liar, ps.Key.load("a.study.key").fingerprint).save("a.void")
    settle = ["study", "settle", "s.study", "--holder", "h0", *where]
    told = refused(study, *settle, "--void", "a.void", code=INTEGRITY)
    assert "'b' did not declare" in told
    assert "a pinned teller is not enough" in told
    Path("away").mkdir()
    Path("b.tally").rename("b.under another name")
    for file in ("a.tally", "b.under another name"):
        told = refused(study, *settle, "--void", "a.void", "--trust", "a", code=INTEGRITY)
        assert f"{file}: a tally of this study" in told
        assert "privsketch study settle --total" in told
        shutil.move(file, "away")
    tallies = ["away/a.tally", "away/b.under another name"]
    succeeded("study", "join", "s.study", *tallies, "-o", "total.sketch")
    told = refused(study, *settle, "--void", "a.void", "--trust", "a", code=INTEGRITY)
    assert "total.sketch: a total of this study" in told
    Path("empty").mkdir()
    shutil.copy("s.study", "empty")
    settle[2] = "empty/s.study"  # the mailbox is wherever the statements lie
    told = refused(study, *settle, "--void", "a.void", "--trust", "a", code=INTEGRITY)
    assert "total.sketch: a total of this study" in told
    assert costs() == before
    told = succeeded(*settle, "--total", "total.sketch").output
    assert "now with the receipt of the total" in told
    assert costs() == before


def test_all_tellers_take_the_cost_back_and_a_named_one_alone_too(study):
    ledgers = {name: with_ledger(f"{name}.ledger") for name in HOLDERS[:2]}
    for name, where in ledgers.items():
        seal(name, *where)
    for name in TELLERS:
        files = ["--key", f"{name}.key", "--study-key", f"{name}.study.key", "-o", f"{name}.void"]
        succeeded("study", "void", "s.study", *files)
    alone = costs("h0.ledger")[1]
    both = ["--void", "a.void", "--void", "b.void"]
    settle = ["study", "settle", "s.study", "--json"]
    told = succeeded(*settle, "--holder", "h0", *ledgers["h0"], *both).stdout
    facts = json.loads(told)
    assert [facts[f"is_{name}"] for name in ("void", "free", "alone_free")] == [True, True, False]
    assert costs("h0.ledger") == [0, alone]
    named = ["--trust", "b.pub"]
    told = succeeded(*settle, "--holder", "h1", *ledgers["h1"], *both, *named).stdout
    assert json.loads(told)["is_alone_free"]
    assert costs("h1.ledger") == [0, 0]


# ---------------------------------------------------------------- 11: a ballot of random words


@pytest.fixture
def bad_ballot(study):
    """All have cast; that of h3 is signed, opens, and has random words. h3 keeps a ledger."""
    where = with_ledger()
    for name in HOLDERS[:3]:
        seal(name)
    seal("h3", *where)
    found = studies.SealedStudy.load("s.study")
    words = random_words(np.random.default_rng(0), found)
    Path("h3.ballot").unlink()
    make_ballot(found, words, ps.Key.load("h3.key")).save("h3.ballot")
    return where


def test_a_ballot_of_random_words_is_named_before_a_key_is_used(study, bad_ballot):
    before = costs()
    check()
    # Anybody sees it, with the files of all tellers.
    ballots = [f"{name}.ballot" for name in HOLDERS]
    told = run("study", "check", "s.study", *ballots, "a.checked", "b.checked")
    assert told.exit_code == INTEGRITY
    assert "REFUSED     h3.ballot: the ballot of 'h3'" in told.output
    assert "this ballot or a teller is wrong, and it is not possible to tell which" in told.output
    assert told.output.count("valid") == 6
    facts = json.loads(succeeded("study", "show", "s.study", "--json").stdout)
    assert facts["mailbox"]["unfit"] == ["h3"]
    assert facts["mailbox"]["checked"] == ["a", "b"]
    assert "privsketch study close leaves it out" in succeeded("study", "show", "s.study").stderr

    # An owner who closes a list with it, whatever was checked: no teller uses its key.
    found, owner = studies.SealedStudy.load("s.study"), ps.Key.load("owner.key")
    list_of(found, [studies.Ballot.load(file) for file in ballots], owner).save("s.closed")
    for name in TELLERS:
        told = refused(study, *tally(name), code=INTEGRITY)
        assert "the ballot of 'h3'" in told
        assert "No key was used; close the list again without it" in told
    Path("s.closed").unlink()

    closed = succeeded(*close(), "--json")
    facts = json.loads(closed.stdout)
    assert (facts["holders"], facts["left_out"]) == (["h0", "h1", "h2"], ["h3"])
    assert "the ballot of h3 is left out" in closed.stderr
    assert "must not seal again" in closed.stderr
    for name in TELLERS:
        succeeded(*tally(name))
    tallies = ["a.tally", "b.tally"]
    succeeded("study", "join", "s.study", *tallies, "-o", "total.sketch")
    assert ps.Sketch.load("total.sketch").sources == HOLDERS[:3]

    # h3 may be honest, and a teller wrong: it pays alone once, and nothing for the total.
    again = ["study", "seal", "s.study", "h3.npy", "--key", "h3.key", *COST, "-o", "again.ballot"]
    succeeded(*again, *bad_ballot)
    assert costs() == before
    settle = ["study", "settle", "s.study", "--holder", "h3", *bad_ballot]
    told = refused(study, *settle, "--total", "total.sketch", code=INTEGRITY)
    assert "--tally" in told
    both = ["--tally", "a.tally", "--tally", "b.tally"]
    assert "now with no cost but" in succeeded(*settle, *both).output
    assert costs() == [0, before[1]]
    assert succeeded(*settle, *both).output.startswith("settled     0 entries")


def test_a_ballot_that_a_teller_says_nothing_of_was_cast_and_is_named(study):
    """Planted: b leaves a good ballot out of what it has checked; h3 never cast one."""
    for name in HOLDERS:
        seal(name)
    Path("h3.ballot").rename("kept")
    check()
    few = [studies.Ballot.load(f"{name}.ballot") for name in HOLDERS[:2]]
    Path("b.checked").unlink()
    key = ps.Key.load("b.study.key")
    studies.check_ballots(studies.SealedStudy.load("s.study"), few, key=key)[0].save("b.checked")
    words = "b did not state that it can be opened"
    shown = succeeded("study", "show", "s.study", "--json")
    expected = [{"holder": "h2", "tellers": ["b"]}]
    assert json.loads(shown.stdout)["mailbox"]["unopened"] == expected
    assert f"the ballot of h2: {words}" in shown.stderr
    Path("kept").rename("h3.ballot")
    Path("b.checked").unlink()
    few.append(studies.Ballot.load("h3.ballot"))
    studies.check_ballots(studies.SealedStudy.load("s.study"), few, key=key)[0].save("b.checked")
    Path("a.checked").unlink()
    check_again = ["study", "check", "s.study", "--trust", "a.pub", "--key", "a.study.key"]
    ballots = [f"{name}.ballot" for name in HOLDERS]
    succeeded(*check_again, *ballots, "-o", "a.checked")
    assert "the ballot of h2 is not checked by b" in refused(study, *close(), code=INTEGRITY)
    done = succeeded(*close(), "--leave-out", "h2", "--json")
    facts = json.loads(done.stdout)
    assert (facts["left_out"], facts["unopened"]) == ([], expected)
    assert f"the ballot of h2 is left out: {words}" in done.stderr
    assert "this ballot or a teller is wrong, and it is not possible to tell which" in done.stderr
    assert "no ballot  " not in done.stderr + done.stdout


def test_a_list_is_closed_whatever_a_teller_has_named(study):
    """Planted: b names the digest of a file that is no ballot."""
    for name in HOLDERS:
        seal(name)
    check()
    Path("no.ballot").write_bytes(b"anything")
    found, key = studies.SealedStudy.load("s.study"), ps.Key.load("b.study.key")
    shares = dict(CheckedBallots.load("b.checked").shares)
    shares[hashlib.sha256(b"anything").hexdigest()] = next(iter(shares.values()))
    pairs = [[name, words_to_bytes(words).hex()] for name, words in sorted(shares.items())]
    content = {"study": found.digest, "ballots": pairs}
    Path("b.checked").write_bytes(signed_json("checked-ballots", content, key))
    facts = json.loads(succeeded(*close("."), "--json").stdout)
    assert (facts["holders"], facts["unopened"]) == ([*HOLDERS], [])


def test_who_looks_again_keeps_what_it_said_of_a_ballot_that_a_liar_spoiled(study):
    """Its word would be missing otherwise, as if it were the one who cannot open the ballot."""
    for name in HOLDERS:
        seal(name)
    check()
    found, ballot = studies.SealedStudy.load("s.study"), studies.Ballot.load("h2.ballot")
    good = CheckedBallots.load("b.checked")
    lie = altered(good, found, ps.Key.load("b.study.key"), ballot.digest)
    lie.save("b.checked")
    before = CheckedBallots.load("a.checked").to_bytes()
    Path("a.checked").unlink()
    ballots = [f"{name}.ballot" for name in HOLDERS]
    again = [
        "study",
        "check",
        "s.study",
        "b.checked",
        "a0.checked",
        *ballots,
        "--key",
        "a.study.key",
    ]
    Path("a0.checked").write_bytes(before)
    told = run(*again, "-o", "a.checked")
    assert told.exit_code == INTEGRITY
    assert "REFUSED     h2.ballot" in told.output
    assert CheckedBallots.load("a.checked").to_bytes() == before


def test_a_tally_of_something_else_is_its_tellers(study):
    """Every ballot adds up, and the tallies do not: what was checked says whose fault it is."""
    from privsketch_studies.sealing import packed, unpacked

    for name in HOLDERS:
        seal(name)
    check()
    succeeded(*close())
    for name in TELLERS:
        succeeded(*tally(name))
    fields = ("study", "teller", "list", "level", "holders", "sampler")
    found = unpacked(Path("b.tally").read_bytes(), "tally", fields, "x")
    words = np.frombuffer(found.content, dtype="<u8").copy()
    words[0] += np.uint64(1)
    key = ps.Key.load("b.study.key")
    Path("b.tally").write_bytes(packed("tally", found.header, words.tobytes(), key))
    told = refused(
        study,
        "study",
        "join",
        "s.study",
        "a.tally",
        "b.tally",
        "-o",
        "total.sketch",
        code=INTEGRITY,
    )
    assert "privsketch study check" in told
    everything = ["s.closed", "a.checked", "b.checked", "a.tally", "b.tally"]
    told = run("study", "check", "s.study", *everything)
    assert told.exit_code == INTEGRITY
    assert "REFUSED     b.tally: the tally is not the sum of what 'b' published" in told.output
    assert "valid       a.tally" in told.output
    assert "not compared" not in told.output
    # Without what was checked it is only said that nobody has looked.
    for less in (["s.closed", "b.tally"], ["s.closed", "a.checked", "b.tally"], ["b.tally"]):
        told = succeeded("study", "check", "s.study", *less).output
        assert "b.tally: not compared with what b has checked" in told


# ---------------------------------------------------------------- 12: pipes in a mailbox


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_the_mailbox_stops_nobody(study):
    """Commands in processes of their own: each of them would wait for ever."""
    for name in HOLDERS:
        seal(name)
    check()
    for ending in ("ballot", "checked", "closed", "tally", "void", "card", "sketch"):
        os.mkfifo(f"0.{ending}")
    os.symlink("0.tally", "link.tally")
    with_ledger()

    def at_once(*arguments, code=0):
        command = [sys.executable, "-m", "privsketch.cli.main", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    at_once("study", "show", "s.study")
    at_once(*close())
    at_once(*tally("a"))
    at_once("study", "seal", "s.study", "h0.npy", "--key", "h0.key", *COST, "-o", "again.ballot")
    assert "not a plain file" in at_once(
        "study", "check", "s.study", "0.ballot", "s.closed", code=5
    )
    assert "not a plain file" in at_once("inspect", "0.sketch", code=3)
    assert "not a plain file" in at_once(
        "study", "join", "s.study", "0.tally", "-o", "x.sketch", code=3
    )
