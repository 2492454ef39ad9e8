"""Shares: they add up bit for bit, and all but one of them say nothing."""

import hashlib
import hmac
import itertools
import math
import struct

import numpy as np
import pytest

from privsketch import FileError, ParameterError
from privsketch_studies.sealing import (
    ShareId,
    add_teller_noise,
    added,
    as_integers,
    as_words,
    check_weights,
    expand,
    last_share,
    share_of,
    split,
    weighted,
    with_checks,
    without_checks,
    words_to_bytes,
)
from tests import seams

STUDY, HOLDER = bytes(range(32)), bytes(range(32, 64))
SMALL = 16  # a modulus that can be enumerated


def places(n_tellers, holder=HOLDER):
    return [ShareId(STUDY, holder, bytes([n]) * 32) for n in range(n_tellers)]


def shares_of(contents, where, level, shape):
    last = len(where) - 1
    return [
        share_of(content, place, level, shape, is_last=number == last)
        for number, (content, place) in enumerate(zip(contents, where, strict=True))
    ]


# ---------------------------------------------------------------- exactness


@pytest.mark.parametrize("n_tellers", [2, 3, 4, 5])
@pytest.mark.parametrize("extreme", [False, True])
def test_joined_splits_are_the_sum_bit_for_bit(n_tellers, extreme):
    """By integers of any size, and in any order of ballots and tellers."""
    rng = np.random.default_rng(n_tellers)
    n_holders, shape = 7, (3, 40)
    low, high = -(2**63), 2**63 - 1
    values = rng.integers(low, high, size=(n_holders, *shape), endpoint=True)
    if extreme:
        values = rng.choice([low, high, -1, 0, 1], size=(n_holders, *shape))
    tallies = {}
    for holder in rng.permutation(n_holders):
        where = places(n_tellers, bytes([100 + holder]) * 32)
        contents = split(as_words(values[holder]), where)
        for level in range(shape[0]):
            for teller, share in enumerate(shares_of(contents, where, level, shape)):
                tallies.setdefault((level, teller), []).append(share)
    for level in range(shape[0]):
        order = rng.permutation(n_tellers)
        total = added([added(tallies[level, teller]) for teller in order])
        expected = [sum(int(v) for v in column) for column in values[:, level].T]
        wrapped = [(number + 2**63) % 2**64 - 2**63 for number in expected]
        assert as_integers(total).tolist() == wrapped


def test_integers_survive_being_words():
    values = np.array([-(2**63), 2**63 - 1, -1, 0, 1, 12345])
    assert as_integers(as_words(values)).tolist() == values.tolist()


# ---------------------------------------------------------------- secrecy, by enumeration


@pytest.mark.parametrize("n_tellers", [2, 3, 4])
def test_any_shares_but_one_are_uniform_whatever_the_word(n_tellers):
    """Modulus 16: over all masks, every K - 1 shares take every value equally often."""
    masks = np.array(list(itertools.product(range(SMALL), repeat=n_tellers - 1)), dtype=np.uint64)
    for word in range(SMALL):
        words = np.full(len(masks), word, dtype=np.uint64)
        last = last_share(words, list(masks.T), SMALL)
        shares = np.column_stack([masks, last])
        assert (added(list(shares.T), SMALL) == word).all()
        for seen in itertools.combinations(range(n_tellers), n_tellers - 1):
            found = np.unique(shares[:, seen], axis=0, return_counts=True)[1]
            assert len(found) == SMALL ** (n_tellers - 1)
            assert set(found.tolist()) == {1}


def test_different_lists_show_uniform_words():
    """Two tellers, two honest ballots; one teller tallies both, the other one of them."""
    for first, second in itertools.product(range(0, SMALL, 5), repeat=2):
        seen = {}
        for a, b in itertools.product(range(SMALL), repeat=2):  # the masks of two ballots
            rest = [(first - a) % SMALL, (second - b) % SMALL]
            for name, pair in {
                "both, first": ((a + b) % SMALL, rest[0]),
                "first, both": (a, sum(rest) % SMALL),
                "first, second": (a, rest[1]),
            }.items():
                seen.setdefault(name, []).append(pair)
        for pairs in seen.values():
            assert len(set(pairs)) == SMALL**2


