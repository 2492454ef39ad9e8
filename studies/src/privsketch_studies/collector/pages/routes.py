"""Addresses of pages; each asks for what it shows, and changes nothing."""

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
from privsketch_studies.collector.pages.lessons import COMPARE, Lesson, Lessons, Question
from privsketch_studies.collector.pages.rendering import download, page, style_sheet
from privsketch_studies.collector.pages.words import TASK_NAMES
from privsketch_studies.collector.progress import progress_of
from privsketch_studies.collector.web.access import Digest, Here, StudyName
from privsketch_studies.errors import CollectorError

pages = APIRouter(include_in_schema=False)
Task = Annotated[str, Path(pattern=r"^(kmeans|gaussian-mixture|pca)$")]
Number = Annotated[str, Path(pattern=r"^([1-9][0-9]?|auto|default)$")]
_REFRESH = 2  # seconds


def lessons_of(request: Request) -> Lessons:
    """What is learned here."""
    found = request.app.state.lessons
    if not isinstance(found, Lessons):
        raise CollectorError("no lessons", "storage")
    return found


def number_of(text: str) -> int | str | None:
    """A number of clusters as an address has it."""
    return None if text == "default" else text if text == "auto" else int(text)


@pages.get("/style.css")
async def style() -> Response:
    """The one style sheet; its address changes with it."""
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(style_sheet(), media_type="text/css", headers=headers)


@pages.get("/")
async def first(request: Request, here: Here) -> Response:
    """Studies of whoever is signed in."""
    try:
        visit = await visiting(request)
    except CollectorError as error:
        if error.refusal != "token":
            raise
        return RedirectResponse("/sign-in", 303)

    def work() -> list[dict[str, Any]]:
        return [_row(here, visit, one) for one in studies.list_studies(here.store, visit.member)]

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
    """Where a token is asked for."""
    return page(request, "sign-in.html", None, next=address_within(next), failed=False)


@pages.get("/new")
async def new_study(request: Request, visit: Visiting) -> Response:
    """A form for a new study."""
    if not visit.member.makes_studies:
        raise members.makers_only()
    return page(request, "new.html", visit)


