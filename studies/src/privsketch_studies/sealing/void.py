"""The end of a study without a total: tellers published no tally, and have given their keys up.

Without the share of one honest teller all other shares are uniform. So the word of all tellers is
enough, one of whom is honest, and that of one whom a holder names. It is not enough that a teller
is pinned: all but one may cheat, and a lie would have a ledger forget what was spent. What a ballot
costs alone is there for tellers who all cheat, and is taken back by the word of a teller that the
holder names, and by nothing else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, NamedTuple

from privsketch._base.errors import AccessError, FileError, ParameterError, PrivsketchError
from privsketch._base.formats import SKETCH_MAGIC, beginning_of, read_file
from privsketch.ledger.entry import LedgerName, named
from privsketch.signing.keys import Key, PublicKey, destroy_key, fingerprint_of_file
from privsketch.signing.signature import key_fingerprint
from privsketch.signing.trusted import found_key
from privsketch.sketching.sketch import Sketch
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.files import (
    SealedFile,
    digits,
    kind_of_bytes,
    read_signed_json,
    signed_json,
)
from privsketch_studies.sealing.join import TallySource, all_tallies
from privsketch_studies.sealing.seal import entries_of_ballot
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.study_keys import (
    is_destroyed,
    keep_place,
    kept_place,
    mark_destroyed,
    mark_void,
    require_accepted,
)
from privsketch_studies.sealing.tally import SUFFIX as TALLY_SUFFIX
from privsketch_studies.sealing.tally import Tally, tallies_in

KIND = "void-study"
_FIELDS = ("study", "study_key", "statement")
Folder = str | os.PathLike[str]
STATEMENT = "published no tally, destroyed the key"


class VoidStudy(SealedFile):
    """A teller's word that it published no tally of a study and destroyed its study key.

    Attributes
    ----------
    study : str
        Digest of the study.
    study_key : str
        Fingerprint of the key that is gone.
    teller : str
        Fingerprint of the teller's long-lived key, which signed it.
    """

    LABEL: ClassVar[str] = "void"

    def _parse(self, data: bytes, what: str) -> None:
        self._identity, found = read_signed_json(data, KIND, _FIELDS, what)
        if found["statement"] != STATEMENT:
            raise FileError(f"{what}: it states something else")
        self.study = digits(found["study"], 64, what)
        self.study_key = digits(found["study_key"], 32, what)
        self.teller = key_fingerprint(self._identity)

    def require_of(self, study: SealedStudy, what: str = "void") -> int:
        """The number of the teller; an error unless it is one of this study."""
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
    """Give a study key up, destroy its file, and say so; refused if it may have tallied.

    Where the key was born and the study accepted: elsewhere nobody knows whether the key has
    tallied; and where no tally of it lies in the `mailbox`. `study_key_file` is None only where
    there never was a file. Whoever was interrupted may say it again, without the file.
    """
    card = study.tellers[study.teller_of(key.public)]
    if card.key.identity != key.public.identity or card.study_key is None:
        raise StudyError("a study is given up with the teller's long-lived key")
    fingerprint = card.study_key.fingerprint
    require_accepted(study, fingerprint)
    if mailbox is not None:
        own = [file for file, one in tallies_in(Path(mailbox)) if one.teller == fingerprint]
        if own:
            raise StudyError(f"{own[0]}: a tally of this study key; the study is not void")
    file = _file_to_destroy(study_key_file, fingerprint)  # before the key is used up
    if file is not None:
        keep_place(fingerprint, file)
    mark_void(fingerprint)
    if file is not None:
        destroy_key(file, fingerprint)
        mark_destroyed(fingerprint)
    content = {
        "study": study.digest,
        "study_key": fingerprint,
        "statement": STATEMENT,
    }
    return VoidStudy.from_bytes(signed_json(KIND, content, key))


def _file_to_destroy(
    study_key_file: str | os.PathLike[str] | None, fingerprint: str
) -> str | os.PathLike[str] | None:
    """The file of a study key that is still there; None where it is known to be gone.

    That a name has no file tells nothing, it may be mistyped: unless the key was destroyed here,
    or its file lay under the very name that was written down when the key was given up.
    """
    place = kept_place(fingerprint)
    is_gone = is_destroyed(fingerprint)
    if place is not None and not is_gone:
        is_gone = not os.path.lexists(place)
        given = None if study_key_file is None else os.path.abspath(study_key_file)
        if not is_gone and given != os.fspath(place):
            raise StudyError(f"{place}: the study key was given up and is still there; name it")
    if study_key_file is None or (is_gone and not os.path.lexists(study_key_file)):
        return None
    if fingerprint_of_file(study_key_file) != fingerprint:
        raise ParameterError(f"{study_key_file}: not the study key of this teller; it stays")
    return study_key_file


class Settled(NamedTuple):
    """How the entries of a ballot were ended: how many, and what they count from now on."""

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
    mailbox: Folder | Iterable[Folder] | None = None,
) -> Settled:
    """End the entries of a holder's ballot in a ledger, which count as reserved until then.

    Parameters
    ----------
    study : SealedStudy
    holder : str
        The name on the roster.
    ledger : (path, name)
    total : Sketch, optional
        The total, which has the holder's ballot: its receipt is added.
    voids : list of VoidStudy
        The study is void, by the words of all tellers, or of the one that is `trusted`: the
        ballot costs nothing.
    tallies : list of Tally or path
        Of all tellers, over a list without this ballot: it costs nothing but "alone".
    trusted : PublicKey, path or name, optional
        With voids: the one teller whose word the holder takes; then "alone" is taken back as well.
        It is named at this call, and has no default: pinned keys serve other purposes.
    mailbox : path or list of path, optional
        With voids: the folder of the study, in which no tally and no total of it may lie, nor in
        folders below it; and any other where one might.
    """
    found = named(ledger)
    given, counted = list(voids), list(tallies)
    is_free, is_alone_free = False, False
    if total is not None:
        _require_in(study, holder, total)
    elif counted:
        _require_left_out(study, holder, counted)
        is_free = True
    else:
        is_alone_free = _require_void(study, given, trusted)
        if mailbox is None:
            raise ParameterError("mailbox", None, "expected the folder of the study", _LOOK)
        folders = [mailbox] if isinstance(mailbox, str | os.PathLike) else mailbox
        for folder in dict.fromkeys(Path(one).resolve() for one in folders):
            _require_nothing_published(study, folder)
        is_free = True
    if found is None:
        return Settled(0, is_free, is_alone_free)
    book, _ = found
    waiting = entries_of_ballot(study, holder, ledger, "reserved")
    for entry in waiting:
        if is_alone_free:
            book.commit(entry.id, void=True)
        elif is_free:
            nothing = Fraction(0)
            free = replace(entry.cost, epsilon=nothing, delta=nothing, rho=nothing)
            book.commit(entry.id, cost=free)  # "alone" stays
        elif total is not None:
            book.commit(entry.id, receipt=total.receipt.to_json())
    return Settled(len(waiting), is_free, is_alone_free)


_PUBLISHED = (TALLY_SUFFIX, ".sketch")
_LOOK = "a study of which a tally or a total was published is not void"


def _require_in(study: SealedStudy, holder: str, total: Sketch) -> None:
    """Refuse what is not the total of this study, or one without this holder's ballot."""
    if not any(one.study == study.fingerprint for one in total.shared):
        raise StudyError("this is not the total of this study")
    if holder not in total.sources:
        raise StudyError(
            f"the total has no ballot of {holder!r}: it was left out. It costs nothing but alone, "
            "once, if the tallies of all tellers say so (privsketch study settle --tally)"
        )


