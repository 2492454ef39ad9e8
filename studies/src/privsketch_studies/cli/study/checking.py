"""`privsketch study check`: whether files belong to a study, and who signed them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import note, require_free, say_written
from privsketch.cli.shell.signing import PASSPHRASE_FILE, opened_key
from privsketch_studies.cli.study.making import STUDY

if TYPE_CHECKING:
    from privsketch.signing.keys import Key, PublicKey
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.lists import CheckedBallots, ClosedList
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import VoidStudy

_BEGINNING = 64  # bytes that tell what a file says it is


class Checker:
    """Files of one study, looked at one after the other; what was refused of them."""

    def __init__(self, study: SealedStudy, key: Key | None) -> None:
        self.study, self.key = study, key
        self.found: list[dict[str, Any]] = []
        self.refusals: list[Exception] = []
        self.ballots: list[Path] = []  # that open, where there is a key
        self.checked: list[CheckedBallots] = []  # that are valid
        self.lists: dict[str, ClosedList] = {}  # the same, by digest

    def told(self, file: Path, kind: str, signer: PublicKey | None, words: str) -> None:
        """A file is valid."""
        from privsketch.cli.shell.facts import key_facts

        facts = None if signer is None else key_facts(signer)
        fact = {"file": str(file), "is_valid": True, "problem": None}
        self.found.append({**fact, "kind": kind, "signer": facts})
        say(f"valid       {file}, {words}")

    def refused(self, file: Path, error: Exception) -> None:
        """A file is not."""
        fact = {"file": str(file), "is_valid": False, "problem": str(error)}
        self.found.append({**fact, "kind": None, "signer": None})
        self.refusals.append(error)
        say(f"REFUSED     {error}")

    def check_study(self, file: Path, trusted: tuple[str, ...]) -> None:
        """Whether all tellers have signed it, one of whom is trusted."""
        from privsketch._base.errors import PrivsketchError
        from privsketch.signing.signature import spoken
        from privsketch.signing.trusted import found_key, pinned_keys
        from privsketch_studies.errors import StudyError

        known = {key.identity for key in [found_key(text) for text in trusted] or pinned_keys()}
        tellers = [card.key for card in self.study.tellers if card.key.identity in known]
        try:
            self.study.require_open()
            if not tellers:
                raise StudyError(f"{file}: none of its tellers is trusted here")
        except PrivsketchError as error:
            return self.refused(file, error)
        self.told(file, "study", tellers[0], f"a study: {spoken(self.study.fingerprint)}")
        return None

    def check(self, file: Path) -> None:
        """Whether a file belongs to the study, by everything that can be seen of it."""
        from privsketch._base.errors import PrivsketchError
        from privsketch_studies.sealing.ballots import Ballot
        from privsketch_studies.sealing.lists import CheckedBallots, ClosedList, published_shares
        from privsketch_studies.sealing.tally import Tally

        try:
            found = _loaded(file)
            if isinstance(found, Ballot):
                self._check_ballot(file, found)
            elif isinstance(found, ClosedList):
                self._check_list(file, found)
            elif isinstance(found, Tally):
                self._check_tally(file, found)
            elif isinstance(found, CheckedBallots):
                card = self.study.tellers[found.require_of(self.study, str(file))]
                published_shares(self.study, [*self.checked, found])  # no two things of a ballot
                self.checked.append(found)
                words = f"what {card.name} can open: {len(found.ballots)} ballots"
                self.told(file, "checked-ballots", card.key, words)
            else:
                card = self.study.tellers[found.require_of(self.study, str(file))]
                self.told(file, "void-study", card.key, f"the word of {card.name}: it is void")
        except PrivsketchError as error:
            self.refused(file, error)

    def _check_ballot(self, file: Path, ballot: Ballot) -> None:
        from privsketch_studies.errors import StudyError
        from privsketch_studies.sealing.lists import UNFIT

        card = ballot.require_of(self.study, str(file))
        if self.key is not None:
            ballot.opened(self.study, self.key, str(file))
        self.ballots.append(file)
        if ballot.digest in self._unfit():
            raise StudyError(
                f"{file}: the ballot of {card.name!r}: {UNFIT}; the list is closed without it"
            )
        words = f"a ballot of {card.name}"
        if self.lists:
            counts = any(ballot.digest in one.ballots.values() for one in self.lists.values())
            words += ", which counts" if counts else ", which is in no list and does not count"
        self.told(file, "ballot", card.key, words)

    def _unfit(self) -> frozenset[str]:
        """Ballots that do not add up, if all tellers' files are there."""
        from privsketch_studies.sealing.lists import agreed

        tellers = {one.teller for one in self.checked}
        is_known = len(tellers) == len(self.study.tellers)
        return agreed(self.study, self.checked).unfit if is_known else frozenset()

    def _check_list(self, file: Path, closed: ClosedList) -> None:
        from privsketch_studies.errors import StudyError

        signer = closed.require_of(self.study, str(file))
        if self.lists and closed.digest not in self.lists:
            raise StudyError(f"{file}: another list than the first one; there is one for all")
        self.lists[closed.digest] = closed
        names = f"a closed list of {len(closed.ballots)} ballots, by {signer.name}"
        self.told(file, "closed-list", signer, names)

    def _check_tally(self, file: Path, tally: Tally) -> None:
        from privsketch_studies.errors import StudyError
        from privsketch_studies.sealing.join import fits_checks

        card = self.study.tellers[tally.require_of(self.study, str(file))]
        is_compared = False
        for closed in self.lists.values():
            places = [
                place
                for place, holder in enumerate(self.study.holders)
                if holder.key.fingerprint in closed.ballots
            ]
            if tally.closed_list != closed.digest or list(tally.holders) != places:
                raise StudyError(f"{file}: a tally of another list than the one that is here")
            mine = [one for one in self.checked if one.teller == tally.teller]
            fits = fits_checks(self.study, tally, closed, mine)
            if fits is False:
                raise StudyError(
                    f"{file}: it is not the sum of what {card.name!r} published of the ballots "
                    "before, and signed both: this teller is wrong"
                )
            is_compared = fits is not None
        words = f"a tally of {card.name}, over {len(tally.holders)} ballots"
        self.told(file, "tally", card.key, words)
        if not is_compared:
            note(
                f"{file}: not compared with what {card.name} has checked; give the closed list and "
                "all .checked files too",
                None,
            )


