"""Uploads of members: checked in full, stored once, and acknowledged when they are on disk.

Slow checks are done before the transaction; what they depend on is checked again within it. A
repeated upload changes nothing and gets the same answer, even if the study is closed by then: a
client that missed the first answer may ask again.

A study has one sketch for each member, source, release and set of values. Noise does not repeat, so
equal values are a copy, and a copy would stop every merge.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from privsketch._base.errors import FileError, SignatureError
from privsketch._base.formats import SKETCH_MAGIC
from privsketch.signing.documents import alike
from privsketch.signing.signature import Signature
from privsketch_studies.collector import mailbox
from privsketch_studies.collector.events import SET_ASIDE, UPLOADED, add_event, lock_chain
from privsketch_studies.collector.kinds import (
    MAX_SOURCE,
    SEALED_KINDS,
    SKETCH,
    n_sketch_bytes,
    phrase_of,
    read_sketch,
    starts_of,
)
from privsketch_studies.collector.mailbox import CheckedFile, File
from privsketch_studies.collector.members import Member, actor, recheck_role
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import claims, events, members, roles, uploads
from privsketch_studies.collector.studies import Study, study_in
from privsketch_studies.errors import CollectorError, StudyError
from privsketch_studies.sealing.files import MAGIC
from privsketch_studies.sealing.study import SealedStudy

_FACT_COLUMNS = tuple(column for column in uploads.c if column.name not in ("study", "content"))
_FILE_COLUMNS = ("digest", "kind", "member", "whose", "signer", "n_bytes")
_BY_DIGEST = (
    select(*_FACT_COLUMNS, events.c.digest.label("event_digest"))
    .join(events, (events.c.study == uploads.c.study) & (events.c.number == uploads.c.number))
    .where(uploads.c.study == bindparam("in_study"), uploads.c.digest == bindparam("sha256"))
)
_OTHER_SITES = (
    select(members.c.alike)
    .join(roles, roles.c.member == members.c.name)
    .where(roles.c.study == bindparam("in_study"), roles.c.role.in_(("site", "teller")))
    .where(members.c.name != bindparam("uploader"), members.c.alike == bindparam("alike_name"))
)
_DELETE_COPY = delete(uploads).where(
    uploads.c.study == bindparam("in_study"),
    uploads.c.digest == bindparam("sha256"),
    uploads.c.member != bindparam("uploader"),
    uploads.c.aside_at.is_not(None),
)
_INSERT_UPLOAD, _INSERT_CLAIMS = insert(uploads), insert(claims)
MAX_REASON = 400
REPLACED_BY_NEWER = "replaced by a newer one"
_MAX_SKETCH_HEADER = 32 * 1024  # upper bound on bytes besides values and design


@dataclass(frozen=True)
class Acknowledgement:
    """Proof that an upload is on disk, with its event in the chain.

    `event` is the number of the event, and `is_new` is false for bytes that were uploaded before.
    """

    study: str
    kind: str
    digest: str
    n_bytes: int
    at: int
    event: int
    event_digest: str
    is_new: bool


@dataclass(frozen=True)
class Upload:
    """Upload without its bytes.

    `number` is that of its event. `whose` is the source, holder or teller that the file names.
    `member` uploaded it, and `signer` is the fingerprint of the key that signed it.
    `aside_because` is the reason why it was set aside, if it was.
    """

    digest: str
    number: int
    kind: str
    member: str
    whose: str
    signer: str | None
    n_bytes: int
    at: int
    is_signed: bool
    aside_because: str | None


def limits(store: Store, member: Member, name: str) -> tuple[int, tuple[bytes, ...]]:
    """Return what a member may upload to a study: a bound on its bytes, and its first bytes."""
    member.require_role(name)
    with store.reading() as connection:
        study = study_in(connection, name)
        if study.is_sealed:
            files, roles = files_in(connection, name), member.roles_in(name)
            return mailbox.max_bytes(study, files, roles), starts_of(SEALED_KINDS)
    design = study.design
    n_values = design.n_values + design.dim + 1
    n_bytes = 8 * n_values + len(study.design_bytes) + _MAX_SKETCH_HEADER
    return n_bytes, starts_of([SKETCH])


def sealed_study(store: Store, study: Study) -> SealedStudy | None:
    """Return the sealed study that was made of the cards in a mailbox; None if there is none."""
    if not study.is_sealed:
        return None
    with store.reading() as connection:
        return mailbox.sealed_study(files_in(connection, study.name))


def content_sizes(store: Store, study: Study) -> dict[bytes, int]:
    """Return the bytes between header and end of the binary files that a study takes.

    They are known beforehand; the keys are the first bytes of the files.
    """
    if not study.is_sealed:
        return {SKETCH_MAGIC: n_sketch_bytes(study.design)}
    sealed = sealed_study(store, study)
    sizes = {} if sealed is None else mailbox.n_content_bytes(sealed)
    return {MAGIC[kind]: n_bytes for kind, n_bytes in sizes.items()}


def submit(
    store: Store, member: Member, name: str, data: bytes, signature: bytes | None = None
) -> Acknowledgement:
    """Store an upload; refuse it unless it is valid, allowed, and the only one of its kind."""
    digest = hashlib.sha256(data).hexdigest()
    with store.reading() as connection:
        member.require_role(name)
        row = _row_of(connection, name, digest)
        earlier = _earlier_answer(row, member, name)
        if earlier is not None:
            return earlier
        has_copy = row is not None  # another member's, and set aside
        study = study_in(connection, name)
        files = files_in(connection, name) if study.is_sealed else []
    if study.is_sealed:
        if signature is not None:
            raise SignatureError("signature: files of a sealed study contain their own signatures")
        checked = mailbox.check_file(study, files, member, data)
    else:
        checked = _check_sketch(study, member, data, signature)
    try:
        return store.write(
            lambda connection: _store(
                connection, member, name, digest, data, signature, checked, files, has_copy
            )
        )
    except IntegrityError:
        # Another request was faster, perhaps one of the same member with the same bytes.
        with store.reading() as connection:
            earlier = _earlier_answer(_row_of(connection, name, digest), member, name)
        if earlier is not None:
            return earlier
        raise _conflict_error(checked) from None


def _store(
    connection: Connection,
    member: Member,
    name: str,
    digest: str,
    data: bytes,
    signature: bytes | None,
    checked: CheckedFile,
    files: Sequence[File],
    has_copy: bool,
) -> Acknowledgement:
    """Insert row, claims and event, unless something has changed since the check."""
    lock_chain(connection, name)
    recheck_role(connection, member, name, *checked.roles)
    study = study_in(connection, name)
    if study.is_sealed:
        current = files_in(connection, name)
        if current != list(files):
            # Ballots do not depend on each other, and are large.
            if checked.kind == "ballot":
                mailbox.require_state(study, current, checked.kind)
            else:
                checked = mailbox.check_file(study, current, member, data)
    elif study.is_over():
        raise closed_error()
    if checked.kind in (SKETCH, "card") and _imitates_other_site(
        connection, member, name, checked.whose
    ):
        raise CollectorError(f"the {checked.kind} has the name of another member", "conflict")
    if has_copy:
        connection.execute(
            _DELETE_COPY, {"in_study": name, "sha256": digest, "uploader": member.name}
        )
    for replaced in checked.replaces:
        _set_aside(connection, name, replaced, REPLACED_BY_NEWER, member.name)
    facts = {
        "digest": digest,
        "kind": checked.kind,
        "whose": checked.whose,
        "n_bytes": len(data),
        "signer": checked.signer,
    }
    event = add_event(connection, name, member.name, UPLOADED, **facts)
    row = {"study": name, "number": event.number, "member": member.name, "at": event.at}
    connection.execute(_INSERT_UPLOAD, {**row, **facts, "content": data, "signature": signature})
    rows = [{"study": name, "claim": claim, "digest": digest} for claim in sorted(checked.claims)]
    connection.execute(_INSERT_CLAIMS, rows)
    return Acknowledgement(
        name, checked.kind, digest, len(data), event.at, event.number, event.digest, True
    )


def _row_of(connection: Connection, name: str, digest: str) -> RowMapping | None:
    rows = connection.execute(_BY_DIGEST, {"in_study": name, "sha256": digest})
    return rows.mappings().first()


def _earlier_answer(row: RowMapping | None, member: Member, name: str) -> Acknowledgement | None:
    """Return the answer to an earlier valid upload of the same bytes; None if there was none."""
    if row is None or (row["member"] != member.name and row["aside_at"] is not None):
        return None
    if row["member"] != member.name:
        raise CollectorError("another member has uploaded the same file", "conflict")
    if row["aside_at"] is not None:
        raise CollectorError("this file was set aside; upload another", "conflict")
    facts = {field: row[field] for field in ("kind", "digest", "n_bytes", "at", "event_digest")}
    return Acknowledgement(study=name, event=row["number"], is_new=False, **facts)


def closed_error() -> CollectorError:
    """Return the error for an upload to a closed study."""
    return CollectorError("the study is closed, or its last day is over", "closed")


def _conflict_error(checked: CheckedFile) -> CollectorError:
    return CollectorError(
        f"a different upload exists: {phrase_of(checked.kind)} of yours, or one with the same "
        "source, release or values",
        "conflict",
    )


# ---------------------------------------------------------------- sketches of open studies


def _check_sketch(
    study: Study, member: Member, data: bytes, signature: bytes | None
) -> CheckedFile:
    """Check a sketch in full: its design, noise, source, values and signature."""
    member.require_role(study.name, "site")
    if study.is_over():
        raise closed_error()
    if not data.startswith(SKETCH_MAGIC):
        raise CollectorError("not a sketch file; an open study takes only sketches", "kind")
    # The sketch is read with the study's design: a foreign one could ask for much memory.
    sketch = read_sketch(data, "sketch", study.design)
    source = sketch.sources[0]
    signer = _signer(member, data, signature)
    digest = hashlib.sha256(sketch.values.tobytes()).hexdigest()
    claims = [f"member:{member.name}", f"source:{_fit_column(alike(source))}"]
    claims += [f"release:{sketch.ids[0]}", f"values:{digest}"]
    return CheckedFile(SKETCH, source, signer, tuple(claims), ("site",))


def _fit_column(text: str) -> str:
    """Return the text, or its hash if it is too long for its column."""
    return text if len(text) <= MAX_SOURCE else hashlib.sha256(text.encode()).hexdigest()


def _signer(member: Member, data: bytes, signature: bytes | None) -> str | None:
    """Return the signer's fingerprint; a member with an acknowledged key must sign."""
    if signature is None:
        if member.key is not None:
            raise SignatureError("sketch: not signed; sign it with your key (privsketch key sign)")
        return None
    parsed = Signature.from_bytes(signature)
    if parsed.kind != SKETCH or not parsed.fits(data):
        raise SignatureError("signature: not a signature of this file")
    if member.key is not None and parsed.key != member.key.identity:
        raise SignatureError("signature: made with a key that is not acknowledged as yours")
    return parsed.fingerprint


