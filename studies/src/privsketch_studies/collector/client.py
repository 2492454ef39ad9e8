"""`push` and `pull`: files to a collector and back, with the standard library alone.

A token goes to the address that was asked for and nowhere else: redirections are not followed, and
without TLS only this machine is trusted, no proxy. What comes back is a stranger's: sizes and times
are bounded, bytes are compared with their digests and with the chain of events, names of files are
made here, from a list of kinds.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import ipaddress
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from privsketch._base.errors import AccessError, FileError, ParameterError
from privsketch._base.formats import (
    MAX_JSON_BYTES,
    MAX_VALUES,
    SKETCH_MAGIC,
    as_line,
    document_content,
    fingerprint,
    parse_json,
    read_file,
    write_file,
)
from privsketch.signing.signature import Signature
from privsketch_studies.collector.chain import START, Event, require_chain
from privsketch_studies.errors import CollectorError

TOKEN_VARIABLE = "PRIVSKETCH_TOKEN"  # noqa: S105 - where it is, not what
_SIGNATURE = "Privsketch-Signature"
_MAX_ANSWER = MAX_JSON_BYTES + 8 * MAX_VALUES
_MAX_MESSAGE = 500  # characters of what a collector says, that are shown
_SECONDS = 60.0
_TRIES = 3
_STUDY = re.compile(r"(?P<base>.*)/studies/(?P<study>[a-z0-9][a-z0-9-]{0,59})/?", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_EVENTS_FILE = "events.json"
_ASIDE = "set-aside"  # folder of what counts no more
_PAGE = 1000  # events at a time
_MAX_EVENTS = 1_000_000  # of a study: ten for each of 100,000 holders
_KINDS = ("sketch", "card", "ballot", "checked", "tally", "void")  # of files, which name them
_ANSWER_SECONDS = 60.0  # in which an answer must begin and end, and
_ANSWER_RATE = 10_000.0  # bytes a second that a large one must bring beyond that
_PART = 64 * 1024  # bytes at a time
_MAX_REFUSAL = 64 * 1024  # bytes of an answer that refuses


@dataclass(frozen=True)
class Pushed:
    """A file that a collector has on disk, and the event that says so; keep it."""

    file: Path
    kind: str
    digest: str
    is_new: bool
    event: int
    event_digest: str


@dataclass(frozen=True)
class Pulled:
    """What was written, and how far the study is."""

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    state: str
    n_events: int
    head: str


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the token is for the address that was asked for."""
        return


