"""The mailbox of a sealed study: files that everybody may see, each checked before it is kept.

The collector sees nothing in a ballot. It looks at what anybody can: signatures, who is on the
roster, whose turn it is, one of each kind for everyone. Tellers and holders rely on none of that
and check everything themselves; a mailbox that checks saves them from mix-ups.

How far a study is follows from the files that are there: enrolling (cards), frozen (a study file
that some tellers have not accepted), open (ballots), closed (a closed list), tallied (a tally of
every teller), or void.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from privsketch._base.errors import FileError, SignatureError
from privsketch._base.formats import MAX_JSON_BYTES, fingerprint, parse_json
from privsketch.noise.mechanism import REPLACED
from privsketch.signing.documents import alike
from privsketch.signing.encryption import OVERHEAD
from privsketch.signing.signature import Signature, key_fingerprint
from privsketch_studies.collector.members import Member
from privsketch_studies.collector.studies import Study
from privsketch_studies.errors import CollectorError, StudyError
from privsketch_studies.sealing.ballots import Ballot, shape_of
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import kind_of_bytes, signer_of_json
from privsketch_studies.sealing.lists import (
    CHECKED,
    CLOSED,
    CheckedBallots,
    ClosedList,
    agreed,
    published_shares,
)
from privsketch_studies.sealing.splitting import N_CHECKS, WORD_BYTES, content_bytes
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally

# What files are called here, by what they call themselves.
_KINDS = {
    "card": "card",
    "study": "study",
    "signature": "accept",
    CHECKED: "checked",
    CLOSED: "closed",
    "void-study": "void",  # sealing/void, which is slow to import and rarely needed
}
KINDS = (*_KINDS.values(), "ballot", "tally")
DECISIVE = ("study", "accept", "checked", "closed")  # whose bytes say how far a study is
_FORMAT = re.compile(rb'\{\n  "format": "privsketch-([a-z-]{1,40})",\n', re.ASCII)
_TURNS = {
    "enrolling": ("card", "study"),
    "frozen": ("accept", "void"),
    "open": ("ballot", "checked", "closed", "void"),
    "closed": ("tally", "void"),
    "tallied": (),
    "void": ("void",),
}
_ROLES = {
    "card": ("site", "teller"),
    "study": ("owner",),
    "accept": ("teller",),
    "ballot": ("site",),
    "checked": ("teller",),
    "closed": ("owner", "teller"),
    "tally": ("teller",),
    "void": ("teller",),
}
_SMALL = 64 * 1024  # bytes of a card or a statement, and of what stands around words, from above
_INDENTED = 2  # how much larger JSON is within other JSON, from above
_LINE = 160  # bytes of a holder in a list, from above


@dataclass(frozen=True)
class Kept:
    """A file that counts; `content` only where it decides how far a study is."""

    digest: str
    kind: str
    member: str
    whose: str
    signer: str | None
    n_bytes: int
    content: bytes | None


@dataclass(frozen=True)
class Checked:
    """What was found of bytes that may be kept: whose they are, and of what there is one only.

    `signer` is the fingerprint of a long-lived key, `replaces` has digests of what they supersede.
    """

    kind: str
    whose: str
    signer: str | None
    claims: tuple[str, ...]
    roles: tuple[str, ...]
    replaces: tuple[str, ...] = ()


def sealed_study(kept: Sequence[Kept]) -> SealedStudy | None:
    """The study file that lies in a mailbox, with the tellers' signatures; None before that."""
    file = _content(kept, "study")
    if not file:
        return None
    return _study_of(file[0], tuple(_content(kept, "accept")))


def closed_list(kept: Sequence[Kept]) -> ClosedList | None:
    """The closed list that lies in a mailbox."""
    file = _content(kept, "closed")
    return ClosedList(file[0]) if file else None


def state_of(kept: Sequence[Kept]) -> str:
    """How far a sealed study is."""
    study = sealed_study(kept)
    if study is None:
        return "enrolling"
    there = [one.kind for one in kept]
    if "void" in there:
        return "void"
    if "closed" in there:
        return "tallied" if there.count("tally") == len(study.tellers) else "closed"
    return "open" if study.is_open else "frozen"


