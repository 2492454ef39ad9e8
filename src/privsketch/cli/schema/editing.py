"""`privsketch schema edit`: a page on this machine, for as long as one schema is edited.

The server listens on the loopback address alone, at a port of the system's choice. Its address has
a code that works once: it gives the browser a cookie for a path that nobody can guess, because
addresses show in histories. They also show in lists of processes, so a browser is started with a
file that only its user can read, and that file leads to the address. What is sent back must come
from that page
(the host, the origin, the cookie and a token in the form), so that neither another site nor a name
that was bound to this address anew can reach it. Nothing is logged.
"""

from __future__ import annotations

import html
import os
import secrets
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hmac import compare_digest
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from privsketch._base.errors import PrivsketchError
from privsketch.pages.schema.form import Texts, content_of, texts_of
from privsketch.pages.schema.page import POLICY, form_page, note_page

_HOST, _COOKIE = "127.0.0.1", "session"
_MAX_BYTES = 4 * 1024**2  # of what a browser sends
_MAX_FIELDS = 100_000
_SECONDS = 30  # that a connection may be silent
_POLL = 0.2  # seconds after which a signal is looked for


def edit(
    name: str,
    content: Mapping[str, Any],
    save: Callable[[dict[str, Any]], None],
    *,
    told: Callable[[str], None],
    browser: bool,
    raise_if_stopped: Callable[[], None],
) -> None:
    """Show a form for a schema, as JSON values, and return once it was saved.

    `save` writes the new schema, and raises an error of ours where it cannot, which the page shows.
    `told` gets the address.
    """
    with _Server(name, content, save) as server, way_to(server.address) as way:
        told(server.address)
        if browser:
            threading.Thread(target=open_browser, args=(way.as_uri(),), daemon=True).start()
        server.timeout = _POLL
        while not server.is_done:
            raise_if_stopped()
            server.handle_request()
            if server.failure is not None:
                raise server.failure


@contextmanager
def way_to(address: str) -> Iterator[Path]:
    """Make a file for its owner alone that leads a browser to an address; remove it afterwards."""
    handle, name = tempfile.mkstemp(prefix="privsketch-", suffix=".html")  # mode 0600
    path = Path(name)
    try:
        place = html.escape(address, quote=True)
        page = (
            f'<!doctype html><meta http-equiv="refresh" content="0; url={place}"><title>.</title>'
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
        yield path
    finally:
        with suppress(OSError):
            path.unlink()


def open_browser(address: str) -> None:
    """Open an address in the browser of this user, if there is one."""
    webbrowser.open(address)


class _Server(ThreadingHTTPServer):
    """The server of one schema; a browser may keep a connection open without using it."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(
        self, name: str, content: Mapping[str, Any], save: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__((_HOST, 0), _Handler)
        self.name, self.content, self.save = name, content, save
        self.host = f"{_HOST}:{self.server_port}"
        self.lock = threading.Lock()
        self.code: str | None = secrets.token_urlsafe(32)
        self.path, self.session, self.token = (secrets.token_urlsafe(32) for _ in range(3))
        self.address = f"http://{self.host}/{self.code}"
        self.is_done = False
        self.failure: BaseException | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep an error for the command; a connection that breaks is the browser's affair."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self.failure = error

    def takes_code(self, path: str) -> bool:
        """Return whether a path is the code, which is used up by that."""
        with self.lock:
            if self.code is None or not _same(path, f"/{self.code}"):
                return False
            self.code = None
            return True


def _same(one: str, other: str) -> bool:
    """Return whether texts are equal, in a time that does not tell where they differ."""
    return compare_digest(one.encode("utf-8", "replace"), other.encode())


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS
    server_version, sys_version = "privsketch", ""

    def do_GET(self) -> None:
        """Exchange the code for a cookie, or show the form."""
        if not self._is_for_us():
            return
        server = self.server
        if server.takes_code(self.path):
            cookie = f"{_COOKIE}={server.session}; Path=/{server.path}; HttpOnly; SameSite=Lax"
            headers = {"Location": f"/{server.path}", "Set-Cookie": cookie}
            self._answer(HTTPStatus.SEE_OTHER, "", headers)
        elif self._has_session():
            self._show(texts_of(server.content), {})
        else:
            self._refuse()

    def do_POST(self) -> None:
        """Save what the form says, or show what is wrong."""
        if not self._is_for_us():
            return
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "same-origin")
        if origin != f"http://{self.server.host}" or site != "same-origin":
            self._refuse()
            return
        texts = self._texts() if self._has_session() else None
        if texts is None or not _same(texts.get("form", ""), self.server.token):
            self._refuse()
            return
        with self.server.lock:  # a double click sends twice
            self._save(texts)

    def _save(self, texts: Texts) -> None:
        server = self.server
        if server.is_done:
            self._refuse()
            return
        content, errors = content_of(server.content, texts, accepts=texts.get("save") == "accept")
        if not errors:
            try:
                server.save(content)
            except PrivsketchError as error:
                errors = {"": str(error)}
        if errors:
            self._show(texts, errors, HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        told = "You can close this page; the command has ended."
        self._answer(HTTPStatus.OK, note_page(f"{server.name} is saved", told))
        server.is_done = True

    def _is_for_us(self) -> bool:
        """Return whether the request names this server, as no site does whose name was rebound."""
        if self.headers.get_all("Host", []) == [self.server.host]:
            return True
        self._refuse()
        return False

    def _has_session(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            cookie = None
        is_session = cookie is not None and _same(cookie.value, self.server.session)
        return _same(self.path, f"/{self.server.path}") and is_session

    def _texts(self) -> dict[str, str] | None:
        """Return the fields of the form; None for anything that is none."""
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        length = self.headers.get("Content-Length", "")
        if kind != "application/x-www-form-urlencoded" or not length.isascii():
            return None
        # Python refuses to read numbers of thousands of digits.
        if not length.isdigit() or len(length) > 9 or int(length) > _MAX_BYTES:
            return None
        try:
            body = self.rfile.read(int(length)).decode("ascii")
            fields = parse_qs(body, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            return None
        return {name: values[-1] for name, values in fields.items()}

    def _show(
        self, texts: Texts, errors: Mapping[str, str], status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        server = self.server
        page = form_page(server.name, server.content, texts, errors, token=server.token)
        self._answer(status, page)

    def _refuse(self) -> None:
        told = (
            "The address works once, in one browser. If you did not open it before, somebody else "
            "on this machine has: end the command with Ctrl-C, and start it again."
        )
        self._answer(HTTPStatus.FORBIDDEN, note_page("This page is not for you", told))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is none without repeating any of it."""
        self._answer(HTTPStatus(code), note_page("This request is not understood"))

    def _answer(
        self, status: HTTPStatus, page: str, headers: Mapping[str, str] | None = None
    ) -> None:
        content = page.encode()
        self.close_connection = True
        self.send_response(status)
        for name, value in {**_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: addresses have the code, and forms what is private."""


_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with less, a form is sent without its origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}
