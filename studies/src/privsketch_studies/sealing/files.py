"""Files of sealed studies: their base class, and their bytes, which contain a signature.

JSON files (cards, lists) are written like keys (signing/documents). Their last two fields are the
signer's Ed25519 key and the signature of everything before it. Ballots and tallies are binary: 8
bytes of magic, version and length of the header (uint32), header (canonical JSON), content, the
signer's key, and the signature of everything before. Key and signature have fixed positions, so
signatures are verified before anything is parsed. Files are refused unless they would be written
with the same bytes. The signed message begins with the kind of file, so that no file passes for
another kind.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from privsketch._base.errors import FileError, SignatureError
from privsketch._base.formats import (
    MAX_JSON_BYTES,
    canonical_json,
    parse_json,
    read_file,
    write_file,
)
from privsketch.noise.mechanism import OWN_SAMPLER, REPLACED
from privsketch.signing.documents import DOCUMENT_VERSION, document_bytes, document_fields
from privsketch.signing.keys import Key, signature_within_rules
from privsketch.signing.signature import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    digit_groups,
    is_valid_signature,
    key_fingerprint,
    signed_message,
)
from privsketch_studies.errors import StudyError

if TYPE_CHECKING:
    from privsketch_studies.sealing.study import SealedStudy

MAGIC = {"ballot": b"\x89privsb\n", "tally": b"\x89privst\n"}
N_MAGIC = 8
_PREAMBLE = struct.Struct("<8sII")
N_TRAILER = KEY_BYTES + SIGNATURE_BYTES  # at the end of a binary file
_SIGNATURE_FIELDS = ("signer", "signature")
_JSON_END = re.compile(
    rb'"signer": "([0-9a-f]{64})",\n  "signature": "([0-9a-f]{128})"\n}\n\Z', re.ASCII
)
_JSON_END_BYTES = len('"signer": "",\n  "signature": ""\n}\n') + 64 + 128
_UNSIGNED_BYTES = len(',\n  "signature": ""\n}\n') + 128  # at the end of a file
Fields = Sequence[str]


class SealedFile:
    """Base class of the files of a sealed study: signed bytes, read and written as they are.

    A subclass sets `KIND` and `FIELDS`, and reads the bytes in `_parse`. Files about a study have
    its digest as `study`.

    Parameters
    ----------
    data : bytes
        Content of the file; its signature must be valid.
    what : str, optional
        Name of the file in error messages.

    Attributes
    ----------
    digest : str
        SHA-256 of the bytes, 64 hex digits.
    """

    KIND: ClassVar[str]  # stated by the bytes and covered by the signature
    FIELDS: ClassVar[Fields]  # of the JSON object or header, in this order
    LABEL: ClassVar[str]  # name in messages: the kind in words
    SUFFIX: ClassVar[str]  # ending of file names: the first word of the kind
    study: str
    _data: bytes
    _identity: bytes  # of the key that signed the file

    def __init_subclass__(cls) -> None:
        kind = getattr(cls, "KIND", "")
        cls.LABEL, cls.SUFFIX = kind.replace("-", " "), "." + kind.partition("-")[0]

    def __init__(self, data: bytes, what: str | None = None) -> None:
        self._data = data
        self._parse(data, what or self.LABEL)

    def _parse(self, data: bytes, what: str) -> None:
        """Set the attributes from the bytes; raise FileError for bytes of anything else."""
        raise NotImplementedError

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, 64 hex digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes, what: str | None = None) -> Self:
        """Read the bytes of `to_bytes`; raise FileError for any other bytes."""
        return cls(data, what)

    def save(self, path: str | os.PathLike[str]) -> Any:
        """Write the file. Nothing in it is secret."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file written by `save`."""
        return cls.from_bytes(read_file(path), os.fspath(path))

    def describe(self) -> str:
        """Describe the file in a few lines of text."""
        return "\n".join(f"{name:<11} {text}" for name, text in self._lines())

    def _lines(self) -> Iterable[tuple[str, str]]:
        """Return the lines of `describe`: a name and a text each."""
        return [(self.LABEL, self.digest), ("study", digit_groups(self.study[:32]))]

    def _require_study(self, study: SealedStudy, what: str) -> None:
        """Refuse a file of another study."""
        if self.study != study.digest:
            raise StudyError(f"{what}: of another study, {digit_groups(self.study[:32])}")

    def _require_teller(self, study: SealedStudy, what: str) -> int:
        """Return the number of the teller whose study key signed the file of this study."""
        self._require_study(study, what)
        number = study.teller_with(self._identity)
        if number is None:
            raise StudyError(f"{what}: signed by somebody who is no teller of this study")
        return number


