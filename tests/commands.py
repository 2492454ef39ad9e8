"""Commands as tests give them, and what they leave behind."""

import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner

from privsketch.cli import can_spend
from privsketch.cli.main import main
from tests.advice import command_of, faults

PLUGINS = ("study", "collector")  # commands of the other distribution
USAGE, DATA, BUDGET, INTEGRITY = 2, 3, 4, 5  # exit codes, as in docs/commands.md


def run(*arguments):
    """What a command says, and its exit code; what its errors advise must exist."""
    words = tuple(str(argument) for argument in arguments)
    result = CliRunner().invoke(main, words)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    command, _ = command_of(words)
    for line in errors:
        # An option that there is not is named by the error about it.
        if not line.startswith("Error: No such option"):
            assert faults(line, command, elsewhere=PLUGINS) == []
    return result


def succeeded(*arguments):
    """The same for a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def times_told(arguments):
    """How often a failure of a command says what was spent: once if it could spend, else never.

    Where there is no such command, nobody knows what it would have done.
    """
    command = main
    for argument in arguments:
        commands = getattr(command, "get_command", None)
        if commands is None or commands(None, str(argument)) is None:
            break
        command = commands(None, str(argument))
    return int(can_spend(command))


def refused(folder, *arguments, code=USAGE):
    """The error line of a command that must fail: its exit code, no traceback, no file changed."""
    before = contents(folder)
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert "Traceback" not in result.output
    assert result.stderr.count("nothing was spent") == times_told(arguments)
    assert contents(folder) == before
    return lines[0]


def wait_until_it_listens(process):
    """Return once a command takes SIGTERM, or has ended: until then signals are for Python.

    A busy machine may take seconds for that.
    """
    status = Path(f"/proc/{process.pid}/status")
    if not status.parent.parent.exists():  # not Linux
        time.sleep(2)
        return
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status.read_text())[1], 16)
            if caught >> (signal.SIGTERM - 1) & 1:
                return
        time.sleep(0.005)


def contents(folder):
    """All files and folders below a folder, with their bytes."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def modules_after(statement):
    """Names of all modules that a new process has loaded after a statement."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())
