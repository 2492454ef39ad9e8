"""Sealed studies from enrolment to total, and every rule that must not be broken."""

import json
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch import AccessError, BudgetError, FileError, ParameterError, SignatureError
from privsketch.learning.moments import Moments
from privsketch.signing import pin, signature_within_rules
from privsketch_studies import CheckedBallots, StudyError, check_ballots
from privsketch_studies.sealing import (
    VoidStudy,
    as_words,
    earlier_ballot,
    settle,
    signed_json,
    teller_card,
    teller_file,
    total_values,
    void_study,
    with_checks,
)
from studies.tests.sealed import (
    DESIGN,
    GAUSSIAN,
    PURE,
    PURE_REGRESSION,
    REGRESSION,
    REPLACE,
    People,
    cast,
    forged_list,
    forged_void,
    integers,
    list_of,
)
from tests import seams
from tests.chance import exact_answers

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user whose state nobody else sees."""
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def people(home):
    return People()


@pytest.fixture
def study(people):
    return people.open_study()


@pytest.fixture
def ballots(people, study):
    return [cast(study, integers(RNG, study), key) for key in people.holders]


def records(n):
    return np.random.default_rng(n).uniform(-1, 1, size=(20 + n, 2))


# ---------------------------------------------------------------- totals


@pytest.mark.parametrize("n_tellers", [2, 3, 4, 5])
def test_the_total_is_the_sum_of_ballots_bit_for_bit(n_tellers):
    people = People(n_tellers=n_tellers)
    study = people.open_study()
    values = [integers(RNG, study, extreme=n % 2 == 0) for n in range(4)]
    ballots = [cast(study, v, key) for v, key in zip(values, people.holders, strict=True)]
    closed = people.closed(study, [ballots[n] for n in (2, 0, 3, 1)])
    tallies = people.tallies(study, ballots, closed)
    level = study.sharing.level_of(4)
    expected = [sum(int(v[level, j]) for v in values) for j in range(values[0].shape[1])]
    wrapped = [(number + 2**63) % 2**64 - 2**63 for number in expected]
    for order in (tallies, tallies[::-1]):
        found = total_values(study, order)
        assert found.values.tolist() == wrapped
        assert found.holders == (0, 1, 2, 3)


@pytest.mark.parametrize(
    "design",
    [GAUSSIAN, PURE, REPLACE, REGRESSION, PURE_REGRESSION],
    ids=["gaussian", "pure", "replace", "regression", "pure regression"],
)
def test_a_study_without_noise_gives_the_sketch_of_all_records(design):
    people = People(design=design, n_holders=5)
    study = people.open_study()
    with exact_answers():
        ballots = [people.seal(study, records(n), n) for n in range(5)]
        closed = people.closed(study, ballots)
        found = studies.join(study, people.tallies(study, ballots, closed))
        together = ps.sketch(np.concatenate([records(n) for n in range(5)]), design)
    assert found.values.tolist() == together.values.tolist()
    assert found.exact_count == together.exact_count
    assert found.receipt.sampler.startswith("INSECURE")
    assert found.sources == tuple(key.name for key in people.holders)
    if design.target is not None:
        # All that a regression is learned from; the noise that it allows for is the total's.
        sums = [Moments.of(sketch).matrix.tolist() for sketch in (found, together)]
        assert sums[0] == sums[1]
        assert ps.learn_regression(found).target == "x2"


@pytest.mark.parametrize("design", [GAUSSIAN, PURE, REPLACE], ids=["gaussian", "pure", "replace"])
def test_a_total_is_a_sketch(design, tmp_path):
    people = People(design=design)
    study = people.open_study()
    ballots = [people.seal(study, records(n), n) for n in range(4)]
    total = studies.join(study, people.tallies(study, ballots, people.closed(study, ballots)))
    total.save(tmp_path / "t.sketch")
    again = ps.Sketch.load(tmp_path / "t.sketch")
    assert again.values.tolist() == total.values.tolist()
    assert again.receipt == total.receipt
    assert total.receipt.epsilon == 0.1
    assert total.noise_variance < 4 * design.noise_std**2
    ps.learn_kmeans(total, 2, n_init=1)


def test_fewer_ballots_use_another_level(people, study):
    values = [integers(RNG, study) for _ in range(4)]
    ballots = [cast(study, v, key) for v, key in zip(values, people.holders, strict=True)]
    closed = people.closed(study, ballots[1:])
    found = total_values(study, people.tallies(study, ballots, closed))
    assert study.sharing.level_of(3) != study.sharing.level_of(4)
    with np.errstate(over="ignore"):
        expected = sum(v[study.sharing.level_of(3)] for v in values[1:])
    assert found.values.tolist() == expected.tolist()
    assert found.holders == (1, 2, 3)


def test_a_holder_without_records_takes_part(people, study):
    with exact_answers():
        ballots = [people.seal(study, np.zeros((0, 2)), n) for n in range(4)]
        found = total_values(study, people.tallies(study, ballots, people.closed(study, ballots)))
    assert not found.values.any()
    assert len({len(ballot.to_bytes()) for ballot in ballots}) == 1


def test_everything_works_with_files_in_a_folder(people, tmp_path):
    study = people.open_study()
    files = study.save(tmp_path / "s.study")
    assert len(files) == 3
    study = studies.SealedStudy.load(tmp_path / "s.study")
    assert study.is_open
    for n in range(4):
        people.seal(study, records(n), n).save(tmp_path / f"{n}.ballot")
    checked = []
    for n, key in enumerate(people.study_keys):
        one, problems = check_ballots(study, [tmp_path], key=key)
        one.save(tmp_path / f"{n}.checked")
        checked.append(CheckedBallots.load(tmp_path / f"{n}.checked"))
        assert not problems
    studies.ClosedList.of(study, [tmp_path], key=people.owner, checked=checked).save(
        tmp_path / "closed"
    )
    for n, key in enumerate(people.study_keys):
        mine = studies.tally(study, tmp_path, tmp_path / "closed", key=key, checked=checked)
        mine.save(tmp_path / f"{n}.tally")
    found = total_values(study, sorted(tmp_path.glob("*.tally")))
    assert len(found.holders) == 4


# ---------------------------------------------------------------- who takes part


def test_a_study_has_one_fingerprint(people):
    study = people.made()
    again = studies.SealedStudy.from_bytes(study.to_bytes())
    assert again.digest == study.digest != people.made().digest
    assert again.to_bytes() == study.to_bytes()
    assert study.fingerprint == study.digest[:32]


def test_cards_are_signed_and_for_one_design(people, tmp_path):
    card = people.cards[0]
    card.save(tmp_path / "a.card")
    assert studies.Card.load(tmp_path / "a.card") == card
    text = (tmp_path / "a.card").read_bytes()
    for old, new in ((b"10.0", b"20.0"), (b"holder", b"teller"), (b"site 000", b"site 001")):
        with pytest.raises(FileError):
            studies.Card.from_bytes(text.replace(old, new, 1))
    other = ps.Design.plan(**{**DESIGN, "random_state": 1}, budget=ps.Budget(0.1, 1e-6))
    with pytest.raises(StudyError, match="for another design"):
        studies.SealedStudy(other, cards=people.cards)


def test_a_card_is_signed_by_the_key_that_it_names(people):
    """Somebody enrols in the name of another holder, on terms of their own."""
    facts = people.cards[0].to_json() | {"accept_alone": 1000.0}
    for name in ("signer", "signature"):
        del facts[name]
    with pytest.raises(FileError, match="signed by another key"):
        studies.Card.from_bytes(signed_json("card", facts, people.holders[1]))


def test_a_card_needs_the_right_keys(people):
    fresh = people.study_keys[0]
    with pytest.raises(ParameterError, match="with a long-lived key"):
        studies.Card.holder(GAUSSIAN, key=fresh, accept_alone=1.0)
    with pytest.raises(ParameterError, match="expected a key for a study"):
        teller_card(GAUSSIAN, people.tellers[0], people.tellers[1].public)
    with pytest.raises(ParameterError, match="no key for a study"):
        people.tellers[0].public.seal(b"x", b"")


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1", None])
def test_what_a_holder_accepts_is_a_number(people, study, value):
    with pytest.raises(ParameterError, match="accept_alone"):
        studies.Card.holder(GAUSSIAN, key=people.holders[0], accept_alone=value)
    with pytest.raises(ParameterError, match="accept_alone"):
        studies.seal(records(0), study, key=people.holders[0], accept_alone=value)


def test_accept_alone_has_no_default(people, study):
    with pytest.raises(TypeError, match="accept_alone"):
        studies.seal(records(0), study, key=people.holders[0])
    with pytest.raises(TypeError, match="accept_alone"):
        studies.Card.holder(GAUSSIAN, key=people.holders[0])


def test_nobody_is_there_twice(people):
    with pytest.raises(ParameterError, match="two cards of"):
        studies.SealedStudy(GAUSSIAN, cards=[*people.cards, people.cards[0]])
    alike = studies.Card.holder(GAUSSIAN, key=ps.Key.generate("SITE 000"), accept_alone=10.0)
    with pytest.raises(ParameterError, match="two cards of"):
        studies.SealedStudy(GAUSSIAN, cards=[*people.cards, alike])
    posing, _ = studies.Card.teller(GAUSSIAN, key=ps.Key.generate("site 001"))
    with pytest.raises(ParameterError, match="different keys"):
        studies.SealedStudy(GAUSSIAN, cards=[*people.cards, posing])
    shared = teller_card(GAUSSIAN, ps.Key.generate("third"), people.study_keys[0].public)
    with pytest.raises(ParameterError, match="same study key"):
        studies.SealedStudy(GAUSSIAN, cards=[*people.cards, shared])


def test_one_teller_is_not_enough(people):
    with pytest.raises(ParameterError, match="needs two"):
        studies.SealedStudy(GAUSSIAN, cards=people.cards[:-1])


def test_tellers_on_the_roster_collude():
    people = People(n_tellers=3)
    for teller, fresh in zip(people.holders[:2], people.study_keys, strict=False):
        people.cards.append(teller_card(GAUSSIAN, teller, fresh.public))
    cards = people.cards[:4] + people.cards[-2:] + people.cards[6:7]
    studies.SealedStudy(GAUSSIAN, cards=cards, noise="holders", min_holders=3, colluding=2)
    with pytest.raises(ParameterError, match="2 tellers are holders"):
        studies.SealedStudy(GAUSSIAN, cards=cards, noise="holders", min_holders=3, colluding=1)


def test_a_study_that_asks_for_more_than_somebody_accepts_is_refused():
    people = People(accept_alone=0.15)
    with pytest.raises(StudyError, match="accept alone = 0\\.1"):
        people.made()


# ---------------------------------------------------------------- tellers accept


def test_one_study_for_a_study_key_ever(people):
    first, second = people.made(), people.made()
    first.accept(people.tellers[0])
    first.accept(people.tellers[0])  # the same one again
    with pytest.raises(StudyError, match="used for another study"):
        second.accept(people.tellers[0])


def test_only_tellers_accept_and_only_this_study(people):
    study, other = people.made(), people.made()
    with pytest.raises(StudyError, match="no teller"):
        study.accept(people.holders[0])
    with pytest.raises(StudyError, match="long-lived"):
        study.accept(people.study_keys[0])
    with pytest.raises(SignatureError, match="not a signature of this study"):
        other.add_signature(study.accept(people.tellers[0]))
    with pytest.raises(SignatureError, match="no teller"):
        study.add_signature(signature_within_rules(people.holders[0], study.to_bytes(), "study"))
    as_design = people.tellers[1].signature(study.to_bytes(), "design")
    with pytest.raises(SignatureError, match="not a signature of this study"):
        study.add_signature(as_design)


# ---------------------------------------------------------------- holders seal


def test_no_ballot_before_all_tellers_have_signed(people):
    study = people.made()
    study.accept(people.tellers[0])
    with pytest.raises(StudyError, match="not signed by 'teller 1'"):
        people.seal(study, records(0), 0)


def test_no_ballot_without_a_pinned_teller(people, study):
    with pytest.raises(StudyError, match="none of the tellers is pinned"):
        studies.seal(records(0), study, key=people.holders[0], accept_alone=10.0)
    with pytest.raises(StudyError, match="none of the tellers is pinned"):
        studies.seal(
            records(0),
            study,
            key=people.holders[0],
            accept_alone=10.0,
            trusted=[people.owner.public],
        )


def test_a_pinned_teller_is_enough(people, study, home):
    from privsketch.signing import pin

    pin(people.tellers[1].public)
    studies.seal(records(0), study, key=people.holders[0], accept_alone=10.0)


def test_no_ballot_above_what_is_accepted(people, study):
    with pytest.raises(BudgetError, match="no record was read"):
        studies.seal(
            records(0), study, key=people.holders[0], accept_alone=0.11, trusted=people.trusted
        )
    with pytest.raises(BudgetError, match="max_epsilon"):
        studies.seal(
            records(0),
            study,
            key=people.holders[0],
            accept_alone=10.0,
            trusted=people.trusted,
            max_epsilon=0.05,
        )


def test_no_ballot_of_a_stranger(people, study):
    with pytest.raises(StudyError, match="not on the roster"):
        studies.seal(records(0), study, key=people.owner, accept_alone=10.0, trusted=people.trusted)


def test_a_second_seal_gives_the_stored_ballot(people, study):
    first = people.seal(study, records(0), 0)
    with pytest.warns(ps.PrivsketchWarning, match="cast in this study before"):
        second = people.seal(study, records(1), 0)
    assert second.to_bytes() == first.to_bytes()
    other = people.open_study  # another study needs other study keys
    with pytest.raises(StudyError):
        other()


def test_no_ballot_after_the_last_day(people):
    today = datetime.now(UTC).date()
    late = People().open_study(last_day=today - timedelta(days=1))
    assert late.is_over()
    people = People()
    late = people.open_study(last_day=(today - timedelta(days=1)).isoformat())
    with pytest.raises(StudyError, match="the last day to cast a ballot"):
        people.seal(late, records(0), 0)


# ---------------------------------------------------------------- ballots


def test_a_ballot_of_another_study_is_refused(people, study, ballots):
    others = People()
    other = others.open_study()
    _, problems = check_ballots(other, ballots, key=others.study_keys[0])
    assert all("of another study" in text for text in problems)
    with pytest.raises(StudyError, match="0 ballots count"):
        others.closed(other, ballots)
    with pytest.raises(StudyError, match="of another study"):
        ballots[0].opened(other, others.study_keys[0])


def test_a_copied_ballot_does_not_open(people, study, ballots):
    """Somebody signs the shares of another holder as their own."""
    from privsketch_studies import Ballot
    from privsketch_studies.sealing import packed, unpacked

    fields = ("study", "holder", "n_levels", "n_words", "lengths", "sampler")
    found = unpacked(ballots[0].to_bytes(), "ballot", fields, "x")
    thief = people.holders[1]
    header = {**found.header, "holder": thief.fingerprint}
    copied = Ballot.from_bytes(packed("ballot", header, bytes(found.content), thief))
    for key in people.study_keys:
        with pytest.raises(StudyError, match="does not open"):
            copied.opened(study, key)
    checked, problems = check_ballots(study, [copied, ballots[2]], key=people.study_keys[0])
    assert checked.ballots == (ballots[2].digest,)
    assert len(problems) == 1
    kept = studies.ClosedList.of(
        study,
        [copied, ballots[0], ballots[2], ballots[3]],
        key=people.owner,
        checked=[check_ballots(study, [copied, *ballots], key=key)[0] for key in people.study_keys],
    )
    assert thief.fingerprint not in kept.ballots


def test_shares_are_for_their_teller_only(people, study, ballots):
    from privsketch_studies import Ballot
    from privsketch_studies.sealing import packed, unpacked

    fields = ("study", "holder", "n_levels", "n_words", "lengths", "sampler")
    found = unpacked(ballots[0].to_bytes(), "ballot", fields, "x")
    first, last = found.header["lengths"]
    content = bytes(found.content)
    swapped = content[first:] + content[:first]
    header = {**found.header, "lengths": [last, first]}
    mixed = Ballot.from_bytes(packed("ballot", header, swapped, people.holders[0]))
    with pytest.raises(StudyError, match="another length"):
        mixed.opened(study, people.study_keys[0])


def test_a_ballot_of_other_levels_is_refused(people, study):
    from privsketch_studies import Ballot
    from privsketch_studies.sealing import packed, unpacked

    ballot = cast(study, integers(RNG, study), people.holders[0])
    fields = ("study", "holder", "n_levels", "n_words", "lengths", "sampler")
    found = unpacked(ballot.to_bytes(), "ballot", fields, "x")
    for name in ("n_levels", "n_words"):
        header = {**found.header, name: found.header[name] + 1}
        other = Ballot.from_bytes(packed("ballot", header, bytes(found.content), people.holders[0]))
        with pytest.raises(StudyError, match="another length"):
            other.require_of(study)
    values = integers(RNG, study)[:1]
    with pytest.raises(FileError, match="another shape than this study"):
        cast(study, values, people.holders[0])


# ---------------------------------------------------------------- lists


def test_only_the_owner_closes(people, study, ballots):
    for key in (people.holders[0], people.tellers[0]):
        with pytest.raises(StudyError, match="may not close"):
            studies.ClosedList.of(study, ballots, key=key, checked=people.checked(study, ballots))


def test_every_teller_may_close_without_an_owner():
    people = People()
    study = people.open_study(owner=None)
    ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    checked = people.checked(study, ballots)
    lists = [studies.ClosedList.of(study, ballots, key=k, checked=checked) for k in people.tellers]
    assert lists[0].to_bytes() != lists[1].to_bytes()
    assert lists[0].digest == lists[1].digest
    tallies = [
        studies.tally(study, ballots, one, key=key, checked=checked)
        for one, key in zip(lists, people.study_keys, strict=True)
    ]
    total_values(study, tallies)
    with pytest.raises(StudyError, match="may not close"):
        studies.ClosedList.of(study, ballots, key=people.owner, checked=checked)


def test_too_few_ballots_are_void(people, study, ballots):
    with pytest.raises(StudyError, match="2 ballots count"):
        people.closed(study, ballots[:2])


def test_of_two_ballots_of_one_holder_one_counts(people, study, ballots):
    again = cast(study, integers(RNG, study), people.holders[0])
    closed = people.closed(study, [*ballots, again])
    assert closed.ballots[again.holder] == min(again.digest, ballots[0].digest)
    people.closed(study, [*ballots, ballots[0]])  # the same file twice does no harm


# ---------------------------------------------------------------- tellers tally


def test_a_teller_checks_the_list_itself(people, study, ballots):
    pairs = [(ballot.holder, ballot.digest) for ballot in ballots]
    mine = {"key": people.study_keys[0], "checked": people.checked(study, ballots)}
    stranger = ("0" * 32, "1" * 64)
    for bad, match in [
        (pairs[:2], "2 ballots count"),
        ([*pairs, stranger], "not on the roster"),
        (pairs[::-1], "not on the roster"),
        ([pairs[0], (pairs[1][0], pairs[0][1]), *pairs[2:]], "a ballot twice"),
    ]:
        with pytest.raises(StudyError, match=match):
            studies.tally(study, ballots, forged_list(study, bad, people.owner), **mine)
    with pytest.raises(StudyError, match="may not close"):
        studies.tally(study, ballots, forged_list(study, pairs, people.holders[0]), **mine)
    missing = [*pairs[:3], (pairs[3][0], "1" * 64)]
    with pytest.raises(StudyError, match="1 ballots of the list are missing"):
        studies.tally(study, ballots, forged_list(study, missing, people.owner), **mine)
    other = forged_list(People().made(), pairs, people.owner)
    with pytest.raises(StudyError, match="of another study"):
        studies.tally(study, ballots, other, **mine)
    studies.tally(study, ballots, people.closed(study, ballots), **mine)  # nothing was used up


def test_a_repeat_gives_the_same_bytes_and_another_list_nothing(people, study, ballots):
    closed, other = people.closed(study, ballots), people.closed(study, ballots[:3])
    first = people.tally(study, ballots, closed, 0)
    again = studies.tally(study, [], closed, key=people.study_keys[0])  # nothing is read
    assert again.to_bytes() == first.to_bytes()
    with pytest.raises(StudyError, match="tallies once"):
        people.tally(study, ballots, other, 0)
    people.tally(study, ballots, other, 1)
    with pytest.raises(StudyError, match="tallies once"):
        people.tally(study, ballots, closed, 1)


def test_the_list_is_on_disk_before_words_are_added_up(people, study, ballots, monkeypatch):
    from privsketch_studies.sealing import once
    from privsketch_studies.sealing import tally as module

    key, closed, seen = people.study_keys[0], people.closed(study, ballots), []
    summed = module._add_up

    def spy(*arguments):
        seen.append(once.read_state(once.teller_file(key.fingerprint, "use")))
        return summed(*arguments)

    seams.set(monkeypatch, "sealing.tally.add_up", spy)
    people.tally(study, ballots, closed, 0)
    assert seen == [b"list " + closed.digest.encode()]


def test_a_repeat_of_noise_by_tellers_gives_the_same_bytes():
    people = People(design=PURE)
    study = people.open_study()
    ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    closed = people.closed(study, ballots)
    first = people.tally(study, ballots, closed, 0)
    assert people.tally(study, ballots, closed, 0).to_bytes() == first.to_bytes()


def test_different_lists_have_no_total(people, study, ballots):
    tallies = [
        people.tally(study, ballots, people.closed(study, ballots), 0),
        people.tally(study, ballots, people.closed(study, ballots[1:]), 1),
    ]
    with pytest.raises(StudyError, match="different lists"):
        total_values(study, tallies)


def test_a_teller_tallies_where_it_accepted(people, study, ballots, monkeypatch, tmp_path):
    closed = people.closed(study, ballots)
    checked = people.checked(study, ballots)
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(StudyError, match="not made on this machine"):
        studies.tally(study, ballots, closed, key=people.study_keys[0], checked=checked)


def test_no_tally_before_all_tellers_have_signed(people, study, ballots):
    closed = people.closed(study, ballots)
    unsigned = studies.SealedStudy.from_bytes(study.to_bytes())
    with pytest.raises(StudyError, match="not signed by 'teller 0', 'teller 1'"):
        studies.tally(unsigned, ballots, closed, key=people.study_keys[0])


def test_the_long_lived_key_opens_nothing(people, study, ballots):
    with pytest.raises(StudyError, match="study key"):
        studies.tally(study, ballots, people.closed(study, ballots), key=people.tellers[0])
    with pytest.raises(StudyError, match="no teller"):
        studies.tally(study, ballots, people.closed(study, ballots), key=people.holders[0])


def test_no_tally_before_the_last_day_is_over():
    people = People()
    study = people.open_study(last_day=date(2999, 12, 31))
    ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    with pytest.raises(StudyError, match="until 2999-12-31"):
        people.tally(study, ballots, people.closed(study, ballots), 0)


def test_a_secret_that_is_used_twice_is_refused(people, study, monkeypatch):
    """Two holders whose generators give the same seed: a mask must not hide two ballots."""

    with monkeypatch.context() as patch:
        seams.set(patch, "splitting.random", lambda n_bytes: b"x" * n_bytes)
        ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    closed = list_of(study, ballots, people.owner)
    with pytest.raises(StudyError, match="the same secret"):
        people.tally(study, ballots, closed, 0)


def test_a_teller_looks_into_the_mailbox_first(people, study, ballots, tmp_path, monkeypatch):
    """A key whose state was lost finds its own tally, and no other list is tallied."""
    closed, other = people.closed(study, ballots), people.closed(study, ballots[1:])
    key = people.study_keys[0]
    first = people.tally(study, ballots, closed, 0)
    first.save(tmp_path / "a.tally")
    (tmp_path / "junk.tally").write_bytes(b"junk")
    for name in ("use", "tally"):
        teller_file(key.fingerprint, name).unlink()
    with pytest.raises(StudyError, match="has tallied another list"):
        studies.tally(study, ballots, other, key=key, mailbox=tmp_path)
    again = studies.tally(study, [], closed, key=key, mailbox=tmp_path)
    assert again.to_bytes() == first.to_bytes()


def test_damaged_state_counts_as_used(people, study, ballots):
    key = people.study_keys[0]
    teller_file(key.fingerprint, "use").write_bytes(b"half a fi")
    with pytest.raises(FileError, match="counts as done"):
        people.tally(study, ballots, people.closed(study, ballots), 0)


def test_a_mailbox_may_hold_anything(people, study, ballots, tmp_path):
    """Files that nobody asked for spoil nothing, whoever put them there."""
    study.save(tmp_path / "s.study")
    for n, ballot in enumerate(ballots):
        ballot.save(tmp_path / f"{n}.ballot")
    (tmp_path / "0 junk.ballot").write_bytes(b"junk")
    People().made().save(tmp_path / "other.study")
    (tmp_path / "s.study.0123456789abcdef.sig").write_bytes(b"junk")
    assert studies.SealedStudy.load(tmp_path / "s.study").is_open
    checked = []
    for key in people.study_keys:
        one, problems = check_ballots(study, [tmp_path], key=key)
        checked.append(one)
        assert len(problems) == 1
    closed = studies.ClosedList.of(study, [tmp_path], key=people.owner, checked=checked)
    for n, one in enumerate(checked):
        one.save(tmp_path / f"{n}.checked")
    (tmp_path / "junk.checked").write_bytes(b"junk")
    tallies = [
        studies.tally(study, tmp_path, closed, key=key, mailbox=tmp_path)
        for key in people.study_keys
    ]
    assert total_values(study, tallies).holders == (0, 1, 2, 3)


def test_a_teller_needs_no_ledger(people, tmp_path, monkeypatch):
    """Where the environment names a ledger, a teller's noise is no release of its own."""
    people = People(design=PURE)
    study = people.open_study()
    ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    closed = people.closed(study, ballots)
    ledger = ps.Ledger.create(tmp_path / "l.ledger")
    ledger.add("visits", epsilon=1, delta=1e-5)
    monkeypatch.setenv("PRIVSKETCH_LEDGER", str(ledger.path))
    people.tallies(study, ballots, closed)
    assert not ledger.entries()
    people.seal(study, records(0), 0)
    assert len(ledger.entries()) == 1


