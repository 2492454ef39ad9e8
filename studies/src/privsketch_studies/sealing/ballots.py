"""Ballots of holders: one encrypted share for each teller. All ballots have the same length.

Only its teller can open a share. Each share is bound to the study, to the holder who signed the
ballot and to the teller: it does not open as a part of another ballot.
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
from privsketch.noise.mechanism import OWN_SAMPLER, REPLACED
from privsketch.signing.encryption import OVERHEAD, SUITE
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.signature import digit_groups
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.cards import MAX_HOLDERS, Card
from privsketch_studies.sealing.files import BinaryFile, Fields, integer, items, packed
from privsketch_studies.sealing.splitting import (
    ShareId,
    Words,
    check_shares,
    content_bytes,
    share_of,
    split,
)
from privsketch_studies.sealing.study import SealedStudy

_INFO = b"privsketch ballot v1\0"
_MAX_WORDS = 2**32


class Ballot(BinaryFile):
    """Encrypted contribution of a holder to a total; `seal` makes one.

    Only all tellers together can read it, so it may be public.

    Attributes
    ----------
    study : str
        Digest of the study, 64 hex digits.
    holder : str
        Fingerprint of the key that signed it.
    sampler : str
        Sampler of its noise, as in receipts.
    digest : str
        SHA-256 of its bytes, which names it in a closed list.
    """

    KIND: ClassVar[str] = "ballot"
    FIELDS: ClassVar[Fields] = ("study", "holder", "n_levels", "n_words", "lengths", "sampler")
    SIGNER: ClassVar[str] = "holder"

    def _set(self, header: dict[str, Any], content: memoryview, what: str) -> None:
        lengths = items(header["lengths"], 1, MAX_HOLDERS, what)
        n_levels, n_words = (
            integer(header[name], 1, _MAX_WORDS, what) for name in ("n_levels", "n_words")
        )
        parts, start = [], 0
        for length in lengths:
            stop = start + integer(length, OVERHEAD, len(content), what)
            parts.append(content[start:stop])
            start = stop
        if start != len(content):
            raise FileError(f"{what}: truncated or corrupted (impossible lengths)")
        self.holder = header["holder"]
        self._parts, self._shape = parts, (n_levels, n_words)

    @classmethod
    def _verified(cls, data: bytes, what: str) -> Ballot:
        """Read a ballot whose signature was verified before."""
        ballot = cls.__new__(cls)
        ballot._data = data
        ballot._parse(data, what, is_verified=True)
        return ballot

    def __repr__(self) -> str:
        return f"Ballot(study={self.study[:32]!r}, holder={self.holder!r})"

    def require_of(self, study: SealedStudy, what: str = "ballot") -> Card:
        """Return the holder's card; refuse a ballot that does not belong to this study."""
        self._require_study(study, what)
        for card in study.holders:
            if card.key.identity == self._identity:
                break
        else:
            raise StudyError(f"{what}: its signer is not on the roster")
        shape = shape_of(study)
        last = len(study.tellers) - 1
        lengths = [content_bytes(shape, is_last=n == last) for n in range(last + 1)]
        expected = [OVERHEAD + length for length in lengths]
        if self._shape != shape or [len(part) for part in self._parts] != expected:
            raise StudyError(f"{what}: it has another length than ballots of this study")
        return card

    def opened(self, study: SealedStudy, key: Key, what: str = "ballot") -> bytes:
        """Decrypt the share of the teller with this study key; refuse one that does not open."""
        holder, number = self.require_of(study, what), study.teller_of(key.public)
        info = info_of(study, holder.key, study.tellers[number])
        share = key.unseal(bytes(self._parts[number]), info)
        is_last = number == len(study.tellers) - 1
        if share is None or len(share) != content_bytes(shape_of(study), is_last=is_last):
            raise StudyError(
                f"{what}: the share of {study.tellers[number].name!r} does not open; the ballot of "
                f"{holder.name!r} cannot be counted"
            )
        return share

    def facts(self) -> dict[str, Any]:
        """Return the ballot's facts for JSON answers."""
        return {"study": self.study[:32], "fingerprint": self.holder, "digest": self.digest}

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("ballot", f"of {digit_groups(self.holder)}, {len(self._data)} bytes"),
            ("study", digit_groups(self.study[:32])),
            ("digest", self.digest),
        ]


BallotSource: TypeAlias = Ballot | str | os.PathLike[str]


