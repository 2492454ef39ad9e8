"""Progress of a study: its state, which sites have reported, and the next steps of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privsketch_studies.collector import mailbox
from privsketch_studies.collector.kinds import SKETCH
from privsketch_studies.collector.members import Member, members_of
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.studies import Study
from privsketch_studies.collector.uploads import Upload, files_in, list_uploads

CLOSE = "close the study: all sites have reported, and the comparison of them has no alarm"
COMPARE_AND_CLOSE = (
    "compare the sites (privsketch compare), and close the study if there is no alarm: all sites "
    "have reported"
)


@dataclass(frozen=True)
class Step:
    """Next step of a member, or of any member if none is named."""

    member: str | None
    text: str


@dataclass(frozen=True)
class Site:
    """Site of a study, and the time of its sketch or ballot if it has reported."""

    member: str
    at: int | None


@dataclass(frozen=True)
class Progress:
    """State, sites and next steps of a study.

    `state` is "open" or "closed"; of a sealed study also "enrolling", "frozen", "tallied", "void".
    """

    state: str
    sites: tuple[Site, ...]
    steps: tuple[Step, ...]

    @property
    def n_reported(self) -> int:
        """Number of sites that have reported."""
        return sum(site.at is not None for site in self.sites)

    def steps_of(self, member: str) -> tuple[Step, ...]:
        """Return the next steps of one member."""
        return tuple(step for step in self.steps if step.member in (None, member))


def progress_of(store: Store, study: Study) -> Progress:
    """Return the progress of a study, which follows from its uploads."""
    files, people = list_uploads(store, study.name), members_of(store, study.name)
    counted = "ballot" if study.is_sealed else SKETCH
    times = {file.member: file.at for file in files if file.kind == counted}
    sites = tuple(
        Site(member.name, times.get(member.name))
        for member in people
        if "site" in member.roles_in(study.name) or member.name in times
    )
    if study.is_sealed:
        with store.reading() as connection:
            state = mailbox.state_of(files_in(connection, study.name))
        return Progress(state, sites, tuple(_sealed_steps(study, state, files, people)))
    steps = []
    if study.state == "open":
        text = "make your sketch (privsketch sketch), push it (privsketch collector push)"
        steps += [Step(site.member, text) for site in sites if site.at is None]
        if sites and not steps:
            steps += [Step(name, COMPARE_AND_CLOSE) for name in _in_role(study, people, "owner")]
    elif times:
        steps.append(
            Step(None, "learn from the total (privsketch collector pull, privsketch learn)")
        )
    return Progress(study.state, sites, tuple(steps))


def _sealed_steps(
    study: Study, state: str, files: Sequence[Upload], people: Sequence[Member]
) -> list[Step]:
    """Return the next steps of a sealed study, by its state and files."""
    tellers, sites = (_in_role(study, people, role) for role in ("teller", "site"))
    owners = _in_role(study, people, "owner")

    def missing(kind: str, names: Sequence[str], text: str) -> list[Step]:
        uploaders = {file.member for file in files if file.kind == kind}
        return [Step(name, text) for name in names if name not in uploaders]

    if state == "enrolling":
        steps = missing(
            "card", sites, "enrol (privsketch study enrol --accept-alone), push your card"
        )
        steps += missing("card", tellers, "enrol (privsketch study enrol --teller), push your card")
        text = "pull the cards, make the study from them (privsketch study make), push it"
        return steps or [Step(name, text) for name in owners]
    if state == "frozen":
        return missing(
            "accept", tellers, "accept the study (privsketch study accept), push the signature"
        )
    if state == "open":
        steps = missing(
            "ballot", sites, "seal your records (privsketch study seal), push the ballot"
        )
        text = "check which ballots you can open (privsketch study check --key), push the result"
        steps += missing("checked", tellers, text)
        text = "close the list when all ballots are in (privsketch study close), push it"
        return steps + [Step(name, text) for name in owners]
    if state == "closed":
        return missing(
            "tally", tellers, "tally with your study key (privsketch study tally), push it"
        )
    if state == "tallied":
        steps = [Step(None, "join the tallies (privsketch study join), or pull the total")]
        text = "destroy your study key and the ballots (privsketch study destroy)"
        return steps + [Step(name, text) for name in tellers]
    return [Step(None, "the study is void: settle your ledger (privsketch study settle)")]


def _in_role(study: Study, people: Sequence[Member], role: str) -> list[str]:
    active = [person for person in people if not person.is_revoked]
    return [person.name for person in active if role in person.roles_in(study.name)]
