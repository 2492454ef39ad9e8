"""Progress of a study: its state, which sites have reported, and the next steps of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from privsketch_studies.collector import mailbox
from privsketch_studies.collector.kinds import SKETCH
from privsketch_studies.collector.members import Member, members_of
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.studies import Study
from privsketch_studies.collector.uploads import files_in, list_uploads

COMPARE_AND_CLOSE = (
    "compare the sites (privsketch compare), and close the study if there is no alarm: all sites "
    "have reported"
)
# What the step above is on a page without an alarm, by what is known of the comparison there.
CLOSING = {
    "none": "close the study: all sites have reported",
    "unknown": "see on the page of the study whether its sites differ: all have reported",
    "waiting": "wait for the comparison of the sites, which is being computed: all have reported",
    "failed": COMPARE_AND_CLOSE,
    "done": "close the study: all sites have reported, and the comparison of them has no alarm",
}
SETTLE_ALARM = (
    "settle the alarm: ask the site for its units, set its sketch aside, and let it upload another "
    "one, which spends its budget again"
)
CHECK_UNITS = (
    "check the units of your table, because the comparison of the sites has an alarm about your "
    "sketch (privsketch check DESIGN TABLE); if the alarm is right, ask the owner to set your "
    "sketch aside, and hand in another one, which spends the budget again; if it is wrong, tell "
    "the owner so"
)
_MAX_NAMES = 5  # of members in one step
_MIN_TELLERS = 2  # of a study


@dataclass(frozen=True)
class Step:
    """Next step of a member, or of any member if none is named.

    `kind` is the kind of file that the step ends with, if there is one.
    """

    member: str | None
    text: str
    kind: str | None = None


@dataclass(frozen=True)
class Site:
    """Site of a study, and the time of its sketch or ballot if it has reported.

    `problem` says why its ballot does not count, or does not count yet.
    """

    member: str
    at: int | None
    problem: str | None = None


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

    @property
    def n_left_out(self) -> int:
        """Number of sites whose ballot is not on the closed list."""
        return 0 if self.state == "open" else sum(bool(site.problem) for site in self.sites)

    def problem_of(self, member: str) -> str | None:
        """Return why a member's ballot does not count, or does not count yet; None if it does."""
        return next((site.problem for site in self.sites if site.member == member), None)

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
            kept = files_in(connection, study.name)
        state, problems = mailbox.state_of(kept), _ballot_problems(kept)
        sites = tuple(replace(site, problem=problems.get(site.member)) for site in sites)
        return Progress(state, sites, tuple(_sealed_steps(study, state, kept, people, sites)))
    steps = []
    if study.state == "open":
        text = "make your sketch (privsketch sketch), push it (privsketch collector push)"
        steps += [Step(site.member, text, SKETCH) for site in sites if site.at is None]
        if sites and not steps:
            steps += [Step(name, COMPARE_AND_CLOSE) for name in _in_role(study, people, "owner")]
    elif times:
        steps.append(
            Step(None, "learn from the total (privsketch collector pull, privsketch learn)")
        )
    return Progress(study.state, sites, tuple(steps))


def _ballot_problems(files: Sequence[mailbox.File]) -> dict[str, str]:
    """Return why ballots do not count, or do not count yet, by their members."""
    members = {file.digest: file.member for file in files if file.kind == "ballot"}
    if mailbox.state_of(files) != "open":
        left_out = mailbox.left_out_ballots(files)
        return {members[digest]: reason for digest, reason in left_out.items()}
    return {
        members[digest]: f"{_names(tellers)} did not check it yet; without that it does not count"
        for digest, tellers in mailbox.unchecked_ballots(files).items()
    }


