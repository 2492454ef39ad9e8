"""`push`: files to a collector, which are read completely before a byte leaves this machine.

A file goes only if it is wholly one of ours, of this study's design, and of a kind that the study
takes of this member now. It is read once, and the bytes that were checked are those that are sent.
No option changes this: a table, a key or a ledger stays here, whatever its name is.
"""

from __future__ import annotations

import hashlib
import http
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privsketch._base.errors import AccessError, FileError, PrivsketchError
from privsketch._base.formats import as_line, parse_json, read_file
from privsketch.signing.signature import Signature
from privsketch_studies.collector.client import DIGEST, Client
from privsketch_studies.collector.kinds import (
    SKETCH,
    OfferedFile,
    kinds_taken,
    phrase_of,
    read_offered,
)
from privsketch_studies.errors import CollectorError
from privsketch_studies.sealing.study import NAME_DIGITS

_STAYED = "no byte of it left this machine"


@dataclass(frozen=True)
class Pushed:
    """File that a collector has stored, and the event that proves it; keep it."""

    file: Path
    kind: str
    digest: str
    is_new: bool
    event: int
    event_digest: str


def push(client: Client, files: Iterable[Path]) -> list[Pushed]:
    """Upload files, one after the other: sketches, or files of a sealed study.

    All files are read and checked before the first is sent. A signature beside a sketch is
    uploaded with it.
    """
    offered = [(file, _read(file)) for file in files]
    pushed = []
    for number, (file, content) in enumerate(offered):
        # The file before may have changed the state of a sealed study.
        place = _Place.of(client)
        for later, other in offered[number:]:
            with _staying(later):
                place.require_own(other)
        with _staying(file):
            place.require_taken(content)
        pushed.append(_send(client, file, content))
    return pushed


@contextmanager
def _staying(file: Path) -> Iterator[None]:
    """Say in an error about a file that it was not sent."""
    try:
        yield
    except AccessError as error:
        raise AccessError(f"{error.text}; {_STAYED}") from None
    except CollectorError as error:
        raise CollectorError(f"{file}: {error.text}; {_STAYED}", error.refusal) from None
    except PrivsketchError as error:
        text = error.text if error.text.startswith(str(file)) else f"{file}: {error.text}"
        raise FileError(f"{text}; {_STAYED}") from None


def _read(file: Path) -> OfferedFile:
    """Read a file, once, and the signature beside a sketch."""
    with _staying(file):
        content = read_offered(read_file(file), str(file))
        if content.kind != SKETCH:
            return content
        signature = Signature.beside(file)
        if signature is not None and not (
            signature.kind == SKETCH and signature.fits(content.data)
        ):
            raise FileError(f"{file}.sig: not a signature of this sketch")
        return replace(content, signature=signature)


@dataclass(frozen=True)
class _Place:
    """What a collector says of a study: what it takes of this member, and the files it has."""

    name: str
    state: str
    is_sealed: bool
    design: str
    roles: tuple[str, ...]
    digests: frozenset[str]
    study: str | None  # fingerprint of the sealed study, if there is one already

    @classmethod
    def of(cls, client: Client) -> _Place:
        facts, files = client.call_json(), client.call_json("/uploads")
        if not isinstance(facts, dict) or not isinstance(files, list):
            raise CollectorError("the collector does not describe the study", "answer")
        entries: list[dict[str, Any]] = [item for item in files if isinstance(item, dict)]
        studies = [str(item.get("whose")) for item in entries if item.get("kind") == "study"]
        roles = facts.get("roles")
        return cls(
            client.study,
            as_line(str(facts.get("state")))[:20],
            facts.get("is_sealed") is True,
            as_line(str(facts.get("design")))[:64],
            tuple(map(str, roles)) if isinstance(roles, list) else (),
            frozenset(str(item.get("digest")) for item in entries),
            studies[0] if studies else None,
        )

    def require_own(self, content: OfferedFile) -> None:
        """Refuse a file of another design or of another sealed study."""
        if not self.is_sealed and content.kind != SKETCH:
            raise CollectorError(
                f"{phrase_of(content.kind)}; the study {self.name} takes only sketches", "kind"
            )
        if self.is_sealed and content.kind == SKETCH:
            raise CollectorError(
                f"a sketch; the study {self.name} is sealed and takes none", "kind"
            )
        if content.design not in (None, self.design):
            raise FileError(f"of another design than that of the study {self.name}")
        known = (content.study or "")[:NAME_DIGITS], self.study
        if all(known) and known[0] != known[1]:
            raise FileError(f"of another sealed study than {self.name}")

    def require_taken(self, content: OfferedFile) -> None:
        """Refuse a kind of file that the study does not take of this member now."""
        if hashlib.sha256(content.data).hexdigest() in self.digests:
            return  # the collector has it, and a repeated upload gets the first answer
        kinds = kinds_taken(self.state, self.roles, is_sealed=self.is_sealed)
        if content.kind not in kinds:
            now = f"it takes {' or '.join(map(phrase_of, kinds)) or 'nothing'}"
            raise CollectorError(
                f"{phrase_of(content.kind)}; the study {self.name} is {self.state}, and {now} of "
                "you now",
                "closed",
            )


def _send(client: Client, file: Path, content: OfferedFile) -> Pushed:
    status, _, body = client.call("POST", "/uploads", content)
    answer = parse_json(body, "answer of the collector")
    digest = hashlib.sha256(content.data).hexdigest()
    if answer.get("digest") != digest:
        raise CollectorError(f"{file}: the collector acknowledged other bytes", "answer")
    event, head = answer.get("event"), answer.get("event_digest")
    if type(event) is not int or not isinstance(head, str) or not DIGEST.fullmatch(head):
        raise CollectorError("the acknowledgement of the collector is incomplete", "answer")
    kind = as_line(str(answer.get("kind")))[:40]
    return Pushed(file, kind, digest, status == http.HTTPStatus.CREATED, event, head)
