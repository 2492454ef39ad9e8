"""Key pairs: a private key that signs, in a file with a passphrase, and its public half.

Both files have a table of keys by kind (`_KEY_KINDS`). The Ed25519 key is the identity. Its digest
is the fingerprint, and its own signature binds its name and its other keys to it. Only secrets are
encrypted, so a key file shows whose it is.

A key for a study has an Ed25519 key of its own and two that decrypt messages. It is used for one
study and then destroyed, so it has a file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any, NamedTuple, NoReturn

from privsketch._base.errors import AccessError, FileError, ParameterError
from privsketch._base.formats import (
    canonical_json,
    parse_json,
    read_file,
    require_fields,
    write_file,
)
from privsketch.signing.documents import (
    checked_name,
    destroy_file,
    document_bytes,
    document_fields,
    hex_bytes,
    read_small,
    require_library,
    write_new,
)
from privsketch.signing.encryption import (
    MLKEM_PUBLIC,
    MLKEM_SECRET,
    X25519_BYTES,
    decrypt_message,
    encrypt_message,
    lock_secret,
    mlkem_public,
    new_lock,
    require_lock,
    require_passphrase,
    unlock_secret,
    x25519_public,
)
from privsketch.signing.signature import (
    KEY_BYTES,
    SEALED_KINDS,
    SIGNATURE_BYTES,
    SIGNING_KINDS,
    Signature,
    digit_groups,
    is_valid_signature,
    key_fingerprint,
    kind_of_file,
    sign_message,
    signature_path,
    signed_message,
)

_PUBLIC_FIELDS = ("name", "keys", "fingerprint", "signature")
_KEY_FIELDS = (*_PUBLIC_FIELDS, "lock", "secrets")


def _ed25519_public(secret: bytes) -> bytes:
    require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


class _Kind(NamedTuple):
    """One kind of key: sizes in bytes, and the public half of a random secret."""

    n_public: int
    n_secret: int
    public: Callable[[bytes], bytes]


# Every file has "ed25519"; keys for studies have the others as well.
_KEY_KINDS = {
    "ed25519": _Kind(KEY_BYTES, 32, _ed25519_public),
    "mlkem768": _Kind(MLKEM_PUBLIC, MLKEM_SECRET, mlkem_public),
    "x25519": _Kind(X25519_BYTES, X25519_BYTES, x25519_public),
}
_IDENTITY = "ed25519"
_LATTICE, _CURVE = "mlkem768", "x25519"  # both together decrypt messages


@dataclass(frozen=True, repr=False)
class PublicKey:
    """Public half of a key, which verifies what its holder signed.

    Parameters
    ----------
    name : str
        Name that its holder chose: a site, a person, a role.
    keys : dict of str to bytes
        Public keys by kind; "ed25519" verifies signatures.
    signature : bytes
        The key's own signature of its name and its keys.

    Attributes
    ----------
    fingerprint : str
        32 hex digits to compare by phone before trusting the key.

    Examples
    --------
    >>> import privsketch as ps
    >>> key = ps.Key.generate("site 3")
    >>> key.public.name, len(key.public.fingerprint)
    ('site 3', 32)
    """

    name: str
    keys: Mapping[str, bytes]
    signature: bytes

    def __post_init__(self) -> None:
        checked_name(self.name)
        if _IDENTITY not in self.keys:
            raise ParameterError("keys: expected a key of kind 'ed25519'")
        for kind, value in self.keys.items():
            if kind not in _KEY_KINDS:
                raise ParameterError(f"keys: {kind!r} is not known here; use a newer privsketch")
            if not isinstance(value, bytes) or len(value) != _KEY_KINDS[kind].n_public:
                raise ParameterError(f"keys: {kind!r} has {_KEY_KINDS[kind].n_public} bytes")
        statement = _statement(self.name, self.keys)
        if not is_valid_signature(self.identity, self.signature, statement):
            raise ParameterError("signature: it does not bind this name to these keys")

    def __hash__(self) -> int:
        return hash((self.name, self.identity))

    def __repr__(self) -> str:
        return f"PublicKey(name={self.name!r}, fingerprint={self.fingerprint!r})"

    @property
    def identity(self) -> bytes:
        """The Ed25519 key."""
        return self.keys[_IDENTITY]

    @property
    def fingerprint(self) -> str:
        """32 hex digits that name the key."""
        return key_fingerprint(self.identity)

    @property
    def for_study(self) -> bool:
        """Whether messages can be encrypted for it: such a key is for one study."""
        return {_LATTICE, _CURVE} <= set(self.keys)

    def seal(self, message: bytes, info: bytes) -> bytes:
        """Encrypt a message that only the holder of the key can open, with the same `info`."""
        if not self.for_study:
            raise ParameterError("key: nothing can be sealed to it; it is no key for a study")
        return encrypt_message(self.keys[_LATTICE], self.keys[_CURVE], message, info)

    def describe(self) -> str:
        """Describe the key."""
        whose = f"{self.name}, for one study" if self.for_study else self.name
        return f"key         {whose}\nfingerprint {digit_groups(self.fingerprint)}"

    def to_json(self) -> dict[str, Any]:
        """Return the key as plain JSON values."""
        return _public_content(self)

    @classmethod
    def from_json(cls, value: Any, what: str = "public key") -> PublicKey:
        """Rebuild the key from `to_json`; raise a FileError for anything else."""
        require_fields(value, _PUBLIC_FIELDS, what)
        return _public_from(value, what)

    def to_bytes(self) -> bytes:
        """Return the bytes of a .pub file."""
        return document_bytes("public-key", _public_content(self))

    @classmethod
    def from_bytes(cls, data: bytes, what: str = "public key") -> PublicKey:
        """Rebuild the key from `to_bytes`; raise a FileError for any other bytes."""
        return _public_from(document_fields(data, "public-key", _PUBLIC_FIELDS, what), what)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the public key to a file, which anybody may have."""
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublicKey:
        """Read a public key written by `save`."""
        return cls.from_bytes(read_small(path), os.fspath(path))


