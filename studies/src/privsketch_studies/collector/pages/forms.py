"""Routes of the forms: signing in and out, uploads, learning, and administration.

Every form must come from a page of the same session. Afterwards the browser is redirected to a
page that can be reloaded without repeating anything.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from privsketch._base.errors import ParameterError
from privsketch._base.formats import MAX_JSON_BYTES
from privsketch.signing.keys import PublicKey
from privsketch_studies.collector import members, studies, uploads
from privsketch_studies.collector.kinds import json_start
from privsketch_studies.collector.pages import views
from privsketch_studies.collector.pages.access import (
    CurrentVisit,
    cookie_name,
    file_of,
    local_address,
    read_form,
    set_cookie,
    text_of,
)
from privsketch_studies.collector.pages.fields import DESIGN_FIELD, KEY_FIELD, MAX_SIGNATURE
from privsketch_studies.collector.pages.jobs import (
    COLUMN_TASKS,
    COMPARE,
    MAX_AT_ONCE,
    MAX_NUMBER,
    TASKS,
    JobRequest,
)
from privsketch_studies.collector.pages.rendering import page
from privsketch_studies.collector.pages.routes import groups_of, jobs_of, people_page, targets_of
from privsketch_studies.collector.web.access import CurrentCollector, Digest, RateLimits, StudyName
from privsketch_studies.errors import CollectorError

forms = APIRouter(include_in_schema=False)


def _redirect(address: str, done: str | None = None) -> Response:
    """Redirect to a page, which reports the action that `done` names (`words.DONE`)."""
    return RedirectResponse(address + ("" if done is None else f"?done={done}"), 303)


# ---------------------------------------------------------------- sessions


@forms.post("/sign-in")
async def sign_in(request: Request, collector: CurrentCollector) -> Response:
    """Begin a session with a token."""
    limits: RateLimits = request.app.state.limits
    address = "" if request.client is None else request.client.host
    form = await read_form(request, None)
    next_address = local_address(text_of(form, "next"))
    try:
        session = await run_in_threadpool(
            members.begin_session, collector.store, text_of(form, "token")
        )
    except CollectorError as error:
        if error.refusal != "token":
            raise
        limits.count_failure(address)
        return page(request, "sign-in.html", None, status=401, next=next_address, failed=True)
    answer = _redirect(next_address)
    set_cookie(request, answer, session)
    return answer


@forms.post("/sign-out")
async def sign_out(request: Request, visit: CurrentVisit) -> Response:
    """End a session."""
    await read_form(request, visit)
    session = request.cookies[cookie_name(request)]
    await run_in_threadpool(members.end_session, visit.store, session)
    answer = _redirect("/sign-in")
    set_cookie(request, answer, None)
    return answer


# ---------------------------------------------------------------- uploads


@forms.post("/studies/{study}/uploads")
async def upload_file(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Upload a sketch, or a file of a sealed study."""
    n_bytes, starts = await run_in_threadpool(uploads.limits, visit.store, visit.member, study)
    fields = {"file": starts, "signature": (json_start("signature"),)}
    form = await read_form(request, visit, n_bytes + MAX_SIGNATURE, fields)
    data, signature = await file_of(form, "file"), await file_of(form, "signature")
    if not data:
        raise ParameterError("no file was chosen, or the file is empty")
    receipt = await run_in_threadpool(
        uploads.submit, visit.store, visit.member, study, data, signature or None
    )
    return _redirect(f"/studies/{study}", "handed-in" if receipt.is_new else "duplicate")


@forms.post("/studies/{study}/uploads/{digest}/set-aside")
async def set_aside(
    request: Request, study: StudyName, digest: Digest, visit: CurrentVisit
) -> Response:
    """Set an upload aside, as an owner of the study."""
    visit.member.require_role(study, "owner")
    form = await read_form(request, visit)
    because = text_of(form, "because")
    await run_in_threadpool(uploads.set_aside, visit.store, study, digest, because, by=visit.member)
    return _redirect(f"/studies/{study}/files", "aside")


# ---------------------------------------------------------------- learning


