"""What a command answers to machines: with --json, one object on standard output.

A command takes the option `JSON`, says its words with `say` and hands its facts to `answer`; the
group prints them once, when the command has ended, with the error if it failed. Words are not
said then: what they tell is in the object. docs/json has a schema for every command.

Facts are what the words of the command tell, and no more: nothing exact, but of `check`, which is
for the holder alone. How long a run took is not among them, for it tells how many records it read.
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
_PLACE = "privsketch.answer"  # in what click's contexts share


@dataclass
class Answer:
    """What a command has to tell a machine, if one asked.

    `command` is its name, "schema draft" for instance; None where there is no such command.
    `remarks` are sentences that came up on the way, "cautions" and "notes".
    """

    command: str | None
    as_json: bool
    facts: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, list[str]] = field(default_factory=dict)

    def remark(self, kind: str, texts: Iterable[str]) -> None:
        """Add sentences, each of them once."""
        self.remarks[kind] = list(dict.fromkeys([*self.remarks.get(kind, ()), *texts]))

    def show(self, error: Mapping[str, Any] | None = None) -> None:
        """Print the object, if a machine asked and there is something to tell.

        Beside an error stands what the command had found in full, which is nothing for most.
        """
        if not self.as_json or (error is None and not self.facts):
            return
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        whole = {"command": self.command, "version": __version__, "time": now, **self.facts}
        whole |= self.remarks if error is None else {"error": error}
        # In ASCII: names of files may be no text, and encodings of shells have not all letters.
        text = json.dumps(plain(whole), indent=2, allow_nan=False)
        with standard_output():
            click.echo(text)
            if sys.stdout is not None:
                sys.stdout.flush()


def begin(context: click.Context, arguments: Sequence[str]) -> tuple[Answer, click.Command | None]:
    """The empty answer of what these arguments of the group ask for, and the command.

    A --json that is written is believed until click has read all options: what is wrong with the
    others is to be told to a machine, too.
    """
    command, names = context.command, list[str]()
    for word in arguments:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            break
        command, names = found, [*names, word]
    stated = list(arguments)
    if "--" in stated:
        stated = stated[: stated.index("--")]
    asked = Answer(" ".join(names) or None, "--json" in stated), command if names else None
    context.meta[_PLACE] = asked
    return asked


def begun(context: click.Context | None) -> tuple[Answer, click.Command | None]:
    """What `begin` found; for code of commands that no shell has called, nobody who listens."""
    nobody = Answer(None, as_json=False), None
    found: tuple[Answer, click.Command | None]
    found = nobody if context is None else context.meta.get(_PLACE, nobody)
    return found


def _read(context: click.Context, _: click.Parameter, value: bool) -> None:
    begun(context)[0].as_json = value


# Eager: read before other options can be wrong.
JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_read,
    help="For machines: one JSON object.",
)


def _current() -> Answer:
    return begun(click.get_current_context(silent=True))[0]


def answer(**facts: Any) -> None:
    """Hand over the facts of the object, all of them at once, when the work is done."""
    found = _current()
    for kind in _REMARKS:
        found.remark(kind, facts.pop(kind, ()))
    found.facts = facts


def remark(kind: str, text: str) -> None:
    """Add a sentence to one of the object's lists, "notes" or "cautions"."""
    _current().remark(kind, [text])


def wants_json() -> bool:
    """Whether a machine asked, and words are not to be said on standard output."""
    return _current().as_json


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Words for people; not said where a machine asked.

    Where the result is written already, a reader who leaves (`| head -1`) misses words and stops
    nothing: a report or a matrix may have to follow.
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
    """Whether the result of a command that spends stands under its name."""
    context = click.get_current_context(silent=True)
    stop = None if context is None else context.find_root().obj
    spending = getattr(stop, "spending", None)
    return spending is not None and spending.written is not None


def readable(text: str) -> str:
    """Words that cannot steer a terminal, whatever names of files and columns they have."""
    from privsketch._base.formats import as_line

    return "\n".join(map(as_line, text.split("\n")))


def plain(value: Any) -> Any:
    """As plain JSON values; numbers that are not finite are null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return plain(value.tolist())
    return str(value)


class UnreadError(AccessError):
    """Whoever read standard output has closed it, as `head` does."""


@contextmanager
def standard_output() -> Iterator[None]:
    """Errors of a standard output that is closed or full, as ours."""
    try:
        yield
    except OSError as error:
        # Python would try once more to write what is left when it ends, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        kind = UnreadError if error.errno == errno.EPIPE else AccessError
        raise kind(f"standard output: {error.strerror or 'cannot be written'}") from None
