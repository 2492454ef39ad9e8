"""Ed25519 signatures (RFC 8032) of files, each in its own file beside the signed file.

The signed message is a prefix that names the kind of file, and the bytes of the file: a signature
of a design is not valid for a sketch with the same bytes. It is checked before the file is parsed.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from privsketch._base.errors import FileError, ParameterError, SignatureError
from privsketch._base.formats import (
    INSECURE,
    SKETCH_MAGIC,
    document_content,
    document_kind,
    is_insecure_file,
    unpack_sketch,
    write_file,
)
from privsketch.signing.documents import (
    checked_name,
    document_bytes,
    document_fields,
    hex_bytes,
    read_small,
    require_library,
)

KEY_BYTES, SIGNATURE_BYTES = 32, 64
SIGNING_KINDS = (
    "key",
    "public-key",
    "signature",
)  # files of signing itself, which no signature file signs
# Files that may be signed only once, or only after checks: `sealing` enforces the rules.
SEALED_KINDS = ("card", "study", "ballot", "checked-ballots", "closed-list", "tally", "void-study")
_SIGNATURE_FIELDS = ("kind", "name", "key", "signature")
_KIND = re.compile(r"[a-z0-9-]{1,60}", re.ASCII)
_PRIME = 2**255 - 19  # modulus of the coordinates
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # y of order 8
_SMALL_ORDER = frozenset((0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH))


def signature_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file's signature: the path of the file and .sig."""
    return Path(f"{os.fspath(path)}.sig")


def signed_message(kind: str, data: bytes) -> bytes:
    """Return the bytes to sign for a file of this kind, different for any two files."""
    if is_insecure_file(data):
        raise ParameterError(
            f"a file that is {INSECURE}, without noise, gets no signature: nobody can vouch for it"
        )
    if not _KIND.fullmatch(kind):
        raise ParameterError("kind", kind, "expected the kind of a file, like 'design'")
    return f"privsketch {kind} v1".encode("ascii") + b"\0" + data


def sign_message(secret: bytes, message: bytes) -> bytes:
    """Sign a message with an Ed25519 secret key of 32 bytes."""
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def is_valid_signature(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of a public key signed this message."""
    require_library()
    if not is_secure(public):
        return False
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def is_secure(public: bytes) -> bool:
    """Return whether signatures of a public key need a secret key.

    For the eight points of small order, in any encoding, anybody can sign anything. Libraries
    accept them, as RFC 8032 does.
    """
    y = int.from_bytes(public, "little") & (2**255 - 1)  # the highest bit is the sign of x
    return y < _PRIME and y not in _SMALL_ORDER


def key_fingerprint(public: bytes) -> str:
    """Return the 32 hex digits that name an Ed25519 key, too many to find another key for."""
    return hashlib.sha256(b"privsketch fingerprint v1\0" + public).hexdigest()[:32]


def digit_groups(fingerprint: str) -> str:
    """Return a fingerprint in groups of four digits, for reading aloud."""
    return " ".join(fingerprint[i : i + 4] for i in range(0, len(fingerprint), 4))


def kind_of_file(data: bytes, what: str) -> str:
    """Return the kind of an intact file that can be signed; raise a FileError for others."""
    if is_insecure_file(data):
        raise FileError(
            f"{what}: it is {INSECURE}, without noise, and gets no signature: nobody can vouch "
            "for it"
        )
    if data.startswith(SKETCH_MAGIC):
        unpack_sketch(data, what)
        return "sketch"
    kind = document_kind(data, what)
    if kind is None or kind in SIGNING_KINDS:
        raise FileError(
            f"{what}: not a file of privsketch that can be signed; designs, sketches, models and "
            "receipts of released rows can"
        )
    document_content(data, kind, what)
    return kind


@dataclass(frozen=True)
class Signature:
    """Content of a .sig file.

    The name is that of the signer's key, and only a claim unless a trusted key has it.
    """

    kind: str
    name: str
    key: bytes
    signature: bytes

    def fits(self, data: bytes) -> bool:
        """Return whether the holder of the key signed these bytes as a file of this kind."""
        return is_valid_signature(self.key, self.signature, signed_message(self.kind, data))

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key."""
        return key_fingerprint(self.key)

    def to_bytes(self) -> bytes:
        """Return the bytes of a .sig file."""
        facts = (self.kind, self.name, self.key.hex(), self.signature.hex())
        return document_bytes("signature", dict(zip(_SIGNATURE_FIELDS, facts, strict=True)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the signature; the file appears only when it is complete."""
        write_file(path, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "signature") -> Signature:
        """Rebuild the signature from `to_bytes`; raise a SignatureError for any other bytes."""
        try:
            fields = document_fields(data, "signature", _SIGNATURE_FIELDS, what)
            if not isinstance(fields["kind"], str) or not _KIND.fullmatch(fields["kind"]):
                raise FileError(f"{what}: not as privsketch writes it; the file was altered")
            return cls(
                fields["kind"],
                checked_name(fields["name"]),
                hex_bytes(fields["key"], KEY_BYTES, what),
                hex_bytes(fields["signature"], SIGNATURE_BYTES, what),
            )
        except (FileError, ParameterError) as error:
            text = error.text if isinstance(error, FileError) else f"{what}: {error.text}"
            raise SignatureError(text) from None

    @classmethod
    def beside(cls, path: str | os.PathLike[str]) -> Signature | None:
        """Return the signature beside a file, or None if there is none."""
        file = signature_path(path)
        if not os.path.lexists(file):  # a broken link is an error, not an absence
            return None
        try:
            return cls.from_bytes(read_small(file), str(file))
        except SignatureError:
            raise
        except FileError as error:
            raise SignatureError(error.text) from None
