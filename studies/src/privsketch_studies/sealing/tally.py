"""`tally`: a teller adds up its shares of the ballots; once for each study key.

A teller checks everything itself, including that the check words of every ballot add up over all
tellers. The list is on disk before any word is computed, and the tally before it is returned. A
repeat returns the stored bytes, and any other list is refused. After an interruption, only the same
list can be tallied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from privsketch._base.errors import AccessError, FileError, PrivsketchError
from privsketch._base.formats import beginning_of
from privsketch.noise.mechanism import OWN_SAMPLER
from privsketch.signing.keys import Key
from privsketch.signing.signature import key_fingerprint, spoken
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import (
    Ballot,
    BallotSource,
    ballot_checks,
    each_ballot,
    insecure_of,
    level_share,
    sampler_name,
    samplers_of,
)
from privsketch_studies.sealing.cards import MAX_HOLDERS
from privsketch_studies.sealing.files import (
    MAGIC,
    N_MAGIC,
    SealedFile,
    digits,
    kind_of_bytes,
    packed,
    unpacked,
    whole,
)
from privsketch_studies.sealing.lists import (
    UNFIT,
    CheckedSource,
    ClosedList,
    checked_in,
    published_shares,
    require_all_checked,
)
from privsketch_studies.sealing.once import (
    VOID,
    keep_once,
    kept,
    require_teller,
    teller_slot,
    use_of,
)
from privsketch_studies.sealing.splitting import (
    N_CHECKS,
    WORD_BYTES,
    Words,
    add_teller_noise,
    as_words,
    is_whole,
    words_from_bytes,
    words_to_bytes,
)
from privsketch_studies.sealing.study import SealedStudy

_FIELDS = ("study", "teller", "list", "level", "holders", "sampler")
SUFFIX = ".tally"
_MAX_LEVELS = 2**16


class Tally(SealedFile):
    """Sums of a teller's shares, which reveal nothing without the tallies of all other tellers.

    Parameters
    ----------
    data : bytes
        Content of a .tally file; its signature must be valid.
    what : str, optional
        Name of the file in error messages.

    Attributes
    ----------
    study : str
        Digest of the study.
    teller : str
        Fingerprint of the study key that signed it.
    closed_list : str
        Digest of the list that was tallied.
    level : int
        Level of noise, which follows from the number of ballots.
    holders : tuple of int
        Numbers of the holders that count, on the roster.
    sampler : str
        Sampler of the noise of ballots and teller; the insecure one if a test replaced any.
    words : uint64
        Sums of shares, modulo 2^64.
    """

    LABEL: ClassVar[str] = "tally"
    MAGIC: ClassVar[bytes] = MAGIC["tally"]

    def _parse(self, data: bytes, what: str) -> None:
        signer, header, content = unpacked(data, "tally", _FIELDS, what)
        if digits(header["teller"], 32, what) != key_fingerprint(signer):
            raise FileError(f"{what}: signed by another key than it names")
        holders = header["holders"]
        if not isinstance(holders, list) or not 1 <= len(holders) <= MAX_HOLDERS:
            raise FileError(f"{what}: unknown or missing fields")
        numbers = tuple(whole(number, 0, MAX_HOLDERS, what) for number in holders)
        if list(numbers) != sorted(set(numbers)) or len(content) % WORD_BYTES:
            raise FileError(f"{what}: not as privsketch writes it; the file was altered")
        self.study, self.teller = digits(header["study"], 64, what), str(header["teller"])
        self.closed_list = digits(header["list"], 64, what)
        self.level = whole(header["level"], 0, _MAX_LEVELS, what)
        self.holders, self.sampler = numbers, sampler_name(header["sampler"], what)
        self.words: Words = words_from_bytes(content, len(content) // WORD_BYTES)
        self._identity = signer

    def __repr__(self) -> str:
        return f"Tally(study={self.study[:32]!r}, teller={self.teller!r})"

    def require_of(self, study: SealedStudy, what: str = "tally") -> int:
        """Return the number of the teller; refuse a tally that does not fit this study."""
        number = self._require_teller(study, what)
        if self.holders[-1] >= len(study.holders) or len(self.holders) < study.min_holders:
            raise StudyError(f"{what}: too few holders, or some who are not on the roster")
        if self.level != study.sharing.level_of(len(self.holders)):
            raise StudyError(f"{what}: its noise is for another number of ballots")
        if len(self.words) != study.n_words:
            raise StudyError(f"{what}: it has another length than tallies of this study")
        return number

    def is_signed_in(self, study: SealedStudy) -> bool:
        """Whether a teller of this study has signed it for this study, even if it is invalid."""
        return self.study == study.digest and study.study_key_of(self._identity) is not None

    def facts(self) -> dict[str, Any]:
        """Return the tally's facts for JSON answers."""
        return {
            "study": self.study[:32],
            "n_ballots": len(self.holders),
            "fingerprint": self.teller,
            "list": self.closed_list,
        }

    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("tally", f"of {spoken(self.teller)}, over {len(self.holders)} ballots"),
            ("study", spoken(self.study[:32])),
            ("list", self.closed_list),
        ]


