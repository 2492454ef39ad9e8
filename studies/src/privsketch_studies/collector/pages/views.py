"""Content of the pages of a study, read from the store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from privsketch._base.errors import FileError
from privsketch.pages.report.cost import receipt_words, release_details, several_records
from privsketch.pages.report.rendering import count_text
from privsketch_studies.collector import studies, uploads
from privsketch_studies.collector.chain import Event
from privsketch_studies.collector.collector import Collector, Total
from privsketch_studies.collector.events import events_of, require_unbroken
from privsketch_studies.collector.kinds import file_stem, kinds_taken
from privsketch_studies.collector.members import Member
from privsketch_studies.collector.pages import words
from privsketch_studies.collector.pages.fields import FileField, upload_fields
from privsketch_studies.collector.pages.jobs import COMPARE, JobQueue, JobRequest
from privsketch_studies.collector.progress import (
    CHECK_UNITS,
    CLOSING,
    COMPARE_AND_CLOSE,
    SETTLE_ALARM,
    Progress,
    Step,
    progress_of,
)
from privsketch_studies.collector.studies import Study
from privsketch_studies.errors import CollectorError

SHOWN_EVENTS = 200
MIN_COMPARED = 2  # sketches


@dataclass(frozen=True)
class Head:
    """Content at the top of every page of a study."""

    study: Study
    progress: Progress
    roles: tuple[str, ...]
    total: Total | None

    @property
    def state(self) -> tuple[str, str, str]:
        """Tone, word and sentence for the state of the study."""
        return words.state_of(self.study, self.progress.state)

    @property
    def is_owner(self) -> bool:
        """Whether the visitor owns the study."""
        return "owner" in self.roles

    @property
    def sees_single(self) -> bool:
        """Whether the visitor may see the sketches of other members."""
        return bool({"owner", "reader"} & set(self.roles))


@dataclass(frozen=True)
class Outlook:
    """Forecast of the total: what it is for, its verdict and its text."""

    label: str
    tone: str
    verdict: str
    text: str


def head_of(collector: Collector, member: Member, name: str) -> Head:
    """Return the head of a study's pages for one of its members; refuse others."""
    member.require_role(name)
    study = studies.find_study(collector.store, name)
    try:
        total = collector.totals.compute(name)
    except CollectorError as error:
        if error.refusal != "unknown":
            raise
        total = None
    return Head(study, progress_of(collector.store, study), member.roles_in(name), total)


def outlooks(head: Head, compared: SitesCompared) -> list[Outlook]:
    """Return forecasts of the total, now and later; none is good beside an alarm."""
    forecasts = _forecasts(head)
    if not compared.alarms:
        return forecasts
    text = "there is an alarm, and the forecast holds without it: {}"
    tone = words.VERDICTS["hopeless"]
    return [Outlook(one.label, tone, "in doubt", text.format(one.text)) for one in forecasts]


def _forecasts(head: Head) -> list[Outlook]:
    """Return forecasts of the total: now, and when all sites have reported."""
    design, n_sites, n_now = head.study.design, len(head.progress.sites), head.progress.n_reported
    if head.study.is_sealed:
        return [_outlook("The total, as planned", design.forecast())]
    forecasts = []
    if n_now:
        forecasts.append(
            _outlook(f"Now, with {count_text(n_now, 'site')}", design.forecast(n_holders=n_now))
        )
    if n_sites > n_now:
        label = f"When all {n_sites} have reported" if n_sites > 1 else "When it has reported"
        forecasts.append(_outlook(label, design.forecast(n_holders=n_sites)))
    return forecasts or [_outlook("One site", design.forecast())]


def _outlook(label: str, forecast: Any) -> Outlook:
    verdict, _, text = forecast.describe().partition(": ")
    return Outlook(label, words.VERDICTS[forecast.verdict], verdict, text)


