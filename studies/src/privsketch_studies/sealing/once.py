"""What may happen once, ever: written down under a name that nothing has, and found again.

A teller's study key is born on one machine, accepts one study there and is used up by one list; a
holder casts one ballot in a study. All of it is on disk before anything that depends on it leaves
this machine, and what was written first stays, whoever tries again: another process, another list,
after a crash. A machine that does not know of a key's birth knows nothing of what it has done.

The folder belongs to the user, not to a key's file: a copy of a key on the same machine remembers
what the key has done. It must not be brought back from a backup.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from privsketch._base.errors import AccessError, FileError
from privsketch._base.formats import read_file, temporary_beside
from privsketch.signing.documents import sync_folder
from privsketch_studies.errors import StudyError

_DIGEST_BYTES = 32
_elsewhere: ContextVar[Path | None] = ContextVar("privsketch_sealed_state", default=None)


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """What happens inside of this block happens in a rehearsal, and is kept in its folder."""
    token = _elsewhere.set(folder)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def state_folder() -> Path:
    """Where it is kept: below PRIVSKETCH_HOME, or where users' programs keep their state."""
    elsewhere = _elsewhere.get()
    if elsewhere is not None:
        return elsewhere
    home = os.environ.get("PRIVSKETCH_HOME")
    if home:
        return Path(home) / "sealed"
    state = os.environ.get("XDG_STATE_HOME", "")
    user = Path(os.path.expanduser("~"))
    base = Path(state) if os.path.isabs(state) else user / ".local" / "state"
    return base / "privsketch" / "sealed"


def teller_slot(key: str, name: str) -> Path:
    """Where something about a study key is kept, by the key's fingerprint."""
    return state_folder() / "tellers" / f"{key}.{name}"


def mark_born(key: str) -> None:
    """Write down that a study key was made here, by its fingerprint; before anybody has it."""
    keep_once(teller_slot(key, "born"), b"born")


def require_born(key: str) -> None:
    """Refuse a study key, by its fingerprint, whose life this machine has not seen from the first.

    Where it was lost what a key has done, it could accept and tally a second time.
    """
    if kept(teller_slot(key, "born")) is None:
        raise StudyError(
            "the key for this study was not made on this machine by this user, or what was kept of "
            "it is lost: nobody knows here what it has signed. Go where it was made (privsketch "
            "study enrol --teller). If that is gone, enrol again, which makes a new key, and have "
            "the study made anew"
        )


def ballot_slot(study: str, holder: str) -> Path:
    """Where the ballot of a holder is kept, by the study's digest and the key's fingerprint."""
    return state_folder() / "ballots" / f"{study}.{holder}"


def gone_slot(study: str, holder: str) -> Path:
    """Where the digest of a holder's ballot is kept when the ballot itself was destroyed."""
    return state_folder() / "ballots" / f"{study}.{holder}.gone"


def entry_slot(study: str, ballot: str) -> Path:
    """Where the ledger's entry of a ballot is named, by the ballot's digest."""
    return state_folder() / "ballots" / f"{study}.{ballot}.entry"


def kept(path: Path) -> bytes | None:
    """What was written under a name; None if nothing was, an error if it is damaged."""
    if not os.path.lexists(path):
        return None
    data = read_file(path)
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise FileError(
            f"{path}: damaged, so that nobody knows what was done; it counts as done, and cannot "
            "be done again"
        )
    return content


def require_keepable(path: Path) -> None:
    """Refuse a name that nothing could be written under, before anything is spent."""
    folder = next(one for one in path.parents if os.path.lexists(one))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise AccessError(f"{folder}: cannot be written, and what was sealed is to be kept there")


def keep_once(path: Path, content: bytes) -> bytes:
    """Write something under a name, unless something stands there; what stands there, on disk."""
    found = kept(path)
    try:
        if found is not None:
            sync_folder(path.parent)  # whoever wrote it may not have come to that
            return found
        _make_folder(path.parent)
        _write(path, content + hashlib.sha256(content).digest())
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None
    found = kept(path)
    if found is None:
        raise AccessError(f"{path}: it was written, and is not there")
    return found


def _make_folder(folder: Path) -> None:
    """Folders down to this one; the names of new ones are on disk, as that of a file will be."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def _write(path: Path, data: bytes) -> None:
    """The file appears whole, and never in the place of another one."""
    temporary = temporary_beside(path)
    try:
        _fill(temporary, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links here; half a file will be found damaged, and count
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