class Client:
    """One study at a collector, for one member.

    Parameters
    ----------
    url : str
        Address of the study, like https://collector.example/studies/heart.
    token : str
    allow_http : bool
        Send the token without TLS to other machines than this one.
    """

    def __init__(self, url: str, token: str, *, allow_http: bool = False) -> None:
        parts = _parts(url)
        found = None if parts is None else _STUDY.fullmatch(parts.path)
        if parts is None or parts.scheme not in ("http", "https") or found is None:
            raise ParameterError(
                "url", as_line(url), "expected an address like https://host/studies/NAME"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ParameterError("url: expected no name, password or question in it")
        if parts.scheme == "http" and not allow_http and not _is_here(parts.hostname or ""):
            raise ParameterError(
                "url: http would show your token to everybody on the way; use https, or "
                "`allow_http=True` within a network that you trust"
            )
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise ParameterError("token: not one that a collector gives")
        self.study = found["study"]
        self._address = (
            f"{parts.scheme}://{parts.netloc}{found['base']}/api/v1/studies/{self.study}"
        )
        self._token = token
        # Without TLS a proxy would read the token.
        proxies = urllib.request.ProxyHandler(None if parts.scheme == "https" else {})
        self._opener = urllib.request.build_opener(_NoRedirection(), proxies)

    def call(
        self,
        method: str,
        path: str = "",
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Message, bytes]:
        """Status, headers and bytes of an answer; an error for a refusal.

        A request that was not answered is sent again: all of them may be.
        """
        told = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        if data is not None:
            told["Content-Type"] = "application/octet-stream"
        for turn in range(_TRIES):
            request = urllib.request.Request(  # noqa: S310 - http and https only, see above
                self._address + path, data=data, headers=told, method=method
            )
            try:
                with self._opener.open(request, timeout=_SECONDS) as answer:
                    return answer.status, answer.headers, _read(answer)
            except urllib.error.HTTPError as error:
                with error:
                    raise _refusal(error.code, _start_of(error)) from None
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                words = as_line(str(getattr(reason, "strerror", None) or type(reason).__name__))
                if turn == _TRIES - 1:
                    raise CollectorError(
                        f"the collector does not answer: {words}", "answer"
                    ) from None
                time.sleep(0.5 * 2**turn)
        raise CollectorError("the collector does not answer", "answer")

    def call_json(self, path: str = "") -> Any:
        """What a collector tells, as JSON values."""
        body = self.call("GET", path)[2]
        if len(body) > MAX_JSON_BYTES:
            raise CollectorError("the answer is larger than any list", "answer")
        # Lists are no objects, which is what files of ours are.
        return parse_json(b'{"told":' + body + b"}", "answer of the collector")["told"]


def push(client: Client, files: Iterable[Path]) -> list[Pushed]:
    """Hand files in, one after the other: sketches, or files of a sealed study.

    The signature that lies beside a sketch goes with it.
    """
    done = []
    for file in files:
        data = read_file(file)
        headers = {}
        if data.startswith(SKETCH_MAGIC):
            signature = Signature.beside(file)
            if signature is not None:
                headers[_SIGNATURE] = base64.b64encode(signature.to_bytes()).decode("ascii")
        status, _, body = client.call("POST", "/uploads", data, headers)
        told = parse_json(body, "answer of the collector")
        digest = hashlib.sha256(data).hexdigest()
        if told.get("digest") != digest:
            raise CollectorError(f"{file}: the collector has other bytes than these", "answer")
        event, head = told.get("event"), told.get("event_digest")
        if type(event) is not int or not isinstance(head, str) or not _HEX.fullmatch(head):
            raise CollectorError("the collector does not say what it has kept", "answer")
        kind = as_line(str(told.get("kind")))[:40]
        done.append(Pushed(file, kind, digest, status == http.HTTPStatus.CREATED, event, head))
    return done


def pull(client: Client, folder: Path) -> Pulled:
    """Fetch all that a member may have of a study into a folder.

    A sealed study becomes a mailbox: a folder as `tally`, `join` and `study show` read it. Of an
    open one: its design, the total, and in `sketches` those that this member may see. Files that
    are there already, with other bytes, are left alone and reported; those that were set aside at
    the collector are moved to `set-aside`.
    """
    facts = client.call_json()
    if not isinstance(facts, dict):
        raise CollectorError("the collector does not say what the study is", "answer")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(f"{folder}: {error.strerror or 'no folder can be made'}") from None
    keeper = _Keeper(folder)
    chain, listed = _pull_lists(client, folder)
    design = client.call("GET", "/design")[2]
    _require_design(chain, design)
    keeper.keep("design.json", design)
    _put_aside(folder, chain)
    for one in listed:
        name = _file_name(client.study, one.kind, one.whose, one.signer)
        try:
            _, headers, data = client.call("GET", f"/uploads/{quote(one.digest)}")
        except CollectorError as error:
            if error.refusal == "role" and one.kind == "sketch":  # somebody else's
                continue
            raise
        if hashlib.sha256(data).hexdigest() != one.digest:
            raise FileError(f"{name}: the bytes that came are not those of its digest")
        kept = keeper.keep(name, data, one.digest)
        if _SIGNATURE in headers and one.kind == "sketch":
            keeper.keep(f"{kept}.sig", _signature(headers[_SIGNATURE]).to_bytes())
    if facts.get("is_sealed") is False:
        try:
            keeper.replace("total.sketch", client.call("GET", "/total")[2])
        except CollectorError as error:
            if error.refusal != "unknown":  # nobody has reported so far
                raise
    head = chain[-1].digest if chain else START
    text = json.dumps([asdict(event) for event in chain], indent=1).encode("ascii")
    keeper.replace(_EVENTS_FILE, text + b"\n")
    state = as_line(str(facts.get("state")))[:20]
    return Pulled(tuple(keeper.written), tuple(keeper.unchanged), state, len(chain), head)


class _Keeper:
    """Files of a folder: new ones are written, those with the same bytes left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.written: list[Path] = []
        self.unchanged: list[Path] = []

    def keep(self, name: str, data: bytes, digest: str = "") -> str:
        """Write a file, under another name if one with other bytes has its own; the name."""
        path = self._folder / name
        if path.exists() and read_file(path) != data:
            if not digest:
                raise AccessError(f"{path} exists, with other bytes; use another folder")
            stem, _, ending = name.rpartition(".")
            name = f"{stem}-{digest[:8]}.{ending}"
            path = self._folder / name
            if path.exists() and read_file(path) != data:
                raise AccessError(f"{path} exists, with other bytes; use another folder")
        self._write(path, data)
        return name

    def replace(self, name: str, data: bytes) -> None:
        """Write a file in the place of an earlier one."""
        self._write(self._folder / name, data)

    def _write(self, path: Path, data: bytes) -> None:
        if path.exists() and read_file(path) == data:
            self.unchanged.append(path)
            return
        path.parent.mkdir(exist_ok=True)
        write_file(path, data)
        self.written.append(path)


@dataclass(frozen=True)
class _Listed:
    """A file that a collector says it has."""

    digest: str
    kind: str
    whose: str
    signer: str


def _pull_lists(client: Client, folder: Path) -> tuple[list[Event], list[_Listed]]:
    """The chain of a study and the files that count by it, all of which must be listed.

    Something may happen between the two questions; then they are asked again.
    """
    for _ in range(_TRIES):
        chain = _pull_events(client, folder)
        told = client.call_json("/uploads")
        if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
            raise CollectorError("the collector does not list what it has", "answer")
        names = ("digest", "kind", "whose", "signer")
        listed = [_Listed(*(str(one.get(name)) for name in names)) for one in told]
        if [one.digest for one in listed] == _counting(chain):
            return chain, listed
    raise CollectorError("the collector lists other files than events tell of", "answer")


def _counting(chain: Iterable[Event]) -> list[str]:
    """Digests of what was handed in and not set aside, in the order of events."""
    found: dict[str, None] = {}
    for event in chain:
        digest = str(event.facts.get("digest"))
        if event.act == "uploaded":
            if not _HEX.fullmatch(digest):
                raise CollectorError("an event tells of a file that can be none", "answer")
            found[digest] = None
        elif event.act == "set aside":
            found.pop(digest, None)
    return list(found)


def _put_aside(folder: Path, chain: Iterable[Event]) -> None:
    """Move files that count no more out of the way of commands which read the folder."""
    uploaded = {str(event.facts.get("digest")) for event in chain if event.act == "uploaded"}
    aside = uploaded - set(_counting(chain))
    if not aside:
        return
    endings = ("*.card", "*.checked", "sketches/*.sketch")
    for file in [file for ending in endings for file in sorted(folder.glob(ending))]:
        try:
            digest = hashlib.sha256(read_file(file)).hexdigest()
        except FileError:  # a folder, a pipe: nothing that was pulled
            continue
        if digest in aside:
            for one in (file, file.with_name(f"{file.name}.sig")):
                try:
                    (folder / _ASIDE).mkdir(exist_ok=True)
                    if one.exists():
                        one.replace(folder / _ASIDE / one.name)
                except OSError as error:
                    raise AccessError(f"{one}: {error.strerror or 'cannot be moved'}") from None


def _require_design(chain: Iterable[Event], data: bytes) -> None:
    """Refuse a design that is not the one with which the study was made."""
    made = [event.facts.get("design") for event in chain if event.act == "made study"]
    if made != [fingerprint(document_content(data, "design", "design"))]:
        raise CollectorError("the design is not the one that the study was made with", "answer")


def _pull_events(client: Client, folder: Path) -> list[Event]:
    """The chain of a study, which must be whole, and go on from the one that lies there."""
    chain: list[Event] = []
    previous = START
    while True:
        told = client.call_json(f"/events?after={len(chain)}&limit={_PAGE}")
        page = _events(told)
        previous = require_chain(client.study, page, previous=previous, after=len(chain))
        chain += page
        if len(page) < _PAGE:
            break
        if len(chain) > _MAX_EVENTS:
            raise CollectorError("more events than any study has", "answer")
    file = folder / _EVENTS_FILE
    if file.exists():
        before = _events(parse_json(b'{"told":' + read_file(file) + b"}", str(file))["told"])
        if before != chain[: len(before)]:
            raise FileError(
                f"{file}: the events at the collector are not those that were pulled before; its "
                "history was altered, or the folder is that of another study"
            )
    return chain


def _events(value: Any) -> list[Event]:
    if not isinstance(value, list) or len(value) > 2 * _MAX_EVENTS:
        raise FileError("events: expected a list")
    return [_event(one) for one in value]


def _event(value: Any) -> Event:
    fields = {"number": int, "at": int, "act": str, "facts": dict, "previous": str, "digest": str}
    if (
        not isinstance(value, dict)
        or set(value) != {*fields, "member"}
        or not all(type(value[name]) is kind for name, kind in fields.items())
        or not (value["member"] is None or isinstance(value["member"], str))
    ):
        raise FileError("events: unknown or missing fields")
    return Event(**value)


def _signature(text: str) -> Signature:
    try:
        return Signature.from_bytes(base64.b64decode(text, validate=True))
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise CollectorError("a signature that is none", "answer") from None


def _file_name(study: str, kind: str, whose: str, signer: str) -> str:
    """What a file is called here, whatever a stranger calls it."""
    if kind in ("study", "closed"):
        return f"{study}.{kind}"
    if kind == "accept" and re.fullmatch(r"[0-9a-f]{32}", signer, re.ASCII):
        return f"{study}.study.{signer[:16]}.sig"
    if kind not in _KINDS:
        raise CollectorError("the collector lists a file of an unknown kind", "answer")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", whose).strip(".-")[:60] or "unnamed"
    return f"sketches/{safe}.sketch" if kind == "sketch" else f"{safe}.{kind}"


def _refusal(status: int, body: bytes) -> CollectorError:
    """What a collector says when it refuses; its words are a stranger's."""
    refusal, message = "answer", f"status {status}"
    try:
        told = parse_json(body, "answer")["error"]
        refusal, message = str(told["refusal"])[:20], str(told["message"])
    except (FileError, KeyError, TypeError):
        pass  # a proxy, perhaps
    text = as_line(message[:_MAX_MESSAGE]).replace("`", "'")
    return CollectorError(f"the collector refuses it ({status}): {text}", refusal)


def _parts(url: str) -> SplitResult | None:
    """Parts of an address that can be asked; None for others."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        return parts if is_whole and parts.path.isascii() else None
    except ValueError:  # brackets, ports, letters that are no host's
        return None


def _read(answer: Any) -> bytes:
    """All bytes of an answer, unless they are too many or too slow."""
    began, parts, n_bytes = time.monotonic(), [], 0
    while part := answer.read1(_PART):
        parts.append(part)
        n_bytes += len(part)
        if n_bytes > _MAX_ANSWER:
            raise CollectorError("the answer is larger than any file", "answer")
        if time.monotonic() - began > _ANSWER_SECONDS + n_bytes / _ANSWER_RATE:
            raise CollectorError("the answer took too long", "answer")
    if getattr(answer, "length", None):  # fewer than were announced
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _start_of(error: urllib.error.HTTPError) -> bytes:
    """What is said with a refusal, as far as it comes."""
    try:
        return error.read(_MAX_REFUSAL)
    except (OSError, http.client.HTTPException):
        return b""


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