# ---------------------------------------------------------------- join


@pytest.fixture
def tallies(people, study, ballots):
    return people.tallies(study, ballots, people.closed(study, ballots))


def test_all_tellers_are_needed_once(people, study, tallies):
    with pytest.raises(StudyError, match="'teller 1' is missing"):
        total_values(study, tallies[:1])
    with pytest.raises(StudyError, match="'teller 0', 'teller 1' is missing"):
        total_values(study, [])
    total_values(study, [*tallies, tallies[0]])
    with pytest.raises(StudyError, match="second tally"):
        total_values(study, [*tallies, altered(tallies[0], people.study_keys[0], words=1)])


def altered(tally, key, words=0, **header):
    """A tally that its own teller has signed, of something else."""
    from privsketch_studies.sealing import packed, unpacked

    fields = ("study", "teller", "list", "level", "holders", "sampler")
    found = unpacked(tally.to_bytes(), "tally", fields, "x")
    content = np.frombuffer(found.content, dtype="<u8").copy()
    content[0] += np.uint64(words)
    return studies.Tally.from_bytes(
        packed("tally", {**found.header, **header}, content.tobytes(), key)
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"level": 1}, "another number of ballots"),
        ({"holders": [0, 1, 2]}, "another number of ballots"),
        ({"holders": [0, 1]}, "too few holders"),
        ({"holders": [0, 1, 2, 9]}, "not on the roster"),
        ({"list": "0" * 64}, "different lists"),
        ({"study": "0" * 64}, "of another study"),
    ],
)
def test_a_tally_of_something_else_is_refused(people, study, tallies, change, match):
    other = altered(tallies[1], people.study_keys[1], **change)
    with pytest.raises(StudyError, match=match):
        total_values(study, [tallies[0], other])