def _imitates_other_site(connection: Connection, member: Member, study: str, source: str) -> bool:
    """Return whether a source could be mistaken for the name of another site."""
    values = {"in_study": study, "uploader": member.name, "alike_name": alike(source)[:200]}
    return connection.execute(_OTHER_SITES, values).first() is not None


# ---------------------------------------------------------------- stored uploads


def list_uploads(store: Store, study: str, *, with_set_aside: bool = False) -> list[Upload]:
    """Return uploads in order; `with_set_aside` includes those that were set aside."""
    query = select(*_FACT_COLUMNS).where(uploads.c.study == study).order_by(uploads.c.number)
    if not with_set_aside:
        query = query.where(uploads.c.aside_at.is_(None))
    with store.reading() as connection:
        return [_upload(row) for row in connection.execute(query).mappings()]


def total_bytes(store: Store, study: str) -> int:
    """Return the bytes of all uploads of a study that count."""
    return sum(upload.n_bytes for upload in list_uploads(store, study))


def read_upload(
    store: Store, member: Member, study: str, digest: str
) -> tuple[Upload, bytes, bytes | None]:
    """Return an upload, its bytes and its signature; refuse members who may not see them.

    All members may see the files of a sealed study. Only owners, readers and the member who
    uploaded it may see a sketch; other sites get the total.
    """
    member.require_role(study)
    query = select(uploads).where(uploads.c.study == study, uploads.c.digest == digest)
    with store.reading() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        raise CollectorError("there is no upload with this digest", "unknown")
    if row["kind"] == SKETCH and row["member"] != member.name:
        member.require_role(study, "owner", "reader")
    return _upload(row), row["content"], row["signature"]


