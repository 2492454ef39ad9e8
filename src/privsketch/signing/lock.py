"""Secrets under a passphrase: scrypt (RFC 7914) and ChaCha20-Poly1305 (RFC 8439).

All that stands in a key file beside the secrets is associated data: none of it can be changed
without the passphrase. Parameters of scrypt are written down, and no others are accepted: a file
cannot ask for all memory there is, nor for a lock that is quickly tried.
"""

from __future__ import annotations

import secrets
import unicodedata
from typing import Any

from privsketch._base.errors import FileError, ParameterError
from privsketch._base.formats import canonical_json, require_fields
from privsketch.signing.documents import hex_bytes, require_library

MIN_PASSPHRASE = 8  # characters
_COST = {"n": 2**17, "r": 8, "p": 1}  # 128 MB and a third of a second for every guess
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 12, 16
_PREFIX = b"privsketch key v1\0"
_KINDS = {"kdf": "scrypt", "cipher": "chacha20-poly1305"}
_random = secrets.token_bytes  # tests of known answers replace it


def new_lock() -> dict[str, Any]:
    """A lock with a fresh salt and nonce, as key files have it."""
    salt, nonce = _random(_SALT_BYTES), _random(_NONCE_BYTES)
    return {**_KINDS, **_COST, "salt": salt.hex(), "nonce": nonce.hex()}


def require_passphrase(passphrase: object) -> str:
    """Refuse what can be guessed at once."""
    if not isinstance(passphrase, str) or len(passphrase) < MIN_PASSPHRASE:
        raise ParameterError(  # never with the value that was seen
            f"passphrase: expected a text of at least {MIN_PASSPHRASE} characters"
        )
    return passphrase


def seal(secret: bytes, passphrase: str, header: dict[str, Any]) -> bytes:
    """The ciphertext of a secret; `header` has the lock and is bound to it."""
    cipher, nonce = _cipher(passphrase, header["lock"])
    sealed: bytes = cipher.encrypt(nonce, secret, _PREFIX + canonical_json(header))
    return sealed


def unseal(sealed: bytes, passphrase: str, header: dict[str, Any], what: str) -> bytes:
    """The secret; one error for a wrong passphrase and for any damage."""
    from cryptography.exceptions import InvalidTag

    require_lock(header["lock"], what)
    cipher, nonce = _cipher(passphrase, header["lock"])
    try:
        secret: bytes = cipher.decrypt(nonce, sealed, _PREFIX + canonical_json(header))
    except InvalidTag:
        raise FileError(f"{what}: wrong passphrase or damaged file") from None
    return secret


def require_lock(lock: Any, what: str) -> None:
    """Refuse any lock but those that `new_lock` makes."""
    require_fields(lock, (*_KINDS, *_COST, "salt", "nonce"), what)
    stated = {name: lock[name] for name in (*_KINDS, *_COST)}
    if canonical_json(stated) != canonical_json({**_KINDS, **_COST}):  # 1, not 1.0 or true
        raise FileError(f"{what}: its secrets are locked in a way that this privsketch refuses")
    hex_bytes(lock["salt"], _SALT_BYTES, what)
    hex_bytes(lock["nonce"], _NONCE_BYTES, what)


def _cipher(passphrase: str, lock: dict[str, Any]) -> tuple[Any, bytes]:
    require_library()
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    # One keyboard composes letters with accents, another writes them in two.
    text = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
    salt = bytes.fromhex(lock["salt"])
    key = Scrypt(salt=salt, length=32, n=lock["n"], r=lock["r"], p=lock["p"]).derive(text)
    return ChaCha20Poly1305(key), bytes.fromhex(lock["nonce"])
