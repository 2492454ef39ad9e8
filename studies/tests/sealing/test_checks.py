"""What tellers publish before a tally: it finds what is no ballot, and says nothing of one."""

import itertools

import numpy as np
import pytest

import privsketch as ps
import privsketch_studies as studies
from privsketch import MergeError
from privsketch_studies import CheckedBallots, StudyError, check_ballots
from privsketch_studies.sealing import (
    add_teller_noise,
    add_up,
    added,
    as_words,
    check_shares,
    fits_checks,
    last_share,
    lists,
    make_ballot,
    read_state,
    signed_json,
    splitting,
    teller_file,
    total_values,
    verdict_of,
    with_checks,
    words_to_bytes,
)
from privsketch_studies.sealing import tally as tally_module
from studies.tests.sealed import PURE, People, cast, integers, list_of, random_words
from tests import seams

SMALL = 4  # a modulus at which all masks of two ballots can be enumerated
N_WORDS = 3  # a value, the 1, the weighted value


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))


# ---------------------------------------------------------------- secrecy, by enumeration


def words_of(value, weight):
    """Those of a ballot with one value."""
    return with_checks(np.array([[value]], dtype=np.uint64), weight)[0]


def all_masks(n_masks):
    """Every value that so many masks of one ballot can have, (n_rows, n_masks, N_WORDS)."""
    rows = itertools.product(range(SMALL), repeat=n_masks * N_WORDS)
    return np.array(list(rows), dtype=np.uint64).reshape(-1, n_masks, N_WORDS)


def all_shares(words, masks):
    """Shares of all tellers, (n_tellers, n_rows, N_WORDS), for every value of the masks."""
    given = [masks[:, n] for n in range(masks.shape[1])]
    return [*given, last_share(np.broadcast_to(words, given[0].shape), given, SMALL)]


def published(share, weight):
    return check_shares(share, weight) & np.uint64(SMALL - 1)


def law(columns):
    """How often every row of what somebody sees occurs, over all masks."""
    rows, counts = np.unique(np.concatenate(columns, axis=1), axis=0, return_counts=True)
    return rows.tolist(), counts.tolist()


@pytest.mark.parametrize("n_tellers", [2, 3])
@pytest.mark.parametrize("weight", range(SMALL))
def test_all_tellers_but_one_see_what_they_would_see_of_any_ballot(n_tellers, weight):
    """Their own shares, and what all have published: the same law whatever the value."""
    weight, masks = np.array([weight], dtype=np.uint64), all_masks(n_tellers - 1)
    for honest in range(n_tellers):
        laws = []
        for value in range(SMALL):
            shares = all_shares(words_of(value, weight), masks)
            checks = [published(share, weight) for share in shares]
            total = added(checks, SMALL)
            assert (total == [0, 1]).all()
            others = [share for n, share in enumerate(shares) if n != honest]
            laws.append(law([*others, *checks]))
        assert all(found == laws[0] for found in laws)


def two_ballots(first, second, weight):
    """Shares of two ballots by two tellers, over all masks of both."""
    masks = all_masks(2)
    pairs = [
        all_shares(words_of(value, weight), masks[:, [n]])
        for n, value in enumerate((first, second))
    ]
    return pairs, [published(share, weight) for pair in pairs for share in pair]


@pytest.mark.parametrize("weight", range(SMALL))
def test_with_the_tallies_only_the_total_shows(weight):
    """Everybody sees what both tellers published of both ballots, and their tallies."""
    weight, laws = np.array([weight], dtype=np.uint64), {}
    for first, second in itertools.product(range(SMALL), repeat=2):
        pairs, checks = two_ballots(first, second, weight)
        tallies = [added([pair[teller] for pair in pairs], SMALL) for teller in range(2)]
        laws.setdefault((first + second) % SMALL, []).append(law([*checks, *tallies]))
    assert len(laws) == SMALL
    for found in laws.values():
        assert all(one == found[0] for one in found)
    firsts = [found[0] for found in laws.values()]
    assert all(one != other for one, other in itertools.combinations(firsts, 2))


