"""Types of the answers of the commands of studies; `tools.answers` explains them."""

from __future__ import annotations

from typing import Literal, TypedDict

from tools.answers.files import InspectedFile, KeyVerifyAnswer
from tools.answers.parts import (
    Answer,
    Cost,
    Count,
    DryRunAnswer,
    Key,
    KeyFingerprint,
    NonNegative,
    Positive,
    PositiveCount,
    RealRunAnswer,
    Sha256,
    SketchFacts,
    WrittenFacts,
)
from tools.answers.tables import DemoAnswer

Role = Literal["owner", "site", "teller", "reader"]
StudyState = Literal["open", "closed", "enrolling", "frozen", "tallied", "void"]


# ---------------------------------------------------------------- sealed studies: parts


class Card(TypedDict):
    """Card of a participant of a sealed study."""

    role: Literal["holder", "teller"]
    """Role in the study."""
    name: str
    """Name of the key."""
    fingerprint: KeyFingerprint
    """Fingerprint of the key."""
    design: Sha256
    """Fingerprint of the design."""
    accept_alone: float | None
    """Of a holder: the epsilon that it accepts if everyone else colludes."""
    study_key: Key | None
    """Of a teller: its key for this study."""


class Risk(TypedDict):
    """What a coalition of participants can learn about one unit."""

    who: str
    """The coalition."""
    epsilon: NonNegative
    """Epsilon towards the coalition."""
    delta: NonNegative
    """Delta towards the coalition."""
    rho: float | None
    """Rho towards the coalition; null if none is known."""


class UnopenedBallot(TypedDict):
    """Ballot that some tellers have not checked."""

    holder: str
    """Name of the ballot's holder."""
    tellers: list[str]
    """Tellers that have not stated that they can open it."""


class Mailbox(TypedDict):
    """Files in the folder of a study."""

    ballots: list[str]
    """Holders of the ballots."""
    checked: list[str]
    """Tellers that have checked all ballots."""
    unfit: list[str]
    """Holders whose ballots do not add up: the holder or a teller is wrong."""
    unopened: list[UnopenedBallot]
    """Ballots that only some tellers can open: a holder or a teller is wrong, or late."""
    unchecked: list[UnopenedBallot]
    """Ballots that some or all tellers have not checked, and that no list counts until then."""
    not_listed: list[str]
    """Holders whose ballots are not on the closed list; empty while there is no list."""
    is_closed: bool
    """Whether there is a closed list."""
    tallies: list[str]
    """Tellers that have published a tally."""
    voids: list[str]
    """Tellers that declare the study void."""


class ProtectionFacts(TypedDict):
    """Costs of a study for a holder."""

    alone: Positive
    """Epsilon of a holder's records if all tellers, or all other holders, collude."""
    cost: Cost
    """What a holder spends."""
    risks: list[Risk]
    """What each coalition can learn about one unit, from the smallest coalition to the largest."""


class StudyFacts(ProtectionFacts):
    """Facts of a sealed study."""

    fingerprint: KeyFingerprint
    """32 hex digits that identify the study, to be compared by phone."""
    digest: Sha256
    """SHA-256 of the study."""
    design: Sha256
    """Fingerprint of the design."""
    noise: Literal["holders", "tellers"]
    """Who adds noise."""
    holders: list[str]
    """Names of all holders, as on the roster."""
    tellers: list[str]
    """Names of all tellers."""
    owner: str | None
    """Who closes the list; null if every teller may."""
    min_holders: PositiveCount
    """Smallest number of ballots to tally."""
    colluding: Count
    """Number of holders that may collude with dishonest tellers."""
    n_levels: PositiveCount
    """Number of turnouts that a ballot has noise for."""
    last_day: str | None
    """Last day to cast ballots, UTC; null if the closed list ends that."""
    accepted: list[str]
    """Tellers that have signed the study."""
    is_open: bool
    """Whether all tellers have signed it."""


class StudyAnswer(Answer):
    """An answer about one sealed study."""

    fingerprint: KeyFingerprint
    """32 hex digits that identify the study, to be compared by phone."""


# ---------------------------------------------------------------- sealed studies: commands


class StudyDemoAnswer(DemoAnswer):
    """The result of the demo."""


class StudyEnrolAnswer(Answer, WrittenFacts):
    """A new card."""

    card: Card
    """The card."""
    study_key_file: str | None
    """File of a teller's new key, which is secret."""


