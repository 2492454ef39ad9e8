"""Checks of `--json` that hold for every command, for the tests of both distributions.

A test module has `EXAMPLES`: runs of each command, by the command's name, in a folder that its
fixture fills.
"""

import json
import re
from pathlib import Path

import click
import pytest

import privsketch as ps
from tests.answers import SCHEMAS, validated
from tests.commands import USAGE, run, succeeded, times_told

OUTPUTS = ("-o", "--report", "--publish-matrix", "--token-file")  # options that name a new file


def commands(group, *names):
    """Return the commands of a group and of the groups in it, by their names."""
    found = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= commands(command, *names, name)
        else:
            found[" ".join((*names, name))] = command
    return found


def cases(examples, slow=None):
    """Return a parameter set (command, arguments) for each run of the examples."""
    return [
        pytest.param(name, arguments, id=f"{name}-{n}", marks=(slow or {}).get(name, ()))
        for name, runs in examples.items()
        for n, arguments in enumerate(runs)
    ]


def answer(command, *arguments):
    """Return the object that a command prints; the command must succeed."""
    result = succeeded(*command.split(), *arguments, "--json")
    return validated(json.loads(result.stdout), command.replace(" ", "-"))


def check_has_json(name, command, examples):
    """Check that a command has `--json`, a schema and an example."""
    options = [option for option in command.params if "--json" in option.opts]
    assert [option.name for option in options] == ["as_json"]
    assert options[0].help == "Print one JSON object, for programs."
    assert f"{name.replace(' ', '-')}.schema.json" in SCHEMAS
    assert examples.get(name), "add a run of the new command to EXAMPLES"


def check_answer(command, *arguments):
    """Check that an answer keeps to its schema and names the command, the version and files."""
    content = answer(command, *arguments)
    assert content["command"] == command
    assert content["version"] == ps.__version__
    for path in content.get("written", ()):
        assert Path(path).exists()


def check_failure(name):
    """Check that a wrong option ends in a failure by its schema, and that nothing was spent."""
    result = run(*name.split(), "--nonsense", "--json")
    assert result.exit_code == USAGE
    content = validated(json.loads(result.stdout), "failure")
    assert content["command"] == name
    assert content["error"]["kind"] == "usage"
    assert content["error"]["spent"] == "nothing"
    assert content["error"]["message"] in result.stderr
    assert result.stderr.count("nothing was spent") == times_told(name.split())


def check_replaces_nothing(name, arguments, *, new_file=None, is_folder=False):
    """Run a command whose outputs exist already; return its error, once nothing was replaced.

    `new_file` is the index of an argument that names an output; `is_folder` if outputs are folders.
    """
    arguments = [str(argument) for argument in arguments]
    indices = [n + 1 for n, argument in enumerate(arguments) if argument in OUTPUTS]
    indices += [] if new_file is None else [new_file]
    decoys = {}
    for index in indices:
        path = Path(f"decoy-{name.replace(' ', '-')}-{arguments[index]}")
        arguments[index] = str(path)
        if is_folder:
            path.mkdir(exist_ok=True)
            path = path / "model.json"
        is_json = path.suffix == ".json"
        decoys[path] = Path("study.json").read_bytes() if is_json else b"<!doctype html>"
        path.write_bytes(decoys[path])
    result = run(*name.split(), *arguments)
    assert result.exit_code not in (0, USAGE), result.output
    assert {path: path.read_bytes() for path in decoys} == decoys
    return result.stderr


def listed_commands(page):
    """Return the names in the first table of a page of docs."""
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])]
