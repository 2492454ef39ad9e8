"""The end of all that could still open a ballot: study keys and ballots, once a study has ended.

A study has ended when all tellers have published a tally, or when one of them has said that it will
not. Nothing is needed then but the total. Whoever gets hold of all study keys and the ballots later
would see what "alone" protects; without the keys, ballots are uniform bytes to everybody.

Digests stay: a holder who has cast a ballot casts no other one, though the first is gone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from privsketch._base.errors import AccessError, ParameterError, PrivsketchError
from privsketch.signing.keys import destroy_key, fingerprint_of_file
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import SUFFIX, Ballot
from privsketch_studies.sealing.join import TallySource, all_tallies
from privsketch_studies.sealing.once import ballot_slot, gone_slot, keep_once, kept
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.study_keys import keep_place, mark_destroyed, use_up
from privsketch_studies.sealing.void import VoidStudy

Name = str | os.PathLike[str]


@dataclass(frozen=True)
class Destroyed:
    """What is gone.

    Attributes
    ----------
    study_keys, ballots : tuple of Path
        Files that were removed; those of keys were overwritten before.
    n_kept : int
        Ballots that this user's own folder had kept, for holders who sealed here.
    """

    study_keys: tuple[Path, ...]
    ballots: tuple[Path, ...]
    n_kept: int


def destroy(
    study: SealedStudy,
    *,
    study_key_files: Iterable[Name] = (),
    ballots: Iterable[Name] = (),
    tallies: Iterable[TallySource] = (),
    voids: Iterable[VoidStudy] = (),
) -> Destroyed:
    """Destroy study keys and ballots of a study that has ended; refused while it has not.

    Everything is looked at before anything is destroyed. A key that has not tallied is used up.

    Parameters
    ----------
    study : SealedStudy
    study_key_files : list of path
        Of tellers of this study; no passphrase is needed.
    ballots : list of path
        A folder stands for all ballots of this study in it; other files in it stay.
    tallies : list of Tally or path
        Of all tellers: the study has ended.
    voids : list of VoidStudy
        Of any teller: it has ended without a total.
    """
    lists = _require_ended(study, list(tallies), list(voids))
    keys = {Path(file): _study_key(study, file) for file in study_key_files}
    files = _ballot_files(study, ballots)
    for path, fingerprint in keys.items():
        keep_place(fingerprint, path)
        use_up(fingerprint, lists.get(fingerprint))
        destroy_key(path, fingerprint)
        mark_destroyed(fingerprint)
    for file in files:
        _remove(file)
    return Destroyed(tuple(keys), tuple(files), _forget_kept(study))


def _require_ended(
    study: SealedStudy, tallies: list[TallySource], voids: list[VoidStudy]
) -> dict[str, str]:
    """Digests of lists by the study keys that have tallied them; an error before the end."""
    if not tallies and not voids:
        raise StudyError(
            "nothing says that this study has ended: give the tallies of all tellers, or a "
            "statement that it is void; nothing was destroyed"
        )
    for void in voids:
        void.require_of(study)
    found = all_tallies(study, tallies) if tallies else {}
    return {one.teller: one.closed_list for one in found.values()}


def _study_key(study: SealedStudy, file: Name) -> str:
    """The fingerprint of a study key, by its file; an error unless it is one of this study."""
    fingerprint = fingerprint_of_file(file)
    known = [card.study_key.fingerprint for card in study.tellers if card.study_key is not None]
    if fingerprint not in known:
        raise ParameterError(f"{file}: not the study key of a teller of this study; it stays")
    return fingerprint


def _ballot_files(study: SealedStudy, sources: Iterable[Name]) -> list[Path]:
    """Files of ballots of this study; an error for one that is named and is none."""
    found: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            Ballot.load(source).require_of(study, str(source))
            found.append(source)
            continue
        for file in sorted(source.glob(f"*{SUFFIX}")):
            try:
                Ballot.load(file).require_of(study, str(file))
                found.append(file)
            except PrivsketchError:
                continue  # of another study, or nobody's
    return list(dict.fromkeys(found))


def _forget_kept(study: SealedStudy) -> int:
    """Replace ballots that were kept for holders of this user by their digests; how many."""
    count = 0
    for card in study.holders:
        slot = ballot_slot(study.digest, card.key.fingerprint)
        data = kept(slot)
        if data is None:
            continue
        digest = hashlib.sha256(data).hexdigest()
        keep_once(gone_slot(study.digest, card.key.fingerprint), digest.encode("ascii"))
        _remove(slot)
        count += 1
    return count


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror or 'cannot be removed'}") from None
