"""Kinds of files that a study takes: when, from whom, and what their bytes must be.

A client reads a file by these rules before a byte of it leaves the machine, and the collector
reads an upload by the same rules. Only a file that privsketch would write with the same bytes
passes: nothing before it, nothing after it, and no noise that a test replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from privsketch._base.errors import FileError, MergeError, SignatureError
from privsketch._base.formats import INSECURE, SKETCH_MAGIC, is_insecure_file
from privsketch.design.recipe import Design
from privsketch.noise.mechanism import REPLACED
from privsketch.signing.signature import Signature
from privsketch.sketching.limits import require_possible
from privsketch.sketching.sketch import Sketch
from privsketch_studies.errors import CollectorError, StudyError
from privsketch_studies.sealing.ballots import Ballot
from privsketch_studies.sealing.cards import Card
from privsketch_studies.sealing.files import MAGIC, N_TRAILER, SealedFile, kind_of_bytes
from privsketch_studies.sealing.lists import CheckedBallots, ClosedList
from privsketch_studies.sealing.study import SealedStudy
from privsketch_studies.sealing.tally import Tally

SKETCH = "sketch"
_DIGEST_BYTES = 32  # at the end of a sketch
_SKETCH_HEADER = ("design", "receipt", "ids", "sources", "exact_count")  # of one release
MAX_SOURCE = 200  # characters
# Kinds of files in JSON by the format that the file states.
_KINDS_BY_FORMAT = {
    "signature": "accept",
    "void-study": "void",  # sealing/void, which is slow to import and rarely needed
    **{kind.KIND: kind.SUFFIX[1:] for kind in (Card, SealedStudy, CheckedBallots, ClosedList)},
}
_FORMAT_FIELD = re.compile(rb'\{\n  "format": "privsketch-([a-z-]{1,40})",\n', re.ASCII)
_CLASSES: dict[str, type[SealedFile]] = {
    "card": Card,
    "study": SealedStudy,
    "checked": CheckedBallots,
    "closed": ClosedList,
    "ballot": Ballot,
    "tally": Tally,
}
ACCEPTED_KINDS = {  # by the state of a sealed study
    "enrolling": ("card", "study"),
    "frozen": ("accept", "void"),
    "open": ("ballot", "checked", "closed", "void"),
    "closed": ("tally", "void"),
    "tallied": (),
    "void": ("void",),
}
ROLES_BY_KIND = {  # that may upload a kind
    SKETCH: ("site",),
    "card": ("site", "teller"),
    "study": ("owner",),
    "accept": ("teller",),
    "ballot": ("site",),
    "checked": ("teller",),
    "closed": ("owner", "teller"),
    "tally": ("teller",),
    "void": ("teller",),
}
_PHRASES = {
    "study": "a study file",
    "accept": "an acceptance",
    "checked": "a list of checked ballots",
    "closed": "a closed list",
    "void": "a void statement",
}
SEALED_KINDS = tuple(kind for kind in ROLES_BY_KIND if kind != SKETCH)


@dataclass(frozen=True)
class OfferedFile:
    """File that is wholly one of ours, and what it says that it belongs to.

    `design` is the fingerprint of its design and `study` the digest of its sealed study; each is
    None if the file does not state it.
    """

    data: bytes
    kind: str
    design: str | None = None
    study: str | None = None
    signature: Signature | None = None


def kinds_taken(state: str, roles: Collection[str], *, is_sealed: bool) -> tuple[str, ...]:
    """Return the kinds of files that a study in this state takes of a member with these roles."""
    if is_sealed:
        kinds = ACCEPTED_KINDS.get(state, ())
    else:
        kinds = (SKETCH,) if state == "open" else ()
    return tuple(kind for kind in kinds if set(ROLES_BY_KIND[kind]) & set(roles))


def phrase_of(kind: str) -> str:
    """Return a kind of file in words, with an article."""
    return _PHRASES.get(kind, f"a {kind}")


def starts_of(kinds: Iterable[str]) -> tuple[bytes, ...]:
    """Return the first bytes of files of these kinds."""
    documents = {kind: json_start(name) for name, kind in _KINDS_BY_FORMAT.items()}
    starts = {**documents, **MAGIC, SKETCH: SKETCH_MAGIC}
    return tuple(starts[kind] for kind in kinds)


def binary_shape(start: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the bytes at the end of a binary file, by its first bytes, and names in its header."""
    if start == SKETCH_MAGIC:
        return _DIGEST_BYTES, _SKETCH_HEADER
    kind = next(kind for kind, magic in MAGIC.items() if magic == start)
    return N_TRAILER, tuple(_CLASSES[kind].FIELDS)