class JsonFile(SealedFile):
    """Base class of files in JSON about a study, signed by one key."""

    def _parse(self, data: bytes, what: str) -> None:
        self._identity, fields = read_signed_json(data, self.KIND, self.FIELDS, what)
        self.study = digits(fields["study"], 64, what)
        self._set(fields, what)

    def _set(self, fields: dict[str, Any], what: str) -> None:
        """Set the attributes of this kind of file; refuse impossible fields."""
        raise NotImplementedError

    @classmethod
    def sign(cls, study: SealedStudy, fields: dict[str, Any], key: Key) -> Self:
        """Sign the fields of a file about a study."""
        return cls(signed_json(cls.KIND, {"study": study.digest, **fields}, key))


class BinaryFile(SealedFile):
    """Base class of binary files about a study, signed by one key, which the header names.

    Attributes
    ----------
    sampler : str
        Sampler of the noise; the insecure one if a test replaced any.
    """

    MAGIC: ClassVar[bytes]
    SIGNER: ClassVar[str]  # field with the fingerprint of the key that signed the file
    sampler: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.MAGIC = MAGIC[cls.KIND]

    def _parse(self, data: bytes, what: str, *, is_verified: bool = False) -> None:
        self._identity, header, content = unpacked(
            data, self.KIND, self.FIELDS, what, is_verified=is_verified
        )
        if digits(header[self.SIGNER], 32, what) != key_fingerprint(self._identity):
            raise FileError(f"{what}: signed by another key than it names")
        self.study = digits(header["study"], 64, what)
        if header["sampler"] not in (OWN_SAMPLER, REPLACED):
            raise FileError(f"{what}: noise of an unknown origin")
        self.sampler = header["sampler"]
        self._set(header, content, what)

    def _set(self, header: dict[str, Any], content: memoryview, what: str) -> None:
        """Set the attributes of this kind of file; refuse an impossible header or content."""
        raise NotImplementedError


class Signed(NamedTuple):
    """Content of a signed file whose signature is valid."""

    signer: bytes
    header: dict[str, Any]
    content: memoryview


# ---------------------------------------------------------------- JSON


def signed_json(kind: str, content: dict[str, Any], key: Key) -> bytes:
    """Return the bytes of a signed JSON file."""
    fields = {**content, "signer": key.public.identity.hex(), "signature": "0" * 128}
    body = document_bytes(kind, fields)[:-_UNSIGNED_BYTES]
    signature = signature_within_rules(key, body, kind).signature
    return document_bytes(kind, {**fields, "signature": signature.hex()})


def signer_of_json(data: bytes, kind: str, what: str) -> bytes:
    """Return the key that signed a JSON file, without parsing it; refuse a wrong signature."""
    match = _JSON_END.search(data, max(0, len(data) - _JSON_END_BYTES))
    if match is None:
        raise SignatureError(f"{what}: not signed, or not a privsketch {kind} file")
    signer, signature = (bytes.fromhex(text.decode("ascii")) for text in match.groups())
    if not is_valid_signature(signer, signature, signed_message(kind, data[:-_UNSIGNED_BYTES])):
        raise SignatureError(f"{what}: the signature is wrong; the file was altered")
    return signer


