"""The end of a study without a total: tellers published nothing, and have given their keys up.

Without the share of one honest teller all other shares are uniform. So one teller whom a holder
trusts is enough for that holder; and all tellers together are enough for everybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from privsketch.errors import FileError, ParameterError, StudyError
from privsketch.formats import read_file, write_file
from privsketch.ledger.entry import LedgerName, named
from privsketch.receipt import Receipt
from privsketch.sealing.files import digits, read_signed_json, signed_json
from privsketch.sealing.seal import Trusted, entries_of_ballot
from privsketch.sealing.study import SealedStudy
from privsketch.sealing.tally import is_marked_void, mark_destroyed, mark_void, require_accepted
from privsketch.signing.keys import Key, destroy_key, fingerprint_of_file
from privsketch.signing.signature import key_fingerprint, spoken
from privsketch.signing.trusted import found_key, pinned_keys

KIND = "void-study"
_FIELDS = ("study", "study_key", "statement")
STATEMENT = "published nothing, destroyed the key"


@dataclass(frozen=True)
class VoidStudy:
    """A teller's word that it published nothing of a study and destroyed its study key.

    Attributes
    ----------
    study : str
        Digest of the study.
    study_key : str
        Fingerprint of the key that is gone.
    teller : str
        Fingerprint of the teller's long-lived key, which signed it.
    """

    study: str
    study_key: str
    teller: str
    _data: bytes
    _identity: bytes

    def require_of(self, study: SealedStudy, what: str = "void") -> int:
        """The number of the teller; an error unless it is one of this study."""
        if self.study != study.digest:
            raise StudyError(f"{what}: of another study, {spoken(self.study[:32])}")
        for number, card in enumerate(study.tellers):
            if card.key.identity == self._identity and card.study_key is not None:
                if card.study_key.fingerprint != self.study_key:
                    raise StudyError(f"{what}: about another study key than the card's")
                return number
        raise StudyError(f"{what}: signed by somebody who is no teller of this study")

    def to_bytes(self) -> bytes:
        """The bytes of a .void file."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "void") -> VoidStudy:
        """The same from `to_bytes`; FileError for any other bytes."""
        signer, found = read_signed_json(data, KIND, _FIELDS, what)
        if found["statement"] != STATEMENT:
            raise FileError(f"{what}: it states something else")
        study, key = digits(found["study"], 64, what), digits(found["study_key"], 32, what)
        return cls(study, key, key_fingerprint(signer), data, signer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for all holders."""
        write_file(path, self._data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VoidStudy:
        """Read what `save` wrote."""
        return cls.from_bytes(read_file(path), os.fspath(path))


def void_study(
    study: SealedStudy, *, key: Key, study_key_file: str | os.PathLike[str] | None
) -> VoidStudy:
    """Give a study key up, destroy its file, and say so; refused if it may have tallied.

    Where the study was accepted: elsewhere nobody knows whether the key has tallied.
    `study_key_file` is None only where there never was a file. Whoever was interrupted may say it
    again, without the file.
    """
    card = study.tellers[study.teller_of(key.public)]
    if card.key.identity != key.public.identity or card.study_key is None:
        raise StudyError("a study is given up with the teller's long-lived key")
    fingerprint = card.study_key.fingerprint
    require_accepted(study, fingerprint)
    is_gone = study_key_file is None or (
        is_marked_void(fingerprint) and not os.path.lexists(study_key_file)
    )
    if study_key_file is not None and not is_gone:
        _require_file_of(study_key_file, fingerprint)  # before the key is used up
    mark_void(fingerprint)
    if study_key_file is not None and not is_gone:
        destroy_key(study_key_file, fingerprint)
        mark_destroyed(fingerprint)
    content = {
        "study": study.digest,
        "study_key": fingerprint,
        "statement": STATEMENT,
    }
    return VoidStudy.from_bytes(signed_json(KIND, content, key))


def _require_file_of(study_key_file: str | os.PathLike[str], fingerprint: str) -> None:
    """Refuse a file that is not that of this study key."""
    if fingerprint_of_file(study_key_file) != fingerprint:
        raise ParameterError(f"{study_key_file}: not the study key of this teller; it stays")


def is_void(study: SealedStudy, voids: Iterable[VoidStudy], trusted: Trusted | None = None) -> bool:
    """Whether a holder may take its costs back: one trusted teller says so, or all of them."""
    said = {void.require_of(study) for void in voids}
    keys = pinned_keys() if trusted is None else [found_key(item) for item in trusted]
    known = {key.identity for key in keys}
    is_trusted = any(study.tellers[number].key.identity in known for number in said)
    return is_trusted or len(said) == len(study.tellers)


def settle(
    study: SealedStudy,
    holder: str,
    *,
    ledger: LedgerName,
    receipt: Receipt | None = None,
    voids: Iterable[VoidStudy] = (),
    trusted: Trusted | None = None,
) -> int:
    """End the entries of a holder's ballot in a ledger: with the receipt of the total, or void.

    How many entries were ended; each counts as reserved until then.
    """
    found = named(ledger)
    if found is None:
        return 0
    given = list(voids)
    if receipt is None and not is_void(study, given, trusted):
        raise StudyError(
            "a study is void for a holder when a teller that it trusts says so, or all of them do"
        )
    book, _ = found
    waiting = entries_of_ballot(study, holder, ledger, "reserved")
    for entry in waiting:
        if receipt is None:
            book.commit(entry.id, void=True)
        else:
            book.commit(entry.id, receipt=receipt.to_json())
    return len(waiting)
