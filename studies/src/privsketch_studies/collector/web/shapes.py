"""What answers look like, as OpenAPI describes them. Times are milliseconds since 1970, UTC."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from privsketch_studies.collector.members import Member
from privsketch_studies.collector.progress import Progress, Site, Step
from privsketch_studies.collector.studies import Study

Role = Literal["owner", "site", "teller", "reader"]


class Fault(BaseModel):
    """Why a request was refused."""

    refusal: str
    message: str


class Refused(BaseModel):
    """What is said to a request that is refused."""

    error: Fault


class Me(BaseModel):
    """Whose token it is."""

    name: str
    makes_studies: bool
    key: str | None
    roles: dict[str, list[str]]

    @classmethod
    def of(cls, member: Member) -> Me:
        """A member, to themselves."""
        return cls(
            name=member.name,
            makes_studies=member.makes_studies,
            key=None if member.key is None else member.key.fingerprint,
            roles={study: list(own) for study, own in member.roles.items()},
        )


class Person(BaseModel):
    """A member, to others of a study."""

    name: str
    roles: list[str]
    key: str | None
    is_revoked: bool

    @classmethod
    def of(cls, member: Member, study: str) -> Person:
        """A member in a study."""
        return cls(
            name=member.name,
            roles=list(member.roles_in(study)),
            key=None if member.key is None else member.key.fingerprint,
            is_revoked=member.is_revoked,
        )


class NewMember(BaseModel):
    """Whom to add to a study: somebody new, or a member of the collector."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=100)
    roles: list[Role] = Field(min_length=1, max_length=4)
    key: str | None = Field(None, max_length=8000, description="Text of a .pub file.")
    is_known: bool = Field(False, description="A member of the collector gets these roles.")


class Given(BaseModel):
    """A token, told this once; None for somebody who has one."""

    name: str
    token: str | None


class Because(BaseModel):
    """Why something is set aside."""

    model_config = ConfigDict(extra="forbid", strict=True)

    because: str = Field(min_length=1, max_length=400)


class Brief(BaseModel):
    """A study in a list."""

    name: str
    title: str
    is_sealed: bool
    roles: list[str]


class Whole(Brief):
    """A study, how far it is, and what is expected of whoever asks."""

    state: str
    design: str
    epsilon: float
    delta: float
    last_day: str | None
    made_at: int
    closed_at: int | None
    sites: list[Site]
    steps: list[Step]

    @classmethod
    def told(cls, study: Study, progress: Progress, member: Member) -> Whole:
        """A study, to one of its members."""
        return cls(
            name=study.name,
            title=study.title,
            is_sealed=study.is_sealed,
            roles=list(member.roles_in(study.name)),
            state=progress.state,
            design=study.design.fingerprint,
            epsilon=float(study.design.budget.epsilon),
            delta=float(study.design.budget.delta),
            last_day=None if study.last_day is None else study.last_day.isoformat(),
            made_at=study.made_at,
            closed_at=study.closed_at,
            sites=list(progress.sites),
            steps=list(progress.steps_of(member.name)),
        )


class Health(BaseModel):
    """That the collector answers, and its store does."""

    is_well: bool
    version: str
