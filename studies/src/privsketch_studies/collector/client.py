"""`Client` of a collector and `pull`, over HTTP with the standard library only.

A token is sent to the stated address only: redirections are not followed, and without TLS only this
machine is trusted, and no proxy. Answers are untrusted: their sizes and durations are limited,
bytes are compared with their digests and with the chain of events, and names of files are built
here, from a list of kinds.
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
from contextlib import suppress
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from privsketch._base.errors import AccessError, FileError, ParameterError, PrivsketchError
from privsketch._base.formats import (
    MAX_JSON_BYTES,
    MAX_SKETCH_VALUES,
    as_line,
    document_content,
    fingerprint,
    parse_json,
    read_file,
    write_file,
)
from privsketch.signing.signature import Signature
from privsketch_studies.collector.chain import START, Event, require_chain
from privsketch_studies.collector.kinds import OfferedFile, file_stem
from privsketch_studies.errors import CollectorError
from privsketch_studies.sealing.cards import Card

TOKEN_VARIABLE = "PRIVSKETCH_TOKEN"  # noqa: S105 - name of the variable, not the token
_SIGNATURE = "Privsketch-Signature"
_MAX_ANSWER = MAX_JSON_BYTES + 8 * MAX_SKETCH_VALUES
_MAX_MESSAGE = 500  # characters of a collector's message to show
_TIMEOUT_SECONDS = 60.0
_TRIES = 3
_STUDY_PATH = re.compile(r"(?P<base>.*)/studies/(?P<study>[a-z0-9][a-z0-9-]{0,59})/?", re.ASCII)
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_EVENTS_FILE = "events.json"
_ASIDE = "set-aside"  # folder of files that no longer count
_PAGE = 1000  # events at a time
_MAX_EVENTS = 1_000_000  # of a study: ten for each of 100,000 holders
_FILE_KINDS = ("sketch", "card", "ballot", "checked", "tally", "void")  # endings of file names
_ANSWER_SECONDS = 60.0  # time that any answer may take
_ANSWER_RATE = 10_000.0  # bytes a second that must arrive beyond that time
_READ_BYTES = 64 * 1024  # bytes to read at a time
_MAX_REFUSAL = 64 * 1024  # bytes of a refusal to read


@dataclass(frozen=True)
class Pulled:
    """Files of a pull, and the state of the study."""

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    state: str
    n_events: int
    head: str
    alarms: tuple[str, ...] = ()  # of the comparison of the sites, which the total keeps


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirection: the token is for the stated address only."""
        return


