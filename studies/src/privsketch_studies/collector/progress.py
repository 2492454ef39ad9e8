"""How far a study is, who has reported, and what is expected next: of one member, or of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privsketch_studies.collector import mailbox
from privsketch_studies.collector.members import Member, members_of
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.studies import Study
from privsketch_studies.collector.uploads import SKETCH, Upload, kept_in, list_uploads


@dataclass(frozen=True)
class Step:
    """Something that is expected of a member; of anybody, if `member` is None."""

    member: str | None
    text: str


@dataclass(frozen=True)
class Site:
    """A site of a study, and when it handed in what counts: a sketch or a ballot."""

    member: str
    at: int | None


@dataclass(frozen=True)
class Progress:
    """How far a study is.

    `state` is "open" or "closed"; of a sealed study also "enrolling", "frozen", "tallied", "void".
    """

    state: str
    sites: tuple[Site, ...]
    steps: tuple[Step, ...]

    def steps_of(self, member: str) -> tuple[Step, ...]:
        """What is expected of one member."""
        return tuple(step for step in self.steps if step.member in (None, member))


def progress_of(store: Store, study: Study) -> Progress:
    """How far a study is, from what was handed in."""
    there, people = list_uploads(store, study.name), members_of(store, study.name)
    counted = "ballot" if study.is_sealed else SKETCH
    times = {one.member: one.at for one in there if one.kind == counted}
    sites = tuple(
        Site(member.name, times.get(member.name))
        for member in people
        if "site" in member.roles_in(study.name) or member.name in times
    )
    if study.is_sealed:
        with store.reading() as connection:
            state = mailbox.state_of(kept_in(connection, study.name))
        return Progress(state, sites, tuple(_sealed_steps(study, state, there, people)))
    steps = []
    if study.state == "open":
        steps += [
            Step(site.member, "hand in your sketch (privsketch sketch, privsketch collector push)")
            for site in sites
            if site.at is None
        ]
        if sites and not steps:
            text = "close the study: all sites have reported"
            steps += [Step(name, text) for name in _in_role(study, people, "owner")]
    elif times:
        steps.append(
            Step(None, "learn from the total (privsketch collector pull, privsketch learn)")
        )
    return Progress(study.state, sites, tuple(steps))


def _sealed_steps(
    study: Study, state: str, there: Sequence[Upload], people: Sequence[Member]
) -> list[Step]:
    """What is expected in a sealed study, by the files that are there."""
    tellers, sites = (_in_role(study, people, role) for role in ("teller", "site"))
    owners = _in_role(study, people, "owner")

    def missing(kind: str, names: Sequence[str], text: str) -> list[Step]:
        done = {one.member for one in there if one.kind == kind}
        return [Step(name, text) for name in names if name not in done]

    if state == "enrolling":
        steps = missing(
            "card", sites, "enrol (privsketch study enrol --accept-alone), push your card"
        )
        steps += missing("card", tellers, "enrol (privsketch study enrol --teller), push your card")
        text = "pull the cards, make the study of them (privsketch study make), push it"
        return steps or [Step(name, text) for name in owners]
    if state == "frozen":
        return missing(
            "accept", tellers, "accept the study (privsketch study accept), push the signature"
        )
    if state == "open":
        steps = missing(
            "ballot", sites, "seal your records (privsketch study seal), push the ballot"
        )
        text = "say which ballots you can open (privsketch study check --key), push the answer"
        steps += missing("checked", tellers, text)
        text = "close the list when all are in (privsketch study close), push it"
        return steps + [Step(name, text) for name in owners]
    if state == "closed":
        return missing(
            "tally", tellers, "tally with your study key (privsketch study tally), push it"
        )
    if state == "tallied":
        steps = [Step(None, "join the tallies (privsketch study join), or pull the total")]
        return steps + [Step(name, "destroy your study key, and the ballots") for name in tellers]
    return [Step(None, "the study is void: settle your ledger (privsketch study settle)")]


def _in_role(study: Study, people: Sequence[Member], role: str) -> list[str]:
    return [one.name for one in people if role in one.roles_in(study.name) and not one.is_revoked]
