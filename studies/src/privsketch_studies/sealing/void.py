"""The end of a study: void statements of tellers, settled ledgers, destroyed keys and ballots.

A teller declares a study void if it published no tally and gave its study key up. Without the share
of one honest teller all other shares are uniform. So a ballot costs nothing if all tellers, one of
whom is honest, declare the study void, or one whom the holder names. A pinned teller is not enough:
all but one may be dishonest, and a false statement would make a ledger forget a cost. The cost
"alone" is for the case that all tellers are dishonest. Only the statement of a teller that the
holder names takes it back.

A study has ended when all tellers have published a tally, or one of them has declared it void. Then
only the total is needed. Someone who gets all study keys and the ballots later would see what
"alone" protects; without the keys, ballots are uniform bytes. Digests of ballots stay: a holder who
has cast a ballot casts no other one, even if the first is destroyed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from privsketch._base.errors import AccessError, FileError, ParameterError, PrivsketchError
from privsketch._base.formats import SKETCH_MAGIC, beginning_of, read_file
from privsketch.ledger.entry import LedgerName, named_data_set
from privsketch.signing.keys import Key, PublicKey, destroy_key, fingerprint_of_file
from privsketch.signing.signature import key_fingerprint
from privsketch.signing.trusted import resolve_key
from privsketch.sketching.sketch import Sketch
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.ballots import Ballot, study_key
from privsketch_studies.sealing.files import Fields, JsonFile, digits, kind_of_bytes
from privsketch_studies.sealing.join import TallySource, all_tallies
from privsketch_studies.sealing.once import (
    ballot_file,
    destroyed_ballot_file,
    is_destroyed,
    mark_destroyed,
    mark_void,
    read_state,
    record_path,
    recorded_path,
    require_accepted,
    use_up,
    write_once,
)
from privsketch_studies.sealing.seal import entries_of_ballot
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally, tallies_in

PathLike = str | os.PathLike[str]
STATEMENT = "published no tally, destroyed the key"


class VoidStudy(JsonFile):
    """Statement of a teller that it published no tally of a study and destroyed its study key.

    Attributes
    ----------
    study : str
        Digest of the study.
    study_key : str
        Fingerprint of the destroyed key.
    teller : str
        Fingerprint of the teller's long-lived key, which signed it.
    """

    KIND: ClassVar[str] = "void-study"
    FIELDS: ClassVar[Fields] = ("study", "study_key", "statement")

    def _set(self, fields: dict[str, Any], what: str) -> None:
        if fields["statement"] != STATEMENT:
            raise FileError(f"{what}: unknown statement")
        self.study_key = digits(fields["study_key"], 32, what)
        self.teller = key_fingerprint(self._identity)

    def require_of(self, study: SealedStudy, what: str = "void") -> int:
        """Return the number of the teller; refuse a statement about another study or key."""
        self._require_study(study, what)
        for number, card in enumerate(study.tellers):
            if card.key.identity == self._identity and card.study_key is not None:
                if card.study_key.fingerprint != self.study_key:
                    raise StudyError(f"{what}: about another study key than the card's")
                return number
        raise StudyError(f"{what}: signed by somebody who is no teller of this study")


def void_study(
    study: SealedStudy,
    *,
    key: Key,
    study_key_file: str | os.PathLike[str] | None,
    mailbox: str | os.PathLike[str] | None = None,
) -> VoidStudy:
    """Give up a study key, destroy its file, and state that; refuse a key that may have tallied.

    The key must have been made, and the study accepted, on this machine, and the `mailbox` must not
    have a tally of it. `study_key_file` is None only if there never was a file. After an
    interruption, the call may be repeated without the file.
    """
    card = study.tellers[study.teller_of(key.public)]
    if card.key.identity != key.public.identity or card.study_key is None:
        raise StudyError("a study is declared void with the teller's long-lived key")
    fingerprint = card.study_key.fingerprint
    require_accepted(study, fingerprint)
    if mailbox is not None:
        earlier = [file for file, tally in tallies_in(Path(mailbox)) if tally.teller == fingerprint]
        if earlier:
            raise StudyError(f"{earlier[0]}: a tally of this study key; the study is not void")
    file = _file_to_destroy(study_key_file, fingerprint)  # before the key is used up
    if file is not None:
        record_path(fingerprint, file)
    mark_void(fingerprint)
    if file is not None:
        destroy_key(file, fingerprint)
        mark_destroyed(fingerprint)
    return VoidStudy.sign(study, {"study_key": fingerprint, "statement": STATEMENT}, key)


def _file_to_destroy(
    study_key_file: str | os.PathLike[str] | None, fingerprint: str
) -> str | os.PathLike[str] | None:
    """Return the file of a study key; None if it is known to be destroyed.

    A missing file alone proves nothing, because its name may be mistyped. The key must have been
    destroyed here, or the file must have had the name that was recorded when the key was given up.
    """
    recorded = recorded_path(fingerprint)
    is_gone = is_destroyed(fingerprint)
    if recorded is not None and not is_gone:
        is_gone = not os.path.lexists(recorded)
        path = None if study_key_file is None else os.path.abspath(study_key_file)
        if not is_gone and path != os.fspath(recorded):
            raise StudyError(f"{recorded}: the study key was given up but still exists; name it")
    if study_key_file is None or (is_gone and not os.path.lexists(study_key_file)):
        return None
    if fingerprint_of_file(study_key_file) != fingerprint:
        raise ParameterError(f"{study_key_file}: not the study key of this teller; the file stays")
    return study_key_file


class Settled(NamedTuple):
    """Result of `settle`: the number of entries, and which of their costs are taken back."""

    n_entries: int
    is_free: bool
    is_alone_free: bool


def settle(
    study: SealedStudy,
    holder: str,
    *,
    ledger: LedgerName,
    total: Sketch | None = None,
    voids: Iterable[VoidStudy] = (),
    tallies: Iterable[TallySource] = (),
    trusted: PublicKey | str | os.PathLike[str] | None = None,
    mailbox: PathLike | Iterable[PathLike] | None = None,
) -> Settled:
    """End the reserved entries of a holder's ballot in a ledger.

    Parameters
    ----------
    study : SealedStudy
    holder : str
        The name on the roster.
    ledger : (path, name)
        Ledger file and name of the data set.
    total : Sketch, optional
        Total that includes the holder's ballot; the entries get its receipt.
    voids : list of VoidStudy
        Statements of all tellers, or of the `trusted` one: the ballot costs nothing.
    tallies : list of Tally or path
        Tallies of all tellers over a list without this ballot: it costs nothing but "alone".
    trusted : PublicKey, path or name, optional
        With voids: the teller whose statement is enough; then "alone" is taken back as well. It
        has no default, because pinned keys serve other purposes.
    mailbox : path or list of path, optional
        With voids: the folder of the study, and any other that may have a tally or a total of it.
        They are searched with all folders below.
    """
    book_name = named_data_set(ledger)
    void_list, tally_list = list(voids), list(tallies)
    is_free, is_alone_free = False, False
    if total is not None:
        _require_in(study, holder, total)
    elif tally_list:
        _require_left_out(study, holder, tally_list)
        is_free = True
    else:
        is_alone_free = _require_void(study, void_list, trusted)
        if mailbox is None:
            raise ParameterError("mailbox", None, "expected the folder of the study", _NOT_VOID)
        folders = [mailbox] if isinstance(mailbox, str | os.PathLike) else mailbox
        for folder in dict.fromkeys(Path(path).resolve() for path in folders):
            _require_nothing_published(study, folder)
        is_free = True
    if book_name is None:
        return Settled(0, is_free, is_alone_free)
    book, _ = book_name
    entries = entries_of_ballot(study, holder, ledger, "reserved")
    for entry in entries:
        if is_alone_free:
            book.commit(entry.id, void=True)
        elif is_free:
            zero = Fraction(0)
            cost = replace(entry.cost, epsilon=zero, delta=zero, rho=zero)
            book.commit(entry.id, cost=cost)  # "alone" stays
        elif total is not None:
            book.commit(entry.id, receipt=total.receipt.to_json())
    return Settled(len(entries), is_free, is_alone_free)


_PUBLISHED = (Tally.SUFFIX, ".sketch")
_NOT_VOID = "a study with a published tally or total is not void"


def _require_in(study: SealedStudy, holder: str, total: Sketch) -> None:
    """Refuse a sketch that is not the total of this study, or lacks this holder's ballot."""
    if not any(shared.study == study.fingerprint for shared in total.shared):
        raise StudyError("this is not the total of this study")
    if holder not in total.sources:
        raise StudyError(
            f"the total has no ballot of {holder!r}: it was left out. It costs nothing but alone "
            "if the tallies of all tellers confirm that (privsketch study settle --tally)"
        )