def tally(
    study: SealedStudy,
    ballots: Iterable[BallotSource] | str | os.PathLike[str],
    closed_list: ClosedList | str | os.PathLike[str],
    *,
    key: Key,
    checked: Iterable[CheckedSource] | None = None,
    mailbox: str | os.PathLike[str] | None = None,
) -> Tally:
    """Add up one teller's shares of the ballots that count; once for each study key.

    Charges: nothing by itself. A repeat with the same list returns the same bytes, and any other
    list is refused. This holds for this user on this machine, so study keys must stay on it and out
    of backups. A ballot whose check words do not add up is named before the key is used.

    Parameters
    ----------
    study : SealedStudy
        Study that this teller has accepted on this machine.
    ballots : list of Ballot or path, or folder
        All ballots of the list, and any others; they are read twice, one at a time.
    closed_list : ClosedList or path
    key : Key
        The teller's key for this study.
    checked : list of CheckedBallots or path, optional
        Files of all other tellers; by default those in the mailbox.
    mailbox : path, optional
        Folder that is searched for an earlier tally of this key before anything is done.

    Returns
    -------
    Tally
    """
    chosen = closed_list if isinstance(closed_list, ClosedList) else ClosedList.load(closed_list)
    is_one = isinstance(ballots, str | os.PathLike | Ballot)
    sources: list[BallotSource] = [ballots] if is_one else list(ballots)  # type: ignore[list-item,arg-type]
    number = require_teller(study, key)
    chosen.require_of(study)
    use, done = (teller_slot(key.fingerprint, name) for name in ("use", "tally"))
    _require_unused(kept(use), chosen)
    stored = kept(done)
    if stored is None and mailbox is not None:
        stored = _own_tally(study, Path(mailbox), key, chosen)
        if stored is not None:
            _require_unused(keep_once(use, use_of(chosen.digest)), chosen)
            stored = keep_once(done, stored)
    if stored is not None:
        earlier = Tally.from_bytes(stored, str(done))
        _require_unused(use_of(earlier.closed_list), chosen)  # the record of use may be lost
        return earlier
    if not study.is_over():
        raise StudyError(f"ballots are cast until {study.last_day}; tally on a later day (UTC)")
    if checked is None:
        checked = [] if mailbox is None else checked_in(study, mailbox)
    sampler = _open_all(study, sources, chosen, key, published_shares(study, checked))
    _require_unused(keep_once(use, use_of(chosen.digest)), chosen)
    words = _add_up(study, sources, chosen, key, number)
    if study.noise == "tellers":
        noise, receipt = study.sharing.draw_teller()
        sampler = insecure_of([sampler, *samplers_of(receipt)])
        values = np.zeros(study.n_words - N_CHECKS, dtype=np.uint64)
        values[: len(noise)] = as_words(noise)
        words = add_teller_noise(words, values, study.weights)
    holders = [
        number
        for number, card in enumerate(study.holders)
        if card.key.fingerprint in chosen.ballots
    ]
    header: dict[str, Any] = {
        "study": study.digest,
        "teller": key.fingerprint,
        "list": chosen.digest,
        "level": study.sharing.level_of(len(holders)),
        "holders": holders,
        "sampler": sampler,
    }
    return Tally.from_bytes(keep_once(done, packed("tally", header, words_to_bytes(words), key)))


