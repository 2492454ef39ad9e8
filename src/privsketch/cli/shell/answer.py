"""Answers of commands to machines: with --json, one object on standard output.

A command takes the option `JSON`, prints text with `say` and passes its facts to `answer`. The
group prints the object once, when the command has ended, with the error if it failed. With --json
no text is printed, because the object has the same content. tools/answers has the types.

An answer contains what the text says, and no more. It has no exact numbers, except for `check`,
which is for the holder alone. Durations are left out: they would reveal the number of records.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from privsketch import __version__
from privsketch._base.errors import AccessError

_REMARKS = ("cautions", "notes")
_META_KEY = "privsketch.answer"  # in the `meta` that click's contexts share


@dataclass
class Answer:
    """The answer of a command, which is printed with --json.

    `command` is its name, such as "schema draft"; None if there is no such command. `remarks` are
    sentences by kind, "cautions" and "notes".
    """

    command: str | None
    as_json: bool
    facts: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def remark(self, kind: str, texts: Iterable[str]) -> None:
        """Add sentences, each of them once."""
        self.remarks[kind] = list(dict.fromkeys([*self.remarks.get(kind, ()), *texts]))

    def show(self, error: Mapping[str, Any] | None = None) -> None:
        """Print the object if --json was given and there is an answer or an error.

        Some commands have facts beside an error; most have none.
        """
        if not self.as_json or (error is None and not self.facts):
            return
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        fields = {"command": self.command, "version": __version__, "time": now, **self.facts}
        fields |= self.remarks if error is None else {"error": error}
        # ASCII: names of files may be invalid text, and some shells cannot encode all letters.
        text = json.dumps(plain(fields), indent=2, allow_nan=False)
        with standard_output():
            click.echo(text)
            if sys.stdout is not None:
                sys.stdout.flush()


def begin(context: click.Context, arguments: Sequence[str]) -> tuple[Answer, click.Command | None]:
    """Return an empty answer for the arguments of the group, and the command that they name.

    A literal --json counts before click parses the options, so that errors in other options are
    reported as JSON, too.
    """
    command, names = context.command, list[str]()
    for word in arguments:
        child = command.get_command(context, word) if isinstance(command, click.Group) else None
        if child is None:
            break
        command, names = child, [*names, word]
    options = list(arguments)
    if "--" in options:
        options = options[: options.index("--")]
    pair = Answer(" ".join(names) or None, "--json" in options), command if names else None
    context.meta[_META_KEY] = pair
    return pair


def begun(context: click.Context | None) -> tuple[Answer, click.Command | None]:
    """Return the result of `begin`; an answer that is never printed outside of a command line."""
    pair: tuple[Answer, click.Command | None] = Answer(None, as_json=False), None
    return pair if context is None else context.meta.get(_META_KEY, pair)


def _read(context: click.Context, _: click.Parameter, value: bool) -> None:
    begun(context)[0].as_json = value


# Eager: parsed before other options can be wrong.
JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="Print one JSON object, for programs.",
)


def _current() -> Answer:
    return begun(click.get_current_context(silent=True))[0]


def answer(**facts: Any) -> None:
    """Set all facts of the answer at once, when the work is done."""
    current = _current()
    for kind in _REMARKS:
        current.remark(kind, facts.pop(kind, ()))
    current.facts = facts


def remark(kind: str, text: str) -> None:
    """Add a sentence to one of the object's lists, "notes" or "cautions"."""
    _current().remark(kind, [text])


def wants_json() -> bool:
    """Return whether --json was given, so that no text goes to standard output."""
    return _current().as_json


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print text for people, unless --json was given.

    Once the result is written, a closed standard output (`| head -1`) is no error: a report or a
    matrix may have to follow.
    """
    if wants_json():
        return
    try:
        with nullcontext() if err else standard_output():
            click.secho(readable(text), err=err, **style)
    except UnreadError:
        if not _has_written():
            raise


def _has_written() -> bool:
    """Return whether a command that spends has written its result."""
    context = click.get_current_context(silent=True)
    stop = None if context is None else context.find_root().obj
    spending = getattr(stop, "spending", None)
    return spending is not None and spending.written is not None


def readable(text: str) -> str:
    """Return text without control sequences, which names of files and columns may contain."""
    from privsketch._base.formats import as_line

    return "\n".join(map(as_line, text.split("\n")))


def plain(value: Any) -> Any:
    """Convert to plain JSON values; numbers that are not finite become null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return plain(value.tolist())
    return str(value)


class UnreadError(AccessError):
    """Standard output was closed by its reader, as `head` does."""


@contextmanager
def standard_output() -> Iterator[None]:
    """Convert errors of a closed or full standard output to errors of privsketch."""
    try:
        yield
    except OSError as error:
        # Otherwise Python would try to write the rest when it exits, and report another error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        kind = UnreadError if error.errno == errno.EPIPE else AccessError
        raise kind(f"standard output: {error.strerror or 'cannot be written'}") from None