def set_aside(store: Store, study: str, digest: str, because: str, *, by: Member | None) -> None:
    """Set an upload aside, as an owner; its member may then upload another file.

    The upload no longer counts. Its bytes and both events stay.
    """
    if not 1 <= len(because) <= MAX_REASON or not because.isprintable():
        raise FileError(f"because: expected one line of 1 to {MAX_REASON} characters")
    with store.writing() as connection:
        lock_chain(connection, study)
        if by is not None:
            recheck_role(connection, by, study, "owner")
        current_study = study_in(connection, study)
        query = select(*_FACT_COLUMNS).where(
            uploads.c.study == study, uploads.c.digest == digest, uploads.c.aside_at.is_(None)
        )
        row = connection.execute(query).mappings().first()
        if row is None:
            raise CollectorError("there is no upload with this digest that counts", "unknown")
        if current_study.is_sealed:
            mailbox.require_state(current_study, files_in(connection, study), "card")
            if row["kind"] != "card":
                raise StudyError("only cards of a sealed study can be set aside")
        elif current_study.is_over():
            raise closed_error()
        _set_aside(connection, study, digest, because, actor(by))


def _set_aside(
    connection: Connection, study: str, digest: str, because: str, actor: str | None
) -> None:
    event = add_event(connection, study, actor, SET_ASIDE, digest=digest, because=because)
    connection.execute(
        update(uploads)
        .where(uploads.c.study == study, uploads.c.digest == digest)
        .values(aside_at=event.at, aside_because=because)
    )
    connection.execute(delete(claims).where(claims.c.study == study, claims.c.digest == digest))


def files_in(connection: Connection, study: str) -> list[File]:
    """Return the files of a sealed study that are not set aside, with the content of small ones."""
    query = (
        select(*(uploads.c[name] for name in _FILE_COLUMNS))
        .where(uploads.c.study == study, uploads.c.aside_at.is_(None))
        .order_by(uploads.c.number)
    )
    rows = connection.execute(query).all()
    decisive = [row.digest for row in rows if row.kind in mailbox.DECISIVE]
    contents = dict(
        connection.execute(
            select(uploads.c.digest, uploads.c.content).where(
                uploads.c.study == study, uploads.c.digest.in_(decisive)
            )
        ).all()
    )
    return [File(**dict(row._mapping), content=contents.get(row.digest)) for row in rows]


def _upload(row: RowMapping) -> Upload:
    fields = [field.name for field in dataclasses.fields(Upload) if field.name != "is_signed"]
    is_signed = row["signature"] is not None
    return Upload(**{name: row[name] for name in fields}, is_signed=is_signed)