def _require_left_out(study: SealedStudy, holder: str, tallies: list[TallySource]) -> None:
    """Refuse unless all tellers have used their keys, and none of them for this holder's ballot.

    One of them is honest and tallies only once: its share of this ballot is in no tally.
    """
    indices = [index for index, card in enumerate(study.holders) if card.name == holder]
    if not indices:
        raise StudyError(f"{holder!r} is not on the roster of this study")
    for number, tally in all_tallies(study, tallies).items():
        if indices[0] in tally.holders:
            raise StudyError(
                f"{study.tellers[number].name!r} has tallied the ballot of {holder!r}: its cost "
                "stays; settle it with the total (privsketch study settle --total)"
            )


def _require_void(
    study: SealedStudy,
    voids: list[VoidStudy],
    trusted: PublicKey | str | os.PathLike[str] | None,
) -> bool:
    """Return whether a named teller declares the study void; refuse unless it or all tellers do."""
    declared = {void.require_of(study) for void in voids}
    missing = [card.name for index, card in enumerate(study.tellers) if index not in declared]
    if trusted is not None:
        key = resolve_key(trusted)
        if study.teller_of(key) not in declared:
            raise StudyError(f"{key.name!r}, whom you trust, has not declared the study void")
        return True
    if missing:
        raise StudyError(
            f"{', '.join(map(repr, missing))} did not declare the study void, and all but one "
            "teller may be dishonest: give the statements of all, or name a teller whom you trust "
            "(privsketch study settle --trust); a pinned teller is not enough"
        )
    return False


