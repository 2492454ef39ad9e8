"""`SealedStudy`: a design with its participants, frozen under one fingerprint.

What is in the file is fixed for good: whoever changes a byte has another study. Tellers sign the
bytes as they lie, each of them one study for a study key, ever; a study that all have signed is
open for ballots. Whatever follows names the study by its digest.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from privsketch._base.errors import (
    FileError,
    ParameterError,
    PrivsketchError,
    SignatureError,
    require_one_of,
)
from privsketch._base.formats import MAX_JSON_BYTES, reading
from privsketch.design.cautions import warn_of
from privsketch.design.recipe import Design
from privsketch.facts.budget import number_text
from privsketch.noise.sharing.plan import Sharing, plan_sharing
from privsketch.noise.sums import SHARING_KINDS
from privsketch.signing.documents import alike, read_small, written
from privsketch.signing.keys import Key, PublicKey, signature_within_rules
from privsketch.signing.signature import Signature, signed_message, spoken
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import SealedFile, digits, read_json
from privsketch_studies.sealing.once import keep_once, kept, require_born, teller_slot
from privsketch_studies.sealing.splitting import N_CHECKS, WORD_BYTES, Words, check_weights

KIND = "study"
MAX_TELLERS, MAX_HOLDERS = 16, 100_000
NAME_DIGITS = 32
MAX_SHARE_BYTES = MAX_JSON_BYTES  # of the largest share; files may be a third larger
_FIELDS = (
    "name",
    "design",
    "sharing",
    "last_day",
    "owner",
    "tellers",
    "holders",
)


class SealedStudy(SealedFile):
    """A study in which only the total over all holders shows.

    Holders cast ballots (`seal`), tellers add up what they cannot read (`tally`), and their tallies
    join to one sketch (`join`). The file is public; tellers sign it before anybody casts a ballot.

    Parameters
    ----------
    design : Design
        The recipe that all holders share.
    cards : list of Card or path
        Of all holders and of two or more tellers, for this design. Order does not matter.
    noise : {"holders", "tellers"}, optional
        Who adds noise. Holders share one noise among them, which needs delta > 0; or each teller
        adds a whole one. Holders if delta > 0, if left out.
    min_holders : int, optional
        Fewer ballots than that are not tallied; two thirds of the holders if left out.
    colluding : int, optional
        Holders who may pool what they know with cheating tellers; a third if left out. Tellers
        that are holders count.
    last_day : date or text like "2026-12-31", optional
        Until when ballots are cast, UTC; tellers do not tally before it is over.
    owner : PublicKey, optional
        Who closes the list of ballots; every teller may if left out.

    Attributes
    ----------
    fingerprint : str
        32 hex digits that holders and tellers compare by phone.
    holders, tellers : tuple of Card
    alone : float
        The epsilon of a holder's records if all tellers, or all other holders, join forces.
    accepted : tuple of str
        Names of the tellers that have signed it.

    Examples
    --------
    >>> import privsketch as ps
    >>> import privsketch_studies as studies
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=0.1, delta=1e-6), random_state=0)
    >>> holders = [ps.Key.generate(f"site {i}") for i in range(5)]
    >>> cards = [studies.Card.holder(design, key=key, accept_alone=0.25) for key in holders]
    >>> for name in ("A", "B"):
    ...     card, study_key = studies.Card.teller(design, key=ps.Key.generate(name))
    ...     cards.append(card)
    >>> study = studies.SealedStudy(
    ...     design, cards=cards, noise="holders", min_holders=4, colluding=1)
    >>> len(study.holders), len(study.tellers), round(study.alone, 2), study.accepted
    (5, 2, 0.21, ())
    """

    LABEL: ClassVar[str] = "study"

    def __init__(
        self,
        design: Design,
        *,
        cards: Iterable[Card | str | os.PathLike[str]],
        noise: str | None = None,
        min_holders: int | None = None,
        colluding: int | None = None,
        last_day: date | str | None = None,
        owner: PublicKey | None = None,
    ) -> None:
        if not isinstance(design, Design):
            raise ParameterError(f"design: expected a Design, got {type(design).__name__}")
        given = [card if isinstance(card, Card) else Card.load(card) for card in cards]
        holders = sorted((c for c in given if c.role == "holder"), key=_order)
        tellers = sorted((c for c in given if c.role == "teller"), key=_order)
        _require_roster(design, holders, tellers)
        by = design.sharing
        if noise is not None:
            by = require_one_of("noise", noise, SHARING_KINDS)
        if design.sharing not in (None, by):
            raise ParameterError(
                "noise", noise, f"the design is planned for noise by {design.sharing}"
            )
        sharing = plan_sharing(
            design.sum_noise,
            n_holders=len(holders),
            by=by,
            colluding=colluding,
            min_holders=min_holders,
            n_tellers=len(tellers),
        )
        day = None if last_day is None else _as_day(last_day)
        name = secrets.token_hex(NAME_DIGITS // 2)
        self._fill(design, tuple(holders), tuple(tellers), sharing, day, owner, name)
        warn_of(self.cautions)

    def _fill(
        self,
        design: Design,
        holders: tuple[Card, ...],
        tellers: tuple[Card, ...],
        sharing: Sharing,
        last_day: date | None,
        owner: PublicKey | None,
        name: str,
    ) -> None:
        """All facts of a study, new or read; refused unless they go together."""
        if owner is not None and owner.for_study:
            raise ParameterError("owner: expected a long-lived key, not one for a study")
        if (sharing.n_holders, sharing.n_tellers) != (len(holders), len(tellers)):
            raise ParameterError("cards: the noise is shared by other numbers of people")
        keys = {card.key.identity for card in holders}
        sharing.require_tellers_counted(sum(card.key.identity in keys for card in tellers))
        self.design, self.holders, self.tellers = design, holders, tellers
        self.sharing, self.last_day, self.owner, self.name = sharing, last_day, owner, name
        self._signatures: tuple[Signature, ...] = ()
        self._refused: dict[int, str] = {}  # what is wrong with files of signatures, by teller
        if WORD_BYTES * self.n_levels * self.n_words > MAX_SHARE_BYTES:
            raise ParameterError(
                f"design: a ballot of {self.n_levels} levels of {self.n_words} words is larger "
                "than any file of privsketch; use fewer features"
            )
        short = [card.name for card in holders if not self.is_accepted_by(card.accept_alone)]
        if short:
            more = f" and {len(short) - 3} more" if len(short) > 3 else ""
            raise StudyError(
                f"this study asks holders to accept alone = {number_text(self.alone)}, which is "
                f"more than {', '.join(map(repr, short[:3]))}{more} accepted; use fewer holders, a "
                "smaller epsilon or more `colluding`, or ask them for another card"
            )

    # ------------------------------------------------------------ facts

    @property
    def noise(self) -> str:
        """Who adds noise: "holders" or "tellers"."""
        return self.sharing.by

    @property
    def min_holders(self) -> int:
        """The least number of ballots that are tallied."""
        return self.sharing.min_holders

    @property
    def colluding(self) -> int:
        """How many holders may pool what they know with cheating tellers."""
        return self.sharing.colluding

    @cached_property
    def alone(self) -> float:
        """The epsilon of a holder's records if all others join forces."""
        return self.sharing.cost_alone().epsilon

    @property
    def cautions(self) -> list[str]:
        """What to think about once more before people take part, in sentences."""
        planned, number = self.design.n_holders, len(self.holders)
        if planned in (None, number):
            return []
        return [
            f"the design is planned for {planned} holders, and {number} have enrolled: budget and "
            "noise are right for these, but its size and its forecast are for others; plan it "
            f"again for {number} if that matters, and enrol anew, since cards are for "
            "one design"
        ]

    def is_accepted_by(self, accept_alone: float | None) -> bool:
        """Whether a holder who accepts that much accepts this study, but for last digits."""
        return accept_alone is not None and accept_alone >= self.alone * (1 - 1e-9)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file's bytes, which everything that follows names, in hex."""
        return hashlib.sha256(signed_message(KIND, self.to_bytes())).hexdigest()

    @property
    def fingerprint(self) -> str:
        """32 hex digits that are read out among holders and tellers."""
        return self.digest[:32]

    @property
    def n_levels(self) -> int:
        """Number of turnouts that a ballot has noise for."""
        return self.sharing.n_levels

    @property
    def counts_records(self) -> bool:
        """Whether the exact number of records rides along: it is public under "replace"."""
        return self.design.count == "public"

    @property
    def n_words(self) -> int:
        """Words of one level: values, the number of records if it is public, two checks."""
        return self.sharing.n_words + self.counts_records + N_CHECKS

    @cached_property
    def weights(self) -> Words:
        """Public weights of the second check word."""
        return check_weights(bytes.fromhex(self.digest), self.n_words - N_CHECKS)

    def place_of(self, key: PublicKey) -> int:
        """The number of a holder on the roster; an error for others."""
        for place, card in enumerate(self.holders):
            if card.key.identity == key.identity:
                return place
        raise StudyError(f"{key.name!r} is not on the roster of this study")

    def teller_of(self, key: PublicKey) -> int:
        """The number of a teller, by its own key or its study key; an error for others."""
        for place, card in enumerate(self.tellers):
            known = (card.key, card.study_key)
            if any(one is not None and one.identity == key.identity for one in known):
                return place
        raise StudyError(f"{key.name!r} is no teller of this study")

    def study_key_of(self, identity: bytes) -> int | None:
        """The number of the teller whose study key it is; None for others."""
        for place, card in enumerate(self.tellers):
            if card.study_key is not None and card.study_key.identity == identity:
                return place
        return None

    @property
    def accepted(self) -> tuple[str, ...]:
        """Names of the tellers that have signed it."""
        return tuple(self.tellers[place].name for place in self._signers())

    def _signers(self) -> list[int]:
        keys = {signature.key for signature in self._signatures}
        return [n for n, card in enumerate(self.tellers) if card.key.identity in keys]

    @property
    def is_open(self) -> bool:
        """Whether all tellers have signed it, so that ballots may be cast."""
        return len(self._signers()) == len(self.tellers)

    def require_open(self) -> None:
        """Refuse a study that some teller has not signed."""
        signers = self._signers()
        missing = [c.name for n, c in enumerate(self.tellers) if n not in signers]
        if missing:
            bad = "; ".join(text for n, text in self._refused.items() if n not in signers)
            raise StudyError(
                f"not signed by {', '.join(map(repr, missing))}: all tellers must accept a study "
                "before anything is done in it (privsketch study accept)"
                f"{f' ({bad})' if bad else ''}"
            )

    def is_over(self, today: date | None = None) -> bool:
        """Whether the last day is past, UTC; always if there is none."""
        now = datetime.now(UTC).date() if today is None else today
        return self.last_day is None or now > self.last_day

    def is_late(self, today: date | None = None) -> bool:
        """Whether it is too late to cast a ballot."""
        return self.last_day is not None and self.is_over(today)

    # ------------------------------------------------------------ signatures of tellers

    def accept(self, key: Key) -> Signature:
        """Sign the study as one of its tellers; once for a study key, ever.

        Parameters
        ----------
        key : Key
            The teller's long-lived key. This machine must be the one on which the teller enrolled,
            and which will tally.
        """
        number = self.teller_of(key.public)
        card = self.tellers[number]
        if card.key.identity != key.public.identity or card.study_key is None:
            raise StudyError("a study is accepted with the teller's long-lived key")
        require_born(card.study_key.fingerprint)
        slot = teller_slot(card.study_key.fingerprint, "study")
        if kept(slot) is None and number in self._signers():
            raise StudyError(
                "your signature lies beside this study, and what was kept here of it is lost, so "
                "that nobody can know whether its key has tallied. Enrol again, which makes a new "
                "key, and have the study made anew"
            )
        accepted = keep_once(slot, self.digest.encode("ascii"))
        if accepted != self.digest.encode("ascii"):
            other = spoken(accepted.decode("ascii")[:32])
            raise StudyError(
                f"the study key of this card was used for another study, {other}; a key is for one "
                "study: enrol with a new one"
            )
        signature = signature_within_rules(key, self.to_bytes(), KIND)
        self.add_signature(signature)
        return signature

    def add_signature(self, signature: Signature, what: str = "signature") -> None:
        """Add the signature of a teller; an error unless it is one of this study."""
        if signature.kind != KIND or not signature.fits(self.to_bytes()):
            raise SignatureError(f"{what}: not a signature of this study")
        for card in self.tellers:
            if card.key.identity == signature.key:
                if card.name != signature.name:
                    raise SignatureError(f"{what}: the name in the signature was altered")
                others = [one for one in self._signatures if one.key != signature.key]
                self._signatures = (*others, signature)
                return
        raise SignatureError(f"{what}: signed by somebody who is no teller of this study")

    # ------------------------------------------------------------ files

    def to_json(self) -> dict[str, Any]:
        """The study as plain JSON values."""
        return {
            "name": self.name,
            "design": self.design.to_json(),
            "sharing": self.sharing.to_json(),
            "last_day": None if self.last_day is None else self.last_day.isoformat(),
            "owner": None if self.owner is None else self.owner.to_json(),
            "tellers": [card.to_json() for card in self.tellers],
            "holders": [card.to_json() for card in self.holders],
        }

    def to_bytes(self) -> bytes:
        """The bytes of a .study file; signatures of tellers lie beside it."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        return written(KIND, self.to_json())

    @classmethod
    def from_bytes(
        cls, data: bytes, what: str | None = None, signatures: Sequence[Signature] = ()
    ) -> SealedStudy:
        """Read the bytes of `to_bytes`; raise FileError for any other bytes."""
        what = what or cls.LABEL
        found = read_json(data, KIND, _FIELDS, what)
        study = cls.__new__(cls)
        with reading(what):
            holders, tellers = (
                tuple(Card.from_json(one, what) for one in _list(found[name], what))
                for name in ("holders", "tellers")
            )
            design = Design.from_json(found["design"], what)
            _require_roster(design, holders, tellers)
            study._fill(
                design,
                holders,
                tellers,
                Sharing.from_json(found["sharing"], design.sum_noise),
                None if found["last_day"] is None else _as_day(found["last_day"]),
                None if found["owner"] is None else PublicKey.from_json(found["owner"], what),
                digits(found["name"], NAME_DIGITS, what),
            )
        if study.to_bytes() != data:
            raise FileError(f"{what}: not as privsketch writes it; the file was altered")
        for signature in signatures:
            study.add_signature(signature, what)
        return study

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the study, and beside it the signatures of tellers; the files."""
        super().save(path)
        files = [Path(path)]
        for signature in self._signatures:
            files.append(acceptance_path(path, signature))
            signature.save(files[-1])
        return files

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SealedStudy:
        """Read a study, and the signatures of tellers that lie beside it.

        Anybody may have put a file there: one that is no signature of this study counts as none,
        and `require_open` says what is wrong with it.
        """
        study = super().load(path)
        for place, card in enumerate(study.tellers):  # whatever else lies there is nobody's
            file = _acceptance(path, card.key.fingerprint)
            if not os.path.lexists(file):
                continue
            try:
                signature = Signature.from_bytes(read_small(file), str(file))
                if signature.key != card.key.identity:
                    raise SignatureError(f"{file}: the signature of somebody else")
                study.add_signature(signature, str(file))
            except PrivsketchError as error:
                study._refused[place] = str(error)
        return study

    def beside(self, path: str | os.PathLike[str]) -> SealedStudy:
        """The study of this file with the signatures of tellers that lie beside it."""
        return self.load(path)

    def facts(self) -> dict[str, Any]:
        """What is public about the study, for machines."""
        budget = self.design.budget
        return {
            "fingerprint": self.fingerprint,
            "digest": self.digest,
            "design": self.design.fingerprint,
            "noise": self.noise,
            "holders": [card.name for card in self.holders],
            "tellers": [card.name for card in self.tellers],
            "owner": None if self.owner is None else self.owner.name,
            "min_holders": self.min_holders,
            "colluding": self.colluding,
            "n_levels": self.n_levels,
            "last_day": None if self.last_day is None else self.last_day.isoformat(),
            "accepted": list(self.accepted),
            "is_open": self.is_open,
            "alone": self.alone,
            "cost": {
                "epsilon": budget.epsilon,
                "delta": budget.delta,
                "neighbours": budget.neighbours,
                "unit": budget.unit.text,
            },
            "risks": [
                {"who": cost.who, "epsilon": cost.epsilon, "delta": cost.delta, "rho": cost.rho}
                for cost in self.sharing.costs()
            ],
        }

    # ------------------------------------------------------------ words

    def describe(self) -> str:
        """The study in plain words, several lines."""
        whose = "every teller" if self.owner is None else self.owner.name
        until = "until the list is closed" if self.last_day is None else f"until {self.last_day}"
        lines = [
            f"study       {spoken(self.fingerprint)}",
            f"holders     {len(self.holders)}, of whom {self.min_holders} or more must take part",
            f"tellers     {', '.join(card.name for card in self.tellers)}",
            f"ballots     {until}; the list is closed by {whose}",
            f"total       {self.design.budget.describe()}",
            self.sharing.describe(),
            f"accepted by {', '.join(self.accepted) or 'nobody yet'}",
        ]
        signers = self._signers()
        lines += [f"refused     {text}" for n, text in self._refused.items() if n not in signers]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"SealedStudy({self.fingerprint}, {len(self.holders)} holders, "
            f"{len(self.tellers)} tellers)"
        )

    def _repr_html_(self) -> str:
        from privsketch._base.notebook import described

        return described("Sealed study", self.describe().splitlines())