def _require_unused(use: bytes | None, chosen: ClosedList) -> None:
    """Refuse a key that was used for another list, or given up."""
    if use is None or use == use_of(chosen.digest):
        return
    if use == VOID:
        raise StudyError("this study key was given up: the study is void")
    raise StudyError(
        "this study key has tallied another list, or was about to: a key tallies once. Two sums "
        "that differ by one ballot would reveal it"
    )


def _open_all(
    study: SealedStudy,
    sources: list[BallotSource],
    chosen: ClosedList,
    key: Key,
    published: dict[int, dict[str, Words]],
) -> str:
    """Check all ballots of a list before the key is used, and return the sampler of their noise."""
    waiting, samplers = dict(chosen.ballots), [OWN_SAMPLER]
    number = study.teller_of(key.public)
    require_all_checked(study, {number, *published})
    others = [shares for teller, shares in published.items() if teller != number]
    secrets: set[bytes] = set()
    unfit: list[str] = []
    for what, ballot in each_ballot(sources, frozenset(waiting.values())):
        if waiting.get(ballot.holder) != ballot.digest:
            continue
        content, holder = ballot.opened(study, key, what), ballot.require_of(study, what)
        # Two ballots with equal contents have the same mask, because a random generator repeats
        # itself or a ballot was copied. The difference of their values would be revealed.
        secret = hashlib.sha256(content).digest()
        if secret in secrets:
            raise StudyError(f"{what}: it has the same secret as another ballot; it is not tallied")
        secrets.add(secret)
        if not all(ballot.digest in shares for shares in others):
            raise StudyError(
                f"{what}: not all other tellers have stated that they can open it; wait for their "
                "checks, or close a list without it"
            )
        # This teller uses its own share, so what it published itself does not matter.
        own = ballot_checks(study, content, holder.key, number)
        if not is_whole([own, *(shares[ballot.digest] for shares in others)]):
            unfit.append(holder.name)
        samplers.append(ballot.sampler)
        del waiting[ballot.holder]
    if unfit:
        raise StudyError(
            f"the ballot of {', '.join(map(repr, unfit))}: {UNFIT}. No key was used; close the "
            "list again without it (privsketch study close leaves it out)"
        )
    if waiting:
        raise StudyError(
            f"{len(waiting)} ballots of the list are missing, or are not those of the list"
        )
    return insecure_of(samplers)


def _add_up(
    study: SealedStudy, sources: list[BallotSource], chosen: ClosedList, key: Key, number: int
) -> Words:
    """Return the sums of the teller's shares over the ballots of the list, each counted once."""
    waiting, level = dict(chosen.ballots), study.sharing.level_of(len(chosen.ballots))
    total = np.zeros(study.n_words, dtype=np.uint64)
    # The signatures of these bytes were verified before the key was used.
    for what, ballot in each_ballot(sources, frozenset(waiting.values()), is_verified=True):
        if waiting.get(ballot.holder) != ballot.digest:
            continue
        del waiting[ballot.holder]
        holder = ballot.require_of(study, what).key
        content = ballot.opened(study, key, what)
        total += level_share(study, content, holder, number, level)
    if waiting:
        raise StudyError("ballots have changed while they were read; tally the same list again")
    return total


def tallies_in(folder: Path) -> Iterator[tuple[Path, Tally]]:
    """Yield the tallies in a folder, whatever the names of their files."""
    if not folder.is_dir():
        raise AccessError(f"{folder}: not a folder; it cannot be searched for tallies")
    for file in sorted(folder.iterdir()):
        if kind_of_bytes(beginning_of(file, N_MAGIC)) != "tally":
            continue
        try:
            content = Tally.load(file)
        except PrivsketchError:
            continue
        yield file, content


def _own_tally(study: SealedStudy, mailbox: Path, key: Key, chosen: ClosedList) -> bytes | None:
    """Return the tally of this key in the mailbox; refuse one of another list."""
    for file, earlier in tallies_in(mailbox):
        if earlier.teller != key.fingerprint:
            continue
        if earlier.study != study.digest or earlier.closed_list != chosen.digest:
            raise StudyError(f"{file}: this study key has tallied another list; it tallies once")
        return earlier.to_bytes()
    return None