@pytest.mark.parametrize("weight", range(SMALL))
def test_of_a_ballot_that_is_left_out_nothing_shows(weight):
    """One is tallied, the other one is not; of both the checks were published."""
    weight, laws = np.array([weight], dtype=np.uint64), {}
    for first, second in itertools.product(range(SMALL), repeat=2):
        pairs, checks = two_ballots(first, second, weight)
        laws.setdefault(first, []).append(law([*checks, *pairs[0]]))
    for found in laws.values():
        assert all(one == found[0] for one in found)


@pytest.mark.parametrize("weight", range(SMALL))
def test_with_noise_of_tellers_the_other_one_sees_the_noisy_value(weight):
    """It knows its own share and noise; value and noise of the honest one show as a sum only."""
    weight, laws, masks = np.array([weight], dtype=np.uint64), {}, all_masks(1)
    for value, noise in itertools.product(range(SMALL), repeat=2):
        shares = all_shares(words_of(value, weight), masks)
        checks = [published(share, weight) for share in shares]
        drawn = np.array([noise], dtype=np.uint64)
        tally = np.stack([add_teller_noise(row, drawn, weight) for row in shares[0]])
        seen = law([shares[1], *checks, tally & np.uint64(SMALL - 1)])
        laws.setdefault((value + noise) % SMALL, []).append(seen)
    for found in laws.values():
        assert all(one == found[0] for one in found)


def test_a_check_word_that_is_published_as_it_is_tells_the_value():
    """Planted: the weighted values are not taken off. The tests above can fail."""
    weight, laws, masks = np.array([1], dtype=np.uint64), [], all_masks(1)
    for value in range(SMALL):
        shares = all_shares(words_of(value, weight), masks)
        laws.append(law([share[:, -2:] for share in shares]))
    assert all(one != other for one, other in itertools.combinations(laws, 2))


# ---------------------------------------------------------------- what is no ballot is named


@pytest.fixture
def people():
    return People()


@pytest.fixture
def study(people):
    return people.open_study()


@pytest.fixture
def ballots(people, study):
    rng = np.random.default_rng(0)
    return [cast(study, integers(rng, study, extreme=True), key) for key in people.holders]


@pytest.mark.parametrize("n_tellers", [2, 3, 5])
@pytest.mark.parametrize("design", [None, PURE])
def test_honest_ballots_add_up_whatever_is_in_them(n_tellers, design):
    people = People(n_tellers=n_tellers, **({} if design is None else {"design": design}))
    study, rng = people.open_study(), np.random.default_rng(n_tellers)
    ballots = [cast(study, integers(rng, study), key) for key in people.holders]
    checked = people.checked(study, ballots)
    assert verdict_of(study, checked) == ({one.digest for one in ballots}, frozenset(), {})
    for one in checked:
        assert all(shares.shape == (study.n_levels, 2) for shares in one.shares.values())
    total_values(study, people.tallies(study, ballots, people.closed(study, ballots)))


def bad_ballots(study, key):
    """What somebody may sign in the place of a ballot, by what is wrong with it."""
    rng = np.random.default_rng(1)
    good = with_checks(as_words(integers(rng, study)), study.weights)
    one_word, other_count, last_level = good.copy(), good.copy(), good.copy()
    one_word[0, 2] += np.uint64(1)
    other_count[:, -2] = 2
    last_level[-1, -1] ^= np.uint64(2**63)
    found = {
        "random": random_words(rng, study),
        "zeros": np.zeros_like(good),
        "one word": one_word,
        "count": other_count,
        "last level": last_level,
    }
    return {name: make_ballot(study, words, key) for name, words in found.items()}


