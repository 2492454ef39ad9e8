"""Bodies of requests and answers, as OpenAPI describes them. Times are milliseconds since 1970."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from privsketch_studies.collector.members import Member
from privsketch_studies.collector.progress import Site, Step, progress_of
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.studies import Study

Role = Literal["owner", "site", "teller", "reader"]
Time = Annotated[int, Field(description="Milliseconds since 1970, UTC.")]
KeyFingerprint = Annotated[
    str | None, Field(description="Fingerprint of the member's key; null if no key is known.")
]


class ErrorBody(BaseModel):
    """Reason for a refusal: `refusal` is a word for programs, `message` a text for people."""

    refusal: str
    message: str


class ErrorAnswer(BaseModel):
    """Answer to a request that was refused."""

    error: ErrorBody


class OwnProfile(BaseModel):
    """Member to whom the token of the request belongs, with the roles in each study."""

    name: str
    makes_studies: bool
    key: KeyFingerprint
    roles: dict[str, list[str]]

    @classmethod
    def of(cls, member: Member) -> OwnProfile:
        """Return the profile of a member, with the roles in all studies."""
        return cls(
            name=member.name,
            makes_studies=member.makes_studies,
            key=member.fingerprint,
            roles={study: list(own) for study, own in member.roles.items()},
        )


class MemberView(BaseModel):
    """Member of a study, as other members of the study see them."""

    name: str
    roles: list[str]
    key: KeyFingerprint
    is_revoked: bool

    @classmethod
    def of(cls, member: Member, study: str) -> MemberView:
        """Return the view of a member in one study."""
        return cls(
            name=member.name,
            roles=list(member.roles_in(study)),
            key=member.fingerprint,
            is_revoked=member.is_revoked,
        )


class NewMember(BaseModel):
    """Member to add to a study: a new one, or a member of the collector."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=100)
    roles: list[Role] = Field(min_length=1, max_length=4)
    key: str | None = Field(None, max_length=8000, description="Text of a .pub file.")
    is_known: bool = Field(
        False, description="Give the roles to a member that the collector already has."
    )


class IssuedToken(BaseModel):
    """Token of a member, which is shown only once; null for a member who has one."""

    name: str
    token: str | None


class SetAsideRequest(BaseModel):
    """Reason for setting an upload aside."""

    model_config = ConfigDict(extra="forbid", strict=True)

    because: str = Field(min_length=1, max_length=400)


class StudySummary(BaseModel):
    """Study in a list of studies, with your roles in it."""

    name: str
    title: str
    is_sealed: bool
    roles: list[str]

    @classmethod
    def of(cls, study: Study, member: Member) -> StudySummary:
        """Return the summary of a study for one of its members."""
        roles = list(member.roles_in(study.name))
        return cls(name=study.name, title=study.title, is_sealed=study.is_sealed, roles=roles)


class StudyDetail(StudySummary):
    """Study with its progress, the cost of a record and your next steps.

    `state` is "open" or "closed"; that of a sealed study may also be "enrolling", "frozen",
    "tallied" or "void". `design` is the fingerprint of the design.
    """

    state: str
    design: str
    epsilon: float
    delta: float
    last_day: str | None
    made_at: Time
    closed_at: Time | None
    sites: list[Site]
    steps: list[Step]

    @classmethod
    def of_study(cls, store: Store, study: Study, member: Member) -> StudyDetail:
        """Return the details of a study for one of its members."""
        progress = progress_of(store, study)
        return cls(
            **StudySummary.of(study, member).model_dump(),
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
    """State of the collector and its store."""

    is_well: bool
    version: str
