"""State of a user: files that are never replaced, each for something that may happen only once.

A teller's study key is made on one machine, accepts one study there and is used up by one list; a
holder casts one ballot in a study. Each of these facts is on disk before anything that depends on
it leaves this machine. The first write stays, whoever tries again: another process, another list,
or the same command after a crash. Only the machine that made a key knows what the key has done.

The folder belongs to the user, not to a key file: a copy of a key on the same machine has the same
state. The folder must not be restored from a backup.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from privsketch._base.errors import AccessError, FileError
from privsketch._base.formats import read_file, sync_folder, temporary_beside
from privsketch_studies.errors import StudyError

if TYPE_CHECKING:
    from privsketch.signing.keys import Key
    from privsketch_studies.sealing.study import SealedStudy

_DIGEST_BYTES = 32
VOID = b"void"  # content of the file "use" of a study key that was given up
_rehearsal_folder: ContextVar[Path | None] = ContextVar("privsketch_sealed_state", default=None)


@contextmanager
def use_state_folder(folder: Path) -> Iterator[None]:
    """Use another folder for the state within this block, for a rehearsal."""
    token = _rehearsal_folder.set(folder)
    try:
        yield
    finally:
        _rehearsal_folder.reset(token)


def state_folder() -> Path:
    """Return the folder of the state: in PRIVSKETCH_HOME, or in the user's state folder."""
    folder = _rehearsal_folder.get()
    if folder is not None:
        return folder
    home = os.environ.get("PRIVSKETCH_HOME")
    if home:
        return Path(home) / "sealed"
    state = os.environ.get("XDG_STATE_HOME", "")
    user = Path(os.path.expanduser("~"))
    base = Path(state) if os.path.isabs(state) else user / ".local" / "state"
    return base / "privsketch" / "sealed"


def teller_file(key: str, name: str) -> Path:
    """Return the file of a named fact about a study key, by the key's fingerprint."""
    return state_folder() / "tellers" / f"{key}.{name}"


def mark_made_here(key: str) -> None:
    """Record that a study key was made on this machine, before the key is used."""
    write_once(teller_file(key, "born"), b"born")


def require_made_here(key: str) -> None:
    """Refuse a study key, by its fingerprint, that was not made on this machine.

    Without its complete state, a key could accept and tally a second time.
    """
    if read_state(teller_file(key, "born")) is None:
        raise StudyError(
            "the key for this study was not made on this machine by this user, or its state is "
            "lost, so what it has signed is unknown. Use the machine where it was made "
            "(privsketch study enrol --teller). If that is gone, enrol again, which makes a new "
            "key, and have the study made anew"
        )


def ballot_file(study: str, holder: str) -> Path:
    """Return the file of a holder's ballot, by the study's digest and the key's fingerprint."""
    return state_folder() / "ballots" / f"{study}.{holder}"


def destroyed_ballot_file(study: str, holder: str) -> Path:
    """Return the file with the digest of a holder's destroyed ballot."""
    return state_folder() / "ballots" / f"{study}.{holder}.gone"


def entry_file(study: str, ballot: str) -> Path:
    """Return the file that names a ballot's ledger entry, by the digests of study and ballot."""
    return state_folder() / "ballots" / f"{study}.{ballot}.entry"


def read_state(path: Path) -> bytes | None:
    """Return the content of a state file, or None without a file; refuse a damaged file."""
    if not os.path.lexists(path):
        return None
    data = read_file(path)
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise FileError(
            f"{path}: damaged, so what it records is unknown; it counts as done, and cannot be "
            "done again"
        )
    return content


def require_writable_state(path: Path) -> None:
    """Refuse a state file that cannot be written, before anything is spent."""
    folder = next(parent for parent in path.parents if os.path.lexists(parent))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise AccessError(f"{folder}: not writable, but ballots must be stored there")


def write_once(path: Path, content: bytes) -> bytes:
    """Write a state file unless it exists, and return its content once it is on disk."""
    content_on_disk = read_state(path)
    try:
        if content_on_disk is not None:
            sync_folder(path.parent)  # whoever wrote it may have been stopped before this
            return content_on_disk
        _make_folder(path.parent)
        _write(path, content + hashlib.sha256(content).digest())
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None
    content_on_disk = read_state(path)
    if content_on_disk is None:
        raise AccessError(f"{path}: it was written, but is missing")
    return content_on_disk


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, and sync each new name to disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def _write(path: Path, data: bytes) -> None:
    """Write a file, which appears only when complete and never replaces another file."""
    temporary = temporary_beside(path)
    try:
        _fill(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links; a partial file reads as damaged, and counts
            with suppress(FileExistsError):
                _fill(path, data)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def _fill(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


# ---------------------------------------------------------------- study keys


def require_teller(study: SealedStudy, key: Key) -> int:
    """Return the number of the teller who has accepted this study here with this key."""
    number = study.teller_of(key.public)
    if study.tellers[number].study_key != key.public:
        raise StudyError("ballots are opened with the study key, not with the long-lived one")
    study.require_open()
    require_accepted(study, key.fingerprint)
    return number


def require_accepted(study: SealedStudy, study_key: str) -> None:
    """Refuse a study key, by its fingerprint, that has not accepted this study on this machine."""
    require_made_here(study_key)
    accepted = read_state(teller_file(study_key, "study"))
    if accepted is None:
        raise StudyError(
            "this study was not accepted on this machine by this user, or that state is lost; "
            "accept it first (privsketch study accept)"
        )
    if accepted != study.digest.encode("ascii"):
        raise StudyError("this study key was accepted for another study")


def list_use(closed_list: str) -> bytes:
    """Return the content of the file "use" of a study key, for a list by its digest."""
    return b"list " + closed_list.encode("ascii")


def mark_void(key: str) -> None:
    """Use up a study key without a tally; refuse a key that may have tallied."""
    # There may be a tally even if the record of the use is lost.
    has_tally = read_state(teller_file(key, "tally")) is not None
    if has_tally or write_once(teller_file(key, "use"), VOID) != VOID:
        raise StudyError("this study key has tallied, or was about to; the study is not void")


def use_up(key: str, closed_list: str | None = None) -> None:
    """Record that a study key has no further use; an earlier record stays.

    `closed_list` is the digest of the list that the key has tallied, on this or another machine.
    """
    if read_state(teller_file(key, "tally")) is None:
        write_once(teller_file(key, "use"), VOID if closed_list is None else list_use(closed_list))


def record_path(key: str, file: str | os.PathLike[str]) -> None:
    """Record the path of a study key's file, before the key is given up."""
    write_once(teller_file(key, "place"), os.fsencode(os.path.abspath(file)))


def recorded_path(key: str) -> Path | None:
    """Return the recorded path of a study key's file; None if the key was never given up."""
    path = read_state(teller_file(key, "place"))
    return None if path is None else Path(os.fsdecode(path))


def mark_destroyed(key: str) -> None:
    """Record that the file of a study key was destroyed on this machine."""
    write_once(teller_file(key, "destroyed"), b"destroyed")


def is_destroyed(key: str) -> bool:
    """Return whether the file of a study key was destroyed on this machine."""
    return read_state(teller_file(key, "destroyed")) is not None
