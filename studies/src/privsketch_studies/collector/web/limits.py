"""Limits on requests: their rate, size and duration, checked before any work is done.

`Guard` is the middleware around the application. It refuses bodies that are compressed, of an
unknown type, or larger than stated; it counts bytes and seconds as a body arrives. It writes one
line of the log for each request, which quotes nothing that the client sent. Internal errors are
logged by their type and their line of code only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from privsketch_studies.collector.collector import Settings
from privsketch_studies.errors import CollectorError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOGGER = logging.getLogger("privsketch.collector")
MAX_HEADERS = 16 * 1024  # bytes
MAX_SMALL = 64 * 1024  # bytes of a body without a file
TYPES = ("application/octet-stream", "application/json")
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")  # of pages
STATUS = {
    "token": 401,
    "role": 403,
    "unknown": 404,
    "slow": 408,
    "conflict": 409,
    "size": 413,
    "kind": 415,
    "content": 422,
    "closed": 423,
    "often": 429,
    "headers": 431,
    "storage": 503,
}
CLOSING = ("slow", "size", "kind")  # refusals after which the rest of a body is not read
_PACKAGE = Path(__file__).parents[2]
_MAX_KEYS = 100_000  # addresses or members that a rate limiter remembers
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
)


class TokenBuckets:
    """Rate limiter by token buckets: `rate` requests a second in the long run, `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, n_requests: float = 1.0) -> float:
        """Take a token from a bucket and return 0; the seconds to wait if the bucket is empty."""
        wait = self.wait(key)
        if wait == 0:
            level, at = self._levels[key]
            self._levels[key] = level - n_requests, at
        return wait

    def wait(self, key: str) -> float:
        """Return the seconds to wait until a bucket has a token."""
        at = time.monotonic()
        level, before = self._levels.pop(key, (self._burst, at))
        level = min(self._burst, level + (at - before) * self._rate)
        self._levels[key] = level, at
        if len(self._levels) > _MAX_KEYS:
            self._levels.popitem(last=False)
        return 0.0 if level >= 1 else (1 - level) / self._rate


class UploadQuota:
    """Limit on concurrent uploads: bytes over all members, and files of each member."""

    def __init__(self, settings: Settings) -> None:
        self._max_bytes, self._max_files = settings.max_body_bytes, settings.max_bodies
        self._n_bytes = 0
        self._n_files: Counter[str] = Counter()

    def reserve(self, name: str, n_bytes: int) -> Callable[[], None]:
        """Reserve memory for a file of a member, and return a function that frees it."""
        # A file that is larger than the limit is accepted when it is the only one.
        is_full = self._n_bytes > 0 and self._n_bytes + n_bytes > self._max_bytes
        if is_full or self._n_files[name] >= self._max_files:
            raise CollectorError("too many files at a time; try again later", "often")
        self._n_bytes += n_bytes
        self._n_files[name] += 1

        def free() -> None:
            self._n_bytes -= n_bytes
            self._n_files[name] -= 1
            if not self._n_files[name]:
                del self._n_files[name]

        return free


class BodyReader:
    """Body of a request as it arrives, with limits on its size and its duration."""

    def __init__(self, receive: Receive, settings: Settings) -> None:
        self._receive, self._settings = receive, settings
        self._began: float | None = None
        self._n_bytes, self._is_complete = 0, False
        self.max_bytes = MAX_SMALL
        self.start = FileStart()
        self.at_end: list[Callable[[], None]] = []

    async def receive(self) -> Message:
        """Return the next message; refuse a body that is too large or takes too long."""
        if self._is_complete:  # later messages are about the connection
            return await self._receive()
        if self._began is None:
            self._began = time.monotonic()
        # The time grows with the bytes that arrived, not with the bytes that are allowed.
        allowed = self._settings.body_seconds + self._n_bytes / self._settings.body_rate
        seconds = self._began + allowed - time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), max(seconds, 0.001))
        except TimeoutError:
            raise CollectorError("the body took too long", "slow") from None
        self._n_bytes += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self._n_bytes > self.max_bytes:
            raise too_large(self.max_bytes)
        self.start.check(message.get("body", b""))
        return message


class FileStart:
    """First bytes of a file as it arrives; they must be those of one of our files.

    Parameters
    ----------
    starts : tuple of bytes
        Allowed first bytes; none allow any file.
    """

    def __init__(self, starts: tuple[bytes, ...] = ()) -> None:
        self._starts = starts
        self._seen = b""

    def check(self, data: bytes) -> None:
        """Refuse the file as soon as its bytes are not those of one of ours."""
        if not self._starts:
            return
        self._seen += data[: max(map(len, self._starts)) - len(self._seen)]
        if not any(
            self._seen.startswith(start) or start.startswith(self._seen) for start in self._starts
        ):
            raise CollectorError(
                "not a file of privsketch that this study takes; reading ended at its first bytes, "
                "and nothing of it is kept",
                "kind",
            )


def too_large(max_bytes: int) -> CollectorError:
    """Return the error for a body above the limit."""
    return CollectorError(f"the body is larger than the limit of {max_bytes} bytes", "size")


class Guard:
    """Middleware that applies the limits to an application and logs its requests."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name.lower() for name, _ in message["headers"]}
                defaults = [pair for pair in _SECURITY if pair[0] not in names]
                message["headers"] = [*message["headers"], *defaults]
            await send(message)

        body = BodyReader(receive, self._settings)
        scope["privsketch.body"] = body
        try:
            if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADERS:
                raise CollectorError(f"headers of more than {MAX_HEADERS} bytes", "headers")
            require_acceptable(dict(scope["headers"]), scope["method"], scope["path"])
            await self._app(scope, body.receive, answer)
        except CollectorError as error:
            if not status:
                await send_error(answer, error)
        except Exception as error:
            LOGGER.error("internal error %s", location_of(error))
            if not status:
                await send_error(answer, CollectorError("internal error", "answer"))
        finally:
            for free in body.at_end:
                free()
            route = getattr(scope.get("route"), "path", "(no such page)")
            seconds = time.monotonic() - began
            LOGGER.info("%s %s %d %.0f ms", _method(scope), route, status, 1000 * seconds)


def require_acceptable(headers: dict[bytes, bytes], method: str, path: str) -> None:
    """Refuse a body by its headers."""
    if b"transfer-encoding" in headers and b"content-length" in headers:
        # A proxy that uses the other header would split the stream into other requests.
        raise CollectorError("a body has a length or comes in chunks, not both", "size")
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
        raise CollectorError("compressed bodies are not accepted", "kind")
    has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
    if has_body and method in ("POST", "PUT", "PATCH", "DELETE"):
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        types = TYPES if path.startswith("/api/") else FORM_TYPES
        if kind.decode("latin-1") not in types:
            raise CollectorError(f"expected a body of type {types[0]} or {types[1]}", "kind")


async def send_error(send: Send, error: CollectorError) -> None:
    """Answer a request that is refused."""
    content = {"refusal": error.refusal, "message": str(error)}
    body = json.dumps({"error": content}).encode("ascii")
    status = STATUS.get(error.refusal, 500)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    if error.refusal in CLOSING:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def location_of(error: BaseException) -> str:
    """Return type and line of code of an error; its message might quote a body."""
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(_PACKAGE):
            where = f" at {file.relative_to(_PACKAGE).as_posix()}, line {line}"
    return f"{type(error).__name__}{where}"


def _method(scope: Scope) -> str:
    methods = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
    return scope["method"] if scope["method"] in methods else "(other)"
