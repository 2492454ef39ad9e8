"""File formats of designs, sketches and models: JSON, a small container, atomic writes.

A sketch file consists of 8 magic bytes, version (uint32), length of the header (uint32), JSON
header, little-endian int64 values, and the SHA-256 of everything before it. Nothing is ever
unpickled, every length is checked before use, and a file appears under its name only when it is
complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import stat
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from privsketch._base.errors import AccessError, FileError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SKETCH_MAGIC = b"\x89privsk\n"  # a byte above 127 and a newline: text-mode damage shows at once
# Files without privacy are of kinds of their own, which begin with this word. Sketches of this kind
# have another magic, and a header whose first field is the word.
INSECURE = "INSECURE"
INSECURE_MAGIC = b"\x89privIN\n"
NO_PRIVACY = f"{INSECURE}: no noise was added, the numbers are exact, and nothing protects a record"
_INSECURE_KIND = f"{INSECURE}-"
FORMAT_VERSION = 2  # as docs/format.md describes it
# Three million numbers of 20 characters, as in a model of 1,000 clusters of 3,000 columns.
MAX_JSON_BYTES = 64 * 2**20
MAX_SKETCH_VALUES = 2**22  # twice what MAX_FEATURES = 2^20 of two numbers each need
_OURS = "privsketch-"
_FIELDS_OF_NAMES = ("columns", "record")  # fields that hold names of columns
_SPACES = "\u00a0\u202f\u2009"  # non-breaking and thin spaces
_PREAMBLE = struct.Struct("<8sII")
_DIGEST_BYTES = 32  # SHA-256
# Paths of descriptors that a process inherited, from a shell for instance.
_INHERITED = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/[0-9]{1,9}", re.ASCII)
LEDGER_ID = 0x70736B6C  # "pskl", at byte 68 of a ledger: file(1) and SQLite's tools show it
_SQLITE = b"SQLite format 3\0"
_ID_BYTES = slice(68, 72)
_MIN_PAGE = 512  # bytes: a SQLite file consists of whole pages

# While a thread works on a ledger, no other thread of the process may fork, or open the file:
# POSIX drops all locks that a process has on a file when it closes any descriptor of it.
ledgers_at_work = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=ledgers_at_work.acquire,
        after_in_parent=ledgers_at_work.release,
        after_in_child=ledgers_at_work.release,
    )


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: the bytes that are fingerprinted."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def fingerprint(value: Any) -> str:
    """Return SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):  # people and programs might read different ones
        raise ValueError("a key occurs twice")
    if not all(name.isprintable() for name in value):  # error messages show keys on terminals
        raise ValueError("a key that cannot be printed")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # NaN, Infinity, 1e999
        raise ValueError("not a finite number")
    return number


