"""Trusted public keys: those given to a call, or pinned in a folder of the user.

Pinning a key states that its fingerprint was compared with its holder's. From then on its
signatures are trusted by name. A name is pinned for one key only: another key with the same name is
refused until the first one is forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from privsketch._base.errors import AccessError, FileError, ParameterError, SignatureError
from privsketch._base.formats import read_file, write_file
from privsketch.signing.documents import alike, fingerprint_digits
from privsketch.signing.keys import PublicKey
from privsketch.signing.signature import Signature, digit_groups, kind_of_file, signature_path


def verify(
    path: str | os.PathLike[str],
    trusted: Iterable[PublicKey | str | os.PathLike[str]] | None = None,
    *,
    kind: str | None = None,
) -> PublicKey:
    """Return whose signature lies beside a file; raise if no trusted key made it.

    Charges: nothing. It tells who signed these bytes, not whether their content is true.

    Parameters
    ----------
    path : str or path
        Signed file; its signature has the same name and .sig.
    trusted : list of PublicKey, path of a .pub file, or name or fingerprint of a pinned key
        Keys whose signatures are accepted; all pinned keys if left out.
    kind : str, optional
        Expected kind of the file, like "design" or "sketch"; any kind if left out.

    Returns
    -------
    PublicKey
        Key that signed the file.

    Examples
    --------
    >>> import tempfile, privsketch as ps
    >>> design = ps.Design.plan(n_components=2, domain=ps.Box(-1, 1, dim=2),
    ...                         budget=ps.Budget(epsilon=1.0), random_state=0)
    >>> designer, stranger = ps.Key.generate("designer"), ps.Key.generate("stranger")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     design.save(f"{folder}/study.json")
    ...     path = stranger.sign(f"{folder}/study.json")
    ...     ps.verify(f"{folder}/study.json", [designer.public])
    Traceback (most recent call last):
    privsketch.SignatureError: ...study.json: signed by a key that is not trusted here, ...
    """
    keys = pinned_keys() if trusted is None else [resolve_key(item) for item in trusted]
    return verified_bytes(path, keys, kind=kind)[1]


def verified_bytes(
    path: str | os.PathLike[str], trusted: Sequence[PublicKey], *, kind: str | None = None
) -> tuple[bytes, PublicKey]:
    """Read the bytes of a file once, and return them with the trusted key that signed them."""
    data = read_file(path)
    signature = Signature.beside(path)
    if signature is None:
        raise SignatureError(f"{path}: not signed; there is no {signature_path(path)}")
    signer = signer_of(data, signature, trusted, os.fspath(path), kind=kind)
    if signer is None:
        raise SignatureError(
            f"{path}: signed by a key that is not trusted here, "
            f"{digit_groups(signature.fingerprint)}"
        )
    return data, signer


def signer_of(
    data: bytes,
    signature: Signature,
    trusted: Sequence[PublicKey],
    what: str,
    *,
    kind: str | None = None,
) -> PublicKey | None:
    """Return the trusted key that signed these bytes, or None; raise if nobody did.

    The bytes are parsed only after the signature was verified.
    """
    if kind is not None and signature.kind != kind:
        raise SignatureError(f"{what}: signed as a {signature.kind}, not as a {kind}")
    if not signature.fits(data):
        raise SignatureError(f"{what}: the signature is wrong; file or signature was altered")
    if kind_of_file(data, what) != signature.kind:
        raise SignatureError(f"{what}: signed as a {signature.kind}, which it is not")
    for key in trusted:
        if key.identity == signature.key:
            if key.name != signature.name:
                raise SignatureError(
                    f"{what}: the name in its signature was altered; the key is {key.name!r}"
                )
            return key
    return None


def resolve_key(item: PublicKey | str | os.PathLike[str]) -> PublicKey:
    """Return a key given as an object, as its file (with a folder or .pub), or by its pin."""
    if isinstance(item, PublicKey):
        return item
    text = os.fspath(item)
    if isinstance(item, os.PathLike) or text.endswith(".pub") or set("/\\") & set(text):
        return PublicKey.load(text)
    return _pinned(text, "; give a .pub file, or pin one: privsketch key trust FILE.pub")


def pins_folder() -> Path:
    """Return the folder of pinned keys: below PRIVSKETCH_HOME, or the user's settings."""
    home = os.environ.get("PRIVSKETCH_HOME")
    if home:
        return Path(home) / "trusted"
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(settings) if os.path.isabs(settings) else Path(os.path.expanduser("~")) / ".config"
    return base / "privsketch" / "trusted"


def pinned_keys() -> list[PublicKey]:
    """Return all pinned keys, by name."""
    keys = []
    for file in sorted(pins_folder().glob("*.pub")):
        key = PublicKey.load(file)
        if file.stem != key.fingerprint:
            raise FileError(f"{file}: not the key that was pinned under this name")
        keys.append(key)
    return sorted(keys, key=lambda key: key.name)


def pin(key: PublicKey) -> Path:
    """Trust a key from now on, and return the path of its pin."""
    for other in pinned_keys():
        if other.identity == key.identity and other.name != key.name:
            raise SignatureError(
                f"this key is pinned as {other.name!r}, and now calls itself {key.name!r}; if it "
                "is to have that name, forget the other one first"
            )
        if other.identity != key.identity and alike(other.name) == alike(key.name):
            raise SignatureError(
                f"another key is pinned as {other.name!r}, {digit_groups(other.fingerprint)}; if "
                "its holder has a new one, forget the old one first"
            )
    folder = pins_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(f"{folder}: {error.strerror or 'cannot be made'}") from None
    file = folder / f"{key.fingerprint}.pub"
    write_file(file, key.to_bytes())
    return file


def forget(text: str) -> PublicKey:
    """Remove the pin of a key, by its name or fingerprint, and return the key."""
    key = _pinned(text)
    file = pins_folder() / f"{key.fingerprint}.pub"
    try:
        file.unlink()
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror or 'cannot be removed'}") from None
    return key


def is_fingerprint_of(text: str, key: PublicKey) -> bool:
    """Return whether a text is the whole fingerprint of a key, in groups or not."""
    return fingerprint_digits(text) == key.fingerprint


def _pinned(text: str, advice: str = "") -> PublicKey:
    """Return a pinned key by its fingerprint or its name."""
    keys = pinned_keys()
    matches = [key for key in keys if is_fingerprint_of(text, key)]
    matches += [key for key in keys if key.name == text]
    if not matches:
        raise ParameterError(f"{text!r}: no key is pinned under this name or fingerprint{advice}")
    return matches[0]