def _require_nothing_published(study: SealedStudy, folder: Path) -> None:
    """Refuse if the folder, or one below, has a tally or a total of this study."""
    for file in _plain_files(folder):
        start, what = beginning_of(file, len(SKETCH_MAGIC)), ""
        if not start and file.suffix in _PUBLISHED:
            read_file(file)  # an unreadable file may be one, so this raises
        try:
            if kind_of_bytes(start) == "tally":
                what = "a tally" if Tally.load(file).is_signed_in(study) else ""
            elif start == SKETCH_MAGIC:
                shared = Sketch.load(file).shared
                is_total = any(part.study == study.fingerprint for part in shared)
                what = "a total" if is_total else ""
        except PrivsketchError:
            continue  # not a file of this study
        if what:
            raise StudyError(
                f"{file}: {what} of this study, which is therefore not void; the cost stays. "
                "Settle it with the total (privsketch study settle --total)"
            )


def _plain_files(folder: Path) -> Iterator[Path]:
    """Yield regular files in a folder and below; links to folders are not followed.

    A folder that cannot be read is an error. A broken link counts as a file.
    """
    if not folder.is_dir():
        raise AccessError(f"{folder}: not a folder; it cannot be searched for tallies")

    def fail(error: OSError) -> None:
        reason = error.strerror or "cannot be read"
        raise AccessError(f"{error.filename}: {reason}; it cannot be searched for tallies")

    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        for file in (Path(parent, name) for name in sorted(names)):
            try:
                is_plain = stat.S_ISREG(file.stat().st_mode)
            except OSError:
                is_plain = True
            if is_plain:
                yield file


