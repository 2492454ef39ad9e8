"""Checked ballots and closed lists, which determine the ballots that count.

Before a list is closed, every teller states which ballots it can open, and publishes its shares of
their check words. So a ballot that would spoil the total is left out before any key is used. The
list names ballots by their digests, and all tellers must tally the same list. Different lists would
reveal nothing, but give no total either.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from privsketch._base.errors import FileError, PrivsketchError
from privsketch._base.formats import canonical_json, count_text
from privsketch.noise.mechanism import REPLACED, is_replaced
from privsketch.signing.documents import hex_bytes
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.signature import digit_groups, key_fingerprint
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import (
    Ballot,
    BallotSource,
    ballot_checks,
    each_ballot,
    each_source,
    own_ballots,
)
from privsketch_studies.sealing.cards import MAX_HOLDERS
from privsketch_studies.sealing.files import Fields, JsonFile, altered, digits, pairs
from privsketch_studies.sealing.once import require_teller
from privsketch_studies.sealing.splitting import (
    N_CHECKS,
    WORD_BYTES,
    Words,
    add_up,
    words_from_bytes,
    words_to_bytes,
)
from privsketch_studies.sealing.study import SealedStudy

_LIST_LABEL = b"privsketch closed-list v1\0"


class CheckedBallots(JsonFile):
    """Ballots that a teller can open, with its shares of their check words; signed by it.

    Over all tellers the shares of a valid ballot add up to 0 and 1, whatever it contains. Any other
    ballot is named before a key is used. `check_ballots` makes it.

    Attributes
    ----------
    study : str
        Digest of the study.
    teller : str
        Fingerprint of the study key.
    shares : dict of str to uint64
        By the digest of a ballot, an array (n_levels, 2): shares of the second check word less the
        weighted values, and of the word that counts ballots.
    """

    KIND: ClassVar[str] = "checked-ballots"
    FIELDS: ClassVar[Fields] = ("study", "ballots")

    def _set(self, fields: dict[str, Any], what: str) -> None:
        self.teller = key_fingerprint(self._identity)
        self.shares: dict[str, Words] = {}
        for digest, text in pairs(fields["ballots"], MAX_HOLDERS, what):
            words = hex_bytes(text, None, what)
            if not words or len(words) % (N_CHECKS * WORD_BYTES):
                raise altered(what)
            shares = words_from_bytes(words, len(words) // WORD_BYTES).reshape(-1, N_CHECKS)
            self.shares[digits(digest, 64, what)] = shares
        if list(self.shares) != sorted(self.shares) or len(self.shares) != len(fields["ballots"]):
            raise altered(what)

    def __repr__(self) -> str:
        return f"CheckedBallots({len(self.shares)} ballots, teller={self.teller!r})"

    @property
    def ballots(self) -> tuple[str, ...]:
        """Digests of the ballots, sorted."""
        return tuple(self.shares)

    def require_of(self, study: SealedStudy, what: str = "checked ballots") -> int:
        """Return the number of the teller; refuse a file of another study."""
        number = self._require_teller(study, what)
        if any(len(shares) != study.n_levels for shares in self.shares.values()):
            raise StudyError(f"{what}: not as many shares as ballots of this study have levels")
        return number


CheckedSource = CheckedBallots | str | os.PathLike[str]


def check_ballots(
    study: SealedStudy, ballots: Iterable[BallotSource], *, key: Key
) -> tuple[CheckedBallots, list[str]]:
    """Return which ballots a teller can open with its study key, and problems of the others.

    Charges: nothing. Only shares of two constants are published of a ballot.

    Parameters
    ----------
    study : SealedStudy
        Study that this teller has accepted on this machine.
    ballots : list of Ballot or path
        A folder stands for all ballots in it.
    key : Key
        The teller's key for this study.
    """
    number = require_teller(study, key)
    names_by_secret: dict[bytes, dict[str, str]] = {}  # names of ballots, by digest
    shares: dict[str, Words] = {}
    problems = []
    for what, source in each_source(ballots):
        try:
            ballot = source if isinstance(source, Ballot) else Ballot.load(source)
            if ballot.sampler == REPLACED and not is_replaced():
                raise StudyError(f"{what}: its noise was replaced for a test")
            content, holder = ballot.opened(study, key, what), ballot.require_of(study, what).key
            secret = hashlib.sha256(content).digest()
            names_by_secret.setdefault(secret, {})[ballot.digest] = what
            shares[ballot.digest] = ballot_checks(study, content, holder, number)
        except PrivsketchError as error:
            problems.append(str(error))
    groups = list(names_by_secret.values())
    good = [next(iter(names)) for names in groups if len(names) == 1]
    # A tally would refuse copies, after the keys of other tellers were used up.
    copies = [what for names in groups if len(names) > 1 for what in names.values()]
    problems += [f"{what}: it has the same secret as another ballot" for what in copies]
    published = [[digest, words_to_bytes(shares[digest]).hex()] for digest in sorted(good)]
    return CheckedBallots.sign(study, {"ballots": published}, key), problems


def checked_files_in(study: SealedStudy, folder: str | os.PathLike[str]) -> list[CheckedBallots]:
    """Return the checks of tellers from the files in a folder.

    Files that no teller of this study has signed are ignored.
    """
    valid = []
    for file in sorted(Path(folder).glob(f"*{CheckedBallots.SUFFIX}")):
        with suppress(PrivsketchError):
            checked = CheckedBallots.load(file)
            checked.require_of(study, str(file))
            valid.append(checked)
    return valid


def closed_list_in(study: SealedStudy, folder: str | os.PathLike[str]) -> Path | None:
    """Return the file of this study's closed list in a folder; None if there is none.

    Files that nobody who may close this study has signed are ignored.
    """
    for file in sorted(Path(folder).glob(f"*{ClosedList.SUFFIX}")):
        with suppress(PrivsketchError):
            ClosedList.load(file).require_of(study, str(file))
            return file
    return None


def published_shares(
    study: SealedStudy, checked: Iterable[CheckedSource]
) -> dict[int, dict[str, Words]]:
    """Return the published shares, by the number of a teller and the digest of a ballot.

    A teller may check again when more ballots have come, but must not contradict itself.
    """
    published: dict[int, dict[str, Words]] = {}
    for source in checked:
        file = source if isinstance(source, CheckedBallots) else CheckedBallots.load(source)
        number = file.require_of(study)
        by_digest = published.setdefault(number, {})
        for digest, shares in file.shares.items():
            if (by_digest.setdefault(digest, shares) != shares).any():
                raise StudyError(
                    f"{study.tellers[number].name!r} has published two different shares of one "
                    "ballot, and signed both: this teller is wrong. No key was used"
                )
    return published


def require_all_checked(study: SealedStudy, numbers: Container[int]) -> None:
    """Refuse to go on before all tellers have checked the ballots."""
    missing = [card.name for index, card in enumerate(study.tellers) if index not in numbers]
    if missing:
        raise StudyError(
            f"not checked by {', '.join(map(repr, missing))}: all tellers must check which ballots "
            "they can open before a list is closed and tallied (privsketch study check STUDY "
            "BALLOTS --key STUDY-KEY -o NAME.checked); a bad ballot would end the study without a "
            "total"
        )


class Verdict(NamedTuple):
    """Verdict of all tellers on ballots, by digest.

    All tellers can open `good` ballots, which add up, and `unfit` ballots, which do not. `unopened`
    has other ballots, with the tellers who have not stated that they can open them.
    """

    good: frozenset[str]
    unfit: frozenset[str]
    unopened: dict[str, tuple[str, ...]]


def verdict_of(study: SealedStudy, checked: Iterable[CheckedSource]) -> Verdict:
    """Return which ballots all tellers can open, and whose check words add up to 0 and 1.

    If they do not, the ballot or a teller is wrong, and it is not possible to tell which.
    """
    published = published_shares(study, checked)
    require_all_checked(study, published)
    common = set.intersection(*(set(shares) for shares in published.values()))
    good = {
        digest
        for digest in common
        if add_up([published[number][digest] for number in range(len(study.tellers))])
    }
    unopened = {
        digest: tuple(
            card.name for n, card in enumerate(study.tellers) if digest not in published[n]
        )
        for digest in sorted(set().union(*published.values()) - common)
    }
    return Verdict(frozenset(good), frozenset(common - good), unopened)


class Unchecked(NamedTuple):
    """Ballot that some tellers have not stated they can open, with its file and its holder."""

    digest: str
    what: str
    holder: str
    tellers: tuple[str, ...]


def unchecked_ballots(
    study: SealedStudy,
    ballots: Iterable[BallotSource],
    checked: Iterable[CheckedSource],
) -> list[Unchecked]:
    """Return the ballots that are not checked by all tellers, so that a list would drop them.

    A holder's second ballot does not matter if all tellers can open the first one. Files that are
    no ballots of this study are ignored.
    """
    published = published_shares(study, checked)
    unchecked: list[Unchecked] = []
    settled = set()  # holders with a ballot that all tellers have checked
    for what, ballot, card in own_ballots(study, ballots):
        tellers = tuple(
            teller.name
            for number, teller in enumerate(study.tellers)
            if ballot.digest not in published.get(number, {})
        )
        if tellers:
            unchecked.append(Unchecked(ballot.digest, what, card.name, tellers))
        else:
            settled.add(card.name)
    return [item for item in unchecked if item.holder not in settled]


UNFIT = (
    "what all tellers published of it does not add up, so this ballot or a teller is wrong, and it "
    "is not possible to tell which"
)


def unopened_words(study: SealedStudy, tellers: Sequence[str]) -> str:
    """Return the text for a ballot that these tellers have not stated they can open."""
    names = " and ".join(tellers)
    if len(tellers) == len(study.tellers):
        return (
            f"{names} did not state that it can be opened: it may be newer than their checks, so "
            "have it checked again"
        )
    return (
        f"{names} did not state that it can be opened, and another teller did: "
        "have it checked again. If that does not help, this ballot or a teller is wrong, and it is "
        "not possible to tell which"
    )


class ClosedList(JsonFile):
    """List of the ballots that count, signed by the owner or a teller; `ClosedList.of` makes one.

    Attributes
    ----------
    study : str
        Digest of the study.
    ballots : dict of str to str
        Digests of the ballots by the fingerprints of their holders.
    digest : str
        SHA-256 of study and ballots, without the signature.
    """

    KIND: ClassVar[str] = "closed-list"
    FIELDS: ClassVar[Fields] = ("study", "ballots")

    def _set(self, fields: dict[str, Any], what: str) -> None:
        self.ballots: dict[str, str] = {}
        for holder, digest in pairs(fields["ballots"], MAX_HOLDERS, what):
            if digits(holder, 32, what) in self.ballots:
                raise FileError(f"{what}: a holder is there twice")
            self.ballots[holder] = digits(digest, 64, what)

    def __repr__(self) -> str:
        return f"ClosedList({len(self.ballots)} ballots, digest={self.digest!r})"

    @classmethod
    def of(
        cls,
        study: SealedStudy,
        ballots: Iterable[BallotSource],
        *,
        key: Key,
        checked: Iterable[CheckedSource],
    ) -> ClosedList:
        """Close the list with those of these ballots that all tellers can open and that add up.

        Parameters
        ----------
        study : SealedStudy
        ballots : list of Ballot or path
            A folder stands for all ballots in it; files that are anything else are left out.
        key : Key
            Key of the owner, or of a teller if the study has no owner.
        checked : list of CheckedBallots or path
            Files of all tellers, from which `verdict_of` determines the ballots to leave out.
        """
        study.require_open()
        _require_closer(study, key.public.identity, "key")
        digests: dict[str, str] = {}
        for what, ballot in each_ballot(ballots, verdict_of(study, checked).good):
            holder = ballot.require_of(study, what).key.fingerprint
            # A holder who casts two ballots cannot choose between them.
            digests[holder] = min(digests.get(holder, ballot.digest), ballot.digest)
        _require_turnout(study, len(digests))
        order = [card.key.fingerprint for card in study.holders]
        counted = [[holder, digests[holder]] for holder in order if holder in digests]
        return cls.sign(study, {"ballots": counted}, key)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of study and ballots, in hex; the signature is not part of it."""
        content = {"study": self.study, "ballots": [list(pair) for pair in self.ballots.items()]}
        return hashlib.sha256(_LIST_LABEL + canonical_json(content)).hexdigest()

    def require_of(self, study: SealedStudy, what: str = "closed list") -> PublicKey:
        """Return the key that closed the list; refuse a list that does not fit this study."""
        self._require_study(study, what)
        closer = _require_closer(study, self._identity, what)
        order = [card.key.fingerprint for card in study.holders]
        if list(self.ballots) != [holder for holder in order if holder in self.ballots]:
            raise StudyError(f"{what}: it has holders who are not on the roster")
        if len(set(self.ballots.values())) != len(self.ballots):
            raise StudyError(f"{what}: it has a ballot twice")
        _require_turnout(study, len(self.ballots))
        return closer

    def facts(self) -> dict[str, Any]:
        """Return the list's facts for JSON answers."""
        n_ballots = len(self.ballots)
        return {"study": self.study[:32], "digest": self.digest, "n_ballots": n_ballots}

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("closed list", f"{len(self.ballots)} ballots"),
            ("study", digit_groups(self.study[:32])),
            ("digest", self.digest),
        ]


def _require_closer(study: SealedStudy, identity: bytes, what: str) -> PublicKey:
    """Return the key of the owner, or of a teller if there is no owner; refuse any other."""
    tellers = [card.key for card in study.tellers]
    for key in tellers if study.owner is None else [study.owner]:
        if key.identity == identity:
            return key
    raise StudyError(f"{what}: its signer may not close the list of this study")


def _require_turnout(study: SealedStudy, n_ballots: int) -> None:
    if n_ballots < study.min_holders:
        raise StudyError(
            f"{count_text(n_ballots, 'ballot')} {'counts' if n_ballots == 1 else 'count'}, but "
            f"{study.min_holders} or more are needed: a list waits until so many are cast and "
            "checked. If they never are, tellers end the study without a total (privsketch study "
            "void)"
        )
