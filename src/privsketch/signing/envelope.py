"""Messages that one key alone can open: HPKE (RFC 9180) in base mode, by the library.

The key encapsulation is ML-KEM-768 with X25519 (X-Wing), since ciphertexts that somebody stores
today await quantum computers; HKDF-SHA256 and ChaCha20-Poly1305 do the rest. `info` is what sender
and receiver must agree on: a message for another occasion does not open.
"""

from __future__ import annotations

from typing import Any

from privsketch._base.errors import FileError, ParameterError
from privsketch.signing.documents import require_library

SUITE = "HPKE base, ML-KEM-768 + X25519, HKDF-SHA256, ChaCha20-Poly1305"
OVERHEAD = 1136  # bytes that a message grows by: 1,120 of the encapsulated key, a tag of 16
MLKEM_PUBLIC, MLKEM_SECRET = 1184, 64  # bytes; the secret is the seed of FIPS 203, d and z
X25519_BYTES = 32


def mlkem_public(secret: bytes) -> bytes:
    """The public half of an ML-KEM-768 seed."""
    found: bytes = (
        _mlkem().MLKEM768PrivateKey.from_seed_bytes(secret).public_key().public_bytes_raw()
    )
    return found


def x25519_public(secret: bytes) -> bytes:
    """The public half of an X25519 secret."""
    require_library()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sealed(mlkem: bytes, x25519: bytes, message: bytes, info: bytes) -> bytes:
    """A message for whoever has the secrets of these public keys; fresh at every call."""
    hpke = _hpke()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        public = hpke.MLKEM768X25519PublicKey(
            _mlkem().MLKEM768PublicKey.from_public_bytes(mlkem),
            X25519PublicKey.from_public_bytes(x25519),
        )
        found: bytes = _suite(hpke).encrypt(message, public, info)
    except ValueError:  # no point of the curve that a secret leads to, no key of the lattice
        raise FileError("a public key that nobody can have; nothing was sealed to it") from None
    return found


def opened(mlkem: bytes, x25519: bytes, message: bytes, info: bytes) -> bytes | None:
    """What was sealed; None if it was not for these secrets, for this occasion, or damaged."""
    hpke = _hpke()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = hpke.MLKEM768X25519PrivateKey(
        _mlkem().MLKEM768PrivateKey.from_seed_bytes(mlkem),
        X25519PrivateKey.from_private_bytes(x25519),
    )
    try:
        found: bytes = _suite(hpke).decrypt(message, secret, info)
    except (InvalidTag, ValueError):
        return None
    return found


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