def acceptance_path(path: str | os.PathLike[str], signature: Signature) -> Path:
    """Where the signature of a teller lies: beside the study, by the teller's fingerprint."""
    return _acceptance(path, signature.fingerprint)


def _acceptance(path: str | os.PathLike[str], fingerprint: str) -> Path:
    return Path(f"{os.fspath(path)}.{fingerprint[:16]}.sig")


def _order(card: Card) -> tuple[str, str]:
    return card.name, card.key.fingerprint


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise FileError(f"{what}: unknown or missing fields")
    return value


def _as_day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date | str):
        raise ParameterError("last_day", value, "expected a date, like 2026-12-31")
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ParameterError("last_day", value, "expected a date, like 2026-12-31") from None


def _require_roster(design: Design, holders: Sequence[Card], tellers: Sequence[Card]) -> None:
    """Refuse people who are not who a study needs: twice, alike, for another design."""
    if not 2 <= len(tellers) <= MAX_TELLERS:
        raise ParameterError(
            f"cards: {len(tellers)} of tellers; a study needs two to {MAX_TELLERS}, of whom one "
            "must be honest"
        )
    if not 2 <= len(holders) <= MAX_HOLDERS:
        raise ParameterError(f"cards: {len(holders)} of holders; a sum needs two or more")
    for people in (holders, tellers):
        for fact in (lambda c: c.key.identity, lambda c: alike(c.name)):
            seen: set[Any] = set()
            for card in people:
                if fact(card) in seen:
                    raise ParameterError(
                        f"cards: {card.name!r} is there twice as a {card.role}, or another one "
                        "with a name that reads alike"
                    )
                seen.add(fact(card))
    names = {alike(card.name): card.key.identity for card in holders}
    for card in tellers:
        if names.get(alike(card.name), card.key.identity) != card.key.identity:
            raise ParameterError(f"cards: holder and teller {card.name!r} are different people")
    keys = [card.study_key.identity for card in tellers if card.study_key is not None]
    longer = {card.key.identity for card in (*holders, *tellers)}
    if len(set(keys)) != len(keys) or longer & set(keys):
        raise ParameterError("cards: two have the same study key; each teller makes its own")
    if list(holders) != sorted(holders, key=_order) or list(tellers) != sorted(tellers, key=_order):
        raise ParameterError("cards: not in the order in which studies have them")
    for card in (*holders, *tellers):
        if card.design != design.fingerprint:
            raise StudyError(f"the card of {card.name!r} is for another design")
