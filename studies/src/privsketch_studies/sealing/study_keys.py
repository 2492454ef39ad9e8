"""What a teller's study key has done on this machine: accepted a study, tallied, was given up.

All of it follows from files that are written once (`once`), by the fingerprint of the key.
"""

from __future__ import annotations

import os
from pathlib import Path

from privsketch.signing.keys import Key
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.once import keep_once, kept, require_born, teller_slot
from privsketch_studies.sealing.study import SealedStudy

VOID = b"void"


def require_teller(study: SealedStudy, key: Key) -> int:
    """The number of the teller, which has accepted this study with this key, on this machine."""
    number = study.teller_of(key.public)
    if study.tellers[number].study_key != key.public:
        raise StudyError("ballots are opened with the study key, not with the long-lived one")
    study.require_open()
    require_accepted(study, key.fingerprint)
    return number


def require_accepted(study: SealedStudy, study_key: str) -> None:
    """Refuse a study key, by its fingerprint, that has not accepted this study on this machine."""
    require_born(study_key)
    accepted = kept(teller_slot(study_key, "study"))
    if accepted is None:
        raise StudyError(
            "this study was not accepted on this machine by this user, or what was kept of that is "
            "lost; accept it first (privsketch study accept)"
        )
    if accepted != study.digest.encode("ascii"):
        raise StudyError("this study key was accepted for another study")


def use_of(closed_list: str) -> bytes:
    """How the use of a study key for a list is written down, by the list's digest."""
    return b"list " + closed_list.encode("ascii")


def mark_void(key: str) -> None:
    """Use a study key up, by its fingerprint, without a tally; an error if there may be one."""
    has_tally = kept(teller_slot(key, "tally")) is not None  # though its use may be lost
    if has_tally or keep_once(teller_slot(key, "use"), VOID) != VOID:
        raise StudyError("this study key has tallied, or was about to; the study is not void")


def use_up(key: str, closed_list: str | None = None) -> None:
    """Leave a study key without a use, by its fingerprint; what it was used for stays known.

    That is a list if a tally of the key is there, be it only one that somebody has brought.
    """
    if kept(teller_slot(key, "tally")) is None:
        keep_once(teller_slot(key, "use"), VOID if closed_list is None else use_of(closed_list))


def keep_place(key: str, file: str | os.PathLike[str]) -> None:
    """Write down where the file of a study key lies, before the key is given up."""
    keep_once(teller_slot(key, "place"), os.fsencode(os.path.abspath(file)))


def kept_place(key: str) -> Path | None:
    """Where the file of a study key lay when it was first given up; None if it never was."""
    found = kept(teller_slot(key, "place"))
    return None if found is None else Path(os.fsdecode(found))


def mark_destroyed(key: str) -> None:
    """Write down that the file of a study key was destroyed here."""
    keep_once(teller_slot(key, "destroyed"), b"destroyed")


def is_destroyed(key: str) -> bool:
    """Whether the file of a study key was destroyed on this machine."""
    return kept(teller_slot(key, "destroyed")) is not None
