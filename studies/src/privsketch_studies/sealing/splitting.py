"""Additive secret sharing of words modulo 2^64, exact.

All but the last of K tellers get a seed of 32 bytes, which expands to uniform words; the last one
gets the words less these masks. Any K - 1 shares are uniform, whatever the words are: K - 1 of the
masks are, and so is the difference to an unknown mask. Tellers add up their shares over ballots,
and these sums add up to the sum of all words.

A seed is used only for masks; each ballot, teller and level has a key of its own. Two words of each
level are check words (`with_checks`): a 1, and a public linear function of the values. What a
teller publishes of them before the tally (`check_shares`) is its share of two constants, 0 and 1.
So it reveals nothing, and shares that do not add up to these constants are no valid ballot.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privsketch._base.errors import FileError, ParameterError
from privsketch._base.types import Integers
from privsketch.signing.documents import require_library

Words = npt.NDArray[np.uint64]
MODULUS = 2**64
SEED_BYTES = 32
WORD_BYTES = 8
N_CHECKS = 2
_DIGEST_BYTES = 32
_MASK_LABEL = b"privsketch mask v1\0"
_CHECK_LABEL = b"privsketch check v1\0"
_random = secrets.token_bytes  # known-answer tests replace it


class ShareId(NamedTuple):
    """Identity of a share: digests or keys of 32 bytes each, so that labels are unambiguous."""

    study: bytes
    holder: bytes
    teller: bytes

    def label(self, level: int) -> bytes:
        """Return the label from which the key of a mask is derived."""
        if any(len(part) != _DIGEST_BYTES for part in self):
            raise ParameterError("share: expected 32 bytes for study, holder and teller")
        return _MASK_LABEL + b"".join(self) + struct.pack("<I", level)


def expand(seed: bytes, identity: ShareId, level: int, n_words: int) -> Words:
    """Expand a seed to uniform words, (n_words,): ChaCha20 under HKDF-SHA256 of the seed."""
    require_library()
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if len(seed) != SEED_BYTES:
        raise FileError("a seed of another length; the ballot was not made by privsketch")
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=identity.label(level)).derive(seed)
    return _stream(key, n_words)


def _stream(key: bytes, n_words: int) -> Words:
    """Return words of ChaCha20 (RFC 8439), nonce and counter 0; a key is for one stream only."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(WORD_BYTES * n_words)), dtype="<u8").astype(np.uint64)


def as_words(values: Integers | Words) -> Words:
    """Return integers modulo 2^64."""
    return np.ascontiguousarray(values).astype(np.uint64, casting="unsafe")


def as_integers(words: Words) -> Integers:
    """Return words as signed integers, between -2^63 and 2^63 - 1."""
    return words.astype(np.int64, casting="unsafe")


def words_to_bytes(words: Words) -> bytes:
    """Return the bytes of words, little-endian and row by row."""
    return np.ascontiguousarray(words, dtype="<u8").tobytes()


def words_from_bytes(data: bytes | memoryview, n_words: int) -> Words:
    """Return the words of these bytes; refuse bytes of another length."""
    if len(data) != WORD_BYTES * n_words:
        raise FileError("a share of another length; it was not made for this study")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


# ---------------------------------------------------------------- shares


def last_share(words: Words, masks: Sequence[Words], modulus: int = MODULUS) -> Words:
    """Return the words less all masks; the modulus is a power of two."""
    share = words.copy()
    for mask in masks:
        share -= mask
    return reduced(share, modulus)


def added(shares: Sequence[Words], modulus: int = MODULUS) -> Words:
    """Return the sum of shares."""
    total = np.zeros_like(shares[0])
    for share in shares:
        total += share
    return reduced(total, modulus)


def reduced(words: Words, modulus: int) -> Words:
    """Return words modulo a power of two; tests enumerate small ones."""
    return words if modulus == MODULUS else words & np.uint64(modulus - 1)


