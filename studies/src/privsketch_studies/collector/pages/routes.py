"""Routes of the pages that show something; none of them changes anything."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from markupsafe import Markup

from privsketch._base.formats import canonical_json
from privsketch_studies.collector import members, studies, uploads
from privsketch_studies.collector.collector import Collector
from privsketch_studies.collector.pages import views
from privsketch_studies.collector.pages.access import Visit, Visiting, address_within, visiting
from privsketch_studies.collector.pages.jobs import COMPARE, JobQueue, JobRequest, LearningJob
from privsketch_studies.collector.pages.rendering import download, page, style_sheet
from privsketch_studies.collector.pages.words import TASK_NAMES
from privsketch_studies.collector.progress import progress_of
from privsketch_studies.collector.web.access import Digest, Here, StudyName
from privsketch_studies.errors import CollectorError

pages = APIRouter(include_in_schema=False)
Task = Annotated[str, Path(pattern=r"^(kmeans|gaussian-mixture|pca)$")]
Number = Annotated[str, Path(pattern=r"^([1-9][0-9]?|auto|default)$")]
_REFRESH = 2  # seconds


def jobs_of(request: Request) -> JobQueue:
    """Return the learning jobs of the collector."""
    jobs: JobQueue = request.app.state.jobs
    return jobs


def number_of(text: str) -> int | str | None:
    """Return the number of clusters in an address: a number, "auto", or None for the default."""
    return None if text == "default" else text if text == "auto" else int(text)


@pages.get("/style.css")
async def style() -> Response:
    """Return the style sheet; its address changes with its content."""
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(style_sheet(), media_type="text/css", headers=headers)


@pages.get("/")
async def first(request: Request, here: Here) -> Response:
    """Show the studies of the visitor."""
    try:
        visit = await visiting(request)
    except CollectorError as error:
        if error.refusal != "token":
            raise
        return RedirectResponse("/sign-in", 303)

    def work() -> list[dict[str, Any]]:
        own = studies.list_studies(here.store, visit.member)
        return [_row(here, visit, study) for study in own]

    return page(request, "studies.html", visit, rows=await run_in_threadpool(work))


def _row(here: Collector, visit: Visit, study: studies.Study) -> dict[str, Any]:
    progress = progress_of(here.store, study)
    name = visit.member.name
    return {
        "head": views.Head(study, progress, visit.member.roles_in(study.name), None),
        "steps": [step for step in progress.steps if step.member == name],
    }


@pages.get("/sign-in")
async def sign_in_page(
    request: Request, next: Annotated[str, Query(max_length=400)] = "/"
) -> Response:
    """Show the form that asks for a token."""
    return page(request, "sign-in.html", None, next=address_within(next), failed=False)


@pages.get("/new")
async def new_study(request: Request, visit: Visiting) -> Response:
    """Show the form for a new study."""
    if not visit.member.makes_studies:
        raise members.makers_only()
    return page(request, "new.html", visit)


@pages.get("/studies/{study}")
async def overview(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show a study: its state, next steps, forecast and cost."""

    def work() -> dict[str, Any]:
        head = views.head_of(here, visit.member, study)
        return {
            "head": head,
            "own": head.progress.steps_of(visit.member.name),
            "others": [s for s in head.progress.steps if s.member not in (None, visit.member.name)],
            "can_hand_in": views.can_hand_in(here, head, visit.member),
            "outlooks": views.outlooks(head),
            "cost": views.cost_of(head),
        }

    return page(request, "overview.html", visit, **await run_in_threadpool(work))