@pytest.mark.parametrize("what", ["random", "zeros", "one word", "count", "last level"])
def test_what_is_no_ballot_is_named_before_a_key_is_used(people, study, ballots, what):
    """It has a right signature, opens, and is as long as others are: nothing else sees it."""
    bad = bad_ballots(study, people.holders[1])[what]
    given = [ballots[0], bad, *ballots[2:]]
    checked = people.checked(study, given)
    assert verdict_of(study, checked).unfit == {bad.digest}
    closed = list_of(study, given, people.owner)
    for key in people.study_keys:  # whatever level it would add up
        with pytest.raises(StudyError, match=r"ballot of 'site 001'.*this ballot or a teller"):
            studies.tally(study, given, closed, key=key, checked=checked)
        assert read_state(teller_file(key.fingerprint, "use")) is None
    closed = people.closed(study, given)
    assert list(closed.ballots) == [one.holder for one in (ballots[0], *ballots[2:])]
    total = total_values(study, people.tallies(study, given, closed))
    assert total.holders == (0, 2, 3)


def test_without_the_check_one_holder_ends_a_study(people, study, ballots, monkeypatch):
    """Planted: nobody looks whether checks add up. Keys are used up, and there is no total."""
    bad = make_ballot(study, random_words(np.random.default_rng(1), study), people.holders[1])
    given = [ballots[0], bad, *ballots[2:]]
    for module in (lists, tally_module):
        monkeypatch.setattr(module, "add_up", lambda checks: True)
    tallies = people.tallies(study, given, people.closed(study, given))
    with pytest.raises(MergeError, match="do not add up"):
        total_values(study, tallies)
    assert all(read_state(teller_file(key.fingerprint, "use")) for key in people.study_keys)


def test_a_single_large_word_with_right_check_words_passes(people, study, ballots):
    """It takes a proof of range to find it; studies/docs/sealed.md says so."""
    values = np.zeros((study.n_levels, study.n_words - 2), dtype=np.int64)
    values[:, 3] = 2**62
    large = cast(study, values, people.holders[1])
    given = [ballots[0], large, *ballots[2:]]
    assert large.digest in verdict_of(study, people.checked(study, given)).good
    total_values(study, people.tallies(study, given, people.closed(study, given)))


@pytest.mark.parametrize("part", [0, 1], ids=["check", "count"])
def test_weights_decide(people, study, ballots, part, monkeypatch):
    """Planted: a teller takes values off without weights, or counts nothing. No ballot adds up."""

    def planted(shares, weights):
        found = check_shares(shares, np.ones_like(weights) if part == 0 else weights)
        found[:, 1] = 0 if part == 1 else found[:, 1]
        return found

    first = check_ballots(study, ballots, key=people.study_keys[0])[0]
    with monkeypatch.context() as patch:
        seams.set(patch, "ballots.check_shares", planted)
        second = check_ballots(study, ballots, key=people.study_keys[1])[0]
    assert len(verdict_of(study, [first, second]).unfit) == 4
    # A third one who looks at what it adds up itself is not told a tale by them.
    closed = list_of(study, ballots, people.owner)
    with pytest.raises(StudyError, match="this ballot or a teller is wrong"):
        studies.tally(study, ballots, closed, key=people.study_keys[0], checked=[second])


# ---------------------------------------------------------------- tellers who are wrong


def altered(one, study, key, digest, change=1):
    """What a teller has checked, with other words of one ballot, signed by it."""
    shares = {name: words.copy() for name, words in one.shares.items()}
    shares[digest][0, 0] += np.uint64(change)
    pairs = [[name, words_to_bytes(words).hex()] for name, words in shares.items()]
    content = {"study": study.digest, "ballots": pairs}
    return CheckedBallots(signed_json("checked-ballots", content, key))


def test_a_teller_who_lies_of_a_ballot_has_it_left_out(people, study, ballots):
    first, second = people.checked(study, ballots)
    liar = altered(second, study, people.study_keys[1], ballots[2].digest)
    assert verdict_of(study, [first, liar]) == (
        {ballot.digest for n, ballot in enumerate(ballots) if n != 2},
        {ballots[2].digest},
        {},
    )
    closed = list_of(study, ballots, people.owner)
    with pytest.raises(StudyError, match=r"'site 002'.*this ballot or a teller is wrong"):
        studies.tally(study, ballots, closed, key=people.study_keys[0], checked=[liar])


