"""Cards: the participants of a study, their roles and terms, each signed by the participant.

A holder's card states the cost that it accepts if everyone else colludes. A teller's card has a new
key for this study: shares are encrypted for it, and it signs the tally. The study key is used once
and destroyed, while the key that signs the card stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from privsketch._base.errors import FileError, ParameterError
from privsketch._base.formats import require_fields
from privsketch.design.recipe import Design
from privsketch.design.validity import require_private
from privsketch.facts.budget import number_text
from privsketch.noise.sharing.plan import plan_sharing
from privsketch.signing.documents import alike, document_bytes
from privsketch.signing.keys import Key, PublicKey
from privsketch.signing.signature import digit_groups
from privsketch_studies.errors import StudyError
from privsketch_studies.sealing.files import (
    Fields,
    SealedFile,
    digits,
    read_signed_json,
    signed_json,
)
from privsketch_studies.sealing.once import mark_made_here

MAX_TELLERS, MAX_HOLDERS = 16, 100_000
Role = Literal["holder", "teller"]
MAX_ALONE = 1e6  # upper limit of epsilon; far smaller values already protect nothing


@dataclass(frozen=True)
class Card(SealedFile):
    """Card of a participant of a sealed study; `Card.holder` and `Card.teller` make one.

    Attributes
    ----------
    role : {"holder", "teller"}
        "holder" has records, "teller" tallies; a participant who does both has two cards.
    design : str
        Fingerprint of the design.
    key : PublicKey
        The long-lived key that signed the card.
    accept_alone : float or None
        Of a holder: the epsilon that it accepts if all tellers, or all other holders, collude.
    study_key : PublicKey or None
        Of a teller: the key for this study.
    signature : bytes

    Examples
    --------
    >>> import privsketch as ps
    >>> import privsketch_studies as studies
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=0.1, delta=1e-6), random_state=0)
    >>> card = studies.Card.holder(design, key=ps.Key.generate("site 3"), accept_alone=0.25)
    >>> card.name, card.role, card.accept_alone
    ('site 3', 'holder', 0.25)
    """

    KIND: ClassVar[str] = "card"
    FIELDS: ClassVar[Fields] = ("role", "design", "key", "accept_alone", "study_key")

    role: Role
    design: str
    key: PublicKey
    accept_alone: float | None
    study_key: PublicKey | None
    signature: bytes

    @classmethod
    def holder(cls, design: Design, *, key: Key, accept_alone: float) -> Card:
        """Return the card of a participant who has records.

        Parameters
        ----------
        design : Design
        key : Key
            The holder's own key.
        accept_alone : float
            The largest epsilon that the holder accepts if everyone else colludes. It has no
            default, because it is the holder's own decision.
        """
        return cls._sign("holder", design, key, accept_alone=checked_alone(accept_alone))

    @classmethod
    def teller(cls, design: Design, *, key: Key) -> tuple[Card, Key]:
        """Return the card of a participant who tallies, and a new key for this study.

        The state of this user on this machine records that the key was made: the study can be
        accepted and tallied only here. Save the key, and keep it out of backups.

        Parameters
        ----------
        design : Design
        key : Key
            The teller's own key.
        """
        study_key = Key.generate(key.name, for_study=True)
        card = teller_card(design, key, study_key.public)
        mark_made_here(study_key.fingerprint)
        return card, study_key

    @classmethod
    def _sign(
        cls,
        role: Role,
        design: Design,
        key: Key,
        *,
        accept_alone: float | None = None,
        study_key: PublicKey | None = None,
    ) -> Card:
        require_private(design, "a sealed study")
        if key.public.for_study:
            raise ParameterError("key: this is a study key; sign cards with a long-lived key")
        fields = {
            "role": role,
            "design": design.fingerprint,
            "key": key.public.to_json(),
            "accept_alone": accept_alone,
            "study_key": None if study_key is None else study_key.to_json(),
        }
        return cls.from_bytes(signed_json(cls.KIND, fields, key))

    @property
    def name(self) -> str:
        """Name of the key."""
        return self.key.name

    def facts(self) -> dict[str, Any]:
        """Return the card's facts for JSON answers."""
        key = self.study_key
        study_key = None if key is None else {"name": key.name, "fingerprint": key.fingerprint}
        card = {
            "role": self.role,
            "design": self.design,
            "accept_alone": self.accept_alone,
            "study_key": study_key,
            "name": self.key.name,
            "fingerprint": self.key.fingerprint,
        }
        return {"card": card}

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "card", f"{self.name}, a {self.role}"
        yield "fingerprint", digit_groups(self.key.fingerprint)
        yield "design", self.design[:32]
        if self.accept_alone is not None:
            epsilon = number_text(self.accept_alone)
            yield "accepts", f"epsilon = {epsilon} if everyone else colludes"
        if self.study_key is not None:
            yield "study key", digit_groups(self.study_key.fingerprint)

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain JSON values, with its signature."""
        return {
            "role": self.role,
            "design": self.design,
            "key": self.key.to_json(),
            "accept_alone": self.accept_alone,
            "study_key": None if self.study_key is None else self.study_key.to_json(),
            "signer": self.key.identity.hex(),
            "signature": self.signature.hex(),
        }

    @classmethod
    def from_json(cls, value: Any, what: str = "card") -> Card:
        """Read the values of `to_json`; raise FileError for any other values."""
        names = (*cls.FIELDS, "signer", "signature")
        require_fields(value, names, what)
        try:
            data = document_bytes(cls.KIND, {name: value[name] for name in names})
        except (TypeError, ValueError, RecursionError):
            raise FileError(f"{what}: not a card") from None
        return cls.from_bytes(data, what)

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return document_bytes(self.KIND, self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes, what: str | None = None) -> Card:
        """Read the bytes of `to_bytes`; raise FileError for any other bytes."""
        what = what or cls.LABEL
        signer, fields = read_signed_json(data, cls.KIND, cls.FIELDS, what)
        role = fields["role"]
        if role not in ("holder", "teller"):
            raise FileError(f"{what}: expected the card of a holder or a teller")
        key = PublicKey.from_json(fields["key"], what)
        if key.identity != signer or key.for_study:
            raise FileError(f"{what}: signed by another key than it names")
        alone, study_key = fields["accept_alone"], fields["study_key"]
        if (role == "holder") == (alone is None) or (role == "teller") == (study_key is None):
            raise FileError(f"{what}: its fields do not match its role")
        try:
            if alone is not None and type(alone) is not float:
                raise ParameterError("accept_alone", alone, "expected a number with its point")
            alone = None if alone is None else checked_alone(alone)
            public = None if study_key is None else PublicKey.from_json(study_key, what)
            if public is not None:
                _require_study_key(public, key)
        except ParameterError as error:
            raise FileError(f"{what}: {error.text}") from None
        # The signature has a fixed position at the end of the file.
        signature = bytes.fromhex(data[-(128 + 4) : -4].decode("ascii"))
        return cls(role, digits(fields["design"], 64, what), key, alone, public, signature)


def teller_card(design: Design, key: Key, study_key: PublicKey) -> Card:
    """Return the card of a teller with this study key, wherever the key was made."""
    _require_study_key(study_key, key.public)
    return Card._sign("teller", design, key, study_key=study_key)


def alone_text(alone: float) -> str:
    """Return what a study asks holders to accept, rounded up to a number that is enough."""
    return number_text(math.ceil(alone * 1000) / 1000)


def usual_alone(design: Design) -> float | None:
    """Return the least epsilon that a study of a design asks holders to accept with usual settings.

    None if the design does not state the number of holders.
    """
    if design.n_holders is None:
        return None
    sharing = plan_sharing(design.sum_noise, n_holders=design.n_holders, by=design.sharing)
    return sharing.cost_alone().epsilon


def checked_alone(value: object) -> float:
    """Return a valid `accept_alone` as a float."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < float(value) <= MAX_ALONE:  # type: ignore[arg-type]
        raise ParameterError(
            "accept_alone",
            value,
            f"expected an epsilon above 0 and at most {MAX_ALONE:g}: what you accept if everyone "
            "else in the study colludes",
        )
    return float(value)  # type: ignore[arg-type]


