"""Options of commands that sign what they write, and where a passphrase comes from.

A passphrase is never an argument: those are seen by everybody on a machine and kept by shells.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import is_standard, require_file, say

if TYPE_CHECKING:
    from privsketch.signing.keys import Key

_ADVICE = "change the passphrase if it lay there for long"
_MAX_LINE = 4096  # bytes of a passphrase

KEY = click.option(
    "--key",
    "key_file",
    type=PATH,
    help="Sign what is written with this private key; the signature lies beside it, in a file "
    "that ends in .sig.",
)
PASSPHRASE_FILE = click.option(
    "--passphrase-file",
    type=PATH,
    envvar="PRIVSKETCH_PASSPHRASE_FILE",
    show_envvar=True,
    help="File with the key's passphrase in its first line, - for standard input; asked for if "
    "left out.",
)
SIGNED_BY = click.option(
    "--signed-by",
    multiple=True,
    metavar="KEY",
    help="Refuse what is not signed by this key: a .pub file, or the name or fingerprint of a "
    "pinned key. Of several keys, by one of them.",
)


def opened_key(key_file: Path, passphrase_file: Path | None) -> Key:
    """A private key from its file; the passphrase is asked for if there is one."""
    from privsketch.signing.keys import Key, is_locked

    passphrase = given_passphrase(key_file, passphrase_file) if is_locked(key_file) else None
    return Key.load(key_file, passphrase=passphrase)


def signing_key(key_file: Path | None, passphrase_file: Path | None, output: Path) -> Key | None:
    """The key that a result will be signed with, before any work is done on the result."""
    from privsketch._base.formats import require_writable
    from privsketch.signing.signature import signature_path

    if key_file is None:
        return None
    require_file(output, "a signature lies beside a file")
    require_writable(signature_path(output))
    return opened_key(key_file, passphrase_file)


def sign_result(signer: Key | None, output: Path, data: bytes, kind: str) -> list[Path]:
    """Put a signature beside a result that was just written; its file, if there is one."""
    from privsketch.signing.signature import signature_path

    if signer is None:
        return []
    signer.signature(data, kind).save(signature_path(output))
    say(f"signed by   {signer.name}, in {signature_path(output)}", output)
    return [signature_path(output)]


def _is_file(stream: TextIO) -> bool:
    """Whether a plain file lies behind a stream: no pipe, no terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # nothing of the system's
        return False


def given_passphrase(key_file: Path, file: Path | None, *, is_new: bool = False) -> str:
    """The passphrase of a key: from a file, or asked for on a terminal, twice for a new one."""
    from privsketch._base.errors import AccessError, FileError
    from privsketch.signing.documents import require_own

    if file is not None:
        try:
            # One encoding, whatever that of the shell is; some editors begin files with a mark.
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
            if len(data) > _MAX_LINE:  # cut, it would be another one
                raise AccessError(f"{file}: its first line has more than {_MAX_LINE} bytes")
            line = data.decode("utf-8-sig")
        except FileError:
            raise
        except OSError as error:
            raise AccessError(f"{file}: {error.strerror or 'cannot be read'}") from None
        except ValueError:  # and nothing of what was read
            raise AccessError(f"{file}: not text in UTF-8") from None
        return line.removesuffix("\n").removesuffix("\r")
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(
            f"{key_file} needs a passphrase, and there is no terminal to ask for it; give "
            "--passphrase-file FILE, or PRIVSKETCH_PASSPHRASE_FILE"
        )
    asked: str = click.prompt(
        f"Passphrase of {key_file}", hide_input=True, confirmation_prompt=is_new, err=True
    )
    return asked