def split(words: Words, identities: Sequence[ShareId]) -> list[bytes]:
    """Split words (n_levels, n_words): a seed for each teller, and words for the last one.

    Seeds are drawn here, for each call, and cannot be passed in.
    """
    if len(identities) < 2:
        raise ParameterError("tellers: expected two or more; one alone would see every sum")
    seeds = [_random(SEED_BYTES) for _ in identities[:-1]]
    if len(set(seeds)) != len(seeds):
        raise ParameterError("the system's random generator repeated a value; nothing is sealed")
    masks = [
        np.stack([expand(seed, identity, level, words.shape[1]) for level in range(len(words))])
        for seed, identity in zip(seeds, identities, strict=False)
    ]
    return [*seeds, words_to_bytes(last_share(words, masks))]


def share_of(
    content: bytes, identity: ShareId, level: int, shape: tuple[int, int], *, is_last: bool
) -> Words:
    """Return the words of one level in a teller's share, (n_words,)."""
    n_words = shape[1]
    if not is_last:
        return expand(content, identity, level, n_words)
    if len(content) != content_bytes(shape, is_last=True):
        raise FileError("a share of another length; it was not made for this study")
    start = level * n_words * WORD_BYTES
    return words_from_bytes(memoryview(content)[start : start + n_words * WORD_BYTES], n_words)


def content_bytes(shape: tuple[int, int], *, is_last: bool) -> int:
    """Return the length of a teller's share in bytes."""
    return shape[0] * shape[1] * WORD_BYTES if is_last else SEED_BYTES


# ---------------------------------------------------------------- check words


def check_weights(study: bytes, n_values: int) -> Words:
    """Return the public weights of the second check word, (n_values,), by the study's digest."""
    require_library()
    return _stream(hashlib.sha256(_CHECK_LABEL + study).digest(), n_values)


def weighted(values: Words, weights: Words) -> Words:
    """Return the weighted sums of values over the last axis, modulo 2^64."""
    return np.asarray((values * weights).sum(axis=-1, dtype=np.uint64))


def with_checks(values: Words, weights: Words) -> Words:
    """Append check words to values (n_levels, n_values): a 1, and the weighted sum."""
    ones = np.ones((len(values), 1), dtype=np.uint64)
    return np.concatenate([values, ones, weighted(values, weights)[:, None]], axis=1)


def check_shares(shares: Words, weights: Words) -> Words:
    """Return a teller's shares of the check words of a ballot, (n_levels, 2), to publish.

    `shares` (n_levels, n_words) are those of all words. The result has the shares of the second
    check word less the weighted values, and of the word that counts. Over all tellers they add up
    to 0 and 1. Both are linear, and the noise that a teller adds later changes neither.
    """
    differences = shares[:, -1] - weighted(shares[:, :-N_CHECKS], weights)
    return np.stack([differences, shares[:, -2]], axis=1)


def add_up(checks: Sequence[Words], modulus: int = MODULUS) -> bool:
    """Return whether all tellers' shares of a ballot's check words add up to 0 and 1."""
    total = added(checks, modulus)
    return bool((total[:, 0] == 0).all() and (total[:, 1] == 1).all())


def add_teller_noise(words: Words, noise: Words, weights: Words) -> Words:
    """Add noise to the values of a tally's words (n_words,).

    The second check word gets the weighted noise as well. Without it, the word would reveal the
    weighted sum of exact values; with it, the word is a function of the total.
    """
    n_values = len(words) - N_CHECKS
    noisy = words.copy()
    noisy[:n_values] += noise
    noisy[-1] += weighted(noise, weights)
    return noisy


def without_checks(words: Words, weights: Words, n_ballots: int) -> Words | None:
    """Return the values of a total; None if a check word does not fit."""
    values = words[:-N_CHECKS]
    fits = int(words[-2]) == n_ballots and int(words[-1]) == int(weighted(values, weights))
    return values if fits else None