def _small(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**64:
        raise ValueError("integer out of range")
    return number


def parse_json(data: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object of finite numbers without repeated keys, or raise a FileError."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_small,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        where = ""
        if isinstance(error, json.JSONDecodeError):  # such as a missing comma in a schema
            where = f" at line {error.lineno}, column {error.colno}"
        raise FileError(
            f"{what}: not valid JSON{where}; the file is damaged or of another kind"
        ) from None
    if not isinstance(value, dict):
        raise FileError(f"{what}: expected a JSON object")
    return value


def require_version(version: Any, what: str) -> None:
    """Refuse files of another version, and versions that never existed."""
    if type(version) is not int or version < 1:
        raise FileError(f"{what}: no valid format version; the file is damaged or of another kind")
    if version > FORMAT_VERSION:
        raise FileError(
            f"{what}: written in format version {version}, this privsketch reads version "
            f"{FORMAT_VERSION}; install a newer privsketch"
        )
    if version < FORMAT_VERSION:
        raise FileError(
            f"{what}: written in format version {version}, before the first release; this "
            f"privsketch reads version {FORMAT_VERSION}. Make the file again; a release made again "
            "costs its budget again"
        )


def document(kind: str, content: dict[str, Any]) -> bytes:
    """Return a JSON file with kind, version, content and fingerprint, indented for people."""
    content_with_kind = {
        "format": _OURS + kind,
        "version": FORMAT_VERSION,
        **content,
        "fingerprint": fingerprint(content),
    }
    text = json.dumps(content_with_kind, indent=2, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def marked_kind(kind: str, *, insecure: bool) -> str:
    """Return the kind of a file with or without privacy."""
    return _INSECURE_KIND + kind if insecure else kind


def unmarked_kind(kind: str) -> str:
    """Return the kind that a file without privacy would have with it."""
    return kind.removeprefix(_INSECURE_KIND)


def is_insecure_file(data: bytes) -> bool:
    """Return whether a file of ours says that it has no privacy."""
    if data.startswith(INSECURE_MAGIC):
        return True
    try:
        kind = document_kind(data, "file")
    except FileError:
        return False
    return kind is not None and kind.startswith(_INSECURE_KIND)


def document_kind(data: bytes, what: str) -> str | None:
    """Return the kind of a privsketch JSON file, or None for other JSON."""
    name = parse_json(data, what).get("format")
    is_ours = isinstance(name, str) and name.startswith(_OURS)
    return str(name).removeprefix(_OURS) if is_ours else None


def document_content(data: bytes, kind: str, what: str) -> dict[str, Any]:
    """Return the content of a `document` of this kind, checked against its fingerprint."""
    fields = parse_json(data, what)
    if fields.pop("format", None) != _OURS + kind:
        raise FileError(f"{what}: not a privsketch {kind} file")
    require_version(fields.pop("version", None), what)
    if fields.pop("fingerprint", None) != fingerprint(fields):
        raise FileError(f"{what}: the fingerprint does not match; the file was altered")
    _require_printable(fields, what)
    return fields


def _require_printable(value: Any, what: str) -> None:
    """Refuse texts that do not look like what they are.

    Files are untrusted, and their texts are shown on terminals and in receipts. An escape sequence
    could clear the screen or hide a warning, and a line break could add a line that understates a
    cost.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str) and as_line(item) != item:
            raise FileError(f"{what}: a text in it has characters that cannot be printed")
        if isinstance(item, dict):
            # Names of columns come from tables and may have line breaks; see `as_line`.
            stack.extend(part for name, part in item.items() if not _are_names(name, part))
        if isinstance(item, list):
            stack.extend(item)


def _are_names(field: str, value: Any) -> bool:
    return (
        field in _FIELDS_OF_NAMES and isinstance(value, list) and all(type(n) is str for n in value)
    )


def as_line(text: str) -> str:
    """Return untrusted text as one printable line, with escapes as in Python."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _SPACES else ascii(c)[1:-1] for c in text)


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or (f'{noun[:-1]}ies' if noun.endswith('y') else f'{noun}s')}"


def pack_sketch(header: dict[str, Any], values: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of a sketch file, of the kind without privacy if the header says so."""
    import numpy as np  # imported here because ledgers and keys do not need it

    text = canonical_json(header)
    magic = INSECURE_MAGIC if INSECURE in header else SKETCH_MAGIC
    body = b"".join(
        [
            _PREAMBLE.pack(magic, FORMAT_VERSION, len(text)),
            text,
            np.ascontiguousarray(values, dtype="<i8").tobytes(),
        ]
    )
    return body + hashlib.sha256(body).digest()


def unpack_sketch(data: bytes, what: str) -> tuple[dict[str, Any], npt.NDArray[np.int64]]:
    """Return header and values of an intact sketch file, or raise a FileError."""
    import numpy as np

    if not data.startswith((SKETCH_MAGIC, INSECURE_MAGIC)):
        raise FileError(f"{what}: not a privsketch sketch file")
    if len(data) < _PREAMBLE.size + _DIGEST_BYTES:
        raise FileError(f"{what}: truncated")
    _, version, header_bytes = _PREAMBLE.unpack_from(data)
    require_version(version, what)
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise FileError(f"{what}: truncated or corrupted (the checksum does not match)")
    payload = body[_PREAMBLE.size + header_bytes :]
    if header_bytes > len(body) - _PREAMBLE.size or len(payload) % 8:
        raise FileError(f"{what}: truncated or corrupted (impossible lengths)")
    header = parse_json(body[_PREAMBLE.size : _PREAMBLE.size + header_bytes], what)
    _require_printable(header, what)
    if (INSECURE in header) != data.startswith(INSECURE_MAGIC):
        raise FileError(f"{what}: header and kind disagree on privacy; the file was altered")
    return header, np.frombuffer(payload, dtype="<i8").astype(np.int64)


@contextmanager
def plain_file(path: str | os.PathLike[str], *, or_handed: bool = False) -> Iterator[BinaryIO]:
    """Open a plain file for reading; refuse pipes, devices and folders without waiting.

    In a shared folder a name may be anything, and opening a pipe would wait for a writer. The check
    is about the opened file itself. `or_handed` allows for a pipe that this process inherited as a
    descriptor: /dev/stdin, and /dev/fd/N of `<(command)`.
    """
    is_inherited = or_handed and _is_inherited(path)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        handle = os.open(path, flags if is_inherited else flags | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise AccessError(_unreadable(path, error)) from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise AccessError(f"{path}: is a folder, not a file")
        if not stat.S_ISREG(mode) and not is_inherited:
            raise AccessError(
                f"{path}: not a plain file; write its content to one, or pass it as /dev/stdin"
            )
        with open(handle, "rb", closefd=False) as stream:
            yield stream
    except OSError as error:
        raise AccessError(_unreadable(path, error)) from None
    finally:
        os.close(handle)


def _is_inherited(path: str | os.PathLike[str]) -> bool:
    return _INHERITED.fullmatch(str(path)) is not None


def _unreadable(path: str | os.PathLike[str], error: Exception) -> str:
    return f"{path}: {getattr(error, 'strerror', None) or 'cannot be read'}"


def beginning_of(path: str | os.PathLike[str], n_bytes: int) -> bytes:
    """Return the first bytes of a plain file, and no bytes of anything else."""
    if _is_inherited(path):  # a pipe can be read only once
        return b""
    with suppress(AccessError), plain_file(path) as stream:
        return stream.read(n_bytes)
    return b""


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a plain file, unless it exceeds the largest privsketch file."""
    largest = MAX_JSON_BYTES + 8 * MAX_SKETCH_VALUES
    with plain_file(path, or_handed=True) as stream:
        size = os.fstat(stream.fileno()).st_size  # 0 for pipes
        data = stream.read(largest + 1) if size <= largest else b""
    if max(size, len(data)) > largest:
        raise FileError(f"{path}: {max(size, len(data))} bytes is larger than any privsketch file")
    return data


def write_file(path: str | os.PathLike[str], data: bytes, *, is_private: bool = False) -> None:
    """Write under a temporary name, then rename: a reader never sees half a file.

    With `is_private` nobody but the owner can read the file. A file that is replaced keeps its
    permissions, or fewer.
    """
    path = Path(path)
    temporary = temporary_beside(path)
    try:
        _require_place(path)
        before, allowed = _permissions(path), 0o600 if is_private else 0o666
        mode = allowed if before is None else before & allowed

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags, mode)  # the umask takes its part

        with open(temporary, "xb", opener=opener) as stream:
            if before is not None:
                os.chmod(temporary, mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or "cannot be written"
        raise AccessError(f"{path}: {reason}") from None
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)


def _permissions(path: Path) -> int | None:
    """Return the permissions of a file that is there, else None."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system supports it."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def temporary_beside(path: Path) -> Path:
    """Return an unused name in the folder of a file."""
    return path.parent / f".{secrets.token_hex(8)}.part"


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot become a file, before anything is spent on its content."""
    path = Path(path)
    _require_place(path)
    # Permissions do not suffice: a file system may be read-only or full.
    temporary = temporary_beside(path)
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise AccessError(
            f"{path.parent}: no file can be made in this folder"
            f" ({error.strerror or 'cannot be written'})"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _require_place(path: Path) -> None:
    """Refuse a path that cannot name a file, or that is a ledger."""
    try:
        if not path.name or path.is_dir():
            raise AccessError(f"{path}: is a folder, not a file")
        if not path.parent.is_dir():
            raise AccessError(f"{path.parent}: no such folder")
        if not path.exists() and len(os.fsencode(path.name)) > 255:
            raise AccessError(f"{path.name[:40]}...: the name is too long")
        if _is_ledger(path):
            raise AccessError(f"{path} is a ledger, which is never replaced; choose another name")
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None


def _is_ledger(path: Path) -> bool:
    """Return whether a file has the header of a ledger."""
    with suppress(OSError, ValueError):  # missing or unreadable files are no ledgers
        status = path.stat()
        has_pages = status.st_size >= _MIN_PAGE and status.st_size % _MIN_PAGE == 0
        if stat.S_ISREG(status.st_mode) and has_pages:
            with ledgers_at_work, open(path, "rb") as stream:
                head = stream.read(_ID_BYTES.stop)
            return head.startswith(_SQLITE) and head[_ID_BYTES] == LEDGER_ID.to_bytes(4, "big")
    return False


def require_fields(value: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """Return `value` if it is an object with exactly these fields."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise FileError(f"{what}: unknown or missing fields")
    return value


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn parameter errors inside the block into a FileError about the file."""
    try:
        yield
    except FileError:
        raise
    except KeyError:
        raise FileError(f"{what}: unknown or missing fields") from None
    except (ParameterError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FileError(f"{what}: {error}") from None
