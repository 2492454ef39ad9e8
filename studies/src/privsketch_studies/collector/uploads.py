"""What members hand in: checked in full, kept once, acknowledged when it is on disk.

Checks that take time are done before anything is held; what they rest on is looked at once more in
the transaction that keeps the bytes. The same bytes again change nothing and get the same answer,
also when a study is closed by then: whoever did not hear the first answer may ask again.

Of a sketch a study has one for each member, source, release and values: noise does not repeat, so
who hands in the values of another has copied them, and a copy would stop every merge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from privsketch._base.errors import FileError, MergeError, SignatureError
from privsketch._base.formats import SKETCH_MAGIC
from privsketch.facts.receipt import INSECURE
from privsketch.signing.documents import alike
from privsketch.signing.signature import Signature
from privsketch.sketching.limits import require_possible
from privsketch.sketching.sketch import Sketch
from privsketch_studies.collector import mailbox
from privsketch_studies.collector.events import SET_ASIDE, UPLOADED, add_event, hold_chain
from privsketch_studies.collector.mailbox import Checked, Kept
from privsketch_studies.collector.members import Member, require_still
from privsketch_studies.collector.store.engine import Store
from privsketch_studies.collector.store.tables import claims, events, members, roles, uploads
from privsketch_studies.collector.studies import Study, study_in
from privsketch_studies.errors import CollectorError, StudyError

SKETCH = "sketch"
_FACTS = tuple(column for column in uploads.c if column.name not in ("study", "content"))
_OF_KEPT = ("digest", "kind", "member", "whose", "signer", "n_bytes")
_BY_DIGEST = (
    select(*_FACTS, events.c.digest.label("event_digest"))
    .join(events, (events.c.study == uploads.c.study) & (events.c.number == uploads.c.number))
    .where(uploads.c.study == bindparam("in_study"), uploads.c.digest == bindparam("sha256"))
)
_OTHER_SITES = (
    select(members.c.alike)
    .join(roles, roles.c.member == members.c.name)
    .where(roles.c.study == bindparam("in_study"), roles.c.role.in_(("site", "teller")))
    .where(members.c.name != bindparam("own"), members.c.alike == bindparam("reads"))
)
_GIVE_WAY = delete(uploads).where(
    uploads.c.study == bindparam("in_study"),
    uploads.c.digest == bindparam("sha256"),
    uploads.c.member != bindparam("own"),
    uploads.c.aside_at.is_not(None),
)
_ADD, _ADD_CLAIMS = insert(uploads), insert(claims)
MAX_SOURCE = 200  # characters
MAX_REASON = 400
REPLACED_BY_NEWER = "replaced by a newer one"
_BESIDE_VALUES = 32 * 1024  # bytes of a sketch file that are neither values nor design, from above


@dataclass(frozen=True)
class Acknowledgement:
    """What whoever hands something in may keep: it is on disk, as this event of the chain.

    `is_new` is False for bytes that were there already.
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
    """One thing that was handed in, without its bytes.

    `whose` is a source, a holder or a teller, as the file says; `member` is who handed it in, and
    `signer` the fingerprint of the key that signed it.
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


def max_bytes(store: Store, member: Member, study: Study) -> int:
    """How large anything can be that a member may hand in now."""
    if not study.is_sealed:
        design = study.design
        n_values = design.n_values + design.dim + 1
        return 8 * n_values + len(study.design_bytes) + _BESIDE_VALUES
    with store.reading() as connection:
        kept = kept_in(connection, study.name)
        return mailbox.max_bytes(study, kept, member.roles_in(study.name))


def submit(
    store: Store, member: Member, name: str, data: bytes, signature: bytes | None = None
) -> Acknowledgement:
    """Keep what a member hands in; refused unless it is whole, allowed, and the only one."""
    digest = hashlib.sha256(data).hexdigest()
    with store.reading() as connection:
        member.require_role(name)
        row = _row_of(connection, name, digest)
        known = _acknowledged(row, member, name)
        if known is not None:
            return known
        gives_way = row is not None
        study = study_in(connection, name)
        kept = kept_in(connection, name) if study.is_sealed else []
    if study.is_sealed:
        if signature is not None:
            raise SignatureError("signature: files of a sealed study hold their own")
        checked = mailbox.check_file(study, kept, member, data)
    else:
        checked = _check_sketch(study, member, data, signature)
    try:
        return store.write(
            lambda connection: _keep(
                connection, member, name, digest, data, signature, checked, kept, gives_way
            )
        )
    except IntegrityError:
        # Somebody was faster: perhaps the same member, with the same bytes.
        with store.reading() as connection:
            known = _acknowledged(_row_of(connection, name, digest), member, name)
        if known is not None:
            return known
        raise _taken(checked) from None


def _keep(
    connection: Connection,
    member: Member,
    name: str,
    digest: str,
    data: bytes,
    signature: bytes | None,
    checked: Checked,
    kept: Sequence[Kept],
    gives_way: bool,
) -> Acknowledgement:
    """Write row, claims and event, if everything is still as it was checked."""
    hold_chain(connection, name)
    require_still(connection, member, name, *checked.roles)
    study = study_in(connection, name)
    if study.is_sealed:
        there = kept_in(connection, name)
        if there != list(kept):
            # Ballots do not depend on each other, and are large.
            if checked.kind == "ballot":
                mailbox.require_state(study, there, checked.kind)
            else:
                checked = mailbox.check_file(study, there, member, data)
    elif study.is_over():
        raise closed()
    if checked.kind in (SKETCH, "card") and _is_other_member(
        connection, member, name, checked.whose
    ):
        raise CollectorError(f"the {checked.kind} has the name of another member", "conflict")
    if gives_way:  # a copy that somebody else handed in, and that was set aside
        connection.execute(_GIVE_WAY, {"in_study": name, "sha256": digest, "own": member.name})
    for one in checked.replaces:
        _set_aside(connection, name, one, REPLACED_BY_NEWER, member.name)
    event = add_event(
        connection,
        name,
        member.name,
        UPLOADED,
        digest=digest,
        kind=checked.kind,
        whose=checked.whose,
        n_bytes=len(data),
        signer=checked.signer,
    )
    row = {
        "study": name,
        "digest": digest,
        "number": event.number,
        "kind": checked.kind,
        "member": member.name,
        "whose": checked.whose,
        "signer": checked.signer,
        "n_bytes": len(data),
        "content": data,
        "signature": signature,
        "at": event.at,
    }
    connection.execute(_ADD, row)
    rows = [{"study": name, "claim": claim, "digest": digest} for claim in sorted(checked.claims)]
    connection.execute(_ADD_CLAIMS, rows)
    return Acknowledgement(
        name, checked.kind, digest, len(data), event.at, event.number, event.digest, True
    )


def _row_of(connection: Connection, name: str, digest: str) -> RowMapping | None:
    found = connection.execute(_BY_DIGEST, {"in_study": name, "sha256": digest})
    return found.mappings().first()


def _acknowledged(row: RowMapping | None, member: Member, name: str) -> Acknowledgement | None:
    """The answer to bytes that this member has handed in before; None if nobody's count."""
    if row is None or (row["member"] != member.name and row["aside_at"] is not None):
        return None
    if row["member"] != member.name:
        raise CollectorError("another member has handed in the same bytes", "conflict")
    if row["aside_at"] is not None:
        raise CollectorError("these bytes were set aside; hand in others", "conflict")
    return Acknowledgement(
        name,
        row["kind"],
        row["digest"],
        row["n_bytes"],
        row["at"],
        row["number"],
        row["event_digest"],
        False,
    )


