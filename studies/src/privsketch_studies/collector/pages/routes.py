"""Routes of the pages that show something; none of them changes anything."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from markupsafe import Markup

from privsketch._base.formats import canonical_json
from privsketch.facts.columns import Cycle
from privsketch.facts.labels import Labelled
from privsketch_studies.collector import members, studies, uploads
from privsketch_studies.collector.collector import Collector
from privsketch_studies.collector.events import events_of
from privsketch_studies.collector.pages import views
from privsketch_studies.collector.pages.access import (
    CurrentVisit,
    Visit,
    current_visit,
    local_address,
)
from privsketch_studies.collector.pages.commands import commands_of
from privsketch_studies.collector.pages.fields import DESIGN_FIELD, KEY_FIELD
from privsketch_studies.collector.pages.jobs import (
    COLUMN_TASKS,
    COMPARE,
    JobQueue,
    JobRequest,
    LearningJob,
)
from privsketch_studies.collector.pages.rendering import download, page, style_sheet
from privsketch_studies.collector.pages.words import TASK_NAMES
from privsketch_studies.collector.progress import SETTLE_ALARM, progress_of
from privsketch_studies.collector.web.access import CurrentCollector, Digest, StudyName
from privsketch_studies.errors import CollectorError

pages = APIRouter(include_in_schema=False)
Task = Annotated[str, Path(pattern=r"^(kmeans|gaussian-mixture|pca|regression|summary)$")]
Number = Annotated[str, Path(pattern=r"^([1-9][0-9]{0,3}|auto|default)$")]
_REFRESH_SECONDS = 2


def jobs_of(request: Request) -> JobQueue:
    """Return the learning jobs of the collector."""
    jobs: JobQueue = request.app.state.jobs
    return jobs


def head_of(study: StudyName, visit: CurrentVisit) -> views.Head:
    """Return the head of a study's pages; refuse visitors who are no members of the study."""
    return views.head_of(visit.collector, visit.member, study)


Jobs = Annotated[JobQueue, Depends(jobs_of)]
Head = Annotated[views.Head, Depends(head_of)]


def number_of(text: str) -> int | str | None:
    """Return the number in an address: a number, "auto", or None for the default."""
    return None if text == "default" else text if text == "auto" else int(text)


@pages.get("/style.css")
async def style() -> Response:
    """Return the style sheet; its address changes with its content."""
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(style_sheet(), media_type="text/css", headers=headers)


@pages.get("/")
async def first_page(request: Request, collector: CurrentCollector, queue: Jobs) -> Response:
    """Show the studies of the visitor."""
    try:
        visit = await current_visit(request)
    except CollectorError as error:
        if error.refusal != "token":
            raise
        return RedirectResponse("/sign-in", 303)

    def work() -> list[dict[str, Any]]:
        own = studies.list_studies(collector.store, visit.member)
        return [_row(collector, queue, visit, study) for study in own]

    return page(request, "studies.html", visit, rows=await run_in_threadpool(work))


def _row(
    collector: Collector, queue: JobQueue, visit: Visit, study: studies.Study
) -> dict[str, Any]:
    """Return what a list of studies shows of one: what is known, and nothing is computed."""
    progress = progress_of(collector.store, study)
    head = views.Head(study, progress, visit.member.roles_in(study.name), None)
    parts = collector.totals.parts(study)
    compared = views.sites_compared(collector, queue, study, parts)
    name = visit.member.name
    jobs = [job for _, job in queue.of_total(study.name, parts) if job.answer is not None]
    steps = [step for step in views.own_steps(head, visit.member, compared) if step.member == name]
    return {"head": head, "compared": compared, "n_models": len(jobs), "steps": steps}


@pages.get("/sign-in")
async def sign_in_page(
    request: Request, next: Annotated[str, Query(max_length=400)] = "/"
) -> Response:
    """Show the form that asks for a token."""
    return page(request, "sign-in.html", None, next=local_address(next), failed=False)


@pages.get("/new")
async def new_study(request: Request, visit: CurrentVisit) -> Response:
    """Show the form for a new study."""
    if not visit.member.makes_studies:
        raise members.makers_only()
    return page(request, "new.html", visit, fields=[DESIGN_FIELD])