# ---------------------------------------------------------------- destroying keys and ballots


@dataclass(frozen=True)
class Destroyed:
    """Files that `destroy` removed.

    Attributes
    ----------
    study_keys, ballots : tuple of Path
        Removed files; those of keys were overwritten first.
    n_kept : int
        Number of ballots removed from this user's state, of holders who sealed here.
    """

    study_keys: tuple[Path, ...]
    ballots: tuple[Path, ...]
    n_kept: int


def destroy(
    study: SealedStudy,
    *,
    study_key_files: Iterable[PathLike] = (),
    ballots: Iterable[PathLike] = (),
    tallies: Iterable[TallySource] = (),
    voids: Iterable[VoidStudy] = (),
) -> Destroyed:
    """Destroy study keys and ballots of a study that has ended; refuse one that has not.

    Everything is checked before anything is destroyed. A key that has not tallied is used up.

    Parameters
    ----------
    study : SealedStudy
    study_key_files : list of path
        Files of study keys of this study; no passphrase is needed.
    ballots : list of path
        Files of ballots; a folder stands for all ballots of this study in it.
    tallies : list of Tally or path
        Tallies of all tellers, if the study has a total.
    voids : list of VoidStudy
        Statement of any teller, if the study ended without a total.
    """
    lists = _require_ended(study, list(tallies), list(voids))
    keys = {Path(file): _require_study_key(study, file) for file in study_key_files}
    files = _ballot_files(study, ballots)
    for path, fingerprint in keys.items():
        record_path(fingerprint, path)
        use_up(fingerprint, lists.get(fingerprint))
        destroy_key(path, fingerprint)
        mark_destroyed(fingerprint)
    for file in files:
        _remove(file)
    return Destroyed(tuple(keys), tuple(files), _forget_kept(study))


def _require_ended(
    study: SealedStudy, tallies: list[TallySource], voids: list[VoidStudy]
) -> dict[str, str]:
    """Return digests of lists by the study keys that tallied them; refuse before the end."""
    if not tallies and not voids:
        raise StudyError(
            "nothing shows that this study has ended: give the tallies of all tellers, or a "
            "statement that it is void; nothing was destroyed"
        )
    for void in voids:
        void.require_of(study)
    by_teller = all_tallies(study, tallies) if tallies else {}
    return {tally.teller: tally.closed_list for tally in by_teller.values()}


def _require_study_key(study: SealedStudy, file: PathLike) -> str:
    """Return the fingerprint of a study key's file; refuse one that is not of this study."""
    fingerprint = fingerprint_of_file(file)
    if fingerprint not in [study_key(card).fingerprint for card in study.tellers]:
        raise ParameterError(f"{file}: not the study key of a teller of this study; the file stays")
    return fingerprint


def _ballot_files(study: SealedStudy, sources: Iterable[PathLike]) -> list[Path]:
    """Return files of ballots of this study; refuse a named file that is none."""
    files: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            Ballot.load(source).require_of(study, str(source))
            files.append(source)
            continue
        for file in sorted(source.glob(f"*{Ballot.SUFFIX}")):
            with suppress(PrivsketchError):  # of files that are no ballot of this study
                Ballot.load(file).require_of(study, str(file))
                files.append(file)
    return list(dict.fromkeys(files))


def _forget_kept(study: SealedStudy) -> int:
    """Replace ballots in this user's state by their digests, and return their number."""
    count = 0
    for card in study.holders:
        slot = ballot_file(study.digest, card.key.fingerprint)
        data = read_state(slot)
        if data is None:
            continue
        digest = hashlib.sha256(data).hexdigest()
        write_once(
            destroyed_ballot_file(study.digest, card.key.fingerprint), digest.encode("ascii")
        )
        _remove(slot)
        count += 1
    return count


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror or 'cannot be removed'}") from None