@forms.post("/studies/{study}/models")
async def learn(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Submit jobs that learn from the current total, for one model size or several."""
    visit.member.require_role(study)
    form = await read_form(request, visit)
    task = text_of(form, "task")
    if task not in TASKS:
        raise ParameterError("task: expected one of the tasks in the form")
    head = await run_in_threadpool(views.head_of, visit.collector, visit.member, study)
    numbers = _places(form, task, head) if task in COLUMN_TASKS else _numbers(form, task)
    if head.total is None:
        raise CollectorError("there is no total yet", "unknown")
    jobs = jobs_of(request)
    total = await run_in_threadpool(visit.collector.totals.of, visit.member, study)
    data = await run_in_threadpool(total.sketch.to_bytes)
    for number in numbers:
        jobs.submit(JobRequest(study, total.parts, task, number), head.study.title, [data])
    if len(numbers) > 1:
        return _redirect(f"/studies/{study}/models")
    name = "default" if numbers[0] is None else numbers[0]
    return _redirect(f"/studies/{study}/models/{task}/{name}")


def _places(form: FormData, task: str, head: views.Head) -> list[int | str | None]:
    """Return the place of the column that a regression explains, or that has groups, if any."""
    columns = targets_of(head) if task == "regression" else groups_of(head)
    text = text_of(form, "number")
    if text == "" and (task == "summary" or head.study.design.target is not None):
        return [None]
    if not (text.isascii() and text.isdigit()) or int(text) not in columns:
        raise ParameterError("column: expected one of the columns in the form")
    return [int(text)]


def _numbers(form: FormData, task: str) -> list[int | str | None]:
    first, last = text_of(form, "number"), text_of(form, "last")
    if first in ("", "default"):
        return [None]
    if first == "auto" and task == "kmeans":
        return ["auto"]
    if not (first.isascii() and first.isdigit()) or not 1 <= int(first) <= MAX_NUMBER:
        raise ParameterError(f"number: expected a whole number from 1 to {MAX_NUMBER}")
    if not last:
        return [int(first)]
    if not (last.isascii() and last.isdigit()) or not int(first) <= int(last) <= MAX_NUMBER:
        raise ParameterError(f"up to: expected a whole number from the first to {MAX_NUMBER}")
    if int(last) - int(first) >= MAX_AT_ONCE:
        raise ParameterError(f"up to: at most {MAX_AT_ONCE} numbers at once")
    return list(range(int(first), int(last) + 1))


@forms.post("/studies/{study}/sources")
async def compare(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Submit a job that compares the sites, for members who may see individual sketches."""
    visit.member.require_role(study, "owner", "reader")
    await read_form(request, visit)
    head = await run_in_threadpool(views.head_of, visit.collector, visit.member, study)
    if head.study.is_sealed or head.total is None or len(head.total.parts) <= 1:
        raise CollectorError("a comparison needs two sketches", "unknown")

    def sketches() -> list[bytes]:
        return [sketch.to_bytes() for sketch in visit.collector.totals.sketches(head.study)]

    job_request = JobRequest(study, head.total.parts, COMPARE)
    data = await run_in_threadpool(sketches)
    jobs_of(request).submit(job_request, head.study.title, data)
    return _redirect(f"/studies/{study}/sources")


# ---------------------------------------------------------------- administration


@forms.post("/studies/{study}/close")
async def close(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Close an open study, unless the sites are being compared or the comparison has an alarm.

    The form of a page that was loaded before may not know of the alarm.
    """
    visit.member.require_role(study, "owner")
    form = await read_form(request, visit)
    if text_of(form, "sure") != "yes":
        raise ParameterError("tick the box to confirm; this cannot be undone")
    in_spite, jobs = text_of(form, "in_spite") == "yes", jobs_of(request)

    def close_compared() -> None:
        head = views.head_of(visit.collector, visit.member, study)
        if head.progress.state == studies.OPEN:
            compared = views.compare_sites(visit.collector, jobs, head)
            views.require_closable(compared, in_spite=in_spite)
        studies.close_study(visit.store, study, by=visit.member)

    await run_in_threadpool(close_compared)
    return _redirect(f"/studies/{study}", "closed")


@forms.post("/studies/{study}/people")
async def add_member(request: Request, study: StudyName, visit: CurrentVisit) -> Response:
    """Add a member; the answer shows the token, which cannot be shown again."""
    visit.member.require_role(study, "owner")
    form = await read_form(request, visit, MAX_SIGNATURE, {"key": KEY_FIELD.starts})
    name, key_file = text_of(form, "name"), await file_of(form, "key")
    roles = [str(value) for value in form.getlist("role")]
    key = PublicKey.from_bytes(key_file) if key_file else None
    if text_of(form, "known") == "yes":
        await run_in_threadpool(
            members.give_roles, visit.store, name, study, roles, by=visit.member
        )
        return _redirect(f"/studies/{study}/people", "gave-roles")

    def add() -> Response:
        token = members.add_member(
            visit.store, name, study=study, as_roles=roles, key=key, by=visit.member
        )
        return people_page(request, visit, study, (name, token))

    return await run_in_threadpool(add)


@forms.post("/studies/{study}/people/{act}")
async def change_member(
    request: Request, study: StudyName, act: str, visit: CurrentVisit
) -> Response:
    """Renew or revoke a member's token, or remove the member's roles."""
    visit.member.require_role(study, "owner")
    name = text_of(await read_form(request, visit), "name")
    if act == "renew":

        def renew() -> Response:
            token = members.renew_token(visit.store, name, by=visit.member)
            return people_page(request, visit, study, (name, token))

        return await run_in_threadpool(renew)
    if act == "revoke":
        await run_in_threadpool(members.revoke_token, visit.store, name, by=visit.member)
        return _redirect(f"/studies/{study}/people", "revoked")
    if act == "take":
        await run_in_threadpool(members.take_roles, visit.store, name, study, by=visit.member)
        return _redirect(f"/studies/{study}/people", "took-roles")
    raise CollectorError("not found", "unknown")


@forms.post("/new")
async def create_study(request: Request, visit: CurrentVisit) -> Response:
    """Create a study from a design file."""
    if not visit.member.makes_studies:
        raise members.makers_only()
    form = await read_form(request, visit, MAX_JSON_BYTES, {"design": DESIGN_FIELD.starts})
    design, day = await file_of(form, "design"), text_of(form, "last_day")
    if not design:
        raise ParameterError("no design file was chosen")

    def create() -> studies.Study:
        return studies.make_study(
            visit.store,
            text_of(form, "name"),
            design,
            owner=visit.member.name,
            title=text_of(form, "title") or None,
            sealed=text_of(form, "sealed") == "yes",
            last_day=studies.parse_day(day) if day else None,
            by=visit.member,
        )

    new_study = await run_in_threadpool(create)
    return _redirect(f"/studies/{new_study.name}/people", "made")
