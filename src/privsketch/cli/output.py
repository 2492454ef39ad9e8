"""Where a result goes: a file under its name, or standard output for "-".

Words of a command go to standard output, unless the result does: then to standard error.
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

if TYPE_CHECKING:
    from privsketch.budget import Budget
    from privsketch.domain import Domain
    from privsketch.schema.table import Schema

STANDARD_OUTPUT = Path("-")


def is_standard(path: Path | None) -> bool:
    """Whether a result goes to standard output."""
    return path == STANDARD_OUTPUT


def source_name(source: str | None, output: Path) -> str | None:
    """The name of a set of records: the one given, or the output's; None if it has no name."""
    return source or (None if is_standard(output) else output.stem)


def say(text: str, output: Path | None) -> None:
    """Words about a result, where they are not mistaken for it."""
    click.echo(text, err=is_standard(output))


def say_cautions(
    domain: Domain | Schema,
    budget: Budget,
    n_records: float | None,
    names: Sequence[str] | None = None,
    *,
    width: int | None = None,
) -> list[str]:
    """What was stated and should be thought about once more, on stderr; the sentences.

    Lines are as long as sentences, or of this `width`.
    """
    from privsketch.design.cautions import stated_cautions

    found = stated_cautions(domain, budget, n_records, names)
    for text in found:
        line = f"careful     {text}" if width is None else filled(text, "careful", 12, width)
        click.echo(line, err=True)
    return found


def filled(text: str, heading: str, indent: int, width: int) -> str:
    """Words beside a heading, in lines of at most `width` characters."""
    return textwrap.fill(
        text,
        width,
        initial_indent=f"{heading:<{indent}}",
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )


def say_source(source: str | None, output: Path, what: str) -> None:
    """How the source was named, if nobody named it."""
    if source is None and is_standard(output):
        say(
            f"note        the source has a name drawn by chance: another {what} these records "
            "costs again, and nobody can tell; name them with --source",
            output,
        )
    elif source is None:
        say(
            f"note        the source is named after the output, {output.stem}: another {what} "
            "these records, whatever its name, costs again",
            output,
        )


def write(
    save: Callable[[Path], None], output: Path, begin: Callable[[], None] | None = None
) -> None:
    """Save a result where it goes.

    `begin` is called before the first byte goes to standard output: from then on somebody may
    have read it, whatever happens to the rest.
    """
    from privsketch.errors import FileError

    if not is_standard(output):
        save(output)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result"
        save(file)
        content = memoryview(file.read_bytes())
    if begin is not None:
        begin()
    try:
        sys.stdout.flush()
        while content:  # without a buffer of Python's, a write may be short
            content = content[sys.stdout.buffer.write(content) :]
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python would try once more to write what is left when it ends, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise FileError(f"standard output: {error.strerror or 'cannot be written'}") from None


def say_written(output: Path) -> None:
    """Where the result is now."""
    say(f"written to {'standard output' if is_standard(output) else output}", output)


def require_free(path: Path, force: bool, reason: str) -> None:
    """Refuse an output that cannot be written or would replace a file of value."""
    from privsketch.errors import FileError
    from privsketch.formats import require_writable

    if is_standard(path):
        if sys.stdout is None:
            raise FileError("-: there is no standard output")
        if sys.stdout.isatty():
            raise FileError("-: standard output is a terminal; send it to a file or a pipe")
        return
    require_writable(path)
    if path.exists() and not force:
        raise FileError(f"{path} exists; {reason} (--force if that is meant)")


def require_apart(data: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Refuse a result in the place of records, among them, or of another result."""
    from privsketch.errors import FileError
    from privsketch.tables.files import record_files

    taken = [path.resolve() for path in (*record_files(data), *outputs)]
    folders = [path.resolve() for path in data if path.is_dir()]
    for path in outputs:
        if is_standard(path):
            continue
        if taken.count(path.resolve()) > 1:
            raise FileError(f"{path}: given twice; records and results need a file each")
        if path.resolve().parent in folders:
            raise FileError(f"{path}: in a folder of records, of which it would be one next time")


def required_output(output: Path | None) -> Path:
    """The output, which a run that is not dry needs."""
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    return output


def require_file(path: Path | None, why: str) -> None:
    """Refuse standard output for what must be a file."""
    from privsketch.errors import FileError

    if is_standard(path):
        raise FileError(f"-: {why}; give the name of a file")
