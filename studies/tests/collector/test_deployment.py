"""Files of a deployment: linters find nothing, and docs name commands that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from privsketch.cli.main import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])


def test_the_image_is_as_the_linter_wants_it(tmp_path):
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint here")

    def lint(file):
        return subprocess.run([hadolint, str(file)], capture_output=True, text=True).stdout

    file = DEPLOY / "Dockerfile"
    assert lint(file) == ""
    planted = tmp_path / "Dockerfile"
    planted.write_text(file.read_text().replace("python:3.12-slim", "python:latest"))
    assert "DL3007" in lint(planted)


def test_the_image_runs_as_nobody_in_particular_and_says_how_it_is():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert "HEALTHCHECK" in text
    assert "/health" in text
    assert not re.search(r"(?i)token|password|secret", text)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_units_are_understood_and_closed(tmp_path):
    for unit in UNITS:
        text = unit.read_text().replace("/opt/privsketch/bin/privsketch", "/bin/true")
        (tmp_path / unit.name).write_text(text)
    files = [str(tmp_path / unit.name) for unit in UNITS]
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=15",
         str(tmp_path / "privsketch-collector.service")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert rated.returncode == 0, rated.stdout[-200:]


def test_commands_of_files_and_docs_exist():
    """Every `privsketch ...` that a unit, the image or the page for admins names."""
    texts = [path.read_text() for path in (*UNITS, ROOT / "docs" / "collector-admin.md")]
    named = re.findall(r"privsketch (serve|collector [a-z-]+)((?: --[a-z-]+)*)", "\n".join(texts))
    assert len(named) > 10
    for words, options in named:
        command = main
        for word in words.split():
            command = command.get_command(None, word)
            assert command is not None, words
        known = {name for parameter in command.params for name in parameter.opts}
        assert set(options.split()) <= known, (words, options)
