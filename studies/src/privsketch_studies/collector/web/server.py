"""A server that runs the application until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from privsketch._base.errors import AccessError
from privsketch_studies.collector.collector import Collector
from privsketch_studies.collector.web.app import make_app
from privsketch_studies.collector.web.connections import connections_of
from privsketch_studies.collector.web.limits import LOGGER

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOP_SECONDS = 10


class Server(uvicorn.Server):
    """Ends by itself when it is told to; nothing was interrupted then."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals while it runs, and give them back without raising them again."""
        before: dict[signal.Signals, Any] = {}
        try:
            for number in _SIGNALS:
                before[number] = signal.signal(number, self.handle_exit)
        except ValueError:  # not in the main thread: whoever runs it stops it
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its number: asyncio sends without delay only what says to be TCP.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)  # connections wait from now on, before the server takes them
    except (OSError, OverflowError) as error:
        found.close()
        reason = getattr(error, "strerror", None) or "cannot be used"
        raise AccessError(f"{host}, port {port}: {reason}") from None
    return found


def make_server(collector: Collector, *, proxies: str = "127.0.0.1") -> Server:
    """A server of a collector; `proxies` are addresses whose word on clients is taken."""
    config = uvicorn.Config(
        make_app(collector),
        access_log=False,  # the guard writes one line a request, without a client's words
        log_config=None,
        proxy_headers=True,
        forwarded_allow_ips=proxies,
        server_header=False,
        http=connections_of(collector.settings),
        limit_concurrency=collector.settings.max_requests,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=32 * 1024,
        lifespan="off",
        ws="none",
    )
    return Server(config)


def log_to_standard_error() -> None:
    """One line a request, with its time, for whatever keeps logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # its words may be those of rows