def require_state(study: Study, kept: Sequence[Kept], kind: str) -> None:
    """Refuse a file whose time is over, or has not come."""
    state = state_of(kept)
    if kind not in _TURNS[state]:
        raise CollectorError(f"the study is {state}: no {kind} is taken now", "closed")
    sealed = sealed_study(kept)
    if kind == "ballot" and sealed is not None and sealed.is_late():
        raise CollectorError("the last day of ballots is over", "closed")
    if kind == "void" and any(one.kind == "tally" for one in kept):
        raise CollectorError("a tally was published: the study is not void any more", "closed")


def takes(state: str, roles: Collection[str]) -> bool:
    """Whether a study in this state takes any file of somebody with these roles."""
    return any(set(_ROLES[kind]) & set(roles) for kind in _TURNS[state])


def max_bytes(study: Study, kept: Sequence[Kept], roles: Collection[str]) -> int:
    """How large a file can be whose turn it is."""
    sealed = sealed_study(kept)
    if sealed is None:
        if "owner" not in roles:
            return _SMALL
        # A study file is the design and the cards, further to the right.
        cards = sum(one.n_bytes for one in kept if one.kind == "card")
        return min(_INDENTED * (len(study.design_bytes) + cards) + _SMALL, MAX_JSON_BYTES)
    state = state_of(kept)
    if state == "closed":
        return WORD_BYTES * sealed.n_words + _LINE * len(sealed.holders) + _SMALL
    if state != "open":
        return _SMALL
    places = range(len(sealed.tellers))
    shares = [content_bytes(shape_of(sealed), is_last=n == places[-1]) for n in places]
    ballot = sum(OVERHEAD + share for share in shares)
    checks = 2 * N_CHECKS * WORD_BYTES * sealed.n_levels  # in hex digits
    return max(ballot, (_LINE + checks) * len(sealed.holders)) + _SMALL


def kind_of(data: bytes) -> str:
    """What a file says to be; an error for anything that no mailbox takes."""
    kind = kind_of_bytes(data)
    if kind is None:
        found = _FORMAT.match(data)
        kind = None if found is None else _KINDS.get(found.group(1).decode("ascii"))
    if kind is None:
        raise CollectorError("not a file of a sealed study", "kind")
    return kind


