"""Faults that the rules are for: each is planted into the code itself, and found or refused.

Faults of noise (too few parts, another level's, saturation, one layer twice) are in tests/noise.
"""

import shutil
import struct

import numpy as np
import pytest

import privsketch_studies as studies
from privsketch import MergeError
from privsketch.signing import signature_within_rules
from privsketch_studies import StudyError, check_ballots
from privsketch_studies.sealing import (
    ShareId,
    as_words,
    last_share,
    read_state,
    splitting,
    state_folder,
    teller_card,
    teller_file,
    total_values,
    words_from_bytes,
)
from privsketch_studies.sealing import tally as tally_module
from studies.tests.sealed import GAUSSIAN, PURE, People, cast, integers, list_of
from studies.tests.sealing.test_splitting import DEVIATIONS, byte_statistic
from tests import seams

N_WORDS = 40_000


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVSKETCH_HOME", str(tmp_path / "home"))


def ballots_of(people, study, seed=0):
    rng = np.random.default_rng(seed)
    values = [integers(rng, study) for _ in people.holders]
    return values, [cast(study, v, k) for v, k in zip(values, people.holders, strict=True)]


# ---------------------------------------------------------------- one seed, two masks


def difference(first, second, monkeypatch):
    """Of what the last teller gets of two constants, split with the same seed."""
    seams.set(monkeypatch, "splitting.random", lambda n_bytes: b"7" * n_bytes)
    found = []
    for word, (place, level) in enumerate((first, second), 100):
        words = np.full((level + 1, N_WORDS), word, dtype=np.uint64)
        last = splitting.split(words, [place, ShareId(bytes(32), bytes(32), bytes(32))])[-1]
        found.append(words_from_bytes(last[-8 * N_WORDS :], N_WORDS))
    return found[0] - found[1]


ONE = ShareId(b"s" * 32, b"h" * 32, b"t" * 32)
TWICE = {
    "study": (ONE._replace(study=b"x" * 32), 0),
    "holder": (ONE._replace(holder=b"x" * 32), 0),
    "teller": (ONE._replace(teller=b"x" * 32), 0),
    "level": (ONE, 1),
}


@pytest.mark.parametrize("part", TWICE)
def test_a_seed_that_is_expanded_twice_gives_two_masks(part, monkeypatch):
    """For another study, ballot, teller or level; a false alarm in 1e6."""
    assert abs(byte_statistic(difference((ONE, 0), TWICE[part], monkeypatch))) < DEVIATIONS


@pytest.mark.parametrize("part", TWICE)
def test_a_mask_that_is_used_again_is_found(part, monkeypatch):
    """Planted: keys of masks do not depend on this part. The difference of two words is there."""

    def label(place, level):
        parts = {**place._asdict(), "level": struct.pack("<I", level)}
        del parts[part]
        return b"".join(parts.values())

    seams.set(monkeypatch, "splitting.ShareId.label", label)
    found = difference((ONE, 0), TWICE[part], monkeypatch)
    assert abs(byte_statistic(found)) > DEVIATIONS
    assert set(found.tolist()) == {2**64 - 1}


def test_a_share_that_two_ballots_have_is_not_tallied(monkeypatch):
    """Planted: one mask for two ballots. Tellers refuse it; their words would show a difference."""
    people = People()
    study = people.open_study()
    rng = np.random.default_rng(0)
    with monkeypatch.context() as patch:
        seams.set(patch, "splitting.random", lambda n_bytes: b"7" * n_bytes)
        twins = [cast(study, integers(rng, study), key) for key in people.holders]
    closed = list_of(study, twins, people.owner)
    with pytest.raises(StudyError, match="same secret"):
        people.tallies(study, twins, closed)


# ---------------------------------------------------------------- tallies


def test_a_level_that_one_teller_mixes_up_is_found(monkeypatch):
    """Planted: it says the right level, and adds up another one."""
    people = People()
    study = people.open_study()
    assert study.n_levels == 2
    _, ballots = ballots_of(people, study)
    closed = people.closed(study, ballots)
    first = people.tally(study, ballots, closed, 0)
    share, checked = tally_module.level_share, people.checked(study, ballots)
    with monkeypatch.context() as patch:
        seams.set(patch, "tally.level_share", lambda *arguments: share(*arguments[:-1], 1))
        seams.set(patch, "tally.add_up", lambda checks: True)  # it would see it itself
        second = studies.tally(study, ballots, closed, key=people.study_keys[1], checked=checked)
    assert study.sharing.level_of(4) == second.level == 0
    with pytest.raises(MergeError, match="do not add up"):
        total_values(study, [first, second])


def test_a_check_word_without_the_noise_of_tellers_is_no_total(monkeypatch):
    """Planted: noise on values alone. What a check word would tell then is the exact sum."""
    people = People(design=PURE)
    study = people.open_study()
    values, ballots = ballots_of(people, study)
    closed = people.closed(study, ballots)

    def planted(words, noise, weights):
        noisy = words.copy()
        noisy[: len(noise)] += noise
        return noisy

    with monkeypatch.context() as patch:
        seams.set(patch, "tally.add_teller_noise", planted)
        tallies = people.tallies(study, ballots, closed)
    with pytest.raises(MergeError, match="do not add up"):
        total_values(study, tallies)
    with np.errstate(over="ignore"):
        exact = splitting.weighted(as_words(sum(v[0] for v in values)), study.weights)
    assert sum(int(one.words[-1]) for one in tallies) % 2**64 == int(exact)