def n_sketch_bytes(design: Design) -> int:
    """Return the bytes of the values in a sketch of a design."""
    n_means = design.dim if design.mean == "released" else 0
    return 8 * (design.n_values + n_means + (design.count == "released"))


def json_start(name: str) -> bytes:
    """Return the first bytes of a JSON file of this format."""
    return f'{{\n  "format": "privsketch-{name}",\n'.encode("ascii")


def endings_of(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the endings of the names of files of these kinds."""
    return tuple(".sig" if kind == "accept" else f".{kind}" for kind in kinds)


def file_stem(name: str) -> str:
    """Return the name that a pulled file has without its ending, with safe characters only."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip(".-")[:60] or "unnamed"


def kind_of(data: bytes) -> str:
    """Return the kind that a file of a sealed study states; refuse a file of any other format."""
    kind = kind_of_bytes(data)
    if kind is None:
        match = _FORMAT_FIELD.match(data)
        kind = None if match is None else _KINDS_BY_FORMAT.get(match.group(1).decode("ascii"))
    if kind is None:
        raise CollectorError("not a file of a sealed study", "kind")
    return kind


def read_offered(data: bytes, what: str) -> OfferedFile:
    """Read a file that a member wants to upload; refuse all that is not wholly one of ours."""
    if is_insecure_file(data):
        raise FileError(f"{what}: {INSECURE}, without noise; no study takes it")
    if data.startswith(SKETCH_MAGIC):
        return OfferedFile(data, SKETCH, design=read_sketch(data, what).design.fingerprint)
    try:
        kind = kind_of(data)
    except CollectorError:
        raise FileError(
            f"{what}: not a file that a study takes; studies take sketches, and the cards, "
            "ballots, lists and tallies of sealed studies"
        ) from None
    if kind == "accept":
        signature = Signature.from_bytes(data, what)
        if signature.kind != SealedStudy.KIND:
            raise SignatureError(f"{what}: the signature of a {signature.kind}, not of a study")
        return OfferedFile(data, kind)
    if kind == "void":
        from privsketch_studies.sealing.void import VoidStudy

        return OfferedFile(data, kind, study=VoidStudy.from_bytes(data, what).study)
    file = _CLASSES[kind].from_bytes(data, what)
    if file.to_bytes() != data:
        raise FileError(f"{what}: not as privsketch writes it; the file was altered")
    if isinstance(file, Card):
        return OfferedFile(data, kind, design=file.design)
    if isinstance(file, SealedStudy):
        return OfferedFile(data, kind, design=file.design.fingerprint)
    if isinstance(file, Ballot | Tally) and file.sampler == REPLACED:
        raise StudyError(f"{what}: its noise was replaced for a test")
    return OfferedFile(data, kind, study=file.study)


def read_sketch(data: bytes, what: str, design: Design | None = None) -> Sketch:
    """Read the sketch of one release; refuse all other sketches, and other bytes around it.

    With a `design`, a sketch of another one is refused before it can ask for much memory.
    """
    sketch = Sketch.from_bytes(data, what, design=design)
    if sketch.to_bytes() != data:
        raise FileError(f"{what}: not as privsketch writes it; the file was altered")
    if len(sketch.ids) != 1 or sketch.weights != (1,) or sketch.shared:
        raise MergeError(f"{what}: expected one release of one source, without a weight")
    if sketch.receipt.sampler.startswith(INSECURE):
        raise MergeError(f"{what}: its noise was replaced for a test")
    source = sketch.sources[0]
    if len(source) > MAX_SOURCE or len(sketch.ids[0]) > MAX_SOURCE or not source.isprintable():
        raise FileError(f"{what}: the name of its source is too long or not printable")
    require_possible(sketch)
    return sketch
