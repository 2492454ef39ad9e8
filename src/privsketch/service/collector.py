"""`Collector`: a store with what is kept in memory beside it; what routes and pages ask."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from privsketch.service.settings import Settings
from privsketch.service.store.engine import Store
from privsketch.service.store.tables import events, members, studies, uploads
from privsketch.service.totals import Totals


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

    def counts(self) -> Counts:
        """Numbers for whoever watches it; none of them is of one study."""
        with self.store.reading() as connection:
            n_studies, n_members, n_events = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (studies, members, events)
            )
            found = select(func.count(), func.coalesce(func.sum(uploads.c.n_bytes), 0))
            n_uploads, n_bytes = connection.execute(found.select_from(uploads)).one()
        return Counts(n_studies, n_members, int(n_uploads), int(n_bytes), n_events)