class StudyMakeAnswer(Answer, WrittenFacts, StudyFacts):
    """A new study."""


class StudyShowAnswer(Answer, StudyFacts):
    """A study and its progress."""

    mailbox: Mailbox
    """Files in the folder of the study."""
    next: list[str]
    """Next steps."""


class StudyAcceptAnswer(StudyAnswer, WrittenFacts):
    """A study that a teller accepted."""

    teller: str
    """Name of the teller."""
    accepted: list[str]
    """Tellers that have signed the study."""
    is_open: bool
    """Whether all tellers have signed it."""


class BallotFacts(ProtectionFacts):
    """Facts of a ballot."""

    fingerprint: KeyFingerprint
    """32 hex digits that identify the study, to be compared by phone."""
    holder: str
    """Name of the holder on the roster."""
    was_cast: bool
    """Whether the ballot was cast before: then nothing is read or spent."""


class StudySealRealRun(RealRunAnswer, WrittenFacts, BallotFacts):
    """A ballot."""

    digest: Sha256
    """SHA-256 of the ballot."""


class StudySealDryRun(DryRunAnswer, BallotFacts):
    """A dry run."""


StudySealAnswer = StudySealRealRun | StudySealDryRun


class StudyCheckAnswer(KeyVerifyAnswer):
    """Whether files of a study are valid."""


class StudyCloseAnswer(StudyAnswer, WrittenFacts):
    """A closed list."""

    digest: Sha256
    """SHA-256 of the list."""
    holders: list[str]
    """Holders whose ballots count."""
    missing: list[str]
    """Holders whose ballots do not count."""
    left_out: list[str]
    """Of these, holders whose ballots do not add up: the holder or a teller is wrong."""
    unopened: list[UnopenedBallot]
    """Of these, ballots that not all tellers have checked, left out with --leave-out."""


class StudyTallyAnswer(StudyAnswer, WrittenFacts):
    """A tally."""

    teller: str
    """Name of the teller."""
    list: Sha256
    """SHA-256 of the closed list."""
    n_ballots: PositiveCount
    """Number of ballots."""


class StudyJoinAnswer(Answer, WrittenFacts, SketchFacts):
    """The total of a study."""

    study: KeyFingerprint
    """32 hex digits that identify the study, to be compared by phone."""


class StudyDestroyAnswer(StudyAnswer):
    """Keys and ballots that were destroyed."""

    study_keys: list[str]
    """Files of keys that were overwritten and removed."""
    ballots: list[str]
    """Files of ballots that were removed."""
    n_kept: Count
    """Number of ballots in the state of this user that were replaced by their digests."""


class StudyRehearseAnswer(StudyAnswer):
    """A rehearsal."""

    turnout: PositiveCount
    """Number of ballots that were tallied."""
    ballot_bytes: PositiveCount
    """Size of a ballot."""
    noise_ratio: NonNegative
    """Standard deviation of the total's noise over that of its receipt."""
    steps: list[str]
    """Steps of the rehearsal."""


class StudyVoidAnswer(StudyAnswer, WrittenFacts):
    """A study that a teller declares void."""

    teller: str
    """Name of the teller whose study key was destroyed."""


class StudySettleAnswer(StudyAnswer):
    """Ledger entries of a study that has ended."""

    holder: str
    """Name of the ballot's holder."""
    n_entries: Count
    """Number of entries that were ended."""
    is_void: bool
    """Whether they were ended because the study is void."""
    is_free: bool
    """Whether the total costs them nothing."""
    is_alone_free: bool
    """Whether "alone" costs them nothing either."""


class InspectedCard(InspectedFile):
    """A card of a sealed study."""

    kind: Literal["card"]
    """Kind of the file."""
    card: Card
    """The card."""


class InspectedStudy(InspectedFile, StudyFacts):
    """A sealed study."""

    kind: Literal["study"]
    """Kind of the file."""


class InspectedBallot(InspectedFile):
    """A ballot of a sealed study."""

    kind: Literal["ballot"]
    """Kind of the file."""
    study: KeyFingerprint
    """32 hex digits that identify the study."""
    fingerprint: KeyFingerprint
    """Fingerprint of the holder's key."""
    digest: Sha256
    """SHA-256 of the ballot."""