def test_a_tally_of_a_stranger_is_refused(people, study, tallies):
    stranger = ps.Key.generate("x", for_study=True)
    for key in (stranger, people.tellers[0], people.study_keys[0]):
        with pytest.raises(ps.PrivsketchError):
            total_values(study, [tallies[0], altered(tallies[1], key)])


def test_words_that_do_not_add_up_are_no_total(people, study, tallies):
    with pytest.raises(ps.PrivsketchError, match="do not add up"):
        total_values(study, [tallies[0], altered(tallies[1], people.study_keys[1], words=1)])


def test_a_ballot_without_check_words_is_found(people, study, ballots):
    from privsketch_studies.sealing import make_ballot

    words = with_checks(as_words(integers(RNG, study)), study.weights)
    words[:, -2] = 2  # as if two ballots were in it
    ballots[0] = make_ballot(study, words, people.holders[0])
    assert ballots[0].holder not in people.closed(study, ballots).ballots
    closed = list_of(study, ballots, people.owner)
    with pytest.raises(StudyError, match=r"'site 000'.*does not add up.*No key was used"):
        people.tallies(study, ballots, closed)


def test_sums_that_no_records_have_are_no_total(people, study):
    """Somebody poisons the total by more than noise and records can explain."""
    ballots = [people.seal(study, records(n), n) for n in range(3)]
    poison = np.zeros((study.n_levels, study.n_words - 2), dtype=np.int64)
    poison[:, 3] = 2**50
    ballots.append(cast(study, poison, people.holders[3]))
    tallies = people.tallies(study, ballots, people.closed(study, ballots))
    with pytest.raises(ps.PrivsketchError, match="cannot come from records"):
        studies.join(study, tallies)