@pages.get("/studies/{study}")
def overview(request: Request, visit: CurrentVisit, head: Head, queue: Jobs) -> Response:
    """Show a study: its state, next steps, alarms, results, forecast and cost."""
    name, member = visit.member.name, visit.member
    compared = views.compare_sites(visit.collector, queue, head)
    own = views.own_files(visit.collector, head, member, compared)
    return page(
        request,
        "overview.html",
        visit,
        head=head,
        compared=compared,
        jobs=_jobs_of(queue, head),
        own_steps=views.own_steps(head, member, compared),
        other_steps=[step for step in head.progress.steps if step.member not in (None, name)],
        fields=views.fields_of(visit.collector, head, member),
        own=own,
        commands=commands_of(head, member, str(request.base_url), own),
        outlooks=views.outlooks(head, compared),
        settle_alarm=SETTLE_ALARM,
        cost=views.cost_of(head),
    )


@pages.get("/studies/{study}/files")
def files(request: Request, visit: CurrentVisit, head: Head) -> Response:
    """Show the uploads of a study, with downloads."""
    rows = views.files_of(visit.collector, head, visit.member)
    return page(request, "files.html", visit, head=head, files=rows)


@pages.get("/studies/{study}/people")
def people(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Show the members of a study, with forms for owners."""
    return people_page(request, visit, study)


def people_page(
    request: Request,
    visit: Visit,
    study: str,
    new_token: tuple[str, str] | None = None,
) -> Response:
    """Show the members of a study; `new_token` is a name with a token that is shown once."""
    head = views.head_of(visit.collector, visit.member, study)
    people = members.members_of(visit.store, study)
    return page(
        request,
        "people.html",
        visit,
        head=head,
        people=people,
        new_token=new_token,
        fields=[KEY_FIELD],
    )


@pages.get("/studies/{study}/history")
def history(request: Request, study: StudyName, visit: CurrentVisit, head: Head) -> Response:
    """Show the events of a study, and whether their chain is intact."""
    rows = views.history_of(visit.collector, study)
    return page(request, "history.html", visit, head=head, history=rows)


# ---------------------------------------------------------------- models


@pages.get("/studies/{study}/models")
def models(request: Request, visit: CurrentVisit, head: Head, queue: Jobs) -> Response:
    """Show the models that were learned from the total, with a form for more."""
    jobs = _jobs_of(queue, head)
    is_waiting = any(not job.is_over for _, job in jobs)
    return page(
        request,
        "models.html",
        visit,
        head=head,
        compared=views.compare_sites(visit.collector, queue, head),
        jobs=jobs,
        refresh=_REFRESH_SECONDS if is_waiting else None,
        tasks=_tasks(head),
        targets=targets_of(head),
        groups=groups_of(head),
    )


def _jobs_of(queue: JobQueue, head: views.Head) -> list[tuple[JobRequest, LearningJob]]:
    """Return the jobs that learn from the current total, by task and number."""
    if head.total is None:
        return []
    jobs = queue.of_total(head.study.name, head.total.parts)
    return sorted(jobs, key=lambda pair: (list(TASK_NAMES).index(pair[0].task), _order(pair[0])))


def _order(job_request: JobRequest) -> int:
    return job_request.number if isinstance(job_request.number, int) else 0


def _tasks(head: views.Head) -> dict[str, str]:
    """Return the tasks with a number that sketches of the design can be used for, with names."""
    tasks = head.study.design.mapping.tasks
    return {
        name: text
        for name, text in TASK_NAMES.items()
        if name in tasks and name not in COLUMN_TASKS
    }


def targets_of(head: views.Head) -> dict[int, str]:
    """Return the columns that a regression can explain, by their place; none for other sketches."""
    design = head.study.design
    if "regression" not in design.mapping.tasks:
        return {}
    if design.schema is None:
        return dict(enumerate(design.columns or (), 1))
    columns = enumerate(design.schema.columns, 1)
    return {place: column.name for place, column in columns if not isinstance(column, Cycle)}


def groups_of(head: views.Head) -> dict[int, str]:
    """Return the columns whose labels can be groups, by their place."""
    schema = head.study.design.schema
    columns = () if schema is None else schema.columns
    places = [place for place, c in enumerate(columns, 1) if isinstance(c, Labelled)]
    return {place: columns[place - 1].name for place in places if targets_of(head)}


@pages.get("/studies/{study}/models/{task}/{number}")
def model(
    request: Request, task: Task, number: Number, visit: CurrentVisit, head: Head, queue: Jobs
) -> Response:
    """Show a model with its report, or the state of its job."""
    job = _find_job(queue, head, task, number_of(number))
    about = {"task": task, "number": number, "title": TASK_NAMES[task]}
    return _job_page(request, visit, head, job, **about)


@pages.get("/studies/{study}/sources")
def sources(request: Request, visit: CurrentVisit, head: Head, queue: Jobs) -> Response:
    """Show a comparison of the sites to members who may see single sketches."""
    visit.member.require_role(head.study.name, "owner", "reader")
    if head.study.is_sealed:
        raise CollectorError("the sites of a sealed study cannot be compared", "unknown")
    job = _find_job(queue, head, COMPARE)
    about = {"task": COMPARE, "number": "", "title": "Sites compared"}
    return _job_page(request, visit, head, job, **about)


def _find_job(
    queue: JobQueue, head: views.Head, task: str, number: int | str | None = None
) -> LearningJob | None:
    """Return the job of this task on the total as it is now; None if there is none."""
    if head.total is None:
        return None
    return queue.find(JobRequest(head.study.name, head.total.parts, task, number))


def _job_page(
    request: Request, visit: Visit, head: views.Head, job: LearningJob | None, **about: Any
) -> Response:
    body, sheet = "", ""
    if job is not None and job.answer is not None:
        body, sheet = job.answer["body"], job.answer["sheet"]
    is_waiting = job is not None and not job.is_over
    return page(
        request,
        "model.html",
        visit,
        head=head,
        job=job,
        body=Markup(body),  # noqa: S704 (escaped by the report)
        sheet=Markup(sheet),  # noqa: S704 (of the report's own styles)
        refresh=_REFRESH_SECONDS if is_waiting else None,
        **about,
    )


# ---------------------------------------------------------------- downloads


@pages.get("/studies/{study}/design.json")
def design_file(study: StudyName, visit: CurrentVisit) -> Response:
    """Return the design file."""
    visit.member.require_role(study)
    design = studies.find_study(visit.store, study).design_bytes
    return download(design, f"{study}-design.json", "application/json")


@pages.get("/studies/{study}/total.sketch")
def total_file(study: StudyName, visit: CurrentVisit) -> Response:
    """Return the total, a sketch file."""
    total = visit.collector.totals.of(visit.member, study)
    return download(total.sketch.to_bytes(), f"{study}-total.sketch")


@pages.get("/studies/{study}/events.json")
def events_file(study: StudyName, visit: CurrentVisit) -> Response:
    """Return all events of a study."""
    visit.member.require_role(study)
    data = canonical_json([vars(event) for event in events_of(visit.store, study)])
    return download(data, f"{study}-events.json", "application/json")


@pages.get("/studies/{study}/uploads/{digest}")
def upload_file(study: StudyName, digest: Digest, visit: CurrentVisit) -> Response:
    """Return one upload to a member who may see it."""
    upload, data, _ = uploads.read_upload(visit.store, visit.member, study, digest)
    return download(data, f"{study}-{upload.whose}.{upload.kind}")


@pages.get("/studies/{study}/models/{task}/{number}/{kind}")
def model_file(
    task: Task,
    number: Number,
    kind: Annotated[str, Path(pattern=r"^(model\.json|report\.html)$")],
    head: Head,
    queue: Jobs,
) -> Response:
    """Return a model file or a report."""
    job = _find_job(queue, head, task, number_of(number))
    if job is None or job.answer is None:
        raise CollectorError("no such model was learned from the current total", "unknown")
    name = f"{head.study.name}-{task}-{number}"
    if kind == "model.json":
        return download(job.answer["model"].encode("utf-8"), f"{name}.json", "application/json")
    return download(job.answer["page"].encode("utf-8"), f"{name}.html", "text/html")
