"""`privsketch key make|sign|verify|trust`: who made a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unicodedata import normalize

import click

from privsketch.cli.shell.answer import JSON, answer, say
from privsketch.cli.shell.group import Group
from privsketch.cli.shell.options import PATH
from privsketch.cli.shell.output import caution, file_kind, note, say_written
from privsketch.cli.shell.signing import PASSPHRASE_FILE, given_passphrase, opened_key


@click.group(cls=Group)
def key() -> None:
    """Make keys, sign files and check who signed them.

    \b
    privsketch key make site-3.key
    privsketch key sign study.json --key designer.key
    privsketch key verify site-*.sketch --trust site-1.pub --trust site-2.pub
    """


@key.command()
@click.argument("key_file", metavar="FILE.key", type=PATH)
@click.option("--name", help="Public name of the key's holder; by default that of the file.")
@PASSPHRASE_FILE
@click.option(
    "--no-passphrase",
    is_flag=True,
    help="Write the key without a passphrase: whoever can read the file can then sign in its name.",
)
@JSON
def make(
    key_file: Path, name: str | None, passphrase_file: Path | None, no_passphrase: bool
) -> None:
    """Make a key to sign with.

    FILE.key is secret and locked by a passphrase, which you enter twice. FILE.pub is public. Read
    its fingerprint by phone to those who receive it.

    \b
    privsketch key make site-3.key
    privsketch key make robot.key --passphrase-file /run/secrets/robot
    """
    from privsketch._base.errors import AccessError, FileError, ParameterError
    from privsketch._base.formats import require_writable
    from privsketch.cli.shell.facts import key_facts
    from privsketch.signing.keys import Key

    source = click.get_current_context().get_parameter_source("passphrase_file")
    if no_passphrase and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--no-passphrase does not go with --passphrase-file")
    if key_file.suffix != ".key" or not key_file.stem:
        raise ParameterError(f"{key_file}: the name of a key's file ends in .key")
    public_file = key_file.with_suffix(".pub")
    for path in (key_file, public_file):
        if path.is_symlink() or path.exists():
            raise AccessError(f"{path} exists; a key is never overwritten")
        require_writable(path)
    # Some systems decompose accented letters in file names.
    generated = Key.generate(normalize("NFC", key_file.stem) if name is None else name)
    passphrase = None
    if not no_passphrase:
        passphrase = given_passphrase(key_file, passphrase_file, is_new=True)
    generated.save(key_file, passphrase=passphrase)
    try:
        generated.public.save(public_file)
    except FileError:
        key_file.unlink()  # nobody has a copy yet
        raise
    if no_passphrase:
        caution(f"{key_file} has no passphrase: whoever can read it can sign as {generated.name}")
    say(generated.public.describe())
    say(f"secret      {key_file}: for you alone; nobody can replace it or its passphrase")
    say(f"public      {public_file}: give it to others, and read them the fingerprint")
    answer(
        written=[key_file, public_file],
        key_file=key_file,
        public_file=public_file,
        **key_facts(generated.public),
        has_passphrase=passphrase is not None,
    )


@key.command()
@click.argument("file", type=PATH)
@click.option("--key", "key_file", type=PATH, required=True, help="Private key to sign with.")
@PASSPHRASE_FILE
@click.option("--force", is_flag=True, help="Replace an existing signature.")
@JSON
def sign(file: Path, key_file: Path, passphrase_file: Path | None, force: bool) -> None:
    """Sign a design, sketch, model or receipt.

    The signature is written beside it, to FILE.sig. It states that you vouch for these bytes, so
    read them first (`privsketch inspect`).

    \b
    privsketch key sign study.json --key designer.key
    """
    from privsketch._base.errors import AccessError
    from privsketch._base.formats import read_file, require_writable
    from privsketch.cli.shell.facts import key_facts
    from privsketch.signing.signature import digit_groups, kind_of_file, signature_path

    data = read_file(file)
    kind = kind_of_file(data, str(file))  # before the prompt for a passphrase
    target = signature_path(file)
    if (target.is_symlink() or target.exists()) and not force:
        raise AccessError(f"{target} exists (--force to replace it)")
    require_writable(target)
    signer = opened_key(key_file, passphrase_file)
    signer.signature(data, kind).save(target)
    say(f"signed      {file}, a {kind}")
    say(f"by          {signer.name}, {digit_groups(signer.fingerprint)}")
    say_written(target)
    facts = key_facts(signer.public)
    answer(written=[target], file=file, signature_file=target, kind=kind, signer=facts)


@key.command()
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="KEY",
    help="A key whose signatures count: a .pub file, or the name or fingerprint of a pinned key. "
    "The default is all pinned keys.",
)
@JSON
def verify(files: tuple[Path, ...], trusted: tuple[str, ...]) -> None:
    """Check that files are signed by trusted keys.

    A file without the signature of a trusted key is refused, with exit code 5. The check tells who
    made a file, not whether its content is right. For files of a sealed study, use `privsketch
    study check`.

    \b
    privsketch key verify site-*.sketch --trust site-1.pub --trust site-2.pub
    """
    from privsketch._base.errors import AccessError, PrivsketchError, SignatureError
    from privsketch.cli.shell.facts import key_facts
    from privsketch.signing.signature import digit_groups, kind_of_file
    from privsketch.signing.trusted import pinned_keys, resolve_key, verified_bytes

    if file_kind(files[0]) == "study":
        raise click.UsageError(f"{files[0]} is a sealed study; use `privsketch study check`")
    keys = [resolve_key(text) for text in trusted] or pinned_keys()
    if not keys:
        raise click.UsageError(
            "no key is trusted: give --trust FILE.pub, or pin one with `privsketch key trust`"
        )
    results: list[dict[str, Any]] = []
    refusals: list[PrivsketchError] = []
    for file in files:
        result: dict[str, Any] = {"file": str(file), "is_valid": False}
        result.update(kind=None, signer=None, problem=None)
        try:
            data, signer = verified_bytes(file, keys)
            kind = kind_of_file(data, str(file))
            result.update(is_valid=True, kind=kind, signer=key_facts(signer))
            say(f"valid       {file}, a {kind}")
            say(f"signed by   {signer.name}, {digit_groups(signer.fingerprint)}")
        except PrivsketchError as error:
            result["problem"] = str(error)
            refusals.append(error)
            say(f"REFUSED     {error}")
        results.append(result)
    answer(is_valid=not refusals, files=results)
    if refusals and all(isinstance(error, AccessError) for error in refusals):
        raise refusals[0]  # the files could not be read
    if refusals:
        raise SignatureError("not every file is signed by a trusted key")


@key.command()
@click.argument("public_file", metavar="[FILE.pub]", required=False, type=PATH)
@click.option(
    "--expect",
    metavar="FINGERPRINT",
    help="Refuse any other key: all 32 digits of the fingerprint, as its holder read them to you.",
)
@click.option("--list", "is_list", is_flag=True, help="List all pinned keys.")
@click.option("--forget", metavar="NAME|FINGERPRINT", help="Remove this key from the pinned ones.")
@JSON
def trust(public_file: Path | None, expect: str | None, is_list: bool, forget: str | None) -> None:
    """Pin a public key: its signatures are then known by name.

    First compare the fingerprint with its holder, by phone. Pinned keys are stored in your home
    folder, or below PRIVSKETCH_HOME if that is set.

    \b
    privsketch key trust designer.pub --expect 3f2a90c17be405d86a1fc2339e70b85d
    privsketch key trust --list
    privsketch key trust --forget designer
    """
    from privsketch._base.errors import SignatureError
    from privsketch.cli.shell.facts import key_facts
    from privsketch.signing.keys import PublicKey
    from privsketch.signing.signature import digit_groups
    from privsketch.signing.trusted import forget as forget_key
    from privsketch.signing.trusted import is_fingerprint_of, pin, pinned_keys, pins_folder

    if (public_file is not None) + is_list + (forget is not None) != 1:
        raise click.UsageError("give one of FILE.pub, --list and --forget NAME")
    if expect is not None and public_file is None:
        raise click.UsageError("--expect goes with FILE.pub")
    pinned = forgotten = None
    if public_file is not None:
        pinned = PublicKey.load(public_file)
        if expect is not None and not is_fingerprint_of(expect, pinned):
            raise SignatureError(
                f"{public_file}: its fingerprint is {digit_groups(pinned.fingerprint)}, "
                f"not {expect}"
            )
        pin(pinned)
    if forget is not None:
        forgotten = forget_key(forget)
    keys = pinned_keys()
    if pinned is not None:
        say(f"pinned      {pinned.name}, {digit_groups(pinned.fingerprint)}")
        if expect is None:
            note("compare the fingerprint with its holder, by phone, before you rely on it", None)
    if forgotten is not None:
        say(f"forgotten   {forgotten.name}, {digit_groups(forgotten.fingerprint)}")
    if is_list:
        for item in keys:
            say(f"{digit_groups(item.fingerprint)}  {item.name}")
        if not keys:
            say("no key is pinned")
    answer(
        folder=pins_folder(),
        pinned=None if pinned is None else key_facts(pinned),
        forgotten=None if forgotten is None else key_facts(forgotten),
        keys=[key_facts(item) for item in keys],
    )