def read_signed_json(
    data: bytes, kind: str, fields: Fields, what: str
) -> tuple[bytes, dict[str, Any]]:
    """Return signer and fields of a JSON file, after verifying its signature."""
    signer = signer_of_json(data, kind, what)
    values = document_fields(
        data, kind, (*fields, *_SIGNATURE_FIELDS), what, max_bytes=MAX_JSON_BYTES
    )
    return signer, {name: values[name] for name in fields}


def read_json(data: bytes, kind: str, fields: Fields, what: str) -> dict[str, Any]:
    """Return the fields of a JSON file whose signatures are in files beside it."""
    return document_fields(data, kind, fields, what, max_bytes=MAX_JSON_BYTES)


# ---------------------------------------------------------------- binary files


def packed(kind: str, header: dict[str, Any], content: bytes, key: Key) -> bytes:
    """Return the bytes of a signed ballot or tally."""
    text = canonical_json(header)
    body = b"".join(
        [
            _PREAMBLE.pack(MAGIC[kind], DOCUMENT_VERSION, len(text)),
            text,
            content,
            key.public.identity,
        ]
    )
    return body + signature_within_rules(key, body, kind).signature


def unpacked(
    data: bytes, kind: str, fields: Fields, what: str, *, is_verified: bool = False
) -> Signed:
    """Return signer, header and content of a ballot or a tally; refuse any other bytes.

    The signature is verified before anything is parsed, unless `is_verified`.
    """
    view = memoryview(data)
    if not data.startswith(MAGIC[kind]):
        raise FileError(f"{what}: not a privsketch {kind} file")
    if len(data) < _PREAMBLE.size + N_TRAILER:
        raise FileError(f"{what}: truncated")
    signer = bytes(view[-N_TRAILER:-SIGNATURE_BYTES])
    if not is_verified and not is_valid_signature(
        signer, data[-SIGNATURE_BYTES:], signed_message(kind, data[:-SIGNATURE_BYTES])
    ):
        raise SignatureError(f"{what}: the signature is wrong; the file was altered")
    _, version, n_bytes = _PREAMBLE.unpack_from(data)
    if version != DOCUMENT_VERSION:
        raise FileError(
            f"{what}: of version {version}; this privsketch reads version {DOCUMENT_VERSION}"
        )
    if n_bytes > min(len(data) - _PREAMBLE.size - N_TRAILER, MAX_JSON_BYTES):
        raise FileError(f"{what}: truncated or corrupted (impossible lengths)")
    text = bytes(view[_PREAMBLE.size : _PREAMBLE.size + n_bytes])
    header = parse_json(text, what)
    if set(header) != set(fields):
        raise FileError(f"{what}: unknown or missing fields")
    if canonical_json(header) != text:
        raise altered(what)
    return Signed(signer, header, view[_PREAMBLE.size + n_bytes : -N_TRAILER])


def kind_of_bytes(data: bytes) -> str | None:
    """Return the kind that a binary file states: "ballot", "tally" or None."""
    return next((kind for kind, magic in MAGIC.items() if data.startswith(magic)), None)


# ---------------------------------------------------------------- values in files


def altered(what: str) -> FileError:
    """Return the error for bytes that no privsketch has written."""
    return FileError(f"{what}: not as privsketch writes it; the file was altered")


def items(value: Any, low: int, high: int, what: str) -> list[Any]:
    """Return a value that must be a list with a number of items in this range."""
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise FileError(f"{what}: unknown or missing fields")
    return value


def pairs(value: Any, high: int, what: str) -> list[list[Any]]:
    """Return a value that must be a list of at most `high` pairs."""
    return [items(pair, 2, 2, what) for pair in items(value, 0, high, what)]


def digits(value: Any, n_digits: int, what: str) -> str:
    """Return a value that must be a text of lower-case hex digits."""
    if not isinstance(value, str) or not re.fullmatch(rf"[0-9a-f]{{{n_digits}}}", value, re.ASCII):
        raise altered(what)
    return value


def integer(value: Any, low: int, high: int, what: str) -> int:
    """Return a value that must be an integer in this range."""
    if type(value) is not int or not low <= value <= high:
        raise FileError(f"{what}: a number in it is not one that privsketch writes")
    return value
