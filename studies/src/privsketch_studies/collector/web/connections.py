"""Connections that are closed in time: those that ask nothing, do not end, or do not listen.

uvicorn waits without end for headers that are not finished, for the rest of a body that was
answered already, and for a client that does not read. Each takes a place that others need.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from privsketch_studies.collector.settings import Settings


class Connection(H11Protocol):
    """A connection with a clock: a whole head of a request is due, then what was answered."""

    settings = Settings()
    _due: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """From now on a request is due."""
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parts of a head do not give it more time, a whole one does."""
        super().data_received(data)
        if self._is_at_work():
            self._stop_due()

    def on_response_complete(self) -> None:
        """The next request is due, with all that may be left of a body."""
        super().on_response_complete()
        if self._is_at_work():
            self._stop_due()
        else:
            self._expect_request()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """It has read."""
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
            self.transport.close()  # what was answered is still sent, for a while
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


def connections_of(settings: Settings) -> type[Connection]:
    """The kind of connections that a server with these settings has."""
    return type("Connection", (Connection,), {"settings": settings})
