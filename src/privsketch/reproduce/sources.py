"""The code that a result depends on, as a digest.

All rooms below this one count, whether a result needs them or not: what an experiment calls is
not followed that far. In this room the module of the experiment counts, and the modules that it
imports. Those that show rows import it, not the other way round, so they are free to change.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

_SHOW = ("cli", "report")  # rooms that show results and change none
_ROOM = "reproduce"
# What runs experiments and keeps what they found.
_MACHINERY = ("__init__", "cells", "pages", "results", "sources", "targets", "workers")
_BELOW = ("numpy", "scipy", "scikit-learn", "llvmlite", "opendp")


@cache
def sources_digest(module: str) -> str:
    """Digest of the sources behind the functions of a module, as this process found them."""
    package = Path(__file__).parent.parent
    return digest_of(Path(str(sys.modules[module].__file__)), package)


def digest_of(start: Path, package: Path) -> str:
    """Digest of a module's file, of what it imports in its room, and of all rooms below."""
    digest = hashlib.sha256()
    for path in [*_below(package), *_in_room(start, package / _ROOM)]:
        inside = path.is_relative_to(package)
        name = path.relative_to(package).as_posix() if inside else path.name
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def versions_below() -> dict[str, str]:
    """Libraries whose version may change a number."""
    return {name: version(name) for name in _BELOW} | {"python": platform.python_version()}


def _below(package: Path) -> Iterator[Path]:
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).parts[0] not in (*_SHOW, _ROOM):
            yield path


def _in_room(start: Path, room: Path) -> list[Path]:
    """A file and all modules of the room that it imports, they import, and so on."""
    found, waiting = {start}, [start]
    while waiting:
        tree = ast.parse(waiting.pop().read_text(encoding="utf-8"))
        for name in set(_imported(tree)).difference(_MACHINERY):
            path = room / f"{name}.py"
            if path.is_file() and path not in found:
                found.add(path)
                waiting.append(path)
    return sorted(found)


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names of modules of the room; of others, names that no module of it has."""
    prefix = f"privsketch.{_ROOM}."
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name.removeprefix(prefix) for name in names if name.startswith(prefix))