def test_a_second_tally_would_show_two_ballots():
    """Planted: a state that forgets. Noise by holders: what differs is two holders' own words."""
    people = People()
    study = people.open_study()
    values, ballots = ballots_of(people, study)
    lists = [people.closed(study, chosen) for chosen in (ballots[:3], ballots[1:])]
    totals = [total_values(study, people.tallies(study, ballots, lists[0])).values]
    with pytest.raises(StudyError, match="tallies once"):
        people.tallies(study, ballots, lists[1])
    for key in people.study_keys:
        for name in ("use", "tally"):
            teller_file(key.fingerprint, name).unlink()
    totals.append(total_values(study, people.tallies(study, ballots, lists[1])).values)
    level = study.sharing.level_of(3)
    with np.errstate(over="ignore"):
        assert (totals[0] - totals[1] == values[0][level] - values[3][level]).all()


def test_a_key_without_its_state_tallies_nothing():
    """The folder is lost, as with a key that was copied to another machine."""
    people = People()
    study = people.open_study()
    _, ballots = ballots_of(people, study)
    closed, checked = people.closed(study, ballots), people.checked(study, ballots)
    shutil.rmtree(state_folder())
    with pytest.raises(StudyError, match="not made on this machine"):
        studies.tally(study, ballots, closed, key=people.study_keys[0], checked=checked)


def test_a_birth_that_nobody_asks_for_gives_two_totals(monkeypatch):
    """Planted: a key need not be born here. Its teller accepts again, and tallies another list."""
    people = People()
    study = people.open_study()
    values, ballots = ballots_of(people, study)
    lists = [people.closed(study, chosen) for chosen in (ballots[:3], ballots[1:])]
    totals = [total_values(study, people.tallies(study, ballots, lists[0])).values]
    shutil.rmtree(state_folder())
    for again in (
        studies.SealedStudy.from_bytes(study.to_bytes()),
        study,
    ):  # without signatures, with
        for key in people.tellers:
            with pytest.raises(StudyError, match="not made on this machine"):
                again.accept(key)
    with pytest.raises(StudyError, match="not made on this machine"):
        check_ballots(study, ballots, key=people.study_keys[0])
    # Another card for the same key is no birth either.
    teller_card(GAUSSIAN, people.tellers[0], people.study_keys[0].public)
    assert read_state(teller_file(people.study_keys[0].fingerprint, "born")) is None
    for module in ("study", "once"):
        monkeypatch.setattr(
            f"privsketch_studies.sealing.{module}.require_made_here", lambda key: None
        )
    with pytest.raises(StudyError, match="your signature is beside this study"):
        study.accept(people.tellers[0])
    again = studies.SealedStudy.from_bytes(study.to_bytes())
    for key in people.tellers:
        again.accept(key)
    totals.append(total_values(again, people.tallies(again, ballots, lists[1])).values)
    level = study.sharing.level_of(3)
    with np.errstate(over="ignore"):
        assert (totals[0] - totals[1] == values[0][level] - values[3][level]).all()


# ---------------------------------------------------------------- people


def test_tellers_with_the_names_of_those_who_are_pinned(tmp_path):
    """Planted: a whole study of somebody else's tellers, who have signed it. Keys count."""
    from privsketch.signing import pin

    people, others = People(), People()
    for key in people.tellers:
        pin(key.public)
    others.cards = [card for card in others.cards if card.role == "teller"]
    others.cards += [
        studies.Card.holder(GAUSSIAN, key=k, accept_alone=10.0) for k in people.holders
    ]
    study = others.open_study()
    assert [c.name for c in study.tellers] == [key.name for key in people.tellers]
    with pytest.raises(StudyError, match="none of the tellers is pinned"):
        studies.seal(np.zeros((5, 2)), study, key=people.holders[0], accept_alone=10.0)
    # A right name on the card of a pinned key, whose holder has not signed this study.
    mixed = People()
    mixed.cards = [*others.cards[1:], next(c for c in people.cards if c.name == "teller 0")]
    half = mixed.made()
    half.add_signature(signature_within_rules(others.tellers[1], half.to_bytes(), "study"))
    with pytest.raises(StudyError, match="not signed by 'teller 0'"):
        studies.seal(np.zeros((5, 2)), half, key=people.holders[0], accept_alone=10.0)


def test_shares_wrap_and_do_not_stop_at_the_ends():
    """Planted: masks are taken off with saturation. Then shares do not add up to the words."""
    rng = np.random.default_rng(0)
    words, mask = (rng.integers(0, 2**64, size=1000, dtype=np.uint64) for _ in range(2))
    rest = last_share(words, [mask])
    assert (splitting.added([mask, rest]) == words).all()
    stopped = np.where(words >= mask, words - mask, 0).astype(np.uint64)
    assert (splitting.added([mask, stopped]) != words).any()
