"""Signing of what commands write, and checks of the signatures of what they load.

A passphrase is never an argument: all users of a machine see those, and shells store them. With
--signed-by, a file must have a signature. Without, a signature beside a file is checked once the
user has pinned any key: a wrong one is refused, and one of an unknown key is reported.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import caution, is_standard, require_file, say

if TYPE_CHECKING:
    from privsketch.design.recipe import Design
    from privsketch.signing.keys import Key, PublicKey
    from privsketch.sketching.sketch import Sketch

_ADVICE = "change the passphrase if it lay there for long"
_MAX_LINE = 4096  # bytes of a passphrase

KEY = click.option(
    "--key",
    "key_file",
    type=PATH,
    help="Sign the output with this private key. The signature is written beside it, to a file "
    "that ends in .sig.",
)
PASSPHRASE_FILE = click.option(
    "--passphrase-file",
    type=PATH,
    envvar="PRIVSKETCH_PASSPHRASE_FILE",
    show_envvar=True,
    help="File with the key's passphrase in its first line, or - for standard input. The default "
    "is a prompt.",
)
SIGNED_BY = click.option(
    "--signed-by",
    multiple=True,
    metavar="KEY",
    help="Refuse files that are not signed by this key: a .pub file, or the name or fingerprint of "
    "a pinned key. With several keys, one of them must have signed.",
)


def opened_key(key_file: Path, passphrase_file: Path | None) -> Key:
    """Load a private key; prompt for the passphrase if it is locked."""
    from privsketch.signing.keys import Key, is_locked

    passphrase = given_passphrase(key_file, passphrase_file) if is_locked(key_file) else None
    return Key.load(key_file, passphrase=passphrase)


def signing_key(key_file: Path | None, passphrase_file: Path | None, output: Path) -> Key | None:
    """Load the key that a result will be signed with, before any work is done."""
    from privsketch._base.formats import require_writable
    from privsketch.signing.signature import signature_path

    if key_file is None:
        return None
    require_file(output, "a signature lies beside a file")
    require_writable(signature_path(output))
    return opened_key(key_file, passphrase_file)


def sign_result(signer: Key | None, output: Path, data: bytes, kind: str) -> list[Path]:
    """Sign a result that was just written, and return the signature's file, if there is one."""
    from privsketch.signing.signature import signature_path

    if signer is None:
        return []
    signer.signature(data, kind).save(signature_path(output))
    say(f"signed by   {signer.name}, in {signature_path(output)}", output)
    return [signature_path(output)]


