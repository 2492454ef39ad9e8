"""Shells complete commands, options, words and files, through the program that the shell starts."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete

from privsketch.cli.main import main

PROGRAM = """
import sys
from privsketch.cli.shell.stopping import run

sys.argv[0] = "privsketch"
try:
    run()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def asked(instruction, **words):
    """What the program answers a shell, and the modules that it loaded."""
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "_PRIVSKETCH_COMPLETE": instruction, **words},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout, set(told.stderr.split())


def completed(line):
    """Completions of the last word of a line, each with its kind."""
    *before, last = line.split(" ")[1:]
    found = BashComplete(main, {}, "privsketch", "").get_completions(before, last)
    return [(item.type, item.value) for item in found]


def test_the_program_answers_without_heavy_imports():
    words = {"COMP_WORDS": "privsketch cluster --method p", "COMP_CWORD": "3"}
    answer, loaded = asked("bash_complete", **words)
    assert answer.splitlines() == ["plain,pipeline", "plain,partition-tree"]
    assert "privsketch.cli.main" in loaded
    assert not loaded & {"numpy", "scipy", "sklearn", "pyarrow", "rich"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("privsketch clu", ["cluster"]),
        ("privsketch cluster --max", ["--max-clusters"]),
        ("privsketch cluster --loss ", ["squares", "distances"]),
        ("privsketch cluster --method part", ["partition-tree"]),
        ("privsketch cluster -k a", ["auto"]),
        ("privsketch cluster -k 1", []),
        ("privsketch learn all.sketch -k ", ["auto"]),
        ("privsketch learn all.sketch --task g", ["gaussian-mixture"]),
        ("privsketch design --neighbours r", ["replace"]),
        ("privsketch schema d", ["draft"]),
    ],
)
def test_commands_options_and_words(line, expected):
    assert completed(line) == [("plain", word) for word in expected]


@pytest.mark.parametrize(
    "line",
    [
        "privsketch sketch ",
        "privsketch sketch study.json ",
        "privsketch merge a.sketch ",
        "privsketch learn ",
        "privsketch cluster da",
        "privsketch cluster data.csv -o ",
        "privsketch cluster data.csv --schema ",
        "privsketch inspect ",
        "privsketch check ",
        "privsketch release ",
    ],
)
def test_files_are_left_to_the_shell(line):
    assert [kind for kind, _ in completed(line)] == ["file"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_page_says_what_the_shell_needs(shell):
    script, _ = asked(f"{shell}_source")
    assert f"_PRIVSKETCH_COMPLETE={shell}_complete" in script
    assert "privsketch" in script.splitlines()[0]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_a_line(folder):
    """The function that the script defines, called as bash calls it."""
    (folder / "privsketch").write_text(f"#!{sys.executable}\n{PROGRAM}")
    (folder / "privsketch").chmod(0o755)
    script, _ = asked("bash_source")
    lines = [
        script,
        "COMP_WORDS=(privsketch cluster --method p); COMP_CWORD=3",
        "_privsketch_completion ./privsketch 2>/dev/null",
        'echo "${COMPREPLY[@]}"; complete -p privsketch',
    ]
    told = subprocess.run(
        ["bash", "--norc"], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    words, registered = told.stdout.splitlines()
    assert words == "pipeline partition-tree"
    assert "-F _privsketch_completion privsketch" in registered