def cost_of(head: Head) -> Markup:
    """Return HTML that says what the study costs a record."""
    if head.total is None:
        text = head.study.design.budget.describe()
        return Markup("<p>Every site spends this once: {}.</p>").format(text)
    receipt = head.total.sketch.receipt
    text = receipt_words(
        receipt,
        "the total",
        "Learning from the total costs nothing more; another sketch of the same records adds to "
        "the cost.",
        f"where clusters lie; {several_records(receipt)}and everything stated as public in the "
        "design",
    )
    return Markup(text + release_details(receipt))  # noqa: S704 (escaped by the report)


def files_of(collector: Collector, head: Head, member: Member) -> list[tuple[uploads.Upload, bool]]:
    """Return the uploads of a study, and whether this member may download each."""
    files = uploads.list_uploads(collector.store, head.study.name, with_set_aside=True)
    sees_all = head.study.is_sealed or head.sees_single
    return [(upload, sees_all or upload.member == member.name) for upload in files]


def uploadable(head: Head, member: Member) -> tuple[str, ...]:
    """Return the kinds of files that the study takes of this member now."""
    sites = head.progress.sites
    if not head.study.is_sealed and all(site.at for site in sites if site.member == member.name):
        return ()
    return kinds_taken(head.progress.state, head.roles, is_sealed=head.study.is_sealed)


def fields_of(collector: Collector, head: Head, member: Member) -> list[FileField]:
    """Return the fields for the files that the study takes of this member now."""
    kinds = uploadable(head, member)
    max_bytes, _ = uploads.limits(collector.store, member, head.study.name)
    n_content = uploads.content_sizes(collector.store, head.study)
    return upload_fields(kinds, n_content, max_bytes, is_signed=member.key is not None)


@dataclass(frozen=True)
class OwnFiles:
    """What a member has uploaded to a study, and uploads next.

    Attributes
    ----------
    kinds : tuple of str
        Kinds of the files that the next steps end with.
    signer : str
        Fingerprint of the key on the member's card; an empty text without one.
    aside : tuple of Upload
        Uploads that an owner has set aside, oldest first.
    tellers : tuple of (str, str)
        Tellers of a sealed study: names of their files, and fingerprints.
    is_alarmed : bool
        Whether the comparison of the sites has an alarm about this member.
    """

    kinds: tuple[str, ...]
    signer: str
    aside: tuple[uploads.Upload, ...]
    tellers: tuple[tuple[str, str], ...]
    is_alarmed: bool

    def n_aside(self, kind: str) -> int:
        """Return the number of files of a kind that were set aside."""
        return sum(upload.kind == kind for upload in self.aside)

    @property
    def is_teller(self) -> bool:
        """Whether the key on the member's card is that of a teller."""
        return self.signer in {fingerprint for _, fingerprint in self.tellers}

    @property
    def missing(self) -> uploads.Upload | None:
        """The last upload that was set aside and has no other in its place."""
        return self.aside[-1] if self.aside and self.aside[-1].kind in self.kinds else None


def own_files(
    collector: Collector, head: Head, member: Member, compared: SitesCompared
) -> OwnFiles:
    """Return what a member has uploaded, and uploads next."""
    store, name = collector.store, head.study.name
    files = uploads.list_uploads(store, name, with_set_aside=True)
    own = [file for file in files if file.member == member.name]
    cards = [file.signer or "" for file in own if file.kind == "card" and not file.aside_because]
    replaced = uploads.REPLACED_BY_NEWER
    aside = tuple(file for file in own if file.aside_because not in (None, replaced))
    kinds = (step.kind for step in head.progress.steps_of(member.name))
    sealed = uploads.sealed_study(store, head.study)
    tellers = () if sealed is None else sealed.tellers
    return OwnFiles(
        tuple(kind for kind in kinds if kind is not None),
        cards[-1] if cards else "",
        aside,
        tuple((file_stem(card.name), card.key.fingerprint) for card in tellers),
        member.name in compared.alarmed and head.progress.state == "open",
    )


@dataclass(frozen=True)
class SitesCompared:
    """Comparison of the sites of an open study.

    `state` is "none" (there is nothing to compare), "unknown" (nobody asked for it), "waiting",
    "failed" or "done". `alarms` are lines about sites in other units or with a shift, and `alarmed`
    are the members who sent them.
    """

    state: str
    alarms: tuple[str, ...] = ()
    alarmed: tuple[str, ...] = ()


