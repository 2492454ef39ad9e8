"""The server that runs the application until it is stopped.

uvicorn waits without a limit for a head that is not complete, for the rest of a body that was
answered already, and for a client that does not read. `Connection` closes these in time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from privsketch._base.errors import AccessError
from privsketch_studies.collector.collector import Collector, Settings
from privsketch_studies.collector.web.app import make_app
from privsketch_studies.collector.web.limits import LOGGER

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SECONDS = 10


class Connection(H11Protocol):
    """Connection with timeouts for the head of a request and for reading the answer."""

    settings = Settings()
    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timeouts."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop the timeout once the head of a request is complete; parts of it do not count."""
        super().data_received(data)
        if self._is_at_work():
            self._stop_due()

    def on_response_complete(self) -> None:
        """Start the timeout of the next request and of what is left of a body."""
        super().on_response_complete()
        if self._is_at_work():
            self._stop_due()
        else:
            self._expect_request()

    def pause_writing(self) -> None:
        """Start the timeout of a client that reads too slowly."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Cancel the timeout: the client caught up."""
        super().resume_writing()
        if self._unread is not None and not self.transport.is_closing():
            self._unread.cancel()

    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_request(self) -> None:
        self._stop_due()
        if not self.transport.is_closing():
            self._due = self.loop.call_later(self.settings.head_seconds, self._close)

    def _expect_reading(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        n_bytes = self.transport.get_write_buffer_size()
        seconds = self.settings.body_seconds + n_bytes / self.settings.body_rate
        self._unread = self.loop.call_later(seconds, self.transport.abort)

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()  # the answer is still sent, within a timeout
            self._expect_reading()

    def _stop_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _stop(self) -> None:
        self._stop_due()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class Server(uvicorn.Server):
    """Server that ends without an error when it is stopped by a signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs; uvicorn would raise them again afterwards."""
        before: dict[signal.Signals, Any] = {}
        try:
            for number in _SIGNALS:
                before[number] = signal.signal(number, self.handle_exit)
        except ValueError:  # not in the main thread, which handles signals
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 stands for any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is explicit because asyncio sets TCP_NODELAY only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)  # from now on connections wait until the server accepts them
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or "cannot be used"
        raise AccessError(f"{host}, port {port}: {reason}") from None
    return listener


def make_server(collector: Collector, *, proxies: str = "127.0.0.1") -> Server:
    """Return a server of a collector; it trusts forwarded addresses from `proxies` only."""
    config = uvicorn.Config(
        make_app(collector),
        access_log=False,  # the guard writes one line a request, without a client's words
        log_config=None,
        proxy_headers=True,
        forwarded_allow_ips=proxies,
        server_header=False,
        http=type("Connection", (Connection,), {"settings": collector.settings}),
        limit_concurrency=collector.settings.max_requests,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
        lifespan="off",
        ws="none",
    )
    return Server(config)


def log_to_standard_error() -> None:
    """Log one line for each request to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # its messages may quote rows
