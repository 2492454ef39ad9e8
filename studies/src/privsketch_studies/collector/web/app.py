"""The application that a server runs: its routes, and answers for its errors."""

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
from privsketch_studies.collector.pages.jobs import JobQueue
from privsketch_studies.collector.pages.rendering import refused_page, wants_page
from privsketch_studies.collector.pages.routes import pages
from privsketch_studies.collector.web.access import RateLimits
from privsketch_studies.collector.web.limits import CLOSING, STATUS, Guard, UploadQuota
from privsketch_studies.collector.web.routes import routers
from privsketch_studies.errors import CollectorError

_DESCRIPTION = (
    "A collector of privsketch. It adds up the sketches of open studies, and stores the files of "
    "sealed studies, which it cannot read. Files are bodies of type application/octet-stream, and "
    "times are milliseconds since 1970, UTC."
)


def make_app(collector: Collector) -> FastAPI:
    """Return the application of a collector."""
    # FastAPI's pages of documentation would load scripts from other sites.
    app = FastAPI(
        title="privsketch collector",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.collector, app.state.limits = collector, RateLimits(collector.settings)
    app.state.quota, app.state.jobs = UploadQuota(collector.settings), JobQueue()
    for router in (*routers, pages, forms):
        app.include_router(router)
    app.add_exception_handler(PrivsketchError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_shape)
    app.add_exception_handler(HTTPException, _refuse_address)
    app.add_middleware(Guard, settings=collector.settings)
    return app


def _answer(request: Request, status: int, refusal: str, message: str) -> Response:
    headers = {"Connection": "close"} if refusal in CLOSING else {}
    if wants_page(request):
        answer = refused_page(request, status, refusal, message)
        answer.headers.update(headers)
        return answer
    if status == STATUS["token"]:
        headers["WWW-Authenticate"] = "Bearer"
    if status == STATUS["often"]:
        headers["Retry-After"] = "2"
    content = {"error": {"refusal": refusal, "message": message}}
    return JSONResponse(content, status, headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer an error of privsketch; without a refusal of its own, it is about the content."""
    refusal = error.refusal if isinstance(error, CollectorError) else "content"
    return _answer(request, STATUS.get(refusal, 500), refusal, str(error))


async def _refuse_shape(request: Request, error: Exception) -> Response:
    """Answer parameters and bodies of a wrong type, without quoting them."""
    problems = []
    if isinstance(error, RequestValidationError):
        problems = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
    return _answer(request, STATUS["content"], "content", "; ".join(problems[:5])[:1000])


async def _refuse_address(request: Request, error: Exception) -> Response:
    """Answer unknown addresses and methods, and bodies that were not read to the end."""
    if isinstance(error.__cause__, CollectorError):
        return await _refuse(request, error.__cause__)
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == HTTPStatus.BAD_REQUEST:  # the body is not JSON
        return _answer(request, STATUS["content"], "content", "the body cannot be read")
    names = {number: name for name, number in STATUS.items()}
    answer = _answer(request, status, names.get(status, "address"), "not found")
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_methods_at(request))
    return answer


def _methods_at(request: Request) -> list[str]:
    """Return the methods of an address, over all its routes."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] != Match.NONE:
            methods |= set(getattr(route, "methods", None) or ())
    return sorted(methods)