def check_file(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    """Check a file by everything that can be seen of it."""
    kind = kind_of(data)
    member.require_role(study.name, *_ROLES[kind])
    require_state(study, kept, kind)
    checked = _CHECKS[kind](study, kept, member, data)
    _require_own(member, kept, checked)
    return checked


def _check_card(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    card = Card.from_bytes(data)
    if card.design != study.design.fingerprint:
        raise StudyError("card: for another design than this study's")
    role = "site" if card.role == "holder" else "teller"
    member.require_role(study.name, role)
    signer = card.key.fingerprint
    # No study could be made of two people who read alike.
    others = [one for one in kept if one.kind == "card" and one.signer != signer]
    if alike(card.name) in {alike(one.whose) for one in others}:
        raise CollectorError("there is a card of somebody whose name reads alike", "conflict")
    own = (f"card:{role}:{signer}", f"card:{role}:member:{member.name}")
    return Checked("card", card.name, signer, own, (role,))


def _check_study(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    # Before it is read in earnest: what a design asks for may be large.
    if fingerprint(parse_json(data, "study").get("design")) != study.design.fingerprint:
        raise StudyError("study: of another design than this one's")
    sealed = SealedStudy.from_bytes(data)
    there = {one.digest for one in kept if one.kind == "card"}
    cards = (hashlib.sha256(card.to_bytes()) for card in (*sealed.holders, *sealed.tellers))
    if not {one.hexdigest() for one in cards} <= there:
        raise StudyError("study: it has cards that are not in this mailbox")
    return Checked("study", sealed.fingerprint, None, ("study",), ("owner",))


def _check_accept(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    signature, sealed = Signature.from_bytes(data), _required(kept)
    # On a study of its own: the one that is kept in memory serves others.
    SealedStudy.from_bytes(sealed.to_bytes()).add_signature(signature)
    signer = signature.fingerprint
    return Checked("accept", signature.name, signer, (f"accept:{signer}",), ("teller",))


def _check_ballot(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    ballot = Ballot(data)
    card = ballot.require_of(_required(kept))
    if ballot.sampler == REPLACED:
        raise StudyError("ballot: its noise was replaced for a test")
    own = (f"ballot:{ballot.holder}", f"ballot:member:{member.name}")
    return Checked("ballot", card.name, ballot.holder, own, ("site",))


def _check_checked(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    found, sealed = CheckedBallots.from_bytes(data), _required(kept)
    card = sealed.tellers[found.require_of(sealed)]
    signer = card.key.fingerprint
    # Ballots come in after a teller has looked. What it has said of others stays: a file that is
    # set aside is seen by nobody, and would be the proof that this teller is wrong.
    earlier = [one for one in kept if (one.kind, one.signer) == ("checked", signer)]
    before = [CheckedBallots(one) for one in _content(earlier, "checked")]
    published_shares(sealed, [*before, found])
    if any(not set(one.shares) <= set(found.shares) for one in before):
        raise StudyError(
            "checked ballots: it lacks ballots that you have said you can open; hand in a file "
            "with all of them, without any that came later and has the same secret as one of them"
        )
    replaced = tuple(one.digest for one in earlier)
    return Checked("checked", card.name, signer, (f"checked:{signer}",), ("teller",), replaced)


def _check_closed(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    found, sealed = ClosedList(data), _required(kept)
    found.require_of(sealed)
    there = {one.digest for one in kept if one.kind == "ballot"}
    if not set(found.ballots.values()) <= there:
        raise StudyError("closed list: it names ballots that are not in this mailbox")
    # Tellers would refuse it, and there is one list: afterwards it is too late for another.
    checked = [CheckedBallots(one) for one in _content(kept, "checked")]
    if not set(found.ballots.values()) <= agreed(sealed, checked).good:
        raise StudyError(
            "closed list: it names ballots that a teller cannot open, or that do not add up"
        )
    signer = key_fingerprint(signer_of_json(data, CLOSED, "closed list"))
    people = [*sealed.tellers] if sealed.owner is None else []
    names = {card.key.fingerprint: card.name for card in people}
    whose = sealed.owner.name if sealed.owner is not None else names[signer]
    return Checked("closed", whose, signer, ("closed",), ("owner", "teller"))


def _check_tally(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    found, sealed, chosen = Tally(data), _required(kept), closed_list(kept)
    card = sealed.tellers[found.require_of(sealed)]
    if chosen is None or found.closed_list != chosen.digest:
        raise StudyError("tally: of another list than the one that is closed here")
    if found.sampler == REPLACED:
        raise StudyError("tally: its noise was replaced for a test")
    order = [one.key.fingerprint for one in sealed.holders]
    if [order[place] for place in found.holders] != list(chosen.ballots):
        raise StudyError("tally: of other ballots than the list has")
    signer = card.key.fingerprint
    return Checked("tally", card.name, signer, (f"tally:{signer}",), ("teller",))


def _check_void(study: Study, kept: Sequence[Kept], member: Member, data: bytes) -> Checked:
    from privsketch_studies.sealing.void import VoidStudy

    found, sealed = VoidStudy.from_bytes(data), _required(kept)
    card = sealed.tellers[found.require_of(sealed)]
    signer = card.key.fingerprint
    return Checked("void", card.name, signer, (f"void:{signer}",), ("teller",))


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


def _require_own(member: Member, kept: Sequence[Kept], checked: Checked) -> None:
    """Refuse a file that somebody else has signed: it is for that one to hand in."""
    if checked.signer is None:
        return
    if member.key is not None:
        known = {member.key.fingerprint}
    else:
        own = [one for one in kept if (one.kind, one.member) == ("card", member.name)]
        known = {one.signer for one in own if one.signer is not None}
    if known and checked.signer not in known:
        raise SignatureError(f"{checked.kind}: signed by another key than yours, as known here")


def _required(kept: Sequence[Kept]) -> SealedStudy:
    found = sealed_study(kept)
    if found is None:
        raise FileError("study: there is none yet")
    return found


def _content(kept: Sequence[Kept], kind: str) -> list[bytes]:
    return [one.content for one in kept if one.kind == kind and one.content is not None]


@lru_cache(maxsize=16)
def _study_of(data: bytes, accepted: tuple[bytes, ...]) -> SealedStudy:
    return SealedStudy.from_bytes(data, signatures=[Signature.from_bytes(one) for one in accepted])
