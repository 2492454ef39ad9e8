"""Ballots: what a holder hands in, one sealed share for each teller, all of one length.

Nobody but its teller can open a share. Each is bound to the study, to the holder who signed the
ballot and to the teller: taken over into another ballot, it does not open.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from privsketch._base.errors import FileError, PrivsketchError
from privsketch._base.formats import canonical_json, read_file
from privsketch.facts.receipt import Receipt
from privsketch.noise.mechanism import OWN, REPLACED
from privsketch.signing.envelope import OVERHEAD, SUITE
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.signature import key_fingerprint, spoken
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import MAGIC, SealedFile, digits, packed, unpacked, whole
from privsketch_studies.sealing.splitting import (
    Place,
    Words,
    check_shares,
    content_bytes,
    share_of,
    split,
)
from privsketch_studies.sealing.study import MAX_HOLDERS, SealedStudy

_FIELDS = ("study", "holder", "n_levels", "n_words", "lengths", "sampler")
_INFO = b"privsketch ballot v1\0"
_MAX_WORDS = 2**32
SUFFIX = ".ballot"


class Ballot(SealedFile):
    """A holder's sealed part of a total; `seal` makes one.

    Nothing in it can be read but by all tellers together. It may lie where anybody can see it.

    Parameters
    ----------
    data : bytes
        Of a .ballot file; its signature must be right.
    what : str
        What errors call it.

    Attributes
    ----------
    study : str
        Digest of the study, 64 hex digits.
    holder : str
        Fingerprint of the key that signed it.
    sampler : str
        What drew its noise, as receipts say it.
    digest : str
        SHA-256 of its bytes: its name in a closed list.
    """

    LABEL: ClassVar[str] = "ballot"
    MAGIC: ClassVar[bytes] = MAGIC["ballot"]

    def _parse(self, data: bytes, what: str, *, is_verified: bool = False) -> None:
        found = unpacked(data, "ballot", _FIELDS, what, is_verified=is_verified)
        header, content = found.header, found.content
        if digits(header["holder"], 32, what) != key_fingerprint(found.signer):
            raise FileError(f"{what}: signed by another key than it names")
        lengths = header["lengths"]
        if not isinstance(lengths, list) or not 1 <= len(lengths) <= MAX_HOLDERS:
            raise FileError(f"{what}: unknown or missing fields")
        n_levels, n_words = (
            whole(header[name], 1, _MAX_WORDS, what) for name in ("n_levels", "n_words")
        )
        parts, start = [], 0
        for length in lengths:
            stop = start + whole(length, OVERHEAD, len(content), what)
            parts.append(content[start:stop])
            start = stop
        if start != len(content):
            raise FileError(f"{what}: truncated or corrupted (impossible lengths)")
        self.study, self.holder = digits(header["study"], 64, what), str(header["holder"])
        self.sampler = sampler_name(header["sampler"], what)
        self._identity = found.signer
        self._parts, self._shape = parts, (n_levels, n_words)

    @classmethod
    def _verified(cls, data: bytes, what: str) -> Ballot:
        """A ballot whose signature was looked at before."""
        ballot = cls.__new__(cls)
        ballot._data = data
        ballot._parse(data, what, is_verified=True)
        return ballot

    def __repr__(self) -> str:
        return f"Ballot(study={self.study[:32]!r}, holder={self.holder!r})"

    @classmethod
    def _made(cls, study: SealedStudy, words: Words, key: Key, sampler: str) -> Ballot:
        """A ballot of words (n_levels, n_words)."""
        holder = study.holders[study.place_of(key.public)]
        if words.shape != shape_of(study):
            raise FileError("ballot: not the words of this study")
        contents = split(words, [place_of(study, holder.key, teller) for teller in study.tellers])
        sealed = [
            study_key(teller).seal(content, info_of(study, holder.key, teller))
            for content, teller in zip(contents, study.tellers, strict=True)
        ]
        header = {
            "study": study.digest,
            "holder": key.fingerprint,
            "n_levels": words.shape[0],
            "n_words": words.shape[1],
            "lengths": [len(part) for part in sealed],
            "sampler": sampler,
        }
        return cls.from_bytes(packed("ballot", header, b"".join(sealed), key))

    def require_of(self, study: SealedStudy, what: str = "ballot") -> Card:
        """The holder's card; an error unless it is a ballot of this study, whole, of its roster."""
        self._require_study(study, what)
        for card in study.holders:
            if card.key.identity == self._identity:
                break
        else:
            raise StudyError(f"{what}: signed by somebody who is not on the roster")
        shape = shape_of(study)
        places = range(len(study.tellers))
        expected = [OVERHEAD + content_bytes(shape, is_last=n == places[-1]) for n in places]
        if self._shape != shape or [len(part) for part in self._parts] != expected:
            raise StudyError(f"{what}: not as long as ballots of this study are")
        return card

    def opened(self, study: SealedStudy, key: Key, what: str = "ballot") -> bytes:
        """What one teller got, by its study key; an error if it does not open."""
        holder, number = self.require_of(study, what), study.teller_of(key.public)
        info = info_of(study, holder.key, study.tellers[number])
        found = key.unseal(bytes(self._parts[number]), info)
        is_last = number == len(study.tellers) - 1
        if found is None or len(found) != content_bytes(shape_of(study), is_last=is_last):
            raise StudyError(
                f"{what}: the share of {study.tellers[number].name!r} does not open; the ballot of "
                f"{holder.name!r} cannot be counted"
            )
        return found

    def facts(self) -> dict[str, Any]:
        """Whose ballot it is, of which study, for machines."""
        return {"study": self.study[:32], "fingerprint": self.holder, "digest": self.digest}

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("ballot", f"of {spoken(self.holder)}, {len(self._data)} bytes"),
            ("study", spoken(self.study[:32])),
            ("digest", self.digest),
        ]


