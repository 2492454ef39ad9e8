"""Encryption of secret keys by a passphrase, and of messages for the holder of one key.

Secrets of key files are encrypted by scrypt (RFC 7914) and ChaCha20-Poly1305 (RFC 8439). All other
fields of a key file are associated data, which cannot be changed without the passphrase. The file
states the parameters of scrypt, and no others are accepted. So a file cannot demand all memory, nor
a key derivation that is fast to attack.

Messages are encrypted by HPKE (RFC 9180) in base mode, as the package cryptography implements it.
The key encapsulation is ML-KEM-768 with X25519 (X-Wing), because ciphertexts that are stored today
may meet quantum computers. HKDF-SHA256 and ChaCha20-Poly1305 complete the suite. Sender and
receiver must agree on `info`: a message with another `info` cannot be decrypted.
"""

from __future__ import annotations

import secrets
import unicodedata
from typing import Any

from privsketch._base.errors import FileError, ParameterError
from privsketch._base.formats import canonical_json, require_fields
from privsketch.signing.documents import hex_bytes, require_library

MIN_PASSPHRASE = 8  # characters
_SCRYPT = {"n": 2**17, "r": 8, "p": 1}  # 128 MB and a third of a second for each guess
_SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 16, 12, 16
_KEY_PREFIX = b"privsketch key v1\0"
_ALGORITHMS = {"kdf": "scrypt", "cipher": "chacha20-poly1305"}
_random = secrets.token_bytes  # seam for known-answer tests


def new_lock() -> dict[str, Any]:
    """Return a lock with a fresh salt and nonce, as key files store it."""
    salt, nonce = _random(_SALT_BYTES), _random(_NONCE_BYTES)
    return {**_ALGORITHMS, **_SCRYPT, "salt": salt.hex(), "nonce": nonce.hex()}


def require_passphrase(passphrase: object) -> str:
    """Refuse a passphrase that is too short."""
    if not isinstance(passphrase, str) or len(passphrase) < MIN_PASSPHRASE:
        raise ParameterError(  # never with the value that was seen
            f"passphrase: expected a text of at least {MIN_PASSPHRASE} characters"
        )
    return passphrase


def lock_secret(secret: bytes, passphrase: str, header: dict[str, Any]) -> bytes:
    """Encrypt a secret; `header` contains the lock and is authenticated with it."""
    cipher, nonce = _cipher(passphrase, header["lock"])
    return bytes(cipher.encrypt(nonce, secret, _KEY_PREFIX + canonical_json(header)))


def unlock_secret(ciphertext: bytes, passphrase: str, header: dict[str, Any], what: str) -> bytes:
    """Decrypt a secret; raise the same error for a wrong passphrase and for damage."""
    from cryptography.exceptions import InvalidTag

    require_lock(header["lock"], what)
    cipher, nonce = _cipher(passphrase, header["lock"])
    try:
        return bytes(cipher.decrypt(nonce, ciphertext, _KEY_PREFIX + canonical_json(header)))
    except InvalidTag:
        raise FileError(f"{what}: wrong passphrase or damaged file") from None


def require_lock(lock: Any, what: str) -> None:
    """Refuse any lock but those that `new_lock` makes."""
    require_fields(lock, (*_ALGORITHMS, *_SCRYPT, "salt", "nonce"), what)
    parameters = {name: lock[name] for name in (*_ALGORITHMS, *_SCRYPT)}
    expected = {**_ALGORITHMS, **_SCRYPT}
    if canonical_json(parameters) != canonical_json(expected):  # 1, not 1.0 or true
        raise FileError(f"{what}: its secrets are encrypted with unsupported parameters")
    hex_bytes(lock["salt"], _SALT_BYTES, what)
    hex_bytes(lock["nonce"], _NONCE_BYTES, what)


def _cipher(passphrase: str, lock: dict[str, Any]) -> tuple[Any, bytes]:
    require_library()
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    # Keyboards differ in whether they compose accented letters.
    text = unicodedata.normalize("NFC", passphrase).encode("utf-8", "surrogatepass")
    salt = bytes.fromhex(lock["salt"])
    key = Scrypt(salt=salt, length=32, n=lock["n"], r=lock["r"], p=lock["p"]).derive(text)
    return ChaCha20Poly1305(key), bytes.fromhex(lock["nonce"])


SUITE = "HPKE base, ML-KEM-768 + X25519, HKDF-SHA256, ChaCha20-Poly1305"
OVERHEAD = 1136  # bytes added to a message: 1,120 of the encapsulated key, 16 of the tag
MLKEM_PUBLIC, MLKEM_SECRET = 1184, 64  # bytes; the secret is the seed of FIPS 203, d and z
X25519_BYTES = 32


def mlkem_public(secret: bytes) -> bytes:
    """Return the public key of an ML-KEM-768 seed."""
    key = _mlkem().MLKEM768PrivateKey.from_seed_bytes(secret).public_key()
    return bytes(key.public_bytes_raw())


def x25519_public(secret: bytes) -> bytes:
    """Return the public key of an X25519 secret."""
    require_library()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def encrypt_message(mlkem: bytes, x25519: bytes, message: bytes, info: bytes) -> bytes:
    """Encrypt a message for the holder of these public keys, with fresh randomness."""
    hpke = _hpke()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        public = hpke.MLKEM768X25519PublicKey(
            _mlkem().MLKEM768PublicKey.from_public_bytes(mlkem),
            X25519PublicKey.from_public_bytes(x25519),
        )
        return bytes(_suite(hpke).encrypt(message, public, info))
    except ValueError:  # not a point that a secret leads to, or not a key of the lattice
        raise FileError("a public key that nobody can have; nothing was sealed to it") from None


def decrypt_message(mlkem: bytes, x25519: bytes, message: bytes, info: bytes) -> bytes | None:
    """Decrypt a message; return None for other secrets, another `info`, or damage."""
    hpke = _hpke()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = hpke.MLKEM768X25519PrivateKey(
        _mlkem().MLKEM768PrivateKey.from_seed_bytes(mlkem),
        X25519PrivateKey.from_private_bytes(x25519),
    )
    try:
        return bytes(_suite(hpke).decrypt(message, secret, info))
    except (InvalidTag, ValueError):
        return None


def _suite(hpke: Any) -> Any:
    return hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


def _hpke() -> Any:
    require_library()
    try:
        from cryptography.hazmat.primitives import hpke

        hpke.MLKEM768X25519PublicKey  # noqa: B018 - not in all versions
    except (ImportError, AttributeError):
        raise ParameterError(_OLD) from None
    return hpke


def _mlkem() -> Any:
    require_library()
    try:
        from cryptography.hazmat.primitives.asymmetric import mlkem
    except ImportError:
        raise ParameterError(_OLD) from None
    return mlkem


_OLD = (
    "sealed studies need ML-KEM and HPKE, which this version of the package cryptography does not "
    "have; pip install --upgrade 'privsketch[signing]'"
)
