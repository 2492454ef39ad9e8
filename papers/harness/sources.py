"""The code that a result depends on, as a digest of its content.

All of the library counts but what shows results, whether a result needs it or not: what an
experiment calls is not followed that far. Here the module of the experiment counts, and the modules
that it imports. Those that show rows import it, not the other way round, so they may change freely.
Names and places of files do not count: code that is moved finds what it had found before.
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

import privsketch

_SHOW = ("cli", "report")  # rooms that show results and change none
_MACHINERY = "papers.harness."  # runs experiments and keeps what they found
_BELOW = ("numpy", "scipy", "scikit-learn", "llvmlite", "opendp")


@cache
def sources_digest(module: str) -> str:
    """Digest of the sources behind the functions of a module, as this process found them."""
    papers = Path(__file__).parent.parent
    return digest_of(
        Path(str(sys.modules[module].__file__)), papers, Path(str(privsketch.__file__)).parent
    )


def digest_of(start: Path, papers: Path, library: Path) -> str:
    """Digest of a module's file, of what it imports of `papers`, and of the library."""
    found = [*_below(library), *_imports_of(start, papers)]
    contents = sorted(hashlib.sha256(path.read_bytes()).digest() for path in found)
    return hashlib.sha256(b"".join(contents)).hexdigest()


@cache
def versions_below() -> dict[str, str]:
    """Libraries whose version may change a number."""
    return {name: version(name) for name in _BELOW} | {"python": platform.python_version()}


def _below(library: Path) -> Iterator[Path]:
    for path in library.rglob("*.py"):
        if path.relative_to(library).parts[0] not in _SHOW:
            yield path


def _imports_of(start: Path, papers: Path) -> set[Path]:
    """Return a file and all modules of the papers that it imports, directly or not."""
    found, waiting = {start}, [start]
    while waiting:
        tree = ast.parse(waiting.pop().read_text(encoding="utf-8"))
        for name in _imported(tree):
            path = papers.joinpath(*name.split(".")[1:]).with_suffix(".py")
            if path.is_file() and path not in found:
                found.add(path)
                waiting.append(path)
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    """Names of modules of the papers, and names that may be those of modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            if name.startswith("papers.") and not f"{name}.".startswith(_MACHINERY):
                yield name
