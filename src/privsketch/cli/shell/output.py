"""Output of results: to a file, or to standard output for "-".

Text goes to standard output, unless the result does; then it goes to standard error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privsketch._base.formats import count_text as count_text
from privsketch.cli.shell import answer

if TYPE_CHECKING:
    from privsketch.cli.shell.options import TableOptions
    from privsketch.facts.budget import Budget
    from privsketch.facts.domain import Domain
    from privsketch.facts.schema import Schema

STANDARD_OUTPUT = Path("-")


def is_standard(path: Path | None) -> bool:
    """Return whether a result goes to standard output."""
    return path == STANDARD_OUTPUT


def source_name(source: str | None, output: Path) -> str | None:
    """Return `source`, or else the stem of the output file; None for standard output."""
    return source or (None if is_standard(output) else output.stem)


def say(text: str, output: Path | None) -> None:
    """Print text to standard output, or to standard error if the result goes there."""
    answer.say(text, err=is_standard(output))


def say_cautions(
    domain: Domain | Schema,
    budget: Budget,
    n_records: float | None,
    names: Sequence[str] | None = None,
    *,
    width: int | None = None,
) -> list[str]:
    """Print cautions about the stated facts to standard error, and return them.

    Lines are wrapped at `width`, if it is given.
    """
    from privsketch.design.cautions import stated_cautions

    cautions = stated_cautions(domain, budget, n_records, names)
    for text in cautions:
        caution(text, width=width)
    return cautions


def caution_decimals(stated: TableOptions, schema: Schema | None, described: Path | None) -> None:
    """Caution where public facts let numbers of text files count as missing, unseen.

    Cells that are separated by semicolons often have decimal commas. Where unreadable cells are
    missing values, no cell stops a release, so only what was stated can tell before it.
    """
    from click.core import ParameterSource

    from privsketch.facts.columns import Cycle, Number
    from privsketch.tables.files import suffix

    context = click.get_current_context()
    is_stated = context.get_parameter_source("decimal") is not ParameterSource.DEFAULT
    if schema is None or schema.unreadable != "missing" or is_stated:
        return
    has_numbers = any(isinstance(column, Number | Cycle) for column in schema.columns)
    is_text = any(suffix(path) in (".csv", ".tsv") for path in stated.table.all_files)
    if stated.facts.get("delimiter") == ";" and has_numbers and is_text:
        look = "" if described is None else f"; `privsketch check {described} DATA` looks first"
        caution(
            "cells are separated by semicolons, and --decimal is not stated: numbers with a "
            f"decimal comma would count as missing, and the budget would be spent{look}"
        )


def caution(text: str, *, heading: str = "careful", width: int | None = None) -> None:
    """Print a caution to standard error, and add it to the answer."""
    line = f"{heading:<12}{text}" if width is None else wrap_text(text, heading, 12, width)
    click.echo(answer.readable(line), err=True)
    answer.remark("cautions", text)


def wrap_text(text: str, heading: str, indent: int, width: int) -> str:
    """Wrap text beside a heading, in lines of at most `width` characters."""
    return textwrap.fill(
        text,
        width,
        initial_indent=f"{heading:<{indent}}",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def say_source(source: str | None, output: Path, release: str) -> None:
    """Print a note on the source's name, if the caller did not choose it.

    `release` is the beginning of a phrase that these records end: "sketch of".
    """
    if source is None and is_standard(output):
        note(
            f"the source has a random name: another {release} these records costs again, and "
            "nobody can see that; name them with --source",
            output,
        )
    elif source is None:
        note(
            f"the source is named after the output, {output.stem}: another {release} "
            "these records, whatever its name, costs again",
            output,
        )


def note(text: str, output: Path | None) -> None:
    """Print a note about a result, and add it to the answer."""
    say(f"note        {text}", output)
    answer.remark("notes", text)


def write(
    save: Callable[[Path], None], output: Path, begin: Callable[[], None] | None = None
) -> None:
    """Save a result to its file, or write it to standard output.

    `begin` is called before the first byte goes to standard output: from then on someone may have
    read it, even if writing the rest fails.
    """
    if not is_standard(output):
        _remove_signature(output)
        save(output)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result"
        save(file)
        content = memoryview(file.read_bytes())
    if begin is not None:
        begin()
    with answer.standard_output():
        sys.stdout.flush()
        while content:  # an unbuffered write may be short
            content = content[sys.stdout.buffer.write(content) :]
        sys.stdout.buffer.flush()


def _remove_signature(output: Path) -> None:
    """Remove the signature of a file that a result replaces; it does not match the result."""
    from privsketch._base.errors import AccessError
    from privsketch.signing.signature import signature_path

    try:
        signature_path(output).unlink(missing_ok=True)
    except OSError as error:
        raise AccessError(
            f"{signature_path(output)}: {error.strerror or 'cannot be removed'}"
        ) from None


def say_written(output: Path) -> None:
    """Print where the result was written."""
    say(f"written to {'standard output' if is_standard(output) else output}", output)


def require_available(path: Path, force: bool | None, reason: str) -> None:
    """Refuse an output that cannot be written or would replace a file.

    `force` is None for commands without --force, whose errors do not name it.
    """
    from privsketch._base.errors import AccessError
    from privsketch._base.formats import require_writable
    from privsketch.signing.signature import signature_path

    if is_standard(path):
        if answer.wants_json():
            raise click.UsageError("--json and the output - both need standard output; name a file")
        if sys.stdout is None:
            raise AccessError("-: there is no standard output")
        if sys.stdout.isatty():
            raise AccessError("-: standard output is a terminal; send it to a file or a pipe")
        return
    require_writable(path)
    if path.exists() and not force:
        advice = "; name another file" if force is None else " (--force replaces it)"
        raise AccessError(f"{path} exists; {reason}{advice}")
    signature = signature_path(path)
    if os.path.lexists(signature):
        require_writable(signature)  # it will be removed
        if not force:
            advice = "; name another output" if force is None else " (--force removes it)"
            raise AccessError(f"{signature} exists; it signs another file{advice}")


def file_kind(path: Path) -> str | None:
    """Return the kind of a privsketch file; None for other files, pipes and missing files."""
    from privsketch._base.errors import FileError
    from privsketch._base.files import kind_of
    from privsketch._base.formats import MAX_JSON_BYTES, beginning_of

    try:
        return kind_of(beginning_of(path, MAX_JSON_BYTES), str(path))
    except FileError:
        return None


def require_empty(folder: Path, reason: str) -> None:
    """Refuse a folder that is not empty."""
    from privsketch._base.errors import AccessError

    if folder.is_dir() and any(folder.iterdir()):
        raise AccessError(f"{folder}: not empty; {reason}, so use a new folder")


def require_distinct(stated: TableOptions, outputs: Sequence[Path]) -> None:
    """Refuse an output that is also an input or another output, or in a folder of inputs."""
    from privsketch._base.errors import AccessError

    all_files = [path.resolve() for path in (*stated.table.all_files, *outputs)]
    folders = [path.resolve() for path in stated.paths if path.is_dir()]
    for path in outputs:
        if is_standard(path):
            continue
        if all_files.count(path.resolve()) > 1:
            raise AccessError(f"{path}: given twice; every input and output needs its own file")
        if path.resolve().parent in folders:
            raise AccessError(f"{path}: in a folder of records; the next run would read it as one")


def required_output(output: Path | None) -> Path:
    """Return the output, or raise the usage error of a missing option."""
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    return output


def require_file(path: Path | None, reason: str) -> None:
    """Refuse standard output for a result that must be a file."""
    from privsketch._base.errors import ParameterError

    if is_standard(path):
        raise ParameterError(f"-: {reason}; name a file")