def sites_compared(
    collector: Collector, jobs: JobQueue, study: Study, parts: tuple[str, ...]
) -> SitesCompared:
    """Return the comparison of these uploads of an open study, as far as it is known."""
    if study.is_sealed or len(parts) < MIN_COMPARED:
        return SitesCompared("none")
    job = jobs.find(JobRequest(study.name, parts, COMPARE))
    if job is None:
        return SitesCompared("unknown")
    if not job.is_over:
        return SitesCompared("waiting")
    if job.answer is None:
        return SitesCompared("failed")
    facts = job.answer["facts"]
    sources = set(facts.get("sources", ()))
    files = uploads.list_uploads(collector.store, study.name) if sources else []
    alarmed = tuple(file.member for file in files if file.whose in sources)
    return SitesCompared("done", tuple(facts["alarms"]), alarmed)


def compare_sites(collector: Collector, jobs: JobQueue, head: Head) -> SitesCompared:
    """Return the comparison of the sites of a study; begin it if it is missing.

    It is computed once for the same uploads. Its alarms are for all members: the sketches are
    private, and the total of the same sketches says them too.
    """
    if head.study.is_sealed or head.total is None:
        return SitesCompared("none")
    name, parts = head.study.name, head.total.parts
    compared = sites_compared(collector, jobs, head.study, parts)
    if compared.state != "unknown":
        return compared
    try:
        jobs.require_size(uploads.total_bytes(collector.store, name))
        sketches = [sketch.to_bytes() for sketch in collector.totals.sketches(head.study)]
        jobs.submit(JobRequest(name, parts, COMPARE), head.study.title, sketches)
    except CollectorError as error:
        if error.refusal != "often":  # too much to do at the moment, not too large for ever
            return SitesCompared("failed")
    return SitesCompared("waiting")


def require_closable(compared: SitesCompared, *, in_spite: bool) -> None:
    """Refuse to close a study beside an alarm, or before it is known whether there is one.

    An owner who has asked the site may close `in_spite` of that. A comparison that failed, or that
    needs more sketches, stops nobody.
    """
    if in_spite:
        return
    if compared.alarms:
        raise CollectorError(
            f"the comparison of the sites has an alarm: {'; '.join(compared.alarms)}; ask the "
            "site, set its sketch aside, or close the study in spite of the alarm, at the end of "
            "its page",
            "closed",
        )
    if compared.state in ("unknown", "waiting"):
        raise CollectorError(
            "the sites are being compared, and there may be an alarm; load the page of the study "
            "again in some seconds",
            "closed",
        )


def own_steps(head: Head, member: Member, compared: SitesCompared) -> list[Step]:
    """Return the next steps of a member; none proposes to close a study beside an alarm."""
    steps = list(head.progress.steps_of(member.name))
    is_closing = head.is_owner and head.progress.state == "open"
    if not compared.alarms:
        closing = CLOSING[compared.state]
        return [
            replace(step, text=closing) if step.text == COMPARE_AND_CLOSE else step
            for step in steps
        ]
    steps = [step for step in steps if step.text != COMPARE_AND_CLOSE]
    if is_closing:
        steps.insert(0, Step(member.name, SETTLE_ALARM))
    if member.name in compared.alarmed and head.progress.state == "open":
        steps.insert(0, Step(member.name, CHECK_UNITS))
    return steps


@dataclass(frozen=True)
class History:
    """Events of a study, newest first; `broken` says which one was altered, if any."""

    events: list[Event]
    n_events: int
    head: str
    broken: str | None


def history_of(collector: Collector, name: str) -> History:
    """Return the events of a study, after a check of the whole chain."""
    broken = None
    try:
        events = require_unbroken(collector.store, name)
    except FileError as error:
        events, broken = events_of(collector.store, name), str(error)
    head = events[-1].digest if events else ""
    return History(events[: -SHOWN_EVENTS - 1 : -1], len(events), head, broken)
