"""The mailbox of a sealed study: files that all members may see, each checked before it is stored.

The collector cannot read ballots. It checks what everyone can check: signatures, the roster, the
order of files, and that each member has one file of each kind. Tellers and holders do not rely on
these checks and repeat all of them; the mailbox only prevents mistakes.

The state of a study follows from its files: enrolling (cards), frozen (a study file that some
tellers have not accepted), open (ballots), closed (a closed list), tallied (a tally of every
teller), or void.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from privsketch._base.errors import FileError, SignatureError
from privsketch._base.formats import MAX_JSON_BYTES, fingerprint, parse_json
from privsketch.noise.mechanism import REPLACED
from privsketch.signing.documents import alike
from privsketch.signing.encryption import OVERHEAD
from privsketch.signing.signature import Signature, key_fingerprint
from privsketch_studies.collector.kinds import ACCEPTED_KINDS, ROLES_BY_KIND, kind_of, phrase_of
from privsketch_studies.collector.members import Member
from privsketch_studies.collector.studies import Study
from privsketch_studies.errors import CollectorError, StudyError
from privsketch_studies.sealing.ballots import Ballot, shape_of
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import signer_of_json
from privsketch_studies.sealing.lists import (
    UNFIT,
    CheckedBallots,
    ClosedList,
    published_shares,
    verdict_of,
)
from privsketch_studies.sealing.splitting import N_CHECKS, WORD_BYTES, content_bytes
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally

DECISIVE = ("study", "accept", "checked", "closed")  # whose content determines the state of a study
_SMALL_BYTES = 64 * 1024  # upper bound on bytes of a card or a statement, and of a header
_INDENT_FACTOR = 2  # upper bound on how much larger JSON is within other JSON
_HOLDER_BYTES = 160  # upper bound on bytes of a holder in a list


@dataclass(frozen=True)
class File:
    """File that counts; it has its `content` only if that determines the state of the study."""

    digest: str
    kind: str
    member: str
    whose: str
    signer: str | None
    n_bytes: int
    content: bytes | None


@dataclass(frozen=True)
class CheckedFile:
    """Facts about a file that may be stored.

    `claims` are keys of which a study has one each. `signer` is the fingerprint of a long-lived
    key. `replaces` has the digests of files that this one supersedes.
    """

    kind: str
    whose: str
    signer: str | None
    claims: tuple[str, ...]
    roles: tuple[str, ...]
    replaces: tuple[str, ...] = ()


def sealed_study(files: Sequence[File]) -> SealedStudy | None:
    """Return the study in a mailbox, with the signatures of its tellers; None if there is none."""
    contents = _content(files, "study")
    return _study_of(contents[0], tuple(_content(files, "accept"))) if contents else None


def closed_list(files: Sequence[File]) -> ClosedList | None:
    """Return the closed list in a mailbox; None if there is none."""
    contents = _content(files, "closed")
    return ClosedList(contents[0]) if contents else None


def state_of(files: Sequence[File]) -> str:
    """Return the state of a sealed study."""
    study = sealed_study(files)
    if study is None:
        return "enrolling"
    kinds = [file.kind for file in files]
    if "void" in kinds:
        return "void"
    if "closed" in kinds:
        return "tallied" if kinds.count("tally") == len(study.tellers) else "closed"
    return "open" if study.is_open else "frozen"


def unchecked_ballots(files: Sequence[File]) -> dict[str, tuple[str, ...]]:
    """Return the ballots that not all tellers have checked, by digest, with these members."""
    sealed = sealed_study(files)
    if sealed is None:
        return {}
    members = {file.signer: file.member for file in files if file.kind == "card"}
    stated = {file.signer: _checked_of(file.content) for file in files if file.kind == "checked"}
    unchecked = {}
    for ballot in files:
        if ballot.kind == "ballot":
            keys = [card.key.fingerprint for card in sealed.tellers]
            missing = [key for key in keys if ballot.digest not in stated.get(key, ())]
            if missing:
                names = (members.get(key, key[:16]) for key in missing)
                unchecked[ballot.digest] = tuple(dict.fromkeys(names))
    return unchecked


def left_out_ballots(files: Sequence[File]) -> dict[str, str]:
    """Return why ballots are not on the closed list, by digest; none while there is no list."""
    closed, sealed = closed_list(files), sealed_study(files)
    if closed is None or sealed is None:
        return {}
    unchecked, listed = unchecked_ballots(files), set(closed.ballots.values())
    unfit: frozenset[str] = frozenset()
    with suppress(StudyError):  # a list that tellers made elsewhere
        checked = [CheckedBallots(content) for content in _content(files, "checked")]
        unfit = verdict_of(sealed, checked).unfit
    reasons = {}
    for ballot in files:
        if ballot.kind != "ballot" or ballot.digest in listed:
            continue
        reason = "the list was closed without it"
        if ballot.digest in unchecked:
            names = " and ".join(unchecked[ballot.digest])
            reason += f", because {names} did not state that it can be opened"
        elif ballot.digest in unfit:
            reason += f": {UNFIT}"
        reasons[ballot.digest] = reason
    return reasons


def require_state(study: Study, files: Sequence[File], kind: str) -> None:
    """Refuse a file that does not belong to the current state of the study."""
    state = state_of(files)
    if kind not in ACCEPTED_KINDS[state]:
        raise CollectorError(
            f"the study is {state} and does not take {phrase_of(kind)} now", "closed"
        )
    sealed = sealed_study(files)
    if kind == "ballot" and sealed is not None and sealed.is_late():
        raise CollectorError("the last day of ballots is over", "closed")
    if kind == "void" and any(file.kind == "tally" for file in files):
        raise CollectorError("a tally was published: the study can no longer be void", "closed")


def n_content_bytes(sealed: SealedStudy) -> dict[str, int]:
    """Return the bytes between header and end of the binary files of a study, by their kind."""
    last = len(sealed.tellers) - 1
    shares = [content_bytes(shape_of(sealed), is_last=n == last) for n in range(last + 1)]
    ballot = sum(OVERHEAD + share for share in shares)
    return {"ballot": ballot, "tally": WORD_BYTES * sealed.n_words}


def max_bytes(study: Study, files: Sequence[File], roles: Collection[str]) -> int:
    """Return an upper bound on the bytes of a file that the study takes now."""
    sealed = sealed_study(files)
    if sealed is None:
        if "owner" not in roles:
            return _SMALL_BYTES
        # A study file has the design and the cards, indented.
        cards = sum(file.n_bytes for file in files if file.kind == "card")
        return min(
            _INDENT_FACTOR * (len(study.design_bytes) + cards) + _SMALL_BYTES, MAX_JSON_BYTES
        )
    state = state_of(files)
    if state == "closed":
        return n_content_bytes(sealed)["tally"] + _HOLDER_BYTES * len(sealed.holders) + _SMALL_BYTES
    if state != "open":
        return _SMALL_BYTES
    ballot = n_content_bytes(sealed)["ballot"]
    checks = 2 * N_CHECKS * WORD_BYTES * sealed.n_levels  # in hex digits
    return max(ballot, (_HOLDER_BYTES + checks) * len(sealed.holders)) + _SMALL_BYTES


def check_file(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    """Check a file in full: its format, signature, sender, and place in the study."""
    kind = kind_of(data)
    member.require_role(study.name, *ROLES_BY_KIND[kind])
    require_state(study, files, kind)
    checked = _CHECKS[kind](study, files, member, data)
    _require_own(member, files, checked)
    return checked


def _check_card(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    card = Card.from_bytes(data)
    if card.design != study.design.fingerprint:
        raise StudyError("card: it is for another design")
    role = "site" if card.role == "holder" else "teller"
    member.require_role(study.name, role)
    signer = card.key.fingerprint
    # A study cannot have two participants whose names read alike.
    other_cards = [file for file in files if file.kind == "card" and file.signer != signer]
    if alike(card.name) in {alike(file.whose) for file in other_cards}:
        raise CollectorError("there is a card with a name that reads alike", "conflict")
    claims = (f"card:{role}:{signer}", f"card:{role}:member:{member.name}")
    return CheckedFile("card", card.name, signer, claims, (role,))


def _check_study(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    # The fingerprint is compared first: reading a foreign design may take much memory.
    if fingerprint(parse_json(data, "study").get("design")) != study.design.fingerprint:
        raise StudyError("study: it has another design")
    sealed = SealedStudy.from_bytes(data)
    cards = {file.digest for file in files if file.kind == "card"}
    if not {card.digest for card in (*sealed.holders, *sealed.tellers)} <= cards:
        raise StudyError("study: it has cards that are not in this mailbox")
    return CheckedFile("study", sealed.fingerprint, None, ("study",), ("owner",))


def _check_accept(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    signature, sealed = Signature.from_bytes(data), _required(files)
    # On a copy: the study in memory is shared by other requests.
    SealedStudy.from_bytes(sealed.to_bytes()).add_signature(signature)
    signer = signature.fingerprint
    return CheckedFile("accept", signature.name, signer, (f"accept:{signer}",), ("teller",))


def _check_ballot(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    ballot = Ballot(data)
    card = ballot.require_of(_required(files))
    if ballot.sampler == REPLACED:
        raise StudyError("ballot: its noise was replaced for a test")
    claims = (f"ballot:{ballot.holder}", f"ballot:member:{member.name}")
    return CheckedFile("ballot", card.name, ballot.holder, claims, ("site",))


def _check_checked(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    checked, sealed = CheckedBallots(data), _required(files)
    card = sealed.tellers[checked.require_of(sealed)]
    signer = card.key.fingerprint
    if not checked.shares:
        raise StudyError(
            "checked ballots: it has no ballot, and says nothing; check when ballots are in the "
            "mailbox"
        )
    # A teller checks again when more ballots have come. A new file must repeat the earlier one:
    # files that are set aside are hidden, and could be the proof that this teller is wrong.
    earlier = [file for file in files if (file.kind, file.signer) == ("checked", signer)]
    before = [CheckedBallots(content) for content in _content(earlier, "checked")]
    published_shares(sealed, [*before, checked])
    if any(not set(file.shares) <= set(checked.shares) for file in before):
        raise StudyError(
            "checked ballots: ballots of your earlier file are missing; upload a file with all of "
            "them, and without later ballots that have the same secret as one of them"
        )
    return _of_teller("checked", card, replaces=tuple(file.digest for file in earlier))


def _check_closed(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    closed, sealed = ClosedList(data), _required(files)
    closed.require_of(sealed)
    digests = set(closed.ballots.values())
    if not digests <= {file.digest for file in files if file.kind == "ballot"}:
        raise StudyError("closed list: it names ballots that are not in this mailbox")
    # Tellers would refuse such a list, and a study cannot have a second one.
    checked = [CheckedBallots(content) for content in _content(files, "checked")]
    if not digests <= verdict_of(sealed, checked).good:
        raise StudyError(
            "closed list: it names ballots that a teller cannot open, or that do not add up"
        )
    signer = key_fingerprint(signer_of_json(data, ClosedList.KIND, "closed list"))
    names = {card.key.fingerprint: card.name for card in sealed.tellers}
    closer = names[signer] if sealed.owner is None else sealed.owner.name
    return CheckedFile("closed", closer, signer, ("closed",), ("owner", "teller"))


def _check_tally(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    tally, sealed, closed = Tally(data), _required(files), closed_list(files)
    card = sealed.tellers[tally.require_of(sealed)]
    if closed is None or tally.closed_list != closed.digest:
        raise StudyError("tally: it is of another list than the closed list of this study")
    if tally.sampler == REPLACED:
        raise StudyError("tally: its noise was replaced for a test")
    order = [holder.key.fingerprint for holder in sealed.holders]
    if [order[index] for index in tally.holders] != list(closed.ballots):
        raise StudyError("tally: it is of other ballots than those of the list")
    return _of_teller("tally", card)


def _check_void(study: Study, files: Sequence[File], member: Member, data: bytes) -> CheckedFile:
    from privsketch_studies.sealing.void import VoidStudy

    sealed = _required(files)
    return _of_teller("void", sealed.tellers[VoidStudy(data).require_of(sealed)])


def _of_teller(kind: str, card: Card, replaces: tuple[str, ...] = ()) -> CheckedFile:
    """Return the facts of a file of which each teller has one."""
    signer = card.key.fingerprint
    return CheckedFile(kind, card.name, signer, (f"{kind}:{signer}",), ("teller",), replaces)


_CHECKS = {
    "card": _check_card,
    "study": _check_study,
    "accept": _check_accept,
    "ballot": _check_ballot,
    "checked": _check_checked,
    "closed": _check_closed,
    "tally": _check_tally,
    "void": _check_void,
}


def _require_own(member: Member, files: Sequence[File], checked: CheckedFile) -> None:
    """Refuse a file that another member has signed, who must upload it."""
    if checked.signer is None:
        return
    if member.key is not None:
        own_keys = {member.key.fingerprint}
    else:
        cards = [file for file in files if (file.kind, file.member) == ("card", member.name)]
        own_keys = {card.signer for card in cards if card.signer is not None}
    if own_keys and checked.signer not in own_keys:
        raise SignatureError(f"{checked.kind}: signed by another key than the one known as yours")


def _required(files: Sequence[File]) -> SealedStudy:
    study = sealed_study(files)
    if study is None:
        raise FileError("study: the study file has not been uploaded yet")
    return study


def _content(files: Sequence[File], kind: str) -> list[bytes]:
    return [file.content for file in files if file.kind == kind and file.content is not None]


@lru_cache(maxsize=64)
def _checked_of(data: bytes | None) -> frozenset[str]:
    """Return the digests of the ballots that a teller has stated it can open."""
    return frozenset() if data is None else frozenset(CheckedBallots(data).shares)


@lru_cache(maxsize=16)
def _study_of(data: bytes, accepted: tuple[bytes, ...]) -> SealedStudy:
    signatures = [Signature.from_bytes(signature) for signature in accepted]
    return SealedStudy.from_bytes(data, signatures=signatures)