class Key:
    """Private key, with which its holder signs files.

    `generate` makes one, `save` writes it, `load` reads it. Its secrets are never shown, and it
    cannot be pickled.

    Parameters
    ----------
    name : str
        Public name that its holder chose: a site, a person, a role.
    secrets : dict of str to bytes
        Secret keys by kind; "ed25519" signs.

    Examples
    --------
    >>> import tempfile, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0), random_state=0)
    >>> key = ps.Key.generate("designer")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     design.save(f"{folder}/study.json")
    ...     path = key.sign(f"{folder}/study.json")
    ...     path.name, ps.verify(f"{folder}/study.json", [key.public]).name
    ('study.json.sig', 'designer')
    """

    __slots__ = ("_public", "_secrets")

    def __init__(self, name: str, secrets: Mapping[str, bytes]) -> None:
        if _IDENTITY not in secrets:
            raise ParameterError("secrets: expected a key of kind 'ed25519'")
        for kind, value in secrets.items():
            if kind not in _KEY_KINDS or len(value) != _KEY_KINDS[kind].n_secret:
                raise ParameterError("secrets: not keys of a kind that is known here")
        keys = {kind: _KEY_KINDS[kind].public(secrets[kind]) for kind in sorted(secrets)}
        statement = _statement(checked_name(name), keys)
        self._secrets = dict(secrets)
        self._public = PublicKey(name, keys, sign_message(secrets[_IDENTITY], statement))

    def __repr__(self) -> str:
        return f"Key(name={self.name!r}, fingerprint={self.fingerprint!r})"

    def __reduce__(self) -> NoReturn:
        raise ParameterError("a key is not pickled; save it under a passphrase")

    @property
    def name(self) -> str:
        """Name that its holder chose."""
        return self._public.name

    @property
    def public(self) -> PublicKey:
        """Public half, which others need."""
        return self._public

    @property
    def fingerprint(self) -> str:
        """32 hex digits that name the key."""
        return self._public.fingerprint

    @classmethod
    def generate(cls, name: str, *, for_study: bool = False) -> Key:
        """Generate a new key from the operating system's random generator.

        With `for_study`, a teller of a sealed study decrypts ballots with it and then destroys it.
        """
        kinds = (_IDENTITY, _LATTICE, _CURVE) if for_study else (_IDENTITY,)
        return cls(name, {kind: token_bytes(_KEY_KINDS[kind].n_secret) for kind in kinds})

    def unseal(self, message: bytes, info: bytes) -> bytes | None:
        """Decrypt a message for its public half; return None if that fails."""
        if not self.public.for_study:
            raise ParameterError("key: it opens nothing; it is no key for a study")
        return decrypt_message(self._secrets[_LATTICE], self._secrets[_CURVE], message, info)

    def sign(self, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Sign an intact privsketch file, and return the path of the signature beside it.

        With `replace`, an existing signature is replaced.
        """
        target = signature_path(path)
        if os.path.lexists(target) and not replace:
            raise AccessError(f"{target} exists; it may be somebody else's signature")
        what = os.fspath(path)
        data = read_file(path)
        self.signature(data, kind_of_file(data, what)).save(target)
        return target

    def signature(self, data: bytes, kind: str) -> Signature:
        """Sign the bytes of a file of this kind.

        Files of sealed studies are signed by the code that makes them, such as
        `SealedStudy.accept`: some may be signed only once.
        """
        if kind in SEALED_KINDS:
            raise ParameterError(
                "kind", kind, "files of sealed studies are signed by what makes them, which keeps "
                "the rules", "a study is accepted by SealedStudy.accept (privsketch study accept)",
            )  # fmt: skip
        return signature_within_rules(self, data, kind)

    def save(self, path: str | os.PathLike[str], *, passphrase: str | None) -> None:
        """Write the key to a new file that only its owner may read, under a passphrase.

        With None there is no passphrase: whoever can read the file can sign.
        """
        write_new(path, self.to_bytes(passphrase=passphrase))

    def to_bytes(self, *, passphrase: str | None) -> bytes:
        """Return the bytes of a .key file."""
        secret = canonical_json({kind: value.hex() for kind, value in self._secrets.items()})
        header: dict[str, Any] = {**_public_content(self._public), "lock": None}
        if passphrase is not None:
            header["lock"] = new_lock()
            secret = lock_secret(secret, require_passphrase(passphrase), header)
        return document_bytes("key", {**header, "secrets": secret.hex()})

    @classmethod
    def from_bytes(cls, data: bytes, *, passphrase: str | None = None, what: str = "key") -> Key:
        """Rebuild the key from `to_bytes`; raise a FileError for any other bytes."""
        require_library()
        header = document_fields(data, "key", _KEY_FIELDS, what)
        secret = hex_bytes(header.pop("secrets"), None, what)
        if header["lock"] is not None:
            require_lock(header["lock"], what)
            if passphrase is None:
                raise ParameterError(f"{what}: this key is locked by a passphrase; give it")
            secret = unlock_secret(secret, passphrase, header, what)
        public = _public_from({name: header[name] for name in _PUBLIC_FIELDS}, what)
        texts = parse_json(secret, what)
        if set(texts) != set(public.keys) or canonical_json(texts) != secret:
            raise FileError(f"{what}: damaged; its secrets are not those of its public keys")
        secrets = {kind: hex_bytes(texts[kind], _KEY_KINDS[kind].n_secret, what) for kind in texts}
        key = cls(public.name, secrets)
        if key.public != public:
            raise FileError(f"{what}: damaged; its secrets are not those of its public keys")
        return key

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, passphrase: str | None = None) -> Key:
        """Read a key written by `save`; refuse a file that others may read."""
        return cls.from_bytes(
            read_small(path, secret=True), passphrase=passphrase, what=os.fspath(path)
        )


def signature_within_rules(key: Key, data: bytes, kind: str) -> Signature:
    """Sign a file for code that enforces the rules of its kind (see `sealing`)."""
    if kind in SIGNING_KINDS:  # names and further keys are bound by signatures of these kinds
        raise ParameterError("kind", kind, "files of keys and signatures are not signed")
    signature = sign_message(key._secrets[_IDENTITY], signed_message(kind, data))
    return Signature(kind, key.name, key.public.identity, signature)


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a key file needs a passphrase; refuse files that others may read."""
    require_library()  # before anybody is asked for a passphrase
    what = os.fspath(path)
    fields = document_fields(read_small(path, secret=True), "key", _KEY_FIELDS, what)
    return fields["lock"] is not None


def fingerprint_of_file(path: str | os.PathLike[str]) -> str:
    """Return the fingerprint that a key file states, locked or not; refuse other files."""
    return _stated(read_small(path, secret=True), path)


def destroy_key(path: str | os.PathLike[str], fingerprint: str) -> None:
    """Overwrite and remove the file of a key with this fingerprint; keep any other file."""
    data = read_small(path, secret=True)
    if _stated(data, path) != fingerprint:
        raise ParameterError(f"{path}: not the key that is to be destroyed; it stays")
    destroy_file(path, data)


def _stated(data: bytes, path: str | os.PathLike[str]) -> str:
    return str(document_fields(data, "key", _KEY_FIELDS, os.fspath(path))["fingerprint"])


def _statement(name: str, keys: Mapping[str, bytes]) -> bytes:
    """Return the statement that a key signs about itself."""
    facts = {"name": name, "keys": {kind: value.hex() for kind, value in keys.items()}}
    return signed_message("public-key", canonical_json(facts))


def _public_content(key: PublicKey) -> dict[str, Any]:
    keys = {kind: key.keys[kind].hex() for kind in sorted(key.keys)}
    facts = (key.name, keys, key.fingerprint, key.signature.hex())
    return dict(zip(_PUBLIC_FIELDS, facts, strict=True))


def _public_from(fields: dict[str, Any], what: str) -> PublicKey:
    require_library()  # else its absence would be reported as damage
    if not isinstance(fields["keys"], dict) or not set(fields["keys"]) <= set(_KEY_KINDS):
        raise FileError(f"{what}: keys of kinds that this privsketch does not know")
    keys = {kind: hex_bytes(text, None, what) for kind, text in fields["keys"].items()}
    signature = hex_bytes(fields["signature"], SIGNATURE_BYTES, what)
    try:
        key = PublicKey(fields["name"], keys, signature)
    except ParameterError as error:
        raise FileError(f"{what}: altered or damaged ({error})") from None
    if key.fingerprint != fields["fingerprint"] or list(keys) != sorted(keys):
        raise FileError(f"{what}: altered or damaged (its fingerprint is another one)")
    return key
