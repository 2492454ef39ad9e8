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

from privsketch._base.errors import AccessError, PrivsketchError
from privsketch._base.formats import beginning_of
from privsketch.noise.mechanism import OWN_SAMPLER
from privsketch.signing.keys import Key
from privsketch.signing.signature import digit_groups
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import (
    Ballot,
    BallotSource,
    ballot_checks,
    combined_sampler,
    each_ballot,
    level_share,
    samplers_of,
)
from privsketch_studies.sealing.cards import MAX_HOLDERS
from privsketch_studies.sealing.files import (
    N_MAGIC,
    BinaryFile,
    Fields,
    altered,
    digits,
    integer,
    items,
    kind_of_bytes,
    packed,
)
from privsketch_studies.sealing.lists import (
    UNFIT,
    CheckedSource,
    ClosedList,
    checked_files_in,
    published_shares,
    require_all_checked,
)
from privsketch_studies.sealing.once import (
    VOID,
    list_use,
    read_state,
    require_teller,
    teller_file,
    write_once,
)
from privsketch_studies.sealing.splitting import (
    N_CHECKS,
    WORD_BYTES,
    Words,
    add_teller_noise,
    add_up,
    as_words,
    words_from_bytes,
    words_to_bytes,
)
from privsketch_studies.sealing.study import SealedStudy

_MAX_LEVELS = 2**16


class Tally(BinaryFile):
    """Sums of a teller's shares, which reveal nothing without the tallies of all other tellers.

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

    KIND: ClassVar[str] = "tally"
    FIELDS: ClassVar[Fields] = ("study", "teller", "list", "level", "holders", "sampler")
    SIGNER: ClassVar[str] = "teller"

    def _set(self, header: dict[str, Any], content: memoryview, what: str) -> None:
        holders = items(header["holders"], 1, MAX_HOLDERS, what)
        self.holders = tuple(integer(number, 0, MAX_HOLDERS, what) for number in holders)
        if holders != sorted(set(self.holders)) or len(content) % WORD_BYTES:
            raise altered(what)
        self.teller = header["teller"]
        self.closed_list = digits(header["list"], 64, what)
        self.level = integer(header["level"], 0, _MAX_LEVELS, what)
        self.words: Words = words_from_bytes(content, len(content) // WORD_BYTES)

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
        return self.study == study.digest and study.teller_with(self._identity) is not None

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
            ("tally", f"of {digit_groups(self.teller)}, over {len(self.holders)} ballots"),
            ("study", digit_groups(self.study[:32])),
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
    closed = closed_list if isinstance(closed_list, ClosedList) else ClosedList.load(closed_list)
    is_one = isinstance(ballots, str | os.PathLike | Ballot)
    sources: list[BallotSource] = [ballots] if is_one else list(ballots)  # type: ignore[list-item,arg-type]
    number = require_teller(study, key)
    closed.require_of(study)
    use, slot = (teller_file(key.fingerprint, name) for name in ("use", "tally"))
    _require_unused(read_state(use), closed)
    stored = read_state(slot)
    if stored is None and mailbox is not None:
        stored = _own_tally(study, Path(mailbox), key, closed)
        if stored is not None:
            _require_unused(write_once(use, list_use(closed.digest)), closed)
            stored = write_once(slot, stored)
    if stored is not None:
        earlier = Tally.from_bytes(stored, str(slot))
        _require_unused(list_use(earlier.closed_list), closed)  # the record of use may be lost
        return earlier
    if not study.is_over():
        raise StudyError(f"ballots are cast until {study.last_day}; tally on a later day (UTC)")
    if checked is None:
        checked = [] if mailbox is None else checked_files_in(study, mailbox)
    sampler = _open_all(study, sources, closed, key, published_shares(study, checked))
    _require_unused(write_once(use, list_use(closed.digest)), closed)
    words = _add_up(study, sources, closed, key, number)
    if study.noise == "tellers":
        noise, receipt = study.sharing.draw_teller()
        sampler = combined_sampler([sampler, *samplers_of(receipt)])
        values = np.zeros(study.n_words - N_CHECKS, dtype=np.uint64)
        values[: len(noise)] = as_words(noise)
        words = add_teller_noise(words, values, study.weights)
    holders = [
        number
        for number, card in enumerate(study.holders)
        if card.key.fingerprint in closed.ballots
    ]
    header: dict[str, Any] = {
        "study": study.digest,
        "teller": key.fingerprint,
        "list": closed.digest,
        "level": study.sharing.level_of(len(holders)),
        "holders": holders,
        "sampler": sampler,
    }
    return Tally(write_once(slot, packed(Tally.KIND, header, words_to_bytes(words), key)))


def _require_unused(use: bytes | None, closed: ClosedList) -> None:
    """Refuse a key that was used for another list, or given up."""
    if use is None or use == list_use(closed.digest):
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
    closed: ClosedList,
    key: Key,
    published: dict[int, dict[str, Words]],
) -> str:
    """Check all ballots of a list before the key is used, and return the sampler of their noise."""
    waiting, samplers = dict(closed.ballots), [OWN_SAMPLER]
    number = study.teller_of(key.public)
    require_all_checked(study, {number, *published})
    published_by_others = [shares for teller, shares in published.items() if teller != number]
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
        if not all(ballot.digest in shares for shares in published_by_others):
            raise StudyError(
                f"{what}: not all other tellers have stated that they can open it; wait for their "
                "checks, or close a list without it"
            )
        # This teller uses its own share, so what it published itself does not matter.
        checks = [ballot_checks(study, content, holder.key, number)]
        if not add_up([*checks, *(shares[ballot.digest] for shares in published_by_others)]):
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
    return combined_sampler(samplers)


def _add_up(
    study: SealedStudy, sources: list[BallotSource], closed: ClosedList, key: Key, number: int
) -> Words:
    """Return the sums of the teller's shares over the ballots of the list, each closed once."""
    waiting, level = dict(closed.ballots), study.sharing.level_of(len(closed.ballots))
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


def _own_tally(study: SealedStudy, mailbox: Path, key: Key, closed: ClosedList) -> bytes | None:
    """Return the tally of this key in the mailbox; refuse one of another list."""
    for file, earlier in tallies_in(mailbox):
        if earlier.teller != key.fingerprint:
            continue
        if earlier.study != study.digest or earlier.closed_list != closed.digest:
            raise StudyError(f"{file}: this study key has tallied another list; it tallies once")
        return earlier.to_bytes()
    return None