def test_a_mask_that_is_used_twice_shows():
    """The test above can fail: with one mask for two ballots, their difference is there."""
    pairs = {((3 - a) % SMALL, (9 - a) % SMALL) for a in range(SMALL)}
    assert {(x - y) % SMALL for x, y in pairs} == {(3 - 9) % SMALL}


# ---------------------------------------------------------------- secrecy, at full size

DEVIATIONS = 4.9  # of a normal variable: two-sided, a false alarm in 1e6 of each statistic below


def byte_statistic(words):
    """Chi square of bytes against uniform ones, as a normal deviate (Wilson and Hilferty)."""
    data = np.frombuffer(words_to_bytes(words), dtype=np.uint8)
    counts = np.bincount(data, minlength=256)
    expected = len(data) / 256
    chi, free = float(((counts - expected) ** 2 / expected).sum()), 255
    return ((chi / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1])
def test_shares_of_a_constant_look_uniform(word):
    """Bytes of every share by chi square."""
    shape, where = (1, 40_000), places(3)
    words = np.full(shape, word, dtype=np.uint64)
    for share in shares_of(split(words, where), where, 0, shape):
        assert abs(byte_statistic(share)) < DEVIATIONS


def test_small_words_without_a_mask_are_found():
    small = np.random.default_rng(0).integers(0, 2**40, size=40_000).astype(np.uint64)
    assert abs(byte_statistic(small)) > DEVIATIONS


def test_two_shares_of_one_ballot_are_not_alike():
    """As many of 2.56 million bits agree as chance has."""
    shape, where = (1, 40_000), places(3)
    shares = shares_of(split(np.zeros(shape, dtype=np.uint64), where), where, 0, shape)
    for one, other in itertools.combinations(shares, 2):
        n_bits = 64 * shape[1]
        differing = int(np.bitwise_count(one ^ other).sum())
        assert abs(differing - n_bits / 2) < DEVIATIONS * math.sqrt(n_bits / 4)


# ---------------------------------------------------------------- known answers