def closed() -> CollectorError:
    """What everybody hears who comes too late."""
    return CollectorError("the study is closed, or its last day is over", "closed")


def _taken(checked: Checked) -> CollectorError:
    return CollectorError(
        f"there is a {checked.kind} of yours already, with other bytes, or another one of the same "
        "source, release or values",
        "conflict",
    )


# ---------------------------------------------------------------- sketches of open studies


def _check_sketch(
    study: Study,
    member: Member,
    data: bytes,
    signature: bytes | None,
) -> Checked:
    """Check a sketch by everything that can be known of it."""
    member.require_role(study.name, "site")
    if study.is_over():
        raise closed()
    if not data.startswith(SKETCH_MAGIC):
        raise CollectorError("not a sketch file; an open study takes nothing else", "kind")
    what = "sketch"
    # Nothing is made of a stranger's design: what one asks for may be large.
    sketch = Sketch.from_bytes(data, what, design=study.design)
    if sketch.to_bytes() != data:
        raise FileError(f"{what}: not as privsketch writes it; the file was altered")
    if len(sketch.ids) != 1 or sketch.weights != (1,) or sketch.shared:
        raise MergeError(f"{what}: expected one release of one source, without a weight")
    if sketch.receipt.sampler.startswith(INSECURE):
        raise MergeError(f"{what}: its noise was replaced for a test")
    source = sketch.sources[0]
    if len(source) > MAX_SOURCE or len(sketch.ids[0]) > MAX_SOURCE or not source.isprintable():
        raise FileError(f"{what}: its source has a name that is too long, or cannot be shown")
    require_possible(sketch)
    signer = _signer(member, data, signature)
    digest = hashlib.sha256(sketch.values.tobytes()).hexdigest()
    own = (f"member:{member.name}", f"source:{_short(alike(source))}")
    taken = (*own, f"release:{sketch.ids[0]}", f"values:{digest}")
    return Checked(SKETCH, source, signer, taken, ("site",))