# ---------------------------------------------------------------- void


def test_a_void_study_is_never_tallied(people, study, ballots, tmp_path):
    closed = people.closed(study, ballots)
    file = tmp_path / "t.key"
    people.study_keys[0].save(file, passphrase=None)
    void = void_study(study, key=people.tellers[0], study_key_file=file)
    assert not file.exists()
    void.save(tmp_path / "t.void")
    assert VoidStudy.load(tmp_path / "t.void").to_bytes() == void.to_bytes()
    with pytest.raises(StudyError, match="is void"):
        people.tally(study, ballots, closed, 0)
    people.tally(study, ballots, closed, 1)
    with pytest.raises(StudyError, match="has tallied"):
        void_study(study, key=people.tellers[1], study_key_file=None)


def test_only_the_right_key_is_destroyed(people, study, tmp_path):
    people.study_keys[1].save(tmp_path / "other.key", passphrase=None)
    with pytest.raises(ParameterError, match="the file stays"):
        void_study(study, key=people.tellers[0], study_key_file=tmp_path / "other.key")
    assert (tmp_path / "other.key").exists()
    ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
    people.tallies(study, ballots, people.closed(study, ballots))  # nothing was used up


# ---------------------------------------------------------------- ledgers


@pytest.fixture
def ledger(tmp_path):
    book = ps.Ledger.create(tmp_path / "l.ledger")
    book.add("visits", epsilon=1, delta=1e-5)
    return book


