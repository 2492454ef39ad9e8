"""`privsketch --explain`: a page of the documentation in the terminal, for who has no repository.

A topic is a page, or the part of one below a heading.

The wheel has a copy of the page; in a checkout it is read where it lies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

# Pages without their endings, and headings of their parts; "" is all of a page.
TOPICS = {"epsilon": ("epsilon", ""), "delta": ("epsilon", "What delta is")}
_PACKAGE = Path(__file__).parents[2]
_FOLDERS = (_PACKAGE, _PACKAGE.parents[1] / "docs")  # of the wheel, and of a checkout
_WIDEST = 100  # characters of a line


def explained(topic: str) -> str:
    """Return a page, or a part of one, as Markdown, without its picture."""
    page, heading = TOPICS[topic]
    path = next(path for folder in _FOLDERS if (path := folder / f"{page}.md").is_file())
    text = path.read_text(encoding="utf-8")
    if heading:
        parts = re.split(r"^(?=## )", text, flags=re.M)
        text = next(part for part in parts if part.startswith(f"## {heading}\n"))
    text = re.sub(
        r"^!\[.*\]\((.*)\)$", r"(The picture is docs/\1 of the sources.)", text, flags=re.M
    )
    return re.sub(r"\]\((\w+\.md)\)", r"](docs/\1)", text)


def _show(context: click.Context, _: click.Parameter, topic: str | None) -> None:
    """Print the page and end."""
    if topic is None:
        return
    from rich.console import Console
    from rich.markdown import Markdown

    from privsketch.cli.shell.answer import standard_output

    console = Console()
    console.width = min(console.width, _WIDEST)
    with standard_output():
        console.print(Markdown(explained(topic), hyperlinks=False))
    context.exit()


def explaining(command: Any) -> Any:
    """Add the option --explain to the group of all commands."""
    return click.option(
        "--explain",
        type=click.Choice(list(TOPICS)),
        is_eager=True,
        expose_value=False,
        callback=_show,
        help="Print a page: what epsilon and delta are, and which to take.",
    )(command)