def _sealed_steps(
    study: Study,
    state: str,
    files: Sequence[mailbox.File],
    people: Sequence[Member],
    sites: Sequence[Site],
) -> list[Step]:
    """Return the next steps of a sealed study, by its state and files."""
    tellers, holders = (_in_role(study, people, role) for role in ("teller", "site"))
    owners = _in_role(study, people, "owner")

    def missing(kind: str, names: Sequence[str], text: str) -> list[Step]:
        uploaders = {file.member for file in files if file.kind == kind}
        return [Step(name, text, kind) for name in names if name not in uploaders]

    if state == "enrolling":
        steps = missing(
            "card", holders, "enrol (privsketch study enrol --accept-alone), push your card"
        )
        steps += missing("card", tellers, "enrol (privsketch study enrol --teller), push your card")
        return steps + [_making_step(name, steps, holders, tellers) for name in owners]
    if state == "frozen":
        return missing(
            "accept", tellers, "accept the study (privsketch study accept), push the signature"
        )
    if state == "open":
        steps = missing(
            "ballot", holders, "seal your records (privsketch study seal), push the ballot"
        )
        late = [step.member for step in steps if step.member is not None]
        return [*steps, *_checking_steps(files, late), *_closing_steps(files, late, owners)]
    if state == "closed":
        return missing(
            "tally", tellers, "tally with your study key (privsketch study tally), push it"
        )
    if state == "tallied":
        steps = [Step(None, "join the tallies (privsketch study join), or pull the total")]
        text = "destroy your study key and the ballots (privsketch study destroy)"
        steps += [Step(name, text) for name in tellers]
        text = (
            "your ballot does not count: if you keep a ledger, end its entry with the tallies "
            "(privsketch study settle --tally)"
        )
        return steps + [Step(site.member, text) for site in sites if site.problem]
    return [Step(None, "the study is void: settle your ledger (privsketch study settle)")]


def _making_step(
    owner: str, enrolling: Sequence[Step], holders: Sequence[str], tellers: Sequence[str]
) -> Step:
    """Return the step of an owner whose study is made once all have enrolled."""
    late = [step.member for step in enrolling if step.member is not None]
    if not holders or len(tellers) < _MIN_TELLERS:
        return Step(owner, f"add sites and {_MIN_TELLERS} or more tellers, who enrol then")
    if late:
        return Step(owner, f"wait for {_names(late)} to enrol, and make the study then")
    text = "pull the cards, make the study from them (privsketch study make), push it"
    return Step(owner, text, "study")


def _checking_steps(files: Sequence[mailbox.File], late: Sequence[str]) -> list[Step]:
    """Return the steps of tellers who have not stated that they can open ballots that are in."""
    study = mailbox.sealed_study(files)
    ballots = {file.digest: file.member for file in files if file.kind == "ballot"}
    if study is None or len(ballots) < study.min_holders:
        return []  # a check now would have to be repeated
    unchecked: dict[str, list[str]] = {}
    for digest, tellers in mailbox.unchecked_ballots(files).items():
        for name in tellers:
            unchecked.setdefault(name, []).append(ballots[digest])
    have_checked = {file.member for file in files if file.kind == "checked"}
    steps = []
    for name, holders in unchecked.items():
        text = "check which ballots you can open (privsketch study check --key), push the result"
        if name in have_checked:
            text = (
                f"check again (privsketch study check --key), push the result: your last check "
                f"does not have the ballot of {_names(holders)}; if it cannot be opened, tell the "
                "owner"
            )
        elif late:
            text += f"; the ballot of {_names(late)} is not in yet"
        steps.append(Step(name, text, "checked"))
    return steps


def _closing_steps(
    files: Sequence[mailbox.File], late: Sequence[str], owners: Sequence[str]
) -> list[Step]:
    """Return the steps of owners, who close the list when all ballots that are in are checked."""
    study = mailbox.sealed_study(files)
    ballots = {file.digest: file.member for file in files if file.kind == "ballot"}
    unchecked = mailbox.unchecked_ballots(files)
    if study is None:
        return []
    kind = None
    if len(ballots) < study.min_holders:
        text = f"wait for ballots: {study.min_holders} or more are needed"
    elif unchecked:
        tellers = list(dict.fromkeys(name for names in unchecked.values() for name in names))
        holders = _names([ballots[digest] for digest in unchecked])
        text = (
            f"wait for {_names(tellers)} to check the ballot of {holders}, and close the list "
            "then; if it cannot be opened, privsketch study close --leave-out closes without it"
        )
    else:
        kind, text = "closed", "close the list (privsketch study close), push it"
        text += f", when the ballot of {_names(late)} is in, too" if late else ""
        text += ": all ballots that are in are checked"
    return [Step(name, text, kind) for name in owners]


def _names(names: Sequence[str]) -> str:
    """Return names in one phrase, the first few of many."""
    shown = list(names[:_MAX_NAMES])
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _in_role(study: Study, people: Sequence[Member], role: str) -> list[str]:
    active = [person for person in people if not person.is_revoked]
    return [person.name for person in active if role in person.roles_in(study.name)]
