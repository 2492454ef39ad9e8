"""Totals of studies: the exact sum of what was handed in, at any time.

Sums are integers, so a total does not depend on the order in which sketches came; it has them in
that order all the same, and equals a merge of the same files bit for bit. What was computed is kept
by the digests of its parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import select

from privsketch.sketching.merge import merge
from privsketch.sketching.sketch import Sketch
from privsketch_studies.collector import mailbox
from privsketch_studies.collector.members import Member
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import uploads
from privsketch_studies.collector.studies import Study, study_in
from privsketch_studies.collector.uploads import SKETCH, kept_in
from privsketch_studies.errors import CollectorError
from privsketch_studies.sealing.join import join
from privsketch_studies.sealing.tally import Tally

_MAX_KEPT = 16  # totals in memory


@dataclass(frozen=True)
class Total:
    """The sum over what counts of a study; `parts` are digests, in the order of events."""

    sketch: Sketch
    parts: tuple[str, ...]


class Totals:
    """Totals of a store, each computed once for the same parts."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Total] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, member: Member, name: str) -> Total:
        """The total of a study, for its members; an error before there is any."""
        member.require_role(name)
        return self.compute(name)

    def compute(self, name: str) -> Total:
        """The same, whoever asks."""
        with self._store.reading() as connection:
            study = study_in(connection, name)
            kind = "tally" if study.is_sealed else SKETCH
            query = (
                select(uploads.c.digest)
                .where(uploads.c.study == name, uploads.c.kind == kind)
                .where(uploads.c.aside_at.is_(None))
                .order_by(uploads.c.number)
            )
            parts = tuple(connection.execute(query).scalars())
            kept = kept_in(connection, name) if study.is_sealed else []
        with self._lock:
            found = self._kept.get((name, parts))
            if found is not None:
                self._kept.move_to_end((name, parts))
                return found
        if study.is_sealed:
            made = self._joined(study, kept, parts)
        else:
            made = self._merged(study, parts)
        with self._lock:
            self._kept[name, parts] = made
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def sketches(self, study: Study) -> list[Sketch]:
        """All sketches that count of an open study, in the order of events."""
        query = (
            select(uploads.c.content)
            .where(uploads.c.study == study.name, uploads.c.kind == SKETCH)
            .where(uploads.c.aside_at.is_(None))
            .order_by(uploads.c.number)
        )
        with self._store.reading() as connection:
            found = connection.execution_options(yield_per=100).execute(query).scalars()
            return [_sketch(study, content) for content in found]

    def _merged(self, study: Study, parts: tuple[str, ...]) -> Total:
        if not parts:
            raise CollectorError("no sketch was handed in so far", "unknown")
        query = select(uploads.c.digest, uploads.c.content).where(
            uploads.c.study == study.name, uploads.c.kind == SKETCH
        )
        wanted = set(parts)
        with self._store.reading() as connection:
            found = connection.execution_options(yield_per=100).execute(query)
            sketches = {row[0]: _sketch(study, row[1]) for row in found if row[0] in wanted}
        return Total(merge([sketches[digest] for digest in parts]), parts)

    def _joined(self, study: Study, kept: list[mailbox.Kept], parts: tuple[str, ...]) -> Total:
        sealed = mailbox.sealed_study(kept)
        if sealed is None or mailbox.state_of(kept) != "tallied":
            raise CollectorError("not all tellers have published their tallies", "unknown")
        query = select(uploads.c.content).where(
            uploads.c.study == study.name, uploads.c.digest.in_(parts)
        )
        with self._store.reading() as connection:
            contents = list(connection.execute(query).scalars())
        return Total(join(sealed, [Tally(content) for content in contents]), parts)


def _sketch(study: Study, content: bytes) -> Sketch:
    return Sketch.from_bytes(content, design=study.design)
