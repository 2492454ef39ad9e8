"""Advice in messages: every command that one names exists, and so do its options.

An advice stands between backquotes and begins with `privsketch`, or is an option such as `--force`.
Options without a command are those of the command at hand.
"""

import ast
import re
from functools import cache
from inspect import unwrap
from pathlib import Path

import click

from privsketch.cli.main import main

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# What follows the program's name up to the next one, or up to a mark that ends a command.
_NAMED = re.compile(r"(`?)privsketch ((?:(?!privsketch )[^`;)|,])+)")


@cache
def command_of(words):
    """Return the command that words begin with, and its name; None if there is no such command."""
    command, name = main, []
    for word in words:
        if not isinstance(command, click.Group) or not word[0].isalpha():
            break
        command = command.get_command(click.Context(command), word)
        if command is None:
            return None, " ".join([*name, word])
        name.append(word)
    return command, " ".join(name)


def options_of(command):
    """Return all names of the options of a command."""
    found = {"--help"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def faults(text, command=None, elsewhere=()):
    """Return what is wrong with the advice of a text, as sentences.

    `command` is the one at hand; `elsewhere` are first words of commands that may be missing here.
    Values that a text shows are "X".
    """
    found, rest = [], " ".join(text.split())
    for match in _NAMED.finditer(rest):
        words = match[2].split()
        is_quoted, is_command = bool(match[1]), main.get_command(click.Context(main), words[0])
        if not (is_quoted or is_command or words[0] in elsewhere):
            continue  # a sentence about privsketch
        rest = rest.replace(match[0], " ", 1)
        if words[0] in elsewhere or "X" in words[:2]:
            continue
        if words[0].startswith("-"):
            named, name = main, "privsketch"
        else:
            named, name = command_of(tuple(words))
        if named is None:
            found.append(f"there is no command {name!r}")
            continue
        options = {option for word in words for option in _OPTION.findall(word)}
        missing = options - options_of(named)
        found += [f"{name!r} has no option {option}" for option in sorted(missing)]
    if command is not None:
        missing = set(_OPTION.findall(rest)) - options_of(command)
        found += [f"the command at hand has no option {option}" for option in sorted(missing)]
    return found


def every_command(group=main, names=()):
    """Yield names and commands of a group and of those in it, with commands of other packages."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*names, name))
        elif command is not None:
            yield " ".join((*names, name)), command


def texts_in(folder):
    """Yield each text in the sources of a package: its place, and the command whose function it is.

    Values in a text are shown as "X"; the command is None outside of a command's function.
    """
    at_hand = {}
    for _, command in every_command():
        code = unwrap(command.callback).__code__
        at_hand[Path(code.co_filename).resolve(), code.co_name] = command
    for path in sorted(Path(folder).resolve().rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from _texts(tree, path, None, at_hand)


def _texts(node, path, command, at_hand):
    for child in ast.iter_child_nodes(node):
        own = command
        if isinstance(child, ast.FunctionDef):
            own = at_hand.get((path, child.name), command)
            docstring = ast.get_docstring(child)
            if own is not None and docstring:
                yield f"{path.name}:{child.lineno}", docstring, own
            yield from _texts(child, path, own, at_hand)
        elif isinstance(child, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in child.values]
            yield f"{path.name}:{child.lineno}", "".join(parts), own
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield f"{path.name}:{child.lineno}", child.value, own
        else:
            yield from _texts(child, path, own, at_hand)
