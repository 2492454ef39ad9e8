"""`Collector`: a store with what is kept in memory beside it; what routes and pages ask."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from sqlalchemy import func, select

from privsketch_studies.collector.settings import Settings
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import chains, events, members, studies, uploads
from privsketch_studies.collector.totals import Totals

_COUNTED_SECONDS = 5.0


@dataclass(frozen=True)
class Counts:
    """What there is, in numbers."""

    n_studies: int
    n_members: int
    n_uploads: int
    n_bytes: int
    n_events: int


class Collector:
    """All that a running collector works with."""

    def __init__(self, store: Store, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = Settings() if settings is None else settings
        self.totals = Totals(store)
        self._counted: tuple[float, Counts] | None = None
        self._counting = threading.Lock()

    def require_store(self) -> None:
        """Refuse if the store does not answer; the work of one row, whoever asks."""
        with self.store.reading() as connection:
            connection.execute(select(chains.c.study).limit(1)).first()

    def counts(self) -> Counts:
        """Numbers for whoever watches it, up to some seconds old; none of them is of one study."""
        # Anybody may ask, and to count takes time that grows with what is there.
        with self._counting:
            if self._counted is None or time.monotonic() - self._counted[0] > _COUNTED_SECONDS:
                self._counted = time.monotonic(), self._count()
            return self._counted[1]

    def _count(self) -> Counts:
        with self.store.reading() as connection:
            n_studies, n_members, n_events = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (studies, members, events)
            )
            found = select(func.count(), func.coalesce(func.sum(uploads.c.n_bytes), 0))
            n_uploads, n_bytes = connection.execute(found.select_from(uploads)).one()
        return Counts(n_studies, n_members, int(n_uploads), int(n_bytes), n_events)
