"""The application that a server runs: routes, errors as answers, the guard before both."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from privsketch import __version__
from privsketch._base.errors import PrivsketchError
from privsketch_studies.collector.collector import Collector
from privsketch_studies.collector.pages.forms import forms
from privsketch_studies.collector.pages.lessons import Lessons
from privsketch_studies.collector.pages.refusals import refused_page, wants_page
from privsketch_studies.collector.pages.routes import pages
from privsketch_studies.collector.web.access import Often
from privsketch_studies.collector.web.limits import STATUS, Guard, Room
from privsketch_studies.collector.web.routes import api, public
from privsketch_studies.errors import CollectorError

_ABOUT = (
    "A collector of privsketch: studies, open ones with sketches that it adds up and sealed ones "
    "whose files it keeps and cannot read."
)


def make_app(collector: Collector) -> FastAPI:
    """The application of a collector."""
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(
        title="privsketch collector",
        version=__version__,
        description=_ABOUT,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.collector, app.state.often = collector, Often(collector.settings)
    app.state.room = Room(collector.settings)
    app.include_router(public)
    app.include_router(api)
    app.state.lessons = Lessons()
    app.include_router(pages)
    app.include_router(forms)
    app.add_exception_handler(PrivsketchError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_exception_handler(HTTPException, _refuse_address)
    app.add_middleware(Guard, settings=collector.settings)
    return app


def _answer(request: Request, status: int, refusal: str, message: str) -> Response:
    if wants_page(request):
        return refused_page(request, status, refusal, message)
    headers = {}
    if status == STATUS["token"]:
        headers["WWW-Authenticate"] = "Bearer"
    if status == STATUS["often"]:
        headers["Retry-After"] = "2"
    if refusal in ("slow", "size"):
        headers["Connection"] = "close"  # the rest of the body is not read
    content = {"error": {"refusal": refusal, "message": message}}
    return JSONResponse(content, status, headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """Errors of ours: what was handed in is refused, unless they say otherwise."""
    refusal = error.refusal if isinstance(error, CollectorError) else "content"
    return _answer(request, STATUS.get(refusal, 500), refusal, str(error))


async def _refuse_shape(request: Request, error: Exception) -> Response:
    """Parameters and objects of another shape; what was sent is not said again."""
    told = []
    if isinstance(error, RequestValidationError):
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return _answer(request, STATUS["content"], "content", "; ".join(told[:5])[:1000])


async def _refuse_address(request: Request, error: Exception) -> Response:
    """Addresses and methods that there are not, and bodies that were not read to their end."""
    if isinstance(error.__cause__, CollectorError):
        return await _refuse(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.BAD_REQUEST:  # what is no JSON at all
        return _answer(request, STATUS["content"], "content", "the body cannot be read")
    names = {number: name for name, number in STATUS.items()}
    answer = _answer(
        request, status, names.get(status, "address"), "there is nothing at this address"
    )
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_methods_at(request))
    return answer


def _methods_at(request: Request) -> list[str]:
    """All methods of an address, of which each has a route of its own."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] != Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)