BallotSource: TypeAlias = Ballot | str | os.PathLike[str]


def make_ballot(study: SealedStudy, words: Words, key: Key, sampler: str = OWN) -> Ballot:
    """A ballot of words (n_levels, n_words), those of checks included."""
    return Ballot._made(study, words, key, sampler)


def sampler_name(value: object, what: str) -> str:
    """What drew noise, as files say it: ours, or one that was replaced for a test."""
    for known in (OWN, REPLACED):
        if value == known:
            return known
    raise FileError(f"{what}: noise of an unknown origin")


def samplers_of(receipt: Receipt) -> list[str]:
    """What drew the noise of a receipt and of its parts."""
    return [leaf.sampler for leaf in (receipt.parts or (receipt,))]


def insecure_of(samplers: Iterable[str]) -> str:
    """One for all: the insecure one if there is any."""
    return REPLACED if REPLACED in samplers else OWN


def each_source(
    sources: Iterable[BallotSource] | str | os.PathLike[str],
) -> Iterator[tuple[str, Ballot | Path]]:
    """Ballots or their files, with what they are called; a folder stands for all in it."""
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    for number, source in enumerate(sources):
        if isinstance(source, Ballot):
            yield f"ballot {number + 1}", source
            continue
        path = Path(source)
        for file in sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]:
            yield str(file), file


def each_ballot(
    sources: Iterable[BallotSource] | str | os.PathLike[str],
    wanted: Container[str],
    *,
    is_verified: bool = False,
) -> Iterator[tuple[str, Ballot]]:
    """Ballots with what they are called, one at a time: those whose digests are `wanted`.

    Other files are not looked at: a mailbox may hold anything. Signatures are not looked at again
    if those of these digests were.
    """
    for what, source in each_source(sources):
        if isinstance(source, Ballot):
            if source.digest in wanted:
                yield what, source
            continue
        try:
            data = read_file(source)
        except PrivsketchError:
            continue
        if hashlib.sha256(data).hexdigest() in wanted:
            yield what, Ballot._verified(data, what) if is_verified else Ballot(data, what)


def shape_of(study: SealedStudy) -> tuple[int, int]:
    """Levels and words of a ballot."""
    return study.n_levels, study.n_words


def study_key(teller: Card) -> PublicKey:
    """The key of a teller for this study."""
    if teller.study_key is None:
        raise StudyError(f"{teller.name!r} is no teller")
    return teller.study_key


def place_of(study: SealedStudy, holder: PublicKey, teller: Card) -> Place:
    """What the masks of a share are derived for."""
    return Place(bytes.fromhex(study.digest), holder.identity, study_key(teller).identity)


def info_of(study: SealedStudy, holder: PublicKey, teller: Card) -> bytes:
    """What a share is bound to: suite, study, holder's and teller's keys, each by 32 bytes."""
    keys = canonical_json(study_key(teller).to_json()["keys"])
    parts = (SUITE.encode("ascii"), holder.identity, keys)
    suite, by, to = (hashlib.sha256(part).digest() for part in parts)
    return _INFO + suite + bytes.fromhex(study.digest) + by + to


def ballot_checks(study: SealedStudy, content: bytes, holder: PublicKey, teller: int) -> Words:
    """What a teller publishes of a ballot, by what it got: two words for every level."""
    levels = range(study.n_levels)
    shares = [level_share(study, content, holder, teller, level) for level in levels]
    return check_shares(np.stack(shares), study.weights)


def level_share(
    study: SealedStudy, content: bytes, holder: PublicKey, teller: int, level: int
) -> Words:
    """The words of one level in what a teller got."""
    place = place_of(study, holder, study.tellers[teller])
    is_last = teller == len(study.tellers) - 1
    return share_of(content, place, level, shape_of(study), is_last=is_last)