@click.command()
@STUDY
@click.argument("files", nargs=-1, type=PATH)
@click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="KEY",
    help="Teller to trust: a .pub file, or the name or fingerprint of a pinned key; all pinned "
    "keys if left out.",
)
@click.option(
    "--key",
    "key_file",
    type=PATH,
    help="For a teller: the key for this study. Says which ballots it can open.",
)
@click.option("-o", "--output", type=PATH, help="With --key: file that says so, for the owner.")
@PASSPHRASE_FILE
@JSON
def check(
    study_file: Path,
    files: tuple[Path, ...],
    trusted: tuple[str, ...],
    key_file: Path | None,
    output: Path | None,
    passphrase_file: Path | None,
) -> None:
    """Check a study and files that were made in it.

    FILES are ballots, a closed list, tallies and statements of tellers. Each must be signed by
    whoever takes part in the study, and a tally must be of the closed list. A file that is not is
    refused, and the exit code is 5. With a teller's study key, say which ballots can be opened.

    \b
    privsketch study check s.study *.ballot --key a.study.key -o a.checked
    privsketch study check s.study s.closed *.ballot *.tally
    """
    from privsketch._base.errors import SignatureError
    from privsketch_studies.sealing.lists import check_ballots
    from privsketch_studies.sealing.study import SealedStudy

    if output is not None:
        require_free(output, False, "it would be replaced")
    study = SealedStudy.load(study_file)
    key = None if key_file is None else opened_key(key_file, passphrase_file)
    checker = Checker(study, key)
    checker.check_study(study_file, trusted)
    for file in sorted(files, key=lambda file: not _is_first(file)):  # others are compared with it
        checker.check(file)
    place = {str(file): number for number, file in enumerate((study_file, *files))}
    checker.found.sort(key=lambda fact: place[fact["file"]])
    if key is not None and output is not None:
        checked, _ = check_ballots(study, checker.ballots, key=key)
        checked.save(output)
        say_written(output)
        say("next        hand it to whoever closes the list, and to all other tellers")
    answer(is_valid=not checker.refusals, files=checker.found)
    if checker.refusals:
        raise SignatureError("not every file is one of this study that is trusted")


def _is_first(file: Path) -> bool:
    """Whether a file begins as closed lists do, or as what tellers have checked."""
    from privsketch._base.formats import beginning_of
    from privsketch_studies.sealing.lists import CHECKED, CLOSED

    start = beginning_of(file, _BEGINNING)
    return _says(start, CLOSED) or _says(start, CHECKED)


def _says(data: bytes, kind: str) -> bool:
    return f'"privsketch-{kind}"'.encode("ascii") in data[:_BEGINNING]


def _loaded(file: Path) -> Ballot | ClosedList | Tally | CheckedBallots | VoidStudy:
    """What a file of a study is, by its first bytes; its signature is looked at before the rest."""
    from privsketch._base.errors import FileError
    from privsketch._base.formats import read_file
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.files import kind_of_bytes
    from privsketch_studies.sealing.lists import CHECKED, CLOSED, CheckedBallots, ClosedList
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import KIND, VoidStudy

    data, what = read_file(file), str(file)
    kind = kind_of_bytes(data)
    if kind is not None:
        return Ballot(data, what) if kind == "ballot" else Tally(data, what)
    if _says(data, CLOSED):
        return ClosedList(data, what)
    if _says(data, CHECKED):
        return CheckedBallots.from_bytes(data, what)
    if _says(data, KIND):
        return VoidStudy.from_bytes(data, what)
    raise FileError(f"{what}: no ballot, list, tally or statement of a study")