def test_a_teller_who_says_two_things_of_a_ballot_is_named(people, study, ballots):
    first, second = people.checked(study, ballots)
    liar = altered(second, study, people.study_keys[1], ballots[2].digest)
    with pytest.raises(StudyError, match="'teller 1' has published two different shares"):
        verdict_of(study, [first, second, liar])
    verdict_of(
        study, [first, second, check_ballots(study, ballots[:1], key=people.study_keys[1])[0]]
    )


def test_all_tellers_are_needed_for_every_ballot(people, study, ballots):
    checked = people.checked(study, ballots)
    few = check_ballots(study, ballots[:3], key=people.study_keys[1])[0]
    closed = list_of(study, ballots, people.owner)
    key = people.study_keys[0]
    for given, match in (
        ([], "not checked by 'teller 1'"),
        (checked[:1], "not checked by 'teller 1'"),
        ([few], "not all other tellers have stated that they can open it"),
    ):
        with pytest.raises(StudyError, match=match):
            studies.tally(study, ballots, closed, key=key, checked=given)
    found = verdict_of(study, [checked[0], few])
    assert ballots[3].digest not in found.good
    assert found.unopened == {ballots[3].digest: ("teller 1",)}
    studies.tally(study, ballots, closed, key=key, checked=checked[1:])  # its own it knows


def test_a_tally_that_is_not_the_sum_of_what_was_checked_is_its_tellers(people, study, ballots):
    for design in (None, PURE):  # noise of tellers changes nothing of it
        if design is not None:
            people = People(design=design)
            study = people.open_study()
            ballots = [cast(study, integers(RNG, study), key) for key in people.holders]
        checked, closed = people.checked(study, ballots), people.closed(study, ballots)
        tallies = people.tallies(study, ballots, closed)
        for one, mine in zip(tallies, checked, strict=True):
            assert fits_checks(study, one, closed, [mine]) is True
        tallies[1].words[0] += np.uint64(1)
        assert fits_checks(study, tallies[1], closed, checked[1:]) is False
        assert fits_checks(study, tallies[1], closed, []) is None  # nothing is known of it


RNG = np.random.default_rng(2)


def test_files_of_checks_are_of_this_study_and_as_long(people, study, ballots):
    (checked, _) = people.checked(study, ballots)
    pairs = [[name, words.tobytes().hex()] for name, words in checked.shares.items()]
    key = people.study_keys[0]

    def signed(content, **more):
        facts = {"study": study.digest, "ballots": content, **more}
        return CheckedBallots(signed_json("checked-ballots", facts, key))

    assert signed(pairs).require_of(study) == 0
    with pytest.raises(StudyError, match="not as many shares"):
        signed([[pairs[0][0], "00" * 16 * (study.n_levels + 1)]]).require_of(study)
    with pytest.raises(StudyError, match="of another study"):
        signed(pairs, study="0" * 64).require_of(study)
    for bad in (
        pairs[::-1],
        [pairs[0], pairs[0]],
        [pairs[0][:1]],
        [[pairs[0][0], ""]],
        [[pairs[0][0], "00" * 15]],
        [[pairs[0][0], "0x" * 16]],
        [[pairs[0][0], 7]],
        [[pairs[0][0][:-1], pairs[0][1]]],
    ):
        with pytest.raises(ps.PrivsketchError):
            signed(bad)


def test_sums_are_looked_at_modulo_the_words():
    """2^64 is 0 and 2^64 + 1 is 1; anything beside them is not."""
    half = np.array([[2**63, 2**63]], dtype=np.uint64)
    one = np.array([[0, 1]], dtype=np.uint64)
    assert add_up([half, half, one])
    assert not add_up([half, one])
    assert not add_up([half, half, one, one])
    assert splitting.N_CHECKS == 2
