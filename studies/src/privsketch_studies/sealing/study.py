"""`SealedStudy`: a design with its participants, under one fingerprint.

The file never changes: with any other byte it is another study. Tellers sign its bytes, and each
study key is for one study only. A study that all tellers have signed is open for ballots. All later
files name the study by its digest.
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

from privsketch._base.errors import ParameterError, PrivsketchError, SignatureError, require_one_of
from privsketch._base.formats import MAX_JSON_BYTES, reading
from privsketch.design.cautions import warn_of
from privsketch.design.recipe import Design
from privsketch.noise.sharing.plan import Sharing, plan_sharing
from privsketch.noise.sums import SHARING_KINDS
from privsketch.signing.documents import document_bytes, read_small
from privsketch.signing.keys import Key, PublicKey, signature_within_rules
from privsketch.signing.signature import Signature, digit_groups, signed_message
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.cards import (
    MAX_HOLDERS,
    Card,
    alone_text,
    require_roster,
    roster_order,
)
from privsketch_studies.sealing.files import Fields, SealedFile, altered, digits, items, read_json
from privsketch_studies.sealing.once import read_state, require_made_here, teller_file, write_once
from privsketch_studies.sealing.splitting import N_CHECKS, WORD_BYTES, Words, check_weights

NAME_DIGITS = 32
MAX_SHARE_BYTES = MAX_JSON_BYTES  # limit of the largest share; files may be a third larger


class SealedStudy(SealedFile):
    """Study in which only the total over all holders becomes known.

    Holders cast ballots (`seal`), tellers add up shares that they cannot read (`tally`), and the
    tallies add up to one sketch (`join`). The file is public; tellers sign it before the first
    ballot.

    Parameters
    ----------
    design : Design
        The recipe that all holders share.
    cards : list of Card or path
        Cards of all holders and of two or more tellers, for this design, in any order.
    noise : {"holders", "tellers"}, optional
        Who adds noise: holders share one noise, which needs delta > 0, or each teller adds a
        complete one. The default is holders if delta > 0.
    min_holders : int, optional
        Smallest number of ballots to tally; two thirds of the holders by default.
    colluding : int, optional
        Number of holders who may collude with dishonest tellers; a third by default. Tellers that
        are holders count.
    last_day : date or text like "2026-12-31", optional
        Last day to cast ballots, UTC; tellers tally only after it.
    owner : PublicKey, optional
        Key of the person who closes the list of ballots; by default any teller may.

    Attributes
    ----------
    fingerprint : str
        First 32 hex digits of the digest, which participants compare by phone.
    holders, tellers : tuple of Card
    alone : float
        The epsilon of a holder's records if all tellers, or all other holders, collude.
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

    KIND: ClassVar[str] = "study"
    FIELDS: ClassVar[Fields] = (
        *("name", "design", "sharing", "last_day", "owner", "tellers", "holders"),
    )

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
        loaded = [card if isinstance(card, Card) else Card.load(card) for card in cards]
        holders = sorted((c for c in loaded if c.role == "holder"), key=roster_order)
        tellers = sorted((c for c in loaded if c.role == "teller"), key=roster_order)
        require_roster(design, holders, tellers)
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
        """Set the attributes of a new or loaded study; refuse values that do not fit."""
        if owner is not None and owner.for_study:
            raise ParameterError("owner: expected a long-lived key, not one for a study")
        if (sharing.n_holders, sharing.n_tellers) != (len(holders), len(tellers)):
            raise ParameterError(
                "cards: the noise is shared by another number of holders or tellers"
            )
        keys = {card.key.identity for card in holders}
        sharing.require_tellers_counted(sum(card.key.identity in keys for card in tellers))
        self.design, self.holders, self.tellers = design, holders, tellers
        self.sharing, self.last_day, self.owner, self.name = sharing, last_day, owner, name
        self._signatures: tuple[Signature, ...] = ()
        self._refused: dict[int, str] = {}  # problems of signature files, by teller
        if WORD_BYTES * self.n_levels * self.n_words > MAX_SHARE_BYTES:
            raise ParameterError(
                f"design: a ballot of {self.n_levels} levels of {self.n_words} words is larger "
                "than a file of privsketch may be; use fewer features"
            )
        short = [card.name for card in holders if not self.is_accepted_by(card.accept_alone)]
        if short:
            more = f" and {len(short) - 3} more" if len(short) > 3 else ""
            raise StudyError(
                f"this study asks holders to accept alone = {alone_text(self.alone)}, which is "
                f"more than {', '.join(map(repr, short[:3]))}{more} accepted; use fewer holders, a "
                "smaller epsilon or more `colluding`, or ask them for another card: "
                f"`privsketch study enrol --accept-alone {alone_text(self.alone)}`"
            )

    @property
    def noise(self) -> str:
        """Who adds noise: "holders" or "tellers"."""
        return self.sharing.by

    @property
    def min_holders(self) -> int:
        """Smallest number of ballots to tally."""
        return self.sharing.min_holders

    @property
    def colluding(self) -> int:
        """Number of holders who may collude with dishonest tellers."""
        return self.sharing.colluding

    @cached_property
    def alone(self) -> float:
        """Epsilon of a holder's records if all others collude."""
        return self.sharing.cost_alone().epsilon

    @property
    def cautions(self) -> list[str]:
        """Warnings to consider before anyone takes part."""
        n_planned, number = self.design.n_holders, len(self.holders)
        if n_planned in (None, number):
            return []
        return [
            f"the design is planned for {n_planned} holders, and {number} have enrolled: budget "
            f"and noise are right for {number}, but size and forecast are not. If that matters, "
            f"plan the design again for {number} and enrol anew, because cards are for one design"
        ]

    def is_accepted_by(self, accept_alone: float | None) -> bool:
        """Whether a holder with this `accept_alone` accepts the study, up to rounding."""
        return accept_alone is not None and accept_alone >= self.alone * (1 - 1e-9)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file's bytes in hex, which names the study in later files."""
        return hashlib.sha256(signed_message(self.KIND, self.to_bytes())).hexdigest()

    @property
    def fingerprint(self) -> str:
        """First 32 hex digits of the digest, which participants compare by phone."""
        return self.digest[:32]

    @property
    def n_levels(self) -> int:
        """Number of turnouts that a ballot has noise for."""
        return self.sharing.n_levels

    @property
    def counts_records(self) -> bool:
        """Whether ballots have the exact number of records, which is public under "replace"."""
        return self.design.count == "public"

    @property
    def n_words(self) -> int:
        """Number of words of one level: values, number of records if public, two check words."""
        return self.sharing.n_words + self.counts_records + N_CHECKS

    @cached_property
    def weights(self) -> Words:
        """Public weights of the second check word."""
        return check_weights(bytes.fromhex(self.digest), self.n_words - N_CHECKS)

    def holder_with(self, key: PublicKey) -> Card:
        """Return the card of the holder with this key; refuse other keys."""
        for card in self.holders:
            if card.key.identity == key.identity:
                return card
        raise StudyError(f"{key.name!r} is not on the roster of this study")

    def teller_of(self, key: PublicKey) -> int:
        """Return the number of a teller, by its own key or its study key; refuse other keys."""
        for number, card in enumerate(self.tellers):
            keys = (card.key, card.study_key)
            if any(item is not None and item.identity == key.identity for item in keys):
                return number
        raise StudyError(f"{key.name!r} is no teller of this study")

    def teller_with(self, identity: bytes) -> int | None:
        """Return the number of the teller with this study key; None for other keys."""
        for number, card in enumerate(self.tellers):
            if card.study_key is not None and card.study_key.identity == identity:
                return number
        return None

    @property
    def accepted(self) -> tuple[str, ...]:
        """Names of the tellers that have signed it."""
        return tuple(self.tellers[number].name for number in self._signers())

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
                "before it is used (privsketch study accept)"
                f"{f' ({bad})' if bad else ''}"
            )

    def is_over(self, today: date | None = None) -> bool:
        """Whether the last day is over, UTC; True if there is none."""
        now = datetime.now(UTC).date() if today is None else today
        return self.last_day is None or now > self.last_day

    def is_late(self, today: date | None = None) -> bool:
        """Whether it is too late to cast a ballot."""
        return self.last_day is not None and self.is_over(today)

    def accept(self, key: Key) -> Signature:
        """Sign the study as one of its tellers; once for each study key.

        Parameters
        ----------
        key : Key
            The teller's long-lived key. The teller must have enrolled on this machine, and will
            tally here.
        """
        number = self.teller_of(key.public)
        card = self.tellers[number]
        if card.key.identity != key.public.identity or card.study_key is None:
            raise StudyError("a study is accepted with the teller's long-lived key")
        require_made_here(card.study_key.fingerprint)
        slot = teller_file(card.study_key.fingerprint, "study")
        if read_state(slot) is None and number in self._signers():
            raise StudyError(
                "your signature is beside this study, but the state of its key on this machine is "
                "lost, so that it is unknown whether the key has tallied. Enrol again, which makes "
                "a new key, and have the study made anew"
            )
        accepted = write_once(slot, self.digest.encode("ascii"))
        if accepted != self.digest.encode("ascii"):
            other = digit_groups(accepted.decode("ascii")[:32])
            raise StudyError(
                f"the study key of this card was used for another study, {other}; a key is for one "
                "study: enrol with a new one"
            )
        signature = signature_within_rules(key, self.to_bytes(), self.KIND)
        self.add_signature(signature)
        return signature

    def add_signature(self, signature: Signature, what: str = "signature") -> None:
        """Add the signature of a teller; refuse any other signature."""
        if signature.kind != self.KIND or not signature.fits(self.to_bytes()):
            raise SignatureError(f"{what}: not a signature of this study")
        for card in self.tellers:
            if card.key.identity == signature.key:
                if card.name != signature.name:
                    raise SignatureError(f"{what}: the name in the signature was altered")
                earlier = [item for item in self._signatures if item.key != signature.key]
                self._signatures = (*earlier, signature)
                return
        raise SignatureError(f"{what}: its signer is no teller of this study")

    def to_json(self) -> dict[str, Any]:
        """Return the study as plain JSON values."""
        return {
            "name": self.name,
            "design": self.design.to_json(),
            "sharing": self.sharing.to_json(),
            "last_day": None if self.last_day is None else self.last_day.isoformat(),
            "owner": None if self.owner is None else self.owner.to_json(),
            "tellers": [card.to_json() for card in self.tellers],
            "holders": [card.to_json() for card in self.holders],
        }

    @cached_property
    def _data(self) -> bytes:  # type: ignore[override]
        return document_bytes(self.KIND, self.to_json())

    @classmethod
    def from_bytes(
        cls, data: bytes, what: str | None = None, signatures: Sequence[Signature] = ()
    ) -> SealedStudy:
        """Read the bytes of `to_bytes`; raise FileError for any other bytes."""
        what = what or cls.LABEL
        fields = read_json(data, cls.KIND, cls.FIELDS, what)
        study = cls.__new__(cls)
        with reading(what):
            holders, tellers = (
                tuple(
                    Card.from_json(card, what) for card in items(fields[name], 0, MAX_HOLDERS, what)
                )
                for name in ("holders", "tellers")
            )
            design = Design.from_json(fields["design"], what)
            require_roster(design, holders, tellers)
            study._fill(
                design,
                holders,
                tellers,
                Sharing.from_json(fields["sharing"], design.sum_noise),
                None if fields["last_day"] is None else _as_day(fields["last_day"]),
                None if fields["owner"] is None else PublicKey.from_json(fields["owner"], what),
                digits(fields["name"], NAME_DIGITS, what),
            )
        if study.to_bytes() != data:
            raise altered(what)
        for signature in signatures:
            study.add_signature(signature, what)
        return study

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the study and, beside it, the signatures of tellers; return the files."""
        super().save(path)
        files = [Path(path)]
        for signature in self._signatures:
            files.append(acceptance_path(path, signature.fingerprint))
            signature.save(files[-1])
        return files

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SealedStudy:
        """Read a study and the signatures of tellers beside it.

        A file that is no signature of this study is ignored, and `require_open` explains why.
        """
        study = super().load(path)
        for number, card in enumerate(study.tellers):
            file = acceptance_path(path, card.key.fingerprint)
            if not os.path.lexists(file):
                continue
            try:
                signature = Signature.from_bytes(read_small(file), str(file))
                if signature.key != card.key.identity:
                    raise SignatureError(f"{file}: a signature by another key")
                study.add_signature(signature, str(file))
            except PrivsketchError as error:
                study._refused[number] = str(error)
        return study

    def beside(self, path: str | os.PathLike[str]) -> SealedStudy:
        """Return the study of this file with the signatures of tellers beside it."""
        return self.load(path)

    def facts(self) -> dict[str, Any]:
        """Return the study's facts for JSON answers."""
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

    def describe(self) -> str:
        """Describe the study in several lines of text."""
        closer = "every teller" if self.owner is None else self.owner.name
        until = "until the list is closed" if self.last_day is None else f"until {self.last_day}"
        lines = [
            f"study       {digit_groups(self.fingerprint)}",
            f"holders     {len(self.holders)}, of whom {self.min_holders} or more must take part",
            f"tellers     {', '.join(card.name for card in self.tellers)}",
            f"ballots     {until}; the list is closed by {closer}",
            f"total       {self.design.budget.describe()}",
            self.sharing.describe(),
            f"accepted by {', '.join(self.accepted) or 'no teller yet'}",
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


def acceptance_path(path: str | os.PathLike[str], fingerprint: str) -> Path:
    """Return the path of a teller's signature: beside the study, by the teller's fingerprint."""
    return Path(f"{os.fspath(path)}.{fingerprint[:16]}.sig")


def _as_day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date | str):
        raise ParameterError("last_day", value, "expected a date, like 2026-12-31")
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ParameterError("last_day", value, "expected a date, like 2026-12-31") from None