class Client:
    """Connection to one study at a collector, for one member.

    Parameters
    ----------
    url : str
        Address of the study, like https://collector.example/studies/heart.
    token : str
        Token of the member.
    allow_http : bool
        Whether to send the token to other machines without TLS.
    """

    def __init__(self, url: str, token: str, *, allow_http: bool = False) -> None:
        parts = _parts(url)
        match = None if parts is None else _STUDY_PATH.fullmatch(parts.path)
        if parts is None or parts.scheme not in ("http", "https") or match is None:
            raise ParameterError(
                "url", as_line(url), "expected an address like https://host/studies/NAME"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise ParameterError("url: expected no user, password, query or fragment in it")
        if parts.scheme == "http" and not allow_http and not _is_this_machine(parts.hostname or ""):
            raise ParameterError(
                "url: http would show your token to everyone on the network; use https, or "
                "`allow_http=True` within a network that you trust"
            )
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise ParameterError("token: expected a token of a collector, which begins with psk_")
        self.study = match["study"]
        base = f"{parts.scheme}://{parts.netloc}{match['base']}"
        self._address = f"{base}/api/v1/studies/{self.study}"
        self._token = token
        # Without TLS a proxy would read the token.
        proxies = urllib.request.ProxyHandler(None if parts.scheme == "https" else {})
        self._opener = urllib.request.build_opener(_NoRedirection(), proxies)

    def call(
        self,
        method: str,
        path: str = "",
        file: OfferedFile | None = None,
    ) -> tuple[int, Message, bytes]:
        """Return status, headers and bytes of an answer; raise CollectorError for a refusal.

        A request without an answer is sent again, which is safe for all requests of the API. Only
        the bytes of a file that was read completely are ever sent (collector/kinds).
        """
        headers, data = {"Authorization": f"Bearer {self._token}"}, None
        if file is not None:
            if not isinstance(file, OfferedFile):
                raise ParameterError(
                    "file: expected an OfferedFile; `push` reads files and makes it"
                )
            data, headers["Content-Type"] = file.data, "application/octet-stream"
            if file.signature is not None:
                signature = base64.b64encode(file.signature.to_bytes())
                headers[_SIGNATURE] = signature.decode("ascii")
        for turn in range(_TRIES):
            request = urllib.request.Request(  # noqa: S310 - http and https only, see above
                self._address + path, data=data, headers=headers, method=method
            )
            try:
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                    return response.status, response.headers, _read(response)
            except urllib.error.HTTPError as error:
                with error:
                    raise _refusal(error.code, _start_of(error)) from None
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                text = as_line(str(getattr(reason, "strerror", None) or type(reason).__name__))
                if turn == _TRIES - 1:
                    message = f"the collector does not answer: {text}"
                    raise CollectorError(message, "answer") from None
                time.sleep(0.5 * 2**turn)
        raise CollectorError("the collector does not answer", "answer")

    def call_json(self, path: str = "") -> Any:
        """Return the JSON values of an answer."""
        body = self.call("GET", path)[2]
        if len(body) > MAX_JSON_BYTES:
            raise CollectorError("the answer is larger than any list of a collector", "answer")
        # `parse_json` reads objects only, and an answer may be a list.
        return parse_json(b'{"content":' + body + b"}", "answer of the collector")["content"]


def pull(client: Client, folder: Path) -> Pulled:
    """Download all files of a study that the member may see into a folder.

    A sealed study becomes a mailbox: a folder that `study tally`, `study join` and `study show`
    read, with the public keys of tellers, which are part of their cards. An open study has its
    design, the total, and in `sketches` those that the member may see.
    Existing files with other bytes are never replaced. Files that were set aside at the collector
    are moved to `set-aside`.
    """
    facts = client.call_json()
    if not isinstance(facts, dict):
        raise CollectorError("the collector does not describe the study", "answer")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(f"{folder}: {error.strerror or 'the folder cannot be made'}") from None
    target = _Folder(folder)
    chain, entries = _pull_lists(client, folder)
    design = client.call("GET", "/design")[2]
    _require_design(chain, design)
    target.keep("design.json", design)
    _put_aside(folder, chain)
    for entry in entries:
        name = _file_name(client.study, entry)
        try:
            _, headers, data = client.call("GET", f"/uploads/{quote(entry.digest)}")
        except CollectorError as error:
            if error.refusal == "role" and entry.kind == "sketch":  # of another member
                continue
            raise
        if hashlib.sha256(data).hexdigest() != entry.digest:
            raise FileError(f"{name}: the bytes do not match their digest")
        name = target.keep(name, data, entry.digest)
        if entry.kind == "card":
            _keep_key(target, name, data, entry.digest)
        if _SIGNATURE in headers and entry.kind == "sketch":
            target.keep(f"{name}.sig", _signature(headers[_SIGNATURE]).to_bytes())
    alarms: tuple[str, ...] = ()
    if facts.get("is_sealed") is False:
        try:
            total = client.call("GET", "/total")[2]
            target.replace("total.sketch", total)
            alarms = _alarms_of(total)
        except CollectorError as error:
            if error.refusal != "unknown":  # no site has reported yet
                raise
    head = chain[-1].digest if chain else START
    text = json.dumps([asdict(event) for event in chain], indent=1).encode("ascii")
    target.replace(_EVENTS_FILE, text + b"\n")
    state = as_line(str(facts.get("state")))[:20]
    files = tuple(target.written), tuple(target.unchanged)
    return Pulled(*files, state, len(chain), head, alarms)


def _alarms_of(total: bytes) -> tuple[str, ...]:
    """Return the alarms of the comparison that a total keeps; none if it cannot be read."""
    from privsketch.sketching.sketch import Sketch

    with suppress(PrivsketchError):
        verdict = Sketch.from_bytes(total, "total").verdict
        return () if verdict is None else tuple(verdict.alarm_texts())
    return ()


def _keep_key(target: _Folder, name: str, data: bytes, digest: str) -> None:
    """Write the public key of a teller beside its card, for holders who pin it."""
    with suppress(PrivsketchError):  # commands refuse a card that cannot be read
        card = Card.from_bytes(data, name)
        if card.role == "teller":
            target.keep(f"{name.removesuffix('.card')}.pub", card.key.to_bytes(), digest)


class _Folder:
    """Folder of a pull: new files are written, and files with the same bytes stay as they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.written: list[Path] = []
        self.unchanged: list[Path] = []

    def keep(self, name: str, data: bytes, digest: str = "") -> str:
        """Write a file and return its name; use another name if a different file has this one."""
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
        """Write a file; replace an earlier one."""
        self._write(self._folder / name, data)

    def _write(self, path: Path, data: bytes) -> None:
        if path.exists() and read_file(path) == data:
            self.unchanged.append(path)
            return
        path.parent.mkdir(exist_ok=True)
        write_file(path, data)
        self.written.append(path)


@dataclass(frozen=True)
class _Entry:
    """Entry of a collector's list of files."""

    digest: str
    kind: str
    whose: str
    signer: str


def _pull_lists(client: Client, folder: Path) -> tuple[list[Event], list[_Entry]]:
    """Return the chain of a study and the files that count; the list must agree with the chain.

    Both are requested again if an event has happened in between.
    """
    for _ in range(_TRIES):
        chain = _pull_events(client, folder)
        answer = client.call_json("/uploads")
        if not isinstance(answer, list) or not all(isinstance(item, dict) for item in answer):
            raise CollectorError("the collector's list of files cannot be read", "answer")
        names = ("digest", "kind", "whose", "signer")
        entries = [_Entry(*(str(item.get(name)) for name in names)) for item in answer]
        if [entry.digest for entry in entries] == _counting(chain):
            return chain, entries
    raise CollectorError("the collector's list of files disagrees with its events", "answer")


def _counting(chain: Iterable[Event]) -> list[str]:
    """Return the digests of uploads that were not set aside, in the order of events."""
    digests: dict[str, None] = {}
    for event in chain:
        digest = str(event.facts.get("digest"))
        if event.act == "uploaded":
            if not DIGEST.fullmatch(digest):
                raise CollectorError("an event has an impossible digest", "answer")
            digests[digest] = None
        elif event.act == "set aside":
            digests.pop(digest, None)
    return list(digests)


def _put_aside(folder: Path, chain: Iterable[Event]) -> None:
    """Move files that no longer count to a folder that commands do not read."""
    uploaded = {str(event.facts.get("digest")) for event in chain if event.act == "uploaded"}
    aside = uploaded - set(_counting(chain))
    if not aside:
        return
    endings = ("*.card", "*.checked", "sketches/*.sketch")
    for file in [file for ending in endings for file in sorted(folder.glob(ending))]:
        try:
            digest = hashlib.sha256(read_file(file)).hexdigest()
        except FileError:  # a folder or a pipe, which was not pulled
            continue
        if digest in aside:
            beside = [file.with_name(f"{file.name}.sig")]
            beside += [file.with_suffix(".pub")] if file.suffix == ".card" else []
            for path in (file, *beside):
                try:
                    (folder / _ASIDE).mkdir(exist_ok=True)
                    if path.exists():
                        path.replace(folder / _ASIDE / path.name)
                except OSError as error:
                    raise AccessError(f"{path}: {error.strerror or 'cannot be moved'}") from None


def _require_design(chain: Iterable[Event], data: bytes) -> None:
    """Refuse a design other than the one in the study's first event."""
    fingerprints = [event.facts.get("design") for event in chain if event.act == "made study"]
    if fingerprints != [fingerprint(document_content(data, "design", "design"))]:
        raise CollectorError("the design is not the one that the study was made with", "answer")


def _pull_events(client: Client, folder: Path) -> list[Event]:
    """Return the chain of a study; it must be intact and continue the one in the folder."""
    chain: list[Event] = []
    previous = START
    while True:
        answer = client.call_json(f"/events?after={len(chain)}&limit={_PAGE}")
        page = _events(answer)
        previous = require_chain(client.study, page, previous=previous, after=len(chain))
        chain += page
        if len(page) < _PAGE:
            break
        if len(chain) > _MAX_EVENTS:
            raise CollectorError("the collector sends more events than a study can have", "answer")
    file = folder / _EVENTS_FILE
    if file.exists():
        before = _events(parse_json(b'{"content":' + read_file(file) + b"}", str(file))["content"])
        if before != chain[: len(before)]:
            raise FileError(
                f"{file}: the events differ from those that were pulled before; the collector's "
                "history was altered, or the folder belongs to another study"
            )
    return chain


def _events(value: Any) -> list[Event]:
    if not isinstance(value, list) or len(value) > 2 * _MAX_EVENTS:
        raise FileError("events: expected a list")
    return [_event(item) for item in value]


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
        raise CollectorError("a signature cannot be read", "answer") from None


def _file_name(study: str, entry: _Entry) -> str:
    """Return the name of a file in the folder, with safe characters only."""
    kind, signer = entry.kind, entry.signer
    if kind in ("study", "closed"):
        return f"{study}.{kind}"
    if kind == "accept" and re.fullmatch(r"[0-9a-f]{32}", signer, re.ASCII):
        return f"{study}.study.{signer[:16]}.sig"
    if kind not in _FILE_KINDS:
        raise CollectorError("the collector lists a file of an unknown kind", "answer")
    safe = file_stem(entry.whose)
    return f"sketches/{safe}.sketch" if kind == "sketch" else f"{safe}.{kind}"


def _refusal(status: int, body: bytes) -> CollectorError:
    """Return the error for a refusal; its message is untrusted and shortened."""
    refusal, message = "answer", f"status {status}"
    try:
        answer = parse_json(body, "answer")["error"]
        refusal, message = str(answer["refusal"])[:20], str(answer["message"])
    except (FileError, KeyError, TypeError):
        pass  # the answer may be a proxy's
    text = as_line(message[:_MAX_MESSAGE]).replace("`", "'")
    return CollectorError(f"the collector refuses the request ({status}): {text}", refusal)


def _parts(url: str) -> SplitResult | None:
    """Return the parts of an address; None if it cannot be requested."""
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        return parts if is_complete and parts.path.isascii() else None
    except ValueError:  # wrong brackets, ports or characters
        return None


def _read(answer: Any) -> bytes:
    """Return all bytes of an answer; refuse one that is too large or too slow."""
    began, parts, n_bytes = time.monotonic(), [], 0
    while part := answer.read1(_READ_BYTES):
        parts.append(part)
        n_bytes += len(part)
        if n_bytes > _MAX_ANSWER:
            raise CollectorError("the answer is larger than any file of privsketch", "answer")
        if time.monotonic() - began > _ANSWER_SECONDS + n_bytes / _ANSWER_RATE:
            raise CollectorError("the answer took too long", "answer")
    if getattr(answer, "length", None):  # bytes are missing
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _start_of(error: urllib.error.HTTPError) -> bytes:
    """Return the start of a refusal's body, as far as it can be read."""
    try:
        return error.read(_MAX_REFUSAL)
    except (OSError, http.client.HTTPException):
        return b""


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
