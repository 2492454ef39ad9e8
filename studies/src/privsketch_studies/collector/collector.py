"""`Collector`: a store, its settings, and what is computed from it and kept in memory.

The total of a study is the exact sum of its uploads at any time. Sums are integers, so a total does
not depend on the order of sketches. It lists them in the order of events all the same, and equals a
merge of the same files bit for bit. Computed totals are kept by the digests of their parts.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import Connection, Select, func, select

from privsketch.pages.comparison.merge import merge_compared
from privsketch.sketching.merge import add_sketches
from privsketch.sketching.sketch import Sketch
from privsketch_studies.collector import mailbox
from privsketch_studies.collector.kinds import SKETCH
from privsketch_studies.collector.members import Member
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import chains, events, members, studies, uploads
from privsketch_studies.collector.studies import Study, study_in
from privsketch_studies.collector.uploads import files_in
from privsketch_studies.errors import CollectorError
from privsketch_studies.sealing.join import join
from privsketch_studies.sealing.tally import Tally

_COUNT_SECONDS = 5.0  # after which counts are computed again
_MAX_TOTALS = 16  # in memory


@dataclass(frozen=True)
class Settings:
    """Limits of a collector; the defaults are for studies of some hundred sites.

    Attributes
    ----------
    member_rate, member_burst : float
        Requests a second of one member in the long run, and requests at once.
    failure_rate, failure_burst : float
        Requests without a valid token from one address: a second, and at once.
    head_seconds : float
        Time that a client has to send the head of a request.
    body_seconds : float
        Time that a client has to send a body of any size.
    body_rate : float
        Bytes a second that a client must send beyond that time.
    max_bodies : int
        Files that one member may upload at the same time.
    max_body_bytes : int
        Bytes of all uploads at the same time; each is in memory until it is answered.
    max_requests : int
        Connections and requests at the same time; more get the status 503.
    """

    member_rate: float = 20.0
    member_burst: float = 100.0
    failure_rate: float = 2.0
    failure_burst: float = 30.0
    head_seconds: float = 15.0
    body_seconds: float = 20.0
    body_rate: float = 20_000.0
    max_bodies: int = 8
    max_body_bytes: int = 256 * 2**20
    max_requests: int = 1000


@dataclass(frozen=True)
class Counts:
    """Sizes of a store, over all studies."""

    n_studies: int
    n_members: int
    n_uploads: int
    n_bytes: int
    n_events: int


@dataclass(frozen=True)
class Total:
    """Sum of a study; `parts` are the digests of its uploads, in the order of events."""

    sketch: Sketch
    parts: tuple[str, ...]


class Totals:
    """Totals of the studies in a store, each computed once for the same parts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: OrderedDict[tuple[str, tuple[str, ...], bool], Total] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, member: Member, name: str) -> Total:
        """Return the total of a study to one of its members; refuse while there is none.

        Its header has the verdict of a comparison of the parts, which may take seconds.
        """
        member.require_role(name)
        return self.compute(name, compare=True)

    def compute(self, name: str, *, compare: bool = False) -> Total:
        """Return the total of a study; refuse while there is none."""
        with self._store.reading() as connection:
            study = study_in(connection, name)
            parts = _parts_of(connection, study)
            files = files_in(connection, name) if study.is_sealed else []
        with self._lock:
            total = self._totals.get((name, parts, compare))
            if total is not None:
                self._totals.move_to_end((name, parts, compare))
                return total
        if study.is_sealed:
            total = self._join(study, files, parts)
        else:
            total = self._merge(study, parts, compare)
        with self._lock:
            self._totals[name, parts, compare] = total
            while len(self._totals) > _MAX_TOTALS:
                self._totals.popitem(last=False)
        return total

    def parts(self, study: Study) -> tuple[str, ...]:
        """Return the digests of the uploads that the total of a study is made of."""
        with self._store.reading() as connection:
            return _parts_of(connection, study)

    def sketches(self, study: Study) -> list[Sketch]:
        """Return the sketches of an open study that count, in the order of events."""
        query = _counted(study.name, SKETCH).with_only_columns(uploads.c.content)
        with self._store.reading() as connection:
            contents = connection.execution_options(yield_per=100).execute(query).scalars()
            return [Sketch.from_bytes(content, design=study.design) for content in contents]

    def _merge(self, study: Study, parts: tuple[str, ...], compare: bool) -> Total:
        if not parts:
            raise CollectorError("no sketch has been uploaded yet", "unknown")
        query = select(uploads.c.digest, uploads.c.content).where(
            uploads.c.study == study.name, uploads.c.kind == SKETCH
        )
        counted = set(parts)
        with self._store.reading() as connection:
            rows = connection.execution_options(yield_per=100).execute(query)
            sketches = {
                digest: Sketch.from_bytes(content, design=study.design)
                for digest, content in rows
                if digest in counted
            }
        in_order = [sketches[digest] for digest in parts]
        total = merge_compared(in_order)[0] if compare else add_sketches(in_order)
        return Total(total, parts)

    def _join(self, study: Study, files: list[mailbox.File], parts: tuple[str, ...]) -> Total:
        sealed = mailbox.sealed_study(files)
        if sealed is None or mailbox.state_of(files) != "tallied":
            raise CollectorError("not all tellers have published their tallies", "unknown")
        query = select(uploads.c.content).where(
            uploads.c.study == study.name, uploads.c.digest.in_(parts)
        )
        with self._store.reading() as connection:
            contents = list(connection.execute(query).scalars())
        return Total(join(sealed, [Tally(content) for content in contents]), parts)


def _parts_of(connection: Connection, study: Study) -> tuple[str, ...]:
    query = _counted(study.name, "tally" if study.is_sealed else SKETCH)
    return tuple(connection.execute(query.with_only_columns(uploads.c.digest)).scalars())


def _counted(study: str, kind: str) -> Select[tuple[object, ...]]:
    """Return a query of the uploads of a kind that count, in the order of events."""
    return (
        select(uploads)
        .where(uploads.c.study == study, uploads.c.kind == kind, uploads.c.aside_at.is_(None))
        .order_by(uploads.c.number)
    )


class Collector:
    """Store, settings and totals of a running collector."""

    def __init__(self, store: Store, settings: Settings | None = None) -> None:
        self.store = store
        self.settings = Settings() if settings is None else settings
        self.totals = Totals(store)
        self._counts: tuple[float, Counts] | None = None
        self._count_lock = threading.Lock()

    def require_store(self) -> None:
        """Refuse if the store does not answer; this reads one row."""
        with self.store.reading() as connection:
            connection.execute(select(chains.c.study).limit(1)).first()

    def counts(self) -> Counts:
        """Return sizes of the store that are at most a few seconds old."""
        # Requests for counts need no token, and counting takes time that grows with the store.
        with self._count_lock:
            if self._counts is None or time.monotonic() - self._counts[0] > _COUNT_SECONDS:
                self._counts = time.monotonic(), self._count()
            return self._counts[1]

    def _count(self) -> Counts:
        with self.store.reading() as connection:
            n_studies, n_members, n_events = (
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (studies, members, events)
            )
            sums = select(func.count(), func.coalesce(func.sum(uploads.c.n_bytes), 0))
            n_uploads, n_bytes = connection.execute(sums.select_from(uploads)).one()
        return Counts(n_studies, n_members, int(n_uploads), int(n_bytes), n_events)