class InspectedClosedList(InspectedFile):
    """A closed list of a sealed study."""

    kind: Literal["closed-list"]
    """Kind of the file."""
    study: KeyFingerprint
    """32 hex digits that identify the study."""
    digest: Sha256
    """SHA-256 of the list."""
    n_ballots: PositiveCount
    """Number of ballots."""


class InspectedTally(InspectedFile):
    """A tally of a sealed study."""

    kind: Literal["tally"]
    """Kind of the file."""
    study: KeyFingerprint
    """32 hex digits that identify the study."""
    fingerprint: KeyFingerprint
    """Fingerprint of the teller's key."""
    list: Sha256
    """SHA-256 of the closed list."""
    n_ballots: PositiveCount
    """Number of ballots."""


InspectStudyAnswer = (
    InspectedCard | InspectedStudy | InspectedBallot | InspectedClosedList | InspectedTally
)


# ---------------------------------------------------------------- collector


class Upload(TypedDict):
    """File that the collector has stored."""

    file: str
    """Path of the file."""
    kind: str
    """Kind of the file."""
    digest: Sha256
    """SHA-256 of the file."""
    is_new: bool
    """Whether the file is new to the collector."""
    event: PositiveCount
    """Number of the upload's event in the chain."""
    event_digest: Sha256
    """SHA-256 of the event."""


class StudyRow(TypedDict):
    """A study of the collector."""

    name: str
    """Name of the study in addresses."""
    title: str
    """Title of the study."""
    is_sealed: bool
    """Whether only the total becomes known."""
    state: StudyState
    """State of the study."""
    n_sites: Count
    """Number of sites."""
    n_reported: Count
    """Number of sites that have reported."""


class MemberRow(TypedDict):
    """A member of the collector."""

    name: str
    """Name of the member."""
    makes_studies: bool
    """Whether the member may make studies."""
    is_revoked: bool
    """Whether the member's token was revoked."""
    roles: dict[str, list[Role]]
    """Roles by study."""


class StoreFacts(TypedDict):
    """Contents of a store."""

    n_chains: PositiveCount
    """Number of chains of events: one for each study, and that of the collector."""
    n_events: Count
    """Number of events."""
    n_uploads: Count
    """Number of uploads."""


class CollectorDemoAnswer(DemoAnswer):
    """The result of the demo."""


class CollectorServeAnswer(Answer):
    """A collector that was stopped, or only checked."""

    address: str | None
    """Address that it listened at; null with --check."""
    database: Literal["sqlite", "postgresql"]
    """Kind of database."""


class CollectorRenewTokenAnswer(Answer, WrittenFacts):
    """A new token."""

    token: str | None
    """The token, shown once; null if it was written to a file."""
    member: str
    """Name of the member."""


class CollectorAddMemberAnswer(CollectorRenewTokenAnswer):
    """A new member, or new roles of a member."""

    study: str | None
    """Study of the roles."""
    roles: list[Role]
    """Roles in the study."""


class CollectorAddStudyAnswer(Answer):
    """A new study."""

    study: str
    """Name of the study in addresses."""
    is_sealed: bool
    """Whether only the total becomes known."""
    owner: str
    """Member who owns the study."""
    design: Sha256
    """Fingerprint of the design."""


class CollectorPushAnswer(Answer):
    """Uploaded files."""

    study: str
    """Name of the study at the collector."""
    pushed: list[Upload]
    """Files that the collector has stored."""


class CollectorPullAnswer(Answer, WrittenFacts):
    """Downloaded files."""

    unchanged: list[str]
    """Files that the folder already had, with the same bytes."""
    study: str
    """Name of the study at the collector."""
    state: StudyState
    """State of the study."""
    n_events: Count
    """Number of events."""
    head: Sha256
    """SHA-256 of the last event."""


class CollectorShowAnswer(Answer):
    """Studies and members of a collector."""

    studies: list[StudyRow]
    """All studies."""
    members: list[MemberRow]
    """All members."""


class CollectorCheckAnswer(Answer, StoreFacts):
    """An intact store."""


class CollectorBackupAnswer(Answer, WrittenFacts, StoreFacts):
    """A backup of a store."""


class CollectorRestoreAnswer(Answer, StoreFacts):
    """A store that was restored from a backup."""


class CollectorRevokeAnswer(Answer):
    """A member whose token was revoked."""

    member: str
    """Name of the member."""
