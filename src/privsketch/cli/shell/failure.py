"""Failures of commands: their kind, their exit code, and whether anything was spent.

Where the command could have spent something, one line on standard error ends in "nothing was spent"
or "the budget counts as spent". With --json an object on standard output says the same for every
command. docs/commands.md lists the exit codes. Messages of other libraries' errors may quote
records and are not shown.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from typing import Any

import click

from privsketch._base.plugins import DEBUG
from privsketch.cli.shell.answer import readable
from privsketch.cli.shell.stopping import NOTHING_SPENT, Stop

EXIT_CODES = {
    "interrupted": 1,
    "usage": 2,
    "data": 3,
    "budget": 4,
    "integrity": 5,
    "internal": 70,  # EX_SOFTWARE of sysexits.h
}
_PACKAGES = ("privsketch", "privsketch_studies")


@dataclass(frozen=True)
class Failure:
    """The reason why a command ended early.

    `sentence` says what was spent; it is empty for commands that cannot spend anything.
    `click_error` is click's own, if standard error shows more than its message.
    """

    kind: str
    message: str
    sentence: str
    counts: bool
    click_error: click.ClickException | None = None

    @classmethod
    def of(cls, error: BaseException, stop: Stop, command: click.Command | None) -> Failure:
        """Classify an error."""
        from privsketch._base.errors import PrivsketchError

        spending = stop.spending
        counts = spending is not None and spending.is_spent
        sentence = ""
        if counts or can_spend(command):
            sentence = NOTHING_SPENT if spending is None else spending.sentence()
        click_error = None
        if stop.was_signalled or isinstance(error, KeyboardInterrupt | click.Abort):
            # A library may have turned the interrupt into another error.
            kind, message = "interrupted", "interrupted"
        elif isinstance(error, PrivsketchError):
            kind, message = error.kind, error.rendered(shell_words(command))
            message = message.removesuffix(f"; {NOTHING_SPENT}")  # `sentence` says so
        elif isinstance(error, click.ClickException):
            kind, message, click_error = "usage", error.format_message(), error
        elif isinstance(error, OSError) and error.errno is not None:
            # The message of the system, not of the error, which may quote records.
            file = f"{error.filename}: " if isinstance(error.filename, str) else ""
            kind, message = "data", f"{file}{os.strerror(error.errno)}"
        else:
            kind, message = "internal", _describe_foreign(error)
        return cls(kind, message, sentence, counts, click_error)

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return EXIT_CODES[self.kind]

    def show(self) -> None:
        """Print the failure on standard error, if that is open."""
        sentence = readable(self.sentence)
        with suppress(OSError):
            if self.click_error is not None:
                vars(self.click_error)["message"] = readable(
                    self.click_error.message
                )  # final, to click
                self.click_error.show()
                click.echo(sentence, err=True, nl=bool(sentence))
            elif self.kind == "interrupted":  # click says "Aborted!"
                click.echo(sentence, err=True, nl=bool(sentence))
            else:
                ending = f"; {sentence}" if sentence else ""
                click.echo(f"Error: {readable(self.message)}{ending}", err=True)

    def to_json(self) -> dict[str, Any]:
        """Return the failure as the field `error` of an answer."""
        return {
            "kind": self.kind,
            "exit_code": self.exit_code,
            "message": self.message,
            "spent": "counts as spent" if self.counts else "nothing",
        }


def can_spend(command: click.Command | None) -> bool:
    """Whether a command can spend any budget: those that can have the options of a ledger.

    Where no command was found, somebody may have meant one that spends.
    """
    if command is None or isinstance(command, click.Group):
        return True
    return any(option.name == "ledger_file" for option in command.params)


def _describe_foreign(error: BaseException) -> str:
    """Describe an error of another library: its type, and the line of our code that met it."""
    if os.environ.get(DEBUG) == "1":
        click.echo(f"{DEBUG}=1: this may contain records, show it to nobody else", err=True)
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _PACKAGES:
            where = f" at {module}, line {line}"
    return (
        f"internal error {type(error).__name__}{where}; please report it with this line "
        f"({DEBUG}=1 shows more, which may contain records)"
    )


def shell_words(command: click.Command | None) -> Callable[[str, str | None], str]:
    """Return a function that renders parameters as options of a command, others as in Python."""
    options = {
        option.name: option
        for option in (command.params if command is not None else ())
        if isinstance(option, click.Option)
    }

    def words(name: str, value: str | None) -> str:
        option = options.get(name)
        if option is None:
            return name if value is None else f"{name}={value}"
        text = max(option.opts, key=len)
        if option.is_flag:
            return max(option.secondary_opts, key=len) if value == "False" else text
        if value is None:
            return text
        return f"{text} {'a,b,c' if value == '[...]' else quote(value.strip(chr(39)))}"

    return words
