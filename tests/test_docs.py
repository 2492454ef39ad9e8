"""Links of the documentation lead to files and headings, and its command lines can be typed.

Commands of the other distribution are checked where it is installed.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from privsketch.cli.main import main
from tests.advice import command_of, options_of
from tests.commands import PLUGINS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/docs/**/*.md"))
    if path.parent.name != "text"  # parts of pages in docs/papers, which are there as a whole
)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*")


@cache
def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def without_code(text):
    """The text of a page without its blocks of code, in which brackets are no links."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)


@cache
def anchors_of(path):
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text(encoding="utf-8")), re.M)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page, text):
    """Links of a page that lead nowhere."""
    broken = []
    for link in _LINK.findall(without_code(text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        has_anchor = not anchor or (path.suffix == ".md" and path.is_file())
        if not path.exists() or not has_anchor or (anchor and anchor not in anchors_of(path)):
            broken.append(link)
    return broken


def command_lines(text):
    """Yield the words of commands of privsketch in blocks of code and between backquotes."""
    fences = re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.M | re.S)
    blocks = [block for _, language, block in fences if language in ("", "sh", "bash", "console")]
    spans = re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", without_code(text))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *(" ".join(span.split()) for span in spans)]:
        for part in re.split(r"[|;]|&&|\$\(|\)", line.split(" # ")[0]):
            words = part.split()
            if words[:1] == ["$"]:
                words = words[1:]
            if words[:1] == ["privsketch"] and len(words) > 1:
                yield words[1:]


def faults_of(words):
    """What is wrong with a command line of a page; placeholders of several words end it."""
    if words[0] in PLUGINS and main.get_command(click.Context(main), words[0]) is None:
        return []
    is_placeholder = words[0].isupper() or words[0] == "..."  # `privsketch COMMAND --help`
    is_name = re.fullmatch(r"v\d+", words[-1])  # what a signature is about, in docs/format.md
    if is_placeholder or is_name or words == ["cl"]:  # what a shell completes
        return []
    if words[0].startswith("-"):
        command, name = main, "privsketch"
    else:
        command, name = command_of(tuple(word.strip(".,:") for word in words))
    if command is None:
        return [f"there is no command {name!r}"]
    if isinstance(command, click.Group) and command is not main:
        return []  # `privsketch study ...`
    options = {match[0] for word in words if (match := _OPTION.fullmatch(word.split("=")[0]))}
    known = options_of(command) | {"-h"}
    return [f"{name!r} has no option {option}" for option in sorted(options - known)]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert broken_links(page, text_of(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_can_be_typed(page):
    faults = [
        f"{shlex.join(words)}: {fault}"
        for words in command_lines(text_of(page))
        for fault in faults_of(words)
    ]
    assert faults == []


def test_what_is_wrong_would_be_found():
    text = (
        "[a](nowhere.md) [b](keys.md#nothing) [c](keys.md#for-machines) [d](https://x.y)\n"
        "```\n[e](code.md)\nprivsketch keys x # --no\n  privsketch merge a \\\n  --weight 2\n```\n"
        "`privsketch key trust --jsn` and `privsketch merge --weights 2,1`\n"
    )
    assert broken_links("docs/ledger.md", text) == ["nowhere.md", "keys.md#nothing"]
    found = [fault for words in command_lines(text) for fault in faults_of(words)]
    assert found == [
        "there is no command 'keys'",
        "'merge' has no option --weight",
        "'key trust' has no option --jsn",
    ]
    assert len(list(command_lines(text_of("docs/commands.md")))) > 5
