"""Which ballots count: what tellers can open, and the list that is closed.

Before a list is closed, every teller says which ballots it can open, so that a bad one spoils
nothing. The list names ballots by their digests; all tellers must tally the same one. Different
lists would reveal nothing, but give no total either.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from privsketch.errors import FileError, PrivsketchError, StudyError
from privsketch.formats import canonical_json, read_file, write_file
from privsketch.noise.mechanism import REPLACED, is_replaced
from privsketch.sealing.ballots import Ballot, BallotSource, each_ballot, each_source
from privsketch.sealing.files import digits, read_signed_json, signed_json
from privsketch.sealing.study import MAX_HOLDERS, SealedStudy
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.signature import key_fingerprint, spoken

CHECKED, CLOSED = "checked-ballots", "closed-list"
_FIELDS = ("study", "ballots")
_LIST_LABEL = b"privsketch closed-list v1\0"


@dataclass(frozen=True)
class CheckedBallots:
    """Which ballots a teller can open, signed with its study key.

    Attributes
    ----------
    study : str
        Digest of the study.
    ballots : tuple of str
        Digests of ballots, sorted.
    teller : str
        Fingerprint of the study key.
    """

    study: str
    ballots: tuple[str, ...]
    teller: str
    _data: bytes
    _identity: bytes

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "checked ballots") -> CheckedBallots:
        """The same from `to_bytes`; FileError for any other bytes."""
        signer, found = read_signed_json(data, CHECKED, _FIELDS, what)
        names = tuple(digits(one, 64, what) for one in _listed(found["ballots"], what))
        if list(names) != sorted(set(names)):
            raise FileError(f"{what}: not as privsketch writes it; the file was altered")
        study = digits(found["study"], 64, what)
        return cls(study, names, key_fingerprint(signer), data, signer)

    def require_of(self, study: SealedStudy, what: str = "checked ballots") -> int:
        """The number of the teller; an error unless it is one of this study."""
        if self.study != study.digest:
            raise StudyError(f"{what}: of another study, {spoken(self.study[:32])}")
        number = study.study_key_of(self._identity)
        if number is None:
            raise StudyError(f"{what}: signed by somebody who is no teller of this study")
        return number

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for whoever closes the list."""
        write_file(path, self._data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CheckedBallots:
        """Read what `save` wrote."""
        return cls.from_bytes(read_file(path), os.fspath(path))


def check_ballots(
    study: SealedStudy, ballots: Iterable[BallotSource], *, key: Key
) -> tuple[CheckedBallots, list[str]]:
    """Which ballots a teller can open with its study key, and what is wrong with the others.

    Charges: nothing. No word is added up.
    """
    _require_study_key(study, key)
    found: dict[bytes, dict[str, str]] = {}  # what they are called, by contents and digests
    problems = []
    for what, source in each_source(ballots):
        try:
            if not isinstance(source, Ballot) and not os.path.isfile(source):
                raise FileError(f"{what}: no file")
            ballot = source if isinstance(source, Ballot) else Ballot.load(source)
            if ballot.sampler == REPLACED and not is_replaced():
                raise StudyError(f"{what}: its noise was replaced for a test")
            secret = hashlib.sha256(ballot.opened(study, key, what)).digest()
            found.setdefault(secret, {})[ballot.digest] = what
        except PrivsketchError as error:
            problems.append(str(error))
    good = [next(iter(names)) for names in found.values() if len(names) == 1]
    # A tally would refuse them, after other tellers' keys were used up.
    twins = [what for names in found.values() if len(names) > 1 for what in names.values()]
    problems += [f"{what}: it has the same secret as another ballot" for what in twins]
    content = {"study": study.digest, "ballots": sorted(good)}
    return CheckedBallots.from_bytes(signed_json(CHECKED, content, key)), problems


class ClosedList:
    """The ballots that count, signed by whoever may close the list; `ClosedList.of` makes one.

    Parameters
    ----------
    data : bytes
        Of a .closed file; its signature must be right.
    what : str
        What errors call it.

    Attributes
    ----------
    study : str
        Digest of the study.
    ballots : dict of str to str
        Digests of the ballots by the fingerprints of their holders.
    digest : str
        Of study and ballots, whoever signed.
    """

    def __init__(self, data: bytes, what: str = "closed list") -> None:
        self._identity, found = read_signed_json(data, CLOSED, _FIELDS, what)
        self.study, self._data = digits(found["study"], 64, what), data
        self.ballots: dict[str, str] = {}
        for pair in _listed(found["ballots"], what):
            if not isinstance(pair, list) or len(pair) != 2:
                raise FileError(f"{what}: unknown or missing fields")
            holder = digits(pair[0], 32, what)
            if holder in self.ballots:
                raise FileError(f"{what}: a holder is there twice")
            self.ballots[holder] = digits(pair[1], 64, what)

    def __repr__(self) -> str:
        return f"ClosedList({len(self.ballots)} ballots, digest={self.digest!r})"

    @classmethod
    def of(
        cls,
        study: SealedStudy,
        ballots: Iterable[BallotSource],
        *,
        key: Key,
        checked: Iterable[CheckedBallots] = (),
    ) -> ClosedList:
        """Close the list with these ballots; those that a teller cannot open are left out.

        Parameters
        ----------
        study : SealedStudy
        ballots : list of Ballot or path
            A folder stands for all ballots in it.
        key : Key
            Of the owner, or of a teller if the study has no owner.
        checked : list of CheckedBallots
            What tellers can open; without any, a file that is no ballot of this study is an error.
        """
        study.require_open()
        _require_closer(study, key.public.identity, "key")
        wanted: set[str] | None = None
        tellers = set()
        for one in checked:
            tellers.add(one.require_of(study))
            wanted = set(one.ballots) if wanted is None else wanted & set(one.ballots)
        if tellers and len(tellers) < len(study.tellers):
            raise StudyError(
                f"checked: of {len(tellers)} of {len(study.tellers)} tellers; a ballot that one of "
                "the others cannot open would end the study without a total"
            )
        found: dict[str, str] = {}
        for what, ballot in each_ballot(ballots, wanted):
            holder = ballot.require_of(study, what).key.fingerprint
            other = found.setdefault(holder, ballot.digest)
            if other != ballot.digest and wanted is None:
                raise StudyError(f"{what}: a second ballot of a holder; leave one of the two out")
            found[holder] = min(other, ballot.digest)  # whoever casts two has no say in which
        _require_turnout(study, len(found))
        order = [card.key.fingerprint for card in study.holders]
        content = {
            "study": study.digest,
            "ballots": [[holder, found[holder]] for holder in order if holder in found],
        }
        return cls.from_bytes(signed_json(CLOSED, content, key))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the list says, in hex; who signed it does not matter."""
        content = {"study": self.study, "ballots": [list(pair) for pair in self.ballots.items()]}
        return hashlib.sha256(_LIST_LABEL + canonical_json(content)).hexdigest()

    def require_of(self, study: SealedStudy, what: str = "closed list") -> PublicKey:
        """Who closed it; an error unless it is one of this study, by all that can be seen of it."""
        if self.study != study.digest:
            raise StudyError(f"{what}: of another study, {spoken(self.study[:32])}")
        closer = _require_closer(study, self._identity, what)
        order = [card.key.fingerprint for card in study.holders]
        if list(self.ballots) != [holder for holder in order if holder in self.ballots]:
            raise StudyError(f"{what}: it has holders who are not on the roster")
        if len(set(self.ballots.values())) != len(self.ballots):
            raise StudyError(f"{what}: it has a ballot twice")
        _require_turnout(study, len(self.ballots))
        return closer

    def to_bytes(self) -> bytes:
        """The bytes of a .closed file."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "closed list") -> ClosedList:
        """The list from `to_bytes`; FileError for any other bytes."""
        return cls(data, what)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the list to a file, for all tellers."""
        write_file(path, self._data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClosedList:
        """Read a list written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    def describe(self) -> str:
        """The list in plain words."""
        return "\n".join(
            [
                f"closed list {len(self.ballots)} ballots",
                f"study       {spoken(self.study[:32])}",
                f"digest      {self.digest}",
            ]
        )


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > MAX_HOLDERS:
        raise FileError(f"{what}: unknown or missing fields")
    return value


def _require_study_key(study: SealedStudy, key: Key) -> None:
    card = study.tellers[study.teller_of(key.public)]
    if card.study_key != key.public:
        raise StudyError("ballots are opened with the study key, not with the long-lived one")


def _require_closer(study: SealedStudy, identity: bytes, what: str) -> PublicKey:
    """The owner's key, or that of any teller where there is none; an error for anybody else."""
    tellers = [card.key for card in study.tellers]
    for key in tellers if study.owner is None else [study.owner]:
        if key.identity == identity:
            return key
    raise StudyError(f"{what}: not of somebody who may close the list of this study")


def _require_turnout(study: SealedStudy, n_ballots: int) -> None:
    if n_ballots < study.min_holders:
        raise StudyError(
            f"{n_ballots} ballots count, and {study.min_holders} or more are needed; nothing is "
            "tallied, and the study is void"
        )