def _short(text: str) -> str:
    """A text that fits its column; letters that read as many make long ones."""
    return text if len(text) <= MAX_SOURCE else hashlib.sha256(text.encode()).hexdigest()


def _signer(member: Member, data: bytes, signature: bytes | None) -> str | None:
    """Fingerprint of who signed a sketch; needed of members whose key is known."""
    if signature is None:
        if member.key is not None:
            raise SignatureError("sketch: not signed; your key is known here (privsketch key sign)")
        return None
    found = Signature.from_bytes(signature)
    if found.kind != SKETCH or not found.fits(data):
        raise SignatureError("signature: not one of these bytes")
    if member.key is not None and found.key != member.key.identity:
        raise SignatureError("signature: of another key than the one that is known here")
    return found.fingerprint


def _is_other_member(connection: Connection, member: Member, study: str, source: str) -> bool:
    """Whether a source reads like the name of another site: none may pass for one."""
    about = {"in_study": study, "own": member.name, "reads": alike(source)[:200]}
    return connection.execute(_OTHER_SITES, about).first() is not None


# ---------------------------------------------------------------- what is there


def list_uploads(store: Store, study: str, *, aside: bool = False) -> list[Upload]:
    """What was handed in, in its order; `aside` lists what was set aside, too."""
    query = select(*_FACTS).where(uploads.c.study == study).order_by(uploads.c.number)
    if not aside:
        query = query.where(uploads.c.aside_at.is_(None))
    with store.reading() as connection:
        return [_upload(row) for row in connection.execute(query).mappings()]


def read_upload(
    store: Store, member: Member, study: str, digest: str
) -> tuple[Upload, bytes, bytes | None]:
    """One upload, its bytes and its signature, for a member who may have them.

    Files of a sealed study are for all its members. A single sketch is for owners and readers, and
    for whoever handed it in; sites get the total.
    """
    member.require_role(study)
    query = select(uploads).where(uploads.c.study == study, uploads.c.digest == digest)
    with store.reading() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        raise CollectorError("nothing with this digest was handed in", "unknown")
    if row["kind"] == SKETCH and row["member"] != member.name:
        member.require_role(study, "owner", "reader")
    return _upload(row), row["content"], row["signature"]


def set_aside(store: Store, study: str, digest: str, because: str, *, by: Member | None) -> None:
    """Take an upload out of what counts, as an owner; its member may then hand in another.

    The bytes stay, and so do the events that tell of both.
    """
    if not 1 <= len(because) <= MAX_REASON or not because.isprintable():
        raise FileError(f"because: expected one line of 1 to {MAX_REASON} characters")
    with store.writing() as connection:
        hold_chain(connection, study)
        if by is not None:
            require_still(connection, by, study, "owner")
        found = study_in(connection, study)
        query = select(*_FACTS).where(
            uploads.c.study == study, uploads.c.digest == digest, uploads.c.aside_at.is_(None)
        )
        row = connection.execute(query).mappings().first()
        if row is None:
            raise CollectorError("nothing with this digest counts", "unknown")
        if found.is_sealed:
            mailbox.require_state(found, kept_in(connection, study), "card")
            if row["kind"] != "card":
                raise StudyError("of a sealed study only cards are set aside")
        elif found.is_over():
            raise closed()
        _set_aside(connection, study, digest, because, None if by is None else by.name)


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


def kept_in(connection: Connection, study: str) -> list[Kept]:
    """What counts of a sealed study; bytes of the small files only, ballots stay where they are."""
    query = (
        select(*(uploads.c[name] for name in _OF_KEPT))
        .where(uploads.c.study == study, uploads.c.aside_at.is_(None))
        .order_by(uploads.c.number)
    )
    rows = connection.execute(query).all()
    wanted = [row.digest for row in rows if row.kind in mailbox.DECISIVE]
    contents = dict(
        connection.execute(
            select(uploads.c.digest, uploads.c.content).where(
                uploads.c.study == study, uploads.c.digest.in_(wanted)
            )
        ).all()
    )
    return [
        Kept(
            row.digest,
            row.kind,
            row.member,
            row.whose,
            row.signer,
            row.n_bytes,
            contents.get(row.digest),
        )
        for row in rows
    ]


def _upload(row: RowMapping) -> Upload:
    return Upload(
        row["digest"],
        row["number"],
        row["kind"],
        row["member"],
        row["whose"],
        row["signer"],
        row["n_bytes"],
        row["at"],
        row["signature"] is not None,
        row["aside_because"],
    )