def sealed_with(people, study, ledger):
    return studies.seal(
        records(0),
        study,
        key=people.holders[0],
        accept_alone=10.0,
        trusted=people.trusted,
        ledger=(ledger.path, "visits"),
    )


def test_cost_and_alone_count_from_upload_on(people, study, ledger):
    sealed_with(people, study, ledger)
    sealed_with(people, study, ledger)  # the stored one
    (entry,) = ledger.entries("visits")
    assert entry.state == "reserved"
    assert float(entry.cost.epsilon) == 0.1
    assert float(entry.alone.epsilon) == study.alone
    assert float(ledger.total("visits").epsilon) == 0.1
    assert float(ledger.total_alone("visits").epsilon) == study.alone
    assert not ledger.check()
    assert json.loads(json.dumps(ledger.export()))["entries"][0]["alone"] is not None


def test_a_ledger_hears_of_a_ballot_that_was_sealed_without_one(people, study, ledger):
    first = people.seal(study, np.zeros((5, 2)), 0)
    for _ in range(2):
        assert sealed_with(people, study, ledger).to_bytes() == first.to_bytes()
        assert costs(ledger) == [0.1, study.alone]


def settled(people, study, ledger, mailbox, **how):
    """The first holder's entries; what they count from now on."""
    where, holder = (ledger.path, "visits"), people.holders[0].name
    return settle(study, holder, ledger=where, mailbox=mailbox, **how)


