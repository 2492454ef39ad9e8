"""JSON files of keys and signatures, which are parsed more strictly than others.

They have a version of their own, because a key outlives formats of sketches. A file that would not
be written with the same bytes is refused: people and the program read the same content.
"""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from privsketch._base.errors import AccessError, FileError, ParameterError
from privsketch._base.formats import parse_json, plain_file, require_fields, sync_folder

DOCUMENT_VERSION = 1
MAX_BYTES = 64 * 2**10  # of such a file; keys for studies take a few thousand
MAX_KEY_NAME = 100
N_DIGITS = 32  # of a key's fingerprint
_HEX_DIGITS = frozenset("0123456789abcdef")
# Invisible, though printable by Python's table: fillers, joiners, variation selectors.
_INVISIBLE = frozenset(
    chr(code)
    for low, high in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(low, high + 1)
)


def document_bytes(kind: str, content: dict[str, Any]) -> bytes:
    """Return the bytes of a file of this kind."""
    fields = {"format": f"privsketch-{kind}", "version": DOCUMENT_VERSION, **content}
    return json.dumps(fields, indent=2, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def document_fields(
    data: bytes, kind: str, fields: Sequence[str], what: str, *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Return the fields of `document_bytes`, in order; raise a FileError for any other byte."""
    if len(data) > max_bytes:
        raise FileError(f"{what}: larger than any privsketch {kind} file")
    fields_read = parse_json(data, what)
    if fields_read.pop("format", None) != f"privsketch-{kind}":
        raise FileError(f"{what}: not a privsketch {kind} file")
    version = fields_read.pop("version", None)
    if type(version) is not int or version < 1:
        raise FileError(f"{what}: no valid version; the file is damaged or of another kind")
    if version > DOCUMENT_VERSION:
        raise FileError(f"{what}: of version {version}; install a newer privsketch")
    require_fields(fields_read, fields, what)
    if document_bytes(kind, {name: fields_read[name] for name in fields}) != data:
        raise FileError(f"{what}: not as privsketch writes it; the file was altered")
    return fields_read


def hex_bytes(value: Any, n_bytes: int | None, what: str) -> bytes:
    """Return bytes from lower-case hex digits: `n_bytes` of them, or any number for None."""
    is_hex = isinstance(value, str) and set(value) <= _HEX_DIGITS and len(value) % 2 == 0
    if not is_hex or n_bytes not in (None, len(value) // 2):
        raise FileError(f"{what}: not as privsketch writes it; the file was altered")
    return bytes.fromhex(value)


def checked_name(name: object) -> str:
    """Return a key's name: one visible line of text, and no path, .pub file or fingerprint."""
    is_line = isinstance(name, str) and 1 <= len(name) <= MAX_KEY_NAME and name.isprintable()
    text = str(name)
    if not is_line or text != text.strip() or set("/\\") & set(text) or text.endswith(".pub"):
        raise ParameterError(
            "name",
            name,
            f"expected 1 to {MAX_KEY_NAME} printable characters, without / or \\ and not ending in "
            ".pub",
        )
    if text != unicodedata.normalize("NFC", text) or _INVISIBLE & set(text):
        raise ParameterError(
            "name", ascii(name), "expected no invisible characters, and composed accents"
        )
    digits = fingerprint_digits(text)
    if len(digits) == N_DIGITS and set(digits) <= _HEX_DIGITS:
        raise ParameterError("name", name, "expected a name that is no fingerprint")
    return text


def alike(name: str) -> str:
    """Return one text for names that look alike: capitals, wide letters, other hyphens."""
    text = unicodedata.normalize("NFKC", name).casefold()
    visible = "".join(c for c in text if c not in _INVISIBLE and c.isprintable())
    dashes = "".join("-" if unicodedata.category(c) == "Pd" or c == "_" else c for c in visible)
    return " ".join(unicodedata.normalize("NFKC", dashes).split())


def fingerprint_digits(text: str) -> str:
    """Return the digits of a fingerprint, without the separators of its groups."""
    return "".join(text.split()).replace("-", "").replace(":", "").lower()


def read_small(path: str | os.PathLike[str], *, secret: bool = False) -> bytes:
    """Return all bytes of a small plain file; a secret one must belong to its owner alone."""
    what = os.fspath(path)
    with plain_file(path) as stream:
        if secret:
            require_own(stream, what, "consider a new key if it was readable for long")
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FileError(f"{what}: larger than any file of keys or signatures")
    return data


def require_own(stream: BinaryIO, what: str, advice: str) -> None:
    """Refuse an opened file that others than its owner may read or write."""
    mode = os.fstat(stream.fileno()).st_mode
    if os.name == "posix" and not stat.S_ISCHR(mode) and mode & 0o077:  # terminals are exempt
        raise FileError(
            f"{what}: others than its owner may read it, and should not; chmod 600 {what}, and "
            f"{advice}"
        )


def write_new(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new file that only its owner may read, without replacing another file."""
    path = Path(path)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise AccessError(f"{path} exists; a key is never overwritten") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "cannot be written"
        raise AccessError(f"{path}: {reason}") from None
    try:
        with open(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)  # so that its name is on disk, too
    except BaseException as error:
        with suppress(OSError):
            path.unlink()  # an incomplete key
        if isinstance(error, OSError):
            raise AccessError(f"{path}: {error.strerror or 'cannot be written'}") from None
        raise


def destroy_file(path: str | os.PathLike[str], expected: bytes) -> None:
    """Overwrite and remove a file that has these bytes; keep one that has others.

    A disk may keep parts of removed files; files of keys are encrypted by a passphrase.
    """
    path = Path(path)
    try:
        # One handle: the file that is overwritten is the one that was compared, and no link.
        handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        with open(handle, "r+b") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode) or stream.read() != expected:
                raise AccessError(f"{path}: it has changed meanwhile; it was kept")
            stream.seek(0)
            stream.write(bytes(len(expected)))
            stream.flush()
            os.fsync(handle)
        path.unlink()
        sync_folder(path.parent)
    except OSError as error:
        reason = "a link" if path.is_symlink() else error.strerror or "cannot be removed"
        raise AccessError(f"{path}: {reason}; it was kept") from None


def require_library() -> None:
    """Refuse work with keys where the library for it is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ParameterError(
            "keys and signatures need the package cryptography, which is not installed; pip "
            "install 'privsketch[signing]'"
        ) from None