@pages.get("/studies/{study}")
async def overview(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """A study: how far it is, what is expected, what to expect, what it costs."""

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
    """What was handed in, and downloads."""

    def work() -> dict[str, Any]:
        head = views.head_of(here, visit.member, study)
        return {"head": head, "files": views.files_of(here, head, visit.member)}

    return page(request, "files.html", visit, **await run_in_threadpool(work))


@pages.get("/studies/{study}/people")
async def people(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Who takes part; forms for owners."""
    return await run_in_threadpool(people_page, request, visit, here, study)


def people_page(
    request: Request, visit: Visit, here: Collector, study: str, **given: Any
) -> Response:
    """The same, with a token that is shown once."""
    head = views.head_of(here, visit.member, study)
    found = members.members_of(here.store, study)
    token = {"given_name": None, "given_token": None, **given}
    return page(request, "people.html", visit, head=head, people=found, **token)


@pages.get("/studies/{study}/history")
async def history(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """What happened, and whether the chain is intact."""

    def work() -> dict[str, Any]:
        head = views.head_of(here, visit.member, study)
        return {"head": head, "history": views.history_of(here, study)}

    return page(request, "history.html", visit, **await run_in_threadpool(work))


# ---------------------------------------------------------------- what was learned


@pages.get("/studies/{study}/models")
async def models(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """What was learned from the total so far, and a form for more."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    found: list[tuple[Question, Lesson]] = []
    if head.total is not None:
        found = lessons_of(request).answers(study, head.total.parts)
    found.sort(key=lambda pair: (list(TASK_NAMES).index(pair[0].task), _order(pair[0])))
    waits = any(not lesson.is_over for _, lesson in found)
    return page(
        request,
        "models.html",
        visit,
        head=head,
        found=found,
        refresh=_REFRESH if waits else None,
        tasks=_tasks(head),
    )


def _order(question: Question) -> int:
    return question.number if isinstance(question.number, int) else 0


def _tasks(head: views.Head) -> dict[str, str]:
    """What can be learned from sketches of a design."""
    is_pca = head.study.design.mapping.for_components
    return {name: text for name, text in TASK_NAMES.items() if (name == "pca") == is_pca}


@pages.get("/studies/{study}/models/{task}/{number}")
async def model(
    request: Request, study: StudyName, task: Task, number: Number, visit: Visiting, here: Here
) -> Response:
    """One model with its report, or how far it is."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    lesson = None
    if head.total is not None:
        question = Question(study, head.total.parts, task, number_of(number))
        lesson = lessons_of(request).look(question)
    about = {"task": task, "number": number, "title": TASK_NAMES[task]}
    return _lesson_page(request, visit, head, lesson, **about)


@pages.get("/studies/{study}/sources")
async def sources(request: Request, study: StudyName, visit: Visiting, here: Here) -> Response:
    """Sites beside each other, for whoever may see single sketches."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    visit.member.require_role(study, "owner", "reader")
    if head.study.is_sealed:
        raise CollectorError("nobody can see single sites of a sealed study", "unknown")
    parts = () if head.total is None else head.total.parts
    lesson = lessons_of(request).look(Question(study, parts, COMPARE))
    about = {"task": COMPARE, "number": "", "title": "Sites compared"}
    return _lesson_page(request, visit, head, lesson, **about)


def _lesson_page(
    request: Request, visit: Visit, head: views.Head, lesson: Lesson | None, **about: Any
) -> Response:
    body, sheet = "", ""
    if lesson is not None and lesson.answer is not None:
        body, sheet = lesson.answer["body"], lesson.answer["sheet"]
    waits = lesson is not None and not lesson.is_over
    return page(
        request,
        "lesson.html",
        visit,
        head=head,
        lesson=lesson,
        body=Markup(body),  # noqa: S704 (escaped by the report)
        sheet=Markup(sheet),  # noqa: S704 (of the report's own styles)
        refresh=_REFRESH if waits else None,
        **about,
    )


# ---------------------------------------------------------------- downloads


@pages.get("/studies/{study}/design.json")
async def design_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """The design."""
    visit.member.require_role(study)
    found = await run_in_threadpool(studies.find_study, here.store, study)
    return download(found.design_bytes, f"{study}-design.json", "application/json")


@pages.get("/studies/{study}/total.sketch")
async def total_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """The total."""
    found = await run_in_threadpool(here.totals.of, visit.member, study)
    data = await run_in_threadpool(found.sketch.to_bytes)
    return download(data, f"{study}-total.sketch")


@pages.get("/studies/{study}/events.json")
async def events_file(study: StudyName, visit: Visiting, here: Here) -> Response:
    """All events, for whoever checks them."""
    from privsketch_studies.collector.events import events_of

    visit.member.require_role(study)
    found = await run_in_threadpool(events_of, here.store, study)
    data = canonical_json([vars(event) for event in found])
    return download(data, f"{study}-events.json", "application/json")


@pages.get("/studies/{study}/uploads/{digest}")
async def upload_file(study: StudyName, digest: Digest, visit: Visiting, here: Here) -> Response:
    """One file, for whoever may have it."""
    found, data, _ = await run_in_threadpool(
        uploads.read_upload, here.store, visit.member, study, digest
    )
    return download(data, f"{study}-{found.whose}.{found.kind}")


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
    """A model, or its report."""
    head = await run_in_threadpool(views.head_of, here, visit.member, study)
    parts = () if head.total is None else head.total.parts
    lesson = lessons_of(request).look(Question(study, parts, task, number_of(number)))
    if lesson is None or lesson.answer is None:
        raise CollectorError("this was not learned from the total as it is now", "unknown")
    name = f"{study}-{task}-{number}"
    if kind == "model.json":
        return download(lesson.answer["model"].encode("utf-8"), f"{name}.json", "application/json")
    return download(lesson.answer["page"].encode("utf-8"), f"{name}.html", "text/html")
