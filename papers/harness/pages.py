"""Pages about the papers: a text written by hand, and the results that lie beside it.

In `text/NAME.md` a line `{{target}}` stands for what was found: picture, table, comparison, and
what it was made by. All of it comes from files in the folder NAME; nothing is run.

    python -m papers.harness.pages docs/papers
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from papers.harness.results import Target, words
from papers.harness.rows import from_csv
from papers.harness.targets import TARGETS
from privsketch._base.errors import ParameterError
from privsketch._base.formats import read_file, write_file

_PLACE = re.compile(r"^\{\{(.*)\}\}$", re.MULTILINE)
_WIDTH = 100


def papers_of(folder: Path) -> list[str]:
    """Short names of the papers that have a text."""
    return sorted(path.stem for path in (folder / "text").glob("*.md"))


def made_from(folder: Path, papers: Sequence[str]) -> dict[Path, str]:
    """All files that follow from texts and rows in a folder, with what they should contain."""
    made = {}
    for path in [folder / "text" / f"{paper}.md" for paper in papers]:
        text = read_file(path).decode()
        results = folder / path.stem
        for name in _PLACE.findall(text):
            target = _target(name, path)
            if _is_there(target, results):
                made[results / f"{name}.txt"] = _words(target, results) + "\n"
        made[folder / path.name] = page(text, results, path)
    return made


def page(text: str, results: Path, path: Path) -> str:
    """Fill the placeholders of a text; `path` is the text's path, for errors."""
    note = f"<!-- Made from text/{path.name} and {results.name}/ by `make docs`; edit these. -->"
    filled = _PLACE.sub(lambda place: _block(_target(place[1], path), results), text)
    return f"{note}\n\n{filled}"


def _block(target: Target, results: Path) -> str:
    """Picture, table, words and origin of a target."""
    if not _is_there(target, results):
        return f"*{target.name} was not run yet: `python -m papers {target.name}`.*"
    rows = from_csv(read_file(results / f"{target.name}.csv").decode())
    parts = []
    if target.view.figure is not None:
        parts.append(f"![{target.view.shows}]({results.name}/{target.name}.png)")
    parts.append(f"```text\n{target.view.table(rows)}\n```")
    parts += [_wrapped(line) for line in target.view.comparison(rows).splitlines()]
    parts.append(_wrapped(f"*Made by {_origin(target, results)}.*"))
    return "\n\n".join(parts)


def _words(target: Target, results: Path) -> str:
    """Return the text beside the rows, which may have changed since the rows were made."""
    rows = from_csv(read_file(results / f"{target.name}.csv").decode())
    return words(target, rows, _origin(target, results))


def _origin(target: Target, results: Path) -> str:
    """Return the last line of the text: the command, its time and versions."""
    return read_file(results / f"{target.name}.txt").decode().splitlines()[-1]


def _is_there(target: Target, results: Path) -> bool:
    return all((results / f"{target.name}.{kind}").is_file() for kind in ("csv", "txt"))


def _target(name: str, path: Path) -> Target:
    for target in TARGETS:
        if target.name == name:
            return target
    raise ParameterError(f"{path}: {{{{{name}}}}} is no target")


def _wrapped(line: str) -> str:
    return textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False)


def main(arguments: Sequence[str]) -> None:
    """Write the pages of a folder, or some of them by name, and the words beside rows."""
    folder, *papers = arguments
    made = made_from(Path(folder), papers or papers_of(Path(folder)))
    for path, content in made.items():
        if not path.is_file() or path.read_text() != content:
            write_file(path, content.encode())
            print(f"written to {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