def _require_left_out(study: SealedStudy, holder: str, tallies: list[TallySource]) -> None:
    """Refuse unless all tellers have used their keys, and none of them for this holder's ballot.

    One of them is honest and tallies once, ever: its share of this ballot is in nothing.
    """
    places = [place for place, card in enumerate(study.holders) if card.name == holder]
    if not places:
        raise StudyError(f"{holder!r} is not on the roster of this study")
    for number, one in all_tallies(study, tallies).items():
        if places[0] in one.holders:
            raise StudyError(
                f"{study.tellers[number].name!r} has tallied the ballot of {holder!r}: its cost "
                "stays; settle it by the total (privsketch study settle --total)"
            )


def _require_void(
    study: SealedStudy,
    voids: list[VoidStudy],
    trusted: PublicKey | str | os.PathLike[str] | None,
) -> bool:
    """Whether the teller that a holder names says so; an error unless it does or all tellers do."""
    said = {void.require_of(study) for void in voids}
    missing = [card.name for place, card in enumerate(study.tellers) if place not in said]
    if trusted is not None:
        key = found_key(trusted)
        if study.teller_of(key) not in said:
            raise StudyError(f"{key.name!r}, whose word you take, does not say that it is void")
        return True
    if missing:
        raise StudyError(
            f"{', '.join(map(repr, missing))} did not say that the study is void, and all but "
            "one teller may cheat: give the words of all, or name one whose word you take "
            "(privsketch study settle --trust); that you have pinned a teller is not enough"
        )
    return False


def _require_nothing_published(study: SealedStudy, folder: Path) -> None:
    """Refuse where a tally or a total of this study lies, at any depth, under whatever name."""
    for file in _plain_files(folder):
        start, what = beginning_of(file, len(SKETCH_MAGIC)), ""
        if not start and file.suffix in _PUBLISHED:
            read_file(file)  # what cannot be read may be one
        try:
            if kind_of_bytes(start) == "tally":
                one = Tally.load(file)
                what = "a tally" if one.is_signed_in(study) else ""
            elif start == SKETCH_MAGIC:
                shared = Sketch.load(file).shared
                what = "a total" if any(one.study == study.fingerprint for one in shared) else ""
        except PrivsketchError:
            continue  # whatever it is, it tells nothing
        if what:
            raise StudyError(
                f"{file}: {what} of this study, which is not void then, whoever says so; the cost "
                "stays. Settle it by the total (privsketch study settle --total)"
            )


def _plain_files(folder: Path) -> Iterator[Path]:
    """Files in a folder and below; pipes and devices are none, links to folders are not followed.

    A folder that cannot be looked into is an error, as is a link that leads nowhere.
    """
    if not folder.is_dir():
        raise AccessError(f"{folder}: no folder, so that no tally can be looked for")

    def unseen(error: OSError) -> None:
        reason = error.strerror or "cannot be read"
        raise AccessError(f"{error.filename}: {reason}, so that no tally can be looked for")

    for place, folders, names in os.walk(folder, onerror=unseen):
        folders.sort()
        for file in (Path(place, name) for name in sorted(names)):
            try:
                is_plain = stat.S_ISREG(file.stat().st_mode)
            except OSError:
                is_plain = True
            if is_plain:
                yield file