@pages.get("/studies/{study}/files")
async def files(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show the uploads of a study, with downloads."""

    def work() -> dict[str, Any]:
        head = views.head_of(here, visit.member, study)
        return {"head": head, "files": views.files_of(here, head, visit.member)}

    return page(request, "files.html", visit, **await run_in_threadpool(work))


@pages.get("/studies/{study}/people")
async def people(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show the members of a study, with forms for owners."""
    return await run_in_threadpool(people_page, request, visit, here, study)


def people_page(
    request: Request,
    visit: Visit,
    here: Collector,
    study: str,
    new_token: tuple[str, str] | None = None,
) -> Response:
    """Show the members of a study; `new_token` is a name with a token that is shown once."""
    head = views.head_of(here, visit.member, study)
    people = members.members_of(here.store, study)
    return page(request, "people.html", visit, head=head, people=people, new_token=new_token)


@pages.get("/studies/{study}/history")
async def history(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show the events of a study, and whether their chain is intact."""

    def work() -> dict[str, Any]:
        head = views.head_of(here, visit.member, study)
        return {"head": head, "history": views.history_of(here, study)}

    return page(request, "history.html", visit, **await run_in_threadpool(work))


# ---------------------------------------------------------------- models


@pages.get("/studies/{study}/models")
async def models(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show the models that were learned from the total, with a form for more."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    jobs: list[tuple[JobRequest, LearningJob]] = []
    if head.total is not None:
        jobs = jobs_of(request).of_total(study, head.total.parts)
    jobs.sort(key=lambda pair: (list(TASK_NAMES).index(pair[0].task), _order(pair[0])))
    waits = any(not job.is_over for _, job in jobs)
    return page(
        request,
        "models.html",
        visit,
        head=head,
        jobs=jobs,
        refresh=_REFRESH if waits else None,
        tasks=_tasks(head),
    )


def _order(wanted: JobRequest) -> int:
    return wanted.number if isinstance(wanted.number, int) else 0


def _tasks(head: views.Head) -> dict[str, str]:
    """Return the tasks that sketches of the design can be used for, with their names."""
    is_pca = head.study.design.mapping.for_components
    return {name: text for name, text in TASK_NAMES.items() if (name == "pca") == is_pca}


@pages.get("/studies/{study}/models/{task}/{number}")
async def model(
    request: Request, study: StudyName, task: Task, number: Number, visit: Visiting, here: Here
) -> Response:
    """Show a model with its report, or the state of its job."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    job = _find_job(request, head, task, number_of(number))
    about = {"task": task, "number": number, "title": TASK_NAMES[task]}
    return _job_page(request, visit, head, job, **about)


@pages.get("/studies/{study}/sources")
async def sources(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Show a comparison of the sites to members who may see single sketches."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    visit.member.require_role(study, "owner", "reader")
    if head.study.is_sealed:
        raise CollectorError("the sites of a sealed study cannot be compared", "unknown")
    job = _find_job(request, head, COMPARE)
    about = {"task": COMPARE, "number": "", "title": "Sites compared"}
    return _job_page(request, visit, head, job, **about)


def _find_job(
    request: Request, head: views.Head, task: str, number: int | str | None = None
) -> LearningJob | None:
    """Return the job of this task on the total as it is now; None if there is none."""
    if head.total is None:
        return None
    return jobs_of(request).find(JobRequest(head.study.name, head.total.parts, task, number))


def _job_page(
    request: Request, visit: Visit, head: views.Head, job: LearningJob | None, **about: Any
) -> Response:
    body, sheet = "", ""
    if job is not None and job.answer is not None:
        body, sheet = job.answer["body"], job.answer["sheet"]
    waits = job is not None and not job.is_over
    return page(
        request,
        "model.html",
        visit,
        head=head,
        job=job,
        body=Markup(body),  # noqa: S704 (escaped by the report)
        sheet=Markup(sheet),  # noqa: S704 (of the report's own styles)
        refresh=_REFRESH if waits else None,
        **about,
    )


# ---------------------------------------------------------------- downloads


@pages.get("/studies/{study}/design.json")
async def design_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """Return the design file."""
    visit.member.require_role(study)
    found = await run_in_threadpool(studies.find_study, here.store, study)
    return download(found.design_bytes, f"{study}-design.json", "application/json")


@pages.get("/studies/{study}/total.sketch")
async def total_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """Return the total, a sketch file."""
    total = await run_in_threadpool(here.totals.of, visit.member, study)
    data = await run_in_threadpool(total.sketch.to_bytes)
    return download(data, f"{study}-total.sketch")


@pages.get("/studies/{study}/events.json")
async def events_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """Return all events of a study."""
    from privsketch_studies.collector.events import events_of

    visit.member.require_role(study)
    events = await run_in_threadpool(events_of, here.store, study)
    data = canonical_json([vars(event) for event in events])
    return download(data, f"{study}-events.json", "application/json")


@pages.get("/studies/{study}/uploads/{digest}")
async def upload_file(study: StudyName, digest: Digest, visit: Visiting, here: Here) -> Response:
    """Return one upload to a member who may see it."""
    upload, data, _ = await run_in_threadpool(
        uploads.read_upload, here.store, visit.member, study, digest
    )
    return download(data, f"{study}-{upload.whose}.{upload.kind}")


@pages.get("/studies/{study}/models/{task}/{number}/{kind}")
async def model_file(
    request: Request,
    study: StudyName,
    task: Task,
    number: Number,
    kind: Annotated[str, Path(pattern=r"^(model\.json|report\.html)$")],
    visit: Visiting,
    here: Here,
) -> Response:
    """Return a model file or a report."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    job = _find_job(request, head, task, number_of(number))
    if job is None or job.answer is None:
        raise CollectorError("no such model was learned from the current total", "unknown")
    name = f"{study}-{task}-{number}"
    if kind == "model.json":
        return download(job.answer["model"].encode("utf-8"), f"{name}.json", "application/json")
    return download(job.answer["page"].encode("utf-8"), f"{name}.html", "text/html")
