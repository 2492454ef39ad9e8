"""`privsketch study check`, and what the folder of a study has: its files and the next steps."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privsketch._base.errors import PrivsketchError
from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import note, require_available, say_written
from privsketch.cli.shell.signing import PASSPHRASE_FILE, opened_key
from privsketch_studies.cli.study.making import STUDY

if TYPE_CHECKING:
    from privsketch.signing.keys import Key, PublicKey
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.files import SealedFile
    from privsketch_studies.sealing.lists import CheckedBallots, ClosedList, Verdict
    from privsketch_studies.sealing.study import SealedStudy
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import VoidStudy

_HEAD_BYTES = 64  # at the start of a file, which state its format


class Checker:
    """Checks of the files of one study, one after the other, with their results."""

    def __init__(self, study: SealedStudy, key: Key | None) -> None:
        self.study, self.key = study, key
        self.results: list[dict[str, Any]] = []
        self.refusals: list[Exception] = []
        self.ballots: list[Path] = []  # that can be opened, if there is a key
        self.checked: list[CheckedBallots] = []  # valid ones
        self.lists: dict[str, ClosedList] = {}  # valid ones, by digest

    def accept(self, file: Path, kind: str, signer: PublicKey | None, text: str) -> None:
        """Report a valid file."""
        from privsketch.cli.shell.facts import key_facts

        facts = None if signer is None else key_facts(signer)
        fact = {"file": str(file), "is_valid": True, "problem": None}
        self.results.append({**fact, "kind": kind, "signer": facts})
        say(f"valid       {file}, {text}")

    def refuse(self, file: Path, error: Exception) -> None:
        """Report a file that is not valid."""
        fact = {"file": str(file), "is_valid": False, "problem": str(error)}
        self.results.append({**fact, "kind": None, "signer": None})
        self.refusals.append(error)
        say(f"REFUSED     {error}")

    def check_study(self, file: Path, trusted: tuple[str, ...]) -> None:
        """Check that all tellers have signed the study, and that one of them is trusted."""
        from privsketch.signing.signature import digit_groups
        from privsketch.signing.trusted import pinned_keys, resolve_key
        from privsketch_studies.errors import StudyError

        keys = [resolve_key(text) for text in trusted] or pinned_keys()
        identities = {key.identity for key in keys} | self._own_identities()
        tellers = [card.key for card in self.study.tellers if card.key.identity in identities]
        try:
            self.study.require_open()
            if not tellers:
                raise StudyError(
                    f"{file}: none of its tellers is trusted here; compare the fingerprint of one "
                    "with its holder, by phone, and pin it (privsketch key trust FILE.pub)"
                )
        except PrivsketchError as error:
            self.refuse(file, error)
        else:
            name = digit_groups(self.study.fingerprint)
            self.accept(file, "study", tellers[0], f"a study: {name}")

    def _own_identities(self) -> set[bytes]:
        """Return the identity of the teller who accepted the study here, and trusts itself."""
        from privsketch_studies.sealing.once import require_teller

        with suppress(PrivsketchError):
            if self.key is not None:
                return {self.study.tellers[require_teller(self.study, self.key)].key.identity}
        return set()

    def check(self, file: Path) -> None:
        """Check that a file belongs to the study, and compare it with the others."""
        from privsketch_studies.sealing.ballots import Ballot
        from privsketch_studies.sealing.lists import CheckedBallots, ClosedList, published_shares
        from privsketch_studies.sealing.tally import Tally

        try:
            content = _load(file)
            if isinstance(content, Ballot):
                self._check_ballot(file, content)
            elif isinstance(content, ClosedList):
                self._check_list(file, content)
            elif isinstance(content, Tally):
                self._check_tally(file, content)
            elif isinstance(content, CheckedBallots):
                card = self.study.tellers[content.require_of(self.study, str(file))]
                published_shares(self.study, [*self.checked, content])  # refuses contradictions
                self.checked.append(content)
                text = f"what {card.name} can open: {len(content.ballots)} ballots"
                self.accept(file, "checked-ballots", card.key, text)
            else:
                card = self.study.tellers[content.require_of(self.study, str(file))]
                self.accept(file, "void-study", card.key, f"{card.name} states that it is void")
        except PrivsketchError as error:
            self.refuse(file, error)

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
        text = f"a ballot of {card.name}"
        if self.lists:
            counts = any(ballot.digest in item.ballots.values() for item in self.lists.values())
            text += ", which counts" if counts else ", which is in no list and does not count"
        self.accept(file, "ballot", card.key, text)

    def _unfit(self) -> frozenset[str]:
        """Return the ballots that do not add up, once the files of all tellers are known."""
        from privsketch_studies.sealing.lists import verdict_of

        if len({file.teller for file in self.checked}) < len(self.study.tellers):
            return frozenset()
        return verdict_of(self.study, self.checked).unfit

    def _check_list(self, file: Path, closed: ClosedList) -> None:
        from privsketch_studies.errors import StudyError

        signer = closed.require_of(self.study, str(file))
        if self.lists and closed.digest not in self.lists:
            raise StudyError(f"{file}: another list than the first one; a study has one list")
        self.lists[closed.digest] = closed
        names = f"a closed list of {len(closed.ballots)} ballots, by {signer.name}"
        self.accept(file, "closed-list", signer, names)

    def _check_tally(self, file: Path, tally: Tally) -> None:
        from privsketch_studies.errors import StudyError
        from privsketch_studies.sealing.join import fits_checks

        card = self.study.tellers[tally.require_of(self.study, str(file))]
        is_compared = False
        for closed in self.lists.values():
            numbers = [
                number
                for number, holder in enumerate(self.study.holders)
                if holder.key.fingerprint in closed.ballots
            ]
            if tally.closed_list != closed.digest or list(tally.holders) != numbers:
                raise StudyError(f"{file}: a tally of another list than the closed list")
            checked = [file for file in self.checked if file.teller == tally.teller]
            fits = fits_checks(self.study, tally, closed, checked)
            if fits is False:
                raise StudyError(
                    f"{file}: the tally is not the sum of what {card.name!r} published of the "
                    "ballots before; both are signed, so this teller is wrong"
                )
            is_compared = fits is not None
        text = f"a tally of {card.name}, over {len(tally.holders)} ballots"
        self.accept(file, "tally", card.key, text)
        if not is_compared:
            note(
                f"{file}: not compared with what {card.name} has checked; name the closed list and "
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
    help="Teller to trust: a .pub file, or the name or fingerprint of a pinned key. By default all "
    "pinned keys are trusted.",
)
@click.option(
    "--key",
    "key_file",
    type=PATH,
    help="As a teller: your key for this study, to check which ballots it can open.",
)
@click.option("-o", "--output", type=PATH, help="With --key: file of the result, for others.")
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
    """Check a study and the files that belong to it.

    FILES are ballots, a closed list, tallies and statements of tellers. Each must be signed by a
    participant of the study, and a tally must be of the closed list. If a file is refused, the exit
    code is 5. With the study key of a teller, who trusts itself, the command checks which ballots
    the key can open. Check again when more ballots have come: the output may be your earlier
    result, if the new one has all of its ballots.

    \b
    privsketch study check s.study *.ballot --key a.study.key -o a.checked
    privsketch study check s.study s.closed *.ballot *.tally
    """
    from privsketch._base.errors import SignatureError
    from privsketch_studies.sealing.study import SealedStudy

    if output is not None and key_file is None:
        raise click.UsageError("-o goes with --key")
    study = SealedStudy.load(study_file)
    earlier = None if output is None else _earlier_result(output, study)
    key = None if key_file is None else opened_key(key_file, passphrase_file)
    checker = Checker(study, key)
    checker.check_study(study_file, trusted)
    # Lists come first, because other files are compared with them.
    for file in sorted(files, key=lambda file: not _is_list(file)):
        checker.check(file)
    order = {str(file): number for number, file in enumerate((study_file, *files))}
    checker.results.sort(key=lambda fact: order[fact["file"]])
    answer(is_valid=not checker.refusals, files=checker.results)
    rest = ""
    if key is not None and output is not None:
        _write_result(checker, key, output, earlier)
        rest = f"; {output} names the ballots that can be opened: send it, and ask for the others"
    if checker.refusals:
        raise SignatureError(f"not all files are trusted files of this study{rest}")


def _earlier_result(output: Path, study: SealedStudy) -> CheckedBallots | None:
    """Return an earlier result, which a later one may replace; refuse any other existing file."""
    from privsketch_studies.sealing.lists import CheckedBallots

    if output.exists():
        with suppress(PrivsketchError):
            earlier = CheckedBallots.load(output)
            earlier.require_of(study)
            return earlier
    require_available(output, None, "it would be replaced")
    return None


def _write_result(checker: Checker, key: Key, output: Path, earlier: CheckedBallots | None) -> None:
    """Write which ballots a teller can open; refuse to write nothing, or less than before."""
    from privsketch._base.errors import AccessError
    from privsketch_studies.errors import StudyError
    from privsketch_studies.sealing.lists import check_ballots

    checked, _ = check_ballots(checker.study, checker.ballots, key=key)
    if not checked.shares:
        raise StudyError(
            f"{output} was not written: none of these files is a ballot that this key can open, "
            "and a check of no ballots says nothing; check when ballots are in the mailbox"
        )
    if earlier is not None and (
        earlier.teller != checked.teller or not set(earlier.shares) <= set(checked.shares)
    ):
        raise AccessError(
            f"{output} exists, and has ballots that this check does not have; check all of them "
            "again, or name another file"
        )
    checked.save(output)
    say_written(output)
    say("next        send it to the person who closes the list, and to all other tellers")


def _is_list(file: Path) -> bool:
    """Whether a file states that it is a closed list, or what a teller has checked."""
    from privsketch._base.formats import beginning_of
    from privsketch_studies.sealing.lists import CheckedBallots, ClosedList

    start = beginning_of(file, _HEAD_BYTES)
    return _is_kind(start, ClosedList) or _is_kind(start, CheckedBallots)


def _is_kind(data: bytes, kind: type[SealedFile]) -> bool:
    """Return whether JSON states that it is a file of this kind."""
    return f'"privsketch-{kind.KIND}"'.encode("ascii") in data[:_HEAD_BYTES]


def _load(file: Path) -> Ballot | ClosedList | Tally | CheckedBallots | VoidStudy:
    """Read a file of a study, whose first bytes state its format."""
    from privsketch._base.errors import FileError
    from privsketch._base.formats import read_file
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.files import kind_of_bytes
    from privsketch_studies.sealing.lists import CheckedBallots, ClosedList
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import VoidStudy

    data, what = read_file(file), str(file)
    kind = kind_of_bytes(data)
    if kind is not None:
        return Ballot(data, what) if kind == Ballot.KIND else Tally(data, what)
    json_kinds: tuple[type[ClosedList | CheckedBallots | VoidStudy], ...]
    json_kinds = (ClosedList, CheckedBallots, VoidStudy)
    for json_kind in json_kinds:
        if _is_kind(data, json_kind):
            return json_kind(data, what)
    raise FileError(f"{what}: not a ballot, list, tally or statement of a study")


# ---------------------------------------------------------------- the folder of a study


def mailbox_facts(study: SealedStudy, folder: Path) -> dict[str, Any]:
    """Return which files of this study are in a folder, and of whom; other files are ignored."""
    from privsketch_studies.sealing.ballots import Ballot
    from privsketch_studies.sealing.lists import (
        ClosedList,
        Verdict,
        checked_files_in,
        unchecked_ballots,
        verdict_of,
    )
    from privsketch_studies.sealing.tally import Tally
    from privsketch_studies.sealing.void import VoidStudy

    def valid(kind: type[SealedFile]) -> Iterator[tuple[Any, Any]]:
        """Yield the files of a kind that belong to the study, with what `require_of` returns."""
        for path in sorted(folder.glob(f"*{kind.SUFFIX}")):
            with suppress(PrivsketchError):
                file: Any = kind.load(path)
                yield file, file.require_of(study)

    digests = {ballot.digest: card.name for ballot, card in valid(Ballot)}
    checked = checked_files_in(study, folder)
    digests_by_teller = {
        card.name: {
            digest for file in checked if file.require_of(study) == n for digest in file.shares
        }
        for n, card in enumerate(study.tellers)
    }
    try:
        verdict = verdict_of(study, checked)
    except PrivsketchError:  # not all tellers have checked, or one contradicts itself
        verdict = Verdict(frozenset(), frozenset(), {})
    good = {digests[digest] for digest in verdict.good if digest in digests}
    lists = [closed for closed, _ in valid(ClosedList)]
    listed = {digest for closed in lists for digest in closed.ballots.values()}
    return {
        "ballots": sorted(set(digests.values())),
        "checked": [
            name
            for name, checked_digests in digests_by_teller.items()
            if digests and set(digests) <= checked_digests
        ],
        "unfit": sorted({digests[digest] for digest in verdict.unfit if digest in digests}),
        "unopened": unopened_facts(verdict, digests, but=good),
        "unchecked": [
            {"holder": ballot.holder, "tellers": list(ballot.tellers)}
            for ballot in unchecked_ballots(study, [folder], checked)
        ],
        "not_listed": sorted(
            set(digests.values()) - {digests[digest] for digest in listed if digest in digests}
            if lists
            else ()
        ),
        "is_closed": bool(lists),
        "tallies": sorted({study.tellers[number].name for _, number in valid(Tally)}),
        "voids": sorted({study.tellers[number].name for _, number in valid(VoidStudy)}),
    }


def unopened_facts(
    verdict: Verdict, holders: dict[str, str], but: Container[str]
) -> list[dict[str, Any]]:
    """Return holders whose ballots not all tellers can open, without those in `but`.

    A holder's second ballot does not matter if the first one is good.
    """
    return [
        {"holder": holders[digest], "tellers": list(tellers)}
        for digest, tellers in verdict.unopened.items()
        if digest in holders and holders[digest] not in but
    ]


def next_steps(study: SealedStudy, files: dict[str, Any], me: PublicKey | None) -> list[str]:
    """Return the next steps of one participant, or of all."""
    holders = {card.key.identity: card.name for card in study.holders}
    tellers = {card.key.identity: card.name for card in study.tellers}
    steps: list[tuple[bytes | None, str]] = []
    if files["voids"]:
        steps += [
            (identity, f"{name}: the study is void; state it too (privsketch study void)")
            for identity, name in tellers.items()
            if name not in (*files["voids"], *files["tallies"])
        ]
        steps += _last_steps(study)
    elif not study.is_open:
        steps += [
            (identity, f"{name}: accept the study (privsketch study accept)")
            for identity, name in tellers.items()
            if name not in study.accepted
        ]
    elif not files["is_closed"]:
        steps += [
            (identity, f"{name}: seal your records (privsketch study seal)")
            for identity, name in holders.items()
            if name not in files["ballots"]
        ]
        owner = None if study.owner is None else study.owner.identity
        closer = "a teller" if study.owner is None else study.owner.name
        if len(files["ballots"]) >= study.min_holders:
            steps += [
                (
                    identity,
                    f"{name}: check the ballots when all are cast (privsketch study check --key)",
                )
                for identity, name in tellers.items()
                if name not in files["checked"]
            ]
            text = "close the list when all are cast and checked (privsketch study close)"
            steps.append((owner, f"{closer}: {text}"))
        if me is not None:
            steps += _waiting_steps(study, files, closer)
    elif len(files["tallies"]) < len(study.tellers):
        steps += [
            (identity, f"{name}: tally, with your study key (privsketch study tally)")
            for identity, name in tellers.items()
            if name not in files["tallies"]
        ]
    else:
        steps.append((None, "anyone: join the tallies (privsketch study join)"))
        steps += _last_steps(study)
    if me is not None:
        text = (
            "your ballot is not on the closed list and counts nowhere: when all tellers have "
            "tallied, end its entry in your ledger (privsketch study settle --tally)"
        )
        steps += [
            (identity, f"{name}: {text}")
            for identity, name in holders.items()
            if name in files["not_listed"]
        ]
    return [text for identity, text in steps if me is None or identity in (None, me.identity)]


def _waiting_steps(
    study: SealedStudy, files: dict[str, Any], closer: str
) -> list[tuple[bytes | None, str]]:
    """Return what holders wait for who have cast a ballot."""
    unchecked = {ballot["holder"]: ballot["tellers"] for ballot in files["unchecked"]}
    steps: list[tuple[bytes | None, str]] = []
    for card in study.holders:
        if card.name in unchecked:
            text = (
                f"wait for {' and '.join(unchecked[card.name])} to check your ballot (privsketch "
                "study check --key); without that it does not count"
            )
        elif card.name in files["ballots"]:
            text = f"wait for {closer} to close the list"
        else:
            continue
        steps.append((card.key.identity, f"{card.name}: {text}"))
    return steps


def _last_steps(study: SealedStudy) -> list[tuple[bytes | None, str]]:
    """Return the steps that remain when a study has ended."""
    from privsketch_studies.sealing.once import is_destroyed

    steps: list[tuple[bytes | None, str]] = []
    for card in study.tellers:
        if card.study_key is not None and not is_destroyed(card.study_key.fingerprint):
            text = "destroy your study key and the ballots (privsketch study destroy)"
            steps.append((card.key.identity, f"{card.name}: {text}"))
    for card in study.holders:
        text = "if you keep a ledger, end the entry of your ballot (privsketch study settle)"
        steps.append((card.key.identity, f"{card.name}: {text}"))
    return steps