def costs(ledger):
    totals = ledger.total("visits"), ledger.total_alone("visits")
    return [float(total.epsilon) for total in totals]


def test_a_void_of_the_teller_that_a_holder_names_takes_costs_back(people, study, ledger, tmp_path):
    sealed_with(people, study, ledger)
    void = void_study(study, key=people.tellers[0], study_key_file=None)
    named = {"voids": [void], "trusted": people.tellers[0].public}
    assert settled(people, study, ledger, tmp_path, **named) == (1, True, True)
    assert costs(ledger) == [0, 0]
    assert settled(people, study, ledger, tmp_path, **named) == (0, True, True)
    assert not ledger.check()


def test_pins_are_no_names_and_one_of_several_is_not_enough(people, study, ledger, tmp_path):
    """All but one teller may cheat: that somebody pinned a liar must not empty a ledger."""
    sealed_with(people, study, ledger)
    for key in people.tellers:
        pin(key.public)
    void = void_study(study, key=people.tellers[0], study_key_file=None)
    before = costs(ledger)
    for how, match in (
        ({"voids": [void]}, "'teller 1' did not declare .* a pinned teller is not enough"),
        ({"voids": []}, "'teller 0', 'teller 1' did not declare"),
        ({"voids": [void], "trusted": "teller 1"}, "has not declared the study void"),
        ({"voids": [void], "trusted": people.holders[1].public}, "no teller"),
    ):
        with pytest.raises(StudyError, match=match):
            settled(people, study, ledger, tmp_path, **how)
    with pytest.raises(ParameterError, match="mailbox"):
        settled(people, study, ledger, None, voids=[void], trusted="teller 0")
    assert costs(ledger) == before
    assert settled(people, study, ledger, tmp_path, voids=[void], trusted="teller 0") == (1, 1, 1)