def hkdf(secret, info):
    """RFC 5869 with SHA-256, by Python's own functions."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def chacha_block(key, counter):
    """RFC 8439, section 2.3, nonce 0."""

    def turn(value, bits):
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    start = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
    start += [counter, 0, 0, 0]
    x = list(start)
    rounds = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    rounds += [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in rounds:
            x[a] = (x[a] + x[b]) & 0xFFFFFFFF
            x[d] = turn(x[d] ^ x[a], 16)
            x[c] = (x[c] + x[d]) & 0xFFFFFFFF
            x[b] = turn(x[b] ^ x[c], 12)
            x[a] = (x[a] + x[b]) & 0xFFFFFFFF
            x[d] = turn(x[d] ^ x[a], 8)
            x[c] = (x[c] + x[d]) & 0xFFFFFFFF
            x[b] = turn(x[b] ^ x[c], 7)
    return struct.pack("<16I", *((p + q) & 0xFFFFFFFF for p, q in zip(x, start, strict=True)))


def test_masks_are_as_documented():
    """HKDF and ChaCha20 once more, by hand; bytes are for ever."""
    seed, place = bytes(range(32)), places(2)[1]
    info = b"privsketch mask v1\0" + STUDY + HOLDER + b"\x01" * 32 + struct.pack("<I", 3)
    stream = chacha_block(hkdf(seed, info), 0) + chacha_block(hkdf(seed, info), 1)
    found = expand(seed, place, 3, 11)
    assert words_to_bytes(found) == stream[:88]
    assert found[:2].tolist() == [0x7A6981DD124B3FB5, 0x3C3BCD26148B84F7]


def test_weights_are_as_documented():
    key = hashlib.sha256(b"privsketch check v1\0" + STUDY).digest()
    assert words_to_bytes(check_weights(STUDY, 8)) == chacha_block(key, 0)


def test_a_split_is_as_documented(monkeypatch):
    seeds = iter([b"a" * 32, b"b" * 32])
    seams.set(monkeypatch, "splitting.random", lambda n_bytes: next(seeds))
    words, where = np.arange(10, dtype=np.uint64).reshape(2, 5), places(3)
    first, second, last = split(words, where)
    assert (first, second) == (b"a" * 32, b"b" * 32)
    rest = np.frombuffer(last, dtype="<u8").reshape(2, 5)
    for level in range(2):
        masks = expand(first, where[0], level, 5) + expand(second, where[1], level, 5)
        assert (rest[level] + masks).tolist() == words[level].tolist()


def test_every_mask_has_a_key_of_its_own():
    seed = bytes(32)
    first = expand(seed, ShareId(STUDY, HOLDER, HOLDER), 0, 8)
    for place, level in [
        (ShareId(HOLDER, HOLDER, HOLDER), 0),
        (ShareId(STUDY, STUDY, HOLDER), 0),
        (ShareId(STUDY, HOLDER, STUDY), 0),
        (ShareId(STUDY, HOLDER, HOLDER), 1),
    ]:
        assert not set(first.tolist()) & set(expand(seed, place, level, 8).tolist())


# ---------------------------------------------------------------- refusals


def test_seeds_are_fresh_and_nobody_gives_one():
    words = np.zeros((1, 4), dtype=np.uint64)
    seeds = {split(words, places(3))[n] for n in (0, 1) for _ in range(10)}
    assert len(seeds) == 20


def test_a_generator_that_repeats_itself_is_refused(monkeypatch):
    seams.set(monkeypatch, "splitting.random", lambda n_bytes: b"x" * n_bytes)
    with pytest.raises(ParameterError, match="repeated a value"):
        split(np.zeros((1, 4), dtype=np.uint64), places(3))


def test_one_teller_is_refused():
    with pytest.raises(ParameterError, match="two or more"):
        split(np.zeros((1, 4), dtype=np.uint64), places(1))


def test_lengths_are_checked():
    where, shape = places(2), (2, 5)
    with pytest.raises(FileError, match="seed of another length"):
        share_of(b"short", where[0], 0, shape, is_last=False)
    with pytest.raises(FileError, match="share of another length"):
        share_of(bytes(79), where[1], 0, shape, is_last=True)
    with pytest.raises(ParameterError, match="32 bytes"):
        expand(bytes(32), ShareId(b"", HOLDER, HOLDER), 0, 1)


# ---------------------------------------------------------------- check words


def test_check_words_add_up_and_find_mix_ups():
    rng = np.random.default_rng(0)
    weights = check_weights(STUDY, 6)
    ballots = [
        with_checks(as_words(rng.integers(-(2**63), 2**63 - 1, size=(2, 6))), weights)
        for _ in range(5)
    ]
    total = added([ballot[0] for ballot in ballots])
    assert without_checks(total, weights, 5).tolist() == total[:6].tolist()
    assert without_checks(total, weights, 4) is None
    mixed = added([*(ballot[0] for ballot in ballots[:4]), ballots[4][1]])
    swapped = total.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert without_checks(swapped, weights, 5) is None
    assert without_checks(mixed, weights, 5) is not None  # consistent: levels are another matter


def test_noise_of_a_teller_is_in_its_check_word():
    """The published words are a function of noisy values: the weighted sum of exact ones is not."""
    rng = np.random.default_rng(1)
    weights = check_weights(STUDY, 6)
    exact = as_words(rng.integers(-(2**63), 2**63 - 1, size=(1, 6)))
    noise = as_words(rng.integers(-(2**40), 2**40, size=6))
    words = add_teller_noise(with_checks(exact, weights)[0], noise, weights)
    assert words[:6].tolist() == (exact[0] + noise).tolist()
    assert int(words[-1]) == int(weighted(exact[0] + noise, weights))
    assert int(words[-1]) != int(weighted(exact[0], weights))