def make_ballot(study: SealedStudy, words: Words, key: Key, sampler: str = OWN_SAMPLER) -> Ballot:
    """Encrypt words (n_levels, n_words), with check words, for the tellers of a study."""
    holder = study.holder_with(key.public)
    if words.shape != shape_of(study):
        raise FileError("ballot: its words have another shape than this study's")
    contents = split(words, [share_id(study, holder.key, teller) for teller in study.tellers])
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
    return Ballot(packed(Ballot.KIND, header, b"".join(sealed), key))


def samplers_of(receipt: Receipt) -> list[str]:
    """Return the samplers of a receipt and of its parts."""
    return [leaf.sampler for leaf in (receipt.parts or (receipt,))]


def combined_sampler(samplers: Iterable[str]) -> str:
    """Return the insecure sampler if there is one among these, else the library's own."""
    return REPLACED if REPLACED in samplers else OWN_SAMPLER


def each_source(
    sources: Iterable[BallotSource] | str | os.PathLike[str],
) -> Iterator[tuple[str, Ballot | Path]]:
    """Yield ballots or their files, with names for errors; a folder stands for all in it."""
    if isinstance(sources, str | os.PathLike):
        sources = [sources]
    for number, source in enumerate(sources):
        if isinstance(source, Ballot):
            yield f"ballot {number + 1}", source
            continue
        path = Path(source)
        for file in sorted(path.glob(f"*{Ballot.SUFFIX}")) if path.is_dir() else [path]:
            yield str(file), file


def each_ballot(
    sources: Iterable[BallotSource] | str | os.PathLike[str],
    digests: Container[str],
    *,
    is_verified: bool = False,
) -> Iterator[tuple[str, Ballot]]:
    """Yield the ballots with these digests one at a time, with names for errors.

    Other files are ignored, because a mailbox may have any files. `is_verified` states that the
    signatures of these bytes were verified before.
    """
    for what, source in each_source(sources):
        if isinstance(source, Ballot):
            if source.digest in digests:
                yield what, source
            continue
        try:
            data = read_file(source)
        except PrivsketchError:
            continue
        if hashlib.sha256(data).hexdigest() in digests:
            yield what, Ballot._verified(data, what) if is_verified else Ballot(data, what)


def own_ballots(
    study: SealedStudy, sources: Iterable[BallotSource]
) -> Iterator[tuple[str, Ballot, Card]]:
    """Yield the ballots of a study one at a time, with names for errors and their holders' cards.

    Other files are ignored, because a mailbox may have any files.
    """
    for what, source in each_source(sources):
        try:
            ballot = source if isinstance(source, Ballot) else Ballot.load(source)
            card = ballot.require_of(study, what)
        except PrivsketchError:
            continue
        yield what, ballot, card


def shape_of(study: SealedStudy) -> tuple[int, int]:
    """Return the numbers of levels and words of a ballot."""
    return study.n_levels, study.n_words


def study_key(teller: Card) -> PublicKey:
    """Return the study key of a teller."""
    if teller.study_key is None:
        raise StudyError(f"{teller.name!r} is no teller")
    return teller.study_key


def share_id(study: SealedStudy, holder: PublicKey, teller: Card) -> ShareId:
    """Return the identity of a share, from which its masks are derived."""
    return ShareId(bytes.fromhex(study.digest), holder.identity, study_key(teller).identity)


def info_of(study: SealedStudy, holder: PublicKey, teller: Card) -> bytes:
    """Return what a share is bound to: suite, study and both keys, 32 bytes each."""
    keys = canonical_json(study_key(teller).to_json()["keys"])
    parts = (SUITE.encode("ascii"), holder.identity, keys)
    suite, sender, reader = (hashlib.sha256(part).digest() for part in parts)
    return _INFO + suite + bytes.fromhex(study.digest) + sender + reader


def ballot_checks(study: SealedStudy, content: bytes, holder: PublicKey, teller: int) -> Words:
    """Return what a teller publishes of a ballot: two words for every level."""
    levels = range(study.n_levels)
    shares = [level_share(study, content, holder, teller, level) for level in levels]
    return check_shares(np.stack(shares), study.weights)


def level_share(
    study: SealedStudy, content: bytes, holder: PublicKey, teller: int, level: int
) -> Words:
    """Return the words of one level in a teller's share."""
    identity = share_id(study, holder, study.tellers[teller])
    is_last = teller == len(study.tellers) - 1
    return share_of(content, identity, level, shape_of(study), is_last=is_last)