def test_the_words_of_all_tellers_take_the_cost_back_and_leave_alone(
    people, study, ledger, tmp_path
):
    """ "Alone" is there for tellers who all cheat: their own words do not end it."""
    sealed_with(people, study, ledger)
    voids = [void_study(study, key=key, study_key_file=None) for key in people.tellers]
    assert settled(people, study, ledger, tmp_path, voids=voids) == (1, True, False)
    assert costs(ledger) == [0, study.alone]
    assert not ledger.check()
    (entry,) = ledger.entries("visits")
    assert entry.state == "committed"


def test_no_void_counts_where_something_was_published(people, study, ledger, tmp_path):
    """Planted: a teller who has tallied signs that it published no tally."""
    ballots = [sealed_with(people, study, ledger)]
    ballots += [people.seal(study, records(n), n) for n in range(1, 4)]
    tallies = people.tallies(study, ballots, people.closed(study, ballots))
    liar = forged_void(study, people.tellers[0], people.study_keys[0].fingerprint)
    named = {"voids": [liar], "trusted": people.tellers[0].public}
    box, before = tmp_path / "box", costs(ledger)
    box.mkdir()
    for thing, name, match in (
        (tallies[0], "any name", "a tally of this study"),
        (studies.join(study, tallies), "model.json", "a total of this study"),
        (tallies[0], "below/and below/x", "a tally of this study"),
    ):
        (box / name).parent.mkdir(parents=True, exist_ok=True)
        thing.save(box / name)
        with pytest.raises(StudyError, match=match):
            settled(people, study, ledger, box, **named)
        (box / name).unlink()
    with pytest.raises(AccessError, match="not a folder"):
        settled(people, study, ledger, tmp_path / "nowhere", **named)
    tallies[0].save(tmp_path / "beside")
    with pytest.raises(StudyError, match="beside: a tally"):
        settled(people, study, ledger, [box, tmp_path], **named)
    for name in ("a.tally", "a.sketch"):  # nobody knows what it is
        (box / name).symlink_to(tmp_path / "unreachable" / "file")
        with pytest.raises(AccessError, match=name):
            settled(people, study, ledger, box, **named)
        (box / name).unlink()
    assert costs(ledger) == before
    total = studies.join(study, tallies)
    assert settled(people, study, ledger, None, total=total) == (1, False, False)
    assert costs(ledger) == before
    assert ledger.entries("visits")[0].receipt == total.receipt.to_json()