def _require_study_key(study_key: PublicKey, key: PublicKey) -> None:
    if not isinstance(study_key, PublicKey) or not study_key.for_study:
        raise ParameterError(
            "study_key: expected a key for a study: Key.generate(name, for_study=True).public"
        )
    if study_key.identity == key.identity:
        raise ParameterError("study_key: expected another key than the one that signs the card")
    try:
        study_key.seal(b"", b"")  # otherwise holders would learn of it after they have paid
    except FileError:
        raise ParameterError("study_key: nothing can be encrypted for it") from None


def roster_order(card: Card) -> tuple[str, str]:
    """Return the sort key of a card on the roster."""
    return card.name, card.key.fingerprint


def require_roster(design: Design, holders: Sequence[Card], tellers: Sequence[Card]) -> None:
    """Refuse cards that cannot make a study: too few, equal, alike, or for another design."""
    require_private(design, "a sealed study")
    if not 2 <= len(tellers) <= MAX_TELLERS:
        raise ParameterError(
            f"cards: {len(tellers)} of tellers; a study needs two to {MAX_TELLERS}, one of whom "
            "must be honest"
        )
    if not 2 <= len(holders) <= MAX_HOLDERS:
        raise ParameterError(f"cards: {len(holders)} of holders; a sum needs two or more")
    for people in (holders, tellers):
        facts: set[Any] = set()
        for card in people:
            own_facts = {card.key.identity, alike(card.name)}
            if facts & own_facts:
                raise ParameterError(
                    f"cards: two cards of {card.name!r} as a {card.role}, or another name that "
                    "reads alike"
                )
            facts |= own_facts
    names = {alike(card.name): card.key.identity for card in holders}
    for card in tellers:
        if names.get(alike(card.name), card.key.identity) != card.key.identity:
            raise ParameterError(f"cards: holder and teller {card.name!r} have different keys")
    keys = [card.study_key.identity for card in tellers if card.study_key is not None]
    long_lived = {card.key.identity for card in (*holders, *tellers)}
    if len(set(keys)) != len(keys) or long_lived & set(keys):
        raise ParameterError("cards: two tellers have the same study key; each needs its own")
    if any(list(people) != sorted(people, key=roster_order) for people in (holders, tellers)):
        raise ParameterError("cards: expected them in the order of names")
    for card in (*holders, *tellers):
        if card.design != design.fingerprint:
            raise StudyError(f"the card of {card.name!r} is for another design")