def _is_file(stream: TextIO) -> bool:
    """Return whether a stream is a plain file: no pipe, no terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # not a stream of the system
        return False


def given_passphrase(key_file: Path, file: Path | None, *, is_new: bool = False) -> str:
    """Read the passphrase of a key from a file, or prompt for it, twice for a new key."""
    from privsketch._base.errors import AccessError, FileError
    from privsketch.signing.documents import require_own

    if file is not None:
        try:
            # UTF-8 whatever the locale; some editors begin files with a byte-order mark.
            if is_standard(file) and sys.stdin is None:
                raise AccessError("-: there is no standard input")
            if is_standard(file):
                if _is_file(sys.stdin):
                    require_own(sys.stdin.buffer, "the file on standard input", _ADVICE)
                data = sys.stdin.buffer.readline(_MAX_LINE + 1)
            else:
                with file.open("rb") as stream:  # pipes too: <(pass show site-1)
                    require_own(stream, str(file), _ADVICE)
                    data = stream.readline(_MAX_LINE + 1)
            if len(data) > _MAX_LINE:  # a truncated passphrase would be another one
                raise AccessError(f"{file}: its first line has more than {_MAX_LINE} bytes")
            line = data.decode("utf-8-sig")
        except FileError:
            raise
        except OSError as error:
            raise AccessError(f"{file}: {error.strerror or 'cannot be read'}") from None
        except ValueError:  # the error must not quote the passphrase
            raise AccessError(f"{file}: not text in UTF-8") from None
        return line.removesuffix("\n").removesuffix("\r")
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            f"{key_file} needs a passphrase, and there is no terminal to ask for it; give "
            "--passphrase-file FILE, or PRIVSKETCH_PASSPHRASE_FILE"
        )
    passphrase: str = click.prompt(
        f"Passphrase of {key_file}", hide_input=True, confirmation_prompt=is_new, err=True
    )
    return passphrase


def checked_bytes(
    path: Path, kind: str | None = None, keys: Sequence[PublicKey] = ()
) -> tuple[bytes, PublicKey | None]:
    """Read a file once, and return its bytes and the known key that signed them.

    If there are `keys`, one of them must have signed the file.
    """
    from privsketch._base.formats import read_file
    from privsketch.signing.signature import Signature, digit_groups, signature_path
    from privsketch.signing.trusted import pinned_keys, signer_of, verified_bytes

    if keys:
        return verified_bytes(path, keys, kind=kind)
    data = read_file(path)
    pinned = pinned_keys() if os.path.lexists(signature_path(path)) else []
    signature = Signature.beside(path) if pinned else None
    if signature is None:
        return data, None
    signer = signer_of(data, signature, pinned, str(path), kind=kind)
    if signer is None:
        fingerprint = digit_groups(signature.fingerprint)
        caution(f"{path} is signed by a key that is not pinned, {fingerprint}")
    return data, signer


def load_design(path: Path, signed_by: Sequence[str] = ()) -> Design:
    """Load a design and check its signature."""
    from privsketch.design.recipe import Design
    from privsketch.signing.trusted import resolve_key

    keys = [resolve_key(text) for text in signed_by]
    return Design.from_bytes(checked_bytes(path, "design", keys)[0], str(path))


def load_sketch(path: Path) -> Sketch:
    """Load a sketch and check its signature."""
    from privsketch.sketching.sketch import Sketch

    return Sketch.from_bytes(checked_bytes(path, "sketch")[0], str(path))


def load_sketches(paths: Sequence[Path], signed_by: Sequence[str] = ()) -> list[Sketch]:
    """Load sketches to add up, and check that their signatures fit their sources."""
    from privsketch.signing.trusted import pinned_keys, resolve_key
    from privsketch.sketching.sketch import Sketch

    keys = [resolve_key(text) for text in signed_by]
    sketches, signers = [], []
    for path in paths:
        data, signer = checked_bytes(path, "sketch", keys)
        sketches.append(Sketch.from_bytes(data, str(path)))
        signers.append(signer)
    if any(signers):
        _compare_sources(paths, sketches, signers, keys, pinned_keys())
    return sketches


def _compare_sources(
    paths: Sequence[Path],
    sketches: Sequence[Sketch],
    signers: Sequence[PublicKey | None],
    keys: Sequence[PublicKey],
    pinned: Sequence[PublicKey],
) -> None:
    """Refuse a release in the name of another known key; caution about other mismatches."""
    from privsketch._base.errors import SignatureError
    from privsketch.signing.documents import alike

    all_keys = {alike(key.name): key for key in (*pinned, *keys)}
    # A collector signs sums of sites that are pinned, which is normal.
    expected = {alike(key.name): key for key in keys} or all_keys
    times: Counter[str] = Counter()
    for path, sketch, signer in zip(paths, sketches, signers, strict=True):
        if signer is None:
            continue
        foreign = [source for source in sketch.sources if source != signer.name]
        is_sum = len(sketch.ids) > 1  # whoever adds sketches up signs for others
        names = expected if is_sum else all_keys
        of_other_keys = [name for name in foreign if names.get(alike(name), signer) != signer]
        if is_sum:
            if of_other_keys:
                sources = ", ".join(dict.fromkeys(of_other_keys))
                caution(f"{path} is a sum that {signer.name} has signed, also for {sources}")
            continue
        times[signer.name] += 1
        if of_other_keys:
            raise SignatureError(
                f"{path}: signed by {signer.name!r}, but its source is named {of_other_keys[0]!r}, "
                "as another key that is trusted here"
            )
        if foreign:
            caution(f"{path} is signed by {signer.name}, and its source is named {foreign[0]}")
    for name, number in times.items():
        if number > 1:
            caution(f"{name} has signed {number} of these sketches: are they of different records?")