def test_a_teller_finds_its_own_tally_before_it_says_void(people, study, ballots, tmp_path):
    """Planted: a state that has forgotten the tally."""
    people.tally(study, ballots, people.closed(study, ballots), 0).save(tmp_path / "a.tally")
    for name in ("use", "tally"):
        teller_file(people.study_keys[0].fingerprint, name).unlink()
    with pytest.raises(StudyError, match=r"a\.tally: a tally of this study key"):
        void_study(study, key=people.tellers[0], study_key_file=None, mailbox=tmp_path)


def test_a_teller_finds_its_own_tally_under_any_name(people, study, ballots, tmp_path):
    """Planted: the same, the tally has another name; and a folder that is none has no tallies."""
    closed = people.closed(study, ballots)
    first = people.tally(study, ballots, closed, 0)
    first.save(tmp_path / "a.tally.txt")
    for name in ("use", "tally"):
        teller_file(people.study_keys[0].fingerprint, name).unlink()
    void = {"key": people.tellers[0], "study_key_file": None}
    with pytest.raises(StudyError, match=r"a\.tally\.txt: a tally of this study key"):
        void_study(study, **void, mailbox=tmp_path)
    other = list_of(study, ballots[:3], people.owner)
    with pytest.raises(StudyError, match="has tallied another list"):
        people.tally(study, ballots, other, 0, mailbox=tmp_path)
    nowhere = tmp_path / "nowhere"
    with pytest.raises(AccessError, match="not a folder"):
        void_study(study, **void, mailbox=nowhere)
    with pytest.raises(AccessError, match="not a folder"):
        people.tally(study, ballots, closed, 0, mailbox=nowhere)
    assert people.tally(study, ballots, closed, 0, mailbox=tmp_path).to_bytes() == first.to_bytes()


def test_a_ballot_that_was_left_out_costs_alone_once(people, study, ledger):
    """It is in no total; all tellers together could still open it."""
    first = sealed_with(people, study, ledger)
    others = [people.seal(study, records(n), n) for n in range(1, 4)]
    tallies = people.tallies(study, others, people.closed(study, others))
    with pytest.raises(StudyError, match="it was left out"):
        settled(people, study, ledger, None, total=studies.join(study, tallies))
    with pytest.raises(StudyError, match="is missing"):
        settled(people, study, ledger, None, tallies=tallies[:1])
    assert sealed_with(people, study, ledger).to_bytes() == first.to_bytes()
    assert costs(ledger) == [0.1, study.alone]
    assert settled(people, study, ledger, None, tallies=tallies) == (1, True, False)
    assert sealed_with(people, study, ledger).to_bytes() == first.to_bytes()
    assert costs(ledger) == [0, study.alone]
    with pytest.raises(StudyError, match="has tallied the ballot of 'site 001'"):
        settle(study, "site 001", ledger=(ledger.path, "visits"), tallies=tallies)
    with pytest.raises(StudyError, match="not on the roster"):
        settle(study, "nobody", ledger=(ledger.path, "visits"), tallies=tallies)


def test_a_limit_is_kept(people, study, tmp_path):
    book = ps.Ledger.create(tmp_path / "small.ledger")
    book.add("visits", epsilon=0.05, delta=1e-5)
    with pytest.raises(BudgetError):
        sealed_with(people, study, book)
    assert earlier_ballot(study, people.holders[0].public) is None


# ---------------------------------------------------------------- what is seen


def test_no_plaintext_word_lies_in_the_mailbox(people, tmp_path, capfd, caplog):
    """Neither noisy values nor exact ones, of any level, in any file but the total."""
    study = people.open_study()
    mailbox, secret = tmp_path / "mailbox", []
    mailbox.mkdir()
    study.save(mailbox / "s.study")
    ballots = []
    for n, key in enumerate(people.holders):
        values = integers(RNG, study)
        secret += as_words(values).reshape(-1).tolist()
        ballots.append(cast(study, values, key))
        ballots[-1].save(mailbox / f"{n}.ballot")
    closed = people.closed(study, ballots)
    closed.save(mailbox / "closed")
    for n, tally in enumerate(people.tallies(study, ballots, closed)):
        tally.save(mailbox / f"{n}.tally")
    out, err = capfd.readouterr()
    told = [out.encode(), err.encode(), caplog.text.encode()]
    seen = b"\0".join([*told, *(file.read_bytes() for file in mailbox.iterdir())])
    for word in secret:
        for text in (word.to_bytes(8, "little"), word.to_bytes(8, "big"), b"%d" % word):
            assert text not in seen
        assert b"%x" % word not in seen
